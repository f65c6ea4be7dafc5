# Planning: what a user's operator can tell of a table while a statement is planned, and the
# records of statements that are never executed.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqPolicy;
use PaqTest;

use PgProto;
use Test::More;

use PostgreSQL::Test::Utils;

my $node = audited_node('main', settings => { log => 'none' }, conf => "autovacuum = off\n");

# The values of a column are in the table's statistics: 70 of them.  Whoever may read the table
# may have them looked at.
unaudited_sql($node, q{
	CREATE ROLE eve LOGIN; CREATE ROLE auditor;
	CREATE SCHEMA hr; GRANT USAGE ON SCHEMA hr TO eve;
	CREATE TABLE hr.salary (name text, amount int);
	INSERT INTO hr.salary SELECT 'name_' || i % 70, i % 70 FROM generate_series(1, 7000) AS i;
	CREATE VIEW hr.view AS SELECT * FROM hr.salary;
	ANALYZE hr.salary;
	GRANT SELECT ON hr.salary, hr.view TO eve; GRANT SELECT ON hr.salary TO auditor;
	CREATE SCHEMA e AUTHORIZATION eve;
	CREATE TABLE hr.stopped (at int) });
$node->safe_psql('postgres', q{
	SET ROLE eve;
	CREATE SEQUENCE e.leaked;
	CREATE TABLE e.mine (a int); CREATE TABLE e.ruled (a int);
	-- How a leak ends is what the second operand says.
	CREATE FUNCTION e.leak(int, int) RETURNS bool LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM nextval('e.leaked');
		IF $1 = 60 AND $2 = 1 THEN RAISE EXCEPTION 'enough'; END IF;
		IF $1 = 60 AND $2 = 2 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
		IF $1 = 60 AND $2 = 3 THEN PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(10); END IF;
		RETURN false;
	END $$;
	CREATE OPERATOR e.=== (function = e.leak, leftarg = int, rightarg = int, restrict = eqsel);
	CREATE FUNCTION e.difference(int, int) RETURNS float8 IMMUTABLE LANGUAGE plpgsql AS
		$$ BEGIN PERFORM setval('e.leaked', 100 + (SELECT last_value FROM e.leaked));
			RAISE EXCEPTION 'enough'; END $$;
	CREATE TYPE e.range AS RANGE (subtype = int, subtype_diff = e.difference);
	CREATE OPERATOR e.<=> (function = has_table_privilege, leftarg = text, rightarg = text, restrict = eqsel);
	CREATE FUNCTION e.inlined() RETURNS SETOF int LANGUAGE sql STABLE AS
		'SELECT amount FROM hr.salary WHERE amount OPERATOR(e.===) 1';
	CREATE FUNCTION e.readonly() RETURNS int LANGUAGE plpgsql STABLE AS $$
	BEGIN
		BEGIN
			EXECUTE 'INSERT INTO e.mine SELECT amount FROM hr.salary WHERE amount OPERATOR(e.===) 0';
		EXCEPTION WHEN OTHERS THEN
			RETURN 1;
		END;
		RETURN 0;
	END $$;
	CREATE FUNCTION e.planned_first() RETURNS bigint LANGUAGE sql AS $$
		INSERT INTO e.mine SELECT 1 / (random() * 0)::int;
		SELECT count(*) FROM hr.salary WHERE amount OPERATOR(e.===) 0 $$;
	CREATE RULE r AS ON INSERT TO e.ruled DO ALSO
		INSERT INTO e.mine SELECT 1 / length(substr(current_setting('a.b', true) || '', 1, 0)) WHERE 1 / 0 = 1;
});

# The attacks: a name, its statements, the outcome of the record of the table, and how many
# there are.  The statement of a rule has what the statement before it selects from, too.
my $where = 'FROM hr.salary WHERE amount OPERATOR(e.===)';
# A literal, since a call would be one of a user's function.
my $range = q{'[100,500)'::e.range};
my @attacks = (
	[ 'EXPLAIN', ["EXPLAIN SELECT amount $where 1"], 'P0001' ],
	[ 'SELECT', ["SELECT amount $where 1"], 'P0001' ],
	[ 'a handled error', ["DO \$\$ BEGIN PERFORM 1 $where 1; EXCEPTION WHEN OTHERS THEN NULL; END \$\$"], 'P0001' ],
	[ 'EXECUTE', [ "PREPARE p AS SELECT amount $where 1", 'EXECUTE p' ], 'P0001' ],
	[ 'EXPLAIN EXECUTE', [ "PREPARE p AS SELECT amount $where 1", 'EXPLAIN EXECUTE p' ], 'P0001' ],
	[ 'a subquery', ["SELECT 1 WHERE 1 IN (SELECT amount $where 1)"], 'P0001' ],
	[ 'a query in FROM', ["SELECT 1 FROM (SELECT amount $where 1 OFFSET 0) AS q"], 'P0001' ],
	[ 'a CTE', ["WITH q AS MATERIALIZED (SELECT amount $where 1) SELECT * FROM q"], 'P0001' ],
	[ 'a view', ['SELECT amount FROM hr.view WHERE amount OPERATOR(e.===) 1'], 'P0001' ],
	[ 'UNION', ["SELECT 1 UNION ALL SELECT amount $where 1"], 'P0001' ],
	[ 'INSERT', ["INSERT INTO e.mine SELECT amount $where 1"], 'P0001' ],
	[ 'DELETE', ["DELETE FROM e.mine USING hr.salary WHERE amount OPERATOR(e.===) 1"], 'P0001' ],
	[ 'DECLARE', [ 'BEGIN', "DECLARE c CURSOR FOR SELECT amount $where 1", 'ROLLBACK' ], 'P0001' ],
	[ 'COPY', ["COPY (SELECT amount $where 1) TO STDOUT"], 'P0001' ],
	[ 'CREATE TABLE AS', ["CREATE TABLE e.copy AS SELECT amount $where 1"], 'P0001' ],
	[ 'a function that is inlined', ['SELECT * FROM e.inlined()'], 'P0001' ],
	[ 'the end of the session', ["SELECT amount $where 2"], '57P01' ],
	[ 'a cancellation', ["SELECT amount $where 3"], '57014' ],
	[ "an operator with a function of PostgreSQL's", [q{SELECT 1 FROM hr.salary WHERE name OPERATOR(e.<=>) 'select'}], '42P01' ],
	[ 'a range type with a function of the user', ["SELECT * FROM hr.ranges WHERE x <@ $range"], 'P0001' ],
	[ 'the same in a comparison of rows', ["SELECT * FROM hr.ranges WHERE (x, 1) < ($range, 2)"], 'P0001' ],
	# planned, and not executed
	[ 'a rule of two statements', ["INSERT INTO e.ruled SELECT amount $where 0"], '22012' ],
	map({
			[ "a rule of two statements, with $_", [ "SET e.quiet = 'on'", "INSERT INTO e.ruled SELECT 1 FROM hr.ranges WHERE $_" ], '22012', 2 ]
		} "x <@ $range", "(x, 1) < ($range, 2)"),
	[ 'CREATE TABLE AS EXECUTE', [ "PREPARE p AS INSERT INTO e.mine SELECT amount $where 0", 'CREATE TABLE e.copy AS EXECUTE p' ], '42809' ],
	[ 'a function that must not change anything', ['SELECT e.readonly()'], '' ],
	[ 'a later statement of a function', ['SELECT e.planned_first()'], '22012' ]);

unaudited_sql($node, q{
	CREATE TABLE hr.ranges (x e.range);
	INSERT INTO hr.ranges SELECT e.range(i * 7, i * 7 + 3) FROM generate_series(1, 300) AS i });
unaudited_sql($node, q{
	CREATE OR REPLACE FUNCTION e.difference(int, int) RETURNS float8 IMMUTABLE LANGUAGE sql AS
		'SELECT ($1 - $2)::float8';
	ANALYZE hr.ranges; GRANT SELECT ON hr.ranges TO eve, auditor;
	CREATE OR REPLACE FUNCTION e.difference(int, int) RETURNS float8 IMMUTABLE LANGUAGE plpgsql AS
		$$ BEGIN PERFORM setval('e.leaked', 100 + (SELECT last_value FROM e.leaked));
			IF current_setting('e.quiet', true) = 'on' THEN RETURN $1 - $2; END IF;
			RAISE EXCEPTION 'enough'; END $$ });

# Rules that are none of a session here
my $no_rules = "record nowhere all all all all\n";

# Whoever has made the rules or settings: they want a record of what is done to the table.
my @ways = (
	[ 'rule', sub { install_policy($node, "record all all all all hr.salary,hr.ranges mandatory name=salary\n", log => 'none'); },
		sub { ($_[0]->{policy} // '') eq 'salary' } ],
	[ 'settings', sub { install_policy($node, $no_rules, log => 'read, write, error', log_statement => 'on') },
		sub { $_[0]->{class} =~ /READ|WRITE/ } ],
	[ 'grants', sub { install_policy($node, $no_rules, log => 'none'); reload_settings($node, role => 'auditor') },
		sub { ($_[0]->{auditType} // '') eq 'OBJECT' && ($_[0]->{objectName} // '') =~ /^hr\.(salary|ranges)$/ } ]);

sub records_since
{
	my ($sequence) = @_;

	flush_trail($node);
	return grep { ($_->{dbUserName} // '') eq 'eve' } records_after($node, $sequence);
}

for (@ways)
{
	my ($way, $set_up, $is_it) = @{$_};

	$set_up->();
	for (@attacks)
	{
		my ($name, $statements, $sqlstate, $number) = @{$_};
		my $before = flush_trail($node);
		my $leaked_before = unaudited_sql($node, 'SELECT last_value FROM e.leaked');
		my $client = PgProto->connect($node, user => 'eve');
		my $answer = join ' ', map { eval { $client->query($_) } // '' } @{$statements};

		# The attack has worked, or the test shows nothing.
		my $leaked = unaudited_sql($node, 'SELECT last_value FROM e.leaked') - $leaked_before;

		if ($name eq 'a later statement of a function' && $leaked == 0)
		{
			note "$way: $name is not planned before it is executed";
			$client->quit;
			next;
		}
		# grants do not tell of a function that is inlined
		next if $way eq 'grants' && $name =~ /inlined/;
		if ($name =~ /operator/)
		{
			like($answer, qr/E:42P01/, "$way: $name tells a value");
		}
		else
		{
			cmp_ok($leaked, '>', 50, "$way: $name tells values");
		}
		eval { $client->quit };
		my @records;
		poll_until(sub {
			@records = grep { $is_it->($_) && ($_->{exitCode} // '') eq $sqlstate } records_since($before);
			return @records > 0;
		}) if $name eq 'the end of the session';
		@records = grep { $is_it->($_) && ($_->{exitCode} // '') eq $sqlstate } records_since($before);
		cmp_ok(scalar @records, '>=', $number // 1, "$way: $name: there is a record")
		  or diag explain [ map { [ @{$_}{qw(class command exitCode policy commandText)} ] } records_since($before) ];
		is(scalar(grep { $_->{class} eq 'ERROR' } records_since($before)), 0, "$way: $name: and no second one");
	}
	reload_settings($node, role => '') if $way eq 'grants';
}

# What is executed has its own record, and none beside it.
install_policy($node, "record all all all read hr.salary name=salary\n", log => 'none');
$node->safe_psql('postgres', q{
	SET ROLE eve;
	CREATE MATERIALIZED VIEW e.m AS SELECT amount FROM hr.salary WHERE amount OPERATOR(e.===) 0 WITH NO DATA;
	CREATE VIEW e.sublink AS SELECT amount, (SELECT max(a) FROM e.mine) AS m FROM hr.salary;
	CREATE FUNCTION e.sql() RETURNS bigint LANGUAGE sql AS $$
		SELECT count(*) FROM hr.salary WHERE amount OPERATOR(e.===) 0;
		SELECT count(*) FROM hr.salary WHERE amount OPERATOR(e.===) 4 $$;
	CREATE FUNCTION e.loop() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE i int; r record;
	BEGIN
		FOR i IN 1..10 LOOP
			PERFORM 1 FROM hr.salary WHERE amount OPERATOR(e.===) i + 4;
		END LOOP;
		FOR r IN SELECT amount FROM hr.salary WHERE amount OPERATOR(e.===) 0 LOOP END LOOP;
		EXECUTE 'SELECT 1 FROM hr.salary WHERE amount OPERATOR(e.===) 0';
	END $$ });
for (
	[ 'SELECT', 1, "SELECT amount $where 0" ],
	[ 'EXPLAIN', 1, "EXPLAIN SELECT amount $where 0" ],
	[ 'EXECUTE', 10, "PREPARE p AS SELECT amount $where \$1", map { "EXECUTE p($_ + 4)" } 1 .. 10 ],
	[ 'statements of one message', 2, "SELECT amount $where 0; SELECT amount $where 4" ],
	[ 'a cursor', 1, 'BEGIN', "DECLARE c CURSOR FOR SELECT amount $where 0", 'FETCH c', 'COMMIT' ],
	[ 'COPY', 1, "COPY (SELECT amount $where 0) TO STDOUT" ],
	[ 'CREATE TABLE AS', 1, "CREATE TABLE e.copy AS SELECT amount $where 0" ],
	[ 'CREATE TABLE AS EXECUTE', 1, "PREPARE p AS SELECT amount $where 0", 'CREATE TABLE e.copy2 AS EXECUTE p' ],
	[ 'REFRESH', 1, 'REFRESH MATERIALIZED VIEW e.m' ],
	[ 'an SQL function', 2, 'SELECT e.sql()' ],
	[ 'a function in PL/pgSQL', 12, 'SELECT e.loop()' ],
	[ 'a sublink that is left out', 1, "SELECT count(*) $where 0 AND (true OR amount IN (SELECT a FROM e.mine))" ],
	[ 'a query that nobody uses', 1, "WITH unused AS (SELECT * FROM e.mine) SELECT count(*) $where 0" ],
	[ 'a column of a view that nobody uses', 1, "SELECT count(*) FROM e.sublink WHERE amount OPERATOR(e.===) 0" ],
	[ 'plans for any parameter, and for one', 9,
		"PREPARE p (int, int) AS SELECT amount $where \$1 AND (\$2 IS NULL OR amount IN (SELECT a FROM e.mine))",
		map { "EXECUTE p($_ + 4, NULL)" } 1 .. 9 ],
	[ 'a subtransaction', 2, 'BEGIN', "SELECT amount $where 0", 'SAVEPOINT s', "SELECT amount $where 4", 'ROLLBACK TO s', 'COMMIT' ])
{
	my ($name, $number, @statements) = @{$_};
	my $before = flush_trail($node);
	my $client = PgProto->connect($node, user => 'eve');

	unlike(join(' ', map { $client->query($_) } @statements), qr/E:/, "$name: no error");
	$client->quit;
	is(scalar(grep { ($_->{policy} // '') eq 'salary' } records_since($before)), $number,
		"$name: as many records as statements");
}

# Where nothing of the kind is wanted, nothing is recorded; and errors have a record of class
# ERROR where that is wanted, but not beside another.
my $before = flush_trail($node);
my $client = PgProto->connect($node, user => 'eve');

install_policy($node, "record all all all all hr.other\n", log => 'none');
$client->query("SELECT amount $where 1");
is(scalar(records_since($before)), 0, 'another rule: no record');
install_policy($node, $no_rules, log => 'error');
$before = flush_trail($node);
$client->query("SELECT amount $where 1");
is(join(' ', map { $_->{class} } records_since($before)), 'ERROR', 'errors are wanted: a record of the error');
install_policy($node, $no_rules, log => 'error, read');
$before = flush_trail($node);
$client->query("SELECT amount $where 1");
is(join(' ', map { $_->{class} } grep { $_->{commandText} =~ /salary/ } records_since($before)),
	'READ', 'reads, too: one of the statement, and no other');
install_policy($node, "record all all all read hr.salary outcome=ok\n", log => 'error');
$before = flush_trail($node);
$client->query("SELECT amount $where 1");
is(join(' ', map { $_->{class} } records_since($before)), 'ERROR', 'a rule lets it go: a record of the error');

# Planning that calls no code of users, where the settings alone decide: what is to be recorded of
# the statement is found out only when planning has failed.
install_policy($node, $no_rules, log => 'read, write, error');
my @joined = map { "hr.salary AS s$_" } 1 .. 14;
my $many = 'SET geqo = off; SET join_collapse_limit = 20; SET from_collapse_limit = 20; '
  . "SET statement_timeout = '1s'; SELECT 1 FROM " . join(' NATURAL JOIN ', @joined);
# The planner evaluates what is constant: a match that takes minutes, and can be cancelled.
my $long = q{SELECT 1 FROM hr.salary WHERE repeat('a', 10001) ~ '^(.*)(.*)(.*)\1\2\3$'};
for (
	[ 'a relation', 'READ 22012', 'SELECT amount FROM hr.salary WHERE amount = 1 / 0' ],
	[ 'a change', 'WRITE 22012', 'DELETE FROM e.mine WHERE a = 1 / 0' ],
	[ 'a view', 'READ 22012', 'SELECT amount FROM hr.view WHERE amount = 1 / 0' ],
	[ 'a query in FROM', 'READ 22012', 'SELECT 1 FROM (SELECT amount FROM hr.salary OFFSET 0) AS q WHERE amount = 1 / 0' ],
	[ 'a sublink', 'READ 22012', 'SELECT (SELECT max(amount) FROM hr.salary) WHERE 1 = 1 / 0' ],
	[ 'EXISTS', 'READ 22012', 'SELECT 1 WHERE EXISTS (SELECT FROM hr.salary WHERE amount = 3) AND 1 = 1 / 0' ],
	[ 'a CTE', 'READ 22012', 'WITH q AS MATERIALIZED (SELECT amount FROM hr.salary) SELECT 1 FROM q WHERE amount = 1 / 0' ],
	[ 'UNION', 'READ 22012', 'SELECT amount FROM hr.salary UNION ALL SELECT 1 / 0' ],
	[ 'as many relations as are noted late', 'READ 22012',
		'SELECT 1 FROM ' . join(', ', @joined[ 0 .. 7 ]) . ' WHERE s1.amount = 1 / 0' ],
	[ 'many relations', 'READ 22012', 'SELECT 1 FROM ' . join(', ', @joined) . ' WHERE s1.amount = 1 / 0' ],
	[ 'no relation', 'ERROR 22012', 'SELECT 1 / 0' ],
	[ 'an error that is handled', 'READ 22012',
		'DO $$ BEGIN PERFORM 1 FROM hr.salary WHERE amount = 1 / 0; EXCEPTION WHEN OTHERS THEN NULL; END $$' ],
	[ 'many relations that are cancelled', 'READ 57014', $many ],
	[ 'one that is cancelled', 'READ 57014', "SET statement_timeout = '1s'; $long" ])
{
	my ($name, $expected, $sql) = @{$_};
	my $before = flush_trail($node);
	my $client = PgProto->connect($node, user => 'eve');

	$client->query($sql);
	$client->quit;
	is(join(' ', map { "$_->{class} $_->{exitCode}" } records_since($before)), $expected,
		"planning fails: $name: one record");
}
{
	my $client = PgProto->connect($node, user => 'eve');

	# A session's first planning looks up what is the trail's, and is opened for that.
	$client->query('SELECT amount FROM hr.salary');
	my $before = flush_trail($node);
	$client->query(q{DO $$ BEGIN PERFORM 1 FROM hr.salary
		WHERE amount = length(repeat('x', 100000000)) / 0; END $$});
	my ($record) = grep { $_->{class} eq 'READ' } records_since($before);
	is($record->{exitCode}, '22012', 'planning fails within a function');
	cmp_ok($record->{durationUs}, '>', 1000, 'the record has the time since it began');

	my $pid = $client->pid;
	$before = flush_trail($node);
	# Nothing else in this statement takes a tenth of a second of the processor's time.
	my $ticks = sub { my @stat = split ' ', slurp_file("/proc/$pid/stat"); $stat[13] + $stat[14] };
	my $ticks_before = $ticks->();
	$client->start($long);
	poll_until(sub { $ticks->() >= $ticks_before + 10 }) or die 'it is not being planned';
	unaudited_sql($node, "SELECT pg_terminate_backend($pid)");
	ok(poll_until(sub { records_since($before) > 0 }), 'planning ends with the session');
	is(join(' ', map { "$_->{class} $_->{exitCode}" } records_since($before)), 'READ 57P01', 'one record');
}

# An error of another message is not the outcome of what was planned before.
install_policy($node, "record all all all all hr.salary name=salary\n", log => 'error');
$before = flush_trail($node);
$client->query('BEGIN');
$client->query("SELECT count(*) $where 0 AND (true OR amount IN (SELECT a FROM e.mine))");
$client->query('selct');
$client->query('ROLLBACK');
is(join(' ', map { "$_->{class} $_->{exitCode}" } records_since($before)), 'READ 00000 ERROR 42601',
	'an error of another message');
$before = flush_trail($node);
$client->parse('s', "INSERT INTO e.mine SELECT amount $where 0");
$client->bind('p', 's');
$client->parse('t', 'selct');
like($client->sync, qr/E:42601/, 'an error in a pipeline');
is(join(' ', map { "$_->{class} " . ($_->{exitCode} // 'unknown') } records_since($before)),
	'ERROR 42601 WRITE unknown', 'is not the outcome of what is bound and not executed');

# A denial that a function handles, while a rule lets the statement go
install_policy($node, "record all all all read hr.salary outcome=ok\n", log => 'error');
$node->safe_psql('postgres', q{
	SET ROLE eve;
	CREATE FUNCTION e.deny(int, int) RETURNS bool LANGUAGE plpgsql AS
		$$ BEGIN RAISE insufficient_privilege; END $$;
	CREATE OPERATOR e.=!= (function = e.deny, leftarg = int, rightarg = int, restrict = eqsel) });
$before = flush_trail($node);
$client->query('DO $$ BEGIN PERFORM 1 FROM hr.salary WHERE amount OPERATOR(e.=!=) 1; EXCEPTION WHEN OTHERS THEN NULL; END $$');
is(join(' ', map { "$_->{class} $_->{exitCode}" } records_since($before)), 'ERROR 42501', 'a denial that is handled');

# Whoever has plannings fail again and again waits when the queue is full, as for any record.
SKIP:
{
	skip 'this system does not tell the memory of a process', 1 if !-r "/proc/$$/status";
	install_policy($node, $no_rules, log => 'read');
	my $worker = worker_pid($node);
	my $pid = $client->pid;

	kill 'STOP', $worker;
	$client->start('DO $$ BEGIN FOR i IN 1..10000000 LOOP BEGIN
		EXECUTE \'SELECT 1 FROM hr.salary WHERE amount OPERATOR(e.=!=) 1\';
		EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$');
	ok(poll_until(sub {
		unaudited_sql($node, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid") eq 'Extension' }),
		'the session waits');
	my ($memory) = slurp_file("/proc/$pid/status") =~ /^VmRSS:\s*(\d+) kB/m;

	cmp_ok($memory, '<', 200 * 1024, 'and takes no more memory');
	kill 'CONT', $worker;
	unaudited_sql($node, "SELECT pg_cancel_backend($pid)");
	like($client->finish, qr/E:57014/, 'until it is cancelled');
}

# A plan that PostgreSQL shows has the planner's guesses.
install_policy($node, "record all all all all hr.salary name=salary\n", log => 'none');
# What could not wait for space when it was cancelled goes before the next statement.
$client->query('SELECT 1');
$before = flush_trail($node);
$client->query('SET debug_print_plan = on');
$client->parse('d', 'INSERT INTO e.mine SELECT amount FROM hr.salary WHERE amount = 3');
$client->bind('d', 'd');
$client->sync;
$client->query('RESET debug_print_plan');
is(join(' ', map { "$_->{class} " . ($_->{exitCode} // 'unknown') } records_since($before)),
	'WRITE unknown', 'a plan that is shown');

# Very many plans that are never executed
install_policy($node, "record all all all all hr.salary name=salary\n", log => 'none');
$before = flush_trail($node);
unlike($client->query('DO $$ BEGIN FOR i IN 1..300 LOOP PERFORM e.readonly(); END LOOP; END $$'), qr/E:/, 'very many plans');
is(scalar(grep { ($_->{policy} // '') eq 'salary' } records_since($before)), 300, 'each has its record');

# Ten times as many plans that wait for their execution as are kept
$node->safe_psql('postgres', q{
	SET ROLE eve;
	CREATE OPERATOR e.=~= (function = int4eq, leftarg = int, rightarg = int, restrict = eqsel) });
my $number = 20000;
my $status = '/proc/' . $client->pid . '/status';
my $memory = sub { -r $status ? (slurp_file($status) =~ /^VmRSS:\s*(\d+) kB/m)[0] : 0 };
my $memory_before = $memory->();

$before = flush_trail($node);
for my $i (1 .. $number)
{
	$client->parse('', "INSERT INTO e.mine SELECT amount FROM hr.salary WHERE amount OPERATOR(e.=~=) $i");
	$client->bind('', '');
}
unlike($client->sync, qr/E:/, 'plans that are bound and not executed');
cmp_ok($memory->() - $memory_before, '<', 32 * 1024, 'take a bounded memory');
flush_trail($node);
is(scalar(grep { /"sequence":(\d+)/ && $1 > $before && /"policy":"salary"/ } trail_lines($node)),
	$number, 'each has its record');
$client->quit;
check_trail($node);
done_testing();
