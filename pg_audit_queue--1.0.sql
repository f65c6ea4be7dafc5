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
    OUT loaded bigint,
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
    OUT loader_pid integer,
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

-- What the loader writes as a superuser is in a schema of its own: who owns the
-- database, or the schema that the extension is in, shall not be able to put
-- anything else in its place.
CREATE SCHEMA audit_queue;

-- The trail, with pg_audit_queue.sink = 'table': one row a record.  Rows are
-- written by the loader only.  What the columns mean is described in the README.
CREATE TABLE audit_queue.records (
    series bigint NOT NULL,
    sequence bigint NOT NULL,
    log_time timestamptz NOT NULL,
    start_time timestamptz,
    end_time timestamptz,
    duration_us bigint,
    row_count bigint,
    statement_id bigint,
    substatement_id bigint,
    session_line bigint,
    session_start timestamptz,
    transaction_id bigint,
    query_id bigint,
    pid integer,
    statement_location integer,
    statement_length integer,
    remote_port integer,
    interrupted boolean NOT NULL,
    cut boolean NOT NULL,
    incomplete boolean NOT NULL,
    type text NOT NULL,
    audit_type text,
    class text,
    command text,
    command_text text,
    command_text_omitted text,
    parameters jsonb,
    parameters_omitted text,
    object_type text,
    object_name text,
    old_value text,
    new_value text,
    value_source text,
    sqlstate text,
    error_message text,
    user_name text,
    session_user_name text,
    current_user_name text,
    database_name text,
    application_name text,
    remote_address inet,
    remote_host text,
    net_protocol text,
    db_protocol text,
    session_id text,
    virtual_transaction_id text,
    backend_type text,
    server_host text,
    server_type text,
    server_version text,
    cluster_name text,
    text_encoding text
) PARTITION BY RANGE (log_time);

-- Records come nearly in this order, which is all that such an index needs.
CREATE INDEX records_order ON audit_queue.records
    USING brin (log_time, sequence);

-- How far the table has got, a row a series of files; written together with
-- the records.
CREATE TABLE audit_queue.load_state (
    series bigint PRIMARY KEY,
    sequence bigint NOT NULL
);

SELECT pg_catalog.pg_extension_config_dump('audit_queue.load_state', '');

CREATE VIEW audit_records AS
    SELECT * FROM audit_queue.records;

-- Who is a member of this role may read the trail.  It belongs to no database,
-- so it may be there already, and stays when the extension is dropped.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles
                    WHERE rolname = 'audit_queue_reader') THEN
        CREATE ROLE audit_queue_reader NOLOGIN;
    END IF;
END
$$;

-- Whatever default privileges there are, nobody has any on these.
DO $$
DECLARE
    object record;
BEGIN
    FOR object IN
        SELECT CASE WHEN c.relkind IS NULL THEN 'SCHEMA' ELSE 'TABLE' END AS kind,
               o.name, a.grantee
          FROM (VALUES ('audit_queue'), ('audit_queue.records'),
                       ('audit_queue.load_state')) AS o (name)
          LEFT JOIN pg_catalog.pg_class c
            ON c.oid = CASE WHEN o.name LIKE '%.%' THEN o.name::pg_catalog.regclass END
          LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = o.name
         CROSS JOIN LATERAL
               (SELECT DISTINCT CASE g.grantee WHEN 0 THEN 'PUBLIC'
                                ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) END
                  FROM pg_catalog.aclexplode(coalesce(c.relacl, n.nspacl)) g
                 WHERE g.grantee <> coalesce(c.relowner, n.nspowner)) AS a (grantee)
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON %s %s FROM %s',
                                  object.kind, object.name, object.grantee);
    END LOOP;
END
$$;

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
REVOKE ALL ON audit_records FROM PUBLIC;

GRANT USAGE ON SCHEMA audit_queue TO audit_queue_reader;
GRANT SELECT ON audit_queue.records TO audit_queue_reader;
GRANT SELECT ON audit_records TO audit_queue_reader;

GRANT EXECUTE ON FUNCTION audit_queue_stats() TO pg_monitor;
GRANT SELECT ON audit_queue_stats TO pg_monitor;
