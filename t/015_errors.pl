#
# Failures: error messages in records, the class ERROR for statements that fail
# before they are executed, and exactly one record for each failure.  A failure
# takes no id away from statements that pgaudit numbers.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node('main',
	conf => "max_prepared_transactions = 0\nmax_stack_depth = 1MB\n");

unaudited_sql(
	$node, q{
	CREATE TABLE t (a int PRIMARY KEY, b int);
	INSERT INTO t SELECT i, i FROM generate_series(1, 10) i;
	CREATE TABLE d (a int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	CREATE ROLE plain LOGIN;
	CREATE FUNCTION writes(i int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO t VALUES (i); RETURN i; END $$;
	CREATE FUNCTION handled() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			BEGIN
				PERFORM no_such_column FROM t;
			EXCEPTION WHEN undefined_column THEN
			END;
			BEGIN
				EXECUTE 'SELEC';
			EXCEPTION WHEN syntax_error THEN
			END;
			BEGIN
				RAISE 'raised';
			EXCEPTION WHEN raise_exception THEN
			END;
			RETURN 1;
		END $$;
	CREATE FUNCTION other_error() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			UPDATE t SET b = b / (b - b);
			RETURN 1;
		EXCEPTION WHEN division_by_zero THEN
			RAISE division_by_zero USING MESSAGE = 'another division by zero';
		END $$;
	CREATE FUNCTION down(n int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			EXECUTE format('SELECT down(%s)', n + 1);
			RETURN 1;
		END $$;
	CREATE FUNCTION early(int) RETURNS bigint IMMUTABLE LANGUAGE sql AS
		'SELECT 1 / (count(*) - 1) FROM generate_series(1, $1)';});

my @records;

# Records of some SQL, whose errors are not the test's.
sub records_are
{
	my ($sql, $expected, $name, %options) = @_;
	my @got;

	@records = records_for($node, $sql, on_error_stop => 0, %options);
	@got =
	  columns('class command statementId exitCode errorMessage', @records);
	is_deeply(\@got, $expected, $name) or diag explain \@got;
	return;
}

# Before execution, in a session with ids before, between and after

records_are(
	q{SELECT 1;
	SELEC 1;
	SELECT * FROM nothing;
	SELECT no_such_column FROM t;
	SELECT no_such_function();
	SELECT 1 / 0;
	SELECT 'x'::int;
	EXECUTE nothing;
	FETCH 1 FROM nothing;
	SELECT 2;}, [
		'READ|SELECT|1|00000|',
		'ERROR|||42601|syntax error at or near "SELEC"',
		'ERROR|||42P01|relation "nothing" does not exist',
		'ERROR|||42703|column "no_such_column" does not exist',
		'ERROR|||42883|function no_such_function() does not exist',
		'ERROR|||22012|division by zero',
		'ERROR|||22P02|invalid input syntax for type integer: "x"',
		'MISC|EXECUTE||26000|prepared statement "nothing" does not exist',
		'MISC|FETCH||34000|cursor "nothing" does not exist',
		'READ|SELECT|2|00000|'
	],
	'what fails in parsing, analysis and planning');
is($records[1]{commandText}, 'SELEC 1;', 'the text of what failed');
ok(!grep({ !defined $_->{durationUs} || $_->{durationUs} < 0 } @records),
	'with its duration');
ok( !grep({ $_->{currentUser} ne $records[0]{currentUser} } @records),
	'and its user');

records_are(
	q{BEGIN;
	SELECT * FROM nothing;
	SELECT 1;
	INSERT INTO t VALUES (11);
	ROLLBACK;
	SELECT 3;}, [
		'MISC|BEGIN|1|00000|',
		'ERROR|||42P01|relation "nothing" does not exist',
		(
			'ERROR|||25P02|current transaction is aborted, commands ignored until end of transaction block'
		) x 2,
		'READ|SELECT|2|00000|'
	],
	'an aborted transaction');

records_are(
	q{BEGIN;
	SELECT nothing;
	ROLLBACK TO nowhere;
	ROLLBACK;}, [
		'MISC|BEGIN|1|00000|',
		'ERROR|||42703|column "nothing" does not exist',
		'ERROR|||3B001|savepoint "nowhere" does not exist'
	],
	'ROLLBACK TO in an aborted transaction');
records_are(
	'SELECT early(1);', [
		'FUNCTION|EXECUTE|||',
		'READ|SELECT|1|22012|division by zero',
		'ERROR|||22012|division by zero'
	],
	'a function that fails while it is evaluated by the planner');

# In execution

records_are(
	q{SELECT a / (a - 3) FROM t ORDER BY a;
	INSERT INTO t VALUES (1);
	CREATE TABLE t (a int);
	DROP TABLE nothing;
	SET datestyle = 'nonsense';
	COPY t FROM '/nowhere';
	DO $$ BEGIN RAISE 'in a block' USING ERRCODE = 'AB123'; END $$;
	SELECT other_error();
	SELECT 4;}, [
		'READ|SELECT|1|22012|division by zero',
		'WRITE|INSERT|2|23505|duplicate key value violates unique constraint "t_pkey"',
		'DDL|CREATE TABLE||42P07|relation "t" already exists',
		'DDL|DROP TABLE||42P01|table "nothing" does not exist',
		'MISC|SET||22023|invalid value for parameter "DateStyle": "nonsense"',
		'WRITE|COPY|3|58P01|could not open file "/nowhere" for reading: No such file or directory',
		'FUNCTION|DO|4|AB123|in a block',
		'WRITE|UPDATE|5|22012|division by zero',
		'READ|SELECT|5|22012|another division by zero',
		'FUNCTION|EXECUTE|5|22012|another division by zero',
		'READ|SELECT|6|00000|'
	],
	'what fails in execution, in its own class');
records_are(
	q{SET ROLE plain;
	SELECT * FROM t;
	INSERT INTO t VALUES (12);
	TRUNCATE t;
	DROP TABLE t;
	COPY t TO STDOUT;
	RESET ROLE;}, [
		'MISC|SET|1|00000|',
		'READ|SELECT||42501|permission denied for table t',
		'WRITE|INSERT||42501|permission denied for table t',
		'WRITE|TRUNCATE TABLE||42501|permission denied for table t',
		'DDL|DROP TABLE||42501|must be owner of table t',
		'READ|COPY||42501|permission denied for table t',
		'MISC|RESET|2|00000|'
	],
	'what is denied, in its own class');

records_are(
	q{SELECT a / (a - 3) FROM t ORDER BY a;
	SELECT nothing;
	SELECT nobody;
	INSERT INTO t VALUES (1);
	SELECT 'x'::int;}, [
		'READ|SELECT|1|22012|division by zero',
		'ERROR|||42703|column "nothing" does not exist',
		'ERROR|||42703|column "nobody" does not exist',
		'WRITE|INSERT|2|23505|duplicate key value violates unique constraint "t_pkey"',
		'ERROR|||22P02|invalid input syntax for type integer: "x"'
	],
	'failures in and before execution, one after the other');

# What cannot be shown is no error of the statement's: parameters of a type that
# has no text, by themselves and in a row, besides such as have.

unaudited_sql(
	$node, q{
	CREATE TYPE pair AS (a int, b text);
	CREATE FUNCTION look() RETURNS event_trigger LANGUAGE plpgsql AS $$
		DECLARE
			r record; x bool; p pair := (1, 'two'); i int[] := '{3,4}';
		BEGIN
			FOR r IN SELECT * FROM pg_event_trigger_ddl_commands() LOOP
				FOR x IN SELECT r.command IS NULL LOOP END LOOP;
				FOR x IN SELECT r IS NULL LOOP END LOOP;
				FOR x IN SELECT p IS NULL, i IS NULL LOOP END LOOP;
			END LOOP;
		END $$;
	CREATE EVENT TRIGGER look ON ddl_command_end EXECUTE FUNCTION look();});
@records = records_for(
	$node,
	'CREATE TABLE shown (a int); SELECT 1;',
	settings => { log => 'read, ddl', log_parameter => 'on' });
is_deeply(
	[
		map {
			# PL/pgSQL passes all variables, and null for those not used
			[
				$_->{command}, $_->{exitCode},
				[ grep { defined } @{ $_->{paramList} } ], !!$_->{incomplete}
			]
		} grep { $_->{commandText} !~ /FROM pg_event_trigger/ } @records
	],
	[
		[ 'SELECT', '00000', ['<long param suppressed>'], !!1 ],
		[ 'SELECT', '00000', ['<long param suppressed>'], !!1 ],
		[ 'SELECT', '00000', [ '(1,two)', '{3,4}' ], !!0 ],
		[ 'CREATE TABLE', '00000', [], !!0 ],
		[ 'SELECT', '00000', [], !!0 ]
	],
	'parameters that have no text') or diag explain \@records;
unaudited_sql($node, 'DROP EVENT TRIGGER look');

# An object that is gone when its record is made: another event trigger has dropped it
# before ours looks, or another session while the statement waited for its lock.  Rules
# count that name it, and no others.

unaudited_sql(
	$node, q{
	CREATE FUNCTION drops() RETURNS event_trigger LANGUAGE plpgsql AS
		'BEGIN DROP TABLE gone; END';
	CREATE EVENT TRIGGER a_drops ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
		EXECUTE FUNCTION drops();
	ALTER EVENT TRIGGER a_drops DISABLE;});

foreach my $object ('', 'gone', 'other')
{
	my %settings = (log => $object eq '' ? 'ddl,write' : 'none');
	my $in_effect = 'SELECT coalesce(bool_and(in_effect), true) FROM audit_policy_rules';
	my $what = $object eq '' ? 'by settings' : "by a rule of $object";
	my $is_meant = $object ne 'other';

	if ($object ne '')
	{
		unlink $node->data_dir . '/audit_policy.conf';
		append_to_file($node->data_dir . '/audit_policy.conf',
			'record all ' . getpwuid($>) . " all ddl,write public.$object\n");
	}
	$node->reload;
	ok(poll_until(sub { unaudited_sql($node, $in_effect) eq 't' }), "$what: rules");

	unaudited_sql($node, 'ALTER EVENT TRIGGER a_drops ENABLE');
	is_deeply(
		[
			columns(
				'class command objectName exitCode',
				records_for($node, 'CREATE TABLE gone (a int)', settings => \%settings))
		],
		[
			$is_meant ? 'DDL|DROP TABLE|public.gone|00000' : (),
			'DDL|CREATE TABLE||00000'
		],
		"$what: dropped within the statement");
	unaudited_sql($node, 'ALTER EVENT TRIGGER a_drops DISABLE');

	foreach my $sql ('ALTER TABLE gone ADD b int', 'TRUNCATE gone', 'DROP TABLE gone')
	{
		unaudited_sql($node, 'CREATE TABLE gone (a int)');
		my $dropper = $node->background_psql('postgres', extra_params => [ '-U', 'paq_quiet' ]);
		$dropper->query_safe('BEGIN; DROP TABLE gone');
		my @records = records_for(
			$node,
			sub {
				my $waiter =
				  start_psql($node, $sql, name => 'waiter', settings => \%settings);
				poll_until(
					sub {
						unaudited_sql($node,
							"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiter'"
							  . " AND wait_event_type = 'Lock'");
					}) or die 'nobody waits';
				$dropper->query_safe('COMMIT');
				finish_psql($waiter);
			});
		$dropper->quit;
		is_deeply(
			[ columns('class command exitCode errorMessage', @records) ],
			!$is_meant ? [] : [
				($sql eq 'TRUNCATE gone' ? 'WRITE|TRUNCATE TABLE' : 'DDL|' . join ' ', (split / /, $sql)[ 0, 1 ])
				. '|42P01|'
				  . ($sql =~ /^DROP/ ? 'table' : 'relation')
				  . ' "gone" does not exist'
			],
			"$what: dropped before $sql had its lock");
	}
}
unlink $node->data_dir . '/audit_policy.conf' or die "unlink: $!";
$node->reload;
unaudited_sql($node, 'DROP EVENT TRIGGER a_drops');

# What statements name that store a setting is looked up before they are executed.

foreach (
	[ 'ALTER ROLE', 'role "gone" does not exist', 'ROLE' ],
	[ 'ALTER DATABASE', 'database "gone" does not exist', 'DDL' ])
{
	my ($alter, $message, $class) = @$_;

	is_deeply(
		[
			columns(
				'class command errorMessage',
				records_for($node, "$alter gone SET pg_audit_queue.log = 'all'",
					settings => { log => 'ddl, role, error' }))
		],
		["$class|$alter|$message"],
		"$alter of what is not there");
}

# Handled errors

records_are(
	'SELECT handled();', [
		'READ|SELECT|1|00000|', 'FUNCTION|EXECUTE|1|00000|',
	],
	'errors handled in a function, none of which executed anything');
records_are(
	q{BEGIN;
	INSERT INTO t VALUES (20);
	SAVEPOINT s;
	INSERT INTO t VALUES (20);
	ROLLBACK TO s;
	COMMIT;}, [
		'MISC|BEGIN|1|00000|',
		'WRITE|INSERT|2|00000|',
		'MISC|SAVEPOINT|3|00000|',
		'WRITE|INSERT|4|23505|duplicate key value violates unique constraint "t_pkey"',
		'MISC|COMMIT|5|00000|'
	],
	'a failure up to a savepoint');

# Deep recursion: the error passes through many hooks

@records = records_for($node, 'SELECT down(1);');
cmp_ok(scalar @records, '>', 50, 'a recursion that is too deep');
is( scalar grep({
			$_->{exitCode} ne '54001'
			  || $_->{errorMessage} ne 'stack depth limit exceeded'
		} @records),
	0,
	'all of its records have the error');

# The commit fails

records_are(
	q{INSERT INTO d VALUES (1), (1);
	BEGIN;
	INSERT INTO d VALUES (2), (2);
	COMMIT;
	BEGIN;
	INSERT INTO d VALUES (3);
	PREPARE TRANSACTION 'x';
	SELECT 5;}, [
		'WRITE|INSERT|1|23505|duplicate key value violates unique constraint "d_a_key"',
		'MISC|BEGIN|2|00000|',
		'WRITE|INSERT|3|00000|',
		'MISC|COMMIT|4|23505|duplicate key value violates unique constraint "d_a_key"',
		'MISC|BEGIN|5|00000|',
		'WRITE|INSERT|6|00000|',
		'MISC|PREPARE TRANSACTION|7|55000|prepared transactions are disabled',
		'READ|SELECT|8|00000|'
	],
	'a deferred constraint; PREPARE TRANSACTION that is refused');

# Two serializable transactions that must not both commit: the second one
# learns of it at the very end, after all that hooks can see.
foreach my $mode ('queued', 'commit')
{
	my $expected = 'MISC|COMMIT|40001';

	# published before the wait, as if the commit had worked
	$expected = 'MISC|COMMIT|00000 ERROR||40001' if $mode eq 'commit';
	unaudited_sql($node, 'TRUNCATE d');
	@records = records_for(
		$node,
		sub {
			my @sessions = map { PgProto->connect($node) } 1 .. 2;

			foreach my $session (@sessions)
			{
				$session->query("SET pg_audit_queue.mode = $mode");
				$session->query('BEGIN ISOLATION LEVEL SERIALIZABLE');
				$session->query('SELECT count(*) FROM d');
			}
			$_->query('INSERT INTO d VALUES (' . $_->pid . ')')
			  foreach @sessions;
			$_->query('COMMIT') foreach @sessions;
			$_->quit foreach @sessions;
		});
	my @end = columns('class command exitCode',
		grep { ($_->{commandText} // '') =~ /^COMMIT/ } @records);

	is("@end", "MISC|COMMIT|00000 $expected",
		"a serialization failure at the commit, mode $mode");
}

# Extended protocol

my $session = PgProto->connect($node);

sub protocol_records_are
{
	my ($sub, $expected, $name) = @_;
	my @got;

	@records = records_for($node, $sub);
	@got =
	  columns('class command exitCode errorMessage commandText', @records);
	is_deeply(\@got, $expected, $name) or diag explain \@got;
	return;
}

protocol_records_are(
	sub {
		$session->parse('', 'SELECT nothing');
		$session->sync;
		$session->parse('', 'SELECT $1::int');
		$session->bind('', '', 'x');
		$session->sync;
		$session->bind('', 'no such statement');
		$session->sync;
	}, [
		'ERROR||42703|column "nothing" does not exist|SELECT nothing',
		'ERROR||22P02|invalid input syntax for type integer: "x"|SELECT $1::int',
		'ERROR||26000|prepared statement "no such statement" does not exist|'
	],
	'Parse and Bind that fail');
protocol_records_are(
	sub {
		$session->parse('', 'INSERT INTO t VALUES (30)');
		$session->bind('', '');
		$session->execute('');
		$session->parse('', 'SELECT nothing');
		$session->sync;
	}, [
		'WRITE|INSERT|00000||INSERT INTO t VALUES (30)',
		'ERROR||42703|column "nothing" does not exist|SELECT nothing'
	],
	'a failure in a pipeline is that of the statement that fails');
protocol_records_are(
	sub {
		$session->parse('', 'SELECT writes(32)')->bind('', '')->execute('');
		$session->parse('', 'SELECT nothing');
		$session->sync;
	}, [
		'WRITE|INSERT|00000||INSERT INTO t VALUES (i)',
		'ERROR||42703|column "nothing" does not exist|SELECT nothing',
		'READ|SELECT|00000||SELECT writes(32)',
		'FUNCTION|EXECUTE|00000||SELECT writes(32)'
	],
	'also if the one before is a SELECT that has changed something');
protocol_records_are(
	sub {
		$session->parse('', 'SELECT b FROM t')->bind_formats('', '', 2);
		$session->execute('')->sync;
	}, [
		'READ|SELECT|08P01|bind message has 2 result formats but query has 1 columns|SELECT b FROM t'
	],
	'Bind that fails when the statement has begun');

protocol_records_are(
	sub {
		my $other = PgProto->connect($node);

		$other->parse('', 'INSERT INTO t VALUES (31)');
		$other->bind('', '');
		$other->execute('');
		$other->flush('C');
		$other->quit;
		poll_until(
			sub {
				unaudited_sql($node,
					'SELECT count(*) FROM pg_stat_activity WHERE pid = '
					  . $other->pid) eq '0';
			}) or die 'the session does not end';
	},
	['WRITE|INSERT|00000||INSERT INTO t VALUES (31)'],
	'a pipeline that the client leaves without an end');

# Which settings matter

records_are(
	'SELEC; SELECT 1', ['READ|SELECT|1|00000|'],
	'class ERROR is left out when it is not audited',
	settings => { log => 'all, -error, -connect' });
records_are(
	'SELEC',
	['ERROR|||42601|syntax error at or near "SELEC"'],
	'class ERROR alone',
	settings => { log => 'error' });
records_are(
	q{INSERT INTO t VALUES (1); SELECT a / (a - 3) FROM t;},
	[], 'which is not about what fails in execution',
	settings => { log => 'error' });
records_for($node, 'SELEC', settings => { log_statement => 'off' });
@records = records_for($node, 'SELEC', settings => { log_statement => 'off' });
is_deeply(
	[ columns('class commandText commandTextOmitted', @records) ],
	['ERROR||not logged'],
	'log_statement = off');

# Messages that do not reach the server's log

foreach my $level ('panic', 'log')
{
	records_are(
		qq{SET log_min_messages = '$level';
		BEGIN;
		DECLARE c CURSOR FOR SELECT a FROM t;
		INSERT INTO t VALUES (1);
		ROLLBACK;
		INSERT INTO d VALUES (7), (7);
		BEGIN;
		DECLARE c CURSOR FOR SELECT a FROM t;
		ROLLBACK;}, [
			'MISC|SET|1|00000|',
			'MISC|BEGIN|2|00000|',
			'READ|DECLARE CURSOR|3|00000|',
			'WRITE|INSERT|4|23505|duplicate key value violates unique constraint "t_pkey"',
			'READ|SELECT|3|23505|duplicate key value violates unique constraint "t_pkey"',
			'WRITE|INSERT|5|40000|',
			'MISC|BEGIN|6|00000|',
			'READ|DECLARE CURSOR|7|00000|',
			'MISC|ROLLBACK|8|00000|',
			'READ|SELECT|7|00000|'
		],
		"log_min_messages = $level hides no outcome");
}

# Looking for an error leaves nothing behind: the session can be cancelled.
records_are(
	q{SET log_min_messages = 'fatal';
	BEGIN;
	SELECT 1;
	ROLLBACK;
	SET statement_timeout = '1s';
	SELECT pg_sleep(600);}, [
		'MISC|SET|1|00000|',
		'MISC|BEGIN|2|00000|',
		'READ|SELECT|3|00000|',
		'MISC|ROLLBACK|4|00000|',
		'MISC|SET|5|00000|',
		'READ|SELECT|6|57014|canceling statement due to statement timeout'
	],
	'a timeout after a ROLLBACK without errors in the log');

# A long message; the server's encoding is UTF-8
@records = records_for($node,
	qq{DO \$\$ BEGIN RAISE '%', repeat(U&'\\00e4', 600000); END \$\$});
is($records[0]{exitCode}, 'P0001', 'a long message: the record is there');
ok($records[0]{errorMessage} =~ /^\x{e4}{10000,}\z/,
	'with a message in whole characters');
cmp_ok(length $records[0]{errorMessage}, '<', 600_000, 'which was cut');
ok($records[0]{cut}, 'and says so');

# Where a statement is in a text of several
@records = records_for(
	$node,
	sub {
		$node->psql('postgres', 'SELECT 11; SELECT 22 ;SELECT 33', on_error_stop => 0);
		my ($out, $err);
		IPC::Run::run(
			[
				'psql', '-X', '-d', $node->connstr('postgres'), '-c',
				'SELECT 11; SELECT 22 ;SELECT 33'
			],
			'>', \$out, '2>', \$err);
	});
is_deeply(
	[
		map {
			[ @$_{qw(commandText statementLocation statementLength)} ]
		} @records
	],
	[
		(map { [ shown_text($node, $_), undef, undef ] } 'SELECT 11;', 'SELECT 22 ;'),
		[ 'SELECT 33', undef, undef ],
		[ 'SELECT 11', 0, 9 ],
		[ 'SELECT 22', 11, 9 ],
		[ 'SELECT 33', 22, undef ]
	],
	'text, location and length of statements');

done_testing();
