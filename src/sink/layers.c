/*-------------------------------------------------------------------------
 *
 * layers.c
 *		The layers of the trail file that is open, and its key.
 *
 * A file has the layers and the key that the settings asked for when it was made.
 * If they ask for others, it is followed by a new one.  The key is asked for when a
 * file is made or gone on with, and at each reload, to see whether it is another one.
 * Between that, nobody has it but the file's writer, who has only what he derived.
 *
 * Guarantees: nothing is written without a layer that the settings ask for.  While
 * there is no key, the trail stands still, but for a file whose key is known.
 *
 * Files that are to be loaded into the table have no layers.
 *
 * Functions that return false have noted the reason for paq_sink_error().
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "fault.h"
#include "file_util.h"
#include "guc.h"
#include "sink/key_command.h"
#include "sink/sink_internal.h"
#include "stats.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* What the settings ask for now */
PaqLayers
paq_trail_layers(void)
{
	const bool	table = paq_sink == PAQ_SINK_TABLE;

	return (PaqLayers){
		.compression = table ? PAQ_COMPRESSION_NONE : paq_log_compression,
		.encryption = table ? PAQ_ENCRYPTION_NONE : paq_log_encryption
	};
}

bool
paq_trail_is_layered(const PaqLayers *layers)
{
	return layers->compression != PAQ_COMPRESSION_NONE ||
		layers->encryption != PAQ_ENCRYPTION_NONE;
}

static bool
is_encrypted(const PaqLayers *layers)
{
	return layers->encryption != PAQ_ENCRYPTION_NONE;
}

/*
 * The keys that a new file needs, to be freed by the caller; NULL if the settings ask
 * for no encryption.
 */
bool
paq_trail_keys(PaqKeys **keys)
{
	const PaqLayers wanted = paq_trail_layers();
	char		error[PAQ_LAYER_ERROR_LEN];
	char		id[PAQ_KEY_ID_TEXT_LEN];

	*keys = NULL;
	if (!is_encrypted(&wanted))
		return true;
	*keys = paq_run_key_command(error);
	if (*keys == NULL)
	{
		paq_sink_set_error("%s", error);
		return false;
	}
	if (paq_keys_check(*keys, wanted.encryption, id, error))
		return true;
	paq_sink_set_error("what \"%s\" prints cannot be used: %s",
					   "pg_audit_queue.log_encryption_key_command", error);
	paq_keys_free(*keys);
	*keys = NULL;
	return false;
}

/*
 * A writer for a new file at path, with what paq_trail_keys() has returned; NULL if it
 * has no layers.
 */
bool
paq_trail_new_writer(const char *path, const PaqKeys *keys, PaqLayerWriter **writer)
{
	const PaqLayers wanted = paq_trail_layers();
	MemoryContext old_context;
	char		error[PAQ_LAYER_ERROR_LEN];

	*writer = NULL;
	if (!paq_trail_is_layered(&wanted))
		return true;
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	*writer = paq_layer_writer_make(&wanted, paq_trail_name_of(path), keys, error);
	MemoryContextSwitchTo(old_context);
	if (*writer == NULL)
		paq_sink_set_error("could not begin file \"%s\": %s", path, error);
	return *writer != NULL;
}

/* The same for the current file, which has text already */
static bool
resume_writer(const PaqKeys *keys, PaqLayerWriter **writer)
{
	const PaqLayers wanted = paq_trail_layers();
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);
	char		error[PAQ_LAYER_ERROR_LEN] = "";
	bool		fits;

	*writer = paq_layer_writer_resume(&wanted, paq_trail_name_of(paq_trail.path), keys,
									  paq_trail.fd, &fits, error);
	MemoryContextSwitchTo(old_context);
	if (*writer == NULL && !fits)
		ereport(LOG,
				(errmsg("audit trail file \"%s\" has another key, or cannot be gone on with; starting a new one",
						paq_trail.path),
				 error[0] != '\0' ? errdetail_internal("%s", error) : 0));
	else if (*writer == NULL)
		paq_sink_set_error("could not go on with file \"%s\": %s", paq_trail.path, error);
	return *writer != NULL;
}

/* Write to the current file through that writer, which has the first of the keys. */
void
paq_trail_use_writer(PaqLayerWriter *writer, const PaqKeys *keys)
{
	char		error[PAQ_LAYER_ERROR_LEN];

	paq_trail.layers = paq_trail_layers();
	paq_trail.writer = writer;
	paq_trail.other_key = keys != NULL &&
		!paq_keys_check(keys, paq_trail.layers.encryption, paq_trail.key_id, error);
	paq_trail.key_checked = PgReloadTime;
}

/* Has the current file the layers that the settings ask for, by its name? */
static bool
looks_fit(void)
{
	const PaqLayers wanted = paq_trail_layers();

	return paq_trail.layers.compression == wanted.compression &&
		is_encrypted(&paq_trail.layers) == is_encrypted(&wanted);
}

/* Is the key that the settings name still the current file's? */
static void
check_key(void)
{
	char		error[PAQ_LAYER_ERROR_LEN];
	char		id[PAQ_KEY_ID_TEXT_LEN];
	PaqKeys    *keys;

	if (paq_trail_keys(&keys))
		paq_trail.other_key =
			!paq_keys_check(keys, paq_trail.layers.encryption, id, error) ||
			strcmp(id, paq_trail.key_id) != 0;
	else
		ereport(WARNING,
				(errmsg("could not see whether the key of the audit trail has changed: %s",
						paq_sink_error()),
				 errdetail("The current file is written to with the key that it has.")));
	paq_keys_free(keys);
	paq_trail.key_checked = PgReloadTime;
}

/*
 * See to it that the current file can be written to, if it has the layers that the
 * settings ask for: an earlier worker's has no writer yet, and after a reload there may
 * be another key.  If it cannot, paq_trail_layers_fit() will say so.
 */
void
paq_trail_check_layers(void)
{
	PaqLayerWriter *writer;
	PaqKeys    *keys;

	if (paq_trail.fd < 0 || paq_trail.gone ||
		!paq_trail_is_layered(&paq_trail.layers) || !looks_fit())
		return;
	if (paq_trail.writer == NULL)
	{
		if (!paq_trail_keys(&keys))
			return;
		if (paq_trail.offset == 0 ?
			paq_trail_new_writer(paq_trail.path, keys, &writer) :
			resume_writer(keys, &writer))
			paq_trail_use_writer(writer, keys);
		paq_keys_free(keys);
	}
	else if (is_encrypted(&paq_trail.layers) && paq_trail.key_checked != PgReloadTime)
		check_key();
}

/* May text be written to the current file, as far as its layers are concerned? */
bool
paq_trail_layers_fit(void)
{
	const PaqLayers wanted = paq_trail_layers();

	return looks_fit() && (!paq_trail_is_layered(&wanted) ||
						   (paq_trail.writer != NULL && !paq_trail.other_key &&
							paq_trail.layers.encryption == wanted.encryption));
}

/*
 * Bytes of the file that so much text becomes, roughly; 0 if it is compressed, as it may
 * become any number.  Then a file grows beyond its size by a batch at most.
 */
Size
paq_trail_size_of_text(Size len)
{
	return paq_trail.layers.compression == PAQ_COMPRESSION_NONE ? len : 0;
}

/* Append to what was written, as it is. */
bool
paq_trail_write(const char *data, Size len)
{
	int			fault = PAQ_FAULT("trail-write");
	Size		done = 0;

	if (fault == 0)
		done = paq_write_all(paq_trail.fd, data, len, PAQ_AT_END);
	else
		errno = fault;
	if (done < len)
		paq_sink_set_error("could not write to file \"%s\": %m", paq_trail.path);
	paq_seal_written(paq_trail.written, data, done);
	paq_trail.written += done;
	paq_stats_add(&paq_stats->worker.written, done);
	return done == len;
}

/* Append text to what was written, through the layers. */
bool
paq_trail_write_text(const char *text, Size len)
{
	char		error[PAQ_LAYER_ERROR_LEN];
	const char *out;
	Size		out_len;

	if (paq_trail.writer == NULL || len == 0)
		return paq_trail_write(text, len);
	if (!paq_layer_write(paq_trail.writer, paq_trail.fd, paq_trail.written,
						 text, len, &out, &out_len, error))
	{
		paq_sink_set_error("could not write to file \"%s\": %s", paq_trail.path, error);
		return false;
	}
	return paq_trail_write(out, out_len);
}

/*
 * Read the first text of the file called name, at most size bytes.  -1, with errno, on
 * failure; 0 if there is none.  *encrypted: there is some, for those who have the key,
 * which is looked for in keys, unless that is NULL.
 */
ssize_t
paq_trail_read_head(int fd, const char *name, const PaqKeys *keys, char *head, Size size,
					bool *encrypted)
{
	PaqLayers	layers;
	PaqLayerReader *reader;
	const char *text;
	ssize_t		len = pread(fd, head, size, 0);
	Size		text_len;

	(void) paq_layers_of_name(name, &layers);
	*encrypted = is_encrypted(&layers) && len > 0 && paq_layer_is_encrypted(head, len);
	if (len < 0 || !paq_trail_is_layered(&layers))
		return len;
	if (is_encrypted(&layers) && keys == NULL)
		return 0;
	reader = paq_layer_reader_make(fd, name, keys);
	len = 0;
	if (paq_layer_read(reader, &text, &text_len) == PAQ_LAYER_TEXT)
	{
		len = Min(size, text_len);
		memcpy(head, text, len);
	}
	paq_layer_reader_free(reader);
	return len;
}

/* The current file is being closed. */
void
paq_trail_close_writer(void)
{
	paq_layer_writer_free(paq_trail.writer);
	paq_trail.writer = NULL;
	paq_trail.other_key = false;
	paq_trail.key_id[0] = '\0';
}
