# Records on the WAL and a crash of the operating system.  A library in front of
# libc keeps WAL, queue and trail files as they were when they were last synced.
# Clients write, prepare, read, fail; checkpoints, new segments and new trail files
# come in between.  At some moment everything is killed.  Each page of these files
# that has changed since it was synced is then as it was synced, or as it was last,
# at random; files that grew may be shorter; the boot id is another one.
#
# After that, all that a client was told had been committed is in the trail, once,
# and so is what the table has.  The same is true if the system crashes while it
# recovers, twice.
#
# queue_files/Rounds.pm lists the options.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/queue_files";
use PaqTest;

use BareServer;
use PgProto;
use POSIX ();
use PostgreSQL::Test::Utils;
use QueueFile;
use Rounds;
use SavedState;
use SystemCrash;
use Test::More;
use Time::HiRes qw(sleep time);

my $rounds = Rounds->new(short => 12, full => 400);
my $tmp    = PostgreSQL::Test::Utils::tempdir();

my $node = audited_node(
	'main',
	start        => 0,
	init         => [ extra => ['--wal-segsize=1'] ],
	install_path => fault_install(),
	settings     => { mode => 'commit', commit_wal => 'on' },
	conf         => BareServer::conf() . <<'END');
fsync = on
wal_level = replica
max_wal_senders = 2
max_replication_slots = 2
max_connections = 20
max_prepared_transactions = 20
min_wal_size = 2MB
max_wal_size = 4MB
bgwriter_delay = 10ms
END
my $server = BareServer->new($node);
my $copies = SystemCrash::keep_synced();

# ---------------------------------------------------------------------------
# Clients
# ---------------------------------------------------------------------------

my $marker_number = 0;

# A text that turns up in one statement only
sub marker
{
	my ($name) = @_;

	return sprintf 'wm-%s-%d-%08x', $name, ++$marker_number, int(rand(2**32));
}

# Each of these gets a client and a name for markers, and returns the markers that
# must be in the trail now, all of them of statements that were successful.  It dies
# when the connection is lost.
my %transactions = (
	insert => sub {
		my ($client, $name) = @_;
		my $m = marker($name);

		return $client->query("INSERT INTO t VALUES ('$m')") eq 'C:INSERT_0_1' ? $m : ();
	},
	block => sub {
		my ($client, $name) = @_;
		my @m = map { marker($name) } 1 .. 1 + int(rand(6));

		$client->query('BEGIN');
		$client->query("INSERT INTO t VALUES ('$_') /* " . 'x' x int(rand(1500)) . ' */') foreach @m;
		return $client->query('COMMIT') eq 'C:COMMIT' ? @m : ();
	},
	savepoint => sub {
		my ($client, $name) = @_;
		my @m = map { marker($name) } 1 .. 2;

		$client->query('BEGIN');
		$client->query("INSERT INTO t VALUES ('$m[0]')");
		$client->query('SAVEPOINT s');
		$client->query("SELECT '$m[1]'");
		$client->query("SELECT 1 / 0");
		$client->query('ROLLBACK TO s');
		return $client->query('COMMIT') eq 'C:COMMIT' ? @m : ();
	},
	prepare => sub {
		my ($client, $name) = @_;
		my @m = map { marker($name) } 1 .. 2;
		my @done;

		$client->query('BEGIN');
		$client->query("INSERT INTO t VALUES ('$m[0]')");
		push @done, $m[0]
		  if $client->query("PREPARE TRANSACTION '$name'") eq 'C:PREPARE_TRANSACTION';
		push @done, $m[1]
		  if $client->query((rand() < 0.7 ? 'COMMIT' : 'ROLLBACK')
			. " PREPARED '$name' /* $m[1] */") =~ /^C:/;
		return @done;
	},
	asynchronous => sub {
		my ($client, $name) = @_;
		my $m = marker($name);

		$client->query('BEGIN; SET LOCAL synchronous_commit = off');
		$client->query("INSERT INTO t VALUES ('$m')");
		return $client->query('COMMIT') eq 'C:COMMIT' ? $m : ();
	},
	read => sub {
		my ($client, $name) = @_;
		my $m = marker($name);

		return $client->query("SELECT '$m'") eq 'D C:SELECT_1' ? $m : ();
	},
	serializable => sub {
		my ($client, $name) = @_;
		my $m = marker($name);

		$client->query('BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT count(*) FROM conflicts');
		my $answer = $client->query("INSERT INTO conflicts VALUES ('$m')");
		return $client->query('COMMIT') eq 'C:COMMIT' && $answer eq 'C:INSERT_0_1' ? $m : ();
	},
	on_commit_drop => sub {
		my ($client, $name) = @_;
		my @m = map { marker($name) } 1 .. 2;

		$client->query('BEGIN');
		$client->query("CREATE TEMPORARY TABLE d ON COMMIT DROP AS SELECT '$m[0]'");
		$client->query("INSERT INTO d VALUES ('$m[1]')");
		return $client->query('COMMIT') eq 'C:COMMIT' ? @m : ();
	},
	procedure => sub {
		my ($client, $name) = @_;
		my $m = marker($name);

		return $client->query("CALL p('$m')") eq 'C:CALL' ? $m : ();
	},
	ddl => sub {
		my ($client, $name) = @_;
		my @m = map { marker($name) } 1 .. 2;
		my @done;

		push @done, $m[0]
		  if $client->query("CREATE TABLE u_$name () /* $m[0] */") eq 'C:CREATE_TABLE';
		push @done, $m[1]
		  if $client->query("DROP TABLE u_$name /* $m[1] */") eq 'C:DROP_TABLE';
		return @done;
	},
	long => sub {
		my ($client, $name) = @_;
		my @m = map { marker($name) } 1 .. 2;

		$client->query('BEGIN');
		$client->query("INSERT INTO t VALUES ('$m[0]')");
		$client->query("INSERT INTO t VALUES ('$m[1]') /* " . 'y' x 20000 . ' */');
		return $client->query('COMMIT') eq 'C:COMMIT' ? @m : ();
	},
	forged => sub {
		my ($client, $name) = @_;
		my $m = marker($name);

		return $client->query(
			"SELECT pg_logical_emit_message(true, 'pg_audit_queue', repeat('$m', 3))") =~ /C:SELECT_1/
		  ? $m : ();
	});

# What is done beside them
my @other = (
	'CHECKPOINT', 'SELECT pg_switch_wal()', 'SELECT audit_flush()', 'SELECT audit_rotate()',
	q{SELECT pg_logical_emit_message(false, 'x', repeat('x', 300000))},
	'VACUUM t', 'SELECT pg_reload_conf()',
	q{SELECT pg_terminate_backend(worker_pid) FROM pg_stat_audit_queue WHERE random() < 0.3});

# Run $sub in a process of its own, until that is killed.
sub in_child
{
	my ($seed, $sub) = @_;
	my $pid = fork() // die "fork: $!";

	return $pid if $pid != 0;
	$SIG{TERM} = 'DEFAULT';
	srand($seed);
	while (1)
	{
		eval { $sub->(); };
		sleep 0.02;
	}
}

# A client that notes, after each transaction, what must be there
sub write_all_the_time
{
	my ($name, $file, @names) = @_;

	open my $acknowledged, '>>', $file or die "$file: $!";
	my $client = $server->connect;

	while (1)
	{
		my @markers = $transactions{ $names[ rand @names ] }->($client, $name);

		syswrite($acknowledged, join '', map { "$_\n" } @markers);
		$client->query('ROLLBACK') if rand() < 0.05;
	}
}

sub disturb_all_the_time
{
	my $client = $server->connect(user => 'paq_quiet');

	while (1)
	{
		# a crash of PostgreSQL, for once
		kill 'KILL', $server->worker // () if rand() < 0.03;
		$client->query($other[ rand @other ]);
		sleep rand(0.15);
	}
}

# ---------------------------------------------------------------------------
# Crashes
# ---------------------------------------------------------------------------

# Paths of the files that a crash changes, by what they are
sub files
{
	my $data = $node->data_dir;

	return (
		wal   => [ grep { /\/[0-9A-F]{24}$/ } glob("$data/pg_wal/*") ],
		queue => [ grep { /\/queue(?:\.\d+)?$/ } glob(queue_dir($node) . '/*') ],
		trail => [ trail_files($node) ],
		spill => [ glob(queue_dir($node) . '/spill.*') ]);
}

sub overwrite
{
	my ($path, $bytes) = @_;

	foreach my $file ($path, "$copies/" . (stat $path)[1])
	{
		open my $fh, -e $file ? '+<:raw' : '>:raw', $file or die "$file: $!";
		print $fh $bytes;
		truncate($fh, length $bytes) or die "truncate: $!";
		close $fh or die "close: $!";
	}
	return;
}

sub with_another_boot_id
{
	my ($bytes) = @_;
	my $l = QueueFile::layout();

	substr($bytes, 3 * $l->{page} + $l->{'live.boot_id'}, 8) = sprintf '%08x', int(rand(2**32));
	return $bytes;
}

# The operating system crashes.  How much of the files is as it was last is random
# unless given.  Returns how, in words.
sub crash
{
	my (%given) = @_;
	my %files = files();
	my %p = ((map { $_ => (0, 0.5, 1, rand())[ rand 4 ] } keys %files), %given);

	foreach my $path (@{ $files{wal} })
	{
		my $synced = SystemCrash::synced_bytes($path);
		my $last   = SavedState::read_file($path);

		overwrite($path, defined $synced ? SystemCrash::mix($synced, $last, $p{wal}) : $last);
	}
	foreach my $path (@{ $files{queue} })
	{
		my $synced = SystemCrash::synced_bytes($path) // die "$path was never synced";

		overwrite($path, with_another_boot_id(
				SystemCrash::mix($synced, SavedState::read_file($path), $p{queue})));
	}
	foreach my $path (@{ $files{trail} }, @{ $files{spill} })
	{
		overwrite($path,
			SystemCrash::grow(SystemCrash::synced_bytes($path) // '', SavedState::read_file($path), $p{trail}));
	}
	return sprintf 'pages %.2f of WAL, %.2f of the queue, %.2f of the trail', @p{qw(wal queue trail)};
}

# ---------------------------------------------------------------------------
# One round
# ---------------------------------------------------------------------------

# Kill the server while it recovers, as often as that.  Returns where.
sub interrupt_recovery
{
	my ($times) = @_;
	my @where;

	foreach (1 .. $times)
	{
		my $point = (qw(restore-copied restore-frame restore-done restore-synced note-written
			  checkpoint-half checkpoint-written batch-written flushed sentinel-inserted))[ rand 10 ];

		set_faults($node, $point => 'stop');
		my $state = $server->start_or_stop;
		die "the server does not start:\n" . $server->log if $state eq 'ended';
		$server->kill_all;
		push @where, "$state at $point (" . crash() . ')';
	}
	set_faults($node);
	return @where;
}

sub lines
{
	my ($path) = @_;

	return -e $path ? split /\n/, slurp_file($path) : ();
}

sub faults_in_trail
{
	my ($required, $rows) = @_;
	my @faults;
	my %done;
	my %seen;
	my $expected;
	my $gaps = 0;

	foreach my $line (trail_lines($node))
	{
		my $record = parse_record($line);

		if (!defined $record)
		{
			push @faults, "no JSON record: $line";
			next;
		}
		push @faults, "sequence $record->{sequence}, expected $expected"
		  if defined $expected && $record->{sequence} != $expected;
		$expected = $record->{sequence} + 1;
		if ($record->{type} eq 'gap')
		{
			$gaps++;
			push @faults, "false: $record->{errorMessage}" if $record->{errorMessage} =~ /WAL/;
			$expected = $record->{sequence} + $record->{rowCount}
			  if $record->{errorMessage} =~ /with sequence \d+ to \d+/;
		}
		# no two records of a session are the same
		(my $rest = $line) =~ s/"sequence":\d+//;
		push @faults, "twice: $line" if $record->{type} ne 'gap' && $seen{$rest}++;
		$done{$1} = 1
		  if ($record->{exitCode} // '') eq '00000'
		  && ($record->{commandText} // '') =~ /(wm-\w+-\d+-[0-9a-f]{8})/;
	}
	push @faults, map { "$_: acknowledged, and no record" } grep { !$done{$_} } @$required;
	push @faults, map { "$_: committed, and no record" } grep { /^wm-[^-]+-\d+-[^-]+$/ && !$done{$_} } @$rows;
	push @faults, 'no GAP record tells of the crash' if !$gaps;
	return @faults;
}

# Start with an empty trail and table.
sub begin_life
{
	my ($keep, %settings) = @_;

	$server->set(%settings);
	append_to_file($node->data_dir . '/postgresql.conf', "max_slot_wal_keep_size = $keep\n");
	unlink glob("$tmp/acknowledged.*"), glob("$copies/*"), glob(queue_dir($node) . '/*'),
	  glob(trail_dir($node) . '/*');

	# The server has stopped: this is on disk.  Without a copy, a process that is
	# killed while it makes the first one would leave a part of it.
	my %files = files();

	overwrite($_, SavedState::read_file($_)) foreach @{ $files{wal} };
	set_faults($node);
	$server->start or die "does not start:\n" . $server->log;
	unaudited('DELETE FROM t');
	return;
}

# Start after a crash, and look at the trail.  Returns what is wrong.
sub end_life
{
	my ($what, @required) = @_;

	set_faults($node);
	$server->start or return 'does not start: ' . $server->log;
	my @faults   = grep { /PANIC|TRAP/ } split /\n/, $server->log;
	my $rows     = unaudited_rows('SELECT m FROM t');
	my $prepared = unaudited_rows('SELECT gid FROM pg_prepared_xacts');

	unaudited("ROLLBACK PREPARED '$_'") foreach @$prepared;
	unaudited('SELECT audit_flush()');
	push @faults, faults_in_trail(\@required, $rows);
	push @$what, scalar(@required) . ' acknowledged, ' . @$rows . ' rows, restored '
	  . join('/', $server->log =~ /restored (\d+) audit records/g);
	$server->stop == 0 or push @faults, 'exit status';
	return @faults;
}

# A life of the server, a crash, recovery.  Returns what was wrong.
sub round
{
	my ($what, $number, $seed) = @_;
	my @names  = sort keys %transactions;
	my $length = 0.2 + rand(full_tests() ? 2 : 0.8);
	my @children;

	# some rounds have few kinds, so that others are not in the way
	@names = map { $names[ rand @names ] } 1 .. 1 + int(rand(2)) if rand() < 0.3;
	my $keep = rand() < 0.5 ? '2MB' : '-1';
	begin_life($keep,
		queue_size => (qw(64kB 64kB 1MB))[ rand 3 ],
		flush_interval  => (qw(20ms 1s 1h))[ rand 3 ],
		flush_threshold => (5, 50, 80)[ rand 3 ]);

	my $point = (qw(sentinel-inserted sentinel-flushed sentinel-synced sentinel-noted
		  sentinel-advanced settle-begun settle-synced settle-noted wal-inserted
		  batch-written flushed skip-reserved skip-noted detour-claimed none none none
		  none))[ rand 18 ];
	my $disturbed = rand() < 0.7;

	foreach my $client (1 .. 3)
	{
		push @children, in_child($seed + $client,
			sub { write_all_the_time("c$client", "$tmp/acknowledged.$client", @names) });
	}
	push @children, in_child($seed, \&disturb_all_the_time) if $disturbed;
	sleep $length;
	if ($point ne 'none')
	{
		# whoever comes there first stays there; the others go on for a moment
		set_faults($node, $point => 'stop');
		sleep rand(0.3);
	}
	$server->kill_all;
	kill 'KILL', @children;
	waitpid($_, 0) foreach @children;

	my @lives = (sprintf('%s, %s, keep %s, %.1f s, stop at %s%s', join('/', @names), join('/', %{ $server->{settings} }),
			$keep, $length, $point, $disturbed ? ', disturbed' : ''), crash());
	my $times = (0, 0, 1, 2)[ rand 4 ];
	push @lives, interrupt_recovery($times);
	push @$what, @lives;

	return end_life($what, map { lines($_) } glob("$tmp/acknowledged.*"));
}

sub unaudited
{
	my ($sql) = @_;

	return $server->ask($sql, user => 'paq_quiet');
}

# The rows of a query of one column, by way of a file
sub unaudited_rows
{
	my ($sql) = @_;
	my $file = "$tmp/rows";

	unlink $file;
	my $answer = unaudited("COPY ($sql) TO '$file'");
	die "$sql: $answer" if $answer !~ /^C:COPY/;
	return [ lines($file) ];
}

$server->make_extension;
$server->start or die 'does not start';
unaudited($_) foreach 'CREATE TABLE t (m text)', 'CREATE TABLE conflicts (m text)', <<'END';
CREATE PROCEDURE p(m text) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO t VALUES (m || '-1');
	COMMIT;
	INSERT INTO t VALUES (m || '-2');
	COMMIT;
	PERFORM 1;
END $$
END
$server->stop;

# ---------------------------------------------------------------------------
# Crashes at places that chance rarely finds
# ---------------------------------------------------------------------------

# Insert rows, one by one; returns their markers.
sub insert
{
	my ($client, $count) = @_;

	return map { $transactions{insert}->($client, 'x') } 1 .. $count;
}

# Begin with flushes at audit_flush() only, and WAL in use.
sub begin_with_wal
{
	begin_life(
		'-1',
		queue_size      => '64kB',
		flush_interval  => '1h',
		flush_threshold => 80);
	my $client = $server->connect;

	poll_until(
		sub {
			insert($client, 1);
			return unaudited_rows('SELECT wal_commits FROM pg_stat_audit_queue')->[0] > 0;
		}) or die 'WAL is not used';
	unaudited('SELECT audit_flush()');
	return $client;
}

sub ends_well
{
	my ($name, @required) = @_;
	my @what;
	my @faults = end_life(\@what, @required);

	is_deeply(\@faults, [], "$name: nothing is wrong") or diag(explain(\@faults));
	note("$name: @what");
	return;
}

{
	my $client   = begin_with_wal();
	my @required = insert($client, 20);

	$server->kill_all;
	crash(queue => 0, trail => 0);
	ends_well('nothing was written back', @required);
	like($server->log, qr/restored 21 audit records/, 'all come from WAL, that of the begin, too');
}

# The worker is told to end; it gives up its WAL, and has not written yet.
{
	my $client   = begin_with_wal();
	my @required = insert($client, 20);
	my $worker   = $server->worker;

	set_faults($node, 'settle-noted' => 'stop');
	kill 'TERM', $worker;
	wait_until_stopped($worker) or die 'the worker goes on';
	$server->kill_all;
	crash(queue => 0, trail => 0);
	ends_well('after WAL was given up', @required);
}

# PostgreSQL crashes, and while the worker writes the backlog, the system.
{
	my $client   = begin_with_wal();
	my @required = insert($client, 20);

	$server->kill_all;
	set_faults($node, 'batch-written' => 'stop');
	$server->start_until_stopped;
	$server->kill_all;
	crash(queue => 0, trail => 0);
	ends_well('after a crash of PostgreSQL', @required);
}

# A session has copied its frame, and is held up until the ring has gone once around
# and others have committed what is at the same place: WAL has the older frame last.
{
	my $client   = begin_with_wal();
	my $other    = $server->connect;
	my $m        = marker('held');
	my $file     = queue_dir($node) . '/queue';
	my $frame_of = sub {
		return (grep { index($_->{record}, $m) >= 0 } QueueFile->parse(SavedState::read_file($file))->frames)[0];
	};
	my $reserved = sub { return QueueFile->parse(SavedState::read_file($file))->{reserved} };
	my @required;

	set_faults($node, 'wal-collected' => 'stop');
	$client->start("INSERT INTO t VALUES ('$m')");
	wait_until_stopped($client->pid) or die 'the session goes on';
	set_faults($node);
	my $pos = $frame_of->()->{pos};
	while ($reserved->() < $pos + 65536 - 3000)
	{
		push @required, insert($other, 1);
	}
	unaudited('SELECT audit_flush()');
	push @required, insert($other, 1) while $reserved->() < $pos + 65536 + 3000;
	kill 'CONT', $client->pid;
	is($client->finish, 'C:INSERT_0_1', 'the session is told that it has committed');
	$server->kill_all;
	crash(queue => 0, trail => 0);
	ends_well('an older frame is the last in WAL', @required, $m);
}

# ---------------------------------------------------------------------------
# And at random
# ---------------------------------------------------------------------------

my ($acknowledged, $restored) = (0, 0);
foreach my $number ($rounds->numbers)
{
	my @what;

	$rounds->begin($number);
	my $seed = int(rand(2**31));
	my @faults = round(\@what, $number, $seed);

	note("$number: " . join '; ', @what);
	$acknowledged += $1 if $what[-1] =~ /^(\d+) acknowledged/;
	$restored += $_ foreach $what[-1] =~ /(?:restored |\/)(\d+)/g;
	last
	  if @faults
	  && $rounds->failed($number, join('; ', @what), \@faults, queue_dir($node), trail_dir($node),
		$node->data_dir . '/pg_wal');
}
cmp_ok($acknowledged, '>', 0, 'clients were told of commits');

# About one round in three restores records itself; in the others, the pages of the
# queue are there, or a recovery that was interrupted has done it.  Few rounds may all
# be of these, which says nothing: the cases above are certain to restore.
cmp_ok($restored, '>', 0, 'records were restored from WAL') if $rounds->count >= 60;
$rounds->finish($rounds->count . ' crashes: nothing that was committed is lost, nothing is there twice');
delete $ENV{LD_PRELOAD};
done_testing();
