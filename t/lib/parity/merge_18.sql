-- MERGE with what PostgreSQL 18 has added to it: old and new rows.

CREATE SCHEMA mer;
SET search_path = mer;
CREATE TABLE t (a int PRIMARY KEY, b text);
GRANT UPDATE (b) ON t TO parity_auditor;
INSERT INTO t VALUES (1, 'one');
MERGE INTO t USING (VALUES (1), (3)) s (a) ON t.a = s.a
	WHEN MATCHED THEN UPDATE SET b = 'merged'
	WHEN NOT MATCHED THEN INSERT VALUES (s.a, 'new')
	RETURNING WITH (OLD AS o, NEW AS n) merge_action(), o.b, n.b;
SELECT a, b FROM t;
DROP SCHEMA mer CASCADE;
