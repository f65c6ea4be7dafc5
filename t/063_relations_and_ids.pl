#
# Records of relations beside that of their statement, the ids that pgaudit
# would give, and the relations that object auditing selects by columns.
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

my $node = audited_node('main', settings => { log => 'all, -connect' });

# In this database the extension is not: DDL has only its statement's record.
unaudited_sql($node, 'CREATE DATABASE other TEMPLATE template0');
unaudited_sql($node, 'CREATE ROLE auditor; CREATE ROLE plain LOGIN');
unaudited_sql(
	$node, q{
	CREATE TABLE p (a int PRIMARY KEY);
	CREATE TABLE f (a int);
	CREATE TABLE t (a int, b int, c text);
	INSERT INTO t VALUES (1, 2, 'three');
	CREATE TABLE rls (a int);
	ALTER TABLE rls ENABLE ROW LEVEL SECURITY;
	CREATE POLICY pol ON rls USING (true);
	GRANT SELECT ON rls TO plain;
	CREATE TABLE parent (a int) PARTITION BY LIST (a);
	ALTER TABLE parent ADD FOREIGN KEY (a) REFERENCES p;
	CREATE TABLE child (a int);}, 'other');

# Records of one session that sends these queries; each answer is noted.

my @answers;

sub session_records
{
	my ($queries, %settings) = @_;
	my $user = delete $settings{as};

	# an ordinary user must not set them himself
	if (defined $user)
	{
		unaudited_sql($node, join '; ', "ALTER ROLE $user RESET ALL",
			map { "ALTER ROLE $user SET pg_audit_queue.$_ = $settings{$_}" } sort keys %settings);
		%settings = ();
	}
	return records_for(
		$node,
		sub {
			my $client = PgProto->connect(
				$node,
				database => 'other',
				options  => $ENV{PGOPTIONS},
				user     => $user);

			@answers = map { $client->query($_) } @$queries;
			$client->quit;
		},
		settings => \%settings);
}

my $what = 'auditType statementId substatementId class command objectName exitCode';

sub records_are
{
	my ($queries, $expected, $name, %settings) = @_;
	my @records = columns($what, session_records($queries, %settings));

	is_deeply(\@records, $expected, $name) or diag explain [ \@records, \@answers ];
	return;
}

# With log_relation the record of a utility statement does not give way to those
# of its relations.  From PostgreSQL 19 on that of COPY has its relation, as in
# pgaudit, and a question about a new foreign key is no access.

my $has_relation = $node->pg_version->major >= 19;

# In which order PostgreSQL asks for the tables of a new key
my @asked = $node->pg_version->major >= 16 ? ('p', 'f') : ('f', 'p');

# What there is of COPY: statement and relation, or the statement with its relation
sub copied
{
	my ($ids, $class, $command, $relation, $outcome) = @_;

	return $has_relation
	  ? ("$ids|$class|COPY|$relation|$outcome")
	  : ("$ids|$class|$command|$relation|$outcome", "$ids|$class|COPY||$outcome");
}

# pgaudit has no record of the GRANT in a CREATE SCHEMA, where event triggers do not tell of it.
records_are(
	[ 'CREATE ROLE made', 'CREATE SCHEMA granting GRANT SELECT ON public.t TO made', 'DROP SCHEMA granting',
		'REVOKE SELECT ON t FROM made', 'DROP ROLE made' ],
	[
		'SESSION|1|1|ROLE|CREATE ROLE||00000', 'SESSION|||ROLE|GRANT||00000',
		'SESSION|2|1|ROLE|REVOKE||00000', 'SESSION|3|1|ROLE|DROP ROLE||00000'
	],
	'GRANT as a part of CREATE SCHEMA takes no ids',
	log => 'role');

foreach my $rows (qw(off on))
{
	my %settings = (log_relation => 'on', log_rows => $rows);

	records_are(
		[ 'ALTER TABLE f ADD CONSTRAINT fk FOREIGN KEY (a) REFERENCES p', 'SELECT 1' ],
		$has_relation
		? [
			'SESSION|1|1|READ|SELECT|public.f|00000', 'SESSION|1|1|READ|SELECT|public.p|00000',
			'SESSION|1|2|DDL|ALTER TABLE||00000', 'SESSION|2|1|READ|SELECT||00000'
		  ]
		: [
			($rows eq 'off' ? 'SESSION|1|2' : 'SESSION|1|1') . '|READ|SELECT|public.f|00000',
			($rows eq 'off' ? 'SESSION|1|2' : 'SESSION|1|1') . '|READ|SELECT|public.p|00000',
			(map { ($rows eq 'off' ? 'SESSION|1|1' : 'SESSION|1|2') . "|READ|SELECT|public.$_|00000" } @asked),
			($rows eq 'off' ? 'SESSION|1|1' : 'SESSION|1|2') . '|DDL|ALTER TABLE||00000',
			'SESSION|2|1|READ|SELECT||00000'
		  ],
		"a foreign key, log_rows = $rows",
		%settings);
	unaudited_sql($node, 'ALTER TABLE f DROP CONSTRAINT fk', 'other');

	ok( (grep { $_ eq 'DDL|ALTER TABLE|' } columns(
				'class command objectName',
				session_records(
					['ALTER TABLE parent ATTACH PARTITION child FOR VALUES IN (1)'], %settings))
		) == 1,
		"ATTACH, log_rows = $rows");
	unaudited_sql($node, 'ALTER TABLE parent DETACH PARTITION child', 'other');
	unaudited_sql($node,
		'ALTER TABLE child DROP CONSTRAINT IF EXISTS parent_a_fkey', 'other');

	records_are(
		[ 'COPY t TO STDOUT', 'SELECT 1' ],
		[
			copied('SESSION|1|1', 'READ', 'SELECT', 'public.t', '00000'),
			'SESSION|2|1|READ|SELECT||00000'
		],
		"COPY, log_rows = $rows",
		%settings);
	records_are(
		[ q{COPY f FROM PROGRAM 'echo x'}, 'SELECT 1' ],
		[
			copied($rows eq 'on' ? 'SESSION||' : 'SESSION|1|1', 'WRITE', 'INSERT', 'public.f', '22P02'),
			($rows eq 'on' ? 'SESSION|1|1' : 'SESSION|2|1') . '|READ|SELECT||00000'
		],
		"COPY that fails, log_rows = $rows",
		%settings);

	# The policy's query is another statement.
	records_are(
		[ 'COPY rls TO STDOUT', 'SELECT 1' ],
		[
			($rows eq 'on' ? 'SESSION|1|1' : 'SESSION|1|2') . '|READ|SELECT|public.rls|00000',
			copied($rows eq 'on' ? 'SESSION|1|2' : 'SESSION|1|1', 'READ', 'SELECT', 'public.rls', '00000'),
			'SESSION|2|1|READ|SELECT||00000'
		],
		"COPY with row security, log_rows = $rows",
		%settings,
		as => 'plain');
}
# With log_rows, queries of cursors that pgaudit has no records of take no ids.

foreach my $end ('COMMIT', 'ROLLBACK', 'CLOSE c', 'CLOSE ALL')
{
	my @records =
	  session_records([ 'BEGIN', 'DECLARE c CURSOR FOR SELECT a FROM t', 'FETCH c', $end, 'SELECT 1' ],
		log_rows => 'on');

	is_deeply(
		[ map { $_->{statementId} } grep { defined $_->{statementId} } @records ],
		[ 1 .. 5 ],
		"a cursor and $end: ids in order");
	is_deeply(
		[
			columns(
				'statementId substatementId class commandText',
				grep { $_->{commandText} =~ /DECLARE/ && $_->{command} eq 'SELECT' } @records)
		],
		['||READ|DECLARE c CURSOR FOR SELECT a FROM t'],
		"its query has none");
}
my @records = session_records(
	[
		'DECLARE c CURSOR WITH HOLD FOR SELECT a FROM t',
		q{DO $$ DECLARE d CURSOR FOR SELECT 1; r int;
			BEGIN OPEN d; FETCH d INTO r; CLOSE d; FOR r IN SELECT 2 LOOP NULL; END LOOP; END $$},
		'FETCH c', 'CLOSE c', 'SELECT 1'
	],
	log_rows => 'on');
is_deeply(
	[ columns('statementId substatementId command', grep { defined $_->{statementId} } @records) ],
	[
		'1|1|DECLARE CURSOR', '2|2|SELECT', '2|3|SELECT', '2|1|DO', '3|1|FETCH',
		'4|1|CLOSE CURSOR', '5|1|SELECT'
	],
	'a cursor that is held, and cursors in a block')
  or diag explain [ columns($what, @records) ];

# Whoever reads a row as a whole reads all its columns.

unaudited_sql(
	$node, q{
	GRANT SELECT (b) ON t TO auditor;
	GRANT ALL ON t TO plain;
	CREATE VIEW v AS SELECT t AS r FROM t;
	GRANT ALL ON v TO plain;
	CREATE TABLE u (a int PRIMARY KEY, b int);
	GRANT ALL ON f TO plain;
	GRANT SELECT (b) ON u TO auditor;
	GRANT ALL ON u TO plain;
	CREATE TABLE heir () INHERITS (t);
	CREATE FUNCTION of(t) RETURNS int LANGUAGE sql RETURN 1;
	CREATE TABLE dropped (x int, a int);
	GRANT SELECT (a) ON dropped TO auditor;
	GRANT ALL ON dropped TO plain;
	ALTER TABLE dropped DROP COLUMN a;}, 'other');

sub selected
{
	my ($sql, $expected, %settings) = @_;
	my @objects = grep { $_->{auditType} eq 'OBJECT' } session_records(
		[$sql],
		log  => 'none',
		role => 'auditor',
		as   => 'plain',
		%settings);

	is_deeply([ columns('command objectName', @objects) ], $expected, $sql)
	  or diag "@answers";
	return @objects;
}

foreach my $sql (
	'SELECT t FROM t',
	'SELECT row_to_json(x) FROM t x',
	'SELECT t.* FROM t',
	'SELECT count(t) FROM t',
	'SELECT 1 FROM t WHERE t IS NOT NULL',
	'SELECT a FROM t ORDER BY t',
	'SELECT t::text FROM t',
	'SELECT of(t) FROM t',
	'SELECT t, ctid FROM t',
	'SELECT j FROM (t CROSS JOIN (SELECT 1) s) j',
	'TABLE t',
	'COPY (SELECT t FROM t) TO STDOUT',
	'SELECT r FROM v',
	'SELECT s FROM (SELECT * FROM t) s',
	'WITH w AS (SELECT t FROM t) SELECT 1 FROM w',
	'SELECT t FROM ONLY t',
	'SELECT t FROM t FOR SHARE',
	'DELETE FROM f USING t WHERE t IS NULL',
	'SELECT count(*) FROM t',
	'EXPLAIN SELECT t FROM t',
	'PREPARE q AS SELECT t FROM t; EXECUTE q',
	'DO $$ BEGIN PERFORM t FROM t; END $$')
{
	selected($sql, ['SELECT|public.t']);
}
selected('COPY t TO STDOUT', [ ($has_relation ? 'COPY' : 'SELECT') . '|public.t' ]);
foreach my $sql (
	'SELECT a FROM t',
	'SELECT ctid, tableoid FROM t',
	'SELECT x.* FROM (SELECT a FROM t) x',
	'INSERT INTO t VALUES (1)',
	'UPDATE t SET b = 1',
	'UPDATE t SET a = 2 RETURNING a')
{
	selected($sql, []);
}
selected('UPDATE t SET a = 1 RETURNING t', ['UPDATE|public.t']);
selected('INSERT INTO t VALUES (1) RETURNING t', ['INSERT|public.t']);
selected('DELETE FROM t WHERE t IS NULL',  ['DELETE|public.t']);
# from 16 on EXCLUDED is asked for, used or not, and no columns of it
selected(
	'INSERT INTO u VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1 WHERE u IS NOT NULL',
	[ 'INSERT|public.u', ('SELECT|public.u') x ($node->pg_version->major >= 16) ]);
selected('SELECT j FROM (u JOIN f USING (a)) j', ['SELECT|public.u']);
selected('MERGE INTO f USING u ON u IS NULL WHEN MATCHED THEN DO NOTHING',
	['SELECT|public.u']);
selected('SELECT dropped FROM dropped', []);

# The same where it is denied

unaudited_sql($node, 'REVOKE ALL ON t FROM plain', 'other');
my ($denied) = selected('SELECT t FROM t', ['SELECT|public.t']);
is($denied->{exitCode}, '42501', 'denied');
selected('SELECT a FROM t', []);

check_trail($node, 'the trail is whole');
done_testing();
