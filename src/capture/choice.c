/*-------------------------------------------------------------------------
 *
 * choice.c
 *		Whether and how something is recorded: what the rules decide about each
 *		subject of a statement (policy/), and the settings where no rule does.
 *
 * A statement is recorded if any of its subjects is.  If several rules record it,
 * the first of them in the file has the options.  A rule can have conditions that are
 * known only when the statement ends.  Then its record is made as if they held, with
 * each text that any rule in question wants, and keeps the choice.  When the outcome is
 * known, the record is let go, or gets what the rule that decides wants.  What a crash
 * interrupts has its record: recovery finds it in the slot.
 *
 * Rules are those that were in effect when the statement began: a choice pins them.
 *
 * Must not raise, except for what policy/match.c may, in paq_choose(), and for lack
 * of memory.  paq_choice_settle() never raises: without memory the record stays as it
 * is.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "utils/memutils.h"

/* A choice notes for that many of its decisions whether log_catalog leaves their subjects out. */
#define PAQ_MAX_HIDDEN	64

/* What is yet to be decided about a record */
typedef struct PaqLateChoice
{
	PaqSessionRules *rules;		/* that all of this belongs to */
	const PaqVerdict *best;		/* the first rule that records the statement whatever
								 * its outcome is; NULL: none */
	bool		decided;		/* a rule has decided about some subject, */
	bool		left;			/* the settings have about some */

	/* Do the settings want the record, */
	bool		audited_now;	/* for a subject that they decide about anyhow, */
	uint32		audited_later;	/* for one of these classes that they decide about in
								 * the end, */
	bool		audited_whole;	/* or if no rule has decided about any? */
	bool		by_class;		/* what the settings want, they want for its class, not for
								 * grants */
	uint64		hidden;			/* bits: for which decisions the settings are not asked */
	bool		masked;			/* the settings mask constants */
	bool		uncounted;		/* rows may be changed that nobody counts */
	int64		rows;			/* if the record has none; or PAQ_ROWS_xxx */
	int			number;
	const PaqDecision *decisions[FLEXIBLE_ARRAY_MEMBER];
} PaqLateChoice;

/* What the settings want of a record */
static const PaqVerdict settings_verdict = {
	.record = true, .mode = -1, .parameters = -1, .statement = PAQ_TEXT_DEFAULT
};

/* ----------
 * Choosing
 * ----------
 */

/* Add a decision that is yet to be made. */
void
paq_choice_add_later(PaqChoice *choice, const PaqDecision *decision)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	choice->later = list_append_unique_ptr(choice->later,
										   unconstify(PaqDecision *, decision));
	MemoryContextSwitchTo(old_context);
}

/*
 * Have the rules decide about the subject, and add that to the choice, unless grants
 * have selected it: then there is a record of the object, and none of the statement.
 * Returns the decision, NULL if there are no rules: the settings decide.
 */
const PaqDecision *
paq_choose(PaqChoice *choice, const PaqSubject *subject)
{
	const PaqDecision *decision;

	if (!paq_policy.has_rules && choice->rules == NULL)
	{
		choice->by_settings = true;
		return NULL;
	}
	if (choice->rules == NULL)
		choice->rules = paq_policy_pin(paq_policy.rules);
	decision = paq_policy_decide(choice->rules, subject);
	if (likely(!decision->granted))
		paq_choice_add(choice, decision);
	if (decision->final != NULL)
		return decision;
	if (decision->nlater == 0)
		choice->left_classes |= PAQ_CLASS_BIT(subject->class);
	else
		choice->left_later = true;
	return decision;
}

/*
 * Have the rules decide about a relation of a statement, and add that to the choice, as
 * paq_choose() does.  hidden: log_catalog leaves the relation out, so the settings are not asked
 * about it where no rule decides.
 */
void
paq_choose_shown(PaqChoice *choice, const PaqSubject *subject, bool hidden)
{
	const uint32 left = choice->left_classes;
	const int	number = list_length(choice->later);
	const PaqDecision *decision = paq_choose(choice, subject);

	if (decision == NULL || decision->final != NULL)
		return;
	if (hidden && decision->nlater == 0)
	{
		choice->hidden_classes |= PAQ_CLASS_BIT(subject->class);
		choice->left_classes = left;
	}
	else if (hidden && list_length(choice->later) > number && number < PAQ_MAX_HIDDEN)
		choice->hidden_later |= UINT64CONST(1) << number;
	else if (!hidden && choice->hidden_later != 0)
	{
		/* What has been decided about a hidden one counts for this one, too. */
		for (int i = 0; i < Min(number, PAQ_MAX_HIDDEN); i++)
			if (list_nth(choice->later, i) == decision)
				choice->hidden_later &= ~(UINT64CONST(1) << i);
	}
}

/* ----------
 * Texts
 * ----------
 */

/* Does a record that the verdict asks for have the text of its statement? */
static bool
wants_statement(const PaqVerdict *verdict)
{
	if (verdict->statement == PAQ_TEXT_DEFAULT)
		return paq_log_statement || verdict->mandatory;
	return verdict->statement != PAQ_TEXT_OFF;
}

static bool
wants_parameters(const PaqVerdict *verdict)
{
	if (verdict->parameters >= 0)
		return verdict->parameters;
	return paq_log_parameter && !verdict->mandatory;
}

/* masked: the settings mask constants, which a mandatory rule has to ask for itself. */
static void
add_wish(PaqWish *wish, const PaqVerdict *verdict, bool masked)
{
	const bool	statement = wants_statement(verdict);

	wish->statement |= statement;
	wish->parameters |= statement && wants_parameters(verdict);
	wish->repeated |= !paq_log_statement_once || verdict->mandatory;
	wish->long_parameters |= verdict->mandatory;
	if (statement)
		wish->normalized &= verdict->statement == PAQ_TEXT_NORMALIZED ||
			(masked && !verdict->mandatory);
}

/* The same for one verdict, NULL being that of the settings. */
PaqWish
paq_verdict_wish(const PaqVerdict *verdict, bool masked)
{
	PaqWish		wish = {.normalized = true};

	add_wish(&wish, verdict ? verdict : &settings_verdict, masked);
	wish.normalized &= wish.statement;
	return wish;
}

/*
 * The texts that a record is to have.  If it is yet to be decided, these are all that
 * may be wanted.
 */
PaqWish
paq_choice_wish(const PaqChoice *choice, bool masked)
{
	PaqWish		wish = {.normalized = true};
	ListCell   *lc;

	if (choice->best == NULL && choice->later == NIL)
		return paq_verdict_wish(NULL, masked);
	if (choice->best != NULL)
		add_wish(&wish, choice->best, masked);
	if (choice->by_settings && choice->best == NULL)
		add_wish(&wish, &settings_verdict, masked);
	foreach(lc, choice->later)
	{
		const PaqDecision *decision = lfirst(lc);

		for (int i = 0; i < decision->nlater; i++)
			if (decision->later[i]->record)
				add_wish(&wish, decision->later[i], masked);
		if (decision->final == NULL || decision->final->record)
			add_wish(&wish, decision->final ? decision->final : &settings_verdict,
					 masked);
	}
	wish.normalized &= wish.statement;
	return wish;
}

/* ----------
 * The end
 * ----------
 */

/*
 * Does the executor not count all rows that the statement changes?  Not those that its
 * WITH clause changes, nor those of what a rule has it do as well.
 */
static bool
has_uncounted_rows(const PaqStatement *statement)
{
	const QueryDesc *query = statement->query_desc;

	return query != NULL &&
		(query->plannedstmt->hasModifyingCTE ||
		 (query->operation != CMD_SELECT && !query->plannedstmt->canSetTag));
}

/*
 * The record has been made because of the choice: note what is yet to be decided about
 * it.  masked: the settings mask its constants.  Without memory for that, nothing else
 * decides about the record.
 */
void
paq_choice_attach(PaqPending *pending, const PaqChoice *choice, bool masked,
				  const PaqStatement *statement)
{
	const bool	audited = paq_choice_is_audited(choice,
											   paq_pending_header(pending)->audit_class);
	const bool	by_class = choice->by_subject && choice->wanted != PAQ_NOT_WANTED;
	const int	number = list_length(choice->later);
	PaqLateChoice *late;

	late = MemoryContextAllocExtended(TopMemoryContext,
									  offsetof(PaqLateChoice, decisions) +
										  number * sizeof(PaqDecision *),
									  MCXT_ALLOC_NO_OOM);
	if (late == NULL)
		return;
	late->rules = paq_policy_pin(choice->rules);
	late->best = choice->best;
	late->decided = choice->by_rules;
	late->left = choice->by_settings;
	late->audited_now = by_class ? (choice->left_classes & paq_log_classes) != 0 :
		choice->by_settings && audited;
	late->audited_later = by_class ? paq_log_classes :
		audited ? PAQ_CLASSES_ALL : PAQ_CLASSES_NONE;
	late->audited_whole = audited;
	late->by_class = choice->wanted == PAQ_WANTED_BY_CLASS;
	late->hidden = choice->hidden_later;
	late->masked = masked;
	late->rows = statement->command.node == T_CopyStmt ? PAQ_ROWS_UNKNOWN : PAQ_ROWS_NONE;
	late->uncounted = has_uncounted_rows(statement);
	late->number = number;
	for (int i = 0; i < number; i++)
		late->decisions[i] = list_nth(choice->later, i);
	pending->choice = late;
}

/* Forget what is yet to be decided about the record. */
void
paq_choice_detach(PaqPending *pending)
{
	PaqLateChoice *late = pending->choice;

	if (likely(late == NULL))
		return;
	pending->choice = NULL;
	paq_policy_unpin(late->rules);
	pfree(late);
}

/*
 * The statement fails after its executor has processed that many rows, which its
 * records do not show.
 */
void
paq_choice_note_rows(dlist_head *records, int64 rows)
{
	dlist_iter	iter;

	dlist_foreach(iter, records)
	{
		PaqPending *pending = dlist_container(PaqPending, node, iter.cur);

		if (pending->choice != NULL)
			((PaqLateChoice *) pending->choice)->rows = rows;
	}
}

/*
 * log_catalog does not leave the statement out any more: where something is yet to be decided
 * about its records, the settings count.  Returns false if there is no such record.
 */
bool
paq_choice_show(PaqStatement *statement)
{
	bool		found = false;
	dlist_iter	iter;

	dlist_foreach(iter, &statement->records)
	{
		PaqPending *pending = dlist_container(PaqPending, node, iter.cur);
		PaqLateChoice *late = pending->choice;

		if (late == NULL || pending->is_call ||
			(paq_pending_header(pending)->flags & PAQ_RECORD_OBJECT) != 0)
			continue;
		late->hidden = 0;
		late->audited_now = (statement->choice.hidden_classes & paq_log_classes) != 0;
		late->audited_later = paq_log_classes;
		late->audited_whole =
			paq_class_is_audited(paq_pending_header(pending)->audit_class);
		found = true;
	}
	return found;
}

/*
 * When a session has to wait for the record: as its rule says, or as the strictest of
 * those that may be its rule.
 */
PaqMode
paq_choice_mode(const PaqPending *pending, PaqClass class)
{
	const PaqLateChoice *late = pending->choice;
	PaqMode		mode = paq_mode;

	if (pending->mode >= 0)
		mode = pending->mode;
	else if (paq_immediate_classes & PAQ_CLASS_BIT(class))
		mode = PAQ_MODE_IMMEDIATE;
	for (int i = 0; late != NULL && i < late->number; i++)
		for (int j = 0; j < late->decisions[i]->nlater; j++)
			mode = Max((int) mode, late->decisions[i]->later[j]->mode);
	return mode;
}

/*
 * The rule that decides, whether it records or not; NULL: the settings decide.
 */
static const PaqVerdict *
settle_decision(const PaqDecision *decision, const PaqEnd *end)
{
	for (int i = 0; i < decision->nlater; i++)
		if (paq_verdict_holds(decision->later[i], end))
			return decision->later[i];
	return decision->final;
}

/*
 * The first rule in the file that records is the verdict, and the settings come behind
 * all rules; NULL: there is no record.
 */
static const PaqVerdict *
settle(const PaqLateChoice *late, const PaqEnd *end)
{
	const PaqVerdict *best = late->best;
	bool		audited = late->audited_now;
	bool		decided = late->decided;
	bool		left = late->left;

	for (int i = 0; i < late->number; i++)
	{
		const PaqVerdict *verdict = settle_decision(late->decisions[i], end);

		if (verdict == NULL)
		{
			audited |= (late->decisions[i]->late_class & late->audited_later) != 0 &&
				(i >= PAQ_MAX_HIDDEN || (late->hidden & (UINT64CONST(1) << i)) == 0);
			left = true;
		}
		else
		{
			decided = true;
			if (verdict->record)
				best = paq_first_verdict(best, verdict);
		}
	}
	audited |= (!decided && late->audited_whole) ||
		(left && (end->outcomes & PAQ_OUTCOME_DENIED) != 0 &&
		 (paq_log_classes & PAQ_DENIED_BIT) != 0);
	if (best == NULL && audited)
		return &settings_verdict;
	return best;
}

/* Leave out texts of the record that the verdict does not want; returns the flags. */
static uint32
leave_out(PaqText *statement, PaqText *parameters, PaqWish wish, uint32 flags)
{
	const uint32 gone = PAQ_RECORD_STMT_NOT_LOGGED | PAQ_RECORD_STMT_PREVIOUS;

	if ((flags & gone) != 0)
		return flags;
	if (!wish.statement)
	{
		statement->data = parameters->data = NULL;
		statement->len = parameters->len = 0;
		return (flags & ~(PAQ_RECORD_SPILLED | PAQ_RECORD_CONSTANTS |
						  PAQ_RECORD_PARAM_NOT_LOGGED)) | PAQ_RECORD_STMT_NOT_LOGGED;
	}
	if (!wish.parameters && (flags & PAQ_RECORD_CONSTANTS) == 0)
	{
		parameters->data = NULL;
		parameters->len = 0;
		flags |= PAQ_RECORD_PARAM_NOT_LOGGED;
	}
	return flags;
}

/*
 * Mask the constants of the text, which ends with a terminator.  The scanner is not
 * called: an error may be being handled.
 */
static uint32
mask_constants(PaqText *statement, PaqText *parameters, PaqMasked *shown, bool succeeded,
			   uint32 flags)
{
	if (statement->data == NULL || (flags & PAQ_RECORD_CONSTANTS) != 0)
		return flags;
	paq_mask_text(statement->data, PAQ_MASK_CONSTANTS | (succeeded ? PAQ_MASK_WHOLE : 0), shown);
	statement->data = shown->text;
	statement->len = shown->len;
	parameters->data = NULL;
	parameters->len = 0;
	flags &= ~PAQ_RECORD_PARAM_NOT_LOGGED;
	return flags | PAQ_RECORD_CONSTANTS | paq_masked_flags(shown);
}

/*
 * Give the record the texts and the name that the verdict wants, if it lacks them.  What
 * the settings want for its class alone is no record of object auditing.
 */
static PaqPending *
revise(PaqPending *pending, const PaqVerdict *verdict, const PaqLateChoice *late, bool succeeded)
{
	const uint32 flags = paq_pending_header(pending)->flags &
		(verdict == &settings_verdict && late->by_class ? ~PAQ_RECORD_OBJECT : ~0U);
	const PaqWish wish = paq_verdict_wish(verdict, late->masked);
	PaqText    *statement;
	PaqText    *parameters;
	PaqContents contents;
	PaqMasked	shown = {NULL};
	char	   *text = NULL;

	if (!paq_pending_open(pending, &contents))
		return pending;
	statement = &contents.record.field[PAQ_FIELD_STATEMENT];
	parameters = &contents.record.field[PAQ_FIELD_PARAMETER];
	contents.record.header.flags = leave_out(statement, parameters, wish, flags);
	if (wish.normalized && statement->data != NULL && (flags & PAQ_RECORD_CONSTANTS) == 0)
	{
		/* Without memory for a text with a terminator, there is none. */
		text = MemoryContextAllocExtended(TopMemoryContext, (Size) statement->len + 1,
										  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
		if (text != NULL)
		{
			memcpy(text, statement->data, statement->len);
			text[statement->len] = '\0';
		}
		else
			contents.record.header.flags |= PAQ_RECORD_INCOMPLETE;
		statement->data = text;
		contents.record.header.flags =
			mask_constants(statement, parameters, &shown, succeeded,
						   contents.record.header.flags);
	}
	if (verdict->name.data != NULL)
		contents.record.field[PAQ_FIELD_POLICY] = verdict->name;
	pending = paq_pending_rewrite(pending, &contents);
	if (text != NULL)
		pfree(text);
	if (shown.copy != NULL)
		pfree(shown.copy);
	return pending;
}

/*
 * The outcome of what the record is about is known, or it is certain that it will not
 * be: is it to be published?  error NULL is success.  Returns the record, which may be
 * in other memory now, in the same list; NULL if it has been let go.
 */
PaqPending *
paq_choice_settle(PaqPending *pending, const PaqError *error, TimestampTz end_time)
{
	const PaqRecordHeader *header = paq_pending_header(pending);
	PaqLateChoice *late = pending->choice;
	const PaqVerdict *verdict;
	PaqEnd		end = {.outcomes = PAQ_OUTCOME_OK};

	if (header->sqlstate != 0 || error != NULL)
		end.outcomes = paq_outcome_bits(header->sqlstate ? header->sqlstate : error->sqlstate);
	else if (header->flags & PAQ_RECORD_NO_OUTCOME)
		end.outcomes = 0;
	end.interrupted = (header->flags & PAQ_RECORD_INTERRUPTED) != 0;
	end.rows = header->rows >= 0 ? header->rows : late->rows;
	if (late->uncounted)
		end.rows = PAQ_ROWS_UNKNOWN;
	end.duration = end_time - header->start_time;
	verdict = settle(late, &end);
	if (verdict != NULL)
	{
		paq_verdict_apply(pending, verdict);
		pending = revise(pending, verdict, late, (end.outcomes & PAQ_OUTCOME_FAILED) == 0);
	}
	paq_choice_detach(pending);
	if (verdict != NULL)
		return pending;
	paq_pending_free(pending);
	return NULL;
}

/* ----------
 * Events
 * ----------
 */

/*
 * Is the event, which has no object but, for a function, that in event->function, to be
 * recorded?  sqlstate is its outcome, -1 if that is not known.
 */
bool
paq_event_choose(PaqEvent *event, const PaqSubject *subject, int sqlstate)
{
	PaqChoice	choice = {NULL};
	const PaqDecision *decision = paq_choose(&choice, subject);
	const bool	audited = paq_class_is_audited(event->class) ||
		(!event->known && paq_denial_is_audited(sqlstate));
	PaqEnd		end = {.rows = PAQ_ROWS_NONE};

	if (likely(decision == NULL))
		return audited;
	if (sqlstate != -1)
		end.outcomes = paq_outcome_bits(sqlstate);
	end.duration = GetCurrentTimestamp() - event->start_time;
	event->verdict = settle_decision(decision, &end);
	if (event->verdict == NULL && audited)
		event->verdict = &settings_verdict;
	else if (event->verdict != NULL && !event->verdict->record)
		event->verdict = NULL;
	paq_choice_end(&choice);
	return event->verdict != NULL;
}
