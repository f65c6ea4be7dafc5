/*-------------------------------------------------------------------------
 *
 * block.c
 *		The parts of an encrypted trail file: header, segments, blocks.
 *
 * layer.h has the layout, and what it guarantees.  The functions here work on
 * bytes in memory; none of them knows a file.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "trail/layer_internal.h"

#define BLOCK_MARK		"PAQB"
#define SEGMENT_MARK	"PAQS"
#define MARK_LEN		4

static uint32
get_number(const uint8 *src, int bytes)
{
	uint32		result = 0;

	while (bytes > 0)
		result = result << 8 | src[--bytes];
	return result;
}

static void
put_number(uint8 *dst, int bytes, uint32 number)
{
	for (int i = 0; i < bytes; i++)
		dst[i] = (uint8) (number >> (8 * i));
}

/*
 * What begins at src, PAQ_BLOCK_HEAD_LEN bytes of which are there, and its whole
 * length.
 */
PaqBlockKind
paq_block_kind(const uint8 *src, Size *len)
{
	uint32		data_len = get_number(src + MARK_LEN, 4);

	*len = PAQ_SEGMENT_LEN;
	if (memcmp(src, SEGMENT_MARK, MARK_LEN) == 0)
		return PAQ_BLOCK_SEGMENT;
	if (memcmp(src, BLOCK_MARK, MARK_LEN) != 0 ||
		data_len == 0 || data_len > PAQ_UNIT_MAX)
		return PAQ_BLOCK_UNKNOWN;
	*len = PAQ_BLOCK_HEAD_LEN + data_len + PAQ_TAG_LEN;
	return PAQ_BLOCK_DATA;
}

/* Go behind a block of len bytes without looking at its data. */
void
paq_block_skip(PaqBlockCipher *cipher, const uint8 *src, Size len)
{
	cipher->counter++;
	memcpy(cipher->tag, src + len - PAQ_TAG_LEN, PAQ_TAG_LEN);
}

#ifdef PAQ_WITH_OPENSSL

#include <openssl/evp.h>

#define FILE_MARK		"PAQTRAIL"
#define VERSION			1
#define SALT_LEN		32
#define SEGMENT_SALT_LEN	16
#define NONCE_LEN		12

/* Where the parts of a header are, in bytes from its start */
#define AT_VERSION		8
#define AT_CIPHER		9
#define AT_NAME_LEN		10
#define AT_KEY_ID		12
#define AT_SALT			20

#define FILE_INFO		"pg_audit_queue file"
#define SEGMENT_INFO	"pg_audit_queue segment"
#define BODY_INFO		"pg_audit_queue block"

StaticAssertDecl(AT_SALT + SALT_LEN == PAQ_HEADER_MIN, "layout of a header");
StaticAssertDecl(MARK_LEN + SEGMENT_SALT_LEN + PAQ_TAG_LEN == PAQ_SEGMENT_LEN,
				 "layout of a segment");

static const EVP_CIPHER *
evp_cipher(PaqEncryption encryption)
{
	return encryption == PAQ_ENCRYPTION_AES_128_GCM ?
		EVP_aes_128_gcm() : EVP_aes_256_gcm();
}

/*
 * Encrypt or decrypt len bytes with the segment's key and the next nonce; the tag
 * comes from or goes to *tag.  The aads are authenticated with them.
 */
static bool
run_gcm(PaqBlockCipher *cipher, bool encrypt, uint8 *dst, const uint8 *src, Size len,
		const uint8 *const *aads, const Size *aad_lens, int naads, uint8 *tag)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	uint8		nonce[NONCE_LEN] = {0};
	int			n;
	bool		ok;

	for (int i = 0; i < 8; i++)
		nonce[NONCE_LEN - 1 - i] = (uint8) (cipher->counter >> (8 * i));
	ok = ctx != NULL &&
		EVP_CipherInit_ex(ctx, evp_cipher(cipher->encryption), NULL,
						  cipher->segment->key, nonce, encrypt) == 1;
	for (int i = 0; ok && i < naads; i++)
		ok = EVP_CipherUpdate(ctx, NULL, &n, aads[i], aad_lens[i]) == 1;
	if (ok && len > 0)
		ok = EVP_CipherUpdate(ctx, dst, &n, src, len) == 1;
	if (ok && !encrypt)
		ok = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, PAQ_TAG_LEN, tag) == 1;
	if (ok)
		ok = EVP_CipherFinal_ex(ctx, dst, &n) == 1;
	if (ok && encrypt)
		ok = EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, PAQ_TAG_LEN, tag) == 1;
	EVP_CIPHER_CTX_free(ctx);
	cipher->counter++;
	return ok;
}

void
paq_block_forget(PaqBlockCipher *cipher)
{
	paq_secret_free(cipher->file);
	paq_secret_free(cipher->segment);
	memset(cipher, 0, sizeof(*cipher));
}

/* Derive the key of the file whose header is there. */
static bool
derive_file_key(PaqBlockCipher *cipher, const PaqSecret *key)
{
	uint8		info[sizeof(FILE_INFO) + 1 + PAQ_LAYER_NAME_MAX];
	const Size	name_len = cipher->header_len - PAQ_HEADER_MIN;

	memcpy(info, FILE_INFO, sizeof(FILE_INFO));
	info[sizeof(FILE_INFO)] = cipher->header[AT_CIPHER];
	memcpy(info + sizeof(FILE_INFO) + 1, cipher->header + PAQ_HEADER_MIN, name_len);
	cipher->file = paq_secret_alloc();
	cipher->segment = paq_secret_alloc();
	return cipher->file != NULL && cipher->segment != NULL &&
		paq_derive(cipher->file, paq_key_len(cipher->encryption), key,
				   cipher->header + AT_SALT, SALT_LEN,
				   info, sizeof(FILE_INFO) + 1 + name_len);
}

/* Make a header for a file of that name, and its key.  cipher is all zeros. */
bool
paq_block_new_file(PaqBlockCipher *cipher, PaqEncryption encryption,
				   const char *name, const PaqKeys *keys, char *error)
{
	const Size	name_len = strlen(name);
	char		id[PAQ_KEY_ID_TEXT_LEN];
	uint8	   *header = cipher->header;

	if (!paq_keys_check(keys, encryption, id, error))
		return false;
	if (name_len > PAQ_LAYER_NAME_MAX)
	{
		strlcpy(error, "the file's name is too long", PAQ_LAYER_ERROR_LEN);
		return false;
	}
	cipher->encryption = encryption;
	cipher->header_len = PAQ_HEADER_MIN + name_len;
	memcpy(header, FILE_MARK, AT_VERSION);
	header[AT_VERSION] = VERSION;
	header[AT_CIPHER] = encryption;
	put_number(header + AT_NAME_LEN, 2, name_len);
	memcpy(header + PAQ_HEADER_MIN, name, name_len);
	if (paq_key_id(paq_keys_first(keys), header + AT_KEY_ID) &&
		paq_random_bytes(header + AT_SALT, SALT_LEN) &&
		derive_file_key(cipher, paq_keys_first(keys)))
		return true;
	strlcpy(error, "OpenSSL could not make the key of a file", PAQ_LAYER_ERROR_LEN);
	return false;
}

/* Length of the header that begins at data, of which len bytes are there; 0 if none does. */
Size
paq_block_header_len(const uint8 *data, Size len)
{
	Size		name_len;

	if (len < PAQ_HEADER_MIN || memcmp(data, FILE_MARK, AT_VERSION) != 0)
		return 0;
	name_len = get_number(data + AT_NAME_LEN, 2);
	return name_len <= PAQ_LAYER_NAME_MAX && PAQ_HEADER_MIN + name_len <= len ?
		PAQ_HEADER_MIN + name_len : 0;
}

bool
paq_layer_is_encrypted(const char *data, Size len)
{
	return paq_block_header_len((const uint8 *) data, len) > 0;
}

/*
 * Take over the header of the file called name, the first len bytes of which are
 * at data, and derive its key.  cipher is all zeros.  On failure *damaged tells
 * whether that is because of what is in the file.
 */
bool
paq_block_open_file(PaqBlockCipher *cipher, const uint8 *data, Size len,
					const char *name, const PaqKeys *keys, bool *damaged, char *error)
{
	const Size	header_len = paq_block_header_len(data, len);
	const PaqSecret *key;
	char		id[PAQ_KEY_ID_TEXT_LEN];
	char		shown[PAQ_SHOWN_NAME_LEN];

	*damaged = true;
	if (header_len == 0)
	{
		strlcpy(error, "it does not begin as an encrypted file does", PAQ_LAYER_ERROR_LEN);
		return false;
	}
	if (data[AT_VERSION] != VERSION ||
		(data[AT_CIPHER] != PAQ_ENCRYPTION_AES_128_GCM &&
		 data[AT_CIPHER] != PAQ_ENCRYPTION_AES_256_GCM))
	{
		strlcpy(error, "its version or cipher is unknown", PAQ_LAYER_ERROR_LEN);
		return false;
	}
	if (header_len - PAQ_HEADER_MIN != strlen(name) ||
		memcmp(data + PAQ_HEADER_MIN, name, strlen(name)) != 0)
	{
		/* which nothing authenticates */
		paq_show_name(shown, sizeof(shown), (const char *) data + PAQ_HEADER_MIN,
					  header_len - PAQ_HEADER_MIN);
		snprintf(error, PAQ_LAYER_ERROR_LEN, "it was written with the name \"%s\"", shown);
		return false;
	}
	*damaged = false;
	paq_key_id_text(data + AT_KEY_ID, id);
	key = keys != NULL ? paq_keys_find(keys, data + AT_KEY_ID) : NULL;
	if (key == NULL || key->len != paq_key_len(data[AT_CIPHER]))
	{
		snprintf(error, PAQ_LAYER_ERROR_LEN, keys != NULL ?
				 "it is encrypted with the key %s, which is none of the given ones" :
				 "it is encrypted with the key %s, and no key was given", id);
		return false;
	}
	cipher->encryption = data[AT_CIPHER];
	cipher->header_len = header_len;
	memcpy(cipher->header, data, header_len);
	if (derive_file_key(cipher, key))
		return true;
	strlcpy(error, "OpenSSL could not derive the key of the file", PAQ_LAYER_ERROR_LEN);
	return false;
}

/* Is the file one that would be made with this cipher and these keys? */
bool
paq_block_is_current(const PaqBlockCipher *cipher, PaqEncryption encryption,
					 const PaqKeys *keys)
{
	uint8		id[PAQ_KEY_ID_LEN];

	return cipher->encryption == encryption &&
		paq_key_id(paq_keys_first(keys), id) &&
		memcmp(cipher->header + AT_KEY_ID, id, PAQ_KEY_ID_LEN) == 0;
}

/* Make or check the tag of the segment whose bytes are there, and its key. */
static bool
run_segment(PaqBlockCipher *cipher, bool encrypt, const uint8 *segment, uint8 *tag)
{
	const uint8 *const aads[] = {segment, cipher->header, cipher->tag};
	const Size	lens[] = {MARK_LEN + SEGMENT_SALT_LEN, cipher->header_len, PAQ_TAG_LEN};

	cipher->counter = 0;
	return paq_derive(cipher->segment, cipher->file->len, cipher->file,
					  segment + MARK_LEN, SEGMENT_SALT_LEN,
					  SEGMENT_INFO, strlen(SEGMENT_INFO)) &&
		run_gcm(cipher, encrypt, tag, NULL, 0, aads, lens, lengthof(aads), tag);
}

/* Begin a segment, of which PAQ_SEGMENT_LEN bytes go to dst. */
bool
paq_block_new_segment(PaqBlockCipher *cipher, uint8 *dst)
{
	uint8	   *tag = dst + MARK_LEN + SEGMENT_SALT_LEN;

	memcpy(dst, SEGMENT_MARK, MARK_LEN);
	if (!paq_random_bytes(dst + MARK_LEN, SEGMENT_SALT_LEN) ||
		!run_segment(cipher, true, dst, tag))
		return false;
	memcpy(cipher->tag, tag, PAQ_TAG_LEN);
	return true;
}

/* A segment of PAQ_SEGMENT_LEN bytes begins at src; false if it is not genuine. */
bool
paq_block_open_segment(PaqBlockCipher *cipher, const uint8 *src)
{
	uint8		tag[PAQ_TAG_LEN];

	memcpy(tag, src + MARK_LEN + SEGMENT_SALT_LEN, PAQ_TAG_LEN);
	if (!run_segment(cipher, false, src, tag))
		return false;
	memcpy(cipher->tag, tag, PAQ_TAG_LEN);
	return true;
}

/* Make a block at dst of len bytes of data, which may be where they will be there. */
bool
paq_block_encrypt(PaqBlockCipher *cipher, uint8 *dst, const char *data, Size len)
{
	uint8	   *text = dst + PAQ_BLOCK_HEAD_LEN;
	const uint8 *const aads[] = {dst};
	const Size	lens[] = {PAQ_BLOCK_HEAD_LEN};

	memcpy(dst, BLOCK_MARK, MARK_LEN);
	put_number(dst + MARK_LEN, 4, len);
	if (!run_gcm(cipher, true, text, (const uint8 *) data, len, aads, lens, 1, text + len))
		return false;
	memcpy(cipher->tag, text + len, PAQ_TAG_LEN);
	return true;
}

/* The data of the whole block at src; false if it is not genuine. */
bool
paq_block_decrypt(PaqBlockCipher *cipher, const uint8 *src, char *data)
{
	const Size	len = get_number(src + MARK_LEN, 4);
	const uint8 *const aads[] = {src};
	const Size	lens[] = {PAQ_BLOCK_HEAD_LEN};
	uint8		tag[PAQ_TAG_LEN];

	memcpy(tag, src + PAQ_BLOCK_HEAD_LEN + len, PAQ_TAG_LEN);
	if (!run_gcm(cipher, false, (uint8 *) data, src + PAQ_BLOCK_HEAD_LEN, len,
				 aads, lens, 1, tag))
		return false;
	memcpy(cipher->tag, tag, PAQ_TAG_LEN);
	return true;
}

/*
 * Make the key of a trail file of blocks; dst gets the id of the user's key and the file's
 * salt.  cipher is all zeros.
 */
bool
paq_body_new_file(PaqBlockCipher *cipher, PaqEncryption encryption, const char *name,
				  const PaqKeys *keys, uint8 *dst, char *error)
{
	if (!paq_block_new_file(cipher, encryption, name, keys, error))
		return false;
	memcpy(dst, cipher->header + AT_KEY_ID, PAQ_KEY_ID_LEN + SALT_LEN);
	return true;
}

/* Derive the key of the file that has them at src; see paq_block_open_file(). */
bool
paq_body_open_file(PaqBlockCipher *cipher, PaqEncryption encryption, const char *name,
				   const PaqKeys *keys, const uint8 *src, bool *damaged, char *error)
{
	uint8		header[PAQ_HEADER_MAX];
	const Size	name_len = strlen(name);

	memcpy(header, FILE_MARK, AT_VERSION);
	header[AT_VERSION] = VERSION;
	header[AT_CIPHER] = encryption;
	put_number(header + AT_NAME_LEN, 2, name_len);
	memcpy(header + AT_KEY_ID, src, PAQ_KEY_ID_LEN + SALT_LEN);
	memcpy(header + PAQ_HEADER_MIN, name, name_len);
	return paq_block_open_file(cipher, header, PAQ_HEADER_MIN + name_len, name, keys,
							   damaged, error);
}

static bool
derive_body_key(PaqBlockCipher *cipher, const uint8 *salt)
{
	cipher->counter = 0;
	return paq_derive(cipher->segment, cipher->file->len, cipher->file,
					  salt, SEGMENT_SALT_LEN, BODY_INFO, strlen(BODY_INFO));
}

/* Make an encrypted body at dst of len bytes of data; the aad is authenticated with it. */
bool
paq_body_encrypt(PaqBlockCipher *cipher, uint8 *dst, const char *data, Size len,
				 const uint8 *aad, Size aad_len)
{
	uint8	   *text = dst + SEGMENT_SALT_LEN;

	return paq_random_bytes(dst, SEGMENT_SALT_LEN) &&
		derive_body_key(cipher, dst) &&
		run_gcm(cipher, true, text, (const uint8 *) data, len, &aad, &aad_len, 1, text + len);
}

/* The data of the body of len bytes at src, which has 32 bytes less; false if it is not genuine. */
bool
paq_body_decrypt(PaqBlockCipher *cipher, char *data, const uint8 *src, Size len,
				 const uint8 *aad, Size aad_len)
{
	const Size	data_len = len - SEGMENT_SALT_LEN - PAQ_TAG_LEN;
	uint8		tag[PAQ_TAG_LEN];

	memcpy(tag, src + len - PAQ_TAG_LEN, PAQ_TAG_LEN);
	return derive_body_key(cipher, src) &&
		run_gcm(cipher, false, (uint8 *) data, src + SEGMENT_SALT_LEN, data_len,
				&aad, &aad_len, 1, tag);
}

#else							/* !PAQ_WITH_OPENSSL */

bool
paq_body_new_file(PaqBlockCipher *cipher, PaqEncryption encryption, const char *name,
				  const PaqKeys *keys, uint8 *dst, char *error)
{
	return paq_block_new_file(cipher, encryption, name, keys, error);
}

bool
paq_body_open_file(PaqBlockCipher *cipher, PaqEncryption encryption, const char *name,
				   const PaqKeys *keys, const uint8 *src, bool *damaged, char *error)
{
	return paq_block_open_file(cipher, src, 0, name, keys, damaged, error);
}

bool
paq_body_encrypt(PaqBlockCipher *cipher, uint8 *dst, const char *data, Size len,
				 const uint8 *aad, Size aad_len)
{
	return false;
}

bool
paq_body_decrypt(PaqBlockCipher *cipher, char *data, const uint8 *src, Size len,
				 const uint8 *aad, Size aad_len)
{
	return false;
}

bool
paq_block_new_file(PaqBlockCipher *cipher, PaqEncryption encryption,
				   const char *name, const PaqKeys *keys, char *error)
{
	strlcpy(error, "this build has no OpenSSL", PAQ_LAYER_ERROR_LEN);
	return false;
}

bool
paq_block_open_file(PaqBlockCipher *cipher, const uint8 *data, Size len,
					const char *name, const PaqKeys *keys, bool *damaged, char *error)
{
	*damaged = false;
	strlcpy(error, "this build has no OpenSSL", PAQ_LAYER_ERROR_LEN);
	return false;
}

bool
paq_block_is_current(const PaqBlockCipher *cipher, PaqEncryption encryption,
					 const PaqKeys *keys)
{
	return false;
}

Size
paq_block_header_len(const uint8 *data, Size len)
{
	return 0;
}

bool
paq_layer_is_encrypted(const char *data, Size len)
{
	return false;
}

bool
paq_block_new_segment(PaqBlockCipher *cipher, uint8 *dst)
{
	return false;
}

bool
paq_block_open_segment(PaqBlockCipher *cipher, const uint8 *src)
{
	return false;
}

bool
paq_block_encrypt(PaqBlockCipher *cipher, uint8 *dst, const char *data, Size len)
{
	return false;
}

bool
paq_block_decrypt(PaqBlockCipher *cipher, const uint8 *src, char *data)
{
	return false;
}

void
paq_block_forget(PaqBlockCipher *cipher)
{
}

#endif
