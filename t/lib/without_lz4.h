/*
 * Included before every file of the library, so that it is built as for a server without
 * lz4 (least_install() of PaqTest.pm).
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 */
#include "postgres.h"

#undef USE_LZ4
