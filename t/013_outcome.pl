#
# The outcome in records: SQLSTATE, rows and times.  A statement has exactly one
# record, however it ends.
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
	CREATE TABLE t (a int PRIMARY KEY, b int CHECK (b <> 3));
	INSERT INTO t SELECT i, 1000 - i FROM generate_series(1, 1000) i WHERE i <> 997;
	CREATE TABLE parent (a int PRIMARY KEY) PARTITION BY LIST (a);
	CREATE TABLE child (a int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	CREATE ROLE plain LOGIN;
	CREATE TABLE c (a int);
	CREATE FUNCTION fail(int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'AB123'; END $$;
	CREATE FUNCTION caught() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			BEGIN
				INSERT INTO t VALUES (1, 1);
			EXCEPTION WHEN unique_violation THEN
				UPDATE t SET b = b WHERE a = 1;
			END;
			RETURN 1;
		END $$;
	CREATE FUNCTION caught_inside() RETURNS int LANGUAGE plpgsql AS $$
		DECLARE r int;
		BEGIN
			SELECT fail(a) INTO r FROM t LIMIT 1;
			RETURN 1;
		EXCEPTION WHEN OTHERS THEN
			RETURN 0;
		END $$;});

# Records of some SQL, whose errors are not the test's.
sub outcomes_are
{
	my ($sql, $expected, $name, %options) = @_;
	my @got;

	@records = records_for($node, $sql, on_error_stop => 0, %options);
	@got = columns('class command exitCode rowCount', @records);
	is_deeply(\@got, $expected, $name // $sql) or diag explain \@got;
	return;
}

# Rows

outcomes_are(
	'SELECT a FROM t;
	 SELECT a FROM t LIMIT 7;
	 SELECT a FROM t WHERE false;
	 INSERT INTO c SELECT generate_series(1, 5);
	 INSERT INTO c VALUES (6), (7) RETURNING a;
	 UPDATE c SET a = a WHERE a > 5;
	 UPDATE c SET a = a WHERE a > 5 RETURNING a;
	 DELETE FROM c WHERE a > 6;
	 DELETE FROM c WHERE a > 3 RETURNING a;
	 MERGE INTO c USING (VALUES (1), (2), (9)) v(x) ON a = x
		WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (x);
	 WITH x AS (DELETE FROM c RETURNING a) SELECT a FROM x LIMIT 1;
	 CREATE TABLE copy AS SELECT a FROM t LIMIT 10;
	 COPY copy TO STDOUT;
	 COPY (SELECT a FROM copy LIMIT 3) TO STDOUT;
	 COPY c FROM STDIN;
1
2
\.
	 INSERT INTO c VALUES (3) ON CONFLICT DO NOTHING;
	 TRUNCATE c;
	 DROP TABLE copy;',
	[
		'READ|SELECT|00000|999',
		'READ|SELECT|00000|7',
		'READ|SELECT|00000|0',
		'WRITE|INSERT|00000|5',
		'WRITE|INSERT|00000|2',
		'WRITE|UPDATE|00000|2',
		'WRITE|UPDATE|00000|2',
		'WRITE|DELETE|00000|1',
		'WRITE|DELETE|00000|3',
		'WRITE|MERGE|00000|3',
		'READ|SELECT|00000|1',
		'READ|SELECT|00000|10',
		'DDL|CREATE TABLE AS|00000|10',
		'READ|COPY|00000|10',
		'READ|SELECT|00000|3',
		'READ|COPY|00000|3',
		'WRITE|COPY|00000|2',
		'WRITE|INSERT|00000|1',
		'WRITE|TRUNCATE TABLE|00000|',
		'DDL|DROP TABLE|00000|',
	],
	'rows');

# Errors

outcomes_are('INSERT INTO t VALUES (1, 1);',
	['WRITE|INSERT|23505|'], 'unique violation');
outcomes_are('INSERT INTO t VALUES (5000, 3);',
	['WRITE|INSERT|23514|'], 'check violation');
outcomes_are('UPDATE t SET a = NULL;',
	['WRITE|UPDATE|23502|'], 'not-null violation');
outcomes_are('SELECT 1 / b FROM t ORDER BY a;',
	['READ|SELECT|22012|'], 'division by zero in the middle of a scan');
outcomes_are('DELETE FROM t WHERE 1 / b > 0;',
	['WRITE|DELETE|22012|'], 'the same in a DELETE');
outcomes_are('SELECT fail(1);',
	[ 'READ|SELECT|AB123|', 'FUNCTION|EXECUTE|AB123|' ], 'RAISE');
outcomes_are(
	"COPY c FROM STDIN;\n1\nx\n\\.\n",
	['WRITE|COPY|22P02|'], 'COPY of what is no number');
outcomes_are('CREATE TABLE t (a int);',
	['DDL|CREATE TABLE|42P07|'], 'CREATE TABLE of one that exists');
outcomes_are('DROP TABLE no_such_table;',
	['DDL|DROP TABLE|42P01|'], 'DROP TABLE of one that does not exist');
outcomes_are('ALTER TABLE t ADD CHECK (b > 10);',
	['DDL|ALTER TABLE|23514|'], 'ALTER TABLE that fails while it reads');
outcomes_are('VACUUM no_such_table;', ['MISC|VACUUM|42P01|'], 'VACUUM');
outcomes_are('BEGIN; VACUUM t; ROLLBACK;',
	[ 'MISC|BEGIN|00000|', 'MISC|VACUUM|25001|' ],
	'VACUUM in a transaction');
outcomes_are(q{SET work_mem = 'much';}, ['MISC|SET|22023|'], 'SET');
outcomes_are(q{DO $$ BEGIN UPDATE t SET a = 1; END $$;},
	[ 'WRITE|UPDATE|23505|', 'FUNCTION|DO|23505|' ],
	'DO whose statement fails');

# Permissions

my @denied = (extra_params => [ '-U', 'plain' ]);

outcomes_are('SELECT a FROM t;', ['READ|SELECT|42501|'], undef, @denied);
is_deeply(
	[ columns('dbUserName sessionUser currentUser', @records) ],
	['plain|plain|plain'],
	'who it was, in the first record of a session');
outcomes_are('INSERT INTO t VALUES (5000, 1);',
	['WRITE|INSERT|42501|'], undef, @denied);
outcomes_are('UPDATE t SET a = 1;', ['WRITE|UPDATE|42501|'], undef, @denied);
outcomes_are('DELETE FROM t;',      ['WRITE|DELETE|42501|'], undef, @denied);
outcomes_are(
	'MERGE INTO t USING (VALUES (1)) v(x) ON a = x WHEN MATCHED THEN DELETE;',
	['WRITE|MERGE|42501|'], undef, @denied);
outcomes_are('COPY t TO STDOUT;', ['READ|COPY|42501|'], undef, @denied);
outcomes_are('DROP TABLE t;', ['DDL|DROP TABLE|42501|'], undef, @denied);
outcomes_are('CREATE ROLE r;', ['ROLE|CREATE ROLE|42501|'], undef, @denied);
outcomes_are('TRUNCATE t;', ['WRITE|TRUNCATE TABLE|42501|'], undef, @denied);
foreach my $log ('read', 'write')
{
	unaudited_sql($node, "ALTER ROLE plain SET pg_audit_queue.log = '$log'");
	outcomes_are('SELECT a FROM t; SELECT 1;',
		[ ('READ|SELECT|42501|', 'READ|SELECT|00000|1') x ($log eq 'read') ],
		"denied READ, log = $log", @denied);
}

# Exceptions that PL/pgSQL catches

outcomes_are(
	'SELECT caught();',
	[
		'WRITE|INSERT|23505|',
		'WRITE|UPDATE|00000|1',
		'READ|SELECT|00000|1',
		'FUNCTION|EXECUTE|00000|'
	],
	'a failed INSERT and its handler');
outcomes_are(
	'SELECT caught_inside();',
	[
		'READ|SELECT|AB123|',
		'FUNCTION|EXECUTE|AB123|',
		'READ|SELECT|00000|1',
		'FUNCTION|EXECUTE|00000|'
	],
	'a failed function and its handler');

# Transactions

outcomes_are(
	'BEGIN; SELECT 1; SELECT 1 / (a - a) FROM t; SELECT 2; SAVEPOINT s; ROLLBACK; SELECT 3;',
	[
		'MISC|BEGIN|00000|',
		'READ|SELECT|00000|1',
		'READ|SELECT|22012|',
		'ERROR||25P02|', 'ERROR||25P02|',
		'READ|SELECT|00000|1'
	],
	'statements of an aborted transaction do not run');
outcomes_are(
	'BEGIN; INSERT INTO c VALUES (1); ROLLBACK;',
	[
		'MISC|BEGIN|00000|', 'WRITE|INSERT|00000|1', 'MISC|ROLLBACK|00000|'
	],
	'what worked before a ROLLBACK did work');
outcomes_are(
	'BEGIN; SAVEPOINT s; INSERT INTO t VALUES (1, 1); ROLLBACK TO s; INSERT INTO c VALUES (1); COMMIT;',
	[
		'MISC|BEGIN|00000|',
		'MISC|SAVEPOINT|00000|',
		'WRITE|INSERT|23505|',
		'WRITE|INSERT|00000|1',
		'MISC|COMMIT|00000|'
	],
	'an error undone by ROLLBACK TO');

# A deferred constraint is checked by a query of its own, at the end of the
# transaction; from PostgreSQL 19 on, if it refers to a partitioned table.  If that fails, so does the statement that ends the transaction:
# a COMMIT, or a statement outside of a transaction block.
@records = records_for($node,
	'BEGIN; INSERT INTO child VALUES (-1); COMMIT; SELECT 1;',
	on_error_stop => 0);
is_deeply(
	[ sort { $a cmp $b } columns('class command exitCode rowCount', @records) ],
	[
		'MISC|BEGIN|00000|',   'MISC|COMMIT|23503|',
		'READ|SELECT|00000|0', 'READ|SELECT|00000|1',
		'WRITE|INSERT|00000|1'
	],
	'a deferred constraint fails at COMMIT')
  or diag explain [ columns('class command exitCode rowCount', @records) ];
@records = records_for($node, 'INSERT INTO child VALUES (-1); SELECT 1;',
	on_error_stop => 0);
is_deeply(
	[ sort { $a cmp $b } columns('class command exitCode rowCount', @records) ],
	[ 'READ|SELECT|00000|0', 'READ|SELECT|00000|1', 'WRITE|INSERT|23503|1' ],
	'a deferred constraint fails at the end of a single statement')
  or diag explain [ columns('class command exitCode rowCount', @records) ];
is($node->safe_psql('postgres', 'SELECT count(*) FROM child'),
	0, 'no such row is there');

# Cancelled, terminated

outcomes_are(
	q{SET statement_timeout = '1s'; SELECT pg_sleep(600); SELECT 1;},
	[ 'MISC|SET|00000|', 'READ|SELECT|57014|', 'READ|SELECT|00000|1' ],
	'statement_timeout');
outcomes_are(
	q{SET statement_timeout = '1s'; DO $$ BEGIN PERFORM pg_sleep(600); END $$;},
	[ 'MISC|SET|00000|', 'READ|SELECT|57014|', 'FUNCTION|DO|57014|' ],
	'statement_timeout in a nested statement');
# Start a statement that sleeps, do something to its backend when it does, and
# return what the client got; the client is left in $client.
my $client;

sub disturb
{
	my ($function, $sql) = @_;
	my $answer;

	$client = PgProto->connect($node);
	$client->start($sql);
	poll_until(
		sub {
			unaudited_sql($node,
				'SELECT 1 FROM pg_stat_activity WHERE wait_event = $$PgSleep$$ AND pid = '
				  . $client->pid);
		}) or die 'the statement does not sleep';
	unaudited_sql($node, "SELECT $function(" . $client->pid . ')');
	$answer = $client->finish;
	poll_until(
		sub {
			!unaudited_sql($node,
				'SELECT 1 FROM pg_stat_activity WHERE pid = ' . $client->pid);
		}) or die 'the backend does not end'
	  if $answer =~ /E:57P01/;
	return $answer;
}

foreach my $case (
	[ 'SELECT pg_sleep(600)', 'READ|SELECT' ],
	[ 'INSERT INTO c SELECT 1 FROM pg_sleep(600)', 'WRITE|INSERT' ],
	[
		'DO $$ BEGIN PERFORM pg_sleep(600); EXCEPTION WHEN division_by_zero THEN NULL; END $$',
		'READ|SELECT', 'FUNCTION|DO'
	],
	[ 'CREATE TABLE sleepy AS SELECT 1 FROM pg_sleep(600)',
		'READ|SELECT', 'DDL|CREATE TABLE AS' ],
	[ 'COPY (SELECT pg_sleep(600)) TO STDOUT', 'READ|SELECT', 'READ|COPY' ])
{
	my ($sql, @expected) = @$case;

	foreach my $end ([ 'pg_cancel_backend', '57014' ],
		[ 'pg_terminate_backend', '57P01' ])
	{
		my ($function, $sqlstate) = @$end;
		my @got;

		@records = records_for(
			$node,
			sub {
				like(disturb($function, $sql), qr/E:$sqlstate$/,
					"$function: $sql");
				$client->query('SELECT 1') if $sqlstate eq '57014';
			});
		@got = columns('class command exitCode', @records);
		is_deeply(
			\@got,
			[
				(map { "$_|$sqlstate" } @expected),
				$sqlstate eq '57014' ? 'READ|SELECT|00000' : ()
			],
			'has its records') or diag explain \@got;
	}
}

# Times

@records = records_for($node, q{SELECT pg_sleep(1); SELECT 1; SELECT pg_sleep(0.1), 1 / (count(*) - count(*)) FROM t;},
	on_error_stop => 0);
is(scalar @records, 3, 'records of statements that sleep');
foreach my $test ([ 0, 1_000_000 ], [ 1, 0 ], [ 2, 0 ])
{
	my ($i, $least) = @$test;
	my $record = $records[$i];

	cmp_ok($record->{durationUs}, '>=', $least, "duration of statement $i");
	cmp_ok($record->{startTime}, 'le', $record->{endTime},
		"statement $i ends after its start");
}
cmp_ok($records[1]{durationUs}, '<', $records[0]{durationUs},
	'the one that does not sleep is faster');
foreach my $i (0, 1)
{
	cmp_ok($records[$i]{endTime}, 'le', $records[ $i + 1 ]{startTime},
		"statement $i ends before the next one starts");
}
@records = records_for($node,
	q{DO $$ BEGIN PERFORM pg_sleep(0.1); PERFORM 1; PERFORM pg_sleep(0.1); END $$;});
is_deeply([ columns('command', @records) ], [ ('SELECT') x 3, 'DO' ],
	'records of nested statements');
cmp_ok($records[2]{startTime}, 'ge', $records[1]{endTime},
	'a nested statement starts when it does');
cmp_ok($records[3]{startTime}, 'le', $records[0]{startTime},
	'its caller earlier');
cmp_ok($records[3]{endTime}, 'ge', $records[2]{endTime}, 'and ends later');
cmp_ok($records[3]{durationUs}, '>=', 200_000, 'and takes as long as all');

# All of that without losing or inventing anything

@records = check_trail($node, 'the trail is whole');
is(scalar(grep { $_->{incomplete} || $_->{cut} || $_->{interrupted} } @records),
	0, 'no record lacks anything');

my %lines;
push @{ $lines{ $_->{sessionId} } }, $_->{sessionLine} foreach @records;
is(scalar(grep { "@$_" ne join ' ', 1 .. @$_ } values %lines),
	0, 'the records of each session are numbered without gaps, in order');
is(stats($node)->{dropped}, 0, 'nothing is dropped');

done_testing();
