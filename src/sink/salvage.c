/*-------------------------------------------------------------------------
 *
 * salvage.c
 *		What a crash of the operating system has left of a trail file.
 *
 * Up to a known place the file was durable.  Beyond it, any page may be
 * missing: file systems show those as zeros, or end the file before them; no
 * format writes a zero byte.  The format tells where the next record begins
 * behind them; no text that a user sends may look like that.  A record that is
 * torn by missing pages is overwritten, together with these, by one GAP record
 * that is just as long, its message filled up with spaces, so that the file has
 * only valid records and nothing moves.  At the end, it is cut off.  All other
 * records are kept, but for those that have to make room for a GAP record that
 * does not fit into a small hole.
 *
 * The queue may have records that were kept.  They are recognized by the
 * digest of their text, without the sequence, which depends on when they are
 * written: text is the same whenever it is made, if the settings of the format
 * are the same.
 *
 * Guarantees: a crash in here loses nothing, the same happens once more.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "fault.h"
#include "sink/file_internal.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Texts are formatted in pieces of this size, in bytes. */
#define PIECE_SIZE		8192

/*
 * Set of the beginnings of SHA-256 digests.  No two records of a trail have
 * the same text if it has the session and its statement's number in it, or the
 * time, as it does unless log_line_prefix was deprived of all that.
 */

static HTAB *known = NULL;
static const PaqFormat *known_format;

/* Where the known records begin; file "": there are none */
static char kept_file[MAXPGPATH];
static uint64 kept_from;
static uint64 kept_sequence;

/* The digest that digest_piece() adds to */
static pg_cryptohash_ctx *digest_context = NULL;

static bool
digest_begin(void)
{
	if (digest_context == NULL)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);

		digest_context = pg_cryptohash_create(PG_SHA256);
		MemoryContextSwitchTo(oldcontext);
	}
	return digest_context != NULL && pg_cryptohash_init(digest_context) >= 0;
}

static bool
digest_add(const char *data, Size len)
{
	return pg_cryptohash_update(digest_context, (const uint8 *) data, len) >= 0;
}

static bool
digest_end(uint64 *digest)
{
	uint8		result[PG_SHA256_DIGEST_LENGTH];

	if (pg_cryptohash_final(digest_context, result, sizeof(result)) < 0)
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
	known_format->write(&buf, &copy);
	return !buf.failed && drain_into_digest(&buf) && digest_end(digest);
}

static void
begin_known(const PaqFormat *format)
{
	HASHCTL		ctl = {0};

	ctl.keysize = sizeof(uint64);
	ctl.entrysize = sizeof(uint64);
	ctl.hcxt = TopMemoryContext;
	known = hash_create("audit records in the trail", 1024, &ctl,
						HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	known_format = format;
}

/* The file has this record. */
static bool
add_known(const char *line, Size len)
{
	uint64		digest;

	if (!digest_text(known_format, line, len, &digest))
		return false;
	(void) hash_search(known, &digest, HASH_ENTER, NULL);
	return true;
}

/* See sink.h. */
bool
paq_salvage_is_known(const PaqRecord *record)
{
	uint64		digest;

	return unlikely(known != NULL) && digest_record(record, &digest) &&
		hash_search(known, &digest, HASH_FIND, NULL) != NULL;
}

/*
 * The known records begin at offset from of the file at path, where the one
 * before has that sequence, and go on in the files that are newer.  Until they
 * are forgotten, that is what the next worker has to begin with, too.
 */
void
paq_salvage_keep(const char *path, uint64 from, uint64 sequence)
{
	strlcpy(kept_file, path, sizeof(kept_file));
	kept_from = from;
	kept_sequence = sequence;
}

/* Put that into a state that is to be stored, if there are known records. */
void
paq_salvage_state(PaqSinkState *state)
{
	if (kept_file[0] == '\0')
		return;
	strlcpy(state->known_file, kept_file, sizeof(state->known_file));
	state->known_from = kept_from;
	state->known_sequence = kept_sequence;
}

void
paq_salvage_forget(void)
{
	if (known != NULL)
		hash_destroy(known);
	known = NULL;
	kept_file[0] = '\0';
}

/* Sequence of a record, 0 if it does not tell. */
static uint64
text_sequence(const PaqFormat *format, const char *line, Size len)
{
	Size		start = 0;
	Size		digits;
	uint64		sequence = 0;

	if (!format->find_sequence(line, len, &start, &digits))
		return 0;
	for (Size i = start; i < start + digits; i++)
		sequence = sequence * 10 + (line[i] - '0');
	return sequence;
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

/*
 * A GAP record for sequences from first to last, if these are known, of
 * exactly len bytes.  Returns NULL if that is too short for one.
 */
static char *
make_filler(const PaqFormat *format, Size len, uint64 first, uint64 last)
{
	PaqRecord	record;
	PaqText    *message = &record.field[PAQ_FIELD_MESSAGE];
	const Size	size = len + PAQ_FORMAT_HEADROOM + 1;
	PaqBuffer	buf = {.data = palloc_extended(size, MCXT_ALLOC_HUGE), .size = size};
	char	   *text = palloc_extended(len + 256, MCXT_ALLOC_HUGE);
	bool		known_range = first != 0 && last >= first;

	memset(&record, 0, sizeof(record));
	paq_record_init_gap(&record.header, 0, GetCurrentTimestamp(),
						known_range ? (int64) (last - first + 1) : -1);
	for (int i = 0; i < PAQ_NFIELDS; i++)
		record.header.field_len[i] = PAQ_NULL_LEN;
	record.sequence = first;
	if (known_range)
		message->len = snprintf(text, 256, "the operating system was restarted before the records with sequence " UINT64_FORMAT " to " UINT64_FORMAT " were durable; those that the queue has follow",
								first, last);
	else
		message->len = snprintf(text, 256, "the operating system was restarted before the records here were durable; those that the queue has follow");
	message->data = text;
	record.header.field_len[PAQ_FIELD_MESSAGE] = message->len;

	format->write(&buf, &record);
	if (!buf.failed && buf.used < len)
	{
		Size		padding = len - buf.used;

		memset(text + message->len, ' ', padding);
		message->len += padding;
		record.header.field_len[PAQ_FIELD_MESSAGE] = message->len;
		buf.used = 0;
		format->write(&buf, &record);
	}
	pfree(text);
	if (buf.failed || buf.used != len)
	{
		pfree(buf.data);
		return NULL;
	}
	return buf.data;
}

/* Overwrite damage at offset with a GAP record.  *fits tells whether one does. */
static bool
fill_damage(int fd, const char *path, const PaqFormat *format, uint64 offset,
			Size len, uint64 before, uint64 after, bool *fits)
{
	uint64		first = before ? before + 1 : 0;
	uint64		last = after ? after - 1 : 0;
	char	   *filler = make_filler(format, len, first, last);
	Size		done = 0;

	*fits = filler != NULL;
	if (filler == NULL)
		return true;
	while (done < len)
	{
		ssize_t		n = pwrite(fd, filler + done, len - done, offset + done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
		{
			paq_sink_set_error("could not write to file \"%s\": %m", path);
			pfree(filler);
			return false;
		}
		done += n;
	}
	pfree(filler);
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("%zu bytes of audit trail file \"%s\" were lost in a crash of the operating system",
					len, path),
			 errdetail("A GAP record is in their place.")));
	return true;
}

/*
 * Overwrite the *len damaged bytes at data, offset in the file, with a GAP
 * record.  If they are too few for one, it takes the place of whole records
 * behind, too; these are not known then, and will be written again if the queue
 * has them.  *len is what it covers in the end, 0 if the file ends before there
 * is enough room.
 */
static bool
mend(int fd, const char *path, const PaqFormat *format, const char *data,
	 uint64 offset, Size room, Size *len, uint64 *sequence)
{
	for (;;)
	{
		Size		next = whole_record(format, data + *len, room - *len);
		uint64		after = next > 0 ?
			text_sequence(format, data + *len, next) : 0;
		bool		fits;

		if (!fill_damage(fd, path, format, offset, *len, *sequence, after, &fits))
			return false;
		if (fits)
		{
			*sequence = after ? after - 1 : *sequence + 1;
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

/*
 * Go through the size bytes of the file at data, from from on.  Sets *offset
 * to where its last record ends.
 */
static bool
scan(int fd, const char *path, const PaqFormat *format, const char *data,
	 uint64 from, uint64 size, uint64 *offset, uint64 *sequence)
{
	uint64		pos = from;

	while (pos < size)
	{
		Size		len = whole_record(format, data + pos, size - pos);

		if (len > 0)
		{
			uint64		number = text_sequence(format, data + pos, len);

			if (!add_known(data + pos, len))
			{
				paq_sink_set_error("could not compute a digest of file \"%s\"", path);
				return false;
			}
			*sequence = number ? number : *sequence + 1;
		}
		else
		{
			len = length_of_damage(format, data + pos, size - pos);
			if (len == 0)
				break;
			if (!mend(fd, path, format, data + pos, pos, size - pos, &len,
					  sequence))
				return false;
			if (len == 0)
				break;
		}
		pos += len;
	}
	*offset = pos;
	return true;
}

/*
 * Can the file be read from offset from to its end?  Through a mapping, a
 * sector that the disk cannot read any more is SIGBUS.
 */
static bool
is_readable(int fd, uint64 from, uint64 size)
{
	static char scratch[64 * 1024];

	errno = PAQ_FAULT("trail-read");
	if (errno != 0)
		return false;
	for (uint64 pos = from; pos < size; pos += sizeof(scratch))
		if (!paq_trail_read(fd, scratch, Min(sizeof(scratch), size - pos), pos))
			return false;
	return true;
}

/*
 * Map the file, to be looked at from offset from on.  *data is NULL if there is
 * nothing there.
 */
static bool
map_file(int fd, const char *path, uint64 from, char **data, Size *size)
{
	struct stat st;

	*data = NULL;
	if (fstat(fd, &st) != 0)
	{
		paq_sink_set_error("could not stat file \"%s\": %m", path);
		return false;
	}
	*size = st.st_size;
	if (*size <= from)
		return true;
	if (!is_readable(fd, from, *size))
	{
		paq_sink_set_error("could not read file \"%s\": %m", path);
		return false;
	}
	*data = mmap(NULL, *size, PROT_READ, MAP_SHARED, fd, 0);
	if (*data != MAP_FAILED)
		return true;
	*data = NULL;
	paq_sink_set_error("could not map file \"%s\": %m", path);
	return false;
}

/*
 * Mend the file from offset from on, where a record begins.  Sets *offset to
 * its end, and *sequence, which is that of the record before from, to that of
 * the last one.  is_known() knows the records that are there, too.  Closes fd if
 * it raises an error, for want of memory.
 */
bool
paq_salvage(int fd, const char *path, const PaqFormat *format, uint64 from,
			uint64 *offset, uint64 *sequence)
{
	Size		size;
	char	   *data;
	bool		ok;

	if (!map_file(fd, path, from, &data, &size))
		return false;
	*offset = size;
	PG_TRY();
	{
		if (known == NULL)
			begin_known(format);
		ok = data == NULL ||
			scan(fd, path, format, data, from, size, offset, sequence);
	}
	PG_CATCH();
	{
		if (data != NULL)
			munmap(data, size);
		close(fd);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (data != NULL)
		munmap(data, size);
	return ok && (*offset == size || paq_trail_truncate(fd, path, *offset));
}

/* Learn the whole records of a file up to the first that is not. */
static bool
add_records(const char *path, const PaqFormat *format, const char *data,
			Size size, uint64 *sequence)
{
	Size		len;

	for (Size pos = 0;
		 pos < size && (len = whole_record(format, data + pos, size - pos)) > 0;
		 pos += len)
	{
		uint64		number = text_sequence(format, data + pos, len);

		if (!add_known(data + pos, len))
		{
			paq_sink_set_error("could not compute a digest of file \"%s\"", path);
			return false;
		}
		*sequence = number ? number : *sequence + 1;
	}
	return true;
}

/*
 * is_known() knows the records of this file, too, as far as they are whole.
 * Sets *sequence to that of the last one.  Closes fd if it raises an error.
 */
bool
paq_salvage_add(int fd, const char *path, const PaqFormat *format,
				uint64 *sequence)
{
	Size		size;
	char	   *data;
	bool		ok;

	if (!map_file(fd, path, 0, &data, &size))
		return false;
	if (data == NULL)
		return true;
	PG_TRY();
	{
		if (known == NULL)
			begin_known(format);
		ok = add_records(path, format, data, size, sequence);
	}
	PG_CATCH();
	{
		munmap(data, size);
		close(fd);
		PG_RE_THROW();
	}
	PG_END_TRY();
	munmap(data, size);
	return ok;
}

/*
 * Count the whole records of a file from offset from on, and get the sequence
 * of the last one, 0 if the format does not tell.
 */
bool
paq_salvage_count(int fd, const char *path, const PaqFormat *format,
				  uint64 from, uint64 *count, uint64 *sequence)
{
	Size		size;
	char	   *data;
	Size		len;

	*count = *sequence = 0;
	if (!map_file(fd, path, from, &data, &size))
		return false;
	for (Size pos = from; pos < size; pos += len)
	{
		len = whole_record(format, data + pos, size - pos);
		if (len > 0)
		{
			(*count)++;
			*sequence = text_sequence(format, data + pos, len);
		}
		else if ((len = length_of_damage(format, data + pos, size - pos)) == 0)
			break;
	}
	if (data != NULL)
		munmap(data, size);
	return true;
}
