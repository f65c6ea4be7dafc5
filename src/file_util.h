/*-------------------------------------------------------------------------
 *
 * file_util.h
 *		Reading, writing and mapping files, and the checksum of what is in them, for every room
 *		that has files.
 *
 * These functions report failure by their result and errno, and never raise
 * an error.  Interrupted and partial system calls are continued.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_FILE_UTIL_H
#define PAQ_FILE_UTIL_H

#include "c.h"

#include <sys/stat.h>

/* Instead of an offset to write at */
#define PAQ_AT_END	(-1)

/* Returns the CRC-32C of len bytes. */
extern uint32 paq_crc32c(const void *data, Size len);

extern bool paq_read_all(int fd, char *data, Size len, uint64 offset);
extern Size paq_write_all(int fd, const char *data, Size len, int64 offset);
extern bool paq_is_readable(int fd, uint64 from, uint64 to);
extern bool paq_map_file(int fd, uint64 from, char **data, Size *size);
extern bool paq_fsync_directory(int fd);
extern void paq_read_text(const char *path, char *text, Size size);
extern bool paq_is_in_memory(const char *path);
extern bool paq_is_private(const struct stat *st);
extern bool paq_disk_space(const char *path, uint64 *size, uint64 *available);

#endif							/* PAQ_FILE_UTIL_H */
