/*-------------------------------------------------------------------------
 *
 * main.c
 *		Stress program for the queue.
 *
 *	ring_stress [--seed N] [--scenarios N] [--lives N] [--seconds N]
 *				[--steps N] [--directory DIR] [--verbose]
 *
 * Runs scenarios (scenario.c), for so many seconds unless their number is
 * given, and then so many rounds of step.c.  If somebody has not yet been killed
 * at each fault point by then, it goes on for up to MAX_TIMES times as long.
 *
 * The program proves that
 *
 * - every record whose publishing has returned is in the trail exactly once,
 *   in its producer's order, whole;
 * - a record in a pending slot comes out of the slot as interrupted if it has
 *   not got into the ring;
 * - nothing else is in the trail;
 * - positions are in order at all times;
 * - a wait for a flush does not end before the trail has the record;
 * - a sleeping worker is woken.
 *
 * The program does not prove that barriers suffice on machines with weaker
 * ordering than the one on which it runs.  ThreadSanitizer is no help, because
 * it does not follow memory that processes share through a file.
 *
 * A failure is reported with the seed of its scenario: --seed N --scenarios 1
 * runs that one.  The order in which processes run is not part of the seed, so
 * it may take several attempts.  Exits with 0 if nothing failed.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include <getopt.h>
#include <time.h>
#include <unistd.h>

#include "guc.h"
#include "miscadmin.h"

/* So many scenarios there are even where time is short. */
#define MIN_SCENARIOS	5

/* So many times as long it may take to see a death at each point. */
#define MAX_TIMES		10

static uint64 seed = 0;
static uint32 n_scenarios = 0;
static uint32 n_lives = 40;
static uint32 n_seconds = 20;
static uint32 n_steps = 0;
static char directory[MAXPGPATH] = "/tmp";

static uint64 trail_records = 0;

static void
print_summary(void)
{
	stress_print_lives();
	printf("%llu records in the trails; read, repetitions included: %llu records, %llu bytes, %llu interrupted\n",
		   (unsigned long long) trail_records,
		   (unsigned long long) pg_atomic_read_u64(&stress->records),
		   (unsigned long long) pg_atomic_read_u64(&stress->bytes),
		   (unsigned long long) pg_atomic_read_u64(&stress->interrupted));
	printf("%llu waits (%llu cancelled, %llu timed out), %llu errors, %llu dropped, %llu rewinds, %llu retreats, %llu hibernations\n",
		   (unsigned long long) pg_atomic_read_u64(&stress->waits),
		   (unsigned long long) pg_atomic_read_u64(&stress->cancels),
		   (unsigned long long) pg_atomic_read_u64(&stress->timeouts),
		   (unsigned long long) pg_atomic_read_u64(&stress->errors),
		   (unsigned long long) pg_atomic_read_u64(&stress->drops),
		   (unsigned long long) pg_atomic_read_u64(&stress->rewinds),
		   (unsigned long long) pg_atomic_read_u64(&stress->retreats),
		   (unsigned long long) pg_atomic_read_u64(&stress->hibernations));
	printf("%llu instructions stepped, %llu states after them recovered\n",
		   (unsigned long long) stress->stepped,
		   (unsigned long long) stress->step_crashes);
	printf("point: killed/passed");
	for (uint32 i = 0; i < pg_atomic_read_u32(&stress->npoints); i++)
		printf("  %s: %llu/%llu", stress->points[i].name,
			   (unsigned long long) pg_atomic_read_u64(&stress->points[i].kills),
			   (unsigned long long) pg_atomic_read_u64(&stress->points[i].passed));
	printf("\n");
}

static uint64
number_argument(const char *text)
{
	char	   *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (*text == '\0' || *end != '\0')
	{
		fprintf(stderr, "not a number: %s\n", text);
		exit(2);
	}
	return value;
}

static void
read_options(int argc, char **argv)
{
	static const struct option options[] = {
		{"seed", required_argument, NULL, 's'},
		{"scenarios", required_argument, NULL, 'n'},
		{"lives", required_argument, NULL, 'l'},
		{"seconds", required_argument, NULL, 't'},
		{"steps", required_argument, NULL, 'p'},
		{"directory", required_argument, NULL, 'd'},
		{"verbose", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0}
	};
	int			c;

	seed = time(NULL);
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
	{
		switch (c)
		{
			case 's':
				seed = number_argument(optarg);
				break;
			case 'n':
				n_scenarios = number_argument(optarg);
				break;
			case 'l':
				n_lives = number_argument(optarg);
				break;
			case 't':
				n_seconds = number_argument(optarg);
				break;
			case 'p':
				n_steps = number_argument(optarg);
				break;
			case 'd':
				strlcpy(directory, optarg, sizeof(directory));
				break;
			case 'v':
				stress_verbose = true;
				break;
			default:
				exit(2);
		}
	}
}

/* Is there to be another scenario, with so many done since then? */
static bool
go_on(uint32 done, time_t begun)
{
	time_t		passed = time(NULL) - begun;

	if (n_scenarios > 0)
		return done < n_scenarios;
	return passed < n_seconds ||
		(n_seconds > 0 && done < MIN_SCENARIOS) ||
		(passed < (time_t) n_seconds * MAX_TIMES && !stress_has_seen_all());
}

int
main(int argc, char **argv)
{
	static char queue_directory[MAXPGPATH + 16];
	uint32		done = 0;
	time_t		begun;

	read_options(argc, argv);
	printf("seed %llu\n", (unsigned long long) seed);
	stress_init();
	MyProcPid = getpid();
	snprintf(queue_directory, sizeof(queue_directory), "%s/q.%d", directory,
			 (int) getpid());
	paq_queue_directory = queue_directory;

	begun = time(NULL);
	while (go_on(done, begun))
	{
		trail_records += stress_run_scenario(seed++, n_lives);
		done++;
	}
	for (uint32 i = 0; i < n_steps; i++)
		stress_run_steps(seed++);
	printf("%u scenarios\n", done);
	print_summary();
	return 0;
}
