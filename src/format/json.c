/*-------------------------------------------------------------------------
 *
 * json.c
 *		The JSON format: one object a line.
 *
 * record/fieldlist.h has the fields, in the order in which they are written.
 * What is not known, or means nothing for the record, is null; or it is left out,
 * if json_nulls is off.  The marks at the end are there only when they are true.
 * Times are strings as ISO 8601 has them, with microseconds and offset, in
 * log_timezone: "2026-11-20T10:11:12.123456+00:00".
 *
 * JSON is UTF-8; the trail gets texts in the encodings of the databases they
 * come from, where SQL_ASCII promises nothing at all, and a text may have
 * been cut in the middle of a character.  The worker is connected to no
 * database and so cannot convert between encodings.  So: what is ASCII is
 * written as it is; what is valid UTF-8 in UTF8 or SQL_ASCII too; each other
 * byte xx is written as \u00xx, so that nothing is lost, and textEncoding tells
 * that this was done.
 *
 * A record is written through a plain pointer: the functions get where to
 * write, and return where the next byte goes.  They need not check for space:
 * whatever appends something of any length - a text, or the fields of a session -
 * leaves PAQ_FORMAT_HEADROOM bytes behind it, and what is written between two of
 * these must fit in there.
 *
 * The fields of a session are more than half of a record, so their text is kept:
 * the session's next record gets a copy of it.  What the text was made from is
 * kept as well, and compared.
 *
 * Guarantees: the output is valid JSON in valid UTF-8 whatever the input.
 * Must not allocate or raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "format/format_internal.h"

#include <ctype.h>

#include "mb/pg_wchar.h"

/* Sessions whose text is kept: a power of 2 */
#define NSESSIONS		256

/* The sequence begins within so many bytes of a line. */
#define SEQUENCE_WITHIN	128

/* Longest fields, and longest text, that are kept, in bytes */
#define MAX_KEPT_FIELDS	512
#define MAX_KEPT_TEXT	1536

/* The caller's setting: are fields there that are null? */
static const bool *nulls;

/* The record that is being written */
typedef struct JsonLine
{
	PaqBuffer  *buf;
	const char *log_time;		/* text of logTime, for endTime */
	int			log_time_len;
	bool		utf8;			/* pass valid UTF-8 through */
	bool		raw;			/* some byte that is not ASCII was written as
								 * \u00xx */
} JsonLine;

/* Text that is kept, and what it depends on */
typedef struct SessionText
{
	int64		session_start;
	uint64		generation;		/* of the server; 0: nothing is kept */
	int32		pid;
	int32		encoding;
	uint32		field_len[PAQ_NSESSION_FIELDS];
	uint32		fields_len;
	uint32		role_kind;		/* flags of the record */
	uint32		text_len;
	bool		raw;			/* see JsonLine */
	bool		nulls;			/* the setting */
	char		fields[MAX_KEPT_FIELDS];
	char		text[MAX_KEPT_TEXT];
} SessionText;

static SessionText sessions[NSESSIONS];

/* ----------
 * Texts
 * ----------
 */

/* The same byte eight times */
#define REPEAT(byte)	(UINT64CONST(0x0101010101010101) * (byte))

/* Does the byte need more than copying? */
static inline bool
is_special(unsigned char c)
{
	return c < 0x20 || c == '"' || c == '\\' || c >= 0x80;
}

/*
 * The same for eight bytes at once: most text has none for long.  The highest
 * bit of a byte that is ASCII becomes set by adding 0x7f unless it is zero, and
 * by adding 0x60 unless it is below 0x20; no sum goes over into the next byte.
 * If one that is not ASCII does, it is special itself.
 */
static inline bool
has_special(uint64 word)
{
	uint64		plain = ~word & (word + REPEAT(0x60)) &
		((word ^ REPEAT('"')) + REPEAT(0x7f)) &
		((word ^ REPEAT('\\')) + REPEAT(0x7f));

	return (plain & REPEAT(0x80)) != REPEAT(0x80);
}

static inline uint64
load_word(const char *p)
{
	uint64		word;

	memcpy(&word, p, sizeof(word));
	return word;
}

/* Copy eight bytes if none of them is special. */
static inline bool
copy_eight(char *dst, const char *src)
{
	uint64		word = load_word(src);

	if (unlikely(has_special(word)))
		return false;
	memcpy(dst, &word, sizeof(word));
	return true;
}

/* Copy four to seven bytes, some of them twice, if none of them is special. */
static inline bool
copy_few(char *dst, const char *src, Size len)
{
	uint32		first;
	uint32		last;

	memcpy(&first, src, sizeof(first));
	memcpy(&last, src + len - sizeof(last), sizeof(last));
	if (unlikely(has_special(first | (uint64) last << 32)))
		return false;
	memcpy(dst, &first, sizeof(first));
	memcpy(dst + len - sizeof(last), &last, sizeof(last));
	return true;
}

/*
 * Copy text up to the first special byte, or to a little before that; returns
 * how much.
 */
static inline Size
copy_plain(char *dst, const char *src, Size len)
{
	Size		done = 0;

	if (len >= 8)
	{
		for (; len - done >= 8; done += 8)
			if (!copy_eight(dst + done, src + done))
				return done;
		return copy_eight(dst + len - 8, src + len - 8) ? len : done;
	}
	if (len >= 4)
		return copy_few(dst, src, len) ? len : 0;
	for (; done < len && !is_special(src[done]); done++)
		dst[done] = src[done];
	return done;
}

/*
 * Start a line whose texts are in this encoding (pg_enc).  The buffer has to
 * be larger than PAQ_FORMAT_HEADROOM.
 */
static char *
begin_line(JsonLine *line, PaqBuffer *buf, int encoding)
{
	line->buf = buf;
	line->utf8 = (encoding == PG_UTF8 || encoding == PG_SQL_ASCII);
	line->raw = false;
	return paq_buffer_reserve(buf, PAQ_FORMAT_HEADROOM);
}

/* What has been written up to p belongs to the buffer. */
static void
end_json_line(JsonLine *line, char *p)
{
	line->buf->used = p - line->buf->data;
	Assert(line->buf->used <= line->buf->size);
}

/* Is there space at p for that many bytes, and for the headroom behind them? */
static inline bool
has_space(const JsonLine *line, const char *p, Size len)
{
	Size		space = line->buf->data + line->buf->size - p;

	return likely(space >= len + PAQ_FORMAT_HEADROOM);
}

/* Append what is JSON already, of any length. */
static char *
put_json(JsonLine *line, char *p, const char *data, Size len)
{
	if (has_space(line, p, len))
	{
		memcpy(p, data, len);
		return p + len;
	}
	end_json_line(line, p);
	paq_put(line->buf, data, len);
	return paq_buffer_reserve(line->buf, PAQ_FORMAT_HEADROOM);
}

/* Length of the valid UTF-8 character at p, 0 if there is none. */
static int
utf8_length(const unsigned char *p, const unsigned char *end)
{
	int			len = pg_utf_mblen(p);

	if (len < 2 || len > end - p || !pg_utf8_islegal(p, len))
		return 0;
	return len;
}

/* End of what can be copied as it is. */
static const unsigned char *
skip_plain(const JsonLine *line, const unsigned char *p,
		   const unsigned char *end)
{
	for (;;)
	{
		int			len;

		while (end - p >= 8 && !has_special(load_word((const char *) p)))
			p += 8;
		while (p < end && !is_special(*p))
			p++;
		if (p == end || *p < 0x80 || !line->utf8)
			return p;
		len = utf8_length(p, end);
		if (len == 0)
			return p;
		p += len;
	}
}

static void
put_special(JsonLine *line, unsigned char c)
{
	static const char short_form[0x20] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'
	};
	char		escaped[6] = {'\\', 'u', '0', '0'};

	if (c == '"' || c == '\\' || (c < 0x20 && short_form[c] != 0))
	{
		escaped[1] = c < 0x20 ? short_form[c] : (char) c;
		paq_put(line->buf, escaped, 2);
		return;
	}
	if (c >= 0x80)
		line->raw = true;
	escaped[4] = "0123456789abcdef"[c >> 4];
	escaped[5] = "0123456789abcdef"[c & 15];
	paq_put(line->buf, escaped, 6);
}

/* The rest of a string of any bytes and any length */
static pg_noinline char *
put_rest(JsonLine *line, char *dst, const char *data, Size len)
{
	const unsigned char *p = (const unsigned char *) data;
	const unsigned char *end = p + len;

	end_json_line(line, dst);
	while (p < end)
	{
		const unsigned char *stop = skip_plain(line, p, end);

		paq_put(line->buf, (const char *) p, stop - p);
		p = stop;
		if (p < end)
			put_special(line, *p++);
	}
	paq_buffer_putc(line->buf, '"');
	return paq_buffer_reserve(line->buf, PAQ_FORMAT_HEADROOM);
}

/* Append text as a JSON string. */
static char *
put_string(JsonLine *line, char *p, const char *data, Size len)
{
	Size		copied;

	*p++ = '"';
	if (!has_space(line, p, len + 1))
		return put_rest(line, p, data, len);
	copied = copy_plain(p, data, len);
	p += copied;
	if (unlikely(copied < len))
		return put_rest(line, p, data + copied, len - copied);
	*p++ = '"';
	return p;
}

/* ----------
 * Values
 * ----------
 */

/* Append a C string; the compiler knows how long a literal is. */
static inline char *
put_literal(char *p, const char *str)
{
	Size		len = strlen(str);

	memcpy(p, str, len);
	return p + len;
}

static inline char *
put_null(char *p)
{
	return put_literal(p, "null");
}

/* A string that needs no escaping, or null */
static inline char *
put_word(char *p, const char *word)
{
	if (word == NULL)
		return put_null(p);
	*p++ = '"';
	p = put_literal(p, word);
	*p++ = '"';
	return p;
}

static inline char *
put_number(char *p, int64 value, bool known)
{
	return known ? p + paq_int_text(p, value) : put_null(p);
}

static inline char *
put_json_time(char *p, const PaqRecord *record, int64 timestamp)
{
	if (timestamp == 0)
		return put_null(p);
	*p++ = '"';
	p += paq_time_iso(p, record->server, timestamp);
	*p++ = '"';
	return p;
}

static inline char *
put_json_text(JsonLine *line, char *p, PaqText text)
{
	if (text.data == NULL)
		return put_null(p);
	return put_string(line, p, text.data, text.len);
}

/* ----------
 * Fields that are more than a member of the record, in the order of the list
 * ----------
 */

static inline char *
put_type(JsonLine *line, char *p, const PaqRecord *record)
{
	if (unlikely(record->header.kind != PAQ_KIND_AUDIT))
	{
		if (record->header.kind == PAQ_KIND_PART)
			return put_literal(p, "\"part\"");
		return record->header.kind == PAQ_KIND_GAP ?
			put_literal(p, "\"gap\"") : put_literal(p, "\"heartbeat\"");
	}
	return put_literal(p, "\"record\"");
}

static inline char *
put_format_version(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_literal(p, "1");
}

static inline char *
put_sequence(JsonLine *line, char *p, const PaqRecord *record)
{
	return p + paq_uint_text(p, record->sequence);
}

static inline char *
put_series(JsonLine *line, char *p, const PaqRecord *record)
{
	return p + paq_uint_text(p, record->series);
}

static inline char *
put_log_time(JsonLine *line, char *p, const PaqRecord *record)
{
	line->log_time = p;
	p = put_json_time(p, record, paq_record_log_time(record));
	line->log_time_len = p - line->log_time;
	return p;
}

/* If the end is known, it is logTime. */
static inline char *
put_end_time(JsonLine *line, char *p, const PaqRecord *record)
{
	if (unlikely(record->header.end_time == 0))
		return put_null(p);
	memcpy(p, line->log_time, line->log_time_len);
	return p + line->log_time_len;
}

static inline char *
put_duration(JsonLine *line, char *p, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;

	return put_number(p, header->end_time - header->start_time,
					  header->start_time != 0 && header->end_time != 0);
}

static inline char *
put_audit_type(JsonLine *line, char *p, const PaqRecord *record)
{
	if (unlikely(record->header.kind != PAQ_KIND_AUDIT && record->header.kind != PAQ_KIND_PART))
		return put_null(p);
	if (record->header.flags & PAQ_RECORD_OBJECT)
		return put_literal(p, "\"OBJECT\"");
	return put_literal(p, "\"SESSION\"");
}

static inline char *
put_class(JsonLine *line, char *p, const PaqRecord *record)
{
	const char *label = paq_class_label(record->header.audit_class);

	if (record->header.kind == PAQ_KIND_HEARTBEAT)
		return put_null(p);
	if (record->header.kind == PAQ_KIND_GAP)
		label = "GAP";
	*p++ = '"';
	while (*label != '\0')
		*p++ = *label++;
	*p++ = '"';
	return p;
}

static inline char *
put_command_text(JsonLine *line, char *p, const PaqRecord *record)
{
	if (paq_omitted_statement(record->header.flags) != NULL)
		return put_null(p);
	return put_json_text(line, p, record->field[PAQ_FIELD_STATEMENT]);
}

static inline char *
put_command_text_omitted(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_word(p, paq_omitted_statement(record->header.flags));
}

static inline char *
put_statement_location(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_number(p, record->header.stmt_location,
					  record->header.stmt_location >= 0);
}

static inline char *
put_statement_length(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_number(p, record->header.stmt_len,
					  record->header.stmt_location >= 0 &&
						  record->header.stmt_len > 0);
}

static char *
put_param_list(JsonLine *line, char *p, const PaqRecord *record)
{
	PaqText		params = record->field[PAQ_FIELD_PARAMETER];
	PaqParamIter iter;
	const char *value;
	int32		len;
	bool		first = true;

	if (params.data == NULL || paq_omitted_params(record->header.flags) != NULL)
		return put_null(p);
	*p++ = '[';
	paq_param_begin(&iter, params);
	while (paq_param_next(&iter, &len, &value))
	{
		if (!first)
			*p++ = ',';
		first = false;
		if (len == PAQ_PARAM_SUPPRESSED)
			p = put_string(line, p, PAQ_LONG_PARAMETER, strlen(PAQ_LONG_PARAMETER));
		else if (len < 0)
			p = put_json(line, p, "null", 4);
		else
			p = put_string(line, p, value, len);
	}
	*p++ = ']';
	return p;
}

static inline char *
put_param_list_omitted(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_word(p, paq_omitted_params(record->header.flags));
}

static inline char *
put_row_count(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_number(p, record->header.rows, record->header.rows >= 0);
}

static inline char *
put_exit_code(JsonLine *line, char *p, const PaqRecord *record)
{
	if (!paq_record_has_outcome(&record->header))
		return put_null(p);
	if (likely(record->header.sqlstate == 0))
		return put_literal(p, "\"00000\"");
	return put_word(p, paq_sqlstate_text(record->header.sqlstate));
}

static inline char *
put_session_id(JsonLine *line, char *p, const PaqRecord *record)
{
	if (record->header.session_start == 0)
		return put_null(p);
	*p++ = '"';
	p += paq_session_id_text(p, record);
	*p++ = '"';
	return p;
}

static inline char *
put_superuser(JsonLine *line, char *p, const PaqRecord *record)
{
	if (record->header.flags & PAQ_RECORD_SUPERUSER)
		return put_literal(p, "true");
	return record->header.flags & PAQ_RECORD_NO_SUPERUSER ? put_literal(p, "false") :
		put_null(p);
}

static inline char *
put_remote_port(JsonLine *line, char *p, const PaqRecord *record)
{
	PaqText		port = record->field[PAQ_FIELD_REMOTE_PORT];

	return port.len == 0 ? put_null(p) : put_json_text(line, p, port);
}

static inline char *
put_net_protocol(JsonLine *line, char *p, const PaqRecord *record)
{
	if (!paq_record_has_client(record))
		return put_null(p);
	return put_word(p, paq_record_is_local(record) ? "UNIX" : "TCP");
}

static inline char *
put_db_protocol(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_word(p, paq_record_has_client(record) ? "Postgres 3.0" : NULL);
}

static inline char *
put_server_host(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_json_text(line, p, record->server->host);
}

static inline char *
put_server_type(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_word(p, "PostgreSQL");
}

static inline char *
put_server_version(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_json_text(line, p, record->server->version);
}

static inline char *
put_cluster_name(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_json_text(line, p, record->server->cluster);
}

static inline char *
put_system_identifier(JsonLine *line, char *p, const PaqRecord *record)
{
	*p++ = '"';
	p += paq_uint_text(p, record->server->system_identifier);
	*p++ = '"';
	return p;
}

static pg_noinline char *
put_setting_values(JsonLine *line, char *p, PaqText settings)
{
	PaqParamIter iter;
	PaqText		name;
	PaqText		value;
	bool		first = true;

	*p++ = '{';
	paq_param_begin(&iter, settings);
	while (paq_setting_next(&iter, &name, &value))
	{
		if (!first)
			*p++ = ',';
		first = false;
		p = put_json_text(line, p, name);
		*p++ = ':';
		p = put_json_text(line, p, value);
	}
	*p++ = '}';
	return p;
}

static inline char *
put_settings(JsonLine *line, char *p, const PaqRecord *record)
{
	PaqText		settings = record->field[PAQ_FIELD_SETTINGS];

	return likely(settings.data == NULL) ? put_null(p) :
		put_setting_values(line, p, settings);
}

static inline char *
put_vxid(JsonLine *line, char *p, const PaqRecord *record)
{
	const int	len = paq_vxid_text(p + 1, &record->header);

	if (len == 0)
		return put_null(p);
	p[0] = p[len + 1] = '"';
	return p + len + 2;
}

/* After all texts: only then it is known. */
static inline char *
put_text_encoding(JsonLine *line, char *p, const PaqRecord *record)
{
	if (!line->raw && line->utf8)
		return put_null(p);
	return put_word(p, pg_encoding_to_char(record->header.encoding));
}

/* ----------
 * Lines
 * ----------
 */

/* Parts of the list */
typedef enum FieldPart
{
	PART_HEAD,
	PART_SESSION,
	PART_TAIL
} FieldPart;

/*
 * Is what was written from value to p the word null?  No other value ends with
 * that letter.  (A long one may have moved what is written to another place.)
 */
static inline bool
is_null(const char *value, const char *p)
{
	return p == value + 4 && p[-1] == 'l';
}

/*
 * Append the fields of a part.  "wanted" is a constant, so the compiler makes
 * straight code of the fields of that part, with their names as constants.
 */
static pg_attribute_always_inline char *
put_fields(FieldPart wanted, JsonLine *line, char *p, const PaqRecord *record)
{
	const bool	all = *nulls;
	char	   *begin;
	char	   *value;

#define TEXT(id)		put_json_text(line, p, record->field[PAQ_FIELD_##id])
#define TIME(member)	put_json_time(p, record, record->header.member)
#define NUMBER(member)	put_number(p, record->header.member, record->header.member != 0)
#define MADE(name)		put_##name(line, p, record)
#define PAQ_TRAIL_FIELD(part, id, json, column, type, sql_type, source, what) \
	if (PART_##part == wanted) \
	{ \
		begin = p; \
		p = value = put_literal(p, PAQ_TRAIL_##id == 0 ? "{\"" json "\":" : ",\"" json "\":"); \
		p = source; \
		if (unlikely(!all) && is_null(value, p)) \
			p = begin; \
	}
#include "record/fieldlist.h"
	return p;
}

static inline char *
put_json_marks(char *p, uint32 flags)
{
#define PAQ_TRAIL_MARK(id, json, column, flag, what) \
	if (flags & flag) \
		p = put_literal(p, ",\"" json "\":true");
#include "record/fieldlist.h"
	return p;
}

/*
 * Where the fields of the session begin in the record; they are one behind the
 * other.
 */
static inline const char *
session_fields(const PaqRecord *record)
{
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		if (record->field[i].data != NULL)
			return record->field[i].data;
	return "";
}

#ifdef USE_ASSERT_CHECKING
/* Returns true if the bytes of the session's fields are one behind the other. */
static bool
session_is_contiguous(const PaqRecord *record)
{
	const char *next = NULL;

	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
	{
		const PaqText *text = &record->field[i];

		if (text->data == NULL)
			continue;
		if ((next != NULL && text->data != next) || record->header.field_len[i] != text->len)
			return false;
		next = text->data + text->len;
	}
	return true;
}
#endif

static pg_noinline char *
put_session_fields(JsonLine *line, char *p, const PaqRecord *record)
{
	return put_fields(PART_SESSION, line, p, record);
}

/* Make the text that is kept; false if it, or what it is made from, is too long. */
static pg_noinline bool
keep_session(SessionText *session, const PaqRecord *record)
{
	static char made[MAX_KEPT_TEXT + PAQ_FORMAT_HEADROOM];
	PaqBuffer	buf = {.data = made, .size = sizeof(made)};
	const PaqRecordHeader *header = &record->header;
	JsonLine	line;
	uint64		fields_len = 0;
	char	   *p;

	session->generation = 0;
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		fields_len += record->field[i].len;
	if (fields_len > sizeof(session->fields))
		return false;
	p = begin_line(&line, &buf, header->encoding);
	p = put_session_fields(&line, p, record);
	end_json_line(&line, p);
	if (buf.failed || buf.used > sizeof(session->text))
		return false;
	session->session_start = header->session_start;
	session->generation = record->server->generation;
	session->pid = header->pid;
	session->encoding = header->encoding;
	session->role_kind = header->flags & PAQ_RECORD_ROLE_KIND;
	memcpy(session->field_len, header->field_len, sizeof(session->field_len));
	session->fields_len = fields_len;
	memcpy(session->fields, session_fields(record), fields_len);
	session->text_len = buf.used;
	memcpy(session->text, made, buf.used);
	session->raw = line.raw;
	session->nulls = *nulls;
	return true;
}

/*
 * Is that the record's session?  If the lengths of all fields are the same,
 * that of all of them is, too.
 */
static inline bool
is_kept(const SessionText *session, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;

	return session->generation == record->server->generation && session->nulls == *nulls &&
		session->session_start == header->session_start &&
		session->pid == header->pid &&
		session->encoding == header->encoding &&
		session->role_kind == (header->flags & PAQ_RECORD_ROLE_KIND) &&
		memcmp(session->field_len, header->field_len,
			   sizeof(session->field_len)) == 0 &&
		memcmp(session->fields, session_fields(record),
			   session->fields_len) == 0;
}

static char *
put_session(JsonLine *line, char *p, const PaqRecord *record)
{
	SessionText *session = &sessions[record->header.pid & (NSESSIONS - 1)];

	Assert(session_is_contiguous(record));
	if (unlikely(!is_kept(session, record)) && !keep_session(session, record))
		return put_session_fields(line, p, record);
	line->raw = line->raw || session->raw;
	return put_json(line, p, session->text, session->text_len);
}

static pg_noinline char *
put_part(JsonLine *line, char *p, const PaqPart *part)
{
	p = put_literal(p, ",\"part\":{\"number\":");
	p += paq_uint_text(p, part->number);
	p = put_literal(p, ",\"count\":");
	p += paq_uint_text(p, part->count);
	p = put_literal(p, ",\"length\":");
	p += paq_uint_text(p, part->length);
	p = put_literal(p, ",\"sha256\":");
	p = put_word(p, part->sha256);
	if (part->text.data != NULL)
	{
		p = put_literal(p, ",\"text\":");
		p = put_json_text(line, p, part->text);
	}
	*p++ = '}';
	return p;
}

static void
write_line(PaqBuffer *buf, const PaqRecord *record)
{
	JsonLine	line;
	char	   *p = begin_line(&line, buf, record->header.encoding);

	p = put_fields(PART_HEAD, &line, p, record);
	p = put_session(&line, p, record);
	p = put_fields(PART_TAIL, &line, p, record);
	p = put_json_marks(p, record->header.flags);
	if (unlikely(record->part != NULL))
		p = put_part(&line, p, record->part);
	p = put_literal(p, "}\n");
	end_json_line(&line, p);
}

/* Newlines in texts are escaped. */
static Size
line_length(const char *data, Size len)
{
	const char *newline = memchr(data, '\n', len);

	return newline ? newline + 1 - data : 0;
}

/* The digits behind the key, if it is in that part of the line */
static bool
find_value(const char *line, Size from, Size to, Size len, const char *key,
		   Size *start, Size *digits)
{
	const Size	key_len = strlen(key);

	for (Size i = from; i + key_len < Min(len, to); i++)
	{
		if (memcmp(line + i, key, key_len) != 0)
			continue;
		*start = i + key_len;
		*digits = 0;
		while (*start + *digits < len &&
			   isdigit((unsigned char) line[*start + *digits]))
			(*digits)++;
		return *digits > 0;
	}
	return false;
}

/*
 * Sequence and series come before all text that could look like them, and only
 * there, the series right behind the sequence: what has no series has no second number.
 */
static bool
find_json_number(const char *line, Size len, Size *start, Size *digits, bool *is_series)
{
	const char *key = paq_trail_fields[PAQ_TRAIL_SERIES].key;

	*is_series = *start > 0;
	if (!*is_series)
		return find_value(line, 0, SEQUENCE_WITHIN, len,
						  paq_trail_fields[PAQ_TRAIL_SEQUENCE].key, start, digits);
	return find_value(line, *start, *start + strlen(key) + 2, len, key, start, digits);
}

const PaqFormat *
paq_format_json(const bool *json_nulls)
{
	static const PaqFormat format = {
		.extension = ".json",
		.has_heartbeats = true,
		.has_parts = true,
		.write = write_line,
		.record_length = line_length,
		.rest_length = line_length,
		.find_number = find_json_number
	};

	nulls = json_nulls;
	return &format;
}
