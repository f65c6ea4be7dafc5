/*-------------------------------------------------------------------------
 *
 * fault.h
 *		Named points at which a test can make something go wrong.
 *
 * In a normal build a point is the constant 0 and leaves no trace.  Built
 * with -DPAQ_FAULT_POINTS, it asks paq_fault(), which may kill the process
 * there, or return an errno for the caller to act on as if a system call had
 * failed.  The server's is in fault.c; a stand-alone test brings its own.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_FAULT_H
#define PAQ_FAULT_H

#ifdef PAQ_FAULT_POINTS
extern int	paq_fault(const char *point);

#define PAQ_FAULT(point)	paq_fault(point)
#else
#define PAQ_FAULT(point)	0
#endif

#endif							/* PAQ_FAULT_H */
