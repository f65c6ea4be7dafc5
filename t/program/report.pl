# pg_audit_trail report: what it counts is what is in the trail, in both formats; memory is
# bounded, and users can neither hide in a report nor get anything into it that is not text.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_trail_program();

# Days are those of the local time zone.
$ENV{TZ} = 'UTC';
delete @ENV{qw(COLUMNS NO_COLOR)};

my $base = PostgreSQL::Test::Utils::tempdir();

# A file below $base; returns its path.
sub file
{
	my ($name, @content) = @_;

	return put_file("$base/$name", @content);
}

# A line of the trail, of these fields and those that each line has; the time is so many
# minutes after the first of January
sub line
{
	my ($sequence, $minutes, %fields) = @_;
	my @time   = gmtime(1767225600 + 60 * $minutes);
	my %record = (
		type          => 'record',
		formatVersion => 1,
		sequence      => $sequence,
		logTime       => sprintf('%04d-%02d-%02dT%02d:%02d:00.000000+00:00',
			$time[5] + 1900, $time[4] + 1, @time[ 3, 2, 1 ]),
		class        => 'READ',
		command      => 'SELECT',
		exitCode     => '00000',
		dbUserName   => 'alice',
		sessionUser  => 'alice',
		databaseName => 'shop',
		remoteHost   => '10.1.2.3',
		serverHost   => 'db1',
		%fields);

	return JSON::PP->new->canonical->utf8->encode(\%record) . "\n";
}

sub failed_login
{
	my ($sequence, $minutes, $name, %fields) = @_;

	return line(
		$sequence, $minutes,
		class        => 'CONNECT',
		command      => 'LOGIN',
		dbUserName   => $name,
		sessionUser  => undef,
		exitCode     => '28P01',
		errorMessage => "password authentication failed for user \"$name\"",
		%fields);
}

# The report as text; the first argument may be the status and the messages that are expected.
sub report
{
	my @arguments = @_;
	my ($expected, $message) = ref $arguments[0] ? @{ shift @arguments } : (0, qr/\A\z/);
	my ($status, $stdout, $stderr) = trail_program('report', @arguments);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($status, $expected, "report @arguments: status");
	like($stderr, $message, "report @arguments: messages");
	return $stdout;
}

# The lines of a table below its title or heading, each an array of words, without the titles
# of columns.
sub table
{
	my ($text, $title) = @_;
	my ($table) = $text =~ /^\Q$title\E(?::|\n-+\n)\n(.*?)(?:\n\n|\n  |\n!|\z)/ms
	  or return [];
	my (undef, @lines) = split /\n/, $table =~ s/\A\n+//r;

	return [ map { [ split ' ' ] } @lines ];
}

# The value of a line of the summary
sub fact
{
	my ($text, $name) = @_;

	return $text =~ /^\Q$name\E +(.*)$/m ? $1 : undef;
}

# The page of HTML: Python's parser for XML has to like it, and returns what is found
# there as texts: tables by caption, alarms, and all elements and attributes.
sub page
{
	my ($html) = @_;
	my $script = <<'PYTHON';
import json, sys
import xml.etree.ElementTree as tree
from html.parser import HTMLParser
data = sys.stdin.buffer.read()
root = tree.fromstring(data)
tables = {}
for table in root.iter("table"):
    caption = table.find("caption")
    rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
    tables.setdefault("" if caption is None else caption.text, []).extend(rows)
seen = []
class Parser(HTMLParser):
    def handle_starttag(self, tag, attributes):
        seen.append([tag, dict(attributes)])
Parser().feed(data.decode("utf-8"))
json.dump({
    "tables": tables,
    "alarms": ["".join(p.itertext()) for p in root.iter("p") if p.get("class") == "alarm"],
    "elements": [[e.tag, e.attrib] for e in root.iter()],
    "seen": seen,
    "charts": [["".join(t.itertext()) for t in svg.iter("text")] for svg in root.iter("svg")],
    "bars": [len(list(svg.iter("g"))) for svg in root.iter("svg")],
}, sys.stdout)
PYTHON
	my ($stdout, $stderr);

	IPC::Run::run([ python(), '-c', $script ], '<', \$html, '>', \$stdout, '2>', \$stderr)
	  or return { error => $stderr };
	return decode_json($stdout);
}

# ---------------------------------------------------------------------------
# A server's trail, counted in another way
# ---------------------------------------------------------------------------

my $node = audited_node('main', settings => { log => 'all' });

unaudited_sql($node, $_) foreach
  'CREATE ROLE alice LOGIN', 'CREATE ROLE bob LOGIN', 'GRANT CREATE ON SCHEMA public TO PUBLIC';
foreach my $user (qw(alice bob))
{
	$node->psql('postgres', $_, extra_params => [ '-U', $user ]) foreach
	  "CREATE TABLE ${user}_data (a int)", "INSERT INTO ${user}_data VALUES (1)", 'SELECT 1/0',
	  "SELECT * FROM ${user}_data", 'SELECT * FROM alice_data', 'SET work_mem = 100';
}
$node->safe_psql('postgres', $_)
  foreach 'CREATE ROLE carol', 'GRANT alice TO carol', 'ALTER ROLE carol LOGIN', 'SELECT audit_rotate()';
$node->psql('no such database', '', extra_params => [ '-U', 'alice' ]) foreach 1 .. 3;
$node->psql('postgres', '', extra_params => [ '-U', 'nobody' ]);
flush_trail($node);

my $dir = trail_dir($node);
my @keys = -e encryption_key_file()
  ? ('-K', encryption_key_file()) : ();

# Names and how often they are there, the most frequent ones first
sub counted
{
	my ($rows) = @_;

	return { map { $_->[0] => $_->[1] } @$rows };
}

# Compare a report with what cat prints with the same options.
sub compare
{
	my (@options) = @_;
	my @records = map { parse_record($_) }
	  split /\n/, (trail_program('cat', @keys, '--format=json', @options, $dir))[1];
	my $text   = report(@keys, @options, '--top=1000', $dir);
	my $failed = sub { ($_->{exitCode} // '00000') ne '00000' };
	my $login  = sub { $failed->() && $_->{class} eq 'CONNECT' && $_->{command} eq 'LOGIN' };
	my $user   = sub { $_->{sessionUser} // $_->{dbUserName} // '-' };
	my $name   = "report @options";
	my (@there, @failures);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	@there    = grep { !$login->() } @records;
	@failures = grep { $failed->() } @there;
	is(fact($text, 'Records'), scalar @records, "$name: records");
	is(fact($text, 'Failures'), scalar(grep { $failed->() } @records), "$name: failures");
	foreach my $case (
		[ 'By class', \@records, sub { $_->{class} } ],
		[ 'Failed logins by name', [ grep { $login->() } @records ], sub { $_->{dbUserName} } ],
		[ 'Failures by SQLSTATE', \@failures, sub { $_->{exitCode} } ],
		[ 'By database', \@there, sub { $_->{databaseName} // '-' } ],
		[ 'By client', \@there, sub { $_->{remoteHost} // '-' } ],
		[ 'Objects read (class READ)', [ grep { $_->{class} eq 'READ' && $_->{objectName} } @there ],
			sub { $_->{objectName} } ],
		[ 'Objects written (class WRITE)', [ grep { $_->{class} eq 'WRITE' && $_->{objectName} } @there ],
			sub { $_->{objectName} } ])
	{
		my ($title, $of, $key) = @$case;
		my %expected;

		$expected{ $key->() }++ foreach @$of;
		is_deeply(counted(table($text, $title)), \%expected, "$name: $title");
	}

	# With three words in front, or more
	my %actions;
	$actions{ join ' ', $user->(), $_->{class}, $_->{command} // '-' }++ foreach @there;
	my %found = map { join(' ', @$_[ 0 .. $#$_ - 4 ]) => $_->[-4] } @{ table($text, 'Who did what') };
	is_deeply(\%found, \%actions, "$name: who did what");
	my %hours;
	$hours{ substr($_->{logTime}, 11, 2) . ':00' }++ foreach @records;
	my %found_hours = map { $_->[1] > 0 ? ($_->[0] => $_->[1]) : () }
	  @{ table($text, 'Records by hour of the day') };
	is_deeply(\%found_hours, \%hours, "$name: hours");
	return $text;
}

my $text = compare();
is(scalar @{ table($text, 'Failed logins by name') }, 2, 'failed logins');
like($text, qr/^! Failed: 4 logins\.$/m, 'are said at the beginning');
like($text, qr/^! Permission was denied 1 time/m, 'so are denials');
like($text, qr/no sequence is missing/, 'nothing is missing');
like($text, qr/GRANT ROLE +- +ok +GRANT alice TO carol$/m, 'changes of privileges');
compare('--user=alice');
compare('--class=read,write', '--outcome=failed');
compare('--from=2100-01-01');
is(fact(report(@keys, '--user=alice', '--class=read,ddl', $dir), 'Chosen by'),
	'--class=read,ddl --user=alice', 'the options that chose records');
is( fact(
		report(@keys, '--text=a,b', '--text=c', '--from=2100-01-01 10:11:12.5', '--to=2100-01-02', $dir),
		'Chosen by'),
	'--from=2100-01-01T10:11:12.500000+0000 --to=2100-01-02T00:00:00+0000 --text=a,b --text=c',
	'so that they choose the same again');
is(fact(report(@keys, "--rows=$_", $dir), 'Chosen by'), "--rows=$_", "--rows=$_ is shown")
  foreach '0', '7', '7..', '..7', '3..7';

# ---------------------------------------------------------------------------
# Usage
# ---------------------------------------------------------------------------

foreach my $case (
	[ [ '--format=json', $dir ], qr/invalid value "json" for option --format/ ],
	[ [ '--top=0', $dir ], qr/must be from 1 to 1000/ ],
	[ [ '--top=1001', $dir ], qr/must be from 1 to 1000/ ],
	[ [ '--limit=1', $dir ], qr/unrecognized option/ ],
	[ [], qr/no file or directory specified/ ],
	[ [ file('a.csv', "x\n") ], qr/is not of format json: a report cannot be made of it/ ])
{
	is(report([ 2, $case->[1] ], @{ $case->[0] }), '', 'prints nothing then');
}
like((trail_program('cat', '--format=html', $dir))[2], qr/invalid value "html"/, 'not with cat');
like((trail_program('cat', '--top=3', $dir))[2], qr/unrecognized option/, 'nor that');

# ---------------------------------------------------------------------------
# Days
# ---------------------------------------------------------------------------

my $day  = 24 * 60;
my $days = file('days.json',
	line(1, 10), line(2, $day - 1, exitCode => '42501'), line(3, $day), line(4, 3 * $day + 61));
$text = report($days);
is_deeply(
	table($text, 'Records by day'),
	[ [ '2026-01-01', 2, 1 ], [ '2026-01-02', 1, 0 ], [ '2026-01-03', 0, 0 ], [ '2026-01-04', 1, 0 ] ],
	'days, with those that have no record');
is(fact($text, 'Period'), '2026-01-01 00:10:00 to 2026-01-04 01:01:00', 'period');
is(fact($text, 'Time zone'), 'UTC: UTC, UTC+0000', 'time zone');
like($text, qr/without a record was from 2026-01-02 00:00:00 to 2026-01-04\s+01:01:00\./,
	'silence');
{
	local $ENV{TZ} = 'America/New_York';

	$text = report($days);
	is_deeply(
		table($text, 'Records by day'),
		[ [ '2025-12-31', 1, 0 ], [ '2026-01-01', 2, 1 ], [ '2026-01-02', 0, 0 ], [ '2026-01-03', 1, 0 ] ],
		'days of another time zone');
	like(fact($text, 'Time zone'), qr/^America\/New_York: EST, UTC-0500$/, 'which is mentioned');
}
{
	# A day of 23 hours in which 02:00 is left out, and midnight at the same place
	local $ENV{TZ} = 'Europe/Berlin';
	my $spring = 87 * $day;

	$text = report(file('spring.json',
			line(1, $spring - 61), line(2, $spring - 60), line(3, $spring + 59), line(4, $spring + 60),
			line(5, $spring + 22 * 60 - 1), line(6, $spring + 22 * 60)));
	is_deeply(
		table($text, 'Records by day'),
		[ [ '2026-03-28', 1, 0 ], [ '2026-03-29', 4, 0 ], [ '2026-03-30', 1, 0 ] ],
		'a day with a change of the clock');
	is_deeply(counted([ grep { $_->[1] } @{ table($text, 'Records by hour of the day') } ]),
		{ '00:00' => 2, '01:00' => 1, '03:00' => 1, '23:00' => 2 }, 'and its hours');
	is(fact($text, 'Time zone'), 'Europe/Berlin: CET, UTC+0100; later CEST, UTC+0200', 'both offsets');
}
foreach my $case (
	[ 99,   'Records by day',                    100 ],
	[ 100,  'Records by week, from Monday on',   15 ],
	[ 727,  'Records by week, from Monday on',   105 ],
	[ 3000, 'Records by month',                  99 ],
	[ 9000, 'Records by year',                   25 ])
{
	my ($distance, $title, $lines) = @$case;
	my $file = file('many.json', map { line(1 + $_ / 9, $_ * $day) } grep { $_ % 9 == 0 || $_ == $distance } 0 .. $distance);
	my ($status, $many) = trail_program('report', $file);
	my $found = table($many, $title);
	my $sum = 0;

	$sum += $_->[1] foreach @$found;
	is(scalar @$found, $lines, "$distance days: $title");
	is($sum, fact($many, 'Records') =~ s/,//gr, "$distance days: no record is left out");
}

$text = report(
	file('far.json',
		line(1, 0, logTime => '0001-01-01T00:00:00Z'), line(2, 0, logTime => '294276-12-31T23:59:59Z'),
		line(3, 0, logTime => '2026-01-01T00:00:00Z'), line(4, 0, logTime => undef)));
is(fact($text, 'Period'), '1-01-01 00:00:00 to 294276-12-31 23:59:59', 'times far away');
like($text, qr/without a record was from 1-01-01 00:00:00 to\s+294276-12-31\s+23:59:59\./, 'and far from each other');
like($text, qr/^! Without a time, and so in no day: 1 record\.$/m, 'no time');
is_deeply(
	[ grep { $_->[1] > 0 } @{ table($text, 'Records by year') } ],
	[ [ '0000', 1, 0 ], [ '1227', 1, 0 ], [ '293253', 1, 0 ] ],
	'years together');
like(report(file('days_flood.json', map { line($_, $_ * $day) } 1 .. 10_001)),
	qr/^! There were more days with records than can be counted: .*,\s+up to 1 each/m, 'too many days');

# ---------------------------------------------------------------------------
# Changes
# ---------------------------------------------------------------------------

$text = report(
	'--top=2',
	file('changes.json',
		map { line($_, $_, class => 'CONFIG', command => 'SET', objectName => "setting$_", oldValue => 'off',
				newValue => "on $_", exitCode => $_ == 3 ? '42501' : '00000') } 1 .. 4));
is_deeply(
	table($text, 'Latest of configuration (class CONFIG)'),
	[
		[qw(00:04:00 4 alice SET setting4 - ok off on 4)],
		[qw(00:03:00 3 alice SET setting3 - failed off on 3)]
	],
	'the latest changes of settings');
like($text, qr/^  Left out: 2 earlier records \(pg_audit_trail cat --class=CONFIG shows all\)\.$/m,
	'the others are counted');
is_deeply(table($text, 'Who changed what'), [ [qw(alice CONFIG SET 4 1 00:01:00 00:04:00)] ],
	'in a list, too');

# Whom a setting is for, as the statement says it; where denied clients come from
my %whom = (
	'ALTER ROLE alice SET work_mem = 1'                  => 'ROLE alice',
	'alter /* SET */ role "SET a" in database b -- SET'
	  . "\n RESET ALL"                                    => 'role "SET a" in database b',
	'ALTER DATABASE shop SET work_mem TO DEFAULT'        => 'DATABASE shop',
	'ALTER ROLE ALL RESET work_mem'                      => 'ROLE ALL',
	'ALTER SYSTEM SET work_mem = 1'                      => 'configuration file',
	'SET work_mem = 1'                                   => 'configuration file',
	'ALTER ROLE alice'                                   => 'configuration file',
	'ALTER'                                              => 'configuration file');
foreach my $statement (sort keys %whom)
{
	$text = report(
		file('whom.json',
			line(1, 0, class => 'CONFIG', command => 'ALTER', objectName => 'work_mem', newValue => '1',
				valueSource => 'configuration file', commandText => $statement)));
	like($text, qr/ ALTER +work_mem +\Q$whom{$statement}\E +ok +- +1$/m, "for whom: $statement");
}
$text = report(
	file('denied.json', line(1, 0, exitCode => '42501', remoteHost => '10.1.2.3', errorMessage => 'no')));
is_deeply(
	table($text, 'Latest denials (SQLSTATE 42501)'),
	[ [qw(00:00:00 1 alice 10.1.2.3 SELECT - failed no)] ],
	'where denials come from');

# Records that name no object are in no list of objects.
my @unnamed = ((map { line($_, 0) } 1 .. 1234), line(1235, 0, class => 'WRITE'),
	line(1236, 0, objectName => 'public.t'), line(1237, 0, class => 'MISC'));
$text = report(file('unnamed.json', @unnamed));
is_deeply(table($text, 'Objects read (class READ)'), [ [qw(public.t 1 0 00:00:00 00:00:00)] ], 'objects');
like($text, qr/^! 1,234 READ and 1 WRITE records name no object: what these are about is not in\s+this section/m,
	'records that name no object');
$text = report('--object=public.t', file('unnamed.json', @unnamed));
like($text,
	qr/^! 1,234 READ and 1 WRITE records that match the other options name no object,\s+and are left out: they may be about any/m,
	'and with --object');
unlike($text, qr/not in\s+this section/, 'which is said once');
$text = report(file('unnamed_one.json', line(1, 0)));
like($text, qr/^! 1 READ record names no object: what it is about is not in\s+this section/m, 'one such record');
$text = report('--object=public.t', "$base/unnamed_one.json");
like($text, qr/^! 1 READ record that matches the other options names no object, and is\s+left out:\s+it may/m,
	'and with --object');
$text = report('--superuser', file('untold.json', line(1, 0, currentUser => 'alice')));
like($text, qr/^! 1 record that matches the other options does not say whether its user\s+was/m,
	'one that does not tell of its user');

# What a list leaves out, if it is one name
$text = report('--top=1', file('two_users.json', line(1, 0), line(2, 0, sessionUser => 'bob')));
like($text, qr/^By user.*?\n  Left out: 1 more user, with 1 record\.$/ms, 'one name more');
like($text, qr/^Who did what.*?\n  Left out: 1 more combination, with 1 record\.$/ms, 'one of several names');
unlike(report(file('named.json', line(1, 0, objectName => 'public.t'))), qr/name no object/, 'only if there are');

# ---------------------------------------------------------------------------
# What is missing
# ---------------------------------------------------------------------------

my @gap = (type => 'gap', class => 'GAP', command => undef, exitCode => undef,
	dbUserName => undef, sessionUser => undef, databaseName => undef, remoteHost => undef);
file('gaps/1.json', line(1, 0), line(2, 1),
	line(3, 2, @gap, rowCount => 17, startTime => '2026-01-01T00:01:30Z', errorMessage => 'queue was full'),
	line(4, 3, @gap, rowCount => undef, errorMessage => 'the queue file was lost'));
file('gaps/2.json', line(8, 10), line(9, 11), "garbage\n", line(11, 12));
file('gaps/3.json', line(3, 20), line(4, 21, serverHost => 'db2'), line(4, 22), '{"cut');
$text = report([ 1, qr/2\.json": the line at byte \d+ is no record\n.*3\.json" ends within a record/s ],
	"$base/gaps");
like($text, qr/^! The trail itself says .*: 2 gaps, 1 of an unknown number\s+of records, the others of 17 records/m,
	'gaps');
like($text, qr/2026-01-01 00:01:30 2026-01-01 00:02:00 +3 +17 queue was full/, 'with what is missing');
like($text, qr/- +2026-01-01 00:03:00 +4 unknown the queue file was lost/, 'or may be');
like($text, qr/^! Missing between the records of these files: 4 sequences/m, 'missing sequences');
like($text, qr{gaps/2\.json sequences 5 to 7 are missing\n}, 'between files');
like($text, qr{gaps/2\.json sequence 10 is missing\n}, 'within a file');
like($text, qr{gaps/2\.json 1 line is no record\n}, 'a damaged line');
like($text, qr{gaps/3\.json sequence 3 comes after 11\n}, 'sequences that go back');
unlike($text, qr{3\.json sequences? 4}, 'each server has its own');
like($text, qr/newest file ends within a record/, 'what is not finished');
is(fact($text, 'Records'), 10, 'what is whole is counted');
$text = report([ 1, qr/no record/ ], '--user=nobody', "$base/gaps");
like($text, qr/: 4 sequences/, 'records that are not wanted are not missing');
like($text, qr/^! The trail itself says .*: 2 gaps/m, 'gaps are reported whoever is looked for');
is(fact($text, 'Records'), 0, 'but are no records that are wanted');

# Nothing is said of what was not looked at.
like(report(file('whole.json', line(1, 0))), qr/There are no gaps, no damage was found/, 'no gaps');
like(report('--to=2026-01-02', "$base/whole.json"),
	qr/There\s+are\s+no\s+gaps\s+in\s+the\s+times\s+and\s+sequences\s+that\s+were\s+chosen, no/,
	'no gaps among those that were chosen');
unlike(report(file('empty.json')), qr/no gaps/, 'of no record nothing is said');

# Sequences are shown in one way, and counts in another.
$text = report(file('thousands.json', line(1234, 0), line(1235, 1)));
like($text, qr/^Sequences +1234 \(earliest record\) to 1235 \(latest\)$/m, 'sequences of the summary');
like($text, qr/^db1 +- +1234 +1235 +1,233 -$/m, 'sequences of a server, and how many are before');

# A part of the trail is in another directory: where is said, as far as records tell it.
sub moved
{
	my ($sequence, $minutes, $from, $to, %fields) = @_;

	return line(
		$sequence, $minutes,
		class        => 'CONFIG',
		command      => 'SET',
		objectType   => 'SETTING',
		objectName   => 'pg_audit_queue.log_directory',
		oldValue     => $from,
		newValue     => $to,
		dbUserName   => undef,
		sessionUser  => undef,
		databaseName => undef,
		remoteHost   => undef,
		%fields);
}

file('moved/1.json', line(11, 0), moved(12, 1, 'before', 'moved'), line(13, 2));
file('moved/2.json', line(20, 20), moved(21, 20, "el\e[sewhere", 'moved'), line(22, 21));
file('moved/3.json', line(30, 30), moved(31, 30, 'refused', 'nowhere', exitCode => '55P02'));
$text = report([ 1, qr/\A\z/ ], "$base/moved");
like($text, qr/^! Missing between .*: 13\s+sequences;\s+some\s+may\s+be\s+in\s+another\s+directory,\s+see Completeness\.$/m,
	'a part of the trail is elsewhere');
like($text,
	qr{moved/2\.json sequences 14 to 19 are missing; before sequence 21, log_directory was "el\\x1b\[sewhere"\n},
	'the directory is named');
like($text, qr{moved/3\.json sequences 23 to 29 are missing\n}, 'but not if it was not changed');
like($text, qr/^db1 +- +11 +31 +10 before$/m, 'what was before the first sequence');
like($text, qr/^ *What was before the first sequence is not in these files: /m, 'is not there');
unlike(report("$base/whole.json"), qr/before the first sequence/, 'unless there is none');

# Sequences within a file cannot be there, whatever the file tells of log_directory.
file('within/1.json', line(1, 0), line(4, 1), moved(5, 2, 'before', 'within'));
file('within/2.json', line(6, 10), line(9, 11), moved(10, 12, 'elsewhere', 'within'));
$text = report([ 1, qr/\A\z/ ], "$base/within");
like($text, qr{within/$_ are missing\n}, "$_: missing within a file")
  foreach '1\.json sequences 2 to 3', '2\.json sequences 7 to 8';
like($text, qr/^! Missing between the records of these files: 4 sequences\.$/m, 'they are in no other directory');

# A record in parts that are too long to be put together is one record.
my %part = (count => 3, length => 300_000_000, sha256 => '0' x 64);
file('parts/1.json',
	line(1, 0),
	line(2, 1, part => { %part, number => 1 }),
	(map { line($_ + 1, 1, type => 'part', class => undef, part => { %part, number => $_, text => 'x' }) } 2, 3),
	line(5, 2, type => 'part', class => undef, part => { %part, number => 3, text => 'x' }),
	line(6, 3));
$text = report("$base/parts");
is(fact($text, 'Records'), 4, 'a record in parts is one, and one whose beginning is missing is another');
like(fact($text, 'Files'), qr/^1, with [\d,]+ bytes and 4 records$/, 'also in all');
my ($code, $out) = trail_program('cat', '--count', "$base/parts");
is("$code $out", "0 4\n", 'as for cat --count');
($code, $out) = trail_program('cat', '--limit=2', "$base/parts");
is((() = $out =~ /\n/g), 4, 'cat --limit prints the lines of the last record');
($code, $out) = trail_program('cat', '--class=READ', "$base/parts");
is((() = $out =~ /\n/g), 5, 'parts belong to the record that was chosen');
($code, $out) = trail_program('cat', '--format=table', "$base/parts");
is((() = $out =~ /\n/g), 5, 'and are no lines of a table');

# The first gap began at 00:01:30, and was written at 00:02:00.
foreach my $case (
	[ 1, '--to=2026-01-01T00:01:31' ],
	[ 0, '--to=2026-01-01T00:01:30' ],
	[ 2, '--from=2026-01-01T00:02' ],
	[ 1, '--from=2026-01-01T00:02:01' ],
	[ 1, '--to-sequence=3', '--class=READ' ])
{
	my ($gaps, @options) = @$case;

	is(fact(report([ 1, qr/no record/ ], @options, "$base/gaps"), 'Gaps'), $gaps, "gaps: @options");
}
report(file('again.json', line(1, 0), line(2, 1)), "$base/again.json");

my $damaged = file('damaged.json.zst', 'no frame of zstd');
SKIP:
{
	my ($status, $out, $err) = trail_program('report', $damaged);

	skip 'built without zstd', 2 if $err =~ /without|not supported|cannot/;
	is($status, 1, 'a damaged file');
	like($out, qr/damaged\.json\.zst could not be read from byte \d+ on/, 'is in the report');
}
$text = report([ 2, qr/could not open ".*none.json"/ ], $days, "$base/none.json");
like($text, qr/^! Not all files could be read: see/m, 'a file that is not there');
unlike($text, qr/There are no gaps/, 'then nobody says that the trail is complete');

# ---------------------------------------------------------------------------
# What users write
# ---------------------------------------------------------------------------

my @evil = (
	'<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', q{a'b&amp;"c"}, "new\nline\r\ttab",
	"\e[31mred\e]0;title\a", "\x{202e}evil\x{202c}", "\x{2066}x\x{2069}", "\x{feff}\x{ad}\x{61c}",
	"\x{85}\x{9b}31m", "\x{ffff}\x{fffe}", "\x{e0041}", '</style><style>*{display:none}', '-->', ']]>',
	'&#60;b&#62;', "\x{5d0}\x{5d1}", 'https://example.com/', '-', '');
my $sequence = 0;
my @lines;
foreach my $name (@evil)
{
	my %same = map { $_ => $name }
	  qw(dbUserName sessionUser databaseName objectName remoteHost commandText errorMessage
	  oldValue newValue);

	push @lines, line(++$sequence, $sequence, %same, class => $_, command => $name, exitCode => '42501')
	  foreach qw(READ WRITE DDL ROLE FUNCTION CONFIG);
	push @lines, failed_login(++$sequence, $sequence, $name, remoteHost => $name);
	push @lines, line(++$sequence, $sequence, @gap, errorMessage => $name);
}

# Bytes that are not UTF-8, as a database of another encoding has them
push @lines, line(++$sequence, $sequence, sessionUser => 'BYTES', textEncoding => 'EUC_JP')
  =~ s/BYTES/\\u00a4\\u0080\\u00ff/r;
my $evil = file('evil.json', @lines);

$text = report('--top=100', $evil);
unlike($text, qr/[\x00-\x09\x0b-\x1f\x7f]/, 'text: no control characters');
unlike(
	$text,
	qr/\xc2[\x80-\x9f\xad]|\xd8\x9c|\xe2\x80[\xaa-\xae]|\xe2\x81[\xa6-\xa9]|\xef\xbb\xbf|\xef\xbf[\xbe\xbf]|\xf3\xa0/,
	'text: nor others that are not seen');
like($text, qr/^\\x1b\[31mred\\x1b\]0;title\\x07 /m, 'text: they are shown');
like($text, qr/^new\\nline\\r\\ttab /m, 'text: a name is in one line');
like($text, qr/^\\xa4\\x80\\xff /m, 'text: bytes');

my $html = (trail_program('report', '--format=html', '--top=100', $evil))[1];
my $page = {};
SKIP:
{
	if (!defined python())
	{
		diag 'HTML IS NOT TESTED: there is no Python';
		skip 'there is no Python', 1;
	}
	$page = page($html);
	is($page->{error}, undef, 'html: well-formed');
	my %elements = map { $_->[0] => 1 } @{ $page->{elements} };
	is( join(' ', sort keys %elements),
		'body caption desc details div g h1 h2 head html line main meta p rect section span strong style summary svg table tbody td text th thead title tr',
		'html: no elements but its own');
	like($html, qr{<details>\n<summary>All figures \(24 lines\)</summary>\n<div class="wide">\n<table>},
		'html: long tables open on a click');
	is_deeply([ map { $_->[0] } @{ $page->{seen} } ], [ map { $_->[0] } @{ $page->{elements} } ],
		'html: a parser of HTML sees the same');
	my %attributes = map { map { $_ => 1 } keys %{ $_->[1] } } @{ $page->{elements} };
	is( join(' ', sort keys %attributes),
		'aria-labelledby charset class content height http-equiv id lang name role scope viewBox width x x1 x2 y y1 y2',
		'html: nor attributes');
	my ($policy) = map { $_->[1]{content} } grep { ($_->[1]{'http-equiv'} // '') eq 'Content-Security-Policy' }
	  @{ $page->{elements} };
	like($policy, qr/^default-src 'none'; style-src 'unsafe-inline';/, 'html: policy');
	like($html, qr/^<meta charset="utf-8"\/>$/m, 'html: character set');
	my ($style) = $html =~ m{<style>(.*?)</style>}s;
	unlike($style, qr/url|import|https?:/, 'html: styles refer to nothing');

	# Names are there, as in text
	my %names = map { $_->[0] => 1 } @{ $page->{tables}{'Failed logins by name'} };
	ok($names{$_}, "html: $_") foreach '<script>alert(1)</script>', '"><img src=x onerror=alert(1)>',
	  q{a'b&amp;"c"}, '&#60;b&#62;', '\x1b[31mred\x1b]0;title\x07', '\xe2\x80\xaeevil\xe2\x80\xac', '\xef\xbf\xbf\xef\xbf\xbe';
	unlike($html, qr/[\x00-\x09\x0b-\x1f\x7f]|\xe2\x80[\xaa-\xae]|\xef\xbf[\xbe\xbf]/,
		'html: no control characters');
	ok((grep { grep { $_ eq '</style><style>*{~' } @$_ } @{ $page->{charts} }), 'html: charts have names');
}

# Both formats have the same figures.
SKIP:
{
	skip 'there is no Python', 1 if !defined python();
	my $both = page((trail_program('report', @keys, '--format=html', '--top=1000', $dir))[1]);

	$text = report(@keys, '--top=1000', $dir);
	foreach my $title ('By class', 'By user', 'By client', 'Failures by SQLSTATE')
	{
		my ($titles, @rows) = @{ $both->{tables}{$title} };
		is_deeply(counted(\@rows), counted(table($text, $title)), "html: $title");
	}
	my $many = page((trail_program('report', '-f', 'html', "$base/many.json"))[1]);
	is($many->{bars}[0], 25, 'html: many days are few bars');
	cmp_ok(scalar(grep { /^\d{4}$/ } @{ $many->{charts}[0] }), '<=', 13, 'html: with fewer labels');
}

# Standard input
{
	my $input = line(1, 0);
	my ($stdout, $stderr);

	chomp(my $bin = `pg_config --bindir`);
	IPC::Run::run([ "$bin/pg_audit_trail", 'report', '-' ], '<', \$input, '>', \$stdout, '2>', \$stderr);
	is(fact($stdout, 'Files'), '1, with ' . length($input) . ' bytes and 1 record', 'standard input');
}

# Colors are for terminals.
$text = report('--color=always', $days);
like($text, qr/ \e\[31m1\e\[0m\n/, 'colors');
unlike($text =~ s/\e\[\d+m//gr, qr/\e/, 'and nothing else');
{
	local $ENV{COLUMNS} = 80;

	my %wide = map { $_ => 'n' x 60 } qw(sessionUser databaseName objectName command);

	$text = report(
		'--top=5',
		file('wide.json',
			map { line($_, 7 * $_ * $day, %wide, class => 'ROLE', exitCode => '42501', errorMessage => 'e' x 500) }
			  1 .. 9));
	is_deeply([ grep { length > 80 } split /\n/, $text ], [], 'lines fit into 80 columns');
	like($text, qr/^n+~ ROLE +n+~ +9 +9 2026-01-08 00:00 2026-03-05 00:00$/m, 'what is cut is marked');
}

# In a terminal that is too narrow, lines are longer than it, but all is there.
foreach my $columns (1 .. 3)
{
	local $ENV{COLUMNS} = $columns;

	like(report($days), qr/\bverify\s+does\s+that,.*^Objects$/ms, "$columns columns");
}

# ---------------------------------------------------------------------------
# Floods
# ---------------------------------------------------------------------------

# Names that are there but once, among them one that is there often and a few others
my $flood = file('flood.json');
open(my $fh, '>', $flood) or die "open: $!";
my $template = failed_login(1111, 1, 'NAME', remoteHost => 'HOST');
foreach my $i (1 .. 60_000)
{
	my $name = $i % 100 == 0 ? 'often' : "name$i";
	print $fh $template =~ s/1111/$i/r =~ s/NAME/$name/gr =~ s/HOST/fe80::$i/r;
}
print $fh line(60_001, 2, class => 'ROLE', command => 'GRANT', sessionUser => 'mallory',
	dbUserName => 'mallory', exitCode => '42501', errorMessage => 'denied');
close($fh) or die "close: $!";

# Peak of memory, in kB
sub peak
{
	my (@arguments) = @_;
	my ($stdout, $stderr);
	my $script = <<'PYTHON';
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
PYTHON

	chomp(my $bin = `pg_config --bindir`);
	IPC::Run::run([ python(), '-c', $script, "$bin/pg_audit_trail", @arguments ], '>', \$stdout, '2>', \$stderr)
	  or die $stderr;
	return $stdout + 0;
}

$text = report($flood);
like($text, qr/^! There were so many different names that counts are not exact in 2 tables/m,
	'a flood is said at the beginning');
my ($often) = grep { $_->[0] eq 'often' } @{ table($text, 'Failed logins by name') };
is($often->[1], 600, 'a name that is there often is counted');
like($text, qr/more names than can be counted\. One that is not shown had at most\s+\d+ of\s+the 60,000 records/,
	'the others are not forgotten');
is_deeply(table($text, 'By user'), [ [ 'mallory', 1, 1, '00:02:00', '00:02:00' ] ], 'nobody else hides there');
like($text, qr/^mallory ROLE +GRANT/m, 'nor among changes');
SKIP:
{
	skip 'there is no Python', 1 if !defined python();
	my $small = peak('report', $days);
	my $large = peak('report', $flood);

	note("memory: $small kB, in a flood $large kB");
	cmp_ok($large - $small, '<', 16 * 1024, 'memory is bounded') if !sanitizers();
}

# ---------------------------------------------------------------------------
# A server that has written into another directory for some time
# ---------------------------------------------------------------------------

sub write_into
{
	my ($directory) = @_;

	$node->append_conf('postgresql.conf', settings_text(log_directory => $directory));
	$node->reload;
	poll_until(
		sub {
			flush_trail($node);
			return index(stats($node)->{current_file}, "$directory/") >= 0;
		}) or die 'no other directory';
	$node->safe_psql('postgres', 'SELECT 1');
	return flush_trail($node);
}

my $there = write_into('audit');
my $elsewhere = write_into('elsewhere');
write_into('audit');
$node->stop;
$text = report([ 1, qr/\A\z/ ], $dir);
my ($from, $to, $until, $where) =
  $text =~ /sequences (\d+) to (\d+) are missing; before sequence (\d+), log_directory was "(.*?)"/;
is($where, 'elsewhere', 'the report of the one directory names the other') or diag($text);
cmp_ok($from, '>', $there,     'from where on records are there');
cmp_ok($to,   '>=', $elsewhere, 'and up to where');
cmp_ok($until, '>', $to, 'as a record tells');
$text = report($node->data_dir . '/elsewhere');
like($text, qr/ $from +$to +@{[ $from - 1 ]} audit$/m, 'and the other way round') or diag($text);
unlike(report($dir, $node->data_dir . '/elsewhere'), qr/ missing[:;]/, 'both together have everything');

done_testing();
