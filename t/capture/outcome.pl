#
# The outcome in records, beyond what sql/outcome.sql shows: statements that are cancelled
# or terminated, times, and who it was that was denied.
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

my $node = audited_node('main');
my @records;

unaudited_sql(
	$node, q{
	CREATE TABLE t (a int);
	INSERT INTO t SELECT generate_series(1, 1000);
	CREATE TABLE c (a int);
	CREATE ROLE plain LOGIN;});

# Permissions

@records = records_for($node, 'SELECT a FROM t;', extra_params => [ '-U', 'plain' ]);
is_deeply(
	[ columns('exitCode dbUserName sessionUser currentUser', @records) ],
	['42501|plain|plain|plain'],
	'who it was, in the first record of a session');

# Cancelled, terminated

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
