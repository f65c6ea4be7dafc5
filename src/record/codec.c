/*-------------------------------------------------------------------------
 *
 * codec.c
 *		Records to bytes and back (layout: record.h).
 *
 * Guarantees: encoding writes exactly paq_record_size() bytes; decoding
 * accepts nothing whose lengths do not add up, whatever the bytes are.
 * Must not allocate or raise: both run where neither is allowed.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "mb/pg_wchar.h"
#include "record/record.h"

/* Is the field's text in the spill file, if the record has one? */
static inline bool
is_spilled_field(int field)
{
	return field == PAQ_FIELD_STATEMENT || field == PAQ_FIELD_PARAMETER;
}

/*
 * Size in bytes of a record with these flags and fields; those in a spill
 * file do not count.  statement has PAQ_NSTATEMENT_FIELDS entries, the first
 * being PAQ_FIELD_COMMAND; the length of one that is null is 0.  The sum of
 * the fields' lengths must be below 2^32; PostgreSQL's 1 GB limits on a
 * statement and on a parameter list keep it there.
 */
uint32
paq_record_size(uint32 flags, const PaqSessionBlock *session,
				const PaqText *statement)
{
	uint32		size = PAQ_RECORD_HEADER_SIZE + session->length;

	for (int i = 0; i < PAQ_NSTATEMENT_FIELDS; i++)
	{
		Assert(statement[i].data != NULL || statement[i].len == 0);
		size += statement[i].len;
	}
	if (unlikely(flags & PAQ_RECORD_SPILLED))
		size -= statement[PAQ_FIELD_STATEMENT - PAQ_NSESSION_FIELDS].len +
			statement[PAQ_FIELD_PARAMETER - PAQ_NSESSION_FIELDS].len;
	return size;
}

/*
 * Encode into dst, which has space for paq_record_size() bytes.  The header's
 * version, length, nfields and field_len are set here; everything else is the
 * caller's.  With PAQ_RECORD_SPILLED in the header's flags, the lengths of
 * the two spilled fields are noted, but their bytes are not copied.
 */
void
paq_record_encode(char *dst, const PaqRecordHeader *header,
				  const PaqSessionBlock *session, const PaqText *statement)
{
	PaqRecordHeader *out = (PaqRecordHeader *) dst;
	char	   *p = dst + PAQ_RECORD_HEADER_SIZE;

	memcpy(out, header, offsetof(PaqRecordHeader, field_len));
	out->version = PAQ_RECORD_VERSION;
	out->nfields = PAQ_NFIELDS;
	memcpy(out->field_len, session->field_len, sizeof(session->field_len));
	memcpy(p, session->data, session->length);
	p += session->length;

	for (int i = 0; i < PAQ_NSTATEMENT_FIELDS; i++)
	{
		const PaqText *text = &statement[i];
		int			field = PAQ_NSESSION_FIELDS + i;

		if (text->data == NULL)
		{
			out->field_len[field] = PAQ_NULL_LEN;
			continue;
		}
		out->field_len[field] = text->len;
		if ((header->flags & PAQ_RECORD_SPILLED) && is_spilled_field(field))
			continue;
		memcpy(p, text->data, text->len);
		p += text->len;
	}
	out->length = p - dst;
}

/*
 * Add len bytes of message to an encoded record whose message is null; behind
 * the record there must be space for them.
 */
void
paq_record_add_message(char *record, const char *message, uint32 len)
{
	PaqRecordHeader *header = (PaqRecordHeader *) record;

	memcpy(record + header->length, message, len);
	header->field_len[PAQ_FIELD_MESSAGE] = len;
	header->length += len;
}

/*
 * Header of a record that marks a gap: count records (-1 if that is not known)
 * are missing that were made between from and to (0 if unknown).  What
 * happened to them goes into PAQ_FIELD_MESSAGE, in ASCII.
 */
void
paq_record_init_gap(PaqRecordHeader *header, TimestampTz from, TimestampTz to,
					int64 count)
{
	memset(header, 0, sizeof(*header));
	header->version = PAQ_RECORD_VERSION;
	header->kind = PAQ_KIND_GAP;
	header->audit_class = PAQ_CLASS_MISC;
	header->start_time = from;
	header->end_time = to;
	header->rows = count;
	header->encoding = PG_SQL_ASCII;
	header->stmt_location = -1;
}

/* Header of a record that shows that the worker was there at that time. */
void
paq_record_init_heartbeat(PaqRecordHeader *header, TimestampTz time)
{
	paq_record_init_gap(header, 0, time, -1);
	header->kind = PAQ_KIND_HEARTBEAT;
}

/*
 * Make the header of an older version, with the lengths of its fields, one of this version:
 * what it lacks is null.  As a field that is null has no bytes, those of the others are
 * where this version looks for them, provided that it has these in the same order.
 */
static pg_noinline bool
decode_old_header(const char *lengths, PaqRecordHeader *header)
{
	static const PaqField fields[PAQ_NFIELDS_V2] = {
		PAQ_FIELD_USER, PAQ_FIELD_DATABASE, PAQ_FIELD_REMOTE_HOST, PAQ_FIELD_REMOTE_PORT,
		PAQ_FIELD_APPLICATION, PAQ_FIELD_BACKEND_TYPE, PAQ_FIELD_SESSION_USER,
		PAQ_FIELD_CURRENT_USER, PAQ_FIELD_COMMAND, PAQ_FIELD_OBJECT_TYPE,
		PAQ_FIELD_OBJECT_NAME, PAQ_FIELD_STATEMENT, PAQ_FIELD_PARAMETER, PAQ_FIELD_SPILL,
		PAQ_FIELD_OLD_VALUE, PAQ_FIELD_NEW_VALUE, PAQ_FIELD_VALUE_SOURCE, PAQ_FIELD_MESSAGE
	};

	if (header->version != 2 || header->nfields != PAQ_NFIELDS_V2)
		return false;
	/* In version 2, classes begin at 0. */
	header->audit_class++;
	for (int field = 0; field < PAQ_NFIELDS; field++)
		header->field_len[field] = PAQ_NULL_LEN;
	for (int i = 0; i < PAQ_NFIELDS_V2; i++)
		memcpy(&header->field_len[fields[i]], lengths + i * sizeof(uint32), sizeof(uint32));
	header->nfields = PAQ_NFIELDS;
	return true;
}

/* Read the header, if there is one of a version that can be read. */
static bool
decode_header(const char *data, uint32 len, PaqRecordHeader *header)
{
	const Size	fixed = offsetof(PaqRecordHeader, field_len);

	if (len < paq_record_header_size(data, len))
		return false;
	memcpy(header, data, fixed);
	if (header->length != len)
		return false;
	if (unlikely(header->version != PAQ_RECORD_VERSION))
	{
		if (!decode_old_header(data + fixed, header))
			return false;
	}
	else
		memcpy(header->field_len, data + fixed, sizeof(header->field_len));
	return header->nfields == PAQ_NFIELDS && paq_is_class(header->audit_class);
}

/* Point the fields from "from" to before "to" at their bytes, from *next on. */
static inline bool
decode_fields(PaqRecord *record, int from, int to, const char **next,
			  const char *end)
{
	const char *p = *next;

	for (int field = from; field < to; field++)
	{
		uint32		len = record->header.field_len[field];
		PaqText    *text = &record->field[field];

		if (len == PAQ_NULL_LEN)
		{
			text->data = NULL;
			text->len = 0;
			continue;
		}
		if (len > (Size) (end - p))
			return false;
		text->data = p;
		text->len = len;
		p += len;
	}
	*next = p;
	return true;
}

/* Decode the fields in the spill file; null if they are not in it whole. */
static void
decode_spilled(PaqRecord *record, const char *spill, uint64 spill_len)
{
	for (int field = PAQ_FIELD_STATEMENT; field <= PAQ_FIELD_PARAMETER; field++)
	{
		uint32		len = record->header.field_len[field];
		PaqText    *text = &record->field[field];

		text->data = NULL;
		text->len = 0;
		if (len == PAQ_NULL_LEN)
			continue;
		if (len > spill_len)
		{
			record->header.flags |= PAQ_RECORD_CUT;
			continue;
		}
		text->data = spill;
		text->len = len;
		spill += len;
		spill_len -= len;
	}
}

/*
 * Decode len bytes at data, which need no alignment.  spill and spill_len are
 * the contents of the record's spill file, or NULL and 0: a spilled record's
 * statement and parameters are then null, and it is marked PAQ_RECORD_CUT.
 * *record points into data and spill and has sequence 0.  Returns false, with
 * *record undefined, if the bytes are not a record of a version that can be read.
 */
bool
paq_record_decode(const char *data, uint32 len,
				  const char *spill, uint64 spill_len, PaqRecord *record)
{
	const char *p = data + paq_record_header_size(data, len);
	const char *end = data + len;

	if (!decode_header(data, len, &record->header))
		return false;
	record->sequence = record->series = 0;
	record->part = NULL;
	record->server = NULL;
	if (likely((record->header.flags & PAQ_RECORD_SPILLED) == 0))
		return decode_fields(record, 0, PAQ_NFIELDS, &p, end) && p == end;

	decode_spilled(record, spill, spill ? spill_len : 0);
	return decode_fields(record, 0, PAQ_FIELD_STATEMENT, &p, end) &&
		decode_fields(record, PAQ_FIELD_SPILL, PAQ_NFIELDS, &p, end) &&
		p == end;
}

/*
 * Name of the record's spill file.  Returns false if it has none or if the
 * bytes are not a record.
 */
bool
paq_record_spill_name(const char *data, uint32 len, PaqText *name)
{
	PaqRecord	record;

	if (!decode_header(data, len, &record.header) ||
		(record.header.flags & PAQ_RECORD_SPILLED) == 0 ||
		!paq_record_decode(data, len, NULL, 0, &record))
		return false;
	*name = record.field[PAQ_FIELD_SPILL];
	return name->len > 0;
}

/* Start reading a parameter list; a null field reads as an empty list. */
void
paq_param_begin(PaqParamIter *iter, PaqText params)
{
	iter->next = params.data;
	iter->end = params.data ? params.data + params.len : NULL;
}

/*
 * Next parameter: its length in bytes, or PAQ_PARAM_xxx, and its text.
 * Returns false at the end of the list and where the list is damaged.
 */
bool
paq_param_next(PaqParamIter *iter, int32 *len, const char **value)
{
	if (iter->end - iter->next < (ptrdiff_t) sizeof(int32))
		return false;
	memcpy(len, iter->next, sizeof(int32));
	*len = paq_param_length(*len);
	iter->next += sizeof(int32);
	*value = iter->next;
	if (*len < 0)
		return true;
	if (*len > iter->end - iter->next)
		return false;
	iter->next += *len;
	return true;
}

/*
 * Next setting of a list whose elements are names and values; a value may be null.
 * Returns false at the end of the list: a setting that is not there whole, because
 * the list had to be cut, is no part of it.
 */
bool
paq_setting_next(PaqParamIter *iter, PaqText *name, PaqText *value)
{
	int32		name_len;
	int32		value_len;

	if (!paq_param_next(iter, &name_len, &name->data) || name_len < 0 ||
		!paq_param_next(iter, &value_len, &value->data))
		return false;
	name->len = name_len;
	value->len = Max(value_len, 0);
	if (value_len < 0)
		value->data = NULL;
	return true;
}
