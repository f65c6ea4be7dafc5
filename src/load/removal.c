/*-------------------------------------------------------------------------
 *
 * removal.c
 *		The record of each removal of a partition or a kept file.
 *
 * Removing evidence leaves evidence: the record of a partition, or a kept file,
 * that will be removed goes through the queue like any other, and the partition or
 * file goes only when the record is flushed, as with files of the trail
 * (drain/).  Nobody waits for the record to be in the table as well: that is the
 * loader's own work.  A partition has one record, however often dropping it is
 * tried: somebody may be reading it.  Only if the loader ends in between, or
 * something older turns up, there will be another one.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "guc.h"
#include "load/load_internal.h"
#include "queue/queue.h"

/* What will be removed, and its record */
static struct
{
	char		object[MAXPGPATH];	/* "": nothing */
	PaqPending *unsent;			/* waits for space in the queue; NULL: it is in */
	uint64		end;			/* position behind it, if it is in the queue */
}			planned;

/*
 * Does the trail have a durable record that the object, "TABLE" or "FILE", will
 * be removed?  If not, the record is made, or sent on its way.  name is the
 * object's without schema or directory.  Must not raise.
 */
bool
paq_removal_is_recorded(const char *type, const char *object, const char *name,
						uint64 bytes)
{
	if (strcmp(object, planned.object) != 0)
	{
		PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
		char		size[32];

		if (planned.unsent != NULL)
			paq_pending_free(planned.unsent);
		snprintf(size, sizeof(size), UINT64_FORMAT, bytes);
		paq_set_text(texts, PAQ_FIELD_COMMAND, "RETENTION");
		paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, type);
		paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, object);
		paq_set_text(texts, PAQ_FIELD_STATEMENT, name);
		paq_set_text(texts, PAQ_FIELD_OLD_VALUE, size);
		paq_set_text(texts, PAQ_FIELD_VALUE_SOURCE, "pg_audit_queue.table_retention");
		planned.object[0] = '\0';
		planned.unsent = paq_own_record(PAQ_LOADER_NAME, paq_database, texts, 0, 1);
		if (planned.unsent == NULL)
			return false;
		strlcpy(planned.object, object, sizeof(planned.object));
	}
	if (planned.unsent != NULL)
	{
		planned.end = paq_pending_publish(planned.unsent, PAQ_SPACE_KEEP);
		if (planned.end == 0)
			return false;
		planned.unsent = NULL;
		paq_queue_request_flush(planned.end);
	}
	return paq_queue_is_flushed(planned.end);
}

/* It is removed.  What gets the same name later has a record of its own. */
void
paq_removal_done(void)
{
	planned.object[0] = '\0';
}
