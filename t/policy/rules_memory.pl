# The memory of a session with rules: what cursors, prepared statements, portals and
# subtransactions take of it, while roles, memberships and rules change under them.
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

plan skip_all => 'this system does not tell the memory of a process' if !-r "/proc/$$/status";

# As the attack that is told of has it: so many cursors, under so many rules
my $cursors = 1500;
my $rules = 100;

my $node = audited_node('main', settings => { log => 'none' }, conf => "autovacuum = off\n");

unaudited_sql($node, q{
	CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE other;
	CREATE ROLE team_1; CREATE ROLE team_2; CREATE ROLE team_3;
	CREATE ROLE crew_1; CREATE ROLE crew_2; CREATE ROLE crew_3;
	CREATE SCHEMA s; CREATE TABLE s.t (a int); GRANT USAGE ON SCHEMA s TO PUBLIC;
	GRANT SELECT, INSERT ON s.t TO PUBLIC });
unaudited_sql($node, "GRANT team_$_, crew_$_ TO ann WITH ADMIN OPTION") for 1 .. 3;

# Rules with expressions that take much memory, some of them for members of a group; none is
# for bob.  With another number, all of them are others.
sub install_rules
{
	my ($version) = @_;

	install_policy(
		$node,
		join '',
		map {
			my $who = $_ % 10 == 0 ? '+team_' . (1 + $_ % 3) : 'ann';

			"record all $who all all \"/^s\\.(t|x$_|[a-z]{1,40}_$version)\$\"\n"
		} 1 .. $rules);
	return;
}

# The memory that a process has, kB
sub memory
{
	my ($pid) = @_;
	my ($size) = slurp_file("/proc/$pid/status") =~ /^VmRSS:\s*(\d+) kB/m
	  or die "no memory of process $pid";

	return $size;
}

# How much memory a new session has more when it has executed the statements, kB
sub growth
{
	my ($user, $do) = @_;
	my $client = PgProto->connect($node, user => $user);
	my $pid = $client->pid;

	# what each session has once it has executed something
	is($client->query("SELECT count(*) FROM s.t") =~ /E:/, '', "$user can execute something");
	my $before = memory($pid);

	$do->($client);
	my $after = memory($pid);

	$client->quit;
	flush_trail($node);
	return $after - $before;
}

sub run_all
{
	my ($client, @sql) = @_;
	my $answer = $client->query(join ';', @sql);

	die $answer if $answer =~ /E:/;
	return;
}

# Each scenario, with the number of what stays in the session
my @scenarios = (
	[ 'cursors', $cursors,
		sub {
			my ($client) = @_;

			run_all($client, 'BEGIN',
				map { "DECLARE c$_ CURSOR FOR SELECT a FROM s.t" } 1 .. $cursors);
		} ],
	[ 'cursors, while others change roles', $cursors,
		sub {
			my ($client) = @_;

			run_all($client, 'BEGIN');
			for my $i (1 .. $cursors)
			{
				run_all($client, "DECLARE c$i CURSOR FOR SELECT a FROM s.t");
				unaudited_sql($node, "ALTER ROLE other CONNECTION LIMIT $i") if $i % 50 == 0;
			}
		} ],
	[ 'prepared statements', 2000,
		sub {
			my ($client) = @_;

			run_all($client,
				map { ("PREPARE p$_ AS SELECT a FROM s.t", "EXECUTE p$_") } 1 .. 2000);
		} ],
	[ 'portals', $cursors,
		sub {
			my ($client) = @_;

			run_all($client, 'BEGIN');
			$client->parse('q', 'SELECT a FROM s.t');
			for my $i (1 .. $cursors)
			{
				$client->bind("p$i", 'q');
				$client->execute("p$i", 1);
			}
			$client->sync;
		} ],
	[ 'subtransactions', 2000,
		sub {
			my ($client) = @_;

			run_all($client, 'BEGIN',
				map { ("SAVEPOINT s$_", 'INSERT INTO s.t VALUES (1)') } 1 .. 2000);
		} ]);

install_rules(1);
for (@scenarios)
{
	my ($name, $number, $do) = @{$_};
	my $plain = growth('bob', $do);
	my $audited = growth('ann', $do);

	# doc/operation.md: some 4 MB, and 2 kB for each open cursor and nested statement
	cmp_ok($audited - $plain, '<=', 4 * 1024 + 2 * $number,
		"$name: memory beside a session without rules ($plain kB there)");
}

# How much memory a session of bob's has more when it has opened cursors, each after ann has
# granted or revoked one of three roles, kB
sub growth_to_and_fro
{
	my ($prefix) = @_;
	my $bob = PgProto->connect($node, user => 'bob');
	my $ann = PgProto->connect($node, user => 'ann');
	my $pid = $bob->pid;

	run_all($bob, 'SELECT count(*) FROM s.t', 'BEGIN');
	my $before = memory($pid);

	for my $i (1 .. $cursors)
	{
		my $role = "${prefix}_" . (1 + $i % 3);

		run_all($ann,
			int($i / 3) % 2 ? "REVOKE $role FROM bob" : "GRANT $role TO bob");
		run_all($bob, "DECLARE c$i CURSOR FOR SELECT a FROM s.t");
	}
	my $after = memory($pid);

	$_->quit for $bob, $ann;
	flush_trail($node);
	return $after - $before;
}

# With the teams, his rules become others each time.
my $without = growth_to_and_fro('crew');
my $with = growth_to_and_fro('team');

cmp_ok($with - $without, '<=', 4 * 1024 + 2 * $cursors,
	"cursors, while a membership goes to and fro: memory beside one without rules ($without kB)");

# New rules are others: each generation that a cursor has is there once.
my $generations = 20;
my $reloads = growth('ann',
	sub {
		my ($client) = @_;

		run_all($client, 'BEGIN');
		for my $i (1 .. $generations * 5)
		{
			install_rules($i) if $i % 5 == 0;
			run_all($client, "DECLARE c$i CURSOR FOR SELECT a FROM s.t");
		}
	});

# Up to 3 MB each, by version; a copy for each cursor would be five times that.
cmp_ok($reloads, '<=', 4 * 1024 + $generations * 4 * 1024,
	'cursors, while the rules change: memory');

# More different decisions than a session keeps: which rules may decide about a table when its
# rows are known depends on the letters in its name.
my @letters = 'a' .. 'k';

install_policy($node, join '',
	map { "record all ann all read \"/^pg_temp\\.t_.*$_\" rows>=1 name=$_\n" } @letters);
unaudited_sql($node, 'GRANT pg_read_all_stats TO ann');
my $before = flush_trail($node);
my $client = PgProto->connect($node, user => 'ann');

run_all($client, q{DO $$
DECLARE
	name text;
	used bigint;
	at_1000 bigint;
	most bigint := 0;
BEGIN
	FOR i IN 1..2047 LOOP
		name := 't_' || (SELECT string_agg(chr(97 + b), '' ORDER BY b)
			FROM generate_series(0, 10) AS b WHERE (i >> b) & 1 = 1);
		EXECUTE format('CREATE TEMP TABLE %I AS SELECT 1 AS a', name);
		EXECUTE format('SELECT a FROM %I', name);
		EXECUTE format('DROP TABLE %I', name);
		IF i % 100 = 0 THEN
			SELECT sum(used_bytes) INTO used FROM pg_backend_memory_contexts AS c
				WHERE c.name ~ '^pg_audit_queue';
			most := greatest(most, used);
			IF i = 1000 THEN at_1000 := used; END IF;
		END IF;
	END LOOP;
	-- The limit is at 1,024; all of them would take 1.6 times as much.
	IF most > 1.45 * at_1000 THEN RAISE EXCEPTION '% bytes, % with 1000', most, at_1000; END IF;
END $$});
$client->quit;
flush_trail($node);
my %number;

for (grep { ($_->{commandText} // '') =~ /^SELECT a FROM t_/ } records_after($node, $before))
{
	my ($first) = $_->{commandText} =~ /t_(.)/;

	$number{ ($_->{policy} // '') eq $first ? 'right' : 'wrong' }++;
}
is_deeply(\%number, { right => 2047 }, 'very many different decisions: each table has that of its rules');

check_trail($node);
done_testing();
