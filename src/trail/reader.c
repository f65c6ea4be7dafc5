/*-------------------------------------------------------------------------
 *
 * reader.c
 *		The units of a trail file become text.
 *
 * The file is read in pieces, forward, in bounded memory, whatever it holds.  A
 * unit that is not all there yet can be read again later: the text that was handed
 * out of its beginning is left out then.
 *
 * Guarantees: of an encrypted file, no text is handed out that is not authentic.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "trail/layer_internal.h"

#include <sys/stat.h>
#include <unistd.h>

#include "file_util.h"

#define TEXT_SIZE	(256 * 1024)

/* Bytes of the file that are kept: one block at least */
#define INPUT_SIZE	(PAQ_BLOCK_HEAD_LEN + PAQ_UNIT_MAX + PAQ_TAG_LEN)

struct PaqLayerReader
{
	int			fd;
	PaqBlockText *blocks;		/* NULL: it is no file of blocks, and has the following */
	PaqLayers	layers;
	char		name[MAXPGPATH];
	const PaqKeys *keys;

	/* Between two units */
	uint64		offset;			/* behind the last unit all of which was read */
	uint64		handed_out;		/* bytes of text of the one that begins there */

	/* Within a unit */
	uint64		to_skip;		/* bytes of its text that were handed out before */
	char	   *input;			/* INPUT_SIZE bytes; of the file, from pos on: */
	uint64		pos;
	uint64		limit;			/* of the file, nothing is read from here on */
	Size		input_start;	/* those from here on were not used yet, */
	Size		input_end;		/* up to here */
	char	   *block;			/* what the block had, if it is a frame; same size */
	Size		block_pos;		/* of it, what was not used yet */
	Size		block_end;
	char	   *text;			/* TEXT_SIZE bytes, if compressed */
	bool		in_frame;		/* of which not all has been read, */
	bool		more_text;		/* perhaps because text was full */

	PaqBlockCipher cipher;
	PaqFrames  *frames;
	bool		failed;			/* for good */
	bool		damaged;
	char		error[PAQ_LAYER_ERROR_LEN];
};

PaqLayerReader *
paq_layer_reader_make(int fd, const char *name, const PaqKeys *keys)
{
	PaqLayerReader *reader = palloc0(sizeof(PaqLayerReader));

	if (paq_is_block_file(name))
	{
		reader->blocks = paq_block_text_make(fd, keys);
		return reader;
	}
	reader->fd = fd;
	reader->limit = PG_UINT64_MAX;
	reader->keys = keys;
	strlcpy(reader->name, name, sizeof(reader->name));
	(void) paq_layers_of_name(name, &reader->layers);
	reader->input = palloc(INPUT_SIZE);
	if (reader->layers.compression != PAQ_COMPRESSION_NONE)
	{
		reader->text = palloc(TEXT_SIZE);
		if (reader->layers.encryption != PAQ_ENCRYPTION_NONE)
			reader->block = palloc(INPUT_SIZE);
	}
	return reader;
}

void
paq_layer_reader_limit(PaqLayerReader *reader, uint64 limit)
{
	if (reader->blocks != NULL)
		paq_block_text_limit(reader->blocks, limit);
	reader->limit = limit;
}

void
paq_layer_reader_free(PaqLayerReader *reader)
{
	if (reader == NULL)
		return;
	if (reader->blocks != NULL)
	{
		paq_block_text_free(reader->blocks);
		pfree(reader);
		return;
	}
	paq_frames_free(reader->frames);
	paq_block_forget(&reader->cipher);
	pfree(reader->input);
	if (reader->text != NULL)
		pfree(reader->text);
	if (reader->block != NULL)
		pfree(reader->block);
	pfree(reader);
}

uint64
paq_layer_reader_offset(const PaqLayerReader *reader, bool *whole)
{
	if (reader->blocks != NULL)
		return paq_block_text_offset(reader->blocks, whole);
	*whole = reader->handed_out == 0;
	return reader->offset;
}

const char *
paq_layer_reader_error(const PaqLayerReader *reader, bool *damaged)
{
	if (reader->blocks != NULL)
		return paq_block_text_error(reader->blocks, damaged);
	*damaged = reader->damaged;
	return reader->error;
}

static PaqLayerResult
fail(PaqLayerReader *reader, bool damaged, const char *error)
{
	if (error != reader->error)
		strlcpy(reader->error, error, sizeof(reader->error));
	reader->failed = true;
	reader->damaged = damaged;
	return PAQ_LAYER_FAILED;
}

/* Bytes that were read and not used yet */
static Size
available(const PaqLayerReader *reader)
{
	return reader->input_end - reader->input_start;
}

/* Forget what was read of the unit that begins at offset. */
static void
rewind_unit(PaqLayerReader *reader)
{
	reader->pos = reader->offset;
	reader->input_start = reader->input_end = 0;
	reader->block_pos = reader->block_end = 0;
	reader->to_skip = reader->handed_out;
	reader->in_frame = reader->more_text = false;
	if (reader->frames != NULL)
		paq_frames_reset(reader->frames);
}

/* Use len bytes of what was read. */
static void
use_input(PaqLayerReader *reader, Size len)
{
	reader->input_start += len;
	reader->pos += len;
}

/* A unit has been read to its end. */
static void
finish_unit(PaqLayerReader *reader)
{
	reader->offset = reader->pos;
	reader->handed_out = 0;
	reader->to_skip = 0;
}

/*
 * Have "want" bytes of the file ready, at most INPUT_SIZE, or as many as it has.  False on
 * failure.
 */
static bool
read_input(PaqLayerReader *reader, Size want)
{
	if (available(reader) >= want)
		return true;
	memmove(reader->input, reader->input + reader->input_start, available(reader));
	reader->input_end -= reader->input_start;
	reader->input_start = 0;
	while (reader->input_end < want)
	{
		const uint64 at = reader->pos + reader->input_end;
		const Size	len = at >= reader->limit ? 0 :
			Min(Max(want, TEXT_SIZE) - reader->input_end, reader->limit - at);
		ssize_t		n = pread(reader->fd, reader->input + reader->input_end, len, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
		{
			snprintf(reader->error, sizeof(reader->error), "could not read it: %s",
					 strerror(errno));
			return false;
		}
		if (n == 0)
			break;
		reader->input_end += n;
	}
	return true;
}

/* The file ends here, for now. */
static PaqLayerResult
end_of_file(PaqLayerReader *reader)
{
	const bool	whole = reader->pos + available(reader) == reader->offset &&
		reader->handed_out == 0;

	rewind_unit(reader);
	return whole ? PAQ_LAYER_END : PAQ_LAYER_CUT;
}

/*
 * Hand out len bytes of text of a unit, but for those that were before.  PAQ_LAYER_END
 * stands for none.
 */
static PaqLayerResult
hand_out(PaqLayerReader *reader, const char *text, Size text_len,
		 const char **data, Size *len)
{
	const Size	skip = Min(reader->to_skip, text_len);

	reader->to_skip -= skip;
	*data = text + skip;
	*len = text_len - skip;
	reader->handed_out += *len;
	return *len > 0 ? PAQ_LAYER_TEXT : PAQ_LAYER_END;
}

static PaqLayerResult
read_plain(PaqLayerReader *reader, const char **data, Size *len)
{
	if (!read_input(reader, 1))
		return fail(reader, false, reader->error);
	if (available(reader) == 0)
		return end_of_file(reader);
	*data = reader->input + reader->input_start;
	*len = available(reader);
	use_input(reader, *len);
	finish_unit(reader);
	return PAQ_LAYER_TEXT;
}

/*
 * Read on in a frame, of which *src_len bytes are at src; *src_len becomes how many of them
 * were used.  PAQ_LAYER_END: there is no text to be handed out yet.
 */
static PaqLayerResult
read_frame(PaqLayerReader *reader, const char *src, Size *src_len,
		   const char **data, Size *len)
{
	const Size	src_size = *src_len;
	Size		text_len = 0;
	bool		ends;

	/* Behind a frame's last text there may be its end. */
	*src_len = 0;
	do
	{
		Size		used = src_size - *src_len;
		Size		made = TEXT_SIZE - text_len;

		if (!paq_frames_read(reader->frames, src + *src_len, &used,
							 reader->text + text_len, &made, &ends))
		{
			snprintf(reader->error, sizeof(reader->error),
					 "a compressed frame is damaged: %s", paq_frames_error(reader->frames));
			return fail(reader, true, reader->error);
		}
		if (used == 0 && made == 0 && !ends)
			return fail(reader, true, "a compressed frame does not end");
		*src_len += used;
		text_len += made;
	} while (!ends && *src_len < src_size && text_len < TEXT_SIZE);
	reader->in_frame = !ends;
	reader->more_text = !ends && text_len == TEXT_SIZE;
	return hand_out(reader, reader->text, text_len, data, len);
}

static PaqLayerResult
read_compressed(PaqLayerReader *reader, const char **data, Size *len)
{
	PaqLayerResult result;

	do
	{
		Size		used;

		if (!read_input(reader, 1))
			return fail(reader, false, reader->error);
		used = available(reader);
		if (used == 0 && !reader->more_text)
			return end_of_file(reader);
		result = read_frame(reader, reader->input + reader->input_start, &used, data, len);
		use_input(reader, used);
		if (result != PAQ_LAYER_FAILED && !reader->in_frame)
			finish_unit(reader);
	} while (result == PAQ_LAYER_END);
	return result;
}

/* Read the header of an encrypted file, which is at its start. */
static PaqLayerResult
open_encrypted_file(PaqLayerReader *reader)
{
	const uint8 *header;
	bool		damaged;

	if (reader->cipher.header_len > 0)
		return PAQ_LAYER_TEXT;
	if (!read_input(reader, PAQ_HEADER_MAX))
		return fail(reader, false, reader->error);
	header = (const uint8 *) reader->input + reader->input_start;
	if (available(reader) < PAQ_HEADER_MIN)
		return end_of_file(reader);
	if (!paq_block_open_file(&reader->cipher, header, available(reader),
							 reader->name, reader->keys, &damaged, reader->error))
		return fail(reader, damaged, reader->error);
	use_input(reader, reader->cipher.header_len);
	finish_unit(reader);
	return PAQ_LAYER_TEXT;
}

/* The next block, or segment, is all there; *block is where, *len how long. */
static PaqLayerResult
next_block(PaqLayerReader *reader, PaqBlockKind *kind, const uint8 **block, Size *len)
{
	if (!read_input(reader, PAQ_BLOCK_HEAD_LEN))
		return fail(reader, false, reader->error);
	if (available(reader) < PAQ_BLOCK_HEAD_LEN)
		return end_of_file(reader);
	*kind = paq_block_kind((uint8 *) reader->input + reader->input_start, len);
	if (*kind == PAQ_BLOCK_UNKNOWN ||
		(*kind == PAQ_BLOCK_DATA && reader->cipher.counter == 0))
		return fail(reader, true, "there is no block where one must begin");
	if (!read_input(reader, *len))
		return fail(reader, false, reader->error);
	if (available(reader) < *len)
		return end_of_file(reader);
	*block = (uint8 *) reader->input + reader->input_start;
	return PAQ_LAYER_TEXT;
}

/* Read on in the frame that the last block has. */
static PaqLayerResult
read_block_frame(PaqLayerReader *reader, const char **data, Size *len)
{
	Size		used = reader->block_end - reader->block_pos;
	PaqLayerResult result = read_frame(reader, reader->block + reader->block_pos, &used,
									   data, len);

	reader->block_pos += used;
	if (result != PAQ_LAYER_FAILED && !reader->in_frame)
	{
		if (reader->block_pos < reader->block_end)
			return fail(reader, true, "a block has more than one compressed frame");
		finish_unit(reader);
	}
	return result;
}

/* Decrypt the block, and hand out its text, unless it is compressed. */
static PaqLayerResult
open_block(PaqLayerReader *reader, const uint8 *block, Size block_len,
		   const char **data, Size *len)
{
	char	   *text = reader->block != NULL ? reader->block :
		reader->input + reader->input_start + PAQ_BLOCK_HEAD_LEN;
	const Size	text_len = block_len - PAQ_BLOCK_HEAD_LEN - PAQ_TAG_LEN;

	if (!paq_block_decrypt(&reader->cipher, block, text))
		return fail(reader, true, "a block is not authentic");
	use_input(reader, block_len);
	if (reader->block != NULL)
	{
		reader->block_pos = 0;
		reader->block_end = text_len;
		reader->in_frame = true;
		return PAQ_LAYER_END;
	}
	*data = text;
	*len = text_len;
	finish_unit(reader);
	return PAQ_LAYER_TEXT;
}

/* Go on behind the segment that begins there. */
static PaqLayerResult
open_segment(PaqLayerReader *reader, const uint8 *segment)
{
	if (!paq_block_open_segment(&reader->cipher, segment))
		return fail(reader, true, "the beginning of a segment is not authentic");
	use_input(reader, PAQ_SEGMENT_LEN);
	finish_unit(reader);
	return PAQ_LAYER_END;
}

static PaqLayerResult
read_encrypted(PaqLayerReader *reader, const char **data, Size *len)
{
	PaqLayerResult result;
	PaqBlockKind kind;
	const uint8 *block;
	Size		block_len;

	do
	{
		if (reader->in_frame)
			result = read_block_frame(reader, data, len);
		else if ((result = open_encrypted_file(reader)) == PAQ_LAYER_TEXT &&
				 (result = next_block(reader, &kind, &block, &block_len)) == PAQ_LAYER_TEXT)
			result = kind == PAQ_BLOCK_SEGMENT ? open_segment(reader, block) :
				open_block(reader, block, block_len, data, len);
		else
			return result;
	} while (result == PAQ_LAYER_END);
	return result;
}

PaqLayerResult
paq_layer_read(PaqLayerReader *reader, const char **data, Size *len)
{
	const char *missing = paq_layers_missing(&reader->layers);

	if (reader->blocks != NULL)
		return paq_block_text_read(reader->blocks, data, len);
	if (reader->failed)
		return PAQ_LAYER_FAILED;
	if (missing != NULL)
	{
		snprintf(reader->error, sizeof(reader->error), "this build has no %s", missing);
		return fail(reader, false, reader->error);
	}
	if (reader->layers.compression != PAQ_COMPRESSION_NONE && reader->frames == NULL)
	{
		reader->frames = paq_frames_make(reader->layers.compression);
		if (reader->frames == NULL)
			return fail(reader, false, "out of memory");
	}
	if (reader->layers.encryption != PAQ_ENCRYPTION_NONE)
		return read_encrypted(reader, data, len);
	return reader->layers.compression != PAQ_COMPRESSION_NONE ?
		read_compressed(reader, data, len) : read_plain(reader, data, len);
}

/*
 * Go through the units of an encrypted file up to the offset, without looking at what the
 * blocks have: their tags depend on their number.
 */
static bool
skip_blocks(PaqLayerReader *reader, uint64 offset)
{
	PaqBlockKind kind;
	const uint8 *block;
	Size		block_len;

	paq_block_forget(&reader->cipher);
	while (reader->pos < offset)
	{
		if (open_encrypted_file(reader) != PAQ_LAYER_TEXT ||
			next_block(reader, &kind, &block, &block_len) != PAQ_LAYER_TEXT)
			return false;
		if (kind == PAQ_BLOCK_SEGMENT)
		{
			if (open_segment(reader, block) == PAQ_LAYER_FAILED)
				return false;
		}
		else
		{
			paq_block_skip(&reader->cipher, block, block_len);
			use_input(reader, block_len);
			finish_unit(reader);
		}
	}
	return reader->pos == offset;
}

bool
paq_layer_reader_seek(PaqLayerReader *reader, uint64 offset)
{
	const bool	encrypted = reader->layers.encryption != PAQ_ENCRYPTION_NONE;

	if (reader->blocks != NULL)
		return paq_block_text_seek(reader->blocks, offset);
	reader->failed = reader->damaged = false;
	reader->offset = encrypted ? 0 : offset;
	reader->handed_out = 0;
	rewind_unit(reader);
	if (!encrypted || skip_blocks(reader, offset))
		return true;
	if (!reader->failed)
		(void) fail(reader, true, "no block ends there");
	return false;
}
