/*-------------------------------------------------------------------------
 *
 * report_collect.c
 *		What is remembered of the records.
 *
 * Who cannot log in can make records, too, under any name.  They are counted in tables of
 * their own, and so are failures and what changes the server: a flood of records of one kind
 * does not drop counters of another.  Events, the latest of a kind, are in the tables
 * of counters as well, so that later ones cannot hide who made earlier ones.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/report.h"

#include "common/int.h"
#include "datatype/timestamp.h"

/* Most bytes that are kept of a name and of a text of an event */
#define MAX_EVENT_NAME	256
#define MAX_EVENT_TEXT	300

/* Most places where something is wrong that are kept */
#define MAX_PLACES		1000

/* What is counted of a record */
typedef struct Item
{
	bool		has_time;
	int64		time;
	int64		sequence;
	bool		failed;
	Text		user;
	Text		login;
	Text		host;
	Text		class;
	Text		command;
	Text		object;
	Text		code;
	Text		message;
} Item;

static bool
text_is(Text text, const char *string)
{
	return text.data != NULL && text.len == strlen(string) &&
		memcmp(text.data, string, text.len) == 0;
}

/* Numbers of a trail that somebody has changed may be any. */
static void
add_number(int64 *sum, int64 number)
{
	if (pg_add_s64_overflow(*sum, number, sum))
		*sum = PG_INT64_MAX;
}

static void
make_item(Item *item, Record *record)
{
	int64		sequence;

	item->has_time = record_time(record, &item->time, &sequence);
	item->sequence = sequence;
	item->failed = record_has_failed(record);
	item->login = record_text(record, PAQ_TRAIL_USER_NAME);
	item->user = record_text(record, PAQ_TRAIL_SESSION_USER_NAME);
	if (item->user.data == NULL)
		item->user = item->login;
	item->host = record_text(record, PAQ_TRAIL_REMOTE_HOST);
	item->class = record_text(record, PAQ_TRAIL_CLASS);
	item->command = record_text(record, PAQ_TRAIL_COMMAND);
	item->object = record_text(record, PAQ_TRAIL_OBJECT_NAME);
	item->code = record_text(record, PAQ_TRAIL_EXIT_CODE);
	item->message = record_text(record, PAQ_TRAIL_ERROR_MESSAGE);
}

static Counter *
count_parts(Report *report, TableId id, const Text *parts, int nparts, const Item *item)
{
	CounterTable *table = &report->table[id];
	Counter    *counter = counter_get(table, parts, nparts);

	table->records++;
	table->failures += item->failed;
	counter->records++;
	counter->failures += item->failed;
	if (!item->has_time)
		return counter;
	if (!counter->has_time || item->time < counter->first)
		counter->first = item->time;
	if (!counter->has_time || item->time > counter->last)
		counter->last = item->time;
	counter->has_time = true;
	return counter;
}

static Counter *
count(Report *report, TableId id, Text name, const Item *item)
{
	return count_parts(report, id, &name, 1, item);
}

/*
 * Records of one time come together: the local time is asked for once for all of them.  Today's
 * time zones begin days and hours at whole quarters of an hour of UTC.
 */
static void
count_day(Report *report, const Item *item)
{
	static const int64 quarter = 15 * USECS_PER_MINUTE;
	static int64 from = 1;
	static int64 to = 0;
	static int32 day;
	static int	hour;
	struct tm	tm;
	Text		name = {(const char *) &day, sizeof(day)};

	if (item->time < from || item->time >= to)
	{
		if (!local_tm(item->time, &tm))
			return;
		from = item->time - (item->time % quarter + quarter) % quarter;
		to = from + quarter;
		day = day_of_date(&tm);
		hour = tm.tm_hour;
	}
	report->hours[hour].records++;
	report->hours[hour].failures += item->failed;
	(void) count(report, TABLE_DAYS, name, item);
}

/*
 * Since the last one before it, which is a time without a record.  Years from 1 to 294276
 * are allowed, and more than what an int64 can have.
 */
static void
note_silence(Report *report, int64 time)
{
	int64		silence;

	if (time <= report->last)
		return;
	if (pg_sub_s64_overflow(time, report->last, &silence))
		silence = PG_INT64_MAX;
	if (silence <= report->silence)
		return;
	report->silence = silence;
	report->silence_from = report->last;
	report->silence_to = time;
}

/* The first and the last record by time, and the longest time without one */
static void
note_time(Report *report, const Item *item)
{
	if (!item->has_time)
	{
		report->timeless++;
		return;
	}
	if (!report->has_time || item->time < report->first)
	{
		report->first = item->time;
		report->first_sequence = item->sequence;
	}
	if (report->has_time)
		note_silence(report, item->time);
	if (!report->has_time || item->time >= report->last)
	{
		report->last = item->time;
		report->last_sequence = item->sequence;
	}
	report->has_time = true;
}

static void
free_event(Event *event)
{
	free(event->user);
	free(event->client);
	free(event->whom);
	free(event->command);
	free(event->object);
	free(event->before);
	free(event->text);
}

/*
 * Whom a setting is for: "ROLE alice IN DATABASE shop", what ALTER and SET, or RESET, have between
 * them.  If the statement says no such thing, it is where the value comes from: a session, or the
 * configuration file.
 */
static Text
find_whom(Record *record)
{
	const Text	text = record_text(record, PAQ_TRAIL_COMMAND_TEXT);
	const Text	source = record_text(record, PAQ_TRAIL_VALUE_SOURCE);
	Words		words = {text.data, text.data + text.len};
	Text		whom;

	if (text.data == NULL || !words_take(&words, "ALTER"))
		return source;
	words_skip_space(&words);
	whom.data = words.p;
	if (words_take(&words, "SYSTEM"))
		return source;
	do
	{
		whom.len = words.p - whom.data;
		words_skip_space(&words);
		if (words_take(&words, "SET") || words_take(&words, "RESET"))
			return whom.len > 0 ? whom : source;
	} while (words_skip(&words));
	return source;
}

/* Remember a record; which of its fields is the text goes with its kind. */
static void
add_event(Report *report, EventId id, const Item *item, Record *record, PaqTrailField text)
{
	EventList  *list = &report->events[id];
	Event	   *event;

	if (list->ring == NULL)
		list->ring = checked_alloc(report->options.top * sizeof(Event));
	event = &list->ring[list->count++ % report->options.top];
	free_event(event);
	event->has_time = item->has_time;
	event->time = item->time;
	event->sequence = item->sequence;
	event->failed = item->failed;
	event->has_start = paq_line_time(&record->line.value[PAQ_TRAIL_START_TIME], &event->start);
	event->rows = paq_line_has(&record->line, PAQ_TRAIL_ROW_COUNT)
		? record_number(record, PAQ_TRAIL_ROW_COUNT)
		: -1;
	event->user = keep_text(item->user, MAX_EVENT_NAME);
	event->client = keep_text(item->host, MAX_EVENT_NAME);
	event->whom = id == EVENTS_CONFIG ? keep_text(find_whom(record), MAX_EVENT_NAME) : NULL;
	event->command = keep_text(item->command, MAX_EVENT_NAME);
	event->object = keep_text(item->object, MAX_EVENT_NAME);
	event->before = keep_text(record_text(record, PAQ_TRAIL_OLD_VALUE), MAX_EVENT_TEXT);
	event->text = keep_text(record_text(record, text), MAX_EVENT_TEXT);
}

/* Number 0 is the latest one; NULL if it was not kept. */
const Event *
event_of_list(const Report *report, EventId id, int64 number)
{
	const EventList *list = &report->events[id];

	if (number >= list->count || number >= report->options.top)
		return NULL;
	return &list->ring[(list->count - 1 - number) % report->options.top];
}

static void
collect_gap(Report *report, const Item *item, Record *record)
{
	const int64 lost = record_number(record, PAQ_TRAIL_ROW_COUNT);

	report->gaps++;
	if (lost > 0)
		add_number(&report->lost, lost);
	else
		report->vague_gaps++;
	add_event(report, EVENTS_GAP, item, record, PAQ_TRAIL_ERROR_MESSAGE);
}

/* A login that failed: nothing that the client says of itself is known to be true. */
static void
collect_failed_login(Report *report, const Item *item)
{
	Counter    *counter = count(report, TABLE_LOGIN_NAMES, item->login, item);

	report->failed_logins++;
	free(counter->sample);
	counter->sample = keep_text(item->message, MAX_EVENT_TEXT);
	(void) count(report, TABLE_LOGIN_CLIENTS, item->host, item);
}

static void
collect_failure(Report *report, const Item *item, Record *record)
{
	Counter    *counter = count(report, TABLE_STATES, item->code, item);

	free(counter->sample);
	counter->sample = keep_text(item->message, MAX_EVENT_TEXT);
	(void) count(report, TABLE_FAILED_USERS, item->user, item);
	if (text_is(item->code, "42501"))
		add_event(report, EVENTS_DENIED, item, record, PAQ_TRAIL_ERROR_MESSAGE);
}

static void
collect_object(Report *report, const Item *item)
{
	static const struct
	{
		const char *class;
		TableId		table;
	}			tables[] =
	{
		{"READ", TABLE_READ},
		{"WRITE", TABLE_WRITTEN},
		{"DDL", TABLE_DEFINED},
		{"ROLE", TABLE_DEFINED},
		{"FUNCTION", TABLE_CALLED}
	};

	for (int i = 0; item->object.data != NULL && i < lengthof(tables); i++)
		if (text_is(item->class, tables[i].class))
			(void) count(report, tables[i].table, item->object, item);
}

/* Roles, privileges, settings, definitions */
static void
collect_change(Report *report, const Item *item, Record *record, const Text *action)
{
	if (text_is(item->class, "CONFIG"))
		add_event(report, EVENTS_CONFIG, item, record, PAQ_TRAIL_NEW_VALUE);
	else if (text_is(item->class, "ROLE"))
		add_event(report, EVENTS_ROLE, item, record, PAQ_TRAIL_COMMAND_TEXT);
	else if (text_is(item->class, "DDL"))
		add_event(report, EVENTS_DDL, item, record, PAQ_TRAIL_COMMAND_TEXT);
	else
		return;
	(void) count_parts(report, TABLE_CHANGES, action, 3, item);
}

/* A record of what somebody did who was there */
static void
collect_action(Report *report, const Item *item, Record *record)
{
	const Text	action[] = {item->user, item->class, item->command};

	if (text_is(item->class, "CONNECT") && text_is(item->command, "LOGIN"))
		report->logins++;
	(void) count(report, TABLE_USERS, item->user, item);
	(void) count_parts(report, TABLE_ACTIONS, action, lengthof(action), item);
	(void) count(report, TABLE_COMMANDS, item->command, item);
	(void) count(report, TABLE_DATABASES, record_text(record, PAQ_TRAIL_DATABASE_NAME), item);
	(void) count(report, TABLE_CLIENTS, item->host, item);
	collect_object(report, item);
	(void) unnamed_count(&report->unnamed, record);
	collect_change(report, item, record, action);
	if (item->failed)
		collect_failure(report, item, record);
}

static void
collect_marks(Report *report, const Record *record)
{
	report->interrupted += paq_line_has(&record->line, PAQ_TRAIL_INTERRUPTED);
	report->shortened += paq_line_has(&record->line, PAQ_TRAIL_CUT) ||
		paq_line_has(&record->line, PAQ_TRAIL_INCOMPLETE);
}

/* A record that is wanted */
void
collect_record(Report *report, Record *record)
{
	Item		item;

	record_decode_as(record, false);
	make_item(&item, record);
	note_time(report, &item);
	if (record_is(record, PAQ_TRAIL_TYPE, "heartbeat"))
	{
		report->heartbeats++;
		return;
	}
	report->records++;
	if (item.has_time)
		count_day(report, &item);
	(void) count(report, TABLE_CLASSES, item.class, &item);
	report->failures += item.failed;
	collect_marks(report, record);
	if (record_is_gap(record))
		collect_gap(report, &item, record);
	else if (item.failed && text_is(item.class, "CONNECT") && text_is(item.command, "LOGIN"))
		collect_failed_login(report, &item);
	else
		collect_action(report, &item, record);
}

/* A gap that is not wanted; but what is missing there may be. */
void
collect_unwanted_gap(Report *report, Record *record)
{
	Item		item;

	record_decode_as(record, false);
	make_item(&item, record);
	collect_gap(report, &item, record);
}

void
collect_place(Report *report, const char *path, const char *what)
{
	if (report->places == NULL)
		report->places = checked_alloc(MAX_PLACES * sizeof(Place));
	if (report->nplaces < MAX_PLACES)
	{
		report->places[report->nplaces].path = checked_strdup(path);
		report->places[report->nplaces].what = checked_strdup(what);
	}
	report->nplaces++;
}

static void
collect_missing(Report *report, const TrailFile *file, int64 first, int64 last)
{
	char		what[128];

	add_number(&report->missing, last - first + 1);
	if (first == last)
		snprintf(what, sizeof(what), "sequence " INT64_FORMAT " is missing", first);
	else
		snprintf(what, sizeof(what),
				 "sequences " INT64_FORMAT " to " INT64_FORMAT " are missing", first, last);
	collect_place(report, file->path, what);
	note_status(STATUS_ALTERED);
}

/*
 * The server has begun to write into another directory.  The record of that is in the first file
 * there.  So if sequences are missing in front of this file, they may be in the other directory,
 * which the record names.
 */
static void
collect_directory(Report *report, Counter *server, Record *record)
{
	const int64 place = server->place;
	char	   *directory;
	Buffer		what = {0};

	if (server->place == PLACE_NONE || record_has_failed(record) ||
		!record_is(record, PAQ_TRAIL_OBJECT_NAME, "pg_audit_queue.log_directory") ||
		!record_is(record, PAQ_TRAIL_CLASS, "CONFIG") || !record_is(record, PAQ_TRAIL_COMMAND, "SET"))
		return;
	server->place = PLACE_NONE;
	directory = keep_text(record_text(record, PAQ_TRAIL_OLD_VALUE), MAX_EVENT_TEXT);
	if (directory == NULL)
		return;
	if (place == PLACE_BEFORE)
	{
		server->sample = directory;
		return;
	}
	buffer_puts(&what, report->places[place].what);
	buffer_printf(&what, "; before sequence " INT64_FORMAT ", log_directory was \"",
				  record_number(record, PAQ_TRAIL_SEQUENCE));
	buffer_puts(&what, directory);
	buffer_puts(&what, "\"");
	buffer_putc(&what, '\0');
	free(report->places[place].what);
	report->places[place].what = what.data;
	report->moved++;
	free(directory);
}

/*
 * Each record, wanted or not: does its sequence follow that of the one before it?  Each
 * server has sequences of its own.  Where they go back, numbers begin again, as after a
 * promotion, or the trail has the same file twice; nothing needs to be missing.
 */
void
collect_sequence(Report *report, const TrailFile *file, Record *record)
{
	static const Item nothing;
	const Text	server[] = {
		record_text(record, PAQ_TRAIL_SERVER_HOST),
		record_text(record, PAQ_TRAIL_CLUSTER_NAME)
	};
	const int64 sequence = record_number(record, PAQ_TRAIL_SEQUENCE);
	Counter    *counter = count_parts(report, TABLE_SERVERS, server, lengthof(server), &nothing);
	const bool	begins_file = counter->path != file->path;
	char		what[128];

	if (sequence <= 0)
		return;
	counter->path = file->path;
	if (begins_file)
		counter->place = counter->first_sequence == 0 ? PLACE_BEFORE : PLACE_NONE;
	if (counter->first_sequence == 0)
		counter->first_sequence = sequence;
	if (counter->sequence > 0 && sequence - 1 > counter->sequence)
	{
		if (begins_file && report->nplaces < MAX_PLACES)
			counter->place = report->nplaces;
		collect_missing(report, file, counter->sequence + 1, sequence - 1);
	}
	else if (counter->sequence > 0 && sequence <= counter->sequence)
	{
		snprintf(what, sizeof(what),
				 "sequence " INT64_FORMAT " comes after " INT64_FORMAT, sequence, counter->sequence);
		collect_place(report, file->path, what);
	}
	counter->sequence = sequence + record->nparts - 1;
	collect_directory(report, counter, record);
}
