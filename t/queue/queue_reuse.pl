# A queue that does not fill up stays in the first pages of its ring, although there
# are always records in it: the worker skips what is left of a lap.  What it has not
# released at that time is in the way of the next lap: if the sink then fails, the queue
# takes no less than it did before, and nothing is lost in a crash.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/queue_files";
use PaqTest;
use QueueFile;
use SavedState;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $layout = QueueFile::layout();

# What is in the file of a node's queue
sub queue_of
{
	my ($node) = @_;

	return QueueFile->parse(SavedState::read_file(queue_dir($node) . '/queue'));
}

# With records in the way
sub skips
{
	my ($queue) = @_;

	return grep { $_->{skip} && $_->{length} > 0 } $queue->frames;
}

# Under load

my $busy = audited_node('busy', settings => { queue_size => '64kB', flush_threshold => 20 });
my $load = start_load($busy, 'busy', clients => 3, statements => 4000, pause => 0);
my $seen;

ok( poll_until(
		sub {
			$seen = (skips(queue_of($busy)))[0];
			return $seen || !grep { $_->{run}->pumpable } @{ $load->{sessions} };
		})
	  && $seen,
	'what is left of a lap is skipped while there are records in the queue');
is(finish_load($load), 12000, 'all statements succeed');
flush_trail($busy);
check_load($load, [ check_trail($busy, 'under load: the trail is whole') ],
	'each has its record');
$busy->stop;

# The sink fails right after a skip

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { queue_size => '1MB', flush_interval => '1h', flush_threshold => 80 },
	conf         => "restart_after_crash = on\nautovacuum = off\n");

# Statements with records of some 3 kB
sub statements
{
	my ($label, @numbers) = @_;

	return join '', map { "SELECT '$label $_'" . ', 1' x 1000 . ";\n" } @numbers;
}

# Numbers of those that are among records, in order
sub numbers
{
	my ($label, @records) = @_;

	return join ' ', map { ($_->{commandText} // '') =~ /'\Q$label\E (\d+)'/ ? $1 : () } @records;
}

# Let the worker skip what is left of a lap, with five records in the way, of which it
# cannot write anything for now.
sub skip_and_fail
{
	my ($label) = @_;
	my $worker = worker_pid($node);
	my $log    = -s $node->logfile;
	my $number = 0;
	my $queue;

	flush_trail($node);
	do
	{
		$node->safe_psql('postgres', statements("$label before", ++$number));
		$queue = queue_of($node);
	} until $queue->{reserved} % $queue->{ring_size} >= 300 * 1024
	  && $queue->{reserved} % $queue->{ring_size} < 500 * 1024;
	set_faults($node, flushed => 'stop');
	# a record of its own might come before the skip
	my $flush = start_psql($node, 'SELECT audit_flush()', user => 'paq_quiet');
	wait_until_stopped($worker) or die 'the worker goes on';
	$node->safe_psql('postgres', statements("$label pending", 1 .. 5));
	set_faults($node, 'trail-write' => 28);
	kill('CONT', $worker) == 1 or die "kill: $!";
	wait_for_log($node, qr/audit trail cannot be written/, $log)
	  or die 'the trail can be written';
	finish_psql($flush);

	my ($skip) = reverse skips(queue_of($node));
	ok($skip && $skip->{length} > 15000, "$label: there is a skip with records in the way");
	return $skip;
}

$node->append_conf('postgresql.conf', "pg_audit_queue.overflow = drop\n");
$node->reload;
my $skip = skip_and_fail('full');
$node->safe_psql('postgres', statements('full', 1 .. 600));
cmp_ok(stats($node)->{queue_used},
	'>', 850 * 1024, 'the queue takes as much as if there was no skip');
cmp_ok(stats($node)->{dropped_full}, '>', 0, 'before it drops records');
my $queue = queue_of($node);
cmp_ok($queue->{reserved} - $queue->{released},
	'>', $queue->{ring_size}, 'more than a lap lies between its positions');
set_faults($node);
flush_trail($node);
my @records  = check_trail($node, 'full: the trail is whole');
my @recorded = split / /, numbers('full', @records);
is(numbers('full pending', @records), '1 2 3 4 5', 'full: what was in the way is there');
is("@recorded", join(' ', 1 .. @recorded), 'what was not dropped is there, in order');
is( join(' ', map { $_->{errorMessage} =~ /^(\d+ audit records were dropped)/ }
			grep { $_->{type} eq 'gap' } @records),
	stats($node)->{dropped_full} . ' audit records were dropped',
	'and only what was dropped is missing');
cmp_ok(stats($node)->{queue_high_water}, '<=', 1024 * 1024, 'the queue was never fuller than full');

# A crash of the server

$node->append_conf('postgresql.conf', "pg_audit_queue.overflow = wait\n");
$node->reload;
skip_and_fail('crash');
$node->safe_psql('postgres', statements('crash', 1 .. 150));
$queue = queue_of($node);
cmp_ok($queue->{reserved} - $queue->{released},
	'>', $queue->{ring_size}, 'crash: there are records behind what was in the way');
my $gaps = grep { $_->{type} eq 'gap' } @records;
crash_node($node);
set_faults($node);
start_again($node);
flush_trail($node);
@records = check_trail($node, 'crash: the trail is whole');
is(numbers('crash pending', @records), '1 2 3 4 5', 'crash: what was in the way is there');
is(numbers('crash', @records), join(' ', 1 .. 150), 'and what came behind it');
is(scalar(grep { $_->{type} eq 'gap' } @records), $gaps, 'crash: nothing is missing');

# A crash of the operating system, which loses the last record of what was in the way

$skip = skip_and_fail('lost');
$node->safe_psql('postgres', statements('lost', 1 .. 150));
$queue = queue_of($node);
my ($victim) = grep { $_->{pos} + $_->{size} == $skip->{pos} } $queue->frames;
like($victim->{record}, qr/lost pending 5/, 'what the skip is behind');

# It would sync the file if it noticed that the postmaster has died.
my $stopped = worker_pid($node);
kill('STOP', $stopped) == 1 or die "kill: $!";
crash_node($node, $stopped);
set_faults($node);
open my $fh, '+<:raw', queue_dir($node) . '/queue' or die "queue: $!";
seek($fh, $victim->{ranges}[0][0] + $victim->{size} / 2, 0);
print $fh "\0" x 8;
seek($fh, $queue->{live} + $layout->{'live.boot_id'}, 0);
print $fh 'anotherb';
close $fh;
start_again($node);
flush_trail($node);
@records = trail_records($node);
is(numbers('lost pending', @records), '1 2 3 4', 'a record that was in the way is lost');
is(numbers('lost', @records), join(' ', 1 .. 150), 'but none behind it');
my @gaps = grep { $_->{type} eq 'gap' } @records;
is(scalar @gaps, $gaps + 2, 'lost: there are two gaps');
like($gaps[-2]{errorMessage}, qr/^$victim->{size} bytes of the audit queue are damaged or missing/,
	'of the record that is lost');
like($gaps[-1]{errorMessage}, qr/operating system was restarted/, 'and of the crash');
ok(!defined $gaps[-2]{endTime} || $gaps[-2]{endTime} =~ /^20[2-9]/,
	'its time is none that was taken from somewhere else')
  or diag($gaps[-2]{endTime});

# A session that is slow to take a detour takes one when it is not needed any more,
# where the worker is about to skip.  That is not the skip which allows others to go on
# behind it.

$node->append_conf('postgresql.conf', "pg_audit_queue.overflow = drop\n");
$node->reload;
skip_and_fail('late');
my $worker = worker_pid($node);
set_faults($node, 'trail-write' => 28, 'detour-claimed' => 'stop');
my $slow = start_psql($node, statements('late', 1 .. 150), name => 'slow');
my $pid;
poll_until(
	sub {
		$pid = unaudited_sql($node,
			"SELECT pid FROM pg_stat_activity WHERE application_name = 'slow'");
		return $pid && is_stopped($pid);
	}) or die 'nobody takes a detour';
set_faults($node, 'skip-claimed' => 'stop');
wait_until_stopped($worker) or die 'the worker goes on';
set_faults($node);
kill('CONT', $pid) == 1 or die "kill: $!";
finish_psql($slow);
$node->safe_psql('postgres', statements('late', 151 .. 600));
kill('CONT', $worker) == 1 or die "kill: $!";
flush_trail($node);
my $known = @gaps;
@records  = check_trail($node, 'late: the trail is whole');
@recorded = split / /, numbers('late', @records);
is("@recorded", join(' ', 1 .. @recorded), 'late: what was not dropped is there, in order');
cmp_ok(scalar @recorded, '<', 600, 'and something was dropped');
@gaps = grep { $_->{type} eq 'gap' } @records;
is(scalar @gaps, $known + 1, 'only that is missing');
like($gaps[-1]{errorMessage}, qr/because the queue was full/, 'as the trail says');

# With overflow = error a session asks for space before it executes anything.  It is
# not refused because of what is in the way.

$node->append_conf('postgresql.conf', "pg_audit_queue.overflow = error\n");
$node->reload;
skip_and_fail('refused');
my $script = PostgreSQL::Test::Utils::tempdir() . '/refused.sql';
append_to_file($script, statements('refused', 1 .. 600));
my ($ret, $stdout, $stderr) = $node->psql('postgres', "\\i $script");
isnt($ret, 0, 'refused: not everything is executed');
like($stderr, qr/ERROR:  audit queue is full/, 'refused: the queue is full at some time');
cmp_ok(stats($node)->{queue_used},
	'>', 750 * 1024, 'but not before it has taken all but the reserve');
set_faults($node);
flush_trail($node);
@records = check_trail($node, 'refused: the trail is whole');
my @answers = $stdout =~ /^(refused \d+)/mg;
@recorded = split / /, numbers('refused', @records);
is("@recorded", join(' ', 1 .. @answers + 1), 'refused: each statement is there, and the last that failed');
is(scalar(grep { $_->{type} eq 'gap' } @records), scalar(@gaps), 'refused: nothing is missing');

$node->stop;
done_testing();
