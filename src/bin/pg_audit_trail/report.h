/*-------------------------------------------------------------------------
 *
 * report.h
 *		What the files of pg_audit_trail report share.
 *
 *	report.c			the command: reads the files
 *	report_collect.c	what is remembered of the records
 *	report_count.c		counts by name, in bounded memory
 *	report_days.c		days, weeks, months
 *	report_content.c	what the report says, and in which order
 *	report_grid.c		a table's cells
 *	report_text.c		the report as text
 *	report_html.c		the report as a page of HTML
 *	report_chart.c		charts of that page
 *
 * The report is not printed while records are read.  So what is remembered of them is
 * bounded: by the number of names that are counted, of events, of places and by the length
 * of each text.  Wherever that leaves something out, the report says so.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_REPORT_H
#define PAQ_REPORT_H

#include "bin/pg_audit_trail/program.h"

/* report_count.c */

/* Parts of which a name may consist */
#define NAME_PARTS		3

/* Places that are none: what was before the first sequence; nothing that may be elsewhere */
#define PLACE_BEFORE	(-1)
#define PLACE_NONE		(-2)

/* What has a name, or several that belong together */
typedef struct Counter
{
	uint64		hash;
	Text		part[NAME_PARTS];	/* as far as they are kept */
	Size		len[NAME_PARTS];	/* of the whole parts, bytes */
	int64		records;		/* since it is in the table */
	int64		failures;		/* of these */
	int64		missed;			/* records before that, at most */
	bool		has_time;
	int64		first;			/* of those that have a time, the earliest */
	int64		last;
	int64		sequence;		/* of a server: of the record that was added last, */
	int64		first_sequence; /* and of the first one */
	const char *path;			/* of a server: the file of the last record, */
	int64		place;			/* and, among the places, what is missing in front
								 * of it; or one of these */
	char	   *sample;			/* message of a failure; of a server, log_directory
								 * before the first sequence; NULL: none */
} Counter;

typedef struct CounterTable
{
	struct counter_hash *hash;	/* NULL: it is empty */
	int64		records;		/* all that were counted */
	int64		failures;
	int64		missed;			/* most records of a name that is not there */
} CounterTable;

extern Counter *counter_get(CounterTable *table, const Text *parts, int nparts);
extern Counter **counters_list(const CounterTable *table, int *count);
extern char *keep_text(Text text, Size max);

/* report_collect.c */

typedef enum TableId
{
	TABLE_DAYS,
	TABLE_SERVERS,				/* host, cluster name */
	TABLE_CLASSES,
	TABLE_USERS,
	TABLE_ACTIONS,				/* user, class, command */
	TABLE_COMMANDS,
	TABLE_READ,					/* objects, by what was done to them */
	TABLE_WRITTEN,
	TABLE_DEFINED,
	TABLE_CALLED,
	TABLE_DATABASES,
	TABLE_CLIENTS,
	TABLE_STATES,				/* of failures, but for those of logins */
	TABLE_FAILED_USERS,
	TABLE_LOGIN_NAMES,			/* of failed logins */
	TABLE_LOGIN_CLIENTS,
	TABLE_CHANGES,				/* user, class, command */
	NTABLES
} TableId;

/* Records of which the latest are remembered one by one */
typedef enum EventId
{
	EVENTS_GAP,
	EVENTS_DENIED,
	EVENTS_ROLE,
	EVENTS_CONFIG,
	EVENTS_DDL,
	NEVENTS
} EventId;

typedef struct Event
{
	bool		has_time;
	int64		time;
	int64		sequence;
	bool		has_start;
	int64		start;			/* in a gap, from when on records are missing */
	int64		rows;			/* -1: unknown */
	bool		failed;
	char	   *user;			/* each may be NULL */
	char	   *client;
	char	   *whom;			/* whom a setting is for */
	char	   *command;
	char	   *object;
	char	   *before;			/* of a setting; text is what it is now */
	char	   *text;
} Event;

typedef struct EventList
{
	int64		count;			/* of all there were */
	Event	   *ring;			/* the latest, the next one at count % size */
} EventList;

/* Where something is wrong with the trail */
typedef struct Place
{
	char	   *path;
	char	   *what;
} Place;

/* A day or more, or an hour of all days, whether or not there are records of it */
typedef struct Span
{
	int64		records;
	int64		failures;
	char		name[16];		/* "2026-11-20", "2026-11", "2026", "10:00" */
} Span;

typedef struct Report
{
	Options		options;
	int			nfiles;			/* that were read */
	int			unfinished;		/* the newest ones, if their last record is not whole */
	uint64		bytes;
	int64		read;			/* records, wanted or not */
	int64		records;		/* that are wanted, without heartbeats */
	int64		failures;
	int64		gaps;
	int64		lost;			/* records, as gaps say it */
	int64		vague_gaps;		/* that do not */
	int64		heartbeats;
	int64		interrupted;
	int64		shortened;		/* cut or incomplete */
	int64		timeless;
	int64		logins;
	int64		failed_logins;
	bool		has_time;
	int64		first;			/* times, and sequences of these records */
	int64		first_sequence;
	int64		last;
	int64		last_sequence;
	int64		silence;		/* the longest time without a record */
	int64		silence_from;
	int64		silence_to;
	int64		missing;		/* sequences between those of the files */
	int64		moved;			/* how often log_directory was changed there */
	int64		nplaces;		/* all there were */
	Place	   *places;			/* the first of them */
	Span		hours[24];
	Unnamed		unnamed;		/* records that name no object */
	CounterTable table[NTABLES];
	EventList	events[NEVENTS];
} Report;

extern void collect_record(Report *report, Record *record);
extern void collect_unwanted_gap(Report *report, Record *record);
extern void collect_sequence(Report *report, const TrailFile *file, Record *record);
extern void collect_place(Report *report, const char *path, const char *what);
extern const Event *event_of_list(const Report *report, EventId id, int64 number);

/* report_days.c */

typedef enum Unit
{
	UNIT_DAY,
	UNIT_WEEK,
	UNIT_MONTH,
	UNIT_YEARS
} Unit;

typedef struct Spans
{
	Unit		unit;
	int			years;			/* how many UNIT_YEARS has */
	int			count;
	Span	   *span;
} Spans;

extern int32 day_of_date(const struct tm *date);
extern void spans_make(Spans *spans, const CounterTable *days);

/* report_grid.c */

typedef enum ColumnKind
{
	COLUMN_NAME,				/* may be shortened */
	COLUMN_FIXED,				/* a time, a word of the program's own */
	COLUMN_NUMBER
} ColumnKind;

typedef struct GridColumn
{
	const char *title;
	ColumnKind	kind;
} GridColumn;

/* Texts of cells do nothing to a terminal. */
typedef struct Cell
{
	Size		start;			/* in the grid's text */
	Size		len;
	int			width;			/* columns */
	bool		bad;			/* a failure or the like */
	int64		number;			/* that it shows */
} Cell;

typedef struct Grid
{
	const char *title;			/* NULL: it needs none */
	int			ncolumns;
	const GridColumn *columns;
	int			ncells;
	int			size;
	Cell	   *cells;
	Buffer		text;
} Grid;

extern void grid_begin(Grid *grid, const char *title, const GridColumn *columns,
					   int ncolumns);
extern void grid_text(Grid *grid, Text text, bool is_whole);
extern void grid_string(Grid *grid, const char *string);
extern void grid_buffer(Grid *grid, const Buffer *buf);
extern void grid_word(Grid *grid, const char *word, bool bad);
extern void grid_number(Grid *grid, int64 number, bool bad);
extern void grid_id(Grid *grid, int64 number);
extern void grid_time(Grid *grid, bool has_time, int64 timestamp, const char *format);
extern Size text_fits(const char *data, Size len, int width, int *used);
extern void grid_free(Grid *grid);

/* Whoever writes the report */
typedef struct ReportWriter
{
	void		(*begin) (const char *title, const Options *options);
	void		(*section) (const char *title);
	void		(*note) (const char *text, bool bad);
	void		(*facts) (const Grid *grid);	/* of two columns, without titles */
	void		(*table) (const Grid *grid);
	void		(*long_table) (const Grid *grid, const char *summary);
	void		(*days_chart) (const Spans *spans, const char *title, bool failures);
	/* bars from the columns name, records, failures of a grid */
	void		(*bars_chart) (const Grid *grid);
	void		(*end) (void);
} ReportWriter;

/* report_content.c */
extern void report_write(const Report *report, const ReportWriter *writer);

/* report_text.c, report_html.c */
extern const ReportWriter text_writer;
extern const ReportWriter html_writer;

/* report_chart.c */
extern void chart_days(Buffer *buf, const Spans *spans, const char *title, bool failures,
					   int number);
extern void chart_bars(Buffer *buf, const Grid *grid, int number);
extern void html_put(Buffer *buf, const char *data, Size len);

#endif							/* PAQ_REPORT_H */
