# The worker: the processes in which it runs, and that it sleeps when there is
# nothing to do.  That no record is lost or doubled when it is ended or killed is in
# queue/deaths.pl.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
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

# An idle server; t/server/lifecycle.pl counts for longer.

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

flush_trail($node);
my @records = check_trail($node, 'the trail is whole');
check_load($load, \@records, "$load->{label}: once each");

# Not a session, so not to be ended by SQL

$pid = worker_pid($node);
my ($status, $stdout, $stderr) =
  $node->psql('postgres', "SELECT pg_terminate_backend($pid)");
is($stdout, 'f', 'pg_terminate_backend() does not take the worker for a session');
$node->safe_psql('postgres', q{SELECT 'at the end'});
flush_trail($node);
is(worker_pid($node), $pid, 'and does it no harm');
$node->stop;
is(texts_in_trail($node, 'at the end'),
	1, 'a clean stop writes the last records');
check_trail($node, 'and the trail is whole');

done_testing();
