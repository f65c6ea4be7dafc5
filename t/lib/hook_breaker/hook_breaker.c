/*-------------------------------------------------------------------------
 *
 * hook_breaker.c
 *		A library for tests that misuses hooks as libraries should not.
 *
 * For each hook there are two settings:
 *
 *	hook_breaker.skip_NAME	do not call the hook that was there before, but
 *							do what PostgreSQL does without any hook
 *	hook_breaker.fail_NAME	raise an error; with hook_breaker.late, after the
 *							hook's work is done, otherwise before
 *
 * With hook_breaker.misplace, executor statements have a place where their
 * text has nothing, as if they came from another text.
 *
 * The settings have an effect only while the client's command contains the
 * text "break", so that a session can be put in and out of this state by
 * statements that do not suffer from it.
 *
 * Preloaded after another library, this one keeps calls from the other;
 * preloaded before the other, it raises errors below it.
 *
 * Locking: none, everything is local to the process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/objectaccess.h"
#include "compat.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/elog.h"
#include "utils/guc.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

typedef enum Hook
{
	HOOK_START,
	HOOK_RUN,
	HOOK_FINISH,
	HOOK_END,
	HOOK_PERMS,
	HOOK_UTILITY,
	HOOK_ACCESS
} Hook;

static const char *const hook_names[] = {
	[HOOK_START] = "start",
	[HOOK_RUN] = "run",
	[HOOK_FINISH] = "finish",
	[HOOK_END] = "end",
	[HOOK_PERMS] = "perms",
	[HOOK_UTILITY] = "utility",
	[HOOK_ACCESS] = "access",
};

static bool skip[lengthof(hook_names)];
static bool fail[lengthof(hook_names)];
static bool late = false;
static bool misplace = false;

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;
static ExecutorCheckPerms_hook_type prev_ExecutorCheckPerms = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;
static object_access_hook_type prev_object_access = NULL;
static emit_log_hook_type prev_emit_log = NULL;

void		_PG_init(void);

static bool
is_breaking(void)
{
	return debug_query_string != NULL &&
		strstr(debug_query_string, "break") != NULL;
}

static bool
is_on(const bool *setting, Hook hook)
{
	return setting[hook] && is_breaking();
}

static void
may_fail(Hook hook, bool at_end)
{
	if (late == at_end && is_on(fail, hook))
		ereport(ERROR,
				(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
				 errmsg("hook \"%s\" fails", hook_names[hook])));
}

static void
break_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	may_fail(HOOK_START, false);
	if (misplace && is_breaking())
	{
		PlannedStmt *plan = queryDesc->plannedstmt;

		if (plan->stmt_len == 0)
			plan->stmt_location = 100000000;
		plan->stmt_len = 100000000;
	}
	if (prev_ExecutorStart && !is_on(skip, HOOK_START))
		prev_ExecutorStart(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
	may_fail(HOOK_START, true);
}

static void
break_ExecutorRun(PAQ_EXECUTOR_RUN_ARGS)
{
	may_fail(HOOK_RUN, false);
	if (prev_ExecutorRun && !is_on(skip, HOOK_RUN))
		prev_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
	else
		standard_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
	may_fail(HOOK_RUN, true);
}

static void
break_ExecutorFinish(QueryDesc *queryDesc)
{
	may_fail(HOOK_FINISH, false);
	if (prev_ExecutorFinish && !is_on(skip, HOOK_FINISH))
		prev_ExecutorFinish(queryDesc);
	else
		standard_ExecutorFinish(queryDesc);
	may_fail(HOOK_FINISH, true);
}

static void
break_ExecutorEnd(QueryDesc *queryDesc)
{
	may_fail(HOOK_END, false);
	if (prev_ExecutorEnd && !is_on(skip, HOOK_END))
		prev_ExecutorEnd(queryDesc);
	else
		standard_ExecutorEnd(queryDesc);
	may_fail(HOOK_END, true);
}

static bool
break_ExecutorCheckPerms(PAQ_CHECK_PERMS_ARGS)
{
	bool		result = true;

	may_fail(HOOK_PERMS, false);
	if (prev_ExecutorCheckPerms && !is_on(skip, HOOK_PERMS))
		result = prev_ExecutorCheckPerms(PAQ_CHECK_PERMS_PASS);
	may_fail(HOOK_PERMS, true);
	return result;
}

static void
break_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
					 bool readOnlyTree, ProcessUtilityContext context,
					 ParamListInfo params, QueryEnvironment *queryEnv,
					 DestReceiver *dest, QueryCompletion *qc)
{
	may_fail(HOOK_UTILITY, false);
	if (prev_ProcessUtility && !is_on(skip, HOOK_UTILITY))
		prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
							queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);
	may_fail(HOOK_UTILITY, true);
}

static void
break_object_access(ObjectAccessType access, Oid classId, Oid objectId,
					int subId, void *arg)
{
	may_fail(HOOK_ACCESS, false);
	if (prev_object_access && !is_on(skip, HOOK_ACCESS))
		prev_object_access(access, classId, objectId, subId, arg);
	may_fail(HOOK_ACCESS, true);
}

/* Bytes of memory that outlives transactions */
static Size
allocated(void)
{
	return MemoryContextMemAllocated(TopMemoryContext, true);
}

/* A PANIC may come from a critical section, in which nothing may be allocated. */
static void
break_emit_log(ErrorData *edata)
{
	Size		before = allocated();

	if (prev_emit_log)
		prev_emit_log(edata);
	if (edata->elevel == PANIC)
		write_stderr("hook_breaker: PANIC reported, %zu bytes allocated\n",
					 allocated() - before);
}

PG_FUNCTION_INFO_V1(break_panic);

/* break_panic(integer): fail in a critical section, with so long a message. */
Datum
break_panic(PG_FUNCTION_ARGS)
{
	char	   *message = palloc0(PG_GETARG_INT32(0) + 1);

	memset(message, 'x', PG_GETARG_INT32(0));
	START_CRIT_SECTION();
	ereport(ERROR,
			(errmsg_internal("%s", message)));
	END_CRIT_SECTION();
	PG_RETURN_VOID();
}

static void
define_setting(const char *kind, const char *name, bool *value)
{
	DefineCustomBoolVariable(psprintf("hook_breaker.%s%s", kind, name),
							 "See hook_breaker.c.", NULL, value, false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
}

void
_PG_init(void)
{
	for (int i = 0; i < lengthof(hook_names); i++)
	{
		define_setting("skip_", hook_names[i], &skip[i]);
		define_setting("fail_", hook_names[i], &fail[i]);
	}
	define_setting("", "late", &late);
	define_setting("", "misplace", &misplace);

	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = break_ExecutorStart;
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = break_ExecutorRun;
	prev_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = break_ExecutorFinish;
	prev_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = break_ExecutorEnd;
	prev_ExecutorCheckPerms = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = break_ExecutorCheckPerms;
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = break_ProcessUtility;
	prev_object_access = object_access_hook;
	object_access_hook = break_object_access;
	prev_emit_log = emit_log_hook;
	emit_log_hook = break_emit_log;
}
