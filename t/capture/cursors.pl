#
# Statements whose execution does not end with the command that began it, beyond what
# sql/cursors.sql shows: portals of the extended protocol, and a cursor whose client goes.
# Also parallel workers, and very many, and very deeply nested, statements.
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
	INSERT INTO t SELECT generate_series(1, 10);
	CREATE TABLE log (a int);
	CREATE FUNCTION deep(n int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			IF n = 0 THEN RETURN 0; END IF;
			RETURN (SELECT deep(n - 1)) + 1;
		END $$;
	CREATE FUNCTION memory() RETURNS bigint LANGUAGE sql AS
		'SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts';});

# A cursor that is open when the client goes

@records = records_for(
	$node,
	sub {
		my $client = PgProto->connect($node);
		my $pid = $client->pid;

		$client->query('BEGIN');
		$client->query('DECLARE c CURSOR FOR SELECT a FROM t');
		is($client->query('FETCH 2 FROM c'), 'D D C:FETCH_2', 'two rows');
		$client->hang_up;
		poll_until(
			sub {
				!unaudited_sql($node,
					"SELECT 1 FROM pg_stat_activity WHERE pid = $pid");
			}) or die 'the backend does not end';
	});
is_deeply(
	[ columns('class command exitCode rowCount statementId substatementId', @records) ],
	[
		'MISC|BEGIN|00000||1|1',
		'READ|DECLARE CURSOR|00000||2|2',
		'MISC|FETCH|00000|2|3|1',
		'READ|SELECT|00000|2|2|1'
	],
	'a cursor that is open when the client goes');

# pgbench

my $script = $node->basedir . '/script.sql';

append_to_file($script, q{\set x random(1, 10)
BEGIN;
SELECT a FROM t WHERE a = :x;
UPDATE t SET a = a WHERE a = :x;
COMMIT;
});
foreach my $protocol ('simple', 'extended', 'prepared')
{
	@records = records_for(
		$node,
		sub {
			$node->command_ok(
				[
					'pgbench', '-n', '-M', $protocol, '-c', '2', '-t', '5',
					'-f', $script, 'postgres'
				],
				"pgbench -M $protocol");
		});
	my %session;
	push @{ $session{ $_->{pid} } }, $_ foreach @records;
	my @sessions = grep {
		join(' ', map { $_->{command} } @$_) eq
		  join(' ', ('BEGIN', 'SELECT', 'UPDATE', 'COMMIT') x 5)
	} values %session;
	is(scalar @sessions, 2, 'all statements of both sessions, in order');
	is_deeply(
		[ map { [ columns('statementId exitCode rowCount', @$_) ] } @sessions ],
		[
			map {
				[
					map { ($_ . '|00000|' . ('', 1, 1, '')[ ($_ - 1) % 4 ]) } 1 .. 20
				]
			} @sessions
		],
		'with their ids, outcomes and rows');
}

# The extended protocol: a record is published when its statement is done

my $client = PgProto->connect($node);

foreach my $case (
	[ 'SELECT a FROM t',           '1 2 D D D D D D D D D D C:SELECT_10' ],
	[ 'INSERT INTO log VALUES (1)', '1 2 C:INSERT_0_1' ],
	[ 'UPDATE log SET a = 1 WHERE false', '1 2 C:UPDATE_0' ])
{
	my ($sql, $answer) = @$case;
	my ($command) = $sql =~ /^(\w+)/;

	$client->query('BEGIN');
	@records = records_for(
		$node,
		sub {
			is( $client->parse('', $sql)->bind('', '')->execute('')->sync,
				$answer, "extended protocol, in a transaction: $sql");
		});
	is_deeply(
		[ columns('command exitCode', @records) ],
		["$command|00000"],
		'its record is published when the client has the answer');
	@records = records_for($node, sub { $client->query('COMMIT') });
	is_deeply([ columns('command', @records) ],
		['COMMIT'], 'and not once more at COMMIT');
}

# Portals that stop after some rows

@records = records_for(
	$node,
	sub {
		my $text = 'SELECT a FROM t -- ';

		$client->query('BEGIN');
		is( $client->parse('s1', $text . 1)->parse('s2', $text . 2)
			  ->bind('p1', 's1')->execute('p1', 3)->sync,
			'1 1 2 D D D s', 'the first portal stops');
		is($client->bind('p2', 's2')->execute('p2', 4)->sync,
			'2 D D D D s', 'the second portal stops');
		is($client->query('SELECT 42'),
			'D C:SELECT_1', 'another statement in between');
		is($client->execute('p1', 3)->sync, 'D D D s', 'the first goes on');
		is($client->parse('', 'INSERT INTO log VALUES (5)')->bind('', '')
			  ->execute('')->sync,
			'1 2 C:INSERT_0_1', 'one more in between');
		is($client->execute('p2', 0)->sync, 'D D D D D D C:SELECT_6',
			'the second ends');
		is($client->execute('p1', 4)->sync, 'D D D D s', 'the first has all rows');
		is($client->execute('p1', 4)->sync, 'C:SELECT_0', 'the first ends');
		$client->query('COMMIT');
	});
is_deeply(
	[ sort { $a cmp $b } columns('commandText exitCode rowCount', @records) ],
	[
		'BEGIN|00000|',
		'COMMIT|00000|',
		'INSERT INTO log VALUES (5)|00000|1',
		'SELECT 42|00000|1',
		'SELECT a FROM t -- 1|00000|10',
		'SELECT a FROM t -- 2|00000|10'
	],
	'each statement has one record');
my %ids = map { $_->{statementId} => 1 } @records;
is(scalar keys %ids, 6, 'and an id of its own');
is(scalar(grep { $_->{substatementId} != 1 } @records),
	0, 'none is part of another');

# ... and that do not get to their end

foreach my $end (
	[ 'closed', sub { is($client->close_portal('p')->sync, '3', 'close') }, '00000' ],
	[ 'open at COMMIT',   sub { $client->query('COMMIT') },   '00000' ],
	[ 'open at ROLLBACK', sub { $client->query('ROLLBACK') }, '00000' ],
	[
		'open when another statement fails',
		sub { $client->query('SELECT 1 / (a - a) FROM t') }, undef
	])
{
	my ($name, $sub, $sqlstate) = @$end;

	$client->query('BEGIN');
	@records = grep { $_->{commandText} eq 'SELECT a FROM t -- 1' } records_for(
		$node,
		sub {
			is($client->bind('p', 's1')->execute('p', 3)->sync,
				'2 D D D s', "a portal that is $name");
			$sub->();
			$client->query('ROLLBACK');
		});
	is(scalar @records, 1, 'has one record');
	is($records[0]{rowCount}, 3, 'with the rows that were fetched');
	is($records[0]{exitCode}, $sqlstate, 'and its outcome') if defined $sqlstate;
}

# Without a transaction block, a Sync ends all of them
@records = records_for(
	$node,
	sub {
		is( $client->bind('a', 's1')->execute('a', 1)->bind('b', 's2')
			  ->execute('b', 3)->execute('a', 1)->flush('s'),
			'2 D s', 'a portal stops');
		is($client->sync, '2 D D D s D s', 'and so do those behind it');
	});
is_deeply(
	[ sort { $a cmp $b } columns('commandText exitCode rowCount', @records) ],
	[ 'SELECT a FROM t -- 1|00000|2', 'SELECT a FROM t -- 2|00000|3' ],
	'two portals that Sync ends');
$client->quit;

# Parallel workers execute parts of statements, but none of their own

my $parallel = q{
	SET parallel_setup_cost = 0;
	SET parallel_tuple_cost = 0;
	SET min_parallel_table_scan_size = 0;
	SET max_parallel_workers_per_gather = 2;
};

like(
	unaudited_sql(
		$node, "$parallel EXPLAIN (ANALYZE) SELECT count(*) FROM t WHERE a > 0"),
	qr/Workers Launched: [12]/,
	'parallel workers can be had');
@records = grep { $_->{command} ne 'SET' }
  records_for($node, "$parallel SELECT count(*) FROM t WHERE a > 0;");
is_deeply(
	[ columns('command exitCode rowCount backendType', @records) ],
	['SELECT|00000|1|client backend'],
	'a parallel query has one record');

# They record what functions do in them, and nothing else.  The function tells where it
# has run.

unaudited_sql(
	$node, q{
	CREATE ROLE auditor;
	CREATE TABLE secret AS SELECT 1 AS a;
	GRANT SELECT ON secret TO auditor;
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

# Deep recursion, and very many statements

# Memory of a session before and after: the second time must not take more, but
# for what the first already needed.
sub memory_of
{
	my ($sql, $name) = @_;
	my ($first, $second) = split /\n/, $node->safe_psql(
		'postgres', qq{
		SET max_stack_depth = '6MB';
		SET pg_audit_queue.log = 'read, write, function';
		DO \$\$ BEGIN PERFORM memory(); $sql END \$\$;
		SELECT memory();
		DO \$\$ BEGIN PERFORM memory(); $sql END \$\$;
		SELECT memory();});

	cmp_ok($second - $first, '<', 256 * 1024, "$name: memory")
	  or diag "$first, then $second bytes";
	return;
}

# Lines of the trail behind that record: parsing all would take too long.
sub lines_since
{
	my ($sequence) = @_;

	flush_trail($node);
	return grep { /"sequence":([0-9]+)/ && $1 > $sequence } trail_lines($node);
}

my $before = flush_trail($node);

memory_of('PERFORM deep(1000);', '1000 levels');
my @lines = lines_since($before);
is(scalar(grep { /"commandText":"SELECT deep\(1000\)"/ && /"command":"SELECT"/ } @lines),
	2, '1000 levels: the outermost');
is(scalar(grep { /"objectName":"public.deep"/ } @lines),
	2 * 1001, '1000 levels: all calls');
is(scalar(grep { !/"exitCode":"00000"/ } @lines), 0, '1000 levels: all worked');

$before = flush_trail($node);
memory_of(
	'FOR i IN 1 .. 50000 LOOP INSERT INTO log VALUES (i); END LOOP;',
	'2 x 50000 statements');
@lines = lines_since($before);
is(scalar(grep { /"command":"INSERT"/ } @lines),
	100_000, '2 x 50000 statements: all are recorded');
my %seen;
$seen{$_}++ foreach map { /"statementId":([0-9]+),"substatementId":([0-9]+)/; "$1/$2" }
  grep { /"command":"INSERT"/ } @lines;
is(scalar keys %seen, 100_000, '2 x 50000 statements: with ids of their own');

is(stats($node)->{dropped}, 0, 'nothing is dropped');
is(stats($node)->{incomplete}, 0, 'nothing is incomplete');

done_testing();
