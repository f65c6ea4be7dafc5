# Trail files of blocks: the layout is what doc/trail_format.md says, records come back as they
# were, and nothing that is in a file makes a reader do anything but refuse it.
#
# lib/blocks/blocks.c makes such files of lines of format json, and lines of the files.  The files
# golden* are in the tree, for readers to come.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqInit qw(crc32c);
use PaqTest;

use Cwd qw(abs_path);
use Digest::SHA qw(sha256);
use File::Copy qw(copy);
use IPC::Run;
use Test::More;

use PostgreSQL::Test::Utils;

need_trail_program();
delete $ENV{PAQ_TEST_LAYERS};

my $base    = PostgreSQL::Test::Utils::tempdir();
my $folder  = "$FindBin::RealBin/../lib/blocks";
my $python  = "$FindBin::RealBin/../lib/formats/read_blocks.py";
my $seed    = $ENV{PAQ_SEED} // int(rand(2**31));
my $rounds  = full_tests() ? 50_000 : 1_000;
my $built;

note "seed: $seed (PAQ_SEED)";
foreach my $sanitizers ('-fsanitize=address,undefined -fno-sanitize-recover=all', '')
{
	# with assertions, which the programs of an installed server have not
	my $ok = IPC::Run::run(
		[
			'make', '-C', $base, '-f', "$folder/Makefile", 'PG_CONFIG=pg_config',
			'PAQ_SRC=' . abs_path("$FindBin::RealBin/../../src"), "PAQ_CFLAGS=$sanitizers -DUSE_ASSERT_CHECKING", 'blocks'
		],
		'>', \$built, '2>&1');

	last if $ok;
	die $built if $sanitizers eq '';
	diag 'NOT TESTED WITH SANITIZERS: the compiler has none';
}
local $ENV{ASAN_OPTIONS} = 'detect_leaks=0';

# Output of a program, with what it is given; undef if it fails, with a note of what it said.
sub output_of
{
	my ($input, @command) = @_;
	my ($output, $errors);

	my $ok = IPC::Run::run(\@command, '<', \$input, '>', \$output, '2>', \$errors);
	note("@command: $errors") if !$ok;
	return $ok ? $output : undef;
}

# What pg_audit_trail prints of a file; undef if anything is wrong with it.
sub lines_of
{
	my ($file, @keys) = @_;
	my ($status, $output, $errors) =
	  trail_program('cat', (map { "--decryption-keys=$_" } @keys), $file);

	note($errors) if $status != 0;
	return $status == 0 ? $output : undef;
}

# Damage a file in that many ways, and look at what is read of it; returns what it says.
sub mutate
{
	return output_of('', "$base/blocks", 'mutate', @_) // '';
}

# Make a file of lines, with so many records in a block and these layers.  Returns its path,
# undef if the build lacks one of the layers.
sub made
{
	my ($name, $lines, $records, @layers) = @_;
	my $file = "$base/$name";

	return defined output_of($lines, "$base/blocks", 'write', $file, $records, @layers) ? $file : undef;
}

# ---------------------------------------------------------------------------
# Files that are in the tree
# ---------------------------------------------------------------------------

my $golden = slurp_file("$folder/golden.json");
my $keys   = "$base/keys";

copy("$folder/golden.keys", $keys) or die "copy: $!";
chmod 0600, $keys;
my @layers = grep { defined made('try', $golden, 9, @$_) } [ 'none', 'none' ], [ 'lz4', 'none' ],
  [ 'zstd', 'none' ], [ 'none', '256', $keys ], [ 'zstd', '256', $keys ];
note 'layers: ' . join(', ', map { "$_->[0] $_->[1]" } @layers);

is(lines_of("$folder/golden.trail"), $golden, 'a file of this layout is read');
ok(slurp_file(made('golden.trail', $golden, 9, 'none', 'none')) eq slurp_file("$folder/golden.trail"),
	'and written, byte by byte');
is(output_of('', python(), '-B', $python, "$folder/golden.trail"),
	$golden, 'and read by a program that knows the documentation only');

# Records of a series, then some of another one, with other numbers
{
	my $number = 0;
	my $series = $golden =~ s/"sequence":(\d+),"series":\d+/
	  ++$number < 20 ? $& : '"sequence":' . ($1 + 1000) . ',"series":7'/ger;

	is(lines_of(made('series.trail', $series, 9, 'none', 'none')), $series, 'two series');
}

SKIP:
{
	skip 'the build has no zstd or no OpenSSL', 1 if !grep { "@$_[0, 1]" eq 'zstd 256' } @layers;
	is(lines_of("$folder/golden_zstd_256.trail", $keys), $golden, 'a file with layers is read');
}

# ---------------------------------------------------------------------------
# A server's records
# ---------------------------------------------------------------------------

my $node = audited_node('main',
	settings => { log => 'all', log_parameter => 'on', log_settings => 'search_path, x.y', log_parameter_max_size => 100 },
	conf => "compute_query_id = on\nlog_timezone = 'Asia/Kolkata'\n");
my $long = 'x' x 100;

$node->safe_psql('postgres', 'CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0');
$node->safe_psql('latin', "SET client_encoding = 'LATIN1'; SELECT '\xe4\xff\\'");
$node->psql('postgres', $_) foreach
  "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1); INSERT INTO t VALUES (1)", 'SELECT 1/0',
  "SELECT '\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\x01\t\"'", 'SELECT nothing', 'BEGIN; SELECT 1; SELECT 2; COMMIT',
  "PREPARE p AS SELECT \$1::text, \$2::text, \$3::text; EXECUTE p('', NULL, '$long$long')",
  'DO $$ BEGIN FOR i IN 1 .. 20 LOOP PERFORM a FROM t; END LOOP; END $$', "SET ROLE pg_monitor; SELECT 1";
$node->pgbench('-n -t 2000 -c 2 -M prepared', 0, [], [], 'pgbench',
	{ 'one' => "SELECT 1 WHERE 1 = 1\n" });

# texts that no block has room for, of two roles in a session, and many that fill one
my $sql = "$base/long.sql";
append_to_file($sql, "CREATE ROLE role_a; CREATE ROLE role_b; SET pg_audit_queue.log = 'read';\n");
append_to_file($sql, "SET ROLE role_$_; SELECT length('" . $_ x 1_500_000 . "'); RESET ROLE;\n") foreach 'a', 'b';
append_to_file($sql, "RESET pg_audit_queue.log;\n");
append_to_file($sql, "SELECT length('" . "\\\"\xc3\xa4" x 400_000 . "');\n");
append_to_file($sql, "SELECT $_, '" . 'y' x 30_000 . "';\n") foreach 1 .. 60;
$node->command_ok([ 'psql', '-Xqo', '/dev/null', '-f', $sql, '-d', $node->connstr('postgres') ], 'long texts');
flush_trail($node);
my $lines = join '', map { slurp_file($_) } trail_files($node);

my $nlines = () = $lines =~ /\n/g;
cmp_ok($nlines, '>', 4_000, 'there are many records');
foreach my $records (1, 7, 100_000)
{
	my $file = made('server.trail', $lines, $records, 'none', 'none');

	ok(lines_of($file) eq $lines, "$records records in a block: they come back as they were");
}
foreach my $layers (@layers)
{
	my $file = made('layers.trail', $lines, 1_000, @$layers);

	ok(lines_of($file, @$layers[ 2 .. $#$layers ]) eq $lines, "the same with @$layers[0, 1]");
}
my $few = join '', grep { length() < 10_000 } $lines =~ /^(.*\n)/mg;
my $python_reads = made('python.trail', $few, 1_000, 'none', 'none');
ok(output_of('', python(), '-B', $python, $python_reads) eq $few, 'and as the other program reads them');

# From each block on, and up to each, with records that go on in several of them
like(mutate(made('places.trail', $lines, 500, 'none', 'none'), 0, $seed), qr/^places [1-9]\d, whole 0, /,
	'reading begins, and ends, at any place between blocks');

# The view reads them, too, beside files of lines.
my ($series) = $lines =~ /"series":(\d+)/;
my %rows;
foreach my $kind (qw(json trail))
{
	my $directory = "$base/view_$kind";

	mkdir $directory or die "mkdir: $!";
	put_file("$directory/audit-0.json", $lines) if $kind eq 'json';
	made("view_trail/audit-0.trail", $lines, 1_000, @{ $layers[-1] }) if $kind eq 'trail';
	$node->append_conf('postgresql.conf',
		settings_text(log_directory => $directory, log_encryption_key_command => "cat '$keys'"));
	$node->restart;
	$rows{$kind} = unaudited_sql($node,
		"SELECT count(*), md5(string_agg(t::text, '' ORDER BY sequence)) FROM audit_trail t WHERE series = $series");
}
is($rows{trail}, $rows{json}, 'the view has the same rows of them');
is($rows{trail} =~ s/\|.*//r, $nlines, 'which are all');
$node->stop;

# ---------------------------------------------------------------------------
# A record that is longer than a reader keeps
# ---------------------------------------------------------------------------

SKIP:
{
	skip 'the server has sanitizers, which a program of its own would need', 1 if sanitizers() ne '';
	my $small = other_trail_program(qr/PIECES_MAX/, '-DPIECES_MAX=100000');
	my $cut = output_of('', $small, 'cat', made('long.trail', $lines, 1_000, 'none', 'none'));
	my ($record) = $cut =~ /^(.*SELECT length\(.*\n)/m;

	is(scalar(() = $cut =~ /\n/g), $nlines, 'a small reader has all records');
	cmp_ok(length $record, '<', 4 * 100_000, 'of a long one, the beginning');
	like($record, qr/,"cut":true\}$/, 'which is marked');
}

# Damage where a long record goes on: it is not passed over.
{
	my $data = slurp_file(made('long.trail', $lines, 1_000, 'none', 'none'));
	my $at   = unpack('v', substr($data, 10, 2));

	# the first block that has pieces only
	$at += 136 + unpack('V', substr($data, $at + 8, 4)) while unpack('V', substr($data, $at + 32, 4)) > 0;
	substr($data, $at + 1000, 1) = chr(ord(substr($data, $at + 1000, 1)) ^ 1);
	my ($status, $output, $errors) = trail_program('cat', put_file("$base/changed.trail", $data));

	is($status, 1, 'damage within a long record');
	like($errors, qr/changed\.trail": damaged from byte \d+ on: a block has a wrong checksum/, 'is said');
	like($output, qr/SELECT length\(.*,"cut":true\}\n\z/, 'and the record that it was is the last one');
}

# ---------------------------------------------------------------------------
# Bytes that a record takes
# ---------------------------------------------------------------------------

my $selects = join '', grep { /"commandText":"SELECT 1 WHERE/ } $few =~ /^(.*\n)/mg;
my $nselects = () = $selects =~ /\n/g;
is($nselects, 4000, "pgbench's records");
cmp_ok((-s made('selects.trail', $selects, 1_000, 'none', 'none')) / $nselects,
	'<', 25, 'bytes a record, with a thousand in a block');

# ---------------------------------------------------------------------------
# What a later version may write
# ---------------------------------------------------------------------------

sub varint
{
	my ($value) = @_;
	my $bytes = '';

	for (; $value >= 0x80; $value >>= 7) { $bytes .= chr($value & 0x7F | 0x80) }
	return $bytes . chr($value);
}

# The file in the tree, with each block's items changed by the sub, which gets kind and content and
# returns what stands in their place.
sub with_items
{
	my ($change) = @_;
	my $data   = slurp_file("$folder/golden.trail");
	my $before = substr($data, 0, unpack('v', substr($data, 10, 2)), '');
	my $result = $before;

	while ($data ne '')
	{
		my $head = substr($data, 0, 136, '');
		my $body = substr($data, 0, unpack('V', substr($head, 8, 4)), '');
		my $changed = '';

		while ($body ne '')
		{
			my $kind = ord substr($body, 0, 1, '');
			my ($length, $shift, $byte) = (0, 0, 0x80);

			for (; $byte >= 0x80; $shift += 7)
			{
				$byte = ord substr($body, 0, 1, '');
				$length |= ($byte & 0x7F) << $shift;
			}
			$changed .= join '', map { chr($_->[0]) . varint(length $_->[1]) . $_->[1] }
			  $change->($kind, substr($body, 0, $length, ''));
		}
		substr($head, 8, 8) = pack 'VV', (length $changed) x 2;
		substr($head, 96, 32) = sha256($before);
		substr($head, 128, 4) = pack 'V', crc32c($changed);
		substr($head, 132, 4) = pack 'V', crc32c(substr($head, 0, 132));
		$before = $head . $changed;
		$result .= $before;
	}
	return put_file("$base/changed.trail", $result);
}

is(lines_of(with_items(sub { [@_] })), $golden, 'a file that is taken apart and put together');
is(lines_of(with_items(sub { [ 77, 'new' ], [@_], [ 200, '' ] })), $golden, 'unknown items are left out');
is(lines_of(with_items(sub { [ $_[0], $_[1] . "\x01\xff" ] })), $golden,
	'so is what known ones have behind what is known');
{
	# a time zone that has another offset from a time on
	my $zone = sub {
		my ($kind, $content) = @_;
		my ($names) = $content =~ /^(.*main)/s;
		my $begin = 2 * 1_795_973_580;    # 2026-11-29 17:33 UTC

		return [ $kind, $kind != 1 ? $content :
			  $names . varint(2) . varint(0) . varint(0) . "\x04UTC" . varint($begin) . varint(7200) . "\x04CET" ];
	};
	my $lines = lines_of(with_items($zone));

	is($lines, output_of('', python(), '-B', $python, with_items($zone)), 'two offsets, as the other program has them');
	like($lines, qr/"logTime":"2026-11-29T17:32:[\d.]+\+00:00"/, 'one before its time');
	like($lines, qr/"logTime":"2026-11-29T18:33:[\d.]+\+01:00","startTime":"2026-11-29T18:33:/, 'and one from then on');

	# a server item that says something else, and a name that is none of a time zone
	my $n = 0;
	my $other = "\0\0\0" . varint(1) . varint(0) . varint(0) . varint(5001) . 'A' x 5000;

	is(lines_of(with_items(sub { $_[0] == 4 && $n++ == 3 ? ([@_], [ 1, $other ]) : [@_] }))
		  =~ s/"server(?:Host|Version)":(?:"[^"]*"|null)|"serviceName":(?:"[^"]*"|null)//gr,
		$golden =~ s/"server(?:Host|Version)":(?:"[^"]*"|null)|"serviceName":(?:"[^"]*"|null)//gr,
		'a server can become another one');
}
is(output_of('', python(), '-B', $python, with_items(sub { [ 77, 'new' ], [ $_[0], $_[1] . "\x01\xff" ] })),
	$golden, 'and by the other program');

# ---------------------------------------------------------------------------
# What nobody has written
# ---------------------------------------------------------------------------

# A record that is not all there ends the block, even if it is the last one.
{
	my @records;

	with_items(sub { push @records, $_[0] == 4; [@_] });
	my ($last) = grep { $records[$_] } reverse 0 .. $#records;
	my $at = 0;

	is(lines_of(with_items(sub { [ $_[0], $at++ == $last ? substr($_[1], 0, 3) : $_[1] ] })),
		undef, 'a record that is cut');
	is(lines_of(put_file("$base/empty.trail")), '', 'a file that has not been begun is empty');
}

# Chains: blocks that are left out, exchanged or repeated
{
	my $data = slurp_file("$folder/golden.trail");
	my $other = slurp_file(made('other.trail', $golden, 9, 'none', 'none'));
	my @parts = substr($data, 0, unpack('v', substr($data, 10, 2)), '');

	push @parts, substr($data, 0, 136 + unpack('V', substr($data, 8, 4)), '') while $data ne '';
	my ($file, $first, $second, $third, @rest) = @parts;
	my %changed = (
		'one left out' => [ $file, $first, $third, @rest ],
		'two exchanged' => [ $file, $second, $first, $third, @rest ],
		'one repeated' => [ $file, $first, $first, $second, $third, @rest ],
		'in another file' => [ substr($other, 0, unpack('v', substr($other, 10, 2))), $first ]);

	foreach my $what (sort keys %changed)
	{
		my $bytes = join '', @{ $changed{$what} };

		is(lines_of(put_file("$base/changed.trail", $bytes)), undef, "blocks: $what");
	}
}

# Items within blocks whose checksums and hashes are right: any bytes, at any place
srand $seed;
my ($refused, $read) = (0, 0);
foreach (1 .. $rounds / 10)
{
	my $at = int rand 60;
	my $bytes = join '', map { chr int rand 256 } 1 .. 1 + rand 4;
	my $output = lines_of(with_items(
			sub { my ($kind, $content) = @_;
				substr($content, rand(1 + length $content), int rand 3) = $bytes if $at-- == 0;
				return [ $kind, $content ] }));

	defined $output ? $read++ : $refused++;
}
cmp_ok($refused, '>', $rounds / 100, "items that are impossible are refused ($refused, and $read are not)");

foreach my $layers (@layers)
{
	my @keys = @$layers[ 2 .. $#$layers ];
	my $file = made('mutated.trail', $golden, 9, @$layers);

	like(mutate($file, $rounds, $seed, @keys), qr/^places 4, whole \d+, cut [1-9]\d*, refused [1-9]/,
		"@$layers[0, 1]: of $rounds changed files, only whole records of the beginning are read");
}

done_testing();
