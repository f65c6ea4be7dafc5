-- What PostgreSQL 17 has brought: statements and forms of them.

CREATE SCHEMA n17;
SET search_path = n17;
CREATE TABLE t (a int PRIMARY KEY, b text, c jsonb, d int GENERATED ALWAYS AS (a * 2) STORED);
GRANT SELECT ON t TO parity_auditor;
INSERT INTO t VALUES (1, 'one', '{"x": [1, 2]}'), (2, 'two', '{}');
SELECT x FROM t, JSON_TABLE(c, '$.x[*]' COLUMNS (x int PATH '$')) j;
SELECT JSON_VALUE(c, '$.x[0]' RETURNING int), JSON_QUERY(c, '$.x'), JSON_EXISTS(c, '$.x') FROM t;
SELECT JSON('{}'), JSON_SCALAR(1), JSON_SERIALIZE('{}');
ALTER TABLE t ALTER COLUMN d SET EXPRESSION AS (a * 3);
ALTER TABLE t ALTER COLUMN a SET STATISTICS DEFAULT;
CREATE TABLE p (a int GENERATED ALWAYS AS IDENTITY, b int, EXCLUDE USING btree (b WITH =)) PARTITION BY RANGE (b);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
ALTER TABLE p SET ACCESS METHOD heap;
ALTER TABLE p SET ACCESS METHOD DEFAULT;
INSERT INTO p (b) VALUES (1) RETURNING a;
COPY t (a, b) FROM STDIN (ON_ERROR ignore, LOG_VERBOSITY verbose);
x	not a number
7	seven
\.
COPY t (a, b) FROM STDIN (FORMAT csv, FORCE_NULL *, FORCE_NOT_NULL *);
8,""
\.
COPY t (a, b) FROM STDIN (ON_ERROR stop) /* fails 2 */;
x	not a number
\.
WITH m AS (MERGE INTO t USING (VALUES (1)) s (a) ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = 'x' RETURNING t.a)
	SELECT a FROM m;
WITH m AS (MERGE INTO t USING (VALUES (77)) s (a) ON t.a = s.a WHEN NOT MATCHED THEN INSERT VALUES (s.a) RETURNING t.a)
	UPDATE t SET b = 'merged' FROM m WHERE t.a = m.a;
EXPLAIN (ANALYZE, SERIALIZE, MEMORY, COSTS off, TIMING off, SUMMARY off) SELECT a FROM t;
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) INSERT INTO t VALUES (9) RETURNING *;
SET transaction_timeout = '1h';
RESET transaction_timeout;
CREATE COLLATION built_in (provider = builtin, locale = 'C.UTF-8');
SELECT b FROM t ORDER BY b COLLATE built_in;
CREATE DATABASE parity_n17 TEMPLATE template0 LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8' STRATEGY wal_log;
ALTER DATABASE parity_n17 REFRESH COLLATION VERSION;
DROP DATABASE parity_n17 WITH (FORCE);
CREATE FUNCTION eq(int, int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1 = $2';
CREATE OPERATOR === (FUNCTION = eq, LEFTARG = int, RIGHTARG = int);
ALTER OPERATOR === (int, int) SET (COMMUTATOR = OPERATOR(n17.===), MERGES, HASHES);
SELECT a FROM t WHERE a === 1;

-- An index that parallel workers build
SET min_parallel_table_scan_size = 0;
SET max_parallel_maintenance_workers = 2;
CREATE TABLE big AS SELECT g AS a, g % 10 AS b FROM generate_series(1, 20000) g;
CREATE INDEX brin ON big USING brin (a);
CREATE INDEX CONCURRENTLY on_big ON big (b);
REINDEX INDEX brin;
REINDEX TABLE big;
REINDEX (VERBOSE off) TABLE CONCURRENTLY big;
REINDEX SCHEMA n17;

-- MAINTAIN
CREATE ROLE parity_m1;
GRANT MAINTAIN ON t TO parity_m1;
GRANT SELECT, MAINTAIN ON ALL TABLES IN SCHEMA n17 TO parity_m1 WITH GRANT OPTION;
GRANT pg_maintain TO parity_m1;
GRANT USAGE ON SCHEMA n17 TO parity_m1;
ALTER DEFAULT PRIVILEGES IN SCHEMA n17 GRANT MAINTAIN ON TABLES TO parity_m1;
SET ROLE parity_m1;
VACUUM t;
ANALYZE t;
REINDEX TABLE t;
CLUSTER t USING t_pkey;
LOCK TABLE t IN SHARE MODE /* fails */;
RESET ROLE;
REVOKE MAINTAIN ON t FROM parity_m1;
DROP OWNED BY parity_m1 CASCADE;
DROP ROLE parity_m1;

-- Event triggers
CREATE FUNCTION at_login() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM 'logged in'; END $$;
CREATE EVENT TRIGGER parity_login ON login EXECUTE FUNCTION at_login();
ALTER EVENT TRIGGER parity_login ENABLE ALWAYS;
\c - :super
SET search_path = n17;
DROP EVENT TRIGGER parity_login;
CREATE SUBSCRIPTION parity_n17 CONNECTION 'dbname=nowhere' PUBLICATION p
	WITH (connect = false, slot_name = NONE, failover = true);
DROP SUBSCRIPTION parity_n17;
DROP SCHEMA n17 CASCADE;
