-- Current users: security definer functions, row security, denied statements.

CREATE SCHEMA sec;
SET search_path = sec;
CREATE ROLE parity_owner;
CREATE ROLE parity_user LOGIN;
GRANT ALL ON SCHEMA sec TO parity_owner, parity_user;
CREATE TABLE t (a int, owner text);
ALTER TABLE t OWNER TO parity_owner;
CREATE TABLE secret (a int, b int);
CREATE TABLE open (a int, b int);
GRANT ALL ON open TO parity_user;
GRANT SELECT (a) ON secret TO parity_user;
GRANT SELECT, INSERT ON secret TO parity_auditor;
INSERT INTO t VALUES (1, 'parity_user'), (2, 'parity_owner');

-- Row security
GRANT ALL ON t TO parity_user;
ALTER TABLE t ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON t USING (owner = current_user) WITH CHECK (owner = current_user);
CREATE POLICY by_query ON t AS RESTRICTIVE FOR SELECT USING (a IN (SELECT 1 UNION SELECT a FROM sec.open) OR true);
SET ROLE parity_user;
SELECT * FROM t;
UPDATE t SET a = 3;
INSERT INTO t VALUES (4, 'parity_user');
INSERT INTO t VALUES (4, 'somebody') /* fails */;
DELETE FROM t WHERE a = 4;
SET row_security = off;
SELECT * FROM t /* fails */;
RESET row_security;

-- Denied
SELECT b FROM secret /* fails */;
SELECT a FROM secret;
INSERT INTO secret VALUES (1, 2) /* fails */;
UPDATE secret SET a = 1 /* fails */;
DELETE FROM secret /* fails */;
TRUNCATE secret /* fails */;
COPY secret TO STDOUT /* fails */;
COPY secret FROM STDIN /* fails */;
\.
LOCK TABLE secret /* fails */;
DROP TABLE secret /* fails */;
ALTER TABLE secret ADD COLUMN c int /* fails */;
CREATE INDEX ON secret (a) /* fails */;
CREATE ROLE parity_none /* fails */;
GRANT SELECT ON secret TO PUBLIC /* fails */;
VACUUM secret;
SELECT pg_read_file('PG_VERSION') /* fails */;
CREATE DATABASE parity_denied /* fails */;
SET log_statement = 'all' /* fails */;
ALTER SYSTEM SET work_mem = '1MB' /* fails */;
SELECT open.a, secret.b FROM open, secret /* fails */;
INSERT INTO open SELECT a, b FROM secret /* fails */;
RESET ROLE;

-- Security definer
CREATE FUNCTION definer() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN
		INSERT INTO sec.secret VALUES (1, 1);
		RETURN (SELECT count(*) FROM sec.secret);
	END $$;
CREATE FUNCTION invoker() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM sec.open';
CREATE FUNCTION definer_catalog() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN PERFORM 1; RETURN (SELECT count(*) FROM pg_catalog.pg_am); END $$;
SELECT invoker(), definer_catalog();
\c - parity_user
SET search_path = sec;
SELECT definer();
SELECT invoker();
SELECT definer_catalog();
SELECT * FROM secret /* fails */;
SELECT a FROM secret;
SELECT nothing FROM open /* fails */;
UPDATE open SET a = 1;
DO $$ BEGIN PERFORM sec.definer(); END $$;
DO $$ BEGIN PERFORM b /* caught */ FROM sec.secret; EXCEPTION WHEN insufficient_privilege THEN NULL; END $$;
CREATE TABLE mine (a int, b int REFERENCES mine, PRIMARY KEY (a));
INSERT INTO mine VALUES (1, 1), (2, 1);
DELETE FROM mine WHERE a = 2;
DROP TABLE mine;
\c - :super
SET search_path = sec;
DROP SCHEMA sec CASCADE;
DROP ROLE parity_owner;
DROP ROLE parity_user;
