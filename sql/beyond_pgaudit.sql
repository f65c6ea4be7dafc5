--
-- Statements that pgaudit records badly or not at all: in object auditing TRUNCATE,
-- functions with their owner's rights, denied statements and MERGE; and statements that
-- log_catalog = off must not hide.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
\set columns 'audit_type, class, command, object, code'
CREATE ROLE regress_paq_auditor;
CREATE ROLE regress_paq_owner;
CREATE ROLE regress_paq_plain;
CREATE ROLE regress_paq_stranger;
CREATE TABLE secret (a int PRIMARY KEY);
INSERT INTO secret VALUES (1), (2);
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON secret TO regress_paq_auditor;
CREATE TABLE child (a int REFERENCES secret);
INSERT INTO child VALUES (2);
CREATE TABLE open (a int);
SET pg_audit_queue.role = 'regress_paq_auditor';

--
-- TRUNCATE of what the audit role may truncate
--
CREATE TABLE "Odd Name" (a int);
GRANT TRUNCATE ON "Odd Name" TO regress_paq_auditor;
TRUNCATE open;
:records
TRUNCATE "Odd Name", open;
:records
-- fails
TRUNCATE secret;
:records
SET client_min_messages = warning;
TRUNCATE secret CASCADE;
:records
-- a partition, by way of its parent
CREATE TABLE parent (a int) PARTITION BY LIST (a);
CREATE TABLE part PARTITION OF parent FOR VALUES IN (1);
GRANT TRUNCATE ON part TO regress_paq_auditor;
TRUNCATE parent;
:records
-- with session auditing
SET pg_audit_queue.log = 'write';
TRUNCATE "Odd Name", open;
:records
TRUNCATE open;
:records
-- whose class is not audited
SET pg_audit_queue.log = 'read';
:skip
TRUNCATE "Odd Name";
:records
SET pg_audit_queue.log = 'none';
SELECT count(*) FROM secret;
:skip

-- A denied one takes no statement id, one that works does.
\set columns 'audit_type, command, statement, object, code'
SET pg_audit_queue.log = 'write, misc';
:skip
SET ROLE regress_paq_stranger;
TRUNCATE secret;
RESET ROLE;
TRUNCATE "Odd Name";
TRUNCATE open;
:records
SET pg_audit_queue.log = 'none';
\set columns 'audit_type, class, command, object, code'

--
-- What a function with the rights of its owner does
--
CREATE FUNCTION add_secret(int) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	INSERT INTO open VALUES ($1);
	INSERT INTO secret VALUES ($1);
END $$;
CREATE FUNCTION truncate_secret() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	TRUNCATE secret CASCADE;
END $$;
SET SESSION AUTHORIZATION regress_paq_stranger;
SELECT add_secret(3);
RESET SESSION AUTHORIZATION;
:records
-- that fails; session auditing leaves it out
SET pg_audit_queue.log = 'read, write';
SET SESSION AUTHORIZATION regress_paq_stranger;
SELECT add_secret(3);
RESET SESSION AUTHORIZATION;
:records
SET pg_audit_queue.log = 'none';
:skip
SET SESSION AUTHORIZATION regress_paq_stranger;
SELECT truncate_secret();
RESET SESSION AUTHORIZATION;
:records
-- PostgreSQL's check of a foreign key is left out.
INSERT INTO secret VALUES (1);
GRANT INSERT ON child TO regress_paq_stranger;
:skip
SET SESSION AUTHORIZATION regress_paq_stranger;
INSERT INTO child VALUES (1);
RESET SESSION AUTHORIZATION;
:records

--
-- Denied access to what object auditing selects
--
SET SESSION AUTHORIZATION regress_paq_stranger;
SELECT * FROM secret;
DELETE FROM secret;
INSERT INTO open VALUES (1);
RESET SESSION AUTHORIZATION;
:records
-- and session auditing
SET pg_audit_queue.log = 'read';
SET SESSION AUTHORIZATION regress_paq_stranger;
SELECT * FROM secret JOIN open USING (a);
RESET SESSION AUTHORIZATION;
:records
-- in a function with the rights of its owner
SET pg_audit_queue.log = 'write';
CREATE TABLE nobodys (a int);
GRANT SELECT ON nobodys TO regress_paq_auditor;
CREATE FUNCTION look() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	RETURN (SELECT count(*) FROM nobodys);
END $$;
ALTER FUNCTION look() OWNER TO regress_paq_owner;
:skip
SET SESSION AUTHORIZATION regress_paq_stranger;
SELECT look();
RESET SESSION AUTHORIZATION;
:records

--
-- MERGE
--
MERGE INTO secret s USING open o ON s.a = o.a
	WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (o.a);
:records
RESET pg_audit_queue.role;
SET pg_audit_queue.log = 'read, write';
SET pg_audit_queue.log_relation = on;
:skip
MERGE INTO secret s USING open o ON s.a = o.a
	WHEN NOT MATCHED THEN INSERT VALUES (o.a);
:records
RESET pg_audit_queue.log_relation;

--
-- Materialized views
--
CREATE MATERIALIZED VIEW mv AS SELECT a FROM secret;
SET pg_audit_queue.role = 'regress_paq_auditor';
SET pg_audit_queue.log = 'read, ddl';
:skip
REFRESH MATERIALIZED VIEW mv;
:records
RESET pg_audit_queue.role;

--
-- The current user of DDL is who does it, not who owns the extension.
--
GRANT CREATE ON SCHEMA public TO regress_paq_plain;
SET pg_audit_queue.log = 'ddl';
\set columns 'current_user_name, command, object'
:skip
SET ROLE regress_paq_plain;
CREATE TABLE by_plain ();
DROP TABLE by_plain;
RESET ROLE;
:records
SET pg_audit_queue.log = 'none';
REVOKE CREATE ON SCHEMA public FROM regress_paq_plain;

--
-- log_catalog = off hides what only reads catalogs.  What that prints is not shown.
--
CREATE VIEW passwords AS SELECT rolname, rolpassword FROM pg_authid;
SET pg_audit_queue.log = 'read, write';
SET pg_audit_queue.log_catalog = off;
\set columns 'audit_type, class, command, code, text'
:skip
\o /dev/null
SELECT relname FROM pg_class LIMIT 1;
SELECT count(*) FROM pg_authid;
SELECT rolname FROM pg_roles;
SELECT usename, passwd FROM pg_user;
SELECT usename FROM pg_shadow;
SELECT relname FROM pg_class WHERE relname = 'none' FOR SHARE;
\o
:records
-- but not what changes them
UPDATE pg_class SET reltuples = reltuples WHERE relname = 'open';
DELETE FROM pg_description WHERE false;
INSERT INTO pg_description SELECT * FROM pg_description WHERE false;
COPY pg_description FROM '/dev/null';
:records
-- nor what reads secrets in them
\o /dev/null
SELECT rolpassword FROM pg_authid;
SELECT * FROM pg_authid;
SELECT pg_authid FROM pg_authid;
SELECT 1 FROM pg_authid WHERE rolpassword LIKE 'md5%';
SELECT passwd FROM pg_shadow;
SELECT s FROM pg_shadow s;
SELECT subconninfo FROM pg_subscription;
SELECT umoptions FROM pg_user_mapping;
SELECT umoptions FROM pg_user_mappings;
SELECT * FROM passwords;
COPY pg_authid TO STDOUT;
\o
:records
-- nor what is denied
SET SESSION AUTHORIZATION regress_paq_stranger;
SELECT rolpassword FROM pg_authid;
UPDATE pg_class SET relname = relname;
RESET SESSION AUTHORIZATION;
:records

RESET pg_audit_queue.log_catalog;
SET pg_audit_queue.log = 'none';
DROP FUNCTION add_secret, truncate_secret, look;
DROP VIEW passwords;
DROP MATERIALIZED VIEW mv;
DROP TABLE secret, child, open, "Odd Name", parent, nobodys;
DROP ROLE regress_paq_auditor, regress_paq_owner, regress_paq_plain, regress_paq_stranger;
DROP EXTENSION pg_audit_queue;
