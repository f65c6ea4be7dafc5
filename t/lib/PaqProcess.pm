#-------------------------------------------------------------------------
#
# PaqProcess.pm
#	Processes: the worker, clients that wait, and a server whose clock or disk is
#	not what it seems.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqProcess;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use Time::HiRes qw(sleep time);

use PostgreSQL::Test::Utils;

use PaqBuild;
use PaqServer;

our @EXPORT = qw(
  cause_crash
  finish_psql
  give_trail_back
  is_stopped
  kill_worker
  last_sleep
  set_clock
  set_disk
  shut_down_node
  signal
  start_psql
  start_with_clock
  start_with_disk
  stop_clock
  take_trail_away
  wait_for_worker
  wait_until_stopped
  wait_until_waiting
  worker_at_rest
);

# start_with_clock($node): start a node that was not started by audited_node(), with a
# clock that set_clock() sets, and the extension in database postgres.  Returns false if the
# clock is the machine's: a server that is built with sanitizers has no other.
my %clock_file;

# start_with_disk($node): start a node that was not started by audited_node(), on
# file systems of which set_disk() says how full they are, with the extension in
# database postgres.  Not for a server that is built with sanitizers.
my %disk_file;

# worker_at_rest($node): waits until the worker does not wake up any more, and
# returns how often it has; undef if it does not come to rest.
sub worker_at_rest
{
	my ($node) = @_;
	my $wakeups;

	poll_until(
		sub {
			my $before = $wakeups // -1;

			sleep 0.5;
			$wakeups = stats($node)->{wakeups};
			return $wakeups == $before;
		}) or return;
	return $wakeups;
}

# wait_for_worker($node, $old_pid): wait until a worker runs, another one than
# $old_pid if that is given.  Returns its process id.
sub wait_for_worker
{
	my ($node, $old_pid) = @_;

	return poll_until(
		sub {
			# the server may be on its way up again
			my $pid = eval { stats($node)->{worker_pid} };

			return $pid && $pid != ($old_pid // 0) ? $pid : 0;
		}) || die 'no worker';
}

# kill_worker($node, $signal): send the worker a signal by name.  Returns its
# process id, which may still run.  KILL makes the whole server restart.
sub kill_worker
{
	my ($node, $signal) = @_;
	my $pid = worker_pid($node) // die 'no worker';

	signal($signal => $pid);
	return $pid;
}

# signal($signal, @pids): send processes a signal by name, each of which has to be there.
sub signal
{
	my ($signal, @pids) = @_;

	die 'no process' if !@pids || grep { !defined || $_ !~ /^\d+$/ || $_ < 2 } @pids;
	kill($signal, @pids) == @pids or die "could not signal @pids: $!";
	return;
}

# cause_crash($node, $code): the code makes a process die, so that the postmaster ends all
# others.  Returns when it has told them.
sub cause_crash
{
	my ($node, $code) = @_;
	my $position = -s $node->logfile;

	$code->();
	wait_for_log($node, qr/terminating any other active server processes/, $position) or die 'no crash';
	return;
}

# shut_down_node($node, $mode, $while): shut the server down; the code is called when that
# has begun.  Returns pg_ctl's status.
sub shut_down_node
{
	my ($node, $mode, $while) = @_;
	my $position = -s $node->logfile;
	my $stop = IPC::Run::start(
		[ 'pg_ctl', '-s', '-w', '-D', $node->data_dir, '-m', $mode, 'stop' ],
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

	wait_for_log($node, qr/received $mode shutdown request/, $position) or die 'no shutdown';
	$while->();
	$stop->finish;
	$node->_update_pid(0);
	return $stop->result(0);
}

# start_psql($node, $sql, %options): run SQL in a psql of its own and do not
# wait for it.  Results come unaligned, without headings, errors with their
# SQLSTATE.
#
# Options:
#	name		application_name
#	user		role, and
#	database	database to connect to (postgres)
#	settings	hash of the extension's settings, names without the prefix
#	stop		0: go on after an error
#
# Returns a session for finish_psql().
sub start_psql
{
	my ($node, $sql, %options) = @_;
	my %settings = %{ $options{settings} // {} };
	my $files    = PostgreSQL::Test::Utils::tempdir_short();
	my $session  = { stdout => "$files/stdout", stderr => "$files/stderr" };
	my @command  = (
		'psql', '-XAtq', '-v', 'VERBOSITY=verbose',
		'-v', 'ON_ERROR_STOP=' . ($options{stop} // 1),
		'-d', $node->connstr($options{database} // 'postgres'));

	# files, so that nobody has to be there to read or to write
	append_to_file("$files/sql", "$sql\n");
	push @command, '-U', $options{user} if defined $options{user};
	local $ENV{PGAPPNAME} = $options{name} // 'psql';
	local $ENV{PGOPTIONS} = join ' ',
	  map { "-c pg_audit_queue.$_=$settings{$_}" } sort keys %settings;
	$session->{run} = IPC::Run::start(
		\@command,
		'<', "$files/sql",
		'>', $session->{stdout},
		'2>', $session->{stderr},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $session;
}

# finish_psql($session): wait for the end of what start_psql() has started.
# Returns psql's exit status, and what it has printed and complained about.
sub finish_psql
{
	my ($session) = @_;

	$session->{run}->finish;
	return (
		$session->{run}->result(0),
		slurp_file($session->{stdout}),
		slurp_file($session->{stderr}));
}

# wait_until_waiting($node, $name): wait until the session with this
# application_name waits for the worker.  Returns its process id, or false if
# it does not wait in time.
sub wait_until_waiting
{
	my ($node, $name) = @_;

	return poll_until(
		sub {
			unaudited_sql(
				$node, "SELECT pid FROM pg_stat_activity
						 WHERE application_name = '$name'
						   AND wait_event_type = 'Extension'");
		});
}

# What the sub does happens while the worker is stopped.
sub _without_worker
{
	my ($node, $sub) = @_;
	my $worker = worker_pid($node);

	kill('STOP', $worker) == 1 or die "kill: $!";
	wait_until_stopped($worker) or die 'the worker goes on';
	$sub->();
	kill('CONT', $worker) == 1 or die "kill: $!";
	return;
}

# take_trail_away($node), give_trail_back($node): put a file in place of the directory
# of the trail, and the directory back.  The worker makes a directory if there is
# nothing.
sub take_trail_away
{
	my ($node) = @_;
	my $dir = trail_dir($node);

	_without_worker(
		$node,
		sub {
			rename $dir, "$dir.away" or die "rename: $!";
			append_to_file($dir, '');
		});
	return;
}

sub give_trail_back
{
	my ($node) = @_;
	my $dir = trail_dir($node);

	_without_worker(
		$node,
		sub {
			unlink $dir or die "unlink: $!";
			rename "$dir.away", $dir or die "rename: $!";
		});
	return;
}

sub start_with_clock
{
	my ($node) = @_;
	my $has_clock = sanitizers() eq '';
	local %ENV = %ENV;

	$clock_file{ $node->name } = PostgreSQL::Test::Utils::tempdir() . '/clock';
	set_clock($node, 0);
	@ENV{qw(LD_PRELOAD PAQ_CLOCK)} = (build_preloaded('clock'), $clock_file{ $node->name }) if $has_clock;
	$node->start;
	create_extension($node);
	return $has_clock;
}

# set_clock($node, $seconds): by how many seconds the node's time differs from ours, from
# now on.
# stop_clock($node): the postmaster's delays, which it measures by time(), last until
# set_clock().  Other clocks of the node go on, as the machine's.
sub set_clock
{
	my ($node, $seconds) = @_;
	my $file = $clock_file{ $node->name };

	# never half written
	append_to_file("$file.new", $seconds);
	rename("$file.new", $file) or die "rename: $!";
	return;
}

sub stop_clock
{
	my ($node) = @_;

	set_clock($node, '=' . int time);
	return;
}

sub start_with_disk
{
	my ($node) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/disk';

	$disk_file{ $node->name } = $file;
	local $ENV{LD_PRELOAD} = build_preloaded('disk');
	local $ENV{PAQ_DISK}   = $file;
	$node->start;
	create_extension($node);
	return;
}

# set_disk($node, %disks): from now on, the file system of paths that contain a
# name - the longest one - has that size, and so much free, an array of both, in
# bytes; see disk/disk.c.  Others are the machine's.
sub set_disk
{
	my ($node, %disks) = @_;
	my $file = $disk_file{ $node->name };

	# never half written
	append_to_file("$file.new", join '',
		map { "$_ @{ $disks{$_} }\n" } sort { length $b <=> length $a } keys %disks);
	rename("$file.new", $file) or die "rename: $!";
	return;
}

# last_sleep($node, $pid): for how long a process of that node has last gone to sleep,
# in ms; -1 for until somebody wakes it.
sub last_sleep
{
	my ($node, $pid) = @_;

	return slurp_file("$disk_file{ $node->name }.$pid") + 0;
}

# is_stopped($pid), wait_until_stopped($pid): whether a process has been stopped by a
# signal, and wait until it has been; false if that takes too long.
sub is_stopped
{
	my ($pid) = @_;

	return (eval { slurp_file("/proc/$pid/stat") } // '') =~ /\) T /;
}

sub wait_until_stopped
{
	my ($pid) = @_;

	return poll_until(sub { is_stopped($pid) });
}

1;
