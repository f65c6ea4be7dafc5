/*-------------------------------------------------------------------------
 *
 * verify_text.c
 *		What pg_audit_trail verify has to say.
 *
 * Findings are printed as they come, up to MAX_FINDINGS; what is not covered, and what is worth
 * knowing, behind them.  Names may have been made to do something to the user's terminal, so no
 * line is printed as it is.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/verify.h"

#define MAX_FINDINGS	20

static int64 nfindings;
static Buffer rest;
static Buffer remarks;

static void put_line(Buffer *buf, const char *prefix, const char *fmt, va_list args)
	pg_attribute_printf(3, 0);

static void
put_line(Buffer *buf, const char *prefix, const char *fmt, va_list args)
{
	char		text[2 * MAXPGPATH];

	vsnprintf(text, sizeof(text), fmt, args);
	buffer_puts(buf, prefix);
	safe_put(buf, SAFE_LINE, text, strlen(text));
	buffer_putc(buf, '\n');
}

/* Report what is wrong. */
void
finding(const char *fmt,...)
{
	Buffer		line = {0};
	va_list		args;

	note_status(STATUS_ALTERED);
	if (++nfindings > MAX_FINDINGS)
		return;
	va_start(args, fmt);
	put_line(&line, nfindings == 1 ? _("FIRST FINDING: ") : _("finding: "), fmt, args);
	va_end(args);
	fwrite(line.data, 1, line.used, stdout);
	free(line.data);
}

/* How many there were */
int64
findings(void)
{
	return nfindings;
}

/* Say what is not covered by seals. */
void
uncovered(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	put_line(&rest, _("NOT COVERED: "), fmt, args);
	va_end(args);
}

/* Say what is worth knowing, but not wrong. */
void
remark(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	put_line(&remarks, _("note: "), fmt, args);
	va_end(args);
}

/* Print what there is behind the findings. */
void
print_remarks(void)
{
	if (nfindings > MAX_FINDINGS)
		printf(_(INT64_FORMAT " more finding%s\n"), nfindings - MAX_FINDINGS,
			   plural(nfindings - MAX_FINDINGS));
	fwrite(rest.data, 1, rest.used, stdout);
	fwrite(remarks.data, 1, remarks.used, stdout);
}

/* A time for people; valid for the next three calls */
const char *
time_text(int64 timestamp)
{
	static char texts[4][64];
	static int	next = 0;
	char	   *text = texts[next++ % lengthof(texts)];
	const time_t seconds = (time_t) (timestamp / USECS_PER_SEC +
									 (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY);

	strftime(text, sizeof(texts[0]), "%Y-%m-%d %H:%M:%S UTC", gmtime(&seconds));
	return text;
}
