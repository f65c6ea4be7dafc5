--
-- Failures: error messages in records, the class ERROR for statements that fail before
-- they are executed, and exactly one record for each failure.  A failure takes no id away
-- from statements that pgaudit numbers.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
\set columns 'class, command, statement, code, message'
CREATE TABLE t (a int PRIMARY KEY, b int);
INSERT INTO t SELECT i, i FROM generate_series(1, 10) i;
CREATE TABLE d (a int UNIQUE DEFERRABLE INITIALLY DEFERRED);
CREATE ROLE regress_paq_plain;
SET pg_audit_queue.log = 'all';
:skip

--
-- Before execution, in parsing, analysis and planning; with the text, the duration and
-- the user
--
\set columns 'class, command, statement, code, message, text'
\set columns :columns ', duration_us >= 0 AS timed, current_user_name = user_name AS user'
SELECT 1;
SELEC 1;
SELECT * FROM nothing;
SELECT no_such_column FROM t;
SELECT no_such_function();
SELECT 1 / 0;
SELECT 'x'::int;
EXECUTE nothing;
FETCH 1 FROM nothing;
SELECT 2;
:records
\set columns 'class, command, statement, code, message'

-- an aborted transaction
BEGIN;
SELECT * FROM nothing;
SELECT 1;
INSERT INTO t VALUES (11);
ROLLBACK;
SELECT 3;
:records
BEGIN;
SELECT nothing;
ROLLBACK TO nowhere;
ROLLBACK;
:records

-- a function that fails while the planner evaluates it
SET pg_audit_queue.log = 'none';
CREATE FUNCTION early(int) RETURNS bigint IMMUTABLE LANGUAGE sql AS
	'SELECT 1 / (count(*) - 1) FROM generate_series(1, $1)';
SET pg_audit_queue.log = 'all';
:skip
SELECT early(1);
:records

--
-- In execution, in the statement's own class
--
CREATE FUNCTION other_error() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	UPDATE t SET b = b / (b - b);
	RETURN 1;
EXCEPTION WHEN division_by_zero THEN
	RAISE division_by_zero USING MESSAGE = 'another division by zero';
END $$;
:skip
SELECT a / (a - 3) FROM t WHERE a >= 3 ORDER BY a;
INSERT INTO t VALUES (1);
CREATE TABLE t (a int);
DROP TABLE nothing;
SET datestyle = 'nonsense';
COPY t FROM '/nowhere';
DO $$ BEGIN RAISE 'in a block' USING ERRCODE = 'AB123'; END $$;
SELECT other_error();
SELECT 4;
:records

-- what is denied
SET ROLE regress_paq_plain;
SELECT * FROM t;
INSERT INTO t VALUES (12);
TRUNCATE t;
DROP TABLE t;
COPY t TO STDOUT;
RESET ROLE;
:records

-- in and before execution, one after the other
SELECT a / (a - 3) FROM t WHERE a >= 3 ORDER BY a;
SELECT nothing;
SELECT nobody;
INSERT INTO t VALUES (1);
SELECT 'x'::int;
:records

-- what a statement names that stores a setting is looked up before it is executed
ALTER ROLE regress_paq_gone SET pg_audit_queue.log = 'all';
:records
ALTER DATABASE regress_paq_gone SET pg_audit_queue.log = 'all';
:records

--
-- What cannot be shown is no error of the statement's: parameters of a type that has no
-- text, by themselves and in a row, besides such as have.  PL/pgSQL passes all variables,
-- and null for those not used.
--
SET pg_audit_queue.log = 'none';
CREATE TYPE pair AS (a int, b text);
CREATE FUNCTION look() RETURNS event_trigger LANGUAGE plpgsql AS $$
DECLARE
	r record; x bool; p pair := (1, 'two'); i int[] := '{3,4}';
BEGIN
	FOR r IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
		FOR x IN SELECT r.command IS NULL LOOP END LOOP;
		FOR x IN SELECT r IS NULL LOOP END LOOP;
		FOR x IN SELECT p IS NULL, i IS NULL LOOP END LOOP;
	END LOOP;
END $$;
CREATE EVENT TRIGGER look ON ddl_command_end EXECUTE FUNCTION look();
SET pg_audit_queue.log = 'read, ddl';
SET pg_audit_queue.log_parameter = on;
\set given '(SELECT jsonb_agg(p) FROM jsonb_array_elements(parameters) p WHERE p <> ''null'')'
\set columns 'command, code, text, :given AS parameters, incomplete'
:skip
CREATE TABLE shown (a int);
SELECT 1;
:records
RESET pg_audit_queue.log_parameter;
SET pg_audit_queue.log = 'none';
DROP EVENT TRIGGER look;
DROP FUNCTION look;
DROP TYPE pair;
DROP TABLE shown;

--
-- Handled errors
--
\set columns 'class, command, statement, code, message'
CREATE FUNCTION handled() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM no_such_column FROM t;
	EXCEPTION WHEN undefined_column THEN
	END;
	BEGIN
		EXECUTE 'SELEC';
	EXCEPTION WHEN syntax_error THEN
	END;
	BEGIN
		RAISE 'raised';
	EXCEPTION WHEN raise_exception THEN
	END;
	RETURN 1;
END $$;
SET pg_audit_queue.log = 'all';
:skip
-- none of them has executed anything
SELECT handled();
:records
-- up to a savepoint
BEGIN;
INSERT INTO t VALUES (20);
SAVEPOINT s;
INSERT INTO t VALUES (20);
ROLLBACK TO s;
COMMIT;
:records

--
-- Deep recursion: the error passes through many hooks, and all records have it.
--
CREATE FUNCTION down(n int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SELECT down(%s)', n + 1);
	RETURN 1;
END $$;
SET max_stack_depth = '1MB';
\set columns 'count(*) > 50 AS many, code, message'
\set arranged 'GROUP BY code, message'
:skip
SELECT down(1);
:records
RESET max_stack_depth;
\set arranged 'ORDER BY sequence'
\set columns 'class, command, statement, code, message'

--
-- The commit fails.
--
:skip
INSERT INTO d VALUES (1), (1);
:records
BEGIN;
INSERT INTO d VALUES (2), (2);
COMMIT;
:records

--
-- Which settings matter
--
SET pg_audit_queue.log = 'all, -error';
:skip
SELEC;
SELECT 1;
:records
-- class ERROR is not about what fails in execution
SET pg_audit_queue.log = 'error';
SELEC;
INSERT INTO t VALUES (1);
SELECT a / (a - 3) FROM t WHERE a >= 3 ORDER BY a;
:records
\set columns 'class, text, command_text_omitted'
SET pg_audit_queue.log_statement = off;
SELEC;
:records
RESET pg_audit_queue.log_statement;
\set columns 'class, command, statement, code, message'

-- Messages that do not reach the server's log hide no outcome.
SET pg_audit_queue.log = 'all';
SELECT $$
	BEGIN;
	DECLARE c CURSOR FOR SELECT a FROM t;
	INSERT INTO t VALUES (1);
	ROLLBACK;
	INSERT INTO d VALUES (7), (7);
	BEGIN;
	DECLARE c CURSOR FOR SELECT a FROM t;
	ROLLBACK;
$$ AS statements \gset
SET log_min_messages = 'panic';
:skip
:statements
:records
SET log_min_messages = 'log';
:skip
:statements
:records
-- Looking for an error leaves nothing behind: the session can be cancelled.
SET log_min_messages = 'fatal';
BEGIN;
SELECT 1;
ROLLBACK;
SET statement_timeout = '1s';
SELECT pg_sleep(600);
RESET statement_timeout;
:records
RESET log_min_messages;

SET pg_audit_queue.log = 'none';
DROP TABLE t, d;
DROP FUNCTION early, other_error, handled, down;
DROP ROLE regress_paq_plain;
DROP EXTENSION pg_audit_queue;
