/*-------------------------------------------------------------------------
 *
 * schema_json.c
 *		An object of a published schema, made of paths and values of a record.
 *
 * Values are written with their whole paths, "actor.user.name"; those of one inner object
 * come one behind the other.  An object begins with its first value, so none is empty,
 * and a value that is null or an empty string is left to schema_rest().
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/schema.h"

#include <arpa/inet.h>

#include "common/int.h"
#include "datatype/timestamp.h"

/* Longest IP address as text, without a zone */
#define ADDRESS_MAX		45

#define EPOCH_MS \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY * INT64CONST(1000))

/*
 * What tells a record from all others.  Without one of these there is no identity: half
 * of it would make different records equal.
 */
static const PaqTrailField identity[] = {
	PAQ_TRAIL_SYSTEM_IDENTIFIER, PAQ_TRAIL_SERIES, PAQ_TRAIL_SEQUENCE
};

/* ----------
 * The object
 * ----------
 */

void
schema_begin(SchemaLine *line, Buffer *buf, Record *record)
{
	line->buf = buf;
	line->record = record;
	line->path[0] = '\0';
	line->written = 0;
	buffer_putc(buf, '{');
}

/* End the objects in which the last value is, but for those that begin the path. */
static void
close_objects(SchemaLine *line, Size keep)
{
	for (const char *p = line->path + keep; (p = strchr(p, '.')) != NULL; p++)
		buffer_putc(line->buf, '}');
}

void
schema_end(SchemaLine *line)
{
	close_objects(line, 0);
	buffer_puts(line->buf, "}\n");
}

/* What comes next is the value at the path. */
void
schema_key(SchemaLine *line, const char *path)
{
	Size		same = 0;
	const char *p;
	const char *dot;

	for (Size i = 0; line->path[i] != '\0' && line->path[i] == path[i]; i++)
		if (path[i] == '.')
			same = i + 1;
	close_objects(line, same);
	if (line->buf->data[line->buf->used - 1] != '{')
		buffer_putc(line->buf, ',');
	for (p = path + same; (dot = strchr(p, '.')) != NULL; p = dot + 1)
	{
		buffer_putc(line->buf, '"');
		buffer_put(line->buf, p, dot - p);
		buffer_puts(line->buf, "\":{");
	}
	buffer_putc(line->buf, '"');
	buffer_puts(line->buf, p);
	buffer_puts(line->buf, "\":");
	strlcpy(line->path, path, sizeof(line->path));
}

/* What JSON has without quotes */
void
schema_word(SchemaLine *line, const char *path, const char *word)
{
	schema_key(line, path);
	buffer_puts(line->buf, word);
}

/* A constant, without anything that JSON escapes */
void
schema_string(SchemaLine *line, const char *path, const char *string)
{
	schema_key(line, path);
	buffer_putc(line->buf, '"');
	buffer_puts(line->buf, string);
	buffer_putc(line->buf, '"');
}

void
schema_number(SchemaLine *line, const char *path, int64 number)
{
	schema_key(line, path);
	buffer_printf(line->buf, INT64_FORMAT, number);
}

/* ----------
 * Fields
 * ----------
 */

/* Is there something to write? */
bool
schema_has(const SchemaLine *line, PaqTrailField field)
{
	const PaqValue *value = &line->record->line.value[field];

	return value->kind > PAQ_VALUE_NULL &&
		(value->kind != PAQ_VALUE_STRING || value->len > 0);
}

static void
put_inside(Buffer *buf, const PaqValue *value)
{
	buffer_put(buf, value->data, value->len);
}

/* A value as the line has it */
static void
put_same(Buffer *buf, const PaqValue *value)
{
	static const char *const brackets[][2] = {
		[PAQ_VALUE_STRING] = {"\"", "\""},
		[PAQ_VALUE_NUMBER] = {"", ""},
		[PAQ_VALUE_ARRAY] = {"[", "]"},
		[PAQ_VALUE_OBJECT] = {"{", "}"},
		[PAQ_VALUE_BOOLEAN] = {"", ""}
	};

	buffer_puts(buf, brackets[value->kind][0]);
	put_inside(buf, value);
	buffer_puts(buf, brackets[value->kind][1]);
}

static void
write_same(SchemaLine *line, const char *path, PaqTrailField field)
{
	schema_key(line, path);
	put_same(line->buf, &line->record->line.value[field]);
	line->written |= UINT64CONST(1) << field;
}

static void
write_string(SchemaLine *line, const char *path, PaqTrailField field)
{
	schema_key(line, path);
	buffer_putc(line->buf, '"');
	put_inside(line->buf, &line->record->line.value[field]);
	buffer_putc(line->buf, '"');
	line->written |= UINT64CONST(1) << field;
}

/* One with zeros before it would not be the same any more. */
static void
write_port(SchemaLine *line, const char *path, PaqTrailField field)
{
	const PaqValue *value = &line->record->line.value[field];
	PaqValue	number = {value->data, value->len, PAQ_VALUE_NUMBER, false};
	int64		port;

	if (!paq_line_number(&number, &port) || port < 0 || port > 65535 ||
		(value->len > 1 && value->data[0] == '0'))
		return;
	schema_number(line, path, port);
	line->written |= UINT64CONST(1) << field;
}

static void
write_nanos(SchemaLine *line, const char *path, PaqTrailField field)
{
	int64		number;

	if (!paq_line_number(&line->record->line.value[field], &number) ||
		pg_mul_s64_overflow(number, 1000, &number))
		return;
	schema_number(line, path, number);
	line->written |= UINT64CONST(1) << field;
}

/* Down, so that what is before 1970 or negative is rounded as the rest */
static int64
thousandth(int64 number)
{
	return number / 1000 - (number % 1000 < 0 ? 1 : 0);
}

static void
write_millis(SchemaLine *line, const char *path, PaqTrailField field)
{
	int64		number;

	if (paq_line_number(&line->record->line.value[field], &number))
		schema_number(line, path, thousandth(number));
}

static void
write_epoch(SchemaLine *line, const char *path, PaqTrailField field)
{
	int64		timestamp;

	if (paq_line_time(&line->record->line.value[field], &timestamp))
		schema_number(line, path, thousandth(timestamp) + EPOCH_MS);
}

/* Bytes of the client's IP address without its zone, fe80::1%eth0; 0 if it is none. */
Size
schema_address_len(Record *record)
{
	const Text	host = record_text(record, PAQ_TRAIL_REMOTE_HOST);
	char		text[ADDRESS_MAX + 1];
	unsigned char address[16];
	Size		len = 0;

	while (len < host.len && host.data[len] != '%')
		len++;
	if (len == 0 || len > ADDRESS_MAX)
		return 0;
	memcpy(text, host.data, len);
	text[len] = '\0';
	if (len == host.len && inet_pton(AF_INET, text, address) == 1)
		return len;
	return len != host.len - 1 && inet_pton(AF_INET6, text, address) == 1 ? len : 0;
}

static void
write_address(SchemaLine *line, const char *path, PaqTrailField field)
{
	const Text	host = record_text(line->record, field);
	const Size	len = schema_address_len(line->record);

	if (len == 0)
		return;
	schema_key(line, path);
	buffer_putc(line->buf, '"');
	buffer_put(line->buf, host.data, len);
	buffer_putc(line->buf, '"');
	if (len == host.len)
		line->written |= UINT64CONST(1) << field;
}

/* Write a field, if it has a value that can be written in that form. */
void
schema_field(SchemaLine *line, const char *path, PaqTrailField field, SchemaForm form)
{
	static void (*const writers[]) (SchemaLine *, const char *, PaqTrailField) = {
		[SCHEMA_SAME] = write_same,
		[SCHEMA_STRING] = write_string,
		[SCHEMA_PORT] = write_port,
		[SCHEMA_NANOS] = write_nanos,
		[SCHEMA_MILLIS] = write_millis,
		[SCHEMA_EPOCH] = write_epoch,
		[SCHEMA_ADDRESS] = write_address
	};

	if (schema_has(line, field))
		writers[form](line, path, field);
}

void
schema_fields(SchemaLine *line, const SchemaField *fields, int count)
{
	for (int i = 0; i < count; i++)
		schema_field(line, fields[i].path, fields[i].field, fields[i].form);
}

/*
 * A string of one or more fields, strings or numbers; nothing if one is missing.  They stay
 * fields of their own, too.
 */
void
schema_joined(SchemaLine *line, const char *path, const PaqTrailField *fields, int count)
{
	for (int i = 0; i < count; i++)
		if (!schema_has(line, fields[i]))
			return;
	schema_key(line, path);
	for (int i = 0; i < count; i++)
	{
		buffer_putc(line->buf, i == 0 ? '"' : ':');
		put_inside(line->buf, &line->record->line.value[fields[i]]);
	}
	buffer_putc(line->buf, '"');
}

void
schema_identity(SchemaLine *line, const char *path)
{
	schema_joined(line, path, identity, lengthof(identity));
}

/* All fields that are not written yet, under their names in json or in the table */
void
schema_rest(SchemaLine *line, const char *prefix, bool columns)
{
	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
	{
		const PaqTrailFieldInfo *info = &paq_trail_fields[i];
		char		path[SCHEMA_PATH_MAX];

		if (!paq_line_has(&line->record->line, i) || (line->written & UINT64CONST(1) << i) != 0)
			continue;
		snprintf(path, sizeof(path), "%s.%s", prefix, columns && info->column != NULL ? info->column : info->json);
		write_same(line, path, i);
	}
}

/* ----------
 * What a record is about
 * ----------
 */

/* The field that says what was done: records without a command have a class or a type. */
PaqTrailField
schema_action(const SchemaLine *line)
{
	if (schema_has(line, PAQ_TRAIL_COMMAND))
		return PAQ_TRAIL_COMMAND;
	return schema_has(line, PAQ_TRAIL_CLASS) ? PAQ_TRAIL_CLASS : PAQ_TRAIL_TYPE;
}

/* Is it of that class, and does its command begin so? */
bool
schema_is_class(Record *record, const char *class, const char *command)
{
	const Text	text = record_text(record, PAQ_TRAIL_COMMAND);
	const Size	len = strlen(command);

	return record_is(record, PAQ_TRAIL_CLASS, class) && text.len >= len &&
		(len == 0 || memcmp(text.data, command, len) == 0);
}

/* "alice@shop SELECT public.account: permission denied": for people, not for programs */
void
schema_message(SchemaLine *line, const char *path)
{
	const struct
	{
		const char *before;
		PaqTrailField field;
	}			parts[] = {
		{"", PAQ_TRAIL_USER_NAME},
		{"@", PAQ_TRAIL_DATABASE_NAME},
		{" ", schema_action(line)},
		{" ", PAQ_TRAIL_OBJECT_NAME},
		{": ", PAQ_TRAIL_ERROR_MESSAGE}
	};
	bool		first = true;

	schema_key(line, path);
	buffer_putc(line->buf, '"');
	for (int i = 0; i < lengthof(parts); i++)
	{
		if (!schema_has(line, parts[i].field))
			continue;
		if (!first)
			buffer_puts(line->buf, parts[i].before);
		put_inside(line->buf, &line->record->line.value[parts[i].field]);
		first = false;
	}
	buffer_putc(line->buf, '"');
}
