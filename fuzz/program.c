/*-------------------------------------------------------------------------
 *
 * program.c
 *		What pg_audit_trail makes of a file: records, printed in each format.
 *
 * An input's first byte is the format of the file.  Nothing that a file has makes the program
 * give up: the fuzzer takes it for a fault if it exits.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include <unistd.h>

#include "bin/pg_audit_trail/program.h"

const char *progname = "fuzz";

static void
print(Record *record)
{
	static const Format formats[] = {
		FORMAT_CSVLOG, FORMAT_PGAUDIT, FORMAT_TABLE, FORMAT_OCSF, FORMAT_ECS
	};
	Options		options = {.format = record->format};
	int64		timestamp;
	int64		sequence;

	print_record(&options, record);
	if (record->format != FORMAT_JSON)
		return;
	(void) record_time(record, &timestamp, &sequence);
	(void) record_has_failed(record);
	for (int i = 0; i < lengthof(formats); i++)
	{
		options.format = formats[i];
		print_record(&options, record);
	}
}

void
fuzz_program(const char *data, Size len)
{
	static const char *const names[] = {
		[FORMAT_JSON] = "audit.json", [FORMAT_CSVLOG] = "audit.csv", [FORMAT_PGAUDIT] = "audit.log"
	};
	static Record record;
	TrailFile	file = {0};
	Source	   *source;
	char		path[64];
	int			fd;

	if (len < 1)
		return;
	fd = make_file(data + 1, len - 1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	file.path = path;
	file.format = (unsigned char) data[0] % lengthof(names);
	file.name = names[file.format];
	file.is_named = true;
	source = source_open(&file, NULL, true);
	must(source != NULL);
	source_join(source, false);
	while (source_next(source, &record) == SOURCE_RECORD)
	{
		must(record.len > 0);
		print(&record);
	}
	output_flush();
	source_close(source);
	close(fd);
}
