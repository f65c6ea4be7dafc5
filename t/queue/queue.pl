# The queue: it may be full, and a record may be larger than the queue.  That its records
# survive stops and crashes is in queue/deaths.pl.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/queue_files";
use PaqTest;
use PgProto;
use QueueFile;
use SavedState;

use Digest::MD5 qw(md5_hex);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

# As small as it may be, and drained only when somebody asks for it.
my $node = audited_node(
	'main',
	settings => {
		flush_interval  => '1h',
		flush_threshold => 80,
		log_parameter   => 'on',
		queue_size      => '64kB'
	},
	conf => "restart_after_crash = on\nautovacuum = off\n");

# Files in the queue directory that should not be there for long
sub leftover_files
{
	return grep { !/^(?:\.|\.\.|queue|lock)$/ } slurp_dir(queue_dir($node));
}

# Texts of the records that match, in the order of the trail
sub texts_like
{
	my ($regexp, @records) = @_;

	return grep { /$regexp/ } map { $_->{commandText} // '' } @records;
}

# Wait until nothing is left to be drained, without asking for a flush.  The worker
# publishes that it has started, after what an earlier one has left.
sub wait_until_drained
{
	return poll_until(
		sub {
			my $stats = eval { stats($node) };

			return $stats && $stats->{flushed} > 0 && $stats->{flushed} == $stats->{published};
		},
		30);
}

my @records;

# A full queue, and no worker to empty it

sub fill_queue
{
	my ($label) = @_;
	my $session = start_psql(
		$node, join("\n", map { "SELECT '$label $_';" } 1 .. 1000),
		name => $label);

	ok(wait_until_waiting($node, $label), "$label: a session waits for space");
	return $session;
}

# Numbers of the statements that the client was told had succeeded
sub succeeded
{
	my ($label, $session) = @_;
	my ($status, $stdout, $stderr) = finish_psql($session);

	return map { /^\Q$label\E (\d+)$/ ? $1 : () } split /\n/, $stdout;
}

# More clients than a small queue has space for

flush_trail($node);
my $worker = worker_pid($node);
my $before = stats($node);
kill('STOP', $worker);
my $clients = start_load(
	$node, 'client',
	clients    => 8,
	statements => 300,
	pause      => 0,
	name       => 'client');
ok(wait_until_waiting($node, 'client'), 'clients wait for space');
kill('CONT', $worker);
is(finish_load($clients), 2400, '8 clients and 64 kB: all statements work');
flush_trail($node);
my $stats = stats($node);
cmp_ok($stats->{space_waits}, '>', $before->{space_waits},
	'clients have waited for space');
cmp_ok($stats->{queue_high_water}, '<=', 64 * 1024, 'no more than there is');
is($stats->{dropped}, 0, 'nothing is dropped');
check_load($clients, [ check_trail($node, 'the trail is whole') ],
	'all are recorded');

# Cancelled while waiting for space: failed, and recorded as such.  There is
# space for such records.  When that is full too, a session may not be able to
# run anything; what it has run is recorded, which the sequence tells, because
# it is not rolled back.

unaudited_sql($node, 'CREATE SEQUENCE cancelled_that_ran');
kill('STOP', $worker);
my $session = $node->background_psql('postgres', on_error_stop => 0);
$session->query_safe("SET application_name = 'cancelled'");
my $filler = fill_queue('filler');
my $filler_pid = wait_until_waiting($node, 'filler');
unaudited_sql($node, "SELECT pg_terminate_backend($filler_pid)");
my @succeeded = succeeded('filler', $filler);
my $cancelled = 0;
foreach my $number (1 .. 40)
{
	$session->query_until(qr/sent $number\n/,
		"\\echo sent $number\nSELECT 'cancelled $number', nextval('cancelled_that_ran');\n"
	);
	my $pid = wait_until_waiting($node, 'cancelled') or last;

	unaudited_sql($node, "SELECT pg_cancel_backend($pid)");
	poll_until(
		sub {
			unaudited_sql(
				$node, "SELECT state = 'idle' FROM pg_stat_activity
						 WHERE pid = $pid") eq 't';
		}) or last;
	$cancelled++;
}
is($cancelled, 40, 'waiting for space can be cancelled');

# One that ends when there is no space at all: if it cannot be recorded, that
# must be known.
my $ending = start_psql($node, q{SELECT 'ending'}, name => 'ending');
my $ending_pid = wait_until_waiting($node, 'ending');
unaudited_sql($node, "SELECT pg_terminate_backend($ending_pid)");
finish_psql($ending);
kill('CONT', $worker);
$session->query(q{SELECT 'after that'});
$session->quit;
flush_trail($node);
@records = check_trail($node, 'the trail is whole');
my $ran = unaudited_sql($node, 'SELECT last_value FROM cancelled_that_ran');
cmp_ok($ran, '>=', 10, 'there was space for records of several');
is_deeply(
	[
		map {
			[ $_->{commandText} =~ /'(cancelled \d+)'/, @{$_}{qw(class exitCode)} ]
		  }
		  grep { ($_->{commandText} // '') =~ /'cancelled \d+'/ } @records
	],
	[
		(map { [ "cancelled $_", 'READ',  '57014' ] } 1 .. $ran),
		(map { [ "cancelled $_", 'ERROR', '57014' ] } $ran + 1 .. 40)
	],
	'each that ran is recorded once, in order, with its outcome; so are the others');
is_deeply(
	[
		map { [ @{$_}{qw(commandText exitCode)} ] }
		  grep { ($_->{commandText} // '') =~ /'filler / } @records
	],
	[
		(map { [ shown_text($node, "SELECT 'filler $_';"), '00000' ] } 1 .. @succeeded),
		[ shown_text($node, "SELECT 'filler " . (@succeeded + 1) . "';"), '57P01' ]
	],
	'as is what was terminated');
is(texts_in_trail($node, 'after that'), 1, 'the session goes on');
is(texts_in_trail($node, q{"commandText":"SELECT 'ending'}) + stats($node)->{dropped},
	1, 'a session that ends then is recorded, or counted as dropped');

# Records of failures before execution do not wait for space.  Those that find
# none come with whatever the session does next, be it to end; no statement that
# works need come for that.

kill('STOP', $worker);
my $failing = PgProto->connect($node);
$failing->query("SELEC 'early $_'") foreach 1 .. 300;
kill('CONT', $worker);
# what the session owes is not in the queue yet
ok( poll_until(sub { stats($node)->{queue_used} < 4096 }),
	'there is space in the queue again');
$failing->query("SELEC 'late $_'") foreach 1 .. 300;
$failing->quit;
my $failing_pid = $failing->pid;
ok( poll_until(
		sub {
			unaudited_sql($node,
				"SELECT count(*) FROM pg_stat_activity WHERE pid = $failing_pid"
			) eq '0';
		}),
	'the session has ended');
flush_trail($node);
is(texts_in_trail($node, q{"commandText":"SELEC 'early}),
	300, 'what failed while the queue was full is recorded');
is(texts_in_trail($node, q{"commandText":"SELEC 'late}),
	300, 'and what failed afterwards');

# A value too long for the queue, by a user who may not set it
unaudited_sql($node, 'CREATE ROLE plain LOGIN');
my $plain = PgProto->connect($node, user => 'plain');
$plain->query(q{SET pg_audit_queue.role = '} . ('x' x 300_000) . q{'});
like($plain->query('SELECT 1'), qr/D/, 'the session goes on after a long value');
$plain->quit;
flush_trail($node);
is_deeply(
	[
		map { [ $_->{exitCode}, !!$_->{cut}, length $_->{newValue} < 300_000 ] }
		  grep { $_->{class} eq 'CONFIG' }
		  map { parse_record($_) }
		  grep { /"dbUserName":"plain"/ } trail_lines($node)
	],
	[ [ '42501', !!1, !!1 ] ],
	'its record is cut');

# Records larger than the queue

$node->stop;
$node = audited_node(
	'large',
	settings => {
		flush_interval => '1h',
		log_parameter  => 'on',
		queue_size     => '64kB'
	});

# The record whose line has this text
sub record_with
{
	my ($part) = @_;
	my ($line) = grep { index($_, $part) > 0 } trail_lines($node);

	return parse_record($line // '') // {};
}

sub memory
{
	my ($pid, $name) = @_;
	my ($kb) = slurp_file("/proc/$pid/status") =~ /^\Q$name\E:\s+(\d+) kB/m;

	return $kb;
}

my $size = 5 * 1024 * 1024;
my $text = join '', map { sprintf '%07d ', $_ } 1 .. $size / 8;

$worker = worker_pid($node);
my $memory = -r "/proc/$worker/status" ? memory($worker, 'VmHWM') : undef;
foreach my $round (1 .. 3)
{
	my $large = "SELECT length('$text') + $round;";
	my $client = start_psql($node, $large, settings => { mode => 'immediate' });
	is((finish_psql($client))[1], $size + $round . "\n", 'a 5 MB statement');
	my $record = record_with(shown_text($node, "+ $round;"));

	is( md5_hex($record->{commandText} // ''), md5_hex(shown_text($node, $large)),
		'is recorded whole');
	ok(!$record->{cut}, 'and not marked as incomplete');
}
SKIP:
{
	if (!defined $memory)
	{
		diag('no /proc: the memory of the worker is not tested');
		skip 'no /proc here', 1;
	}

	# one such text may be mapped at a time
	cmp_ok(memory($worker, 'VmHWM') - $memory,
		'<', $size / 1024 + 8 * 1024, 'the worker does not grow with them');
}

$node->safe_psql(
	'postgres', qq{
	PREPARE large(text) AS SELECT length(\$1);
	EXECUTE large(repeat('0123456789', $size / 10))});
flush_trail($node);
my $record = record_with('"paramList":["0123456789');
is( md5_hex($record->{paramList}[0] // ''),
	md5_hex('0123456789' x ($size / 10)),
	'a 5 MB parameter is recorded whole');
is_deeply([ leftover_files() ], [], 'no spill files are left');

# And in the other format

$node->append_conf('postgresql.conf', settings_text(format => 'pgaudit'));
$node->reload;
ok( poll_until(
		sub {
			unaudited_sql($node, 'SHOW pg_audit_queue.format') eq 'pgaudit';
		}),
	'format pgaudit');
$node->safe_psql('postgres', "SELECT length('$text pgaudit')");
flush_trail($node);
is( texts_in_trail($node,
		",READ,SELECT,,,SELECT length('$text pgaudit'),<none>"),
	1,
	'a 5 MB statement in format pgaudit');
$node->stop;

# A queue that does not fill up stays in the first pages of the ring: when everything
# is in the trail, the worker skips what is left of the lap.

my $pages = audited_node(
	'pages',
	settings => { flush_interval => '1h', flush_threshold => 80, queue_size => '64kB' },
	conf     => "autovacuum = off\n");
my $layout = QueueFile::layout();
my ($queue, $skip);

# What is in the file of its queue
sub queue_of
{
	return QueueFile->parse(SavedState::read_file(queue_dir($pages) . '/queue'));
}

my $begin = queue_of()->{reserved};
my $talker = PgProto->connect($pages);
foreach my $number (1 .. 200)
{
	$talker->query("SELECT 'few pages $number'" . ', 1' x 200);
	flush_trail($pages);
}
$talker->quit;
$queue = queue_of();
cmp_ok($queue->{reserved} - $begin, '>', 5 * $queue->{ring_size}, 'many laps');
my @far = grep {
	$_->{pos} >= $begin
	  && $_->{pos} % $queue->{ring_size} > $queue->{ring_size} / 4 + $layout->{page}
} $queue->frames;
is(scalar @far, 0, 'in the first pages');
is( join(' ', map { /'few pages (\d+)'/ } texts_like(qr/few pages/, trail_records($pages))),
	join(' ', 1 .. 200),
	'with all records');

# A crash of the operating system leaves an old page, in which a skip begins, among
# new ones: that hides none of the records which are behind it by now.

($skip) = grep { $_->{skip} } reverse $queue->frames;
my $page = int($skip->{pos} % $queue->{ring_size} / $layout->{page});
my $from = $queue->{ring_offset} + $page * $layout->{page};
my $old  = substr(SavedState::read_file(queue_dir($pages) . '/queue'), $from, $layout->{page});
$pages->safe_psql('postgres', join '', map { "SELECT 'behind $_';\n" } 1 .. 80);
$queue = queue_of();
my @behind = grep { $_->{record} =~ /'behind \d+'/ } $queue->frames;
my @kept   = grep { $_->{pos} % $queue->{ring_size} >= ($page + 1) * $layout->{page}
	  || ($_->{pos} + $_->{size}) % $queue->{ring_size} <= $page * $layout->{page} } @behind;
is(scalar @behind, 80, 'records in the queue');
cmp_ok(scalar @kept, '<', 80, 'some of them in the page of the skip');
cmp_ok($behind[-1]{pos} % $queue->{ring_size},
	'>', ($page + 1) * $layout->{page}, 'and others behind it');
$pages->stop('immediate');
open my $fh, '+<:raw', queue_dir($pages) . '/queue' or die "queue: $!";
seek($fh, $from, 0);
print $fh $old;
seek($fh, $queue->{live} + $layout->{'live.boot_id'}, 0);
print $fh 'anotherb';
close $fh;
$pages->start;
flush_trail($pages);
is( join(' ', sort map { /'(behind \d+)'/ } texts_like(qr/'behind/, trail_records($pages))),
	join(' ', sort map { $_->{record} =~ /'(behind \d+)'/ } @kept),
	'all that are not in the page are found');

# The checkpoint is an old one, several laps behind: what later laps have left of the
# earlier ones, among it skips, is in the trail, so nothing is missing.

sub gaps
{
	return grep { /^\{"type":"gap"/ } trail_lines($pages);
}

my @gaps = gaps();
my $checkpoints =
  substr(SavedState::read_file(queue_dir($pages) . '/queue'), $layout->{page}, 2 * $layout->{page});
$begin = queue_of()->{reserved};
$talker = PgProto->connect($pages);
foreach my $number (1 .. 120)
{
	$talker->query("SELECT 'old $number'" . ', 1' x (150 + int(rand(100))));
	flush_trail($pages);
}
$talker->quit;
cmp_ok(queue_of()->{reserved} - $begin, '>', 3 * $queue->{ring_size}, 'several laps');
$pages->stop('immediate');
open $fh, '+<:raw', queue_dir($pages) . '/queue' or die "queue: $!";
seek($fh, $layout->{page}, 0);
print $fh $checkpoints;
seek($fh, $queue->{live} + $layout->{'live.boot_id'}, 0);
print $fh 'anotherb';
close $fh;
$pages->start;
flush_trail($pages);
is( join(' ', map { /'old (\d+)'/ } texts_like(qr/'old \d/, trail_records($pages))),
	join(' ', 1 .. 120),
	'each record once');
my @new_gaps = gaps();
splice(@new_gaps, 0, scalar @gaps);
is(scalar @new_gaps, 1, 'one gap') or diag(@new_gaps);
like($new_gaps[0], qr/the operating system was restarted/, 'about what may be missing');
$pages->stop;

done_testing();
