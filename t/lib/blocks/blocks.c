/*-------------------------------------------------------------------------
 *
 * blocks.c
 *		Make a trail file of blocks from lines of format json, or lines from such a file.
 *
 *	blocks write FILE RECORDS COMPRESSION ENCRYPTION [KEYS] < LINES
 *	blocks cat FILE [KEYS]
 *	blocks headers FILE
 *	blocks mutate FILE ROUNDS SEED [KEYS]
 *
 * write puts RECORDS records into each block, fewer if there is no room.  COMPRESSION is none,
 * lz4 or zstd, ENCRYPTION none, 128 or 256; KEYS is a file with keys.  cat prints all records
 * as lines; headers prints a line for each block.  mutate changes, cuts and repeats bytes of
 * the file, in memory, so often: what is read of it then must be the beginning of what is in
 * FILE, record by record.
 *
 * Exits with 1, and a message, if a file is damaged or cannot be read.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file_util.h"
#include "format/format.h"
#include "trail/blocks.h"

const char *progname = "blocks";

static void
fail(const char *what, const char *message)
{
	fprintf(stderr, "%s: %s: %s\n", progname, what, message);
	exit(1);
}

/* ----------
 * Writing
 * ----------
 */

static PaqBlockWriter *writer;
static int	out;
static uint64 offset;
static uint64 position = 1000;	/* of the queue that never was */
static char error[PAQ_LAYER_ERROR_LEN];

static void
write_bytes(const char *data, Size len)
{
	if (paq_write_all(out, data, len, offset) != len)
		fail("write", strerror(errno));
	offset += len;
}

static void
end_block(void)
{
	const char *data;
	Size		len;

	if (!paq_block_end(writer, position, &data, &len, error))
		fail("block", error);
	write_bytes(data, len);
	paq_block_written(writer);
}

static PaqServer server;
static PaqZone zone;

static void
begin_block(uint64 series, uint64 sequence)
{
	const PaqBlockOrigin origin = {
		(const uint8 *) "a queue, no more", position, series, sequence
	};

	paq_block_begin(writer, &server, &zone, &origin);
}

/* What the lines say of their server: the offsets of all of them are that of the first one. */
static void
take_server(Record *line)
{
	const PaqTrailField fields[] = {
		PAQ_TRAIL_SERVER_VERSION, PAQ_TRAIL_SERVER_HOST, PAQ_TRAIL_CLUSTER_NAME
	};
	PaqText    *const texts[] = {&server.version, &server.host, &server.cluster};
	const PaqValue *time = &line->line.value[PAQ_TRAIL_LOG_TIME];
	int64		timestamp;
	int			seconds;
	bool		has_offset;

	for (int i = 0; i < lengthof(fields); i++)
	{
		const Text	text = record_text(line, fields[i]);

		if (text.data == NULL)
			continue;
		texts[i]->data = memcpy(checked_alloc(text.len + 1), text.data, text.len);
		texts[i]->len = text.len;
	}
	zone.count = 1;
	zone.name[0] = (PaqText){
		"UTC", 3
	};
	if (paq_time_parse(time->data, time->len, &timestamp, &seconds, &has_offset))
		zone.offset[0] = seconds;
}

static void
run_write(int argc, char **argv)
{
	const int	nrecords = atoi(argv[3]);
	PaqKeys    *keys = argc > 6 ? read_keys(argv[6]) : NULL;
	PaqTrailFileHeader file = {0};
	Record		line = {0};
	char	   *text = NULL;
	size_t		size = 0;
	const char *data;
	Size		len;
	uint64		series = 0;
	uint64		sequence = 0;	/* that comes next */
	int			n = 0;

	if (strcmp(argv[4], "none") != 0)
		file.layers.compression = strcmp(argv[4], "zstd") == 0 ?
			PAQ_COMPRESSION_ZSTD : PAQ_COMPRESSION_LZ4;
	if (strcmp(argv[5], "none") != 0)
		file.layers.encryption = strcmp(argv[5], "128") == 0 ?
			PAQ_ENCRYPTION_AES_128_GCM : PAQ_ENCRYPTION_AES_256_GCM;
	strlcpy(file.name, strrchr(argv[2], '/') != NULL ? strrchr(argv[2], '/') + 1 : argv[2],
			sizeof(file.name));
	out = open(argv[2], O_CREAT | O_TRUNC | O_WRONLY, 0600);
	if (out < 0)
		fail(argv[2], strerror(errno));

	line.format = FORMAT_JSON;
	while ((len = getline(&text, &size, stdin)) != (Size) -1)
	{
		PaqRecord	record;

		line.data = text;
		line.len = len;
		if (!record_parse(&line))
			fail("line", "it is no record");
		record_restore(&line, &record);
		if (writer == NULL)
		{
			const Text	identifier = record_text(&line, PAQ_TRAIL_SYSTEM_IDENTIFIER);

			file.system_identifier = identifier.data != NULL ?
				strtoull(identifier.data, NULL, 10) : 0;
			file.series = record.series;
			file.sequence = sequence = record.sequence;
			series = record.series;
			file.begun = record.header.end_time;
			writer = paq_block_writer_make(&file, keys, &data, &len, error);
			if (writer == NULL)
				fail(argv[2], error);
			write_bytes(data, len);
			take_server(&line);
			begin_block(record.series, record.sequence);
		}
		if (n == nrecords || record.series != series || record.sequence != sequence ||
			!paq_block_add(writer, &record))
		{
			end_block();
			begin_block(record.series, record.sequence);
			if (!paq_block_add(writer, &record))
				fail("record", "an empty block has no room");
			n = 0;
		}
		n++;
		series = record.series;
		sequence = record.sequence + 1;
		position += 100;
		while (paq_block_has_rest(writer))
		{
			end_block();
			begin_block(series, sequence);
			(void) paq_block_add_rest(writer);
			n = nrecords;
		}
	}
	if (writer != NULL)
		end_block();
}

/* ----------
 * Reading
 * ----------
 */

static bool
drain_to_buffer(PaqBuffer *buf)
{
	buf->data = realloc(buf->data, buf->size *= 2);
	return buf->data != NULL;
}

/* A record whose fields come in pieces, as far as they have come */
typedef struct Pending
{
	bool		active;
	PaqRecord	record;
	Buffer		field[PAQ_NFIELDS];
	uint64		rest;
} Pending;

static const bool nulls = true;

/* Gives each line to the function, which returns false if it wants no more. */
static void
give_line(const PaqRecord *record, bool (*line) (const char *data, Size len, void *arg), void *arg)
{
	static PaqBuffer buf;

	if (buf.data == NULL)
		buf = (PaqBuffer){
			.data = malloc(65536), .size = 65536, .drain = drain_to_buffer
		};
	buf.used = 0;
	paq_format_json(&nulls)->write(&buf, record);
	(void) line(buf.data, buf.used, arg);
}

/* Reads all of a file.  Returns why reading has ended. */
static PaqBlockResult
read_all(PaqBlockReader *reader, int fd, bool headers,
		 bool (*line) (const char *data, Size len, void *arg), void *arg)
{
	static Pending pending;
	PaqTrailFileHeader file;
	PaqBlockHeader header;
	PaqBlockResult result = paq_block_reader_begin(reader, fd, &file);

	pending.active = false;
	if (result != PAQ_BLOCK_HERE)
		return result;
	while ((result = paq_block_next(reader, &header)) == PAQ_BLOCK_HERE)
	{
		PaqRecord	record;
		PaqField	field;
		PaqText		piece;

		if (headers)
		{
			printf(UINT64_FORMAT " %u records, %u bytes of %u, classes %x, outcomes %x, queue "
				   UINT64_FORMAT " to " UINT64_FORMAT "\n", header.sequence, header.nrecords,
				   header.stored_len, header.body_len, header.classes, header.outcomes,
				   header.queue_from, header.queue_to);
			continue;
		}
		if ((result = paq_block_open(reader)) != PAQ_BLOCK_HERE)
			return result;
		for (;;)
		{
			while (pending.active &&
				   (result = paq_block_piece(reader, &field, &piece)) == PAQ_BLOCK_HERE)
			{
				buffer_put(&pending.field[field], piece.data, piece.len);
				pending.rest -= Min(pending.rest, piece.len);
			}
			if (pending.active && pending.rest == 0)
			{
				for (int i = 0; i < PAQ_NFIELDS; i++)
					if (pending.record.field[i].data != NULL)
						pending.record.field[i] = (PaqText){
							pending.field[i].data, pending.field[i].used
						};
				give_line(&pending.record, line, arg);
				pending.active = false;
			}
			result = paq_block_record(reader, &record);
			if (result == PAQ_BLOCK_END)
				break;
			if (result != PAQ_BLOCK_HERE)
				return result;
			pending.rest = 0;
			for (int i = 0; i < PAQ_NFIELDS; i++)
				pending.rest += paq_block_rest(reader, i);
			if (pending.rest == 0)
			{
				give_line(&record, line, arg);
				continue;
			}
			pending.active = true;
			pending.record = record;
			for (int i = 0; i < PAQ_NFIELDS; i++)
			{
				pending.field[i].used = 0;
				buffer_reserve(&pending.field[i], 1);
				buffer_put(&pending.field[i], record.field[i].data, record.field[i].len);
			}
		}
	}
	return result;
}

static bool
print_line(const char *data, Size len, void *arg)
{
	fwrite(data, 1, len, stdout);
	return true;
}

static void
run_read(int argc, char **argv, bool headers)
{
	PaqKeys    *keys = argc > 3 ? read_keys(argv[3]) : NULL;
	const int	fd = open(argv[2], O_RDONLY);
	PaqBlockReader *reader = paq_block_reader_make(keys);

	if (fd < 0)
		fail(argv[2], strerror(errno));
	if (read_all(reader, fd, headers, print_line, NULL) != PAQ_BLOCK_END)
	{
		fflush(stdout);
		fail(argv[2], paq_block_reader_error(reader));
	}
	paq_block_reader_free(reader);
}

/* ----------
 * Mutations
 * ----------
 */

/* Lines that are expected, one behind the other, and how far they have been met */
static Buffer expected;
static Size met;
static bool differs;

static bool
expect_line(const char *data, Size len, void *arg)
{
	if (len > expected.used - met || memcmp(expected.data + met, data, len) != 0)
		differs = true;
	met += len;
	return !differs;
}

static bool
keep_line(const char *data, Size len, void *arg)
{
	buffer_put(&expected, data, len);
	return true;
}

static uint64 random_state;

static uint64
random_below(uint64 limit)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % limit;
}

static void
run_mutate(int argc, char **argv)
{
	const int	rounds = atoi(argv[3]);
	PaqKeys    *keys = argc > 5 ? read_keys(argv[5]) : NULL;
	const int	fd = open(argv[2], O_RDONLY);
	const int	changed = memfd_create("mutated", 0);
	PaqBlockReader *reader = paq_block_reader_make(keys);
	struct stat st;
	char	   *original;
	char	   *bytes;
	int			found[PAQ_BLOCK_UNREADABLE + 1] = {0};

	random_state = strtoull(argv[4], NULL, 10) * 2 + 1;
	if (fd < 0 || changed < 0 || fstat(fd, &st) != 0 ||
		read_all(reader, fd, false, keep_line, NULL) != PAQ_BLOCK_END)
		fail(argv[2], "it cannot be read");
	original = checked_alloc(st.st_size);
	bytes = checked_alloc(2 * st.st_size);
	if (pread(fd, original, st.st_size, 0) != st.st_size)
		fail(argv[2], strerror(errno));
	for (int round = 0; round < rounds; round++)
	{
		Size		size = st.st_size;
		const Size	at = random_below(size);
		const Size	wanted = 1 + random_below(64);
		const Size	len = Min(wanted, size - at);
		PaqBlockResult result;

		memcpy(bytes, original, size);
		switch (random_below(4))
		{
			case 0:				/* another byte */
				bytes[at] ^= 1 + random_below(255);
				break;
			case 1:				/* cut off */
				size = at;
				break;
			case 2:				/* some are missing */
				memmove(bytes + at, bytes + at + len, size - at - len);
				size -= len;
				break;
			case 3:				/* some are there twice */
				memmove(bytes + at + len, original + at, size - at);
				size += len;
				break;
		}
		if (ftruncate(changed, 0) != 0 || pwrite(changed, bytes, size, 0) != size)
			fail("mutation", strerror(errno));
		met = 0;
		result = read_all(reader, changed, false, expect_line, NULL);
		found[result]++;
		/* Where a whole block ends, a file may be cut off. */
		if (differs ||
			(result == PAQ_BLOCK_END && met < expected.used && size == st.st_size))
		{
			printf("round %d differs\n", round);
			exit(1);
		}
	}
	paq_block_reader_free(reader);
	printf("whole %d, cut %d, damaged %d, unreadable %d\n", found[PAQ_BLOCK_END],
		   found[PAQ_BLOCK_CUT], found[PAQ_BLOCK_DAMAGED], found[PAQ_BLOCK_UNREADABLE]);
}

int
main(int argc, char **argv)
{
	if (argc > 5 && strcmp(argv[1], "write") == 0)
		run_write(argc, argv);
	else if (argc > 2 && strcmp(argv[1], "cat") == 0)
		run_read(argc, argv, false);
	else if (argc > 2 && strcmp(argv[1], "headers") == 0)
		run_read(argc, argv, true);
	else if (argc > 4 && strcmp(argv[1], "mutate") == 0)
		run_mutate(argc, argv);
	else
		fail("usage", "see the beginning of its source");
	return 0;
}
