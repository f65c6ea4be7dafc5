/*-------------------------------------------------------------------------
 *
 * judge.c
 *		What a queue file that was found is worth.
 *
 * A file is trusted if its positions are those that the last process of the
 * server before left: the operating system has not been restarted since, or
 * was after the worker had synced everything, and they do not contradict each
 * other.  Then the trail ends where the checkpoint says, and every record that
 * is not in it is between "drained" and "reserved".
 *
 * Of any other file, pages may be older than others, and older or newer than
 * the trail.  All that is known is what was durable at the time of a
 * checkpoint; the rest has to be found out by looking at what is there.
 *
 * Locking: none.  Used by the postmaster before there are backends, and by
 * the worker for backlog, which nobody else uses.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "file_util.h"
#include "queue/queue_internal.h"

/*
 * Identification of the operating system's run, PAQ_BOOT_ID_LEN bytes; ""
 * where the system does not tell.  Linux: random(4), boot_id.
 */
static void
read_boot_id(char *id)
{
	paq_read_text("/proc/sys/kernel/random/boot_id", id, PAQ_BOOT_ID_LEN);
}

/* Note that the file is in use in this run of the operating system. */
void
paq_file_set_boot_id(PaqQueueFile *qf)
{
	read_boot_id(qf->live->boot_id);
}

/*
 * Has the operating system been up ever since the file was last in use?  No,
 * too, if that is not known.
 */
static bool
same_boot(PaqQueueFile *qf)
{
	char		id[PAQ_BOOT_ID_LEN];

	read_boot_id(id);
	return id[0] != '\0' && memcmp(id, qf->live->boot_id, sizeof(id)) == 0;
}

/*
 * Are all pages of the file as the last process of the server left them?
 * checkpoint is the file's.
 */
bool
paq_file_is_intact(PaqQueueFile *qf, const PaqCheckpoint *checkpoint)
{
	return same_boot(qf) ||
		(checkpoint->synced_end != 0 &&
		 checkpoint->synced_end == pg_atomic_read_u64(&qf->live->reserved));
}

/* Is all that the trail has durable? */
static bool
all_is_flushed(const PaqCheckpoint *checkpoint)
{
	return checkpoint->flushed == checkpoint->drained &&
		checkpoint->flushed_slots == checkpoint->drained_slots &&
		memcmp(checkpoint->flushed_drops, checkpoint->drops,
			   sizeof(checkpoint->drops)) == 0;
}

/* See the top of this file.  checkpoint is the file's. */
bool
paq_file_is_trusted(PaqQueueFile *qf, const PaqCheckpoint *checkpoint)
{
	uint64		released = pg_atomic_read_u64(&qf->live->released);
	uint64		reserved = pg_atomic_read_u64(&qf->live->reserved);

	if (released > checkpoint->drained || checkpoint->drained > reserved ||
		reserved - released > qf->ring_size)
		return false;

	/* The trail may be behind the checkpoint if it was not synced. */
	return same_boot(qf) ||
		(paq_file_is_intact(qf, checkpoint) && all_is_flushed(checkpoint));
}

/*
 * Did the worker leave the file with nothing in it that the trail does not
 * have, durably, and has nobody used it since?
 */
bool
paq_file_is_empty(PaqQueueFile *qf)
{
	uint64		reserved = pg_atomic_read_u64(&qf->live->reserved);
	PaqCheckpoint checkpoint;

	if (!paq_checkpoint_read(qf, &checkpoint) ||
		!paq_file_is_trusted(qf, &checkpoint) ||
		checkpoint.synced_end != reserved ||
		checkpoint.drained != reserved || !all_is_flushed(&checkpoint) ||
		paq_drops_unreported(qf, checkpoint.drops))
		return false;
	for (uint32 i = 0; i < qf->header->nslots; i++)
		if (paq_slot(qf, i)->used != 0)
			return false;
	return true;
}
