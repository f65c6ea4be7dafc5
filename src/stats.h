/*-------------------------------------------------------------------------
 *
 * stats.h
 *		Counters in shared memory.
 *
 * There are two kinds, so that counting costs a backend neither a lock nor a
 * shared cache line: PaqBackendStats, one for each backend slot, which only that
 * backend writes; and PaqWorkerStats, which only the worker writes, except where
 * noted.  Readers sum up what they see; a 64-bit value is never torn.  A reset
 * remembers the sums of that moment, and readers subtract them, so that it needs
 * no cooperation of the writers.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_STATS_H
#define PAQ_STATS_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "record/record.h"
#include "storage/spin.h"

#define PAQ_ERROR_LEN	512

/* Space for the text of a seal; see trail/seal.h */
#define PAQ_SEAL_TEXT_LEN	1536

/* Why a record is not in the trail; PAQ_NDROPS is part of the queue file's layout */
typedef enum PaqDropReason
{
	PAQ_DROP_FULL,				/* the queue was full */
	PAQ_DROP_EXIT,				/* the session ended while it was */
	PAQ_DROP_MEMORY,			/* out of memory */
	PAQ_NDROPS
} PaqDropReason;

/* Counters of one backend slot; they outlive the backend and go on. */
typedef struct PaqBackendStats
{
	pg_atomic_uint64 published; /* records put into the queue */
	pg_atomic_uint64 space_waits;	/* times a record waited for space */
	pg_atomic_uint64 flush_waits;	/* times a session waited for a flush */
	pg_atomic_uint64 waited_us; /* microseconds spent in both */
	pg_atomic_uint64 incomplete;	/* records built from what was at hand */
	pg_atomic_uint64 wal_commits;	/* commits that WAL made durable */
	pg_atomic_uint64 wal_fallbacks; /* those that waited, despite commit_wal */
	char		pad[128 - 7 * sizeof(pg_atomic_uint64)];
} PaqBackendStats;

/* Records are counted by class, and behind them those that have none. */
#define PAQ_NKINDS		(PAQ_NCLASSES + 2)
#define PAQ_KIND_OF_GAPS	PAQ_NCLASSES
#define PAQ_KIND_OF_HEARTBEATS	(PAQ_NCLASSES + 1)

/*
 * Settings that a session may have its own values of, as they are for the server:
 * what the configuration files say
 */
typedef struct PaqServerSettings
{
	uint32		log_classes;
	uint32		mask_classes;
	bool		mask_patterns;	/* there are any */
	bool		log_statement;
	bool		log_parameter;
	bool		log_catalog;
	bool		policy;
	char		role[NAMEDATALEN + 1];	/* what is too long for a role stays so */
} PaqServerSettings;

typedef struct PaqWorkerStats
{
	pg_atomic_uint64 recovered; /* records found in queue files of earlier
								 * server runs */
	pg_atomic_uint64 drained;	/* records written to the trail */
	pg_atomic_uint64 flushed;	/* records durable in the trail */
	pg_atomic_uint64 kinds_drained[PAQ_NKINDS]; /* both, by class */
	pg_atomic_uint64 kinds_flushed[PAQ_NKINDS];
	pg_atomic_uint64 bytes;		/* bytes of trail written */
	pg_atomic_uint64 written;	/* the same, parts of batches and failed ones
								 * included */
	pg_atomic_uint64 batches;
	pg_atomic_uint64 fsyncs;
	pg_atomic_uint64 wakeups;	/* of the worker */
	pg_atomic_uint64 seals;
	pg_atomic_uint64 high_water;	/* most bytes of the queue in use */
	pg_atomic_uint64 unflushed_since;	/* TimestampTz; 0: all is flushed */
	pg_atomic_uint64 setting_errors;	/* of configuration files, and of the */
	pg_atomic_uint64 policy_errors; /* policy file, when they were last read */
	pg_atomic_uint32 worker_pid;	/* 0: not running */

	/* All below is written and read by paq_stats_begin_write() and its friends. */
	slock_t		mutex;			/* writers take turns */
	uint32		changes;		/* odd: somebody is writing */
	TimestampTz last_error_time;	/* 0: none */
	char		last_error[PAQ_ERROR_LEN];
	char		current_file[MAXPGPATH];
	char		sink[NAMEDATALEN];
	TimestampTz last_seal_time; /* 0: none */
	char		last_seal[PAQ_SEAL_TEXT_LEN];
	PaqServerSettings settings;
} PaqWorkerStats;

/* Sums of all processes' counters, each of them a uint64 */
typedef struct PaqStatsCounters
{
	uint64		published;
	uint64		space_waits;
	uint64		flush_waits;
	uint64		waited_us;
	uint64		dropped[PAQ_NDROPS];
	uint64		incomplete;
	uint64		wal_commits;
	uint64		wal_fallbacks;
	uint64		drained;
	uint64		flushed;
	uint64		kinds[PAQ_NKINDS];	/* of flushed */
	uint64		bytes;
	uint64		batches;
	uint64		fsyncs;
	uint64		wakeups;
	uint64		seals;
	uint64		loaded;
} PaqStatsCounters;

typedef struct PaqStatsShared
{
	slock_t		mutex;			/* protects base and reset_time */
	PaqStatsCounters base;		/* at the last reset */
	TimestampTz reset_time;

	PaqWorkerStats worker;

	/* Changes of our settings by reloads; written by the postmaster only */
	pg_atomic_uint64 setting_changes;

	/* Records loaded into the table; written by the loader only */
	pg_atomic_uint64 loaded;

	/* Records published by processes without a slot, any number at once */
	pg_atomic_uint64 slotless;

	/* Records that could not be kept, by any process */
	pg_atomic_uint64 dropped[PAQ_NDROPS];

	int			nbackends;
	PaqBackendStats backend[FLEXIBLE_ARRAY_MEMBER];
} PaqStatsShared;

/* NULL unless preloaded; .backend of this process, a dummy if it has no slot */
extern PaqStatsShared *paq_stats;
extern PaqBackendStats *paq_my_stats;

extern Size paq_stats_shmem_size(int nbackends);
extern void paq_stats_shmem_init(int nbackends);
extern void paq_stats_attach(int slot);
extern void paq_stats_begin_write(void);
extern void paq_stats_end_write(void);
extern void paq_stats_read(void *dst, const void *src, Size len);
extern void paq_stats_worker_error(const char *message);
extern void paq_stats_kinds_copy(pg_atomic_uint64 *to, pg_atomic_uint64 *from);
extern TimestampTz paq_stats_since_reset(PaqStatsCounters *counters);
extern void paq_stats_reset(void);

/* Add to a counter that only this process writes: no locked instruction. */
static inline void
paq_stats_add(pg_atomic_uint64 *counter, uint64 n)
{
	pg_atomic_write_u64(counter, pg_atomic_read_u64(counter) + n);
}

#endif							/* PAQ_STATS_H */
