# scripts/lib.sh, unpack_packages: programs that tests need, and what happens where
# they cannot be had; and default_major, which reads what a program says.  Programs of
# ours stand in for those of Debian, and write down how they are called.
#
# Runs when these change: scripts/lib.sh
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $base     = PostgreSQL::Test::Utils::tempdir();
my $calls    = "$base/calls";
my %programs = (
	id           => 'if [ -e root ]; then echo 0; else echo 1000; fi',
	'dpkg-query' => 'exit 1',

	# the package of the first program has both
	'apt-cache' => '[ -e known ] && [ "$2" = paq_one ]',
	'apt-get'   => 'case "$*" in *download*) [ -e available ] && touch "$here/paq_one_1_all.deb" ;; esac',
	'dpkg-deb'  => <<'SH',
mkdir -p "$here/usr/bin"
touch "$here/usr/bin/paq_one" "$here/usr/bin/paq_two"
chmod +x "$here/usr/bin/"*
SH
);

mkdir("$base/$_") or die "mkdir: $!" foreach 'bin', 'run';
foreach my $name (keys %programs)
{
	open my $fh, '>', "$base/bin/$name" or die "open: $!";
	print $fh "#!/bin/sh\nhere=\$PWD\ncd '$base/run'\necho \"$name \$*\" >>'$calls'\n$programs{$name}\n";
	close $fh;
	chmod 0755, "$base/bin/$name";
}

# Run lines of a script with the functions of scripts/lib.sh, and the stand-ins.  Returns the
# status, the output, and the calls.
sub run_functions
{
	my ($lines) = @_;
	my $output;

	local %ENV = (%ENV, PATH => "$base/bin:$ENV{PATH}", TMPDIR => $base);
	IPC::Run::run(
		[ 'bash', '-c', <<'SH' . $lines, 'test', "$FindBin::RealBin/../../scripts/lib.sh" ], '<', \'', '>&', \$output);
set -euo pipefail
. "$1"
set_traps
work=$(mktemp -d)
SH
	return ($? >> 8, $output, -e $calls ? slurp_file($calls) : '');
}

# Ask for the programs, with stand-ins that do what the files' names say.  Returns what
# run_functions() does.
sub unpack_packages
{
	my (@files) = @_;

	unlink glob("$base/run/*"), $calls;
	append_to_file("$base/run/$_", '') foreach @files;
	return run_functions(<<'SH');
unpack_packages paq_one paq_two
command -v paq_one paq_two || true
echo 'on to the tests'
SH
}

delete $ENV{PG_CONFIG};
my ($status, $output, $called) = unpack_packages(qw(root known available));
is($status, 0, 'programs can be had') or diag($output);
like($output, qr{/usr/bin/paq_one\n.*/usr/bin/paq_two\non to the tests\n\z}, 'and are found');
like($called, qr/^apt-get .*update.*^apt-cache show paq_one$/ms, 'in lists that are new');

foreach my $case ([qw(root)], [qw(root known)], [qw(root available)], [], [qw(known)])
{
	($status, $output, $called) = unpack_packages(@$case);
	is($status, 1, "@$case: programs cannot be had");
	like($output, qr/cannot be had: paq_one paq_two$/m, 'the script says which');
	unlike($output, qr/on to the tests/, 'and ends');
	is(scalar($called =~ /update/), $case->[0] && $case->[0] eq 'root' ? 1 : '', 'lists');
}

# Whoever brings a server looks after programs, too.
{
	local $ENV{PG_CONFIG} = '/nowhere/pg_config';

	($status, $output, $called) = unpack_packages(qw(root known));
	is($status, 0, 'with PG_CONFIG') or diag($output);
	like($output, qr/on to the tests/, 'the tests are run without them');
	unlike($called, qr/update/, 'and nothing else is done to the system');
}

# What apt-cache says depends on the locale.
{
	local @ENV{qw(LANG LC_ALL)} = ('de_DE.UTF-8') x 2;

	unlink "$base/bin/apt-cache";
	append_to_file("$base/bin/apt-cache", <<'SH');
#!/bin/sh
echo postgresql
case ${LC_ALL:-$LANG} in
	C) echo '  Depends: postgresql-17' ;;
	*) echo '  Hängt ab von: postgresql-17' ;;
esac
SH
	chmod 0755, "$base/bin/apt-cache";
	like((run_functions("default_major\n"))[1], qr{^17$}m, 'in another locale');
}

# rsyslog is only unpacked, and nobody has to have it.
sub unpack_rsyslog
{
	my ($available) = @_;

	unlink glob("$base/run/*"), $calls;
	append_to_file("$base/run/root", '');
	foreach my $program (
		[ 'apt-get', "case \"\$*\" in *download*) [ $available = 1 ] && touch \"\$here/r_1_all.deb\" ;; esac" ],
		[ 'dpkg-deb', 'true' ])
	{
		my ($name, $text) = @$program;

		unlink "$base/bin/$name";
		append_to_file("$base/bin/$name",
			"#!/bin/sh\nhere=\$PWD\ncd '$base/run'\necho \"$name \$*\" >>'$calls'\n$text\n");
		chmod 0755, "$base/bin/$name";
	}
	return run_functions(<<'SH');
unpack_rsyslog
echo "it is in ${PAQ_RSYSLOG_DIR#"$work"/}."
SH
}

SKIP:
{
	skip 'rsyslog is installed', 4 if -x '/usr/sbin/rsyslogd';
	($status, $output, $called) = unpack_rsyslog(1);
	is("$status $output", "0 it is in rsyslog.\n", 'rsyslog is unpacked');
	unlike($called, qr/install/, 'and not installed');
	($status, $output, $called) = unpack_rsyslog(0);
	is($status, 0, 'rsyslog cannot be had');
	like($output, qr/^rsyslog cannot be had.*^it is in \.$/ms, 'which is said, and no more');
}

done_testing();
