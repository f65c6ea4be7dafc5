/*-------------------------------------------------------------------------
 *
 * rule.c
 *		Words of a line to a rule: what each field of the policy file may say.
 *
 * Guarantees: words that make a rule in one process of a server make it in each
 * of them.  A regular expression, which is in no particular encoding, is an error
 * if it is none in UTF-8, or as bytes if it is not valid there.  A session
 * compiles it for the encoding of its database; if it is none there, nobody can
 * tell what it would match, and regex is NULL.
 *
 * Out of memory is the only error that is raised.  What is wrong with the words
 * is said in the order of the fields, and only of the first wrong word.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netdb.h>

#include "common/int.h"
#include "common/ip.h"
#include "common/string.h"
#include "compat.h"
#include "libpq/hba.h"
#include "libpq/ifaddr.h"
#include "mb/pg_wchar.h"
#include "policy/policy_internal.h"
#include "record/record.h"
#include "utils/formatting.h"

/* A message gets no longer, whatever the word that it shows, bytes */
#define MAX_MESSAGE		500

/* What it shows of a name that is too long, bytes */
#define MAX_SHOWN_NAME	100

/* The fields that each rule has, in order */
typedef enum Field
{
	FIELD_ACTION,
	FIELD_DATABASE,
	FIELD_USER,
	FIELD_ADDRESS,
	FIELD_CLASS,
	FIELD_OBJECT,
	NFIELDS
} Field;

static const char *const field_names[NFIELDS] = {
	"action", "database", "user", "address", "class", "object"
};

/* The option without a value */
#define MANDATORY		"mandatory"

/* A condition or an option */
typedef struct Option
{
	const char *name;
	bool		condition;
	bool		compares;		/* operators other than "=" are possible */
	bool		many;			/* more than one value is possible */
	bool		(*make) (const struct Option *option, PaqOperator op,
				 List *values, PaqRule *rule, char **error);
} Option;

/* A word that a value is chosen from */
typedef struct Choice
{
	const char *word;
	int			value;
} Choice;

static const Choice outcome_choices[] = {
	{"ok", PAQ_OUTCOME_OK},
	{"failed", PAQ_OUTCOME_FAILED},
	{"denied", PAQ_OUTCOME_DENIED},
	{"partial", PAQ_OUTCOME_PARTIAL},
	{NULL, 0}
};

static const Choice mode_choices[] = {
	{"queued", PAQ_MODE_QUEUED},
	{"commit", PAQ_MODE_COMMIT},
	{"immediate", PAQ_MODE_IMMEDIATE},
	{NULL, 0}
};

static const Choice switch_choices[] = {
	{"on", 1},
	{"off", 0},
	{NULL, 0}
};

static const Choice statement_choices[] = {
	{"on", PAQ_TEXT_ON},
	{"off", PAQ_TEXT_OFF},
	{"normalized", PAQ_TEXT_NORMALIZED},
	{NULL, 0}
};

/* Microseconds; the unit without a name comes first */
static const struct
{
	const char *name;
	int64		factor;
}			duration_units[] =
{
	{"", 1000},
	{"us", 1},
	{"ms", 1000},
	{"s", INT64CONST(1000000)},
	{"min", INT64CONST(60000000)},
	{"h", INT64CONST(3600000000)}
};

/* Say what is wrong.  The result is false, for the caller to return. */
static bool complain(char **error, const char *format,...) pg_attribute_printf(2, 3);

static bool
complain(char **error, const char *format,...)
{
	StringInfoData buf;
	int			needed = 0;

	initStringInfo(&buf);
	do
	{
		va_list		args;

		if (needed > 0)
			enlargeStringInfo(&buf, needed);
		va_start(args, format);
		needed = appendStringInfoVA(&buf, format, args);
		va_end(args);
	} while (needed > 0);
	if (buf.len > MAX_MESSAGE)
		strcpy(buf.data + pg_encoding_mbcliplen(PG_UTF8, buf.data, buf.len, MAX_MESSAGE),
			   "...");
	*error = buf.data;
	return false;
}

/* Append a word to a list of those that are possible. */
static void
add_word(StringInfo words, const char *word)
{
	appendStringInfo(words, "%s%s", words->len > 0 ? ", " : "", word);
}

/* Is it that word, with its special meaning? */
static bool
is_word(const AuthToken *token, const char *word)
{
	return !token->quoted && strcmp(token->string, word) == 0;
}

/*-------------------------------------------------------------------------
 * Regular expressions
 *-------------------------------------------------------------------------
 */

/* The encoding in which an expression has to be right, whatever the database's is */
static int
neutral_encoding(const char *pattern)
{
	const int	len = strlen(pattern);

	if (pg_is_ascii(pattern))
		return GetDatabaseEncoding();
	return pg_encoding_verifymbstr(PG_UTF8, pattern, len) == len ? PG_UTF8 : PG_SQL_ASCII;
}

static bool
make_regex(const char *pattern, regex_t **regex, char **error)
{
	const int	encoding = neutral_encoding(pattern);
	regex_t    *made = palloc0(sizeof(regex_t));
	char		message[100];
	int			code;

	if (*pattern == '\0')
		return complain(error, "regular expression is empty");
	code = paq_regcomp(made, pattern, encoding);
	if (code != REG_OKAY)
	{
		pg_regerror(code, made, message, sizeof(message));
		return complain(error, "invalid regular expression \"%s\": %s", pattern, message);
	}
	if (encoding != GetDatabaseEncoding())
	{
		pg_regfree(made);
		if (paq_regcomp(made, pattern, GetDatabaseEncoding()) != REG_OKAY)
		{
			pfree(made);
			made = NULL;
		}
	}
	*regex = made;
	return true;
}

static void
free_regex(regex_t *regex)
{
	if (regex == NULL)
		return;
	pg_regfree(regex);
	pfree(regex);
}

/*-------------------------------------------------------------------------
 * Databases and users
 *-------------------------------------------------------------------------
 */

/* Words that stand for databases */
static const struct
{
	const char *word;
	PaqNameKind kind;
}			database_words[] =
{
	{"sameuser", PAQ_NAME_SAMEUSER},
	{"samerole", PAQ_NAME_SAMEROLE},
	{"samegroup", PAQ_NAME_SAMEROLE},
	{"replication", PAQ_NAME_REPLICATION}
};

static PaqNameKind
name_kind(const AuthToken *token, bool of_database)
{
	/* with a comma in it, it needs quotes */
	if (token->string[0] == '/')
		return PAQ_NAME_REGEX;
	if (token->quoted)
		return PAQ_NAME_EXACT;
	if (is_word(token, "all"))
		return PAQ_NAME_ALL;
	if (!of_database)
		return token->string[0] == '+' ? PAQ_NAME_GROUP : PAQ_NAME_EXACT;
	for (int i = 0; i < lengthof(database_words); i++)
		if (is_word(token, database_words[i].word))
			return database_words[i].kind;
	return PAQ_NAME_EXACT;
}

/* A name that nothing can have is a mistake, after which rules would not match. */
static bool
check_name(const char *name, char **error)
{
	const int	len = strlen(name);
	const int	shown = pg_encoding_mbcliplen(PG_UTF8, name, len, MAX_SHOWN_NAME);

	if (len == 0)
		return complain(error, "name is empty");
	if (len >= NAMEDATALEN)
		return complain(error, "name \"%.*s%s\" is too long (maximum %d bytes)", shown,
						name, shown < len ? "..." : "", NAMEDATALEN - 1);
	return true;
}

static bool
make_name(const AuthToken *token, bool of_database, PaqName *name, char **error)
{
	const char *text = token->string;

	name->kind = name_kind(token, of_database);
	if (name->kind == PAQ_NAME_REGEX || name->kind == PAQ_NAME_GROUP)
		text++;
	name->text = pstrdup(text);
	if (name->kind == PAQ_NAME_REGEX)
		return make_regex(text, &name->regex, error);
	return check_name(text, error);
}

static bool
make_names(List *tokens, bool of_database, PaqName **names, int *count, char **error)
{
	ListCell   *lc;

	*names = palloc0(list_length(tokens) * sizeof(PaqName));
	foreach(lc, tokens)
	{
		PaqName    *name = &(*names)[(*count)++];

		if (!make_name((AuthToken *) lfirst(lc), of_database, name, error))
			return false;
	}
	return true;
}

static void
free_names(PaqName *names, int count)
{
	for (int i = 0; i < count; i++)
	{
		free_regex(names[i].regex);
		if (names[i].text != NULL)
			pfree(unconstify(char *, names[i].text));
	}
	if (names != NULL)
		pfree(names);
}

/*-------------------------------------------------------------------------
 * Addresses
 *-------------------------------------------------------------------------
 */

/*
 * An address in numbers.  Of version 4, only the form with four of them: the functions
 * that look addresses up take "10" for 0.0.0.10, which nobody means.
 */
static bool
parse_ip(const char *text, struct sockaddr_storage *addr)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_family = AF_UNSPEC};
	struct addrinfo *found = NULL;
	struct in_addr four;
	bool		ok;

	ok = pg_getaddrinfo_all(text, NULL, &hints, &found) == 0 && found != NULL &&
		(found->ai_family == AF_INET6 ||
		 (found->ai_family == AF_INET && inet_pton(AF_INET, text, &four) == 1));
	if (ok)
		memcpy(addr, found->ai_addr, found->ai_addrlen);
	if (found != NULL)
		pg_freeaddrinfo_all(hints.ai_family, found);
	return ok;
}

/* An address, or one with the number of its bits that count */
static bool
make_range(const char *word, PaqAddress *address, char **error)
{
	char	   *text = pstrdup(word);
	char	   *bits = strchr(text, '/');
	bool		ok;

	if (bits != NULL)
		*bits++ = '\0';
	if (!parse_ip(text, &address->addr))
		ok = complain(error, "invalid IP address \"%s\"", text);
	else if (bits != NULL && strspn(bits, "0123456789") != strlen(bits))
		ok = complain(error, "invalid CIDR mask in address \"%s\"", word);
	else if (pg_sockaddr_cidr_mask(&address->mask, bits, address->addr.ss_family) != 0)
		ok = complain(error, "invalid CIDR mask in address \"%s\"", word);
	else
		ok = true;
	pfree(text);
	return ok;
}

static bool
make_address(const AuthToken *token, PaqAddress *address, char **error)
{
	if (is_word(token, "all"))
		address->kind = PAQ_ADDRESS_ALL;
	else if (is_word(token, "local"))
		address->kind = PAQ_ADDRESS_LOCAL;
	else if (is_word(token, "samehost"))
		address->kind = PAQ_ADDRESS_SAMEHOST;
	else if (is_word(token, "samenet"))
		address->kind = PAQ_ADDRESS_SAMENET;
	else
	{
		address->kind = PAQ_ADDRESS_RANGE;
		return make_range(token->string, address, error);
	}
	return true;
}

static bool
make_addresses(List *tokens, PaqRule *rule, char **error)
{
	ListCell   *lc;

	rule->addresses = palloc0(list_length(tokens) * sizeof(PaqAddress));
	foreach(lc, tokens)
		if (!make_address((AuthToken *) lfirst(lc), &rule->addresses[rule->naddresses++],
						  error))
			return false;
	return true;
}

/*-------------------------------------------------------------------------
 * Classes
 *-------------------------------------------------------------------------
 */

/* The words that are classes, but for command tags */
static const char *
class_words(void)
{
	StringInfoData words;

	initStringInfo(&words);
	for (int c = PAQ_FIRST_CLASS; c < PAQ_NCLASSES; c++)
		if (c != PAQ_CLASS_CONFIG)
			add_word(&words, asc_tolower(paq_class_name(c), strlen(paq_class_name(c))));
	add_word(&words, "truncate");
	add_word(&words, "temp");
	add_word(&words, "all");
	return words.data;
}

static bool
make_tag(const char *word, PaqClassItem *item, char **error)
{
	item->kind = PAQ_CLASS_TAG;
	item->tag = GetCommandTagEnum(word);
	if (item->tag == CMDTAG_UNKNOWN)
		return complain(error, "unrecognized class \"%s\" (valid classes are %s, and command tags)",
						word, class_words());
	return true;
}

static bool
make_class(const AuthToken *token, PaqClassItem *item, char **error)
{
	const char *word = token->string;

	/* in quotes there are only command tags, which may have spaces */
	if (token->quoted)
		return make_tag(word, item, error);
	if (*word == '-')
	{
		item->out = true;
		word++;
	}
	if (paq_class_lookup(word, &item->bits))
	{
		if (item->bits == PAQ_CLASSES_NONE)
			return complain(error, "class \"%s\" is not for rules", word);
		if (item->bits == PAQ_CLASS_BIT(PAQ_CLASS_CONFIG))
			return complain(error, "class \"%s\" is always recorded", word);
		item->kind = PAQ_CLASS_WORD;
		item->bits &= ~PAQ_CLASS_BIT(PAQ_CLASS_CONFIG);
	}
	else if (pg_strcasecmp(word, "denied") == 0)
		return complain(error, "\"%s\" is no class for rules: use the condition \"outcome=denied\"",
						word);
	else if (pg_strcasecmp(word, "truncate") == 0)
		item->kind = PAQ_CLASS_TRUNCATE;
	else if (pg_strcasecmp(word, "temp") == 0)
		item->kind = PAQ_CLASS_TEMP;
	else
		return make_tag(word, item, error);
	return true;
}

static bool
make_classes(List *tokens, PaqRule *rule, char **error)
{
	ListCell   *lc;

	/* one more: if the first takes something out, it does that from everything */
	rule->classes = palloc0((list_length(tokens) + 1) * sizeof(PaqClassItem));
	foreach(lc, tokens)
	{
		PaqClassItem item = {0};

		if (!make_class((AuthToken *) lfirst(lc), &item, error))
			return false;
		if (item.out && rule->nclasses == 0)
		{
			PaqClassItem *all = &rule->classes[rule->nclasses++];

			all->kind = PAQ_CLASS_WORD;
			all->bits = PAQ_CLASSES_ALL & ~PAQ_CLASS_BIT(PAQ_CLASS_CONFIG);
		}
		rule->classes[rule->nclasses++] = item;
	}
	return true;
}

/*-------------------------------------------------------------------------
 * Objects
 *-------------------------------------------------------------------------
 */

#define ROLE_PREFIX		"role:"

/*
 * Is that what a condition or option looks like?  A list in a file that is empty is no
 * field for PostgreSQL, so that the fields behind it are taken for those before them.
 */
static bool
is_misplaced_option(const char *word)
{
	return strpbrk(word, "<=>") != NULL || strcmp(word, MANDATORY) == 0;
}

/*
 * schema.name, or all that is in a schema.  What is behind the first dot is the name.
 * In quotes, "*" is itself.
 */
static bool
make_qualified(const AuthToken *token, PaqObjectItem *item, char **error)
{
	const char *word = token->string;
	const char *dot = strchr(word, '.');

	item->kind = PAQ_ITEM_NAME;
	item->literal = token->quoted;
	item->schema = dot != NULL ? pnstrdup(word, dot - word) : pstrdup(word);
	item->name = dot != NULL ? pstrdup(dot + 1) : NULL;
	if (item->schema[0] == '\0' || (item->name != NULL && item->name[0] == '\0'))
		return complain(error, "object \"%s\" lacks a schema or a name", word);
	return true;
}

static bool
make_object(const AuthToken *token, PaqObjectItem *item, char **error)
{
	const char *word = token->string;

	if (*word == '/')
	{
		item->kind = PAQ_ITEM_REGEX;
		return make_regex(word + 1, &item->regex, error);
	}
	if (token->quoted)
		return make_qualified(token, item, error);
	if (is_word(token, "all"))
	{
		item->kind = PAQ_ITEM_ANY;
		return true;
	}
	if (strncmp(word, ROLE_PREFIX, strlen(ROLE_PREFIX)) == 0)
	{
		item->kind = PAQ_ITEM_ROLE;
		item->name = pstrdup(word + strlen(ROLE_PREFIX));
		return check_name(item->name, error);
	}
	if (is_misplaced_option(word))
		return complain(error, "missing field before \"%s\"", word);
	return make_qualified(token, item, error);
}

static bool
make_objects(List *tokens, PaqRule *rule, char **error)
{
	ListCell   *lc;

	rule->objects = palloc0(list_length(tokens) * sizeof(PaqObjectItem));
	foreach(lc, tokens)
		if (!make_object((AuthToken *) lfirst(lc), &rule->objects[rule->nobjects++], error))
			return false;
	return true;
}

static void
free_objects(PaqObjectItem *objects, int count)
{
	for (int i = 0; i < count; i++)
	{
		free_regex(objects[i].regex);
		if (objects[i].schema != NULL)
			pfree(unconstify(char *, objects[i].schema));
		if (objects[i].name != NULL)
			pfree(unconstify(char *, objects[i].name));
	}
	if (objects != NULL)
		pfree(objects);
}

/*-------------------------------------------------------------------------
 * Conditions and options
 *-------------------------------------------------------------------------
 */

static const char *
option_kind(const Option *option)
{
	return option->condition ? "condition" : "option";
}

static const char *
first_value(List *values)
{
	return ((AuthToken *) linitial(values))->string;
}

/* Find the value among the choices. */
static bool
choose(const Option *option, const char *word, const Choice *choices, int *value,
	   char **error)
{
	StringInfoData words;

	initStringInfo(&words);
	for (; choices->word != NULL; choices++)
	{
		if (strcmp(word, choices->word) == 0)
		{
			*value = choices->value;
			return true;
		}
		add_word(&words, choices->word);
	}
	return complain(error, "invalid value for %s \"%s\": \"%s\" (valid values are %s)",
					option_kind(option), option->name, word, words.data);
}

/* A number without a sign; *unit is what is behind it. */
static bool
parse_number(const Option *option, const char *word, int64 *number, const char **unit,
			 char **error)
{
	const size_t digits = strspn(word, "0123456789");
	int64		value = 0;

	if (digits == 0)
		return complain(error, "invalid value for condition \"%s\": \"%s\"",
						option->name, word);
	for (size_t i = 0; i < digits; i++)
		if (pg_mul_s64_overflow(value, 10, &value) ||
			pg_add_s64_overflow(value, word[i] - '0', &value))
			return complain(error, "value \"%s\" for condition \"%s\" is out of range",
							word, option->name);
	*number = value;
	*unit = word + digits;
	return true;
}

static bool
make_outcome(const Option *option, PaqOperator op, List *values, PaqRule *rule,
			 char **error)
{
	ListCell   *lc;

	foreach(lc, values)
	{
		int			bit;

		if (!choose(option, ((AuthToken *) lfirst(lc))->string, outcome_choices, &bit,
					error))
			return false;
		rule->verdict.outcomes |= bit;
	}
	return true;
}

static bool
make_rows(const Option *option, PaqOperator op, List *values, PaqRule *rule, char **error)
{
	PaqComparison *rows = &rule->verdict.rows;
	const char *word = first_value(values);
	const char *rest;

	rows->op = op;
	if (!parse_number(option, word, &rows->value, &rest, error))
		return false;
	if (*rest != '\0')
		return complain(error, "invalid value for condition \"%s\": \"%s\"", option->name,
						word);
	return true;
}

static bool
make_duration(const Option *option, PaqOperator op, List *values, PaqRule *rule,
			  char **error)
{
	PaqComparison *duration = &rule->verdict.duration;
	const char *word = first_value(values);
	const char *unit;
	int			i = 0;

	duration->op = op;
	if (!parse_number(option, word, &duration->value, &unit, error))
		return false;
	/* analyzer: parse_number() has set it, or returned false */
	while (i < lengthof(duration_units) && strcmp(unit, duration_units[i].name) != 0)
		i++;
	if (i == lengthof(duration_units))
		return complain(error, "invalid unit in condition \"%s\": \"%s\" (valid units are us, ms, s, min, and h)",
						option->name, word);
	if (pg_mul_s64_overflow(duration->value, duration_units[i].factor, &duration->value))
		return complain(error, "value \"%s\" for condition \"%s\" is out of range", word,
						option->name);
	return true;
}

static bool
make_current_user(const Option *option, PaqOperator op, List *values, PaqRule *rule,
				  char **error)
{
	return make_names(values, false, &rule->current_users, &rule->ncurrent_users, error);
}

static bool
make_mode(const Option *option, PaqOperator op, List *values, PaqRule *rule, char **error)
{
	return choose(option, first_value(values), mode_choices, &rule->verdict.mode, error);
}

static bool
make_parameters(const Option *option, PaqOperator op, List *values, PaqRule *rule,
				char **error)
{
	return choose(option, first_value(values), switch_choices, &rule->verdict.parameters,
				  error);
}

static bool
make_statement(const Option *option, PaqOperator op, List *values, PaqRule *rule,
			   char **error)
{
	int			value;

	if (!choose(option, first_value(values), statement_choices, &value, error))
		return false;
	/* analyzer: choose() has set it, or returned false */
	rule->verdict.statement = (PaqRuleText) value;
	return true;
}

static bool
make_rule_name(const Option *option, PaqOperator op, List *values, PaqRule *rule,
			   char **error)
{
	char	   *name = pstrdup(first_value(values));

	rule->verdict.name.data = name;
	rule->verdict.name.len = strlen(name);
	return check_name(name, error);
}

/* MANDATORY has no function. */
static const Option options[] = {
	{"outcome", true, false, true, make_outcome},
	{"rows", true, true, false, make_rows},
	{"duration", true, true, false, make_duration},
	{"currentuser", true, false, true, make_current_user},
	{"mode", false, false, false, make_mode},
	{"parameters", false, false, false, make_parameters},
	{"statement", false, false, false, make_statement},
	{"name", false, false, false, make_rule_name},
	{MANDATORY, false, false, false, NULL}
};

/* The operator at the beginning of the text, which goes on behind it */
static PaqOperator
parse_operator(const char **text)
{
	const char	first = *(*text)++;
	const bool	or_equal = first != '=' && **text == '=';

	if (or_equal)
		(*text)++;
	switch (first)
	{
		case '<':
			return or_equal ? PAQ_OP_LE : PAQ_OP_LT;
		case '>':
			return or_equal ? PAQ_OP_GE : PAQ_OP_GT;
		default:
			Assert(first == '=');
			return PAQ_OP_EQ;
	}
}

/*
 * The values of a condition or option: what is behind the operator in the first word,
 * and the other words.
 */
static List *
option_values(List *tokens, const char *first)
{
	AuthToken  *token = palloc(sizeof(AuthToken));
	List	   *values = list_copy(tokens);

	*token = *(AuthToken *) linitial(tokens);
	token->string = unconstify(char *, first);
	linitial(values) = token;
	return values;
}

static bool
make_values(const Option *option, List *tokens, const char *rest, PaqRule *rule,
			char **error)
{
	const char *kind = option_kind(option);
	List	   *values;
	ListCell   *lc;
	PaqOperator op;

	if (*rest == '\0')
		return complain(error, "%s \"%s\" requires a value", kind, option->name);
	op = parse_operator(&rest);
	if (op != PAQ_OP_EQ && !option->compares)
		return complain(error, "%s \"%s\" requires operator \"=\"", kind, option->name);
	values = option_values(tokens, rest);
	foreach(lc, values)
		if (((AuthToken *) lfirst(lc))->string[0] == '\0')
			return complain(error, "empty value for %s \"%s\"", kind, option->name);
	if (list_length(values) > 1 && !option->many)
		return complain(error, "multiple values for %s \"%s\"", kind, option->name);
	return option->make(option, op, values, rule, error);
}

static const Option *
lookup_option(const char *word, size_t len)
{
	for (int i = 0; i < lengthof(options); i++)
		if (strlen(options[i].name) == len && strncmp(options[i].name, word, len) == 0)
			return &options[i];
	return NULL;
}

static bool
complain_of_option(const char *word, char **error)
{
	StringInfoData words;

	initStringInfo(&words);
	for (int i = 0; i < lengthof(options); i++)
		add_word(&words, options[i].name);
	return complain(error, "unrecognized condition or option \"%s\" (valid ones are %s)",
					word, words.data);
}

/* A condition or option; *given has a bit for each that there was before. */
static bool
make_option(List *tokens, uint32 *given, PaqRule *rule, char **error)
{
	const char *word = first_value(tokens);
	const size_t len = strcspn(word, "<=>");
	const Option *option = lookup_option(word, len);
	uint32		bit;

	if (option == NULL)
		return complain_of_option(word, error);
	bit = 1U << (option - options);
	if (*given & bit)
		return complain(error, "%s \"%s\" given twice", option_kind(option), option->name);
	*given |= bit;
	if (!option->condition && !rule->verdict.record)
		return complain(error, "option \"%s\" is for rules to record only", option->name);
	if (option->make != NULL)
		return make_values(option, tokens, word + len, rule, error);
	if (word[len] != '\0' || list_length(tokens) > 1)
		return complain(error, "option \"%s\" has no value", option->name);
	rule->verdict.mandatory = true;
	return true;
}

/*-------------------------------------------------------------------------
 * Rules
 *-------------------------------------------------------------------------
 */

static bool
make_action(List *tokens, PaqRule *rule, char **error)
{
	const AuthToken *token = linitial(tokens);

	if (list_length(tokens) > 1)
		return complain(error, "multiple values for field \"%s\"", field_names[FIELD_ACTION]);
	rule->verdict.record = is_word(token, "record");
	if (!rule->verdict.record && !is_word(token, "ignore"))
		return complain(error, "unrecognized action \"%s\" (valid actions are record and ignore)",
						token->string);
	return true;
}

static bool
make_field(Field field, List *tokens, PaqRule *rule, char **error)
{
	ListCell   *lc;

	foreach(lc, tokens)
		if (((AuthToken *) lfirst(lc))->string[0] == '\0')
			return complain(error, "empty word in field \"%s\"", field_names[field]);
	switch (field)
	{
		case FIELD_ACTION:
			return make_action(tokens, rule, error);
		case FIELD_DATABASE:
			return make_names(tokens, true, &rule->databases, &rule->ndatabases, error);
		case FIELD_USER:
			return make_names(tokens, false, &rule->users, &rule->nusers, error);
		case FIELD_ADDRESS:
			return make_addresses(tokens, rule, error);
		case FIELD_CLASS:
			return make_classes(tokens, rule, error);
		case FIELD_OBJECT:
			return make_objects(tokens, rule, error);
		case NFIELDS:
			break;
	}
	return true;
}

/* The fields, then whatever follows */
static bool
make_fields(List *fields, PaqRule *rule, char **error)
{
	uint32		given = 0;

	for (int i = 0; i < NFIELDS; i++)
	{
		if (i >= list_length(fields))
			return complain(error, "missing field \"%s\"", field_names[i]);
		if (!make_field((Field) i, (List *) list_nth(fields, i), rule, error))
			return false;
	}
	for (int i = NFIELDS; i < list_length(fields); i++)
		if (!make_option((List *) list_nth(fields, i), &given, rule, error))
			return false;
	return true;
}

PaqRule *
paq_rule_make(List *fields, char **error)
{
	PaqRule    *rule = palloc0(sizeof(PaqRule));

	rule->verdict.mode = -1;
	rule->verdict.parameters = -1;
	*error = NULL;
	if (make_fields(fields, rule, error))
		return rule;
	paq_rule_free(rule);
	return NULL;
}

void
paq_rule_free(PaqRule *rule)
{
	free_names(rule->databases, rule->ndatabases);
	free_names(rule->users, rule->nusers);
	free_names(rule->current_users, rule->ncurrent_users);
	if (rule->addresses != NULL)
		pfree(rule->addresses);
	if (rule->classes != NULL)
		pfree(rule->classes);
	free_objects(rule->objects, rule->nobjects);
	if (rule->verdict.name.data != NULL)
		pfree(unconstify(char *, rule->verdict.name.data));
	if (rule->file != NULL)
		pfree(unconstify(char *, rule->file));
	pfree(rule);
}
