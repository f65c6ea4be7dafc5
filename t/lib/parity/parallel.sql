-- Parallel query.

CREATE SCHEMA parl;
SET search_path = parl;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
CREATE TABLE t (a int, b text);
INSERT INTO t SELECT g, repeat('x', 20) FROM generate_series(1, 20000) g;
ANALYZE t;
GRANT SELECT ON t TO parity_auditor;
CREATE FUNCTION safe(int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN RETURN $1; END $$;
CREATE FUNCTION queries(int) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS $$
	BEGIN RETURN (SELECT count(*) FROM generate_series(1, $1)); END $$;
SELECT count(*) FROM t;
SELECT sum(queries(a)) FROM t WHERE a % 5000 = 0;
-- The leader may have done all of that before a worker had started.
SET parallel_leader_participation = off;
SELECT sum(queries(a)) FROM t WHERE a % 5000 = 0;
RESET parallel_leader_participation;
SELECT count(*) FROM t WHERE b LIKE 'y%';
SELECT count(safe(a)) FROM t WHERE a < 10;
CREATE TABLE made AS SELECT a FROM t WHERE a % 100 = 0;
CREATE INDEX ON t (a);
SELECT * FROM (SELECT count(*) FROM t) x;
PREPARE p AS SELECT count(*) FROM t WHERE a > $1;
EXECUTE p (5);
VACUUM (PARALLEL 2) t;
SET max_parallel_workers_per_gather = 0;
SELECT count(*) FROM t;
DROP SCHEMA parl CASCADE;
