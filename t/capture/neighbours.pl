#
# Other libraries beside ours: the records are the same as without them, whether
# they are loaded before or after ours.
#
# The neighbours are libraries with the same hooks: pg_stat_statements,
# auto_explain, PL/pgSQL and pgaudit.  Libraries that call no further hook are
# the subject of t/capture/missing_hooks.pl.
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

my $node;

# What neighbours have noted of the work, as lines, without what differs from
# run to run.  Parts of parallel queries run in as many processes as there are.  The
# number of a temporary schema is that of the backend's place in the server, which
# depends on who else is connected: autovacuum, for instance.
my %notes = (
	auto_explain => sub {
		my ($log) = @_;
		return grep { !/FROM big/ } $log =~ /(Query Text: .*)/g;
	},
	pg_stat_statements => sub {
		return split /\n/, unaudited_sql(
			$node, q{
			SELECT calls, rows, toplevel, replace(query, E'\n', ' ')
			  FROM pg_stat_statements
			 WHERE query !~ 'EXTENSION|pg_stat_statements'
			 ORDER BY query COLLATE "C", toplevel, calls});
	},
	pgaudit => sub {
		my ($log) = @_;
		return map { s/,\Kpg_temp_\d+(?=\.)/pg_temp/r }
		  grep { !/FROM big/ } $log =~ /(AUDIT: .*)/g;
	},

	# has nothing to say
	plpgsql => sub { () });

$node = audited_node(
	'main',
	start => 0,
	settings => {
		log_relation  => 'on',
		log_parameter => 'on',
		role          => 'auditor'
	},
	conf => q{
		autovacuum = off
		max_parallel_workers_per_gather = 2
		auto_explain.log_min_duration = 0
		auto_explain.log_analyze = on
		auto_explain.log_triggers = on
		auto_explain.log_nested_statements = on
		pg_stat_statements.track = all
		pg_stat_statements.save = off
		pg_stat_statements.track_planning = on
		pgaudit.log = 'all'
		pgaudit.log_relation = on
		pgaudit.log_rows = on
		pgaudit.role = 'auditor'
	});
my $library_dir = $node->config_data('--pkglibdir');
my @neighbours;
my %noted;

foreach my $name (sort keys %notes)
{
	if (-e "$library_dir/$name.so")
	{
		push @neighbours, $name;
		next;
	}
	diag "$name is not installed: it is NOT TESTED beside pg_audit_queue";
}

sub set_up
{
	unaudited_sql(
		$node, q{
		CREATE ROLE auditor;
		CREATE ROLE plain;
		CREATE TABLE t (a int PRIMARY KEY, b text);
		GRANT INSERT ON t TO auditor;
		CREATE TABLE child (a int REFERENCES t DEFERRABLE INITIALLY DEFERRED);
		CREATE TABLE history (a int);
		CREATE TABLE big AS SELECT i AS a FROM generate_series(1, 5000) i;
		ANALYZE big;
		CREATE VIEW v AS SELECT a FROM t WHERE a < 100;
		GRANT SELECT ON v TO plain;
		CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN INSERT INTO history VALUES (NEW.a); RETURN NEW; END $$;
		CREATE TRIGGER keep AFTER INSERT ON t
			FOR EACH ROW EXECUTE FUNCTION keep();
		CREATE FUNCTION inner_most(n int) RETURNS bigint LANGUAGE plpgsql AS $$
			BEGIN RETURN (SELECT count(*) FROM t WHERE a <= n); END $$;
		CREATE FUNCTION nested(n int) RETURNS bigint LANGUAGE plpgsql AS $$
			DECLARE r record; s bigint := 0;
			BEGIN
				FOR r IN SELECT a FROM t ORDER BY a LIMIT n LOOP
					s := s + inner_most(r.a);
				END LOOP;
				EXECUTE 'UPDATE t SET b = $1 WHERE a = 1' USING s::text;
				RETURN s;
			END $$;
		CREATE FUNCTION catches() RETURNS text LANGUAGE plpgsql AS $$
			DECLARE state text := '';
			BEGIN
				FOR i IN 0 .. 2 LOOP
					BEGIN
						INSERT INTO history VALUES (1 / i);
						PERFORM a / (a - a) FROM t WHERE a = 2 AND i = 2;
					EXCEPTION WHEN division_by_zero THEN
						state := state || i;
						INSERT INTO history VALUES (-i);
					END;
				END LOOP;
				RETURN state;
			END $$;
		CREATE FUNCTION in_sql(n int) RETURNS bigint LANGUAGE sql AS
			'INSERT INTO history VALUES (n); SELECT count(*) FROM history';
		CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$
			BEGIN
				INSERT INTO history VALUES (1);
				COMMIT;
				INSERT INTO history VALUES (2);
				ROLLBACK;
				CREATE TEMP TABLE made (a int) ON COMMIT DROP;
				INSERT INTO made SELECT a FROM t WHERE a < 4;
			END $$;});
	return;
}

sub clean_up
{
	unaudited_sql(
		$node, q{
		DROP EXTENSION IF EXISTS pg_audit_queue;
		DROP SCHEMA public CASCADE;
		CREATE SCHEMA public;
		GRANT ALL ON SCHEMA public TO PUBLIC;
		DROP OWNED BY auditor, plain;
		DROP ROLE auditor, plain;});
	return;
}

my $workload = <<'SQL';
INSERT INTO t SELECT i, 'text' FROM generate_series(1, 20) i;
SELECT count(*) FROM t, big WHERE t.a = big.a;
SELECT nested(5);
SELECT catches();
SELECT in_sql(3);
SELECT inner_most(a), in_sql(a) FROM t WHERE a < 3;
DO $$ BEGIN PERFORM nested(2); EXECUTE 'CREATE TABLE by_do (a int)'; END $$;
CALL commits();
DO $$ BEGIN CALL commits(); END $$;
WITH d AS (DELETE FROM history RETURNING a), i AS (INSERT INTO child SELECT 1 FROM d LIMIT 1)
	SELECT count(*) FROM d;
MERGE INTO t USING (VALUES (1), (21)) s (a) ON t.a = s.a
	WHEN MATCHED THEN UPDATE SET b = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (s.a, 'merged');
INSERT INTO t VALUES (1, 'again') ON CONFLICT (a) DO UPDATE SET b = 'conflict' RETURNING b;
UPDATE t SET b = 'x' WHERE a > 15;
DELETE FROM t WHERE a = 20;
SELECT * FROM v WHERE a < 3;
-- errors: in the executor, before it, of permissions, of constraints
SELECT 1 / (a - 3) FROM t ORDER BY a;
SELECT nosuch FROM t;
SELCT 1;
INSERT INTO t VALUES (2, 'duplicate');
DELETE FROM t WHERE a = 1;
SET ROLE plain;
SELECT * FROM t;
INSERT INTO v VALUES (1);
SELECT count(*) FROM v;
DROP TABLE t;
RESET ROLE;
BEGIN;
INSERT INTO child VALUES (4711);
SELECT count(*) FROM child;
COMMIT;
SET statement_timeout = '1s';
SELECT pg_sleep(100) FROM t;
RESET statement_timeout;
-- transactions, subtransactions and cursors
BEGIN;
SAVEPOINT s;
INSERT INTO t VALUES (30, 'thirty');
SELECT 1 / (a - 3) FROM t ORDER BY a;
ROLLBACK TO s;
DECLARE c CURSOR FOR SELECT a FROM t ORDER BY a;
FETCH 2 FROM c;
DECLARE d CURSOR FOR SELECT a FROM big;
FETCH 3 FROM d;
FETCH 2 FROM c;
INSERT INTO t VALUES (31, 'thirty-one');
CLOSE c;
FETCH 1 FROM d;
COMMIT;
BEGIN;
DECLARE c CURSOR FOR SELECT 1 / (a - 3) FROM t ORDER BY a;
FETCH 1 FROM c;
FETCH 5 FROM c;
SELECT 1;
ROLLBACK;
-- prepared statements
PREPARE p (int) AS SELECT b FROM t WHERE a = $1;
EXECUTE p (1);
EXECUTE p (2);
PREPARE i (int) AS INSERT INTO history VALUES ($1) RETURNING 1 / $1;
EXECUTE i (1);
EXECUTE i (0);
DEALLOCATE ALL;
-- COPY
COPY t (a, b) FROM STDIN;
40	forty
41	forty-one
\.
COPY t (a, b) FROM STDIN;
40	duplicate
\.
COPY t TO STDOUT;
COPY (SELECT nested(1), a FROM t ORDER BY a LIMIT 2) TO STDOUT;
-- DDL
CREATE TABLE ddl (a int PRIMARY KEY, b serial);
CREATE INDEX ddl_b ON ddl (b);
ALTER TABLE ddl ADD COLUMN c int DEFAULT 1, ADD CHECK (c > 0);
CREATE TABLE ddl_as AS SELECT nested(1) AS n, a FROM t;
CREATE MATERIALIZED VIEW ddl_mv AS SELECT count(*) FROM t;
REFRESH MATERIALIZED VIEW ddl_mv;
CREATE VIEW ddl_v AS SELECT * FROM ddl;
CREATE TABLE t (a int);
GRANT SELECT ON ddl TO plain;
CREATE ROLE ddl_role PASSWORD 'secret';
DROP ROLE ddl_role;
TRUNCATE history;
DROP TABLE ddl CASCADE;
DROP TABLE ddl_as;
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT nested(1) FROM t WHERE a = 1;
EXPLAIN (COSTS off) SELECT a FROM t WHERE a = 1;
LISTEN heard;
VACUUM t;
-- several statements at once
SELECT 1 \; INSERT INTO history VALUES (7) \; SELECT a FROM history;
SELECT 2 \; SELECT 1 / (a - 7) FROM history \; SELECT 3;
-- parallel workers
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT count(*) FROM big WHERE a > 10;
SELECT count(*) FROM big WHERE 1 / (a - 4000) > 10;
SQL

# The extended protocol, with portals that stop after some rows
sub extended_workload
{
	my $client = PgProto->connect($node);
	my @answers;

	push @answers,
	  $client->query('BEGIN'),
	  $client->parse('s1', 'SELECT a FROM t ORDER BY a')
	  ->bind('p1', 's1')->execute('p1', 3)->sync,
	  $client->parse('s2', 'SELECT a FROM big WHERE a > $1')
	  ->bind('p2', 's2', 10)->execute('p2', 4)->sync,
	  $client->query('SELECT nested(2)'),
	  $client->execute('p1', 2)->sync,
	  $client->bind('p3', 's2', 4990)->execute('p3', 4)->sync,
	  $client->execute('p2', 2)->sync,
	  $client->close_portal('p1')->sync,
	  $client->execute('p3', 0)->sync,
	  $client->query('SAVEPOINT s'),
	  $client->bind('p4', 's1')->execute('p4', 1)->sync,
	  $client->query('SELECT 1 / (a - a) FROM t'),
	  $client->query('ROLLBACK TO s'),
	  $client->execute('p2', 1)->sync,
	  $client->query('COMMIT'),
	  $client->bind('', 's1')->execute('', 0)->sync;
	$client->quit;
	return join "\n", @answers;
}

# Run everything with these libraries loaded.  Returns what the clients saw,
# what the server's log says of it, and the records.  more_extensions is a list
# of extensions to create besides those that are named as libraries.
sub run_with
{
	my ($libraries, %options) = @_;
	my $more = $options{more_extensions} // [];
	my ($stdout, $stderr, $answers, $log);

	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries',
		"'" . join(', ', @$libraries) . "'");
	$node->start;
	set_up();
	unaudited_sql($node, "CREATE EXTENSION $_")
	  foreach grep({ /^pg_/ } @$libraries), @$more;

	my $log_start = -s $node->logfile;
	my @records = records_for(
		$node,
		sub {
			$node->psql(
				'postgres', $workload,
				stdout        => \$stdout,
				stderr        => \$stderr,
				on_error_stop => 0);
			$answers = extended_workload();
		});
	$log = slurp_file($node->logfile, $log_start);

	foreach my $name (grep { exists $notes{$_} } @$libraries)
	{
		my @notes = $notes{$name}->($log);

		# as when it was loaded for the first time
		$noted{$name} //= \@notes if !@$more;
		same_lines($noted{$name}, \@notes, "@$libraries: $name works as ever")
		  if !@$more;
	}
	is(stats($node)->{dropped}, 0, "@$libraries: no record is dropped");

	# Planning of two statements fails, and of their parameters nothing can be told then.
	is(join(', ', map { $_->{exitCode} } grep { $_->{incomplete} } @records), '22012, 22012',
		"@$libraries: no other record is incomplete");
	is(stats($node)->{incomplete}, 2, "@$libraries: as the statistics say");
	unlike(
		$log,
		qr/(?:PANIC|terminated by signal|stack is not empty)/,
		"@$libraries: nothing bad in the server's log");
	clean_up();
	$node->stop;

	# either the session or one of its workers is the first to fail
	$stderr =~ s/\nCONTEXT:  parallel worker$//mg;
	return ("$stdout\n$stderr\n$answers",
		$log, grep { $_->{class} !~ /^(?:CONNECT|CONFIG)$/ } @records);
}

# A record as text, without what differs from run to run.  Sessions are named
# by their order.
sub texts_of
{
	my (@records) = @_;
	my %session;

	return map {
		$session{ $_->{pid} } //= 1 + keys %session;
		my $text = join '|', $session{ $_->{pid} },
		  map { ref $_ eq 'ARRAY' ? join(',', @$_) : $_ // '' } @$_{
			qw(statementId substatementId auditType class command objectType
			  objectName exitCode rowCount commandText paramList incomplete)
		  };
		$text =~ s/\|pg_temp_\d+\./|pg_temp./r;
	} @records;
}

# Test that two lists are the same.  The first difference tells enough.
sub same_lines
{
	my ($expected, $got, $name) = @_;
	my $i = 0;

	$i++
	  while $i < @$expected && $i < @$got && $expected->[$i] eq $got->[$i];

	# report the caller's line
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($i == @$expected && $i == @$got, $name)
	  or diag "at $i of "
	  . @$expected
	  . "\nexpected: "
	  . ($expected->[$i] // 'nothing')
	  . "\ngot:      "
	  . ($got->[$i] // 'nothing');
	return;
}

my ($saw, undef, @alone) = run_with(['pg_audit_queue']);
my @expected = texts_of(@alone);
my %commands = map { $_->{command} => 1 } @alone;

cmp_ok(scalar @alone, '>', 150, 'the work leaves records');
ok( exists $commands{$_}, "$_ is among them")
  foreach 'SELECT', 'INSERT', 'MERGE', 'CALL', 'COPY', 'FETCH', 'EXECUTE',
  'CREATE TABLE', 'DO', 'COMMIT';
cmp_ok(scalar(grep { $_->{exitCode} ne '00000' } @alone),
	'>', 10, 'and failures');
unlike($saw, qr/AUDIT/, 'clients do not see them');

foreach my $libraries (
	(map { ([ $_, 'pg_audit_queue' ], [ 'pg_audit_queue', $_ ]) } @neighbours),
	[ @neighbours, 'pg_audit_queue' ],
	[ 'pg_audit_queue', reverse @neighbours ],
	@neighbours < 3
	? ()
	: ([ @neighbours[ 0, 1 ], 'pg_audit_queue', @neighbours[ 2 .. $#neighbours ] ],
		[ @neighbours[ 2 .. $#neighbours ], 'pg_audit_queue', @neighbours[ 0, 1 ] ]))
{
	my ($sees, undef, @records) = run_with($libraries);

	same_lines(
		[ split /\n/, $saw ],
		[ split /\n/, $sees ],
		"@$libraries: clients see the same");
	same_lines(\@expected, [ texts_of(@records) ],
		"@$libraries: the same records");
}

# Neighbours have seen the work
foreach my $name (grep { $_ ne 'plpgsql' } @neighbours)
{
	cmp_ok(scalar @{ $noted{$name} }, '>', 50, "$name has noted something");
}

# pgaudit's event triggers run queries, which are queries like any others: they
# have records, and the numbers within the statement go on behind them.  Ours
# run none that pgaudit could see.
SKIP:
{
	my $own_query = qr/pg_event_trigger_(?:ddl_commands|dropped_objects)\(\)/;

	skip 'pgaudit is not there', 1 if !grep { $_ eq 'pgaudit' } @neighbours;
	foreach my $libraries ([ 'pgaudit', 'pg_audit_queue' ], [ 'pg_audit_queue', 'pgaudit' ])
	{
		my $name = "@$libraries, both with event triggers";
		my (undef, $log, @records) =
		  run_with($libraries, more_extensions => ['pgaudit']);
		my @queries = grep { $_->{commandText} =~ $own_query } @records;

		cmp_ok(scalar @queries, '>', 10, "$name: pgaudit's queries");
		unlike($log, qr/AUDIT: .*$own_query/,
			"$name: pgaudit has none of ours");
		same_lines(
			[ map { s/^(\d+\|\d+\|)\d+/$1/r } @expected ],
			[
				map { s/^(\d+\|\d+\|)\d+/$1/r }
				  texts_of(grep { $_->{commandText} !~ $own_query } @records)
			],
			"$name: otherwise the same records");
	}
}

done_testing();
