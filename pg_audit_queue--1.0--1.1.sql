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
    OUT wal_commits bigint,
    OUT wal_fallbacks bigint,
    OUT dropped bigint,
    OUT dropped_full bigint,
    OUT dropped_exit bigint,
    OUT dropped_memory bigint,
    OUT incomplete bigint,
    OUT batches bigint,
    OUT fsyncs bigint,
    OUT wakeups bigint,
    OUT seals bigint,
    OUT last_seal_time timestamptz,
    OUT oldest_unflushed_age interval,
    OUT last_error text,
    OUT last_error_time timestamptz,
    OUT sink text,
    OUT current_file text,
    OUT worker_pid integer,
    OUT loader_pid integer,
    OUT setting_errors bigint,
    OUT policy_errors bigint,
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

-- Seals the trail, with all that was recorded before the call; returns the seal, to be
-- kept where the server cannot change it.
CREATE FUNCTION audit_seal()
RETURNS text
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW audit_queue.pg_stat_audit_queue WITH (security_invoker = true) AS
    SELECT * FROM pg_catalog.pg_stat_get_audit_queue();

CREATE VIEW audit_queue.pg_stat_audit_queue_classes WITH (security_invoker = true) AS
    SELECT * FROM pg_catalog.pg_stat_get_audit_queue_classes();

ALTER VIEW audit_queue.pg_stat_audit_queue SET SCHEMA pg_catalog;
ALTER VIEW audit_queue.pg_stat_audit_queue_classes SET SCHEMA pg_catalog;

-- Columns of version 1.1.  As for the others, there are no statistics of them.
ALTER TABLE audit_queue.records
    ADD COLUMN policy text,
    ADD COLUMN settings jsonb,
    ADD COLUMN tls_version text,
    ADD COLUMN tls_cipher text,
    ADD COLUMN auth_method text,
    ADD COLUMN system_identifier text,
    ADD COLUMN superuser boolean;

ALTER TABLE audit_queue.records
    ALTER COLUMN policy SET STATISTICS 0,
    ALTER COLUMN settings SET STATISTICS 0,
    ALTER COLUMN tls_version SET STATISTICS 0,
    ALTER COLUMN tls_cipher SET STATISTICS 0,
    ALTER COLUMN auth_method SET STATISTICS 0,
    ALTER COLUMN system_identifier SET STATISTICS 0,
    ALTER COLUMN superuser SET STATISTICS 0;

-- The trail's files as rows, with the columns of the table.
CREATE FUNCTION audit_queue.trail_handler()
RETURNS fdw_handler
AS 'MODULE_PATHNAME', 'audit_queue_trail_handler'
LANGUAGE C STRICT;

CREATE FOREIGN DATA WRAPPER audit_queue_trail HANDLER audit_queue.trail_handler;

CREATE SERVER audit_queue_trail FOREIGN DATA WRAPPER audit_queue_trail;

DO $$
BEGIN
    EXECUTE (SELECT 'CREATE FOREIGN TABLE audit_queue.trail ('
                    || string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)),
                                  ', ' ORDER BY attnum)
                    || ') SERVER audit_queue_trail'
               FROM pg_attribute
              WHERE attrelid = 'audit_queue.records'::regclass
                AND attnum > 0 AND NOT attisdropped);
END
$$;

CREATE VIEW audit_queue.audit_trail WITH (security_invoker = true) AS
    SELECT * FROM audit_queue.trail;

ALTER VIEW audit_queue.audit_trail SET SCHEMA pg_catalog;

-- Reading the table while the trail is elsewhere does not pass in silence.  This
-- function returns no rows, and says so.  A condition in the view would not be
-- evaluated where no partition has to be read.  The function comes first: a query
-- that wants few rows may read no further than the table.
CREATE FUNCTION audit_queue.records_elsewhere()
RETURNS SETOF audit_queue.trail
AS 'MODULE_PATHNAME', 'audit_records_elsewhere'
LANGUAGE C STRICT STABLE PARALLEL SAFE ROWS 1;

CREATE OR REPLACE VIEW pg_catalog.audit_records WITH (security_invoker = true) AS
    SELECT * FROM audit_queue.records_elsewhere()
     UNION ALL
    SELECT * FROM audit_queue.records;

-- The table is where a loader has written, and nowhere else.  The loader makes it, and
-- an event trigger does when a dump with partitions of it is restored; dropping it does
-- nothing if it is used.
CREATE FUNCTION audit_queue.make_table()
RETURNS boolean
AS 'MODULE_PATHNAME', 'audit_queue_make_table'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION audit_queue.drop_table()
RETURNS boolean
AS 'MODULE_PATHNAME', 'audit_queue_drop_table'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION audit_queue.no_table()
RETURNS trigger
AS 'MODULE_PATHNAME', 'audit_queue_no_table'
LANGUAGE C;

-- What is called by name is in pg_catalog, and its name begins with audit_ or pg_stat_.
-- What it hides there of others, and publications that carry the table, are for
-- audit_check().
CREATE FUNCTION audit_queue.names(
    OUT name text,
    OUT aside boolean,
    OUT untrusted boolean,
    OUT others text[],
    OUT command text
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'audit_queue_names'
LANGUAGE C STRICT STABLE PARALLEL SAFE ROWS 20;

CREATE FUNCTION audit_queue.publications()
RETURNS SETOF text
AS 'MODULE_PATHNAME', 'audit_queue_publications'
LANGUAGE C STRICT STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;

CREATE FUNCTION audit_queue.step_aside()
RETURNS void
AS 'MODULE_PATHNAME', 'audit_queue_step_aside'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION audit_queue.pg_audit_queue_extension()
RETURNS event_trigger
AS 'MODULE_PATHNAME'
LANGUAGE C;

CREATE EVENT TRIGGER pg_audit_queue_extension
    ON ddl_command_end
    EXECUTE FUNCTION audit_queue.pg_audit_queue_extension();

ALTER EVENT TRIGGER pg_audit_queue_extension ENABLE ALWAYS;

-- Records from from_time on, and before to_time; of these classes, users that logged in,
-- and databases.  Null stands for any.  PostgreSQL puts the query in the place of the
-- call, so it reads no more than the view would with these conditions.  It cannot be
-- called without arguments, as functions of that name are that others have.
CREATE FUNCTION audit_trail(
    from_time timestamptz,
    to_time timestamptz,
    classes text[] DEFAULT NULL,
    users text[] DEFAULT NULL,
    databases text[] DEFAULT NULL
)
RETURNS SETOF audit_queue.trail
LANGUAGE sql STABLE
BEGIN ATOMIC
    SELECT *
      FROM audit_queue.trail t
     WHERE t.log_time >= coalesce(from_time, '-infinity')
       AND t.log_time < coalesce(to_time, 'infinity')
       AND (classes IS NULL OR t.class = ANY (classes))
       AND (users IS NULL OR t.user_name = ANY (users))
       AND (databases IS NULL OR t.database_name = ANY (databases));
END;

-- What audit_check() needs to know: what a profile wants, and settings as they are
-- for the server.
CREATE FUNCTION audit_queue.profile(
    name text,
    OUT classes text[],
    OUT by_object text[],
    OUT literals text[]
)
RETURNS record
AS 'MODULE_PATHNAME', 'audit_queue_profile'
LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION audit_queue.server_settings(
    OUT log text[],
    OUT role text,
    OUT log_statement boolean,
    OUT log_parameter boolean,
    OUT mask_literals text[],
    OUT mask_patterns boolean,
    OUT log_catalog boolean,
    OUT log_directory text,
    OUT in_data_directory boolean
)
RETURNS record
AS 'MODULE_PATHNAME', 'audit_queue_server_settings'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

-- What the rules of the policy do, whatever the settings are, with statements that end
-- like that: classes of which everything is recorded (line is null), and those of which
-- the rule there may ignore something.  outcome is null: those of which something is
-- recorded.
CREATE FUNCTION audit_queue.policy_coverage(
    OUT outcome text,
    OUT file_name text,
    OUT line_number integer,
    OUT classes text[]
)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'audit_queue_policy_coverage'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE ROWS 10;

CREATE FUNCTION audit_queue.log_classes(value text)
RETURNS text[]
AS 'MODULE_PATHNAME', 'audit_queue_log_classes'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;

CREATE FUNCTION audit_queue.setting_is_valid(name text, value text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'audit_queue_setting_is_valid'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

-- Databases that have the extension are known in others by an object's owner, which
-- is kept for all databases together.  Who owns a database must not be able to
-- pretend that it has the extension: only superusers can make operator families,
-- and only they, or owners of one, can give it to this role.  Members of the role
-- cannot make one either; they could only take this one away, and have the database
-- reported.  So nobody has to be kept out of the role, but nobody needs it.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles
                    WHERE rolname = 'audit_queue_marker') THEN
        CREATE ROLE audit_queue_marker NOLOGIN;
    END IF;
END
$$;

CREATE OPERATOR FAMILY audit_queue.marker USING btree;
ALTER OPERATOR FAMILY audit_queue.marker USING btree OWNER TO audit_queue_marker;

-- The policy file as it is now, as pg_hba_file_rules shows pg_hba.conf
CREATE FUNCTION audit_policy_rules(
    OUT rule_number integer,
    OUT file_name text,
    OUT line_number integer,
    OUT action text,
    OUT database text[],
    OUT user_name text[],
    OUT address text[],
    OUT class text[],
    OUT object text[],
    OUT options text[],
    OUT in_effect boolean,
    OUT error text
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE;

CREATE VIEW audit_queue.audit_policy_rules WITH (security_invoker = true) AS
    SELECT * FROM audit_policy_rules();

ALTER VIEW audit_queue.audit_policy_rules SET SCHEMA pg_catalog;

-- Wrong values in configuration files, for who may read these; those that only wait
-- for a restart are not wrong, be they removed lines, which have no name.  Whether
-- they do is known when the files have been read, so it is asked for each row; and
-- since a wrong value leaves the mark of an earlier change, the value is looked at.
-- The text of the error is no help there, it is the same.  The setting keeps
-- PostgreSQL from putting the query in the place of the call, which would ask
-- everybody for the privilege.
CREATE FUNCTION audit_queue.configuration_errors()
RETURNS SETOF text
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT coalesce(f.name, 'syntax') || coalesce(' in ' || f.sourcefile || ' line ' || f.sourceline, '')
           || ': ' || coalesce(quote_literal(f.setting) || ': ', '') || f.error
           || coalesce(' (allowed: '
                       || (SELECT CASE p.vartype WHEN 'bool' THEN 'on, off'
                                                 WHEN 'enum' THEN array_to_string(p.enumvals, ', ')
                                                 WHEN 'integer' THEN concat_ws(' ', p.min_val, 'to', p.max_val, p.unit)
                                                 WHEN 'string' THEN
                                  CASE WHEN p.name IN ('pg_audit_queue.log', 'pg_audit_queue.immediate_log',
                                                       'pg_audit_queue.mask_literals')
                                       THEN array_to_string(audit_queue.log_classes('all'), ', ') || ', all, none'
                                       WHEN p.name IN ('pg_audit_queue.log_retention_age', 'pg_audit_queue.table_retention')
                                       THEN '0, or a number with min, h or d'
                                       WHEN p.name IN ('pg_audit_queue.log_retention_size', 'pg_audit_queue.consumer_keep_size')
                                       THEN '0, or a number with kB, MB, GB or TB'
                                  END END
                             FROM pg_catalog.pg_settings p
                            WHERE p.name = lower(f.name COLLATE "C")) || ')', '')
      FROM pg_catalog.pg_file_settings f
     WHERE f.error IS NOT NULL
       AND (f.name IS NULL OR starts_with(lower(f.name COLLATE "C"), 'pg_audit_queue.')
            -- because of which PostgreSQL uses nothing of the file; not translated, either
            OR f.error = 'unrecognized configuration parameter')
       AND (SELECT p.pending_restart AND audit_queue.setting_is_valid(p.name, f.setting)
              FROM pg_catalog.pg_settings p
             WHERE p.name = lower(f.name COLLATE "C")) IS NOT TRUE
       -- PostgreSQL does not translate this
       AND NOT (f.name IS NULL
                AND f.error ~ '^parameter ".*" cannot be changed without restarting the server$')
     ORDER BY f.seqno;
END;

-- What is wrong with the policy file, of which nothing is in effect then.  As above,
-- the setting keeps the query in here.
CREATE FUNCTION audit_queue.policy_errors()
RETURNS SETOF text
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
BEGIN ATOMIC
    SELECT coalesce(r.file_name || coalesce(' line ' || r.line_number, '') || ': ', '') || r.error
      FROM pg_catalog.audit_policy_rules() r
     WHERE r.error IS NOT NULL;
END;

-- What may be wrong with auditing on this server, for a profile of rules.  Names in
-- here are PostgreSQL's own whatever the caller's search path is, and text that
-- users choose (names, settings of roles) is only ever compared and shown.  Names
-- may be in the encoding of another database: what is done with them must do with
-- any bytes.
CREATE FUNCTION audit_check(
    profile text DEFAULT NULL,
    OUT finding text,
    OUT severity text,
    OUT control text,
    OUT detail text,
    OUT remedy text
)
RETURNS SETOF record
LANGUAGE sql CALLED ON NULL INPUT VOLATILE
SET search_path = pg_catalog, audit_queue, pg_temp
BEGIN ATOMIC
WITH wanted AS MATERIALIZED (
    SELECT * FROM audit_queue.profile($1)
), stats AS MATERIALIZED (
    SELECT * FROM pg_stat_get_audit_queue()
), coverage AS MATERIALIZED (
    SELECT * FROM audit_queue.policy_coverage()
), decided AS MATERIALIZED (
    -- classes of which the rules record everything, what is denied, or something
    SELECT max(c.classes) FILTER (WHERE c.outcome = 'ok' AND c.line_number IS NULL) AS recorded,
           max(c.classes) FILTER (WHERE c.outcome = 'denied' AND c.line_number IS NULL) AS denied,
           max(c.classes) FILTER (WHERE c.outcome IS NULL) AS something
      FROM coverage c
), server AS MATERIALIZED (
    -- missing: classes that the profile wants; denials_missing: classes of which it
    -- wants what is denied.  Neither the settings nor the rules have them recorded.
    SELECT s.*, d.something AS by_rules, m.missing, n.denials_missing,
           s.log || m.missing
           || CASE WHEN n.denials_missing <> '{}' THEN ARRAY['denied'] ELSE '{}' END AS better
      FROM audit_queue.server_settings() s, wanted w, decided d,
           LATERAL (SELECT ARRAY(SELECT c FROM unnest(w.classes) c
                                  WHERE c <> 'denied' AND c <> ALL (s.log || d.recorded)
                                    AND NOT (s.role <> '' AND c = ANY (w.by_object))) AS missing) m,
           LATERAL (SELECT ARRAY(SELECT c
                                   FROM unnest(ARRAY['connect', 'ddl', 'error', 'function', 'misc',
                                                     'misc_set', 'read', 'role', 'set_role', 'write']) c
                                  WHERE 'denied' = ANY (w.classes) AND 'denied' <> ALL (s.log)
                                    AND c <> ALL (s.log || d.denied)
                                    AND (c NOT IN ('misc_set', 'set_role')
                                         OR 'misc' = ANY (s.log || d.denied))) AS denials_missing) n
), raw AS MATERIALIZED (
    SELECT p.name, p.setting, p.pending_restart FROM pg_catalog.pg_settings p
     WHERE starts_with(p.name, 'pg_audit_queue.')
        OR p.name IN ('fsync', 'server_version_num', 'shared_preload_libraries')
), setting AS MATERIALIZED (
    -- ages in minutes, sizes in bytes
    SELECT max(r.setting) FILTER (WHERE r.name = 'fsync') AS server_fsync,
           max(r.setting) FILTER (WHERE r.name = 'server_version_num')::int AS version,
           max(r.setting) FILTER (WHERE r.name = 'pg_audit_queue.fsync') AS fsync,
           max(r.setting) FILTER (WHERE r.name = 'pg_audit_queue.format') AS format,
           max(r.setting) FILTER (WHERE r.name = 'pg_audit_queue.log_line_prefix') AS prefix,
           max(r.setting) FILTER (WHERE r.name = 'pg_audit_queue.overflow') AS overflow,
           max(r.setting) FILTER (WHERE r.name = 'pg_audit_queue.sink') AS sink,
           extract(epoch FROM max(r.setting) FILTER (WHERE r.name = 'pg_audit_queue.log_retention_age')
                              ::interval)::bigint / 60 AS age,
           pg_size_bytes(max(r.setting) FILTER (WHERE r.name = 'pg_audit_queue.log_retention_size')) AS size,
           max(r.setting) FILTER (WHERE r.name = 'pg_audit_queue.log_rotation_size')::bigint * 1024 AS file_size,
           extract(epoch FROM max(r.setting) FILTER (WHERE r.name = 'pg_audit_queue.table_retention')
                              ::interval)::bigint / 60 AS table_age
      FROM raw r
), kept AS MATERIALIZED (
    -- what limits the trail; how fast it grows, bytes a day, and what it lacks
    -- within a week to the size that retention allows; how to keep a year of it
    SELECT CASE s.sink WHEN 'table' THEN s.table_age ELSE s.age END AS age,
           CASE s.sink WHEN 'table' THEN 0 ELSE s.size END AS size,
           'ALTER SYSTEM SET pg_audit_queue.'
           || CASE s.sink WHEN 'table' THEN 'table_retention' ELSE 'log_retention_age' END
           || ' = ''400d''; SELECT pg_reload_conf();' AS remedy,
           g.growth,
           CASE WHEN g.growth IS NOT NULL THEN
           least(7 * g.growth,
                 CASE WHEN s.sink <> 'table' AND s.size > 0
                      THEN greatest(s.size - q.trail_size, 0) END,
                 CASE WHEN s.sink <> 'table' AND s.age > 0
                      THEN greatest(s.age / 1440.0 - g.days, 0) * g.growth END) END AS needed
      FROM setting s, stats q,
           LATERAL (SELECT d.days, CASE WHEN d.days >= 1 THEN q.trail_size / d.days END AS growth
                      FROM (SELECT (extract(epoch FROM clock_timestamp() - q.oldest_file_time)
                                    / 86400)::numeric AS days) d) g
), file_function AS MATERIALIZED (
    -- EXECUTE on functions that get at any file, or at any user's rights, which
    -- their owners can give themselves; only superusers can make functions in C, so
    -- that nobody else's have these names
    SELECT a.grantee, p.proname::text AS name,
           p.proname NOT IN ('pg_read_file', 'pg_read_binary_file', 'lo_import') AS writes
      FROM pg_catalog.pg_proc p,
           LATERAL (SELECT p.proowner
                     UNION
                    SELECT e.grantee
                      FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) e) a (grantee)
     WHERE p.proname IN ('pg_read_file', 'pg_read_binary_file', 'lo_import', 'lo_export',
                         'pg_file_write', 'pg_file_rename', 'pg_file_unlink', 'dblink_connect_u')
       AND p.prolang IN (SELECT l.oid FROM pg_catalog.pg_language l WHERE l.lanname IN ('internal', 'c'))
), power AS MATERIALIZED (
    -- Roles with which one can read the trail, or change it, and by what.  Who is a
    -- member of one has its privileges, or can have them by SET ROLE.
    SELECT r.oid, r.rolsuper AS everything, r.rolsuper OR c.writes AS writes,
           CASE WHEN r.rolsuper THEN 'member of ' || quote_ident(r.rolname) END AS by
      FROM pg_catalog.pg_roles r, setting s,
           -- null where there is no table
           LATERAL (SELECT to_regclass('audit_queue.records') AS oid) t,
           LATERAL (SELECT r.rolname IN ('pg_write_server_files', 'pg_execute_server_program')
                           OR (r.rolcreaterole AND s.version < 160000)
                           OR EXISTS (SELECT FROM pg_catalog.pg_class k,
                                             aclexplode(coalesce(k.relacl, acldefault('r', k.relowner))) a
                                       WHERE k.oid = t.oid
                                         AND a.privilege_type = 'TRUNCATE' AND a.grantee IN (0, r.oid))
                           OR (r.rolbypassrls AND t.oid IS NOT NULL
                               AND (has_any_column_privilege(r.oid, t.oid, 'INSERT, UPDATE')
                                    OR has_table_privilege(r.oid, t.oid, 'DELETE'))) AS writes) c
     WHERE r.rolsuper OR c.writes OR r.rolreplication
        OR r.rolname IN ('audit_queue_reader', 'pg_read_server_files')
        OR (r.rolbypassrls AND t.oid IS NOT NULL AND has_any_column_privilege(r.oid, t.oid, 'SELECT'))
     UNION ALL
    SELECT f.grantee, false, f.writes, f.name FROM file_function f
), belongs AS MATERIALIZED (
    -- What members of these roles, members of those, and so on, and they themselves
    -- can.  Not by pg_has_role(), which takes long for each of many roles.
    WITH RECURSIVE membership (roleid, member) AS MATERIALIZED (
        SELECT m.roleid, m.member FROM pg_catalog.pg_auth_members m
         UNION ALL
        SELECT r.oid, d.datdba FROM pg_catalog.pg_roles r, pg_catalog.pg_database d
         WHERE r.rolname = 'pg_database_owner' AND d.datname = current_database()
    ), b (member, everything, writes, by) AS (
        SELECT p.oid, p.everything, p.writes, p.by FROM power p
         UNION
        SELECT m.member, b.everything, b.writes, b.by FROM b JOIN membership m ON m.roleid = b.member
    )
    SELECT b.member, b.everything, b.writes, b.by FROM b
), member AS MATERIALIZED (
    -- superusers can do everything, and are told of once
    SELECT quote_ident(r.rolname) || coalesce(' (' || nullif(m.by, '') || ')', '') AS name,
           m.everything, m.writes
      FROM pg_catalog.pg_roles r
      JOIN (SELECT b.member AS oid, bool_or(b.everything) AS everything, bool_or(b.writes) AS writes,
                   CASE WHEN bool_or(b.everything)
                        THEN min(b.by COLLATE "C") FILTER (WHERE b.everything)
                        WHEN bool_and(b.by IS NOT NULL)
                        THEN string_agg(DISTINCT b.by, ', ') END AS by
              FROM belongs b
             GROUP BY b.member) m ON m.oid = r.oid
     WHERE r.rolcanlogin AND NOT r.rolsuper
     UNION ALL
    SELECT 'PUBLIC (' || string_agg(DISTINCT f.name, ', ') || ')', false, bool_or(f.writes)
      FROM file_function f WHERE f.grantee = 0 HAVING count(*) > 0
), own AS MATERIALIZED (
    -- Settings of roles, databases, roles in databases, and all.  classes: what "log"
    -- selects; by_object: whether "role" may select anything; each null otherwise.
    SELECT d.setrole, d.setdatabase, c.config,
           CASE WHEN starts_with(lower(c.config COLLATE "C"), 'pg_audit_queue.log=')
                THEN audit_queue.log_classes(substr(c.config, 20)) END AS classes,
           CASE WHEN starts_with(lower(c.config COLLATE "C"), 'pg_audit_queue.role=')
                THEN lower(c.config COLLATE "C") <> 'pg_audit_queue.role=' END AS by_object,
           audit_queue.setting_is_valid(split_part(c.config, '=', 1),
                                        substr(c.config, strpos(c.config, '=') + 1)) AS valid
      FROM pg_catalog.pg_db_role_setting d, unnest(d.setconfig) AS c (config)
     WHERE starts_with(lower(c.config COLLATE "C"), 'pg_audit_queue.')
), logs AS MATERIALIZED (
    SELECT o.setrole, o.setdatabase,
           o.classes @> ARRAY['connect', 'ddl', 'error', 'function', 'misc', 'read', 'role', 'write'] AS everything
      FROM own o
     WHERE o.classes IS NOT NULL
), unrecorded AS MATERIALIZED (
    -- Do settings of all roles take away all that the server's select?
    SELECT coalesce((SELECT o.classes FROM own o
                      WHERE o.setrole = 0 AND o.setdatabase = 0 AND o.classes IS NOT NULL), s.log) = '{}'
           AND NOT coalesce((SELECT o.by_object FROM own o
                              WHERE o.setrole = 0 AND o.setdatabase = 0 AND o.by_object IS NOT NULL),
                            s.role <> '')
           AND NOT (s.log = '{}' AND s.role = '') AND s.by_rules = '{}' AS everything
      FROM server s
), administrator AS MATERIALIZED (
    -- Who logs in and can do anything, and whether all of it is recorded, in each
    -- database.  A setting of a role there comes first, then the role's, the
    -- database's, that of all, and the server's.
    SELECT quote_ident(r.rolname) AS name,
           NOT EXISTS (SELECT FROM logs l
                        WHERE l.setrole = r.oid AND l.setdatabase <> 0 AND NOT l.everything)
           AND coalesce((SELECT l.everything FROM logs l WHERE l.setrole = r.oid AND l.setdatabase = 0),
                        NOT EXISTS (SELECT FROM logs l
                                     WHERE l.setrole = 0 AND l.setdatabase <> 0 AND NOT l.everything
                                       AND NOT EXISTS (SELECT FROM logs o
                                                        WHERE o.setrole = r.oid AND o.setdatabase = l.setdatabase))
                        AND coalesce((SELECT l.everything FROM logs l
                                       WHERE l.setrole = 0 AND l.setdatabase = 0),
                                     s.log @> ARRAY['connect', 'ddl', 'error', 'function', 'misc',
                                                    'read', 'role', 'write']))
           AS recorded
      FROM pg_catalog.pg_roles r, server s
     WHERE r.rolcanlogin
       AND EXISTS (SELECT FROM belongs b WHERE b.everything AND b.member = r.oid)
), override AS MATERIALIZED (
    -- and which of them have all recorded, or something in sessions that there can be
    SELECT o.valid, coalesce(l.everything, false) AS selects_all,
           (o.setrole = 0 OR r.rolcanlogin) AND (o.setdatabase = 0 OR d.datallowconn)
           AND coalesce(o.classes <> '{}', o.by_object, false) AS selects,
           CASE WHEN o.setrole = 0 THEN ''
                WHEN r.rolsuper THEN 'superuser ' || quote_ident(r.rolname)
                ELSE 'role ' || coalesce(quote_ident(r.rolname), o.setrole::text) END
           || CASE WHEN o.setrole <> 0 AND o.setdatabase <> 0 THEN ' in ' ELSE '' END
           || CASE WHEN o.setdatabase <> 0
                   THEN 'database ' || coalesce(quote_ident(d.datname), o.setdatabase::text)
                   WHEN o.setrole = 0 THEN 'all roles' ELSE '' END
           || ': ' || o.config AS shown
      FROM own o
      LEFT JOIN logs l ON l.setrole = o.setrole AND l.setdatabase = o.setdatabase AND o.classes IS NOT NULL
      LEFT JOIN pg_catalog.pg_roles r ON r.oid = o.setrole
      LEFT JOIN pg_catalog.pg_database d ON d.oid = o.setdatabase
     UNION ALL
    SELECT audit_queue.setting_is_valid(split_part(c.config, '=', 1),
                                        substr(c.config, strpos(c.config, '=') + 1)),
           false, false, 'function ' || p.oid::regprocedure::text || ': ' || c.config
      FROM pg_catalog.pg_proc p, unnest(p.proconfig) AS c (config)
     WHERE starts_with(lower(c.config COLLATE "C"), 'pg_audit_queue.')
), granted AS MATERIALIZED (
    SELECT a.parname || ' to ' || CASE WHEN g.grantee = 0 THEN 'PUBLIC'
                                       ELSE coalesce(quote_ident(r.rolname), g.grantee::text) END AS shown
      FROM pg_catalog.pg_parameter_acl a, aclexplode(a.paracl) g
      LEFT JOIN pg_catalog.pg_roles r ON r.oid = g.grantee
     WHERE (starts_with(lower(a.parname COLLATE "C"), 'pg_audit_queue.')
            OR lower(a.parname COLLATE "C") = 'shared_preload_libraries')
       AND r.rolsuper IS NOT TRUE
), errors AS MATERIALIZED (
    SELECT v.visible,
           EXISTS (SELECT FROM raw r WHERE r.name = 'shared_preload_libraries') AS pending_visible,
           CASE WHEN v.visible THEN ARRAY(SELECT e FROM audit_queue.configuration_errors() e) END AS list,
           v.policy_visible,
           CASE WHEN v.policy_visible THEN ARRAY(SELECT e FROM audit_queue.policy_errors() e) END AS policy
      FROM (SELECT has_function_privilege('pg_catalog.audit_policy_rules()'::regprocedure, 'EXECUTE') AS policy_visible,
                    has_table_privilege('pg_catalog.pg_file_settings', 'SELECT')
                   AND has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'EXECUTE')
                   AS visible) v
), found (finding, severity, control, detail, remedy, names) AS (
    SELECT 'log_none', 'error', 'PCI DSS 10.2.1, NIST AU-12, STIG SRG-APP-000089, CIS 3.2',
           'Neither pg_audit_queue.log nor pg_audit_queue.role selects anything to record'
           || CASE WHEN o.selects THEN ', but for sessions with settings of their own: see overrides.'
                   ELSE '.' END,
           'ALTER SYSTEM SET pg_audit_queue.log = '
           || quote_literal(CASE WHEN $1 IS NULL THEN 'ddl, role, write'
                                 ELSE array_to_string(w.classes, ', ') END)
           || '; SELECT pg_reload_conf();',
           NULL::text[]
      FROM server s, wanted w, (SELECT coalesce(bool_or(r.selects), false) AS selects FROM override r) o
     WHERE s.log = '{}' AND s.role = '' AND s.by_rules = '{}'
     UNION ALL
    SELECT 'role_missing', 'error', 'PCI DSS 10.2.1, NIST AU-12',
           'pg_audit_queue.role is ' || quote_ident(s.role) || ', which does not exist: no object is selected.',
           'Create the role and grant it what is to be recorded, or set pg_audit_queue.role to another one.',
           NULL
      FROM server s
     WHERE s.role <> '' AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.rolname = s.role)
     UNION ALL
    SELECT 'classes_missing', 'error', 'PCI DSS 10.2.1, NIST AU-2, STIG SRG-APP-000089, CIS 3.2',
           'Profile ' || lower($1 COLLATE "C") || ' wants classes that pg_audit_queue.log lacks: '
           || array_to_string(s.missing, ', ') || '.',
           'ALTER SYSTEM SET pg_audit_queue.log = '
           || quote_literal(array_to_string(s.better, ', ')) || '; SELECT pg_reload_conf();',
           NULL
      FROM server s WHERE s.missing <> '{}'
     UNION ALL
    SELECT 'denials_missing', 'error', 'PCI DSS 10.2.1.4, NIST AU-12, STIG SRG-APP-000507, CIS 3.1.15',
           'What is denied leaves no record, if it is not recorded anyway, in the classes '
           || array_to_string(s.denials_missing, ', ') || '.',
           'ALTER SYSTEM SET pg_audit_queue.log = '
           || quote_literal(array_to_string(s.better, ', ')) || '; SELECT pg_reload_conf();',
           NULL
      FROM server s WHERE s.denials_missing <> '{}'
     UNION ALL
    SELECT 'rules_ignore', 'warning', 'PCI DSS 10.2.1, NIST AU-12, STIG SRG-APP-000089, CIS 3.2',
           'Rules in the policy file that may ignore what profile ' || lower($1 COLLATE "C") || ' wants: ',
           'Remove them where this is not wanted. Above them, this line has what is denied recorded:'
           ' record all all all all all outcome=denied',
           array_agg('line ' || i.line_number || ' of "' || i.file_name || '" (' || i.what || ')'
                     ORDER BY i.file_name COLLATE "C", i.line_number)
      FROM (SELECT c.file_name, c.line_number,
                   string_agg(CASE c.outcome WHEN 'denied' THEN 'denied' ELSE array_to_string(x.classes, ', ') END,
                              ', ' ORDER BY c.outcome DESC) AS what
              FROM coverage c, wanted w,
                   LATERAL (SELECT ARRAY(SELECT k FROM unnest(c.classes) k
                                          WHERE k = ANY (w.classes)
                                             OR (c.outcome = 'denied' AND 'denied' = ANY (w.classes)))
                                   AS classes) x
             WHERE c.line_number IS NOT NULL AND x.classes <> '{}'
             GROUP BY c.file_name, c.line_number) i
    HAVING count(*) > 0
     UNION ALL
    SELECT 'administrators_missing', 'error', 'PCI DSS 10.2.1.2',
           'Not everything is recorded of what these can do, who log in and can do anything: ',
           'ALTER ROLE ... SET pg_audit_queue.log = ''all''; for each of them.',
           array_agg(a.name ORDER BY a.name COLLATE "C")
      FROM administrator a WHERE lower($1 COLLATE "C") = 'pci' AND NOT a.recorded HAVING count(*) > 0
     UNION ALL
    SELECT 'truncate_missing', 'warning', 'PCI DSS 10.2.1.1, NIST AU-12',
           'Tables of this database of which pg_audit_queue.role selects what changes them, but not TRUNCATE: ',
           'GRANT TRUNCATE ON ... TO ' || min(quote_ident(s.role)) || ';',
           array_agg(c.oid::regclass::text ORDER BY c.oid::regclass::text COLLATE "C")
      FROM server s JOIN pg_catalog.pg_roles r ON r.rolname = s.role, wanted w, pg_catalog.pg_class c,
           -- grants that select, as for a statement: to the role or to one whose
           -- privileges it has, not to PUBLIC
           LATERAL (SELECT coalesce(bool_or(a.privilege_type = 'TRUNCATE'), false) AS truncates,
                           coalesce(bool_or(a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE')), false) AS changes
                      FROM (SELECT t.* FROM aclexplode(c.relacl) t
                             UNION ALL
                            SELECT t.* FROM pg_catalog.pg_attribute n, aclexplode(n.attacl) t
                             WHERE n.attrelid = c.oid AND NOT n.attisdropped) a
                     WHERE a.grantee <> 0 AND pg_has_role(r.oid, a.grantee, 'USAGE')) g
     WHERE 'write' = ANY (w.by_object) AND 'write' <> ALL (s.log) AND c.relkind IN ('r', 'p', 'f')
       AND g.changes AND NOT g.truncates
    HAVING count(*) > 0
     UNION ALL
    SELECT 'log_statement_off', 'warning', 'NIST AU-3(1), STIG SRG-APP-000101',
           'pg_audit_queue.log_statement is off: records do not show what was executed.',
           'ALTER SYSTEM SET pg_audit_queue.log_statement = on; SELECT pg_reload_conf();',
           NULL
      FROM server s WHERE NOT s.log_statement
     UNION ALL
    SELECT 'log_parameter_off', 'warning', 'NIST AU-3(1), STIG SRG-APP-000101',
           'pg_audit_queue.log_parameter is off: records do not show the values that statements were executed with.',
           'ALTER SYSTEM SET pg_audit_queue.log_parameter = on; SELECT pg_reload_conf();',
           NULL
      FROM server s WHERE NOT s.log_parameter AND lower($1 COLLATE "C") = 'stig'
     UNION ALL
    SELECT 'log_catalog_off', 'warning', 'NIST AU-12, STIG SRG-APP-000091',
           'pg_audit_queue.log_catalog is off: statements that read only catalogs are not recorded.',
           'ALTER SYSTEM SET pg_audit_queue.log_catalog = on; SELECT pg_reload_conf();',
           NULL
      FROM server s WHERE NOT s.log_catalog AND lower($1 COLLATE "C") = 'stig'
     UNION ALL
    SELECT 'masks_hide', 'warning', 'NIST AU-3(1), STIG SRG-APP-000101',
           'pg_audit_queue.mask_literals hides the constants of classes in which profile '
           || lower($1 COLLATE "C") || ' wants them: ' || array_to_string(m.classes, ', ') || '.',
           'ALTER SYSTEM SET pg_audit_queue.mask_literals = '
           || quote_literal(coalesce(nullif(array_to_string(ARRAY(
                  SELECT c FROM unnest(s.mask_literals) c WHERE c <> ALL (w.literals)), ', '), ''), 'none'))
           || '; SELECT pg_reload_conf();',
           NULL
      FROM server s, wanted w,
           LATERAL (SELECT ARRAY(SELECT c FROM unnest(s.mask_literals) c
                                  WHERE c = ANY (w.literals)) AS classes) m
     WHERE m.classes <> '{}'
     UNION ALL
    SELECT 'masks_missing', CASE WHEN lower($1 COLLATE "C") = 'pci' THEN 'warning' ELSE 'info' END,
           'PCI DSS 3.5.1, NIST AU-3(3)',
           'Constants'
           || CASE WHEN s.log_parameter THEN ' and parameters' ELSE '' END
           || ' are recorded as they are, with whatever personal data is in them:'
              ' pg_audit_queue.mask_literals and pg_audit_queue.mask_patterns are empty.',
           -- card numbers, in groups as they are printed or not; with a word's ends that
           -- have no backslashes, whatever these mean here or there
           'ALTER SYSTEM SET pg_audit_queue.mask_patterns = ''"[[:<:]](?:[0-9]{13,19}'
           '|[0-9]{4}(?:[ -][0-9]{4}){3}(?:[ -][0-9]{3})?|[0-9]{4}[ -][0-9]{6}[ -][0-9]{4,5}'
           '|[0-9]{6}[ -][0-9]{13})[[:>:]]"''; SELECT pg_reload_conf();',
           NULL
      FROM server s
     WHERE s.mask_literals = '{}' AND NOT s.mask_patterns AND (s.log_statement OR s.log_parameter)
       AND (s.role <> '' OR s.by_rules <> '{}'
            OR s.log && ARRAY['function', 'misc', 'read', 'write', 'error', 'denied'])
     UNION ALL
    SELECT 'prefix_incomplete', 'warning', 'PCI DSS 10.2.2, NIST AU-3, STIG SRG-APP-000099',
           'Format pgaudit shows outcome and host only if pg_audit_queue.log_line_prefix has %e and %h; it is '
           || quote_literal(s.prefix) || '.',
           'ALTER SYSTEM SET pg_audit_queue.format = ''json''; SELECT pg_reload_conf();',
           NULL
      FROM setting s, LATERAL (SELECT replace(s.prefix, '%%', '') AS prefix) p
     WHERE s.sink = 'file' AND s.format = 'pgaudit'
       AND NOT (p.prefix ~ '%-?[0-9]*e' AND p.prefix ~ '%-?[0-9]*[hr]')
     UNION ALL
    SELECT 'trail_in_data_directory', 'warning', 'NIST AU-9(2), CIS 8.1',
           'Directory ' || quote_literal(v.log_directory) || ' of the trail is in the data directory:'
           ' pg_rewind replaces or removes it, base backups copy it, and it is gone with the data.',
           'As root: install -d -o postgres -g postgres -m 0700 /var/log/postgresql-audit;'
           ' then ALTER SYSTEM SET pg_audit_queue.log_directory = ''/var/log/postgresql-audit'';'
           ' SELECT pg_reload_conf(); and move the files.',
           NULL
      FROM setting s, server v WHERE s.sink = 'file' AND v.in_data_directory
     UNION ALL
    SELECT 'retention_none', 'warning', 'PCI DSS 10.5.1, NIST AU-11',
           'Nothing is ever removed from the trail: its disk will be full one day.',
           k.remedy,
           NULL
      FROM kept k WHERE k.age = 0 AND k.size = 0
     UNION ALL
    SELECT 'retention_short', 'error', 'PCI DSS 10.5.1, NIST AU-11',
           'Records are removed after ' || k.age || CASE k.age WHEN 1 THEN ' minute' ELSE ' minutes' END
           || ', less than a day. It begins an hour after it was set, or the start of the server.',
           k.remedy,
           NULL
      FROM kept k
     WHERE k.age BETWEEN 1 AND 1440 - 1
     UNION ALL
    SELECT 'retention_small', 'error', 'PCI DSS 10.5.1, NIST AU-11',
           'Files are removed when there are more than ' || k.size || ' bytes, less than one file may have. It'
           ' begins an hour after it was set, or the start of the server.',
           'ALTER SYSTEM SET pg_audit_queue.log_retention_size = ''20GB''; SELECT pg_reload_conf();',
           NULL
      FROM kept k, setting s
     WHERE k.size BETWEEN 1 AND s.file_size - 1
     UNION ALL
    SELECT 'retention_short', 'warning', 'PCI DSS 10.5.1, NIST AU-11',
           'Records are removed after ' || k.age / 1440
           || CASE k.age / 1440 WHEN 1 THEN ' day, ' ELSE ' days, ' END
           || CASE WHEN k.age < 90 * 1440 THEN '90 have to be at hand.'
                   ELSE '365 have to be kept: see that there are copies.' END,
           k.remedy,
           NULL
      FROM kept k
     WHERE lower($1 COLLATE "C") = 'pci' AND k.age BETWEEN 1440 AND 365 * 1440 - 1
     UNION ALL
    SELECT 'retention_by_size', 'warning', 'PCI DSS 10.5.1',
           'Files are removed when there are more than ' || k.size || ' bytes, whatever their age:'
           ' 365 days have to be kept.',
           CASE WHEN k.age = 0 THEN 'ALTER SYSTEM SET pg_audit_queue.log_retention_age = ''400d''; ' ELSE '' END
           || 'ALTER SYSTEM SET pg_audit_queue.log_retention_size = 0; SELECT pg_reload_conf();',
           NULL
      FROM kept k
     WHERE lower($1 COLLATE "C") = 'pci' AND k.size > 0
     UNION ALL
    SELECT 'disk_used', CASE WHEN max(100 - d.percent_free) >= 90 THEN 'error' ELSE 'warning' END,
           'NIST AU-5(1), STIG SRG-APP-000359',
           string_agg('The disk of the ' || d.what || ' is ' || 100 - d.percent_free || ' percent full: '
                      || d.free || ' of ' || d.size || ' bytes are free.', ' ' ORDER BY d.what),
           'Free space there, use another disk, or keep less of the trail.',
           NULL
      FROM (SELECT f.what, f.size, f.free, ceil(100.0 * f.free / f.size)::int AS percent_free
              FROM stats q, LATERAL (VALUES ('trail', q.trail_disk_size, q.trail_disk_free),
                                            ('queue', q.queue_disk_size, q.queue_disk_free))
                                    f (what, size, free)
             WHERE f.size > 0) d
     WHERE d.percent_free <= 25
    HAVING count(*) > 0
     UNION ALL
    SELECT 'disk_growth', 'warning', 'NIST AU-4, STIG SRG-APP-000357',
           'The trail grows by ' || k.growth::bigint || ' bytes a day, and '
           || q.trail_disk_free || ' bytes are free: not enough for a week.',
           'Use a larger disk, or keep less of the trail.',
           NULL
      FROM kept k, stats q WHERE k.needed > q.trail_disk_free
     UNION ALL
    SELECT 'queue_small', 'warning', 'NIST AU-5',
           'The queue of ' || q.queue_size || ' bytes was filled to ' || q.queue_high_water
           || '; sessions waited ' || q.space_waits
           || CASE q.space_waits WHEN 1 THEN ' time' ELSE ' times' END || ' for space.',
           CASE WHEN q.queue_size < m.kb * 1024
                THEN 'ALTER SYSTEM SET pg_audit_queue.queue_size = '''
                     || least(greatest(2 * q.queue_size / 1024, 1024), m.kb) || 'kB''; then restart.'
                ELSE 'Use a faster disk for the trail, or record less: the queue cannot be larger.' END
           || ' SELECT audit_queue_stats_reset(); to count anew.',
           NULL
      FROM stats q, (SELECT p.max_val::bigint AS kb FROM pg_catalog.pg_settings p
                      WHERE p.name = 'pg_audit_queue.queue_size') m
     WHERE q.space_waits > 0 OR q.queue_high_water > q.queue_size / 4 * 3
     UNION ALL
    SELECT 'records_dropped', 'error', 'PCI DSS 10.7.2, NIST AU-5, STIG SRG-APP-000109',
           q.dropped || CASE q.dropped WHEN 1 THEN ' record was' ELSE ' records were' END
           || ' dropped: ' || q.dropped_full || ' because the queue was full, '
           || q.dropped_exit || ' at the end of a session, ' || q.dropped_memory || ' for lack of memory.',
           'Look for GAP records, and set pg_audit_queue.overflow to wait, error or shutdown.'
           ' SELECT audit_queue_stats_reset(); to count anew.',
           NULL
      FROM stats q WHERE q.dropped > 0
     UNION ALL
    SELECT 'records_incomplete', 'warning', 'PCI DSS 10.2.2, NIST AU-3',
           q.incomplete || CASE q.incomplete WHEN 1 THEN ' record was' ELSE ' records were' END
           || ' made from what was at hand.',
           'Look for records marked incomplete, and for libraries that keep hooks from being called.'
           ' SELECT audit_queue_stats_reset(); to count anew.',
           NULL
      FROM stats q WHERE q.incomplete > 0
     UNION ALL
    SELECT 'last_error', 'warning', 'PCI DSS 10.7.2, NIST AU-5, STIG SRG-APP-000360',
           'The worker, or the loader, failed at ' || q.last_error_time || ': ' || q.last_error,
           'Remove the cause. SELECT audit_queue_stats_reset(); if that is done.',
           NULL
      FROM stats q WHERE q.last_error_time > q.stats_reset
     UNION ALL
    SELECT 'fsync_off', 'error', 'NIST AU-9',
           'A crash of the operating system loses records that sessions have waited for: '
           || concat_ws(', ', CASE s.fsync WHEN 'off' THEN 'pg_audit_queue.fsync is off' END,
                        CASE s.server_fsync WHEN 'off' THEN 'fsync is off' END) || '.',
           concat_ws(' ', CASE s.fsync WHEN 'off' THEN 'ALTER SYSTEM SET pg_audit_queue.fsync = on;' END,
                     CASE s.server_fsync WHEN 'off' THEN 'ALTER SYSTEM SET fsync = on;' END,
                     'SELECT pg_reload_conf();'),
           NULL
      FROM setting s WHERE s.fsync = 'off' OR s.server_fsync = 'off'
     UNION ALL
    SELECT 'overflow_drop', 'warning', 'NIST AU-5, STIG SRG-APP-000109',
           'pg_audit_queue.overflow is drop: when the queue is full, records are lost.',
           'ALTER SYSTEM SET pg_audit_queue.overflow = ''wait''; SELECT pg_reload_conf();',
           NULL
      FROM setting s WHERE s.overflow = 'drop'
     UNION ALL
    SELECT 'overrides', CASE WHEN (SELECT u.everything FROM unrecorded u) THEN 'error' ELSE 'warning' END, 'PCI DSS 10.2.1.6, NIST AU-12(3)',
           'Roles, databases or functions have settings of their own: ',
           'ALTER ROLE ... RESET, ALTER DATABASE ... RESET, or ALTER FUNCTION ... RESET, with the setting,'
           ' where this is not wanted.',
           array_agg(o.shown ORDER BY o.shown COLLATE "C")
      FROM override o WHERE NOT o.selects_all HAVING count(*) > 0
     UNION ALL
    SELECT 'settings_granted', 'warning', 'PCI DSS 10.3.2, NIST AU-12(3)',
           'Settings of auditing are granted: ',
           'REVOKE ALL ON PARAMETER ... FROM ...;',
           array_agg(DISTINCT g.shown COLLATE "C")
      FROM granted g HAVING count(*) > 0
     UNION ALL
    SELECT 'superusers', 'info', 'PCI DSS 10.3.2, NIST AU-9(4)',
           'Superusers can change every setting, which is recorded, and the trail: ',
           'Have as few as possible, and copy the trail to another machine.',
           array_agg(n.name ORDER BY n.name COLLATE "C")
      FROM (SELECT quote_ident(r.rolname) FROM pg_catalog.pg_roles r WHERE r.rolsuper AND r.rolcanlogin
             UNION ALL
            SELECT m.name FROM member m WHERE m.everything) n (name)
    HAVING count(*) > 0
     UNION ALL
    SELECT 'trail_readers', 'info', 'PCI DSS 10.3.1, NIST AU-9(4), STIG SRG-APP-000118',
           'Roles that are no superusers and can read the trail: ',
           'Revoke audit_queue_reader, pg_read_server_files, REPLICATION, BYPASSRLS, or EXECUTE on functions'
           ' that read files, where it is not needed.',
           array_agg(m.name ORDER BY m.name COLLATE "C")
      FROM member m WHERE NOT m.writes HAVING count(*) > 0
     UNION ALL
    SELECT 'trail_writers', 'warning', 'PCI DSS 10.3.2, NIST AU-9, STIG SRG-APP-000119',
           'Roles that are no superusers and can read and change the trail, or let themselves: ',
           'Revoke pg_write_server_files, pg_execute_server_program'
           || CASE WHEN min(s.version) < 160000 THEN ', CREATEROLE' ELSE '' END
           || ', BYPASSRLS, and EXECUTE on functions that write files, as you would superuser.',
           array_agg(m.name ORDER BY m.name COLLATE "C")
      FROM member m, setting s WHERE m.writes AND NOT m.everything HAVING count(*) > 0
     UNION ALL
    SELECT 'version_mismatch', 'error', 'NIST CM-6',
           'The extension in this database has version ' || e.extversion || ', the library that is loaded '
           || q.library_version || '.',
           'ALTER EXTENSION pg_audit_queue UPDATE; or restart the server, if the library is the older one.',
           NULL
      FROM pg_catalog.pg_extension e, stats q
     WHERE e.extname = 'pg_audit_queue' AND e.extversion <> q.library_version
     UNION ALL
    SELECT 'extension_missing', 'warning', 'NIST AU-3',
           'Databases without the extension in version 1.1 or later, where records of DDL may lack names of objects: ',
           'CREATE EXTENSION pg_audit_queue; or ALTER EXTENSION pg_audit_queue UPDATE; in each of them.',
           array_agg(quote_ident(d.datname) ORDER BY d.datname)
      FROM pg_catalog.pg_database d
      LEFT JOIN pg_catalog.pg_roles o ON o.oid = d.datdba
       -- not what its owner could say of a database to hide it
     WHERE NOT (o.rolsuper IS TRUE AND (d.datistemplate OR NOT d.datallowconn))
       -- the extension's operator family
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_shdepend p JOIN pg_catalog.pg_roles r ON r.oid = p.refobjid
                        WHERE p.dbid = d.oid AND p.classid = 'pg_catalog.pg_opfamily'::regclass
                          AND p.refclassid = 'pg_catalog.pg_authid'::regclass
                          AND p.deptype = 'o' AND r.rolname = 'audit_queue_marker')
    HAVING count(*) > 0
     UNION ALL
    SELECT 'trail_published', 'warning', 'PCI DSS 10.3.1, NIST AU-9, STIG SRG-APP-000118',
           'Publications that carry the audit table of this database to subscribers: ',
           'Have the audit table in a database of its own (pg_audit_queue.database), or publish tables by name.',
           array_agg(quote_ident(p.name) ORDER BY p.name)
      FROM audit_queue.publications() p (name) HAVING count(*) > 0
     UNION ALL
    SELECT 'names_hidden', 'warning', 'NIST CM-6',
           'Found by their names with a schema only, because auditing has the same names: ',
           'If their owners are trusted: ' || string_agg(n.command, '; ' ORDER BY n.name COLLATE "C") || ';',
           array_agg(o ORDER BY o COLLATE "C")
      FROM audit_queue.names() n,
           LATERAL (SELECT array_to_string(n.others, ', ')) s (o)
     WHERE NOT n.aside AND n.others <> '{}' HAVING count(*) > 0
     UNION ALL
    SELECT 'names_aside', CASE WHEN bool_or(n.untrusted) THEN 'warning' ELSE 'info' END, 'NIST CM-6',
           'Not in pg_catalog, because others have the names'
           || CASE WHEN bool_or(n.untrusted) THEN ', who could have a superuser execute what they have written: '
                   ELSE ': ' END,
           'Call them by these names, or SET search_path = pg_catalog, audit_queue.'
           ' If nobody needs the names any more: '
           || string_agg(n.command, '; ' ORDER BY n.name COLLATE "C") || ';',
           array_agg(n.name ORDER BY n.name COLLATE "C")
      FROM audit_queue.names() n WHERE n.aside HAVING count(*) > 0
     UNION ALL
    SELECT 'restart_pending', 'warning', 'NIST CM-6',
           'Settings that have been changed in configuration files, and wait for a restart of the server: ',
           'Restart the server, or take them back.',
           array_agg(r.name ORDER BY r.name COLLATE "C")
      FROM raw r WHERE r.pending_restart HAVING count(*) > 0
     UNION ALL
    SELECT 'configuration_errors', 'error', 'NIST CM-6',
           'Wrong values in configuration files, in whose place others are used: ',
           'Correct them, then SELECT pg_reload_conf();',
           e.list
      FROM errors e WHERE cardinality(e.list) > 0
     UNION ALL
    SELECT 'configuration_errors', 'error', 'NIST CM-6',
           'When the configuration files were last read, values in them were wrong, and others are used: '
           || q.setting_errors || CASE WHEN e.visible THEN '; no more, but they have not been read since.' ELSE '.' END,
           CASE WHEN e.visible THEN 'SELECT pg_reload_conf();'
                ELSE 'Let a superuser call audit_check(), to see which.' END,
           NULL
      FROM errors e, stats q WHERE q.setting_errors > 0 AND cardinality(e.list) > 0 IS NOT TRUE
     UNION ALL
    SELECT 'overrides_wrong', 'error', 'NIST CM-6, NIST AU-12(3)',
           'Settings of roles, databases or functions have wrong values: sessions use others instead, functions fail: ',
           'ALTER ROLE ... SET, ALTER DATABASE ... SET, or ALTER FUNCTION ... SET, with a right one.',
           array_agg(o.shown ORDER BY o.shown COLLATE "C")
      FROM override o WHERE NOT o.valid HAVING count(*) > 0
     UNION ALL
    SELECT 'policy_errors', 'error', 'NIST CM-6, NIST AU-12',
           'The policy file has errors, and the rules that were there before are in effect, if any were: ',
           'Correct them, then SELECT pg_reload_conf();',
           e.policy
      FROM errors e WHERE cardinality(e.policy) > 0
     UNION ALL
    SELECT 'policy_errors', 'error', 'NIST CM-6, NIST AU-12',
           'The policy file could not be used when it was last read: '
           || CASE q.policy_errors WHEN 1 THEN 'there was 1 error.'
                   ELSE 'there were ' || q.policy_errors || ' errors.' END,
           CASE WHEN e.policy_visible THEN 'SELECT pg_reload_conf(); and see the server log.'
                ELSE 'Let a member of pg_monitor call audit_check(), to see which.' END,
           NULL
      FROM errors e, stats q WHERE q.policy_errors > 0 AND cardinality(e.policy) > 0 IS NOT TRUE
     UNION ALL
    SELECT 'not_visible', 'info', 'NIST CM-6',
           'Not looked at, because ' || quote_ident(CURRENT_USER) || ' may not: ',
           'Let a superuser call audit_check().',
           array_remove(ARRAY[CASE WHEN NOT e.visible THEN 'wrong values in configuration files' END,
                              CASE WHEN NOT e.pending_visible THEN 'what waits for a restart' END,
                              CASE WHEN NOT e.policy_visible THEN 'errors of the policy file' END], NULL)
      FROM errors e WHERE NOT (e.visible AND e.pending_visible AND e.policy_visible)
)
SELECT f.finding, f.severity, f.control,
       f.detail
       || CASE WHEN f.names IS NULL THEN '' ELSE array_to_string(f.names[1:10], ', ') END
       || CASE WHEN cardinality(f.names) > 10 THEN ' and ' || cardinality(f.names) - 10 || ' more' ELSE '' END
       || CASE WHEN f.names IS NULL THEN '' ELSE '.' END,
       f.remedy
  FROM found f
 ORDER BY array_position(ARRAY['error', 'warning', 'info'], f.severity), f.finding COLLATE "C";
END;

-- Which of the rules in effect would decide about such a statement.  address: null is a
-- Unix-domain socket; object: with its schema, null is none; outcome: ok, failed or
-- denied, null is unknown.  action is "settings" if no rule decides.
CREATE FUNCTION audit_policy_check(
    database text,
    user_name text,
    address text DEFAULT NULL,
    class text DEFAULT 'read',
    object text DEFAULT NULL,
    command text DEFAULT NULL,
    currentuser text DEFAULT NULL,
    outcome text DEFAULT 'ok',
    row_count bigint DEFAULT 0,
    duration interval DEFAULT '0',
    OUT rule_number integer,
    OUT file_name text,
    OUT line_number integer,
    OUT action text,
    OUT name text
)
RETURNS record
AS 'MODULE_PATHNAME'
LANGUAGE C VOLATILE PARALLEL SAFE;

-- Consumers of the trail's files, for which these are kept.
CREATE FUNCTION audit_consumer_create(
    name text,
    from_now boolean DEFAULT false
)
RETURNS bigint
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION audit_consumer_drop(
    name text
)
RETURNS void
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;

CREATE FUNCTION audit_consumers(
    OUT name text,
    OUT created timestamptz,
    OUT active_pid integer,
    OUT series bigint,
    OUT sequence bigint,
    OUT acknowledged timestamptz,
    OUT record_time timestamptz,
    OUT file_name text,
    OUT lag_records bigint,
    OUT lag_bytes bigint,
    OUT lag_seconds double precision,
    OUT error text
)
RETURNS SETOF record
AS 'MODULE_PATHNAME'
LANGUAGE C STRICT VOLATILE PARALLEL SAFE ROWS 10;

CREATE VIEW audit_queue.audit_consumers WITH (security_invoker = true) AS
    SELECT * FROM audit_consumers();

ALTER VIEW audit_queue.audit_consumers SET SCHEMA pg_catalog;

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
             WHERE c.oid IN ('audit_queue.trail'::pg_catalog.regclass,
                             'pg_catalog.audit_consumers'::pg_catalog.regclass,
                             'pg_catalog.audit_policy_rules'::pg_catalog.regclass,
                             'pg_catalog.audit_trail'::pg_catalog.regclass,
                             'pg_catalog.pg_stat_audit_queue'::pg_catalog.regclass,
                             'pg_catalog.pg_stat_audit_queue_classes'::pg_catalog.regclass)
             UNION ALL
            SELECT 'FUNCTION', p.oid::pg_catalog.regprocedure::text, p.proowner,
                   coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))
              FROM pg_catalog.pg_proc p
             WHERE p.oid IN ('pg_catalog.audit_check(text)'::pg_catalog.regprocedure,
                             'pg_catalog.audit_consumer_create(text, boolean)'::pg_catalog.regprocedure,
                             'pg_catalog.audit_consumer_drop(text)'::pg_catalog.regprocedure,
                             'pg_catalog.audit_consumers()'::pg_catalog.regprocedure,
                             'pg_catalog.audit_policy_rules()'::pg_catalog.regprocedure,
                             'pg_catalog.audit_policy_check(text, text, text, text, text, text, text, text, bigint, interval)'::pg_catalog.regprocedure,
                             'pg_catalog.audit_seal()'::pg_catalog.regprocedure,
                             'pg_catalog.audit_trail(timestamptz,timestamptz,text[],text[],text[])'::pg_catalog.regprocedure,
                             'pg_catalog.pg_stat_get_audit_queue()'::pg_catalog.regprocedure,
                             'pg_catalog.pg_stat_get_audit_queue_classes()'::pg_catalog.regprocedure,
                             'audit_queue.configuration_errors()'::pg_catalog.regprocedure,
                             'audit_queue.drop_table()'::pg_catalog.regprocedure,
                             'audit_queue.log_classes(text)'::pg_catalog.regprocedure,
                             'audit_queue.make_table()'::pg_catalog.regprocedure,
                             'audit_queue.names()'::pg_catalog.regprocedure,
                             'audit_queue.no_table()'::pg_catalog.regprocedure,
                             'audit_queue.pg_audit_queue_extension()'::pg_catalog.regprocedure,
                             'audit_queue.policy_coverage()'::pg_catalog.regprocedure,
                             'audit_queue.policy_errors()'::pg_catalog.regprocedure,
                             'audit_queue.profile(text)'::pg_catalog.regprocedure,
                             'audit_queue.publications()'::pg_catalog.regprocedure,
                             'audit_queue.records_elsewhere()'::pg_catalog.regprocedure,
                             'audit_queue.setting_is_valid(text, text)'::pg_catalog.regprocedure,
                             'audit_queue.server_settings()'::pg_catalog.regprocedure,
                             'audit_queue.step_aside()'::pg_catalog.regprocedure,
                             'audit_queue.trail_handler()'::pg_catalog.regprocedure)
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

GRANT EXECUTE ON FUNCTION audit_queue.records_elsewhere(),
    audit_trail(timestamptz, timestamptz, text[], text[], text[]) TO audit_queue_reader;
GRANT SELECT ON audit_queue.trail, audit_trail TO audit_queue_reader;

GRANT SELECT ON audit_policy_rules TO pg_monitor, audit_queue_reader;
GRANT EXECUTE ON FUNCTION audit_policy_rules(),
    audit_policy_check(text, text, text, text, text, text, text, text, bigint, interval)
    TO pg_monitor, audit_queue_reader;

GRANT SELECT ON audit_consumers TO pg_monitor, audit_queue_reader;
GRANT EXECUTE ON FUNCTION audit_consumers() TO pg_monitor, audit_queue_reader;

GRANT SELECT ON pg_stat_audit_queue, pg_stat_audit_queue_classes TO pg_monitor;
GRANT EXECUTE ON FUNCTION pg_stat_get_audit_queue(), pg_stat_get_audit_queue_classes(),
    audit_check(text) TO pg_monitor;
GRANT USAGE ON SCHEMA audit_queue TO pg_monitor;
GRANT EXECUTE ON FUNCTION audit_queue.configuration_errors(), audit_queue.log_classes(text),
    audit_queue.names(), audit_queue.policy_coverage(), audit_queue.policy_errors(), audit_queue.profile(text),
    audit_queue.publications(), audit_queue.setting_is_valid(text, text), audit_queue.server_settings() TO pg_monitor;

-- Where no loader has written, the table of version 1.0 goes, unless somebody has made
-- something of it.
DO $$
DECLARE
    reason text;
BEGIN
    PERFORM audit_queue.drop_table();
EXCEPTION WHEN dependent_objects_still_exist THEN
    GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
    RAISE WARNING 'table "audit_queue.records" stays in this database, although nothing has been loaded into it'
        USING DETAIL = coalesce(nullif(reason, ''), 'Somebody has granted privileges on it.'),
              HINT = 'When that is gone, call audit_queue.drop_table(): pg_dump and publications have the table until then.';
END
$$;

-- What applications have by the same names they find, and ours is in audit_queue.
SELECT audit_queue.step_aside();
