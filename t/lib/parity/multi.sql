-- Several statements in one string.

CREATE SCHEMA mul;
SET search_path = mul;
SELECT 1\; SELECT 2;
CREATE TABLE t (a int)\; INSERT INTO t VALUES (1)\; SELECT a FROM t\; DROP TABLE t;
BEGIN\; CREATE TABLE t (a int PRIMARY KEY)\; COMMIT;
INSERT INTO t VALUES (1)\; INSERT INTO t VALUES (2), (3)\; UPDATE t SET a = a + 10\; DELETE FROM t WHERE a > 12;
SELECT 3\; SELECT 1 / 0\; SELECT 4 /* fails */;
SELECT 5\; SELECT nothing\; SELECT 6 /* fails */;
SELECT 'a'\; SELECT 'b'\; COMMIT\; SELECT 'c';
INSERT INTO t VALUES (20)\; COMMIT\; INSERT INTO t VALUES (20) /* fails */;
BEGIN\; INSERT INTO t VALUES (30)\; SAVEPOINT s\; INSERT INTO t VALUES (31)\; ROLLBACK TO s\; COMMIT;
BEGIN\; INSERT INTO t VALUES (40)\; SELECT 1 / 0 /* fails */;
ROLLBACK\; SELECT 7;
SET work_mem = '1MB'\; SHOW work_mem\; RESET work_mem;
PREPARE p AS SELECT $1::int\; EXECUTE p (1)\; DEALLOCATE p;
DO $$ BEGIN PERFORM 1; PERFORM 2; END $$\; SELECT 8;
COPY t TO STDOUT\; SELECT 9;
CREATE ROLE parity_multi\; GRANT SELECT ON t TO parity_multi\; REVOKE ALL ON t FROM parity_multi\; DROP ROLE parity_multi;
SELECT 10\; ;
BEGIN\; DECLARE c CURSOR FOR SELECT a FROM t\; FETCH ALL FROM c\; COMMIT;
-- only a comment
/* a comment in front */ SELECT 11 /* in between */ AS x -- behind
;

-- Semicolons and comments in front of a statement.  Whether the place that
-- PostgreSQL says of a statement is behind them depends on the version.
\;\;SELECT 20;
\; \;  SELECT 21\;\;SELECT 22\; ;
/* in front */ \; -- of both
	SELECT 23;
\; /* behind a semicolon */ SELECT 24 ;
-- the first thing
/* the second */
	/* and /* nested */ */ SELECT 25;
/* a */\;/* b */\;/* c */INSERT INTO t VALUES (50)/* d */\;/* e */;
\;\;DO $$ BEGIN PERFORM 3; END $$;
\;CREATE TABLE t2 (a int)\;\;DROP TABLE t2\;;
\;\;SELECT 1 / 0 /* fails */;
\;/* explained */EXPLAIN (COSTS off) SELECT a FROM t;
\;CREATE TABLE t3 AS SELECT 1 AS a;
\;\;BEGIN\;\;DECLARE c CURSOR FOR SELECT a FROM t\;FETCH 1 FROM c\;COMMIT;
\;\;PREPARE p AS SELECT $1::int\;\;EXECUTE p (1)\;DEALLOCATE p;
\;;
DROP SCHEMA mul CASCADE;
