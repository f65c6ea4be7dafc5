/* pg_audit_queue--1.0--1.1.sql */

-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION pg_audit_queue UPDATE TO '1.1'" to load this file. \quit

-- As in version 1.0, names without a schema are PostgreSQL's own: the search path
-- is pg_catalog, where nobody but a superuser can make anything.

-- Statistics, as PostgreSQL names its own.  The function and the view of version
-- 1.0 stay as they are.
CREATE FUNCTION pg_stat_get_audit_queue(
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
    OUT trail_size bigint,
    OUT oldest_file text,
    OUT oldest_file_time timestamptz,
    OUT trail_disk_size bigint,
    OUT trail_disk_free bigint,
    OUT queue_disk_size bigint,
    OUT queue_disk_free bigint,
    OUT library_version text,
    OUT stats_reset timestamptz
)
RETURNS record
AS 'MODULE_PATHNAME', 'audit_queue_stats_1_1'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

CREATE FUNCTION pg_stat_get_audit_queue_classes(
    OUT class text,
    OUT records bigint
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'audit_queue_classes'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE ROWS 10;

CREATE VIEW audit_queue.pg_stat_audit_queue WITH (security_invoker = true) AS
    SELECT * FROM pg_catalog.pg_stat_get_audit_queue();

CREATE VIEW audit_queue.pg_stat_audit_queue_classes WITH (security_invoker = true) AS
    SELECT * FROM pg_catalog.pg_stat_get_audit_queue_classes();

ALTER VIEW audit_queue.pg_stat_audit_queue SET SCHEMA pg_catalog;
ALTER VIEW audit_queue.pg_stat_audit_queue_classes SET SCHEMA pg_catalog;

-- Reading the table while the trail is elsewhere does not pass in silence.  This
-- function returns no rows, and says so.  A condition in the view would not be
-- evaluated where no partition has to be read.
CREATE FUNCTION audit_queue.records_elsewhere()
RETURNS SETOF audit_queue.records
AS 'MODULE_PATHNAME', 'audit_records_elsewhere'
LANGUAGE C STRICT STABLE PARALLEL SAFE ROWS 1;

CREATE OR REPLACE VIEW pg_catalog.audit_records WITH (security_invoker = true) AS
    SELECT * FROM audit_queue.records
     UNION ALL
    SELECT * FROM audit_queue.records_elsewhere();

-- Nobody has any privilege on anything of this, whatever PostgreSQL's defaults
-- and those of this database are, but for what is granted below.  What somebody
-- has been granted on objects of version 1.0 stays.
DO $$
DECLARE
    command text;
BEGIN
    FOR command IN
        WITH object (kind, name, owner, acl) AS (
            SELECT 'TABLE', c.oid::pg_catalog.regclass::text, c.relowner,
                   coalesce(c.relacl, pg_catalog.acldefault('r', c.relowner))
              FROM pg_catalog.pg_class c
             WHERE c.oid IN ('pg_catalog.pg_stat_audit_queue'::pg_catalog.regclass,
                             'pg_catalog.pg_stat_audit_queue_classes'::pg_catalog.regclass)
             UNION ALL
            SELECT 'FUNCTION', p.oid::pg_catalog.regprocedure::text, p.proowner,
                   coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))
              FROM pg_catalog.pg_proc p
             WHERE p.oid IN ('pg_catalog.pg_stat_get_audit_queue()'::pg_catalog.regprocedure,
                             'pg_catalog.pg_stat_get_audit_queue_classes()'::pg_catalog.regprocedure,
                             'audit_queue.records_elsewhere()'::pg_catalog.regprocedure)
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

GRANT EXECUTE ON FUNCTION audit_queue.records_elsewhere() TO audit_queue_reader;

GRANT SELECT ON pg_stat_audit_queue, pg_stat_audit_queue_classes TO pg_monitor;
GRANT EXECUTE ON FUNCTION pg_stat_get_audit_queue(), pg_stat_get_audit_queue_classes() TO pg_monitor;
