# Names of the extension's functions and views step aside for those of applications,
# with a warning, when the extension is created or updated, and when a superuser makes
# such an object later.  Nobody else can make them step aside, nor have a superuser who
# calls them without a schema execute what he has written.
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
	settings => { log => 'ddl, role', flush_interval => '10ms' },
	conf     => "autovacuum = off\n");

sub sql
{
	return unaudited_sql($node, @_);
}

# Run SQL in a database as somebody; returns what psql prints, and its complaints
sub sql_as
{
	my ($role, $database, $sql) = @_;
	my (undef, $stdout, $stderr) = $node->psql($database, $sql,
		on_error_stop => 0, connstr => $node->connstr($database) . " user=$role");

	$stderr =~ s{^psql:<stdin>:\d+: }{}mg;
	return wantarray ? ($stdout, $stderr) : $stdout;
}

sub make_database
{
	my ($name) = @_;

	sql("CREATE DATABASE $name TEMPLATE template0 OWNER owner");
	return $name;
}

# What is not where it is without others, and what it hides
sub names_found
{
	my ($database) = @_;

	return sql(q{SELECT string_agg(format('%s: %s', name, array_to_string(others, ', ')), E'\n'
			 ORDER BY name COLLATE "C", others)
		  FROM audit_queue.names() WHERE aside OR others <> '{}'}, $database);
}

# Findings of audit_check() about names: finding|severity|detail
sub findings
{
	my ($database) = @_;

	return sql(q{SET search_path = pg_catalog, audit_queue; SELECT finding, severity, detail FROM audit_check()
		WHERE finding LIKE 'names%' ORDER BY 1}, $database);
}

sql('CREATE ROLE owner LOGIN; CREATE ROLE other LOGIN; CREATE ROLE monitoring LOGIN');

# ---------------------------------------------------------------------------
# CREATE EXTENSION
# ---------------------------------------------------------------------------

make_database('plain');
create_extension($node, 'plain');
is(names_found('plain'), '', 'without others, all are in pg_catalog');
is(findings('plain'), '', 'and audit_check() says nothing of names');

# All functions and views in pg_catalog that belong to the extension, whatever they are
my @names = map { [ split /\|/ ] } split /\n/, sql(
	q{SELECT 'view', c.relname, '' FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
	   WHERE d.classid = 'pg_class'::regclass AND c.relnamespace = 'pg_catalog'::regnamespace
	     AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_audit_queue')
	     AND d.deptype = 'e'
	   UNION ALL
	  SELECT 'function', p.proname, pg_get_function_identity_arguments(p.oid)
	    FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
	   WHERE d.classid = 'pg_proc'::regclass AND p.pronamespace = 'pg_catalog'::regnamespace
	     AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_audit_queue')
	     AND d.deptype = 'e'
	   ORDER BY 1, 2}, 'plain');
cmp_ok(scalar @names, '>=', 20, 'there are names');
is(sql('SELECT count(*) FROM audit_queue.names()', 'plain'), scalar @names,
	'each of them is looked after');

# The statement that makes somebody's object of that name
sub make_other
{
	my ($kind, $name, $arguments) = @_;

	# input arguments only: those of the identity, without defaults
	return $kind eq 'view'
	  ? "CREATE TABLE public.$name (a text); INSERT INTO public.$name VALUES ('theirs');"
	  : "CREATE FUNCTION public.$name(@{[ join ', ', grep { !/^OUT / } split /, /, $arguments // '' ]})"
	  . " RETURNS text LANGUAGE sql AS \$\$SELECT 'theirs'\$\$;";
}

# A superuser's objects in the application's schema, which is in everybody's path
make_database('application');
sql(join('', map { make_other(@$_) } @names), 'application');
my (undef, $warnings) = sql_as('paq_quiet', 'application', 'CREATE EXTENSION pg_audit_queue');
unlike($warnings, qr/ERROR/, 'the extension is created beside an application');
foreach my $name (@names)
{
	my ($kind, $called) = @$name;

	like($warnings, qr/^WARNING:  $kind "$called" is in schema "audit_queue"\nDETAIL:  .*hide public\.$called\b/m,
		"$kind $called steps aside with a warning");
}
is(sql(q{SELECT count(*), bool_and(aside) FROM audit_queue.names()}, 'application'),
	scalar(@names) . '|t', 'all are in audit_queue');
foreach my $query ('SELECT a FROM audit_records', 'SELECT a FROM audit_trail', 'SELECT audit_flush()',
	'SELECT audit_check(NULL::text)', 'SELECT audit_consumer_drop(NULL::text)')
{
	is(sql($query, 'application'), 'theirs', "the application finds its own: $query");
}
like(sql('SELECT audit_queue.audit_flush()', 'application'), qr/^\d+$/, 'ours can be called');
is(sql('SELECT sink FROM audit_queue.pg_stat_audit_queue', 'application'), 'file', 'views, too');
is(sql('SET search_path = pg_catalog, audit_queue; SELECT sink FROM pg_stat_audit_queue', $_), 'file',
	"the same search path finds ours: $_")
  foreach qw(application plain);
like(findings('application'),
	qr/^names_aside\|info\|Not in pg_catalog, because others have the names: function audit_queue\.audit_check, .* and \d+ more\.$/,
	'audit_check() says so');
sql("CREATE TABLE public.made (a int); DROP TABLE public.made", 'application');
$node->safe_psql('application', 'CREATE TABLE public.made (a int); DROP TABLE public.made');
flush_trail($node);
is(scalar(grep { ($_->{objectName} // '') eq 'public.made' && $_->{objectType} eq 'TABLE' } trail_records($node)),
	2, 'names in DDL records are there');
is(sql('SET ROLE pg_monitor; SELECT count(*) > 0 FROM audit_queue.audit_check()', 'application'), 't',
	'monitoring can call it');

# What an ordinary user has: tables are found, code is not executed.
make_database('owned');
sql('CREATE TABLE public.called (what text); GRANT INSERT ON public.called TO PUBLIC', 'owned');
sub spy
{
	my ($function) = @_;

	return "CREATE FUNCTION $function RETURNS int LANGUAGE plpgsql AS \$f\$ BEGIN"
	  . " INSERT INTO public.called VALUES ('$function'); RETURN 1; END \$f\$;";
}
(undef, $warnings) = sql_as('owner', 'owned',
	spy('public.audit_flush()') . spy('public.audit_rotate(int DEFAULT 1)')
	  . spy('public.audit_check(VARIADIC text[])') . spy('public.audit_trail()') . spy('public.spy()')
	  . 'CREATE VIEW public.audit_consumers AS SELECT public.spy() AS name;'
	  . 'CREATE TABLE public.audit_records (a int); CREATE DOMAIN public.audit_policy_rules AS text;'
	  . 'CREATE INDEX audit_trail ON public.audit_records (a);');
is($warnings, '', 'an owner prepares his database');
(undef, $warnings) = sql_as('paq_quiet', 'owned', 'CREATE EXTENSION pg_audit_queue');
is(names_found('owned'), join("\n",
		'function pg_catalog.audit_check: function public.audit_check(pg_catalog.text[]) of owner',
		'function pg_catalog.audit_flush: function public.audit_flush() of owner',
		'function pg_catalog.audit_rotate: function public.audit_rotate(integer) of owner',
		'view audit_queue.audit_policy_rules: type public.audit_policy_rules of owner',
		'view audit_queue.audit_records: table public.audit_records of owner',
		'view pg_catalog.audit_consumers: view public.audit_consumers of owner'),
	'ours step aside for tables and types, not for code');
like($warnings, qr/WARNING:  function public\.audit_flush\(\) is hidden by pg_catalog\.audit_flush\(\) of extension "pg_audit_queue"\n.*\nHINT: .*ALTER FUNCTION pg_catalog\.audit_flush\(\) SET SCHEMA audit_queue/,
	'a warning says what is hidden, and the way');
like(findings('owned'), qr/^names_aside\|info\|.*names_hidden\|warning\|.*function public\.audit_flush\(\) of owner, /s,
	'audit_check(), too');
like(sql('SELECT audit_flush()', 'owned'), qr/^\d+$/, 'who calls ours, calls ours');
is(sql(q{SELECT count(*) FROM audit_check() WHERE finding = 'names_hidden'}, 'owned'), 1, 'audit_check(), too');
is(sql('SELECT count(name) FROM audit_consumers', 'owned'), 0, 'and the views');
is(sql('SELECT string_agg(what, $$,$$) FROM public.called', 'owned'), '', 'nothing of the owner is called');
is(sql_as('owner', 'owned', 'SELECT audit_trail()'), 1, 'a function with other arguments is not hidden');

# A superuser may decide otherwise: the command that audit_check() has.
my ($command) = sql(q{SELECT remedy FROM audit_check() WHERE finding = 'names_hidden'}, 'owned')
  =~ /(ALTER FUNCTION pg_catalog\.audit_flush\(\) SET SCHEMA audit_queue;)/;
sql($command // 'SELECT 1/0', 'owned');
is(sql_as('owner', 'owned', 'SELECT audit_flush()'), 1, 'the remedy lets the owner have his');
like(findings('owned'), qr/^names_aside\|warning\|Not in pg_catalog, because others have the names, who could have a superuser execute/,
	'which audit_check() warns of');
sql_as('owner', 'owned', 'CREATE OR REPLACE' . substr(spy('public.audit_flush()'), length 'CREATE'));
is(sql_as('owner', 'owned', 'SELECT audit_flush()'), 1, 'and that stays');
sql('TRUNCATE public.called', 'owned');

# ---------------------------------------------------------------------------
# ALTER EXTENSION ... UPDATE
# ---------------------------------------------------------------------------

make_database('updated');
sql("CREATE EXTENSION pg_audit_queue VERSION '1.0'; GRANT EXECUTE ON FUNCTION audit_flush() TO monitoring;"
	  . 'CREATE FUNCTION public.audit_flush() RETURNS int LANGUAGE sql RETURN 1;'
	  . 'CREATE TABLE public.audit_records (a int); CREATE VIEW public.mine AS SELECT * FROM pg_catalog.audit_records',
	'updated');
(undef, $warnings) = sql_as('paq_quiet', 'updated', 'ALTER EXTENSION pg_audit_queue UPDATE');
like($warnings, qr/WARNING:  function "audit_flush" is in schema "audit_queue"/, 'UPDATE: a function steps aside');
like($warnings, qr/WARNING:  view "audit_records" is in schema "audit_queue"/, 'a view, too');
is(sql('SELECT count(*) FROM audit_records', 'updated'), 0, 'the application finds its own');
like((sql_as('paq_quiet', 'updated', 'SELECT * FROM public.mine'))[1],
	qr/ERROR:  the audit trail is not in the table of this database/, 'a view on ours is still on ours');
like(sql_as('monitoring', 'updated', 'SELECT audit_queue.audit_flush()'), qr/^\d+$/,
	'who could call it still can');

# ---------------------------------------------------------------------------
# Later
# ---------------------------------------------------------------------------

make_database('later');
create_extension($node, 'later');
sql('GRANT CREATE ON SCHEMA public TO other; CREATE FOREIGN DATA WRAPPER f; CREATE SERVER s FOREIGN DATA WRAPPER f', 'later');

# All ways in which an object gets a name, by a superuser: the statements, what takes it
# away, and which of ours steps aside
my @ways = (
	[ 'CREATE TABLE public.audit_trail (a int)', 'DROP TABLE public.audit_trail', 'view audit_trail' ],
	[ 'CREATE TABLE public.audit_trail AS SELECT 1 AS a', 'DROP TABLE public.audit_trail', 'view audit_trail' ],
	[ 'SELECT 1 AS a INTO public.audit_trail', 'DROP TABLE public.audit_trail', 'view audit_trail' ],
	[ 'CREATE VIEW public.audit_trail AS SELECT 1', 'DROP VIEW public.audit_trail', 'view audit_trail' ],
	[ 'CREATE MATERIALIZED VIEW public.audit_trail AS SELECT 1', 'DROP MATERIALIZED VIEW public.audit_trail',
		'view audit_trail' ],
	[ 'CREATE FOREIGN TABLE public.audit_trail (a int) SERVER s', 'DROP FOREIGN TABLE public.audit_trail',
		'view audit_trail' ],
	[ 'CREATE SEQUENCE public.audit_trail', 'DROP SEQUENCE public.audit_trail', 'view audit_trail' ],
	[ 'CREATE TYPE public.audit_trail AS (a int)', 'DROP TYPE public.audit_trail', 'view audit_trail' ],
	[ q{CREATE TYPE public.audit_trail AS ENUM ('a')}, 'DROP TYPE public.audit_trail', 'view audit_trail' ],
	[ 'CREATE TYPE public.audit_records AS RANGE (subtype = float8)', 'DROP TYPE public.audit_records',
		'view audit_records' ],
	[ 'CREATE DOMAIN public.audit_trail AS text', 'DROP DOMAIN public.audit_trail', 'view audit_trail' ],
	[ 'CREATE SCHEMA app CREATE TABLE audit_trail (a int)', 'DROP TABLE app.audit_trail; DROP SCHEMA app',
		'view audit_trail' ],
	[ 'CREATE TABLE public.t (a int); ALTER TABLE public.t RENAME TO audit_trail', 'DROP TABLE public.audit_trail',
		'view audit_trail' ],
	[ 'CREATE TEMP TABLE audit_trail (a int); DROP TABLE pg_temp.audit_trail; CREATE TABLE public.audit_trail (a int)',
		'DROP TABLE public.audit_trail', 'view audit_trail' ],
	[ 'CREATE FUNCTION public.audit_seal() RETURNS int LANGUAGE sql RETURN 1', 'DROP FUNCTION public.audit_seal()',
		'function audit_seal' ],
	[ q{CREATE PROCEDURE public.audit_seal() LANGUAGE sql AS 'SELECT 1'}, 'DROP PROCEDURE public.audit_seal()',
		'function audit_seal' ],
	[ 'CREATE AGGREGATE public.audit_consumer_drop(int) (SFUNC = int4pl, STYPE = int)',
		'DROP AGGREGATE public.audit_consumer_drop(int)', 'function audit_consumer_drop' ],
	[ 'CREATE FUNCTION public.f() RETURNS int LANGUAGE sql RETURN 1; ALTER FUNCTION public.f() RENAME TO audit_seal',
		'DROP FUNCTION public.audit_seal()', 'function audit_seal' ]);

foreach my $way (@ways)
{
	my ($make, $drop, $ours) = @$way;
	my ($kind, $name) = split / /, $ours;

	like((sql_as('paq_quiet', 'later', $make))[1], qr/^WARNING:  $kind "$name" is in schema "audit_queue"\nDETAIL:  .*\z/m,
		"steps aside: $make");
	like(names_found('later'), qr/^$kind audit_queue\.$name: [^\n]*\z/, 'and nothing else');
	($command) = sql(q{SELECT command FROM audit_queue.names() WHERE aside}, 'later');
	is((sql_as('paq_quiet', 'later', "$drop; $command"))[1], '', 'the command brings it back');
	is(names_found('later'), '', 'and all is as it was');
}

# What hides nothing
foreach my $make ('CREATE TEMP TABLE audit_records (a int)', 'CREATE INDEX audit_records ON public.t (a)',
	'ALTER TABLE public.t RENAME a TO audit_records', 'CREATE FUNCTION public.audit_trail() RETURNS int LANGUAGE sql RETURN 1',
	'CREATE FUNCTION public.audit_flush(int) RETURNS int LANGUAGE sql RETURN 1', 'DROP TABLE public.t')
{
	is((sql_as('paq_quiet', 'later', ($make =~ /INDEX/ ? 'CREATE TABLE public.t (a int);' : '') . $make))[1], '',
		"nothing is hidden: $make");
}
is(names_found('later'), '', 'nothing has stepped aside');

# An ordinary user is warned, and changes nothing.
(undef, $warnings) = sql_as('other', 'later', 'CREATE TABLE public.audit_records (a int); CREATE TABLE public.unrelated (a int)');
is(() = $warnings =~ /WARNING/g, 1, 'an ordinary user is warned, once');
like($warnings, qr/WARNING:  table public\.audit_records is hidden by pg_catalog\.audit_records of extension "pg_audit_queue"/,
	'of what is hidden');
sql_as('other', 'later', 'CREATE FUNCTION public.audit_check() RETURNS int LANGUAGE sql RETURN 1');
is(sql(q{SELECT bool_or(aside) FROM audit_queue.names()}, 'later'), 'f', 'nothing steps aside for him');
like(sql('SELECT count(*) FROM audit_check()', 'later'), qr/^\d+$/, 'his function is not called');
like(findings('later'), qr/^names_hidden\|warning\|.*table public\.audit_records of other/, 'audit_check() tells of both');
sql('ALTER VIEW pg_catalog.audit_records SET SCHEMA audit_queue', 'later');
is(sql_as('other', 'later', 'SELECT count(*) FROM audit_records'), 0, 'if a superuser wants, his table is found');

# Nor by way of a table for which ours have stepped aside.
foreach my $swap ('DROP TABLE public.audit_records; CREATE VIEW public.audit_records AS SELECT 1 AS a',
	'DROP TABLE public.audit_records; CREATE VIEW public.v AS SELECT 1 AS a; ALTER VIEW public.v RENAME TO audit_records',
	$node->pg_version->major < 16 ? 'CREATE RULE "_RETURN" AS ON SELECT TO public.audit_records DO INSTEAD SELECT 1 AS a' : ())
{
	like((sql_as('other', 'later', $swap))[1], qr/WARNING:  view "audit_records" is in schema "pg_catalog" again\n/,
		"ours come back: $swap");
	like((sql_as('paq_quiet', 'later', 'SELECT * FROM audit_records'))[1],
		qr/ERROR:  the audit trail is not in the table of this database/, 'who reads ours, reads ours');
	sql('DROP VIEW public.audit_records; CREATE TABLE public.audit_records (a int); ALTER TABLE public.audit_records OWNER TO other',
		'later');
	is(sql(q{SELECT aside FROM audit_queue.names() WHERE name ~ 'audit_records'}, 'later'), 't', 'they step aside once more');
}

# Nor by a dump that a superuser restores: code that gets back to its owner
(undef, $warnings) = sql_as('paq_quiet', 'later',
	'CREATE FUNCTION public.audit_rotate() RETURNS int LANGUAGE sql RETURN 1; ALTER FUNCTION public.audit_rotate() OWNER TO other;'
	  . 'CREATE VIEW public.audit_consumers AS SELECT 1; ALTER VIEW public.audit_consumers OWNER TO other');
like($warnings, qr/function "audit_rotate" is in schema "pg_catalog" again\n.*view "audit_consumers" is in schema "pg_catalog" again\n/s,
	'ours come back when an ordinary user gets the code');

# ---------------------------------------------------------------------------
# Code beside what ours have stepped aside for
# ---------------------------------------------------------------------------

make_database('code');
create_extension($node, 'code');
sql('GRANT CREATE ON SCHEMA public TO other; CREATE SCHEMA app; CREATE SCHEMA mine AUTHORIZATION other;'
	  . 'CREATE TABLE public.called (what text); GRANT INSERT ON public.called TO PUBLIC;'
	  . 'CREATE TABLE public.seen (who text, path text); GRANT INSERT ON public.seen TO PUBLIC;'
	  . "CREATE FUNCTION app.watch() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN"
	  . " INSERT INTO public.seen VALUES (current_user, current_setting(\$\$search_path\$\$)); END';"
	  . 'CREATE EVENT TRIGGER watch ON ddl_command_end EXECUTE FUNCTION app.watch()', 'code');
sql('CREATE FUNCTION app.audit_flush() RETURNS text LANGUAGE sql RETURN 1;'
	  . 'CREATE FUNCTION app.audit_consumer_drop(text) RETURNS text LANGUAGE sql RETURN 1', 'code');

# Whether one of ours has stepped aside
sub is_aside
{
	my ($kind, $name) = @_;

	return sql("SELECT aside FROM audit_queue.names() WHERE name ~ '^$kind \\w+\\.$name\$'", 'code');
}

# All ways in which an ordinary user gets such a function: what there is before, what makes
# it, what takes it away
foreach my $way (
	[ '', spy('public.audit_flush()'), 'FUNCTION public.audit_flush()' ],
	[ '', "CREATE PROCEDURE public.audit_flush() LANGUAGE sql AS 'SELECT 1'", 'PROCEDURE public.audit_flush()' ],
	[ spy('public.f()'), 'ALTER FUNCTION public.f() RENAME TO audit_flush', 'FUNCTION public.audit_flush()' ],
	[ spy('mine.audit_flush()'), 'ALTER FUNCTION mine.audit_flush() SET SCHEMA public', 'FUNCTION public.audit_flush()' ],
	[
		spy('public.audit_flush(a int)'),
		'CREATE OR REPLACE' . substr(spy('public.audit_flush(a int DEFAULT 1)'), length 'CREATE'),
		'FUNCTION public.audit_flush(int)'
	],
	[
		'', 'CREATE AGGREGATE public.audit_consumer_drop(int) (SFUNC = int4pl, STYPE = int)',
		'AGGREGATE public.audit_consumer_drop(int)'
	])
{
	my ($before, $make, $drop) = @$way;
	my ($name) = $drop =~ /\.(\w+)/;
	my $move = $name eq 'audit_flush' ? 'audit_flush()' : 'audit_consumer_drop(text)';

	sql_as('other', 'code', $before) if $before;
	sql("ALTER FUNCTION pg_catalog.$move SET SCHEMA audit_queue", 'code') if is_aside('function', $name) eq 'f';
	is(is_aside('function', $name), 't', "aside before: $make");
	sql('TRUNCATE public.seen', 'code');
	like((sql_as('other', 'code', "SET search_path = public; $make"))[1],
		qr/WARNING:  function "$name" is in schema "pg_catalog" again\n/, 'ours comes back');
	is(is_aside('function', $name), 'f', 'and is back');
	is(sql(q{SELECT count(*) > 0, count(*) FILTER (WHERE path <> 'pg_catalog, pg_temp') FROM public.seen WHERE who <> 'other'},
			'code'), 't|0', 'event triggers have no search path of his while they have rights of another');
	sql_as('other', 'code', "DROP $drop");
}
is(sql('SELECT string_agg(what, $$,$$) FROM public.called', 'code'), '', 'nothing of the user is called');

# What is executed when an ordinary user's table is read
my $f = 'CREATE FUNCTION mine.f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS'
  . q{ $f$ BEGIN PERFORM mine.g(); RETURN 1; END $f$};
my $table = 'CREATE TABLE public.audit_trail (a int, b text)';

sql_as('other', 'code', spy('mine.g()') . "; $f; GRANT USAGE ON SCHEMA mine TO PUBLIC");
foreach my $alter ('ALTER TABLE public.audit_trail ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON public.audit_trail USING (mine.g() = 1)',
	'CREATE INDEX ON public.audit_trail ((a + mine.f(1)))',
	'CREATE INDEX ON public.audit_trail (a) WHERE a > mine.f(1)',
	'CREATE STATISTICS mine.s ON a, (a + mine.f(1)) FROM public.audit_trail',
	'ALTER TABLE public.audit_trail ADD CHECK (a > mine.f(1))',
	'ALTER TABLE public.audit_trail ADD c int CHECK (c > mine.f(1))',
	'CREATE TABLE mine.child () INHERITS (public.audit_trail)',
	'CREATE TABLE mine.child (a int, b text); ALTER TABLE mine.child INHERIT public.audit_trail',
	'CREATE TABLE mine.parent (a int, b text) PARTITION BY RANGE ((a + mine.f(1)));'
	  . ' ALTER TABLE mine.parent ATTACH PARTITION public.audit_trail DEFAULT',
	'DROP TABLE public.audit_trail; CREATE TABLE public.audit_trail (a int) PARTITION BY RANGE ((a + mine.f(1)))')
{
	sql_as('other', 'code', "$table; GRANT SELECT ON public.audit_trail TO PUBLIC");
	sql('ALTER VIEW pg_catalog.audit_trail SET SCHEMA audit_queue', 'code') if is_aside('view', 'audit_trail') eq 'f';
	like((sql_as('other', 'code', $alter))[1], qr/WARNING:  view "audit_trail" is in schema "pg_catalog" again\n/,
		"ours comes back: $alter");
	sql('TRUNCATE public.called', 'code');
	like((sql_as('monitoring', 'code', 'SELECT a FROM audit_trail'))[1], qr/ERROR:  column "a" does not exist/,
		'who reads ours, reads ours');
	is(sql('SELECT count(*) FROM public.called', 'code'), 0, 'and nothing of the user is called');
	sql_as('other', 'code', 'DROP TABLE public.audit_trail CASCADE; DROP TABLE IF EXISTS mine.parent, mine.child CASCADE');
}
sql_as('other', 'code', $table);
sql('ALTER VIEW pg_catalog.audit_trail SET SCHEMA audit_queue', 'code');
is((sql_as('other', 'code', 'CREATE INDEX ON public.audit_trail (lower(b)) WHERE a > 0; ALTER TABLE public.audit_trail ADD CHECK (a > 1),'
		  . ' ADD c int DEFAULT mine.f(1)'))[1], '', 'what executes nothing of his changes nothing');
is(is_aside('view', 'audit_trail'), 't', 'his table is found');
make_database('tables');
sql_as('owner', 'tables', "$table; ALTER TABLE public.audit_trail ENABLE ROW LEVEL SECURITY; CREATE TABLE public.audit_records (a int CHECK (a > 1))");
(undef, $warnings) = sql_as('paq_quiet', 'tables', 'CREATE EXTENSION pg_audit_queue');
is(names_found('tables'), join("\n", 'view audit_queue.audit_records: table public.audit_records of owner',
		'view pg_catalog.audit_trail: table public.audit_trail of owner'),
	'CREATE EXTENSION does not step aside for a table with row security');

# ---------------------------------------------------------------------------
# Privileges, and two at the same time
# ---------------------------------------------------------------------------

sql('GRANT EXECUTE ON FUNCTION audit_seal() TO PUBLIC; GRANT CREATE ON SCHEMA public TO other', 'tables');
is(sql(q{SELECT has_schema_privilege('other', 'audit_queue', 'USAGE')}, 'tables'), 'f', 'not everybody finds what is aside');
sql('CREATE FUNCTION public.audit_seal() RETURNS int LANGUAGE sql RETURN 1', 'tables');
is(sql(q{SELECT has_schema_privilege('other', 'audit_queue', 'USAGE')}, 'tables'), 't', 'unless what everybody may use is there');
like((run_command([ 'pg_dump', '-d', $node->connstr('updated') ]))[0], qr/^GRANT USAGE ON SCHEMA audit_queue TO monitoring;$/m,
	'pg_dump has what was granted during an update');

my $first = $node->background_psql('tables');
$first->query_safe('BEGIN; SET client_min_messages = error; CREATE SCHEMA one; CREATE TABLE one.audit_consumers (a int)');
my $second = start_psql($node, 'CREATE SCHEMA two; CREATE TABLE two.audit_consumers (a int)', database => 'tables', name => 'second');
ok(poll_until(sub { sql(q{SELECT wait_event_type FROM pg_stat_activity WHERE application_name = 'second'}) eq 'Lock' }), 'one waits');
$first->query_safe('COMMIT');
$first->quit;
unlike((finish_psql($second))[2], qr/ERROR/, 'two superusers have ours step aside at the same time');
is(sql(q{SELECT aside, cardinality(others) FROM audit_queue.names() WHERE name = 'view audit_queue.audit_consumers'}, 'tables'),
	't|2', 'and it does');

# A dump and its restore: CREATE EXTENSION comes first there.
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('application') ], 'an application is dumped');
make_database('restored');
$node->command_ok(
	[ 'psql', '-Xq', '-1', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('restored') ], 'and restored');
is(sql('SELECT a FROM audit_records; SELECT audit_flush()', 'restored'), "theirs\ntheirs", 'it finds its own again');
is(names_found('restored'), names_found('application'), 'ours are where they were');

$node->stop;
done_testing();
