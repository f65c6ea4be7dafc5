/*-------------------------------------------------------------------------
 *
 * frame.c
 *		Compressed frames of trail files, as the programs zstd and lz4 write them.
 *
 * Each frame has a checksum of its text, and the reader believes no frame without
 * comparing that.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "trail/layer_internal.h"

#ifdef PAQ_WITH_LZ4
#include <lz4frame.h>
#endif
#ifdef PAQ_WITH_ZSTD
#include <zstd.h>

/*
 * The level of compression: the worker's time is more precious than space, and records
 * are so alike that higher levels gain little.
 */
#define ZSTD_LEVEL			1

/* Largest window of a frame that is read, as a power of two: 8 MB */
#define ZSTD_MAX_WINDOW_LOG	23
#endif

struct PaqFrames
{
	PaqCompression compression;
#ifdef PAQ_WITH_ZSTD
	ZSTD_DStream *zstd;
#endif
#ifdef PAQ_WITH_LZ4
	LZ4F_dctx  *lz4;
#endif
	const char *error;
};

#ifdef PAQ_WITH_ZSTD
static Size
compress_zstd(void **context, char *dst, Size size, const char *data, Size len)
{
	Size		result;

	if (*context == NULL)
	{
		ZSTD_CCtx  *ctx = ZSTD_createCCtx();

		if (ctx == NULL ||
			ZSTD_isError(ZSTD_CCtx_setParameter(ctx, ZSTD_c_compressionLevel, ZSTD_LEVEL)) ||
			ZSTD_isError(ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, 1)))
		{
			ZSTD_freeCCtx(ctx);
			return 0;
		}
		*context = ctx;
	}
	result = ZSTD_compress2(*context, dst, size, data, len);
	return ZSTD_isError(result) ? 0 : result;
}
#endif

#ifdef PAQ_WITH_LZ4
static Size
compress_lz4(char *dst, Size size, const char *data, Size len)
{
	LZ4F_preferences_t preferences = {0};
	Size		result;

	preferences.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
	preferences.frameInfo.contentSize = len;
	preferences.frameInfo.blockSizeID = LZ4F_max1MB;
	result = LZ4F_compressFrame(dst, size, data, len, &preferences);
	return LZ4F_isError(result) ? 0 : result;
}
#endif

/*
 * Make one frame of the data.  *context is NULL at first, and kept by the caller
 * for the next call.  Returns the frame's length, 0 on failure: there is no memory, or dst
 * has less than size bytes.
 */
Size
paq_frame_compress(PaqCompression compression, void **context,
				   char *dst, Size size, const char *data, Size len)
{
#ifdef PAQ_WITH_ZSTD
	if (compression == PAQ_COMPRESSION_ZSTD)
		return compress_zstd(context, dst, size, data, len);
#endif
#ifdef PAQ_WITH_LZ4
	if (compression == PAQ_COMPRESSION_LZ4)
		return compress_lz4(dst, size, data, len);
#endif
	return 0;
}

void
paq_frame_compress_end(PaqCompression compression, void *context)
{
#ifdef PAQ_WITH_ZSTD
	if (compression == PAQ_COMPRESSION_ZSTD)
		ZSTD_freeCCtx(context);
#endif
}

/* NULL if there is no memory, or the build has no such compression. */
PaqFrames *
paq_frames_make(PaqCompression compression)
{
	PaqFrames  *frames = palloc0(sizeof(PaqFrames));

	frames->compression = compression;
#ifdef PAQ_WITH_ZSTD
	if (compression == PAQ_COMPRESSION_ZSTD)
	{
		frames->zstd = ZSTD_createDStream();
		if (frames->zstd != NULL &&
			!ZSTD_isError(ZSTD_DCtx_setParameter(frames->zstd, ZSTD_d_windowLogMax,
												 ZSTD_MAX_WINDOW_LOG)))
			return frames;
	}
#endif
#ifdef PAQ_WITH_LZ4
	if (compression == PAQ_COMPRESSION_LZ4 &&
		!LZ4F_isError(LZ4F_createDecompressionContext(&frames->lz4, LZ4F_VERSION)))
		return frames;
#endif
	paq_frames_free(frames);
	return NULL;
}

/* What is read next is the beginning of a frame. */
void
paq_frames_reset(PaqFrames *frames)
{
#ifdef PAQ_WITH_ZSTD
	if (frames->zstd != NULL)
		(void) ZSTD_DCtx_reset(frames->zstd, ZSTD_reset_session_only);
#endif
#ifdef PAQ_WITH_LZ4
	if (frames->lz4 != NULL)
		LZ4F_resetDecompressionContext(frames->lz4);
#endif
}

void
paq_frames_free(PaqFrames *frames)
{
	if (frames == NULL)
		return;
#ifdef PAQ_WITH_ZSTD
	ZSTD_freeDStream(frames->zstd);
#endif
#ifdef PAQ_WITH_LZ4
	if (frames->lz4 != NULL)
		LZ4F_freeDecompressionContext(frames->lz4);
#endif
	pfree(frames);
}

/*
 * Read on in a frame: *src_len bytes are there, and *dst_len of text have space.
 * These become how many were taken and made.  *frame_ends tells whether the frame ends
 * behind those taken; no more than that is taken.  False if the frame is damaged.
 */
bool
paq_frames_read(PaqFrames *frames, const char *src, Size *src_len,
				char *dst, Size *dst_len, bool *frame_ends)
{
	Size		result = 0;

#ifdef PAQ_WITH_ZSTD
	if (frames->zstd != NULL)
	{
		ZSTD_inBuffer in = {src, *src_len, 0};
		ZSTD_outBuffer out = {dst, *dst_len, 0};

		result = ZSTD_decompressStream(frames->zstd, &out, &in);
		if (ZSTD_isError(result))
		{
			frames->error = ZSTD_getErrorName(result);
			return false;
		}
		*src_len = in.pos;
		*dst_len = out.pos;
	}
#endif
#ifdef PAQ_WITH_LZ4
	if (frames->lz4 != NULL)
	{
		result = LZ4F_decompress(frames->lz4, dst, dst_len, src, src_len, NULL);
		if (LZ4F_isError(result))
		{
			frames->error = LZ4F_getErrorName(result);
			return false;
		}
	}
#endif
	*frame_ends = result == 0;
	return true;
}

/* What was wrong with the last frame */
const char *
paq_frames_error(const PaqFrames *frames)
{
	return frames->error;
}
