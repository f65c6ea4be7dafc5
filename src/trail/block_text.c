/*-------------------------------------------------------------------------
 *
 * block_text.c
 *		Trail files of blocks, for whoever reads lines of format json.
 *
 * A file of blocks is read as if it were one of lines: those that the worker would have
 * written, with json_nulls on.  A reader of lines need not know the difference.
 *
 * Guarantees: memory is bounded by that of a PaqBlockReader, and PIECES_MAX bytes of a record's
 * texts with the text that json makes of them, which can be seven times as long.  Of longer texts
 * the beginning is handed out, and the record is marked as cut.  A call reads no more than a block.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "trail/blocks_internal.h"

#include <unistd.h>

#include "format/format.h"

#define BLOCK_FILE_ENDING	".trail"

/* Text is handed out when there is that much of it, in bytes. */
#define PIECE_SIZE		(256 * 1024)

/* Texts of a record that come in pieces are kept up to that length together, in bytes. */
#ifndef PIECES_MAX
#ifndef FRONTEND
#define PIECES_MAX		(32 * 1024 * 1024)
#else
#define PIECES_MAX		(256 * 1024 * 1024)
#endif
#endif

/* A record whose fields go on in later blocks: its own memory, as blocks come and go */
typedef struct LongRecord
{
	bool		active;
	PaqRecord	record;
	uint64		left[PAQ_NFIELDS];	/* bytes of its fields that have not been read, */
	uint64		missing;		/* and of all of them */
	char	   *session;		/* bytes of its session's fields, which have no pieces */
	uint64		kept;			/* bytes in the following */
	char	   *field[PAQ_NFIELDS]; /* NULL: null, or the session's */
	Size		size[PAQ_NFIELDS];	/* that is allocated */
} LongRecord;

struct PaqBlockText
{
	int			fd;
	PaqBlockReader *reader;
	PaqBuffer	text;
	uint64		offset;			/* of the block that the next text begins in, or an earlier one */
	bool		begun;			/* the file's header has been read, */
	uint64		first;			/* and the first block begins there */
	bool		in_block;		/* of which records are left */
	LongRecord	rest;
	PaqBlockResult result;		/* of the last call of the reader */
	bool		failed;
	char		error[PAQ_LAYER_ERROR_LEN];
};

bool
paq_is_block_file(const char *name)
{
	const Size	len = strlen(name);
	const Size	ending_len = strlen(BLOCK_FILE_ENDING);

	return len > ending_len && strcmp(name + len - ending_len, BLOCK_FILE_ENDING) == 0;
}

bool
paq_is_encrypted(const char *name, int fd)
{
	PaqLayers	layers;
	char		head[14];

	(void) paq_layers_of_name(name, &layers);
	if (!paq_is_block_file(name))
		return layers.encryption != PAQ_ENCRYPTION_NONE;
	return pread(fd, head, sizeof(head), 0) == sizeof(head) &&
		memcmp(head, PAQ_FILE_MAGIC, 8) == 0 && head[13] != PAQ_ENCRYPTION_NONE;
}

/* Enlarge the text; see PaqBuffer. */
static bool
enlarge_text(PaqBuffer *text)
{
	text->size *= 2;
	text->data = repalloc(text->data, text->size);
	return true;
}

PaqBlockText *
paq_block_text_make(int fd, const PaqKeys *keys)
{
	PaqBlockText *blocks = palloc0(sizeof(PaqBlockText));

	blocks->fd = fd;
	blocks->reader = paq_block_reader_make(keys);
	blocks->text.size = 2 * PIECE_SIZE;
	blocks->text.data = palloc(blocks->text.size);
	blocks->text.drain = enlarge_text;
	return blocks;
}

/* Forget the record whose fields were to go on. */
static void
forget_long_record(LongRecord *rest)
{
	for (int field = 0; field < PAQ_NFIELDS; field++)
		if (rest->field[field] != NULL)
			pfree(rest->field[field]);
	if (rest->session != NULL)
		pfree(rest->session);
	memset(rest, 0, sizeof(*rest));
}

void
paq_block_text_free(PaqBlockText *blocks)
{
	forget_long_record(&blocks->rest);
	paq_block_reader_free(blocks->reader);
	pfree(blocks->text.data);
	pfree(blocks);
}

void
paq_block_text_limit(PaqBlockText *blocks, uint64 limit)
{
	paq_block_reader_limit(blocks->reader, limit);
}

uint64
paq_block_text_offset(const PaqBlockText *blocks, bool *whole)
{
	*whole = !blocks->in_block && !blocks->rest.active;
	return blocks->offset;
}

const char *
paq_block_text_error(const PaqBlockText *blocks, bool *damaged)
{
	*damaged = blocks->result == PAQ_BLOCK_DAMAGED;
	return blocks->error;
}

/* Append so much of a field's text to what is kept of it, as far as there is space. */
static void
keep_piece(LongRecord *rest, PaqField field, const char *data, Size len)
{
	const Size	take = Min(len, PIECES_MAX - rest->kept);
	const Size	used = rest->record.field[field].len;

	if (field < PAQ_NSESSION_FIELDS)
		return;
	if (rest->field[field] == NULL || used + take > rest->size[field])
	{
		Size		size = Max(rest->size[field], 64 * 1024);

		while (size < used + take)
			size *= 2;
		rest->field[field] = rest->field[field] == NULL ? palloc(size) :
			repalloc(rest->field[field], size);
		rest->size[field] = size;
	}
	memcpy(rest->field[field] + used, data, take);
	rest->kept += take;
	rest->record.field[field] = (PaqText){rest->field[field], used + take};
	rest->record.header.field_len[field] = used + take;
	if (take < len)
		rest->record.header.flags |= PAQ_RECORD_CUT;
}

/* The record's fields go on in the next blocks: keep what there is of them. */
static void
begin_long_record(LongRecord *rest, const PaqRecord *record)
{
	Size		session_len = 0;

	forget_long_record(rest);
	rest->active = true;
	rest->record = *record;

	/* A session's fields stay one behind the other. */
	for (int field = 0; field < PAQ_NSESSION_FIELDS; field++)
		session_len += record->field[field].len;
	rest->session = palloc(session_len + 1);
	session_len = 0;
	for (int field = 0; field < PAQ_NSESSION_FIELDS; field++)
	{
		const PaqText text = record->field[field];

		if (text.data == NULL)
			continue;
		memcpy(rest->session + session_len, text.data, text.len);
		rest->record.field[field].data = rest->session + session_len;
		session_len += text.len;
	}
	for (int field = PAQ_NSESSION_FIELDS; field < PAQ_NFIELDS; field++)
	{
		const PaqText text = record->field[field];

		if (text.data == NULL)
			continue;
		rest->record.field[field] = (PaqText){NULL, 0};
		keep_piece(rest, field, text.data, text.len);
	}
}

static void
write_text(PaqBlockText *blocks, const PaqRecord *record)
{
	static const bool nulls = true;

	paq_format_json(&nulls)->write(&blocks->text, record);
}

/* The record's fields are complete, or nothing more comes of them. */
static void
end_long_record(PaqBlockText *blocks)
{
	if (blocks->rest.missing > 0)
		blocks->rest.record.header.flags |= PAQ_RECORD_CUT;
	write_text(blocks, &blocks->rest.record);
	forget_long_record(&blocks->rest);
}

/* Writes text of the block that is open, until there is enough of it, or the block ends. */
static PaqBlockResult
read_records(PaqBlockText *blocks)
{
	LongRecord *rest = &blocks->rest;

	while (blocks->text.used < PIECE_SIZE)
	{
		PaqBlockResult result;
		PaqRecord	record;
		PaqField	field;
		PaqText		piece;
		uint64		taken;
		uint64		missing = 0;

		/* 1. More of a record that is not complete */
		while (rest->active && rest->missing > 0 &&
			   (result = paq_block_piece(blocks->reader, &field, &piece)) != PAQ_BLOCK_END)
		{
			if (result != PAQ_BLOCK_HERE)
				return result;
			taken = Min(piece.len, rest->left[field]);
			keep_piece(rest, field, piece.data, taken);
			rest->left[field] -= taken;
			rest->missing -= taken;
		}
		if (rest->active && rest->missing == 0)
		{
			end_long_record(blocks);
			continue;
		}

		/* 2. The next one, which nobody writes before the other is complete */
		result = paq_block_record(blocks->reader, &record);
		if (result != PAQ_BLOCK_HERE)
			return result;
		if (rest->active)
			end_long_record(blocks);
		for (int i = 0; i < PAQ_NFIELDS; i++)
			missing += paq_block_rest(blocks->reader, i);
		if (missing > 0)
		{
			begin_long_record(rest, &record);
			for (int i = 0; i < PAQ_NFIELDS; i++)
				rest->left[i] = paq_block_rest(blocks->reader, i);
			rest->missing = missing;
		}
		else
			write_text(blocks, &record);
	}
	return PAQ_BLOCK_HERE;
}

/* What the reader's result means for who reads text */
static PaqLayerResult
text_result(PaqBlockText *blocks, PaqBlockResult result)
{
	blocks->result = result;
	if (result == PAQ_BLOCK_END)
		return blocks->rest.active ? PAQ_LAYER_CUT : PAQ_LAYER_END;
	if (result == PAQ_BLOCK_CUT)
		return PAQ_LAYER_CUT;
	strlcpy(blocks->error, paq_block_reader_error(blocks->reader), sizeof(blocks->error));
	blocks->failed = true;
	return PAQ_LAYER_FAILED;
}

/* Begins with the file, unless that has been done. */
static PaqBlockResult
begin_file(PaqBlockText *blocks)
{
	PaqTrailFileHeader file;
	PaqBlockResult result = PAQ_BLOCK_HERE;

	if (!blocks->begun)
	{
		result = paq_block_reader_begin(blocks->reader, blocks->fd, &file);
		blocks->begun = result == PAQ_BLOCK_HERE;
		if (blocks->begun)
			blocks->first = blocks->offset = paq_block_reader_offset(blocks->reader);
	}
	return result;
}

PaqLayerResult
paq_block_text_read(PaqBlockText *blocks, const char **data, Size *len)
{
	PaqBlockHeader header;
	PaqBlockResult result;

	if (blocks->failed)
		return PAQ_LAYER_FAILED;
	blocks->text.used = 0;

	/* 1. The next block, if none is open */
	result = begin_file(blocks);
	if (result == PAQ_BLOCK_HERE && !blocks->in_block)
	{
		result = paq_block_next(blocks->reader, &header);
		if (result == PAQ_BLOCK_HERE)
			result = paq_block_open(blocks->reader);
		blocks->in_block = result == PAQ_BLOCK_HERE;
	}

	/* 2. Its records; at its end, reading can begin behind it unless one goes on. */
	if (result == PAQ_BLOCK_HERE)
	{
		result = read_records(blocks);
		if (result == PAQ_BLOCK_END)
		{
			blocks->in_block = false;
			if (!blocks->rest.active)
				blocks->offset = paq_block_reader_offset(blocks->reader);
			result = PAQ_BLOCK_HERE;
		}
	}

	/*
	 * 3. From damage on, nothing is read: the next call fails, too.  A record whose other pieces
	 * are lost with it is one.
	 */
	if (result == PAQ_BLOCK_DAMAGED || result == PAQ_BLOCK_UNREADABLE)
	{
		(void) text_result(blocks, result);
		if (result == PAQ_BLOCK_DAMAGED && blocks->rest.active)
			end_long_record(blocks);
	}

	/* What has been made before that is handed out first. */
	if (result != PAQ_BLOCK_HERE && blocks->text.used == 0)
		return text_result(blocks, result);

	/* There may be none: whoever reads on can look at interrupts meanwhile. */
	*data = blocks->text.data;
	*len = blocks->text.used;
	return PAQ_LAYER_TEXT;
}

/*
 * Reads on at an offset that paq_block_text_offset() has returned.  In front of the first block
 * there is the file's header, which may have become another one.
 */
bool
paq_block_text_seek(PaqBlockText *blocks, uint64 offset)
{
	PaqBlockResult result = PAQ_BLOCK_HERE;

	blocks->failed = blocks->in_block = false;
	blocks->result = PAQ_BLOCK_HERE;
	forget_long_record(&blocks->rest);
	if (offset == 0 || (blocks->begun && offset < blocks->first))
	{
		blocks->begun = false;
		blocks->offset = 0;
		return true;
	}
	result = begin_file(blocks);
	if (result != PAQ_BLOCK_HERE)
	{
		if (result == PAQ_BLOCK_END || result == PAQ_BLOCK_CUT)
			strlcpy(blocks->error, "the file is shorter than that", sizeof(blocks->error));
		else
			(void) text_result(blocks, result);
		return false;
	}
	paq_block_reader_seek(blocks->reader, offset);
	blocks->offset = offset;
	return true;
}
