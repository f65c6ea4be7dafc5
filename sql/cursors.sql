--
-- Statements whose execution does not end with the command that began it: cursors, and
-- procedures that end transactions.  A cursor's query has its record when it ends.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
\set columns 'class, command, code, rows, statement, part'
CREATE TABLE t (a int);
INSERT INTO t SELECT generate_series(1, 10);
CREATE TABLE log (a int);
SET pg_audit_queue.log = 'all';
:skip

--
-- Cursors
--
BEGIN;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH 2 FROM c;
FETCH ALL FROM c;
CLOSE c;
COMMIT;
:records
-- open at COMMIT
BEGIN;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH 2 FROM c;
SELECT 1;
COMMIT;
:records
-- open at ROLLBACK
BEGIN;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH 2 FROM c;
ROLLBACK;
SELECT 1;
:records
-- open when another statement fails
BEGIN;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH 2 FROM c;
SELECT 1 / (a - a) FROM t;
ROLLBACK;
SELECT 1;
:records
-- open when another statement fails in a subtransaction
BEGIN;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH 2 FROM c;
SAVEPOINT s;
SELECT nothing;
SELECT 1;
ROLLBACK;
:records
-- ended by a ROLLBACK TO after an error
BEGIN;
SAVEPOINT s;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH 2 FROM c;
SAVEPOINT s2;
SELECT nothing;
SELECT 1;
ROLLBACK TO s;
COMMIT;
:records
-- ended by a ROLLBACK TO
BEGIN;
SAVEPOINT s;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH 2 FROM c;
ROLLBACK TO s;
SELECT 1;
COMMIT;
:records
-- fails
BEGIN;
DECLARE c CURSOR FOR SELECT 1 / (a - 3) FROM t ORDER BY a;
FETCH 2 FROM c;
FETCH 2 FROM c;
ROLLBACK;
SELECT 1;
:records
-- WITH HOLD: COMMIT reads the cursor once more, from its start.
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t;
FETCH 2 FROM c;
COMMIT;
FETCH 3 FROM c;
CLOSE c;
:records
DECLARE d CURSOR WITH HOLD FOR SELECT a FROM t;
FETCH 1 FROM d;
CLOSE d;
:records

-- With log_rows pgaudit has no record of some queries of cursors: these take no ids.
\set columns 'statement, part, class, command, text'
SET pg_audit_queue.log_rows = on;
:skip
BEGIN;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH c;
COMMIT;
SELECT 1;
:records
BEGIN;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH c;
ROLLBACK;
SELECT 1;
:records
BEGIN;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH c;
CLOSE c;
SELECT 1;
COMMIT;
:records
BEGIN;
DECLARE c CURSOR FOR SELECT a FROM t;
FETCH c;
CLOSE ALL;
SELECT 1;
COMMIT;
:records
-- one that is held, and those of a block
DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t;
DO $$
DECLARE
	d CURSOR FOR SELECT 1;
	r int;
BEGIN
	OPEN d;
	FETCH d INTO r;
	CLOSE d;
	FOR r IN SELECT 2 LOOP
	END LOOP;
END $$;
FETCH c;
CLOSE c;
SELECT 1;
:records
RESET pg_audit_queue.log_rows;
\set columns 'class, command, code, rows, statement, part'

--
-- Cursors of PL/pgSQL
--
CREATE FUNCTION refcursor() RETURNS refcursor LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'rc';
BEGIN
	OPEN c FOR SELECT a FROM t;
	RETURN c;
END $$;
:skip
BEGIN;
SELECT refcursor();
FETCH 2 FROM rc;
FETCH 2 FROM rc;
CLOSE rc;
COMMIT;
:records
-- It fetches ten rows ahead.
CREATE FUNCTION loop() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n int := 0;
BEGIN
	FOR r IN SELECT a FROM t LOOP
		INSERT INTO log VALUES (r.a);
		n := n + 1;
		EXIT WHEN n = 3;
	END LOOP;
	RETURN n;
END $$;
:skip
SELECT loop();
SELECT 1;
:records

--
-- Procedures that end transactions
--
CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO log VALUES (1);
	COMMIT;
	INSERT INTO log VALUES (2);
	ROLLBACK;
	INSERT INTO log VALUES (3);
END $$;
:skip
CALL commits();
SELECT 1;
:records
-- in a FOR loop
CREATE PROCEDURE commits_in_loop() LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT a FROM t WHERE a <= 2 LOOP
		INSERT INTO log VALUES (r.a);
		COMMIT;
	END LOOP;
END $$;
:skip
CALL commits_in_loop();
SELECT 1;
:records
-- fails after COMMIT
CREATE PROCEDURE commits_and_fails() LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO log VALUES (1);
	COMMIT;
	INSERT INTO log SELECT 1 / (a - a) FROM t;
END $$;
:skip
CALL commits_and_fails();
SELECT 1;
:records

SET pg_audit_queue.log = 'none';
DROP FUNCTION refcursor, loop;
DROP PROCEDURE commits, commits_in_loop, commits_and_fails;
DROP TABLE t, log;
DROP EXTENSION pg_audit_queue;
