/*-------------------------------------------------------------------------
 *
 * own.c
 *		Records of what our own processes do, class CONFIG.
 *
 * The worker and the loader are not audited, but of some things that they do
 * the trail has to tell.  Of the session's fields they have hardly any.
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

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "queue/queue.h"
#include "utils/timestamp.h"

static int64 session_lines = 0;

static void
fill_header(PaqRecordHeader *header, int sqlstate, int64 rows)
{
	memset(header, 0, sizeof(*header));
	header->kind = PAQ_KIND_AUDIT;
	header->audit_class = PAQ_CLASS_CONFIG;
	header->sqlstate = sqlstate;
	header->start_time = header->end_time = GetCurrentTimestamp();
	header->session_line = ++session_lines;
	header->session_start = MyStartTimestamp;
	header->rows = rows;
	header->vxid_proc = -1;
	header->pid = MyProcPid;
	header->encoding = GetDatabaseEncoding();
	header->stmt_location = -1;
}

/* data must hold what is put there; database comes before process in a record. */
static void
fill_session(PaqSessionBlock *session, char *data, const char *process,
			 const char *database)
{
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		session->field_len[i] = PAQ_NULL_LEN;
	session->data = data;
	session->length = 0;
	if (database != NULL)
	{
		session->length = strlen(database);
		session->field_len[PAQ_FIELD_DATABASE] = session->length;
		memcpy(data, database, session->length);
	}
	session->field_len[PAQ_FIELD_BACKEND_TYPE] = strlen(process);
	memcpy(data + session->length, process, strlen(process));
	session->length += strlen(process);
}

/*
 * A record of this process, whose type is process, and which is connected to
 * database, NULL for none; both are shorter than NAMEDATALEN.  To be published by
 * the caller.  Returns NULL, after counting the loss, when out of memory.
 */
PaqPending *
paq_own_record(const char *process, const char *database, const PaqText *texts,
			   int sqlstate, int64 rows)
{
	PaqRecordHeader header;
	PaqSessionBlock session;
	char		data[2 * NAMEDATALEN];

	fill_header(&header, sqlstate, rows);
	fill_session(&session, data, process, database);
	return paq_pending_create(&header, &session, texts, false);
}
