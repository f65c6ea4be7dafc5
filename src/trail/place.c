/*-------------------------------------------------------------------------
 *
 * place.c
 *		Files that say how far a trail is durable, or acknowledged.
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

#include <fcntl.h>
#include <unistd.h>

#include "file_util.h"
#include "port/pg_crc32c.h"
#include "trail/place.h"

#define FLUSHED_MAGIC	UINT64CONST(0x3148534c46514150) /* "PAQFLSH1" */
#define CONSUMER_MAGIC	UINT64CONST(0x314d534e43514150) /* "PAQCNSM1" */

/* Distance of the slots of a consumer's file, in bytes: no page of theirs is the same. */
#define SLOT_SIZE		8192

/* A reader of the worker's file may meet the writer so often. */
#define FLUSHED_ATTEMPTS	10

typedef struct Flushed
{
	uint64		magic;
	PaqPlace	place;
	pg_crc32c	crc;			/* of all before */
} Flushed;

typedef struct Slot
{
	uint64		magic;
	PaqConsumer consumer;
	pg_crc32c	crc;			/* of all before */
} Slot;

StaticAssertDecl(sizeof(Slot) <= SLOT_SIZE, "a slot must have space for a consumer");

static bool
name_ends(const PaqPlace *place)
{
	return memchr(place->file, '\0', sizeof(place->file)) != NULL;
}

const char *
paq_consumer_of_file(const char *file)
{
	const Size	len = strlen(PAQ_CONSUMER_PREFIX);

	return strncmp(file, PAQ_CONSUMER_PREFIX, len) == 0 &&
		paq_consumer_name_is_valid(file + len) ? file + len : NULL;
}

bool
paq_consumer_name_is_valid(const char *name)
{
	const Size	len = strlen(name);

	return len > 0 && len < PAQ_CONSUMER_NAME_LEN &&
		strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == len;
}

PaqPlaceResult
paq_flushed_read(int fd, PaqPlace *place)
{
	Flushed		found;

	for (int i = 0; i < FLUSHED_ATTEMPTS; i++)
	{
		ssize_t		n = pread(fd, &found, sizeof(found), 0);

		if (n < 0)
			return PAQ_PLACE_FAILED;
		if (n == sizeof(found) && found.magic == FLUSHED_MAGIC &&
			found.crc == paq_crc32c(&found, offsetof(Flushed, crc)) &&
			name_ends(&found.place))
		{
			*place = found.place;
			return PAQ_PLACE_OK;
		}
	}
	return PAQ_PLACE_BAD;
}

bool
paq_flushed_write(int fd, const PaqPlace *place)
{
	Flushed		made;

	memset(&made, 0, sizeof(made));
	made.magic = FLUSHED_MAGIC;
	made.place = *place;
	made.crc = paq_crc32c(&made, offsetof(Flushed, crc));
	return paq_write_all(fd, (const char *) &made, sizeof(made), 0) == sizeof(made);
}

/* The slot that the number of a consumer's state chooses */
static int64
slot_offset(uint64 number)
{
	return number % 2 * SLOT_SIZE;
}

PaqPlaceResult
paq_consumer_read(int fd, PaqConsumer *consumer)
{
	PaqPlaceResult result = PAQ_PLACE_BAD;
	Slot		found;

	for (int i = 0; i < 2; i++)
	{
		ssize_t		n = pread(fd, &found, sizeof(found), i * SLOT_SIZE);

		if (n < 0)
			return PAQ_PLACE_FAILED;
		if (n != sizeof(found) || found.magic != CONSUMER_MAGIC ||
			found.crc != paq_crc32c(&found, offsetof(Slot, crc)) ||
			!name_ends(&found.consumer.place) ||
			(result == PAQ_PLACE_OK && found.consumer.number < consumer->number))
			continue;
		*consumer = found.consumer;
		result = PAQ_PLACE_OK;
	}
	return result;
}

bool
paq_consumer_write(int fd, PaqConsumer *consumer)
{
	Slot		made;

	memset(&made, 0, sizeof(made));
	consumer->number++;
	made.magic = CONSUMER_MAGIC;
	made.consumer = *consumer;
	made.crc = paq_crc32c(&made, offsetof(Slot, crc));
	if (paq_write_all(fd, (const char *) &made, sizeof(made),
					  slot_offset(consumer->number)) == sizeof(made) && fsync(fd) == 0)
		return true;

	/* The next attempt must not overwrite the other slot. */
	consumer->number--;
	return false;
}

bool
paq_consumer_write_first(int fd, PaqConsumer *consumer)
{
	return paq_consumer_write(fd, consumer) && paq_consumer_write(fd, consumer);
}

/* Of all of the file */
static struct flock
whole_file(void)
{
	return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

bool
paq_consumer_lock(int fd)
{
	struct flock lock = whole_file();

	return fcntl(fd, F_SETLK, &lock) == 0;
}

int
paq_consumer_owner(int fd)
{
	struct flock lock = whole_file();

	return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
}
