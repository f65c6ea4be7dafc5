# pg_audit_trail cat --ocsf and --ecs: records as events of published schemas.  Each line
# is what its schema demands, nothing of a record is lost, and the values are the
# right ones.
#
# schemas/ has the facts of the two schemas, in the terms of JSON Schema, and the program
# that compares: it breaks the lines, too, and notices whether that is noticed.  The
# validator is python3-jsonschema, which knows nothing of us.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use IPC::Run;
use JSON::XS;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_trail_program();
my $python = python();

if (!defined $python || system("$python -c 'import jsonschema' >/dev/null 2>&1") != 0)
{
	diag 'NOT TESTED: there is no module jsonschema for Python (Debian: python3-jsonschema)';
	plan skip_all => 'no module jsonschema for Python';
}
$ENV{TZ} = 'UTC';

my $schemas = "$FindBin::RealBin/../lib/schemas";
my $base    = PostgreSQL::Test::Utils::tempdir();
my $json    = JSON::XS->new->canonical->allow_nonref;

# A file below $base; returns its path.
sub file
{
	my ($name, @content) = @_;

	unlink("$base/$name");
	append_to_file("$base/$name", join('', @content));
	return "$base/$name";
}

# A line of the trail, of these fields and those that each line has
sub line
{
	my (%fields) = @_;
	my %record = (
		type          => 'record',
		formatVersion => 1,
		sequence      => 1,
		logTime       => '2026-11-20T10:11:12.123456+05:30',
		class         => 'READ',
		command       => 'SELECT',
		exitCode      => '00000',
		%fields);

	return JSON::XS->new->canonical->utf8->encode(\%record) . "\n";
}

# The lines in which a format shows a trail, compared with its schema
sub checked
{
	my ($format, $name, @paths) = @_;
	my ($status, $printed, $complaints) = trail_program('cat', "--$format", @paths);
	my ($stdout, $stderr);

	is("$status|$complaints", '0|', "$name, $format: printed");
	ok( IPC::Run::run(
			[ $python, "$schemas/check_schemas.py", "$schemas/$format.json", file('printed', $printed) ],
			'>', \$stdout, '2>', \$stderr),
		"$name, $format: JSON without names that are there twice") or BAIL_OUT($stderr);
	my $result = decode_json($stdout);
	is_deeply($result->{errors}, [], "$name, $format: as the schema demands");
	cmp_ok($result->{broken}, '>', 30, "$name, $format: lines are broken on purpose");
	is_deeply($result->{accepted}, [], "$name, $format: which is noticed");
	return @{ $result->{flat} };
}

# ---------------------------------------------------------------------------
# Usage
# ---------------------------------------------------------------------------

my $one = file('one.json', line());
foreach my $case (
	[ '--ocsf', '--ecs' ],
	[ '--ecs', '--ocsf' ],
	[ '--ocsf', '--format=json' ],
	[ '-f', 'ecs', '--ecs' ])
{
	my ($status, $stdout, $stderr) = trail_program('cat', @$case, $one);

	is("$status|$stdout", '2|', "@$case: status");
	like($stderr, qr/error: options --\w+ and --\w+ cannot be used together\n.*hint: Try/,
		"@$case: message");
}
foreach my $format (qw(ocsf ecs))
{
	my @short = trail_program('cat', "--$format", $one);
	my $csv   = file('other.csv', "a\n");
	my ($status, $stdout, $stderr) = trail_program('cat', "--$format", $csv);

	is_deeply([ trail_program('cat', "--format=$format", $one) ], \@short, "--format=$format");
	is_deeply([ trail_program('cat', "--$format", "--$format", $one) ], \@short, "$format: twice");
	is("$status|$stdout", '2|', "$format: not of csvlog: status");
	like($stderr, qr/other\.csv" cannot be written in format $format\n/, "$format: not of csvlog");
	is((trail_program('cat', "--$format", '--count', $one))[1], "1\n", "$format: --count");
	is((trail_program('cat', "--$format", '--class=write', $one))[1], '', "$format: filters");
	is((trail_program('report', "--$format", $one))[0], 2, "$format: no report");
	is((trail_program('report', "--format=$format", $one))[0], 2, "$format: whatever it is called");
}

# ---------------------------------------------------------------------------
# A server's trail
# ---------------------------------------------------------------------------

my $node = audited_node(
	'main',
	settings => {
		log => 'all', log_parameter => 'on', json_nulls => 'on', seal => 'on', seal_interval => '1s',
		log_settings => 'shop.user_id, application_name'
	},
	conf => q{
	listen_addresses = '127.0.0.1'
	log_timezone = 'Asia/Kolkata'
	cluster_name = 'shop "1"'
	compute_query_id = on
	});

unaudited_sql(
	$node, q{
	CREATE TABLE t (a int PRIMARY KEY, b text);
	CREATE ROLE plain LOGIN;
	CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1';
	CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C';
	CREATE DATABASE euc TEMPLATE template0 ENCODING 'EUC_JP' LOCALE 'C';
	CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C';});

# Statements of all classes, successful, failed and denied
my $client = PgProto->connect($node);
$client->query($_) foreach (
	'CREATE TABLE u (a int)', 'ALTER TABLE u ADD COLUMN b int', 'COMMENT ON TABLE u IS $$x$$', 'DROP TABLE u',
	q{CREATE ROLE r PASSWORD 'secret'}, 'ALTER ROLE r LOGIN', 'GRANT SELECT ON t TO r', 'DROP OWNED BY r',
	'DROP ROLE r', q{INSERT INTO t VALUES (2, 'x'), (3, NULL)}, 'SELECT * FROM t', 'UPDATE t SET b = 4',
	'MERGE INTO t USING (VALUES (2)) AS v (x) ON a = x WHEN MATCHED THEN UPDATE SET b = 5',
	'DELETE FROM t', 'TRUNCATE t', 'COPY t TO STDOUT', 'SELECT f()', 'DO $$ BEGIN PERFORM 1; END $$',
	'VACUUM t', 'SHOW work_mem', 'SET work_mem = 100', 'SELECT 1 / (random() * 0)::int', 'nonsense',
	'INSERT INTO t VALUES (1), (1)', 'SET ROLE plain', 'SELECT * FROM t', 'DELETE FROM t', 'RESET ROLE',
	'SET pg_audit_queue.log_relation = on', 'SELECT count(*) FROM t, pg_class',
	'SET pg_audit_queue.log_statement = off', 'SELECT 5', 'RESET pg_audit_queue.log_statement',
	q{SET shop.user_id = 'ann'}, "SELECT 'caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \x7f \xc2\x9b'",
	"SELECT '" . 'x' x 3_000_000 . q{'});
foreach my $value ('text', '', undef, "\"\n\\")
{
	$client->parse('', 'SELECT $1::text, $2::int')->bind('', '', $value, 7)->execute('')->sync;
}
$client->quit;
my %texts = (latin1 => "caf\xe9", euc => "\xa4\xa2 \x8f\xb0\xa1", ascii => "caf\xe9\xff \xc3\xa9 \\ back");
foreach my $database (sort keys %texts)
{
	$client = PgProto->connect($node, database => $database, options => '-c client_encoding=SQL_ASCII');
	$client->query("SELECT '$texts{$database}'");
	$client->quit;
}

# Logins that fail, and over a network
PgProto->connect($node, user => "nobody\xff\"")->hang_up;
PgProto->connect($node, database => 'nowhere')->hang_up;
my $port = $node->port;
$node->psql('postgres', 'SELECT 8',
	connstr => "host=127.0.0.1 port=$port dbname=postgres user=plain");
unaudited_sql($node, q{ALTER SYSTEM SET pg_audit_queue.flush_interval = '500ms'});
$node->reload;

# Heartbeats; a statement that is interrupted; a queue file that is none, which makes a gap
(trail_program('keygen', '-D', $node->data_dir))[0] == 0 or die 'keygen';
$node->safe_psql('postgres', 'SELECT 9');
poll_until(sub { flush_trail($node); grep { /"type":"heartbeat"/ } trail_lines($node) })
  or die 'there is no heartbeat';
my $worker = worker_pid($node);
my $victim = start_psql($node, 'SELECT pg_sleep(600)', name => 'victim');
my $pid;
poll_until(sub { $pid = unaudited_sql($node, q{SELECT pid FROM pg_stat_activity
	WHERE application_name = 'victim' AND wait_event = 'PgSleep'}) }) or die 'it does not run';
kill('KILL', $pid);
finish_psql($victim);
wait_for_worker($node, $worker);
$node->stop;
my $queue = queue_dir($node) . '/queue';
append_to_file("$queue.new", 'x' x 100_000);
rename("$queue.new", $queue) or die "rename: $!";
$node->start;
$node->safe_psql('postgres', 'SELECT 10');
$node->stop;

my @records = map { parse_record($_) } trail_lines($node);
my @files   = trail_files($node);
my %seen    = map { $_ => 1 } map { $_->{class} // $_->{type} } @records;

is_deeply(
	[ sort keys %seen ],
	[qw(CONFIG CONNECT DDL ERROR FUNCTION GAP MISC READ ROLE WRITE heartbeat)],
	'records of all classes and types');
is_deeply(
	[ sort { $a cmp $b } keys %{ { map { $_->{textEncoding} // 'none' => 1 } @records } } ],
	[qw(EUC_JP LATIN1 SQL_ASCII none)], 'in several encodings')
  or diag explain [ map { $_->{textEncoding} } @records ];

# ---------------------------------------------------------------------------
# What the schemas demand; nothing is lost
# ---------------------------------------------------------------------------

# Where fields are that are not under their own names
my %elsewhere = (
	ocsf => {
		sequence          => 'metadata.sequence',
		formatVersion     => 'metadata.log_version',
		command           => 'metadata.event_code',
		cut               => 'metadata.is_truncated',
		serverVersion     => 'metadata.product.version',
		logTime           => 'time_dt',
		startTime         => 'start_time_dt',
		endTime           => 'end_time_dt',
		exitCode          => 'status_code',
		authMethod        => 'auth_protocol',
		errorMessage      => 'status_detail',
		commandText       => 'query_info.query_string',
		objectName        => 'table.name',
		dbUserName        => 'actor.user.name',
		clientApplication => 'actor.app_name',
		pid               => 'actor.process.pid',
		backendType       => 'actor.process.name',
		sessionId         => qr/^(?:actor\.)?session\.uid$/,
		sessionStart      => qr/^(?:actor\.)?session\.created_time_dt$/,
		databaseName      => 'database.name',
		remoteHost        => qr/^src_endpoint\.(?:ip|name)$/,
		remotePort        => 'src_endpoint.port',
		serverHost        => 'dst_endpoint.hostname',
		serviceName       => 'dst_endpoint.svc_name'
	},
	ecs => {
		formatVersion => 'postgresql.audit.format_version',
		sequence      => 'event.sequence',
		logTime       => '@timestamp',
		startTime     => 'event.start',
		endTime       => 'event.end',
		exitCode      => 'event.code',
		errorMessage  => 'error.message',
		policy        => 'rule.name',
		pid           => 'process.pid',
		dbUserName    => 'user.name',
		currentUser   => 'user.effective.name',
		remoteHost    => 'source.address',
		remotePort    => 'source.port',
		serverHost    => 'host.hostname',
		serverVersion => 'service.version',
		systemIdentifier => 'service.id',
		tlsCipher     => 'tls.cipher',
		serviceName   => 'service.name'
	});

# Names of columns
my %column = slurp_file("$FindBin::RealBin/../../src/record/fieldlist.h") =~
  /PAQ_TRAIL_(?:FIELD|MARK)\([^"]*"(\w+)", "?(\w+)"?/g;

# The fields of a record that its line in the other format does not have
sub lost_fields
{
	my ($format, $record, $flat) = @_;
	my @lost;

	foreach my $field (grep { defined $record->{$_} } sort keys %$record)
	{
		my $own = $format eq 'ocsf' ? "unmapped.$field" : "postgresql.audit.$column{$field}";
		my $elsewhere = $elsewhere{$format}{$field} // $own;
		my @paths = grep { $_ eq $own || (ref $elsewhere ? /$elsewhere/ : $_ eq $elsewhere) } keys %$flat;
		my $value = $record->{$field};
		my $found = grep { ref $value ? $json->encode($flat->{$_}) eq $json->encode($value) :
			  ($flat->{$_} // '') eq $value } @paths;

		# nanoseconds
		$found ||= $flat->{'event.duration'} == $value * 1000
		  if $format eq 'ecs' && $field eq 'durationUs' && defined $flat->{'event.duration'};
		push @lost, "$field of $record->{sequence}" if !$found;
	}
	return @lost;
}

my %flat;
foreach my $format (qw(ocsf ecs))
{
	my @flat = checked($format, 'a trail', @files);
	my $heartbeats = grep { $_->{type} eq 'heartbeat' } @records;

	is(scalar @flat, scalar @records, "$format: a line for each record");
	is_deeply([ map { lost_fields($format, $records[$_], $flat[$_]) } 0 .. $#records ], [],
		"$format: with all of its fields");
	$flat{$format} = \@flat;
	cmp_ok($heartbeats, '>', 0, "$format: with heartbeats");
}
is_deeply([ lost_fields('ocsf', { %{ $records[0] }, databaseName => 'x' }, $flat{ocsf}[0]) ],
	["databaseName of $records[0]{sequence}"], 'a field that is lost is noticed');

# A record's line in both formats, found by what is in the record
sub found
{
	my (%what) = @_;

	foreach my $i (0 .. $#records)
	{
		return ($flat{ocsf}[$i], $flat{ecs}[$i])
		  if !grep { ($records[$i]{$_} // '') !~ /^(?:$what{$_})$/ } keys %what;
	}
	fail("there is a record with " . join(' ', %what));
	return ({}, {});
}

foreach my $case (
	# what is looked for; activity, status and severity; category, type and outcome
	[ { command => 'SELECT', commandText => 'SELECT \* FROM t', exitCode => '00000' },
		'Read Success Informational', 'database access success' ],
	[ { command => 'SELECT', exitCode => '42501' }, 'Read Failure Low', 'database access,error failure' ],
	[ { command => 'SELECT', exitCode => '22012' }, 'Read Failure Low', 'database access,error failure' ],
	[ { command => 'INSERT', exitCode => '00000' }, 'Create Success Informational', 'database change success' ],
	[ { command => 'INSERT', exitCode => '23505' }, 'Create Failure Low', 'database change,error failure' ],
	[ { command => 'UPDATE' }, 'Update Success Informational', 'database change success' ],
	[ { command => 'MERGE' }, 'Write Success Informational', 'database change success' ],
	[ { command => 'DELETE', exitCode => '42501' }, 'Delete Failure Low', 'database change,error failure' ],
	[ { command => 'TRUNCATE TABLE' }, 'Delete Success Informational', 'database change success' ],
	[ { command => 'CREATE TABLE' }, 'Create Success Informational', 'database change success' ],
	[ { command => 'ALTER TABLE' }, 'Update Success Informational', 'database change success' ],
	[ { command => 'DROP TABLE' }, 'Delete Success Informational', 'database change success' ],
	[ { command => 'COMMENT' }, 'COMMENT Success Informational', 'database change success' ],
	[ { class => 'FUNCTION', command => 'DO' }, 'DO Success Informational', 'database access success' ],
	[ { command => 'CREATE ROLE' }, 'CREATE ROLE Success Informational',
		'database,iam change,creation,user success' ],
	[ { command => 'ALTER ROLE' }, 'ALTER ROLE Success Informational', 'database,iam change,user success' ],
	[ { command => 'DROP ROLE' }, 'DROP ROLE Success Informational', 'database,iam change,deletion,user success' ],
	[ { command => 'GRANT' }, 'GRANT Success Informational', 'database,iam admin,change success' ],
	[ { command => 'VACUUM' }, 'VACUUM Success Informational', 'database info success' ],
	[ { class => 'ERROR' }, 'Unknown Failure Low', 'database error failure' ],
	[ { command => 'LOGIN', exitCode => '00000' }, 'Logon Success Informational',
		'authentication,session start success' ],
	[ { command => 'LOGIN', exitCode => '3D000' }, 'Logon Failure Low', 'authentication start failure' ],
	[ { command => 'LOGIN', exitCode => '28000' }, 'Logon Failure Low', 'authentication start failure' ],
	[ { command => 'LOGOUT', exitCode => '00000' }, 'Logoff Success Informational',
		'authentication,session end success' ],
	[ { class => 'CONFIG', command => 'RELOAD' }, 'RELOAD Success Informational', 'configuration change success' ],
	[ { class => 'CONFIG', objectName => 'pg_audit_queue.log_relation' }, 'SET Success Informational',
		'configuration change success' ],
	[ { command => 'WORKER START' }, 'WORKER START Success Informational', 'database info success' ],
	[ { interrupted => '1', command => 'SELECT' }, 'Read Failure Low', 'database access,error failure' ],
	[ { type => 'gap' }, 'GAP - High', 'database error -' ],
	[ { type => 'heartbeat' }, 'heartbeat - Informational', 'database info -' ])
{
	my ($what, $ocsf, $ecs) = @$case;
	my ($event, $document) = found(%$what);
	my $name = join ' ', map { "$_ $what->{$_}" } sort keys %$what;

	is(join(' ', map { $event->{$_} // '-' } qw(activity_name status severity)), $ocsf, "$name: ocsf");
	is( join(' ', map { ref $document->{$_} ? join(',', @{ $document->{$_} }) : $document->{$_} // '-' }
			map { "event.$_" } qw(category type outcome)),
		$ecs, "$name: ecs");
}
my ($huge) = found(commandText => "SELECT 'x{1000}.*");
is(length $huge->{'query_info.query_string'}, length("SELECT ''") + 3_000_000, 'a huge text');
foreach my $database (sort keys %texts)
{
	my ($event, $document) = found(databaseName => $database, class => 'READ');

	# decoded as doc/formats.md says; where the database is SQL_ASCII some of it is UTF-8
	is($event->{'query_info.query_string'}, "SELECT '$texts{$database}'", "$database: ocsf")
	  if $database ne 'ascii';
	is($document->{'postgresql.audit.command_text'}, "SELECT '$texts{$database}'", "$database: ecs")
	  if $database ne 'ascii';
	is($event->{'unmapped.textEncoding'}, $document->{'postgresql.audit.text_encoding'},
		"$database: the encoding");
}
foreach my $format (qw(ocsf ecs))
{
	my ($text) = (trail_program('cat', "--$format", '--database=ascii', '--class=read', @files))[1];

	like($text, qr/"SELECT 'caf\\u00e9\\u00ff \xc3\xa9 \\\\ back'"/,
		"$format: bytes and characters can be told apart, as in the trail");
}

# ---------------------------------------------------------------------------
# Values, record by record
# ---------------------------------------------------------------------------

my %session = (
	sessionId => '6b066638.7e43', sessionStart => '2026-11-20T10:11:00.000001+05:30', pid => 32323,
	backendType => 'client backend', dbUserName => 'alice', sessionUser => 'alice', currentUser => 'bob',
	databaseName => 'shop', serverHost => 'db1', serverVersion => '15.20', serviceName => 'prod',
	clientApplication => 'psql', systemIdentifier => '75', series => 3);
my %tcp   = (remoteHost => '10.1.2.3', remotePort => '5555', netProtocol => 'TCP');
my %local = (remoteHost => '[local]', netProtocol => 'UNIX');
my @cases = (
	[
		'a statement',
		{
			%session, %tcp, sequence => 42, startTime => '2026-11-20T10:11:12.120000+05:30',
			endTime => '2026-11-20T10:11:12.123456+05:30', durationUs => 3456, commandText => "SELECT \"\n",
			objectType => 'VIEW', objectName => 'public.v', statementId => 7, rowCount => 3,
			policy => 'night', paramList => [ 'a', undef ], settings => { 'a.b' => 'c' }, queryId => -5
		},
		{
			'metadata.uid' => '75:3:42', 'metadata.sequence' => 42, 'metadata.event_code' => 'SELECT',
			'metadata.product.version' => '15.20', 'metadata.log_version' => '1',
			class_uid => 6005, type_uid => 600501, category_uid => 6, status_code => '00000',
			status_detail => undef, time => 1795149672123, time_dt => '2026-11-20T10:11:12.123456+05:30',
			start_time => 1795149672120, duration => 3, timezone_offset => 330,
			message => 'alice@shop SELECT public.v', 'actor.user.name' => 'alice',
			'actor.app_name' => 'psql', 'actor.process.pid' => 32323,
			'actor.session.uid' => '6b066638.7e43', 'actor.session.created_time' => 1795149660000,
			'actor.session.is_remote' => 1, 'database.name' => 'shop', 'table.name' => 'public.v',
			type => 'Table', 'query_info.query_string' => "SELECT \"\n",
			'query_info.uid' => '6b066638.7e43:7', 'src_endpoint.ip' => '10.1.2.3',
			'src_endpoint.port' => 5555, 'src_endpoint.hostname' => undef, 'dst_endpoint.hostname' => 'db1',
			'dst_endpoint.svc_name' => 'prod', 'unmapped.class' => 'READ', 'unmapped.policy' => 'night',
			'unmapped.currentUser' => 'bob', 'unmapped.rowCount' => 3, 'unmapped.durationUs' => 3456,
			'unmapped.paramList' => [ 'a', undef ], 'unmapped.settings' => { 'a.b' => 'c' },
			'unmapped.objectName' => undef, 'unmapped.objectType' => 'VIEW', 'unmapped.exitCode' => undef
		},
		{
			'@timestamp' => '2026-11-20T10:11:12.123456+05:30', message => 'alice@shop SELECT public.v',
			'event.id' => '75:3:42', 'service.id' => '75', 'event.sequence' => 42, 'event.action' => 'select',
			'event.code' => '00000', 'event.duration' => 3456000, 'event.kind' => 'event',
			'event.start' => '2026-11-20T10:11:12.120000+05:30', 'event.dataset' => 'postgresql.audit',
			'error.code' => undef, 'user.name' => 'alice', 'user.effective.name' => 'bob',
			'related.user' => [ 'alice', 'bob' ], 'source.ip' => '10.1.2.3', 'source.port' => 5555,
			'network.transport' => 'tcp', 'host.name' => 'db1', 'server.address' => 'db1',
			'service.name' => 'prod', 'service.version' => '15.20', 'rule.name' => 'night',
			'process.pid' => 32323, 'postgresql.audit.command_text' => "SELECT \"\n",
			'postgresql.audit.object_name' => 'public.v', 'postgresql.audit.query_id' => -5,
			'postgresql.audit.settings' => { 'a.b' => 'c' }, 'postgresql.audit.duration_us' => undef
		}
	],
	[
		'a failure, over a Unix-domain socket',
		{ %session, %local, exitCode => '42501', errorMessage => 'no', command => 'DROP FUNCTION', class => 'DDL',
			objectType => 'FUNCTION', objectName => 'f', commandText => 'DROP FUNCTION f' },
		{
			status_id => 2, status_code => '42501', status_detail => 'no', type_uid => 600507,
			'src_endpoint.name' => '[local]', 'src_endpoint.hostname' => 'db1', 'src_endpoint.ip' => undef,
			'actor.session.is_remote' => 0, 'table.name' => undef, type => 'Database',
			'unmapped.objectName' => 'f', 'query_info.uid' => '1', message => 'alice@shop DROP FUNCTION f: no'
		},
		{
			'event.action' => 'drop-function', 'error.code' => '42501', 'error.message' => 'no',
			'source.address' => '[local]', 'source.ip' => undef, 'network.transport' => undef,
			'event.type' => [ 'change', 'error' ]
		}
	],
	[
		'a login',
		{ %session, %tcp, class => 'CONNECT', command => 'LOGIN', remoteHost => 'fe80::1%eth0',
			authMethod => 'ldap', tlsVersion => 'TLSv1.3', tlsCipher => 'TLS_AES_256_GCM_SHA384' },
		{
			class_uid => 3002, type_uid => 300201, category_name => 'Identity & Access Management',
			'user.name' => 'alice', 'actor.user.name' => 'alice', 'session.uid' => '6b066638.7e43',
			'actor.session.uid' => undef, is_remote => 1, 'session.is_remote' => 1, logon_type_id => 3,
			'service.name' => 'PostgreSQL', 'service.version' => '15.20', 'database.name' => undef,
			'unmapped.databaseName' => 'shop', 'src_endpoint.ip' => 'fe80::1',
			'unmapped.remoteHost' => 'fe80::1%eth0',
			auth_protocol_id => 12, auth_protocol => 'LDAP', 'unmapped.authMethod' => 'ldap',
			'unmapped.tlsVersion' => 'TLSv1.3'
		},
		{
			'event.category' => [ 'authentication', 'session' ], 'event.type' => ['start'],
			'source.address' => 'fe80::1%eth0', 'source.ip' => 'fe80::1',
			'tls.version' => '1.3', 'tls.version_protocol' => 'tls', 'tls.cipher' => 'TLS_AES_256_GCM_SHA384'
		}
	],
	map({ my $host = $_;
		[ "a client that is no address: $host", { remoteHost => $host }, { 'src_endpoint.ip' => undef,
			'src_endpoint.name' => $host }, { 'source.ip' => undef, 'source.address' => $host } ] }
		'10.1.2', '10.1.2.3%eth0', '::1%', '%eth0', '1' x 46),
	[
		'a login of nobody from nowhere',
		{ class => 'CONNECT', command => 'LOGIN', exitCode => '08P01', remoteHost => '???', netProtocol => 'TCP' },
		{
			'user.name' => '[unknown]', 'actor.app_name' => 'pg_audit_queue', status => 'Failure',
			'src_endpoint.name' => '???', 'dst_endpoint.hostname' => undef, 'metadata.uid' => undef
		},
		{ 'event.category' => ['authentication'], 'source.address' => '???', 'source.ip' => undef,
			'user.name' => undef, 'event.id' => undef }
	],
	[
		'a local login, and its end',
		{ %session, %local, class => 'CONNECT', command => 'LOGOUT', exitCode => '57P01', authMethod => 'peer' },
		{ auth_protocol_id => 99, auth_protocol => 'peer', type_uid => 300202, is_remote => 0, logon_type_id => undef, status => 'Failure' },
		{ 'event.type' => ['end'], 'event.outcome' => 'failure' }
	],
	[
		'a setting',
		{
			class => 'CONFIG', command => 'SET', objectType => 'SETTING', objectName => 'pg_audit_queue.log',
			oldValue => '', newValue => 'none', clientApplication => '', serverHost => 'db1', serviceName => 'prod'
		},
		{
			activity_id => 99, activity_name => 'SET', type_name => 'Datastore Activity: Other',
			'database.name' => 'prod', 'unmapped.oldValue' => '', 'unmapped.newValue' => 'none',
			'actor.app_name' => 'pg_audit_queue', 'src_endpoint.hostname' => 'db1',
			'src_endpoint.svc_name' => 'PostgreSQL', message => 'SET pg_audit_queue.log'
		},
		{ 'event.category' => ['configuration'], 'event.type' => ['change'],
			'postgresql.audit.old_value' => '', 'postgresql.audit.new_value' => 'none' }
	],
	[
		'a gap',
		{
			type => 'gap', class => 'GAP', command => undef, exitCode => undef, rowCount => 12,
			errorMessage => 'lost', startTime => '2026-11-20T10:00:00.000000+05:30',
			endTime => '2026-11-20T10:11:12.123456+05:30', durationUs => 672123456
		},
		{
			activity_id => 99, activity_name => 'GAP', severity_id => 4, status_id => undef,
			status_detail => 'lost', start_time => 1795149000000, end_time => 1795149672123,
			duration => 672123, 'unmapped.type' => 'gap', 'unmapped.rowCount' => 12, 'database.name' => 'PostgreSQL'
		},
		{ 'event.action' => 'gap', 'event.outcome' => undef, 'error.message' => 'lost', 'error.code' => undef,
			'event.type' => ['error'], 'postgresql.audit.row_count' => 12 }
	],
	[
		'a heartbeat',
		{ type => 'heartbeat', class => undef, command => undef, exitCode => undef, serverHost => 'db1' },
		{ activity_name => 'heartbeat', severity_id => 1, status_id => undef, 'metadata.uid' => undef },
		{ 'event.kind' => 'state', 'event.action' => 'heartbeat', 'event.outcome' => undef }
	],
	[
		'what the outcome is of nobody knows, cut off',
		{ exitCode => undef, interrupted => \1, cut => \1, durationUs => -1500, remotePort => 'x',
			logTime => '1969-12-31T23:59:59.999500+00:00' },
		{ status => 'Unknown', time => -1, duration => -2, 'metadata.is_truncated' => 1,
			'unmapped.interrupted' => 1, 'src_endpoint.port' => undef, 'unmapped.remotePort' => 'x' },
		{ 'event.outcome' => 'unknown', 'event.duration' => -1500000, 'postgresql.audit.cut' => 1,
			'source.port' => undef, 'postgresql.audit.remote_port' => 'x' }
	],
	[
		'numbers without end',
		{ durationUs => 9223372036854775807, transactionId => 9223372036854775807, command => '',
			class => 'MISC' },
		{ duration => 9223372036854775, 'unmapped.durationUs' => 9223372036854775807, activity_name => 'MISC' },
		{ 'event.duration' => undef, 'postgresql.audit.duration_us' => 9223372036854775807,
			'postgresql.audit.transaction_id' => 9223372036854775807, 'event.action' => 'misc' }
	]);
my $cases = file('cases.json', map { line(%{ $_->[1] }) } @cases);
foreach my $format (qw(ocsf ecs))
{
	my @shown = checked($format, 'cases', $cases);

	foreach my $i (0 .. $#cases)
	{
		my $expected = $cases[$i][ $format eq 'ocsf' ? 2 : 3 ];
		my %shown = map { $_ => JSON::XS::is_bool($shown[$i]{$_}) ? $shown[$i]{$_} + 0 : $shown[$i]{$_} }
		  keys %$expected;

		is_deeply(\%shown, $expected, "$cases[$i][0]: $format") or diag explain $shown[$i];
	}
}

# ---------------------------------------------------------------------------
# Records that no server writes: what the schemas demand holds for them, too
# ---------------------------------------------------------------------------

my $seed = $ENV{PAQ_TEST_SEED} // int(rand(2**31));
my %type = slurp_file("$FindBin::RealBin/../../src/record/fieldlist.h") =~
  /PAQ_TRAIL_FIELD\(\w+, \w+, "(\w+)", [^,]*, (\w+)/g;
my @words = (
	'', 'a', "\"\\\n", "\x{e9}\x{9b}\x7f", "\x{1f600}", 'a.b', '%', '10.0.0.1', '::1', 'fe80::1%eth0',
	'[local]', '00000', '42501', qw(UNIX TCP LOGIN LOGOUT INSERT TABLE VIEW LATIN1 UTF8 65535 65536 -1));
my %values = (
	STRING => \@words,
	NUMBER => [ 0, 1, -1, 1500, -1500, 2**31, 9223372036854775807, -9223372036854775807 ],
	TIME   => [
		'2026-11-20T10:11:12.123456+05:30', '1969-12-31T23:59:59.999999Z', '0001-01-01T00:00:00+00:00',
		'9999-12-31T23:59:59.999999-11:00' ],
	ARRAY  => [ [], [undef], [ 'a', undef, '"' ] ],
	OBJECT => [ {}, { 'a.b' => undef }, { 'a.b' => 'c', '"' => 'x' } ]);

# One of them
sub any
{
	return $_[ rand @_ ];
}

sub random_record
{
	my %record = map { rand() < 0.7 ? ($_ => rand() < 0.1 ? undef : any(@{ $values{ $type{$_} } })) : () }
	  sort keys %type;

	$record{class} = any(sort keys %seen) if rand() < 0.8;
	return (
		%record, (rand() < 0.1 ? (cut => \1) : ()),
		type => any('record', 'record', 'gap', 'heartbeat'), formatVersion => 1,
		sequence => any(1, 9223372036854775807), logTime => any(@{ $values{TIME} }));
}

note("PAQ_TEST_SEED=$seed");
srand($seed);
my @random = map { line(random_record()) } 1 .. 500;
my $random = file('random.json', @random);
foreach my $format (qw(ocsf ecs))
{
	my @shown = checked($format, 'random records', $random);

	is_deeply([ map { lost_fields($format, parse_record($random[$_]), $shown[$_]) } 0 .. $#random ], [],
		"random records, $format: with all of their fields");
}

# ---------------------------------------------------------------------------
# Terminals, and a trail that grows
# ---------------------------------------------------------------------------

my $harmful = file('harmful.json', line(%session, commandText => "a\nb\e]0;title\a\x7f\x{9b}31m" . 'c' x 100));
foreach my $format (qw(ocsf ecs))
{
	my $shown   = trail_on_terminal('cat', "--$format", $harmful);
	my ($plain) = (trail_program('cat', "--$format", $harmful))[1];

	unlike($shown, qr/[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]/, "terminal: $format is harmless");
	is_deeply(parse_record($shown), parse_record($plain), "terminal: $format means the same");

	my $growing = file('growing.json', line(sequence => 1));
	my $out     = "$base/followed.$format";
	my $follow  = IPC::Run::start([ (`pg_config --bindir` =~ s/\n//r) . '/pg_audit_trail', 'follow', "--$format",
		$growing ], '>', $out);
	poll_until(sub { -s $out });
	append_to_file($growing, line(sequence => 2));
	poll_until(sub { (() = slurp_file($out) =~ /\n/g) == 2 });
	is(slurp_file($out), (trail_program('cat', "--$format", $growing))[1], "follow: $format");
	$follow->signal('TERM');
	$follow->finish;
	is($follow->full_result(0), 0, "follow: $format ends");
}

done_testing();
