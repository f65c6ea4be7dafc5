/*-------------------------------------------------------------------------
 *
 * params.c
 *		Parameters of a statement, as the list that record.h describes.
 *
 * The text of a value is what the output function of its type returns.  An
 * output function may raise an error: some types cannot be displayed, some
 * values are too long as text, and a user's function may do anything.  Where
 * only the audit wants to see the value, that must not become the statement's
 * error.  So only the functions of a few common types are called directly, and
 * all others in a subtransaction, which is the only way to get rid of an error.
 *
 * A value that cannot become text, or is too large for the list, is left out,
 * and the record is marked.
 *
 * Must not raise, except for lack of memory, and for a request to cancel or to
 * terminate.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/xact.h"
#include "capture/capture_internal.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

/*
 * Longest value, in bytes, whose output function is called at all.  The text of
 * some types is twice as long as the value.
 */
#define MAX_VALUE_SIZE	((Size) (MaxAllocSize / 2 - 64))

/*
 * Longest value, in bytes, of a type with longer texts whose output function is
 * called directly
 */
#define MAX_DIRECT_SIZE	(1024 * 1024)

/* Can the output function of the type not fail on size bytes of a value? */
static bool
is_harmless(Oid type, Size size)
{
	switch (type)
	{
		case BOOLOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case FLOAT4OID:
		case FLOAT8OID:
		case NUMERICOID:
		case CHAROID:
		case NAMEOID:
		case TEXTOID:
		case BPCHAROID:
		case VARCHAROID:
		case UNKNOWNOID:
		case DATEOID:
		case TIMEOID:
		case TIMETZOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case INTERVALOID:
		case UUIDOID:
		case INETOID:
		case CIDROID:
		case JSONOID:
			return true;
		case BYTEAOID:
		case JSONBOID:
		case INT2ARRAYOID:
		case INT4ARRAYOID:
		case INT8ARRAYOID:
		case FLOAT8ARRAYOID:
		case NUMERICARRAYOID:
		case TEXTARRAYOID:
		case VARCHARARRAYOID:
		case UUIDARRAYOID:
			return size <= MAX_DIRECT_SIZE;
		default:
			return false;
	}
}

/*
 * Can the output function of the type, which is no domain, be expected not to
 * fail on a value that is not damaged?  That is so for what has a text of its
 * own, and not for what has it of others: rows, ranges, pseudo-types.
 */
static bool
is_plain(Oid type)
{
	Oid			element = get_element_type(type);
	char		kind = get_typtype(OidIsValid(element) ? element : type);

	return kind == TYPTYPE_BASE || kind == TYPTYPE_ENUM;
}

/* Is it an error that must end the statement, whatever we do? */
static bool
must_be_raised(const ErrorData *edata)
{
	return edata->sqlerrcode == ERRCODE_QUERY_CANCELED ||
		edata->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN;
}

/* Call the output function in a subtransaction; NULL if it raises an error. */
static char *
careful_text(Oid output, Datum value)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	char	   *volatile text = NULL;
	ErrorData  *volatile edata = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		text = OidOutputFunctionCall(output, value);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		edata = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		text = NULL;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;

	if (edata != NULL && must_be_raised(edata))
		ReThrowError(edata);
	if (edata != NULL)
		FreeErrorData(edata);
	return text;
}

/*
 * Text of a value of size bytes (0 if its length is fixed), made by the output
 * function of its type; palloc'ed.  NULL if it cannot be had.
 */
static char *
param_text(Oid type, Oid output, Datum value, Size size)
{
	if (is_harmless(type, size))
		return OidOutputFunctionCall(output, value);

	type = getBaseType(type);
	if (is_harmless(type, size))
		return OidOutputFunctionCall(output, value);
	if (!IsInParallelMode())
		return careful_text(output, value);

	/* There are no subtransactions in parallel mode. */
	if (size <= MAX_DIRECT_SIZE && is_plain(type))
		return OidOutputFunctionCall(output, value);
	return NULL;
}

/* Append a parameter: len bytes, or one of PAQ_PARAM_xxx. */
static void
append_param(StringInfo buf, int32 len, const char *value)
{
	const int32 length = paq_param_length(len);

	appendBinaryStringInfo(buf, (const char *) &length, sizeof(length));
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

/* Append what the record shows of a value's text. */
static void
append_text(StringInfo buf, const char *str, bool is_text, uint32 *flags)
{
	PaqMasked	shown;

	paq_mask_value(str, is_text, PAQ_MASK_SCAN, &shown);
	*flags |= paq_masked_flags(&shown);
	if (buf->len + sizeof(int32) + shown.len < MaxAllocSize - 1024)
		append_param(buf, shown.len, shown.text);
	else
	{
		append_param(buf, PAQ_PARAM_SUPPRESSED, NULL);
		*flags |= PAQ_RECORD_INCOMPLETE;
	}
	if (shown.copy != NULL)
		pfree(shown.copy);
}

static void
encode_param(StringInfo buf, const ParamExternData *param, bool secret,
			 int max_size, uint32 *flags)
{
	Oid			output;
	bool		is_varlena;
	Size		size;
	char	   *str;

	if (param->isnull || !OidIsValid(param->ptype))
	{
		append_param(buf, PAQ_PARAM_NULL, NULL);
		return;
	}
	if (secret)
	{
		append_param(buf, strlen(PAQ_REDACTED), PAQ_REDACTED);
		return;
	}

	getTypeOutputInfo(param->ptype, &output, &is_varlena);
	size = is_varlena ? value_size(param->value) : 0;
	if (max_size > 0 && size > (Size) max_size)
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

	str = param_text(param->ptype, output, param->value, size);
	if (str == NULL)
	{
		append_param(buf, PAQ_PARAM_SUPPRESSED, NULL);
		*flags |= PAQ_RECORD_INCOMPLETE;
		return;
	}
	append_text(buf, str, is_varlena || param->ptype == UNKNOWNOID, flags);
	pfree(str);
}

/*
 * A parameter, counted from 0.  Somebody may keep the values elsewhere, as
 * PL/pgSQL does, and then they come in the workspace.
 */
static const ParamExternData *
fetch_param(ParamListInfo params, int i, ParamExternData *workspace)
{
	if (params->paramFetch != NULL)
		return params->paramFetch(params, i + 1, false, workspace);
	return &params->params[i];
}

/* Is the parameter, counted from 1, the name of a secret setting? */
static bool
names_secret(ParamListInfo params, int number)
{
	ParamExternData workspace;
	const ParamExternData *param;
	Oid			output;
	bool		is_varlena;
	char	   *name;
	bool		secret;

	param = fetch_param(params, number - 1, &workspace);
	if (param->isnull || !OidIsValid(param->ptype))
		return false;
	getTypeOutputInfo(param->ptype, &output, &is_varlena);
	name = param_text(param->ptype, output, param->value,
					  is_varlena ? value_size(param->value) : 0);
	if (name == NULL)
		return true;
	secret = paq_mask_setting_is_secret(name);
	pfree(name);
	return secret;
}

/*
 * Which parameters are secret, an array of booleans, palloc'ed; NULL if none
 * is.  That is so for the values of secret settings.
 */
static bool *
find_secrets(ParamListInfo params, const char *statement, uint32 *flags)
{
	List	   *rules;
	const bool	told = paq_mask_param_rules(statement, &rules);
	bool	   *secrets;
	bool	   *harmless;

	if (likely(told && rules == NIL))
		return NULL;
	secrets = palloc0(params->numParams * sizeof(bool));
	if (!told)
	{
		memset(secrets, true, params->numParams);
		*flags |= PAQ_RECORD_MASKED;
	}

	/* names of settings that have been looked at, and are not secret */
	harmless = palloc0(params->numParams * sizeof(bool));
	for (int i = 0; i < list_length(rules); i += 2)
	{
		const int	name = list_nth_int(rules, i);
		const int	value = list_nth_int(rules, i + 1);

		if (value > params->numParams || name > params->numParams ||
			secrets[value - 1] || (name > 0 && harmless[name - 1]))
			continue;
		if (name == 0 || names_secret(params, name))
			secrets[value - 1] = true;
		else
			harmless[name - 1] = true;
	}
	pfree(harmless);
	return secrets;
}

/*
 * Encode the parameters, which may be NULL, of the statement with that text.  Values
 * longer than max_size bytes, unless that is 0, are left out.  Unless the list is empty,
 * its bytes are palloc'ed.  Adds to *flags if
 * something had to be left out.
 */
PaqText
paq_encode_params(ParamListInfo params, const char *statement, int max_size,
				  uint32 *flags)
{
	PaqText		result = {"", 0};
	StringInfoData buf;
	bool	   *secrets;

	if (params == NULL || params->numParams == 0)
		return result;

	secrets = find_secrets(params, statement, flags);
	initStringInfo(&buf);
	for (int i = 0; i < params->numParams; i++)
	{
		ParamExternData workspace;

		encode_param(&buf, fetch_param(params, i, &workspace),
					 secrets != NULL && secrets[i], max_size, flags);
	}
	if (secrets != NULL)
		pfree(secrets);
	result.data = buf.data;
	result.len = buf.len;
	return result;
}
