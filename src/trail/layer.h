/*-------------------------------------------------------------------------
 *
 * layer.h
 *		The layers of a trail file: compressed, encrypted.
 *
 * Text becomes the bytes of a file in units.  A unit can be read without those
 * before it, and a file may be cut off between any two.
 *
 * Compressed: a unit is a frame as the programs zstd and lz4 write it, with a
 * checksum.  The file is nothing but frames, so that these programs read it.
 *
 * Encrypted: a unit is a block, of text or of one frame.  All numbers are little
 * endian.
 *
 *		file	= header segment...
 *		header	= "PAQTRAIL" version:1 cipher:1 name length:2 key id:8 salt:32 name
 *		segment	= "PAQS" salt:16 tag:16 block...
 *		block	= "PAQB" length:4 ciphertext tag:16
 *
 * The cipher is AES in Galois/Counter mode (NIST SP 800-38D).  Keys are derived by
 * HKDF with SHA-256 (RFC 5869): the file's from the user's key, the file's salt, and
 * cipher and name; the segment's from the file's and the segment's salt.  A segment's
 * tag authenticates its salt, the file's header, and the tag before it; a block's
 * its length and text.  Nonces count from 0, for the segment's tag, within a segment.
 * So a unit that is changed, moved, repeated or left out is noticed, but not units that
 * are missing at the end of the file.  A segment begins whenever what was written
 * before may have been cut off: no nonce is used twice with a key.
 *
 * Writer and reader are for anybody who has such files, within a server or not.
 * Nothing here raises, but for lack of memory.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_LAYER_H
#define PAQ_LAYER_H

#include "c.h"

typedef enum PaqCompression
{
	PAQ_COMPRESSION_NONE,
	PAQ_COMPRESSION_LZ4,
	PAQ_COMPRESSION_ZSTD
} PaqCompression;

/* The values are in the headers of files. */
typedef enum PaqEncryption
{
	PAQ_ENCRYPTION_NONE = 0,
	PAQ_ENCRYPTION_AES_128_GCM = 1,
	PAQ_ENCRYPTION_AES_256_GCM = 2
} PaqEncryption;

typedef struct PaqLayers
{
	PaqCompression compression;
	PaqEncryption encryption;
} PaqLayers;

#define PAQ_LAYER_ERROR_LEN		1024

#define PAQ_KEY_ID_LEN			8	/* bytes */
#define PAQ_KEY_ID_TEXT_LEN		(2 * PAQ_KEY_ID_LEN + 1)

/* Longest text in a unit that the writer makes, in bytes */
#define PAQ_UNIT_TEXT_MAX		(1024 * 1024)

/*
 * Keys for encryption: the first one is used for new files, all of them for those
 * that are there.  In memory that is not swapped out and not part of a core dump,
 * where the system has such.
 */
typedef struct PaqKeys PaqKeys;

typedef struct PaqLayerWriter PaqLayerWriter;
typedef struct PaqLayerReader PaqLayerReader;

typedef enum PaqLayerResult
{
	PAQ_LAYER_TEXT,				/* here is some */
	PAQ_LAYER_END,				/* the file ends behind a whole unit */
	PAQ_LAYER_CUT,				/* the file ends within a unit: it is being
								 * written, or was cut off */
	PAQ_LAYER_FAILED			/* it cannot be read on, see
								 * paq_layer_reader_error() */
} PaqLayerResult;

/* layer.c */

/*
 * Length of a file's name without the endings of its layers; these go to *layers,
 * where encryption is PAQ_ENCRYPTION_NONE or any other value, which only the file's
 * header tells.
 */
extern Size paq_layers_of_name(const char *name, PaqLayers *layers);

/* The endings that the names of files with these layers have, in one string */
extern const char *paq_layers_ending(const PaqLayers *layers);

/* The library that this build lacks for these layers, NULL if it has all. */
extern const char *paq_layers_missing(const PaqLayers *layers);

/* Does a file that begins with these bytes look encrypted? */
extern bool paq_layer_is_encrypted(const char *data, Size len);

/*
 * A name of len bytes, for a message.  Whoever can make files chooses what is in it: what is no
 * printable ASCII becomes \x and two hexadecimal digits.  dst, of size bytes, gets as much
 * as it has space for, with a terminator.
 */
extern void paq_show_name(char *dst, Size size, const char *name, Size len);

/* Space for any name of a file that is shown, with a terminator, in bytes */
#define PAQ_SHOWN_NAME_LEN		(4 * 255 + 1)

/* block_text.c */

/*
 * Returns true if a file of that name is one of blocks (blocks.h), not of text in layers.  What
 * is here reads these, too: as lines of format json, whose units are blocks.
 */
extern bool paq_is_block_file(const char *name);

/*
 * Returns true if the file of that name, without directories, that is open as fd is encrypted: its
 * name says so, or the header of a file of blocks.
 */
extern bool paq_is_encrypted(const char *name, int fd);

/* key.c */

/*
 * The keys in a text of lines, each a key in hexadecimal digits, in order; lines
 * that are empty or begin with # count for nothing.  NULL if there is none or a line
 * is something else; then error, of PAQ_LAYER_ERROR_LEN bytes, says why, without showing
 * any of the text.
 */
extern PaqKeys *paq_keys_parse(const char *text, Size len, char *error);
extern void paq_keys_free(PaqKeys *keys);

/*
 * The id of the first key in hexadecimal digits; false if its length is not that which
 * the cipher needs, with error as above.
 */
extern bool paq_keys_check(const PaqKeys *keys, PaqEncryption encryption,
						   char id[PAQ_KEY_ID_TEXT_LEN], char *error);

/* Overwrite secrets. */
extern void paq_forget_secret(void *data, Size len);

/* writer.c */

/*
 * A writer for a file with these layers, called name, which is without directories.
 * keys may be freed then; NULL unless it is encrypted.  NULL, with error as above, on
 * failure.
 */
extern PaqLayerWriter *paq_layer_writer_make(const PaqLayers *layers, const char *name,
											 const PaqKeys *keys, char *error);

/*
 * The same for a file that is there, not empty, and open as fd.  If it is not one that
 * paq_layer_writer_make() would begin with these arguments, *fits becomes false.
 */
extern PaqLayerWriter *paq_layer_writer_resume(const PaqLayers *layers, const char *name,
											   const PaqKeys *keys, int fd,
											   bool *fits, char *error);
extern void paq_layer_writer_free(PaqLayerWriter *writer);

/*
 * Make a unit of at most PAQ_UNIT_TEXT_MAX bytes of text, to be written at that offset
 * of the file that is open as fd, where it must end.  *out and *out_len are what is to be
 * written, valid until the next call.  False on failure, with error as above.
 */
extern bool paq_layer_write(PaqLayerWriter *writer, int fd, uint64 offset,
							const char *data, Size len,
							const char **out, Size *out_len, char *error);

/* reader.c */

/*
 * A reader of the file that is open as fd, whose name says which layers it has.  keys may be
 * NULL, and have to stay until the reader is freed.
 */
extern PaqLayerReader *paq_layer_reader_make(int fd, const char *name,
											 const PaqKeys *keys);
extern void paq_layer_reader_free(PaqLayerReader *reader);

/* Read as if the file ended there, at the latest: where what is in it is not final. */
extern void paq_layer_reader_limit(PaqLayerReader *reader, uint64 limit);

/*
 * Read on at an offset of the file that is between two units.  False if there is no such
 * place, or that cannot be found out, see paq_layer_reader_error().
 */
extern bool paq_layer_reader_seek(PaqLayerReader *reader, uint64 offset);

/*
 * The next piece of text, valid until the next call; it may be empty.  After PAQ_LAYER_END and
 * PAQ_LAYER_CUT another call goes on with what has been written since.
 */
extern PaqLayerResult paq_layer_read(PaqLayerReader *reader,
									 const char **data, Size *len);

/*
 * Offset behind the last unit all of which has been read.  *whole tells whether that is
 * all the text that has been read.
 */
extern uint64 paq_layer_reader_offset(const PaqLayerReader *reader, bool *whole);

/* Why the file could not be read on; *damaged: because of what is in it. */
extern const char *paq_layer_reader_error(const PaqLayerReader *reader, bool *damaged);

#endif							/* PAQ_LAYER_H */
