/*-------------------------------------------------------------------------
 *
 * file_internal.h
 *		The file sink among its own files.
 *
 *	file.c			the sink: batches, flush, state
 *	trail_file.c	the file on disk: create, resume, write, truncate
 *	rotate.c		names of files, and when to start a new one
 *	check.c			check at server start
 *
 * Only the worker uses this, so nothing here is shared or locked.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_FILE_INTERNAL_H
#define PAQ_FILE_INTERNAL_H

#include "postgres.h"

#include <sys/stat.h>

#include "pgtime.h"
#include "sink/sink.h"

/*
 * The current file.  Always flushed <= offset <= written; written > offset
 * only within a batch, or after one whose end could not be cut off yet.
 */
typedef struct PaqTrailFile
{
	int			fd;				/* -1: none */
	bool		gone;			/* see paq_trail_is_gone() */
	bool		sync_failed;	/* see paq_trail_sync() */
	uint64		offset;			/* bytes of whole batches */
	uint64		written;		/* bytes written */
	uint64		flushed;		/* bytes known to be durable */
	dev_t		dev;
	ino_t		ino;
	TimestampTz checked;		/* when we last looked whether it is gone */
	const PaqFormat *format;
	pg_time_t	next_rotation;	/* by age; if rotation_age is not 0 */
	int			rotation_age;	/* setting that next_rotation is based on */

	/* Settings that it was opened with; a change starts a new file. */
	int			mode;
	char		directory[MAXPGPATH];
	char		filename[MAXPGPATH];

	char		path[MAXPGPATH];
} PaqTrailFile;

extern PaqTrailFile paq_trail;

/* file.c */
extern void paq_sink_set_error(const char *fmt,...) pg_attribute_printf(1, 2);
extern char *paq_sink_scratch(Size *size);

/* trail_file.c */
extern bool paq_trail_create(pg_time_t name_time);
extern bool paq_trail_resume(const PaqSinkState *state, bool cut);
extern void paq_trail_close(void);
extern bool paq_trail_write(const char *data, Size len);
extern bool paq_trail_cut_to_offset(void);
extern bool paq_trail_sync(void);
extern bool paq_trail_is_gone(void);

/* rotate.c */
extern const PaqFormat *paq_trail_format(void);
extern int	paq_trail_mode(void);
extern bool paq_trail_name(char *dst, Size size, pg_time_t name_time,
						   int suffix);
extern void paq_trail_plan_rotation(pg_time_t from);
extern bool paq_trail_is_full(uint64 size);
extern bool paq_file_rotate_if_due(bool force, bool *rotated);
extern TimestampTz paq_file_next_rotation(void);

/* check.c */
extern bool paq_trail_make_directory(const char *directory, bool *made);

#endif							/* PAQ_FILE_INTERNAL_H */
