/*-------------------------------------------------------------------------
 *
 * overflow.c
 *		What happens when the queue is full: the setting "overflow".
 *
 * wait		A session waits until there is room.
 * drop		Its record is dropped, and counted (drops.c), by
 *			paq_pending_publish().
 * error	A session waits for as long as the worker makes progress.  If it
 *			makes none, the queue is stuck, and the statement fails.
 * shutdown	The same, but the server is shut down.  The session goes on
 *			waiting, for that to end it.
 *
 * Also what happens when a text is too long for the queue, and cannot be put into
 * a file either; and the warning that the queue is filling up, once each time.
 *
 * Guarantees: nobody holds anything here while waiting, and each wait can be
 * interrupted.
 *
 * Must not be called where an error may not be raised, except for the
 * warning, which raises none.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "guc.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"

/*
 * The room that a statement's own record is expected to need, in bytes,
 * frame included.
 */
#define USUAL_RECORD	4096

bool		(*paq_queue_drain_alone) (void) = NULL;

/* Is it this process that changes *flag from 0 to 1? */
static bool
is_first(pg_atomic_uint32 *flag)
{
	uint32		expected = 0;

	return pg_atomic_read_u32(flag) == 0 &&
		pg_atomic_compare_exchange_u32(flag, &expected, 1);
}

/* Why the worker makes no room; for ereport() */
static int
stuck_detail(void)
{
	if (pg_atomic_read_u32(&paq_shared->failing) != 0)
		return errdetail("The audit trail cannot be written.");
	if (pg_atomic_read_u64(&paq_shared->worker_latch) == 0)
		return errdetail("The audit worker is not running.");
	return errdetail("The audit worker does not make space.");
}

static void
fail_full(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("audit queue is full"),
			 stuck_detail(),
			 errhint("The server log and the view \"audit_queue_stats\" show what keeps the audit trail from being written.")));
}

/*
 * The same in single-user mode, where the session makes room itself.  If that is
 * not possible, to wait would be in vain.
 */
static bool
make_room_alone(uint64 size)
{
	if (paq_queue_drain_alone() &&
		paq_queue_used() + size <= paq_live.ring_size)
		return true;
	if (paq_overflow != PAQ_OVERFLOW_DROP)
		fail_full();
	return false;
}

/* The queue is stuck, and the server shall not go on like that. */
static void
shut_down(void)
{
	if (!is_first(&paq_shared->shutting_down))
		return;
	HOLD_INTERRUPTS();			/* errfinish() would serve them */
	ereport(LOG_SERVER_ONLY,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("audit queue is full, shutting down the server"),
			 stuck_detail(),
			 errhint("Mend what keeps the audit trail from being written, as reported by the audit worker; what is in the queue is written when the server starts again.")));
	if (kill(PostmasterPid, SIGINT) != 0)
		ereport(LOG_SERVER_ONLY,
				(errmsg("could not send signal to postmaster: %m")));
	RESUME_INTERRUPTS();
}

/*
 * There are not size bytes of free space: do as the setting says.  Returns
 * true if it is worth trying again, false if the caller has to do without.  May
 * raise an error, that of an interrupt or its own.
 */
bool
paq_make_room(uint64 size)
{
	const bool	patient = paq_overflow == PAQ_OVERFLOW_WAIT;

	if (!IsUnderPostmaster)
		return make_room_alone(size);
	if (paq_overflow == PAQ_OVERFLOW_DROP)
		return false;
	if (paq_wait_for_space(size, patient))
		return true;
	if (paq_overflow == PAQ_OVERFLOW_ERROR)
		fail_full();
	shut_down();
	return paq_wait_for_space(size, true);
}

/* See paq_queue_admit(). */
void
paq_queue_refuse_if_full(void)
{
	uint64		size = Min(PAQ_FRAME_SIZE(paq_ring_max_record()), USUAL_RECORD) +
		paq_ring_reserve();

	while (paq_queue_used() + size > paq_live.ring_size)
		if (!paq_make_room(size))
			return;
}

/*
 * See paq_queue_admit_text().  Nobody waits for the disk to have room again: the
 * text would have to be kept somewhere for so long.
 */
void
paq_queue_refuse_cut(void)
{
	errno = paq_text_errno;
	paq_text_errno = 0;
	if (paq_overflow != PAQ_OVERFLOW_DROP)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not keep the text of the statement for the audit trail: %m"),
				 errdetail("A text that is too long for the audit queue is written to a file in \"pg_audit_queue.queue_directory\".")));
}

static int
overflow_detail(void)
{
	switch (paq_overflow)
	{
		case PAQ_OVERFLOW_DROP:
			return errdetail("Audit records are dropped when it is full.");
		case PAQ_OVERFLOW_ERROR:
			return errdetail("Statements fail when it stays full.");
		case PAQ_OVERFLOW_SHUTDOWN:
			return errdetail("The server is shut down when it stays full.");
		default:
			return errdetail("Sessions wait for space when it is full.");
	}
}

/*
 * A record of ours has crossed paq_warning_level(): say so in the server's log,
 * unless another session has, and the queue has not been emptied since.
 */
void
paq_warn_of_filling(void)
{
	paq_ring_filling = false;
	if (!is_first(&paq_shared->warned))
		return;
	HOLD_INTERRUPTS();			/* errfinish() would serve them */
	ereport(LOG_SERVER_ONLY,
			(errmsg("audit queue is %d%% full",
					(int) (paq_queue_used() * 100 / paq_live.ring_size)),
			 overflow_detail(),
			 errhint("Look for messages of the audit worker, or consider increasing \"pg_audit_queue.queue_size\".")));
	RESUME_INTERRUPTS();
}

/* For the worker: if half of the queue is free, the next crossing is news. */
void
paq_forget_warning(void)
{
	if (pg_atomic_read_u32(&paq_shared->warned) != 0 &&
		paq_queue_used() < paq_live.ring_size / 2)
		pg_atomic_write_u32(&paq_shared->warned, 0);
}
