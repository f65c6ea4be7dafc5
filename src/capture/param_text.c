/*-------------------------------------------------------------------------
 *
 * param_text.c
 *		The text of a parameter's value.
 *
 * That is what the output function of its type makes of it, and an output
 * function may raise an error: some types cannot be displayed, some values are
 * too long as text, and somebody else's function may do anything.  Where
 * nobody but us wants to see the value, that must not become the statement's
 * error.  So only the functions of a few common types are called just so, and
 * all others within a subtransaction, which is the one way to get rid of an
 * error.
 *
 * Must not raise, except for a request to cancel or to terminate.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

/*
 * Longest value, in bytes, of a type whose text can be many times as long that
 * is converted without precautions
 */
#define MAX_CAREFREE_SIZE	(1024 * 1024)

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
			return size <= MAX_CAREFREE_SIZE;
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
char *
paq_param_text(Oid type, Oid output, Datum value, Size size)
{
	if (is_harmless(type, size))
		return OidOutputFunctionCall(output, value);

	type = getBaseType(type);
	if (is_harmless(type, size))
		return OidOutputFunctionCall(output, value);
	if (!IsInParallelMode())
		return careful_text(output, value);

	/* There are no subtransactions in parallel mode. */
	if (size <= MAX_CAREFREE_SIZE && is_plain(type))
		return OidOutputFunctionCall(output, value);
	return NULL;
}
