/*-------------------------------------------------------------------------
 *
 * settings.c
 *		log_settings: values of settings by which an application tells on whose
 *		behalf it works.
 *
 * The values are those of the moment when a record is made.  Any user can set most
 * settings to anything, so they are what the session claims, and no proof.
 *
 * Guarantees: a list of limited length, whatever the values are.
 *
 * Must neither raise nor read a catalog, and needs memory only for a value with
 * something to mask: for use anywhere, also while an error is being handled, in a
 * transaction that has failed, and before a session has logged in.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "mb/pg_wchar.h"

/* Longest value that a record has whole, in bytes */
#define MAX_VALUE	1024

/* A longer one is looked at for mask_patterns so far beyond that, bytes. */
#define CUT_MARGIN	1024

/* Longest setting in the list: two lengths, a name, a value */
#define MAX_SETTING	(2 * sizeof(int32) + NAMEDATALEN + MAX_VALUE)

/* The list; its texts are valid until it is made anew. */
static char list[PAQ_MAX_NAMES * MAX_SETTING];
static uint32 list_len;

/* Append a name or a value, len bytes of it; NULL is null. */
static void
add_element(const char *text, int32 len)
{
	const int32 length = paq_param_length(text != NULL ? len : PAQ_PARAM_NULL);

	memcpy(list + list_len, &length, sizeof(length));
	list_len += sizeof(length);
	if (text == NULL)
		return;
	memcpy(list + list_len, text, len);
	list_len += len;
}

/* The value as it may be recorded: without secrets, cut at a character. */
static void
add_value(const char *value, uint32 *flags)
{
	char		beginning[MAX_VALUE + CUT_MARGIN + 1];
	PaqMasked	shown;
	Size		len = strlen(value);
	Size		cut = 0;

	/* Of a longer one, what mask_patterns matches is recognized if it ends within the margin. */
	if (unlikely(len > MAX_VALUE + CUT_MARGIN))
	{
		len = pg_encoding_mbcliplen(GetDatabaseEncoding(), value, Min(len, INT_MAX),
									MAX_VALUE + CUT_MARGIN);
		memcpy(beginning, value, len);
		beginning[len] = '\0';
		value = beginning;
		cut = CUT_MARGIN;
	}
	paq_mask_value(value, false, 0, &shown);
	*flags |= paq_masked_flags(&shown) | (cut > 0 ? PAQ_RECORD_CUT : 0);
	len = shown.len - Min(shown.len, cut);
	if (cut > 0)
		len = pg_encoding_mbcliplen(GetDatabaseEncoding(), shown.text, shown.len, len);
	if (unlikely(len > MAX_VALUE))
	{
		len = pg_encoding_mbcliplen(GetDatabaseEncoding(), shown.text,
									Min(len, INT_MAX), MAX_VALUE);
		*flags |= PAQ_RECORD_CUT;
	}
	add_element(shown.text, len);
	if (shown.copy != NULL)
		pfree(shown.copy);
}

/*
 * The list for PAQ_FIELD_SETTINGS, valid until the next call; flags of the record
 * that follow from its values are added to *flags.  Call only if there are names.
 */
PaqText
paq_encode_settings(uint32 *flags)
{
	list_len = 0;
	for (const char *name = paq_log_settings; *name != '\0'; name += strlen(name) + 1)
	{
		const char *value = GetConfigOption(name, true, false);

		add_element(name, strlen(name));
		if (value == NULL)
			add_element(NULL, 0);
		else if (paq_mask_setting_is_secret(name))
			add_element(PAQ_REDACTED, strlen(PAQ_REDACTED));
		else
			add_value(value, flags);
	}
	return (PaqText){ list, list_len };
}
