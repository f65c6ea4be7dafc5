/*-------------------------------------------------------------------------
 *
 * consumers.c
 *		The consumers of the trail, for SQL: audit_consumer_create(),
 *		audit_consumer_drop(), and the view audit_consumers.
 *
 * A consumer is a file in log_directory (trail/place.h).  Sessions make and remove it;
 * in between, whoever ships the trail for the consumer writes to it, and the worker reads
 * it, to see which files of the trail have to stay.  What a session does to a consumer
 * is recorded, whatever the settings are, before it is done.  It is not undone with
 * the transaction.
 *
 * All functions are for those to whom the extension's scripts grant them only.  They
 * raise OBJECT_NOT_IN_PREREQUISITE_STATE if the library was not preloaded.
 *
 * Locking: that of a consumer's file, while it is dropped.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/capture.h"
#include "file_util.h"
#include "fmgr.h"
#include "funcapi.h"
#include "guc.h"
#include "miscadmin.h"
#include "queue/queue.h"
#include "sink/extent.h"
#include "sink/key_command.h"
#include "sqlfunc.h"
#include "storage/fd.h"
#include "trail/layer.h"
#include "trail/line.h"
#include "trail/place.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(audit_consumer_create);
PG_FUNCTION_INFO_V1(audit_consumer_drop);
PG_FUNCTION_INFO_V1(audit_consumers);

#define OPEN_FLAGS	(O_NOFOLLOW | O_NONBLOCK | PG_BINARY)

/* How much text is read to find the first record that is not acknowledged, in bytes */
#define MAX_LOOK	(8 * 1024 * 1024)

/* How far in an encrypted file it may be, which is gone through from its beginning, in bytes */
#define MAX_SEEK	(64 * 1024 * 1024)

/* ----------
 * Creating and dropping
 * ----------
 */

/* The path of a consumer's file, palloc'ed */
static char *
consumer_path(const char *name)
{
	if (!paq_consumer_name_is_valid(name))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid consumer name: \"%s\"", name),
				 errhint("Consumer names consist of lower case letters, digits and underscores, and have at most %d of them.",
						 PAQ_CONSUMER_NAME_LEN - 1)));
	return psprintf("%s/%s%s", paq_log_directory, PAQ_CONSUMER_PREFIX, name);
}

static void
require_files(void)
{
	paq_require_preload();
	if (paq_sink != PAQ_SINK_FILE)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("audit trail has no consumers"),
				 errdetail("They read files, but the trail is written to a table."),
				 errhint("Set \"%s\" to %s.", "pg_audit_queue.sink", "file")));
}

/* The names in log_directory are to be durable. */
static void
sync_directory(void)
{
	int			fd = OpenTransientFile(paq_log_directory, O_RDONLY | PG_BINARY);

	if (fd < 0 || !paq_fsync_directory(fd))
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not fsync directory \"%s\": %m", paq_log_directory)));
	CloseTransientFile(fd);
}

/* Up to where the trail is durable; false if that is not known. */
static bool
find_end(PaqPlace *place)
{
	char	   *path = psprintf("%s/%s", paq_log_directory, PAQ_FLUSHED_FILE);
	int			fd = OpenTransientFile(path, O_RDONLY | OPEN_FLAGS);
	bool		found = fd >= 0 && paq_flushed_read(fd, place) == PAQ_PLACE_OK;

	if (fd >= 0)
		CloseTransientFile(fd);
	return found;
}

static void
already_exists(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("consumer \"%s\" already exists", name)));
}

/*
 * audit_consumer_create(name text, from_now boolean DEFAULT false) returns bigint
 *
 * Makes a consumer, which has acknowledged nothing of what the trail has, or, with from_now,
 * all of what was recorded before the call.  Returns the sequence up to which it counts
 * as acknowledged.  Errors: a name that is not valid, or taken; a file that cannot be
 * written.
 */
Datum
audit_consumer_create(PG_FUNCTION_ARGS)
{
	const char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	PaqConsumer consumer = {.created = GetCurrentTimestamp()};
	char	   *path;
	struct stat st;
	bool		ok;
	int			fd;

	require_files();
	path = consumer_path(name);
	if (PG_GETARG_BOOL(1))
	{
		paq_queue_wait_flushed(paq_queue_end());
		if (!find_end(&consumer.place))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("could not read file \"%s/%s\"", paq_log_directory,
							PAQ_FLUSHED_FILE),
					 errhint("The worker writes it with the next record.")));
	}
	consumer.acknowledged = consumer.created;
	if (lstat(path, &st) == 0)
		already_exists(name);
	paq_record_consumer("CREATE CONSUMER", name);
	fd = OpenTransientFilePerm(path, O_RDWR | O_CREAT | O_EXCL | OPEN_FLAGS,
							   S_IRUSR | S_IWUSR);
	if (fd < 0 && errno == EEXIST)
		already_exists(name);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", path)));
	ok = paq_consumer_write_first(fd, &consumer);
	CloseTransientFile(fd);
	if (!ok)
	{
		const int	save_errno = errno;

		(void) unlink(path);
		errno = save_errno;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", path)));
	}
	sync_directory();
	PG_RETURN_INT64((int64) consumer.place.sequence);
}

/*
 * audit_consumer_drop(name text) returns void
 *
 * Removes a consumer.  Errors: there is none of that name; somebody ships for it; its
 * file cannot be removed.
 */
Datum
audit_consumer_drop(PG_FUNCTION_ARGS)
{
	const char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *path;
	bool		locked;
	int			fd;

	require_files();
	path = consumer_path(name);
	fd = OpenTransientFile(path, O_RDWR | OPEN_FLAGS);
	if (fd < 0 && errno == ENOENT)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("consumer \"%s\" does not exist", name)));
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", path)));
	locked = paq_consumer_lock(fd);
	if (!locked && (errno == EAGAIN || errno == EACCES))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("consumer \"%s\" is active for PID %d", name,
						paq_consumer_owner(fd)),
				 errhint("End the process that ships for it first.")));
	if (!locked)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not lock file \"%s\": %m", path)));
	paq_record_consumer("DROP CONSUMER", name);
	if (unlink(path) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
	CloseTransientFile(fd);
	sync_directory();
	PG_RETURN_VOID();
}

/* ----------
 * The view
 * ----------
 */

/* What all consumers are compared with */
typedef struct Trail
{
	bool		known;			/* is end? */
	PaqPlace	end;			/* up to where the trail is durable */
	PaqTrailExtent extent;
} Trail;

/* Is the record of the line, which begins at data, one that was acknowledged? */
static bool
is_acknowledged(const PaqLine *line, const PaqPlace *place)
{
	int64		series;
	int64		sequence;

	return paq_line_number(&line->value[PAQ_TRAIL_SEQUENCE], &sequence) &&
		paq_line_number(&line->value[PAQ_TRAIL_SERIES], &series) &&
		(uint64) series == place->series && (uint64) sequence <= place->sequence;
}

/*
 * Time of the first record behind the place in what the reader has, 0 if that
 * cannot be told.
 */
static TimestampTz
find_time(PaqLayerReader *reader, const PaqPlace *place)
{
	StringInfoData text;
	uint64		looked = 0;
	const char *data;
	Size		len;

	initStringInfo(&text);
	while (looked < MAX_LOOK && paq_layer_read(reader, &data, &len) == PAQ_LAYER_TEXT)
	{
		char	   *start;
		char	   *newline;

		CHECK_FOR_INTERRUPTS();
		looked += len + 1;
		appendBinaryStringInfo(&text, data, len);
		for (start = text.data; (newline = memchr(start, '\n', text.data + text.len - start));
			 start = newline + 1)
		{
			PaqLine		line;
			TimestampTz time;

			if (!paq_line_parse(start, newline - start, &line) ||
				is_acknowledged(&line, place) ||
				!paq_line_time(&line.value[PAQ_TRAIL_LOG_TIME], &time))
				continue;
			return time;
		}
		text.len -= start - text.data;
		memmove(text.data, start, text.len);
	}
	return 0;
}

/* The same, of the trail */
static TimestampTz
first_waiting(const PaqPlace *place, const Trail *trail)
{
	const char *oldest = last_dir_separator(trail->extent.oldest);
	const char *file = place->file;
	char	   *path;
	PaqLayerReader *reader;
	PaqKeys    *keys = NULL;
	TimestampTz time = 0;
	char		error[PAQ_LAYER_ERROR_LEN];
	int			fd;

	if (file[0] == '\0' && oldest != NULL)
		file = oldest + 1;
	if (file[0] == '\0' || first_dir_separator(file) != NULL)
		return 0;
	path = psprintf("%s/%s", paq_log_directory, file);
	fd = OpenTransientFile(path, O_RDONLY | OPEN_FLAGS);
	if (fd < 0)
		return 0;

	/* To seek in encrypted text, all units before the place are gone through. */
	if (paq_is_encrypted(file, fd))
	{
		if (!paq_is_block_file(file) && place->offset > MAX_SEEK)
		{
			CloseTransientFile(fd);
			return 0;
		}
		keys = paq_run_key_command(error);
	}
	reader = paq_layer_reader_make(fd, file, keys);
	PG_TRY();
	{
		if (paq_layer_reader_seek(reader, place->offset))
			time = find_time(reader, place);
	}
	PG_FINALLY();
	{
		paq_layer_reader_free(reader);
		paq_keys_free(keys);
	}
	PG_END_TRY();
	CloseTransientFile(fd);
	return time;
}

static void
add_count(PaqRow *row, uint64 value, bool known)
{
	paq_row_add(row, Int64GetDatum((int64) value), !known);
}

static void
add_time(PaqRow *row, TimestampTz value)
{
	paq_row_add(row, TimestampTzGetDatum(value), value == 0);
}

/* Records, bytes and seconds behind the trail's end */
static void
add_lag(PaqRow *row, const PaqConsumer *consumer, const Trail *trail)
{
	const PaqPlace *place = &consumer->place;
	const uint64 records = paq_place_lag(place->sequence, trail->end.sequence);
	TimestampTz since = 0;
	uint64		bytes;
	bool		bytes_known = paq_trail_bytes_behind(place->file, place->offset, &bytes);

	if (records > 0)
		since = first_waiting(place, trail);
	add_count(row, records, trail->known);
	add_count(row, bytes, bytes_known);
	paq_row_add(row, Float8GetDatum(records == 0 ? 0.0 :
									Max(GetCurrentTimestamp() - since, 0) / 1000000.0),
				!trail->known || (records > 0 && since == 0));
}

static void
add_consumer(ReturnSetInfo *rsinfo, const char *name, const Trail *trail)
{
	char	   *path = consumer_path(name);
	int			fd = OpenTransientFile(path, O_RDONLY | OPEN_FLAGS);
	PaqConsumer consumer = {0};
	PaqPlaceResult result = PAQ_PLACE_FAILED;
	PaqRow		row = {0};
	const char *error = "";
	char		file[PAQ_SHOWN_NAME_LEN];

	if (fd < 0 && errno == ENOENT)
		return;
	if (fd >= 0)
		result = paq_consumer_read(fd, &consumer);
	if (result == PAQ_PLACE_FAILED)
		error = psprintf("could not read file \"%s\": %m", path);
	else if (result == PAQ_PLACE_BAD)
		error = psprintf("file \"%s\" is damaged", path);

	paq_row_add_text(&row, name);
	if (result == PAQ_PLACE_OK)
	{
		const int	owner = paq_consumer_owner(fd);

		add_time(&row, consumer.created);
		paq_row_add(&row, Int32GetDatum(owner), owner == 0);
		add_count(&row, consumer.place.series, consumer.place.series != 0);
		add_count(&row, consumer.place.sequence, true);
		add_time(&row, consumer.acknowledged > consumer.created ? consumer.acknowledged : 0);
		add_time(&row, consumer.record_time);
		paq_show_name(file, sizeof(file), consumer.place.file, strlen(consumer.place.file));
		paq_row_add_text(&row, file);
		add_lag(&row, &consumer, trail);
	}
	while (row.n < 11)
		paq_row_add(&row, (Datum) 0, true);
	paq_row_add_text(&row, error);
	if (fd >= 0)
		CloseTransientFile(fd);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row.values, row.nulls);
}

/*
 * audit_consumers() returns setof record
 *
 * The consumers in log_directory; what can be said of one whose file is damaged is an
 * error in its row.
 */
Datum
audit_consumers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Trail		trail = {0};
	struct dirent *de;
	DIR		   *dir;

	paq_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	dir = AllocateDir(paq_log_directory);
	if (dir == NULL && errno == ENOENT)
		return (Datum) 0;
	trail.known = find_end(&trail.end);
	(void) paq_trail_extent(&trail.extent);
	while ((de = ReadDir(dir, paq_log_directory)) != NULL)
	{
		const char *name = paq_consumer_of_file(de->d_name);

		CHECK_FOR_INTERRUPTS();
		if (name != NULL)
			add_consumer(rsinfo, name, &trail);
	}
	FreeDir(dir);
	return (Datum) 0;
}
