/*-------------------------------------------------------------------------
 *
 * sink_internal.h
 *		What the files of the sink share.
 *
 *	trail.c			what all of these use: the open file, errors
 *	names.c			names, formats and permissions of files
 *	file.c			the open file: create, write, cut, sync; batches
 *	durable.c		how far the trail is durable, and the numbers of records
 *	server.c		what records say of this server
 *	directory.c		the directory: made, locked, synced
 *	rotate.c		when to start a new one
 *	layers.c		the layers of the open file, and its key
 *	key_command.c	where keys come from
 *	seal.c			seals over the files
 *	resume.c		going on with files that an earlier worker has left
 *	salvage.c		what an operating system's crash has left of them
 *	retention.c		removing old ones
 *	consumer.c		those that consumers have not acknowledged
 *	extent.c		how much there is, for statistics
 *
 * Only the worker uses this, except for names.c and extent.c, so nothing here is
 * shared or locked.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_SINK_INTERNAL_H
#define PAQ_SINK_INTERNAL_H

#include "postgres.h"

#include <sys/stat.h>

#include "format/format.h"
#include "pgtime.h"
#include "regex/regex.h"
#include "sink/extent.h"
#include "sink/sink.h"
#include "trail/layer.h"

/*
 * The current file.  Always flushed <= offset <= written; written > offset
 * only within a batch, or after one whose end could not be cut off yet.
 */
typedef struct PaqTrailFile
{
	int			fd;				/* -1: none */
	bool		gone;			/* see paq_trail_check() */
	bool		found;			/* an earlier worker's, see resume.c */
	bool		unsynced;		/* written with pg_audit_queue.fsync off */
	bool		retreat;		/* see paq_sink_retreat() */
	uint64		offset;			/* bytes of complete batches */
	uint64		written;		/* bytes written */
	uint64		flushed;		/* bytes known to be durable */
	uint64		flushed_sequence;	/* of the last record in these */
	dev_t		dev;
	ino_t		ino;
	TimestampTz begun;			/* when it was made, and */
	uint64		begun_sequence; /* the last record before it */
	uint64		series;			/* of the records that are written; 0: a new one
								 * has to begin */
	const PaqFormat *format;
	PaqLayers	layers;
	PaqLayerWriter *writer;		/* NULL: it has no layers, or nothing was
								 * written yet by this process */
	char		key_id[PAQ_KEY_ID_TEXT_LEN];	/* "": not encrypted */
	bool		other_key;		/* the settings name another one now */
	TimestampTz key_checked;	/* PgReloadTime when that was found out */
	pg_time_t	next_rotation;	/* by age; if rotation_age is not 0 */
	int			rotation_age;	/* setting that next_rotation is based on */

	/* Settings that it was opened with; a change starts a new file. */
	int			mode;
	char		filename[MAXPGPATH];

	char		path[MAXPGPATH];

	PaqLoss		loss;			/* of this file or an earlier one */
} PaqTrailFile;

/* trail.c */
extern PaqTrailFile paq_trail;
extern void paq_sink_set_error(const char *fmt,...) pg_attribute_printf(1, 2);
extern bool paq_trail_truncate(int fd, const char *path, uint64 size);

/* file.c */
extern bool paq_trail_create(pg_time_t name_time);
extern void paq_trail_adopt(int fd, const struct stat *st, const char *path,
							uint64 offset);
extern void paq_trail_close(void);
extern bool paq_trail_cut_to_offset(void);
extern void paq_trail_check(uint64 sequence);
extern bool paq_trail_is_full(uint64 size);
extern void paq_trail_note_damage(const char *path, uint64 sequence);
extern void paq_trail_note_loss(const char *path, const char *what,
								TimestampTz begun, uint64 begun_sequence,
								uint64 last_sequence);

/* server.c */
extern const PaqServer *paq_trail_server(void);

/* parts.c */
extern Size paq_parts_limit(const PaqFormat *format, const char *path);
extern uint32 paq_parts_write(PaqBuffer *dst, const PaqFormat *format,
							  const PaqRecord *record, Size limit, bool first);

/* durable.c */
extern bool paq_trail_need_series(void);
extern void paq_trail_end_series(void);
extern void paq_trail_note_durable(void);

/* directory.c */
extern bool paq_trail_need_directory(void);
extern bool paq_trail_lock(const char *directory);
extern bool paq_trail_sync_directory(const char *directory);

/* salvage.c: what to do with the records of a file, from a place on */
typedef enum PaqSalvage
{
	PAQ_SALVAGE_COUNT,			/* count them, stepping over damage */
	PAQ_SALVAGE_LEARN,			/* for is_known(), up to the first damage */
	PAQ_SALVAGE_MEND			/* for is_known(), overwriting damage */
} PaqSalvage;

typedef struct PaqSalvaged
{
	uint64		end;			/* offset of the end of the last record; left as
								 * it is if the file is not that long */
	uint64		count;			/* of records */
	uint64		sequence;		/* of the last one.  COUNT: 0 if the format does
								 * not show it; else counted on from its value
								 * at the call */
} PaqSalvaged;

extern bool paq_salvage(int fd, const char *path, PaqSalvage what,
						uint64 from, PaqSalvaged *found);
extern void paq_salvage_keep(const char *path, uint64 from, uint64 sequence);
extern bool paq_salvage_is_kept(void);
extern void paq_salvage_state(PaqSinkState *state);

/* layers.c */
extern PaqLayers paq_trail_layers(void);
extern bool paq_trail_is_layered(const PaqLayers *layers);
extern bool paq_trail_keys(PaqKeys **keys);
extern bool paq_trail_new_writer(const char *path, const PaqKeys *keys,
								 PaqLayerWriter **writer);
extern void paq_trail_use_writer(PaqLayerWriter *writer, const PaqKeys *keys);
extern void paq_trail_check_layers(void);
extern bool paq_trail_layers_fit(void);
extern Size paq_trail_size_of_text(Size len);
extern bool paq_trail_write(const char *data, Size len);
extern bool paq_trail_write_text(const char *text, Size len);
extern ssize_t paq_trail_read_head(int fd, const char *name, const PaqKeys *keys,
								   char *head, Size size, bool *encrypted);
extern void paq_trail_close_writer(void);

/* consumer.c: do consumers have to keep a file? */
typedef enum PaqConsumerHold
{
	PAQ_HOLD_NONE,				/* all have acknowledged it */
	PAQ_HOLD_KEEP,				/* some have not */
	PAQ_HOLD_EXCEEDED			/* some have not, and hold back too much */
} PaqConsumerHold;

/* A finished file */
typedef struct PaqTrailMember
{
	const char *name;			/* without directories */
	TimestampTz written;		/* for the last time */
	uint64		size;			/* bytes */
} PaqTrailMember;

extern void paq_consumers_begin(int dirfd);
extern void paq_consumers_end(void);
extern void paq_consumers_add(const char *file);
extern PaqConsumerHold paq_consumers_hold(const PaqTrailMember *file, uint64 bytes,
										  char *names, Size size);

/* extent.c */
extern TimestampTz paq_trail_written(const struct stat *st);

/* seal.c */
extern void paq_seal_written(uint64 offset, const char *data, Size len);
extern bool paq_seal_finish(uint64 sequence);
extern bool paq_seal_removed(const char *name, uint64 size);

/* rotate.c */
extern void paq_trail_plan_rotation(pg_time_t from);

/* names.c */
extern bool paq_trail_is_inside(const char *path);
extern const char *paq_trail_name_of(const char *path);
extern const char *paq_trail_pattern(void);
extern const PaqFormat *paq_trail_format(void);
extern const PaqFormat *paq_trail_format_of(const char *path);
extern Size paq_trail_stem(const char *path);
extern int	paq_trail_mode(void);
extern bool paq_trail_names_compile(regex_t *names);
extern bool paq_trail_names_match(regex_t *names, const char *name);

#endif							/* PAQ_SINK_INTERNAL_H */
