/*-------------------------------------------------------------------------
 *
 * server_format.c
 *		Formats of the server, csvlog and pgaudit, made of lines of format json.
 *
 * A line becomes the record that it was made of, and src/format/ writes that, as it does in
 * the server.  What a line has that no server writes, as an outcome that is no SQLSTATE, is not
 * in the record; a class that this version does not know is shown as ???.  Lines do not tell
 * whether log_rows was on: format pgaudit has no numbers of rows.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <time.h>

#include "datatype/timestamp.h"
#include "format/format.h"
#include "mb/pg_wchar.h"

/* Times of a line */
#define NTIMES	3

/* What lines say of their server, with the offsets that the line's times have */
typedef struct LineServer
{
	PaqServer	server;			/* generation 0 before the first line */
	int			ntimes;
	struct
	{
		int64		second;		/* since 1970 */
		int			offset;		/* from UTC, seconds */
	}			times[NTIMES];
	int			last_offset;	/* that all times had before this line */
} LineServer;

static LineServer lines;

/* ----------
 * Times
 * ----------
 */

/*
 * See PaqServer.  A line has offsets only: the abbreviation is that of the local time zone if
 * that has the same offset then.
 */
static int
line_offset_at(const PaqServer *server, int64 second, char zone[PAQ_ZONE_NAME_LEN])
{
	const time_t t = second;
	const int	minutes = SECS_PER_MINUTE;
	char		text[16];
	struct tm	tm;
	int			offset = 0;
	int			local;

	for (int i = 0; i < lines.ntimes; i++)
		if (lines.times[i].second == second)
			offset = lines.times[i].offset;
	if (localtime_r(&t, &tm) != NULL && strftime(text, sizeof(text), "%z", &tm) == 5)
	{
		local = atoi(text);
		if ((local / 100 * MINS_PER_HOUR + local % 100) * minutes == offset &&
			strftime(zone, PAQ_ZONE_NAME_LEN, "%Z", &tm) > 0)
			return offset;
	}
	local = abs(offset);
	if (offset == 0)
		strlcpy(zone, "UTC", PAQ_ZONE_NAME_LEN);
	else if (local % minutes == 0)
		snprintf(zone, PAQ_ZONE_NAME_LEN, "%c%02d:%02d", offset < 0 ? '-' : '+',
				 local / SECS_PER_HOUR, local / minutes % MINS_PER_HOUR);
	else
		snprintf(zone, PAQ_ZONE_NAME_LEN, "%c%02d:%02d:%02d", offset < 0 ? '-' : '+',
				 local / SECS_PER_HOUR, local / minutes % MINS_PER_HOUR, local % minutes);
	return offset;
}

/* A time of the line, 0 if it is null; its offset is noted. */
static int64
restored_time(const Record *record, PaqTrailField field)
{
	const int64 epoch = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
	const PaqValue *value = &record->line.value[field];
	int64		timestamp;
	int64		second;
	int			offset;
	bool		has_offset;

	if (value->kind != PAQ_VALUE_STRING ||
		!paq_time_parse(value->data, value->len, &timestamp, &offset, &has_offset))
		return 0;
	second = timestamp / USECS_PER_SEC - (timestamp % USECS_PER_SEC < 0 ? 1 : 0);
	lines.times[lines.ntimes].second = second + epoch;
	lines.times[lines.ntimes].offset = offset;
	lines.ntimes++;

	/* What formats have kept of seconds was made with another offset. */
	if (offset != lines.last_offset || lines.server.generation == 0)
		lines.server.generation = paq_new_generation();
	lines.last_offset = offset;
	return timestamp;
}

/* ----------
 * Records
 * ----------
 */

static PaqText
restored_text(Record *record, PaqTrailField field)
{
	const Text	text = record_text(record, field);

	return (PaqText){
		text.data, text.len
	};
}

/* Appends a string or null to a list as paq_param_next() reads it. */
static void
put_element(Buffer *list, const Record *record, const PaqValue *element)
{
	static Buffer scratch;
	const Text	text = record_part_text(record, element, &scratch);
	const int32 len = paq_param_length(text.data == NULL ? PAQ_PARAM_NULL : (int32) text.len);

	buffer_put(list, (const char *) &len, sizeof(len));
	buffer_put(list, text.data, text.len);
}

/* An array of strings, or an object's names and values, as a list; null if it is neither. */
static PaqText
restored_list(const Record *record, PaqTrailField field, Buffer *list)
{
	const PaqValue *value = &record->line.value[field];
	const char *next = NULL;
	PaqValue	name;
	PaqValue	element;

	if (value->kind != PAQ_VALUE_ARRAY && value->kind != PAQ_VALUE_OBJECT)
		return (PaqText){
			NULL, 0
		};
	list->used = 0;
	buffer_reserve(list, 1);
	if (value->kind == PAQ_VALUE_ARRAY)
		while (paq_line_element(value, &next, &element))
			put_element(list, record, &element);
	else
		while (paq_line_member(value, &next, &name, &element))
		{
			put_element(list, record, &name);
			put_element(list, record, &element);
		}
	return (PaqText){
		list->data, list->used
	};
}

/* The class with that label; 0, which is shown as ???, if there is none. */
static PaqClass
restored_class(Record *record)
{
	for (int c = PAQ_FIRST_CLASS; c < PAQ_NCLASSES; c++)
		if (record_is(record, PAQ_TRAIL_CLASS, paq_class_label(c)))
			return c;
	return 0;
}

/* An SQLSTATE as by MAKE_SQLSTATE; false if the line has none. */
static bool
restored_sqlstate(Record *record, int32 *sqlstate)
{
	const Text	text = record_text(record, PAQ_TRAIL_EXIT_CODE);

	*sqlstate = 0;
	if (text.data == NULL || text.len != 5)
		return false;
	for (int i = 0; i < 5; i++)
	{
		const char	c = text.data[i];

		if (!(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z'))
			return false;
		*sqlstate |= ((c - '0') & 0x3F) << (6 * i);
	}
	return true;
}

static uint32
restored_flags(Record *record)
{
	uint32		flags = 0;

	if (record_is(record, PAQ_TRAIL_AUDIT_TYPE, "OBJECT"))
		flags |= PAQ_RECORD_OBJECT;
	if (record_is(record, PAQ_TRAIL_COMMAND_TEXT_OMITTED, "not logged"))
		flags |= PAQ_RECORD_STMT_NOT_LOGGED;
	if (record_is(record, PAQ_TRAIL_COMMAND_TEXT_OMITTED, "previously logged"))
		flags |= PAQ_RECORD_STMT_PREVIOUS;
	if (record_is(record, PAQ_TRAIL_PARAM_LIST_OMITTED, "not logged"))
		flags |= PAQ_RECORD_PARAM_NOT_LOGGED;
	if (record_is(record, PAQ_TRAIL_PARAM_LIST_OMITTED, "masked"))
		flags |= PAQ_RECORD_CONSTANTS;
	if (record_is(record, PAQ_TRAIL_SUPERUSER, "true"))
		flags |= PAQ_RECORD_SUPERUSER;
	if (record_is(record, PAQ_TRAIL_SUPERUSER, "false"))
		flags |= PAQ_RECORD_NO_SUPERUSER;
#define PAQ_TRAIL_MARK(id, json, column, flag, what) \
	if (record_is(record, PAQ_TRAIL_##id, "true")) \
		flags |= flag;
#include "record/fieldlist.h"
	return flags;
}

/* The virtual transaction id: two numbers, with a slash in between */
static void
restored_vxid(Record *record, PaqRecordHeader *header)
{
	const Text	text = record_text(record, PAQ_TRAIL_VIRTUAL_TRANSACTION_ID);
	char		copy[32];

	header->vxid_proc = -1;
	if (text.data == NULL || text.len >= sizeof(copy))
		return;
	memcpy(copy, text.data, text.len);
	copy[text.len] = '\0';
	if (sscanf(copy, "%d/%u", &header->vxid_proc, &header->vxid_lxid) != 2)
		header->vxid_proc = -1;
}

/* The encoding of the record's texts */
static int
restored_encoding(Record *record)
{
	const Text	name = record_text(record, PAQ_TRAIL_TEXT_ENCODING);
	char		copy[64] = "";
	int			encoding;

	if (name.data == NULL || name.len >= sizeof(copy))
		return PG_UTF8;
	memcpy(copy, name.data, name.len);
	encoding = pg_char_to_encoding(copy);
	return encoding < 0 ? PG_SQL_ASCII : encoding;
}

/* What kind of record the line is */
static PaqRecordKind
restored_kind(Record *record)
{
	if (record_is_gap(record))
		return PAQ_KIND_GAP;
	if (record_is(record, PAQ_TRAIL_TYPE, "heartbeat"))
		return PAQ_KIND_HEARTBEAT;
	return record_is(record, PAQ_TRAIL_TYPE, "part") ? PAQ_KIND_PART : PAQ_KIND_AUDIT;
}

/* A number of the line; otherwise, if it is null. */
static int64
restored_number(const Record *record, PaqTrailField field, int64 otherwise)
{
	int64		number;

	return paq_line_number(&record->line.value[field], &number) ? number : otherwise;
}

/*
 * Makes *to the record that the line was made of.  It points into the record's texts, and is
 * valid until the next call; so are the offsets of its server.
 */
void
record_restore(Record *record, PaqRecord *to)
{
	static Buffer params;
	static Buffer settings;
	PaqRecordHeader *header = &to->header;
	int64		log_time;

	memset(to, 0, sizeof(*to));
	to->server = &lines.server;
	lines.server.offset_at = line_offset_at;
	lines.ntimes = 0;
	record_decode_as(record, true);

	header->kind = restored_kind(record);
	header->audit_class = header->kind == PAQ_KIND_AUDIT || header->kind == PAQ_KIND_PART ?
		restored_class(record) : PAQ_CLASS_MISC;
	header->flags = restored_flags(record);
	if (!restored_sqlstate(record, &header->sqlstate) && header->kind == PAQ_KIND_AUDIT)
		header->flags |= PAQ_RECORD_NO_OUTCOME;

	/* If the end is known, it is the log time; so is what is known if neither is. */
	log_time = restored_time(record, PAQ_TRAIL_LOG_TIME);
	header->start_time = restored_time(record, PAQ_TRAIL_START_TIME);
	if (paq_line_has(&record->line, PAQ_TRAIL_END_TIME) || header->start_time == 0)
		header->end_time = log_time;
	header->session_start = restored_time(record, PAQ_TRAIL_SESSION_START);

	header->statement_id = restored_number(record, PAQ_TRAIL_STATEMENT_ID, 0);
	header->substatement_id = restored_number(record, PAQ_TRAIL_SUBSTATEMENT_ID, 0);
	header->session_line = restored_number(record, PAQ_TRAIL_SESSION_LINE, 0);
	header->rows = restored_number(record, PAQ_TRAIL_ROW_COUNT, -1);
	header->query_id = restored_number(record, PAQ_TRAIL_QUERY_ID, 0);
	header->xid = restored_number(record, PAQ_TRAIL_TRANSACTION_ID, 0);
	header->pid = restored_number(record, PAQ_TRAIL_PID, 0);
	header->stmt_location = restored_number(record, PAQ_TRAIL_STATEMENT_LOCATION, -1);
	header->stmt_len = restored_number(record, PAQ_TRAIL_STATEMENT_LENGTH, 0);
	restored_vxid(record, header);
	header->encoding = restored_encoding(record);
	to->sequence = restored_number(record, PAQ_TRAIL_SEQUENCE, 0);
	to->series = restored_number(record, PAQ_TRAIL_SERIES, 0);

	to->field[PAQ_FIELD_STATEMENT] = restored_text(record, PAQ_TRAIL_COMMAND_TEXT);
	to->field[PAQ_FIELD_REMOTE_PORT] = restored_text(record, PAQ_TRAIL_REMOTE_PORT);
	to->field[PAQ_FIELD_PARAMETER] = restored_list(record, PAQ_TRAIL_PARAM_LIST, &params);
	to->field[PAQ_FIELD_SETTINGS] = restored_list(record, PAQ_TRAIL_SETTINGS, &settings);
#define TEXT(name)		to->field[PAQ_FIELD_##name] = restored_text(record, trail_field)
#define TIME(member)	(void) 0
#define NUMBER(member)	(void) 0
#define MADE(name)		(void) 0
#define PAQ_TRAIL_FIELD(part, id, json, column, type, sql_type, source, what) \
	{ \
		const PaqTrailField trail_field = PAQ_TRAIL_##id; \
		(void) trail_field; \
		source; \
	}
#include "record/fieldlist.h"
}

/* ----------
 * Formats
 * ----------
 */

/* A format's buffer that empties itself into one of ours */
typedef struct FormatBuffer
{
	PaqBuffer	buffer;
	Buffer	   *to;
	char		chunk[4096];
} FormatBuffer;

static bool
drain_format(PaqBuffer *buffer)
{
	FormatBuffer *format = (FormatBuffer *) buffer;

	buffer_put(format->to, buffer->data, buffer->used);
	buffer->used = 0;
	return true;
}

/* Appends the record as the server writes it in a format, csvlog or pgaudit. */
void
server_format_write(Buffer *buf, Record *record, Format format)
{
	/* pg_audit_queue.log_line_prefix has this default. */
	static char *prefix = "%m [%p] %e %q%u@%d %h ";
	const PaqFormat *writer = format == FORMAT_CSVLOG ?
		paq_format_csvlog() : paq_format_pgaudit(&prefix);
	FormatBuffer chunks;
	PaqRecord	made;

	record_restore(record, &made);
	chunks.to = buf;
	chunks.buffer = (PaqBuffer){
		.data = chunks.chunk, .size = sizeof(chunks.chunk), .drain = drain_format
	};
	writer->write(&chunks.buffer, &made);
	(void) drain_format(&chunks.buffer);
}
