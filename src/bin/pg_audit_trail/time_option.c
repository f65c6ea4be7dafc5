/*-------------------------------------------------------------------------
 *
 * time_option.c
 *		Times as users give them.
 *
 *	2026-11-20, 2026-11-20T10:11:12.123, 2026-11-20 10:11+01:00
 *		Without an offset, local time.
 *	"2 hours ago", "-90 min", "1 month ago", now, today, yesterday
 *		Months and years are those of the calendar, in local time.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <sys/time.h>

#include "datatype/timestamp.h"

static const int64 epoch = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;

typedef struct Unit
{
	const char *name;			/* may have an s behind it */
	int64		usecs;			/* 0: its length depends on the calendar */
	int			months;
} Unit;

static const Unit units[] = {
	{"s", USECS_PER_SEC},
	{"sec", USECS_PER_SEC},
	{"second", USECS_PER_SEC},
	{"min", USECS_PER_MINUTE},
	{"minute", USECS_PER_MINUTE},
	{"h", USECS_PER_HOUR},
	{"hour", USECS_PER_HOUR},
	{"d", USECS_PER_DAY},
	{"day", USECS_PER_DAY},
	{"week", 7 * USECS_PER_DAY},
	{"month", 0, 1},
	{"mon", 0, 1},
	{"year", 0, 12}
};

int64
current_time(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return ((int64) tv.tv_sec - epoch) * USECS_PER_SEC + tv.tv_usec;
}

/* The timestamp at which a clock in the local time zone shows what UTC would. */
int64
local_time(int64 wall_clock)
{
	int64		second = wall_clock / USECS_PER_SEC;
	int64		usec = wall_clock % USECS_PER_SEC;
	time_t		t;
	struct tm	tm;

	if (usec < 0)
	{
		usec += USECS_PER_SEC;
		second--;
	}
	t = (time_t) (second + epoch);
	if (gmtime_r(&t, &tm) == NULL)
		return wall_clock;
	tm.tm_isdst = -1;
	t = mktime(&tm);
	return ((int64) t - epoch) * USECS_PER_SEC + usec;
}

/* What a clock in the local time zone shows, in whole seconds; false if none can. */
bool
local_tm(int64 timestamp, struct tm *tm)
{
	int64		usec = timestamp % USECS_PER_SEC;
	time_t		t;

	if (usec < 0)
		usec += USECS_PER_SEC;
	t = (time_t) ((timestamp - usec) / USECS_PER_SEC + epoch);
	return localtime_r(&t, tm) != NULL;
}

/* Midnight of today, or some days before */
static int64
midnight(int days_ago)
{
	time_t		t = time(NULL);
	struct tm	tm;

	localtime_r(&t, &tm);
	tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
	tm.tm_mday -= days_ago;
	tm.tm_isdst = -1;
	return ((int64) mktime(&tm) - epoch) * USECS_PER_SEC;
}

/*
 * The same time of the day so many months before now; on the last day of a month that has no
 * such day.
 */
static int64
months_ago(int months)
{
	const int64 now = current_time();
	struct tm	tm;
	int			mday;

	if (!local_tm(now, &tm))
		return now;
	mday = tm.tm_mday;
	tm.tm_mon -= months;
	tm.tm_isdst = -1;
	(void) mktime(&tm);
	if (tm.tm_mday != mday)
		tm.tm_mday = 0;			/* the day before the first */
	tm.tm_isdst = -1;
	return ((int64) mktime(&tm) - epoch) * USECS_PER_SEC;
}

static const Unit *
parse_unit(const char *text, Size len)
{
	for (int i = 0; i < lengthof(units); i++)
	{
		const Size	name_len = strlen(units[i].name);

		if (strncmp(text, units[i].name, name_len) == 0 &&
			(len == name_len || (len == name_len + 1 && text[name_len] == 's')))
			return &units[i];
	}
	return NULL;
}

/* "2 hours ago" or "-2 hours" */
static bool
parse_relative(const char *text, int64 *timestamp)
{
	const bool	negative = *text == '-';
	const char *p = text + (negative ? 1 : 0);
	const Size	digits = strspn(p, "0123456789");
	const Unit *unit;
	Size		len;

	if (digits == 0 || digits > 6)
		return false;
	text = p + digits;
	text += strspn(text, " ");
	len = strspn(text, "abcdefghijklmnopqrstuvwxyz");
	unit = parse_unit(text, len);
	if (unit == NULL || (unit->months > 0 && digits > 4))
		return false;
	text += len;
	text += strspn(text, " ");
	if (negative ? *text != '\0' : strcmp(text, "ago") != 0)
		return false;
	*timestamp = unit->months > 0 ? months_ago(unit->months * atoi(p)) :
		current_time() - unit->usecs * atoi(p);
	return true;
}

bool
parse_time_option(const char *text, int64 *timestamp)
{
	int			offset;
	bool		has_offset;

	if (strcmp(text, "now") == 0)
		*timestamp = current_time();
	else if (strcmp(text, "today") == 0)
		*timestamp = midnight(0);
	else if (strcmp(text, "yesterday") == 0)
		*timestamp = midnight(1);
	else if (paq_time_parse(text, strlen(text), timestamp, &offset, &has_offset))
	{
		if (!has_offset)
			*timestamp = local_time(*timestamp);
	}
	else
		return parse_relative(text, timestamp);
	return true;
}
