#
# Object auditing: the records that the grants of pg_audit_queue.role select.
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

my $node = audited_node('main', settings => { log => 'none', role => 'auditor' });

unaudited_sql(
	$node, q{
	CREATE ROLE auditor;
	CREATE ROLE auditors;
	CREATE ROLE not_inherited;
	CREATE ROLE plain LOGIN;
	GRANT auditors TO auditor;
	CREATE TABLE s (a int, b int);      GRANT SELECT ON s TO auditor;
	CREATE TABLE i (a int, b int);      GRANT INSERT ON i TO auditor;
	CREATE TABLE u (a int, b int);      GRANT UPDATE ON u TO auditor;
	CREATE TABLE d (a int, b int);      GRANT DELETE ON d TO auditor;
	CREATE TABLE cols (r int, w int, n int, x int);
	GRANT SELECT (r) ON cols TO auditor;
	GRANT UPDATE (w), INSERT (n) ON cols TO auditor;
	CREATE TABLE inherited (a int);     GRANT SELECT ON inherited TO auditors;
	CREATE TABLE everybody (a int);     GRANT ALL ON everybody TO PUBLIC;
	CREATE TABLE others (a int);        GRANT ALL ON others TO plain;
	CREATE TABLE owned (a int);         ALTER TABLE owned OWNER TO auditor;
	REVOKE ALL ON owned FROM auditor;
	CREATE VIEW v AS SELECT a FROM others;  GRANT SELECT ON v TO auditor;
	CREATE VIEW v_of_s AS SELECT a FROM s;
	CREATE TABLE part (a int) PARTITION BY LIST (a);
	CREATE TABLE part1 PARTITION OF part FOR VALUES IN (1);
	GRANT SELECT ON part1 TO auditor;});

# Records of some SQL; an error in it fails the test.

sub objects_are
{
	my ($sql, $expected, $name, %settings) = @_;
	my @got = columns(
		'auditType class command objectType objectName',
		records_for(
			$node, sub { $node->safe_psql('postgres', $sql) },
			settings => \%settings));

	is_deeply(\@got, $expected, $name // $sql) or diag explain \@got;
	return;
}

sub objects_are_one_by_one
{
	my (@tests) = @_;

	foreach my $test (@tests)
	{
		my ($sql, @expected) = @$test;

		objects_are("$sql;", \@expected);
	}
	return;
}

# Tables, each privilege; from PostgreSQL 19 on COPY is one, as in pgaudit

my ($read, $write) = $node->pg_version->major >= 19 ? ('COPY', 'COPY') : ('SELECT', 'INSERT');

objects_are_one_by_one(
	[ 'SELECT a FROM s',                  'OBJECT|READ|SELECT|TABLE|public.s' ],
	[ 'SELECT count(*) FROM s',           'OBJECT|READ|SELECT|TABLE|public.s' ],
	[ 'COPY s TO STDOUT',                 "OBJECT|READ|$read|TABLE|public.s" ],
	[ 'INSERT INTO s VALUES (1, 1)' ],
	[ 'UPDATE s SET a = 2' ],
	[ 'UPDATE s SET a = b',               'OBJECT|WRITE|UPDATE|TABLE|public.s' ],
	[ 'DELETE FROM s' ],
	[ 'SELECT a FROM i' ],
	[ 'INSERT INTO i VALUES (1, 1)',      'OBJECT|WRITE|INSERT|TABLE|public.i' ],
	[ q{COPY i FROM PROGRAM 'true'},      "OBJECT|WRITE|$write|TABLE|public.i" ],
	[ 'SELECT a FROM u' ],
	[ 'UPDATE u SET a = 1',               'OBJECT|WRITE|UPDATE|TABLE|public.u' ],
	[ 'DELETE FROM u' ],
	[ 'DELETE FROM d',                    'OBJECT|WRITE|DELETE|TABLE|public.d' ],
	[ 'INSERT INTO d VALUES (1, 1)' ],
	[
		'INSERT INTO i SELECT s.a, s.b FROM s, u',
		'OBJECT|WRITE|INSERT|TABLE|public.i',
		'OBJECT|READ|SELECT|TABLE|public.s'
	],
	[
		'WITH x AS (DELETE FROM d RETURNING a) SELECT x.a FROM x',
		'OBJECT|WRITE|DELETE|TABLE|public.d'
	],
	[
		'MERGE INTO u USING s ON u.a = s.a WHEN MATCHED THEN UPDATE SET b = 1',
		'OBJECT|WRITE|MERGE|TABLE|public.u',
		'OBJECT|READ|SELECT|TABLE|public.s'
	],);

# Columns

objects_are_one_by_one(
	[ 'SELECT r FROM cols',               'OBJECT|READ|SELECT|TABLE|public.cols' ],
	[ 'SELECT x FROM cols' ],
	[ 'SELECT x FROM cols WHERE r = 1',   'OBJECT|READ|SELECT|TABLE|public.cols' ],
	[ 'SELECT * FROM cols',               'OBJECT|READ|SELECT|TABLE|public.cols' ],
	[ 'UPDATE cols SET w = 1',            'OBJECT|WRITE|UPDATE|TABLE|public.cols' ],
	[ 'UPDATE cols SET x = 1' ],
	[ 'INSERT INTO cols (n) VALUES (1)',  'OBJECT|WRITE|INSERT|TABLE|public.cols' ],
	[ 'INSERT INTO cols (x) VALUES (1)' ],
	[ 'DELETE FROM cols' ],);

# Which grants count

objects_are_one_by_one(
	[ 'SELECT a FROM inherited',
		'OBJECT|READ|SELECT|TABLE|public.inherited' ],
	[ 'INSERT INTO inherited VALUES (1)' ],
	[ 'SELECT a FROM everybody' ],
	[ 'INSERT INTO everybody VALUES (1)' ],
	[ 'SELECT a FROM others' ],
	[ 'SELECT a FROM owned' ],
	[ 'SELECT a FROM v',                  'OBJECT|READ|SELECT|VIEW|public.v' ],
	[ 'SELECT a FROM part' ],
	[ 'SELECT a FROM part1',              'OBJECT|READ|SELECT|TABLE|public.part1' ],
	[ 'SELECT 1' ],
	[ 'CREATE TABLE n (a int)' ],
	[ 'DROP TABLE n' ],);
# whether a role inherits is a matter of the grant from 16 on
my ($without, $with) =
  $node->pg_version >= 16
  ? map { "GRANT auditors TO auditor WITH INHERIT $_" } qw(FALSE TRUE)
  : map { "ALTER ROLE auditor $_" } qw(NOINHERIT INHERIT);
unaudited_sql($node, $without);
objects_are('SELECT a FROM inherited;', [],
	'membership without inheritance selects nothing');
unaudited_sql($node, $with);
objects_are(
	'SELECT a FROM inherited;',
	['OBJECT|READ|SELECT|TABLE|public.inherited'],
	'with it, it does again');

# Beside session auditing

objects_are(
	'SELECT a FROM s; SELECT a FROM others; INSERT INTO i SELECT a, b FROM s;',
	[
		'SESSION|READ|SELECT||',
		'OBJECT|READ|SELECT|TABLE|public.s',
		'SESSION|READ|SELECT||',
		'SESSION|WRITE|INSERT||',
		'OBJECT|WRITE|INSERT|TABLE|public.i',
		'OBJECT|READ|SELECT|TABLE|public.s'
	],
	'with log = read, write', log => 'read, write');
objects_are(
	'SELECT s.a FROM s, others; INSERT INTO i SELECT a, b FROM s;',
	[
		'OBJECT|READ|SELECT|TABLE|public.s',
		'SESSION|READ|SELECT|TABLE|public.s',
		'SESSION|READ|SELECT|TABLE|public.others',
		'OBJECT|WRITE|INSERT|TABLE|public.i',
		'SESSION|WRITE|INSERT|TABLE|public.i',
		'OBJECT|READ|SELECT|TABLE|public.s',
		'SESSION|READ|SELECT|TABLE|public.s'
	],
	'with log_relation = on', log => 'read, write', log_relation => 'on');
objects_are('SELECT a FROM s; INSERT INTO i SELECT a, b FROM s;',
	[
		'OBJECT|READ|SELECT|TABLE|public.s',
		'SESSION|WRITE|INSERT||',
		'OBJECT|WRITE|INSERT|TABLE|public.i',
		'OBJECT|READ|SELECT|TABLE|public.s'
	],
	'with log = write', log => 'write');

# Ids, text, rows and outcome of OBJECT records are their statement's

my @records = records_for(
	$node, q{
	TRUNCATE s, i;
	INSERT INTO s VALUES (1, 0), (2, 0);
	INSERT INTO i SELECT a, b FROM s;
	SELECT 1 / b FROM s;
	SELECT a FROM others;
	SELECT a FROM s;},
	on_error_stop => 0,
	settings      => { log => 'read' });
is_deeply(
	[
		columns(
			'auditType command objectName statementId substatementId rowCount exitCode commandText',
			@records)
	],
	[
		map { shown_text($node, $_) } 'SESSION|SELECT||||2|00000|INSERT INTO i SELECT a, b FROM s;',
		'OBJECT|INSERT|public.i|1|1|2|00000|INSERT INTO i SELECT a, b FROM s;',
		'OBJECT|SELECT|public.s|1|1|2|00000|INSERT INTO i SELECT a, b FROM s;',
		'SESSION|SELECT||2|1||22012|SELECT 1 / b FROM s;',
		'OBJECT|SELECT|public.s|2|1||22012|SELECT 1 / b FROM s;',
		'SESSION|SELECT||3|1|0|00000|SELECT a FROM others;',
		'SESSION|SELECT||4|1|2|00000|SELECT a FROM s;',
		'OBJECT|SELECT|public.s|4|1|2|00000|SELECT a FROM s;'
	],
	'ids, rows and outcome')
  or diag explain [ columns('auditType command objectName statementId substatementId rowCount exitCode', @records) ];
@records = records_for(
	$node, 'SELECT a FROM s;',
	settings => { log => 'read', log_statement_once => 'on' });
is_deeply(
	[ columns('auditType commandText commandTextOmitted', @records) ],
	[ 'SESSION|' . shown_text($node, 'SELECT a FROM s;') . '|', 'OBJECT||previously logged' ],
	'log_statement_once');

# Who runs the statement does not matter

unaudited_sql($node, 'GRANT SELECT ON s TO plain');
@records = records_for(
	$node,
	sub {
		$node->safe_psql('postgres', 'SELECT a FROM s;',
			extra_params => [ '-U', 'plain' ]);
	});
is_deeply(
	[ columns('auditType objectName currentUser', @records) ],
	['OBJECT|public.s|plain'],
	'a statement of an unprivileged user');
objects_are('SELECT a FROM s;', [], 'a role that does not exist selects nothing',
	role => 'no_such_role');
unaudited_sql($node, 'REVOKE SELECT ON s FROM plain');
objects_are('SELECT a FROM s; SELECT a FROM others;',
	['OBJECT|READ|SELECT|TABLE|public.others'],
	'another role', role => 'plain');

# Changes take effect at once, within a session

objects_are(
	q{
	SELECT a FROM s;
	SET pg_audit_queue.role = '';
	SELECT a FROM s;
	SET pg_audit_queue.role = 'plain';
	SELECT a FROM s;
	SELECT a FROM others;
	SET pg_audit_queue.role = 'later';
	SELECT a FROM others;
	CREATE ROLE later;
	GRANT SELECT ON others TO later;
	SELECT a FROM others;
	REVOKE SELECT ON others FROM later;
	SELECT a FROM others;
	GRANT SELECT (a) ON others TO later;
	SELECT a FROM others;
	REVOKE SELECT (a) ON others FROM later;
	GRANT auditors TO later;
	SELECT a FROM inherited;
	REVOKE auditors FROM later;
	SELECT a FROM inherited;
	GRANT SELECT ON inherited TO later;
	ALTER ROLE later RENAME TO latest;
	SELECT a FROM inherited;
	SET pg_audit_queue.role = 'latest';
	SELECT a FROM inherited;
	RESET pg_audit_queue.role;
	SELECT a FROM inherited;
	SELECT a FROM s;},
	[
		'OBJECT|READ|SELECT|TABLE|public.s',
		'OBJECT|READ|SELECT|TABLE|public.others',
		'OBJECT|READ|SELECT|TABLE|public.others',
		'OBJECT|READ|SELECT|TABLE|public.others',
		'OBJECT|READ|SELECT|TABLE|public.inherited',
		'OBJECT|READ|SELECT|TABLE|public.inherited',
		'OBJECT|READ|SELECT|TABLE|public.inherited',
		'OBJECT|READ|SELECT|TABLE|public.s'
	],
	'changes within a session');

# ... and those of other sessions, even for a prepared statement

my $session = $node->background_psql('postgres');

@records = records_for(
	$node,
	sub {
		$session->query_safe('PREPARE p AS SELECT a FROM others');
		$session->query_safe('EXECUTE p');
		unaudited_sql($node, 'GRANT SELECT ON others TO auditor');
		$session->query_safe('EXECUTE p');
		unaudited_sql($node, 'REVOKE SELECT ON others FROM auditor');
		$session->query_safe('EXECUTE p');
		unaudited_sql($node, 'GRANT SELECT ON others TO auditors');
		$session->query_safe('EXECUTE p');
	});
is_deeply(
	[ columns('auditType objectName', @records) ],
	[ ('OBJECT|public.others') x 2 ],
	'changes by another session');
$session->quit;

check_trail($node, 'the trail is whole');
done_testing();
