--
-- Texts of several statements: each record has its statement's part, and the place of the
-- part in what was sent, so that the trail is as long as that.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
\set columns 'command, statement_location AS location, statement_length AS length, text'
CREATE TABLE t (a int);
CREATE TABLE secret (a int);
CREATE ROLE regress_paq_nobody;
\set began :seen
SET pg_audit_queue.log = 'all';
:skip

--
-- Without what separates statements, and with semicolons that do not
--
SELECT 1 \; SELECT 2	\;\; SELECT 3;
:records
SELECT 'a;b' \; SELECT $x$ ; $x$ \; SELECT 1;
:records
-- The length is null if the part goes to the end.
SELECT 1 \; SELECT 2\g
:records
-- Many: nothing else of a record is as long as what was sent.
SELECT string_agg('SELECT ' || i, '\;' ORDER BY i) AS many,
	   string_agg('SELECT ' || i, ';' ORDER BY i) AS sent
  FROM generate_series(1, 2000) i \gset
\set in_place 'substr(:''sent'', statement_location + 1, statement_length) = command_text'
\set columns 'count(*), count(DISTINCT text) AS texts, count(*) FILTER (WHERE :in_place) AS in_place, max(length(r::text)) < 2000 AS short'
\set arranged ''
:skip
\o /dev/null
:many;
\o
:records
\set columns 'command, statement_location AS location, statement_length AS length, text'
\set arranged 'ORDER BY sequence'

--
-- What a statement executes in its turn has the statement's text, or its own: no record has
-- the text of two.
--
CREATE TABLE also (a int);
CREATE TABLE instead (a int);
CREATE TABLE done (a int);
INSERT INTO also VALUES (1);
INSERT INTO instead VALUES (1);
CREATE RULE r AS ON UPDATE TO also DO ALSO INSERT INTO done VALUES (new.a);
CREATE RULE r AS ON UPDATE TO instead DO INSTEAD INSERT INTO done VALUES (1);
\set columns 'class, command, statement_location AS location, statement_length AS length, text'
:skip
\o /dev/null
EXPLAIN (ANALYZE) SELECT 1 \; SELECT 2;
\o
:records
CREATE TABLE made AS SELECT 1 AS a \; SELECT 2;
:records
COPY (SELECT 1) TO STDOUT \; SELECT 2;
:records
BEGIN \; DECLARE c CURSOR FOR SELECT 1 \; FETCH c \; COMMIT;
:records
SET pg_audit_queue.log_level = debug1 \; SET work_mem = 128 \; RESET work_mem;
:records
PREPARE p AS SELECT 1 \; EXECUTE p \; DEALLOCATE p;
:records
CREATE MATERIALIZED VIEW mv AS SELECT 1 AS a \; REFRESH MATERIALIZED VIEW mv;
:records
CREATE SCHEMA s CREATE TABLE t (a int) CREATE VIEW v AS SELECT 1 AS a \; SELECT 2;
:records
DO $$ BEGIN PERFORM 1; END $$ \; SELECT 2;
:records
-- A rule's statements have the text of what they were made of.
SELECT 1 \; UPDATE also SET a = 2 \; UPDATE instead SET a = 3;
:records

--
-- Functions in SQL: each statement of the body; a rule in one with several statements has
-- the text of all.
--
CREATE FUNCTION f() RETURNS int LANGUAGE sql AS '
	UPDATE done SET a = 1;
	INSERT INTO done VALUES (2);
	DELETE FROM done;
	SELECT 4';
CREATE FUNCTION with_rule() RETURNS int LANGUAGE sql AS 'UPDATE also SET a = 1; SELECT 1';
SELECT format('CREATE FUNCTION long() RETURNS int LANGUAGE sql AS %L',
	string_agg('UPDATE done SET a = ' || i, ';') || '; SELECT 1') AS long
  FROM generate_series(1, 1000) i \gset
:long;
SET pg_audit_queue.log = 'read, write';
:skip
SELECT f();
:records
SET pg_audit_queue.log = 'write';
:skip
SELECT with_rule();
:records
\set columns 'count(*), count(DISTINCT text) AS texts, max(length(text)) AS longest, max(length(r::text)) < 2000 AS short'
\set arranged ''
SELECT long();
:records
\set arranged 'ORDER BY sequence'
-- Parameters are looked through for secrets in the part only.
CREATE FUNCTION g(text) RETURNS text LANGUAGE sql AS '
	SELECT $1;
	SELECT set_config(''my.password'', $1, true)';
SET pg_audit_queue.log = 'read';
SET pg_audit_queue.log_parameter = on;
\set columns 'text, parameters'
:skip
SELECT g('x');
:records
RESET pg_audit_queue.log_parameter;

--
-- Failures: one that is denied, and one in execution, have their part.  What fails before
-- it is executed has all that was sent.
--
SET pg_audit_queue.log = 'all';
\set columns 'class, command, code, text'
:skip
SELECT 1 \; SET ROLE regress_paq_nobody \; SELECT a FROM secret \; SELECT 4;
:records
SELECT 1 \; SELECT 1 / (relnatts - relnatts) FROM pg_class \; SELECT 4;
:records
SELECT 1 \; SELECT nothing \; SELECT 4;
:records

--
-- A secret is masked in its part; the place is that in what was sent.
--
\set columns 'statement_location AS location, statement_length AS length, text'
SELECT 1 \; ALTER ROLE regress_paq_nobody PASSWORD 'sesame' \; SELECT 3;
:records
SELECT word, count(record) > 0 AS found
  FROM unnest(ARRAY['PASS' || 'WORD', 'ses' || 'ame']) AS word
  LEFT JOIN (SELECT r::text AS record FROM audit_trail r WHERE sequence > :began) t
	ON position(word IN record) > 0
 GROUP BY word
 ORDER BY word;
:skip

--
-- The place is recorded without the text, too, and with a text that is there once.
--
\set columns 'object, statement_location AS location, text, command_text_omitted'
SET pg_audit_queue.log = 'read';
:skip
SET pg_audit_queue.log_statement = off;
SELECT 1 \; SELECT 2;
RESET pg_audit_queue.log_statement;
:records
SET pg_audit_queue.log_statement_once = on;
SET pg_audit_queue.log_relation = on;
:skip
SELECT a FROM secret s1 \; SELECT s1.a FROM secret s1, also s2;
:records

RESET pg_audit_queue.log_level;
RESET pg_audit_queue.log_relation;
RESET pg_audit_queue.log_statement_once;
SET pg_audit_queue.log = 'none';
SET client_min_messages = warning;
DROP SCHEMA s CASCADE;
DROP MATERIALIZED VIEW mv;
DROP FUNCTION f, with_rule, long, g;
DROP TABLE t, secret, also, instead, done, made;
DROP ROLE regress_paq_nobody;
DROP EXTENSION pg_audit_queue;
