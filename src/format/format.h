/*-------------------------------------------------------------------------
 *
 * format.h
 *		How a record becomes text.
 *
 * A format writes a record into a PaqBuffer, byte by byte in order; when the
 * buffer is full, its owner's drain callback empties it, so that a record of
 * any length is formatted in bounded memory.  Formats never fail: a failing
 * drain callback makes the rest of the record go nowhere and sets failed.
 * A format may want some space beyond what it writes: PAQ_FORMAT_HEADROOM.
 *
 * All that a format writes it has from the record and its PaqServer, so that the server
 * and programs write the same.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_FORMAT_H
#define PAQ_FORMAT_H

#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "record/record.h"

/*
 * In bytes.  The buffer that a record is written into must be larger than this,
 * and if it is not drained, larger by this than the record.
 */
#define PAQ_FORMAT_HEADROOM	1024

typedef struct PaqBuffer
{
	char	   *data;
	Size		used;			/* bytes */
	Size		size;			/* bytes */
	bool		failed;			/* drain failed; output is discarded */

	/*
	 * Make space: take the used bytes and set used to 0, or enlarge data.
	 * False on failure; NULL fails always.
	 */
	bool		(*drain) (struct PaqBuffer *buf);
} PaqBuffer;

typedef struct PaqFormat
{
	const char *extension;		/* of file names, with the dot */
	bool		has_heartbeats; /* can show such records */
	bool		has_parts;		/* shows PaqPart; a line is a JSON object, and each
								 * field from the series on is behind a comma */

	/* Append one record, ending in a newline. */
	void		(*write) (PaqBuffer *buf, const PaqRecord *record);

	/*
	 * Length of the written record at the start of data, newline included; 0
	 * if it does not end within len bytes.
	 */
	Size		(*record_length) (const char *data, Size len);

	/*
	 * Data begins anywhere in a record, which cannot be read: length up to
	 * where the next one begins, as far as that can be told from what the
	 * format writes; 0 if there is no such place within len bytes.
	 */
	Size		(*rest_length) (const char *data, Size len);

	/*
	 * Where in a written record its sequence is, or its series: the digits from
	 * *start on, which is where to begin looking before.  False if the format
	 * shows neither from there on.
	 */
	bool		(*find_number) (const char *line, Size len,
						Size *start, Size *digits, bool *is_series);
} PaqFormat;

/*
 * The formats; each function returns the same pointer every time.
 * log_line_prefix for pgaudit is read from *prefix each time, json_nulls from
 * *json_nulls, so that a reload takes effect; the caller owns the variables.
 */
extern const PaqFormat *paq_format_pgaudit(char **prefix);
extern const PaqFormat *paq_format_csvlog(void);
extern const PaqFormat *paq_format_json(const bool *json_nulls);

/* text.c: the sequence of a written record, 0 if the format does not show it */
extern uint64 paq_find_sequence(const PaqFormat *format, const char *line, Size len);

/*
 * The part of a pgaudit line after "LOG:  ", for showing a record to the
 * client that caused it: "AUDIT: SESSION,1,1,...".
 */
extern void paq_format_message(PaqBuffer *buf, const PaqRecord *record);

#endif							/* PAQ_FORMAT_H */
