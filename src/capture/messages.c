/*-------------------------------------------------------------------------
 *
 * messages.c
 *		Watching the messages that a session sends to its client.
 *
 * No hook of PostgreSQL's is called for a fast-path call or a replication
 * command as a whole.  But each tells the client of its result, and that is
 * the moment at which its record has to be there.  PqCommMethods, the table of
 * functions that messages go through, is made to be exchanged: parallel workers
 * have another one.  So the functions for the two moments that matter are
 * wrapped here: a message, and what PostgresMain() does first when an error
 * has come up to it.
 *
 * An ordinary session is watched during its fast-path calls only, a walsender
 * as long as it lives.
 *
 * Guarantees: every message goes on as it came, and after an error in what is
 * done here none does.  Messages about errors are not looked at.
 *
 * Locking: none, everything is local to the process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "libpq/libpq.h"

/* What is wrapped; NULL: nothing */
static const PQcommMethods *next_methods = NULL;
static PQcommMethods watching_methods;

static int
watch_message(char type, const char *data, size_t len)
{
	paq_fastpath_message(type);
	paq_replication_message(type, data);
	/* may have been unwrapped meanwhile */
	return (next_methods ? next_methods : PqCommMethods)->putmessage(type, data, len);
}

/* An error has come up to PostgresMain(), which will report it. */
static void
watch_reset(void)
{
	void		(*next_reset) (void) = next_methods->comm_reset;

	paq_fastpath_error();
	paq_replication_error();
	next_reset();
}

void
paq_messages_watch(void)
{
	if (next_methods != NULL)
		return;
	next_methods = PqCommMethods;
	watching_methods = *PqCommMethods;
	watching_methods.putmessage = watch_message;
	watching_methods.comm_reset = watch_reset;
	PqCommMethods = &watching_methods;
}

/* If somebody else has wrapped us since, we go on to hand messages through. */
void
paq_messages_ignore(void)
{
	if (PqCommMethods != &watching_methods)
		return;
	PqCommMethods = next_methods;
	next_methods = NULL;
}
