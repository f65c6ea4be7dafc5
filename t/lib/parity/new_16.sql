-- What PostgreSQL 16 has brought: statements and forms of them.

CREATE SCHEMA n16;
SET search_path = n16;
CREATE TABLE t (a int PRIMARY KEY, b text STORAGE EXTERNAL DEFAULT 'x', c jsonb);
GRANT SELECT ON t TO parity_auditor;
INSERT INTO t VALUES (0x1, 'one', '{}'), (1_000, 'thousand', '[]'), (0b11, 'three', '1');
SELECT a FROM t WHERE a = 0o3;
SELECT count(*) FROM (SELECT a FROM t);
SELECT c IS JSON OBJECT, JSON_ARRAY(a, b), JSON_OBJECT('a': a) FROM t;
SELECT JSON_OBJECTAGG(a: b), JSON_ARRAYAGG(a ORDER BY a), any_value(b) FROM t;
CREATE VIEW v AS SELECT a, b FROM t WHERE a IN (SELECT a FROM t);
SELECT * FROM v;
ALTER TABLE t ALTER COLUMN b SET STORAGE DEFAULT;
CREATE STATISTICS ON a, b FROM t;
COPY t (a, b) FROM STDIN (FORMAT csv, DEFAULT '\D');
7,\D
\.
COPY t FROM STDIN (FORMAT csv, DEFAULT 'x', HEADER) /* fails 3 */;
a,b
1
\.
EXPLAIN (GENERIC_PLAN, COSTS off) SELECT a FROM t WHERE a = $1;
EXPLAIN (GENERIC_PLAN, COSTS off) UPDATE t SET b = $1;
VACUUM (PROCESS_MAIN off, SKIP_DATABASE_STATS) t;
VACUUM (ONLY_DATABASE_STATS);
VACUUM (BUFFER_USAGE_LIMIT '1MB') t;
ANALYZE (BUFFER_USAGE_LIMIT '1MB') t;
REINDEX SYSTEM /* fails */ nothing;
CREATE INDEX brin ON t USING brin (a);
REINDEX INDEX CONCURRENTLY brin;
CREATE TABLE p (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
CREATE INDEX p_b ON ONLY p (b);
CREATE INDEX p1_b ON p1 (b);
ALTER INDEX p_b ATTACH PARTITION p1_b;
CREATE UNIQUE INDEX ON p (a) INCLUDE (b);
INSERT INTO p VALUES (1, 1);
SELECT b FROM p WHERE b = 1;

-- Membership with options
CREATE ROLE parity_n1;
CREATE ROLE parity_n2 CREATEROLE;
CREATE ROLE parity_n3;
GRANT parity_n1 TO parity_n2 WITH INHERIT FALSE, SET TRUE, ADMIN TRUE;
GRANT parity_n1 TO parity_n2 WITH ADMIN OPTION GRANTED BY CURRENT_USER;
REVOKE INHERIT OPTION FOR parity_n1 FROM parity_n2;
REVOKE SET OPTION FOR parity_n1 FROM parity_n2;
GRANT pg_create_subscription, pg_use_reserved_connections TO parity_n1;
SET ROLE parity_n2;
CREATE ROLE parity_n4;
GRANT parity_n4 TO parity_n3;
GRANT parity_n3 TO parity_n2 /* fails */;
ALTER ROLE parity_n4 CONNECTION LIMIT 3;
RESET ROLE;
GRANT SET, ALTER SYSTEM ON PARAMETER work_mem, n16.custom TO parity_n1;
REVOKE ALL ON PARAMETER work_mem, n16.custom FROM parity_n1;
DROP OWNED BY parity_n2;
DROP ROLE parity_n1, parity_n2, parity_n3, parity_n4;

-- What is granted to the auditor by way of what he is a member of
CREATE ROLE parity_n5;
CREATE TABLE inherited (a int);
GRANT SELECT ON inherited TO parity_n5;
SELECT 'not yet' FROM inherited;
GRANT parity_n5 TO parity_auditor;
SELECT a FROM inherited;
GRANT parity_n5 TO parity_auditor WITH INHERIT FALSE;
SELECT 'no longer' FROM inherited;
DROP OWNED BY parity_n5;
DROP ROLE parity_n5;
CREATE SUBSCRIPTION parity_n16 CONNECTION 'dbname=nowhere' PUBLICATION p
	WITH (connect = false, slot_name = NONE, password_required = false, run_as_owner = true, origin = none);
ALTER SUBSCRIPTION parity_n16 SET (password_required = true, streaming = parallel);
DROP SUBSCRIPTION parity_n16;
DROP SCHEMA n16 CASCADE;
