# scripts/demo: it shows the records of its statements, and measures what it says.
# When a part of it fails, it fails.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use IPC::Run;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $below = PostgreSQL::Test::Utils::tempdir_short();

# Run it with the server of that pg_config, in an empty environment but for what finds
# that server, and where files may be.  Returns its exit status and its output.
sub demo
{
	my ($pg_config) = @_;
	my %environment = (HOME => $below, TMPDIR => $below, PG_CONFIG => $pg_config);
	my $output;

	# to optimize takes most of the time of a build, and PostgreSQL's flags ask for what needs
	# that, with a warning
	$environment{COPT} = '-O0 -Wno-cpp';

	$environment{$_} = $ENV{$_} foreach grep { defined $ENV{$_} } qw(PATH LD_LIBRARY_PATH);
	IPC::Run::run(
		[ 'env', '-i', (map { "$_=$environment{$_}" } sort keys %environment),
			"$FindBin::RealBin/../../scripts/demo" ],
		'<', \undef, '>&', \$output);
	return ($? >> 8, $output);
}

# A part of the output, from one title to the next
sub part
{
	my ($output, $title) = @_;

	return ($output =~ /^== \Q$title\E.*?\n\n(.*?)(?=^== |\z)/ms)[0] // "there is no $title";
}

# A server of which programs can be something else
my $bindir = bare_install() =~ s{/\.\.\z}{}r;

# Put a script in place of one of its programs, which the script can call: real "$@".
sub stand_in
{
	my ($program, $text) = @_;

	rename "$bindir/$program", "$bindir/$program.real" or die "rename: $!";
	append_to_file("$bindir/$program", <<"SH");
#!/usr/bin/env bash
real() { exec -a "\$0" "\$0.real" "\$@"; }
$text
SH
	chmod 0755, "$bindir/$program";
	return;
}

sub put_back
{
	my ($program) = @_;

	rename "$bindir/$program.real", "$bindir/$program" or die "rename: $!";
	return;
}

# Figures that nobody looks at need neither as much time nor as many rows.
stand_in('pgbench', 'real $(sed -E "s/-([sT]) [0-9]+/-\1 1/g" <<<"$*")');
my ($status, $output) = demo("$bindir/pg_config");
put_back('pgbench');
is($status, 0, 'it works') or diag($output);
is_deeply([ $output =~ /((?:ERROR|FATAL|PANIC|WARNING): .*)/g ],
	[
		'ERROR:  division by zero',
		'ERROR:  syntax error at or near "SELEC"',
		'ERROR:  permission denied for table account'
	],
	'nothing fails but what is meant to');
is_deeply([ grep { !/^\.\.?$/ } slurp_dir($below) ], [], 'no file is left');

# Every statement that it shows has a record with its text; a password is not shown.
my $statements = part($output, 'Statements');
my @statements = grep { !/^LINE/ } $statements =~ /^(\S[^\n]*;)$/mg;
cmp_ok(scalar(@statements), '>=', 12, 'it runs statements');
SKIP:
{
	skip 'pg_audit_trail is not installed', 3 if !has_trail_program();
	my $table = part($output, 'The audit trail');

	s/'correct horse'/'<REDACTED>'/ foreach @statements;
	is_deeply([ grep { $table !~ /^20.* \Q$_\E$/m } @statements ], [], 'records of them');
	like($table, qr/ DELETE .* 42501 +permission denied for table account\b.* DELETE FROM account;$/m,
		'with their outcome');
	my $whole = parse_record(part($output, 'One record whole') =~ s/\n+\z//r);
	is( join('|', map { $whole->{$_} // 'none' } qw(command commandText exitCode currentUser)),
		'DELETE|DELETE FROM account;|42501|teller',
		'one record whole');
}
my $view = part($output, 'In SQL');
like($view, qr/^ +\d+ \| teller +\| \Q$_\E *$/m, "the view: $_")
  foreach 'SELECT  | 22012    | division by zero',
  '        | 42601    | syntax error at or near "SELEC"',
  'DELETE  | 42501    | permission denied for table account';

# What README's picture has, too
my $bench = part($output, 'What auditing costs');
is(join('|', $bench =~ /^(\S.*?) +\d+ +\d+ %$/mg),
	'none|queued|commit with commit_wal|commit|immediate', 'the modes are measured');
like($bench, qr/^none +[1-9]\d* +100 %$/m, 'beside no audit');
my $stats = part($output, 'The view pg_stat_audit_queue');
like($stats, qr/^wal_commits +\| [1-9]/m, 'commit_wal was on');
like($stats, qr/^$_ +\| 0$/m, "$_: none") foreach qw(dropped incomplete);

# Something is not as it should be with one of the programs.  The extension is there already,
# so that nothing need be built.
foreach my $kind (qw(pkglibdir sharedir))
{
	my ($from, $to) = map { `$_ --$kind` =~ s/\n//r } 'pg_config', "$bindir/pg_config";
	my $folder = $kind eq 'sharedir' ? '/extension' : '';

	system_or_bail('cp', glob("$from$folder/pg_audit_queue*"), "$to$folder");
}
append_to_file("$bindir/make", "#!/bin/sh\n");
chmod 0755, "$bindir/make";
foreach my $case (
	[ 'pgbench', '-T', 'echo "tps = 100"; exit 2', qr/^demo: pgbench failed$/m, 'pgbench fails' ],
	[ 'psql', '-f trail.sql', 'exit 1', qr/^demo: psql failed$/m, 'the view cannot be shown' ],
	[ 'psql', '-f statements.sql', 'sed -i "s/^SELEC /SELECT /" statements.sql; real "$@"',
		qr/^demo: these statements should have failed in another way, or others: division by zero/m,
		'what is meant to fail does not' ],
	[ 'psql', '-f statements.sql', 'sed -i "s/^UPDATE account/UPDATE absent/" statements.sql; real "$@"',
		qr/^demo: a statement failed that should not$/m, 'what is not meant to fail does' ])
{
	my ($program, $options, $does, $message, $name) = @$case;

	stand_in($program, qq{case \$* in *"$options"*) $does ;; *) real "\$@" ;; esac});
	($status, $output) = demo("$bindir/pg_config");
	cmp_ok($status, '>', 0, "$name: it fails") or diag($output);
	like($output, $message, "$name: and says so");
	unlike($output, qr/^== On a server of your own/m, "$name: and ends");
	put_back($program);
}

done_testing();
