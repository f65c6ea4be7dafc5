# ALTER EXTENSION ... UPDATE from each released version ends where CREATE
# EXTENSION does.  Until somebody runs it, what that version has made works with
# the new library, and what users have made of it stays.
#
# Released versions are those that the scripts in the folder know, except for
# the one in the control file.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Digest::SHA;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $source = "$FindBin::RealBin/../..";
my ($current) =
  slurp_file("$source/pg_audit_queue.control") =~ /^default_version = '(.*)'$/m;
my @scripts = sort grep { /^pg_audit_queue--.*\.sql$/ } slurp_dir($source);
my %known;

foreach my $script (@scripts)
{
	my ($from, $to) = $script =~ /^pg_audit_queue--(.+?)(?:--(.+))?\.sql$/;

	$known{$_} = 1 foreach grep { defined } $from, $to;
}
ok(delete $known{$current}, 'a script makes the version of the control file');

my @released = sort keys %known;
ok(scalar @released, "there are released versions: @released");

# A script that users have run never changes: their databases are compared with
# what it makes.
my %sums = reverse map { split } split /\n/,
  slurp_file("$FindBin::RealBin/../lib/released/scripts.sha256");

foreach my $script (@scripts)
{
	my ($made) = $script =~ /--([^-]+)\.sql$/;

	if ($made eq $current && !exists $sums{$script})
	{
		note("$script is not released yet");
		next;
	}
	is(Digest::SHA->new(256)->addfile("$source/$script")->hexdigest,
		$sums{$script}, "$script is as it was released");
}

my $node = audited_node(
	'main',
	settings => { flush_interval => '10ms' },
	conf     => "autovacuum = off\n");

sub sql
{
	return unaudited_sql($node, @_);
}

# $version: undef for what CREATE EXTENSION makes
sub make_database
{
	my ($name, $version) = @_;

	sql("CREATE DATABASE $name TEMPLATE template0");
	sql('CREATE EXTENSION pg_audit_queue' . (defined $version ? " VERSION '$version'" : ''),
		$name);
	return;
}

sub update
{
	my ($database) = @_;

	sql('ALTER EXTENSION pg_audit_queue UPDATE', $database);
	return;
}

# What a database has, as statements and lines.  With --binary-upgrade pg_dump
# has all that belongs to an extension, which has to be the same afterwards; what
# it has for pg_upgrade alone, numbers that differ anyway, is left out.  Days of
# partitions are, too, so two partitions give the same statements, which are
# there once.
sub contents
{
	my ($database) = @_;
	my ($dump, $stderr) = run_command(
		[ 'pg_dump', '--binary-upgrade', '--schema-only', '-d', $node->connstr($database) ]);
	my %statements;

	is($stderr, '', "$database is dumped");
	$dump =~ s/^\\(?:un)?restrict .*\n//mg;
	$dump =~ s/^--.*\n//mg;
	# from 19 on, rows of catalogs of large objects, of which there are none
	$dump =~ s/^COPY \S+ \(.*\) FROM stdin;\n\\\.\n//mg;
	$dump =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+\d\d/DAY/g;
	$dump =~ s/\brecords_\d+/records_DAY/g;
	$statements{$_} = 1
	  foreach grep { !/^\s*(?:SELECT pg_catalog\.binary_upgrade_|UPDATE pg_catalog\.pg_class\b)/ }
	  split /;\n+/, $dump;

	# what a dump need not have
	my $rows = sql(
		q{WITH member AS (
			SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
			 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
			   AND e.extname = 'pg_audit_queue'
		)
		SELECT format('%s depends on %s: %s', pg_describe_object(d.classid, d.objid, d.objsubid),
					  pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid), d.deptype)
		  FROM pg_depend d JOIN member m ON (d.classid, d.objid) = (m.classid, m.objid)
			OR (d.refclassid, d.refobjid) = (m.classid, m.objid)
		UNION
		SELECT format('initial privileges of %s: %s',
					  pg_describe_object(classoid, objoid, objsubid), initprivs)
		  FROM pg_init_privs WHERE privtype = 'e'
		UNION
		SELECT format('extension %s in %s of %s, relocatable: %s, configuration: %s %s',
					  e.extversion, e.extnamespace::regnamespace, e.extowner::regrole,
					  e.extrelocatable, e.extconfig::regclass[], e.extcondition)
		  FROM pg_extension e WHERE e.extname = 'pg_audit_queue'}, $database);

	$rows =~ s/\brecords_\d+/records_DAY/g;
	$rows =~ s/\bpg_toast_\d+/TOAST/g;
	$statements{$_} = 1 foreach split /\n/, $rows;
	return \%statements;
}

# What only one of the two has, one a line
sub differences
{
	my ($is, $expected) = @_;

	return join "\n",
	  (map { "not expected: $_" } grep { !$expected->{$_} } sort keys %$is),
	  map { "missing: $_" } grep { !$is->{$_} } sort keys %$expected;
}

# ---------------------------------------------------------------------------
# An unused database
# ---------------------------------------------------------------------------

make_database('created');
my $expected = contents('created');
cmp_ok(scalar(keys %$expected), '>', 40, 'there is a lot to compare');

# The same with the table, which a loader makes
make_database('with_table');
sql('SELECT audit_queue.make_table()', 'with_table');
my $expected_table = contents('with_table');
is(sql("SELECT extversion FROM pg_extension WHERE extname = 'pg_audit_queue'", 'created'),
	$current, 'CREATE EXTENSION makes the current version');

# The comparison notices whatever an update script could get wrong, and nothing
# else.
sql('CREATE DATABASE changed TEMPLATE with_table');
is(differences(contents('changed'), $expected_table), '', 'a copy has no differences');
sql('DROP DATABASE changed');
foreach my $change (
	'GRANT EXECUTE ON FUNCTION audit_flush() TO PUBLIC',
	'REVOKE SELECT ON audit_records FROM audit_queue_reader',
	'REVOKE USAGE ON SCHEMA audit_queue FROM audit_queue_reader',
	"COMMENT ON FUNCTION audit_rotate() IS 'starts a file'",
	'ALTER FUNCTION audit_queue_stats() PARALLEL RESTRICTED',
	'ALTER FUNCTION audit_queue_stats_reset() OWNER TO pg_monitor',
	'ALTER VIEW audit_records RESET (security_invoker)',
	'ALTER VIEW audit_queue_stats RENAME TO audit_stats',
	'ALTER TABLE audit_queue.records ADD colour text',
	'ALTER TABLE audit_queue.records ALTER pid SET NOT NULL',
	'ALTER TABLE audit_queue.records ALTER pid SET STATISTICS 10',
	'ALTER TABLE audit_queue.records NO FORCE ROW LEVEL SECURITY',
	'ALTER POLICY audit_queue_reader ON audit_queue.records USING (pid > 0)',
	'ALTER POLICY audit_queue_reader ON audit_queue.records TO PUBLIC',
	'DROP POLICY audit_queue_reader ON audit_queue.records',
	'CREATE INDEX ON audit_queue.load_state (loaded)',
	'ALTER EVENT TRIGGER pg_audit_queue_sql_drop ENABLE',
	'ALTER EVENT TRIGGER pg_audit_queue_ddl_command_end DISABLE',
	'ALTER EXTENSION pg_audit_queue DROP FUNCTION audit_rotate()',
	'CREATE SEQUENCE audit_queue.s; ALTER EXTENSION pg_audit_queue ADD SEQUENCE audit_queue.s',
	"UPDATE pg_extension SET extconfig = NULL, extcondition = NULL WHERE extname = 'pg_audit_queue'",
	"UPDATE pg_extension SET extversion = 'x' WHERE extname = 'pg_audit_queue'",
	"DELETE FROM pg_init_privs WHERE privtype = 'e' AND objoid = 'audit_records'::regclass")
{
	sql('CREATE DATABASE changed TEMPLATE with_table');
	sql($change, 'changed');
	isnt(differences(contents('changed'), $expected_table), '', "would be noticed: $change");
	sql('DROP DATABASE changed');
}

# Without the table it is again as CREATE EXTENSION has made it.
is(sql('SELECT audit_queue.drop_table()', 'with_table'), 't', 'the table can be dropped again');
is(differences(contents('with_table'), $expected), '', 'which leaves nothing');
sql('DROP DATABASE with_table');

foreach my $version (@released)
{
	(my $database = "updated_$version") =~ tr/./_/;

	make_database($database, $version);
	update($database);
	is(differences(contents($database), $expected), '',
		"from $version to $current: all as CREATE EXTENSION makes it");
}

# ---------------------------------------------------------------------------
# A database that is used
# ---------------------------------------------------------------------------

sql('CREATE ROLE monitoring LOGIN; CREATE ROLE auditor LOGIN;'
	  . ' GRANT audit_queue_reader TO auditor');

sub sql_as
{
	my ($role, $sql, $database) = @_;

	return $node->safe_psql($database, $sql,
		connstr => $node->connstr($database) . " user=$role");
}

# Have the loader write into that database
sub use_table
{
	my ($database) = @_;

	$node->append_conf('postgresql.conf',
		settings_text(sink => 'table', database => $database));
	$node->reload;
	return;
}

# The DDL records of a table, by the commands' objects, which the event triggers
# tell
sub make_and_drop
{
	my ($table, $database) = @_;

	$node->safe_psql($database, "CREATE TABLE $table (a int); DROP TABLE $table");
	ok(table_loaded($node, $database), "$database: the loader loads");
	return sql("SELECT string_agg(command, ',' ORDER BY sequence) FROM audit_records"
		  . " WHERE object_name = 'public.$table' AND object_type = 'TABLE'", $database);
}

# Each of the extension's functions and views, which nobody names here: those of
# later versions too
sub call_everything
{
	my ($database, $when) = @_;
	my $members = q{FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
		 WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		   AND e.extname = 'pg_audit_queue'};
	my @calls = split /\n/, sql(
		qq{SELECT 'SELECT * FROM ' || p.oid::regproc || '()' FROM pg_proc p
			WHERE p.oid IN (SELECT d.objid $members AND d.classid = 'pg_proc'::regclass)
			  AND p.pronargs = p.pronargdefaults
			  AND p.prorettype NOT IN ('event_trigger'::regtype, 'fdw_handler'::regtype, 'trigger'::regtype)
		   UNION ALL
		   SELECT 'SELECT * FROM ' || c.oid::regclass FROM pg_class c
			WHERE c.oid IN (SELECT d.objid $members AND d.classid = 'pg_class'::regclass)
			ORDER BY 1}, $database);

	cmp_ok(scalar @calls, '>=', 8, "$when: functions, views and tables to be tried");
	foreach my $call (@calls)
	{
		my ($ret, undef, $stderr) = $node->psql($database, $call);

		# nothing is sealed here, nor in files, which those say themselves
		my $said =
			$call =~ /audit_seal/              ? qr/ERROR:  audit trail is not sealed\n/
		  : $call =~ /audit(?:_queue\.|_)trail/ ?
		  qr/WARNING:  new audit records do not go into files of format json\n/
		  : undef;

		if (defined $said)
		{
			like($stderr, $said, "$when: $call");
			next;
		}
		is("$ret $stderr", '0 ', "$when: $call");
	}
	return;
}

make_database('fresh');
use_table('fresh');
is(make_and_drop('t', 'fresh'), 'CREATE TABLE,DROP TABLE', 'fresh: the event triggers work');
call_everything('fresh', "version $current");
my $expected_used = contents('fresh');

foreach my $version (@released)
{
	(my $database = "used_$version") =~ tr/./_/;

	make_database($database, $version);
	use_table($database);
	is(make_and_drop('before', $database), 'CREATE TABLE,DROP TABLE',
		"objects of $version: the event triggers work");
	call_everything($database, "objects of $version");

	# By the columns' names: a library that took them for others would be
	# noticed.
	my %is = %{ stats($node) };
	is( sql('SELECT (worker_pid, queue_size, sink, loader_pid) FROM audit_queue_stats', $database),
		"($is{worker_pid},$is{queue_size},table,$is{loader_pid})",
		"objects of $version: the statistics' columns");
	is(sql('SELECT s.stats_reset < now() AND current_file LIKE $$%/load/%$$ FROM audit_queue_stats s',
			$database), 't', "objects of $version: the last ones, too");

	# What users have made of it
	sql('GRANT SELECT ON audit_queue_stats TO monitoring;'
		  . ' GRANT EXECUTE ON FUNCTION audit_queue_stats(), audit_flush() TO monitoring;'
		  . ' CREATE VIEW public.dashboard AS SELECT published, sink FROM audit_queue_stats;'
		  . ' CREATE VIEW public.logins AS SELECT log_time, user_name FROM audit_records'
		  . " WHERE command = 'LOGIN'", $database);
	my $rows = sql('SELECT count(*) FROM audit_records', $database);

	update($database);
	is(sql("SELECT extversion FROM pg_extension WHERE extname = 'pg_audit_queue'", $database),
		$current, "$version is updated to $current");
	cmp_ok(sql('SELECT count(*) FROM audit_records', $database), '>=', $rows,
		"from $version: the trail stays");
	is(make_and_drop('after', $database), 'CREATE TABLE,DROP TABLE',
		"from $version: the loader goes on, and the event triggers");
	is( sql('SELECT count(*) - count(DISTINCT (series, sequence)), count(DISTINCT series),'
			  . ' max(sequence) - min(sequence) + 1 - count(*) FROM audit_records', $database),
		'0|1|0', "from $version: each record once, and none is missing");
	call_everything($database, "from $version to $current");

	is(sql_as('monitoring', 'SELECT sink FROM audit_queue_stats', $database), 'table',
		"from $version: who could read the statistics still can");
	like(sql_as('monitoring', 'SELECT audit_flush()', $database), qr/^\d+$/,
		"from $version: who could flush, still can");
	is(sql('SELECT sink FROM public.dashboard', $database), 'table',
		"from $version: views on the statistics stay");
	is(sql_as('auditor', "SELECT count(*) > 0 FROM audit_records", $database), 't',
		"from $version: readers read");

	# All the rest is as if it had been made anew, partitions too.
	sql('DROP VIEW public.dashboard, public.logins;'
		  . ' REVOKE SELECT ON audit_queue_stats FROM monitoring;'
		  . ' REVOKE EXECUTE ON FUNCTION audit_queue_stats(), audit_flush() FROM monitoring',
		$database);
	is(differences(contents($database), $expected_used), '',
		"from $version to $current, with a trail: all as CREATE EXTENSION makes it");
}

$node->stop;
done_testing();
