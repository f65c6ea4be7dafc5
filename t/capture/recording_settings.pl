#
# The settings that select records and their contents, beyond what sql/recording_settings.sql
# shows: parameters of the protocol, where settings come from, the two formats, and the
# privileges to change a setting.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use JSON::PP;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node(
	'main', conf => q{
	compute_query_id = on
	log_statement = none
	log_timezone = 'Asia/Kolkata'
	});
my $superuser = $node->safe_psql('postgres', 'SELECT user');

# What the text of a statement ends with if that was sent with a semicolon
my $end = shown_text($node, ';');
my @records;

unaudited_sql(
	$node, q{
	CREATE TABLE t (a int, b text);
	INSERT INTO t VALUES (1, 'one'), (2, 'two');
	CREATE TABLE u (a int);
	CREATE ROLE plain LOGIN;
	GRANT ALL ON t TO plain;
	CREATE DATABASE other;
	CREATE DATABASE mine OWNER plain;});
unaudited_sql($node, 'CREATE SCHEMA mine AUTHORIZATION plain', 'mine');

# role: what another session grants counts at once, even for a prepared statement

unaudited_sql($node,
	'CREATE ROLE auditor; CREATE ROLE auditors; GRANT auditors TO auditor');
@records = records_for(
	$node,
	sub {
		my $session = $node->background_psql('postgres');

		$session->query_safe('PREPARE p AS SELECT a FROM u');
		$session->query_safe('EXECUTE p');
		unaudited_sql($node, 'GRANT SELECT ON u TO auditor');
		$session->query_safe('EXECUTE p');
		unaudited_sql($node, 'REVOKE SELECT ON u FROM auditor');
		$session->query_safe('EXECUTE p');
		unaudited_sql($node, 'GRANT SELECT ON u TO auditors');
		$session->query_safe('EXECUTE p');
		$session->quit;
	},
	settings => { log => 'none', role => 'auditor' });
is_deeply(
	[ columns('auditType objectName', @records) ],
	[ ('OBJECT|public.u') x 2 ],
	'changes of grants by another session');

# log_parameter, log_parameter_max_size

my $client = PgProto->connect($node);

sub parameters_are
{
	my ($settings, $expected, $name) = @_;
	my @got;

	@records = records_for(
		$node,
		sub {
			$client->query(join '',
				map { "SET pg_audit_queue.$_ = '$settings->{$_}';" } sort keys %$settings);
			is( $client->parse('',
					'SELECT $1::text, $2::int, $3::text, $4::text, $5::bytea')
				  ->bind('', '', "a,\"b\"\n\x{c3}\x{a4}", 42, undef, '', '\xdeadbeef')
				  ->execute('')->sync,
				'1 2 D C:SELECT_1', "$name: statement with parameters");
		});
	is_deeply(
		[
			map { [ @{$_}{qw(paramList paramListOmitted)} ] }
			  grep { $_->{command} eq 'SELECT' } @records
		],
		[$expected],
		$name);
	return;
}

parameters_are({ log_parameter => 'on' },
	[ [ "a,\"b\"\n\x{e4}", '42', undef, '', '\xdeadbeef' ], undef ],
	'log_parameter = on');
parameters_are({ log_parameter_max_size => '4' },
	[ [ '<long param suppressed>', '42', undef, '', '\xdeadbeef' ], undef ],
	'log_parameter_max_size = 4');
parameters_are({ log_parameter_max_size => '3' },
	[ [ '<long param suppressed>', '42', undef, '', '<long param suppressed>' ], undef ],
	'log_parameter_max_size = 3');
parameters_are({ log_parameter => 'off' },
	[ undef, 'not logged' ],
	'log_parameter = off');
$client->quit;

# Fields of the JSON format

# A statement that tells what its record must say
my $self = q{SELECT concat_ws('|', pg_backend_pid(), pg_current_xact_id(),
	(SELECT virtualxid FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'virtualxid'),
	s.query_id, floor(extract(epoch from s.backend_start)), s.application_name,
	s.backend_type, (1000000 * extract(epoch from s.backend_start))::int8, current_setting('server_version'))
	FROM pg_stat_activity s WHERE pid = pg_backend_pid()};
my ($pid, $xid, $vxid, $query_id, $start, $application, $type, $start_us, $version);

# Run it as superuser after another statement, and a change of role.
sub tell_self
{
	my $sql = "SET application_name = 'app ä'; SET ROLE pg_monitor;"
	  . ($_[0] // '') . $self;

	local $ENV{PGAPPNAME} = 'at first';
	my $result = $node->safe_psql('postgres', "$sql;");

	($pid, $xid, $vxid, $query_id, $start, $application, $type, $start_us, $version) =
	  split /\|/, (split /\n/, $result)[-1];
	return;
}

# Epoch, in microseconds, of a time in a record.
sub epoch
{
	my ($time) = @_;

	return unaudited_sql($node,
		"SELECT (1000000 * extract(epoch from '$time'::timestamptz))::int8");
}

my $before = epoch('now');

@records = records_for($node, \&tell_self);
my $after = epoch('now');
my $record = $records[2];
my ($line) = grep { /"sequence":$record->{sequence},/ } trail_lines($node);
my ($documentation) =
  slurp_file("$FindBin::RealBin/../../doc/formats.md") =~ /^## Format json$(.*?)(?:^## |\z)/ms;
my @documented = $documentation =~ /^\| `(\w+)`/mg;

cmp_ok(scalar @documented, '>', 40, 'there is a list of documented fields');
is_deeply(
	[ $line =~ /[{,]"(\w+)":/g ],
	[ grep { !/^(?:interrupted|cut|incomplete|masked|part)$/ } @documented ],
	'fields are the documented ones, in that order');

my $system_identifier =
  unaudited_sql($node, 'SELECT system_identifier FROM pg_control_system()');
my $time = qr/"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+05:30"/;
my $number = qr/-?\d+/;
my %raw = (
	type                 => qr/"record"/,
	formatVersion        => qr/1/,
	sequence             => $number,
	series               => qr/[1-9]\d{0,15}/,
	logTime              => $time,
	startTime            => $time,
	endTime              => $time,
	durationUs           => $number,
	auditType            => qr/"SESSION"/,
	policy               => qr/null/,
	class                => qr/"READ"/,
	command              => qr/"SELECT"/,
	commandText          => qr/"SELECT concat_ws\((?:[^"\\]|\\.)*"/,
	commandTextOmitted   => qr/null/,
	statementLocation    => qr/null/,
	statementLength      => qr/null/,
	paramList            => qr/null/,
	paramListOmitted     => qr/"not logged"/,
	objectType           => qr/null/,
	objectName           => qr/null/,
	oldValue             => qr/null/,
	newValue             => qr/null/,
	valueSource          => qr/null/,
	rowCount             => qr/1/,
	exitCode             => qr/"00000"/,
	errorMessage         => qr/null/,
	statementId          => qr/3/,
	substatementId       => qr/1/,
	sessionLine          => qr/3/,
	sessionId            => qr/"@{[ sprintf '%x.%x', $start, $pid ]}"/,
	sessionStart         => $time,
	pid                  => qr/$pid/,
	backendType          => qr/"client backend"/,
	dbUserName           => qr/"\Q$superuser\E"/,
	sessionUser          => qr/"\Q$superuser\E"/,
	currentUser          => qr/"pg_monitor"/,
	superuser            => qr/false/,
	databaseName         => qr/"postgres"/,
	remoteHost           => qr/"\[local\]"/,
	remotePort           => qr/null/,
	netProtocol          => qr/"UNIX"/,
	dbProtocol           => qr/"Postgres 3.0"/,
	tlsVersion           => qr/null/,
	tlsCipher            => qr/null/,
	authMethod           => qr/"trust"/,
	clientApplication    => qr/\Q@{[ JSON::PP->new->allow_nonref->encode($application) ]}\E/,
	serverHost           => qr/"[^"]+"/,
	serverType           => qr/"PostgreSQL"/,
	serverVersion        => qr/"\Q$version\E"/,
	serviceName          => qr/"main"/,
	systemIdentifier     => qr/"$system_identifier"/,
	settings             => qr/null/,
	transactionId        => qr/$xid/,
	virtualTransactionId => qr/"\Q$vxid\E"/,
	queryId              => qr/$query_id/,
	textEncoding         => qr/null/,);

is_deeply(
	[ sort keys %raw ],
	[ sort grep { !/^(?:interrupted|cut|incomplete|masked|part)$/ } @documented ],
	'each documented field is tested');
foreach my $field (@documented)
{
	next if !$raw{$field};
	like($line, qr/[{,]"$field":(?:$raw{$field})[,}]/, "json: $field");
}
ok( $before <= epoch($record->{startTime})
	  && epoch($record->{startTime}) <= epoch($record->{endTime})
	  && epoch($record->{endTime}) <= $after,
	'json: times are plausible');
is($record->{durationUs},
	epoch($record->{endTime}) - epoch($record->{startTime}),
	'json: duration is the difference of the times');
is($record->{logTime}, $record->{endTime}, 'json: log time is the end');
is(epoch($record->{sessionStart}), $start_us, 'json: session start');
is($records[1]{transactionId}, undef, 'json: no transaction id without one');
is($records[0]{currentUser}, $superuser, 'json: current user before SET ROLE');


@records = records_for($node, 'SET SESSION AUTHORIZATION plain; SELECT 1;');
is($records[1]{dbUserName}, $superuser, 'json: user that logged in');
is($records[1]{sessionUser}, 'plain', 'json: session user');
is($records[1]{currentUser}, 'plain', 'json: current user');

# Where settings come from: role, database, session

sub counts_are
{
	my ($expected, $name) = @_;
	my %count;

	foreach my $who ([ $superuser, 'postgres' ], [ 'plain', 'postgres' ],
		[ $superuser, 'other' ], [ 'plain', 'other' ])
	{
		my ($user, $database) = @$who;

		@records = records_for(
			$node,
			sub {
				$node->safe_psql($database, 'SELECT 1; SHOW work_mem;',
					extra_params => [ '-U', $user ]);
			});
		$count{"$user $database"} = join ',', map { $_->{class} } @records;
	}
	is_deeply(
		\%count,
		{
			map {
				my $key = $_;
				($key =~ s/super/$superuser/r => $expected->{$key})
			} keys %$expected
		},
		$name) or diag explain \%count;
	return;
}

counts_are(
	{
		'super postgres' => 'READ,MISC',
		'plain postgres' => 'READ,MISC',
		'super other'    => 'READ,MISC',
		'plain other'    => 'READ,MISC'
	},
	'the setting of the server');
unaudited_sql($node, q{ALTER ROLE plain SET pg_audit_queue.log = 'read'});
counts_are(
	{
		'super postgres' => 'READ,MISC',
		'plain postgres' => 'READ',
		'super other'    => 'READ,MISC',
		'plain other'    => 'READ'
	},
	'the setting of a role');
unaudited_sql($node, q{ALTER DATABASE other SET pg_audit_queue.log = 'misc'});
counts_are(
	{
		'super postgres' => 'READ,MISC',
		'plain postgres' => 'READ',
		'super other'    => 'MISC',
		'plain other'    => 'READ'
	},
	'the setting of a database gives way to that of a role');
unaudited_sql($node,
	q{ALTER ROLE plain IN DATABASE other SET pg_audit_queue.log = 'none'});
counts_are(
	{
		'super postgres' => 'READ,MISC',
		'plain postgres' => 'READ',
		'super other'    => 'MISC',
		'plain other'    => ''
	},
	'the setting of a role in a database');
unaudited_sql(
	$node, q{
	ALTER ROLE plain RESET pg_audit_queue.log;
	ALTER ROLE plain IN DATABASE other RESET pg_audit_queue.log;
	ALTER DATABASE other RESET pg_audit_queue.log;});

# Nobody but a superuser changes any setting

my @settings = split /\n/, unaudited_sql(
	$node, q{
	SELECT name || '|' || coalesce(reset_val, '') FROM pg_settings
	WHERE name LIKE 'pg\_audit\_queue.%' ORDER BY 1});

cmp_ok(scalar @settings, '>=', 26, 'there are settings');
foreach my $setting (@settings)
{
	my ($name, $value) = split /\|/, $setting, 2;

	my @attempts = (
		"SET $name = '$value'",
		"SET LOCAL $name = '$value'",
		"RESET $name",
		"SELECT set_config('$name', '$value', false)",
		"ALTER ROLE plain SET $name = '$value'",
		"ALTER DATABASE mine SET $name = '$value'",
		"ALTER SYSTEM SET $name = '$value'",
		"CREATE FUNCTION mine.f() RETURNS int LANGUAGE sql SET $name = '$value' AS 'SELECT 1'");
	my ($ret, $out, $err) = $node->psql(
		'mine',
		join(";\n", @attempts, ''),
		on_error_stop => 0,
		extra_params  => [ '-U', 'plain' ]);
	my %refused = map { $_ => 1 }
	  $err =~ /^psql:<stdin>:([0-9]+): ERROR:  (?:permission denied to set parameter|parameter "\Q$name\E" cannot be)/mg;

	is_deeply(
		[ grep { !$refused{ $_ + 1 } } 0 .. $#attempts ],
		[], "not for everybody: $name") or diag $err;

	local $ENV{PGOPTIONS} = "-c $name=" . ($value =~ s/([\s\\])/\\$1/gr);
	# nothing on standard input: psql exits before it reads that
	($ret, $out, $err) =
	  $node->psql('postgres', '', extra_params => [ '-U', 'plain' ]);

	ok($ret != 0 && $err =~ /FATAL:  (?:permission denied to set parameter|parameter "\Q$name\E" cannot be)/,
		"not for everybody: PGOPTIONS $name") or diag "$ret: $err";
}
is_deeply(
	[
		split /\n/,
		unaudited_sql(
			$node, q{
			SELECT name || '|' || coalesce(reset_val, '') FROM pg_settings
			WHERE name LIKE 'pg\_audit\_queue.%' ORDER BY 1})
	],
	\@settings,
	'nothing has changed');

# The pgaudit format and its prefix

my $prefix =
    'a=%a|u=%u|d=%d|r=%r|h=%h|b=%b|p=%p|t=%t|m=%m|n=%n|i=%i|e=%e|c=%c|l=%l|'
  . 's=%s|v=%v|x=%x|Q=%Q|L=%L|pct=%%|pad=[%8e][%-8e][%3i][%-12i][%20r]|z=%z|%qq ';

$node->append_conf('postgresql.conf',
	settings_text(format => 'pgaudit', log_line_prefix => $prefix));
$node->reload;
$before = epoch('now');
ok( poll_until(
		sub {
			# the worker starts another file when it has seen the setting
			$node->safe_psql('postgres', 'SELECT 1');
			flush_trail($node);
			grep { /\.log$/ } trail_files($node);
		}),
	'a reload changes the format');

sub log_lines
{
	return map { split /^(?!\t)/m, slurp_file($_) }
	  grep { /\.log$/ } trail_files($node);
}

my $known = () = log_lines();
tell_self(q{SELECT 'two
lines', '"';});
flush_trail($node);
my @lines = log_lines();
splice @lines, 0, $known;

is(scalar @lines, 4, 'four records');
my ($fields, $message) = $lines[3] =~ /\A(.*?)LOG:  (.*)\n\z/s;
my %got = map { split /=/, $_, 2 } split /\|/, $fields;
my $zone = qr/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})? IST/;

is($got{a}, $application, 'prefix: %a');
is($got{u}, $superuser, 'prefix: %u');
is($got{d}, 'postgres', 'prefix: %d');
is($got{r}, '[local]', 'prefix: %r');
is($got{h}, '[local]', 'prefix: %h');
is($got{b}, $type, 'prefix: %b');
is($got{p}, $pid, 'prefix: %p');
like($got{t}, qr/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d IST$/, 'prefix: %t');
like($got{m}, qr/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} IST$/, 'prefix: %m');
like($got{n}, qr/^\d+\.\d{3}$/, 'prefix: %n');
ok($before / 1000000 <= $got{n} && $got{n} <= epoch('now') / 1000000,
	'prefix: %n is now');
is($got{i}, 'SELECT', 'prefix: %i');
is($got{e}, '00000', 'prefix: %e');
is($got{c}, sprintf('%x.%x', $start, $pid), 'prefix: %c');
is($got{l}, 4, 'prefix: %l');
like($got{s}, qr/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d IST$/, 'prefix: %s');
is($got{v}, $vxid, 'prefix: %v');
is($got{x}, $xid, 'prefix: %x');
is($got{Q}, $query_id, 'prefix: %Q');
is($got{L}, '[local]', 'prefix: %L');
is($got{pct}, '%', 'prefix: %%');
is($got{pad}, '[   00000][00000   ][SELECT][SELECT      ][             [local]]',
	'prefix: paddings');
is($got{z}, '', 'prefix: what is no escape');
like($fields, qr/\|q \z/, 'prefix: %q in a session');
is($message,
	'AUDIT: SESSION,4,1,READ,SELECT,,,"'
	  . ("$self$end" =~ s/\n/\n\t/gr)
	  . '",<not logged>',
	'pgaudit: message');
like($lines[0], qr/\|x=0\|/, 'prefix: %x without a transaction id');
like($lines[2],
	qr/LOG:  AUDIT: SESSION,3,1,READ,SELECT,,,"SELECT 'two\n\tlines', '""'$end",<not logged>\n\z/,
	'pgaudit: newlines and quotes');

# log_rows, and an outcome that is none

$known = () = log_lines();
$node->psql(
	'postgres', q{SET pg_audit_queue.log_rows = on; SELECT * FROM t LIMIT 2;
	SELECT 1 / (a - a) FROM t; SET pg_audit_queue.log_parameter = on; CHECKPOINT;},
	on_error_stop => 0);
flush_trail($node);
@lines = log_lines();
splice @lines, 0, $known;
is_deeply(
	[ map { /\|e=(.{5})\|.*?LOG:  AUDIT: (.*)/ ? "$1 $2" : $_ } @lines ],
	[
		'00000 SESSION,0,0,CONFIG,SET,SETTING,pg_audit_queue.log_rows,,"off,on,session"',
		"00000 SESSION,1,1,MISC,SET,,,SET pg_audit_queue.log_rows = on$end,<not logged>,0",
		"00000 SESSION,2,1,READ,SELECT,,,SELECT * FROM t LIMIT 2$end,<not logged>,2",
		"22012 SESSION,0,0,READ,SELECT,,,SELECT 1 / (a - a) FROM t$end,<not logged>,0",
		'00000 SESSION,0,0,CONFIG,SET,SETTING,pg_audit_queue.log_parameter,,"off,on,session"',
		"00000 SESSION,3,1,MISC,SET,,,SET pg_audit_queue.log_parameter = on$end,<none>,0",
		"00000 SESSION,4,1,MISC,CHECKPOINT,,,CHECKPOINT$end,<none>,0"
	],
	'pgaudit: log_rows = on, and SQLSTATE');

# and back
$node->adjust_conf('postgresql.conf', 'pg_audit_queue.format', 'json');
$node->reload;
ok( poll_until(
		sub {
			$node->safe_psql('postgres', q{SELECT 'json again'});
			flush_trail($node);
			grep { /^\{.*'json again'/ } trail_lines($node);
		}),
	'a reload changes the format back');

done_testing();
