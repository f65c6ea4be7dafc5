/*-------------------------------------------------------------------------
 *
 * layer_internal.h
 *		What the files of the layers share.
 *
 *	layer.c		names of files and their layers
 *	key.c		keys as users give them, and those derived from them
 *	block.c		blocks of encrypted files
 *	frame.c		compressed frames
 *	writer.c	text becomes units
 *	reader.c	units become text
 *	block_text.c	so do blocks of records, see blocks.h
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_LAYER_INTERNAL_H
#define PAQ_LAYER_INTERNAL_H

#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "trail/layer.h"

#define PAQ_KEY_MAX_LEN		32	/* bytes */

/* Longest name that the header of an encrypted file may have, in bytes */
#define PAQ_LAYER_NAME_MAX	255

/* Space for a frame of PAQ_UNIT_TEXT_MAX bytes of text, whatever they are */
#define PAQ_UNIT_MAX		(PAQ_UNIT_TEXT_MAX + 64 * 1024)

/* Parts of an encrypted file; layer.h has what is in them.  In bytes. */
#define PAQ_HEADER_MIN		52
#define PAQ_HEADER_MAX		(PAQ_HEADER_MIN + PAQ_LAYER_NAME_MAX)
#define PAQ_SEGMENT_LEN		36
#define PAQ_BLOCK_HEAD_LEN	8
#define PAQ_TAG_LEN			16

/* A key; in the memory of paq_secret_alloc() */
typedef struct PaqSecret
{
	uint8		key[PAQ_KEY_MAX_LEN];
	Size		len;			/* bytes */
} PaqSecret;

/* The secrets of a file while it is read or written */
typedef struct PaqBlockCipher
{
	PaqEncryption encryption;
	uint8		header[PAQ_HEADER_MAX];
	Size		header_len;
	PaqSecret  *file;			/* its key, and */
	PaqSecret  *segment;		/* that of the segment */
	uint64		counter;		/* of the segment's nonces: the next one */
	uint8		tag[PAQ_TAG_LEN];	/* the last one */
} PaqBlockCipher;

/* What the next bytes of an encrypted file are */
typedef enum PaqBlockKind
{
	PAQ_BLOCK_SEGMENT,
	PAQ_BLOCK_DATA,
	PAQ_BLOCK_UNKNOWN
} PaqBlockKind;

/* A decompressor of one frame after the other */
typedef struct PaqFrames PaqFrames;

/* key.c */
extern PaqSecret *paq_secret_alloc(void);
extern void paq_secret_free(PaqSecret *secret);
extern bool paq_random_bytes(uint8 *dst, Size len);
extern bool paq_derive(PaqSecret *dst, Size len, const PaqSecret *from,
					   const uint8 *salt, Size salt_len,
					   const void *info, Size info_len);
extern const PaqSecret *paq_keys_first(const PaqKeys *keys);
extern const PaqSecret *paq_keys_find(const PaqKeys *keys, const uint8 *id);
extern bool paq_key_id(const PaqSecret *key, uint8 id[PAQ_KEY_ID_LEN]);
extern void paq_key_id_text(const uint8 *id, char text[PAQ_KEY_ID_TEXT_LEN]);
extern Size paq_key_len(PaqEncryption encryption);

/* block.c */
extern bool paq_block_new_file(PaqBlockCipher *cipher, PaqEncryption encryption,
							   const char *name, const PaqKeys *keys, char *error);
extern bool paq_block_open_file(PaqBlockCipher *cipher, const uint8 *data, Size len,
								const char *name, const PaqKeys *keys,
								bool *damaged, char *error);
extern bool paq_block_is_current(const PaqBlockCipher *cipher,
								 PaqEncryption encryption, const PaqKeys *keys);
extern Size paq_block_header_len(const uint8 *data, Size len);
extern bool paq_block_new_segment(PaqBlockCipher *cipher, uint8 *dst);
extern bool paq_block_open_segment(PaqBlockCipher *cipher, const uint8 *src);
extern bool paq_block_encrypt(PaqBlockCipher *cipher, uint8 *dst,
							  const char *data, Size len);
extern bool paq_block_decrypt(PaqBlockCipher *cipher, const uint8 *src, char *data);
extern void paq_block_skip(PaqBlockCipher *cipher, const uint8 *src, Size len);
extern PaqBlockKind paq_block_kind(const uint8 *src, Size *len);
extern void paq_block_forget(PaqBlockCipher *cipher);
extern bool paq_body_new_file(PaqBlockCipher *cipher, PaqEncryption encryption,
							  const char *name, const PaqKeys *keys, uint8 *dst, char *error);
extern bool paq_body_open_file(PaqBlockCipher *cipher, PaqEncryption encryption,
							   const char *name, const PaqKeys *keys, const uint8 *src,
							   bool *damaged, char *error);
extern bool paq_body_encrypt(PaqBlockCipher *cipher, uint8 *dst, const char *data, Size len,
							 const uint8 *aad, Size aad_len);
extern bool paq_body_decrypt(PaqBlockCipher *cipher, char *data, const uint8 *src, Size len,
							 const uint8 *aad, Size aad_len);

/* block_text.c: what reader.c does, for files of blocks */
typedef struct PaqBlockText PaqBlockText;

extern PaqBlockText *paq_block_text_make(int fd, const PaqKeys *keys);
extern void paq_block_text_free(PaqBlockText *blocks);
extern void paq_block_text_limit(PaqBlockText *blocks, uint64 limit);
extern bool paq_block_text_seek(PaqBlockText *blocks, uint64 offset);
extern PaqLayerResult paq_block_text_read(PaqBlockText *blocks, const char **data, Size *len);
extern uint64 paq_block_text_offset(const PaqBlockText *blocks, bool *whole);
extern const char *paq_block_text_error(const PaqBlockText *blocks, bool *damaged);

/* frame.c */
extern Size paq_frame_compress(PaqCompression compression, void **context,
							   char *dst, Size size, const char *data, Size len);
extern void paq_frame_compress_end(PaqCompression compression, void *context);
extern PaqFrames *paq_frames_make(PaqCompression compression);
extern void paq_frames_reset(PaqFrames *frames);
extern void paq_frames_free(PaqFrames *frames);
extern bool paq_frames_read(PaqFrames *frames, const char *src, Size *src_len,
							char *dst, Size *dst_len, bool *frame_ends);
extern const char *paq_frames_error(const PaqFrames *frames);

#endif							/* PAQ_LAYER_INTERNAL_H */
