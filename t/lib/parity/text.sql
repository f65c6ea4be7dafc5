-- Texts that are hard to write down.

CREATE SCHEMA txt;
SET search_path = txt;
CREATE TABLE t (a int, b text);
SELECT 'comma, "double" and ''single'' quotes';
SELECT 'a
new line', 'and
	a tab';
SELECT E'\r\n\t\b\f', E'\x01\x1f\x7f', '\ backslash \n';
SELECT 'Grüße, мир, 世界, 🐘';
CREATE TABLE "Größe, ""quoted""" ("Straße" text);
INSERT INTO "Größe, ""quoted""" VALUES ('ü'), (U&'\0441');
SELECT "Straße" FROM "Größe, ""quoted""";
CREATE FUNCTION "f,1"() RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT "f,1"();
CREATE TABLE "with
newline" (a int);
SELECT * FROM "with
newline";
SELECT $tag$ dollar $$ quoted $tag$, B'101', X'1F', N'national', U&'d\0061t\+000061';
/* a comment */ SELECT /* another, with a "quote" */ 1 -- and a third
;
-- in front of the statement
SELECT 2;
   SELECT    3   ;
SELECT '<not logged>', '<previously logged>', 'AUDIT: SESSION,1,1,READ';
PREPARE p (text) AS INSERT INTO t (b) VALUES ($1);
EXECUTE p ('ü, "ö"
ä');
EXECUTE p ('"');
EXECUTE p (',');
EXECUTE p (E'\r');
EXECUTE p (E'\\');
EXECUTE p ('<none>');
\set medium `perl -e 'print "m" x 9000'`
\set long `perl -e 'print "long, \"text\"\n" x 30000'`
SELECT length(:'medium');
EXECUTE p (:'medium');
SELECT length(:'long');
EXECUTE p (:'long');
EXECUTE p ('ü' || :'long' || 'ß');
SELECT 1 / (length(:'long') - 389999) /* fails */;
INSERT INTO t VALUES (1, 'x'), (2, :'medium'), (3, 'y');
DO $$ BEGIN INSERT INTO txt.t VALUES (4, 'ünder'); EXECUTE 'SELECT ''' || repeat('deep ', 2000) || ''''; END $$;
DROP SCHEMA txt CASCADE;
