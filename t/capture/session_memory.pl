#
# The memory of an audited session does not grow with the number of its
# statements, whether they are in one function or in one transaction.  Nor does
# the memory of the worker.
#
# Each kind of work runs twice, unaudited and audited, in sessions of their own.
# A session looks at its resident memory when a tenth of the work is done, and
# at every tenth from then on.  The audited session may grow by a few bytes a
# statement more than the unaudited one.
#
# With scripts/test --full the numbers of statements are in the millions.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'no /proc that tells about memory'
  if !-r '/proc/self/status' || slurp_file('/proc/self/status') !~ /^RssAnon:/m;

# How many times as much, and the kB that do not depend on the work
my $times = full_tests() ? 25 : 0.5;
use constant MARGIN => 200;

# The shortest lines that there are: the full test makes some gigabytes of them
my $node = audited_node(
	'main',
	settings => {
		flush_threshold   => 50,    # for batches as large as they get
		format            => 'pgaudit',
		log_line_prefix   => '',
		log_statement     => 'off',
		log_relation      => 'on',
		role              => 'auditor',
		log_rotation_size => '100MB'
	},
	conf => "autovacuum = off\n");

unaudited_sql(
	$node, q{
	CREATE ROLE auditor;
	CREATE TABLE t (a int);
	INSERT INTO t VALUES (1);
	GRANT SELECT ON t TO auditor;
	CREATE TABLE three (a int);
	INSERT INTO three VALUES (1), (2), (3);
	CREATE FUNCTION memory() RETURNS int LANGUAGE sql AS $$
		SELECT substring(pg_read_file('/proc/self/status')
						 FROM 'RssAnon:\s+([0-9]+) kB')::int $$;
	CREATE FUNCTION inner_most(n int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN RETURN (SELECT a + n FROM t); END $$;
	CREATE FUNCTION middle(n int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN RETURN (SELECT inner_most(n) FROM t); END $$;
	CREATE FUNCTION tenth(i int, n int) RETURNS void LANGUAGE plpgsql AS $$
		-- the i-th statement of n is done
		BEGIN
			IF i % (n / 10) <> 0 THEN RETURN; END IF;
			IF i = n / 10 THEN
				PERFORM set_config('test.first', memory()::text, false);
				PERFORM set_config('test.most', '0', false);
			END IF;
			PERFORM set_config('test.most',
				greatest(memory(), current_setting('test.most')::int)::text, false);
		END $$;});

# Run SQL in a session, whatever of it fails.  Returns by how many kB the
# session's memory has grown.
sub growth
{
	my ($sql, %settings) = @_;
	my ($stdout, $stderr);

	local $ENV{PGOPTIONS} = join ' ',
	  map { "-c pg_audit_queue.$_=$settings{$_}" } sort keys %settings;
	$node->psql(
		'postgres', $sql,
		on_error_stop => 0,
		stdout        => \$stdout,
		stderr        => \$stderr);
	$stdout =~ /^grown (-?[0-9]+)$/m or die 'the session does not tell';
	return $1;
}

# Resident memory of the worker, kB
sub worker_memory
{
	my $pid = worker_pid($node);

	slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+([0-9]+) kB/m
	  or die "no memory of process $pid";
	return $1;
}

# Test some work, which makes at least that many records.
sub bounded
{
	my ($name, $records, $sql, %settings) = @_;
	my $report = q{
		SELECT 'grown ' || current_setting('test.most')::int
						 - current_setting('test.first')::int;};
	my $without = growth($sql . $report, log => 'none', role => '');

	flush_trail($node);
	my $worker = worker_memory();
	my $before = stats($node)->{published};
	my $with = growth($sql . $report, %settings, log => 'all');

	flush_trail($node);
	my $after = stats($node)->{published};

	cmp_ok($after - $before, '>=', $records, "$name: records");
  SKIP:
	{
		skip 'built to keep what was freed', 2 if sanitizers();
		cmp_ok($with - $without, '<', MARGIN,
			"$name: memory of the session, kB ($with audited, $without not)");
		cmp_ok(worker_memory() - $worker, '<', MARGIN, "$name: memory of the worker, kB");
	}

	# the trail itself is of no use, and long
	unaudited_sql($node, 'SELECT audit_rotate()');
	my @files = trail_files($node);
	unlink @files[ 0 .. $#files - 1 ];
	return;
}

# The body of a loop that does something n times.
sub repeated
{
	my ($body, $n) = @_;

	return qq{
		DO \$do\$
		DECLARE r record; c refcursor;
		BEGIN
			FOR i IN 1 .. $n LOOP
				$body
				IF i % ($n / 10) = 0 THEN PERFORM tenth(i, $n); END IF;
			END LOOP;
		END \$do\$;};
}

# The worker gets its buffers
unaudited_sql($node, 'DO $$ BEGIN
	SET LOCAL pg_audit_queue.log = \'all\';
	FOR i IN 1 .. 100000 LOOP PERFORM a FROM t; END LOOP;
	END $$');

foreach my $case (
	[ 'SQL in a loop', 200_000, 'PERFORM a FROM t;' ],
	[ 'EXECUTE in a loop', 60_000, q{EXECUTE 'SELECT a FROM t WHERE a <> $1' USING i;} ],
	[ 'writing in a loop', 100_000, 'UPDATE t SET a = a WHERE a < 0;' ],
	[ 'utility statements in a loop', 100_000, 'SET LOCAL test.value = 1;' ],
	[
		'exceptions in a loop', 60_000,
		'BEGIN
			PERFORM 1 / (a - a) FROM t;
		 EXCEPTION WHEN division_by_zero THEN
			PERFORM a FROM t;
		 END;'
	],
	[
		'exceptions with a cursor open', 40_000,
		'BEGIN
			OPEN c FOR SELECT a FROM three; FETCH c INTO r;
			PERFORM 1 / (a - a) FROM t;
		 EXCEPTION WHEN division_by_zero THEN
			NULL;
		 END;'
	],
	[ 'nested functions', 60_000, 'PERFORM middle(i);' ],
	[
		'queries that run others', 40_000,
		'FOR r IN SELECT a FROM three LOOP PERFORM inner_most(r.a); END LOOP;'
	],
	[
		'cursors', 60_000,
		'OPEN c FOR SELECT a FROM three; FETCH c INTO r; CLOSE c;'
	],
	[ 'transactions', 60_000, 'PERFORM a FROM t; COMMIT;' ],
	[
		'parameters', 60_000,
		q{EXECUTE 'SELECT a FROM t WHERE length($1) > a' USING repeat('x', 1000);},
		log_statement => 'on', log_parameter => 'on', log_statement_once => 'off'
	])
{
	my ($name, $n, $body, %settings) = @$case;

	$n *= $times;
	bounded("$n x $name", $n, repeated($body, $n), %settings);
}

# One statement that runs all the others
my $n = 100_000 * $times;
bounded("$n calls in one statement", $n,
	"SELECT count(inner_most(i)), count(tenth(i, $n)) FROM generate_series(1, $n) i;");

# Statements that come from the client: in one transaction, and failing ones,
# in the executor and before it
sub client_statements
{
	my ($n, @statements) = @_;
	my $tenth = join "\n", (@statements) x ($n / 10 / @statements);

	return join "\n", map { ($tenth, "SELECT tenth($_ * $n / 10, $n);") } 1 .. 10;
}

$n = 60_000 * $times;
bounded("$n statements of a client in one transaction",
	$n, "BEGIN;\n" . client_statements($n, 'SELECT a FROM t;') . "\nCOMMIT;");
$n = 20_000 * $times;
bounded("$n statements of a client that fail",
	$n, client_statements($n, 'SELECT 1 / (a - a) FROM t;', 'SELECT nosuch FROM t;'));

my $stats = stats($node);
is($stats->{$_}, 0, "no record is $_") foreach 'dropped', 'incomplete';

done_testing();
