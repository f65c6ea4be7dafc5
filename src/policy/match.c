/*-------------------------------------------------------------------------
 *
 * match.c
 *		Which rule decides about a subject: what a statement does with one relation,
 *		or a statement without any.
 *
 * Rules are gone through in the order of the file.  Those with conditions that are
 * known only when the statement ends are noted; the first one without ends the
 * search.
 *
 * Of a relation, the names of those count, too, of which it is a partition or a
 * child: else rules for a table could be evaded by using its partitions.  For rules
 * to record, those of its own partitions and children count as well, because who uses
 * a table uses them.
 *
 * Decisions about relations and functions are remembered by OID, with what each depends on:
 * the function, or the relations whose names counted, and their schemas.  It is forgotten
 * when one of these changes, and at no other change: whoever makes and drops tables, schemas
 * or functions of his own costs others nothing.  A relation that becomes a part of another
 * one changes that one, too, so what counted tells enough.
 * Shown by t/policy/rules_time.pl and t/policy/policy_follows.pl.
 *
 * Must not raise, except for what catalog lookups may, lack of memory included, and an
 * interrupt while very many names are looked at.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "policy/policy_internal.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* A name of an object */
typedef struct ObjectName
{
	const char *schema;			/* NULL: it has none */
	const char *name;			/* NULL: all in the schema */
	const char *text;			/* qualified, for regular expressions; NULL: not yet */
	uint64	   *searched;		/* bits of SearchedName, likewise */
} ObjectName;

/* The subject, and what has been found out about it */
typedef struct Search
{
	PaqSessionRules *rules;
	const PaqSubject *subject;
	bool		has_names;		/* these are known: */
	List	   *names;			/* of the relation, and what it is a part of */
	List	   *parts;			/* its partitions and children */
	bool		has_parts;
	List	   *relations;		/* OIDs of those whose names counted, */
	List	   *schemas;		/* and of their schemas */
	bool		changes_unseen; /* nobody is told when they become others */
	bool		granted;		/* the last match was by grants */
	bool		asked_grants;	/* some match was tried by grants */
} Search;

/* What a decision that is remembered depends on */
typedef struct KnownKey
{
	uint64		who_what;		/* CURRENT_USER, if that matters, and the relation */
	uint64		how;			/* the rest of the subject, or its use */
} KnownKey;

/* A decision that was made before */
typedef struct KnownDecision
{
	KnownKey	key;
	const PaqDecision *decision;	/* NULL: forgotten */
	bool		has_family;		/* other relations' names counted, too */
	char		status;			/* of simplehash.h */
} KnownDecision;

static inline uint32
hash_key(KnownKey key)
{
	const uint64 mixed = key.who_what ^ (key.how << 20);

	return murmurhash32((uint32) (mixed ^ (mixed >> 32)));
}

static inline Oid
relation_of(KnownKey key)
{
	return (Oid) key.who_what;
}

#define SH_PREFIX known
#define SH_ELEMENT_TYPE KnownDecision
#define SH_KEY_TYPE KnownKey
#define SH_KEY key
#define SH_HASH_KEY(tb, key) hash_key(key)
#define SH_EQUAL(tb, a, b) ((a).who_what == (b).who_what && (a).how == (b).how)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/*
 * What can change, as a number: a relation by its OID, a schema or a function by the value that
 * PostgreSQL's caches have for it
 */
#define RELATION(oid)	((uint64) (oid))
#define SCHEMA(hash)	((uint64) (hash) | (UINT64CONST(1) << 32))
#define FUNCTION(hash)	((uint64) (hash) | (UINT64CONST(2) << 32))

/* Something that decisions which are remembered depend on */
typedef struct Dependence
{
	uint64		what;			/* see above */
	Oid			dependent;		/* the relation or function whose decisions do; of a relation,
								 * beside itself.  Invalid: all that have a family */
	char		status;			/* of simplehash.h */
} Dependence;

#define SH_PREFIX dependence
#define SH_ELEMENT_TYPE Dependence
#define SH_KEY_TYPE uint64
#define SH_KEY what
#define SH_HASH_KEY(tb, key) murmurhash32((uint32) ((key) ^ ((key) >> 27)))
#define SH_EQUAL(tb, a, b) ((a) == (b))
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* Decisions that are remembered at most: each change of what one depends on goes through them. */
#define MAX_KNOWN		2048

/* Different decisions that a session's rules have at most, before they are made again */
#define MAX_DECISIONS	1024

/*
 * A qualified name, and which regular expressions of the rules match it: whatever else changes,
 * that does not.  A partitioned table with thousands of partitions has as many names.
 */
typedef struct SearchedName
{
	const char *text;
	uint64	   *bits;			/* two for each expression: is it known, does it match? */
	uint32		hash;			/* of text */
	char		status;			/* of simplehash.h */
} SearchedName;

#define SH_PREFIX searched
#define SH_ELEMENT_TYPE SearchedName
#define SH_KEY_TYPE const char *
#define SH_KEY text
#define SH_HASH_KEY(tb, key) hash_bytes((const unsigned char *) (key), strlen(key))
#define SH_EQUAL(tb, a, b) (strcmp((a), (b)) == 0)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, a) (a)->hash
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* Names that are kept so at most, but for those of one decision */
#define MAX_SEARCHED	16384

/* Changes that are noted at most while a decision is made */
#define MAX_CHANGES		32

/*
 * What has changed since the decision that is being made, or the last one, was begun.  A number
 * above MAX_CHANGES stands for anything.
 */
static struct
{
	int			number;
	uint64		what[MAX_CHANGES];
}			changed;

/* Of names while a decision is made */
static MemoryContext scratch = NULL;

/* ----------
 * Names
 * ----------
 */

/* Does the name match the pattern, in which "*" stands for any characters? */
static bool
pattern_matches(const char *pattern, const char *name)
{
	const char *star = NULL;
	const char *rest = NULL;

	for (;;)
	{
		if (*pattern == '*')
		{
			star = pattern++;
			rest = name;
		}
		else if (*name == '\0')
			return *pattern == '\0';
		else if (*pattern == *name)
		{
			pattern++;
			name++;
		}
		else if (star != NULL)
		{
			pattern = star + 1;
			name = ++rest;
		}
		else
			return false;
	}
}

/* The same for a part of a qualified name; NULL is any. */
static bool
part_matches(const char *part, const char *name, bool literal)
{
	if (part == NULL)
		return true;
	return literal ? strcmp(part, name) == 0 : pattern_matches(part, name);
}

/* A schema is all that is in it, of which something is enough for a rule to record. */
static PaqMatch
match_schema(const PaqRule *rule, const PaqObjectItem *item, const char *schema)
{
	if (item->kind == PAQ_ITEM_REGEX)
		return PAQ_MATCH_UNKNOWN;
	return part_matches(item->schema, schema, item->literal) &&
		(rule->verdict.record || item->name == NULL ||
		 (strcmp(item->name, "*") == 0 && !item->literal)) ? PAQ_MATCH_YES : PAQ_MATCH_NO;
}

/* Forget what regular expressions match. */
static void
forget_searched(PaqSessionRules *rules)
{
	if (rules->searched_context != NULL)
		MemoryContextDelete(rules->searched_context);
	rules->searched_context = NULL;
	rules->searched = NULL;
}

/* Number the regular expressions of the rules, which are the session's, from 0 on. */
static void
begin_searched(PaqSessionRules *rules)
{
	MemoryContext context = AllocSetContextCreate(rules->context, "pg_audit_queue names",
												  ALLOCSET_SMALL_SIZES);

	rules->searched_context = context;
	rules->nexpressions = 0;
	for (int i = 0; i < rules->nrules; i++)
		for (int j = 0; j < rules->rules[i]->nobjects; j++)
			if (rules->rules[i]->objects[j].kind == PAQ_ITEM_REGEX)
				rules->rules[i]->objects[j].number = rules->nexpressions++;
	rules->searched = searched_create(context, 64, NULL);
}

/* Returns the bits of SearchedName for the text, none of them set if it is new. */
static uint64 *
find_searched(PaqSessionRules *rules, const char *text)
{
	SearchedName *searched;
	bool		found;
	uint64	   *bits;
	char	   *copy;

	if (rules->searched == NULL)
		begin_searched(rules);
	searched = searched_lookup(rules->searched, text);
	if (searched != NULL)
		return searched->bits;

	/* in this order: an error for lack of memory leaves no entry that is not filled */
	bits = MemoryContextAllocZero(rules->searched_context,
								  (rules->nexpressions / 32 + 1) * sizeof(uint64));
	copy = MemoryContextStrdup(rules->searched_context, text);
	searched = searched_insert(rules->searched, copy, &found);
	searched->bits = bits;
	return bits;
}

/*
 * Returns whether the item's regular expression matches the name.  The rules in effect keep the
 * answer, unless it is unknown.
 */
static PaqMatch
match_expression(Search *search, const PaqObjectItem *item, ObjectName *name)
{
	const int	word = item->number / 32;
	const int	shift = item->number % 32 * 2;
	PaqMatch	result;

	if (name->text == NULL)
		name->text = name->schema ? psprintf("%s.%s", name->schema, name->name) : name->name;
	if (search->rules != paq_policy.rules)
		return paq_match_regex(item->regex, name->text);
	if (name->searched == NULL)
		name->searched = find_searched(search->rules, name->text);
	if ((name->searched[word] >> shift) & 1)
		return (name->searched[word] >> shift) & 2 ? PAQ_MATCH_YES : PAQ_MATCH_NO;
	result = paq_match_regex(item->regex, name->text);
	if (result != PAQ_MATCH_UNKNOWN)
		name->searched[word] |=
			(uint64) (result == PAQ_MATCH_YES ? 3 : 1) << shift;
	return result;
}

static PaqMatch
match_object_name(Search *search, const PaqObjectItem *item, ObjectName *name)
{
	const char *schema = name->schema ? name->schema : "";

	if (item->kind == PAQ_ITEM_REGEX)
		return match_expression(search, item, name);
	return part_matches(item->schema, schema, item->literal) &&
		part_matches(item->name, name->name, item->literal) ?
		PAQ_MATCH_YES : PAQ_MATCH_NO;
}

static PaqMatch
match_any_name(Search *search, const PaqObjectItem *item, List *names)
{
	PaqMatch	match = PAQ_MATCH_NO;
	ListCell   *lc;

	foreach(lc, names)
	{
		match = Max(match, match_object_name(search, item, lfirst(lc)));
		if (match == PAQ_MATCH_YES)
			break;
	}
	return match;
}

/* Add the name of a relation, unless it has vanished; from here on, it counts. */
static List *
add_name(List *names, Oid relid, Search *search, bool *has_parts)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Form_pg_class row;
	ObjectName *name;

	search->relations = lappend_oid(search->relations, relid);
	if (!HeapTupleIsValid(tuple))
		return names;
	row = (Form_pg_class) GETSTRUCT(tuple);
	search->schemas = list_append_unique_oid(search->schemas, row->relnamespace);
	name = palloc0(sizeof(ObjectName));
	name->schema = isAnyTempNamespace(row->relnamespace) ? "pg_temp" :
		get_namespace_name(row->relnamespace);
	name->name = pstrdup(NameStr(row->relname));
	if (has_parts != NULL)
		*has_parts = row->relhassubclass;
	ReleaseSysCache(tuple);
	return lappend(names, name);
}

/* Add those of which the relation is a partition or a child, but not theirs. */
static List *
add_parents(List *relations, Relation inherits, Oid relid)
{
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_inherits_inhrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(inherits, InheritsRelidSeqnoIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		relations = list_append_unique_oid(relations,
										   ((Form_pg_inherits) GETSTRUCT(tuple))->inhparent);
	systable_endscan(scan);
	return relations;
}

/* Find the names of the relation, and of what it belongs to or is a part of. */
static void
find_names(Search *search)
{
	const Oid	relid = search->subject->relid;
	Relation	inherits = table_open(InheritsRelationId, AccessShareLock);
	List	   *relations = paq_relations_of(RelationRelationId, relid, NULL);

	search->has_names = true;
	search->names = add_name(NIL, relid, search, &search->has_parts);
	for (int i = 0; i < list_length(relations); i++)
	{
		relations = add_parents(relations, inherits, list_nth_oid(relations, i));
		if (i > 0)
			search->names = add_name(search->names, list_nth_oid(relations, i), search, NULL);
	}
	/* ALTER SEQUENCE ... OWNED BY changes pg_depend alone. */
	search->changes_unseen = get_rel_relkind(relid) == RELKIND_SEQUENCE;
	table_close(inherits, AccessShareLock);
}

/* Serve an interrupt, if that may be: there can be very many names to be looked at. */
static inline void
serve_interrupts(const Search *search)
{
	if (search->subject->may_look_up)
		CHECK_FOR_INTERRUPTS();
}

/*
 * Returns the partitions and children of the relation, at any depth.  Those that are being
 * detached are among them, which find_all_inheritors() leaves out: statements with an older
 * snapshot still read them.
 */
static List *
find_descendants(Oid relid)
{
	List	   *descendants = NIL;
	List	   *level = list_make1_oid(relid);

	while (level != NIL)
	{
		List	   *next = NIL;
		ListCell   *lc;

		foreach(lc, level)
			next = list_concat(next, find_inheritance_children_extended(lfirst_oid(lc), false,
																		NoLock, NULL, NULL));
		/* a child of two parents once */
		list_sort(next, list_oid_cmp);
		list_deduplicate_oid(next);
		descendants = list_concat(descendants, next);
		level = next;
	}
	return descendants;
}

/*
 * Find the names of the partitions and children of the relation, and of what these belong to:
 * the tables of an index's partitions.
 */
static void
find_parts(Search *search)
{
	List	   *descendants = find_descendants(search->subject->relid);
	ListCell   *lc;

	search->has_parts = false;
	foreach(lc, descendants)
	{
		List	   *owners = paq_relations_of(RelationRelationId, lfirst_oid(lc), NULL);
		ListCell   *owner;

		serve_interrupts(search);
		foreach(owner, owners)
			search->parts = add_name(search->parts, lfirst_oid(owner), search, NULL);
		list_free(owners);
	}
}

/* ----------
 * Words
 * ----------
 */

static bool
class_item_matches(const PaqClassItem *item, const PaqSubject *subject)
{
	switch (item->kind)
	{
		case PAQ_CLASS_WORD:
			return (item->bits & PAQ_CLASS_BIT(subject->class)) != 0;
		case PAQ_CLASS_TAG:
			return item->tag == subject->tag;
		case PAQ_CLASS_TRUNCATE:
			return subject->tag == CMDTAG_TRUNCATE_TABLE;
		case PAQ_CLASS_TEMP:
			return subject->temp;
	}
	return false;
}

/* The last word that matches decides. */
static bool
class_matches(const PaqRule *rule, const PaqSubject *subject)
{
	bool		result = rule->classes[0].out;

	for (int i = 0; i < rule->nclasses; i++)
		if (class_item_matches(&rule->classes[i], subject))
			result = !rule->classes[i].out;
	return result;
}

static bool
is_granted(const char *name, const PaqSubject *subject)
{
	Oid			role = get_role_oid(name, true);

	if (!OidIsValid(role))
		return false;
	if (subject->rte != NULL)
		return paq_role_is_granted(role, subject->rte, subject->perminfos);
	return subject->perms != 0 && paq_role_has_grant(role, subject->relid, subject->perms);
}

static PaqMatch
match_relation(const PaqRule *rule, const PaqObjectItem *item, Search *search)
{
	PaqMatch	match;

	if (item->kind == PAQ_ITEM_ROLE)
	{
		search->asked_grants = true;
		search->granted = is_granted(item->name, search->subject);
		return search->granted ? PAQ_MATCH_YES : PAQ_MATCH_NO;
	}
	if (!search->has_names)
		find_names(search);
	match = match_any_name(search, item, search->names);
	if (match == PAQ_MATCH_YES || !rule->verdict.record)
		return match;
	if (search->has_parts)
		find_parts(search);
	serve_interrupts(search);
	return Max(match, match_any_name(search, item, search->parts));
}

static PaqMatch
match_object(const PaqRule *rule, const PaqObjectItem *item, Search *search)
{
	const PaqSubject *subject = search->subject;
	ObjectName	name = {NULL};

	search->granted = false;
	if (item->kind == PAQ_ITEM_ANY)
		return PAQ_MATCH_YES;
	switch (subject->object)
	{
		case PAQ_OBJECT_NONE:
			break;
		case PAQ_OBJECT_UNKNOWN:
			return item->kind == PAQ_ITEM_ROLE ? PAQ_MATCH_NO : PAQ_MATCH_UNKNOWN;
		case PAQ_OBJECT_RELATION:
			return match_relation(rule, item, search);
		case PAQ_OBJECT_NAMED:
			name.schema = subject->schema;
			name.name = subject->name;
			if (item->kind == PAQ_ITEM_ROLE)
				return PAQ_MATCH_NO;
			return name.name != NULL ? match_object_name(search, item, &name) :
				match_schema(rule, item, name.schema);
	}
	return PAQ_MATCH_NO;
}

static bool
object_matches(const PaqRule *rule, Search *search)
{
	PaqMatch	match = PAQ_MATCH_NO;

	/* names first: what a name selects is not selected by grants */
	for (int roles = 0; roles <= 1; roles++)
		for (int i = 0; i < rule->nobjects && match != PAQ_MATCH_YES; i++)
			if ((rule->objects[i].kind == PAQ_ITEM_ROLE) == roles)
				match = Max(match, match_object(rule, &rule->objects[i], search));
	return match == PAQ_MATCH_YES ||
		(match == PAQ_MATCH_UNKNOWN && rule->verdict.record);
}

/* ----------
 * Decisions
 * ----------
 */

static inline bool
is_known_at_end(const PaqVerdict *verdict)
{
	return verdict->outcomes != 0 || verdict->rows.op != PAQ_OP_NONE ||
		verdict->duration.op != PAQ_OP_NONE;
}

/*
 * See which rules apply while known->role is the current user.  Returns true if they are others
 * than before.
 */
bool
paq_known_user_update(PaqSessionRules *rules, PaqKnownUser *known)
{
	const Oid	role = known->role;
	const bool	lost = rules->users_lost;
	const uint64 failed_before = paq_failed_searches;
	bool		changed = false;
	char	   *name;

	/* in case an error keeps us from looking */
	known->role = InvalidOid;
	rules->users_lost = true;
	name = GetUserNameFromId(role, true);
	for (int i = 0; i < rules->nrules; i++)
	{
		const bool	applies = paq_rule_applies_to(rules->rules[i], role, name);

		changed |= known->applies[i] != applies;
		known->applies[i] = applies;
	}
	rules->users_lost = lost;
	if (paq_failed_searches == failed_before)
		known->role = role;
	else
		changed = true;
	if (name != NULL)
		pfree(name);
	return changed;
}

/* Which rules apply to the current user; NULL: it does not matter, or is unknown */
static bool *
rules_of_user(PaqSessionRules *rules, Oid user, bool may_look_up)
{
	PaqKnownUser *known;

	if (!rules->has_current_users)
		return NULL;
	for (int i = 0; i < PAQ_KNOWN_USERS; i++)
		if (rules->users[i].role == user && rules->users[i].applies != NULL)
			return rules->users[i].applies;

	if (!may_look_up)
		return NULL;
	known = &rules->users[rules->next_user];
	rules->next_user = (rules->next_user + 1) % PAQ_KNOWN_USERS;
	rules->users_lost |= OidIsValid(known->role);
	if (known->applies == NULL)
		known->applies = MemoryContextAlloc(rules->context, rules->nrules * sizeof(bool));
	known->role = user;
	(void) paq_known_user_update(rules, known);
	return known->applies;
}

/* The decision about a subject of that class with these contents, as one that is kept */
static const PaqDecision *
intern(PaqSessionRules *rules, PaqClass class, const PaqVerdict *final, bool granted,
	   List *later)
{
	const uint32 late_class = final == NULL && later != NIL ? PAQ_CLASS_BIT(class) :
		PAQ_CLASSES_NONE;
	MemoryContext old_context;
	PaqDecision *decision;
	ListCell   *lc;
	ListCell   *verdict;
	int			i;

	foreach(lc, rules->decisions)
	{
		decision = lfirst(lc);
		if (decision->final != final || decision->granted != granted ||
			decision->late_class != late_class || decision->nlater != list_length(later))
			continue;
		i = 0;
		foreach(verdict, later)
		{
			if (decision->later[i] != lfirst(verdict))
				break;
			i++;
		}
		if (i == decision->nlater)
			return decision;
	}

	old_context = MemoryContextSwitchTo(rules->context);
	decision = palloc(offsetof(PaqDecision, later) +
					  list_length(later) * sizeof(PaqVerdict *));
	decision->final = final;
	decision->granted = granted;
	decision->late_class = late_class;
	decision->nlater = list_length(later);
	i = 0;
	foreach(verdict, later)
		decision->later[i++] = lfirst(verdict);
	rules->decisions = lappend(rules->decisions, decision);
	MemoryContextSwitchTo(old_context);

	/* Statements may have any of them, so they go when all of the rules do. */
	if (list_length(rules->decisions) >= MAX_DECISIONS && !rules->full)
	{
		rules->full = true;
		if (rules == paq_policy.rules)
			paq_policy.generation = 0;
	}
	return decision;
}

/* Go through the rules. */
static const PaqDecision *
search_rules(PaqSessionRules *rules, Oid user, Search *search)
{
	const bool *applies = rules_of_user(rules, user, search->subject->may_look_up);
	List	   *later = NIL;
	bool		granted = false;

	for (int i = 0; i < rules->nrules; i++)
	{
		const PaqRule *rule = rules->rules[i];

		if ((applies != NULL ? !applies[i] :
			 rule->ncurrent_users > 0 && !rule->verdict.record) ||
			!class_matches(rule, search->subject) || !object_matches(rule, search))
			continue;
		granted |= search->granted && rule->verdict.record;
		if (!is_known_at_end(&rule->verdict))
			return intern(rules, search->subject->class, &rule->verdict, granted, later);
		later = lappend(later, unconstify(PaqVerdict *, &rule->verdict));
	}
	return intern(rules, search->subject->class, NULL, granted, later);
}

static inline KnownKey
key_of(Oid user, const PaqSubject *subject)
{
	KnownKey	key = {.who_what = ((uint64) user << 32) | subject->relid};

	if (subject->use != 0)
		key.how = subject->use;
	else
		key.how = (uint64) subject->tag | ((uint64) subject->class << 32) |
			((uint64) subject->object << 40) | ((uint64) subject->temp << 48);
	return key;
}

/* The schema, and the function, as PostgreSQL's caches will tell of their changes */
static inline uint64
schema_by_oid(Oid schema)
{
	return SCHEMA(GetSysCacheHashValue1(NAMESPACEOID, ObjectIdGetDatum(schema)));
}

static inline uint64
function_by_oid(Oid function)
{
	return FUNCTION(GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(function)));
}

/* Returns true if subject->relid is the OID of a function. */
static inline bool
is_function(const PaqSubject *subject)
{
	return OidIsValid(subject->relid) && subject->object != PAQ_OBJECT_RELATION;
}

/* Returns true if this has changed since the decision was begun. */
static bool
has_changed(uint64 what)
{
	if (changed.number > MAX_CHANGES)
		return true;
	for (int i = 0; i < changed.number; i++)
		if (changed.what[i] == what)
			return true;
	return false;
}

/* Returns true if anything that the decision depends on has changed since it was begun. */
static bool
is_outdated(const Search *search)
{
	ListCell   *lc;

	if (changed.number == 0)
		return false;
	if (is_function(search->subject) && has_changed(function_by_oid(search->subject->relid)))
		return true;
	foreach(lc, search->relations)
		if (has_changed(RELATION(lfirst_oid(lc))))
			return true;
	foreach(lc, search->schemas)
		if (has_changed(schema_by_oid(lfirst_oid(lc))))
			return true;
	return false;
}

/* Note that the decisions about dependent depend on something. */
static void
depend(PaqSessionRules *rules, uint64 what, Oid dependent)
{
	bool		found;
	Dependence *dependence = dependence_insert(rules->dependences, what, &found);

	/* Its own decisions depend on a relation anyhow. */
	if (!found || RELATION(dependence->dependent) == what)
		dependence->dependent = dependent;
	else if (dependence->dependent != dependent && RELATION(dependent) != what)
		dependence->dependent = InvalidOid;
}

/* Remember the decision that the search has led to. */
static void
remember(PaqSessionRules *rules, KnownKey key, const Search *search,
		 const PaqDecision *decision)
{
	const PaqSubject *subject = search->subject;
	KnownDecision *known;
	bool		found;
	ListCell   *lc;

	if (rules->known == NULL)
	{
		rules->dependences = dependence_create(rules->context, 64, NULL);
		rules->known = known_create(rules->context, 64, NULL);
	}
	else if (rules->known->members >= MAX_KNOWN)
	{
		known_reset(rules->known);
		dependence_reset(rules->dependences);
	}

	/* In this order: what an error for lack of memory leaves behind is harmless. */
	if (is_function(subject))
		depend(rules, function_by_oid(subject->relid), subject->relid);
	else if (OidIsValid(subject->relid))
		depend(rules, RELATION(subject->relid), subject->relid);
	foreach(lc, search->relations)
		depend(rules, RELATION(lfirst_oid(lc)), subject->relid);
	foreach(lc, search->schemas)
		depend(rules, schema_by_oid(lfirst_oid(lc)), InvalidOid);
	known = known_insert(rules->known, key, &found);
	known->has_family = list_length(search->relations) > 1;
	known->decision = decision;
}

/*
 * Decide, and remember that, unless something changes meanwhile that the decision depends on.
 * Not remembered is what has a name but no OID, what grants had to be asked for, which can be
 * for columns, what is about a sequence, which may come to belong to another table, and what a
 * statement asks that began with other rules than those in effect.
 */
static pg_noinline const PaqDecision *
decide_anew(PaqSessionRules *rules, Oid user, const PaqSubject *subject)
{
	Search		search = {.rules = rules, .subject = subject};
	const uint64 failed_before = paq_failed_searches;
	MemoryContext old_context;
	const PaqDecision *decision;

	if (scratch == NULL)
		scratch = AllocSetContextCreate(TopMemoryContext, "pg_audit_queue decision",
										ALLOCSET_SMALL_SIZES);
	old_context = MemoryContextSwitchTo(scratch);
	if (rules->searched != NULL && rules->searched->members >= MAX_SEARCHED)
		forget_searched(rules);

	/* That these caches are set up for the first time may have us told of changes. */
	if (OidIsValid(subject->relid))
	{
		(void) function_by_oid(InvalidOid);
		(void) schema_by_oid(InvalidOid);
	}
	changed.number = 0;
	if (is_function(subject))
		search.schemas = list_make1_oid(get_func_namespace(subject->relid));
	decision = search_rules(rules, user, &search);
	if ((OidIsValid(subject->relid) || subject->object != PAQ_OBJECT_NAMED) &&
		!search.asked_grants && !search.changes_unseen && rules == paq_policy.rules &&
		(subject->may_look_up || !rules->has_current_users) &&
		paq_failed_searches == failed_before && !is_outdated(&search))
		remember(rules, key_of(user, subject), &search, decision);
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(scratch);
	return decision;
}

static inline const PaqDecision *
recall(const PaqSessionRules *rules, KnownKey key)
{
	const KnownDecision *known = NULL;

	if (likely(rules->known != NULL))
		known = known_lookup(rules->known, key);
	return likely(known != NULL) ? known->decision : NULL;
}

/*
 * What decides about the subject, while the role is the current user.  Reads
 * catalogs for names of relations, unless it knows the decision.  user is invalid if
 * that does not matter.
 */
static inline const PaqDecision *
decide(PaqSessionRules *rules, Oid user, const PaqSubject *subject)
{
	const PaqDecision *decision = recall(rules, key_of(user, subject));

	return likely(decision != NULL) ? decision : decide_anew(rules, user, subject);
}

const PaqDecision *
paq_rules_decide(PaqSessionRules *rules, Oid user, const PaqSubject *subject)
{
	return decide(rules, rules->has_current_users ? user : InvalidOid, subject);
}

static pg_noinline const PaqDecision *
decide_for_current_user(PaqSessionRules *rules, const PaqSubject *subject)
{
	Oid			user;
	int			security;

	GetUserIdAndSecContext(&user, &security);
	return decide(rules, user, subject);
}

/* The same for the current user. */
const PaqDecision *
paq_policy_decide(PaqSessionRules *rules, const PaqSubject *subject)
{
	if (unlikely(rules->has_current_users))
		return decide_for_current_user(rules, subject);
	return decide(rules, InvalidOid, subject);
}

/*
 * What has been decided about a subject with that relation and that use before.  NULL:
 * nothing that is remembered, or it depends on the current user.
 */
const PaqDecision *
paq_policy_recall(const PaqSessionRules *rules, Oid relid, uint64 use)
{
	const KnownKey key = {.who_what = relid, .how = use};

	return likely(!rules->has_current_users) ? recall(rules, key) : NULL;
}

/* ----------
 * Conditions that are known at the end
 * ----------
 */

/* The bits that the outcomes of a rule may have */
uint32
paq_outcome_bits(int sqlstate)
{
	if (sqlstate == 0)
		return PAQ_OUTCOME_OK;
	if (sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE ||
		ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION)
		return PAQ_OUTCOME_FAILED | PAQ_OUTCOME_DENIED;
	return PAQ_OUTCOME_FAILED;
}

static bool
compare(const PaqComparison *comparison, int64 value)
{
	switch (comparison->op)
	{
		case PAQ_OP_NONE:
			return true;
		case PAQ_OP_LT:
			return value < comparison->value;
		case PAQ_OP_LE:
			return value <= comparison->value;
		case PAQ_OP_EQ:
			return value == comparison->value;
		case PAQ_OP_GE:
			return value >= comparison->value;
		case PAQ_OP_GT:
			return value > comparison->value;
	}
	return false;
}

/*
 * Returns true if the condition "outcome" of a rule holds.  If that cannot be told, it holds for
 * a rule to record only.
 */
static bool
outcome_holds(const PaqVerdict *verdict, const PaqEnd *end)
{
	const bool	failed = (end->outcomes & PAQ_OUTCOME_FAILED) != 0;

	if (verdict->outcomes == 0 || (verdict->outcomes & end->outcomes) != 0)
		return true;
	if (end->outcomes == 0)
		return verdict->record;
	if ((verdict->outcomes & PAQ_OUTCOME_PARTIAL) == 0 || !failed)
		return false;
	return end->rows == PAQ_ROWS_UNKNOWN ? verdict->record : end->rows > 0;
}

/*
 * Do the conditions of a rule that matches hold?  Those that nobody can tell of hold
 * for a rule to record only.
 */
bool
paq_verdict_holds(const PaqVerdict *verdict, const PaqEnd *end)
{
	if (end->interrupted)
		return verdict->record;
	if (!outcome_holds(verdict, end))
		return false;
	if (!compare(&verdict->duration, end->duration))
		return false;
	if (verdict->rows.op == PAQ_OP_NONE)
		return true;
	if (end->rows == PAQ_ROWS_UNKNOWN)
		return verdict->record;
	return compare(&verdict->rows, Max(end->rows, 0));
}

/* ----------
 * Changes
 * ----------
 */

/* Roles have changed, or the session has other rules: forget all decisions. */
void
paq_match_forget(PaqSessionRules *rules)
{
	if (rules->known == NULL)
		return;
	known_destroy(rules->known);
	rules->known = NULL;
	dependence_destroy(rules->dependences);
	rules->dependences = NULL;
}

/* The rules are not those of the session any more, and others may number their expressions. */
void
paq_match_leave(PaqSessionRules *rules)
{
	paq_match_forget(rules);
	forget_searched(rules);
}

/* Something has changed: forget the decisions that depend on it. */
static void
forget(uint64 what)
{
	PaqSessionRules *rules = paq_policy.rules;
	const Dependence *dependence;
	known_iterator all;
	KnownDecision *known;

	if (changed.number < MAX_CHANGES)
		changed.what[changed.number] = what;
	changed.number = Min(changed.number, MAX_CHANGES) + 1;
	if (rules == NULL || rules->known == NULL)
		return;
	dependence = dependence_lookup(rules->dependences, what);
	if (dependence == NULL)
		return;

	known_start_iterate(rules->known, &all);
	while ((known = known_iterate(rules->known, &all)) != NULL)
	{
		const Oid	relid = relation_of(known->key);

		if (relid == dependence->dependent || RELATION(relid) == what ||
			(!OidIsValid(dependence->dependent) && (known->has_family || what >> 32 != 0)))
			known->decision = NULL;
	}
}

/* Forget all decisions: anything may have changed. */
static void
forget_all(void)
{
	changed.number = MAX_CHANGES + 1;
	if (paq_policy.rules != NULL && paq_policy.rules->known != NULL)
	{
		known_reset(paq_policy.rules->known);
		dependence_reset(paq_policy.rules->dependences);
	}
}

/* Callback for a change of a relation; InvalidOid stands for all that there are. */
static void
forget_relation(Datum arg, Oid relid)
{
	if (OidIsValid(relid))
		forget(RELATION(relid));
	else
		forget_all();
}

/* Callback for a change of a schema or function; hashvalue 0 stands for all that there are. */
static void
forget_cached(Datum arg, int cacheid, uint32 hashvalue)
{
	if (hashvalue == 0)
		forget_all();
	else
		forget(cacheid == NAMESPACEOID ? SCHEMA(hashvalue) : FUNCTION(hashvalue));
}

void
paq_match_init(void)
{
	CacheRegisterRelcacheCallback(forget_relation, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, forget_cached, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, forget_cached, (Datum) 0);
}
