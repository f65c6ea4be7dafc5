/*-------------------------------------------------------------------------
 *
 * extent.h
 *		How much of the trail there is, and how much space for more.
 *
 * For any process: the files are looked at when this is asked.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_EXTENT_H
#define PAQ_EXTENT_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* The files of the trail, those on their way into the table included */
typedef struct PaqTrailExtent
{
	uint64		bytes;
	TimestampTz oldest_time;	/* last change of the file that was finished
								 * first; 0: there is no file */
	char		oldest[MAXPGPATH];	/* its path */
} PaqTrailExtent;

/* extent.c; false, with errno, if it cannot be known */
extern bool paq_trail_extent(PaqTrailExtent *extent);
extern bool paq_trail_space(uint64 *size, uint64 *available);

/*
 * Bytes of files in log_directory behind that offset of the one called file; with "", of all
 * of them.  Which files came later, their times tell.
 */
extern bool paq_trail_bytes_behind(const char *file, uint64 offset, uint64 *bytes);

/* names.c: where the settings want the trail's files to be */
extern const char *paq_trail_directory(void);

#endif							/* PAQ_EXTENT_H */
