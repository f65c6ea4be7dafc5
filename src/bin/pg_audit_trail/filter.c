/*-------------------------------------------------------------------------
 *
 * filter.c
 *		Which records are wanted.
 *
 * A value that is null matches nothing.  Records that were left out for no other reason are
 * counted where that may hide what somebody looks for: of an object, or of superusers.  Records
 * of the formats csvlog and pgaudit have no fields: they are searched for texts, as the file
 * has them.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include "datatype/timestamp.h"

/* Classes whose records name an object only if log_relation, or the extension, tells it */
static const char *const unnamed_classes[NUNNAMED] = {"READ", "WRITE", "DDL"};

static bool
matches_field(const Patterns *patterns, Record *record, PaqTrailField field)
{
	/* words of ours, and of PostgreSQL */
	const bool	any_case = field == PAQ_TRAIL_TYPE || field == PAQ_TRAIL_CLASS ||
		field == PAQ_TRAIL_COMMAND;
	const Text	text = record_text(record, field);

	for (int i = 0; text.data != NULL && i < patterns->count; i++)
		if (word_matches(text, patterns->pattern[i], any_case))
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

/* What is behind the schema in the name of an object; all of it, if that has none */
static Text
unqualified(Text name)
{
	bool		quoted = false;

	for (Size i = 0; i < name.len; i++)
	{
		if (name.data[i] == '"')
			quoted = !quoted;
		else if (name.data[i] == '.' && !quoted)
		{
			const Text	rest = {name.data + i + 1, name.len - i - 1};

			return rest;
		}
	}
	return name;
}

/* A word without a schema is the name of an object of any schema. */
static bool
matches_object(const Patterns *patterns, Record *record)
{
	const Text	name = record_text(record, PAQ_TRAIL_OBJECT_NAME);

	if (patterns->count == 0 || matches_field(patterns, record, PAQ_TRAIL_OBJECT_NAME))
		return true;
	for (int i = 0; name.data != NULL && i < patterns->count; i++)
		if (strchr(patterns->pattern[i], '.') == NULL &&
			word_matches(unqualified(name), patterns->pattern[i], false))
			return true;
	return false;
}

static bool
matches_address(const Filter *filter, Record *record)
{
	const Text	host = record_text(record, PAQ_TRAIL_REMOTE_HOST);

	if (filter->address.count == 0)
		return true;
	for (int i = 0; host.data != NULL && i < filter->address.count; i++)
		if (network_has(&filter->networks[i], host))
			return true;
	return false;
}

/* In a gap, the number of rows is that of missing records. */
static bool
matches_rows(const Filter *filter, Record *record)
{
	int64		rows;

	if (!filter->has_rows)
		return true;
	return paq_line_number(&record->line.value[PAQ_TRAIL_ROW_COUNT], &rows) &&
		rows >= filter->from_rows && rows <= filter->to_rows && !record_is_gap(record);
}

/* Names of settings are the same in any case. */
static bool
matches_setting(const char *wanted, Text name, Text value)
{
	const Size	len = strcspn(wanted, "=");

	return name.len == len && value.data != NULL &&
		pg_strncasecmp(name.data, wanted, len) == 0 &&
		word_matches(value, wanted + len + 1, false);
}

static bool
matches_settings(const Patterns *patterns, const Record *record)
{
	static Buffer name;
	static Buffer value;
	const char *next = NULL;
	PaqValue	name_part;
	PaqValue	value_part;

	if (patterns->count == 0)
		return true;
	while (paq_line_member(&record->line.value[PAQ_TRAIL_SETTINGS], &next, &name_part,
						   &value_part))
		for (int i = 0; i < patterns->count; i++)
			if (matches_setting(patterns->pattern[i],
								record_part_text(record, &name_part, &name),
								record_part_text(record, &value_part, &value)))
				return true;
	return false;
}

static bool
matches_transaction(const Patterns *patterns, Record *record)
{
	if (patterns->count == 0)
		return true;
	return matches_field(patterns, record, PAQ_TRAIL_TRANSACTION_ID) ||
		matches_field(patterns, record, PAQ_TRAIL_VIRTUAL_TRANSACTION_ID) ||
		transaction_is_wanted(record);
}

/* As rules have it: no privilege, or no way in */
static bool
is_denial(Text code)
{
	return (code.len == 5 && memcmp(code.data, "42501", 5) == 0) ||
		(code.len == 5 && memcmp(code.data, "28", 2) == 0);
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
			strcmp(wanted, "denied") == 0 ? is_denial(code) :
			strcmp(wanted, "undone") == 0 ? transaction_is_undone(record) :
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

/* If the record may be about any object, counts it and returns true. */
bool
unnamed_count(Unnamed *unnamed, Record *record)
{
	if (paq_line_has(&record->line, PAQ_TRAIL_OBJECT_NAME))
		return false;
	for (int i = 0; i < NUNNAMED; i++)
		if (record_is(record, PAQ_TRAIL_CLASS, unnamed_classes[i]))
		{
			unnamed->records[i]++;
			return true;
		}
	return false;
}

/* Appends "12 READ and 3 WRITE records", unless there is none; returns how many. */
int64
unnamed_describe(const Unnamed *unnamed, Buffer *buf)
{
	int64		sum = 0;
	int			last = -1;

	for (int i = 0; i < NUNNAMED; i++)
		if (unnamed->records[i] > 0)
			last = i;
	for (int i = 0; i <= last; i++)
	{
		if (unnamed->records[i] == 0)
			continue;
		if (sum > 0)
			buffer_puts(buf, i == last ? " and " : ", ");
		buffer_grouped(buf, unnamed->records[i]);
		buffer_printf(buf, " %s", unnamed_classes[i]);
		sum += unnamed->records[i];
	}
	if (sum > 0)
		buffer_printf(buf, " record%s", plural(sum));
	return sum;
}

/* Returns true if the record tells whether its user was a superuser. */
static bool
tells_superuser(const Record *record)
{
	return record->line.value[PAQ_TRAIL_SUPERUSER].kind == PAQ_VALUE_BOOLEAN;
}

/* Returns true if a superuser did it, or somebody of whom the record does not tell. */
static bool
may_be_superusers(const Record *record)
{
	if (tells_superuser(record))
		return record->line.value[PAQ_TRAIL_SUPERUSER].data[0] == 't';
	return paq_line_has(&record->line, PAQ_TRAIL_CURRENT_USER_NAME);
}

/*
 * Returns true if the record is wanted.  Counts what is left out only because the record does not
 * tell.
 */
bool
filter_matches(Filter *filter, Record *record)
{
	if (record->format != FORMAT_JSON)
		return matches_text(&filter->text, record);
	record_decode_as(record, false);
	if (!filter_in_range(filter, record) ||
		!matches(&filter->type, record, PAQ_TRAIL_TYPE) ||
		!matches(&filter->class, record, PAQ_TRAIL_CLASS) ||
		!matches(&filter->command, record, PAQ_TRAIL_COMMAND) ||
		!matches(&filter->database, record, PAQ_TRAIL_DATABASE_NAME) ||
		!matches(&filter->session, record, PAQ_TRAIL_SESSION_ID) ||
		!matches_user(&filter->user, record) ||
		!matches_address(filter, record) ||
		!matches_rows(filter, record) ||
		!matches_settings(&filter->setting, record) ||
		!matches_transaction(&filter->transaction, record) ||
		!matches_outcome(&filter->outcome, record) ||
		!matches_text(&filter->text, record) ||
		(filter->superuser && !may_be_superusers(record)))
		return false;
	if (!matches_object(&filter->object, record))
	{
		(void) unnamed_count(&filter->unnamed, record);
		return false;
	}
	if (filter->superuser && !tells_superuser(record))
	{
		filter->unknown_roles++;
		return false;
	}
	return true;
}

/* Say which records were left out only because they do not tell. */
void
filter_note_left_out(const Filter *filter)
{
	static Buffer buf;
	const int64 unnamed = unnamed_describe(&filter->unnamed, &buf);

	if (unnamed > 0)
	{
		buffer_putc(&buf, '\0');
		pg_log_warning(ngettext("%s that matches otherwise names no object, and is left out",
								"%s that match otherwise name no object, and are left out",
								unnamed), buf.data);
		pg_log_warning_hint("Any object may be meant, or none. Look into statements with --text; with pg_audit_queue.log_relation, records name what statements use.");
	}
	if (filter->unknown_roles > 0)
	{
		buf.used = 0;
		buffer_grouped(&buf, filter->unknown_roles);
		buffer_putc(&buf, '\0');
		pg_log_warning(ngettext("%s record that matches otherwise does not say whether its user was a superuser, and is left out",
								"%s records that match otherwise do not say whether their user was a superuser, and are left out",
								filter->unknown_roles), buf.data);
	}
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

	if (!filter_in_sequences(filter, record))
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
describe_texts(Buffer *buf, const char *option, const Patterns *patterns)
{
	for (int i = 0; i < patterns->count; i++)
	{
		buffer_puts(buf, option);
		buffer_puts(buf, patterns->pattern[i]);
	}
}

static void
describe_rows(Buffer *buf, const Filter *filter)
{
	buffer_puts(buf, " --rows=");
	if (filter->from_rows > 0 || filter->to_rows == 0)
		buffer_printf(buf, INT64_FORMAT, filter->from_rows);
	if (filter->to_rows == filter->from_rows)
		return;
	buffer_puts(buf, "..");
	if (filter->to_rows < PG_INT64_MAX)
		buffer_printf(buf, INT64_FORMAT, filter->to_rows);
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
	describe_patterns(buf, " --address=", &filter->address);
	if (filter->has_rows)
		describe_rows(buf, filter);
	describe_texts(buf, " --setting=", &filter->setting);
	if (filter->superuser)
		buffer_puts(buf, " --superuser");
	describe_patterns(buf, " --transaction=", &filter->transaction);
	describe_texts(buf, " --text=", &filter->text);

	/* without the first space */
	if (buf->used > start)
		memmove(buf->data + start, buf->data + start + 1, --buf->used - start);
}
