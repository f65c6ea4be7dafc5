/*-------------------------------------------------------------------------
 *
 * report_content.c
 *		What the report says, and in which order.
 *
 * First what an auditor has to look at, then what is missing, what has failed, what was
 * changed, and in the end who did what.  A list has the most frequent names or the latest
 * records, as many as --top says; what it leaves out is counted.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/report.h"

#include "datatype/timestamp.h"

#define LONG_TIME	"%Y-%m-%d %H:%M:%S"

/* Lines of a table that a page shows only if asked, because its chart has them */
#define LONG_TABLE	7

static const ReportWriter *out;
static const Report *report;

/* Format of times in tables: without the date, if all are of one day */
static const char *time_format;

/* A list of counters, and what its table shows beside records, failures, first and last */
typedef struct List
{
	TableId		id;
	const char *title;
	const char *what;			/* several of its names, see names_of_list() */
	int			nparts;
	const char *part[NAME_PARTS];	/* titles of columns */
	bool		failures;		/* can some of the records be failures? */
	const char *sample;			/* title of a column; NULL: none */
	bool		chart;
} List;

static const List logins[] = {
	{TABLE_LOGIN_NAMES, "Failed logins by name", "names", 1, {"name"}, false, "last message"},
	{TABLE_LOGIN_CLIENTS, "Failed logins by client", "clients", 1, {"client"}, false}
};

static const List failures[] = {
	{TABLE_STATES, "Failures by SQLSTATE", "SQLSTATEs", 1, {"SQLSTATE"}, false, "last message"},
	{TABLE_FAILED_USERS, "Failures by user", "users", 1, {"user"}, false}
};

static const List changes[] = {
	{TABLE_CHANGES, "Who changed what", "combinations", 3, {"user", "class", "command"}, true}
};

static const List activity[] = {
	{TABLE_CLASSES, "By class", "classes", 1, {"class"}, true, NULL, true},
	{TABLE_USERS, "By user", "users", 1, {"user"}, true, NULL, true},
	{TABLE_ACTIONS, "Who did what", "combinations", 3, {"user", "class", "command"}, true},
	{TABLE_COMMANDS, "By command", "commands", 1, {"command"}, true},
	{TABLE_DATABASES, "By database", "databases", 1, {"database"}, true},
	{TABLE_CLIENTS, "By client", "clients", 1, {"client"}, true}
};

static const List objects[] = {
	{TABLE_READ, "Objects read (class READ)", "objects", 1, {"object"}, true},
	{TABLE_WRITTEN, "Objects written (class WRITE)", "objects", 1, {"object"}, true},
	{TABLE_DEFINED, "Objects changed (classes DDL and ROLE)", "objects", 1, {"object"}, true},
	{TABLE_CALLED, "Functions called (class FUNCTION)", "functions", 1, {"function"}, true}
};

static void note(bool bad, const char *fmt,...) pg_attribute_printf(2, 3);

static void
note(bool bad, const char *fmt,...)
{
	char		text[512];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	out->note(text, bad);
}

/* A number for people; the four latest results are valid. */
static const char *
grouped(int64 number)
{
	static Buffer texts[4];
	static int	next;
	Buffer	   *buf = &texts[next++ % lengthof(texts)];

	buf->used = 0;
	buffer_grouped(buf, number);
	buffer_putc(buf, '\0');
	return buf->data;
}

/* ---------- lists of counters ---------- */

static int64
highest_count(const Counter *counter)
{
	return counter->records + counter->missed;
}

/*
 * For qsort: the most records first, then what may have had more, then the latest ones, then
 * by name
 */
static int
compare_counters(const void *a, const void *b)
{
	const Counter *left = *(Counter *const *) a;
	const Counter *right = *(Counter *const *) b;

	if (left->records != right->records)
		return left->records > right->records ? -1 : 1;
	if (highest_count(left) != highest_count(right))
		return highest_count(left) > highest_count(right) ? -1 : 1;
	if (left->last != right->last)
		return left->last > right->last ? -1 : 1;
	for (int i = 0; i < NAME_PARTS; i++)
	{
		const Text	l = left->part[i];
		const Text	r = right->part[i];
		const int	order = memcmp(l.data ? l.data : "", r.data ? r.data : "", Min(l.len, r.len));

		if (order != 0 || l.len != r.len)
			return order != 0 ? order : l.len < r.len ? -1
													  : 1;
	}
	return 0;
}

static void
put_counter(Grid *grid, const List *list, const Counter *counter)
{
	for (int i = 0; i < list->nparts; i++)
		grid_text(grid, counter->part[i], counter->part[i].len == counter->len[i]);
	grid_number(grid, counter->records, false);
	if (list->failures)
		grid_number(grid, counter->failures, counter->failures > 0);
	grid_time(grid, counter->has_time, counter->first, time_format);
	grid_time(grid, counter->has_time, counter->last, time_format);
	if (report->table[list->id].missed > 0)
		grid_number(grid, counter->missed, false);
	if (list->sample != NULL)
		grid_string(grid, counter->sample);
}

static void
add_column(GridColumn *columns, int *n, const char *title, ColumnKind kind)
{
	columns[*n].title = title;
	columns[*n].kind = kind;
	(*n)++;
}

/* The columns that put_counter() fills; returns how many. */
static int
make_columns(const List *list, GridColumn *columns)
{
	int			n = 0;

	for (int i = 0; i < list->nparts; i++)
		add_column(columns, &n, list->part[i], COLUMN_NAME);
	add_column(columns, &n, list->failures ? "records" : "count", COLUMN_NUMBER);
	if (list->failures)
		add_column(columns, &n, "failed", COLUMN_NUMBER);
	add_column(columns, &n, "first", COLUMN_FIXED);
	add_column(columns, &n, "last", COLUMN_FIXED);
	if (report->table[list->id].missed > 0)
		add_column(columns, &n, "+ up to", COLUMN_NUMBER);
	if (list->sample != NULL)
		add_column(columns, &n, list->sample, COLUMN_NAME);
	return n;
}

/* What so many names of a list are: "1 user", "2 users" */
static const char *
names_of_list(const List *list, int64 number)
{
	if (number != 1)
		return list->what;
	return list->nparts == 1 ? list->part[0] : "combination";
}

/* What the table does not show */
static void
note_left_out(const List *list, Counter **counters, int count, int shown)
{
	const CounterTable *table = &report->table[list->id];
	int64		records = table->records;
	int64		highest = table->missed;

	for (int i = 0; i < shown; i++)
		records -= counters[i]->records;
	for (int i = shown; i < count; i++)
		highest = Max(highest, highest_count(counters[i]));
	if (table->missed > 0)
		note(true, "There were more %s than can be counted. One that is not shown had at most "
			 "%s of the %s records, and one that is shown had up to as many more as its line says. Who has few records may be hidden by such a flood.",
			 list->what, grouped(highest), grouped(table->records));
	else if (shown < count)
		note(false, "Left out: %s more %s, with %s record%s.", grouped(count - shown),
			 names_of_list(list, count - shown), grouped(records), plural(records));
}

static void
write_list(const List *list)
{
	GridColumn	columns[NAME_PARTS + 6];
	const int	ncolumns = make_columns(list, columns);
	Grid		grid;
	int			count;
	int			shown;
	Counter   **counters = counters_list(&report->table[list->id], &count);

	if (count > 0)
	{
		qsort(counters, count, sizeof(Counter *), compare_counters);
		shown = Min(count, report->options.top);
		grid_begin(&grid, list->title, columns, ncolumns);
		for (int i = 0; i < shown; i++)
			put_counter(&grid, list, counters[i]);
		if (list->chart)
			out->bars_chart(&grid);
		out->table(&grid);
		note_left_out(list, counters, count, shown);
		grid_free(&grid);
	}
	free(counters);
}

/* Or that there is nothing to be listed */
static void
write_lists(const List *lists, int count)
{
	int64		records = 0;

	for (int i = 0; i < count; i++)
	{
		write_list(&lists[i]);
		records += report->table[lists[i].id].records;
	}
	if (records == 0)
		note(false, "None.");
}

/* ---------- lists of events ---------- */

/* The columns that put_event() fills; returns how many. */
static int
make_event_columns(EventId id, const char *text, GridColumn *columns)
{
	int			n = 0;

	add_column(columns, &n, "time", COLUMN_FIXED);
	add_column(columns, &n, "sequence", COLUMN_NUMBER);
	add_column(columns, &n, "user", COLUMN_NAME);
	if (id == EVENTS_DENIED)
		add_column(columns, &n, "client", COLUMN_NAME);
	add_column(columns, &n, "command", COLUMN_NAME);
	add_column(columns, &n, id == EVENTS_CONFIG ? "setting" : "object", COLUMN_NAME);
	if (id == EVENTS_CONFIG)
		add_column(columns, &n, "for", COLUMN_NAME);
	add_column(columns, &n, "outcome", COLUMN_FIXED);
	if (id == EVENTS_CONFIG)
		add_column(columns, &n, "before", COLUMN_NAME);
	add_column(columns, &n, text, COLUMN_NAME);
	return n;
}

static void
put_event(Grid *grid, EventId id, const Event *event)
{
	grid_time(grid, event->has_time, event->time, time_format);
	grid_id(grid, event->sequence);
	grid_string(grid, event->user);
	if (id == EVENTS_DENIED)
		grid_string(grid, event->client);
	grid_string(grid, event->command);
	grid_string(grid, event->object);
	if (id == EVENTS_CONFIG)
		grid_string(grid, event->whom);
	grid_word(grid, event->failed ? "failed" : "ok", event->failed);
	if (id == EVENTS_CONFIG)
		grid_string(grid, event->before);
	grid_string(grid, event->text);
}

static void
write_events(EventId id, const char *title, const char *text, const char *option)
{
	GridColumn	columns[9];
	const int	ncolumns = make_event_columns(id, text, columns);
	const int64 count = report->events[id].count;
	const Event *event;
	Grid		grid;
	int64		shown = 0;

	if (count == 0)
		return;
	grid_begin(&grid, title, columns, ncolumns);
	for (; (event = event_of_list(report, id, shown)) != NULL; shown++)
		put_event(&grid, id, event);
	out->table(&grid);
	grid_free(&grid);
	if (shown < count)
		note(false, "Left out: %s earlier record%s (pg_audit_trail cat %s shows all).",
			 grouped(count - shown), plural(count - shown), option);
}

static void
write_gaps(void)
{
	static const GridColumn columns[] = {
		{"from", COLUMN_FIXED},
		{"until", COLUMN_FIXED},
		{"sequence", COLUMN_NUMBER},
		{"records", COLUMN_NUMBER},
		{"what is missing", COLUMN_NAME}
	};
	const Event *event;
	Grid		grid;
	int64		shown = 0;

	if (report->gaps == 0)
		return;
	grid_begin(&grid, "Latest gaps, as the trail itself reports them", columns, lengthof(columns));
	for (; (event = event_of_list(report, EVENTS_GAP, shown)) != NULL; shown++)
	{
		grid_time(&grid, event->has_start, event->start, LONG_TIME);
		grid_time(&grid, event->has_time, event->time, LONG_TIME);
		grid_id(&grid, event->sequence);
		if (event->rows >= 0)
			grid_number(&grid, event->rows, true);
		else
			grid_word(&grid, "unknown", true);
		grid_string(&grid, event->text);
	}
	out->table(&grid);
	grid_free(&grid);
	if (shown < report->gaps)
		note(false, "Left out: %s earlier gap%s (pg_audit_trail cat --type=gap shows all).",
			 grouped(report->gaps - shown), plural(report->gaps - shown));
}

static void
write_places(void)
{
	static const GridColumn columns[] = {
		{"file", COLUMN_NAME}, {"what is wrong", COLUMN_NAME}
	};
	const int	shown = Min(report->nplaces, report->options.top);
	Grid		grid;

	if (shown == 0)
		return;
	grid_begin(&grid, "Where files are damaged, or records do not follow each other", columns,
			   lengthof(columns));
	for (int i = 0; i < shown; i++)
	{
		grid_string(&grid, report->places[i].path);
		grid_string(&grid, report->places[i].what);
	}
	out->table(&grid);
	grid_free(&grid);
	if (shown < report->nplaces)
		note(false, "Left out: %s more place%s.", grouped(report->nplaces - shown),
			 plural(report->nplaces - shown));
}

/* ---------- sections ---------- */

static void
put_fact(Grid *grid, const char *name, const char *fmt,...) pg_attribute_printf(3, 4);

static void
put_fact(Grid *grid, const char *name, const char *fmt,...)
{
	char		text[512];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	grid_string(grid, name);
	grid_string(grid, text);
}

/* Of a time; empty if there is no such thing. */
static void
format_time(char *text, Size size, int64 timestamp, const char *format)
{
	struct tm	tm;

	text[0] = '\0';
	if (local_tm(timestamp, &tm) && strftime(text, size, format, &tm) == 0)
		text[0] = '\0';
}

static void
put_period(Grid *grid)
{
	char		first[64];
	char		last[64];

	if (!report->has_time)
	{
		put_fact(grid, "Period", "no record has a time");
		return;
	}
	format_time(first, sizeof(first), report->first, LONG_TIME);
	format_time(last, sizeof(last), report->last, LONG_TIME);
	put_fact(grid, "Period", "%s to %s", first, last);
	put_fact(grid, "Sequences", INT64_FORMAT " (earliest record) to " INT64_FORMAT " (latest)",
			 report->first_sequence, report->last_sequence);
}

/* The zone of all times, with its offsets from UTC at the begin and end of the period */
static void
put_zone(Grid *grid)
{
	const char *name = getenv("TZ");
	const int64 now = current_time();
	char		first[64];
	char		last[64];

	format_time(first, sizeof(first), report->has_time ? report->first : now, "%Z, UTC%z");
	format_time(last, sizeof(last), report->has_time ? report->last : now, "%Z, UTC%z");
	put_fact(grid, "Time zone", "%s%s%s%s%s", name != NULL ? name : "", name != NULL ? ": " : "",
			 first, strcmp(first, last) != 0 ? "; later " : "", strcmp(first, last) != 0 ? last : "");
}

static void
put_servers(Grid *grid)
{
	int			count;
	Counter   **servers = counters_list(&report->table[TABLE_SERVERS], &count);
	const int	shown = Min(count, report->options.top);

	if (count > 1)
		qsort(servers, count, sizeof(Counter *), compare_counters);
	for (int i = 0; i < shown; i++)
	{
		const Text *part = servers[i]->part;
		Buffer		buf = {0};

		if (part[0].data == NULL)
			continue;
		buffer_put(&buf, part[0].data, part[0].len);
		if (part[1].data != NULL)
		{
			buffer_puts(&buf, ", cluster ");
			buffer_put(&buf, part[1].data, part[1].len);
		}
		grid_string(grid, "Server");
		grid_buffer(grid, &buf);
		free(buf.data);
	}
	if (shown < count)
		put_fact(grid, "Server", "and %d more", count - shown);
	free(servers);
}

static void
put_filter(Grid *grid)
{
	Buffer		buf = {0};

	if (filter_is_empty(&report->options.filter))
		return;
	filter_describe(&report->options.filter, &buf);
	grid_string(grid, "Chosen by");
	grid_buffer(grid, &buf);
	free(buf.data);
}

static void
write_summary(void)
{
	static const GridColumn columns[] = {
		{"", COLUMN_FIXED}, {"", COLUMN_NAME}
	};
	char		now[64];
	Grid		grid;

	format_time(now, sizeof(now), current_time(), LONG_TIME);
	grid_begin(&grid, NULL, columns, lengthof(columns));
	put_period(&grid);
	put_zone(&grid);
	put_filter(&grid);
	put_fact(&grid, "Records", "%s", grouped(report->records));
	put_fact(&grid, "Failures", "%s", grouped(report->failures));
	put_fact(&grid, "Logins", "%s, and %s failed", grouped(report->logins),
			 grouped(report->failed_logins));
	put_fact(&grid, "Gaps", "%s", grouped(report->gaps));
	put_fact(&grid, "Heartbeats", "%s", grouped(report->heartbeats));
	put_servers(&grid);
	put_fact(&grid, "Files", "%s, with %s byte%s and %s record%s", grouped(report->nfiles),
			 grouped(report->bytes), plural(report->bytes), grouped(report->read),
			 plural(report->read));
	put_fact(&grid, "Made", "%s by pg_audit_trail " PAQ_VERSION, now);
	out->facts(&grid);
	grid_free(&grid);
}

static int64
flooded_tables(void)
{
	int64		result = 0;

	for (int i = 0; i < NTABLES; i++)
		result += report->table[i].missed > 0;
	return result;
}

/* Say what goes for records that name no object, one or several, if there are such. */
static void
note_unnamed(const Unnamed *unnamed, const char *one, const char *several)
{
	Buffer		buf = {0};
	const int64 count = unnamed_describe(unnamed, &buf);

	if (count > 0)
	{
		buffer_putc(&buf, '\0');
		note(true, "%s %s", buf.data, count == 1 ? one : several);
	}
	free(buf.data);
}

/* What is missing, or may be */
static void
note_losses(void)
{
	if (report->gaps > 0)
		note(true, "The trail itself says that records are missing: %s gap%s, %s of an unknown number of records, the others of %s record%s.",
			 grouped(report->gaps), plural(report->gaps), grouped(report->vague_gaps),
			 grouped(report->lost), plural(report->lost));
	if (report->missing > 0)
		note(true, "Missing between the records of these files: %s sequence%s%s.",
			 grouped(report->missing), plural(report->missing), report->moved == 0 ? "" :
			 "; some may be in another directory, see Completeness");
	if (report->nplaces > 0)
		note(true, "Files are damaged, or records do not follow each other, at %s place%s: see Completeness.",
			 grouped(report->nplaces), plural(report->nplaces));
	if (current_status() == STATUS_TROUBLE)
		note(true, "Not all files could be read: see the messages of the program.");
	if (report->interrupted > 0)
		note(true, "The server died before the outcome of a statement was known: %s record%s.",
			 grouped(report->interrupted), plural(report->interrupted));
	if (flooded_tables() > 0)
		note(true, "There were so many different names that counts are not exact in " INT64_FORMAT " table%s. Somebody may have done that to hide a name: see the notes there.",
			 flooded_tables(), plural(flooded_tables()));
	if (report->timeless > 0)
		note(true, "Without a time, and so in no day: %s record%s.",
			 grouped(report->timeless), plural(report->timeless));
}

static void
write_attention(void)
{
	const int64 denials = report->events[EVENTS_DENIED].count;
	const int64 roles = report->events[EVENTS_ROLE].count;
	const int64 settings = report->events[EVENTS_CONFIG].count;

	out->section("What needs attention");
	note_losses();
	if (report->failed_logins > 0)
		note(true, "Failed: %s login%s.", grouped(report->failed_logins),
			 plural(report->failed_logins));
	if (denials > 0)
		note(true, "Permission was denied %s time%s (SQLSTATE 42501).", grouped(denials),
			 plural(denials));
	if (roles + settings > 0)
		note(false, "Roles and privileges: %s record%s; configuration: %s record%s.",
			 grouped(roles), plural(roles), grouped(settings), plural(settings));
	if (!filter_is_empty(&report->options.filter))
	{
		note(false, "Only records that were chosen by options are in this report.");
		note_unnamed(&report->options.filter.unnamed,
					 "that matches the other options names no object, and is left out: it may be about any.",
					 "that match the other options name no object, and are left out: they may be about any.");
		if (report->options.filter.unknown_roles > 0)
			note(true, ngettext("%s record that matches the other options does not say whether its user was a superuser, and is left out.",
								"%s records that match the other options do not say whether their user was a superuser, and are left out.",
								report->options.filter.unknown_roles),
				 grouped(report->options.filter.unknown_roles));
	}
	if (report->records + report->heartbeats == 0)
		note(true, "There is no record.");
	note(false, "That files are as the server has written them is not tested here: pg_audit_trail verify does that, as far as the trail is sealed.");
}

/* A section of spans, whose names are below that word */
static void
write_spans(const Spans *spans, const char *title, const char *name)
{
	const GridColumn columns[] = {
		{name, COLUMN_FIXED}, {"records", COLUMN_NUMBER}, {"failed", COLUMN_NUMBER}
	};
	char		summary[64];
	Grid		grid;

	out->section(title);
	if (spans->count > 1)
	{
		out->days_chart(spans, title, false);
		if (report->failures > 0)
			out->days_chart(spans, "Of these, failures", true);
	}
	grid_begin(&grid, NULL, columns, lengthof(columns));
	for (int i = 0; i < spans->count; i++)
	{
		grid_string(&grid, spans->span[i].name);
		grid_number(&grid, spans->span[i].records, false);
		grid_number(&grid, spans->span[i].failures, spans->span[i].failures > 0);
	}
	if (spans->count > LONG_TABLE)
	{
		snprintf(summary, sizeof(summary), "All figures (%s lines)", grouped(spans->count));
		out->long_table(&grid, summary);
	}
	else
		out->table(&grid);
	grid_free(&grid);
	if (spans->years > 1)
		note(false, "Each line has %d years.", spans->years);
}

static void
write_days(void)
{
	static const char *const titles[] = {
		"Records by day", "Records by week, from Monday on", "Records by month", "Records by year"
	};
	static const char *const names[] = {"day", "week", "month", "year"};
	Span		hours[24];
	Spans		spans;

	spans_make(&spans, &report->table[TABLE_DAYS]);
	if (spans.count > 0)
	{
		write_spans(&spans, titles[spans.unit], names[spans.unit]);
		if (report->table[TABLE_DAYS].missed > 0)
			note(true, "There were more days with records than can be counted: those with few records, up to %s each, may be left out.",
				 grouped(report->table[TABLE_DAYS].missed));
		free(spans.span);
		spans = (Spans){ UNIT_DAY, 1, lengthof(hours), hours };
		memcpy(hours, report->hours, sizeof(hours));
		for (int i = 0; i < lengthof(hours); i++)
			snprintf(hours[i].name, sizeof(hours[i].name), "%02d:00", i);
		write_spans(&spans, "Records by hour of the day", "from");
	}
}

/* What there is of each server's sequences; returns whether some begin with another than 1. */
static bool
write_sequences(void)
{
	static const GridColumn columns[] = {
		{"server", COLUMN_NAME},
		{"cluster", COLUMN_NAME},
		{"first", COLUMN_NUMBER},
		{"last", COLUMN_NUMBER},
		{"before the first", COLUMN_NUMBER},
		{"log_directory until then", COLUMN_NAME}
	};
	int			count;
	Counter   **servers = counters_list(&report->table[TABLE_SERVERS], &count);
	const int	shown = Min(count, report->options.top);
	bool		begin_later = false;
	Grid		grid;

	if (count > 0)
	{
		qsort(servers, count, sizeof(Counter *), compare_counters);
		grid_begin(&grid, "Sequences in these files", columns, lengthof(columns));
		for (int i = 0; i < shown; i++)
		{
			const Counter *server = servers[i];

			grid_text(&grid, server->part[0], server->part[0].len == server->len[0]);
			grid_text(&grid, server->part[1], server->part[1].len == server->len[1]);
			grid_id(&grid, server->first_sequence);
			grid_id(&grid, server->sequence);
			grid_number(&grid, Max(server->first_sequence - 1, 0), false);
			grid_string(&grid, server->sample);
			begin_later |= server->first_sequence > 1;
		}
		out->table(&grid);
		grid_free(&grid);
	}
	if (shown < count)
		note(false, "Left out: %d more server%s.", count - shown, plural(count - shown));
	free(servers);
	return begin_later;
}

static void
write_completeness(void)
{
	char		from[64];
	char		to[64];

	out->section("Completeness");
	write_gaps();
	write_places();
	if (write_sequences())
		note(false, "What was before the first sequence is not in these files: retention or somebody else has removed it, or it is in another directory.");
	if (current_status() == STATUS_TROUBLE)
		note(true, "Not all files could be read: what is missing there is not known here.");
	else if (report->gaps == 0 && report->nplaces == 0 && report->read > 0)
		note(false, "There are no gaps%s, no damage was found, and no sequence is missing between the first and the last record of each server.",
			 filter_is_empty(&report->options.filter) ? "" :
			 " in the times and sequences that were chosen");
	if (report->unfinished > 0)
		note(false, "The newest file ends within a record: it is being written, or was cut off.");
	if (report->shortened > 0)
		note(false, "Without a part of a text, or fields (cut, incomplete): %s record%s.",
			 grouped(report->shortened), plural(report->shortened));
	if (report->silence >= USECS_PER_SEC)
	{
		format_time(from, sizeof(from), report->silence_from, LONG_TIME);
		format_time(to, sizeof(to), report->silence_to, LONG_TIME);
		note(false, "The longest time without a record was from %s to %s.", from, to);
	}
}

static void
write_failures(void)
{
	out->section("Failed logins");
	write_lists(logins, lengthof(logins));
	out->section("Other failures");
	write_lists(failures, lengthof(failures));
	write_events(EVENTS_DENIED, "Latest denials (SQLSTATE 42501)", "message", "--outcome=42501");
}

static void
write_changes(void)
{
	out->section("Changes of roles, privileges, configuration and definitions");
	write_lists(changes, lengthof(changes));
	write_events(EVENTS_ROLE, "Latest of roles and privileges (class ROLE)", "statement",
				 "--class=ROLE");
	write_events(EVENTS_CONFIG, "Latest of configuration (class CONFIG)", "after",
				 "--class=CONFIG");
	write_events(EVENTS_DDL, "Latest of definitions (class DDL)", "statement", "--class=DDL");
}

/* Write what was collected. */
void
report_write(const Report *collected, const ReportWriter *writer)
{
	char		first[16];
	char		last[16];

	report = collected;
	out = writer;
	format_time(first, sizeof(first), report->first, "%Y-%m-%d");
	format_time(last, sizeof(last), report->last, "%Y-%m-%d");
	time_format = strcmp(first, last) == 0 ? "%H:%M:%S" : "%Y-%m-%d %H:%M";

	out->begin("Audit report", &report->options);
	write_summary();
	write_attention();
	write_days();
	write_completeness();
	write_failures();
	write_changes();
	out->section("Activity");
	write_lists(activity, lengthof(activity));
	out->section("Objects");
	write_lists(objects, lengthof(objects));
	note_unnamed(&report->unnamed,
				 "names no object: what it is about is not in this section. With pg_audit_queue.log_relation, records name what statements use.",
				 "name no object: what these are about is not in this section. With pg_audit_queue.log_relation, records name what statements use.");
	out->end();
}
