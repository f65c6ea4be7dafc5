/*-------------------------------------------------------------------------
 *
 * event.c
 *		The worker's own records, class CONFIG: that it started or stopped,
 *		that it reloaded the configuration, which settings changed by that, and
 *		which files of the trail retention removes.
 *
 * They go through the queue like any others.  The worker stands for the
 * server here: of each setting in the configuration file there is one record,
 * made before the new value takes effect in the worker.  Sessions take it at
 * about the same time, each by itself.
 *
 * Guarantees: the worker never waits for room in the queue, which it has to
 * make itself.  A record that finds none, not even in the reserve, is kept and
 * tried again after each cycle; if there still is none at exit it is lost, and
 * counted.
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

#include "drain/drain_internal.h"
#include "guc.h"
#include "queue/queue.h"
#include "utils/guc_tables.h"

/* More than one reload can bring: all settings, and what frames them */
#define MAX_UNSENT	64

/* Records that wait for room in the queue, oldest first */
static PaqPending *unsent[MAX_UNSENT];
static int	nunsent = 0;

/* Try again to publish what found no room. */
void
paq_event_send(void)
{
	int			sent = 0;

	while (sent < nunsent &&
		   paq_pending_publish(unsent[sent], PAQ_SPACE_KEEP) != 0)
		sent++;
	if (sent == 0)
		return;
	nunsent -= sent;
	memmove(unsent, unsent + sent, nunsent * sizeof(unsent[0]));
}

/* Those that are still there now are lost. */
void
paq_event_give_up(void)
{
	if (nunsent > 0)
		paq_queue_note_drop(PAQ_DROP_EXIT, nunsent);
	nunsent = 0;
}

/* Is none of them waiting any more? */
bool
paq_event_all_sent(void)
{
	return nunsent == 0;
}

/* Publish a record, or keep it until there is room; false if that cannot be done. */
static bool
publish(const PaqText *texts, int sqlstate, int64 rows)
{
	PaqPending *pending = paq_own_record(PAQ_WORKER_NAME, NULL, texts,
										 sqlstate, rows);

	if (pending == NULL)
		return false;
	unsent[nunsent++] = pending;
	paq_event_send();
	return true;
}

/* Record a command of the worker's own; change is NULL if it is none of a setting. */
void
paq_event_record(const char *command, const PaqSettingChange *change,
				 int sqlstate)
{
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};

	paq_set_text(texts, PAQ_FIELD_COMMAND, command);
	if (change != NULL)
	{
		paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, "SETTING");
		paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, change->name);
		paq_set_text(texts, PAQ_FIELD_OLD_VALUE, change->old_value);
		paq_set_text(texts, PAQ_FIELD_NEW_VALUE, change->new_value);
		paq_set_text(texts, PAQ_FIELD_VALUE_SOURCE,
					 GucSource_Names[change->source]);
	}
	if (nunsent == MAX_UNSENT)
		paq_queue_note_drop(PAQ_DROP_FULL, 1);
	else
		(void) publish(texts, sqlstate, -1);
}

/*
 * Record that files of the trail will be removed, or could not be.  Returns
 * false if there is no way to record it now: then nothing may be removed.
 */
bool
paq_event_removal(const PaqRemoval *removal)
{
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	char		bytes[32];

	if (nunsent == MAX_UNSENT)
		return false;
	snprintf(bytes, sizeof(bytes), UINT64_FORMAT, removal->bytes);
	paq_set_text(texts, PAQ_FIELD_COMMAND, "RETENTION");
	paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, "FILE");
	paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, removal->path);
	paq_set_text(texts, PAQ_FIELD_STATEMENT, removal->names);
	paq_set_text(texts, PAQ_FIELD_OLD_VALUE, bytes);
	paq_set_text(texts, PAQ_FIELD_VALUE_SOURCE, removal->setting);
	if (removal->error == 0)
		return publish(texts, 0, removal->count);
	paq_set_text(texts, PAQ_FIELD_MESSAGE, strerror(removal->error));
	return publish(texts, ERRCODE_IO_ERROR, removal->count);
}

/* A setting is about to change, which in the worker only a reload makes it do. */
void
paq_event_setting(const PaqSettingChange *change)
{
	paq_event_record("SET", change, 0);
}
