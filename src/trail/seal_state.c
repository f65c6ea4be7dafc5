/*-------------------------------------------------------------------------
 *
 * seal_state.c
 *		The file in which the server keeps the secret for the next seal.
 *
 * It is in the data directory, and its name begins as those of PostgreSQL's temporary
 * files do: so base backups, pg_rewind and the like leave it out.  A secret in a
 * backup could be used to seal anew all that came later.
 *
 * There are two slots.  A state is written to the one that is free, and synced; then
 * the other one, with the secret before, is overwritten by zeros, and synced.  A crash
 * leaves one that is valid, or two, of which the later one holds.
 *
 * Guarantees: when paq_seal_state_write() has returned true, the secret before is not in
 * the file any more.  Whether the disk has it somewhere else depends on disk and file system: those
 * that never write in place (btrfs, ZFS, flash memory) keep it for some time.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <unistd.h>

#include "file_util.h"
#include "port/pg_crc32c.h"
#include "trail/seal.h"

#define MAGIC			UINT64CONST(0x314c414553514150) /* "PAQSEAL1" */

/* Distance of the slots, in bytes: no page of theirs is the same. */
#define SLOT_SIZE		8192

typedef struct Slot
{
	uint64		magic;
	PaqSealState state;
	pg_crc32c	crc;			/* of all before */
} Slot;

StaticAssertDecl(sizeof(Slot) <= SLOT_SIZE, "a slot must have space for a state");

static pg_crc32c
slot_crc(const Slot *slot)
{
	return paq_crc32c(slot, offsetof(Slot, crc));
}

PaqSealStateResult
paq_seal_state_read(int fd, PaqSealState *state, int *slot)
{
	PaqSealStateResult result = PAQ_SEAL_STATE_BAD;
	Slot		found;

	for (int i = 0; i < 2; i++)
	{
		if (!paq_read_all(fd, (char *) &found, sizeof(found), i * SLOT_SIZE))
			return PAQ_SEAL_STATE_FAILED;
		if (found.magic != MAGIC || found.crc != slot_crc(&found) ||
			(result == PAQ_SEAL_STATE_OK &&
			 found.state.secret.epoch < state->secret.epoch))
			continue;
		*state = found.state;
		*slot = i;
		result = PAQ_SEAL_STATE_OK;
	}
	explicit_bzero(&found, sizeof(found));
	return result;
}

/* Write a slot durably; NULL for zeros. */
static bool
write_slot(int fd, int i, const Slot *slot)
{
	static const char zeros[SLOT_SIZE];
	const char *data = slot != NULL ? (const char *) slot : zeros;
	const Size	len = slot != NULL ? sizeof(*slot) : sizeof(zeros);

	return paq_write_all(fd, data, len, (int64) i * SLOT_SIZE) == len && fsync(fd) == 0;
}

bool
paq_seal_state_clean(int fd, int slot)
{
	return write_slot(fd, 1 - slot, NULL);
}

bool
paq_seal_state_write(int fd, const PaqSealState *state, int *slot)
{
	const int	other = *slot == 0 ? 1 : 0;
	Slot		made;
	bool		ok;

	memset(&made, 0, sizeof(made));
	made.magic = MAGIC;
	made.state = *state;
	made.crc = slot_crc(&made);
	ok = write_slot(fd, other, &made);
	explicit_bzero(&made, sizeof(made));
	if (!ok)
		return false;
	*slot = other;
	return write_slot(fd, 1 - other, NULL);
}
