/*-------------------------------------------------------------------------
 *
 * timestamp.c
 *		Time stamps as text, in log_timezone.
 *
 * Asking the time zone library costs more than all the rest of a record, and
 * nearly all records of a moment share their second.  So the text of a second
 * is made once and kept; a small table, so that the start times of many
 * sessions find their place beside the current second.
 *
 * Guarantees: a change of log_timezone is noticed at once.
 * Must not allocate or raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <stdlib.h>

#include "format/format_internal.h"

#define NSECONDS	256			/* a power of 2 */

typedef struct PaqSecond
{
	pg_time_t	second;
	const pg_tz *zone;			/* NULL: unused entry */
	int			date_len;		/* of "2026-11-20 10:11:12" in text */
	int			text_len;		/* of all of it: " UTC" follows the date */
	int			offset_len;
	char		offset[12];		/* "+00:00" */
	char		text[PAQ_SECOND_TEXT];
} PaqSecond;

/* Bytes of text that hold the date, even in a year of 10 digits */
#define DATE_ROOM	32

StaticAssertDecl(DATE_ROOM + 7 + sizeof(((PaqSecond *) NULL)->offset) <= PAQ_ISO_TEXT,
				 "PAQ_ISO_TEXT is too small");

static PaqSecond seconds[NSECONDS];

/* Text of an offset from UTC in seconds: +hh:mm, and :ss if there are any. */
static int
offset_text(char *dst, size_t size, long offset)
{
	int			secs = (int) labs(offset);
	int			len;

	len = snprintf(dst, size, "%c%02d:%02d", offset < 0 ? '-' : '+',
				   secs / SECS_PER_HOUR % 100,
				   secs / SECS_PER_MINUTE % MINS_PER_HOUR);
	if (secs % SECS_PER_MINUTE != 0)
		len += snprintf(dst + len, size - len, ":%02d",
						secs % SECS_PER_MINUTE);
	return len;
}

static pg_noinline void
fill_second(PaqSecond *entry, pg_time_t second)
{
	static const struct pg_tm epoch = {
		.tm_mday = 1, .tm_year = 70, .tm_wday = 4, .tm_zone = "UTC"
	};
	const struct pg_tm *tm = pg_localtime(&second, log_timezone);

	/* A time that has no year an int can hold is no time at all. */
	if (tm == NULL)
		tm = &epoch;
	entry->second = second;
	entry->zone = log_timezone;
	entry->date_len = pg_strftime(entry->text, sizeof(entry->text),
								  "%Y-%m-%d %H:%M:%S", tm);
	entry->text_len = pg_strftime(entry->text, sizeof(entry->text),
								  "%Y-%m-%d %H:%M:%S %Z", tm);
	/* An absurdly long abbreviation does not fit: do without. */
	if (entry->text_len == 0)
		entry->text_len = pg_strftime(entry->text, sizeof(entry->text),
									  "%Y-%m-%d %H:%M:%S ", tm);
	entry->offset_len = offset_text(entry->offset, sizeof(entry->offset),
									tm->tm_gmtoff);
}

static inline const PaqSecond *
lookup_second(pg_time_t second)
{
	PaqSecond  *entry = &seconds[(uint64) second & (NSECONDS - 1)];

	if (unlikely(entry->second != second || entry->zone != log_timezone))
		fill_second(entry, second);
	return entry;
}

/*
 * As the server log has it, "2026-11-20 10:11:12 UTC" or, with millis,
 * "2026-11-20 10:11:12.123 UTC".  dst has room for PAQ_TIME_TEXT bytes;
 * returns the length, nothing is terminated.
 */
int
paq_time_log(char *dst, PaqTime time, bool millis)
{
	const PaqSecond *entry = lookup_second(time.second);
	char	   *p = dst;

	memcpy(p, entry->text, entry->date_len);
	p += entry->date_len;
	if (millis)
	{
		int			ms = time.usec / 1000;

		*p++ = '.';
		*p++ = '0' + ms / 100;
		*p++ = '0' + ms / 10 % 10;
		*p++ = '0' + ms % 10;
	}
	memcpy(p, entry->text + entry->date_len,
		   entry->text_len - entry->date_len);
	p += entry->text_len - entry->date_len;
	return p - dst;
}

/*
 * As ISO 8601 has it, "2026-11-20T10:11:12.123456+00:00".  dst has room for
 * PAQ_ISO_TEXT bytes, all of which may be written to; returns the length.
 */
int
paq_time_iso(char *dst, int64 timestamp)
{
	PaqTime		time = paq_time_split(timestamp);
	const PaqSecond *entry = lookup_second(time.second);
	uint32		usec = time.usec;
	char	   *p = dst + entry->date_len;

	memcpy(dst, entry->text, DATE_ROOM);
	p[-9] = 'T';				/* before hh:mm:ss */
	p[0] = '.';
	paq_digit_pair(p + 1, usec / 10000);
	paq_digit_pair(p + 3, usec / 100 % 100);
	paq_digit_pair(p + 5, usec % 100);
	memcpy(p + 7, entry->offset, sizeof(entry->offset));
	return p + 7 + entry->offset_len - dst;
}
