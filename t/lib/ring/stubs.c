/*-------------------------------------------------------------------------
 *
 * stubs.c
 *		The functions of a server that the queue needs, for a program without
 *		a server.
 *
 * Memory comes from malloc.  A report that the queue makes is a failure of the
 * test.  Latches and condition variables are flags that their owner polls.
 * Short functions that nobody calls are here as well, so that a change of the
 * queue does not always need one here.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include <dirent.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/file_perm.h"
#include "guc.h"
#include "libpq/pqsignal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "portability/instr_time.h"
#include "queue/wal.h"
#include "replication/walsender.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/s_lock.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#undef palloc

/* How long a process sleeps before it looks again, microseconds */
#define POLL_US		50

/* ---------------------------------------------------------------------
 * Variables of the server, and the settings
 * ---------------------------------------------------------------------
 */
bool		IsUnderPostmaster = false;
bool		enableFsync = false;
bool		am_walsender = false;
int			MaxBackends = MAX_PRODUCERS;
int			MyProcPid = 0;
TimestampTz MyStartTimestamp = 0;
BackendType MyBackendType = B_INVALID;
PGPROC	   *MyProc = NULL;
struct Latch *MyLatch = NULL;
sigset_t	BlockSig;
sigset_t	UnBlockSig;
MemoryContext TopMemoryContext = NULL;
MemoryContext CurrentMemoryContext = NULL;
volatile sig_atomic_t InterruptPending = false;
volatile uint32 InterruptHoldoffCount = 0;
bool		ExitOnAnyError = false;
ErrorContextCallback *error_context_stack = NULL;
pid_t		PostmasterPid = 0;
TimestampTz PgStartTime = 0;
int			pg_dir_create_mode = S_IRWXU;
int			pg_file_create_mode = S_IRUSR | S_IWUSR;
DEFINE_PROC_NUMBER;

int			paq_queue_size = 64;
char	   *paq_queue_directory = NULL;
int			paq_flush_interval = 1000;
int			paq_flush_threshold = 50;
int			paq_overflow = PAQ_OVERFLOW_WAIT;
bool		paq_fsync = true;

/* Be a process of that kind; number < 0: one that has no PGPROC. */
void
stress_become(int number, BackendType type)
{
	IsUnderPostmaster = true;
	MyBackendType = type;
	MyProcPid = getpid();
	sigfillset(&BlockSig);
	sigemptyset(&UnBlockSig);
	if (number < 0)
		return;
	MyProc = &stress->procs[number];
	MyLatch = &stress->latches[number];
	paq_set_proc_number(number);
}

/* ---------------------------------------------------------------------
 * Reports
 * ---------------------------------------------------------------------
 */
sigjmp_buf *stress_error = NULL;
static int	report_level;
static char report_text[1024];

bool
errstart(int elevel, const char *domain)
{
	report_level = elevel;
	report_text[0] = '\0';
	return true;
}

bool
errstart_cold(int elevel, const char *domain)
{
	return errstart(elevel, domain);
}

void
errfinish(const char *filename, int lineno, const char *funcname)
{
	if (report_level < LOG ||
		strstr(report_text, "% full") != NULL ||
		strstr(report_text, "waiting for the audit") != NULL)
		return;
	if (stress_error != NULL && strstr(report_text, "queue is full") != NULL)
	{
		pg_atomic_fetch_add_u64(&stress->errors, 1);
		siglongjmp(*stress_error, 1);
	}
	stress_fail("%s:%d reports: %s", filename, lineno, report_text);
}

#define APPEND_TEXT() \
	do { \
		size_t		used = strlen(report_text); \
		va_list		args; \
		va_start(args, fmt); \
		vsnprintf(report_text + used, sizeof(report_text) - used, fmt, args); \
		va_end(args); \
	} while (0)

int
errmsg(const char *fmt,...)
{
	APPEND_TEXT();
	return 0;
}

int
errmsg_internal(const char *fmt,...)
{
	APPEND_TEXT();
	return 0;
}

int
errmsg_plural(const char *singular, const char *plural, unsigned long n,...)
{
	strlcpy(report_text, plural, sizeof(report_text));
	return 0;
}

int
errdetail(const char *fmt,...)
{
	APPEND_TEXT();
	return 0;
}

int
errdetail_log(const char *fmt,...)
{
	return 0;
}

int
set_errcontext_domain(const char *domain)
{
	return 0;
}

int
errcontext_msg(const char *fmt,...)
{
	return 0;
}

int
errhint(const char *fmt,...)
{
	return 0;
}

int
errcode(int sqlerrcode)
{
	return 0;
}

int
errcode_for_file_access(void)
{
	return 0;
}

void
ExceptionalCondition(EXCEPTIONAL_CONDITION_ARGS)
{
	stress_fail("assertion failed at %s:%d: %s", file, line, condition);
}

/* ---------------------------------------------------------------------
 * Memory and lists
 * ---------------------------------------------------------------------
 */
bool		stress_no_memory = false;

void *
palloc(Size size)
{
	void	   *p = malloc(Max(size, 1));

	if (p == NULL)
		stress_fail("out of memory");
	return p;
}

void *
palloc0(Size size)
{
	return memset(palloc(size), 0, size);
}

void *
MemoryContextAlloc(MemoryContext context, Size size)
{
	return palloc(size);
}

void *
MemoryContextAllocExtended(MemoryContext context, Size size, int flags)
{
	void	   *p;

	if ((flags & MCXT_ALLOC_NO_OOM) && stress_no_memory &&
		stress_random(500) == 0)
		return NULL;
	p = palloc(size);
	if (flags & MCXT_ALLOC_ZERO)
		memset(p, 0, size);
	return p;
}

void *
repalloc(void *pointer, Size size)
{
	void	   *p = realloc(pointer, size);

	if (p == NULL)
		stress_fail("out of memory");
	return p;
}

void *
repalloc_huge(void *pointer, Size size)
{
	return repalloc(pointer, size);
}

Size
GetMemoryChunkSpace(void *pointer)
{
	return malloc_usable_size(pointer);
}

void
pfree(void *pointer)
{
	free(pointer);
}

char *
pnstrdup(const char *in, Size len)
{
	Size		n = strnlen(in, len);
	char	   *copy = palloc(n + 1);

	memcpy(copy, in, n);
	copy[n] = '\0';
	return copy;
}

char *
pstrdup(const char *in)
{
	return pnstrdup(in, strlen(in));
}

char *
psprintf(const char *fmt,...)
{
	char		text[2048];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return pstrdup(text);
}

static void
list_grow(List *list)
{
	ListCell   *elements = palloc(2 * list->max_length * sizeof(ListCell));

	memcpy(elements, list->elements, list->length * sizeof(ListCell));
	if (list->elements != list->initial_elements)
		free(list->elements);
	list->elements = elements;
	list->max_length *= 2;
}

List *
lappend(List *list, void *datum)
{
	if (list == NIL)
	{
		list = palloc(sizeof(List));
		list->type = T_List;
		list->length = 0;
		list->max_length = 4;
		list->elements = palloc(4 * sizeof(ListCell));
	}
	if (list->length == list->max_length)
		list_grow(list);
	list->elements[list->length++].ptr_value = datum;
	return list;
}

List *
list_concat(List *list1, const List *list2)
{
	for (int i = 0; i < list_length(list2); i++)
		list1 = lappend(list1, list2->elements[i].ptr_value);
	return list1;
}

void
list_free(List *list)
{
	if (list == NIL)
		return;
	free(list->elements);
	free(list);
}

void
list_free_deep(List *list)
{
	for (int i = 0; i < list_length(list); i++)
		free(list->elements[i].ptr_value);
	list_free(list);
}

int
GetDatabaseEncoding(void)
{
	return PG_SQL_ASCII;
}

int
pg_encoding_mbcliplen(int encoding, const char *mbstr, int len, int limit)
{
	return Min(len, limit);
}

/* ---------------------------------------------------------------------
 * Files.  What the operating system holds survives everything here, so
 * nothing is written to disk.
 * ---------------------------------------------------------------------
 */
int
BasicOpenFile(const char *fileName, int fileFlags)
{
	return open(fileName, fileFlags, S_IRUSR | S_IWUSR);
}

int
BasicOpenFilePerm(const char *fileName, int fileFlags, mode_t fileMode)
{
	return open(fileName, fileFlags, fileMode);
}

DIR *
AllocateDir(const char *dirname)
{
	return opendir(dirname);
}

struct dirent *
ReadDirExtended(DIR *dir, const char *dirname, int elevel)
{
	if (dir == NULL)
		stress_fail("could not open directory \"%s\"", dirname);
	return readdir(dir);
}

int
FreeDir(DIR *dir)
{
	return closedir(dir);
}

int
MakePGDirectory(const char *directoryName)
{
	return mkdir(directoryName, S_IRWXU);
}

int
pg_fsync(int fd)
{
	return 0;
}

int
pg_fdatasync(int fd)
{
	return 0;
}

void
fsync_fname(const char *fname, bool isdir)
{
}

int
msync(void *addr, size_t len, int flags)
{
	return 0;
}

int
durable_rename(const char *oldfile, const char *newfile, int elevel)
{
	if (rename(oldfile, newfile) != 0)
		stress_fail("could not rename \"%s\" to \"%s\"", oldfile, newfile);
	return 0;
}

int
durable_unlink(const char *fname, int elevel)
{
	if (unlink(fname) != 0)
		stress_fail("could not remove \"%s\"", fname);
	return 0;
}

/* ---------------------------------------------------------------------
 * Shared memory, processes, time
 * ---------------------------------------------------------------------
 */
void *
ShmemInitStruct(const char *name, Size size, bool *foundPtr)
{
	char	   *p = stress->server_memory + stress->server_memory_used;

	stress->server_memory_used += TYPEALIGN(128, size);
	if (stress->server_memory_used > SERVER_MEMORY)
		stress_fail("not enough memory for \"%s\"", name);
	*foundPtr = false;
	return p;
}

Size
add_size(Size s1, Size s2)
{
	return s1 + s2;
}

Size
mul_size(Size s1, Size s2)
{
	return s1 * s2;
}

int
s_lock(volatile slock_t *lock, const char *file, int line, const char *func)
{
	while (TAS_SPIN(lock))
		pg_usleep(1);
	return 0;
}

static struct
{
	pg_on_exit_callback function;
	Datum		arg;
}			exit_callbacks[16];
static int	n_exit_callbacks = 0;

void
on_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	if (n_exit_callbacks == lengthof(exit_callbacks))
		stress_fail("too many exit callbacks");
	exit_callbacks[n_exit_callbacks].function = function;
	exit_callbacks[n_exit_callbacks++].arg = arg;
}

void
before_shmem_exit(pg_on_exit_callback function, Datum arg)
{
	on_shmem_exit(function, arg);
}

/* End the process as PostgreSQL's processes end. */
void
stress_exit(void)
{
	while (n_exit_callbacks > 0)
	{
		n_exit_callbacks--;
		exit_callbacks[n_exit_callbacks].function(0, exit_callbacks[n_exit_callbacks].arg);
	}
	_exit(0);
}

void
ProcessInterrupts(void)
{
}

uint64
GetSystemIdentifier(void)
{
	return UINT64CONST(0x0123456789ABCDEF);
}

TimestampTz
GetCurrentTimestamp(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return (TimestampTz) tv.tv_sec * USECS_PER_SEC + tv.tv_usec;
}

const char *
timestamptz_to_str(TimestampTz t)
{
	return "now";
}

bool
pg_strong_random(void *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		((char *) buf)[i] = (char) stress_random64();
	return true;
}

/* ---------------------------------------------------------------------
 * Latches and condition variables
 * ---------------------------------------------------------------------
 */
void
SetLatch(Latch *latch)
{
	pg_memory_barrier();
	latch->is_set = true;
}

void
ResetLatch(Latch *latch)
{
	latch->is_set = false;
	pg_memory_barrier();
}

/* Wait for the own latch for timeout ms, -1: as long as it takes. */
void
stress_nap(long timeout)
{
	volatile Latch *latch = MyLatch;
	TimestampTz end = GetCurrentTimestamp() + timeout * 1000;

	while (!latch->is_set &&
		   (timeout < 0 || GetCurrentTimestamp() < end))
		pg_usleep(POLL_US);
	ResetLatch(MyLatch);
}

/*
 * Wait until *event is not "before" any more.  Returns false if that takes longer
 * than timeout ms, -1 being no limit.  May raise, as a cancel would.
 */
sigjmp_buf *stress_cancel = NULL;

static bool
wait_for_event(volatile int *event, int before, long timeout)
{
	TimestampTz end = GetCurrentTimestamp() + timeout * 1000;

	pg_atomic_fetch_add_u64(&stress->waits, 1);
	while (*event == before)
	{
		if (stress_cancel != NULL && stress_random(50) == 0)
		{
			pg_atomic_fetch_add_u64(&stress->cancels, 1);
			siglongjmp(*stress_cancel, 1);
		}
		if (timeout >= 0 && GetCurrentTimestamp() > end)
		{
			pg_atomic_fetch_add_u64(&stress->timeouts, 1);
			return false;
		}
		pg_usleep(POLL_US);
	}
	pg_memory_barrier();
	return true;
}

/* From 17 on; nobody looks at wait events here. */
extern uint32 WaitEventExtensionNew(const char *wait_event_name);

uint32
WaitEventExtensionNew(const char *wait_event_name)
{
	return 0;
}

int
WaitLatch(Latch *latch, int wakeEvents, long timeout, uint32 wait_event_info)
{
	return wait_for_event((volatile int *) &latch->is_set, false, timeout) ?
		WL_LATCH_SET : WL_TIMEOUT;
}

/*
 * A condition variable is a number of broadcasts, kept where the server keeps
 * the first waiter.
 */
static int	seen_broadcasts;

static volatile int *
broadcasts(ConditionVariable *cv)
{
	return (volatile int *) &cv->wakeup.head;
}

void
ConditionVariableInit(ConditionVariable *cv)
{
	*broadcasts(cv) = 0;
}

void
ConditionVariablePrepareToSleep(ConditionVariable *cv)
{
	seen_broadcasts = *broadcasts(cv);
	pg_memory_barrier();
}

/* Returns true if nobody broadcast in time.  May raise, as a cancel would. */
bool
ConditionVariableTimedSleep(ConditionVariable *cv, long timeout,
							uint32 wait_event_info)
{
	if (!wait_for_event(broadcasts(cv), seen_broadcasts, timeout))
		return true;
	seen_broadcasts = *broadcasts(cv);
	return false;
}

void
ConditionVariableSleep(ConditionVariable *cv, uint32 wait_event_info)
{
	(void) ConditionVariableTimedSleep(cv, -1, wait_event_info);
}

CANCEL_SLEEP_TYPE
ConditionVariableCancelSleep(void)
{
	return CANCEL_SLEEP_RESULT;
}

void
ConditionVariableBroadcast(ConditionVariable *cv)
{
	__atomic_fetch_add(broadcasts(cv), 1, __ATOMIC_SEQ_CST);
}

/* There is no WAL: t/queue/wal_crash.pl has what is restored from it. */
void
paq_wal_restore(PaqQueueFile *qf)
{
}
