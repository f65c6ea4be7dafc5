--
-- log_relation and statements other than SELECT, INSERT, UPDATE, DELETE and MERGE: the
-- record of the statement does not give way to those of relations that PostgreSQL asks for
-- on its behalf.  They have the ids that pgaudit would give.
--
-- From PostgreSQL 19 on, for which there is another file with records, that of COPY has
-- its relation, and a question about a new foreign key is no access.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
SELECT current_setting('server_version_num')::int >= 190000 AS from_19;

-- In this database the extension is not: data definition has only its statement's record.
CREATE ROLE regress_paq_plain;
CREATE DATABASE regress_paq TEMPLATE template0;
\set database :DBNAME
\c regress_paq
CREATE TABLE p (a int PRIMARY KEY);
CREATE TABLE f (a int);
CREATE TABLE t (a int, b int, c text);
INSERT INTO t VALUES (1, 2, 'three');
CREATE TABLE rls (a int);
ALTER TABLE rls ENABLE ROW LEVEL SECURITY;
CREATE POLICY pol ON rls USING (true);
GRANT SELECT ON rls TO regress_paq_plain;
CREATE TABLE parent (a int) PARTITION BY LIST (a);
ALTER TABLE parent ADD FOREIGN KEY (a) REFERENCES p;
CREATE TABLE child (a int);

-- Relations that are asked for at the same time are in one line, since their order depends
-- on PostgreSQL's version.  The query of a policy is another statement than its COPY.
SELECT $$
	ALTER TABLE f ADD CONSTRAINT fk FOREIGN KEY (a) REFERENCES p;
	SELECT 1;
	ALTER TABLE parent ATTACH PARTITION child FOR VALUES IN (1);
	SELECT 2;
	COPY t TO STDOUT;
	SELECT 3;
	COPY f FROM PROGRAM 'echo x';
	SELECT 4;
	SET SESSION AUTHORIZATION regress_paq_plain;
	COPY rls TO STDOUT;
	RESET SESSION AUTHORIZATION;
	SELECT 5;
$$ AS statements \gset
\set columns 'statement, part, class, command, count(*) AS records, string_agg(object, '', '' ORDER BY object) AS objects'
\set columns :columns ', code, left(text, 50) AS begins'
\set arranged 'GROUP BY statement, part, class, command, code, text ORDER BY min(sequence)'
SELECT pg_backend_pid() AS session \gset
SET pg_audit_queue.log_relation = on;
SET pg_audit_queue.log_rows = off;
SET pg_audit_queue.log = 'all, -set_role';
\o /dev/null
:statements
\o
SET pg_audit_queue.log = 'none';
ALTER TABLE f DROP CONSTRAINT fk;
ALTER TABLE parent DETACH PARTITION child;
ALTER TABLE child DROP CONSTRAINT IF EXISTS parent_a_fkey;
\c :database
:records

-- With log_rows pgaudit gives ids when a statement ends: that of a key's query comes first,
-- and a COPY that fails has none.
\c regress_paq
SELECT pg_backend_pid() AS session \gset
SET pg_audit_queue.log_relation = on;
SET pg_audit_queue.log_rows = on;
SET pg_audit_queue.log = 'all, -set_role';
\o /dev/null
:statements
\o
SET pg_audit_queue.log = 'none';
\c :database
:records

DROP DATABASE regress_paq;
DROP ROLE regress_paq_plain;
DROP EXTENSION pg_audit_queue;
