/*-------------------------------------------------------------------------
 *
 * identity.c
 *		Whether a rule can apply, by who the session is: its database, its user and
 *		where its client is.
 *
 * What cannot be told counts for recording: a rule to record applies then, a rule to
 * ignore does not.
 *
 * Must not raise, except for what looking up roles, and lack of memory, may.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "libpq/ifaddr.h"
#include "libpq/libpq-be.h"
#include "mb/pg_wchar.h"
#include "policy/policy_internal.h"
#include "utils/acl.h"

/* Searches for regular expressions that have failed */
uint64		paq_failed_searches = 0;

/* The client's address is among those that pg_foreach_ifaddr() goes through */
typedef struct InterfaceSearch
{
	const SockAddr *client;
	bool		whole_net;
	bool		found;
} InterfaceSearch;

/* ----------
 * Words
 * ----------
 */

/*
 * Returns whether the expression matches anywhere in the text.  That is unknown if regex is NULL
 * (rule.c), and if the search fails for want of stack or memory; the latter is not remembered.
 */
PaqMatch
paq_match_regex(regex_t *regex, const char *text)
{
	const Size	len = strlen(text);
	pg_wchar   *wide;
	int			wide_len;
	int			code;

	if (regex == NULL)
		return PAQ_MATCH_UNKNOWN;
	wide = palloc((len + 1) * sizeof(pg_wchar));
	wide_len = pg_mb2wchar_with_len(text, wide, len);
	code = paq_regexec(regex, wide, wide_len, 0, 0, NULL, false);
	pfree(wide);
	if (code == REG_OKAY)
		return PAQ_MATCH_YES;
	if (code == REG_NOMATCH)
		return PAQ_MATCH_NO;
	paq_failed_searches++;
	return PAQ_MATCH_UNKNOWN;
}

/* Returns whether the session's user is a member of the role. */
PaqMatch
paq_match_group(const char *group, const PaqIdentity *who)
{
	Oid			oid;

	if (!OidIsValid(who->role))
		return PAQ_MATCH_UNKNOWN;
	oid = get_role_oid(group, true);
	return OidIsValid(oid) && is_member_of_role_nosuper(who->role, oid) ?
		PAQ_MATCH_YES : PAQ_MATCH_NO;
}

static PaqMatch
match_name(const PaqName *name, const PaqIdentity *who, const char *text)
{
	switch (name->kind)
	{
		case PAQ_NAME_ALL:
			return PAQ_MATCH_YES;
		case PAQ_NAME_EXACT:
			return text != NULL && strcmp(name->text, text) == 0 ? PAQ_MATCH_YES : PAQ_MATCH_NO;
		case PAQ_NAME_REGEX:
			return text != NULL ? paq_match_regex(name->regex, text) : PAQ_MATCH_NO;
		case PAQ_NAME_GROUP:
			return who->user != NULL ? paq_match_group(name->text, who) : PAQ_MATCH_NO;
		default:
			return PAQ_MATCH_NO;
	}
}

/* Walsenders for physical replication have no database: names are not theirs. */
static PaqMatch
match_database(const PaqName *name, const PaqIdentity *who)
{
	switch (name->kind)
	{
		case PAQ_NAME_REPLICATION:
			return who->replication ? PAQ_MATCH_YES : PAQ_MATCH_NO;
		case PAQ_NAME_SAMEUSER:
			return who->database != NULL && who->user != NULL &&
				strcmp(who->database, who->user) == 0 ? PAQ_MATCH_YES : PAQ_MATCH_NO;
		case PAQ_NAME_SAMEROLE:
			return who->database != NULL && who->user != NULL ?
				paq_match_group(who->database, who) : PAQ_MATCH_NO;
		default:
			return match_name(name, who, who->database);
	}
}

static void
look_at_interface(struct sockaddr *addr, struct sockaddr *netmask, void *data)
{
	InterfaceSearch *search = data;
	struct sockaddr_storage mask;

	if (search->found || addr->sa_family != search->client->addr.ss_family)
		return;
	if (!search->whole_net)
	{
		pg_sockaddr_cidr_mask(&mask, NULL, addr->sa_family);
		netmask = (struct sockaddr *) &mask;
	}
	search->found = pg_range_sockaddr(&search->client->addr,
									  (struct sockaddr_storage *) addr,
									  (struct sockaddr_storage *) netmask);
}

static bool
is_own_interface(const SockAddr *client, bool whole_net)
{
	InterfaceSearch search = {client, whole_net, false};

	return pg_foreach_ifaddr(look_at_interface, &search) == 0 && search.found;
}

static PaqMatch
match_address(const PaqAddress *address, const PaqIdentity *who)
{
	const SockAddr *client = who->client;
	bool		result;

	if (address->kind == PAQ_ADDRESS_ALL)
		return PAQ_MATCH_YES;
	if (client == NULL)
		return who->client_unknown ? PAQ_MATCH_UNKNOWN : PAQ_MATCH_NO;
	if (client->addr.ss_family == AF_UNIX)
		return address->kind == PAQ_ADDRESS_LOCAL ? PAQ_MATCH_YES : PAQ_MATCH_NO;
	switch (address->kind)
	{
		case PAQ_ADDRESS_SAMEHOST:
		case PAQ_ADDRESS_SAMENET:
			result = is_own_interface(client, address->kind == PAQ_ADDRESS_SAMENET);
			break;
		case PAQ_ADDRESS_RANGE:
			result = address->addr.ss_family == client->addr.ss_family &&
				pg_range_sockaddr(&client->addr, &address->addr, &address->mask);
			break;
		default:
			result = false;
			break;
	}
	return result ? PAQ_MATCH_YES : PAQ_MATCH_NO;
}

/* ----------
 * Rules
 * ----------
 */

/* Returns true if a rule with this match is to be looked at. */
static inline bool
counts(const PaqRule *rule, PaqMatch match)
{
	return match == PAQ_MATCH_YES || (match == PAQ_MATCH_UNKNOWN && rule->verdict.record);
}

/* Returns true if the rule can apply to anything that the session does. */
bool
paq_rule_applies(const PaqRule *rule, const PaqIdentity *who)
{
	PaqMatch		match = PAQ_MATCH_NO;

	for (int i = 0; i < rule->ndatabases; i++)
		match = Max(match, match_database(&rule->databases[i], who));
	if (!counts(rule, match))
		return false;
	match = PAQ_MATCH_NO;
	for (int i = 0; i < rule->nusers; i++)
		match = Max(match, match_name(&rule->users[i], who, who->user));
	if (!counts(rule, match))
		return false;
	match = PAQ_MATCH_NO;
	for (int i = 0; i < rule->naddresses; i++)
		match = Max(match, match_address(&rule->addresses[i], who));
	return counts(rule, match);
}

/* Returns true if the rule applies while the role is the current user. */
bool
paq_rule_applies_to(const PaqRule *rule, Oid role, const char *name)
{
	PaqIdentity who = {.role = role, .user = name};
	PaqMatch		match = PAQ_MATCH_NO;

	if (rule->ncurrent_users == 0)
		return true;
	for (int i = 0; i < rule->ncurrent_users; i++)
		match = Max(match, match_name(&rule->current_users[i], &who, name));
	return counts(rule, match);
}
