/*-------------------------------------------------------------------------
 *
 * guc_patterns.c
 *		The setting mask_patterns: a list of regular expressions.
 *
 * A list is split and tried out before it becomes the setting.  Whoever uses
 * the patterns compiles them for the encoding of the database, which is not
 * known yet when the configuration file is read.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "guc.h"
#include "mb/pg_wchar.h"
#include "utils/guc.h"
#include "utils/varlena.h"

const char *paq_mask_patterns = "";
uint32		paq_mask_patterns_version = 0;

/*
 * The encoding in which to try a pattern out: before there is a database,
 * whichever fits.
 */
static int
pattern_encoding(const char *pattern)
{
	if (GetDatabaseEncoding() == PG_SQL_ASCII &&
		pg_encoding_verifymbstr(PG_UTF8, pattern, strlen(pattern)) == strlen(pattern))
		return PG_UTF8;
	return GetDatabaseEncoding();
}

/* Is it a regular expression?  If not, say so. */
static bool
check_pattern(const char *pattern)
{
	const int	len = strlen(pattern);
	pg_wchar   *wide;
	regex_t		regex;
	char		message[100];
	int			code;

	if (len == 0)
	{
		GUC_check_errdetail("A regular expression is empty.");
		return false;
	}
	wide = palloc((len + 1) * sizeof(pg_wchar));
	code = paq_regcomp(&regex, wide,
					   pg_encoding_mb2wchar_with_len(pattern_encoding(pattern),
													 pattern, wide, len));
	pfree(wide);
	if (code != REG_OKAY)
	{
		pg_regerror(code, &regex, message, sizeof(message));
		GUC_check_errdetail("Regular expression \"%s\" is not valid: %s.",
							pattern, message);
		return false;
	}
	pg_regfree(&regex);
	return true;
}

/*
 * Check the list.  Its patterns, one behind the other, each with its
 * terminator, and another terminator at the end, become *extra.
 */
bool
paq_check_mask_patterns(char **newval, void **extra, GucSource source)
{
	char	   *raw = pstrdup(*newval);
	List	   *patterns = NIL;
	ListCell   *lc;
	char	   *packed;
	bool		ok;

	/* no element is longer than it is in the list, so this is enough */
	if (!paq_extra_make(extra, source, strlen(raw) + 2))
		return false;
	packed = paq_extra_data(*extra);

	ok = SplitGUCList(raw, ',', &patterns);
	if (!ok)
	{
		GUC_check_errdetail("List syntax is invalid.");
		GUC_check_errhint("Put each regular expression that contains commas or spaces in double quotes.");
	}
	foreach(lc, patterns)
	{
		const char *pattern = (const char *) lfirst(lc);

		ok = ok && check_pattern(pattern);
		if (!ok)
			break;
		strcpy(packed, pattern);
		packed += strlen(pattern) + 1;
	}
	*packed = '\0';
	list_free(patterns);
	pfree(raw);
	if (!ok)
	{
		paq_guc_free(*extra);
		*extra = NULL;
	}
	return ok;
}

void
paq_assign_mask_patterns(const char *newval, void *extra)
{
	paq_assign_string("pg_audit_queue.mask_patterns", newval, extra);
	paq_mask_patterns = paq_extra_data(extra);
	paq_mask_patterns_version++;
}
