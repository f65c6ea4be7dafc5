# pg_audit_trail verify says no more than seals tell: what they do not cover is named first, in
# numbers, nothing else is said to be verified, and exit status 0 means all, or what the user
# has asked for.  And it takes no longer than it has to, whatever somebody has forged.
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
use POSIX qw(:sys_wait_h);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

if (!defined Sealed::program())
{
	diag 'NOT TESTED: there is no pg_audit_trail; a build needs libpgcommon.a for it';
	plan skip_all => 'no pg_audit_trail';
}

my $base = PostgreSQL::Test::Utils::tempdir();
my $node = audited_node(
	'main',
	settings => { seal => 'on', seal_interval => '1h' },
	conf     => "autovacuum = off\n");
my $dir = trail_dir($node);

# Records, and a new file; returns the name of the one that has them.
sub fill_file
{
	my ($text) = @_;
	my $file = stats($node)->{current_file};

	$node->safe_psql('postgres', join '', map { "SELECT '$text $_';" } 1 .. 5);
	flush_trail($node);
	poll_until(
		sub {
			unaudited_sql($node, 'SELECT audit_rotate()');
			return stats($node)->{current_file} ne $file;
		}) or die 'no new file';
	return basename($file);
}

# The sequences in files, as ranges
sub sequences
{
	my (@files) = @_;
	my @all = sort { $a <=> $b } map { slurp_file($_) =~ /"sequence":(\d+)/g } @files;

	return (scalar(@all), $all[0], $all[-1]);
}

sub bytes
{
	my $sum = 0;

	$sum += -s foreach @_;
	return $sum;
}

sub verify_is
{
	my ($sealed, $name, $status, $lines, @arguments) = @_;
	my ($got, $output) = $sealed->verify(@arguments);
	my @output = split /\n/, $output;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	subtest $name => sub {
		is($got, $status, 'status');
		foreach my $number (0 .. $#$lines)
		{
			like($output[$number] // '', $lines->[$number], "line $number");
		}
	};
	diag($output) if !(Test::More->builder->summary)[-1];
	return $output;
}

# ---------------------------------------------------------------------------
# A key that comes late, and records that are elsewhere
# ---------------------------------------------------------------------------

my @gone = map { "$dir/$_" } fill_file('gone'), fill_file('gone, too');
my (undef, undef, $missing) = sequences(@gone);
unlink(@gone) == @gone or die "unlink: $!";
my $early = fill_file('early');
$node->safe_psql('postgres', "SELECT 'before the key'");
flush_trail($node);

my $sealed = Sealed->new($node->data_dir);
unaudited_sql($node, 'SELECT audit_seal()');
my @seals = Sealed::seals($dir);
my ($before) = map { $_->{last} } grep { $_->{kind} eq 'before' && $_->{last} > 0 } @seals;
my $unsealed = 0;
$unsealed += $_->{to} foreach grep { $_->{kind} eq 'before' } @seals;
fill_file('sealed');
unaudited_sql($node, 'SELECT audit_seal()');
my ($last) = map { $_->{last} } grep { $_->{last} > 0 } reverse Sealed::seals($dir);
cmp_ok($missing, '>', 0, 'records are missing');
cmp_ok($before, '>', $missing, 'others are not sealed');
cmp_ok($last, '>', $before, 'others are');

my @uncovered = (
	qr/^NOT COVERED: @{[ $before - $missing ]} records before the first seal, sequences @{[ $missing + 1 ]} to $before: $unsealed bytes of 2 files$/,
	qr/^NOT COVERED: $missing records before the first seal that are in none of these files, sequences 1 to $missing$/);
my @verified = (
	qr/^What seals cover is complete and unaltered from 2\S+ \S+ UTC to 2\S+ \S+ UTC,$/,
	qr/^sequences @{[ $before + 1 ]} to $last: \d+ seals, 1 file, \d+ bytes compared\.$/);

verify_is($sealed, 'a key that came late', 1,
	[ @uncovered, qr/^NOT ALL of the trail is covered by seals\.$/, @verified ], $dir);

# What nobody has sealed can be changed without a finding.  So nothing is said of it.
my $text = slurp_file("$dir/$early");
$text =~ s/early 3/EARLY 3/ or die 'no such record';
Sealed::put("$dir/$early", $text);
verify_is($sealed, 'a record that is not sealed was changed',
	1, [ @uncovered, qr/^NOT ALL of the trail is covered by seals\.$/, @verified ], $dir);

my $first_time = $seals[0]{time};
my ($as_printed) = ($sealed->verify($dir))[1] =~ / from (2\S+ \S+ UTC) to /;
foreach my $from ($first_time, $as_printed)
{
	verify_is($sealed, "--from=$from", 0, [ @uncovered, @verified ], "--from=$from", $dir);
}
verify_is($sealed, '--from an earlier time', 1, \@uncovered, '--from=1 hour ago', $dir);
verify_is($sealed, '--from a later time', 1,
	[ qr/^FIRST FINDING: the last seal is of .* UTC, but there should be seals from 2999-01-01 00:00:00 UTC on$/ ],
	'--from=2999-01-01T00:00:00Z', $dir);
my ($status, $output) = $sealed->verify('--from=soon', $dir);
is("$status $output", "2 pg_audit_trail: error: \"soon\" is no time\n", '--from=soon');

# ---------------------------------------------------------------------------
# What comes behind the last seal
# ---------------------------------------------------------------------------

my $known = unaudited_sql($node, 'SELECT audit_seal()');
my $sealed_to = Sealed::parse($known)->{to};
my $current   = Sealed::parse($known)->{file};
my ($sealed_last) = map { $_->{last} } grep { $_->{last} > 0 } reverse Sealed::seals($dir);
$node->safe_psql('postgres', "SELECT 'behind $_'") foreach 1 .. 3;
my $flushed = flush_trail($node);
my $behind  = -s "$dir/$current";
my @behind  = (
	@uncovered,
	qr/^NOT COVERED: @{[ $flushed - $sealed_last ]} records behind the last seal, sequences @{[ $sealed_last + 1 ]} to $flushed: @{[ $behind - $sealed_to ]} bytes of file "\Q$current\E"$/);
verify_is($sealed, 'behind the last seal', 1,
	[ @behind, qr/^NOT ALL of the trail is covered by seals\.$/ ],
	"--from=$first_time", $dir);
my $until = Sealed::parse($known)->{time};
verify_is($sealed, 'behind the last seal, --until', 0, [ @behind, $verified[0] ],
	"--from=$first_time", "--until=$until", $dir);
verify_is($sealed, 'behind the last seal, --until alone', 1, \@behind, "--until=$until", $dir);
unaudited_sql($node, 'SELECT audit_seal()');
verify_is($sealed, 'sealed', 0, [ @uncovered, $verified[0] ], "--from=$first_time", $dir);

# ---------------------------------------------------------------------------
# A time without seals
# ---------------------------------------------------------------------------

# The server seals nothing, and writes elsewhere.
sub restart_with
{
	my (%settings) = @_;

	$node->stop;
	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->start;
	return;
}

# --from takes a second more, as times are printed without parts of one.
poll_until(sub { unaudited_sql($node, "SELECT clock_timestamp() >= timestamptz '$first_time' + interval '1 second'") eq 't' })
  or die 'the clock stands still';
my $elsewhere = $node->data_dir . '/elsewhere';
restart_with(seal => 'off', log_directory => 'elsewhere');
fill_file('not sealed');
restart_with(seal => 'on', log_directory => 'audit');
unaudited_sql($node, 'SELECT audit_seal()');
my ($count, $from, $to) = sequences(glob("$elsewhere/*.json"));
$output = verify_is(
	$sealed,
	'a time without seals, and nothing that tells of it',
	1,
	[
		@uncovered,
		qr/^NOT COVERED: $count records while nothing was sealed that are in none of these files, sequences $from to $to$/,
		qr/^NOT ALL of the trail is covered by seals\.$/,
		$verified[0],
		qr/^sequences @{[ $before + 1 ]} to @{[ $from - 1 ]}, @{[ $to + 1 ]} to \d+: /
	],
	"--from=$first_time",
	$dir);

my $size = bytes(glob("$elsewhere/*.json"));
$output = verify_is(
	$sealed,
	'the same with the other directory',
	1,
	[ qr/^FIRST FINDING: file ".*" is in no seal$/, qr/^finding: file ".*" is in no seal$/, @uncovered ],
	"--from=$first_time", $dir, $elsewhere);
like(
	$output,
	qr/^NOT COVERED: $count records in files without seals, sequences $from to $to: $size bytes of 2 files$/m,
	'what is in files without seals is said');
unlike($output, qr/in none of these files, sequences $from/, 'and not that it is missing');
unlike($output, qr/complete and unaltered/, 'nothing is said to be well');
my ($again) = grep { $_->{first} == $from } Sealed::seals($dir);
verify_is($sealed, 'from then on', 0, \@uncovered, "--from=$again->{time}", $dir);

# Retention has removed what was sealed: that is not verified, either.
my ($old) = grep { $_->{kind} eq 'finish' && $_->{last} > 0 } Sealed::seals($dir);
my ($removed_to) = map { $_->{last} } grep { $_->{file} eq $old->{file} && $_->{last} > 0 } reverse Sealed::seals($dir);
utime(1, 1, "$dir/$old->{file}") == 1 or die "utime: $!";
reload_settings($node, log_retention_age => '900d');
ok(poll_until(sub { !-e "$dir/$old->{file}" }), 'retention removes a file');
reload_settings($node, log_retention_age => '0');
unaudited_sql($node, 'SELECT audit_seal()');
($status, $output) = $sealed->verify("--from=$again->{time}", $dir);
is($status, 0, 'after retention') or diag($output);
like($output, qr/^note: 1 file was removed by retention, sequences @{[ $before + 1 ]} to $removed_to, last /m,
	'sequences that were removed');
like($output, qr/^sequences @{[ $removed_to + 1 ]} to /m, 'are not among those that were verified');

# ---------------------------------------------------------------------------
# What cannot be counted, and what is ambiguous
# ---------------------------------------------------------------------------

$node->stop;
my $fake = "$base/fake";
mkdir($fake) or die "mkdir: $!";
copy($_, $fake) || die "copy: $!" foreach grep { !/\.lock$/ } glob("$dir/*");

sub line
{
	my ($series, $sequence, $rest) = @_;

	return qq({"type":"record","formatVersion":1,"sequence":$sequence,"series":$series)
	  . ($rest // '') . "}\n";
}

append_to_file("$fake/a.json", join '', map { line(17, $_) } 1 .. 4, 6);
append_to_file("$fake/b.json", join('', map { line(18, $_) } 3 .. 5) . "no record\n");
(undef, $output) = $sealed->verify($fake);
like(
	$output,
	qr/^NOT COVERED: 8 records in files without seals, sequences 1 to 4, 6 of series 17, sequences 3 to 5 of series 18, and 1 line that is no record: \d+ bytes of 2 files$/m,
	'two series with the same sequences');

# All but one of those that were not sealed
unlink("$fake/a.json", "$fake/b.json");
append_to_file("$fake/a.json", join '', map { line(17, $_) } $from + 1 .. $to);
(undef, $output) = $sealed->verify($fake);
like(
	$output,
	qr/^NOT COVERED: 1 record while nothing was sealed that is in none of these files, sequence $from$/m,
	'one record that is not there');

# A record in parts that are too long to be put together is one record.
unlink("$fake/a.json");
my $part = '"count":4,"length":300000000,"sha256":"' . '0' x 64 . '"';
append_to_file(
	"$fake/a.json",
	line(17, 1, qq(,"part":{"number":1,$part}))
	  . join('', map { line(17, $_, qq(,"part":{"number":$_,$part,"text":"x"})) =~ s/record/part/r } 2 .. 4)
	  . line(17, 5));
(undef, $output) = $sealed->verify($fake);
like($output, qr/^NOT COVERED: 2 records in files without seals, sequences 1 to 5: /m,
	'a record in parts is one');
rename("$fake/a.json", "$fake/a.json.enc") or die "rename: $!";
(undef, $output) = $sealed->verify($fake);
like(
	$output,
	qr/^NOT COVERED: an unknown number of records in files without seals: \d+ bytes of file "a\.json\.enc"$/m,
	'a file that cannot be read');
like($output, qr/^NOT COVERED: \d+ records before the first seal, of which it is not known whether they are in these files, sequences 1 to $missing, /m,
	'so nothing is said to be in no file');

# ---------------------------------------------------------------------------
# Forged files
# ---------------------------------------------------------------------------

# CPU time of a run, in seconds; undef if it takes more than two minutes of it.
sub cpu_time
{
	my (@arguments) = @_;
	my @before = times;
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		open(STDOUT, '>', "$base/output") && open(STDERR, '>&', \*STDOUT) or die "open: $!";
		exec('/bin/sh', '-c', 'ulimit -t 120; exec "$0" "$@"', Sealed::program(), @arguments)
		  or die "exec: $!";
	}
	waitpid($pid, 0);
	my @after = times;
	return WIFSIGNALED($?) ? undef : $after[2] + $after[3] - $before[2] - $before[3];
}

# Ten times as much may take ten times as long; three times that is the clock's, the caches' and
# the machine's.  What grows with the square takes a hundred times as long.
sub is_linear
{
	my ($name, $few, $many) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	note("$name: ", $few // 'too long', ' s, ', $many // 'too long', ' s');
	ok(defined $few && defined $many && $many < 30 * ($few < 0.05 ? 0.05 : $few),
		"$name: ten times as many take no more than about ten times as long");
	return;
}

my @times;
foreach my $number (20_000, 200_000)
{
	my $copy = "$base/forged$number";

	mkdir($copy) or die "mkdir: $!";
	copy($_, $copy) || die "copy: $!" foreach glob("$fake/audit*"), Sealed::seals_file($fake);
	my $new = $seals[0]{line} =~ s/^S1 0 (\S+) begin \d+ - /S1 7 $1 new 1 NAME /r;
	append_to_file(Sealed::seals_file($copy),
		join('', map { ($new =~ s/NAME/forged$_.json/r) . "\n" } 1 .. $number));
	push @times, cpu_time('verify', '-k', $sealed->{file}, $copy);
	like(slurp_file("$base/output"), qr/^FIRST FINDING: line \d+ of .*\n(?:.*\n)*\d+ more findings$/m,
		"$number forged seals are found");
}
is_linear('forged seals', @times);

@times = ();
foreach my $number (150, 1500)
{
	my $many = "$base/many$number";

	mkdir($many) or die "mkdir: $!";
	append_to_file("$many/$_.json", line(17, $_) . '{"type":') foreach 1 .. $number;
	push @times, cpu_time('cat', '--count', $many);
	is((() = slurp_file("$base/output") =~ /ends within a record, but is not the newest one/g),
		$number - 1, "$number files that end within a record are told apart from the newest one");
}
is_linear('files that end within a record', @times);

done_testing();
