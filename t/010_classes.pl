#
# Records of all kinds of statements: class, command, object, ids, text.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node('main');
my @records;

unaudited_sql(
	$node, q{
	CREATE TABLE t (a int, b text);
	INSERT INTO t VALUES (1, 'one'), (2, 'two');
	CREATE MATERIALIZED VIEW mv AS SELECT a FROM t;
	CREATE ROLE other;
	CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN $1 + 1; END';
	CREATE PROCEDURE pr() LANGUAGE plpgsql AS 'BEGIN NULL; END';});

# Each class by representative statements: these, run with each setting of
# log, must leave exactly the records of the classes that it selects.  MISC_SET
# is a class of the settings only, a part of MISC, and SET_ROLE is a part of that;
# their records show MISC.

my @statements = (
	[ 'SELECT a FROM t',                  'READ|SELECT' ],
	[ 'SELECT a FROM t FOR UPDATE',       'READ|SELECT' ],
	[ 'VALUES (1), (2)',                  'READ|SELECT' ],
	[ 'TABLE t',                          'READ|SELECT' ],
	[ 'COPY t TO STDOUT',                 'READ|COPY' ],
	[ 'COPY (SELECT 1) TO STDOUT', [ 'READ|SELECT', 'READ|COPY' ] ],
	[ 'PREPARE p AS SELECT a FROM t',     'READ|PREPARE' ],
	[ q{INSERT INTO t VALUES (3, 'three')}, 'WRITE|INSERT' ],
	[ 'UPDATE t SET b = upper(b)',        'WRITE|UPDATE' ],
	[ 'DELETE FROM t WHERE a = 3',        'WRITE|DELETE' ],
	[
		'MERGE INTO t USING (VALUES (1)) v(x) ON a = x '
		  . 'WHEN MATCHED THEN UPDATE SET b = NULL', 'WRITE|MERGE'
	],
	[ 'TRUNCATE t',                       'WRITE|TRUNCATE TABLE' ],
	[ q{COPY t FROM PROGRAM 'true'},      'WRITE|COPY' ],
	[ 'DO $$ BEGIN NULL; END $$',         'FUNCTION|DO' ],
	[ 'SELECT f(1)',
		[ 'READ|SELECT', 'FUNCTION|EXECUTE' ] ],
	[ 'CALL pr()',
		[ 'FUNCTION|EXECUTE', 'MISC|CALL' ] ],
	[ 'GRANT SELECT ON t TO other',       'ROLE|GRANT' ],
	[ 'REVOKE SELECT ON t FROM other',    'ROLE|REVOKE' ],
	[ 'CREATE ROLE r1',                   'ROLE|CREATE ROLE' ],
	[ 'GRANT other TO r1',                'ROLE|GRANT ROLE' ],
	[ 'REVOKE other FROM r1',             'ROLE|REVOKE ROLE' ],
	[ 'ALTER ROLE r1 NOLOGIN',            'ROLE|ALTER ROLE' ],
	[ 'ALTER ROLE r1 SET work_mem = 64',  'ROLE|ALTER ROLE' ],
	[ 'ALTER ROLE r1 RENAME TO r2',       'ROLE|ALTER ROLE' ],
	[ 'DROP ROLE r2',                     'ROLE|DROP ROLE' ],
	[
		'ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO other',
		'ROLE|ALTER DEFAULT PRIVILEGES'
	],
	[
		'ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM other',
		'ROLE|ALTER DEFAULT PRIVILEGES'
	],
	[ 'CREATE TABLE d (a int)',           'DDL|CREATE TABLE' ],
	[ 'CREATE INDEX ON d (a)',            'DDL|CREATE INDEX' ],
	[ 'ALTER TABLE d RENAME a TO b',      'DDL|ALTER TABLE' ],
	[ q{COMMENT ON TABLE d IS 'd'},       'DDL|COMMENT' ],
	[ 'DROP TABLE d',                     [ ('DDL|DROP TABLE') x 2 ] ],
	[ 'CREATE DATABASE d2 TEMPLATE template0', 'DDL|CREATE DATABASE' ],
	[ 'DROP DATABASE d2',                 'DDL|DROP DATABASE' ],
	[ q{ALTER SYSTEM SET work_mem = 4096}, 'DDL|ALTER SYSTEM' ],
	[ 'BEGIN',                            'MISC|BEGIN' ],
	[ 'LOCK TABLE t IN SHARE MODE',       'MISC|LOCK TABLE' ],
	[ 'SAVEPOINT s',                      'MISC|SAVEPOINT' ],
	[ 'RELEASE SAVEPOINT s',              'MISC|RELEASE' ],
	[ 'COMMIT',                           'MISC|COMMIT' ],
	[ 'VACUUM t',                         'MISC|VACUUM' ],
	[ 'ANALYZE t',                        'MISC|ANALYZE' ],
	[ 'CHECKPOINT',                       'MISC|CHECKPOINT' ],
	[ 'SHOW work_mem',                    'MISC|SHOW' ],
	[ 'DISCARD PLANS',                    'MISC|DISCARD PLANS' ],
	[ 'LISTEN l',                         'MISC|LISTEN' ],
	[ 'SET work_mem = 128',               'MISC_SET|SET' ],
	[ 'RESET work_mem',                   'MISC_SET|RESET' ],
	[ 'SET ROLE other',                   'SET_ROLE|SET' ],
	[ 'RESET ROLE',                       'SET_ROLE|RESET' ],
	[ 'SET LOCAL ROLE other',             'SET_ROLE|SET' ],
	[ 'SET SESSION AUTHORIZATION other',  'SET_ROLE|SET' ],
	[ 'RESET SESSION AUTHORIZATION',      'SET_ROLE|RESET' ],
	[ 'SET "Role" = none',                'SET_ROLE|SET' ],
	[ 'SET session_authorization TO DEFAULT', 'SET_ROLE|SET' ],
	[ 'RESET ALL',                        'MISC_SET|RESET' ],);

my $all_sql = join '', map { "$_->[0];\n" } @statements;

foreach my $log (
	'READ',  'WRITE', 'FUNCTION', 'ROLE',
	'DDL',   'MISC',  'MISC_SET', 'ALL', 'SET_ROLE',
	'NONE',  'all, -misc', 'all, -misc_set', 'misc, -misc_set',
	'misc_set, -set_role', 'all, -set_role',
	'all, -read, -function',
	'Read, writE', 'none, ddl', 'ddl, -ddl')
{
	my %selected;
	my @expected;

	foreach my $word (split /, /, lc $log)
	{
		my ($minus, $name) = $word =~ /^(-?)(.*)$/;
		my @names =
		    $name eq 'all'
		  ? qw(read write function role ddl misc misc_set set_role connect)
		  : $name eq 'none' ? ()
		  : $name eq 'misc' ? qw(misc misc_set set_role)
		  : $name eq 'misc_set' ? qw(misc_set set_role)
		  :                   ($name);

		$selected{$_} = !$minus foreach @names;
	}
	foreach my $statement (@statements)
	{
		foreach my $record (
			ref $statement->[1] ? @{ $statement->[1] } : $statement->[1])
		{
			my ($class, $command) = split /\|/, $record;

			next if !$selected{ lc $class };
			push @expected,
			  join '|', $class =~ /^(?:MISC_SET|SET_ROLE)$/ ? 'MISC' : $class, $command,
			  shown_text($node, $statement->[0] . ';');
		}
	}
	unshift @expected, 'CONNECT|LOGIN|' if $selected{connect};
	@records = records_for(
		$node,
		sub { $node->safe_psql('postgres', $all_sql) },
		settings => { log => $log });

	# the process may be at its end only after the next one has begun
	@records = grep { $_->{command} ne 'LOGOUT' } @records;
	is_deeply([ columns('class command commandText', @records) ],
		\@expected, "log = $log");
}

# set_config() can do what SET ROLE does.  Which setting it is for is not known when it
# is called; the statement has one record of it, unless it has one of its own.

my %calls = (
	q{SELECT set_config('role', 'other', false), set_config('work_mem', '64', false)} =>
	  'READ|SELECT',
	q{UPDATE pg_settings SET setting = 'other' WHERE name = 'role'} => 'READ|SELECT',
	q{DO 'BEGIN IF set_config(''role'', ''other'', false) = '''' THEN END IF; END'} =>
	  'FUNCTION|DO',
	q{COPY (SELECT set_config('role', 'other', false)) TO STDOUT} => 'READ|SELECT',);

foreach my $sql (sort keys %calls)
{
	my ($class) = split /\|/, lc $calls{$sql};

	foreach my $log ('set_role', "set_role, $class", $class)
	{
		@records = grep { $_->{command} ne 'COPY' }
		  records_for($node, $sql, settings => { log => $log });
		is_deeply(
			[ columns('class command exitCode', @records) ],
			[ ($log eq 'set_role' ? 'MISC|SET' : $calls{$sql}) . '|00000' ],
			"log = $log: $sql");
	}
}
@records = records_for(
	$node,
	sub {
		my $client = PgProto->connect($node,
			options => '-c pg_audit_queue.log=set_role');

		$client->call(
			unaudited_sql($node, q{SELECT 'set_config(text,text,bool)'::regprocedure::oid}),
			'role', 'other', 'f');
		$client->quit;
	});
is_deeply(
	[ columns('class command commandText', @records) ],
	['MISC|SET|fastpath function call: pg_catalog.set_config(pg_catalog.text,pg_catalog.text,boolean)'],
	'a fast-path call of set_config()');

# Names of the objects that data definition concerns

my @ddl = (
	[ 'CREATE SCHEMA s', 'DDL|CREATE SCHEMA|SCHEMA|s' ],
	[
		'CREATE TABLE s."D" (a int PRIMARY KEY, b text)',
		'DDL|CREATE TABLE|TABLE|s."D"',
		'DDL|CREATE INDEX|INDEX|s."D_pkey"'
	],
	[
		'CREATE FUNCTION g(int, text) RETURNS int LANGUAGE sql AS $$ SELECT 1 $$',
		'DDL|CREATE FUNCTION|FUNCTION|public.g(integer,pg_catalog.text)'
	],
	[ 'CREATE VIEW s.v AS SELECT a FROM s."D"', 'DDL|CREATE VIEW|VIEW|s.v' ],
	[ 'CREATE SEQUENCE s.q', 'DDL|CREATE SEQUENCE|SEQUENCE|s.q' ],
	[ 'CREATE TYPE s.e AS ENUM ()', 'DDL|CREATE TYPE|TYPE|s.e' ],
	[ 'CREATE DOMAIN s.dom AS int', 'DDL|CREATE DOMAIN|TYPE|s.dom' ],
	[
		'CREATE RULE r AS ON UPDATE TO s."D" DO ALSO NOTHING',
		'DDL|CREATE RULE|RULE|r on s."D"'
	],
	[ 'ALTER TABLE s."D" ADD c int', 'DDL|ALTER TABLE|TABLE|s."D"' ],
	[
		'ALTER TABLE s."D" RENAME COLUMN c TO d',
		'DDL|ALTER TABLE|TABLE COLUMN|s."D".d'
	],
	[ 'ALTER FUNCTION g(int, text) STABLE',
		'DDL|ALTER FUNCTION|FUNCTION|public.g(integer,pg_catalog.text)' ],
	[ q{COMMENT ON SCHEMA s IS 's'}, 'DDL|COMMENT|SCHEMA|s' ],
	[ 'GRANT SELECT ON s."D" TO other', 'ROLE|GRANT|TABLE|' ],
	[ 'DROP VIEW s.v', 'DDL|DROP VIEW|VIEW|s.v' ],
	[
		'DROP FUNCTION g(int, text)',
		'DDL|DROP FUNCTION|FUNCTION|public.g(integer,pg_catalog.text)'
	],
	[
		'DROP SCHEMA s CASCADE',
		'DDL|DROP SCHEMA|INDEX|s."D_pkey"',
		'DDL|DROP SCHEMA|SEQUENCE|s.q',
		'DDL|DROP SCHEMA|TABLE CONSTRAINT|"D_pkey" on s."D"',

		# a constraint like others from 18 on
		('DDL|DROP SCHEMA|TABLE CONSTRAINT|"D_a_not_null" on s."D"') x ($node->pg_version >= 18),
		'DDL|DROP SCHEMA|TABLE|s."D"',
	],
	[ 'CREATE SCHEMA empty', 'DDL|CREATE SCHEMA|SCHEMA|empty' ],
	[ 'DROP SCHEMA empty', 'DDL|DROP SCHEMA||' ],
	[ 'DROP ROLE IF EXISTS no_such_role', 'ROLE|DROP ROLE||' ],
	[
		'DO $$ BEGIN CREATE TABLE n (a int); DROP TABLE n; END $$',
		'DDL|CREATE TABLE|TABLE|public.n',
		'DDL|DROP TABLE|TABLE|public.n'
	],);

# database d2 is without the extension
unaudited_sql($node, 'CREATE DATABASE d2 TEMPLATE template0');

foreach my $names ('with', 'without')
{
	my $database = $names eq 'with' ? 'postgres' : 'd2';

	foreach my $ddl (@ddl)
	{
		my ($sql, @expected) = @$ddl;

		if ($names eq 'without')
		{
			# one record a statement, no object
			@expected = map { s/^([^|]*\|[^|]*)\|.*/$1||/r } @expected;
			@expected = $expected[0] if $sql !~ /^DO/;
		}
		@records = records_for(
			$node,
			sub { $node->safe_psql($database, "$sql;") },
			settings => { log => 'ddl, role' });
		is_deeply(
			[
				sort { $a cmp $b }
				  columns('class command objectType objectName', @records)
			],
			[ sort { $a cmp $b } @expected ],
			"names of objects $names the extension: $sql");
		is(scalar(grep { $_->{exitCode} ne '00000' } @records),
			0, 'all of them successful');
	}
}

# An extension's script is not recorded; what creates the extension is.

@records = records_for($node,
	sub { $node->safe_psql('d2', 'CREATE EXTENSION pg_audit_queue;') });
is_deeply(
	[ columns('class command objectType commandText', @records) ],
	[ 'DDL|CREATE EXTENSION||' . shown_text($node, 'CREATE EXTENSION pg_audit_queue;') ],
	'CREATE EXTENSION pg_audit_queue');
@records = records_for(
	$node,
	sub {
		$node->safe_psql('d2',
			'DROP EXTENSION plpgsql; CREATE EXTENSION plpgsql;');
	});
cmp_ok(scalar(grep { $_->{command} eq 'CREATE EXTENSION' } @records),
	'>=', 1, 'CREATE EXTENSION is recorded');
is_deeply(
	[
		columns('command objectType commandText',
			grep {
				$_->{command} !~ /EXTENSION$/
				  || $_->{commandText} !~ /^(?:DROP|CREATE) EXTENSION plpgsql;?$/
			} @records)
	],
	[],
	'no statement of its script is');

# Statement ids count statements, substatement ids what they do

sub ids_are
{
	my ($sql, $expected, $name) = @_;
	my @got = columns(
		'statementId substatementId class command objectName',
		sort {
				 $a->{statementId} <=> $b->{statementId}
			  or $a->{substatementId} <=> $b->{substatementId}
		} records_for($node, $sql));

	is_deeply(\@got, $expected, $name) or diag explain \@got;
	return;
}

ids_are(
	'SELECT 1; SELECT 2; INSERT INTO t VALUES (7); SELECT 3;',
	[
		'1|1|READ|SELECT|', '2|1|READ|SELECT|',
		'3|1|WRITE|INSERT|', '4|1|READ|SELECT|'
	],
	'one after another');
ids_are(
	'SELECT 1\; BEGIN\; SELECT 2\; COMMIT;',
	[
		'1|1|READ|SELECT|', '2|1|MISC|BEGIN|',
		'3|1|READ|SELECT|', '4|1|MISC|COMMIT|'
	],
	'several in one message');
ids_are(
	q{DO $$ BEGIN
		INSERT INTO t VALUES (1);
		PERFORM f(1);
		EXECUTE 'DO $x$ BEGIN UPDATE t SET a = a; END $x$';
	  END $$;
	  SELECT f(f(1));
	  SELECT 2;},
	[
		'1|1|FUNCTION|DO|',
		'1|2|WRITE|INSERT|',
		'1|3|READ|SELECT|',
		'1|4|FUNCTION|EXECUTE|public.f',
		'1|5|FUNCTION|DO|',
		'1|6|WRITE|UPDATE|',
		'2|1|READ|SELECT|',
		'2|2|FUNCTION|EXECUTE|public.f',
		'2|3|FUNCTION|EXECUTE|public.f',
		'3|1|READ|SELECT|'
	],
	'nested statements and functions');
ids_are(
	'EXPLAIN SELECT a FROM t;
	 PREPARE p AS SELECT a FROM t;
	 EXECUTE p;
	 CREATE TABLE c AS SELECT a FROM t;
	 REFRESH MATERIALIZED VIEW mv;',
	[
		'1|1|READ|SELECT|',
		'1|2|MISC|EXPLAIN|',
		'2|1|READ|PREPARE|',
		'3|1|READ|SELECT|',
		'3|2|MISC|EXECUTE|',
		'4|1|READ|SELECT|',
		'4|2|DDL|CREATE TABLE AS|public.c',
		'5|1|READ|SELECT|',
		'5|2|DDL|REFRESH MATERIALIZED VIEW|public.mv'
	],
	'statements that execute others');

# Passwords: neither in the trail nor in the queue's files

my @secrets = (
	[ 'CREATE ROLE secret1 LOGIN PASSWORD', q{ 'sesame_1' NOINHERIT;} ],
	[ 'CREATE USER secret2 pAssWord', qq{\n'sesame_2' VALID UNTIL 'infinity';} ],
	[ 'ALTER ROLE secret1 ENCRYPTED PASSWORD', q{ 'sesame_3';} ],
	[ 'ALTER USER secret2 /* 1 */ PASSWORD', q{/* 2 */ 'sesame_4';} ],
	[ 'CREATE GROUP secret3 PASSWORD', q{ 'sesame_5';} ],
	[ 'ALTER ROLE no_such_role PASSWORD', q{ 'sesame_6';} ],
	[ 'ALTER ROLE CURRENT_USER PASSWORD', q{ $$sesame_7$$;} ],);

# What contains the pattern, of all files of the trail and the queue.
sub leaks
{
	my ($pattern) = @_;

	flush_trail($node);
	return map {
		my $file = $_;
		map { "$file: $_" } slurp_file($file) =~ /[^\0\n]{0,100}$pattern/g
	} trail_files($node), glob(queue_dir($node) . '/*');
}

@records = records_for($node, join("\n", map { join '', @$_ } @secrets),
	on_error_stop => 0);
is_deeply(
	[ columns('class commandText exitCode', @records) ],
	[
		map {
			'ROLE|' . shown_text($node, $_->[0] . ($_->[1] =~ s/('|\$\$).*?\1/$1<REDACTED>$1/r)) . '|'
			  . ($_->[0] =~ /no_such/ ? '42704' : '00000')
		} @secrets
	],
	'passwords are masked');
cmp_ok(scalar(leaks('secret1')), '>', 0, 'the search for secrets finds others');
is_deeply([ leaks('sesame_') ], [], 'no password in any file');

check_trail($node, 'the trail is whole');
done_testing();
