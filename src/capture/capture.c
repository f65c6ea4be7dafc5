/*-------------------------------------------------------------------------
 *
 * capture.c
 *		Turning what PostgreSQL's hooks tell us into records.
 *
 * File map, from the lowest layer up; a file calls only those above it in this
 * list:
 *
 *	classify.c		classes and names of commands and objects
 *	session.c		the fields that all records of a session share
 *	choice.c		whether and how something is recorded, by rules
 *	settings.c		values of settings that records show
 *	publish.c		handing records to the queue; waiting
 *	statement.c		what is being executed: frames, statements, ids, texts
 *	params.c		parameters of a statement
 *	client.c		log_client: showing records to the client
 *	record.c		making records
 *	error.c			the error that is being handled
 *	outcome.c		how statements end
 *	relation.c		records of the relations of a statement
 *	named.c			relations that a utility statement names
 *	look.c			statements that only look at the statistics
 *	trail_access.c	uses of the trail's own tables and files
 *	planning.c		statements that are planned, and not executed yet
 *	config.c		changes of our settings
 *	protocol.c		fast-path calls, and commands of walsenders
 *	connect.c		logins and logouts
 *	xact.c			ends of transactions, and of the process
 *	report.c		errors without a statement
 *	builtin.c		functions of PostgreSQL's own, by their code
 *	object_access.c	hook for calls of functions, and for TRUNCATE
 *	executor.c		hooks of the executor: SELECT, INSERT, UPDATE, ...
 *	utility.c		hook of everything else
 *	ddl.c			event triggers, for the names of objects in DDL
 *
 * Guarantees: no hook raises an error of its own, except to serve an
 * interrupt while it waits for the worker, and where pg_audit_queue.overflow
 * makes a statement fail.  With nothing to be recorded, a hook only keeps the
 * frames.
 *
 * Must not know anything of the queue beyond queue/queue.h.
 *
 * Locking: none, everything is local to the process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture.h"
#include "capture/capture_internal.h"

void
paq_capture_init(void)
{
	paq_policy_init();
	paq_session_init();
	paq_statement_init();
	paq_relation_init();
	paq_builtin_init();
	paq_trail_init();
	paq_planning_init();
	paq_config_init();
	paq_connect_init();
	paq_xact_init();
	paq_report_init();
	paq_object_access_init();
	paq_executor_init();
	paq_utility_init();
}
