/*-------------------------------------------------------------------------
 *
 * session.c
 *		The fields that all records of a session share: who, where from, with
 *		which program.
 *
 * They are encoded once and copied as a block; for each record only a check is
 * made that nothing has changed.  The application's name and the current roles
 * can change.  Names of roles, and whether they are superusers, are looked up by
 * OID and kept in a small cache, because a SECURITY DEFINER function changes the
 * current role twice a call.
 *
 * Works in any process that executes SQL, with a client or without, and before
 * the client has logged in.
 *
 * Must not raise.
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
#include "catalog/pg_authid.h"
#include "commands/dbcommands.h"
#include "common/ip.h"
#include "libpq/hba.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/postmaster.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#define NCACHED_ROLES	8

/*
 * Roles by OID; an entry with an invalid OID is unused.  What a stale entry has
 * may have changed.  It is still the best for a record that must not look it up
 * again.
 */
typedef struct CachedRole
{
	Oid			oid;
	bool		stale;
	bool		superuser;
	NameData	name;
} CachedRole;

static CachedRole cached_roles[NCACHED_ROLES];
static int	next_cached_role = 0;

/*
 * PostgreSQL 16 and later write a byte of application_name that is not printable
 * ASCII as four characters, after they have limited the name's length.
 */
#define APPLICATION_SIZE	(4 * NAMEDATALEN)

/* What does not change after the session has begun */
static struct
{
	bool		valid;
	char		database[NAMEDATALEN];
	char		host[NI_MAXHOST];	/* "" if there is no client */
	char		port[NI_MAXSERV];	/* "" if there is none */
}			origin;

/*
 * What the client's authentication has shown; "" if there was none.  The memory that
 * has the lines of pg_hba.conf is freed before the session's first statement.
 */
static struct
{
	char		method[NAMEDATALEN];
	char		tls_version[NAMEDATALEN];
	char		tls_cipher[NAMEDATALEN];
}			authentication;

/* The encoded block, and what it was made from */
static struct
{
	bool		valid;
	Oid			session_role;
	Oid			current_role;
	char		application[APPLICATION_SIZE];
	PaqSessionBlock fields;
	char		data[4 * NAMEDATALEN + NI_MAXHOST + NI_MAXSERV +
			  NAMEDATALEN + APPLICATION_SIZE + BGW_MAXLEN + sizeof(authentication)];
}			block;

bool		paq_logged_in = false;

static void
forget_names(Datum arg, int cacheid, uint32 hashvalue)
{
	for (int i = 0; i < NCACHED_ROLES; i++)
		cached_roles[i].stale = true;
	block.valid = false;
}

/* Where the cache has the role; NULL: nowhere */
static CachedRole *
find_cached(Oid oid)
{
	for (int i = 0; i < NCACHED_ROLES; i++)
		if (OidIsValid(oid) && cached_roles[i].oid == oid)
			return &cached_roles[i];
	return NULL;
}

/*
 * Find a role.  Returns false if it is not known: the role is gone, or it is not in
 * the cache and may_lookup is false.  *role is a copy, because the next role may
 * take its place in the cache.
 */
static bool
find_role(Oid oid, bool may_lookup, CachedRole *role)
{
	HeapTuple	tuple;
	Form_pg_authid form;
	CachedRole *cached = find_cached(oid);

	may_lookup = may_lookup && IsTransactionState();
	if (cached != NULL && (!cached->stale || !may_lookup))
	{
		*role = *cached;
		return true;
	}

	if (!may_lookup || !OidIsValid(oid))
		return false;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(oid));
	if (!HeapTupleIsValid(tuple))
		return false;
	cached = find_cached(oid);
	if (cached == NULL)
	{
		cached = &cached_roles[next_cached_role];
		next_cached_role = (next_cached_role + 1) % NCACHED_ROLES;
	}
	form = (Form_pg_authid) GETSTRUCT(tuple);
	cached->name = form->rolname;
	/* as superuser_arg() has it, which would look the role up once more */
	cached->superuser = form->rolsuper ||
		(!IsUnderPostmaster && oid == BOOTSTRAP_SUPERUSERID);
	cached->oid = oid;
	cached->stale = false;
	ReleaseSysCache(tuple);
	*role = *cached;
	return true;
}

/* The client's address, as numbers. */
static void
find_client(void)
{
	if (MyProcPort == NULL)
		return;
	if (MyProcPort->raddr.addr.ss_family == AF_UNIX)
	{
		strlcpy(origin.host, "[local]", sizeof(origin.host));
		return;
	}
	if (pg_getnameinfo_all(&MyProcPort->raddr.addr, MyProcPort->raddr.salen,
						   origin.host, sizeof(origin.host),
						   origin.port, sizeof(origin.port),
						   NI_NUMERICHOST | NI_NUMERICSERV) != 0)
	{
		strlcpy(origin.host, "???", sizeof(origin.host));
		origin.port[0] = '\0';
	}
}

static void
find_origin(bool may_lookup)
{
	char	   *name;

	if (origin.valid)
		return;
	find_client();
	if (MyProcPort != NULL && MyProcPort->database_name != NULL)
	{
		strlcpy(origin.database, MyProcPort->database_name, NAMEDATALEN);
		origin.valid = true;
	}
	else if (may_lookup && IsTransactionState())
	{
		name = OidIsValid(MyDatabaseId) ? get_database_name(MyDatabaseId) : NULL;
		if (name != NULL)
		{
			strlcpy(origin.database, name, NAMEDATALEN);
			pfree(name);
		}
		origin.valid = true;
	}
}

#ifdef USE_SSL
static void
note_tls(void)
{
	const char *version;
	const char *cipher;

	if (!MyProcPort->ssl_in_use)
		return;
	version = be_tls_get_version(MyProcPort);
	cipher = be_tls_get_cipher(MyProcPort);
	strlcpy(authentication.tls_version, version ? version : "", NAMEDATALEN);
	strlcpy(authentication.tls_cipher, cipher ? cipher : "", NAMEDATALEN);
}
#endif

/*
 * The client is being authenticated: keep what is known by now.  Its line of
 * pg_hba.conf may not have been looked for yet; one that PostgreSQL makes up, because
 * there is none, is no method.
 */
static void
note_authentication(void)
{
	const HbaLine *line = MyProcPort->hba;

	if (line != NULL && line->auth_method != uaImplicitReject)
		strlcpy(authentication.method, hba_authname(line->auth_method), NAMEDATALEN);
#ifdef USE_SSL
	note_tls();
#endif
}

/* Append a field to the block; NULL is null. */
static void
add_field(PaqField field, const char *str)
{
	Size		len;

	if (str == NULL)
	{
		block.fields.field_len[field] = PAQ_NULL_LEN;
		return;
	}
	len = Min(strlen(str), sizeof(block.data) - block.fields.length);
	memcpy(block.data + block.fields.length, str, len);
	block.fields.field_len[field] = len;
	block.fields.length += len;
}

/*
 * Kind of process.  A client's has none yet while it reads who wants to log in.
 */
static const char *
backend_type(void)
{
	if (MyBackendType == B_INVALID && MyProcPort != NULL)
		return GetBackendTypeDesc(B_BACKEND);
	if (MyBackendType == B_BG_WORKER && MyBgworkerEntry != NULL)
		return MyBgworkerEntry->bgw_type;
	return GetBackendTypeDesc(MyBackendType);
}

/* Note application_name, or what it is going to be when the login succeeds. */
static void
note_application(void)
{
	if (!paq_logged_in && MyProcPort != NULL &&
		MyProcPort->application_name != NULL)
		strlcpy(block.application, MyProcPort->application_name, NAMEDATALEN);
	else
		strlcpy(block.application, application_name ? application_name : "",
				sizeof(block.application));
}

/* Make the block; returns false if it lacks something. */
static bool
build_block(Oid session_role, Oid current_role, bool may_lookup)
{
	CachedRole	session;
	CachedRole	current;
	const char *session_name =
		find_role(session_role, may_lookup, &session) ? NameStr(session.name) : NULL;
	const char *current_name =
		find_role(current_role, may_lookup, &current) ? NameStr(current.name) : NULL;
	const char *login = session_name;
	char		requested[NAMEDATALEN];

	find_origin(may_lookup);
	if (MyProcPort != NULL && MyProcPort->user_name != NULL)
	{
		/* before it is looked up it can have any length */
		strlcpy(requested, MyProcPort->user_name, NAMEDATALEN);
		login = requested;
	}
	note_application();

	/* A client that is rejected does not come to paq_session_authenticated(). */
	if (ClientAuthInProgress && MyProcPort != NULL)
		note_authentication();

	block.fields.length = 0;
	block.fields.data = block.data;
	block.fields.flags = current_name == NULL ? 0 : current.superuser ? PAQ_RECORD_SUPERUSER
																	  : PAQ_RECORD_NO_SUPERUSER;
	add_field(PAQ_FIELD_USER, login);
	add_field(PAQ_FIELD_DATABASE, paq_null_if_empty(origin.database));
	add_field(PAQ_FIELD_REMOTE_HOST, paq_null_if_empty(origin.host));
	add_field(PAQ_FIELD_REMOTE_PORT, paq_null_if_empty(origin.port));
	add_field(PAQ_FIELD_APPLICATION, block.application);
	add_field(PAQ_FIELD_BACKEND_TYPE, backend_type());
	add_field(PAQ_FIELD_SESSION_USER, session_name);
	add_field(PAQ_FIELD_CURRENT_USER, current_name);
	add_field(PAQ_FIELD_AUTH_METHOD, paq_null_if_empty(authentication.method));
	add_field(PAQ_FIELD_TLS_VERSION, paq_null_if_empty(authentication.tls_version));
	add_field(PAQ_FIELD_TLS_CIPHER, paq_null_if_empty(authentication.tls_cipher));

	block.session_role = session_role;
	block.current_role = current_role;
	return login != NULL && session_name != NULL && current_name != NULL &&
		origin.valid;
}

/* The present roles; unlike GetUserId(), works before there is one. */
static inline void
get_roles(Oid *session_role, Oid *current_role)
{
	int			security;

	*session_role = InvalidOid;
	GetUserIdAndSecContext(current_role, &security);
	if (likely(OidIsValid(*current_role)))
		*session_role = GetSessionUserId();
}

/* Was the block made for these roles, with their present names? */
static inline bool
block_is_for(Oid session_role, Oid current_role)
{
	return likely(block.valid && session_role == block.session_role &&
				  current_role == block.current_role);
}

/* Make the block anew.  Returns whether everything in it is known. */
static bool
renew_block(Oid session_role, Oid current_role, bool may_lookup)
{
	bool		complete;

	/* Valid before the lookups, which may find that names change. */
	block.valid = true;
	complete = build_block(session_role, current_role, may_lookup);
	block.valid = block.valid && complete;
	return complete;
}

/*
 * The session's block as of now, valid until the next call.  *complete tells
 * whether everything in it is known.  With may_lookup false, no catalog is
 * read.
 */
const PaqSessionBlock *
paq_session_block(bool may_lookup, bool *complete)
{
	Oid			session_role;
	Oid			current_role;

	get_roles(&session_role, &current_role);
	*complete = true;
	if (unlikely(!block_is_for(session_role, current_role) ||
				 (application_name != NULL &&
				  strcmp(application_name, block.application) != 0)))
		*complete = renew_block(session_role, current_role, may_lookup);
	return &block.fields;
}

/*
 * Look up the names that a later record must not look up, because it is made
 * while an error is being handled, or when the process exits.
 */
void
paq_session_warm(void)
{
	Oid			session_role;
	Oid			current_role;

	get_roles(&session_role, &current_role);
	if (unlikely(!block_is_for(session_role, current_role)))
		(void) renew_block(session_role, current_role, true);
}

/* It is known whether the client is who it says it is; there is no session yet. */
void
paq_session_authenticated(void)
{
	note_authentication();
}

/* The client's session is set up: from now on its settings and roles are known. */
void
paq_session_logged_in(void)
{
	paq_logged_in = true;
	paq_session_warm();
}

void
paq_session_init(void)
{
	CacheRegisterSyscacheCallback(AUTHOID, forget_names, (Datum) 0);
}
