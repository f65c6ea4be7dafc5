/*-------------------------------------------------------------------------
 *
 * record.c
 *		What a record has.
 *
 * Texts are decoded when somebody asks for them, and then kept.  Where the texts are not
 * UTF-8 (the line has a textEncoding) they are the bytes of the database's encoding.
 * LATIN1 is special: its bytes are the characters that JSON's escapes mean, so that
 * it can be had as UTF-8, too.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

StaticAssertDecl(PAQ_TRAIL_NFIELDS <= 64, "Record.decoded has not enough bits");

/* "2026-11-20 10:11:12.123", with which lines of the other formats begin */
#define LOG_TIME_LEN	23

/* The fields of a line of format json; false if it is no record of a trail. */
bool
record_parse(Record *record)
{
	record->decoded = 0;
	record->bytes = false;
	record->arena.used = 0;
	return paq_line_parse(record->data, record->len, &record->line) &&
		paq_line_has(&record->line, PAQ_TRAIL_TYPE) &&
		paq_line_has(&record->line, PAQ_TRAIL_FORMAT_VERSION);
}

/*
 * From now on, texts are as their database has them, byte by byte, or as UTF-8 as far
 * as that is possible.
 */
void
record_decode_as(Record *record, bool bytes)
{
	if (record->bytes == bytes)
		return;
	record->bytes = bytes;

	/* for the others it is the same */
	if (record_is(record, PAQ_TRAIL_TEXT_ENCODING, "LATIN1"))
		record->decoded = 0;
}

/* Are characters from U+0080 to U+00FF that are escaped bytes of the text? */
static bool
has_bytes(const Record *record)
{
	const PaqValue *encoding = &record->line.value[PAQ_TRAIL_TEXT_ENCODING];

	if (encoding->kind != PAQ_VALUE_STRING)
		return false;
	return record->bytes || encoding->len != 6 || memcmp(encoding->data, "LATIN1", 6) != 0;
}

/*
 * Decode a string's value, into the arena if it has to be.  That is as large as the line
 * twice, for each field is decoded once or, in two ways, twice: so it does not move.
 */
static Text
decode(Record *record, const PaqValue *value)
{
	Text		text = {value->data, value->len};

	if (!value->escaped)
		return text;
	buffer_reserve(&record->arena, 2 * record->len - record->arena.used);
	text.data = record->arena.data + record->arena.used;
	text.len = paq_line_unescape(value->data, value->len, has_bytes(record),
								 record->arena.data + record->arena.used);
	record->arena.used += text.len;
	return text;
}

/* A field's text, as the line has it unless it is a string */
Text
record_text(Record *record, PaqTrailField field)
{
	const PaqValue *value = &record->line.value[field];
	const uint64 bit = UINT64CONST(1) << field;
	Text		text = {NULL, 0};

	if (value->kind <= PAQ_VALUE_NULL)
		return text;
	if (record->decoded & bit)
		return record->text[field];
	text.data = value->data;
	text.len = value->len;
	if (value->kind == PAQ_VALUE_STRING)
		text = decode(record, value);
	record->text[field] = text;
	record->decoded |= bit;
	return text;
}

bool
record_is(Record *record, PaqTrailField field, const char *value)
{
	const Text	text = record_text(record, field);

	return text.data != NULL && text.len == strlen(value) &&
		memcmp(text.data, value, text.len) == 0;
}

bool
record_is_gap(Record *record)
{
	return record_is(record, PAQ_TRAIL_TYPE, "gap");
}

/* Not those whose outcome is unknown */
bool
record_has_failed(Record *record)
{
	return paq_line_has(&record->line, PAQ_TRAIL_EXIT_CODE) &&
		!record_is(record, PAQ_TRAIL_EXIT_CODE, "00000");
}

/* 0 if it is null */
int64
record_number(const Record *record, PaqTrailField field)
{
	int64		result;

	return paq_line_number(&record->line.value[field], &result) ? result : 0;
}

/*
 * The time that a line of another format begins with.  Its zone may have any abbreviation:
 * those that are not known are taken for the local one.
 */
static bool
text_time(const char *data, Size len, int64 *timestamp)
{
	int			offset;
	bool		has_offset;

	if (len <= LOG_TIME_LEN + 4 ||
		!paq_time_parse(data, LOG_TIME_LEN, timestamp, &offset, &has_offset))
		return false;
	data += LOG_TIME_LEN;
	if (strncmp(data, " UTC", 4) != 0 && strncmp(data, " GMT", 4) != 0)
		*timestamp = local_time(*timestamp);
	return true;
}

/* Time and sequence by which files are ordered; false if the record has no time. */
bool
record_time(const Record *record, int64 *timestamp, int64 *sequence)
{
	*sequence = 0;
	if (record->format != FORMAT_JSON)
		return text_time(record->data, record->len, timestamp);
	*sequence = record_number(record, PAQ_TRAIL_SEQUENCE);
	return paq_line_time(&record->line.value[PAQ_TRAIL_LOG_TIME], timestamp);
}

/*
 * The text of a string within an array or object of the record, in the buffer, in place
 * of what that has; null for null.
 */
Text
record_part_text(const Record *record, const PaqValue *part, Buffer *buf)
{
	const bool	bytes = paq_line_has(&record->line, PAQ_TRAIL_TEXT_ENCODING);
	Text		text = {NULL, 0};

	if (part->kind != PAQ_VALUE_STRING)
		return text;
	buf->used = 0;
	buffer_reserve(buf, part->len + 1);
	text.data = buf->data;
	text.len = paq_line_unescape(part->data, part->len, bytes, buf->data);
	return text;
}
