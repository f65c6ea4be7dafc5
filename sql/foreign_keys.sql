--
-- Foreign keys.  PostgreSQL checks them, and does what they ask for, with the rights of
-- the owner of a table.  Where the session has not these rights, that leaves no record:
-- it is part of the statement that has changed a table.  Where it has them, there is a
-- record of each query that PostgreSQL executes.  Up to 18 that is one for each row; from
-- 19 on rows are mostly checked without a query.
--
\set ECHO none
\getenv tests PG_ABS_SRCDIR
\set file :tests /sql/records.psql
\i :file
\set ECHO all
\set columns 'audit_type, class, command, object, code, text'
\set began :seen
CREATE ROLE regress_paq_auditor;
CREATE ROLE regress_paq_owner;
CREATE ROLE regress_paq_referrer;
CREATE ROLE regress_paq_app;
GRANT CREATE ON SCHEMA public TO regress_paq_owner, regress_paq_referrer;

SET ROLE regress_paq_owner;
CREATE TABLE p (id int PRIMARY KEY);
CREATE TABLE p2 (a int, b int, PRIMARY KEY (a, b));
CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE part PARTITION OF parted DEFAULT;
INSERT INTO p SELECT generate_series(0, 300);
INSERT INTO p2 SELECT i, i FROM generate_series(0, 300) i;
INSERT INTO parted SELECT generate_series(0, 300);
GRANT REFERENCES ON p, p2, parted TO regress_paq_referrer;
GRANT DELETE, UPDATE, SELECT ON p TO regress_paq_app;

SET ROLE regress_paq_referrer;
CREATE TABLE f (id int REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE f2 (a int, b int, FOREIGN KEY (a, b) REFERENCES p2);
CREATE TABLE f_parted (id int REFERENCES parted);
CREATE TABLE f_late (id int REFERENCES p DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE f_more AS SELECT generate_series(0, 100) id;
GRANT ALL ON f, f2, f_parted, f_late TO regress_paq_app;
RESET ROLE;
GRANT SELECT, INSERT, UPDATE, DELETE ON p, p2, parted, f_more TO regress_paq_auditor;

-- ":anew" begins another session.  Who is the current user has no record on this page.
\c -reuse-previous=on "options='-c pg_audit_queue.role=regress_paq_auditor -c pg_audit_queue.log=all,-set_role,-connect'"
\set anew '\\c \\\\ SELECT pg_backend_pid() AS session \\gset \\\\ :skip'
:anew

--
-- Somebody who has no rights on the table that is referred to: the statement that has
-- changed the other one, or the COMMIT that checks a deferred key, and nothing else
--
SELECT $$
	INSERT INTO f VALUES (1);
	INSERT INTO f SELECT generate_series(1, 200);
	INSERT INTO f2 SELECT i, i FROM generate_series(1, 200) i;
	INSERT INTO f_parted SELECT generate_series(1, 3);
	UPDATE f SET id = 2;
	INSERT INTO f VALUES (-1);
	BEGIN;
	INSERT INTO f_late VALUES (-1), (1);
	COMMIT;
	INSERT INTO f_late VALUES (1);
$$ AS changes \gset
:skip
SET SESSION AUTHORIZATION regress_paq_app;
:changes
COPY f FROM STDIN;
1
2
\.
RESET SESSION AUTHORIZATION;
:records

-- With log_relation it is the same.  That of COPY has its relation from PostgreSQL 19 on,
-- as in pgaudit; before, there is a record of the relation, too.
SET pg_audit_queue.log_relation = on;
:skip
SET SESSION AUTHORIZATION regress_paq_app;
:changes
RESET SESSION AUTHORIZATION;
:records
SELECT current_setting('server_version_num')::int >= 190000 AS from_19 \gset
SELECT CASE WHEN :'from_19' THEN 'COPY public.f' ELSE 'INSERT public.f, COPY' END AS copied \gset
\set columns 'string_agg(concat_ws('' '', command, object), '', '' ORDER BY sequence) = :''copied'' AS as_expected'
\set arranged ''
:skip
SET SESSION AUTHORIZATION regress_paq_app;
COPY f FROM STDIN;
1
2
\.
RESET SESSION AUTHORIZATION;
:records
\set columns 'audit_type, class, command, object, code, text'
\set arranged 'ORDER BY sequence'
RESET pg_audit_queue.log_relation;

--
-- What a key asks for, ON DELETE and ON UPDATE: the statement that it happens in
--
INSERT INTO f VALUES (297), (298);
:skip
SET SESSION AUTHORIZATION regress_paq_app;
DELETE FROM p WHERE id = 298;
UPDATE p SET id = 1000 WHERE id = 297;
RESET SESSION AUTHORIZATION;
:records
SELECT id FROM f WHERE id > 200;

--
-- A new key, for which the rows that are there are looked at one by one, because its
-- owner may not read the other table
--
:skip
SET SESSION AUTHORIZATION regress_paq_referrer;
ALTER TABLE f_more ADD FOREIGN KEY (id) REFERENCES p NOT VALID;
ALTER TABLE f_more VALIDATE CONSTRAINT f_more_id_fkey;
RESET SESSION AUTHORIZATION;
:records

--
-- Somebody who has the rights: a record of each query, and one for object auditing.  A
-- table that is partitioned is asked for each row.
--
INSERT INTO f_parted SELECT generate_series(10, 12);
:records
-- Others are not asked from PostgreSQL 19 on: "queries" says whether there are as many
-- records of each kind as there are queries, "others" how many other records of reading.
\set columns 'string_agg(text, ''; '' ORDER BY sequence) FILTER (WHERE class <> ''READ'') AS text'
\set query 'class = ''READ'' AND text ~ ''^SELECT 1 FROM .* FOR KEY SHARE OF x$'''
\set columns :columns ', count(*) FILTER (WHERE :query AND audit_type = ''SESSION'' AND object IS NULL) = :queries AS queries'
\set columns :columns ', count(*) FILTER (WHERE :query AND audit_type = ''OBJECT'' AND object = :''object'') = :queries AS objects'
\set columns :columns ', count(*) FILTER (WHERE class = ''READ'' AND NOT (:query)) AS others'
\set arranged ''
SELECT CASE WHEN :'from_19' THEN 0 ELSE 10 END AS queries \gset
\set object public.p
:skip
INSERT INTO f SELECT generate_series(10, 19);
:records
BEGIN;
INSERT INTO f_late SELECT generate_series(10, 19);
COMMIT;
:records
COPY f FROM STDIN;
10
11
12
13
14
15
16
17
18
19
\.
:records
\set object public.p2
INSERT INTO f2 SELECT i, i FROM generate_series(10, 19) i;
:records
\set columns 'audit_type, class, command, object, code, text'
\set arranged 'ORDER BY sequence'

--
-- Somebody who has no rights, where functions in C compare what is referred to: each call
-- of these can have a record of class FUNCTION, which is not shown, and nothing else has.
--
SET client_min_messages = warning;
CREATE TYPE number;
CREATE FUNCTION number_in(cstring) RETURNS number LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
CREATE FUNCTION number_out(number) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int4out';
CREATE TYPE number (INPUT = number_in, OUTPUT = number_out, LIKE = int4);
CREATE FUNCTION lt(number, number) RETURNS bool LANGUAGE internal IMMUTABLE STRICT AS 'int4lt';
CREATE FUNCTION le(number, number) RETURNS bool LANGUAGE internal IMMUTABLE STRICT AS 'int4le';
CREATE FUNCTION eq(number, number) RETURNS bool LANGUAGE internal IMMUTABLE STRICT AS 'int4eq';
CREATE FUNCTION ge(number, number) RETURNS bool LANGUAGE internal IMMUTABLE STRICT AS 'int4ge';
CREATE FUNCTION gt(number, number) RETURNS bool LANGUAGE internal IMMUTABLE STRICT AS 'int4gt';
CREATE FUNCTION cmp(number, number) RETURNS int LANGUAGE internal IMMUTABLE STRICT AS 'btint4cmp';
CREATE OPERATOR < (LEFTARG = number, RIGHTARG = number, FUNCTION = lt);
CREATE OPERATOR <= (LEFTARG = number, RIGHTARG = number, FUNCTION = le);
CREATE OPERATOR = (LEFTARG = number, RIGHTARG = number, FUNCTION = eq);
CREATE OPERATOR >= (LEFTARG = number, RIGHTARG = number, FUNCTION = ge);
CREATE OPERATOR > (LEFTARG = number, RIGHTARG = number, FUNCTION = gt);
CREATE OPERATOR CLASS number_ops DEFAULT FOR TYPE number USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 cmp(number, number);
SET ROLE regress_paq_owner;
CREATE TABLE p_number (id number PRIMARY KEY);
INSERT INTO p_number VALUES ('1');
GRANT REFERENCES ON p_number TO regress_paq_referrer;
SET ROLE regress_paq_referrer;
CREATE TABLE f_number (id number REFERENCES p_number);
GRANT ALL ON f_number TO regress_paq_app;
RESET ROLE;
GRANT SELECT ON p_number TO regress_paq_auditor;
RESET client_min_messages;
\set arranged 'WHERE class <> ''FUNCTION'' ORDER BY sequence'
:anew
SET SESSION AUTHORIZATION regress_paq_app;
INSERT INTO f_number VALUES ('1'), ('1'), ('1');
INSERT INTO f VALUES (1);
RESET SESSION AUTHORIZATION;
:records
\set arranged 'ORDER BY sequence'

--
-- Code of users, which runs with the rights of an owner within all that: what it does is
-- recorded as anywhere.  Somebody who has two roles could read by the one's what the other
-- causes.  Each case has a session of its own: where functions have been called for a key
-- without a query, more is recorded from then on.
--
CREATE TABLE secret (a int);
GRANT SELECT ON secret TO regress_paq_auditor, regress_paq_referrer, regress_paq_owner;
SET ROLE regress_paq_referrer;
CREATE TABLE own (a int);
CREATE TABLE copied (n bigint);
RESET ROLE;
GRANT SELECT ON own TO regress_paq_auditor;

-- a trigger of the table that refers
SET ROLE regress_paq_referrer;
CREATE FUNCTION on_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM count(*) FROM secret;
	PERFORM count(*) FROM own;
	RETURN old;
END $$;
CREATE TABLE triggered (id int REFERENCES p ON DELETE CASCADE);
CREATE TRIGGER on_delete BEFORE DELETE ON triggered
	FOR EACH ROW EXECUTE FUNCTION on_delete();
INSERT INTO triggered VALUES (296);
RESET ROLE;
:anew
SET SESSION AUTHORIZATION regress_paq_app;
DELETE FROM p WHERE id = 296;
RESET SESSION AUTHORIZATION;
:records

-- a rule of it
SET ROLE regress_paq_referrer;
CREATE TABLE ruled (id int REFERENCES p ON DELETE CASCADE);
CREATE RULE look AS ON DELETE TO ruled
	DO ALSO INSERT INTO copied SELECT count(*) FROM own;
INSERT INTO ruled VALUES (295);
RESET ROLE;
:anew
SET SESSION AUTHORIZATION regress_paq_app;
DELETE FROM p WHERE id = 295;
RESET SESSION AUTHORIZATION;
:records

-- A cast, which is called where rows are compared or, if it is immutable, when the query
-- is planned.  How often depends on PostgreSQL's version, so each object is shown once.
CREATE TYPE fixed AS (i int);
CREATE TYPE moving AS (i int);
ALTER TYPE fixed OWNER TO regress_paq_owner;
ALTER TYPE moving OWNER TO regress_paq_owner;
SET ROLE regress_paq_owner;
CREATE TABLE by_fixed (a int);
CREATE TABLE by_moving (a int);
GRANT SELECT ON by_fixed, by_moving TO regress_paq_auditor;
CREATE FUNCTION to_int(fixed) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM count(*) FROM secret;
	PERFORM count(*) FROM by_fixed;
	RETURN $1.i;
END $$;
CREATE FUNCTION to_int(moving) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	PERFORM count(*) FROM secret;
	PERFORM count(*) FROM by_moving;
	RETURN $1.i;
END $$;
CREATE CAST (fixed AS int) WITH FUNCTION to_int(fixed) AS IMPLICIT;
CREATE CAST (moving AS int) WITH FUNCTION to_int(moving) AS IMPLICIT;
SET ROLE regress_paq_referrer;
CREATE TABLE f_fixed (id fixed REFERENCES p);
CREATE TABLE f_moving (id moving REFERENCES p);
GRANT ALL ON f_fixed, f_moving TO regress_paq_app;
RESET ROLE;
\set columns 'object'
\set arranged 'WHERE audit_type = ''OBJECT'' AND object <> ''public.p'' GROUP BY object ORDER BY object'
:anew
SET SESSION AUTHORIZATION regress_paq_app;
INSERT INTO f_fixed VALUES (ROW(1)::fixed);
RESET SESSION AUTHORIZATION;
:records
:anew
SET SESSION AUTHORIZATION regress_paq_app;
INSERT INTO f_moving VALUES (ROW(1)::moving);
RESET SESSION AUTHORIZATION;
:records

-- The planner puts what is in a function into the query.  Then PostgreSQL calls what that
-- calls, while it plans the query: functions in C, which may be an extension's, and its
-- own.  Each call leaves a record; from PostgreSQL 19 on there is no query, and nothing to
-- be planned.  A server that is built without libxml has no such function of its own.
CREATE FUNCTION in_c(tsquery, text) RETURNS tsquery
	LANGUAGE internal STABLE AS 'tsquery_rewrite_query';
CREATE FUNCTION has_xml() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	RETURN xml '<a/>' IS NOT NULL;
EXCEPTION WHEN feature_not_supported THEN
	RETURN false;
END $$;
SELECT has_xml() AS has_xml \gset
SELECT $$
	SELECT $1.i + 0 * numnode(in_c('x', 'SELECT tsquery ''x'', tsquery ''y'' FROM by_c'))
$$ AS calls_c,
CASE WHEN :'has_xml' THEN $$
	SELECT $1.i + 0 * length(table_to_xml('by_own'::regclass, true, true, '')::text)
$$ ELSE $$
	SELECT $1.i + 0 * numnode(in_c('x', 'SELECT tsquery ''x'', tsquery ''y'' FROM by_own'))
$$ END AS calls_own \gset
CREATE TYPE for_c AS (i int);
CREATE TYPE for_own AS (i int);
ALTER TYPE for_c OWNER TO regress_paq_owner;
ALTER TYPE for_own OWNER TO regress_paq_owner;
SET ROLE regress_paq_owner;
CREATE TABLE by_c (a int);
CREATE TABLE by_own (a int);
GRANT SELECT ON by_c, by_own TO regress_paq_auditor;
CREATE FUNCTION to_int(for_c) RETURNS int LANGUAGE sql STABLE AS :'calls_c';
CREATE FUNCTION to_int(for_own) RETURNS int LANGUAGE sql STABLE AS :'calls_own';
CREATE CAST (for_c AS int) WITH FUNCTION to_int(for_c) AS IMPLICIT;
CREATE CAST (for_own AS int) WITH FUNCTION to_int(for_own) AS IMPLICIT;
SET ROLE regress_paq_referrer;
CREATE TABLE f_c (id for_c REFERENCES p);
CREATE TABLE f_own (id for_own REFERENCES p);
GRANT ALL ON f_c, f_own TO regress_paq_app;
RESET ROLE;
SELECT CASE WHEN :'from_19' THEN 1 ELSE 2 END AS calls \gset
\set columns 'object, count(*) >= :calls AS each_call'
:anew
SET SESSION AUTHORIZATION regress_paq_app;
INSERT INTO f_c VALUES (ROW(1)::for_c);
RESET SESSION AUTHORIZATION;
:records
:anew
SET SESSION AUTHORIZATION regress_paq_app;
INSERT INTO f_own VALUES (ROW(1)::for_own);
RESET SESSION AUTHORIZATION;
:records

--
-- Nothing of all that is unknown.
--
\c -reuse-previous=on "options=''"
SELECT audit_flush() > :began AS flushed;
SELECT count(*) > 100 AS many,
	   count(*) FILTER (WHERE cut OR incomplete OR interrupted) AS lacking
  FROM audit_trail WHERE database_name = current_database() AND sequence > :began;

SET client_min_messages = warning;
DROP TYPE number CASCADE;
DROP OWNED BY regress_paq_app, regress_paq_referrer, regress_paq_owner, regress_paq_auditor CASCADE;
DROP TABLE secret;
DROP FUNCTION in_c, has_xml;
DROP ROLE regress_paq_auditor, regress_paq_owner, regress_paq_referrer, regress_paq_app;
DROP EXTENSION pg_audit_queue;
