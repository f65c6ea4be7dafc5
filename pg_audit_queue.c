/*-------------------------------------------------------------------------
 *
 * pg_audit_queue.c
 *		Audit records through a crash-safe queue into a trail of their own.
 *
 * The door: it loads the library and connects the rooms.  Data flows one way,
 * from left to right:
 *
 *	src/capture/	hooks in the backend: statements become records
 *	src/policy/		rules that say which statements are recorded
 *	src/mask/		texts without the secrets in them
 *	src/record/		a record and its encoding
 *	src/queue/		the ring in a mapped file, between backends and worker
 *	src/drain/		the background worker: batches from the queue to the sink
 *	src/sink/		where the trail goes: files
 *	src/load/		the loader: from the files into the table, if that is the sink
 *	src/trail/		what trail files look like, for programs, too
 *	src/read/		the trail's files as rows
 *	src/format/		how a record becomes text: pgaudit, csvlog, json
 *
 *	src/guc.c		the settings, of which guc_list.h is the list
 *	src/stats.c		counters in shared memory
 *	src/sqlfunc.c	the SQL functions; src/check.c those of audit_check(), src/consumers.c
 *					those of consumers, src/extension.c those for its own objects
 *	src/compat.h	differences between PostgreSQL versions
 *
 * src/README.md explains how they work together.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture.h"
#include "compat.h"
#include "drain/drain.h"
#include "fmgr.h"
#include "guc.h"
#include "load/load.h"
#include "miscadmin.h"
#include "policy/policy.h"
#include "queue/queue.h"
#include "sink/sink.h"
#include "stats.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"

PAQ_MODULE_MAGIC;

void		_PG_init(void);

static shmem_request_hook_type prev_shmem_request_hook = NULL;
static shmem_startup_hook_type prev_shmem_startup_hook = NULL;

static void
shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	paq_drain_check_library();
	RequestAddinShmemSpace(add_size(add_size(paq_queue_shmem_size(),
											 paq_stats_shmem_size(MaxBackends)),
									paq_policy_shmem_size()));
}

/*
 * Run by the postmaster at start and after each crash, before there are
 * backends.  A failure here keeps the server from starting, on purpose:
 * auditing would be impossible.
 */
static void
shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	paq_stats_shmem_init(MaxBackends);
	paq_settings_publish();
	paq_queue_startup();
	LWLockRelease(AddinShmemInitLock);
	paq_sink_check();

	/* reads a file, without the lock: an error would forget that it is held */
	paq_policy_startup();
}

/*
 * Without shared_preload_libraries there is nothing to do; the SQL functions
 * then say what is missing.
 */
void
_PG_init(void)
{
	/* or pg_upgrade could not restore the extension's views in pg_catalog */
	if (IsBinaryUpgrade)
		SetConfigOption("allow_system_table_mods", "on", PGC_SUSET,
						PGC_S_OVERRIDE);

	if (!process_shared_preload_libraries_in_progress)
		return;
	paq_guc_init();

	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;

	paq_load_init();
	paq_capture_init();
	paq_drain_register(paq_load_tend);
}
