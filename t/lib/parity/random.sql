-- Random sessions: their objects, made before and dropped after them.

CREATE SCHEMA random;
SET search_path = random;
CREATE ROLE parity_random;
GRANT ALL ON SCHEMA random TO parity_random;
CREATE TABLE t (a int PRIMARY KEY, b text);
CREATE TABLE u (a int REFERENCES t DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE log (a int);
CREATE TABLE secret (a int);
CREATE VIEW v AS SELECT a, b FROM t WHERE a > 2;
INSERT INTO t SELECT g, 'text' FROM generate_series(1, 7) g;
GRANT SELECT ON t TO parity_random;
GRANT ALL ON u, v TO parity_random;
GRANT SELECT (a), UPDATE ON t TO parity_auditor;
GRANT INSERT ON u, log TO parity_auditor;
CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		RETURN (SELECT count(*) /* caught */ FROM random.t WHERE a < $1) + $1;
	END $$;
CREATE FUNCTION w(int) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO random.u VALUES ($1 /* caught */);
		BEGIN
			INSERT INTO random.t VALUES ($1, random.f($1)::text /* caught */);
		EXCEPTION WHEN unique_violation THEN
			UPDATE random.t SET b = 'again' /* caught */ WHERE a = $1;
		END;
		RETURN 'written';
	END $$;
CREATE FUNCTION d(int) RETURNS int LANGUAGE sql SECURITY DEFINER AS
	'INSERT INTO random.log VALUES ($1 /* caught */); SELECT 10 / ($1 - 5 /* caught */)';
CREATE PROCEDURE p(int) LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM random.w($1 /* caught */);
		CREATE TEMP TABLE temp /* caught */ (a int);
		DROP TABLE temp /* caught */;
	END $$;
CREATE PROCEDURE c(int) LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO random.t VALUES ($1, 'c' /* caught */);
		COMMIT;
		PERFORM 10 / ($1 - 5 /* caught */);
		ROLLBACK;
		DELETE FROM random.t /* caught */ WHERE a = $1;
	END $$;
CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO random.log VALUES (1 /* caught */);
		RETURN NULL;
	END $$;
CREATE TRIGGER log AFTER INSERT OR DELETE ON u FOR EACH ROW EXECUTE FUNCTION log();
-- random statements
ROLLBACK;
RESET ROLE;
CLOSE ALL;
DEALLOCATE ALL;
DROP SCHEMA random CASCADE;
DROP ROLE parity_random;
