/*-------------------------------------------------------------------------
 *
 * removal.c
 *		Removing evidence leaves evidence: the record of a partition, or a kept
 *		file, that will be removed.
 *
 * It goes through the queue like any other, and the partition only when it is
 * flushed, as files of the trail do (drain/retain.c).  That it is in the table as
 * well is not waited for: that is the loader's own work.
 *
 * A partition has one record, however often it takes to drop it: somebody may be
 * reading it.  Only if the loader ends in between, or something older turns up,
 * there will be another one.
 *
 * Guarantees: waits for nothing; what has to be waited for is looked at again at
 * the next call.  Must not raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "guc.h"
#include "load/load_internal.h"
#include "queue/queue.h"

/* What will be removed; "": nothing */
static char planned[MAXPGPATH];

/* Its record: waits for room in the queue, or else ends before the position. */
static PaqPending *unsent = NULL;
static uint64 record_end;

static void
make_record(const char *type, const char *object, const char *name, uint64 bytes)
{
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	char		size[32];

	snprintf(size, sizeof(size), UINT64_FORMAT, bytes);
	paq_set_text(texts, PAQ_FIELD_COMMAND, "RETENTION");
	paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, type);
	paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, object);
	paq_set_text(texts, PAQ_FIELD_STATEMENT, name);
	paq_set_text(texts, PAQ_FIELD_OLD_VALUE, size);
	paq_set_text(texts, PAQ_FIELD_VALUE_SOURCE, "pg_audit_queue.table_retention");
	unsent = paq_own_record(PAQ_LOADER_NAME, paq_database, texts, 0, 1);
}

/*
 * Is it in the trail, durably, that the object, "TABLE" or "FILE", will be
 * removed?  If not, see to it that it will be.  name is that without schema or
 * directory.
 */
bool
paq_removal_is_recorded(const char *type, const char *object, const char *name,
						uint64 bytes)
{
	if (strcmp(object, planned) != 0)
	{
		if (unsent != NULL)
			paq_pending_free(unsent);
		planned[0] = '\0';
		make_record(type, object, name, bytes);
		if (unsent == NULL)
			return false;
		strlcpy(planned, object, sizeof(planned));
	}
	if (unsent != NULL)
	{
		record_end = paq_pending_publish(unsent, PAQ_SPACE_KEEP);
		if (record_end == 0)
			return false;
		unsent = NULL;
		paq_queue_request_flush(record_end);
	}
	return paq_queue_is_flushed(record_end);
}

/* It is removed.  What comes under the same name later has a record of its own. */
void
paq_removal_done(void)
{
	planned[0] = '\0';
}
