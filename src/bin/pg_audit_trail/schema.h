/*-------------------------------------------------------------------------
 *
 * schema.h
 *		What the formats of published schemas share: ocsf and ecs.
 *
 *	schema_json.c		an object, made of paths and values of a record
 *	schema_ocsf.c		format ocsf: Open Cybersecurity Schema Framework
 *	schema_ecs.c		format ecs: Elastic Common Schema
 *
 * A record becomes one object.  What a schema has no place for is in the object all the
 * same: every field that was not written as it is comes at the end, under its own
 * name (schema_rest), also one that is new in the trail.  doc/schemas.md has the tables.
 *
 * Strings are copied as the line has them, escapes included: the line is valid JSON in UTF-8
 * whatever the encoding of its texts is, and textEncoding says the same of both.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_SCHEMA_H
#define PAQ_SCHEMA_H

#include "bin/pg_audit_trail/program.h"

/* Longest path, with names of fields in it */
#define SCHEMA_PATH_MAX		128

/* The object that is being written */
typedef struct SchemaLine
{
	Buffer	   *buf;
	Record	   *record;
	char		path[SCHEMA_PATH_MAX];	/* of the last value, "" at first */
	uint64		written;		/* fields that are there as they are, by bits */
} SchemaLine;

/* How the value of a field is written */
typedef enum SchemaForm
{
	SCHEMA_SAME,				/* as the line has it */
	SCHEMA_STRING,				/* a number becomes a string */
	SCHEMA_PORT,				/* a string becomes a number */
	SCHEMA_NANOS,				/* microseconds become nanoseconds */
	SCHEMA_MILLIS,				/* they become milliseconds, and are rounded */
	SCHEMA_EPOCH,				/* a time, milliseconds since 1970, likewise */
	SCHEMA_ADDRESS				/* an IP address without its zone, or nothing */
} SchemaForm;

typedef struct SchemaField
{
	const char *path;
	PaqTrailField field;
	SchemaForm	form;
} SchemaField;

StaticAssertDecl(PAQ_TRAIL_NFIELDS <= 64, "SchemaLine.written has not enough bits");

/* schema_json.c */
extern void schema_begin(SchemaLine *line, Buffer *buf, Record *record);
extern void schema_end(SchemaLine *line);
extern void schema_key(SchemaLine *line, const char *path);
extern void schema_word(SchemaLine *line, const char *path, const char *word);
extern void schema_string(SchemaLine *line, const char *path, const char *string);
extern void schema_number(SchemaLine *line, const char *path, int64 number);
extern bool schema_has(const SchemaLine *line, PaqTrailField field);
extern void schema_field(SchemaLine *line, const char *path, PaqTrailField field,
						 SchemaForm form);
extern void schema_fields(SchemaLine *line, const SchemaField *fields, int count);
extern void schema_joined(SchemaLine *line, const char *path, const PaqTrailField *fields,
						  int count);
extern void schema_identity(SchemaLine *line, const char *path);
extern void schema_message(SchemaLine *line, const char *path);
extern void schema_rest(SchemaLine *line, const char *prefix, bool columns);
extern PaqTrailField schema_action(const SchemaLine *line);
extern bool schema_is_class(Record *record, const char *class, const char *command);
extern Size schema_address_len(Record *record);

#endif							/* PAQ_SCHEMA_H */
