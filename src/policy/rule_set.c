/*-------------------------------------------------------------------------
 *
 * rule_set.c
 *		Rule sets: from the policy file, and back to rules.
 *
 * Behind its header, a rule set has for each rule the number of its line and the
 * name of its file, and then its words:
 *
 *	W_WORD or W_QUOTED and a string		a word of the current field
 *	W_END_FIELD							and another one begins
 *	W_END_RULE
 *
 * Strings have their terminators.  Numbers are in native order and at no particular
 * alignment; the words, of which the checksum is, are the same on each machine.
 *
 * Guarantees: a set has only lines that paq_rule_make() has made a rule of, and is
 * made only if that goes for all lines.  Data that paq_rule_set_is_valid() has
 * accepted can be read without any further check.
 *
 * Reading a file may raise errors: out of memory, or too many files that include
 * each other.  paq_rule_set_is_valid() neither raises nor allocates.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "compat.h"
#include "file_util.h"
#include "lib/stringinfo.h"
#include "libpq/hba.h"
#include "policy/policy_internal.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "utils/builtins.h"
#include "utils/resowner.h"

#define RULE_SET_MAGIC	0x31525150	/* "PQR1" */

#define W_WORD			'w'
#define W_QUOTED		'q'
#define W_END_FIELD		'f'
#define W_END_RULE		'e'

/* The largest file; a set may be larger than the file, which can include others */
#define MAX_MB			(PAQ_MAX_RULE_SET / (1024 * 1024))

/* What is left to be read of a set, or of what may be one */
typedef struct Cursor
{
	const char *next;
	const char *end;
} Cursor;

/* What is found there of a rule */
typedef struct PackedRule
{
	int			line;
	const char *file;
	Cursor		words;
} PackedRule;

/*-------------------------------------------------------------------------
 * Taking a set apart
 *-------------------------------------------------------------------------
 */

/* A string, if there is one; the result is NULL if it has no end. */
static const char *
take_string(Cursor *cursor)
{
	const char *string = cursor->next;
	const char *terminator = memchr(string, '\0', cursor->end - string);

	if (terminator == NULL)
		return NULL;
	cursor->next = terminator + 1;
	return string;
}

/* Go to the end of the words of a rule; false if there is none, or a field without words. */
static bool
skip_words(Cursor *cursor)
{
	int			words = 0;

	while (cursor->next < cursor->end)
	{
		switch (*cursor->next++)
		{
			case W_WORD:
			case W_QUOTED:
				if (take_string(cursor) == NULL)
					return false;
				words++;
				break;
			case W_END_FIELD:
				if (words == 0)
					return false;
				words = 0;
				break;
			case W_END_RULE:
				return true;
			default:
				return false;
		}
	}
	return false;
}

static bool
take_rule(Cursor *cursor, PackedRule *rule)
{
	uint32		line;

	if (cursor->end - cursor->next < sizeof(line))
		return false;
	memcpy(&line, cursor->next, sizeof(line));
	cursor->next += sizeof(line);
	rule->line = (int) line;
	rule->file = take_string(cursor);
	if (rule->file == NULL)
		return false;
	rule->words.next = cursor->next;
	if (!skip_words(cursor))
		return false;
	rule->words.end = cursor->next;
	return true;
}

static Cursor
rules_of(const PaqRuleSet *set)
{
	Cursor		cursor;

	cursor.next = (const char *) (set + 1);
	cursor.end = (const char *) set + set->size;
	return cursor;
}

static pg_crc32c
set_crc(const PaqRuleSet *set)
{
	return paq_crc32c(set + 1, set->size - sizeof(PaqRuleSet));
}

static bool
is_checksum(const char *text)
{
	return strnlen(text, PAQ_CHECKSUM_LEN) == PAQ_CHECKSUM_LEN - 1 &&
		strspn(text, "0123456789abcdef") == PAQ_CHECKSUM_LEN - 1;
}

/* Are these bytes, aligned as a PaqRuleSet is, a rule set? */
bool
paq_rule_set_is_valid(const char *data, Size size)
{
	const PaqRuleSet *set = (const PaqRuleSet *) data;
	Cursor		cursor;
	PackedRule	rule;

	if (size < sizeof(PaqRuleSet) || set->magic != RULE_SET_MAGIC || set->size != size ||
		set->crc != set_crc(set) || !is_checksum(set->checksum))
		return false;
	cursor = rules_of(set);
	for (uint32 i = 0; i < set->nrules; i++)
		if (!take_rule(&cursor, &rule))
			return false;
	return cursor.next == cursor.end;
}

/*-------------------------------------------------------------------------
 * From words to rules
 *-------------------------------------------------------------------------
 */

/* The fields of a rule: lists of AuthToken, whose strings are those of the set */
static List *
unpack_fields(const PackedRule *rule)
{
	Cursor		cursor = rule->words;
	List	   *fields = NIL;
	List	   *field = NIL;

	for (;;)
	{
		const char	what = *cursor.next++;
		AuthToken  *token;

		if (what == W_END_RULE)
			return fields;
		if (what == W_END_FIELD)
		{
			fields = lappend(fields, field);
			field = NIL;
			continue;
		}
		token = palloc0(sizeof(AuthToken));
		token->string = unconstify(char *, take_string(&cursor));
		token->quoted = what == W_QUOTED;
		field = lappend(field, token);
	}
}

static void
free_fields(List *fields)
{
	ListCell   *lc;

	foreach(lc, fields)
		list_free_deep((List *) lfirst(lc));
	list_free(fields);
}

void
paq_rule_set_begin(PaqRuleReader *reader, const PaqRuleSet *set)
{
	reader->set = set;
	reader->next = rules_of(set).next;
	reader->number = 0;
}

/* Pass over the next rule, which is there. */
void
paq_rule_set_skip(PaqRuleReader *reader)
{
	Cursor		cursor = rules_of(reader->set);
	PackedRule	packed;

	cursor.next = reader->next;
	(void) take_rule(&cursor, &packed);
	reader->next = cursor.next;
	reader->number++;
}

/*
 * The next rule, in the current memory context; NULL at the end.  An error is raised if
 * there is not enough memory, and if the words are those of a later version.
 */
PaqRule *
paq_rule_set_next(PaqRuleReader *reader)
{
	Cursor		cursor = rules_of(reader->set);
	PackedRule	packed;
	List	   *fields;
	PaqRule    *rule;
	char	   *error;

	cursor.next = reader->next;
	if (cursor.next == cursor.end || !take_rule(&cursor, &packed))
		return NULL;
	reader->next = cursor.next;
	reader->number++;
	fields = unpack_fields(&packed);
	rule = paq_rule_make(fields, &error);
	free_fields(fields);
	if (rule == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("could not use the rule in line %d of file \"%s\": %s",
						packed.line, packed.file, error)));
	rule->line = packed.line;
	rule->file = pstrdup(packed.file);
	rule->verdict.number = reader->number;
	return rule;
}

/*-------------------------------------------------------------------------
 * From a file to lines
 *-------------------------------------------------------------------------
 */

/*
 * Is there a regular file?  Ask before it is opened, which waits for somebody if it
 * is a named pipe.
 */
static bool
check_file(const char *path, char **error, bool *missing)
{
	struct stat st;

	if (stat(path, &st) != 0)
	{
		*missing = errno == ENOENT;
		*error = psprintf("could not open file \"%s\": %m", path);
		return false;
	}
	if (!S_ISREG(st.st_mode))
	{
		*error = psprintf("\"%s\" is not a regular file", path);
		return false;
	}
	return true;
}

/*
 * Look at all bytes before they are taken for lines: a null byte would hide the rest
 * of its line.
 */
static bool
check_contents(FILE *file, const char *path, char **error)
{
	char		buf[8192];
	size_t		size = 0;
	size_t		n;

	while ((n = fread(buf, 1, sizeof(buf), file)) > 0)
	{
		size += n;
		if (memchr(buf, '\0', n) != NULL)
			*error = psprintf("file \"%s\" contains a null byte", path);
		else if (size > PAQ_MAX_RULE_SET)
			*error = psprintf("file \"%s\" is too large (maximum %d MB)", path, MAX_MB);
		if (*error != NULL)
			return false;
	}
	if (ferror(file))
	{
		*error = psprintf("could not read file \"%s\": %m", path);
		return false;
	}
	rewind(file);
	return true;
}

static List *
copy_fields(List *fields)
{
	List	   *copy = NIL;
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, fields)
	{
		List	   *field = NIL;

		foreach(lc2, (List *) lfirst(lc))
		{
			const AuthToken *from = (const AuthToken *) lfirst(lc2);
			AuthToken  *token = palloc0(sizeof(AuthToken));

			token->string = pstrdup(from->string);
			token->quoted = from->quoted;
			field = lappend(field, token);
		}
		copy = lappend(copy, field);
	}
	return copy;
}

/* What PostgreSQL has read, for as long as we need it */
static List *
copy_lines(List *tokenized, const char *path)
{
	List	   *lines = NIL;
	ListCell   *lc;

	foreach(lc, tokenized)
	{
		const TokenizedAuthLine *from = (const TokenizedAuthLine *) lfirst(lc);
		PaqRuleLine *line = palloc0(sizeof(PaqRuleLine));

		line->file = pstrdup(paq_auth_line_file(from, path));
		line->line = from->line_num;
		if (from->err_msg != NULL)
			line->error = pstrdup(from->err_msg);
		else
			line->fields = copy_fields(from->fields);
		lines = lappend(lines, line);
	}
	return lines;
}

/* The lines of a file; false with *error if there is something wrong with all of it. */
static bool
read_lines(const char *path, List **lines, char **error, bool *missing)
{
	FILE	   *file;
	volatile bool ok = false;

	if (!check_file(path, error, missing))
		return false;
	file = paq_auth_file_open(path, error);
	if (file == NULL)
		return false;
	PG_TRY();
	{
		ok = check_contents(file, path, error);
		if (ok)
			*lines = copy_lines(paq_auth_file_tokenize(path, file), path);
	}
	PG_FINALLY();
	{
		paq_auth_file_close(file);
	}
	PG_END_TRY();
	return ok;
}

/*-------------------------------------------------------------------------
 * From lines to a set
 *-------------------------------------------------------------------------
 */

static void
pack_line(StringInfo buf, const PaqRuleLine *line)
{
	const uint32 number = line->line;
	ListCell   *lc;
	ListCell   *lc2;

	appendBinaryStringInfo(buf, (const char *) &number, sizeof(number));
	appendBinaryStringInfo(buf, line->file, strlen(line->file) + 1);
	foreach(lc, line->fields)
	{
		foreach(lc2, (List *) lfirst(lc))
		{
			const AuthToken *token = (const AuthToken *) lfirst(lc2);

			appendStringInfoChar(buf, token->quoted ? W_QUOTED : W_WORD);
			appendBinaryStringInfo(buf, token->string, strlen(token->string) + 1);
		}
		appendStringInfoChar(buf, W_END_FIELD);
	}
	appendStringInfoChar(buf, W_END_RULE);
}

/* Is the line a rule? */
static bool
check_line(PaqRuleLine *line)
{
	PaqRule    *rule;
	char	   *error;

	if (line->error != NULL)
		return false;
	rule = paq_rule_make(line->fields, &error);
	if (rule == NULL)
	{
		line->error = error;
		return false;
	}
	paq_rule_free(rule);
	return true;
}

static bool
hash_words(pg_cryptohash_ctx *ctx, const PaqRuleSet *set, uint8 *digest)
{
	Cursor		cursor = rules_of(set);
	PackedRule	rule;
	bool		ok = pg_cryptohash_init(ctx) == 0;

	while (ok && cursor.next < cursor.end && take_rule(&cursor, &rule))
		ok = pg_cryptohash_update(ctx, (const uint8 *) rule.words.next,
								  rule.words.end - rule.words.next) == 0;
	return ok && pg_cryptohash_final(ctx, digest, PG_SHA256_DIGEST_LENGTH) == 0;
}

/*
 * Set the checksum of the words.  What OpenSSL allocates is owned by somebody, also in
 * the postmaster, which owns nothing.
 */
static bool
set_checksum(PaqRuleSet *set, char **error)
{
	ResourceOwner owner = NULL;
	pg_cryptohash_ctx *ctx;
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	bool		ok;

	if (CurrentResourceOwner == NULL)
		CurrentResourceOwner = owner = ResourceOwnerCreate(NULL, "audit policy");
	ctx = pg_cryptohash_create(PG_SHA256);
	ok = ctx != NULL && hash_words(ctx, set, digest);
	if (!ok)
		*error = psprintf("could not compute %s hash: %s", "SHA256",
						  pg_cryptohash_error(ctx));
	if (ctx != NULL)
		pg_cryptohash_free(ctx);
	if (owner != NULL)
	{
		CurrentResourceOwner = NULL;
		ResourceOwnerDelete(owner);
	}
	if (ok)
		set->checksum[hex_encode((const char *) digest, sizeof(digest), set->checksum)] = '\0';
	return ok;
}

/* Is the checksum that of the words?  Raises for lack of memory only. */
bool
paq_rule_set_is_genuine(const PaqRuleSet *set)
{
	PaqRuleSet *copy = palloc(set->size);
	char	   *error;
	bool		result;

	memcpy(copy, set, set->size);
	result = set_checksum(copy, &error) && strcmp(copy->checksum, set->checksum) == 0;
	pfree(copy);
	return result;
}

/* Make the set of lines that are rules; NULL with *error if that cannot be done. */
static PaqRuleSet *
pack_lines(List *lines, char **error)
{
	PaqRuleSet	header = {.magic = RULE_SET_MAGIC};
	PaqRuleSet *set;
	StringInfoData buf;
	ListCell   *lc;

	initStringInfo(&buf);
	appendBinaryStringInfo(&buf, (const char *) &header, sizeof(header));
	foreach(lc, lines)
	{
		pack_line(&buf, (const PaqRuleLine *) lfirst(lc));
		if (buf.len > PAQ_MAX_RULE_SET)
		{
			*error = psprintf("rules are too large (maximum %d MB)", MAX_MB);
			return NULL;
		}
	}
	set = (PaqRuleSet *) buf.data;
	set->size = buf.len;
	set->nrules = list_length(lines);
	set->crc = set_crc(set);
	return set_checksum(set, error) ? set : NULL;
}

PaqRuleSet *
paq_rule_set_read(const char *path, List **lines, char **error, bool *missing)
{
	bool		ok = true;
	ListCell   *lc;

	*lines = NIL;
	*error = NULL;
	*missing = false;
	if (!read_lines(path, lines, error, missing))
		return NULL;
	foreach(lc, *lines)
		if (!check_line((PaqRuleLine *) lfirst(lc)))
			ok = false;
	return ok ? pack_lines(*lines, error) : NULL;
}
