/*-------------------------------------------------------------------------
 *
 * fields.c
 *		What more than one format derives from a record's fields.
 *
 * Must not allocate or raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format/format_internal.h"

/*
 * The time a record is dated: its end, or, if nobody saw that, its start.
 * 0 is "unknown" in all of a record's times.
 */
int64
paq_record_log_time(const PaqRecord *record)
{
	return record->header.end_time != 0 ?
		record->header.end_time : record->header.start_time;
}

/* Did a client's session make the record (or some background process)? */
bool
paq_record_has_client(const PaqRecord *record)
{
	return record->field[PAQ_FIELD_REMOTE_HOST].data != NULL;
}

/* Is that client connected through a Unix-domain socket? */
bool
paq_record_is_local(const PaqRecord *record)
{
	const PaqText *host = &record->field[PAQ_FIELD_REMOTE_HOST];

	return host->len == 7 && memcmp(host->data, "[local]", 7) == 0;
}

/*
 * The session's identifier as in PostgreSQL's %c: its start and its process
 * id, in hexadecimal.  Returns the length, at most PAQ_SESSION_ID_TEXT.
 */
int
paq_session_id_text(char *dst, const PaqRecord *record)
{
	PaqTime		start = paq_time_split(record->header.session_start);
	int			len = paq_hex_text(dst, (uint64) start.second);

	dst[len++] = '.';
	return len + paq_hex_text(dst + len, (uint32) record->header.pid);
}

/*
 * Is the outcome known?  That of a statement which the server's death
 * interrupted is not success, even if nothing else was noted.
 */
bool
paq_record_has_outcome(const PaqRecordHeader *header)
{
	const uint32 unknown = PAQ_RECORD_INTERRUPTED | PAQ_RECORD_NO_OUTCOME;

	return header->kind != PAQ_KIND_GAP &&
		(header->sqlstate != 0 || (header->flags & unknown) == 0);
}

/* The five characters of a SQLSTATE, not terminated. */
void
paq_sqlstate_text(char *dst, int sqlstate)
{
	for (int i = 0; i < 5; i++)
	{
		dst[i] = PGUNSIXBIT(sqlstate);
		sqlstate >>= 6;
	}
}
