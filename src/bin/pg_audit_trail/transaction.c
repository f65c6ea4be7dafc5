/*-------------------------------------------------------------------------
 *
 * transaction.c
 *		Which transactions were rolled back, and which ones have an id.
 *
 * A record says how its statement ended, not what became of its transaction: that is known
 * later.  So where it matters, the trail is read once before, for the statements that control
 * transactions.  What a record is of is told by its session and its virtual transaction id,
 * which it has from the beginning; an id is given to a transaction when it first writes.
 *
 * Guarantees: "undone" is said only of what a ROLLBACK in the trail has undone, all of a
 * transaction or what was done since a savepoint.  (That takes a trail that has all statements
 * of class MISC of a transaction, or none: where settings leave out some, as after SET ROLE, a
 * savepoint may be one that nobody sees.)  Not all that was undone has such a record: a
 * statement that fails, or a session that ends, takes its transaction with it, and records of
 * ROLLBACK are of class MISC.  What is remembered is bounded by MAX_TRANSACTIONS and MAX_PLACES;
 * where that leaves something out, the program says so.
 *
 * Where a savepoint's name is not certain, or a record may be missing, all savepoints before are
 * forgotten: a name then never leads to an older one than it does in PostgreSQL, but to a
 * younger one, or none.  So savepoints that are gone may be remembered, but none that is there may
 * be missing behind the first that is remembered.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include "common/hashfn.h"

/* Most transactions, and most savepoints and spans of all of them */
#define MAX_TRANSACTIONS	1000000
#define MAX_PLACES			4000000

/* Records between two looks at the clock */
#define PROGRESS_EVERY		256

typedef struct Savepoint
{
	uint64		name;			/* hash */
	int64		line;			/* of the session, see sessionLine */
} Savepoint;

/* Records of a session between these two lines of it */
typedef struct Span
{
	int64		after;
	int64		before;
} Span;

/* Two hash values of session and virtual transaction id */
typedef struct Key
{
	uint64		first;
	uint64		second;
} Key;

typedef struct Transaction
{
	Key			key;
	Savepoint  *savepoints;		/* oldest first */
	Span	   *undone;
	uint64		era;			/* that these are of, see note_order() */
	int			nsavepoints;
	int			nundone;
	bool		wanted;			/* by its id */
	char		status;
} Transaction;

#define SH_PREFIX			transaction
#define SH_ELEMENT_TYPE		Transaction
#define SH_KEY_TYPE			Key
#define SH_KEY				key
#define SH_HASH_KEY(tb, key)	((uint32) (key).first)
#define SH_EQUAL(tb, a, b)	((a).first == (b).first && (a).second == (b).second)
#define SH_SCOPE			static inline
#define SH_RAW_ALLOCATOR	checked_alloc
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

static transaction_hash *transactions;	/* NULL: none is known */
static int64 nplaces;
static bool overflowed;			/* there were more than can be kept */
static uint64 era;				/* counts where records may be missing */

/* ----------
 * What is known
 * ----------
 */

/* False if the record is of no transaction */
static bool
find_key(Record *record, Key *key)
{
	const Text	session = record_text(record, PAQ_TRAIL_SESSION_ID);
	const Text	vxid = record_text(record, PAQ_TRAIL_VIRTUAL_TRANSACTION_ID);
	uint64	   *half[] = {&key->first, &key->second};

	if (session.data == NULL || vxid.data == NULL || session.len + vxid.len > PG_INT16_MAX)
		return false;
	for (int i = 0; i < lengthof(half); i++)
	{
		*half[i] = hash_bytes_extended((const unsigned char *) session.data, (int) session.len,
									   hash_seed() + i);
		*half[i] = hash_bytes_extended((const unsigned char *) vxid.data, (int) vxid.len,
									   *half[i]);
	}
	return true;
}

/* The record's transaction; NULL if it is not known */
static Transaction *
find_transaction(Record *record)
{
	Key			key;

	if (transactions == NULL || !find_key(record, &key))
		return NULL;
	return transaction_lookup(transactions, key);
}

/* The same, which is added if it is not known; NULL if that cannot be */
static Transaction *
get_transaction(Record *record)
{
	Transaction *transaction;
	Key			key;
	bool		found;

	if (!find_key(record, &key))
		return NULL;
	if (transactions == NULL)
		transactions = transaction_create(1024, NULL);
	transaction = transaction_lookup(transactions, key);
	if (transaction != NULL)
		return transaction;
	if (transactions->members >= MAX_TRANSACTIONS)
	{
		overflowed = true;
		return NULL;
	}
	transaction = transaction_insert(transactions, key, &found);
	transaction->savepoints = NULL;
	transaction->undone = NULL;
	transaction->nsavepoints = transaction->nundone = 0;
	transaction->era = era;
	transaction->wanted = false;
	return transaction;
}

/* Space for one element more, of a list with so many; NULL if there are too many */
static void *
extend(void *list, int count, Size size)
{
	if (nplaces >= MAX_PLACES)
	{
		overflowed = true;
		return NULL;
	}
	nplaces++;

	/* a power of 2, full, or nothing yet */
	if ((count & (count - 1)) != 0)
		return list;
	list = realloc(list, Max(count * 2, 1) * size);
	if (list == NULL)
		trouble("out of memory");
	return list;
}

/* Only the first savepoints stay. */
static void
forget_savepoints(Transaction *transaction, int from)
{
	nplaces -= transaction->nsavepoints - from;
	transaction->nsavepoints = from;
	if (from > 0)
		return;
	free(transaction->savepoints);
	transaction->savepoints = NULL;
}

/* If it cannot be remembered, older ones must not be found either. */
static void
add_savepoint(Transaction *transaction, uint64 name, int64 line)
{
	Savepoint  *list = extend(transaction->savepoints, transaction->nsavepoints,
							 sizeof(Savepoint));

	if (list == NULL)
	{
		forget_savepoints(transaction, 0);
		return;
	}
	transaction->savepoints = list;
	list[transaction->nsavepoints++] = (Savepoint){ name, line };
}

/*
 * Both ends of the spans go up: those that are in the new one, it replaces.  One that does not
 * come behind the others is of a trail that has been put together somehow.
 */
static void
add_undone(Transaction *transaction, int64 after, int64 before)
{
	Span	   *list = transaction->undone;

	while (transaction->nundone > 0 && list[transaction->nundone - 1].after >= after &&
		   list[transaction->nundone - 1].before <= before)
	{
		transaction->nundone--;
		nplaces--;
	}
	if (transaction->nundone > 0 && list[transaction->nundone - 1].before >= before)
		return;
	list = extend(list, transaction->nundone, sizeof(Span));
	if (list == NULL)
		return;
	transaction->undone = list;
	list[transaction->nundone++] = (Span){ after, before };
}

/*
 * The latest savepoint of that name; -1 if none is known.  That is then older than all that are,
 * which are gone with what is done to it: nobody looks through them again.
 */
static int
find_savepoint(Transaction *transaction, uint64 name)
{
	for (int i = transaction->nsavepoints - 1; i >= 0; i--)
		if (transaction->savepoints[i].name == name)
			return i;
	forget_savepoints(transaction, 0);
	return -1;
}

/* It is over.  What is of no use any more makes place for others. */
static void
end_transaction(Transaction *transaction)
{
	forget_savepoints(transaction, 0);
	if (transaction->nundone == 0 && !transaction->wanted)
		transaction_delete_item(transactions, transaction);
}

/* ----------
 * Reading
 * ----------
 */

/* The name of a savepoint, if it is certain, with which the statement ends */
static bool
take_last_name(Words *words, uint64 *hash)
{
	return words_take_name(words, hash) && words_at_end(words);
}

/* The same, behind a word that may also be its name */
static bool
take_savepoint(Words *words, uint64 *hash)
{
	const Words before = *words;

	if (words_take(words, "SAVEPOINT") && take_last_name(words, hash))
		return true;
	*words = before;
	return take_last_name(words, hash);
}

static void
note_savepoint(Record *record, Words *words, int64 line)
{
	Transaction *transaction = get_transaction(record);
	uint64		name;

	if (transaction == NULL)
		return;
	if (line > 0 && words_take(words, "SAVEPOINT") && take_last_name(words, &name))
		add_savepoint(transaction, name, line);
	else
		forget_savepoints(transaction, 0);
}

static void
note_release(Record *record, Words *words)
{
	Transaction *transaction = find_transaction(record);
	uint64		name;
	int			number;

	if (transaction == NULL || !words_take(words, "RELEASE") || !take_savepoint(words, &name))
		return;
	number = find_savepoint(transaction, name);
	if (number >= 0)
		forget_savepoints(transaction, number);
}

/*
 * Of a transaction, or back to a savepoint, which stays.  If it is not certain what it is, it is
 * left out.
 */
static void
note_rollback(Record *record, Words *words, int64 line)
{
	Transaction *transaction;
	uint64		name;
	int			number;

	if (!words_take(words, "ROLLBACK") && !words_take(words, "ABORT"))
		return;
	(void) (words_take(words, "WORK") || words_take(words, "TRANSACTION"));
	if (words_at_end(words) || words_take(words, "AND"))
	{
		transaction = get_transaction(record);
		if (transaction == NULL)
			return;
		add_undone(transaction, 0, line);
		end_transaction(transaction);
		return;
	}
	transaction = find_transaction(record);
	if (transaction == NULL || !words_take(words, "TO") || !take_savepoint(words, &name))
		return;
	number = find_savepoint(transaction, name);
	if (number < 0)
		return;
	add_undone(transaction, transaction->savepoints[number].line, line);
	forget_savepoints(transaction, number + 1);
}

/* Returns true if the record has its whole statement, as it was sent. */
static bool
has_statement(const Record *record)
{
	static const PaqTrailField marks[] = {
		PAQ_TRAIL_CUT, PAQ_TRAIL_INCOMPLETE, PAQ_TRAIL_MASKED, PAQ_TRAIL_PART
	};

	for (int i = 0; i < lengthof(marks); i++)
		if (paq_line_has(&record->line, marks[i]))
			return false;
	return paq_line_has(&record->line, PAQ_TRAIL_COMMAND_TEXT);
}

/*
 * A statement that controls its transaction, if the record is of one that has succeeded.  Of one
 * whose text is not known, nothing but the command is.
 */
static void
note_control(Record *record)
{
	const int64 line = record_number(record, PAQ_TRAIL_SESSION_LINE);
	Transaction *transaction;
	Text		text = {"", 0};
	Words		words;

	if (!record_is(record, PAQ_TRAIL_CLASS, "MISC") ||
		!record_is(record, PAQ_TRAIL_EXIT_CODE, "00000"))
		return;
	if (has_statement(record))
		text = record_text(record, PAQ_TRAIL_COMMAND_TEXT);
	words = (Words){ text.data, text.data + text.len };
	transaction = find_transaction(record);
	if (transaction != NULL && transaction->era != era)
	{
		forget_savepoints(transaction, 0);
		transaction->era = era;
	}
	if (record_is(record, PAQ_TRAIL_COMMAND, "SAVEPOINT"))
		note_savepoint(record, &words, line);
	else if (record_is(record, PAQ_TRAIL_COMMAND, "RELEASE"))
		note_release(record, &words);
	else if (record_is(record, PAQ_TRAIL_COMMAND, "ROLLBACK") && line > 0)
		note_rollback(record, &words, line);
	else if (record_is(record, PAQ_TRAIL_COMMAND, "COMMIT") && transaction != NULL)
		end_transaction(transaction);
}

/* Notice if records are, or may be, missing before this one. */
static void
note_order(Record *record)
{
	static int64 last;
	static int64 series;
	const int64 sequence = record_number(record, PAQ_TRAIL_SEQUENCE);

	if (sequence != last + 1 || record_number(record, PAQ_TRAIL_SERIES) != series ||
		record_is_gap(record))
		era++;
	last = sequence + record->nparts - 1;
	series = record_number(record, PAQ_TRAIL_SERIES);
}

/* If the record has a transaction id that is wanted, remember the transaction. */
static void
note_wanted(const Filter *filter, Record *record)
{
	const Text	id = record_text(record, PAQ_TRAIL_TRANSACTION_ID);
	Transaction *transaction;

	if (id.data == NULL || !filter_in_range(filter, record))
		return;
	for (int i = 0; i < filter->transaction.count; i++)
		if (word_matches(id, filter->transaction.pattern[i], false))
		{
			transaction = get_transaction(record);
			if (transaction != NULL)
				transaction->wanted = true;
			return;
		}
}

/* Returns its bytes. */
static uint64
read_transactions(const Options *options, const TrailFile *file, uint64 done)
{
	static Record record;
	Source	   *source = source_open(file, options->keys, true);
	uint64		bytes = 0;
	int64		number = 0;

	if (source == NULL)
		return 0;
	source_join(source, false);
	while (source_next(source, &record) == SOURCE_RECORD)
	{
		record_decode_as(&record, false);
		note_order(&record);
		note_wanted(&options->filter, &record);
		note_control(&record);
		if (++number % PROGRESS_EVERY == 0 && progress_is_shown())
			progress_report(done + source_position(source), false);
	}
	bytes = source_position(source);
	source_close(source);
	return bytes;
}

/* The option that needs it; NULL: none */
static const char *
needed_by(const Options *options)
{
	const Filter *filter = &options->filter;

	if (filter_wants_undone(filter))
		return "--outcome=undone";
	for (int i = 0; i < filter->transaction.count; i++)
		if (is_transaction_id(filter->transaction.pattern[i]))
			return "--transaction";
	return NULL;
}

/*
 * Returns true if the command has to know what became of transactions.  A table of what can be
 * read only once has no marks.
 */
static bool
is_needed(const Options *options, const FileList *files)
{
	const char *option = needed_by(options);

	for (int i = 0; i < files->count; i++)
	{
		if (!files->files[i].is_stdin)
			continue;
		if (option != NULL)
			trouble("option %s cannot be used with standard input, which would have to be read twice",
					option);
		return false;
	}
	return option != NULL || (options->format == FORMAT_TABLE && !options->count);
}

/*
 * Read all of these files, if options need that.  Messages about damage are left to who reads
 * them again.
 */
void
transactions_read(const Options *options, const FileList *files)
{
	uint64		done = 0;

	if (!is_needed(options, files))
		return;
	progress_begin(options, files_size(files));
	for (int i = 0; i < files->count; i++)
		if (files->files[i].format == FORMAT_JSON)
			done += read_transactions(options, &files->files[i], done);
	progress_report(done, true);
	if (overflowed)
	{
		pg_log_warning("there are more transactions than can be remembered: not all that was rolled back is marked");
		pg_log_warning_hint("Name fewer files.");
	}
}

/* ----------
 * Answers
 * ----------
 */

/* Statements that control transactions did what they say, whatever came later. */
static bool
is_control(Record *record)
{
	static const char *const commands[] = {
		"BEGIN", "START TRANSACTION", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"
	};

	for (int i = 0; i < lengthof(commands); i++)
		if (record_is(record, PAQ_TRAIL_COMMAND, commands[i]))
			return true;
	return false;
}

/* Both ends of the spans go up: the first that ends behind the line begins first, too. */
static bool
is_in_span(const Transaction *transaction, int64 line)
{
	int			low = 0;
	int			high = transaction->nundone;

	while (low < high)
	{
		const int	middle = low + (high - low) / 2;

		if (transaction->undone[middle].before > line)
			high = middle;
		else
			low = middle + 1;
	}
	return low < transaction->nundone && transaction->undone[low].after < line;
}

/*
 * Returns true if the record's statement has succeeded, and a ROLLBACK that is in the trail has
 * undone it.
 */
bool
transaction_is_undone(Record *record)
{
	const Transaction *transaction = find_transaction(record);
	const int64 line = record_number(record, PAQ_TRAIL_SESSION_LINE);

	return transaction != NULL && line > 0 && !is_control(record) &&
		record_is(record, PAQ_TRAIL_EXIT_CODE, "00000") && is_in_span(transaction, line);
}

/* Returns true if the record's transaction has an id that is wanted, though it got it later. */
bool
transaction_is_wanted(Record *record)
{
	const Transaction *transaction = find_transaction(record);

	return transaction != NULL && transaction->wanted;
}
