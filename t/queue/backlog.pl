# Files that a crash leaves in the queue directory, and what the next start does
# with them: files that cannot be removed, copies from elsewhere, files that are not a queue.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Copy;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node('main', settings => { flush_interval => '1h' });
my $queue = queue_dir($node);
my @records;

# Names of files in the queue directory, without its lock.
sub queue_files
{
	return sort grep { /^(?:queue|spill)/ } slurp_dir($queue);
}

# Wait until only the live file is there.
sub wait_until_drained
{
	return poll_until(sub { join(' ', queue_files()) eq 'queue' });
}

# Crash the server with a record in the queue, so that it leaves backlog.
sub crash_with_record
{
	my ($text) = @_;
	my $worker = worker_pid($node);

	kill('STOP', $worker) == 1 or die 'no worker to stop';
	$node->safe_psql('postgres', "SELECT '$text'");
	crash_node($node, $worker);
	return;
}

# Backlog goes away when it is drained; a copy that comes back later is not read
crash_with_record('first of two');
start_again($node);
ok(wait_until_drained(), 'backlog goes away');
copy("$queue/queue", "$queue/queue.1") or die "could not copy: $!";
chmod(0600, "$queue/queue.1");
$node->safe_psql('postgres', "SELECT 'after the copy'");
flush_trail($node);
my @before = trail_lines($node);
my $log_offset = -s $node->logfile;

# queue.1 now is a copy of a file of this very server, with an old checkpoint
$node->restart;
ok(poll_until(sub { grep { /^queue\.bad\./ } queue_files() }),
	'a copied backlog file is set aside');
ok(wait_for_log($node, qr/audit queue file ".*queue\.1" was set aside as/, $log_offset),
	'which the log says');
$node->safe_psql('postgres', "SELECT 'after the restart'");
flush_trail($node);
my @after = trail_lines($node);
is_deeply([ @after[ 0 .. $#before ] ], \@before, 'the trail was not cut');

# Backlog that is drained while nothing can be removed from the directory.  Its
# checkpoint must not be taken for the end of the trail at the next start.  A
# new directory, so that a new file is needed, and a file name that is too long
# keep the trail from being written until then.
my %impossible = (log_directory => 'elsewhere', log_filename => '%A' x 60);
my %possible = (log_directory => 'audit', log_filename => 'audit-%Y-%m-%d_%H%M%S');
crash_with_record('in the stubborn file');
$node->append_conf('postgresql.conf', settings_text(%impossible));
start_again($node);
ok(poll_until(sub { (stats($node)->{last_error} // '') =~ /could not create file/ }),
	'the trail cannot be written');
is_deeply([ grep { /^queue\.\d+$/ } queue_files() ],
	['queue.1'], 'so there is backlog');
$log_offset = -s $node->logfile;
chmod(0500, $queue) or die "could not change permissions: $!";
$node->append_conf('postgresql.conf', settings_text(%possible));
$node->reload;
ok(wait_for_log($node, qr/could not remove file ".*queue\.1"/, $log_offset),
	'a backlog file cannot be removed');
$node->safe_psql('postgres', "SELECT 'after the stubborn file'");
flush_trail($node);
chmod(0700, $queue) or die "could not change permissions: $!";
@before = trail_lines($node);
$node->restart;
ok(poll_until(sub { !grep { /^queue\.\d+$/ } queue_files() }),
	'it is removed at the next start');
$node->safe_psql('postgres', "SELECT 'after all'");
flush_trail($node);
@after = trail_lines($node);
is_deeply([ @after[ 0 .. $#before ] ], \@before, 'the trail was not cut then');

# A backlog file that is none
$log_offset = -s $node->logfile;
append_to_file("$queue/queue.7", 'no queue');
$node->restart;
ok( poll_until(
		sub {
			slurp_file($node->logfile, $log_offset) =~
			  /audit queue file ".*queue\.7" was set aside as/;
		}),
	'a file that is no queue is set aside');
flush_trail($node);
@records = check_trail($node, 'the trail is whole');
is(scalar(grep { $_->{type} eq 'gap' } @records),
	2, 'a GAP record tells of it, as one did of the copy');
is_deeply(
	[ map { ($_->{commandText} // '') =~ /^SELECT '(\w[\w ]*)'/ ? $1 : () } @records ],
	[
		'first of two', 'after the copy', 'after the restart',
		'in the stubborn file', 'after the stubborn file',
		'after all'
	],
	'each record is there once, in order');

$node->stop;
done_testing();
