/*-------------------------------------------------------------------------
 *
 * ddl.c
 *		Event triggers, which know the objects that a DDL statement concerns.
 *
 * Each object makes a record of its own, in place of the record that the
 * statement would have without event triggers.
 *
 * What these functions execute themselves is not recorded.  They do nothing
 * where nothing can be recorded; in particular, they do not fail then, which
 * would make all DDL fail.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "commands/event_trigger.h"
#include "executor/spi.h"
#include "fmgr.h"

PG_FUNCTION_INFO_V1(pg_audit_queue_ddl_command_end);
PG_FUNCTION_INFO_V1(pg_audit_queue_sql_drop);

/* What there is to record about one row that describes an object */
typedef void (*RowRecorder) (PaqStatement *statement, HeapTuple row,
							TupleDesc desc);

/* In place: upper case of ASCII letters. */
static char *
upper_case(char *str)
{
	for (char *p = str; p != NULL && *p != '\0'; p++)
		*p = pg_ascii_toupper((unsigned char) *p);
	return str;
}

/*
 * Run the query and record each of its rows.  Its results are valid until
 * SPI_finish().
 */
static void
record_rows(PaqStatement *statement, const char *query, RowRecorder record)
{
	SPI_connect();
	paq_capture_paused = true;
	PG_TRY();
	{
		SPI_execute(query, true, 0);
	}
	PG_FINALLY();
	{
		paq_capture_paused = false;
	}
	PG_END_TRY();

	if (SPI_tuptable != NULL)
	{
		SPITupleTable *rows = SPI_tuptable;
		uint64		nrows = rows->numvals;

		for (uint64 i = 0; i < nrows; i++)
			record(statement, rows->vals[i], rows->tupdesc);
	}
	SPI_finish();
}

/* The statement that fires the event trigger; NULL if it is not recorded. */
static PaqStatement *
firing_statement(FunctionCallInfo fcinfo, uint32 classes)
{
	PaqStatement *statement;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function was not called by an event trigger")));
	if ((paq_log_classes & classes) == 0 || !paq_capture_possible())
		return NULL;
	statement = paq_current_statement();
	return statement != NULL && statement->query_desc == NULL ? statement : NULL;
}

/* Row: object_type, object_identity, command_tag */
static void
record_command(PaqStatement *statement, HeapTuple row, TupleDesc desc)
{
	PaqCommand	command = statement->command;
	PaqObject	object = {false, NULL, NULL};
	char	   *tag = SPI_getvalue(row, desc, 3);

	object.type = upper_case(SPI_getvalue(row, desc, 1));
	object.name = SPI_getvalue(row, desc, 2);
	if (tag != NULL)
		command.tag = GetCommandTagEnum(tag);
	if (command.tag == CMDTAG_GRANT || command.tag == CMDTAG_REVOKE)
		command.node = T_GrantStmt;
	statement->recorded = false;
	paq_record_statement(statement, &command, &object);
}

/*
 * ON ddl_command_end: objects that a statement has created or altered.
 */
Datum
pg_audit_queue_ddl_command_end(PG_FUNCTION_ARGS)
{
	PaqStatement *statement;
	EventTriggerData *data;

	statement = firing_statement(fcinfo, PAQ_CLASS_BIT(PAQ_CLASS_DDL) |
								 PAQ_CLASS_BIT(PAQ_CLASS_ROLE));
	if (statement == NULL)
		PG_RETURN_NULL();

	data = (EventTriggerData *) fcinfo->context;
	statement->command.level = GetCommandLogLevel(data->parsetree);
	statement->command.node = nodeTag(data->parsetree);
	statement->command.tag = CreateCommandTag(data->parsetree);
	record_rows(statement,
				"SELECT object_type, object_identity, command_tag"
				" FROM pg_catalog.pg_event_trigger_ddl_commands()",
				record_command);
	PG_RETURN_NULL();
}

/*
 * Row: object_type, object_identity, schema_name.  As in pgaudit, objects
 * without a schema and the types that come with tables are left out.
 */
static void
record_drop(PaqStatement *statement, HeapTuple row, TupleDesc desc)
{
	PaqObject	object = {false, NULL, NULL};
	char	   *type = SPI_getvalue(row, desc, 1);
	char	   *schema = SPI_getvalue(row, desc, 3);

	if (type == NULL || schema == NULL ||
		pg_strcasecmp(type, "type") == 0 || strcmp(schema, "pg_toast") == 0)
		return;
	object.type = upper_case(type);
	object.name = SPI_getvalue(row, desc, 2);
	statement->recorded = false;
	paq_record_statement(statement, &statement->command, &object);
}

/*
 * ON sql_drop: objects that a statement has dropped.
 */
Datum
pg_audit_queue_sql_drop(PG_FUNCTION_ARGS)
{
	PaqStatement *statement;

	statement = firing_statement(fcinfo, PAQ_CLASS_BIT(PAQ_CLASS_DDL));
	if (statement != NULL)
		record_rows(statement,
					"SELECT object_type, object_identity, schema_name"
					" FROM pg_catalog.pg_event_trigger_dropped_objects()",
					record_drop);
	PG_RETURN_NULL();
}
