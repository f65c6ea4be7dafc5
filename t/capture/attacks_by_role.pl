# Attacks, by the roles that would make them: an ordinary user, the owner of a
# database, a member of each predefined role.  No attack hides what the role has
# done, and none opens the trail to it.  Attacks on the memory of a session are
# in t/capture/bounded_memory.
#
# Members of pg_execute_server_program, pg_read_server_files and
# pg_write_server_files can do to files what the server's own user can, and
# nothing can keep them from the trail's files (doc/trail.md).  So they may see the
# trail; t/trail/trail_changed tests changes that they make to it.
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

my $node = audited_node(
	'main',
	settings => {
		log            => 'all',
		sink           => 'table',
		flush_interval => '10ms',
		queue_size     => '1MB'
	},
	conf => "max_prepared_transactions = 2\nmax_connections = 50\n");

my @predefined = grep { $_ ne 'pg_database_owner' } split /\n/,
  unaudited_sql($node,
	q{SELECT rolname FROM pg_roles WHERE rolname LIKE 'pg\_%' ORDER BY 1});

cmp_ok(scalar @predefined, '>=', 10, 'there are predefined roles');

my @attackers = ('ordinary', 'owner', map { "member_of_$_" } @predefined);
my %reads_files =
  map { ("member_of_$_" => 1) }
  qw(pg_execute_server_program pg_read_server_files pg_write_server_files);

unaudited_sql(
	$node, join ";\n",
	(map { "CREATE ROLE $_ LOGIN" } @attackers),
	(map { "GRANT $_ TO member_of_$_" } @predefined),
	'CREATE TABLE people (id int, ssn text)',
	q{INSERT INTO people VALUES (1, '123-45'), (2, '678-90')},
	'GRANT ALL ON people TO PUBLIC',
	'CREATE DATABASE owned OWNER owner');
create_extension($node, 'owned');
ok(table_loaded($node), 'the table works');

# Nothing hides.  PROOF is a name that each statement has outside of its literals,
# EVIDENCE is in one.  Each way is tried in a session of its own; where 0 stands in
# front, the text is looked at while its error is being handled, when literals cannot
# be told from secrets, and all of them may be masked.

my @conforming = conforming_settings($node);
my @long = ('x' x 100_000, join(', ', map { "'$_'" } 1 .. 5000));
my %ways = (
	'plain' => [ 1, q{SELECT 'EVIDENCE' AS PROOF} ],
	'an address across lines of comments' =>
	  [ 1, "--x://u:\nSELECT 'EVIDENCE' AS PROOF --\@h" ],
	'an address across comments in a line' =>
	  [ 1, q{/*x://u:*/ SELECT 'EVIDENCE' AS PROOF /*@h*/} ],
	'an address across literals' =>
	  [ 1, q{SELECT 'x://u:' AS a, 'EVIDENCE' AS PROOF, '@h' AS b} ],
	'nested calls and a word' => [
		1,
		q{SELECT 'EVIDENCE' AS PROOF, }
		  . q{set_config('a.b', } x 300 . q{'x'}
		  . q{, true)} x 300
		  . ' /* token */'
	],
	'a word in another literal' => [
		1,
		q{SELECT ssn AS PROOF FROM people WHERE 'PASSWORD ' <> '' AND ssn LIKE 'EVIDENCE%'}
	],
	'words about roles in an expression' => [
		1,
		q{DO $$ BEGIN PERFORM alter role, 'password', 'EVIDENCE' AS PROOF
		  FROM (SELECT 1 AS alter, 2 AS role) AS s; END $$}
	],
	'options in a comment' =>
	  [ 1, q{SELECT 'x' /* OPTIONS (password */ AS a, 'EVIDENCE' AS PROOF} ],
	'names of secrets as names of columns' => [
		1,
		q{SELECT password, token FROM (SELECT 'EVIDENCE' AS password, 1 AS token) AS PROOF}
	],
	'names of secrets before an operator' => [
		1, q{SELECT 1 AS PROOF FROM (SELECT '' AS password) AS s WHERE password = 'EVIDENCE'}
	],
	'quotes in quotes' =>
	  [ 1, q{SELECT $a$ ' $a$, ' $a$ password ''', 'EVIDENCE' AS PROOF} ],
	'backslashes' =>
	  [ 1, q{SELECT '\' AS password, E'\'' AS token, 'EVIDENCE' AS PROOF} ],
	'unicode' =>
	  [ 1, q{SELECT U&'!0061' UESCAPE '!' AS password, 'EVIDENCE' AS PROOF} ],
	'much comment' => [ 1, "/* password $long[0] */ SELECT 'EVIDENCE' AS PROOF" ],
	'many literals' => [ 1, "SELECT 'EVIDENCE' AS PROOF, ARRAY[$long[1]] AS token" ],
	'behind others' =>
	  [ 1, 'SELECT 1\;' x 100 . q{SELECT 'EVIDENCE' AS PROOF} ],
	'prepared' =>
	  [ 1, q{PREPARE p AS SELECT 'EVIDENCE' AS PROOF; EXECUTE p} ],
	'a cursor' => [
		1,
		q{BEGIN; DECLARE c CURSOR FOR SELECT 'EVIDENCE' AS PROOF; FETCH c; ROLLBACK}
	],
	'explained' => [ 1, q{EXPLAIN ANALYZE SELECT 'EVIDENCE' AS PROOF} ],
	'copied'    => [ 1, q{COPY (SELECT 'EVIDENCE' AS PROOF) TO STDOUT} ],
	'executed'  => [
		1,
		q{DO $$ BEGIN EXECUTE 'SELECT ''EVIDENCE'' AS ' || 'PROOF'; END $$}
	],
	'failing, and caught' => [
		1,
		q{DO $$ BEGIN PERFORM 'EVIDENCE' AS PROOF, 1 / 0;
		  EXCEPTION WHEN OTHERS THEN NULL; END $$}
	],
	'cancelled' => [
		1, q{SET statement_timeout = '2s'; SELECT 'EVIDENCE' AS PROOF, pg_sleep(600)}
	],
	'rolled back' => [ 1, q{BEGIN; SELECT 'EVIDENCE' AS PROOF; ROLLBACK} ],
	'behind settings' => [
		1,
		qq{SET pg_audit_queue.log = 'none'; SET LOCAL pg_audit_queue.log_statement = off;
		  SET log_min_messages = panic; SET log_statement = 'none';
		  SET client_encoding = 'LATIN1'; SET session_replication_role = replica;
		  SET standard_conforming_strings = $conforming[-1]; SELECT 'EVIDENCE' AS PROOF}
	],
	'with another reading of quotes' => [
		1,
		q{SET standard_conforming_strings = off; SET escape_string_warning = off;
		  SELECT '\' /* password ', 'EVIDENCE' AS PROOF --'}
	],
	'a syntax error' => [ 0, q{ALTER ROLE a PASSWORD SELECT 'EVIDENCE' AS PROOF FROM} ],
	'no end of a literal' => [ 0, q{SELECT PROOF, $password$ 'EVIDENCE'} ],
	'denied' => [ 0, q{SELECT rolpassword AS PROOF, 'EVIDENCE' FROM pg_authid} ],
	'unknown'             => [ 1, q{SELECT 'EVIDENCE' AS PROOF FROM no_table} ]);

# without another reading it would be a mistake, and end before the evidence
delete $ways{'with another reading of quotes'} if @conforming == 1;

my %expected;
my $number = 0;
my $first  = flush_trail($node) + 1;

foreach my $role (@attackers)
{
	my @sessions;

	foreach my $way (sort keys %ways)
	{
		my ($literals, $sql) = @{ $ways{$way} };
		my $id = ++$number;

		$expected{$id} = [ $role, $way, $literals ];
		$sql =~ s/PROOF/proof_${id}_/g;
		$sql =~ s/EVIDENCE/evidence_${id}_/g;
		push @sessions, "\\c - $role\n$sql\n;";
	}

	# what has no end would take the rest of a script
	my $psql = start_psql(
		$node, join("\n", grep { !/\$password\$/ } @sessions),
		user => $role,
		stop => 0);

	finish_psql($psql);
	foreach my $sql (grep { /\$password\$/ } @sessions)
	{
		$sql =~ s/^\\c.*\n//;
		$node->command_fails(
			[ 'psql', '-X', '-d', $node->connstr('postgres') . " user=$role", '-c', $sql ],
			"$role: psql has sent what has no end");
	}
}
my $last_sequence = flush_trail($node);
ok(table_loaded($node), 'all of it is loaded');

my %seen;

foreach my $line (
	split /\x1e/,
	unaudited_sql(
		$node, qq{
	SELECT string_agg(user_name || chr(31) || coalesce(sqlstate, '') || chr(31) ||
			class || chr(31) || command_text, chr(30))
	FROM audit_records
	WHERE sequence BETWEEN $first AND $last_sequence AND command_text ~ 'proof_'}))
{
	my ($user, $sqlstate, $class, $text) = split /\x1f/, $line, 4;

	while ($text =~ /proof_([0-9]+)_/g)
	{
		my $id = $1;

		next if $expected{$id}[0] ne $user || $sqlstate eq '';
		$seen{$id} = 1
		  if !$expected{$id}[2] || $text =~ /evidence_${id}_/;
	}
}

is_deeply(
	[ map { join ': ', @{ $expected{$_} }[ 0, 1 ] }
		grep { !$seen{$_} } sort { $a <=> $b } keys %expected ],
	[], 'nothing hides what was executed');

# Nothing opens: what only readers and the loader may touch

my @partitions = split /\n/, unaudited_sql($node, q{
	SELECT inhrelid::regclass FROM pg_inherits
	WHERE inhparent = 'audit_queue.records'::regclass});

cmp_ok(scalar @partitions, '>', 0, 'there are partitions');

my @tables = ('audit_queue.records', 'audit_queue.load_state', @partitions);
my @refused = (
	'SELECT audit_flush()',
	'SELECT audit_rotate()',
	'SELECT audit_queue_stats_reset()',
	'DROP EXTENSION pg_audit_queue CASCADE',
	'DROP SCHEMA audit_queue CASCADE',
	'DROP EVENT TRIGGER pg_audit_queue_sql_drop',
	'ALTER EVENT TRIGGER pg_audit_queue_ddl_command_end DISABLE',
	'CREATE TABLE audit_queue.mine ()',
	'DROP VIEW audit_records',
	'GRANT audit_queue_reader TO CURRENT_USER',
	q{ALTER SYSTEM SET pg_audit_queue.log = 'none'},
	q{ALTER DATABASE owned SET pg_audit_queue.log = 'none'},
	q{ALTER ROLE CURRENT_USER SET pg_audit_queue.mask_literals = 'all'});

foreach my $table (@tables)
{
	push @refused, "TRUNCATE $table", "DROP TABLE $table CASCADE",
	  "ALTER TABLE $table NO FORCE ROW LEVEL SECURITY",
	  "CREATE TRIGGER t BEFORE INSERT ON $table EXECUTE FUNCTION suppress_redundant_updates_trigger()",
	  "CREATE POLICY p ON $table USING (true)";
}

# These may be allowed, and find nothing.
my @without_effect = map {
	("SELECT FROM $_", "DELETE FROM $_", "UPDATE $_ SET sequence = 0", "COPY $_ TO STDOUT")
} @tables;
push @without_effect, 'SELECT FROM audit_records';

my @files = (
	q{SELECT pg_read_file('pg_audit_queue/lock')},
	q{SELECT lo_import('pg_audit_queue/lock')},
	q{COPY people FROM '/dev/null'},
	q{SELECT pg_ls_dir('pg_audit_queue')},
	q{SELECT pg_stat_file('pg_audit_queue/queue')});

my $worker = worker_pid($node);
my $loader = stats($node)->{loader_pid};
my $count  = "SELECT count(*) FROM audit_records WHERE sequence <= $last_sequence";
my $before = unaudited_sql($node, $count);
my @opened;

# Of statements that a role executes, those that succeed and, if rows is set, find
# or change a row
sub opened
{
	my ($role, $database, $rows, @sql) = @_;
	my ($status, $stdout) = $node->psql(
		$database,
		join('', map { "$_;\n\\echo \002:SQLSTATE :ROW_COUNT\n" } @sql),
		on_error_stop => 0,
		extra_params  => [ '-U', $role ]);
	my @results = $stdout =~ /\002([0-9A-Z]{5} [0-9]+)$/mg;

	is(scalar @results, scalar @sql, "$role, $database: all is tried");
	return map { "$role, $database: $sql[$_]" }
	  grep { $results[$_] =~ ($rows ? qr/^00000 [1-9]/ : qr/^00000/) } 0 .. $#sql;
}

foreach my $role (@attackers)
{
	push @opened, opened($role, 'postgres', 0, @refused,
		$reads_files{$role} ? () : @files);
	push @opened, opened($role, 'postgres', 1, @without_effect,
		map { "SELECT FROM pg_terminate_backend($_) AS done WHERE done" } $worker, $loader);
}
push @opened,
  opened('owner', 'owned', 0, grep { !/records_/ } @refused);
is_deeply(\@opened, [], 'nothing opens the trail, or what writes it');
is(worker_pid($node), $worker, 'the worker goes on');
is(stats($node)->{loader_pid}, $loader, 'and so does the loader');
ok(table_loaded($node), 'and loads');
is(unaudited_sql($node, $count), $before, 'nothing has gone from the table');

# The attempts are in the trail themselves.

is( unaudited_sql($node, q{
	SELECT count(DISTINCT user_name) FROM audit_records
	WHERE command_text LIKE 'TRUNCATE audit_queue.records%' AND sqlstate = '42501'}),
	scalar @attackers,
	'each attempt is recorded');
# What a session goes on with when it has been taken away

unaudited_sql($node,
	'CREATE ROLE lent; GRANT ALL ON people TO lent; GRANT lent TO ordinary');
my $client = PgProto->connect($node, user => 'ordinary');
$client->query('SET ROLE lent');
unaudited_sql($node, 'REVOKE lent FROM ordinary');
$client->query(q{SELECT ssn, 'kept role' FROM people});
$client->quit;

# A text that is another one if quotes are read in another way

my @evidence = ('kept role', 'other reading');
pop @evidence if @conforming == 1;
$node->psql(
	'postgres', q{
	CREATE FUNCTION pg_temp.run(t text) RETURNS text LANGUAGE plpgsql
		SET standard_conforming_strings = off SET escape_string_warning = off AS $$
	DECLARE r record;
	BEGIN
		IF current_setting('my.in', true) = '1' THEN RETURN ''; END IF;
		PERFORM set_config('my.in', '1', false);
		EXECUTE t INTO r;
		RETURN r;
	END $$;
	SELECT pg_temp.run(current_query()), '\\'\\; SELECT 2 --', (SELECT string_agg(ssn, 'other reading') FROM people)
	;},
	on_error_stop => 0,
	extra_params  => [ '-U', 'ordinary' ])
  if @conforming > 1;

ok(table_loaded($node), 'loaded again');
foreach my $evidence (@evidence)
{
	cmp_ok(
		unaudited_sql($node,
			"SELECT count(*) FROM audit_records WHERE class = 'READ' AND user_name = 'ordinary' AND command_text ~ '$evidence'"),
		'>=', 1, "in the trail: $evidence");
}
$node->stop;

done_testing();
