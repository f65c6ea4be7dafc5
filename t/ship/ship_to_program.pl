# pg_audit_trail ship, to a program: each record at least once and in order, whatever
# ends, fails, is slow, rotated, renamed or killed; nothing that is not durable.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Basename;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

need_trail_program();

my $tmp = PostgreSQL::Test::Utils::tempdir();
my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { flush_interval => '20ms' });
my $dir = trail_dir($node);
my $nfiles = 0;

# A program that writes what it gets to a file, and acknowledges each line.  What one that was
# killed has left of a line, which it has not acknowledged, is taken away.
my $receiver = "$tmp/receiver.py";
append_to_file($receiver, <<'EOF');
import re, sys, os
file = open(sys.argv[1], 'ab', buffering=0)
with open(sys.argv[1], 'rb') as written:
    file.truncate(written.read().rfind(b'\n') + 1)
number = int(sys.argv[2]) if len(sys.argv) > 2 else 0
for line in sys.stdin.buffer:
    if not line.endswith(b'\n'):
        break  # the shipper was killed
    file.write(line)
    sys.stdout.write(re.search(rb'"sequence":(\d+)', line).group(1).decode() + '\n')
    sys.stdout.flush()
    number -= 1
    if number == 0:
        sys.exit(1)
EOF

# One that acknowledges once, when it has got everything.  Each run writes a file of its own.
my $hoarder = "$tmp/hoarder.py";
append_to_file($hoarder, <<'EOF');
import re, sys, os
lines = sys.stdin.buffer.readlines()
with open(sys.argv[1] + '.' + str(os.getpid()), 'wb') as file:
    file.writelines(lines)
if lines:
    print(re.search(rb'"sequence":(\d+)', lines[-1]).group(1).decode())
EOF

sub receiver
{
	my (@arguments) = @_;

	return join(' ', 'exec', python(), $receiver, @arguments);
}

sub new_consumer
{
	my ($name) = @_;

	unaudited_sql($node, "SELECT audit_consumer_create('$name')");
	flush_trail($node);
	return "$tmp/shipped" . ++$nfiles;
}

sub ship_arguments
{
	my ($consumer, $command, @options) = @_;

	return ('ship', "--consumer=$consumer", "--command=$command", @options, $dir);
}

sub start_ship
{
	return start_trail_program(ship_arguments(@_));
}

# The same until all is shipped
sub ship_once
{
	my ($code, $out, $err) = trail_program(ship_arguments(@_, '--once'));

	return ($code, $err, $out);
}

# Wait until one that was started ends by itself.  Returns status and messages.
sub wait_for_end
{
	my ($ship) = @_;
	my $run = $ship->{run};

	poll_until(sub { $run->pump_nb if $run->pumpable; !$run->pumpable })
	  or return finish_trail_program($ship, 'KILL');
	$run->finish;
	return ($run->full_result(0) >> 8, $ship->{stderr});
}

sub consumer
{
	my ($column, $name) = @_;

	return unaudited_sql($node, "SELECT $column FROM audit_consumers WHERE name = '$name'");
}

# Does the consumer acknowledge everything in time?
sub catches_up
{
	my ($name) = @_;

	return poll_until(sub { consumer('lag_records', $name) eq '0' });
}

# The sequences in a file of lines
sub sequences
{
	my ($file) = @_;

	return map { /"sequence":(\d+)/ ? $1 : die "no record: $_" } split /\n/, slurp_file($file);
}

# Records that the trail has, in the order of their sequences, each once
sub trail_by_sequence
{
	my %line = map { /"sequence":(\d+)/ ? ($1 => $_) : () } trail_lines($node);

	return map { $line{$_} } sort { $a <=> $b } keys %line;
}

# Test that the file has all that the trail has; with repeats, some more than once, but the
# same records, in order from each repeat on.
sub is_shipped
{
	my ($file, $repeats, $name) = @_;
	my @lines = split /\n/, slurp_file($file);
	my %seen;
	my $wrong = 0;
	my $last = 0;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $line (@lines)
	{
		my ($sequence, $series) = $line =~ /"sequence":(\d+),"series":(\d+)/;

		$wrong++ if exists $seen{"$series $sequence"} && $seen{"$series $sequence"} ne $line;
		$wrong++ if $sequence > $last + 1;
		$wrong++ if $sequence <= $last && !$repeats;
		$seen{"$series $sequence"} = $line;
		$last = $sequence;
	}
	is($wrong, 0, "$name: in order, nothing left out, no two with one identity");
	is_deeply(
		[ map { $_->[1] } sort { $a->[0] <=> $b->[0] } map { [ (split / /)[1], $seen{$_} ] } keys %seen ],
		[ trail_by_sequence() ],
		"$name: it is the trail");
	return;
}

sub some_records
{
	my ($count) = @_;

	$node->safe_psql('postgres', "SELECT $_") foreach 1 .. ($count // 3);
	return flush_trail($node);
}

# ---------------------------------------------------------------------------
# While records are written
# ---------------------------------------------------------------------------

my $file = new_consumer('one');
my $ship = start_ship('one', receiver($file), '--stats=1');

some_records();
ok(catches_up('one'), 'records arrive as they are written');
cmp_ok(consumer('active_pid', 'one'), '>', 0, 'the view shows who ships');
my ($status, $stderr) = ship_once('one', 'cat');
is($status, 2, 'nobody else can');
like($stderr, qr/consumer "one" is active for PID \d+/, 'and is told so');
$node->psql('postgres', "SELECT audit_consumer_drop('one')", stderr => \$stderr);
like($stderr, qr/consumer "one" is active for PID \d+/, 'nor can it be dropped');

foreach my $settings (
	{},
	{ log_compression => 'lz4' },
	{ log_compression => 'none', log_filename => 'other-%Y-%m-%d_%H%M%S' },
	{ log_filename => 'audit-%Y-%m-%d_%H%M%S' })
{
	$node->append_conf('postgresql.conf', settings_text(%$settings));
	$node->reload;
	unaudited_sql($node, 'SELECT audit_rotate()');
	some_records();
}
ok(catches_up('one'), 'it follows from file to file, whatever they are called');
poll_until(sub { $ship->{run}->pump_nb; $ship->{stdout} =~ /"records"/ });
($status, $stderr, my $stdout) = finish_trail_program($ship);
is($status, 0, 'told to end, it does well');
is($stderr, '', 'without a message');
is_shipped($file, 0, 'while records are written');

my @stats = map { decode_json($_) } split /\n/, $stdout;
cmp_ok(scalar @stats, '>', 1, 'statistics come by the second');
my $last = $stats[-1];
is($last->{state}, 'ended', 'the last of them at the end');
is($last->{records}, scalar(sequences($file)), 'records');
is($last->{bytes}, -s $file, 'bytes');
is($last->{sequence}, (sequences($file))[-1], 'sequence');
is("@{$last}{qw(consumer target unacknowledged missing failures lagRecords)}", 'one command 0 0 0 0',
	'and the rest');
cmp_ok($last->{cpuSeconds}, '>', 0, 'CPU');

# ---------------------------------------------------------------------------
# A program that fails, is slow, or says something wrong
# ---------------------------------------------------------------------------

$file = new_consumer('failing');
my $begun = time;
($status, $stderr, $stdout) = ship_once('failing', receiver($file, 7), '--stats');
is($status, 0, 'a program that ends after some records is started again');
like($stderr, qr/the command has ended with status 1\n/, 'as a message says');
is_shipped($file, 1, 'again and again');
$last = decode_json((split /\n/, $stdout)[-1]);
cmp_ok($last->{failures}, '>=', int((trail_by_sequence() - 1) / 7) - 1, 'failures are counted');

# the delay begins anew with each success, and doubles without
$file = new_consumer('dead');
$ship = start_ship('dead', "echo started >> $tmp/starts; exit 3");
$begun = time;
poll_until(sub { -e "$tmp/starts" && (() = slurp_file("$tmp/starts") =~ /started/g) >= 5 });
cmp_ok(time - $begun, '>=', 1.5, 'it waits longer from attempt to attempt');
($status, $stderr) = finish_trail_program($ship);
is($status, 0, 'it can be told to end meanwhile');
like($stderr, qr/the command has ended with status 3/, 'what is wrong is said');
is(consumer('sequence', 'dead'), 0, 'nothing is acknowledged');

# Line ends of another system's programs
$file = new_consumer('crlf');
($status, $stderr) =
  ship_once('crlf', receiver($file) =~ s/exec //r . q{ | sed -u 's/$/\r/'});
is("$status $stderr", '0 ', 'an acknowledgement may end in CR and LF');
is(consumer('lag_records', 'crlf'), 0, 'all are taken');

foreach my $case (
	[ 'echo nonsense; cat >/dev/null', qr/the command says "nonsense", which is no sequence/ ],
	[ 'echo 99999999; cat >/dev/null', qr/acknowledges sequence 99999999, which it has not been sent/ ],
	[ 'echo -1; cat >/dev/null',       qr/the command says "-1", which is no sequence/ ],
	[ 'yes | tr -d "\n"',              qr/says something that is no sequence/ ],
	[ '/does/not/exist',               qr/the command has ended with status 127/ ],
	[ 'kill -9 $$',                    qr/the command was terminated by signal 9/ ])
{
	my ($command, $message) = @$case;

	$ship = start_ship('dead', $command);
	poll_until(sub { $ship->{run}->pump_nb; $ship->{stderr} =~ $message }) or diag $ship->{stderr};
	finish_trail_program($ship);
	like($ship->{stderr}, $message, "command: $command");
	is(consumer('sequence', 'dead'), 0, 'nothing is acknowledged');
}

# One that acknowledges many at once, at its end
($status, $stderr) = ship_once('dead', q{sed -n '$s/.*"sequence":\([0-9]*\).*/\1/p'});
is($status, 0, 'an acknowledgement is for all before');
is(consumer('lag_records', 'dead'), 0, 'up to there');

# One that always fails is tried once with --once
($status, $stderr) = ship_once('dead', 'exit 4');
is($status, 2, 'with --once, a program that achieves nothing is not started again');
like($stderr, qr/the command has ended with status 4/, 'as is said');

# What is not acknowledged when it ends, was not
some_records();
my $before = consumer('sequence', 'dead');
($status, $stderr) = ship_once('dead', 'cat >/dev/null');
is($status, 2, 'records that are not acknowledged are a failure');
like($stderr, qr/^pg_audit_trail: error: \d+ records were sent, but not acknowledged$/m, 'as is said');
is(consumer('sequence', 'dead'), $before, 'the consumer stays where it was');

# A slow reader, and a long text: all of what was sent is finished at the end
$node->safe_psql('postgres', "SELECT '" . 'x' x 3_000_000 . "'");
flush_trail($node);
$file = "$tmp/slow";
$ship = start_ship('dead', "dd bs=64k status=none | " . receiver($file) =~ s/exec //r);
ok(catches_up('dead'), 'a text of 3 MB');
($status, $stderr) = finish_trail_program($ship);
is($status, 0, 'and an end');
cmp_ok(-s $file, '>', 3_000_000, 'all of it');

# ---------------------------------------------------------------------------
# What has been delivered after which death
# ---------------------------------------------------------------------------

sub end_ship
{
	($status) = finish_trail_program($ship, @_);
	undef $ship;
	return $status;
}

# At any time, which takes many rounds; it is the last row, as it makes many records
sub end_at_random
{
	my $load = start_psql($node, 'DO $$ BEGIN FOR i IN 1 .. 3000 LOOP'
		  . ' PERFORM i; PERFORM pg_sleep(0.0005); END LOOP; END $$');

	srand(122);
	foreach my $round (1 .. (full_tests() ? 100 : 12))
	{
		$ship //= start_ship('dying', receiver($file));
		sleep rand 0.4;
		end_ship($round % 3 ? 'KILL' : 'TERM');
		unaudited_sql($node, 'SELECT audit_rotate()') if $round % 4 == 0;
	}
	is((finish_psql($load))[0], 0, 'killed at random: the load ran');
	flush_trail($node);
	cmp_ok(scalar(trail_by_sequence()), '>', 6000, 'killed at random: there were records enough');
	return;
}

# It can be made again, and begins with the oldest record then.
sub remove_consumer
{
	unlink("$dir/pg_audit_queue.consumer.dying") or die "unlink: $!";
	($status, $stderr) = wait_for_end($ship);
	undef $ship;
	is($status, 2, 'the consumer\'s file is removed: ship ends');
	like($stderr, qr/the file of consumer "dying" was removed/, 'as is said');
	unaudited_sql($node, "SELECT audit_consumer_create('dying')");
	return;
}

# While records are written, and shipped: who dies, by what; whether some records are
# delivered more than once
foreach (
	[ 'ship', 'SIGTERM', 0, sub { is(end_ship('TERM'), 0, 'ship, SIGTERM: it ends well') } ],
	[ 'ship', 'SIGKILL', 1, sub { end_ship('KILL') } ],
	[ 'the program', 'SIGKILL', 1, sub { signal(KILL => slurp_file("$tmp/pid") + 0) } ],
	[ 'the consumer\'s file', 'unlink', 1, \&remove_consumer ],
	[ 'the worker', 'SIGKILL', 0, sub { wait_for_worker($node, kill_worker($node, 'KILL')) } ],
	[ 'the postmaster and the worker', 'SIGKILL', 0, sub { crash_node($node) } ],
	[ 'the server', 'fast shutdown', 0, sub { $node->stop('fast') } ],
	[ 'the server', 'immediate shutdown', 0, sub { $node->stop('immediate') } ],
	[ 'ship', 'SIGKILL and SIGTERM, at random', 1, \&end_at_random ])
{
	my ($who, $by, $repeats, $code) = @$_;
	my $death = "$who, $by";

	$file = new_consumer('dying');
	my $load = start_psql($node, 'DO $$ BEGIN FOR i IN 1 .. 200 LOOP'
		  . ' PERFORM i; PERFORM pg_sleep(0.005); END LOOP; END $$');
	$ship = start_ship('dying', "echo \$\$ > $tmp/pid; " . receiver($file));
	ok(poll_until(sub { -s $file }), "$death: records are shipped meanwhile");
	$code->();
	start_again($node) if !defined $node->{_pid};
	finish_psql($load);
	some_records();
	ok(catches_up('dying') && end_ship('TERM') == 0, "$death: it goes on until it is told to end") if $ship;
	($status, $stderr) = ship_once('dying', receiver($file));
	is("$status $stderr", '0 ', "$death: it can be begun again");
	is_shipped($file, $repeats, $death);
	unaudited_sql($node, "SELECT audit_consumer_drop('dying')");
}

# ---------------------------------------------------------------------------
# Only what is durable
# ---------------------------------------------------------------------------

$file = new_consumer('durable');
ship_once('durable', receiver($file));
my $offset = -s $node->logfile;
set_faults($node, 'trail-fsync' => 5);
$node->safe_psql('postgres', "SELECT 'not durable'");
ok(poll_until(sub { texts_in_trail($node, 'not durable') > 0 }), 'what cannot be synced is in the file');
ok(wait_for_log($node, qr/could not fsync file/, $offset), 'as the server log says');
$ship = start_ship('durable', receiver($file), '--stats=1');
poll_until(sub { $ship->{run}->pump_nb; (() = $ship->{stdout} =~ /"waiting"/g) >= 3 });
unlike(slurp_file($file), qr/not durable/, 'but is not shipped');
my $series_of = sub { return map { /"series":(\d+),.*not durable/ ? $1 : () } trail_lines($node) };
my ($early) = $series_of->();
set_faults($node);
some_records();
ok(catches_up('durable'), 'until it is durable');
finish_trail_program($ship);
my ($final) = $series_of->();
isnt($final, $early, 'who has read it before can tell that it has been written again');
like(slurp_file($file), qr/not durable/, 'then it is');
is_shipped($file, 0, 'with the series that it has then');

# ---------------------------------------------------------------------------
# Files that are renamed, touched, removed, damaged
# ---------------------------------------------------------------------------

$file = new_consumer('files');
ship_once('files', receiver($file));
my @new;
foreach (1 .. 4)
{
	push @new, $node->data_dir . '/' . stats($node)->{current_file};
	some_records(2);
	unaudited_sql($node, 'SELECT audit_rotate()');
}
some_records(1);
rename($new[0], "$dir/zzz.json") or die $!;
utime(1, 1, $new[2]) or die $!;
utime(time + 5000, time + 5000, $new[1]) or die $!;
($status, $stderr) = ship_once('files', receiver($file));
is("$status $stderr", '0 ', 'names and times of files do not matter');
is_shipped($file, 0, 'renamed and touched');

# the file in which it was, under another name, and one that is gone
push @new, $node->data_dir . '/' . stats($node)->{current_file};
some_records(1);
unaudited_sql($node, 'SELECT audit_rotate()');
push @new, $node->data_dir . '/' . stats($node)->{current_file};
some_records(2);
unaudited_sql($node, 'SELECT audit_rotate()');
some_records(1);
rename($new[4], "$dir/aaa.json") or die $!;
my ($first) = sequences($new[5]);
my $gone = (sequences($new[5]))[-1];
unlink($new[5]) or die $!;
($status, $stderr) = ship_once('files', receiver($file), '--stats');
is($status, 1, 'a file that is gone is noticed');
like($stderr, qr/records with sequence $first to $gone are missing in the trail/, 'with what was in it');
is(consumer('lag_records', 'files'), 0, 'the rest is shipped');
is((() = slurp_file($file) =~ /"sequence":\d+,"series":(\d+)/g) - scalar(trail_by_sequence()), 0,
	'all of it, once');

my $damaged = $node->data_dir . '/' . stats($node)->{current_file};
some_records(3);
unaudited_sql($node, 'SELECT audit_rotate()');
some_records(1);
my @lines = split /^/, slurp_file($damaged);
open(my $fh, '+<', $damaged) or die $!;
sysseek($fh, length($lines[0]) + length($lines[1]), 0);
syswrite($fh, '#' x 20);
close($fh);
($status, $stderr) = ship_once('files', receiver($file));
my ($good) = $lines[1] =~ /"sequence":(\d+)/;
foreach my $attempt ('it is tried', 'it is tried again')
{
	is($status, 1, "a damaged line is noticed when $attempt");
	like($stderr, qr/file ".*": the line at byte \d+ is no record\n.*nothing behind that is shipped/,
		'and named');
	is(consumer('sequence', 'files'), $good, 'what is before it is shipped, and acknowledged');
	is((sequences($file))[-1], $good, 'and nothing behind it');
	($status, $stderr) = ship_once('files', receiver($file));
}
($status) = wait_for_end(start_ship('files', receiver($file)));
is($status, 1, 'without --once, too, that is the end');
my $kept = slurp_file($damaged);
unlink($damaged) or die $!;
append_to_file($damaged, join('', grep { !/#{20}/ } split /^/, $kept));
($status, $stderr) = ship_once('files', receiver($file));
is($status, 1, 'without the line');
like($stderr, qr/records with sequence (\d+) to \1 are missing/, 'it is told what is missing');
is(consumer('lag_records', 'files'), 0, 'and the rest is shipped, too');

# The same of a compressed file
foreach my $compression ('zstd', 'none')
{
	$node->append_conf('postgresql.conf', settings_text(log_compression => $compression));
	$node->reload;
	poll_until(
		sub {
			some_records(3);
			return (stats($node)->{current_file} =~ /zst$/) == ($compression eq 'zstd');
		});
	some_records(3);
	$damaged = $node->data_dir . '/' . stats($node)->{current_file} if $compression eq 'zstd';
}
like($damaged, qr/zst$/, 'a compressed file');
$kept = slurp_file($damaged);
append_to_file("$damaged.new", substr($kept, 0, length($kept) - 10) . '#' x 10);
rename("$damaged.new", $damaged) or die $!;
($status, $stderr) = ship_once('files', receiver($file));
is($status, 1, 'a damaged frame is noticed');
like($stderr, qr/damaged from byte \d+ on: .*\n.*nothing behind that is shipped/, 'and is the end');
cmp_ok(consumer('lag_records', 'files'), '>', 0, 'nothing behind it is acknowledged');
rename($damaged, "$damaged.away") or die $!;
($status, $stderr) = ship_once('files', receiver($file));
like($stderr, qr/records with sequence \d+ to \d+ are missing/, 'without the file, it is told what is missing');
is(consumer('lag_records', 'files'), 0, 'and the rest is shipped');

# Give a file another text, but not another time.
sub damage
{
	my ($path, $text) = @_;
	my $time = (Time::HiRes::stat($path))[9];

	open(my $handle, '>', $path) or die $!;
	syswrite($handle, $text);
	close($handle);
	Time::HiRes::utime($time, $time, $path) or die $!;
	return;
}

# The current file, with some records, and the next one begun
sub next_file
{
	my $path;

	some_records(2);
	$path = $node->data_dir . '/' . stats($node)->{current_file};
	unaudited_sql($node, 'SELECT audit_rotate()');
	return $path;
}

sub first_sequence
{
	my ($path) = @_;

	return (trail_text($path) =~ /"sequence":(\d+)/)[0];
}

# A target that fails when all before the damage is sent
ship_once('files', receiver($file));
next_file();
$damaged = next_file();
some_records(1);
$good = first_sequence($damaged);
damage($damaged, slurp_file($damaged) =~ s/\n\{/\n#/gr);
$before = consumer('sequence', 'files');
my $failing = "if [ \$(wc -l < $tmp/attempts) -lt 3 ]; then echo >> $tmp/attempts; cat > /dev/null; exit 5; fi; "
  . receiver($file);
append_to_file("$tmp/attempts", '');
($status, $stderr) = ship_once('files', $failing);
is($status, 2, 'the target fails, too: with --once, that is the end');
like($stderr, qr/nothing behind that is shipped\n.*error: \d+ records were sent, but not acknowledged$/s,
	'and both is said');
is(consumer('sequence', 'files'), $before, 'nothing is acknowledged');
($status, $stderr) = wait_for_end(start_ship('files', $failing));
is(scalar(() = slurp_file("$tmp/attempts") =~ /\n/g), 3, 'without --once, it is tried again');
is(consumer('sequence', 'files'), $good, 'until what is before the damage is acknowledged');
is($status, 1, 'then it ends');
unlike($stderr, qr/not acknowledged/, 'with nothing left');
unlink($damaged) or die $!;
ship_once('files', receiver($file));

# What is sent, and not acknowledged when it is told to end
some_records(2);
$ship = start_ship('files', "tee $tmp/unacknowledged > /dev/null");
poll_until(sub { -s "$tmp/unacknowledged" });
($status, $stderr) = finish_trail_program($ship);
is($status, 0, 'told to end, it does');
like($stderr, qr/warning: \d+ records were sent, but not acknowledged, and will be sent again$/,
	'and says what is not acknowledged');

# Files in which no record can be found, with one before and one behind.  The target acknowledges
# at its end.
my %no_key = (log_encryption => 'aes-256-gcm', log_encryption_key_command => encryption_key(256));
foreach my $case (
	[ 'lines that are no records', {}, sub { $_[0] =~ s/^\{/#/gmr }, 1, qr/the line at byte 0 is no record/ ],
	[ 'no line', {}, sub { "\0" x length($_[0]) }, 1, qr/ends within its first record/ ],
	[ 'no sequence', {}, sub { $_[0] =~ s/"sequence":/"sequenze":/gr }, 1, qr/its first record has no sequence/ ],
	[ 'a compressed file', { log_compression => 'zstd' }, sub { '#' x 30 . substr($_[0], 30) }, 1,
		qr/damaged from byte 0 on/ ],
	[ 'no permission', {}, undef, 2, qr/could not open file/ ],
	[ 'no key', \%no_key, undef, 2, qr/could not read file/ ])
{
	my ($name, $settings, $make_damage, $expected, $message) = @$case;
	my %none = map { $_ => $_ eq 'log_encryption_key_command' ? '' : 'none' } keys %$settings;
	my $hoard = 'exec ' . python() . " $hoarder $tmp/hoard";
	my @part;

	ship_once('files', receiver($file));
	foreach my $number (0 .. 2)
	{
		ok(reload_settings($node, $number == 1 ? %$settings : %none), "$name: settings")
		  if %$settings && $number > 0;
		push @part, next_file();
	}
	$good = first_sequence($part[1]) - 1;
	damage($part[1], $make_damage->(slurp_file($part[1]))) if defined $make_damage;
	chmod(0, $part[1]) or die $! if $name eq 'no permission';
	foreach my $attempt ('once', 'again', 'following')
	{
		($status, $stderr) = $attempt eq 'following' ?
		  wait_for_end(start_ship('files', $hoard)) : ship_once('files', $hoard);
		is($status, $expected, "$name: it ends ($attempt)");
		like($stderr, qr/$message.*nothing behind that is shipped/s, "$name: that is said ($attempt)");
		like($stderr, qr/\Q$part[1]\E/, "$name: and the file named ($attempt)");
		is(consumer('sequence', 'files'), $good,
			"$name: what is before it is acknowledged, and nothing behind it ($attempt)");
	}
	if (defined $make_damage)
	{
		unlink($part[1]) or die $!;
		($status, $stderr) = ship_once('files', receiver($file));
		like($stderr, qr/records with sequence \d+ to \d+ are missing/, "$name: without it, shipping goes on");
	}
	else
	{
		chmod(0600, $part[1]) or die $!;
		($status, $stderr) = ship_once('files', receiver($file),
			$name eq 'no key' ? ('-K', encryption_key_file()) : ());
		is("$status $stderr", '0 ', "$name: when it can be read, shipping goes on");
	}
	is(consumer('lag_records', 'files'), 0, "$name: to the end");
	unlink(@part[ 0, 1 ]);
}

# Sequences do not tell that something is missing where the series changes.
next_file();
ship_once('files', receiver($file));
my $garbage = "$dir/garbage.json";
append_to_file($garbage, "garbage\n");
$node->stop('immediate');
$node->start;
some_records(1);
$before = consumer('sequence', 'files');
($status, $stderr) = ship_once('files', receiver($file));
is($status, 1, 'another series, and a file that may have the rest of the former one');
like($stderr, qr/\Q$garbage\E": the line at byte 0 is no record\n.*nothing behind that is shipped/, 'is the end');
is(consumer('sequence', 'files'), $before, 'nothing is acknowledged');

# New consumers do not know what was before the first record.
my $late = new_consumer('late');
utime(time + 10, time + 10, $garbage) or die $!;
($status, $stderr) = ship_once('late', receiver($late));
is($status, 1, 'a new consumer does not begin');
like($stderr, qr/\Q$garbage\E": the line at byte 0 is no record\n.*nothing behind that is shipped/,
	'while there is such a file');
is(consumer('sequence', 'late'), 0, 'nothing is acknowledged');

# What may be the worker's next file, and files that are old
unlink($garbage) or die $!;
append_to_file($garbage, '{"type"');
utime(time + 10, time + 10, $garbage) or die $!;
ship_once('late', receiver($late));
is(consumer('lag_records', 'late'), 0, 'the beginning of a record in a new file does not matter');
ship_once('files', receiver($file));
unaudited_sql($node, "SELECT audit_consumer_drop('late')");
append_to_file($garbage, "\n");
utime(1, 1, $garbage) or die $!;
$gone = next_file();
some_records(1);
unlink($gone) or die $!;
($status, $stderr) = ship_once('files', receiver($file));
is($status, 1, 'a file is gone, and there is an old one that cannot be read');
like($stderr, qr/^[^\n]*records with sequence \d+ to \d+ are missing in the trail\n$/, 'only the former matters');
is(consumer('lag_records', 'files'), 0, 'the rest is shipped');
unlink($garbage) or die $!;

# One that has lost its end
unaudited_sql($node, 'SELECT audit_rotate()');
some_records(3);
$damaged = $node->data_dir . '/' . stats($node)->{current_file};
unaudited_sql($node, 'SELECT audit_rotate()');
some_records(1);
truncate($damaged, (-s $damaged) - 10) or die $!;
($status, $stderr) = ship_once('files', receiver($file));
is($status, 1, 'a file that has lost its end');
like($stderr, qr/ends within a record, but is not the newest one/, 'is named');
like($stderr, qr/records with sequence (\d+) to \1 are missing/, 'with what is missing');
is(consumer('lag_records', 'files'), 0, 'and the rest is shipped, too');
unlink($damaged) or die $!;

# ---------------------------------------------------------------------------
# A backup is restored, then newer files of the trail are put back: two series with the
# same sequences
# ---------------------------------------------------------------------------

sub identities
{
	my (@lines) = @_;

	return map { /"sequence":(\d+),"series":(\d+)/ ? "$2 $1" : die "no record: $_" } @lines;
}

sub copy_queue
{
	my ($from, $to) = @_;

	system_or_bail('rm', '-rf', $to);
	system_or_bail('cp', '-r', $from, $to);
	return;
}

# Give files times from some days ago on, one after the other, as a server would have made
# them; it goes on behind the newest one.
my $written = time - 5 * 86_400;

sub set_times
{
	my (@files) = @_;

	$written++, utime($written, $written, $_) foreach @files;
	return;
}

sub by_sequence
{
	my (@files) = @_;
	my %first = map { $_ => slurp_file($_) =~ /"sequence":(\d+)/ ? $1 : 0 } @files;

	return sort { $first{$a} <=> $first{$b} } @files;
}

# Records that the backup has not, with a crash in each round if wanted, so that each of its
# files is of a series of its own; then the server is restored, and makes two files, with one in between, of a series of its own, if it shall go
# past the sequences of the former one.  Returns the files of both.
sub restore_backup
{
	my ($rounds, %options) = @_;
	my %common = map { $_ => 1 } trail_files($node);
	my (@newer, %newer, $second);

	$node->stop;
	copy_queue(queue_dir($node), "$tmp/backup");
	$node->start;
	foreach (1 .. $rounds)
	{
		some_records(10);
		unaudited_sql($node, 'SELECT audit_rotate()');
		if ($options{crashes})
		{
			$node->stop('immediate');
			$node->start;
		}
	}
	$node->stop;
	system_or_bail('rm', '-rf', "$tmp/newer");
	mkdir("$tmp/newer");
	@newer = by_sequence(grep { !$common{$_} } trail_files($node));
	rename($_, "$tmp/newer/" . basename($_)) or die "rename: $!" foreach @newer;
	copy_queue("$tmp/backup", queue_dir($node));

	# the files that it makes now get other names
	$second = time;
	poll_until(sub { time >= $second + 1 });
	$node->start;
	some_records($options{past} // 3);
	unaudited_sql($node, 'SELECT audit_rotate()');
	if ($options{past})
	{
		$node->restart;
		some_records(3);
		unaudited_sql($node, 'SELECT audit_rotate()');
	}
	some_records(3);
	flush_trail($node);
	splice(@newer, 1, 1) if $options{hole};
	rename("$tmp/newer/" . basename($_), $_) or die "rename: $!" foreach @newer;
	%newer = map { $_ => 1 } @newer;
	return (\@newer, [ by_sequence(grep { !$common{$_} && !$newer{$_} } trail_files($node)) ]);
}

# Ship so many records, or some more: what the target has acknowledged is the place then.
sub ship_some
{
	my ($to, $count, $consumer) = @_;

	append_to_file("$tmp/once", '');
	ship_once($consumer // 'files', "rm $tmp/once && " . receiver($to, $count));
	return;
}

set_times(by_sequence(trail_files($node)));
unaudited_sql($node,
	"SELECT audit_consumer_drop(name) FROM audit_consumers WHERE name <> 'files'");
foreach (
	[ 'shipping stops in the middle of the former series', 3, 14 ],
	[ 'shipping stops near the end of the former series',  3, 24 ],
	[ 'the former series has one file more',               1, 5 ],
	[ 'the server has crashed before',                     3, 15, crashes => 1 ],
	[ 'the new series goes past the former one',           1, 6, past => 15 ],
	[ 'a file of the former series is missing',            3, 8, crashes => 1, past => 15, hole => 1 ])
{
	my ($name, $rounds, $count, %options) = @$_;

	unaudited_sql($node, 'SELECT audit_rotate()');
	flush_trail($node);
	ship_once('files', receiver($file));
	my %before = map { $_ => 1 } identities(trail_lines($node));
	my @common = sort { (stat $a)[9] <=> (stat $b)[9] } trail_files($node);
	my ($newer, $latter) = restore_backup($rounds, %options);
	my @wanted = grep { !$before{$_} } identities(trail_lines($node));
	my $to = "$tmp/restored$count";
	my $sentinel = "$dir/audit-2000-01-01_000000.json";

	# The new series begins with a smaller sequence than the place has then, or with that of
	# its file, and its first file is older than what is acknowledged: retention leaves it.
	append_to_file($sentinel, '');
	utime(1, 1, $sentinel);
	set_times(@common, @$newer, @$latter[ 0 .. $#$latter - 1 ]);
	ship_some($to, $count);
	reload_settings($node, log_retention_age => '1d');
	ok(poll_until(sub { !-e $sentinel }), "$name: there is a pass of retention");
	flush_trail($node);
	ok(-e $latter->[0], "$name: it leaves what was not shipped");
	reload_settings($node, log_retention_age => '0');

	# once more, within the new series' first file
	my %latter = map { $_ => 1 } identities(map { split /\n/, slurp_file($_) } @$latter);
	my $former = grep { !$latter{$_} } @wanted;
	ship_some($to, $former - $count + 2);
	($status, $stderr) = ship_once('files', receiver($to));
	is("$status $stderr", '0 ', "$name: shipping goes on");

	my @shipped = identities(split /\n/, slurp_file($to));
	my %shipped = map { $_ => 1 } @shipped;
	cmp_ok(scalar(@wanted), '>=', 10 * $rounds + 6, "$name: there is something to ship");
	is(join(', ', grep { !$shipped{$_} } @wanted), '', "$name: both series are shipped");
	s/ .*// foreach @shipped;
	my %series = map { $_ => 1 } @shipped;
	is(scalar(grep { $shipped[$_] ne $shipped[ $_ - 1 ] } 1 .. $#shipped),
		keys(%series) - 1, "$name: one after the other");

	# The same for consumers that begin now, when all is there, and when only the last file
	# of the former series is
	foreach my $late ('all', 'part')
	{
		my $consumer = "late_${late}_$count";

		unlink(grep { $_ ne $newer->[-1] } @common, @$newer) if $late eq 'part';
		$to = new_consumer($consumer);
		ship_some($to, 2, $consumer);
		($status, $stderr) = ship_once($consumer, receiver($to));
		my @missing = $stderr =~ /records with sequence (\d+ to \d+) are missing/g;
		my @there   = map { s/.* //r } identities(trail_lines($node));
		is(join(', ', grep { my ($from, $to) = split / to /; grep { $_ >= $from && $_ <= $to } @there } @missing),
			'', "$name: nothing is said to be missing that is there ($late)")
		  if !$options{hole};
		%shipped = map { $_ => 1 } identities(split /\n/, slurp_file($to));
		is(join(', ', grep { !$shipped{$_} } identities(trail_lines($node))),
			'', "$name: a new consumer gets what is there ($late)");
		unaudited_sql($node, "SELECT audit_consumer_drop('$consumer')");
	}

	# An old file of another series is touched: it is not shipped again.
	utime(undef, undef, $newer->[-1]) or die "utime: $!";
	some_records(2);
	unaudited_sql($node, 'SELECT audit_rotate()');
	some_records(2);
	($status, $stderr) = ship_once('files', receiver("$to.touched"));
	is("$status $stderr", '0 ', "$name: a file is touched");
	my %old   = map { $_ => 1 } identities(slurp_file($newer->[-1]) =~ /^(.+)$/mg);
	my @again = identities(slurp_file("$to.touched") =~ /^(.+)$/mg);
	cmp_ok(scalar(@again), '>=', 4, "$name: what is new is shipped");
	is(join(' ', grep { $old{$_} } @again),
		'', "$name: it is not shipped again");

	# A sequence that both series have is not mistaken for that of the other one.
	unaudited_sql($node, "SELECT audit_consumer_create('end_$count')");
	(undef, $stderr, my $out) = ship_once("end_$count",
		'exec ' . python() . " $hoarder $tmp/end_$count", '--stats');
	my $end = decode_json((split /\n/, $out)[-1]);
	is("$end->{failures}, " . ($end->{sent} - $end->{records}),
		'0, 0', "$name: one acknowledgement at the end, and each record is sent once")
	  or diag($stderr);
	cmp_ok($end->{records}, '>', 0, "$name: there are some");
	my @back = map {
		my @run = sequences($_);
		grep { $run[$_] <= $run[ $_ - 1 ] } 1 .. $#run
	} glob("$tmp/end_$count.*");
	is(scalar(@back), 0, "$name: sequences go up in each run of the program");
	unaudited_sql($node, "SELECT audit_consumer_drop('end_$count')");
}

# ---------------------------------------------------------------------------
# A trail that begins anew
# ---------------------------------------------------------------------------

$file = new_consumer('behind');
ship_once('behind', receiver($file));
is(consumer('lag_records', 'behind'), 0, 'a consumer that has everything');
$node->stop;
mkdir("$tmp/away");
rename($_, "$tmp/away/" . s{.*/}{}r) or die "rename: $!" foreach trail_files($node);
rename(queue_dir($node), "$tmp/away/queue") or die "rename: $!";
$ship = start_ship('files', receiver("$tmp/anew"));
$node->start;
my $end = some_records(5);
cmp_ok($end, '<', 100, 'sequences begin anew');
cmp_ok(consumer('lag_records', 'behind'), '>', 0, 'it has nothing of these');
poll_until(sub { consumer('sequence', 'files') == $end });
finish_trail_program($ship);
is_shipped("$tmp/anew", 0, 'a trail that begins anew');

# ---------------------------------------------------------------------------
# As a service
# ---------------------------------------------------------------------------

my $unit = slurp_file("$FindBin::RealBin/../../systemd/pg_audit_trail-ship\@.service");
my %service = (
	DIRECTORY => $dir,
	TARGET    => '--command=' . receiver("$tmp/service"),
	OPTIONS   => '--once --stats=5');

# as systemd does it: only $OPTIONS is split
my ($line) = $unit =~ /^ExecStart=(.*)$/m;
my @service = map {
	my $word = $_;

	$word =~ s/%i/service/g;
	$word =~ s/\$\{(\w+)\}/$service{$1} \/\/ die $1/ge;
	$word =~ /^\$(\w+)$/ ? split(' ', $service{$1}) : $word;
} split ' ', $line;

new_consumer('service');
my $ok = IPC::Run::run(\@service, '<', \undef, '>', \$stdout, '2>', \$stderr);
ok($ok, 'the unit starts it as it wants to be started') or diag $stderr;
is_shipped("$tmp/service", 0, 'by the unit');
SKIP:
{
	skip 'no systemd-analyze', 1 if !grep { -x "$_/systemd-analyze" } split /:/, $ENV{PATH};
	mkdir("$tmp/units");
	append_to_file("$tmp/units/pg_audit_trail-ship\@siem.service", $unit);
	# It looks for the man page that the unit names, too.
	my $has_man = grep { -x "$_/man" } split /:/, $ENV{PATH};

	chomp(local $ENV{MANPATH} = `pg_config --mandir`);
	IPC::Run::run(
		[ 'systemd-analyze', $has_man ? '--man=yes' : '--man=no', 'verify',
			"$tmp/units/pg_audit_trail-ship\@siem.service" ],
		'>', \$stdout, '2>', \$stderr);
	unlike($stderr, qr/pg_audit_trail-ship/, 'systemd has nothing to complain about');
}

# ---------------------------------------------------------------------------
# What is not shipped
# ---------------------------------------------------------------------------

$node->append_conf('postgresql.conf', settings_text(format => 'csvlog'));
$node->reload;
unaudited_sql($node, 'SELECT audit_rotate()');
some_records();
($status, $stderr) = ship_once('files', receiver("$tmp/anew"));
is($status, 1, 'another format');
like($stderr, qr/file ".*\.csv" is not of format json, and is not shipped/, 'is not left out silently');

# ---------------------------------------------------------------------------
# Wrong options
# ---------------------------------------------------------------------------

foreach my $case (
	[ [],                                                   qr/ship needs one directory/ ],
	[ [$dir],                                               qr/no consumer specified/ ],
	[ [ '--consumer=x', $dir ],                             qr/no target specified/ ],
	[ [ '--consumer=X/..', '--command=cat', $dir ],         qr{invalid consumer name: "X/\.\."} ],
	[ [ '--consumer=unknown', '--command=cat', $dir ],      qr/has no consumer "unknown"\n.*hint: Make it by/ ],
	[ [ '--consumer=files', '--command=cat', '/nowhere' ],  qr{directory "/nowhere" has no consumer} ],
	[ [ '--consumer=files', '--command=cat', '--stats=x', $dir ], qr/must be from 1 to/ ])
{
	my ($arguments, $message) = @$case;

	IPC::Run::run([ 'pg_audit_trail', 'ship', @$arguments ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	is($? >> 8, 2, "status of: @$arguments");
	like($stderr, $message, 'message');
}
$node->stop;
done_testing();
