# What CREATE EXTENSION leaves in a database that has not the trail: no table, so that
# pg_dump and publications are what they were.  The loader makes the table in its own
# database, where dumps of superusers have it, and publications that carry it are named.
# Tables of version 1.0 that are not used go with the update.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	init     => [ allows_streaming => 'logical' ],
	settings => { log => 'all, -connect', flush_interval => '10ms' },
	conf     => "autovacuum = off\n");
my $files = PostgreSQL::Test::Utils::tempdir();

sub sql
{
	return unaudited_sql($node, @_);
}

sub sql_as
{
	my ($role, $database, $sql) = @_;
	my (undef, $stdout, $stderr) = $node->psql($database, $sql,
		on_error_stop => 0, connstr => $node->connstr($database) . " user=$role");

	$stderr =~ s{^psql:<stdin>:\d+: }{}mg;
	return wantarray ? ($stdout, $stderr) : $stdout;
}

# Dump a database as somebody; returns the complaints
sub dump_as
{
	my ($role, $database, $file, @options) = @_;

	return (run_command([ 'pg_dump', '-f', "$files/$file", '-d', $node->connstr($database), '-U', $role, @options ]))[1];
}

sub restore
{
	my ($database, $file, $name) = @_;

	sql("CREATE DATABASE $database");
	$node->command_ok(
		[ 'psql', '-Xq', '-1', '-v', 'ON_ERROR_STOP=1', '-f', "$files/$file", '-d', $node->connstr($database) ], $name);
	return;
}

# Tables of the extension, and of its schema, in a database
sub tables
{
	return sql(q{SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
		WHERE relkind IN ('r', 'p') AND relnamespace = 'audit_queue'::regnamespace
		  AND relname !~ '^records_\d+$'}, @_);
}

# Change settings by a reload.
sub reload
{
	my (%settings) = @_;

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	foreach my $name (keys %settings)
	{
		poll_until(sub { sql("SHOW pg_audit_queue.$name") eq $settings{$name} }) or die "$name has not changed";
	}
	return;
}

sub finding
{
	my ($database, $finding) = @_;

	return sql("SELECT severity || ': ' || detail FROM audit_check() WHERE finding = '$finding'", $database);
}

sql('CREATE ROLE owner LOGIN; CREATE ROLE reads_all LOGIN; GRANT pg_read_all_data TO reads_all;'
	  . ' CREATE ROLE auditor LOGIN; GRANT audit_queue_reader TO auditor');
my @dumpers = qw(owner reads_all paq_quiet);

# ---------------------------------------------------------------------------
# A database without the trail
# ---------------------------------------------------------------------------

sql('CREATE DATABASE application OWNER owner');
create_extension($node, 'application');
sql_as('owner', 'application', "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (7)");
is(tables('application'), '', 'no tables');
is(dump_as($_, 'application', "application_$_"), '', "pg_dump as $_") foreach @dumpers;
unlike(slurp_file("$files/application_paq_quiet"), qr/audit_queue\./, 'nothing of the extension is in the dump');
restore('copied', 'application_owner', 'the dump can be restored');
is(tables('copied'), '', 'still no tables');

my ($stdout, $stderr) = sql_as('auditor', 'application', 'SELECT * FROM audit_records');
like($stderr, qr/^ERROR:  the audit trail is not in the table of this database\nHINT:  Read the files of "pg_audit_queue\.log_directory"/m,
	'who reads the view is told where the trail is');
like((sql_as('paq_quiet', 'application', 'SELECT count(*) FROM audit_records'))[1],
	qr/^HINT:  Read file "audit\/audit-.*\.json" and those before it/m, 'with its files');
unlike((sql_as('paq_quiet', 'application', 'SELECT audit_check()'))[1], qr/./, 'audit_check() works');

# A subscriber without the extension
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
init_node($subscriber);
$subscriber->append_conf('postgresql.conf', "autovacuum = off\n");
$subscriber->start;
$subscriber->safe_psql('postgres', 'CREATE TABLE t (a int PRIMARY KEY)');
sql('CREATE PUBLICATION everything FOR ALL TABLES WITH (publish_via_partition_root = true);'
	  . ' CREATE PUBLICATION leaves FOR ALL TABLES', 'application');
is(sql('SELECT pubname, tablename FROM pg_publication_tables ORDER BY 1', 'application'),
	"everything|t\nleaves|t", 'publications have none of our tables');
is(finding('application', 'trail_published'), '', 'audit_check() has nothing to say');
($stdout, $stderr) = ('', '');
(undef, $stdout, $stderr) = $subscriber->psql('postgres',
	'CREATE SUBSCRIPTION s CONNECTION $$' . $node->connstr('application') . '$$ PUBLICATION everything');
unlike($stderr, qr/ERROR/, 'a subscription without the extension can be made');
ok(poll_until(sub { $subscriber->safe_psql('postgres', 'SELECT a FROM t') eq '7' }), 'and gets its rows');
sql_as('owner', 'application', 'INSERT INTO t VALUES (8)');
ok(poll_until(sub { $subscriber->safe_psql('postgres', 'SELECT count(*) FROM t') eq '2' }), 'and goes on');
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION s');
$subscriber->stop;

# ---------------------------------------------------------------------------
# The trail's own
# ---------------------------------------------------------------------------

sql('CREATE DATABASE trail');
create_extension($node, 'trail');
sql('CREATE TABLE in_it (a int); ALTER TABLE in_it OWNER TO owner; CREATE PUBLICATION "all of it" FOR ALL TABLES;'
	  . ' CREATE PUBLICATION explicit FOR TABLE in_it', 'trail');
is(tables('trail'), '', 'nor here, before');
($stdout, $stderr) = sql_as('auditor', 'trail', 'SELECT 1 FROM audit_records');
like($stderr, qr/is not in the table of this database/, 'nor is the trail');
my $log = -s $node->logfile;
reload(sink => 'table', database => 'trail');
$node->safe_psql('application', "SELECT 'loaded-1-'");
ok(poll_until(sub { tables('trail') eq 'load_state records' }), 'the loader makes its tables');
ok(table_loaded($node, 'trail'), 'and loads');
is(sql_as('auditor', 'trail', "SELECT count(*) FROM audit_records WHERE command_text LIKE '%loaded-1-%'"), 1,
	'readers read');
is(tables('application'), '', 'in its own database only');
like((sql_as('auditor', 'application', 'SELECT 1 FROM audit_records'))[1],
	qr/ERROR:  the audit trail is not in the table of this database\nHINT:  Connect to database "trail"\./,
	'which others name');
like(slurp_file($node->logfile, $log), qr/LOG:  .*made table "audit_queue\.records" in database "trail"/, 'the log says so');
is(sql(q{SELECT bool_and(relowner = (SELECT nspowner FROM pg_namespace WHERE nspname = 'audit_queue')),
		bool_and(relrowsecurity AND relforcerowsecurity) FROM pg_class
		WHERE relnamespace = 'audit_queue'::regnamespace AND relname IN ('records', 'load_state')}, 'trail'),
	't|t', 'they are the schema\'s owner\'s, with row security');

# Publications
ok(wait_for_log($node, qr/WARNING:  .*publications carry the audit table to subscribers: "all of it"\n/, $log),
	'the loader names the publication that carries it');
is(finding('trail', 'trail_published'),
	'warning: Publications that carry the audit table of this database to subscribers: "all of it".', 'audit_check(), too');
my ($partition) = sql(q{SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'audit_queue.records'::regclass LIMIT 1},
	'trail');
sql('DROP PUBLICATION "all of it"', 'trail');
foreach my $tables ('TABLES IN SCHEMA audit_queue', 'TABLE audit_queue.records', 'TABLE audit_queue.load_state', "TABLE $partition")
{
	sql("CREATE PUBLICATION p FOR $tables", 'trail');
	like(finding('trail', 'trail_published'), qr/: p\.$/, "a publication FOR $tables");
	sql('DROP PUBLICATION p', 'trail');
}
is(finding('trail', 'trail_published'), '', 'no other');

# Whatever happens to publications, partitions are made.
($partition) = sql(q{SELECT max(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'audit_queue.records'::regclass}, 'trail');
my $locker = $node->background_psql('trail');
$locker->query_safe('SET allow_system_table_mods = on; BEGIN; ALTER VIEW pg_publication_tables SET (security_barrier = false)');
sql("DROP TABLE $partition", 'trail');
$log = -s $node->logfile;
$node->reload;
ok(wait_for_log($node, qr/LOG:  .*publications of the audit table could not be looked at: canceling statement due to lock timeout/, $log),
	'publications cannot be looked at');
is(sql("SELECT to_regclass('$partition') IS NOT NULL", 'trail'), 't', 'partitions are made nevertheless');
$locker->query_safe('ROLLBACK');
$locker->quit;

# Dumps.  Set sink = file, so that nothing is loaded while they are compared.
reload(sink => 'file');
ok(poll_until(sub { !defined stats($node)->{loader_pid} }), 'the loader leaves');
is(dump_as('paq_quiet', 'trail', 'trail'), '', 'a superuser dumps the trail');
like(slurp_file("$files/trail"), qr/loaded-1-/, 'with its records');
sql('ALTER DATABASE trail OWNER TO owner');
foreach my $role (qw(owner reads_all))
{
	like(dump_as($role, 'trail', $role), qr/permission denied|row-level security/, "$role cannot");
	is(dump_as($role, 'trail', $role, '-N', 'audit_queue'), '', "$role dumps the rest");
	unlike(slurp_file("$files/$role"), qr/loaded-1-/, 'without the trail');
	like(slurp_file("$files/$role"), qr/TABLE public\.in_it/, 'with all else');
}
sql('ALTER DATABASE trail OWNER TO paq_quiet');
my $contents = 'SELECT count(*), md5(string_agg(r::text, $$|$$ ORDER BY series, sequence)) FROM audit_queue.records r';
my $state = 'SELECT count(*), md5(string_agg(s::text, $$|$$ ORDER BY series)) FROM audit_queue.load_state s';
restore('restored', 'trail', 'it can be restored');
is(tables('restored'), 'load_state records', 'which makes the tables');
is(sql($contents, 'restored'), sql($contents, 'trail'), 'with the records');
is(sql($state, 'restored'), sql($state, 'trail'), 'and how far they go');
like(sql_as('auditor', 'restored', 'SELECT count(*) > 0 FROM audit_records'), qr/^t$/, 'readers read there');
like(sql('SELECT extconfig::regclass[] FROM pg_extension WHERE extname = $$pg_audit_queue$$', 'restored'),
	qr/^\{audit_queue\.load_state\}$/, 'and it can be dumped again');
($stdout, $stderr) = sql_as('paq_quiet', 'copied', q{INSERT INTO audit_queue.load_state VALUES (1, 1, now(), 1)});
like($stderr, qr/ERROR:  this database has no table for audit records\nHINT:  .*audit_queue\.make_table\(\)/,
	'how far they go, without records, is refused');

# Only superusers make and drop, and nothing is dropped that is used.
foreach my $function (qw(make_table drop_table step_aside))
{
	like((sql_as('auditor', 'trail', "SELECT audit_queue.$function()"))[1], qr/ERROR:  permission denied/, "not for readers: $function()");
}
is(sql('SELECT audit_queue.drop_table(), audit_queue.make_table()', 'trail'), 'f|f', 'a table with records stays');

# Whatever the search path and defaults of the superuser are
sql('CREATE SCHEMA trap; CREATE FUNCTION trap.int4eq(oid, oid) RETURNS bool LANGUAGE sql RETURN 1 / 0 = 1;'
	  . ' CREATE OPERATOR trap.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = trap.int4eq);'
	  . ' CREATE DOMAIN trap.int8 AS text; CREATE DOMAIN trap.timestamptz AS text', 'copied');
is(sql(q{SET search_path = trap, pg_catalog; SELECT audit_queue.make_table(), audit_queue.drop_table(), audit_queue.make_table()}, 'copied'),
	't|t|t', 'they make the same with any search path');
is(sql(q{SELECT a.atttypid::regtype FROM pg_attribute a WHERE attrelid = 'audit_queue.load_state'::regclass AND attname = 'loaded'}, 'copied'),
	'timestamp with time zone', 'of PostgreSQL\'s types');

# What a loader has written is seen under the lock that keeps it from writing.
my $writer = $node->background_psql('copied');
$writer->query_safe(q{BEGIN; CREATE TABLE audit_queue.records_20200101 PARTITION OF audit_queue.records
	FOR VALUES FROM ('2020-01-01') TO ('2020-01-02')});
my $dropper = start_psql($node, 'SELECT audit_queue.drop_table()', database => 'copied', name => 'dropper');
ok(poll_until(sub { sql(q{SELECT wait_event_type FROM pg_stat_activity WHERE application_name = 'dropper'}) eq 'Lock' }), 'one waits');
$writer->query_safe('COMMIT');
$writer->quit;
is((finish_psql($dropper))[1], "f\n", 'who drops a table waits for who writes to it, and looks then');
is(tables('copied'), 'load_state records', 'it stays');

# DROP EXTENSION takes everything along.
is((sql_as('paq_quiet', 'restored', 'DROP EXTENSION pg_audit_queue'))[1], '', 'DROP EXTENSION, with the trail');
is(sql(q{SELECT count(*) FROM pg_namespace WHERE nspname = 'audit_queue'}, 'restored'), 0, 'nothing is left');

# ---------------------------------------------------------------------------
# Version 1.0
# ---------------------------------------------------------------------------

sub make_old
{
	my ($database, $sql) = @_;

	sql("CREATE DATABASE $database");
	sql("CREATE EXTENSION pg_audit_queue VERSION '1.0'", $database);
	sql($sql, $database) if defined $sql;
	return;
}

sub update
{
	my ($database) = @_;

	return (sql_as('paq_quiet', $database, 'ALTER EXTENSION pg_audit_queue UPDATE'))[1];
}

make_old('old_unused', 'CREATE VIEW public.mine AS SELECT sequence FROM audit_records; GRANT SELECT ON audit_records TO owner');
is(tables('old_unused'), 'load_state records', '1.0 has its table everywhere');
is(dump_as('paq_quiet', 'old_unused', 'old'), '', 'and is dumped');
is(update('old_unused'), '', 'the update says nothing');
is(tables('old_unused'), '', 'an unused table goes');
like((sql_as('paq_quiet', 'old_unused', 'SELECT * FROM public.mine'))[1],
	qr/ERROR:  the audit trail is not in the table/, 'views on audit_records stay');
is(sql(q{SELECT has_table_privilege('owner', 'audit_records', 'SELECT')}, 'old_unused'), 't', 'and grants');
restore('old_restored', 'old', 'a dump of 1.0, without records, is restored as objects of today');
is(sql('SELECT extversion FROM pg_extension WHERE extname = $$pg_audit_queue$$', 'old_restored'),
	sql('SELECT library_version FROM pg_stat_audit_queue'), 'which they are');
is(tables('old_restored'), '', 'without a table');

# What somebody has made of the table keeps it.
make_old('old_view', 'CREATE VIEW public.mine AS SELECT sequence FROM audit_queue.records');
like(update('old_view'), qr/^WARNING:  table "audit_queue\.records" stays in this database, although nothing has been loaded into it\nDETAIL:  view public\.mine depends on table audit_queue\.records\nHINT:  .*audit_queue\.drop_table\(\)/m,
	'a view on the table keeps it, with a warning');
is(sql('SELECT count(*) FROM public.mine', 'old_view'), 0, 'the view works');
is(sql('DROP VIEW public.mine; SELECT audit_queue.drop_table()', 'old_view'), 't', 'when it is gone, the table can go');
is(tables('old_view'), '', 'and does');
make_old('old_grant', 'GRANT SELECT ON audit_queue.records TO owner');
like(update('old_grant'), qr/^WARNING:  table .* stays .*\nDETAIL:  Somebody has granted privileges on it\./m, 'so does a grant');
is(sql('REVOKE SELECT ON audit_queue.records FROM owner; SELECT audit_queue.drop_table()', 'old_grant'), 't', 'until it is revoked');

# A table that is used goes on.
make_old('old_used');
reload(sink => 'table', database => 'old_used');
$node->safe_psql('application', "SELECT 'loaded-2-'");
ok(table_loaded($node, 'old_used'), '1.0: the loader loads');
is(update('old_used'), '', 'the update of a table that is used');
$node->safe_psql('application', "SELECT 'loaded-3-'");
ok(table_loaded($node, 'old_used'), 'the loader goes on');
is(sql(q{SELECT count(*) FROM audit_records WHERE command_text ~ 'loaded-[23]-' AND class = 'READ'}, 'old_used'), 2,
	'with what was there and what is new');

# One that has gone is made again.
reload(database => 'old_unused');
$node->safe_psql('application', "SELECT 'loaded-4-'");
ok(poll_until(sub { tables('old_unused') eq 'load_state records' }), 'the loader makes the table that has gone');
ok(table_loaded($node, 'old_unused'), 'and loads');
cmp_ok(sql('SELECT count(*) FROM public.mine', 'old_unused'), '>', 0, 'for the view that has waited');

$node->stop;
done_testing();
