# scripts/matrix: which folders it removes, what it installs and unpacks, and its
# table, which is README's, too.  Nothing here makes a system: programs of ours stand
# in for those that would, and write down how they are called.
#
# Runs when these change: scripts/matrix scripts/matrix.table README.md
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use Fcntl qw(:flock);
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $root     = "$FindBin::RealBin/../..";
my $base     = PostgreSQL::Test::Utils::tempdir();
my $calls    = "$base/calls";
my %programs = (

	# a user that has no other to switch to
	id => 'case $1 in -u) echo 0 ;; -un) echo nobody ;; -g) exec /usr/bin/id -g ;; *) exit 1 ;; esac',
	chown        => 'true',
	'dpkg-query' => '[ ! -e missing ] && echo installed',
	'apt-get'    => 'true',
	debootstrap  => '[ -e can_bootstrap ] && mkdir -p "$3/etc/apt/apt.conf.d"',
	python3      => <<'SH',
case "$*" in
	*download*)
		while [ "$1" != --dest ]; do shift; done
		cat "$2/wanted" >>requirements
		[ -e has_wheel ] && touch "$2/a.whl"
		;;
esac
SH

	# what runs in a system
	unshare => <<'SH',
case "$*" in
	*scripts/test*)
		echo 'Building with PostgreSQL 15.18 (Debian 15.18-0+deb12u1)'
		echo 'Files=182, Tests=1004123, 900 wallclock secs'
		;;
	*bench/torture*)
		[ ! -e torture_skipped ] || exit 77
		echo 'seed 1, mode mixed, queue mixed, rounds 100, 240 s; kills: all 9; wrong: 0'
		;;
	*scripts/regress*)
		[ ! -e regress_skipped ] || exit 77
		echo 'outputs: 217 the same, 0 different'
		[ ! -e regress_fails ]
		;;
	*dpkg-query*) [ ! -e no_pgaudit ] && printf 1.7.0-2 ;;
esac
SH
);

mkdir("$base/$_") or die "mkdir: $!" foreach 'bin', 'run';
foreach my $name (keys %programs)
{
	open my $fh, '>', "$base/bin/$name" or die "open: $!";
	print $fh "#!/bin/sh\ncd '$base/run'\necho \"$name \$*\" >>'$calls'\n$programs{$name}\n";
	close $fh;
	chmod 0755, "$base/bin/$name";
}

# What the stand-ins are to do
sub stand_ins
{
	my (@files) = @_;

	unlink glob("$base/run/*");
	append_to_file("$base/run/$_", '') foreach @files;
	unlink $calls;
	return;
}

# Run it; returns its status, output, and the calls
sub matrix
{
	my ($directory, @arguments) = @_;
	my $output;

	local %ENV = (
		%ENV,
		PATH           => "$base/bin:$ENV{PATH}",
		TMPDIR         => $base,
		PAQ_MATRIX_DIR => $directory);
	IPC::Run::run(
		[ 'env', '-C', $base, "$FindBin::RealBin/../../scripts/matrix", @arguments ],
		'<', \'', '>&', \$output);
	return ($? >> 8, $output, -e $calls ? slurp_file($calls) : '');
}

# A folder that somebody has
mkdir("$base/$_") foreach 'systems', 'systems/15';
append_to_file("$base/systems/15/precious", 'x');
append_to_file("$base/systems/15.made", '');

stand_ins('can_bootstrap');
my ($status, $output, $called) = matrix('systems', '15');
is($status, 77, 'a folder of somebody else: no system');
like($output, qr{\Q$base\E/systems/15 has not been made by this script}, 'and it says so');
ok(-e "$base/systems/15/precious", 'nothing is removed');
unlike($called, qr/^debootstrap/m, 'nor made in it');

# One that it has begun to make, by a relative name
stand_ins();
($status, $output, $called) = matrix('own', '15');
is($status, 77, 'no debootstrap: no system');
like($called, qr{^debootstrap .* bookworm \Q$base\E/own/15(?: |$)}m, 'the name is made absolute');
append_to_file("$base/own/15/half", 'x');
stand_ins('can_bootstrap');
($status, $output, $called) = matrix('own', '15');
is($status, 0, 'the next time it is made') or diag($output);
ok(!-e "$base/own/15/half", 'anew');
append_to_file("$base/own/15/kept", 'x');
stand_ins('can_bootstrap');
($status, $output, $called) = matrix('own', '15');
ok(-e "$base/own/15/kept", 'then it is kept');
like($called, qr{^chown root: \Q$base\E/paq\.\w+$}m, 'the folder of the run is no other user\'s');
unlike($called, qr/^debootstrap/m, 'and used again');

my $heading = <<'TABLE';
| PostgreSQL | pgaudit | failed tests | wrong records after 100 rounds of crashes | regression tests with other output |
|---|---|---|---|---|
TABLE
my $line = "| 15.18 | 1.7.0 | 0 of 1,004,123 | 0 | 0 of 217 |\n";
is(($output =~ /(^\|.*)/ms)[0], "$heading$line", 'the table');
stand_ins('regress_fails');
my $table = "$base/table";
my $before = "| 15.17 | | | | |\n| 17.2 | | | | |\n";
append_to_file($table, $before);
($status, $output) = matrix('own', '--table', $table, '15');
is($status, 1, 'something fails');
like($output, qr/^\| 15.*\| 0 \| \*\*failed\*\* \|$/m, 'the table says so');
is(slurp_file($table), $before, 'and a file of those that passed does not');
stand_ins('torture_skipped');
is((matrix('own', '--table', $table, '15'))[0], 0, 'a part of it is not run');
is(slurp_file($table), $before, 'that is not for the file, either');
stand_ins();
is((matrix('own', '--table', $table, '15'))[0], 0, 'all is well again');
is(slurp_file($table), "$line| 17.2 | | | | |\n", 'the file has the line, the others are left alone');
stand_ins('regress_skipped', 'no_pgaudit');
($status, $output) = matrix('own', '15');
is($status, 0, 'something cannot be run') or diag($output);
like($output, qr/^\| 15\.18 \| \| 0 of 1,004,123 \| 0 \| \|$/m, 'what there is not is empty');
is((matrix('own', '--short', '--table', $table, '15'))[0], 2, 'a short run is not for the file');

# README's table is that of the project's file.
is( (slurp_file("$root/README.md") =~ /^(\| PostgreSQL \| pgaudit .*?)(?=^\n)/ms)[0],
	$heading . slurp_file("$root/scripts/matrix.table"),
	q{README's table});

# debootstrap is wanted whoever brings a server
stand_ins('missing');
{
	local $ENV{PG_CONFIG} = '/nowhere/pg_config';
	($status, $output, $called) = matrix('own', '15');
}
like($called, qr/^apt-get .* install .*debootstrap/m, 'debootstrap is installed beside PG_CONFIG');
unlike($called, qr/^apt-get .*postgresql/m, 'and no server');

# Another run that is making or using the systems
open my $lock, '>', "$base/own/.lock" or die "open: $!";
flock($lock, LOCK_EX | LOCK_NB) or die "flock: $!";
stand_ins('can_bootstrap');
($status, $output, $called) = matrix('own', '15');
is($status, 77, 'systems that another run uses are left alone');
like($output, qr/Another run uses the systems/, 'and it says so');
unlike($called, qr/^unshare/m, 'nothing is run in them');
close $lock;

# A wheel that is not the one that was looked at is not unpacked: pip refuses.
stand_ins('can_bootstrap');
($status, $output, $called) = matrix('own', '16');
is($status, 77, 'no wheel: no system');
like($called, qr/^python3 .*download.* --require-hashes/m, 'pip checks the hash');
like(slurp_file("$base/run/requirements"), qr/^\S+==\S+ --hash=sha256:[0-9a-f]{64}$/,
	'of this file');
unlike($called, qr/^python3 .*zipfile/m, 'nothing is unpacked');

done_testing();
