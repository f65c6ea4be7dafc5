-- Functions and procedures that run statements.

CREATE SCHEMA pl;
SET search_path = pl;
CREATE TABLE t (a int PRIMARY KEY, b text);
CREATE TABLE log (a int, b text);
GRANT INSERT ON log TO parity_auditor;
CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION twice(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN $1 * 2; END $$;
CREATE FUNCTION writes(int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO pl.t VALUES ($1, 'written' /* caught */);
		UPDATE pl.t SET b = b || '!' WHERE a = $1;
		PERFORM count(*) FROM pl.t;
		DELETE FROM pl.t WHERE a < $1;
	END $$;
CREATE FUNCTION catches(int) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO pl.log VALUES ($1, 'before');
		BEGIN
			INSERT INTO pl.t VALUES (1, 'first');
			INSERT INTO pl.t VALUES (1, 'duplicate') /* caught */;
			RETURN 'not reached';
		EXCEPTION WHEN unique_violation THEN
			INSERT INTO pl.log VALUES ($1, 'in handler');
		END;
		BEGIN
			PERFORM 1 / ($1 - $1) /* caught */;
		EXCEPTION WHEN OTHERS THEN
			NULL;
		END;
		RETURN 'done';
	END $$;
CREATE FUNCTION dynamic(text) RETURNS int LANGUAGE plpgsql AS $$
	DECLARE n int;
	BEGIN
		EXECUTE 'CREATE TABLE pl.' || quote_ident($1) || ' (a int /* caught */)';
		EXECUTE format('INSERT INTO pl.%I SELECT generate_series(1, 3)', $1);
		EXECUTE format('SELECT count(*) FROM pl.%I WHERE a > $1', $1) INTO n USING 1;
		EXECUTE format('DROP TABLE pl.%I', $1);
		RETURN n;
	END $$;
CREATE FUNCTION loops() RETURNS SETOF int LANGUAGE plpgsql AS $$
	DECLARE r record;
	BEGIN
		FOR r IN SELECT a FROM pl.log LOOP
			PERFORM pl.twice(r.a);
			RETURN NEXT r.a;
		END LOOP;
		RETURN QUERY SELECT a FROM pl.log;
	END $$;
CREATE FUNCTION deep(n int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		IF n = 0 THEN RETURN (SELECT count(*) FROM pl.t); END IF;
		RETURN (SELECT pl.deep(n - 1)) + 1;
	END $$;
CREATE FUNCTION sql_writes(int) RETURNS bigint LANGUAGE sql AS
	'INSERT INTO pl.log VALUES ($1, ''by SQL''); SELECT count(*) FROM pl.log';
CREATE FUNCTION inlined(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1';
CREATE FUNCTION set_of() RETURNS SETOF pl.t LANGUAGE sql STABLE AS 'SELECT * FROM pl.t';
CREATE FUNCTION with_set() RETURNS int LANGUAGE plpgsql SET work_mem = '1MB' AS $$ BEGIN RETURN 1; END $$;
CREATE FUNCTION fails() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;

SELECT one();
SELECT one(), twice(2), twice(one());
SELECT twice(a) FROM t;
SELECT * FROM generate_series(1, 3) g WHERE twice(g) > 2;
SELECT writes(5);
SELECT writes(6), writes(7);
SELECT writes(7) /* fails */;
SELECT catches(1);
SELECT dynamic('dyn');
SELECT dynamic('t') /* fails */;
SELECT * FROM loops();
SELECT deep(3);
SELECT sql_writes(1);
SELECT sql_writes(a) FROM log;
SELECT inlined(1), inlined(a) FROM t;
SELECT * FROM set_of();
SELECT with_set();
SELECT fails() /* fails */;
INSERT INTO t SELECT twice(20), 'by function';
UPDATE t SET b = twice(a)::text;
DELETE FROM t WHERE twice(a) = 80;
INSERT INTO t (a) VALUES (twice(30)) RETURNING twice(a);
CREATE TABLE by_function AS SELECT twice(g) FROM generate_series(1, 2) g;
CREATE INDEX ON t (inlined(a));
CREATE TABLE with_default (a int DEFAULT twice(1), CHECK (twice(a) < 100));
INSERT INTO with_default DEFAULT VALUES;
INSERT INTO with_default VALUES (100) /* fails */;
SELECT ARRAY(SELECT twice(g) FROM generate_series(1, 3) g);
SELECT lower('X'), length('abc'), abs(-1);

-- Procedures and transactions
CREATE PROCEDURE proc(int) LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO pl.log VALUES ($1, 'by procedure');
	END $$;
CREATE PROCEDURE sql_proc(int) LANGUAGE sql AS 'INSERT INTO pl.log VALUES ($1, ''x''); DELETE FROM pl.log WHERE a = $1';
CREATE PROCEDURE out_proc(IN x int, OUT y int) LANGUAGE plpgsql AS $$ BEGIN y := pl.twice(x); END $$;
CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO pl.log VALUES (1, 'first');
		COMMIT;
		INSERT INTO pl.log VALUES (2, 'second');
		ROLLBACK;
		INSERT INTO pl.log VALUES (3, 'third');
		CALL pl.proc(4);
	END $$;
CREATE PROCEDURE commits_in_loop() LANGUAGE plpgsql AS $$
	DECLARE r record;
	BEGIN
		FOR r IN SELECT a FROM pl.t ORDER BY a LIMIT 3 LOOP
			INSERT INTO pl.log VALUES (r.a, 'in loop');
			COMMIT;
		END LOOP;
	END $$;
CREATE PROCEDURE fails_late() LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO pl.log VALUES (1, 'committed');
		COMMIT;
		INSERT INTO pl.log SELECT 1 / (a - a) FROM pl.log /* caught */;
	END $$;
CALL proc(1);
CALL sql_proc(2);
CALL out_proc(3, NULL);
CALL commits();
CALL commits_in_loop();
CALL fails_late() /* fails */;
CALL nothing() /* fails */;
BEGIN;
CALL proc(5);
CALL commits() /* fails */;
ROLLBACK;
DO $$ BEGIN CALL pl.proc(6); PERFORM pl.one(); END $$;
DO $$
	BEGIN
		INSERT INTO pl.log VALUES (7, 'in DO');
		COMMIT;
		INSERT INTO pl.log VALUES (8, 'in DO');
		ROLLBACK;
	END $$;
DO $$
	DECLARE x int;
	BEGIN
		BEGIN
			x := 1 / 0;
		EXCEPTION WHEN division_by_zero THEN
			CREATE TABLE pl.in_handler (a int);
			DROP TABLE pl.in_handler;
		END;
		GRANT SELECT ON pl.t TO PUBLIC;
		CREATE ROLE parity_in_do;
		DROP ROLE parity_in_do;
		TRUNCATE pl.log;
		ANALYZE pl.t;
		SET LOCAL work_mem = '1MB';
		LOCK TABLE pl.t;
	END $$;
SELECT nothing() /* fails */;
DROP SCHEMA pl CASCADE;
