/*-------------------------------------------------------------------------
 *
 * consumer.c
 *		The worker: takes records off the queue and appends them to a trail.
 *
 * The trail is a file of TrailEntry.  As in src/drain/batch.c a batch is
 * written, then the checkpoint is stored, then, for one or more batches, the
 * space is released.  After a restart the file is cut where the checkpoint
 * says that it ends.  Now and then the sink "fails", and the same records are
 * read again.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault.h"
#include "guc.h"

#define MAX_BATCH	200

static PaqReader *reader;
static uint64 sequence;
static TrailState trail;		/* as of the checkpoint */
static int	trail_fd = -1;

static TrailEntry batch[MAX_BATCH];

/* What a reading that failed has seen, to be compared with the next one */
static TrailEntry failed[MAX_BATCH];
static uint32 nfailed = 0;

static pg_crc32c
entry_crc(const TrailEntry *entry)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, entry, offsetof(TrailEntry, crc));
	FIN_CRC32C(crc);
	return crc;
}

static void
make_entry(TrailEntry *entry, const PaqRecord *record, uint64 seq)
{
	memset(entry, 0, sizeof(*entry));
	entry->sequence = seq;
	entry->id = record->header.statement_id;
	entry->order = record->header.session_line;
	entry->life = record->header.session_start;
	entry->producer = record->header.pid;
	entry->flags = record->header.flags;
	entry->backlog = !paq_reader_is_live(reader);
	entry->crc = entry_crc(entry);
}

/* Dropped records; check.c adds them up. */
static void
make_drops_entry(TrailEntry *entry, const PaqGap *gap, uint64 seq)
{
	memset(entry, 0, sizeof(*entry));
	entry->sequence = seq;
	entry->producer = DROPS;
	entry->id = gap->count;
	entry->backlog = !paq_reader_is_live(reader);
	entry->crc = entry_crc(entry);
}

static void
save_checkpoint(void)
{
	stress_window(true);
	paq_reader_checkpoint(reader, sequence, &trail);
	stress_window(false);
}

static void
cut_trail(void)
{
	stress_window(true);
	if (ftruncate(trail_fd, trail.end.written) != 0)
		stress_fail("could not truncate the trail: %m");
	stress_window(false);
}

/*
 * What was written since the last flush is taken to be lost: it is written
 * again.  The caller stores a checkpoint.
 */
static void
retreat(void)
{
	trail.end.written = trail.end.flushed;
	sequence = trail.end.written / sizeof(TrailEntry);
	cut_trail();
	(void) PAQ_FAULT("test-cut");
	stress_window(true);
	paq_reader_retreat(reader);
	stress_window(false);
	pg_atomic_fetch_add_u64(&stress->retreats, 1);
}

/* Begin where the checkpoint says. */
void
stress_consumer_open(void)
{
	PaqCheckpoint checkpoint;
	bool		trusted;
	struct stat st;
	uint64		written;
	char		path[MAXPGPATH];

	stress_window(true);
	paq_worker_attach();
	reader = paq_reader_open(&checkpoint, &trusted);
	stress_window(false);
	if (!trusted)
		stress_fail("a queue file is not trusted");
	memcpy(&trail, checkpoint.trail, sizeof(trail));
	sequence = checkpoint.sequence;

	snprintf(path, sizeof(path), "%s.trail", paq_queue_directory);
	trail_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (trail_fd < 0 || fstat(trail_fd, &st) != 0)
		stress_fail("could not open \"%s\": %m", path);
	written = trail.end.written;
	if (written != sequence * sizeof(TrailEntry))
		stress_fail("the checkpoint is at %llu bytes and at record %llu",
					(unsigned long long) written, (unsigned long long) sequence);
	if ((uint64) st.st_size < trail.end.flushed)
		stress_fail("the trail was flushed at %llu bytes, and has %llu",
					(unsigned long long) trail.end.flushed,
					(unsigned long long) st.st_size);
	if ((uint64) st.st_size < written)
		retreat();
	cut_trail();
	save_checkpoint();
}

static void
write_trail(const char *data, Size len, uint64 where)
{
	stress_window(true);
	if (pwrite(trail_fd, data, len, where) != (ssize_t) len)
		stress_fail("could not write to the trail: %m");
	stress_window(false);
}

/*
 * Is entry n of the batch what it was when the batch failed?  Drops may have
 * come meanwhile, after which nothing is where it was.
 */
static void
compare_with_failed(uint32 n)
{
	if (n >= nfailed)
		return;
	if (batch[n].producer == DROPS || failed[n].producer == DROPS)
		nfailed = 0;
	else if (memcmp(&batch[n], &failed[n], sizeof(TrailEntry)) != 0)
		stress_fail("going back brought another record than before");
}

/* Read records; returns their number.  *result is why there are no more. */
static uint32
read_batch(uint32 max, PaqReadResult *result)
{
	PaqRecord	record;
	PaqGap		gap;
	uint32		n = 0;
	uint64		bytes = 0;

	*result = PAQ_READ_RECORD;
	while (n < max)
	{
		const char *problem;

		*result = paq_reader_next(reader, &record, &gap);
		if (*result == PAQ_READ_BUSY || *result == PAQ_READ_END)
			break;
		if (*result == PAQ_READ_GAP && stress->unnoticed &&
			strstr(gap.message, "a process was killed") != NULL)
		{
			pg_atomic_fetch_add_u64(&stress->stepped_over, 1);
			continue;
		}
		if (*result == PAQ_READ_GAP)
			stress_fail("gap before position %llu: %s",
						(unsigned long long) paq_reader_position(reader),
						gap.message);
		if (*result == PAQ_READ_DROPS)
			make_drops_entry(&batch[n], &gap, sequence + n + 1);
		else
		{
			problem = stress_check_record(&record);
			if (problem != NULL)
				stress_fail("record before position %llu, producer %d, number %llu, flags %x: %s",
							(unsigned long long) paq_reader_position(reader),
							record.header.pid,
							(unsigned long long) record.header.statement_id,
							record.header.flags, problem);
			make_entry(&batch[n], &record, sequence + n + 1);
			bytes += record.header.length;
		}
		compare_with_failed(n);
		n++;
	}

	/*
	 * What a dead process has left is stepped over after a while, and after another while if
	 * something else was waited for behind it.
	 */
	if (n < nfailed && n < max && !(stress->unnoticed && *result == PAQ_READ_BUSY))
		stress_fail("going back brought fewer records than before");
	nfailed = 0;
	pg_atomic_fetch_add_u64(&stress->bytes, bytes);
	return n;
}

/* The sink fails, perhaps after having written something. */
static void
fail_batch(uint32 n)
{
	if (n > 0 && stress_chance(50))
		write_trail((char *) batch, n * sizeof(TrailEntry) / 2, trail.end.written);
	cut_trail();
	memcpy(failed, batch, n * sizeof(TrailEntry));
	nfailed = n;
	paq_reader_rewind(reader);
	paq_worker_failing(true);
	pg_atomic_fetch_add_u64(&stress->rewinds, 1);
	(void) PAQ_FAULT("test-rewound");
}

/* Count, and note for flush() how far each producer's records are written. */
static void
account_for(const TrailEntry *entry)
{
	if (entry->producer == DROPS)
	{
		pg_atomic_fetch_add_u64(&stress->drops, entry->id);
		return;
	}
	pg_atomic_fetch_add_u64(&stress->records, 1);
	if (entry->flags & PAQ_RECORD_INTERRUPTED)
		pg_atomic_fetch_add_u64(&stress->interrupted, 1);
	else
		pg_atomic_write_u64(&stress->account[entry->producer].written,
							entry->order);
}

static void
write_batch(uint32 n)
{
	Size		size = n * sizeof(TrailEntry);
	Size		half = size > 0 ? stress_random(size) : 0;

	write_trail((char *) batch, half, trail.end.written);
	(void) PAQ_FAULT("test-half-written");
	write_trail((char *) batch + half, size - half, trail.end.written + half);
	(void) PAQ_FAULT("batch-written");
	trail.end.written += size;
	sequence += n;
	paq_worker_failing(false);
	for (uint32 i = 0; i < n; i++)
		account_for(&batch[i]);
	save_checkpoint();
}

/*
 * The trail is durable, in which case space is given back; or it cannot be
 * made durable, and everything since the last time is written again: then it
 * returns false.
 */
static bool
flush(void)
{
	if (stress_random(20) == 0)
	{
		retreat();
		save_checkpoint();
		return false;
	}
	trail.end.flushed = trail.end.written;
	(void) PAQ_FAULT("flushed");

	/* Those whom the next call wakes look at it. */
	for (int i = 0; i < MAX_PRODUCERS; i++)
		pg_atomic_write_u64(&stress->account[i].durable,
							pg_atomic_read_u64(&stress->account[i].written));
	stress_window(true);
	paq_reader_flushed(reader, sequence, &trail);
	if (paq_reader_sync_due(reader))
		paq_reader_sync(reader);
	stress_window(false);
	(void) PAQ_FAULT("test-released");
	return true;
}

static void
advance(void)
{
	stress_window(true);
	reader = paq_reader_advance(reader, sequence, &trail);
	stress_window(false);
	(void) PAQ_FAULT("test-advanced");
}

/* Is it time to flush?  at_end: everything has been read. */
static bool
flush_now(bool at_end)
{
	if (paq_worker_flush_wanted() || paq_worker_space_wanted())
		return true;
	if (stress->lazy && paq_reader_is_live(reader))
		return pg_atomic_read_u32(&stress->stop_consumer) != 0;
	if (stress->sleepy && at_end)
		return true;
	return stress_chance(at_end ? 80 : 30);
}

/* One batch.  Returns false if there was nothing to read in the live file. */
bool
stress_consume(void)
{
	PaqReadResult result;
	uint32		max = 1 + stress_random(stress_chance(50) ? 8 : MAX_BATCH);
	uint32		n = read_batch(max, &result);

	if (stress_random(20) == 0)
	{
		fail_batch(n);
		return true;
	}
	if (paq_reader_unsaved(reader))
		write_batch(n);
	if (flush_now(result == PAQ_READ_END) && !flush())
		return true;
	if (result == PAQ_READ_END && !paq_reader_is_live(reader) &&
		!paq_reader_unsaved(reader) && !paq_reader_unflushed(reader))
	{
		advance();
		return true;
	}
	return result == PAQ_READ_RECORD || !paq_reader_is_live(reader);
}

/*
 * Nothing to do: sleep until somebody wants something.  Whoever puts a record
 * into the queue then has to wake us, or the test hangs.
 */
static void
nap(void)
{
	if (paq_worker_flush_wanted() || paq_worker_space_wanted())
		return;
	if (paq_reader_unflushed(reader) || !paq_worker_hibernate(reader))
	{
		/* what comes then is noticed, unlike the end of a request */
		stress_nap(1);
		return;
	}
	pg_atomic_fetch_add_u64(&stress->hibernations, 1);
	stress_nap(-1);
	paq_worker_wake();
}

/* A process; never returns. */
void
stress_consumer(uint64 seed)
{
	uint32		slowness;

	stress_seed(seed);
	stress_become(MAX_PRODUCERS, B_BG_WORKER);
	slowness = stress_chance(50) ? 0 : stress_random(1000);
	stress_consumer_open();
	for (;;)
	{
		bool		more = stress_consume();

		stress_check_positions();
		if (!more && pg_atomic_read_u32(&stress->stop_consumer) != 0 &&
			paq_worker_attached_backends() == 0 &&
			!paq_reader_has_drops(reader) &&
			paq_reader_position(reader) == paq_reader_limit(reader))
		{
			if (paq_reader_unflushed(reader) && stress_chance(70) && !flush())
				continue;
			stress_window(true);
			paq_reader_close(reader, sequence, &trail);
			stress_window(false);
			stress_exit();
		}
		if (!more)
			nap();
		else if (slowness > 0)
			pg_usleep(stress_random(slowness));
	}
}
