/*-------------------------------------------------------------------------
 *
 * params.c
 *		Parameters of a statement, as the list that record.h describes.
 *
 * Values become text by the output functions of their types.  What these
 * raise, they would raise for anybody who looks at the value; apart from that,
 * nothing here raises but for lack of memory.  In particular, what is too
 * large to become text, or to fit into the list, is left out and the record
 * marked.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "capture/capture_internal.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/*
 * Longest value, in bytes, that we turn into text.  The text of some types is
 * twice as long as the value.
 */
#define MAX_VALUE_SIZE	((Size) (MaxAllocSize / 2 - 64))

/* Append a parameter: len bytes, or one of PAQ_PARAM_xxx. */
static void
append_param(StringInfo buf, int32 len, const char *value)
{
	appendBinaryStringInfo(buf, (const char *) &len, sizeof(len));
	if (len > 0)
		appendBinaryStringInfo(buf, value, len);
}

/* Length of a varlena value in bytes, without reading it if it is toasted. */
static Size
value_size(Datum value)
{
	struct varlena *ptr = (struct varlena *) DatumGetPointer(value);

	if (VARATT_IS_EXTENDED(ptr) && !VARATT_IS_SHORT(ptr))
		return toast_raw_datum_size(value) - VARHDRSZ;
	return VARSIZE_ANY_EXHDR(ptr);
}

static void
encode_param(StringInfo buf, const ParamExternData *param, uint32 *flags)
{
	Oid			output;
	bool		is_varlena;
	Size		size;
	char	   *str;
	Size		len;

	if (param->isnull || !OidIsValid(param->ptype))
	{
		append_param(buf, PAQ_PARAM_NULL, NULL);
		return;
	}

	getTypeOutputInfo(param->ptype, &output, &is_varlena);
	size = is_varlena ? value_size(param->value) : 0;
	if (paq_log_parameter_max_size > 0 &&
		size > (Size) paq_log_parameter_max_size)
	{
		append_param(buf, PAQ_PARAM_SUPPRESSED, NULL);
		return;
	}
	if (size > MAX_VALUE_SIZE)
	{
		append_param(buf, PAQ_PARAM_SUPPRESSED, NULL);
		*flags |= PAQ_RECORD_INCOMPLETE;
		return;
	}

	str = OidOutputFunctionCall(output, param->value);
	len = strlen(str);
	if (buf->len + sizeof(int32) + len < MaxAllocSize - 1024)
		append_param(buf, len, str);
	else
	{
		append_param(buf, PAQ_PARAM_SUPPRESSED, NULL);
		*flags |= PAQ_RECORD_INCOMPLETE;
	}
	pfree(str);
}

/*
 * Encode the parameters, which may be NULL.  Unless the list is empty, its
 * bytes are palloc'ed.  Adds to *flags if something had to be left out.
 */
PaqText
paq_encode_params(ParamListInfo params, uint32 *flags)
{
	PaqText		result = {"", 0};
	StringInfoData buf;

	if (params == NULL || params->numParams == 0)
		return result;

	initStringInfo(&buf);
	for (int i = 0; i < params->numParams; i++)
	{
		ParamExternData workspace;
		ParamExternData *param = &params->params[i];

		/* Somebody may keep the values elsewhere, as PL/pgSQL does. */
		if (params->paramFetch != NULL)
			param = params->paramFetch(params, i + 1, false, &workspace);
		encode_param(&buf, param, flags);
	}
	result.data = buf.data;
	result.len = buf.len;
	return result;
}
