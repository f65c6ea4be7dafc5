# What members of predefined roles, and ordinary users, can do to the worker,
# the loader and their files: nothing, except for the roles that may write the
# server's files or run programs.  The trail tells what these roles do to the
# files.
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
	settings => { flush_interval => '20ms', sink => 'table' },
	conf     => "autovacuum = off\nmax_worker_processes = 8\n");
my $data = $node->data_dir;
my @roles = split /\n/, unaudited_sql($node, q{
	SELECT rolname FROM pg_roles
	 WHERE rolname LIKE 'pg\_%'
	   AND rolname NOT IN ('pg_read_server_files', 'pg_write_server_files',
						   'pg_execute_server_program')});

unaudited_sql(
	$node, join '; ',
	'CREATE ROLE ordinary LOGIN', 'CREATE ROLE owner LOGIN',
	(map { "CREATE ROLE in_$_ LOGIN" . ($_ eq 'pg_database_owner' ? '' : " IN ROLE $_") }
		@roles, 'pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program'));
ok(table_loaded($node), 'the loader is at work');

# while it has another owner, nothing is loaded into it
unaudited_sql($node, 'ALTER DATABASE postgres OWNER TO owner');

my $stats = stats($node);
my $file  = "$data/$stats->{current_file}";
my $queue = queue_dir($node) . '/queue';

foreach my $role ('ordinary', 'owner', map { "in_$_" } @roles)
{
	my @got;

	foreach my $sql (
		(
			map { ("SELECT pg_terminate_backend($_)", "SELECT pg_cancel_backend($_)",
					"SELECT pg_log_backend_memory_contexts($_)") }
			  @{$stats}{qw(worker_pid loader_pid)}
		),
		(
			map {
				("SELECT length(pg_read_binary_file('$_'))", "SELECT * FROM pg_stat_file('$_')",
					"CREATE TEMP TABLE x (x text); COPY x FROM '$_'",
					"COPY (SELECT 1) TO '$_'",
					"SELECT lo_export(lo_from_bytea(0, ''), '$_')")
			  } $file, $queue, 'pg_audit_queue/lock'
		),
		"SELECT pg_ls_dir('pg_audit_queue')",
		"COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; rm $file'",
		"LOAD 'pg_audit_queue'")
	{
		my ($ret, $stdout, $stderr) = $node->psql('postgres', $sql,
			extra_params => [ '-U', $role, '-v', 'VERBOSITY=sqlstate' ]);

		# the worker is no backend to these functions
		push @got, "$sql: $stdout$stderr"
		  if $stderr !~ /ERROR:  42501$/ && "$stdout$stderr" !~ /\Af.*WARNING:  01000$/;
	}
	is(join("\n", @got), '', "$role has no power over processes and files");
}
is_deeply(
	[ @{ stats($node) }{qw(worker_pid loader_pid current_file)} ],
	[ @{$stats}{qw(worker_pid loader_pid current_file)} ],
	'they are the same as before');
unaudited_sql($node, 'ALTER DATABASE postgres OWNER TO CURRENT_USER');

# Who may write files can overwrite those.

sub gaps
{
	return unaudited_sql($node,
		q{SELECT error_message FROM audit_records WHERE class = 'GAP' ORDER BY log_time});
}

foreach my $case (
	[ 'in_pg_write_server_files',     "COPY (SELECT 'forged') TO '%s'", 'was truncated' ],
	[ 'in_pg_execute_server_program', "COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; rm %s'", 'was removed' ],
	[ 'in_pg_execute_server_program', "COPY (SELECT 1) TO PROGRAM 'cat >> %s'",
		'was written to by somebody else' ])
{
	my ($role, $sql, $what) = @$case;

	unaudited_sql($node, q{SET pg_audit_queue.log = 'all'; SELECT 'one more'});
	flush_trail($node);
	my $current = stats($node)->{current_file};
	$node->safe_psql('postgres', sprintf($sql, "$data/$current"),
		extra_params => [ '-U', $role ]);
	ok(table_loaded($node), "$role: the table has everything behind");
	like(gaps(), qr/^audit trail file "\Q$current\E" \Q$what\E; the records with sequence/m,
		"$role: the trail tells that the file $what");
}

# So can who has the server connect to another one, from 18 on, and append.
SKIP:
{
	my $port = $node->port;
	my $hba  = "$data/pg_hba.conf";

	skip 'before PostgreSQL 18 libpq does not write keys to a file', 2
	  if $node->pg_version->major < 18;
	skip 'the server has no SSL, or there is no program openssl: NOT TESTED', 2
	  if unaudited_sql($node, 'SHOW ssl_library') eq '' || system('command -v openssl >/dev/null') != 0;
	system_or_bail(
		qw(openssl req -new -x509 -days 30 -nodes -subj /CN=test),
		'-out', "$data/server.crt", '-keyout', "$data/server.key");
	chmod(0600, "$data/server.key") or die "chmod: $!";
	rename($hba, "$hba.default") or die "rename: $!";
	append_to_file($hba,
		"host all all 127.0.0.1/32 scram-sha-256\n" . slurp_file("$hba.default"));
	$node->append_conf('postgresql.conf',
		"ssl = on\nlisten_addresses = '127.0.0.1'\nwal_level = logical\nmax_wal_senders = 2\n");
	$node->restart;
	unaudited_sql($node,
		"CREATE ROLE publisher LOGIN REPLICATION PASSWORD 'x'; CREATE PUBLICATION p;"
		  . ' GRANT CREATE ON DATABASE postgres TO in_pg_create_subscription');
	unaudited_sql($node, q{SET pg_audit_queue.log = 'all'; SELECT 'one more'});
	flush_trail($node);
	my $current = stats($node)->{current_file};
	$node->safe_psql(
		'postgres',
		"CREATE SUBSCRIPTION s CONNECTION 'host=127.0.0.1 port=$port user=publisher password=x"
		  . " dbname=postgres sslmode=require sslkeylogfile=$data/$current' PUBLICATION p"
		  . ' WITH (create_slot = false, enabled = false, slot_name = NONE)',
		extra_params => [ '-U', 'in_pg_create_subscription' ]);
	ok(table_loaded($node), 'a subscription: the table has everything behind');
	like(
		gaps(),
		qr/^audit trail file "\Q$current\E" was written to by somebody else; the records/m,
		'the trail tells that the file was written to');
}

# The queue file, too: that crashes the server, which comes back, and tells.

my $position = -s $node->logfile;
$node->psql('postgres', "COPY (SELECT 'forged') TO '$queue' /* meant to crash */",
	extra_params => [ '-U', 'in_pg_write_server_files' ]);
eval { $node->psql('postgres', q{SELECT 'into the void'}) };    # psql may not read it
ok(wait_for_log($node, qr/was terminated by signal/, $position), 'the queue file overwritten: a crash');
ok(poll_until(sub { eval { $node->safe_psql('postgres', q{SELECT 'back'}); table_loaded($node) } }),
	'the server is back');
like(gaps(), qr/queue/, 'the trail tells of the queue file');
ok(-e "$queue.bad.1", 'it is set aside');
$node->safe_psql('postgres', q{SELECT 'and it goes on'});
ok(table_loaded($node), 'and records go on');
is(unaudited_sql($node, q{SELECT count(*) FROM audit_records WHERE command_text = 'SELECT ''and it goes on'''}),
	'1', 'into the table');
$node->stop;

done_testing();
