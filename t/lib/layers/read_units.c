/*-------------------------------------------------------------------------
 *
 * read_units.c
 *		Print the text of the units of a trail file that are whole.
 *
 *	read_units FILE [KEYS]
 *
 * Ends with 0 if all of the file was read, with 1 before the first unit that is not
 * whole, or damaged.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <fcntl.h>
#include <unistd.h>

#include "file_util.h"
#include "trail/layer.h"

int
main(int argc, char **argv)
{
	char		content[4096];
	char		error[PAQ_LAYER_ERROR_LEN];
	const char *slash = argc > 1 ? strrchr(argv[1], '/') : NULL;
	int			fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
	PaqKeys    *keys = NULL;
	PaqLayerReader *reader;
	PaqLayerResult result;
	char	   *text = NULL;
	Size		used = 0;
	const char *piece;
	Size		len;

	if (fd < 0)
	{
		fprintf(stderr, "usage: read_units FILE [KEYS]\n");
		return 2;
	}
	if (argc > 2)
	{
		paq_read_text(argv[2], content, sizeof(content));
		keys = paq_keys_parse(content, strlen(content), error);
	}
	reader = paq_layer_reader_make(fd, slash ? slash + 1 : argv[1], keys);
	while ((result = paq_layer_read(reader, &piece, &len)) == PAQ_LAYER_TEXT)
	{
		bool		unit_ends;

		(void) paq_layer_reader_offset(reader, &unit_ends);

		/* The unit before ends only when this one begins? */
		if (unit_ends && used == 0)
		{
			fwrite(piece, 1, len, stdout);
			continue;
		}
		text = realloc(text, used + len);
		memcpy(text + used, piece, len);
		used += len;
		if (unit_ends)
		{
			fwrite(text, 1, used, stdout);
			used = 0;
		}
	}
	return result == PAQ_LAYER_END ? 0 : 1;
}
