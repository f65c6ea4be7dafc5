# What the server says, and does, when it cannot audit as it should: no place
# for a background worker, sessions that wait, single-user mode.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use IPC::Run;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { queue_size => '64kB' },
	conf     => "autovacuum = off\n");
my $data = $node->data_dir;
my $dir  = trail_dir($node);

# Places for background workers.  The launcher of logical replication takes one
# before any library can.

$node->stop;
foreach my $case ([ 1, 4, 0 ], [ 0, 0, 0 ], [ 1, 0, 1 ], [ 2, 4, 1 ])
{
	my ($places, $replication, $starts) = @$case;
	my $label    = "$places places, replication $replication";
	my $position = -s $node->logfile;

	$node->append_conf('postgresql.conf',
		"max_worker_processes = $places\nmax_logical_replication_workers = $replication\n");
	is($node->start(fail_ok => 1) ? 1 : 0, $starts,
		"$label: the server " . ($starts ? 'starts' : 'does not start'));
	if ($starts)
	{
		flush_trail($node);
		$node->stop;
		next;
	}
	my $log = slurp_file($node->logfile, $position);
	like($log, qr/FATAL:  could not register the background worker of pg_audit_queue/,
		"$label: and says why");
	like($log, qr/HINT:  Increase the configuration parameter "max_worker_processes"\./,
		"$label: and what to do");
}

# The loader finds none: records stay in files, and that is said.

my $position = -s $node->logfile;
$node->append_conf('postgresql.conf', settings_text(sink => 'table'));
$node->start;
ok( wait_for_log($node,
		qr/WARNING:  audit records cannot be loaded into the table: could not register a background worker/,
		$position),
	'no place for the loader: the log says so');
ok( poll_until(sub { (stats($node)->{last_error} // '') eq 'could not register the loader' }),
	'and the statistics');
$node->stop;
$node->append_conf('postgresql.conf',
	settings_text(sink => 'file') . "max_worker_processes = 8\n");
$node->start;

# Sessions that wait.  The user learns why, and the log has the reason in full.

sub wait_in_vain
{
	my ($label, $context, $detail) = @_;
	my $position = -s $node->logfile;
	my $session = start_psql(
		$node, q{SELECT 'waits'},
		name     => 'waits',
		settings => { mode => 'immediate', log => 'read' });
	my $pid = wait_until_waiting($node, 'waits');

	ok($pid, "$label: a session waits");
	if ($detail)
	{
		ok( poll_until(sub { slurp_file($session->{stderr}) =~ /^WARNING:  [^\n]*\Q$context\E$/m }),
			"$label: the user is told why");
		ok(wait_for_log($node, qr/DETAIL:  \Q$detail\E/, $position),
			"$label: the server log has the reason");
		unlike(slurp_file($session->{stderr}), qr/\Q$detail\E/,
			"$label: names of files are not for the user");
	}
	is(unaudited_sql($node, "SELECT pg_cancel_backend($pid)"), 't', "$label: it is cancelled");
	like(
		(finish_psql($session))[2],
		qr/^ERROR:  57014: .*^CONTEXT:  \Q$context\E$/ms,
		"$label: the error says what it was waiting for");
	return;
}

my $worker = worker_pid($node);
kill('STOP', $worker);
wait_in_vain('a worker that is stopped', 'waiting for the audit trail');
kill('CONT', $worker);

flush_trail($node);
rename($dir, "$data/moved") or die "rename: $!";
append_to_file($dir, "no directory\n");
# one record: more would fill the queue in the end, and wait
$node->safe_psql('postgres', 'SELECT 1');
poll_until(sub { (stats($node)->{last_error} // '') =~ /could not create file/ })
  or die 'the sink does not fail: ' . (stats($node)->{last_error} // 'no error');
wait_in_vain('a trail that cannot be written',
	'waiting for the audit trail, which cannot be written',
	'could not create file "audit/');
unlink($dir) or die "unlink: $!";
rename("$data/moved", $dir) or die "rename: $!";
flush_trail($node);

# Single-user mode: more records than the queue takes, and all in one trail.

unaudited_sql($node, 'SELECT audit_rotate()');
my $first = flush_trail($node) + 1;
foreach my $file (trail_files($node))
{
	unlink($file) or die "unlink: $!" if $file ne "$data/" . stats($node)->{current_file};
}

# Returns whether all went well, and what the session said.
sub single_user
{
	my ($settings, @statements) = @_;
	my $input = join '', map { "$_\n" } @statements;
	my $output;
	my $ok = IPC::Run::run(
		[
			$node->installed_command('postgres'), '--single', '-D', $data,
			(map { ('-c', "pg_audit_queue.$_=$settings->{$_}") } sort keys %$settings),
			'postgres'
		],
		'<', \$input, '>&', \$output);

	return ($ok, $output);
}

# The numbers in texts like "'label 12'" of records that have worked
sub numbers
{
	my ($label) = @_;

	return map { ($_->{commandText} // '') =~ /'\Q$label\E (\d+)'/ && $_->{exitCode} eq '00000' ? $1 : () }
	  trail_records($node);
}

foreach my $mode (qw(queued immediate))
{
	$node->stop;
	my ($ok, $output) = single_user({ mode => $mode, log => 'all' },
		map { ("SELECT '$mode $_'", "SELECT '$mode $_' / 0") } 1 .. 600);

	ok($ok, "single-user mode, $mode: the session comes to its end");
	unlike($output, qr/audit queue is full|found no space/, "$mode: with space for all records");
	is((numbers($mode))[-1], '600', "$mode: all that the session waited for is in the trail")
	  if $mode eq 'immediate';
	$node->start;
	flush_trail($node);
	is_deeply([ numbers($mode) ], [ 1 .. 600 ], "$mode: each statement is there once");
	is(scalar(grep { ($_->{commandText} // '') =~ m{'$mode \d+' / 0} && $_->{exitCode} ne '00000' }
			trail_records($node)), 600, "$mode: and each that failed");
	is(stats($node)->{dropped}, 0, "$mode: nothing is dropped");
}

# The trail cannot be written: statements fail when the queue is full, and what
# has succeeded is there when the server has started again.

$node->stop;
mkdir("$data/read_only", 0700) or die "mkdir: $!";
my ($ok, $output) = single_user({ log_directory => 'read_only', log => 'all' },
	"COPY (SELECT 1) TO PROGRAM 'chmod 0500 read_only'",
	map { "SELECT 'refused $_'" } 1 .. 300);
like($output, qr/WARNING:  audit trail cannot be written: could not create file "read_only/,
	'single-user mode: it is said that the trail cannot be written');
like($output, qr/ERROR:  audit queue is full/, 'then statements fail');
$node->start;
flush_trail($node);
my @numbers = numbers('refused');
cmp_ok(scalar @numbers, '>', 50, 'those that have succeeded are in the trail');
is_deeply(\@numbers, [ 1 .. @numbers ], 'each of them');
cmp_ok(scalar(grep { ($_->{commandText} // '') =~ /'refused \d+'/ && $_->{exitCode} eq '53400' }
		trail_records($node)), '>', 10, 'and so are those that failed');
check_trail($node, 'the trail is whole', first => $first);
$node->stop;

done_testing();
