# The worker: the processes in which it runs, and that it sleeps when there is
# nothing to do.  No record is lost or doubled when the worker is ended or
# killed.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { flush_interval => '200ms' },
	conf     => "restart_after_crash = on\nautovacuum = off\n");

# What it is

my $pid = worker_pid($node);
is( unaudited_sql(
		$node,
		"SELECT count(*) FROM pg_stat_activity
		  WHERE pid = $pid AND datid IS NOT NULL"),
	'0',
	'the worker is in no database');
SKIP:
{
	skip 'no /proc here', 1 if !-r "/proc/$pid/cmdline";
	like(slurp_file("/proc/$pid/cmdline"),
		qr/pg_audit_queue worker/, 'its process says what it is');
}

# Databases come and go without it

foreach my $strategy (qw(wal_log file_copy))
{
	is( $node->psql(
			'postgres', "SET statement_timeout = '60s';
			CREATE DATABASE passing STRATEGY $strategy"),
		0,
		"CREATE DATABASE, strategy $strategy");
	$node->safe_psql('passing', q{SELECT 'in a passing database'});
	is( $node->psql(
			'postgres',
			q{SET statement_timeout = '60s'; DROP DATABASE passing}),
		0,
		'DROP DATABASE');
}

# An idle server; t/044_lifecycle.pl counts for longer.

flush_trail($node);
my $wakeups = worker_at_rest($node);
ok($wakeups, 'the worker comes to rest');

# The next record ends that.  The trail's files are looked at here, which
# wakes nobody.

$node->safe_psql('postgres', q{SELECT 'after the rest'});
ok(poll_until(sub { texts_in_trail($node, 'after the rest') }),
	'the next record is written, without anybody asking for it');
ok( poll_until(
		sub {
			my $stats = stats($node);

			return $stats->{flushed} == $stats->{published};
		}),
	'and flushed');
cmp_ok(stats($node)->{wakeups}, '>', $wakeups, 'the worker woke up for it');

# Terminated and killed under load.  SIGTERM lets the worker write what there
# is; sessions stay.  SIGKILL makes PostgreSQL start again.

my @loads;
foreach my $case (
	[ 'TERM', 'queued',    'term-q' ],
	[ 'TERM', 'immediate', 'term-i' ],
	[ 'TERM', 'commit',    'term-c' ],
	[ 'KILL', 'queued',    'kill-q' ],
	[ 'KILL', 'immediate', 'kill-i' ],
	[ 'KILL', 'commit',    'kill-c' ],
	(full_tests() ? map { [ 'KILL', 'immediate', "kill-$_" ] } 1 .. 20 : ()))
{
	my ($signal, $mode, $label) = @$case;
	my $old_pid = worker_pid($node);

	# KILL has to come before they are done.
	my $load = start_load(
		$node, $label,
		settings   => { mode => $mode },
		clients    => 3,
		statements => $signal eq 'KILL' ? 3000 : 500);

	ok(poll_until(sub { texts_in_trail($node, "'$label-1-20'") }),
		"$mode: clients are at work");
	kill($signal, $old_pid) == 1 or die "could not signal process $old_pid: $!";
	my $new_pid = wait_for_worker($node, $old_pid);

	isnt($new_pid, $old_pid, "another worker after SIG$signal");
	my $succeeded = finish_load($load);
	if ($signal eq 'TERM')
	{
		is($succeeded, $load->{number}, 'all clients have come through');
	}
	else
	{
		cmp_ok($succeeded, '>', 20,             'clients had success');
		cmp_ok($succeeded, '<', $load->{number}, 'until they were cut off');
	}
	push @loads, $load;
}

# On an idle server it goes at once.  While there are sessions it stays for
# some seconds; then they have to wait for the next one.

$pid = kill_worker($node, 'TERM');
ok(wait_for_worker($node, $pid), 'restarted on an idle server');
my $load = start_load(
	$node, 'outlive',
	clients    => 1,
	statements => 400,
	pause      => 0.02,
	settings   => { mode => 'immediate' });
ok(poll_until(sub { texts_in_trail($node, "'outlive-1-1'") }),
	'a client is at work');
$pid = kill_worker($node, 'TERM');
ok(wait_for_worker($node, $pid), 'another worker');
ok(!texts_in_trail($node, "'outlive-1-400'"), 'while the client is at work');
is(finish_load($load), 400, 'which has waited for it');
push @loads, $load;

flush_trail($node);
my @records = check_trail($node, 'the trail is whole');
check_load($_, \@records, "$_->{label}: once each") foreach @loads;

# Not a session, so not to be ended by SQL

$pid = worker_pid($node);
my ($status, $stdout, $stderr) =
  $node->psql('postgres', "SELECT pg_terminate_backend($pid)");
is($status, 0, 'pg_terminate_backend() of the worker does no harm');
wait_for_worker($node);
$node->safe_psql('postgres', q{SELECT 'at the end'});
$node->stop;
is(texts_in_trail($node, 'at the end'),
	1, 'a clean stop writes the last records');
check_trail($node, 'and the trail is whole');

done_testing();
