/*-------------------------------------------------------------------------
 *
 * record.c
 *		Records in the queue: bytes become a record, or are refused.
 *
 * An input's first byte says how many bytes at its end are the record's spill file,
 * the second whether the length in the header is made the right one, which a fuzzer would
 * seldom find.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "record/record.h"

/* Returns true if a text is within these bytes. */
static bool
is_within(const char *text, Size text_len, const char *data, Size len)
{
	return text >= data && text_len <= len && (Size) (text - data) <= len - text_len;
}

static void
read_lists(const PaqRecord *record)
{
	for (int field = 0; field < PAQ_NFIELDS; field++)
	{
		const PaqText list = record->field[field];
		PaqParamIter iter;
		PaqText		name;
		PaqText		setting;
		const char *value;
		int32		len;

		paq_param_begin(&iter, list);
		while (paq_param_next(&iter, &len, &value))
			must(is_within(value, Max(len, 0), list.data, list.len));
		paq_param_begin(&iter, list);
		while (paq_setting_next(&iter, &name, &setting))
			must(is_within(name.data, name.len, list.data, list.len) &&
				 (setting.data == NULL ||
				  is_within(setting.data, setting.len, list.data, list.len)));
	}
}

/* Encoded again, a record of this version has the same bytes. */
static void
encode_again(const PaqRecord *record, const char *data, uint32 len)
{
	const PaqText *statement = &record->field[PAQ_NSESSION_FIELDS];
	PaqSessionBlock session = {.data = data + PAQ_RECORD_HEADER_SIZE};
	char	   *again;

	memcpy(session.field_len, record->header.field_len, sizeof(session.field_len));
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		session.length += record->field[i].len;
	must(paq_record_size(record->header.flags, &session, statement) == len);
	again = malloc(len);
	paq_record_encode(again, &record->header, &session, statement);
	must(memcmp(again, data, len) == 0);
	free(again);
}

void
fuzz_record(const char *data, Size len)
{
	Size		spill_len;
	char	   *spill;
	char	   *bytes;
	PaqRecord	record;
	PaqText		name;
	uint32		length;

	if (len < 2)
		return;
	spill_len = Min((unsigned char) data[0], len - 2);
	length = len - 2 - spill_len;
	bytes = exact_copy(data + 2, length);
	spill = exact_copy(data + len - spill_len, spill_len);
	if (data[1] & 1 && length >= PAQ_RECORD_HEADER_SIZE)
		memcpy(bytes + offsetof(PaqRecordHeader, length), &length, sizeof(length));

	if (paq_record_decode(bytes, length, spill, spill_len, &record))
	{
		for (int field = 0; field < PAQ_NFIELDS; field++)
		{
			const PaqText text = record.field[field];

			must(text.data != NULL || text.len == 0);
			must(text.data == NULL || is_within(text.data, text.len, bytes, length) ||
				 is_within(text.data, text.len, spill, spill_len));
		}
		must(paq_is_class(record.header.audit_class));
		read_lists(&record);
		if (record.header.version == PAQ_RECORD_VERSION &&
			(record.header.flags & PAQ_RECORD_SPILLED) == 0)
			encode_again(&record, bytes, length);
	}
	if (paq_record_spill_name(bytes, length, &name))
		must(is_within(name.data, name.len, bytes, length));
	free(bytes);
	free(spill);
}
