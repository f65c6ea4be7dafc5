# Seals: the server makes them, through crashes, rotation and changes of settings, and
# pg_audit_trail verify finds whatever was done to the trail afterwards.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/seal";
use PaqTest;
use Sealed;

use File::Basename;
use File::Copy qw(copy);
use File::Path qw(rmtree);
use IPC::Run;
use Test::More;
use Time::HiRes qw(sleep);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

if (!defined Sealed::program())
{
	diag 'NOT TESTED: there is no pg_audit_trail; a build needs libpgcommon.a for it';
	plan skip_all => 'no pg_audit_trail';
}

my $base    = PostgreSQL::Test::Utils::tempdir();
my $install = fault_install();
my %sealing = (seal => 'on', seal_interval => '1s');

# Set some of the extension's settings.  What that leads to has to be waited for.
sub reconfigure
{
	my ($node, %settings) = @_;
	my $size = -s $node->logfile;

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	wait_for_log($node, qr/received SIGHUP, reloading/, $size) or die 'no reload';
	return;
}

# Those that begin a new file: wait until there is one.
sub reconfigure_files
{
	my ($node, %settings) = @_;
	my $file = stats($node)->{current_file};

	reconfigure($node, %settings);
	poll_until(
		sub {
			flush_trail($node);
			return stats($node)->{current_file} ne $file;
		}) or die 'no new file';
	return;
}

# How many seals the server has made since its start, and when the last one
sub seal_stats
{
	my ($node) = @_;

	return split /\|/, unaudited_sql($node, 'SELECT seals, last_seal_time FROM pg_stat_audit_queue');
}

sub seals_made
{
	my ($node) = @_;

	return (seal_stats($node))[0];
}

# Seal now; returns the seal.  Tests that it is in the file, and has all up to here.
sub sealed_now
{
	my ($node, $name) = @_;
	my $sequence = flush_trail($node);
	my $line = unaudited_sql($node, 'SELECT audit_seal()');
	my ($seal) = grep { $_->{line} eq $line } Sealed::seals(trail_dir($node));

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(defined $seal, "$name: the seal is in the file") or diag($line);
	my ($last) = sort { $b <=> $a } map { $_->{last} }
	  grep { $_->{epoch} <= ($seal->{epoch} // -1) } Sealed::seals(trail_dir($node));
	cmp_ok($last, '>=', $sequence, "$name: it covers what was recorded before");
	return $line;
}

# Test that the trail verifies from its first seal to its last; returns what was said.
sub verifies
{
	my ($sealed, $name, @arguments) = @_;
	my ($begun) = map { $_->{epoch} == 0 ? $_->{time} : () }
	  map { Sealed::seals($_) } grep { scalar(() = glob("$_/*.seals.*")) } @arguments;
	my ($status, $output) = $sealed->verify("--from=$begun", "--until=$begun", @arguments);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($status, 0, "$name: verify has no complaint") or diag($output);
	return $output;
}

# Test that it does not, and what its first line is.
sub complains
{
	my ($sealed, $name, $expected, @arguments) = @_;
	my ($status, $output) = $sealed->verify(@arguments);
	my ($first) = split /\n/, $output;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($status, 1, "$name: verify says so") or diag($output);
	like($first, qr/^FIRST FINDING: .*$expected/, "$name: what it says first") or diag($output);
	return $output;
}

# Records of a few statements
sub work
{
	my ($node, $text, $count) = @_;

	$node->safe_psql('postgres',
		join '', map { "SELECT '$text $_' || '" . 'x' x 100 . "';\n" } 1 .. $count // 5);
	return;
}

sub in_log
{
	my ($node, $regexp, $position) = @_;
	my @hits = slurp_file($node->logfile, $position // 0) =~ /$regexp/g;

	return scalar @hits;
}

# ---------------------------------------------------------------------------
# The key
# ---------------------------------------------------------------------------

my $node = audited_node(
	'main',
	install_path => $install,
	init         => [ allows_streaming => 1 ],
	settings     => {%sealing},
	conf         => "autovacuum = off\n");
my $data = $node->data_dir;
my $dir  = trail_dir($node);

ok(wait_for_log($node, qr/WARNING:  audit trail is not sealed, because there is no key/),
	'without a key the log says so');
like(slurp_file($node->logfile), qr/HINT:  Make one with "pg_audit_trail keygen"/, 'and what to do');
work($node, 'without a key');
my $woken = stats($node)->{wakeups};
ok(poll_until(sub { stats($node)->{wakeups} > $woken + 3 }), 'the worker looks for a key again');
is(in_log($node, qr/there is no key/), 1, 'but says so once');
cmp_ok(texts_in_trail($node, 'without a key'), '>', 0, 'the trail goes on');
my ($status, $stdout, $stderr) = $node->psql('postgres', 'SELECT audit_seal()');
like($stderr, qr/ERROR:  audit trail is not sealed\n.*HINT:  .*pg_audit_trail keygen/s, 'audit_seal()');
is(scalar(glob("$dir/pg_audit_queue.seals.*")), undef, 'there is no file of seals');

($status, $stdout, $stderr) = Sealed::run('keygen', '-D', $base);
is("$status|$stdout", '2|', 'keygen: another directory is refused');
like($stderr, qr/is not a data directory/, 'keygen: with the reason');
($status, $stdout, $stderr) = Sealed::run('keygen', '-D', "$base/none");
is("$status|$stdout", '2|', 'keygen: as is one that does not exist');
{
	local $ENV{PGDATA};
	delete $ENV{PGDATA};
	($status, $stdout, $stderr) = Sealed::run('keygen');
	is("$status|$stdout", '2|', 'keygen: as is none');
}
my $full;
IPC::Run::run([ Sealed::program(), 'keygen', '-D', $data ], '>', '/dev/full', '2>', \$full);
is($? >> 8, 2, 'keygen: a key that cannot be shown');
ok(!-e "$data/pg_audit_queue/pgsql_tmp.seal_key", 'keygen: is not made');
{
	pipe(my $reader, my $writer) or die "pipe: $!";
	close($reader);
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		local $SIG{PIPE} = 'DEFAULT';
		open(STDOUT, '>&', $writer) && open(STDERR, '>', '/dev/null') or die "open: $!";
		exec(Sealed::program(), 'keygen', '-D', $data) or die "exec: $!";
	}
	waitpid($pid, 0);
	is($?, 2 << 8, 'keygen: nor one that nobody reads');
	ok(!-e "$data/pg_audit_queue/pgsql_tmp.seal_key", 'keygen: is made');
}

# As root, keygen becomes the server's user with that user's groups, and for good.
SKIP:
{
	skip 'not with sanitizers', 1 if sanitizers();
	mkdir("$base/data") or die "mkdir: $!";
	append_to_file("$base/data/PG_VERSION", '');
	my ($uid, $gid) = (stat("$base/data"))[ 4, 5 ];
	append_to_file("$base/root", '');
	local $ENV{PAQ_ROOT}   = "$base/root";
	local $ENV{LD_PRELOAD} = build_preloaded('root');

	Sealed::run('keygen', '-D', "$base/data");
	is(slurp_file($ENV{PAQ_ROOT}), "groups $gid\nsetgid $gid\nsetuid $uid\n",
		'keygen: root drops his groups, group and user');
}

my $sealed = Sealed->new($data);
like(
	$sealed->{key},
	qr/\A(?:\#.*\n)+[0-9a-f]{8}(?:-[0-9a-f]{8}){7}\n\z/,
	'keygen shows comments and the verification key');
my $id = Sealed::id($sealed->{secret});
like($sealed->{key}, qr/^# Key $id holds from .* UTC, epoch 0\.$/m, 'with its id');
is((stat($sealed->{state}))[2] & 07777, 0600, 'mode of the file with the server\'s key');
my $state = slurp_file($sealed->{state});
($status, $stdout, $stderr) = Sealed::run('keygen', '-D', $data);
is("$status|$stdout", '2|', 'keygen: there is one key only');
like($stderr, qr/there is a sealing key already.*\n.*hint: /, 'keygen: with a hint');

ok(wait_for_log($node, qr/LOG:  audit trail is sealed from now on/), 'the server finds the key');
ok(poll_until(sub { seals_made($node) > 0 }), 'there are seals');
like((seal_stats($node))[1], qr/^\d{4}-/, 'and when the last one was made');
isnt(slurp_file($sealed->{state}), $state, 'the first secret is replaced');
is($sealed->state->{secret}, $sealed->secret_of($sealed->state->{epoch}), 'by the one that follows');
unlike(slurp_file($sealed->{state}), qr/\Q$sealed->{secret}\E/, 'and is nowhere in the file');
ok(basename(Sealed::seals_file($dir)) eq "pg_audit_queue.seals.$id", 'the name of the file of seals');

# audit_seal()

work($node, 'to be sealed');
my $known = sealed_now($node, 'audit_seal()');
like($known, qr/^S1 \d+ \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z request 1 audit-\S+\.json \d+ \d+ /,
	'what it returns');
$node->safe_psql('postgres', 'CREATE ROLE auditor LOGIN');
(undef, undef, $stderr) = $node->psql('postgres', 'SET ROLE auditor; SELECT audit_seal()');
like($stderr, qr/permission denied for function audit_seal/, 'other users may not call it');
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION audit_seal() TO auditor');
like($node->safe_psql('postgres', 'SET ROLE auditor; SELECT audit_seal()'),
	qr/^S1 /, 'unless it is granted');
foreach my $function ("pg_read_binary_file('pg_audit_queue/pgsql_tmp.seal_key')", 'audit_rotate()')
{
	(undef, undef, $stderr) = $node->psql('postgres', "SET ROLE auditor; SELECT $function");
	like($stderr, qr/permission denied/, "which does not allow $function");
}

# Heartbeats

my $heartbeats = sub {
	return grep { $_->{type} eq 'heartbeat' } trail_records($node);
};
flush_trail($node);
my $count = () = $heartbeats->();
my $records = grep { $_->{type} ne 'heartbeat' } trail_records($node);
ok(poll_until(sub { $heartbeats->() >= $count + 2 }), 'heartbeats, although nothing happens');
is(scalar(grep { $_->{type} ne 'heartbeat' } trail_records($node)), $records, 'nothing else is recorded');
my ($heartbeat) = $heartbeats->();
is($heartbeat->{class}, undef, 'a heartbeat has no class');
like($heartbeat->{sequence}, qr/^\d+$/, 'but a sequence');

# ---------------------------------------------------------------------------
# What an honest server goes through
# ---------------------------------------------------------------------------

my $output = verifies($sealed, 'while the server runs', $dir);
my ($before) = map { $_->{kind} eq 'before' ? $_ : () } Sealed::seals($dir);
like(
	$output,
	qr/\ANOT COVERED: $before->{last} records before the first seal, sequences 1 to $before->{last}: $before->{to} bytes of file "\Q$before->{file}\E"$/m,
	'what was there before the key is said first');
like(
	$output,
	qr/^What seals cover is complete and unaltered from .* to .*,\nsequences @{[ $before->{last} + 1 ]} to \d+: \d+ seals, 1 file,/m,
	'and what was verified');
verifies($sealed, 'with the data directory', '-D', $data, $dir);

my $known_file = "$base/known";
append_to_file($known_file, " audit_seal \n------------\n $known  \n(1 row)\n\n$known\r\n");
verifies($sealed, 'with a seal kept elsewhere', "--seals=$known_file", $dir);

# Is sealed, and verifies, while the server is down.
sub down
{
	my ($name, $start) = @_;

	verifies($sealed, "$name, before the start", '-D', $data, $dir);
	$start ? $start->($node) : $node->start;
	return;
}

# Others can read the server's key or not, from a restart on: the log says so, once, and the
# trail goes on.
sub key_mode
{
	my ($mode, $warnings) = @_;
	my $position = -s $node->logfile;

	chmod($mode, $sealed->{state}) == 1 or die "chmod: $!";
	$node->restart;
	sealed_now($node, 'restarted');
	is(
		in_log(
			$node,
			qr/WARNING:  sealing key file "\S+seal_key" has group or world access\n.*?HINT: /s, $position),
		$warnings, sprintf('with a key of mode %04o the server log has warnings', $mode));

	# verify does not read one that others can read
	chmod(0600, $sealed->{state}) == 1 or die "chmod: $!";
	return;
}

# The settings begin a file, which gets seals by itself.
sub write_with
{
	my ($name, %settings) = @_;
	my $seals;

	reconfigure_files($node, %settings);
	work($node, $name);
	$seals = seals_made($node);
	ok(poll_until(sub { seals_made($node) >= $seals + 2 }), "$name: there are seals");
	return if ($settings{format} // 'json') eq 'json';
	my $file = (Sealed::seals($dir))[-1]{file};
	like($file, qr/\.(?:csv|log)$/, "$name: is used");
	unlike(slurp_file("$dir/$file"), qr/heartbeat/, "$name: no heartbeats");
	return;
}

# The worker dies at a point, to which the sub brings it; more than once, as long as that
# lasts, if wanted.
sub die_at
{
	my ($name, $point, $code, $again) = @_;
	my $position = -s $node->logfile;
	my $died     = sub { return in_log($node, qr/was terminated by signal 9/, $position) };

	set_faults($node, $point => 'kill');
	$code->();
	ok(poll_until($died), "$name: killed");
	poll_until(sub { $died->() > 1 }, 3) if $again;
	set_faults($node);
	start_again($node) if !defined $node->{_pid};
	wait_for_worker($node);
	return;
}

# The trail waits for seals that cannot be written, and goes on.
sub write_in_vain
{
	my ($name) = @_;
	my $position = -s $node->logfile;

	set_faults($node, 'seal-write' => 28);
	ok(wait_for_log($node, qr/could not write to file ".*seals\.$id": No space left/, $position), "$name: reported");
	my $waiting = start_psql($node, 'SELECT audit_seal()', name => 'sealing');
	ok(wait_until_waiting($node, 'sealing'), "$name: audit_seal() waits");
	work($node, $name);
	set_faults($node);
	($status, $stdout) = finish_psql($waiting);
	like("$status $stdout", qr/^0 S1 /, "$name: and goes on");
	return;
}

my %has = map {
	my $name = $_;
	$name => unaudited_sql($node,
		"SELECT array_to_string(enumvals, ',') FROM pg_settings WHERE name = 'pg_audit_queue.$name'")
} qw(log_compression log_encryption);
my @layers = grep { $has{log_compression} =~ /\b$_\b/ } qw(zstd lz4);
append_to_file("$base/log_key", '0123456789abcdef' x 4 . "\n");
my @ways = (
	sub { },
	sub { $node->psql('postgres', 'SELECT audit_seal()') },
	sub { $node->psql('postgres', 'SELECT audit_rotate()') });

# What happens, and how; the sub gets its name.
my @happens = (
	[ 'audit_rotate()', sub { unaudited_sql($node, 'SELECT audit_rotate()') } ],
	[
		'a stop',
		sub {
			$node->stop;
			is((Sealed::seals($dir))[-1]{kind}, 'stop', 'a clean stop is sealed');
			is(join("\n", Sealed::faults($dir)), '', 'up to the end');
			like(verifies($sealed, 'after a stop', $dir), qr/^note: the server, or sealing, was stopped/m, 'that is said');
			down(@_);
			sealed_now($node, 'after a restart');
			is(in_log($node, qr/sealed from now on/), 1, 'that there are seals is said only when a key is found');
		}
	],
	[ 'an immediate stop', sub { $node->stop('immediate'); down(@_) } ],
	[ 'a crash of the worker', sub { wait_for_worker($node, kill_worker($node, 'KILL')) } ],
	[ 'a crash of everything', sub { crash_node($node); down(@_, \&start_again) } ],
	[ 'a key that others can read',    sub { key_mode(0640, 1) } ],
	[ 'a key that nobody else can read', sub { key_mode(0600, 0) } ],
	(
		map {
			my $case = $_;
			[ join(' ', map { "$_=$case->{$_}" } grep { !/command/ } sort keys %$case), sub { write_with(@_, %$case) } ]
		} (
			(map { { log_compression => $_ } } @layers),
			(
				$has{log_encryption} =~ /aes-256-gcm/
				? { log_encryption => 'aes-256-gcm', log_encryption_key_command => "cat $base/log_key" }
				: ()),
			{ log_compression => 'none', log_encryption => 'none', format => 'csvlog' },
			{ format          => 'pgaudit' },
			{ format          => 'json' })),

	# at each point, with all kinds of seals
	(
		map {
			my $number = $_;
			map {
				my $point = $_;
				my $way   = $ways[ $point eq 'heartbeat-written' ? 0 : $number % @ways ];
				[ "$point $number", sub { die_at(@_, $point, $way, $number == 1) } ]
			} qw(seal-write seal-written heartbeat-written)
		} 1 .. (full_tests() ? 12 : 3)),
	(
		map {
			my $point = $_;
			[ "a stop at $point", sub { die_at(@_, $point, sub { eval { $node->stop('fast', fail_ok => 1) } }) } ]
		} qw(seal-write seal-written)),
	[ 'no space', \&write_in_vain ]);

foreach (@happens)
{
	my ($name, $code) = @$_;

	work($node, "before $name");
	$code->($name);
	work($node, "after $name");
	sealed_now($node, $name);
	verifies($sealed, $name, '-D', $data, $dir);
	is(join("\n", Sealed::faults($dir, partly => 1)), '', "$name: no range is sealed twice, or left out");
}

# The key is not in base backups: with it, seals could be made anew.

$node->backup('without');
my $backup = $node->backup_dir . '/without';
ok(-e "$backup/audit/" . basename(Sealed::seals_file($dir)), 'a base backup has the seals');
is(join(' ', grep { /key/ } slurp_dir("$backup/pg_audit_queue")), '', 'but not the key');

# Retention: files that are gone are expected to be

my @files = trail_files($node);
my ($old) = grep { $_->{kind} eq 'finish' } Sealed::seals($dir);
utime(time - 100 * 86400, time - 100 * 86400, "$dir/$old->{file}") == 1 or die "utime: $!";
reconfigure($node, log_retention_age => '90d');
ok(poll_until(sub { !-e "$dir/$old->{file}" }), 'retention removes a file');
sealed_now($node, 'after retention');
like(
	verifies($sealed, 'after retention', $dir),
	qr/^note: 1 file was removed by retention, sequences \d+ to \d+, last "\Q$old->{file}\E" at /m,
	'and verify says how many');
reconfigure($node, log_retention_age => 0);

# Another directory

my $other = PostgreSQL::Test::Utils::tempdir();
reconfigure_files($node, log_directory => $other, log_filename => 'other-%Y-%m-%d_%H%M%S');
work($node, 'elsewhere');
my $line = unaudited_sql($node, 'SELECT audit_seal()');
ok((grep { $_->{line} eq $line } Sealed::seals($other)), 'seals are where the trail is');
verifies($sealed, 'two directories', $dir, $other);
verifies($sealed, 'in any order', $other, $dir);
complains($sealed, 'the second alone',
	qr/line 1 of ".*": the seal of epoch \d+ stands where that of epoch 0/,
	$other);
complains($sealed, 'the first alone', qr/epoch \d+, but the server has sealed up to epoch/,
	'-D', $data, $dir);
my $until = unaudited_sql($node, "SELECT now()");
complains($sealed, 'the first alone, until now', qr/the trail ends at .*, but should go on until/,
	"--until=$until", $dir);
($status, $output) = $sealed->verify($dir, "$dir/");
is($status, 2, 'a directory given twice');
like($output, qr/are the same directory/, 'is refused');
reconfigure_files($node, log_directory => 'audit', log_filename => 'third-%Y-%m-%d_%H%M%S');
work($node, 'back');
sealed_now($node, 'back in the first directory');
verifies($sealed, 'back in the first directory', $dir, $other);

# Switched off, and on again

reconfigure($node, seal => 'off');
ok(poll_until(sub { (Sealed::seals($dir))[-1]{kind} eq 'stop' }), 'switched off: that is sealed');
verifies($sealed, 'switched off', $dir, $other);
(undef, undef, $stderr) = $node->psql('postgres', 'SELECT audit_seal()');
like($stderr, qr/ERROR:  audit trail is not sealed\n.*HINT:  Set "pg_audit_queue.seal" to on/s,
	'switched off: audit_seal()');
work($node, 'not sealed');
unaudited_sql($node, 'SELECT audit_rotate()');
work($node, 'not sealed');
unaudited_sql($node, 'SELECT audit_rotate()');
work($node, 'not sealed');
flush_trail($node);
reconfigure($node, seal => 'on');
my $seal_on = poll_until(sub { (Sealed::seals($dir))[-1]{kind} ne 'stop' });
ok($seal_on, 'switched on again: there are seals');
sealed_now($node, 'switched on again');
complains($sealed, 'written meanwhile', qr/file "third-.*"/, $dir, $other);
$node->stop;

# Seals of another server, which is asked for them: no time passes without us.

$node = audited_node(
	'second',
	install_path => $install,
	start        => 0,
	settings     => { seal => 'on', seal_interval => '1h', log_filename => 'again' });
$data   = $node->data_dir;
$dir    = trail_dir($node);
$other  = PostgreSQL::Test::Utils::tempdir();
$sealed = Sealed->new($data);
$node->start;
create_extension($node);
is((Sealed::seals($dir))[0]{kind}, 'begin', 'a key that was there before the server first ran');

# Files whose names are used again: those that were removed are none of their successors.

work($node, 'the first of that name', 20);
reconfigure_files($node, log_filename => 'between');
utime(time - 100 * 86400, time - 100 * 86400, "$dir/again.json") == 1 or die "utime: $!";
reconfigure_files($node, log_filename => 'again', log_retention_age => '90d');
reconfigure_files($node, log_filename => 'between');
ok( poll_until(
		sub {
			unaudited_sql($node, 'SELECT audit_rotate()');
			return !-e "$dir/again.json";
		}),
	'a file is removed');
reconfigure($node, log_retention_age => 0);
$node->restart;
reconfigure_files($node, log_filename => 'again');
work($node, 'the second of that name');
sealed_now($node, 'a name that is used again');
is((Sealed::seals($dir))[-1]{file}, 'again.json', 'its name is used again');
verifies($sealed, 'a name that is used again', $dir);

# Switched off, and on again, within a file

reconfigure($node, seal => 'off');
ok(poll_until(sub { (Sealed::seals($dir))[-1]{kind} eq 'stop' }), 'switched off');
my $size = (Sealed::seals($dir))[-1]{to};
work($node, 'not sealed');
flush_trail($node);
reconfigure($node, seal => 'on');
ok(poll_until(sub { (Sealed::seals($dir))[-1]{kind} ne 'stop' }), 'and on');
sealed_now($node, 'switched on again');
complains($sealed, 'written meanwhile to the same file', qr/file "again.json"/, $dir);

# In two directories a file may have the same name.

reconfigure_files($node, log_filename => 'twice');
work($node, 'in the one');
sealed_now($node, 'in the one directory');
reconfigure_files($node, log_directory => $other);
work($node, 'in the other');
unaudited_sql($node, 'SELECT audit_seal()');
my $found = complains($sealed, 'files of the same name', qr/file "again.json"/, $dir, $other);
like($found, qr/^The trail was ALTERED OR IS INCOMPLETE: 1 finding\.$/m,
	'nothing is wrong but what was before');
$node->stop;

# Damage of the file of seals does not spread.

my $seals_file = Sealed::seals_file($other);
my $text       = slurp_file($seals_file);
my $last       = (Sealed::seals($other))[-1]{line};
substr($text, 5, 1) = "\0";
Sealed::put($seals_file, $text);
$node->start;
unaudited_sql($node, 'SELECT audit_seal()');
$node->stop;
like(slurp_file($seals_file), qr/\Q$last\E/, 'no seals are lost');

# ---------------------------------------------------------------------------
# What goes wrong on an honest server, and what goes on while nothing is sealed
# ---------------------------------------------------------------------------

my $third = audited_node(
	'third',
	install_path => $install,
	start        => 0,
	settings     => {%sealing},
	conf         => "autovacuum = off\nfsync = on\n");
my $third_dir = trail_dir($third);

$sealed = Sealed->new($third->data_dir);
$third->start;
create_extension($third);

# What a failed attempt has written is cut off, and written again in another way.
foreach my $fault ('trail-fsync 5', 'trail-write 28', 'trail-fsync 28')
{
	my ($point, $errno) = split / /, $fault;
	my $made = seals_made($third);

	set_faults($third, $point => $errno);
	ok( poll_until(
			sub {
				$third->psql('postgres', q{SELECT 'written in vain'});
				return unaudited_sql($third,
					q{SELECT last_error_time > now() - interval '2 s' FROM pg_stat_audit_queue}) eq 't';
			}),
		"$fault: the worker fails");
	set_faults($third);
	sealed_now($third, $fault);
	ok(poll_until(sub { seals_made($third) > $made + 2 }), "$fault: and seals again");
	verifies($sealed, $fault, '-D', $third->data_dir, $third_dir);
}

# The queue file, on a file system in memory say, is lost.
foreach my $way ('fast', 'immediate')
{
	work($third, "before the queue is lost, $way");
	flush_trail($third);
	$third->stop($way);
	unlink($third->data_dir . '/pg_audit_queue/queue') or die "unlink: $!";
	$third->start;
	sealed_now($third, "queue lost, $way");
	verifies($sealed, "queue lost, $way", '-D', $third->data_dir, $third_dir);
}

# Another directory, which is not there yet
reconfigure_files($third, log_directory => 'moved');
my $moved = $third->data_dir . '/moved';
work($third, 'moved');
unaudited_sql($third, 'SELECT audit_seal()');
verifies($sealed, 'a new log_directory', '-D', $third->data_dir, $third_dir, $moved);

# A crash with a seal that only the file of seals has, and then another directory: the epoch
# is not used again there.
$third->append_conf('postgresql.conf', 'restart_after_crash = off');
$third->reload;
poll_until(sub { unaudited_sql($third, 'SHOW restart_after_crash') eq 'off' }) or die 'no reload';
work($third, 'before the crash');
set_faults($third, 'seal-written' => 'kill');
$third->psql('postgres', 'SELECT audit_seal()');
ok(poll_until(sub { !-e $third->data_dir . '/postmaster.pid' }), 'the server is gone');
set_faults($third);
my $unknown = (Sealed::seals($moved))[-1]{epoch};
$third->append_conf('postgresql.conf',
	"restart_after_crash = on\n" . settings_text(log_directory => 'moved_again'));
$third->_update_pid(0);
start_again($third);
unaudited_sql($third, 'SELECT audit_seal()');
my $third_before = $moved;
$moved = $third->data_dir . '/moved_again';
is((Sealed::seals($moved))[0]{epoch}, $unknown + 1, 'another directory after a crash: the epoch');
verifies($sealed, 'another directory after a crash', '-D', $third->data_dir, $third_dir,
	$third_before, $moved);

# Seals in the directory before that cannot be read do not stop the trail.
my @third_before = ($third_before, $moved);
my $unreadable   = Sealed::seals_file($moved);
$third->stop;
chmod(0, $unreadable) == 1 or die "chmod: $!";
my $position = -s $third->logfile;
$third->append_conf('postgresql.conf', settings_text(log_directory => 'third_place'));
$third->start;
$moved = $third->data_dir . '/third_place';
unaudited_sql($third, 'SELECT audit_seal()');
like(
	slurp_file($third->logfile, $position),
	qr/LOG:  seals of the audit trail in directory "moved_again" could not be looked at\n.*Permission denied/,
	'seals that cannot be read: reported');
chmod(0600, $unreadable) == 1 or die "chmod: $!";
verifies($sealed, 'seals that could not be read', '-D', $third->data_dir, $third_dir, @third_before,
	$moved);

# The table gets the records: that is an end.
my $before_table = (Sealed::seals($moved))[-1]{epoch};
reconfigure($third, sink => 'table');
ok(poll_until(sub { my $seal = (Sealed::seals($moved))[-1];
			$seal->{kind} eq 'stop' && $seal->{epoch} > $before_table }),
	'sink = table: the last seal says that nothing more is to be expected');
reconfigure_files($third, sink => 'file');
unaudited_sql($third, 'SELECT audit_seal()');
my @uncovered = do
{
	my ($begun) = map { $_->{epoch} == 0 ? $_->{time} : () } Sealed::seals($third_dir);

	$sealed->verify("--from=$begun", "--until=$begun", $third_dir, @third_before, $moved);
};
is($uncovered[0], 1, 'after a time with the table: what went there is not covered');
like(
	$uncovered[1],
	qr/\ANOT COVERED: \d+ records? while nothing was sealed that are in none of these files, sequences? \d+/,
	'after a time with the table: it is named');

# Off, and on with the settings that begin another file
reconfigure($third, seal => 'off');
ok(poll_until(sub { (Sealed::seals($moved))[-1]{kind} eq 'stop' }), 'off');
my $open = stats($third)->{current_file} =~ s{.*/}{}r;
work($third, 'while nothing was sealed');
flush_trail($third);
reconfigure_files($third, seal => 'on', log_filename => 'another');
unaudited_sql($third, 'SELECT audit_seal()');
complains($sealed, 'on with another file', qr/file "\Q$open\E": .* written while nothing was sealed/,
	$third_dir, @third_before, $moved);
$third->stop;

# A clock that is set forward, and back, does not stop the seals.

SKIP:
{
	skip 'not with sanitizers', 2 if sanitizers();
	local $ENV{PAQ_CLOCK}  = PostgreSQL::Test::Utils::tempdir() . '/clock';
	local $ENV{LD_PRELOAD} = build_preloaded('clock');
	my $clock = audited_node(
		'clock',
		start    => 0,
		settings => {%sealing});

	Sealed::put($ENV{PAQ_CLOCK}, 0);
	Sealed->new($clock->data_dir);
	$clock->start;
	create_extension($clock);
	Sealed::put($ENV{PAQ_CLOCK}, 86400);
	my $now = substr((Sealed::seals(trail_dir($clock)))[0]{time}, 0, 10);
	ok(poll_until(sub { substr((Sealed::seals(trail_dir($clock)))[-1]{time}, 0, 10) ne $now }),
		'a seal of tomorrow');
	Sealed::put($ENV{PAQ_CLOCK}, 0);
	my $made = seals_made($clock);
	ok(poll_until(sub { seals_made($clock) > $made + 1 }, 5), 'and there are further ones');
	$clock->stop;
}

done_testing();
