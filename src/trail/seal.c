/*-------------------------------------------------------------------------
 *
 * seal.c
 *		Lines of seals, and the secrets that authenticate them.
 *
 * seal.h has the layout.  Digests are PostgreSQL's own functions.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <time.h>

#include "common/cryptohash.h"
#include "common/hmac.h"
#include "common/sha2.h"
#include "datatype/timestamp.h"
#include "trail/hex.h"
#include "trail/line.h"
#include "trail/seal.h"

#define MARK		"S1 "

/* What is derived from a secret */
#define FOR_ID		"pg_audit_queue seal key id"
#define FOR_MAC		"pg_audit_queue seal"
#define FOR_NEXT	"pg_audit_queue next epoch"

/* Seconds from 1970, as Unix counts, to 2000, as PostgreSQL does */
#define EPOCH_OFFSET \
	((int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY)

#define HEX_LEN		(2 * PAQ_SEAL_DIGEST_LEN)

static const char *const kind_names[PAQ_NSEAL_KINDS] = {
	[PAQ_SEAL_BEGIN] = "begin",
	[PAQ_SEAL_START] = "start",
	[PAQ_SEAL_BEFORE] = "before",
	[PAQ_SEAL_NEW] = "new",
	[PAQ_SEAL_CHANGED] = "changed",
	[PAQ_SEAL_REMOVED] = "removed",
	[PAQ_SEAL_TIME] = "time",
	[PAQ_SEAL_REQUEST] = "request",
	[PAQ_SEAL_FINISH] = "finish",
	[PAQ_SEAL_STOP] = "stop"
};

const char *
paq_seal_kind_name(PaqSealKind kind)
{
	return kind_names[kind];
}

static bool
hmac(const uint8 *key, const void *data, Size len, uint8 result[PG_SHA256_DIGEST_LENGTH])
{
	pg_hmac_ctx *ctx = pg_hmac_create(PG_SHA256);
	bool		ok = ctx != NULL &&
		pg_hmac_init(ctx, key, PAQ_SEAL_SECRET_LEN) >= 0 &&
		pg_hmac_update(ctx, data, len) >= 0 &&
		pg_hmac_final(ctx, result, PG_SHA256_DIGEST_LENGTH) >= 0;

	pg_hmac_free(ctx);
	return ok;
}

bool
paq_seal_key_id(const PaqSealSecret *first, uint8 id[PAQ_SEAL_ID_LEN])
{
	uint8		digest[PG_SHA256_DIGEST_LENGTH];

	if (!hmac(first->secret, FOR_ID, strlen(FOR_ID), digest))
		return false;
	memcpy(id, digest, PAQ_SEAL_ID_LEN);
	return true;
}

bool
paq_seal_next_secret(PaqSealSecret *secret)
{
	uint8		next[PG_SHA256_DIGEST_LENGTH];
	bool		ok = hmac(secret->secret, FOR_NEXT, strlen(FOR_NEXT), next);

	if (ok)
	{
		memcpy(secret->secret, next, PAQ_SEAL_SECRET_LEN);
		secret->epoch++;
	}
	explicit_bzero(next, sizeof(next));
	return ok;
}

/* The authentication of a line under an epoch's secret */
static bool
compute_mac(const PaqSealSecret *secret, const char *line, Size len, uint8 *mac)
{
	uint8		key[PG_SHA256_DIGEST_LENGTH];
	bool		ok = hmac(secret->secret, FOR_MAC, strlen(FOR_MAC), key) &&
		hmac(key, line, len, mac);

	explicit_bzero(key, sizeof(key));
	return ok;
}

static bool
compute_chain(const uint8 *previous, const char *line, Size len, uint8 *chain)
{
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);
	bool		ok = ctx != NULL && pg_cryptohash_init(ctx) >= 0 &&
		pg_cryptohash_update(ctx, previous, PAQ_SEAL_DIGEST_LEN) >= 0 &&
		pg_cryptohash_update(ctx, (const uint8 *) line, len) >= 0 &&
		pg_cryptohash_final(ctx, chain, PAQ_SEAL_DIGEST_LEN) >= 0;

	pg_cryptohash_free(ctx);
	return ok;
}

/* ----------
 * Writing
 * ----------
 */

void
paq_seal_id_text(const uint8 *id, char text[PAQ_SEAL_ID_TEXT_LEN])
{
	paq_hex_put(text, id, PAQ_SEAL_ID_LEN);
}

static bool
is_plain(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		c == '.' || c == '_' || c == '-';
}

/* A file's name; one that is a hyphen is not mistaken for none. */
static char *
put_name(char *dst, const char *name)
{
	const bool	hyphen = strcmp(name, "-") == 0;

	if (name[0] == '\0')
		*dst++ = '-';
	for (const char *p = name; *p != '\0'; p++)
	{
		if (is_plain(*p) && !hyphen)
			*dst++ = *p;
		else
			dst += sprintf(dst, "%%%02X", (unsigned char) *p);
	}
	*dst = '\0';
	return dst;
}

static char *
put_seal_time(char *dst, int64 timestamp)
{
	int64		us = timestamp % USECS_PER_SEC;
	int64		seconds = timestamp / USECS_PER_SEC;
	time_t		unix_time;
	struct tm	tm;

	if (us < 0)
	{
		us += USECS_PER_SEC;
		seconds--;
	}
	unix_time = (time_t) (seconds + EPOCH_OFFSET);
	gmtime_r(&unix_time, &tm);
	dst += strftime(dst, 64, "%Y-%m-%dT%H:%M:%S", &tm);
	return dst + sprintf(dst, ".%06dZ", (int) us);
}

Size
paq_seal_write(PaqSeal *seal, const PaqSealSecret *secret,
			   const uint8 *previous_chain, char *line)
{
	char	   *p = line;

	seal->epoch = secret->epoch;
	p += sprintf(p, MARK UINT64_FORMAT " ", seal->epoch);
	p = put_seal_time(p, seal->time);
	p += sprintf(p, " %s %u ", kind_names[seal->kind], seal->due);
	p = put_name(p, seal->file);
	p += sprintf(p, " " UINT64_FORMAT " " UINT64_FORMAT " " UINT64_FORMAT " " UINT64_FORMAT " ",
				 seal->from, seal->to, seal->first, seal->last);
	paq_hex_put(p, seal->sha256, PAQ_SEAL_DIGEST_LEN);
	p += HEX_LEN;
	if (!compute_chain(previous_chain, line, p - line, seal->chain))
		return 0;
	*p++ = ' ';
	paq_hex_put(p, seal->chain, PAQ_SEAL_DIGEST_LEN);
	p += HEX_LEN;
	if (!compute_mac(secret, line, p - line, seal->mac))
		return 0;
	*p++ = ' ';
	paq_hex_put(p, seal->mac, PAQ_SEAL_DIGEST_LEN);
	p += HEX_LEN;
	*p++ = '\n';
	*p = '\0';
	return p - line;
}

/* ----------
 * Reading
 * ----------
 */

/* One byte of two hexadecimal digits; -1 if they are none */
static int
hex_byte(const char *src)
{
	int			high = paq_hex_digit(src[0]);
	int			low = high < 0 ? -1 : paq_hex_digit(src[1]);

	return low < 0 ? -1 : high << 4 | low;
}

/* The next field of a line, up to a space or the end; false if there is none. */
static bool
next_field(const char **p, const char *end, const char **field, Size *len)
{
	const char *space;

	if (*p >= end)
		return false;
	space = memchr(*p, ' ', end - *p);
	*field = *p;
	*len = (space ? space : end) - *p;
	*p = space ? space + 1 : end;
	return *len > 0;
}

static bool
get_number(const char **p, const char *end, uint64 max, uint64 *number)
{
	const char *field;
	Size		len;

	if (!next_field(p, end, &field, &len) || len > 20)
		return false;
	*number = 0;
	for (Size i = 0; i < len; i++)
	{
		const unsigned digit = field[i] - '0';

		if (digit > 9 || *number > (max - digit) / 10)
			return false;
		*number = *number * 10 + digit;
	}
	return true;
}

static bool
get_digest(const char **p, const char *end, uint8 *digest)
{
	const char *field;
	Size		len;

	if (!next_field(p, end, &field, &len) || len != HEX_LEN)
		return false;
	for (int i = 0; i < PAQ_SEAL_DIGEST_LEN; i++)
	{
		const char *digits = field + 2 * i;
		int			byte = hex_byte(digits);

		/* as paq_hex_put() writes it: no other line is the same seal */
		if (byte < 0 || (digits[0] >= 'A' && digits[0] <= 'F') ||
			(digits[1] >= 'A' && digits[1] <= 'F'))
			return false;
		digest[i] = byte;
	}
	return true;
}

static bool
get_name(const char **p, const char *end, char *name)
{
	const char *field;
	Size		len;
	Size		n = 0;

	if (!next_field(p, end, &field, &len))
		return false;
	for (Size i = 0; i < len && !(len == 1 && *field == '-'); i++)
	{
		int			byte = (unsigned char) field[i];

		if (byte == '%')
		{
			byte = i + 2 < len ? hex_byte(field + i + 1) : -1;
			i += 2;
		}
		if (byte <= 0 || byte == '/' || n + 1 >= PAQ_SEAL_NAME_LEN)
			return false;
		name[n++] = byte;
	}
	name[n] = '\0';
	return true;
}

static bool
get_time(const char **p, const char *end, int64 *timestamp)
{
	const char *field;
	Size		len;
	int			offset;
	bool		has_offset;

	return next_field(p, end, &field, &len) &&
		paq_time_parse(field, len, timestamp, &offset, &has_offset) && has_offset;
}

static bool
get_kind(const char **p, const char *end, PaqSealKind *kind)
{
	const char *field;
	Size		len;

	if (!next_field(p, end, &field, &len))
		return false;
	for (int i = 0; i < PAQ_NSEAL_KINDS; i++)
		if (strlen(kind_names[i]) == len && memcmp(kind_names[i], field, len) == 0)
		{
			*kind = i;
			return true;
		}
	return false;
}

bool
paq_seal_parse(const char *line, Size len, PaqSeal *seal)
{
	const char *p = line + strlen(MARK);
	const char *end = line + len;
	uint64		due;

	if (len >= PAQ_SEAL_LINE_LEN || len < strlen(MARK) ||
		memcmp(line, MARK, strlen(MARK)) != 0 ||
		!get_number(&p, end, PG_UINT64_MAX, &seal->epoch) ||
		!get_time(&p, end, &seal->time) ||
		!get_kind(&p, end, &seal->kind) ||
		!get_number(&p, end, PG_UINT32_MAX, &due) ||
		!get_name(&p, end, seal->file) ||
		!get_number(&p, end, PG_UINT64_MAX, &seal->from) ||
		!get_number(&p, end, PG_UINT64_MAX, &seal->to) ||
		!get_number(&p, end, PG_UINT64_MAX, &seal->first) ||
		!get_number(&p, end, PG_UINT64_MAX, &seal->last) ||
		!get_digest(&p, end, seal->sha256) ||
		!get_digest(&p, end, seal->chain) ||
		!get_digest(&p, end, seal->mac))
		return false;
	seal->due = due;
	return p == end && line[len - 1] != ' ' && seal->from <= seal->to;
}

bool
paq_seal_check(const char *line, Size len, const PaqSeal *seal,
			   const PaqSealSecret *secret, const uint8 *previous_chain,
			   bool *genuine, bool *follows)
{
	const Size	mac_at = len - HEX_LEN - 1;
	const Size	chain_at = mac_at - HEX_LEN - 1;
	uint8		mac[PAQ_SEAL_DIGEST_LEN];
	uint8		chain[PAQ_SEAL_DIGEST_LEN];

	if (!compute_mac(secret, line, mac_at, mac) ||
		!compute_chain(previous_chain, line, chain_at, chain))
		return false;
	*genuine = memcmp(mac, seal->mac, sizeof(mac)) == 0;
	*follows = memcmp(chain, seal->chain, sizeof(chain)) == 0;
	return true;
}

/* ----------
 * Verification keys
 * ----------
 */

/* Digits in groups of eight, as people write them down */
void
paq_seal_key_text(const PaqSealSecret *first, char *text, Size size)
{
	Size		used = 0;

	for (int i = 0; i < PAQ_SEAL_SECRET_LEN && used + 4 < size; i++)
	{
		if (i > 0 && i % 4 == 0)
			text[used++] = '-';
		used += sprintf(text + used, "%02x", first->secret[i]);
	}
	text[used] = '\0';
}

bool
paq_seal_key_parse(const char *text, Size len, PaqSealSecret *first)
{
	int			digits = 0;

	memset(first, 0, sizeof(*first));
	for (Size i = 0; i < len; i++)
	{
		int			digit = paq_hex_digit(text[i]);

		if (text[i] == ' ' || text[i] == '-')
			continue;
		if (digit < 0 || digits == HEX_LEN)
			return false;
		first->secret[digits / 2] = first->secret[digits / 2] << 4 | digit;
		digits++;
	}
	return digits == HEX_LEN;
}
