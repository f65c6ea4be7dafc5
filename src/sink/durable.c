/*-------------------------------------------------------------------------
 *
 * durable.c
 *		What others may rely on: how far the trail is durable, and that a record's
 *		series and sequence are never those of another one.
 *
 * A file beside the trail's says up to where the trail is durable (trail/place.h).
 * Who ships records elsewhere reads no further: what is behind that may be cut off, and
 * written again with other sequences.  It is written after each flush, costs a write
 * to the page cache, and is not synced itself: after a crash of the operating system it
 * may say less than is true until the worker's first flush.
 *
 * Each run of the worker has a series of its own, and begins another one when it has cut
 * off what it had written.  It is a random number of 53 bits, so that it is exact in
 * whatever reads JSON's numbers as floating-point numbers.  Files that are to be loaded
 * into the table have their series in their names, see file.c.
 *
 * Must not raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sink/load_file.h"
#include "sink/sink_internal.h"
#include "storage/fd.h"
#include "trail/place.h"

#define OPEN_FLAGS	(O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | PG_BINARY)

#define SERIES_MASK		((UINT64CONST(1) << 53) - 1)

/* The file that is open */
static struct
{
	int			fd;				/* -1: none */
	bool		failed;			/* that has been said */
	dev_t		dev;			/* of the file */
	ino_t		ino;
	char		path[MAXPGPATH];
}			flushed = {.fd = -1};

/* Is the current file one that is to be loaded, whatever the settings say now? */
static bool
is_loaded(void)
{
	PaqLoadFile file;

	return paq_load_file_parse(paq_trail.path, &file);
}

/* Something was cut off the current file, and its records may get other sequences. */
void
paq_trail_end_series(void)
{
	if (!is_loaded())
		paq_trail.series = 0;
}

/* Have a series for the records that are written next. */
bool
paq_trail_need_series(void)
{
	while (paq_trail.series == 0)
	{
		if (!pg_strong_random(&paq_trail.series, sizeof(paq_trail.series)))
		{
			paq_trail.series = 0;
			paq_sink_set_error("could not generate a random number");
			return false;
		}
		paq_trail.series &= SERIES_MASK;
	}
	return true;
}

static void
close_flushed(void)
{
	if (flushed.fd < 0)
		return;
	close(flushed.fd);
	ReleaseExternalFD();
	flushed.fd = -1;
}

/* Have the file of the current file's directory open; somebody may have moved it away. */
static bool
need_flushed(void)
{
	char		path[MAXPGPATH];
	struct stat st;

	strlcpy(path, paq_trail.path, sizeof(path));
	get_parent_directory(path);
	strlcat(path, "/" PAQ_FLUSHED_FILE, sizeof(path));
	if (flushed.fd >= 0 && strcmp(path, flushed.path) == 0 && lstat(path, &st) == 0 &&
		st.st_dev == flushed.dev && st.st_ino == flushed.ino)
		return true;
	close_flushed();
	strlcpy(flushed.path, path, sizeof(flushed.path));
	flushed.fd = BasicOpenFilePerm(path, OPEN_FLAGS, paq_trail_mode());
	if (flushed.fd < 0)
		return false;
	ReserveExternalFD();
	if (fstat(flushed.fd, &st) != 0 || fchmod(flushed.fd, paq_trail_mode()) != 0)
		return false;
	flushed.dev = st.st_dev;
	flushed.ino = st.st_ino;
	return true;
}

/* Say up to where the trail is durable now. */
void
paq_trail_note_durable(void)
{
	PaqPlace	place = {
		.series = paq_trail.series,
		.sequence = paq_trail.flushed_sequence,
		.begun = paq_trail.begun_sequence + 1,
		.offset = paq_trail.flushed
	};

	if (paq_trail.fd < 0 || is_loaded())
		return;
	strlcpy(place.file, paq_trail_name_of(paq_trail.path), sizeof(place.file));
	if (need_flushed() && paq_flushed_write(flushed.fd, &place))
		flushed.failed = false;
	else if (!flushed.failed)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", flushed.path),
				 errdetail("Nothing more of the audit trail is shipped until it can be written.")));
		flushed.failed = true;
	}
}
