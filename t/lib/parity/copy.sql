-- COPY from and to everything.

CREATE SCHEMA cop;
SET search_path = cop;
CREATE TABLE t (a int, b text);
CREATE TABLE part (a int, b text) PARTITION BY LIST (a);
CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1, 2);
CREATE TABLE audited (a int, b text);
GRANT SELECT (a), INSERT ON audited TO parity_auditor;
CREATE FUNCTION trig() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN INSERT INTO cop.audited VALUES (NEW.a, 'by trigger'); RETURN NEW; END $$;
\set file :dir '/copy.out'

COPY t FROM STDIN;
1	one
2	two
\.
COPY t (a) FROM STDIN WITH (FORMAT csv, HEADER);
a
3
\.
COPY t FROM STDIN /* fails 2 */;
not a number	x
\.
COPY t TO STDOUT;
COPY t (b, a) TO STDOUT (FORMAT csv, DELIMITER ';', NULL '-');
COPY (SELECT a FROM t WHERE a > 1) TO STDOUT;
COPY (VALUES (1), (2)) TO STDOUT;
COPY (SELECT 1 / 0) TO STDOUT /* fails */;
COPY (INSERT INTO t VALUES (4, 'four') RETURNING a) TO STDOUT;
COPY (UPDATE t SET b = 'x' WHERE a = 4 RETURNING b) TO STDOUT;
COPY (DELETE FROM t WHERE a = 4 RETURNING *) TO STDOUT;
COPY (WITH x AS (SELECT a FROM t) SELECT * FROM x) TO STDOUT;
COPY t TO :'file';
COPY t FROM :'file';
COPY t FROM :'file' WHERE a = 1;
COPY t TO :'file' (FORMAT binary);
COPY t FROM :'file' (FORMAT binary);
COPY t TO PROGRAM 'cat > /dev/null';
COPY t (a) FROM PROGRAM 'echo 9';
COPY t FROM PROGRAM 'false' /* fails */;
COPY t FROM '/no/such/file' /* fails */;
COPY nothing FROM STDIN /* fails */;
\.
COPY nothing TO STDOUT /* fails */;
\copy t to :file
\copy t from :file
COPY part FROM STDIN;
1	x
2	y
\.
COPY part1 TO STDOUT;
COPY part TO STDOUT /* fails before 19 */;
COPY (SELECT * FROM part) TO STDOUT;
COPY audited TO STDOUT;
COPY audited (b) TO STDOUT;
COPY audited FROM PROGRAM 'true';
CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION trig();
COPY t FROM STDIN;
5	five
6	six
\.
COPY t (a) FROM PROGRAM 'echo 7; echo 8';
CREATE VIEW v AS SELECT a FROM t;
COPY v TO STDOUT /* fails */;
COPY (TABLE v) TO STDOUT;
COPY pg_catalog.pg_am TO STDOUT;
BEGIN;
COPY t TO STDOUT;
SAVEPOINT s;
COPY t FROM PROGRAM 'echo x' /* fails */;
ROLLBACK TO s;
COMMIT;
DROP SCHEMA cop CASCADE;
