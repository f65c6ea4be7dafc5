/*-------------------------------------------------------------------------
 *
 * pattern.c
 *		Records whose every byte follows from their producer and number.
 *
 * Fields of the header that the queue only carries determine the texts: rows
 * is the length of the statement, query_id that of the parameters, xid that of
 * the command, vxid_lxid that of the message, and vxid_proc the shape of the
 * session block.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include "mb/pg_wchar.h"

/* Longest text, bytes */
#define MAX_TEXT	(600 * 1024)

static char texts[PAQ_NFIELDS][MAX_TEXT];

/* Byte i of a field. */
static inline char
pattern_byte(uint64 key, uint32 i)
{
	return (char) ((key >> (i % 8 * 8)) + i / 8 * 37);
}

static uint64
field_key(uint32 producer, uint64 id, int field)
{
	/* session fields are the same in all records of a producer */
	return stress_hash(producer * 64 + field,
					   field < PAQ_NSESSION_FIELDS ? 0 : id);
}

static const char *
make_text(uint32 producer, uint64 id, int field, uint32 len)
{
	uint64		key = field_key(producer, id, field);

	if (len > MAX_TEXT)
		stress_fail("text of %u bytes is too long for the test", len);
	for (uint32 i = 0; i < len; i++)
		texts[field][i] = pattern_byte(key, i);
	return texts[field];
}

/* The class of the record with that number */
static PaqClass
class_of(uint64 id)
{
	return PAQ_FIRST_CLASS + id % (PAQ_NCLASSES - PAQ_FIRST_CLASS);
}

/* Fill in what paq_pending_create() and paq_record_encode() want. */
void
stress_make_record(uint32 producer, uint64 id, uint64 life, const Sizes *sizes,
				   PaqRecordHeader *header, PaqSessionBlock *session,
				   PaqText *statement)
{
	static char session_data[256];

	memset(header, 0, sizeof(*header));
	header->kind = PAQ_KIND_AUDIT;
	header->audit_class = class_of(id);
	header->start_time = stress_hash(producer, id);
	header->end_time = stress_hash(id, producer);
	header->statement_id = id;
	header->substatement_id = ~id;
	header->session_start = life;
	header->rows = sizes->statement;
	header->query_id = sizes->parameter;
	header->xid = sizes->command;
	header->vxid_proc = sizes->session;
	header->vxid_lxid = PAQ_NULL_LEN;
	header->pid = producer;
	header->encoding = PG_SQL_ASCII;
	header->stmt_location = -1;

	session->length = 0;
	session->data = session_data;
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
	{
		uint32		len = (sizes->session + i) % 9;

		session->field_len[i] = PAQ_NULL_LEN;
		if (sizes->session < 0)
			continue;
		session->field_len[i] = len;
		memcpy(session_data + session->length, make_text(producer, id, i, len), len);
		session->length += len;
	}

	memset(statement, 0, PAQ_NSTATEMENT_FIELDS * sizeof(PaqText));
	for (int i = 0; i < PAQ_NSTATEMENT_FIELDS; i++)
	{
		int			field = PAQ_NSESSION_FIELDS + i;
		uint32		len = PAQ_NULL_LEN;

		if (field == PAQ_FIELD_STATEMENT)
			len = sizes->statement;
		else if (field == PAQ_FIELD_PARAMETER)
			len = sizes->parameter;
		else if (field == PAQ_FIELD_COMMAND)
			len = sizes->command;
		if (len == PAQ_NULL_LEN)
			continue;
		statement[i].data = make_text(producer, id, field, len);
		statement[i].len = len;
	}
}

/* A message has no zero bytes. */
const char *
stress_make_message(uint32 producer, uint64 id, uint32 len)
{
	char	   *text = texts[PAQ_FIELD_MESSAGE];
	uint64		key = field_key(producer, id, PAQ_FIELD_MESSAGE);

	if (len >= MAX_TEXT)
		stress_fail("message of %u bytes is too long for the test", len);
	for (uint32 i = 0; i < len; i++)
		text[i] = pattern_byte(key, i) | 1;
	text[len] = '\0';
	return text;
}

/* Has the field the expected length and bytes?  If cut, it may be shorter. */
static bool
text_is_right(const PaqRecord *record, int field, uint32 len, bool cut)
{
	const PaqText *text = &record->field[field];
	uint64		id = record->header.statement_id;
	uint64		key = field_key(record->header.pid, id, field);
	char		set = field == PAQ_FIELD_MESSAGE ? 1 : 0;

	if (len == PAQ_NULL_LEN || text->data == NULL)
		return text->data == NULL && (cut || len == PAQ_NULL_LEN || len == 0);
	if (text->len != len && !(cut && text->len < len))
		return false;
	for (uint32 i = 0; i < text->len; i++)
		if (text->data[i] != (char) (pattern_byte(key, i) | set))
			return false;
	return true;
}

/* What is wrong with a record; NULL if it is as it was made. */
const char *
stress_check_record(const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;
	uint32		producer = header->pid;
	uint64		id = header->statement_id;
	bool		cut = (header->flags & PAQ_RECORD_CUT) != 0;

	if (header->kind != PAQ_KIND_AUDIT)
		return "it is no audit record";
	if (producer >= MAX_PRODUCERS || id == 0 || id >= MAX_IDS)
		return "its producer or its number is impossible";
	if (header->audit_class != class_of(id) ||
		header->start_time != (int64) stress_hash(producer, id) ||
		header->end_time != (int64) stress_hash(id, producer) ||
		header->substatement_id != (int64) ~id ||
		header->encoding != PG_SQL_ASCII ||
		header->stmt_location != -1 ||
		header->stmt_len != 0)
		return "its header is wrong";

	for (int field = 0; field < PAQ_NSESSION_FIELDS; field++)
		if (!text_is_right(record, field,
						   header->vxid_proc < 0 ? PAQ_NULL_LEN :
						   (header->vxid_proc + field) % 9, false))
			return "its session block is wrong";
	if (!text_is_right(record, PAQ_FIELD_STATEMENT, (uint32) header->rows, cut))
		return "its statement is wrong";
	if (!text_is_right(record, PAQ_FIELD_PARAMETER, (uint32) header->query_id, cut))
		return "its parameters are wrong";
	if (!text_is_right(record, PAQ_FIELD_COMMAND, header->xid, false))
		return "its command is wrong";
	if (!text_is_right(record, PAQ_FIELD_MESSAGE, header->vxid_lxid, cut))
		return "its message is wrong";
	return NULL;
}
