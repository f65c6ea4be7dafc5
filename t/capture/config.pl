# Class CONFIG: each change of one of our settings, by whatever means, is
# recorded with old and new value, source and user.  Also the worker's own
# records.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $superuser = getpwuid($>);
my $node      = audited_node(
	'main',
	settings => { log => 'none' },
	conf     => "autovacuum = off\nsuperuser_reserved_connections = 3\n");
my @records;

# The records of class CONFIG that this makes (see records_for()).  Nothing
# else is audited, unless options say so.
sub config_are
{
	my ($what, $expected, $name, %options) = @_;
	my $fields = delete $options{fields}
	  // 'command objectName oldValue newValue valueSource exitCode';

	@records = grep { $_->{class} eq 'CONFIG' } records_for(
		$node, $what,
		config        => 1,
		on_error_stop => 0,
		%options);
	is_deeply([ columns($fields, @records) ], $expected, $name)
	  or diag explain [ columns($fields, @records) ];
	return;
}

# Reload the configuration, and wait until the worker has recorded that.
sub reload
{
	my $before = texts_in_trail($node, '"command":"RELOAD"');

	$node->reload;
	return poll_until(
		sub {
			flush_trail($node);
			return texts_in_trail($node, '"command":"RELOAD"') > $before;
		});
}

# What is there when a server has started

flush_trail($node);
my @first = trail_records($node);
is_deeply(
	[ columns('class command exitCode sequence', @first) ],
	['CONFIG|WORKER START|00000|1'],
	'the first record is that the worker has started');
is_deeply(
	{
		map { $_ => $first[0]{$_} }
		  qw(auditType backendType pid sessionLine durationUs dbUserName sessionUser
		  databaseName remoteHost dbProtocol clientApplication statementId objectType
		  objectName oldValue newValue valueSource commandText virtualTransactionId)
	},
	{
		auditType   => 'SESSION',
		backendType => 'pg_audit_queue worker',
		pid         => worker_pid($node),
		sessionLine => 1,
		durationUs  => 0,
		map { $_ => undef }
		  qw(dbUserName sessionUser databaseName remoteHost dbProtocol
		  clientApplication statementId objectType objectName oldValue newValue valueSource
		  commandText virtualTransactionId)
	},
	'and all that there is to say of it');

# Every setting, in the way in which it can be changed.  Another value for
# each, as SHOW shows it.

my %other = (
	commit_wal             => 'on',
	consumer_keep_size     => '50GB',
	database               => 'other_database',
	flush_interval         => '90s',
	flush_threshold        => '60',
	format                 => 'pgaudit',
	fsync                  => 'off',
	immediate_log          => 'ddl, role',
	json_nulls             => 'off',
	log                    => 'read',
	log_catalog            => 'off',
	log_client             => 'on',
	log_compression        => 'zstd',
	log_directory          => 'other_audit',
	log_encryption         => 'aes-128-gcm',
	log_encryption_key_command => 'echo 000102030405060708090a0b0c0d0e0f',
	log_file_mode          => '0640',
	log_filename           => 'other',
	log_level              => 'notice',
	log_line_prefix        => '%m ',
	log_parameter          => 'on',
	log_parameter_max_size => '3kB',
	log_relation           => 'on',
	log_retention_age      => '90d',
	log_retention_size     => '20GB',
	log_rotation_age       => '90min',
	log_record_max_size    => '64kB',
	log_rotation_size      => '2GB',
	log_rows               => 'on',
	log_settings           => 'shop.user_id, "shop.request"',
	log_statement          => 'off',
	log_statement_once     => 'on',
	mask_literals          => 'read, write',
	mask_patterns          => '"a{1,2}", b',
	mode                   => 'commit',
	overflow               => 'drop',
	policy                 => 'off',
	policy_file            => undef,      # t/policy/policy_file.pl: not by ALTER SYSTEM
	queue_directory        => 'other_queue',
	queue_size             => '8MB',
	role                   => 'somebody',
	seal                   => 'on',
	seal_interval          => '5min',
	sink                   => undef,      # t/table/table.pl: the trail is elsewhere then
	table_logged           => 'off',
	table_retention        => '90d',
	table_synchronous_commit => 'local');
my %show    = map { split /=/, $_, 2 } split /\n/, unaudited_sql(
	$node, q{
	SELECT substr(name, length('pg_audit_queue.') + 1) || '=' || current_setting(name)
	  FROM pg_settings WHERE name LIKE 'pg\_audit\_queue.%'});
my %context = map { split /=/, $_, 2 } split /\n/, unaudited_sql(
	$node, q{
	SELECT substr(name, length('pg_audit_queue.') + 1) || '=' || context
	  FROM pg_settings WHERE name LIKE 'pg\_audit\_queue.%'});

is_deeply([ sort keys %other ], [ sort keys %show ], 'each setting is tested');
foreach my $name (sort grep { defined $other{$_} } keys %other)
{
	my $setting = "pg_audit_queue.$name";
	my ($old, $new) = ($show{$name}, $other{$name});
	my $fixed = $context{$name} eq 'postmaster';

	isnt($new, $old, "$name: another value");
	if ($context{$name} eq 'superuser')
	{
		my $source = $name eq 'log' ? 'configuration file' : 'default';

		config_are(
			"SET $setting = '$new'; RESET $setting;",
			[
				"SET|$setting|$old|$new|session|00000",
				"RESET|$setting|$new|$old|$source|00000"
			],
			"$name: SET, RESET");
		is($_->{objectType}, 'SETTING', "$name: object type of $_->{command}")
		  foreach @records;
		next;
	}
	config_are(
		"ALTER SYSTEM SET $setting = '$new'",
		["ALTER SYSTEM|$setting|$old|$new|configuration file|00000"],
		"$name: ALTER SYSTEM");

	# the trail shall stay where it is and what it is
	if ($name =~ /^(?:format|log_compression|log_directory|log_encryption|log_filename)$/)
	{
		unaudited_sql($node, "ALTER SYSTEM RESET $setting");
		next;
	}
	config_are(
		\&reload,
		[
			($fixed ? () : "SET|$setting|$old|$new|configuration file|00000"),
			'RELOAD|||||00000'
		],
		"$name: reload");
	is(unaudited_sql($node, "SHOW $setting"),
		$fixed ? $old : $new, "$name: that is what SHOW shows");
	config_are(
		"ALTER SYSTEM RESET $setting",
		[ "ALTER SYSTEM|$setting|" . ($fixed ? $old : $new) . '||configuration file|00000' ],
		"$name: ALTER SYSTEM RESET");
	config_are(
		\&reload,
		[ ($fixed ? () : "SET|$setting|$new|$old|default|00000"), 'RELOAD|||||00000' ],
		"$name: reload, back");
}

# Within a session.  What changes nothing is no change; what comes back is.

my ($log, $rows, $mode) = map { "pg_audit_queue.$_" } qw(log log_rows mode);

config_are(
	"SET $rows = on; SET $rows = true; SET $log = 'read'; RESET ALL;",
	[
		"SET|$rows|off|on|session|00000",
		"SET|$log|none|read|session|00000",
		"RESET|$log|read|none|configuration file|00000",
		"RESET|$rows|on|off|default|00000"
	],
	'RESET ALL');
config_are(
	"SET $rows = on; DISCARD ALL; SET $rows TO DEFAULT; SET $mode = commit",
	[
		"SET|$rows|off|on|session|00000",
		"RESET|$rows|on|off|default|00000",
		"SET|$mode|queued|commit|session|00000"
	],
	'DISCARD ALL; nothing at the end of a session');
config_are(
	"BEGIN; SET LOCAL $rows = on; COMMIT; SET $mode = commit;
	BEGIN; SET LOCAL $mode = immediate; SET $mode = queued; ROLLBACK;",
	[
		"SET|$rows|off|on|session|00000",
		"RESET|$rows|on|off|default|00000",
		"SET|$mode|queued|commit|session|00000",
		"SET|$mode|commit|immediate|session|00000",
		"SET|$mode|immediate|queued|session|00000",
		"RESET|$mode|queued|commit|session|00000"
	],
	'ends of transactions');
config_are(
	"BEGIN; SAVEPOINT s; SET $rows = on; ROLLBACK TO s;
	SET $rows = on; SET LOCAL $rows = off; COMMIT;",
	[
		"SET|$rows|off|on|session|00000",
		"RESET|$rows|on|off|default|00000",
		"SET|$rows|off|on|session|00000",
		"SET|$rows|on|off|session|00000",
		"RESET|$rows|off|on|session|00000"
	],
	'savepoints, SET LOCAL over SET');
config_are(
	"BEGIN; SET LOCAL $rows = on; SET $mode = commit;",
	[ "SET|$rows|off|on|session|00000", "SET|$mode|queued|commit|session|00000" ],
	'the end of a session in the middle of a transaction');
config_are(
	"SELECT set_config('$rows', 'on', false), set_config('$mode', 'commit', true);
	SELECT set_config('$rows', 'off', false);",
	[
		"SET|$rows|off|on|session|00000",
		"SET|$mode|queued|commit|session|00000",
		"RESET|$mode|commit|queued|default|00000",
		"SET|$rows|on|off|session|00000"
	],
	'set_config()');

unaudited_sql($node, "
	CREATE TABLE t (a int);
	INSERT INTO t VALUES (1);
	CREATE FUNCTION hide(fail bool) RETURNS int LANGUAGE plpgsql AS \$\$
		BEGIN
			INSERT INTO t VALUES (2);
			IF fail THEN RAISE 'failed'; END IF;
			RETURN 1;
		END \$\$");
config_are(
	"ALTER FUNCTION hide SET $log = 'none';
	ALTER FUNCTION hide SET $rows = on;
	ALTER FUNCTION hide RESET $rows;",
	[], 'a SET clause changes nothing by itself');
@records = records_for(
	$node, 'SELECT hide(false); SELECT hide(true);',
	config        => 1,
	on_error_stop => 0,
	settings      => { log => 'write' });
is_deeply(
	[ columns('class command objectName oldValue newValue valueSource', @records) ],
	[
		"CONFIG|SET|$log|none|write|client",
		"CONFIG|SET|$log|write|none|session",
		"CONFIG|RESET|$log|none|write|client",
		"CONFIG|SET|$log|write|none|session",
		"CONFIG|RESET|$log|none|write|client"
	],
	'it does when the function is called and when it ends, by an error too');
config_are(
	'SELECT 1',
	[ "SET|$log|none|read|client|00000", "SET|$rows|off|on|client|00000" ],
	'options of the connection',
	settings => { log => 'read', log_rows => 'on' });

# Who

unaudited_sql($node, "
	CREATE ROLE joe LOGIN;
	CREATE ROLE trusted LOGIN;
	GRANT SET, ALTER SYSTEM ON PARAMETER $log TO trusted;
	GRANT trusted, joe TO $superuser");
config_are(
	"SET $log = 'none'; SET $log = 'ddl'; SELECT 1; SET $log = 'none'; CREATE TABLE u ();",
	[
		"SET|$superuser|$superuser|ddl", "SET|$superuser|$superuser|none"
	],
	'nobody turns auditing off without a record',
	fields => 'command dbUserName currentUser newValue');
is($records[0]{sessionUser}, $superuser, 'of who did it');
is($records[0]{databaseName}, 'postgres', 'and where');
config_are(
	"SET ROLE trusted; SELECT set_config('$log', 'ddl', false);
	RESET ROLE; SET SESSION AUTHORIZATION trusted; SET $log = 'none';",
	[
		"SET|$superuser|$superuser|trusted|ddl",
		"SET|$superuser|trusted|trusted|none"
	],
	'with another role',
	fields => 'command dbUserName sessionUser currentUser newValue');
config_are(
	"SET $log = 'role'; ALTER SYSTEM SET $log = 'none';",
	[
		'SET|trusted|trusted|none|role|00000',
		'ALTER SYSTEM|trusted|trusted|none|none|00000'
	],
	'somebody who may do it',
	extra_params => [ '-U', 'trusted' ],
	fields       => 'command dbUserName currentUser oldValue newValue exitCode');
unaudited_sql($node, "ALTER SYSTEM RESET $log");

# Attempts that fail

config_are(
	"SET $mode = 'sometimes'; SET $log = 'read, dll'; SET pg_audit_queue.lgo = 'all';
	SET pg_audit_queue.queue_size = '1MB'; RESET pg_audit_queue.queue_size;
	SET LOCAL pg_audit_queue.fsync = off; RESET pg_audit_queue.lgo;
	SET $rows = on;",
	[
		"SET|$mode|queued|sometimes|session|22023|invalid value for parameter \"$mode\": \"sometimes\"",
		"SET|$log|none|read, dll|session|22023|invalid value for parameter \"$log\": \"read, dll\"",
		'SET|pg_audit_queue.lgo|||session|42602|invalid configuration parameter name "pg_audit_queue.lgo"',
		'SET|pg_audit_queue.queue_size|16MB|1MB|session|55P02|parameter "pg_audit_queue.queue_size" cannot be changed without restarting the server',
		'RESET|pg_audit_queue.queue_size|16MB||session|55P02|parameter "pg_audit_queue.queue_size" cannot be changed without restarting the server',
		'SET|pg_audit_queue.fsync|on|off|session|55P02|parameter "pg_audit_queue.fsync" cannot be changed now',
		'RESET|pg_audit_queue.lgo|||session|42602|invalid configuration parameter name "pg_audit_queue.lgo"',
		"SET|$rows|off|on|session|00000|"
	],
	'of SET and RESET',
	fields =>
	  'command objectName oldValue newValue valueSource exitCode errorMessage');
is($records[0]{commandText},
	shown_text($node, "SET $mode = 'sometimes';"), 'with their text');
my $denied = 'permission denied to set parameter';
my $denied_role =
  'permission denied' . ($node->pg_version->major >= 16 ? ' to alter role' : '');
config_are(
	"SET $log = 'none'; RESET $log; ALTER SYSTEM SET $log = 'none';
	ALTER SYSTEM RESET ALL; ALTER ROLE joe SET $log = 'none';
	ALTER ROLE trusted SET $log = 'all'; ALTER DATABASE postgres SET $log = 'none';
	SET pg_audit_queue.log_directory = '/tmp'; SELECT set_config('$log', 'none', false);",
	[
		"SET|$log|none|none|42501|$denied \"$log\"",
		"RESET|$log|none||42501|$denied \"$log\"",
		"ALTER SYSTEM|$log|none|none|42501|$denied \"$log\"",
		"ALTER ROLE|$log||none|42501|$denied \"$log\"",
		"ALTER ROLE|$log||all|42501|$denied_role",
		"ALTER DATABASE|$log||none|42501|must be owner of database postgres",
		'SET|pg_audit_queue.log_directory|audit|/tmp|55P02|parameter "pg_audit_queue.log_directory" cannot be changed now'
	],
	'of somebody who may not',
	extra_params => [ '-U', 'joe' ],
	fields       => 'command objectName oldValue newValue exitCode errorMessage');
is($_->{dbUserName}, 'joe', 'who that is') foreach @records;
config_are(
	"ALTER ROLE nobody SET $log = 'none'; ALTER DATABASE nowhere RESET $log;
	ALTER ROLE joe IN DATABASE nowhere SET $log = 'none';
	ALTER SYSTEM SET $mode = 'sometimes'; ALTER ROLE joe SET $mode = 'sometimes';",
	[
		"ALTER ROLE|$log||none|user|42704",
		"ALTER DATABASE|$log|||database|3D000",
		"ALTER ROLE|$log||none|database user|3D000",
		"ALTER SYSTEM|$mode|queued|sometimes|configuration file|22023",
		"ALTER ROLE|$mode||sometimes|user|22023"
	],
	'what is not there, or no value');

# Values for sessions to come.  That they are used is no change: it was one
# when they were stored.

config_are(
	"ALTER ROLE joe SET $log = 'read', 'write';
	ALTER ROLE joe SET $log = 'ddl'; ALTER ROLE joe SET $mode = 'commit';
	ALTER ROLE joe SET work_mem = '5MB'; ALTER ROLE joe RESET $rows;
	ALTER ROLE joe RESET $mode; ALTER ROLE joe SET $mode FROM CURRENT;
	ALTER ROLE joe RESET ALL; ALTER ROLE joe RESET ALL;",
	[
		"ALTER ROLE|$log||read, write|user|00000",
		"ALTER ROLE|$log|read, write|ddl|user|00000",
		"ALTER ROLE|$mode||commit|user|00000",
		"ALTER ROLE|$rows|||user|00000",
		"ALTER ROLE|$mode|commit||user|00000",
		"ALTER ROLE|$mode||queued|user|00000",
		"ALTER ROLE|$log|ddl||user|00000",
		"ALTER ROLE|$mode|queued||user|00000"
	],
	'ALTER ROLE');
is($records[0]{commandText},
	shown_text($node, "ALTER ROLE joe SET $log = 'read', 'write';"), 'with their text');
is($records[0]{objectType}, 'SETTING', 'and object type');
config_are(
	"ALTER DATABASE postgres SET $rows = on; ALTER DATABASE postgres SET $rows = off;
	ALTER DATABASE postgres RESET $rows; ALTER DATABASE postgres SET $rows TO DEFAULT;
	ALTER ROLE joe IN DATABASE postgres SET $rows = 1; ALTER ROLE joe IN DATABASE postgres RESET $rows;
	ALTER ROLE ALL SET $rows = on; ALTER ROLE ALL IN DATABASE postgres SET $rows = off;
	ALTER ROLE ALL IN DATABASE postgres RESET ALL; ALTER ROLE ALL RESET ALL;",
	[
		"ALTER DATABASE|$rows||on|database|00000",
		"ALTER DATABASE|$rows|on|off|database|00000",
		"ALTER DATABASE|$rows|off||database|00000",
		"ALTER DATABASE|$rows|||database|00000",
		"ALTER ROLE|$rows||1|database user|00000",
		"ALTER ROLE|$rows|1||database user|00000",
		"ALTER ROLE|$rows||on|global|00000",
		"ALTER ROLE|$rows||off|database|00000",
		"ALTER ROLE|$rows|off||database|00000",
		"ALTER ROLE|$rows|on||global|00000"
	],
	'ALTER DATABASE, and both');
config_are(
	"ALTER SYSTEM SET pg_audit_queue.flush_interval = '3s';
	ALTER SYSTEM SET work_mem = '5MB'; ALTER SYSTEM SET pg_audit_queue.flush_threshold = 66;
	ALTER SYSTEM RESET ALL; ALTER SYSTEM RESET ALL;",
	[
		'ALTER SYSTEM|pg_audit_queue.flush_interval|1s|3s|configuration file|00000',
		'ALTER SYSTEM|pg_audit_queue.flush_threshold|5|66|configuration file|00000',
		'ALTER SYSTEM|pg_audit_queue.flush_interval|1s||configuration file|00000',
		'ALTER SYSTEM|pg_audit_queue.flush_threshold|5||configuration file|00000'
	],
	'ALTER SYSTEM, nothing of which takes effect');

unaudited_sql($node, "
	ALTER ROLE joe SET $log = 'read'; ALTER DATABASE postgres SET $rows = on");
config_are(
	"SHOW $log; SHOW $rows; SELECT 1;",
	[], 'values of role and database at login',
	extra_params => [ '-U', 'joe' ]);
unaudited_sql($node, "ALTER ROLE joe RESET ALL; ALTER DATABASE postgres RESET $rows");

# Names in another spelling are the same settings.

config_are(
	q{SET "Pg_Audit_Queue".log = 'read'; ALTER ROLE joe SET "PG_AUDIT_QUEUE"."LOG" = 'read';
	SELECT set_config('PG_AUDIT_QUEUE.log', 'none', false);
	ALTER ROLE joe RESET "pg_audit_queue"."Log"; SET "PG_AUDIT_QUEUE"."Log" = 'x';},
	[
		"SET|$log|none|read|session|00000",
		"ALTER ROLE|$log||read|user|00000",
		"SET|$log|read|none|session|00000",
		"ALTER ROLE|$log|read||user|00000",
		"SET|$log|none|x|session|22023"
	],
	'other spellings');

# What is checked only must not be taken for what is assigned later, nor what a
# session reads from the file while it has a value of its own.

config_are(
	"SET $rows = on; ALTER SYSTEM SET $rows = on; ALTER SYSTEM SET $rows = off;
	ALTER ROLE joe SET $rows = off; RESET $rows; SET $rows = on;
	BEGIN; SET LOCAL $rows = off; ALTER ROLE joe SET $rows = off; COMMIT;",
	[
		"SET|$rows|off|on|session|00000",
		"ALTER SYSTEM|$rows|off|on|configuration file|00000",
		"ALTER SYSTEM|$rows|off|off|configuration file|00000",
		"ALTER ROLE|$rows||off|user|00000",
		"RESET|$rows|on|off|default|00000",
		"SET|$rows|off|on|session|00000",
		"SET|$rows|on|off|session|00000",
		"ALTER ROLE|$rows|off|off|user|00000",
		"RESET|$rows|off|on|session|00000"
	],
	'checked and not assigned');
unaudited_sql($node, "ALTER SYSTEM RESET $rows; ALTER ROLE joe RESET ALL");

my $client = PgProto->connect($node);
my $other  = PgProto->connect($node);

# Have the sessions read the file with this value of log_catalog, which tells
# that they have.
sub sessions_reload
{
	my ($value, @clients) = @_;

	$node->append_conf('postgresql.conf', settings_text(log_catalog => $value));
	reload() or return 0;
	foreach my $session (@clients)
	{
		my $sql = "SELECT 1 / (current_setting('pg_audit_queue.log_catalog') = '$value')::int";

		poll_until(sub { $session->query($sql) !~ /22012/ }) or return 0;
	}
	return 1;
}

my $catalog = 'pg_audit_queue.log_catalog';

config_are(
	sub {
		$client->query("SET $log = 'ddl'");
		$client->query("SET $mode = 'commit'");
		$client->query("BEGIN; SET LOCAL $rows = on");
		$node->append_conf('postgresql.conf',
			settings_text(log => 'role', log_rows => 'off', mode => 'immediate'));
		ok(sessions_reload('off', $client, $other), 'a reload');
		$client->query("COMMIT; RESET $log; RESET $mode");
	},
	[
		"SET|$log|none|ddl|session|00000",
		"SET|$mode|queued|commit|session|00000",
		"SET|$rows|off|on|session|00000",
		"SET|$log|none|role|configuration file|00000",
		"SET|$mode|queued|immediate|configuration file|00000",
		"SET|$catalog|on|off|configuration file|00000",
		'RELOAD|||||00000',
		"RESET|$rows|on|off|configuration file|00000",
		"RESET|$log|ddl|role|configuration file|00000",
		"RESET|$mode|commit|immediate|configuration file|00000"
	],
	'while a session has values of its own');
is_deeply(
	[ map { $_->{backendType} } @records ],
	[
		('client backend') x 3,
		('pg_audit_queue worker') x 4,
		('client backend') x 3
	],
	'a reload is recorded by the worker alone');
config_are(
	sub {
		$node->append_conf('postgresql.conf',
			settings_text(log => 'none', mode => 'queued'));
		ok(sessions_reload('on', $client, $other), 'another reload');
	},
	[
		"SET|$log|role|none|configuration file|00000",
		"SET|$mode|immediate|queued|configuration file|00000",
		"SET|$catalog|off|on|configuration file|00000",
		'RELOAD|||||00000'
	],
	'back');

# A file that cannot be read changes nothing.

my $conf = $node->data_dir . '/postgresql.conf';
my $good = slurp_file($conf);
$node->append_conf('postgresql.conf', "pg_audit_queue.log = 'all'\nthis is wrong\n");
config_are(\&reload, ['RELOAD|||||F0000'], 'a broken configuration file');
unlink($conf);
append_to_file($conf, $good);
config_are(\&reload, ['RELOAD|||||00000'], 'mended');

# Parallel workers take over their leader's settings, which is no change.

config_are(
	"SELECT set_config(name, 'on', false) FROM pg_settings
	  WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
	SET $rows = on; SET pg_audit_queue.role = 'joe'; SELECT count(*) FROM pg_class;",
	[
		"SET|$rows|off|on|session|00000",
		'SET|pg_audit_queue.role||joe|session|00000'
	],
	'a parallel query');

# Whatever else is recorded

@records = records_for(
	$node, "SET $rows = on; SET $mode = 'x'; RESET $rows;",
	config        => 1,
	on_error_stop => 0,
	settings      => { log => 'misc', log_statement => 'off' });
is_deeply(
	[
		columns('class command commandText commandTextOmitted exitCode statementId',
			@records)
	],
	[
		'CONFIG|SET|||00000|', 'CONFIG|SET|||00000|',
		'CONFIG|SET|||00000|',
		'MISC|SET||not logged|00000|1',
		'CONFIG|SET||not logged|22023|',
		'MISC|SET||not logged|22023|',
		'CONFIG|RESET|||00000|',
		'MISC|RESET||not logged|00000|2'
	],
	'beside records of the statements; log_statement') or diag explain \@records;

# A session that waits for its records waits for these.

unaudited_sql($node, "ALTER ROLE joe SUPERUSER; ALTER ROLE joe SET $mode = 'immediate'");
my $worker = worker_pid($node);
kill('STOP', $worker);
my $session =
  start_psql($node, "SELECT 'in'; SET $rows = on; SELECT 'done'", user => 'joe', name => 'joe');
ok(wait_until_waiting($node, 'joe'), 'mode immediate: SET waits');
is(slurp_file($session->{stdout}), "in\n", 'nothing before it does');
kill('CONT', $worker);
is((finish_psql($session))[1], "in\ndone\n", 'until the trail has it');
unaudited_sql($node, 'ALTER ROLE joe NOSUPERUSER; ALTER ROLE joe RESET ALL');

# What the worker does

my $old_pid = worker_pid($node);
my $new_pid;
config_are(
	sub {
		kill_worker($node, 'TERM');
		$new_pid = wait_for_worker($node, $old_pid);
	},
	[ 'WORKER STOP|00000', 'WORKER START|00000' ],
	'ended, and started again',
	fields => 'command exitCode');
is_deeply([ map { $_->{pid} } @records ], [ $old_pid, $new_pid ], 'one after the other');
config_are(
	sub {
		kill_worker($node, 'KILL');
		wait_for_worker($node, $new_pid);
	},
	['WORKER START'],
	'killed: it cannot say so',
	fields => 'command');

# At a stop that is the last record.  If the trail cannot be written then, it
# is in the queue, before that of the next start.

my $stopped = time;
$node->stop;
cmp_ok(time - $stopped, '<', 5, 'the worker does not wait for itself at a stop');
is((trail_records($node))[-1]{command}, 'WORKER STOP', 'and has the last record');
append_to_file($node->data_dir . '/no_directory', '');
$node->start;
$node->append_conf('postgresql.conf', settings_text(log_directory => 'no_directory'));
my $position = -s $node->logfile;
$node->reload;
ok(wait_for_log($node, qr/audit trail cannot be written/, $position),
	'the trail cannot be written');
$node->stop;
$node->append_conf('postgresql.conf', settings_text(log_directory => 'audit'));
$node->start;
flush_trail($node);
is_deeply(
	[ columns('command newValue exitCode', (trail_records($node))[ -5 .. -1 ]) ],
	[
		'WORKER START||00000', 'SET|no_directory|00000', 'RELOAD||00000',
		'WORKER STOP||00000',  'WORKER START||00000'
	],
	'nothing is missing afterwards');

# Before it takes effect: a change that is under way when the server dies

$client = PgProto->connect($node);
$client->query('BEGIN; LOCK TABLE pg_db_role_setting IN SHARE MODE');
$session = start_psql($node, "ALTER ROLE joe SET $log = 'none'", name => 'crash');
ok( poll_until(
		sub {
			unaudited_sql(
				$node, q{SELECT count(*) FROM pg_stat_activity
						  WHERE application_name = 'crash' AND wait_event_type = 'Lock'}) eq '1';
		}),
	'ALTER ROLE is waiting');
crash_node($node);
finish_psql($session);
start_again($node);
flush_trail($node);
@records = grep { ($_->{command} // '') eq 'ALTER ROLE' && $_->{interrupted} } trail_records($node);
is_deeply(
	[ columns('class objectName newValue interrupted commandText', @records) ],
	["CONFIG|$log|none|1|ALTER ROLE joe SET $log = 'none'"],
	'interrupted by a crash');

# A full queue does not lose them.

$node->append_conf('postgresql.conf', settings_text(queue_size => '64kB'));
$node->restart;
$worker = worker_pid($node);
my $before = flush_trail($node);
kill('STOP', $worker);
$session = start_psql(
	$node,
	join('', map { "SET pg_audit_queue.log_parameter_max_size = $_;\n" } 1 .. 400),
	name => 'full');
ok(wait_until_waiting($node, 'full'), 'a session waits for space in the queue');
kill('CONT', $worker);
is((finish_psql($session))[0], 0, 'it goes on');
flush_trail($node);
is( join(' ',
		map { $_->{newValue} } grep { $_->{sequence} > $before && $_->{command} eq 'SET' }
		  trail_records($node)),
	join(' ', map { $_ % 1024 ? "${_}B" : $_ / 1024 . 'kB' } 1 .. 400),
	'each change is there once');
my $stats = stats($node);
is($stats->{flushed}, $stats->{published}, 'all are counted');
is($stats->{dropped}, 0, 'none is lost');
is($stats->{incomplete}, 0, 'none is incomplete');
check_trail($node, 'the trail is whole');
$node->stop;

# Format pgaudit

my $lines = audited_node(
	'lines',
	settings => { log => 'none', format => 'pgaudit', log_line_prefix => '%e %u|' },
	conf     => "autovacuum = off\n");
$lines->psql(
	'postgres', qq{
	SET pg_audit_queue.log_line_prefix = 'x';
	SET $log = 'read, "write"'; RESET $log; ALTER ROLE ALL SET pg_audit_queue.role = 'a"b';
	ALTER ROLE ALL RESET pg_audit_queue.role;},
	on_error_stop => 0);
unaudited_sql($lines, q{ALTER SYSTEM SET pg_audit_queue.flush_threshold = 60});
$lines->reload;
ok( poll_until(
		sub {
			flush_trail($lines);
			texts_in_trail($lines, ',RELOAD,');
		}),
	'format pgaudit');
my $prefix = "00000 $superuser|LOG:  AUDIT: SESSION,0,0,CONFIG";
my $own    = '00000 |LOG:  AUDIT: SESSION,0,0,CONFIG';
my $end    = shown_text($lines, ';');
is_deeply(
	[ trail_lines($lines) ],
	[
		"$own,WORKER START,,,,\",,\"",
		"55P02 $superuser|LOG:  AUDIT: SESSION,0,0,CONFIG,SET,SETTING,pg_audit_queue.log_line_prefix,SET pg_audit_queue.log_line_prefix = 'x'$end,\"%e %u|,x,session\"",
		"$prefix,SET,SETTING,$log,,\"none,\"\"read, \"\"\"\"write\"\"\"\"\"\",session\"",
		"$prefix,RESET,SETTING,$log,,\"\"\"read, \"\"\"\"write\"\"\"\"\"\",none,configuration file\"",
		"$prefix,ALTER ROLE,SETTING,pg_audit_queue.role,\"ALTER ROLE ALL SET pg_audit_queue.role = 'a\"\"b'$end\",\",\"\"a\"\"\"\"b\"\",global\"",
		"$prefix,ALTER ROLE,SETTING,pg_audit_queue.role,ALTER ROLE ALL RESET pg_audit_queue.role$end,\"\"\"a\"\"\"\"b\"\",,global\"",
		"00000 paq_quiet|LOG:  AUDIT: SESSION,0,0,CONFIG,ALTER SYSTEM,SETTING,pg_audit_queue.flush_threshold,ALTER SYSTEM SET pg_audit_queue.flush_threshold = 60,\"5,60,configuration file\"",
		"$own,SET,SETTING,pg_audit_queue.flush_threshold,,\"5,60,configuration file\"",
		"$own,RELOAD,,,,\",,\""
	],
	'its lines');

done_testing();
