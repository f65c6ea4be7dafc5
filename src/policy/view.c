/*-------------------------------------------------------------------------
 *
 * view.c
 *		The function of view audit_policy_rules: the policy file as it is now, which
 *		need not be what is in effect.
 *
 * The words are shown as they are in the file, without quotes.  Bytes that are no
 * characters in the database's encoding become question marks.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "libpq/hba.h"
#include "mb/pg_wchar.h"
#include "nodes/pg_list.h"
#include "policy/policy_internal.h"
#include "sqlfunc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(audit_policy_rules);

/* Fields of a line with a column each: the action, and the lists behind it */
#define NLISTS			5
#define NFIELDS			(1 + NLISTS)

static Datum
text_datum(const char *bytes)
{
	char	   *text = pstrdup(bytes);

	if (!pg_verifymbstr(text, strlen(text), true))
		for (char *p = text; *p != '\0'; p++)
			if (IS_HIGHBIT_SET(*p))
				*p = '?';
	return CStringGetTextDatum(text);
}

static void
add_null(PaqRow *row)
{
	paq_row_add(row, (Datum) 0, true);
}

/* The words of a field */
static void
add_words(PaqRow *row, List *tokens)
{
	ArrayBuildState *words = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	ListCell   *lc;

	foreach(lc, tokens)
		accumArrayResult(words, text_datum(((AuthToken *) lfirst(lc))->string), false,
						 TEXTOID, CurrentMemoryContext);
	paq_row_add(row, makeArrayResult(words, CurrentMemoryContext), false);
}

/* Each condition or option, with all of its values */
static void
add_options(PaqRow *row, List *fields)
{
	ArrayBuildState *result = initArrayResult(TEXTOID, CurrentMemoryContext, false);

	for (int i = NFIELDS; i < list_length(fields); i++)
	{
		StringInfoData buf;
		ListCell   *lc;

		initStringInfo(&buf);
		foreach(lc, (List *) list_nth(fields, i))
			appendStringInfo(&buf, "%s%s", buf.len > 0 ? "," : "",
							 ((AuthToken *) lfirst(lc))->string);
		accumArrayResult(result, text_datum(buf.data), false, TEXTOID, CurrentMemoryContext);
	}
	paq_row_add(row, makeArrayResult(result, CurrentMemoryContext), false);
}

/* What the rule says; of a line that is none, nothing */
static void
add_fields(PaqRow *row, const PaqRuleLine *line)
{
	List	   *fields = line->fields;
	List	   *action;

	if (line->error != NULL)
	{
		for (int i = 0; i < NFIELDS + 1; i++)
			add_null(row);
		return;
	}
	action = (List *) linitial(fields);
	paq_row_add(row, text_datum(((AuthToken *) linitial(action))->string), false);
	for (int i = 1; i < NFIELDS; i++)
		add_words(row, (List *) list_nth(fields, i));
	add_options(row, fields);
}

/* A line, with the number of the rule if it is one */
static void
show_line(ReturnSetInfo *result, const PaqRuleLine *line, int number, bool in_effect)
{
	PaqRow		row = {0};

	paq_row_add(&row, Int32GetDatum(number), line->error != NULL);
	paq_row_add(&row, text_datum(line->file), false);
	paq_row_add(&row, Int32GetDatum(line->line), line->line == 0);
	add_fields(&row, line);
	paq_row_add(&row, BoolGetDatum(in_effect), false);
	if (line->error != NULL)
		paq_row_add(&row, text_datum(line->error), false);
	else
		add_null(&row);
	if (row.n != result->setDesc->natts)
		elog(ERROR, "return type must be a row type of %d columns", row.n);
	tuplestore_putvalues(result->setResult, result->setDesc, row.values, row.nulls);
}

/*
 * audit_policy_rules() returns setof record
 *
 * A row for each line of the policy file, or one that says why it cannot be read.  No
 * row if there is none, and no rules are in effect.
 */
Datum
audit_policy_rules(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *path;
	char	   *error;
	List	   *lines;
	bool		missing;
	bool		in_effect;
	PaqRuleSet *set;
	ListCell   *lc;
	int			number = 0;

	paq_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	path = paq_policy_path();
	set = paq_rule_set_read(path, &lines, &error, &missing);
	in_effect = set != NULL && paq_store_is_in_effect(set->checksum);
	foreach(lc, lines)
	{
		const PaqRuleLine *line = (const PaqRuleLine *) lfirst(lc);

		if (line->error == NULL)
			number++;
		show_line(result, line, number, in_effect);
	}
	if (error != NULL && !(missing && paq_store_is_in_effect("")))
	{
		PaqRuleLine all = {.file = path, .error = error};

		show_line(result, &all, 0, false);
	}
	return (Datum) 0;
}
