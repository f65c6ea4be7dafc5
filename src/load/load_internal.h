/*-------------------------------------------------------------------------
 *
 * load_internal.h
 *		The loader among its own files.
 *
 *	loader.c		the process: start, connection, main loop, what to do on errors
 *	files.c			which file is next, and its lines
 *	row.c			a line as a row for COPY
 *	table.c			a batch of rows, as one transaction; partitions; the table itself
 *	retention.c		the record of what is removed; what goes with old partitions
 *	guard.c			in sessions: keeps them from the table's TOAST tables
 *
 * Everything but the start of the loader and guard.c runs in the loader, and is
 * private to it: nothing here is shared or locked.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_LOAD_INTERNAL_H
#define PAQ_LOAD_INTERNAL_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "sink/load_file.h"

#define PAQ_LOADER_NAME		"pg_audit_queue loader"

/* Of the table and its partitions */
#define PAQ_TABLE_SCHEMA	"audit_queue"

/* A line of a file, without its newline; valid until the next one is read */
typedef struct PaqLoadLine
{
	const char *path;			/* of the file */
	const char *data;			/* shortened if it is too long */
	Size		len;			/* of data, bytes */
	bool		shortened;
	uint64		series;
	uint64		sequence;		/* 0: the line tells none, so it is damaged */
} PaqLoadLine;

/* Rows on their way into the table, all of one series */
typedef struct PaqBatch
{
	MemoryContext context;		/* of all below */
	uint64		series;
	uint64		before;			/* sequence that the table has reached */
	uint64		sequence;		/* the one that it reaches with the batch */
	uint64		count;			/* of rows */
	StringInfoData rows;		/* in COPY's text format */
	List	   *days;			/* of rows, see paq_day_of(), each once; ints */
	List	   *columns;		/* of rows, see paq_table_columns() */
} PaqBatch;

/* files.c */
extern bool paq_files_scan(void);
extern bool paq_files_next_line(PaqLoadLine *line, uint64 limit);
extern void paq_files_skip_line(const PaqLoadLine *line);
extern void paq_files_keep(void);
extern bool paq_files_removable(uint64 settled);
extern void paq_files_loaded(uint64 settled, int first_day);
extern bool paq_files_known(void);
extern bool paq_files_have(uint64 series, uint64 *start);
extern void paq_files_forget(void);

/* row.c */
extern int	paq_day_of(TimestampTz time);
extern TimestampTz paq_start_of(int day);
extern bool paq_row_add(PaqBatch *batch, const PaqLoadLine *line);
extern bool paq_row_day(const PaqLoadLine *line, int *day);

/* table.c */
extern uint64 paq_table_sequence(uint64 series, uint64 start);
extern List *paq_table_columns(void);
extern void paq_table_load(PaqBatch *batch);
extern uint64 paq_table_count(uint64 series, uint64 after, uint64 last,
							  int first_day);
extern uint64 *paq_table_old_series(TimestampTz since, uint64 *count);
extern void paq_table_forget_series(uint64 series);
extern void paq_table_forget(void);
extern int	paq_first_day(TimestampTz now);
extern void paq_partitions_make_ahead(TimestampTz now);
extern bool paq_partitions_drop_oldest(TimestampTz now, bool *recording);

/* removal.c */
extern bool paq_removal_is_recorded(const char *type, const char *object,
									const char *name, uint64 bytes);
extern void paq_removal_done(void);

/* retention.c */
extern bool paq_expire(TimestampTz now);

#endif							/* PAQ_LOAD_INTERNAL_H */
