/*-------------------------------------------------------------------------
 *
 * record.h
 *		One audited fact, and its encoding.
 *
 * An encoded record is a PaqRecordHeader followed by the bytes of its fields
 * in the order of PaqField, without separators or terminators; the header's
 * field_len[] says where each ends.  It is the same in a backend's pending
 * slot, in the queue and in a queue file that outlived its server, so the
 * header starts with a version, and anything that changes its meaning must
 * raise PAQ_RECORD_VERSION.  Version 2, which has fewer fields, is still read.
 * Integrity (length, checksum) is the business of whoever stores the bytes;
 * paq_record_decode() nevertheless checks every length, so that it never reads
 * outside of what it was given.
 *
 * A field too large for the queue is kept in a spill file (see
 * queue/): PAQ_RECORD_SPILLED is set, PAQ_FIELD_SPILL names the file,
 * and the bytes of PAQ_FIELD_STATEMENT and PAQ_FIELD_PARAMETER are in that
 * file, one after the other, instead of behind the header.
 *
 * This room knows no other room, allocates nothing and raises nothing.  It
 * includes no backend header, so that programs can use it too.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_RECORD_H
#define PAQ_RECORD_H

#include "c.h"

#include "datatype/timestamp.h"
#include "port/pg_bswap.h"

#define PAQ_RECORD_VERSION	3

typedef enum PaqRecordKind
{
	PAQ_KIND_AUDIT = 1,			/* a statement, part of one, or an event */
	PAQ_KIND_GAP,				/* records are, or may be, missing here */
	PAQ_KIND_HEARTBEAT,			/* there was nothing to record; in format json
								 * only */
	PAQ_KIND_PART				/* goes on with the record before, see PaqPart;
								 * likewise, and never encoded */
} PaqRecordKind;

/*
 * Statement classes, as pgaudit has them, and then those that it lacks.  The
 * value is the bit number in class bitmaps (pg_audit_queue.log,
 * pg_audit_queue.immediate_log), and records in queue files have it: a new class
 * goes to the end.  No class is 0, so that neither false nor a subject that nobody
 * has filled in passes for one.
 */
typedef enum PaqClass
{
	PAQ_CLASS_DDL = 1,
	PAQ_CLASS_FUNCTION,
	PAQ_CLASS_MISC,
	PAQ_CLASS_READ,
	PAQ_CLASS_ROLE,
	PAQ_CLASS_WRITE,
	PAQ_CLASS_MISC_SET,			/* selected as MISC_SET, printed as MISC */
	PAQ_CLASS_ERROR,			/* failed before it was executed */
	PAQ_CLASS_CONNECT,			/* login, failed login, logout */
	PAQ_CLASS_CONFIG,			/* changes of auditing itself; recorded
								 * whatever the settings are */
	PAQ_CLASS_SET_ROLE,			/* the part of MISC_SET that switches privileges,
								 * printed as MISC */
	PAQ_NCLASSES				/* one more than the last of them */
} PaqClass;

#define PAQ_FIRST_CLASS		PAQ_CLASS_DDL

/* Returns true if the number is a class. */
static inline bool
paq_is_class(uint32 number)
{
	return number >= PAQ_FIRST_CLASS && number < PAQ_NCLASSES;
}

#define PAQ_CLASS_BIT(c)	(1U << (c))
#define PAQ_CLASSES_NONE	0U
#define PAQ_CLASSES_ALL		((1U << PAQ_NCLASSES) - (1U << PAQ_FIRST_CLASS))

/*
 * In the bitmap of pg_audit_queue.log, what is no class but an outcome: whatever is
 * denied is recorded, of any class
 */
#define PAQ_DENIED_BIT		(1U << 31)

/* Those that hooks of the executor and of utility statements have to do with */
#define PAQ_CLASSES_STATEMENTS \
	(PAQ_DENIED_BIT | \
	 (PAQ_CLASSES_ALL & \
	  ~(PAQ_CLASS_BIT(PAQ_CLASS_CONNECT) | PAQ_CLASS_BIT(PAQ_CLASS_CONFIG))))

/* Flags of a record */
#define PAQ_RECORD_OBJECT				0x0001	/* found by object auditing */
#define PAQ_RECORD_ROWS					0x0002	/* log_rows was on: pgaudit
												 * format prints the rows */
#define PAQ_RECORD_STMT_NOT_LOGGED		0x0004	/* log_statement was off */
#define PAQ_RECORD_STMT_PREVIOUS		0x0008	/* log_statement_once */
#define PAQ_RECORD_PARAM_NOT_LOGGED		0x0010	/* log_parameter was off */
#define PAQ_RECORD_SPILLED				0x0020	/* see the top of this file */
#define PAQ_RECORD_CUT					0x0040	/* a text is incomplete */
#define PAQ_RECORD_INTERRUPTED			0x0080	/* the server died before the
												 * outcome was known */
#define PAQ_RECORD_INCOMPLETE			0x0100	/* built from what was at hand;
												 * some fields are unknown */

#define PAQ_RECORD_NO_OUTCOME			0x0200	/* nobody told us the outcome */
#define PAQ_RECORD_MASKED				0x0400	/* not only secrets are: it could
												 * not be told which they are */
#define PAQ_RECORD_CONSTANTS			0x0800	/* mask_literals: so are constants
												 * and parameters */

/* Neither of them: it is not known. */
#define PAQ_RECORD_SUPERUSER			0x1000	/* CURRENT_USER is a superuser */
#define PAQ_RECORD_NO_SUPERUSER			0x2000	/* it is none */
#define PAQ_RECORD_ROLE_KIND			(PAQ_RECORD_SUPERUSER | PAQ_RECORD_NO_SUPERUSER)

/*
 * Fields.  The session's come first: they are encoded once a session and
 * copied as a block.
 */
typedef enum PaqField
{
	/* session block */
	PAQ_FIELD_USER,				/* role that logged in */
	PAQ_FIELD_DATABASE,
	PAQ_FIELD_REMOTE_HOST,		/* numeric address, [local] for a socket */
	PAQ_FIELD_REMOTE_PORT,
	PAQ_FIELD_APPLICATION,		/* application_name */
	PAQ_FIELD_BACKEND_TYPE,		/* as in pg_stat_activity */
	PAQ_FIELD_SESSION_USER,		/* SESSION_USER */
	PAQ_FIELD_CURRENT_USER,		/* CURRENT_USER */
	PAQ_FIELD_AUTH_METHOD,		/* as in pg_hba.conf */
	PAQ_FIELD_TLS_VERSION,		/* as in pg_stat_ssl, */
	PAQ_FIELD_TLS_CIPHER,		/* so is this */
	/* statement block */
	PAQ_FIELD_COMMAND,			/* command tag */
	PAQ_FIELD_OBJECT_TYPE,
	PAQ_FIELD_OBJECT_NAME,
	PAQ_FIELD_STATEMENT,
	PAQ_FIELD_PARAMETER,		/* a list, see paq_param_next() */
	PAQ_FIELD_SPILL,			/* file name in the queue directory */
	PAQ_FIELD_OLD_VALUE,		/* of a setting, class CONFIG only; */
	PAQ_FIELD_NEW_VALUE,		/* so are these */
	PAQ_FIELD_VALUE_SOURCE,		/* where the new value comes from */
	PAQ_FIELD_SETTINGS,			/* log_settings: a list as that of parameters,
								 * of a name, its value, a name, ... */
	PAQ_FIELD_POLICY,			/* rule that decided that there is a record */

	/*
	 * Error message, or what a GAP record says.  Last, so that it can be
	 * added to a record that has been encoded without it.
	 */
	PAQ_FIELD_MESSAGE,
	PAQ_NFIELDS
} PaqField;

#define PAQ_NSESSION_FIELDS		PAQ_FIELD_COMMAND
#define PAQ_NSTATEMENT_FIELDS	(PAQ_NFIELDS - PAQ_NSESSION_FIELDS)

/* Fields of version 2; codec.c has which they are */
#define PAQ_NFIELDS_V2			18

/* field_len of a field that is null, which is not the same as empty */
#define PAQ_NULL_LEN	PG_UINT32_MAX

typedef struct PaqText
{
	const char *data;			/* NULL: the field is null */
	uint32		len;			/* bytes */
} PaqText;

typedef struct PaqRecordHeader
{
	uint16		version;		/* PAQ_RECORD_VERSION */
	uint8		kind;			/* PaqRecordKind */
	uint8		audit_class;	/* PaqClass */
	uint32		flags;			/* PAQ_RECORD_xxx */
	uint32		length;			/* of header and fields as stored, bytes */
	int32		sqlstate;		/* outcome, packed as by MAKE_SQLSTATE; 0 is
								 * success */
	int64		start_time;		/* TimestampTz: when the statement began */
	int64		end_time;		/* TimestampTz: when its outcome was known */
	int64		statement_id;	/* counts statements of the session from 1; 0:
								 * has none */
	int64		substatement_id;	/* counts within the statement from 1 */
	int64		session_line;	/* counts records of the session from 1 */
	int64		session_start;	/* TimestampTz */
	int64		rows;			/* rows processed, -1 when that means nothing */
	int64		query_id;		/* 0: not computed */
	uint32		xid;			/* top-level transaction id, 0: none assigned */
	int32		vxid_proc;		/* virtual transaction id, first half */
	uint32		vxid_lxid;		/* and second half */
	int32		pid;
	int32		encoding;		/* pg_enc of the fields' bytes */
	int32		stmt_location;	/* where the statement began in the text that
								 * was sent, bytes; -1: unknown, or it was the
								 * whole text */
	int32		stmt_len;		/* its length there, bytes; 0: to the end */
	uint32		nfields;		/* entries of field_len that are in use */
	uint32		field_len[PAQ_NFIELDS]; /* bytes, PAQ_NULL_LEN for null */
} PaqRecordHeader;

/*
 * Bytes of an encoded header with that many fields.  The struct can be longer, for
 * the sake of its alignment.
 */
#define PAQ_HEADER_SIZE(nfields) \
	(offsetof(PaqRecordHeader, field_len) + (nfields) * sizeof(uint32))
#define PAQ_RECORD_HEADER_SIZE	PAQ_HEADER_SIZE(PAQ_NFIELDS)

/*
 * Bytes of the header that an encoded record of len bytes begins with, if it is
 * one of a version that can be read.
 */
static inline uint32
paq_record_header_size(const char *data, uint32 len)
{
	uint16		version = PAQ_RECORD_VERSION;

	if (likely(len >= sizeof(version)))
		memcpy(&version, data, sizeof(version));
	return unlikely(version == 2) ? PAQ_HEADER_SIZE(PAQ_NFIELDS_V2) : PAQ_RECORD_HEADER_SIZE;
}

/* The part of a record that rarely changes in a session, ready for copying. */
typedef struct PaqSessionBlock
{
	uint32		field_len[PAQ_NSESSION_FIELDS];
	uint32		length;			/* of data */
	uint32		flags;			/* PAQ_RECORD_ROLE_KIND, of records that have it */
	const char *data;			/* the fields' bytes */
} PaqSessionBlock;

/* The string; NULL, which is null, if it is empty. */
static inline const char *
paq_null_if_empty(const char *str)
{
	return str[0] != '\0' ? str : NULL;
}

/* Set a field of PAQ_NSTATEMENT_FIELDS texts; a NULL string is null. */
static inline void
paq_set_text(PaqText *texts, PaqField field, const char *str)
{
	PaqText    *text = &texts[field - PAQ_NSESSION_FIELDS];

	text->data = str;
	text->len = str ? strlen(str) : 0;
}

/*
 * A record of the trail that is part of a longer one.  The whole is that one as a JSON
 * object without the fields from type to series, which the first part has.
 */
typedef struct PaqPart
{
	uint32		number;			/* of the part, from 1 */
	uint32		count;			/* of all parts */
	uint64		length;			/* of the whole, bytes */
	const char *sha256;			/* likewise, in hexadecimal digits */
	PaqText		text;			/* so much of the whole; null in the first part, whose
								 * fields are cut instead */
} PaqPart;

/* Space for the abbreviation of a time zone, with a terminator, in bytes */
#define PAQ_ZONE_NAME_LEN	128

/* What records say of their server, which is the same for all of them.  Texts may be null. */
typedef struct PaqServer
{
	uint64		generation;		/* by paq_new_generation(), whenever anything here changes */
	uint64		system_identifier;
	PaqText		host;			/* name of its machine */
	PaqText		version;		/* as server_version shows it */
	PaqText		cluster;		/* cluster_name */

	/*
	 * Returns the offset of log_timezone from UTC, in seconds, at a time in seconds since 1970;
	 * east is positive.  zone gets its abbreviation then.
	 */
	int			(*offset_at) (const struct PaqServer *server, int64 second,
					 char zone[PAQ_ZONE_NAME_LEN]);
} PaqServer;

/*
 * A decoded record: points into the bytes it was decoded from.  The bytes of the session's fields
 * are one behind the other; formats rely on that.
 */
typedef struct PaqRecord
{
	PaqRecordHeader header;
	PaqText		field[PAQ_NFIELDS];
	uint64		sequence;		/* given by the worker, 0 before */
	uint64		series;			/* likewise */
	const PaqPart *part;		/* NULL: it is no part */
	const PaqServer *server;	/* for formats: set by who has them write it */
} PaqRecord;

/*
 * Iterator over PAQ_FIELD_PARAMETER and PAQ_FIELD_SETTINGS, which are for each
 * element an int32 length, little endian, and that many bytes; a negative length
 * is one of the following and has no bytes.
 */
#define PAQ_PARAM_NULL			(-1)
#define PAQ_PARAM_SUPPRESSED	(-2)	/* longer than log_parameter_max_size */

typedef struct PaqParamIter
{
	const char *next;
	const char *end;
} PaqParamIter;

/* A length as such lists have it, or the other way round */
static inline int32
paq_param_length(int32 len)
{
#ifdef WORDS_BIGENDIAN
	return (int32) pg_bswap32(len);
#else
	return len;
#endif
}

/* codec.c */
extern uint32 paq_record_size(uint32 flags, const PaqSessionBlock *session,
							  const PaqText *statement);
extern void paq_record_encode(char *dst, const PaqRecordHeader *header,
							  const PaqSessionBlock *session,
							  const PaqText *statement);
extern bool paq_record_decode(const char *data, uint32 len,
							  const char *spill, uint64 spill_len,
							  PaqRecord *record);
extern void paq_record_add_message(char *record, const char *message,
								   uint32 len);
extern void paq_record_init_heartbeat(PaqRecordHeader *header, TimestampTz time);
extern void paq_record_init_gap(PaqRecordHeader *header, TimestampTz from,
								TimestampTz to, int64 count);
extern bool paq_record_spill_name(const char *data, uint32 len, PaqText *name);
extern void paq_param_begin(PaqParamIter *iter, PaqText params);
extern bool paq_param_next(PaqParamIter *iter, int32 *len, const char **value);
extern bool paq_setting_next(PaqParamIter *iter, PaqText *name, PaqText *value);

/*
 * Fields of a record in the trail, made of the above: PAQ_TRAIL_TYPE, ...  Their
 * order is that of format json.
 */
typedef enum PaqTrailField
{
#define PAQ_TRAIL_FIELD(part, id, json, column, type, sql_type, source, what) PAQ_TRAIL_##id,
#define PAQ_TRAIL_MARK(id, json, column, flag, what) PAQ_TRAIL_##id,
#define PAQ_TRAIL_EXTRA(id, json, type, what) PAQ_TRAIL_##id,
#define PAQ_TRAIL_COLUMN(id, column, sql_type, what) PAQ_TRAIL_##id,
#include "record/fieldlist.h"
	PAQ_TRAIL_NFIELDS
} PaqTrailField;

typedef enum PaqJsonType
{
	PAQ_JSON_NONE,				/* not in json */
	PAQ_JSON_STRING,
	PAQ_JSON_NUMBER,
	PAQ_JSON_TIME,				/* a string, ISO 8601 */
	PAQ_JSON_ARRAY,				/* of strings and nulls */
	PAQ_JSON_OBJECT,			/* of strings, numbers and nulls */
	PAQ_JSON_BOOLEAN,
	PAQ_JSON_MARK				/* a boolean that is there only if true */
} PaqJsonType;

typedef struct PaqTrailFieldInfo
{
	const char *json;			/* name in json, NULL: not there */
	const char *key;			/* likewise, as lines have it: "name": */
	const char *column;			/* in the table, NULL: not there */
	PaqJsonType type;			/* in json */
	const char *sql_type;		/* of the column */
	const char *what;			/* what it is, in words */
} PaqTrailFieldInfo;

/* names.c */
extern uint64 paq_new_generation(void);
extern const PaqTrailFieldInfo paq_trail_fields[PAQ_TRAIL_NFIELDS];
extern const char *paq_class_name(PaqClass c);
extern const char *paq_class_label(PaqClass c);
extern bool paq_class_lookup(const char *name, uint32 *bits);

#endif							/* PAQ_RECORD_H */
