# The life of the worker and of the server: errors in the worker, a worker that
# cannot be started, databases that come and go, pg_upgrade, standbys, copies by pg_basebackup and pg_rewind, and a
# server with nothing to do.
#
# queue/deaths.pl has crashes, shutdowns, and workers that are killed, server/startup.pl the states of the queue directory at a start.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Copy;
use IPC::Run;
use Test::More;
use Time::HiRes qw(sleep time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

# A trail that cannot be written: it needs a new file, whose name is too long.
my %impossible = (log_directory => 'elsewhere', log_filename => '%A' x 60);
my %possible =
  (log_directory => 'audit', log_filename => 'audit-%Y-%m-%d_%H%M%S');

my $bad  = qr/WARNING:  audit trail cannot be written/;
my $good = qr/LOG:  audit trail can be written again/;

# How often the regular expression matches in the server's log
sub in_log
{
	my ($node, $regexp, $position) = @_;

	return scalar(() = slurp_file($node->logfile, $position) =~ /$regexp/g);
}

# Numbers in the texts '$label N' of a trail's records, in its order
sub numbers
{
	my ($label, @records) = @_;

	return map { ($_->{commandText} // '') =~ /'\Q$label\E (\d+)'/ ? $1 : () } @records;
}

# Run statements with texts '$label 1' to '$label N'
sub run_numbered
{
	my ($node, $label, $number) = @_;

	$node->safe_psql('postgres',
		join '', map { "SELECT '$label $_';\n" } 1 .. $number);
	return;
}

# A session that runs numbered statements until the queue is full
sub fill_queue
{
	my ($node, $label) = @_;
	my $session = start_psql($node,
		join("\n", map { "SELECT '$label $_';" } 1 .. 2000),
		name => $label);

	ok(wait_until_waiting($node, $label), "$label: a session waits for space");
	return $session;
}

# How many of them have succeeded, when the session has ended
sub succeeded
{
	my ($label, $session) = @_;
	my ($status, $stdout, $stderr) = finish_psql($session);

	return scalar(() = $stdout =~ /^\Q$label\E \d+$/mg);
}

# An idle server, left alone until the end of this test, with nothing to do at midnight

my $idle = audited_node(
	'idle',
	settings => { log_rotation_age => 0 },
	conf     => "autovacuum = off\n");
my $idle_worker = worker_pid($idle);

# Switches of the process because it went to sleep
sub sleeps
{
	my ($pid) = @_;

	return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)$/m
	  ? $1 : die 'no number of context switches';
}

flush_trail($idle);
my $idle_wakeups = worker_at_rest($idle);
ok($idle_wakeups, 'an idle server comes to rest');
my $idle_sleeps = sleeps($idle_worker);
my $idle_since  = time;

# A worker that cannot start again: by its name it is found in another library than
# the one that was preloaded.  Sessions say so while they wait for it; look later.

my $without = audited_node(
	'without',
	settings => { queue_size => '64kB' },
	conf     => "autovacuum = off\n",
	start    => 0);
my @copies = map { PostgreSQL::Test::Utils::tempdir() } 1 .. 2;
foreach my $copy (@copies)
{
	copy($without->config_data('--pkglibdir') . '/pg_audit_queue.so', $copy)
	  or die "copy: $!";
}
$without->append_conf('postgresql.conf', "dynamic_library_path = '" . join(':', @copies) . "'\n");
$without->start;
my $postmaster = postmaster_pid($without);
my $former_worker = poll_until(
	sub {
		foreach my $process (glob '/proc/[0-9]*')
		{
			my ($status, $title) = map { eval { slurp_file("$process/$_") } // '' } qw(status cmdline);

			return $process =~ s{.*/}{}r
			  if $status =~ /^PPid:\s+$postmaster$/m && $title =~ /pg_audit_queue worker/;
		}
		return 0;
	});
unlink("$copies[0]/pg_audit_queue.so") or die "unlink: $!";
kill('TERM', $former_worker) or die "kill: $!";
ok(wait_for_log($without, qr/FATAL:  the library of the background worker is another one/, 0),
	'the worker does not start again when the library was replaced');
my $lonely = start_psql(
	$without, q{SELECT 'immediate'},
	name     => 'immediate',
	settings => { mode => 'immediate' });
my $full = fill_queue($without, 'full');

# An error inside the worker: no memory to read a large configuration with

my $node = audited_node(
	'main',
	settings => { queue_size => '64kB', flush_interval => '1h', flush_threshold => 80 },
	conf     => "autovacuum = off\ninclude_if_exists = 'large.conf'\n");
my $data     = $node->data_dir;
my $worker   = worker_pid($node);
my $position = -s $node->logfile;
my ($kb) = slurp_file("/proc/$worker/status") =~ /^VmSize:\s+(\d+) kB$/m;

append_to_file("$data/large.conf",
	join '', map { "large.n$_ = '" . 'x' x 500 . "'\n" } 1 .. 4000);
system_or_bail('prlimit', '--pid', $worker, '--as=' . $kb * 1024 . ':');
kill('HUP', $worker);
ok(wait_for_log($node, qr/$bad: out of memory/, $position),
	'an error in the worker is reported');
ok(wait_for_log($node, $good, $position), 'and that it has passed, with nothing to be written');
my $client = start_psql($node, q{SELECT 'after the error'},
	settings => { mode => 'immediate' });
is((finish_psql($client))[0], 0, 'it does its work all the same');
is(worker_pid($node), $worker, 'it is the same process');
is(stats($node)->{last_error}, 'out of memory', 'the statistics have it');
is(in_log($node, $bad, $position), 1, 'the log has it once');
is(in_log($node, $good, $position), 1, 'and that it has passed');
system_or_bail('prlimit', '--pid', $worker, '--as=unlimited:');
unlink("$data/large.conf");

# No memory to map the file that a large statement is in: for that it has to be
# tried again, too, because the text would be lost.

$position = -s $node->logfile;
my $large = "SELECT length('" . 'x' x (8 * 1024 * 1024) . "')";
($kb) = slurp_file("/proc/$worker/status") =~ /^VmSize:\s+(\d+) kB$/m;
system_or_bail('prlimit', '--pid', $worker, '--as=' . ($kb + 2048) * 1024 . ':');
$client = start_psql($node, "$large;", name => 'large', settings => { mode => 'immediate' });
ok(wait_for_log($node, qr/could not read audit spill file .*: Cannot allocate memory/, $position),
	'a large statement cannot be read');
system_or_bail('prlimit', '--pid', $worker, '--as=unlimited:');
is((finish_psql($client))[0], 0, 'it is tried again');
is( scalar(grep { index($_->{commandText} // '', $large) == 0 } trail_records($node)),
	1, 'and recorded with its text');
is(worker_pid($node), $worker, 'by the same process');

# The sessions of the server without a worker

foreach my $name (qw(immediate full))
{
	my $pid = wait_until_waiting($without, $name);

	ok($pid, "without a worker: $name still waits");
	ok( poll_until(
			sub {
				my $session = $name eq 'full' ? $full : $lonely;
				slurp_file($session->{stderr}) =~
				  /WARNING:  .*waiting for the audit worker, which is not running/;
			}),
		'and is told why');
	is(unaudited_sql($without, "SELECT pg_cancel_backend($pid)"), 't', 'it can be cancelled');
}
like((finish_psql($lonely))[2], qr/^ERROR:  57014/m, 'immediate: it is cancelled');
my $succeeded = succeeded('full', $full);
cmp_ok($succeeded, '>', 100, 'full: it is cancelled, after some that succeeded');
cmp_ok(in_log($without, qr/FATAL:  the library of the background worker is another one/),
	'>', 5, 'the server log says what is wrong');
$without->append_conf('postgresql.conf', "dynamic_library_path = '\$libdir'\n");
$without->restart;
create_extension($without);
flush_trail($without);
my @records = check_trail($without, 'with a worker: the trail is whole');
is_deeply([ numbers('full', @records) ], [ 1 .. $succeeded + 1 ],
	'it has all records');
$without->stop;

# Databases, while the worker has a backlog that it cannot write

kill('STOP', $worker);
run_numbered($node, 'backlog', 50);
crash_node($node, $worker);
$node->append_conf('postgresql.conf', settings_text(%impossible));
start_again($node);
run_numbered($node, 'behind', 20);
ok(poll_until(sub { (stats($node)->{last_error} // '') =~ /create file/ }),
	'the trail cannot be written');
is_deeply([ grep { /^queue\.\d/ } slurp_dir(queue_dir($node)) ],
	['queue.1'], 'there is a backlog');
foreach my $sql (
	'CREATE DATABASE one',
	'CREATE DATABASE two TEMPLATE one STRATEGY wal_log',
	'CREATE DATABASE three TEMPLATE one STRATEGY file_copy',
	'ALTER DATABASE three RENAME TO four',
	'DROP DATABASE two',
	'DROP DATABASE four',
	'DROP DATABASE one WITH (FORCE)')
{
	# unaudited: a full queue is not the subject
	is((eval { unaudited_sql($node, "SET statement_timeout = '20s'"); unaudited_sql($node, $sql); } // $@),
		'', $sql);
}
$node->append_conf('postgresql.conf', settings_text(%possible));
$node->reload;
flush_trail($node);
is_deeply([ grep { /^queue\.\d/ } slurp_dir(queue_dir($node)) ],
	[], 'when that is possible the backlog goes away');
@records = check_trail($node, 'the trail is whole');
is_deeply([ numbers('backlog', @records) ], [ 1 .. 50 ], 'with the backlog, in order');
is_deeply([ numbers('behind', @records) ], [ 1 .. 20 ], 'and what came after it');

is(stats($node)->{dropped}, 0, 'nothing is dropped');
is(scalar(grep { $_->{type} eq 'gap' } @records), 0, 'there are no gaps');
$node->stop;

# pg_upgrade.  The old server has a clean shutdown behind it, but records in its
# queue: its trail gets them, the new server's does not.

sub upgrade
{
	my ($mode) = @_;
	my $old = audited_node(
		"old_$mode",
		settings => { queue_size => '64kB', flush_interval => '1h', flush_threshold => 80 },
		conf     => "autovacuum = off\n");
	my $new      = PostgreSQL::Test::Cluster->new("new_$mode");
	my $position = -s $old->logfile;

	$old->safe_psql('postgres', 'CREATE TABLE t (a int PRIMARY KEY)');
	flush_trail($old);
	kill_worker($old, 'STOP');
	$old->append_conf('postgresql.conf', settings_text(%impossible));
	$old->reload;
	run_numbered($old, 'before', 50);
	kill_worker($old, 'CONT');
	$old->stop;
	is(texts_in_trail($old, "'before "), 0, "$mode: the old server's queue is not empty");
	is(in_log($old, qr/bytes of audit records remain in the queue/, $position), 1,
		"$mode: which its log says");
	$old->append_conf('postgresql.conf', settings_text(%possible));

	init_node($new);
	$new->append_conf('postgresql.conf',
		"shared_preload_libraries = 'pg_audit_queue'\nautovacuum = off\n"
		  . settings_text(log => 'all, -connect', format => 'json', queue_size => '64kB'));
	my $bin    = $old->config_data('--bindir');
	my $output = '';
	my $cwd = PostgreSQL::Test::Utils::tempdir();
	ok( IPC::Run::run(
			[
				'env', '-C', $cwd,
				'pg_upgrade', '--no-sync', '-b', $bin, '-B', $bin,
				'-d', $old->data_dir, '-D', $new->data_dir,
				'-p', $old->port, '-P', $new->port, '-s', $new->host,
				($mode eq 'link' ? '--link' : ())
			],
			'>&', \$output,
			IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default)),
		"$mode: pg_upgrade")
	  or diag($output);

	my @old_records = check_trail($old, "$mode: the old server's trail is whole");
	is_deeply([ numbers('before', @old_records) ], [ 1 .. 50 ],
		"$mode: it has what was in the queue");
	$new->start;
	flush_trail($new);
	my @new_records = check_trail($new, "$mode: the new server's trail is whole");
	is_deeply([ numbers('before', @new_records) ], [], "$mode: it has none of them");
	is(scalar(grep { $_->{type} eq 'gap' } @new_records), 0, "$mode: and no gap");
	cmp_ok(scalar(grep { ($_->{commandText} // '') =~ /^CREATE TABLE/m } @new_records),
		'>', 0, "$mode: but what pg_upgrade did there");
	$new->safe_psql('postgres', q{INSERT INTO t VALUES (1); ALTER TABLE t ADD b int});
	flush_trail($new);
	is_deeply(
		[
			columns('command objectName',
				grep { ($_->{commandText} // '') =~ /INSERT INTO t|ALTER TABLE t/ }
				  without_config(trail_records($new)))
		],
		[ 'INSERT|', 'ALTER TABLE|public.t' ],
		"$mode: it records, with names of objects");
	is_deeply([ grep { /^queue\../ } slurp_dir(queue_dir($_)) ], [],
		"$mode: no files are left") foreach $old, $new;
	$new->stop;
	if ($mode ne 'link')
	{
		$old->start;
		flush_trail($old);
		my @again = check_trail($old, "$mode: the old server can still be used");
		is_deeply([ numbers('before', @again) ], [ 1 .. 50 ], "$mode: with its records once");
		$old->stop;
	}
	return;
}

upgrade('copy');
upgrade('link');

# A standby made while the primary's queue is full.  Its trail is its own.

my $primary = audited_node(
	'primary',
	init     => [ allows_streaming => 1 ],
	settings => { queue_size => '64kB', flush_interval => '1h' },
	conf     => "autovacuum = off\n");
$primary->safe_psql('postgres', q{CREATE TABLE t (a int)});
flush_trail($primary);
my $flushed = (trail_records($primary))[-1]{sequence};
$worker = worker_pid($primary);
kill('STOP', $worker);
my $filler = fill_queue($primary, 'primary');
$primary->backup('backup');
kill('CONT', $worker);
finish_psql($filler);

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$position = -s $standby->logfile // 0;
$standby->start;
$primary->wait_for_catchup($standby);
flush_trail($standby);
is(in_log($standby, qr/LOG:  audit queue file "[^"]*" was set aside as .*\n.*DETAIL:  .*was copied/, $position),
	1, 'standby: the log says that the queue file is a copy');
@records = check_trail($standby, 'standby: the trail goes on where its copy ends');
is_deeply([ numbers('primary', @records) ], [],
	'standby: none of the records in the queue of the primary');
is($records[$flushed]{type}, 'gap', 'standby: its first record is of a gap');
like($records[$flushed]{errorMessage}, qr/was copied; whether records are missing/,
	'standby: which says why');

# Sessions there, in each mode, over stops and the promotion

sub on_standby
{
	my ($label) = @_;

	foreach my $mode (qw(queued immediate commit))
	{
		my $session = start_psql($standby, "SELECT '$label $mode', count(*) FROM t",
			settings => { mode => $mode });

		is((finish_psql($session))[0], 0, "$label: a session in mode $mode");
	}
	return;
}

on_standby('read only');
isnt($standby->psql('postgres', q{INSERT INTO t VALUES (1)}), 0, 'standby: it is read only');
$standby->stop('immediate');
start_again($standby);
on_standby('after a crash');
my $reader = $standby->background_psql('postgres');
$reader->query_safe(q{SELECT 'before the promotion'});
$worker = worker_pid($standby);
$standby->promote;
$reader->query_safe(q{INSERT INTO t VALUES (2)});
$reader->quit;
on_standby('promoted');
is(worker_pid($standby), $worker, 'promoted: with the same worker');
flush_trail($standby);
@records = check_trail($standby, 'promoted: its trail is whole');
splice @records, 0, $flushed;
# from 19 on PostgreSQL's test modules wait for a standby by a statement there
@records = grep { ($_->{commandText} // '') !~ /^WAIT FOR LSN / } @records;
is_deeply(
	[ map { s/\s*;?\s*(?=\|)//r } columns('commandText exitCode', without_config(@records)) ],
	[
		'|',
		(map { "SELECT 'read only $_', count(*) FROM t|00000" } qw(queued immediate commit)),
		'INSERT INTO t VALUES (1)|25006',
		(map { "SELECT 'after a crash $_', count(*) FROM t|00000" } qw(queued immediate commit)),
		q{SELECT 'before the promotion'|00000},
		'INSERT INTO t VALUES (2)|00000',
		(map { "SELECT 'promoted $_', count(*) FROM t|00000" } qw(queued immediate commit))
	],
	'promoted: it has its own sessions, once each');
flush_trail($primary);
@records = check_trail($primary, 'the trail of the primary is whole');
my @numbers = numbers('primary', @records);
is_deeply(\@numbers, [ 1 .. 2000 ], 'with all that was in its queue');

# pg_rewind: a primary that has crashed with records in its queue comes back as
# a standby of the one that was promoted meanwhile.  What is below the data
# directory, queue and trail, gets replaced by the other server's; that records
# are missing must be known.  In directories elsewhere nothing is lost.

sub rewind
{
	my ($label, %directories) = @_;
	my $old = audited_node(
		"old_$label",
		init     => [ allows_streaming => 1 ],
		settings => { flush_interval => '1h', %directories },
		conf => "autovacuum = off\nwal_log_hints = on\nwal_keep_size = 128MB\n");
	my $new = PostgreSQL::Test::Cluster->new("new_$label");
	my $conf;

	$old->safe_psql('postgres', 'CREATE TABLE t (a int)');
	$old->backup('backup');
	$new->init_from_backup($old, 'backup', has_streaming => 1);
	$new->append_conf('postgresql.conf',
		settings_text(queue_directory => 'pg_audit_queue', log_directory => 'audit'));
	$new->start;
	$old->wait_for_catchup($new);
	$new->promote;

	# what the old primary's own trail has yet to get
	flush_trail($old);
	my $worker = worker_pid($old);
	kill('STOP', $worker);
	$old->safe_psql('postgres', 'INSERT INTO t VALUES (1)');
	run_numbered($old, 'undelivered', 50);
	crash_node($old, $worker);
	$new->safe_psql('postgres', 'INSERT INTO t VALUES (2); CHECKPOINT');
	flush_trail($new);

	$conf = slurp_file($old->data_dir . '/postgresql.conf');
	my $output = '';
	ok( poll_until(
			sub {
				# processes of the crashed server may still be on their way out
				IPC::Run::run(
					[
						'pg_rewind', '--no-sync',
						'--target-pgdata', $old->data_dir,
						'--source-server', $new->connstr('postgres')
					],
					'>&', \$output);
			}),
		"$label: pg_rewind")
	  or diag($output);
	unlink($old->data_dir . '/postgresql.conf');
	append_to_file($old->data_dir . '/postgresql.conf', $conf);
	$old->enable_streaming($new);
	$old->set_standby_mode;
	my $position = -s $old->logfile;
	start_again($old);
	$new->wait_for_catchup($old);
	$old->safe_psql('postgres', q{SELECT 'rewound', count(*) FROM t});
	flush_trail($old);
	my @records = check_trail($old, "$label: the trail is whole");
	my @gaps = grep { $_->{type} eq 'gap' } @records;
	is($records[-1]{commandText}, q{SELECT 'rewound', count(*) FROM t},
		"$label: it goes on");
	if (%directories)
	{
		is(scalar @gaps, 0, "$label: no gap");
		is_deeply([ numbers('undelivered', @records) ], [ 1 .. 50 ],
			"$label: what was in the queue is in the trail");
	}
	else
	{
		# the other server's trail begins with one
		is(scalar @gaps, 2, "$label: there is a gap");
		like($gaps[1]{errorMessage}, qr/was copied; whether records are missing/,
			"$label: which says why");
		is(in_log($old, qr/was set aside as .*\n.*DETAIL:  .*was copied/, $position), 1,
			"$label: so does the log");
		is_deeply([ numbers('undelivered', @records) ], [],
			"$label: what was in the queue is gone");
	}
	$_->stop foreach $old, $new;
	return;
}

rewind('inside');
my $elsewhere = PostgreSQL::Test::Utils::tempdir();
rewind('outside',
	queue_directory => "$elsewhere/queue",
	log_directory   => "$elsewhere/audit");

# The server with nothing to do

my $seconds = full_tests() ? 60 : 30;
my $left    = $idle_since + $seconds - time;
sleep $left if $left > 0;
is(sleeps($idle_worker), $idle_sleeps, "an idle worker is not woken for $seconds seconds");
is(stats($idle)->{wakeups}, $idle_wakeups, 'the statistics say the same');
$idle->safe_psql('postgres', 'SELECT 1');
flush_trail($idle);
cmp_ok(sleeps($idle_worker), '>', $idle_sleeps, 'but by the next record it is');
cmp_ok(stats($idle)->{wakeups}, '>', $idle_wakeups, 'which is counted');
$_->stop foreach $idle, $primary, $standby;

done_testing();
