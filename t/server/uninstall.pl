# What doc/upgrade.md says about dump and restore, and about taking the extension
# away: who may dump the trail, what is in the dump; what has to be removed, in
# which order, what stays, and the way back for those who began at the wrong end.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use IPC::Run;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { sink => 'table', flush_interval => '10ms' },
	conf     => "autovacuum = off\n");
my ($major) = unaudited_sql($node, 'SHOW server_version') =~ /^(\d+)/;
my $files = PostgreSQL::Test::Utils::tempdir();

sub sql
{
	return unaudited_sql($node, @_);
}

# ---------------------------------------------------------------------------
# Dump and restore
# ---------------------------------------------------------------------------

$node->safe_psql('postgres', "SELECT 'kept-$_-'") foreach 1 .. 3;
ok(table_loaded($node), 'there is a trail in the table');
sql('CREATE ROLE auditor LOGIN; GRANT audit_queue_reader TO auditor;'
	  . ' CREATE ROLE reads_all LOGIN; GRANT pg_read_all_data TO reads_all;'
	  . ' CREATE ROLE backup LOGIN BYPASSRLS; GRANT pg_read_all_data TO backup');

sub dump_as
{
	my ($role, $file, @options) = @_;

	return run_command(
		[ 'pg_dump', '-f', "$files/$file", '-d', $node->connstr('postgres'), '-U', $role, @options ]);
}

foreach my $role (qw(auditor reads_all))
{
	my (undef, $stderr) = dump_as($role, $role);

	like($stderr, qr/error: .*(?:row-level security|permission denied)/s, "$role may not dump it");
}
foreach my $role (qw(paq_quiet backup))
{
	my (undef, $stderr) = dump_as($role, $role);

	is($stderr, '', "$role may");
	like(slurp_file("$files/$role"), qr/kept-3-/, "$role has the trail");
}

my $dump = slurp_file("$files/paq_quiet");
like($dump, qr/^CREATE EXTENSION IF NOT EXISTS pg_audit_queue WITH SCHEMA pg_catalog;$/m,
	'in the dump: the extension');
like($dump, qr/^CREATE TABLE audit_queue\.records_\d{8} /m, 'the partitions');
like($dump, qr/^COPY audit_queue\.load_state /m, 'how far they go');
unlike($dump, qr/^CREATE (?:TABLE audit_queue\.records |ROLE|EVENT TRIGGER|(?:OR REPLACE )?VIEW|FUNCTION)/m,
	'not: what CREATE EXTENSION makes, and roles');

# Into a server that has never had the extension: the role is made with it.
my $other = audited_node('other', start => 0);
$other->start;
$other->command_ok(
	[ 'psql', '-Xq', '-1', '-v', 'ON_ERROR_STOP=1', '-f', "$files/paq_quiet", '-d',
	  $other->connstr('postgres') ],
	'restored into another server');
is( unaudited_sql($other,
		"SELECT count(*) FROM audit_records WHERE command_text LIKE '%kept-%'"),
	3, 'the trail is there');
is(unaudited_sql($other, "SELECT pg_has_role('audit_queue_reader', 'audit_queue_reader', 'USAGE')"),
	't', 'and the role');

# Without the library in shared_preload_libraries the trail can be restored and
# read, but functions say what is missing.
$other->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$other->restart;
$other->safe_psql('postgres', 'CREATE DATABASE plain');
$other->command_ok(
	[ 'psql', '-Xq', '-1', '-v', 'ON_ERROR_STOP=1', '-f', "$files/paq_quiet", '-d',
	  $other->connstr('plain') ],
	'restored where the library is not preloaded');
is($other->safe_psql('plain', "SELECT count(*) FROM audit_records WHERE command_text LIKE '%kept-%'"),
	3, 'the trail can be read');
my (undef, undef, $stderr) = $other->psql('plain', 'SELECT audit_flush()');
like($stderr, qr/ERROR:  pg_audit_queue must be loaded via "shared_preload_libraries"/,
	'functions say what is missing');
$other->safe_psql('plain', 'CREATE TABLE t (a int); DROP TABLE t');
$other->stop;

# ---------------------------------------------------------------------------
# Uninstalling, in the right order
# ---------------------------------------------------------------------------

sql('CREATE DATABASE second');
create_extension($node, 'second');
sql('CREATE ROLE app LOGIN; ALTER ROLE app SET pg_audit_queue.log = $$ddl$$;'
	  . ' ALTER DATABASE second SET pg_audit_queue.mode = $$commit$$');
sql('CREATE ROLE mixed; ALTER ROLE mixed SET PG_Audit_Queue.Log_Rows = on');
is(sql(q{SELECT setconfig FROM pg_db_role_setting WHERE setrole = 'mixed'::regrole}),
	'{pg_audit_queue.log_rows=on}', 'PostgreSQL has a setting by its own name');
sql(q{UPDATE pg_db_role_setting SET setconfig = '{PG_Audit_Queue.Log_Rows=on}' WHERE setrole = 'mixed'::regrole});
sql('ALTER SYSTEM SET pg_audit_queue.log_rows = on');

# The statement of the documentation that finds them
my ($query) =
  slurp_file("$FindBin::RealBin/../../doc/upgrade.md") =~ /^(    SELECT.*?pg_db_role_setting.*?;)$/ms;
ok(defined $query, 'doc/upgrade.md has a query for settings of roles and databases');
is(sql($query // ''), "ALTER DATABASE second RESET pg_audit_queue.mode;\n"
	  . "ALTER ROLE app RESET pg_audit_queue.log;\n"
	  . "ALTER ROLE mixed RESET pg_audit_queue.log_rows;\n"
	  . "ALTER ROLE paq_quiet RESET pg_audit_queue.log;\n"
	  . 'ALTER ROLE paq_quiet RESET pg_audit_queue.role;', 'it finds them');
SKIP:
{
	skip 'the server is built without ICU', 1
	  if sql("SELECT count(*) FROM pg_collation WHERE collname = 'tr-x-icu'") == 0;
	sql("CREATE DATABASE turkish TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C' LOCALE_PROVIDER icu ICU_LOCALE 'tr'");
	sql(q{UPDATE pg_db_role_setting SET setconfig = '{PG_AUDIT_QUEUE.LOG_ROWS_I=on}' WHERE setrole = 'mixed'::regrole});
	like(sql($query // '', 'turkish'), qr/^ALTER ROLE mixed RESET pg_audit_queue\.log_rows_i;$/m,
		'whatever letters are small in the language of the database');
	sql(q{UPDATE pg_db_role_setting SET setconfig = '{PG_Audit_Queue.Log_Rows=on}' WHERE setrole = 'mixed'::regrole});
	sql('DROP DATABASE turkish');
}

# First the extension, in each database: the table goes with it.
$node->append_conf('postgresql.conf', settings_text(sink => 'file'));
$node->reload;
ok(poll_until(sub { !defined stats($node)->{loader_pid} }), 'the loader leaves');
(undef, undef, $stderr) = $node->psql('second', 'DROP EXTENSION pg_audit_queue');
is($stderr, '', 'DROP EXTENSION in one database');
$node->safe_psql('second', "SELECT 'still recorded-'");
is(flush_trail($node) > 0, 1, 'the other one has its functions');
is(texts_in_trail($node, 'still recorded-'), 1, 'records are made without the extension, too');
(undef, undef, $stderr) = $node->psql('postgres', 'DROP EXTENSION pg_audit_queue');
is($stderr, '', 'DROP EXTENSION, with a trail in the table');
is(sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'audit_queue'"), 0,
	'the trail in the table is gone');
is(sql("SELECT count(*) FROM pg_proc WHERE proname LIKE 'audit\\_%'"), 0, 'so are the functions');
is(sql('SELECT count(*) FROM pg_event_trigger'), 0, 'and the event triggers');
is(sql("SELECT count(*) FROM pg_roles WHERE rolname = 'audit_queue_reader'"), 1, 'the role stays');
is(sql("DROP ROLE audit_queue_reader; SELECT count(*) FROM pg_roles WHERE rolname = 'audit_queue_reader'"),
	0, 'and can be dropped');
is( sql("DROP ROLE audit_queue_marker; SELECT count(*) FROM pg_roles WHERE rolname = 'audit_queue_marker'"),
	0, 'so can the other one');

# Then the library.
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->stop;
my $position = -s $node->logfile;
$node->start;
is($node->safe_psql('postgres', "SELECT 'not recorded-'"), 'not recorded-', 'the server works');
is(texts_in_trail($node, 'not recorded-'), 0, 'and records nothing');
cmp_ok(scalar trail_files($node), '>', 0, 'the trail stays');
ok(-s queue_dir($node) . '/queue', 'the queue file, too');

# What settings are left does no harm: PostgreSQL takes them for somebody's own.
unlike(slurp_file($node->logfile, $position), qr/ERROR|FATAL|WARNING/,
	'settings that are left are no error');
is($node->safe_psql('second', 'SHOW pg_audit_queue.mode', connstr => $node->connstr('second') . ' user=app'),
	'commit', 'and sessions have them');
is($node->safe_psql('postgres', $query // ''), "ALTER DATABASE second RESET pg_audit_queue.mode;\n"
	  . "ALTER ROLE app RESET pg_audit_queue.log;\n"
	  . "ALTER ROLE mixed RESET pg_audit_queue.log_rows;\n"
	  . "ALTER ROLE paq_quiet RESET pg_audit_queue.log;\n"
	  . 'ALTER ROLE paq_quiet RESET pg_audit_queue.role;', 'the query still finds them');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET pg_audit_queue.log_rows; ' . $_)
  foreach grep { /second|app/ } split /\n/, $node->safe_psql('postgres', $query // '');
unlike(slurp_file($node->data_dir . '/postgresql.auto.conf'), qr/pg_audit_queue/,
	'they can be reset without the library');

# And back: it goes on where it was.
my $last = (trail_records($node))[-1]{sequence};
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_audit_queue'\n");
$node->restart;
create_extension($node);
$node->safe_psql('postgres', "SELECT 'recorded again-'");
flush_trail($node);
my @records = trail_records($node);
is(join(' ', map { $_->{sequence} } grep { $_->{sequence} > $last } @records),
	join(' ', $last + 1 .. $records[-1]{sequence}), 'installed again, the sequence goes on');
is(scalar(grep { ($_->{commandText} // '') =~ /recorded again-/ } @records), 1, 'with new records');

# ---------------------------------------------------------------------------
# Uninstalling, in the wrong order
# ---------------------------------------------------------------------------

# The library's files are removed while the extension is there: the event triggers
# want it.
$node->stop;
my $without = PostgreSQL::Test::Cluster->new('without', install_path => bare_install());
init_node($without);
system_or_bail('rm', '-rf', $without->data_dir);
system_or_bail('cp', '-R', $node->data_dir, $without->data_dir);
$without->append_conf('postgresql.conf',
	"port = " . $without->port . "\nunix_socket_directories = '" . $without->host . "'\n");
ok(!$without->start(fail_ok => 1), 'the server does not start');
like(slurp_file($without->logfile), qr/FATAL:  could not (?:access file|load library) "pg_audit_queue"/,
	'and says why');
$without->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$without->start;
(undef, undef, $stderr) = $without->psql('postgres', 'CREATE TABLE t (a int)');
like($stderr, qr/ERROR:  could not (?:access file|load library) ".*pg_audit_queue"/, 'DDL fails');
is($without->safe_psql('postgres', 'SELECT 1'), 1, 'all else works');
if ($major >= 17)
{
	(undef, undef, $stderr) = $without->psql('postgres',
		"SET event_triggers = off; DROP EXTENSION pg_audit_queue");
}
else
{
	my ($input, $output) = ("DROP EXTENSION pg_audit_queue\n");

	$without->stop;
	IPC::Run::run(
		[ $without->installed_command('postgres'), '--single', '-D', $without->data_dir, 'postgres' ],
		'<', \$input, '>&', \$output);
	$stderr = $output =~ /ERROR/ ? $output : '';
	$without->start;
}
is($stderr, '', 'the way back: DROP EXTENSION without event triggers');
$without->safe_psql('postgres', 'CREATE TABLE t (a int)');
is($without->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'DDL works again');
$without->stop;

done_testing();
