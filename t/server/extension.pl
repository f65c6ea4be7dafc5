# CREATE EXTENSION gives nothing away, neither to a user who has prepared the
# database nor by default privileges.  Its objects survive dumps and upgrades.
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
	settings => { sink => 'table', flush_interval => '10ms', database => 'prepared' },
	conf     => "autovacuum = off\n");

sub sql
{
	return unaudited_sql($node, @_);
}

# Run SQL as somebody; returns what psql prints, and its complaints
sub sql_as
{
	my ($role, $sql, $database) = @_;
	my ($ret, $stdout, $stderr) = $node->psql($database // 'postgres', $sql,
		connstr => $node->connstr($database // 'postgres') . " user=$role");

	return wantarray ? ($stdout, $stderr) : $stdout;
}

sql('CREATE ROLE owner LOGIN; CREATE ROLE reporting LOGIN; CREATE ROLE auditor LOGIN');
sql('CREATE DATABASE prepared OWNER owner');
sql("CREATE DATABASE $_") foreach qw(open restored_plain restored_custom);

# The owner of a database fills "public" with whatever might be taken for
# PostgreSQL's own, or for the extension's: operators, functions, types, casts and
# relations.  Each function notes that it was called.

my @types = qw(oid regclass regproc regtype regrole regnamespace name text "char" bool int4
  int8 timestamptz interval jsonb inet aclitem aclitem[] text[]);
my @operators = qw(= <> < > <= >= ~ ~~ || + - && @>);
my @functions = qw(acldefault aclexplode array_agg array_position array_to_string audit_check
  audit_flush audit_queue_stats audit_queue_stats_reset audit_rotate bool_and cardinality concat_ws
  count format has_table_privilege lower min max now pg_extension_config_dump pg_get_userbyid
  pg_has_role pg_stat_get_audit_queue pg_total_relation_size quote_ident quote_literal replace
  starts_with string_agg unnest);

# A list of SQL literals
sub literals
{
	return join ', ', map { "\$q\$$_\$q\$" } @_;
}

my $prepare = q{
	CREATE TABLE public.called (what text);
	CREATE TYPE public.mine AS (a int);
	DO $do$
	DECLARE
		l text;
		r text;
		name text;
		body CONSTANT text := ' RETURNS bool LANGUAGE plpgsql AS $f$ BEGIN'
			' INSERT INTO public.called VALUES (pg_catalog.current_query());'
			' RETURN NULL; END $f$';
	BEGIN
		FOREACH name IN ARRAY ARRAY[FUNCTIONS] LOOP
			EXECUTE format('CREATE FUNCTION public.%I()', name) || body;
		END LOOP;
		FOREACH l IN ARRAY ARRAY[TYPES] LOOP
			FOREACH name IN ARRAY ARRAY[FUNCTIONS] LOOP
				EXECUTE format('CREATE FUNCTION public.%I(%s)', name, l) || body;
			END LOOP;
			FOREACH r IN ARRAY ARRAY[TYPES] LOOP
				EXECUTE format('CREATE FUNCTION public.spy(%s, %s)', l, r) || body;
				FOREACH name IN ARRAY ARRAY[OPERATORS] LOOP
					EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s,'
						' FUNCTION = public.spy)', name, l, r);
				END LOOP;
			END LOOP;
			EXECUTE format('CREATE FUNCTION public.to_mine(%s) RETURNS public.mine'
				' LANGUAGE plpgsql AS $f$ BEGIN INSERT INTO public.called VALUES (''cast'');'
				' RETURN NULL; END $f$', l);
			IF l !~ '\[' THEN
				EXECUTE format('CREATE CAST (%s AS public.mine) WITH FUNCTION public.to_mine(%s)'
					' AS IMPLICIT', l, l);
			END IF;
			IF l !~ '["[]' THEN
				EXECUTE format('CREATE DOMAIN public.%I AS text', l);
			END IF;
		END LOOP;
	END
	$do$;
	CREATE VIEW public.audit_records AS SELECT public.audit_flush() AS command_text;
	CREATE VIEW public.audit_queue_stats AS SELECT public.audit_flush() AS sink;
	CREATE VIEW public.pg_stat_audit_queue AS SELECT public.audit_flush() AS sink;
};
my %lists = (TYPES => \@types, OPERATORS => \@operators, FUNCTIONS => \@functions);
$prepare =~ s/\b(TYPES|OPERATORS|FUNCTIONS)\b/literals(@{ $lists{$1} })/ge;

my ($stdout, $stderr) = sql_as('owner', $prepare, 'prepared');
is($stderr, '', 'the owner of a database prepares it');
sql('ALTER DATABASE prepared OWNER TO CURRENT_USER');

# The test would notice: one of them is called if it is asked for.
is(sql("BEGIN; SET search_path = public; SELECT count(*) FROM pg_class WHERE oid = 'pg_class'::regclass;"
		  . ' SELECT count(*) > 0 FROM public.called; ROLLBACK', 'prepared'),
	"0\nt", 'who is not careful calls what the owner has made');

# A session of a superuser that does not know of it
sub careless
{
	return $node->safe_psql('prepared', @_);
}

sub called
{
	return sql('SELECT string_agg(DISTINCT what, chr(10)) FROM public.called', 'prepared');
}

careless('CREATE EXTENSION pg_audit_queue');
is(called(), '', 'CREATE EXTENSION calls nothing of it');
like(careless('SELECT audit_flush()'), qr/^\d+$/, 'audit_flush() is the extension\'s');
like(careless('SELECT audit_rotate()'), qr{/load/}, 'audit_rotate(), too');
careless('SELECT audit_queue_stats_reset()');
is(careless('SELECT sink FROM audit_queue_stats'), 'table', 'and the statistics');
like(careless('SELECT worker_pid FROM audit_queue_stats()'), qr/^\d+$/, 'and their function');
is(careless('SELECT sink FROM pg_stat_audit_queue'), 'table', 'also by their newer name');
cmp_ok(careless('SELECT sum(records) FROM pg_stat_audit_queue_classes'), '>', 0, 'and by class');
like(careless("SELECT string_agg(finding, ',') FROM audit_check('pci')"), qr/superusers/, 'and what is wrong');
careless('CREATE TABLE public.made (a int); ALTER TABLE public.made ADD b int; DROP TABLE public.made');
careless("SELECT 'in the prepared database-'");
ok(table_loaded($node, 'prepared'), 'the loader loads');
is(careless("SELECT count(*) FROM audit_records WHERE command_text LIKE '%e prepared database-%'"),
	1, 'the view is the extension\'s');
is( careless('SELECT string_agg(command, $$,$$ ORDER BY sequence) FROM audit_records'
		  . " WHERE object_name = 'public.made' AND object_type = 'TABLE'"),
	'CREATE TABLE,ALTER TABLE,DROP TABLE', 'the event triggers work');
is( careless("SELECT string_agg(DISTINCT object_name, ',') FROM audit_records WHERE class = 'FUNCTION'"
		  . " AND object_name LIKE 'pg_catalog.audit%'"),
	join(',', map { "pg_catalog.audit_$_" } qw(check flush queue_stats queue_stats_reset rotate)),
	'calls of its functions are recorded');
is(called(), '', 'all that without calling anything of it');

# He may drop the schema that is his.

sql('ALTER DATABASE prepared OWNER TO owner');
($stdout, $stderr) = sql_as('owner', 'DROP SCHEMA public CASCADE', 'prepared');
unlike($stderr, qr/ERROR|pg_audit_queue/, 'the owner drops schema "public"');
is( careless('SELECT (SELECT count(*) FROM pg_extension WHERE extname = $$pg_audit_queue$$),'
		  . ' (SELECT count(*) FROM pg_event_trigger)'),
	'1|3', 'extension and event triggers are still there');
is(careless("SELECT count(*) > 0 FROM audit_records WHERE command_text LIKE '%prepared database-%'"),
	't', 'the trail is still there');
foreach my $sql (
	'DROP EXTENSION pg_audit_queue', 'DROP SCHEMA audit_queue CASCADE',
	'DROP VIEW audit_records', 'DROP FUNCTION audit_flush()',
	'DROP EVENT TRIGGER pg_audit_queue_sql_drop', 'ALTER EXTENSION pg_audit_queue SET SCHEMA s',
	'ALTER SCHEMA audit_queue RENAME TO other', 'ALTER SCHEMA audit_queue OWNER TO owner',
	'CREATE FUNCTION pg_catalog.audit_flush(int) RETURNS int LANGUAGE sql RETURN 1',
	'CREATE TABLE audit_queue.t (a int)', 'GRANT USAGE ON SCHEMA audit_queue TO owner')
{
	($stdout, $stderr) = sql_as('owner', "CREATE SCHEMA s; $sql", 'prepared');
	like($stderr, qr/ERROR:  (?:must be owner|permission denied)/, "he may not: $sql");
	sql_as('owner', 'DROP SCHEMA s', 'prepared');
}

# He may refuse connections, but not the loader's.
sql_as('owner', 'ALTER DATABASE prepared ALLOW_CONNECTIONS false CONNECTION LIMIT 0');
sql('ALTER DATABASE prepared OWNER TO CURRENT_USER');
unaudited_sql($node, 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity'
	  . " WHERE backend_type = 'pg_audit_queue loader'");
ok( poll_until(
		sub {
			sql("SELECT count(*) FROM pg_stat_activity WHERE query = 'waiting for audit records'"
				  . " AND backend_type = 'pg_audit_queue loader'");
		}),
	'a loader starts in a database without connections');
sql('ALTER DATABASE prepared ALLOW_CONNECTIONS true CONNECTION LIMIT -1');
careless("SELECT 'after it-'");
ok(table_loaded($node, 'prepared'), 'the loader goes on');
is(careless("SELECT count(*) FROM audit_records WHERE command_text LIKE '%after it-%'"),
	1, 'the trail, too');

# Default privileges, of every kind, to roles and to everybody: before the
# extension is made, and before the loader makes partitions.

my $loader_role = sql('SELECT oid::regrole FROM pg_roles WHERE oid = 10');
my @default_roles = ($loader_role, sql('SELECT CURRENT_USER'));

sub default_privileges
{
	my ($action, $direction, @schemas) = @_;
	my @grants;

	foreach my $role (@default_roles)
	{
		foreach my $schema ('', map { "IN SCHEMA $_" } @schemas)
		{
			push @grants,
			  map { "ALTER DEFAULT PRIVILEGES FOR ROLE $role $schema $action ALL ON $_"
				  . " $direction PUBLIC, reporting" }
			  (qw(TABLES FUNCTIONS TYPES SEQUENCES), $schema eq '' ? 'SCHEMAS' : ());
		}
	}
	sql(join(';', @grants), 'open');
	return;
}

# Who has what that is not the owner, of all that belongs to the extension, and of
# the partitions
sub grants
{
	return sql(
		q{WITH member AS (
			SELECT classid, objid FROM pg_depend
			 WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
			   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_audit_queue')
			UNION ALL
			SELECT 'pg_class'::regclass, inhrelid FROM pg_inherits
			 WHERE inhparent = to_regclass('audit_queue.records')
		), object AS (
			SELECT 'table ' || c.oid::regclass AS name, relowner AS owner,
				   coalesce(relacl, acldefault('r', relowner)) AS acl
			  FROM member JOIN pg_class c ON classid = 'pg_class'::regclass AND objid = c.oid
			UNION ALL
			SELECT 'function ' || p.oid::regprocedure, proowner,
				   coalesce(proacl, acldefault('f', proowner))
			  FROM member JOIN pg_proc p ON classid = 'pg_proc'::regclass AND objid = p.oid
			UNION ALL
			SELECT 'schema ' || n.oid::regnamespace, nspowner,
				   coalesce(nspacl, acldefault('n', nspowner))
			  FROM member JOIN pg_namespace n
			    ON classid = 'pg_namespace'::regclass AND objid = n.oid
		)
		SELECT name, CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE grantee::regrole::text END,
			   privilege_type
		  FROM object, LATERAL aclexplode(acl)
		 WHERE grantee <> owner ORDER BY 1, 2, 3}, @_);
}

my $granted = join "\n", 'function audit_check(text)|pg_monitor|EXECUTE',
  'function audit_consumers()|audit_queue_reader|EXECUTE',
  'function audit_consumers()|pg_monitor|EXECUTE',
  'function audit_policy_check(text,text,text,text,text,text,text,text,bigint,interval)|audit_queue_reader|EXECUTE',
  'function audit_policy_check(text,text,text,text,text,text,text,text,bigint,interval)|pg_monitor|EXECUTE',
  'function audit_policy_rules()|audit_queue_reader|EXECUTE',
  'function audit_policy_rules()|pg_monitor|EXECUTE',
  'function audit_queue.configuration_errors()|pg_monitor|EXECUTE',
  'function audit_queue.log_classes(text)|pg_monitor|EXECUTE',
  'function audit_queue.names()|pg_monitor|EXECUTE',
  'function audit_queue.policy_coverage()|pg_monitor|EXECUTE',
  'function audit_queue.policy_errors()|pg_monitor|EXECUTE',
  'function audit_queue.profile(text)|pg_monitor|EXECUTE',
  'function audit_queue.publications()|pg_monitor|EXECUTE',
  'function audit_queue.records_elsewhere()|audit_queue_reader|EXECUTE',
  'function audit_queue.server_settings()|pg_monitor|EXECUTE',
  'function audit_queue.setting_is_valid(text,text)|pg_monitor|EXECUTE',
  'function audit_queue_stats()|pg_monitor|EXECUTE',
  'function audit_trail(timestamp with time zone,timestamp with time zone,text[],text[],text[])|audit_queue_reader|EXECUTE',
  'function pg_stat_get_audit_queue()|pg_monitor|EXECUTE',
  'function pg_stat_get_audit_queue_classes()|pg_monitor|EXECUTE',
  'schema audit_queue|audit_queue_reader|USAGE',
  'schema audit_queue|pg_monitor|USAGE',
  'table audit_consumers|audit_queue_reader|SELECT',
  'table audit_consumers|pg_monitor|SELECT',
  'table audit_policy_rules|audit_queue_reader|SELECT',
  'table audit_policy_rules|pg_monitor|SELECT',
  'table audit_queue.records|audit_queue_reader|SELECT',
  'table audit_queue.trail|audit_queue_reader|SELECT',
  'table audit_queue_stats|pg_monitor|SELECT',
  'table audit_records|audit_queue_reader|SELECT',
  'table audit_trail|audit_queue_reader|SELECT',
  'table pg_stat_audit_queue|pg_monitor|SELECT',
  'table pg_stat_audit_queue_classes|pg_monitor|SELECT';

default_privileges('GRANT', 'TO', 'public', 'pg_catalog');
create_extension($node, 'open');
is(grants('open'), $granted =~ s/^table audit_queue\.records\|.*\n//mr,
	'default privileges give nobody anything of the extension');
default_privileges('GRANT', 'TO', 'audit_queue');
$node->append_conf('postgresql.conf', settings_text(database => 'open'));
$node->reload;
poll_until(
	sub { sql("SELECT datname FROM pg_stat_activity WHERE backend_type = 'pg_audit_queue loader'") eq 'open' })
  or die 'there is no other loader';
$node->safe_psql('postgres', "SELECT 'in the open database-'");
ok(table_loaded($node, 'open'), 'the loader changes to another database');
ok(poll_until(sub { sql("SELECT count(*) FROM pg_inherits", 'open') >= 3 }), 'it makes partitions');
is(grants('open'), $granted, 'nor of its table and the partitions');
is( sql("SELECT bool_and(relrowsecurity AND relforcerowsecurity) FROM pg_class"
		  . " WHERE relnamespace = 'audit_queue'::regnamespace AND relkind IN ('r', 'p')", 'open'),
	't', 'all tables have row security');
is(sql("SELECT string_agg(oid::regclass::text, ',' ORDER BY relname) FROM pg_class"
		  . " WHERE relkind = 'v' AND relname LIKE '%audit\\_%'"
		  . " AND reloptions @> '{security_invoker=true}'", 'open'),
	'audit_consumers,audit_policy_rules,audit_queue_stats,audit_records,audit_trail,pg_stat_audit_queue,pg_stat_audit_queue_classes',
	'all views use the privileges of their callers');
foreach my $sql ('SELECT * FROM audit_records', 'SELECT * FROM audit_queue_stats',
	'SELECT * FROM pg_stat_audit_queue', 'SELECT * FROM pg_stat_audit_queue_classes',
	'SELECT * FROM pg_stat_get_audit_queue()', 'SELECT * FROM pg_stat_get_audit_queue_classes()',
	'SELECT * FROM audit_policy_rules', 'SELECT * FROM audit_policy_rules()',
	'SELECT * FROM audit_consumers', 'SELECT * FROM audit_consumers()',
	q{SELECT audit_consumer_create('x')}, q{SELECT audit_consumer_drop('x')},
	'SELECT * FROM audit_check()', 'SELECT * FROM audit_queue.records_elsewhere()',
	'SELECT * FROM audit_queue.server_settings()', 'SELECT * FROM audit_queue.configuration_errors()',
	'SELECT * FROM audit_queue_stats()', 'SELECT audit_flush()', 'SELECT audit_rotate()',
	'SELECT audit_queue_stats_reset()', 'SELECT * FROM audit_queue.records',
	'SELECT * FROM audit_trail', 'SELECT * FROM audit_trail(NULL, NULL)', 'SELECT * FROM audit_queue.trail')
{
	($stdout, $stderr) = sql_as('reporting', $sql, 'open');
	like($stderr, qr/ERROR:  permission denied/, "not for everybody: $sql");
}

# A grant on a view alone gives nothing of what is below it.
my @views = qw(audit_consumers audit_policy_rules audit_records audit_trail audit_queue_stats pg_stat_audit_queue pg_stat_audit_queue_classes);
sql('GRANT SELECT ON ' . join(', ', @views) . ' TO reporting', 'open');
foreach my $view (@views)
{
	($stdout, $stderr) = sql_as('reporting', "SELECT * FROM $view", 'open');
	like($stderr, qr/ERROR:  permission denied/, "a grant on $view alone is not enough");
}
sql('REVOKE SELECT ON ' . join(', ', @views) . ' FROM reporting', 'open');

# Whom it is meant for, can.
sql('GRANT audit_queue_reader TO auditor; GRANT pg_monitor TO reporting');
is(sql_as('auditor', "SELECT count(*) FROM audit_records WHERE command_text LIKE '%open database-%'",
		'open'), 1, 'readers read');
is(sql_as('reporting', 'SELECT sink FROM audit_queue_stats', 'open'), 'table', 'monitoring monitors');

# Readers can make nothing that hangs on the extension, and DROP EXTENSION goes on
# without CASCADE.
($stdout, $stderr) = sql_as('auditor', 'CREATE SERVER hanger FOREIGN DATA WRAPPER pg_audit_queue', 'open');
like($stderr, qr/ERROR: /, 'readers make no server');
is( sql(q{SELECT count(*) FROM pg_foreign_data_wrapper
		WHERE has_foreign_data_wrapper_privilege('auditor', oid, 'USAGE')}, 'open'),
	0, 'of no wrapper');
is( sql(q{SELECT rolcanlogin OR rolsuper OR rolcreaterole
			  OR EXISTS (SELECT FROM pg_auth_members m WHERE r.oid IN (m.roleid, m.member))
		  FROM pg_roles r WHERE rolname = 'audit_queue_marker'}),
	'f', 'nobody is a member of the role that marks databases');

# Somebody may have made the readers' role before.
my $warning;
sql('CREATE DATABASE another');
($stdout, $warning) = sql_as('paq_quiet', 'CREATE EXTENSION pg_audit_queue', 'another');
like($warning, qr/WARNING:  role "audit_queue_reader" exists already, and has members/,
	'there is a warning of a role with members');
default_privileges('REVOKE', 'FROM', 'public', 'pg_catalog', 'audit_queue');

# Dump and restore, into a database of the same cluster.  The loader goes on there.

my $directory = PostgreSQL::Test::Utils::tempdir();

# What pg_dump makes of a database, without what it says only once
sub schema_of
{
	my ($database) = @_;
	my ($out, $err) = run_command(
		[ 'pg_dump', '--schema-only', '-d', $node->connstr($database) ]);

	is($err, '', "the schema of $database is dumped");
	return join "\n", grep { !/^\\(?:un)?restrict / } split /\n/, $out;
}

$node->append_conf('postgresql.conf', settings_text(sink => 'file'));
$node->reload;
ok(poll_until(sub { !defined stats($node)->{loader_pid} }), 'the loader leaves');
$node->command_ok([ 'pg_dump', '-f', "$directory/plain", '-d', $node->connstr('open') ],
	'pg_dump');
$node->command_ok([ 'pg_dump', '-Fc', '-f', "$directory/custom", '-d', $node->connstr('open') ],
	'pg_dump -Fc');
$node->command_ok(
	[ 'psql', '-Xq', '-1', '-v', 'ON_ERROR_STOP=1', '-f', "$directory/plain",
	  '-d', $node->connstr('restored_plain') ], 'psql -1 restores the dump');
$node->command_ok(
	[ 'pg_restore', '-1', '-d', $node->connstr('restored_custom'), "$directory/custom" ],
	'pg_restore -1, too');
foreach my $database (qw(restored_plain restored_custom))
{
	is(schema_of($database), schema_of('open'), "$database: the schema is the same");
	foreach my $table (qw(audit_queue.records audit_queue.load_state))
	{
		my $contents = "SELECT count(*), md5(string_agg(t::text, '|' ORDER BY t)) FROM $table t";

		is(sql($contents, $database), sql($contents, 'open'), "$database: $table");
	}
	is(grants($database), $granted, "$database: the privileges");
	is(sql_as('auditor', 'SELECT count(*) > 0 FROM audit_records', $database), 't',
		"$database: readers read");
}
$node->append_conf('postgresql.conf', settings_text(sink => 'table', database => 'restored_custom'));
$node->reload;
poll_until(
	sub { sql("SELECT datname FROM pg_stat_activity WHERE backend_type = 'pg_audit_queue loader'") eq 'restored_custom' })
  or die 'there is no other loader';
$node->safe_psql('postgres', "SELECT 'restored-'");
ok(table_loaded($node, 'restored_custom'), 'the loader goes on after a restore');
is( sql("SELECT count(*) FILTER (WHERE command_text LIKE '%restored-%'),"
		  . " count(*) - count(DISTINCT (series, sequence)) FROM audit_records", 'restored_custom'),
	'1|0', 'with each record once');

# pg_upgrade takes all along.

$node->append_conf('postgresql.conf', settings_text(sink => 'file'));
$node->reload;
ok(poll_until(sub { !defined stats($node)->{loader_pid} }), 'the loader leaves once more');
my $rows = sql('SELECT count(*) FROM audit_records', 'open');
sql('DROP DATABASE prepared');
$node->stop;

my $new = PostgreSQL::Test::Cluster->new('new');
init_node($new);
$new->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_audit_queue'\n");
chdir $directory or die $!;
command_ok(
	[ 'pg_upgrade', '-d', $node->data_dir, '-D', $new->data_dir, '-b', $node->config_data('--bindir'),
	  '-B', $node->config_data('--bindir'), '-s', $new->host, '-p', $node->port, '-P', $new->port ],
	'pg_upgrade');
$new->start;
is(unaudited_sql($new, 'SELECT count(*) FROM audit_records', 'open'), $rows,
	'the trail is in the new cluster');
is(unaudited_sql($new, 'SELECT sink FROM audit_queue_stats', 'open'), 'file', 'the views work');
cmp_ok(scalar trail_files($new), '>', 0, 'what was in files stays, a new trail begins');
is(unaudited_sql($new, 'SHOW allow_system_table_mods', 'open'), 'off',
	'catalogs can be changed while pg_upgrade runs only');
$new->stop;

done_testing();
