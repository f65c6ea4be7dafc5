/*-------------------------------------------------------------------------
 *
 * consumer.c
 *		Which trail files have to stay for the consumers.
 *
 * A consumer has a file in log_directory that says up to where it has acknowledged the
 * trail (trail/place.h).  Retention removes a file only when all consumers
 * have acknowledged it, or when there would be more than consumer_keep_size of
 * files otherwise.  If it cannot be told whether they have - a consumer's file is damaged,
 * the first record of a trail file cannot be read - they have not.
 *
 * The names of consumers are collected while a pass of retention reads the directory; how
 * far each of them has got is read when it matters.
 *
 * Must not raise for what the world outside does.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "guc.h"
#include "nodes/pg_list.h"
#include "sink/key_command.h"
#include "sink/sink_internal.h"
#include "storage/fd.h"
#include "trail/place.h"
#include "utils/memutils.h"

/*
 * When consumers hold back so much of what they may, in percent, it is said; again only
 * after it has been less than that in between.
 */
#define KEEP_WARN		75
#define KEEP_WARN_AGAIN	70

/* How much of a file has to be read to find its first sequence */
#define HEAD_SIZE		8192

/* The consumers of the pass */
static struct
{
	int			dirfd;
	List	   *names;			/* in the memory context of the pass */
	bool		has_keys;		/* the key command has been run: */
	PaqKeys    *keys;			/* NULL: it has failed */
}			consumers = {.dirfd = -1};

/* What has been said */
static bool said_full = false;
static bool said_lost = false;

/* A pass begins, of that directory. */
void
paq_consumers_begin(int dirfd)
{
	paq_consumers_end();
	consumers.dirfd = dirfd;
}

void
paq_consumers_end(void)
{
	paq_keys_free(consumers.keys);
	consumers.keys = NULL;
	consumers.has_keys = false;
	consumers.names = NIL;
	consumers.dirfd = -1;
}

/* The directory has a file of that name; it may be a consumer's.  Allocates. */
void
paq_consumers_add(const char *file)
{
	const char *name = paq_consumer_of_file(file);

	if (name != NULL)
		consumers.names = lappend(consumers.names, pstrdup(name));
}

/* How far a consumer has got.  False if it is gone, which is as good as everything. */
static bool
read_consumer(const char *name, PaqConsumer *consumer)
{
	char		file[sizeof(PAQ_CONSUMER_PREFIX) + PAQ_CONSUMER_NAME_LEN];
	PaqPlaceResult result;
	int			fd;

	memset(consumer, 0, sizeof(*consumer));
	snprintf(file, sizeof(file), PAQ_CONSUMER_PREFIX "%s", name);
	fd = openat(consumers.dirfd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno != ENOENT;
	result = paq_consumer_read(fd, consumer);
	close(fd);

	/* What is not known holds everything. */
	if (result != PAQ_PLACE_OK)
		memset(consumer, 0, sizeof(*consumer));
	return true;
}

/* Sequence of the file's first record; 0 if it cannot be told. */
static uint64
first_sequence(const char *file)
{
	char		head[HEAD_SIZE];
	char		error[PAQ_LAYER_ERROR_LEN];
	bool		encrypted;
	uint64		result = 0;
	ssize_t		len;
	int			fd = openat(consumers.dirfd, file,
					O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return 0;
	len = paq_trail_read_head(fd, file, NULL, head, sizeof(head), &encrypted);
	if (encrypted)
	{
		if (!consumers.has_keys)
		{
			MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

			consumers.keys = paq_run_key_command(error);
			MemoryContextSwitchTo(old_context);
		}
		consumers.has_keys = true;
		len = paq_trail_read_head(fd, file, consumers.keys, head, sizeof(head), &encrypted);
	}
	close(fd);
	if (len > 0)
		result = paq_find_sequence(paq_trail_format_of(file), head, len);
	return result;
}

/* When a file of the directory was last written to; 0 if it is gone */
static TimestampTz
time_of_file(const char *name)
{
	struct stat st;

	if (name[0] == '\0' || fstatat(consumers.dirfd, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return 0;
	return paq_trail_written(&st);
}

/* Has the consumer acknowledged the file, whose first record has that sequence? */
static bool
has_acknowledged(const PaqConsumer *consumer, const PaqTrailMember *file, uint64 first)
{
	const PaqPlace *place = &consumer->place;
	const TimestampTz until = paq_place_until(consumer, time_of_file(place->file));

	return file->written <= until &&
		(first < place->begun || (first == place->begun && file->size <= place->offset));
}

/*
 * The consumers that have not acknowledged the file, ", " in between, as far as there is
 * space; "" if all have.
 */
static void
list_waiting(const PaqTrailMember *file, char *names, Size size)
{
	uint64		first = 0;
	ListCell   *lc;

	names[0] = '\0';
	foreach(lc, consumers.names)
	{
		PaqConsumer consumer;

		if (!read_consumer(lfirst(lc), &consumer))
			continue;
		if (first == 0 && consumer.place.begun > 0)
			first = first_sequence(file->name);
		if (first > 0 && has_acknowledged(&consumer, file, first))
			continue;
		if (names[0] != '\0')
			strlcat(names, ", ", size);
		strlcat(names, lfirst(lc), size);
	}
}

/* Say so if consumers hold back nearly as much as they may. */
static void
look_at_limit(const char *names, uint64 held)
{
	const uint64 limit = (uint64) Max(paq_consumer_keep_size, 0) * 1024;

	said_lost = false;
	if (limit == 0 || held < limit / 100 * KEEP_WARN_AGAIN)
		said_full = false;
	if (limit == 0 || held < limit / 100 * KEEP_WARN || said_full)
		return;
	said_full = true;
	ereport(WARNING,
			(errmsg("audit trail files that consumers have not acknowledged are more than %d percent of \"%s\"",
					KEEP_WARN, "pg_audit_queue.consumer_keep_size"),
			 errdetail("There are %llu bytes; they wait for: %s.",
					   (unsigned long long) held, names),
			 errhint("Have the consumers catch up, drop those that are not needed by audit_consumer_drop(), or raise \"%s\".",
					 "pg_audit_queue.consumer_keep_size")));
}

/*
 * Retention wants to remove that file, which is finished; with it and those behind it there
 * are so many bytes of the trail.  What is to be done?  names is for the consumers
 * that have not acknowledged it.
 */
PaqConsumerHold
paq_consumers_hold(const PaqTrailMember *file, uint64 bytes, char *names, Size size)
{
	names[0] = '\0';
	if (consumers.names == NIL)
		return PAQ_HOLD_NONE;
	list_waiting(file, names, size);
	if (names[0] == '\0')
		return PAQ_HOLD_NONE;
	if (paq_consumer_keep_size < 0 || bytes <= (uint64) paq_consumer_keep_size * 1024)
	{
		look_at_limit(names, bytes);
		return PAQ_HOLD_KEEP;
	}
	if (!said_lost)
		ereport(WARNING,
				(errmsg("audit trail files that consumers have not acknowledged are removed"),
				 errdetail("There are more than \"%s\" allows; they waited for: %s.",
						   "pg_audit_queue.consumer_keep_size", names)));
	said_lost = true;
	return PAQ_HOLD_EXCEEDED;
}
