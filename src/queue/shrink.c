/*-------------------------------------------------------------------------
 *
 * shrink.c
 *		Making records fit that are too large: for the ring, or for the room that
 *		is left in a slot.
 *
 * Texts go to a spill file, or are cut.  Works on what a record is going to be
 * encoded from.
 *
 * Must not raise.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "queue/queue_internal.h"

int			paq_text_errno = 0;

/* Shorten the text by what the record is longer than max, and say so. */
static void
cut_text(PaqText *text, uint32 size, uint32 max, PaqRecordHeader *header)
{
	if (text->data == NULL || size <= max)
		return;
	text->len -= Min(size - max, text->len);
	header->flags |= PAQ_RECORD_CUT;
}

/*
 * Shorten the texts that can be long until the record has at most max bytes, or
 * they are gone; header says so then.
 */
void
paq_texts_cut(PaqText *statement, const PaqSessionBlock *session, uint32 max,
			  PaqRecordHeader *header)
{
	static const PaqField fields[] = {
		PAQ_FIELD_STATEMENT, PAQ_FIELD_OBJECT_NAME, PAQ_FIELD_OLD_VALUE,
		PAQ_FIELD_NEW_VALUE
	};

	for (int i = 0; i < lengthof(fields); i++)
	{
		/* A spill file has that one. */
		if (fields[i] == PAQ_FIELD_STATEMENT &&
			(header->flags & PAQ_RECORD_SPILLED) != 0)
			continue;
		cut_text(&statement[fields[i] - PAQ_NSESSION_FIELDS],
				 paq_record_size(header->flags, session, statement), max,
				 header);
	}
}

/*
 * Make a record fit that has more than max bytes, which are no more than the ring
 * takes: texts go to a spill file, named by name; if that fails, they are cut, and
 * paq_text_errno says why.
 */
void
paq_texts_shrink(PaqRecordHeader *header, const PaqSessionBlock *session,
				 PaqText *statement, uint32 max, char *name)
{
	PaqText    *text = &statement[PAQ_FIELD_STATEMENT - PAQ_NSESSION_FIELDS];
	PaqText    *parameter = &statement[PAQ_FIELD_PARAMETER - PAQ_NSESSION_FIELDS];
	PaqText    *spill = &statement[PAQ_FIELD_SPILL - PAQ_NSESSION_FIELDS];

	if (text->data == NULL && parameter->data == NULL)
	{
		/* There is nothing that a file could have. */
	}
	else if (paq_spill_write(name, PAQ_SPILL_NAME_LEN, text, parameter))
	{
		header->flags |= PAQ_RECORD_SPILLED;
		spill->data = name;
		spill->len = strlen(name);
	}
	else
	{
		paq_text_errno = errno;
		if (parameter->data != NULL)
		{
			paq_set_text(statement, PAQ_FIELD_PARAMETER, NULL);
			header->flags |= PAQ_RECORD_CUT;
		}
		cut_text(text, paq_record_size(header->flags, session, statement), max,
				 header);
	}
	paq_texts_cut(statement, session, paq_ring_max_record(), header);
}
