-- Secrets in the texts of statements; tOpSeCrEt stands for each of them.

CREATE SCHEMA secrets;
SET search_path = secrets;
CREATE ROLE parity_s1 PASSWORD 'tOpSeCrEt';
CREATE ROLE parity_s2 LOGIN ENCRYPTED PASSWORD 'tOpSeCrEt' VALID UNTIL 'infinity' CONNECTION LIMIT 3;
CREATE USER parity_s3 WITH password
	'tOpSeCrEt';
ALTER ROLE parity_s1 WITH PASSWORD 'tOpSeCrEt' NOLOGIN;
ALTER USER parity_s1 PASSWORD NULL;
ALTER ROLE parity_s1 NOLOGIN;
DO $$ BEGIN CREATE ROLE parity_s4 PASSWORD 'tOpSeCrEt'; END $$;
SELECT 1\; ALTER ROLE parity_s1 PASSWORD 'tOpSeCrEt';
CREATE SUBSCRIPTION parity_sub CONNECTION 'dbname=nowhere password=tOpSeCrEt' PUBLICATION p WITH (connect = false, slot_name = NONE);
ALTER SUBSCRIPTION parity_sub CONNECTION 'dbname=nowhere password=tOpSeCrEt user=x';
CREATE FOREIGN DATA WRAPPER parity_fdw;
CREATE SERVER parity_srv FOREIGN DATA WRAPPER parity_fdw;
CREATE USER MAPPING FOR CURRENT_USER SERVER parity_srv OPTIONS (user 'x', password 'tOpSeCrEt');
ALTER USER MAPPING FOR CURRENT_USER SERVER parity_srv OPTIONS (SET password 'tOpSeCrEt');
ALTER SYSTEM SET primary_conninfo = 'host=nowhere password=tOpSeCrEt';
ALTER SYSTEM RESET primary_conninfo;
CREATE ROLE parity_s1 /* fails */ PASSWORD 'tOpSeCrEt';
DROP FOREIGN DATA WRAPPER parity_fdw CASCADE;
DROP SUBSCRIPTION parity_sub;
DROP ROLE parity_s1, parity_s2, parity_s3, parity_s4;
DROP SCHEMA secrets CASCADE;
