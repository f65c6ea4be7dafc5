/*-------------------------------------------------------------------------
 *
 * life.c
 *		The postmaster: starts the "server", and lets its processes die.
 *
 * A life begins with the project's own start of the queue.  It ends cleanly or
 * by a death: of a process that passes a chosen fault point, of a random
 * process at a random time, or of all processes at once.  After a death all
 * other processes are killed too, as the postmaster does, with two exceptions:
 * the consumer may come back alone, and there are lives in which deaths go
 * unnoticed.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault.h"
#include "guc.h"

/* A life in which nothing has moved for that long, in s, hangs. */
#define HANG_LIMIT		30

/* How long to wait for the armed point to be passed, ms */
#define POINT_LIMIT		100

/* Records of stress_live_sleepy() */
#define SLEEPY_RECORDS	200

/* Records of each producer of stress_live_unnoticed() */
#define UNNOTICED_RECORDS	2000

/* Of stress_live_refused(): deaths with a claim, and queue size, kB */
#define REFUSED_DEATHS	40
#define REFUSED_SIZE	256

/* Fault points, with how often one is passed at most before it kills */
static const struct
{
	const char *name;
	uint32		limit;
}			targets[] = {
	{"pending-replaced", 60},
	{"writer-borrowed", 20},
	{"ring-claimed", 300},
	{"ring-unplaced", 300},
	{"ring-reserved", 300},
	{"ring-copied", 300},
	{"ring-committed", 300},
	{"test-pending", 300},
	{"test-published", 300},
	{"checkpoint-half", 12},
	{"checkpoint-written", 12},
	{"batch-written", 12},
	{"test-half-written", 12},
	{"flushed", 12},
	{"skip-claimed", 6},
	{"skip-reserved", 6},
	{"skip-committed", 6},
	{"skip-noted", 6},
	{"detour-claimed", 1},
	{"detour-taken", 1},
	{"test-released", 12},
	{"test-rewound", 3},
	{"test-advanced", 2},
	{"*", 1000}
};

/* This scenario */
static uint32 n_producers;
static uint64 life;
static pid_t producers[MAX_PRODUCERS];
static pid_t consumer;

/* Totals */
static uint64 total_lives = 0;
static uint64 total_kills[END_STOP];	/* by Ending */
static uint64 consumer_restarts = 0;
static uint64 startup_kills = 0;
static uint64 unnoticed_deaths = 0;
static uint64 refused_deaths = 0;

static void
kill_child(pid_t *pid)
{
	if (*pid == 0)
		return;
	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}

static void
kill_children(void)
{
	/* first all, then wait: nobody shall run on for long */
	for (uint32 i = 0; i < n_producers; i++)
		if (producers[i] != 0)
			kill(producers[i], SIGKILL);
	kill_child(&consumer);
	for (uint32 i = 0; i < n_producers; i++)
		kill_child(&producers[i]);
}

/* Somebody has failed, and said so: say in which scenario, leave its files. */
void
stress_give_up(void)
{
	kill_children();
	fprintf(stderr, "seed of the scenario: %llu; files: %s*\n",
			(unsigned long long) stress->seed, paq_queue_directory);
	exit(1);
}

/* 0 in the child, which dies with this process. */
pid_t
stress_start_child(void)
{
	pid_t		parent = getpid();
	pid_t		pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
	{
		perror("fork");
		kill_children();
		exit(1);
	}
	if (pid == 0)
	{
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

static void
start_consumer(void)
{
	uint64		child_seed = stress_random64();

	consumer = stress_start_child();
	if (consumer == 0)
		stress_consumer(child_seed);
}

static void
start_producers(uint32 n, uint32 records)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint64		child_seed = stress_random64();

		/* The last of many has no PGPROC, as a process whose login fails. */
		producers[i] = stress_start_child();
		if (producers[i] == 0)
			stress_producer(i, n > 3 && i == n - 1, life, child_seed, records);
	}
}

/* Start the "server". */
void
stress_startup(void)
{
	stress->server_memory_used = 0;
	memset(stress->server_memory, 0, SERVER_MEMORY);
	memset(stress->latches, 0, sizeof(stress->latches));
	pg_atomic_write_u32(&stress->stop_producers, 0);
	pg_atomic_write_u32(&stress->stop_consumer, 0);
	paq_stats_shmem_init(MaxBackends);
	paq_queue_startup();
}

/* Let a postmaster die in its attempt to start. */
static void
startup_killed(void)
{
	int			status;
	pid_t		pid;

	stress_arm("*", 1 + stress_random(3));
	pid = stress_start_child();
	if (pid == 0)
	{
		stress_startup();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	stress_arm("", 0);
	if (WIFSIGNALED(status))
		startup_kills++;
}

/*
 * Children that have ended.  Returns true if one did not end as it should;
 * *which is that process.
 */
static bool
somebody_died(pid_t *which)
{
	int			status;
	pid_t		pid = waitpid(-1, &status, WNOHANG);

	if (pid <= 0)
		return false;
	if (pid == consumer)
		consumer = 0;
	for (uint32 i = 0; i < n_producers; i++)
		if (producers[i] == pid)
			producers[i] = 0;
	*which = pid;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		return true;
	if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0 ||
		pg_atomic_read_u32(&stress->failed) != 0)
	{
		if (WIFSIGNALED(status))
			fprintf(stderr, "FAILED: process %d was ended by signal %d\n",
					(int) pid, WTERMSIG(status));
		stress_give_up();
	}
	return false;
}

static double
now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

/* Does the life go on?  Gives up if nothing has moved for too long. */
static void
check_progress(double *since, uint64 *progress)
{
	uint64		sum = pg_atomic_read_u64(&stress->records);

	sum += pg_atomic_read_u64(&paq_live.live->reserved);
	sum += pg_atomic_read_u64(&paq_live.live->released);
	stress_check_positions();
	if (sum != *progress)
	{
		*progress = sum;
		*since = now();
	}
	else if (now() - *since > HANG_LIMIT)
	{
		fprintf(stderr, "FAILED: nothing has moved for %d s: reserved %llu, drained %llu, released %llu\n",
				HANG_LIMIT,
				(unsigned long long) pg_atomic_read_u64(&paq_live.live->reserved),
				(unsigned long long) pg_atomic_read_u64(&paq_live.live->drained),
				(unsigned long long) pg_atomic_read_u64(&paq_live.live->released));
		stress_give_up();
	}
}

/* Wait until nobody of those is left; false if one died instead. */
static bool
wait_for_end(bool of_consumer)
{
	double		since = now();
	uint64		progress = 0;
	pid_t		died;

	for (;;)
	{
		bool		running = of_consumer && consumer != 0;

		for (uint32 i = 0; i < n_producers; i++)
			running = running || producers[i] != 0;
		if (!running)
			return true;
		if (somebody_died(&died))
			return false;
		check_progress(&since, &progress);
		pg_usleep(100);
	}
}

/* Clean shutdown: first the sessions, then the worker. */
static void
stop(void)
{
	stress_arm("", 0);
	pg_atomic_write_u32(&stress->stop_producers, 1);
	if (!wait_for_end(false))
	{
		fprintf(stderr, "FAILED: a process died at shutdown\n");
		stress_give_up();
	}
	pg_atomic_write_u32(&stress->stop_consumer, 1);
	SetLatch(&stress->latches[MAX_PRODUCERS]);
	if (!wait_for_end(true))
	{
		fprintf(stderr, "FAILED: the consumer died at shutdown\n");
		stress_give_up();
	}
}

/* Up to 4 ms, mostly less */
static void
random_delay(void)
{
	pg_usleep(stress_random(1 << (5 + stress_random(8))));
}

/*
 * Wait for the death of who passes the armed point.  The consumer's may be
 * its own affair.
 */
static void
live_until_point(void)
{
	double		limit = now() + POINT_LIMIT / 1000.0;
	int			restarts = stress_chance(50) ? stress_random(4) : 0;
	pid_t		died;

	while (now() < limit)
	{
		if (somebody_died(&died))
		{
			if (consumer != 0 || restarts-- == 0)
				break;
			stress_arm("*", 1 + stress_random(1000));
			start_consumer();
			consumer_restarts++;
		}
		stress_check_positions();
		pg_usleep(50);
	}
	stress_arm("", 0);
}

static void
live_until_signal(void)
{
	uint32		victim = stress_random(n_producers + 1);

	random_delay();
	if (victim < n_producers)
		kill_child(&producers[victim]);
	else
		kill_child(&consumer);
	/* the postmaster needs a moment to notice */
	if (stress_chance(50))
		random_delay();
}

/*
 * Everybody is dead: who was about to publish, or drop, a record?  Unless
 * forget is set, they live on.
 */
void
stress_note_deaths(bool forget)
{
	for (uint32 i = 0; i < n_producers; i++)
	{
		Account    *account = &stress->account[i];
		uint64		last = account->next_id - 1;

		if (account->publishing != 0 ||
			stress->state[i][last] == STATE_CREATING)
			stress->busy_deaths++;
		if (forget)
			account->publishing = 0;
	}
}

/* From start to end of a "server" */
void
stress_live(Ending ending)
{
	static uint32 turn = 0;
	uint32		target;

	life++;
	total_lives++;
	if (stress_random(10) == 0)
		startup_killed();
	stress_startup();
	if (ending == END_POINT)
	{
		target = turn++ % lengthof(targets);
		stress_arm(targets[target].name, 1 + stress_random(targets[target].limit));
	}
	if (stress_chance(50))
		start_consumer();
	start_producers(n_producers, MAX_IDS / 64);
	if (consumer == 0)
		start_consumer();

	switch (ending)
	{
		case END_POINT:
			live_until_point();
			break;
		case END_SIGNAL:
			live_until_signal();
			break;
		case END_ALL:
			random_delay();
			break;
		case END_STOP:
			random_delay();
			stop();
			return;
	}
	kill_children();
	if (pg_atomic_read_u32(&stress->failed) != 0)
		stress_give_up();
	stress_note_deaths(true);
	total_kills[ending]++;
}

/* A life in which the queue gets full, down to the last byte that fits */
void
stress_live_full(void)
{
	uint64		child_seed = stress_random64();

	life++;
	stress_startup();
	producers[0] = stress_start_child();
	if (producers[0] == 0)
		stress_filler(life, child_seed);
	(void) wait_for_end(false);
	start_consumer();
	stop();
}

/*
 * A life in which the consumer goes to sleep after each record, and has to be
 * woken by the next one.
 */
void
stress_live_sleepy(void)
{
	int			threshold = paq_flush_threshold;
	bool		sleepy = stress->sleepy;
	bool		lazy = stress->lazy;

	life++;
	stress_startup();
	stress->sleepy = true;
	stress->lazy = false;
	paq_flush_threshold = 100;
	start_consumer();
	start_producers(1, SLEEPY_RECORDS);
	if (!wait_for_end(false))
		stress_give_up();
	stop();
	stress->sleepy = sleepy;
	stress->lazy = lazy;
	paq_flush_threshold = threshold;
}

/*
 * Nobody knows of the records that producers were putting into the ring when
 * they died, unless their slot survives the life.
 */
static void
forget_unnoticed(void)
{
	for (uint32 i = 0; i < n_producers; i++)
	{
		Account    *account = &stress->account[i];
		uint8	   *state = &stress->state[i][account->publishing];

		if (account->publishing != 0 && *state == STATE_PUBLISHING)
			*state = STATE_UNNOTICED;
		account->publishing = 0;
	}
}

/*
 * A life in which the postmaster takes no notice of a death: what the process
 * had reserved is never committed, and all others go on.  The first one dies
 * where each record passes, and has reserved something by then.
 */
void
stress_live_unnoticed(void)
{
	static const char *const points[] = {
		"writer-borrowed", "ring-claimed", "ring-unplaced", "ring-reserved",
		"ring-copied"
	};

	life++;
	stress_startup();
	stress->unnoticed = true;
	stress_arm(stress_chance(50) ? "ring-reserved" : "ring-copied",
			   1 + stress_random(300));
	start_consumer();
	start_producers(n_producers, UNNOTICED_RECORDS);
	while (!wait_for_end(false))
	{
		unnoticed_deaths++;

		/* It borrows a writer, too. */
		if (consumer == 0)
			start_consumer();
		if (stress_chance(50))
			stress_arm(points[stress_random(lengthof(points))], 1 + stress_random(300));
	}
	forget_unnoticed();
	stop();
	stress->unnoticed = false;
}

/* One process that has no slot dies at that point, or at none. */
static void
refuse(const char *point)
{
	uint64		child_seed = stress_random64();

	stress_arm(point, 1);
	producers[0] = stress_start_child();
	if (producers[0] == 0)
		stress_producer(0, true, life, child_seed, 50);
	if (wait_for_end(false) != (point[0] == '\0'))
	{
		fprintf(stderr, "FAILED: a process did not die at \"%s\"\n", point);
		stress_give_up();
	}
	stress_note_deaths(true);
}

/*
 * A life in which many processes without slot are killed before it ends, one
 * after the other, as those may be that refuse clients while the server recovers
 * from a crash.  Before they have claimed anything: more than can be at it.
 */
void
stress_live_refused(void)
{
	static const char *const points[] = {
		"ring-claimed", "ring-unplaced", "ring-reserved"
	};
	int			size = paq_queue_size;
	uint32		frame_size = stress->frame_size;

	life++;
	paq_queue_size = REFUSED_SIZE;
	stress_startup();
	stress->alone = true;
	stress->frame_size = 256;
	for (uint32 i = 0; i < PAQ_NGUESTS; i++)
		refuse("writer-borrowed");
	for (uint32 i = 0; i < REFUSED_DEATHS; i++)
		refuse(points[stress_random(lengthof(points))]);
	refused_deaths += PAQ_NGUESTS + REFUSED_DEATHS;
	refuse("");
	stress->alone = false;
	stress->frame_size = frame_size;
	paq_queue_size = size;
}

/*
 * Was somebody killed at each of the points, and was what the dead had reserved
 * stepped over?
 */
bool
stress_has_seen_all(void)
{
	for (uint32 i = 0; i < lengthof(targets); i++)
		if (strcmp(targets[i].name, "*") != 0 &&
			pg_atomic_read_u64(&stress_point(targets[i].name)->kills) == 0)
			return false;
	return unnoticed_deaths > 0 && pg_atomic_read_u64(&stress->stepped_over) > 0;
}

/* A scenario begins, with so many producers. */
void
stress_lives_begin(uint32 n)
{
	n_producers = n;
	life = 0;
}

void
stress_print_lives(void)
{
	printf("%llu lives of the server: %llu ended at a fault point, %llu by a signal to one process, "
		   "%llu by a signal to all\n",
		   (unsigned long long) total_lives,
		   (unsigned long long) total_kills[END_POINT],
		   (unsigned long long) total_kills[END_SIGNAL],
		   (unsigned long long) total_kills[END_ALL]);
	printf("the consumer alone was restarted %llu times, startup was killed %llu times\n",
		   (unsigned long long) consumer_restarts,
		   (unsigned long long) startup_kills);
	printf("deaths of processes without slot, one after the other: %llu\n",
		   (unsigned long long) refused_deaths);
	printf("deaths unnoticed: %llu, stepped over: %llu\n",
		   (unsigned long long) unnoticed_deaths,
		   (unsigned long long) pg_atomic_read_u64(&stress->stepped_over));
}
