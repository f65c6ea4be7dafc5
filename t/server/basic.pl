#
# Basic operation, from installation to removal.  No other test is worth running
# before this one passes.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node('main');

# From PostgreSQL 18 on the library tells its version, that of the extension.

if ($node->pg_version->major >= 18)
{
	is( unaudited_sql(
			$node,
			q{SELECT m.module_name, m.version = e.default_version
			FROM pg_get_loaded_modules() m, pg_available_extensions e
			WHERE m.file_name LIKE 'pg_audit_queue%' AND e.name = 'pg_audit_queue'}),
		'pg_audit_queue|t',
		'version of the library');
}

# A statement and its record

my ($record, @more) = records_for($node, 'SELECT 42 AS answer');
is(scalar @more, 0, 'one statement, one record');
is($record->{type}, 'record', 'type');
is($record->{auditType}, 'SESSION', 'kind of auditing');
is($record->{class}, 'READ', 'class');
is($record->{command}, 'SELECT', 'command');
is($record->{commandText}, 'SELECT 42 AS answer', 'text');
is($record->{exitCode}, '00000', 'outcome');
is($record->{rowCount}, 1, 'rows');
is($record->{statementId}, 1, 'statement id');
is($record->{substatementId}, 1, 'substatement id');
is($record->{databaseName}, 'postgres', 'database');
is( $record->{dbUserName},
	$node->safe_psql('postgres', 'SELECT session_user'), 'user');
is($record->{backendType}, 'client backend', 'kind of process');
like($record->{startTime}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}/,
	'start time');
cmp_ok($record->{startTime}, 'le', $record->{endTime}, 'end after start');

# Failure, data definition, and rows

my @records = records_for(
	$node, q{
	CREATE TABLE t (a int);
	INSERT INTO t SELECT generate_series(1, 3);
	SELECT a / 0 FROM t;
	SELECT * FROM no_such_table;
	DROP TABLE t;}, on_error_stop => 0);
is_deeply(
	[ map { [ @{$_}{qw(class command exitCode rowCount)} ] }
		  grep { $_->{class} ne 'ERROR' } @records ],
	[
		[ 'DDL', 'CREATE TABLE', '00000', undef ],
		[ 'WRITE', 'INSERT', '00000', 3 ],
		[ 'READ', 'SELECT', '22012', undef ],
		[ 'DDL', 'DROP TABLE', '00000', undef ],
	],
	'classes, commands, outcomes and rows');
is($records[0]{objectName}, 'public.t', 'name of the table');
is($records[0]{objectType}, 'TABLE', 'type of the table');

# Statistics agree with the trail

flush_trail($node);
my $stats = stats($node);
is($stats->{published}, $stats->{flushed}, 'all is flushed after a flush');
is($stats->{published}, scalar(trail_lines($node)),
	'and counted as often as it is in the trail');

# A new file on demand, and a restart, continue the trail

my @files = trail_files($node);
my $new_file = unaudited_sql($node, 'SELECT audit_rotate()');
$node->safe_psql('postgres', q{SELECT 'after rotation'});
$node->restart;
$node->safe_psql('postgres', q{SELECT 'after restart'});
flush_trail($node);
is( (grep { !-e } @files), 0, 'rotation keeps the old files');
cmp_ok(scalar(trail_files($node)), '>', scalar(@files),
	'rotation starts another file');
ok((grep { m{/\Q$new_file\E$} || $_ eq $new_file } trail_files($node)) > 0,
	"the name that audit_rotate() returns: $new_file");
@records = check_trail($node, 'the trail is whole across a restart');
foreach my $text (q{SELECT 'after rotation'}, q{SELECT 'after restart'})
{
	is(scalar(grep { $_->{commandText} eq $text } @records), 1, $text);
}
is((stat((trail_files($node))[0]))[2] & 07777, 0600, 'mode of files');

# Removing the extension removes functions, not the recording

@records = records_for(
	$node,
	sub {
		$node->safe_psql('postgres',
			q{DROP EXTENSION pg_audit_queue; SELECT 'without extension'});
		my ($ret, $stdout, $stderr) =
		  $node->psql('postgres', 'SELECT audit_flush()');
		like($stderr, qr/function audit_flush\(\) does not exist/,
			'no function without the extension');
		create_extension($node);
	});
ok((grep { $_->{command} eq 'DROP EXTENSION' } @records) > 0,
	'DROP EXTENSION is recorded');
ok((grep { $_->{commandText} =~ /'without extension'/ && $_->{command} eq 'SELECT' } @records) > 0,
	'what follows is recorded too');

# Settings that nobody can mean

$node->append_conf('postgresql.conf', "pg_audit_queue.mode = 'sometimes'\n");
my $log_position = -s $node->logfile;
$node->reload;
ok( poll_until(
		sub {
			slurp_file($node->logfile, $log_position) =~
			  /invalid value for parameter "pg_audit_queue.mode": "sometimes"/;
		}),
	'a wrong value is reported at reload');
is($node->safe_psql('postgres', 'SHOW pg_audit_queue.mode'),
	'queued', 'and not used');
$node->adjust_conf('postgresql.conf', 'pg_audit_queue.mode', "'queued'");

# A place for the trail that cannot be one keeps the server from starting

$node->stop;
append_to_file($node->data_dir . '/not_a_directory', "\n");
$node->append_conf('postgresql.conf',
	"pg_audit_queue.log_directory = 'not_a_directory'\n");
$log_position = -s $node->logfile;
ok(!$node->start(fail_ok => 1), 'no start without a trail directory');
like(
	slurp_file($node->logfile, $log_position),
	qr/FATAL: .*not_a_directory.*HINT: .*pg_audit_queue\.log_directory/s,
	'the reason is in the server log');
$node->adjust_conf('postgresql.conf', 'pg_audit_queue.log_directory',
	"'audit'");
$node->start;
flush_trail($node);
check_trail($node, 'the trail is whole at the end');
$node->stop;

# Without preloading

my $plain = PostgreSQL::Test::Cluster->new('plain');
init_node($plain);
$plain->start;
$plain->safe_psql('postgres', 'CREATE EXTENSION pg_audit_queue');
foreach my $sql (
	'SELECT audit_flush()',
	'SELECT audit_rotate()',
	'SELECT audit_queue_stats_reset()',
	'SELECT * FROM audit_queue_stats')
{
	my ($ret, $stdout, $stderr) = $plain->psql('postgres', $sql);

	isnt($ret, 0, "$sql fails without preloading");
	like($stderr, qr/ERROR: .*must be loaded via "?shared_preload_libraries/,
		'with its reason');
	like($stderr, qr/HINT: .*postgresql\.conf/, 'and what to do about it');
}
is( $plain->safe_psql('postgres', 'CREATE TABLE t (a int); DROP TABLE t; SELECT 1'),
	'1', 'data definition works without preloading');
$plain->safe_psql('postgres', 'DROP EXTENSION pg_audit_queue');
$plain->stop;

done_testing();
