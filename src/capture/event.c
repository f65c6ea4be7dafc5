/*-------------------------------------------------------------------------
 *
 * event.c
 *		Records of what is not the execution of a statement: errors before it,
 *		logins and logouts, changes of the settings.
 *
 * They have no ids of their own, because pgaudit, whose numbering we keep,
 * has no such records; what happens during a statement that has ids shows
 * the statement's id.
 *
 * Must not raise, and reads no catalog: for use anywhere, also while an error
 * is being handled, before a session has logged in, and at its end.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "compat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "stats.h"
#include "storage/ipc.h"

static void
fill_header(PaqRecordHeader *header, const PaqEvent *event)
{
	MemSet(header, 0, sizeof(*header));
	header->kind = PAQ_KIND_AUDIT;
	header->audit_class = event->class;
	header->start_time = event->start_time;
	header->session_start = MyStartTimestamp;
	header->statement_id = paq_frame ? paq_frame->group->statement_id : 0;
	header->rows = -1;
	header->vxid_proc = paq_vxid_proc();
	header->vxid_lxid = paq_vxid_lxid();
	header->pid = MyProcPid;
	header->encoding = GetDatabaseEncoding();
	header->stmt_location = -1;
}

/*
 * Encode a record of the event into the pending area.  Its outcome is noted
 * when it is published.  Returns NULL, after counting the loss, when out of
 * memory.
 */
PaqPending *
paq_event_create(const PaqEvent *event)
{
	PaqRecordHeader header;
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	const PaqSessionBlock *session;
	PaqPending *pending;
	bool		complete;
	bool		first;

	paq_set_text(texts, PAQ_FIELD_COMMAND, event->command);
	paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, event->object_type);
	paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, event->object_name);
	paq_set_text(texts, PAQ_FIELD_STATEMENT, event->text);
	paq_set_text(texts, PAQ_FIELD_OLD_VALUE, event->old_value);
	paq_set_text(texts, PAQ_FIELD_NEW_VALUE, event->new_value);
	paq_set_text(texts, PAQ_FIELD_VALUE_SOURCE, event->value_source);

	session = paq_session_block(false, &complete);
	fill_header(&header, event);
	header.flags |= event->flags;
	first = paq_frame != NULL && !proc_exit_inprogress && paq_is_first(NULL);
	pending = paq_pending_create(&header, session, texts, first);
	if (pending != NULL && event->message != NULL)
		paq_pending_add_message(pending, event->message, PG_UINT32_MAX);
	return pending;
}

/*
 * Record the event now, with outcome sqlstate, which is 0 for success.  If
 * there is no room in the queue, that happens as soon as there is.
 */
void
paq_record_event(const PaqEvent *event, int sqlstate)
{
	PaqPending *pending = paq_event_create(event);

	if (pending != NULL)
		paq_publish_now(pending, sqlstate);
}
