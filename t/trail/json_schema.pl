# The JSON Schema of the records, doc/audit-record.schema.json: all records of a
# varied load are valid, also if fields that it does not know are forbidden;
# records broken on purpose are not.  That it has the fields of the code is
# looked at in t/trail/field_list.pl.
#
# The validator is python3-jsonschema, which knows nothing of us.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $python = python();

if (!defined $python || system("$python -c 'import jsonschema' >/dev/null 2>&1") != 0)
{
	diag 'NOT TESTED: there is no module jsonschema for Python (Debian: python3-jsonschema)';
	plan skip_all => 'no module jsonschema for Python';
}

my $schema = "$FindBin::RealBin/../../doc/audit-record.schema.json";
my $node = audited_node(
	'main',
	settings => {
		log => 'all', log_parameter => 'on', log_parameter_max_size => 100,
		log_settings => 'shop.user_id, application_name, nothing.there'
	},
	conf     => q{
	listen_addresses = '127.0.0.1'
	compute_query_id = on
	});

# ---------------------------------------------------------------------------
# The load
# ---------------------------------------------------------------------------

unaudited_sql(
	$node, q{
	CREATE TABLE t (a int PRIMARY KEY, b text);
	CREATE ROLE auditor; GRANT SELECT ON t TO auditor;
	CREATE ROLE plain LOGIN;
	CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS
		'BEGIN INSERT INTO t VALUES (1); PERFORM pg_sleep(600); RETURN 1; END';
	CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C';});

# Statements of all classes, their failures, and records in which something is
# left out
sub run_load
{
	my $client = PgProto->connect($node);

	$client->query($_) foreach (
		'CREATE TABLE u (a int)', 'ALTER TABLE u ADD COLUMN b int', 'DROP TABLE u',
		q{CREATE ROLE r PASSWORD 'secret'}, 'GRANT SELECT ON t TO r', 'DROP OWNED BY r', 'DROP ROLE r',
		q{INSERT INTO t VALUES (2, 'x'), (3, NULL)}, 'SELECT * FROM t',
		'SELECT count(*) FROM t, pg_class',
		'UPDATE t SET b = 4', 'DELETE FROM t', 'TRUNCATE t', 'COPY t TO STDOUT',
		'DO $$ BEGIN PERFORM 1; END $$', 'VACUUM t', 'SHOW work_mem', 'SET work_mem = 100',
		'BEGIN', 'SAVEPOINT s', 'SELECT 1 / 0', 'SELECT 1', 'ROLLBACK TO s', 'COMMIT',
		'SELECT nothing', 'nonsense', 'SELECT 1; SELECT 2; SELECT 3',
		'SET ROLE plain', 'SELECT * FROM t', 'RESET ROLE',
		q{SET pg_audit_queue.role = 'auditor'}, 'SELECT a FROM t', 'RESET pg_audit_queue.role',
		'SET pg_audit_queue.log_statement_once = on', 'SET pg_audit_queue.log_relation = on',
		'SELECT * FROM t, pg_class LIMIT 0', 'SET pg_audit_queue.log_statement = off', 'SELECT 5',
		'RESET pg_audit_queue.log_statement', 'SET pg_audit_queue.log_parameter = off', 'SELECT 6',
		'RESET pg_audit_queue.log_parameter', 'SET pg_audit_queue.log_statement_once = off',
		q{SET shop.user_id = 'ann'}, q{SELECT 'masked' || '} . 'x' x 3_000_000 . q{'});
	foreach my $value ('text', '', undef, 'x' x 200, "\"\n\\")
	{
		$client->parse('', 'SELECT $1::text, $2::int')->bind('', '', $value, 7)->execute('')->sync;
	}
	$client->parse('', 'SELECT generate_series(1, 10)')->bind('p', '')->execute('p', 2)->sync;
	$client->quit;

	# other clients
	$client = PgProto->connect($node, database => 'latin1');
	$client->query("SELECT '\xe9'");
	$client->query("SELECT 'password' FRM nowhere");
	$client->quit;
	PgProto->connect($node, user => "nobody\xff\"")->hang_up;
	PgProto->connect($node, database => 'nowhere')->hang_up;
	my $port = $node->port;
	$node->psql('postgres', 'SELECT 8',
		connstr => "host=127.0.0.1 port=$port dbname=postgres user=plain");
	$node->reload;
	$node->append_conf('postgresql.conf', settings_text(flush_interval => '500ms'));
	$node->reload;
	return;
}

# A crash while statements run, one of them too long for its slot
sub crash
{
	my ($signal) = @_;
	my $worker = worker_pid($node);
	my @sessions =
	  map { start_psql($node, $_, name => 'victim') }
	  ('SELECT f()', 'SELECT pg_sleep(600) /* ' . 'x' x 20_000 . ' */');
	my @pids;

	poll_until(
		sub {
			@pids = split /\n/, unaudited_sql($node,
				q{SELECT pid FROM pg_stat_activity
				   WHERE application_name = 'victim' AND wait_event = 'PgSleep'});
			return @pids == 2;
		}) or die 'the statements do not run';
	kill($signal, $pids[0]);
	finish_psql($_) foreach @sessions;
	wait_for_worker($node, $worker);
	return;
}

run_load();
crash('KILL');

# A queue file that is none makes a GAP record.
$node->stop;
my $queue = queue_dir($node) . '/queue';
append_to_file("$queue.new", 'x' x 100_000);
rename("$queue.new", $queue) or die "rename: $!";
$node->append_conf('postgresql.conf', settings_text(log_record_max_size => '1MB'));
$node->start;
run_load();
flush_trail($node);
check_trail($node, 'the trail is whole');

# ---------------------------------------------------------------------------
# The schema
# ---------------------------------------------------------------------------

my ($stdout, $stderr);

ok( IPC::Run::run(
		[ $python, "$FindBin::RealBin/../lib/formats/check_schema.py", $schema, trail_files($node) ],
		'>', \$stdout, '2>', \$stderr),
	'the schema is one') or diag $stderr;
my $result = decode_json($stdout);
my @fields = @{ $result->{fields} };

cmp_ok($result->{records}, '>', 150, 'enough records to mean something');
is_deeply(
	$result->{classes},
	[qw(CONFIG CONNECT DDL ERROR FUNCTION GAP MISC READ ROLE WRITE)],
	'of all classes');
is_deeply($result->{errors}, [], 'all are valid, also with an unknown field');
is_deeply($result->{strict}, [], 'they have no field that the schema does not have');
is_deeply($result->{order}, [], 'their fields are in its order');
is_deeply($result->{accepted}, [], 'broken records are not valid');

# hooks that are not called make records that are incomplete; there are no policies yet,
# and no client uses TLS
my %seen = map { $_ => 1 } @{ $result->{seen} };
is_deeply([ grep { !$seen{$_} } @fields ], [qw(policy tlsVersion tlsCipher incomplete)], 'each field had a value');

# ---------------------------------------------------------------------------
# Without fields that are null
# ---------------------------------------------------------------------------

my %before = map { $_ => 1 } trail_files($node);
my @all = map { parse_record($_) } trail_lines($node);

append_to_file($node->data_dir . '/postgresql.conf', settings_text(json_nulls => 'off'));
$node->reload;
unaudited_sql($node, 'SELECT audit_flush(), audit_rotate()');
run_load();
crash('KILL');
flush_trail($node);
my @short = grep { !$before{$_} } trail_files($node);

cmp_ok(scalar @short, '>', 0, 'json_nulls = off: there are new files');
IPC::Run::run(
	[ $python, "$FindBin::RealBin/../lib/formats/check_schema.py", $schema, @short ],
	'>', \$stdout, '2>', \$stderr) or die $stderr;
$result = decode_json($stdout);
cmp_ok($result->{records}, '>', 80, 'with many records');
is_deeply($result->{$_}, [], "$_: none") foreach qw(errors strict order accepted);
my @records = map { parse_record($_) } map { split /\n/, slurp_file($_) } @short;
is_deeply([ map { my $r = $_; grep { !defined $r->{$_} } keys %$r } @records ], [], 'nothing is null');

# A statement of which only times, numbers and the like differ
sub texts_of
{
	my ($text, @of) = @_;
	my @found = grep { ($_->{commandText} // '') =~ /\Q$text\E/ } @of;

	return join ' ', sort map { defined $found[-1]{$_} ? "$_=$found[-1]{$_}" : () }
	  qw(type auditType class command commandText rowCount exitCode errorMessage dbUserName
	  currentUser databaseName netProtocol serverVersion backendType);
}

is(texts_of($_, @records), texts_of($_, @all), "the same of: $_")
  foreach 'SELECT 1 / 0', 'nonsense', 'SELECT * FROM t, pg_class', 'DROP TABLE u', 'SHOW work_mem';
unlike($_, qr/[,{]"\w+":null/, 'no null in the text') foreach (map { slurp_file($_) } @short)[0];

done_testing();
