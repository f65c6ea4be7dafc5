/*-------------------------------------------------------------------------
 *
 * mask_fuzz.c
 *		Masking: any text, and the properties that mask_test.c looks at.
 *
 * A library for a server, which has PostgreSQL's scanner, with the fuzzer in it; see
 * scripts/fuzz.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "mask_test.c"

/* Of libFuzzer */
extern int	LLVMFuzzerRunDriver(int *argc, char ***argv,
							   int (*callback)(const uint8 *data, size_t size));

PG_FUNCTION_INFO_V1(run_fuzzer);

#define MAX_ARGUMENTS	20

/* All readings of backslashes, all ways to mask */
static int
fuzz_mask(const uint8 *data, size_t size)
{
	static MemoryContext context = NULL;
	MemoryContext old_context;
	char	   *input;

	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "fuzz", ALLOCSET_DEFAULT_SIZES);
	old_context = MemoryContextSwitchTo(context);
	input = pnstrdup((const char *) data, size);
	for (int options = 0; options < 4; options++)
	{
		if (!same(input, options))
		{
			fprintf(stderr, "with options %d something else than literals changes\n", options);
			abort();
		}
	}
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(context);
	return 0;
}

/* run_fuzzer(text): with the options, separated by spaces.  Ends the process. */
Datum
run_fuzzer(PG_FUNCTION_ARGS)
{
	char	   *options = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *arguments[MAX_ARGUMENTS + 1] = {"mask"};
	char	  **argv = arguments;
	int			argc = 1;

	for (char *p = strtok(options, " "); p != NULL && argc < MAX_ARGUMENTS;
		 p = strtok(NULL, " "))
		arguments[argc++] = p;
	PG_RETURN_INT32(LLVMFuzzerRunDriver(&argc, &argv, fuzz_mask));
}
