#
# The ring under stress, without a server.  The program of t/lib/ring runs the
# queue's own code in several processes, kills them at fault points, at random,
# and after every single instruction, and compares the trail with the records
# that the processes put in.  Also the program of bench/ring, which times the
# ring.
#
# With scripts/test --full the test runs for minutes.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# How long the program runs, in s
my $seconds = full_tests() ? 300 : 5;
my $steps   = full_tests() ? 10  : 1;

# Build a program where nothing else is; returns its path, undef if that fails.
sub build
{
	my ($folder, @settings) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $output;

	return "$dir/program"
	  if IPC::Run::run(
		[
			'make',
			'-C' => $folder,
			"PROGRAM=$dir/program",
			'PG_CONFIG=pg_config',
			'PAQ_SRC=' . abs_path("$FindBin::RealBin/../../src"), @settings
		],
		'>', \$output, '2>&1');
	diag($output);
	return;
}

sub build_stress
{
	my ($sanitize) = @_;

	return build("$FindBin::RealBin/../lib/ring", "SANITIZE=$sanitize");
}

# Run it with these arguments, and pass if it finds nothing.
sub run_ok
{
	my ($program, $name, @arguments) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my ($stdout, $stderr);

	# The processes end without freeing what they have.
	local $ENV{ASAN_OPTIONS} = 'detect_leaks=0';
	my $ok =
	  IPC::Run::run([ $program, '--directory', $dir, @arguments ],
		'>', \$stdout, '2>', \$stderr);

	$ok ? note($stdout) : diag($stdout);
	diag($stderr) if $stderr ne '';
	ok($ok && $stderr eq '', $name);
	return $stdout;
}

# Was somebody killed at that fault point?
sub killed_at
{
	my ($summary, $point) = @_;

	return $summary =~ / \Q$point\E: (\d+)\// && $1 > 0;
}

# The server's static libraries may need it, too.
my $program = build_stress(sanitizers());
ok($program, 'the program builds') or done_testing(), exit 1;
my $summary = run_ok(
	$program,    'nothing is lost, repeated or changed',
	'--seconds', $seconds, '--steps', $steps);
foreach my $point (
	qw(pending-replaced writer-borrowed ring-claimed ring-unplaced ring-reserved ring-copied ring-committed
	checkpoint-half checkpoint-written batch-written flushed skip-claimed skip-reserved skip-committed
	skip-noted detour-claimed detour-taken))
{
	ok(killed_at($summary, $point), "processes were killed at $point");
}
ok($summary =~ /deaths unnoticed: (\d+), stepped over: (\d+)/ && $1 > 0 && $2 > 0,
	'the consumer steps over what a dead process has reserved');
SKIP:
{
	skip 'processes cannot be traced here', 1
	  if $summary =~ /^processes cannot be traced/m;
	ok( $summary =~ / instructions stepped, (\d+) states/ && $1 > 100,
		'a process died at every instruction');
}

$program = build_stress('address,undefined');
ok($program, 'it builds with checks of its memory');
run_ok($program, 'and finds nothing with it', '--seconds', full_tests() ? $seconds / 2 : 2)
  if $program;

# The program that times the ring puts records without being ready to wait for
# space, and there always is.
$program = build("$FindBin::RealBin/../../bench/ring", 'SANITIZE=' . sanitizers());
ok($program, 'the program of bench/ring builds') or done_testing(), exit 1;
foreach my $try (1 .. (full_tests() ? 8 : 4))
{
	$summary = run_ok($program, "nobody is refused while there is space, $try",
		'--producers', 2, '--records', 1000000);
}
like(
	$summary,
	qr/^\{"producers": 2, "records": 1000000, .*"put_ns": \{"median": [\d.]+,.*\}$/,
	'and it says how long that takes');

done_testing();
