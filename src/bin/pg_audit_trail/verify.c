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
 * Everything wrong is reported, in the order of the seals, up to MAX_FINDINGS.
 *
 * Memory is bounded by the number of files that the seals have.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "common/cryptohash.h"
#include "common/sha2.h"
#include "datatype/timestamp.h"
#include "file_util.h"
#include "getopt_long.h"
#include "trail/seal.h"

#define MAX_FINDINGS	20

/* How much later than it is due a seal may come, in seconds */
#define GRACE			60

/* Epochs that may be missing without the line being taken for garbage */
#define MAX_MISSING		(10 * 1000 * 1000)

#define READ_SIZE		(256 * 1024)

/* A file of seals */
typedef struct Seals
{
	const char *directory;
	char	   *path;
	FILE	   *file;			/* NULL: there is none */
	char		line[PAQ_SEAL_LINE_LEN + 1];	/* the next one, */
	Size		len;			/* without its newline; 0: there is none */
	uint64		number;			/* its number */
	bool		valid;			/* it is a seal: */
	PaqSeal		seal;
	FileList	files;			/* those of the trail there, when that was looked at */
} Seals;

/* A trail file that is in the seals */
typedef struct Sealed
{
	const char *directory;
	char	   *name;
	uint64		end;			/* up to there it is sealed, or was there before */
	uint64		unsealed;		/* bytes of that which are not */
	int			fd;				/* -1: not open */
	bool		missing;		/* it is not there */
	bool		removed;		/* by retention */
	bool		reported;		/* something is wrong with it */
} Sealed;

/* What the user asks for */
static struct
{
	PaqSealSecret first;
	uint8		id[PAQ_SEAL_ID_LEN];
	const char *data_directory; /* NULL: not given */
	bool		progress;
	bool		has_until;
	int64		until;
	char	   *known;			/* lines of seals known from elsewhere */
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
	uint64		first_sequence;
	uint64		last_sequence;
	uint64		bytes;			/* that were compared */
	uint64		total;			/* of all files */
	int			nfiles;
	int			size;
	Sealed	   *files;
	int			last_file;		/* number of the one written last; -1: none */
	bool		may_grow;		/* there may be more in it than is sealed */
	bool		started;		/* something was sealed already */
	int			findings;
} done;

/* Report what is wrong. */
static void
finding(const char *fmt,...) pg_attribute_printf(1, 2);

static void
finding(const char *fmt,...)
{
	va_list		args;

	note_status(STATUS_ALTERED);
	if (++done.findings > MAX_FINDINGS)
		return;
	fflush(stdout);
	va_start(args, fmt);
	printf(done.findings == 1 ? _("FIRST FINDING: ") : _("finding: "));
	vprintf(fmt, args);
	printf("\n");
	va_end(args);
}

/* A time for people; valid until the next but one call */
static const char *
time_text(int64 timestamp)
{
	static char texts[4][64];
	static int	next = 0;
	char	   *text = texts[next++ % lengthof(texts)];
	const time_t seconds = (time_t) (timestamp / USECS_PER_SEC +
									 (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY);

	strftime(text, sizeof(texts[0]), "%Y-%m-%d %H:%M:%S UTC", gmtime(&seconds));
	return text;
}

static int64
now(void)
{
	return ((int64) time(NULL) -
			(int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY) * USECS_PER_SEC;
}

/* ----------
 * Files
 * ----------
 */

static Sealed *
find_sealed(const char *directory, const char *name)
{
	/* Most often it is one of the last. */
	for (int i = done.nfiles - 1; i >= 0; i--)
		if (strcmp(done.files[i].name, name) == 0 &&
			strcmp(done.files[i].directory, directory) == 0)
			return &done.files[i];
	return NULL;
}

static Sealed *
add_sealed(const char *directory, const char *name)
{
	Sealed	   *file;

	if (done.nfiles == done.size)
	{
		done.size = Max(64, 2 * done.size);
		done.files = realloc(done.files, done.size * sizeof(Sealed));
		if (done.files == NULL)
			trouble("out of memory");
	}
	file = &done.files[done.nfiles++];
	memset(file, 0, sizeof(Sealed));
	file->directory = directory;
	file->name = checked_strdup(name);
	file->fd = -1;
	return file;
}

static void
close_file(Sealed *file)
{
	if (file != NULL && file->fd >= 0)
		close(file->fd);
	if (file != NULL)
		file->fd = -1;
}

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
open_file(Sealed *file)
{
	char		path[MAXPGPATH];
	struct stat st;

	if (file->fd >= 0)
		return true;
	if (file->missing || file->reported)
		return false;
	snprintf(path, sizeof(path), "%s/%s", file->directory, file->name);
	file->fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (file->fd < 0 && errno != ENOENT && errno != ELOOP)
		trouble("could not open file \"%s\": %m", path);
	file->missing = file->fd < 0 || fstat(file->fd, &st) != 0 || !S_ISREG(st.st_mode);
	if (file->missing)
		close_file(file);
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
	if (!open_file(file))
		return;
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

/* Is there more in the file than what is sealed?  It may be the one that is being written. */
static void
check_end(Sealed *file)
{
	struct stat st;

	if (!open_file(file))
	{
		if (file->missing && !file->removed && file->end > 0 && is_news(file))
			finding("file \"%s\" is missing", file->name);
		return;
	}
	if (fstat(file->fd, &st) != 0)
		trouble("could not stat file \"%s/%s\": %m", file->directory, file->name);
	close_file(file);
	if ((uint64) st.st_size < file->end && is_news(file))
		finding("file \"%s\" ends at byte %llu, but had %llu", file->name,
				(unsigned long long) st.st_size, (unsigned long long) file->end);
	if ((uint64) st.st_size <= file->end)
		return;
	if (done.may_grow && file == &done.files[done.last_file])
		printf(_("note: %llu bytes at the end of file \"%s\" are not sealed yet\n"),
			   (unsigned long long) (st.st_size - file->end), file->name);
	else if (is_news(file))
		finding("file \"%s\": what is behind byte %llu is in no seal", file->name,
				(unsigned long long) file->end);
}

/*
 * Every file of the trail that had anything in it has to be in the seals, which were read
 * later.
 */
static void
check_directory(const Seals *seals)
{
	for (int i = 0; i < seals->files.count; i++)
	{
		const TrailFile *file = &seals->files.files[i];

		if (file->size > 0 && find_sealed(seals->directory, file->name) == NULL)
			finding("file \"%s\" is in no seal", file->name);
	}
}

/* ----------
 * Seals
 * ----------
 */

/* Read the next line of a file of seals. */
static void
next_line(Seals *seals)
{
	long		start;

	seals->len = 0;
	if (seals->file == NULL)
		return;
	clearerr(seals->file);
	start = ftell(seals->file);
	if (fgets(seals->line, sizeof(seals->line), seals->file) == NULL)
		return;
	seals->len = strlen(seals->line);
	if (seals->len == 0 || seals->line[seals->len - 1] != '\n')
	{
		/* The end of a file that is being written, or a line that is none. */
		if (feof(seals->file))
		{
			seals->len = 0;
			fseek(seals->file, start, SEEK_SET);
			return;
		}
	}
	else
		seals->len--;
	seals->number++;
	seals->valid = paq_seal_parse(seals->line, seals->len, &seals->seal);
	if (seals->len == 0)
		seals->len = 1;			/* it is a line */
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
			next_line(seals);
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

	if (seal->epoch < expected || seal->epoch - expected > MAX_MISSING)
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
			done.secret = secret;
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

/*
 * A part of the file was there before it was sealed.  That is said when the key is first used;
 * later, nothing was sealed for some time.
 */
static void
take_unsealed(Sealed *file, const PaqSeal *seal)
{
	if (seal->to > file->end)
	{
		file->unsealed += seal->to - file->end;
		if (done.started && is_news(file))
			finding("file \"%s\": bytes %llu to %llu were written while nothing was sealed, before %s",
					file->name, (unsigned long long) file->end,
					(unsigned long long) seal->to, time_text(seal->time));
	}
	file->end = seal->to;
}

/* Take over what a genuine seal says of a file. */
static void
take_file(const char *directory, const PaqSeal *seal)
{
	Sealed	   *file = find_sealed(directory, seal->file);
	const bool	removal = seal->kind == PAQ_SEAL_REMOVED;

	if (file == NULL)
		file = add_sealed(directory, seal->file);
	if (!removal && done.last_file >= 0 && file != &done.files[done.last_file])
		close_file(&done.files[done.last_file]);
	if (!removal)
		done.last_file = file - done.files;
	if (removal)
		file->removed = true;
	else if (seal->kind == PAQ_SEAL_BEFORE)
		take_unsealed(file, seal);
	else if (PAQ_SEAL_HAS_RANGE(seal->kind))
		check_range(file, seal);
	else if (seal->kind == PAQ_SEAL_CHANGED && is_news(file))
		finding("file \"%s\": the server found at %s that somebody had changed it behind byte %llu",
				file->name, time_text(seal->time), (unsigned long long) seal->from);
}

static void
take_seal(const Seals *seals)
{
	const PaqSeal *seal = &seals->seal;

	if (done.count++ == 0)
		done.begin = seal->time;
	if (seal->last > 0)
	{
		if (done.first_sequence == 0)
			done.first_sequence = seal->first;
		done.last_sequence = seal->last;
	}
	if (seal->file[0] != '\0')
		take_file(seals->directory, seal);
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

/* Is the line one of those that the user knows?  Then it is no longer looked for. */
static void
strike_known(const char *line, Size len)
{
	char	   *found = wanted.known;

	while (found != NULL && (found = strstr(found, "S1 ")) != NULL)
	{
		const Size	known_len = strcspn(found, "\r\n");

		if (known_len == len && memcmp(found, line, len) == 0)
			memset(found, ' ', len);
		found += known_len;
	}
}

/* Read the seals; if that was done, those that have come since. */
static void
check_seals(void)
{
	Seals	   *seals;

	for (int i = 0; i < wanted.ndirectories; i++)
		next_line(&wanted.seals[i]);
	while ((seals = next_seals()) != NULL)
	{
		if (check_seal(seals))
		{
			strike_known(seals->line, seals->len);
			take_seal(seals);
		}
		next_line(seals);
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
		const Size	len = strcspn(left, "\r\n");
		PaqSeal		seal;

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

/* Was the trail written for as long as it should? */
static void
check_time(void)
{
	const int64 due = done.last.time + (int64) done.last.due * USECS_PER_SEC;

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
	if (state->secret.epoch > done.secret.epoch)
		finding("the trail ends with epoch %llu, but the server has sealed up to epoch %llu",
				(unsigned long long) done.last.epoch,
				(unsigned long long) state->secret.epoch - 1);
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
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		trouble("could not open file \"%s\": %m", path);
	if (paq_seal_state_read(fd, state, &slot) != PAQ_SEAL_STATE_OK)
		trouble("could not use file \"%s\"", path);
	close(fd);
}

static void
check_files(void)
{
	/* The server may be removing files. */
	for (int i = 0; i < done.nfiles; i++)
		if (!open_file(&done.files[i]) && !done.files[i].removed)
		{
			check_seals();
			break;
		}
	for (int i = 0; i < done.nfiles; i++)
		check_end(&done.files[i]);
	for (int i = 0; i < wanted.ndirectories; i++)
		check_directory(&wanted.seals[i]);
}

static void
report(void)
{
	int			removed = 0;

	for (int i = 0; i < done.nfiles; i++)
	{
		const Sealed *file = &done.files[i];

		removed += file->removed && file->missing;
		if (file->unsealed > 0 && !file->reported)
			printf(_("note: the first %llu bytes of file \"%s\" were there before the key, and are not sealed\n"),
				   (unsigned long long) file->unsealed, file->name);
	}
	if (removed > 0)
		printf(_("note: %d files were removed by retention\n"), removed);
	if (done.count > 0 && done.last.kind == PAQ_SEAL_STOP)
		printf(_("note: the server, or sealing, was stopped with the last seal\n"));
	if (done.findings > MAX_FINDINGS)
		printf(_("%d more findings\n"), done.findings - MAX_FINDINGS);
	if (done.findings > 0)
		printf(_("The trail was ALTERED OR IS INCOMPLETE: %d findings.\n"), done.findings);
	else
		printf(_("The trail is complete and unaltered from %s to %s,\n"
				 "sequences %llu to %llu: %llu seals, %d files, %llu bytes compared.\n"),
			   time_text(done.begin), time_text(done.last.time),
			   (unsigned long long) done.first_sequence,
			   (unsigned long long) done.last_sequence,
			   (unsigned long long) done.count, done.nfiles,
			   (unsigned long long) done.bytes);
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
	while ((len = fread(piece, 1, sizeof(piece), file)) > 0)
		buffer_put(&text, piece, len);
	if (ferror(file))
		trouble("could not read file \"%s\": %m", path);
	fclose(file);
	buffer_putc(&text, '\0');
	return text.data;
}

/* The key is the first line that is neither empty nor begins with #. */
static void
read_key(const char *path)
{
	char	   *text = read_text_file(path);
	char	   *line = text;

	while (*line == '#' || *line == '\n' || *line == '\r')
		line += *line == '#' ? strcspn(line, "\n") : 1;
	if (!paq_seal_key_parse(line, strcspn(line, "\r\n"), &wanted.first))
		trouble("file \"%s\" has no verification key", path);
	if (!paq_seal_key_id(&wanted.first, wanted.id))
		trouble("could not compute a digest");
	explicit_bzero(text, strlen(text));
	free(text);
}

static void
parse_verify_options(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"verification-key", required_argument, NULL, 'k'},
		{"pgdata", required_argument, NULL, 'D'},
		{"progress", no_argument, NULL, 'P'},
		{"until", required_argument, NULL, 1},
		{"seals", required_argument, NULL, 2},
		{NULL, 0, NULL, 0}
	};
	Options		options = {0};
	bool		has_key = false;
	int			c;

	while ((c = getopt_long(argc, argv, "k:D:P", long_options, NULL)) != -1)
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
				options.progress = true;
				break;
			case 1:
				if (!parse_time_option(optarg, &wanted.until))
					trouble("\"%s\" is no time", optarg);
				wanted.has_until = true;
				break;
			case 2:
				wanted.known = read_text_file(optarg);
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
	wanted.progress = options.progress;
}

/* Open the seals of each directory. */
static void
open_all(void)
{
	char		id[PAQ_SEAL_ID_TEXT_LEN];
	char		path[MAXPGPATH];
	Options		options = {0};
	bool		any = false;

	paq_seal_id_text(wanted.id, id);
	for (int i = 0; i < wanted.ndirectories; i++)
	{
		Seals	   *seals = &wanted.seals[i];
		struct stat st;

		if (stat(seals->directory, &st) != 0 || !S_ISDIR(st.st_mode))
			trouble("\"%s\" is not a directory", seals->directory);
		snprintf(path, sizeof(path), "%s/" PAQ_SEAL_FILE_PREFIX "%s", seals->directory, id);
		seals->path = checked_strdup(path);
		seals->file = fopen(path, "r");
		if (seals->file == NULL && errno != ENOENT)
			trouble("could not open file \"%s\": %m", path);
		any |= seals->file != NULL;
		if (!add_directory(&seals->files, seals->directory))
			leave(STATUS_TROUBLE);
		for (int j = 0; j < seals->files.count; j++)
			done.total += seals->files.files[j].size;
	}
	if (!any)
		finding("there are no seals of the key %s", id);
	options.progress = wanted.progress;
	progress_begin(&options, done.total);
}

void
run_verify(int argc, char **argv)
{
	PaqSealState state;

	done.last_file = -1;
	parse_verify_options(argc, argv);
	if (wanted.data_directory != NULL)
		read_server_state(&state);
	done.secret = wanted.first;
	open_all();
	check_seals();
	check_files();
	if (done.count > 0)
		check_time();
	check_known();
	if (wanted.data_directory != NULL)
		check_server(&state);
	progress_report(done.bytes, true);
	report();
}
