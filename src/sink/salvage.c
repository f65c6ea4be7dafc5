/*-------------------------------------------------------------------------
 *
 * salvage.c
 *		What a crash of the operating system has left of trail files.
 *
 * Up to a known place the file was durable.  Behind it, any page may be
 * missing: file systems show such pages as zeros, or end the file before them.
 * No format writes a zero byte, and the format tells where the next record
 * begins behind them; no text that a user sends can look like that.  A record
 * that is torn by missing pages is overwritten, together with these, by one GAP
 * record of the same length, its message filled up with spaces.  So the file
 * has only valid records, and nothing moves.  At the end of the file, a torn
 * record is cut off.  All other records are kept, but for those that have to
 * make space for a GAP record that does not fit into a small damage.
 *
 * The queue may have records that were kept.  They are recognized by a digest
 * of their text, without the sequence, which depends on when they are written.
 * Otherwise the text of a record is the same whenever it is made, if the
 * settings of the format are the same.
 *
 * A file with layers has no place for anything within its units.  It is cut off
 * behind the last unit before the first damage that ends with a record, and a GAP
 * record follows, unless the damage is only that the last unit is torn.
 *
 * Guarantees: a crash in here loses nothing, the same happens once more.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>
#include <unistd.h>

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "fault.h"
#include "file_util.h"
#include "sink/key_command.h"
#include "sink/sink_internal.h"
#include "trail/part.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Texts are formatted in pieces of this size, in bytes. */
#define PIECE_SIZE		8192

/* What is known of the records that the trail may have and the queue, too */
static struct
{
	/*
	 * Their SHA-256 digests, of which 64 bits are enough.  No two records of a
	 * trail have the same text, unless log_line_prefix has neither the time nor
	 * the session.  NULL: none are known.
	 */
	HTAB	   *digests;
	const PaqFormat *format;	/* of the texts */

	pg_cryptohash_ctx *digest;	/* the one that digest_add() adds to */

	/* Where they begin; "": nowhere */
	char		file[MAXPGPATH];
	uint64		from;
	uint64		sequence;		/* of the record before */
}			known;

/* A file that is being looked at */
typedef struct Scan
{
	int			fd;
	const char *path;
	const PaqFormat *format;
	PaqSalvage	what;
	char	   *data;			/* all of it; with layers, text whose end was not
								 * found yet */
	Size		size;
	PaqLayerReader *reader;		/* NULL: it has no layers */
	PaqKeys    *keys;
	PaqSalvaged *found;

	/*
	 * Of a record in parts: the last one found, and the digest of the first, by which
	 * the whole is known if the last one is there.
	 */
	PaqPartInfo part;			/* number 0: there is none */
	uint64		part_sequence;
	uint64		first_digest;
} Scan;

static bool
digest_begin(void)
{
	if (known.digest == NULL)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);

		known.digest = pg_cryptohash_create(PG_SHA256);
		MemoryContextSwitchTo(oldcontext);
	}
	return known.digest != NULL && pg_cryptohash_init(known.digest) >= 0;
}

static bool
digest_add(const char *data, Size len)
{
	return pg_cryptohash_update(known.digest, (const uint8 *) data, len) >= 0;
}

static bool
digest_end(uint64 *digest)
{
	uint8		result[PG_SHA256_DIGEST_LENGTH];

	if (pg_cryptohash_final(known.digest, result, sizeof(result)) < 0)
		return false;
	memcpy(digest, result, sizeof(*digest));
	return true;
}

/* Of a record as it is in the file; sequence and series count as 0. */
static bool
digest_text(const PaqFormat *format, const char *line, Size len, uint64 *digest)
{
	Size		done = 0;
	Size		start = 0;
	Size		digits;
	bool		is_series;

	if (!digest_begin())
		return false;
	while (format->find_number(line, len, &start, &digits, &is_series))
	{
		if (!digest_add(line + done, start - done) || !digest_add("0", 1))
			return false;
		done = start = start + digits;
	}
	return digest_add(line + done, len - done) && digest_end(digest);
}

static bool
drain_into_digest(PaqBuffer *buf)
{
	if (!digest_add(buf->data, buf->used))
		return false;
	buf->used = 0;
	return true;
}

/* Of a record as it would be in the file. */
static bool
digest_record(const PaqRecord *record, uint64 *digest)
{
	static char piece[PIECE_SIZE];
	PaqBuffer	buf = {.data = piece, .size = sizeof(piece), .drain = drain_into_digest};
	PaqRecord	copy = *record;

	copy.sequence = copy.series = 0;
	copy.server = paq_trail_server();
	if (!digest_begin())
		return false;
	return paq_parts_write(&buf, known.format, &copy,
						   paq_parts_limit(known.format, known.file), true) > 0 &&
		!buf.failed && drain_into_digest(&buf) && digest_end(digest);
}

bool
paq_sink_is_known(const PaqRecord *record)
{
	uint64		digest;

	return unlikely(known.digests != NULL) && digest_record(record, &digest) &&
		hash_search(known.digests, &digest, HASH_FIND, NULL) != NULL;
}

/*
 * The known records begin at offset from of the file at path, where the one
 * before has that sequence, and go on in the files that are newer.  Until they
 * are forgotten, the next worker has to begin there, too.
 */
void
paq_salvage_keep(const char *path, uint64 from, uint64 sequence)
{
	strlcpy(known.file, path, sizeof(known.file));
	known.from = from;
	known.sequence = sequence;
}

bool
paq_salvage_is_kept(void)
{
	return known.file[0] != '\0';
}

/* Put that into a state that is to be stored, if there are known records. */
void
paq_salvage_state(PaqSinkState *state)
{
	if (!paq_salvage_is_kept())
		return;
	strlcpy(state->known_file, known.file, sizeof(state->known_file));
	state->known_from = known.from;
	state->known_sequence = known.sequence;
}

void
paq_sink_forget_known(void)
{
	if (known.digests != NULL)
		hash_destroy(known.digests);
	known.digests = NULL;
	known.file[0] = '\0';
}

static void
begin_known(const PaqFormat *format)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(uint64);
	ctl.entrysize = sizeof(uint64);
	ctl.hcxt = TopMemoryContext;
	known.digests = hash_create("audit records in the trail", 1024, &ctl,
								HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	known.format = format;
}

/*
 * Length of the whole record at data; 0 if it is torn or does not end within
 * len bytes.
 */
static Size
whole_record(const PaqFormat *format, const char *data, Size len)
{
	Size		length = format->record_length(data, len);

	if (length == 0 || memchr(data, '\0', length) != NULL)
		return 0;
	return length;
}

/*
 * There is no whole record at the start of data.  Length up to the next one
 * behind the missing pages; 0 if there is none within len bytes.
 */
static Size
length_of_damage(const PaqFormat *format, const char *data, Size len)
{
	const char *end = data + len;
	const char *p = data;

	while ((p = memchr(p, '\0', end - p)) != NULL)
	{
		Size		rest;

		while (p < end && *p == '\0')
			p++;
		if (p == end)
			return 0;
		rest = format->rest_length(p, end - p);
		if (rest == 0)
			return 0;

		/* The rest of a record, and perhaps the next missing page. */
		if (memchr(p, '\0', rest) == NULL)
			return p + rest - data;
	}
	return 0;
}

static void
write_gap(PaqBuffer *buf, const PaqFormat *format, TimestampTz now,
		  uint64 sequence, int64 count, PaqText message)
{
	PaqRecord	record;

	paq_sink_gap_record(&record, 0, now, count, message);
	record.sequence = sequence;
	record.series = paq_trail.series;
	record.server = paq_trail_server();
	buf->used = 0;
	format->write(buf, &record);
}

/*
 * A GAP record for sequences from first to last, if these are known, of
 * exactly len bytes.  Returns NULL if that is too short for one.
 */
static char *
make_filler(const PaqFormat *format, Size len, uint64 first, uint64 last)
{
	const Size	size = len + PAQ_FORMAT_HEADROOM + 1;
	PaqBuffer	buf = {.data = palloc_extended(size, MCXT_ALLOC_HUGE), .size = size};
	char	   *text = palloc_extended(len + 256, MCXT_ALLOC_HUGE);
	PaqText		message = {.data = text};
	TimestampTz now = GetCurrentTimestamp();
	int64		count = -1;

	if (first != 0 && last >= first)
	{
		count = last - first + 1;
		message.len = snprintf(text, 256, "the operating system was restarted before the records with sequence " UINT64_FORMAT " to " UINT64_FORMAT " were durable; those that the queue has follow",
							   first, last);
	}
	else
		message.len = snprintf(text, 256, "the operating system was restarted before the records here were durable; those that the queue has follow");
	write_gap(&buf, format, now, first, count, message);
	if (!buf.failed && buf.used < len)
	{
		Size		padding = len - buf.used;

		memset(text + message.len, ' ', padding);
		message.len += padding;
		write_gap(&buf, format, now, first, count, message);
	}
	pfree(text);
	if (buf.failed || buf.used != len)
	{
		pfree(buf.data);
		return NULL;
	}
	return buf.data;
}

/*
 * Overwrite len damaged bytes at offset with a GAP record.  The record behind
 * them has the sequence "after", if that is known.  *fits tells whether there is
 * such a record.
 */
static bool
fill_damage(Scan *scan, uint64 offset, Size len, uint64 after, bool *fits)
{
	uint64		before = scan->found->sequence;
	char	   *filler = make_filler(scan->format, len, before ? before + 1 : 0,
							   after ? after - 1 : 0);
	Size		done;

	*fits = filler != NULL;
	if (filler == NULL)
		return true;
	done = paq_write_all(scan->fd, filler, len, offset);
	if (done < len)
		paq_sink_set_error("could not write to file \"%s\": %m", scan->path);
	else
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("%zu bytes of audit trail file \"%s\" were lost in a crash of the operating system",
						len, scan->path),
				 errdetail("A GAP record is in their place.")));
	pfree(filler);
	return done == len;
}

/*
 * Overwrite the *len damaged bytes at offset with a GAP record.  If they are too
 * few for one, it takes the place of whole records behind, too; these are not
 * known then, and will be written again if the queue has them.  *len is what it
 * covers in the end, 0 if the file ends before there is enough space.
 */
static bool
mend(Scan *scan, uint64 offset, Size *len)
{
	for (;;)
	{
		const char *behind = scan->data + offset + *len;
		Size		next = whole_record(scan->format, behind,
										scan->size - offset - *len);
		uint64		after = next > 0 ?
			paq_find_sequence(scan->format, behind, next) : 0;
		bool		fits;

		if (!fill_damage(scan, offset, *len, after, &fits))
			return false;
		if (fits)
		{
			scan->found->sequence = after ? after - 1 : scan->found->sequence + 1;
			return true;
		}
		if (next == 0)
		{
			*len = 0;
			return true;
		}
		*len += next;
	}
}

/* Is the line a part of a longer record? */
static bool
part_info(const Scan *scan, const char *line, Size len, PaqPartInfo *info)
{
	static PaqLine parsed;

	info->number = 0;
	return scan->format->has_parts && paq_line_parse(line, len, &parsed) &&
		paq_part_info(&parsed, info);
}

/*
 * A record with that digest is there, or a part with it: then all of the record is known
 * once the last part is there, behind all others, by the digest of the first one.
 */
static void
note_known(Scan *scan, const PaqPartInfo *part, uint64 sequence, uint64 digest)
{
	const bool	follows = part->number > 1 && part->number == scan->part.number + 1 &&
		part->count == scan->part.count && sequence == scan->part_sequence + 1;

	scan->part.number = 0;
	if (part->number == 1)
		scan->first_digest = digest;
	if (part->number == 1 || (follows && part->number < part->count))
	{
		scan->part = *part;
		scan->part_sequence = sequence;
	}
	else if (part->number == 0 || follows)
		(void) hash_search(known.digests, part->number == 0 ? &digest : &scan->first_digest,
						   HASH_ENTER, NULL);
}

/* The file has this record. */
static bool
take_record(Scan *scan, const char *line, Size len)
{
	PaqSalvaged *found = scan->found;
	uint64		sequence = paq_find_sequence(scan->format, line, len);
	PaqPartInfo part;
	uint64		digest;

	/* of a record in parts, the queue has one */
	if (!part_info(scan, line, len, &part) || part.number == 1)
		found->count++;
	if (scan->what == PAQ_SALVAGE_COUNT)
	{
		found->sequence = sequence;
		return true;
	}
	if (!digest_text(scan->format, line, len, &digest))
	{
		paq_sink_set_error("could not compute a digest of file \"%s\"", scan->path);
		return false;
	}
	note_known(scan, &part, sequence, digest);
	found->sequence = sequence ? sequence : found->sequence + 1;
	return true;
}

static bool
scan_records(Scan *scan, uint64 from)
{
	uint64		pos = from;

	while (pos < scan->size)
	{
		const char *line = scan->data + pos;
		Size		left = scan->size - pos;
		Size		len = whole_record(scan->format, line, left);

		if (len > 0)
		{
			if (!take_record(scan, line, len))
				return false;
		}
		else
		{
			if (scan->what != PAQ_SALVAGE_LEARN)
				len = length_of_damage(scan->format, line, left);
			if (len > 0 && scan->what == PAQ_SALVAGE_MEND && !mend(scan, pos, &len))
				return false;
			if (len == 0)
				break;
		}
		pos += len;
	}
	scan->found->end = pos;
	return scan->what != PAQ_SALVAGE_MEND || pos == scan->size ||
		paq_trail_truncate(scan->fd, scan->path, pos);
}

/* ----------
 * Files with layers
 * ----------
 */

/* All of the text is records, and they end where a unit does: take them. */
static bool
take_text(Scan *scan, uint64 offset, Size *records)
{
	Size		pos = 0;

	while (pos < scan->size)
	{
		Size		len = whole_record(scan->format, scan->data + pos, scan->size - pos);

		if (!take_record(scan, scan->data + pos, len))
			return false;
		pos += len;
	}
	scan->found->end = offset;
	scan->size = *records = 0;
	return true;
}

/*
 * Take the records of the units that the reader reads, up to the last unit that ends
 * with a record.  *result becomes why there are no more.
 */
static bool
scan_units(Scan *scan, PaqLayerResult *result)
{
	Size		capacity = PAQ_UNIT_TEXT_MAX;
	Size		records = 0;	/* bytes of text that are whole records */
	const char *piece;
	Size		len;

	scan->data = palloc(capacity);
	scan->size = 0;
	while ((*result = paq_layer_read(scan->reader, &piece, &len)) == PAQ_LAYER_TEXT)
	{
		bool		unit_ends;
		uint64		offset = paq_layer_reader_offset(scan->reader, &unit_ends);

		/* The unit before ended only when this one was begun? */
		if (!unit_ends && offset > scan->found->end && records == scan->size &&
			!take_text(scan, offset, &records))
			return false;
		if (scan->size + len > capacity)
		{
			capacity = 2 * (scan->size + len);
			scan->data = repalloc_huge(scan->data, capacity);
		}
		memcpy(scan->data + scan->size, piece, len);
		scan->size += len;
		/* No record ends without a newline: do not look for its end in each piece. */
		if (memchr(piece, '\n', len) == NULL)
			continue;
		while (records < scan->size &&
			   (len = whole_record(scan->format, scan->data + records,
								   scan->size - records)) > 0)
			records += len;
		if (unit_ends && records == scan->size && !take_text(scan, offset, &records))
			return false;
	}
	return true;
}

/*
 * Nothing behind found->end is of use: cut it off.  damage is what is wrong there, NULL
 * if that is only the end of the file.
 */
static bool
cut_units(const Scan *scan, const char *damage)
{
	const PaqSalvaged *found = scan->found;

	if (damage != NULL)
	{
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("audit trail file \"%s\" is cut off behind byte %llu: %s",
						scan->path, (unsigned long long) found->end, damage),
				 errdetail("A GAP record follows.")));
		paq_trail_note_damage(scan->path, found->sequence);
	}
	return paq_trail_truncate(scan->fd, scan->path, found->end);
}

/*
 * The file cannot be read, for want of its key.  That is a failure if it has to be
 * mended: the queue may have the same records.
 */
static bool
without_key(const Scan *scan, const char *reason)
{
	if (scan->what == PAQ_SALVAGE_MEND)
	{
		if (reason != paq_sink_error())
			paq_sink_set_error("could not read file \"%s\": %s", scan->path, reason);
		return false;
	}
	ereport(LOG,
			(errmsg("could not look for records in audit trail file \"%s\": %s",
					scan->path, reason)));
	return true;
}

static bool
salvage_units(Scan *scan, const PaqLayers *layers, uint64 from)
{
	PaqLayerResult result = PAQ_LAYER_FAILED;
	char		key_error[PAQ_LAYER_ERROR_LEN];
	const char *error;
	bool		damaged;
	struct stat st;

	if (fstat(scan->fd, &st) != 0)
	{
		paq_sink_set_error("could not stat file \"%s\": %m", scan->path);
		return false;
	}
	if (!S_ISREG(st.st_mode) || (uint64) st.st_size <= from)
		return true;
	if (layers->encryption != PAQ_ENCRYPTION_NONE &&
		(scan->keys = paq_run_key_command(key_error)) == NULL)
		return without_key(scan, key_error);
	scan->reader = paq_layer_reader_make(scan->fd, paq_trail_name_of(scan->path),
										 scan->keys);
	scan->found->end = from;
	if (paq_layer_reader_seek(scan->reader, from) && !scan_units(scan, &result))
		return false;
	error = paq_layer_reader_error(scan->reader, &damaged);
	if (result == PAQ_LAYER_FAILED && !damaged)
	{
		scan->found->end = st.st_size;
		return without_key(scan, error);
	}
	return scan->what != PAQ_SALVAGE_MEND || scan->found->end == (uint64) st.st_size ||
		cut_units(scan, result == PAQ_LAYER_FAILED ? error : NULL);
}

/* ----------
 * Any file
 * ----------
 */

static bool
salvage_plain(Scan *scan, uint64 from)
{
	errno = PAQ_FAULT("trail-read");
	if (errno != 0 || !paq_map_file(scan->fd, from, &scan->data, &scan->size))
	{
		paq_sink_set_error("could not read file \"%s\": %m", scan->path);
		return false;
	}
	return scan->data == NULL || scan_records(scan, from);
}

static void
end_scan(Scan *scan)
{
	if (scan->reader == NULL && scan->data != NULL)
		munmap(scan->data, scan->size);
	else if (scan->data != NULL)
		pfree(scan->data);
	paq_layer_reader_free(scan->reader);
	paq_keys_free(scan->keys);
}

/*
 * Go through the records of a file, the first of which begins at offset from.
 * Closes fd if it raises an error, for lack of memory.
 */
bool
paq_salvage(int fd, const char *path, PaqSalvage what, uint64 from,
			PaqSalvaged *found)
{
	Scan		scan = {.fd = fd, .path = path, .what = what, .found = found};
	PaqLayers	layers;
	bool		ok;

	scan.format = paq_trail_format_of(path);
	(void) paq_layers_of_name(path, &layers);
	PG_TRY();
	{
		if (known.digests == NULL && what != PAQ_SALVAGE_COUNT)
			begin_known(scan.format);
		ok = paq_trail_is_layered(&layers) ?
			salvage_units(&scan, &layers, from) : salvage_plain(&scan, from);
	}
	PG_CATCH();
	{
		end_scan(&scan);
		close(fd);
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_scan(&scan);
	return ok;
}
