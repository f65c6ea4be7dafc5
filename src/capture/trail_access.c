/*-------------------------------------------------------------------------
 *
 * trail_access.c
 *		Uses of the trail's own tables and files are recorded, whatever the
 *		settings are.
 *
 * Who reads the trail learns what others do, and what is known of himself.  So that
 * leaves a record in any session of a server that has loaded the library: with
 * nothing to be audited, in functions that are executed with other rights, in
 * extensions' scripts.  It names the relation or file, and has the outcome.  If
 * the settings have a record made that does so, that one is enough.
 *
 * Recorded here are statements of the executor, and COPY, that need a permission on
 * a relation of the trail's, and COPY from its files.  object_access.c has the
 * functions that read files.  What the loader does is not recorded.
 *
 * A relation is the trail's if it is in the schema that the extension has made,
 * whatever that is named now, or in the one that has its name; if it is a
 * partition, of any depth, of such a relation, wherever it is; if it is the TOAST
 * table of one; or if it is a foreign table of the trail's files.  Not the trail's
 * are views, which get their rows from the
 * tables below; and load_state, which has no records.
 *
 * What cannot be told: readers of the table's files and WAL (pageinspect, base
 * backups, replication), copies of the files that are elsewhere, programs that the
 * server starts (COPY FROM PROGRAM), and C functions.  All these need a
 * superuser, or a role that is as powerful.  Nor do statements count that compute
 * something from the rows of a table that one owns, as an index on an expression.
 *
 * Must not raise, except for what looking up a relation, and making a record, may.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <sys/stat.h>

#include "access/htup_details.h"
#include "capture/capture_internal.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_foreign_table.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "extension.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#define TRAIL_SCHEMA	"audit_queue"
#define TRAIL_HANDLER	"audit_queue_trail_handler"

/* A use of the trail by a statement */
typedef struct Use
{
	Oid			relid;
	bool		is_named;		/* by the statement: the settings may have a record
								 * made of it */
	PaqCommand	command;
	PaqObject	object;
} Use;

/*
 * Relations that have been looked up, and are not the trail's; InvalidOid: none.
 * Those of the trail are looked up each time.
 */
Oid			paq_not_trail[PAQ_KNOWN_RELATIONS];

/* Counts changes of relations and schemas that we have been told of */
static uint64 changes = 0;

/* The schemas of the trail; invalid: there is none */
static struct
{
	bool		valid;			/* no schema has changed since */
	Oid			named;			/* that has the name */
	Oid			made;			/* that the extension has made */
}			schemas;

/* ----------
 * Which relations are the trail's
 * ----------
 */

/* The schema that belongs to the extension */
static Oid
find_made_schema(void)
{
	List	   *members = paq_extension_members();
	Oid			schema = InvalidOid;
	ListCell   *lc;

	foreach(lc, members)
	{
		const ObjectAddress *member = lfirst(lc);

		if (member->classId == NamespaceRelationId)
			schema = member->objectId;
	}
	list_free_deep(members);
	return schema;
}

static void
look_up_schemas(void)
{
	const uint64 before = changes;

	schemas.named = get_namespace_oid(TRAIL_SCHEMA, true);
	schemas.made = find_made_schema();
	schemas.valid = changes == before;
}

/* Is it in a schema of the trail, and does it have records? */
static bool
is_in_schema(Oid relid, bool *is_partition)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class row;
	bool		result = false;

	*is_partition = false;
	if (!HeapTupleIsValid(tuple))
		return false;
	row = (Form_pg_class) GETSTRUCT(tuple);
	*is_partition = row->relispartition;
	switch (row->relkind)
	{
		case RELKIND_RELATION:
		case RELKIND_PARTITIONED_TABLE:
		case RELKIND_FOREIGN_TABLE:
		case RELKIND_MATVIEW:
			result = (row->relnamespace == schemas.named ||
					  row->relnamespace == schemas.made) &&
				(row->relispartition ||
				 strcmp(NameStr(row->relname), "load_state") != 0);
			break;
		default:
			break;
	}
	ReleaseSysCache(tuple);
	return result;
}

/* The table that a TOAST table belongs to; for any other relation, itself */
static Oid
table_of(Oid relid)
{
	List	   *relations;

	if (get_rel_relkind(relid) != RELKIND_TOASTVALUE)
		return relid;
	relations = paq_relations_of(RelationRelationId, relid, NULL);
	return llast_oid(relations);
}

/* The OID in a column of the row that a system cache has for another one */
static Oid
fetch_oid(int cache, Oid key, AttrNumber column)
{
	HeapTuple	tuple = SearchSysCache1(cache, ObjectIdGetDatum(key));
	Datum		value;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	value = SysCacheGetAttr(cache, tuple, column, &isnull);
	ReleaseSysCache(tuple);
	return isnull ? InvalidOid : DatumGetObjectId(value);
}

/*
 * Does a foreign table, wherever it is, have the trail's files?  Its wrapper may be another
 * one than the extension's, with the same handler.
 */
static bool
has_trail_files(Oid relid)
{
	const Oid	server = fetch_oid(FOREIGNTABLEREL, relid,
								 Anum_pg_foreign_table_ftserver);
	const Oid	wrapper = fetch_oid(FOREIGNSERVEROID, server,
								  Anum_pg_foreign_server_srvfdw);
	const Oid	handler = fetch_oid(FOREIGNDATAWRAPPEROID, wrapper,
								  Anum_pg_foreign_data_wrapper_fdwhandler);
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(handler));
	Datum		source;
	bool		isnull;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	source = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);
	result = !isnull && strcmp(TextDatumGetCString(source), TRAIL_HANDLER) == 0;
	ReleaseSysCache(tuple);
	return result;
}

static bool
is_trail(Oid relid)
{
	bool		is_partition;
	bool		ignored;
	ListCell   *lc;

	if (get_rel_relkind(relid) == RELKIND_FOREIGN_TABLE && has_trail_files(relid))
		return true;
	if (!schemas.valid)
		look_up_schemas();
	if (!OidIsValid(schemas.named) && !OidIsValid(schemas.made))
		return false;
	relid = table_of(relid);
	if (is_in_schema(relid, &is_partition))
		return true;
	if (!is_partition)
		return false;
	foreach(lc, get_partition_ancestors(relid))
	{
		if (is_in_schema(lfirst_oid(lc), &ignored))
			return true;
	}
	return false;
}

/* Returns true if this process is the loader. */
bool
paq_is_loader(void)
{
	return MyBgworkerEntry != NULL &&
		strcmp(MyBgworkerEntry->bgw_library_name, "pg_audit_queue") == 0 &&
		strcmp(MyBgworkerEntry->bgw_function_name, "paq_load_main") == 0;
}

/* Is the relation the trail's?  If it is not, remember that. */
static bool
look_up(Oid relid)
{
	const uint64 before = changes;

	if (relid < FirstNormalObjectId ||
		paq_not_trail[relid % PAQ_KNOWN_RELATIONS] == relid)
		return false;
	if (!paq_is_loader() && is_trail(relid))
		return true;
	if (changes == before)
		paq_not_trail[relid % PAQ_KNOWN_RELATIONS] = relid;
	return false;
}

/* Is any of the relations the trail's? */
bool
paq_trail_is_used(const List *relations)
{
	ListCell   *lc;

	foreach(lc, relations)
	{
		if (look_up(lfirst_oid(lc)))
			return true;
	}
	return false;
}

/*
 * All that counts is in pg_class and pg_namespace: a table that is moved, attached,
 * or made with the OID of another one.  Callbacks of the relation cache would do as
 * well, but PostgreSQL has room for 10 of them only.
 */
static void
forget_relations(Datum arg, int cacheid, uint32 hashvalue)
{
	changes++;
	memset(paq_not_trail, 0, sizeof(paq_not_trail));
}

static void
forget_schemas(Datum arg, int cacheid, uint32 hashvalue)
{
	schemas.valid = false;
	forget_relations(arg, cacheid, hashvalue);
}

/* ----------
 * What a statement does with them
 * ----------
 */

static bool
is_noted(const PaqStatement *statement, Oid relid, PaqClass class)
{
	ListCell   *lc;

	foreach(lc, statement->trail_uses)
	{
		Use		   *use = lfirst(lc);

		if (use->relid == relid && paq_classify(&use->command) == class)
			return true;
	}
	return false;
}

static void
note_use(PaqStatement *statement, RangeTblEntry *rte, PaqRtePerms *perms,
		 bool is_named)
{
	const PaqCommand command = paq_relation_command(statement, rte, perms);
	Use		   *use;

	if (is_noted(statement, rte->relid, paq_classify(&command)))
		return;
	use = palloc0(sizeof(Use));
	use->relid = rte->relid;
	use->is_named = is_named;
	use->command = command;
	use->object.type = paq_relkind_name(rte->relkind);
	use->object.name = paq_relation_name(rte->relid);
	statement->trail_uses = lappend(statement->trail_uses, use);
}

/*
 * Is the statement the query that PostgreSQL makes of a COPY, because of row
 * security, and does the COPY have the record?
 */
static bool
is_copied(Oid relid)
{
	const PaqCallFrame *outer = paq_stack.frame ? paq_stack.frame->parent : NULL;

	return outer != NULL && outer->statement != NULL &&
		outer->query_desc == NULL && outer->statement->trail_copied == relid;
}

/*
 * Before permissions are checked: note which relations of the trail the statement
 * uses.  If it needs no permission for any, it reaches one as the child of a
 * relation that is not the trail's, and reads that.
 */
void
paq_trail_begin(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	RangeTblEntry *child = NULL;
	PaqRtePerms reads = {.requiredPerms = ACL_SELECT};
	bool		found = false;
	ListCell   *lc;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);

		if (rte->rtekind != RTE_RELATION || !look_up(rte->relid))
			continue;
		if (perms.requiredPerms == 0)
			child = rte;
		else
		{
			found = true;
			if (!is_copied(rte->relid))
				note_use(statement, rte, &perms, true);
		}
	}
	if (!found && child != NULL)
		note_use(statement, child, &reads, false);
}

/* Is the path that of the directory, or of something below it?  Changes path. */
static bool
is_below(char *path, const char *directory)
{
	struct stat there;
	struct stat here;
	char	   *slash;

	if (stat(directory, &there) != 0)
		return false;
	do
	{
		if (stat(path, &here) == 0 && here.st_dev == there.st_dev &&
			here.st_ino == there.st_ino)
			return true;
		slash = strrchr(path, '/');
		if (slash != NULL)
			*slash = '\0';
	} while (slash != NULL && slash != path);
	return false;
}

/* Is the path that of a file of the trail or the queue, whether it exists or not? */
static bool
is_trail_path(const char *path)
{
	const char *const directories[] = {paq_log_directory, paq_queue_directory};
	char		given[MAXPGPATH];
	char		real[PATH_MAX];

	for (int i = 0; i < lengthof(directories); i++)
	{
		if (realpath(path, real) == NULL)
		{
			strlcpy(given, path, sizeof(given));
			get_parent_directory(given);
			if (realpath(given[0] ? given : ".", real) == NULL)
				return false;
		}
		if (is_below(real, directories[i]))
			return true;
	}
	return false;
}

static bool
reads_trail_file(const CopyStmt *copy)
{
	return copy->is_from && copy->filename != NULL && !copy->is_program &&
		is_trail_path(copy->filename);
}

/* Does the COPY read a file of the trail's, or name a relation of it? */
bool
paq_trail_concerns_copy(const CopyStmt *copy)
{
	return look_up(paq_named_relation(copy->relation)) || reads_trail_file(copy);
}

/*
 * A COPY begins.  Its relation is recorded when its permissions have been found to
 * suffice, its file at once.
 */
void
paq_trail_begin_copy(PaqStatement *statement, const CopyStmt *copy)
{
	const Oid	relid = paq_named_relation(copy->relation);

	if (look_up(relid))
	{
		RangeTblEntry rte = {
			.relid = relid,.relkind = get_rel_relkind(relid),
			.rellockmode = copy->is_from ? RowExclusiveLock : AccessShareLock
		};
		PaqRtePerms perms = {
			.requiredPerms = copy->is_from ? ACL_INSERT : ACL_SELECT
		};

		note_use(statement, &rte, &perms, true);
	}
	if (reads_trail_file(copy))
	{
		PaqObject	object = {false, "FILE", copy->filename};

		paq_record_always(statement, PAQ_CLASS_READ, CMDTAG_COPY, &object);
	}
}

/* Have the settings made a record of that use? */
static bool
is_recorded(const Use *use)
{
	return use->is_named && paq_log_relation && !creating_extension &&
		!paq_policy.has_rules &&
		paq_class_is_audited(paq_classify(&use->command)) &&
		!paq_has_others_rights();
}

/*
 * Permissions have been checked, and what the settings ask for has been recorded:
 * record the uses that are not.
 */
void
paq_trail_record(PaqStatement *statement)
{
	while (unlikely(statement->trail_uses != NIL))
	{
		Use		   *use = linitial(statement->trail_uses);

		if (!is_recorded(use))
			paq_record_always(statement, paq_classify(&use->command),
							  use->command.tag, &use->object);
		statement->trail_copied = use->relid;
		statement->trail_uses = list_delete_first(statement->trail_uses);
	}
}

/*
 * The statement has failed: record the uses that it was about to make.  For use
 * while the error is being handled.
 */
void
paq_trail_fail(PaqStatement *statement)
{
	ListCell   *lc;

	foreach(lc, statement->trail_uses)
	{
		Use		   *use = lfirst(lc);

		paq_record_denied(statement, &use->command, &use->object, NULL);
	}
	statement->trail_uses = NIL;
}

void
paq_trail_init(void)
{
	CacheRegisterSyscacheCallback(RELOID, forget_relations, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, forget_schemas, (Datum) 0);
}
