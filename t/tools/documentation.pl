# What README.md and the pages of doc/ show can be done as it is shown: settings
# are accepted, SQL is executed, jq finds what it is said to find, and programs
# are there.  What a block of code is, the word behind its fence says.  Versions and
# figures that are named in several places are the same.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use IPC::Run;
use JSON::PP;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $root  = "$FindBin::RealBin/../..";
my @pages = ("$root/README.md", glob("$root/doc/*.md"));
# Nothing is in the trail before it has to be, and nothing is where the test runs.
my $node = audited_node('main', settings => { log => 'all', flush_interval => '1h' });
my %count = map { $_ => 0 } qw(ini python sql sh text);

# What the examples are about
unaudited_sql($node, $_) foreach
  'CREATE ROLE teller LOGIN', 'CREATE ROLE payments', 'CREATE ROLE monitoring',
  'CREATE DATABASE ledger', 'CREATE TABLE account (id int)', 'CREATE TABLE card (number text)';
my $has_file_fdw = unaudited_sql($node,
	"SELECT count(*) FROM pg_available_extensions WHERE name = 'file_fdw'");

# Returns the page's blocks: [ line, kind, text ].
sub blocks
{
	my ($page) = @_;
	my @found;
	my $number = 0;
	my $open;

	foreach my $line (split /^/, slurp_file($page))
	{
		$number++;
		if ($line !~ /^```(\w*)/) { $open->[2] .= $line if $open; next }
		if ($open) { push @found, $open; undef $open }
		else { $open = [ $number, $1, '' ] }
	}
	die "$page: a fence is not closed" if $open;
	return @found;
}

# Settings: their names and values are those of settings.
sub check_ini
{
	my ($text) = @_;
	my @wrong;

	foreach my $line (split /\n/, $text)
	{
		my ($name, $value) = $line =~ /^([\w.]+)\s*=\s*('[^']*'|\S+)\s*(?:#.*)?$/;
		my ($out, $err) = ('no setting', '');

		$node->psql('postgres', "ALTER SYSTEM SET $name = $value", stdout => \$out, stderr => \$err)
		  if defined $name;
		push @wrong, "$line: $out$err" if !defined $name || $err ne '';
	}
	unaudited_sql($node, 'ALTER SYSTEM RESET ALL');
	return join("\n", @wrong);
}

# SQL: no statement of it fails.
sub check_sql
{
	my ($text) = @_;
	my ($out, $err) = ('', '');

	unaudited_sql($node, 'DROP EXTENSION pg_audit_queue')
	  if $text =~ /CREATE EXTENSION pg_audit_queue/;
	if ($text =~ /audit_records/)
	{
		unaudited_sql($node, "ALTER SYSTEM SET pg_audit_queue.sink = 'table'");
		$node->reload;
		table_loaded($node) or die 'nothing is loaded into the table';
	}
	$node->psql('postgres', $text, stdout => \$out, stderr => \$err);
	unaudited_sql($node, 'ALTER SYSTEM RESET ALL');
	$node->reload;
	return join("\n", grep { /ERROR|FATAL/ } split /\n/, $err);
}

# Commands: what has jq in it prints something, wherever it is called by whoever is the
# server's user, of a trail that has a GAP record, and will have that of a statement that
# was refused just before; other programs of the project are where they are said to be.
sub check_sh
{
	my ($text) = @_;
	my @missing =
	  grep { !-x "$root/$_" } $text =~ m{^((?:scripts|bench)/[\w-]+)}mg;

	if ($text =~ /^jq/m)
	{
		my ($out, $err) = ('', '');
		my $here = PostgreSQL::Test::Utils::tempdir();

		unlink(trail_files($node)) or die "unlink: $!";
		flush_trail($node);
		$node->psql('postgres', 'DELETE FROM account', extra_params => [ '-U', 'teller' ]);
		local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres');
		IPC::Run::run([ 'sh', '-ec', $text ], '>', \$out, '2>', \$err,
			init => sub { chdir $here or die "chdir: $!" });
		push @missing, "jq: $err" if $?;
		push @missing, 'jq finds nothing' if $out !~ /\t|^\{/m;
	}
	return "@missing";
}

# Python: a program.  t/tools/csvlog_recipes.pl runs it.
sub check_python
{
	my ($text) = @_;
	my $err;

	IPC::Run::run([ python(), '-c', 'import sys; compile(sys.stdin.read(), "program", "exec")' ],
		'<', \$text, '>&', \$err);
	return $? ? $err : '';
}

foreach my $page (@pages)
{
	my $name = $page =~ s{.*/}{}r;

	foreach my $block (blocks($page))
	{
		my ($line, $kind, $text) = @$block;
		my $check = { ini => \&check_ini, sql => \&check_sql, sh => \&check_sh, python => \&check_python,
			text => sub { '' } }->{$kind};

		$count{$kind}++;
	  SKIP:
		{
			skip 'file_fdw is not installed', 1 if $text =~ /file_fdw/ && !$has_file_fdw;
			is($check ? $check->($text) : 'of no known kind', '', "$name, line $line: $kind");
		}
	}
}
cmp_ok($count{$_}, '>', 0, "examples in $_") foreach sort keys %count;

# The picture, README's words for it, and the tables in bench/README.md are those of the
# measurements that are kept.  t/tools/matrix.pl compares README's table of versions.
{
	my $measured   = JSON::PP->new->utf8->decode(slurp_file("$root/doc/images/throughput.json"));
	my $das        = $measured->{commands}{das};
	my $picture    = slurp_file("$root/doc/images/throughput.svg");
	my $readme     = slurp_file("$root/README.md");
	my $bench      = slurp_file("$root/bench/README.md");
	my ($version)  = $measured->{machine}{postgresql} =~ /^(PostgreSQL \S+)/;
	my @packages   = map { $measured->{machine}{packages}{$_} =~ s/-.*//r } qw(postgresql-15-pgaudit postgresql-15-pgauditlogtofile);
	my %throughput = map { $_->{configuration} => $_->{ratio}{tps} }
	  grep { $_->{load} eq 'saturated' } @{ $das->{medians} };

	like($picture, qr/>[^<]*, \Q$version\E, commit \Q$measured->{commit}\E</, "the picture's versions");
	like($picture, qr/>Median and range of $das->{options}{rounds} rounds, $das->{options}{seconds} s a run, $das->{options}{clients} clients</,
		'and rounds');
	my %shown = map { $_ => 1 } $picture =~ />(\d\.\d\d)</g;
	is_deeply([ grep { !$shown{ sprintf '%.2f', $throughput{$_}{median} } } sort keys %throughput ], [], 'its figures');

	my ($words) = $readme =~ /!\[(Throughput of TPC-B[^\]]*)\]/;
	$words =~ s/\s+/ /g;
	is($words,
		sprintf('Throughput of TPC-B that is left, medians with ranges of five rounds: queued %.2f, '
			  . 'commit with commit_wal %.2f, pgaudit %.2f, log_statement %.2f, commit %.2f, '
			  . 'immediate %.2f of that without audit',
			map { $throughput{$_}{median} } qw(queued commit_wal pgaudit log_statement commit immediate)),
		q{README's words for it});
	is($das->{options}{rounds}, 5, 'which are five');

	like($bench =~ s/\s+/ /gr, qr/ \Q$version, pgaudit $packages[0], pgauditlogtofile $packages[1]\E\. /,
		'the versions in bench/README.md');
	is_deeply([ grep { $_ ne $version } $bench =~ /PostgreSQL \d+\.\d+/g ], [], 'all of them');
	foreach my $name (sort grep { $_ ne 'none' } keys %throughput)
	{
		my $cell = sprintf '%.3f (%.3f..%.3f)', @{ $throughput{$name} }{qw(median min max)};

		like($bench, qr/^\| $name \| \Q$cell\E \|/m, "bench/README.md: $name");
	}

	# The pgaudit of each major version, of which doc/differences.md tells, too
	my %pgaudit =
	  map { /^\| (\d+)\S* \| (\S+) \|/ ? ($1 => $2) : () } split /\n/, slurp_file("$root/scripts/matrix.table");
	my ($run) = slurp_file("$root/doc/differences.md") =~ /^.*The test has been run with (.*?; not on \d+)\./ms;
	$run =~ s/\s+/ /g;
	cmp_ok(scalar(keys %pgaudit), '>=', 4, 'versions of pgaudit');
	like($run, qr/(?:^|, |and )\Q$pgaudit{$_}\E[^,]*? on (?:PostgreSQL )?$_\b|\(\Q$pgaudit{$_}\E\) on $_\b/,
		"doc/differences.md: pgaudit for $_")
	  foreach sort keys %pgaudit;
}

# The checks notice what is wrong.
isnt(check_ini("pg_audit_queue.lgo = 'all'\n"), '', 'a setting that does not exist');
isnt(check_ini("pg_audit_queue.log = 'everything'\n"), '', 'a wrong value');
isnt(check_ini("ALTER SYSTEM\n"), '', 'what is no setting');
isnt(check_sql('SELECT audit_flesh();'), '', 'a statement that fails');
isnt(check_python("if:\n"), '', 'a program with an error');
isnt(check_sh("scripts/from-oracle\n"), '', 'a program that does not exist');
{
	my $files = trail_dir($node) . '/audit-*.json';

	isnt(check_sh("psql -c 'SELECT audit_flush()'\njq 'select(.exitCode == \"99999\")' $files\n"), '',
		'jq that finds nothing');
	isnt(check_sh("jq 'select(.exitCode == \"42501\")' $files\n"), '',
		'jq that does not wait for the trail');
}

# Recipes of README: who can enter the directory can read the files in it, and nobody else.
{
	my $readme = slurp_file("$root/README.md");
	my ($for_all) = $readme =~ /^`install -d .* -m (\d+) /m;
	my $checked = 0;

	foreach my $recipe (split /^(?=\*\*)/m, ($readme =~ /^## Three recipes\n(.*?)^## /ms)[0])
	{
		my ($heading) = $recipe =~ /^\*\*(\w+)/ or next;
		my ($file_mode) = $recipe =~ /log_file_mode = '(\d+)'/;
		my $mode      = $recipe =~ /log_file_mode.* -m (\d+)/ ? $1 : $for_all;
		my $directory = PostgreSQL::Test::Utils::tempdir();

		next if $recipe !~ /log_directory/;
		$checked++;
		chmod(oct($mode), $directory) or die "chmod: $!";
		$node->append_conf('postgresql.conf',
			settings_text(log_directory => $directory, log_file_mode => $file_mode // '0600'));
		$node->reload;
		$node->safe_psql('postgres', 'SELECT 1');
		ok( poll_until(
				sub {
					flush_trail($node);
					return scalar grep { /\.json$/ } slurp_dir($directory);
				}),
			"$heading: the directory is used");
		my $wanted = (stat $directory)[2] & 050 ? 0640 : 0600;
		is(join(' ', map { sprintf '%04o', (stat $_)[2] & 0777 } glob("$directory/*.json")),
			sprintf('%04o', $wanted), "$heading: who can enter the directory can read");
	}
	cmp_ok($checked, '>', 1, 'recipes with a directory');
}

done_testing();
