/*-------------------------------------------------------------------------
 *
 * part.h
 *		Records in parts are put together again.
 *
 * A record of format json that is longer than log_record_max_size is several lines.
 * The first one is the record, with its long texts cut; the others, of type "part",
 * have pieces of the whole: the record as a JSON object, without the fields that come
 * first in a line, from type to series.  In all of them the field "part" has
 *
 *		number		of the line among them, from 1
 *		count		of them
 *		length		of the whole, in bytes
 *		sha256		of the whole, in hexadecimal digits
 *		text		the piece; not in the first line
 *
 * The lines are one behind the other in the trail, with sequences one behind the
 * other, and of one series.  What has been put together is the line that there would
 * be without a limit, with the first line's sequence.
 *
 * For the server and for programs.  Nothing here raises, but for lack of memory.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_PART_H
#define PAQ_PART_H

#include "c.h"

#include "lib/stringinfo.h"
#include "trail/line.h"

/* A SHA-256 in hexadecimal digits, with a terminator */
#define PAQ_PART_SHA256_LEN		65

/* What a line says of the parts; its strings point into the line. */
typedef struct PaqPartInfo
{
	int64		number;
	int64		count;
	int64		length;
	PaqValue	sha256;
	PaqValue	text;			/* absent in the first part */
} PaqPartInfo;

/* False if the line is no part, or not one that anybody can do something with. */
extern bool paq_part_info(const PaqLine *line, PaqPartInfo *info);

/* A record that is being put together; all zeros at first */
typedef struct PaqJoiner
{
	StringInfoData kept;		/* the lines so far */
	StringInfoData joined;		/* of the first line what comes before the whole, and
								 * the whole so far */
	Size		head;			/* bytes of the former */
	Size		first_len;		/* of the first line */
	int64		number;			/* of the last part; 0: there is none */
	int64		count;
	int64		length;
	int64		sequence;		/* of the last part */
	int64		series;
	char		sha256[PAQ_PART_SHA256_LEN];
} PaqJoiner;

typedef enum PaqJoinResult
{
	PAQ_JOIN_NONE,				/* the line is a record by itself, or a part of which
								 * nobody has the first one */
	PAQ_JOIN_MORE,				/* it was kept: give the next one */
	PAQ_JOIN_DONE,				/* joined is the whole line, with its newline */
	PAQ_JOIN_BROKEN,			/* kept is not followed by what it should be; the line
								 * was not looked at otherwise */
	PAQ_JOIN_TOO_LONG			/* likewise, but it is followed by so much that it
								 * could not be kept */
} PaqJoinResult;

/*
 * The next line of the trail, of len bytes with its newline, parsed.  Of a record longer
 * than max bytes the parts are not put together: each is PAQ_JOIN_NONE.  Nor are they if
 * the lines have more than twice as much, though nobody has kept them from being parts: in
 * a file that somebody has made they may have anything.  So the joiner's memory is bounded by
 * four times max, and the longest line.
 *
 * After all but PAQ_JOIN_NONE and PAQ_JOIN_MORE, paq_join_forget() is to be called before
 * the next line.
 */
extern PaqJoinResult paq_join_line(PaqJoiner *joiner, const char *data, Size len,
								   const PaqLine *line, uint64 max);
extern void paq_join_forget(PaqJoiner *joiner);

/* Is there the beginning of a record, without its end? */
static inline bool
paq_join_is_pending(const PaqJoiner *joiner)
{
	return joiner->number > 0;
}

/* Frees what a joiner has. */
extern void paq_join_end(PaqJoiner *joiner);

#endif							/* PAQ_PART_H */
