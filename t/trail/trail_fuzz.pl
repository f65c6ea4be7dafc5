# Changed copies of trail files and seals are read by a program with sanitizers: what
# is not in order is refused, and nothing else happens.
#
# layers/fuzz_reader.c changes and reads them.  PAQ_TEST_SEED repeats a run,
# PAQ_TEST_ROUNDS says how many copies.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Cwd qw(abs_path);
use IPC::Run;
use Test::More;

use PostgreSQL::Test::Utils;

need_trail_program();
delete $ENV{PAQ_TEST_LAYERS};

my $base   = PostgreSQL::Test::Utils::tempdir();
my $seed   = $ENV{PAQ_TEST_SEED}   // int(rand(2**31));
my $rounds = $ENV{PAQ_TEST_ROUNDS} // (full_tests() ? 100_000 : 4_000);
my $built;

my $can = IPC::Run::run(
	[
		'make', '-C', $base, '-f', "$FindBin::RealBin/../lib/layers/Makefile", 'PG_CONFIG=pg_config',
		'PAQ_SRC=' . abs_path("$FindBin::RealBin/../../src"),
		'PAQ_CFLAGS=-fsanitize=address,undefined -fno-sanitize-recover=all', 'fuzz_reader'
	],
	'>', \$built, '2>&1');
if (!$can && $built =~ /cannot find .*(?:asan|ubsan)/)
{
	diag 'NOT TESTED: the compiler has no sanitizers';
	plan skip_all => 'no sanitizers';
}
ok($can, 'a program with sanitizers') or BAIL_OUT($built);

# A small file with each combination of layers, and seals

my $node = audited_node('main', start => 0, settings => { seal => 'on', json_nulls => 'off' });
my %key  = map { ("aes-$_-gcm" => encryption_key($_)) } 128, 256;

(trail_program('keygen', '-D', $node->data_dir))[0] == 0 or die 'keygen';
foreach my $compression (qw(none lz4 zstd))
{
	foreach my $encryption ('none', sort keys %key)
	{
		$node->append_conf(
			'postgresql.conf',
			settings_text(
				log_compression => $compression,
				log_encryption  => $encryption,
				log_encryption_key_command => $key{$encryption} // ''));
		$node->start;
		$node->safe_psql('postgres', "SELECT '$_ \\ \" \xc3\xa9\t'") foreach 1 .. 3;
		$node->stop;
	}
}
my @files = grep { -s } trail_files($node), glob(trail_dir($node) . '/*.seals.*');
is(scalar(@files), 10, 'files of all kinds');

local $ENV{ASAN_OPTIONS} = 'detect_leaks=0';
my ($stdout, $stderr);
my $ok = IPC::Run::run(
	[
		"$base/fuzz_reader", $seed, $rounds, encryption_key_file(),
		@files
	],
	'>', \$stdout, '2>', \$stderr);

note($stdout);
ok($ok, "$rounds changed copies (PAQ_TEST_SEED=$seed)") or diag($stderr);

# They have been read, and most of them were noticed.
my %count = $stdout =~ /(end|cut|failed|lines|seals|same) (\d+)/g;
my ($good_lines, $good_seals) = $stdout =~ /good (\d+)/g;

cmp_ok($count{failed}, '>', $rounds / 4, 'most files with layers are refused');
cmp_ok($count{end} + $count{cut}, '>', $rounds / 50, 'some are read to their ends');
cmp_ok($good_lines, '>', $rounds / 10, 'lines are read');
cmp_ok($count{lines} - $good_lines, '>', $rounds / 100, 'and some refused');
cmp_ok($good_seals, '>', $rounds / 100, 'seals are read');
cmp_ok($count{seals} - $good_seals, '>', $rounds / 100, 'and some refused');
cmp_ok($count{same}, '<', $rounds / 20, 'nearly all copies are changed');

done_testing();
