/*-------------------------------------------------------------------------
 *
 * sink_internal.h
 *		The file sink among its own files.
 *
 *	file.c			the sink: batches, flush, state
 *	trail_file.c	the file on disk: create, write, truncate, sync
 *	resume.c		going on with a file that is there
 *	salvage.c		what an operating system's crash has left of it
 *	rotate.c		names of files, and when to start a new one
 *	names.c			which files are the trail's, by their names
 *	oldest.c		the oldest of them
 *	retention.c		removing these
 *	load_file.c		files on their way into the table
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

#include <limits.h>
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
	bool		found;			/* an earlier worker's, see resume.c */
	bool		unsynced;		/* written with pg_audit_queue.fsync off */
	bool		retreat;		/* see paq_trail_retreat() */
	uint64		offset;			/* bytes of whole batches */
	uint64		written;		/* bytes written */
	uint64		flushed;		/* bytes known to be durable */
	uint64		flushed_sequence;	/* of the last record in these */
	dev_t		dev;
	ino_t		ino;
	TimestampTz begun;			/* when it was made, and */
	uint64		begun_sequence; /* the last record before it */
	TimestampTz checked;		/* when we last looked whether it is gone */
	const PaqFormat *format;
	pg_time_t	next_rotation;	/* by age; if rotation_age is not 0 */
	int			rotation_age;	/* setting that next_rotation is based on */

	/* Settings that it was opened with; a change starts a new file. */
	int			mode;
	char		directory[MAXPGPATH];
	char		filename[MAXPGPATH];

	char		path[MAXPGPATH];

	PaqLoss		loss;			/* see sink.h; of this file or one before */
} PaqTrailFile;

extern PaqTrailFile paq_trail;

/* A finished trail file; planned is retention.c's. */
typedef struct PaqOldFile
{
	ino_t		ino;
	TimestampTz mtime;			/* of its last change */
	uint64		size;			/* bytes */
	bool		planned;		/* to be removed */
	char		name[NAME_MAX + 1];
} PaqOldFile;

/* file.c */
extern void paq_sink_set_error(const char *fmt,...) pg_attribute_printf(1, 2);

/* trail_file.c */
extern bool paq_trail_create(pg_time_t name_time);
extern void paq_trail_adopt(int fd, const struct stat *st, const char *path,
							uint64 offset);
extern void paq_trail_close(void);
extern bool paq_trail_write(const char *data, Size len);
extern bool paq_trail_cut_to_offset(void);
extern bool paq_trail_flush(uint64 sequence);
extern bool paq_trail_retreat(uint64 *sequence);
extern bool paq_trail_is_gone(uint64 sequence);
extern void paq_trail_note_loss(const char *path, const char *what,
								TimestampTz begun, uint64 begun_sequence,
								uint64 last_sequence);
extern bool paq_trail_truncate(int fd, const char *path, uint64 size);
extern bool paq_trail_read(int fd, char *data, Size len, uint64 offset);

/* resume.c */
extern bool paq_trail_resume(const PaqSinkState *state, bool *exact,
							 uint64 ahead, uint64 *sequence);

/* salvage.c */
extern bool paq_salvage(int fd, const char *path, const PaqFormat *format,
						uint64 from, uint64 *offset, uint64 *sequence);
extern bool paq_salvage_add(int fd, const char *path,
							const PaqFormat *format, uint64 *sequence);
extern bool paq_salvage_count(int fd, const char *path,
							  const PaqFormat *format, uint64 from,
							  uint64 *count, uint64 *sequence);
extern bool paq_salvage_is_known(const PaqRecord *record);
extern void paq_salvage_forget(void);
extern void paq_salvage_keep(const char *path, uint64 from, uint64 sequence);
extern void paq_salvage_state(PaqSinkState *state);

/* rotate.c */
extern const char *paq_trail_directory(void);
extern const char *paq_trail_pattern(void);
extern const PaqFormat *paq_trail_format(void);
extern const PaqFormat *paq_trail_format_of(const char *path);
extern int	paq_trail_mode(void);
extern bool paq_trail_name(char *dst, Size size, pg_time_t name_time,
						   int suffix);
extern void paq_trail_plan_rotation(pg_time_t from);
extern bool paq_trail_is_full(uint64 size);
extern bool paq_file_rotate_if_due(bool force, uint64 sequence,
								   bool *flushed, PaqRotation *rotation);
extern TimestampTz paq_file_next_rotation(void);

/* names.c */
extern bool paq_trail_has_name(const char *name);

/* oldest.c */
extern bool paq_oldest_open(void);
extern void paq_oldest_close(void);
extern bool paq_oldest_read(void);
extern bool paq_oldest_read_again(void);
extern PaqOldFile *paq_oldest_file(int number);
extern uint64 paq_oldest_total_size(void);
extern bool paq_oldest_is_ours(const PaqOldFile *file, bool *failed);
extern bool paq_oldest_remove(const PaqOldFile *file, bool *removed);
extern void paq_oldest_sync(void);

/* retention.c */
extern PaqRetention paq_file_retain(PaqRemoval *removal);
extern TimestampTz paq_file_next_retention(void);

/* check.c */
extern bool paq_trail_make_directory(const char *directory, bool *made);

#endif							/* PAQ_FILE_INTERNAL_H */
