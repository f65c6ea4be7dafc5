/*-------------------------------------------------------------------------
 *
 * replication.c
 *		Replication commands: BASE_BACKUP, CREATE_REPLICATION_SLOT, ...
 *
 * A walsender executes them without any hook.  Each answers with messages: the
 * first one begins its record, so that a crash does not hide it, and the last one
 * publishes that, before the client is told of the success.  Of
 * START_REPLICATION, which ends with the session, the first one does.  An error
 * comes up to PostgresMain().
 *
 * The class is MISC, that of commands for which there is no other.
 *
 * What a walsender executes as SQL is recorded as in any session.
 *
 * Raises errors for the reasons that a statement may be refused for, see
 * paq_settle(), and to serve an interrupt.
 *
 * Locking: none, everything is local to the process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "replication/walsender.h"
#include "tcop/tcopprot.h"

/* The words that make PostgreSQL 15 to 18 take a text for such a command */
static const char *const keywords[] = {
	"ALTER_REPLICATION_SLOT",
	"BASE_BACKUP",
	"CREATE_REPLICATION_SLOT",
	"DROP_REPLICATION_SLOT",
	"IDENTIFY_SYSTEM",
	"READ_REPLICATION_SLOT",
	"SHOW",
	"START_REPLICATION",
	"TIMELINE_HISTORY",
	"UPLOAD_MANIFEST"
};

/* The record of the command being executed; NULL if there is none */
static PaqPending *pending = NULL;

/* statement_timestamp() of the last command that has a record */
static TimestampTz last_command = 0;

/* Does the session wait for the record, which says that the command has succeeded? */
static bool waits = false;

/* Which command is being executed?  NULL if none is. */
static const char *
current_keyword(void)
{
	const char *text = debug_query_string;

	if (!am_walsender || text == NULL)
		return NULL;
	text += strspn(text, " \t\n\r\f\v");
	for (int i = 0; i < lengthof(keywords); i++)
	{
		const Size	len = strlen(keywords[i]);

		if (strncmp(text, keywords[i], len) == 0 &&
			!isalnum((unsigned char) text[len]) && text[len] != '_')
			return keywords[i];
	}
	return NULL;
}

/* Make the record, unless there is one or none is wanted. */
static void
begin_record(const char *keyword, bool may_scan)
{
	const bool	places = paq_masks_constants(PAQ_CLASS_MISC);
	PaqEvent	event = {0};
	PaqMasked	shown = {0};

	if (pending != NULL || !paq_class_is_audited(PAQ_CLASS_MISC) ||
		last_command == GetCurrentStatementStartTimestamp())
		return;
	last_command = GetCurrentStatementStartTimestamp();
	event.class = PAQ_CLASS_MISC;
	event.start_time = last_command;
	event.command = keyword;
	if (!paq_log_statement)
		event.flags = PAQ_RECORD_STMT_NOT_LOGGED;
	else
	{
		paq_mask_text(debug_query_string, (may_scan ? PAQ_MASK_SCAN : 0) |
					  (places ? PAQ_MASK_CONSTANTS : 0), &shown);
		event.text = shown.text;
		event.flags = paq_masked_flags(&shown);
	}
	pending = paq_event_create(&event);
	if (shown.copy != NULL)
		pfree(shown.copy);
}

/* Publish the record with its outcome, NULL being success. */
static void
publish_record(const PaqError *error)
{
	PaqPending *record = pending;

	if (record == NULL)
		return;
	pending = NULL;
	if (error != NULL && error->message != NULL)
		paq_pending_add_message(record, paq_masks_constants(PAQ_CLASS_MISC) ?
								PAQ_MASKED_MESSAGE : error->message,
								PG_UINT32_MAX);
	paq_publish_now(record, error ? error->sqlstate : 0);
}

/* The command has succeeded: wait for what has to be durable by then. */
static void
succeed(void)
{
	publish_record(NULL);
	waits = true;
	paq_wait_statement(PAQ_SPACE_WAIT);
	paq_wait_commit();
	waits = false;
}

/*
 * A message to the client: does it begin, or end, the answer to a command?  What
 * ends it has the command's keyword; BASE_BACKUP sends results that end before.
 */
void
paq_replication_message(char type, const char *data)
{
	const char *keyword;

	if (strchr("CGHTW", type) == NULL || paq_frame != NULL)
		return;
	keyword = current_keyword();
	if (keyword == NULL)
		return;
	if (pending == NULL)
	{
		paq_settle(PAQ_SPACE_WAIT);
		begin_record(keyword, true);
		if (pending != NULL)
			paq_queue_admit();
	}
	if (type == 'W' || (type == 'C' && strcmp(data, keyword) == 0))
		succeed();
}

/* An error has come up to PostgresMain(). */
void
paq_replication_error(void)
{
	const char *keyword = current_keyword();

	waits = false;
	if (keyword != NULL)
		begin_record(keyword, false);
	if (pending == NULL)
		return;
	publish_record(paq_error_command(debug_query_string));
	paq_request_waits();
}

/* Is a command being executed that has a record, and is not waiting for it? */
bool
paq_replication_known(void)
{
	return !waits && current_keyword() != NULL &&
		last_command == GetCurrentStatementStartTimestamp();
}

/* The process exits. */
void
paq_replication_exit(const PaqError *error)
{
	publish_record(error);
}
