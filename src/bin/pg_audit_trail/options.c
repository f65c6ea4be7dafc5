/*-------------------------------------------------------------------------
 *
 * options.c
 *		Options of the commands.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <fcntl.h>
#include <unistd.h>

#include "file_util.h"
#include "getopt_long.h"

/* Most records that follow keeps in memory */
#define LAST_MAX	1000000

/* Most lines of a report's lists, which are kept in memory, too */
#define TOP_MAX		1000
#define TOP_DEFAULT	15

typedef enum OptionId
{
	OPT_ADDRESS = 256,
	OPT_ALL,
	OPT_CLASS,
	OPT_COLOR,
	OPT_COMMAND,
	OPT_COUNT,
	OPT_DATABASE,
	OPT_ECS,
	OPT_FROM,
	OPT_FROM_SEQUENCE,
	OPT_LIMIT,
	OPT_OBJECT,
	OPT_OCSF,
	OPT_OUTCOME,
	OPT_ROWS,
	OPT_SESSION,
	OPT_SETTING,
	OPT_SUPERUSER,
	OPT_TEXT,
	OPT_TO,
	OPT_TOP,
	OPT_TO_SEQUENCE,
	OPT_TRANSACTION,
	OPT_TYPE,
	OPT_USER
} OptionId;

/* Those of all commands */
#define COMMON_OPTIONS \
	{"address", required_argument, NULL, OPT_ADDRESS}, \
	{"class", required_argument, NULL, OPT_CLASS}, \
	{"color", required_argument, NULL, OPT_COLOR}, \
	{"command", required_argument, NULL, OPT_COMMAND}, \
	{"database", required_argument, NULL, OPT_DATABASE}, \
	{"decryption-keys", required_argument, NULL, 'K'}, \
	{"format", required_argument, NULL, 'f'}, \
	{"from", required_argument, NULL, OPT_FROM}, \
	{"from-sequence", required_argument, NULL, OPT_FROM_SEQUENCE}, \
	{"object", required_argument, NULL, OPT_OBJECT}, \
	{"outcome", required_argument, NULL, OPT_OUTCOME}, \
	{"rows", required_argument, NULL, OPT_ROWS}, \
	{"session", required_argument, NULL, OPT_SESSION}, \
	{"setting", required_argument, NULL, OPT_SETTING}, \
	{"superuser", no_argument, NULL, OPT_SUPERUSER}, \
	{"text", required_argument, NULL, OPT_TEXT}, \
	{"to", required_argument, NULL, OPT_TO}, \
	{"to-sequence", required_argument, NULL, OPT_TO_SEQUENCE}, \
	{"transaction", required_argument, NULL, OPT_TRANSACTION}, \
	{"type", required_argument, NULL, OPT_TYPE}, \
	{"user", required_argument, NULL, OPT_USER}

/* Names of formats that are options, too; a report has none of these. */
#define SCHEMA_OPTIONS \
	{"ecs", no_argument, NULL, OPT_ECS}, \
	{"ocsf", no_argument, NULL, OPT_OCSF}

static const struct option cat_options[] = {
	COMMON_OPTIONS,
	SCHEMA_OPTIONS,
	{"count", no_argument, NULL, OPT_COUNT},
	{"limit", required_argument, NULL, OPT_LIMIT},
	{"progress", no_argument, NULL, 'P'},
	{NULL, 0, NULL, 0}
};

static const struct option follow_options[] = {
	COMMON_OPTIONS,
	SCHEMA_OPTIONS,
	{"all", no_argument, NULL, OPT_ALL},
	{"last", required_argument, NULL, 'n'},
	{NULL, 0, NULL, 0}
};

static const struct option report_options[] = {
	COMMON_OPTIONS,
	{"progress", no_argument, NULL, 'P'},
	{"top", required_argument, NULL, OPT_TOP},
	{NULL, 0, NULL, 0}
};

/* The first of its formats is that of a command unless the user wants another one. */
static const struct
{
	const struct option *options;
	const char *letters;
	Format		first;
	int			nformats;
}			readers[] = {
	[READER_CAT] = {cat_options, "f:K:P", FORMAT_JSON, 6},
	[READER_FOLLOW] = {follow_options, "f:K:n:", FORMAT_JSON, 6},
	[READER_REPORT] = {report_options, "f:K:P", FORMAT_TEXT, 2}
};

static const char *const format_names[] = {
	[FORMAT_JSON] = "json",
	[FORMAT_CSVLOG] = "csvlog",
	[FORMAT_PGAUDIT] = "pgaudit",
	[FORMAT_TABLE] = "table",
	[FORMAT_OCSF] = "ocsf",
	[FORMAT_ECS] = "ecs",
	[FORMAT_TEXT] = "text",
	[FORMAT_HTML] = "html"
};

static const char *const color_names[] = {
	[COLORS_AUTO] = "auto",
	[COLORS_ALWAYS] = "always",
	[COLORS_NEVER] = "never"
};

const char *
format_name(Format format)
{
	return format_names[format];
}

void
wrong_usage(void)
{
	pg_log_error_hint("Try \"%s --help\" for more information.", progname);
	leave(STATUS_TROUBLE);
}

/* A value is none of those that are allowed. */
pg_noreturn static void
wrong_word(const char *option, const char *value, const char *const *words, int count)
{
	static Buffer allowed;

	for (int i = 0; i < count; i++)
	{
		if (i > 0)
			buffer_puts(&allowed, i < count - 1 ? ", " : " or ");
		buffer_puts(&allowed, words[i]);
	}
	buffer_putc(&allowed, '\0');
	pg_log_error("invalid value \"%s\" for option %s: it must be %s", value, option,
				 allowed.data);
	wrong_usage();
}

/*
 * What getopt_long() returns, but that what is no option, or lacks its argument, is reported here:
 * it would show that to the terminal as it is, and that may be the name of a file, if a shell has
 * made a list of files of a word.  letters: of at most 16 bytes.
 */
int
next_option(int argc, char **argv, const char *letters, const struct option *options)
{
	char		quiet[32];
	const char *word;
	char		letter[3] = "-";
	const int	before = optind;
	int			result;

	opterr = 0;
	snprintf(quiet, sizeof(quiet), ":%s", letters);
	result = getopt_long(argc, argv, quiet, options, NULL);
	if (result != '?' && result != ':')
		return result;
	word = argv[optind - 1];
	letter[1] = (char) optopt;
	/* getopt_long() has not gone on if there is more in the word of the letter */
	if (optind == before || strncmp(word, "--", 2) != 0)
		word = letter;
	if (result == ':')
		pg_log_error("option \"%s\" requires an argument", word);
	else
		pg_log_error("unrecognized option \"%s\"", word);
	return '?';
}

/* The number of a word of a list */
static int
parse_word(const char *option, const char *value, const char *const *words, int count)
{
	for (int i = 0; i < count; i++)
		if (strcmp(value, words[i]) == 0)
			return i;
	wrong_word(option, value, words, count);
}

static int64
parse_number(const char *option, const char *value)
{
	PaqValue	number = {value, strlen(value), PAQ_VALUE_NUMBER, false};
	int64		result;

	if (number.len == 0 || !paq_line_number(&number, &result) || result < 0)
	{
		pg_log_error("invalid value \"%s\" for option %s: it must be a number", value, option);
		wrong_usage();
	}
	return result;
}

static int64
parse_time(const char *option, const char *value)
{
	int64		result;

	if (!parse_time_option(value, &result))
	{
		pg_log_error("invalid time \"%s\" for option %s", value, option);
		pg_log_error_hint("Give it as 2026-11-20, 2026-11-20T10:11:12, 2026-11-20T10:11:12+01:00 or \"2 hours ago\".");
		leave(STATUS_TROUBLE);
	}
	return result;
}

/* Add words with commas between them. */
static void
parse_list(Patterns *patterns, const char *value)
{
	for (;;)
	{
		const Size	len = strcspn(value, ",");

		patterns_add(patterns, value, len);
		if (value[len] == '\0')
			return;
		value += len + 1;
	}
}

/* Returns true if the pattern matches any of the words. */
static bool
is_among(const char *pattern, const char *const *words, int count)
{
	for (int i = 0; i < count; i++)
	{
		const Text	word = {words[i], strlen(words[i])};

		if (word_matches(word, pattern, true))
			return true;
	}
	return false;
}

/* Patterns, each of which some of these words match */
static void
parse_words(Patterns *patterns, const char *option, const char *value,
			const char *const *words, int count)
{
	const int	first = patterns->count;

	parse_list(patterns, value);
	for (int i = first; i < patterns->count; i++)
		if (!is_among(patterns->pattern[i], words, count))
			wrong_word(option, patterns->pattern[i], words, count);
}

static void
parse_types(Patterns *patterns, const char *value)
{
	static const char *const types[] = {"record", "gap", "heartbeat", "part"};

	parse_words(patterns, "--type", value, types, lengthof(types));
}

static void
parse_classes(Patterns *patterns, const char *value)
{
	const char *classes[PAQ_NCLASSES + 1];
	int			count = 0;

	for (int i = PAQ_FIRST_CLASS; i < PAQ_NCLASSES; i++)
		/* these two are shown as MISC */
		if (i != PAQ_CLASS_MISC_SET && i != PAQ_CLASS_SET_ROLE)
			classes[count++] = paq_class_label(i);
	classes[count++] = "GAP";
	parse_words(patterns, "--class", value, classes, count);
}

/* The trail may be of a later version of PostgreSQL, which has other commands. */
static void
parse_commands(Patterns *patterns, const char *value)
{
	static const char *const commands[] = {
#define PG_CMDTAG(tag, name, event_trigger_ok, table_rewrite_ok, rowcount) name,
#include "tcop/cmdtaglist.h"
#undef PG_CMDTAG
		"DISK SPACE", "LOGIN", "LOGOUT", "RELOAD", "RETENTION", "WORKER START", "WORKER STOP"
	};
	const int	first = patterns->count;

	parse_list(patterns, value);
	for (int i = first; i < patterns->count; i++)
		if (!is_among(patterns->pattern[i], commands, lengthof(commands)))
			pg_log_warning("there is no command \"%s\" in PostgreSQL " PG_MAJORVERSION,
						   patterns->pattern[i]);
}

/*
 * Returns true if that is how a SQLSTATE of PostgreSQL begins.  A word without a digit could be
 * any: only two classes have none.
 */
static bool
is_sqlstate(const char *word)
{
	const Size	len = strlen(word);

	return len > 0 && len <= 5 &&
		strspn(word, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == len &&
		(strcspn(word, "0123456789") < len ||
		 strncmp(word, "HV", 2) == 0 || strncmp(word, "XX", 2) == 0);
}

/* A word for an outcome, or the beginning of a SQLSTATE, which is in upper case */
static void
parse_outcomes(Patterns *patterns, const char *value)
{
	static const char *const outcomes[] = {
		"ok", "failed", "denied", "undone", "a SQLSTATE, or how one begins"
	};
	const int	first = patterns->count;

	parse_list(patterns, value);
	for (int i = first; i < patterns->count; i++)
	{
		char	   *outcome = patterns->pattern[i];
		char	   *given = checked_strdup(outcome);
		bool		found = false;

		for (char *p = outcome; *p != '\0'; p++)
			*p = pg_toupper((unsigned char) *p);
		for (int j = 0; j < lengthof(outcomes) - 1 && !found; j++)
			if (pg_strcasecmp(outcome, outcomes[j]) == 0)
			{
				strcpy(outcome, outcomes[j]);
				found = true;
			}
		if (!found && !is_sqlstate(outcome))
			wrong_word("--outcome", given, outcomes, lengthof(outcomes));
		free(given);
	}
}

static void
parse_addresses(Filter *filter, const char *value)
{
	const int	first = filter->address.count;

	parse_list(&filter->address, value);
	filter->networks = realloc(filter->networks, filter->address.count * sizeof(Network));
	if (filter->networks == NULL)
		trouble("out of memory");
	for (int i = first; i < filter->address.count; i++)
		if (!network_parse(&filter->networks[i], filter->address.pattern[i]))
		{
			pg_log_error("invalid value \"%s\" for option %s: it must be an IP address, a network such as 10.1.0.0/16, or local",
						 filter->address.pattern[i], "--address");
			wrong_usage();
		}
}

/* "10", "10..", "..20" or "10..20" */
static void
parse_rows(Filter *filter, const char *value)
{
	const char *dots = strstr(value, "..");
	char	   *first = checked_strdup(value);

	if (dots != NULL)
		first[dots - value] = '\0';
	filter->has_rows = true;
	filter->from_rows = dots == value ? 0 : parse_number("--rows", first);
	filter->to_rows = filter->from_rows;
	if (dots != NULL)
		filter->to_rows = dots[2] == '\0' ? PG_INT64_MAX : parse_number("--rows", dots + 2);
	free(first);
	if (filter->from_rows > filter->to_rows)
		trouble("value \"%s\" for option %s is empty: the first number is greater than the second",
				value, "--rows");
}

static void
parse_setting(Filter *filter, const char *value)
{
	const Size	len = strcspn(value, "=");

	if (len == 0 || value[len] == '\0')
	{
		pg_log_error("invalid value \"%s\" for option %s: it must be a name and a value, with = between them",
					 value, "--setting");
		wrong_usage();
	}
	patterns_add(&filter->setting, value, strlen(value));
}

/* The characters of a session id, and wildcards */
static void
parse_sessions(Patterns *patterns, const char *value)
{
	const int	first = patterns->count;

	parse_list(patterns, value);
	for (int i = first; i < patterns->count; i++)
		if (patterns->pattern[i][0] == '\0' ||
			strspn(patterns->pattern[i], "0123456789abcdef.*?") != strlen(patterns->pattern[i]))
		{
			pg_log_error("invalid value \"%s\" for option %s: it must be a session id such as 6926d2c1.1f4a",
						 patterns->pattern[i], "--session");
			wrong_usage();
		}
}

/* Transaction ids "761", virtual ones "3/17" */
static void
parse_transactions(Patterns *patterns, const char *value)
{
	const int	first = patterns->count;

	parse_list(patterns, value);
	for (int i = first; i < patterns->count; i++)
	{
		const char *word = patterns->pattern[i];
		const Size	digits = strspn(word, "0123456789");
		const char *rest = word + digits;

		if (*rest == '/')
			rest += 1 + strspn(rest + 1, "0123456789");
		if (digits == 0 || *rest != '\0' || rest[-1] == '/')
		{
			pg_log_error("invalid value \"%s\" for option %s: it must be a transaction id, such as 761, or a virtual one, such as 3/17",
						 word, "--transaction");
			wrong_usage();
		}
	}
}

/* A file with secrets that others than its owner can read is refused. */
static void
check_secret_file(const char *what, const char *path, int fd)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		trouble("could not stat %s \"%s\": %m", what, path);
	if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode))
		trouble("%s \"%s\" is not a regular file", what, path);
	if (!paq_is_private(&st))
	{
		pg_log_error("%s \"%s\" is accessible to its group or to others", what, path);
		pg_log_error_hint("Its permissions must be 0600 or less, or 0640 or less if it is root's.");
		leave(STATUS_TROUBLE);
	}
}

/*
 * Open a file that may have secrets, with these flags of open(); what: what it is.  Ends the
 * program if it cannot be used, or others can read it.
 */
int
open_secret_file(const char *what, const char *path, int flags)
{
	int			fd = open(path, O_RDONLY | O_CLOEXEC | PG_BINARY | flags, 0);

	if (fd < 0)
		trouble("could not open %s \"%s\": %m", what, path);
	check_secret_file(what, path, fd);
	return fd;
}

/*
 * Read such a file, of less than SECRETS_MAX bytes, which text has space for; returns its length.
 */
Size
read_secret_file(const char *what, const char *path, char *text)
{
	const int	fd = open_secret_file(what, path, 0);
	Size		len = 0;
	ssize_t		n;

	while (len < SECRETS_MAX && (n = read(fd, text + len, SECRETS_MAX - len)) != 0)
	{
		if (n < 0 && errno != EINTR)
			trouble("could not read %s \"%s\": %m", what, path);
		len += Max(n, 0);
	}
	close(fd);
	if (len == SECRETS_MAX)
		trouble("%s \"%s\" is too long", what, path);
	return len;
}

/* The keys of a file; ends the program if they cannot be used. */
PaqKeys *
read_keys(const char *path)
{
	static char text[SECRETS_MAX];
	char		error[PAQ_LAYER_ERROR_LEN];
	const Size	len = read_secret_file("key file", path, text);
	PaqKeys    *keys = paq_keys_parse(text, len, error);

	paq_forget_secret(text, sizeof(text));
	if (keys == NULL)
		trouble("could not use key file \"%s\": %s", path, error);
	return keys;
}

/* Options that choose records; false if it is none of them. */
static bool
parse_filter_option(Filter *filter, int option, const char *value)
{
	switch (option)
	{
		case OPT_FROM:
			filter->from = parse_time("--from", value);
			filter->has_from = true;
			break;
		case OPT_TO:
			filter->to = parse_time("--to", value);
			filter->has_to = true;
			break;
		case OPT_FROM_SEQUENCE:
			filter->from_sequence = parse_number("--from-sequence", value);
			break;
		case OPT_TO_SEQUENCE:
			filter->to_sequence = parse_number("--to-sequence", value);
			break;
		case OPT_TYPE:
			parse_types(&filter->type, value);
			break;
		case OPT_CLASS:
			parse_classes(&filter->class, value);
			break;
		case OPT_COMMAND:
			parse_commands(&filter->command, value);
			break;
		case OPT_USER:
			parse_list(&filter->user, value);
			break;
		case OPT_DATABASE:
			parse_list(&filter->database, value);
			break;
		case OPT_OBJECT:
			parse_list(&filter->object, value);
			break;
		case OPT_SESSION:
			parse_sessions(&filter->session, value);
			break;
		case OPT_OUTCOME:
			parse_outcomes(&filter->outcome, value);
			break;
		case OPT_ADDRESS:
			parse_addresses(filter, value);
			break;
		case OPT_ROWS:
			parse_rows(filter, value);
			break;
		case OPT_SETTING:
			parse_setting(filter, value);
			break;
		case OPT_SUPERUSER:
			filter->superuser = true;
			break;
		case OPT_TRANSACTION:
			parse_transactions(&filter->transaction, value);
			break;
		case OPT_TEXT:
			patterns_add(&filter->text, value, strlen(value));
			break;
		default:
			return false;
	}
	return true;
}

static Format
parse_format(Reader reader, const char *value)
{
	const Format first = readers[reader].first;

	return first + parse_word("--format", value, format_names + first,
							  readers[reader].nformats);
}

static void
choose_format(Options *options, const char *option, Format format)
{
	if (options->format_option != NULL && strcmp(options->format_option, option) != 0)
	{
		pg_log_error("options %s and %s cannot be used together", options->format_option,
					 option);
		wrong_usage();
	}
	options->format_option = option;
	options->format = format;
}

static int
parse_top(const char *value)
{
	const int64 number = parse_number("--top", value);

	if (number < 1 || number > TOP_MAX)
		trouble("value \"%s\" for option %s must be from 1 to %d", value, "--top", TOP_MAX);
	return (int) number;
}

static void
parse_option(Options *options, Reader reader, int option, const char *value)
{
	switch (option)
	{
		case 'f':
			choose_format(options, "--format", parse_format(reader, value));
			break;
		case 'K':
			paq_keys_free(options->keys);
			options->keys = read_keys(value);
			break;
		case 'n':
			options->last = parse_number("--last", value);
			if (options->last > LAST_MAX)
				trouble("value \"%s\" for option %s is too large", value, "--last");
			break;
		case 'P':
			options->progress = true;
			break;
		case OPT_ALL:
			options->all = true;
			break;
		case OPT_COLOR:
			options->colors = parse_word("--color", value, color_names,
										 lengthof(color_names));
			break;
		case OPT_COUNT:
			options->count = true;
			break;
		case OPT_ECS:
			choose_format(options, "--ecs", FORMAT_ECS);
			break;
		case OPT_LIMIT:
			options->limit = parse_number("--limit", value);
			break;
		case OPT_OCSF:
			choose_format(options, "--ocsf", FORMAT_OCSF);
			break;
		case OPT_TOP:
			options->top = parse_top(value);
			break;
		default:
			/* next_option() has complained */
			if (!parse_filter_option(&options->filter, option, value))
				wrong_usage();
	}
}

/* Options that no record can match, or that "follow" cannot know */
static void
check_filter(const Filter *filter, Reader reader)
{
	if (filter->has_from && filter->has_to && filter->from >= filter->to)
		trouble("no record can match: the time of %s is not before that of %s", "--from", "--to");
	if (filter->from_sequence > filter->to_sequence)
		trouble("no record can match: the number of %s is greater than that of %s",
				"--from-sequence", "--to-sequence");
	if (reader != READER_FOLLOW)
		return;
	if (filter_wants_undone(filter))
		trouble("option %s cannot be used by %s: only later records tell", "--outcome=undone",
				"follow");
	for (int i = 0; i < filter->transaction.count; i++)
		if (is_transaction_id(filter->transaction.pattern[i]))
			trouble("option %s of %s takes virtual transaction ids only: a transaction may have no other when it begins",
					"--transaction", "follow");
}

/* Of a command, whose name is argv[0] */
void
parse_options(Options *options, Reader reader, int argc, char **argv)
{
	const char *command = argv[0];
	int			option;

	memset(options, 0, sizeof(Options));
	options->format = readers[reader].first;
	options->limit = -1;
	options->top = TOP_DEFAULT;
	options->last = 10;
	options->filter.to_sequence = PG_INT64_MAX;

	while ((option = next_option(argc, argv, readers[reader].letters,
								 readers[reader].options)) != -1)
		parse_option(options, reader, option, optarg);
	check_filter(&options->filter, reader);
	options->npaths = argc - optind;
	options->paths = argv + optind;
	if (options->npaths == 0)
	{
		pg_log_error("no file or directory specified");
		wrong_usage();
	}
	if (reader == READER_FOLLOW && options->npaths > 1)
	{
		pg_log_error("%s reads one file or directory only", command);
		wrong_usage();
	}
}
