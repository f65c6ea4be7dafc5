/*-------------------------------------------------------------------------
 *
 * shorten.h
 *		Records of a trail that are longer than a reader can hold.
 *
 * The server writes a record of any length: six gigabytes, if a statement of one is nothing
 * but control characters.  Whoever reads records decides from which length on they are
 * shortened, and gives them here piece by piece.  What is left is a record of the same format,
 * with all of its fields: only texts are cut, and what tells that is added.
 *
 *		json		strings are cut, and arrays and objects behind a member; "cut" is true
 *		csvlog		columns in quotes are cut; the column hint has the mark "cut"
 *		pgaudit		the record is cut as a whole; it ends in " <cut>"
 *
 * For the server and for programs.  Nothing here raises, but for lack of memory.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_SHORTEN_H
#define PAQ_SHORTEN_H

#include "c.h"

#include "lib/stringinfo.h"

/* What is left of a record is not longer, in bytes. */
#define PAQ_SHORT_MAX	(32 * 1024 * 1024)

typedef enum PaqShortFormat
{
	PAQ_SHORT_JSON,
	PAQ_SHORT_CSVLOG,
	PAQ_SHORT_PGAUDIT
} PaqShortFormat;

/* A record that is being shortened; all zeros at first */
typedef struct PaqShortener
{
	PaqShortFormat format;
	StringInfoData kept;		/* what is left of it so far; data NULL: no record yet */
	bool		in_string;		/* csvlog: in quotes */
	bool		skipping;		/* the rest of the string, or of a column */
	Size		string_kept;	/* bytes of the string that are kept */

	/* json */
	int			in_escape;		/* bytes that an escape still has */
	int			surrogate;		/* how much of the first half of a character it has */
	int			depth;			/* of arrays and objects */
	Size		member_kept;	/* bytes that are kept of the one that is a field */
	bool		skip_member;	/* its members from here on */

	/* csvlog */
	int			column;
	Size		column_start;	/* in what is kept */
} PaqShortener;

/*
 * A new record of that format begins.  What is kept of it will be in the memory context that is
 * current when the first one begins.
 */
extern void paq_shorten_begin(PaqShortener *shortener, PaqShortFormat format);

/* The next piece of the record, of any size. */
extern void paq_shorten_add(PaqShortener *shortener, const char *data, Size len);

/* That was all of it, but for the newline at its end: "kept" is what is left, without one. */
extern void paq_shorten_end(PaqShortener *shortener);

#endif							/* PAQ_SHORTEN_H */
