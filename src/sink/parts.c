/*-------------------------------------------------------------------------
 *
 * parts.c
 *		Records longer than log_record_max_size go on in parts.
 *
 * What follows the trail line by line has a limit of its own, and loses what is longer,
 * or stops.  trail/part.h has what the parts look like.
 *
 * A long record is formatted twice: once to count and digest it, and once to cut it into
 * pieces as it comes.  So memory is bounded by the setting, not by the record.  Nobody
 * else pays more than a comparison: a record's texts tell that it is short.
 *
 * Where a record is cut depends on nothing but the record and the settings, so that it
 * can be recognized after a crash by its first part.  All parts of a record are in
 * one batch: there is a piece without the others only where the operating system has
 * lost the rest, and then salvage.c takes none of them for known.
 *
 * Guarantees: a line is not longer than the setting, unless what the session and the
 * server are called is; no character and no escape of the whole is cut in two.
 *
 * Must not raise, but for lack of memory.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "guc.h"
#include "mb/pg_wchar.h"
#include "sink/load_file.h"
#include "sink/sink_internal.h"
#include "trail/hex.h"
#include "trail/part.h"
#include "utils/memutils.h"

/* In bytes: the lowest limit, and the least of the whole that a part has */
#define MIN_LIMIT	8192
#define MIN_PIECE	1024

/* Bytes of a line, at most, that are no text of the record's */
#define MAX_FRAME	4096

/* Bytes that a byte of text can become */
#define MAX_ESCAPE	6

/* Bytes, at most, of numbers that are not known when a line is measured */
#define SLACK		64

/*
 * Of the limit: what is left of an object's name in the first part, and of a text that is
 * neither that nor the statement's
 */
#define OBJECT_NAME	16
#define SHORT_TEXT	64

/* A record is formatted in pieces of this size, in bytes. */
#define PIECE_SIZE	8192

/* What a record becomes that is cut */
typedef struct Cutter
{
	PaqBuffer	buf;			/* of the line without a limit; first, because its
								 * drain callback gets it */
	const PaqFormat *format;
	bool		begun;			/* what comes before the whole has been left out */
	uint64		length;			/* of the whole so far */
	uint32		count;			/* of parts so far, with the first one */
	Size		max_piece;		/* of the whole in a part, as it is escaped */
	Size		escaped;		/* the same of the current piece so far */
	pg_cryptohash_ctx *digest;	/* NULL: parts are written */

	/* For that: the lines go to dst, and the current piece so far is kept */
	PaqBuffer  *dst;
	PaqRecord	record;
	PaqPart		part;
	char	   *piece;
	Size		piece_len;
	Size		piece_size;
} Cutter;

static bool drain_line(PaqBuffer *buf);

static char line_data[PIECE_SIZE];

static Cutter cutter = {.buf = {.data = line_data, .size = sizeof(line_data), .drain = drain_line}};

/* Counts what is written. */
static Size counted;

static bool
drain_into_count(PaqBuffer *buf)
{
	counted += buf->used;
	buf->used = 0;
	return true;
}

/*
 * Length of the record's line, in bytes, with any sequence and series: it must be the same
 * when the record is looked for after a crash.
 */
static Size
line_size(const PaqFormat *format, const PaqRecord *record)
{
	static char data[PIECE_SIZE];
	PaqBuffer	buf = {.data = data, .size = sizeof(data), .drain = drain_into_count};
	PaqRecord	copy = *record;

	copy.sequence = copy.series = 0;
	counted = 0;
	format->write(&buf, &copy);
	return counted + buf.used + SLACK;
}

Size
paq_parts_limit(const PaqFormat *format, const char *path)
{
	PaqLoadFile file;

	if (likely(paq_log_record_max_size == 0) || !format->has_parts ||
		paq_load_file_parse(path, &file))
		return 0;
	return Max((Size) paq_log_record_max_size * 1024, MIN_LIMIT);
}

/* ----------
 * The whole, in pieces
 * ----------
 */

/* The current piece is one part. */
static void
end_piece(void)
{
	cutter.count++;
	if (cutter.digest == NULL)
	{
		cutter.part.number++;
		cutter.part.text = (PaqText){.data = cutter.piece, .len = cutter.piece_len};
		cutter.format->write(cutter.dst, &cutter.record);
		cutter.record.sequence++;
	}
	cutter.escaped = cutter.piece_len = 0;
}

static void
keep_byte(char c)
{
	if (cutter.piece_len == cutter.piece_size)
	{
		cutter.piece_size = Max(2 * cutter.piece_size, PIECE_SIZE);
		cutter.piece = cutter.piece == NULL ?
			MemoryContextAllocHuge(TopMemoryContext, cutter.piece_size) :
			repalloc_huge(cutter.piece, cutter.piece_size);
	}
	cutter.piece[cutter.piece_len++] = c;
}

/* More of the whole.  Bytes that are not the first of a character go with that. */
static bool
add_to_whole(const char *data, Size len)
{
	cutter.length += len;
	for (Size i = 0; i < len; i++)
	{
		const Size	size = data[i] == '"' || data[i] == '\\' ? 2 : 1;

		if (cutter.escaped + size > cutter.max_piece && (data[i] & 0xC0) != 0x80)
			end_piece();
		cutter.escaped += size;
		if (cutter.digest == NULL)
			keep_byte(data[i]);
	}
	return cutter.digest == NULL ||
		pg_cryptohash_update(cutter.digest, (const uint8 *) data, len) >= 0;
}

/* Behind the series, which nothing but the fields of the envelope comes before */
static Size
end_of_head(const char *line, Size len)
{
	Size		start = 0;
	Size		digits;
	bool		is_series;

	while (cutter.format->find_number(line, len, &start, &digits, &is_series))
		start += digits;
	return start;
}

static bool
drain_line(PaqBuffer *buf)
{
	Size		start = 0;
	bool		ok;

	if (!cutter.begun)
	{
		start = end_of_head(buf->data, buf->used);
		buf->data[start] = '{';
		cutter.begun = true;
	}
	ok = add_to_whole(buf->data + start, buf->used - start);
	buf->used = 0;
	return ok;
}

/* Format the record, for add_to_whole() to get it; false if that has failed. */
static bool
run_cutter(const PaqRecord *record)
{
	cutter.buf.used = 0;
	cutter.buf.failed = cutter.begun = false;
	cutter.length = cutter.escaped = cutter.piece_len = 0;
	cutter.count = 1;
	cutter.format->write(&cutter.buf, record);
	if (cutter.buf.failed)
		return false;
	cutter.buf.used--;			/* the newline */
	if (!drain_line(&cutter.buf))
		return false;
	end_piece();
	return true;
}

/* ----------
 * Parts
 * ----------
 */

/* Would the record's line be longer than the limit? */
static bool
is_long(const PaqFormat *format, const PaqRecord *record, Size limit)
{
	Size		len = 0;

	for (int i = 0; i < PAQ_NFIELDS; i++)
		len += record->field[i].len;
	return len > (limit - MAX_FRAME) / MAX_ESCAPE && line_size(format, record) > limit;
}

/* Between characters, which without an encoding are those that the format shows */
static void
cut_text(PaqRecord *record, PaqField field, Size max)
{
	PaqText    *text = &record->field[field];
	const int	encoding = record->header.encoding == PG_SQL_ASCII ? PG_UTF8 :
		record->header.encoding;

	if (text->data != NULL && text->len > max)
		text->len = pg_encoding_mbcliplen(encoding, text->data, text->len, max);
}

static void
leave_out(PaqRecord *record, PaqField field, Size max)
{
	if (record->field[field].len > max)
		record->field[field] = (PaqText){NULL, 0};
}

/*
 * Cut the record's texts so that its line is not longer than the limit.  The longest
 * piece of its statement that fits is not looked for; one of about that length will do.
 */
static void
cut_texts(const PaqFormat *format, PaqRecord *record, Size limit)
{
	const PaqText statement = record->field[PAQ_FIELD_STATEMENT];
	const Size	max = limit / SHORT_TEXT;
	Size		space;
	Size		frame;
	Size		len;

	for (PaqField field = PAQ_NSESSION_FIELDS; field < PAQ_NFIELDS; field++)
	{
		if (field == PAQ_FIELD_PARAMETER || field == PAQ_FIELD_SETTINGS)
			leave_out(record, field, max);
		else if (field != PAQ_FIELD_STATEMENT)
			cut_text(record, field, field == PAQ_FIELD_OBJECT_NAME ? limit / OBJECT_NAME : max);
	}
	if (statement.data == NULL)
		return;
	record->field[PAQ_FIELD_STATEMENT].len = 0;
	frame = line_size(format, record);
	space = limit > frame ? limit - frame : 0;
	len = Min(statement.len, space);
	for (int i = 0; i < 4 && len > 0; i++)
	{
		Size		size;

		record->field[PAQ_FIELD_STATEMENT] = statement;
		cut_text(record, PAQ_FIELD_STATEMENT, len);
		size = line_size(format, record) - frame;
		if (size <= space)
			return;
		len = (uint64) record->field[PAQ_FIELD_STATEMENT].len * space / size;
	}
	record->field[PAQ_FIELD_STATEMENT] = statement;
	cut_text(record, PAQ_FIELD_STATEMENT, space / MAX_ESCAPE);
}

/* What all parts but the first have of the record */
static void
leave_texts_out(PaqRecord *record)
{
	record->header.kind = PAQ_KIND_PART;
	record->header.flags &= ~PAQ_RECORD_CUT;
	for (PaqField field = PAQ_FIELD_STATEMENT; field < PAQ_NFIELDS; field++)
		if (field != PAQ_FIELD_POLICY)
			record->field[field] = (PaqText){NULL, 0};
}

/* Fill in what is the same in all parts; false if the digest cannot be computed. */
static bool
measure_whole(const PaqRecord *record, Size limit, char *sha256)
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	PaqRecord	rest = *record;
	bool		ok;
	Size		frame;

	leave_texts_out(&rest);
	rest.part = &cutter.part;
	cutter.part = (PaqPart){.sha256 = sha256, .text = {"", 0}};
	memset(sha256, '0', PAQ_PART_SHA256_LEN - 1);
	frame = line_size(cutter.format, &rest);
	cutter.max_piece = limit > frame + MIN_PIECE ? limit - frame : MIN_PIECE;

	cutter.digest = pg_cryptohash_create(PG_SHA256);
	ok = cutter.digest != NULL && pg_cryptohash_init(cutter.digest) >= 0 &&
		run_cutter(record) &&
		pg_cryptohash_final(cutter.digest, digest, sizeof(digest)) >= 0;
	pg_cryptohash_free(cutter.digest);
	cutter.digest = NULL;
	if (ok)
		paq_hex_put(sha256, digest, sizeof(digest));
	return ok;
}

/*
 * Append the record to dst, or, with "first", only its first part.  limit is that of
 * paq_parts_limit().  Returns the number of lines, 0 if the record is long and its
 * digest cannot be computed; dst may have failed.
 */
uint32
paq_parts_write(PaqBuffer *dst, const PaqFormat *format, const PaqRecord *record,
				Size limit, bool first)
{
	static char sha256[PAQ_PART_SHA256_LEN];
	uint32		count;

	if (likely(limit == 0) || !is_long(format, record, limit))
	{
		format->write(dst, record);
		return 1;
	}
	cutter.format = format;
	if (!measure_whole(record, limit, sha256))
		return 0;
	count = cutter.count;
	cutter.part = (PaqPart){
		.number = 1, .count = count, .length = cutter.length, .sha256 = sha256
	};
	cutter.record = *record;
	cutter.record.part = &cutter.part;
	cut_texts(format, &cutter.record, limit);
	format->write(dst, &cutter.record);
	if (first)
		return count;

	cutter.dst = dst;
	leave_texts_out(&cutter.record);
	cutter.record.sequence++;
	(void) run_cutter(record);
	Assert(cutter.count == count);
	return count;
}
