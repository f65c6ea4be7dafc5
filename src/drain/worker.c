/*-------------------------------------------------------------------------
 *
 * worker.c
 *		The processes that drain the queue: the background worker, with what it
 *		records of itself, of retention and of the disk; in single-user mode, the
 *		session.
 *
 * The worker writes when a session waits for it, when the queue is filled to
 * flush_threshold, when it has skipped a part of the ring that it could not
 * release yet, and flush_interval after a record came into an empty queue; in
 * between it sleeps, and with nothing to do it hibernates: no timeout, no
 * wake-ups, until the next record, or drop, sets its latch.  With sink = table,
 * though, it looks every few seconds whether a standby has been promoted, of
 * which nobody tells it.
 *
 * The worker is connected to no database, so that nothing waits for it that
 * waits for sessions, and it starts with the postmaster, on standbys too.  If it
 * dies by a signal, the postmaster restarts everything, as for any process
 * attached to shared memory; if it ends in any other way, it is started again
 * a second later and goes on from the checkpoint.  It never exits with
 * status 0, which would make the postmaster forget it.
 *
 * At shutdown it goes on until the sessions are gone and the queue is empty,
 * within limits; what is left stays in the queue file for the next start.
 *
 * An error in here - out of memory, say - abandons the batch, which is tried
 * again after a delay like any failure of the sink.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "drain/drain.h"
#include "drain/drain_internal.h"
#include "guc.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "policy/policy.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "sink/extent.h"
#include "stats.h"
#include "storage/condition_variable.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procsignal.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* Of the process, as pg_stat_activity shows it */
#define WORKER_NAME			"pg_audit_queue worker"
#define LIBRARY_NAME		"pg_audit_queue"
#define MAIN_NAME			"paq_drain_main"

/* How long a worker that ended is missed, in s */
#define RESTART_DELAY		1

/*
 * How long to wait for a record that is just being put into the queue, or for some
 * more after a skip, in ms
 */
#define BUSY_DELAY			1

/* At shutdown: how often to look whether sessions are gone, in ms */
#define SHUTDOWN_DELAY		10

/*
 * When the trail's disk is that full, in percent, it is said; again only after it
 * has been less full than that in between.
 */
#define DISK_WARN			75
#define DISK_WARN_AGAIN		70

/*
 * How often to look, in ms, as long as the worker is awake; and after how much of
 * the disk at the latest, as a fraction, that we have written to it
 */
#define DISK_DELAY			10000
#define DISK_FRACTION		100

/* What is said of retention that may be a mistake */
#define RETENTION_BEGINS	"This begins in an hour, or an hour after the start of the server."

extern PGDLLEXPORT void paq_drain_main(Datum arg);

static PaqDrain drain;

/* The worker's main loop */
static struct
{
	TimestampTz (*tend) (TimestampTz now);	/* see paq_drain_register() */

	/* When the first record since the last flush must be flushed; 0: none */
	TimestampTz flush_due;
}			loop;

/* The disk of the trail */
static struct
{
	TimestampTz next_look;
	uint64		next_written;	/* look when that many bytes have been written */
	bool		warned;
	char		directory[MAXPGPATH];	/* the one looked at */
}			disk;

/*
 * The worker's own records that found no space in the queue, oldest first.  There
 * may be one or two more with each reload while the sink fails.
 */
static dlist_head unsent = DLIST_STATIC_INIT(unsent);

/* What retention will remove, when the trail tells of it */
static struct
{
	PaqRemoval	removal;		/* count 0: nothing */
	bool		recorded;		/* there is a record of it, */
	uint64		end;			/* before this position; 0: unknown */
}			planned;

/*-------------------------------------------------------------------------
 * The worker's own records, class CONFIG: that it started or stopped, that it
 * reloaded the configuration, which settings and rules changed by that, which
 * files of the trail retention removes, and that the trail's disk fills.
 *
 * They go through the queue like any others.  The worker stands for the server
 * here: each setting in the configuration file has one record, made before the
 * new value takes effect in the worker.  Each session takes the value by itself,
 * at about the same time.
 *
 * The worker never waits for space in the queue, which only it can make.  A
 * record that finds none, not even in the reserve, is kept and tried again
 * after each cycle.  If there still is none at exit it is lost, and counted.
 *-------------------------------------------------------------------------
 */

/* Try again to publish what found no space. */
static void
send_records(void)
{
	while (!dlist_is_empty(&unsent))
		if (paq_pending_publish(dlist_head_element(PaqPending, node, &unsent),
								PAQ_SPACE_KEEP) == 0)
			return;
}

/* Publish a record, or keep it until there is space; false if there is no memory. */
static bool
publish(const PaqText *texts, int sqlstate, int64 rows)
{
	PaqPending *pending = paq_own_record(WORKER_NAME, NULL, texts, sqlstate, rows);

	if (pending == NULL)
		return false;
	dlist_push_tail(&unsent, &pending->node);
	send_records();
	return true;
}

/* Record a command of the worker's own; change is NULL if it is none of a setting. */
static void
record_command(const char *command, const PaqSettingChange *change, int sqlstate)
{
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};

	paq_set_text(texts, PAQ_FIELD_COMMAND, command);
	if (change != NULL)
	{
		paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, "SETTING");
		paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, change->name);
		paq_set_text(texts, PAQ_FIELD_OLD_VALUE, change->old_value);
		paq_set_text(texts, PAQ_FIELD_NEW_VALUE, change->new_value);
		paq_set_text(texts, PAQ_FIELD_VALUE_SOURCE,
					 GucSource_Names[change->source]);
	}
	(void) publish(texts, sqlstate, -1);
}

/* A setting is about to change, which in the worker only a reload makes it do. */
static void
record_setting(const PaqSettingChange *change)
{
	record_command("SET", change, 0);
}

/*
 * Read the policy file.  Record that there are other rules, or that the file is wrong.
 * What the queue has no space for yet may be lost, so it counts as not recorded.
 */
static void
reload_policy(bool at_start)
{
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	PaqPolicyChange change;
	bool		changed;

	changed = paq_policy_reload(at_start, &change);
	pg_atomic_write_u64(&paq_stats->worker.policy_errors, change.nerrors);
	if (!changed)
		return;
	paq_set_text(texts, PAQ_FIELD_COMMAND, "RELOAD");
	paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, "POLICY");
	paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, change.path);
	paq_set_text(texts, PAQ_FIELD_OLD_VALUE, change.old_checksum);
	paq_set_text(texts, PAQ_FIELD_NEW_VALUE, change.new_checksum);
	paq_set_text(texts, PAQ_FIELD_MESSAGE, change.error);
	if (publish(texts, change.error != NULL ? ERRCODE_CONFIG_FILE_ERROR : 0, -1) &&
		dlist_is_empty(&unsent))
		paq_policy_recorded();
}

/*
 * Record that files of the trail will be removed, or could not be.  Returns
 * false if there is no memory for that: then nothing may be removed.
 */
static bool
record_removal(const PaqRemoval *removal)
{
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	char		bytes[32];
	char		message[512];

	snprintf(bytes, sizeof(bytes), UINT64_FORMAT, removal->bytes);
	paq_set_text(texts, PAQ_FIELD_COMMAND, "RETENTION");
	paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, "FILE");
	paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, removal->path);
	paq_set_text(texts, PAQ_FIELD_STATEMENT, removal->names);
	paq_set_text(texts, PAQ_FIELD_OLD_VALUE, bytes);
	paq_set_text(texts, PAQ_FIELD_VALUE_SOURCE, removal->setting);
	if (removal->error == 0 && removal->consumers[0] == '\0')
		return publish(texts, 0, removal->count);
	if (removal->error == 0)
	{
		snprintf(message, sizeof(message), "not acknowledged by consumers: %s",
				 removal->consumers);
		paq_set_text(texts, PAQ_FIELD_MESSAGE, message);
		return publish(texts, ERRCODE_WARNING, removal->count);
	}
	paq_set_text(texts, PAQ_FIELD_MESSAGE, strerror(removal->error));
	return publish(texts, ERRCODE_IO_ERROR, removal->count);
}

/* Record that the disk is that full, in percent, for which the text has the figures. */
static void
record_disk(const char *directory, int percent, const char *text)
{
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	char		value[32];

	snprintf(value, sizeof(value), "%d%%", percent);
	paq_set_text(texts, PAQ_FIELD_COMMAND, "DISK SPACE");
	paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, "DIRECTORY");
	paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, directory);
	paq_set_text(texts, PAQ_FIELD_NEW_VALUE, value);
	paq_set_text(texts, PAQ_FIELD_MESSAGE, text);
	(void) publish(texts, ERRCODE_WARNING, -1);
}

/*-------------------------------------------------------------------------
 * Retention: the sink plans a group of files; a record names them; when that is
 * flushed, and no checkpoint refers to an older file any more, the sink removes
 * them.  A crash in between leaves a record of something that is yet to be done:
 * then there will be another one.
 *-------------------------------------------------------------------------
 */

/* Is what is planned in the trail?  If not, see to it that it will be. */
static bool
removal_is_recorded(void)
{
	if (!planned.recorded)
		planned.recorded = record_removal(&planned.removal);
	if (!planned.recorded)
		return false;
	if (planned.end == 0)
	{
		/* If the queue is full, this is tried again when there is space. */
		if (!dlist_is_empty(&unsent))
			return false;
		planned.end = paq_queue_end();
		paq_queue_request_flush(planned.end);
	}
	return paq_queue_is_flushed(planned.end);
}

/*
 * Do a piece of the work, without waiting for the trail.  Returns whether there is
 * more that can be done at once.
 */
static bool
retain(void)
{
	PaqRemoval	removal;

	if (!drain.resumed || drain.retry_at != 0 ||
		!paq_reader_is_live(drain.reader))
		return false;
	if (planned.removal.count > 0)
	{
		if (!removal_is_recorded())
			return false;
		paq_drain_secure(&drain);
		planned.removal.count = 0;
	}
	switch (paq_sink_retain(&removal))
	{
		case PAQ_RETENTION_IDLE:
			return false;
		case PAQ_RETENTION_MORE:
			break;
		case PAQ_RETENTION_PLANNED:
			planned.removal = removal;
			planned.recorded = false;
			planned.end = 0;
			break;
		case PAQ_RETENTION_FAILED:
			(void) record_removal(&removal);
			break;
	}
	return true;
}

/*-------------------------------------------------------------------------
 * The background worker
 *-------------------------------------------------------------------------
 */

/*
 * Say if the trail's disk is getting full, before it is: while there is time to do
 * something.  Nobody wakes the worker for this.  While it sleeps, the trail does
 * not grow.
 */
static void
look_at_disk(TimestampTz now)
{
	const uint64 written = pg_atomic_read_u64(&paq_stats->worker.written);
	const char *directory = paq_trail_directory();
	uint64		size;
	uint64		available;
	int			percent;
	char		text[128];

	if (now < disk.next_look && written < disk.next_written)
		return;
	disk.next_look = TimestampTzPlusMilliseconds(now, DISK_DELAY);
	if (!paq_trail_space(&size, &available) || size == 0)
	{
		/* If it has gone, the sink will say so; if it is new, make it. */
		disk.next_written = written + 1;
		return;
	}
	disk.next_written = written + size / DISK_FRACTION;
	if (strcmp(disk.directory, directory) != 0)
		disk.warned = false;
	strlcpy(disk.directory, directory, sizeof(disk.directory));

	percent = (int) (100.0 * (size - available) / size);
	if (percent < DISK_WARN_AGAIN)
		disk.warned = false;
	if (percent < DISK_WARN || disk.warned)
		return;
	disk.warned = true;
	snprintf(text, sizeof(text), "%llu of %llu bytes are free",
			 (unsigned long long) available, (unsigned long long) size);
	ereport(WARNING,
			(errmsg("disk of the audit trail is %d percent full", percent),
			 errdetail("Directory \"%s\": %s.", directory, text),
			 paq_sink == PAQ_SINK_TABLE ?
			 errhint("Free space on this disk: files that cannot be loaded into the table stay there.") :
			 errhint("Free space on this disk, have old files removed by \"%s\", or use another disk by \"%s\".",
					 "pg_audit_queue.log_retention_age",
					 "pg_audit_queue.log_directory")));
	record_disk(directory, percent, text);
}

/* At exit: keep what is in the trail, and note how far that is. */
static void
worker_exit(int code, Datum arg)
{
	dlist_iter	iter;

	dlist_foreach(iter, &unsent)
		paq_queue_note_drop(PAQ_DROP_EXIT, 1);
	if (drain.reader != NULL)
		paq_drain_close(&drain);
	paq_sink_close_seals();
	paq_wal_close();
	pg_atomic_write_u32(&paq_stats->worker.worker_pid, 0);
}

/* Is the trail sealed, and shall not be any more? */
static bool
sealing_ends(void)
{
	return paq_sink_is_sealed() && TIMESTAMP_IS_NOEND(paq_sink_next_seal());
}

/* Seal the trail if it is time for that, or somebody has asked for it. */
static void
seal(TimestampTz now, bool asked, uint32 number)
{
	bool		ok = true;

	if (sealing_ends())
	{
		ok = paq_drain_seal(&drain, PAQ_SEAL_LEAVING);
		paq_sink_close_seals();
	}
	else if (asked || paq_sink_next_seal() <= now)
		ok = paq_drain_seal(&drain, asked ? PAQ_SEAL_REQUESTED : PAQ_SEAL_DUE);
	if (asked)
		paq_worker_has_done(PAQ_REQUEST_SEAL, number, ok && paq_sink_is_sealed());
}

/* Is there a reason to write now, rather than to let records accumulate? */
static bool
work_wanted(TimestampTz now, bool asked)
{
	uint64		threshold = paq_queue_capacity() / 100 * paq_flush_threshold;

	return asked ||
		drain.shutdown_since != 0 ||
		drain.retry_at != 0 ||	/* only an attempt shows that it works again */
		!paq_reader_is_live(drain.reader) ||
		!drain.resumed ||
		paq_worker_flush_wanted() ||
		paq_worker_space_wanted() ||
		paq_queue_has_skip() ||
		paq_queue_used() >= threshold ||
		(loop.flush_due != 0 && now >= loop.flush_due) ||
		paq_sink_next_rotation() <= now ||
		paq_sink_next_seal() <= now ||
		sealing_ends();
}

/* Write, flush and seal if there is reason to, and answer requests. */
static void
work(TimestampTz now)
{
	uint32		rotate_number;
	uint32		seal_number;
	uint32		report_number;
	const bool	rotate = paq_worker_is_asked(PAQ_REQUEST_ROTATE, &rotate_number);
	const bool	asked = paq_worker_is_asked(PAQ_REQUEST_SEAL, &seal_number);
	const bool	report = paq_worker_is_asked(PAQ_REQUEST_REPORT, &report_number);

	if (!work_wanted(now, rotate || asked || report) || !paq_drain_cycle(&drain, rotate))
		return;
	loop.flush_due = 0;
	send_records();
	if (rotate)
		paq_worker_has_done(PAQ_REQUEST_ROTATE, rotate_number, !drain.put_off);
	if (report)
		paq_worker_has_done(PAQ_REQUEST_REPORT, report_number, true);
	seal(now, asked, seal_number);
}

/* Is there nothing that the trail has yet to learn? */
static bool
all_is_flushed(void)
{
	return paq_queue_is_empty() && !paq_reader_has_drops(drain.reader);
}

/*
 * Note since when there are records that are not flushed, and when they have
 * to be.
 */
static void
set_flush_due(TimestampTz now)
{
	pg_atomic_uint64 *since = &paq_stats->worker.unflushed_since;

	if (all_is_flushed())
	{
		loop.flush_due = 0;
		pg_atomic_write_u64(since, 0);
	}
	else if (loop.flush_due == 0)
	{
		loop.flush_due = TimestampTzPlusMilliseconds(now, paq_flush_interval);
		pg_atomic_write_u64(since, now);
	}
}

/*
 * How long to sleep, in ms, but not beyond then; -1 for until somebody needs
 * the worker.
 */
static long
sleep_time(TimestampTz now, TimestampTz then, bool retaining)
{
	TimestampTz until = Min(Min(Min(paq_sink_next_rotation(),
									paq_sink_next_retention()),
								paq_sink_next_seal()), then);

	if (drain.retry_at != 0)
		until = Min(drain.retry_at, then);
	else if (drain.shutdown_since != 0)
		return SHUTDOWN_DELAY;
	else if (paq_worker_flush_wanted() || paq_worker_space_wanted() ||
			 paq_queue_has_skip())
		return BUSY_DELAY;
	else if (!paq_reader_is_live(drain.reader) || retaining)
		return 0;
	else if (loop.flush_due != 0)
		until = Min(until, loop.flush_due);
	else if (!paq_worker_hibernate(drain.reader))
		return BUSY_DELAY;

	if (TIMESTAMP_IS_NOEND(until))
		return -1;

	/* WaitLatch() takes no more, 25 days; a file may be kept for longer. */
	return Min(TimestampDifferenceMilliseconds(now, until), INT_MAX);
}

static void
nap(TimestampTz now, TimestampTz then, bool retaining)
{
	long		timeout = sleep_time(now, then, retaining);
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;

	if (timeout >= 0)
		events |= WL_TIMEOUT;
	(void) WaitLatch(MyLatch, events, timeout,
					 paq_wait_event(PAQ_WAIT_WORKER_MAIN));
	ResetLatch(MyLatch);
	paq_worker_wake();
	paq_stats_add(&paq_stats->worker.wakeups, 1);
}

/*
 * Warn of retention that does not even leave a day to notice it, or a whole file, before
 * it removes anything.
 */
static void
warn_of_short_retention(void)
{
	static int	warned_age = 0;
	static int	warned_size = 0;
	const bool	of_table = paq_sink == PAQ_SINK_TABLE;
	const int	minutes = of_table ? paq_table_retention : paq_log_retention_age;
	const int	kilobytes = of_table ? 0 : paq_log_retention_size;

	if (paq_retention_is_short(minutes) && minutes != warned_age)
		ereport(WARNING,
				(errmsg_plural("audit records will be removed when they are %d minute old",
							   "audit records will be removed when they are %d minutes old",
							   minutes, minutes),
				 errdetail(RETENTION_BEGINS),
				 errhint("If it is not meant, set \"%s\" to more than a day.",
						 of_table ? "pg_audit_queue.table_retention" :
						 "pg_audit_queue.log_retention_age")));
	warned_age = minutes;
	if (paq_retention_is_small(kilobytes) && kilobytes != warned_size)
		ereport(WARNING,
				(errmsg("audit records will be removed when there are more than %d kB of them",
						kilobytes),
				 errdetail(RETENTION_BEGINS),
				 errhint("If it is not meant, set \"%s\" to more than \"%s\".",
						 "pg_audit_queue.log_retention_size",
						 "pg_audit_queue.log_rotation_size")));
	warned_size = kilobytes;
}

/* The configuration has been read: tell others what it says, and whether it is wrong. */
static void
take_over_settings(void)
{
	paq_settings_publish();
	pg_atomic_write_u64(&paq_stats->worker.setting_errors, paq_settings_count_wrong());
	warn_of_short_retention();
}

/*
 * Read the configuration file, and the policy file.  Changes are recorded on the way, before they
 * take effect.  The outcome is that of reading the file: one that cannot be
 * read changes nothing, while a wrong value only stays without effect.
 */
static void
reload(void)
{
	TimestampTz last_reload = PgReloadTime;

	ProcessConfigFile(PGC_SIGHUP);
	record_command("RELOAD", NULL,
				   PgReloadTime != last_reload ? 0 : ERRCODE_CONFIG_FILE_ERROR);
	take_over_settings();
	reload_policy(false);
}

/* Requests that come by signal. */
static void
handle_signals(TimestampTz now)
{
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		reload();

		/* It may be another disk; who sees the record of the reload knows. */
		disk.next_look = 0;
		look_at_disk(now);

		/* Perhaps that was what made the sink fail. */
		if (drain.retry_at != 0)
			drain.retry_at = now;
		if (loop.flush_due != 0)
			loop.flush_due = Min(loop.flush_due,
								 TimestampTzPlusMilliseconds(now, paq_flush_interval));
	}
	if (ShutdownRequestPending)
	{
		if (drain.shutdown_since == 0)
			drain.shutdown_since = now;

		/* A checkpoint asks in this way for the WAL that we hold. */
		paq_wal_close();
	}
}

/*
 * Is it time to leave?  Not before the sessions, whose last records are still
 * to come - but a failing sink or a session that does not end must not hold
 * the server up.
 */
static bool
may_exit(void)
{
	if (drain.shutdown_since == 0)
		return false;
	if (drain.retry_at != 0 || paq_drain_must_stop(&drain))
		return true;
	return paq_worker_attached_backends() == 0 && all_is_flushed();
}

/* After an error: clean up as a transaction-less process must. */
static void
recover_from_error(void)
{
	ErrorData  *edata;

	HOLD_INTERRUPTS();
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	AtEOXact_Files(false);		/* directories that were being read */
	MemoryContextSwitchTo(TopMemoryContext);
	edata = CopyErrorData();
	FlushErrorState();
	paq_drain_abandon(&drain);
	paq_drain_failed(&drain, edata->message ? edata->message : "unknown error");
	FreeErrorData(edata);
	RESUME_INTERRUPTS();
}

/*
 * If somebody has set the clock back, what is to be done in a moment must not
 * wait until it is that time again.
 */
static void
look_at_clock(TimestampTz now)
{
	loop.flush_due = Min(loop.flush_due,
						 TimestampTzPlusMilliseconds(now, paq_flush_interval));
	drain.retry_at = Min(drain.retry_at,
						 TimestampTzPlusMilliseconds(now, drain.retry_delay));
	drain.shutdown_since = Min(drain.shutdown_since, now);
	paq_sink_seal_clock(now);
	disk.next_look = Min(disk.next_look,
						 TimestampTzPlusMilliseconds(now, DISK_DELAY));
}

static void
main_loop(void)
{
	bool		stopping = false;

	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		TimestampTz wal_due;
		bool		retaining;

		look_at_clock(now);
		handle_signals(now);
		if (drain.retry_at == 0 || now >= drain.retry_at || drain.shutdown_since != 0)
			work(now);
		look_at_disk(now);
		if (may_exit())
		{
			if (stopping)
			{
				if (drain.retry_at == 0 && paq_sink_is_sealed())
					(void) paq_drain_seal(&drain, PAQ_SEAL_LEAVING);
				return;
			}

			/* Once more, with the last record. */
			stopping = true;
			record_command("WORKER STOP", NULL, 0);
			continue;
		}
		/* A setting that somebody has just changed may forbid it. */
		retaining = !ConfigReloadPending && !ShutdownRequestPending && retain();
		now = GetCurrentTimestamp();
		look_at_clock(now);		/* what is due by now may be of another time */
		wal_due = paq_wal_tend(now);
		set_flush_due(now);
		nap(now, Min(loop.tend(now), wal_due), retaining);
	}
}

/* Entry point of the worker process. */
void
paq_drain_main(Datum arg)
{
	sigjmp_buf	local_sigjmp_buf;
	MemoryContext context;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);

	/* By which the postmaster says that the loader has ended; sets our latch. */
	pqsignal(SIGUSR1, procsignal_sigusr1_handler);
	BackgroundWorkerUnblockSignals();

	/* The start's check, below, does not know of a copy that came into the path later. */
	if (loop.tend == NULL)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the library of the background worker is another one than that in \"shared_preload_libraries\""),
				 errhint("Remove the other copy from \"dynamic_library_path\", or restart the server.")));

	/* A reload may have come before the handler was set. */
	if (paq_settings_are_outdated())
		ConfigReloadPending = true;

	/* OpenSSL's digests, in salvage.c, are owned by somebody. */
	CurrentResourceOwner = ResourceOwnerCreate(NULL, WORKER_NAME);
	context = AllocSetContextCreate(TopMemoryContext, WORKER_NAME,
									ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);

	paq_worker_attach();
	paq_drain_open(&drain);
	pg_atomic_write_u32(&paq_stats->worker.worker_pid, MyProcPid);
	before_shmem_exit(worker_exit, (Datum) 0);
	paq_setting_change_hook = record_setting;
	record_command("WORKER START", NULL, 0);
	take_over_settings();
	reload_policy(true);

	if (sigsetjmp(local_sigjmp_buf, 1) != 0)
	{
		error_context_stack = NULL;
		recover_from_error();
		MemoryContextSwitchTo(context);
		MemoryContextReset(context);
	}
	PG_exception_stack = &local_sigjmp_buf;
	main_loop();
	if (paq_queue_used() > 0)
		ereport(LOG,
				(errmsg("%llu bytes of audit records remain in the queue",
						(unsigned long long) paq_queue_used()),
				 errdetail("They are written when the worker starts again.")));

	/* See the top of this file for why not 0. */
	proc_exit(1);
}

/*-------------------------------------------------------------------------
 * Single-user mode: there is no worker, so the session does its work, and not
 * more of it than is needed.  The queue is written to the trail when it is full,
 * or when the session would wait for the trail.  What is in it at the end stays
 * there, and is written when the server next starts, as after a crash.  So no
 * files are removed, nor loaded into the table.
 *-------------------------------------------------------------------------
 */

/*
 * Write all that is in the queue to the trail; false if that cannot be done.
 * The trail outlives transactions, and so does what it needs.  An error
 * abandons the batch, which is tried again at the next call.
 */
static bool
drain_alone(void)
{
	static MemoryContext context = NULL;
	static ResourceOwner owner = NULL;

	/* What this calls must not make records, or would call it again. */
	static bool at_work = false;

	MemoryContext old_context = CurrentMemoryContext;
	ResourceOwner old_owner = CurrentResourceOwner;
	volatile bool ok = false;

	if (at_work)
		return false;
	at_work = true;
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext,
										"pg_audit_queue single-user mode",
										ALLOCSET_DEFAULT_SIZES);
	if (owner == NULL)
		owner = ResourceOwnerCreate(NULL, "pg_audit_queue single-user mode");
	PG_TRY();
	{
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (drain.reader == NULL)
			paq_drain_open(&drain);
		paq_drain_abandon(&drain);
		ok = paq_drain_cycle(&drain, false);
	}
	PG_FINALLY();
	{
		MemoryContextSwitchTo(old_context);
		CurrentResourceOwner = old_owner;
		at_work = false;
	}
	PG_END_TRY();
	return ok;
}

/*
 * Only from _PG_init(), while shared_preload_libraries is being processed.
 * Without a place for the worker - the logical replication launcher has taken
 * one, and other libraries may have - the server must not start.
 */
void
paq_drain_register(TimestampTz (*tend) (TimestampTz now))
{
	BackgroundWorker worker;

	loop.tend = tend;
	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = RESTART_DELAY;
	strlcpy(worker.bgw_library_name, LIBRARY_NAME, BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, MAIN_NAME, BGW_MAXLEN);
	strlcpy(worker.bgw_name, WORKER_NAME, BGW_MAXLEN);
	strlcpy(worker.bgw_type, WORKER_NAME, BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
	if (IsPostmasterEnvironment && !paq_worker_is_registered(WORKER_NAME))
		ereport(FATAL,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not register the background worker of pg_audit_queue"),
				 errdetail("Without it nobody would write the audit trail."),
				 errhint("Increase the configuration parameter \"max_worker_processes\".")));
	if (!IsPostmasterEnvironment)
		paq_queue_drain_alone = drain_alone;
}

/*
 * When all libraries are preloaded: is this the one that is found by its name, as
 * the worker is, the loader, and the SQL functions?  Another copy, preloaded by its
 * path, would record, and nobody would write the trail, so the server must not start.
 */
void
paq_drain_check_library(void)
{
	MemoryContext context = CurrentMemoryContext;
	void	   *volatile found = NULL;
	char	   *volatile reason = "There is another copy.";

	PG_TRY();
	{
		found = load_external_function(LIBRARY_NAME, MAIN_NAME, false, NULL);
	}
	PG_CATCH();
	{
		/* not reported as it is: an error would be recorded, in memory yet to come */
		MemoryContextSwitchTo(context);
		reason = psprintf("PostgreSQL says: %s.", CopyErrorData()->message);
		FlushErrorState();
	}
	PG_END_TRY();
	if (found != (void *) paq_drain_main)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the preloaded library pg_audit_queue is not the one that is found by that name"),
				 errdetail("%s The background worker would not write what is recorded.", reason),
				 errhint("Set \"shared_preload_libraries\" to \"pg_audit_queue\", without a path, and use \"dynamic_library_path\" to say where it is.")));
}
