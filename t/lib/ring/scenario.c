/*-------------------------------------------------------------------------
 *
 * scenario.c
 *		Scenarios: a queue of some size, with its first position at some
 *		place, and a number of lives of the "server" with it.
 *
 * The last life ends cleanly.  Then the trail is compared with what the
 * producers did, and nothing may be left of backlog.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include <dirent.h>
#include <unistd.h>

#include "guc.h"

static const int sizes[] = {4, 8, 12, 20, 64, 64, 100, 256, 1024};	/* kB */

static uint32 n_producers;

/* Where a scenario begins: positions with something odd about them */
static uint64
random_position(uint64 ring_size)
{
	uint64		laps = 1 + stress_random(1000);
	uint64		before = 8 * stress_random(8);

	switch (stress_random(8))
	{
		case 0:
			return (UINT64CONST(1) << 32) - before;
		case 1:
			return (UINT64CONST(1) << 32) - 8 * stress_random(4096);
		case 2:
			return (UINT64CONST(1) << 31) - before;
		case 3:
			return (UINT64CONST(1) << 62) - before;
		case 4:
			return (UINT64CONST(1) << 48) + before;
		default:
			return laps * ring_size - before;
	}
}

/* What the last lap has left: frames that were good at their time, or rubbish */
static void
fill_ring(PaqQueueFile *qf, uint64 pos)
{
	bool		frames = stress_chance(50);

	for (uint64 i = 0; i < qf->ring_size; i += 64)
	{
		uint64		old = (pos - qf->ring_size + i) & ~UINT64CONST(7);
		PaqFrame   *frame = paq_frame_at(qf, old);
		char	   *record = (char *) (frame + 1);

		if (old > pos || pos - old < 64)
			continue;
		for (uint32 j = 0; j < 64 - sizeof(PaqFrame); j++)
			record[j] = (char) stress_random64();
		frame->size = 64;
		frame->length = 64 - sizeof(PaqFrame);
		frame->crc = paq_frame_crc(qf, old, record, frame->length);
		pg_atomic_write_u64(&frame->stamp, frames ?
							paq_frame_stamp(qf, old) :
							stress_random64());
	}
}

/* Make a queue file that stands somewhere else than a new one does. */
static void
prepare_file(void)
{
	char		path[MAXPGPATH];
	PaqQueueFile qf;
	PaqCheckpoint checkpoint;
	char	   *reason;
	uint64		pos;

	stress_startup();
	pos = random_position(paq_live.ring_size);
	paq_file_path(path, PAQ_QUEUE_FILE);
	if (!paq_file_open(path, &qf, &reason) || !paq_checkpoint_read(&qf, &checkpoint))
		stress_fail("could not open the queue file");
	fill_ring(&qf, pos);
	pg_atomic_write_u64(&qf.live->reserved, pos);
	pg_atomic_write_u64(&qf.live->released, pos);
	pg_atomic_write_u64(&qf.live->drained, pos);
	checkpoint.drained = checkpoint.flushed = checkpoint.synced_end = pos;
	paq_checkpoint_write(&qf, &checkpoint);
	paq_file_close(&qf);
	stress_startup();
	if (pg_atomic_read_u64(&paq_live.live->reserved) != pos)
		stress_fail("a file that was moved to position %llu is not used",
					(unsigned long long) pos);
}

/* Only the live file must be left, and what a crash may leave of spill files. */
static void
check_directory(void)
{
	DIR		   *dir = opendir(paq_queue_directory);
	struct dirent *de;

	while (dir != NULL && (de = readdir(dir)) != NULL)
		if (strcmp(de->d_name, PAQ_QUEUE_FILE) != 0 &&
			strcmp(de->d_name, "lock") != 0 && de->d_name[0] != '.' &&
			strncmp(de->d_name, "spill.", 6) != 0)
		{
			fprintf(stderr, "FAILED: file \"%s\" is left\n", de->d_name);
			stress_give_up();
		}
	if (dir != NULL)
		closedir(dir);
}

static void
remove_files(void)
{
	char		path[2 * MAXPGPATH];
	DIR		   *dir = opendir(paq_queue_directory);
	struct dirent *de;

	while (dir != NULL && (de = readdir(dir)) != NULL)
	{
		if (de->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "%s/%s", paq_queue_directory, de->d_name);
		unlink(path);
	}
	if (dir != NULL)
		closedir(dir);
	rmdir(paq_queue_directory);
	snprintf(path, sizeof(path), "%s.trail", paq_queue_directory);
	unlink(path);
}

static void
begin(uint64 seed)
{
	stress_seed(seed);
	stress->seed = seed;
	memset(stress->account, 0, sizeof(stress->account));
	memset(stress->state, 0, sizeof(stress->state));
	memset(stress->copy, 0, sizeof(stress->copy));
	for (int i = 0; i < MAX_PRODUCERS; i++)
		stress->account[i].next_id = 1;
	stress->busy_deaths = 0;
}

static void
change_settings(void)
{
	paq_queue_size = sizes[stress_random(lengthof(sizes))];
	MaxBackends = n_producers + stress_random(3);
}

static Ending
random_ending(void)
{
	uint32		n = stress_random(100);

	if (n < 60)
		return END_POINT;
	if (n < 80)
		return END_SIGNAL;
	return n < 90 ? END_ALL : END_STOP;
}

/* Each comes in a short run too. */
static PaqOverflow
choose_overflow(uint64 seed)
{
	switch (seed % 5)
	{
		case 1:
			return PAQ_OVERFLOW_DROP;
		case 3:
			return PAQ_OVERFLOW_ERROR;
		default:
			return PAQ_OVERFLOW_WAIT;
	}
}

/* Returns the number of records in its trail. */
uint64
stress_run_scenario(uint64 seed, uint32 n_lives)
{
	bool		fickle;
	uint64		records;

	begin(seed);
	n_producers = 1 + stress_random(6);
	stress_lives_begin(n_producers);
	paq_flush_threshold = 1 + stress_random(99);
	change_settings();
	fickle = stress_chance(30);
	stress->frame_size = stress_chance(10) ? 256 : 0;
	stress->sleepy = seed % 5 != 2 && stress_chance(10);
	paq_overflow = choose_overflow(seed);
	stress->lazy = seed % 5 == 2;
	if (stress_chance(70))
		prepare_file();
	stress_live_full();

	for (uint32 i = 0; i < n_lives; i++)
	{
		stress_live(random_ending());
		if (fickle && stress_chance(20))
			change_settings();
	}
	stress_live_sleepy();
	if (seed % 5 == 4)
		stress_live_unnoticed();
	if (seed % 5 == 3)
		stress_live_refused();
	stress_live(END_STOP);
	check_directory();
	records = stress_check_trail();
	if (stress_verbose)
		printf("seed %llu: %d kB, %u producers, %llu records\n",
			   (unsigned long long) seed, paq_queue_size, n_producers,
			   (unsigned long long) records);
	remove_files();
	return records;
}

/* Processes that die at each instruction; see step.c. */
void
stress_run_steps(uint64 seed)
{
	bool		can_step = true;

	for (int kind = STEP_PRODUCER; can_step && kind <= STEP_CONSUMER; kind++)
	{
		begin(seed);
		memset(&stress->frame_size, 0,
			   offsetof(Stress, armed) - offsetof(Stress, frame_size));
		stress_lives_begin(1);
		MaxBackends = 1;
		paq_overflow = PAQ_OVERFLOW_WAIT;
		can_step = stress_step(kind);
		remove_files();
	}
	if (!can_step)
		printf("processes cannot be traced here\n");
}
