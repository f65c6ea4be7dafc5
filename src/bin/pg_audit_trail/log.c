/*-------------------------------------------------------------------------
 *
 * log.c
 *		Messages on standard error.
 *
 * Whoever can make a file in the trail's directory chooses its name, and what it says of
 * itself.  A message that has such a text must do nothing to the terminal of whoever reads the
 * trail.  So PostgreSQL's macros for messages lead here, see program.h: there is no other way
 * out, but for plain_trouble(), whose messages have no such text.
 *
 * Guarantees: a message is one line, without control characters and invalid UTF-8, which are
 * shown as \x and two hexadecimal digits.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

/* Longest message, in bytes: more than a path */
#define MESSAGE_MAX		8192

void
log_message(enum pg_log_level level, enum pg_log_part part, const char *fmt,...)
{
	static Buffer safe;
	const int	save_errno = errno;
	char		text[MESSAGE_MAX];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	safe.used = 0;
	safe_put(&safe, SAFE_LINE, text, strlen(text));
	buffer_putc(&safe, '\0');
	pg_log_generic(level, part, "%s", safe.data);
	errno = save_errno;
}
