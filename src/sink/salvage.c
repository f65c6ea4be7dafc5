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
#include "sink/sink_internal.h"
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
	char	   *data;			/* all of it */
	Size		size;
	PaqSalvaged *found;
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

/* Of a record as it is in the file; sequences count as 0. */
static bool
digest_text(const PaqFormat *format, const char *line, Size len, uint64 *digest)
{
	Size		done = 0;
	Size		start = 0;
	Size		digits;

	if (!digest_begin())
		return false;
	while (format->find_sequence(line, len, &start, &digits))
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

	copy.sequence = 0;
	if (!digest_begin())
		return false;
	known.format->write(&buf, &copy);
	return !buf.failed && drain_into_digest(&buf) && digest_end(digest);
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

/* Sequence of a record, 0 if it does not tell. */
static uint64
text_sequence(const PaqFormat *format, const char *line, Size len)
{
	Size		start = 0;
	Size		digits;

	if (!format->find_sequence(line, len, &start, &digits))
		return 0;
	return strtou64(line + start, NULL, 10);
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
			text_sequence(scan->format, behind, next) : 0;
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

/* The file has this record. */
static bool
take_record(Scan *scan, const char *line, Size len)
{
	PaqSalvaged *found = scan->found;
	uint64		sequence = text_sequence(scan->format, line, len);
	uint64		digest;

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
	(void) hash_search(known.digests, &digest, HASH_ENTER, NULL);
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

/*
 * Go through the records of a file, the first of which begins at offset from.
 * Closes fd if it raises an error, for lack of memory.
 */
bool
paq_salvage(int fd, const char *path, PaqSalvage what, uint64 from,
			PaqSalvaged *found)
{
	Scan		scan = {.fd = fd, .path = path, .what = what, .found = found};
	bool		ok;

	errno = PAQ_FAULT("trail-read");
	if (errno != 0 || !paq_map_file(fd, from, &scan.data, &scan.size))
	{
		paq_sink_set_error("could not read file \"%s\": %m", path);
		return false;
	}
	scan.format = paq_trail_format_of(path);
	PG_TRY();
	{
		if (known.digests == NULL && what != PAQ_SALVAGE_COUNT)
			begin_known(scan.format);
		ok = scan.data == NULL || scan_records(&scan, from);
	}
	PG_CATCH();
	{
		if (scan.data != NULL)
			munmap(scan.data, scan.size);
		close(fd);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (scan.data != NULL)
		munmap(scan.data, scan.size);
	return ok;
}
