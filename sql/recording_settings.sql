--
-- The settings that select records and their contents.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
CREATE TABLE t (a int, b text);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
CREATE TABLE u (a int);

--
-- log, as it changes in a session
--
\set columns 'class, text'
SELECT 0;
SET pg_audit_queue.log = 'all';
SELECT 1;
SET pg_audit_queue.log = 'none';
SELECT 2;
SET pg_audit_queue.log = 'write';
SELECT 3;
DELETE FROM u;
BEGIN;
SET LOCAL pg_audit_queue.log = 'read';
SELECT 4;
ROLLBACK;
SELECT 5;
DELETE FROM t WHERE false;
RESET pg_audit_queue.log;
DELETE FROM u;
:records

--
-- log_catalog: statements that only read catalogs
--
SELECT $$
	SELECT count(*) > 0 AS pg_class FROM pg_class;
	SELECT count(*) > 0 AS both FROM pg_class, t;
	SELECT count(*) > 0 AS t FROM t;
	SELECT 1 AS no_table;
	SELECT relname FROM pg_class WHERE false FOR UPDATE;
$$ AS statements \gset
SET pg_audit_queue.log = 'read, write';
SET pg_audit_queue.log_catalog = on;
:skip
:statements
:records
SET pg_audit_queue.log_catalog = off;
:skip
:statements
:records
RESET pg_audit_queue.log_catalog;

--
-- log_relation: a record for each relation
--
\set columns 'class, command, object_type, object, statement, part'
SET pg_audit_queue.log_relation = on;
:skip
SELECT t.a FROM t, u;
INSERT INTO t SELECT a FROM u;
SELECT 1;
:records
SET pg_audit_queue.log = 'write';
:skip
SELECT t.a FROM t, u;
INSERT INTO t SELECT a FROM u;
:records
SET pg_audit_queue.log = 'read';
SET pg_audit_queue.log_relation = off;
:skip
SELECT t.a FROM t, u;
:records

--
-- log_statement, and log_parameter: a statement without parameters has an empty list.
--
\set columns 'text, command_text_omitted, parameters, parameters_omitted'
SET pg_audit_queue.log_parameter = on;
:skip
SELECT 1;
:records
SET pg_audit_queue.log_statement = off;
SELECT 1;
RESET pg_audit_queue.log_statement;
:records
SET pg_audit_queue.log_parameter = off;
SELECT 1;
:records

--
-- log_statement_once: the text is in a statement's first record only.
--
\set columns 'command, object, text, command_text_omitted, parameters, parameters_omitted'
SET pg_audit_queue.log_relation = on;
SET pg_audit_queue.log_parameter = on;
SET pg_audit_queue.log_statement_once = on;
:skip
SELECT t.a FROM t, u;
SELECT u.a FROM u;
:records
SET pg_audit_queue.log_statement_once = off;
:skip
SELECT t.a FROM t, u;
:records
-- about the same statement only
CREATE FUNCTION two() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t SELECT a FROM u;
	DELETE FROM u;
END $$;
SET pg_audit_queue.log_relation = off;
SET pg_audit_queue.log_statement_once = on;
SET pg_audit_queue.log = 'write';
:skip
SELECT two();
:records

--
-- log_client and log_level: what a client gets.  Statements are sent without semicolons,
-- which belong to the text before PostgreSQL 17.
--
\c -reuse-previous=on "options='-c pg_audit_queue.log=all,-connect'"
SELECT 1\g
\c -reuse-previous=on "options='-c pg_audit_queue.log=all,-connect -c pg_audit_queue.log_client=on'"
-- Clients do not get messages of level LOG, unless they want them.
SELECT 1\g
SET client_min_messages = log\g
SELECT 1\g
\c -reuse-previous=on "options='-c pg_audit_queue.log=all,-connect -c pg_audit_queue.log_client=on -c pg_audit_queue.log_level=notice'"
SELECT 1\g
\c -reuse-previous=on "options='-c pg_audit_queue.log=all,-connect -c pg_audit_queue.log_client=on -c pg_audit_queue.log_level=warning'"
SELECT 1\g
\c -reuse-previous=on "options='-c pg_audit_queue.log=all,-connect -c pg_audit_queue.log_client=on -c pg_audit_queue.log_level=info'"
SELECT 1\g

SET pg_audit_queue.log_level = 'notice'\g
SET pg_audit_queue.log = 'read, write, ddl, role'\g
SET pg_audit_queue.log_parameter = on\g
CREATE TABLE v (a int, b text)\g
INSERT INTO v VALUES (1, '"'), (2, 'x')\g
SELECT count(*)
  FROM v\g
SELECT 1 / (a - a) FROM t\g
CREATE ROLE regress_paq_r PASSWORD 'sesame'\g
PREPARE p(text, int) AS SELECT $1, $2\g
EXECUTE p('a"b', 1)\g
DROP ROLE regress_paq_r\g
DROP TABLE v\g
RESET pg_audit_queue.log_parameter\g
-- log_rows
SET pg_audit_queue.log_rows = on\g
SELECT * FROM t WHERE false\g
INSERT INTO u VALUES (1), (2), (3)\g
DELETE FROM u\g
RESET pg_audit_queue.log_rows\g
-- log_statement, log_statement_once
SET pg_audit_queue.log_statement = off\g
SELECT 1\g
RESET pg_audit_queue.log_statement\g
SET pg_audit_queue.log_relation = on\g
SET pg_audit_queue.log_statement_once = on\g
SELECT t.a FROM t CROSS JOIN u\g

\c -reuse-previous=on "options=''"
DROP FUNCTION two;
DROP TABLE t, u;
DROP EXTENSION pg_audit_queue;
