/*-------------------------------------------------------------------------
 *
 * made.c
 *		Rules made of the words of a rule set, once in a process.
 *
 * A session has the rules that can apply to it (session.c), and others when who it is has
 * become something else.  A statement keeps those that it began with, and a cursor is a
 * statement.  All of them share what is made of a line of the file, above all its
 * regular expressions, each of which takes some kilobytes.
 *
 * Guarantees: of each rule of a generation of the policy there is at most one PaqRule
 * that is kept, and none is kept that no session's rules have, but one that was being
 * looked at when an error was raised.
 * Shown by t/policy/rules_memory.pl.
 *
 * Must not raise, except for lack of memory, and if the words are those of a later version.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "policy/policy_internal.h"
#include "utils/memutils.h"

/* Those of the generation that was asked for last; NULL: none, or nobody has them any more */
static PaqMadeRules *newest = NULL;

/*
 * Returns the rules of the set, which is the one of that generation.  The caller has to give
 * them back.
 */
PaqMadeRules *
paq_made_rules_get(const PaqRuleSet *set, uint64 generation)
{
	MemoryContext context;
	PaqMadeRules *made;

	/* A session that logs in does not know the encoding of its database yet. */
	if (newest != NULL && newest->generation == generation &&
		newest->encoding == GetDatabaseEncoding())
	{
		newest->users++;
		return newest;
	}
	context = AllocSetContextCreate(TopMemoryContext, "pg_audit_queue made rules",
									ALLOCSET_SMALL_SIZES);
	made = MemoryContextAllocZero(context, sizeof(PaqMadeRules));
	made->context = context;
	made->generation = generation;
	made->encoding = GetDatabaseEncoding();
	made->users = 1;
	made->nrules = set->nrules;
	made->rules = MemoryContextAllocZero(context, set->nrules * sizeof(PaqRule *) + 1);
	made->uses = MemoryContextAllocZero(context, set->nrules * sizeof(int) + 1);
	newest = made;
	return made;
}

/* The caller does not use the rules any more. */
void
paq_made_rules_put(PaqMadeRules *made)
{
	if (--made->users > 0)
		return;
	for (int i = 0; i < made->nrules; i++)
		if (made->rules[i] != NULL)
			paq_rule_free(made->rules[i]);
	if (newest == made)
		newest = NULL;
	MemoryContextDelete(made->context);
}

/*
 * Returns the next rule that the reader of the set comes to, number *i from 0; NULL at the
 * end.  Whoever keeps it counts that in made->uses; else paq_made_rule_drop() must follow.
 */
PaqRule *
paq_made_rule_get(PaqMadeRules *made, PaqRuleReader *reader, int *i)
{
	*i = reader->number;
	if (*i == made->nrules)
		return NULL;
	if (made->rules[*i] != NULL)
		paq_rule_set_skip(reader);
	else
	{
		MemoryContext old_context = MemoryContextSwitchTo(made->context);

		made->rules[*i] = paq_rule_set_next(reader);
		MemoryContextSwitchTo(old_context);
	}
	return made->rules[*i];
}

/* Free the rule, unless somebody uses it. */
void
paq_made_rule_drop(PaqMadeRules *made, int i)
{
	if (made->uses[i] > 0)
		return;
	paq_rule_free(made->rules[i]);
	made->rules[i] = NULL;
}

static int
compare_groups(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

/* Add the roles whose members the names are. */
static void
add_groups(PaqMadeRules *made, const PaqName *names, int number)
{
	for (int i = 0; i < number; i++)
		if (names[i].kind == PAQ_NAME_GROUP)
			made->groups = lappend(made->groups, pstrdup(names[i].text));
		else if (names[i].kind == PAQ_NAME_SAMEROLE)
			made->samerole = true;
}

/*
 * All rules of the set are being gone through: note in which roles membership matters to
 * one.
 */
void
paq_made_rules_note(PaqMadeRules *made, const PaqRule *rule)
{
	MemoryContext old_context = MemoryContextSwitchTo(made->context);

	Assert(!made->groups_known);
	add_groups(made, rule->users, rule->nusers);
	add_groups(made, rule->databases, rule->ndatabases);
	MemoryContextSwitchTo(old_context);
}

/* All rules of the set have been noted: sort the roles, and have each once. */
void
paq_made_rules_noted(PaqMadeRules *made)
{
	int			number = 0;
	ListCell   *lc;

	list_sort(made->groups, compare_groups);
	foreach(lc, made->groups)
	{
		if (number > 0 && strcmp(lfirst(lc), list_nth(made->groups, number - 1)) == 0)
			pfree(lfirst(lc));
		else
			list_nth_cell(made->groups, number++)->ptr_value = lfirst(lc);
	}
	made->groups = list_truncate(made->groups, number);
	made->groups_known = true;
}
