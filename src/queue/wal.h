/*-------------------------------------------------------------------------
 *
 * wal.h
 *		Records on the WAL: what is in WAL, what the queue file notes of it, and
 *		what the files share that write and read it.
 *
 * With commit_wal, the records of a transaction go into WAL in front of its
 * commit record (wal.c), so that a crash of the operating system does not lose
 * them although the trail does not have them yet.  The worker sees to it that
 * not much WAL is needed for that (sentinel.c); the postmaster puts what the
 * queue file lacks back into it (restore.c).
 *
 * What is inserted are records of PostgreSQL's resource manager for logical
 * messages, of database 0: redo does nothing with them, logical decoding skips
 * them, with or without this library, and nobody can make such a message by SQL.
 * Neither the queue file's salt nor stamps, which contain it, are ever in WAL.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_WAL_H
#define PAQ_WAL_H

#include "postgres.h"

#include "access/xlogdefs.h"
#include "port/pg_crc32c.h"
#include "queue/queue_internal.h"

/* Prefix of our messages, with its zero byte */
#define PAQ_WAL_PREFIX		"pg_audit_queue"

#define PAQ_WAL_VERSION		1

/* The worker's replication slot */
#define PAQ_WAL_SLOT		"pg_audit_queue"

/* How many bytes of records, uncompressed, one WAL record may have */
#define PAQ_WAL_MAX_SIZE	(64 * 1024)

typedef enum PaqWalKind
{
	PAQ_WAL_RECORDS = 1,		/* PaqWalFrame, record, PaqWalFrame, record, ... */
	PAQ_WAL_SENTINEL			/* the number of its note, a uint64 */
} PaqWalKind;

typedef enum PaqWalMethod
{
	PAQ_WAL_PLAIN,
	PAQ_WAL_LZ4,
	PAQ_WAL_PGLZ
} PaqWalMethod;

/* What a message begins with; the contents follow, compressed by that method. */
typedef struct PaqWalMessage
{
	uint16		version;		/* PAQ_WAL_VERSION */
	uint8		kind;			/* PaqWalKind */
	uint8		method;			/* PaqWalMethod */
	uint32		size;			/* of the contents, bytes, before compression */
	int64		queue;			/* "created" of the queue file */
} PaqWalMessage;

/* In front of a record, not aligned; PAQ_WAL_FRAME_SIZE bytes */
typedef struct PaqWalFrame
{
	uint64		pos;			/* of its frame in the queue */
	uint32		length;			/* of the record, bytes */
} PaqWalFrame;

#define PAQ_WAL_FRAME_SIZE	(offsetof(PaqWalFrame, length) + sizeof(uint32))

/*
 * What the queue file says of WAL.  There are two, written in turn, behind the
 * checkpoints in their pages.  A file that has none - an earlier release made
 * it, or the setting was never on - needs no WAL.
 *
 * Written by the worker, for the live file, and by the postmaster at start.
 */
typedef struct PaqWalNote
{
	uint64		number;			/* the larger of the two is newer */
	uint64		lsn;			/* where the sentinel of that number begins: what
								 * is in WAL before it, the file or the trail has
								 * durably; 0: they have all */
	uint32		timeline;		/* of that WAL */
	uint32		lost;			/* 1: WAL from there on was needed, and missing */
	pg_crc32c	crc;			/* of the salt and all above */
} PaqWalNote;

/* Where in a page, in bytes; in a sector that the checkpoint does not reach */
#define PAQ_WAL_NOTE_OFFSET	3584

StaticAssertDecl(sizeof(PaqCheckpoint) <= PAQ_WAL_NOTE_OFFSET,
				 "a note must have a sector of its own");

/* wal.c */
extern XLogRecPtr paq_wal_insert(PaqWalKind kind, PaqWalMethod method,
								 uint32 size, const char *data, uint32 len);
extern bool paq_wal_decompress(PaqWalMethod method, const char *data, uint32 len,
							   char *to, uint32 size);

/* file.c */
extern bool paq_wal_note_read(PaqQueueFile *qf, PaqWalNote *note);
extern bool paq_wal_note_write(PaqQueueFile *qf, PaqWalNote *note);

/* restore.c */
extern void paq_wal_restore(PaqQueueFile *qf);

#endif							/* PAQ_WAL_H */
