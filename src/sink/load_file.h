/*-------------------------------------------------------------------------
 *
 * load_file.h
 *		Files on their way into the table: where they are, what they are
 *		called.
 *
 * With sink = table the trail's files are in a directory of their own, below
 * that of the queue.  The file sink writes them, in format json; the loader
 * (load/) copies them into the table and removes them.
 *
 * A name says how far the records in the file come after those in the table:
 *
 *		SERIES-SEQUENCE[.SUFFIX].json
 *
 * Within a series, sequences tell which records the table has: what is written
 * with a sequence is never replaced by something else with the same.  A new
 * series begins wherever that cannot be promised: see series_is_over().
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_LOAD_FILE_H
#define PAQ_LOAD_FILE_H

#include "postgres.h"

typedef struct PaqLoadFile
{
	uint64		series;			/* random, not 0, at most PG_INT64_MAX */
	uint64		sequence;		/* of the last record before the file */
	uint32		suffix;			/* tells files apart that begin alike */
} PaqLoadFile;

extern const char *paq_load_directory(void);
extern bool paq_load_file_parse(const char *path, PaqLoadFile *file);
extern bool paq_load_file_successor(const char *path, uint64 sequence,
									PaqLoadFile *file);
extern bool paq_load_file_path(char *dst, Size size, const PaqLoadFile *file);

#endif							/* PAQ_LOAD_FILE_H */
