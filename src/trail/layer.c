/*-------------------------------------------------------------------------
 *
 * layer.c
 *		Names of trail files: the layers that they say there are; how they are shown.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "trail/layer_internal.h"

#define ENCRYPTED	".enc"

static const char *const endings[] = {
	[PAQ_COMPRESSION_NONE] = "",
	[PAQ_COMPRESSION_LZ4] = ".lz4",
	[PAQ_COMPRESSION_ZSTD] = ".zst"
};

static const char *const encrypted_endings[] = {
	[PAQ_COMPRESSION_NONE] = ENCRYPTED,
	[PAQ_COMPRESSION_LZ4] = ".lz4" ENCRYPTED,
	[PAQ_COMPRESSION_ZSTD] = ".zst" ENCRYPTED
};

static bool
ends_in(const char *name, Size len, const char *ending)
{
	const Size	ending_len = strlen(ending);

	return len > ending_len &&
		memcmp(name + len - ending_len, ending, ending_len) == 0;
}

Size
paq_layers_of_name(const char *name, PaqLayers *layers)
{
	Size		len = strlen(name);

	layers->encryption = PAQ_ENCRYPTION_NONE;
	layers->compression = PAQ_COMPRESSION_NONE;
	if (ends_in(name, len, ENCRYPTED))
	{
		layers->encryption = PAQ_ENCRYPTION_AES_256_GCM;
		len -= strlen(ENCRYPTED);
	}
	for (int i = PAQ_COMPRESSION_NONE + 1; i < lengthof(endings); i++)
		if (ends_in(name, len, endings[i]))
		{
			layers->compression = i;
			return len - strlen(endings[i]);
		}
	return len;
}

const char *
paq_layers_ending(const PaqLayers *layers)
{
	return layers->encryption == PAQ_ENCRYPTION_NONE ?
		endings[layers->compression] : encrypted_endings[layers->compression];
}

const char *
paq_layers_missing(const PaqLayers *layers)
{
#ifndef PAQ_WITH_ZSTD
	if (layers->compression == PAQ_COMPRESSION_ZSTD)
		return "libzstd";
#endif
#ifndef PAQ_WITH_LZ4
	if (layers->compression == PAQ_COMPRESSION_LZ4)
		return "liblz4";
#endif
#ifndef PAQ_WITH_OPENSSL
	if (layers->encryption != PAQ_ENCRYPTION_NONE)
		return "OpenSSL";
#endif
	return NULL;
}

void
paq_show_name(char *dst, Size size, const char *name, Size len)
{
	Size		used = 0;

	for (Size i = 0; i < len && used + 4 < size; i++)
	{
		const unsigned char c = name[i];

		if (c >= 0x20 && c < 0x7f)
			dst[used++] = c;
		else
			used += snprintf(dst + used, size - used, "\\x%02x", c);
	}
	dst[used] = '\0';
}
