/*-------------------------------------------------------------------------
 *
 * retention.c
 *		Removing trail files that are too old, or more than there may be.
 *
 * A file's age is counted from its last change.  The oldest go first, the
 * current one never.
 *
 * A pass begins when the worker does, with each new file, at each reload, and
 * when the oldest file falls due.  It goes on in small pieces, so that the queue
 * does not have to wait: the directory is read (oldest.c); a group of files is
 * planned; the caller sees to it that the trail tells of that, durably; then
 * they are removed, one after the other; then the next group.
 *
 * That a pass makes new files with what is recorded of it is no reason for
 * another one: there might be no end to it.
 *
 * Guarantees: what is removed is what was planned.  Nothing is removed while
 * there is no current file, or records have to be recognized that may be in any
 * file (salvage.c).  What cannot be removed is reported once, left alone until
 * the next reload, and not counted.
 *
 * Must not raise for what the world outside does.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "guc.h"
#include "portability/instr_time.h"
#include "sink/file_internal.h"
#include "utils/timestamp.h"

/* How long a piece of work takes, unless a single file takes longer, in us */
#define PIECE_TIME		1000

/* How many files are planned at once */
#define MAX_GROUP		32

/* Bytes of their names: a record must not become so long that it is spilled. */
#define MAX_NAMES		2048

/* How many files that cannot be removed are kept in mind */
#define MAX_STUCK		256

typedef enum Phase
{
	PHASE_IDLE,
	PHASE_READ,					/* the directory is being read */
	PHASE_PLAN,
	PHASE_REMOVE				/* when the plan is in the trail */
} Phase;

static Phase phase = PHASE_IDLE;
static instr_time piece_begin;

/* What the last pass has begun with, and when the next one is due */
static char begun_path[MAXPGPATH];
static TimestampTz begun_reload = 0;
static TimestampTz next_due = DT_NOEND;

static int	next;				/* number of the file to be dealt with next */
static uint64 total_size;		/* of all that have not been */

/* The group: what is marked as planned from number group on to before next */
static int	group;
static PaqRemoval plan;
static char plan_path[MAXPGPATH];
static char plan_names[MAX_NAMES];
static bool removed_any;

/* What cannot be removed, files by inode, and whether any can */
static ino_t stuck[MAX_STUCK];
static int	nstuck = 0;
static bool directory_stuck = false;

/* Has the piece of work been long enough? */
static bool
piece_is_done(void)
{
	instr_time	duration;

	INSTR_TIME_SET_CURRENT(duration);
	INSTR_TIME_SUBTRACT(duration, piece_begin);
	return INSTR_TIME_GET_MICROSEC(duration) >= PIECE_TIME;
}

/* When a file of that time is too old; DT_NOEND for never. */
static TimestampTz
due_at(TimestampTz mtime)
{
	return paq_log_retention_age == 0 ? DT_NOEND :
		mtime + paq_log_retention_age * (SECS_PER_MINUTE * USECS_PER_SEC);
}

/* Would it be right to remove anything now? */
static bool
is_possible(void)
{
	PaqSinkState state = {0};

	if (paq_log_retention_age == 0 && paq_log_retention_size == 0)
		return false;
	paq_salvage_state(&state);
	return paq_trail.fd >= 0 && !paq_trail.gone &&
		state.known_file[0] == '\0' && nstuck < MAX_STUCK;
}

static bool
pass_is_due(void)
{
	return begun_reload != PgReloadTime ||
		strcmp(begun_path, paq_trail.path) != 0 ||
		GetCurrentTimestamp() >= next_due;
}

static void
begin_pass(void)
{
	strlcpy(begun_path, paq_trail.path, sizeof(begun_path));
	begun_reload = PgReloadTime;
	next_due = DT_NOEND;
	if (paq_oldest_open())
	{
		phase = PHASE_READ;
		directory_stuck = false;
		return;
	}
	if (!directory_stuck)
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not remove old audit trail files from directory \"%s\": %m",
						paq_log_directory)));
	directory_stuck = true;
}

static void
end_pass(void)
{
	paq_oldest_close();
	phase = PHASE_IDLE;
}

/*
 * What is left falls due at that time.  Files that were finished since the
 * directory was read do so at most their age later than now.
 */
static void
finish_pass(TimestampTz due)
{
	end_pass();
	next_due = due;
	if (strcmp(begun_path, paq_trail.path) != 0)
		next_due = Min(next_due, due_at(GetCurrentTimestamp()));
	strlcpy(begun_path, paq_trail.path, sizeof(begun_path));
}

static void
begin_plan(void)
{
	memset(&plan, 0, sizeof(plan));
	plan.path = plan_path;
	plan.names = plan_names;
	group = next;
	removed_any = false;
	phase = PHASE_PLAN;
}

/* Read some of the directory, and plan when all of it has been. */
static void
read_some(void)
{
	while (!piece_is_done())
	{
		if (paq_oldest_read())
			continue;
		next = 0;
		total_size = paq_oldest_total_size();
		begin_plan();
		return;
	}
}

static bool
is_stuck(const PaqOldFile *file)
{
	for (int i = 0; i < nstuck; i++)
		if (stuck[i] == file->ino)
			return true;
	return false;
}

/*
 * The file cannot be removed, with errno: say so, and leave it alone from now
 * on.  With too many of them we end this, rather than to forget one.
 */
static void
file_failed(const PaqOldFile *file)
{
	stuck[nstuck++] = file->ino;
	ereport(WARNING,
			(errcode_for_file_access(),
			 errmsg("could not remove audit trail file \"%s/%s\": %m",
					paq_log_directory, file->name),
			 nstuck < MAX_STUCK ? 0 :
			 errdetail("Nothing more is removed until the configuration is reloaded.")));
}

/* Is there nothing about the file that forbids to remove it? */
static bool
may_be_removed(const PaqOldFile *file)
{
	bool		failed;

	if (is_stuck(file))
		return false;
	if (paq_oldest_is_ours(file, &failed))
		return true;
	if (failed)
		file_failed(file);
	return false;
}

/* The setting because of which the file has to go; NULL if it may stay. */
static const char *
reason_to_remove(const PaqOldFile *file)
{
	if (due_at(file->mtime) <= GetCurrentTimestamp())
		return "pg_audit_queue.log_retention_age";
	if (paq_log_retention_size > 0 &&
		total_size > (uint64) paq_log_retention_size * 1024)
		return "pg_audit_queue.log_retention_size";
	return NULL;
}

/* Add the file to the group; false if that has to be dealt with first. */
static bool
add_to_plan(PaqOldFile *file, const char *setting)
{
	Size		used = strlen(plan_names);

	if (plan.count == 0)
	{
		snprintf(plan_path, sizeof(plan_path), "%s/%s", paq_log_directory, file->name);
		strlcpy(plan_names, file->name, sizeof(plan_names));
		plan.setting = setting;
	}
	else if (plan.count == MAX_GROUP || plan.setting != setting ||
			 used + strlen(file->name) + 2 >= sizeof(plan_names))
		return false;
	else
		snprintf(plan_names + used, sizeof(plan_names) - used, ", %s", file->name);
	plan.count++;
	plan.bytes += file->size;
	file->planned = true;
	return true;
}

/* Plan some of a group.  Returns true if there is one, and it is complete. */
static bool
plan_some(void)
{
	while (!piece_is_done() && nstuck < MAX_STUCK)
	{
		PaqOldFile *file = paq_oldest_file(next);
		const char *setting = file ? reason_to_remove(file) : NULL;

		if (setting == NULL && plan.count > 0)
			return true;
		if (file == NULL && paq_oldest_read_again())
		{
			phase = PHASE_READ;
			return false;
		}
		if (setting == NULL)
		{
			finish_pass(file ? due_at(file->mtime) : DT_NOEND);
			return false;
		}
		if (may_be_removed(file) && !add_to_plan(file, setting))
			return true;
		total_size -= file->size;
		next++;
	}
	return false;
}

static void
describe_failure(PaqRemoval *removal, const PaqOldFile *file, int error)
{
	snprintf(plan_path, sizeof(plan_path), "%s/%s", paq_log_directory, file->name);
	removal->count = 1;
	removal->bytes = file->size;
	removal->path = plan_path;
	removal->names = file->name;
	removal->setting = plan.setting;
	removal->error = errno = error;
}

/* Remove some of the group.  Returns false if one could not be, see *removal. */
static bool
remove_some(PaqRemoval *removal)
{
	while (!piece_is_done() && group < next)
	{
		const PaqOldFile *file = paq_oldest_file(group++);
		bool		removed;

		if (!file->planned)
			continue;
		if (!paq_oldest_remove(file, &removed))
		{
			describe_failure(removal, file, errno);
			file_failed(file);
			return false;
		}
		if (!removed)
			continue;
		removed_any = true;
		ereport(LOG,
				(errmsg("removed audit trail file \"%s/%s\"",
						paq_log_directory, file->name),
				 errdetail("It had %llu bytes; the reason is \"%s\".",
						   (unsigned long long) file->size, plan.setting)));
	}
	if (group == next)
	{
		if (removed_any)
			paq_oldest_sync();
		begin_plan();
	}
	return true;
}

/* See sink.h. */
PaqRetention
paq_file_retain(PaqRemoval *removal)
{
	if (begun_reload != PgReloadTime)
	{
		/* What was planned need not be what is wanted now. */
		end_pass();
		nstuck = 0;
		directory_stuck = false;
	}
	if (!is_possible())
		end_pass();
	else if (phase == PHASE_IDLE && pass_is_due())
		begin_pass();

	INSTR_TIME_SET_CURRENT(piece_begin);
	switch (phase)
	{
		case PHASE_IDLE:
			break;
		case PHASE_READ:
			read_some();
			break;
		case PHASE_PLAN:
			if (!plan_some())
				break;
			phase = PHASE_REMOVE;
			*removal = plan;
			return PAQ_RETENTION_PLANNED;
		case PHASE_REMOVE:
			if (!remove_some(removal))
				return PAQ_RETENTION_FAILED;
			break;
	}
	return phase == PHASE_IDLE ? PAQ_RETENTION_IDLE : PAQ_RETENTION_MORE;
}

/* See sink.h. */
TimestampTz
paq_file_next_retention(void)
{
	return phase == PHASE_IDLE && is_possible() ? next_due : DT_NOEND;
}
