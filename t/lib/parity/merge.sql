-- MERGE, which pgaudit 1.7 does not know.

CREATE SCHEMA mer;
SET search_path = mer;
CREATE TABLE t (a int PRIMARY KEY, b text);
CREATE TABLE s (a int, b text);
CREATE TABLE audited (a int, b text);
GRANT SELECT ON audited TO parity_auditor;
GRANT UPDATE (b) ON t TO parity_auditor;
INSERT INTO t VALUES (1, 'one'), (2, 'two');
INSERT INTO s VALUES (2, 'zwei'), (3, 'drei');
MERGE INTO t USING s ON t.a = s.a
	WHEN MATCHED THEN UPDATE SET b = s.b
	WHEN NOT MATCHED THEN INSERT VALUES (s.a, s.b);
MERGE INTO t USING (SELECT a FROM s WHERE a > 2) x ON t.a = x.a WHEN MATCHED THEN DELETE;
MERGE INTO t AS target USING audited ON target.a = audited.a WHEN NOT MATCHED THEN DO NOTHING;
MERGE INTO t USING s ON t.a = s.a WHEN MATCHED AND s.a = 2 THEN UPDATE SET b = 'x';
WITH x AS (SELECT 5 AS a) MERGE INTO t USING x ON t.a = x.a WHEN NOT MATCHED THEN INSERT VALUES (x.a, 'five');
MERGE INTO t USING (VALUES (1)) v (a) ON t.a = v.a WHEN MATCHED THEN UPDATE SET a = 2 /* fails */;
MERGE INTO t USING nothing ON true WHEN MATCHED THEN DELETE /* fails */;
PREPARE m AS MERGE INTO t USING s ON t.a = s.a AND s.a = $1 WHEN MATCHED THEN DELETE;
EXECUTE m (2);
DO $$ BEGIN MERGE INTO mer.t USING mer.s ON t.a = s.a WHEN MATCHED THEN UPDATE SET b = 'in DO'; END $$;
EXPLAIN (COSTS off) MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE;
SELECT a, b FROM t;
DROP SCHEMA mer CASCADE;
