/*-------------------------------------------------------------------------
 *
 * file.c
 *		The file sink: the trail is a series of files.
 *
 * Records are formatted straight into one buffer, which becomes one write()
 * at the end of the batch; only a batch that does not fit is written in
 * pieces.  The file's offset moves when a batch is whole.  What a failed
 * batch, or a crash in the middle of one, leaves behind the offset is cut off
 * before anything else is written.
 *
 * Guarantees: sink.h's.  After end_batch() the batch is the operating
 * system's; flush() makes it durable.
 * Must not raise for what the world outside does.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "guc.h"
#include "sink/file_internal.h"
#include "stats.h"
#include "utils/memutils.h"

#define BATCH_BUFFER_SIZE	(1024 * 1024)

/* A batch ends here, so that its last record still fits in most cases. */
#define BATCH_FULL_SIZE		(BATCH_BUFFER_SIZE / 4 * 3)

static char error_message[PAQ_ERROR_LEN];

static bool drain_batch(PaqBuffer *buf);

static PaqBuffer batch = {.drain = drain_batch};

/* Note a failure; %m works as in errmsg(). */
void
paq_sink_set_error(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	vsnprintf(error_message, sizeof(error_message), fmt, args);
	va_end(args);
}

const char *
paq_sink_error(void)
{
	return error_message;
}

static void
need_buffer(void)
{
	if (batch.data != NULL)
		return;
	batch.data = MemoryContextAlloc(TopMemoryContext, BATCH_BUFFER_SIZE);
	batch.size = BATCH_BUFFER_SIZE;
}

/* Write out what the buffer holds. */
static bool
drain_batch(PaqBuffer *buf)
{
	if (!paq_trail_write(buf->data, buf->used))
		return false;
	buf->used = 0;
	return true;
}

static bool
file_begin_batch(void)
{
	/* rotate_if_due() comes first and has seen to that, if it succeeded. */
	if (paq_trail.fd < 0 || paq_trail.format == NULL)
	{
		paq_sink_set_error("no audit trail file is open");
		return false;
	}
	if (!paq_trail_cut_to_offset())
		return false;
	need_buffer();
	batch.used = 0;
	batch.failed = false;
	return true;
}

static PaqAppendResult
file_append(const PaqRecord *record)
{
	paq_trail.format->write(&batch, record);
	if (batch.failed)
		return PAQ_APPEND_FAILED;
	if (batch.used >= BATCH_FULL_SIZE ||
		paq_trail.written > paq_trail.offset ||
		paq_trail_is_full(paq_trail.offset + batch.used))
		return PAQ_APPEND_FULL;
	return PAQ_APPEND_OK;
}

static bool
file_end_batch(void)
{
	if (batch.failed || !drain_batch(&batch))
		return false;
	paq_stats_add(&paq_stats->worker.bytes,
				  paq_trail.written - paq_trail.offset);
	paq_trail.offset = paq_trail.written;
	return true;
}

/* If the cut fails, file_begin_batch() tries it again. */
static void
file_abort_batch(void)
{
	batch.used = 0;
	batch.failed = false;
	if (paq_trail.fd >= 0)
		(void) paq_trail_cut_to_offset();
}

static void
file_get_state(PaqSinkState *state)
{
	memset(state, 0, sizeof(*state));
	state->flushed_sequence = paq_trail.flushed_sequence;
	state->known_sequence = paq_trail.flushed_sequence;
	if (paq_trail.fd >= 0)
	{
		state->offset = paq_trail.offset;
		state->flushed = state->known_from = paq_trail.flushed;
		strlcpy(state->file, paq_trail.path, sizeof(state->file));
		strlcpy(state->known_file, paq_trail.path, sizeof(state->known_file));
		state->inode = paq_trail.ino;
		state->begun = paq_trail.begun;
		state->begun_sequence = paq_trail.begun_sequence;
	}
	state->loss = paq_trail.loss;
	paq_salvage_state(state);
}

static const PaqLoss *
file_loss(void)
{
	return paq_trail.loss.message[0] != '\0' ? &paq_trail.loss : NULL;
}

static void
file_loss_told(void)
{
	memset(&paq_trail.loss, 0, sizeof(paq_trail.loss));
}

/* See sink.h.  What could not be cut off is ours. */
static void
file_close(PaqSinkState *state)
{
	file_abort_batch();
	file_get_state(state);
	state->closed = paq_trail.fd >= 0 && paq_trail.written == paq_trail.offset;
}

const PaqSink *
paq_file_sink(void)
{
	static const PaqSink sink = {
		.resume = paq_trail_resume,
		.is_known = paq_salvage_is_known,
		.forget_known = paq_salvage_forget,
		.rotate_if_due = paq_file_rotate_if_due,
		.next_rotation = paq_file_next_rotation,
		.retain = paq_file_retain,
		.next_retention = paq_file_next_retention,
		.begin_batch = file_begin_batch,
		.append = file_append,
		.end_batch = file_end_batch,
		.abort_batch = file_abort_batch,
		.flush = paq_trail_flush,
		.retreat = paq_trail_retreat,
		.loss = file_loss,
		.loss_told = file_loss_told,
		.get_state = file_get_state,
		.close = file_close
	};

	return &sink;
}
