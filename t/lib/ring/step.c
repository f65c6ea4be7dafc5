/*-------------------------------------------------------------------------
 *
 * step.c
 *		Death at every single instruction.
 *
 * A process is run one instruction at a time, as long as it is in the queue's
 * code or writes to the trail.  Whenever an instruction has changed anything
 * that outlives the process - the queue file, the trail - a copy of both is
 * recovered as after a crash of the server.  The recovered trail is compared
 * with the account that the process has kept so far.  A killed process leaves
 * what it has stored by then, so this is the same as killing it after each
 * instruction.
 *
 * There are three such processes: a producer, a producer that fills the queue
 * and drops records for which there is no space, and a consumer that finds
 * backlog.
 *
 * Needs ptrace(2) on processes of one's own.  stress->alone keeps the producer
 * from waiting for a process that is not there.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guc.h"
#include "miscadmin.h"
#include "stats.h"

/* Records of the producer that is stepped, and of those before a consumer */
#define STEP_RECORDS	12
#define FILL_RECORDS	20
#define BACKLOG_FILES	2

/* Memory or a file that has to be watched */
typedef struct Watched
{
	char	   *data;
	Size		size;
	char	   *seen;			/* copy of data as of the last look */
	struct stat st;				/* of fd, as of the last look */
	int			fd;				/* -1: none */
} Watched;

static Watched watched[BACKLOG_FILES + 3];
static int	nwatched;
static char copy_directory[MAXPGPATH];

static void
watch(char *data, Size size, int fd)
{
	Watched    *w = &watched[nwatched++];

	memset(w, 0, sizeof(*w));
	w->data = data;
	w->size = size;
	w->fd = fd;
	if (data != NULL)
	{
		w->seen = palloc(size);
		memcpy(w->seen, data, size);
	}
	if (fd >= 0 && fstat(fd, &w->st) != 0)
		stress_fail("could not stat a file: %m");
}

static void
watch_path(const char *path, bool map)
{
	int			fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;
	char	   *data = NULL;

	if (fd < 0 || fstat(fd, &st) != 0)
		stress_fail("could not open \"%s\": %m", path);
	if (map)
	{
		data = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
		if (data == MAP_FAILED)
			stress_fail("could not map \"%s\": %m", path);
	}
	watch(data, map ? st.st_size : 0, fd);
}

static void
forget_watched(void)
{
	for (int i = 0; i < nwatched; i++)
	{
		if (watched[i].fd >= 0 && watched[i].data != NULL)
			munmap(watched[i].data, watched[i].size);
		if (watched[i].fd >= 0)
			close(watched[i].fd);
		free(watched[i].seen);
	}
	nwatched = 0;
}

/* Has anything changed since the last call? */
static bool
changed(void)
{
	bool		result = false;

	for (int i = 0; i < nwatched; i++)
	{
		Watched    *w = &watched[i];
		struct stat st;

		if (w->fd >= 0 && fstat(w->fd, &st) == 0 &&
			(st.st_size != w->st.st_size || st.st_nlink != w->st.st_nlink))
		{
			w->st = st;
			result = true;
		}
		if (w->data != NULL && memcmp(w->data, w->seen, w->size) != 0)
		{
			memcpy(w->seen, w->data, w->size);
			result = true;
		}
	}
	return result;
}

/* The copy is to be taken for the original. */
static void
adopt_header(int fd)
{
	PaqFileHeader header;
	struct stat st;

	if (pread(fd, &header, sizeof(header), 0) != sizeof(header) ||
		fstat(fd, &st) != 0)
		stress_fail("could not read the header of a queue file");
	header.inode = st.st_ino;
	header.birth = 0;
	INIT_CRC32C(header.crc);
	COMP_CRC32C(header.crc, &header, offsetof(PaqFileHeader, crc));
	FIN_CRC32C(header.crc);
	if (pwrite(fd, &header, sizeof(header), 0) != sizeof(header))
		stress_fail("could not write the header of a queue file");
}

static void
copy_file(const char *from, const char *to, bool queue)
{
	static char buf[256 * 1024];
	int			in = open(from, O_RDONLY | O_CLOEXEC);
	int			out = open(to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t		n;

	if (in < 0 || out < 0)
		stress_fail("could not copy \"%s\": %m", from);
	while ((n = read(in, buf, sizeof(buf))) > 0)
		if (write(out, buf, n) != n)
			stress_fail("could not write \"%s\": %m", to);
	if (queue)
		adopt_header(out);
	close(in);
	close(out);
}

static void
empty_directory(const char *path)
{
	DIR		   *dir = opendir(path);
	struct dirent *de;
	char		name[2 * MAXPGPATH];

	while (dir != NULL && (de = readdir(dir)) != NULL)
	{
		snprintf(name, sizeof(name), "%s/%s", path, de->d_name);
		if (de->d_name[0] != '.')
			unlink(name);
	}
	if (dir != NULL)
		closedir(dir);
}

static void
copy_everything(void)
{
	DIR		   *dir;
	struct dirent *de;
	char		from[2 * MAXPGPATH];
	char		to[2 * MAXPGPATH];

	mkdir(copy_directory, 0700);
	empty_directory(copy_directory);
	dir = opendir(paq_queue_directory);
	while (dir != NULL && (de = readdir(dir)) != NULL)
	{
		if (de->d_name[0] == '.' || strcmp(de->d_name, "lock") == 0)
			continue;
		snprintf(from, sizeof(from), "%s/%s", paq_queue_directory, de->d_name);
		snprintf(to, sizeof(to), "%s/%s", copy_directory, de->d_name);
		copy_file(from, to, strncmp(de->d_name, PAQ_QUEUE_FILE,
									strlen(PAQ_QUEUE_FILE)) == 0);
	}
	if (dir != NULL)
		closedir(dir);
	snprintf(from, sizeof(from), "%s.trail", paq_queue_directory);
	snprintf(to, sizeof(to), "%s.trail", copy_directory);
	if (access(from, F_OK) == 0)
		copy_file(from, to, false);
	else
		unlink(to);
}

/* Recover the copy, in a process with memory of its own. */
static void
recover(void)
{
	Stress	   *copy = palloc(sizeof(Stress));

	/* not the large arrays behind */
	memcpy(copy, stress, offsetof(Stress, state));
	stress = copy;
	paq_queue_directory = copy_directory;
	stress_startup();
	stress->alone = stress->stepping = false;
	pg_atomic_write_u32(&stress->stop_consumer, 1);
	stress_consumer(stress_random64());
}

/* If everybody was killed now, what would the trail have in the end? */
static void
check_crash(const char *what, uint64 steps)
{
	char	   *directory = paq_queue_directory;
	uint32		busy_deaths = stress->busy_deaths;
	int			status;
	pid_t		pid;

	copy_everything();
	pid = stress_start_child();
	if (pid == 0)
		recover();
	if (waitpid(pid, &status, 0) != pid || status != 0)
		stress_fail("recovery failed after instruction %llu of the %s",
					(unsigned long long) steps, what);
	stress_note_deaths(false);
	paq_queue_directory = copy_directory;
	stress_context = psprintf("after instruction %llu of the %s",
							  (unsigned long long) steps, what);
	(void) stress_check_trail();
	pfree(stress_context);
	stress_context = NULL;
	paq_queue_directory = directory;
	stress->busy_deaths = busy_deaths;
}

/* Be stepped from the next stress_window() on. */
static void
become_traced(void)
{
	stress->stepping = true;

	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(77);
	raise(SIGSTOP);
}

/*
 * Step the process to its end.  Returns false if processes cannot be traced.
 */
static bool
step_through(pid_t pid, const char *what)
{
	uint64		steps = 0;
	uint64		crashes = 0;
	int			status;

	if (waitpid(pid, &status, 0) != pid)
		stress_fail("waitpid failed: %m");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return false;
	while (WIFSTOPPED(status))
	{
		bool		step = stress->in_window;
		int			signal = WSTOPSIG(status);

		if (signal == SIGTRAP || signal == SIGSTOP)
			signal = 0;
		if (ptrace(step ? PTRACE_SINGLESTEP : PTRACE_CONT, pid, NULL,
				   (void *) (intptr_t) signal) != 0 ||
			waitpid(pid, &status, 0) != pid)
			stress_fail("could not step: %m");
		steps += step;
		if (changed())
		{
			check_crash(what, steps);
			crashes++;
		}
	}
	stress->stepping = stress->in_window = false;
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		stress_fail("the %s that was stepped ended with status %d", what, status);
	if (stress_verbose)
		printf("%s: %llu instructions, %llu states\n", what,
			   (unsigned long long) steps, (unsigned long long) crashes);
	stress->stepped += steps;
	stress->step_crashes += crashes;
	return true;
}

/* A life of one producer, without a consumer */
static pid_t
start_producer(uint64 life, uint32 records, bool traced)
{
	uint64		seed = stress_random64();
	pid_t		pid;

	stress_startup();
	pid = stress_start_child();
	if (pid == 0)
	{
		if (traced)
			become_traced();
		stress_producer(0, false, life, seed, records);
	}
	return pid;
}

static bool
step_producer(uint64 life, uint32 records)
{
	pid_t		pid = start_producer(life, records, true);

	watch((char *) paq_live.base, paq_live.header->ring_offset + paq_live.ring_size, -1);
	return step_through(pid, "producer");
}

/* Leave some queue files that a crash would, and step a consumer over them. */
static bool
step_consumer(uint64 life)
{
	static const char *const points[BACKLOG_FILES] = {"ring-copied", "test-pending"};
	char		path[MAXPGPATH];
	uint64		seed = stress_random64();
	pid_t		pid;
	int			fd;

	for (int i = 0; i < BACKLOG_FILES; i++)
	{
		stress_arm(points[i], 1 + stress_random(STEP_RECORDS));
		waitpid(start_producer(life++, STEP_RECORDS, false), NULL, 0);
		stress_arm("", 0);
		stress_note_deaths(true);
	}
	waitpid(start_producer(life, STEP_RECORDS, false), NULL, 0);

	/* a trail to be watched, although there is nothing in it */
	snprintf(path, sizeof(path), "%s.trail", paq_queue_directory);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	close(fd);
	watch_path(path, false);
	watch((char *) paq_live.base, paq_live.header->ring_offset + paq_live.ring_size, -1);
	for (uint32 i = 1; i <= BACKLOG_FILES; i++)
	{
		paq_backlog_path(path, i);
		if (access(path, F_OK) == 0)
			watch_path(path, true);
	}

	pg_atomic_write_u32(&stress->stop_consumer, 1);
	pid = stress_start_child();
	if (pid == 0)
	{
		become_traced();
		stress_consumer(seed);
	}
	return step_through(pid, "consumer");
}

/*
 * Step a process of that kind.  Returns false if processes cannot be traced
 * here.
 */
bool
stress_step(StepKind kind)
{
	cpu_set_t	all;
	cpu_set_t	one;
	bool		result;

	/* Going back and forth between two processes is faster on one processor. */
	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);

	snprintf(copy_directory, sizeof(copy_directory), "%s.copy",
			 paq_queue_directory);
	stress->alone = true;
	switch (kind)
	{
		case STEP_PRODUCER:
			paq_queue_size = 16;
			result = step_producer(1, STEP_RECORDS);
			break;
		case STEP_DROPPER:
			paq_queue_size = 4;
			paq_overflow = PAQ_OVERFLOW_DROP;
			stress->frame_size = 256;
			result = step_producer(1, FILL_RECORDS);
			break;
		default:
			paq_queue_size = 8;
			result = step_consumer(1);
			break;
	}
	forget_watched();
	stress->alone = false;
	sched_setaffinity(0, sizeof(all), &all);
	empty_directory(copy_directory);
	rmdir(copy_directory);
	strlcat(copy_directory, ".trail", sizeof(copy_directory));
	unlink(copy_directory);
	return result;
}
