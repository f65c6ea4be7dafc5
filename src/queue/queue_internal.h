/*-------------------------------------------------------------------------
 *
 * queue_internal.h
 *		Layout of the queue file, and what the files of this room share.
 *
 * The queue file holds, in this order, each part starting on a page:
 *
 *	PaqFileHeader		written once when the file is made, checksummed
 *	PaqCheckpoint x 2	how far the trail has got, written in turn by the
 *						worker, checksummed
 *	PaqLive				positions that change with every record
 *	PaqFileHeader		once more: without it nothing could be read
 *	pending slots		one a backend
 *	the ring
 *
 * The ring is mapped twice, one copy right behind the other, so that a frame
 * that crosses its end is contiguous in memory like any other, and no code
 * knows about wrapping.
 *
 * There are no pointers and no locks in the file.  Latches and condition
 * variables are in PaqShared, in ordinary shared memory, which a crash of the
 * server resets.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_QUEUE_INTERNAL_H
#define PAQ_QUEUE_INTERNAL_H

#include "postgres.h"

#include "lib/ilist.h"
#include "nodes/pg_list.h"
#include "port/atomics.h"
#include "port/pg_crc32c.h"
#include "portability/instr_time.h"
#include "queue/queue.h"
#include "queue/reader.h"
#include "storage/condition_variable.h"
#include "storage/latch.h"
#include "storage/spin.h"

#if SIZEOF_SIZE_T < 8
#error "pg_audit_queue needs a 64-bit platform"
#endif

/* Atomics must be plain numbers: they are in a file, and zeros initialize them. */
#if defined(PG_HAVE_ATOMIC_U64_SIMULATION) || defined(PG_HAVE_ATOMIC_U32_SIMULATION)
#error "pg_audit_queue needs a platform with 64-bit atomics"
#endif

#define PAQ_FILE_MAGIC		UINT64CONST(0x5155455541555044)
#define PAQ_FILE_VERSION	5

#define PAQ_QUEUE_FILE		"queue"
#define PAQ_SLOT_SIZE		8192	/* bytes of a pending slot */
#define PAQ_SPILL_NAME_LEN	64		/* with the zero byte */
#define PAQ_NGUESTS			128 /* processes without a slot that put records
									 * into the ring at the same time, and
									 * those that were killed doing so */
#define PAQ_BOOT_ID_LEN		40

/* Written once; protected by its checksum. */
typedef struct PaqFileHeader
{
	uint64		magic;
	uint32		version;
	uint32		nslots;			/* number of pending slots */
	uint64		slots_offset;	/* of the first slot, bytes from file start */
	uint64		ring_offset;	/* of the ring, bytes from file start */
	uint64		ring_size;		/* bytes, a multiple of the page size */
	uint64		salt;			/* random; makes frames unforgeable */
	uint64		system_identifier;	/* of the cluster */
	uint64		inode;			/* st_ino of this very file, and when it was */
	int64		birth;			/* made, ns, 0 if unknown: a copy has others */
	int64		created;		/* TimestampTz */
	pg_crc32c	crc;			/* of all above */
} PaqFileHeader;

/*
 * The records that were dropped for one reason since the file was made; see
 * overflow.c
 */
typedef struct PaqDrops
{
	pg_atomic_uint64 count;
	pg_atomic_uint64 first;		/* TimestampTz of the first that no GAP record
								 * reports; 0: there is none */
	pg_atomic_uint64 last;		/* TimestampTz of the latest */
	pg_atomic_uint64 position;	/* "reserved" at "first" */
	char		pad[128 - 4 * sizeof(pg_atomic_uint64)];
} PaqDrops;

/*
 * A process that is putting a record into the ring, and its claim: the place
 * that it has reserved or is about to reserve; see writers.c.  Written by that
 * process only; read by recovery, and by the worker while it waits for a frame
 * to be committed.
 */
typedef struct PaqWriter
{
	pg_atomic_uint32 pid;		/* 0: belongs to nobody */
	pg_atomic_uint32 size;		/* of the frame, bytes: from before space for it
								 * is reserved until it is committed; else 0,
								 * there is no claim */
	pg_atomic_uint64 position;	/* of the frame; valid if size is not 0 */
} PaqWriter;

/*
 * Positions that every producer touches.  There is no checksum: after a crash
 * of the server, the last value stored counts; after a crash of the operating
 * system, any value is only a hint.
 *
 * reserved >= end of the committed prefix >= drained >= released at all times;
 * "flushed" lies between drained and released and is in PaqShared.
 */
typedef struct PaqLive
{
	/*
	 * Advanced with compare-and-swap by producers, and by the worker when it
	 * skips what is left of a lap
	 */
	pg_atomic_uint64 reserved;
	char		pad1[128 - sizeof(pg_atomic_uint64)];

	/* Advanced by the worker only */
	pg_atomic_uint64 released;	/* everything before it may be overwritten */
	pg_atomic_uint64 drained;	/* everything before it is in the trail; a
								 * hint, the checkpoint is what counts */

	/*
	 * Positions before it may be reserved: "released" and a ring's size, or, after
	 * a detour, the end of the lap in which that is.  Only goes up, with
	 * compare-and-swap.
	 */
	pg_atomic_uint64 limit;

	/*
	 * Set by the worker before it skips what is left of a lap: one lap behind the
	 * header of the skip.  Reset by it when it has released that, or could not
	 * skip.  0: there is no such skip.
	 */
	pg_atomic_uint64 detour;
	char		pad2[128 - 4 * sizeof(pg_atomic_uint64)];

	/* Written by the postmaster at start */
	char		boot_id[PAQ_BOOT_ID_LEN];	/* operating system's run, "" if
											 * unknown */
	char		pad3[128 - PAQ_BOOT_ID_LEN];

	/* Borrowed by processes that have no slot */
	PaqWriter	guests[PAQ_NGUESTS];

	/* Counted up by any process */
	PaqDrops	drops[PAQ_NDROPS];
} PaqLive;

StaticAssertDecl(sizeof(PaqLive) <= 4096, "positions must fit into one page");

/*
 * A frame holds one record; or none, and a part of the ring that is skipped.  stamp
 * is the frame's own position (a multiple of 8) plus PAQ_FRAME_COMMITTED, XORed
 * with the file's salt: what an earlier lap left at the same place never looks like
 * a frame of this lap.  It is stored once the record is there.
 */
typedef struct PaqFrame
{
	pg_atomic_uint64 stamp;
	uint32		size;			/* of the whole frame, bytes, multiple of 8 */
	uint32		length;			/* of the record in it, bytes; of a skip, how many
								 * bytes before it were not durable in the trail
								 * when it was made, PG_UINT32_MAX if more */
	pg_crc32c	crc;			/* of salt, record, position and length; of a skip,
								 * size and length stand for the record */
	uint32		kind;			/* PaqFrameKind */
} PaqFrame;

typedef enum PaqFrameKind
{
	PAQ_FRAME_RECORD,
	PAQ_FRAME_SKIP				/* what is behind it is not its own */
} PaqFrameKind;

#define PAQ_FRAME_COMMITTED	2
#define PAQ_FRAME_ALIGN		8

#define PAQ_FRAME_SIZE(reclen) \
	TYPEALIGN(PAQ_FRAME_ALIGN, sizeof(PaqFrame) + (reclen))

/*
 * A backend's pending slot: entries one behind the other, each a record whose
 * outcome is not known yet.  Written by its backend only; read by recovery
 * after all backends are gone.
 */
typedef struct PaqSlot
{
	uint32		used;			/* bytes of entries, free ones included */
	uint32		awaited;		/* 1: at a shutdown, the worker leaves after the
								 * owner */
	PaqWriter	writer;			/* the owner */
	char		pad[64 - 2 * sizeof(uint32) - sizeof(PaqWriter)];
	char		entries[PAQ_SLOT_SIZE - 64];
} PaqSlot;

typedef struct PaqSlotEntry
{
	uint32		size;			/* of the whole entry, bytes, multiple of 8 */
	uint32		valid;			/* 1 while the record is complete and pending */
	uint64		published_at;	/* position of its frame once it has one: if
								 * that frame is committed, the entry is not
								 * pending any more */
	uint32		successor;		/* offset in the slot of the entry that takes the
								 * place of this one once it is valid; 0: none */
	pg_crc32c	crc;			/* paq_fields_crc() of the record here, which may
								 * be shorter than that of the frame */
	/* record follows */
} PaqSlotEntry;

/* A mapped queue file */
typedef struct PaqQueueFile
{
	char	   *base;			/* NULL if not mapped */
	Size		map_size;
	PaqFileHeader *header;
	PaqCheckpoint *checkpoint[2];
	PaqLive    *live;
	char	   *slots;
	char	   *ring;
	uint64		ring_size;		/* copy of the header's, which a scribble
								 * cannot change */
	uint64		salt;			/* the same */
	bool		foreign;		/* made by another cluster, or a copy */
} PaqQueueFile;

/* A session that waits for a flush; see wake.c */
typedef struct PaqWaiter
{
	pg_atomic_uint64 pos;		/* it waits for this position; 0: for none */
	pg_atomic_uint64 latch;		/* its Latch, as a number; valid if pos is not 0 */
} PaqWaiter;

/* What the processes share apart from the file; reset by a crash. */
typedef struct PaqShared
{
	/* Written by the worker only */
	pg_atomic_uint64 flushed;	/* everything before it is durable */
	pg_atomic_uint64 flushed_sequence;	/* of the last durable record; stored
										 * before flushed */
	pg_atomic_uint64 reported[PAQ_NDROPS];	/* dropped records of this queue file
											 * that the durable trail reports */

	/* Raised by backends, read by the worker */
	pg_atomic_uint64 flush_request; /* highest "flushed" waited for */
	pg_atomic_uint64 space_request; /* highest "limit" waited for */
	struct
	{
		pg_atomic_uint32 made;	/* so far */
		pg_atomic_uint32 done;	/* those served, by the worker */
		pg_atomic_uint32 failed;	/* the last of them that failed */
	}			requests[PAQ_NREQUESTS];

	/*
	 * Set by the worker before it sleeps without a timeout; reset by whoever
	 * wakes it.
	 */
	pg_atomic_uint32 hibernating;

	/*
	 * Tell whether the worker makes progress: the number of its flushes,
	 * including those of backlog; and whether the sink fails.
	 */
	pg_atomic_uint64 progress;
	pg_atomic_uint32 failing;

	/*
	 * Set by the session that has written it to the server's log: the queue is
	 * filling up (reset by the worker); the server is being shut down.
	 */
	pg_atomic_uint32 warned;
	pg_atomic_uint32 shutting_down;

	/*
	 * The table, written by the loader: its process id, 0 while there is none;
	 * its Latch, as a number; the position before which everything is in the
	 * table; whether sessions wait for the table, which a session that has
	 * waited for too long resets; and whether writing the table fails.
	 */
	pg_atomic_uint32 loader_pid;
	pg_atomic_uint64 loader_latch;
	pg_atomic_uint64 loaded;
	pg_atomic_uint32 table_awaited;
	pg_atomic_uint32 table_failing;

	/* By the worker: files that end with this sequence, or before, may go */
	pg_atomic_uint64 settled_sequence;

	/*
	 * Records on the WAL, see sentinel.c.  Set by sessions that would use it, and
	 * reset by the worker; written by the worker only: until when they may, a
	 * TimestampTz, 0 if they may not.
	 */
	pg_atomic_uint32 wal_wanted;
	pg_atomic_uint64 wal_ready_until;

	/* The worker's Latch, as a number; 0 while there is no worker */
	pg_atomic_uint64 worker_latch;

	/* Broadcast by the worker */
	ConditionVariable space_cv;
	ConditionVariable request_cv;

	/* Broadcast by the loader, and by whoever resets table_awaited */
	ConditionVariable load_cv;

	/* By number of the PGPROC, MaxBackends of them */
	PaqWaiter	waiters[FLEXIBLE_ARRAY_MEMBER];
} PaqShared;

extern PaqShared *paq_shared;

/* The queue file in use, mapped by the postmaster and inherited. */
extern PaqQueueFile paq_live;

/* This process as one that puts records into the queue; see pending.c */
typedef struct PaqProducer
{
	bool		attached;		/* it has a slot, or its kind has none */
	PaqSlot    *slot;			/* NULL if it has none */
	PaqWriter  *writer;			/* the slot's */
	bool		filling;		/* a record of it has crossed the warning level */
	dlist_head	entries;		/* records with an entry in the slot, in order */
	dlist_head	unused;			/* structs for pending records */
	Size		local_bytes;	/* memory of records outside of the slot */
	bool		must_keep;		/* the record that is being published */
} PaqProducer;

extern PaqProducer paq_producer;

static inline PaqFrame *
paq_frame_at(PaqQueueFile *qf, uint64 pos)
{
	return (PaqFrame *) (qf->ring + pos % qf->ring_size);
}

/*
 * How far it is from a good frame to the next place where there may be one, in
 * bytes, if that frame may be from an earlier lap than what is around it.  What is
 * in a record's frame is its own, or its checksum would not match.  In what is skipped
 * there may be frames of other laps.
 */
static inline uint64
paq_frame_step(const PaqFrame *frame)
{
	return frame->kind == PAQ_FRAME_SKIP ? sizeof(PaqFrame) : frame->size;
}

static inline uint64
paq_frame_stamp(PaqQueueFile *qf, uint64 pos)
{
	return (pos | PAQ_FRAME_COMMITTED) ^ qf->salt;
}

static inline PaqSlot *
paq_slot(PaqQueueFile *qf, uint32 number)
{
	return (PaqSlot *) (qf->slots + (Size) number * PAQ_SLOT_SIZE);
}

/*
 * The reserve: space, in bytes, for those who must not wait.  The record of a
 * statement that was cancelled has to fit when the queue is full.
 */
static inline uint64
paq_ring_reserve(void)
{
	return paq_live.ring_size / 8;
}

/* Bytes in use from which on the server's log has a warning: 75 % */
static inline uint64
paq_warning_level(void)
{
	return paq_live.ring_size - paq_live.ring_size / 4;
}

/* directory.c */
extern void paq_directory_open(void);
extern void paq_file_path(char *path, const char *name);
extern void paq_file_set_aside(const char *path, const char *reason, int elevel);
extern void paq_backlog_path(char *path, uint32 number);
extern uint32 paq_backlog_find(uint32 after);
extern void paq_backlog_add(const char *path);

/* file.c */
extern uint64 paq_file_ring_size(uint64 wanted);
extern int	paq_file_open_fd(const char *path);
extern bool paq_file_open(const char *path, PaqQueueFile *qf, char **reason);
extern void paq_file_close(PaqQueueFile *qf);
extern void paq_file_create(const char *path, Size ring_size, int nslots,
							const PaqCheckpoint *inherit, PaqQueueFile *qf);
extern bool paq_file_sync(PaqQueueFile *qf, Size size);
extern bool paq_file_sync_ring(PaqQueueFile *qf);
extern void paq_file_set_boot_id(PaqQueueFile *qf);
extern bool paq_file_is_empty(PaqQueueFile *qf, PaqCheckpoint *checkpoint);
extern bool paq_file_is_trusted(PaqQueueFile *qf,
								const PaqCheckpoint *checkpoint);
extern bool paq_file_is_intact(PaqQueueFile *qf,
							   const PaqCheckpoint *checkpoint);
extern bool paq_checkpoint_read(PaqQueueFile *qf, PaqCheckpoint *out);
extern void paq_checkpoint_write(PaqQueueFile *qf, PaqCheckpoint *checkpoint);

/* wake.c */
extern void paq_wake_worker(void);
extern void paq_wake_loader(void);
extern void paq_wake_waiters(uint64 flushed);

/* ring.c */

/* In place of a position: the record is not in the ring, as no place can be claimed */
#define PAQ_POS_UNCLAIMED	2

extern uint32 paq_ring_max_record(void);
extern void paq_ring_prefetch_position(void);
extern void paq_ring_prefetch_frame(uint32 len);
extern pg_crc32c paq_fields_crc(const char *record, uint32 len);
extern uint64 paq_ring_put(const char *record, uint32 len,
						   pg_crc32c fields_crc, PaqSpaceWait wait,
						   uint64 *published_at);
extern uint32 paq_max_record(PaqQueueFile *qf);
extern bool paq_ring_has_space(uint64 size, uint64 kept);
extern bool paq_ring_detour(void);
extern uint64 paq_ring_skip(uint64 flushed);
extern uint64 paq_ring_release(uint64 pos);
extern pg_crc32c paq_frame_crc(PaqQueueFile *qf, uint64 pos,
							   const char *record, uint32 len);
extern bool paq_frame_is_committed(PaqQueueFile *qf, uint64 pos);
extern bool paq_frame_is_whole(PaqQueueFile *qf, uint64 pos, uint64 limit);
extern bool paq_frame_is_good(PaqQueueFile *qf, uint64 pos, uint64 limit);

/* writers.c */

/* Before each attempt to reserve size bytes at pos */
static inline void
paq_writer_claim(PaqWriter *writer, uint64 pos, uint32 size)
{
	pg_atomic_write_u64(&writer->position, pos);
	pg_write_barrier();			/* pairs with the first in paq_writers_bound() */
	pg_atomic_write_u32(&writer->size, size);
}

/* The frame is committed, or there was no space. */
static inline void
paq_writer_end(PaqWriter *writer)
{
	pg_write_barrier();			/* pairs with the third in paq_writers_bound() */
	pg_atomic_write_u32(&writer->size, 0);
}

/* A part of the ring in which there is no good frame */
typedef struct PaqHole
{
	uint64		from;
	uint64		to;				/* from: there is none */
	bool		explained;		/* all of it was reserved by processes that were
								 * killed */
} PaqHole;

extern void paq_writer_attach(PaqSlot *slot, bool awaited);
extern void paq_writer_reset(PaqWriter *writer);
extern PaqWriter *paq_writer_borrow(void);
extern void paq_writers_reset(PaqQueueFile *qf);
extern void *paq_worker_alloc(Size size);
extern int	paq_compare_positions(const void *a, const void *b);
extern void paq_writers_explain(PaqQueueFile *qf, PaqHole *holes, uint32 n);
extern uint64 paq_writers_bound(uint64 pos);

/* spill.c, for producers */
extern bool paq_spill_write(char *name, Size namesize,
							const PaqText *statement, const PaqText *parameter);
extern void paq_spill_remove(const char *name, Size len);
extern bool paq_spill_map(const PaqText *name, char **data, Size *size);

/* wait.c */
extern void paq_wait_events_init(void);
extern bool paq_wait_for_space(uint64 size, bool patient);

/* overflow.c */
extern bool paq_make_space(uint64 size);
extern void paq_warn_of_filling(void);
extern void paq_forget_warning(void);

/* Records that the file counts beyond those reported */
static inline uint64
paq_drops_count(PaqQueueFile *qf, const uint64 *reported, int reason)
{
	uint64		count = pg_atomic_read_u64(&qf->live->drops[reason].count);

	/* After a crash of the operating system the count may be an old one. */
	return count > reported[reason] ? count - reported[reason] : 0;
}

/* Does the file count more than the PAQ_NDROPS numbers reported? */
static inline bool
paq_drops_unreported(PaqQueueFile *qf, const uint64 *reported)
{
	for (int i = 0; i < PAQ_NDROPS; i++)
		if (paq_drops_count(qf, reported, i) > 0)
			return true;
	return false;
}

extern void paq_gap_set(PaqGap *gap, TimestampTz from, TimestampTz to,
						int64 count, const char *fmt,...) pg_attribute_printf(5, 6);
extern void paq_drops_describe(PaqQueueFile *qf, PaqDropReason reason,
							   uint64 count, PaqGap *gap);
extern void paq_drops_reported(PaqQueueFile *qf, PaqDropReason reason,
							   uint64 count);

/*
 * The rest is the reader's own: private to the worker, so nothing is shared or
 * locked.
 */

/* A place up to which a queue file has been read */
typedef struct PaqPlace
{
	uint64		pos;			/* of the next frame */
	uint64		slot_pos;		/* of the next entry: byte offset in the slots'
								 * area; one more than its size when everything
								 * has been handed out */
	uint64		drops[PAQ_NDROPS];	/* dropped records reported */
	uint64		lost;			/* 1: so are lost files */
} PaqPlace;

/* A backlog file that is to be set aside */
typedef struct PaqUnusable
{
	uint32		number;			/* see paq_backlog_path() */
	char	   *reason;
} PaqUnusable;

struct PaqReader
{
	PaqQueueFile *qf;			/* &backlog or &paq_live */
	PaqQueueFile backlog;
	uint32		number;			/* of backlog, see paq_backlog_path() */
	bool		trusted;		/* see paq_file_is_trusted() */
	bool		bounded;		/* the positions are right: they say where the
								 * records end */
	bool		intact;			/* see paq_file_is_intact() */
	bool		reported;		/* of the live file: it is known that the one
								 * before it could not be used */

	PaqPlace	read;			/* the cursor */
	PaqPlace	drained;		/* as of the last checkpoint */
	PaqPlace	flushed;		/* as of the last paq_reader_flushed() */
	uint64		synced;			/* "flushed" when the checkpoint was last synced */

	bool		lost;			/* there are, or ought to be, files that could
								 * not be used, and the trail does not say so
								 * durably yet */
	uint64		lost_bytes;		/* of those that there are */
	List	   *unusable;		/* these, PaqUnusable */
	TimestampTz last_time;		/* of the last record read, 0 if none */
	uint64		busy_at;		/* the live file's last position at which a frame
								 * was not committed yet; 0 if there was none */
	TimestampTz busy_since;

	uint64	   *frames;			/* positions of backlog's frames, in order */
	uint32		nframes;
	uint32		next_frame;		/* index of the one at the cursor or behind */
	PaqHole    *holes;			/* if bounded, the hole before each frame and
								 * behind the last, from holes_from on */
	uint64		holes_from;

	char	   *spill;			/* spill file of the current record, mapped */
	Size		spill_size;
	List	   *spills_read;	/* names of spill files read since the last
								 * checkpoint */
	List	   *spills_drained; /* names of those before, not yet removed */
};

/* spill.c, for the reader */
extern bool paq_reader_decode(PaqReader *reader, const char *data, uint32 len,
							  PaqRecord *record);
extern bool paq_spilled_is_there(const char *data, uint32 len);
extern void paq_spilled_close(PaqReader *reader);
extern void paq_spilled_collect(PaqReader *reader);
extern void paq_spilled_remove(PaqReader *reader);
extern void paq_spilled_remove_older(void);

/* recovery.c */
extern bool paq_backlog_open(PaqReader *reader);
extern void paq_backlog_set_aside(PaqReader *reader);
extern void paq_backlog_remove(uint32 number);
extern void paq_backlog_start(PaqReader *reader);
extern void paq_backlog_seek(PaqReader *reader);
extern void paq_reader_go_back(PaqReader *reader);
extern uint64 paq_backlog_ahead(PaqReader *reader);
extern uint64 paq_frame_at_offset(PaqQueueFile *qf, uint64 offset);
extern PaqReadResult paq_backlog_next(PaqReader *reader, PaqRecord *record,
									  PaqGap *gap);
extern void paq_slots_take_back(PaqQueueFile *qf, uint64 from, uint64 to);

#endif							/* PAQ_QUEUE_INTERNAL_H */
