# container/Containerfile is well formed, its commands make what it says, and the
# extension image works where doc/upgrade.md says that it is mounted (PostgreSQL
# 18 and later).  Nothing here needs an engine for containers, or a network: what
# installs packages is not run.
#
# Runs when these change: container
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $source = "$FindBin::RealBin/../..";

# Instructions as lists of word and rest, lines with a backslash joined
my $text = slurp_file("$source/container/Containerfile");
$text =~ s/^\s*#.*\n//mg;
$text =~ s/\\\n//g;
my @instructions = map { [ split ' ', $_, 2 ] } grep { /\S/ } split /\n/, $text;

my %stages;
my %arguments = map { $_ => 1 } qw(PG_CONFIG);
my @faults;
my $in_stage;
foreach my $instruction (@instructions)
{
	my ($word, $rest) = @$instruction;

	push @faults, "$word is no instruction" if $word !~ /^(?:ARG|COPY|ENV|FROM|RUN|WORKDIR)$/;
	push @faults, "$word before FROM" if !$in_stage && $word !~ /^(?:ARG|FROM)$/;
	$arguments{$1} = 1 if $word eq 'ARG' && $rest =~ /^(\w+)/;
	foreach my $name ($rest =~ /\$\{(\w+)\}/g)
	{
		push @faults, "$word: $name is not known" if !$arguments{$name};
	}
	if ($word eq 'FROM')
	{
		my ($image, $stage) = $rest =~ /^(\S+)(?: AS (\w+))?$/;

		push @faults, "FROM $rest" if !defined $image;
		$in_stage = 1;
		$stages{$stage} = 1 if defined $stage;
	}
	elsif ($word eq 'COPY')
	{
		push @faults, "COPY from $1, which is no stage"
		  if $rest =~ /^--from=(\w+)/ && !$stages{$1};
	}
}
is(join('; ', @faults), '', 'the Containerfile is well formed');
ok($stages{extension}, 'there is an extension image');

# Its commands, with folders of ours in place of those of the image
my $image = PostgreSQL::Test::Utils::tempdir();
chomp(my $pg_config = `sh -c 'command -v pg_config'`);
my %folders = ('/build' => "$image/build", '/staged' => "$image/staged", '/image' => "$image/image");
mkdir("$image/build") or die "mkdir: $!";

# What an engine would take of a tree in which somebody has built: .dockerignore's
# last pattern that fits a path, or a folder above it, decides.
my @patterns = map {
	my ($keep, $pattern) = /^(!?)(.*)/;
	$pattern = quotemeta $pattern;
	$pattern =~ s{\\\*\\\*\\/}{(?:.*/)?}g;
	$pattern =~ s{\\\*}{[^/]*}g;
	[ $keep, qr{^$pattern(?:/|$)} ]
} grep { /^[^#\s]/ } split /\n/, slurp_file("$source/.dockerignore");

sub is_taken
{
	my ($path) = @_;
	my $taken = 1;

	foreach my $pattern (@patterns)
	{
		$taken = $pattern->[0] ne '' if $path =~ $pattern->[1];
	}
	return $taken;
}

my $context = "$image/context";
mkdir($context) or die "mkdir: $!";
system_or_bail('cp', '-R', (map { "$source/$_" } qw(src Makefile exports.txt audit_policy.conf.sample LICENSE README.md doc)),
	glob("$source/*.c"), glob("$source/*.control"), glob("$source/*.sql"), $context);
mkdir("$context/.git") or die "mkdir: $!";
my @foreign = qw(.git/config pg_audit_queue.o pg_audit_queue.so pg_audit_queue.bc
  src/guc.o src/guc.bc src/queue/left.so src/capture/left.o);
foreach my $path (@foreign)
{
	unlink("$context/$path");
	append_to_file("$context/$path", "of another system\n");
}
my @taken = grep { is_taken($_) } map { s{^\./}{}r } split /\n/, `cd $context && find . -type f`;
my %taken = map { $_ => 1 } @taken;
is(join(' ', grep { $taken{$_} } @foreign, 'README.md'), '', 'an image gets nothing that was built here');
foreach my $path (@taken)
{
	my ($folder) = "$image/build/$path" =~ m{^(.*)/};

	system_or_bail('mkdir', '-p', $folder);
	system_or_bail('cp', "$context/$path", $folder);
}
foreach my $command (map { $_->[1] } grep { $_->[0] eq 'RUN' && $_->[1] !~ /apt-get/ } @instructions)
{
	(my $run = $command) =~ s{(?<![\w.])(/build|/staged|/image)\b}{$folders{$1}}g;

	my ($out, $err) = run_command(
		[ 'env', '-C', "$image/build", "PG_CONFIG=$pg_config", 'PG_MAJOR=18', 'sh', '-ec', $run ]);
	unlike($err, qr/error|not found|cannot/i, "runs: $command");
}

# An image that no server could use is not made.
my ($check) = map { $_->[1] } grep { $_->[0] eq 'RUN' && $_->[1] =~ /PG_MAJOR/ && $_->[1] !~ /apt-get/ } @instructions;
foreach my $major (17, 18)
{
	local $ENV{PG_MAJOR} = $major;
	is(system('sh', '-ec', "($check) 2>/dev/null") == 0 ? 1 : 0, $major >= 18 ? 1 : 0,
		"an extension image of $major " . ($major >= 18 ? 'is' : 'is not') . ' made');
}
my @files = split /\n/, `cd $image/image && find . -type f | sort`;
is_deeply(
	\@files,
	[
		'./lib/pg_audit_queue.so',
		'./licenses/LICENSE',
		'./share/extension/audit_policy.conf.sample',
		sort map { "./share/extension/$_" }
		  grep { /^pg_audit_queue.*\.(?:sql|control)$/ } slurp_dir($source)
	],
	'the extension image has the library and the extension\'s files');

# A server that has nothing of it but the image
my ($settings) =
  slurp_file("$source/doc/upgrade.md") =~ /^((?:    \w+ = '.*?pg_audit_queue.*'\n)+)/m;
like($settings, qr/extension_control_path.*dynamic_library_path.*shared_preload_libraries/s,
	'doc/upgrade.md has the settings');
$settings =~ s{/extensions/pg_audit_queue}{$image/image}g;

SKIP:
{
	my ($major) = `pg_config --version` =~ /(\d+)/;

	skip "extension_control_path needs PostgreSQL 18, this is $major", 7 if $major < 18;
	my $node = PostgreSQL::Test::Cluster->new('mounted', install_path => bare_install());

	init_node($node);
	$node->append_conf('postgresql.conf',
		$settings . settings_text(log => 'read', format => 'json', sink => 'table'));
	$node->start;
	$node->safe_psql('postgres', "CREATE EXTENSION pg_audit_queue VERSION '1.0'");
	is($node->safe_psql('postgres', "SELECT 'mounted-'"), 'mounted-', 'the server works');
	like($node->safe_psql('postgres', 'SELECT audit_flush()'), qr/^\d+$/, 'with functions');
	ok( poll_until(
			sub {
				$node->safe_psql('postgres',
					"SELECT count(*) FROM audit_records WHERE command_text LIKE '%mounted-%'"
						  . " AND command_text NOT LIKE '%audit_records%'");
			}),
		'and the table');
	$node->safe_psql('postgres', 'ALTER EXTENSION pg_audit_queue UPDATE');
	is( $node->safe_psql('postgres',
			"SELECT extversion = default_version FROM pg_extension JOIN pg_available_extensions"
			  . " ON extname = name WHERE extname = 'pg_audit_queue'"),
		't', 'it can be updated');
	$node->safe_psql('postgres', 'CREATE TABLE t (a int); DROP TABLE t');
	$node->restart;
	$node->safe_psql('postgres', "SELECT 'mounted again-'");
	$node->safe_psql('postgres', 'SELECT audit_flush()');
	ok( poll_until(
			sub {
				$node->safe_psql('postgres',
					"SELECT count(*) FROM audit_records WHERE command_text LIKE '%mounted again-%'"
						  . " AND command_text NOT LIKE '%audit_records%'");
			}),
		'also after a restart');
	is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT sequence) FROM audit_records'),
		0, 'each record once');
	is($node->safe_psql('postgres', 'DROP EXTENSION pg_audit_queue; SELECT 1'), 1,
		'it can be dropped');
	$node->stop;
}

done_testing();
