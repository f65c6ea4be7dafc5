# Rules and time: what others make, change and drop costs a session with rules for objects
# hardly more than one without.
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

plan skip_all => 'this system does not tell the time of a process' if !-r "/proc/$$/schedstat";

my $node = audited_node('main', settings => { log => 'none' }, conf => "autovacuum = off\n");

unaudited_sql($node, q{
	CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE eve LOGIN CREATEROLE;
	CREATE ROLE staff; GRANT staff TO ann, bob;
	CREATE SCHEMA s; CREATE SCHEMA e AUTHORIZATION eve;
	CREATE TABLE s.p (a int) PARTITION BY LIST (a);
	DO $$ BEGIN FOR i IN 1..300 LOOP
		EXECUTE format('CREATE TABLE s.p%s PARTITION OF s.p FOR VALUES IN (%s)', i, i);
	END LOOP; END $$;
	CREATE FUNCTION s.f() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
	GRANT USAGE ON SCHEMA s TO PUBLIC; GRANT SELECT ON s.p TO PUBLIC });
unaudited_sql($node, 'GRANT CREATE ON DATABASE postgres TO eve');

# Both read what nobody has rules for.  All of ann's are looked at for that, the names of all
# partitions included; bob has none.
install_policy($node, join '',
	map({ "record all ann all all no.table_$_ currentuser=+staff\n" } 1 .. 50),
	map({ "record all ann all all \"/^(no$_|x.{1,9})\\.(sal|emp)[a-z]*\$\"\n" } 1 .. 200));

# What eve does again and again, each time in a transaction of its own
my %changes = (
	'temporary tables' => [ 'CREATE TEMP TABLE x (a int, b text)', 'DROP TABLE x' ],
	# a change of so many columns has PostgreSQL's caches begin anew
	'wide temporary tables' => [
		'CREATE TEMP TABLE y (' . join(', ', map { "c$_ int" } 1 .. 1500) . ')', 'DROP TABLE y' ],
	'tables' => [ 'CREATE TABLE e.x (a int)', 'ALTER TABLE e.x ADD b int', 'DROP TABLE e.x' ],
	'partitions' => [
		'CREATE TABLE IF NOT EXISTS e.p (a int) PARTITION BY LIST (a)',
		'CREATE TABLE e.p1 PARTITION OF e.p FOR VALUES IN (1)',
		'ALTER TABLE e.p DETACH PARTITION e.p1',
		'DROP TABLE e.p1' ],
	'children' => [
		'CREATE TABLE IF NOT EXISTS e.q (a int)', 'CREATE TABLE e.q1 () INHERITS (e.q)',
		'ALTER TABLE e.q1 NO INHERIT e.q', 'DROP TABLE e.q1' ],
	'schemas' => [
		'CREATE SCHEMA x', 'ALTER SCHEMA x RENAME TO y', 'DROP SCHEMA y' ],
	'functions' => [
		q{CREATE FUNCTION e.f() RETURNS int LANGUAGE sql AS 'SELECT 1'}, 'DROP FUNCTION e.f()'
	],
	'roles' => [
		'CREATE ROLE x', 'ALTER ROLE x CONNECTION LIMIT 1', 'ALTER ROLE x RENAME TO y',
		'DROP ROLE y' ],
	'memberships' => [
		'CREATE ROLE m', 'CREATE ROLE n', 'GRANT m TO n', 'REVOKE m FROM n', 'DROP ROLE m, n' ]);

my $runs = 9;
my $statements = 5000;

# What the session with rules may take beside the other one.  One that looks all partitions up
# again after each change takes 9 to 45 times as much.
my $limit = 3;

sub median
{
	my @sorted = sort { $a <=> $b } @_;

	return $sorted[ $#sorted / 2 ];
}

# CPU time that so many transactions of the session take, ns.  The client has no part in them:
# waiting for it takes more or less time by the processor that it runs on.
sub time_of_statements
{
	my ($client) = @_;
	my $file = '/proc/' . $client->pid . '/schedstat';
	my ($before) = split ' ', slurp_file($file);
	my $answer = $client->query("DO \$\$ BEGIN FOR i IN 1..$statements LOOP
		PERFORM a FROM s.p WHERE a = 7; COMMIT; END LOOP; END \$\$");

	die $answer if $answer =~ /E:/;
	return (split ' ', slurp_file($file))[0] - $before;
}

# How much more time the session with rules takes, median of pairs
sub ratio
{
	my ($ann, $bob) = @_;
	my @ratios;

	for my $run (1 .. $runs)
	{
		my ($with, $without);

		# in turn, so that neither has the better half
		$with = time_of_statements($ann) if $run % 2;
		$without = time_of_statements($bob);
		$with //= time_of_statements($ann);
		push @ratios, $with / $without;
	}
	return median(@ratios);
}

my %sessions = map { $_ => PgProto->connect($node, user => $_) } qw(ann bob eve);

# notices would fill what nobody reads while she is busy
$sessions{eve}->query('SET client_min_messages = error');

# What is remembered is there before anything is measured.
time_of_statements($_) for @sessions{qw(ann bob)};
cmp_ok(ratio(@sessions{qw(ann bob)}), '<', $limit, 'nothing changes: time beside one without rules');

for my $name (sort keys %changes)
{
	my $body = join '', map { "EXECUTE '" . s/'/''/gr . "'; COMMIT; " } @{ $changes{$name} };
	my $pid = $sessions{eve}->pid;

	$sessions{eve}->start("DO \$do\$ BEGIN LOOP $body END LOOP; END \$do\$");
	my $ratio = ratio(@sessions{qw(ann bob)});

	is($sessions{eve}->is_answering(0), '', "$name: still being changed");
	unaudited_sql($node, "SELECT pg_cancel_backend($pid)");
	like($sessions{eve}->finish, qr/57014/, "$name: nothing else has gone wrong");
	cmp_ok($ratio, '<', $limit, "$name: time beside a session without rules");
	note "$name: $ratio";
}

$_->quit for values %sessions;
flush_trail($node);
check_trail($node);
done_testing();
