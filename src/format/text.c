/*-------------------------------------------------------------------------
 *
 * text.c
 *		What the formats share: appending to a PaqBuffer, numbers and times as
 *		text, and what more than one format derives from a record.
 *
 * Asking the time zone library costs more than all the rest of a record, and
 * nearly all records of a moment share their second.  So the text of a second
 * is made once and kept; in a small table, so that the start times of many
 * sessions find a place beside the current second.  With another generation of
 * the server it is made anew.
 *
 * Guarantees: never writes outside of the buffer; bytes arrive in order, or,
 * from the first failure of the drain callback on, not at all.  A buffer
 * without a drain callback fails when it is full.
 * Must not allocate or raise; these run several times for every record.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "format/format_internal.h"


#define NSECONDS	256			/* a power of 2 */

/* Space for a second's text, "2026-11-20 10:11:12 UTC" */
#define SECOND_TEXT	(PAQ_TIME_TEXT - 8)

typedef struct Second
{
	int64		second;
	uint64		generation;		/* of the server; 0: unused entry */
	int			date_len;		/* of "2026-11-20 10:11:12" in text */
	int			text_len;		/* of all of it: " UTC" follows the date */
	int			offset_len;
	char		offset[12];		/* "+00:00" */
	char		text[SECOND_TEXT];
} Second;

/* Bytes of text that hold the date, even in a year of 10 digits */
#define DATE_SIZE	32

static Second seconds[NSECONDS];

/* All numbers from 00 to 99, so that one division gives two digits */
static const char digit_pairs[] =
"00010203040506070809" "10111213141516171819"
"20212223242526272829" "30313233343536373839"
"40414243444546474849" "50515253545556575859"
"60616263646566676869" "70717273747576777879"
"80818283848586878889" "90919293949596979899";

/* ----------
 * Appending
 * ----------
 */

/* Let the owner make space; false if there is none. */
static bool
make_space(PaqBuffer *buf)
{
	if (buf->failed)
		return false;
	if (buf->drain == NULL || !buf->drain(buf) || buf->used >= buf->size)
	{
		buf->failed = true;
		return false;
	}
	return true;
}

/*
 * Where the next len bytes can be written in a row; the caller adds to "used"
 * what it has written.  The buffer's size must not be less than len: after a
 * failure the place is there as well, but what is in the buffer is lost.
 */
char *
paq_buffer_reserve(PaqBuffer *buf, Size len)
{
	Assert(len <= buf->size);
	while (unlikely(len > buf->size - buf->used))
		if (!make_space(buf))
			buf->used = 0;
	return buf->data + buf->used;
}

/* Append len bytes. */
void
paq_buffer_write(PaqBuffer *buf, const char *data, Size len)
{
	if (buf->failed)
		return;
	while (len > buf->size - buf->used)
	{
		Size		space = buf->size - buf->used;

		memcpy(buf->data + buf->used, data, space);
		buf->used += space;
		data += space;
		len -= space;
		if (!make_space(buf))
			return;
	}
	memcpy(buf->data + buf->used, data, len);
	buf->used += len;
}

/* Append a C string. */
void
paq_buffer_puts(PaqBuffer *buf, const char *str)
{
	paq_put(buf, str, strlen(str));
}

/* Append the same byte count times. */
void
paq_buffer_fill(PaqBuffer *buf, char c, int count)
{
	while (count-- > 0)
		paq_buffer_putc(buf, c);
}

static inline void
put_digit_pair(char *dst, uint32 value)
{
	memcpy(dst, digit_pairs + 2 * value, 2);
}

/* See paq_uint_text(); value is below 10000. */
static inline int
short_uint_text(char *dst, uint32 value)
{
	if (value >= 1000)
	{
		put_digit_pair(dst, value / 100);
		put_digit_pair(dst + 2, value % 100);
		return 4;
	}
	if (value >= 100)
	{
		*dst = '0' + value / 100;
		put_digit_pair(dst + 1, value % 100);
		return 3;
	}
	if (value >= 10)
	{
		put_digit_pair(dst, value);
		return 2;
	}
	*dst = '0' + value;
	return 1;
}

/*
 * Decimal text of value into dst, not terminated; returns its length.  Most
 * numbers of a record are short.  pg_ulltoa_n() takes no advantage of that:
 * json would take a fifth more instructions.
 */
int
paq_uint_text(char *dst, uint64 value)
{
	uint32		last;
	int			len;

	if (value < 10000)
		return short_uint_text(dst, value);
	last = value % 10000;
	len = paq_uint_text(dst, value / 10000);
	put_digit_pair(dst + len, last / 100);
	put_digit_pair(dst + len + 2, last % 100);
	return len + 4;
}

/* Append a number in decimal, in place if there is certainly space for it. */
void
paq_buffer_int(PaqBuffer *buf, int64 value)
{
	char		text[PAQ_INT_TEXT];

	if (likely(buf->size - buf->used >= sizeof(text)))
		buf->used += paq_int_text(buf->data + buf->used, value);
	else
		paq_put(buf, text, paq_int_text(text, value));
}

/* ----------
 * Times
 * ----------
 */

/* Split a TimestampTz. */
PaqTime
paq_time_split(int64 timestamp)
{
	const int64 epoch = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
	PaqTime		result;
	int64		second = timestamp / USECS_PER_SEC;
	int			usec = timestamp % USECS_PER_SEC;

	if (usec < 0)
	{
		usec += USECS_PER_SEC;
		second--;
	}
	result.second = second + epoch;
	result.usec = usec;
	return result;
}

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

/* The date of so many days since 1970-01-01 */
static void
split_days(int64 days, int64 *year, int *month, int *day)
{
	/*
	 * Years begin in March here, so that the day that some years lack is their last one.  Then
	 * an era of 400 years has 146,097 days, and five months from March on have 153.
	 */
	const int64 from_march = days + 719468;
	const int64 era = (from_march >= 0 ? from_march : from_march - 146096) / 146097;
	const int	of_era = (int) (from_march - era * 146097);
	const int	year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	const int	of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	const int	month_of_year = (5 * of_year + 2) / 153;

	*day = of_year - (153 * month_of_year + 2) / 5 + 1;
	*month = month_of_year < 10 ? month_of_year + 3 : month_of_year - 9;
	*year = era * 400 + year_of_era + (*month <= 2 ? 1 : 0);
}

static pg_noinline void
fill_second(Second *entry, const PaqServer *server, int64 second)
{
	char		zone[PAQ_ZONE_NAME_LEN];
	const int	offset = server->offset_at(server, second, zone);
	const int64 local = second + offset;
	int			of_day = local % SECS_PER_DAY;
	int64		year;
	int			month;
	int			day;

	if (of_day < 0)
		of_day += SECS_PER_DAY;
	split_days((local - of_day) / SECS_PER_DAY, &year, &month, &day);
	entry->second = second;
	entry->generation = server->generation;
	entry->date_len = snprintf(entry->text, sizeof(entry->text),
							   "%04lld-%02d-%02d %02d:%02d:%02d", (long long) year, month, day,
							   of_day / SECS_PER_HOUR, of_day / SECS_PER_MINUTE % MINS_PER_HOUR,
							   of_day % SECS_PER_MINUTE);
	entry->text_len = entry->date_len +
		snprintf(entry->text + entry->date_len, sizeof(entry->text) - entry->date_len,
				 " %s", zone);
	entry->offset_len = offset_text(entry->offset, sizeof(entry->offset), offset);
}

static inline const Second *
lookup_second(const PaqServer *server, int64 second)
{
	Second	   *entry = &seconds[(uint64) second & (NSECONDS - 1)];

	if (unlikely(entry->second != second || entry->generation != server->generation))
		fill_second(entry, server, second);
	return entry;
}

/*
 * As the server log has it, "2026-11-20 10:11:12 UTC" or, with millis,
 * "2026-11-20 10:11:12.123 UTC".  dst has space for PAQ_TIME_TEXT bytes;
 * returns the length, nothing is terminated.
 */
int
paq_time_log(char *dst, const PaqServer *server, int64 timestamp, bool millis)
{
	const PaqTime time = paq_time_split(timestamp);
	const Second *entry = lookup_second(server, time.second);
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
 * As ISO 8601 has it, "2026-11-20T10:11:12.123456+00:00".  dst has space for
 * 64 bytes, all of which may be written to; returns the length.
 */
int
paq_time_iso(char *dst, const PaqServer *server, int64 timestamp)
{
	PaqTime		time = paq_time_split(timestamp);
	const Second *entry = lookup_second(server, time.second);
	uint32		usec = time.usec;
	char	   *p = dst + entry->date_len;

	memcpy(dst, entry->text, DATE_SIZE);
	p[-9] = 'T';				/* before hh:mm:ss */
	p[0] = '.';
	put_digit_pair(p + 1, usec / 10000);
	put_digit_pair(p + 3, usec / 100 % 100);
	put_digit_pair(p + 5, usec % 100);
	memcpy(p + 7, entry->offset, sizeof(entry->offset));
	return p + 7 + entry->offset_len - dst;
}

/* ----------
 * Records
 * ----------
 */

/*
 * The time a record is dated: its end, or, if nobody saw that, its start.
 * 0 is "unknown" in all of a record's times.
 */
int64
paq_record_log_time(const PaqRecord *record)
{
	return record->header.end_time != 0 ?
		record->header.end_time : record->header.start_time;
}

/* Did a client's session make the record (or some background process)? */
bool
paq_record_has_client(const PaqRecord *record)
{
	return record->field[PAQ_FIELD_REMOTE_HOST].data != NULL;
}

/* Is that client connected through a Unix-domain socket? */
bool
paq_record_is_local(const PaqRecord *record)
{
	const PaqText *host = &record->field[PAQ_FIELD_REMOTE_HOST];

	return host->len == 7 && memcmp(host->data, "[local]", 7) == 0;
}

/* Hexadecimal text of value into dst, not terminated; returns its length. */
static int
hex_text(char *dst, uint64 value)
{
	int			len = 1;

	while (len < 16 && (value >> (4 * len)) != 0)
		len++;
	for (int i = len - 1; i >= 0; i--)
	{
		dst[i] = "0123456789abcdef"[value & 15];
		value >>= 4;
	}
	return len;
}

/*
 * The session's identifier as in PostgreSQL's %c: its start and its process
 * id, in hexadecimal.  Returns the length, at most PAQ_SESSION_ID_TEXT.
 */
int
paq_session_id_text(char *dst, const PaqRecord *record)
{
	PaqTime		start = paq_time_split(record->header.session_start);
	int			len = hex_text(dst, (uint64) start.second);

	dst[len++] = '.';
	return len + hex_text(dst + len, (uint32) record->header.pid);
}

/*
 * Is the outcome known?  That of a statement which the server's death
 * interrupted is not success, even if nothing else was noted.
 */
bool
paq_record_has_outcome(const PaqRecordHeader *header)
{
	const uint32 unknown = PAQ_RECORD_INTERRUPTED | PAQ_RECORD_NO_OUTCOME;

	return header->kind == PAQ_KIND_AUDIT &&
		(header->sqlstate != 0 || (header->flags & unknown) == 0);
}

uint64
paq_find_sequence(const PaqFormat *format, const char *line, Size len)
{
	Size		start = 0;
	Size		digits;
	bool		is_series;

	while (format->find_number(line, len, &start, &digits, &is_series))
	{
		if (!is_series)
			return strtou64(line + start, NULL, 10);
		start += digits;
	}
	return 0;
}

/*
 * The virtual transaction id, "3/1234", not terminated; returns its length, 0 for
 * what is not a session.
 */
int
paq_vxid_text(char *dst, const PaqRecordHeader *header)
{
	int			len;

	if (header->kind != PAQ_KIND_AUDIT || header->vxid_proc < 0)
		return 0;
	len = paq_int_text(dst, header->vxid_proc);
	dst[len++] = '/';
	return len + paq_uint_text(dst + len, header->vxid_lxid);
}

/* The five characters of an outcome as by MAKE_SQLSTATE, valid until the next call */
const char *
paq_sqlstate_text(int sqlstate)
{
	static char text[6];

	for (int i = 0; i < 5; i++)
		text[i] = ((sqlstate >> (6 * i)) & 0x3F) + '0';
	return text;
}
