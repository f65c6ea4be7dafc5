# pg_audit_trail: the files of a trail are read without a server, in any format, whole,
# damaged, compressed, encrypted or while they are written.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use IPC::Run;
use JSON::PP;
use POSIX qw(strftime);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

chomp(my $program = `pg_config --bindir`);
$program .= '/pg_audit_trail';
if (!-x $program)
{
	diag 'NOT TESTED: there is no pg_audit_trail; a build needs libpgcommon.a for it';
	plan skip_all => 'no pg_audit_trail';
}

# Times without a zone are local ones.
$ENV{TZ} = 'UTC';
delete @ENV{qw(COLUMNS NO_COLOR)};

my $base = PostgreSQL::Test::Utils::tempdir();

# Run the program; returns status, output, messages.
sub trail
{
	my (@arguments) = @_;
	my ($stdin, $stdout, $stderr) = ('', '', '');

	$stdin = ${ shift @arguments } if ref $arguments[0];
	IPC::Run::run([ $program, @arguments ], '<', \$stdin, '>', \$stdout, '2>', \$stderr);
	return ($? & 127 ? "signal $?" : $? >> 8, $stdout, $stderr);
}

# Test what it prints, and that it has nothing to complain about.
sub prints
{
	my ($arguments, $expected, $name) = @_;
	my ($status, $stdout, $stderr) = trail(@$arguments);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($status, 0, "$name: status");
	is($stderr, '', "$name: no message");
	is($stdout, $expected, $name);
	return;
}

# Test that it fails with a status and a message, and prints what is given.
sub complains
{
	my ($arguments, $expected_status, $message, $expected, $name) = @_;
	my ($status, $stdout, $stderr) = trail(@$arguments);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($status, $expected_status, "$name: status");
	like($stderr, $message, "$name: message");
	is($stdout, $expected, "$name: output");
	return;
}

# A file below $base; returns its path.
sub file
{
	my ($name, @content) = @_;

	return put_file("$base/$name", @content);
}

# A line of the trail, of these fields and those that each line has
sub line
{
	my ($sequence, %fields) = @_;
	my %record = (
		type          => 'record',
		formatVersion => 1,
		sequence      => $sequence,
		logTime       => sprintf('2026-11-20T10:%02d:%02d.000000+00:00',
			int($sequence / 60), $sequence % 60),
		class        => 'READ',
		command      => 'SELECT',
		exitCode     => '00000',
		dbUserName   => 'alice',
		databaseName => 'shop',
		%fields);

	return JSON::PP->new->canonical->utf8->encode(\%record) . "\n";
}

# ---------------------------------------------------------------------------
# Usage
# ---------------------------------------------------------------------------

program_help_ok('pg_audit_trail');
program_version_ok('pg_audit_trail');
like((trail('cat', '--help'))[1], qr/Exit status: 0/, 'help of a command');
complains([], 2, qr/error: no command specified\n.*hint: Try/, '', 'no command');
complains(['dog'], 2, qr/there is no command "dog"/, '', 'a wrong command');
complains(['cat'], 2, qr/no file or directory specified/, '', 'no path');
complains([ 'cat', '--nonsense', $base ], 2, qr/unrecognized option.*nonsense/, '', 'a wrong option');
complains([ 'cat', '--all', $base ], 2, qr/unrecognized option/, '', 'an option of the other command');
complains([ 'cat', @$_, $base ], 2, qr/error: unrecognized option "-x"\n/, '', "a wrong letter, @$_")
  foreach ['-x'], ['-Pxq'], ['-Px'], [ '--limit=1', '-xq' ], [ '--limit=1', '-Pxq' ], [ '--limit=1', '-Px' ];
complains([ 'cat', "$base/none.json" ], 2, qr/could not open ".*none.json": No such file/, '', 'no file');
complains([ 'cat', file('a.txt', 'x') ], 2, qr/unknown ending/, '', 'a file with another ending');
complains([ 'cat', '/dev/null' ], 2, qr/neither a file nor a directory/, '', 'a device');
complains([ 'follow', '-' ], 2, qr/cannot be followed/, '', 'standard input');
complains([ 'follow', $base, $base ], 2, qr/one file or directory only/, '', 'two directories');
foreach my $case (
	[ '--format=xml', qr/invalid value "xml" for option --format/ ],
	[ '--color=red', qr/invalid value "red"/ ],
	[ '--limit=-1', qr/must be a number/ ],
	[ '--limit=many', qr/must be a number/ ],
	[ '--from-sequence=99999999999999999999', qr/must be a number/ ],
	[ '--from=soon', qr/invalid time "soon"/ ],
	[ '--from=2026-02-30', qr/invalid time/ ],
	[ '--to=3 moons ago', qr/invalid time/ ],
	[ '--from=1 month since', qr/invalid time/ ],
	[ '--type=record,gasp', qr/"gasp" for option --type: it must be record, gap, heartbeat or part\n/ ],
	[ '--class=reed', qr/"reed" for option --class: it must be DDL, FUNCTION, MISC, READ, ROLE, WRITE, ERROR, CONNECT, CONFIG or GAP\n/ ],
	[ '--class=READ,SELECT', qr/"SELECT" for option --class: it must be/ ],
	[ '--class=X*', qr/"X\*" for option --class: it must be/ ],
	[ '--class=', qr/"" for option --class/ ],
	[ '--outcome=bad-state', qr/"bad-state" .*: it must be ok, failed, denied, undone or a SQLSTATE/ ],
	[ '--outcome=fail', qr/"fail" for option --outcome/ ],
	[ '--outcome=error', qr/"error" for option --outcome/ ],
	[ '--outcome=425011', qr/"425011" for option --outcome/ ],
	[ '--outcome=', qr/"" for option --outcome/ ],
	[ '--session=6926d2c1-1f4a', qr/"6926d2c1-1f4a" .* must be a session id such as/ ],
	[ '--address=10.1', qr/"10\.1" for option --address: it must be an IP address, a network/ ],
	[ '--address=10.1.0.0/33', qr/"10\.1\.0\.0\/33" for option --address/ ],
	[ '--address=nowhere/0', qr/"nowhere\/0" for option --address/ ],
	[ '--address=local/0', qr/"local\/0" for option --address/ ],
	[ '--rows=many', qr/"many" for option --rows: it must be a number/ ],
	[ '--rows=1...2', qr/"\.2" for option --rows/ ],
	[ '--rows=2..1', qr/the first number is greater/ ],
	[ '--setting=shop.user', qr/"shop\.user" .* a name and a value, with = between/ ],
	[ '--transaction=7/', qr{"7/" .* a transaction id, such as 761, or a virtual one} ],
	[ '--transaction=0x2f', qr/"0x2f" for option --transaction/ ])
{
	complains([ 'cat', $case->[0], $base ], 2, $case->[1], '', $case->[0]);
}
complains([ 'cat', '--from=2026-02-01', '--to=2026-01-01', $base ], 2,
	qr/no record can match: the time of --from is not before that of --to/, '', 'no time');
complains([ 'report', '--from-sequence=2', '--to-sequence=1', $base ], 2,
	qr/no record can match: the number of --from-sequence is greater/, '', 'no sequence');
complains([ 'follow', '--outcome=undone', $base ], 2, qr/only later records tell/, '', 'the future');
complains([ 'follow', '--transaction=761', $base ], 2, qr/virtual transaction ids only/, '', 'an id that comes later');
foreach my $option ('--outcome=undone', '--transaction=761')
{
	complains([ \'', 'cat', $option, '-' ], 2, qr/\Q${\($option =~ s{=\d+}{}r)}\E cannot be used with standard input/,
		'', "standard input, $option");
}

# ---------------------------------------------------------------------------
# A server's trail
# ---------------------------------------------------------------------------

my $node = audited_node(
	'main',
	settings => { log => 'all', log_parameter => 'on', json_nulls => 'on' },
	conf     => q{
	log_timezone = 'Asia/Kolkata'
	compute_query_id = on
	});
my $dir = trail_dir($node);

unaudited_sql($node, $_) foreach
  'CREATE ROLE alice LOGIN', 'CREATE ROLE "b,o""b" LOGIN', 'GRANT CREATE ON SCHEMA public TO PUBLIC',
  q{CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'},
  q{CREATE DATABASE euc TEMPLATE template0 ENCODING 'EUC_JP' LOCALE 'C'},
  q{CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'};

# What differs between formats, if it does: texts that need quotes, failures, parameters,
# settings, things left out
my @texts = (
	'SELECT 1', "SELECT 'lines\nand\r\nmore\ttab', \"\"\"\" FROM t", "SELECT '\"'", q{SELECT '\\x41\\'},
	'CREATE TABLE t (a int PRIMARY KEY, b text)', "INSERT INTO t VALUES (1, 'x, \"y\"')",
	'INSERT INTO t VALUES (1)', 'SELECT 1 / 0', 'nonsense', 'SELECT 2; SHOW work_mem; SET work_mem = 100',
	"SET application_name = 'an \"app\", no?'", 'DO $$ BEGIN PERFORM 1; END $$', 'DROP TABLE t',
	"SET application_name = ''", "SELECT '\e[31m', '\x7f'");

sub run_session
{
	my ($user, $database, @more) = @_;
	my $client = PgProto->connect($node, user => $user, database => $database,
		options => '-c client_encoding=SQL_ASCII');

	$client->query($_) foreach @texts, @more;
	foreach my $value ('text', '', undef, 'a,b', "\"\n\\")
	{
		$client->parse('', 'SELECT $1::text, $2::text')->bind('', '', $value, 7)->execute('')->sync;
		$client->parse('', 'SELECT $1::text')->bind('', '', $value)->execute('')->sync;
	}
	$client->quit;

	# its last record comes before the first one of the next session
	poll_until(sub { !kill(0, $client->pid) }) or die 'the session does not end';
	return;
}

sub run_sessions
{
	run_session('alice', 'postgres', "SELECT 'caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80'");
	run_session('alice', 'latin1',   "SELECT 'caf\xe9'");
	run_session('alice', 'euc',      "SELECT '\xa4\xa2 \x8f\xb0\xa1'");
	run_session('alice', 'ascii',    "SELECT 'caf\xe9\xff\xc3\xa9 \\ back'");
	run_session('b,o"b', 'postgres');
	$node->psql('no such database', '', extra_params => [ '-U', 'alice' ]);
	return;
}

# As a superuser, who may set these
unaudited_sql($node, $_) foreach
  q{ALTER ROLE "b,o""b" SET pg_audit_queue.log_statement = off};

sub use_format
{
	my ($format) = @_;

	unaudited_sql($node, "ALTER SYSTEM SET pg_audit_queue.format = '$format'");
	$node->reload;
	poll_until(
		sub {
			flush_trail($node);
			(unaudited_sql($node, 'SELECT current_file FROM audit_queue_stats')) =~
			  { json => qr/json$/, csvlog => qr/csv$/, pgaudit => qr/log$/ }->{$format};
		}) or die 'the format does not change';
	return;
}

run_sessions();
unaudited_sql($node, 'SELECT audit_rotate()');
$node->safe_psql('postgres', 'SELECT $$second file$$');
flush_trail($node);
my @lines = trail_lines($node);
my $all   = join '', map { "$_\n" } @lines;
my @files = trail_files($node);
is(scalar @files, 2, 'a trail of two files');
cmp_ok(scalar @lines, '>', 100, 'with many records');

prints([ 'cat', $dir ], $all, 'a directory');
prints([ 'cat', "$dir/", '--format=json' ], $all, 'format json');
prints([ 'cat', reverse @files ], $all, 'files, in whatever order');
prints([ \$all, 'cat', '-' ], $all, 'standard input');
prints([ 'cat', '--limit=7', $dir ], join('', map { "$_\n" } @lines[ 0 .. 6 ]), '--limit');
prints([ 'cat', '--limit=0', $dir ], '', '--limit=0');
prints([ 'cat', '--count', $dir ], @lines . "\n", '--count');
prints([ 'cat', '--count', '--limit=5', $dir ], "5\n", '--count with --limit');

# Each filter finds what Perl finds.
my %records = map { $_ => parse_record($_) } @lines;
my ($middle) = map { $records{$_} } $lines[ @lines / 2 ];
my $session = $middle->{sessionId};
my $has = sub { my ($text, $record) = @_;
	grep { index($record->{$_} // '', $text) >= 0 } qw(commandText errorMessage objectName) };
foreach my $case (
	[ [ '--class=write' ], sub { $_->{class} eq 'WRITE' } ],
	[ [ '--class=write,DDL' ], sub { $_->{class} =~ /^(?:WRITE|DDL)$/ } ],
	[ [ '--class=write', '--class=DDL' ], sub { $_->{class} =~ /^(?:WRITE|DDL)$/ } ],
	[ [ '--command=INSERT' ], sub { ($_->{command} // '') eq 'INSERT' } ],
	[ [ '--command=insert' ], sub { ($_->{command} // '') eq 'INSERT' } ],
	[ [ '--class=wr*' ], sub { $_->{class} eq 'WRITE' } ],
	[ [ '--command=*TABLE' ], sub { ($_->{command} // '') =~ /TABLE$/ } ],
	[ [ '--user=alice' ], sub { ($_->{dbUserName} // '') eq 'alice' } ],
	[ [ '--user=Alice' ], sub { 0 } ],
	[ [ '--user=al?ce' ], sub { ($_->{dbUserName} // '') eq 'alice' } ],
	[ [ '--user=b?o"b' ], sub { ($_->{dbUserName} // '') eq 'b,o"b' } ],
	[ [ '--database=latin1,euc' ], sub { ($_->{databaseName} // '') =~ /^(?:latin1|euc)$/ } ],
	[ [ '--object=public.t' ], sub { ($_->{objectName} // '') eq 'public.t' } ],
	[ [ '--object=*' ], sub { defined $_->{objectName} } ],
	[ [ '--object=t' ], sub { ($_->{objectName} // '') =~ /(?:^|\.)t$/ } ],
	[ [ '--address=local' ], sub { ($_->{remoteHost} // '') eq '[local]' } ],
	[ [ '--address=0.0.0.0/0,::/0' ], sub { 0 } ],
	[ [ '--rows=2..' ], sub { ($_->{rowCount} // 0) >= 2 && $_->{type} ne 'gap' } ],
	[ [ '--rows=..1' ], sub { ($_->{rowCount} // 9) <= 1 && $_->{type} ne 'gap' } ],
	[ [ '--rows=1' ], sub { ($_->{rowCount} // 0) == 1 && $_->{type} ne 'gap' } ],
	[ [ '--superuser' ], sub { $_->{superuser} } ],
	[ [ "--transaction=$middle->{virtualTransactionId}", "--session=$session" ],
		sub { ($_->{virtualTransactionId} // '') eq $middle->{virtualTransactionId}
			  && $_->{sessionId} eq $session } ],
	[ [ '--outcome=denied' ], sub { ($_->{exitCode} // '') =~ /^(?:42501|28...)$/ } ],
	[ [ "--session=$session" ], sub { ($_->{sessionId} // '') eq $session } ],
	[ [ '--outcome=ok' ], sub { ($_->{exitCode} // '') eq '00000' } ],
	[ [ '--outcome=failed' ], sub { ($_->{exitCode} // '00000') ne '00000' } ],
	[ [ '--outcome=42' ], sub { ($_->{exitCode} // '') =~ /^42/ } ],
	[ [ '--outcome=22012,3d' ], sub { ($_->{exitCode} // '') =~ /^(?:22012|3D)/ } ],
	[ [ '--text=division by' ], sub { $has->('division by', $_) } ],
	[ [ '--text=a, b', '--text=public.t' ], sub { $has->('a, b', $_) || $has->('public.t', $_) } ],
	[ [ "--text=\e[31m" ], sub { $has->("\e[31m", $_) } ],
	[ [ '--text="y"' ], sub { $has->('"y"', $_) } ],
	[ [ '--type=record' ], sub { $_->{type} eq 'record' } ],
	[ [ '--type=gap,heartbeat' ], sub { $_->{type} ne 'record' } ],
	[ [ '--from-sequence=30' ], sub { $_->{sequence} >= 30 } ],
	[ [ '--to-sequence=30' ], sub { $_->{sequence} <= 30 } ],
	[ [ "--from=$middle->{logTime}" ], sub { $_->{logTime} ge $middle->{logTime} } ],
	[ [ "--to=$middle->{logTime}" ], sub { $_->{logTime} lt $middle->{logTime} } ],
	[ [ '--from=1 hour ago', '--to=now' ], sub { 1 } ],
	[ [ '--to=-1 week' ], sub { 0 } ],
	[ [ '--from=2020-01-01', '--to=2020-01-02T03:04:05Z' ], sub { 0 } ],
	[ [ '--class=READ', '--outcome=failed', '--user=alice' ],
		sub { $_->{class} eq 'READ' && ($_->{exitCode} // '00000') ne '00000'
			  && ($_->{dbUserName} // '') eq 'alice' } ])
{
	my ($options, $wanted) = @$case;
	my @expected = grep { local $_ = $records{$_}; $wanted->() } @lines;

	note("@$options: " . @expected . ' records');
	my $output = join '', map { "$_\n" } @expected;
	if (!@expected)
	{
		complains([ 'cat', @$options, $dir ], 0,
			qr/\Apg_audit_trail: no record matches, of ${\scalar(@lines)} that were read\n\z/, '', "@$options");
	}
	elsif (grep { /^--object/ } @$options)
	{
		complains([ 'cat', @$options, $dir ], 0,
			qr/warning: \d+ READ, \d+ WRITE and \d+ DDL records that match otherwise name no object/,
			$output, "@$options");
	}
	else
	{
		prints([ 'cat', @$options, $dir ], $output, "@$options");
	}
}

# The commands of all records are known, and others may be those of a later version.
my %commands = map { $records{$_}{command} // '' => 1 } @lines;
prints([ 'cat', '--count', '--command=' . join(',', grep { $_ ne '' } sort keys %commands), $dir ],
	scalar(grep { defined $records{$_}{command} } @lines) . "\n", 'all commands');
complains([ 'cat', '--command=SELECT,SELCT', '--limit=0', $dir ], 0,
	qr/\A.*warning: there is no command "SELCT" in PostgreSQL \d+\n\z/, '', 'no such command');

# Values that the server's trail does not have
my $chosen = file('chosen/1.json',
	line(1, remoteHost => '10.1.2.3',  settings => { 'shop.user' => 'ann' }, superuser => JSON::PP::true),
	line(2, remoteHost => '10.1.130.3', settings => { 'shop.user' => 'anna', 'shop.other' => 'x' },
		superuser => JSON::PP::false),
	line(3, remoteHost => 'fe80::1%eth0', settings => { 'shop.user' => undef }, currentUser => 'alice'),
	line(4, remoteHost => '[local]', objectName => 'public."a.b"', class => 'DDL'),
	line(5, remoteHost => '2001:db8::7', objectName => '"x.y".t', rowCount => 10_000),
	line(6, type => 'gap', class => 'GAP', rowCount => 10_000));
my $months = file('months.json',
	map { line($_->[0], logTime => strftime('%Y-%m-%dT%H:%M:%S+00:00', gmtime(time - $_->[1] * 86400))) }
	  ([ 1, 40 ], [ 2, 20 ]));
foreach my $case (
	[ '--address=10.1.2.3',        '1' ],
	[ '--address=10.1.0.0/17',     '1' ],
	[ '--address=10.1.128.0/17',   '2' ],
	[ '--address=10.0.0.0/8,local', '1 2 4' ],
	[ '--address=fe80::/10',       '3' ],
	[ '--address=2001:db8::/33',   '5' ],
	[ '--address=::/0',            '3 5' ],
	[ '--setting=shop.user=ann',   '1' ],
	[ '--setting=SHOP.User=ann*',  '1 2' ],
	[ '--setting=shop.other=x',    '2' ],
	[ '--setting=shop.user=',      '' ],
	[ '--rows=10000..',            '5' ],
	[ '--rows=..9999',             '' ],
	[ '--superuser',               '1', qr/warning: 1 record that .* does not say whether its user was a superuser/ ],
	[ '--object="a.b"',            '', qr/3 READ/ ],
	[ '--object=*"a.b"',           '4', qr/3 READ/ ],
	[ '--object=t',                '5', qr/3 READ records that match otherwise name no object/ ],
	[ '--object=y".t',             '', qr/3 READ/ ],
	[ '--from=1 month ago',        '2', qr/^\z/, $months ],
	[ '--from=2 months ago',       '1 2', qr/^\z/, $months ],
	[ '--from=-1 year',            '1 2', qr/^\z/, $months ],
	[ '--to=1 mon ago',            '1', qr/^\z/, $months ])
{
	my ($option, $expected, $message, $file) = @$case;
	my ($status, $stdout, $stderr) = trail('cat', $option, $file // $chosen);

	is("$status " . join(' ', map { parse_record($_)->{sequence} } split /\n/, $stdout), "0 $expected",
		"$option: chosen");
	$message //= $expected eq '' ? qr/^pg_audit_trail: no record matches, of 6 that were read\n\z/ : qr/^\z/;
	like($stderr, $message, "$option: message");
}

# What other options leave out is not counted as what does not tell.
my $untold = file('untold/1.json',
	(map { line($_, currentUser => 'alice', objectName => "public.t$_") } 1 .. 3),
	line(4, currentUser => 'alice', objectName => 'public.t1', superuser => JSON::PP::false),
	line(5, currentUser => 'alice', superuser => JSON::PP::false),
	line(6, currentUser => 'alice'));
my $told = (trail('cat', '--superuser', '--object=public.t1', $untold))[2];
like($told, qr/warning: 1 READ record that matches otherwise names no object, and is left out$/m,
	'--superuser and --object: a record without an object');
like($told, qr/warning: 1 record that matches otherwise does not say whether its user was a superuser, and is left out$/m,
	'--superuser and --object: a record that does not tell of its user');
like((trail('cat', '--superuser', $untold))[2], qr/warning: 4 records that match otherwise do not say whether their user/,
	'--superuser: records that do not tell');

# Text in the database's encoding: found in the terminal's, as far as that is possible
foreach my $database (qw(postgres latin1))
{
	my ($status, $stdout) = trail('cat', "--text=caf\xc3\xa9", "--database=$database", $dir);

	is(scalar(split /\n/, $stdout), 1, "a text in database $database");
}

# ---------------------------------------------------------------------------
# Other formats: as the server itself writes them
# ---------------------------------------------------------------------------

# What a session has only once, or what counts since the server has started
sub without_times
{
	my ($format, $text) = @_;
	my $time = qr/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})? IST/;

	return map { s/^$time \[\d+\]/TIME [PID]/r } split /\n(?!\t)/, $text if $format eq 'pgaudit';
	return map {
		my @columns = @{$_};
		$columns[$_] =~ s/^$time$/TIME/   foreach 0, 8;
		$columns[$_] =~ s/^[1-9]\d*$/N/   foreach 3, 10, 21;
		$columns[5]  =~ s/^[0-9a-f]+\.[0-9a-f]+$/SESSION/;
		$columns[9]  =~ s{^\d+/\d+$}{VXID};
		$columns[25] =~ s/^-?[1-9]\d*$/QUERY/;
		join '|', @columns[ 0 .. 25 ]
	} parse_trail('csvlog', file('csv/one.csv', $text));
}

sub of_sessions
{
	my ($format, @records) = @_;

	return $format eq 'pgaudit' ? grep { /^TIME \[PID\] .{0,5} (?:alice|b,o"b)@/ } @records :
	  grep { /^TIME\|(?:alice|b,o"b)\|/ } @records;
}

$ENV{TZ} = 'Asia/Kolkata';
foreach my $format (qw(csvlog pgaudit))
{
	my ($status, $converted, $stderr) = trail('cat', "--format=$format", $dir);

	is($status, 0, "$format: status");
	is($stderr, '', "$format: no message");
	my ($default) = $node->safe_psql('postgres', 'SHOW pg_audit_queue.log_line_prefix');
	is($default, '%m [%p] %e %q%u@%d %h ', 'the default prefix') if $format eq 'pgaudit';
	use_format($format);
	run_sessions();
	flush_trail($node);
	my $ending = { csvlog => 'csv', pgaudit => 'log' }->{$format};
	my $written = join '', map { slurp_file($_) } grep { /\.$ending$/ } trail_files($node);
	my @ours   = of_sessions($format, without_times($format, $converted));
	my @theirs = of_sessions($format, without_times($format, $written));

	# a terminal gets no control characters, but those that the format needs
	@theirs = map { s/([\r\e\x7f\x8f])/sprintf '\x%02x', ord $1/ger } @theirs if $format eq 'pgaudit';
	cmp_ok(scalar @theirs, '>', 100, "$format: the server has written records");
	is(scalar @ours, scalar @theirs, "$format: so have we");
	my @different = grep { ($ours[$_] // '') ne $theirs[$_] } 0 .. $#theirs;
	is_deeply(\@different, [], "$format: as the server")
	  or diag explain [ $ours[ $different[0] ], $theirs[ $different[0] ] ];

	# Files in that format are passed through, and cannot be anything else.
	my ($file) = grep { /\.$ending$/ } trail_files($node);

	prints([ 'cat', '-f', $format, $file ], slurp_file($file), "$format: a file as it is");
	complains([ 'cat', $file ], 2,
		qr/"\Q$file\E" cannot be written in format json\n.*hint: Use --format=$format\./, '',
		"$format: not as json");
	complains([ 'cat', '-f', 'table', $file ], 2, qr/cannot be written in format table/, '',
		"$format: not as a table");
	my ($mixed, undef, $left_out) = trail('cat', $dir);
	is($mixed, 2, "$format: nor in a directory");
	like($left_out, qr/$ending" cannot be written in format json\n.*Use --format=/, "$format: it is named");
	complains([ 'cat', '-f', $format, '--user=alice', $file ], 2, qr/only be chosen by --text/, '',
		"$format: no other filter");
	my ($found) = (trail('cat', '-f', $format, '--text=division by', '--count', $file))[1];
	is($found > 0, $format eq 'csvlog', "$format: --text");
	my ($count) = (trail('cat', '-f', $format, '--count', $file))[1];
	is($count + 0, scalar(without_times($format, slurp_file($file))), "$format: --count");
	unlink($file) or die "unlink: $!";
	use_format('json');
	unlink(grep { /\.$ending$/ } trail_files($node));
}
$ENV{TZ} = 'UTC';

# Of a GAP record, one that was interrupted, and one without a client; what the
# zone is called is not known if it is not the local one
my $odd = file('odd.json',
	line(1, type => 'gap', class => 'GAP', command => undef, exitCode => undef, dbUserName => undef,
		databaseName => undef, errorMessage => 'lost: "2", or more', rowCount => 2,
		logTime => '2026-11-20T10:11:12.123456+05:30'),
	line(2, exitCode => '57P02', interrupted => \1, cut => \1, paramList => undef, sessionId => 'a.b',
		sessionStart => '1970-01-01T00:00:10.000000+00:00', pid => 11, remoteHost => '10.1.2.3', remotePort => '99', commandText => "x\e[1m\x{9b}y",
		policy => 'the "night"', settings => { 'a.b' => 'c,"d"' },
		logTime => '2026-11-20T10:11:12.999999+00:00'),
	line(3, remoteHost => undef, commandTextOmitted => 'not logged', paramListOmitted => 'not logged'));
prints(
	[ 'cat', '-f', 'csvlog', $odd ],
	join('',
		map { "$_\n" }
		  '2026-11-20 10:11:12.123 +05:30,,,,,0.0,-1,,,,0,WARNING,,'
		  . '"AUDIT: GAP,0,0,GAP,,,,""lost: """"2"""", or more"",<none>",,"series=0",,,,,,"1",,,,0',
		  '2026-11-20 10:11:12.999 UTC,"alice","shop",11,"10.1.2.3:99",a.b,-2,"SELECT",1970-01-01 00:00:10 UTC,,0,LOG,57P02,'
		  . "\"AUDIT: SESSION,0,0,READ,SELECT,,,x\e[1m\xc2\x9by,\",,\"series=0,interrupted,cut,"
			. 'policy=""the """"night"""""",a.b=""c,""""d""""""",,,,,,"2",,,,0',
		  '2026-11-20 10:00:03.000 UTC,"alice","shop",,,0.0,-3,,,,0,LOG,00000,'
		  . '"AUDIT: SESSION,0,0,READ,SELECT,,,<not logged>,<not logged>",,"series=0",,,,,,"3",,,,0'),
	'rare records in format csvlog');
prints(
	[ 'cat', '-f', 'pgaudit', $odd ],
	join('',
		map { "$_\n" } '2026-11-20 10:11:12.123 +05:30 [0]  LOG:  AUDIT: GAP,0,0,GAP,,,,'
		  . '"lost: ""2"", or more",<none>',
		'2026-11-20 10:11:12.999 UTC [11] 57P02 alice@shop 10.1.2.3 LOG:  '
		  . 'AUDIT: SESSION,0,0,READ,SELECT,,,x\x1b[1m\xc2\x9by,',
		'2026-11-20 10:00:03.000 UTC [0] 00000 LOG:  '
		  . 'AUDIT: SESSION,0,0,READ,SELECT,,,<not logged>,<not logged>'),
	'and in format pgaudit');

# ---------------------------------------------------------------------------
# A table
# ---------------------------------------------------------------------------

my $table = file('table.json',
	line(1, commandText => "a\nb\e]0;title\a\x7f\x{9b}31m\x{202e}" . 'c' x 100, objectName => 'public.t'),
	line(2, exitCode => '42501', errorMessage => 'permission denied', commandText => 'DELETE'),
	line(3, type => 'gap', class => 'GAP', command => undef, exitCode => undef, errorMessage => 'lost'),
	line(4, class => 'CONFIG', command => 'SET', oldValue => 'off', newValue => 'on'));
my ($status, $stdout) = trail('cat', '--format=table', $table);
my @table = split /\n/, $stdout;
like($table[0], qr/^time +user +address +database +class +command +object +outcome text$/,
	'table: header');
like($table[1], qr/^2026-11-20 10:00:01\.000 alice +shop +READ +SELECT +public\.t +ok +a\\nb/,
	'table: a record');
like($table[1], qr/\Qb\x1b]0;title\x07\x7f\xc2\x9b31m\xe2\x80\xae\E(c{100})$/,
	'table: control characters are shown, the text is whole');
unlike($stdout, qr/[^\n\x20-\x7e]/, 'table: no other bytes');
like($table[2], qr/ 42501 +permission denied \| DELETE$/, 'table: a failure');
like($table[3], qr/ GAP .* lost$/, 'table: a gap');
like($table[4], qr/ off -> on$/, 'table: values of a setting');
my %shown = (
	40  => 'time user command',
	80  => 'time user command outcome text',
	100 => 'time user address command outcome text',
	132 => 'time user address command object outcome text',
	200 => 'time user address database class command object outcome text');
foreach my $columns (sort { $a <=> $b } keys %shown)
{
	local $ENV{COLUMNS} = $columns;
	my @fitted = split /\n/, (trail('cat', '--format=table', $table))[1];

	is_deeply([ grep { length > $columns } @fitted ], [], "table: it fits into $columns columns");
	is($fitted[0] =~ s/ +/ /gr, $shown{$columns}, "table: what $columns columns have space for");
	like($fitted[1], qr/~$/, "table: the text is cut in $columns columns") if $columns =~ /^(?:80|100|132)$/;
}
my @colored = split /\n/, (trail('cat', '--format=table', '--color=always', $table))[1];
like($colored[2], qr/^\e\[31m.*\e\[0m$/, 'table: failures are red');
like($colored[3], qr/^\e\[33m.*\e\[0m$/, 'table: gaps are yellow');
unlike($colored[1], qr/\e/, 'table: others are plain');

# On a terminal of 90 columns
{
	my @seen = split /\n/, trail_on_terminal('cat', '--format=table', $table);

	like($seen[2], qr/^\e\[31m[^\e]*\e\[0m$/, 'terminal: colors');
	is_deeply([ grep { length s/\e\[\d+m//gr > 90 } @seen ], [], 'terminal: its width');
	cmp_ok(scalar(grep { length s/\e\[\d+m//gr > 80 } @seen), '>', 0, 'terminal: which is used');
	{
		local $ENV{NO_COLOR} = '1';
		unlike(trail_on_terminal('cat', '--format=table', $table), qr/\e/, 'terminal: NO_COLOR');
	}
	unlike(trail_on_terminal('cat', '--format=table', '--color=never', $table),
		qr/\e/, 'terminal: --color=never');
	foreach my $format (qw(json csvlog pgaudit table))
	{
		my $shown = trail_on_terminal('cat', '--color=never', "--format=$format", $table);

		unlike($shown, qr/[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]/, "terminal: $format is harmless");
		like($shown, qr/c{10}/, "terminal: $format has the text") if $format ne 'table';
	}
	my @decoded = map { parse_record($_) } split /\n/, trail_on_terminal('cat', $table);
	my @original = map { parse_record($_) } split /\n/, slurp_file($table);
	is_deeply(\@decoded, \@original, 'terminal: json means the same');
	my $log = file('harmful.log', "2026-11-20 10:11:12.123 UTC [1] 00000 LOG:  AUDIT: \e[31m,\n\tx\n");
	is(trail_on_terminal('cat', '-f', 'pgaudit', $log),
		"2026-11-20 10:11:12.123 UTC [1] 00000 LOG:  AUDIT: \\x1b[31m,\n\tx\n",
		'terminal: a file of format pgaudit');
	like(trail_on_terminal('cat', '--progress', '--count', $table), qr{\A4\n\z}, 'terminal: nothing to report');
}

# Somebody reads so slowly that there is progress to report.
{
	my $large = file('large.json', map { line($_) } 1 .. 5000);
	my $report;
	my $run = on_terminal('2',
		sub { IPC::Run::start([ $program, 'cat', '--progress', $large ], '>pipe', \*SLOW, '2>', \$report) });

	sleep 1.1;
	1 while read SLOW, my $read, 65536;
	close SLOW;
	$run->finish;
	is($run->full_result(0), 0, 'all is read');
	like($report, qr{\A\r\d/1 MB \(\d+%\), \d+ MB/s}, 'progress is reported');
	like($report, qr{\r1/1 MB \(100%\), \d+ MB/s +\s*\z}, 'up to the end');
}

# ---------------------------------------------------------------------------
# Order
# ---------------------------------------------------------------------------

file('order/z.json', line(1), line(2));
file('order/b.json', line(3, logTime => undef), line(4));
file('order/a.json', line(6, logTime => '2026-11-20T11:00:05.5+01:00'));
file('order/m.json', line(5, logTime => '2026-11-20T10:00:05.5Z'));
file('order/same.10.json', line(8, logTime => '2026-11-20T10:00:08Z', sequence => 8));
file('order/same.9.json', line(8, logTime => '2026-11-20T10:00:08Z', sequence => 8, command => 'X'));
file('order/empty.json');
file('order/notes.txt', "no trail\n");
file('order/core', "no trail\n");
mkdir("$base/order/sub.json");
symlink("$base/order", "$base/order/link.json") or die "symlink: $!";
is( join(' ', map { parse_record($_)->{sequence} } split /\n/, (trail('cat', "$base/order"))[1]),
	'1 2 3 4 5 6 8 8', 'files in the order of their records');
like((trail('cat', '--command=X', '--from-sequence=8', "$base/order"))[1], qr/"X"/, 'names');
my @same = split /\n/, (trail('cat', '--from-sequence=8', "$base/order"))[1];
like($same[0], qr/"X"/, 'numbers in names count');
prints([ 'cat', "$base/order/empty.json" ], '', 'an empty file');
mkdir("$base/nothing");
prints([ 'cat', "$base/nothing" ], '', 'an empty directory');

# ---------------------------------------------------------------------------
# Damage
# ---------------------------------------------------------------------------

my @good = map { line($_) } 1 .. 3;
my $at   = length $good[0];
foreach my $case (
	[ 'no JSON', "garbage\n" ],
	[ 'an empty line', "\n" ],
	[ 'another object', qq({"a":1}\n) ],
	[ 'an array', "[1]\n" ],
	[ 'a field twice', $good[1] =~ s/"sequence":2/"sequence":2,"sequence":3/r ],
	[ 'a field twice, disguised', $good[1] =~ s/"sequence":2/"sequence":2,"s\\u0065quence":3/r ],
	[ 'another type', $good[1] =~ s/"sequence":2/"sequence":"2"/r ],
	[ 'more behind it', $good[1] =~ s/\}$/}}/r ],
	[ 'no end', $good[1] =~ s/\}$//r ],
	[ 'a control character', $good[1] =~ s/alice/ali\x01ce/r ],
	[ 'a zero', $good[1] =~ s/alice/ali\0ce/r ],
	[ 'no UTF-8', $good[1] =~ s/alice/ali\xffce/r ],
	[ 'half a character', $good[1] =~ s/alice/ali\\ud83dce/r ],
	[ 'a wrong escape', $good[1] =~ s/alice/ali\\xce/r ],
	[ 'deep nesting', '{"type":"record","formatVersion":1,"x":' . '[' x 1000 . ']' x 1000 . "}\n" ],
	[ 'a wrong number', $good[1] =~ s/"sequence":2/"sequence":02/r ])
{
	my ($name, $bad) = @$case;

	complains([ 'cat', file('bad.json', $good[0], $bad, $good[2]) ],
		1, qr/error: file ".*bad\.json": the line at byte $at is no record\n\z/, $good[0] . $good[2], $name);
}
foreach my $case (
	[ 'white space', $good[1] =~ s/([,:{}])/ $1 /gr =~ s/00 : 00 : 02/00:00:02/r =~ s/10 : 00 : 02/10:00:02/r
		  =~ s/\+00 : 00/+00:00/r ],
	[ 'fields that are unknown', $good[1] =~ s/\}$/,"x":{"y":[1,{"z":[null,true]},-1.5e+3]},"":[]}/r ],
	[ 'another order', $good[1] =~ s/\{(.*?),(.*)\}/{$2,$1}/r ],
	[ 'a character in two halves', $good[1] =~ s/alice/\\ud83d\\ude00/r ])
{
	prints([ 'cat', file('good.json', $case->[1]) ], $case->[1], $case->[0]);
}
prints([ 'cat', '--count', "--user=\xf0\x9f\x98\x80", "$base/good.json" ], "1\n", 'which is one character');

# A line as the server writes it, where each field has a value of each type
my %values = (
	STRING => '"a"',
	TIME   => '"2026-11-20T10:00:00+00:00"',
	NUMBER => '17',
	BOOLEAN => 'false',
	ARRAY  => '["a",null]',
	OBJECT => '{"a":"b","c":1}');
my @never = ('true', '[1]', '{"a":[]}', '{"a":true}', 'nul', '01', '"a\x01"', '"\\x"');
my @fields = slurp_file("$FindBin::RealBin/../../src/record/fieldlist.h") =~
  /^PAQ_TRAIL_FIELD\(\w+, \w+, ("\w+"), (?:"\w+"|NULL), (\w+),/mg;
my @pairs;

push @pairs, [ splice(@fields, 0, 2) ] while @fields;
cmp_ok(scalar @pairs, '>', 50, 'the list of fields is read');
my $served = '{' . join(',', map { "$_->[0]:null" } @pairs) . "}\n";
$served =~ s/"type":null,"formatVersion":null/"type":"record","formatVersion":1/ or die $served;
my (@taken, @refused);

foreach my $pair (@pairs)
{
	my ($name, $type) = @$pair;

	foreach my $other (sort keys %values)
	{
		my $is_type = $values{$other} =~ /^(?!")/ ? $other eq $type : $type =~ /^(?:STRING|TIME)$/;
		my $line = $served =~ s/\Q$name\E:[^,}]+/$name:$values{$other}/r;

		push @taken, $line if $is_type;
		push @refused, $line if !$is_type;
	}
	push @refused, map { $served =~ s/\Q$name\E:[^,}]+/$name:$_/r }
	  grep { $_ ne 'true' || $type ne 'BOOLEAN' } @never;
	push @refused, $served =~ s/(\Q$name\E:[^,}]+)/$1,$1/r, $served =~ s/(\Q$name\E:[^,}]+)/$1x/r,
	  $served =~ s/\}$/,$name:null}/r;
}
prints([ 'cat', file('taken.json', @taken) ], join('', @taken), 'each field, of its type');
my ($refused_status, $refused_out, $refused_err) = trail('cat', file('refused.json', @refused));
is("$refused_status $refused_out", '1 ', 'no field of another type, none twice, nothing behind a value');
like($refused_err, qr/: ${\(@refused - 10)} more lines are no records\n\z/, 'all of them are counted');

# The session's part of a line is kept: it must never be taken for another one's.  Lines whose
# parts differ in one value, one behind the other, become what each becomes alone.
my @of_session = slurp_file("$FindBin::RealBin/../../src/record/fieldlist.h") =~
  /^PAQ_TRAIL_FIELD\(SESSION, \w+, ("\w+"), (?:"\w+"|NULL), \w+,/mg;
my $names = join('|', @of_session);
my $sample = $served =~ s/($names):null/$1:"a1"/gr =~ s/"pid":"a1"/"pid":11/r
  =~ s/("sessionStart":)"a1"/$1"2026-11-20T10:00:00+00:00"/r =~ s/"superuser":"a1"/"superuser":true/r;
my @sessions = ($sample);

cmp_ok(scalar @of_session, '>', 20, "the session's fields");
foreach my $name (@of_session)
{
	push @sessions, $sample =~ s/($name:"?[^",}]+)1/${1}2/r =~ s/($name:)true/$1false/r, $sample,
	  $sample =~ s/$name:("[^"]+"|\d+|true)/$name:null/r, $sample =~ s/$name:("[^"]+"|\d+|true),//r,
	  $sample;
}
push @sessions, map { $sample =~ s/"sessionId":"a1"/"sessionId":"6b0a9284.$_"/r } 1 .. 150, 1 .. 150;
push @sessions, $sample =~ s/("clientApplication":"a)1/$1 . "1" x 1_000_000/er, $sample,
  $sample =~ s/("clientApplication":"a)1/$1\\n1/r, $sample;
foreach my $schema ('--ecs', '--ocsf')
{
	my %alone;

	$alone{$_} //= (trail('cat', $schema, file('alone.json', $_)))[1] foreach @sessions;
	cmp_ok(scalar(keys %{ { reverse %alone } }), '>', 160, "$schema: lines differ");
	prints([ 'cat', $schema, file('sessions.json', @sessions) ],
		join('', map { $alone{$_} } @sessions), "$schema: each has its session's values");
}
is(join(' ', map { (trail('cat', '--count', "$_=a2", "$base/sessions.json"))[1] } '--user', '--database'),
	"3\n 1\n", 'a user that three lines have, each by another name, and a database that one has');
complains([ 'cat', file('bad_session.json', $sample, $sample =~ s/("dbUserName":"a1)"/$1/r, $sample) ],
	1, qr/the line at byte ${\length $sample} is no record\n\z/, $sample . $sample,
	'a part that only begins as the one before');

my ($many_status, undef, $many) = trail('cat', file('many.json', $good[0], "bad\n" x 25));
is($many_status, 1, 'many lines that are no records');
is(scalar(() = $many =~ /is no record\n/g), 10, 'the first ones are reported');
like($many, qr/: 15 more lines are no records\n\z/, 'the others are counted');
like((trail('cat', file('eleven.json', "no record\n" x 11)))[2], qr/: 1 more line is no record\n\z/, 'and one is, too');
complains([ 'cat', '--user=bob', file('one.json', line(1)) ], 0,
	qr/\Apg_audit_trail: no record matches, of 1 that was read\n\z/, '', 'of one record');

file('cut/1.json', $good[0], substr($good[1], 0, 50));
my ($cut_status, $cut_out, $cut_err) = trail('cat', "$base/cut");
is($cut_status, 0, 'the newest file ends within a record');
is($cut_out, $good[0], 'what is whole is printed');
like($cut_err, qr/ends within a record; it is being written, or was cut off/, 'it is mentioned');
file('cut/2.json', $good[2]);
complains([ 'cat', "$base/cut" ], 1, qr/ends within a record, but is not the newest one/,
	$good[0] . $good[2], 'another one does');
complains([ 'cat', "$base/cut/1.json" ], 1, qr/is not the newest one/, $good[0], 'by its name');
my ($torn, $torn_out) = trail(\"$good[0]half", 'cat', '-');
is("$torn $torn_out", "0 $good[0]", 'standard input that is cut off');
complains([ 'cat', '-f', 'csvlog', file('cut/3.csv', "a,\"b\nc\"\nd,\"e\n") ], 0,
	qr/ends within a record/, "a,\"b\nc\"\n", 'csvlog that is cut off');
complains([ 'cat', '-f', 'pgaudit', file('cut/4.log', "a\n\tb\nc\n\td") ], 0,
	qr/ends within a record/, "a\n\tb\n", 'pgaudit that is cut off');

# Very long records
my $long = line(1, commandText => 'LONG');
$long =~ s/LONG/'x\\"' x 4_000_000/e;
prints([ \$long, 'cat', '-' ], $long, 'a record of 12 MB');
is((trail('cat', '--count', '--text=x"x"', file('long.json', $long)))[1], "1\n", 'is searched');

# Nobody reads the output
is(system('sh', '-c', "'$program' cat '$dir' | head -n 1 >/dev/null 2>&1"), 0, 'a broken pipe');
my ($pipe_out, $pipe_err);
IPC::Run::run([ 'sh', '-c', "trap '' PIPE; { '$program' cat '$base/long.json'; echo \$? >&2; } | true" ],
	'>', \$pipe_out, '2>', \$pipe_err);
is($pipe_err, "141\n", 'is silent');
like((trail('cat', '/nonexistent/x.json'))[2], qr/^pg_audit_trail: error: /, 'messages have a prefix');
SKIP:
{
	skip 'there is no /dev/full', 2 if !-e '/dev/full';
	my $full_err;

	IPC::Run::run([ $program, 'cat', $dir ], '>', '/dev/full', '2>', \$full_err);
	is($? >> 8, 2, 'the disk is full: status');
	like($full_err, qr/could not write to standard output/, 'the disk is full');
}

# ---------------------------------------------------------------------------
# Compressed and encrypted files
# ---------------------------------------------------------------------------

my $key       = '00112233445566778899aabbccddeeff' x 2;
my $keys      = file('keys', "# keys\n$key\n");
my $other_key = file('other_key', 'f' x 64 . "\n");
my $plain     = join '', map { line($_, commandText => "SELECT $_") } 1 .. 200;
my $build_log;

chmod(0600, $keys, $other_key) == 2 or die "chmod: $!";
IPC::Run::run(
	[
		'make', '-C', $base, '-f', "$FindBin::RealBin/../lib/layers/Makefile", 'PG_CONFIG=pg_config',
		"PAQ_SRC=$FindBin::RealBin/../../src"
	],
	'>', \$build_log, '2>&1') or die "could not build write_layers: $build_log";

# Write a file with the layers of its name, in units of 10 lines.
sub write_layers
{
	my ($name, $text) = @_;

	IPC::Run::run([ "$base/write_layers", "$base/$name", 10, $name =~ /\.enc$/ ? $keys : () ],
		'<', \$text) or die "could not write $name";
	return "$base/$name";
}

my ($missing) = grep { $build_log !~ /-DPAQ_WITH_$_\b/ } qw(ZSTD LZ4 OPENSSL);
SKIP:
{
	if (defined $missing)
	{
		diag "NOT TESTED WITH LAYERS: this build has no $missing";
		skip "this build has no $missing", 1;
	}
	foreach my $name (qw(l.json.zst l.json.lz4 l.json.enc l.json.zst.enc l.json.lz4.enc))
	{
		my @keys  = $name =~ /enc$/ ? ('-K', $keys) : ();
		my $path  = write_layers($name, $plain);
		my $whole = slurp_file($path);

		prints([ 'cat', @keys, $path ], $plain, $name);
		prints([ 'cat', @keys, '--count', '--text=SELECT 15', $path ], "11\n", "$name: a filter");

		# Bytes are changed in the middle.
		my $changed = $whole;
		my $middle  = int(length($whole) / 2);
		substr($changed, $middle, 1) ^= "\x55";
		unlink($path);
		append_to_file($path, $changed);
		my ($damage, $out, $err) = trail('cat', @keys, $path);
		is($damage, 1, "$name: damaged");
		my ($from) = $err =~ /error: file "\Q$path\E": damaged from byte (\d+) on: \S/;
		cmp_ok($from // -1, '<=', $middle, "$name: from a byte before that on");
		my $number = () = $out =~ /\n/g;
		ok($number >= 80 && $number < 200 && index($plain, $out) == 0, "$name: up to there it is read");

		# The end is missing.
		unlink($path);
		append_to_file($path, substr($whole, 0, -20));
		($damage, $out, $err) = trail('cat', @keys, $path);
		like($err, qr/ends within a record/, "$name: cut off");
		ok($out ne '' && index($plain, $out) == 0, "$name: up to there it is read");
		unlink($path);
	}

	# A mixture in one directory
	mkdir("$base/mixed");
	write_layers("mixed/d.json.zst.enc", $good[0]);
	write_layers("mixed/c.json.lz4",     $good[1]);
	file('mixed/b.json', $good[2]);
	write_layers("mixed/a.json.enc", line(4));
	my $mixed = join '', @good, line(4);
	prints([ 'cat', '--decryption-keys', $keys, "$base/mixed" ], $mixed, 'a mixture');

	# Keys
	complains([ 'cat', "$base/mixed/a.json.enc" ], 2, qr/could not read file ".*enc": /, '', 'no key');
	complains([ 'cat', '-K', $other_key, "$base/mixed/a.json.enc" ], 2, qr/could not read file/, '', 'a wrong key');
	my $both = file('both', slurp_file($other_key), slurp_file($keys));
	chmod(0600, $both);
	prints([ 'cat', '-K', $both, "$base/mixed/a.json.enc" ], line(4), 'one of two keys');
	chmod(0640, $keys);
	complains([ 'cat', '-K', $keys, "$base/mixed" ], 2,
		qr/key file ".*keys" is accessible to its group or to others\n.*hint: Its permissions/, '',
		'a file of keys that others can read')
	  if $> != 0;
	chmod(0600, $keys);
	rename("$base/mixed/a.json.enc", "$base/mixed/e.json.enc") or die "rename: $!";
	isnt((trail('cat', '-K', $keys, "$base/mixed/e.json.enc"))[0], 0, 'another name');
	complains([ 'cat', '-K', file('no_key', "secret words\n"), $base ],
		2, qr/accessible|could not use key file "[^"]*": line 1 is no key/, '', 'no key in it');
	unlike((trail('cat', '-K', "$base/no_key", $base))[2], qr/secret/, 'it is not shown');
}
complains([ 'cat', '-K', "$base/no_file", $base ], 2, qr/could not open key file/, '', 'no file of keys');
complains([ 'cat', '-K', $base, $base ], 2, qr/is not a regular file/, '', 'a directory for keys');
foreach my $tool ([ 'zstd', 'zst' ], [ 'lz4', 'lz4' ])
{
	my ($name, $ending) = @$tool;

  SKIP:
	{
		if (system("command -v $name >/dev/null 2>&1") != 0)
		{
			diag "NOT TESTED WITH FILES OF $name: it is not installed";
			skip "$name is not installed", 3;
		}
		my $path = file("tool.$ending.json", $plain);

		system_or_bail($name, '-q', $path, "$path.$ending", $name eq 'zstd' ? ('-o', "$path.$ending") : ())
		  if $name eq 'lz4';
		system_or_bail($name, '-q', $path, '-o', "$path.$ending") if $name eq 'zstd';
		prints([ 'cat', "$path.$ending" ], $plain, "a file of $name");
	}
}

# ---------------------------------------------------------------------------
# follow
# ---------------------------------------------------------------------------

# Begin to follow; output and messages go into files, as there may be much of them.
sub start_following
{
	my (@arguments) = @_;
	my $out = PostgreSQL::Test::Utils::tempdir();
	my $run = IPC::Run::start([ $program, 'follow', @arguments ],
		'>', "$out/stdout", '2>', "$out/stderr");

	return { run => $run, out => "$out/stdout", err => "$out/stderr" };
}

# Wait until it has printed exactly that.
sub follows
{
	my ($following, $expected, $name) = @_;

	poll_until(sub { -e $following->{out} && slurp_file($following->{out}) eq $expected });
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(slurp_file($following->{out}), $expected, $name);
	return;
}

# Wait until it has looked at its files again: it sleeps in between.
sub looks_again
{
	my ($following) = @_;
	my $sleeps = sub {
		my ($number) = slurp_file("/proc/$following->{run}{KIDS}[0]{PID}/status") =~
		  /^voluntary_ctxt_switches:\s*(\d+)/m;
		return $number;
	};
	my $before = $sleeps->();

	ok(poll_until(sub { $sleeps->() >= $before + 2 }), 'follow: it looks again');
	return;
}

# End it by a signal; returns its status, as wait() does, and messages.
sub stop_following
{
	my ($following, $signal) = @_;

	$following->{run}->signal($signal);
	$following->{run}->finish;
	return ($following->{run}->full_result(0), slurp_file($following->{err}));
}

# A server's trail, over rotation
my @before = trail_lines($node);
my $expected = join '', map { "$_\n" } @before;
my $everything = start_following('--all', $dir);
my $last_three = start_following('-n', 3, $dir);
my $only_new   = start_following('--last=0', '--class=write', $dir);
follows($everything, $expected, 'follow: all that is there');
follows($last_three, join('', map { "$_\n" } @before[ -3 .. -1 ]), 'follow: the last three');
foreach my $round (1 .. 4)
{
	$node->safe_psql('postgres', "CREATE TABLE IF NOT EXISTS w (a int); INSERT INTO w VALUES ($round)");
	unaudited_sql($node, 'SELECT audit_rotate()') if $round % 2 == 0;
	rename((trail_files($node))[-1], "$dir/audit-2026-renamed.json") or die "rename: $!" if $round == 3;
	rename("$dir/audit-2026-renamed.json", "$dir/audit-3000-renamed.json") or die "rename: $!"
	  if $round == 4;
	flush_trail($node);
	$node->safe_psql('postgres', 'SELECT 1');
	flush_trail($node);
}
my @after = split /\n/, (trail('cat', $dir))[1];
cmp_ok(scalar @after, '>', @before + 8, 'follow: there are new records');
$expected = join '', map { "$_\n" } @after;
follows($everything, $expected, 'follow: over rotation, each record once');
follows($only_new,
	join('', map { "$_\n" } grep { parse_record($_)->{class} eq 'WRITE' } @after[ @before .. $#after ]),
	'follow: a filter');
is_deeply([ stop_following($everything, 'TERM') ], [ 0, '' ], 'follow: SIGTERM');
is_deeply([ stop_following($only_new, 'INT') ], [ 0, '' ], 'follow: SIGINT');
stop_following($last_three, 'TERM');

# A file that is written bit by bit, and cut off
my $growing = file('grow/1.json', $good[0], substr($good[1], 0, 30));
my $file_only = start_following('--all', $growing);
my $directory = start_following("$base/grow");
my $as_table  = start_following('--all', '--format=table', $growing);
follows($file_only, $good[0], 'follow: whole records only');
follows($directory, $good[0], 'follow: the last ones by default');
append_to_file($growing, substr($good[1], 30));
follows($file_only, $good[0] . $good[1], 'follow: the rest has come');
append_to_file($growing, 'unfinis');
append_to_file("$base/grow/2.json", '');
poll_until(sub { slurp_file($directory->{err}) =~ /not the newest/ });
like(slurp_file($directory->{err}), qr/1\.json" ends within a record, but is not the newest one/,
	'follow: a file that does not end, when there is another one');
truncate($growing, length($good[0] . $good[1])) or die "truncate: $!";
looks_again($file_only);
append_to_file($growing, $good[2]);
follows($file_only, join('', @good), 'follow: a file that was cut off goes on there');
append_to_file("$base/grow/2.json", $good[2]);
follows($directory, join('', @good), 'follow: in the other file');
append_to_file("$base/grow/2.json", "garbage\n" . line(4));
follows($directory, join('', @good, line(4)), 'follow: what is no record is left out');
file('grow/0.json', line(1, logTime => '2026-01-01T00:00:00Z'));
append_to_file("$base/grow/2.json", line(5));
follows($directory, join('', @good, line(4), line(5)), 'follow: an old file that appears is not read');
is_deeply([ stop_following($file_only, 'TERM') ], [ 0, '' ], 'follow: a file');
is((stop_following($directory, 'TERM'))[0], 1 << 8, 'follow: the status tells of damage');
poll_until(sub { (() = slurp_file($as_table->{out}) =~ /\n/g) == 4 });
like(slurp_file($as_table->{out}), qr/\Atime .*(?:\n2026-11-20 10:00:0\d.*){3}\n\z/, 'follow: a table');
stop_following($as_table, 'TERM');

# A directory that is still empty; files that are not to be followed
mkdir("$base/late") or die "mkdir: $!";
my $late = start_following("$base/late");
file('late/1.json', $good[0]);
follows($late, $good[0], 'follow: a first file');
file('late/2.csv', "a\n");
poll_until(sub { slurp_file($late->{err}) =~ /2\.csv/ });
like(slurp_file($late->{err}), qr/2\.csv" cannot be written in format json/, 'follow: another format');
is((stop_following($late, 'TERM'))[0], 2 << 8, 'follow: the status tells of it');

SKIP:
{
	skip "this build has no $missing", 1 if defined $missing;
	foreach my $name (qw(f.json.zst f.json.lz4 f.json.enc f.json.zst.enc))
	{
		my $path      = write_layers($name, $good[0]);
		my $following = start_following('--all', $name =~ /enc$/ ? ('-K', $keys) : (), $path);

		follows($following, $good[0], "follow: $name");
		my $size = -s $path;
		write_layers($name, $good[1]);
		follows($following, $good[0] . $good[1], "follow: $name grows");

		# its last unit is cut off, and written again
		truncate($path, $size) or die "truncate: $!";
		looks_again($following);
		write_layers($name, $good[2]);
		follows($following, join('', @good), "follow: $name is cut off");
		is_deeply([ stop_following($following, 'TERM') ], [ 0, '' ], "follow: $name ends");
	}
}

$node->stop;
done_testing();
