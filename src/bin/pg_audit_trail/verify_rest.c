/*-------------------------------------------------------------------------
 *
 * verify_rest.c
 *		What seals do not cover, in numbers.
 *
 * Two things tell of it.  Bytes of files that no seal is over: their records are counted, as far
 * as they can be read without a key.  And sequences that seals say were written, but not into
 * bytes that they are over: those that are not among these records either are in none of the
 * files.
 *
 * Nothing that is read here is authentic.  So it is counted, and never verified.
 *
 * Memory is bounded by MAX_PIECES and the longest record.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/verify.h"

/* Sequences of one series without a gap that are remembered, at most */
#define MAX_PIECES		100000

/* Ranges of sequences that a line has */
#define MAX_SHOWN		5

/* Sequences of a series that were found, without a gap */
typedef struct Piece
{
	uint64		series;
	uint64		first;
	uint64		last;
} Piece;

typedef struct Rest
{
	bool		unexpected;		/* the user has not said that he knows */
	uint64		bytes;
	int			nfiles;			/* that these are in, */
	char	   *path;			/* the last of them */
	uint64		records;		/* found there */
	uint64		nbad;			/* lines there that are none */
	bool		vague;			/* some could not be read, */
	bool		unnumbered;		/* or have no sequence */
	bool		scattered;		/* in more pieces than are remembered */
	int			npieces;
	int			size;
	Piece	   *pieces;
	Ranges		written;		/* sequences that seals say were written */
} Rest;

static Rest rests[NREST_KINDS];

static const char *const where[] = {
	[REST_BEFORE] = "before the first seal",
	[REST_BETWEEN] = "while nothing was sealed",
	[REST_BEHIND] = "behind the last seal",
	[REST_FILE] = "in files without seals"
};

static bool
is_any(const Rest *rest)
{
	return rest->bytes > 0 || rest->written.count > 0;
}

/* ----------
 * Ranges
 * ----------
 */

/* Add sequences behind the others; if they follow these without a gap, it is one range. */
void
ranges_add(Ranges *ranges, uint64 first, uint64 last)
{
	Range	   *end = ranges->count > 0 ? &ranges->range[ranges->count - 1] : NULL;

	if (end != NULL && first == end->last + 1)
	{
		end->last = last;
		return;
	}
	ranges->range = array_grow(ranges->range, ranges->count, &ranges->size, sizeof(Range));
	ranges->range[ranges->count++] = (Range){ first, last };
}

/* "sequences 1 to 5, 8" */
void
ranges_put(Buffer *buf, const Ranges *ranges)
{
	for (int i = 0; i < ranges->count && i < MAX_SHOWN; i++)
	{
		const Range *range = &ranges->range[i];

		if (i == 0)
			buffer_puts(buf, ranges->count > 1 || range->first != range->last ?
						"sequences " : "sequence ");
		else
			buffer_puts(buf, ", ");
		if (range->first == 0)
			buffer_puts(buf, "up to ");
		else if (range->first < range->last)
			buffer_printf(buf, UINT64_FORMAT " to ", range->first);
		buffer_printf(buf, UINT64_FORMAT, range->last);
	}
	if (ranges->count > MAX_SHOWN)
		buffer_printf(buf, " and %d more range%s", ranges->count - MAX_SHOWN,
					  plural(ranges->count - MAX_SHOWN));
}

/* ----------
 * What there is
 * ----------
 */

static void
add_piece(Rest *rest, uint64 series, uint64 sequence, uint64 count)
{
	Piece	   *last = rest->npieces > 0 ? &rest->pieces[rest->npieces - 1] : NULL;

	if (last != NULL && last->series == series && last->last + 1 == sequence)
	{
		last->last += count;
		return;
	}
	if (rest->npieces == MAX_PIECES)
	{
		rest->scattered = true;
		return;
	}
	rest->pieces = array_grow(rest->pieces, rest->npieces, &rest->size, sizeof(Piece));
	rest->pieces[rest->npieces++] = (Piece){ series, sequence, sequence + count - 1 };
}

static void
count_record(Rest *rest, const Record *record)
{
	const int64 sequence = record_number(record, PAQ_TRAIL_SEQUENCE);
	const int64 series = record_number(record, PAQ_TRAIL_SERIES);

	if (!record->continues)
		rest->records++;
	if (record->format == FORMAT_JSON && sequence > 0)
		add_piece(rest, series, sequence, record->nparts);
}

/* Count the records that are in that part of a file. */
static void
count_records(Rest *rest, const char *path, uint64 from, uint64 to)
{
	TrailFile	file = {.path = unconstify(char *, path)};
	PaqLayers	layers;
	Record		record = {0};
	Source	   *source;

	file.name = last_dir_separator(path) + 1;
	(void) paq_layers_of_name(file.name, &layers);
	if (layers.encryption != PAQ_ENCRYPTION_NONE || !format_of_name(file.name, &file.format) ||
		(source = source_open(&file, NULL, true)) == NULL)
	{
		rest->vague = true;
		return;
	}
	source_join(source, false);
	rest->unnumbered |= file.format != FORMAT_JSON;
	if (from > 0 && !source_seek(source, from))
		rest->vague = true;
	else
	{
		SourceResult result;

		source_limit(source, to);
		while ((result = source_next(source, &record)) == SOURCE_RECORD)
			count_record(rest, &record);
		rest->vague |= result == SOURCE_FAILED;
		rest->nbad += source_bad_lines(source);
	}
	source_close(source);
	free(record.arena.data);
}

/*
 * No seal is over the bytes of the file from "from" on, up to "to".  expected: the user has said
 * that he knows.
 */
void
rest_bytes(RestKind kind, const char *path, uint64 from, uint64 to, bool expected)
{
	Rest	   *rest = &rests[kind];

	if (from == to)
		return;
	rest->bytes += to - from;
	rest->unexpected |= !expected;
	if (rest->path == NULL || strcmp(rest->path, path) != 0)
	{
		free(rest->path);
		rest->path = checked_strdup(path);
		rest->nfiles++;
	}
	count_records(rest, path, from, to);
}

/*
 * A seal says that these sequences were written, but is over no bytes with them.  first is 0 if
 * they begin anew, and only the last one is known.
 */
void
rest_sequences(RestKind kind, uint64 first, uint64 last, bool expected)
{
	rests[kind].unexpected |= !expected;
	ranges_add(&rests[kind].written, first > 0 ? first : last, last);
}

/* Has the user said that he knows of all that is not covered? */
bool
rest_is_expected(void)
{
	for (int i = 0; i < NREST_KINDS; i++)
		if (rests[i].unexpected)
			return false;
	return true;
}

/* ----------
 * The report
 * ----------
 */

/* For qsort: by sequence */
static int
compare_pieces(const void *a, const void *b)
{
	const Piece *left = a;
	const Piece *right = b;

	if (left->first != right->first)
		return left->first < right->first ? -1 : 1;
	return left->last < right->last ? -1 : left->last > right->last;
}

/* The same, but each series by itself */
static int
compare_series(const void *a, const void *b)
{
	const Piece *left = a;
	const Piece *right = b;

	if (left->series != right->series)
		return left->series < right->series ? -1 : 1;
	return compare_pieces(a, b);
}

/* Have different series the same sequences?  The pieces are in order. */
static bool
is_ambiguous(const Piece *pieces, int npieces)
{
	uint64		last = 0;
	uint64		series = 0;

	for (int i = 0; i < npieces; i++)
	{
		if (pieces[i].first <= last && pieces[i].series != series)
			return true;
		if (pieces[i].last > last)
		{
			last = pieces[i].last;
			series = pieces[i].series;
		}
	}
	return false;
}

/* Make ranges of pieces that are in order. */
static void
unite(Ranges *ranges, const Piece *pieces, int npieces)
{
	for (int i = 0; i < npieces; i++)
	{
		Range	   *end = ranges->count > 0 ? &ranges->range[ranges->count - 1] : NULL;

		if (end == NULL || pieces[i].first > end->last + 1)
			ranges_add(ranges, pieces[i].first, pieces[i].last);
		else
			end->last = Max(end->last, pieces[i].last);
	}
}

static void
put_pieces(Buffer *buf, const Piece *pieces, int npieces)
{
	Ranges		ranges = {0};

	unite(&ranges, pieces, npieces);
	buffer_puts(buf, ", ");
	ranges_put(buf, &ranges);
	free(ranges.range);
}

/* The sequences that were found, each series by itself */
static void
put_rest_series(Buffer *buf, const Rest *rest)
{
	int			count = 0;
	int			next;

	for (int i = 0; i < rest->npieces; i = next)
	{
		const uint64 series = rest->pieces[i].series;

		for (next = i; next < rest->npieces && rest->pieces[next].series == series;)
			next++;
		if (++count > MAX_SHOWN)
			continue;
		put_pieces(buf, rest->pieces + i, next - i);
		buffer_printf(buf, " of series " UINT64_FORMAT, series);
	}
	if (count > MAX_SHOWN)
		buffer_printf(buf, " and those of %d more series", count - MAX_SHOWN);
}

/* The sequences that were found; series are named only where sequences alone are ambiguous. */
static void
put_found(Buffer *buf, Rest *rest)
{
	qsort(rest->pieces, rest->npieces, sizeof(Piece), compare_pieces);
	if (is_ambiguous(rest->pieces, rest->npieces))
	{
		qsort(rest->pieces, rest->npieces, sizeof(Piece), compare_series);
		put_rest_series(buf, rest);
	}
	else if (rest->npieces > 0)
		put_pieces(buf, rest->pieces, rest->npieces);
	if (rest->scattered)
		buffer_puts(buf, " and others");
}

static void
report_bytes(RestKind kind)
{
	Rest	   *rest = &rests[kind];
	Buffer		buf = {0};

	if (rest->bytes == 0)
		return;
	if (rest->records > 0 || !rest->vague)
		buffer_printf(&buf, UINT64_FORMAT " record%s%s %s", rest->records,
					  plural(rest->records), rest->vague ? " or more" : "", where[kind]);
	else
		buffer_printf(&buf, "an unknown number of records %s", where[kind]);
	put_found(&buf, rest);
	if (rest->nbad > 0)
		buffer_printf(&buf, ngettext(", and " UINT64_FORMAT " line that is no record",
									 ", and " UINT64_FORMAT " lines that are no records",
									 rest->nbad), rest->nbad);
	buffer_printf(&buf, ": " UINT64_FORMAT " byte%s of ", rest->bytes, plural(rest->bytes));
	if (rest->nfiles > 1)
		buffer_printf(&buf, "%d files", rest->nfiles);
	else
	{
		buffer_puts(&buf, "file \"");
		buffer_puts(&buf, last_dir_separator(rest->path) + 1);
		buffer_putc(&buf, '"');
	}
	buffer_putc(&buf, '\0');
	uncovered("%s", buf.data);
	free(buf.data);
}

/* All that was found, whatever kind it is of, in order; *known: is it all there is? */
static Ranges
all_found(bool *known)
{
	Rest		all = {0};
	Ranges		found = {0};

	*known = true;
	for (int i = 0; i < NREST_KINDS; i++)
	{
		const Rest *rest = &rests[i];

		*known &= !rest->vague && !rest->unnumbered && !rest->scattered;
		for (int j = 0; j < rest->npieces; j++)
		{
			all.pieces = array_grow(all.pieces, all.npieces, &all.size, sizeof(Piece));
			all.pieces[all.npieces++] = rest->pieces[j];
		}
	}
	qsort(all.pieces, all.npieces, sizeof(Piece), compare_pieces);
	unite(&found, all.pieces, all.npieces);
	free(all.pieces);
	return found;
}

/* Add what of the sequences was not found. */
static void
add_missing(Ranges *missing, uint64 *count, const Range *written, const Ranges *found)
{
	uint64		next = written->first;

	for (int i = 0; i < found->count && next <= written->last; i++)
	{
		const Range *there = &found->range[i];

		if (there->last < next)
			continue;
		if (there->first > written->last)
			break;
		if (there->first > next)
		{
			ranges_add(missing, next, there->first - 1);
			*count += there->first - next;
		}
		next = there->last + 1;
	}
	if (next > written->last)
		return;
	ranges_add(missing, next, written->last);
	*count += written->last - next + 1;
}

/* Sequences that were written, and not found; known: there is nothing else in these files. */
static void
report_missing(RestKind kind, const Ranges *found, bool known)
{
	const Ranges *written = &rests[kind].written;
	Ranges		missing = {0};
	uint64		count = 0;
	Buffer		buf = {0};

	for (int i = 0; i < written->count; i++)
		add_missing(&missing, &count, &written->range[i], found);
	if (count > 0)
	{
		buffer_printf(&buf, UINT64_FORMAT " record%s %s%s, ", count, plural(count), where[kind],
					  known ?
					  ngettext(" that is in none of these files",
							   " that are in none of these files", count) :
					  ngettext(", of which it is not known whether it is in these files",
							   ", of which it is not known whether they are in these files", count));
		ranges_put(&buf, &missing);
		buffer_putc(&buf, '\0');
		uncovered("%s", buf.data);
	}
	free(buf.data);
	free(missing.range);
}

/* Say what is not covered; false if there is nothing. */
bool
rest_report(void)
{
	bool		any = false;
	bool		known;
	Ranges		found = all_found(&known);

	for (int i = 0; i < NREST_KINDS; i++)
	{
		if (!is_any(&rests[i]))
			continue;
		any = true;
		report_bytes(i);
		report_missing(i, &found, known);
	}
	free(found.range);
	return any;
}
