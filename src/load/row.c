/*-------------------------------------------------------------------------
 *
 * row.c
 *		A line of a json file as a row of the table, in COPY's text format.
 *
 * record/fieldlist.h has the columns: json's fields, and three more.  A record
 * without a time, as a GAP record may be, is filed under the time at which it is
 * loaded.  A line that is not what the worker writes becomes no row.
 *
 * Length: of a line longer than PAQ_MAX_LINE, each string is cut after
 * MAX_TEXT bytes, and an array behind the element that passes MAX_ARRAY; all
 * other fields stay as they are.  So all columns are filled, however long a text
 * somebody sends.  The line is taken in pieces of any size, and no more of it is
 * in memory than the result.
 *
 * Encoding: of a text that is not UTF-8 the worker writes each byte beyond ASCII
 * as \u00xx, and names the encoding (format/json.c).  The loader is in a database,
 * so it can convert such a text: it parses the line once more, with bytes for these
 * escapes, and converts each value.  If one cannot be converted, all stay as the
 * worker wrote them.  A character that the database's encoding does not have is
 * shown as an escape.
 *
 * Guarantees: what is made of a line is valid in the database's encoding, and JSON
 * if the line was; no character or escape is cut in two.
 *
 * Rows must be made in a transaction: the conversions are in a catalog.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "catalog/namespace.h"
#include "common/string.h"
#include "compat.h"
#include "load/load_internal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "record/record.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* What is kept of the texts of a line that is too long, in bytes */
#define MAX_TEXT	(64 * 1024)
#define MAX_ARRAY	(1024 * 1024)

/* Space for a piece of text that has been converted, in bytes */
#define PIECE_SIZE	4096

/* A line that is being shortened */
static StringInfoData kept;		/* what is left of it so far */
static struct
{
	bool		in_string;
	int			in_escape;		/* bytes that an escape still has */
	int			depth;			/* of arrays */
	Size		string_kept;	/* bytes of the string that are kept */
	Size		array_kept;		/* bytes of the outermost array */
	bool		skip_character; /* the one being read is not kept */
	bool		skip_element;	/* of the array */
}			shortening;

/* A row being made: the fields' values as texts, NULL for null */
typedef struct Row
{
	const PaqLoadLine *line;
	int			encoding;		/* of the strings that are parsed */
	bool		failed;			/* one of them is not in that encoding */
	const char *values[PAQ_TRAIL_NFIELDS];
	int			field;			/* that is being parsed, -1: none of ours */
	int			next;			/* the one that probably follows */
	int			depth;			/* of arrays */
	StringInfoData array;		/* the outermost one, as JSON */
} Row;

/* ----------
 * Lines that are too long
 * ----------
 */

/* A new line begins. */
void
paq_shorten_begin(void)
{
	if (kept.data == NULL)
	{
		MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

		initStringInfo(&kept);
		MemoryContextSwitchTo(old_context);
	}
	resetStringInfo(&kept);
	memset(&shortening, 0, sizeof(shortening));
}

/* Is there still space for what is kept of the line? */
static bool
is_kept(void)
{
	return !shortening.skip_element && kept.len < PAQ_MAX_LINE;
}

static void
keep(char c)
{
	if (!is_kept())
		return;
	appendStringInfoCharMacro(&kept, c);
	if (shortening.depth > 0)
		shortening.array_kept++;
}

static void
add_to_string(char c)
{
	if (shortening.in_escape > 0)
	{
		shortening.in_escape--;
		if (c == 'u' && shortening.in_escape == 0)
			shortening.in_escape = 4;
	}
	else if (c == '"')
	{
		shortening.in_string = false;
		keep(c);
		return;
	}
	else
	{
		if (c == '\\')
			shortening.in_escape = 1;

		/* Another byte of a character goes with the first one. */
		if ((c & 0xC0) != 0x80)
			shortening.skip_character = shortening.string_kept >= MAX_TEXT;
	}
	if (shortening.skip_character)
		return;
	keep(c);
	shortening.string_kept++;
}

static void
add_outside_string(char c)
{
	switch (c)
	{
		case '"':
			shortening.in_string = true;
			shortening.skip_character = false;
			shortening.string_kept = 0;
			break;
		case '[':
			shortening.depth++;
			break;
		case ']':
			if (--shortening.depth == 0)
			{
				shortening.skip_element = false;
				shortening.array_kept = 0;
			}
			break;
		case ',':
			if (shortening.depth > 0 && shortening.array_kept > MAX_ARRAY)
				shortening.skip_element = true;
			break;
	}
	keep(c);
}

/* The next piece of the line. */
void
paq_shorten_add(const char *data, Size len)
{
	for (Size i = 0; i < len; i++)
	{
		if (shortening.in_string)
			add_to_string(data[i]);
		else
			add_outside_string(data[i]);
	}
}

/* The line; valid until the next one begins. */
const char *
paq_shorten_end(Size *len)
{
	*len = kept.len;
	return kept.data;
}

/* ----------
 * Encodings
 * ----------
 */

/* The byte beyond ASCII whose escape begins at p; 0 if none does. */
static unsigned char
escaped_byte(const char *p, const char *end)
{
	static const char digits[] = "0123456789abcdef";
	const char *high;
	const char *low;

	if (end - p < 6 || memcmp(p, "\\u00", 4) != 0)
		return 0;
	high = memchr(digits + 8, p[4], 8);
	low = memchr(digits, p[5], 16);
	return high != NULL && low != NULL ?
		(high - digits) << 4 | (low - digits) : 0;
}

/*
 * Copy the line.  Escapes of bytes beyond ASCII become these bytes, or, where
 * JSON's parser would take them for characters, texts that look like escapes.
 */
static void
rewrite_escapes(StringInfo dst, const PaqLoadLine *line, bool to_bytes)
{
	const char *p = line->data;
	const char *end = p + line->len;

	while (p < end)
	{
		unsigned char byte = escaped_byte(p, end);

		if (byte == 0)
		{
			/* Whole escapes: the second backslash of two does not begin one. */
			Size		n = *p == '\\' ? Min(2, end - p) : 1;

			appendBinaryStringInfo(dst, p, n);
			p += n;
			continue;
		}
		if (to_bytes)
			appendStringInfoChar(dst, (char) byte);
		else
			appendStringInfo(dst, "\\\\u%04x", byte);
		p += 6;
	}
}

/*
 * The text converted; NULL if that cannot be done.  But in place of a character
 * of UTF-8 that the other encoding does not have there is text that looks like
 * \uxxxx.
 */
static char *
convert(char *text, int from, int to)
{
	Oid			proc = FindDefaultConversionProc(from, to);
	const char *end = text + strlen(text);
	unsigned char piece[PIECE_SIZE];
	StringInfoData dst;

	initStringInfo(&dst);
	while (text < end)
	{
		int			n = 0;

		CHECK_FOR_INTERRUPTS();
		if (OidIsValid(proc))
		{
			n = pg_do_encoding_conversion_buf(proc, from, to, (unsigned char *) text,
											  end - text, piece, sizeof(piece), true);
			appendStringInfoString(&dst, (char *) piece);
		}
		if (n == 0 && from != PG_UTF8)
			return NULL;
		if (n == 0)
		{
			n = pg_utf_mblen((unsigned char *) text);
			if (n == 1)
				appendStringInfoChar(&dst, *text);
			else
				appendStringInfo(&dst, "\\u%04x", utf8_to_unicode((unsigned char *) text));
		}
		text += n;
	}
	return dst.data;
}

/* A string of the line in the database's encoding; NULL if it cannot be. */
static char *
load_text(const Row *row, char *text)
{
	const int	database = GetDatabaseEncoding();

	if (pg_is_ascii(text))
		return text;
	if (row->encoding != PG_UTF8)
	{
		int			len = strlen(text);

		/* An escape was a whole character when the line was shortened. */
		if (row->line->shortened)
			len = pg_encoding_mbcliplen(row->encoding, text, len, len);
		text[len] = '\0';
		text = pg_verify_mbstr(row->encoding, text, len, true) ?
			convert(text, row->encoding, PG_UTF8) : NULL;
	}
	if (text == NULL || database == PG_UTF8 || database == PG_SQL_ASCII)
		return text;
	return convert(text, PG_UTF8, database);
}

/* ----------
 * Rows
 * ----------
 */

/* Names of the columns in the order of a row, as COPY wants them. */
List *
paq_row_columns(void)
{
	List	   *names = NIL;

	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
		if (paq_trail_fields[i].column != NULL)
			names = lappend(names, makeString(pstrdup(paq_trail_fields[i].column)));
	return names;
}

/* A field begins: which one is it?  Lines have them in the order of the list. */
static PAQ_JSON_RESULT
field_start(void *state, char *name, bool isnull)
{
	Row		   *row = state;

	row->field = -1;
	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
	{
		int			field = (row->next + i) % PAQ_TRAIL_NFIELDS;
		const char *json = paq_trail_fields[field].json;

		if (json != NULL && strcmp(json, name) == 0)
		{
			row->field = field;
			row->next = field + 1;
			break;
		}
	}
	pfree(name);
	return PAQ_JSON_DONE;
}

static PAQ_JSON_RESULT
scalar(void *state, char *token, JsonTokenType type)
{
	Row		   *row = state;
	char	   *value = NULL;

	if (type != JSON_TOKEN_NULL)
	{
		value = load_text(row, token);
		row->failed |= value == NULL;
	}
	if (row->depth == 0)
	{
		if (row->field >= 0)
			row->values[row->field] = value;
		return PAQ_JSON_DONE;
	}
	if (row->array.len > 1)
		appendStringInfoChar(&row->array, ',');
	if (value == NULL)
		appendStringInfoString(&row->array, "null");
	else
		escape_json(&row->array, value);
	return PAQ_JSON_DONE;
}

/* An array is made anew, as its elements may be converted. */
static PAQ_JSON_RESULT
array_start(void *state)
{
	Row		   *row = state;

	if (row->depth++ == 0)
	{
		initStringInfo(&row->array);
		appendStringInfoChar(&row->array, '[');
	}
	return PAQ_JSON_DONE;
}

static PAQ_JSON_RESULT
array_end(void *state)
{
	Row		   *row = state;

	if (--row->depth == 0 && row->field >= 0)
	{
		appendStringInfoChar(&row->array, ']');
		row->values[row->field] = row->array.data;
	}
	return PAQ_JSON_DONE;
}

/* Take over what the line says, whose strings are in that encoding. */
static bool
parse(Row *row, const PaqLoadLine *line, int encoding)
{
	JsonSemAction actions = {0};
	StringInfoData rewritten = {.data = unconstify(char *, line->data), .len = line->len};

	if (encoding != PG_UTF8 || GetDatabaseEncoding() != PG_UTF8)
	{
		initStringInfo(&rewritten);
		rewrite_escapes(&rewritten, line, encoding != PG_UTF8);
	}
	memset(row, 0, sizeof(*row));
	row->line = line;
	row->encoding = encoding;
	actions.semstate = row;
	actions.object_field_start = field_start;
	actions.scalar = scalar;
	actions.array_start = array_start;
	actions.array_end = array_end;
	return pg_parse_json(paq_json_lex(rewritten.data, rewritten.len),
						 &actions) == JSON_SUCCESS && !row->failed;
}

/* Take over what the line says; false if it is damaged. */
static bool
fill_row(Row *row, const PaqLoadLine *line)
{
	const char *name;
	int			encoding;
	Row			converted;

	if (!pg_verify_mbstr(PG_UTF8, line->data, line->len, true) ||
		!parse(row, line, PG_UTF8) || row->values[PAQ_TRAIL_TYPE] == NULL)
		return false;
	name = row->values[PAQ_TRAIL_TEXT_ENCODING];
	encoding = name == NULL ? PG_UTF8 : pg_char_to_encoding(name);

	/* In UTF8 and SQL_ASCII some characters are not escapes, but themselves. */
	if (PG_VALID_BE_ENCODING(encoding) && encoding != PG_UTF8 &&
		encoding != PG_SQL_ASCII && parse(&converted, line, encoding))
	{
		*row = converted;
		row->values[PAQ_TRAIL_TEXT_ENCODING] = NULL;
	}
	return true;
}

/* The client's address, if that is what the host is. */
static const char *
address_of(const char *host)
{
	unsigned char address[sizeof(struct in6_addr)];
	char	   *zone;
	char	   *copy;

	if (host == NULL || host[0] == '[')
		return NULL;
	copy = pstrdup(host);
	zone = strchr(copy, '%');
	if (zone != NULL)
		*zone = '\0';
	return inet_pton(AF_INET, copy, address) == 1 ||
		inet_pton(AF_INET6, copy, address) == 1 ? copy : NULL;
}

/*
 * The day, UTC, under which the line's record is filed: that of its logTime,
 * "2026-11-20T10:11:12.123456+00:00".  False if the line has none; the record
 * then counts for the day on which it was loaded.
 */
bool
paq_row_day(const PaqLoadLine *line, int *day)
{
	const char *key = paq_trail_fields[PAQ_TRAIL_LOG_TIME].key;
	char		head[256];
	const Size	len = Min(line->len, sizeof(head) - 1);
	const char *time;
	int			year;
	int			month;
	int			mday;
	int			hour;
	int			minute;
	int			second;
	int			off_hour;
	int			off_minute;
	int			off_second = 0;
	char		sign;
	int64		seconds;

	/*
	 * Nothing before logTime is of any length, or a user's.  Not strlcpy(), which
	 * would go on to the end of the file to tell its length.
	 */
	memcpy(head, line->data, len);
	head[len] = '\0';
	time = strstr(head, key);
	if (time == NULL ||
		sscanf(time + strlen(key), "\"%d-%2d-%2dT%2d:%2d:%2d.%*6d%c%2d:%2d:%2d",
			   &year, &month, &mday, &hour, &minute, &second,
			   &sign, &off_hour, &off_minute, &off_second) < 9 ||
		(sign != '+' && sign != '-') ||
		month < 1 || month > 12 || mday < 1 || mday > 31)
		return false;
	seconds = (off_hour * 60 + off_minute) * 60 + off_second;
	seconds = (hour * 60 + minute) * 60 + second + (sign == '-' ? seconds : -seconds);
	*day = date2j(year, month, mday) - POSTGRES_EPOCH_JDATE +
		paq_day_of(seconds * USECS_PER_SEC);
	return true;
}

static void
add_day(PaqBatch *batch, int day)
{
	MemoryContext old_context;

	if (list_member_int(batch->days, day))
		return;
	old_context = MemoryContextSwitchTo(batch->context);
	batch->days = lappend_int(batch->days, day);
	MemoryContextSwitchTo(old_context);
}

/* Fill in what the line does not have; false if its time is damaged. */
static bool
complete_row(Row *row, const PaqLoadLine *line, PaqBatch *batch)
{
	int			day;

	if (row->values[PAQ_TRAIL_LOG_TIME] == NULL)
	{
		TimestampTz now = GetCurrentTimestamp();

		row->values[PAQ_TRAIL_LOG_TIME] = pstrdup(timestamptz_to_str(now));
		day = paq_day_of(now);
	}
	else if (!paq_row_day(line, &day))
		return false;
	add_day(batch, day);
	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
		if (paq_trail_fields[i].type == PAQ_JSON_BOOLEAN && row->values[i] == NULL)
			row->values[i] = "f";
	row->values[PAQ_TRAIL_SERIES] = psprintf(INT64_FORMAT, (int64) line->series);
	row->values[PAQ_TRAIL_REMOTE_ADDRESS] = address_of(row->values[PAQ_TRAIL_REMOTE_HOST]);
	if (line->shortened)
	{
		row->values[PAQ_TRAIL_CUT] = "t";
		row->values[PAQ_TRAIL_KEPT_FILE] = psprintf("%s" PAQ_KEPT_SUFFIX, line->path);
	}
	return true;
}

/* Append a value of a row in COPY's text format. */
static void
append_value(StringInfo dst, const char *value)
{
	const char *run = value;
	const char *p;

	if (value == NULL)
	{
		appendBinaryStringInfo(dst, "\\N", 2);
		return;
	}
	for (p = value; *p != '\0'; p++)
	{
		const char *escape;

		switch (*p)
		{
			case '\\':
				escape = "\\\\";
				break;
			case '\t':
				escape = "\\t";
				break;
			case '\n':
				escape = "\\n";
				break;
			case '\r':
				escape = "\\r";
				break;
			default:
				continue;
		}
		appendBinaryStringInfo(dst, run, p - run);
		appendBinaryStringInfo(dst, escape, 2);
		run = p + 1;
	}
	appendBinaryStringInfo(dst, run, p - run);
}

/*
 * Add the line to the batch; false if it is damaged.  Leaves garbage in the
 * current memory context.
 */
bool
paq_row_add(PaqBatch *batch, const PaqLoadLine *line)
{
	Row			row;

	if (!fill_row(&row, line) || !complete_row(&row, line, batch))
		return false;
	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
	{
		if (paq_trail_fields[i].column == NULL)
			continue;
		append_value(&batch->rows, row.values[i]);
		appendStringInfoChar(&batch->rows, '\t');
	}
	batch->rows.data[batch->rows.len - 1] = '\n';
	batch->count++;
	return true;
}
