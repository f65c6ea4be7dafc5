/*-------------------------------------------------------------------------
 *
 * ring_time.c
 *		Times putting a record into the ring, without a server.
 *
 *	ring_time [--producers N] [--records N] [--directory DIR]
 *
 * Producers put records of 256 bytes into a ring of 64 MB, all the same
 * number, and a consumer takes them off.  All are processes of their own, and
 * run the project's own code of src/queue.  t/lib/ring/stubs.c has the functions
 * of a server that the code needs.
 *
 * A producer takes the time of blocks of records, in its own CPU time:
 * reserve, copy, checksum of the header, commit.  Before each block it waits
 * until there is space for all of the block, so no wait is timed.  Nor is the
 * time in which another process has the CPU.
 *
 * Prints JSON: nanoseconds a record, to put it (median, mean and 99th
 * percentile of blocks) and, for the consumer, to take it.  Exits with 1 if a
 * record is missing, doubled, or not in its producer's order.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include <dirent.h>
#include <getopt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guc.h"
#include "stats.h"

#define RECORD_SIZE		256
#define BLOCK			1000
#define QUEUE_KB		(64 * 1024)
#define MAX_RECORDS		100000000

/* Most records between two checkpoints of the consumer */
#define BATCH			5000

/* What the processes tell each other */
typedef struct Shared
{
	double		take_ns;
	uint32		nblocks;		/* of each producer */
	float		put_ns[FLEXIBLE_ARRAY_MEMBER];	/* a record, by producer and
												 * block */
} Shared;

static uint32 n_producers = 1;
static uint64 n_records = 1000000;
static char directory[MAXPGPATH] = "/tmp";
static char queue_directory[MAXPGPATH + 16];
static Shared *shared;

static double
cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

/* Make a record, RECORD_SIZE bytes of it, as a session would. */
static void
make_record(char *record, uint32 producer)
{
	static const char text[RECORD_SIZE] = {0};
	PaqRecordHeader header = {0};
	PaqSessionBlock session = {.data = ""};
	PaqText		statement[PAQ_NSTATEMENT_FIELDS] = {0};
	PaqText    *sql = &statement[PAQ_FIELD_STATEMENT - PAQ_NSESSION_FIELDS];

	header.kind = PAQ_KIND_AUDIT;
	header.audit_class = PAQ_CLASS_READ;
	header.pid = producer;
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		session.field_len[i] = PAQ_NULL_LEN;
	sql->data = text;
	sql->len = RECORD_SIZE - PAQ_RECORD_HEADER_SIZE;
	if (paq_record_size(0, &session, statement) != RECORD_SIZE)
		stress_fail("a record has %u bytes", paq_record_size(0, &session, statement));
	paq_record_encode(record, &header, &session, statement);
}

/* A session gets what it needs to put records with its first one. */
static void
attach(uint32 producer)
{
	PaqRecordHeader header = {0};
	PaqSessionBlock session = {.data = ""};
	PaqText		statement[PAQ_NSTATEMENT_FIELDS] = {0};

	stress_become(producer, B_BACKEND);
	header.kind = PAQ_KIND_AUDIT;
	header.audit_class = PAQ_CLASS_READ;
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		session.field_len[i] = PAQ_NULL_LEN;
	paq_pending_free(paq_pending_create(&header, &session, statement, true));
}

static void
wait_for_room(void)
{
	uint64		blocks = (uint64) n_producers * BLOCK * PAQ_FRAME_SIZE(RECORD_SIZE);

	while (paq_queue_used() + blocks > paq_queue_capacity() / 2)
		pg_usleep(50);
}

pg_noreturn static void
producer(uint32 number)
{
	char		record[RECORD_SIZE];
	PaqRecordHeader *header = (PaqRecordHeader *) record;
	pg_crc32c	fields_crc;
	int64		id = 0;

	attach(number);
	make_record(record, number);
	fields_crc = paq_fields_crc(record, RECORD_SIZE);
	for (uint32 block = 0; block < shared->nblocks; block++)
	{
		double		begin;

		wait_for_room();
		begin = cpu_ns();
		for (int i = 0; i < BLOCK; i++)
		{
			header->statement_id = ++id;
			if (paq_ring_put(record, RECORD_SIZE, fields_crc, PAQ_SPACE_NOWAIT, NULL) == 0)
				stress_fail("there is no space");
		}
		shared->put_ns[number * shared->nblocks + block] = (cpu_ns() - begin) / BLOCK;
	}
	stress_exit();
}

/* Take what there is, at most a batch; returns the number of records. */
static uint32
take_batch(PaqReader *reader, int64 *last)
{
	PaqRecord	record;
	PaqGap		gap;
	PaqReadResult result;
	uint32		n = 0;

	while (n < BATCH && (result = paq_reader_next(reader, &record, &gap)) != PAQ_READ_END &&
		   result != PAQ_READ_BUSY)
	{
		if (result != PAQ_READ_RECORD)
			stress_fail("a gap: %s", gap.message);
		if (record.header.statement_id != ++last[record.header.pid])
			stress_fail("record %lld of producer %d follows record %lld",
						(long long) record.header.statement_id, record.header.pid,
						(long long) last[record.header.pid] - 1);
		n++;
	}
	return n;
}

pg_noreturn static void
consumer(void)
{
	PaqCheckpoint checkpoint;
	TrailState	trail = {0};
	PaqReader  *reader;
	bool		trusted;
	int64		last[MAX_PRODUCERS] = {0};
	uint64		taken = 0;
	uint64		total = (uint64) n_producers * shared->nblocks * BLOCK;
	double		busy = 0;

	stress_become(MAX_PRODUCERS, B_BG_WORKER);
	paq_worker_attach();
	reader = paq_reader_open(&checkpoint, &trusted);
	while (taken < total)
	{
		double		begin = cpu_ns();
		uint32		n = take_batch(reader, last);

		if (n == 0)
		{
			pg_usleep(50);
			continue;
		}
		taken += n;
		paq_reader_checkpoint(reader, taken, &trail);
		paq_reader_flushed(reader, taken, &trail);
		busy += cpu_ns() - begin;
	}
	shared->take_ns = busy / total;
	paq_reader_close(reader, taken, &trail);
	stress_exit();
}

static uint64
number_argument(const char *text, uint64 max)
{
	char	   *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < 1 || value > max)
	{
		fprintf(stderr, "not a number from 1 to %llu: %s\n", (unsigned long long) max, text);
		exit(2);
	}
	return value;
}

static void
read_options(int argc, char **argv)
{
	static const struct option options[] = {
		{"producers", required_argument, NULL, 'p'},
		{"records", required_argument, NULL, 'n'},
		{"directory", required_argument, NULL, 'd'},
		{NULL, 0, NULL, 0}
	};
	int			c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1)
	{
		switch (c)
		{
			case 'p':
				n_producers = number_argument(optarg, MAX_PRODUCERS);
				break;
			case 'n':
				n_records = number_argument(optarg, MAX_RECORDS);
				break;
			case 'd':
				strlcpy(directory, optarg, sizeof(directory));
				break;
			default:
				exit(2);
		}
	}
}

static void
start_queue(void)
{
	Size		size = sizeof(Shared);
	uint32		nblocks = Max(n_records / n_producers / BLOCK, 1);

	stress_init();
	size += sizeof(float) * nblocks * n_producers;
	shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
	{
		perror("mmap");
		exit(1);
	}
	shared->nblocks = nblocks;
	MyProcPid = getpid();
	snprintf(queue_directory, sizeof(queue_directory), "%s/q.%d", directory, (int) getpid());
	paq_queue_directory = queue_directory;
	paq_queue_size = QUEUE_KB;
	paq_stats_shmem_init(MaxBackends);
	paq_queue_startup();
}

/* Start a process, which is the consumer if it is number n_producers. */
static void
start_process(uint32 number)
{
	pid_t		parent = getpid();
	pid_t		pid = fork();

	if (pid < 0)
	{
		perror("fork");
		exit(1);
	}
	if (pid > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	if (number == n_producers)
		consumer();
	producer(number);
}

/* Wait for all; the first that fails ends the program, and the others with it. */
static void
wait_for_processes(void)
{
	int			status;

	while (wait(&status) > 0)
		if (status != 0)
			exit(1);
}

static void
remove_queue(void)
{
	DIR		   *dir = opendir(queue_directory);
	struct dirent *de;
	char		path[MAXPGPATH * 2];

	while (dir != NULL && (de = readdir(dir)) != NULL)
	{
		snprintf(path, sizeof(path), "%s/%s", queue_directory, de->d_name);
		if (de->d_name[0] != '.')
			(void) unlink(path);
	}
	if (dir != NULL)
		closedir(dir);
	(void) rmdir(queue_directory);
}

static int
compare_floats(const void *a, const void *b)
{
	float		x = *(const float *) a;
	float		y = *(const float *) b;

	return (x > y) - (x < y);
}

static void
print_result(void)
{
	uint32		n = shared->nblocks * n_producers;
	double		sum = 0;

	qsort(shared->put_ns, n, sizeof(float), compare_floats);
	for (uint32 i = 0; i < n; i++)
		sum += shared->put_ns[i];
	printf("{\"producers\": %u, \"records\": %llu, \"record_bytes\": %d, "
		   "\"put_ns\": {\"median\": %.1f, \"mean\": %.1f, \"p99\": %.1f}, \"take_ns\": %.1f}\n",
		   n_producers, (unsigned long long) n * BLOCK, RECORD_SIZE,
		   shared->put_ns[n / 2], sum / n, shared->put_ns[n * 99 / 100],
		   shared->take_ns);
}

int
main(int argc, char **argv)
{
	read_options(argc, argv);
	start_queue();
	atexit(remove_queue);
	for (uint32 i = 0; i <= n_producers; i++)
		start_process(i);
	wait_for_processes();
	print_result();
	return 0;
}
