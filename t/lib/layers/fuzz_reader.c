/*-------------------------------------------------------------------------
 *
 * fuzz_reader.c
 *		Read changed copies of trail files and of seals, again and again.
 *
 *	fuzz_reader SEED COUNT KEYS FILE...
 *
 * Each time one of the files is changed at random, in one to four places, and read as
 * pg_audit_trail does: units, lines, seals.  What is not in order must be refused; nothing
 * else may happen.  Of a file that is encrypted, all that is read must be the beginning of
 * what was in it.  Prints how often reading has come to which end.
 *
 * Made to be built with sanitizers.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file_util.h"
#include "trail/layer.h"
#include "trail/line.h"
#include "trail/seal.h"

/* No file of this size may become more text than this: it was small before. */
#define MAX_TEXT	(256 * 1024 * 1024)

typedef struct Original
{
	const char *name;			/* without directories */
	char	   *data;
	Size		len;
	char	   *text;			/* what is in it, if it is a trail file */
	Size		text_len;
} Original;

/* What has come of it */
static struct
{
	long		ends[4];		/* by PaqLayerResult */
	long		lines;
	long		good_lines;
	long		seals;
	long		good_seals;
	long		same;			/* nothing had changed */
} counts;

static uint64 state;

static uint32
random_number(uint32 below)
{
	state = state * UINT64CONST(6364136223846793005) + UINT64CONST(1442695040888963407);
	return below == 0 ? 0 : (uint32) (state >> 33) % below;
}

static void
fail(const char *message, const char *name)
{
	fprintf(stderr, "fuzz_reader: %s: %s\n", name, message);
	abort();
}

static char *
read_file(const char *path, Size *len)
{
	int			fd = open(path, O_RDONLY);
	off_t		size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
	char	   *data = malloc(size + 1);

	if (fd < 0 || !paq_read_all(fd, data, size, 0))
		fail(strerror(errno), path);
	close(fd);
	*len = size;
	return data;
}

/* One change; the copy has space for twice as much. */
static void
change(char *data, Size *len)
{
	const Size	at = random_number(*len);
	const Size	other = random_number(*len);
	Size		n = 1 + random_number(random_number(2) ? 8 : 2000);

	if (*len == 0)
		return;
	n = Min(n, *len - at);
	switch (random_number(7))
	{
		case 0:
			data[at] ^= 1 << random_number(8);
			break;
		case 1:
			data[at] = random_number(256);
			break;
		case 2:					/* leave out */
			memmove(data + at, data + at + n, *len - at - n);
			*len -= n;
			break;
		case 3:					/* twice */
			memmove(data + at + n, data + at, *len - at);
			*len += n;
			break;
		case 4:
			*len = at;
			break;
		case 5:					/* something from elsewhere */
			memmove(data + at, data + other, Min(n, *len - other));
			break;
		case 6:
			memset(data + at, random_number(2) ? 0 : 0xff, n);
			break;
	}
}

static void
read_lines(const char *text, Size len, bool seals)
{
	const char *end = text + len;

	for (const char *newline; text < end; text = newline + 1)
	{
		PaqLine		line;
		PaqSeal		seal;
		char	   *exact;

		newline = memchr(text, '\n', end - text);
		if (newline == NULL)
			newline = end - 1;

		/* a copy of just that length, so that nothing behind it is read unnoticed */
		exact = malloc(newline - text + 1);
		memcpy(exact, text, newline - text);
		if (seals)
		{
			counts.seals++;
			counts.good_seals += paq_seal_parse(exact, newline - text, &seal);
		}
		else
		{
			counts.lines++;
			counts.good_lines += paq_line_parse(exact, newline - text, &line);
		}
		free(exact);
	}
}

/* All text of the file that is open as fd; *result becomes how that ended. */
static char *
read_units(int fd, const char *name, const PaqKeys *keys, Size *len, PaqLayerResult *result)
{
	PaqLayerReader *reader = paq_layer_reader_make(fd, name, keys);
	char	   *text = NULL;
	const char *piece;
	Size		piece_len;
	bool		damaged;

	*len = 0;
	while ((*result = paq_layer_read(reader, &piece, &piece_len)) == PAQ_LAYER_TEXT)
	{
		if (piece_len == 0 || *len + piece_len > MAX_TEXT)
			fail("no end of text", name);
		text = realloc(text, *len + piece_len);
		memcpy(text + *len, piece, piece_len);
		*len += piece_len;
	}
	if (*result == PAQ_LAYER_FAILED)
		(void) strlen(paq_layer_reader_error(reader, &damaged));
	paq_layer_reader_free(reader);
	return text;
}

/* Begin somewhere, which is most often no place where a unit begins. */
static void
seek_somewhere(int fd, const Original *file, const PaqKeys *keys)
{
	PaqLayerReader *reader = paq_layer_reader_make(fd, file->name, keys);
	const char *piece;
	Size		len;

	if (paq_layer_reader_seek(reader, random_number(file->len + 2)))
		(void) paq_layer_read(reader, &piece, &len);
	paq_layer_reader_free(reader);
}

static void
read_trail(int fd, const Original *file, const PaqKeys *keys)
{
	PaqLayers	layers;
	PaqLayerResult result;
	Size		len;
	char	   *text = read_units(fd, file->name, keys, &len, &result);

	(void) paq_layers_of_name(file->name, &layers);
	if (layers.encryption != PAQ_ENCRYPTION_NONE &&
		(len > file->text_len || (len > 0 && memcmp(text, file->text, len) != 0)))
		fail("text that was not in it", file->name);
	counts.ends[result]++;
	if (len > 0)
		read_lines(text, len, false);
	free(text);
	seek_somewhere(fd, file, keys);
}

static bool
is_seals(const Original *file)
{
	return strncmp(file->name, PAQ_SEAL_FILE_PREFIX, strlen(PAQ_SEAL_FILE_PREFIX)) == 0;
}

static void
run_once(const Original *file, const PaqKeys *keys, int fd)
{
	char	   *data = malloc(2 * file->len + 64 * 1024);
	Size		len = file->len;

	memcpy(data, file->data, len);
	for (int i = 1 + random_number(4); i > 0; i--)
		change(data, &len);
	counts.same += len == file->len && memcmp(data, file->data, len) == 0;
	if (is_seals(file))
		read_lines(data, len, true);
	else if (ftruncate(fd, 0) != 0 || paq_write_all(fd, data, len, 0) < len)
		fail(strerror(errno), file->name);
	else
		read_trail(fd, file, keys);
	free(data);
}

int
main(int argc, char **argv)
{
	Original   *files = calloc(argc, sizeof(Original));
	const int	nfiles = argc - 4;
	int			fd = memfd_create("fuzz", 0);
	char		error[PAQ_LAYER_ERROR_LEN];
	PaqLayerResult result;
	PaqKeys    *keys;
	char	   *text;
	Size		len;

	if (nfiles < 1)
		fail("usage: fuzz_reader SEED COUNT KEYS FILE...", "");
	state = strtoull(argv[1], NULL, 10);
	text = read_file(argv[3], &len);
	keys = paq_keys_parse(text, len, error);
	if (keys == NULL)
		fail(error, argv[3]);
	for (int i = 0; i < nfiles; i++)
	{
		const char *slash = strrchr(argv[4 + i], '/');
		Original   *file = &files[i];

		file->name = slash ? slash + 1 : argv[4 + i];
		file->data = read_file(argv[4 + i], &file->len);
		if (is_seals(file))
			continue;
		if (ftruncate(fd, 0) != 0 ||
			paq_write_all(fd, file->data, file->len, 0) < file->len)
			fail(strerror(errno), file->name);
		file->text = read_units(fd, file->name, keys, &file->text_len, &result);
		if (result != PAQ_LAYER_END || file->text_len == 0)
			fail("is damaged before anything was changed", file->name);
	}
	for (long i = strtol(argv[2], NULL, 10); i > 0; i--)
		run_once(&files[random_number(nfiles)], keys, fd);
	printf("end %ld, cut %ld, failed %ld, lines %ld, good %ld, seals %ld, good %ld, same %ld\n",
		   counts.ends[PAQ_LAYER_END], counts.ends[PAQ_LAYER_CUT],
		   counts.ends[PAQ_LAYER_FAILED], counts.lines, counts.good_lines,
		   counts.seals, counts.good_seals, counts.same);
	return 0;
}
