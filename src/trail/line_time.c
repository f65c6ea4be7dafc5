/*-------------------------------------------------------------------------
 *
 * line_time.c
 *		Times of a line of the trail, see line.h.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "datatype/timestamp.h"
#include "trail/line.h"

/* Highest year that is read: a timestamp of PostgreSQL's can have it. */
#define MAX_YEAR	294276

/* What is left of the text */
typedef struct TimeText
{
	const char *p;
	const char *end;
} TimeText;

static bool
take(TimeText *text, char c)
{
	if (text->p == text->end || *text->p != c)
		return false;
	text->p++;
	return true;
}

/* A number of at least min digits, and at most max; false if there is none. */
static bool
take_number(TimeText *text, int min, int max, int *number)
{
	int			digits = 0;

	*number = 0;
	for (; digits < max && text->p < text->end && *text->p >= '0' && *text->p <= '9';
		 digits++)
		*number = *number * 10 + (*text->p++ - '0');
	return digits >= min;
}

/* A part of a time of two digits, up to that value */
static bool
take_part(TimeText *text, int max, int *number)
{
	return take_number(text, 2, 2, number) && *number <= max;
}

static int
days_of_month(int year, int month)
{
	static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	const bool	leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return month == 2 && leap ? 29 : days[month - 1];
}

/*
 * Days from 2000-01-01.  A year is made to begin with March, so that the day which some
 * years lack is its last; then all months but the last are 153 days in five.
 */
static int64
days_from_2000(int year, int month, int day)
{
	const int64 y = month > 2 ? year : year - 1;
	const int	m = month > 2 ? month - 3 : month + 9;

	return y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 730426;
}

static bool
take_date(TimeText *text, int64 *timestamp)
{
	int			year;
	int			month;
	int			day;

	if (!take_number(text, 4, 6, &year) || year < 1 || year > MAX_YEAR ||
		!take(text, '-') || !take_part(text, 12, &month) || month < 1 ||
		!take(text, '-') || !take_part(text, 31, &day) || day < 1 ||
		day > days_of_month(year, month))
		return false;
	*timestamp = days_from_2000(year, month, day) * USECS_PER_DAY;
	return true;
}

/* hh:mm, hh:mm:ss or with a fraction, of which six digits count */
static bool
take_time(TimeText *text, int64 *timestamp)
{
	int			hour;
	int			minute;
	int			second = 0;
	int			usec = 0;
	int			scale = USECS_PER_SEC / 10;

	if (!take_part(text, 24, &hour) || !take(text, ':') || !take_part(text, 59, &minute))
		return false;
	if (take(text, ':') && !take_part(text, 60, &second))
		return false;
	if (take(text, '.'))
	{
		if (text->p == text->end || *text->p < '0' || *text->p > '9')
			return false;
		for (; text->p < text->end && *text->p >= '0' && *text->p <= '9'; text->p++)
		{
			usec += scale * (*text->p - '0');
			scale /= 10;
		}
	}
	*timestamp += (int64) hour * USECS_PER_HOUR + (int64) minute * USECS_PER_MINUTE +
		(int64) second * USECS_PER_SEC + usec;
	return true;
}

/* Z, or + or - with hh, hh:mm, hhmm or hh:mm:ss */
static bool
take_offset(TimeText *text, int *offset)
{
	const bool	west = text->p < text->end && *text->p == '-';
	int			hour;
	int			minute = 0;
	int			second = 0;

	*offset = 0;
	if (take(text, 'Z'))
		return true;
	if (!take(text, '+') && !take(text, '-'))
		return false;
	if (!take_part(text, 24, &hour))
		return false;
	if ((take(text, ':') || text->p < text->end) && !take_part(text, 59, &minute))
		return false;
	if (take(text, ':') && !take_part(text, 59, &second))
		return false;
	*offset = hour * SECS_PER_HOUR + minute * SECS_PER_MINUTE + second;
	if (west)
		*offset = -*offset;
	return true;
}

bool
paq_time_parse(const char *text, Size len, int64 *timestamp, int *offset, bool *has_offset)
{
	TimeText	rest = {text, text + len};

	*offset = 0;
	*has_offset = false;
	if (!take_date(&rest, timestamp))
		return false;
	if (rest.p == rest.end)
		return true;
	if (!(take(&rest, 'T') || take(&rest, ' ')) || !take_time(&rest, timestamp))
		return false;
	if (rest.p < rest.end)
	{
		(void) take(&rest, ' ');
		if (!take_offset(&rest, offset))
			return false;
		*has_offset = true;
		*timestamp -= *offset * USECS_PER_SEC;
	}
	return rest.p == rest.end;
}

bool
paq_line_time(const PaqValue *value, int64 *timestamp)
{
	int			offset;
	bool		has_offset;

	return value->kind == PAQ_VALUE_STRING &&
		paq_time_parse(value->data, value->len, timestamp, &offset, &has_offset) &&
		has_offset;
}
