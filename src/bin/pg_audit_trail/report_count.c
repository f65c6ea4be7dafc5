/*-------------------------------------------------------------------------
 *
 * report_count.c
 *		Counts by name, in bounded memory.
 *
 * Users decide how many names there are: anybody can try to log in under a million names.
 * So a table has no more than MAX_COUNTERS counters.  When it is full, the half with the
 * lowest counts is dropped, and table->missed becomes the highest of these.  A name that
 * is new, or comes back, begins with that as the number of records that it may have had
 * before.  What is guaranteed (Misra and Gries, with the median as what is dropped; as in
 * DataSketches' "frequent items"):
 *
 * - A name had at least counter->records, and at most counter->missed more.
 * - A name that is not in the table had at most table->missed records, which is
 *	 never more than 2 / MAX_COUNTERS of all that were counted.
 * - As long as there have been no more than MAX_COUNTERS names, all counts are exact.
 *
 * So a flood of names hides no name that has many records, but can hide one that has few.
 * Of those with the same count, the ones that came first stay; but names that come after
 * the first drop begin with a higher one, so a long flood drops those as well.  That there was
 * a flood, the report says.
 *
 * Names are hashed with a random seed: nobody can choose some that meet in the
 * hash table.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/report.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"

/* Most counters of a table */
#define MAX_COUNTERS	10000

/* Most bytes of a name's part that are kept; the hash is of all of them. */
#define MAX_PART		256

typedef struct counter_entry
{
	const Counter *counter;
	char		status;
} counter_entry;

static bool same_name(const Counter *a, const Counter *b);

#define SH_PREFIX			counter
#define SH_ELEMENT_TYPE		counter_entry
#define SH_KEY_TYPE			const Counter *
#define SH_KEY				counter
#define SH_HASH_KEY(tb, key)	((uint32) (key)->hash)
#define SH_EQUAL(tb, a, b)	same_name(a, b)
#define SH_SCOPE			static inline
#define SH_RAW_ALLOCATOR	checked_alloc
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static bool
same_name(const Counter *a, const Counter *b)
{
	if (a->hash != b->hash)
		return false;
	for (int i = 0; i < NAME_PARTS; i++)
	{
		if (a->len[i] != b->len[i] ||
			(a->part[i].data == NULL) != (b->part[i].data == NULL) ||
			a->part[i].len != b->part[i].len)
			return false;
		/* analyzer: what has a length has data, and both have it or neither */
		if (a->part[i].len > 0 &&
			memcmp(a->part[i].data, b->part[i].data, a->part[i].len) != 0)
			return false;
	}
	return true;
}

/* No more bytes than max, and no half of a character */
static Size
kept_length(Text text, Size max)
{
	Size		len = max;

	if (text.len <= max)
		return text.len;
	while (len > max - MAX_MULTIBYTE_CHAR_LEN && ((unsigned char) text.data[len] & 0xc0) == 0x80)
		len--;
	return len;
}

/*
 * A copy of a text, cut if it is longer; NULL if it is null.  Zero bytes, which no server's
 * texts have, become spaces.
 */
char *
keep_text(Text text, Size max)
{
	const Size	len = kept_length(text, max);
	char	   *copy;

	if (text.data == NULL)
		return NULL;
	copy = checked_alloc(len + 2);
	for (Size i = 0; i < len; i++)
		copy[i] = text.data[i] != '\0' ? text.data[i] : ' ';
	if (len < text.len)
		copy[len] = '~';
	return copy;
}

/* What is looked for in the table */
static void
make_probe(Counter *probe, const Text *parts, int nparts)
{
	uint64		hash = hash_seed();

	memset(probe, 0, sizeof(Counter));
	for (int i = 0; i < nparts; i++)
	{
		probe->part[i].data = parts[i].data;
		probe->part[i].len = kept_length(parts[i], MAX_PART);
		probe->len[i] = parts[i].len;
		if (parts[i].data != NULL)
			hash = hash_bytes_extended((const unsigned char *) parts[i].data,
									   (int) Min(parts[i].len, PG_INT32_MAX), hash);
	}
	probe->hash = hash;
}

/* A counter in one piece of memory with its name */
static Counter *
make_counter(const Counter *probe)
{
	Size		size = sizeof(Counter);
	Counter    *counter;
	char	   *p;

	for (int i = 0; i < NAME_PARTS; i++)
		size += probe->part[i].len;
	counter = checked_alloc(size);
	*counter = *probe;
	p = (char *) (counter + 1);
	for (int i = 0; i < NAME_PARTS; i++)
	{
		if (probe->part[i].data == NULL)
			continue;
		memcpy(p, probe->part[i].data, probe->part[i].len);
		counter->part[i].data = p;
		p += probe->part[i].len;
	}
	return counter;
}

/* For qsort: the highest count first; of those that are equal, the first to come */
static int
compare_counts(const void *a, const void *b)
{
	const Counter *left = *(Counter *const *) a;
	const Counter *right = *(Counter *const *) b;
	const int64 left_count = left->records + left->missed;
	const int64 right_count = right->records + right->missed;

	if (left_count != right_count)
		return left_count > right_count ? -1 : 1;
	if (left->has_time != right->has_time)
		return left->has_time ? -1 : 1;
	if (left->first != right->first)
		return left->first < right->first ? -1 : 1;
	return 0;
}

/* All counters, in no order; free() the array. */
Counter **
counters_list(const CounterTable *table, int *count)
{
	counter_iterator iterator;
	counter_entry *entry;
	Counter   **list;

	*count = 0;
	if (table->hash == NULL)
		return NULL;
	list = checked_alloc(Max(table->hash->members, 1) * sizeof(Counter *));
	counter_start_iterate(table->hash, &iterator);
	while ((entry = counter_iterate(table->hash, &iterator)) != NULL)
		list[(*count)++] = unconstify(Counter *, entry->counter);
	return list;
}

static void
drop_lower_half(CounterTable *table)
{
	int			count;
	Counter   **list = counters_list(table, &count);

	qsort(list, count, sizeof(Counter *), compare_counts);
	/* analyzer: there is a list, since the table is full */
	table->missed = list[count / 2]->records + list[count / 2]->missed;
	for (int i = count / 2; i < count; i++)
	{
		counter_delete(table->hash, list[i]);
		free(list[i]->sample);
		free(list[i]);
	}
	free(list);
}

/*
 * The counter of a name, which is made if it is not there.  It is valid until this is called
 * for the table again.
 */
Counter *
counter_get(CounterTable *table, const Text *parts, int nparts)
{
	Counter		probe;
	counter_entry *entry;
	bool		found;

	if (table->hash == NULL)
		table->hash = counter_create(64, NULL);
	make_probe(&probe, parts, nparts);
	entry = counter_lookup(table->hash, &probe);
	if (entry != NULL)
		return unconstify(Counter *, entry->counter);
	if (table->hash->members >= MAX_COUNTERS)
		drop_lower_half(table);
	probe.missed = table->missed;
	entry = counter_insert(table->hash, &probe, &found);
	entry->counter = make_counter(&probe);
	return unconstify(Counter *, entry->counter);
}
