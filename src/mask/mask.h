/*-------------------------------------------------------------------------
 *
 * mask.h
 *		Texts without the secrets in them, before they become part of a record.
 *
 * Guarantees:
 *
 * - Outside of literals not one byte of an SQL text changes, so what a
 *	 statement does can always be read.  Only the secret part of a literal is
 *	 replaced.
 * - A text is never left out.  If its secrets cannot be told from the rest, the
 *	 contents of all its literals are replaced, and the result says so.
 * - No function raises an error, whatever the text, but that of an interrupt, see below.
 *	 Time and memory are linear in its length, unless a regular expression of the
 *	 administrator's takes more.
 * - Whoever cancels a statement, or ends its session, does not wait for the masking
 *	 of a long text: where the caller says so, the interrupt is served, so the
 *	 statement does not go on; elsewhere the text is cut.  Where no interrupt is served,
 *	 only texts of up to 256 kB are searched for mask_patterns, and no match is searched
 *	 for that is not begun within 0.2 s; then all literals are masked.
 *	 Shown by t/mask/mask_cancel.pl.
 *
 * Locking: none, everything is local to the process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_MASK_H
#define PAQ_MASK_H

#include "postgres.h"

#include "nodes/pg_list.h"

/* What is shown in place of a secret */
#define PAQ_REDACTED	"<REDACTED>"

/* How a text is to be masked */
#define PAQ_MASK_SCAN		0x01	/* no error is being handled: PostgreSQL's scanner may be
									 * called, and interrupts served */
#define PAQ_MASK_CONSTANTS	0x02	/* replace all constants by $1, $2, ... */
#define PAQ_MASK_WHOLE		0x04	/* the statement has succeeded: its text is not cut because
									 * somebody wants to end it */

/* A text as it may be recorded */
typedef struct PaqMasked
{
	const char *text;			/* terminated, if it is not the original */
	Size		len;
	char	   *copy;			/* to be pfree'd; NULL: nothing */
	bool		all;			/* not only secrets: literals are masked */
	bool		cut;			/* only the beginning is there: for want of memory, or
								 * because it was given up */
} PaqMasked;

extern void paq_mask_text(const char *text, int options, PaqMasked *shown);
extern void paq_mask_value(const char *value, bool is_text, int options,
						   PaqMasked *shown);
extern void paq_mask_message(const char *message, const char *statement,
							 PaqMasked *shown);
extern bool paq_mask_param_rules(const char *text, List **rules);
extern bool paq_mask_setting_is_secret(const char *name);

/* Bits: the values of standard_conforming_strings that texts have been parsed with */
extern uint8 paq_mask_parsed_with;
extern void paq_mask_note_first_parse(uint8 bit);

#define PAQ_PARSED_WITH(conforming)	((conforming) ? 0x01 : 0x02)

/*
 * A statement is analysed whose text has been parsed with that value of
 * standard_conforming_strings or, if it is one of several in a text, with one that was noted for
 * the first of these.  As long as a session has parsed all texts with the same value, each of
 * them can be read in one way only.
 */
static inline void
paq_mask_note_parse(bool conforming)
{
	if (unlikely((paq_mask_parsed_with & PAQ_PARSED_WITH(conforming)) == 0))
		paq_mask_note_first_parse(PAQ_PARSED_WITH(conforming));
}

#endif							/* PAQ_MASK_H */
