/*-------------------------------------------------------------------------
 *
 * names.c
 *		A number for each name.
 *
 * Names come from files that anybody may have written.  So they are hashed with a random
 * seed: nobody can choose some that meet in the hash table, and finding one takes the same
 * time however many there are.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include "common/hashfn.h"

typedef struct NameEntry
{
	const char *name;
	uint32		hash;
	char		status;
	uint64		number;
} NameEntry;

static uint32 hash_name(const char *name);

#define SH_PREFIX			name
#define SH_ELEMENT_TYPE		NameEntry
#define SH_KEY_TYPE			const char *
#define SH_KEY				name
#define SH_HASH_KEY(tb, key)	hash_name(key)
#define SH_EQUAL(tb, a, b)	(strcmp(a, b) == 0)
#define SH_STORE_HASH
#define SH_GET_HASH(tb, a)	(a)->hash
#define SH_SCOPE			static inline
#define SH_RAW_ALLOCATOR	checked_alloc
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static uint32
hash_name(const char *name)
{
	return (uint32) hash_bytes_extended((const unsigned char *) name, (int) strlen(name),
										hash_seed());
}

/* The number of a name; NULL if it is not there.  Valid until a name is added. */
uint64 *
names_find(const Names *names, const char *name)
{
	NameEntry  *entry = names->hash != NULL ? name_lookup(names->hash, name) : NULL;

	return entry != NULL ? &entry->number : NULL;
}

/* The same, but adds it with number 0 if it is not there; *found tells that. */
uint64 *
names_add(Names *names, const char *name, bool *found)
{
	NameEntry  *entry;

	if (names->hash == NULL)
		names->hash = name_create(64, NULL);
	entry = name_insert(names->hash, name, found);
	if (!*found)
	{
		entry->name = checked_strdup(name);
		entry->number = 0;
	}
	return &entry->number;
}
