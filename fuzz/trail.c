/*-------------------------------------------------------------------------
 *
 * trail.c
 *		Trail files, with any layers: units become text, or are refused.
 *
 * An input's first byte says which layers its name has, and where to begin another time.
 * Those of the corpus are encrypted with one of the keys here.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include <unistd.h>

#include "trail/layer.h"

/* A small file that has more text than this never ends. */
#define MAX_TEXT	(64 * 1024 * 1024)

static const char keys_text[] =
"00112233445566778899aabbccddeeff\n"
"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";

static const char *const names[] = {
	"audit.json", "audit.json.lz4", "audit.json.zst",
	"audit.json.enc", "audit.json.lz4.enc", "audit.json.zst.enc"
};

/* All text, at most up to a limit or from an offset on */
static char *
read_text(int fd, const char *name, const PaqKeys *keys, uint64 offset, uint64 limit, Size *len)
{
	PaqLayerReader *reader = paq_layer_reader_make(fd, name, keys);
	char	   *text = NULL;
	const char *piece;
	Size		piece_len;
	bool		whole;
	PaqLayerResult result;

	*len = 0;
	paq_layer_reader_limit(reader, limit);
	if (offset == 0 || paq_layer_reader_seek(reader, offset))
	{
		while ((result = paq_layer_read(reader, &piece, &piece_len)) == PAQ_LAYER_TEXT)
		{
			must(piece_len > 0 && *len + piece_len <= MAX_TEXT);
			text = realloc(text, *len + piece_len);
			memcpy(text + *len, piece, piece_len);
			*len += piece_len;
			must(paq_layer_reader_offset(reader, &whole) <= limit);
		}
		if (result == PAQ_LAYER_FAILED)
			must(paq_layer_reader_error(reader, &whole) != NULL);
	}
	paq_layer_reader_free(reader);
	return text;
}

void
fuzz_trail(const char *data, Size len)
{
	static PaqKeys *keys = NULL;
	char		error[PAQ_LAYER_ERROR_LEN];
	const char *name;
	char	   *whole;
	char	   *part;
	Size		whole_len;
	Size		part_len;
	uint64		place;
	int			fd;

	if (keys == NULL)
		must((keys = paq_keys_parse(keys_text, strlen(keys_text), error)) != NULL);
	if (len < 1)
		return;
	name = names[(unsigned char) data[0] % lengthof(names)];
	place = (unsigned char) data[0] / lengthof(names) * len / 42;
	fd = make_file(data + 1, len - 1);
	whole = read_text(fd, name, keys, 0, len - 1, &whole_len);

	/*
	 * What is read up to a limit is the beginning of it; or more, where that ends because
	 * of a damage behind the limit.
	 */
	part = read_text(fd, name, keys, 0, Min(place, len - 1), &part_len);
	part_len = Min(part_len, whole_len);
	must(part_len == 0 || memcmp(part, whole, part_len) == 0);
	free(part);
	free(read_text(fd, name, keys, place, len - 1, &part_len));
	free(whole);
	close(fd);
}
