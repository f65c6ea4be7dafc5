# sink = table: the contents of the table, who may see it, who waits for it, and
# what happens while it cannot be written.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use JSON::PP;
use Test::More;
use Time::HiRes qw(time);

use PgProto;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

# What a session may take that waits for its records, in s; the limits of
# loading.c and loader.c are below it, and what a machine may add
my $patience = 60;

my %table = (sink => 'table');
my $node  = audited_node(
	'main',
	settings => {
		%table, flush_interval => '10ms', log_parameter => 'on',
		log_settings => 'shop.user_id, nothing.there, TimeZone'
	},
	conf     => "max_worker_processes = 8\nautovacuum = off\ntimezone = 'Asia/Tokyo'\n"
	  . "datestyle = 'german'\n");

sub sql
{
	return unaudited_sql($node, @_);
}

# Is all in the table, at last, that was recorded before?
sub loaded
{
	return table_loaded($node, @_) ? 1 : 0;
}

# Number of records whose statement has the text
sub found
{
	my ($text, $database) = @_;

	return sql("SELECT count(*) FROM audit_records WHERE command_text LIKE '%$text%'"
		  . " AND user_name <> 'paq_quiet'",
		$database);
}

# Change settings by a reload, and have the loader's server read them.
sub reload
{
	my (%settings) = @_;

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	foreach my $name (sort keys %settings)
	{
		my $value = $settings{$name} =~ s/'/''/gr;

		poll_until(sub { sql("SHOW pg_audit_queue.$name") eq $settings{$name} })
		  or die "$name has not changed";
	}
	return;
}

# A column of the statistics, asked for in another database than the loader's
sub stats_elsewhere
{
	my ($column) = @_;

	create_extension($node, 'template1');
	my $value = unaudited_sql($node, "SELECT $column FROM audit_queue_stats", 'template1');
	unaudited_sql($node, 'DROP EXTENSION pg_audit_queue', 'template1');
	return $value;
}

# Files that are to be loaded
sub files
{
	return glob(queue_dir($node) . '/load/*');
}

# The sequence is without gaps in the whole table.
sub test_complete
{
	my ($name, $database) = @_;

	is( sql('SELECT count(*) - (max(sequence) - min(sequence) + 1), count(DISTINCT sequence)'
			  . ' - count(*), min(sequence) FROM audit_records', $database),
		'0|0|1', "$name: each sequence once");
	return;
}

# Every field of json is a column with the same value.

my %column_of = (
	type => 'type', sequence => 'sequence', logTime => 'log_time',
	startTime => 'start_time', endTime => 'end_time', durationUs => 'duration_us',
	auditType => 'audit_type', policy => 'policy', class => 'class', command => 'command',
	commandText => 'command_text', commandTextOmitted => 'command_text_omitted',
	statementLocation => 'statement_location', statementLength => 'statement_length',
	paramList => 'parameters', paramListOmitted => 'parameters_omitted',
	objectType => 'object_type', objectName => 'object_name', oldValue => 'old_value',
	newValue => 'new_value', valueSource => 'value_source', rowCount => 'row_count',
	exitCode => 'sqlstate', errorMessage => 'error_message',
	statementId => 'statement_id', substatementId => 'substatement_id',
	sessionLine => 'session_line', sessionId => 'session_id',
	sessionStart => 'session_start', pid => 'pid', backendType => 'backend_type',
	dbUserName => 'user_name', sessionUser => 'session_user_name',
	currentUser => 'current_user_name', databaseName => 'database_name',
	remoteHost => 'remote_host', remotePort => 'remote_port',
	netProtocol => 'net_protocol', dbProtocol => 'db_protocol',
	clientApplication => 'application_name', serverHost => 'server_host',
	serverType => 'server_type', serverVersion => 'server_version',
	tlsVersion => 'tls_version', tlsCipher => 'tls_cipher', authMethod => 'auth_method',
	serviceName => 'cluster_name', systemIdentifier => 'system_identifier',
	superuser => 'superuser', settings => 'settings', transactionId => 'transaction_id',
	virtualTransactionId => 'virtual_transaction_id', queryId => 'query_id',
	textEncoding => 'text_encoding', interrupted => 'interrupted', cut => 'cut',
	incomplete => 'incomplete', masked => 'masked');

my @work = (
	q{SET shop.user_id = E'tab\\t newline\\n quote" \\x01 backslash\\\\ \\u00e9 '},
	'CREATE TABLE t (a int, b text)',
	q{INSERT INTO t VALUES (1, E'tab\\tnewline\\ncarriage\\rbackslash\\\\quote"''\\x01\\x7f')},
	q{INSERT INTO t VALUES (2, U&'\00e9\4e2d\+01f600\2028')},
	q{PREPARE p(int, text) AS SELECT $1, $2},
	q<EXECUTE p(NULL, E'\\\\N\\n"\\t{[')>,
	q{EXECUTE p(1, '')},
	'SELECT 1/0', 'SELECT no_such_column', 'nonsense',
	'SELECT 1; SELECT 2;', q{SELECT '\N'}, q{SELECT '\.'}, "\\.\n",
	'SET pg_audit_queue.log_statement_once = on',
	q{SET pg_audit_queue.log_relation = on},
	'SELECT * FROM t JOIN t u USING (a)',
	'SET pg_audit_queue.log_statement = off', 'UPDATE t SET a = a');
my $count = 0;
my $json  = JSON::PP->new->utf8->canonical;

$node->safe_psql('postgres', 'CREATE ROLE someone LOGIN');
$node->psql('postgres', $_) foreach @work;
$node->psql('postgres', join(";\n", @work), on_error_stop => 0);
{
	local $ENV{PGAPPNAME} = "\xc3\xa9 \"'\\";
	$node->psql('postgres', 'SELECT 1');
}
is(loaded(), 1, 'all is loaded');
foreach my $line (map { split /(?<=\n)/, slurp_file($_) } files())
{
	my $record = decode_json($line);
	my ($row) =
	  map { decode_json($_) }
	  sql("SELECT row_to_json(r) FROM audit_records r WHERE sequence = $record->{sequence}");
	my @different;

	foreach my $field (sort keys %column_of)
	{
		my $expected = $record->{$field};
		my $value    = delete $row->{ $column_of{$field} };

		if ($field =~ /Time$|^sessionStart$/ && defined $expected)
		{
			$expected = sql("SELECT to_json('$expected'::timestamptz)") =~ tr/"//dr;
		}
		$expected //= JSON::PP::false if $field =~ /^(?:interrupted|cut|incomplete|masked)$/;
		# json has some numbers as strings, and so may the table
		my $same = defined $expected && defined $value && !ref $expected && !ref $value
		  ? $expected eq $value
		  : $json->encode([$expected]) eq $json->encode([$value]);
		push @different, "$field: " . encode_json([ $expected, $value ]) if !$same;
	}
	push @different, "column $_" foreach grep { !/^(?:series|remote_address|kept_file)$/ }
	  keys %$row;
	is("@different", '', "record $record->{sequence} is in the table as in json");
	push @different, grep { !exists $column_of{$_} } keys %$record;
	$count++;
}
cmp_ok($count, '>', 40, 'some records were compared');
test_complete('at first');
is(sql("SELECT count(*) FROM audit_records WHERE remote_host = '[local]'"
		  . ' AND remote_address IS NOT NULL'),
	'0', 'a socket is no address');
is(sql("SELECT count(*) FROM audit_records WHERE backend_type LIKE '%loader%'"),
	'0', 'the loader is not audited');

# Who may do what

my $privileges = join ',', qw(SELECT INSERT UPDATE DELETE TRUNCATE REFERENCES TRIGGER),
  $node->pg_version->major >= 17 ? 'MAINTAIN' : ();
is( sql("SELECT has_table_privilege('public', c, p) FROM"
		  . " unnest('{audit_records,audit_queue.records,audit_queue.load_state}'::regclass[]) c,"
		  . " unnest('{$privileges}'::text[]) p"
		  . ' GROUP BY 1'),
	'f', 'nothing is for everybody');
sub denied
{
	my ($statement) = @_;
	my ($result, $stdout, $stderr) = $node->psql('postgres', $statement,
		connstr => $node->connstr('postgres') . ' user=someone');

	return $stderr =~ /permission denied/;
}

ok(denied('SELECT * FROM audit_records'), 'not readable by anybody');
sql('GRANT audit_queue_reader TO someone');
ok(!denied('SELECT count(*) FROM audit_records'), 'but by members of the role');
ok(denied("$_ audit_queue.records"), "$_ is denied even then")
  foreach ('DELETE FROM', 'TRUNCATE', 'INSERT INTO audit_queue.load_state SELECT 1, 1 FROM');
ok(denied('SELECT * FROM audit_queue.load_state'), 'nor is the state readable');

# The process

# What was denied has just been recorded, and may still be being loaded.
my $shown;
poll_until(
	sub {
		$shown = sql("SELECT datname, state, query FROM pg_stat_activity"
			  . " WHERE backend_type = 'pg_audit_queue loader'");
		return $shown eq 'postgres|idle|waiting for audit records';
	});
is($shown, 'postgres|idle|waiting for audit records', 'pg_stat_activity shows the loader');
is(stats($node)->{sink}, 'table', 'the sink is shown');
like(stats($node)->{current_file}, qr{^pg_audit_queue/load/[0-9A-F]{16}-[0-9A-F]{16}\.json$},
	'and the file');
ok(!-e $node->data_dir . '/audit', 'no other trail');

# It sleeps when there is nothing to do.
sub switches
{
	my $pid = stats($node)->{loader_pid};

	return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s*(\d+)/m ? $1 : die;
}
loaded();
my $switches = poll_until(
	sub {
		my $before = switches();

		sleep 2;
		return $before == switches() ? $before : undef;
	});
ok(defined $switches, 'idle, the loader does nothing');

# Who waits.  The loader is stopped meanwhile, so that nobody is just quick.

foreach my $mode (qw(immediate commit))
{
	my $pid = stats($node)->{loader_pid};

	loaded();
	kill 'STOP', $pid;
	my $waiting = start_psql($node, "SELECT '$mode-waits-';", name => $mode,
		settings => { mode => $mode });
	ok( poll_until(
			sub { grep { slurp_file($_) =~ /$mode-waits-/ } files() },
			3),
		"mode $mode: the record is in the file");
	ok(wait_until_waiting($node, $mode), "mode $mode: the session waits all the same");
	is(found("$mode-waits-"), 0, "mode $mode: the table does not have it");
	kill 'CONT', $pid;
	is((finish_psql($waiting))[0], 0, "mode $mode: the statement ends");
	is(found("$mode-waits-"), 1, "mode $mode: when the table has it");
}

my $loader = stats($node)->{loader_pid};

# also if the file has everything before the commit
loaded();
kill 'STOP', $loader;
my $committer = PgProto->connect($node,
	options => '-c application_name=committer -c pg_audit_queue.mode=commit -c pg_audit_queue.log=read');
$committer->query('BEGIN');
$committer->query("SELECT 'flushed-early-'");
ok(poll_until(sub { grep { slurp_file($_) =~ /flushed-early-/ } files() }), 'a record is in the file');
$committer->start('COMMIT');
ok(wait_until_waiting($node, 'committer'), 'its COMMIT waits for the table');
kill 'CONT', $loader;
is($committer->finish, 'C:COMMIT', 'and ends');
is(found('flushed-early-'), 1, 'when the table has it');
$committer->quit;

loaded();
kill 'STOP', $loader;
$node->safe_psql('postgres', "SELECT 'before-the-flush-'");
my $flusher = start_psql($node, 'SELECT audit_flush();', name => 'flusher');
ok(wait_until_waiting($node, 'flusher'), 'audit_flush() waits for the table');
is(found('before-the-flush-'), 0, 'which does not have the record');
kill 'CONT', $loader;
is((finish_psql($flusher))[0], 0, 'audit_flush() ends');
is(found('before-the-flush-'), 1, 'when the table has it');

# Files go when they are loaded and the next one has begun.

$node->safe_psql('postgres', 'SELECT audit_rotate()');
$node->safe_psql('postgres', "SELECT 'after-rotation-'");
ok(poll_until(sub { loaded(); my @files = files(); @files == 1 }), 'one file is left');
is(found('after-rotation-'), 1, 'the next one is loaded');

# While somebody has a lock on the table, sessions go on.

my $log    = -s $node->logfile;
my $locker = start_psql(
	$node,
	'BEGIN; LOCK TABLE audit_queue.records IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(600);',
	name => 'locker');
my $started = time;

ok( poll_until(
		sub {
			sql("SELECT count(*) FROM pg_locks WHERE relation = 'audit_queue.records'::regclass"
				  . " AND mode = 'AccessExclusiveLock' AND granted");
		}),
	'somebody locks the table');
{
	local $ENV{PGOPTIONS} = '-c pg_audit_queue.mode=immediate';
	$node->safe_psql('postgres', "SELECT 'locked-$_-'") foreach 1 .. 20;
}
cmp_ok(time - $started, '<', $patience, 'a lock on the table holds nobody up');
ok( wait_for_log(
		$node,
		qr/audit records cannot be loaded into the table: canceling statement due to lock timeout/,
		$log),
	'it is reported');
ok((map { slurp_file($_) =~ /locked-20-/ } files())[-1], 'the records are in the file');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'locker'");
finish_psql($locker);
ok(wait_for_log($node, qr/audit records can be loaded into the table again/, $log),
	'its end, too');
is(loaded(), 1, 'loaded then');
is(found("locked-$_-"), 1, "record $_") foreach 1, 20;
is(scalar(() = slurp_file($node->logfile, $log) =~ /cannot be loaded/g), 1, 'once');
test_complete('after the lock');

# A stopped loader is not waited for, either.

$loader = stats($node)->{loader_pid};

kill 'STOP', $loader;
$started = time;
{
	local $ENV{PGOPTIONS} = '-c pg_audit_queue.mode=immediate';
	$node->safe_psql('postgres', "SELECT 'stopped-$_-'") foreach 1 .. 20;
}
kill 'CONT', $loader;
cmp_ok(time - $started, '<', $patience, 'a stopped loader holds nobody up');
is(loaded(), 1, 'it goes on');
is(found('stopped-20-'), 1, 'with all records');

# What the table refuses stays in the files.

sql("ALTER TABLE audit_queue.records ADD CONSTRAINT no CHECK (command_text NOT LIKE '%refused%')");
$log = -s $node->logfile;
$node->safe_psql('postgres', "SELECT 'refused-'");
ok(wait_for_log($node, qr/cannot be loaded into the table: new row for relation .* violates/, $log),
	'a refused record is reported');
like(stats($node)->{last_error}, qr/violates check constraint/, 'and shown');
$node->safe_psql('postgres', "SELECT 'after-it-'");
is(found('after-it-'), 0, 'nothing overtakes it');

# Retention is for files of a trail, not for these, however many or large they are.
reload(log_retention_size => '1kB', log_rotation_size => 0);
foreach (1 .. 3)
{
	unaudited_sql($node, 'SELECT audit_rotate()');
	$node->safe_psql('postgres', "SELECT 'retained-$_-" . 'x' x 2000 . "'");

	# or the file may be empty, and is not finished then
	flush_trail($node);
}
my @waiting = files();
cmp_ok(scalar @waiting, '>=', 4, 'several files wait to be loaded');
unaudited_sql($node, 'SELECT audit_rotate()');
ok(worker_at_rest($node), 'the worker has nothing more to do');
is(scalar(grep { !-e } @waiting), 0, 'retention leaves them alone');
reload(log_retention_size => '0', log_rotation_size => '10MB');
sql('ALTER TABLE audit_queue.records DROP CONSTRAINT no');
is(loaded(), 1, 'loaded when it is accepted');
is(found('refused-'), 1, 'that record');
is(found("retained-$_-"), 1, "and what waited behind it ($_)") foreach 1 .. 3;
test_complete('after the refusal');

# A trigger that swallows rows is no reason to lose them.
sql('CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS'
	  . ' $$ BEGIN RETURN NULL; END $$');
sql('CREATE TRIGGER swallow BEFORE INSERT ON audit_queue.records FOR EACH ROW'
	  . ' EXECUTE FUNCTION swallow()');
$node->safe_psql('postgres', "SELECT 'no trigger-'");
is(loaded(), 1, 'a trigger is not run');
is(found('no trigger-'), 1, 'by the loader');
sql('ALTER TABLE audit_queue.records ENABLE ALWAYS TRIGGER swallow');
$log = -s $node->logfile;
$node->safe_psql('postgres', "SELECT 'swallowed-'");
ok(wait_for_log($node, qr/only 0 of \d+ audit records were inserted/, $log),
	'swallowed records are reported');
sql('DROP FUNCTION swallow() CASCADE');
is(loaded(), 1, 'and loaded again');
is(found('swallowed-'), 1, 'that one, too');

# The extension, or the database, comes and goes.

$log = -s $node->logfile;
sql('DROP EXTENSION pg_audit_queue');
$node->safe_psql('postgres', "SELECT 'no extension-'");
ok(wait_for_log($node, qr/extension "pg_audit_queue" does not exist in database "postgres"/, $log),
	'without the extension');
sql('CREATE EXTENSION pg_audit_queue');
ok(poll_until(sub { found('no extension-') }), 'with it again');

$log = -s $node->logfile;
reload(database => 'other');
ok(wait_for_log($node, qr/FATAL:  database "other" does not exist/, $log),
	'without the database');
$node->safe_psql('postgres', "SELECT 'no database-'");
sql('CREATE DATABASE other');
create_extension($node, 'other');
ok(poll_until(sub { found('no database-', 'other') }, 150), 'with it');
is(found('no database-'), 0, 'and not in the one before');
is(loaded('other'), 1, 'all is in the new one');
sql('DROP DATABASE other WITH (FORCE)');
$node->safe_psql('postgres', "SELECT 'dropped-'");
reload(database => 'postgres');
ok(poll_until(sub { found('dropped-') }, 150), 'back to the first one');

# To files and back, without a restart

reload(sink => 'file');
$node->safe_psql('postgres', "SELECT 'in a file-'");
flush_trail($node);
is(scalar(grep { index($_, 'in a file-') >= 0 } map { slurp_file($_) } trail_files($node)),
	1, 'to files');
is(found('in a file-'), 0, 'and only there');
ok(poll_until(sub { !defined stats($node)->{loader_pid} }), 'the loader leaves');
is(stats($node)->{sink}, 'file', 'the sink is shown');
reload(sink => 'table');
$node->safe_psql('postgres', "SELECT 'back-'");
ok(poll_until(sub { found('back-') }), 'and back');
is(found('in a file-'), 0, 'without what is in files');
is( sql("SELECT string_agg(format('%s %s %s', command, old_value, new_value), ',')"
		  . " FROM audit_records WHERE object_name = 'pg_audit_queue.sink'"),
	'SET file table', 'the change is recorded');
is( scalar(
		grep { /"objectName":"pg_audit_queue.sink","oldValue":"table","newValue":"file"/ }
		  map { slurp_file($_) } trail_files($node)),
	1, 'and the one before');
foreach my $value (qw(off local remote_write on remote_apply))
{
	reload(table_synchronous_commit => $value);
	$node->safe_psql('postgres', "SELECT 'commit $value-'");
	is(loaded(), 1, "synchronous_commit $value");
	is(found("commit $value-"), 1, "synchronous_commit $value: the record");
}

# Partitions: ahead of time, dropped by age, unlogged

is( sql("SELECT count(*) FROM pg_inherits WHERE inhparent = 'audit_queue.records'::regclass"),
	3, 'partitions for today and two days more');
is( sql("SELECT string_agg(DISTINCT relpersistence::text, '') FROM pg_class"
		  . ' JOIN pg_inherits ON oid = inhrelid'
		  . " WHERE inhparent = 'audit_queue.records'::regclass"),
	'p', 'logged');
sql('CREATE TABLE audit_queue.records_20200102 PARTITION OF audit_queue.records FOR VALUES FROM'
	  . " ('2020-01-02 00:00:00+00') TO ('2020-01-03 00:00:00+00')");
sql('CREATE TABLE audit_queue.records_20200101 PARTITION OF audit_queue.records FOR VALUES FROM'
	  . " ('2020-01-01 00:00:00+00') TO ('2020-01-02 00:00:00+00')");
sql('CREATE TABLE audit_queue.records_of_mine PARTITION OF audit_queue.records FOR VALUES FROM'
	  . " ('2019-01-01 00:00:00+00') TO ('2019-01-02 00:00:00+00')");

# While the worker is stopped, nothing becomes durable, so nothing may be dropped.
my $worker     = stats($node)->{worker_pid};
my $published  = stats($node)->{published};
my $partitions = sql("SELECT string_agg(format('CONFIG|RETENTION|TABLE|%s|%s|1|%s||'"
	  . " || 'pg_audit_queue.table_retention|00000|pg_audit_queue loader|postgres',"
	  . ' oid::regclass, relname, pg_total_relation_size(oid)), chr(10) ORDER BY relname)'
	  . " FROM pg_class WHERE relname IN ('records_20200101', 'records_20200102')"
	  . " AND relkind = 'r'");
$log = -s $node->logfile;
kill 'STOP', $worker;
reload(table_retention => '1d', table_logged => 'off');
ok(poll_until(sub { stats($node)->{published} == $published + 1 }),
	'the record of a partition comes first');
ok( poll_until(
		sub {
			sql("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle'"
				  . " AND backend_type = 'pg_audit_queue loader'");
		}),
	'the loader goes on');
is(sql("SELECT to_regclass('audit_queue.records_20200101') IS NULL"), 'f',
	'and drops nothing before that is durable');
kill 'CONT', $worker;
ok(poll_until(sub { sql("SELECT to_regclass('audit_queue.records_20200102') IS NULL") eq 't' }),
	'old partitions are dropped');
is(sql("SELECT to_regclass('audit_queue.records_20200101') IS NULL"), 't', 'each of them');
is(sql("SELECT to_regclass('audit_queue.records_of_mine') IS NULL"), 'f', 'not somebody else\'s');
ok(wait_for_log($node, qr/dropping partition "records_20200101"/, $log), 'it is reported');
is(loaded(), 1, 'loading goes on');
is( sql('SELECT string_agg(concat_ws($$|$$, class, command, object_type, object_name, command_text,'
		  . " row_count, old_value, coalesce(new_value, ''), value_source, sqlstate, backend_type,"
		  . ' database_name), chr(10) ORDER BY sequence)'
		  . " FROM audit_records WHERE command = 'RETENTION'"),
	$partitions, 'and recorded');
$node->safe_psql('postgres', "SELECT 'retained-'");
is(loaded(), 1, 'loading goes on');
is(found('retained-'), 1, 'what is young stays');
sql("ALTER DEFAULT PRIVILEGES GRANT ALL ON $_ TO PUBLIC, someone") foreach qw(TABLES SCHEMAS);
sql('DROP EXTENSION pg_audit_queue');
sql('CREATE EXTENSION pg_audit_queue');
$node->safe_psql('postgres', "SELECT 'unlogged-'");
is(loaded(), 1, 'a new table');
is( sql("SELECT string_agg(DISTINCT relpersistence::text, '') FROM pg_class"
		  . ' JOIN pg_inherits ON oid = inhrelid'
		  . " WHERE inhparent = 'audit_queue.records'::regclass"),
	'u', 'unlogged');

is( sql(q{
		SELECT string_agg(DISTINCT concat_ws(' ', grantee::regrole, privilege_type, relname), ', ')
		  FROM pg_class, aclexplode(relacl)
		 WHERE relnamespace = 'audit_queue'::regnamespace AND grantee <> relowner}),
	'audit_queue_reader SELECT records, audit_queue_reader SELECT trail', 'default privileges do not count');
is(sql("SELECT has_schema_privilege('public', 'audit_queue', 'USAGE')"), 'f', 'of schemas, neither');
sql("ALTER DEFAULT PRIVILEGES REVOKE ALL ON $_ FROM PUBLIC, someone") foreach qw(TABLES SCHEMAS);

# Nor do settings of the database.
unaudited_sql($node, "ALTER DATABASE postgres SET $_", 'template1') foreach 'default_transaction_read_only = on',
  "statement_timeout = '1ms'", 'role = someone';
unaudited_sql($node, 'SELECT pg_terminate_backend(' . stats_elsewhere('loader_pid') . ')',
	'template1');
{
	# those of the role come after the database's
	local $ENV{PGOPTIONS} = '-c default_transaction_read_only=off -c statement_timeout=0';

	$node->safe_psql('postgres', "SELECT 'settings-'");
}
unaudited_sql($node, 'ALTER DATABASE postgres RESET ALL', 'template1');
ok(poll_until(sub { found('settings-') }, 30), 'settings of the database do not stop the loader');

# Somebody who reads an old partition does not stop loading.
sql('CREATE TABLE audit_queue.records_20200101 PARTITION OF audit_queue.records FOR VALUES FROM'
	  . " ('2020-01-01 00:00:00+00') TO ('2020-01-02 00:00:00+00')");
my $reader = start_psql($node, 'BEGIN; SELECT count(*) FROM audit_records; SELECT pg_sleep(600);',
	name => 'reader');
poll_until(
	sub {
		sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'reader'"
			  . " AND query LIKE '%pg_sleep%'");
	}) or die 'no reader';
my $removals = "SELECT count(*) FROM audit_records WHERE command = 'RETENTION'";
my $before   = sql($removals);
$log = -s $node->logfile;
reload(table_retention => '2d');
ok(wait_for_log($node, qr/partitions of the audit table could not be maintained/, $log),
	'a partition that is being read is not dropped');
$node->safe_psql('postgres', "SELECT 'while read-'");
is(loaded(), 1, 'loading goes on');
is(found('while read-'), 1, 'with all records');
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'reader'");
finish_psql($reader);
$node->reload;
ok(poll_until(sub { sql("SELECT to_regclass('audit_queue.records_20200101') IS NULL") eq 't' }),
	'but later');
is(loaded(), 1, 'after that');
is(sql($removals) - $before, 1, 'of which there is one record');

# Somebody removes the file.
$node->safe_psql('postgres', 'SELECT audit_rotate()');
loaded();
unlink files();
$node->safe_psql('postgres', "SELECT 'after removal-$_-'") foreach 1 .. 3;
is(loaded(), 1, 'loading goes on with the next file');
$node->safe_psql('postgres', 'SELECT audit_rotate()');
$node->safe_psql('postgres', "SELECT 'after removal-4-'");
is(loaded(), 1, 'and the next but one');
is(found("after removal-$_-"), 1, "record $_") foreach 1 .. 4;
$node->stop;

done_testing();
