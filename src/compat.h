/*-------------------------------------------------------------------------
 *
 * compat.h
 *		Differences between PostgreSQL majors 15 to 19, in one place.
 *
 * Everything here is a static inline function or a macro with the newest
 * major's name or a neutral one, so that no other file tests PG_VERSION_NUM
 * (scripts/check-style enforces that).
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_COMPAT_H
#define PAQ_COMPAT_H

#include "postgres.h"

#include "access/xloginsert.h"
#include "catalog/pg_collation.h"
#include "executor/executor.h"
#include "libpq/hba.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "optimizer/pathnode.h"
#include "parser/analyze.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "portability/instr_time.h"
#include "postmaster/bgworker_internals.h"
#include "regex/regex.h"
#include "replication/slot.h"
#include "storage/fd.h"
#include "storage/proc.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 160000
#include "parser/parse_relation.h"
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 180000
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 200000
#error "pg_audit_queue supports PostgreSQL 15 to 19"
#endif

#ifdef EXEC_BACKEND
#error "pg_audit_queue needs a postmaster that forks; EXEC_BACKEND builds are not supported"
#endif

/* ---------- Module ---------- */

/* What a library says of itself; from 18 on pg_get_loaded_modules() shows it. */
#if PG_VERSION_NUM >= 180000
#define PAQ_MODULE_MAGIC \
	PG_MODULE_MAGIC_EXT(.name = "pg_audit_queue", .version = PAQ_VERSION)
#else
#define PAQ_MODULE_MAGIC	PG_MODULE_MAGIC
#endif

/* ---------- Processes ---------- */

/*
 * Index of this process's PGPROC, from 0 to MaxBackends - 1 for anything that
 * can run SQL; negative or larger for everything else.
 */
static inline int
paq_proc_number(void)
{
	if (MyProc == NULL)
		return -1;
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyProc->pgprocno;
#endif
}

/* The two parts of the virtual transaction id; the first is -1 if there is none. */
static inline int
paq_vxid_proc(void)
{
	if (MyProc == NULL)
		return -1;
#if PG_VERSION_NUM >= 170000
	return MyProc->vxid.procNumber;
#else
	return MyProc->backendId;
#endif
}

static inline uint32
paq_vxid_lxid(void)
{
	if (MyProc == NULL)
		return InvalidLocalTransactionId;
#if PG_VERSION_NUM >= 170000
	return MyProc->vxid.lxid;
#else
	return MyProc->lxid;
#endif
}

/*
 * Has RegisterBackgroundWorker() accepted a worker of this name?  It reports a
 * failure only in the server log.  To be called by the postmaster right after it:
 * the newest entry of the list is the first.
 */
static inline bool
paq_worker_is_registered(const char *name)
{
	RegisteredBgWorker *newest;

#if PG_VERSION_NUM >= 180000
	if (dlist_is_empty(&BackgroundWorkerList))
		return false;
	newest = dlist_head_element(RegisteredBgWorker, rw_lnode,
								&BackgroundWorkerList);
#else
	if (slist_is_empty(&BackgroundWorkerList))
		return false;
	newest = slist_head_element(RegisteredBgWorker, rw_lnode,
								&BackgroundWorkerList);
#endif
	return strcmp(newest->rw_worker.bgw_name, name) == 0;
}

/* Information about a wait of ours; extensions' waits have names from 17 on. */
static inline uint32
paq_new_wait_event(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	return PG_WAIT_EXTENSION;
#endif
}

/* ---------- WAL ---------- */

/* XLogRegisterData(), whose types differ in 15, 16 and 18 */
static inline void
paq_xlog_register(const void *data, uint32 len)
{
#if PG_VERSION_NUM >= 180000
	XLogRegisterData(data, len);
#else
	XLogRegisterData(unconstify(char *, (const char *) data), len);
#endif
}

/* Make a temporary physical replication slot, and acquire it. */
static inline void
paq_slot_create(const char *name)
{
#if PG_VERSION_NUM >= 190000
	ReplicationSlotCreate(name, false, RS_TEMPORARY, false, false, false, false);
#elif PG_VERSION_NUM >= 170000
	ReplicationSlotCreate(name, false, RS_TEMPORARY, false, false, false);
#else
	ReplicationSlotCreate(name, false, RS_TEMPORARY, false);
#endif
}

/* ---------- Executor ---------- */

/* Arguments of the ExecutorCheckPerms hook, and how to pass them on */
#if PG_VERSION_NUM >= 160000
#define PAQ_CHECK_PERMS_ARGS \
	List *rangeTable, List *rtePermInfos, bool ereport_on_violation
#define PAQ_CHECK_PERMS_PASS	rangeTable, rtePermInfos, ereport_on_violation
#define PAQ_CHECK_PERMS_INFOS	rtePermInfos
#else
#define PAQ_CHECK_PERMS_ARGS \
	List *rangeTable, bool ereport_on_violation
#define PAQ_CHECK_PERMS_PASS	rangeTable, ereport_on_violation
#define PAQ_CHECK_PERMS_INFOS	NIL
#endif

/*
 * What the executor was asked to check for one range table entry: fields of
 * the entry itself in 15, of its RTEPermissionInfo from 16 on.
 */
typedef struct PaqRtePerms
{
	AclMode		requiredPerms;
	Bitmapset  *selectedCols;
	Bitmapset  *insertedCols;
	Bitmapset  *updatedCols;
	Oid			checkAsUser;	/* owner of the view that refers to it */
} PaqRtePerms;

static inline PaqRtePerms
paq_rte_perms(RangeTblEntry *rte, List *perminfos)
{
	PaqRtePerms perms = {0};

#if PG_VERSION_NUM >= 160000
	if (rte->perminfoindex != 0)
	{
		RTEPermissionInfo *info = getRTEPermissionInfo(perminfos, rte);

		perms.requiredPerms = info->requiredPerms;
		perms.selectedCols = info->selectedCols;
		perms.insertedCols = info->insertedCols;
		perms.updatedCols = info->updatedCols;
		perms.checkAsUser = info->checkAsUser;
	}
#else
	perms.requiredPerms = rte->requiredPerms;
	perms.selectedCols = rte->selectedCols;
	perms.insertedCols = rte->insertedCols;
	perms.updatedCols = rte->updatedCols;
	perms.checkAsUser = rte->checkAsUser;
#endif
	return perms;
}

/* Permission infos of a planned statement (NIL where the entries have them). */
static inline List *
paq_stmt_perm_infos(PlannedStmt *stmt)
{
#if PG_VERSION_NUM >= 160000
	return stmt->permInfos;
#else
	return NIL;
#endif
}

/* Permission infos of a query that is not planned yet (NIL where the entries have them). */
static inline List *
paq_query_perm_infos(const Query *query)
{
#if PG_VERSION_NUM >= 160000
	return query->rteperminfos;
#else
	return NIL;
#endif
}

/*
 * Add a copy of an entry of the query's range table, which has a relation, to that of a plan,
 * with what it needs.  In the current memory context; sets of columns are not copied.
 */
static inline void
paq_plan_add_rte(PlannedStmt *plan, const Query *query, RangeTblEntry *rte)
{
	RangeTblEntry *copy = palloc(sizeof(RangeTblEntry));

	*copy = *rte;
#if PG_VERSION_NUM >= 160000
	if (rte->perminfoindex != 0)
	{
		RTEPermissionInfo *info = palloc(sizeof(RTEPermissionInfo));

		*info = *getRTEPermissionInfo(query->rteperminfos, rte);
		plan->permInfos = lappend(plan->permInfos, info);
		copy->perminfoindex = list_length(plan->permInfos);
	}
#endif
	plan->rtable = lappend(plan->rtable, copy);
	plan->relationOids = lappend_oid(plan->relationOids, rte->relid);
}

/* The planner has been told of EXPLAIN since 19. */
#if PG_VERSION_NUM >= 190000
#define PAQ_PLANNER_ARGS \
	Query *parse, const char *query_string, int cursorOptions, \
	ParamListInfo boundParams, ExplainState *es
#define PAQ_PLANNER_PASS	parse, query_string, cursorOptions, boundParams, es
#else
#define PAQ_PLANNER_ARGS \
	Query *parse, const char *query_string, int cursorOptions, \
	ParamListInfo boundParams
#define PAQ_PLANNER_PASS	parse, query_string, cursorOptions, boundParams
#endif

/* ExecutorRun lost its execute_once argument in 18. */
#if PG_VERSION_NUM >= 180000
#define PAQ_EXECUTOR_RUN_ARGS \
	QueryDesc *queryDesc, ScanDirection direction, uint64 count
#define PAQ_EXECUTOR_RUN_PASS	queryDesc, direction, count
#else
#define PAQ_EXECUTOR_RUN_ARGS \
	QueryDesc *queryDesc, ScanDirection direction, uint64 count, bool execute_once
#define PAQ_EXECUTOR_RUN_PASS	queryDesc, direction, count, execute_once
#endif

/* ---------- Utility statements ---------- */

/* The node of CLUSTER, which is a form of REPACK from 19 on */
#if PG_VERSION_NUM >= 190000
#define PAQ_CLUSTER_NODE	T_RepackStmt
#else
#define PAQ_CLUSTER_NODE	T_ClusterStmt
#endif

/* The relation of a CLUSTER or, from 19 on, of what it has become; a list of RangeVar */
static inline List *
paq_cluster_relations(Node *parsetree)
{
#if PG_VERSION_NUM >= 190000
	if (IsA(parsetree, RepackStmt) && ((RepackStmt *) parsetree)->relation != NULL)
		return list_make1(((RepackStmt *) parsetree)->relation->relation);
#else
	if (IsA(parsetree, ClusterStmt))
		return list_make1(((ClusterStmt *) parsetree)->relation);
#endif
	return NIL;
}

/* ---------- Foreign tables ---------- */

/*
 * The path of a scan of a foreign table, with no other path below and in no order;
 * later versions want to know more.
 */
static inline ForeignPath *
paq_foreign_scan_path(PlannerInfo *root, RelOptInfo *rel, Cost startup, Cost total)
{
#if PG_VERSION_NUM >= 180000
	return create_foreignscan_path(root, rel, NULL, rel->rows, 0, startup, total, NIL,
								   rel->lateral_relids, NULL, NIL, NIL);
#elif PG_VERSION_NUM >= 170000
	return create_foreignscan_path(root, rel, NULL, rel->rows, startup, total, NIL,
								   rel->lateral_relids, NULL, NIL, NIL);
#else
	return create_foreignscan_path(root, rel, NULL, rel->rows, startup, total, NIL,
								   rel->lateral_relids, NULL, NIL);
#endif
}

/* Whose privileges count for the relation that the node scans */
static inline Oid
paq_scan_user(ForeignScanState *node)
{
	Oid			user;

#if PG_VERSION_NUM >= 160000
	user = ((ForeignScan *) node->ss.ps.plan)->checkAsUser;
#else
	user = exec_rt_fetch(((ForeignScan *) node->ss.ps.plan)->scan.scanrelid,
						 node->ss.ps.state)->checkAsUser;
#endif
	return OidIsValid(user) ? user : GetUserId();
}

/* ---------- What pgaudit records, by version ---------- */

/*
 * CREATE and ALTER USER MAPPING are statements about roles in pgaudit for 16 and
 * later, and about objects like any other before.
 */
#define PAQ_USER_MAPPING_IS_ROLE	(PG_VERSION_NUM >= 160000)

/*
 * A record of pgaudit for 17 and later has the one statement of the text, without
 * the white space and the semicolons around it; before, it has the text as it was
 * sent.
 */
#define PAQ_TEXT_IS_TRIMMED			(PG_VERSION_NUM >= 170000)

/*
 * Object auditing by pgaudit for 18 and later takes SELECT FOR UPDATE for what it
 * is, a SELECT; before, a grant of UPDATE selects it, too.
 */
#define PAQ_ROW_LOCK_IS_SELECT		(PG_VERSION_NUM >= 180000)

/*
 * pgaudit for 19 takes a COPY for what it does with its table: the record of the
 * table says COPY and, with log_relation, is that of the statement.  Before, it is
 * one of SELECT or INSERT.
 */
#define PAQ_COPY_HAS_RELATION		(PG_VERSION_NUM >= 190000)

/*
 * A statement that adds a foreign key asks for permissions on both tables, to know
 * in which way to check the rows that there are.  For pgaudit up to 18 that is an
 * access of the statement's; from 19 on only the query that may follow is one.
 */
#define PAQ_NEW_KEY_IS_ACCESS		(PG_VERSION_NUM < 190000)

/* ---------- Functions ---------- */

/*
 * The functions of PostgreSQL's own that something is done about for themselves have this OID or a
 * higher one: those below, set_config(), and those that make XML of tables.
 */
#define PAQ_FIRST_SPECIAL_FUNCTION	F_LO_IMPORT_TEXT

StaticAssertDecl(F_SET_CONFIG >= PAQ_FIRST_SPECIAL_FUNCTION &&
					 F_PG_READ_FILE_TEXT >= PAQ_FIRST_SPECIAL_FUNCTION &&
					 F_TABLE_TO_XML >= PAQ_FIRST_SPECIAL_FUNCTION &&
					 F_BRIN_SUMMARIZE_RANGE >= PAQ_FIRST_SPECIAL_FUNCTION,
				 "a special function has an OID below the first");

/* Is it a function of PostgreSQL's that reads the contents of a file of the server's? */
static inline bool
paq_reads_file(Oid function)
{
	switch (function)
	{
		case F_LO_IMPORT_TEXT:
		case F_LO_IMPORT_TEXT_OID:
		case F_PG_READ_FILE_TEXT:
		case F_PG_READ_FILE_TEXT_INT8_INT8:
		case F_PG_READ_FILE_TEXT_INT8_INT8_BOOL:
		case F_PG_READ_BINARY_FILE_TEXT:
		case F_PG_READ_BINARY_FILE_TEXT_INT8_INT8:
		case F_PG_READ_BINARY_FILE_TEXT_INT8_INT8_BOOL:
#ifdef F_PG_READ_FILE_TEXT_BOOL
			/* from 16 on */
		case F_PG_READ_FILE_TEXT_BOOL:
		case F_PG_READ_BINARY_FILE_TEXT_BOOL:
#endif
#ifdef F_PG_READ_FILE_OLD
			/* of an extension that is no longer there */
		case F_PG_READ_FILE_OLD:
#endif
			return true;
		default:
			return false;
	}
}

/*
 * Is it a function of PostgreSQL's that reads or changes relations of users, which it does not
 * execute a statement for: indexes, and what logical decoding finds in the WAL?
 */
static inline bool
paq_uses_relations(Oid function)
{
	switch (function)
	{
		case F_BRIN_DESUMMARIZE_RANGE:
		case F_BRIN_SUMMARIZE_NEW_VALUES:
		case F_BRIN_SUMMARIZE_RANGE:
		case F_GIN_CLEAN_PENDING_LIST:
		case F_PG_LOGICAL_SLOT_GET_BINARY_CHANGES:
		case F_PG_LOGICAL_SLOT_GET_CHANGES:
		case F_PG_LOGICAL_SLOT_PEEK_BINARY_CHANGES:
		case F_PG_LOGICAL_SLOT_PEEK_CHANGES:
			return true;
		default:
			return false;
	}
}

/* ---------- Settings ---------- */

/*
 * Memory for the "extra" of a check hook, which GUC frees: allocated by malloc()
 * in 15, by guc_malloc() from 16 on.  NULL when out of memory.
 */
static inline void *
paq_guc_alloc(size_t size)
{
#if PG_VERSION_NUM >= 160000
	return guc_malloc(LOG, size);
#else
	return malloc(size);
#endif
}

/* Free such memory, before GUC has taken it over. */
static inline void
paq_guc_free(void *extra)
{
#if PG_VERSION_NUM >= 160000
	guc_free(extra);
#else
	free(extra);
#endif
}

/* GUC's entry of a setting; NULL if there is none */
static inline struct config_generic *
paq_guc_find(const char *name)
{
#if PG_VERSION_NUM >= 160000
	return find_option(name, false, true, LOG);
#else
	static const char *const old_names[][2] = {
		{"sort_mem", "work_mem"}, {"vacuum_mem", "maintenance_work_mem"}
	};
	struct config_generic **variables = get_guc_variables();

	for (int i = 0; i < lengthof(old_names); i++)
		if (pg_strcasecmp(old_names[i][0], name) == 0)
			name = old_names[i][1];
	for (int i = 0; i < GetNumConfigOptions(); i++)
		if (pg_strcasecmp(variables[i]->name, name) == 0)
			return variables[i];
	return NULL;
#endif
}

/* GUC's entries of all settings, *n of them */
static inline struct config_generic **
paq_guc_variables(int *n)
{
#if PG_VERSION_NUM >= 160000
	return get_guc_variables(n);
#else
	*n = GetNumConfigOptions();
	return get_guc_variables();
#endif
}

/*
 * The "extra" of the value that RESET would give the setting, which GUC has no
 * function for.  Up to 18, config_generic is the first part of a struct for each
 * type of setting; from 19 on, it has those structs in a union.
 */
static inline void *
paq_guc_reset_extra(const struct config_generic *setting)
{
#if PG_VERSION_NUM >= 190000
	return setting->reset_extra;
#else
	switch (setting->vartype)
	{
		case PGC_BOOL:
			return ((const struct config_bool *) setting)->reset_extra;
		case PGC_INT:
			return ((const struct config_int *) setting)->reset_extra;
		case PGC_REAL:
			return ((const struct config_real *) setting)->reset_extra;
		case PGC_STRING:
			return ((const struct config_string *) setting)->reset_extra;
		case PGC_ENUM:
			return ((const struct config_enum *) setting)->reset_extra;
	}
	return NULL;
#endif
}

/* Does an integer setting have a way of its own to be shown? */
static inline bool
paq_guc_int_has_show_hook(const struct config_generic *setting)
{
	Assert(setting->vartype == PGC_INT);
#if PG_VERSION_NUM >= 190000
	return setting->_int.show_hook != NULL;
#else
	return ((const struct config_int *) setting)->show_hook != NULL;
#endif
}

/* The word for a value of an enum setting */
static inline const char *
paq_guc_enum_word(struct config_generic *setting, int value)
{
	Assert(setting->vartype == PGC_ENUM);
#if PG_VERSION_NUM >= 190000
	return config_enum_lookup_by_value(setting, value);
#else
	return config_enum_lookup_by_value((struct config_enum *) setting, value);
#endif
}

/* ---------- Parser ---------- */

/* What the post_parse_analyze hook is given: not to be changed, from 19 on */
#if PG_VERSION_NUM >= 190000
#define PAQ_JUMBLE_STATE	const JumbleState
#else
#define PAQ_JUMBLE_STATE	JumbleState
#endif

/*
 * Can a backslash in an ordinary string constant be an escape?  It can up to 18, if
 * standard_conforming_strings is off.
 */
static inline bool
paq_backslash_is_ambiguous(void)
{
	return PG_VERSION_NUM < 190000;
}

/* Are ordinary string constants read without escapes now? */
static inline bool
paq_strings_conform(void)
{
#if PG_VERSION_NUM >= 190000
	return true;
#else
	return standard_conforming_strings;
#endif
}

/* Have the scanner read them in that way, and warn of nothing. */
static inline void
paq_scanner_set_conforming(core_yy_extra_type *extra, bool conforming)
{
#if PG_VERSION_NUM >= 190000
	Assert(conforming);
#else
	extra->escape_string_warning = false;
	extra->standard_conforming_strings = conforming;
#endif
}

/* ---------- Files like pg_hba.conf ---------- */

/*
 * Open such a file to be read by paq_auth_file_tokenize(), once at a time; NULL with
 * *error if that fails.  Functions of PostgreSQL's log at a level at which nobody
 * hears them: what is wrong is in the lines, too.
 */
static inline FILE *
paq_auth_file_open(const char *path, char **error)
{
#if PG_VERSION_NUM >= 160000
	return open_auth_file(path, DEBUG5, 0, error);
#else
	FILE	   *file = AllocateFile(path, "r");

	if (file == NULL)
		*error = psprintf("could not open file \"%s\": %m", path);
	return file;
#endif
}

/* Its lines, list of TokenizedAuthLine; from 16 on only until the file is closed */
static inline List *
paq_auth_file_tokenize(const char *path, FILE *file)
{
	List	   *lines = NIL;

#if PG_VERSION_NUM >= 160000
	tokenize_auth_file(path, file, &lines, DEBUG5, 0);
#else
	(void) tokenize_auth_file(path, file, &lines, DEBUG5);
#endif
	return lines;
}

static inline void
paq_auth_file_close(FILE *file)
{
#if PG_VERSION_NUM >= 160000
	free_auth_file(file, 0);
#else
	FreeFile(file);
#endif
}

/* The file with the line, which may be included by the one at path from 16 on */
static inline const char *
paq_auth_line_file(const TokenizedAuthLine *line, const char *path)
{
#if PG_VERSION_NUM >= 160000
	return line->file_name;
#else
	return path;
#endif
}

/* ---------- Regular expressions ---------- */

/*
 * Compile a regular expression in that encoding, and search for it, where no
 * error may be raised.  In 15 its memory is allocated by malloc(), and a pending
 * interrupt makes PostgreSQL's functions return REG_CANCEL.  From 16 on its memory
 * is palloc'ed without raising, and interrupts are processed unless they are held
 * off.  With serve_interrupts, a search raises what they raise.
 */
static inline int
paq_regcomp(regex_t *regex, const char *pattern, int encoding)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);
	const int	len = strlen(pattern);
	pg_wchar   *wide = palloc_extended((len + (Size) 1) * sizeof(pg_wchar),
									 MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	int			code = REG_ESPACE;

	if (wide != NULL)
	{
		const int	wide_len = pg_encoding_mb2wchar_with_len(encoding, pattern, wide, len);

#if PG_VERSION_NUM >= 160000
		HOLD_INTERRUPTS();
		code = pg_regcomp(regex, wide, wide_len, REG_ADVANCED, C_COLLATION_OID);
		RESUME_INTERRUPTS();
#else
		code = pg_regcomp(regex, wide, wide_len, REG_ADVANCED, C_COLLATION_OID);
		while (code == REG_CANCEL)
		{
			InterruptPending = false;
			code = pg_regcomp(regex, wide, wide_len, REG_ADVANCED, C_COLLATION_OID);
			InterruptPending = true;
		}
#endif
		pfree(wide);
	}
	MemoryContextSwitchTo(old_context);
	return code;
}

static inline int
paq_regexec(regex_t *regex, const pg_wchar *data, size_t len, size_t start,
			size_t nmatch, regmatch_t *match, bool serve_interrupts)
{
	int			code;
#if PG_VERSION_NUM >= 160000
	if (!serve_interrupts)
		HOLD_INTERRUPTS();
	code = pg_regexec(regex, data, len, start, NULL, nmatch, match, 0);
	if (!serve_interrupts)
		RESUME_INTERRUPTS();
#else
	code = pg_regexec(regex, data, len, start, NULL, nmatch, match, 0);
	while (code == REG_CANCEL)
	{
		if (serve_interrupts)
			CHECK_FOR_INTERRUPTS();
		InterruptPending = false;
		code = pg_regexec(regex, data, len, start, NULL, nmatch, match, 0);
		InterruptPending = true;
	}
#endif
	return code;
}

/* ---------- Function attributes ---------- */

#if PG_VERSION_NUM < 180000
#define pg_noreturn				_Noreturn
#endif

/* ---------- Programs that stand in for a server (t/lib/ring) ---------- */

/* Signatures of functions that such a program defines itself */
#if PG_VERSION_NUM >= 160000
#define EXCEPTIONAL_CONDITION_ARGS \
	const char *condition, const char *file, int line
#define CANCEL_SLEEP_TYPE	bool
#define CANCEL_SLEEP_RESULT false
#else
#define EXCEPTIONAL_CONDITION_ARGS \
	const char *condition, const char *type, const char *file, int line
#define CANCEL_SLEEP_TYPE	void
#define CANCEL_SLEEP_RESULT
#endif

#if PG_VERSION_NUM >= 170000
#define DEFINE_PROC_NUMBER	ProcNumber MyProcNumber = -1
#else
#define DEFINE_PROC_NUMBER	extern PGPROC *MyProc
#endif

/* Set what paq_proc_number() returns; MyProc is set. */
static inline void
paq_set_proc_number(int number)
{
#if PG_VERSION_NUM >= 170000
	MyProcNumber = number;
#else
	MyProc->pgprocno = number;
#endif
}

/* Make the clock usable for durations. */
static inline void
paq_initialize_timing(void)
{
#if PG_VERSION_NUM >= 190000
	pg_initialize_timing();
#endif
}

#endif							/* PAQ_COMPAT_H */
