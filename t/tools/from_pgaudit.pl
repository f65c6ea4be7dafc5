# scripts/from-pgaudit: what it prints moves a server with settings of pgaudit's,
# wherever they are and whatever is in names and values, to this extension.
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

my $program = "$FindBin::RealBin/../../scripts/from-pgaudit";
my $script  = "$PostgreSQL::Test::Utils::tmp_check/from_pgaudit.sql";
my $node    = PostgreSQL::Test::Cluster->new('main');

init_node($node);
$node->append_conf('postgresql.conf', <<"CONF");
shared_preload_libraries = '\$libdir/auto_explain,\t"auto_explain"'
pg_audit_queue.log = 'none'		# before there is a library that it belongs to
pgaudit.log = 'ddl, write'
PgAudit.Log_Level = notice
pgaudit.log = 'role, read'
CONF
# without contrib there is nothing to preload
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''")
  if !-e $node->config_data('--pkglibdir') . '/auto_explain.so';
$node->start;

# Print the script and run it, connected to a database at first.  Returns both outputs;
# with $fails, the errors of what prints it.
sub move
{
	my ($database, $fails) = @_;
	my ($printed, $errors);
	local %ENV = (%ENV, PGHOST => $node->host, PGPORT => $node->port,
		PGDATABASE => $database // 'postgres');

	my $ok = IPC::Run::run([$program], '<', \'', '>', \$printed, '2>', \$errors);
	return ($printed, $errors) if $fails && !$ok;
	die "from-pgaudit: $errors" if !$ok || $fails;
	open(my $file, '>', $script) or die "$script: $!";
	print $file $printed;
	close($file);
	my ($out, $err) = ('', '');
	IPC::Run::run([ 'psql', '-X', '-q', '-f', $script ], '<', \'', '>', \$out, '2>', \$err);
	return ($printed, "$out$err");
}

my $has_pgaudit = $node->safe_psql('postgres',
	"SELECT count(*) FROM pg_available_extensions WHERE name = 'pgaudit'");

# From 19 on no name can have the end of a line in it.
my $end      = $node->safe_psql('postgres', 'SHOW server_version_num') < 190000 ? "\n" : ' ';
my $database = qq{a "b" 'c' d=\\e$end\\! false :x};
my $role     = qq{r "o'\\le$end\\q};

# in single-quoted SQL literals
my ($database_literal, $role_literal) = map { s/'/''/gr } $database, $role;

$node->safe_psql('postgres', <<"SQL");
SET standard_conforming_strings = on;
SELECT format('CREATE DATABASE %I', '$database_literal'), format('CREATE ROLE %I', '$role_literal') \\gexec
SELECT format('ALTER ROLE %I SET pgaudit.log = %L', '$role_literal', 'all, -misc'),
	   format('ALTER ROLE %I IN DATABASE %I SET pgaudit.role = %L', '$role_literal', '$database_literal', 'a=b''\\'),
	   format('ALTER DATABASE %I SET pgaudit.log_catalog = off', '$database_literal') \\gexec
ALTER ROLE ALL SET PGAUDIT.LOG_parameter = on;
SQL

# Databases in which the owner's objects, or another meaning of backslashes, would be in
# the way
$node->safe_psql('postgres', q{
	CREATE ROLE evil;
	CREATE DATABASE trap OWNER evil;
	ALTER DATABASE trap SET search_path = trap, pg_catalog});
$node->safe_psql('postgres', 'ALTER DATABASE trap SET standard_conforming_strings = off')
  if $node->safe_psql('postgres', 'SHOW server_version_num') < 190000;
$node->safe_psql('trap', q{
	SET SESSION AUTHORIZATION evil;
	CREATE SCHEMA trap;
	CREATE TABLE trap.called (by text);
	CREATE FUNCTION trap.spy() RETURNS bool LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO trap.called VALUES (current_user); RETURN true; END $$;
	CREATE VIEW trap.pg_extension AS SELECT CASE WHEN trap.spy() THEN 'pgaudit' END::name AS extname;
	CREATE VIEW trap.pg_settings AS SELECT CASE WHEN trap.spy() THEN 'x' END::text AS name;
	GRANT USAGE ON SCHEMA trap TO PUBLIC;
	GRANT SELECT ON ALL TABLES IN SCHEMA trap TO PUBLIC});

my ($printed, $output) = move();
like($output, qr/^Restart the server, then run this script again\.$/m, 'first it preloads');
unlike($output, qr/ERROR|WARNING/, 'without errors');
my $before = $node->safe_psql('postgres', 'SHOW shared_preload_libraries');
$node->restart;
is( $node->safe_psql('postgres', 'SHOW shared_preload_libraries'),
	($before eq '' ? 'pg_audit_queue' : '"$libdir/auto_explain", auto_explain, pg_audit_queue'),
	'beside what was preloaded');

if ($has_pgaudit)
{
	# its extension can only be created where the library is loaded
	my $libraries = $node->safe_psql('postgres', 'SHOW shared_preload_libraries');
	$node->safe_psql('postgres',
		'ALTER SYSTEM SET shared_preload_libraries = '
		  . join(', ', map { "'$_'" } split(/, /, $libraries =~ tr/"//dr), 'pgaudit'));
	$node->restart;
	$node->safe_psql($_, 'CREATE EXTENSION pgaudit') foreach 'template1', $database;
}

($printed, $output) = move();
unlike($output, qr/ERROR|FATAL|Restart/, 'then it takes over settings');
ok(poll_until(sub { $node->safe_psql('postgres', 'SHOW pg_audit_queue.format') eq 'pgaudit' }),
	'format pgaudit');
is($node->safe_psql('postgres', 'SHOW pg_audit_queue.log'), 'role, read',
	'of the server, the last value in postgresql.conf');
is($node->safe_psql('postgres', 'SHOW pg_audit_queue.log_level'), 'notice', '... by a name in other letters');
is( $node->safe_psql('postgres',
		q{SELECT d.datname, r.rolname, lower(c) FROM pg_db_role_setting s
		    LEFT JOIN pg_database d ON d.oid = setdatabase LEFT JOIN pg_roles r ON r.oid = setrole,
		         unnest(setconfig) c
		   WHERE c LIKE 'pg_audit_queue.%' ORDER BY 1 NULLS FIRST, 2 NULLS FIRST, 3}),
	join("\n",
		'||pg_audit_queue.log_parameter=on',
		"|$role|pg_audit_queue.log=all, -misc",
		"$database||pg_audit_queue.log_catalog=off",
		"$database|$role|pg_audit_queue.role=a=b'\\"),
	'of databases and roles');
is( $node->safe_psql($_, "SELECT count(*) FROM pg_extension WHERE extname = 'pg_audit_queue'"),
	($has_pgaudit ? 1 : 0),
	"the extension is where that of pgaudit is: $_") foreach 'template1', $database;
is( $node->safe_psql('postgres', "SELECT count(*) FROM pg_extension WHERE extname = 'pg_audit_queue'"),
	0, 'and nowhere else');

($printed, $output) = move('trap');
unlike($output, qr/ERROR|FATAL/, 'it can be run again, in any database');
is($node->safe_psql('trap', 'SELECT count(*) FROM trap.called'), 0, 'and executes nothing of its owner');

# README's line for a root shell works as it is there: nobody connects as root.  "id" and
# "runuser" stand in for those of a system where we are root and postgres has a role.
my ($line) = slurp_file("$FindBin::RealBin/../../README.md") =~ /`(scripts\/from-pgaudit \| [^`]*)`/;
my $bin = PostgreSQL::Test::Utils::tempdir();
my %stand_ins = (
	id      => 'echo 0',
	runuser => '[ "$1 $2 $3" = "-u postgres --" ] || exit 9; shift 3; PGHOST=\''
	  . $node->host . '\' PGPORT=' . $node->port . ' exec "$@"');
foreach my $name (keys %stand_ins)
{
	append_to_file("$bin/$name", "#!/bin/sh\n$stand_ins{$name}\n");
	chmod 0755, "$bin/$name";
}
{
	local %ENV = (%ENV, PATH => "$bin:$ENV{PATH}");
	delete @ENV{qw(PGHOST PGPORT PGDATABASE)};
	IPC::Run::run([ 'sh', '-c', $line // 'exit 1' ], '>&', \$output,
		init => sub { chdir "$FindBin::RealBin/../.." or die "chdir: $!" });
}
like($output, qr/^ALTER SYSTEM\n.*^ pg_reload_conf/ms, "README's line works in a root shell");
unlike($output, qr/ERROR|FATAL|error:/, 'without errors');

# What the files say does not count if there is an error in them.
$node->append_conf('postgresql.conf', "nonsense = 1\n");
like((move('postgres', 1))[1], qr/ERROR:  the configuration files have errors, see pg_file_settings/,
	'wrong files');

done_testing();
