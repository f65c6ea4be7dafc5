-- Statements that are neither queries nor DDL.

CREATE SCHEMA util;
SET search_path = util;
CREATE TABLE t (a int PRIMARY KEY, b text);
INSERT INTO t SELECT g, 'x' FROM generate_series(1, 20) g;

-- Settings
SET work_mem = '2MB';
SET SESSION statement_timeout TO '1min';
SET LOCAL work_mem = '3MB';
SET TIME ZONE 'UTC';
SET NAMES 'UTF8';
SET XML OPTION DOCUMENT;
SET SEED TO 0.5;
SET SCHEMA 'util';
SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE;
SET nothing.of_the_kind = 'x';
SET nothing = 'x' /* fails */;
SHOW work_mem;
SHOW ALL;
SHOW TIME ZONE;
SHOW nothing /* fails */;
RESET work_mem;
RESET ALL;
SET search_path = util;
SELECT set_config('work_mem', '4MB', false), current_setting('work_mem');
SELECT pg_reload_conf();
ALTER SYSTEM SET work_mem = '4MB';
ALTER SYSTEM RESET work_mem;
ALTER SYSTEM SET nothing = 1 /* fails */;

-- Maintenance
VACUUM t;
VACUUM (ANALYZE, VERBOSE off) t (a);
VACUUM FULL t;
ANALYZE t (a), t;
ANALYZE nothing /* fails */;
CLUSTER t USING t_pkey;
REINDEX TABLE t;
CHECKPOINT;
LOAD 'plpgsql';
LOCK TABLE t /* fails */;
BEGIN;
VACUUM t /* fails */;
ROLLBACK;

-- Transactions
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE;
SELECT a FROM t LIMIT 1;
INSERT INTO t VALUES (100) /* fails */;
SELECT 1 /* fails */;
ROLLBACK;
START TRANSACTION;
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
LOCK TABLE t IN ACCESS EXCLUSIVE MODE NOWAIT;
SAVEPOINT s1;
INSERT INTO t VALUES (101);
SAVEPOINT s2;
INSERT INTO t VALUES (101) /* fails */;
ROLLBACK TO SAVEPOINT s2;
RELEASE s1;
COMMIT AND CHAIN;
SELECT 2;
ROLLBACK AND NO CHAIN;
BEGIN;
END;
BEGIN;
SELECT nothing /* fails */;
SELECT 3 /* fails */;
SAVEPOINT x /* fails */;
COMMIT;
COMMIT;
ROLLBACK;
ABORT;
BEGIN;
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
COMMIT;
BEGIN;
INSERT INTO t VALUES (102);
PREPARE TRANSACTION 'parity util';
COMMIT PREPARED 'parity util';
BEGIN;
DELETE FROM t WHERE a = 102;
PREPARE TRANSACTION 'parity util';
ROLLBACK PREPARED 'parity util';
COMMIT PREPARED 'parity util' /* fails */;
SAVEPOINT outside /* fails */;

-- Messages
LISTEN parity;
NOTIFY parity;
NOTIFY parity, 'with, a payload';
SELECT pg_notify('parity', 'x');
UNLISTEN parity;
UNLISTEN *;

-- DO
DO $$ BEGIN NULL; END $$;
DO LANGUAGE plpgsql $$ BEGIN PERFORM a FROM util.t; INSERT INTO util.t VALUES (200); END $$;
DO $$ BEGIN RAISE EXCEPTION 'no'; END $$ /* fails */;
DO $$ syntax error $$ /* fails */;
DO $$ BEGIN EXECUTE 'CREATE TABLE util.in_do (a int)'; EXECUTE 'DROP TABLE util.in_do'; END $$;
DO $$ BEGIN SET LOCAL work_mem = '5MB'; PERFORM set_config('work_mem', '6MB', true); END $$;

-- Sessions
DISCARD PLANS;
DISCARD SEQUENCES;
DISCARD TEMP;
DISCARD ALL;
SET search_path = util;
SELECT pg_backend_pid() > 0, txid_current() > 0;
SELECT pg_advisory_lock(1), pg_advisory_unlock(1);
SELECT pg_sleep(0.001);
SELECT pg_cancel_backend(pg_backend_pid()) /* fails */;
BEGIN;
SET LOCAL statement_timeout = '2s';
SELECT pg_sleep(100) /* fails */;
ROLLBACK;
DROP SCHEMA util CASCADE;
