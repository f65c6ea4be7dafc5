# A slow worker is not a stuck worker: with overflow = error, a session goes on
# waiting while the worker writes a record for longer than it may go without
# progress.  The worker is stopped again and again, and writes a part of the
# record in between.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;
use Time::HiRes qw(sleep time);

use PostgreSQL::Test::Utils;

# Longer than a worker that makes no progress is waited for, in seconds
use constant WRITING_TIME => 9;

# Characters of the record, each of which is two in the trail
use constant RECORD_SIZE => 120_000_000;

my $node = audited_node(
	'main',
	settings => {
		flush_interval    => '1h',
		flush_threshold   => 50,
		log_rotation_size => 0,
		overflow          => 'error',
		queue_size        => '64kB',
	});

$node->safe_psql('postgres', "SELECT 'first'");
flush_trail($node);
my ($file) = trail_files($node);
my $size   = -s $file;
my $worker = worker_pid($node);

sub signal_worker
{
	my ($signal) = @_;

	kill($signal, $worker) == 1 or die "could not send SIG$signal to $worker: $!";
	return;
}

signal_worker('STOP');
$node->safe_psql(
	'postgres', sprintf
	  q{DO $$ BEGIN EXECUTE 'SELECT ''large'' -- ' || repeat('"', %d); END $$},
	RECORD_SIZE);
my $filler = start_psql(
	$node, join('', map { "SELECT 'filler $_';\n" } 1 .. 1000),
	name => 'filler');
ok(wait_until_waiting($node, 'filler'), 'a session waits for space');

my $end = time + WRITING_TIME;
my $parts = 0;
while (time < $end)
{
	my $before = -s $file;

	signal_worker('CONT');
	poll_until(sub { -s $file > $before }) or last;
	signal_worker('STOP');
	$parts++;
	sleep 1;
}
cmp_ok($parts, '>=', 5, 'the record is written in parts');
cmp_ok(-s $file, '<', $size + 2 * RECORD_SIZE, 'and is not complete yet');
ok(wait_until_waiting($node, 'filler'), 'the session still waits');
signal_worker('CONT');
my ($status, undef, $stderr) = finish_psql($filler);
is($status, 0, 'and then goes on') or diag($stderr);
flush_trail($node);
is( scalar(grep { /"commandText":"SELECT 'filler \d+';?"/ } trail_lines($node)),
	1000, 'all is recorded');
is(scalar(grep { length > 2 * RECORD_SIZE } trail_lines($node)),
	1, 'and the record that took long');
$node->stop;

done_testing();
