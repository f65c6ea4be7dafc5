/*-------------------------------------------------------------------------
 *
 * line.c
 *		A line of a trail in format json becomes its fields, see line.h.
 *
 * The server writes fields in the order of the list, with no white space between
 * them.  There is code for each field that looks for just that; where a line is different,
 * for all of JSON.  Strings are looked through eight bytes at a time.
 *
 * The part of a line that is about the session is kept, with its values: it is the same in all
 * of the session's lines, and half of each.  Comparing it is faster than parsing it.
 *
 * Guarantees: reads nothing outside of the line; no recursion deeper than
 * MAX_NESTING.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "port/pg_bitutils.h"
#include "trail/hex.h"
#include "trail/line.h"

/* Arrays and objects within each other, in fields that the list does not have */
#define MAX_NESTING		64

/* A name of the list, as lines have it: "name": */
typedef struct FieldKey
{
	const char *key;
	Size		len;			/* 0: json does not have the field */
	PaqJsonType type;
} FieldKey;

static const FieldKey keys[PAQ_TRAIL_NFIELDS] = {
#define KEY(json, type)		{"\"" json "\":", sizeof("\"" json "\":") - 1, type}
#define PAQ_TRAIL_FIELD(part, id, json, column, type, sql_type, source, what) \
	[PAQ_TRAIL_##id] = KEY(json, PAQ_JSON_##type),
#define PAQ_TRAIL_MARK(id, json, column, flag, what) \
	[PAQ_TRAIL_##id] = KEY(json, PAQ_JSON_MARK),
#define PAQ_TRAIL_EXTRA(id, json, type, what) \
	[PAQ_TRAIL_##id] = KEY(json, PAQ_JSON_##type),
#include "record/fieldlist.h"
};

/* Parts of the list */
typedef enum FieldPart
{
	PART_HEAD,
	PART_SESSION,
	PART_TAIL
} FieldPart;

/* How many fields they have */
enum
{
	NHEAD = 0
#define PAQ_TRAIL_FIELD(part, id, json, column, type, sql_type, source, what) \
	+ (PART_##part == PART_HEAD)
#include "record/fieldlist.h"
		,
	NSESSION = 0
#define PAQ_TRAIL_FIELD(part, id, json, column, type, sql_type, source, what) \
	+ (PART_##part == PART_SESSION)
#include "record/fieldlist.h"
};

/* Parts of sessions that are kept: a power of 2 */
#define NKEPT			64

/* Longest of them, in bytes; its beginning, which has the session's ID, tells where it is kept */
#define KEPT_MAX		2048
#define KEPT_BEGINNING	32

typedef struct KeptPart
{
	Size		len;			/* bytes of text; 0: nothing is kept */
	char		text[KEPT_MAX];
	PaqValue	value[NSESSION];	/* which point into it */
} KeptPart;

static KeptPart kept_parts[NKEPT];

static const char *skip_value(const char *p, const char *end, PaqValue *value, int depth);

/* ----------
 * Strings
 * ----------
 */

/* The same byte eight times */
#define REPEAT(byte)	(UINT64CONST(0x0101010101010101) * (byte))

/*
 * The bytes of a word that are more than plain text - a quote, a backslash, a control
 * character, no ASCII - by their highest bits.  In ASCII, subtracting sets the highest bit of a
 * byte that is less than what is subtracted, and of no other one.  It borrows then, which makes
 * mistakes behind such a byte only; in what is no ASCII, whose highest bit counts itself, it may
 * clear that bit, but does not borrow.
 */
static inline uint64
special_bytes(uint64 word)
{
	return ((word - REPEAT(0x20)) |
			((word ^ REPEAT('"')) - REPEAT(0x01)) |
			((word ^ REPEAT('\\')) - REPEAT(0x01)) |
			word) & REPEAT(0x80);
}

static inline bool
is_special(unsigned char c)
{
	return c < 0x20 || c == '"' || c == '\\' || c >= 0x80;
}

static inline const char *
skip_plain(const char *p, const char *end)
{
	for (; end - p >= 8; p += 8)
	{
		uint64		word;

		memcpy(&word, p, sizeof(word));
		word = special_bytes(word);
		if (word == 0)
			continue;
#ifndef WORDS_BIGENDIAN
		return p + pg_rightmost_one_pos64(word) / 8;
#else
		break;
#endif
	}
	while (p < end && !is_special(*p))
		p++;
	return p;
}

/* The four digits of an escape at p; -1 if they are not there. */
static int
hex_escape(const char *p, const char *end)
{
	int			result = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++)
	{
		const int	digit = paq_hex_digit(p[i]);

		if (digit < 0)
			return -1;
		result = result << 4 | digit;
	}
	return result;
}

/* End of the escape whose backslash is at p; NULL if it is none. */
static const char *
skip_escape(const char *p, const char *end)
{
	int			unit;

	if (end - p < 2)
		return NULL;
	if (p[1] != 'u')
		return p[1] != '\0' && strchr("\"\\/bfnrt", p[1]) != NULL ? p + 2 : NULL;
	unit = hex_escape(p + 2, end);
	if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff))
		return NULL;
	p += 6;
	if (unit < 0xd800 || unit > 0xdbff)
		return p;

	/* the first half of a character needs the second one */
	if (end - p < 6 || p[0] != '\\' || p[1] != 'u')
		return NULL;
	unit = hex_escape(p + 2, end);
	return unit >= 0xdc00 && unit <= 0xdfff ? p + 6 : NULL;
}

/* End of the character at p that is not ASCII; NULL if it is not valid UTF-8. */
static const char *
skip_character(const char *p, const char *end)
{
	const unsigned char *s = (const unsigned char *) p;
	const int	len = pg_utf_mblen(s);

	if (len < 2 || len > end - p || !pg_utf8_islegal(s, len))
		return NULL;
	return p + len;
}

/* The rest of a string, from the first character on that is not plain, if there is one */
static pg_noinline const char *
skip_special(const char *p, const char *end, PaqValue *value)
{
	while (p != NULL && p < end && *p != '"')
	{
		if (*p == '\\')
		{
			value->escaped = true;
			p = skip_escape(p, end);
		}
		else
			p = (unsigned char) *p >= 0x80 ? skip_character(p, end) : NULL;
		if (p != NULL)
			p = skip_plain(p, end);
	}
	if (p == NULL || p == end)
		return NULL;
	value->len = p - value->data;
	return p + 1;
}

/* The string whose first quote is before p; returns its end, or NULL. */
static inline const char *
skip_string(const char *p, const char *end, PaqValue *value)
{
	value->data = p;
	value->kind = PAQ_VALUE_STRING;
	value->escaped = false;
	p = skip_plain(p, end);
	if (unlikely(p == end || *p != '"'))
		return skip_special(p, end, value);
	value->len = p - value->data;
	return p + 1;
}

/* ----------
 * Other values
 * ----------
 */

static inline const char *
skip_space(const char *p, const char *end)
{
	while (p < end && (*p == ' ' || *p == '\t' || *p == '\r'))
		p++;
	return p;
}

static inline bool
is_digit(const char *p, const char *end)
{
	return p < end && *p >= '0' && *p <= '9';
}

static inline const char *
skip_digits(const char *p, const char *end)
{
	while (is_digit(p, end))
		p++;
	return p;
}

static inline const char *
skip_number(const char *p, const char *end, PaqValue *value)
{
	value->data = p;
	value->kind = PAQ_VALUE_NUMBER;
	if (*p == '-')
		p++;
	if (!is_digit(p, end) || (*p == '0' && is_digit(p + 1, end)))
		return NULL;
	p = skip_digits(p, end);
	if (p < end && *p == '.')
	{
		if (!is_digit(++p, end))
			return NULL;
		p = skip_digits(p, end);
	}
	if (p < end && (*p == 'e' || *p == 'E'))
	{
		p++;
		if (p < end && (*p == '+' || *p == '-'))
			p++;
		if (!is_digit(p, end))
			return NULL;
		p = skip_digits(p, end);
	}
	value->len = p - value->data;
	return p;
}

static inline const char *
skip_word(const char *p, const char *end, const char *word, Size len,
		  PaqValueKind kind, PaqValue *value)
{
	if (end - p < len || memcmp(p, word, len) != 0)
		return NULL;
	value->data = p;
	value->len = len;
	value->kind = kind;
	return p + len;
}

/*
 * An array, whose bracket is before p.  Its kind is that of arrays of the trail only if
 * it has nothing but strings and nulls.
 */
static const char *
skip_array(const char *p, const char *end, PaqValue *value, int depth)
{
	value->data = p;
	value->kind = PAQ_VALUE_ARRAY;
	p = skip_space(p, end);
	if (p < end && *p == ']')
	{
		value->len = p - value->data;
		return p + 1;
	}
	for (;;)
	{
		PaqValue	element;

		p = skip_value(skip_space(p, end), end, &element, depth + 1);
		if (p == NULL)
			return NULL;
		if (element.kind != PAQ_VALUE_STRING && element.kind != PAQ_VALUE_NULL)
			value->kind = PAQ_VALUE_ABSENT;
		p = skip_space(p, end);
		if (p == end || (*p != ',' && *p != ']'))
			return NULL;
		if (*p++ == ']')
			break;
	}
	value->len = p - 1 - value->data;
	return p;
}

/* The name and value of an object's member at p; returns their end, or NULL. */
static const char *
skip_member(const char *p, const char *end, PaqValue *name, PaqValue *value, int depth)
{
	if (p == end || *p != '"')
		return NULL;
	p = skip_string(p + 1, end, name);
	p = p != NULL ? skip_space(p, end) : end;
	if (p == end || *p != ':')
		return NULL;
	return skip_value(skip_space(p + 1, end), end, value, depth);
}

/*
 * An object, whose brace is before p.  Its kind is that of objects of the trail only if
 * it has nothing but strings, numbers and nulls.
 */
static const char *
skip_object(const char *p, const char *end, PaqValue *value, int depth)
{
	value->data = p;
	value->kind = PAQ_VALUE_OBJECT;
	p = skip_space(p, end);
	if (p < end && *p == '}')
	{
		value->len = p - value->data;
		return p + 1;
	}
	for (;;)
	{
		PaqValue	name;
		PaqValue	member;

		p = skip_member(skip_space(p, end), end, &name, &member, depth + 1);
		p = p != NULL ? skip_space(p, end) : end;
		if (p == end || (*p != ',' && *p != '}'))
			return NULL;
		if (member.kind != PAQ_VALUE_STRING && member.kind != PAQ_VALUE_NUMBER &&
			member.kind != PAQ_VALUE_NULL)
			value->kind = PAQ_VALUE_ABSENT;
		if (*p++ == '}')
			break;
	}
	value->len = p - 1 - value->data;
	return p;
}

/*
 * Any value at p; returns its end, or NULL if it is none.  Its kind is
 * PAQ_VALUE_ABSENT if it is of a kind that no field has.
 */
static const char *
skip_value(const char *p, const char *end, PaqValue *value, int depth)
{
	value->escaped = false;
	if (p == end || depth > MAX_NESTING)
		return NULL;
	switch (*p)
	{
		case '"':
			return skip_string(p + 1, end, value);
		case 'n':
			return skip_word(p, end, "null", 4, PAQ_VALUE_NULL, value);
		case 't':
			return skip_word(p, end, "true", 4, PAQ_VALUE_BOOLEAN, value);
		case 'f':
			return skip_word(p, end, "false", 5, PAQ_VALUE_BOOLEAN, value);
		case '[':
			return skip_array(p + 1, end, value, depth);
		case '{':
			return skip_object(p + 1, end, value, depth);
		default:
			return skip_number(p, end, value);
	}
}

/* ----------
 * Lines
 * ----------
 */

static inline bool
is_key(int field, const char *p, const char *end)
{
	return keys[field].len > 0 && end - p >= keys[field].len &&
		memcmp(p, keys[field].key, keys[field].len) == 0;
}

/*
 * The field whose name is at p, looked for from "next" on; *p becomes what is behind the
 * colon.  PAQ_TRAIL_NFIELDS if the list does not have it; -1 if there is no name.
 * A name with escapes could be another way to write one of ours: it is refused.
 */
static int
find_field(const char **p, const char *end, int next)
{
	PaqValue	name;
	const char *q;
	int			field;

	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
	{
		field = next + i < PAQ_TRAIL_NFIELDS ? next + i : next + i - PAQ_TRAIL_NFIELDS;
		if (is_key(field, *p, end))
		{
			*p += keys[field].len;
			return field;
		}
	}
	if (*p == end || **p != '"' || (q = skip_string(*p + 1, end, &name)) == NULL ||
		name.escaped)
		return -1;
	q = skip_space(q, end);
	if (q == end || *q != ':')
		return -1;
	*p = q + 1;
	for (field = 0; field < PAQ_TRAIL_NFIELDS; field++)
		if (keys[field].len == name.len + 3 &&
			memcmp(keys[field].key + 1, name.data, name.len) == 0)
			break;
	return field;
}

/* Is that a value which the list allows a field of that type? */
static inline bool
fits_type(PaqJsonType type, PaqValueKind kind)
{
	if (kind == PAQ_VALUE_NULL)
		return true;
	switch (type)
	{
		case PAQ_JSON_NONE:
			break;
		case PAQ_JSON_STRING:
		case PAQ_JSON_TIME:
			return kind == PAQ_VALUE_STRING;
		case PAQ_JSON_NUMBER:
			return kind == PAQ_VALUE_NUMBER;
		case PAQ_JSON_ARRAY:
			return kind == PAQ_VALUE_ARRAY;
		case PAQ_JSON_OBJECT:
			return kind == PAQ_VALUE_OBJECT;
		case PAQ_JSON_BOOLEAN:
		case PAQ_JSON_MARK:
			return kind == PAQ_VALUE_BOOLEAN;
	}
	return false;
}

/* A name and its value at p; returns their end, or NULL.  *next: the likely next one. */
static inline const char *
parse_field(const char *p, const char *end, PaqLine *parsed, int *next)
{
	PaqValue	unknown;
	PaqValue   *value = &unknown;
	int			field = *next;

	if (likely(is_key(field, p, end)))
		p += keys[field].len;
	else
		field = find_field(&p, end, field);
	if (unlikely(field < 0))
		return NULL;
	if (likely(field < PAQ_TRAIL_NFIELDS))
	{
		value = &parsed->value[field];
		if (value->kind != PAQ_VALUE_ABSENT)
			return NULL;
		*next = field + 1 < PAQ_TRAIL_NFIELDS ? field + 1 : 0;
	}
	p = skip_value(skip_space(p, end), end, value, 0);
	if (p == NULL || (value != &unknown && !fits_type(keys[field].type, value->kind)))
		return NULL;
	return p;
}

/*
 * The field of that name and type at p, with the comma behind its value; returns their end.
 * NULL, and the value is absent, if anything else is there.
 */
static pg_attribute_always_inline const char *
parse_expected(const char *p, const char *end, const char *key, Size len, PaqJsonType type,
			   PaqValue *value)
{
	if (end - p <= len || memcmp(p, key, len) != 0)
		return NULL;
	p += len;
	value->escaped = false;
	if (*p == 'n')
		p = skip_word(p, end, "null", 4, PAQ_VALUE_NULL, value);
	else if (type == PAQ_JSON_NUMBER)
		p = skip_number(p, end, value);
	else if (type != PAQ_JSON_STRING && type != PAQ_JSON_TIME)
		p = skip_value(p, end, value, 0);
	else
		p = *p == '"' ? skip_string(p + 1, end, value) : NULL;
	if (p != NULL && p < end && *p == ',' && fits_type(type, value->kind))
		return p + 1;
	value->kind = PAQ_VALUE_ABSENT;
	return NULL;
}

/*
 * The fields of a part from p on as the server writes them: all that every line has, in the order
 * of the list, nothing in between.  Returns the end of those that are so; *next, which is the
 * first one of the part, becomes the one after them.
 */
static pg_attribute_always_inline const char *
parse_part(FieldPart wanted, const char *p, const char *end, PaqLine *parsed, int *next)
{
	const char *behind;

#define PAQ_TRAIL_FIELD(part, id, json, column, type, sql_type, source, what) \
	if (PART_##part == wanted) \
	{ \
		behind = parse_expected(p, end, "\"" json "\":", sizeof("\"" json "\":") - 1, \
								PAQ_JSON_##type, &parsed->value[PAQ_TRAIL_##id]); \
		if (unlikely(behind == NULL)) \
			return p; \
		p = behind; \
		*next = PAQ_TRAIL_##id + 1; \
	}
#include "record/fieldlist.h"
	return p;
}

/* The session's part of a line becomes the one that is kept. */
static void
keep_part(KeptPart *kept, const char *text, Size len, const PaqLine *parsed)
{
	memcpy(kept->text, text, len);
	kept->len = len;
	for (int i = 0; i < NSESSION; i++)
	{
		kept->value[i] = parsed->value[NHEAD + i];
		kept->value[i].data = kept->text + (kept->value[i].data - text);
	}
}

/* The same as parse_part(), for the session's part */
static const char *
parse_session(const char *p, const char *end, PaqLine *parsed, int *next)
{
	KeptPart   *kept;
	const char *behind;

	if (end - p < KEPT_BEGINNING)
		return p;
	kept = &kept_parts[hash_bytes((const unsigned char *) p, KEPT_BEGINNING) % NKEPT];
	if (kept->len == 0 || end - p < kept->len || memcmp(p, kept->text, kept->len) != 0)
	{
		behind = parse_part(PART_SESSION, p, end, parsed, next);
		if (*next == NHEAD + NSESSION && behind - p <= KEPT_MAX)
			keep_part(kept, p, behind - p, parsed);
		return behind;
	}
	for (int i = 0; i < NSESSION; i++)
	{
		parsed->value[NHEAD + i] = kept->value[i];
		parsed->value[NHEAD + i].data = p + (kept->value[i].data - kept->text);
	}
	*next = NHEAD + NSESSION;
	return p + kept->len;
}

/* All parts.  They end before the last field in nearly every line, as no comma is behind it. */
static const char *
parse_expected_fields(const char *p, const char *end, PaqLine *parsed, int *next)
{
	p = parse_part(PART_HEAD, p, end, parsed, next);
	if (*next == NHEAD)
		p = parse_session(p, end, parsed, next);
	if (*next == NHEAD + NSESSION)
		p = parse_part(PART_TAIL, p, end, parsed, next);
	return p;
}

bool
paq_line_parse(const char *line, Size len, PaqLine *parsed)
{
	const char *end = line + len;
	const char *p;
	int			next = 0;

	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
		parsed->value[i].kind = PAQ_VALUE_ABSENT;
	if (len > 0 && end[-1] == '\n')
		end--;
	p = skip_space(line, end);
	if (p == end || *p++ != '{')
		return false;
	p = skip_space(p, end);
	if (p < end && *p == '}')
		return skip_space(p + 1, end) == end;
	p = parse_expected_fields(p, end, parsed, &next);
	for (;;)
	{
		p = parse_field(skip_space(p, end), end, parsed, &next);
		p = p != NULL ? skip_space(p, end) : end;
		if (p == end)
			return false;
		if (*p == '}')
			return skip_space(p + 1, end) == end;
		if (*p++ != ',')
			return false;
	}
}

/* ----------
 * Values
 * ----------
 */

/* UTF-8 of a character; returns its length. */
static int
put_character(char *dst, pg_wchar c)
{
	unicode_to_utf8(c, (unsigned char *) dst);
	return pg_utf_mblen((unsigned char *) dst);
}

/* Decode the \u escape at *p, which is valid, and move *p behind it. */
static int
put_unicode(const char **p, const char *end, bool bytes, char *dst)
{
	pg_wchar	c = hex_escape(*p + 2, end);

	*p += 6;
	if (bytes && c >= 0x80 && c <= 0xff)
	{
		*dst = (char) c;
		return 1;
	}
	if (c >= 0xd800 && c <= 0xdbff)
	{
		c = 0x10000 + ((c & 0x3ff) << 10) + (hex_escape(*p + 2, end) & 0x3ff);
		*p += 6;
	}
	return put_character(dst, c);
}

Size
paq_line_unescape(const char *raw, Size len, bool bytes, char *dst)
{
	static const char plain[] = "\"\\/bfnrt";
	static const char meant[] = "\"\\/\b\f\n\r\t";
	const char *end = raw + len;
	const char *p = raw;
	char	   *q = dst;

	while (p < end)
	{
		const char *backslash = memchr(p, '\\', end - p);
		const Size	run = (backslash != NULL ? backslash : end) - p;

		memmove(q, p, run);
		q += run;
		p += run;
		if (backslash == NULL)
			break;
		if (p[1] == 'u')
			q += put_unicode(&p, end, bytes, q);
		else
		{
			*q++ = meant[strchr(plain, p[1]) - plain];
			p += 2;
		}
	}
	return q - dst;
}

bool
paq_line_element(const PaqValue *array, const char **next, PaqValue *element)
{
	const char *end;
	const char *p;

	/* What is absent has no data to point to. */
	if (array->kind != PAQ_VALUE_ARRAY)
		return false;
	end = array->data + array->len;
	p = skip_space(*next != NULL ? *next : array->data, end);
	if (p == end)
		return false;
	p = skip_value(p, end, element, 0);
	if (p == NULL)
		return false;
	p = skip_space(p, end);
	*next = p < end ? p + 1 : end;
	return true;
}

bool
paq_line_member(const PaqValue *object, const char **next, PaqValue *name,
				PaqValue *value)
{
	const char *end;
	const char *p;

	if (object->kind != PAQ_VALUE_OBJECT)
		return false;
	end = object->data + object->len;
	p = skip_space(*next != NULL ? *next : object->data, end);
	if (p == end)
		return false;
	p = skip_member(p, end, name, value, 0);
	if (p == NULL)
		return false;
	p = skip_space(p, end);
	*next = p < end ? p + 1 : end;
	return true;
}

bool
paq_line_number(const PaqValue *value, int64 *number)
{
	const char *end = value->data + value->len;
	const bool	negative = value->kind == PAQ_VALUE_NUMBER && *value->data == '-';
	uint64		result = 0;

	if (value->kind != PAQ_VALUE_NUMBER)
		return false;
	for (const char *p = value->data + (negative ? 1 : 0); p < end; p++)
	{
		const unsigned digit = (unsigned char) *p - '0';

		if (digit > 9 || result > (uint64) PG_INT64_MAX / 10)
			return false;
		result = result * 10 + digit;
	}
	if (result > (uint64) PG_INT64_MAX + (negative ? 1 : 0))
		return false;
	*number = (int64) (negative ? -result : result);
	return true;
}
