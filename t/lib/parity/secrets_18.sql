-- Secrets in statements and options that PostgreSQL 16 to 18 have brought;
-- tOpSeCrEt stands for each of them.

CREATE SCHEMA secrets;
SET search_path = secrets;
CREATE SUBSCRIPTION parity_sub CONNECTION 'dbname=nowhere require_auth=none password=tOpSeCrEt' PUBLICATION p
	WITH (connect = false, slot_name = NONE, password_required = true, failover = false, two_phase = true);
ALTER SUBSCRIPTION parity_sub CONNECTION 'oauth_issuer=https://x oauth_client_id=x oauth_client_secret=tOpSeCrEt';
ALTER SUBSCRIPTION parity_sub CONNECTION 'sslnegotiation=direct scram_client_key=tOpSeCrEt scram_server_key=tOpSeCrEt';
ALTER SUBSCRIPTION parity_sub CONNECTION 'postgresql://x:tOpSeCrEt@nowhere/db?sslkeylogfile=x&min_protocol_version=3.2';
CREATE EXTENSION postgres_fdw;
CREATE SERVER parity_srv FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host 'nowhere', use_scram_passthrough 'true');
CREATE USER MAPPING FOR CURRENT_USER SERVER parity_srv
	OPTIONS (user 'x', password 'tOpSeCrEt', password_required 'false');
ALTER USER MAPPING FOR CURRENT_USER SERVER parity_srv OPTIONS (SET password 'tOpSeCrEt', ADD sslpassword 'tOpSeCrEt');
ALTER SERVER parity_srv OPTIONS (ADD oauth_client_secret 'tOpSeCrEt') /* fails */;
ALTER SYSTEM SET primary_conninfo = 'host=nowhere oauth_client_secret=tOpSeCrEt';
ALTER SYSTEM RESET primary_conninfo;
ALTER SYSTEM SET synchronized_standby_slots = 'x';
ALTER SYSTEM RESET synchronized_standby_slots;
CREATE ROLE parity_s1 PASSWORD 'tOpSeCrEt';
GRANT parity_s1 TO parity_auditors WITH SET TRUE\; ALTER ROLE parity_s1 PASSWORD 'tOpSeCrEt'\; SELECT 1;
EXPLAIN (GENERIC_PLAN) SELECT set_config('secrets.password', 'tOpSeCrEt', $1);
DROP EXTENSION postgres_fdw CASCADE;
DROP SUBSCRIPTION parity_sub;
DROP ROLE parity_s1;
DROP SCHEMA secrets CASCADE;
