/*-------------------------------------------------------------------------
 *
 * ship_send.c
 *		Handing the trail's records to a target, and how far that has acknowledged
 *		them.
 *
 * ship.h has the way of a record.  The consumer's place is written when records have been
 * acknowledged, once a second at most, and at the end.
 *
 * When a target fails, the next attempt is made after a delay that doubles from attempt to
 * attempt, until something is acknowledged.  With --once, an attempt at which nothing is
 * acknowledged is the last one.
 *
 * Where the trail cannot be read on, shipping ends when all before that is acknowledged.
 *
 * SIGTERM and SIGINT: no more records are sent; those that were may still be acknowledged, for
 * FINISH_TIME.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/ship.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Records that were sent and not acknowledged yet, at most: a power of 2 */
#define WINDOW_SIZE		(256 * 1024)

/* Records that are sent between two looks at the target */
#define SEND_AT_ONCE	512

/* In milliseconds */
#define POLL_TIME		100
#define SAVE_TIME		1000
#define FINISH_TIME		10000
#define MIN_DELAY		100
#define MAX_DELAY		30000

/* Length of a record's time that is kept, in bytes */
#define TIME_MAX		40

/* A file that records in the window are in, or the consumer's place */
typedef struct SentFile
{
	PaqPlace	place;			/* one in it */
	uint64		count;			/* of pointers to this */
} SentFile;

/* A record that was sent: where the consumer is when it is acknowledged */
typedef struct Sent
{
	SentFile   *file;
	uint64		series;
	uint64		sequence;
	uint64		offset;
	char		time[TIME_MAX]; /* of the record, as the line has it: it is parsed
								 * only when the consumer's file is written */
	Size		time_len;		/* bytes; 0: unknown */
	uint32		len;			/* bytes */
	bool		acknowledged;
} Sent;

/* The window: records with numbers from first on, up to before next */
static struct
{
	uint64		first;
	uint64		next;
	Sent	   *sent;			/* WINDOW_SIZE of them */
	SentFile   *file;			/* of the last one; NULL: none */
}			window;

static struct
{
	ShipOptions options;
	const Target *target;		/* of these */
	bool		is_open;
	bool		renewing;		/* it finishes what it has, to be opened anew */
	bool		progress;		/* something was acknowledged since then */
	int64		delay;			/* of the next attempt to open it, in ms */
	int64		retry_at;		/* when it is; see now_ms() */

	Walk	   *walk;
	Record		record;			/* that is to be sent next */
	bool		has_record;
	bool		stuck;			/* there will be no more: the trail is damaged */

	int			fd;				/* of the consumer's file */
	PaqConsumer consumer;
	SentFile   *file;			/* of its place; NULL: nothing acknowledged yet */
	char		time[TIME_MAX]; /* that its record_time becomes, see Sent */
	Size		time_len;
	bool		moved;			/* the consumer is further than its file says */
	int64		saved_at;
}			ship;

/* Since the start */
static struct
{
	int64		started_at;
	int64		printed_at;
	uint64		records;		/* acknowledged */
	uint64		bytes;
	uint64		sent;			/* records, again included */
	uint64		failures;		/* of the target */
	uint64		last_records;	/* when statistics were printed last */
	bool		on_terminal;
}			stats;

/* A clock that nobody sets */
static int64
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ----------
 * The window
 * ----------
 */

static Sent *
sent_of(uint64 number)
{
	return &window.sent[number % WINDOW_SIZE];
}

static void
release_file(SentFile *file)
{
	if (file != NULL && --file->count == 0)
		free(file);
}

/* The file of a place, for one more record */
static SentFile *
share_file(const PaqPlace *place)
{
	SentFile   *file = window.file;

	if (file == NULL || file->place.begun != place->begun ||
		strcmp(file->place.file, place->file) != 0)
	{
		release_file(file);
		file = window.file = checked_alloc(sizeof(SentFile));
		file->place = *place;
		file->count = 1;
	}
	file->count++;
	return file;
}

/* The first record leaves the window. */
static void
pop(void)
{
	release_file(sent_of(window.first++)->file);
}

static void
push(const PaqPlace *place, const Record *record)
{
	const PaqValue *time = &record->line.value[PAQ_TRAIL_LOG_TIME];
	Sent	   *sent = sent_of(window.next++);

	sent->file = share_file(place);
	sent->series = place->series;
	sent->sequence = place->sequence;
	sent->offset = place->offset;
	sent->time_len = time->kind == PAQ_VALUE_STRING && time->len <= TIME_MAX ? time->len : 0;
	if (sent->time_len > 0)
		memcpy(sent->time, time->data, sent->time_len);
	sent->len = record->len;
	sent->acknowledged = false;
}

/* The consumer is behind that record. */
static void
move_behind(const Sent *sent)
{
	PaqPlace   *place = &ship.consumer.place;

	if (sent->file != ship.file)
	{
		/* analyzer: ship counts as a user of its file */
		release_file(ship.file);
		ship.file = sent->file;
		ship.file->count++;
		*place = sent->file->place;
	}
	place->series = sent->series;
	place->sequence = sent->sequence;
	place->offset = sent->offset;
	if (sent->time_len > 0)
	{
		memcpy(ship.time, sent->time, sent->time_len);
		ship.time_len = sent->time_len;
	}
	ship.moved = true;
}

/* All that are acknowledged at the beginning of the window move the consumer. */
static void
move_consumer(void)
{
	while (window.first < window.next && sent_of(window.first)->acknowledged)
	{
		const Sent *sent = sent_of(window.first);

		stats.records++;
		stats.bytes += sent->len;
		move_behind(sent);
		pop();
	}
	ship.delay = MIN_DELAY;
	ship.progress = true;
}

void
ship_acknowledged(uint64 number)
{
	if (number < window.first || number >= window.next)
		return;
	sent_of(number)->acknowledged = true;
	if (number == window.first)
		move_consumer();
}

void
ship_acknowledged_to(uint64 number)
{
	for (uint64 i = window.first; i <= number && i < window.next; i++)
		sent_of(i)->acknowledged = true;
	move_consumer();
}

bool
ship_find_sequence(uint64 sequence, uint64 *number)
{
	for (*number = window.first; *number < window.next; (*number)++)
		if (sent_of(*number)->sequence == sequence)
			return true;
	return false;
}

/* ----------
 * The consumer
 * ----------
 */

static void
open_consumer(void)
{
	Buffer		path = {0};
	struct stat named;
	struct stat opened;

	buffer_printf(&path, "%s/%s%s", ship.options.directory, PAQ_CONSUMER_PREFIX, ship.options.name);
	buffer_putc(&path, '\0');
	ship.fd = open(path.data, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	if (ship.fd < 0 && errno == ENOENT)
	{
		pg_log_error("directory \"%s\" has no consumer \"%s\"", ship.options.directory, ship.options.name);
		pg_log_error_hint("Make it by \"SELECT audit_consumer_create('%s')\".", ship.options.name);
		leave(STATUS_TROUBLE);
	}
	if (ship.fd < 0)
		trouble("could not open file \"%s\": %m", path.data);
	if (!paq_consumer_lock(ship.fd))
	{
		const int	save_errno = errno;
		const int	owner = paq_consumer_owner(ship.fd);

		errno = save_errno;
		if (owner != 0)
			trouble("consumer \"%s\" is active for PID %d", ship.options.name, owner);
		trouble("could not lock file \"%s\": %m", path.data);
	}

	/* It may have been dropped, and made again, in between. */
	if (stat(path.data, &named) != 0 || fstat(ship.fd, &opened) != 0 ||
		named.st_dev != opened.st_dev || named.st_ino != opened.st_ino)
		trouble("consumer \"%s\" was dropped", ship.options.name);
	switch (paq_consumer_read(ship.fd, &ship.consumer))
	{
		case PAQ_PLACE_OK:
			break;
		case PAQ_PLACE_BAD:
			pg_log_error("file \"%s\" is damaged", path.data);
			pg_log_error_hint("Drop the consumer, and make it again: it then begins with the oldest record that is there.");
			leave(STATUS_TROUBLE);
		case PAQ_PLACE_FAILED:
			trouble("could not read file \"%s\": %m", path.data);
	}
	free(path.data);
}

/*
 * Write how far the consumer is, if that is not known yet.  If that fails, it is tried again
 * later; what is acknowledged until then would be shipped once more after a restart.
 */
static void
save_consumer(void)
{
	static bool failed = false;
	const PaqValue time = {ship.time, ship.time_len, PAQ_VALUE_STRING, false};
	struct stat st;

	if (!ship.moved)
		return;
	if (fstat(ship.fd, &st) == 0 && st.st_nlink == 0)
		trouble("the file of consumer \"%s\" was removed", ship.options.name);
	ship.consumer.acknowledged = current_time();
	(void) paq_line_time(&time, &ship.consumer.record_time);
	ship.saved_at = now_ms();
	ship.moved = !paq_consumer_write(ship.fd, &ship.consumer);
	if (ship.moved && !failed)
		pg_log_error("could not write the file of consumer \"%s\": %m", ship.options.name);
	else if (failed && !ship.moved)
		pg_log_info("the file of consumer \"%s\" could be written again", ship.options.name);
	failed = ship.moved;
}

static void
save_if_due(void)
{
	if (ship.moved && now_ms() - ship.saved_at >= SAVE_TIME)
		save_consumer();
}

/* ----------
 * Statistics
 * ----------
 */

static double
cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
		(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000000.0;
}

static const char *
state_name(bool ended)
{
	if (ended)
		return "ended";
	if (!ship.is_open)
		return "retrying";
	return ship.has_record || window.first < window.next ? "shipping" : "waiting";
}

static uint64
lag(void)
{
	return paq_place_lag(ship.consumer.place.sequence, walk_last_sequence(ship.walk));
}

/* One line of JSON on standard output */
static void
print_json(bool ended)
{
	static Buffer buf;
	char		now_text[64];
	const time_t now = time(NULL);
	struct tm	tm;

	gmtime_r(&now, &tm);
	strftime(now_text, sizeof(now_text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	buf.used = 0;
	buffer_printf(&buf, "{\"time\":\"%s\",\"consumer\":\"%s\",\"target\":\"%s\",\"state\":\"%s\"",
				  now_text, ship.options.name, ship.target->name, state_name(ended));
	buffer_printf(&buf, ",\"seconds\":%.3f,\"cpuSeconds\":%.3f",
				  (now_ms() - stats.started_at) / 1000.0, cpu_seconds());
	buffer_printf(&buf, ",\"records\":" UINT64_FORMAT ",\"bytes\":" UINT64_FORMAT ",\"sent\":" UINT64_FORMAT,
				  stats.records, stats.bytes, stats.sent);
	buffer_printf(&buf, ",\"unacknowledged\":" UINT64_FORMAT ",\"missing\":" UINT64_FORMAT ",\"failures\":" UINT64_FORMAT,
				  window.next - window.first, walk_missing(ship.walk), stats.failures);
	buffer_printf(&buf, ",\"series\":" UINT64_FORMAT ",\"sequence\":" UINT64_FORMAT ",\"lagRecords\":" UINT64_FORMAT "}\n",
				  ship.consumer.place.series, ship.consumer.place.sequence, lag());
	output_put(buf.data, buf.used);
	output_flush();
}

/* The same for people, who see it change */
static void
print_line(bool ended)
{
	const double seconds = Max(now_ms() - stats.printed_at, 1) / 1000.0;

	fprintf(stderr, "\r\033[K%s: %s, " UINT64_FORMAT " record%s (%.0f/s), up to sequence " UINT64_FORMAT ", lag " UINT64_FORMAT "%s",
			ship.options.name, state_name(ended), stats.records, plural(stats.records),
			(stats.records - stats.last_records) / seconds,
			ship.consumer.place.sequence, lag(), ended ? "\n" : "");
	fflush(stderr);
}

static void
print_stats(bool ended)
{
	const int64 now = now_ms();

	if (stats.on_terminal && (ended || now - stats.printed_at >= 1000))
		print_line(ended);
	else if (ship.options.stats_time == 0 ||
			 (!ended && now - stats.printed_at < ship.options.stats_time * INT64CONST(1000)))
		return;
	if (ship.options.stats_time > 0)
		print_json(ended);
	stats.printed_at = now;
	stats.last_records = stats.records;
}

/* ----------
 * Shipping
 * ----------
 */

/* The target has failed: go back to what it has acknowledged, and try again later. */
static void
give_up_target(void)
{
	ship.target->close();
	ship.is_open = false;
	stats.failures++;
	save_consumer();
	if (ship.options.once && !ship.progress)
	{
		/* Whoever wants it once may try again himself. */
		print_stats(true);
		leave(STATUS_TROUBLE);
	}
	walk_set_place(ship.walk, &ship.consumer);
	ship.has_record = ship.stuck = false;
	while (window.first < window.next)
		pop();
	window.first = window.next = 1;
	ship.retry_at = now_ms() + ship.delay;
	ship.delay = Min(2 * ship.delay, MAX_DELAY);
}

/* Have the target open; false if that has to wait. */
static bool
need_target(void)
{
	if (ship.is_open)
		return true;
	if (now_ms() < ship.retry_at)
		return false;
	ship.is_open = true;
	ship.renewing = ship.progress = false;
	if (ship.target->open())
		return true;
	give_up_target();
	return false;
}

/* Have a record to be sent, if there is one. */
static void
need_record(void)
{
	switch (walk_next(ship.walk, &ship.record))
	{
		case WALK_RECORD:
			ship.has_record = true;
			break;
		case WALK_END:
			break;
		case WALK_STUCK:
			ship.stuck = true;
			break;
	}
}

/* Send some records.  False if there are none, or the target takes no more for now. */
static bool
send_some(void)
{
	for (int i = 0; i < SEND_AT_ONCE; i++)
	{
		if (!ship.has_record)
			need_record();
		if (!ship.has_record || window.next - window.first == WINDOW_SIZE)
			return false;
		switch (ship.target->send(window.next, &ship.record))
		{
			case SEND_TAKEN:
				push(walk_place(ship.walk), &ship.record);
				ship.has_record = false;
				stats.sent++;
				break;
			case SEND_FULL:
				return false;
			case SEND_ANEW:
				ship.renewing = true;
				ship.target->finish();
				return false;
			case SEND_FAILED:
				give_up_target();
				return false;
		}
	}
	return true;
}

/* Work at what was sent; if there is nothing to do, for at most so many milliseconds. */
static void
work(int timeout)
{
	const bool	well = ship.target->wait(timeout);

	if (ship.renewing && window.first == window.next)
	{
		ship.target->close();
		ship.is_open = false;
		ship.retry_at = 0;
		window.first = window.next = 1;
	}
	else if (!well)
		give_up_target();
}

static void
sleep_for(int64 ms)
{
	const struct timespec pause = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&pause, NULL);
}

/* Until the process is told to stop */
static void
ship_records(void)
{
	while (!stopped)
	{
		bool		more;

		print_stats(false);
		if (!need_target())
		{
			sleep_for(Min(POLL_TIME, Max(ship.retry_at - now_ms(), 1)));
			continue;
		}
		more = !ship.renewing && send_some();
		if (ship.is_open)
			work(more ? 0 : POLL_TIME);
		save_if_due();
		if ((ship.options.once || ship.stuck) && !more && ship.is_open && !ship.has_record)
			return;
	}
}

/*
 * No more is sent: wait for what was to be acknowledged.  False if some was not, and more may
 * be by another attempt.
 */
static bool
finish(void)
{
	int64		until = stopped ? now_ms() + FINISH_TIME : PG_INT64_MAX;

	if (!ship.is_open)
		return true;
	ship.target->finish();
	while (window.first < window.next && now_ms() < until && ship.target->wait(POLL_TIME))
	{
		save_if_due();
		if (stopped)
			until = Min(until, now_ms() + FINISH_TIME);
	}
	if (window.first < window.next && (ship.progress || !ship.options.once) && !stopped)
	{
		give_up_target();
		return false;
	}
	ship.target->close();
	ship.is_open = false;
	return true;
}

/* All is done that can be. */
static void
end(void)
{
	save_consumer();
	print_stats(true);
	if (ship.moved)
		note_status(STATUS_TROUBLE);
	if (window.first == window.next)
		return;
	if (!ship.options.once)
	{
		pg_log_warning(ngettext(UINT64_FORMAT " record was sent, but not acknowledged, and will be sent again",
								UINT64_FORMAT " records were sent, but not acknowledged, and will be sent again",
								window.next - window.first),
					   window.next - window.first);
		return;
	}
	pg_log_error(ngettext(UINT64_FORMAT " record was sent, but not acknowledged",
						  UINT64_FORMAT " records were sent, but not acknowledged",
						  window.next - window.first),
				 window.next - window.first);
	note_status(STATUS_TROUBLE);
}

/* Ship as the options say, until all is done or somebody wants it to end. */
void
ship_trail(const ShipOptions *options)
{
	ship.options = *options;
	ship.target = options->target;
	open_consumer();
	window.first = window.next = 1;
	window.sent = checked_alloc(WINDOW_SIZE * sizeof(Sent));
	ship.delay = MIN_DELAY;
	stats.started_at = stats.printed_at = now_ms();
	stats.on_terminal = isatty(STDERR_FILENO);
	ship.walk = walk_begin(options->directory, options->keys);
	if (!walk_has_end(ship.walk))
	{
		if (options->once)
			trouble("directory \"%s\" has no file \"%s\"", options->directory, PAQ_FLUSHED_FILE);
		pg_log_info("directory \"%s\" has no file \"%s\"; waiting for a server to write it",
					options->directory, PAQ_FLUSHED_FILE);
	}
	walk_set_place(ship.walk, &ship.consumer);
	do
		ship_records();
	while (!finish());
	end();
}
