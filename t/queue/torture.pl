#
# bench/torture: whichever process dies at whichever moment, each statement that
# a client was told about is in the trail exactly once.
#
# The program's own checks are tested as well: they have to notice each kind of
# damage done to a trail that was whole.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Basename;
use File::Copy qw(copy);
use File::Path qw(make_path);
use IPC::Run;
use Test::More;

use PostgreSQL::Test::Utils;

my $program = "$FindBin::RealBin/../../bench/torture";
my $folder  = "$PostgreSQL::Test::Utils::tmp_check/torture";

# Exit status and output of the program
sub torture
{
	my ($output, $errors);

	IPC::Run::run([ $program, @_ ], '<', \'', '>', \$output, '2>', \$errors);
	return ($? >> 8, "$output$errors");
}

# The figure behind a word in the program's last line
sub figure
{
	my ($output, $word) = @_;

	return $output =~ /\b\Q$word\E (\d+)/ ? $1 : 0;
}

# Run it, and see that it has done something.
sub test_torture
{
	my ($name, $rounds, @options) = @_;
	my ($status, $output) = torture('--rounds', $rounds, @options);
	my ($kills) = $output =~ /; kills: ([^;]*);/;
	my $sum = 0;

	note($output);
	is($status, 0, "$name: nothing is wrong") or diag($output);
	like($output, qr/\bwrong: 0$/m, "$name: it says so");
	$sum += $_ foreach ($kills // '') =~ /\d+/g;
	cmp_ok($sum, '>=', $rounds, "$name: as many kills as rounds");
	cmp_ok(figure($output, 'acknowledged'), '>', 5 * $rounds, "$name: many statements");
	cmp_ok(figure($output, 'checks'), '>=', 2, "$name: the trail has been looked at");
	return;
}

my $rounds = full_tests() ? 200 : 6;

make_path($folder);
test_torture('all modes', $rounds, '--installed', '--folder', "$folder/mixed");
ok(!-e "$folder/mixed", 'no files are left');
test_torture('into the table', $rounds / 2, '--table', '--installed', '--folder',
	"$folder/table");

{
	local $ENV{PG_CONFIG} = fault_install() . '/bin/pg_config';

	test_torture('at named points', $rounds / 2, '--faults', '--installed',
		'--folder', "$folder/faults");
	test_torture('with layers and seals', $rounds / 2, '--faults', '--layers', 'mixed',
		'--installed', '--folder', "$folder/layers")
	  if has_trail_program();
	test_torture('at named points, into the table', $rounds / 2, '--faults', '--table',
		'--installed', '--folder', "$folder/table_faults");
}

# A postmaster that is killed while it makes one of its lock files leaves it
# empty, and PostgreSQL does not start until it is removed.  That is no finding,
# not even when sessions of the server before go on to write into the log.

foreach my $file ('data/postmaster.pid', 'socket/.s.PGSQL.5432.lock')
{
	my $dir = PostgreSQL::Test::Utils::tempdir_short();
	my ($output, $errors);

	mkdir("$dir/socket") or die "mkdir: $!";
	IPC::Run::run(
		[
			python(), '-B', '-c', q{
import os, signal, sys
folder, file, bindir, modules = sys.argv[1:]
sys.path.insert(0, modules)
from server import Server
server = Server(bindir, folder, folder + "/socket")
server.make({}, [])
open(folder + "/" + file, "w").close()
server.start({})
os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
with open(server.log, "a") as log:
    log.write("ERROR:  of a session\n" * 100)
server.connect("postgres")
server.stop(signal.SIGINT)
print("is empty" in open(server.log).read())
}, $dir, $file, `pg_config --bindir` =~ s/\n//r, dirname($program) . '/torturing'
		],
		'>', \$output, '2>', \$errors);
	is("$output$errors", "True\n", "the server starts in spite of an empty $file");
}

# A trail that is whole, in a few thousand lines, with the files of its own.

my ($status, $output) =
  torture('--installed', '--rounds', 3, '--clients', 3, '--load', 0.2, '--keep', '--folder',
	"$folder/whole");
is($status, 0, 'a trail to be damaged') or diag($output);
my @files = sort { first_sequence($a) <=> first_sequence($b) }
  grep { -s } glob "$folder/whole/audit/*.json";
my @lines = map { split /(?<=\n)/, slurp_file($_) } @files;

sub first_sequence
{
	return slurp_file($_[0]) =~ /"sequence":(\d+)/ ? $1 : 0;
}

# Number of the line that has a record of an acknowledged statement of that
# kind, not one of the first, and matches the pattern if there is one
sub line_of
{
	my ($kind, $pattern) = @_;

	foreach my $number (20 .. $#lines)
	{
		next if defined $pattern && $lines[$number] !~ $pattern;
		next if $lines[$number] !~ /T(\d)-(\d+)-\Q$kind\E/ || $lines[$number] =~ /"cut"/;
		return $number if slurp_file("$folder/whole/acknowledged/$1") =~ /^$2 /m;
	}
	die "no statement of kind $kind";
}

# Copy the files, with other lines in the trail, and see what the program
# finds.  $more is called with the copy's folder.
sub test_damage
{
	my ($name, $expected, $lines, $more) = @_;
	my $copy = "$folder/damaged";

	make_path("$copy/audit", "$copy/acknowledged", "$copy/data/pg_audit_queue");
	append_to_file("$copy/audit/all.json", join('', @$lines));
	foreach my $name ('server.log', 'rows', map { "acknowledged/$_" } 1 .. 3)
	{
		copy("$folder/whole/$name", "$copy/$name") or die "$name: $!";
	}
	$more->($copy) if $more;
	my ($status, $output) = torture('--check', $copy);
	if (defined $expected)
	{
		is($status, 1, "$name is found");
		like($output, $expected, "$name is reported");
	}
	else
	{
		is($status, 0, "$name: nothing is found") or diag($output);
		is(figure($output, 'records'), scalar(@$lines), "$name: all is read");
	}
	File::Path::remove_tree($copy);
	return;
}

# All lines but one, which code changes
sub changed
{
	my ($number, $code) = @_;

	return with_line_changed(\@lines, $number, $code);
}

# All lines, and others behind one of them
sub inserted
{
	my ($number, @more) = @_;

	return [ @lines[ 0 .. $number ], @more, @lines[ $number + 1 .. $#lines ] ];
}

my $select = line_of('select');
my ($without) = grep { $lines[$_] =~ /"LOGIN"/ } 10 .. $#lines;

test_damage('a copy', undef, \@lines);
test_damage('an acknowledged statement without record',
	qr/T\d-\d+-select was acknowledged and has no record/,
	changed($select, sub { s/T(\d-\d+-select)/$1/ }));
test_damage(
	'a doubled line', qr/T\d-\d+-select has another record/,
	inserted($select, $lines[$select]));
test_damage(
	'a doubled line without statement', qr/sequence (\d+) is followed by sequence \1\n/,
	inserted($without, $lines[$without]));
test_damage(
	'a missing line', qr/sequence \d+ is followed by sequence/,
	[ @lines[ 0 .. $without - 1 ], @lines[ $without + 1 .. $#lines ] ]);
test_damage('a missing first line', qr/sequence 0 is followed by sequence 2\n/,
	[ @lines[ 1 .. $#lines ] ]);
test_damage('a missing end', qr/was acknowledged and has no record/,
	[ @lines[ 0 .. $select ] ]);
test_damage('a torn end', qr/the last line is incomplete/,
	changed($#lines, sub { substr($_, -10) = '' }));
test_damage('a torn line', qr/not a record/, changed($select, sub { substr($_, 50, 10) = '' }));
test_damage('a line that is cut', qr/not a record/,
	changed($select, sub { s/.{20}\n/\n/ }));
test_damage('a gap', qr/: gap: /,
	changed($without, sub { s/"type":"record"/"type":"gap"/ }));
test_damage(
	'another outcome', qr/T\d-\d+-select was acknowledged with 00000, its record has 57P02/,
	changed($select, sub { s/"exitCode":"00000"/"exitCode":"57P02"/ }));
test_damage('a jump in a session', qr/session [0-9a-f.]+: line \d+ follows line \d+/,
	changed($select, sub { s/("sessionLine":)(\d+)/$1 . ($2 + 1)/e }));
test_damage('no number in a session', qr/no line of session/,
	changed($select, sub { s/"sessionLine":\d+/"sessionLine":null/ }));
test_damage('a changed text', qr/T\d-\d+-long-\d+ has another text/,
	changed(line_of('long'), sub { s/(-long-\d+.*)-long-/$1-gnol-/ }));
foreach my $command (qw(INSERT EXECUTE))
{
	test_damage(
		"a nested $command without record",
		qr/has no record of $command/,
		changed(
			line_of('nest', qr/"command":"$command"/), sub { s/T(\d-\d+-nest)/$1/ }));
}
test_damage(
	'another order', qr/T\d-\d+-select follows number \d+/,
	do
	{
		my ($token) = $lines[$select] =~ /(T\d-)\d+-/;
		my ($later) = grep { $lines[$_] =~ /\Q$token\E\d+-select/ } $select + 1 .. $#lines;
		my @swapped = @lines;
		my ($one, $two) =
		  map { $lines[$_] =~ /(T\d-\d+-select)/ } $select, $later;

		$swapped[$select] =~ s/$one/$two/;
		$swapped[$later] =~ s/$two/$one/;
		\@swapped;
	});
test_damage('an acknowledged statement that was never recorded',
	qr/T1-999999-insert was acknowledged and has no record/,
	\@lines, sub { append_to_file("$_[0]/acknowledged/1", "999999 insert 00000\n") });
test_damage('a row that nobody has written', qr/T1-999999-insert has left a row and has no record/,
	\@lines, sub { append_to_file("$_[0]/rows", "T1-999999-insert\n") });
test_damage('a failed assertion', qr/server log: .*TRAP/,
	\@lines, sub { append_to_file("$_[0]/server.log", "TRAP: FailedAssertion\n") });
test_damage(
	'a crash', qr/server log: .*signal 11/,
	\@lines,
	sub {
		append_to_file("$_[0]/server.log",
			"LOG:  server process (PID 1) was terminated by signal 11: Segmentation fault\n");
	});
test_damage('a left queue file', qr/left in the queue's directory: queue\.1\n/,
	\@lines, sub { append_to_file("$_[0]/data/pg_audit_queue/queue.1", 'x') });


# What a failure has left is looked at.
File::Path::remove_tree($folder) if Test::More->builder->is_passing;

done_testing();
