/*-------------------------------------------------------------------------
 *
 * mask.c
 *		Removal of passwords from statement texts.
 *
 * This happens before a record is made, so that what is masked never enters
 * shared memory or the queue file.  It covers what pgaudit covers: the text of
 * CREATE and ALTER ROLE, and their like, as a statement of its own.
 *
 * Must not raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "utils/memutils.h"

#define PASSWORD_WORD	"password"
#define REDACTED		" <REDACTED>"

/*
 * Does the text of a statement about a role have a password?  If so, *masked
 * is a copy, in TopMemoryContext, in which everything behind the first
 * "password", in any case, is replaced; NULL when out of memory.
 */
bool
paq_mask_password(const char *text, char **masked)
{
	const Size	word_len = strlen(PASSWORD_WORD);
	const char *p = text;
	Size		keep;

	while (*p != '\0' && pg_strncasecmp(p, PASSWORD_WORD, word_len) != 0)
		p++;
	if (*p == '\0')
		return false;

	keep = p - text + word_len;
	*masked = MemoryContextAllocExtended(TopMemoryContext,
										 keep + sizeof(REDACTED),
										 MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (*masked != NULL)
	{
		memcpy(*masked, text, keep);
		memcpy(*masked + keep, REDACTED, sizeof(REDACTED));
	}
	return true;
}
