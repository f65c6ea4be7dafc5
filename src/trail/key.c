/*-------------------------------------------------------------------------
 *
 * key.c
 *		Keys of encrypted trail files: as users give them, and derived ones.
 *
 * Guarantees: no message has any of a key, and no key stays in memory once it was
 * freed.  Keys are in memory of OpenSSL's secure heap, which is locked, and left out of
 * core dumps, as far as the system allows that.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "trail/hex.h"
#include "trail/layer_internal.h"

#ifdef PAQ_WITH_OPENSSL
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/rand.h>

/* Of the secure heap, in bytes; both are powers of two */
#define SECURE_HEAP_SIZE	(64 * 1024)
#define SECURE_HEAP_MIN		32

#define KEY_ID_INFO		"pg_audit_queue key id"

struct PaqKeys
{
	int			count;
	int			size;			/* of keys[] */
	PaqSecret **keys;
};

/* NULL if there is no memory. */
PaqSecret *
paq_secret_alloc(void)
{
	if (!CRYPTO_secure_malloc_initialized())
		(void) CRYPTO_secure_malloc_init(SECURE_HEAP_SIZE, SECURE_HEAP_MIN);
	return OPENSSL_secure_zalloc(sizeof(PaqSecret));
}

void
paq_secret_free(PaqSecret *secret)
{
	OPENSSL_secure_clear_free(secret, sizeof(PaqSecret));
}

void
paq_forget_secret(void *data, Size len)
{
	OPENSSL_cleanse(data, len);
}

bool
paq_random_bytes(uint8 *dst, Size len)
{
	return RAND_bytes(dst, len) == 1;
}

/* HKDF with SHA-256; *dst may be where the key comes from. */
bool
paq_derive(PaqSecret *dst, Size len, const PaqSecret *from,
		   const uint8 *salt, Size salt_len, const void *info, Size info_len)
{
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, NULL);
	bool		ok = ctx != NULL && EVP_PKEY_derive_init(ctx) > 0 &&
		EVP_PKEY_CTX_set_hkdf_md(ctx, EVP_sha256()) > 0 &&
		EVP_PKEY_CTX_set1_hkdf_salt(ctx, salt, salt_len) > 0 &&
		EVP_PKEY_CTX_set1_hkdf_key(ctx, from->key, from->len) > 0 &&
		EVP_PKEY_CTX_add1_hkdf_info(ctx, info, info_len) > 0 &&
		EVP_PKEY_derive(ctx, dst->key, &len) > 0;

	dst->len = len;
	EVP_PKEY_CTX_free(ctx);
	return ok;
}

Size
paq_key_len(PaqEncryption encryption)
{
	return encryption == PAQ_ENCRYPTION_AES_128_GCM ? 16 : 32;
}

/* What tells a key from others without telling anything of it */
bool
paq_key_id(const PaqSecret *key, uint8 id[PAQ_KEY_ID_LEN])
{
	PaqSecret  *derived = paq_secret_alloc();
	bool		ok = derived != NULL &&
		paq_derive(derived, PAQ_KEY_ID_LEN, key, (const uint8 *) "", 0,
				   KEY_ID_INFO, strlen(KEY_ID_INFO));

	if (ok)
		memcpy(id, derived->key, PAQ_KEY_ID_LEN);
	paq_secret_free(derived);
	return ok;
}

const PaqSecret *
paq_keys_first(const PaqKeys *keys)
{
	return keys->keys[0];
}

/* The key with that id; NULL if it is none of these */
const PaqSecret *
paq_keys_find(const PaqKeys *keys, const uint8 *id)
{
	for (int i = 0; i < keys->count; i++)
	{
		uint8		key_id[PAQ_KEY_ID_LEN];

		if (paq_key_id(keys->keys[i], key_id) &&
			memcmp(key_id, id, PAQ_KEY_ID_LEN) == 0)
			return keys->keys[i];
	}
	return NULL;
}

/* A key in hexadecimal digits, to *dst */
static bool
parse_key(PaqSecret *dst, const char *text, Size len)
{
	if (len != 2 * paq_key_len(PAQ_ENCRYPTION_AES_128_GCM) &&
		len != 2 * paq_key_len(PAQ_ENCRYPTION_AES_256_GCM))
		return false;
	for (Size i = 0; i < len; i++)
	{
		int			digit = paq_hex_digit(text[i]);

		if (digit < 0)
			return false;
		dst->key[i / 2] = dst->key[i / 2] << 4 | digit;
	}
	dst->len = len / 2;
	return true;
}

/* Add the key of a line. */
static bool
add_key(PaqKeys *keys, const char *line, Size len)
{
	PaqSecret  *key = paq_secret_alloc();

	if (key == NULL || !parse_key(key, line, len))
	{
		paq_secret_free(key);
		return false;
	}
	if (keys->count == keys->size)
	{
		keys->size *= 2;
		keys->keys = repalloc(keys->keys, keys->size * sizeof(PaqSecret *));
	}
	keys->keys[keys->count++] = key;
	return true;
}

PaqKeys *
paq_keys_parse(const char *text, Size len, char *error)
{
	const char *end = text + len;
	PaqKeys    *keys = palloc0(sizeof(PaqKeys));
	int			number = 1;

	keys->size = 4;
	keys->keys = palloc(keys->size * sizeof(PaqSecret *));
	for (const char *line = text; line < end; number++)
	{
		const char *newline = memchr(line, '\n', end - line);
		const char *stop = newline != NULL ? newline : end;

		while (line < stop && isspace((unsigned char) *line))
			line++;
		while (line < stop && isspace((unsigned char) stop[-1]))
			stop--;
		if (line < stop && *line != '#' && !add_key(keys, line, stop - line))
		{
			snprintf(error, PAQ_LAYER_ERROR_LEN,
					 "line %d is no key of 32 or 64 hexadecimal digits", number);
			paq_keys_free(keys);
			return NULL;
		}
		line = newline != NULL ? newline + 1 : end;
	}
	if (keys->count > 0)
		return keys;
	strlcpy(error, "there is no key", PAQ_LAYER_ERROR_LEN);
	paq_keys_free(keys);
	return NULL;
}

void
paq_keys_free(PaqKeys *keys)
{
	if (keys == NULL)
		return;
	for (int i = 0; i < keys->count; i++)
		paq_secret_free(keys->keys[i]);
	pfree(keys->keys);
	pfree(keys);
}

bool
paq_keys_check(const PaqKeys *keys, PaqEncryption encryption,
			   char id[PAQ_KEY_ID_TEXT_LEN], char *error)
{
	uint8		bytes[PAQ_KEY_ID_LEN];

	if (keys->keys[0]->len != paq_key_len(encryption))
	{
		snprintf(error, PAQ_LAYER_ERROR_LEN,
				 "the key has %d hexadecimal digits, but the cipher needs %d",
				 (int) keys->keys[0]->len * 2, (int) paq_key_len(encryption) * 2);
		return false;
	}
	if (!paq_key_id(keys->keys[0], bytes))
	{
		strlcpy(error, "OpenSSL could not derive a key", PAQ_LAYER_ERROR_LEN);
		return false;
	}
	paq_key_id_text(bytes, id);
	return true;
}

#else							/* !PAQ_WITH_OPENSSL */

static const char no_openssl[] = "this build has no OpenSSL";

void
paq_forget_secret(void *data, Size len)
{
	memset(data, 0, len);
}

PaqKeys *
paq_keys_parse(const char *text, Size len, char *error)
{
	strlcpy(error, no_openssl, PAQ_LAYER_ERROR_LEN);
	return NULL;
}

void
paq_keys_free(PaqKeys *keys)
{
}

bool
paq_keys_check(const PaqKeys *keys, PaqEncryption encryption,
			   char id[PAQ_KEY_ID_TEXT_LEN], char *error)
{
	strlcpy(error, no_openssl, PAQ_LAYER_ERROR_LEN);
	return false;
}

#endif

void
paq_key_id_text(const uint8 *id, char text[PAQ_KEY_ID_TEXT_LEN])
{
	for (int i = 0; i < PAQ_KEY_ID_LEN; i++)
		snprintf(text + 2 * i, 3, "%02x", id[i]);
}
