/*-------------------------------------------------------------------------
 *
 * names.c
 *		Which names are those of secrets: options of foreign servers and user
 *		mappings, settings, keywords of connection strings.
 *
 * Which options exist is up to foreign data wrappers, and which settings, to
 * extensions; so a name is judged by the words in it.  A name too many costs
 * the reader of the trail a value, one too few a secret.
 *
 * Must not raise.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

/* Names with one of these in them... */
static const char *const secret_words[] = {
	"password", "passwd", "passphrase", "secret", "token", "credential",
	"apikey", "api_key", "access_key", "private_key", "encryption_key",
	"master_key", "account_key", "shared_key", "signing_key", "storage_key",
	"client_key", "server_key", "sas_key", "auth_key", NULL
};

/* ... unless one of these words follows, which say something about it. */
static const char *const harmless_words[] = {
	"required", "encryption", "file", "path", "dir", "directory", "length",
	"min", "max", "type", "policy", "method", "reuse", "valid", "validity",
	"expiry", "expires", "expiration", "check", "history", "url", "uri",
	"endpoint", "issuer", "lifetime", "interval", "timeout", "enabled",
	"command", "ize", "izer", "ization", NULL
};

/* Whole names, and ends of names behind an underscore */
static const char *const secret_names[] = {
	"pwd", "passw", NULL
};

/*
 * Settings without a prefix, which are PostgreSQL's, are secret only if they
 * are here: ssl_passphrase_command is a program that prints a passphrase, and
 * that can be "echo".
 */
static const char *const secret_settings[] = {
	"ssl_passphrase_command", NULL
};

/* libpq's keywords */
static const char *const conninfo_names[] = {
	"application_name", "authtype", "channel_binding", "client_encoding",
	"connect_timeout", "dbname", "fallback_application_name", "gssdelegation",
	"gssencmode", "gsslib", "host", "hostaddr", "keepalives",
	"keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname",
	"load_balance_hosts", "max_protocol_version", "min_protocol_version",
	"oauth_client_id", "oauth_client_secret", "oauth_issuer", "oauth_scope",
	"options", "passfile", "password", "port", "replication", "require_auth",
	"requirepeer", "requiressl", "scram_client_key", "scram_server_key",
	"service", "servicefile", "sslcert", "sslcertmode", "sslcompression",
	"sslcrl", "sslcrldir", "sslkey", "sslkeylogfile", "sslmode",
	"sslnegotiation", "sslpassword", "sslrootcert", "sslsni",
	"ssl_max_protocol_version", "ssl_min_protocol_version",
	"target_session_attrs", "tcp_user_timeout", "tty", "user", NULL
};

/* Is the word, in any case, in the list, whose words are in lower case? */
bool
paq_mask_word_in(const char *word, uint32 len, const char *const *list)
{
	for (; *list != NULL; list++)
	{
		if (strlen(*list) == len && pg_strncasecmp(word, *list, len) == 0)
			return true;
	}
	return false;
}

/* Does the name end in a word of the list? */
static bool
ends_in(const char *name, uint32 len, const char *const *list)
{
	for (; *list != NULL; list++)
	{
		uint32		word_len = strlen(*list);

		if (len < word_len ||
			pg_strncasecmp(name + len - word_len, *list, word_len) != 0)
			continue;
		if (len == word_len || name[len - word_len - 1] == '_' ||
			name[len - word_len - 1] == '.')
			return true;
	}
	return false;
}

/* Does the rest of a name begin with a word of the list? */
static bool
begins_with_word(const char *rest, uint32 len, const char *const *list)
{
	const char *underscore = memchr(rest, '_', len);

	return paq_mask_word_in(rest, underscore ? underscore - rest : len, list);
}

/* Is something that has this name a secret? */
bool
paq_mask_name_is_secret(const char *name, uint32 len)
{
	for (const char *const *word = secret_words; *word != NULL; word++)
	{
		uint32		word_len = strlen(*word);

		for (uint32 i = 0; i + word_len <= len; i++)
		{
			uint32		next = i + word_len;

			if (pg_strncasecmp(name + i, *word, word_len) != 0)
				continue;
			if (next < len && name[next] == '_')
				next++;
			if (!begins_with_word(name + next, len - next, harmless_words))
				return true;
		}
	}
	return ends_in(name, len, secret_names);
}

/* Is it a setting of PostgreSQL's whose value is a secret? */
bool
paq_mask_builtin_is_secret(const char *name, uint32 len)
{
	return paq_mask_word_in(name, len, secret_settings);
}

/* Is the value of the setting a secret? */
bool
paq_mask_setting_is_secret(const char *name)
{
	const char *dot = strchr(name, '.');

	if (dot == NULL)
		return paq_mask_builtin_is_secret(name, strlen(name));
	return paq_mask_name_is_secret(dot + 1, strlen(dot + 1));
}

/* Is this one of libpq's keywords? */
bool
paq_mask_name_is_conninfo(const char *name, uint32 len)
{
	return paq_mask_word_in(name, len, conninfo_names);
}
