/*-------------------------------------------------------------------------
 *
 * check.c
 *		Compares the trail with what the producers did.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include <fcntl.h>
#include <unistd.h>

#include "guc.h"

/* How often each record is in the trail */
static uint8 seen[MAX_PRODUCERS][MAX_IDS];

/* Of each producer, the last record that came out of the ring */
static uint64 last_order[MAX_PRODUCERS];
static uint64 last_life[MAX_PRODUCERS];

/* Records that the trail says were dropped; records that were */
static uint64 drops;
static uint64 dropped;

static const char *const state_name[] = {
	"not begun", "being created", "dropped", "pending", "being replaced",
	"being published", "being published past the slot", "published", "being freed",
	"freed", "given up"
};

static void
complain(const TrailEntry *entry, const char *what)
{
	stress_fail("record %llu of producer %u, life %llu, flags %x, sequence %llu, %s: %s",
				(unsigned long long) entry->id, entry->producer,
				(unsigned long long) entry->life, entry->flags,
				(unsigned long long) entry->sequence,
				state_name[stress->state[entry->producer][entry->id]], what);
}

/* May a record in this state be there, and be as it is? */
static void
check_state(const TrailEntry *entry)
{
	RecordState state = stress->state[entry->producer][entry->id];
	uint8		copy = stress->copy[entry->producer][entry->id];
	bool		interrupted = (entry->flags & PAQ_RECORD_INTERRUPTED) != 0;
	bool		cut = (entry->flags & PAQ_RECORD_CUT) != 0;

	switch (state)
	{
		case STATE_NONE:
		case STATE_DROPPED:
		case STATE_FREED:
			complain(entry, "must not be in the trail");
			break;
		case STATE_CREATING:
		case STATE_PENDING:
		case STATE_REPLACING:
		case STATE_FREEING:
			if (!interrupted)
				complain(entry, "must be interrupted");
			break;
		case STATE_PUBLISHED:
			if (interrupted)
				complain(entry, "must not be interrupted");
			if (cut && (copy & MESSAGE_IS_CUT) == 0)
				complain(entry, "must not be cut");
			break;
		case STATE_PUBLISHING_DIRECT:
			if (interrupted || cut)
				complain(entry, "was in no slot");
			break;
		case STATE_PUBLISHING:
		case STATE_UNNOTICED:
			break;
	}
	if (state == STATE_PENDING && cut && (copy & COPY_IS_CUT) == 0)
		complain(entry, "must not be cut");
	if (interrupted && !entry->backlog)
		complain(entry, "came out of the live file");
}

static void
check_order(const TrailEntry *entry)
{
	uint32		producer = entry->producer;

	if (entry->life < last_life[producer])
		complain(entry, "comes after one of a later life");
	last_life[producer] = entry->life;
	if (entry->flags & PAQ_RECORD_INTERRUPTED)
		return;
	if (entry->order <= last_order[producer])
		complain(entry, "is not in order");
	last_order[producer] = entry->order;
}

static void
check_entry(const TrailEntry *entry, uint64 sequence)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, entry, offsetof(TrailEntry, crc));
	FIN_CRC32C(crc);
	if (crc != entry->crc || entry->sequence != sequence)
		stress_fail("the trail is damaged at record %llu",
					(unsigned long long) sequence);
	if (entry->producer == DROPS)
	{
		drops += entry->id;
		return;
	}
	if (seen[entry->producer][entry->id]++ != 0)
		complain(entry, "is there twice");
	check_state(entry);
	check_order(entry);
}

/* Is everything there that has to be? */
static void
check_missing(uint32 producer)
{
	for (uint64 id = 1; id < stress->account[producer].next_id; id++)
	{
		RecordState state = stress->state[producer][id];
		bool		kept = (stress->copy[producer][id] & COPY_IN_SLOT) != 0;
		bool		needed = state == STATE_PUBLISHED ||
			(kept && (state == STATE_PENDING || state == STATE_REPLACING ||
					  state == STATE_PUBLISHING || state == STATE_UNNOTICED));

		if (state == STATE_DROPPED)
			dropped++;
		if (seen[producer][id] != 0 || !needed)
			continue;

		/* Its process may have died after it had been dropped. */
		if (state == STATE_PUBLISHING && paq_overflow == PAQ_OVERFLOW_DROP)
			dropped++;
		else
			stress_fail("record %llu of producer %u, %s, is missing",
						(unsigned long long) id, producer, state_name[state]);
	}
}

/*
 * Does the trail say how many records were dropped?  Those that were dropped
 * by a process which died over it may be counted or not.
 */
static void
check_drops(void)
{
	if (drops < dropped || drops > dropped + stress->busy_deaths)
		stress_fail("the trail tells of %llu dropped records, but it were %llu, and perhaps %u more",
					(unsigned long long) drops, (unsigned long long) dropped,
					stress->busy_deaths);
}

/* Check the whole trail of a scenario; returns the number of records. */
uint64
stress_check_trail(void)
{
	static TrailEntry entries[1024];
	char		path[MAXPGPATH];
	uint64		sequence = 0;
	ssize_t		n;
	int			fd;

	drops = dropped = 0;
	memset(seen, 0, sizeof(seen));
	memset(last_order, 0, sizeof(last_order));
	memset(last_life, 0, sizeof(last_life));
	snprintf(path, sizeof(path), "%s.trail", paq_queue_directory);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		stress_fail("could not open \"%s\": %m", path);
	while ((n = read(fd, entries, sizeof(entries))) > 0)
	{
		if (n % sizeof(TrailEntry) != 0)
			stress_fail("the trail ends within a record");
		for (size_t i = 0; i < n / sizeof(TrailEntry); i++)
			check_entry(&entries[i], ++sequence);
	}
	close(fd);
	for (uint32 i = 0; i < MAX_PRODUCERS; i++)
		check_missing(i);
	check_drops();
	return sequence;
}
