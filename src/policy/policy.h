/*-------------------------------------------------------------------------
 *
 * policy.h
 *		Policies: which statements are recorded, by the rules in policy_file.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_POLICY_H
#define PAQ_POLICY_H

#include "postgres.h"

#include "port/atomics.h"

/* store.c: shared memory, and what the postmaster and the worker do */
extern Size paq_policy_shmem_size(void);
extern void paq_policy_startup(void);

/* What the worker has to record of a reload */
typedef struct PaqPolicyChange
{
	const char *path;			/* of the policy file */
	const char *old_checksum;	/* of the rules in effect before; NULL: there were none */
	const char *new_checksum;	/* of those in effect now */
	const char *error;			/* why the file is not in effect; NULL: it is */
} PaqPolicyChange;

/*
 * In the worker: read the policy file.  Returns whether there is something to record:
 * other rules, or an error that was not there before.  Does not raise.  at_start: take
 * over what the postmaster has read.
 */
extern bool paq_policy_reload(bool at_start, PaqPolicyChange *change);

/*
 * In the worker: the record of the last change is made, so it need not be made again
 * after a restart.
 */
extern void paq_policy_recorded(void);

#endif							/* PAQ_POLICY_H */
