#
# What a session keeps of its records in its own memory is bounded, whatever it
# executes, and whether the queue takes records or not.
#
# The worker is stopped, the queue is full, and a session goes on in ways of which
# each leaves records that could not be published where they were finished.
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
use Time::HiRes qw(time);

plan skip_all => 'needs /proc' unless -e "/proc/$$/status";

# How much a session may grow, kB, and how long it is watched, s
use constant LIMIT => 20_000;
use constant WATCH => full_tests() ? 20 : 1.5;

my $node = audited_node(
	'main',
	settings => {
		log        => 'all, -connect',
		log_level  => 'debug5',
		queue_size => '1MB'
	},
	conf => "shared_buffers = 16MB\n");
unaudited_sql(
	$node, q{
	CREATE TABLE t (a int PRIMARY KEY);
	INSERT INTO t VALUES (1);
	CREATE TABLE fails_late (a int);
	CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM 1 / 0; RETURN NEW; END';
	CREATE TRIGGER refuse BEFORE INSERT ON fails_late FOR EACH ROW
		EXECUTE FUNCTION refuse();
	CREATE PROCEDURE committing(n int, comment text) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. n LOOP
			BEGIN
				EXECUTE 'INSERT INTO t VALUES (1) ' || comment;
			EXCEPTION WHEN OTHERS THEN
			END;
			COMMIT;
		END LOOP;
	END $$;
	CREATE PROCEDURE calling(n int, comment text) LANGUAGE plpgsql AS $$
	DECLARE x int;
	BEGIN
		FOR i IN 1 .. n LOOP
			x := f(i);
			COMMIT;
		END LOOP;
		PERFORM pg_sleep(600);
	END $$});

# A body that does something again and again
sub looped
{
	my ($what, $n) = @_;

	return "DO \$do\$ BEGIN FOR i IN 1 .. $n LOOP BEGIN $what"
	  . ' EXCEPTION WHEN OTHERS THEN END; END LOOP; END $do$';
}

# What a session does; the number of repetitions is to be put in.
my $comment = '/* ' . ('x' x 20_000) . ' */';
my %ways    = (
	'nested, failing' => looped("EXECUTE 'SELECT 1 / (a - 1) FROM t $comment';", '%d'),
	'nested, succeeding' => looped("EXECUTE 'SELECT 1 FROM t $comment';", '%d'),
	'nested, failing in a trigger' =>
	  looped("EXECUTE 'INSERT INTO fails_late VALUES (1) $comment';", '%d'),
	'nested, two levels, failing' => looped(
		"EXECUTE 'DO \$\$ BEGIN EXECUTE ''SELECT 1 / (a - 1) FROM t $comment''; END \$\$';", '%d'),
	'nested utility statements, failing' =>
	  looped("EXECUTE 'CREATE TABLE t () $comment';", '%d'),
	'nested, denied' => 'SET ROLE pg_monitor; '
	  . looped("EXECUTE 'SELECT * FROM t $comment';", '%d'),
	'in a procedure that commits' => "CALL committing(%d, '$comment')",
	'cursors, closed by an error' => looped(
		"FOR j IN 1 .. 10 LOOP
			EXECUTE format('DECLARE c%%s CURSOR WITH HOLD FOR SELECT 1 $comment', j);
		 END LOOP; PERFORM 1 / 0;", '%d'));

# Of the memory that is the session's own, kB
sub size_of
{
	my ($pid) = @_;
	my ($size) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m;

	return $size;
}

# Run the SQL with the worker stopped, and see how far the session grows.  Ends
# with the worker on its way, and the session at its end.
sub test_growth
{
	my ($name, $sql) = @_;
	my $worker  = worker_pid($node);
	my $session = start_psql($node, "SELECT 'warm';\n\\! echo\nSELECT pg_sleep(0.5);\n$sql;",
		name => 'victim', stop => 0);
	my $pid;

	poll_until(
		sub {
			$pid = unaudited_sql(
				$node, q{SELECT pid FROM pg_stat_activity
						 WHERE application_name = 'victim' AND wait_event = 'PgSleep'});
		}) or die 'the session does not begin';
	kill('STOP', $worker) == 1 or die "kill: $!";
	my $before  = size_of($pid);
	my $largest = $before;
	my $end     = time() + WATCH;

	while (time() < $end)
	{
		my $size = eval { size_of($pid) } // last;

		$largest = $size if $size > $largest;
		Time::HiRes::usleep(10_000);
	}
	kill('CONT', $worker);
	my ($status, $stdout, $stderr) = finish_psql($session);
	cmp_ok($largest - $before, '<', LIMIT, "$name: the session does not grow");
	return $stderr;
}

# How many records were dropped, for whatever reason?
sub dropped
{
	my $stats = stats($node);
	my $sum   = 0;

	$sum += $stats->{$_} foreach grep { /^dropped_/ } keys %$stats;
	return $sum;
}

# Sessions that wait go on to their end, and nothing is missing.
foreach my $way (sort keys %ways)
{
	test_growth("wait: $way", sprintf($ways{$way}, 1_500));
}
is(dropped(), 0, 'wait: nothing is missing');

# Where a session need not wait, it could go on for ever.
foreach my $overflow (qw(drop error))
{
	$node->append_conf('postgresql.conf', settings_text(overflow => $overflow));
	$node->reload;
	foreach my $way (sort keys %ways)
	{
		next unless full_tests() || $way =~ /^nested, (?:failing|succeeding)$/;
		my $timeout = WATCH + 1;

		test_growth("$overflow: $way",
			"SET statement_timeout = '${timeout}s'; " . sprintf($ways{$way}, 1_000_000));
	}
}

# ---------------------------------------------------------------------------
# With the worker at work: records of statements that go on
# ---------------------------------------------------------------------------

$node->append_conf('postgresql.conf', settings_text(overflow => 'wait'));
$node->reload;

# Size of a session that has executed the SQL up to where it sleeps, kB
sub size_asleep
{
	my ($sql, $log) = @_;
	my $session = start_psql($node, "$sql;",
		name => 'asleep', settings => { log => $log }, stop => 0);
	my $pid;

	poll_until(
		sub {
			$pid = unaudited_sql(
				$node, q{SELECT pid FROM pg_stat_activity
						 WHERE application_name = 'asleep' AND wait_event = 'PgSleep'});
		}) or die 'the session does not sleep';
	my $size = size_of($pid);
	kill('INT', $pid);
	finish_psql($session);

	# what it still has to publish at its end
	poll_until(sub { !-e "/proc/$pid/status" }) or die 'the session does not end';
	return $size;
}

my $long = '/* ' . ('x' x 50_000) . ' */';
unaudited_sql(
	$node, "CREATE FUNCTION deep(n int) RETURNS void LANGUAGE plpgsql AS '
	BEGIN
		IF n > 0 THEN
			PERFORM deep(n - 1) $long;
		ELSE
			PERFORM pg_sleep(600);
		END IF;
	END'");
my %going_on = (
	'functions, in a procedure that commits' => "CALL calling(1500, '$comment')",
	'functions in each other'                => 'SELECT deep(300)',
	'cursors'                                => "DO \$do\$
	DECLARE c refcursor;
	BEGIN
		FOR i IN 1 .. 600 LOOP
			c := 'c' || i;
			OPEN c FOR EXECUTE 'SELECT 1 $long';
		END LOOP;
		PERFORM pg_sleep(600);
	END \$do\$");

foreach my $way (sort keys %going_on)
{
	my $without = size_asleep($going_on{$way}, 'none');
	my $with    = size_asleep($going_on{$way}, 'all');

	cmp_ok($with - $without, '<', LIMIT, "$way: the session does not grow much");
	note("$way: $without kB without records, $with kB with them");
}
flush_trail($node);
is( scalar(grep { /"objectName":"public.f"/ } trail_lines($node)),
	1_500, 'each call of a procedure has its record');

# What is published beforehand are the calls: a DO block's own record waits for its end.
my ($do) = grep { $_->{command} eq 'DO' } records_for(
	$node, "DO \$do\$
	DECLARE x int; $comment
	BEGIN
		FOR i IN 1 .. 120 LOOP
			x := f(i);
			COMMIT;
		END LOOP;
		RAISE EXCEPTION 'the end';
	END \$do\$");
is("$do->{exitCode}, $do->{errorMessage}", 'P0001, the end', 'its outcome is known');
unlike(slurp_file($node->logfile), qr/could not write audit spill file/, 'spilled');
is_deeply([ grep { /^spill/ } slurp_dir(queue_dir($node)) ], [], 'no spill file is left');

$node->stop;
done_testing();
