--
-- The outcome in records: SQLSTATE and rows.  A statement has exactly one record, however
-- it ends.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
\set columns 'class, command, code, rows'
\set began :seen
CREATE TABLE t (a int PRIMARY KEY, b int CHECK (b <> 3));
INSERT INTO t SELECT i, 1000 - i FROM generate_series(1, 1000) i WHERE i <> 997;
CREATE TABLE c (a int);
CREATE ROLE regress_paq_plain;
SET pg_audit_queue.log = 'all';
:skip

--
-- Rows: what a statement has read, or changed
--
\o /dev/null
SELECT a FROM t;
\o
:records
SELECT a FROM t LIMIT 3;
:records
SELECT a FROM t WHERE false;
:records
INSERT INTO c SELECT generate_series(1, 5);
:records
INSERT INTO c VALUES (6), (7) RETURNING a;
:records
UPDATE c SET a = a WHERE a > 5;
:records
UPDATE c SET a = a WHERE a > 5 RETURNING a;
:records
DELETE FROM c WHERE a > 6;
:records
DELETE FROM c WHERE a > 3 RETURNING a;
:records
MERGE INTO c USING (VALUES (1), (2), (9)) v(x) ON a = x
	WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (x);
:records
-- what the statement returns counts, not what its parts do
WITH x AS (DELETE FROM c RETURNING a) SELECT a FROM x LIMIT 1;
:records
CREATE TABLE copy AS SELECT a FROM t LIMIT 10;
:records
COPY copy TO STDOUT;
:records
COPY (SELECT a FROM copy LIMIT 3) TO STDOUT;
:records
COPY c FROM STDIN;
1
2
\.
:records
INSERT INTO c VALUES (3) ON CONFLICT DO NOTHING;
:records
TRUNCATE c;
DROP TABLE copy;
:records

--
-- Errors
--
INSERT INTO t VALUES (1, 1);
:records
INSERT INTO t VALUES (5000, 3);
:records
UPDATE t SET a = NULL WHERE a = 1;
:records
-- in the middle of a scan
\o /dev/null
SELECT 1 / b FROM t ORDER BY a;
\o
:records
DELETE FROM t WHERE 1 / b > 0;
:records
CREATE FUNCTION fail(int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'no' USING ERRCODE = 'AB123';
END $$;
:skip
SELECT fail(1);
:records
COPY c FROM STDIN;
1
x
\.
:records
CREATE TABLE t (a int);
:records
DROP TABLE no_such_table;
:records
-- fails while it reads
ALTER TABLE t ADD CHECK (b > 10);
:records
VACUUM no_such_table;
:records
BEGIN;
VACUUM t;
ROLLBACK;
:records
SET work_mem = 'much';
:records
DO $$ BEGIN UPDATE t SET a = 1; END $$;
:records

--
-- Permissions
--
SET ROLE regress_paq_plain;
SELECT a FROM t;
INSERT INTO t VALUES (5000, 1);
UPDATE t SET a = 1;
DELETE FROM t;
MERGE INTO t USING (VALUES (1)) v(x) ON a = x WHEN MATCHED THEN DELETE;
COPY t TO STDOUT;
DROP TABLE t;
CREATE ROLE regress_paq_r;
TRUNCATE t;
RESET ROLE;
:records

-- with its class only
SET pg_audit_queue.log = 'read';
SET ROLE regress_paq_plain;
SELECT a FROM t;
SELECT 1;
RESET ROLE;
:records
SET pg_audit_queue.log = 'write';
SET ROLE regress_paq_plain;
SELECT a FROM t;
SELECT 1;
RESET ROLE;
:records

--
-- Exceptions that PL/pgSQL catches
--
CREATE FUNCTION caught() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		INSERT INTO t VALUES (1, 1);
	EXCEPTION WHEN unique_violation THEN
		UPDATE t SET b = b WHERE a = 1;
	END;
	RETURN 1;
END $$;
CREATE FUNCTION caught_inside() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	r int;
BEGIN
	SELECT fail(a) INTO r FROM t LIMIT 1;
	RETURN 1;
EXCEPTION WHEN OTHERS THEN
	RETURN 0;
END $$;
SET pg_audit_queue.log = 'all';
:skip
SELECT caught();
:records
SELECT caught_inside();
:records

--
-- Transactions
--
-- statements of an aborted transaction do not run
BEGIN;
SELECT 1;
SELECT 1 / (a - a) FROM t;
SELECT 2;
SAVEPOINT s;
ROLLBACK;
:records
-- what worked before a ROLLBACK did work
BEGIN;
INSERT INTO c VALUES (1);
ROLLBACK;
:records
-- an error undone by ROLLBACK TO
BEGIN;
SAVEPOINT s;
INSERT INTO t VALUES (1, 1);
ROLLBACK TO s;
INSERT INTO c VALUES (1);
COMMIT;
:records

-- A deferred constraint is checked by a query of its own, at the end of the transaction;
-- from PostgreSQL 19 on, if it refers to a partitioned table.  If that fails, so does the
-- statement that ends the transaction: a COMMIT, or a statement outside of a transaction
-- block.
CREATE TABLE parent (a int PRIMARY KEY) PARTITION BY LIST (a);
CREATE TABLE child (a int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
\set arranged 'ORDER BY class, command'
:skip
BEGIN;
INSERT INTO child VALUES (-1);
COMMIT;
:records
INSERT INTO child VALUES (-1);
:records
\set arranged 'ORDER BY sequence'
SELECT count(*) FROM child;
:skip

--
-- Cancelled
--
SET statement_timeout = '1s';
:skip
SELECT pg_sleep(600);
:records
DO $$ BEGIN PERFORM pg_sleep(600); END $$;
:records
RESET statement_timeout;

--
-- All of that without losing or inventing anything
--
SET pg_audit_queue.log = 'none';
SELECT audit_flush() > :began AS flushed;
SELECT count(*) FILTER (WHERE cut OR incomplete OR interrupted) AS lacking,
	   array_agg(session_line ORDER BY sequence) = array_agg(n ORDER BY n) AS numbered
  FROM (SELECT *, row_number() OVER (ORDER BY sequence) AS n
		  FROM audit_trail WHERE pid = :session AND sequence > :began) r;

DROP TABLE t, c, child, parent;
DROP FUNCTION fail, caught, caught_inside;
DROP ROLE regress_paq_plain;
DROP EXTENSION pg_audit_queue;
