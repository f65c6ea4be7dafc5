/* pg_audit_queue--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_audit_queue" to load this file. \quit

-- The extension's schema is pg_catalog (see the control file).  So that is the
-- search path here, in which nobody but a superuser can make anything: a name
-- without a schema, be it of an operator, is PostgreSQL's own.  What is called
-- by that name later, by superusers too, cannot be hidden by somebody else's
-- object, and nobody can drop the extension with its schema: whoever owns a
-- database may drop "public".

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

CREATE FUNCTION audit_queue_stats_reset()
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

-- What nobody calls by name is in a schema of its own.  In the place of what the
-- loader writes as a superuser, who owns the database shall not be able to put
-- anything else.
CREATE SCHEMA audit_queue;

-- The trail, with pg_audit_queue.sink = 'table': one row a record.  Rows are
-- written by the loader only.  What the columns mean is described in the README.
--
-- Privileges alone do not keep members of pg_read_all_data and pg_write_all_data
-- away, row security does.  Indexes are those of the partitions: pg_restore could
-- not make what partitions have got from the extension's table already.
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
    masked boolean NOT NULL,
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
    text_encoding text,
    kept_file text
) PARTITION BY RANGE (log_time);

ALTER TABLE audit_queue.records
    ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

-- What ANALYZE finds in a table, members of pg_read_all_data see in pg_statistic.
DO $$
BEGIN
    EXECUTE (SELECT 'ALTER TABLE audit_queue.records '
                    || pg_catalog.string_agg(pg_catalog.format('ALTER COLUMN %I SET STATISTICS 0',
                                                               attname), ', ')
               FROM pg_catalog.pg_attribute
              WHERE attrelid = 'audit_queue.records'::pg_catalog.regclass
                AND attnum > 0 AND NOT attisdropped
                AND attname NOT IN ('series', 'sequence', 'log_time'));
END
$$;

-- How far the table has got, a row a series of files; written together with
-- the records.  The checksum tells what the loader has written.
CREATE TABLE audit_queue.load_state (
    series bigint PRIMARY KEY,
    sequence bigint NOT NULL,
    loaded timestamptz NOT NULL,
    checksum integer NOT NULL
);

ALTER TABLE audit_queue.load_state
    ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

SELECT pg_catalog.pg_extension_config_dump('audit_queue.load_state', '');

-- Views cannot be made in pg_catalog, but moved there.
CREATE VIEW audit_queue.audit_queue_stats WITH (security_invoker = true) AS
    SELECT * FROM pg_catalog.audit_queue_stats();

CREATE VIEW audit_queue.audit_records WITH (security_invoker = true) AS
    SELECT * FROM audit_queue.records;

ALTER VIEW audit_queue.audit_queue_stats SET SCHEMA pg_catalog;
ALTER VIEW audit_queue.audit_records SET SCHEMA pg_catalog;

-- Names of the objects that DDL touches
CREATE FUNCTION audit_queue.pg_audit_queue_ddl_command_end()
RETURNS event_trigger
AS 'MODULE_PATHNAME'
LANGUAGE C;

CREATE FUNCTION audit_queue.pg_audit_queue_sql_drop()
RETURNS event_trigger
AS 'MODULE_PATHNAME'
LANGUAGE C;

CREATE EVENT TRIGGER pg_audit_queue_ddl_command_end
    ON ddl_command_end
    EXECUTE FUNCTION audit_queue.pg_audit_queue_ddl_command_end();

CREATE EVENT TRIGGER pg_audit_queue_sql_drop
    ON sql_drop
    EXECUTE FUNCTION audit_queue.pg_audit_queue_sql_drop();

-- Also where session_replication_role says that triggers are not to be run.
ALTER EVENT TRIGGER pg_audit_queue_ddl_command_end ENABLE ALWAYS;
ALTER EVENT TRIGGER pg_audit_queue_sql_drop ENABLE ALWAYS;

-- Who is a member of this role may read the trail.  It belongs to no database,
-- so it may be there already, and stays when the extension is dropped.  Then
-- whoever made it may have let somebody in.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles
                    WHERE rolname = 'audit_queue_reader') THEN
        CREATE ROLE audit_queue_reader NOLOGIN;
    ELSIF EXISTS (SELECT FROM pg_catalog.pg_roles r
                   WHERE rolname = 'audit_queue_reader'
                     AND (rolcanlogin OR
                          EXISTS (SELECT FROM pg_catalog.pg_auth_members m
                                   WHERE m.roleid = r.oid))) THEN
        RAISE WARNING 'role "audit_queue_reader" exists already, and has members or can log in'
            USING DETAIL = 'All of them may read the audit trail of this database.';
    END IF;
END
$$;

-- Nobody has any privilege on anything of this, whatever PostgreSQL's defaults
-- and those of this database are, but for what is granted below.
DO $$
DECLARE
    command text;
BEGIN
    FOR command IN
        WITH member (classid, oid) AS (
            SELECT d.classid, d.objid
              FROM pg_catalog.pg_depend d
              JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
             WHERE d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
               AND d.deptype = 'e' AND e.extname = 'pg_audit_queue'
        ), object (kind, name, owner, acl) AS (
            SELECT 'SCHEMA', n.oid::pg_catalog.regnamespace::text, n.nspowner,
                   coalesce(n.nspacl, pg_catalog.acldefault('n', n.nspowner))
              FROM pg_catalog.pg_namespace n
              JOIN member m ON m.oid = n.oid
               AND m.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
             UNION ALL
            SELECT 'TABLE', c.oid::pg_catalog.regclass::text, c.relowner,
                   coalesce(c.relacl, pg_catalog.acldefault('r', c.relowner))
              FROM pg_catalog.pg_class c
              JOIN member m ON m.oid = c.oid
               AND m.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
             UNION ALL
            SELECT 'FUNCTION', p.oid::pg_catalog.regprocedure::text, p.proowner,
                   coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))
              FROM pg_catalog.pg_proc p
              JOIN member m ON m.oid = p.oid
               AND m.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
        )
        SELECT DISTINCT
               pg_catalog.format('REVOKE ALL ON %s %s FROM %s', o.kind, o.name,
                                 CASE WHEN a.grantee = 0 THEN 'PUBLIC'
                                      ELSE a.grantee::pg_catalog.regrole::text END)
          FROM object o, LATERAL pg_catalog.aclexplode(o.acl) a
         WHERE a.grantee <> o.owner
    LOOP
        EXECUTE command;
    END LOOP;
END
$$;

GRANT USAGE ON SCHEMA audit_queue TO audit_queue_reader;
GRANT SELECT ON audit_queue.records TO audit_queue_reader;
CREATE POLICY audit_queue_reader ON audit_queue.records
    FOR SELECT TO audit_queue_reader USING (true);
GRANT SELECT ON audit_records TO audit_queue_reader;

GRANT EXECUTE ON FUNCTION audit_queue_stats() TO pg_monitor;
GRANT SELECT ON audit_queue_stats TO pg_monitor;
