/*-------------------------------------------------------------------------
 *
 * writer.c
 *		Text becomes the units of a trail file.
 *
 * layer.h has the layout.  An encrypted file's header, and a segment's, are part of
 * what is written with the next block, so that no file has one without the other.
 *
 * Guarantees: what has been made is never made with the same key and nonce again,
 * whatever comes of it.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "trail/layer_internal.h"

#include <unistd.h>

#include "file_util.h"

struct PaqLayerWriter
{
	PaqLayers	layers;
	void	   *context;		/* of the compression */
	PaqBlockCipher cipher;
	uint64		end;			/* offset where a block can go on with the segment
								 * that was begun; 0: nowhere */
	char	   *out;			/* OUT_SIZE bytes */
};

/* What a unit needs at most: before it, and itself */
#define OUT_SIZE	(PAQ_HEADER_MAX + PAQ_SEGMENT_LEN + \
					 PAQ_BLOCK_HEAD_LEN + PAQ_UNIT_MAX + PAQ_TAG_LEN)

/* NULL if there is no memory. */
static PaqLayerWriter *
alloc_writer(const PaqLayers *layers, char *error)
{
	PaqLayerWriter *writer = palloc_extended(sizeof(PaqLayerWriter),
											 MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);

	if (writer != NULL)
	{
		writer->layers = *layers;
		writer->out = palloc_extended(OUT_SIZE, MCXT_ALLOC_NO_OOM);
		if (writer->out != NULL)
			return writer;
		pfree(writer);
	}
	strlcpy(error, "out of memory", PAQ_LAYER_ERROR_LEN);
	return NULL;
}

void
paq_layer_writer_free(PaqLayerWriter *writer)
{
	if (writer == NULL)
		return;
	if (writer->context != NULL)
		paq_frame_compress_end(writer->layers.compression, writer->context);
	paq_block_forget(&writer->cipher);
	pfree(writer->out);
	pfree(writer);
}

PaqLayerWriter *
paq_layer_writer_make(const PaqLayers *layers, const char *name,
					  const PaqKeys *keys, char *error)
{
	PaqLayerWriter *writer = alloc_writer(layers, error);

	if (writer == NULL)
		return NULL;
	if (layers->encryption == PAQ_ENCRYPTION_NONE ||
		paq_block_new_file(&writer->cipher, layers->encryption, name, keys, error))
		return writer;
	paq_layer_writer_free(writer);
	return NULL;
}

PaqLayerWriter *
paq_layer_writer_resume(const PaqLayers *layers, const char *name,
						const PaqKeys *keys, int fd, bool *fits, char *error)
{
	PaqLayerWriter *writer = alloc_writer(layers, error);
	uint8		header[PAQ_HEADER_MAX];
	bool		damaged;
	ssize_t		len;

	*fits = true;
	if (writer == NULL || layers->encryption == PAQ_ENCRYPTION_NONE)
		return writer;
	len = pread(fd, header, sizeof(header), 0);
	if (len < 0)
		snprintf(error, PAQ_LAYER_ERROR_LEN, "%s", strerror(errno));
	else
	{
		*fits = paq_block_open_file(&writer->cipher, header, len, name, keys,
									&damaged, error) &&
			paq_block_is_current(&writer->cipher, layers->encryption, keys);
		if (*fits)
			return writer;
	}
	paq_layer_writer_free(writer);
	return NULL;
}

/*
 * Put what has to precede the next block at dst; *len becomes its length.  The next
 * block needs a segment of its own unless it is written where the last one ended: whatever
 * was written behind that place may have been read by somebody before it was cut off.
 */
static bool
begin_block(PaqLayerWriter *writer, int fd, uint64 offset, uint8 *dst, Size *len,
			char *error)
{
	PaqBlockCipher *cipher = &writer->cipher;

	*len = 0;
	if (offset == writer->end && offset > 0)
		return true;
	writer->end = 0;
	if (offset == 0)
	{
		memcpy(dst, cipher->header, cipher->header_len);
		*len = cipher->header_len;
		memset(cipher->tag, 0, PAQ_TAG_LEN);
	}
	else if (!paq_read_all(fd, (char *) cipher->tag, PAQ_TAG_LEN, offset - PAQ_TAG_LEN))
	{
		snprintf(error, PAQ_LAYER_ERROR_LEN, "could not read the end of the file: %s",
				 strerror(errno));
		return false;
	}
	if (!paq_block_new_segment(cipher, dst + *len))
	{
		strlcpy(error, "OpenSSL could not make a key", PAQ_LAYER_ERROR_LEN);
		return false;
	}
	*len += PAQ_SEGMENT_LEN;
	return true;
}

/* Compress the text to dst if that is a layer; *data and *len become what is there. */
static bool
compress(PaqLayerWriter *writer, char *dst, Size size,
		 const char **data, Size *len, char *error)
{
	if (writer->layers.compression == PAQ_COMPRESSION_NONE)
		return true;
	*len = paq_frame_compress(writer->layers.compression, &writer->context,
							  dst, size, *data, *len);
	*data = dst;
	if (*len == 0)
		strlcpy(error, "it could not be compressed", PAQ_LAYER_ERROR_LEN);
	return *len > 0;
}

bool
paq_layer_write(PaqLayerWriter *writer, int fd, uint64 offset,
				const char *data, Size len,
				const char **out, Size *out_len, char *error)
{
	const bool	encrypted = writer->layers.encryption != PAQ_ENCRYPTION_NONE;
	uint8	   *block = (uint8 *) writer->out;
	char	   *text = writer->out;
	Size		before = 0;

	if (encrypted)
	{
		if (!begin_block(writer, fd, offset, block, &before, error))
			return false;
		block += before;
		text += before + PAQ_BLOCK_HEAD_LEN;
	}
	if (!compress(writer, text, PAQ_UNIT_MAX, &data, &len, error))
		return false;
	*out = data;
	*out_len = len;
	if (encrypted)
	{
		*out = writer->out;
		*out_len = before + PAQ_BLOCK_HEAD_LEN + len + PAQ_TAG_LEN;
		if (!paq_block_encrypt(&writer->cipher, block, data, len))
		{
			strlcpy(error, "OpenSSL could not encrypt it", PAQ_LAYER_ERROR_LEN);
			writer->end = 0;
			return false;
		}
	}
	writer->end = offset + *out_len;
	return true;
}
