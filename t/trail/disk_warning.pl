# The trail's disk fills: a record of class CONFIG and a warning in the server's
# log when it is three quarters full, once.
#
# How full the disk is, a library in the place of statvfs() says (disk/disk.c).
# trail/sink_failures.pl has a disk that is full.
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

plan skip_all => 'the server is built with sanitizers' if sanitizers() ne '';

# The worker looks every so often, in seconds, if it is awake.
my $delay = 10;

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { log => 'none', flush_interval => '10ms', log_rotation_age => 0 },
	conf         => "autovacuum = off\n",
	start        => 0);

# so many percent of the trail's disk are in use
sub used
{
	my ($percent, $directory) = @_;

	set_disk($node, $directory // 'audit' => [ 1_000_000_000, 10_000_000 * (100 - $percent) ]);
	return;
}

sub warnings
{
	return scalar(() = slurp_file($node->logfile) =~ /WARNING:  disk of the audit trail is/g);
}

sub disk_records
{
	flush_trail($node);
	return grep { $_->{command} eq 'DISK SPACE' } trail_records($node);
}

# After a reload the worker looks at once.  It does so before it writes the record
# of the reload.
sub look
{
	my $before = grep { $_->{command} eq 'RELOAD' } trail_records($node);

	$node->reload;
	return poll_until(
		sub {
			flush_trail($node);
			return (grep { $_->{command} eq 'RELOAD' } trail_records($node)) > $before;
		});
}

start_with_disk($node);
used(74);
ok(look(), 'the worker has looked');
is(warnings(), 0, 'no warning of a disk that is 74 percent full');

# No reload: the next look is when there are records, and some seconds have passed.
used(75);
ok( poll_until(
		sub {
			$node->safe_psql('postgres', q{SET pg_audit_queue.log = 'read'; SELECT 'at work'});
			return warnings();
		},
		$delay + $PostgreSQL::Test::Utils::timeout_default),
	'a warning of one that is 75 percent full');
like(slurp_file($node->logfile),
	qr/WARNING:  disk of the audit trail is 75 percent full
.*DETAIL:  Directory "audit": 250000000 of 1000000000 bytes are free\.
.*HINT:  Free space on this disk, .*"pg_audit_queue\.log_retention_age".*"pg_audit_queue\.log_directory"\./,
	'with figures, and what to do');
my @records;
poll_until(sub { @records = disk_records() });
is(@records, 1, 'a record of it');
is_deeply(
	[ columns('class objectType objectName oldValue newValue exitCode errorMessage backendType', @records) ],
	['CONFIG|DIRECTORY|audit||75%|01000|250000000 of 1000000000 bytes are free|pg_audit_queue worker'],
	'says the same');

# Once only, until it has become a good deal less
foreach my $percent (80, 99, 71, 76)
{
	used($percent);
	ok(look(), "$percent percent");
}
is(warnings(), 1, 'no other warning while it is about as full');
is(scalar disk_records(), 1, 'nor record');
used(69);
ok(look(), 'there is space again');
used(76);
ok(look(), 'and no more');
is(warnings(), 2, 'a second warning');
is(scalar disk_records(), 2, 'and record');

# Nobody wakes up for this.
ok(defined worker_at_rest($node), 'an idle worker');
is(last_sleep($node, worker_pid($node)), -1, 'stays asleep until somebody wakes it');

# The worker looks before it writes the record of the reload, also if it has to write
# at once: both come while it is stopped.
used(69);
ok(look(), 'space again');
used(77);
my $worker = worker_pid($node);
kill('STOP', $worker) == 1 or die "kill: $!";
set_faults($node, 'batch-written' => 'stop');
my $flush = start_psql($node, 'SELECT audit_flush()', name => 'flush', settings => { log => 'all' });
ok(wait_until_waiting($node, 'flush'), 'somebody waits for the worker');
$node->reload;
# pg_ctl is done when the postmaster has its signal, not yet the worker
ok(poll_until(sub { slurp_file("/proc/$worker/status") =~ /^ShdPnd:\s+[0-9a-f]+[13579bdf]$/m }),
	'the worker has a SIGHUP waiting');
kill('CONT', $worker) == 1 or die "kill: $!";
ok(poll_until(sub { slurp_file($node->logfile) =~ /disk of the audit trail is 77 percent full/ }, 10),
	'a warning') or diag('the worker writes before it looks');
ok(wait_until_stopped($worker), 'the worker has not yet written the record of the reload');
set_faults($node);
kill('CONT', $worker) == 1 or die "kill: $!";
finish_psql($flush);
my @commands = map { $_->{command} } grep { $_->{class} eq 'CONFIG' } trail_records($node);
like("@commands", qr/ RELOAD DISK SPACE\b/, 'both are in one batch');

# What cannot be looked at is no reason to fail.
set_disk($node, audit => [ 0, 0 ]);
ok(look(), 'a file system that does not answer');
is(warnings(), 3, 'is none that is full');

# With the table as the sink, the files on their way there count.
set_disk($node, load => [ 1000, 100 ]);
$node->append_conf('postgresql.conf', settings_text(sink => 'table'));
my $position = -s $node->logfile;
$node->reload;
ok( wait_for_log($node,
		qr/WARNING:  disk of the audit trail is 90 percent full\n.*Directory "pg_audit_queue\/load": 100 of/,
		$position),
	'a warning of the other disk');
my $in_table;
poll_until(
	sub {
		$in_table = table_loaded($node) &&
		  unaudited_sql(
			$node, q{SELECT object_name, new_value, sqlstate FROM audit_records WHERE command = 'DISK SPACE'});
	});
is($in_table, 'pg_audit_queue/load|90%|01000', 'with its record in the table');
$node->stop;

done_testing();
