-- Prepared statements, and parameters.

CREATE SCHEMA prep;
SET search_path = prep;
CREATE TABLE t (a int, b text, c numeric, d date, e bytea, f text[], g jsonb);
GRANT INSERT ON t TO parity_auditor;
PREPARE ins (int, text) AS INSERT INTO t VALUES ($1, $2);
PREPARE sel AS SELECT a, b FROM t WHERE a = $1 AND b = $2;
PREPARE upd AS UPDATE t SET b = $1 WHERE a = $2;
PREPARE del (int) AS DELETE FROM t WHERE a = $1 RETURNING b;
PREPARE many (int, text, numeric, date, bytea, text[], jsonb) AS INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7);
PREPARE none AS SELECT 1;
PREPARE vals AS VALUES ($1::int, $2::text);
PREPARE wrong AS SELECT nothing FROM t /* fails */;
PREPARE sel AS SELECT 2 /* fails */;
EXECUTE ins (1, 'one');
EXECUTE ins (2, 'comma, "quoted" and
a second line');
EXECUTE ins (NULL, NULL);
EXECUTE ins (3, '');
EXECUTE ins (2 + 2, upper('four'));
EXECUTE ins ('five', 'x') /* fails */;
EXECUTE ins (1) /* fails */;
EXECUTE sel (1, 'one');
EXECUTE sel (NULL, '"');
EXECUTE upd (',', 1);
EXECUTE del (2);
EXECUTE many (1, 'text', 1.50, '2020-02-29', '\x00ff', '{a,"b,c",NULL}', '{"k": "v, w"}');
EXECUTE none;
EXECUTE vals (1, E'tab\tand\r return');
EXECUTE nothing /* fails */;
EXECUTE ins (9, repeat('long ', 100));
EXPLAIN (COSTS off) EXECUTE sel (1, 'x');
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) EXECUTE ins (7, 'explained');
CREATE TABLE by_execute AS EXECUTE sel (1, ',');
-- a generic plan from some time on
EXECUTE sel (1, 'a');
EXECUTE sel (2, 'b');
EXECUTE sel (3, 'c');
EXECUTE sel (4, 'd');
EXECUTE sel (5, 'e');
EXECUTE sel (6, 'f');
DROP TABLE by_execute;
ALTER TABLE t ADD COLUMN h int;
EXECUTE sel (7, 'replanned');
BEGIN;
EXECUTE ins (10, 'in a transaction');
SAVEPOINT s;
EXECUTE ins ((SELECT 1 / 0), 'x') /* fails */;
ROLLBACK TO s;
EXECUTE del (10);
COMMIT;
PREPARE util AS SELECT count(*) FROM pg_class WHERE relname = $1;
EXECUTE util ('t');
CREATE FUNCTION f(int, text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE r text;
	BEGIN
		INSERT INTO prep.t (a, b) VALUES ($1, $2);
		SELECT b INTO r FROM prep.t WHERE a = $1;
		EXECUTE 'SELECT $1 || $2' INTO r USING r, ', and more';
		RETURN r;
	END $$;
SELECT f(11, 'eleven');
SELECT f(12, NULL);
CREATE FUNCTION g(int, text) RETURNS bigint LANGUAGE sql AS
	'INSERT INTO prep.t (a, b) VALUES ($1, $2); SELECT count(*) FROM prep.t WHERE a = $1';
SELECT g(13, 'thirteen');
PREPARE fp (int, text) AS SELECT f($1, $2), g($1, $2);
EXECUTE fp (14, 'x,y');
DEALLOCATE none;
DEALLOCATE PREPARE upd;
DEALLOCATE nothing /* fails */;
DEALLOCATE ALL;
DROP SCHEMA prep CASCADE;
