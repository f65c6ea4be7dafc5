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
 * so it can convert such a text.  What cannot be converted stays as the worker
 * wrote it; a character that the database's encoding does not have is shown as an
 * escape.
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
#include "compat.h"
#include "load/load_internal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "record/record.h"
#include "utils/datetime.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* What is kept of the texts of a line that is too long, in bytes */
#define MAX_TEXT	(64 * 1024)
#define MAX_ARRAY	(1024 * 1024)

/* More strings than that are not cut in any line that the worker writes. */
#define MAX_CUTS	64

/* As much is converted at once, in bytes. */
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

	/* where in "kept" the strings are that have been cut */
	int			ncuts;
	struct
	{
		int			start;
		int			end;
	}			cuts[MAX_CUTS];
}			shortening;

/* A row being made: the fields' values as texts, NULL for null */
typedef struct Row
{
	JsonLexContext *lex;
	const char *values[PAQ_TRAIL_NFIELDS];
	int			field;			/* that is being parsed, -1: none of ours */
	int			next;			/* the one that probably follows */
	int			depth;			/* of arrays */
	const char *array;			/* where the outermost one begins */
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

/* The string being read is longer than what is kept of it. */
static void
note_cut(void)
{
	if (!is_kept() || shortening.ncuts == MAX_CUTS)
		return;
	shortening.cuts[shortening.ncuts].start = kept.len - shortening.string_kept;
	shortening.cuts[shortening.ncuts].end = kept.len;
	shortening.ncuts++;
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
		{
			const bool	skip = shortening.string_kept >= MAX_TEXT;

			if (skip && !shortening.skip_character)
				note_cut();
			shortening.skip_character = skip;
		}
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

/*
 * The encoding that the line names; negative for none.  *value is where, in
 * the line, it does.
 */
static int
line_encoding(const char *line, Size len, Size *value)
{
	const char *key = paq_trail_fields[PAQ_TRAIL_TEXT_ENCODING].key;
	const Size	key_len = strlen(key);
	char		word[NAMEDATALEN];
	Size		start;
	Size		end;

	/* It is among the last fields, and the last text. */
	for (start = len; start >= key_len; start--)
		if (memcmp(line + start - key_len, key, key_len) == 0)
			break;
	if (start < key_len || start >= len || line[start] != '"')
		return -1;
	*value = start++;
	for (end = start; end < len && line[end] != '"'; end++)
		;
	if (end == len || end - start >= sizeof(word))
		return -1;
	memcpy(word, line + start, end - start);
	word[end - start] = '\0';
	return pg_char_to_encoding(word);
}

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
 * Size of the byte of a text at p, in a string of an encoding whose bytes beyond
 * ASCII are escapes.
 */
static int
byte_size(const char *p)
{
	if (*p != '\\')
		return 1;
	return p[1] == 'u' ? 6 : 2;
}

/*
 * A character of an encoding other than UTF-8 is several escapes, and only the end
 * of the line tells the encoding.  So what is left of a character at the end of a
 * string, which is from start to end in "kept", is removed when the line has been
 * read.
 */
static void
trim(int start, int end, int encoding)
{
	char	   *text = palloc(end - start + 1);
	int			len = 0;
	int			whole;
	int			p = start;

	for (; p < end; p += byte_size(kept.data + p))
	{
		const unsigned char byte = escaped_byte(kept.data + p, kept.data + end);

		/* Which one it is does not matter if it is ASCII. */
		text[len++] = byte != 0 ? byte : 'x';
	}
	text[len] = '\0';
	whole = pg_encoding_mbcliplen(encoding, text, len, len);
	pfree(text);
	for (p = start; whole > 0; whole--)
		p += byte_size(kept.data + p);
	memmove(kept.data + p, kept.data + end, kept.len - end + 1);
	kept.len -= end - p;
}

/* The line; valid until the next one begins. */
const char *
paq_shorten_end(Size *len)
{
	Size		value;
	const int	encoding = line_encoding(kept.data, kept.len, &value);

	if (encoding >= 0 && encoding != PG_UTF8 &&
		pg_encoding_max_length(encoding) > 1)

		/* From the last one on, which moves none of the others. */
		for (int i = shortening.ncuts - 1; i >= 0; i--)
			trim(shortening.cuts[i].start, shortening.cuts[i].end, encoding);
	*len = kept.len;
	return kept.data;
}

/* ----------
 * Encodings
 * ----------
 */

/*
 * Copy the line.  Escapes of bytes beyond ASCII become these bytes, or, where
 * JSON's parser would take them for characters, texts that look like escapes.
 */
static void
rewrite_escapes(StringInfo dst, const char *line, Size len, bool to_bytes)
{
	const char *end = line + len;
	const char *p = line;

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

/* The text in UTF-8, *new_len bytes; NULL if that cannot be done. */
static const char *
to_utf8(const char *text, Size len, int encoding, Size *new_len)
{
	const Size	size = len * MAX_CONVERSION_GROWTH + 1;
	Oid			proc = FindDefaultConversionProc(encoding, PG_UTF8);
	char	   *dst;
	int			done;

	if (!OidIsValid(proc) || !pg_verify_mbstr(encoding, text, len, true))
		return NULL;
	dst = palloc(size);
	done = pg_do_encoding_conversion_buf(proc, encoding, PG_UTF8,
										 (unsigned char *) unconstify(char *, text),
										 len, (unsigned char *) dst, size, true);
	if (done != len)
		return NULL;
	*new_len = strlen(dst);
	return dst;
}

/* How many bytes of a text in UTF-8 to convert at once: whole characters */
static Size
piece_size(const char *text, Size len)
{
	if (len <= PIECE_SIZE)
		return len;
	for (len = PIECE_SIZE; (text[len] & 0xC0) == 0x80; len--)
		;
	return len;
}

/*
 * Append a piece of UTF-8 in the encoding, up to a character that this does not
 * have; returns how many bytes of the piece that is.
 */
static Size
convert_piece(StringInfo dst, const char *text, Size len, Oid proc, int encoding)
{
	unsigned char piece[PIECE_SIZE * MAX_CONVERSION_GROWTH + 1];
	Size		done = 0;

	if (OidIsValid(proc))
	{
		done = pg_do_encoding_conversion_buf(proc, PG_UTF8, encoding,
											 (unsigned char *) unconstify(char *, text),
											 len, piece, sizeof(piece), true);
		appendStringInfoString(dst, (char *) piece);
		return done;
	}
	while (done < len && (text[done] & 0x80) == 0)
		done++;
	appendBinaryStringInfo(dst, text, done);
	return done;
}

/*
 * If all texts of the line are in another encoding, convert them to UTF-8, and
 * say that no encoding need be named any more.  NULL if that cannot be done.
 */
static const char *
from_named(const char *line, Size *len)
{
	Size		value = 0;
	int			encoding = line_encoding(line, *len, &value);
	StringInfoData raw;
	const char *end;
	const char *converted;
	Size		new_len;

	if (encoding < 0 || encoding == PG_UTF8 || encoding == PG_SQL_ASCII)
		return NULL;
	initStringInfo(&raw);
	rewrite_escapes(&raw, line, value, true);
	appendStringInfoString(&raw, "null");
	end = memchr(line + value + 1, '"', *len - value - 1);
	rewrite_escapes(&raw, end + 1, line + *len - end - 1, true);
	converted = to_utf8(raw.data, raw.len, encoding, &new_len);
	if (converted != NULL)
		*len = new_len;
	return converted;
}

/*
 * A line in UTF-8 in the database's encoding; *len is its length.  A character
 * that this does not have becomes text that looks like \uxxxx.
 */
static const char *
to_database(const char *line, Size *len)
{
	const int	encoding = GetDatabaseEncoding();
	Oid			proc = FindDefaultConversionProc(PG_UTF8, encoding);
	StringInfoData source;
	StringInfoData dst;
	const char *p;
	const char *end;

	initStringInfo(&source);
	rewrite_escapes(&source, line, *len, false);
	*len = source.len;
	if (encoding == PG_SQL_ASCII)
		return source.data;
	initStringInfo(&dst);
	p = source.data;
	end = p + source.len;
	while (p < end)
	{
		Size		piece = piece_size(p, end - p);
		Size		done = convert_piece(&dst, p, piece, proc, encoding);

		CHECK_FOR_INTERRUPTS();
		p += done;
		if (done < piece)
		{
			appendStringInfo(&dst, "\\\\u%04x",
							 utf8_to_unicode((const unsigned char *) p));
			p += pg_utf_mblen((const unsigned char *) p);
		}
	}
	*len = dst.len;
	return dst.data;
}

/*
 * The line, *len bytes, in the database's encoding, with its new length; what
 * is returned may be the line itself.  NULL if it cannot be what the worker
 * wrote.
 */
static const char *
load_text(const char *line, Size *len)
{
	const char *converted = from_named(line, len);

	if (converted == NULL)
	{
		if (!pg_verify_mbstr(PG_UTF8, line, *len, true))
			return NULL;
		converted = line;
	}
	if (GetDatabaseEncoding() == PG_UTF8)
		return converted;
	return to_database(converted, len);
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

	if (row->depth == 0 && row->field >= 0 && type != JSON_TOKEN_NULL)
		row->values[row->field] = token;
	return PAQ_JSON_DONE;
}

/* An array is taken as it is written. */
static PAQ_JSON_RESULT
array_start(void *state)
{
	Row		   *row = state;

	if (row->depth++ == 0)
		row->array = row->lex->token_start;
	return PAQ_JSON_DONE;
}

static PAQ_JSON_RESULT
array_end(void *state)
{
	Row		   *row = state;

	if (--row->depth == 0 && row->field >= 0)
		row->values[row->field] =
			pnstrdup(row->array, row->lex->prev_token_terminator - row->array);
	return PAQ_JSON_DONE;
}

/* Take over what the line says; false if it is damaged. */
static bool
fill_row(Row *row, const PaqLoadLine *line)
{
	JsonSemAction actions = {0};
	Size		len = line->len;
	const char *text = load_text(line->data, &len);

	if (text == NULL)
		return false;
	actions.semstate = row;
	actions.object_field_start = field_start;
	actions.scalar = scalar;
	actions.array_start = array_start;
	actions.array_end = array_end;
	row->lex = paq_json_lex(text, len);
	return pg_parse_json(row->lex, &actions) == JSON_SUCCESS &&
		row->values[PAQ_TRAIL_TYPE] != NULL;
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

	memset(&row, 0, sizeof(row));
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
