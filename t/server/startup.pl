# Starting the server: the conditions that keep it from starting, and those that
# must not, whatever is in the queue directory.  Also standbys.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Copy;
use File::Path qw(rmtree);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node('main', conf => "autovacuum = off\n");
my $data = $node->data_dir;
my $conf = slurp_file("$data/postgresql.conf");

# Start with these settings in postgresql.conf behind the usual ones.  Returns
# whether the server has started and what it has logged.
sub start_with
{
	my ($text) = @_;
	my $position = -s $node->logfile;
	my $started;

	$node->append_conf('postgresql.conf', $text);
	$started = $node->start(fail_ok => 1);
	return ($started, slurp_file($node->logfile, $position));
}

# Back to the usual settings
sub restore_conf
{
	unlink("$data/postgresql.conf");
	append_to_file("$data/postgresql.conf", $conf);
	return;
}

# Directories that cannot be used

$node->stop;
append_to_file("$data/a_file", "\n");
mkdir("$data/read_only", 0500) or die "mkdir: $!";
foreach my $case (
	[ 'log_directory',   'a_file',         'Not a directory' ],
	[ 'log_directory',   'no/such/parent', 'No such file or directory' ],
	[ 'log_directory',   'read_only',      'Permission denied' ],
	[ 'log_directory',   'read_only/new',  'Permission denied' ],
	[ 'queue_directory', 'a_file',         'Not a directory' ],
	[ 'queue_directory', 'no/such/parent', 'No such file or directory' ],
	[ 'queue_directory', 'read_only',      'Permission denied' ],
	[ 'queue_directory', 'read_only/new',  'Permission denied' ])
{
	my ($name, $value, $reason) = @$case;
	my ($started, $log) = start_with(settings_text($name => $value));

	ok(!$started, "no start with $name = '$value'");
	like($log, qr/FATAL: .*"[^"]*\Q$value\E[^"]*".*: \Q$reason\E/,
		'the reason is in the server log');
	like($log, qr/HINT: .*pg_audit_queue\.\Q$name\E/, 'and the setting');
	$node->stop if $started;
	restore_conf();
}

# Wrong values.  PostgreSQL knows an extension's settings only when it loads
# the extension, and then warns of wrong values; the library does not let it start.

my %wrong = (
	commit_wal             => [ 'perhaps',   qr/requires a Boolean value/ ],
	consumer_keep_size     => [ '-2',        qr/outside the valid range/ ],
	database               => [ '',          qr/DETAIL: .*database name/ ],
	flush_interval         => [ '0',         qr/outside the valid range/ ],
	flush_threshold        => [ '81',        qr/outside the valid range/ ],
	format                 => [ 'xml',       qr/HINT: .*pgaudit, csvlog, json/ ],
	fsync                  => [ 'perhaps',   qr/requires a Boolean value/ ],
	immediate_log          => [ 'sometimes', qr/HINT: .*ddl, error, function, misc/ ],
	json_nulls             => [ 'perhaps',   qr/requires a Boolean value/ ],
	log                    => [ 'dll',       qr/HINT: .*ddl, denied, error, function, misc/ ],
	log_catalog            => [ 'perhaps',   qr/requires a Boolean value/ ],
	log_client             => [ 'perhaps',   qr/requires a Boolean value/ ],
	log_compression        => [ 'gzip',      qr/HINT: .*none, lz4, zstd/ ],
	log_directory          => [ '',          qr/DETAIL: .*directory name/ ],
	log_file_mode          => [ '01000',     qr/outside the valid range/ ],
	log_filename           => [ 'a/b',       qr/DETAIL: .*directory separator/ ],
	log_level              => [ 'error',     qr/HINT: .*debug5, .*warning, log/ ],
	log_parameter          => [ 'perhaps',   qr/requires a Boolean value/ ],
	log_parameter_max_size => [ '-1',        qr/outside the valid range/ ],
	log_relation           => [ 'perhaps',   qr/requires a Boolean value/ ],
	log_encryption         => [ 'aes-256',   qr/HINT: .*none, aes-128-gcm, aes-256-gcm/ ],
	log_retention_age      => [ '7',         qr/DETAIL:  A unit is required, .*"7min".*HINT: .*"min", "h", and "d"/s ],
	log_retention_size     => [ '20480',     qr/DETAIL:  A unit is required, .*"20MB".*HINT: .*"kB", "MB", "GB", and "TB"/s ],
	log_rotation_age       => [ '-1',        qr/outside the valid range/ ],
	log_record_max_size    => [ '-1kB',      qr/outside the valid range/ ],
	log_rotation_size      => [ '1 parsec',  qr/HINT: .*"B", "kB", "MB"/ ],
	log_rows               => [ 'perhaps',   qr/requires a Boolean value/ ],
	log_settings           => [ 'a.b, a-b',  qr/DETAIL: .*"a-b" is not a valid name/ ],
	log_statement          => [ 'perhaps',   qr/requires a Boolean value/ ],
	log_statement_once     => [ 'perhaps',   qr/requires a Boolean value/ ],
	mode                   => [ 'sometimes', qr/HINT: .*queued, commit, immediate/ ],
	overflow               => [ 'sometimes', qr/HINT: .*wait/ ],
	policy                 => [ 'perhaps',   qr/requires a Boolean value/ ],
	# which ALTER SYSTEM does not change at all
	policy_file            => [ '',          qr/DETAIL: .*file name|cannot be changed/ ],
	queue_directory        => [ '',          qr/DETAIL: .*directory name/ ],
	queue_size             => [ '63kB',      qr/outside the valid range/ ],
	seal                   => [ 'perhaps',   qr/requires a Boolean value/ ],
	seal_interval          => [ '0',         qr/outside the valid range/ ],
	sink                   => [ 'nowhere',   qr/HINT: .*file, table/ ],
	table_logged           => [ 'perhaps',   qr/requires a Boolean value/ ],
	table_retention        => [ '-1',        qr/outside the valid range/ ],
	table_synchronous_commit => [ 'yes',     qr/HINT: .*off, local/ ]);

$node->stop;
my ($started, $log) = start_with(
	settings_text(map { $_ => $wrong{$_}[0] } sort keys %wrong)
	  . "pg_audit_queue.lgo = 'all'\n"
	  . "pg_audit_queue.queue_sizes = '1MB'\n");
ok(!$started, 'the server does not start with wrong values');
my @messages = split /^(?=.*(?:WARNING|ERROR|LOG|FATAL):  )/m, $log;
my ($fatal) = grep { /FATAL:  configuration has wrong settings of pg_audit_queue: / } @messages;
foreach my $name (sort keys %wrong)
{
	my $explanation = $wrong{$name}[1];
	my ($message) = grep { /WARNING: .*"pg_audit_queue\.\Q$name\E"/ } @messages;

	isnt($message, undef, "$name: the wrong value is reported");
	like($message // '', $explanation, 'with what is possible');
	like($fatal // '', qr/"pg_audit_queue\.$name"/, 'and named');
}
foreach my $name (qw(lgo queue_sizes))
{
	like(
		$log,
		qr/invalid configuration parameter name "pg_audit_queue\.$name"/,
		"$name: a misspelt name is reported");
	like($fatal // '', qr/"pg_audit_queue\.$name"/, 'and named');
}
restore_conf();

# Any of them is enough, wherever it is said.
foreach my $case (
	[ 'log, once' => sub { start_with("pg_audit_queue.log = 'dll, write'\n") } ],
	[ 'log, in capitals' => sub { start_with("PG_AUDIT_QUEUE.LOG = 'dll'\n") } ],
	[ 'a name' => sub { start_with("pg_audit_queue.lgo = 'all'\n") } ],
	[ 'ALTER SYSTEM' => sub {
			append_to_file("$data/postgresql.auto.conf", "pg_audit_queue.log = 'dll'\n");
			start_with('');
		} ])
{
	my ($what, $start) = @$case;

	($started, $log) = $start->();
	ok(!$started, "no start: $what");
	like($log, qr/FATAL:  configuration has wrong settings of pg_audit_queue: "pg_audit_queue\.(?:log|lgo)"\n/, "the reason: $what");
	$node->stop if $started;
	restore_conf();
}
append_to_file("$data/postgresql.auto.conf", "pg_audit_queue.log = 'all'\n");
ok((start_with("pg_audit_queue.log = 'dll'\n"))[0], 'a right value behind a wrong one will do');
$node->stop;
append_to_file("$data/postgresql.auto.conf", "pg_audit_queue.log = 'all, -connect'\n");
restore_conf();
$node->start;
foreach my $name (sort keys %wrong)
{
	my ($ret, $stdout, $stderr) = $node->psql('postgres',
		"ALTER SYSTEM SET pg_audit_queue.$name = '$wrong{$name}[0]'");

	isnt($ret, 0, "ALTER SYSTEM with a wrong $name");
	like($stderr, $wrong{$name}[1], 'says the same');
}
my ($ret, $stdout, $stderr) =
  $node->psql('postgres', q{ALTER SYSTEM SET pg_audit_queue.lgo = 'all'});
isnt($ret, 0, 'ALTER SYSTEM with a misspelt name');

# A unit is not demanded of what means no limit, and the value is shown as that of a
# number.
foreach my $case (
	[ log_retention_age => '0', '0' ],
	[ log_retention_age => '  10080 min ', '7d' ],
	[ log_retention_size => '1024MB', '1GB' ],
	[ log_retention_size => '1.5GB', '1536MB' ],
	[ consumer_keep_size => '-1', '-1' ],
	[ table_retention => '90min', '90min' ])
{
	my ($name, $value, $shown) = @$case;

	$node->safe_psql('postgres', "ALTER SYSTEM SET pg_audit_queue.$name = '$value'");
	$node->reload;
	ok(poll_until(sub { unaudited_sql($node, "SHOW pg_audit_queue.$name") eq $shown }),
		"$name = '$value' is $shown");
	unaudited_sql($node, "ALTER SYSTEM RESET pg_audit_queue.$name");
}
foreach my $value ('7', '7.5', '0x7', ' 7 ', '2147483647')
{
	($ret, $stdout, $stderr) =
	  $node->psql('postgres', "ALTER SYSTEM SET pg_audit_queue.log_retention_age = '$value'");
	like($stderr, qr/ERROR: .*(?:A unit is required|outside the valid range)/s, "not without a unit: '$value'");
}

# The library by its path: it is the same, or the server does not start.
$node->stop;
my $installed = `pg_config --pkglibdir`;
chomp $installed;
my $elsewhere = PostgreSQL::Test::Utils::tempdir();
copy("$installed/pg_audit_queue.so", "$elsewhere/pg_audit_queue.so") or die "copy: $!";
($started, $log) = start_with("shared_preload_libraries = '$elsewhere/pg_audit_queue.so'\n");
ok(!$started, 'no start with another copy of the library');
like($log, qr/FATAL:  the preloaded library pg_audit_queue is not the one that is found by that name\n.*HINT: .*without a path/s,
	'and the log says what to do');
$node->stop if $started;
restore_conf();
($started, $log) = start_with("shared_preload_libraries = '$elsewhere/pg_audit_queue.so'\ndynamic_library_path = '/nowhere'\n");
ok(!$started, 'no start if none is found by its name');
like($log, qr/FATAL:  the preloaded library pg_audit_queue is not the one.*DETAIL: .*could not (?:access file|load library) "pg_audit_queue"/s, 'and the reason');
restore_conf();
foreach my $path ("$installed/pg_audit_queue.so", '$libdir/pg_audit_queue')
{
	($started, $log) = start_with("shared_preload_libraries = '$path'\n");
	ok($started, "preloaded as $path");
	$node->safe_psql('postgres', "SELECT 'preloaded as $path'");
	flush_trail($node);
	is(texts_in_trail($node, "preloaded as $path"), 1, 'the worker works');
	$node->stop;
	restore_conf();
}
$node->start;

# A queue directory is one server's

my $directory = $node->basedir . '/shared_queue';
$node->append_conf('postgresql.conf',
	settings_text(queue_directory => $directory));
$node->restart;
my $second = audited_node(
	'second',
	settings => { queue_directory => $directory },
	start    => 0);
ok(!$second->start(fail_ok => 1), 'a second server does not start');
like(
	slurp_file($second->logfile),
	qr/FATAL: .*could not lock file "\Q$directory\E.*HINT:  Is another server using/s,
	'because the queue directory is in use');
$node->safe_psql('postgres', q{SELECT 'not disturbed'});
flush_trail($node);
is(texts_in_trail($node, 'not disturbed'), 1, 'the first one works');

# ... one after the other: what it finds there is not its own
$node->safe_psql('postgres', q{SELECT 'of the first server'});
crash_node($node);
ok(poll_until(sub { $second->start(fail_ok => 1) }),
	'it starts when the first one has gone');
create_extension($second);
flush_trail($second);
is(texts_in_trail($second, 'of the first server'),
	0, 'records of another server are not taken over');
is((trail_records($second))[0]{type}, 'gap', 'that is noted in the trail');
$second->stop;
restore_conf();
start_again($node);

# Whatever is in the place of the queue file, the server starts.  Each case
# starts with records in the queue.

my $queue = queue_dir($node) . '/queue';

sub overwrite
{
	my ($path, $offset, $bytes) = @_;

	open my $file, '+<', $path or die "$path: $!";
	binmode $file;
	seek($file, $offset, 0);
	print $file $bytes;
	close $file or die "$path: $!";
	return;
}

# Both of the headers
sub overwrite_headers
{
	my ($offset, $bytes) = @_;

	overwrite($queue, $_ + $offset, $bytes) foreach 0, 4 * 4096;
	return;
}

copy($queue, "$data/other_queue") or die "copy: $!";
my %old_files = map { $_ => 1 } trail_files($node);
$node->safe_psql('postgres', q{SELECT 'to be rotated'; SELECT audit_rotate()});
my $bad  = 0;

# There may be one already: with another queue directory the trail has been
# written to without this queue file's knowing.
my $gaps = texts_in_trail($node, '{"type":"gap"');
foreach my $case (
	[
		'garbage',
		sub { overwrite_headers(0, pack('C*', map { $_ * 7 % 256 } 1 .. 4096)) }
	],
	[ 'damaged headers',  sub { overwrite_headers(40, "\xff" x 8) } ],
	[ 'another version',  sub { overwrite_headers(8, pack('L', 99)) } ],
	[ 'empty', sub { truncate($queue, 0) or die "truncate: $!" } ],
	[
		'a directory',
		sub { unlink($queue); mkdir($queue) or die "mkdir: $!" }
	],
	[
		'a link',
		sub { unlink($queue); symlink("$data/a_file", $queue) or die "symlink: $!" }
	],
	[
		'a copy',
		sub { unlink($queue); copy("$data/other_queue", $queue) or die "copy: $!" }
	],
	[
		'a copy over it',
		sub {
			my $content = slurp_file("$data/other_queue");
			overwrite($queue, 0, $content);
		}
	],
	[
		'one header damaged',
		sub { overwrite($queue, 40, "\xff" x 8) },
		log     => qr/LOG:  the first header of audit queue file "[^"]*" is damaged/,
		salvage => 1
	],
	[
		'garbage at the start',
		sub { overwrite($queue, 0, pack('C*', map { $_ * 7 % 256 } 1 .. 8192)) },
		log     => qr/LOG:  the first header of audit queue file "[^"]*" is damaged/,
		salvage => 1
	],
	[
		'unreadable',
		sub { chmod(0000, $queue) or die "chmod: $!" },
		log     => qr/LOG:  restored permissions of audit queue file/,
		salvage => 1
	],
	[
		'truncated',
		sub { truncate($queue, 100_000) or die "truncate: $!" },
		log  => qr/LOG:  audit queue file "[^"]*" was truncated/,
		aside => 0
	])
{
	my ($name, $damage, %expected) = @$case;
	my $position = -s $node->logfile;
	my $worker   = worker_pid($node);
	my $aside    = $expected{aside} // !$expected{salvage};

	$node->safe_psql('postgres', "SELECT 'before $name'");
	flush_trail($node);
	kill('STOP', $worker);
	$node->safe_psql('postgres', "SELECT 'unknown $name'");
	crash_node($node, $worker);
	$damage->();
	start_again($node);
	$bad++ if $aside;
	$gaps++ if !$expected{salvage};
	is(!!lstat("$queue.bad." . ($bad + !$aside)), !!$aside,
		"$name: set aside" . ($aside ? '' : ', it is not'));
	like(
		slurp_file($node->logfile, $position),
		$expected{log} //
		  qr/LOG:  audit queue file "[^"]*" was set aside as "[^"]*queue\.bad\.$bad"\n.*DETAIL: /,
		'the server log has it');
	$node->safe_psql('postgres', "SELECT 'after $name'");
	flush_trail($node);
	my @records = trail_records($node);
	my @gaps    = grep { $_->{type} eq 'gap' } @records;
	is(scalar @gaps, $gaps, "$name: gaps in the trail");
	like($gaps[-1]{errorMessage} // '', qr/queue/, 'it tells why');
	is( scalar(grep { ($_->{commandText} // '') =~ /'after \Q$name\E'/ } @records),
		1, "$name: the trail goes on");
	is( scalar(grep { ($_->{commandText} // '') =~ /'before \Q$name\E'/ } @records),
		1, 'what was written stays');
	is( scalar(grep { ($_->{commandText} // '') =~ /'unknown \Q$name\E'/ } @records),
		$expected{salvage} // 0,
		'what was in the queue is ' . ($expected{salvage} ? 'there' : 'lost'));
}

# Whether the queue file could be used or not, counting goes on
my @sequences =
  map { parse_record($_)->{sequence} }
  map { split /\n/, slurp_file($_) }
  grep { !$old_files{$_} } trail_files($node);
is_deeply(
	\@sequences,
	[ $sequences[0] .. $sequences[0] + $#sequences ],
	'the sequence is contiguous');
is(slurp_file("$data/a_file"), "\n", 'nothing is written through a link');

# Damage in the middle of the records is stepped over, and said
my $worker = worker_pid($node);
kill('STOP', $worker);
$node->safe_psql('postgres', join '',
	map { "SELECT 'ring $_', '" . ('x' x 300) . "';\n" } 1 .. 30);
crash_node($node, $worker);
open my $file, '<:raw', $queue or die "$queue: $!";
my $content = do { local $/; <$file> };
close $file;
overwrite($queue, index($content, q{SELECT 'ring 15'}) + 20, '!!!!');
start_again($node);
flush_trail($node);
my @records = trail_records($node);
is( join(' ',
		map { /'ring (\d+)'/ ? $1 : () }
		map { $_->{commandText} // '' } @records),
	join(' ', 1 .. 14, 16 .. 30),
	'all records but the damaged one');
is((grep { $_->{type} eq 'gap' } @records), $gaps + 1, 'for which there is a gap');
$node->stop;

# An empty directory, or none
rmtree(queue_dir($node));
$node->start;
flush_trail($node);
ok(-f $queue, 'a missing queue directory is made');
is(sprintf('%04o', (stat(queue_dir($node)))[2] & 07777),
	'0700', 'with its mode');
is(sprintf('%04o', (stat($queue))[2] & 07777), '0600', 'and that of the file');
$node->stop;

# Standby

my $primary = audited_node(
	'primary',
	init => [ allows_streaming => 1 ],
	conf => "autovacuum = off\n");
$primary->safe_psql('postgres',
	q{CREATE TABLE t (a int); INSERT INTO t VALUES (1)});
flush_trail($primary);

# so that there are records in the queue of the backup
my $primary_worker = worker_pid($primary);
kill('STOP', $primary_worker);
$primary->safe_psql('postgres', q{SELECT 'in the queue'});
$primary->backup('backup');
kill('CONT', $primary_worker);

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf',
	settings_text(log_directory => 'standby_audit'));
$standby->start;
$primary->safe_psql('postgres', q{INSERT INTO t VALUES (2)});
$primary->wait_for_catchup($standby);
is( $standby->safe_psql(
		'postgres', q{SELECT 'on the standby', count(*) FROM t}),
	'on the standby|2',
	'a standby answers');
my ($failed) =
  $standby->psql('postgres', q{INSERT INTO t VALUES (3)});
isnt($failed, 0, 'and is read only');
like(unaudited_sql($standby, 'SELECT audit_flush()'),
	qr/^\d+$/, 'audit_flush() on a standby');
ok(unaudited_sql($standby, 'SELECT worker_pid FROM audit_queue_stats'),
	'a worker runs there');

my @standby_records =
  map { parse_record($_) // fail("no record: $_") }
  map { split /\n/, slurp_file($_) }
  glob($standby->data_dir . '/standby_audit/*.json');
my @texts = map { $_->{commandText} // '' } @standby_records;
is((grep { /'on the standby'/ } @texts), 1, 'it records its own sessions');
is((grep { /VALUES \(3\)/ } @texts), 1, 'failed statements too');
is((grep { /VALUES \([12]\)|in the queue/ } @texts),
	0, 'and none of the primary');
my ($own) = grep { ($_->{commandText} // '') =~ /'on the standby'/ } @standby_records;
is($own->{exitCode}, '00000', 'with the outcome');
is($standby->safe_psql(
		'postgres',
		q{SET pg_audit_queue.mode = 'immediate'; SELECT 'immediate there'}),
	'immediate there', 'modes work there');
$standby->promote;
$standby->safe_psql('postgres', q{INSERT INTO t VALUES (4)});
unaudited_sql($standby, 'SELECT audit_flush()');
is( scalar(
		grep { slurp_file($_) =~ /VALUES \(4\)/ }
		  glob($standby->data_dir . '/standby_audit/*.json')),
	1, 'and on after promotion');
$standby->stop;
flush_trail($primary);
is(texts_in_trail($primary, q{'in the queue'}), 1, 'the primary has its own');
check_trail($primary, 'its trail is whole');
$primary->stop;

# Not preloaded: server/basic.pl has what the functions say.  Loaded later, the
# library changes nothing.

my $plain = PostgreSQL::Test::Cluster->new('plain');
init_node($plain);
$plain->start;
is($plain->safe_psql('postgres', q{LOAD 'pg_audit_queue'; SELECT 1}),
	'1', 'LOAD does no harm');
($ret, $stdout, $stderr) = $plain->psql(
	'postgres', q{LOAD 'pg_audit_queue'; CREATE EXTENSION pg_audit_queue;
	SELECT audit_flush()});
like(
	$stderr,
	qr/must be loaded via "shared_preload_libraries"\nHINT: /,
	'but is not enough');
ok(!-e $plain->data_dir . '/pg_audit_queue', 'no queue is made');
$plain->stop;

done_testing();
