/*-------------------------------------------------------------------------
 *
 * session.c
 *		The rules that can apply to this session.
 *
 * Database, user and address of a session hardly ever change, so rules for others
 * are left out at once, and what is left is summed up in two bitmaps of classes:
 * what no rule can record costs a statement no more than these.  That is done at
 * the session's first statement.  When a role, a membership or a database has changed,
 * who the session is gets looked up again, in the roles that rules ask for; rules are gone
 * through again only if that is something else, and the rules in effect are others.
 *
 * Before a client has logged in, nothing can be looked up.  What cannot be told
 * counts for recording: a rule to record applies then, a rule to ignore does not.
 *
 * A statement keeps the rules that were in effect when it began (paq_policy_pin()).
 *
 * Must not raise, except for what looking up roles, and lack of memory, may; the
 * rules are then made again for the next statement.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "commands/dbcommands.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "policy/policy_internal.h"
#include "replication/walsender.h"
#include "utils/acl.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* Those of the hooks of the executor */
#define IS_EXECUTOR_TAG(tag) \
	((tag) == CMDTAG_SELECT || (tag) == CMDTAG_INSERT || (tag) == CMDTAG_UPDATE || \
	 (tag) == CMDTAG_DELETE || (tag) == CMDTAG_MERGE)

PaqPolicy	paq_policy;

/* Counts changes of roles, memberships and databases that we have been told of */
static uint64 changes = 0;

/* All PaqSessionRules of this process */
static dlist_head all_rules = DLIST_STATIC_INIT(all_rules);

/* ----------
 * Rules
 * ----------
 */

/* Can a statement with the command tag be of the class? */
static bool
tag_fits(CommandTag tag, PaqClass class)
{
	if (tag == CMDTAG_SELECT)
		return class == PAQ_CLASS_READ;
	return !IS_EXECUTOR_TAG(tag) || class == PAQ_CLASS_WRITE;
}

/*
 * Which classes does a rule's list have?  *some: those of which it may have a
 * statement; *whole: those of which it has all.
 */
void
paq_rule_classes(const PaqRule *rule, uint32 *some, uint32 *whole)
{
	*some = *whole = rule->classes[0].out ? PAQ_CLASSES_ALL : PAQ_CLASSES_NONE;
	for (int i = 0; i < rule->nclasses; i++)
	{
		const PaqClassItem *item = &rule->classes[i];
		uint32		bits = item->bits;

		if (item->kind != PAQ_CLASS_WORD)
		{
			bits = PAQ_CLASSES_NONE;
			for (int class = PAQ_FIRST_CLASS; class < PAQ_NCLASSES; class++)
				if (item->kind == PAQ_CLASS_TAG ? tag_fits(item->tag, class) :
					item->kind == PAQ_CLASS_TEMP || class == PAQ_CLASS_WRITE)
					bits |= PAQ_CLASS_BIT(class);
		}
		if (!item->out)
			*some |= bits;
		else
			*whole &= ~bits;
		if (item->kind == PAQ_CLASS_WORD)
		{
			if (item->out)
				*some &= ~bits;
			else
				*whole |= bits;
		}
	}
}

/* Does it match whatever has one of its classes? */
static bool
is_unconditional(const PaqRule *rule)
{
	bool		any_object = false;

	for (int i = 0; i < rule->nobjects; i++)
		any_object |= rule->objects[i].kind == PAQ_ITEM_ANY;
	return any_object && rule->ncurrent_users == 0 && !rule->verdict.outcomes &&
		rule->verdict.rows.op == PAQ_OP_NONE && rule->verdict.duration.op == PAQ_OP_NONE;
}

/* Sum up the rules. */
static void
sum_up(PaqSessionRules *rules)
{
	uint32		decided = PAQ_CLASSES_NONE;

	for (int i = 0; i < rules->nrules; i++)
	{
		PaqRule    *rule = rules->rules[i];
		uint32		some;
		uint32		whole;

		rule->verdict.plain = rule->verdict.statement == PAQ_TEXT_DEFAULT &&
			rule->verdict.parameters == -1 && !rule->verdict.mandatory;

		for (int j = 0; j < rule->nclasses; j++)
			rules->has_temp |= rule->classes[j].kind == PAQ_CLASS_TEMP;
		for (int j = 0; j < rule->nobjects; j++)
			rules->has_roles |= rule->objects[j].kind == PAQ_ITEM_ROLE;
		rules->has_current_users |= rule->ncurrent_users > 0;

		paq_rule_classes(rule, &some, &whole);
		if (rule->verdict.record)
			rules->recorded |= some & ~decided;
		if (!is_unconditional(rule))
			continue;
		if (!rule->verdict.record)
			rules->ignored |= whole & ~decided & ~rules->recorded;
		decided |= whole;
	}
}

/* The rules cannot be had, which must not be a reason to record nothing. */
static PaqRule *
make_record_all(void)
{
	PaqRule    *rule = palloc0(sizeof(PaqRule));

	rule->file = "";
	rule->ndatabases = rule->nusers = rule->naddresses = 1;
	rule->databases = rule->users = palloc0(sizeof(PaqName));
	rule->addresses = palloc0(sizeof(PaqAddress));
	rule->nclasses = rule->nobjects = 1;
	rule->classes = palloc0(sizeof(PaqClassItem));
	rule->classes[0].bits = PAQ_CLASSES_ALL;
	rule->objects = palloc0(sizeof(PaqObjectItem));
	rule->verdict.record = true;
	rule->verdict.mode = rule->verdict.parameters = -1;
	rule->verdict.mandatory = true;
	return rule;
}

static void
add_rule(PaqSessionRules *rules, PaqRule *rule)
{
	if (rules->nrules == rules->size)
	{
		rules->size = rules->size ? rules->size * 2 : 16;
		rules->rules = rules->rules ?
			repalloc(rules->rules, rules->size * sizeof(PaqRule *)) :
			palloc(rules->size * sizeof(PaqRule *));
	}
	rules->rules[rules->nrules++] = rule;
}

void
paq_session_rules_free(PaqSessionRules *rules)
{
	dlist_delete(&rules->node);
	if (rules->made != NULL)
	{
		for (int i = 0; i < rules->nrules; i++)
		{
			const int	number = rules->rules[i]->verdict.number - 1;

			rules->made->uses[number]--;
			paq_made_rule_drop(rules->made, number);
		}
		paq_made_rules_put(rules->made);
	}
	MemoryContextDelete(rules->context);
}

/* Go through the set, and have those of its rules that can apply. */
static void
add_rules(PaqSessionRules *rules, const PaqRuleSet *set, const PaqIdentity *who)
{
	PaqMadeRules *made = rules->made;
	const bool	noting = !made->groups_known;
	PaqRuleReader reader;
	PaqRule    *rule;
	int			i;

	if (noting)
		made->groups = NIL;
	paq_rule_set_begin(&reader, set);
	while ((rule = paq_made_rule_get(made, &reader, &i)) != NULL)
	{
		if (noting)
			paq_made_rules_note(made, rule);
		if ((rules->enabled || rule->verdict.mandatory) && paq_rule_applies(rule, who))
		{
			add_rule(rules, rule);
			made->uses[i]++;
		}
		else
			paq_made_rule_drop(made, i);
	}
	if (noting)
		paq_made_rules_noted(made);
}

/* What rules ask of memberships, in the current memory context */
static PaqMatch *
find_members(const PaqMadeRules *made, const PaqIdentity *who)
{
	PaqMatch   *members = palloc((list_length(made->groups) + 1) * sizeof(PaqMatch));
	int			number = 0;
	ListCell   *lc;

	foreach(lc, made->groups)
		members[number++] = paq_match_group(lfirst(lc), who);
	members[number] = made->samerole && who->database != NULL ?
		paq_match_group(who->database, who) : PAQ_MATCH_NO;
	return members;
}

/*
 * The rules of the set, of that generation, that can apply; known false: the set cannot be
 * had; NULL: there is none.  enabled: also those that are not mandatory.  Nobody has pinned
 * them yet.
 */
PaqSessionRules *
paq_session_rules_make(bool known, const PaqRuleSet *set, uint64 generation,
					   const PaqIdentity *who, bool enabled)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext,
												  "pg_audit_queue rules",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	PaqSessionRules *rules = palloc0(sizeof(PaqSessionRules));

	rules->context = context;
	rules->enabled = enabled;
	dlist_push_head(&all_rules, &rules->node);
	PG_TRY();
	{
		if (!known)
		{
			rules->unknown = true;
			add_rule(rules, make_record_all());
		}
		else if (set != NULL)
		{
			rules->made = paq_made_rules_get(set, generation);
			add_rules(rules, set, who);
			rules->who = *who;
			if (who->user != NULL)
				rules->who.user = pstrdup(who->user);
			if (who->database != NULL)
				rules->who.database = pstrdup(who->database);
			rules->members = find_members(rules->made, who);
		}
		sum_up(rules);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old_context);
		paq_session_rules_free(rules);
		PG_RE_THROW();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	return rules;
}

static bool
same_name(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Returns true if two identities differ in nothing but memberships. */
static bool
same_identity(const PaqIdentity *a, const PaqIdentity *b)
{
	return a->role == b->role && a->client == b->client &&
		a->client_unknown == b->client_unknown && a->replication == b->replication &&
		same_name(a->user, b->user) && same_name(a->database, b->database);
}

/*
 * Returns the rules that paq_session_rules_make() would make, if there are such rules
 * already; NULL if there are none.
 */
static PaqSessionRules *
find_session_rules(bool known, const PaqRuleSet *set, uint64 generation,
				   const PaqIdentity *who, bool enabled)
{
	PaqMatch   *members = NULL;
	PaqSessionRules *found = NULL;
	dlist_iter	iter;

	dlist_foreach(iter, &all_rules)
	{
		PaqSessionRules *rules = dlist_container(PaqSessionRules, node, iter.cur);

		if (rules->full || rules->unknown != !known || rules->enabled != enabled ||
			(rules->made != NULL) != (known && set != NULL))
			continue;
		if (rules->made != NULL)
		{
			if (rules->made->generation != generation ||
				rules->made->encoding != GetDatabaseEncoding() ||
				!same_identity(&rules->who, who))
				continue;
			if (members == NULL)
				members = find_members(rules->made, who);
			if (memcmp(rules->members, members,
					   (list_length(rules->made->groups) + 1) * sizeof(PaqMatch)) != 0)
				continue;
		}
		found = rules;
		break;
	}
	if (members != NULL)
		pfree(members);
	return found;
}

/* ----------
 * The session
 * ----------
 */

/* Who this session is; what cannot be looked up now is as the client has said. */
static void
identify(PaqIdentity *who, bool may_look_up)
{
	Oid			current;
	int			security;
	char	   *name;

	memset(who, 0, sizeof(*who));
	GetUserIdAndSecContext(&current, &security);
	who->replication = am_walsender && !am_db_walsender;
	who->client_unknown = IsParallelWorker();
	if (MyProcPort != NULL)
	{
		who->client = &MyProcPort->raddr;
		who->user = MyProcPort->user_name;
		if (!who->replication)
			who->database = MyProcPort->database_name;
	}
	if (!may_look_up || !OidIsValid(current))
		return;
	who->role = GetAuthenticatedUserId();
	name = GetUserNameFromId(who->role, true);
	if (name != NULL)
		who->user = name;
	else
		who->role = InvalidOid; /* dropped: nobody can tell its memberships */
	if (OidIsValid(MyDatabaseId))
		who->database = get_database_name(MyDatabaseId);
}

/* The rules are not used any more, by the session or by a statement. */
void
paq_policy_unpin(PaqSessionRules *rules)
{
	if (rules != NULL && --rules->pins == 0)
		paq_session_rules_free(rules);
}

/* Keep the rules for a statement, or a record. */
PaqSessionRules *
paq_policy_pin(PaqSessionRules *rules)
{
	rules->pins++;
	return rules;
}

/*
 * Roles have changed: see which rules apply to each role that has been the current user.
 * Decisions depend on that.
 */
static void
follow_current_users(PaqSessionRules *rules)
{
	/* Of others it is not known whether anything has changed. */
	if (rules->users_lost)
		paq_match_forget(rules);
	rules->users_lost = false;
	for (int i = 0; i < PAQ_KNOWN_USERS; i++)
		if (OidIsValid(rules->users[i].role) &&
			paq_known_user_update(rules, &rules->users[i]))
			paq_match_forget(rules);
}

/*
 * Bring paq_policy up to date.  Where nothing can be looked up, because there is no
 * transaction, or an error is being handled (may_look_up false), rules that the
 * session has already stay.
 */
void
paq_policy_refresh(bool may_look_up)
{
	const bool	enabled = paq_policy_enabled;
	const uint64 before = changes;
	PaqSessionRules *old = paq_policy.rules;
	const PaqRuleSet *set;
	bool		known;
	PaqSessionRules *rules;
	PaqIdentity who;
	uint64		generation;

	may_look_up = may_look_up && IsTransactionState();
	if (!may_look_up && old != NULL)
		return;

	known = paq_store_get(&set, &generation);
	if (paq_no_rules_apply)
	{
		known = true;
		set = NULL;
	}
	identify(&who, may_look_up);
	rules = find_session_rules(known, set, generation, &who, enabled);
	if (rules != NULL)
		follow_current_users(rules);
	else
		rules = paq_session_rules_make(known, set, generation, &who, enabled);

	if (rules != old)
	{
		paq_policy.rules = paq_policy_pin(rules);
		if (old != NULL)
			paq_match_leave(old);
		paq_policy_unpin(old);
	}
	/* analyzer: without memory there would have been an error */
	paq_policy.has_rules = rules->nrules > 0;
	paq_policy.has_temp = rules->has_temp;
	paq_policy.has_roles = rules->has_roles;
	paq_set_rule_classes(rules->recorded, rules->ignored);
	paq_policy.enabled = enabled;
	paq_policy.generation = may_look_up && changes == before ? generation : 0;
}

static void
forget_session(Datum arg, int cacheid, uint32 hashvalue)
{
	changes++;
	paq_policy.generation = 0;
}

void
paq_policy_init(void)
{
	CacheRegisterSyscacheCallback(AUTHOID, forget_session, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, forget_session, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, forget_session, (Datum) 0);
	paq_match_init();
}
