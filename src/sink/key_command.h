/*-------------------------------------------------------------------------
 *
 * key_command.h
 *		The key for encryption, for who writes trail files, and who reads them.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_KEY_COMMAND_H
#define PAQ_KEY_COMMAND_H

#include "postgres.h"

#include "trail/layer.h"

/*
 * The keys that pg_audit_queue.log_encryption_key_command prints, to be freed by the
 * caller, in the current memory context.  NULL on failure; then error, of
 * PAQ_LAYER_ERROR_LEN bytes, says why.  In a session, that may be that it is to be
 * canceled.
 */
extern PaqKeys *paq_run_key_command(char *error);

#endif							/* PAQ_KEY_COMMAND_H */
