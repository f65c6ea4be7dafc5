/*-------------------------------------------------------------------------
 *
 * server.h
 *		How PostgreSQL's majors declare what stubs.c defines.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef SERVER_H
#define SERVER_H

#include "postgres.h"

#include "portability/instr_time.h"
#include "storage/proc.h"

#if PG_VERSION_NUM >= 160000
#define EXCEPTIONAL_CONDITION_ARGS \
	const char *condition, const char *file, int line
#define CANCEL_SLEEP_TYPE	bool
#define CANCEL_SLEEP_RESULT false
#else
#define EXCEPTIONAL_CONDITION_ARGS \
	const char *condition, const char *type, const char *file, int line
#define CANCEL_SLEEP_TYPE	void
#define CANCEL_SLEEP_RESULT
#endif

#if PG_VERSION_NUM >= 170000
#define DEFINE_PROC_NUMBER	ProcNumber MyProcNumber = -1
#else
#define DEFINE_PROC_NUMBER	extern PGPROC *MyProc
#endif

/* Set what paq_proc_number() returns; MyProc is set. */
static inline void
set_proc_number(int number)
{
#if PG_VERSION_NUM >= 170000
	MyProcNumber = number;
#else
	MyProc->pgprocno = number;
#endif
}

/* Make the clock usable for durations. */
static inline void
initialize_timing(void)
{
#if PG_VERSION_NUM >= 190000
	pg_initialize_timing();
#endif
}

#endif							/* SERVER_H */
