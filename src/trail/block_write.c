/*-------------------------------------------------------------------------
 *
 * block_write.c
 *		Records become the blocks of a trail file.
 *
 * A block is made in memory: definitions and records one behind the other, then all of it
 * compressed, encrypted, and given a header.  The writer knows no file; its owner writes what
 * it returns, and says when that is done.
 *
 * Which definitions the block has is known by two hash tables, of sessions and of texts.  What
 * an entry was made from is compared byte by byte: a hash alone decides nothing.
 *
 * Guarantees: the writer's own memory is allocated when it is made, and never again.  Libraries
 * that compress, encrypt and hash allocate theirs for each block.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "trail/blocks_internal.h"

#include "common/cryptohash.h"
#include "common/hashfn.h"
#include "common/sha2.h"
#include "mb/pg_wchar.h"

/* Places of the hash tables: powers of two, at least twice the entries */
#define SESSION_PLACES	(2 * PAQ_BLOCK_MAX_SESSIONS)
#define TEXT_PLACES		(2 * PAQ_BLOCK_MAX_TEXTS)

/* Bytes at the end of a text that its hash is made from */
#define HASHED_MAX		1024

/* Of a record that no block has room for, the first block has that many bytes of each field. */
#define HEAD_MAX		(32 * 1024)

/*
 * Fields that the definition of a session has.  The values that log_settings asks for are among
 * them, since they are mostly the same in all records of a session.
 */
static const PaqField session_fields[] = {
	PAQ_FIELD_USER, PAQ_FIELD_DATABASE, PAQ_FIELD_REMOTE_HOST, PAQ_FIELD_REMOTE_PORT,
	PAQ_FIELD_APPLICATION, PAQ_FIELD_BACKEND_TYPE, PAQ_FIELD_SESSION_USER,
	PAQ_FIELD_CURRENT_USER, PAQ_FIELD_AUTH_METHOD, PAQ_FIELD_TLS_VERSION,
	PAQ_FIELD_TLS_CIPHER, PAQ_FIELD_SETTINGS
};

/* Fields that the definition of a text has */
static const PaqField text_fields[] = {
	PAQ_FIELD_COMMAND, PAQ_FIELD_OBJECT_TYPE, PAQ_FIELD_OBJECT_NAME, PAQ_FIELD_STATEMENT,
	PAQ_FIELD_OLD_VALUE, PAQ_FIELD_NEW_VALUE, PAQ_FIELD_VALUE_SOURCE, PAQ_FIELD_POLICY
};

/* Fields that each record has itself */
static const PaqField record_fields[] = {
	PAQ_FIELD_PARAMETER, PAQ_FIELD_MESSAGE
};

/* Longest head of an item, and longest item without its fields, in bytes */
#define ITEM_HEAD_MAX	(1 + 5)
#define ITEM_MAX		(ITEM_HEAD_MAX + 16 * PAQ_VARINT_MAX)

/* What a field takes beside its bytes, at most */
#define FIELD_MAX		(2 * 5)

/* What an offset of a time zone takes, at most */
#define OFFSET_MAX		(3 * PAQ_VARINT_MAX + PAQ_ZONE_NAME_LEN)

StaticAssertDecl(PAQ_ZONE_OFFSETS *OFFSET_MAX + 4 * 1024 <= PAQ_SERVER_MAX,
				 "a server item has room for all offsets");
StaticAssertDecl(PAQ_NFIELDS *(HEAD_MAX + FIELD_MAX) + 3 * ITEM_MAX + PAQ_SERVER_MAX <=
					 PAQ_BLOCK_BODY_MAX,
				 "a block has room for the beginnings of all fields");

/* A session that the block has a definition of */
typedef struct SessionEntry
{
	int64		start;
	int32		pid;
	int32		backend;		/* vxid_proc */
	int32		encoding;
	uint32		role_kind;
	uint32		field_len[lengthof(session_fields)];
	const char *fields;			/* their bytes, one behind the other */
	int64		statement_id;	/* of its last record in the block */
	int64		line;
	uint32		lxid;
} SessionEntry;

/* A text that the block has a definition of */
typedef struct TextEntry
{
	uint32		hash;
	uint32		flags;
	int64		query_id;
	int32		location;
	int32		len;
	uint8		audit_class;
	uint32		field_len[lengthof(text_fields)];
	const char *fields;
} TextEntry;

/* A field of a record, and what the record's block does not have of it */
typedef struct Rest
{
	PaqField	field;
	PaqText		text;
} Rest;

struct PaqBlockWriter
{
	PaqTrailFileHeader file;
	PaqBlockCipher cipher;		/* of an encrypted file */
	void	   *compressor;
	uint64		seed;			/* of the texts' hashes */
	char		file_header[PAQ_FILE_HEADER_MAX];
	uint8		hash[PAQ_BLOCK_HASH_LEN];	/* of what the next block follows */
	uint8		next_hash[PAQ_BLOCK_HASH_LEN];	/* of the block that was ended */

	/* The block that is being made */
	PaqBlockHeader header;
	char	   *body;			/* PAQ_BLOCK_BODY_MAX bytes */
	char	   *next;			/* behind the last item */
	char	   *known;			/* bytes of the entries' fields, as many as body */
	char	   *known_next;
	char	   *stored;			/* header and body as stored */
	char	   *frame;			/* a compressed body that is to be encrypted */
	TimestampTz time;			/* log time of the last record */
	uint32		nsessions;
	uint32		ntexts;
	SessionEntry *sessions;
	TextEntry  *texts;
	uint16	   *session_places; /* number of the session + 1, 0: none */
	uint16	   *text_places;
	int			nrest;
	Rest		rest[PAQ_NFIELDS];
};

/* ----------
 * Files
 * ----------
 */

/* Makes SHA-256 of two pieces.  Returns false without memory, or if the library fails. */
bool
paq_block_hash(uint8 *dst, const char *data, Size len, const char *more, Size more_len)
{
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);
	bool		ok = ctx != NULL && pg_cryptohash_init(ctx) >= 0 &&
		pg_cryptohash_update(ctx, (const uint8 *) data, len) >= 0 &&
		pg_cryptohash_update(ctx, (const uint8 *) more, more_len) >= 0 &&
		pg_cryptohash_final(ctx, dst, PAQ_BLOCK_HASH_LEN) >= 0;

	pg_cryptohash_free(ctx);
	return ok;
}

static bool
make_file_header(PaqBlockWriter *writer, const PaqKeys *keys, Size *len, char *error)
{
	const PaqTrailFileHeader *file = &writer->file;
	const Size	name_len = strlen(file->name);
	const Size	before_len = strlen(file->before);
	char	   *begin = writer->file_header;
	char	   *p = begin;

	*len = PAQ_FILE_FIXED + name_len + before_len + 4;
	memcpy(p, PAQ_FILE_MAGIC, 8);
	p = paq_put_fixed(p + 8, PAQ_FILE_VERSION, 2);
	p = paq_put_fixed(p, *len, 2);
	p = paq_put_fixed(p, file->layers.compression, 1);
	p = paq_put_fixed(p, file->layers.encryption, 1);
	p = paq_put_fixed(p, name_len, 1);
	p = paq_put_fixed(p, before_len, 1);
	p = paq_put_fixed(p, file->system_identifier, 8);
	p = paq_put_fixed(p, file->series, 8);
	p = paq_put_fixed(p, file->sequence, 8);
	p = paq_put_fixed(p, file->begun, 8);
	memset(p, 0, PAQ_KEY_ID_LEN + 32);
	if (file->layers.encryption != PAQ_ENCRYPTION_NONE &&
		!paq_body_new_file(&writer->cipher, file->layers.encryption, file->name, keys,
						   (uint8 *) p, error))
		return false;
	p += PAQ_KEY_ID_LEN + 32;
	memcpy(p, file->before_hash, PAQ_BLOCK_HASH_LEN);
	p += PAQ_BLOCK_HASH_LEN;
	Assert(p - begin == PAQ_FILE_FIXED);
	memcpy(p, file->name, name_len);
	memcpy(p + name_len, file->before, before_len);
	p += name_len + before_len;
	(void) paq_put_fixed(p, paq_crc32c(begin, p - begin), 4);
	if (paq_block_hash(writer->hash, begin, *len, NULL, 0))
		return true;
	strlcpy(error, "could not compute a hash", PAQ_LAYER_ERROR_LEN);
	return false;
}

PaqBlockWriter *
paq_block_writer_make(const PaqTrailFileHeader *file, const PaqKeys *keys,
					  const char **data, Size *len, char *error)
{
	PaqBlockWriter *writer = palloc0(sizeof(PaqBlockWriter));

	writer->file = *file;
	writer->body = palloc(PAQ_BLOCK_BODY_MAX);
	writer->known = palloc(PAQ_BLOCK_BODY_MAX);
	writer->stored = palloc(PAQ_BLOCK_HEADER + PAQ_BODY_STORED_MAX);
	writer->frame = palloc(PAQ_UNIT_MAX);
	writer->sessions = palloc(PAQ_BLOCK_MAX_SESSIONS * sizeof(SessionEntry));
	writer->texts = palloc(PAQ_BLOCK_MAX_TEXTS * sizeof(TextEntry));
	writer->session_places = palloc(SESSION_PLACES * sizeof(uint16));
	writer->text_places = palloc(TEXT_PLACES * sizeof(uint16));
	if (!pg_strong_random(&writer->seed, sizeof(writer->seed)))
		strlcpy(error, "could not generate a random number", PAQ_LAYER_ERROR_LEN);
	else if (make_file_header(writer, keys, len, error))
	{
		*data = writer->file_header;
		return writer;
	}
	paq_block_writer_free(writer);
	return NULL;
}

void
paq_block_writer_free(PaqBlockWriter *writer)
{
	paq_block_forget(&writer->cipher);
	paq_frame_compress_end(writer->file.layers.compression, writer->compressor);
	pfree(writer->body);
	pfree(writer->known);
	pfree(writer->stored);
	pfree(writer->frame);
	pfree(writer->sessions);
	pfree(writer->texts);
	pfree(writer->session_places);
	pfree(writer->text_places);
	pfree(writer);
}

/* ----------
 * Items
 * ----------
 */

/* Begins an item whose content has at most so many bytes; returns where the content goes. */
static inline char *
begin_item(PaqBlockWriter *writer, int kind, Size max)
{
	Size		len_bytes = 1;

	/* The length takes as many bytes as that of the longest content would. */
	for (; max >= 0x80; max >>= 7)
		len_bytes++;
	writer->next[0] = kind;
	return writer->next + 1 + len_bytes;
}

/* Ends the item whose content was begun there and ends at end. */
static inline void
end_item(PaqBlockWriter *writer, char *content, char *end)
{
	char	   *p = writer->next + 1;
	uint32		len = end - content;

	/* The length takes all bytes that begin_item() has left for it: the last may be 0. */
	for (; p < content - 1; len >>= 7)
		*p++ = (char) (len | 0x80);
	*p = (char) len;
	writer->next = end;
	Assert(writer->next <= writer->body + PAQ_BLOCK_BODY_MAX);
}

static inline char *
put_text(char *p, PaqText text)
{
	if (text.data == NULL)
		return paq_put_varint(p, 0);
	p = paq_put_varint(p, (uint64) text.len + 1);
	memcpy(p, text.data, text.len);
	return p + text.len;
}

/* Puts those of the fields that are not null, or their first limit bytes. */
static char *
put_fields(char *p, const PaqRecord *record, const PaqField *fields, int nfields, Size limit)
{
	int			count = 0;

	for (int i = 0; i < nfields; i++)
		count += record->field[fields[i]].data != NULL;
	p = paq_put_varint(p, count);
	for (int i = 0; i < nfields; i++)
	{
		const PaqText *text = &record->field[fields[i]];
		const Size	len = Min(text->len, limit);

		if (text->data == NULL)
			continue;
		p = paq_put_varint(p, fields[i]);
		p = paq_put_varint(p, len);
		memcpy(p, text->data, len);
		p += len;
	}
	return p;
}

/* Bytes that an item with these fields takes, at most */
static inline Size
item_max(const PaqRecord *record, const PaqField *fields, int nfields, Size limit)
{
	Size		result = ITEM_MAX;

	for (int i = 0; i < nfields; i++)
		result += FIELD_MAX + Min(record->field[fields[i]].len, limit);
	return result;
}

/* The number of a file's encoding means something to one version of PostgreSQL only. */
static inline PaqText
encoding_name(int encoding)
{
	PaqText		name = {pg_encoding_to_char(encoding), 0};

	name.len = strlen(name.data);
	return name;
}

/* ----------
 * Definitions
 * ----------
 */

/*
 * Returns true if the fields of the record have these lengths and bytes; the bytes of all of them
 * are one behind the other.
 */
static inline bool
has_fields(const PaqRecord *record, const PaqField *fields, int nfields,
		   const uint32 *lens, const char *bytes)
{
	for (int i = 0; i < nfields; i++)
	{
		const PaqText *text = &record->field[fields[i]];

		if (lens[i] != (text->data == NULL ? PAQ_NULL_LEN : text->len))
			return false;
		if (text->len > 0 && memcmp(bytes, text->data, text->len) != 0)
			return false;
		bytes += text->len;
	}
	return true;
}

/*
 * Copies the fields' lengths to lens, and their bytes to the writer's "known".  Returns where they
 * are there.
 */
static const char *
keep_fields(PaqBlockWriter *writer, const PaqRecord *record, const PaqField *fields, int nfields,
			uint32 *lens)
{
	const char *bytes = writer->known_next;

	for (int i = 0; i < nfields; i++)
	{
		const PaqText *text = &record->field[fields[i]];

		lens[i] = text->data == NULL ? PAQ_NULL_LEN : text->len;
		if (text->len > 0)
			memcpy(writer->known_next, text->data, text->len);
		writer->known_next += text->len;
	}
	return bytes;
}

/*
 * A hash of a text that a user chooses, with a seed that nobody knows.  It is over no more than
 * its end: texts that differ elsewhere are long, and few of them have room in a block.
 */
static inline uint32
text_hash(const PaqBlockWriter *writer, const PaqText *text)
{
	const Size	len = Min(text->len, HASHED_MAX);

	if (len == 0)
		return 0;
	return (uint32) hash_bytes_extended((const unsigned char *) text->data + text->len - len,
										len, writer->seed);
}

/* Returns the place of the record's session in the hash table, or the one where it would be. */
static uint16 *
find_session(PaqBlockWriter *writer, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;
	uint32		i = murmurhash32((uint32) header->pid) ^ (uint32) header->session_start;

	/* A session can change these with each statement. */
	i = hash_combine(i, text_hash(writer, &record->field[PAQ_FIELD_APPLICATION]));
	i = hash_combine(i, text_hash(writer, &record->field[PAQ_FIELD_CURRENT_USER]));
	i = hash_combine(i, text_hash(writer, &record->field[PAQ_FIELD_SESSION_USER]));
	i = hash_combine(i, text_hash(writer, &record->field[PAQ_FIELD_SETTINGS]));
	for (;; i++)
	{
		uint16	   *place = &writer->session_places[i & (SESSION_PLACES - 1)];
		const SessionEntry *entry;

		if (*place == 0)
			return place;
		entry = &writer->sessions[*place - 1];
		if (entry->pid == header->pid && entry->start == header->session_start &&
			entry->backend == header->vxid_proc && entry->encoding == header->encoding &&
			entry->role_kind == (header->flags & PAQ_RECORD_ROLE_KIND) &&
			has_fields(record, session_fields, lengthof(session_fields),
					   entry->field_len, entry->fields))
			return place;
	}
}

/*
 * Returns the place of the record's text in the hash table, or the one where it would be; *hash is
 * the text's hash.
 */
static uint16 *
find_text(PaqBlockWriter *writer, const PaqRecord *record, uint32 *hash)
{
	const PaqRecordHeader *header = &record->header;
	const PaqText *statement = &record->field[PAQ_FIELD_STATEMENT];
	const uint32 flags = header->flags & ~PAQ_RECORD_ROLE_KIND;
	uint32		i;

	*hash = hash_combine(murmurhash32(statement->len ^ flags ^ header->audit_class << 24),
						 (uint32) header->query_id ^
							 record->field[PAQ_FIELD_COMMAND].len << 16);
	*hash = hash_combine(*hash, text_hash(writer, statement));
	*hash = hash_combine(*hash, text_hash(writer, &record->field[PAQ_FIELD_OBJECT_NAME]));
	*hash = hash_combine(*hash, text_hash(writer, &record->field[PAQ_FIELD_OLD_VALUE]));
	*hash = hash_combine(*hash, text_hash(writer, &record->field[PAQ_FIELD_NEW_VALUE]));
	for (i = *hash;; i++)
	{
		uint16	   *place = &writer->text_places[i & (TEXT_PLACES - 1)];
		const TextEntry *entry;

		if (*place == 0)
			return place;
		entry = &writer->texts[*place - 1];
		if (entry->hash == *hash && entry->flags == flags &&
			entry->audit_class == header->audit_class &&
			entry->query_id == header->query_id &&
			entry->location == header->stmt_location && entry->len == header->stmt_len &&
			has_fields(record, text_fields, lengthof(text_fields),
					   entry->field_len, entry->fields))
			return place;
	}
}

/* Defines the record's session, with at most that much of each field, in bytes. */
static void
define_session(PaqBlockWriter *writer, const PaqRecord *record, Size limit)
{
	const PaqRecordHeader *header = &record->header;
	SessionEntry *entry = &writer->sessions[writer->nsessions++];
	int			privileges = PAQ_PRIVILEGES_UNKNOWN;
	char	   *content = begin_item(writer, PAQ_ITEM_SESSION,
							   item_max(record, session_fields, lengthof(session_fields), limit));
	char	   *p = content;

	memset(entry, 0, sizeof(*entry));
	entry->pid = header->pid;
	entry->start = header->session_start;
	entry->backend = header->vxid_proc;
	entry->encoding = header->encoding;
	entry->role_kind = header->flags & PAQ_RECORD_ROLE_KIND;
	if (entry->role_kind == PAQ_RECORD_SUPERUSER)
		privileges = PAQ_PRIVILEGES_SUPERUSER;
	else if (entry->role_kind == PAQ_RECORD_NO_SUPERUSER)
		privileges = PAQ_PRIVILEGES_ORDINARY;
	p = paq_put_signed(p, header->session_start);
	p = paq_put_signed(p, header->pid);
	p = paq_put_signed(p, header->vxid_proc);
	p = paq_put_varint(p, privileges);
	p = put_text(p, encoding_name(header->encoding));
	p = put_fields(p, record, session_fields, lengthof(session_fields), limit);
	end_item(writer, content, p);
}

/* Defines the record's text, with at most that much of each field, in bytes. */
static void
define_text(PaqBlockWriter *writer, const PaqRecord *record, Size limit)
{
	const PaqRecordHeader *header = &record->header;
	TextEntry  *entry = &writer->texts[writer->ntexts++];
	char	   *content = begin_item(writer, PAQ_ITEM_TEXT,
							   item_max(record, text_fields, lengthof(text_fields), limit));
	char	   *p = content;

	entry->flags = header->flags & ~PAQ_RECORD_ROLE_KIND;
	entry->query_id = header->query_id;
	entry->location = header->stmt_location;
	entry->len = header->stmt_len;
	entry->audit_class = header->audit_class;
	p = paq_put_varint(p, header->audit_class);
	p = paq_put_varint(p, entry->flags);
	p = paq_put_signed(p, header->query_id);
	p = paq_put_signed(p, header->stmt_location);
	p = paq_put_signed(p, header->stmt_len);
	p = put_fields(p, record, text_fields, lengthof(text_fields), limit);
	end_item(writer, content, p);
}

/* ----------
 * Blocks
 * ----------
 */

static void
put_server(PaqBlockWriter *writer, const PaqServer *server, const PaqZone *zone)
{
	char	   *content = begin_item(writer, PAQ_ITEM_SERVER, PAQ_SERVER_MAX);
	char	   *p = content;

	p = put_text(p, server->version);
	p = put_text(p, server->host);
	p = put_text(p, server->cluster);
	p = paq_put_varint(p, zone->count);
	for (int i = 0; i < zone->count; i++)
	{
		p = paq_put_signed(p, zone->from[i]);
		p = paq_put_signed(p, zone->offset[i]);
		p = put_text(p, zone->name[i]);
	}
	Assert(p - content <= PAQ_SERVER_MAX);
	end_item(writer, content, p);
}

void
paq_block_begin(PaqBlockWriter *writer, const PaqServer *server, const PaqZone *zone,
				const PaqBlockOrigin *origin)
{
	PaqBlockHeader *header = &writer->header;

	memset(header, 0, sizeof(*header));
	header->series = origin->series;
	header->sequence = origin->sequence;
	memcpy(header->queue, origin->queue, PAQ_QUEUE_ID_LEN);
	header->queue_from = origin->position;
	writer->next = writer->body;
	writer->time = 0;
	writer->known_next = writer->known;
	writer->nsessions = writer->ntexts = 0;
	memset(writer->session_places, 0, SESSION_PLACES * sizeof(uint16));
	memset(writer->text_places, 0, TEXT_PLACES * sizeof(uint16));
	put_server(writer, server, zone);
}

/* Notes what the block's header says of its records. */
static void
note_record(PaqBlockHeader *header, const PaqRecord *record, TimestampTz time)
{
	const PaqRecordHeader *fields = &record->header;
	const uint32 unknown = PAQ_RECORD_INTERRUPTED | PAQ_RECORD_NO_OUTCOME;

	Assert(record->sequence == header->sequence + header->nrecords);
	if (header->nrecords++ == 0)
	{
		header->first_time = header->last_time = time;
	}
	header->first_time = Min(header->first_time, time);
	header->last_time = Max(header->last_time, time);
	header->classes |= fields->kind == PAQ_KIND_AUDIT ? PAQ_CLASS_BIT(fields->audit_class) : 1;
	if (fields->sqlstate != 0)
		header->outcomes |= PAQ_BLOCK_FAILED;
	else if (fields->kind != PAQ_KIND_AUDIT || (fields->flags & unknown) != 0)
		header->outcomes |= PAQ_BLOCK_UNKNOWN;
	else
		header->outcomes |= PAQ_BLOCK_SUCCEEDED;
}

/* Puts how much of the record's fields is left for later blocks. */
static char *
put_rest(PaqBlockWriter *writer, char *p)
{
	p = paq_put_varint(p, writer->nrest);
	for (int i = 0; i < writer->nrest; i++)
	{
		p = paq_put_varint(p, writer->rest[i].field);
		p = paq_put_varint(p, writer->rest[i].text.len);
	}
	return p;
}

static void
put_record(PaqBlockWriter *writer, const PaqRecord *record, uint32 session_number,
		   uint32 text_number, Size limit)
{
	const PaqRecordHeader *header = &record->header;
	const TimestampTz time = header->end_time != 0 ? header->end_time : header->start_time;
	SessionEntry *session = &writer->sessions[session_number];
	char	   *content = begin_item(writer, PAQ_ITEM_RECORD,
							   item_max(record, record_fields, lengthof(record_fields), limit) +
								   (limit < PAQ_BLOCK_BODY_MAX ? PAQ_NFIELDS * FIELD_MAX : 0));
	char	   *p = content;
	uint32		mask = 0;

	/* What differs from what is expected */
	if (header->start_time == 0)
		mask |= PAQ_MASK_NO_START;
	if (header->end_time == 0)
		mask |= PAQ_MASK_NO_END;
	if (header->statement_id != session->statement_id + 1 || header->substatement_id != 1)
		mask |= PAQ_MASK_IDS;
	if (header->session_line != session->line + 1)
		mask |= PAQ_MASK_LINE;
	if (header->vxid_lxid != session->lxid)
		mask |= PAQ_MASK_LXID;
	if (header->xid != 0)
		mask |= PAQ_MASK_XID;
	if (header->rows >= 0)
		mask |= PAQ_MASK_ROWS;
	if (header->sqlstate != 0)
		mask |= PAQ_MASK_SQLSTATE;
	for (int i = 0; i < lengthof(record_fields); i++)
		if (record->field[record_fields[i]].data != NULL)
			mask |= PAQ_MASK_FIELDS;
	if (header->kind != PAQ_KIND_AUDIT)
		mask |= PAQ_MASK_KIND;
	if (writer->nrest > 0)
		mask |= PAQ_MASK_PIECES;

	p = paq_put_varint(p, mask);
	p = paq_put_varint(p, session_number);
	p = paq_put_varint(p, text_number);
	p = paq_put_signed(p, time - writer->time);
	if ((mask & (PAQ_MASK_NO_START | PAQ_MASK_NO_END)) == 0)
		p = paq_put_signed(p, time - header->start_time);
	if (mask & PAQ_MASK_IDS)
	{
		p = paq_put_signed(p, header->statement_id);
		p = paq_put_signed(p, header->substatement_id);
	}
	if (mask & PAQ_MASK_LINE)
		p = paq_put_signed(p, header->session_line);
	if (mask & PAQ_MASK_LXID)
		p = paq_put_signed(p, (int64) header->vxid_lxid - session->lxid);
	if (mask & PAQ_MASK_XID)
		p = paq_put_varint(p, header->xid);
	if (mask & PAQ_MASK_ROWS)
		p = paq_put_varint(p, header->rows);
	if (mask & PAQ_MASK_SQLSTATE)
		for (int i = 0; i < 5; i++)
			*p++ = (char) ((header->sqlstate >> (6 * i) & 0x3F) + '0');
	if (mask & PAQ_MASK_FIELDS)
		p = put_fields(p, record, record_fields, lengthof(record_fields), limit);
	if (mask & PAQ_MASK_KIND)
		p = paq_put_varint(p, header->kind);
	if (mask & PAQ_MASK_PIECES)
		p = put_rest(writer, p);
	end_item(writer, content, p);

	session->statement_id = header->statement_id;
	session->line = header->session_line;
	session->lxid = header->vxid_lxid;
	writer->time = time;
}

/* Notes what the record has more of than the beginnings of its fields. */
static void
keep_rest(PaqBlockWriter *writer, const PaqRecord *record)
{
	for (int field = 0; field < PAQ_NFIELDS; field++)
	{
		const PaqText *text = &record->field[field];

		if (text->len > HEAD_MAX)
			writer->rest[writer->nrest++] = (Rest){
				field, { text->data + HEAD_MAX, text->len - HEAD_MAX }
			};
	}
}

bool
paq_block_add(PaqBlockWriter *writer, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;
	const TimestampTz time = header->end_time != 0 ? header->end_time : header->start_time;
	Size		limit = PAQ_BLOCK_BODY_MAX;
	Size		need = item_max(record, record_fields, lengthof(record_fields), limit);
	uint16	   *session = find_session(writer, record);
	uint32		hash;
	uint16	   *text = find_text(writer, record, &hash);
	uint32		session_number;
	uint32		text_number;

	Assert(writer->nrest == 0);
	if (*session == 0)
		need += item_max(record, session_fields, lengthof(session_fields), limit);
	if (*text == 0)
		need += item_max(record, text_fields, lengthof(text_fields), limit);
	if (need > writer->body + PAQ_BLOCK_BODY_MAX - writer->next ||
		writer->nsessions == PAQ_BLOCK_MAX_SESSIONS || writer->ntexts == PAQ_BLOCK_MAX_TEXTS)
	{
		if (writer->header.nrecords > 0)
			return false;

		/* It is too long for any block: so much of its fields, and the rest later. */
		limit = HEAD_MAX;
		keep_rest(writer, record);
	}

	/* Definitions that are not whole are for no other record. */
	session_number = *session - 1;
	if (*session == 0)
	{
		session_number = writer->nsessions;
		define_session(writer, record, limit);
		if (limit == PAQ_BLOCK_BODY_MAX)
		{
			SessionEntry *entry = &writer->sessions[session_number];

			entry->fields = keep_fields(writer, record, session_fields,
										lengthof(session_fields), entry->field_len);
			*session = session_number + 1;
		}
	}
	text_number = *text - 1;
	if (*text == 0)
	{
		text_number = writer->ntexts;
		define_text(writer, record, limit);
		if (limit == PAQ_BLOCK_BODY_MAX)
		{
			TextEntry  *entry = &writer->texts[text_number];

			entry->hash = hash;
			entry->fields = keep_fields(writer, record, text_fields, lengthof(text_fields),
										entry->field_len);
			*text = text_number + 1;
		}
	}
	note_record(&writer->header, record, time);
	put_record(writer, record, session_number, text_number, limit);
	return true;
}

bool
paq_block_has_rest(const PaqBlockWriter *writer)
{
	return writer->nrest > 0;
}

bool
paq_block_add_rest(PaqBlockWriter *writer)
{
	while (writer->nrest > 0)
	{
		Rest	   *rest = &writer->rest[0];
		const Size	room = writer->body + PAQ_BLOCK_BODY_MAX - writer->next;
		Size		len;
		char	   *content;
		char	   *p;

		if (room <= ITEM_MAX)
			return false;
		len = Min(rest->text.len, room - ITEM_MAX);
		content = begin_item(writer, PAQ_ITEM_PIECE, len + PAQ_VARINT_MAX);
		p = paq_put_varint(content, rest->field);
		memcpy(p, rest->text.data, len);
		end_item(writer, content, p + len);
		rest->text.data += len;
		rest->text.len -= len;
		if (rest->text.len == 0)
		{
			writer->nrest--;
			memmove(rest, rest + 1, writer->nrest * sizeof(Rest));
		}
	}
	return true;
}

/* Puts the header of the block whose body is stored behind it; returns its end. */
static char *
put_block_header(PaqBlockWriter *writer)
{
	const PaqBlockHeader *header = &writer->header;
	char	   *p = writer->stored;

	memcpy(p, PAQ_BLOCK_MAGIC, 4);
	p = paq_put_fixed(p + 4, PAQ_BLOCK_HEADER, 2);
	p = paq_put_fixed(p, 0, 2);
	p = paq_put_fixed(p, header->stored_len, 4);
	p = paq_put_fixed(p, header->body_len, 4);
	p = paq_put_fixed(p, header->series, 8);
	p = paq_put_fixed(p, header->sequence, 8);
	p = paq_put_fixed(p, header->nrecords, 4);
	p = paq_put_fixed(p, header->classes, 4);
	p = paq_put_fixed(p, header->outcomes, 4);
	p = paq_put_fixed(p, 0, 4);
	p = paq_put_fixed(p, header->first_time, 8);
	p = paq_put_fixed(p, header->last_time, 8);
	memcpy(p, header->queue, PAQ_QUEUE_ID_LEN);
	p = paq_put_fixed(p + PAQ_QUEUE_ID_LEN, header->queue_from, 8);
	p = paq_put_fixed(p, header->queue_to, 8);
	memcpy(p, writer->hash, PAQ_BLOCK_HASH_LEN);
	p += PAQ_BLOCK_HASH_LEN;
	Assert(p == writer->stored + PAQ_BLOCK_AUTHENTIC);
	return p;
}

bool
paq_block_end(PaqBlockWriter *writer, uint64 queue_to,
			  const char **data, Size *len, char *error)
{
	const PaqLayers *layers = &writer->file.layers;
	const bool	encrypted = layers->encryption != PAQ_ENCRYPTION_NONE;
	char	   *stored = writer->stored + PAQ_BLOCK_HEADER;
	const char *body = writer->body;
	Size		body_len = writer->next - writer->body;
	char	   *p;

	writer->header.queue_to = queue_to;
	writer->header.body_len = body_len;

	/* 1. Compress the body, to where it will be stored unless it has to be encrypted. */
	if (layers->compression != PAQ_COMPRESSION_NONE)
	{
		char	   *frame = encrypted ? writer->frame : stored;

		body_len = paq_frame_compress(layers->compression, &writer->compressor,
									  frame, PAQ_UNIT_MAX, body, body_len);
		body = frame;
		if (body_len == 0)
		{
			strlcpy(error, "could not compress a block", PAQ_LAYER_ERROR_LEN);
			return false;
		}
	}

	/* 2. Encrypt it, with what the header says. */
	writer->header.stored_len = body_len + (encrypted ? PAQ_BODY_CIPHER_LEN : 0);
	p = put_block_header(writer);
	if (encrypted)
	{
		if (!paq_body_encrypt(&writer->cipher, (uint8 *) stored, body, body_len,
							  (const uint8 *) writer->stored, PAQ_BLOCK_AUTHENTIC))
		{
			strlcpy(error, "OpenSSL could not encrypt a block", PAQ_LAYER_ERROR_LEN);
			return false;
		}
	}
	else if (body != stored)
		memcpy(stored, body, body_len);

	/* 3. Checksums and the hash are over what is stored. */
	p = paq_put_fixed(p, paq_crc32c(stored, writer->header.stored_len), 4);
	(void) paq_put_fixed(p, paq_crc32c(writer->stored, p - writer->stored), 4);
	*data = writer->stored;
	*len = PAQ_BLOCK_HEADER + writer->header.stored_len;
	if (!paq_block_hash(writer->next_hash, *data, *len, NULL, 0))
	{
		strlcpy(error, "could not compute the hash of a block", PAQ_LAYER_ERROR_LEN);
		return false;
	}
	return true;
}

void
paq_block_written(PaqBlockWriter *writer)
{
	memcpy(writer->hash, writer->next_hash, PAQ_BLOCK_HASH_LEN);
}
