/*-------------------------------------------------------------------------
 *
 * report.c
 *		pg_audit_trail report: who did what and how often, what failed, what is missing.
 *
 * Only format json has what a report needs.  All records are read, and counted those that
 * are wanted; what is missing is looked for in all of them.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/report.h"

/* Records between two looks at the clock */
#define PROGRESS_EVERY	256

/* Where reading has stopped, if that is before the end of the file */
static void
collect_end(Report *report, const TrailFile *file, const Source *source, SourceResult result)
{
	const uint64 nbad = source_bad_lines(source);
	char		what[128];

	if (nbad > 0)
	{
		snprintf(what, sizeof(what), ngettext(UINT64_FORMAT " line is no record",
											  UINT64_FORMAT " lines are no records", nbad), nbad);
		collect_place(report, file->path, what);
	}
	if (result == SOURCE_FAILED)
	{
		snprintf(what, sizeof(what), "could not be read from byte " UINT64_FORMAT " on",
				 source_position(source));
		collect_place(report, file->path, what);
	}
	if (result != SOURCE_CUT)
		return;
	if (note_cut(file, report->options.keys))
		collect_place(report, file->path, "ends within a record, but is not the newest one");
	else
		report->unfinished++;
}

static void
report_file(Report *report, const TrailFile *file)
{
	static Record record;
	const bool	all = filter_is_empty(&report->options.filter);
	Source	   *source;
	SourceResult result;

	if (!fits_format(file, &report->options))
	{
		refuse_format(file, &report->options);
		collect_place(report, file->path, "is not of format json");
		return;
	}
	source = source_open(file, report->options.keys, false);
	if (source == NULL)
	{
		collect_place(report, file->path, "could not be opened");
		return;
	}
	source_join(source, false);
	while ((result = source_next(source, &record)) == SOURCE_RECORD)
	{
		collect_sequence(report, file, &record);
		if (record.continues)
			continue;
		report->read++;
		if (all || filter_matches(&report->options.filter, &record))
			collect_record(report, &record);
		else if (record_is_gap(&record) && filter_concerns_gap(&report->options.filter, &record))
			collect_unwanted_gap(report, &record);
		if (report->read % PROGRESS_EVERY == 0 && progress_is_shown())
			progress_report(report->bytes + source_position(source), false);
	}
	collect_end(report, file, source, result);
	report->nfiles++;
	report->bytes += source_position(source);
	source_close(source);
}

void
run_report(int argc, char **argv)
{
	static Report report;
	Options    *options = &report.options;
	FileList	files = {0};

	parse_options(options, READER_REPORT, argc, argv);
	for (int i = 0; i < options->npaths; i++)
		(void) add_path(&files, options->paths[i]);
	check_formats(&files, options);
	sort_files(&files, options->keys);
	transactions_read(options, &files);
	progress_begin(options, files_size(&files));
	for (int i = 0; i < files.count; i++)
		report_file(&report, &files.files[i]);
	progress_report(report.bytes, true);
	report_write(&report, options->format == FORMAT_HTML ? &html_writer : &text_writer);
	free_files(&files);
}
