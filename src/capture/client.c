/*-------------------------------------------------------------------------
 *
 * client.c
 *		log_client: showing a record to the client whose statement it is about,
 *		in pgaudit's words.
 *
 * The only file of the room that knows a format.
 *
 * As any message to the client does, this serves interrupts, and may raise the
 * error of one.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "format/format.h"
#include "lib/stringinfo.h"

/* A format's buffer that empties itself into a StringInfo */
typedef struct ClientBuffer
{
	PaqBuffer	buffer;
	StringInfoData text;
	char		chunk[1024];
} ClientBuffer;

static bool
drain_chunk(PaqBuffer *buf)
{
	ClientBuffer *client = (ClientBuffer *) buf;

	appendBinaryStringInfo(&client->text, buf->data, buf->used);
	buf->used = 0;
	return true;
}

/*
 * The record's texts are in a spill file, but the statement still has them.
 * The parameters are palloc'ed.
 */
static void
restore_texts(PaqRecord *record, const PaqStatement *statement)
{
	PaqText    *text = &record->field[PAQ_FIELD_STATEMENT];
	PaqText    *params = &record->field[PAQ_FIELD_PARAMETER];
	uint32		flags = 0;

	if ((record->header.flags & PAQ_RECORD_SPILLED) == 0 ||
		statement->shown.text == NULL || statement->shown.cut)
		return;
	text->data = statement->shown.text;
	text->len = statement->shown.len;
	if (record->header.field_len[PAQ_FIELD_PARAMETER] == 0)
		params->data = "";		/* an empty list, which is not null */
	else if (record->header.field_len[PAQ_FIELD_PARAMETER] != PAQ_NULL_LEN)
		*params = paq_encode_params(statement->params,
									statement->part ? statement->part : statement->text,
									paq_log_parameter_max_size, &flags);
}

/* Show the record of the statement as it is now. */
void
paq_show_client(const PaqStatement *statement, PaqPending *pending)
{
	PaqRecordHeader *header = paq_pending_header(pending);
	ClientBuffer client;
	PaqRecord	record;

	if (!paq_record_decode((const char *) header, header->length, NULL, 0,
						   &record))
		return;

	restore_texts(&record, statement);
	initStringInfo(&client.text);
	client.buffer.data = client.chunk;
	client.buffer.used = 0;
	client.buffer.size = sizeof(client.chunk);
	client.buffer.failed = false;
	client.buffer.drain = drain_chunk;
	paq_format_message(&client.buffer, &record);
	drain_chunk(&client.buffer);

	ereport(paq_log_level,
			(errmsg_internal("%s", client.text.data),
			 errhidestmt(true),
			 errhidecontext(true)));
	pfree(client.text.data);
}
