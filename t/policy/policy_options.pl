# Options of rules, and conditions that are known only when a statement ends: what
# records look like, what mandatory rules withstand, and whether a statement can be
# ended in a way that hides it.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqPolicy;
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { log => 'none', queue_size => '256kB' },
	conf     => "autovacuum = off\n");

unaudited_sql($node, q{
	CREATE ROLE ann SUPERUSER LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE pat LOGIN SUPERUSER;
	CREATE SCHEMA s; GRANT USAGE ON SCHEMA s TO PUBLIC;
	CREATE TABLE s.t AS SELECT a FROM generate_series(1, 2000) a;
	CREATE TABLE s.key (a int PRIMARY KEY);
	CREATE TABLE s.ref (a int REFERENCES s.key DEFERRABLE INITIALLY DEFERRED);
	CREATE TABLE s.one AS SELECT 1 AS a; CREATE TABLE s.two AS SELECT 1 AS a;
	GRANT SELECT ON ALL TABLES IN SCHEMA s TO PUBLIC });

# The records, of other users than the quiet one, that the code puts into the trail
sub records_of
{
	my ($code) = @_;
	my $before = flush_trail($node);

	$code->();
	flush_trail($node);
	return grep {
		$_->{sequence} > $before && ($_->{dbUserName} // '') !~ /^paq_quiet/ && $_->{class} ne 'CONFIG'
	} trail_records($node);
}

sub run_as
{
	my ($user, $sql) = @_;

	return records_of(sub {
		$node->psql('postgres', $sql, connstr => $node->connstr('postgres') . " user=$user",
			on_error_stop => 0);
	});
}

sub shown
{
	my ($field, @records) = @_;
	return join '; ', map { ref $_->{$field} ? join(',', @{ $_->{$field} }) : $_->{$field} // 'null' } @records;
}

# ---------------------------------------------------------------------------
# Texts
# ---------------------------------------------------------------------------

my $query = q{PREPARE p(text) AS SELECT a, 'lit' FROM s.one WHERE $1 = 'x'; EXECUTE p('value')};

foreach my $case (
	[ '',                            qr/'lit'/, 'null' ],
	[ 'parameters=on',               qr/'lit'/, 'value' ],
	[ 'statement=off',               qr/^null$/, 'null' ],
	[ 'statement=off parameters=on', qr/^null$/, 'null' ],
	[ 'statement=normalized parameters=on', qr/SELECT a, \$2 FROM s.one WHERE \$1 = \$3/, 'null' ])
{
	my ($options, $text, $parameters) = @$case;

	foreach my $condition ('', 'rows<100', 'outcome=ok duration>=0')
	{
		install_policy($node, "record all ann all read s.* $condition $options\n", log => 'none');
		my @records = run_as('ann', $query);
		my $name = "'$condition' '$options'";

		is(scalar @records, 1, "$name: one record");
		like(shown('commandText', @records), $text, "$name: text");
		is(shown('paramList', @records), $parameters, "$name: parameters");
	}
}

# In place of the settings the other way round: no text is no parameters, either
foreach my $case (
	[ '',                            qr/^null$/, 'null' ],
	[ 'statement=on',                qr/'lit'/,  'value' ],
	[ 'statement=on parameters=off', qr/'lit'/,  'null' ],
	[ 'statement=normalized',        qr/SELECT a, \$2 FROM s.one WHERE \$1 = \$3/, 'null' ],
	[ 'mandatory',                   qr/'lit'/,  'null' ],
	[ 'mandatory parameters=on',     qr/'lit'/,  'value' ])
{
	my ($options, $text, $parameters) = @$case;

	foreach my $condition ('', 'rows<100')
	{
		install_policy($node, "record all ann all read s.* $condition $options\n",
			log => 'none', log_statement => 'off', log_parameter => 'on');
		my @records = run_as('ann', $query);
		my $name = "settings the other way round, '$condition' '$options'";

		is(scalar @records, 1, "$name: one record");
		like(shown('commandText', @records), $text, "$name: text");
		is(shown('paramList', @records), $parameters, "$name: parameters");
	}
}

# What is not certain at the beginning: each rule has its own texts in the end.
install_policy($node, <<'EOF', log => 'none');
record all ann all read all rows>=1000 parameters=on name=many
record all ann all read all rows>=100 statement=normalized name=some
record all ann all read all outcome=failed statement=off name=failed mode=immediate
ignore all ann all read all rows<=0
record all ann all read all name=rest
EOF
my $prepare = q{PREPARE p(int, text) AS SELECT 'lit', a FROM s.t WHERE a <= $1;};
foreach my $case (
	[ 'EXECUTE p(1500, $$v$$)', 'many',   qr/'lit'/,     '1500,v' ],
	[ 'EXECUTE p(150, $$v$$)',  'some',   qr/SELECT \$\d, a/, 'null' ],
	[ 'EXECUTE p(15, $$v$$)',   'rest',   qr/'lit'/,     'null' ],
	[ 'EXECUTE p(0, $$v$$)',    'null',   undef,         '' ])
{
	my ($execute, $policy, $text, $parameters) = @$case;
	my @records = run_as('ann', "$prepare $execute");

	is(scalar @records, $text ? 1 : 0, "$execute: records");
	next if !$text;
	is(shown('policy', @records), $policy, "$execute: rule");
	like(shown('commandText', @records), $text, "$execute: text");
	is(shown('paramList', @records), $parameters, "$execute: parameters");
}
my @failed = run_as('ann', q{SELECT 1 / (a - a) FROM s.one});
is(shown('policy', @failed),       'failed', 'a statement that fails');
is(shown('commandText', @failed),  'null',   'its text');
is(shown('errorMessage', @failed), 'division by zero', 'its error');

# The same for a text in a spill file
my $long = 'x' x 100_000;
my @spilled = run_as('ann', "SELECT a, '$long' FROM s.t LIMIT 1500");
like(shown('commandText', @spilled), qr/$long/, 'a long text');
@spilled = run_as('ann', "SELECT a, '$long' FROM s.t LIMIT 150");
is(shown('commandText', @spilled), 'SELECT a, $1 FROM s.t LIMIT $2', 'one without constants');
@spilled = run_as('ann', "SELECT 1 / (a - a), '$long' FROM s.one");
is(shown('commandText', @spilled), 'null', 'one that is left out');
ok(poll_until(sub { !grep { /^spill/ } slurp_dir(queue_dir($node)) }), 'no spill file stays');

# ---------------------------------------------------------------------------
# Mandatory
# ---------------------------------------------------------------------------

install_policy($node, <<'EOF', log => 'none');
record all pat all read s.one parameters=on mandatory name=must
record all pat all read s.two name=may
EOF
my @must = run_as('pat', <<'EOF');
SET pg_audit_queue.log = 'none';
SET pg_audit_queue.log_catalog = off;
SET pg_audit_queue.log_statement = off;
SET pg_audit_queue.log_statement_once = on;
SET pg_audit_queue.log_parameter = off;
SET pg_audit_queue.log_parameter_max_size = 1;
SET pg_audit_queue.mask_literals = 'all';
SET pg_audit_queue.policy = off;
PREPARE p(text) AS SELECT 'lit', $1 FROM s.one;
EXECUTE p('value');
SELECT 'lit' FROM s.two;
SET SESSION AUTHORIZATION bob;
SELECT 'as bob' FROM s.one;
RESET SESSION AUTHORIZATION;
DO $$ BEGIN PERFORM 'in a function' FROM s.one; RAISE 'undone'; EXCEPTION WHEN OTHERS THEN NULL; END $$;
EOF
is(shown('policy', @must), 'must; must; must', 'mandatory rules apply whatever is set');
like(shown('commandText', @must), qr/'lit', \$1 FROM s.one.*'as bob'.*'in a function'/s, 'with texts');
like(shown('paramList', @must), qr/^value;/, 'and parameters');
my @config = grep { ($_->{objectName} // '') eq 'pg_audit_queue.policy' && $_->{dbUserName} eq 'pat' }
  trail_records($node);
is(shown('newValue', @config), 'off', 'who switches policies off is recorded');

# A statement with two records has its text in both, if they are mandatory.
foreach my $case ([ '', 'null' ], [ 'mandatory', q{SELECT 'twice' FROM s.one, s.two} ])
{
	my ($option, $second) = @$case;

	install_policy($node, "record all pat all read s.* $option\n",
		log => 'none', log_relation => 'on', log_statement_once => 'on');
	is(shown('commandText', run_as('pat', q{SELECT 'twice' FROM s.one, s.two})),
		"SELECT 'twice' FROM s.one, s.two; $second", "log_statement_once, '$option'");
}

# An extension's script can be anybody's who may write a file.
install_policy($node, <<'EOF', log => 'all');
record template1 pat all all all mandatory name=must
record template1 ann all all all name=may
EOF
foreach my $case (
	[ 'CREATE EXTENSION', 'CREATE EXTENSION pg_audit_queue' ],
	[ 'ALTER EXTENSION',  'CREATE EXTENSION pg_audit_queue VERSION \'1.0\'; '
		  . 'ALTER EXTENSION pg_audit_queue UPDATE' ])
{
	my ($command, $sql) = @$case;
	my %seen;

	foreach my $user ('pat', 'ann')
	{
		my @records = records_of(sub {
			$node->safe_psql('template1', "BEGIN; $sql; ROLLBACK",
				connstr => $node->connstr('template1') . " user=$user");
		});
		# of the statement that runs the script, which is the last
		my ($last) = grep { $records[$_]{command} =~ /^(?:CREATE|ALTER) EXTENSION$/ } reverse 0 .. $#records;
		is($records[$last]{command}, $command, "$command is recorded");
		my $id = $records[$last]{statementId};
		$seen{$user} = [ grep { $_->{statementId} == $id } @records ];
	}
	is_deeply([ grep { $_->{command} ne $command } @{ $seen{ann} } ], [],
		"$command: a rule does not record what the script does");
	foreach my $wanted (
		[ 'CREATE FUNCTION', qr/^CREATE [^;]*$/m ],
		[ 'DO',              qr/^DO \$.*\$$/ms ],
		[ 'SELECT',          qr/pg_/ ])
	{
		my ($what, $text) = @$wanted;
		my @found = grep { $_->{command} eq $what } @{ $seen{pat} };

		cmp_ok(scalar @found, '>', 0, "$command: a mandatory one records $what");
		like($found[0]{commandText}, $text, "$command: $what has its own text");
	}
}

my ($ret, $out, $err) = $node->psql('postgres',
	"ALTER SYSTEM SET pg_audit_queue.policy_file = '/dev/null'", connstr => $node->connstr('postgres') . ' user=pat');
like($err, qr/cannot be changed/, 'the file is out of reach of ALTER SYSTEM');
run_as('pat', "ALTER SYSTEM SET shared_preload_libraries = ''; ALTER SYSTEM RESET shared_preload_libraries");
@config = grep { ($_->{objectName} // '') eq 'shared_preload_libraries' } trail_records($node);
is(shown('command', @config), 'ALTER SYSTEM; ALTER SYSTEM', 'who wants the library gone is recorded');
is($config[0]{newValue}, '', 'with the value');

($ret, $out, $err) = $node->psql('postgres', 'SET pg_audit_queue.policy = off',
	connstr => $node->connstr('postgres') . ' user=bob');
like($err, qr/permission denied/, 'policies are out of reach of others');

# overflow = drop does not drop what is mandatory: the session waits.  The trail
# cannot be written, so the queue fills.
install_policy($node, <<'EOF', log => 'none', overflow => 'drop', flush_interval => '10ms');
record all pat all read s.one mandatory name=must
record all ann all read s.one name=may
EOF
take_trail_away($node);
my $filler = q{SELECT $$} . 'f' x 3000 . q{$$ FROM s.one};
$node->psql('postgres', join(';', map { $filler } 1 .. 200),
	connstr => $node->connstr('postgres') . ' user=ann');
my $dropped = stats($node)->{dropped_full};
cmp_ok($dropped, '>', 0, 'a full queue drops what is not mandatory');
my $patient = start_psql($node, "SELECT 'patient', '" . 'p' x 4000 . "' FROM s.one",
	user => 'pat', name => 'patient');
ok(wait_until_waiting($node, 'patient'), 'a session waits for what is mandatory');
give_trail_back($node);
finish_psql($patient);
flush_trail($node);
is(texts_in_trail($node, "'patient'"), 1, 'until it is in the trail');

# ---------------------------------------------------------------------------
# Ends
# ---------------------------------------------------------------------------

install_policy($node, <<'EOF', log => 'none', overflow => 'wait');
record all bob all read,copy all rows>=1000 name=mass
record all ann all write s.* outcome=failed name=failed
record all ann all write s.* outcome=ok name=ok
EOF
is(shown('policy', run_as('bob', 'SELECT a FROM s.t LIMIT 999')),  '', 'few rows');
is(shown('policy', run_as('bob', 'SELECT a FROM s.t LIMIT 1000')), 'mass', 'many rows');
is(shown('policy', run_as('bob', 'SELECT count(*) FROM s.t')),     '', 'one row of many');
is(shown('policy', run_as('bob', 'SELECT 1 / (1500 - a) FROM s.t')), 'mass', 'many rows, then an error');
is(shown('policy', run_as('bob', 'SELECT 1 / (5 - a) FROM s.t')),  '', 'few rows, then an error');
is(shown('policy', run_as('bob', <<'EOF')), 'mass', 'many rows in parts, then a rollback');
BEGIN; DECLARE c CURSOR FOR SELECT a FROM s.t; FETCH 600 FROM c; FETCH 600 FROM c; ROLLBACK;
EOF
is(shown('policy', run_as('bob', 'SELECT a, pg_terminate_backend(CASE a WHEN 1500 THEN pg_backend_pid() END) FROM s.t')),
	'mass', 'many rows, then the session is terminated');
is(shown('policy', run_as('bob', 'COPY s.t TO STDOUT')), 'mass', 'COPY of many rows');
is(shown('policy', run_as('bob', 'COPY s.one TO STDOUT')), '', 'COPY of one row');
is(shown('policy', run_as('bob', 'COPY (SELECT 1 / (1500 - a) FROM s.t) TO STDOUT')), 'mass; mass',
	'COPY of many rows of a query, then an error');

is(shown('policy', run_as('ann', 'INSERT INTO s.ref VALUES (1)')), 'failed', 'the commit fails');
is(shown('policy', run_as('ann', 'INSERT INTO s.key VALUES (1)')), 'ok', 'it does not');
is(shown('policy', run_as('ann', 'INSERT INTO s.key VALUES (1)')), 'failed', 'the statement fails');
is(shown('policy', run_as('ann', <<'EOF')), 'ok; failed; ok', 'savepoints');
BEGIN; INSERT INTO s.key VALUES (2); SAVEPOINT a; INSERT INTO s.key VALUES (2); ROLLBACK TO a;
INSERT INTO s.key VALUES (3); ROLLBACK;
EOF

# A crash hides nothing, whatever the rows are so far.
my $victim = start_psql($node, "SELECT 'crash', pg_sleep(600)", user => 'bob', name => 'victim');
ok(poll_until(sub {
	unaudited_sql($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}) eq '1' }),
	'a statement runs');
my $pid = unaudited_sql($node, q{SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'});
kill 'KILL', $pid;
finish_psql($victim);
$node->poll_query_until('postgres', 'SELECT true', 't');
flush_trail($node);
my @interrupted = grep { ($_->{commandText} // '') =~ /'crash'/ } trail_records($node);
is(scalar @interrupted, 1, 'what a crash interrupts is recorded');
ok($interrupted[0]{interrupted}, 'as interrupted');

# mode: who waits is in the statistics, for each statement or once for a transaction
foreach my $case (
	[ 'queued',    '',               0 ],
	[ 'queued',    'mode=commit',    1 ],
	[ 'queued',    'mode=immediate', 2 ],
	[ 'commit',    '',               1 ],
	[ 'commit',    'mode=queued',    0 ],
	[ 'commit',    'mode=immediate', 2 ],
	[ 'immediate', '',               2 ],
	[ 'immediate', 'mode=queued',    0 ],
	[ 'immediate', 'mode=commit',    1 ])
{
	my ($setting, $option, $expected) = @$case;

	foreach my $condition ('', 'rows<100')
	{
		install_policy($node, "record all ann all read s.* $condition $option\n",
			log => 'none', mode => $setting, flush_interval => '1h');
		my $before = stats($node)->{flush_waits};
		$node->psql('postgres', 'BEGIN; SELECT 1 FROM s.one; SELECT 1 FROM s.two; COMMIT',
			connstr => $node->connstr('postgres') . ' user=ann');
		is(stats($node)->{flush_waits} - $before, $expected,
			"mode is $setting, '$condition' '$option': waits");
	}
}

# log_relation: the relations that rules select, and only those
install_policy($node, "record all ann all read s.one name=one\nignore all ann all write s.two\n",
	log => 'none', log_relation => 'on');
my @relations = run_as('ann', 'INSERT INTO s.two SELECT a FROM s.one');
is(shown('objectName', @relations), 's.one', 'log_relation: the relation that a rule selects');

# More decisions than are remembered
unaudited_sql($node, q{CREATE SCHEMA many; GRANT USAGE ON SCHEMA many TO bob;
	DO $$ BEGIN FOR i IN 1 .. 700 LOOP
		EXECUTE format('CREATE TABLE many.t%s (a int)', i);
		EXECUTE format('GRANT ALL ON many.t%s TO bob', i);
	END LOOP; END $$ });
install_policy($node, <<'EOF', log => 'none');
ignore all bob all write many.t7
record all bob all read,write many.* statement=off name=many
EOF
my @many = run_as('bob', q{
	DO $$ DECLARE what text; BEGIN
		FOREACH what IN ARRAY '{INSERT INTO many.t%s VALUES (1),SELECT FROM many.t%s,DELETE FROM many.t%s,SELECT FROM many.t%s}'::text[] LOOP
			FOR i IN 1 .. 700 LOOP EXECUTE format(what, i); END LOOP;
		END LOOP; END $$ });
my %times;
$times{ $_->{command} }++ foreach @many;
is_deeply(\%times, { INSERT => 699, DELETE => 699, SELECT => 1400 },
	'each of more decisions than are remembered');

# What is remembered about a relation is about one use of it.  These statements use one in
# ways that differ in one thing only: permissions, locks, what the statement is as a whole.
install_policy($node, <<'EOF', log => 'none');
record all ann all INSERT s.two name=insert
record all ann all UPDATE s.two name=update
record all ann all DELETE s.two name=delete
record all ann all MERGE s.two name=merge
record all ann all read s.two name=read
EOF
my @uses = (
	[ 'SELECT a FROM s.two',            'read' ],
	[ 'SELECT a FROM s.two FOR UPDATE', 'read' ],
	[ 'WITH u AS (UPDATE s.two SET a = a RETURNING a) SELECT a FROM u',        'update' ],
	[ 'WITH i AS (INSERT INTO s.two VALUES (1) RETURNING a) SELECT a FROM i',  'insert' ],
	[ 'WITH d AS (DELETE FROM s.two WHERE a = 0 RETURNING a) SELECT a FROM d', 'delete' ],
	[ 'INSERT INTO s.two VALUES (1) RETURNING a', 'insert' ],
	[ 'MERGE INTO s.two USING (VALUES (0)) v (b) ON a = b WHEN NOT MATCHED THEN INSERT VALUES (1)', 'merge' ],
	[ 'UPDATE s.two SET a = a', 'update' ],
	[ 'MERGE INTO s.two USING (VALUES (1)) v (b) ON a = b WHEN MATCHED THEN UPDATE SET a = b', 'merge' ],
	[ 'DELETE FROM s.two WHERE a = 0', 'delete' ]);
foreach my $case ([ 'in that order', @uses ], [ 'in reverse', reverse @uses ])
{
	my ($order, @in_order) = @$case;
	my @records = run_as('ann', join('; ', map { $_->[0] } @in_order));

	is(shown('policy', @records), join('; ', map { $_->[1] } @in_order), "uses of a relation, $order");
}

check_trail($node, 'the trail is whole');
$node->stop;
done_testing();
