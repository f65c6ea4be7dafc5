/*-------------------------------------------------------------------------
 *
 * verify.c
 *		pg_audit_trail verify: is the trail what the server has sealed?
 *
 * trail/seal.h says what a seal is, doc/verify.md what follows from it.  The seals are read
 * in order, from the first one of the key on: each has to be genuine and to follow the one
 * before, and what it says of a file has to be so.  Then the files are looked
 * at: each has to be in the seals, and to end where they say.  Last, the seals have to go on
 * until now, or until whatever the user knows of.
 *
 * The server may be running: which files there are is noted before the seals are read,
 * for a file is in the seals before anything is in it; and seals are read on before a file
 * is called missing, for a removal is sealed before.
 *
 * Everything wrong is reported, in the order of the seals.  What is stated as verified are the
 * sequences that seals have of bytes which were compared; what else there is, or should be,
 * verify_rest.c counts.  Unless the user has said that he knows of it, it makes the trail count as
 * incomplete.
 *
 * Memory is bounded by the number of files that the seals have, genuine or not, and by how often
 * sealing was interrupted.  Time grows no faster than what is read.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/verify.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "datatype/timestamp.h"
#include "file_util.h"
#include "getopt_long.h"
#include "trail/seal.h"

/* How much later than it is due a seal may come, and clocks may differ, in seconds */
#define GRACE			60

/* Epochs that are tried, in all, for seals that turn out not to be genuine */
#define MAX_MISSING		(10 * 1000 * 1000)

#define READ_SIZE		(256 * 1024)

/* Bytes that a file of the user's may have */
#define MAX_TEXT_FILE	(16 * 1024 * 1024)

/* A file of seals */
typedef struct Seals
{
	const char *directory;
	char	   *path;
	FILE	   *file;			/* NULL: there is none */
	FileList	list;			/* of the directory, before seals were read */
	char		line[PAQ_SEAL_LINE_LEN + 1];	/* the next one, */
	Size		len;			/* without its newline; 0: there is none */
	Size		partial;		/* bytes of one that has no newline yet */
	uint64		number;			/* its number */
	bool		valid;			/* it is a seal: */
	PaqSeal		seal;
} Seals;

/* A trail file that is in the seals */
typedef struct Sealed
{
	const char *directory;
	char	   *name;
	uint64		end;			/* up to there it is sealed, or was there before */
	int			fd;				/* -1: not open */
	bool		compared;		/* with a seal */
	bool		missing;		/* it is not there */
	bool		removed;		/* by retention, */
	int64		removed_at;		/* then */
	bool		reported;		/* something is wrong with it */
} Sealed;

/* Sequences that a seal is over: those of its file */
typedef struct SealedRange
{
	int			file;			/* its number */
	uint64		first;
	uint64		last;
} SealedRange;

/* A part of a file that was there before seals of it began, or began again */
typedef struct Unsealed
{
	int			file;			/* its number */
	RestKind	kind;
	uint64		from;
	uint64		to;
	bool		expected;		/* the user does not want to know of that time */
} Unsealed;

/* What the user asks for */
static struct
{
	PaqSealSecret first;
	uint8		id[PAQ_SEAL_ID_LEN];
	const char *data_directory; /* NULL: not given */
	bool		has_from;
	int64		from;
	bool		has_until;
	int64		until;
	char	   *known;			/* lines of seals known from elsewhere, */
	Names		known_lines;	/* and each of them: 1 if it is in the trail */
	int			ndirectories;
	Seals	   *seals;			/* of each directory */
} wanted;

/* How far verification has got */
static struct
{
	PaqSealSecret secret;		/* of the next seal */
	uint8		chain[PAQ_SEAL_DIGEST_LEN]; /* of the last one */
	PaqSeal		last;			/* valid if there is one */
	uint64		count;			/* of seals */
	int64		begin;			/* time of the first */
	uint64		last_sequence;
	uint64		bytes;			/* that were compared */
	uint64		total;			/* of all files */
	int			nfiles;
	int			size;
	Sealed	   *files;
	Names		names;			/* numbers of these, see path_of() */
	int			nranges;
	int			ranges_size;
	SealedRange *ranges;		/* in the order of the seals */
	int			nunsealed;
	int			unsealed_size;
	Unsealed   *unsealed;
	int			last_file;		/* number of the one written last; -1: none */
	uint64		tried;			/* epochs, for seals that were not genuine */
	bool		may_grow;		/* there may be more in it than is sealed */
	bool		started;		/* something was sealed already */
	int			pauses;			/* how often nothing was sealed for too long */
	int64		pause_from;		/* the longest of these */
	int64		pause_to;
} done;

/*
 * For each name that a seal of kind new or before has, in a first look at the seals: the epoch in
 * which its last file was begun, 0 if that is the first one
 */
static Names successors;

static int64
now(void)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	return ((int64) tv.tv_sec -
			(int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY) * USECS_PER_SEC +
		tv.tv_usec;
}

/* ----------
 * Files
 * ----------
 */

/* Valid until the next call */
static const char *
path_of(const char *directory, const char *name)
{
	static Buffer path;

	path.used = 0;
	buffer_puts(&path, directory);
	buffer_putc(&path, '/');
	buffer_puts(&path, name);
	buffer_putc(&path, '\0');
	return path.data;
}

/* Is the name taken by another file that was begun after that epoch? */
static bool
has_successor(const char *directory, const char *name, uint64 epoch)
{
	const uint64 *last = names_find(&successors, path_of(directory, name));

	return last != NULL && *last > epoch;
}

/* A seal that was not checked yet names a file, which is begun, or was there before. */
static void
note_file(const char *directory, const char *name, uint64 epoch, bool begun)
{
	bool		found;
	uint64	   *last = names_add(&successors, path_of(directory, name), &found);

	if (found && begun)
		*last = Max(*last, epoch);
}

/* The last file of that name that was in a seal */
static Sealed *
find_sealed(const char *directory, const char *name)
{
	const uint64 *number = names_find(&done.names, path_of(directory, name));

	return number != NULL ? &done.files[*number] : NULL;
}

static Sealed *
add_sealed(const char *directory, const char *name, uint64 epoch)
{
	Sealed	   *file;
	bool		found;

	*names_add(&done.names, path_of(directory, name), &found) = done.nfiles;
	done.files = array_grow(done.files, done.nfiles, &done.size, sizeof(Sealed));
	file = &done.files[done.nfiles++];
	memset(file, 0, sizeof(Sealed));
	file->directory = directory;
	file->name = checked_strdup(name);
	file->fd = -1;
	/* what has its name now is another one */
	file->missing = has_successor(directory, name, epoch);
	return file;
}

static void
close_sealed_file(Sealed *file)
{
	if (file != NULL && file->fd >= 0)
		close(file->fd);
	if (file != NULL)
		file->fd = -1;
}

static void check_seals(void);

/* Something is wrong with the file: once is enough. */
static bool
is_news(Sealed *file)
{
	const bool	news = !file->reported;

	file->reported = true;
	return news;
}

/* Open the file, if that is possible; a missing one may have been removed by retention. */
static bool
open_sealed_file(Sealed *file)
{
	const char *path;
	struct stat st;

	if (file->fd >= 0)
		return true;
	if (file->missing || file->reported)
		return false;
	path = path_of(file->directory, file->name);
	file->fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file->fd < 0 && errno != ENOENT && errno != ELOOP)
		trouble("could not open file \"%s\": %m", path);
	file->missing = file->fd < 0 || fstat(file->fd, &st) != 0 || !S_ISREG(st.st_mode);
	if (file->missing)
		close_sealed_file(file);
	return !file->missing;
}

/*
 * The SHA-256 of a range of the file.  *len becomes how many of its bytes are there; if
 * they are not all, there is no digest.
 */
static void
digest_range(const Sealed *file, uint64 from, uint64 to, uint64 *len, uint8 *sha256)
{
	static char buffer[READ_SIZE];
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);

	if (ctx == NULL || pg_cryptohash_init(ctx) < 0)
		trouble("could not compute a digest");
	for (*len = 0; *len < to - from;)
	{
		ssize_t		n = pread(file->fd, buffer, Min(READ_SIZE, to - from - *len), from + *len);

		if (n < 0)
			trouble("could not read file \"%s/%s\": %m", file->directory, file->name);
		if (n == 0)
			break;
		if (pg_cryptohash_update(ctx, (uint8 *) buffer, n) < 0)
			trouble("could not compute a digest");
		*len += n;
		done.bytes += n;
		progress_report(done.bytes, false);
	}
	if (*len == to - from && pg_cryptohash_final(ctx, sha256, PG_SHA256_DIGEST_LENGTH) < 0)
		trouble("could not compute a digest");
	pg_cryptohash_free(ctx);
}

/* What a seal says of a range of the file has to be so. */
static void
check_range(Sealed *file, const PaqSeal *seal)
{
	uint8		sha256[PG_SHA256_DIGEST_LENGTH];
	uint64		len;

	if (seal->from != file->end && is_news(file))
		finding("file \"%s\": bytes %llu to %llu are in no seal", file->name,
				(unsigned long long) Min(file->end, seal->from),
				(unsigned long long) Max(file->end, seal->from));
	file->end = seal->to;
	if (!open_sealed_file(file))
		return;
	file->compared |= seal->to > seal->from;
	digest_range(file, seal->from, seal->to, &len, sha256);
	if (len < seal->to - seal->from)
	{
		if (is_news(file))
			finding("file \"%s\" ends at byte %llu, but is sealed up to byte %llu at %s, sequence %llu",
					file->name, (unsigned long long) (seal->from + len),
					(unsigned long long) seal->to, time_text(seal->time),
					(unsigned long long) done.last_sequence);
	}
	else if (memcmp(sha256, seal->sha256, sizeof(sha256)) != 0 && is_news(file))
		finding("file \"%s\": something between bytes %llu and %llu was changed after %s (sequences %llu to %llu)",
				file->name, (unsigned long long) seal->from, (unsigned long long) seal->to,
				time_text(seal->time), (unsigned long long) seal->first,
				(unsigned long long) seal->last);
}

/*
 * The file is not there.  Retention may have removed it a moment ago, and has sealed that
 * before.
 */
static void
check_missing(int number)
{
	if (!done.files[number].removed)
		check_seals();
	if (!done.files[number].removed && is_news(&done.files[number]))
		finding("file \"%s\" is missing", done.files[number].name);
}

/* Is there more in the file than what is sealed?  It may be the one that is being written. */
static void
check_end(int number)
{
	Sealed	   *file = &done.files[number];
	struct stat st;

	if (!open_sealed_file(file))
	{
		if (file->missing && file->end > 0 && !file->reported)
			check_missing(number);
		return;
	}
	if (fstat(file->fd, &st) != 0)
		trouble("could not stat file \"%s/%s\": %m", file->directory, file->name);
	close_sealed_file(file);
	if ((uint64) st.st_size < file->end && is_news(file))
		finding("file \"%s\" ends at byte %llu, but had %llu", file->name,
				(unsigned long long) st.st_size, (unsigned long long) file->end);
	if ((uint64) st.st_size <= file->end)
		return;
	if (done.may_grow && file == &done.files[done.last_file])
		rest_bytes(REST_BEHIND, path_of(file->directory, file->name), file->end, st.st_size,
				   wanted.has_until);
	else if (is_news(file))
		finding("file \"%s\": what is behind byte %llu is in no seal", file->name,
				(unsigned long long) file->end);
}

/* Every file of the trail that has anything in it has to be in the seals. */
static void
check_directory(const Seals *seals)
{
	for (int i = 0; i < seals->list.count; i++)
	{
		const TrailFile *file = &seals->list.files[i];

		if (file->size == 0 || find_sealed(seals->directory, file->name) != NULL)
			continue;
		finding("file \"%s\" is in no seal", file->name);
		rest_bytes(REST_FILE, file->path, 0, file->size, false);
	}
}

/* ----------
 * Seals
 * ----------
 */

/*
 * Read the next line of a file of seals.  One that is too long is cut off: it is no seal
 * anyway.  A line without a newline, at the end, is none yet.
 */
static void
next_seal_line(Seals *seals)
{
	Size		used = seals->partial;
	int			c = EOF;

	seals->len = seals->partial = 0;
	if (seals->file == NULL)
		return;
	clearerr(seals->file);
	while ((c = getc(seals->file)) != EOF && c != '\n')
		if (used < PAQ_SEAL_LINE_LEN)
			seals->line[used++] = c;
	if (c == EOF && ferror(seals->file))
		trouble("could not read file \"%s\": %m", seals->path);
	if (c == EOF)
	{
		seals->partial = used;
		return;
	}
	seals->number++;
	seals->valid = paq_seal_parse(seals->line, used, &seals->seal);
	seals->len = Max(used, 1);	/* it is a line, even if there is nothing in it */
}

/* Have a first look at the seals: which names are there more than once? */
static void
find_successors(Seals *seals)
{
	for (next_seal_line(seals); seals->len > 0; next_seal_line(seals))
		if (seals->valid &&
			(seals->seal.kind == PAQ_SEAL_NEW || seals->seal.kind == PAQ_SEAL_BEFORE))
			note_file(seals->directory, seals->seal.file, seals->seal.epoch,
					  seals->seal.kind == PAQ_SEAL_NEW);
	if (seals->file != NULL)
		rewind(seals->file);
	seals->number = seals->partial = 0;
}

/* The file that has the next seal; the lines that are none are reported. */
static Seals *
next_seals(void)
{
	Seals	   *next = NULL;

	for (int i = 0; i < wanted.ndirectories; i++)
	{
		Seals	   *seals = &wanted.seals[i];

		while (seals->len > 0 && !seals->valid)
		{
			finding("line %llu of \"%s\" is no seal", (unsigned long long) seals->number,
					seals->path);
			next_seal_line(seals);
		}
		if (seals->len > 0 && (next == NULL || seals->seal.epoch < next->seal.epoch))
			next = seals;
	}
	return next;
}

/* Go on to the secret of that epoch. */
static void
advance_to(uint64 epoch)
{
	while (done.secret.epoch < epoch)
		if (!paq_seal_next_secret(&done.secret))
			trouble("could not compute a digest");
}

/*
 * Is the seal the next one, and genuine?  If it is only that some before it are missing,
 * it counts.
 */
static bool
check_seal(const Seals *seals)
{
	const PaqSeal *seal = &seals->seal;
	const uint64 expected = done.secret.epoch;
	const unsigned long long epoch = seal->epoch;
	bool		genuine;
	bool		follows;

	if (seal->epoch < expected || seal->epoch - expected > MAX_MISSING - done.tried)
	{
		finding("line %llu of \"%s\": the seal of epoch %llu stands where that of epoch %llu should",
				(unsigned long long) seals->number, seals->path, epoch,
				(unsigned long long) expected);
		return false;
	}
	if (seal->epoch > expected)
	{
		PaqSealSecret secret = done.secret;

		advance_to(seal->epoch);
		if (!paq_seal_check(seals->line, seals->len, seal, &done.secret, done.chain,
							&genuine, &follows))
			trouble("could not compute a digest");
		if (!genuine)
		{
			done.tried += seal->epoch - expected;
			done.secret = secret;
		}
		finding("line %llu of \"%s\": the seal of epoch %llu stands where that of epoch %llu should",
				(unsigned long long) seals->number, seals->path, epoch,
				(unsigned long long) expected);
		return genuine;
	}
	if (!paq_seal_check(seals->line, seals->len, seal, &done.secret, done.chain,
						&genuine, &follows))
		trouble("could not compute a digest");
	if (!genuine)
		finding("line %llu of \"%s\": the seal of epoch %llu is not genuine",
				(unsigned long long) seals->number, seals->path, epoch);
	else if (!follows)
		finding("line %llu of \"%s\": the seal of epoch %llu does not follow the one before it",
				(unsigned long long) seals->number, seals->path, epoch);
	return genuine;
}

/* Does the user not want to know of what was before the seal?  He has times in whole seconds. */
static bool
is_expected(const PaqSeal *seal)
{
	return wanted.has_from && seal->time < wanted.from + USECS_PER_SEC;
}

/* What is not sealed before that seal: has nothing been sealed yet, or nothing for some time? */
static RestKind
rest_kind(void)
{
	return done.started ? REST_BETWEEN : REST_BEFORE;
}

/*
 * A part of the file was there before it was sealed.  That is no finding when the key is first
 * used; later, nothing was sealed for some time.
 */
static void
take_unsealed(Sealed *file, const PaqSeal *seal)
{
	if (seal->to > file->end)
	{
		done.unsealed = array_grow(done.unsealed, done.nunsealed, &done.unsealed_size,
								   sizeof(Unsealed));
		done.unsealed[done.nunsealed++] = (Unsealed){
			file - done.files, rest_kind(), file->end, seal->to, is_expected(seal)
		};
		if (done.started && !is_expected(seal) && is_news(file))
			finding("file \"%s\": bytes %llu to %llu were written while nothing was sealed, before %s",
					file->name, (unsigned long long) file->end,
					(unsigned long long) seal->to, time_text(seal->time));
	}
	file->end = seal->to;
}

/* Retention has removed a file, all of which should have been sealed. */
static void
take_removal(Sealed *file, const PaqSeal *seal)
{
	if (seal->to != file->end && is_news(file))
		finding("file \"%s\" had %llu byte%s when retention removed it at %s, but was sealed up to byte %llu",
				file->name, (unsigned long long) seal->to, plural(seal->to), time_text(seal->time),
				(unsigned long long) file->end);
	file->removed = true;
	file->removed_at = seal->time;
}

/*
 * The file that a seal is about, NULL if it is the first one.  Ranges are of the file that
 * was begun last; if log_directory has been changed, the last of them is in the seals of
 * another directory.
 */
static Sealed *
file_of_seal(const char *directory, const PaqSeal *seal)
{
	Sealed	   *last = done.last_file >= 0 ? &done.files[done.last_file] : NULL;

	if (seal->kind == PAQ_SEAL_NEW)
		return NULL;
	if ((PAQ_SEAL_HAS_RANGE(seal->kind) || seal->kind == PAQ_SEAL_CHANGED) &&
		last != NULL && strcmp(last->name, seal->file) == 0)
		return last;
	return find_sealed(directory, seal->file);
}

/* Take over what a genuine seal says of a file. */
static void
take_file(const char *directory, const PaqSeal *seal)
{
	Sealed	   *file = file_of_seal(directory, seal);
	const bool	removal = seal->kind == PAQ_SEAL_REMOVED;

	if (file == NULL)
		file = add_sealed(directory, seal->file, seal->epoch);
	if (!removal && done.last_file >= 0 && file != &done.files[done.last_file])
		close_sealed_file(&done.files[done.last_file]);
	if (!removal)
		done.last_file = file - done.files;
	if (removal)
		take_removal(file, seal);
	else if (seal->kind == PAQ_SEAL_BEFORE)
		take_unsealed(file, seal);
	else if (PAQ_SEAL_HAS_RANGE(seal->kind))
		check_range(file, seal);
	else if (seal->kind == PAQ_SEAL_CHANGED && is_news(file))
		finding("file \"%s\": the server found at %s that somebody had changed it behind byte %llu",
				file->name, time_text(seal->time), (unsigned long long) seal->from);
}

/*
 * Sequences that a seal has are covered if it is over bytes of the file of that number; -1: of
 * none.  Otherwise they were written where no seal is.
 */
static void
take_sequences(const PaqSeal *seal, int file)
{
	SealedRange *end = done.nranges > 0 ? &done.ranges[done.nranges - 1] : NULL;

	if (file < 0 || !PAQ_SEAL_HAS_RANGE(seal->kind) || seal->from == seal->to)
		rest_sequences(rest_kind(), seal->first, seal->last, is_expected(seal));
	else if (end != NULL && end->file == file && end->last + 1 == seal->first)
		end->last = seal->last;
	else
	{
		done.ranges = array_grow(done.ranges, done.nranges, &done.ranges_size, sizeof(SealedRange));
		done.ranges[done.nranges++] = (SealedRange){ file, seal->first, seal->last };
	}
}

/* Was nothing sealed for longer than the seal before has said? */
static void
note_pause(const PaqSeal *seal)
{
	const int64 due = done.last.time + (int64) (done.last.due + GRACE) * USECS_PER_SEC;

	if (seal->time <= due)
		return;
	if (done.pauses++ == 0 || seal->time - done.last.time > done.pause_to - done.pause_from)
	{
		done.pause_from = done.last.time;
		done.pause_to = seal->time;
	}
}

static void
take_seal(const Seals *seals)
{
	const PaqSeal *seal = &seals->seal;

	if (done.count++ == 0)
		done.begin = seal->time;
	else if (seal->time < done.last.time - (int64) GRACE * USECS_PER_SEC)
		remark("the server's clock was set back from %s to %s, before epoch %llu",
			   time_text(done.last.time), time_text(seal->time),
			   (unsigned long long) seal->epoch);
	else
		note_pause(seal);
	if (seal->last > 0)
		done.last_sequence = seal->last;
	if (seal->file[0] != '\0')
		take_file(seals->directory, seal);
	if (seal->last > 0)
		take_sequences(seal, seal->file[0] != '\0' ? done.last_file : -1);
	if (seal->kind == PAQ_SEAL_STOP || seal->kind == PAQ_SEAL_CHANGED)
		done.may_grow = false;
	else if (seal->kind != PAQ_SEAL_REMOVED)
		done.may_grow = true;
	if (seal->kind != PAQ_SEAL_BEGIN && seal->kind != PAQ_SEAL_BEFORE)
		done.started = true;
	memcpy(done.chain, seal->chain, sizeof(done.chain));
	done.last = *seal;
	if (!paq_seal_next_secret(&done.secret))
		trouble("could not compute a digest");
}

/* The length of a known seal, without what is behind it on its line */
static Size
known_len(const char *seal)
{
	Size		len = strcspn(seal, "\r\n");

	while (len > 0 && (seal[len - 1] == ' ' || seal[len - 1] == '\t'))
		len--;
	return len;
}

/* Note the lines of the known seals. */
static void
note_known(void)
{
	char	   *known = wanted.known;
	bool		found;

	while ((known = strstr(known, "S1 ")) != NULL)
	{
		const Size	len = known_len(known);
		const char	end = known[len];

		known[len] = '\0';
		(void) names_add(&wanted.known_lines, known, &found);
		known[len] = end;
		known += len;
	}
}

/* If the line is one of those that the user knows, it is there. */
static void
strike_known(Seals *seals)
{
	uint64	   *is_there;

	seals->line[seals->len] = '\0';
	is_there = names_find(&wanted.known_lines, seals->line);
	if (is_there != NULL)
		*is_there = 1;
}

static void
check_seals(void)
{
	Seals	   *seals;

	for (int i = 0; i < wanted.ndirectories; i++)
		next_seal_line(&wanted.seals[i]);
	while ((seals = next_seals()) != NULL)
	{
		if (check_seal(seals))
		{
			strike_known(seals);
			take_seal(seals);
		}
		next_seal_line(seals);
	}
}

/* ----------
 * The end
 * ----------
 */

static void
check_known(void)
{
	char	   *left = wanted.known;

	while (left != NULL && (left = strstr(left, "S1 ")) != NULL)
	{
		const Size	len = known_len(left);
		const char	end = left[len];
		PaqSeal		seal;
		bool		is_there;

		left[len] = '\0';
		is_there = *names_find(&wanted.known_lines, left) == 1;
		left[len] = end;
		if (is_there)
		{
			left += len;
			continue;
		}
		if (!paq_seal_parse(left, len, &seal))
			finding("a line of the known seals is no seal");
		else if (seal.epoch >= done.secret.epoch)
			finding("the trail ends with epoch %llu, but there was a seal of epoch %llu, at %s",
					(unsigned long long) done.last.epoch, (unsigned long long) seal.epoch,
					time_text(seal.time));
		else
			finding("the known seal of epoch %llu is not in the trail",
					(unsigned long long) seal.epoch);
		left += len;
	}
}

/*
 * A file of seals has to end with a whole line, unless the server is just writing one, or
 * was killed meanwhile.
 */
static void
check_partial(const Seals *seals)
{
	char		begin[64];
	Size		len;

	if (seals->partial == 0)
		return;
	snprintf(begin, sizeof(begin), "S1 %llu ", (unsigned long long) done.secret.epoch);
	len = Min(strlen(begin), seals->partial);
	if (done.count > 0 && done.last.kind != PAQ_SEAL_STOP &&
		memcmp(seals->line, begin, len) == 0)
		remark("the last line of \"%s\" is not complete", seals->path);
	else
		finding("the last line of \"%s\" is not complete", seals->path);
}

/* Was the trail written for as long as it should? */
static void
check_time(void)
{
	const int64 due = done.last.time + (int64) done.last.due * USECS_PER_SEC;

	/* or else it would be long until one is missed */
	if (done.last.time > now() + (int64) GRACE * USECS_PER_SEC)
		finding("the last seal is of %s, which is yet to come", time_text(done.last.time));
	if (wanted.has_from && done.last.time < wanted.from)
		finding("the last seal is of %s, but there should be seals from %s on",
				time_text(done.last.time), time_text(wanted.from));
	if (wanted.has_until)
	{
		if (done.last.time < wanted.until)
			finding("the trail ends at %s, but should go on until %s",
					time_text(done.last.time), time_text(wanted.until));
	}
	else if (done.last.due > 0 && now() > due + (int64) GRACE * USECS_PER_SEC)
		finding("the trail ends at %s, but another seal was due at %s",
				time_text(done.last.time), time_text(due));
}

/* Has the server made the seals that are there, and no more? */
static void
check_server(const PaqSealState *state)
{
	PaqSealSecret secret = wanted.first;
	PaqSealSecret next = state->secret;

	if (memcmp(state->id, wanted.id, sizeof(wanted.id)) != 0)
	{
		finding("the server seals with another key");
		return;
	}
	/* analyzer: with a data directory the state has been read */
	if (state->secret.epoch > done.secret.epoch)
		finding("the trail ends with epoch %llu, but the server has sealed up to epoch %llu",
				(unsigned long long) done.last.epoch,
				(unsigned long long) state->secret.epoch - 1);
	if (state->secret.epoch > done.secret.epoch + MAX_MISSING)
		return;
	while (secret.epoch < state->secret.epoch)
		if (!paq_seal_next_secret(&secret))
			trouble("could not compute a digest");
	if (memcmp(secret.secret, next.secret, sizeof(secret.secret)) != 0)
		finding("the server's key does not follow from the verification key");
}

static void
read_server_state(PaqSealState *state)
{
	char		path[MAXPGPATH];
	int			slot;
	int			fd;

	snprintf(path, sizeof(path), "%s/" PAQ_SEAL_STATE_FILE, wanted.data_directory);
	fd = open_secret_file("key file", path, O_NONBLOCK);
	if (paq_seal_state_read(fd, state, &slot) != PAQ_SEAL_STATE_OK)
		trouble("could not use key file \"%s\"", path);
	close(fd);
}

static void
check_files(void)
{
	for (int i = 0; i < done.nfiles; i++)
		check_end(i);
	for (int i = 0; i < wanted.ndirectories; i++)
	{
		check_directory(&wanted.seals[i]);
		check_partial(&wanted.seals[i]);
	}
}

/* The sequences of files that are there, or of those that retention has removed */
static Ranges
sealed_sequences(bool removed)
{
	Ranges		ranges = {0};

	for (int i = 0; i < done.nranges; i++)
		if (done.files[done.ranges[i].file].missing == removed)
			ranges_add(&ranges, done.ranges[i].first, done.ranges[i].last);
	return ranges;
}

static void
remark_removed(void)
{
	const Sealed *last = NULL;
	Ranges		sequences = sealed_sequences(true);
	Buffer		buf = {0};
	int			count = 0;

	for (int i = 0; i < done.nfiles; i++)
		if (done.files[i].removed && done.files[i].missing)
		{
			count++;
			if (last == NULL || done.files[i].removed_at >= last->removed_at)
				last = &done.files[i];
		}
	if (sequences.count > 0)
		buffer_puts(&buf, ", ");
	ranges_put(&buf, &sequences);
	buffer_putc(&buf, '\0');
	if (count > 0)
		remark(ngettext("%d file was removed by retention%s, last \"%s\" at %s",
						"%d files were removed by retention%s, last \"%s\" at %s", count),
			   count, buf.data, last->name, time_text(last->removed_at));
	free(buf.data);
	free(sequences.range);
}

/* What was there before the key, or while nothing was sealed, as far as it is there still */
static void
add_unsealed(void)
{
	for (int i = 0; i < done.nunsealed; i++)
	{
		const Unsealed *part = &done.unsealed[i];
		const Sealed *file = &done.files[part->file];

		if (!file->missing)
			rest_bytes(part->kind, path_of(file->directory, file->name), part->from, part->to,
					   part->expected);
	}
}

/* What is verified: that, and no more */
static void
print_verified(bool all)
{
	Ranges		sequences = sealed_sequences(false);
	Buffer		buf = {0};
	int			nfiles = 0;

	for (int i = 0; i < done.nfiles; i++)
		nfiles += done.files[i].compared;
	if (all)
		printf(_("The trail is complete and unaltered"));
	else
		printf(_("What seals cover is complete and unaltered"));
	ranges_put(&buf, &sequences);
	if (sequences.count == 0)
		buffer_puts(&buf, "no sequences");
	buffer_putc(&buf, '\0');
	printf(_(" from %s to %s,\n%s: %llu seal%s, %d file%s, %llu byte%s compared.\n"),
		   time_text(done.begin), time_text(done.last.time), buf.data,
		   (unsigned long long) done.count, plural(done.count), nfiles, plural(nfiles),
		   (unsigned long long) done.bytes, plural(done.bytes));
	free(buf.data);
	free(sequences.range);
}

static void
report(void)
{
	bool		all;

	add_unsealed();
	all = !rest_report();
	remark_removed();
	if (done.pauses > 0)
		remark("%d time%s nothing was sealed for longer than expected, at most from %s to %s",
			   done.pauses, plural(done.pauses), time_text(done.pause_from),
			   time_text(done.pause_to));
	if (done.count > 0 && done.last.kind == PAQ_SEAL_STOP)
	{
		remark("the server, or sealing, was stopped with the last seal");
		if (!wanted.has_until && wanted.known == NULL && wanted.data_directory == NULL)
			remark("whether the trail went on after that, --until, --seals or --pgdata would tell");
	}
	print_remarks();
	if (findings() > 0)
		printf(_("The trail was ALTERED OR IS INCOMPLETE: " INT64_FORMAT " finding%s.\n"), findings(),
			   plural(findings()));
	else if (current_status() != STATUS_FINE)
		printf(_("The trail could not be verified.\n"));
	else
	{
		if (!rest_is_expected())
		{
			printf(_("NOT ALL of the trail is covered by seals.\n"));
			note_status(STATUS_ALTERED);
		}
		print_verified(all);
	}
	if (fflush(stdout) != 0 || ferror(stdout))
		trouble("could not write to standard output: %m");
}

/* ----------
 * Options
 * ----------
 */

/* A whole text file, at most MAX_TEXT_FILE bytes of it */
static char *
read_text_file(const char *path)
{
	Buffer		text = {0};
	FILE	   *file = fopen(path, "r");
	char		piece[4096];
	Size		len;

	if (file == NULL)
		trouble("could not open file \"%s\": %m", path);
	while ((len = fread(piece, 1, sizeof(piece), file)) > 0 && text.used <= MAX_TEXT_FILE)
		buffer_put(&text, piece, len);
	if (ferror(file))
		trouble("could not read file \"%s\": %m", path);
	if (text.used > MAX_TEXT_FILE)
		trouble("file \"%s\" is too large", path);
	fclose(file);
	buffer_putc(&text, '\0');
	return text.data;
}

/* The key is the first line that is neither empty nor begins with #. */
static void
read_key(const char *path)
{
	static char text[SECRETS_MAX + 1];
	const char *line = text;

	text[read_secret_file("key file", path, text)] = '\0';
	while (*line == '#' || *line == '\n' || *line == '\r')
		line += *line == '#' ? strcspn(line, "\n") : 1;
	if (!paq_seal_key_parse(line, strcspn(line, "\r\n"), &wanted.first))
		trouble("key file \"%s\" has no verification key", path);
	if (!paq_seal_key_id(&wanted.first, wanted.id))
		trouble("could not compute a digest");
	paq_forget_secret(text, sizeof(text));
}

/* A time; also as time_text() writes it */
static int64
parse_time(const char *text)
{
	char	   *copy = checked_strdup(text);
	char	   *end = strstr(copy, " UTC");
	int64		result;

	if (end != NULL && end[4] == '\0')
		strcpy(end, "Z");
	if (!parse_time_option(copy, &result))
		trouble("\"%s\" is no time", text);
	free(copy);
	return result;
}

static void
parse_verify_options(int argc, char **argv, Options *options)
{
	static const struct option long_options[] = {
		{"verification-key", required_argument, NULL, 'k'},
		{"pgdata", required_argument, NULL, 'D'},
		{"progress", no_argument, NULL, 'P'},
		{"until", required_argument, NULL, 1},
		{"seals", required_argument, NULL, 2},
		{"from", required_argument, NULL, 3},
		{NULL, 0, NULL, 0}
	};
	bool		has_key = false;
	int			c;

	while ((c = next_option(argc, argv, "k:D:P", long_options)) != -1)
		switch (c)
		{
			case 'k':
				read_key(optarg);
				has_key = true;
				break;
			case 'D':
				wanted.data_directory = optarg;
				break;
			case 'P':
				options->progress = true;
				break;
			case 1:
				wanted.until = parse_time(optarg);
				wanted.has_until = true;
				break;
			case 2:
				wanted.known = read_text_file(optarg);
				if (strstr(wanted.known, "S1 ") == NULL)
					trouble("file \"%s\" has no seals", optarg);
				note_known();
				break;
			case 3:
				wanted.from = parse_time(optarg);
				wanted.has_from = true;
				break;
			default:
				pg_log_error_hint("Try \"%s --help\" for more information.", progname);
				leave(STATUS_TROUBLE);
		}
	if (!has_key)
		trouble("no verification key specified");
	if (optind == argc)
		trouble("no directory specified");
	wanted.ndirectories = argc - optind;
	wanted.seals = checked_alloc(wanted.ndirectories * sizeof(Seals));
	memset(wanted.seals, 0, wanted.ndirectories * sizeof(Seals));
	for (int i = 0; i < wanted.ndirectories; i++)
		wanted.seals[i].directory = argv[optind + i];
}

/* A directory that is given twice would be taken for a trail with everything twice. */
static void
check_directories(void)
{
	for (int i = 0; i < wanted.ndirectories; i++)
	{
		const char *directory = wanted.seals[i].directory;
		struct stat st;
		struct stat other;

		if (stat(directory, &st) != 0 || !S_ISDIR(st.st_mode))
			trouble("\"%s\" is not a directory", directory);
		for (int j = 0; j < i; j++)
			if (stat(wanted.seals[j].directory, &other) == 0 &&
				other.st_dev == st.st_dev && other.st_ino == st.st_ino)
				trouble("\"%s\" and \"%s\" are the same directory",
						wanted.seals[j].directory, directory);
	}
}

/* Open a file of seals; NULL if there is none. */
static FILE *
open_seals_file(const char *path)
{
	int			fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	FILE	   *file;
	struct stat st;

	if (fd < 0 && errno == ENOENT)
		return NULL;
	if (fd < 0 && errno != ELOOP)
		trouble("could not open file \"%s\": %m", path);
	if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
	{
		finding("\"%s\" is not a file", path);
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	file = fdopen(fd, "r");
	if (file == NULL)
		trouble("could not open file \"%s\": %m", path);
	return file;
}

/* Open the seals of each directory, and see which files are there. */
static void
open_all(void)
{
	char		id[PAQ_SEAL_ID_TEXT_LEN];
	char		path[MAXPGPATH];
	bool		any = false;

	paq_seal_id_text(wanted.id, id);
	for (int i = 0; i < wanted.ndirectories; i++)
	{
		Seals	   *seals = &wanted.seals[i];

		(void) add_directory(&seals->list, seals->directory);
		for (int j = 0; j < seals->list.count; j++)
			done.total += seals->list.files[j].size;
		snprintf(path, sizeof(path), "%s/" PAQ_SEAL_FILE_PREFIX "%s", seals->directory, id);
		seals->path = checked_strdup(path);
		seals->file = open_seals_file(path);
		any |= seals->file != NULL;
		find_successors(seals);
	}
	if (!any)
		finding("there are no seals of the key %s", id);
}

void
run_verify(int argc, char **argv)
{
	Options		options = {0};
	PaqSealState state;

	done.last_file = -1;
	parse_verify_options(argc, argv, &options);
	if (wanted.data_directory != NULL)
		read_server_state(&state);
	done.secret = wanted.first;
	check_directories();
	open_all();
	progress_begin(&options, done.total);
	check_seals();
	check_files();
	if (done.count > 0)
		check_time();
	else if (findings() == 0)
		finding("there are no seals");
	check_known();
	if (wanted.data_directory != NULL)
		check_server(&state);
	progress_report(done.bytes, true);
	report();
}
