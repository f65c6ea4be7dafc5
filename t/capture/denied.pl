#
# What is denied: with "denied" in log and nothing else, each statement that is refused
# for want of a privilege, and each login, leaves one record, whatever its class, and
# wherever it is refused.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

chomp(my $includedir = `pg_config --includedir-server`);
my @tags = slurp_file("$includedir/tcop/cmdtaglist.h") =~ /^PG_CMDTAG\(\w+, "([^"]*)"/gm;

my $node = audited_node(
	'main',
	settings => { log => 'denied' },
	conf     => "max_prepared_transactions = 2\nwal_level = logical\nmax_wal_senders = 2\n",
	init     => [ '--encoding=UTF8', '--locale=C' ]);
my $major = $node->pg_version->major;

# an extension that only superusers can create
my $has_contrib = unaudited_sql($node,
	"SELECT count(*) FROM pg_available_extensions WHERE name = 'pageinspect'");

unaudited_sql(
	$node, q{
	CREATE ROLE nobody LOGIN;
	CREATE ROLE other;
	CREATE ROLE locked NOLOGIN;
	CREATE SCHEMA hidden;
	CREATE TABLE hidden.t (a int);
	CREATE SCHEMA s;
	GRANT USAGE ON SCHEMA s TO nobody;
	CREATE TABLE s.t (a int PRIMARY KEY, b text);
	CREATE TABLE s.plain (a int);
	CREATE TABLE s.readable (a int);
	INSERT INTO s.readable VALUES (1), (2);
	GRANT SELECT ON s.readable TO nobody;
	CREATE INDEX i ON s.t (b);
	CREATE VIEW s.v AS SELECT * FROM s.t;
	CREATE MATERIALIZED VIEW s.mv AS SELECT 1 AS a;
	CREATE SEQUENCE s.sq;
	CREATE TYPE s.ty AS (a int);
	CREATE TYPE s.en AS ENUM ('a');
	CREATE DOMAIN s.dom AS int;
	CREATE FUNCTION s.f() RETURNS int LANGUAGE sql AS 'SELECT 1';
	CREATE FUNCTION s.hid() RETURNS int LANGUAGE sql AS 'SELECT 1';
	REVOKE EXECUTE ON FUNCTION s.hid() FROM PUBLIC;
	CREATE FUNCTION s.tf() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE FUNCTION s.ef() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
	CREATE FUNCTION s.deny(i int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			RAISE insufficient_privilege USING MESSAGE = 'denied by a function';
		END $$;
	CREATE PROCEDURE s.p() LANGUAGE sql AS '';
	REVOKE EXECUTE ON PROCEDURE s.p() FROM PUBLIC;
	CREATE AGGREGATE s.agg(int) (sfunc = int4pl, stype = int);
	CREATE COLLATION s.coll FROM "C";
	CREATE CONVERSION s.conv FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8;
	CREATE OPERATOR s.=== (function = int4eq, leftarg = int, rightarg = int);
	CREATE OPERATOR FAMILY s.of USING btree;
	CREATE OPERATOR CLASS s.oc FOR TYPE int USING btree AS
		OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
		FUNCTION 1 btint4cmp(int, int);
	CREATE ACCESS METHOD am TYPE INDEX HANDLER bthandler;
	CREATE CAST (s.ty AS text) WITH INOUT;
	CREATE FUNCTION s.tr(internal) RETURNS internal LANGUAGE internal IMMUTABLE STRICT
		AS 'prsd_lextype';
	CREATE TRANSFORM FOR s.ty LANGUAGE sql (FROM SQL WITH FUNCTION s.tr(internal));
	CREATE TEXT SEARCH CONFIGURATION s.tc (COPY = simple);
	CREATE TEXT SEARCH DICTIONARY s.td (TEMPLATE = simple);
	CREATE TEXT SEARCH PARSER s.tp (START = prsd_start, GETTOKEN = prsd_nexttoken,
		END = prsd_end, LEXTYPES = prsd_lextype);
	CREATE TEXT SEARCH TEMPLATE s.tt (LEXIZE = dsimple_lexize);
	CREATE POLICY pol ON s.t;
	CREATE RULE r AS ON DELETE TO s.t DO ALSO NOTHING;
	CREATE TRIGGER tr BEFORE INSERT ON s.t FOR EACH ROW EXECUTE FUNCTION s.tf();
	CREATE STATISTICS s.st ON a, b FROM s.t;
	CREATE EVENT TRIGGER et ON ddl_command_start EXECUTE FUNCTION s.ef();
	ALTER EVENT TRIGGER et DISABLE;
	CREATE FOREIGN DATA WRAPPER fdw;
	CREATE SERVER srv FOREIGN DATA WRAPPER fdw;
	CREATE USER MAPPING FOR other SERVER srv;
	CREATE FOREIGN TABLE s.ft (a int) SERVER srv;
	CREATE PUBLICATION pub;
	CREATE SUBSCRIPTION sub CONNECTION 'dbname=postgres' PUBLICATION pub
		WITH (connect = false, slot_name = NONE);
	CREATE DATABASE other_db TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
	REVOKE CONNECT ON DATABASE other_db FROM PUBLIC;
	CREATE LANGUAGE unknown HANDLER plpgsql_call_handler INLINE plpgsql_inline_handler;
	SELECT lo_create(4711);
	REVOKE CREATE ON SCHEMA public FROM PUBLIC;
	BEGIN; SELECT 1; PREPARE TRANSACTION 'theirs'});

# Statements that are denied to an ordinary user, by tag.  Where it is not that of the
# statement, the command that the record shows is behind it: that of the query within it,
# or ERROR, if PostgreSQL refuses it before it is executed.  # is where a comment tells
# whose record it is, if that is not the end.

my @denied = (
	[ 'ALTER AGGREGATE', 'ALTER AGGREGATE s.agg(int) RENAME TO x' ],
	[ 'ALTER COLLATION', 'ALTER COLLATION s.coll RENAME TO x' ],
	[ 'ALTER CONVERSION', 'ALTER CONVERSION s.conv RENAME TO x' ],
	[ 'ALTER DATABASE', 'ALTER DATABASE other_db CONNECTION LIMIT 3' ],
	[ 'ALTER DATABASE', 'ALTER DATABASE postgres SET work_mem = 64' ],
	[
		'ALTER DEFAULT PRIVILEGES',
		'ALTER DEFAULT PRIVILEGES FOR ROLE other GRANT SELECT ON TABLES TO nobody'
	],
	[ 'ALTER DOMAIN', 'ALTER DOMAIN s.dom SET NOT NULL' ],
	[ 'ALTER EVENT TRIGGER', 'ALTER EVENT TRIGGER et ENABLE' ],
	[ 'ALTER EXTENSION', 'ALTER EXTENSION plpgsql UPDATE' ],
	[ 'ALTER FOREIGN DATA WRAPPER', q{ALTER FOREIGN DATA WRAPPER fdw OPTIONS (a 'b')} ],
	[ 'ALTER FOREIGN TABLE', 'ALTER FOREIGN TABLE s.ft ADD b int' ],
	[ 'ALTER FUNCTION', 'ALTER FUNCTION s.f() STABLE' ],
	[ 'ALTER INDEX', 'ALTER INDEX s.i RENAME TO x' ],
	[ 'ALTER LANGUAGE', 'ALTER LANGUAGE plpgsql RENAME TO x' ],
	[ 'ALTER LARGE OBJECT', 'ALTER LARGE OBJECT 4711 OWNER TO nobody' ],
	[ 'ALTER MATERIALIZED VIEW', 'ALTER MATERIALIZED VIEW s.mv RENAME TO x' ],
	[ 'ALTER OPERATOR', 'ALTER OPERATOR s.=== (int, int) SET (RESTRICT = NONE)' ],
	[ 'ALTER OPERATOR CLASS', 'ALTER OPERATOR CLASS s.oc USING btree RENAME TO x' ],
	[ 'ALTER OPERATOR FAMILY', 'ALTER OPERATOR FAMILY s.of USING btree RENAME TO x' ],
	[ 'ALTER POLICY', 'ALTER POLICY pol ON s.t TO nobody' ],
	[ 'ALTER PROCEDURE', 'ALTER PROCEDURE s.p() RENAME TO x' ],
	[ 'ALTER PUBLICATION', 'ALTER PUBLICATION pub RENAME TO x' ],
	[ 'ALTER ROLE', 'ALTER ROLE other CREATEDB' ],
	[ 'ALTER ROLE', 'ALTER ROLE other SET work_mem = 64' ],
	[ 'ALTER ROUTINE', 'ALTER ROUTINE s.f() RENAME TO x' ],
	[ 'ALTER RULE', 'ALTER RULE r ON s.t RENAME TO x' ],
	[ 'ALTER SCHEMA', 'ALTER SCHEMA s RENAME TO x' ],
	[ 'ALTER SEQUENCE', 'ALTER SEQUENCE s.sq RESTART' ],
	[ 'ALTER SERVER', q{ALTER SERVER srv VERSION '2'} ],
	[ 'ALTER STATISTICS', 'ALTER STATISTICS s.st RENAME TO x' ],
	[ 'ALTER SUBSCRIPTION', 'ALTER SUBSCRIPTION sub RENAME TO x' ],
	[ 'ALTER SYSTEM', 'ALTER SYSTEM SET work_mem = 64' ],
	[ 'ALTER TABLE', 'ALTER TABLE s.t ADD c int' ],
	[ 'ALTER TABLESPACE', 'ALTER TABLESPACE pg_default RENAME TO x' ],
	[ 'ALTER TEXT SEARCH CONFIGURATION', 'ALTER TEXT SEARCH CONFIGURATION s.tc RENAME TO x' ],
	[ 'ALTER TEXT SEARCH DICTIONARY', 'ALTER TEXT SEARCH DICTIONARY s.td RENAME TO x' ],
	[ 'ALTER TEXT SEARCH PARSER', 'ALTER TEXT SEARCH PARSER s.tp RENAME TO x' ],
	[ 'ALTER TEXT SEARCH TEMPLATE', 'ALTER TEXT SEARCH TEMPLATE s.tt RENAME TO x' ],
	[ 'ALTER TRIGGER', 'ALTER TRIGGER tr ON s.t RENAME TO x' ],
	[ 'ALTER TYPE', q{ALTER TYPE s.en ADD VALUE 'b'} ],
	[ 'ALTER USER MAPPING', q{ALTER USER MAPPING FOR other SERVER srv OPTIONS (a 'b')} ],
	[ 'ALTER VIEW', 'ALTER VIEW s.v RENAME TO x' ],
	[ 'ANALYZE', 'ANALYZE hidden.t' ],
	[ 'CALL', 'CALL s.p()' ],
	[ 'CHECKPOINT', 'CHECKPOINT' ],
	[ 'CLUSTER', 'CLUSTER s.t USING t_pkey' ],
	[ 'COMMENT', q{COMMENT ON TABLE s.t IS 'x'} ],
	[ 'COMMIT PREPARED', q{COMMIT PREPARED 'theirs'} ],
	[ 'COPY', 'COPY s.t TO STDOUT' ],
	[ 'COPY', q{COPY s.readable TO '/tmp/never'} ],
	[ 'COPY', q{COPY s.readable TO PROGRAM 'true'} ],
	[ 'COPY', 'COPY (SELECT * FROM s.t) TO STDOUT', 'SELECT' ],
	[ 'CREATE ACCESS METHOD', 'CREATE ACCESS METHOD x TYPE INDEX HANDLER bthandler' ],
	[ 'CREATE AGGREGATE', 'CREATE AGGREGATE s.x(int) (sfunc = int4pl, stype = int)' ],
	[ 'CREATE CAST', 'CREATE CAST (s.en AS int) WITH INOUT' ],
	[ 'CREATE COLLATION', 'CREATE COLLATION s.x FROM "C"' ],
	[ 'CREATE CONVERSION', q{CREATE CONVERSION s.x FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8} ],
	[ 'CREATE DATABASE', 'CREATE DATABASE x' ],
	[ 'CREATE DOMAIN', 'CREATE DOMAIN s.x AS int' ],
	[
		'CREATE EVENT TRIGGER',
		'CREATE EVENT TRIGGER x ON ddl_command_start EXECUTE FUNCTION s.ef()'
	],
	[ 'CREATE FOREIGN DATA WRAPPER', 'CREATE FOREIGN DATA WRAPPER x' ],
	[ 'CREATE FOREIGN TABLE', 'CREATE FOREIGN TABLE s.x (a int) SERVER srv' ],
	[ 'CREATE FUNCTION', q{CREATE FUNCTION s.x() RETURNS int LANGUAGE sql AS 'SELECT 1'} ],
	[ 'CREATE INDEX', 'CREATE INDEX x ON s.t (a)' ],
	[ 'CREATE LANGUAGE', 'CREATE LANGUAGE x HANDLER plpgsql_call_handler' ],
	# from 17 on the view is there before it is filled
	[ 'CREATE MATERIALIZED VIEW', 'CREATE MATERIALIZED VIEW s.x AS SELECT 1', $major >= 17 ? () : 'SELECT' ],
	[
		'CREATE OPERATOR',
		'CREATE OPERATOR s.==== (function = int4eq, leftarg = int, rightarg = int)'
	],
	[
		'CREATE OPERATOR CLASS',
		'CREATE OPERATOR CLASS s.x FOR TYPE int USING btree AS OPERATOR 1 <'
	],
	[ 'CREATE OPERATOR FAMILY', 'CREATE OPERATOR FAMILY s.x USING btree' ],
	[ 'CREATE POLICY', 'CREATE POLICY x ON s.t' ],
	[ 'CREATE PROCEDURE', q{CREATE PROCEDURE s.x() LANGUAGE sql AS ''} ],
	[ 'CREATE PUBLICATION', 'CREATE PUBLICATION x' ],
	[ 'CREATE ROLE', 'CREATE ROLE x' ],
	[ 'CREATE RULE', 'CREATE RULE x AS ON UPDATE TO s.t DO ALSO NOTHING' ],
	[ 'CREATE SCHEMA', 'CREATE SCHEMA x' ],
	[ 'CREATE SEQUENCE', 'CREATE SEQUENCE s.x' ],
	[ 'CREATE SERVER', 'CREATE SERVER x FOREIGN DATA WRAPPER fdw' ],
	[ 'CREATE STATISTICS', 'CREATE STATISTICS s.x ON a, b FROM s.t' ],
	[
		'CREATE SUBSCRIPTION',
		q{CREATE SUBSCRIPTION x CONNECTION '' PUBLICATION pub WITH (connect = false)}
	],
	[ 'CREATE TABLE', 'CREATE TABLE s.x (a int)' ],
	[ 'CREATE TABLE AS', 'CREATE TABLE s.x AS SELECT 1', 'SELECT' ],
	[ 'CREATE TABLESPACE', q{CREATE TABLESPACE x LOCATION '/nowhere'} ],
	[ 'CREATE TEXT SEARCH CONFIGURATION', 'CREATE TEXT SEARCH CONFIGURATION s.x (COPY = simple)' ],
	[ 'CREATE TEXT SEARCH DICTIONARY', 'CREATE TEXT SEARCH DICTIONARY s.x (TEMPLATE = simple)' ],
	[
		'CREATE TEXT SEARCH PARSER',
		'CREATE TEXT SEARCH PARSER s.x (START = prsd_start, GETTOKEN = prsd_nexttoken, '
		  . 'END = prsd_end, LEXTYPES = prsd_lextype)'
	],
	[
		'CREATE TEXT SEARCH TEMPLATE',
		'CREATE TEXT SEARCH TEMPLATE s.x (LEXIZE = dsimple_lexize)'
	],
	[
		'CREATE TRANSFORM',
		'CREATE TRANSFORM FOR s.en LANGUAGE sql (FROM SQL WITH FUNCTION s.tr(internal))'
	],
	[
		'CREATE TRIGGER',
		'CREATE TRIGGER x BEFORE INSERT ON s.t FOR EACH ROW EXECUTE FUNCTION s.tf()'
	],
	[ 'CREATE TYPE', 'CREATE TYPE s.x AS (a int)' ],
	[ 'CREATE USER MAPPING', 'CREATE USER MAPPING FOR nobody SERVER srv' ],
	[ 'CREATE VIEW', 'CREATE VIEW s.x AS SELECT 1' ],
	[ 'DECLARE CURSOR', 'DECLARE c CURSOR WITH HOLD FOR SELECT * FROM s.t', 'SELECT' ],
	[ 'DECLARE CURSOR', 'DECLARE c CURSOR WITH HOLD FOR SELECT * FROM hidden.t', 'ERROR' ],
	[ 'DELETE', 'DELETE FROM s.t' ],
	[ 'DO', q{DO LANGUAGE unknown 'BEGIN END'} ],
	[ 'DO', q{DO 'BEGIN PERFORM 1# FROM s.t; END'}, 'SELECT' ],
	[ 'DO', q{DO 'BEGIN PERFORM * FROM hidden.t; END'} ],
	[ 'DO', q{DO 'BEGIN LOCK TABLE s.t#; END'}, 'LOCK TABLE' ],
	[ 'DROP ACCESS METHOD', 'DROP ACCESS METHOD am' ],
	[ 'DROP AGGREGATE', 'DROP AGGREGATE s.agg(int)' ],
	[ 'DROP CAST', 'DROP CAST (s.ty AS text)' ],
	[ 'DROP COLLATION', 'DROP COLLATION s.coll' ],
	[ 'DROP CONVERSION', 'DROP CONVERSION s.conv' ],
	[ 'DROP DATABASE', 'DROP DATABASE other_db' ],
	[ 'DROP DOMAIN', 'DROP DOMAIN s.dom' ],
	[ 'DROP EVENT TRIGGER', 'DROP EVENT TRIGGER et' ],
	[ 'DROP EXTENSION', 'DROP EXTENSION plpgsql' ],
	[ 'DROP FOREIGN DATA WRAPPER', 'DROP FOREIGN DATA WRAPPER fdw' ],
	[ 'DROP FOREIGN TABLE', 'DROP FOREIGN TABLE s.ft' ],
	[ 'DROP FUNCTION', 'DROP FUNCTION s.f()' ],
	[ 'DROP INDEX', 'DROP INDEX s.i' ],
	[ 'DROP LANGUAGE', 'DROP LANGUAGE unknown' ],
	[ 'DROP MATERIALIZED VIEW', 'DROP MATERIALIZED VIEW s.mv' ],
	[ 'DROP OPERATOR', 'DROP OPERATOR s.=== (int, int)' ],
	[ 'DROP OPERATOR CLASS', 'DROP OPERATOR CLASS s.oc USING btree' ],
	[ 'DROP OPERATOR FAMILY', 'DROP OPERATOR FAMILY s.of USING btree' ],
	[ 'DROP OWNED', 'DROP OWNED BY other' ],
	[ 'DROP POLICY', 'DROP POLICY pol ON s.t' ],
	[ 'DROP PROCEDURE', 'DROP PROCEDURE s.p()' ],
	[ 'DROP PUBLICATION', 'DROP PUBLICATION pub' ],
	[ 'DROP ROLE', 'DROP ROLE other' ],
	[ 'DROP ROUTINE', 'DROP ROUTINE s.f()' ],
	[ 'DROP RULE', 'DROP RULE r ON s.t' ],
	[ 'DROP SCHEMA', 'DROP SCHEMA s' ],
	[ 'DROP SEQUENCE', 'DROP SEQUENCE s.sq' ],
	[ 'DROP SERVER', 'DROP SERVER srv' ],
	[ 'DROP STATISTICS', 'DROP STATISTICS s.st' ],
	[ 'DROP SUBSCRIPTION', 'DROP SUBSCRIPTION sub' ],
	[ 'DROP TABLE', 'DROP TABLE s.t' ],
	[ 'DROP TABLESPACE', 'DROP TABLESPACE pg_default' ],
	[ 'DROP TEXT SEARCH CONFIGURATION', 'DROP TEXT SEARCH CONFIGURATION s.tc' ],
	[ 'DROP TEXT SEARCH DICTIONARY', 'DROP TEXT SEARCH DICTIONARY s.td' ],
	[ 'DROP TEXT SEARCH PARSER', 'DROP TEXT SEARCH PARSER s.tp' ],
	[ 'DROP TEXT SEARCH TEMPLATE', 'DROP TEXT SEARCH TEMPLATE s.tt' ],
	[ 'DROP TRANSFORM', 'DROP TRANSFORM FOR s.ty LANGUAGE sql' ],
	[ 'DROP TRIGGER', 'DROP TRIGGER tr ON s.t' ],
	[ 'DROP TYPE', 'DROP TYPE s.ty' ],
	[ 'DROP USER MAPPING', 'DROP USER MAPPING FOR other SERVER srv' ],
	[ 'DROP VIEW', 'DROP VIEW s.v' ],
	[ 'EXECUTE', 'PREPARE q AS SELECT * FROM s.t#; EXECUTE q', 'SELECT' ],
	[ 'EXPLAIN', 'EXPLAIN SELECT * FROM s.t', 'SELECT' ],
	[
		'FETCH',
		'BEGIN; DECLARE c CURSOR FOR SELECT s.deny(a) FROM s.readable#; FETCH c; ROLLBACK',
		'SELECT'
	],
	[ 'GRANT', 'GRANT SELECT ON s.t TO other' ],
	[ 'GRANT ROLE', 'GRANT other TO nobody' ],
	[ 'IMPORT FOREIGN SCHEMA', 'IMPORT FOREIGN SCHEMA x FROM SERVER srv INTO s' ],
	[ 'INSERT', 'INSERT INTO s.t VALUES (1)' ],
	[ 'LOAD', q{LOAD '/nowhere'} ],
	[ 'LOCK TABLE', 'BEGIN; LOCK TABLE s.readable#; ROLLBACK' ],
	[
		'MERGE',
		'MERGE INTO s.plain USING s.readable r ON plain.a = r.a WHEN MATCHED THEN DELETE'
	],
	[
		'MOVE',
		'BEGIN; DECLARE c CURSOR FOR SELECT s.deny(a) FROM s.readable#; MOVE c; ROLLBACK',
		'SELECT'
	],
	[ 'PREPARE', 'PREPARE x AS SELECT * FROM hidden.t' ],
	[ 'REASSIGN OWNED', 'REASSIGN OWNED BY other TO nobody' ],
	[ 'REFRESH MATERIALIZED VIEW', 'REFRESH MATERIALIZED VIEW s.mv' ],
	[ 'REINDEX', 'REINDEX TABLE s.t' ],
	[ 'RESET', 'RESET log_statement' ],
	[ 'REVOKE', 'REVOKE SELECT ON s.t FROM other' ],
	[ 'REVOKE ROLE', 'REVOKE other FROM locked' ],
	[ 'ROLLBACK PREPARED', q{ROLLBACK PREPARED 'theirs'} ],
	[ 'SELECT', 'SELECT * FROM s.t' ],
	[ 'SELECT', 'SELECT * FROM s.readable FOR UPDATE' ],
	[ 'SELECT', 'SELECT * FROM s.v', 'ERROR' ],
	[ 'SELECT', 'SELECT * FROM hidden.t', 'ERROR' ],
	[ 'SELECT', 'SELECT s.hid()' ],
	[ 'SELECT', 'SELECT s.hid() FROM s.readable' ],
	[ 'SELECT', 'SELECT s.deny(a) FROM s.readable' ],
	[ 'SELECT', 'SELECT lo_get(4711)' ],
	[ 'SELECT', q{SELECT lo_import('/nowhere')} ],
	[ 'SELECT', q{SELECT set_config('role', 'other', false)} ],
	[ 'SELECT', q{SELECT pg_read_file('/nowhere')} ],
	[ 'SELECT', q{SELECT nextval('s.sq')} ],
	[ 'SELECT', 'SELECT pg_reload_conf()' ],
	[ 'SELECT INTO', 'SELECT 1 INTO s.x', 'SELECT' ],
	[ 'SET', q{SET log_statement = 'all'} ],
	[ 'SET', 'SET ROLE other' ],
	[ 'SET', 'SET LOCAL ROLE other' ],
	[ 'SET', 'SET SESSION AUTHORIZATION other' ],
	[ 'SET CONSTRAINTS', 'SET CONSTRAINTS hidden.x DEFERRED' ],
	[ 'SHOW', 'SHOW data_directory', 'ERROR' ],
	[ 'TRUNCATE TABLE', 'TRUNCATE s.t' ],
	[ 'UPDATE', 'UPDATE s.t SET a = 1' ],
	[ 'VACUUM', 'VACUUM hidden.t' ],
	$major >= 19 ? [ 'REPACK', 'REPACK s.t' ] : (),
	$has_contrib ? [ 'CREATE EXTENSION', 'CREATE EXTENSION pageinspect' ] : ());

# Of these, PostgreSQL has no statement, or denies none to anybody.
my %never = map { $_ => 1 } (
	'???', 'ALTER ACCESS METHOD', 'ALTER CAST', 'ALTER CONSTRAINT', 'ALTER TRANSFORM', 'BEGIN',
	'CLOSE', 'CLOSE CURSOR', 'CLOSE CURSOR ALL', 'COMMIT', 'COPY FROM', 'CREATE CONSTRAINT',
	'CREATE ROUTINE', 'DEALLOCATE', 'DEALLOCATE ALL', 'DISCARD', 'DISCARD ALL',
	'DISCARD PLANS', 'DISCARD SEQUENCES', 'DISCARD TEMP', 'DROP CONSTRAINT', 'LISTEN', 'LOGIN',
	'NOTIFY', 'PREPARE TRANSACTION', 'RELEASE', 'ROLLBACK', 'SAVEPOINT',
	'SECURITY LABEL',    # not without a provider
	'SELECT FOR KEY SHARE', 'SELECT FOR NO KEY UPDATE', 'SELECT FOR SHARE', 'SELECT FOR UPDATE',
	'START TRANSACTION', 'UNLISTEN', 'WAIT', $has_contrib ? () : 'CREATE EXTENSION');
my %tried = map { $_->[0] => 1 } @denied;

is(join(', ', grep { !$tried{$_} && !$never{$_} } @tags), '', 'a statement for every tag');

# What an ordinary user has sent, and its records with nothing else in log
sub records_of
{
	my ($sql, %options) = @_;

	return records_for(
		$node,
		sub {
			my ($stdout, $stderr);

			$node->psql(
				'postgres', $sql,
				extra_params => [ '-U', 'nobody' ],
				stdout => \$stdout, stderr => \$stderr,
				on_error_stop => 0, %options);
			note $stderr if $stderr =~ /FATAL/;
		});
}

# The statement with that number, and a comment that tells it
sub marked
{
	my ($i) = @_;
	my $sql = $denied[$i][1];

	return $sql =~ s{#}{ /* $i */} ? $sql : "$sql /* $i */";
}

my $script = join '', map { marked($_) . ";\n" } 0 .. $#denied;

# Commands of the records of denials, by the number of the statement; the other records
# come behind.
sub denials_of
{
	my @commands;
	my @others;

	foreach my $record (@_)
	{
		if ($record->{exitCode} eq '42501' && $record->{commandText} =~ m{/\* (\d+) \*/})
		{
			push @{ $commands[$1] }, $record->{command} // $record->{class};
		}
		else { push @others, $record }
	}
	return (\@commands, @others);
}

my ($commands, @others) = denials_of(records_of($script));

is_deeply(
	[ map { join ', ', marked($_), @{ $commands->[$_] // [] } } 0 .. $#denied ],
	[ map { join ', ', marked($_), $denied[$_][2] // $denied[$_][0] } 0 .. $#denied ],
	'one record of each statement that is denied');
is_deeply([ columns('class command commandText exitCode', @others) ],
	[], 'and no other record');

# A class that is audited anyway: no second record.  What executes the denied statement
# fails, too, and is a statement of its class.

foreach my $log ('denied, ddl, role, read, misc', 'all')
{
	ok(reload_settings($node, log => $log), "log = $log");
	my ($again) = denials_of(records_of($script));
	my @wrong;

	foreach my $i (0 .. $#denied)
	{
		my %count;

		$count{$_}++ foreach @{ $again->[$i] // [] };
		push @wrong, marked($i) if join(' ', sort values %count) !~ /^1(?: 1)*$/;
	}
	is(join("\n", @wrong), '', 'each statement has one record');
}
ok(reload_settings($node, log => 'denied'), 'log = denied');

# Where it is refused

sub denials_are
{
	my ($what, $expected, $name) = @_;
	my @records = ref $what ? records_for($node, $what) : records_of($what);
	my @got = columns('class command exitCode errorMessage', @records);

	is_deeply(\@got, $expected, $name) or diag explain \@got;
	return @records;
}

my $no_table  = '42501|permission denied for table t';
my $no_schema = '42501|permission denied for schema hidden';

# A function of each of these that handles the error; it is called by a statement that
# succeeds.
my @handled = (
	[ 'a query', 'PERFORM * FROM s.t', "READ|SELECT|$no_table" ],
	[ 'a query before it is executed', 'PERFORM * FROM hidden.t', "ERROR||$no_schema" ],
	[ 'dynamic SQL', q{EXECUTE 'SELECT * FROM hidden.t'}, "ERROR||$no_schema" ],
	[ 'a view', 'PERFORM * FROM s.v', 'ERROR||42501|permission denied for view v' ],
	[ 'a call in a query', 'PERFORM s.hid()', 'READ|SELECT|42501|permission denied for function hid' ],
	[ 'an expression', 'i := s.hid()', 'ERROR||42501|permission denied for function hid' ],
	[ 'DDL', 'DROP TABLE s.t', 'DDL|DROP TABLE|42501|must be owner of table t' ],
	[ 'LOCK', 'LOCK TABLE s.t', "MISC|LOCK TABLE|$no_table" ],
	[ 'SET ROLE', 'SET ROLE other', 'MISC|SET|42501|permission denied to set role "other"' ],
	[
		'set_config()',
		q{PERFORM set_config('role', 'other', false)},
		'READ|SELECT|42501|permission denied to set role "other"'
	],
	[
		'set_config() in an expression',
		q{IF set_config('role', 'other', false) = '' THEN END IF},
		'ERROR||42501|permission denied to set role "other"'
	],
	[ 'CALL', 'CALL s.p()', 'MISC|CALL|42501|permission denied for procedure p' ],
	[
		'a function that handles nothing', 'PERFORM s.deny(1)',
		'READ|SELECT|42501|denied by a function'
	],
	[ 'RAISE', q{RAISE 'no' USING ERRCODE = '28000'}, 'ERROR||28000|no' ],
	[ 'another error', 'PERFORM 1 / 0' ],
	[ 'another error before execution', 'PERFORM nothing' ],
	[ 'a notice', q{RAISE NOTICE 'no' USING ERRCODE = '42501'; i := 1 / 0} ]);

foreach my $case (@handled)
{
	my ($what, $code, @expected) = @$case;

	denials_are(
		"SET client_min_messages = warning; DO \$\$
		DECLARE i int;
		BEGIN
			BEGIN $code; EXCEPTION WHEN others THEN END;
		END \$\$",
		\@expected, "$what in a block that handles the error");
}
denials_are(
	q{DO $$
	BEGIN
		PERFORM * FROM hidden.t;
	EXCEPTION WHEN insufficient_privilege THEN
		RAISE;
	END $$},
	[ "ERROR||$no_schema", "FUNCTION|DO|$no_schema" ],
	'raised again, it ends the next statement, too');
denials_are(
	q{DO $$
	BEGIN
		BEGIN
			DO 'BEGIN PERFORM * FROM hidden.t; END';
		EXCEPTION WHEN insufficient_privilege THEN
			PERFORM * FROM s.t;
		END;
	EXCEPTION WHEN insufficient_privilege THEN
	END $$},
	[ "FUNCTION|DO|$no_schema", "READ|SELECT|$no_table" ],
	'two of them');
denials_are(
	'BEGIN; SAVEPOINT a; SELECT * FROM s.t; ROLLBACK TO a; SELECT * FROM hidden.t;
	ROLLBACK TO a; SELECT 1 / 0; ROLLBACK TO a; COMMIT',
	[ "READ|SELECT|$no_table", "ERROR||$no_schema" ], 'savepoints');

# With others' rights

unaudited_sql(
	$node, q{
	CREATE ROLE weak;
	GRANT CREATE, USAGE ON SCHEMA s TO weak;
	SET ROLE weak;
	CREATE FUNCTION s.weak() RETURNS void SECURITY DEFINER LANGUAGE plpgsql AS $$
		BEGIN PERFORM * FROM s.t; EXCEPTION WHEN insufficient_privilege THEN END $$;
	CREATE TABLE s.parent (a int PRIMARY KEY);
	CREATE TABLE s.child (a int REFERENCES s.parent);
	GRANT INSERT ON s.child TO nobody;
	REVOKE ALL ON s.parent FROM weak;});
denials_are(
	'SELECT s.weak()', ["READ|SELECT|$no_table"],
	'a SECURITY DEFINER function that handles the error');
my @records = denials_are(
	'INSERT INTO s.child VALUES (1)',
	['WRITE|INSERT|42501|permission denied for table parent'],
	'the check of a foreign key');
is($records[0]{commandText}, 'INSERT INTO s.child VALUES (1)', 'is what the client has sent');

# At the commit

unaudited_sql(
	$node, q{
	CREATE TABLE s.deferred (a int);
	GRANT INSERT ON s.deferred TO nobody;
	CREATE FUNCTION s.late() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN LOCK TABLE s.t; RETURN NULL; END';
	CREATE CONSTRAINT TRIGGER late AFTER INSERT ON s.deferred
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION s.late();});
denials_are(
	'BEGIN; INSERT INTO s.deferred VALUES (1); COMMIT',
	["MISC|LOCK TABLE|$no_table"], 'a deferred trigger');
denials_are(
	'INSERT INTO s.deferred VALUES (1)',
	["MISC|LOCK TABLE|$no_table"], 'in a transaction of its own');

# Without SQL

denials_are(
	sub {
		my $client = PgProto->connect($node, user => 'nobody');

		$client->parse('', 'SELECT * FROM hidden.t');
		$client->sync;
		$client->parse('s', 'SELECT * FROM s.t');
		$client->bind('', 's');
		$client->execute('');
		$client->sync;
		$client->call(
			unaudited_sql($node, q{SELECT 's.hid()'::regprocedure::oid}));
		$client->call(
			unaudited_sql($node, q{SELECT 's.deny(int)'::regprocedure::oid}), 1);
		$client->call(
			unaudited_sql($node, q{SELECT 'lo_get(oid)'::regprocedure::oid}), 4711);
		$client->quit;
	}, [
		"ERROR||$no_schema",
		"READ|SELECT|$no_table",
		'FUNCTION|EXECUTE|42501|permission denied for function hid',
		'FUNCTION|EXECUTE|42501|denied by a function',
		'FUNCTION|EXECUTE|42501|permission denied for large object 4711'
	],
	'extended protocol, and fast-path calls');

unaudited_sql(
	$node, q{
	CREATE FUNCTION s.handles(code text) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE i int;
		BEGIN
			CASE code
				WHEN 'query' THEN PERFORM * FROM s.t;
				WHEN 'early' THEN PERFORM * FROM hidden.t;
				WHEN 'expression' THEN i := s.hid();
			END CASE;
		EXCEPTION WHEN insufficient_privilege THEN
		END $$;});
denials_are(
	sub {
		my $client = PgProto->connect($node, user => 'nobody');

		$client->call(unaudited_sql($node, q{SELECT 's.handles(text)'::regprocedure::oid}), $_)
		  foreach qw(query early expression);
		$client->quit;
	},
	[
		"READ|SELECT|$no_table", "ERROR||$no_schema",
		'ERROR||42501|permission denied for function hid'
	],
	'a function that handles the error, called by fast path');

unaudited_sql($node, 'CREATE ROLE copier LOGIN REPLICATION');
denials_are(
	sub {
		my $client =
		  PgProto->connect($node, user => 'copier', replication => 'database');

		$client->query('IDENTIFY_SYSTEM');
		$client->query('SHOW data_directory');
		$client->quit;
	}, [
		'MISC|SHOW|42501|'
		  . ($major >= 16
			? 'permission denied to examine "data_directory"'
			: 'must be superuser or have privileges of pg_read_all_settings to examine "data_directory"')
	],
	'a replication command');

# Logins.  A psql that is refused gets no input: it may have ended before it could be written.

denials_are(
	sub {
		$node->psql('postgres', undef, extra_params => [ '-U', 'locked' ]);
		$node->psql('postgres', undef, extra_params => [ '-U', 'nothing' ]);
		$node->psql('other_db', undef, extra_params => [ '-U', 'nobody' ]);
		$node->psql('nowhere',  undef, extra_params => [ '-U', 'nobody' ]);
		$node->psql('postgres', 'SELECT 1', extra_params => [ '-U', 'nobody' ]);
	}, [
		'CONNECT|LOGIN|28000|role "locked" is not permitted to log in',
		'CONNECT|LOGIN|28000|role "nothing" does not exist',
		'CONNECT|LOGIN|42501|permission denied for database "other_db"'
	],
	'logins');

# Rules come first.  Where they leave something to the settings, so do they with what is
# denied, also if they know only at the end that they do.

sub with_rules
{
	my ($rules, $expected, $name) = @_;

	unlink $node->data_dir . '/audit_policy.conf';
	append_to_file($node->data_dir . '/audit_policy.conf', "$rules\n");
	$node->reload;
	ok( poll_until(
			sub { unaudited_sql($node, 'SELECT bool_and(in_effect) FROM audit_policy_rules') eq 't' }),
		$rules);
	denials_are(
		'BEGIN; LOCK TABLE s.t; ROLLBACK; SELECT * FROM s.t; SELECT * FROM hidden.t',
		$expected, $name);
	return;
}

my @all = ("MISC|LOCK TABLE|$no_table", "READ|SELECT|$no_table", "ERROR||$no_schema");

with_rules('ignore all nobody all read all', [ @all[ 0, 2 ] ], 'a class that is ignored');
with_rules('ignore all nobody all all s.*',  [ $all[2] ],       'objects that are ignored');
with_rules('ignore all nobody all all all', [], 'a user who is ignored');
with_rules('ignore all nobody all all all outcome=denied', [], 'denials that are ignored');
with_rules('ignore all nobody all all all outcome=ok', \@all, 'successes that are ignored');
with_rules('record all nobody all all all rows>=1000', \@all, 'a condition that does not hold');
with_rules('record all nobody all all all outcome=denied', \@all, 'a rule that records them');

# set_config() has a record also where a rule that hangs on the end records its statement, and
# decides against that then; and where it is called while a statement is planned

unaudited_sql(
	$node, q{
	CREATE FUNCTION s.switch() RETURNS text IMMUTABLE LANGUAGE plpgsql AS
		'BEGIN RETURN set_config(''role'', ''none'', false); END';
});
unlink $node->data_dir . '/audit_policy.conf';
append_to_file($node->data_dir . '/audit_policy.conf',
	"record all all all all all outcome=denied\nrecord all all all set_role all\n");
$node->reload;
ok( poll_until(
		sub { unaudited_sql($node, 'SELECT bool_and(in_effect) FROM audit_policy_rules') eq 't' }),
	'rules about switches of roles');
is( join(' ', columns('class command', records_of(q{SELECT set_config('role', 'none', false)}))),
	'MISC|SET', 'a rule that decides at the end');
is(join(' ', columns('class command', records_of('SELECT s.switch()'))),
	'FUNCTION|EXECUTE MISC|SET', 'a call while a statement is planned');

# A message that has the SQLSTATE of a denial.  Its session has memory for it, but, with one
# of these limits at least, not for a copy.

my $message = q{DO $$BEGIN
	RAISE NOTICE USING ERRCODE = '42501', MESSAGE = repeat('x', 16 * 1024 * 1024);
END$$};
my $refused = 0;
foreach my $mb (map { 8 * $_ } 2 .. 20)
{
	my ($status, $stdout, $stderr) = $node->psql(
		'postgres', qq{
		SELECT pg_backend_pid() AS pid \\gset
		\\setenv PID :pid
		\\! prlimit --pid \$PID --as=\$((\$(awk '/^VmSize/ {print \$2}' /proc/\$PID/status) * 1024 + $mb * 1024 * 1024)):
		$message;
		SELECT 'goes on'},
		on_error_stop => 0);

	$refused++ if $stderr =~ /out of memory/;
	is($stdout, 'goes on', "a message of 16 MB, with $mb MB for it");
}
cmp_ok($refused, '>', 0, 'for some of them there was no memory');
cmp_ok($refused, '<', 19, 'for some there was');

$node->stop;
done_testing();
