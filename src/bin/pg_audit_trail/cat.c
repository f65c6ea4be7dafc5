/*-------------------------------------------------------------------------
 *
 * cat.c
 *		pg_audit_trail cat: print the records of a trail.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

/* Records between two looks at the clock */
#define PROGRESS_EVERY	256

typedef struct Cat
{
	Options		options;
	FileList	files;
	Record		record;
	int64		count;			/* of records that were wanted */
	int64		read;			/* of all records that were looked at */
	uint64		done;			/* bytes of files that have been read */
} Cat;

static bool
is_done(const Cat *cat)
{
	return cat->options.limit >= 0 && cat->count >= cat->options.limit;
}

static void
cat_file(Cat *cat, const TrailFile *file)
{
	const bool	all = filter_is_empty(&cat->options.filter);
	Source	   *source;
	SourceResult result = SOURCE_END;
	bool		wanted = false;

	if (!fits_format(file, &cat->options))
	{
		output_flush();
		refuse_format(file, &cat->options);
		return;
	}
	source = source_open(file, cat->options.keys, false);
	if (source == NULL)
		return;
	source_join(source, false);
	cat->record.more = 0;
	while ((!is_done(cat) || cat->record.more > 0) &&
		   (result = source_next(source, &cat->record)) == SOURCE_RECORD)
	{
		/* A record that is too long comes in parts, of which the first one is it. */
		if (!cat->record.continues)
		{
			if (is_done(cat))
				break;
			wanted = all || filter_matches(&cat->options.filter, &cat->record);
			cat->count += wanted;
			cat->read++;
		}
		if (wanted && !cat->options.count &&
			(!cat->record.continues || cat->options.format == FORMAT_JSON))
			print_record(&cat->options, &cat->record);
		if (cat->read % PROGRESS_EVERY == 0 && progress_is_shown())
			progress_report(cat->done + source_position(source), false);
	}
	cat->done += source_position(source);
	source_close(source);

	/* messages come where they belong in the output */
	if (result != SOURCE_END)
		output_flush();
	if (result == SOURCE_CUT)
		(void) note_cut(file, cat->options.keys);
}

static void
print_count(int64 count)
{
	char		text[32];

	output_put(text, snprintf(text, sizeof(text), INT64_FORMAT "\n", count));
}

/* An empty answer says that the trail was read, and how much of it. */
static void
note_nothing(const Cat *cat)
{
	Buffer		read = {0};

	if (cat->count > 0 || cat->options.limit == 0 || filter_is_empty(&cat->options.filter))
		return;
	buffer_grouped(&read, cat->read);
	buffer_putc(&read, '\0');
	pg_log_info(ngettext("no record matches, of %s that was read",
						 "no record matches, of %s that were read", cat->read), read.data);
	free(read.data);
}

void
run_cat(int argc, char **argv)
{
	static Cat	cat;
	Options    *options = &cat.options;

	parse_options(options, READER_CAT, argc, argv);
	for (int i = 0; i < options->npaths; i++)
		(void) add_path(&cat.files, options->paths[i]);
	check_formats(&cat.files, options);
	sort_files(&cat.files, options->keys);
	print_begin(options);
	transactions_read(options, &cat.files);
	progress_begin(options, files_size(&cat.files));
	for (int i = 0; i < cat.files.count && !is_done(&cat); i++)
		cat_file(&cat, &cat.files.files[i]);
	progress_report(cat.done, true);
	if (options->count)
		print_count(cat.count);
	output_flush();
	note_nothing(&cat);
	filter_note_left_out(&options->filter);
}
