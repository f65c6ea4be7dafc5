#
# Statements that pgaudit records badly or not at all: in object auditing MERGE,
# TRUNCATE, functions with their owner's rights and denied statements; and
# statements that log_catalog = off must not hide.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node('main', settings => { log => 'none' });

unaudited_sql(
	$node, q{
	CREATE ROLE auditor;
	CREATE ROLE owner;
	CREATE ROLE plain LOGIN;
	GRANT owner TO plain;
	CREATE ROLE stranger LOGIN;
	CREATE TABLE secret (a int PRIMARY KEY);
	INSERT INTO secret VALUES (1), (2);
	GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON secret TO auditor;
	CREATE TABLE child (a int REFERENCES secret);
	INSERT INTO child VALUES (2);
	CREATE TABLE open (a int);
	CREATE TABLE parent (a int) PARTITION BY LIST (a);
	CREATE TABLE part PARTITION OF parent FOR VALUES IN (1);
	GRANT TRUNCATE ON part TO auditor;
	CREATE TABLE "Odd Name" (a int); GRANT TRUNCATE ON "Odd Name" TO auditor;
	CREATE FUNCTION add_secret(int) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			INSERT INTO open VALUES ($1);
			INSERT INTO secret VALUES ($1);
		END $$;
	CREATE FUNCTION truncate_secret() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			TRUNCATE secret CASCADE;
		END $$;
	CREATE VIEW passwords AS SELECT rolname, rolpassword FROM pg_authid;
	CREATE MATERIALIZED VIEW mv AS SELECT a FROM secret;});

sub records_are
{
	my ($sql, $expected, $name, %options) = @_;
	my $user     = delete $options{user};
	my %settings = %options;
	my @got      = columns(
		'auditType class command objectName exitCode',
		records_for(
			$node,
			sub {
				# the settings are a superuser's to make
				$node->psql(
					'postgres',
					($user ? "SET SESSION AUTHORIZATION $user;" : '') . $sql,
					on_error_stop => 0);
			},
			settings => \%settings));

	is_deeply(\@got, $expected, $name) or diag explain \@got;
	return;
}

# TRUNCATE

my %objects = (role => 'auditor');
my @open = ("SESSION|WRITE|TRUNCATE TABLE||00000");

records_are(
	'TRUNCATE open; TRUNCATE "Odd Name", open;',
	['OBJECT|WRITE|TRUNCATE TABLE|public."Odd Name"|00000'],
	'TRUNCATE of a table that the audit role may truncate', %objects);
records_are(
	'TRUNCATE secret CASCADE;',
	['OBJECT|WRITE|TRUNCATE TABLE|public.secret|00000'],
	'... with CASCADE', %objects);
records_are(
	'TRUNCATE parent;',
	['OBJECT|WRITE|TRUNCATE TABLE|public.part|00000'],
	'... of a partition by way of its parent', %objects);
records_are(
	'TRUNCATE secret;',
	['OBJECT|WRITE|TRUNCATE TABLE|public.secret|0A000'],
	'... that fails', %objects);
records_are(
	'TRUNCATE "Odd Name", open; TRUNCATE open;',
	[
		'OBJECT|WRITE|TRUNCATE TABLE|public."Odd Name"|00000',
		@open, @open
	],
	'... with session auditing', %objects, log => 'write');
records_are(
	'TRUNCATE "Odd Name";',
	['OBJECT|WRITE|TRUNCATE TABLE|public."Odd Name"|00000'],
	'... whose class is not audited', %objects, log => 'read');
is( unaudited_sql($node, 'SELECT count(*) FROM secret'),
	0, 'the tables were truncated');

# A denied one takes no statement id, one that works does
is_deeply(
	[
		columns(
			'auditType command statementId exitCode',
			records_for(
				$node,
				sub {
					$node->psql(
						'postgres', q{SET ROLE stranger; TRUNCATE secret;
						RESET ROLE; TRUNCATE "Odd Name"; TRUNCATE open;},
						on_error_stop => 0);
				},
				settings => { role => 'auditor', log => 'write, misc' }))
	],
	[
		'SESSION|SET|1|00000',
		'OBJECT|TRUNCATE TABLE||42501',
		'SESSION|TRUNCATE TABLE||42501',
		'SESSION|RESET|2|00000',
		'OBJECT|TRUNCATE TABLE|3|00000',
		'SESSION|TRUNCATE TABLE|3|00000',
		'SESSION|TRUNCATE TABLE|4|00000'
	],
	'ids of TRUNCATE');

# SECURITY DEFINER

records_are(
	'SELECT add_secret(3);',
	['OBJECT|WRITE|INSERT|public.secret|00000'],
	'what a function with the rights of its owner does, in object auditing',
	user => 'stranger',
	%objects);
records_are(
	'SELECT add_secret(3);',
	[
		'OBJECT|WRITE|INSERT|public.secret|23505',
		'SESSION|READ|SELECT||23505'
	],
	'... that fails; session auditing leaves it out',
	user => 'stranger',
	%objects,
	log => 'read, write');
records_are(
	'SELECT truncate_secret();',
	['OBJECT|WRITE|TRUNCATE TABLE|public.secret|00000'],
	'... TRUNCATE in it',
	user => 'stranger',
	%objects);
unaudited_sql($node, 'INSERT INTO secret VALUES (1)');
unaudited_sql($node, 'GRANT INSERT ON child TO stranger');
records_are(
	'INSERT INTO child VALUES (1);',
	[], q{PostgreSQL's check of a foreign key is left out},
	user => 'stranger',
	%objects);

# Denied

records_are(
	'SELECT * FROM secret; DELETE FROM secret; INSERT INTO open VALUES (1);',
	[
		'OBJECT|READ|SELECT|public.secret|42501',
		'OBJECT|WRITE|DELETE|public.secret|42501'
	],
	'denied access to what object auditing selects',
	user => 'stranger',
	%objects);
records_are(
	'SELECT * FROM secret JOIN open USING (a);',
	[ 'SESSION|READ|SELECT||42501', 'OBJECT|READ|SELECT|public.secret|42501' ],
	'... and session auditing',
	user => 'stranger',
	%objects,
	log => 'read');

unaudited_sql(
	$node, q{
	CREATE TABLE nobodys (a int);
	GRANT SELECT ON nobodys TO auditor;
	CREATE FUNCTION look() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN RETURN (SELECT count(*) FROM nobodys); END $$;
	ALTER FUNCTION look() OWNER TO owner;});
records_are(
	'SELECT look();',
	[ 'OBJECT|READ|SELECT|public.nobodys|42501' ],
	'... in a function with the rights of its owner',
	user => 'stranger',
	%objects,
	log => 'write, read, -read');

# MERGE

records_are(
	'MERGE INTO secret s USING open o ON s.a = o.a
	   WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (o.a);',
	[
		'SESSION|WRITE|MERGE||00000',
		'OBJECT|WRITE|MERGE|public.secret|00000',
	],
	'MERGE in object auditing', %objects, log => 'write');
records_are(
	'MERGE INTO secret s USING open o ON s.a = o.a
	   WHEN NOT MATCHED THEN INSERT VALUES (o.a);',
	[
		'SESSION|WRITE|MERGE|public.secret|00000',
		'SESSION|READ|SELECT|public.open|00000',
	],
	'MERGE with log_relation',
	log          => 'read, write',
	log_relation => 'on');

# Materialized views

records_are(
	'REFRESH MATERIALIZED VIEW mv;',
	[
		'SESSION|READ|SELECT||00000',
		'OBJECT|READ|SELECT|public.secret|00000',
		'SESSION|DDL|REFRESH MATERIALIZED VIEW|public.mv|00000'
	],
	'REFRESH MATERIALIZED VIEW', %objects, log => 'read, ddl');

# Parallel workers record what functions do in them, and nothing else. The
# function tells where it has run.

unaudited_sql(
	$node, q{
	CREATE TABLE many AS SELECT generate_series(1, 100) a;
	CREATE FUNCTION peek(int) RETURNS int LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
		BEGIN
			RETURN (SELECT pg_backend_pid() FROM secret LIMIT 1);
		END $$;});
foreach my $mode ('queued', 'commit', 'immediate')
{
	my $pid;
	my @got = records_for(
		$node,
		sub {
			$pid = $node->safe_psql('postgres',
				'SET ' . force_parallel($node) . ' = on; SELECT peek(a) FROM many WHERE a = 7;');
		},
		settings => { log => 'read, function', role => 'auditor', mode => $mode });

	is_deeply(
		[
			map {
				($_->{pid} == $pid ? 'worker|' : 'leader|')
				  . (columns('auditType class objectName backendType exitCode', $_))[0]
			}
			  @got
		],
		[
			'worker|SESSION|READ||parallel worker|00000',
			'worker|OBJECT|READ|public.secret|parallel worker|00000',
			'leader|SESSION|READ||client backend|00000',
			'leader|SESSION|FUNCTION|public.peek|client backend|00000'
		],
		"a parallel worker, mode $mode");
}

# Who does DDL

is_deeply(
	[
		columns(
			'currentUser command objectName',
			records_for(
				$node,
				'GRANT CREATE ON SCHEMA public TO plain; SET ROLE plain;
				 CREATE TABLE by_plain (); DROP TABLE by_plain;',
				settings => { log => 'ddl' }))
	],
	[
		'plain|CREATE TABLE|public.by_plain',
		'plain|DROP TABLE|public.by_plain'
	],
	'the current user of DDL is who does it, not who owns the extension');

# log_catalog = off

my %no_catalog = (log => 'read, write', log_catalog => 'off');
my $read  = 'SESSION|READ|SELECT||00000';

records_are(
	q{SELECT relname FROM pg_class LIMIT 1;
	SELECT count(*) FROM pg_authid;
	SELECT rolname FROM pg_roles;
	SELECT usename, passwd FROM pg_user;
	SELECT usename FROM pg_shadow;
	SELECT relname FROM pg_class WHERE relname = 'none' FOR SHARE;},
	[], 'log_catalog = off hides what only reads catalogs', %no_catalog);
records_are(
	q{UPDATE pg_class SET reltuples = reltuples WHERE relname = 'open';
	DELETE FROM pg_description WHERE false;
	INSERT INTO pg_description SELECT * FROM pg_description WHERE false;
	COPY pg_description FROM '/dev/null';}, [
		'SESSION|WRITE|UPDATE||00000', 'SESSION|WRITE|DELETE||00000',
		'SESSION|WRITE|INSERT||00000', 'SESSION|WRITE|COPY||00000'
	],
	'but not what changes them', %no_catalog);
foreach my $sql (
	'SELECT rolpassword FROM pg_authid',
	'SELECT * FROM pg_authid',
	'SELECT pg_authid FROM pg_authid',
	q{SELECT 1 FROM pg_authid WHERE rolpassword LIKE 'md5%'},
	'SELECT passwd FROM pg_shadow',
	'SELECT s FROM pg_shadow s',
	'SELECT subconninfo FROM pg_subscription',
	'SELECT umoptions FROM pg_user_mapping',
	'SELECT umoptions FROM pg_user_mappings',
	'SELECT * FROM passwords')
{
	records_are($sql, [$read], "nor: $sql", %no_catalog);
}
records_are(
	'COPY pg_authid TO STDOUT;',
	['SESSION|READ|COPY||00000'],
	'nor COPY of one with passwords', %no_catalog);
records_are(
	'SELECT rolpassword FROM pg_authid; UPDATE pg_class SET relname = relname;',
	[ 'SESSION|READ|SELECT||42501', 'SESSION|WRITE|UPDATE||42501' ],
	'nor what is denied',
	user => 'stranger',
	%no_catalog);

done_testing();
