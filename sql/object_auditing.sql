--
-- Object auditing: the records that the grants of pg_audit_queue.role select.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
\set columns 'audit_type, class, command, object_type, object'
CREATE ROLE regress_paq_auditor;
CREATE ROLE regress_paq_auditors;
CREATE ROLE regress_paq_plain;
GRANT regress_paq_auditors TO regress_paq_auditor;
SET pg_audit_queue.log = 'none';
SET pg_audit_queue.role = 'regress_paq_auditor';

--
-- Tables: a privilege on one selects what needs it.
--
CREATE TABLE s (a int, b int);
GRANT SELECT ON s TO regress_paq_auditor;
SELECT a FROM s;
:records
SELECT count(*) FROM s;
:records
INSERT INTO s VALUES (1, 1);
:records
UPDATE s SET a = 2;
:records
UPDATE s SET a = b;
:records
DELETE FROM s;
:records

CREATE TABLE i (a int, b int);
GRANT INSERT ON i TO regress_paq_auditor;
SELECT a FROM i;
:records
INSERT INTO i VALUES (1, 1);
:records

CREATE TABLE u (a int, b int);
GRANT UPDATE ON u TO regress_paq_auditor;
SELECT a FROM u;
:records
UPDATE u SET a = 1;
:records
DELETE FROM u;
:records

CREATE TABLE d (a int, b int);
GRANT DELETE ON d TO regress_paq_auditor;
DELETE FROM d;
:records
INSERT INTO d VALUES (1, 1);
:records

-- COPY is a command of its own from PostgreSQL 19 on, as in pgaudit.
SELECT CASE WHEN current_setting('server_version_num')::int >= 190000 THEN 'COPY, COPY'
			ELSE 'SELECT, INSERT' END AS commands \gset
\set columns 'audit_type, class, object_type, object, string_agg(command, '', '') OVER () = :''commands'' AS as_expected'
COPY s TO STDOUT;
COPY i FROM PROGRAM 'true';
:records
\set columns 'audit_type, class, command, object_type, object'

-- several at once
INSERT INTO i SELECT s.a, s.b FROM s, u;
:records
WITH x AS (DELETE FROM d RETURNING a) SELECT x.a FROM x;
:records
MERGE INTO u USING s ON u.a = s.a WHEN MATCHED THEN UPDATE SET b = 1;
:records

--
-- Columns
--
CREATE TABLE cols (r int, w int, n int, x int);
GRANT SELECT (r), UPDATE (w), INSERT (n) ON cols TO regress_paq_auditor;
SELECT r FROM cols;
:records
SELECT x FROM cols;
:records
SELECT x FROM cols WHERE r = 1;
:records
SELECT * FROM cols;
:records
UPDATE cols SET w = 1;
:records
UPDATE cols SET x = 1;
:records
INSERT INTO cols (n) VALUES (1);
:records
INSERT INTO cols (x) VALUES (1);
:records
DELETE FROM cols;
:records

--
-- Which grants count
--
CREATE TABLE inherited (a int);
GRANT SELECT ON inherited TO regress_paq_auditors;
SELECT a FROM inherited;
:records
INSERT INTO inherited VALUES (1);
:records
-- not those to everybody, or to others
CREATE TABLE everybody (a int);
GRANT ALL ON everybody TO PUBLIC;
SELECT a FROM everybody;
INSERT INTO everybody VALUES (1);
:records
CREATE TABLE others (a int);
GRANT ALL ON others TO regress_paq_plain;
SELECT a FROM others;
:records
-- what the role may do as the owner is no grant
CREATE TABLE owned (a int);
ALTER TABLE owned OWNER TO regress_paq_auditor;
REVOKE ALL ON owned FROM regress_paq_auditor;
SELECT a FROM owned;
:records
CREATE VIEW v AS SELECT a FROM others;
GRANT SELECT ON v TO regress_paq_auditor;
SELECT a FROM v;
:records
CREATE TABLE part (a int) PARTITION BY LIST (a);
CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1);
GRANT SELECT ON part1 TO regress_paq_auditor;
SELECT a FROM part;
:records
SELECT a FROM part1;
:records
-- what has no privileges
SELECT 1;
CREATE TABLE n (a int);
DROP TABLE n;
:records

-- Membership without inheritance selects nothing.  Whether a role inherits is a matter of
-- the grant from PostgreSQL 16 on.
SELECT current_setting('server_version_num')::int >= 160000 AS from_16 \gset
\if :from_16
GRANT regress_paq_auditors TO regress_paq_auditor WITH INHERIT FALSE;
\else
ALTER ROLE regress_paq_auditor NOINHERIT;
\endif
SELECT a FROM inherited;
:records
\if :from_16
GRANT regress_paq_auditors TO regress_paq_auditor WITH INHERIT TRUE;
\else
ALTER ROLE regress_paq_auditor INHERIT;
\endif
SELECT a FROM inherited;
:records

--
-- Beside session auditing
--
SET pg_audit_queue.log = 'read, write';
:skip
SELECT a FROM s;
:records
SELECT a FROM others;
:records
INSERT INTO i SELECT a, b FROM s;
:records
SET pg_audit_queue.log_relation = on;
SELECT s.a FROM s, others;
:records
INSERT INTO i SELECT a, b FROM s;
:records
RESET pg_audit_queue.log_relation;
SET pg_audit_queue.log = 'write';
:skip
SELECT a FROM s;
:records
INSERT INTO i SELECT a, b FROM s;
:records

-- Ids, text, rows and outcome of OBJECT records are their statement's.
\set columns 'audit_type, command, object, statement, part, rows, code, text'
TRUNCATE s, i;
INSERT INTO s VALUES (1, 0), (2, 0);
SET pg_audit_queue.log = 'read';
:skip
INSERT INTO i SELECT a, b FROM s;
SELECT 1 / b FROM s;
SELECT a FROM others;
SELECT a FROM s;
:records
\set columns 'audit_type, object, text, command_text_omitted'
SET pg_audit_queue.log_statement_once = on;
SELECT a FROM s;
:records
RESET pg_audit_queue.log_statement_once;

--
-- Who runs the statement does not matter.
--
SET pg_audit_queue.log = 'none';
\set columns 'audit_type, object, current_user_name, text'
GRANT SELECT ON s TO regress_paq_plain;
SET ROLE regress_paq_plain;
SELECT a FROM s;
RESET ROLE;
REVOKE SELECT ON s FROM regress_paq_plain;
:records

--
-- Changes take effect at once.
--
\set columns 'audit_type, class, command, object_type, object'
SET pg_audit_queue.role = '';
SELECT a FROM s;
:records
SET pg_audit_queue.role = 'regress_paq_plain';
SELECT a FROM s;
:records
SELECT a FROM others;
:records
SET pg_audit_queue.role = 'regress_paq_later';
SELECT a FROM others;
:records
CREATE ROLE regress_paq_later;
GRANT SELECT ON others TO regress_paq_later;
SELECT a FROM others;
:records
REVOKE SELECT ON others FROM regress_paq_later;
SELECT a FROM others;
:records
GRANT SELECT (a) ON others TO regress_paq_later;
SELECT a FROM others;
:records
REVOKE SELECT (a) ON others FROM regress_paq_later;
GRANT regress_paq_auditors TO regress_paq_later;
SELECT a FROM inherited;
:records
REVOKE regress_paq_auditors FROM regress_paq_later;
SELECT a FROM inherited;
:records
GRANT SELECT ON inherited TO regress_paq_later;
ALTER ROLE regress_paq_later RENAME TO regress_paq_latest;
SELECT a FROM inherited;
:records
SET pg_audit_queue.role = 'regress_paq_latest';
SELECT a FROM inherited;
:records
SET pg_audit_queue.role = 'regress_paq_auditor';
SELECT a FROM inherited;
:records
SELECT a FROM s;
:records

RESET pg_audit_queue.role;
RESET pg_audit_queue.log;
DROP VIEW v;
DROP TABLE s, i, u, d, cols, inherited, everybody, others, owned, part;
DROP ROLE regress_paq_auditor, regress_paq_auditors, regress_paq_plain, regress_paq_latest;
DROP EXTENSION pg_audit_queue;
