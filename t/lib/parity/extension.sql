-- Extensions, whose scripts are not recorded.

CREATE SCHEMA ext;
SET search_path = ext;
CREATE EXTENSION pg_trgm;
CREATE EXTENSION IF NOT EXISTS pg_trgm;
CREATE EXTENSION pg_trgm /* fails */;
CREATE EXTENSION no_such_extension /* fails */;
SELECT similarity('a', 'b');
SELECT 'word' % 'ward';
CREATE SCHEMA ext2;
ALTER EXTENSION pg_trgm SET SCHEMA ext2;
ALTER EXTENSION pg_trgm UPDATE;
CREATE FUNCTION member() RETURNS int LANGUAGE sql AS 'SELECT 1';
ALTER EXTENSION pg_trgm ADD FUNCTION member();
ALTER EXTENSION pg_trgm DROP FUNCTION member();
COMMENT ON EXTENSION pg_trgm IS 'trigrams';
CREATE EXTENSION hstore VERSION '1.4';
ALTER EXTENSION hstore UPDATE TO '1.8';
CREATE EXTENSION earthdistance CASCADE;
SELECT 'a=>1'::hstore -> 'a';
CREATE EXTENSION pg_stat_statements /* may be missing */;
DROP EXTENSION pg_stat_statements;
DO $$ BEGIN CREATE EXTENSION citext; DROP EXTENSION citext; END $$;
DROP EXTENSION cube /* fails */;
DROP EXTENSION hstore, earthdistance, cube;
DROP EXTENSION pg_trgm;
DROP SCHEMA ext2 CASCADE;
DROP SCHEMA ext CASCADE;
