/*-------------------------------------------------------------------------
 *
 * checkpoint.c
 *		How far the trail has got, kept in the queue file.
 *
 * The checkpoint ties a queue position to an end of the trail: everything
 * before "drained" is in the trail, everything in the trail beyond the stored
 * end is a batch that was being written and has to be cut off and written
 * again - if the file can be trusted, see judge.c.  That is what makes the
 * trail exact over a crash at any instruction, so a checkpoint must never be
 * seen half old and half new: there are two blocks, the older one is
 * overwritten, and the newest one with a good checksum counts.
 *
 * Locking: written by the worker, or by the postmaster before there is one.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fault.h"
#include "queue/queue_internal.h"

static pg_crc32c
checkpoint_crc(PaqQueueFile *qf, const PaqCheckpoint *checkpoint)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &qf->salt, sizeof(qf->salt));
	COMP_CRC32C(crc, checkpoint, offsetof(PaqCheckpoint, crc));
	FIN_CRC32C(crc);
	return crc;
}

/* Number of the newest valid block, -1 if none is. */
static int
newest_block(PaqQueueFile *qf)
{
	int			newest = -1;

	for (int i = 0; i < 2; i++)
	{
		const PaqCheckpoint *block = qf->checkpoint[i];

		if (block->crc != checkpoint_crc(qf, block))
			continue;
		if (newest < 0 || block->counter > qf->checkpoint[newest]->counter)
			newest = i;
	}
	return newest;
}

/* Read the newest checkpoint.  Returns false if there is no valid one. */
bool
paq_checkpoint_read(PaqQueueFile *qf, PaqCheckpoint *out)
{
	int			newest = newest_block(qf);

	if (newest < 0)
		return false;
	memcpy(out, qf->checkpoint[newest], sizeof(*out));
	return true;
}

/*
 * Store a checkpoint; its counter and checksum are set here.  A process that
 * dies in the middle leaves the previous one in force.
 */
void
paq_checkpoint_write(PaqQueueFile *qf, PaqCheckpoint *checkpoint)
{
	int			newest = newest_block(qf);
	PaqCheckpoint *block;

	checkpoint->counter = newest < 0 ? 1 : qf->checkpoint[newest]->counter + 1;
	checkpoint->crc = checkpoint_crc(qf, checkpoint);
	block = qf->checkpoint[newest == 0 ? 1 : 0];
	memcpy(block, checkpoint, offsetof(PaqCheckpoint, trail));
	(void) PAQ_FAULT("checkpoint-half");
	memcpy(block, checkpoint, sizeof(*checkpoint));
	(void) PAQ_FAULT("checkpoint-written");
}
