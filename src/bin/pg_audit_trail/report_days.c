/*-------------------------------------------------------------------------
 *
 * report_days.c
 *		Days, weeks, months.
 *
 * There are so few spans that all of them are shown, whatever the trail: if there are too
 * many days, weeks, months or years are, or several years together.  Spans without a
 * record are shown too, for silence is what an auditor looks for.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/report.h"


/* Most spans of each unit, in its order */
static const int max_spans[] = {100, 105, 240, 240};

/* Days since 1970-01-01, of the Gregorian calendar */
int32
day_of_date(const struct tm *date)
{
	/* years begin in March, so that a leap day is the last one */
	const int	month = (date->tm_mon + 10) % 12;
	const int	year = date->tm_year + 1900 - (date->tm_mon < 2 ? 1 : 0);

	return year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 +
		date->tm_mday - 1 - 719468;
}

static struct tm
date_of_day(int32 day)
{
	const time_t t = (time_t) day * 24 * 60 * 60;
	struct tm	result;

	if (gmtime_r(&t, &result) == NULL)
		memset(&result, 0, sizeof(result));
	return result;
}

/* In which span the day is; they are numbered without gaps. */
static int
span_number(const Spans *spans, int32 day)
{
	const struct tm date = date_of_day(day);

	switch (spans->unit)
	{
		case UNIT_DAY:
			return day;
		case UNIT_WEEK:
			/* from Monday on; 1970-01-01 was a Thursday, and this is never negative */
			return (day + 3 + 7 * 200000) / 7;
		case UNIT_MONTH:
			return date.tm_year * 12 + date.tm_mon;
		case UNIT_YEARS:
			break;
	}
	return (date.tm_year + 1900) / spans->years;
}

static void
name_span(const Spans *spans, Span *span, int number)
{
	struct tm	date;

	switch (spans->unit)
	{
		case UNIT_DAY:
			date = date_of_day(number);
			strftime(span->name, sizeof(span->name), "%Y-%m-%d", &date);
			break;
		case UNIT_WEEK:
			date = date_of_day((number - 200000) * 7 - 3);
			strftime(span->name, sizeof(span->name), "%Y-%m-%d", &date);
			break;
		case UNIT_MONTH:
			/* before 1900 it is negative */
			number += 1900 * 12;
			snprintf(span->name, sizeof(span->name), "%04d-%02d", number / 12, number % 12 + 1);
			break;
		case UNIT_YEARS:
			snprintf(span->name, sizeof(span->name), "%04d", number * spans->years);
			break;
	}
}

static int32
day_of_counter(const Counter *counter)
{
	int32		day;

	memcpy(&day, counter->part[0].data, sizeof(day));
	return day;
}

/* Find the unit, and how many spans there are from the first day to the last. */
static void
choose_unit(Spans *spans, int32 first, int32 last)
{
	for (spans->unit = UNIT_DAY, spans->years = 1;; spans->unit++)
	{
		spans->count = span_number(spans, last) - span_number(spans, first) + 1;
		if (spans->unit == UNIT_YEARS || spans->count <= max_spans[spans->unit])
			break;
	}
	spans->years = (spans->count + max_spans[UNIT_YEARS] - 1) / max_spans[UNIT_YEARS];
	spans->count = span_number(spans, last) - span_number(spans, first) + 1;
}

/* Spans from the table of days; none if that is empty. */
void
spans_make(Spans *spans, const CounterTable *days)
{
	int			count;
	Counter   **list = counters_list(days, &count);
	int32		first = PG_INT32_MAX;
	int32		last = PG_INT32_MIN;
	int			start;

	memset(spans, 0, sizeof(Spans));
	for (int i = 0; i < count; i++)
	{
		first = Min(first, day_of_counter(list[i]));
		last = Max(last, day_of_counter(list[i]));
	}
	if (count > 0)
	{
		choose_unit(spans, first, last);
		start = span_number(spans, first);
		spans->span = checked_alloc(spans->count * sizeof(Span));
		for (int i = 0; i < spans->count; i++)
			name_span(spans, &spans->span[i], start + i);
		for (int i = 0; i < count; i++)
		{
			Span	   *span = &spans->span[span_number(spans, day_of_counter(list[i])) - start];

			span->records += list[i]->records;
			span->failures += list[i]->failures;
		}
	}
	free(list);
}
