/*-------------------------------------------------------------------------
 *
 * write_layers.c
 *		Write a trail file that is compressed, encrypted or both.
 *
 *	write_layers FILE UNIT [KEYS] < TEXT
 *
 * FILE's name says which layers it has.  It may be there already, and end where a unit
 * does; then the text is added.  Each UNIT lines become a unit.  KEYS is a file with
 * keys.
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

static char unit[PAQ_UNIT_TEXT_MAX];
static Size unit_len = 0;

static void
fail(const char *message)
{
	fprintf(stderr, "write_layers: %s\n", message);
	exit(1);
}

static PaqKeys *
read_keys(const char *path)
{
	char		content[4096];
	char		error[PAQ_LAYER_ERROR_LEN];
	PaqKeys    *keys;

	paq_read_text(path, content, sizeof(content));
	keys = paq_keys_parse(content, strlen(content), error);
	if (keys == NULL)
		fail(error);
	return keys;
}

static void
write_unit(PaqLayerWriter *writer, int fd)
{
	const uint64 offset = lseek(fd, 0, SEEK_END);
	char		error[PAQ_LAYER_ERROR_LEN];
	const char *out;
	Size		len;

	if (!paq_layer_write(writer, fd, offset, unit, unit_len, &out, &len, error))
		fail(error);
	if (paq_write_all(fd, out, len, offset) != len)
		fail(strerror(errno));
	unit_len = 0;
}

int
main(int argc, char **argv)
{
	const char *name = argc > 2 && strrchr(argv[1], '/') ? strrchr(argv[1], '/') + 1 : argv[1];
	char		error[PAQ_LAYER_ERROR_LEN];
	bool		fits = true;
	int			lines = 0;
	PaqKeys    *keys;
	PaqLayers	layers;
	PaqLayerWriter *writer;
	int			fd;
	int			c;

	if (argc < 3)
		fail("usage: write_layers FILE UNIT [KEYS] < TEXT");
	keys = argc > 3 ? read_keys(argv[3]) : NULL;
	paq_layers_of_name(name, &layers);
	fd = open(argv[1], O_RDWR | O_CREAT, 0600);
	writer = fd < 0 ? NULL : lseek(fd, 0, SEEK_END) == 0 ?
		paq_layer_writer_make(&layers, name, keys, error) :
		paq_layer_writer_resume(&layers, name, keys, fd, &fits, error);
	if (writer == NULL)
		fail(fd < 0 ? strerror(errno) : error);
	while ((c = getchar()) != EOF)
	{
		if (unit_len == sizeof(unit))
			fail("a unit is too long");
		unit[unit_len++] = c;
		if (c == '\n' && ++lines % atoi(argv[2]) == 0)
			write_unit(writer, fd);
	}
	if (unit_len > 0)
		write_unit(writer, fd);
	paq_layer_writer_free(writer);
	return 0;
}
