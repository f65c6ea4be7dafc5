/*-------------------------------------------------------------------------
 *
 * blocks_internal.h
 *		What writing and reading of blocks share: numbers, and where they are.
 *
 *	block_write.c	records become blocks
 *	block_read.c	blocks become records
 *
 * blocks.h has the layout.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_BLOCKS_INTERNAL_H
#define PAQ_BLOCKS_INTERNAL_H

#include "trail/layer_internal.h"

#include "file_util.h"
#include "trail/blocks.h"

#define PAQ_FILE_MAGIC		"PAQAUDIT"
#define PAQ_FILE_VERSION	1
#define PAQ_FILE_FIXED		120		/* bytes of the header before the names */
#define PAQ_FILE_HEADER_MAX	(PAQ_FILE_FIXED + 2 * 255 + 4)

#define PAQ_BLOCK_MAGIC		"PAQR"
#define PAQ_BLOCK_HEADER	136

/* The header up to here is authenticated with an encrypted body. */
#define PAQ_BLOCK_AUTHENTIC	128

/* What encryption adds to a body, in bytes */
#define PAQ_BODY_SALT_LEN	16
#define PAQ_BODY_CIPHER_LEN	(PAQ_BODY_SALT_LEN + PAQ_TAG_LEN)

/* Space for a stored body, whatever is in it */
#define PAQ_BODY_STORED_MAX	(PAQ_UNIT_MAX + PAQ_BODY_CIPHER_LEN)

StaticAssertDecl(PAQ_BLOCK_BODY_MAX <= PAQ_UNIT_TEXT_MAX, "a frame has room for a body");
StaticAssertDecl(PAQ_COMPRESSION_NONE == 0 && PAQ_COMPRESSION_LZ4 == 1 &&
				 PAQ_COMPRESSION_ZSTD == 2, "values in the headers of files");

/*
 * Files have the numbers of PaqField.  A new field comes before the message there, which changes
 * that one's number: whoever adds one writes a table of numbers here, in which it is 23.
 */
StaticAssertDecl(PAQ_FIELD_COMMAND == 11 && PAQ_FIELD_SETTINGS == 20 &&
				 PAQ_FIELD_MESSAGE == 22 && PAQ_NFIELDS == 23, "numbers of fields in files");

/* Kinds of items */
#define PAQ_ITEM_SERVER		1
#define PAQ_ITEM_SESSION	2
#define PAQ_ITEM_TEXT		3
#define PAQ_ITEM_RECORD		4
#define PAQ_ITEM_PIECE		5

/* The mask of a record */
#define PAQ_MASK_NO_START	0x0001
#define PAQ_MASK_NO_END		0x0002
#define PAQ_MASK_IDS		0x0004
#define PAQ_MASK_LINE		0x0008
#define PAQ_MASK_LXID		0x0010
#define PAQ_MASK_XID		0x0020
#define PAQ_MASK_ROWS		0x0040
#define PAQ_MASK_SQLSTATE	0x0080
#define PAQ_MASK_FIELDS		0x0100
#define PAQ_MASK_KIND		0x0200
#define PAQ_MASK_PIECES		0x0400

/* What a server has, in bytes, at most: names of a host and a cluster are short */
#define PAQ_SERVER_MAX	(16 * 1024)

/* Privileges of a session */
#define PAQ_PRIVILEGES_UNKNOWN	0
#define PAQ_PRIVILEGES_ORDINARY	1
#define PAQ_PRIVILEGES_SUPERUSER	2

/* Bytes of the longest varint */
#define PAQ_VARINT_MAX		10

static inline uint64
paq_zigzag(int64 value)
{
	return ((uint64) value << 1) ^ (uint64) (value >> 63);
}

static inline int64
paq_unzigzag(uint64 value)
{
	return (int64) (value >> 1) ^ -(int64) (value & 1);
}

static inline char *
paq_put_varint(char *p, uint64 value)
{
	while (value >= 0x80)
	{
		*p++ = (char) (value | 0x80);
		value >>= 7;
	}
	*p++ = (char) value;
	return p;
}

static inline char *
paq_put_signed(char *p, int64 value)
{
	return paq_put_varint(p, paq_zigzag(value));
}

/* Puts a number of so many bytes, the lowest first; returns where the next one goes. */
static inline char *
paq_put_fixed(char *p, uint64 value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		*p++ = (char) (value >> (8 * i));
	return p;
}

static inline uint64
paq_get_fixed(const char *p, int bytes)
{
	uint64		value = 0;

	while (bytes > 0)
		value = value << 8 | (uint8) p[--bytes];
	return value;
}

/* block_write.c */
extern bool paq_block_hash(uint8 *dst, const char *data, Size len,
						   const char *more, Size more_len);

#endif							/* PAQ_BLOCKS_INTERNAL_H */
