--
-- Object auditing of columns: whoever reads a row as a whole reads all its columns.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
\set columns 'text, command, object'
CREATE ROLE regress_paq_auditor;
CREATE ROLE regress_paq_plain;
CREATE TABLE t (a int, b int, c text);
INSERT INTO t VALUES (1, 2, 'three');
CREATE TABLE heir () INHERITS (t);
CREATE TABLE f (a int);
CREATE TABLE u (a int PRIMARY KEY, b int);
CREATE VIEW v AS SELECT t AS r FROM t;
CREATE FUNCTION of(t) RETURNS int LANGUAGE sql RETURN 1;
GRANT ALL ON t, f, u, v TO regress_paq_plain;
GRANT SELECT (b) ON t TO regress_paq_auditor;
GRANT SELECT (b) ON u TO regress_paq_auditor;
SET pg_audit_queue.log = 'none';
SET pg_audit_queue.role = 'regress_paq_auditor';

-- These read column b of t, in their own way: each has its record.
SET ROLE regress_paq_plain;
\o /dev/null
SELECT t FROM t;
SELECT row_to_json(x) FROM t x;
SELECT t.* FROM t;
SELECT count(t) FROM t;
SELECT 1 FROM t WHERE t IS NOT NULL;
SELECT a FROM t ORDER BY t;
SELECT t::text FROM t;
SELECT of(t) FROM t;
SELECT t, ctid FROM t;
SELECT j FROM (t CROSS JOIN (SELECT 1) s) j;
TABLE t;
COPY (SELECT t FROM t) TO STDOUT;
SELECT r FROM v;
SELECT s FROM (SELECT * FROM t) s;
WITH w AS (SELECT t FROM t) SELECT 1 FROM w;
SELECT t FROM ONLY t;
SELECT t FROM t FOR SHARE;
DELETE FROM f USING t WHERE t IS NULL;
SELECT count(*) FROM t;
EXPLAIN SELECT t FROM t;
PREPARE q AS SELECT t FROM t;
EXECUTE q;
DO $$ BEGIN PERFORM t FROM t; END $$;
UPDATE t SET a = 1 RETURNING t;
INSERT INTO t VALUES (1) RETURNING t;
DELETE FROM t WHERE t IS NULL;
\o
RESET ROLE;
:records

-- ON CONFLICT reads it as INSERT.  From PostgreSQL 16 on there is a record for SELECT, too:
-- EXCLUDED is asked for, used or not, and no columns of it.
SELECT CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'INSERT, SELECT'
			ELSE 'INSERT' END AS commands \gset
\set columns 'text, object, string_agg(command, '', '' ORDER BY sequence) = :''commands'' AS as_expected'
\set arranged 'GROUP BY text, object'
SET ROLE regress_paq_plain;
INSERT INTO u VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1 WHERE u IS NOT NULL;
RESET ROLE;
:records
\set columns 'text, command, object'
\set arranged 'ORDER BY sequence'

-- These do not: they have none.
SET ROLE regress_paq_plain;
\o /dev/null
SELECT a FROM t;
SELECT ctid, tableoid FROM t;
SELECT x.* FROM (SELECT a FROM t) x;
INSERT INTO t VALUES (1);
UPDATE t SET b = 1;
UPDATE t SET a = 2 RETURNING a;
\o
RESET ROLE;
:records

-- of a row that two tables make
SET ROLE regress_paq_plain;
SELECT j FROM (u JOIN f USING (a)) j;
MERGE INTO f USING u ON u IS NULL WHEN MATCHED THEN DO NOTHING;
RESET ROLE;
:records

-- of a row that COPY reads: its command depends on PostgreSQL's version
\set columns 'text, object'
SET ROLE regress_paq_plain;
\o /dev/null
COPY t TO STDOUT;
\o
RESET ROLE;
:records
\set columns 'text, command, object'

-- a column that is dropped
CREATE TABLE dropped (x int, a int);
GRANT SELECT (a) ON dropped TO regress_paq_auditor;
ALTER TABLE dropped DROP COLUMN a;
SELECT dropped FROM dropped;
:records

-- the same where it is denied
\set columns 'text, command, object, code'
REVOKE ALL ON t FROM regress_paq_plain;
SET ROLE regress_paq_plain;
SELECT t FROM t;
SELECT a FROM t;
RESET ROLE;
:records

RESET pg_audit_queue.role;
DROP VIEW v;
DROP FUNCTION of;
DROP TABLE t, heir, f, u, dropped;
DROP ROLE regress_paq_auditor, regress_paq_plain;
DROP EXTENSION pg_audit_queue;
