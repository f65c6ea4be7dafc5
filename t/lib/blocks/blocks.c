/*-------------------------------------------------------------------------
 *
 * blocks.c
 *		Make a trail file of blocks from lines of format json; damage such a file.
 *
 *	blocks write FILE RECORDS COMPRESSION ENCRYPTION [KEYS] < LINES
 *	blocks mutate FILE ROUNDS SEED [KEYS]
 *
 * write puts RECORDS records into each block, fewer if there is no room.  COMPRESSION is none,
 * lz4 or zstd, ENCRYPTION none, 128 or 256; KEYS is a file with keys.  mutate changes, cuts and
 * repeats bytes of the file, in memory, so often: what is read of it then must be the beginning of
 * what is in FILE, up to the end of a record.  Before that it reads FILE from each place on where
 * reading can begin, and up to each.
 *
 * Exits with 1, and a message, if a file cannot be written or read, or something is read that
 * nobody has written.
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
 * Mutations
 * ----------
 */

/* All text of the file that is open as fd, in the buffer.  Returns why reading has ended. */
static PaqLayerResult
read_text(int fd, const PaqKeys *keys, Buffer *text)
{
	PaqLayerReader *reader = paq_layer_reader_make(fd, "mutated.trail", keys);
	PaqLayerResult result;
	const char *data;
	Size		len;

	text->used = 0;
	while ((result = paq_layer_read(reader, &data, &len)) == PAQ_LAYER_TEXT)
		buffer_put(text, data, len);
	paq_layer_reader_free(reader);
	return result;
}

/*
 * Reads the file from each place on that a reader of all of it has named, and up to there: that
 * must be all text.  Returns how many places there are.
 */
static int
check_places(int fd, const PaqKeys *keys, const Buffer *expected)
{
	PaqLayerReader *reader = paq_layer_reader_make(fd, "places.trail", keys);
	Size		done = 0;
	int			places = 0;
	const char *data;
	Size		len;

	while (paq_layer_read(reader, &data, &len) == PAQ_LAYER_TEXT)
	{
		PaqLayerReader *other;
		Size		before = 0;
		Size		behind = 0;
		bool		whole;
		const uint64 place = paq_layer_reader_offset(reader, &whole);

		done += len;
		if (!whole)
			continue;
		places++;
		other = paq_layer_reader_make(fd, "places.trail", keys);
		paq_layer_reader_limit(other, place);
		while (paq_layer_read(other, &data, &len) == PAQ_LAYER_TEXT)
			before += len;
		paq_layer_reader_limit(other, PG_UINT64_MAX);
		if (!paq_layer_reader_seek(other, place))
			fail("seek", "it is refused");
		while (paq_layer_read(other, &data, &len) == PAQ_LAYER_TEXT)
		{
			if (len > expected->used - done - behind ||
				memcmp(expected->data + done + behind, data, len) != 0)
				fail("seek", "other text is read");
			behind += len;
		}
		if (before != done || done + behind != expected->used)
			fail("places", "not all text is read");
		paq_layer_reader_free(other);
	}
	paq_layer_reader_free(reader);
	return places;
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
	Buffer		expected = {0};
	Buffer		text = {0};
	struct stat st;
	char	   *original;
	char	   *bytes;
	int			found[PAQ_LAYER_FAILED + 1] = {0};

	random_state = strtoull(argv[4], NULL, 10) * 2 + 1;
	if (fd < 0 || changed < 0 || fstat(fd, &st) != 0 ||
		read_text(fd, keys, &expected) != PAQ_LAYER_END)
		fail(argv[2], "it cannot be read");
	original = checked_alloc(st.st_size);
	bytes = checked_alloc(2 * st.st_size);
	if (pread(fd, original, st.st_size, 0) != st.st_size)
		fail(argv[2], strerror(errno));
	buffer_reserve(&text, 1);
	printf("places %d, ", check_places(fd, keys, &expected));
	for (int round = 0; round < rounds; round++)
	{
		Size		size = st.st_size;
		const Size	at = random_below(size);
		const Size	wanted = 1 + random_below(64);
		const Size	len = Min(wanted, size - at);
		PaqLayerResult result;

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
		result = read_text(changed, keys, &text);
		found[result]++;

		/* Where a whole block ends, a file may be cut off. */
		if (text.used > expected.used || memcmp(text.data, expected.data, text.used) != 0 ||
			(text.used > 0 && text.data[text.used - 1] != '\n') ||
			(result == PAQ_LAYER_END && text.used < expected.used && size == st.st_size))
		{
			printf("round %d differs\n", round);
			exit(1);
		}
	}
	printf("whole %d, cut %d, refused %d\n", found[PAQ_LAYER_END], found[PAQ_LAYER_CUT],
		   found[PAQ_LAYER_FAILED]);
}

int
main(int argc, char **argv)
{
	if (argc > 5 && strcmp(argv[1], "write") == 0)
		run_write(argc, argv);
	else if (argc > 4 && strcmp(argv[1], "mutate") == 0)
		run_mutate(argc, argv);
	else
		fail("usage", "see the beginning of its source");
	return 0;
}
