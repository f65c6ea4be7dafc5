/*-------------------------------------------------------------------------
 *
 * prefix.c
 *		The prefix of a line: PostgreSQL's log_line_prefix, from a record.
 *
 * The pattern has PostgreSQL's escapes and paddings and prints what
 * PostgreSQL would print, except that all values are the record's, not those
 * of the process that writes the line:
 *
 *	%t %m %n	when the statement ended
 *	%e			the statement's outcome
 *	%i			its command tag
 *	%l			number of the record in its session
 *	%P			nothing: parallel workers make no records
 *	%L			[local] for a Unix-domain socket, [none] without a client, else
 *				[unknown], as records do not have the server's address
 *
 * Guarantees: the pattern is parsed when it changes, not for each record.
 * May raise out of memory when it changes.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format/format_internal.h"
#include "utils/memutils.h"

/* Widest padding: keeps a mistyped number from filling the disk. */
#define MAX_PADDING		1000

/* The text of an escape, if it is not in the record itself */
#define SCRATCH_SIZE	PAQ_TIME_TEXT

typedef struct PrefixItem
{
	char		escape;			/* letter after '%', 0 for literal text */
	int			padding;		/* as for "%*s": negative is to the right */
	const char *literal;		/* if escape is 0 */
	int			literal_len;
} PrefixItem;

/* The pattern as it was when parsed, and what it was parsed into */
static char *parsed_pattern = NULL;
static PrefixItem *items = NULL;
static int	nitems = 0;

static const PaqText nothing = {NULL, 0};

/* Is it an escape at all?  What is not prints nothing, not even padding. */
static bool
is_escape(char c)
{
	return c != '\0' && strchr("abcdehilmnpqrstuvxLPQ", c) != NULL;
}

/*
 * Parse what follows a '%' up to and including the letter.  Returns where the
 * next item starts; NULL if the pattern ends in the middle of an escape,
 * which ends the prefix.
 */
static const char *
parse_escape(const char *p, PrefixItem *item)
{
	bool		negative = false;
	int			padding = 0;

	if (*p == '%')
	{
		item->literal = p;
		item->literal_len = 1;
		return p + 1;
	}
	if (*p == '-')
	{
		negative = true;
		p++;
	}
	for (; *p >= '0' && *p <= '9'; p++)
		padding = Min(padding * 10 + (*p - '0'), MAX_PADDING);
	if (*p == '\0')
		return NULL;
	item->escape = *p;
	item->padding = negative ? -padding : padding;
	return p + 1;
}

static void
parse_pattern(const char *pattern)
{
	Size		len = strlen(pattern);
	char	   *copy = MemoryContextStrdup(TopMemoryContext, pattern);
	PrefixItem *new_items;
	const char *p = copy;
	int			n = 0;

	/* Each item takes at least one byte of the pattern. */
	new_items = MemoryContextAllocZero(TopMemoryContext,
									   (len + 1) * sizeof(PrefixItem));
	while (p != NULL && *p != '\0')
	{
		PrefixItem *item = &new_items[n++];

		if (*p == '%')
		{
			p = parse_escape(p + 1, item);
			if (item->literal == NULL && !is_escape(item->escape))
				memset(&new_items[--n], 0, sizeof(PrefixItem));
			continue;
		}
		item->literal = p;
		item->literal_len = strcspn(p, "%");
		p += item->literal_len;
	}

	if (parsed_pattern != NULL)
	{
		pfree(parsed_pattern);
		pfree(items);
	}
	parsed_pattern = copy;
	items = new_items;
	nitems = n;
}

/*
 * A field of the client's connection: nothing without a client, and
 * "[unknown]" if the client did not say.
 */
static PaqText
client_text(const PaqRecord *record, PaqField field)
{
	static const PaqText unknown = {"[unknown]", 9};

	if (!paq_record_has_client(record))
		return nothing;
	return record->field[field].len == 0 ? unknown : record->field[field];
}

static PaqText
local_address_text(const PaqRecord *record)
{
	static const PaqText none = {"[none]", 6};
	static const PaqText unknown = {"[unknown]", 9};

	if (!paq_record_has_client(record))
		return none;
	return paq_record_is_local(record) ?
		record->field[PAQ_FIELD_REMOTE_HOST] : unknown;
}

/* %n: seconds since 1970 and milliseconds */
static int
epoch_text(char *dst, PaqTime time)
{
	int			len = paq_int_text(dst, time.second);

	return len + snprintf(dst + len, 5, ".%03d", time.usec / 1000);
}

/* %v: both halves, or nothing for what is not a session */
static int
vxid_text(char *dst, const PaqRecordHeader *header)
{
	int			len;

	if (header->kind == PAQ_KIND_GAP || header->vxid_proc < 0)
		return 0;
	len = paq_int_text(dst, header->vxid_proc);
	dst[len++] = '/';
	return len + paq_uint_text(dst + len, header->vxid_lxid);
}

/* Text of an escape that has to be put together; unknown ones have none. */
static int
made_text(char *dst, char escape, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;

	switch (escape)
	{
		case 'm':
		case 't':
			return paq_time_log(dst,
								paq_time_split(paq_record_log_time(record)),
								escape == 'm');
		case 'n':
			return epoch_text(dst,
							  paq_time_split(paq_record_log_time(record)));
		case 's':
			if (header->session_start == 0)
				return 0;
			return paq_time_log(dst, paq_time_split(header->session_start),
								false);
		case 'p':
			return paq_int_text(dst, header->pid);
		case 'c':
			return paq_session_id_text(dst, record);
		case 'l':
			return paq_int_text(dst, header->session_line);
		case 'v':
			return vxid_text(dst, header);
		case 'x':
			return paq_uint_text(dst, header->xid);
		case 'Q':
			return paq_int_text(dst, header->query_id);
		case 'e':
			if (!paq_record_has_outcome(header))
				return 0;
			paq_sqlstate_text(dst, header->sqlstate);
			return 5;
		default:
			return 0;
	}
}

/* Text of any escape but %q and %r. */
static PaqText
escape_text(char *scratch, char escape, const PaqRecord *record)
{
	PaqText		result;

	switch (escape)
	{
		case 'u':
			return client_text(record, PAQ_FIELD_USER);
		case 'd':
			return client_text(record, PAQ_FIELD_DATABASE);
		case 'a':
			return client_text(record, PAQ_FIELD_APPLICATION);
		case 'h':
			return record->field[PAQ_FIELD_REMOTE_HOST];
		case 'b':
			return record->field[PAQ_FIELD_BACKEND_TYPE];
		case 'i':
			return paq_record_has_client(record) ?
				record->field[PAQ_FIELD_COMMAND] : nothing;
		case 'L':
			return local_address_text(record);
		default:
			result.data = scratch;
			result.len = made_text(scratch, escape, record);
			return result;
	}
}

/*
 * Append text that may be anything: a client that has not logged in says who
 * it wants to be.  Control characters could look like the end of the line.
 */
static void
put_foreign(PaqBuffer *buf, PaqText text)
{
	for (uint32 i = 0; i < text.len; i++)
	{
		const unsigned char c = text.data[i];

		paq_buffer_putc(buf, c < 0x20 || c == 0x7f ? '?' : c);
	}
}

static void
write_escape(PaqBuffer *buf, const PrefixItem *item, const PaqRecord *record)
{
	char		scratch[SCRATCH_SIZE];
	PaqText		text;
	PaqText		port = {NULL, 0};
	int			fill;

	if (item->escape == 'r')
	{
		/* host, or host(port): padded together */
		text = record->field[PAQ_FIELD_REMOTE_HOST];
		if (text.data != NULL)
			port = record->field[PAQ_FIELD_REMOTE_PORT];
	}
	else
		text = escape_text(scratch, item->escape, record);

	fill = abs(item->padding) - (int) Min(text.len, MAX_PADDING);
	if (port.len > 0)
		fill -= (int) Min(port.len, MAX_PADDING) + 2;

	if (item->padding > 0)
		paq_buffer_fill(buf, ' ', fill);
	put_foreign(buf, text);
	if (port.len > 0)
	{
		paq_buffer_putc(buf, '(');
		put_foreign(buf, port);
		paq_buffer_putc(buf, ')');
	}
	if (item->padding < 0)
		paq_buffer_fill(buf, ' ', fill);
}

/*
 * Append the prefix for record.  The pattern is compared by content, because
 * a new value of a setting may well have the address of the old one.
 */
void
paq_prefix_write(PaqBuffer *buf, const char *prefix, const PaqRecord *record)
{
	if (prefix == NULL)
		return;
	if (parsed_pattern == NULL || strcmp(prefix, parsed_pattern) != 0)
		parse_pattern(prefix);

	for (int i = 0; i < nitems; i++)
	{
		const PrefixItem *item = &items[i];

		if (item->escape == '\0')
			paq_put(buf, item->literal, item->literal_len);
		else if (item->escape == 'q')
		{
			if (!paq_record_has_client(record))
				return;
		}
		else
			write_escape(buf, item, record);
	}
}
