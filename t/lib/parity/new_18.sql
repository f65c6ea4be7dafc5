-- What PostgreSQL 18 has brought: statements and forms of them.

CREATE SCHEMA n18;
SET search_path = n18;
CREATE TABLE t (a int PRIMARY KEY, b text, v int GENERATED ALWAYS AS (a * 2), w text GENERATED ALWAYS AS (b || '!') VIRTUAL);
GRANT SELECT ON t TO parity_auditor;
GRANT UPDATE (b) ON t TO parity_auditor;
INSERT INTO t VALUES (1, 'one'), (2, 'two') RETURNING old.a, new.a, new.v;
UPDATE t SET b = upper(b) WHERE a = 1 RETURNING old.b, new.b;
DELETE FROM t WHERE a = 2 RETURNING WITH (OLD AS gone) gone.*;
INSERT INTO t VALUES (1, 'again') ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING old.b, new.b;
SELECT v, w FROM t;
SELECT uuid_extract_version(uuidv7()), casefold('X'), array_reverse(ARRAY[1, 2]), crc32('x');

-- Locks of rows, in object auditing
CREATE TABLE lock_update (a int, b int);
CREATE TABLE lock_select (a int, b int);
CREATE TABLE lock_column (a int, b int);
GRANT UPDATE, DELETE, INSERT ON lock_update TO parity_auditor;
GRANT SELECT ON lock_select TO parity_auditor;
GRANT SELECT (a), UPDATE (b) ON lock_column TO parity_auditor;
SELECT * FROM lock_update FOR UPDATE;
SELECT a FROM lock_update FOR KEY SHARE;
SELECT 1 FROM lock_update FOR SHARE;
SELECT * FROM lock_select FOR UPDATE;
SELECT 1 FROM lock_select FOR NO KEY UPDATE SKIP LOCKED;
SELECT a FROM lock_column FOR UPDATE;
SELECT b FROM lock_column FOR UPDATE;
SELECT 1 FROM lock_column FOR SHARE;
SELECT u.a FROM lock_update u, lock_select s FOR UPDATE OF u;
UPDATE lock_update SET a = 1;

-- Constraints
ALTER TABLE t ADD CONSTRAINT has_b NOT NULL b NOT VALID;
ALTER TABLE t VALIDATE CONSTRAINT has_b;
ALTER TABLE t ALTER CONSTRAINT has_b NO INHERIT;
ALTER TABLE t ALTER CONSTRAINT has_b INHERIT;
ALTER TABLE t ADD CONSTRAINT positive CHECK (a > 0) NOT ENFORCED;
CREATE TABLE refers (a int, b int REFERENCES t NOT ENFORCED, CONSTRAINT fk FOREIGN KEY (a) REFERENCES t);
INSERT INTO refers VALUES (1, 99);
ALTER TABLE refers ALTER CONSTRAINT fk NOT ENFORCED;
ALTER TABLE refers ALTER CONSTRAINT fk ENFORCED;
ALTER TABLE refers ALTER CONSTRAINT refers_b_fkey ENFORCED /* fails */;
ALTER TABLE refers ALTER CONSTRAINT fk DEFERRABLE INITIALLY DEFERRED;
CREATE TABLE parts (a int) PARTITION BY RANGE (a);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
ALTER TABLE parts ADD CONSTRAINT part_fk FOREIGN KEY (a) REFERENCES t NOT VALID;
ALTER TABLE parts VALIDATE CONSTRAINT part_fk;
CREATE TABLE times (a int4range, during int4range, PRIMARY KEY (a, during WITHOUT OVERLAPS));
CREATE TABLE periods (a int4range, during int4range, FOREIGN KEY (a, PERIOD during) REFERENCES times (a, PERIOD during));
INSERT INTO times VALUES ('[1,2)', '[1,5)'), ('[1,2)', '[5,9)');
INSERT INTO times VALUES ('[1,2)', '[4,6)') /* fails */;
INSERT INTO periods VALUES ('[1,2)', '[2,7)');
INSERT INTO periods VALUES ('[1,2)', '[8,12)') /* fails */;
DELETE FROM times WHERE during = '[5,9)' /* fails */;

-- Commands with new options
CREATE MATERIALIZED VIEW mv AS SELECT a, b FROM t;
COPY mv TO STDOUT;
COPY t (a, b) FROM STDIN (ON_ERROR ignore, REJECT_LIMIT 1, LOG_VERBOSITY silent);
x	not a number
8	eight
\.
COPY t (a, b) FROM STDIN (ON_ERROR ignore, REJECT_LIMIT 1) /* fails 3 */;
x	not a number
y	neither
\.
VACUUM ONLY parts;
ANALYZE ONLY parts;
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off, BUFFERS off) SELECT a FROM t;
ALTER DEFAULT PRIVILEGES GRANT SELECT ON LARGE OBJECTS TO parity_auditor;
ALTER DEFAULT PRIVILEGES REVOKE SELECT ON LARGE OBJECTS FROM parity_auditor;
CREATE FOREIGN DATA WRAPPER parity_fdw18;
CREATE SERVER parity_srv18 FOREIGN DATA WRAPPER parity_fdw18;
CREATE FOREIGN TABLE ft (LIKE t) SERVER parity_srv18;
CREATE USER MAPPING FOR CURRENT_USER SERVER parity_srv18 OPTIONS (user 'x');
ALTER USER MAPPING FOR CURRENT_USER SERVER parity_srv18 OPTIONS (SET user 'y');
DROP USER MAPPING FOR CURRENT_USER SERVER parity_srv18;
DROP FOREIGN DATA WRAPPER parity_fdw18 CASCADE;
CREATE TABLE docs AS SELECT ARRAY[g, g % 7] AS words FROM generate_series(1, 20000) g;
SET min_parallel_table_scan_size = 0;
CREATE INDEX gin ON docs USING gin (words);
DROP SCHEMA n18 CASCADE;
