/* pg_audit_queue--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_audit_queue" to load this file. \quit

-- Waits until everything recorded before the call is durable; returns the
-- sequence up to which the trail is.
CREATE FUNCTION audit_flush()
RETURNS bigint
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

-- Starts a new trail file, unless the current one is empty; returns the name
-- of the file that is then written.
CREATE FUNCTION audit_rotate()
RETURNS text
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION audit_queue_stats(
    OUT published bigint,
    OUT drained bigint,
    OUT flushed bigint,
    OUT bytes bigint,
    OUT queue_size bigint,
    OUT queue_used bigint,
    OUT queue_high_water bigint,
    OUT space_waits bigint,
    OUT flush_waits bigint,
    OUT wait_time double precision,
    OUT dropped bigint,
    OUT dropped_full bigint,
    OUT dropped_exit bigint,
    OUT dropped_memory bigint,
    OUT incomplete bigint,
    OUT batches bigint,
    OUT fsyncs bigint,
    OUT wakeups bigint,
    OUT oldest_unflushed_age interval,
    OUT last_error text,
    OUT last_error_time timestamptz,
    OUT sink text,
    OUT current_file text,
    OUT worker_pid integer,
    OUT stats_reset timestamptz
)
RETURNS record
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

CREATE VIEW audit_queue_stats AS
    SELECT * FROM audit_queue_stats();

CREATE FUNCTION audit_queue_stats_reset()
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

-- Names of the objects that DDL touches
CREATE FUNCTION pg_audit_queue_ddl_command_end()
RETURNS event_trigger
AS 'MODULE_PATHNAME'
LANGUAGE C;

CREATE FUNCTION pg_audit_queue_sql_drop()
RETURNS event_trigger
AS 'MODULE_PATHNAME'
LANGUAGE C;

CREATE EVENT TRIGGER pg_audit_queue_ddl_command_end
    ON ddl_command_end
    EXECUTE FUNCTION pg_audit_queue_ddl_command_end();

CREATE EVENT TRIGGER pg_audit_queue_sql_drop
    ON sql_drop
    EXECUTE FUNCTION pg_audit_queue_sql_drop();

REVOKE ALL ON FUNCTION audit_flush() FROM PUBLIC;
REVOKE ALL ON FUNCTION audit_rotate() FROM PUBLIC;
REVOKE ALL ON FUNCTION audit_queue_stats() FROM PUBLIC;
REVOKE ALL ON FUNCTION audit_queue_stats_reset() FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_audit_queue_ddl_command_end() FROM PUBLIC;
REVOKE ALL ON FUNCTION pg_audit_queue_sql_drop() FROM PUBLIC;
REVOKE ALL ON audit_queue_stats FROM PUBLIC;

GRANT EXECUTE ON FUNCTION audit_queue_stats() TO pg_monitor;
GRANT SELECT ON audit_queue_stats TO pg_monitor;
