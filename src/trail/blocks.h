/*-------------------------------------------------------------------------
 *
 * blocks.h
 *		A trail file of blocks: its layout, and how it is written and read.
 *
 * doc/trail_format.md says all that a reader of such files must know, so that one can be
 * written without this source.  The layout of headers is here, too, with what is done to a body.
 *
 * A trail file is a file header, then blocks.  A block has some records, and all definitions
 * that these refer to: it can be read, left out, copied or proved without any other.  Numbers of
 * a header have a fixed size and are little endian.
 *
 *	File header
 *		at	bytes	what
 *		0	8		"PAQAUDIT"
 *		8	2		version of the layout: 1
 *		10	2		bytes of the header, H
 *		12	1		compression of all blocks: 0 none, 1 lz4, 2 zstd
 *		13	1		encryption of all blocks: 0 none, 1 AES-128-GCM, 2 AES-256-GCM
 *		14	1		bytes of the file's own name, N
 *		15	1		bytes of the name of the file before it, P; 0: there is none
 *		16	8		system identifier of the cluster
 *		24	8		series of the records
 *		32	8		sequence of the first record
 *		40	8		when the file was begun, microseconds since 2000-01-01 UTC
 *		48	8		id of the key, zeros if the file is not encrypted
 *		56	32		salt of the file's key, likewise
 *		88	32		hash of the last block of the file before it, zeros if there is none
 *		120	N		name, without directories
 *		120+N	P	name of the file before it
 *		H-4	4		CRC-32C of all before it
 *
 *	Block
 *		at	bytes	what
 *		0	4		"PAQR"
 *		4	2		bytes of the block's header: 136
 *		6	2		reserved: 0
 *		8	4		bytes of the body as it is stored, S
 *		12	4		bytes of the body as it is read, at most 1 MB
 *		16	8		series of the records
 *		24	8		sequence of the first record
 *		32	4		number of records; 0 if there are only pieces of one in a block before
 *		36	4		classes of the records: bit number of the class, 0 for none
 *		40	4		outcomes of the records: PAQ_BLOCK_xxx
 *		44	4		reserved: 0
 *		48	8		smallest log time of a record, microseconds since 2000-01-01 UTC
 *		56	8		largest log time
 *		64	16		identity of the queue that the records come from
 *		80	8		position of the first record in it
 *		88	8		position behind the last one
 *		96	32		hash of the block before, or of the file header: SHA-256 of all its bytes
 *		128	4		CRC-32C of the body as it is stored
 *		132	4		CRC-32C of the header up to here
 *		136	S		body
 *
 * The body is compressed first, as one frame of zstd or lz4, then encrypted.  Encrypted it is
 * salt:16 ciphertext tag:16: the block's key is derived from the file's key and the salt, the
 * nonce is 0, and the block's header up to byte 128 is authenticated with it.  The keys are those
 * of layer.h.
 *
 *	Body: items, one behind the other
 *		kind:1 length:varint content
 *
 *	kind	what		content
 *	1		server		facts about the server, for the records from here on
 *	2		session		what is the same for a session's records; the first in a block has number 0
 *	3		text		what is the same for executions of a statement; the first has number 0
 *	4		record
 *	5		piece		more bytes of a field of the record before
 *
 * An item of an unknown kind is left out, and so is what an item has behind what the reader
 * knows of it.  So later versions can say more, and this one reads what they write.
 *
 * What items of each kind have is only in doc/trail_format.md, under "Items of a block" and "What a
 * record says", in the order in which block_write.c writes it.
 *
 * Nothing here raises, but for lack of memory.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_BLOCKS_H
#define PAQ_BLOCKS_H

#include "record/record.h"
#include "trail/layer.h"

/* Bytes of a body before it is compressed, at most */
#define PAQ_BLOCK_BODY_MAX		(1024 * 1024)

/* Definitions of a block, at most: what bounds a reader's memory beside the body */
#define PAQ_BLOCK_MAX_SESSIONS	4096
#define PAQ_BLOCK_MAX_TEXTS		8192

#define PAQ_BLOCK_HASH_LEN		32
#define PAQ_QUEUE_ID_LEN		16

/* Outcomes of a block's records */
#define PAQ_BLOCK_SUCCEEDED		0x01
#define PAQ_BLOCK_FAILED		0x02
#define PAQ_BLOCK_UNKNOWN		0x04	/* unknown, or the record has none */

/* Offsets from UTC that a block has at most */
#define PAQ_ZONE_OFFSETS		64

/* A time zone, as far as a block's times need it: from a time on, an offset and its name */
typedef struct PaqZone
{
	int			count;			/* of the following, at least 1 */
	int64		from[PAQ_ZONE_OFFSETS]; /* seconds since 1970; the first means nothing */
	int32		offset[PAQ_ZONE_OFFSETS];	/* east of UTC, seconds */
	PaqText		name[PAQ_ZONE_OFFSETS]; /* abbreviation, at most PAQ_ZONE_NAME_LEN - 1 bytes */
} PaqZone;

typedef struct PaqTrailFileHeader
{
	PaqLayers	layers;
	uint64		system_identifier;
	uint64		series;
	uint64		sequence;		/* of the first record */
	TimestampTz begun;
	char		name[256];
	char		before[256];	/* name of the file before it, "" for none */
	uint8		before_hash[PAQ_BLOCK_HASH_LEN];	/* of that one's last block */
} PaqTrailFileHeader;

typedef struct PaqBlockHeader
{
	uint32		stored_len;		/* of the body, bytes */
	uint32		body_len;		/* before it was compressed, bytes */
	uint64		series;
	uint64		sequence;		/* of the first record */
	uint32		nrecords;
	uint32		classes;		/* PAQ_CLASS_BIT(); 1 if there are records without a class */
	uint32		outcomes;		/* PAQ_BLOCK_xxx */
	TimestampTz first_time;		/* smallest log time */
	TimestampTz last_time;		/* largest */
	uint8		queue[PAQ_QUEUE_ID_LEN];
	uint64		queue_from;		/* positions in it */
	uint64		queue_to;
	uint8		before_hash[PAQ_BLOCK_HASH_LEN];
} PaqBlockHeader;

/* block_write.c */

typedef struct PaqBlockWriter PaqBlockWriter;

/*
 * Returns a writer for a new file, in the current memory context; NULL on failure, with error,
 * of PAQ_LAYER_ERROR_LEN bytes.  keys may be freed then; NULL unless the file is encrypted.
 * *data and *len are the file's header, to be written first, valid until the next call.
 */
extern PaqBlockWriter *paq_block_writer_make(const PaqTrailFileHeader *file, const PaqKeys *keys,
											 const char **data, Size *len, char *error);
extern void paq_block_writer_free(PaqBlockWriter *writer);

/* Where a block's records come from, and how they are numbered */
typedef struct PaqBlockOrigin
{
	const uint8 *queue;			/* PAQ_QUEUE_ID_LEN bytes */
	uint64		position;		/* of the first record in it */
	uint64		series;
	uint64		sequence;		/* of the first record */
} PaqBlockOrigin;

/*
 * Begins a block: the last one has been written, or is forgotten.  What server and zone point to
 * is needed only now.
 */
extern void paq_block_begin(PaqBlockWriter *writer, const PaqServer *server, const PaqZone *zone,
							const PaqBlockOrigin *origin);

/*
 * Adds a record, whose series is the block's, and whose sequence follows.  Returns false if the
 * block has no room for it: end it first.  Of a record that no block has room for, the block has
 * the beginnings of its fields: then paq_block_has_rest() returns true, the record must stay, and
 * before anything else is added come as many blocks as it takes with paq_block_add_rest() in each,
 * until that returns true.
 */
extern bool paq_block_add(PaqBlockWriter *writer, const PaqRecord *record);
extern bool paq_block_has_rest(const PaqBlockWriter *writer);
extern bool paq_block_add_rest(PaqBlockWriter *writer);

/*
 * Ends the block, behind whose last record is that position of the queue.  *data and *len are
 * what is to be written, valid until the next call.  False on failure, with error as above.
 */
extern bool paq_block_end(PaqBlockWriter *writer, uint64 queue_to,
						  const char **data, Size *len, char *error);

/* The block is in the file, so the next one goes on with its hash.  Otherwise it is forgotten. */
extern void paq_block_written(PaqBlockWriter *writer);

/* block_read.c */

typedef struct PaqBlockReader PaqBlockReader;

typedef enum PaqBlockResult
{
	PAQ_BLOCK_HERE = 1,
	PAQ_BLOCK_END,				/* the file ends behind a whole block */
	PAQ_BLOCK_CUT,				/* the file ends within a block: it is being written, or was
								 * cut off */
	PAQ_BLOCK_DAMAGED,			/* what is there is no block, or none that was written here */
	PAQ_BLOCK_UNREADABLE		/* for another reason: a key, a library, an error of the system */
} PaqBlockResult;

/*
 * Returns a reader of one file after the other, in the current memory context; keys may be NULL,
 * and have to stay until it is freed.  Its memory is bounded by the limits above, whatever the
 * files hold.
 */
extern PaqBlockReader *paq_block_reader_make(const PaqKeys *keys);
extern void paq_block_reader_free(PaqBlockReader *reader);

/*
 * Reads the header of the file that is open as fd, and has to stay open as long as the reader
 * reads it.  PAQ_BLOCK_HERE if it is all right.
 */
extern PaqBlockResult paq_block_reader_begin(PaqBlockReader *reader, int fd,
											 PaqTrailFileHeader *file);

/* Reads as if the file ended there, at the latest: where what is in it is not final. */
extern void paq_block_reader_limit(PaqBlockReader *reader, uint64 limit);

/* Goes on with the block that begins at that offset; if none does, the next call says so. */
extern void paq_block_reader_seek(PaqBlockReader *reader, uint64 offset);

/*
 * Reads the header of the next block.  After PAQ_BLOCK_END and PAQ_BLOCK_CUT another call goes
 * on with what has been written since.
 */
extern PaqBlockResult paq_block_next(PaqBlockReader *reader, PaqBlockHeader *header);

/* Reads that block's body: without this, it is left out.  Checks its hash, and its key. */
extern PaqBlockResult paq_block_open(PaqBlockReader *reader);

/*
 * The next record of the block, with its server, valid until the next call; PAQ_BLOCK_END if
 * there is none.  Pieces that come before it are left out.
 */
extern PaqBlockResult paq_block_record(PaqBlockReader *reader, PaqRecord *record);

/* How many bytes of a field of the record before are left for pieces */
extern uint64 paq_block_rest(const PaqBlockReader *reader, PaqField field);

/*
 * The next piece of a field of the record before, valid until the next call; PAQ_BLOCK_END if
 * the block has something else, or nothing, there.
 */
extern PaqBlockResult paq_block_piece(PaqBlockReader *reader, PaqField *field, PaqText *piece);

/* Offset of the file behind the last block that paq_block_next() has returned */
extern uint64 paq_block_reader_offset(const PaqBlockReader *reader);

/* Why the last call did not return what was wanted */
extern const char *paq_block_reader_error(const PaqBlockReader *reader);

#endif							/* PAQ_BLOCKS_H */
