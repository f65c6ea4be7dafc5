# From an older major version to this one: pg_upgrade of a server with a full
# queue and a trail in the table, and pg_dump.  Nothing is lost, nothing is there
# twice.
#
# Needs the older server and its headers: PAQ_OLD_PG_CONFIG names its pg_config;
# otherwise any that Debian's packages have installed.  The library is built for
# it here.
#
# The older server must not be of a minor release that is newer than the other's.
# PostgreSQL 15.20 and 17.12, and what was released with them, keep a parameter
# "pg_attver" with the columns of tables, which pg_dump takes along and 18.6
# refuses.  There pg_upgrade fails for any table, and the upgrade cannot be tested.
# Older ones of 17 can be upgraded to 18.6.
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

# The major version of a server, undef if extensions cannot be built for it
sub major_of
{
	my ($pg_config) = @_;
	my ($major) = `$pg_config --version 2>&1` =~ /(\d+)/;

	chomp(my $pgxs = `$pg_config --pgxs`);
	chomp(my $bindir = `$pg_config --bindir`);
	return -f $pgxs && -x "$bindir/initdb" ? $major : undef;
}

my $new_major = major_of('pg_config');
my @old =
  grep { (major_of($_) // 99) < $new_major && major_of($_) >= 15 }
  $ENV{PAQ_OLD_PG_CONFIG} // glob('/usr/lib/postgresql/*/bin/pg_config');

plan skip_all => "no PostgreSQL from 15 to below $new_major with its headers here;"
  . ' PAQ_OLD_PG_CONFIG=pg_config can name one'
  if !@old;

# initdb of version 18 has made checksums the default, and both have to have
# them.
my @initdb = (extra => ['-k']);
my %settings = (
	log            => 'all, -connect',
	format         => 'json',
	sink           => 'table',
	queue_size     => '64kB',
	flush_interval => '10ms',
	overflow       => 'error');
# The objects of the first release, as they are in servers that are old, and today's
my ($default_version) =
  slurp_file("$FindBin::RealBin/../../pg_audit_queue.control") =~ /^default_version = '(.*)'$/m;
my $number = 0;
my $directory = PostgreSQL::Test::Utils::tempdir();

sub numbers
{
	my ($node, $label, $condition) = @_;

	return unaudited_sql($node,
		"SELECT string_agg(n, ' ' ORDER BY n::int) FROM (SELECT substring(command_text"
		  . " FROM '''$label-(\\d+)-''') FROM audit_records WHERE $condition) AS r (n)");
}

# Run pg_upgrade from one node to another.  Returns whether it worked, and errors of
# the server and of the programs that it has run.
sub upgrade
{
	my ($old, $new) = @_;
	my $output;

	chdir $directory or die $!;
	return (1, '')
	  if IPC::Run::run(
		[
			'pg_upgrade', '-d', $old->data_dir, '-D', $new->data_dir,
			'-b', $old->config_data('--bindir'), '-B', $new->config_data('--bindir'),
			'-s', $new->host, '-p', $old->port, '-P', $new->port
		],
		'>&', \$output);
	my $errors = `grep -ih error: @{[ $new->data_dir ]}/pg_upgrade_output.d/*/log/*.log`;
	note($output);
	note($errors);
	return (0, $errors);
}

# The same without the library, and with nothing but a table
sub plain_upgrade
{
	my ($pg_config) = @_;
	my $old = PostgreSQL::Test::Cluster->new("plain_old$number",
		install_path => bare_install($pg_config));
	my $new = PostgreSQL::Test::Cluster->new("plain_new$number");

	init_node($_, @initdb) foreach $old, $new;
	$old->start;
	$old->safe_psql('postgres', 'CREATE TABLE t (a int)');
	$old->stop;
	return upgrade($old, $new);
}

# Does the server know this reloption?
sub knows_attver
{
	my ($pg_config) = @_;

	chomp(my $bindir = `$pg_config --bindir`);
	return slurp_file("$bindir/postgres") =~ /\bpg_attver\b/;
}

# Upgrade a server whose objects are those of a version of the extension, with a full
# queue.
sub upgrade_audited
{
	my ($pg_config, $version, $label) = @_;

	$number++;
	my $old = audited_node(
		"old$number",
		install_path => other_install($pg_config),
		init         => \@initdb,
		start        => 0,
		settings     => \%settings,
		conf         => "autovacuum = off\nfsync = off\n");

	$old->start;
	unaudited_sql($old, "CREATE EXTENSION pg_audit_queue VERSION '$version'");
	$old->safe_psql('postgres', join ';', map { "SELECT 'loaded-$_-'" } 1 .. 50);
	ok(table_loaded($old), "$label: the table has records");

	# Dump the old server with the new pg_dump, and restore that into another one.
	# That the table is read is recorded, too, and loaded later.
	my $last = unaudited_sql($old, 'SELECT max(sequence) FROM audit_records');
	my $query = "SELECT count(*), md5(string_agg(r::text, '|' ORDER BY series, sequence)) FROM audit_records r
		WHERE sequence <= $last";
	my $rows = unaudited_sql($old, $query);
	$old->command_ok(
		[ 'pg_dump', '-Fc', '-f', "$directory/dump", '-d', $old->connstr('postgres'),
		  '-U', 'paq_quiet' ],
		"$label: pg_dump");
	my $restored = audited_node("restored$number", start => 0);
	$restored->start;

	# The table of that version may have fewer columns than today's (doc/upgrade.md).
	unaudited_sql($restored, "CREATE EXTENSION pg_audit_queue VERSION '$version'")
	  if $version ne $default_version;
	$restored->command_ok(
		[ 'pg_restore', '-1', '-d', $restored->connstr('postgres'), "$directory/dump" ],
		"$label: pg_restore");
	is(unaudited_sql($restored, $query), $rows, "$label: the trail is restored");
	$restored->append_conf('postgresql.conf', settings_text(sink => 'table'));
	$restored->reload;
	$restored->safe_psql('postgres', "SELECT 'after-1-'");
	ok(table_loaded($restored), "$label: the loader goes on in the restored table");
	is(numbers($restored, 'after', 'true'), '1', "$label: behind the restored records");
	$restored->stop;

	# Nothing takes records out of the queue, until it is full.
	my $worker = worker_pid($old);
	kill('STOP', $worker);
	my $filler = start_psql($old, join "\n", map { "SELECT 'queued-$_-';" } 1 .. 1000);
	my ($status, $stdout, $stderr) = finish_psql($filler);
	my $queued = () = $stdout =~ /^queued-/mg;

	like($stderr, qr/ERROR:  53400: .*queue is full/, "$label: the queue is full");
	cmp_ok($queued, '>', 50, "$label: of many records");
	crash_node($old, $worker);

	# pg_upgrade wants a server that was stopped cleanly.  Single-user mode leaves
	# the queue to the next start.
	my ($input, $output) = ('');
	ok( poll_until(
			sub {
				local $ENV{PGOPTIONS} = '';
				IPC::Run::run(
					[
						$old->installed_command('postgres'), '--single', '-D',
						$old->data_dir, '-c', 'pg_audit_queue.log=none', 'postgres'
					],
					'<', \$input, '>&', \$output);
			}),
		"$label: recovery");
	cmp_ok(scalar(grep { /^queue\.\d+$/ } slurp_dir(queue_dir($old))),
		'>', 0, "$label: the queue still has its records");

	my $new = PostgreSQL::Test::Cluster->new("new$number");
	init_node($new, @initdb);
	$new->append_conf('postgresql.conf',
		"shared_preload_libraries = 'pg_audit_queue'\n" . settings_text(%settings));
	ok((upgrade($old, $new))[0], "$label: pg_upgrade") or return;

	# The old server has written its queue when pg_upgrade has started it.
	is_deeply([ grep { /^queue\.\d+$|^spill/ } slurp_dir(queue_dir($old)) ],
		[], "$label: the old queue is written");
	cmp_ok(scalar(grep { /\.json$/ } slurp_dir(queue_dir($old) . '/load')),
		'>', 0, "$label: into files that are to be loaded");

	# These are loaded by the new server if it has them.
	mkdir(queue_dir($new) . '/load');
	system_or_bail('cp', '-p', glob(queue_dir($old) . '/load/*'), queue_dir($new) . '/load/');
	$new->start;
	$new->safe_psql('postgres', "SELECT 'after-1-'");
	ok(table_loaded($new), "$label: the new server loads");
	is(numbers($new, 'loaded', 'true'), join(' ', 1 .. 50),
		"$label: records that were in the table are there once");
	is(numbers($new, 'queued', "sqlstate = '00000'"), join(' ', 1 .. $queued),
		"$label: records that were in the queue, too");
	is(numbers($new, 'after', 'true'), '1', "$label: and new ones");
	is( unaudited_sql($new,
			'SELECT count(*) - count(DISTINCT (series, sequence)), max(missing),'
			  . " count(*) FILTER (WHERE type = 'gap')"
			  . ' FROM audit_records, LATERAL (SELECT max(sequence) - min(sequence) + 1 - count(*)'
			  . '   FROM audit_records r WHERE r.series = audit_records.series) AS s (missing)'),
		'0|0|0', "$label: nothing is missing in a series, and nothing is there twice");
	is_deeply([ grep { /\.kept$/ } slurp_dir(queue_dir($new) . '/load') ],
		[], "$label: no file is kept");
	cmp_ok(unaudited_sql($new, "SELECT count(*) FROM audit_records WHERE command_text LIKE '%binary_upgrade%'"),
		'>', 0, "$label: what pg_upgrade has done is recorded");
	is(unaudited_sql($new, "SELECT extversion FROM pg_extension WHERE extname = 'pg_audit_queue'"),
		$version, "$label: the extension is what it was");
	unaudited_sql($new, 'ALTER EXTENSION pg_audit_queue UPDATE');
	$new->safe_psql('postgres', "SELECT 'after-2-'");
	ok(table_loaded($new), "$label: it can be updated");
	is(numbers($new, 'after', 'true'), '1 2', "$label: and goes on");

	$new->stop;
	return;
}

foreach my $pg_config (@old)
{
	my $major = major_of($pg_config);
	my $label = "$major to $new_major";
	my %versions = (old => `$pg_config --version`, new => `pg_config --version`);

	chomp(%versions);

	$number++;
	# Try without the library first: any reason to fail but one is a failure here.
	my ($ok, $errors) = plain_upgrade($pg_config);
	if (!$ok
		&& $errors =~ /ERROR:  unrecognized parameter "pg_attver"/
		&& knows_attver($pg_config)
		&& !knows_attver('pg_config'))
	{
	  SKIP:
		{
			skip "$label: without pg_audit_queue, too, pg_upgrade fails from $versions{old}"
			  . " to $versions{new}, which does not know its parameter \"pg_attver\"",
			  1;
		}
		next;
	}
	ok($ok, "$label: pg_upgrade of a table") or next;
	foreach my $version ('1.0', $default_version)
	{
		upgrade_audited($pg_config, $version, "$label, objects of $version");
	}
}

done_testing();
