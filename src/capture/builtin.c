/*-------------------------------------------------------------------------
 *
 * builtin.c
 *		Which function of PostgreSQL's own a function is, by its code.
 *
 * A superuser can give the code of a function another name, in LANGUAGE internal, and let
 * anybody call it.  So whoever asks what a function does asks for that of its code.
 *
 * Functions that have been looked up are remembered until some function changes.
 *
 * Must not raise, except for what catalog lookups may.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "capture/capture_internal.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "utils/builtins.h"
#include "utils/fmgrtab.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#define NKNOWN	64

/* What has been looked up, by the function's OID modulo NKNOWN; function invalid: nothing */
static struct
{
	Oid			function;
	Oid			builtin;
}			known[NKNOWN];

/* Counts changes of functions */
static uint64 changes = 0;

static void
forget_functions(Datum arg, int cacheid, uint32 hashvalue)
{
	changes++;
	memset(known, 0, sizeof(known));
}

static Oid
look_up_builtin(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			builtin = InvalidOid;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	if (((Form_pg_proc) GETSTRUCT(tuple))->prolang == INTERNALlanguageId)
	{
		bool		isnull;
		Datum		code = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);

		if (!isnull)
		{
			char	   *name = TextDatumGetCString(code);

			builtin = fmgr_internal_function(name);
			pfree(name);
		}
	}
	ReleaseSysCache(tuple);
	return builtin;
}

/*
 * Returns the OID of a function of PostgreSQL's own with the code of the function, which
 * PostgreSQL's source has not given its OID; InvalidOid if there is none, or catalogs cannot be
 * read now.
 */
Oid
paq_look_up_builtin(Oid function)
{
	const int	number = function % NKNOWN;
	const uint64 before = changes;
	Oid			builtin;

	if (known[number].function == function)
		return known[number].builtin;
	if (!IsTransactionState())
		return InvalidOid;

	builtin = look_up_builtin(function);
	if (changes == before)
	{
		known[number].function = function;
		known[number].builtin = builtin;
	}
	return builtin;
}

void
paq_builtin_init(void)
{
	CacheRegisterSyscacheCallback(PROCOID, forget_functions, (Datum) 0);
}
