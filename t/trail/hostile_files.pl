# Files that somebody has put into the trail's directory: whatever is in them and whatever they
# are called, they keep nobody from reading the others, and do nothing to a terminal.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Encode qw(decode FB_CROAK LEAVE_SRC);
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_trail_program();
delete $ENV{PAQ_TEST_LAYERS};
$ENV{TZ} = 'UTC';

my $tmp  = PostgreSQL::Test::Utils::tempdir();
my $node = audited_node(
	'main',
	settings => { flush_interval => '10ms', log_encryption_key_command => encryption_key(128) },
	conf     => "autovacuum = off\n");
my $dir  = trail_dir($node);
my @keys = ('-K', encryption_key_file());

# A line of the trail, of these fields and those that each line has
sub line
{
	my ($sequence, %fields) = @_;

	return JSON::PP->new->canonical->utf8->encode(
		{
			type => 'record', formatVersion => 1, sequence => $sequence, series => 5,
			logTime => sprintf('2026-11-20T10:00:%02d.000000+00:00', $sequence),
			class => 'READ', command => 'SELECT', commandText => "SELECT $sequence",
			exitCode => '00000', dbUserName => 'alice', %fields
		}) . "\n";
}

# What psql prints for the reader of the trail, and its messages
sub sql
{
	my ($query) = @_;
	my ($code, $stdout, $stderr) = $node->psql('postgres', $query);

	return ($stdout, $stderr);
}

# ---------------------------------------------------------------------------
# Parts without end
# ---------------------------------------------------------------------------

$node->safe_psql('postgres', q{SELECT 'a record of the server'});
flush_trail($node);
mkdir("$tmp/parts");

# More than a gigabyte, in little space where that is possible
my $bomb = put_file("$tmp/parts/1.json.zst");
my (undef, undef, $stderr) = trail_program('cat', $bomb);
if ($stderr =~ /has no libzstd/ || !grep { -x "$_/zstd" } split /:/, $ENV{PATH})
{
	unlink($bomb);
	$bomb = "$tmp/parts/1.json";
}
open(my $out, '|-', $bomb =~ /zst$/ ? "zstd -q -f -o $bomb" : "cat >$bomb") or die "zstd: $!";
my %part = (count => 100_000, length => 1_000_000, sha256 => 'a' x 64);
my $unknown = 'x' x 2_000_000;

# to encode that much, or to copy it, takes longer than all the rest
syswrite($out, line(1, part => { %part, number => 1 })) or die "zstd: $!";
foreach my $number (2 .. 600)
{
	my ($begin, $end) = split /@/, line($number, type => 'part', logTime => undef,
		part => { %part, number => $number, text => '' }, unknown => '@');

	syswrite($out, $_) or die "zstd: $!" foreach $begin, $unknown, $end;
}
close($out) or die "zstd: $!";
put_file("$tmp/parts/2.json", line(1, logTime => '2026-11-20T11:00:00+00:00'));

my ($status, $stdout);
($status, $stdout, $stderr) = trail_program('cat', '--type=record', "$tmp/parts");
is("$status $stderr", '0 ', 'parts without end: cat has nothing to complain about');
is(join(' ', map { /"logTime":"([^"]+)"/ } split /\n/, $stdout),
	'2026-11-20T10:00:01.000000+00:00 2026-11-20T11:00:00+00:00', 'parts without end: cat goes on');
is((trail_program('report', "$tmp/parts"))[1] =~ /Records +(\d+)/ ? $1 > 1 : 0,
	1, 'parts without end: so does report');
my $name = $bomb =~ s{.*/}{}r;
system_or_bail('cp', $bomb, "$dir/bomb-$name");
($stdout, $stderr) = sql(q{SELECT count(*) FROM audit_trail
	WHERE command_text ~ 'a record of the server' OR sequence = 1 AND cut AND log_time < '2026-11-21'});
is($stderr, '', 'parts without end: SQL has nothing to complain about');
cmp_ok($stdout, '>=', 2, 'parts without end: it has the first part, and the records of others');
unlink($bomb, "$dir/bomb-$name");

# ---------------------------------------------------------------------------
# Many files that end within a record
# ---------------------------------------------------------------------------

# The CPU time in seconds that it takes to read so many of them: of each the program has to know
# whether it is the newest one of its directory.
sub busy_with_cut
{
	my ($count) = @_;
	my $whole = line(1);

	put_file(sprintf("$tmp/cut-$count/%05d.json", $_), $whole, '{"half') foreach 1 .. $count;
	my (undef, undef, @before) = times;
	my ($status, $stdout, $stderr) = trail_program('cat', "$tmp/cut-$count");
	my (undef, undef, @after) = times;
	my $altered = () = $stderr =~ /is not the newest one$/mg;
	is("$status $altered", '1 ' . ($count - 1), "$count files that end within a record: all but the newest are altered");
	is($stdout, $whole x $count, "$count files that end within a record: what is whole is printed");
	return $after[0] + $after[1] - $before[0] - $before[1];
}

my ($few, $many) = map { busy_with_cut($_) } 400, 4000;
note "$few s, $many s";
cmp_ok($many, '<', 30 * $few + 1, 'ten times as many files do not cost a hundred times as much');

# ---------------------------------------------------------------------------
# Files of another format, and links
# ---------------------------------------------------------------------------

my @good = map { line($_) } 1 .. 3;
put_file("$tmp/mixed/1.json", @good[ 0, 1 ]);
put_file("$tmp/mixed/2.csv",  "2026-11-20 10:00:01.000 UTC,b\n");
put_file("$tmp/mixed/3.log",  "2026-11-20 10:00:01.000 UTC c\n");
put_file("$tmp/mixed/4.json", $good[2]);
my $secret = put_file("$tmp/elsewhere/secret.json", line(9, dbUserName => 'elsewhere'));
symlink($secret, "$tmp/mixed/link.json") or die "symlink: $!";

($status, $stdout, $stderr) = trail_program('cat', "$tmp/mixed");
is($stdout, join('', @good), 'cat: files of other formats keep nobody from reading the rest, and links are not read');
is($status, 2, 'cat: the status tells that there are some');
like($stderr, qr/mixed\/$_" cannot be written in format json/, "cat: $_ is named") foreach '2.csv', '3.log';
($status, $stdout) = trail_program('cat', '--format=csvlog', "$tmp/mixed");
is($status, 2, 'cat: as csvlog');
like($stdout, qr/^2026-11-20 10:00:01.000 UTC,b$/m, 'cat: a file that has that format');
is(scalar(() = $stdout =~ /\n/g), 4, 'cat: and what can become that');
($status, $stdout, $stderr) = trail_program('cat', "$tmp/mixed/1.json", "$tmp/mixed/2.csv");
is("$status $stdout", '2 ', 'cat: a file that is named must fit, or nothing is printed');
is((trail_program('cat', "$tmp/mixed/link.json"))[1], line(9, dbUserName => 'elsewhere'),
	'cat: a link that is named is read');

($status, $stdout, $stderr) = trail_program('report', "$tmp/mixed");
is($status, 2, 'report: files of other formats');
like($stdout, qr/Records +3\b/, 'report: the rest is counted');
like($stdout, qr/mixed\/$_ is not of format json/, "report: $_ is named") foreach '2.csv', '3.log';
is((trail_program('report', "$tmp/mixed/2.csv"))[1], '', 'report: a file that is named must fit');

my $follow = start_trail_program('follow', '--all', "$tmp/mixed");
ok(poll_until(sub { $follow->{run}->pump_nb; $follow->{stdout} eq join('', @good) }),
	'follow: files of other formats keep nobody from reading the rest');
put_file("$tmp/mixed/5.csv", "2026-11-20 10:00:05.000 UTC,b\n");
symlink($secret, "$tmp/mixed/another.json") or die "symlink: $!";
ok(poll_until(sub { $follow->{run}->pump_nb; $follow->{stderr} =~ /5\.csv" cannot be written/ }),
	'follow: one that comes later is named');
append_to_file("$tmp/mixed/4.json", line(4));
ok(poll_until(sub { $follow->{run}->pump_nb; $follow->{stdout} eq join('', @good, line(4)) }),
	'follow: and it goes on');
my ($code, $errors, $followed) = finish_trail_program($follow);
is($code, 2, 'follow: the status tells that there were some');
unlike($followed, qr/elsewhere/, 'follow: links are not read');

# ---------------------------------------------------------------------------
# Escape sequences
# ---------------------------------------------------------------------------

sub is_harmless
{
	my ($text, $what) = @_;
	my $decoded = eval { decode('UTF-8', $text, FB_CROAK | LEAVE_SRC) };

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(defined $decoded && $decoded !~ /[\x00-\x09\x0b-\x1f\x7f-\x9f]/, "$what: nothing for the terminal")
	  or diag($text =~ s/([^\n\x20-\x7e])/sprintf '<%02x>', ord $1/ger);
	return;
}

# A title, a C1 control character as a byte and as a character of UTF-8, no UTF-8, a newline
my $evil = "\e]0;evil\a\x9b31m\xc2\x9b\xff\n";
my $evil_dir = "$tmp/${evil}d";
mkdir($evil_dir) or die "mkdir: $!";

# A file whose header has another name than it has; nothing authenticates that.
my $header = 'PAQTRAIL' . pack('CCv', 1, 1, length($evil) + 6) . 'k' x 8 . 's' x 32 . "${evil}.b.enc";
foreach my $place ($evil_dir, $dir)
{
	put_file("$place/${evil}1.json",     "no record\n");
	put_file("$place/${evil}2.json",     '{"cut' x 100, "\n");
	put_file("$place/${evil}3.json.zst", 'no frame');
	put_file("$place/${evil}4.json.enc", 'no block, but as long as a header has to be ', '.' x 100);
	put_file("$place/a.b.json.enc", $header);
}
put_file("$evil_dir/${evil}5.csv", "x\n");
put_file("$evil_dir/cut.json", '{"half');
chmod(0, put_file("$evil_dir/${evil}6.json", $good[0])) or die "chmod: $!";
foreach my $case (
	[ 'cat',          'cat',    @keys,                $evil_dir ],
	[ 'cat, a table', 'cat',    '--format=table',     @keys, $evil_dir ],
	[ 'report',       'report', @keys,                $evil_dir ],
	[ 'report, HTML', 'report', '--format=html',      @keys, $evil_dir ],
	[ 'a wrong file', 'cat',    "$evil_dir/none.json" ],
	[ 'an ending',    'cat',    "$evil_dir/${evil}5.csv", "$evil_dir" ],
	[ 'an option',    'cat',    "--format=$evil",     $evil_dir ],
	[ 'a time',       'cat',    "--from=$evil",       $evil_dir ],
	[ 'a command',    $evil ],
	[ 'no option',    'cat',    "--${evil}" ],
	[ 'no letter',    'cat',    "-\e" ],
	[ 'no value',     'verify', '--until' ],
	[ 'a value',      'report', "--progress=$evil" ],
	[ 'ship',         'ship',   '--consumer=siem',    '--command=cat', $evil_dir ],
	[ 'keys',         'cat',    '-K',                 "$evil_dir/${evil}1.json", $evil_dir ])
{
	my ($what, @arguments) = @$case;
	($status, $stdout, $stderr) = trail_program(@arguments);

	isnt($stderr, '', "$what: there are messages");
	is_harmless($stderr, "$what: messages");
	is_harmless($stdout, "$what: output");
}
like((trail_program('verify', '--until'))[2], qr/option "--until" requires an argument/, 'an option without its value');
like((trail_program('cat', '-x', $dir))[2], qr/unrecognized option "-x"/, 'a letter that is none');
like((trail_program('cat', @keys, $dir))[2], qr/it was written with the name "\\x1b\]0;evil/,
	'the name in a header is shown');
$follow = start_trail_program('follow', '--all', @keys, $evil_dir);
ok(poll_until(sub { $follow->{run}->pump_nb; $follow->{stderr} =~ /no record/ }), 'follow: a message');
($code, $errors) = finish_trail_program($follow);
is_harmless($errors, 'follow: messages');

$node->command_ok([ 'sh', '-c', "umask 077; pg_audit_trail keygen -D '" . $node->data_dir . "' >$tmp/key" ], 'a key');
($status, $stdout, $stderr) = trail_program('verify', '-k', "$tmp/key", $dir);
like($stdout, qr/evil.*is in no seal/, 'verify: a finding');
is_harmless($stdout . $stderr, 'verify');
unaudited_sql($node, "SELECT audit_consumer_create('siem')");
($status, $stdout, $stderr) = trail_program('ship', '--consumer=siem', '--once', '--command=cat', @keys, $dir);
is_harmless($stderr, 'ship: messages');

# The server's messages
my $log = -s $node->logfile;
($stdout, $stderr) = sql(q{SELECT count(*) FROM audit_trail});
foreach my $message (qr/evil.*line 1 of|line 1 of.*evil/, qr/evil.*is damaged/, qr/it was written with the name/)
{
	like($stderr, $message, "SQL: a warning, $message");
}
is_harmless($stderr, 'SQL: warnings');
is_harmless(join('', grep { !/STATEMENT|^\t/ } split /^/, slurp_file($node->logfile, $log)), "the server's log");
like($stdout, qr/^\d+$/, 'SQL: and the records that there are');

# A long line in a file of that name
put_file("$dir/${evil}1.json", line(1, commandText => '@', command => 'long') =~ s/@/'x' x 34_000_000/er);
is_harmless((sql(q{SELECT kept_file FROM audit_trail WHERE command = 'long'}))[0], 'SQL: the name of a file');
unlink(glob("$dir/*evil*"), "$dir/a.b.json.enc");

# ---------------------------------------------------------------------------
# Lines that somebody has made, in formats with columns
# ---------------------------------------------------------------------------

my %rows;
my @texts = qw(sessionId virtualTransactionId exitCode class command objectType objectName dbUserName
  databaseName remoteHost remotePort clientApplication backendType errorMessage commandTextOmitted
  paramListOmitted policy);
my $hostile = qq(a,"b\nc,d\\e"\n2026-11-20 10:00:00.000 UTC,"f);
my @made = map { line(1, remoteHost => '::1', $_ => $hostile) } @texts;
push @made, line(1, settings => { $hostile => $hostile }), line(1, paramList => [ $hostile, $hostile ]);
my $file = put_file("$tmp/made.json", @made);
($status, $stdout, $stderr) = trail_program('cat', '--format=csvlog', $file);
is("$status $stderr", '0 ', 'csvlog: nothing to complain about');
my @rows = parse_csv($stdout);
is(scalar @rows, scalar @made, 'csvlog: a row for each line');
is(join(' ', grep { @{ $rows[$_] } != 26 } 0 .. $#rows), '', 'csvlog: with all columns');
# What no server writes there is left out.
my %column = (sessionId => [ 5, '0.0' ], virtualTransactionId => [ 9, '' ], exitCode => [ 12, '' ],
	dbUserName => [ 1, $hostile ]);
foreach my $field (sort keys %column)
{
	my ($number) = grep { $texts[$_] eq $field } 0 .. $#texts;
	my ($place, $expected) = @{ $column{$field} };

	is($rows[$number][$place], $expected, "csvlog: $field");
}

# The message is CSV, too, in these columns.
@rows = map { [ parse_csv("$_->[13]\n") ] } @rows;
is(join(' ', grep { @{ $rows[$_] } != 1 || @{ $rows[$_][0] } != 9 } 0 .. $#rows),
	'', 'csvlog: the message has its columns');

# Nothing begins a line that is no record.
($status, $stdout, $stderr) = trail_program('cat', '--format=pgaudit', $file);
is("$status $stderr", '0 ', 'pgaudit: nothing to complain about');
is(scalar(() = $stdout =~ /\n(?!\t)/g), scalar @made, 'pgaudit: a line for each');

$node->stop;
done_testing();
