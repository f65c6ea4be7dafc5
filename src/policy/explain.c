/*-------------------------------------------------------------------------
 *
 * explain.c
 *		audit_policy_check(): which of the rules in effect would decide.
 *
 * Names of relations mean those of the current database.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <netdb.h>

#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "common/ip.h"
#include "fmgr.h"
#include "funcapi.h"
#include "policy/policy_internal.h"
#include "sqlfunc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

PG_FUNCTION_INFO_V1(audit_policy_check);

/* Arguments, by number */
enum
{
	ARG_DATABASE,
	ARG_USER,
	ARG_ADDRESS,
	ARG_CLASS,
	ARG_OBJECT,
	ARG_COMMAND,
	ARG_CURRENT_USER,
	ARG_OUTCOME,
	ARG_ROWS,
	ARG_DURATION
};

/* A text argument, palloc'ed; NULL if it is null */
static char *
get_argument_text(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

static char *
get_required_text(FunctionCallInfo fcinfo, int arg, const char *name)
{
	char	   *value = get_argument_text(fcinfo, arg);

	if (value == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be null", name)));

	/* Nothing has such a name, and regular expressions would be searched for in it. */
	if (strlen(value) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_NAME_TOO_LONG),
				 errmsg("argument \"%s\" is too long", name)));
	return value;
}

/* The client's address; null is a Unix-domain socket. */
static void
get_address(FunctionCallInfo fcinfo, SockAddr *address)
{
	const struct addrinfo hint = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM };
	char	   *text = get_argument_text(fcinfo, ARG_ADDRESS);
	struct addrinfo *list = NULL;

	memset(address, 0, sizeof(*address));
	address->addr.ss_family = AF_UNIX;
	if (text == NULL)
		return;
	if (pg_getaddrinfo_all(text, NULL, &hint, &list) != 0 || list == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid IP address: \"%s\"", text),
				 errhint("Null stands for a Unix-domain socket.")));
	memcpy(&address->addr, list->ai_addr, list->ai_addrlen);
	address->salen = list->ai_addrlen;
	pg_freeaddrinfo_all(hint.ai_family, list);
}

static PaqClass
get_class(FunctionCallInfo fcinfo)
{
	char	   *text = get_required_text(fcinfo, ARG_CLASS, "class");

	for (int class = PAQ_FIRST_CLASS; class < PAQ_NCLASSES; class ++)
		if (class != PAQ_CLASS_CONFIG && pg_strcasecmp(text, paq_class_name(class)) == 0)
			return class;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized class: \"%s\"", text),
			 errhint("Classes are connect, ddl, error, function, misc, misc_set, read, role, set_role and write.")));
}

static CommandTag
get_command(FunctionCallInfo fcinfo)
{
	char	   *text = get_argument_text(fcinfo, ARG_COMMAND);
	CommandTag	tag;

	if (text == NULL)
		return CMDTAG_UNKNOWN;
	tag = GetCommandTagEnum(text);
	if (tag == CMDTAG_UNKNOWN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized command tag: \"%s\"", text)));
	return tag;
}

static uint32
get_outcome(FunctionCallInfo fcinfo)
{
	char	   *text = get_argument_text(fcinfo, ARG_OUTCOME);

	if (text == NULL)
		return 0;
	if (strcmp(text, "ok") == 0)
		return PAQ_OUTCOME_OK;
	if (strcmp(text, "failed") == 0)
		return PAQ_OUTCOME_FAILED;
	if (strcmp(text, "denied") == 0)
		return PAQ_OUTCOME_FAILED | PAQ_OUTCOME_DENIED;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized outcome: \"%s\"", text),
			 errhint("Outcomes are ok, failed and denied.")));
}

/* Microseconds; null counts as none. */
static int64
get_duration(FunctionCallInfo fcinfo)
{
	const Interval *interval;

	if (PG_ARGISNULL(ARG_DURATION))
		return 0;
	interval = PG_GETARG_INTERVAL_P(ARG_DURATION);
	return interval->time + (interval->day + (int64) interval->month * DAYS_PER_MONTH) *
		USECS_PER_DAY;
}

/* What a statement of the class needs on a relation, for grants */
static AclMode
perms_of(PaqClass class, CommandTag tag)
{
	if (tag == CMDTAG_TRUNCATE_TABLE)
		return ACL_TRUNCATE;
	if (class == PAQ_CLASS_READ)
		return ACL_SELECT;
	return class == PAQ_CLASS_WRITE ? ACL_INSERT | ACL_UPDATE | ACL_DELETE : 0;
}

/* The object, a relation if there is one of that name. */
static void
get_object(FunctionCallInfo fcinfo, PaqSubject *subject)
{
	RangeVar   *name;
	Oid			schema;

	if (PG_ARGISNULL(ARG_OBJECT))
		return;
	name = makeRangeVarFromNameList(textToQualifiedNameList(PG_GETARG_TEXT_PP(ARG_OBJECT)));
	if (name->schemaname == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the name of the object must have a schema")));
	subject->object = PAQ_OBJECT_NAMED;
	subject->schema = name->schemaname;
	subject->name = name->relname;
	schema = LookupNamespaceNoError(name->schemaname);
	if (subject->class == PAQ_CLASS_FUNCTION || !OidIsValid(schema))
		return;
	subject->relid = get_relname_relid(name->relname, schema);
	if (!OidIsValid(subject->relid))
		return;
	subject->object = PAQ_OBJECT_RELATION;
	subject->perms = perms_of(subject->class, subject->tag);
	subject->temp = get_rel_persistence(subject->relid) == RELPERSISTENCE_TEMP;
}

static void
get_identity(FunctionCallInfo fcinfo, PaqIdentity *who, SockAddr *address)
{
	memset(who, 0, sizeof(*who));
	get_address(fcinfo, address);
	who->client = address;
	who->user = get_required_text(fcinfo, ARG_USER, "user_name");
	who->database = get_required_text(fcinfo, ARG_DATABASE, "database");
	who->role = get_role_oid(who->user, true);
}

/* The rule that decides when all is known; NULL: the settings do */
static const PaqRule *
find_rule(PaqSessionRules *rules, const PaqDecision *decision, const PaqEnd *end)
{
	const PaqVerdict *verdict = decision->final;

	for (int i = 0; i < decision->nlater; i++)
		if (paq_verdict_holds(decision->later[i], end))
		{
			verdict = decision->later[i];
			break;
		}
	for (int i = 0; i < rules->nrules; i++)
		if (&rules->rules[i]->verdict == verdict)
			return rules->rules[i];
	return NULL;
}

static void
fill_row(PaqRow *row, const PaqRule *rule)
{
	if (rule == NULL)
	{
		paq_row_add(row, (Datum) 0, true);
		paq_row_add(row, (Datum) 0, true);
		paq_row_add(row, (Datum) 0, true);
		paq_row_add_text(row, "settings");
		paq_row_add(row, (Datum) 0, true);
		return;
	}
	paq_row_add(row, Int32GetDatum(rule->verdict.number), rule->verdict.number == 0);
	paq_row_add_text(row, rule->file);
	paq_row_add(row, Int32GetDatum(rule->line), rule->line == 0);
	paq_row_add_text(row, rule->verdict.record ? "record" : "ignore");
	paq_row_add_text(row, rule->verdict.name.data ? rule->verdict.name.data : "");
}

/*
 * audit_policy_check(database text, user_name text, address text, class text,
 * object text, command text, current_user_name text, outcome text, row_count bigint,
 * duration interval) returns record
 *
 * The rule in effect that would decide about such a statement: its number, file, line,
 * action and name; action "settings" if there is none.  Errors: arguments that have no
 * meaning.
 */
Datum
audit_policy_check(PG_FUNCTION_ARGS)
{
	const PaqRuleSet *set;
	uint64		generation;
	bool		known;
	PaqIdentity who;
	SockAddr	address;
	PaqSubject	subject = {.may_look_up = true};
	Oid			current_user;
	PaqSessionRules *rules;
	PaqRow		row = {0};
	TupleDesc	tupdesc;
	PaqEnd		end = {.rows = PAQ_ROWS_NONE};

	paq_require_preload();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	get_identity(fcinfo, &who, &address);
	subject.class = get_class(fcinfo);
	subject.tag = get_command(fcinfo);
	get_object(fcinfo, &subject);
	current_user = PG_ARGISNULL(ARG_CURRENT_USER) ? who.role :
		get_role_oid(get_argument_text(fcinfo, ARG_CURRENT_USER), false);
	end.outcomes = get_outcome(fcinfo);
	if (!PG_ARGISNULL(ARG_ROWS))
		end.rows = PG_GETARG_INT64(ARG_ROWS);
	end.duration = get_duration(fcinfo);

	known = paq_store_get(&set, &generation);
	rules = paq_session_rules_make(known, set, generation, &who, paq_policy_enabled);
	PG_TRY();
	{
		const PaqDecision *decision = paq_rules_decide(rules, current_user, &subject);

		fill_row(&row, find_rule(rules, decision, &end));
	}
	PG_FINALLY();
	{
		paq_session_rules_free(rules);
	}
	PG_END_TRY();
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc), row.values,
													  row.nulls)));
}
