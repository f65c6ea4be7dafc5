/*-------------------------------------------------------------------------
 *
 * source.c
 *		Records of a file, one after the other.
 *
 * The file's text is kept from the beginning of the record that comes next.  A record
 * that is not all there yet may be read later: follow calls source_next() again.
 *
 * Lines of format json that are no records are reported, and left out.  In the other formats
 * anything up to the end of a record is one.
 *
 * A record that is longer than RECORD_MAX is shortened as it is read (trail/shorten.h).
 *
 * Records in parts (trail/part.h) are put together for who asks for that.  Parts that are not
 * all there are reported, and handed out one by one, as records.  So are those of a record that
 * would be longer than RECORD_MAX, without a report.  Who counts can tell that they are one record.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <fcntl.h>
#include <unistd.h>

/* Longest record, in bytes, that is handed out as it is: it is kept meanwhile */
#ifndef RECORD_MAX
#define RECORD_MAX		(256 * 1024 * 1024)
#endif

/* Lines of a file that are reported one by one if they are no records */
#define MAX_REPORTS		10

#define STDIN_CHUNK		(256 * 1024)

/* A part that was handed out by itself */
typedef struct SourcePart
{
	int64		number;			/* 0: it was none */
	int64		count;
	int64		sequence;
	int64		series;
} SourcePart;

struct Source
{
	char	   *path;
	Format		format;
	bool		quiet;			/* report nothing */
	int			fd;
	PaqLayerReader *reader;		/* NULL: standard input */
	uint64		known_size;		/* of the file, when that was looked at */
	Buffer		text;
	Size		start;			/* of the next record in text */
	Size		scanned;		/* bytes from there on that do not end it */
	bool		quoted;			/* csvlog: what follows these is in quotes */
	uint64		offset;			/* of the next record in the file's text */
	bool		layered;		/* the text is not the file */
	uint64		mark;			/* see source_mark() */
	uint64		shortened;		/* bytes of it that are no longer in text, but in: */
	PaqShortener shortener;
	bool		failed;
	uint64		nbad;			/* lines that are no records */
	bool		joins;			/* put records in parts together */
	bool		grows;			/* missing parts may still come */
	PaqJoiner	joiner;
	bool		joined;			/* the record handed out is what that has joined */
	bool		giving;			/* what it has kept is handed out, line by line */
	Size		given;			/* bytes of that so far */
	const char *held;			/* line in text that comes after these; NULL: none */
	Size		held_len;
	SourcePart	part;			/* handed out last */
};

/* NULL, with a message unless quiet, if the file cannot be opened. */
Source *
source_open(const TrailFile *file, const PaqKeys *keys, bool quiet)
{
	Source	   *source;
	int			fd = STDIN_FILENO;

	if (!file->is_stdin)
		fd = open(file->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | PG_BINARY |
				  (file->is_named ? 0 : O_NOFOLLOW), 0);
	if (fd < 0)
	{
		if (!quiet)
		{
			pg_log_error("could not open file \"%s\": %m", file->path);
			note_status(STATUS_TROUBLE);
		}
		return NULL;
	}
	source = checked_alloc(sizeof(Source));
	source->path = checked_strdup(file->path);
	source->format = file->format;
	source->quiet = quiet;
	source->fd = fd;
	if (!file->is_stdin)
	{
		PaqLayers	layers;

		source->reader = paq_layer_reader_make(fd, file->name, keys);
		(void) paq_layers_of_name(file->name, &layers);
		source->layered = layers.compression != PAQ_COMPRESSION_NONE ||
			layers.encryption != PAQ_ENCRYPTION_NONE || paq_is_block_file(file->name);
	}
	return source;
}

/*
 * Put records in parts together from now on; grows: the end of the file is not that of the
 * trail.
 */
void
source_join(Source *source, bool grows)
{
	source->joins = source->format == FORMAT_JSON;
	source->grows = grows;
}

/* Reading goes on elsewhere. */
static void
forget_text(Source *source)
{
	source->start = source->scanned = source->text.used = source->given = 0;
	source->shortened = 0;
	source->quoted = source->joined = source->giving = false;
	source->held = NULL;
	paq_join_forget(&source->joiner);
}

/* Read as if the file ended at that offset. */
void
source_limit(Source *source, uint64 limit)
{
	paq_layer_reader_limit(source->reader, limit);
}

/*
 * Read on at an offset of the file, where source_mark() has been.  False if that is
 * impossible; then the file is read from where it was.
 */
bool
source_seek(Source *source, uint64 offset)
{
	if (!paq_layer_reader_seek(source->reader, offset))
		return false;
	forget_text(source);
	source->offset = source->mark = offset;
	return true;
}

/*
 * Offset of the file from which on the record that comes next can be read, by another
 * source; perhaps after some that have been read.
 */
uint64
source_mark(Source *source)
{
	uint64		offset;
	bool		whole;

	if (!source->layered)
		return source->offset;
	if (source->start == source->text.used)
	{
		offset = paq_layer_reader_offset(source->reader, &whole);
		if (whole)
			source->mark = offset;
	}
	return source->mark;
}

void
source_close(Source *source)
{
	if (source == NULL)
		return;
	if (source->nbad > MAX_REPORTS && !source->quiet)
		pg_log_error(ngettext("file \"%s\": " UINT64_FORMAT " more line is no record",
							  "file \"%s\": " UINT64_FORMAT " more lines are no records",
							  source->nbad - MAX_REPORTS),
					 source->path, source->nbad - MAX_REPORTS);
	if (source->reader != NULL)
	{
		paq_layer_reader_free(source->reader);
		close(source->fd);
	}
	paq_join_end(&source->joiner);
	if (source->shortener.kept.data != NULL)
		pfree(source->shortener.kept.data);
	free(source->text.data);
	free(source->path);
	free(source);
}

/* Behind which byte of the file, or of standard input's records, reading is */
uint64
source_position(const Source *source)
{
	bool		whole;

	if (source->reader == NULL)
		return source->offset;
	return paq_layer_reader_offset(source->reader, &whole);
}

/* Lines so far that are no records */
uint64
source_bad_lines(const Source *source)
{
	return source->nbad;
}

bool
source_is_file(const Source *source, const struct stat *st)
{
	struct stat own;

	return fstat(source->fd, &own) == 0 &&
		own.st_dev == st->st_dev && own.st_ino == st->st_ino;
}

static SourceResult
report_failure(Source *source)
{
	bool		damaged;
	bool		whole;
	const char *error = paq_layer_reader_error(source->reader, &damaged);

	source->failed = true;
	if (source->quiet)
		return SOURCE_FAILED;
	if (damaged)
		pg_log_error("file \"%s\": damaged from byte " UINT64_FORMAT " on: %s", source->path,
					 paq_layer_reader_offset(source->reader, &whole), error);
	else
		pg_log_error("could not read file \"%s\": %s", source->path, error);
	note_status(damaged ? STATUS_ALTERED : STATUS_TROUBLE);
	return SOURCE_FAILED;
}

static void
report_line(Source *source, uint64 offset)
{
	source->nbad++;
	if (source->quiet)
		return;
	if (source->nbad <= MAX_REPORTS)
		pg_log_error("file \"%s\": the line at byte " UINT64_FORMAT " is no record",
					 source->path, offset);
	note_status(STATUS_ALTERED);
}

static SourceResult
read_stdin(Source *source)
{
	ssize_t		n;

	buffer_reserve(&source->text, STDIN_CHUNK);
	do
		n = read(source->fd, source->text.data + source->text.used, STDIN_CHUNK);
	while (n < 0 && errno == EINTR);
	if (n < 0)
	{
		pg_log_error("could not read standard input: %m");
		note_status(STATUS_TROUBLE);
		source->failed = true;
		return SOURCE_FAILED;
	}
	source->text.used += n;
	return n > 0 ? SOURCE_RECORD : SOURCE_END;
}

/* After SOURCE_FAILED: is it because of what is in the file? */
bool
source_is_damaged(const Source *source)
{
	bool		damaged = false;

	if (source->reader != NULL)
		(void) paq_layer_reader_error(source->reader, &damaged);
	return damaged;
}

/* Have more text of the file; SOURCE_RECORD if there is some. */
static SourceResult
read_source(Source *source)
{
	const char *data;
	Size		len;

	if (source->start > 0)
	{
		source->text.used -= source->start;
		memmove(source->text.data, source->text.data + source->start, source->text.used);
		source->start = 0;
	}
	if (source->reader == NULL)
		return read_stdin(source);
	switch (paq_layer_read(source->reader, &data, &len))
	{
		case PAQ_LAYER_TEXT:
			buffer_put(&source->text, data, len);
			return SOURCE_RECORD;
		case PAQ_LAYER_END:
			return SOURCE_END;
		case PAQ_LAYER_CUT:
			return SOURCE_CUT;
		case PAQ_LAYER_FAILED:
			break;
	}
	return report_failure(source);
}

/* Behind the newline that is outside of quotes; NULL if there is none. */
static const char *
csv_record_end(const char *p, const char *end, bool *quoted)
{
	for (; p < end; p++)
	{
		if (*p == '"')
			*quoted = !*quoted;
		else if (*p == '\n' && !*quoted)
			return p + 1;
	}
	return NULL;
}

/*
 * Behind the newline that no tab follows.  What follows the last one is known only at the
 * end of the file.
 */
static const char *
log_record_end(const char *p, const char *end, bool at_end)
{
	while (p < end && (p = memchr(p, '\n', end - p)) != NULL)
	{
		p++;
		if (p == end ? at_end : *p != '\t')
			return p;
	}
	return NULL;
}

/* Length of the next record; 0 if its end is not there. */
static Size
next_record_length(Source *source, bool at_end)
{
	const char *first = source->text.data + source->start;
	const char *p = first + source->scanned;
	const char *end = source->text.data + source->text.used;
	const char *stop = NULL;

	if (source->text.used == source->start)
		return 0;
	if (source->format == FORMAT_CSVLOG)
		stop = csv_record_end(p, end, &source->quoted);
	else if (source->format == FORMAT_PGAUDIT)
		stop = log_record_end(p, end, at_end);
	else if ((stop = memchr(p, '\n', end - p)) != NULL)
		stop++;
	source->scanned = 0;
	if (stop != NULL)
		return stop - first;

	/* a newline at the end is looked at again */
	source->scanned = end - first - (source->format == FORMAT_PGAUDIT ? 1 : 0);
	return 0;
}

/* So many bytes of text belong to a record that is too long. */
static void
shorten_record(Source *source, Size len)
{
	static const PaqShortFormat formats[] = {
		[FORMAT_JSON] = PAQ_SHORT_JSON,
		[FORMAT_CSVLOG] = PAQ_SHORT_CSVLOG,
		[FORMAT_PGAUDIT] = PAQ_SHORT_PGAUDIT
	};

	if (source->shortened == 0)
		paq_shorten_begin(&source->shortener, formats[source->format]);
	paq_shorten_add(&source->shortener, source->text.data + source->start, len);
	source->shortened += len;
	source->start += len;
	source->scanned = 0;
}

/* What was left of a record becomes one, of which len bytes, with a newline, are still in text. */
static void
take_shortened(Source *source, Size len, Record *record)
{
	shorten_record(source, len - 1);
	paq_shorten_end(&source->shortener);
	appendStringInfoChar(&source->shortener.kept, '\n');
	source->start++;
	source->offset += source->shortened + 1;
	source->shortened = 0;
	record->data = source->shortener.kept.data;
	record->len = source->shortener.kept.len;
}

/* A record, or what text has of it, has that length: hand it out, if it is one. */
static bool
take_record(Source *source, Size len, Record *record)
{
	const uint64 offset = source->offset;

	record->format = source->format;
	record->nparts = 1;
	if (source->shortened + len > RECORD_MAX)
		take_shortened(source, len, record);
	else
	{
		record->data = source->text.data + source->start;
		record->len = len;
		source->start += len;
		source->offset += len;
	}
	if (source->format != FORMAT_JSON || record_parse(record))
		return true;
	report_line(source, offset);
	return false;
}

static SourceResult
next_source_line(Source *source, Record *record)
{
	for (;;)
	{
		SourceResult result;
		Size		len = next_record_length(source, false);

		if (len > 0)
		{
			if (take_record(source, len, record))
				return SOURCE_RECORD;
			continue;
		}
		if (source->failed)
			return SOURCE_FAILED;
		if (source->shortened > 0 || source->text.used - source->start > RECORD_MAX)
			shorten_record(source, source->scanned);
		result = read_source(source);
		if (result == SOURCE_RECORD)
			continue;
		if (result != SOURCE_FAILED && (len = next_record_length(source, true)) > 0 &&
			take_record(source, len, record))
			return SOURCE_RECORD;
		if (result == SOURCE_END &&
			(source->text.used > source->start || source->shortened > 0))
			return SOURCE_CUT;
		return result;
	}
}

/* The next of the lines that are not put together; false if there are no more. */
static bool
give_kept(Source *source, Record *record)
{
	const StringInfoData *kept = &source->joiner.kept;
	const char *line = kept->data + source->given;

	if (source->given == kept->len)
	{
		source->giving = false;
		source->given = 0;
		paq_join_forget(&source->joiner);
		return false;
	}
	record->data = line;
	record->len = (char *) memchr(line, '\n', kept->len - source->given) + 1 - line;
	record->format = FORMAT_JSON;
	record->nparts = 1;
	source->given += record->len;
	return record_parse(record);
}

/* Parts are missing, or too long together.  Hand out those that are there. */
static void
give_up_parts(Source *source, bool too_long)
{
	if (!source->quiet && !too_long)
		pg_log_warning("file \"%s\": of the record with sequence " INT64_FORMAT ", " INT64_FORMAT " of " INT64_FORMAT " parts are there",
					   source->path, source->joiner.sequence - source->joiner.number + 1,
					   source->joiner.number, source->joiner.count);
	source->giving = true;
}

static SourceResult
next_record(Source *source, Record *record)
{
	if (source->joined)
		paq_join_forget(&source->joiner);
	source->joined = false;
	for (;;)
	{
		PaqJoinResult joined;

		if (source->giving && give_kept(source, record))
			return SOURCE_RECORD;
		if (source->held != NULL)
		{
			record->data = source->held;
			record->len = source->held_len;
			source->held = NULL;
			(void) record_parse(record);
		}
		else
		{
			const SourceResult result = next_source_line(source, record);

			if (result != SOURCE_RECORD)
			{
				if (!paq_join_is_pending(&source->joiner) || source->grows)
					return result;
				give_up_parts(source, false);
				continue;
			}
		}
		if (!source->joins)
			return SOURCE_RECORD;
		joined = paq_join_line(&source->joiner, record->data, record->len, &record->line,
							   RECORD_MAX);
		switch (joined)
		{
			case PAQ_JOIN_NONE:
				return SOURCE_RECORD;
			case PAQ_JOIN_MORE:
				break;
			case PAQ_JOIN_DONE:
				source->joined = true;
				record->data = source->joiner.joined.data;
				record->len = source->joiner.joined.len;
				record->nparts = source->joiner.count;
				if (record_parse(record))
					return SOURCE_RECORD;
				report_line(source, source->offset);
				paq_join_forget(&source->joiner);
				source->joined = false;
				break;
			case PAQ_JOIN_BROKEN:
			case PAQ_JOIN_TOO_LONG:
				source->held = record->data;
				source->held_len = record->len;
				give_up_parts(source, joined == PAQ_JOIN_TOO_LONG);
				break;
		}
	}
}

/* Is what is handed out a part of a record, and one more of the record before? */
static void
note_part(Source *source, Record *record)
{
	const SourcePart before = source->part;
	PaqPartInfo info;

	record->continues = false;
	record->more = source->part.number = 0;
	if (!source->joins || !paq_part_info(&record->line, &info))
		return;
	source->part.number = info.number;
	source->part.count = info.count;
	source->part.sequence = record_number(record, PAQ_TRAIL_SEQUENCE);
	source->part.series = record_number(record, PAQ_TRAIL_SERIES);
	record->more = info.count - info.number;
	record->continues = before.number > 0 && info.number == before.number + 1 &&
		info.count == before.count && source->part.series == before.series &&
		source->part.sequence == before.sequence + 1;
}

/*
 * The next record.  After anything else than SOURCE_RECORD it may be asked again: the file may
 * have grown.
 */
SourceResult
source_next(Source *source, Record *record)
{
	const SourceResult result = next_record(source, record);

	if (result == SOURCE_RECORD)
		note_part(source, record);
	return result;
}

/*
 * Has the file become shorter?  After a crash the writer cuts off what it had not
 * finished, and goes on there; so does reading.  False if that is impossible.
 */
bool
source_follow_truncation(Source *source)
{
	struct stat st;
	uint64		position = source_position(source);
	uint64		size;

	if (fstat(source->fd, &st) != 0)
		return true;
	size = st.st_size;
	if (size >= source->known_size && size >= position)
	{
		source->known_size = size;
		return true;
	}
	source->known_size = size;
	position = Min(position, size);
	forget_text(source);
	source->offset = position;
	if (paq_layer_reader_seek(source->reader, position))
		return true;
	(void) report_failure(source);
	return false;
}
