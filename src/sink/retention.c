/*-------------------------------------------------------------------------
 *
 * retention.c
 *		Removing trail files that are too old, or more than there may be.
 *
 * A file's age is counted from its last change.  The oldest go first, the
 * current one never.
 *
 * A pass begins when the worker does, with each new file, at each reload, and
 * when the oldest file falls due.  It goes on in small pieces, so that the queue
 * does not have to wait: the directory is read (oldest.c); a group of files is
 * planned; the caller sees to it that the trail tells of that, durably; then
 * they are removed, one after the other; then the next group.
 *
 * That a pass makes new files with what is recorded of it is no reason for
 * another one: there might be no end to it.
 *
 * Guarantees: what is removed is what was planned.  Nothing is removed while
 * there is no current file, or records have to be recognized that may be in any
 * file (salvage.c).  What cannot be removed is reported once, left alone until
 * the next reload, and not counted.
 *
 * Must not raise for what the world outside does.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "fault.h"
#include "guc.h"
#include "portability/instr_time.h"
#include "sink/sink_internal.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

/* Length of an abbreviation of a time zone */
#define MIN_ZONE_LEN	3
#define MAX_ZONE_LEN	6

/* Length of an offset from UTC */
#define OFFSET_LEN		5

#define WEEKDAYS		"Sunday|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday"
#define SHORT_WEEKDAYS	"Sun|Mon|Tue|Wed|Thu|Fri|Sat"
#define MONTHS \
	"January|February|March|April|May|June|July|August|September|October|November|December"
#define SHORT_MONTHS	"Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"

/*
 * What an escape becomes: a number of fixed width, one of several words, or
 * what another pattern becomes, in which there are only escapes of the first
 * two kinds, and %Z.
 */
typedef struct Escape
{
	char		letter;
	char		padding;
	int			width;			/* of a number; 0: it is none */
	int			min;
	int			max;
	const char *words;			/* with "|" between them, or NULL */
	const char *pattern;		/* or NULL */
} Escape;

/* Those of pg_strftime(), but for %Z and %z */
static const Escape escapes[] = {
	{'A', .words = WEEKDAYS},
	{'a', .words = SHORT_WEEKDAYS},
	{'B', .words = MONTHS},
	{'b', .words = SHORT_MONTHS},
	{'C', '0', 2, 0, 99},
	{'c', .pattern = "%a %b %e %H:%M:%S %Y"},
	{'D', .pattern = "%m/%d/%y"},
	{'d', '0', 2, 1, 31},
	{'e', ' ', 2, 1, 31},
	{'F', .pattern = "%Y-%m-%d"},
	{'G', '0', 4, 0, 9999},
	{'g', '0', 2, 0, 99},
	{'H', '0', 2, 0, 23},
	{'h', .words = SHORT_MONTHS},
	{'I', '0', 2, 1, 12},
	{'j', '0', 3, 1, 366},
	{'k', ' ', 2, 0, 23},
	{'l', ' ', 2, 1, 12},
	{'M', '0', 2, 0, 59},
	{'m', '0', 2, 1, 12},
	{'n', .words = "\n"},
	{'p', .words = "AM|PM"},
	{'R', .pattern = "%H:%M"},
	{'r', .pattern = "%I:%M:%S %p"},
	{'S', '0', 2, 0, 60},
	{'T', .pattern = "%H:%M:%S"},
	{'t', .words = "\t"},
	{'U', '0', 2, 0, 53},
	{'u', '0', 1, 1, 7},
	{'V', '0', 2, 1, 53},
	{'v', .pattern = "%e-%b-%Y"},
	{'W', '0', 2, 0, 53},
	{'w', '0', 1, 0, 6},
	{'X', .pattern = "%H:%M:%S"},
	{'x', .pattern = "%m/%d/%y"},
	{'Y', '0', 4, 0, 9999},
	{'y', '0', 2, 0, 99},
	{'+', .pattern = "%a %b %e %H:%M:%S %Z %Y"}
};

static const Escape *
find_escape(char letter)
{
	for (int i = 0; i < lengthof(escapes); i++)
		if (escapes[i].letter == letter)
			return &escapes[i];
	return NULL;
}

/* Is there such a number at the beginning of text? */
static bool
match_number(const Escape *escape, const char *text, Size len)
{
	int			value = 0;
	int			i = 0;

	if (len < escape->width)
		return false;
	if (escape->padding == ' ')
		while (i < escape->width - 1 && text[i] == ' ')
			i++;
	for (; i < escape->width; i++)
	{
		if (!isdigit((unsigned char) text[i]))
			return false;
		value = value * 10 + (text[i] - '0');
	}
	return value >= escape->min && value <= escape->max;
}

/* Length of the word, of those, that text begins with; 0: with none. */
static Size
match_word(const char *words, const char *text, Size len)
{
	for (const char *word = words; *word != '\0';)
	{
		Size		word_len = strcspn(word, "|");

		if (word_len <= len && strncmp(word, text, word_len) == 0)
			return word_len;
		word += word_len;
		if (*word == '|')
			word++;
	}
	return 0;
}

/* Length of the number or word at the beginning of text; 0: that is not there. */
static Size
match_simple(const Escape *escape, const char *text, Size len)
{
	if (escape->width == 0)
		return match_word(escape->words, text, len);
	return match_number(escape, text, len) ? escape->width : 0;
}

/* Is there an offset from UTC, as of %z, at the beginning of text? */
static bool
match_offset(const char *text, Size len)
{
	if (len < OFFSET_LEN || (text[0] != '+' && text[0] != '-'))
		return false;
	for (int i = 1; i < OFFSET_LEN; i++)
		if (!isdigit((unsigned char) text[i]))
			return false;
	return true;
}

static bool match(const char *pattern, const char *after, const char *text, Size len);

/* Is text the abbreviation of a time zone, and then what match() says? */
static bool
match_zone(const char *pattern, const char *after, const char *text, Size len)
{
	for (Size n = 0; n <= Min(len, MAX_ZONE_LEN); n++)
	{
		if (n >= MIN_ZONE_LEN && match(pattern, after, text + n, len - n))
			return true;
		if (n == len || !(isalnum((unsigned char) text[n]) ||
						  text[n] == '+' || text[n] == '-'))
			break;
	}
	return false;
}

/*
 * Is text what the pattern becomes at some time, followed by what the pattern
 * after, unless that is NULL, becomes?
 */
static bool
match(const char *pattern, const char *after, const char *text, Size len)
{
	for (;; pattern++)
	{
		const Escape *escape = NULL;
		bool		escaped = *pattern == '%';
		Size		n;

		if (*pattern == '\0' && after != NULL)
			return match(after, NULL, text, len);
		if (*pattern == '\0')
			return len == 0;

		/* E and O change nothing; in front of nothing they are themselves. */
		if (escaped && pattern[1] != '\0')
			pattern++;
		while (escaped && (*pattern == 'E' || *pattern == 'O') && pattern[1] != '\0')
			pattern++;

		if (escaped && *pattern == 'Z')
			return match_zone(pattern + 1, after, text, len);
		if (escaped)
			escape = find_escape(*pattern);
		if (escape != NULL && escape->pattern != NULL)
			return match(escape->pattern, pattern + 1, text, len);
		if (escape != NULL)
			n = match_simple(escape, text, len);
		else if (escaped && *pattern == 'z')
			n = match_offset(text, len) ? OFFSET_LEN : 0;
		else
			/* what paq_trail_name() makes of a separator */
			n = len > 0 && *text == (IS_DIR_SEP(*pattern) ? '-' : *pattern) ? 1 : 0;
		if (n == 0)
			return false;
		text += n;
		len -= n;
	}
}

/* Length of the name without a number, from 1, behind its last dot. */
static Size
without_number(const char *name, Size len)
{
	Size		start = len;

	while (start > 0 && isdigit((unsigned char) name[start - 1]))
		start--;
	if (start == len || start == 0 || name[start] == '0' || name[start - 1] != '.')
		return len;
	return start - 1;
}

/* Is this, without a directory, a name that we would give a trail file? */
bool
paq_trail_has_name(const char *name)
{
	const PaqFormat *format = paq_trail_format_of(name);
	Size		len;

	if (format == NULL)
		return false;
	len = strlen(name) - strlen(format->extension);
	return match(paq_log_filename, NULL, name, len) ||
		match(paq_log_filename, NULL, name, without_number(name, len));
}

/* How many are kept in mind */
#define MAX_OLDEST		256

/* How much of a file has to be read to see whether it is one of the trail's */
#define HEAD_SIZE		8192

/* What every record but those of format json has near its beginning */
#define RECORD_MARK		"AUDIT: "

/* The latest time that we believe a file to have: in the year 9999 */
#define MAX_MTIME		INT64CONST(253402300799)

static DIR *dir = NULL;
static dev_t dir_dev;

/* Those behind the ones that have been dealt with, oldest first */
static PaqOldFile files[MAX_OLDEST];
static PaqOldFile *oldest[MAX_OLDEST];
static int	noldest;
static bool more;				/* there are others that are younger */
static uint64 total_size;		/* of them, those, and the current file */

/* The last one that was dealt with before the directory was read again */
static bool again;
static TimestampTz done_mtime;
static char done_name[NAME_MAX + 1];

static void
start_reading(void)
{
	rewinddir(dir);
	noldest = 0;
	more = false;
	total_size = paq_trail.offset;
}

/*
 * Open the directory, in which we must be allowed to remove files.  On failure
 * returns false, with errno.
 */
bool
paq_oldest_open(void)
{
	struct stat st;
	int			save_errno;

	if (!AcquireExternalFD())
		return false;
	dir = opendir(paq_log_directory);
	if (dir == NULL)
	{
		save_errno = errno;
		ReleaseExternalFD();
		errno = save_errno;
		return false;
	}
	if (fstat(dirfd(dir), &st) != 0 ||
		faccessat(dirfd(dir), ".", W_OK | X_OK, AT_EACCESS) != 0)
	{
		save_errno = errno;
		paq_oldest_close();
		errno = save_errno;
		return false;
	}
	dir_dev = st.st_dev;
	again = false;
	start_reading();
	return true;
}

void
paq_oldest_close(void)
{
	if (dir == NULL)
		return;
	closedir(dir);
	ReleaseExternalFD();
	dir = NULL;
}

static TimestampTz
modified(const struct stat *st)
{
	int64		seconds = Min(Max((int64) st->st_mtim.tv_sec, 0), MAX_MTIME);

	return time_t_to_timestamptz((pg_time_t) seconds) +
		st->st_mtim.tv_nsec / 1000;
}

static bool
is_current(const char *name, const struct stat *st)
{
	const char *separator = last_dir_separator(paq_trail.path);

	return (st->st_ino == paq_trail.ino && st->st_dev == paq_trail.dev) ||
		(separator != NULL && strcmp(separator + 1, name) == 0);
}

/* By age, and by name if that is the same */
static int
compare(TimestampTz mtime1, const char *name1, TimestampTz mtime2, const char *name2)
{
	if (mtime1 != mtime2)
		return mtime1 < mtime2 ? -1 : 1;
	return strcmp(name1, name2);
}

/* Put a file where it belongs among the oldest, if it does. */
static void
keep_if_old(const char *name, TimestampTz mtime, const struct stat *st)
{
	int			low = 0;
	int			high = noldest;
	PaqOldFile *file;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (compare(oldest[middle]->mtime, oldest[middle]->name, mtime, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	more = more || noldest == MAX_OLDEST;
	if (low == MAX_OLDEST)
		return;
	file = noldest < MAX_OLDEST ? &files[noldest++] : oldest[MAX_OLDEST - 1];
	memmove(&oldest[low + 1], &oldest[low], (noldest - 1 - low) * sizeof(oldest[0]));
	oldest[low] = file;
	file->ino = st->st_ino;
	file->mtime = mtime;
	file->size = st->st_size;
	file->planned = false;
	strlcpy(file->name, name, sizeof(file->name));
}

/* Get what is known of a name; false if it is none of a finished trail file. */
static bool
stat_finished(const char *name, struct stat *st)
{
	return fstatat(dirfd(dir), name, st, AT_SYMLINK_NOFOLLOW) == 0 &&
		S_ISREG(st->st_mode) && st->st_uid == geteuid() &&
		st->st_dev == dir_dev && !is_current(name, st);
}

/* Read the next name in the directory.  Returns false if there is none. */
bool
paq_oldest_read(void)
{
	struct dirent *de = readdir(dir);
	struct stat st;
	TimestampTz mtime;

	if (de == NULL)
		return false;
	if (!paq_trail_has_name(de->d_name) || !stat_finished(de->d_name, &st))
		return true;
	mtime = modified(&st);
	if (again && compare(mtime, de->d_name, done_mtime, done_name) <= 0)
		return true;
	total_size += st.st_size;
	keep_if_old(de->d_name, mtime, &st);
	return true;
}

/* The files, by number from 0, oldest first; NULL if there are no more. */
PaqOldFile *
paq_oldest_file(int number)
{
	return number < noldest ? oldest[number] : NULL;
}

/* Size of all those that were read, kept in mind or not, and the current one. */
uint64
paq_oldest_total_size(void)
{
	return total_size;
}

/*
 * All files have been dealt with: read the directory again for younger ones.
 * Returns false if there are none.
 */
bool
paq_oldest_read_again(void)
{
	if (!more)
		return false;
	again = true;
	done_mtime = oldest[noldest - 1]->mtime;
	strlcpy(done_name, oldest[noldest - 1]->name, sizeof(done_name));
	start_reading();
	return true;
}

/*
 * Does the file begin as one of the trail's?  A name is soon given to
 * something else.  If we cannot tell, *failed is set, and errno.
 */
bool
paq_oldest_is_ours(const PaqOldFile *file, bool *failed)
{
	const PaqFormat *format = paq_trail_format_of(file->name);
	char		head[HEAD_SIZE];
	Size		start = 0;
	Size		digits;
	ssize_t		len;
	int			save_errno;
	int			fd;

	*failed = false;
	if (file->size == 0)
		return true;
	fd = openat(dirfd(dir), file->name,
				O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
	{
		*failed = (errno != ENOENT && errno != ELOOP && errno != ENXIO);
		return false;
	}
	len = pread(fd, head, sizeof(head), 0);
	save_errno = errno;
	close(fd);
	errno = save_errno;
	*failed = (len < 0);
	return len > 0 &&
		(format->find_sequence(head, len, &start, &digits) ||
		 memmem(head, len, RECORD_MARK, strlen(RECORD_MARK)) != NULL);
}

/*
 * Remove the file, if it is still the one that it was, unchanged.  *removed
 * tells whether that was done.  Returns false, with errno, on failure.
 */
bool
paq_oldest_remove(const PaqOldFile *file, bool *removed)
{
	struct stat st;

	*removed = false;
	if (!stat_finished(file->name, &st) || st.st_ino != file->ino ||
		modified(&st) != file->mtime || (uint64) st.st_size != file->size)
		return true;
	errno = PAQ_FAULT("trail-unlink");
	if (errno != 0 || unlinkat(dirfd(dir), file->name, 0) != 0)
		return errno == ENOENT;
	(void) PAQ_FAULT("trail-unlinked");
	*removed = true;
	return true;
}

/* Make it durable that files are gone; failure is only logged. */
void
paq_oldest_sync(void)
{
	if (paq_fsync && pg_fsync(dirfd(dir)) != 0 && errno != EBADF && errno != EINVAL)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not fsync directory \"%s\": %m",
						paq_log_directory)));
}

/* How long a piece of work takes, unless a single file takes longer, in us */
#define PIECE_TIME		1000

/* How many files are planned at once */
#define MAX_GROUP		32

/* Bytes of their names: a record must not become so long that it is spilled. */
#define MAX_NAMES		2048

/* How many files that cannot be removed are kept in mind */
#define MAX_STUCK		256

typedef enum Phase
{
	PHASE_IDLE,
	PHASE_READ,					/* the directory is being read */
	PHASE_PLAN,
	PHASE_REMOVE				/* when the plan is in the trail */
} Phase;

static Phase phase = PHASE_IDLE;
static instr_time piece_begin;

/* What the last pass has begun with, and when the next one is due */
static char begun_path[MAXPGPATH];
static TimestampTz begun_reload = 0;
static TimestampTz next_due = DT_NOEND;

static int	next;				/* number of the file to be dealt with next */
static uint64 total_size;		/* of all that have not been */

/* The group: what is marked as planned from number group on to before next */
static int	group;
static PaqRemoval plan;
static char plan_path[MAXPGPATH];
static char plan_names[MAX_NAMES];
static bool removed_any;

/* What cannot be removed, files by inode, and whether any can */
static ino_t stuck[MAX_STUCK];
static int	nstuck = 0;
static bool directory_stuck = false;

/* Has the piece of work been long enough? */
static bool
piece_is_done(void)
{
	instr_time	duration;

	INSTR_TIME_SET_CURRENT(duration);
	INSTR_TIME_SUBTRACT(duration, piece_begin);
	return INSTR_TIME_GET_MICROSEC(duration) >= PIECE_TIME;
}

/* When a file of that time is too old; DT_NOEND for never. */
static TimestampTz
due_at(TimestampTz mtime)
{
	return paq_log_retention_age == 0 ? DT_NOEND :
		mtime + paq_log_retention_age * (SECS_PER_MINUTE * USECS_PER_SEC);
}

/* Would it be right to remove anything now? */
static bool
is_possible(void)
{
	PaqSinkState state = {0};

	if (paq_log_retention_age == 0 && paq_log_retention_size == 0)
		return false;
	paq_salvage_state(&state);
	return paq_trail.fd >= 0 && !paq_trail.gone &&
		state.known_file[0] == '\0' && nstuck < MAX_STUCK;
}

static bool
pass_is_due(void)
{
	return begun_reload != PgReloadTime ||
		strcmp(begun_path, paq_trail.path) != 0 ||
		GetCurrentTimestamp() >= next_due;
}

static void
begin_pass(void)
{
	strlcpy(begun_path, paq_trail.path, sizeof(begun_path));
	begun_reload = PgReloadTime;
	next_due = DT_NOEND;
	if (paq_oldest_open())
	{
		phase = PHASE_READ;
		directory_stuck = false;
		return;
	}
	if (!directory_stuck)
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not remove old audit trail files from directory \"%s\": %m",
						paq_log_directory)));
	directory_stuck = true;
}

static void
end_pass(void)
{
	paq_oldest_close();
	phase = PHASE_IDLE;
}

/*
 * What is left falls due at that time.  Files that were finished since the
 * directory was read do so at most their age later than now.
 */
static void
finish_pass(TimestampTz due)
{
	end_pass();
	next_due = due;
	if (strcmp(begun_path, paq_trail.path) != 0)
		next_due = Min(next_due, due_at(GetCurrentTimestamp()));
	strlcpy(begun_path, paq_trail.path, sizeof(begun_path));
}

static void
begin_plan(void)
{
	memset(&plan, 0, sizeof(plan));
	plan.path = plan_path;
	plan.names = plan_names;
	group = next;
	removed_any = false;
	phase = PHASE_PLAN;
}

/* Read some of the directory, and plan when all of it has been. */
static void
read_some(void)
{
	while (!piece_is_done())
	{
		if (paq_oldest_read())
			continue;
		next = 0;
		total_size = paq_oldest_total_size();
		begin_plan();
		return;
	}
}

static bool
is_stuck(const PaqOldFile *file)
{
	for (int i = 0; i < nstuck; i++)
		if (stuck[i] == file->ino)
			return true;
	return false;
}

/*
 * The file cannot be removed, with errno: say so, and leave it alone from now
 * on.  With too many of them we end this, rather than to forget one.
 */
static void
file_failed(const PaqOldFile *file)
{
	stuck[nstuck++] = file->ino;
	ereport(WARNING,
			(errcode_for_file_access(),
			 errmsg("could not remove audit trail file \"%s/%s\": %m",
					paq_log_directory, file->name),
			 nstuck < MAX_STUCK ? 0 :
			 errdetail("Nothing more is removed until the configuration is reloaded.")));
}

/* Is there nothing about the file that forbids to remove it? */
static bool
may_be_removed(const PaqOldFile *file)
{
	bool		failed;

	if (is_stuck(file))
		return false;
	if (paq_oldest_is_ours(file, &failed))
		return true;
	if (failed)
		file_failed(file);
	return false;
}

/* The setting because of which the file has to go; NULL if it may stay. */
static const char *
reason_to_remove(const PaqOldFile *file)
{
	if (due_at(file->mtime) <= GetCurrentTimestamp())
		return "pg_audit_queue.log_retention_age";
	if (paq_log_retention_size > 0 &&
		total_size > (uint64) paq_log_retention_size * 1024)
		return "pg_audit_queue.log_retention_size";
	return NULL;
}

/* Add the file to the group; false if that has to be dealt with first. */
static bool
add_to_plan(PaqOldFile *file, const char *setting)
{
	Size		used = strlen(plan_names);

	if (plan.count == 0)
	{
		snprintf(plan_path, sizeof(plan_path), "%s/%s", paq_log_directory, file->name);
		strlcpy(plan_names, file->name, sizeof(plan_names));
		plan.setting = setting;
	}
	else if (plan.count == MAX_GROUP || plan.setting != setting ||
			 used + strlen(file->name) + 2 >= sizeof(plan_names))
		return false;
	else
		snprintf(plan_names + used, sizeof(plan_names) - used, ", %s", file->name);
	plan.count++;
	plan.bytes += file->size;
	file->planned = true;
	return true;
}

/* Plan some of a group.  Returns true if there is one, and it is complete. */
static bool
plan_some(void)
{
	while (!piece_is_done() && nstuck < MAX_STUCK)
	{
		PaqOldFile *file = paq_oldest_file(next);
		const char *setting = file ? reason_to_remove(file) : NULL;

		if (setting == NULL && plan.count > 0)
			return true;
		if (file == NULL && paq_oldest_read_again())
		{
			phase = PHASE_READ;
			return false;
		}
		if (setting == NULL)
		{
			finish_pass(file ? due_at(file->mtime) : DT_NOEND);
			return false;
		}
		if (may_be_removed(file) && !add_to_plan(file, setting))
			return true;
		total_size -= file->size;
		next++;
	}
	return false;
}

static void
describe_failure(PaqRemoval *removal, const PaqOldFile *file, int error)
{
	snprintf(plan_path, sizeof(plan_path), "%s/%s", paq_log_directory, file->name);
	removal->count = 1;
	removal->bytes = file->size;
	removal->path = plan_path;
	removal->names = file->name;
	removal->setting = plan.setting;
	removal->error = errno = error;
}

/* Remove some of the group.  Returns false if one could not be, see *removal. */
static bool
remove_some(PaqRemoval *removal)
{
	while (!piece_is_done() && group < next)
	{
		const PaqOldFile *file = paq_oldest_file(group++);
		bool		removed;

		if (!file->planned)
			continue;
		if (!paq_oldest_remove(file, &removed))
		{
			describe_failure(removal, file, errno);
			file_failed(file);
			return false;
		}
		if (!removed)
			continue;
		removed_any = true;
		ereport(LOG,
				(errmsg("removed audit trail file \"%s/%s\"",
						paq_log_directory, file->name),
				 errdetail("It had %llu bytes; the reason is \"%s\".",
						   (unsigned long long) file->size, plan.setting)));
	}
	if (group == next)
	{
		if (removed_any)
			paq_oldest_sync();
		begin_plan();
	}
	return true;
}

/* See sink.h. */
PaqRetention
paq_file_retain(PaqRemoval *removal)
{
	if (begun_reload != PgReloadTime)
	{
		/* What was planned need not be what is wanted now. */
		end_pass();
		nstuck = 0;
		directory_stuck = false;
	}
	if (!is_possible())
		end_pass();
	else if (phase == PHASE_IDLE && pass_is_due())
		begin_pass();

	INSTR_TIME_SET_CURRENT(piece_begin);
	switch (phase)
	{
		case PHASE_IDLE:
			break;
		case PHASE_READ:
			read_some();
			break;
		case PHASE_PLAN:
			if (!plan_some())
				break;
			phase = PHASE_REMOVE;
			*removal = plan;
			return PAQ_RETENTION_PLANNED;
		case PHASE_REMOVE:
			if (!remove_some(removal))
				return PAQ_RETENTION_FAILED;
			break;
	}
	return phase == PHASE_IDLE ? PAQ_RETENTION_IDLE : PAQ_RETENTION_MORE;
}

/* See sink.h. */
TimestampTz
paq_file_next_retention(void)
{
	return phase == PHASE_IDLE && is_possible() ? next_due : DT_NOEND;
}
