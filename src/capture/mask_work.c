/*-------------------------------------------------------------------------
 *
 * mask_work.c
 *		Ranges of a text that are secret, and the text without them.
 *
 * Memory of a work is allocated piece by piece and freed in the opposite order;
 * not in a memory context of its own, because to make one can raise an error.
 *
 * Must not raise.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/mask_internal.h"
#include "utils/memutils.h"

/* More secrets than this are not looked for in a text. */
#define MAX_ITEMS		(16 * 1024 * 1024)

struct PaqMaskBlock
{
	PaqMaskBlock *next;
	Size		padding;		/* keeps what follows aligned */
};

StaticAssertDecl(sizeof(PaqMaskBlock) % MAXIMUM_ALIGNOF == 0,
				 "memory behind a PaqMaskBlock is aligned");

/* Memory as part of a list.  NULL when there is none; that is noted. */
static void *
alloc_block(PaqMaskWork *work, PaqMaskBlock **list, Size size)
{
	PaqMaskBlock *block;

	block = MemoryContextAllocExtended(TopMemoryContext,
									   sizeof(PaqMaskBlock) + size,
									   MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (block == NULL)
	{
		work->failed = true;
		return NULL;
	}
	block->next = *list;
	*list = block;
	return block + 1;
}

static void
free_blocks(PaqMaskBlock **list, PaqMaskBlock *until)
{
	while (*list != until)
	{
		PaqMaskBlock *block = *list;

		*list = block->next;
		pfree(block);
	}
}

/* Memory until it is released.  NULL when there is none; that is noted. */
void *
paq_mask_alloc(PaqMaskWork *work, Size size)
{
	return alloc_block(work, &work->blocks, size);
}

/* Give back what was allocated since work->blocks was this. */
void
paq_mask_release(PaqMaskWork *work, PaqMaskBlock *until)
{
	free_blocks(&work->blocks, until);
}

/* Give back all memory. */
void
paq_mask_free(PaqMaskWork *work)
{
	free_blocks(&work->blocks, NULL);
	free_blocks(&work->results, NULL);
}

/* An array with room for one more item than it has.  NULL when out of memory. */
static void *
grown_array(PaqMaskWork *work, void *items, uint32 count, uint32 *max,
			Size item_size)
{
	void	   *grown;

	if (count < *max)
		return items;
	if (count > MAX_ITEMS)
	{
		work->failed = true;
		return NULL;
	}
	grown = alloc_block(work, &work->results,
						Max(count, 8) * (Size) 2 * item_size);
	if (grown == NULL)
		return NULL;
	if (count > 0)
		memcpy(grown, items, count * item_size);
	*max = Max(count, 8) * 2;
	return grown;
}

static uint32
origin(const PaqView *view, uint32 pos)
{
	return view->origin != NULL ? view->origin[pos] : view->base + pos;
}

/* This range of the view is not to be shown.  It may be empty. */
void
paq_mask_span(PaqMaskWork *work, const PaqView *view, uint32 start, uint32 end)
{
	PaqSpan    *spans;

	if (start >= end)
		return;
	spans = grown_array(work, work->spans, work->nspans, &work->max_spans,
						sizeof(PaqSpan));
	if (spans == NULL)
		return;
	work->spans = spans;
	spans[work->nspans].start = origin(view, start);
	spans[work->nspans].end = origin(view, end);
	work->nspans++;
}

/* The same for a range that is a secret as it stands there. */
void
paq_mask_range(PaqMaskWork *work, const PaqView *view, uint32 start, uint32 end)
{
	if (start >= end)
		return;
	paq_mask_span(work, view, start, end);
	paq_mask_secret(work, view->data + start, end - start);
}

/* This is a secret. */
void
paq_mask_secret(PaqMaskWork *work, const char *data, uint32 len)
{
	PaqSecret  *secrets;
	char	   *copy;

	if (!work->want_secrets || len == 0)
		return;
	secrets = grown_array(work, work->secrets, work->nsecrets,
						  &work->max_secrets, sizeof(PaqSecret));
	if (secrets == NULL)
		return;
	work->secrets = secrets;
	copy = alloc_block(work, &work->results, len);
	if (copy == NULL)
		return;
	memcpy(copy, data, len);
	secrets[work->nsecrets].data = copy;
	secrets[work->nsecrets].len = len;
	work->nsecrets++;
}

static int
compare_spans(const void *a, const void *b)
{
	const PaqSpan *x = (const PaqSpan *) a;
	const PaqSpan *y = (const PaqSpan *) b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return 0;
}

/* Sort the ranges and make one of those that touch. */
static void
merge_spans(PaqMaskWork *work)
{
	uint32		last = 0;

	qsort(work->spans, work->nspans, sizeof(PaqSpan), compare_spans);
	for (uint32 i = 1; i < work->nspans; i++)
	{
		PaqSpan    *span = &work->spans[i];

		if (span->start <= work->spans[last].end)
			work->spans[last].end = Max(work->spans[last].end, span->end);
		else
			work->spans[++last] = *span;
	}
	work->nspans = last + 1;
}

/*
 * The text with each of the ranges, of which there is one at least, replaced;
 * in TopMemoryContext.  NULL when out of memory.
 */
char *
paq_mask_render(PaqMaskWork *work, const char *text, uint32 len)
{
	const Size	mark_len = strlen(PAQ_REDACTED);
	Size		size = len + 1;
	uint32		pos = 0;
	char	   *copy;
	char	   *p;

	merge_spans(work);
	for (uint32 i = 0; i < work->nspans; i++)
		size += mark_len - (work->spans[i].end - work->spans[i].start);
	copy = MemoryContextAllocExtended(TopMemoryContext, size,
									  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (copy == NULL)
		return NULL;

	p = copy;
	for (uint32 i = 0; i < work->nspans; i++)
	{
		const PaqSpan *span = &work->spans[i];

		Assert(span->start >= pos && span->end <= len);
		memcpy(p, text + pos, span->start - pos);
		p += span->start - pos;
		memcpy(p, PAQ_REDACTED, mark_len);
		p += mark_len;
		pos = span->end;
	}
	memcpy(p, text + pos, len - pos);
	p[len - pos] = '\0';
	return copy;
}
