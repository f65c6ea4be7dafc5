/*-------------------------------------------------------------------------
 *
 * seal.h
 *		Seals over trail files: what they look like, and their keys.
 *
 * A seal is a line of the file of seals, which is beside the trail and has the key's
 * id in its name:
 *
 *		S1 epoch time kind due file from to first last sha256 chain mac
 *
 * Fields are separated by one space.  epoch counts the seals of a key from 0.  Times
 * are UTC.  due is in how many seconds there will be another seal at the latest, 0 if
 * it may take any time.  file, "-" for none, has bytes other than letters, digits, dot,
 * hyphen and underscore as %XX.  from and to are bytes of the file, whose SHA-256 is
 * sha256; first and last the sequences of the records there, both 0 if there are none.
 * chain is the SHA-256 of the chain of the seal before (32 bytes; zeros before the first)
 * and this line up to and without the space before chain.  mac is the HMAC with SHA-256 of
 * this line up to and without the space before mac, under the epoch's key.
 *
 * Each epoch has a secret.  Key and next epoch's secret are HMACs with SHA-256 under
 * it, from which it cannot be computed.  The server keeps the current one only.  So
 * whoever takes it cannot make or change a seal of earlier epochs; and he cannot leave
 * any of them out, for no number must be missing.  The verification key is the secret of
 * epoch 0: whoever has that can make any seal, so it does not stay on the server.
 *
 * For the server and for programs.  Nothing here raises, but for lack of memory.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_SEAL_H
#define PAQ_SEAL_H

#include "c.h"

/* In bytes */
#define PAQ_SEAL_ID_LEN			8
#define PAQ_SEAL_SECRET_LEN		32
#define PAQ_SEAL_DIGEST_LEN		32

#define PAQ_SEAL_ID_TEXT_LEN	(2 * PAQ_SEAL_ID_LEN + 1)

/* Longest line, with its newline and a terminator */
#define PAQ_SEAL_LINE_LEN		1536

/* A file's name without directories, with its terminator */
#define PAQ_SEAL_NAME_LEN		256

/* File of seals: this and the key's id in hexadecimal digits */
#define PAQ_SEAL_FILE_PREFIX	"pg_audit_queue.seals."

/* Where the current secret is, below the data directory; see seal_state.c */
#define PAQ_SEAL_STATE_FILE		"pg_audit_queue/pgsql_tmp.seal_key"

typedef enum PaqSealKind
{
	/* No file */
	PAQ_SEAL_BEGIN,				/* the first seal of the key */
	PAQ_SEAL_START,				/* the server starts, or sealing is on again */

	/* A file as a whole */
	PAQ_SEAL_BEFORE,			/* was there before the key, up to "to": that is
								 * not sealed */
	PAQ_SEAL_NEW,				/* is begun, and empty */
	PAQ_SEAL_CHANGED,			/* somebody has changed it behind "from", and it
								 * is not sealed any further */
	PAQ_SEAL_REMOVED,			/* retention removes it */

	/* A range of a file, which begins where the last one ended */
	PAQ_SEAL_TIME,				/* the time for it has come */
	PAQ_SEAL_REQUEST,			/* somebody has asked for it */
	PAQ_SEAL_FINISH,			/* the file is finished */
	PAQ_SEAL_STOP,				/* the server stops */
	PAQ_NSEAL_KINDS
} PaqSealKind;

/* Do seals of that kind have a range? */
#define PAQ_SEAL_HAS_RANGE(kind)	((kind) >= PAQ_SEAL_TIME)

typedef struct PaqSeal
{
	uint64		epoch;
	int64		time;			/* TimestampTz */
	PaqSealKind kind;
	uint32		due;			/* seconds */
	uint64		from;
	uint64		to;
	uint64		first;
	uint64		last;
	uint8		sha256[PAQ_SEAL_DIGEST_LEN];
	uint8		chain[PAQ_SEAL_DIGEST_LEN];
	uint8		mac[PAQ_SEAL_DIGEST_LEN];
	char		file[PAQ_SEAL_NAME_LEN];	/* without directories; "" for none */
} PaqSeal;

/* The secret of an epoch */
typedef struct PaqSealSecret
{
	uint64		epoch;
	uint8		secret[PAQ_SEAL_SECRET_LEN];
} PaqSealSecret;

/* What the server keeps: see seal_state.c */
typedef struct PaqSealState
{
	uint8		id[PAQ_SEAL_ID_LEN];
	PaqSealSecret secret;		/* of the next seal */
	uint8		chain[PAQ_SEAL_DIGEST_LEN]; /* of the last one */
	uint64		sealed;			/* bytes of file that are sealed */
	uint64		sequence;		/* last that is sealed */
	bool		finished;		/* file will not be written to any more */
	bool		stopped;		/* the last seal says that the server stops */
	char		directory[MAXPGPATH];	/* of file */
	char		file[PAQ_SEAL_NAME_LEN];	/* without directories; "" for none */
} PaqSealState;

/* seal.c; what returns bool is false if the digests cannot be computed. */

/* The id of a key whose epoch 0 has that secret */
extern bool paq_seal_key_id(const PaqSealSecret *first, uint8 id[PAQ_SEAL_ID_LEN]);
extern void paq_seal_id_text(const uint8 *id, char text[PAQ_SEAL_ID_TEXT_LEN]);

/* Replace a secret by that of the next epoch. */
extern bool paq_seal_next_secret(PaqSealSecret *secret);

/*
 * Make the line of a seal, newline included, which has the secret's epoch and follows the
 * one with that chain.  Sets its epoch, chain and mac.  Returns the line's length, 0 on
 * failure.
 */
extern Size paq_seal_write(PaqSeal *seal, const PaqSealSecret *secret,
						   const uint8 *previous_chain, char *line);

/* What a line says, without its newline; false if it is no seal. */
extern bool paq_seal_parse(const char *line, Size len, PaqSeal *seal);

/* Is the seal of the line genuine, and does it follow the one with that chain? */
extern bool paq_seal_check(const char *line, Size len, const PaqSeal *seal,
						   const PaqSealSecret *secret, const uint8 *previous_chain,
						   bool *genuine, bool *follows);

extern const char *paq_seal_kind_name(PaqSealKind kind);

/* Verification keys: 64 hexadecimal digits, in which spaces and hyphens do not count */
extern void paq_seal_key_text(const PaqSealSecret *first, char *text, Size size);
extern bool paq_seal_key_parse(const char *text, Size len, PaqSealSecret *first);

/* seal_state.c */

typedef enum PaqSealStateResult
{
	PAQ_SEAL_STATE_OK,
	PAQ_SEAL_STATE_BAD,			/* there is nothing valid in it */
	PAQ_SEAL_STATE_FAILED		/* it cannot be opened or read, see errno */
} PaqSealStateResult;

/* Read the state from the file open as fd.  *slot is where it is. */
extern PaqSealStateResult paq_seal_state_read(int fd, PaqSealState *state, int *slot);

/* Overwrite what else the file may have. */
extern bool paq_seal_state_clean(int fd, int slot);

/*
 * Store the state durably, and then overwrite the one before, which is at *slot; -1 for
 * none.  False with errno on failure; the one before may be there then, or both.
 */
extern bool paq_seal_state_write(int fd, const PaqSealState *state, int *slot);

#endif							/* PAQ_SEAL_H */
