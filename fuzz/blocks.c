/*-------------------------------------------------------------------------
 *
 * blocks.c
 *		Trail files of blocks: they become records, and these lines, or are refused.
 *
 * An input's first byte says whether the rest is a file, or the body of a block, to which the
 * headers are made that a fuzzer would never find: with checksums and hashes.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include <unistd.h>

#include "format/format.h"
#include "trail/blocks_internal.h"
#include "trail/line.h"

#define FILE_LEN	(PAQ_FILE_FIXED + 4)

/* A file with one block that has this body; so many records are in it. */
static int
make_block(const char *body, Size len, uint32 nrecords)
{
	const Size	size = FILE_LEN + PAQ_BLOCK_HEADER + len;
	char	   *file = calloc(1, size);
	char	   *block = file + FILE_LEN;
	int			fd;

	memcpy(file, PAQ_FILE_MAGIC, 8);
	(void) paq_put_fixed(file + 8, PAQ_FILE_VERSION, 2);
	(void) paq_put_fixed(file + 10, FILE_LEN, 2);
	(void) paq_put_fixed(block - 4, paq_crc32c(file, FILE_LEN - 4), 4);

	memcpy(block, PAQ_BLOCK_MAGIC, 4);
	(void) paq_put_fixed(block + 4, PAQ_BLOCK_HEADER, 2);
	(void) paq_put_fixed(block + 8, len, 4);
	(void) paq_put_fixed(block + 12, len, 4);
	(void) paq_put_fixed(block + 32, nrecords, 4);
	must(paq_block_hash((uint8 *) block + 96, file, FILE_LEN, NULL, 0));
	memcpy(block + PAQ_BLOCK_HEADER, body, len);
	(void) paq_put_fixed(block + 128, paq_crc32c(body, len), 4);
	(void) paq_put_fixed(block + 132, paq_crc32c(block, 132), 4);
	fd = make_file(file, size);
	free(file);
	return fd;
}

static bool
enlarge(PaqBuffer *buf)
{
	buf->size *= 2;
	buf->data = realloc(buf->data, buf->size);
	return buf->data != NULL;
}

/* The record in each format: a line of json is one. */
static void
write_record(const PaqRecord *record)
{
	static const bool nulls = true;
	static char *prefix = "%m %s %r %v %Q %e ";
	static PaqBuffer buf;
	PaqLine		line;

	if (buf.data == NULL)
		buf = (PaqBuffer){.data = malloc(4096), .size = 4096, .drain = enlarge};
	buf.used = 0;
	paq_format_json(&nulls)->write(&buf, record);
	must(!buf.failed && paq_line_parse(buf.data, buf.used, &line));
	must(paq_line_has(&line, PAQ_TRAIL_TYPE));
	buf.used = 0;
	paq_format_csvlog()->write(&buf, record);
	must(paq_format_csvlog()->record_length(buf.data, buf.used) == buf.used);
	buf.used = 0;
	paq_format_pgaudit(&prefix)->write(&buf, record);
}

void
fuzz_blocks(const char *data, Size len)
{
	static PaqBlockReader *reader;
	PaqTrailFileHeader file;
	PaqBlockHeader header;
	PaqBlockResult result;
	int			fd;

	if (len < 2)
		return;
	if (reader == NULL)
		reader = paq_block_reader_make(NULL);
	fd = data[0] & 1 ? make_block(data + 2, len - 2, (unsigned char) data[1]) :
		make_file(data + 1, len - 1);
	result = paq_block_reader_begin(reader, fd, &file);
	while (result == PAQ_BLOCK_HERE &&
		   (result = paq_block_next(reader, &header)) == PAQ_BLOCK_HERE)
	{
		PaqRecord	record;
		PaqField	field;
		PaqText		piece;
		uint32		n = 0;

		result = paq_block_open(reader);
		while (result == PAQ_BLOCK_HERE)
		{
			while ((result = paq_block_piece(reader, &field, &piece)) == PAQ_BLOCK_HERE)
				must(field < PAQ_NFIELDS && piece.len <= PAQ_BLOCK_BODY_MAX);
			result = paq_block_record(reader, &record);
			if (result == PAQ_BLOCK_HERE)
				write_record(&record);
			must(n++ <= PAQ_BLOCK_BODY_MAX);
		}
		if (result == PAQ_BLOCK_END)
			result = PAQ_BLOCK_HERE;
	}
	must(result == PAQ_BLOCK_END || paq_block_reader_error(reader)[0] != '\0');
	close(fd);
}
