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

# Is the session idle, or waiting for the worker?
sub is_at_rest
{
	my ($name) = @_;

	return unaudited_sql(
		$node, "SELECT state = 'idle' OR wait_event_type = 'Extension'
				FROM pg_stat_activity WHERE application_name = '$name'") eq 't';
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

$node->stop;
done_testing();
