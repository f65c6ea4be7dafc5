/*-------------------------------------------------------------------------
 *
 * format_internal.h
 *		What the formats share: fast appending, time stamps, line prefixes.
 *
 * Only the worker (and, for paq_format_message(), a backend) formats records,
 * each in its own process: nothing here is shared or locked.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_FORMAT_INTERNAL_H
#define PAQ_FORMAT_INTERNAL_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "format/format.h"
#include "pgtime.h"

/* Room for the text of a 64-bit number, sign included */
#define PAQ_INT_TEXT	20

/* Room for "<hex of 64 bits>.<hex of 32 bits>" */
#define PAQ_SESSION_ID_TEXT	25

/* Room for PaqSecond's text and for what is put into it */
#define PAQ_SECOND_TEXT	128
#define PAQ_TIME_TEXT	(PAQ_SECOND_TEXT + 8)

/*
 * Room for a time as ISO 8601 has it.  The year has up to 10 digits; the rest
 * is because bytes are copied in a fixed number, which is faster.
 */
#define PAQ_ISO_TEXT	64

/* A time stamp, split as the formats need it */
typedef struct PaqTime
{
	pg_time_t	second;			/* since 1970 */
	int			usec;			/* 0 to 999999 */
} PaqTime;

/* Append len bytes; inlined because most pieces are short and fit. */
static inline void
paq_put(PaqBuffer *buf, const char *data, Size len)
{
	if (likely(buf->size - buf->used >= len))
	{
		memcpy(buf->data + buf->used, data, len);
		buf->used += len;
	}
	else
		paq_buffer_write(buf, data, len);
}

/* Append a string literal. */
#define PAQ_PUT_LITERAL(buf, s)	paq_put(buf, "" s "", sizeof(s) - 1)

/* All numbers from 00 to 99, so that one division gives two digits */
extern const char paq_digit_pairs[];

static inline void
paq_digit_pair(char *dst, uint32 value)
{
	memcpy(dst, paq_digit_pairs + 2 * value, 2);
}

/* Split a TimestampTz. */
static inline PaqTime
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

/* buffer.c */
extern char *paq_buffer_reserve(PaqBuffer *buf, Size len);
extern int	paq_uint_text(char *dst, uint64 value);
extern int	paq_hex_text(char *dst, uint64 value);
extern void paq_buffer_uint(PaqBuffer *buf, uint64 value);
extern void paq_buffer_fill(PaqBuffer *buf, char c, int count);

/* paq_uint_text() for a signed value */
static inline int
paq_int_text(char *dst, int64 value)
{
	if (likely(value >= 0))
		return paq_uint_text(dst, value);
	*dst = '-';
	return 1 + paq_uint_text(dst + 1, -(uint64) value);
}

/* timestamp.c */
extern int	paq_time_log(char *dst, PaqTime time, bool millis);
extern int	paq_time_iso(char *dst, int64 timestamp);

/* fields.c */
extern int64 paq_record_log_time(const PaqRecord *record);
extern bool paq_record_has_client(const PaqRecord *record);
extern bool paq_record_is_local(const PaqRecord *record);
extern int	paq_session_id_text(char *dst, const PaqRecord *record);
extern bool paq_record_has_outcome(const PaqRecordHeader *header);
extern void paq_sqlstate_text(char *dst, int sqlstate);

/* pgaudit.c */
extern void paq_put_escaped(PaqBuffer *buf, const char *data, Size len,
							int nquotes, bool tabs);

/* prefix.c */
extern void paq_prefix_write(PaqBuffer *buf, const char *prefix,
							 const PaqRecord *record);

#endif							/* PAQ_FORMAT_INTERNAL_H */
