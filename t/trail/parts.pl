# log_record_max_size: no line is longer, and what is put together from the parts is, byte
# by byte, the line that there would be without a limit.  By pg_audit_trail, by SQL, by
# a program that knows nothing but doc/formats.md; in each layer; after crashes.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/queue_files";
use PaqTest;
use PgProto;
use QueueFile;
use SavedState;

use Digest::SHA qw(sha256_hex);
use Encode qw(decode encode_utf8);
use JSON::PP;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

need_trail_program();

# Lines as they are in the files are looked at.
delete $ENV{PAQ_TEST_LAYERS};
my $limit = 8192;
my $node  = audited_node(
	'main',
	settings => {
		flush_interval      => '10ms',
		log_parameter       => 'on',
		log_record_max_size => '8kB',
		log_settings        => 'shop.note'
	},
	conf => "autovacuum = off\n");
my $dir = trail_dir($node);

# One more server, the same but for the limit: what it writes is what the parts are of.
my $other = audited_node(
	'other',
	settings => { flush_interval => '10ms', log_parameter => 'on', log_settings => 'shop.note' },
	conf     => "autovacuum = off\n");

$_->safe_psql('postgres', q{CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
	CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0})
  foreach $node, $other;

# Fields in which records of two servers, or of two times, differ
my @own = qw(sequence series logTime startTime endTime durationUs sessionId pid remotePort
  transactionId virtualTransactionId systemIdentifier serviceName sessionStart);

# The lines of the trail that were not there at the last call
my %seen;

sub new_lines
{
	my ($server) = @_;

	flush_trail($server);
	my @lines = trail_lines($server);
	my @new = @lines[ ($seen{ $server->name } // 0) .. $#lines ];
	$seen{ $server->name } = @lines;
	return @new;
}

# What is put together by what doc/formats.md says: whole records, as hashes, and
# whether each part was as it should be.
sub assemble
{
	my (@lines) = @_;
	my @records;

	while (@lines)
	{
		my $first = decode_json(shift @lines);
		my $part = delete $first->{part};
		my ($whole, $previous) = ('', $first->{sequence});

		if (!defined $part)
		{
			push @records, $first;
			next;
		}
		return 'the first part has another number' if $part->{number} != 1 || defined $part->{text};
		foreach my $number (2 .. $part->{count})
		{
			my $next = @lines ? decode_json(shift @lines) : {};

			return "part $number is missing"
			  if ($next->{type} // '') ne 'part' || $next->{part}{number} != $number
			  || $next->{part}{sha256} ne $part->{sha256} || $next->{part}{count} != $part->{count}
			  || $next->{sequence} != ++$previous || $next->{series} != $first->{series}
			  || $next->{sessionId} ne $first->{sessionId};
			$whole .= $next->{part}{text};
		}
		$whole = encode_utf8($whole);
		return 'the length is another one' if length($whole) != $part->{length};
		return 'the SHA-256 is another one' if sha256_hex($whole) ne $part->{sha256};
		my $record = decode_json($whole);
		return 'the whole has what the first part has'
		  if grep { exists $record->{$_} } qw(type formatVersion sequence series part);
		$record->{$_} = $first->{$_} foreach qw(type formatVersion sequence series);

		# the first part is the record, but for long texts
		foreach my $field (keys %$record)
		{
			my ($short, $long) = ($first->{$field}, $record->{$field});
			next if !defined $long || (defined $short && !ref $short && $short eq $long);
			next if !defined $short || ref $long;
			return "field $field is no beginning of the whole: " . substr($short, 0, 20) . ' ... ' . substr($short, -10)
			  if $field ne 'textEncoding' && index($long, $short) != 0;
		}
		push @records, $record;
	}
	return \@records;
}

# Without what two servers do not have in common, as text
sub common
{
	my (@records) = @_;

	delete @$_{@own} foreach @records;
	return map { JSON::PP->new->canonical->encode($_) } @records;
}

my @statements = (
	[ 'nothing',       'postgres', 'SELECT 1' ],
	[ 'fits',          'postgres', q{SELECT 'f} . 'x' x 5000 . q{'} ],
	[ 'ASCII',         'postgres', q{SELECT 'a} . 'x' x 20_000 . q{'} ],
	[ 'quotes',        'postgres', q{SELECT 'q} . '"' x 9000 . q{'} ],
	[ 'backslashes',   'postgres', q{SELECT 'b} . '\\' x 9000 . q{'} ],
	[ 'control',       'postgres', q{SELECT 'c} . "\x01" x 4000 . q{'} ],
	[ 'newlines',      'postgres', q{SELECT 'n} . "\n" x 9000 . q{'} ],
	[ 'two bytes',     'postgres', q{SELECT 'd} . "\xc3\xa4" x 7001 . q{'} ],
	[ 'three bytes',   'postgres', q{SELECT 'e} . "x\xe2\x82\xac" x 5003 . q{'} ],
	[ 'four bytes',    'postgres', q{SELECT '4} . "\xf0\x9f\x90\x98" x 5005 . q{'} ],
	[ 'LATIN1',        'latin1',   q{SELECT 'l} . "\xe4\xff" x 5000 . q{'} ],
	[ 'no encoding',   'ascii',    q{SELECT 'o} . "\xc3\xa4\xff" x 4000 . q{'} ],
	[ 'an error',      'postgres', q{SELECT 'x} . 'y' x 9000 . q{'::int} ],
	[ 'DDL', 'postgres', q{CREATE TABLE t (a int); COMMENT ON TABLE t IS '} . 'z' x 30_000 . q{'} ],
	[ 'a megabyte', 'postgres', q{SELECT 'm} . '0123456789"\\' x 90_000 . q{'} ],
	[ 'a setting', 'postgres', q{SET shop.note = '} . 'n' x 20_000 . q{'; SELECT 'set'} ]);

foreach my $server ($node, $other)
{
	new_lines($server);
	foreach my $statement (@statements)
	{
		my $client = PgProto->connect($server, database => $statement->[1]);

		$client->query($statement->[2]);
		$client->quit;
	}

	# parameters
	my $client = PgProto->connect($server);
	foreach my $value ('p' x 30_000, '"' x 5000, undef, "\xc3\xa4" x 9000)
	{
		$client->parse('', 'SELECT $1::text, $2::text')->bind('', '', $value, 'z' x 3000)
		  ->execute('')->sync;
	}
	$client->quit;
}
my @lines  = new_lines($node);
my @whole  = new_lines($other);
my ($longest) = sort { $b <=> $a } map { length } @lines;
cmp_ok($longest, '<=', $limit, 'no line is longer than the limit');
cmp_ok($longest, '>', $limit - 300, 'and some are nearly as long');
cmp_ok(scalar(grep { length > $limit } @whole), '>', 15, 'without the limit many are');
my $records = assemble(@lines);
ok(ref $records, 'all parts are as documented') or diag($records);
is_deeply(
	[ common(@$records) ],
	[ common(map { decode_json($_) } @whole) ],
	'put together they are the records that there are without a limit');
is_deeply(
	[ map { decode_json($_)->{sequence} } @lines ],
	[ decode_json($lines[0])->{sequence} .. decode_json($lines[0])->{sequence} + $#lines ],
	'each part has a sequence of its own');
is(
	unaudited_sql($node,
		'SELECT published = drained AND drained = flushed FROM pg_stat_audit_queue'),
	't', 'each record counts once');
my ($begin) = map { /"commandText":"(SELECT 'ax+)"/ } @lines;
cmp_ok(length $begin, '>', 4000, 'the first part shows much of the text');

# ---------------------------------------------------------------------------
# pg_audit_trail
# ---------------------------------------------------------------------------

sub cat
{
	my (@arguments) = @_;

	return (trail_program('cat', @arguments, $dir))[1];
}

my ($status, $stdout, $stderr) = trail_program('cat', $dir);
is($status, 0, 'cat: exit status');
is($stderr, '', 'cat: no message');
my @joined = split /^/, $stdout;
splice @joined, 0, @joined - @$records;
my $first = decode_json($lines[0])->{sequence};
my $last  = decode_json($lines[-1])->{sequence};
is_deeply([ common(map { decode_json($_) } @joined) ],
	[ common(@$records) ], 'cat: puts them together');
is_deeply(
	[ map { decode_json($_)->{sequence} } @joined ],
	[ map { $_->{type} eq 'part' ? () : $_->{sequence} } map { decode_json($_) } @lines ],
	'cat: with the sequence of the first part');
my ($one, $two) = map { grep { /SELECT 'ax/ } @$_ } \@joined, \@whole;
my ($names, $others) = map { join ' ', /"(\w+)":/g } $one, $two;
is($names, $others, 'cat: and the fields in their order');
is(cat('--text=yyyyyyy', '--count'), "1\n", 'cat: a filter is for the whole');
is(cat('--text=' . 'z' x 29_000, '--count'), "1\n", 'cat: also one that no part fits');
unlike($stdout, qr/"type":"part"/, 'cat: shows no parts');
foreach my $format (qw(csvlog pgaudit ecs ocsf))
{
	my $text = cat("--format=$format", q{--text=SELECT 'axx});

	is(scalar(grep { length > 20_000 } $text =~ /(SELECT 'ax+)/g), 1, "cat: $format");
}
like((trail_program('report', $dir))[1],
	qr/no sequence is missing/, 'report: no sequence is missing');

# On standard input: what is missing or was changed

my ($begins) = grep { $lines[$_] =~ /SELECT 'ax/ } 0 .. $#lines;
my @group = map { "$_\n" }
  @lines[ $begins .. $begins + decode_json($lines[$begins])->{part}{count} - 1 ];
my ($next) = map { "$_\n" } grep { /"commandText":"SELECT 1"/ } @lines;

sub cat_input
{
	my ($input) = @_;
	my ($out, $err);

	IPC::Run::run([ 'pg_audit_trail', 'cat', '-' ], '<', \$input, '>', \$out, '2>', \$err);
	return ($? >> 8, $out, $err);
}

# The parts, of which that one is changed
sub with_changed
{
	my ($index, $change) = @_;
	my @changed = @group;

	$change->() foreach $changed[$index];
	die 'nothing is changed' if $changed[$index] eq $group[$index];
	return @changed;
}

cmp_ok(scalar @group, '>', 3, 'a record in some parts');
foreach my $broken (
	[ 'the last one is missing', $#group, @group[ 0 .. $#group - 1 ] ],
	[ 'one is missing', 2, @group[ 0, 1, 3 .. $#group ] ],
	[ 'the first one is missing', undef, @group[ 1 .. $#group ] ],
	[ 'they change places', 1, @group[ 0, 2, 1, 3 .. $#group ] ],
	[ 'one comes twice', 2, @group[ 0, 1, 1 .. $#group ] ],
	[ 'one was changed', $#group, with_changed(2, sub { s/xxx"\}\}$/xyx"}}/ }) ],
	[ 'one is of another record', 2, with_changed(2, sub { s/"sha256":"./"sha256":"_/ }) ],
	[ 'one is of another series', 2, with_changed(2, sub { s/"series":/"series":1/ }) ],
	[ 'the length is too large', undef, map { s/"length":\d+/"length":999999999999/r } @group ],
	[ 'the length is too small', 1, map { s/"length":\d+/"length":20/r } @group[ 0 .. 2 ] ],
	[
		'there should be more', scalar @group,
		map { s/"count":\d+/"count":9223372036854775807/r } @group
	])
{
	my ($name, $there, @input) = @$broken;
	my ($code, $out, $err) = cat_input(join '', @input, $next);

	is($out, join('', @input, $next), "$name: the lines are shown as they are");
	if (defined $there)
	{
		like($err, qr/of the record with sequence \d+, $there of \d+ parts are there/,
			"$name: with a message");
	}
	else
	{
		is($err, '', "$name: without a message");
	}
	is($code, 0, "$name: exit status");
}
my ($code, $out, $err) = cat_input(join '', @group, $next);
is($out, $one . $next, 'all are there, and the next record');

# A program that follows the file, and one that gets it

my $follow  = start_trail_program('follow', '--last=1', $dir);
my $shipped = PostgreSQL::Test::Utils::tempdir();
append_to_file("$shipped/receive", <<'PERL');
open my $file, '>', "$ARGV[0]/lines" or die;
$| = 1;
while (my $line = <STDIN>)
{
	print $file $line;
	print "$1\n" if $line =~ /"sequence":(\d+)/;
}
PERL
my $program = "$^X '$shipped/receive' '$shipped'";
unaudited_sql($node, "SELECT audit_consumer_create('parts')");
flush_trail($node);
ok(poll_until(sub { $follow->{run}->pump_nb; $follow->{stdout} ne '' }), 'follow');
$node->safe_psql('postgres', q{SELECT 'followed} . 'f' x 30_000 . q{'});
flush_trail($node);
ok( poll_until(
		sub {
			$follow->{run}->pump_nb;
			return $follow->{stdout} =~ /SELECT 'followedf{30000}'/;
		}),
	'follow: puts them together');
$follow->{run}->signal('TERM');
finish_trail_program($follow);
is((trail_program('ship', '--consumer=parts', '--once', "--command=$program", $dir))[0],
	0, 'ship');
my @shipped = split /\n/, slurp_file("$shipped/lines");
is(scalar(grep { length > $limit } @shipped), 0, 'ship: no line is longer than the limit');
my $received = assemble(@shipped);
ok(ref $received, 'ship: a receiver can put them together') or diag($received);
is(scalar(grep { ($_->{commandText} // '') =~ /followedf{30000}/ } @$received),
	1, 'ship: and has the whole');

# ---------------------------------------------------------------------------
# SQL
# ---------------------------------------------------------------------------

my ($others_first, $others_last) = map { decode_json($_)->{sequence} } @whole[ 0, -1 ];
my $sums = q{SELECT count(*), sum(octet_length(command_text)), sum(octet_length(parameters::text)),
	sum(octet_length(settings::text)) FROM audit_trail
	WHERE type = 'record' AND NOT coalesce(cut, false) AND sequence BETWEEN};
is(
	unaudited_sql($node, "$sums $first AND $last"),
	unaudited_sql($other, "$sums $others_first AND $others_last"),
	'SQL: whole records');
is(unaudited_sql($node, "SELECT count(*) FROM audit_trail WHERE type = 'part'"),
	'0', 'SQL: no parts');
is(
	unaudited_sql($node,
		q{SELECT count(*) FROM audit_trail WHERE command_text = 'SELECT ''a' || repeat('x', 20000) || ''''}),
	'1',
	'SQL: a condition is for the whole');

# ---------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------

ok(reload_settings($node, log_rotation_size => '64kB'), 'small files');
foreach my $number (1 .. 4)
{
	$node->safe_psql('postgres', "SELECT 'file $number " . 'x' x 100_000 . q{'});
	flush_trail($node);
}
my @files = trail_files($node);
cmp_ok(scalar @files, '>=', 4, 'several files');
is_deeply([ grep { !ref assemble(split /\n/, slurp_file($_)) } @files ],
	[], 'the parts of a record are in one');

ok( reload_settings(
		$node,
		log_rotation_size          => '10MB',
		log_compression            => 'lz4',
		log_encryption             => 'aes-128-gcm',
		log_encryption_key_command => encryption_key('128')),
	'files with layers');
unaudited_sql($node, 'SELECT audit_rotate()');
$node->safe_psql('postgres', q{SELECT 'layers } . '0123456789' x 5000 . q{'});
flush_trail($node);
like((trail_program('cat', '-K', encryption_key_file(), $dir))[1],
	qr/SELECT 'layers (?:0123456789){5000}'/, 'compressed and encrypted');
is(
	unaudited_sql($node,
		q{SELECT octet_length(command_text) FROM audit_trail WHERE command_text LIKE 'SELECT ''layers %'}),
	length(q{SELECT 'layers '}) + 50_000,
	'SQL reads it');
ok(reload_settings($node, log_compression => 'none', log_encryption => 'none'), 'plain files');

# ---------------------------------------------------------------------------
# After a crash of the operating system the trail may have all of a record that the
# queue has, too; or some of its parts, or only the first.
# ---------------------------------------------------------------------------

my $layout = QueueFile::layout();
my $queue  = queue_dir($node) . '/queue';

# Crash; the checkpoint is an earlier one, and the trail has lost what is behind the last
# line that matches, if that is given.  Returns what cat says of the current file.
sub lose
{
	my ($checkpoints, $kept) = @_;

	my $file = stats($node)->{current_file};
	$node->stop('immediate');
	$file = $node->data_dir . "/$file" if $file !~ m{^/};
	my $live = QueueFile->parse(SavedState::read_file($queue))->{live};
	open my $fh, '+<:raw', $queue or die "open: $!";
	seek($fh, $layout->{page}, 0);
	print $fh $checkpoints;
	seek($fh, $live + $layout->{'live.boot_id'}, 0);
	print $fh 'anotherb';
	close $fh;
	if (defined $kept)
	{
		slurp_file($file) =~ /.*$kept[^\n]*\n/s or die 'no such line';
		truncate($file, $+[0]) or die "truncate: $!";
	}
	$node->start;
	flush_trail($node);
	return trail_program('cat', $file);
}

foreach my $case (
	[ 'nothing',        'z' x 30_000, undef,                           0 ],
	[ 'the last part',  'z' x 30_000, qr/"part":\{"number":4,/,        1 ],
	[ 'most parts',     'z' x 60_000, qr/"part":\{"number":2,/,        1 ],
	[ 'all but one',    'z' x 60_000, qr/"commandText":"SELECT 'lost/, 1 ],
	[ 'the record',     'z' x 30_000, qr/'before'/,                    0 ])
{
	my ($name, $text, $kept, $remain) = @$case;

	unaudited_sql($node, 'SELECT audit_rotate()');
	$node->safe_psql('postgres', q{SELECT 'one } . 'w' x 30_000 . q{'; SELECT 'before'});
	flush_trail($node);
	my $checkpoints =
	  substr(SavedState::read_file($queue), $layout->{page}, 2 * $layout->{page});
	$node->safe_psql('postgres', "SELECT 'lost $text'");
	flush_trail($node);
	my ($code, $out, $err) = lose($checkpoints, $kept);
	is(scalar(() = $out =~ /"SELECT 'one w{30000}'/g), 1, "lost is $name: what was durable is there");
	is(scalar(() = $out =~ /"SELECT 'lost \Q$text\E'"/g), 1, "lost is $name: the record is there, once");
	is(scalar(() = $err =~ /parts are there/g), $remain, "lost is $name: parts that remain are told of");
	is($code, 0, "lost is $name: exit status");
}

# ---------------------------------------------------------------------------
# The table
# ---------------------------------------------------------------------------

$node->append_conf('postgresql.conf', settings_text(sink => 'table', database => 'postgres'));
$node->reload;
ok(poll_until(sub { stats($node)->{sink} eq 'table' }), 'sink = table');
$node->safe_psql('postgres', q{SELECT 'table } . 't' x 30_000 . q{'});
ok(table_loaded($node), 'the table is filled');
is(
	unaudited_sql($node,
		q{SELECT count(*) FROM audit_records WHERE command_text = 'SELECT ''table ' || repeat('t', 30000) || ''''}),
	'1',
	'it has the record whole');
is(unaudited_sql($node, "SELECT count(*) FROM audit_records WHERE type = 'part'"),
	'0', 'and no parts');
$_->stop foreach $node, $other;

done_testing();
