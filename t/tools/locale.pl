# What is written does not depend on the locale of the server's user, nor on that of
# who reads the trail; and scripts that read what other programs print are run in an
# environment of their own.  The other locale is German, with decimal commas.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use IPC::Run;
use JSON::PP qw(decode_json);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $base = PostgreSQL::Test::Utils::tempdir();

# ---------------------------------------------------------------------------
# Continuous integration
# ---------------------------------------------------------------------------

# .ci/run with scripts that say what is in their environments
mkdir "$base/$_" or die "mkdir: $!" foreach qw(checkout checkout/.ci checkout/scripts checkout/bench);
system_or_bail('cp', "$FindBin::RealBin/../../.ci/run", "$base/checkout/.ci/run");
foreach my $script (qw(scripts/regress scripts/matrix bench/unaudited scripts/analyze scripts/fuzz scripts/test))
{
	my ($name) = $script =~ m{(\w+)$};

	append_to_file("$base/checkout/$script", "#!/bin/sh\necho '== $name' \"\$@\"\nenv\n");
	chmod 0755, "$base/checkout/$script";
}
{
	my $output;
	my %kept = (
		HOME => '/home/ci', PATH => $ENV{PATH}, CI => 'true', TMPDIR => $base,
		PG_CONFIG => '/x/pg_config', PAQ_MATRIX_DIR => '/x/two words', http_proxy => 'http://x/');
	my %dropped = (LANG => 'de_DE.UTF-8', LC_ALL => 'de_DE.UTF-8', PGHOST => '/x', TZ => 'Asia/Tokyo',
		PGOPTIONS => '-c log_statement=all', MAKEFLAGS => '-k', COLUMNS => 80);

	local %ENV = (%kept, %dropped);
	IPC::Run::run([ 'bash', "$base/checkout/.ci/run" ], '<', \undef, '>&', \$output);
	is($?, 0, '.ci/run') or diag($output);
	is( join('|', $output =~ /^== (.*?) ?$/mg),
		'regress --short|unaudited --check|analyze gcc pgspot|fuzz --turn|matrix --short --turn|test --tools',
		'what it runs');
	foreach my $part (split /^== /m, $output)
	{
		my ($name) = $part =~ /^(\w+)/ or next;
		# what the shell sets
		my %seen = map { /^(\w+)=(.*)/ ? ($1 => $2) : () } grep { !/^(?:PWD|OLDPWD|SHLVL|_)=/ } split /\n/, $part;

		is_deeply(\%seen, \%kept, "the environment of $name");
	}

	# What runs beside each other is shown one after the other, whichever fails.
	foreach my $case (
		[ 'scripts/matrix',  'regress unaudited analyze fuzz matrix' ],
		[ 'scripts/regress', 'regress matrix' ],
		[ 'bench/unaudited', 'regress unaudited matrix' ],
		[ 'scripts/analyze', 'regress unaudited analyze matrix' ],
		[ 'scripts/fuzz',    'regress unaudited analyze fuzz matrix' ])
	{
		my ($script, $shown) = @$case;
		my $file = "$base/checkout/$script";
		my $text = slurp_file($file);

		append_to_file($file, "exit 3\n");
		IPC::Run::run([ 'bash', "$base/checkout/.ci/run" ], '<', \undef, '>&', \$output);
		is($? >> 8, 3, "$script fails, and so does .ci/run");
		is(join(' ', $output =~ /^== (\w+)/mg), $shown, 'and all of it is shown');
		unlink $file;
		append_to_file($file, $text);
		chmod 0755, $file;
	}
}

# ---------------------------------------------------------------------------
# Another locale
# ---------------------------------------------------------------------------

# Made where the C library finds it, if it is told
mkdir "$base/locale" or die "mkdir: $!";
my $made;
IPC::Run::run([ 'localedef', '--no-archive', '-i', 'de_DE', '-f', 'UTF-8', "$base/locale/de_DE.UTF-8" ],
	'>&', \$made);
my %german = (LOCPATH => "$base/locale", LC_ALL => 'de_DE.UTF-8');

# Calls it with that locale in the environment; returns what it returns.
sub in_german
{
	my ($code) = @_;

	local %ENV = (%ENV, %german);
	return $code->();
}

SKIP:
{
	if (in_german(sub { `locale decimal_point 2>&1` }) ne ",\n")
	{
		diag "NOT TESTED IN ANOTHER LOCALE: de_DE cannot be made (Debian: locales): $made";
		skip 'there is no German locale', 1;
	}

	# A server
	my $node = in_german(
		sub {
			audited_node(
				'main',
				init     => [ extra => ['--locale=de_DE.UTF-8'] ],
				settings => { seal => 'off' },
				conf     => "autovacuum = off\n");
		});

	is(unaudited_sql($node, 'SHOW lc_monetary'), 'de_DE.UTF-8', 'a server with that locale');
	$node->psql('postgres', $_)
	  foreach q{SELECT 'one', 1.5}, 'SELECT 1 / 0', 'SELECT pg_sleep(0.01)', q{SELECT 'Straße'}, 'SELEC';
	unaudited_sql($node, "SELECT audit_consumer_create('one')");
	flush_trail($node);
	my @records = check_trail($node, 'its trail');
	is(scalar(grep { ($_->{exitCode} // '') =~ /^(?:22012|42601)$/ } @records), 2, 'failures are known');
	is(unaudited_sql($node, q{SELECT count(*) FROM audit_trail WHERE sqlstate IN ('22012', '42601')}),
		2, 'in the view, too');
	# which is a record, too
	flush_trail($node);

  SKIP:
	{
		skip 'pg_audit_trail is not installed', 1 if !has_trail_program();
		my $dir = trail_dir($node);

		local $ENV{TZ} = 'UTC';
		foreach my $arguments (
			(map { [ 'cat', "--format=$_" ] } qw(json csvlog pgaudit table ocsf ecs)),
			[ 'cat', '--from=1 day ago', '--text=Straße', '--count' ],
			(map { [ 'report', "--format=$_" ] } qw(text html)))
		{
			my ($status, $plain) = trail_program(@$arguments, $dir);
			my ($german_status, $german) = in_german(sub { trail_program(@$arguments, $dir) });

			# when it was made
			s/\d\d:\d\d:\d\d(?! *<text)/TIME/g foreach $plain, $german;
			ok($german eq $plain && $german ne '' && $status == 0 && $german_status == 0,
				"@$arguments: the same") or diag($german);
		}

		my $receiver = q!sed -un 's/^{"type":"[a-z]*","formatVersion":1,"sequence":\([0-9]*\).*/\1/p'!;
		my ($status, $stdout, $stderr) = in_german(
			sub { trail_program('ship', '--once', '--stats', '--consumer=one', "--command=$receiver", $dir) });

		is($status, 0, 'ship') or diag($stderr);
		my @stats = map { eval { decode_json($_) } // "no JSON: $_" } split /\n/, $stdout;
		ok(@stats && !grep({ !ref } @stats), 'its statistics are JSON') or diag($stdout);
	}
	$node->stop;
}

done_testing();
