/*-------------------------------------------------------------------------
 *
 * read.h
 *		Records that are read back from the trail's files, in a process that is
 *		connected to a database.
 *
 *	text.c			texts of a line in the database's encoding
 *	row.c			values of columns
 *	scan.c			the files, and their lines
 *	foreign.c		the foreign table audit_queue.trail
 *
 * The loader uses the first one, which knows nothing of the others.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_READ_H
#define PAQ_READ_H

#include "postgres.h"

#include "access/tupdesc.h"
#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "nodes/bitmapset.h"
#include "trail/layer.h"
#include "trail/line.h"

/* Longest line, in bytes, of which all texts are taken; see trail/shorten.h */
#define PAQ_MAX_LINE		(32 * 1024 * 1024)

/* text.c; all results are palloc'ed, or point to what is */

/*
 * Texts of a line's fields, by PaqTrailField, in the database's encoding: an array or object
 * as JSON, all else as it is; NULL for null.  "shortened" tells that trail/shorten.c has cut them.
 * False if the line is damaged.
 */
extern bool paq_line_texts(const PaqLine *line, bool shortened, const char **texts);

/*
 * The text of one value of a line that names no textEncoding.  NULL if it is null, or
 * damaged.
 */
extern const char *paq_value_text(const PaqValue *value);

/* The address in a remoteHost; NULL if that is none. */
extern const char *paq_host_address(const char *host);

/* scan.c */

/* Which records are wanted.  Times are TimestampTz, bounds inclusive. */
typedef struct PaqTrailRange
{
	TimestampTz from;			/* DT_NOBEGIN: any */
	TimestampTz to;				/* DT_NOEND: any */
	int64		first_sequence;
	int64		last_sequence;
} PaqTrailRange;

/* How far a scan has got, for EXPLAIN */
typedef struct PaqTrailCounts
{
	int			files;			/* in the trail when the scan began */
	int			opened;			/* of them */
	int			old;			/* written to for the last time before the range */
	int			gone;			/* removed before they could be opened */
} PaqTrailCounts;

/* A record of a scan; valid until the next one is asked for */
typedef struct PaqTrailRecord
{
	PaqLine		line;
	TimestampTz time;			/* its logTime, or what stands for it */
	bool		shortened;
	const char *path;			/* of its file, for people */
} PaqTrailRecord;

typedef struct PaqTrailScan PaqTrailScan;

/*
 * What scans of one query share: the keys, for the command is not to be run for each of
 * them, and how often has been warned.
 */
typedef struct PaqTrailReading
{
	MemoryContext context;		/* with which all of it goes */
	MemoryContextCallback callback;
	PaqKeys    *keys;			/* NULL: not asked for yet */
	int			nwarnings;
} PaqTrailReading;

/* In the current memory context */
extern PaqTrailReading *paq_trail_reading_make(void);

/*
 * Scan the trail as it is now, in the order in which it was written.  The scan ends with
 * the reading's memory context, or by paq_trail_scan_end().  Raises an error if the
 * trail cannot be read; what is damaged is left out, with a warning.
 */
extern PaqTrailScan *paq_trail_scan_begin(PaqTrailReading *reading,
										  const PaqTrailRange *range);
extern bool paq_trail_scan_next(PaqTrailScan *scan, PaqTrailRecord *record);
extern const PaqTrailCounts *paq_trail_scan_counts(const PaqTrailScan *scan);
extern void paq_trail_scan_end(PaqTrailScan *scan);

/* The record handed out is not what a column wants: say so. */
extern void paq_trail_scan_report(PaqTrailScan *scan);

/* row.c */

/* Which columns of a table are to be made, and of what */
typedef struct PaqRowShape PaqRowShape;

/*
 * For a table with these columns, of which those in "needed" are wanted (attribute numbers,
 * less FirstLowInvalidHeapAttributeNumber; 0 is all of them).  Raises an error for a
 * column that records do not have, or of a type that it cannot have.
 */
extern PaqRowShape *paq_row_shape(TupleDesc columns, const Bitmapset *needed);

/*
 * The row of a record, in the current memory context.  False if the record is not one of the
 * trail.
 */
extern bool paq_row_make(const PaqRowShape *shape, const PaqTrailRecord *record,
						 Datum *values, bool *nulls);

#endif							/* PAQ_READ_H */
