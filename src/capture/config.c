/*-------------------------------------------------------------------------
 *
 * config.c
 *		Class CONFIG: changes of pg_audit_queue's own settings, and of the one by
 *		which the server loads the library, recorded whatever these settings are.
 *
 * A setting changes in the session by SET, RESET, set_config(), the SET clause of
 * a function, options of the connection, and the return of an earlier value when
 * a transaction or function ends.  GUC tells of the change, which is recorded
 * before it takes effect.
 *
 * ALTER SYSTEM, and ALTER ROLE and ALTER DATABASE ... SET and RESET, store a
 * value for other sessions.  The record is made before the statement is executed,
 * and published with its outcome.  The effect of a stored value is recorded once,
 * when the worker takes it from the configuration file at a reload (the drain
 * room).  Sessions that take it, at a reload or at login, do not record that.  So
 * a session's record is always about something that was done there.
 *
 * What is done to consumers of the trail counts as such a change: what none of them waits
 * for, retention may remove.
 *
 * A SET or RESET that fails is recorded, too.  Its record is made beforehand, and
 * dropped when the statement succeeds.
 *
 * Must not raise.  paq_config_begin() reads catalogs and allocates memory, and
 * may pass on errors of that.
 *
 * Locking: none beyond AccessShareLock on pg_db_role_setting.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "capture/capture.h"
#include "capture/capture_internal.h"
#include "catalog/pg_database.h"
#include "catalog/pg_db_role_setting.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc_tables.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#define PREFIX			"pg_audit_queue."
#define OBJECT_TYPE		"SETTING"

/* A statement that stores values of settings for sessions to come */
typedef struct StoreStmt
{
	VariableSetStmt *set;
	GucSource	source;			/* of the values, in a session that uses them */
	bool		in_catalog;		/* stored in pg_db_role_setting, for: */
	Oid			database;		/* invalid: all */
	Oid			role;			/* invalid: all */
} StoreStmt;

static bool
has_prefix(const char *name)
{
	return name != NULL && pg_strncasecmp(name, PREFIX, strlen(PREFIX)) == 0;
}

/*
 * Set the event's values.  They may be hidden by mask_patterns, but for the value
 * of mask_patterns itself, which is no secret.
 */
static void
set_values(PaqEvent *event, const char *old_value, const char *new_value)
{
	PaqMasked  *shown = &event->shown[1];

	event->old_value = old_value;
	event->new_value = new_value;
	if (pg_strcasecmp(event->object_name, PREFIX "mask_patterns") == 0)
		return;
	if (old_value != NULL)
	{
		paq_mask_value(old_value, false, 0, &shown[0]);
		event->old_value = shown[0].text;
	}
	if (new_value != NULL)
	{
		paq_mask_value(new_value, false, 0, &shown[1]);
		event->new_value = shown[1].text;
	}
}

/*
 * A setting changes in this process.  Changes by a reload or the login are not the
 * session's; see the top of this file.  Processes without a PGPROC, such as the
 * postmaster, are no sessions.
 */
static void
record_change(const PaqSettingChange *change)
{
	PaqEvent	event = {.class = PAQ_CLASS_CONFIG};

	if (MyProc == NULL || proc_exit_inprogress ||
		(!change->restored && change->source < PGC_S_CLIENT))
		return;
	if (!change->restored && IsTransactionState())
		paq_session_warm();
	event.start_time = GetCurrentTimestamp();
	event.command = change->restored ? "RESET" : "SET";
	event.object_type = OBJECT_TYPE;
	event.object_name = change->name;
	set_values(&event, change->old_value, change->new_value);
	event.value_source = GucSource_Names[change->source];
	paq_record_event(&event, 0);
}

/* One value of SET as text, NULL if it is something else */
static const char *
constant_text(Node *node)
{
	A_Const    *constant = (A_Const *) node;

	if (!IsA(node, A_Const) || constant->isnull)
		return NULL;
	switch (nodeTag(&constant->val))
	{
		case T_Integer:
			return psprintf("%d", intVal(&constant->val));
		case T_Float:
			return castNode(Float, &constant->val)->fval;
		case T_String:
			return strVal(&constant->val);
		default:
			return NULL;
	}
}

/* The value that the statement sets; NULL for RESET. */
static const char *
given_value(VariableSetStmt *set)
{
	StringInfoData text;
	ListCell   *lc;

	if (set->kind == VAR_SET_CURRENT)
	{
		const char *name = set->name;

		return paq_setting_value(&name, false);
	}
	if (set->kind != VAR_SET_VALUE)
		return NULL;
	initStringInfo(&text);
	foreach(lc, set->args)
	{
		const char *value = constant_text(lfirst(lc));

		if (lc != list_head(set->args))
			appendStringInfoString(&text, ", ");
		appendStringInfoString(&text, value ? value : "???");
	}
	return text.data;
}

/*
 * Make a record of what the statement does to a setting.  Returns NULL when
 * out of memory.
 */
static PaqPending *
create_record(PaqStatement *statement, const char *command, const char *name,
			  const char *old_value, const char *new_value, GucSource source)
{
	PaqEvent	event = {.class = PAQ_CLASS_CONFIG};
	PaqPending *pending;

	event.start_time = statement->start_time;
	event.command = command;
	event.object_type = OBJECT_TYPE;
	event.object_name = name;
	if (!paq_log_statement)
		event.flags = PAQ_RECORD_STMT_NOT_LOGGED;
	else
	{
		PaqClass	class = paq_classify(&statement->command);
		const PaqMasked *shown = paq_shown_text(statement, true,
												paq_masks_constants(class));

		event.text = shown->text;
		event.flags = paq_masked_flags(shown);
	}
	set_values(&event, old_value, new_value);
	event.value_source = GucSource_Names[source];
	pending = paq_event_create(&event);
	if (pending != NULL)
	{
		(void) paq_statement_part(statement);
		paq_pending_header(pending)->stmt_location = statement->location;
		paq_pending_header(pending)->stmt_len = statement->len;
	}
	return pending;
}

static void
record_store(PaqStatement *statement, const StoreStmt *stmt, const char *name,
			 const char *old_value)
{
	PaqPending *pending =
		create_record(statement, GetCommandTagName(statement->command.tag),
					  name, old_value, given_value(stmt->set), stmt->source);

	if (pending != NULL)
		paq_record_add(statement, pending, false, false);
}

/*
 * Record the change of the setting called name in a list of "name=value" or, with
 * name NULL, of all settings of ours.  Returns false if there is none.
 */
static bool
record_stored(PaqStatement *statement, const StoreStmt *stmt,
			  const char *name, ArrayType *settings)
{
	Datum	   *elements;
	bool	   *nulls;
	int			number;
	bool		found = false;

	deconstruct_array(settings, TEXTOID, -1, false, TYPALIGN_INT,
					  &elements, &nulls, &number);
	for (int i = 0; i < number; i++)
	{
		char	   *setting = nulls[i] ? NULL : TextDatumGetCString(elements[i]);
		char	   *value = has_prefix(setting) ? strchr(setting, '=') : NULL;

		if (value == NULL)
			continue;
		*value++ = '\0';
		if (name != NULL && pg_strcasecmp(name, setting) != 0)
			continue;
		record_store(statement, stmt, setting, value);
		found = true;
	}
	return found;
}

/*
 * Record a change of what pg_db_role_setting has for the setting called name, or
 * for all if that is NULL.
 */
static void
record_catalog(PaqStatement *statement, const StoreStmt *stmt, const char *name)
{
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&key[0], Anum_pg_db_role_setting_setdatabase,
				BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(stmt->database));
	ScanKeyInit(&key[1], Anum_pg_db_role_setting_setrole,
				BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(stmt->role));
	scan = systable_beginscan(rel, DbRoleSettingDatidRolidIndexId, true, NULL,
							  2, key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		bool		isnull;
		Datum		settings;

		settings = heap_getattr(tuple, Anum_pg_db_role_setting_setconfig,
								RelationGetDescr(rel), &isnull);
		if (!isnull)
			found = record_stored(statement, stmt, name,
								  DatumGetArrayTypeP(settings));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	if (!found && name != NULL)
		record_store(statement, stmt, name, NULL);
}

/* Record that ALTER SYSTEM RESET ALL resets the settings in ALTER SYSTEM's file. */
static void
record_file(PaqStatement *statement, const StoreStmt *stmt)
{
	ConfigVariable *head = NULL;
	ConfigVariable *tail = NULL;

	(void) ParseConfigFile(PG_AUTOCONF_FILENAME, false, NULL, 0, 0, DEBUG1,
						   &head, &tail);
	for (ConfigVariable *item = head; item != NULL; item = item->next)
	{
		const char *name = item->name;
		const char *value = has_prefix(name) ? paq_setting_value(&name, true) : NULL;

		if (value != NULL)
			record_store(statement, stmt, name, value);
	}
	FreeConfigVariables(head);
}

/* OID of a role; invalid, *ok false, if there is none */
static Oid
find_role(RoleSpec *role, bool *ok)
{
	Oid			oid = role->roletype == ROLESPEC_PUBLIC ? InvalidOid :
		get_rolespec_oid(role, true);

	*ok = *ok && OidIsValid(oid);
	return oid;
}

static Oid
find_database(const char *name, bool *ok)
{
	Oid			oid = get_database_oid(name, true);

	*ok = *ok && OidIsValid(oid);
	return oid;
}

/* Look at a statement that stores values; false if it is another one. */
static bool
get_store(Node *parsetree, StoreStmt *stmt)
{
	memset(stmt, 0, sizeof(*stmt));
	if (IsA(parsetree, AlterSystemStmt))
	{
		stmt->set = ((AlterSystemStmt *) parsetree)->setstmt;
		stmt->source = PGC_S_FILE;
	}
	else if (IsA(parsetree, AlterDatabaseSetStmt))
	{
		AlterDatabaseSetStmt *alter = (AlterDatabaseSetStmt *) parsetree;

		stmt->set = alter->setstmt;
		stmt->source = PGC_S_DATABASE;
	}
	else if (IsA(parsetree, AlterRoleSetStmt))
	{
		AlterRoleSetStmt *alter = (AlterRoleSetStmt *) parsetree;

		stmt->set = alter->setstmt;
		if (alter->role != NULL)
			stmt->source = alter->database ? PGC_S_DATABASE_USER : PGC_S_USER;
		else
			stmt->source = alter->database ? PGC_S_DATABASE : PGC_S_GLOBAL;
	}
	return stmt->set != NULL;
}

/*
 * Find the role and database that the statement stores for.  If one does not
 * exist, nothing is stored, and the statement is going to fail.
 */
static void
find_target(Node *parsetree, StoreStmt *stmt)
{
	bool		ok = true;

	if (IsA(parsetree, AlterDatabaseSetStmt))
		stmt->database =
			find_database(((AlterDatabaseSetStmt *) parsetree)->dbname, &ok);
	else
	{
		AlterRoleSetStmt *alter = (AlterRoleSetStmt *) parsetree;

		if (alter->role != NULL)
			stmt->role = find_role(alter->role, &ok);
		if (alter->database != NULL)
			stmt->database = find_database(alter->database, &ok);
	}
	stmt->in_catalog = ok;
}

/* Would the library not be loaded any more, with another value for the server? */
static bool
is_load_setting(const StoreStmt *stmt)
{
	return stmt->source == PGC_S_FILE && stmt->set->name != NULL &&
		pg_strcasecmp(stmt->set->name, "shared_preload_libraries") == 0;
}

/*
 * Does the statement set, reset or store a setting of ours, or that by which the
 * server loads us?
 */
bool
paq_config_concerns(Node *parsetree)
{
	StoreStmt	stmt;

	if (IsA(parsetree, VariableSetStmt))
		return has_prefix(((VariableSetStmt *) parsetree)->name);
	return get_store(parsetree, &stmt) &&
		(stmt.set->kind == VAR_RESET_ALL || has_prefix(stmt.set->name) ||
		 is_load_setting(&stmt));
}

/* Before a SET or RESET: make a record in case it fails. */
static void
begin_set(PaqStatement *statement, VariableSetStmt *set)
{
	const bool	reset = set->kind == VAR_RESET || set->kind == VAR_SET_DEFAULT;
	const char *name = set->name;
	const char *value = paq_setting_value(&name, false);

	/* The value for a setting that does not exist may be anything. */
	statement->attempt = create_record(statement, reset ? "RESET" : "SET", name,
									   value, value ? given_value(set) : NULL,
									   PGC_S_SESSION);
}

/* Before a statement that concerns us: make its records, which wait for its outcome. */
void
paq_config_begin(PaqStatement *statement, Node *parsetree)
{
	StoreStmt	stmt;
	const char *name;
	const char *value;

	paq_session_warm();
	if (IsA(parsetree, VariableSetStmt))
	{
		begin_set(statement, (VariableSetStmt *) parsetree);
		return;
	}

	(void) get_store(parsetree, &stmt);
	/* analyzer: the statement stores a setting, or nobody would call this */
	name = stmt.set->kind == VAR_RESET_ALL ? NULL : stmt.set->name;
	value = name ? paq_setting_value(&name, true) : NULL;
	if (stmt.source != PGC_S_FILE)
		find_target(parsetree, &stmt);
	if (stmt.in_catalog)
		record_catalog(statement, &stmt, name);
	else if (name != NULL)
		record_store(statement, &stmt, name,
					 stmt.source == PGC_S_FILE ? value : NULL);
	else if (stmt.source == PGC_S_FILE)
		record_file(statement, &stmt);
}

/* The statement has succeeded.  If it changed something, GUC has told us. */
void
paq_config_end(PaqStatement *statement)
{
	if (statement->attempt != NULL)
		paq_pending_free(statement->attempt);
	statement->attempt = NULL;
}

void
paq_record_consumer(const char *command, const char *name)
{
	PaqEvent	event = {.class = PAQ_CLASS_CONFIG};

	paq_session_warm();
	event.start_time = GetCurrentTimestamp();
	event.command = command;
	event.object_type = "CONSUMER";
	event.object_name = name;
	paq_record_event(&event, 0);
}

void
paq_config_init(void)
{
	paq_setting_change_hook = record_change;
}
