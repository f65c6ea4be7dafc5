/*-------------------------------------------------------------------------
 *
 * layout.c
 *		Prints where the parts of a queue file are: lines of a name and a
 *		number.
 *
 * Compiled by QueueFile.pm against the project's own headers, so that the
 * tests know the layout of the build that they test.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <stdio.h>
#include <unistd.h>

#undef printf
#undef fprintf

#include "queue/queue_internal.h"
#include "sink/sink.h"

#define SHOW(name, value) \
	printf("%s %llu\n", name, (unsigned long long) (value))
#define FIELD(name, type, field) \
	SHOW(name "." #field, offsetof(type, field))

int
main(void)
{
	SHOW("page", sysconf(_SC_PAGESIZE));
	SHOW("version", PAQ_FILE_VERSION);
	SHOW("slot_size", PAQ_SLOT_SIZE);
	SHOW("boot_id_len", PAQ_BOOT_ID_LEN);
	SHOW("frame_committed", PAQ_FRAME_COMMITTED);
	SHOW("frame_align", PAQ_FRAME_ALIGN);
	SHOW("ndrops", PAQ_NDROPS);

	SHOW("header", sizeof(PaqFileHeader));
	FIELD("header", PaqFileHeader, version);
	FIELD("header", PaqFileHeader, nslots);
	FIELD("header", PaqFileHeader, slots_offset);
	FIELD("header", PaqFileHeader, ring_offset);
	FIELD("header", PaqFileHeader, ring_size);
	FIELD("header", PaqFileHeader, salt);
	FIELD("header", PaqFileHeader, system_identifier);
	FIELD("header", PaqFileHeader, inode);
	FIELD("header", PaqFileHeader, birth);
	FIELD("header", PaqFileHeader, created);
	FIELD("header", PaqFileHeader, crc);

	SHOW("checkpoint", sizeof(PaqCheckpoint));
	FIELD("checkpoint", PaqCheckpoint, counter);
	FIELD("checkpoint", PaqCheckpoint, drained);
	FIELD("checkpoint", PaqCheckpoint, flushed);
	FIELD("checkpoint", PaqCheckpoint, sequence);
	FIELD("checkpoint", PaqCheckpoint, synced_end);
	FIELD("checkpoint", PaqCheckpoint, drops);
	FIELD("checkpoint", PaqCheckpoint, trail);
	FIELD("checkpoint", PaqCheckpoint, crc);
	SHOW("trail.offset", offsetof(PaqSinkState, offset));
	SHOW("trail.flushed", offsetof(PaqSinkState, flushed));
	SHOW("trail.inode", offsetof(PaqSinkState, inode));
	SHOW("trail.file", offsetof(PaqSinkState, file));

	SHOW("live", sizeof(PaqLive));
	FIELD("live", PaqLive, reserved);
	FIELD("live", PaqLive, released);
	FIELD("live", PaqLive, drained);
	FIELD("live", PaqLive, boot_id);
	FIELD("live", PaqLive, drops);

	SHOW("frame", sizeof(PaqFrame));
	FIELD("frame", PaqFrame, stamp);
	FIELD("frame", PaqFrame, size);
	FIELD("frame", PaqFrame, length);
	FIELD("frame", PaqFrame, kind);
	SHOW("skip", PAQ_FRAME_SKIP);

	SHOW("slot", offsetof(PaqSlot, entries));
	FIELD("slot", PaqSlot, used);

	SHOW("entry", sizeof(PaqSlotEntry));
	FIELD("entry", PaqSlotEntry, size);
	FIELD("entry", PaqSlotEntry, valid);
	FIELD("entry", PaqSlotEntry, published_at);
	return 0;
}
