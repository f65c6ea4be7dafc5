# commit_wal: who waits for the trail, who does not, and what becomes of the WAL.
# t/queue/wal_crash.pl has crashes of the operating system at random.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/queue_files";
use PaqTest;

use JSON::PP;
use PgProto;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueFile;
use Test::More;

my $cannot = qr/WARNING:  WAL cannot be used for audit records: (.*)/;

my $node = audited_node(
	'main',
	init         => [ allows_streaming => 'logical', extra => ['--wal-segsize=1'] ],
	install_path => fault_install(),
	settings     => { mode => 'commit', flush_interval => '1h' },
	conf         => <<'END');
autovacuum = off
max_prepared_transactions = 10
max_replication_slots = 4
checkpoint_timeout = 1h
max_wal_size = 1GB
END

unaudited_sql($node, $_) foreach 'CREATE TABLE t (a text)', 'CREATE TABLE conflicts (a int)', <<'END';
CREATE PROCEDURE p() LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t VALUES ('p1');
	COMMIT;
	INSERT INTO t VALUES ('p2');
	COMMIT;
END $$
END

# ---------------------------------------------------------------------------
# What the tests ask for
# ---------------------------------------------------------------------------

sub statistics
{
	my ($on) = @_;

	return decode_json(
		unaudited_sql($on // $node, 'SELECT row_to_json(s) FROM pg_stat_audit_queue s'));
}

# The temporary slot: "" if it holds no WAL, undef if there is none.
sub slot
{
	my ($on) = @_;
	my $answer = unaudited_sql($on // $node,
		q{SELECT 'is ' || coalesce(restart_lsn::text, '') FROM pg_replication_slots
		   WHERE slot_name = 'pg_audit_queue' AND temporary AND slot_type = 'physical'});

	return $answer =~ /^is (.*)/ ? $1 : undef;
}

# How many records with that text are in the trail's files, as they are now?
sub written
{
	my ($text, $on) = @_;

	return texts_in_trail($on // $node, $text) > 0;
}

# What the statements change in wal_commits and wal_fallbacks
sub counts
{
	my ($client, @sql) = @_;
	my $before = statistics();

	foreach my $sql (@sql)
	{
		my $answer = $client->query($sql);

		die "$sql: $answer" if $answer =~ /E:(?!40001|22012)/;
	}
	my $after = statistics();
	return join ' ', map { $after->{$_} - $before->{$_} } qw(wal_commits wal_fallbacks);
}

# Records of class CONFIG, durable by now: the worker makes one when it has reloaded.
sub config_records
{
	unaudited_sql($node, 'SELECT audit_flush()');
	return unaudited_sql($node,
		"SELECT records FROM pg_stat_audit_queue_classes WHERE class = 'CONFIG'");
}

# Set settings of the server, and wait until the worker has them.
sub reload
{
	my ($settings) = @_;
	my $before = config_records();

	append_to_file($node->data_dir . '/postgresql.conf', settings_text(%$settings));
	unaudited_sql($node, 'SELECT pg_reload_conf()');
	poll_until(sub { config_records() > $before }) or die 'no reload';
	return;
}

my $client;

# Use it: the first commit waits, the next one does not.
sub begin
{
	$client = PgProto->connect($node);
	poll_until(sub { counts($client, "INSERT INTO t VALUES ('begin')") eq '1 0' })
	  or die 'WAL is not used';
	return;
}

# ---------------------------------------------------------------------------
# On and off
# ---------------------------------------------------------------------------

$client = PgProto->connect($node);
is(counts($client, "INSERT INTO t VALUES ('off')"), '0 0', 'off: it is not used');
ok(written("VALUES ('off')"), 'the session has waited');
is(slot(), undef, 'there is no slot');

reload({ commit_wal => 'on' });
is(slot(), undef, 'on: nor is there before somebody needs it');
is(counts($client, "INSERT INTO t VALUES ('first')"), '0 1', 'the first commit waits');
ok(written("VALUES ('first')"), 'for the trail');
ok(poll_until(sub { slot() }), 'there is a slot now, which holds WAL');
my $waits = statistics()->{flush_waits};
is(counts($client, "INSERT INTO t VALUES ('second')"), '1 0', 'the next one uses WAL');
ok(!written("VALUES ('second')"), 'and has not waited for the trail');
is(statistics()->{flush_waits}, $waits, 'nobody has');
unaudited_sql($node, 'SELECT audit_flush()');
ok(written("VALUES ('second')"), 'which gets it with the next flush');

# ---------------------------------------------------------------------------
# Transactions that cannot
# ---------------------------------------------------------------------------

is(counts($client, "SELECT 'read only'"), '0 1', 'a transaction that only reads waits');
ok(written('read only'), 'for the trail');
is(counts($client, 'BEGIN', "INSERT INTO t VALUES ('block')", "SELECT 'in the block'", 'COMMIT'),
	'1 0', 'a block uses WAL once');
is(counts($client, 'BEGIN', 'SET LOCAL synchronous_commit = off', "INSERT INTO t VALUES ('async')", 'COMMIT'),
	'0 1', 'with synchronous_commit off it waits');
ok(written("VALUES ('async')"), 'for the trail');
is(counts($client, 'BEGIN', 'SET LOCAL synchronous_commit = local', "INSERT INTO t VALUES ('l')", 'COMMIT'),
	'1 0', 'but not with "local"');
is(counts($client, 'BEGIN', (map { "INSERT INTO t VALUES ('$_') /* " . 'x' x 900 . ' */' } 1 .. 45), 'COMMIT'),
	'1 0', '50 kB of records');
is(counts($client, 'BEGIN', (map { "INSERT INTO t VALUES ('$_') /* " . 'x' x 900 . ' */' } 1 .. 80), 'COMMIT'),
	'0 1', '90 kB are too much');
is( counts($client, 'BEGIN', (map { "INSERT INTO t VALUES ('$_') /* " . 'x' x 900 . ' */' } 1 .. 80),
		'SELECT audit_flush()', "INSERT INTO t VALUES ('rest')", 'COMMIT'),
	'1 0', 'unless the trail has most of them');
is(counts($client, 'BEGIN', (map { "SELECT $_" } 1 .. 600), "INSERT INTO t VALUES ('many')", 'COMMIT'),
	'0 1', 'and 600 records');
is(counts($client, "INSERT INTO t VALUES ('spilled') /* " . 'y' x 300000 . ' */'),
	'0 1', 'a text in a file of its own');
is(counts($client, 'BEGIN', "INSERT INTO t VALUES ('rolled back')", 'ROLLBACK'),
	'0 0', 'a transaction that is rolled back does nothing');
is(counts($client, 'BEGIN', "INSERT INTO t VALUES ('s')", 'SAVEPOINT s', 'SELECT 1 / 0', 'ROLLBACK TO s', 'COMMIT'),
	'1 0', 'one in part');
is(counts($client, 'BEGIN', 'CREATE TEMPORARY TABLE d (a int) ON COMMIT DROP', 'INSERT INTO d VALUES (1)', 'COMMIT'),
	'1 0', 'ON COMMIT DROP');
is(counts($client, 'CREATE TEMPORARY TABLE e (a int) ON COMMIT DELETE ROWS'), '1 0', 'DDL');
is(counts($client, 'CALL p()'), '2 1', 'a procedure that commits twice, and the rest of its call');

# Serialization failures
my $other = PgProto->connect($node);
$_->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM conflicts') foreach $client, $other;
$_->query('INSERT INTO conflicts VALUES (1)') foreach $client, $other;
is(counts($client, 'COMMIT'), '1 0', 'serializable: the first commits');
is(counts($other, "SELECT 'loser'", 'ROLLBACK'), '0 0', 'the other one fails');
$other->query('ROLLBACK');

# Two-phase commit
is(counts($client, 'BEGIN', "INSERT INTO t VALUES ('prepared')", "PREPARE TRANSACTION 'x'"),
	'1 0', 'PREPARE TRANSACTION uses WAL');
is(counts($client, "COMMIT PREPARED 'x'"), '0 1', 'the statement COMMIT PREPARED waits');

# A replication command is no commit.
{
	my $sender = PgProto->connect($node, replication => 'database');

	unaudited_sql($node, q{SELECT pg_create_physical_replication_slot('unused')});
	$sender->query('BEGIN');
	$sender->query("INSERT INTO t VALUES ('sender')");
	is($sender->query('DROP_REPLICATION_SLOT unused'), 'C:DROP_REPLICATION_SLOT', 'a replication command');
	ok(written('DROP_REPLICATION_SLOT'), 'waits for the trail, in a transaction that has written, too');
	$sender->query('ROLLBACK');
	$sender->quit;
}

# Other modes
is(counts(PgProto->connect($node, options => '-c pg_audit_queue.mode=queued'), "INSERT INTO t VALUES ('q')"),
	'0 0', 'mode queued does not use it');
is(counts(PgProto->connect($node, options => '-c pg_audit_queue.mode=immediate'), "INSERT INTO t VALUES ('i')"),
	'0 0', 'nor does mode immediate');
is( counts(
		PgProto->connect($node, options => '-c pg_audit_queue.immediate_log=write'),
		"INSERT INTO t VALUES ('immediate_log')"), '1 0', 'immediate_log: both');
ok(written("VALUES ('immediate_log')"), 'with the trail');

# ---------------------------------------------------------------------------
# What others see of it
# ---------------------------------------------------------------------------

SKIP:
{
	my $control = 'dummy for all to see';

	skip 'no test_decoding', 3 if !-e $node->config_data('--pkglibdir') . '/test_decoding.so';
	unaudited_sql($node, q{SELECT pg_create_logical_replication_slot('logical', 'test_decoding')});
	begin();
	counts($client, "INSERT INTO t VALUES ('decoded')");
	unaudited_sql($node, "SELECT pg_logical_emit_message(true, 'test', '$control')");
	my $changes = unaudited_sql($node, q{SELECT data FROM pg_logical_slot_get_changes('logical', NULL, NULL)});

	like($changes, qr/'decoded'/, 'logical decoding sees the change');
	like($changes, qr/message: .*\Q$control\E/, 'and messages');
	unlike($changes, qr/pg_audit_queue/, 'but none of ours');
	unaudited_sql($node, q{SELECT pg_drop_replication_slot('logical')});
}

# ---------------------------------------------------------------------------
# Nobody needs it
# ---------------------------------------------------------------------------

begin();
ok(slot(), 'there is a slot');
ok(poll_until(sub { (slot() // 'none') eq '' }), 'which holds nothing after a while without commits');
ok(defined worker_at_rest($node), 'and the worker is not woken any more');
begin();
ok(slot(), 'until there are some');
reload({ commit_wal => 'off' });
ok(poll_until(sub { !defined slot() }), 'off again: there is no slot any more');
is(counts($client, "INSERT INTO t VALUES ('off again')"), '0 0', 'and commits wait');

# ---------------------------------------------------------------------------
# What does not work
# ---------------------------------------------------------------------------

my $log_at;

# Commits wait, the log and the statistics say why, once.
sub falls_back
{
	my ($reason, $name) = @_;

	$client = PgProto->connect($node);
	foreach my $number (1 .. 3)
	{
		is(counts($client, "INSERT INTO t VALUES ('$name $number')"), '0 1', "$name: a commit waits");
	}
	my @reasons = slurp_file($node->logfile, $log_at) =~ /$cannot/g;
	is(scalar @reasons, 1, "$name: is said once");
	like($reasons[0] // '', $reason, 'and why');
	like(statistics()->{last_error} // '', $reason, 'the statistics say so, too');
	return;
}

$log_at = -s $node->logfile;
unaudited_sql($node, "SELECT pg_create_physical_replication_slot('s$_')") foreach 1 .. 4;
reload({ commit_wal => 'on' });
falls_back(qr/all replication slots are in use/, 'no slot');
unaudited_sql($node, 'SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active');
begin();
pass('when there is one, it is used');
reload({ commit_wal => 'off' });

$log_at = -s $node->logfile;
reload({ commit_wal => 'on', sink => 'table' });
falls_back(qr/"pg_audit_queue.sink" is not "file"/, 'sink = table');
reload({ sink => 'file' });
begin();
pass('with files it is used again');

$log_at = -s $node->logfile;
reload({ fsync => 'off' });
falls_back(qr/"pg_audit_queue.fsync" is off/, 'fsync = off');
reload({ fsync => 'on' });
$log_at = -s $node->logfile;
append_to_file($node->data_dir . '/postgresql.conf', "max_slot_wal_keep_size = 1MB\n");
reload({});
falls_back(qr/"max_slot_wal_keep_size" is less than two segments/, 'a small max_slot_wal_keep_size');
append_to_file($node->data_dir . '/postgresql.conf', "max_slot_wal_keep_size = -1\n");
reload({});
begin();
pass('with more it is used again');

# A sink that fails
$client->query("SET statement_timeout = '200ms'");
set_faults($node, 'trail-write' => 28);
like($client->query("SELECT 'failing sink'"), qr/^(?:D )?E:57014$/, 'the sink fails');
poll_until(sub { (statistics()->{last_error} // '') =~ /No space left/ }) or die 'it does not fail';
is($client->query("INSERT INTO t VALUES ('failing sink')"), 'E:57014', 'while the sink fails, a commit waits');
set_faults($node);
poll_until(sub { $client->query('RESET statement_timeout') !~ /E:/ }) or die 'it does not work again';
begin();
pass('when it works, WAL is used again');

# The queue file cannot be synced.
$log_at = -s $node->logfile;
unaudited_sql($node, "SELECT pg_logical_emit_message(false, 'x', repeat('x', 1000))");
set_faults($node, 'queue-sync' => 5);
reload({ commit_wal => 'off' });
reload({ commit_wal => 'on' });
falls_back(qr/the queue file could not be synced/, 'no sync');
set_faults($node);
begin();
pass('when it can be, WAL is used again');

# ---------------------------------------------------------------------------
# A checkpoint wants the WAL that is held
# ---------------------------------------------------------------------------

append_to_file($node->data_dir . '/postgresql.conf', "max_slot_wal_keep_size = 2MB\n");
reload({});
begin();
$log_at = -s $node->logfile;
$other = PgProto->connect($node, user => 'paq_quiet');
set_faults($node, 'sentinel-inserted' => 'stop');
my $worker = worker_pid($node);
is(counts($client, "INSERT INTO t VALUES ('for the worker')"), '1 0', 'there is something to be flushed');
unaudited_sql($node, q{SELECT pg_logical_emit_message(false, 'x', repeat('x', 3000000))});
$other->start('SELECT audit_flush()');
ok(wait_until_stopped($worker), 'the worker is held up');
is(counts($client, "INSERT INTO t VALUES ('held up')"), '1 0', 'commits go on');
my $impatient = PgProto->connect($node);
$impatient->query('BEGIN');
ok( poll_until(
		sub {
			$impatient->query("ROLLBACK; BEGIN; SET LOCAL statement_timeout = '500ms'");
			$impatient->query("INSERT INTO t VALUES ('impatient')");
			$impatient->query('COMMIT') =~ /E:57014/;
		}),
	'but not for ever');
unaudited_sql($node, 'SELECT pg_switch_wal()') foreach 1 .. 3;
my $checkpointing = PgProto->connect($node, user => 'paq_quiet');
$checkpointing->start('CHECKPOINT');
ok( wait_for_log($node, qr/terminating process $worker to release replication slot "pg_audit_queue"/, $log_at),
	'a checkpoint asks it to go');
set_faults($node);
kill 'CONT', $worker;
is($checkpointing->finish, 'C:CHECKPOINT', 'which it does');
$other->finish;
ok(poll_until(sub { my $now = worker_pid($node); $now && $now != $worker }), 'there is another one');
unaudited_sql($node, 'SELECT audit_flush()');
ok(written("VALUES ('held up')"), 'which has written what there was');
begin();
pass('and uses WAL');

# ---------------------------------------------------------------------------
# WAL that is missing after a crash of the operating system
# ---------------------------------------------------------------------------

append_to_file($node->data_dir . '/postgresql.conf', "max_slot_wal_keep_size = -1\n");
reload({});

# The operating system crashes, with nothing of the ring synced since.
sub lose_ring
{
	my ($bytes) = @_;
	my $l     = QueueFile::layout();
	my $queue = QueueFile->parse($bytes);
	my $file  = queue_dir($node) . '/queue';

	open my $fh, '+<:raw', $file or die "$file: $!";
	seek($fh, $queue->{ring_offset}, 0);
	print $fh "\0" x $queue->{ring_size};
	seek($fh, 3 * $l->{page} + $l->{'live.boot_id'}, 0);
	print $fh 'anotherb';
	close $fh;
	return;
}

# Kill everything, and have $sub do something to the WAL; it gets the segments'
# paths, the one with the sentinel first.
sub crash_without
{
	my ($sub) = @_;
	my ($first) = map { unaudited_sql($node, "SELECT pg_walfile_name('$_')") } slot();
	my $dir = $node->data_dir . '/pg_wal';

	$node->stop('immediate');
	lose_ring(SavedState::read_file(queue_dir($node) . '/queue'));
	$sub->(grep { m{/([0-9A-F]{24})$} && $1 ge $first } sort glob("$dir/*"));
	$log_at = -s $node->logfile;
	$node->start;
	unaudited_sql($node, 'SELECT audit_flush()');
	return;
}

sub gaps
{
	return grep { /operating system was restarted/ }
	  map { $_->{errorMessage} // '' } grep { $_->{type} eq 'gap' } trail_records($node);
}

require SavedState;
foreach my $case ([ 'the first segment', 0, qr/WAL .* is missing/ ],
	[ 'a segment in between', 1, qr/WAL .* is missing/ ],
	[ 'the end of a segment', -1, qr/WAL .* is missing/ ],
	[ 'none', undef, qr/records that were not yet durable/ ])
{
	my ($name, $which, $message) = @$case;
	my $before = gaps();

	# no sentinel comes while this lasts
	$node->restart;
	begin();
	unaudited_sql($node, 'SELECT audit_flush()');
	counts($client, "INSERT INTO t VALUES ('early $name')");
	unaudited_sql($node, 'SELECT pg_switch_wal()');
	counts($client, "INSERT INTO t VALUES ('middle $name')");
	unaudited_sql($node, 'SELECT pg_switch_wal()');
	unaudited_sql($node, 'CHECKPOINT');
	counts($client, "INSERT INTO t VALUES ('late $name')");
	is($client->query('SELECT 1 / 0'), 'E:22012', "without $name: nobody waits for this");
	ok(!written("VALUES ('late $name')"), 'the trail has nothing yet');
	crash_without(
		sub {
			return if !defined $which;
			unlink $_[$which] or die "unlink: $!" if $which >= 0;
			truncate($_[ -$which ], 0) or die "truncate: $!" if $which < 0;
		});

	is(scalar(gaps()), $before + 1, "without $name: there is one GAP record");
	like((gaps())[-1], $message, 'which says what is missing');
	my @there = map { written("VALUES ('$_ $name')") ? $_ : () } qw(early middle late);
	is("@there", (defined $which ? join ' ', (qw(early middle late))[ 0 .. abs($which) - 1 ] : 'early middle late'),
		'what WAL has up to there is in the trail');
}
my %seen;
my @twice = grep { s/"sequence":\d+//r; } grep { $seen{ s/"sequence":\d+//r }++ } trail_lines($node);
is_deeply(\@twice, [], 'nothing is there twice');

# ---------------------------------------------------------------------------
# Messages that somebody else makes
# ---------------------------------------------------------------------------

# A message as ours are, for a frame behind the last one, with another record
begin();
counts($client, "INSERT INTO t VALUES ('genuine')");
my $bytes   = SavedState::read_file(queue_dir($node) . '/queue');
my $queue   = QueueFile->parse($bytes);
my ($frame) = grep { $_->{record} =~ /'genuine'/ } $queue->frames;
my $created = unpack('q<', substr($bytes, QueueFile::layout()->{'header.created'}, 8));
my $message = pack('S< C C L< q<', 1, 1, 0, 12 + length $frame->{record}, $created)
  . pack('Q< L<', $frame->{pos} + 4096, length $frame->{record})
  . ($frame->{record} =~ s/'genuine'/'forgery'/r);
my $sql = "SELECT pg_logical_emit_message(false, 'pg_audit_queue', '\\x" . unpack('H*', $message) . "'::bytea)";
is($client->query($sql), 'D C:SELECT_1', 'somebody forges a message');
counts($client, "INSERT INTO t VALUES ('after it')");
crash_without(sub { });
ok(written("VALUES ('after it')"), 'what comes after it is restored');
ok(written("VALUES ('genuine')"), 'and what comes before');
is(scalar(grep { /'forgery'/ } trail_lines($node)), 0, 'but not what it has');

# ---------------------------------------------------------------------------
# Base backups, standbys, servers without the library
# ---------------------------------------------------------------------------

begin();
$node->backup('backup');
counts($client, "INSERT INTO t VALUES ('for the standby')");
my $standby = PostgreSQL::Test::Cluster->new('standby', install_path => fault_install());
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);
is(unaudited_sql($standby, "SELECT count(*) FROM t WHERE a = 'for the standby'"), '1', 'a standby replays WAL');
is(slot($standby), undef, 'it needs no slot');
my $reader = PgProto->connect($standby);
$reader->query("SELECT 'on the standby'");
ok(written('on the standby', $standby), 'its sessions wait for its trail');
my $before = statistics($standby);
cmp_ok($before->{wal_fallbacks}, '>', 0, 'which is counted');
$standby->promote;
ok( poll_until(
		sub {
			$reader->query("INSERT INTO t VALUES ('promoted')");
			statistics($standby)->{wal_commits} > $before->{wal_commits};
		}),
	'when it has been promoted, it uses WAL');
ok(slot($standby), 'with a slot');
$standby->stop('immediate');

# A crash while PostgreSQL removes the slot that another crash has left
$node->stop('immediate');
my $slot_dir = $node->data_dir . '/pg_replslot/pg_audit_queue';
ok(unlink("$slot_dir/state"), 'a slot is half removed');
$node->start;
ok(!-d $slot_dir, 'the server starts, and removes the rest');
begin();
pass('and WAL is used');

# Crash recovery without the library
counts($client, "INSERT INTO t VALUES ('replayed')");
$node->stop('immediate');
append_to_file($node->data_dir . '/postgresql.conf', "shared_preload_libraries = ''\n");
$node->start;
is($node->safe_psql('postgres', "SELECT count(*) FROM t WHERE a = 'replayed'"), '1',
	'a server without the library replays WAL');
$node->stop;

# The library comes back: nothing is lost.
append_to_file($node->data_dir . '/postgresql.conf', "shared_preload_libraries = 'pg_audit_queue'\n");
$node->start;
unaudited_sql($node, 'SELECT audit_flush()');
ok(written("VALUES ('replayed')"), 'and the trail is complete when it is back');

# wal_level
$log_at = -s $node->logfile;
append_to_file($node->data_dir . '/postgresql.conf', "wal_level = minimal\nmax_wal_senders = 0\n");
$node->restart;
falls_back(qr/"wal_level" is "minimal"/, 'wal_level = minimal');
$node->stop;
append_to_file($node->data_dir . '/postgresql.conf', "wal_level = replica\n");

# A queue in memory
SKIP:
{
	my $dir = "/dev/shm/paq.$$";

	skip 'no file system in memory', 6
	  if !-w '/dev/shm' || `stat -f -c %T /dev/shm` !~ /tmpfs/;
	$log_at = -s $node->logfile;
	append_to_file($node->data_dir . '/postgresql.conf', settings_text(queue_directory => $dir));
	$node->start;
	falls_back(qr/"pg_audit_queue.queue_directory" is on a file system in memory/, 'tmpfs');
	$node->stop;
	unlink glob("$dir/*");
	rmdir $dir;
}

# ---------------------------------------------------------------------------
# A library that was built for a server without lz4
# ---------------------------------------------------------------------------

$node = audited_node(
	'pglz',
	init         => [ allows_streaming => 1, extra => ['--wal-segsize=1'] ],
	install_path => least_install(),
	settings     => { mode => 'commit', commit_wal => 'on', flush_interval => '1h' },
	conf         => "autovacuum = off\n");
unaudited_sql($node, 'CREATE TABLE t (a text)');
begin();
unaudited_sql($node, 'SELECT audit_flush()');
is(counts($client, "INSERT INTO t VALUES ('by pglz') /* " . 'z' x 3000 . ' */'), '1 0', 'without lz4 WAL is used');
my $wal = join '', map { SavedState::read_file($_) }
  grep { /\/[0-9A-F]{24}$/ } glob($node->data_dir . '/pg_wal/*');

# prefix, version, kind (records), method
my %methods = map { $_ => 1 } map { ord } $wal =~ /pg_audit_queue\0\x01\0\x01(.)/gs;
is_deeply([ keys %methods ], [2], 'with records that pglz has compressed');
unlike($wal, qr/z{100}/, 'which makes them shorter');
crash_without(sub { });
ok(written("VALUES ('by pglz')"), 'and which are restored');
$node->stop;

done_testing();
