-- Queries on the catalogs, as tools make them.

CREATE SCHEMA cat;
SET search_path = cat;
CREATE TABLE t (a int PRIMARY KEY, b text);
CREATE VIEW v AS SELECT relname FROM pg_class;
CREATE FUNCTION f() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM pg_catalog.pg_class';
SELECT count(*) FROM pg_class;
SELECT relname FROM pg_catalog.pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE nspname = 'cat';
SELECT count(*) FROM pg_class, t;
SELECT count(*) FROM t, pg_class;
SELECT count(*) FROM t WHERE 't' IN (SELECT relname FROM pg_class);
SELECT count(*) FROM v;
SELECT f();
SELECT tablename FROM pg_tables WHERE schemaname = 'cat';
SELECT count(*) FROM pg_stat_activity WHERE pid = 0;
SELECT count(*) FROM pg_settings;
SELECT count(*) FROM information_schema.columns WHERE table_schema = 'cat';
SELECT rolname FROM pg_roles WHERE rolname = 'parity_auditor';
SELECT 't'::regclass::oid > 0, pg_get_viewdef('v'), pg_table_size('t') >= 0;
SELECT pg_get_functiondef('f'::regproc);
SELECT * FROM pg_ls_dir('.') WHERE false;
WITH x AS (SELECT oid FROM pg_class) SELECT count(*) FROM x;
SELECT relname FROM pg_class LIMIT 1 FOR UPDATE;
CREATE TABLE copied AS SELECT oid, relname FROM pg_class LIMIT 3;
INSERT INTO t SELECT oid::int, relname FROM pg_class LIMIT 3;
COPY (SELECT count(*) FROM pg_class) TO STDOUT;
COPY pg_am TO STDOUT;
UPDATE pg_class SET reltuples = reltuples WHERE relname = 't';
DELETE FROM pg_description WHERE false;
INSERT INTO pg_description SELECT * FROM pg_description WHERE false;
SELECT rolpassword FROM pg_authid WHERE rolname = 'parity_auditor';
SELECT count(*) FROM pg_authid;
SELECT usename, passwd FROM pg_user WHERE false;
SELECT passwd FROM pg_shadow WHERE false;
SELECT umoptions FROM pg_user_mapping;
DO $$ BEGIN PERFORM relname FROM pg_class; PERFORM a FROM cat.t; END $$;
\d
\d t
\d+ t
\dn
\df cat.*
\du parity_auditor
\l postgres
\dt *.t
\sf cat.f
\dp t
\di
\dv+
\dx
\dy
\drds
CREATE TEMP TABLE tmp (a int);
SELECT * FROM tmp;
SELECT count(*) FROM pg_toast.pg_toast_1255;
DROP SCHEMA cat CASCADE;
