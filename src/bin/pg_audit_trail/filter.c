/*-------------------------------------------------------------------------
 *
 * filter.c
 *		Which records are wanted.
 *
 * A value that is null matches nothing.  Records of the formats csvlog and pgaudit have
 * no fields: they are searched for texts, as the file has them.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include "datatype/timestamp.h"

void
patterns_add(Patterns *patterns, const char *pattern, Size len)
{
	char	   *copy = checked_alloc(len + 1);
	char	  **list = realloc(patterns->pattern, (patterns->count + 1) * sizeof(char *));

	if (list == NULL)
		trouble("out of memory");
	memcpy(copy, pattern, len);
	patterns->pattern = list;
	patterns->pattern[patterns->count++] = copy;
}

/* Does it need more than to search for texts? */
bool
filter_needs_fields(const Filter *filter)
{
	return filter->has_from || filter->has_to || filter->from_sequence > 0 ||
		filter->to_sequence < PG_INT64_MAX || filter->type.count > 0 ||
		filter->class.count > 0 || filter->command.count > 0 || filter->user.count > 0 ||
		filter->database.count > 0 || filter->object.count > 0 ||
		filter->session.count > 0 || filter->outcome.count > 0;
}

bool
filter_is_empty(const Filter *filter)
{
	return !filter_needs_fields(filter) && filter->text.count == 0;
}

/* Behind the character at p: a wildcard stands for one of these. */
static const char *
next_character(const char *p, const char *end)
{
	p++;
	while (p < end && ((unsigned char) *p & 0xc0) == 0x80)
		p++;
	return p;
}

static bool
same_byte(char a, char b, bool any_case)
{
	return a == b ||
		(any_case && pg_tolower((unsigned char) a) == pg_tolower((unsigned char) b));
}

/*
 * Does the text match a pattern with wildcards?  When it does not go on, the last * takes
 * one character more.
 */
static bool
matches_wildcards(Text text, const char *pattern, bool any_case)
{
	const char *p = text.data;
	const char *end = text.data + text.len;
	const char *star = NULL;
	const char *retry = NULL;

	while (p < end)
	{
		if (*pattern == '*')
		{
			star = ++pattern;
			retry = p;
		}
		else if (*pattern == '?')
		{
			pattern++;
			p = next_character(p, end);
		}
		else if (*pattern != '\0' && same_byte(*pattern, *p, any_case))
		{
			pattern++;
			p++;
		}
		else if (star != NULL)
		{
			pattern = star;
			p = retry = next_character(retry, end);
		}
		else
			return false;
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}

static bool
matches_field(const Patterns *patterns, Record *record, PaqTrailField field)
{
	const bool	any_case = field == PAQ_TRAIL_CLASS;
	const Text	text = record_text(record, field);

	for (int i = 0; text.data != NULL && i < patterns->count; i++)
		if (matches_wildcards(text, patterns->pattern[i], any_case))
			return true;
	return false;
}

/* The same, if anything is wanted of the field */
static inline bool
matches(const Patterns *patterns, Record *record, PaqTrailField field)
{
	return patterns->count == 0 || matches_field(patterns, record, field);
}

static bool
matches_user(const Patterns *patterns, Record *record)
{
	return patterns->count == 0 ||
		matches_field(patterns, record, PAQ_TRAIL_USER_NAME) ||
		matches_field(patterns, record, PAQ_TRAIL_SESSION_USER_NAME) ||
		matches_field(patterns, record, PAQ_TRAIL_CURRENT_USER_NAME);
}

static bool
matches_outcome(const Patterns *patterns, Record *record)
{
	const Text	code = record_text(record, PAQ_TRAIL_EXIT_CODE);
	bool		failed;

	if (patterns->count == 0)
		return true;
	if (code.data == NULL)
		return false;
	failed = record_has_failed(record);
	for (int i = 0; i < patterns->count; i++)
	{
		const char *wanted = patterns->pattern[i];
		const Size	len = strlen(wanted);

		if (strcmp(wanted, "ok") == 0 ? !failed :
			strcmp(wanted, "failed") == 0 ? failed :
			len <= code.len && memcmp(code.data, wanted, len) == 0)
			return true;
	}
	return false;
}

/* Is the string, which is not empty, part of the text? */
static bool
contains(Text text, const char *string)
{
	const Size	len = strlen(string);
	const char *end = text.data + text.len;
	const char *p = text.data;

	while (p != NULL && end - p >= (ssize_t) len)
	{
		p = memchr(p, string[0], end - p - len + 1);
		if (p == NULL)
			return false;
		if (memcmp(p, string, len) == 0)
			return true;
		p++;
	}
	return false;
}

static bool
matches_text(const Patterns *patterns, Record *record)
{
	static const PaqTrailField fields[] = {
		PAQ_TRAIL_COMMAND_TEXT, PAQ_TRAIL_ERROR_MESSAGE, PAQ_TRAIL_OBJECT_NAME
	};
	const Text	whole = {record->data, record->len};

	for (int i = 0; i < patterns->count; i++)
	{
		const char *string = patterns->pattern[i];

		if (string[0] == '\0')
			return true;
		if (record->format != FORMAT_JSON)
		{
			if (contains(whole, string))
				return true;
			continue;
		}
		for (int j = 0; j < lengthof(fields); j++)
			if (contains(record_text(record, fields[j]), string))
				return true;
	}
	return patterns->count == 0;
}

static bool
matches_sequence(const Filter *filter, const Record *record)
{
	int64		value;

	if (filter->from_sequence == 0 && filter->to_sequence == PG_INT64_MAX)
		return true;
	return paq_line_number(&record->line.value[PAQ_TRAIL_SEQUENCE], &value) &&
		value >= filter->from_sequence && value <= filter->to_sequence;
}

static bool
matches_time(const Filter *filter, const Record *record)
{
	int64		value;

	if (!filter->has_from && !filter->has_to)
		return true;
	return paq_line_time(&record->line.value[PAQ_TRAIL_LOG_TIME], &value) &&
		(!filter->has_from || value >= filter->from) &&
		(!filter->has_to || value < filter->to);
}

bool
filter_matches(const Filter *filter, Record *record)
{
	if (record->format != FORMAT_JSON)
		return matches_text(&filter->text, record);
	record_decode_as(record, false);
	return matches_sequence(filter, record) &&
		matches_time(filter, record) &&
		matches(&filter->type, record, PAQ_TRAIL_TYPE) &&
		matches(&filter->class, record, PAQ_TRAIL_CLASS) &&
		matches(&filter->command, record, PAQ_TRAIL_COMMAND) &&
		matches(&filter->database, record, PAQ_TRAIL_DATABASE_NAME) &&
		matches(&filter->object, record, PAQ_TRAIL_OBJECT_NAME) &&
		matches(&filter->session, record, PAQ_TRAIL_SESSION_ID) &&
		matches_user(&filter->user, record) &&
		matches_outcome(&filter->outcome, record) &&
		matches_text(&filter->text, record);
}

/*
 * Can records that would be wanted be missing in a gap?  Nobody knows whose they are: only
 * when it was, and where in the trail, tells.
 */
bool
filter_concerns_gap(const Filter *filter, const Record *record)
{
	int64		start;
	int64		end;

	if (!matches_sequence(filter, record))
		return false;
	if (!paq_line_time(&record->line.value[PAQ_TRAIL_LOG_TIME], &end))
		return true;
	if (!paq_line_time(&record->line.value[PAQ_TRAIL_START_TIME], &start))
		start = end;
	return (!filter->has_from || end >= filter->from) &&
		(!filter->has_to || start < filter->to);
}

static void
describe_patterns(Buffer *buf, const char *option, const Patterns *patterns)
{
	for (int i = 0; i < patterns->count; i++)
	{
		buffer_puts(buf, i == 0 ? option : ",");
		buffer_puts(buf, patterns->pattern[i]);
	}
}

/* An option for each text, which may have commas */
static void
describe_texts(Buffer *buf, const Patterns *patterns)
{
	for (int i = 0; i < patterns->count; i++)
	{
		buffer_puts(buf, " --text=");
		buffer_puts(buf, patterns->pattern[i]);
	}
}

static void
describe_time(Buffer *buf, const char *option, int64 timestamp)
{
	char		text[64];
	char		zone[16];
	struct tm	tm;
	int			usec = timestamp % USECS_PER_SEC;

	buffer_puts(buf, option);
	if (!local_tm(timestamp, &tm) ||
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm) == 0 ||
		strftime(zone, sizeof(zone), "%z", &tm) == 0)
	{
		buffer_putc(buf, '?');
		return;
	}
	if (usec < 0)
		usec += USECS_PER_SEC;
	buffer_puts(buf, text);
	if (usec > 0)
		buffer_printf(buf, ".%06d", usec);
	buffer_puts(buf, zone);
}

/* Append the options that it was made from. */
void
filter_describe(const Filter *filter, Buffer *buf)
{
	const Size	start = buf->used;

	if (filter->has_from)
		describe_time(buf, " --from=", filter->from);
	if (filter->has_to)
		describe_time(buf, " --to=", filter->to);
	if (filter->from_sequence > 0)
		buffer_printf(buf, " --from-sequence=" INT64_FORMAT, filter->from_sequence);
	if (filter->to_sequence < PG_INT64_MAX)
		buffer_printf(buf, " --to-sequence=" INT64_FORMAT, filter->to_sequence);
	describe_patterns(buf, " --type=", &filter->type);
	describe_patterns(buf, " --class=", &filter->class);
	describe_patterns(buf, " --command=", &filter->command);
	describe_patterns(buf, " --user=", &filter->user);
	describe_patterns(buf, " --database=", &filter->database);
	describe_patterns(buf, " --object=", &filter->object);
	describe_patterns(buf, " --session=", &filter->session);
	describe_patterns(buf, " --outcome=", &filter->outcome);
	describe_texts(buf, &filter->text);

	/* without the first space */
	if (buf->used > start)
		memmove(buf->data + start, buf->data + start + 1, --buf->used - start);
}
