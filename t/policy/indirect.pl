# Ways to a table that lead through something else, by which it was once read or changed
# without a record of its rule.
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

unaudited_sql($node, q{
	CREATE ROLE eve LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE gone LOGIN;
	CREATE SCHEMA hr; GRANT USAGE ON SCHEMA hr TO PUBLIC;
	CREATE SCHEMA e AUTHORIZATION eve; GRANT USAGE ON SCHEMA e TO PUBLIC;
	CREATE SCHEMA b AUTHORIZATION bob; GRANT USAGE ON SCHEMA b TO PUBLIC;
	CREATE TABLE hr.salary (id int PRIMARY KEY, amount int);
	INSERT INTO hr.salary SELECT i, i FROM generate_series(1, 100) AS i;
	GRANT SELECT, REFERENCES ON hr.salary TO eve; GRANT SELECT ON hr.salary TO gone });
$node->safe_psql('postgres', q{
	SET ROLE eve;
	CREATE FUNCTION e.same(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';
	CREATE TABLE e.indexed (id int, amount int) PARTITION BY LIST (id);
	CREATE INDEX indexed_idx ON e.indexed (e.same(amount));
	CREATE TABLE e.parted (id int, amount int) PARTITION BY LIST (e.same(amount));
	CREATE TABLE e.detached (id int, amount int) PARTITION BY LIST (id); GRANT SELECT ON e.detached TO bob;
	CREATE TABLE e.ref (id int);
	INSERT INTO e.ref VALUES (1);
	CREATE TABLE e.big AS SELECT i FROM generate_series(1, 10) AS i;
	-- What is to be called in a parallel worker fails elsewhere.
	CREATE FUNCTION e.check() RETURNS void PARALLEL SAFE LANGUAGE plpgsql AS $$
		BEGIN
			IF (SELECT leader_pid IS NULL FROM pg_stat_activity WHERE pid = pg_backend_pid()) THEN
				RAISE EXCEPTION 'not in a parallel worker';
			END IF;
		END $$;
	CREATE FUNCTION e.reads(text) RETURNS int PARALLEL SAFE LANGUAGE plpgsql AS $$
		DECLARE x text; BEGIN PERFORM e.check(); x := pg_read_file($1); RETURN length(x); END $$;
	CREATE FUNCTION e.called(int) RETURNS int PARALLEL SAFE LANGUAGE plpgsql AS
		'BEGIN PERFORM e.check(); RETURN $1; END';
	CREATE FUNCTION e.calls(int) RETURNS int PARALLEL SAFE LANGUAGE plpgsql AS $$
		DECLARE x int; BEGIN x := e.called($1); RETURN x; END $$;
	CREATE FUNCTION e.deep(n int, t text DEFAULT 'salary') RETURNS bigint LANGUAGE plpgsql AS $$
		DECLARE r bigint;
		BEGIN
			IF n > 0 THEN RETURN e.deep(n - 1, t); END IF;
			EXECUTE 'SELECT sum(amount) FROM hr.' || t INTO r;
			RETURN r;
		END $$ });
unaudited_sql($node, q{
	CREATE TABLE hr.public_t (amount int); GRANT SELECT ON hr.public_t TO eve;
	CREATE TABLE hr.part (id int, amount int); INSERT INTO hr.part SELECT 1, i FROM generate_series(10, 20) AS i;
	CREATE TABLE hr.rest (id int, amount int); INSERT INTO hr.rest SELECT 1, i FROM generate_series(10, 20) AS i;
	CREATE TABLE hr.left (id int, amount int); INSERT INTO hr.left SELECT 1, i FROM generate_series(10, 20) AS i;
	ALTER TABLE hr.left OWNER TO eve;
	ALTER TABLE e.detached ATTACH PARTITION hr.left FOR VALUES IN (1);
	ALTER TABLE e.indexed ATTACH PARTITION hr.part FOR VALUES IN (1);
	ALTER TABLE e.parted ATTACH PARTITION hr.rest DEFAULT;
	GRANT EXECUTE ON FUNCTION pg_read_file(text) TO eve; GRANT pg_read_server_files TO eve });

sub records_since
{
	my ($sequence, $user) = @_;

	flush_trail($node);
	return grep { ($_->{dbUserName} // '') eq $user } records_after($node, $sequence);
}

# Expect records of that rule of what a client does.
sub recorded
{
	my ($name, $rule, @sql) = @_;
	my $client = PgProto->connect($node, user => 'eve');
	my $before = flush_trail($node);

	$client->query($_) for @sql[ 0 .. $#sql - 1 ];
	unlike($client->query($sql[-1]), qr/E:/, "$name: no error");
	$client->quit;
	cmp_ok(scalar(grep { ($_->{policy} // '') eq $rule } records_since($before, 'eve')), '>=', 1,
		"$name: a record");
	return;
}

install_policy($node, <<'EOF', log => 'none');
record all all all all hr.salary mandatory name=salary
record all all all all hr.part,hr.rest,hr.left mandatory name=part
record all all all function e.called mandatory name=called
EOF
recorded('REINDEX of the index of a partitioned table', 'part', 'REINDEX INDEX e.indexed_idx');
recorded('a new partition beside the default one', 'part', 'CREATE TABLE e.p5 PARTITION OF e.parted FOR VALUES IN (5)');
recorded('a foreign key', 'salary', 'ALTER TABLE e.ref ADD CONSTRAINT fk FOREIGN KEY (id) REFERENCES hr.salary NOT VALID');
unaudited_sql($node, 'REVOKE SELECT ON hr.salary FROM eve');
recorded('VALIDATE CONSTRAINT of a foreign key', 'salary', 'ALTER TABLE e.ref VALIDATE CONSTRAINT fk');
unaudited_sql($node, 'GRANT SELECT ON hr.salary TO eve');

# A partition that is being detached is read by whoever has an older snapshot, whatever he has
# read before with another one.
{
	my ($eve, $bob, $other) = map { PgProto->connect($node, user => $_) } qw(eve bob bob);
	my $before = flush_trail($node);

	$bob->query($_) for 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'LOCK TABLE e.detached IN ACCESS SHARE MODE';
	$bob->query('SELECT pg_export_snapshot()');
	my ($snapshot) = grep { !/^\./ } slurp_dir($node->data_dir . '/pg_snapshots');
	$eve->start('ALTER TABLE e.detached DETACH PARTITION hr.left CONCURRENTLY');
	ok(poll_until(sub { unaudited_sql($node, 'SELECT count(*) FROM pg_inherits WHERE inhdetachpending') eq '1' }),
		'a partition is being detached');
	like($other->query('SELECT id FROM e.detached'), qr/C:SELECT_0\b/, 'it is no part of the table now');
	$other->query($_) for 'BEGIN ISOLATION LEVEL REPEATABLE READ', "SET TRANSACTION SNAPSHOT '$snapshot'";
	like($other->query('SELECT amount FROM e.detached'), qr/C:SELECT_11\b/, 'it is read by an older snapshot');
	$_->query('COMMIT') for $bob, $other;
	$eve->finish;
	$_->quit for $eve, $bob, $other;
	is(scalar(grep { ($_->{policy} // '') eq 'part' && ($_->{commandText} // '') =~ /amount/ }
		records_since($before, 'bob')), 1, 'which has a record');
}

# What functions execute in a parallel worker
my $parallel = 'SET ' . force_parallel($node) . ' = on';

recorded('a function that a function calls in a parallel worker', 'called',
	$parallel, 'SELECT e.calls(1)');
install_policy($node, "record nowhere all all all all\n", log => 'none');
for my $file ('PG_VERSION', 'postgresql.conf')
{
	my $client = PgProto->connect($node, user => 'eve');
	my $before = flush_trail($node);

	$client->query($parallel);
	unlike($client->query("SELECT e.reads('$file')"), qr/E:/, "$file is read in a parallel worker");
	$client->quit;
	is(scalar(grep { ($_->{objectName} // '') =~ /pg_read_file/ } records_since($before, 'eve')), 1,
		'and that is recorded, whatever the settings are');
}

# A regular expression that takes much stack: where there is too little of it nobody knows what
# it matches, and that is not remembered.
install_policy($node, qq{record all all all all "/^hr\\.(?!public_)" mandatory name=salary\n}, log => 'none');
{
	my $client = PgProto->connect($node, user => 'eve');
	my $deepest = 0;
	my ($executed, $wrong, $later, $unknown, $remembered) = (0, 0, 0, 0, 0);

	for (my $step = 1024; $step > 0; $step = int($step / 2))
	{
		$deepest += $step if $client->query('SELECT e.deep(' . ($deepest + $step) . ')') !~ /E:/;
	}
	$client->quit;
	for my $depth ($deepest - 14 .. $deepest)
	{
		my $session = PgProto->connect($node, user => 'eve');
		my $before = flush_trail($node);
		my $answer = $session->query("SELECT e.deep($depth)");

		$executed++ if $answer !~ /E:/;
		$wrong++
		  if $answer !~ /E:/ && !grep { ($_->{policy} // '') eq 'salary' } records_since($before, 'eve');
		$before = flush_trail($node);
		$session->query('SELECT max(amount) FROM hr.salary');
		$later++ if !grep { ($_->{policy} // '') eq 'salary' } records_since($before, 'eve');

		# a table that the expression does not match
		$before = flush_trail($node);
		$session->query("SELECT e.deep($depth, 'public_t')");
		$unknown++ if grep { ($_->{policy} // '') eq 'salary' } records_since($before, 'eve');
		$before = flush_trail($node);
		$session->query('SELECT max(amount) FROM hr.public_t');
		$remembered++ if grep { ($_->{policy} // '') eq 'salary' } records_since($before, 'eve');
		$session->quit;
	}
	cmp_ok($executed, '>', 0, 'statements near the end of the stack are executed');
	is($wrong, 0, "each statement below $deepest calls has its record");
	is($later, 0, 'so has each statement after it');
	cmp_ok($unknown, '>', 0, 'so have some about a table that the expression does not match');
	is($remembered, 0, 'but no statement after them');
}

# A role that is dropped while its session lives
install_policy($node, "record all gone all all hr.salary mandatory name=salary\n", log => 'none');
{
	my $client = PgProto->connect($node, user => 'gone');
	my $before;

	$client->query('SELECT 1');
	unaudited_sql($node, 'REVOKE ALL ON hr.salary FROM gone; DROP ROLE gone; GRANT SELECT ON hr.salary TO PUBLIC');
	$before = flush_trail($node);
	unlike($client->query('SELECT amount FROM hr.salary'), qr/E:/, 'a role that is dropped goes on');
	flush_trail($node);
	cmp_ok(scalar(grep { ($_->{policy} // '') eq 'salary' } records_after($node, $before)),
		'>=', 1, 'so does its rule');
	$client->quit;
}

# While PostgreSQL executes its query for a foreign key, a user's operator is none of that.
unaudited_sql($node, 'CREATE TABLE b.pk (id int PRIMARY KEY); INSERT INTO b.pk SELECT generate_series(1, 50); ALTER TABLE b.pk OWNER TO bob; GRANT REFERENCES ON b.pk TO eve');
$node->safe_psql('postgres', q{
	SET ROLE eve;
	CREATE TABLE e.secret AS SELECT 'treasure'::text AS t;
	CREATE TABLE e.ref2 (x int REFERENCES b.pk ON DELETE CASCADE);
	CREATE TABLE e.log (x int);
	INSERT INTO e.ref2 SELECT 1 + i % 5 FROM generate_series(1, 500) AS i;
	INSERT INTO e.log SELECT 1 + i % 5 FROM generate_series(1, 500) AS i;
	CREATE SEQUENCE e.seen;
	CREATE FUNCTION e.sneak(int, int) RETURNS bool LANGUAGE plpgsql AS $$
		BEGIN PERFORM t, nextval('e.seen') FROM e.secret; RETURN false; END $$;
	CREATE OPERATOR e.=@= (function = e.sneak, leftarg = int, rightarg = int, restrict = eqsel);
	CREATE RULE r AS ON DELETE TO e.ref2 DO ALSO DELETE FROM e.log WHERE e.log.x OPERATOR(e.=@=) 5 });
unaudited_sql($node, 'ANALYZE e.ref2; ANALYZE e.log');
install_policy($node, "record all all all all e.secret mandatory name=secret\n", log => 'none');
{
	my $client = PgProto->connect($node, user => 'bob');
	my $before = flush_trail($node);

	$client->query('DELETE FROM b.pk WHERE id = 7');
	$client->quit;
	cmp_ok(unaudited_sql($node, 'SELECT last_value FROM e.seen'), '>', 1, 'the operator has read its table');
	cmp_ok(scalar(grep { ($_->{policy} // '') eq 'secret' } records_since($before, 'bob')), '>=', 1,
		'and that is recorded');
}

check_trail($node);
done_testing();
