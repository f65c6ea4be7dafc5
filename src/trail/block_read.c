/*-------------------------------------------------------------------------
 *
 * block_read.c
 *		The blocks of a trail file become records.
 *
 * A block's header is read first; who does not want the block goes on to the next one, and has
 * read 136 bytes.  Otherwise the body is checked, decrypted and decompressed as a whole, and
 * its items are read one by one.  Records point into the body.
 *
 * Nothing in a file is believed: each length is compared with what is there, each number of a
 * definition with how many there are.
 *
 * Guarantees: the reader's own memory is allocated when it is made, and libraries allocate no more
 * than a window of 8 MB to decompress, whatever a file has.  Of an encrypted file, nothing is
 * handed out that is not authentic.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "trail/blocks_internal.h"

#include <unistd.h>

#include "datatype/timestamp.h"
#include "mb/pg_wchar.h"

/* A part of the body that is being read; bad: something in it is impossible */
typedef struct Cursor
{
	const char *p;
	const char *end;
	bool		bad;
} Cursor;

typedef struct SessionDef
{
	int64		start;
	int32		pid;
	int32		backend;
	int32		encoding;
	uint32		role_kind;
	PaqText		field[PAQ_NFIELDS]; /* their bytes are one behind the other */
	int64		statement_id;	/* of its last record */
	int64		line;
	uint32		lxid;
} SessionDef;

typedef struct TextDef
{
	uint32		flags;
	int32		location;
	int32		len;
	int64		query_id;
	uint8		audit_class;
	PaqText		field[PAQ_NFIELDS];
} TextDef;

/* What a block says of its server */
typedef struct BlockServer
{
	PaqServer	server;
	PaqZone		zone;
	char		content[PAQ_SERVER_MAX];	/* that it was read from, */
	Size		len;			/* so many bytes */
} BlockServer;

struct PaqBlockReader
{
	int			fd;
	const PaqKeys *keys;
	PaqTrailFileHeader file;
	PaqBlockCipher cipher;
	PaqFrames  *frames;
	uint64		limit;			/* of the file, nothing is read from here on */
	uint64		offset;			/* of the next block */
	uint64		body_offset;	/* of the body of the block before that */
	bool		before_known;	/* so was the one before that, */
	bool		hash_known;		/* that block was opened, and has this hash: */
	uint8		hash[PAQ_BLOCK_HASH_LEN];
	char		head[PAQ_BLOCK_HEADER];
	PaqBlockHeader header;
	char	   *stored;			/* PAQ_BODY_STORED_MAX bytes */
	char	   *frame;			/* what was encrypted, if it is compressed; as many */
	char	   *body;			/* PAQ_BLOCK_BODY_MAX bytes */
	char	   *fields;			/* of sessions, as many */
	char	   *next_field;
	Cursor		items;
	uint32		nread;			/* records of the block so far */
	TimestampTz time;
	BlockServer servers[2];
	int			current_server; /* of these */
	bool		has_server;		/* the block has said which */
	bool		bad;			/* the block has something impossible: it has no more records */
	uint64		rest[PAQ_NFIELDS];	/* of the last record: see paq_block_rest() */
	bool		has_rest;
	uint32		nsessions;
	uint32		ntexts;
	SessionDef *sessions;
	TextDef    *texts;
	char		error[PAQ_LAYER_ERROR_LEN];
};

/* ----------
 * Numbers and fields
 * ----------
 */

static pg_noinline uint64
get_long_varint(Cursor *cursor)
{
	uint64		value = 0;

	for (int shift = 0; shift < 64 && cursor->p < cursor->end; shift += 7)
	{
		const uint8 byte = *cursor->p++;

		value |= (uint64) (byte & 0x7F) << shift;
		if (byte < 0x80)
			return value;
	}
	cursor->bad = true;
	cursor->p = cursor->end;
	return 0;
}

/* The next number; 0, and the cursor is bad, if there is none. */
static inline uint64
get_varint(Cursor *cursor)
{
	if (likely(cursor->p < cursor->end && (uint8) *cursor->p < 0x80))
		return (uint8) *cursor->p++;
	return get_long_varint(cursor);
}

static inline int64
get_signed(Cursor *cursor)
{
	return paq_unzigzag(get_varint(cursor));
}

/* Sums of what a file says may be too large: then they are any number. */
static inline int64
any_sum(int64 a, int64 b)
{
	return (int64) ((uint64) a + (uint64) b);
}

/* Returns where the next len bytes are; NULL, and the cursor is bad, if there are fewer. */
static inline const char *
get_bytes(Cursor *cursor, uint64 len)
{
	const char *result = cursor->p;

	if (unlikely(len > (uint64) (cursor->end - cursor->p)))
	{
		cursor->bad = true;
		cursor->p = cursor->end;
		return NULL;
	}
	cursor->p += len;
	return result;
}

static PaqText
get_text(Cursor *cursor)
{
	const uint64 len = get_varint(cursor);
	PaqText		text = {NULL, 0};

	if (len > 0 && (text.data = get_bytes(cursor, len - 1)) != NULL)
		text.len = len - 1;
	return text;
}

/* Five digits or letters, as by MAKE_SQLSTATE */
static int32
get_sqlstate(Cursor *cursor)
{
	const char *state = get_bytes(cursor, 5);
	int32		result = 0;

	for (int i = 0; state != NULL && i < 5; i++)
	{
		if (!(state[i] >= '0' && state[i] <= '9') && !(state[i] >= 'A' && state[i] <= 'Z'))
			cursor->bad = true;
		result |= ((state[i] - '0') & 0x3F) << (6 * i);
	}
	return result;
}

/*
 * The fields that this version knows, from the number "first" on; others are left out.  Those of a
 * session are nowhere else: a PaqRecord has their bytes one behind the other.
 */
static void
get_fields(Cursor *cursor, PaqText fields[PAQ_NFIELDS], uint32 first)
{
	for (uint64 n = get_varint(cursor); n > 0 && !cursor->bad; n--)
	{
		const uint64 field = get_varint(cursor);
		const uint64 len = get_varint(cursor);
		const char *data = get_bytes(cursor, len);

		if (data != NULL && field >= first && field < PAQ_NFIELDS)
			fields[field] = (PaqText){data, len};
	}
}

/* ----------
 * Files
 * ----------
 */

PaqBlockReader *
paq_block_reader_make(const PaqKeys *keys)
{
	PaqBlockReader *reader = palloc0(sizeof(PaqBlockReader));

	reader->keys = keys;
	reader->limit = PG_UINT64_MAX;
	reader->stored = palloc(PAQ_BODY_STORED_MAX);
	reader->frame = palloc(PAQ_BODY_STORED_MAX);
	reader->body = palloc(PAQ_BLOCK_BODY_MAX);
	reader->fields = palloc(PAQ_BLOCK_BODY_MAX);
	reader->sessions = palloc(PAQ_BLOCK_MAX_SESSIONS * sizeof(SessionDef));
	reader->texts = palloc(PAQ_BLOCK_MAX_TEXTS * sizeof(TextDef));
	return reader;
}

void
paq_block_reader_free(PaqBlockReader *reader)
{
	paq_block_forget(&reader->cipher);
	paq_frames_free(reader->frames);
	pfree(reader->stored);
	pfree(reader->frame);
	pfree(reader->body);
	pfree(reader->fields);
	pfree(reader->sessions);
	pfree(reader->texts);
	pfree(reader);
}

uint64
paq_block_reader_offset(const PaqBlockReader *reader)
{
	return reader->offset;
}

void
paq_block_reader_limit(PaqBlockReader *reader, uint64 limit)
{
	reader->limit = limit;
}

void
paq_block_reader_seek(PaqBlockReader *reader, uint64 offset)
{
	reader->offset = offset;
	reader->hash_known = false;
	reader->items = (Cursor){NULL, NULL, false};
	reader->bad = false;
}

const char *
paq_block_reader_error(const PaqBlockReader *reader)
{
	return reader->error;
}

static PaqBlockResult
block_error(PaqBlockReader *reader, PaqBlockResult result, const char *error)
{
	strlcpy(reader->error, error, sizeof(reader->error));
	return result;
}

/* Reads len bytes from there.  *got is how many there are. */
static PaqBlockResult
read_at(PaqBlockReader *reader, char *dst, Size len, uint64 offset, Size *got)
{
	*got = 0;
	len = offset < reader->limit ? Min(len, reader->limit - offset) : 0;
	while (*got < len)
	{
		const ssize_t n = pread(reader->fd, dst + *got, len - *got, offset + *got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return block_error(reader, PAQ_BLOCK_UNREADABLE, strerror(errno));
		if (n == 0)
			break;
		*got += n;
	}
	return PAQ_BLOCK_HERE;
}

PaqBlockResult
paq_block_reader_begin(PaqBlockReader *reader, int fd, PaqTrailFileHeader *file)
{
	char		head[PAQ_FILE_HEADER_MAX];
	PaqBlockResult result;
	Size		got;
	Size		len;
	Size		name_len;
	Size		before_len;
	bool		damaged;

	/* What was of another file */
	paq_block_forget(&reader->cipher);
	paq_frames_free(reader->frames);
	reader->frames = NULL;
	reader->items = (Cursor){NULL, NULL, false};
	reader->servers[0].len = reader->servers[1].len = 0;
	reader->has_rest = false;
	memset(reader->rest, 0, sizeof(reader->rest));
	reader->fd = fd;

	result = read_at(reader, head, sizeof(head), 0, &got);
	if (result != PAQ_BLOCK_HERE)
		return result;

	/* 1. What is there is the header of such a file, all of it, and nobody has changed it. */
	if (got == 0)
		return PAQ_BLOCK_END;
	if (memcmp(head, PAQ_FILE_MAGIC, Min(got, 8)) != 0)
		return block_error(reader, PAQ_BLOCK_DAMAGED, "it does not begin as a trail file does");
	if (got < PAQ_FILE_FIXED)
		return block_error(reader, PAQ_BLOCK_CUT, "the file ends within its header");
	len = paq_get_fixed(head + 10, 2);
	name_len = (uint8) head[14];
	before_len = (uint8) head[15];
	if (len > PAQ_FILE_HEADER_MAX || len < PAQ_FILE_FIXED + name_len + before_len + 4)
		return block_error(reader, PAQ_BLOCK_DAMAGED, "its header has an impossible length");
	if (got < len)
		return block_error(reader, PAQ_BLOCK_CUT, "the file ends within its header");
	if (paq_crc32c(head, len - 4) != paq_get_fixed(head + len - 4, 4))
		return block_error(reader, PAQ_BLOCK_DAMAGED, "its header has a wrong checksum");
	if (paq_get_fixed(head + 8, 2) != PAQ_FILE_VERSION)
		return block_error(reader, PAQ_BLOCK_DAMAGED, "its version is unknown");

	/* 2. Its layers are known here. */
	memset(&reader->file, 0, sizeof(reader->file));
	reader->file.layers.compression = (uint8) head[12];
	reader->file.layers.encryption = (uint8) head[13];
	if ((uint8) head[12] > PAQ_COMPRESSION_ZSTD || (uint8) head[13] > PAQ_ENCRYPTION_AES_256_GCM)
		return block_error(reader, PAQ_BLOCK_DAMAGED, "its compression or cipher is unknown");
	reader->file.system_identifier = paq_get_fixed(head + 16, 8);
	reader->file.series = paq_get_fixed(head + 24, 8);
	reader->file.sequence = paq_get_fixed(head + 32, 8);
	reader->file.begun = paq_get_fixed(head + 40, 8);
	memcpy(reader->file.before_hash, head + 88, PAQ_BLOCK_HASH_LEN);
	memcpy(reader->file.name, head + PAQ_FILE_FIXED, name_len);
	memcpy(reader->file.before, head + PAQ_FILE_FIXED + name_len, before_len);
	if (reader->file.layers.compression != PAQ_COMPRESSION_NONE &&
		(reader->frames = paq_frames_make(reader->file.layers.compression)) == NULL)
		return block_error(reader, PAQ_BLOCK_UNREADABLE, "this build cannot decompress it");
	if (reader->file.layers.encryption != PAQ_ENCRYPTION_NONE &&
		!paq_body_open_file(&reader->cipher, reader->file.layers.encryption, reader->file.name,
							reader->keys, (const uint8 *) head + 48, &damaged, reader->error))
		return damaged ? PAQ_BLOCK_DAMAGED : PAQ_BLOCK_UNREADABLE;

	/* 3. The first block follows it. */
	if (!paq_block_hash(reader->hash, head, len, NULL, 0))
		return block_error(reader, PAQ_BLOCK_UNREADABLE, "could not compute a hash");
	reader->hash_known = true;
	reader->offset = len;
	*file = reader->file;
	return PAQ_BLOCK_HERE;
}

/* ----------
 * Blocks
 * ----------
 */

PaqBlockResult
paq_block_next(PaqBlockReader *reader, PaqBlockHeader *header)
{
	const char *head = reader->head;
	PaqBlockResult result;
	Size		got;
	Size		head_len;

	result = read_at(reader, reader->head, PAQ_BLOCK_HEADER, reader->offset, &got);
	if (result != PAQ_BLOCK_HERE)
		return result;
	if (got == 0)
		return PAQ_BLOCK_END;
	if (got < PAQ_BLOCK_HEADER)
		return block_error(reader, PAQ_BLOCK_CUT, "the file ends within the header of a block");
	head_len = paq_get_fixed(head + 4, 2);
	if (memcmp(head, PAQ_BLOCK_MAGIC, 4) != 0 || head_len != PAQ_BLOCK_HEADER ||
		paq_crc32c(head, PAQ_BLOCK_HEADER - 4) != paq_get_fixed(head + PAQ_BLOCK_HEADER - 4, 4))
		return block_error(reader, PAQ_BLOCK_DAMAGED, "what is there is not the header of a block");

	header->stored_len = paq_get_fixed(head + 8, 4);
	header->body_len = paq_get_fixed(head + 12, 4);
	header->series = paq_get_fixed(head + 16, 8);
	header->sequence = paq_get_fixed(head + 24, 8);
	header->nrecords = paq_get_fixed(head + 32, 4);
	header->classes = paq_get_fixed(head + 36, 4);
	header->outcomes = paq_get_fixed(head + 40, 4);
	header->first_time = paq_get_fixed(head + 48, 8);
	header->last_time = paq_get_fixed(head + 56, 8);
	memcpy(header->queue, head + 64, PAQ_QUEUE_ID_LEN);
	header->queue_from = paq_get_fixed(head + 80, 8);
	header->queue_to = paq_get_fixed(head + 88, 8);
	memcpy(header->before_hash, head + 96, PAQ_BLOCK_HASH_LEN);
	if (header->stored_len > PAQ_BODY_STORED_MAX || header->body_len > PAQ_BLOCK_BODY_MAX)
		return block_error(reader, PAQ_BLOCK_DAMAGED, "a block is longer than any can be");
	if (reader->hash_known &&
		memcmp(header->before_hash, reader->hash, PAQ_BLOCK_HASH_LEN) != 0)
		return block_error(reader, PAQ_BLOCK_DAMAGED, "a block does not follow the one before it");

	/* Whoever leaves the body out does not know its hash. */
	reader->before_known = reader->hash_known;
	reader->hash_known = false;
	reader->header = *header;
	reader->body_offset = reader->offset + PAQ_BLOCK_HEADER;
	reader->offset = reader->body_offset + header->stored_len;
	reader->items.p = reader->items.end = NULL;
	reader->bad = false;
	return PAQ_BLOCK_HERE;
}

/* Decompresses a whole body; false if it is none, or has another length. */
static bool
decompress_body(PaqBlockReader *reader, const char *src, Size len)
{
	const Size	body_len = reader->header.body_len;
	Size		done = 0;
	bool		ends = false;

	paq_frames_reset(reader->frames);
	while (!ends)
	{
		Size		taken = len;
		Size		made = body_len - done;

		if (!paq_frames_read(reader->frames, src, &taken, reader->body + done, &made, &ends) ||
			(taken == 0 && made == 0 && !ends))
			return false;
		src += taken;
		len -= taken;
		done += made;
	}
	return len == 0 && done == body_len;
}

PaqBlockResult
paq_block_open(PaqBlockReader *reader)
{
	const PaqLayers *layers = &reader->file.layers;
	const PaqBlockHeader *header = &reader->header;
	const char *data = reader->stored;
	Size		len = header->stored_len;
	PaqBlockResult result;
	Size		got;

	/* 1. All of it is there, as it was written. */
	result = read_at(reader, reader->stored, len, reader->body_offset, &got);
	if (result != PAQ_BLOCK_HERE)
		return result;
	if (got < len)
	{
		/* It can be asked for again. */
		reader->offset = reader->body_offset - PAQ_BLOCK_HEADER;
		reader->hash_known = reader->before_known;
		return block_error(reader, PAQ_BLOCK_CUT, "the file ends within a block");
	}
	if (paq_crc32c(data, len) != paq_get_fixed(reader->head + PAQ_BLOCK_AUTHENTIC, 4))
		return block_error(reader, PAQ_BLOCK_DAMAGED, "a block has a wrong checksum");
	if (!paq_block_hash(reader->hash, reader->head, PAQ_BLOCK_HEADER, data, len))
		return block_error(reader, PAQ_BLOCK_UNREADABLE, "could not compute a hash");
	reader->hash_known = true;

	/* 2. Decrypt and decompress it. */
	if (layers->encryption != PAQ_ENCRYPTION_NONE)
	{
		char	   *plain = layers->compression != PAQ_COMPRESSION_NONE ?
			reader->frame : reader->body;

		if (len < PAQ_BODY_CIPHER_LEN ||
			(plain == reader->body && len - PAQ_BODY_CIPHER_LEN > PAQ_BLOCK_BODY_MAX) ||
			!paq_body_decrypt(&reader->cipher, plain, (const uint8 *) data, len,
							  (const uint8 *) reader->head, PAQ_BLOCK_AUTHENTIC))
			return block_error(reader, PAQ_BLOCK_DAMAGED, "a block is not authentic");
		data = plain;
		len -= PAQ_BODY_CIPHER_LEN;
	}
	if (layers->compression != PAQ_COMPRESSION_NONE)
	{
		if (!decompress_body(reader, data, len))
			return block_error(reader, PAQ_BLOCK_DAMAGED, "a block cannot be decompressed");
		data = reader->body;
		len = header->body_len;
	}
	if (len != header->body_len)
		return block_error(reader, PAQ_BLOCK_DAMAGED, "a block has another length than it says");

	/* 3. Begin with its items. */
	reader->items = (Cursor){
		data, data + len, false
	};
	reader->next_field = reader->fields;
	reader->nread = reader->nsessions = reader->ntexts = 0;
	reader->time = 0;
	reader->has_server = reader->bad = false;
	return PAQ_BLOCK_HERE;
}

/* ----------
 * Items
 * ----------
 */

/* See PaqServer. */
static int
block_offset_at(const PaqServer *server, int64 second, char name[PAQ_ZONE_NAME_LEN])
{
	const PaqZone *zone = &((const BlockServer *) server)->zone;
	int			i = zone->count - 1;

	while (i > 0 && zone->from[i] > second)
		i--;
	if (zone->name[i].len > 0)
		memcpy(name, zone->name[i].data, zone->name[i].len);
	name[zone->name[i].len] = '\0';
	return zone->offset[i];
}

/*
 * Returns true if the text can be written as the abbreviation of a time zone.  Others are left
 * out: PostgreSQL lets users choose any.
 */
static bool
is_zone_name(PaqText name)
{
	for (uint32 i = 0; i < name.len; i++)
	{
		const char	c = name.data[i];

		if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') &&
			c != '+' && c != '-' && c != ':')
			return false;
	}
	return name.len < PAQ_ZONE_NAME_LEN;
}

/*
 * What the block says of its server, from here on.  Most blocks say the same: then it stays as it
 * is.  Otherwise it goes to the other one of two places, and nothing is changed before all of it
 * is known to be possible: a record that goes on in later blocks refers to the first one.
 */
static void
read_server(PaqBlockReader *reader, Cursor *cursor)
{
	BlockServer *to = &reader->servers[1 - reader->current_server];
	const Size	len = cursor->end - cursor->p;
	Cursor		kept;
	PaqServer	server = {0};
	PaqZone		zone;
	uint64		count;

	if (reader->servers[reader->current_server].len == len && len > 0 &&
		memcmp(reader->servers[reader->current_server].content, cursor->p, len) == 0)
	{
		reader->has_server = true;
		return;
	}
	if (len > sizeof(to->content))
	{
		cursor->bad = true;
		return;
	}
	/*
	 * Who keeps a record that long has what is here: it can still be read.  Within a record,
	 * nobody writes a third one.
	 */
	to->len = 0;
	to->zone.count = 1;
	to->zone.name[0] = (PaqText){NULL, 0};
	to->server.version = to->server.host = to->server.cluster = (PaqText){NULL, 0};
	memcpy(to->content, cursor->p, len);
	kept = (Cursor){to->content, to->content + len, false};

	server.version = get_text(&kept);
	server.host = get_text(&kept);
	server.cluster = get_text(&kept);
	count = get_varint(&kept);
	for (int i = 0; i < Min(count, PAQ_ZONE_OFFSETS); i++)
	{
		zone.from[i] = get_signed(&kept);
		zone.offset[i] = get_signed(&kept);
		zone.name[i] = get_text(&kept);
		if (!is_zone_name(zone.name[i]))
			zone.name[i] = (PaqText){NULL, 0};
		if (zone.offset[i] < -SECS_PER_DAY || zone.offset[i] > SECS_PER_DAY)
			kept.bad = true;
	}
	if (kept.bad || count < 1 || count > PAQ_ZONE_OFFSETS)
	{
		cursor->bad = true;
		return;
	}
	zone.count = count;
	server.system_identifier = reader->file.system_identifier;
	server.offset_at = block_offset_at;
	server.generation = paq_new_generation();
	to->server = server;
	to->zone = zone;
	to->len = len;
	reader->current_server = 1 - reader->current_server;
	reader->has_server = true;
}

static void
read_session(PaqBlockReader *reader, Cursor *cursor)
{
	SessionDef *session = &reader->sessions[reader->nsessions];
	PaqText		encoding;
	char		name[NAMEDATALEN] = "";
	uint64		privileges;

	if (reader->nsessions == PAQ_BLOCK_MAX_SESSIONS)
	{
		cursor->bad = true;
		return;
	}
	reader->nsessions++;
	memset(session, 0, sizeof(*session));
	session->start = get_signed(cursor);
	session->pid = get_signed(cursor);
	session->backend = get_signed(cursor);
	privileges = get_varint(cursor);
	if (privileges == PAQ_PRIVILEGES_SUPERUSER)
		session->role_kind = PAQ_RECORD_SUPERUSER;
	else if (privileges == PAQ_PRIVILEGES_ORDINARY)
		session->role_kind = PAQ_RECORD_NO_SUPERUSER;
	encoding = get_text(cursor);
	get_fields(cursor, session->field, 0);

	/* An encoding that this version does not know has bytes that mean nothing to it. */
	memcpy(name, encoding.data != NULL ? encoding.data : "", Min(encoding.len, sizeof(name) - 1));
	session->encoding = pg_char_to_encoding(name);
	if (session->encoding < 0)
		session->encoding = PG_SQL_ASCII;

	/* Their bytes are not longer than the body, in which they are. */
	for (int i = 0; i < PAQ_NFIELDS; i++)
	{
		PaqText    *text = &session->field[i];

		if (text->data == NULL)
			continue;
		memcpy(reader->next_field, text->data, text->len);
		text->data = reader->next_field;
		reader->next_field += text->len;
	}
}

static void
read_text(PaqBlockReader *reader, Cursor *cursor)
{
	TextDef    *text = &reader->texts[reader->ntexts];
	uint64		audit_class;

	if (reader->ntexts == PAQ_BLOCK_MAX_TEXTS)
	{
		cursor->bad = true;
		return;
	}
	reader->ntexts++;
	memset(text, 0, sizeof(*text));
	audit_class = get_varint(cursor);
	text->flags = get_varint(cursor) & ~PAQ_RECORD_ROLE_KIND;
	text->query_id = get_signed(cursor);
	text->location = get_signed(cursor);
	text->len = get_signed(cursor);
	get_fields(cursor, text->field, PAQ_NSESSION_FIELDS);

	/* A later version may have other classes, whose names this one does not know. */
	text->audit_class = Min(audit_class, PG_UINT8_MAX);
}

static void
read_record(PaqBlockReader *reader, Cursor *cursor, PaqRecord *record)
{
	PaqRecordHeader *header = &record->header;
	const uint64 mask = get_varint(cursor);
	const uint64 session_number = get_varint(cursor);
	const uint64 text_number = get_varint(cursor);
	SessionDef *session;
	const TextDef *text;

	if (session_number >= reader->nsessions || text_number >= reader->ntexts ||
		!reader->has_server)
	{
		cursor->bad = true;
		return;
	}
	session = &reader->sessions[session_number];
	text = &reader->texts[text_number];
	memcpy(record->field, session->field, sizeof(session->field));
	for (int field = PAQ_NSESSION_FIELDS; field < PAQ_NFIELDS; field++)
		if (text->field[field].data != NULL)
			record->field[field] = text->field[field];

	memset(header, 0, offsetof(PaqRecordHeader, field_len));
	header->version = PAQ_RECORD_VERSION;
	header->kind = PAQ_KIND_AUDIT;
	header->audit_class = text->audit_class;
	header->flags = text->flags | session->role_kind;
	header->session_start = session->start;
	header->pid = session->pid;
	header->vxid_proc = session->backend;
	header->encoding = session->encoding;
	header->query_id = text->query_id;
	header->stmt_location = text->location;
	header->stmt_len = text->len;
	header->nfields = PAQ_NFIELDS;

	reader->time = any_sum(reader->time, get_signed(cursor));
	if ((mask & PAQ_MASK_NO_END) == 0)
	{
		header->end_time = reader->time;
		if ((mask & PAQ_MASK_NO_START) == 0)
			header->start_time = (int64) ((uint64) reader->time - (uint64) get_signed(cursor));
	}
	else if ((mask & PAQ_MASK_NO_START) == 0)
		header->start_time = reader->time;
	header->statement_id = any_sum(session->statement_id, 1);
	header->substatement_id = 1;
	if (mask & PAQ_MASK_IDS)
	{
		header->statement_id = get_signed(cursor);
		header->substatement_id = get_signed(cursor);
	}
	header->session_line = mask & PAQ_MASK_LINE ? get_signed(cursor) : any_sum(session->line, 1);
	header->vxid_lxid = session->lxid + (uint32) (mask & PAQ_MASK_LXID ? get_signed(cursor) : 0);
	header->xid = mask & PAQ_MASK_XID ? get_varint(cursor) : 0;
	header->rows = mask & PAQ_MASK_ROWS ? (int64) get_varint(cursor) : -1;
	if (mask & PAQ_MASK_SQLSTATE)
		header->sqlstate = get_sqlstate(cursor);
	if (mask & PAQ_MASK_FIELDS)
		get_fields(cursor, record->field, PAQ_NSESSION_FIELDS);
	if (mask & PAQ_MASK_KIND)
	{
		const uint64 kind = get_varint(cursor);

		header->kind = Min(kind, PG_UINT8_MAX);
	}
	if (reader->has_rest)
		memset(reader->rest, 0, sizeof(reader->rest));
	reader->has_rest = (mask & PAQ_MASK_PIECES) != 0;
	if (mask & PAQ_MASK_PIECES)
		for (uint64 n = get_varint(cursor); n > 0 && !cursor->bad; n--)
		{
			const uint64 field = get_varint(cursor);
			const uint64 len = get_varint(cursor);

			if (len > PG_UINT32_MAX)
				cursor->bad = true;
			else if (field >= PAQ_NSESSION_FIELDS && field < PAQ_NFIELDS)
				reader->rest[field] = len;
		}
	for (int field = 0; field < PAQ_NFIELDS; field++)
		header->field_len[field] = record->field[field].data == NULL ? PAQ_NULL_LEN :
			record->field[field].len;

	session->statement_id = header->statement_id;
	session->line = header->session_line;
	session->lxid = header->vxid_lxid;
	record->sequence = reader->header.sequence + reader->nread;
	record->series = reader->header.series;
	record->part = NULL;
	record->server = &reader->servers[reader->current_server].server;
	reader->nread++;
}

/*
 * Goes behind definitions, and items of unknown kinds, to the next record or piece.  Returns
 * what it is, 0 if there is none; *content is what it has.  It stays the next one until the
 * caller goes behind it.  If something is impossible, content is bad.
 */
static int
next_item(PaqBlockReader *reader, Cursor *content)
{
	for (;;)
	{
		Cursor		items = reader->items;
		uint64		len;
		int			kind;

		content->bad = false;
		if (items.p == items.end)
			return 0;
		kind = (uint8) *items.p++;
		len = get_varint(&items);
		content->p = get_bytes(&items, len);
		content->end = items.p;
		content->bad = items.bad;
		if (content->bad || kind == PAQ_ITEM_RECORD || kind == PAQ_ITEM_PIECE)
			return kind;
		if (kind == PAQ_ITEM_SERVER)
			read_server(reader, content);
		else if (kind == PAQ_ITEM_SESSION)
			read_session(reader, content);
		else if (kind == PAQ_ITEM_TEXT)
			read_text(reader, content);
		if (content->bad)
			return kind;
		reader->items = items;
	}
}

/* Something in the block is impossible: nothing of the rest is read. */
static PaqBlockResult
block_is_impossible(PaqBlockReader *reader)
{
	reader->bad = true;
	return block_error(reader, PAQ_BLOCK_DAMAGED, "a block has something impossible");
}

PaqBlockResult
paq_block_record(PaqBlockReader *reader, PaqRecord *record)
{
	Cursor		content;
	int			kind;

	if (reader->bad)
		return block_is_impossible(reader);
	while ((kind = next_item(reader, &content)) != 0 && !content.bad)
	{
		reader->items.p = content.end;
		if (kind != PAQ_ITEM_RECORD)
			continue;
		read_record(reader, &content, record);
		if (content.bad)
			break;

		/* A later version may have kinds of records that mean nothing to this one. */
		if (record->header.kind >= PAQ_KIND_AUDIT && record->header.kind <= PAQ_KIND_HEARTBEAT)
			return PAQ_BLOCK_HERE;
	}
	if (kind == 0 && reader->nread == reader->header.nrecords)
		return PAQ_BLOCK_END;
	return block_is_impossible(reader);
}

uint64
paq_block_rest(const PaqBlockReader *reader, PaqField field)
{
	return reader->rest[field];
}

PaqBlockResult
paq_block_piece(PaqBlockReader *reader, PaqField *field, PaqText *piece)
{
	Cursor		content;
	uint64		number;

	if (reader->bad)
		return block_is_impossible(reader);

	/* Those of fields that this version does not know are left out. */
	do
	{
		const int	kind = next_item(reader, &content);
		const char *behind = content.end;

		if (content.bad)
			return block_is_impossible(reader);
		if (kind != PAQ_ITEM_PIECE)
			return PAQ_BLOCK_END;
		number = get_varint(&content);
		if (content.bad)
			return block_is_impossible(reader);
		reader->items.p = behind;
	} while (number >= PAQ_NFIELDS);
	*field = number;
	*piece = (PaqText){content.p, content.end - content.p};
	return PAQ_BLOCK_HERE;
}
