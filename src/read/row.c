/*-------------------------------------------------------------------------
 *
 * row.c
 *		A record of the trail's files as a row with the columns of audit_records.
 *
 * Of a record only what is wanted is converted: most queries look at few columns of
 * many records.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_type.h"
#include "compat.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "read/read.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

/* A column that is wanted */
typedef struct Column
{
	AttrNumber	attnum;
	PaqTrailField field;
	Oid			type;
} Column;

struct PaqRowShape
{
	int			natts;
	int			ncolumns;
	Column		columns[FLEXIBLE_ARRAY_MEMBER];
};

/* ----------
 * Shapes
 * ----------
 */

static PaqTrailField
find_field(const char *column)
{
	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
		if (paq_trail_fields[i].column != NULL &&
			strcmp(paq_trail_fields[i].column, column) == 0)
			return i;
	ereport(ERROR,
			(errcode(ERRCODE_FDW_COLUMN_NAME_NOT_FOUND),
			 errmsg("records of the audit trail have no column \"%s\"", column)));
}

static void
check_type(const char *column, PaqTrailField field, Oid type)
{
	static const struct
	{
		const char *name;
		Oid			type;
	} types[] = {
		{ "text", TEXTOID }, { "bigint", INT8OID }, { "integer", INT4OID }, { "timestamptz", TIMESTAMPTZOID }, { "boolean", BOOLOID }, { "jsonb", JSONBOID }, { "inet", INETOID }
	};
	const char *wanted = paq_trail_fields[field].sql_type;

	for (int i = 0; i < lengthof(types); i++)
		if (types[i].type == type && strcmp(types[i].name, wanted) == 0)
			return;
	ereport(ERROR,
			(errcode(ERRCODE_FDW_INVALID_DATA_TYPE),
			 errmsg("column \"%s\" of the audit trail must have type %s", column, wanted)));
}

PaqRowShape *
paq_row_shape(TupleDesc columns, const Bitmapset *needed)
{
	const bool	all = bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber,
								   needed);
	PaqRowShape *shape = palloc(offsetof(PaqRowShape, columns) +
								columns->natts * sizeof(Column));

	shape->natts = columns->natts;
	shape->ncolumns = 0;
	for (int i = 0; i < columns->natts; i++)
	{
		const Form_pg_attribute att = TupleDescAttr(columns, i);
		Column	   *column = &shape->columns[shape->ncolumns];

		if (att->attisdropped ||
			(!all && !bms_is_member(att->attnum - FirstLowInvalidHeapAttributeNumber, needed)))
			continue;
		column->attnum = att->attnum;
		column->field = find_field(NameStr(att->attname));
		column->type = att->atttypid;
		check_type(NameStr(att->attname), column->field, column->type);
		shape->ncolumns++;
	}
	return shape;
}

/* ----------
 * Rows
 * ----------
 */

/* A row being made */
typedef struct Row
{
	const PaqTrailRecord *record;
	const char **texts;			/* of a line that has to be converted as a whole, by
								 * field; NULL: it has not */
} Row;

/* Text of a field, NULL for null.  False if it is damaged. */
static bool
get_field_text(const Row *row, PaqTrailField field, const char **text)
{
	*text = row->texts != NULL ? row->texts[field] :
		paq_value_text(&row->record->line.value[field]);
	return *text != NULL || row->texts != NULL || !paq_line_has(&row->record->line, field);
}

/*
 * The value of a column of type text, if nothing has to be converted.  NULL if that is
 * not so.
 */
static text *
plain_text(const Row *row, PaqTrailField field)
{
	const PaqValue *value = &row->record->line.value[field];
	text	   *result;
	Size		len;

	if (row->texts != NULL || value->kind != PAQ_VALUE_STRING ||
		GetDatabaseEncoding() != PG_UTF8)
		return NULL;
	if (!value->escaped)
		return cstring_to_text_with_len(value->data, value->len);
	result = palloc(VARHDRSZ + value->len);
	len = paq_line_unescape(value->data, value->len, false, VARDATA(result));
	SET_VARSIZE(result, VARHDRSZ + len);
	return memchr(VARDATA(result), '\0', len) == NULL ? result : NULL;
}

static bool
get_int(const Row *row, PaqTrailField field, int64 *number, bool *isnull)
{
	const PaqValue *value = &row->record->line.value[field];
	PaqValue	digits = *value;

	*isnull = !paq_line_has(&row->record->line, field);
	if (*isnull)
		return true;

	/* a port is a string */
	if (value->kind == PAQ_VALUE_STRING && value->len > 0)
		digits.kind = PAQ_VALUE_NUMBER;
	return paq_line_number(&digits, number);
}

/* A field that is a text, in the line or made, as a value of the column's type */
static bool
value_of_text(const Row *row, const Column *column, Datum *value, bool *isnull)
{
	const char *string;
	text	   *plain = NULL;

	switch (column->field)
	{
		case PAQ_TRAIL_REMOTE_ADDRESS:
			if (!get_field_text(row, PAQ_TRAIL_REMOTE_HOST, &string))
				return false;
			string = paq_host_address(string);
			break;
		case PAQ_TRAIL_KEPT_FILE:
			string = row->record->shortened ? row->record->path : NULL;
			break;
		default:
			if (column->type == TEXTOID)
				plain = plain_text(row, column->field);
			if (plain != NULL)
			{
				*value = PointerGetDatum(plain);
				*isnull = false;
				return true;
			}
			if (!get_field_text(row, column->field, &string))
				return false;
	}
	*isnull = string == NULL;
	if (*isnull)
		return true;
	switch (column->type)
	{
		case JSONBOID:
			*value = DirectFunctionCall1(jsonb_in, CStringGetDatum(string));
			break;
		case INETOID:
			*value = DirectFunctionCall1(inet_in, CStringGetDatum(string));
			break;
		default:
			*value = CStringGetTextDatum(string);
	}
	return true;
}

static bool
is_true(const PaqTrailRecord *record, PaqTrailField field)
{
	const PaqValue *value = &record->line.value[field];

	return (value->kind == PAQ_VALUE_BOOLEAN && value->data[0] == 't') ||
		(field == PAQ_TRAIL_CUT && record->shortened);
}

static bool
make_value(const Row *row, const Column *column, Datum *value, bool *isnull)
{
	int64		number;
	bool		ok;

	switch (column->type)
	{
		case INT8OID:
			ok = get_int(row, column->field, &number, isnull);
			if (ok && !*isnull)
				*value = Int64GetDatum(number);
			return ok;
		case INT4OID:
			ok = get_int(row, column->field, &number, isnull) &&
				(*isnull || (number >= PG_INT32_MIN && number <= PG_INT32_MAX));
			if (ok && !*isnull)
				*value = Int32GetDatum((int32) number);
			return ok;
		case TIMESTAMPTZOID:
			*isnull = column->field != PAQ_TRAIL_LOG_TIME &&
				!paq_line_has(&row->record->line, column->field);
			number = row->record->time;
			ok = *isnull || column->field == PAQ_TRAIL_LOG_TIME ||
				paq_line_time(&row->record->line.value[column->field], &number);
			*value = TimestampTzGetDatum(number);
			return ok;
		case BOOLOID:
			*isnull = paq_trail_fields[column->field].type == PAQ_JSON_BOOLEAN &&
				!paq_line_has(&row->record->line, column->field);
			*value = BoolGetDatum(is_true(row->record, column->field));
			return true;
		default:
			return value_of_text(row, column, value, isnull);
	}
}

bool
paq_row_make(const PaqRowShape *shape, const PaqTrailRecord *record,
			 Datum *values, bool *nulls)
{
	Row			row = {record};
	const char *texts[PAQ_TRAIL_NFIELDS];

	memset(nulls, true, shape->natts * sizeof(bool));
	if (paq_line_has(&record->line, PAQ_TRAIL_TEXT_ENCODING))
	{
		if (!paq_line_texts(&record->line, record->shortened, texts))
			return false;
		row.texts = texts;
	}
	for (int i = 0; i < shape->ncolumns; i++)
	{
		const Column *column = &shape->columns[i];

		if (!make_value(&row, column, &values[column->attnum - 1],
						&nulls[column->attnum - 1]))
			return false;
	}
	return true;
}
