/*-------------------------------------------------------------------------
 *
 * seal.c
 *		Sealing the trail: when, what, and the secret with which.
 *
 * trail/seal.h has what a seal is.  The worker keeps a running digest of what it
 * writes to the current file, so that a seal tells of what was written, even if
 * somebody has changed the file since.  Where it does not have that - after a start,
 * and after something was cut off - it reads the file.
 *
 * Order: what a seal is over is durable before; the seal is appended to the file of
 * seals, and that is durable; then the state, with the next secret, replaces the one
 * before.  After a crash, seals that the file has and the state does not are taken over,
 * also from where the trail was before; so no range is sealed twice, and none is left
 * out.  The end of the file that is no whole line is cut off.
 *
 * A file is announced by a seal before anything is written to it, so that a file that
 * is not in the seals is none of ours; only those that were there before the key are
 * named when it is first used.
 *
 * Without a key nothing is sealed, the server log says so, and the trail goes on.  With a
 * key that cannot be used, and while the file of seals cannot be written, the trail
 * stands still, as if it could not be written itself, and the worker tries again.
 *
 * Functions that return false have noted the reason for paq_sink_error().
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "fault.h"
#include "file_util.h"
#include "guc.h"
#include "lib/stringinfo.h"
#include "sink/sink_internal.h"
#include "stats.h"
#include "storage/fd.h"
#include "trail/seal.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Bytes that are read at once */
#define READ_SIZE	(64 * 1024)

/* How a file of seals is opened */
#define OPEN_FLAGS	(O_RDWR | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | PG_BINARY)

static struct
{
	bool		open;			/* there is a key, and all below is valid */
	bool		no_key;			/* there is none; that was said */
	bool		started;		/* since then there is a seal of ours */
	int			state_fd;
	int			slot;			/* of the state in its file */
	PaqSealState *state;		/* see alloc_state() */
	char		directory[MAXPGPATH];	/* where the file of seals is */
	TimestampTz next;			/* when the next seal, or look for a key, is due */

	/* The digest of the current file from state.sealed to digested */
	pg_cryptohash_ctx *digest;
	uint64		digested;		/* PG_UINT64_MAX: it has to be made anew */
} seals = {.state_fd = -1};

/* Seals that are being made, to become durable together */
typedef struct SealLines
{
	StringInfoData text;
	PaqSealState state;			/* behind them */
	int			last;			/* where the last one begins in text */
	TimestampTz last_time;
	int			count;
} SealLines;

static bool
wanted(void)
{
	return paq_seal && paq_sink == PAQ_SINK_FILE;
}

/* ----------
 * The digest
 * ----------
 */

static bool
begin_digest(void)
{
	if (seals.digest == NULL)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);

		seals.digest = pg_cryptohash_create(PG_SHA256);
		MemoryContextSwitchTo(oldcontext);
	}
	seals.digested = seals.state->sealed;
	if (seals.digest != NULL && pg_cryptohash_init(seals.digest) >= 0)
		return true;
	seals.digested = PG_UINT64_MAX;
	paq_sink_set_error("could not compute a digest");
	return false;
}

/* Is the current file the one that was sealed last? */
static bool
goes_on(void)
{
	const char *name = paq_trail_name_of(paq_trail.path);
	const Size	len = strlen(seals.state->directory);

	return paq_trail.fd >= 0 && strcmp(seals.state->file, name) == 0 &&
		paq_trail.path + len + 1 == name &&
		strncmp(paq_trail.path, seals.state->directory, len) == 0;
}

/* So many bytes were written to the current file at that offset. */
void
paq_seal_written(uint64 offset, const char *data, Size len)
{
	/* Some of what it covers was cut off since? */
	if (seals.digested > offset)
		seals.digested = PG_UINT64_MAX;
	if (!seals.open || seals.digest == NULL || seals.digested != offset ||
		!goes_on())
		return;
	if (pg_cryptohash_update(seals.digest, (const uint8 *) data, len) >= 0)
		seals.digested += len;
	else
		seals.digested = PG_UINT64_MAX;
}

/* Have the digest cover the file open as fd up to that offset; false with errno. */
static bool
extend_digest(int fd, uint64 offset)
{
	char		data[READ_SIZE];

	while (seals.digested < offset)
	{
		Size		len = Min(READ_SIZE, offset - seals.digested);

		if (!paq_read_all(fd, data, len, seals.digested))
			return false;
		errno = ENOMEM;
		if (pg_cryptohash_update(seals.digest, (const uint8 *) data, len) < 0)
			return false;
		seals.digested += len;
	}
	return true;
}

/* Have the digest cover the current file up to its offset. */
static bool
complete_digest(void)
{
	if (seals.digest != NULL && seals.digested == paq_trail.offset)
		return true;
	if ((seals.digest == NULL || seals.digested > paq_trail.offset) && !begin_digest())
		return false;
	if (extend_digest(paq_trail.fd, paq_trail.offset))
		return true;
	paq_sink_set_error("could not read file \"%s\": %m", paq_trail.path);
	return false;
}

/* ----------
 * The state
 * ----------
 */

/*
 * The state has a secret: keep it out of core dumps, and of swap space, as far as the
 * system allows that.
 */
static bool
alloc_state(void)
{
	void	   *memory;

	if (seals.state != NULL)
		return true;
	memory = mmap(NULL, sizeof(PaqSealState), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
	{
		paq_sink_set_error("could not map memory for the sealing key: %m");
		return false;
	}
#ifdef MADV_DONTDUMP
	(void) madvise(memory, sizeof(PaqSealState), MADV_DONTDUMP);
#endif
	(void) mlock(memory, sizeof(PaqSealState));
	seals.state = memory;
	return true;
}

static void
close_seals(void)
{
	if (seals.state_fd >= 0)
	{
		close(seals.state_fd);
		ReleaseExternalFD();
	}
	seals.state_fd = -1;
	if (seals.state != NULL)
		explicit_bzero(seals.state, sizeof(*seals.state));
	seals.open = seals.started = false;
}

/* What the state is after a seal that is in that directory */
static bool
apply(PaqSealState *state, const PaqSeal *seal, const char *directory)
{
	memcpy(state->chain, seal->chain, sizeof(state->chain));
	state->stopped = seal->kind == PAQ_SEAL_STOP;
	switch (seal->kind)
	{
		case PAQ_SEAL_BEFORE:
		case PAQ_SEAL_NEW:
		case PAQ_SEAL_TIME:
		case PAQ_SEAL_REQUEST:
		case PAQ_SEAL_STOP:
		case PAQ_SEAL_FINISH:
			if (seal->file[0] == '\0')
				break;
			if (strcmp(state->file, seal->file) != 0 || !PAQ_SEAL_HAS_RANGE(seal->kind))
				strlcpy(state->directory, directory, sizeof(state->directory));
			strlcpy(state->file, seal->file, sizeof(state->file));
			state->sealed = seal->to;
			state->finished = seal->kind == PAQ_SEAL_FINISH;
			if (seal->last > 0)
				state->sequence = seal->last;
			break;
		case PAQ_SEAL_CHANGED:
			state->finished = true;
			break;
		case PAQ_SEAL_BEGIN:
		case PAQ_SEAL_START:
		case PAQ_SEAL_REMOVED:
		case PAQ_NSEAL_KINDS:
			break;
	}
	return paq_seal_next_secret(&state->secret);
}

static bool
store_state(const PaqSealState *state)
{
	if (!paq_seal_state_write(seals.state_fd, state, &seals.slot))
	{
		paq_sink_set_error("could not write file \"%s\": %m", PAQ_SEAL_STATE_FILE);
		return false;
	}
	*seals.state = *state;
	return true;
}

/* ----------
 * The file of seals
 * ----------
 */

static void
seals_path(const char *directory, char *path)
{
	char		id[PAQ_SEAL_ID_TEXT_LEN];

	paq_seal_id_text(seals.state->id, id);
	snprintf(path, MAXPGPATH, "%s/" PAQ_SEAL_FILE_PREFIX "%s", directory, id);
}

/* Open the current one, and make it if it is not there; -1 on failure. */
static int
open_seals_file(char *path)
{
	int			fd;

	if (!paq_trail_need_directory())
		return -1;
	seals_path(paq_log_directory, path);
	fd = BasicOpenFile(path, OPEN_FLAGS);
	if (fd < 0 && errno == ENOENT)
	{
		fd = BasicOpenFilePerm(path, OPEN_FLAGS | O_CREAT | O_EXCL, paq_trail_mode());
		if (fd >= 0 && (fchmod(fd, paq_trail_mode()) != 0 ||
						!paq_trail_sync_directory(paq_log_directory)))
		{
			close(fd);
			fd = -1;
		}
	}
	if (fd < 0)
		paq_sink_set_error("could not open file \"%s\": %m", path);
	return fd;
}

/* Read the file from an offset on; NULL on failure. */
static char *
read_seals(int fd, const char *path, uint64 from, uint64 size)
{
	char	   *text = palloc_extended(size - from + 1,
								 MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);

	if (text != NULL && paq_read_all(fd, text, size - from, from))
		return text;
	if (text == NULL)
		errno = ENOMEM;
	paq_sink_set_error("could not read file \"%s\": %m", path);
	if (text != NULL)
		pfree(text);
	return NULL;
}

/*
 * Take over the seals in the text, from that directory, which come next after the state.
 * Returns the length of the text's whole lines; *first_epoch becomes that of its first seal.
 */
static Size
take_over_seals(const char *text, Size len, const char *directory, PaqSealState *state,
				uint64 *first_epoch)
{
	const char *end = text + len;
	const char *line = text;
	const char *newline;

	*first_epoch = PG_UINT64_MAX;
	for (; (newline = memchr(line, '\n', end - line)) != NULL; line = newline + 1)
	{
		PaqSeal		seal;
		bool		genuine;
		bool		follows;

		if (!paq_seal_parse(line, newline - line, &seal))
			continue;
		*first_epoch = Min(*first_epoch, seal.epoch);
		if (seal.epoch == state->secret.epoch &&
			paq_seal_check(line, newline - line, &seal, &state->secret, state->chain,
						   &genuine, &follows) && genuine && follows)
			(void) apply(state, &seal, directory);
	}
	return line - text;
}

/*
 * Take over what that file of seals has and the state does not, and cut off an incomplete
 * line at its end.  Only if the state is an old copy is more than the end of the file
 * looked at.
 */
static bool
recover_from(int fd, const char *path, const char *directory, PaqSealState *state)
{
	const uint64 epoch = state->secret.epoch;
	uint64		first_epoch;
	uint64		from;
	struct stat st;
	char	   *text;
	Size		len;
	bool		ok;

	if (fstat(fd, &st) != 0)
	{
		paq_sink_set_error("could not stat file \"%s\": %m", path);
		return false;
	}
	from = st.st_size > READ_SIZE ? st.st_size - READ_SIZE : 0;
	text = read_seals(fd, path, from, st.st_size);
	if (text == NULL)
		return false;
	len = take_over_seals(text, st.st_size - from, directory, state, &first_epoch);
	if (from > 0 && first_epoch > state->secret.epoch)
	{
		pfree(text);
		from = 0;
		text = read_seals(fd, path, from, st.st_size);
		if (text == NULL)
			return false;
		len = take_over_seals(text, st.st_size, directory, state, &first_epoch);
	}
	pfree(text);
	ok = from + len == (uint64) st.st_size || paq_trail_truncate(fd, path, from + len);

	/* They need not be durable yet. */
	if (ok && state->secret.epoch != epoch && pg_fdatasync(fd) != 0)
	{
		paq_sink_set_error("could not fsync file \"%s\": %m", path);
		ok = false;
	}
	return ok;
}

/*
 * The same for the directory where the trail was before, unless that is gone: if a crash
 * has left seals there, their epochs must not be used again here.  If they cannot be read,
 * the trail goes on nevertheless: a disk that fails is why it was sent elsewhere.
 */
static bool
recover_elsewhere(PaqSealState *state)
{
	char		directory[MAXPGPATH];
	char		path[MAXPGPATH];
	bool		ok = false;
	int			fd;

	if (state->directory[0] == '\0' || strcmp(state->directory, paq_log_directory) == 0)
		return true;
	strlcpy(directory, state->directory, sizeof(directory));
	seals_path(directory, path);
	fd = BasicOpenFile(path, OPEN_FLAGS);
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
		return true;
	if (fd < 0)
	{
		const bool	short_of = errno == EMFILE || errno == ENFILE || errno == ENOMEM;

		paq_sink_set_error("could not open file \"%s\": %m", path);
		if (short_of)
			return false;
	}
	else
	{
		ok = recover_from(fd, path, directory, state);
		close(fd);
	}
	if (!ok)
		ereport(LOG,
				(errmsg("seals of the audit trail in directory \"%s\" could not be looked at",
						directory),
				 errdetail_internal("%s", paq_sink_error())));
	return true;
}

/* Have the state be behind all seals that there are. */
static bool
recover(void)
{
	char		path[MAXPGPATH];
	PaqSealState state = *seals.state;
	int			fd = recover_elsewhere(&state) ? open_seals_file(path) : -1;
	bool		ok = false;

	if (fd >= 0)
	{
		ok = recover_from(fd, path, paq_log_directory, &state);
		close(fd);
	}
	if (ok)
		strlcpy(seals.directory, paq_log_directory, sizeof(seals.directory));
	ok = ok && (state.secret.epoch == seals.state->secret.epoch || store_state(&state));
	explicit_bzero(&state, sizeof(state));
	return ok;
}

/*
 * Append lines, durably.  If somebody has written to the file, or an attempt before this one
 * has not come to an end, the seals have to be opened again first.
 */
static bool
append_lines(const StringInfo lines)
{
	char		path[MAXPGPATH];
	struct stat st;
	char		last = '\n';
	int			fd = open_seals_file(path);
	bool		ok = false;

	if (fd < 0)
		return false;
	if (fstat(fd, &st) != 0 ||
		(st.st_size > 0 && !paq_read_all(fd, &last, 1, st.st_size - 1)))
		paq_sink_set_error("could not read file \"%s\": %m", path);
	else if (last != '\n')
		paq_sink_set_error("file \"%s\" does not end with a whole line", path);
	else if ((errno = PAQ_FAULT("seal-write")) != 0 ||
			 paq_write_all(fd, lines->data, lines->len, PAQ_AT_END) < lines->len)
		paq_sink_set_error("could not write to file \"%s\": %m", path);
	else if (paq_fsync && pg_fdatasync(fd) != 0)
		paq_sink_set_error("could not fsync file \"%s\": %m", path);
	else
		ok = true;
	close(fd);
	if (ok)
		(void) PAQ_FAULT("seal-written");
	return ok;
}

/* ----------
 * Seals
 * ----------
 */

/*
 * Add a seal.  It has the sequences behind the last sealed one, up to "sequence" if that
 * is not 0.
 */
static bool
add_seal(SealLines *lines, PaqSealKind kind, const char *file,
		 uint64 from, uint64 to, uint64 sequence, const uint8 *sha256)
{
	PaqSealState *state = &lines->state;
	PaqSeal		seal = {.time = GetCurrentTimestamp(), .kind = kind, .from = from, .to = to};
	char		line[PAQ_SEAL_LINE_LEN];
	Size		len;

	strlcpy(seal.file, file, sizeof(seal.file));
	if (kind != PAQ_SEAL_STOP)
		seal.due = paq_seal_interval;
	if (sequence > 0 && sequence != state->sequence)
	{
		seal.first = sequence > state->sequence ? state->sequence + 1 : 0;
		seal.last = sequence;
	}
	if (sha256 != NULL)
		memcpy(seal.sha256, sha256, sizeof(seal.sha256));
	len = paq_seal_write(&seal, &state->secret, state->chain, line);
	if (len == 0 || !apply(state, &seal, paq_log_directory))
	{
		paq_sink_set_error("could not compute a seal");
		return false;
	}
	lines->last = lines->text.len;
	lines->last_time = seal.time;
	lines->count++;
	appendBinaryStringInfo(&lines->text, line, len);
	return true;
}

/*
 * To be followed by commit_seals().  The first seal of a process says that it starts.  Behind
 * a seal with which everything stopped there is nothing in the file, unless sealing was off
 * meanwhile; that is said first, as nobody would know it any more afterwards.
 */
static bool
begin_seals(SealLines *lines, uint64 sequence)
{
	const PaqSealState *state = seals.state;

	memset(lines, 0, sizeof(*lines));
	initStringInfo(&lines->text);
	lines->state = *seals.state;
	if (seals.started || state->secret.epoch == 0)
		return true;
	if (state->stopped && goes_on() && paq_trail.offset > state->sealed &&
		!add_seal(lines, PAQ_SEAL_BEFORE, state->file, 0, paq_trail.offset, sequence, NULL))
		return false;
	return add_seal(lines, PAQ_SEAL_START, "", 0, 0, 0, NULL);
}

/* Show the last seal, for audit_seal() and the statistics. */
static void
publish_seals(const SealLines *lines)
{
	PaqWorkerStats *worker = &paq_stats->worker;

	paq_stats_begin_write();
	strlcpy(worker->last_seal, lines->text.data + lines->last,
			Min(sizeof(worker->last_seal), lines->text.len - lines->last));
	worker->last_seal_time = lines->last_time;
	paq_stats_end_write();
	paq_stats_add(&worker->seals, lines->count);
}

/*
 * If all is well so far, the seals become durable, and then the state behind them.  If
 * it is not, the file of seals may have more than the state afterwards.
 */
static bool
commit_seals(SealLines *lines, bool well)
{
	well = well && append_lines(&lines->text) && store_state(&lines->state);
	(void) PAQ_FAULT("seal-stored");
	if (well)
	{
		publish_seals(lines);
		seals.started = true;
	}
	else
		close_seals();
	pfree(lines->text.data);
	explicit_bzero(&lines->state, sizeof(lines->state));
	return well;
}

/* Is that a file of the trail's directory that has something in it? */
static bool
is_file_to_seal(const char *name, struct stat *st)
{
	char		path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%s", paq_log_directory, name);
	return paq_trail_format_of(name) != NULL && lstat(path, st) == 0 &&
		S_ISREG(st->st_mode) && st->st_size > 0;
}

static bool
is_current_file(const struct stat *st)
{
	return st->st_dev == paq_trail.dev && st->st_ino == paq_trail.ino;
}

/* The key is used for the first time: name the files that are there already. */
static bool
add_first_seals(SealLines *lines)
{
	DIR		   *dir = AllocateDir(paq_log_directory);
	struct dirent *de;
	struct stat st;
	bool		ok = dir != NULL && add_seal(lines, PAQ_SEAL_BEGIN, "", 0, 0, 0, NULL);

	if (dir == NULL)
		paq_sink_set_error("could not open directory \"%s\": %m", paq_log_directory);
	while (ok && (de = ReadDirExtended(dir, paq_log_directory, LOG)) != NULL)
		if (is_file_to_seal(de->d_name, &st) && !is_current_file(&st))
			ok = add_seal(lines, PAQ_SEAL_BEFORE, de->d_name, 0, st.st_size, 0, NULL);
	if (dir != NULL)
		FreeDir(dir);
	return ok;
}

/*
 * Warn, once, if others can read the key.  It is used nevertheless: without it, the trail would
 * stand still, or not be sealed at all.
 */
static void
check_private(void)
{
	static bool warned;
	struct stat st;
	const bool	is_private = fstat(seals.state_fd, &st) != 0 || paq_is_private(&st);

	if (!is_private && !warned)
		ereport(WARNING,
				(errmsg("sealing key file \"%s\" has group or world access",
						PAQ_SEAL_STATE_FILE),
				 errdetail("Whoever has read it can make seals in place of the server from then on."),
				 errhint("Set its permissions to u=rw (0600), and begin with another key.")));
	warned = !is_private;
}

static bool
open_state(void)
{
	close_seals();
	if (!alloc_state())
		return false;
	seals.state_fd = BasicOpenFile(PAQ_SEAL_STATE_FILE,
								   O_RDWR | O_NOFOLLOW | O_CLOEXEC | PG_BINARY);
	if (seals.state_fd < 0)
	{
		if (errno != ENOENT && errno != ENOTDIR)
		{
			paq_sink_set_error("could not open file \"%s\": %m", PAQ_SEAL_STATE_FILE);
			return false;
		}
		if (!seals.no_key)
			ereport(WARNING,
					(errmsg("audit trail is not sealed, because there is no key"),
					 errhint("Make one with \"pg_audit_trail keygen\".")));
		seals.no_key = true;
		return true;
	}
	ReserveExternalFD();
	check_private();
	switch (paq_seal_state_read(seals.state_fd, seals.state, &seals.slot))
	{
		case PAQ_SEAL_STATE_OK:
			if (!paq_seal_state_clean(seals.state_fd, seals.slot))
				break;
			return true;
		case PAQ_SEAL_STATE_BAD:
			errno = EINVAL;
			break;
		case PAQ_SEAL_STATE_FAILED:
			break;
	}
	paq_sink_set_error("could not use file \"%s\": %m", PAQ_SEAL_STATE_FILE);
	return false;
}

/* Have the seals open, if there is a key. */
static bool
open_seals(void)
{
	if (seals.open && strcmp(seals.directory, paq_log_directory) == 0)
		return true;
	if (seals.no_key && GetCurrentTimestamp() < seals.next)
		return true;
	if (!seals.open)
	{
		if (!open_state())
		{
			close_seals();
			return false;
		}
		if (seals.state_fd < 0)
			return true;
		seals.digested = PG_UINT64_MAX;
	}
	if (!recover())
	{
		close_seals();
		return false;
	}
	if (seals.no_key)
		ereport(LOG,
				(errmsg("audit trail is sealed from now on")));
	seals.no_key = false;
	seals.open = true;
	return true;
}

/*
 * Seal what the file that was sealed last has behind that, though it is not the current one:
 * the queue was lost, and with it where the trail ended.  If that cannot be done, or the file is
 * not as it was left, say so.
 */
static bool
add_rest(SealLines *lines, uint64 sequence)
{
	const PaqSealState *state = seals.state;
	uint8		sha256[PG_SHA256_DIGEST_LENGTH];
	char		path[MAXPGPATH + PAQ_SEAL_NAME_LEN];
	struct stat st;
	bool		ok = false;
	int			fd;

	snprintf(path, sizeof(path), "%s/%s", state->directory, state->file);
	fd = BasicOpenFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | PG_BINARY);
	if (fd >= 0)
	{
		ok = paq_trail.loss.message[0] == '\0' && fstat(fd, &st) == 0 &&
			S_ISREG(st.st_mode) && (uint64) st.st_size >= state->sealed &&
			(!state->stopped || (uint64) st.st_size == state->sealed) &&
			begin_digest() && extend_digest(fd, st.st_size) &&
			pg_cryptohash_final(seals.digest, sha256, sizeof(sha256)) >= 0;
		seals.digested = PG_UINT64_MAX;
		close(fd);
	}
	return ok ?
		add_seal(lines, PAQ_SEAL_FINISH, state->file, state->sealed, st.st_size, sequence,
				 sha256) :
		add_seal(lines, PAQ_SEAL_CHANGED, state->file, state->sealed, state->sealed, 0, NULL);
}

/* Announce the current file, unless that was done, and say what is to be said before. */
static bool
announce_file(uint64 sequence)
{
	const PaqSealState *state = seals.state;
	const bool	same = goes_on();
	SealLines	lines;
	bool		ok = begin_seals(&lines, sequence);

	if (ok && state->secret.epoch == 0)
		ok = add_first_seals(&lines);
	if (ok && !same && state->file[0] != '\0' && !state->finished)
		ok = add_rest(&lines, sequence);
	if (ok && !same)
		ok = add_seal(&lines, paq_trail.offset == 0 ? PAQ_SEAL_NEW : PAQ_SEAL_BEFORE,
					  paq_trail_name_of(paq_trail.path), 0, paq_trail.offset,
					  sequence, NULL);
	return commit_seals(&lines, ok) && begin_digest();
}

/*
 * To be called before anything is written to the current file: have it announced,
 * unless its seals go on.
 */
bool
paq_sink_seal_file(uint64 sequence)
{
	if (!wanted())
		return true;
	if (!open_seals())
		return false;
	if (!seals.open || paq_trail.fd < 0)
		return true;
	if (!seals.started || !goes_on())
		return announce_file(sequence);
	if (paq_trail.offset >= seals.state->sealed)
		return true;
	paq_trail.gone = true;
	paq_sink_set_error("file \"%s\" is shorter than what was sealed of it",
					   paq_trail.path);
	return false;
}

/* Seal the current file up to its end, all of which is durable. */
static bool
seal_range(PaqSealKind kind, uint64 sequence)
{
	uint8		sha256[PG_SHA256_DIGEST_LENGTH];
	SealLines	lines;

	if (!complete_digest())
		return false;
	seals.digested = PG_UINT64_MAX;
	if (pg_cryptohash_final(seals.digest, sha256, sizeof(sha256)) < 0)
	{
		paq_sink_set_error("could not compute a digest");
		return false;
	}
	return commit_seals(&lines, begin_seals(&lines, sequence) &&
						add_seal(&lines, kind, seals.state->file, seals.state->sealed,
								 paq_trail.offset, sequence, sha256)) &&
		begin_digest();
}

/* Somebody has changed the current file, or it cannot be read: it is not sealed any further. */
static bool
seal_changed(void)
{
	SealLines	lines;

	if (seals.state->finished)
		return true;
	return commit_seals(&lines, begin_seals(&lines, 0) &&
						add_seal(&lines, PAQ_SEAL_CHANGED, seals.state->file,
								 seals.state->sealed,
								 Max(seals.state->sealed, paq_trail.offset), 0, NULL));
}

/*
 * The current file is about to be followed by another one.  All of it is durable, unless
 * it is gone.
 */
bool
paq_seal_finish(uint64 sequence)
{
	if (wanted() && !open_seals())
		return false;
	if (!seals.open || !goes_on() ||
		(seals.state->finished && seals.state->sealed == paq_trail.offset))
		return true;
	if (paq_trail.gone)
		return seal_changed();
	if (!seals.started && !announce_file(sequence))
		return false;
	if (!complete_digest())
		return seal_changed();
	return seal_range(PAQ_SEAL_FINISH, sequence);
}

/* Retention is about to remove that file of so many bytes. */
bool
paq_seal_removed(const char *name, uint64 size)
{
	SealLines	lines;

	if (!seals.open)
		return true;
	return commit_seals(&lines, begin_seals(&lines, 0) &&
						add_seal(&lines, PAQ_SEAL_REMOVED, name, 0, size, 0, NULL));
}

/* Sealing ends, and no file of the trail is being written: it goes into the table. */
static bool
seal_end(void)
{
	SealLines	lines;

	return commit_seals(&lines, begin_seals(&lines, 0) &&
						add_seal(&lines, PAQ_SEAL_STOP, "", 0, 0, 0, NULL));
}

static TimestampTz
next_seal_from(TimestampTz now)
{
	return TimestampTzPlusMilliseconds(now, paq_seal_interval * 1000L);
}

bool
paq_sink_seal(PaqSealReason reason, uint64 sequence)
{
	static const PaqSealKind kinds[] = {
		[PAQ_SEAL_DUE] = PAQ_SEAL_TIME,
		[PAQ_SEAL_REQUESTED] = PAQ_SEAL_REQUEST,
		[PAQ_SEAL_LEAVING] = PAQ_SEAL_STOP
	};

	/* There may be a key by now. */
	if (reason == PAQ_SEAL_REQUESTED && seals.no_key)
		seals.next = 0;
	if (reason != PAQ_SEAL_LEAVING && !paq_sink_seal_file(sequence))
		return false;
	seals.next = next_seal_from(GetCurrentTimestamp());
	if (!seals.open)
		return true;
	if (goes_on() && !paq_trail.gone && paq_trail.offset >= seals.state->sealed)
		return seal_range(kinds[reason], sequence);
	return reason != PAQ_SEAL_LEAVING || seal_end();
}

/* If the clock was set back, the next seal must not wait until it is that time again. */
void
paq_sink_seal_clock(TimestampTz now)
{
	seals.next = Min(seals.next, next_seal_from(now));
}

/* The worker, or sealing, ends: forget the secret. */
void
paq_sink_close_seals(void)
{
	close_seals();
}

TimestampTz
paq_sink_next_seal(void)
{
	return wanted() ? seals.next : DT_NOEND;
}

bool
paq_sink_is_sealed(void)
{
	return seals.open;
}
