/*-------------------------------------------------------------------------
 *
 * program.h
 *		What the files of pg_audit_trail share.
 *
 *	pg_audit_trail.c	the commands
 *	options.c			their options
 *	time_option.c		times as users give them
 *	cat.c				pg_audit_trail cat
 *	follow.c			pg_audit_trail follow
 *	keygen.c			pg_audit_trail keygen
 *	report*.c			pg_audit_trail report: report.h has the map of these
 *	ship*.c, walk.c		pg_audit_trail ship: ship.h has the map of these
 *	verify*.c			pg_audit_trail verify: verify.h has the map of these
 *	files.c				the files of a trail, and their order
 *	source.c			records of a file, one after the other
 *	record.c			what a record has
 *	criteria.c			what a filter asks for
 *	filter.c			which records are wanted
 *	network.c			networks that clients are in
 *	transaction.c		which transactions were rolled back
 *	words.c				words of a statement
 *	print.c				records in any format
 *	server_format.c		formats csvlog and pgaudit, by the server's own code
 *	schema*.c			formats ocsf and ecs: schema.h has the map of these
 *	table.c				a table for people
 *	safe.c				texts that do nothing to a terminal
 *	log.c				messages, which are such texts
 *	progress.c			how far reading has got
 *	names.c				a number for each name
 *	buffer.c			memory that grows
 *	status.c			how the program ends, and standard output
 *
 * Errors of the trail are reported where they are found, and make the program end with
 * a status; it goes on with the next record or file.  Memory is bounded, whatever the
 * trail: by the longest record that source.c hands out, and by what a report counts.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_PROGRAM_H
#define PAQ_PROGRAM_H

#include "postgres_fe.h"

#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#include "common/logging.h"
#include "trail/layer.h"
#include "trail/line.h"
#include "trail/part.h"
#include "trail/shorten.h"

/* PostgreSQL 18 and later have it. */
#ifndef pg_noreturn
#define pg_noreturn		_Noreturn
#endif

/* How the program ends; scripts rely on these. */
typedef enum Status
{
	STATUS_FINE = 0,
	STATUS_ALTERED = 1,			/* the trail is, or it is incomplete */
	STATUS_TROUBLE = 2			/* usage, or environment */
} Status;

typedef enum Format
{
	FORMAT_JSON,
	FORMAT_CSVLOG,
	FORMAT_PGAUDIT,
	FORMAT_TABLE,				/* of output only, like the rest */
	FORMAT_OCSF,
	FORMAT_ECS,
	FORMAT_TEXT,				/* of a report */
	FORMAT_HTML
} Format;

/* buffer.c */

typedef struct Buffer
{
	char	   *data;
	Size		used;			/* bytes */
	Size		size;			/* bytes */
} Buffer;

extern void buffer_reserve(Buffer *buf, Size len);
extern void buffer_put(Buffer *buf, const char *data, Size len);
extern void buffer_puts(Buffer *buf, const char *str);
extern void buffer_printf(Buffer *buf, const char *fmt,...) pg_attribute_printf(2, 3);
extern void buffer_fill(Buffer *buf, char c, int count);
extern void *array_grow(void *array, int count, int *size, Size element);
extern void *checked_alloc(Size size);
extern char *checked_strdup(const char *str);
extern void buffer_grouped(Buffer *buf, int64 number);
extern const char *plural(int64 number);
extern uint64 hash_seed(void);

static inline void
buffer_putc(Buffer *buf, char c)
{
	if (unlikely(buf->used == buf->size))
		buffer_reserve(buf, 1);
	buf->data[buf->used++] = c;
}

/* names.c */

typedef struct Names
{
	struct name_hash *hash;		/* NULL: there are none */
} Names;

extern uint64 *names_find(const Names *names, const char *name);
extern uint64 *names_add(Names *names, const char *name, bool *found);

/* pg_audit_trail.c */
extern const char *progname;

/* status.c */
extern void output_put(const char *data, Size len);
extern void output_flush(void);
extern void note_status(Status status);
extern Status current_status(void);
pg_noreturn extern void leave(Status status);
extern volatile sig_atomic_t stopped;
extern void stop_on_signals(void);

/* log.c */
extern void log_message(enum pg_log_level level, enum pg_log_part part,
						const char *fmt,...) pg_attribute_printf(3, 4);

/* pg_fatal() is left to simplehash.h, which has no names to show. */
#undef pg_log_error
#undef pg_log_error_detail
#undef pg_log_error_hint
#undef pg_log_warning
#undef pg_log_warning_detail
#undef pg_log_warning_hint
#undef pg_log_info
#undef pg_log_info_detail
#undef pg_log_info_hint
#define pg_log_error(...)		log_message(PG_LOG_ERROR, PG_LOG_PRIMARY, __VA_ARGS__)
#define pg_log_error_hint(...)	log_message(PG_LOG_ERROR, PG_LOG_HINT, __VA_ARGS__)
#define pg_log_warning(...)		log_message(PG_LOG_WARNING, PG_LOG_PRIMARY, __VA_ARGS__)
#define pg_log_warning_hint(...) log_message(PG_LOG_WARNING, PG_LOG_HINT, __VA_ARGS__)
#define pg_log_info(...)		log_message(PG_LOG_INFO, PG_LOG_PRIMARY, __VA_ARGS__)

/* Report what makes it impossible to go on. */
#define trouble(...) \
	do { \
		pg_log_error(__VA_ARGS__); \
		leave(STATUS_TROUBLE); \
	} while (0)

/* The same, without names in the message, where log_message() may be what fails. */
#define plain_trouble(...) \
	do { \
		pg_log_generic(PG_LOG_ERROR, PG_LOG_PRIMARY, __VA_ARGS__); \
		leave(STATUS_TROUBLE); \
	} while (0)

/* record.c */

/* A text of a record; data is NULL if it is null. */
typedef struct Text
{
	const char *data;
	Size		len;			/* bytes */
} Text;

/*
 * A record of a file.  Only those in format json have fields.
 */
typedef struct Record
{
	const char *data;			/* as the file has it, newline included */
	Size		len;
	Format		format;
	int64		nparts;			/* lines that it was put together from, or 1 */
	bool		continues;		/* it is a further part of the record that was
								 * handed out before it, and no record by itself */
	int64		more;			/* parts of it that should come behind it */
	PaqLine		line;
	uint64		decoded;		/* fields whose text is known, by bits */
	bool		bytes;			/* how texts are decoded, see record_decode_as() */
	Text		text[PAQ_TRAIL_NFIELDS];
	Buffer		arena;			/* of decoded texts */
} Record;

extern bool record_parse(Record *record);
extern Text record_part_text(const Record *record, const PaqValue *part, Buffer *buf);
extern void record_decode_as(Record *record, bool bytes);
extern Text record_text(Record *record, PaqTrailField field);
extern bool record_is(Record *record, PaqTrailField field, const char *value);
extern bool record_is_gap(Record *record);
extern bool record_has_failed(Record *record);
extern int64 record_number(const Record *record, PaqTrailField field);
extern bool record_time(const Record *record, int64 *timestamp, int64 *sequence);

/* time_option.c */
extern bool parse_time_option(const char *text, int64 *timestamp);
extern int64 local_time(int64 wall_clock);
extern bool local_tm(int64 timestamp, struct tm *tm);
extern int64 current_time(void);

/* network.c */

typedef struct Network
{
	int			address_bits;	/* of an address, 32 or 128; 0: Unix-domain sockets */
	int			bits;			/* of these that are the network's */
	unsigned char address[16];
} Network;

extern bool network_parse(Network *network, const char *text);
extern bool network_has(const Network *network, Text host);

/* criteria.c */

/* Words, any of which will do; with * and ? as wildcards, but for texts */
typedef struct Patterns
{
	int			count;			/* 0: everything will do */
	char	  **pattern;
} Patterns;

/* Classes whose records may name no object, and how many of each have named none */
#define NUNNAMED	3

typedef struct Unnamed
{
	int64		records[NUNNAMED];
} Unnamed;

typedef struct Filter
{
	bool		has_from;
	bool		has_to;
	int64		from;			/* microseconds since 2000-01-01 UTC */
	int64		to;				/* and before this */
	int64		from_sequence;	/* 0: any */
	int64		to_sequence;
	Patterns	type;
	Patterns	class;
	Patterns	command;
	Patterns	user;
	Patterns	database;
	Patterns	object;
	Patterns	session;
	Patterns	outcome;
	Patterns	address;
	Network    *networks;		/* that these are */
	Patterns	setting;		/* name=value */
	Patterns	transaction;	/* transaction ids, or virtual ones */
	Patterns	text;
	bool		has_rows;
	int64		from_rows;
	int64		to_rows;		/* and no more than these */
	bool		superuser;		/* only what superusers did */

	/* records that nothing else has left out */
	Unnamed		unnamed;		/* but that they name no object */
	int64		unknown_roles;	/* but that they do not say who is a superuser */
} Filter;

extern void patterns_add(Patterns *patterns, const char *pattern, Size len);
extern bool word_matches(Text text, const char *pattern, bool any_case);
extern bool is_transaction_id(const char *word);
extern bool filter_wants_undone(const Filter *filter);
extern bool filter_in_sequences(const Filter *filter, const Record *record);
extern bool filter_in_range(const Filter *filter, const Record *record);
extern bool filter_is_empty(const Filter *filter);
extern bool filter_needs_fields(const Filter *filter);

/* filter.c */
extern bool unnamed_count(Unnamed *unnamed, Record *record);
extern int64 unnamed_describe(const Unnamed *unnamed, Buffer *buf);
extern void filter_note_left_out(const Filter *filter);
extern bool filter_matches(Filter *filter, Record *record);
extern bool filter_concerns_gap(const Filter *filter, const Record *record);
extern void filter_describe(const Filter *filter, Buffer *buf);

/* options.c */

typedef enum Colors
{
	COLORS_AUTO,
	COLORS_ALWAYS,
	COLORS_NEVER
} Colors;

typedef struct Options
{
	Format		format;
	const char *format_option;	/* that says so, NULL: none */
	PaqKeys    *keys;			/* NULL: none */
	Colors		colors;
	bool		progress;
	Filter		filter;
	int64		limit;			/* of records, -1: none */
	bool		count;			/* print only how many there are */
	bool		all;			/* follow: from the first record on */
	int64		last;			/* follow: so many, before those that are new */
	int			top;			/* report: lines of a list, at most */
	int			npaths;
	char	  **paths;
} Options;

/* Commands that have these options */
typedef enum Reader
{
	READER_CAT,
	READER_FOLLOW,
	READER_REPORT
} Reader;

/* Bytes of a file with secrets, at most */
#define SECRETS_MAX		(64 * 1024)

struct option;

pg_noreturn extern void wrong_usage(void);
extern int	next_option(int argc, char **argv, const char *letters,
					   const struct option *options);
extern int	open_secret_file(const char *what, const char *path, int flags);
extern Size read_secret_file(const char *what, const char *path, char *text);
extern PaqKeys *read_keys(const char *path);
extern void parse_options(Options *options, Reader reader, int argc, char **argv);
extern const char *format_name(Format format);

/* files.c */

typedef struct TrailFile
{
	char	   *path;
	const char *name;			/* the path's last part */
	Format		format;
	dev_t		device;
	ino_t		inode;
	uint64		size;			/* bytes, when it was looked at */
	int64		written;		/* when it had been then, see time_written() */
	bool		is_stdin;
	bool		is_named;		/* the user has named it, not found in a directory */
	bool		has_time;		/* does any record have one? */
	int64		time;			/* of the first that has, microseconds */
	int64		sequence;		/* of that one, 0 if unknown */
	bool		is_old;			/* follow: it is not to be read any more */
} TrailFile;

typedef struct FileList
{
	int			count;
	int			size;
	TrailFile  *files;
} FileList;

extern bool format_of_name(const char *name, Format *format);
extern bool add_directory(FileList *list, const char *path);
extern bool add_path(FileList *list, const char *path);
extern int64 time_written(const struct stat *st);
extern void find_file_time(TrailFile *file, const PaqKeys *keys);
extern void sort_files(FileList *list, const PaqKeys *keys);
extern void free_files(FileList *list);
extern bool is_newest_file(const TrailFile *file, const PaqKeys *keys);
extern bool fits_format(const TrailFile *file, const Options *options);
extern void refuse_format(const TrailFile *file, const Options *options);
extern void check_formats(const FileList *list, const Options *options);
extern bool note_cut(const TrailFile *file, const PaqKeys *keys);
extern uint64 files_size(const FileList *list);

/* words.c */

/* What is left of a statement */
typedef struct Words
{
	const char *p;
	const char *end;
} Words;

extern void words_skip_space(Words *words);
extern bool words_take(Words *words, const char *word);
extern bool words_take_name(Words *words, uint64 *hash);
extern bool words_at_end(Words *words);
extern bool words_skip(Words *words);

/* transaction.c */
extern void transactions_read(const Options *options, const FileList *files);
extern bool transaction_is_undone(Record *record);
extern bool transaction_is_wanted(Record *record);

/* source.c */

typedef struct Source Source;

typedef enum SourceResult
{
	SOURCE_RECORD,
	SOURCE_END,
	SOURCE_CUT,					/* the file ends within a record or unit */
	SOURCE_FAILED				/* it cannot be read on, which has been said */
} SourceResult;

extern Source *source_open(const TrailFile *file, const PaqKeys *keys, bool quiet);
extern SourceResult source_next(Source *source, Record *record);
extern bool source_follow_truncation(Source *source);
extern bool source_is_damaged(const Source *source);
extern void source_join(Source *source, bool grows);
extern void source_limit(Source *source, uint64 limit);
extern bool source_seek(Source *source, uint64 offset);
extern uint64 source_mark(Source *source);
extern bool source_is_file(const Source *source, const struct stat *st);
extern uint64 source_position(const Source *source);
extern uint64 source_bad_lines(const Source *source);
extern void source_close(Source *source);

/* print.c */
extern bool wants_colors(const Options *options);
extern void print_begin(const Options *options);
extern void print_record(const Options *options, Record *record);

/* server_format.c */
extern void record_restore(Record *record, PaqRecord *to);
extern void server_format_write(Buffer *buf, Record *record, Format format);

/* schema_ocsf.c, schema_ecs.c */
extern void ocsf_write(Buffer *buf, Record *record);
extern void ecs_write(Buffer *buf, Record *record);

/* table.c */
extern int	output_width(void);
extern void table_begin(bool colors);
extern void table_write(Buffer *buf, Record *record);

/* safe.c */

typedef enum SafeStyle
{
	SAFE_LINES,					/* leave newlines and tabs alone */
	SAFE_LINE,					/* escape them, too */
	SAFE_JSON					/* in JSON's way */
} SafeStyle;

extern int	safe_put_char(Buffer *buf, SafeStyle style, const char *p, Size len, int *width);
extern void safe_put(Buffer *buf, SafeStyle style, const char *data, Size len);

/* progress.c */
extern void progress_begin(const Options *options, uint64 total);
extern void progress_report(uint64 done, bool finished);
extern bool progress_is_shown(void);

/* cat.c, follow.c, keygen.c, report.c, ship.c, verify.c */
extern void run_cat(int argc, char **argv);
extern void run_follow(int argc, char **argv);
extern void run_keygen(int argc, char **argv);
extern void run_report(int argc, char **argv);
extern void run_ship(int argc, char **argv);
extern void run_verify(int argc, char **argv);

#endif							/* PAQ_PROGRAM_H */
