/*-------------------------------------------------------------------------
 *
 * part.c
 *		Records in parts are put together again, see part.h.
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

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "trail/hex.h"
#include "trail/part.h"

/*
 * Bytes of all lines of a record of at most max bytes: a part has its piece with quotes and
 * backslashes escaped, and little else.
 */
#define LINES_MAX(max)		(2 * (max))

static bool
is_named(const PaqValue *name, const char *wanted)
{
	return name->len == strlen(wanted) && memcmp(name->data, wanted, name->len) == 0;
}

bool
paq_part_info(const PaqLine *line, PaqPartInfo *info)
{
	const PaqValue *part = &line->value[PAQ_TRAIL_PART];
	const char *next = NULL;
	PaqValue	name;
	PaqValue	value;

	memset(info, 0, sizeof(*info));
	if (part->kind != PAQ_VALUE_OBJECT)
		return false;
	while (paq_line_member(part, &next, &name, &value))
	{
		if (is_named(&name, "number"))
			(void) paq_line_number(&value, &info->number);
		else if (is_named(&name, "count"))
			(void) paq_line_number(&value, &info->count);
		else if (is_named(&name, "length"))
			(void) paq_line_number(&value, &info->length);
		else if (is_named(&name, "sha256"))
			info->sha256 = value;
		else if (is_named(&name, "text"))
			info->text = value;
	}
	return info->number > 0 && info->number <= info->count && info->count > 1 &&
		info->length > 0 && info->sha256.kind == PAQ_VALUE_STRING &&
		info->sha256.len == PAQ_PART_SHA256_LEN - 1 &&
		(info->text.kind == PAQ_VALUE_STRING) == (info->number > 1);
}

static bool
identity(const PaqLine *line, int64 *sequence, int64 *series)
{
	return paq_line_number(&line->value[PAQ_TRAIL_SEQUENCE], sequence) &&
		paq_line_number(&line->value[PAQ_TRAIL_SERIES], series);
}

static void
keep_line(PaqJoiner *joiner, const char *data, Size len, const PaqPartInfo *info,
		  int64 sequence)
{
	appendBinaryStringInfo(&joiner->kept, data, len);
	joiner->number = info->number;
	joiner->sequence = sequence;
}

/* The first part of a record */
static PaqJoinResult
begin(PaqJoiner *joiner, const char *data, Size len, const PaqLine *line,
	  const PaqPartInfo *info, uint64 max)
{
	const PaqValue *series = &line->value[PAQ_TRAIL_SERIES];
	int64		sequence;

	if ((uint64) info->length > max || !identity(line, &sequence, &joiner->series))
		return PAQ_JOIN_NONE;
	if (joiner->kept.data == NULL)
	{
		initStringInfo(&joiner->kept);
		initStringInfo(&joiner->joined);
	}
	joiner->count = info->count;
	joiner->length = info->length;
	memcpy(joiner->sha256, info->sha256.data, PAQ_PART_SHA256_LEN - 1);
	joiner->first_len = len;
	joiner->head = series->data + series->len - data;
	appendBinaryStringInfo(&joiner->joined, data, joiner->head);
	keep_line(joiner, data, len, info, sequence);
	return PAQ_JOIN_MORE;
}

/* Is that part the one that follows? */
static bool
follows(const PaqJoiner *joiner, const PaqLine *line, const PaqPartInfo *info)
{
	int64		sequence;
	int64		series;

	return info->number == joiner->number + 1 && info->count == joiner->count &&
		info->length == joiner->length &&
		memcmp(info->sha256.data, joiner->sha256, info->sha256.len) == 0 &&
		identity(line, &sequence, &series) && series == joiner->series &&
		sequence == joiner->sequence + 1 &&
		joiner->joined.len - joiner->head + info->text.len / 2 <= joiner->length;
}

/* Is that the text of which the parts have the SHA-256? */
static bool
is_whole(const PaqJoiner *joiner)
{
	const uint8 *whole = (uint8 *) joiner->joined.data + joiner->head;
	pg_cryptohash_ctx *ctx;
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char		text[PAQ_PART_SHA256_LEN];
	bool		ok;

	if (joiner->joined.len - joiner->head != joiner->length || whole[0] != '{')
		return false;
	ctx = pg_cryptohash_create(PG_SHA256);
	ok = ctx != NULL && pg_cryptohash_init(ctx) >= 0 &&
		pg_cryptohash_update(ctx, whole, joiner->length) >= 0 &&
		pg_cryptohash_final(ctx, digest, sizeof(digest)) >= 0;
	pg_cryptohash_free(ctx);
	if (!ok)
		return false;
	paq_hex_put(text, digest, sizeof(digest));
	return memcmp(text, joiner->sha256, PAQ_PART_SHA256_LEN - 1) == 0;
}

static void
add_text(StringInfo buf, const PaqValue *text)
{
	enlargeStringInfo(buf, text->len);
	buf->len += paq_line_unescape(text->data, text->len, false, buf->data + buf->len);
	buf->data[buf->len] = '\0';
}

PaqJoinResult
paq_join_line(PaqJoiner *joiner, const char *data, Size len, const PaqLine *line,
			  uint64 max)
{
	PaqPartInfo info;
	const bool	is_part = paq_part_info(line, &info);

	if (!paq_join_is_pending(joiner))
		return is_part && info.number == 1 ?
			begin(joiner, data, len, line, &info, max) : PAQ_JOIN_NONE;
	if (!is_part || !follows(joiner, line, &info))
		return PAQ_JOIN_BROKEN;
	if (joiner->kept.len + len > LINES_MAX(max))
		return PAQ_JOIN_TOO_LONG;
	add_text(&joiner->joined, &info.text);
	if (info.number < info.count)
	{
		keep_line(joiner, data, len, &info, joiner->sequence + 1);
		return PAQ_JOIN_MORE;
	}
	if (!is_whole(joiner))
		return PAQ_JOIN_BROKEN;
	joiner->joined.data[joiner->head] = ',';
	appendStringInfoChar(&joiner->joined, '\n');
	joiner->sequence++;
	return PAQ_JOIN_DONE;
}

void
paq_join_forget(PaqJoiner *joiner)
{
	joiner->number = 0;
	if (joiner->kept.data == NULL)
		return;
	resetStringInfo(&joiner->kept);
	resetStringInfo(&joiner->joined);
}

void
paq_join_end(PaqJoiner *joiner)
{
	if (joiner->kept.data == NULL)
		return;
	pfree(joiner->kept.data);
	pfree(joiner->joined.data);
	memset(joiner, 0, sizeof(*joiner));
}
