# Records that are longer than a reader can hold: each reader shows each of them, with all of its
# fields, its texts cut and marked.  No character is cut in two, what comes behind such a
# record is not touched, and memory is bounded.
#
# Most is tested with a program that holds very little; a line of more than a gigabyte, with
# the one that users have.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use JSON::XS;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_trail_program();
delete $ENV{PAQ_TEST_LAYERS};
$ENV{TZ} = 'UTC';

my $tmp   = PostgreSQL::Test::Utils::tempdir();
my $small = other_trail_program(qr/RECORD_MAX/, '-DRECORD_MAX=4096');
my $text_max = 64 * 1024;

# Run that program; returns status, output, messages.
sub small
{
	my (@arguments) = @_;
	my ($stdout, $stderr);

	IPC::Run::run([ $small, @arguments ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	return ($? >> 8, $stdout, $stderr);
}

sub file
{
	my ($name, @content) = @_;

	unlink("$tmp/$name");
	append_to_file("$tmp/$name", join('', @content));
	return "$tmp/$name";
}

# A line of the trail, with this in place of the statement, as JSON
sub line
{
	my ($sequence, $text, $rest) = @_;

	$rest //= '';
	return qq({"type":"record","formatVersion":1,"sequence":$sequence,"series":5,)
	  . qq("logTime":"2026-11-20T10:00:00.000000+00:00","class":"READ","command":"SELECT",)
	  . qq("commandText":"$text","exitCode":"00000","dbUserName":"alice"$rest}\n);
}

# ---------------------------------------------------------------------------
# Format json: where texts are cut
# ---------------------------------------------------------------------------

my @units = ('y', "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x90\x98", '\\u0001', '\\\\', '\\"', '\\n',
	'\\ud83d\\ude00', '\\\\\\"', '\\u00e4', '{[,]}\\"');
my @lines;

foreach my $unit (@units)
{
	push @lines, line(@lines + 1, 'x' x ($text_max - $_) . $unit x 30) foreach 0 .. 15;
}
my ($status, $stdout, $stderr) = small('cat', file('texts.json', @lines));
my @cut = split /^/, $stdout;
is("$status $stderr", '0 ', 'long texts: nothing to complain about');
is(scalar @cut, scalar @lines, 'long texts: all records are there');
my @wrong;
foreach my $i (0 .. $#lines)
{
	my $whole = decode_json($lines[$i]);
	my $short = eval { decode_json($cut[$i]) } // {};
	my $text  = delete $short->{commandText} // '';
	my $mark  = delete $short->{cut};

	push @wrong, $i
	  if !$mark || index(delete $whole->{commandText}, $text) != 0 || length $cut[$i] > $text_max + 500
	  || length($cut[$i]) < $text_max || join(',', map { "$_ $short->{$_}" } sort keys %$short) ne
	  join(',', map { "$_ $whole->{$_}" } sort keys %$whole);
}
is("@wrong", '', 'long texts: each is cut between characters, and marked, and nothing else is changed');

my @many = map { sprintf('"%04d,]}\\"%s"', $_, 'z' x 1000) } 1 .. 3000;
@lines = (
	line(1, 'SELECT', ',"paramList":[' . join(',', @many) . '],"rowCount":17'),
	line(2, 'SELECT', ',"settings":{' . join(',', map { "$_:$_" } @many) . '},"rowCount":17'),
	line(3, 'x' x 100_000, ',"paramList":["a",null,"b"],"settings":{"a":null,"b":1},"cut":true'),
	line(4, 'x' x 100_000, ',"later":[[1,{"a":[2]}],"' . 'l' x 100_000 . '"]'),
	line(5, 'SELECT 5'));
($status, $stdout, $stderr) = small('cat', file('lists.json', @lines));
is("$status $stderr", '0 ', 'lists: nothing to complain about');
my @short = map { decode_json($_) } split /\n/, $stdout;
my $members = @{ $short[0]{paramList} };
cmp_ok($members, '>', 1000, 'lists: an array is kept in part');
cmp_ok($members, '<', 1100, 'lists: not as a whole');
is_deeply($short[0]{paramList}, decode_json('[' . join(',', @many[ 0 .. $members - 1 ]) . ']'),
	'lists: its first elements');
is($short[0]{rowCount}, 17, 'lists: what comes behind it is there');
$members = keys %{ $short[1]{settings} };
cmp_ok($members, '>', 500, 'lists: an object is kept in part');
cmp_ok($members, '<', 600, 'lists: not as a whole');
is(scalar(grep { $short[1]{settings}{$_} ne $_ } keys %{ $short[1]{settings} }),
	0, 'lists: with the values of its first members');
is($short[1]{rowCount}, 17, 'lists: what comes behind it is there, too');
is_deeply([ @{ $short[2] }{qw(paramList settings)} ], [ [ 'a', undef, 'b' ], { a => undef, b => 1 } ],
	'lists: short ones stay');
is(scalar(() = (split /^/, $stdout)[2] =~ /"cut"/g), 1, 'a record that is marked gets no second mark');
is(length $short[3]{later}[1], $text_max, 'a field that is unknown is cut, too');
is((split /^/, $stdout)[4], $lines[4], 'a short record stays');

# What is no record stays none.
my $at = length $lines[4];
foreach my $bad ('x' x 10_000, '{"a":"' . 'x' x 100_000, line(1, '\\x' . 'x' x 100_000) =~ s/\n//r,
	'[' x 10_000, '"' . '\\' x 10_001, line(1, 'x' x 100_000, ',"cut":"yes"') =~ s/\n//r)
{
	($status, $stdout, $stderr) = small('cat', file('bad.json', $lines[4], "$bad\n", $lines[4]));
	ok($status == 1 && $stdout eq "$lines[4]$lines[4]", 'what is long and no record is left out');
	like($stderr, qr/the line at byte $at is no record\n\z/, 'and reported');
}

# One that is still being written
mkdir("$tmp/growing");
my $long = line(2, 'x' x 100_000);
($status, $stdout, $stderr) = small('cat', file('growing/1.json', line(1, 'a'), substr($long, 0, 90_000)));
is($status, 0, 'a long record that is not all there yet');
like($stderr, qr/ends within a record; it is being written/, 'is told of');
ok($stdout eq line(1, 'a'), 'is not shown');
my $following = IPC::Run::start([ $small, 'follow', '--all', "$tmp/growing/1.json" ],
	'<', \undef, '>', \my $followed, '2>', \my $said);
ok(poll_until(sub { $following->pump_nb; ($followed // '') ne '' }), 'follow: what is before it');
append_to_file("$tmp/growing/1.json", substr($long, 90_000) . line(3, 'c'));
ok(poll_until(sub { $following->pump_nb; $followed =~ /"sequence":3/ }), 'follow: what comes after it');
$following->signal('TERM');
$following->finish;
is_deeply([ map { $_->{cut} ? 'cut' : $_->{commandText} } map { decode_json($_) } split /\n/, $followed ],
	[ 'a', 'cut', 'c' ], 'follow: a long record that grows');

# ---------------------------------------------------------------------------
# Formats csvlog and pgaudit
# ---------------------------------------------------------------------------

sub csv_record
{
	my ($message, $hint) = @_;
	my @columns = ('2026-11-20 10:00:00.000 UTC', map { "c$_" } 1 .. 25);

	@columns[ 13, 15, 24 ] = ($message, $hint, "behind\nit, \"all\"");
	return join(',', map { /[",\n=]/ || length > 30 ? '"' . s/"/""/gr . '"' : $_ } @columns) . "\n";
}

my @messages;
foreach my $unit ('y', '"', '","', "\n", "\xc3\xa4", '"",""' . "\n")
{
	push @messages, 'x' x ($text_max - $_) . $unit x 30 foreach 0 .. 7;
}
my @hints = ('', 'series=5', 'interrupted,series=6');
my @records = map { csv_record($messages[$_], $hints[ $_ % 3 ]) } 0 .. $#messages;
($status, $stdout, $stderr) = small('cat', '--format=csvlog', file('long.csv', @records, csv_record('short', '')));
is("$status $stderr", '0 ', 'csvlog: nothing to complain about');
my $rows = [ eval { parse_csv($stdout) } ];
is($@, '', 'csvlog: it is csv');
is(scalar @$rows, @records + 1, 'csvlog: all records are there');
@wrong = grep {
	my @row = @{ $rows->[$_] };
	@row != 26 || index($messages[$_], $row[13]) != 0 || length $row[13] < $text_max - 40
	  || $row[15] ne join(',', grep { $_ ne '' } $hints[ $_ % 3 ], 'cut')
	  || $row[24] ne "behind\nit, \"all\""
} 0 .. $#messages;
is("@wrong", '', 'csvlog: the message is cut, the hint tells, and nothing else is changed');
is("@{$rows->[-1]}[13,15]", 'short ', 'csvlog: a short record stays');

my @logged = map { "2026-11-20 10:00:0$_.000 UTC [17] LOG:  AUDIT: SESSION,$_,1,READ,SELECT,,,$_" } 1 .. 3;
($status, $stdout, $stderr) = small('cat', '--format=pgaudit',
	file('long.log', "$logged[0]\n", $logged[1], "\n\tand on" x 20_000, "\n", "$logged[2]\n"));
is("$status $stderr", '0 ', 'pgaudit: nothing to complain about');
like($stdout, qr/\A\Q$logged[0]\E\n\Q$logged[1]\E(?:\n\tand on)+(?:\n\t?[and on]*)? <cut>\n\Q$logged[2]\E\n\z/,
	'pgaudit: a long record is cut, and marked');
cmp_ok(length $stdout, '<', $text_max + 300, 'pgaudit: it is short');

# In an encoding of single bytes, each byte may look like the rest of a character of UTF-8.
my $bytes = "\x80" x (3 * $text_max);
foreach my $case ([ 'csvlog', 'csv', csv_record($bytes, '') ], [ 'pgaudit', 'log', "$logged[0]$bytes\n" ])
{
	my ($format, $ending, $record) = @$case;

	($status, $stdout, $stderr) = small('cat', "--format=$format", file("bytes.$ending", $record));
	is("$status $stderr", '0 ', "$format, single bytes: nothing to complain about");
	cmp_ok(length $stdout, '>=', $text_max, "$format, single bytes: as much as of other texts is there");
	cmp_ok(length $stdout, '<', $text_max + 500, "$format, single bytes: the rest is cut");
}

# ---------------------------------------------------------------------------
# More than a gigabyte, in bounded memory
# ---------------------------------------------------------------------------

mkdir("$tmp/trail");
my $huge = file('trail/huge.json.zst');
(undef, undef, $stderr) = trail_program('cat', $huge);
if ($stderr =~ /has no libzstd/ || !grep { -x "$_/zstd" } split /:/, $ENV{PATH})
{
	unlink($huge);
	$huge = "$tmp/trail/huge.json";
}
open(my $out, '|-', $huge =~ /zst$/ ? "zstd -q -f -o $huge" : "cat >$huge") or die "zstd: $!";
my ($begin, $end) = line(2, 'SELECT /*@*/ secret', ',"clientApplication":"psql"') =~ /^(.*)@(.*\n)/s;
print $out line(1, 'SELECT 1'), $begin;
print $out '\\u0001' x 100_000 foreach 1 .. 1850;
print $out $end, line(3, 'SELECT 3');
close($out) or die "zstd: $!";

# Run the program with a gigabyte of memory, nearly half of which it only reserves.
sub limited
{
	my (@arguments) = @_;
	my ($path) = `pg_config --bindir` =~ /(.*)/;
	my ($output, $errors);
	my $limit = sanitizers() eq '' ? 'ulimit -v 1000000;' : '';

	IPC::Run::run([ 'sh', '-c', "$limit exec \"\$@\"", 'sh', "$path/pg_audit_trail", @arguments ],
		'<', \undef, '>', \$output, '2>', \$errors);
	return ($? >> 8, $output, $errors);
}

($status, $stdout, $stderr) = limited('cat', "$tmp/trail");
is("$status $stderr", '0 ', 'more than a gigabyte: cat');
my @found = map { decode_json($_) } split /\n/, $stdout;
is(join(' ', map { $_->{sequence} } @found), '1 2 3', 'more than a gigabyte: the record, and those around it');
like($found[1]{commandText}, qr{^SELECT /\*\x01{10000}}, 'more than a gigabyte: the beginning of the text');
is("@{$found[1]}{qw(dbUserName clientApplication cut)}", 'alice psql 1', 'more than a gigabyte: who it was');
is((limited('cat', '--user=alice', '--from-sequence=2', '--count', "$tmp/trail"))[1],
	"2\n", 'more than a gigabyte: it can be looked for');
($status, $stdout, $stderr) = limited('report', "$tmp/trail");
is("$status $stderr", '0 ', 'more than a gigabyte: report');
like($stdout, qr/Records +3\b.*no sequence is missing/s, 'more than a gigabyte: it counts');
my $follow = start_trail_program('follow', '--all', "$tmp/trail");
ok(poll_until(sub { $follow->{run}->pump_nb; $follow->{stdout} =~ /"sequence":3/ }),
	'more than a gigabyte: follow');
($status, $stderr, $stdout) = finish_trail_program($follow);
is("$status $stderr " . (() = $stdout =~ /"sequence":2,/g), '0  1', 'more than a gigabyte: follow shows it');
unlink($huge);

# ---------------------------------------------------------------------------
# A server's records
# ---------------------------------------------------------------------------

my $node = audited_node('main', settings => { flush_interval => '10ms' }, conf => "autovacuum = off\n");
my $dir  = trail_dir($node);

# Whoever gets records on standard input, and says that he has
append_to_file("$tmp/receive", <<'PERL');
open my $file, '>>', $ARGV[0] or die;
$file->autoflush(1);
$| = 1;
while (my $line = <STDIN>)
{
	print $file $line;
	print "$1\n" if $line =~ /"sequence":(\d+)/;
}
PERL

# What is shipped by the program, as records
sub shipped
{
	my ($program) = @_;
	my ($output, $errors);

	unlink("$tmp/shipped");
	unaudited_sql($node, "SELECT audit_consumer_create('siem')");
	IPC::Run::run([ $program, 'ship', '--consumer=siem', '--once',
			"--command=$^X -MIO::Handle '$tmp/receive' '$tmp/shipped'", $dir ],
		'<', \undef, '>', \$output, '2>', \$errors);
	is(($? >> 8) . " $errors", '0 ', 'ship: nothing to complain about');
	is(unaudited_sql($node, "SELECT lag_records FROM audit_consumers WHERE name = 'siem'"),
		'0', 'ship: all is acknowledged');
	unaudited_sql($node, "SELECT audit_consumer_drop('siem')");
	return map { decode_json($_) } split /\n/, slurp_file("$tmp/shipped");
}

$node->safe_psql('postgres', q{SELECT 'before'});
$node->safe_psql('postgres', q{SELECT 'long } . 's' x 100_000 . q{'});
$node->safe_psql('postgres', q{SELECT 'after'});
flush_trail($node);
my @shipped = grep { ($_->{commandText} // '') =~ /^SELECT '(?:before|long|after)/ } shipped($small);
is(join(' ', map { $_->{cut} ? 'cut' : 'whole' } @shipped), 'whole cut whole', 'ship: what is acknowledged was delivered');
like($shipped[1]{commandText}, qr/^SELECT 'long s{60000}/, 'ship: as much as fits');

SKIP:
{
	skip 'a statement of that length: only with PAQ_TEST_FULL', 1 if !full_tests();
	my $sql = "$tmp/long.sql";

	append_to_file($sql, "SELECT 'huge' /* " . "\x01" x 180_000_000 . " */;\n");
	$node->command_ok([ 'psql', '-XqAt', '-f', $sql, '-d', $node->connstr('postgres') ], 'a statement of 180 MB');
	flush_trail($node);
	cmp_ok(-s (trail_files($node))[-1], '>', 1024**3, 'is a line of more than a gigabyte');
	my ($path) = `pg_config --bindir` =~ /(.*)/;
	is(scalar(grep { ($_->{commandText} // '') =~ /^SELECT 'huge'/ && $_->{cut} } shipped("$path/pg_audit_trail")),
		1, 'which is shipped');
	is(unaudited_sql($node, q{SELECT count(*) FROM audit_trail WHERE command_text LIKE 'SELECT ''huge''%' AND cut}),
		'1', 'and can be read by SQL');
}
$node->stop;
# ---------------------------------------------------------------------------
# A field that only the record before has, in a file whose memory is gone
# ---------------------------------------------------------------------------

{
	my $long = line(1, 'x' x 1_000_000, ',"paramList":["a","b"]');

	mkdir("$tmp/two") or die "mkdir: $!";
	file('two/audit-1.json', $long x 3);
	file('two/audit-2.json', line(2, 'SELECT 2'));
	my (undef, $rows, $messages) = trail_program('cat', '--format=csvlog', "$tmp/two");
	is($messages, '', 'all files are read');
	is(scalar(() = $rows =~ /\n/g), 4, 'and all of their records');
}

done_testing();
