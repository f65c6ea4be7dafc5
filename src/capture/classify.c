/*-------------------------------------------------------------------------
 *
 * classify.c
 *		Classes of commands, and the names that records show for commands and
 *		kinds of relations.
 *
 * The classes are pgaudit's, so that its users' settings select the same
 * statements here.  The one exception is MERGE, which is a WRITE here.  SET_ROLE is
 * a part of a class of pgaudit's.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "catalog/pg_class.h"
#include "compat.h"
#include "storage/lockdefs.h"

/* Statements about objects: those about roles and privileges have a class. */
static PaqClass
classify_ddl(const PaqCommand *command)
{
	switch (command->node)
	{
		case T_CreateRoleStmt:
		case T_AlterRoleStmt:
		case T_AlterRoleSetStmt:
		case T_DropRoleStmt:
		case T_GrantStmt:
		case T_GrantRoleStmt:
		case T_AlterDefaultPrivilegesStmt:
			return PAQ_CLASS_ROLE;

		case T_CreateUserMappingStmt:
		case T_AlterUserMappingStmt:
			return PAQ_USER_MAPPING_IS_ROLE ? PAQ_CLASS_ROLE : PAQ_CLASS_DDL;

		case T_RenameStmt:
		case T_DropStmt:
			/* Same node for all kinds of objects */
			if (command->tag == CMDTAG_ALTER_ROLE ||
				command->tag == CMDTAG_DROP_ROLE)
				return PAQ_CLASS_ROLE;
			return PAQ_CLASS_DDL;

		default:
			return PAQ_CLASS_DDL;
	}
}

/* Statements that change nothing, as far as PostgreSQL knows */
static PaqClass
classify_other(const PaqCommand *command)
{
	switch (command->node)
	{
		case T_SelectStmt:
		case T_PlannedStmt:
		case T_PrepareStmt:
		case T_DeclareCursorStmt:
		case T_CopyStmt:
			return PAQ_CLASS_READ;

		case T_DoStmt:
			return PAQ_CLASS_FUNCTION;

		case T_VariableSetStmt:
			return command->sets_role ? PAQ_CLASS_SET_ROLE : PAQ_CLASS_MISC_SET;

		default:
			return PAQ_CLASS_MISC;
	}
}

PaqClass
paq_classify(const PaqCommand *command)
{
	switch (command->level)
	{
		case LOGSTMT_MOD:
			return command->node == T_ExecuteStmt ? PAQ_CLASS_MISC : PAQ_CLASS_WRITE;
		case LOGSTMT_DDL:
			return classify_ddl(command);
		case LOGSTMT_ALL:
			return classify_other(command);
		case LOGSTMT_NONE:
			break;
	}
	return PAQ_CLASS_MISC;
}

/* The command of an executor statement. */
PaqCommand
paq_operation_command(CmdType operation)
{
	static const PaqCommand commands[] = {
		[CMD_UNKNOWN] = {LOGSTMT_ALL, T_Invalid, CMDTAG_UNKNOWN},
		[CMD_SELECT] = {LOGSTMT_ALL, T_SelectStmt, CMDTAG_SELECT},
		[CMD_INSERT] = {LOGSTMT_MOD, T_InsertStmt, CMDTAG_INSERT},
		[CMD_UPDATE] = {LOGSTMT_MOD, T_UpdateStmt, CMDTAG_UPDATE},
		[CMD_DELETE] = {LOGSTMT_MOD, T_DeleteStmt, CMDTAG_DELETE},
		[CMD_MERGE] = {LOGSTMT_MOD, T_MergeStmt, CMDTAG_MERGE}
	};

	return commands[(Size) operation < lengthof(commands) ? operation : CMD_UNKNOWN];
}

/*
 * What a statement does with one of its relations, judged by the permissions
 * that it needs.  SELECT FOR UPDATE needs the permission to update, too, but
 * takes a weaker lock than an UPDATE.  operation is what the statement does
 * as a whole.
 */
PaqCommand
paq_perms_command(AclMode perms, int lockmode, CmdType operation)
{
	bool		update = (perms & ACL_UPDATE) && lockmode >= RowExclusiveLock;

	if (operation == CMD_MERGE &&
		(update || (perms & (ACL_INSERT | ACL_DELETE))))
		return paq_operation_command(CMD_MERGE);
	if (perms & ACL_INSERT)
		return paq_operation_command(CMD_INSERT);
	if (update)
		return paq_operation_command(CMD_UPDATE);
	if (perms & ACL_DELETE)
		return paq_operation_command(CMD_DELETE);
	if (perms & ACL_SELECT)
		return paq_operation_command(CMD_SELECT);
	return paq_operation_command(CMD_UNKNOWN);
}

/* Object type of a relation, in the words of the event triggers. */
const char *
paq_relkind_name(char relkind)
{
	switch (relkind)
	{
		case RELKIND_RELATION:
		case RELKIND_PARTITIONED_TABLE:
			return "TABLE";
		case RELKIND_INDEX:
		case RELKIND_PARTITIONED_INDEX:
			return "INDEX";
		case RELKIND_SEQUENCE:
			return "SEQUENCE";
		case RELKIND_TOASTVALUE:
			return "TOAST TABLE";
		case RELKIND_VIEW:
			return "VIEW";
		case RELKIND_MATVIEW:
			return "MATERIALIZED VIEW";
		case RELKIND_COMPOSITE_TYPE:
			return "COMPOSITE TYPE";
		case RELKIND_FOREIGN_TABLE:
			return "FOREIGN TABLE";
		default:
			return "UNKNOWN";
	}
}
