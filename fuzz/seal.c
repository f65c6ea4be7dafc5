/*-------------------------------------------------------------------------
 *
 * seal.c
 *		Lines of seals, and verification keys.
 *
 * An input's first byte says which of them it is.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "trail/seal.h"

/* The end of the year 9999: the writer's clock shows years of four digits. */
#define MAX_TIME	INT64CONST(252455616000000000)

/* Written and read again, a seal says the same, and is genuine. */
static void
read_seal(const char *line, Size len)
{
	const uint8 chain[PAQ_SEAL_DIGEST_LEN] = {1};
	PaqSealSecret secret = {.secret = {2}};
	char		again[PAQ_SEAL_LINE_LEN];
	PaqSeal		seal = {0};
	PaqSeal		other = {0};
	bool		genuine;
	bool		follows;
	Size		again_len;

	if (!paq_seal_parse(line, len, &seal))
		return;
	must(memchr(seal.file, '\0', sizeof(seal.file)) != NULL);
	must(strchr(seal.file, '/') == NULL);
	must(paq_seal_kind_name(seal.kind) != NULL);
	must(paq_seal_check(line, len, &seal, &secret, chain, &genuine, &follows));

	if (seal.time < 0 || seal.time > MAX_TIME)
		return;
	secret.epoch = seal.epoch;
	other = seal;
	again_len = paq_seal_write(&other, &secret, chain, again);
	must(again_len > 0 && again_len < sizeof(again) && again[again_len - 1] == '\n');
	must(paq_seal_parse(again, again_len - 1, &other));
	must(paq_seal_check(again, again_len - 1, &other, &secret, chain, &genuine, &follows));
	must(genuine && follows);
	must(other.epoch == seal.epoch && other.kind == seal.kind && other.due == seal.due &&
		 other.from == seal.from && other.to == seal.to && other.first == seal.first &&
		 other.last == seal.last && strcmp(other.file, seal.file) == 0 &&
		 memcmp(other.sha256, seal.sha256, sizeof(seal.sha256)) == 0);
}

static void
read_key(const char *text, Size len)
{
	PaqSealSecret key;
	PaqSealSecret same;
	char		again[128];

	if (!paq_seal_key_parse(text, len, &key))
		return;
	paq_seal_key_text(&key, again, sizeof(again));
	must(paq_seal_key_parse(again, strlen(again), &same));
	must(memcmp(&key, &same, sizeof(key)) == 0);
}

void
fuzz_seal(const char *data, Size len)
{
	char	   *text;

	if (len < 1)
		return;
	text = exact_copy(data + 1, len - 1);
	if (data[0] & 1)
		read_key(text, len - 1);
	else
		read_seal(text, len - 1);
	free(text);
}
