/*-------------------------------------------------------------------------
 *
 * removal.c
 *		Removing evidence leaves evidence: the record of a partition that will
 *		be dropped.
 *
 * It goes through the queue like any other, and the partition only when it is
 * flushed, as files of the trail do (drain/retain.c).  That it is in the table as
 * well is not waited for: that is the loader's own work.
 *
 * A partition has one record, however often it takes to drop it: somebody may be
 * reading it.  Only if the loader ends in between there will be another one.
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

/* The partition that will be dropped; InvalidOid: none */
static Oid	planned = InvalidOid;

/* Its record: waits for room in the queue, or else ends before the position. */
static PaqPending *unsent = NULL;
static uint64 record_end;

static void
make_record(const char *name, uint64 bytes)
{
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	char		path[2 * NAMEDATALEN];
	char		size[32];

	snprintf(path, sizeof(path), PAQ_TABLE_SCHEMA ".%s", name);
	snprintf(size, sizeof(size), UINT64_FORMAT, bytes);
	paq_set_text(texts, PAQ_FIELD_COMMAND, "RETENTION");
	paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, "TABLE");
	paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, path);
	paq_set_text(texts, PAQ_FIELD_STATEMENT, name);
	paq_set_text(texts, PAQ_FIELD_OLD_VALUE, size);
	paq_set_text(texts, PAQ_FIELD_VALUE_SOURCE, "pg_audit_queue.table_retention");
	unsent = paq_own_record(PAQ_LOADER_NAME, paq_database, texts, 0, 1);
}

/*
 * Is it in the trail, durably, that the partition will be dropped?  If not, see
 * to it that it will be.
 */
bool
paq_removal_is_recorded(Oid partition, const char *name, uint64 bytes)
{
	if (partition != planned)
	{
		if (unsent != NULL)
			paq_pending_free(unsent);
		planned = InvalidOid;
		make_record(name, bytes);
		if (unsent == NULL)
			return false;
		planned = partition;
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
