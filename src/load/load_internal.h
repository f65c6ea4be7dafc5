/*-------------------------------------------------------------------------
 *
 * load_internal.h
 *		The loader among its own files.
 *
 *	launch.c		in the worker: starts the loader when there is need of one
 *	loader.c		the process: connection, main loop, what to do on errors
 *	files.c			which file is next, and its lines
 *	text.c			a line in the encoding of the database
 *	row.c			a line as a row for COPY
 *	table.c			a batch of rows, as one transaction
 *	partition.c		partitions of the table: made ahead, dropped by age
 *	removal.c		the record of a partition that will be dropped
 *
 * Everything but launch.c runs in the loader, and is private to it: nothing
 * here is shared or locked.
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

/* Longest line, in bytes, that becomes a row with all its texts; see row.c */
#define PAQ_MAX_LINE		(32 * 1024 * 1024)

/* A line of a file, without its newline; valid until the next one is read */
typedef struct PaqLoadLine
{
	const char *path;			/* of the file */
	const char *data;			/* the line's first PAQ_MAX_LINE bytes */
	uint64		len;			/* of all of it, bytes */
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
} PaqBatch;

/* files.c */
extern bool paq_files_scan(void);
extern bool paq_files_next_line(PaqLoadLine *line, uint64 limit);
extern void paq_files_skip_line(void);
extern void paq_files_keep(void);
extern bool paq_files_removable(uint64 settled);
extern void paq_files_loaded(uint64 settled);
extern void paq_files_forget(void);

/* text.c */
extern const char *paq_load_text(const char *line, Size *len);

/* row.c */
extern bool paq_row_add(PaqBatch *batch, const PaqLoadLine *line);
extern List *paq_row_columns(void);

/* table.c */
extern uint64 paq_table_sequence(uint64 series);
extern void paq_table_load(PaqBatch *batch);
extern Oid	paq_table_oid(void);
extern void paq_table_forget(void);

/* partition.c */
extern int	paq_day_of(TimestampTz time);
extern void paq_partition_need(int day);
extern void paq_partitions_make_ahead(TimestampTz now);
extern bool paq_partitions_drop_oldest(TimestampTz now, bool *recording);
extern void paq_partitions_forget(void);

/* removal.c */
extern bool paq_removal_is_recorded(Oid partition, const char *name,
									uint64 bytes);

#endif							/* PAQ_LOAD_INTERNAL_H */
