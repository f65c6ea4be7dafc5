/*-------------------------------------------------------------------------
 *
 * load_file.h
 *		Names of the files on their way into the table, for the sink, which
 *		writes them, and the loader (load/), which copies them into the table
 *		and removes them.
 *
 * With sink = table the trail's files are in format json, in a directory below
 * that of the queue.  Their names are
 *
 *		SERIES-SEQUENCE[.SUFFIX].json
 *
 * Within a series, the sequences tell which records the table has: a record is
 * never replaced by another one with the same sequence.  A new series begins
 * wherever that cannot be promised: see series_is_over() in file.c.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_LOAD_FILE_H
#define PAQ_LOAD_FILE_H

#include "postgres.h"

/* Of the second name of a file with a record that is not in the table */
#define PAQ_KEPT_SUFFIX		".kept"

typedef struct PaqLoadFile
{
	uint64		series;			/* random, not 0 */
	uint64		sequence;		/* of the last record before the file */
	uint32		suffix;			/* tells files apart that begin alike */
} PaqLoadFile;

/* names.c */
extern const char *paq_load_directory(void);
extern bool paq_load_file_parse(const char *path, PaqLoadFile *file);
extern bool paq_load_file_path(char *dst, Size size, const PaqLoadFile *file);

#endif							/* PAQ_LOAD_FILE_H */
