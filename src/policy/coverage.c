/*-------------------------------------------------------------------------
 *
 * coverage.c
 *		What the rules in effect are certain to record of everybody, and what they
 *		may keep from the settings, for audit_check().
 *
 * Both are by class, for statements that end in a given way.  A rule is certain if
 * it has no other condition, and no rule above it may ignore what it is about.  Of
 * a rule that may ignore something, it does not matter how little that is.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "policy/policy_internal.h"

static bool
has_all(const PaqName *names, int count)
{
	for (int i = 0; i < count; i++)
		if (names[i].kind == PAQ_NAME_ALL)
			return true;
	return false;
}

/* Does the rule match everybody's statements of its classes, if they end that way? */
static bool
is_for_everybody(const PaqRule *rule)
{
	bool		any_address = false;
	bool		any_object = false;

	for (int i = 0; i < rule->naddresses; i++)
		any_address |= rule->addresses[i].kind == PAQ_ADDRESS_ALL;
	for (int i = 0; i < rule->nobjects; i++)
		any_object |= rule->objects[i].kind == PAQ_ITEM_ANY;
	return any_address && any_object && has_all(rule->databases, rule->ndatabases) &&
		has_all(rule->users, rule->nusers) && rule->ncurrent_users == 0 &&
		rule->verdict.rows.op == PAQ_OP_NONE && rule->verdict.duration.op == PAQ_OP_NONE;
}

static void
add_ignoring(PaqCoverage *coverage, const PaqRule *rule, uint32 classes)
{
	PaqIgnoring *ignoring = palloc(sizeof(PaqIgnoring));

	ignoring->file = pstrdup(rule->file);
	ignoring->line = rule->line;
	ignoring->classes = classes;
	coverage->ignoring = lappend(coverage->ignoring, ignoring);
}

/*
 * Fill *coverage, in the current memory context, for statements with that outcome
 * (PAQ_OUTCOME_xxx).  enabled: rules that are not mandatory apply, too.  If the rules
 * cannot be had, sessions record everything.
 */
void
paq_policy_coverage(bool enabled, uint32 outcomes, PaqCoverage *coverage)
{
	const PaqRuleSet *set;
	uint64		generation;
	PaqRuleReader reader;
	PaqRule    *rule;
	uint32		ignored = PAQ_CLASSES_NONE;

	memset(coverage, 0, sizeof(*coverage));
	if (!paq_store_get(&set, &generation))
	{
		coverage->recorded = coverage->possible = PAQ_CLASSES_ALL;
		return;
	}
	if (set == NULL)
		return;
	paq_rule_set_begin(&reader, set);
	while ((rule = paq_rule_set_next(&reader)) != NULL)
	{
		const PaqVerdict *verdict = &rule->verdict;
		uint32		some;
		uint32		whole;

		paq_rule_classes(rule, &some, &whole);
		if ((!enabled && !verdict->mandatory) ||
			(verdict->outcomes != 0 && (verdict->outcomes & outcomes) == 0))
			some = whole = PAQ_CLASSES_NONE;
		if (verdict->record)
		{
			coverage->possible |= some;
			if (is_for_everybody(rule))
				coverage->recorded |= whole & ~ignored;
		}
		else if ((some & ~coverage->recorded) != 0)
		{
			add_ignoring(coverage, rule, some & ~coverage->recorded);
			ignored |= some;
		}
		paq_rule_free(rule);
	}
}
