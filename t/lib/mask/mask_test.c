/*-------------------------------------------------------------------------
 *
 * mask_test.c
 *		Masking, called directly, and the properties that must hold for any
 *		text.
 *
 * The files of mask/ are compiled into this library, which SQL calls.  The
 * rest of a text, beside the contents of its literals, is found here by
 * PostgreSQL's scanner, without the code that is tested.  Only where the
 * scanner gives up, scan.c searches the rest for literals.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/resource.h>

#include "compat.h"
#include "fmgr.h"
#include "guc.h"
#include "lib/stringinfo.h"
#include "mask/mask_internal.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(mask);
PG_FUNCTION_INFO_V1(masked_value);
PG_FUNCTION_INFO_V1(masked_message);
PG_FUNCTION_INFO_V1(masks_all);
PG_FUNCTION_INFO_V1(skeleton);
PG_FUNCTION_INFO_V1(is_same);
PG_FUNCTION_INFO_V1(fuzz);
PG_FUNCTION_INFO_V1(set_pattern);
PG_FUNCTION_INFO_V1(cpu_time);

extern void _PG_init(void);

/* Texts can be read in both ways, wherever PostgreSQL has both. */
void
_PG_init(void)
{
	paq_mask_note_parse(true);
	paq_mask_note_parse(false);
}

/* What is a setting in the library */
const char *paq_mask_patterns = "\0";
uint32		paq_mask_patterns_version = 0;

/* What stands for a constant, or its place */
#define PLACE	'\001'

static text *
result_of(PaqMasked *shown)
{
	text	   *result = cstring_to_text_with_len(shown->text, shown->len);

	if (shown->copy != NULL)
		pfree(shown->copy);
	return result;
}

/* mask(text, options) */
Datum
mask(PG_FUNCTION_ARGS)
{
	PaqMasked	shown;

	paq_mask_text(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_INT32(1), &shown);
	PG_RETURN_TEXT_P(result_of(&shown));
}

/* masks_all(text, options): are other literals than secrets masked? */
Datum
masks_all(PG_FUNCTION_ARGS)
{
	PaqMasked	shown;

	paq_mask_text(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_INT32(1), &shown);
	if (shown.copy != NULL)
		pfree(shown.copy);
	PG_RETURN_BOOL(shown.all);
}

Datum
masked_value(PG_FUNCTION_ARGS)
{
	PaqMasked	shown;

	paq_mask_value(text_to_cstring(PG_GETARG_TEXT_PP(0)), true, PAQ_MASK_SCAN, &shown);
	PG_RETURN_TEXT_P(result_of(&shown));
}

/* masked_message(message, statement) */
Datum
masked_message(PG_FUNCTION_ARGS)
{
	PaqMasked	shown;

	paq_mask_message(text_to_cstring(PG_GETARG_TEXT_PP(0)),
					 text_to_cstring(PG_GETARG_TEXT_PP(1)), &shown);
	PG_RETURN_TEXT_P(result_of(&shown));
}

/* set_pattern(text): the one of mask_patterns; '' for none */
Datum
set_pattern(PG_FUNCTION_ARGS)
{
	text	   *pattern = PG_GETARG_TEXT_PP(0);
	Size		len = VARSIZE_ANY_EXHDR(pattern);
	char	   *copy = MemoryContextAllocZero(TopMemoryContext, len + 2);

	memcpy(copy, VARDATA_ANY(pattern), len);
	paq_mask_patterns = copy;
	paq_mask_patterns_version++;
	PG_RETURN_VOID();
}

/* The parts of a literal that are no contents */
static void
append_quotes(StringInfo out, const char *token, int len, bool conforming)
{
	bool		escapes = *token == 'e' || *token == 'E' ||
		(*token == '\'' && !conforming);
	bool		inside = false;

	if (*token == '$')
	{
		int			tag_len = strchr(token + 1, '$') + 1 - token;

		appendBinaryStringInfo(out, token, tag_len);
		appendBinaryStringInfo(out, token, tag_len);
		return;
	}
	for (int i = 0; i < len; i++)
	{
		if (inside && escapes && token[i] == '\\')
			i++;
		else if (token[i] == '\'')
		{
			if (inside && i + 1 < len && token[i + 1] == '\'')
			{
				i++;
				continue;
			}
			inside = !inside;
			appendStringInfoChar(out, '\'');
		}
		else if (!inside)
		{
			/* a comment between the parts may have quotes */
			if (token[i] == '-' && i + 1 < len && token[i + 1] == '-')
			{
				while (i < len && token[i] != '\n' && token[i] != '\r')
					appendStringInfoChar(out, token[i++]);
				i--;
				continue;
			}
			appendStringInfoChar(out, token[i]);
		}
	}
}

/* What is left of a number when its digits are zeros */
static void
append_number(StringInfo out, const char *token, int len)
{
	bool		hexadecimal = len > 1 && (token[1] | 0x20) == 'x';

	for (int i = 0; i < len; i++)
		appendStringInfoChar(out, (token[i] >= '0' && token[i] <= '9') ||
							 (hexadecimal && i > 1 && token[i] != '_') ?
							 '0' : token[i]);
}

/* A literal or a parameter, as it is in the skeleton */
static void
append_token(StringInfo out, const char *token, int len, bool conforming,
			 bool places)
{
	if (places)
	{
		/* a place has a space where it would be part of a word */
		while (out->len > 0 && out->data[out->len - 1] == ' ')
			out->data[--out->len] = '\0';
		appendStringInfoChar(out, PLACE);
	}
	else if (*token == '.' || (*token >= '0' && *token <= '9'))
		append_number(out, token, len);
	else
		append_quotes(out, token, len, conforming);
}

/* What follows a place has lost its spaces, too. */
static void
append_rest(StringInfo out, const char *data, int len, bool places)
{
	while (places && len > 0 && *data == ' ' && out->len > 0 &&
		   out->data[out->len - 1] == PLACE)
	{
		data++;
		len--;
	}
	appendBinaryStringInfo(out, data, len);
}

/* As far as PostgreSQL's scanner goes; returns up to where. */
static int
scan_skeleton(const char *data, StringInfo out, bool conforming, bool places)
{
	MemoryContext context = CurrentMemoryContext;
	volatile int done = 0;

	PG_TRY();
	{
		core_yy_extra_type extra = {0};
		core_yyscan_t scanner = scanner_init(data, &extra, &ScanKeywords,
											 ScanKeywordTokens);

		extra.backslash_quote = BACKSLASH_QUOTE_ON;
		paq_scanner_set_conforming(&extra, conforming);
		for (;;)
		{
			core_YYSTYPE value;
			YYLTYPE		location;
			int			code = core_yylex(&value, &location, scanner);
			int			len;

			if (code == 0)
				break;
			len = strlen(extra.scanbuf + location);
			if ((code >= PAQ_TOKEN_FCONST && code <= PAQ_TOKEN_XCONST) ||
				code == PAQ_TOKEN_ICONST || (places && code == PAQ_TOKEN_PARAM))
			{
				append_rest(out, data + done, location - done, places);
				append_token(out, data + location, len, conforming, places);
				done = location + len;
			}
		}
		append_rest(out, data + done, strlen(data) - done, places);
		done = strlen(data);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	return done;
}

/* The text without the contents of its literals. */
static char *
make_skeleton(const char *data, bool scan, bool conforming, bool places)
{
	PaqMaskText text = {data, strlen(data), NULL};
	StringInfoData out;
	uint32		pos;
	uint32		done;
	PaqToken	token;

	initStringInfo(&out);
	pos = done = scan ? scan_skeleton(data, &out, conforming, places) : 0;
	while (paq_plain_next(&text, &pos, conforming, &token))
	{
		if ((token.code == PAQ_TOKEN_PARAM && !places) || token.code == '\\' || token.code == '"')
			continue;
		append_rest(&out, data + done, token.start - done, places);
		append_token(&out, data + token.start, token.end - token.start,
					 conforming, places);
		done = token.end;
	}
	append_rest(&out, data + done, text.len - done, places);
	return out.data;
}

/* skeleton(text, scan) */
Datum
skeleton(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(make_skeleton(text_to_cstring(PG_GETARG_TEXT_PP(0)),
												   PG_GETARG_BOOL(1),
												   paq_strings_conform(), false)));
}

static bool
same_skeleton(const char *one, const char *other, bool scan, bool conforming,
			  bool places)
{
	return strcmp(make_skeleton(one, scan, conforming, places),
				  make_skeleton(other, scan, conforming, places)) == 0;
}

/*
 * Returns true if the text may make sense in the way of the other setting of
 * standard_conforming_strings: because of a backslash in front of a quote, or of U&'...', which is
 * an error in one of the two.
 */
static bool
may_be_read_otherwise(const char *data)
{
	return paq_backslash_is_ambiguous() &&
		(strstr(data, "\\'") != NULL || strstr(data, "U&'") != NULL || strstr(data, "u&'") != NULL);
}

/* Is the text the same without the contents of literals, masked or not? */
static bool
same(const char *data, int options)
{
	const bool	scan = (options & PAQ_MASK_SCAN) != 0;
	const bool	places = (options & PAQ_MASK_CONSTANTS) != 0;
	PaqMasked	shown;
	bool		result;

	paq_mask_text(data, options, &shown);
	result = same_skeleton(data, shown.text, scan, paq_strings_conform(), places);
	if (!result && scan && may_be_read_otherwise(data))
		result = same_skeleton(data, shown.text, scan, !paq_strings_conform(),
							   places);
	if (shown.copy != NULL)
		pfree(shown.copy);
	return result;
}

Datum
is_same(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(same(text_to_cstring(PG_GETARG_TEXT_PP(0)), PG_GETARG_INT32(1)));
}

/* xorshift64*: the same numbers everywhere */
static uint32
next_random(uint64 *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (*state * UINT64CONST(2685821657736338717)) >> 32;
}

/* Change a byte, take some away, or say some twice. */
static void
edit(StringInfo data, uint64 *state)
{
	static const char bytes[] = "'\"$\\;(),=%eEuU&-/*n0 ";
	uint32		start = next_random(state) % data->len;
	uint32		len = 1 + next_random(state) % 8;

	len = Min(len, data->len - start);
	switch (next_random(state) % 3)
	{
		case 0:
			data->data[start] = bytes[next_random(state) % (sizeof(bytes) - 1)];
			break;
		case 1:
			memmove(data->data + start, data->data + start + len,
					data->len - start - len + 1);
			data->len -= len;
			break;
		default:
			enlargeStringInfo(data, len);
			memmove(data->data + start + len, data->data + start,
					data->len - start + 1);
			data->len += len;
			break;
	}
}

/* cpu_time(text, options): how long masking takes, in seconds */
Datum
cpu_time(PG_FUNCTION_ARGS)
{
	char	   *data = text_to_cstring(PG_GETARG_TEXT_PP(0));
	struct rusage before;
	struct rusage after;
	PaqMasked	shown;

	getrusage(RUSAGE_SELF, &before);
	paq_mask_text(data, PG_GETARG_INT32(1), &shown);
	getrusage(RUSAGE_SELF, &after);
	if (shown.copy != NULL)
		pfree(shown.copy);
	PG_RETURN_FLOAT8(after.ru_utime.tv_sec - before.ru_utime.tv_sec +
					 (after.ru_utime.tv_usec - before.ru_utime.tv_usec) / 1e6);
}

/*
 * fuzz(seed, number, pieces, length, edits): the first random text that is not
 * the same
 */
Datum
fuzz(PG_FUNCTION_ARGS)
{
	uint64		state = PG_GETARG_INT64(0) * 2 + 1;
	int			number = PG_GETARG_INT32(1);
	char	   *pieces = text_to_cstring(PG_GETARG_TEXT_PP(2));
	uint32		max_pieces = PG_GETARG_INT32(3);
	uint32		max_edits = PG_GETARG_INT32(4);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "fuzz",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	const char *piece[1000];
	uint32		npieces = 0;

	MemoryContextSwitchTo(old_context);
	/* pieces are separated by a character that no text has */
	for (char *p = strtok(pieces, "\002"); p != NULL; p = strtok(NULL, "\002"))
		piece[npieces++] = p;
	while (number-- > 0)
	{
		StringInfoData data;
		uint32		n = 1 + next_random(&state) % max_pieces;

		MemoryContextSwitchTo(context);
		initStringInfo(&data);
		while (n-- > 0)
			appendStringInfoString(&data, piece[next_random(&state) % npieces]);
		for (n = max_edits > 0 ? next_random(&state) % max_edits : 0;
			 n > 0 && data.len > 0; n--)
			edit(&data, &state);
		for (int options = 0; options < 4; options++)
		{
			if (!same(data.data, options))
			{
				MemoryContextSwitchTo(old_context);
				PG_RETURN_TEXT_P(cstring_to_text(psprintf("%d:%s", options,
														  data.data)));
			}
		}
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(context);
	}
	PG_RETURN_NULL();
}
