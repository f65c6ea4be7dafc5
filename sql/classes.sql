--
-- What is recorded of each kind of statement: class, command, object, ids, text.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
CREATE TABLE t (a int, b text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE MATERIALIZED VIEW mv AS SELECT a FROM t;
CREATE ROLE regress_paq_other;
CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN $1 + 1; END';
CREATE PROCEDURE pr() LANGUAGE plpgsql AS 'BEGIN NULL; END';

--
-- Each class by representative statements.  MISC_SET is a class of the settings only, a
-- part of MISC, and SET_ROLE is a part of that; their records show MISC.
--
\set columns 'class, command, text'
SET pg_audit_queue.log = 'all';

SELECT $$
	SELECT a FROM t;
	SELECT a FROM t FOR UPDATE;
	VALUES (1), (2);
	TABLE t;
	COPY t TO STDOUT;
	COPY (SELECT 1) TO STDOUT;
	PREPARE p AS SELECT a FROM t;
$$ AS reads \gset
:skip
:reads
:records

SELECT $$
	INSERT INTO t VALUES (3, 'three');
	UPDATE t SET b = upper(b);
	DELETE FROM t WHERE a = 3;
	MERGE INTO t USING (VALUES (1)) v(x) ON a = x WHEN MATCHED THEN UPDATE SET b = NULL;
	TRUNCATE t;
	COPY t FROM PROGRAM 'true';
$$ AS writes \gset
:skip
:writes
:records

SELECT $$
	DO $x$ BEGIN NULL; END $x$;
	SELECT f(1);
	CALL pr();
$$ AS functions \gset
:skip
:functions
:records

SELECT $$
	GRANT SELECT ON t TO regress_paq_other;
	REVOKE SELECT ON t FROM regress_paq_other;
	CREATE ROLE regress_paq_r1;
	GRANT regress_paq_other TO regress_paq_r1;
	REVOKE regress_paq_other FROM regress_paq_r1;
	ALTER ROLE regress_paq_r1 NOLOGIN;
	ALTER ROLE regress_paq_r1 SET work_mem = 64;
	ALTER ROLE regress_paq_r1 RENAME TO regress_paq_r2;
	DROP ROLE regress_paq_r2;
	ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO regress_paq_other;
	ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM regress_paq_other;
$$ AS roles \gset
:skip
:roles
:records

-- DROP TABLE has a record for the table, and one for its index.
SELECT $$
	CREATE TABLE d (a int);
	CREATE INDEX ON d (a);
	ALTER TABLE d RENAME a TO b;
	COMMENT ON TABLE d IS 'd';
	DROP TABLE d;
	ALTER SYSTEM SET work_mem = 4096;
	ALTER SYSTEM RESET work_mem;
$$ AS ddl \gset
:skip
:ddl
:records
CREATE DATABASE regress_paq TEMPLATE template0;
DROP DATABASE regress_paq;
:records

SELECT $$
	BEGIN;
	LOCK TABLE t IN SHARE MODE;
	SAVEPOINT s;
	RELEASE SAVEPOINT s;
	COMMIT;
	VACUUM t;
	ANALYZE t;
	CHECKPOINT;
	SHOW work_mem;
	DISCARD PLANS;
	LISTEN l;
	DEALLOCATE p;
$$ AS misc \gset
:skip
:misc
:records

SELECT $$
	SET work_mem = 128;
	RESET work_mem;
$$ AS misc_set \gset
:skip
:misc_set
:records

SELECT $$
	SET ROLE regress_paq_other;
	RESET ROLE;
	BEGIN;
	SET LOCAL ROLE regress_paq_other;
	COMMIT;
	SET SESSION AUTHORIZATION regress_paq_other;
	RESET SESSION AUTHORIZATION;
	SET "Role" = none;
	SET session_authorization TO DEFAULT;
$$ AS set_role \gset
:skip
:set_role
:records

--
-- What a value of pg_audit_queue.log selects of all these: exactly the records of its
-- classes
--
\set named 'CASE WHEN command IN (''SET'', ''RESET'') THEN text ELSE command END'
\set columns 'class, string_agg(:named, '', '' ORDER BY sequence) AS commands'
\set arranged 'GROUP BY class ORDER BY class'
\set all :reads :writes :functions :roles :ddl :misc :misc_set :set_role
\set all ':skip \\o /dev/null \\\\' :all '\\o \\\\ :records'

SET pg_audit_queue.log = 'READ';
:all
SET pg_audit_queue.log = 'WRITE';
:all
SET pg_audit_queue.log = 'FUNCTION';
:all
SET pg_audit_queue.log = 'ROLE';
:all
SET pg_audit_queue.log = 'DDL';
:all
SET pg_audit_queue.log = 'MISC';
:all
SET pg_audit_queue.log = 'MISC_SET';
:all
SET pg_audit_queue.log = 'ALL';
:all
SET pg_audit_queue.log = 'SET_ROLE';
:all
SET pg_audit_queue.log = 'NONE';
:all
SET pg_audit_queue.log = 'all, -misc';
:all
SET pg_audit_queue.log = 'all, -misc_set';
:all
SET pg_audit_queue.log = 'misc, -misc_set';
:all
SET pg_audit_queue.log = 'misc_set, -set_role';
:all
SET pg_audit_queue.log = 'all, -set_role';
:all
SET pg_audit_queue.log = 'all, -read, -function';
:all
SET pg_audit_queue.log = 'Read, writE';
:all
SET pg_audit_queue.log = 'none, ddl';
:all
SET pg_audit_queue.log = 'ddl, -ddl';
:all

-- RESET ALL is of class MISC_SET.  It resets pg_audit_queue.log, too, to what a session
-- begins with.
\set columns 'class, command, text'
\set arranged 'ORDER BY sequence'
\c -reuse-previous=on "options='-c pg_audit_queue.log=misc_set'"
SELECT pg_backend_pid() AS session \gset
RESET ALL;
:records
\c -reuse-previous=on "options='-c pg_audit_queue.log=set_role'"
SELECT pg_backend_pid() AS session \gset
RESET ALL;
:records
\c -reuse-previous=on "options='-c pg_audit_queue.log=all,-misc_set'"
SELECT pg_backend_pid() AS session \gset
RESET ALL;
:records
\c -reuse-previous=on "options=''"
SELECT pg_backend_pid() AS session \gset

--
-- set_config() can do what SET ROLE does.  Which setting it is for is not known when it
-- is called; the statement has one record of it, unless it has one of its own.
--
\set columns 'class, command, code, text'
SELECT $$
	BEGIN;
	SELECT set_config('role', 'regress_paq_other', false), set_config('work_mem', '64', false);
	ROLLBACK;
	BEGIN;
	UPDATE pg_settings SET setting = 'regress_paq_other' WHERE name = 'role';
	ROLLBACK;
	BEGIN;
	DO 'BEGIN IF set_config(''role'', ''regress_paq_other'', false) = '''' THEN END IF; END';
	ROLLBACK;
	BEGIN;
	COPY (SELECT set_config('role', 'regress_paq_other', false)) TO STDOUT;
	ROLLBACK;
$$ AS calls \gset
SET pg_audit_queue.log = 'set_role';
:skip
:calls
:records
SET pg_audit_queue.log = 'set_role, read, function';
:skip
:calls
:records
SET pg_audit_queue.log = 'read, function';
:skip
:calls
:records

--
-- The objects that data definition concerns.  In a database without the extension,
-- statements have one record and no object.
--
\set columns 'text, class, command, object_type, object, code'
SET client_min_messages = warning;
SELECT $$
	CREATE SCHEMA s;
	CREATE TABLE s."D" (a int UNIQUE, b text);
	CREATE FUNCTION g(int, text) RETURNS int LANGUAGE sql AS 'SELECT 1';
	CREATE VIEW s.v AS SELECT a FROM s."D";
	CREATE SEQUENCE s.q;
	CREATE TYPE s.e AS ENUM ();
	CREATE DOMAIN s.dom AS int;
	CREATE RULE r AS ON UPDATE TO s."D" DO ALSO NOTHING;
	ALTER TABLE s."D" ADD c int;
	ALTER TABLE s."D" RENAME COLUMN c TO d;
	ALTER FUNCTION g(int, text) STABLE;
	COMMENT ON SCHEMA s IS 's';
	GRANT SELECT ON s."D" TO regress_paq_other;
	DROP VIEW s.v;
	DROP FUNCTION g(int, text);
	DROP SCHEMA s CASCADE;
	CREATE SCHEMA empty;
	DROP SCHEMA empty;
	DROP ROLE IF EXISTS no_such_role;
	DO 'BEGIN CREATE TABLE n (a int); DROP TABLE n; END';
$$ AS definitions \gset
SET pg_audit_queue.log = 'ddl, role';
:skip
:definitions
:records

SET pg_audit_queue.log = 'none';
CREATE DATABASE regress_paq TEMPLATE template0;
\set database :DBNAME
\c regress_paq
SET client_min_messages = warning;
SELECT pg_backend_pid() AS session \gset
SET pg_audit_queue.log = 'ddl, role';
:definitions
\c :database
:records

-- There, a GRANT that is a part of CREATE SCHEMA takes no ids: pgaudit has no record of it.
\set columns 'statement, part, class, command, code, text'
\c regress_paq
SELECT pg_backend_pid() AS session \gset
CREATE TABLE t (a int);
SET pg_audit_queue.log = 'role';
CREATE ROLE regress_paq_made;
CREATE SCHEMA granting GRANT SELECT ON public.t TO regress_paq_made;
DROP SCHEMA granting;
REVOKE SELECT ON t FROM regress_paq_made;
DROP ROLE regress_paq_made;
\c :database
:records

--
-- An extension's script is not recorded; what creates the extension is.
--
\set columns 'class, command, object_type, object, text'
\c regress_paq
SELECT pg_backend_pid() AS session \gset
SET pg_audit_queue.log = 'all';
CREATE EXTENSION pg_audit_queue;
:records
DROP EXTENSION plpgsql;
CREATE EXTENSION plpgsql;
:records
\c :database
DROP DATABASE regress_paq;
SELECT pg_backend_pid() AS session \gset

--
-- Statement ids count statements; parts, the substatement ids, what they do.
--
\set columns 'statement, part, class, command, object, text'
\set arranged 'ORDER BY statement, part'
TRUNCATE t;
SET pg_audit_queue.log = 'all';
:skip

SELECT 1; SELECT 2; INSERT INTO t VALUES (7); SELECT 3;
:records
-- several in one message
SELECT 1\; BEGIN\; SELECT 2\; COMMIT;
:records
-- nested statements and functions
DO $$ BEGIN
	INSERT INTO t VALUES (1);
	PERFORM f(1);
	EXECUTE 'DO $x$ BEGIN UPDATE t SET a = a; END $x$';
END $$;
SELECT f(f(1));
SELECT 2;
:records
-- statements that execute others
EXPLAIN (COSTS off) SELECT a FROM t;
PREPARE p AS SELECT a FROM t;
EXECUTE p;
CREATE TABLE c AS SELECT a FROM t;
REFRESH MATERIALIZED VIEW mv;
:records

--
-- Passwords are neither in the trail nor in the queue's files.
--
\set columns 'class, command, text, code'
\set arranged 'ORDER BY sequence'
CREATE ROLE regress_paq_secret1 LOGIN PASSWORD 'sesame_1' NOINHERIT;
CREATE USER regress_paq_secret2 pAssWord
'sesame_2' VALID UNTIL 'infinity';
ALTER ROLE regress_paq_secret1 ENCRYPTED PASSWORD 'sesame_3';
ALTER USER regress_paq_secret2 /* 1 */ PASSWORD/* 2 */ 'sesame_4';
CREATE GROUP regress_paq_secret3 PASSWORD 'sesame_5';
ALTER ROLE no_such_role PASSWORD 'sesame_6';
BEGIN;
ALTER ROLE CURRENT_USER PASSWORD $$sesame_7$$;
ROLLBACK;
:records
SET pg_audit_queue.log = 'none';
WITH files (name) AS (
	SELECT directory || '/' || name
	  FROM unnest(ARRAY[current_setting('pg_audit_queue.log_directory'),
						current_setting('pg_audit_queue.queue_directory')]) AS directory,
		   pg_ls_dir(directory) AS name
)
SELECT word, count(name) > 0 AS found
  FROM unnest(ARRAY['paq_' || 'secret1', 'sesame' || '_']) AS word
  LEFT JOIN files ON position(word::bytea IN pg_read_binary_file(name)) > 0
 GROUP BY word
 ORDER BY word;

DROP ROLE regress_paq_secret1, regress_paq_secret2, regress_paq_secret3, regress_paq_other;
DROP MATERIALIZED VIEW mv;
DROP TABLE t, c;
DROP FUNCTION f;
DROP PROCEDURE pr;
DROP EXTENSION pg_audit_queue;
