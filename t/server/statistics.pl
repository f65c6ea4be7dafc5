# View pg_stat_audit_queue, beside the old one: the trail's size and its disk, and
# records by class in pg_stat_audit_queue_classes.  Functions of version 1.0 of the
# extension go on working with this library.
#
# sql/functions.sql and sql/privileges.sql have the columns, and who may read them.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use JSON::PP;
use List::Util qw(sum0);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

plan skip_all => 'the server is built with sanitizers' if sanitizers() ne '';

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { log => 'all', flush_interval => '10ms' },
	conf         => "autovacuum = off\nfsync = on\n",
	start        => 0);
start_with_disk($node);

sub sql
{
	return unaudited_sql($node, @_);
}

sub all_stats
{
	return decode_json(sql('SELECT row_to_json(s) FROM pg_stat_audit_queue s'));
}

# Records by class, as the view has them, without those that there are none of, when
# all sessions have recorded their end
sub counted
{
	poll_until(
		sub {
			sql(q{SELECT count(*) FROM pg_stat_activity
				   WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()}) == 0;
		}) or die 'sessions stay';
	flush_trail($node);
	return { map { split /\|/ } split /\n/,
		sql('SELECT class, records FROM pg_stat_audit_queue_classes WHERE records > 0') };
}

# The same, as the trail has them
sub in_trail
{
	my %classes;

	flush_trail($node);
	$classes{ $_->{class} }++ foreach trail_records($node);
	return \%classes;
}

# Records by class

$node->psql('postgres', $_) foreach (
	'CREATE TABLE t (a int); INSERT INTO t VALUES (1); SELECT * FROM t; UPDATE t SET a = 2',
	'SET work_mem = 100; VACUUM t; GRANT SELECT ON t TO pg_monitor',
	'nonsense',
	'CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$BEGIN RETURN 1; END$$; SELECT f()');
is_deeply(counted(), in_trail(), 'each class has the records that the trail has');
is_deeply(
	[ grep { !counted()->{$_} } qw(CONFIG CONNECT DDL ERROR FUNCTION MISC READ ROLE WRITE) ],
	[], 'the test has all classes');
is(sum0(values %{ counted() }), all_stats()->{flushed}, 'together they are what is durable');

# What has to be written again is counted once.
my $before = all_stats();
set_faults($node, 'trail-fsync' => 5);
my $load = start_load($node, 'again', clients => 2, statements => 200);
ok(poll_until(sub { all_stats()->{last_error} }), 'an fsync fails');
is(finish_load($load), 400, 'sessions go on');
set_faults($node);
is_deeply(counted(), in_trail(), 'after a failed fsync the classes are right');

my $pid = kill_worker($node, 'TERM');
wait_for_worker($node, $pid);
$node->safe_psql('postgres', 'SELECT 1');
is_deeply(counted(), in_trail(), 'and with another worker');

sql('SELECT audit_queue_stats_reset()');
$node->safe_psql('postgres', 'SELECT 1');
is(counted()->{READ}, 1, 'a reset starts anew');

# A reset after records were written, and before it turns out that they have to be
# written again: what has been counted before is not counted.
$pid = worker_pid($node);
set_faults($node, 'trail-fsync' => 'stop');
$load = start_psql($node, join "\n", map { "SELECT 'n$_';" } 1 .. 20);
finish_psql($load);
ok(wait_until_stopped($pid), 'the worker is about to flush');
my $unflushed = all_stats();
cmp_ok($unflushed->{drained}, '>', $unflushed->{flushed}, 'what it has counted');
is(sql('SELECT sum(records) FROM pg_stat_audit_queue_classes'), $unflushed->{flushed},
	'by class only what is durable, so that these counters do not go down');
sql('SELECT audit_queue_stats_reset()');
set_faults($node, 'trail-fsync' => 5);
kill('CONT', $pid) == 1 or die "kill: $!";
ok(poll_until(sub { all_stats()->{last_error_time} gt all_stats()->{stats_reset} }), 'the flush fails');
is(all_stats()->{drained}, 0, 'no records are drained then, rather than fewer than none');
is(sql('SELECT min(records) FROM pg_stat_audit_queue_classes'), 0, 'nor in a class');
set_faults($node);
flush_trail($node);

# The old view, and what the new one has in addition

flush_trail($node);
my %old = %{ stats($node) };
my %new = %{ all_stats() };
is_deeply([ grep { !exists $new{$_} } sort keys %old ], [], 'all columns of the old view');
is_deeply({ map { $_ => $new{$_} } grep { $_ ne 'wakeups' } keys %old },
	{ map { $_ => $old{$_} } grep { $_ ne 'wakeups' } keys %old }, 'with the same values');
is($new{library_version}, sql("SELECT extversion FROM pg_extension WHERE extname = 'pg_audit_queue'"),
	'the version of the library');

# Size, oldest file

sub size_of
{
	return sum0(map { -s } @_);
}

$before = (trail_files($node))[0];
sql('SELECT audit_rotate()') foreach 1 .. 2;
$node->safe_psql('postgres', 'SELECT 2');
flush_trail($node);
is(all_stats()->{trail_size}, size_of(trail_files($node)), 'size of all files');
append_to_file(trail_dir($node) . '/other.json', 'not ours');
mkdir trail_dir($node) . '/audit-2020-01-01_000000.json' or die "mkdir: $!";
symlink $before, trail_dir($node) . '/audit-2020-01-01_000001.json' or die "symlink: $!";
is(all_stats()->{trail_size} + length('not ours'), size_of(grep { -f && !-l } trail_files($node)),
	'nothing else counts');
utime 1_600_000_000, 1_600_000_000, $before or die "utime: $!";
%new = %{ all_stats() };
like($before, qr{/\Q$new{oldest_file}\E$}, 'the oldest file');
is(sql('SELECT extract(epoch FROM oldest_file_time) FROM pg_stat_audit_queue'),
	'1600000000.000000', 'and its time');

# The disks

set_disk($node, audit => [ 0, 0 ]);
is(all_stats()->{trail_disk_free}, undef, 'null if it cannot be known');
set_disk($node, pg_audit_queue => [ 2000, 500 ], audit => [ 1000, 300 ]);
is_deeply(
	[ @{ all_stats() }{qw(trail_disk_size trail_disk_free queue_disk_size queue_disk_free)} ],
	[ 1000, 300, 2000, 500 ], 'size of the disks and what is free');

# A directory that is not there, or not readable

take_trail_away($node);
%new = %{ all_stats() };
is_deeply([ @new{qw(trail_size oldest_file)} ], [ undef, undef ], 'no directory, no size');
give_trail_back($node);

# Files on their way into the table are part of the trail.

my $size = all_stats()->{trail_size};
$node->append_conf('postgresql.conf', settings_text(sink => 'table', database => 'nowhere'));
$node->reload;
ok(poll_until(sub { all_stats()->{sink} eq 'table' }), 'sink = table');
$node->safe_psql('postgres', 'SELECT 3');
flush_trail($node);
my @load = glob(queue_dir($node) . '/load/*.json');
cmp_ok(size_of(@load), '>', 0, 'files wait to be loaded');
is(all_stats()->{trail_size}, size_of(@load) + $size, 'they count, too');
is(all_stats()->{trail_disk_free}, 500, 'and their disk is that of the queue');

# Version 1.0 of the extension

sql('CREATE DATABASE old; CREATE ROLE reporting');
sql("CREATE EXTENSION pg_audit_queue VERSION '1.0'", 'old');
like(sql('SELECT worker_pid FROM audit_queue_stats', 'old'), qr/^\d+$/, 'the view of 1.0 works');
is(sql("SELECT to_regclass('pg_stat_audit_queue') IS NULL", 'old'), 't', 'without the new one');
is(sql('SELECT count(*) FROM audit_records', 'old'), '0', 'its view of the table works');
sql('GRANT SELECT ON audit_queue_stats TO reporting; GRANT EXECUTE ON FUNCTION audit_queue_stats() TO reporting', 'old');
sql('ALTER EXTENSION pg_audit_queue UPDATE', 'old');
like(sql('SELECT worker_pid FROM pg_stat_audit_queue', 'old'), qr/^\d+$/, 'an update has it');
is(sql("SELECT count(*) FROM pg_attribute WHERE attrelid = 'audit_queue_stats'::regclass AND attnum > 0", 'old'),
	'27', 'the old view stays as it was');
is(sql('SET ROLE reporting; SELECT count(*) FROM audit_queue_stats', 'old'), '1',
	'and so does what was granted');
$node->stop;

done_testing();
