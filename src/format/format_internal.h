/*-------------------------------------------------------------------------
 *
 * format_internal.h
 *		What the formats share; see text.c.
 *
 * The worker formats records, a backend by paq_format_message(), and programs, each in its
 * own process: nothing here is shared or locked.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_FORMAT_INTERNAL_H
#define PAQ_FORMAT_INTERNAL_H

#include "format/format.h"

#include "datatype/timestamp.h"

/* Size of the text of a 64-bit number, sign included */
#define PAQ_INT_TEXT	20

/* Size of "<hex of 64 bits>.<hex of 32 bits>" */
#define PAQ_SESSION_ID_TEXT	25

/* Size of a time as the server log has it, with any abbreviation of a time zone */
#define PAQ_TIME_TEXT	(32 + PAQ_ZONE_NAME_LEN)

/* What stands for a parameter that was too long, as with pgaudit */
#define PAQ_LONG_PARAMETER	"<long param suppressed>"

/* A time stamp, split as the formats need it */
typedef struct PaqTime
{
	int64		second;			/* since 1970 */
	int			usec;			/* 0 to 999999 */
} PaqTime;

/* text.c */
extern char *paq_buffer_reserve(PaqBuffer *buf, Size len);
extern void paq_buffer_write(PaqBuffer *buf, const char *data, Size len);
extern void paq_buffer_puts(PaqBuffer *buf, const char *str);
extern void paq_buffer_int(PaqBuffer *buf, int64 value);
extern void paq_buffer_fill(PaqBuffer *buf, char c, int count);
extern int	paq_uint_text(char *dst, uint64 value);
extern PaqTime paq_time_split(int64 timestamp);
extern int	paq_time_log(char *dst, const PaqServer *server, int64 timestamp, bool millis);
extern int	paq_time_iso(char *dst, const PaqServer *server, int64 timestamp);
extern int64 paq_record_log_time(const PaqRecord *record);
extern bool paq_record_has_client(const PaqRecord *record);
extern bool paq_record_is_local(const PaqRecord *record);
extern bool paq_record_has_outcome(const PaqRecordHeader *header);
extern int	paq_session_id_text(char *dst, const PaqRecord *record);
extern int	paq_vxid_text(char *dst, const PaqRecordHeader *header);
extern const char *paq_sqlstate_text(int sqlstate);

/* pgaudit.c */
extern void paq_put_escaped(PaqBuffer *buf, const char *data, Size len,
							int nquotes, bool tabs);

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

static inline void
paq_buffer_putc(PaqBuffer *buf, char c)
{
	paq_put(buf, &c, 1);
}

/* paq_uint_text() for a signed value */
static inline int
paq_int_text(char *dst, int64 value)
{
	if (likely(value >= 0))
		return paq_uint_text(dst, value);
	*dst = '-';
	return 1 + paq_uint_text(dst + 1, -(uint64) value);
}

/* Why the record has no text; NULL if nobody left it out. */
static inline const char *
paq_omitted_statement(uint32 flags)
{
	if (flags & PAQ_RECORD_STMT_NOT_LOGGED)
		return "not logged";
	if (flags & PAQ_RECORD_STMT_PREVIOUS)
		return "previously logged";
	return NULL;
}

/* Likewise of parameters: they go with their statement, or by themselves. */
static inline const char *
paq_omitted_params(uint32 flags)
{
	const char *reason = paq_omitted_statement(flags);

	if (reason == NULL && (flags & PAQ_RECORD_PARAM_NOT_LOGGED))
		reason = "not logged";
	if (reason == NULL && (flags & PAQ_RECORD_CONSTANTS))
		reason = "masked";
	return reason;
}

#endif							/* PAQ_FORMAT_INTERNAL_H */
