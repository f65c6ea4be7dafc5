/*-------------------------------------------------------------------------
 *
 * store.c
 *		Which rules are in effect, and how processes get them.
 *
 * The postmaster reads the policy file at start, and each process inherits what it
 * has read.  The worker reads it at each reload.  Rules that it finds are kept in
 * a file (kept.c) first, and then the generation in shared memory tells sessions
 * that there are others: they read the kept file.
 *
 * A policy file with an error changes nothing: the rules in effect stay, and at a
 * start those that are kept come into effect.  So does a file that is missing
 * although there have been rules.
 *
 * The kept file says also which rules the trail has been told of.  The worker writes
 * that only when the record is made, so a change has its record after a crash
 * in between, and one that was made while the server was down has it, too.
 *
 * In single-user mode the process is its own postmaster.  Without a worker, nothing is
 * kept and nothing recorded, but by the next start.
 *
 * Nothing here raises, and nothing keeps the server from starting.
 *
 * Locking: a spinlock, for the checksum only; the generation is atomic.  The worker
 * is the only one to write them once there are processes.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "guc.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "policy/policy_internal.h"
#include "storage/fd.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/memutils.h"

/* How many errors of a file the server log shows */
#define MAX_REPORTED	20

typedef struct PolicyShared
{
	pg_atomic_uint64 generation;
	bool		taken_over;		/* the worker has seen what the postmaster has
								 * read; written by the worker */
	slock_t		mutex;			/* protects all below */
	char		checksum[PAQ_CHECKSUM_LEN]; /* of the rules in effect; empty: none */
	char		next_checksum[PAQ_CHECKSUM_LEN];	/* of those that are being kept,
													 * to be in effect then */
} PolicyShared;

/* Where there is no shared memory of ours, there are no rules, either. */
static pg_atomic_uint64 no_generation = {0};
pg_atomic_uint64 *paq_policy_generation = &no_generation;

static PolicyShared *shared = NULL;

/* What this process has: in TopMemoryContext, NULL if there are no rules */
static PaqRuleSet *current = NULL;
static uint64 current_generation = 0;

/* Why the policy file is not in effect, as far as postmaster or worker know; NULL: it is */
static char *problem = NULL;
static int	nproblems = 0;		/* that there are; the text is of the first */

/* The worker's: what the kept file has, as far as it can be used */
static PaqKept kept;

/* The worker's: the problem of which there is a record */
static char *recorded_problem = NULL;

/*-------------------------------------------------------------------------
 * Reading the policy file, in postmaster and worker
 *-------------------------------------------------------------------------
 */

char *
paq_policy_path(void)
{
	if (is_absolute_path(paq_policy_file))
		return pstrdup(paq_policy_file);
	return psprintf("%s/%s", DataDir, paq_policy_file);
}

/* Replace a string in TopMemoryContext. */
static void
set_string(char **string, const char *value)
{
	if (*string != NULL)
		pfree(*string);
	*string = value != NULL ? MemoryContextStrdup(TopMemoryContext, value) : NULL;
}

static char *
line_problem(const PaqRuleLine *line)
{
	return psprintf("error in file \"%s\" line %d: %s", line->file, line->line,
					line->error);
}

/*
 * Report what is wrong with the file: all of it, or lines.  Returns the first problem,
 * with the number of others.
 */
static char *
report_problems(const char *path, const char *error, List *lines)
{
	char	   *first = NULL;
	int			count = 0;
	ListCell   *lc;

	if (error != NULL)
	{
		ereport(LOG,
				(errcode(ERRCODE_CONFIG_FILE_ERROR), errmsg_internal("%s", error)));
		first = pstrdup(error);
		count++;
	}
	foreach(lc, lines)
	{
		const PaqRuleLine *line = (const PaqRuleLine *) lfirst(lc);

		if (line->error == NULL)
			continue;
		if (count++ == 0)
			first = line_problem(line);
		if (count <= MAX_REPORTED)
			ereport(LOG,
					(errcode(ERRCODE_CONFIG_FILE_ERROR),
					 errmsg_internal("%s", line_problem(line))));
	}
	ereport(LOG,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg("audit policy file \"%s\" is not in effect", path),
			 errdetail_plural("There is %d error.", "There are %d errors.", count, count)));
	nproblems = count;
	return count > 1 ? psprintf("%s (and %d more)", first, count - 1) : first;
}

/*
 * Read the file, in a memory context of the caller's.  Returns its rules; or NULL, and
 * *why is what is wrong with it, NULL if it is missing and need not be there.
 */
static PaqRuleSet *
read_policy_file(bool expected, char **why)
{
	char	   *path = paq_policy_path();
	List	   *lines;
	char	   *error;
	bool		missing;
	PaqRuleSet *set = paq_rule_set_read(path, &lines, &error, &missing);

	*why = NULL;
	if (set == NULL && (!missing || expected))
		*why = report_problems(path, error, lines);
	return set;
}

/* The message of an error in the postmaster or in the worker, which have no transactions */
static char *
caught_message(MemoryContext context)
{
	ErrorData  *edata;

	MemoryContextSwitchTo(context);
	edata = CopyErrorData();
	FlushErrorState();
	AtEOXact_Files(false);
	return edata->message;
}

/*
 * Read the policy file: its rules, in TopMemoryContext, or NULL.  Sets problem.
 * expected: there has been a file, so it is a problem if it is missing.
 */
static PaqRuleSet *
read_policy(bool expected)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "audit policy file",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	PaqRuleSet *volatile result = NULL;
	char	   *volatile why = NULL;

	PG_TRY();
	{
		char	   *reason;
		PaqRuleSet *set = read_policy_file(expected, &reason);

		why = reason;
		if (set != NULL)
		{
			result = MemoryContextAlloc(TopMemoryContext, set->size);
			memcpy(result, set, set->size);
		}
	}
	PG_CATCH();
	{
		char	   *message = caught_message(context);
		char	   *path = paq_policy_path();

		message = psprintf("could not read file \"%s\": %s", path, message);
		why = report_problems(path, message, NIL);
	}
	PG_END_TRY();
	set_string(&problem, why);
	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(context);
	return result;
}

/*-------------------------------------------------------------------------
 * Rules in effect
 *-------------------------------------------------------------------------
 */

static void
set_current(PaqRuleSet *set)
{
	if (current != NULL && current != set)
		pfree(current);
	current = set;
}

/* Whatever other processes have to know of what is now current, but the generation */
static void
share_checksum(void)
{
	SpinLockAcquire(&shared->mutex);
	strlcpy(shared->checksum, current != NULL ? current->checksum : "",
			sizeof(shared->checksum));
	SpinLockRelease(&shared->mutex);
}

/*
 * Are these rules in effect, or about to be?  Who can write the kept file could put
 * others there, but not their checksum into shared memory.
 */
static bool
is_known(const PaqRuleSet *set)
{
	bool		result;

	SpinLockAcquire(&shared->mutex);
	result = strcmp(shared->checksum, set->checksum) == 0 ||
		strcmp(shared->next_checksum, set->checksum) == 0;
	SpinLockRelease(&shared->mutex);
	return result && paq_rule_set_is_genuine(set);
}

static void
announce(const char *checksum)
{
	SpinLockAcquire(&shared->mutex);
	strlcpy(shared->next_checksum, checksum, sizeof(shared->next_checksum));
	SpinLockRelease(&shared->mutex);
}

/* Are the rules in effect those with this checksum? */
bool
paq_store_is_in_effect(const char *checksum)
{
	bool		result;

	SpinLockAcquire(&shared->mutex);
	result = strcmp(shared->checksum, checksum) == 0;
	SpinLockRelease(&shared->mutex);
	return result;
}

/* Kept rules may be those of another version, which this one does not understand. */
static bool
can_be_used(const PaqRuleSet *set)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "kept audit policy",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	volatile bool ok = false;

	PG_TRY();
	{
		PaqRuleReader reader;
		PaqRule    *rule;

		paq_rule_set_begin(&reader, set);
		while ((rule = paq_rule_set_next(&reader)) != NULL)
			paq_rule_free(rule);
		ok = true;
	}
	PG_CATCH();
	{
		const char *message = caught_message(context);

		ereport(LOG,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("kept audit policy cannot be used: %s", message)));
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(context);
	return ok;
}

Size
paq_policy_shmem_size(void)
{
	return MAXALIGN(sizeof(PolicyShared));
}

/*
 * In the postmaster, at start and after each crash.  If the policy file cannot be used,
 * the kept rules are; if these cannot, either, what there was before a crash.
 */
void
paq_policy_startup(void)
{
	bool		found;
	PaqKept		old;
	PaqKeptState state;
	PaqRuleSet *set;

	shared = ShmemInitStruct("pg_audit_queue policy", paq_policy_shmem_size(), &found);
	memset(shared, 0, sizeof(*shared));
	SpinLockInit(&shared->mutex);
	pg_atomic_init_u64(&shared->generation, ++current_generation);
	paq_policy_generation = &shared->generation;

	state = paq_kept_read(&old, false);
	set = read_policy(state != PAQ_KEPT_NOTHING);
	if (set == NULL && old.set != NULL && can_be_used(old.set))
		set = old.set;
	if (old.set != NULL && set != old.set)
		pfree(old.set);
	if (set != NULL)
		set_current(set);
	share_checksum();
}

static void
report_unknown(void)
{
	HOLD_INTERRUPTS();			/* errfinish() would serve them */
	ereport(LOG_SERVER_ONLY,
			(errcode(ERRCODE_CONFIG_FILE_ERROR),
			 errmsg("audit policy cannot be read, everything is recorded"),
			 errhint("A reload of the configuration writes it again.")));
	RESUME_INTERRUPTS();
}

bool
paq_store_get(const PaqRuleSet **set, uint64 *generation)
{
	static uint64 failed = 0;	/* said so of this generation */
	const uint64 wanted = pg_atomic_read_u64(&shared->generation);

	if (current_generation != wanted)
	{
		PaqKept		newest;

		/* It may be of a later generation already: then it is read once more. */
		const PaqKeptState state = paq_kept_read(&newest, failed == wanted);

		if (state == PAQ_KEPT_RULES && is_known(newest.set))
		{
			set_current(newest.set);
			current_generation = wanted;
		}
		else
		{
			if (state == PAQ_KEPT_RULES)
				pfree(newest.set);
			if (failed != wanted)
				report_unknown();
			failed = wanted;
		}
	}
	*generation = current_generation;
	*set = current;
	return current_generation == wanted;
}

/*-------------------------------------------------------------------------
 * The worker
 *-------------------------------------------------------------------------
 */

static bool
same_set(const PaqRuleSet *a, const PaqRuleSet *b)
{
	return a != NULL && b != NULL && a->size == b->size && memcmp(a, b, a->size) == 0;
}

/* Keep the rules, unless they are, with what the trail has been told of. */
static bool
keep_rules(const PaqRuleSet *set, const char *recorded)
{
	if (same_set(kept.set, set) && strcmp(kept.recorded, recorded) == 0)
		return true;
	if (!paq_kept_write(set, recorded))
		return false;
	if (!same_set(kept.set, set))
	{
		if (kept.set != NULL)
			pfree(kept.set);
		kept.set = MemoryContextAllocExtended(TopMemoryContext, set->size,
											  MCXT_ALLOC_NO_OOM);
		if (kept.set != NULL)
			memcpy(kept.set, set, set->size);
	}
	strlcpy(kept.recorded, recorded, sizeof(kept.recorded));
	return true;
}

/* The rules have been read: let them be in effect, for sessions, too. */
static void
put_into_effect(PaqRuleSet *set)
{
	if (same_set(current, set))
	{
		pfree(set);
		(void) keep_rules(current, kept.recorded);
	}
	else
	{
		announce(set->checksum);
		if (keep_rules(set, kept.recorded))
		{
			set_current(set);
			share_checksum();
			current_generation = pg_atomic_add_fetch_u64(&shared->generation, 1);
		}
		else
		{
			announce("");
			pfree(set);
			set_string(&problem, "could not keep the rules of the audit policy file");
			nproblems = 1;
		}
	}
}

/* The worker has just started: what is in effect, and what is kept? */
static void
take_over_rules(void)
{
	const PaqRuleSet *set;
	uint64		generation;

	(void) paq_kept_read(&kept, true);
	if (shared->taken_over)
		(void) paq_store_get(&set, &generation);
	else if (current != NULL)
		(void) keep_rules(current, kept.recorded);
}

/* What records call the rules: nothing if there are none */
static const char *
recorded_name(const PaqRuleSet *set)
{
	return set != NULL && set->nrules > 0 ? set->checksum : "";
}

/* Is there something of which there is no record? */
static bool
is_to_be_recorded(void)
{
	if (strcmp(kept.recorded, recorded_name(current)) != 0)
		return true;
	return problem != NULL &&
		(recorded_problem == NULL || strcmp(problem, recorded_problem) != 0);
}

/*
 * If somebody has changed or removed the kept file, it is to be written again, and
 * the trail is told.
 */
static void
check_kept(void)
{
	PaqKept		found;
	PaqKeptState state;

	if (kept.set == NULL)
		return;
	state = paq_kept_read(&found, true);
	if (state != PAQ_KEPT_RULES || !same_set(found.set, kept.set))
	{
		pfree(kept.set);
		kept.set = NULL;
		if (problem == NULL)
		{
			set_string(&problem, "the kept rules of the audit policy were changed, or cannot be read");
			nproblems = 1;
		}
		ereport(LOG,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("kept audit policy was changed, or cannot be read"),
				 errdetail("It is written again.")));
	}
	if (state == PAQ_KEPT_RULES)
		pfree(found.set);
}

bool
paq_policy_reload(bool at_start, PaqPolicyChange *change)
{
	static char *path = NULL;

	if (path == NULL)
	{
		MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

		path = paq_policy_path();
		MemoryContextSwitchTo(old_context);
	}
	if (at_start)
		take_over_rules();

	/* A worker that is not the first may have missed a reload. */
	if (!at_start || shared->taken_over)
	{
		PaqRuleSet *set = read_policy(current != NULL);

		check_kept();
		if (set != NULL)
			put_into_effect(set);
		else if (current != NULL)
			(void) keep_rules(current, kept.recorded);
	}
	shared->taken_over = true;

	change->path = path;
	change->old_checksum = paq_null_if_empty(kept.recorded);
	change->new_checksum = paq_null_if_empty(recorded_name(current));
	change->error = problem;
	change->nerrors = problem != NULL ? nproblems : 0;
	if (is_to_be_recorded())
		return true;
	set_string(&recorded_problem, problem);
	return false;
}

void
paq_policy_recorded(void)
{
	set_string(&recorded_problem, problem);
	if (current != NULL)
		(void) keep_rules(current, recorded_name(current));
	else
		kept.recorded[0] = '\0';	/* what cannot be used stays as it is */
}
