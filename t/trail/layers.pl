# Compressed and encrypted trail files.
#
# What holds for plain files holds for these: each record once, whatever dies; a new
# file when a setting changes; rotation and retention.  Other programs read them as
# src/trail/layer.h says.  Without a key nothing is written and nothing is lost.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Copy qw(copy);
use IPC::Run;
use List::Util qw(uniq);
use Test::More;

use PostgreSQL::Test::Utils;

need_trail_program();

delete $ENV{PAQ_TEST_LAYERS};

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { flush_interval => '1h', seal => 'off' },
	conf         => "fsync = on\nautovacuum = off\n");
my $keys = encryption_key_file();
my %key  = map { ("aes-$_-gcm" => encryption_key($_)) } 128, 256;

# Change settings by a reload that the worker has seen.
sub reload
{
	my (%settings) = @_;
	my $before = () = slurp_file($node->logfile) =~ /received SIGHUP/g;

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	return poll_until(
		sub {
			# its record is the last one before the new settings hold
			unaudited_sql($node, q{SELECT pg_sleep(0.01)});
			my $after = () = slurp_file($node->logfile) =~ /received SIGHUP/g;

			return $after > $before;
		});
}

sub layers
{
	my ($compression, $encryption) = @_;

	my $ending = { none => '', zstd => '.zst', lz4 => '.lz4' }->{$compression}
	  . ($encryption eq 'none' ? '' : '.enc');

	reload(
		log_compression => $compression,
		log_encryption  => $encryption,
		$encryption eq 'none' ? () : (log_encryption_key_command => $key{$encryption}));

	# The server's log tells of a reload before the worker knows.
	return poll_until(
		sub {
			flush_trail($node);
			return current_file() =~ /\.json\Q$ending\E$/;
		});
}

sub current_file
{
	return $node->data_dir . '/' . stats($node)->{current_file};
}

# Output of a program
sub output_of
{
	my @command = @_;
	my ($stdout, $stderr);

	IPC::Run::run(\@command, '<', \undef, '>', \$stdout, '2>', \$stderr)
	  or die "$command[0]: $stderr";
	return ($stdout, $stderr);
}

# What other programs read in the file
sub read_otherwise
{
	my ($file) = @_;
	my ($text, $segments) = (undef, '');
	my $inner = $file;

	if ($file =~ /\.enc$/)
	{
		($text, $segments) =
		  output_of(python(), "$FindBin::RealBin/../lib/layers/read_encrypted.py", $keys, $file);
		$inner = "$PostgreSQL::Test::Utils::tmp_check/inner"
		  . ($file =~ /\.json(\.zst|\.lz4)?\.enc$/ ? $1 // '' : '');
		unlink($inner);
		append_to_file($inner, $text);
	}
	($text) = output_of('zstd', '-dcq', $inner) if $inner =~ /\.zst$/;
	($text) = output_of('lz4', '-dcq', $inner) if $inner =~ /\.lz4$/;
	return ($text // slurp_file($inner), split /\n/, $segments);
}

# Those that are gone on with after a clean stop, a crash of the worker, and of all
my %go_on = map { $_ => 1 } 'none aes-256-gcm', 'lz4 aes-128-gcm', 'zstd aes-256-gcm', 'zstd none';

my %ending = (none => '', zstd => '.zst', lz4 => '.lz4');
my $number = 0;

# A statement whose text is found again
sub say_something
{
	my ($size) = @_;
	my $text = sprintf 'layers %d ', ++$number;

	$text .= 'x' x ($size - length $text) if defined $size && $size > length $text;
	$node->safe_psql('postgres', "SELECT length('$text')");
	return sprintf 'layers %d ', $number;
}

# Files of the same second have no order by name.
sub check_sequences
{
	my ($name) = @_;
	my @sequences = sort { $a <=> $b } map { $_->{sequence} } trail_records($node);

	is_deeply(\@sequences, [ 1 .. @sequences ], $name);
	return;
}

# ---------------------------------------------------------------------------
# Each combination
# ---------------------------------------------------------------------------

foreach my $compression (sort keys %ending)
{
	foreach my $encryption ('none', sort keys %key)
	{
		my $what = "compression $compression, encryption $encryption";
		my ($file, $again, @texts, $text, @segments);

		ok(layers($compression, $encryption), "$what: reload");
		push @texts, say_something() foreach 1 .. 3;
		flush_trail($node);
		$file = current_file();
		like(
			$file,
			qr/\.json\Q$ending{$compression}\E@{[ $encryption eq 'none' ? '' : '\.enc' ]}$/,
			"$what: the name has the endings");
		ok(slurp_file($file) !~ /layers \d/, "$what: the text cannot be seen")
		  if $encryption ne 'none';

		# More than one unit, one record in several, and many small ones
		push @texts, say_something(3_000_000);
		push @texts, say_something();
		flush_trail($node);
		$node->safe_psql('postgres', q{SET pg_audit_queue.mode = immediate;}
			  . join '', map { "SELECT 'small $_';" } 1 .. 20);

		if ($go_on{"$compression $encryption"})
		{
			$node->restart;
			push @texts, say_something();
			flush_trail($node);
			is(current_file(), $file, "$what: a restart goes on with the file");
			ok(wait_for_worker($node, kill_worker($node, 'KILL')), "$what: another worker");
			push @texts, say_something();
			flush_trail($node);
			crash_node($node);
			start_again($node);
			push @texts, say_something();
			flush_trail($node);
			is(current_file(), $file, "$what: so does the server after a crash");
		}

		($text, @segments) = read_otherwise($file);
		ok($text eq trail_text($file), "$what: others read the same");
		is(scalar(grep { $text =~ /$_/ } @texts), scalar(@texts), "$what: all records are there");
		if ($encryption ne 'none')
		{
			my @salts = map { /^(\S+)/ } @segments;

			is(scalar(@salts), $go_on{"$compression $encryption"} ? 4 : 1,
				"$what: a segment for each worker");
			is(scalar(uniq @salts), scalar(@salts), "$what: each with a key of its own");
		}
	}
}
check_sequences('each record once, over all files');

# ---------------------------------------------------------------------------
# Writing fails
# ---------------------------------------------------------------------------

ok(layers('zstd', 'aes-256-gcm'), 'zstd and aes-256-gcm');
foreach my $fault ('trail-write 28', 'trail-fsync 5', 'trail-write 5')
{
	my ($point, $errno) = split / /, $fault;
	my $text;

	set_faults($node, $point => $errno);
	$text = say_something(50_000);
	$node->safe_psql('postgres', "SELECT 'more'");
	$node->psql('postgres',
		q{SET statement_timeout = '1s'; SELECT audit_flush()});
	isnt(stats($node)->{last_error}, undef, "$fault: the worker has an error");
	set_faults($node);
	flush_trail($node);
	is(texts_in_trail($node, $text), 1, "$fault: the record is there");
}
# Only the worker gets to these points; the postmaster must not die of them.
foreach my $point (qw(batch-written flushed))
{
	my $worker = worker_pid($node);

	set_faults($node, $point => 'kill');
	$node->psql('postgres', "SELECT 'killed at $point'");
	$node->psql('postgres', q{SET statement_timeout = '2s'; SELECT audit_flush()});
	set_faults($node);
	ok(wait_for_worker($node, $worker), "$point: there is another worker");
	flush_trail($node);
	is(texts_in_trail($node, "'killed at $point'"), 1, "$point: the record is there once");
}
{
	my (undef, @segments) = read_otherwise(current_file());
	my @salts = map { /^(\S+)/ } @segments;

	cmp_ok(scalar(@salts), '>=', 4, 'what was written again is in segments of its own');
	is(scalar(uniq @salts), scalar(@salts), 'no key is used twice');
}
check_sequences('each record once after all that');

# ---------------------------------------------------------------------------
# Keys
# ---------------------------------------------------------------------------

my $secret = '0f1e2d3c4b5a69788796a5b4c3d2e1f0';
my %bad = (
	'a command that fails'   => [ 'exit 3', qr/failed: child process exited with exit code 3/ ],
	'no such command'        => [ './no_such_program', qr/failed: command not found/ ],
	'a key that is too short' => [ "echo $secret", qr/has 32 hexadecimal digits, .* needs 64/ ],
	'a key of letters'       => [ "echo ${secret}xyz", qr/line 1 is no key/ ],
	'nothing'                => [ 'true', qr/there is no key/ ],
	'too much'               => [ 'yes', qr/prints more than \d+ bytes/ ]);

foreach my $what (sort keys %bad)
{
	my ($command, $message) = @{ $bad{$what} };
	my $position = -s $node->logfile;
	my $text;

	# another cipher first, so that there is no file to go on with
	layers('none', 'none');
	flush_trail($node);
	ok( reload(
			log_encryption             => 'aes-256-gcm',
			log_encryption_key_command => $command),
		"$what: reload");
	ok( poll_until(
			sub {
				$node->psql('postgres',
					q{SET statement_timeout = '100ms'; SELECT audit_flush()});
				(stats($node)->{last_error} // '') =~ $message;
			}),
		"$what: the error says so") or diag(stats($node)->{last_error});
	$text = say_something();
	like(stats($node)->{last_error}, qr/"pg_audit_queue\.log_encryption_key_command"/,
		"$what: and names the setting");
	is(texts_in_trail($node, $text), 0, "$what: nothing is written");
	ok(layers('none', 'aes-256-gcm'), "$what: mended");
	flush_trail($node);
	is(texts_in_trail($node, $text), 1, "$what: nothing is lost");
	is( scalar(() = slurp_file($node->logfile, $position) =~ /audit trail cannot be written/g),
		1, "$what: the server log says it once");
}

# At the start of the server
$node->append_conf('postgresql.conf', settings_text(log_encryption_key_command => 'false'));
layers('none', 'none');
flush_trail($node);
$node->append_conf('postgresql.conf',
	settings_text(log_encryption => 'aes-256-gcm', log_encryption_key_command => 'false'));
$node->restart;
my $kept = say_something();
crash_node($node);
start_again($node);
ok(layers('zstd', 'aes-256-gcm'), 'a key again, after a crash without one');
flush_trail($node);
is(texts_in_trail($node, $kept), 1, 'what was recorded without a key is there');

# Another key: another file.  Whoever has the old key only reads the old file.
my $old_file = current_file();
my $old_key  = (split /\n/, slurp_file($keys))[1];
my $only_old = "$PostgreSQL::Test::Utils::tmp_check/only_old";
append_to_file($only_old, "$old_key\n");
chmod(0600, $only_old);
$key{'aes-256-gcm'} = encryption_key(256);
ok(layers('zstd', 'aes-256-gcm'), 'another key');
ok( poll_until(
		sub {
			flush_trail($node);
			return current_file() ne $old_file;
		}),
	'begins another file');
my $with_new_key = say_something();
flush_trail($node);
is(texts_in_trail($node, $with_new_key), 1, 'which has the record');
my ($status, $stdout, $stderr) = trail_program('cat', '-K', $only_old, $old_file);
is($status, 0, 'the old key reads the old file') or diag($stderr);
($status, $stdout, $stderr) = trail_program('cat', '-K', $only_old, current_file());
is($status, 2, 'and not the new one');
like($stderr, qr/is encrypted with the key [0-9a-f]{16}, which is none of/, 'which says why');
is($stdout, '', 'nothing is shown');

# A command that fails while the file is there: it is gone on with.
my $position = -s $node->logfile;
my $file     = current_file();
ok(reload(log_encryption_key_command => 'exit 4'), 'the command fails after a reload');
my $without = say_something();
flush_trail($node);
is(current_file(), $file, 'the file is gone on with');
is(texts_in_trail($node, $without), 1, 'and has the record');
ok( wait_for_log(
		$node, qr/WARNING: .*whether the key of the audit trail has changed: .*exit code 4/,
		$position),
	'a warning says so');
ok(layers('zstd', 'aes-256-gcm'), 'the command works again');
flush_trail($node);
is(current_file(), $file, 'the same key, the same file');

# Where the keys are, memory is locked, and left out of core dumps.
SKIP:
{
	my $maps = '/proc/' . worker_pid($node) . '/smaps';

	skip 'this system does not tell what a mapping is like', 1 if !-r $maps;
	ok( scalar(grep { /^VmFlags:.* lo\b/m && /^VmFlags:.* dd\b/m }
			split /^(?=[0-9a-f]+-[0-9a-f]+ )/m, slurp_file($maps)),
		'keys are in memory that is neither paged out nor dumped');
}

# Keys are nowhere else.
my @secrets = (split(/\n/, slurp_file($keys)), $secret);
foreach my $place ($node->logfile, glob $node->data_dir . '/pg_audit_queue/*')
{
	my $content = slurp_file($place);

	is(scalar(grep { index($content, $_) >= 0 || index($content, pack('H*', $_)) >= 0 }
			grep { $place ne $node->logfile || $_ ne $secret } @secrets),
		0, "no key in $place")
	  if -f $place;
}
is( unaudited_sql(
		$node, q{SELECT count(*) FROM pg_settings WHERE setting ~ '[0-9a-f]{32}'}),
	0,
	'no key in the settings');
is( unaudited_sql(
		$node, q{CREATE ROLE ordinary LOGIN;
			SET ROLE ordinary;
			SELECT count(*) FROM pg_settings WHERE name ~ 'key_command'}) =~ s/.*\n//r,
	0, 'the command is not for everybody');

# ---------------------------------------------------------------------------
# Retention
# ---------------------------------------------------------------------------

unaudited_sql($node, 'SELECT audit_rotate()');
my @finished = grep { $_ ne current_file() } trail_files($node);
my $foreign  = $node->data_dir . '/audit/audit-2020-01-01_000000.json.enc';
my $foreign_zst = $node->data_dir . '/audit/audit-2020-01-01_000000.json.zst';
append_to_file($_, "not one of ours\n") foreach $foreign, $foreign_zst;
ok(reload(log_retention_size => '1kB', log_rotation_size => '1kB'), 'retention');
say_something();
ok( poll_until(
		sub {
			unaudited_sql($node, 'SELECT audit_flush()');
			return !grep { -e } @finished;
		}),
	'retention removes files with layers');
ok(-e $foreign && -e $foreign_zst, 'and none that only has such a name');

# A library that was built without the layers: what asks for them is told which there are.
# It does not start with them.
my $bare = audited_node('bare', install_path => least_install());

foreach my $setting ([ log_compression => 'zstd' ], [ log_compression => 'lz4' ],
	[ log_encryption => 'aes-128-gcm' ])
{
	my ($name, $value) = @$setting;
	my $error = qr/invalid value for parameter "pg_audit_queue\.$name": "$value"\n.*HINT:  Available values: none\./;

	my (undef, undef, $stderr) =
	  $bare->psql('postgres', "ALTER SYSTEM SET pg_audit_queue.$name = '$value'");
	like($stderr, qr/ERROR:  $error/, "built without: $name = $value");
}
$bare->safe_psql('postgres', "SELECT 'in a plain file'");
unaudited_sql($bare, 'SELECT audit_flush()');
is(texts_in_trail($bare, "'in a plain file'"), 1, 'built without: files are plain');
$bare->stop;
foreach my $setting ([ log_encryption => 'aes-256-gcm' ], [ log_encryption => 'none', log_compression => 'zstd' ])
{
	my %settings = @$setting;
	my ($name) = grep { $settings{$_} ne 'none' } keys %settings;

	$bare->append_conf('postgresql.conf', settings_text(%settings));
	ok(!$bare->start(fail_ok => 1), "built without: $name is not left out");
	like(
		slurp_file($bare->logfile),
		qr/FATAL:  configuration has wrong settings of pg_audit_queue: "pg_audit_queue\.$name"\n/,
		'and the log says why');
}

done_testing();
