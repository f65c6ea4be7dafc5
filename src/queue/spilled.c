/*-------------------------------------------------------------------------
 *
 * spilled.c
 *		The reader's side of spill files; see spill.c.
 *
 * A record's file is mapped while the record is the current one, and removed
 * when the record is durable in the trail.
 *
 * Locking: none; the worker is the only reader.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "fault.h"
#include "file_util.h"
#include "guc.h"
#include "queue/reader_internal.h"
#include "utils/memutils.h"

/* The current record's texts are not needed any more. */
void
paq_spilled_close(PaqReader *reader)
{
	if (reader->spill != NULL)
		munmap(reader->spill, reader->spill_size);
	reader->spill = NULL;
	reader->spill_size = 0;
}

/*
 * Open and map a spill file.  Returns NULL if it is not there, or is no file, or
 * an empty one, or the disk cannot read it; then errno is 0.  If it cannot be
 * opened or mapped now, but perhaps later, errno says why.
 */
static char *
map_spill(const char *path, Size *size)
{
	int			fd = paq_file_open_fd(path);
	char	   *map = NULL;

	if (fd < 0)
	{
		if (errno == ENOENT || errno == ELOOP || errno == EISDIR || errno == ENXIO)
			errno = 0;
		return NULL;
	}
	errno = PAQ_FAULT("queue-read");
	if (errno == 0)
		(void) paq_map_file(fd, 0, &map, size);
	if (errno == EIO)
		errno = 0;
	close(fd);
	return map;
}

static void
spill_path(char *path, const PaqText *name)
{
	snprintf(path, MAXPGPATH, "%s/%.*s", paq_queue_directory,
			 (int) name->len, name->data);
}

/*
 * Map the spill file called name, which is to be removed when the record is
 * durable.  A file that is not there, or not what it was, is as if it was empty:
 * the record is then handed out without its texts.  If there is one that cannot
 * be read now, the batch has to be tried again: raises an error.
 */
void
paq_spilled_open(PaqReader *reader, PaqText name)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	char		path[MAXPGPATH];

	reader->spills_read = lappend(reader->spills_read,
								  pnstrdup(name.data, name.len));
	MemoryContextSwitchTo(oldcontext);

	spill_path(path, &name);
	reader->spill = map_spill(path, &reader->spill_size);
	if (reader->spill == NULL && errno != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read audit spill file \"%s\": %m", path)));
	if (reader->spill != NULL &&
		paq_spill_is_good(name.data, name.len, reader->spill, reader->spill_size))
		return;
	ereport(LOG,
			(errmsg("audit spill file \"%s\" is missing or damaged", path),
			 errdetail("The record is written without its texts.")));
	paq_spilled_close(reader);
}

/* Is the spill file there, and whole, that the record needs, if it needs one? */
bool
paq_spilled_is_there(const char *data, uint32 len)
{
	char		path[MAXPGPATH];
	PaqText		name;
	Size		size;
	char	   *map;
	bool		good;

	if (likely(!paq_record_spill_name(data, len, &name)))
		return true;
	spill_path(path, &name);
	map = map_spill(path, &size);
	good = map != NULL && paq_spill_is_good(name.data, name.len, map, size);
	if (map != NULL)
		munmap(map, size);
	return good;
}

/* Bytes of texts that a record has in its spill file */
static uint64
spilled_bytes(const PaqRecordHeader *header)
{
	uint64		bytes = 0;

	if (header->field_len[PAQ_FIELD_STATEMENT] != PAQ_NULL_LEN)
		bytes += header->field_len[PAQ_FIELD_STATEMENT];
	if (header->field_len[PAQ_FIELD_PARAMETER] != PAQ_NULL_LEN)
		bytes += header->field_len[PAQ_FIELD_PARAMETER];
	return bytes;
}

/* If the current record's texts are not all there, it says so. */
void
paq_spilled_check(PaqReader *reader, PaqRecord *record)
{
	static const char lost[] = "the text of the statement is lost, unless the trail has the record already";
	PaqText    *message = &record->field[PAQ_FIELD_MESSAGE];

	if (reader->spill_size >= spilled_bytes(&record->header) ||
		message->data != NULL)
		return;
	message->data = lost;
	message->len = sizeof(lost) - 1;
	record->header.field_len[PAQ_FIELD_MESSAGE] = message->len;
}

/*
 * A worker before us may have written records to the trail and gone before it
 * could remove their spill files.  The records are still in the ring.
 */
void
paq_spilled_collect(PaqReader *reader)
{
	uint64		pos = reader->flushed;
	MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);

	while (pos < reader->drained &&
		   paq_frame_is_good(reader->qf, pos, reader->drained))
	{
		PaqFrame   *frame = paq_frame_at(reader->qf, pos);
		PaqText		name;

		if (paq_record_spill_name((char *) (frame + 1), frame->length, &name))
			reader->spills_drained = lappend(reader->spills_drained,
											 pnstrdup(name.data, name.len));
		pos += frame->size;
	}
	MemoryContextSwitchTo(oldcontext);
}

/* The records up to the last checkpoint are durable. */
void
paq_spilled_remove(PaqReader *reader)
{
	ListCell   *lc;

	foreach(lc, reader->spills_drained)
	{
		const char *name = (const char *) lfirst(lc);

		paq_spill_remove(name, strlen(name));
	}
	list_free_deep(reader->spills_drained);
	reader->spills_drained = NIL;
}
