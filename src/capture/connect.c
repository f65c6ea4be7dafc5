/*-------------------------------------------------------------------------
 *
 * connect.c
 *		Class CONNECT: logins, failed logins and logouts.
 *
 * A login is recorded when PostgreSQL has let the client in: at the commit of
 * the transaction that sets up the session.  The session's settings, those of
 * its role and database included, are known by then, and decide whether the login
 * is recorded, and whether it waits for the trail.  What comes later - libraries
 * that are loaded, event triggers for logins - can still end the session.
 * For failed logins only the server's own settings, and rules as far as they need no
 * catalog, are there to decide.
 *
 * A login fails with a FATAL error, which PostgreSQL reports, perhaps before the
 * process has a PGPROC or a role.  If log_min_messages hides the report, the end
 * of the process tells that the login failed, but not why, provided that it came
 * as far as to authentication.
 *
 * PostgreSQL does not regard these as failed logins, and neither do we: a cancel
 * request; a client that closes the connection during authentication, as psql
 * does before it asks for a password.
 *
 * Each login is followed by a logout, however the process exits, unless it is
 * killed.
 *
 * Must not raise.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "libpq/auth.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/walsender.h"

static ClientAuthentication_hook_type prev_ClientAuthentication = NULL;

/* The login has failed, and that has been recorded, if it is audited. */
static bool login_failed = false;

static void
capture_ClientAuthentication(Port *port, int status)
{
	paq_register_exit();
	paq_session_authenticated();
	if (prev_ClientAuthentication)
		prev_ClientAuthentication(port, status);
}

/*
 * Record what the process has done since it began, with its outcome.  may_look_up:
 * catalogs can be read.
 */
static void
record_session(const char *command, const PaqError *error, bool may_look_up)
{
	const PaqSubject subject = {
		.class = PAQ_CLASS_CONNECT, .may_look_up = may_look_up
	};
	PaqEvent	event = {.class = PAQ_CLASS_CONNECT};
	PaqPending *pending;

	event.start_time = MyStartTimestamp;
	if (!paq_event_choose(&event, &subject, error ? error->sqlstate : 0))
		return;
	event.command = command;
	if (error != NULL && error->message == NULL)
		event.flags = PAQ_RECORD_INCOMPLETE;
	else if (error != NULL)
		event.message = error->message;
	pending = paq_event_create(&event);
	if (pending == NULL)
		return;

	/* It is no part of the statement that is interrupted by a logout. */
	paq_pending_header(pending)->statement_id = 0;
	paq_publish_now(pending, error ? error->sqlstate : 0);
}

/*
 * Before a commit.  The first commit of a client's session completes its login;
 * only then the result is true.
 */
bool
paq_connect_login(void)
{
	if (likely(paq_logged_in) || MyProcPort == NULL)
		return false;
	paq_session_logged_in();
	paq_register_exit();
	paq_policy_follow();
	record_session("LOGIN", NULL, true);
	if (am_walsender)
		paq_protocol_watch();
	return true;
}

/*
 * A process without a client commits.  Its first commit is that with which PostgreSQL connects it
 * to its database.  It looks up names and rules then, because it cannot when it reports an error.
 */
void
paq_connect_without_client(void)
{
	static bool connected = false;

	if (connected || !paq_is_for_users())
		return;
	connected = true;
	paq_session_warm();
	paq_policy_follow();
}

/* A FATAL error is reported: if there is no session yet, there will be none. */
void
paq_connect_failed(const PaqError *error)
{
	if (paq_logged_in || login_failed || MyProcPort == NULL)
		return;
	login_failed = true;
	if (!paq_policy_is_current())
		paq_policy_refresh(false);
	record_session("LOGIN", error, false);
}

/*
 * Why the process exits, given the last error that was reported, NULL if there
 * was none.  The result is NULL if the client wanted to exit.
 */
static const PaqError *
exit_cause(const PaqError *error)
{
	static const PaqError lost = {
		ERRCODE_CONNECTION_FAILURE, "connection to client lost", true
	};
	static const PaqError terminated = {ERRCODE_ADMIN_SHUTDOWN, NULL, true};
	static const PaqError failed = {ERRCODE_CONNECTION_EXCEPTION, NULL, true};
	static const PaqError refused = {
		ERRCODE_SQLSERVER_REJECTED_ESTABLISHMENT_OF_SQLCONNECTION, NULL, true
	};

	if (error != NULL && error->fatal)
		return error;
	switch (pgStatSessionEndCause)
	{
		case DISCONNECT_CLIENT_EOF:
			return &lost;
		case DISCONNECT_KILLED:
			return &terminated;
		case DISCONNECT_FATAL:
			return paq_logged_in ? &failed : &refused;
		default:
			return NULL;
	}
}

/* The process exits.  error: see exit_cause(). */
void
paq_connect_exit(const PaqError *error)
{
	const PaqError *cause = exit_cause(error);

	if (paq_logged_in)
		record_session("LOGOUT", cause, false);
	else if (cause != NULL)
		paq_connect_failed(cause);
}

void
paq_connect_init(void)
{
	prev_ClientAuthentication = ClientAuthentication_hook;
	ClientAuthentication_hook = capture_ClientAuthentication;
}
