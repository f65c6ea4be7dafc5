# Attacks by an ordinary user, beyond those of t/capture/attacks_by_role: statements that PostgreSQL
# executes at unexpected places - while it plans another one, in a parallel
# worker, in the client's next message - or that are something else than they
# look like; and small statements that make large trails.
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

my $node = audited_node('main',
	conf => "max_parallel_workers = 8\nmax_worker_processes = 16\n");

unaudited_sql(
	$node, q{
	CREATE ROLE ordinary LOGIN;
	CREATE TABLE people (id int PRIMARY KEY, ssn text);
	INSERT INTO people SELECT i, 'ssn' || i FROM generate_series(1, 5) AS i;
	ALTER TABLE people OWNER TO ordinary;
	GRANT CREATE ON SCHEMA public TO ordinary;
	GRANT CREATE ON DATABASE postgres TO ordinary;
	SET ROLE ordinary;
	CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	CREATE TABLE mine (id int);
	INSERT INTO mine VALUES (1);
	CREATE FUNCTION looks(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
		DECLARE s text;
		BEGIN SELECT ssn INTO s FROM people WHERE id = i; RETURN i; END $$;
	CREATE FUNCTION loops(i int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
		DECLARE s text;
		BEGIN FOR s IN SELECT ssn FROM people, generate_series(1, 10) LOOP RETURN i; END LOOP; END $$;
	CREATE FUNCTION runs(t text) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN EXECUTE t; RETURN 'done'; END $$;
	CREATE FUNCTION same(i int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN RETURN i; END $$;
	CREATE FUNCTION deep(n int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			IF n = 0 THEN RAISE EXCEPTION '%', repeat('x', 100000); END IF;
			RETURN (SELECT deep(n - 1));
		END $$;
	CREATE FUNCTION spies(i int) RETURNS int LANGUAGE plpgsql
		IMMUTABLE PARALLEL SAFE AS $$
		BEGIN
			IF i % 100 = 0 THEN PERFORM ssn, i FROM public.people WHERE id = 1; END IF;
			RETURN i;
		END $$;
	CREATE FUNCTION sought() RETURNS int LANGUAGE plpgsql
		STABLE PARALLEL SAFE AS $$
		BEGIN PERFORM ssn, 'sought' FROM people; RETURN 1; END $$;
	CREATE TABLE large AS SELECT i, repeat('x', 500) AS t
		FROM generate_series(1, 10000) AS i;
	ALTER TABLE large SET (parallel_workers = 2);
	CREATE TABLE parts (id int) PARTITION BY LIST (id);
	CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1);
	CREATE TABLE part_2 PARTITION OF parts FOR VALUES IN (2);
	SELECT lo_from_bytea(4711, 'evidence');
	});

# records($what, %settings): the records of what the user does, with these settings,
# which his role has been given.  $what is a sub that gets a client, or SQL, each
# piece of it a message of its own.
sub records
{
	my ($what, %settings) = @_;
	my @sql = ref $what eq 'ARRAY' ? @$what : $what;

	unaudited_sql($node, join '; ', 'ALTER ROLE ordinary RESET ALL',
		map { "ALTER ROLE ordinary SET pg_audit_queue.$_ = '$settings{$_}'" }
		  sort keys %settings);
	return records_for(
		$node,
		sub {
			my $client = PgProto->connect($node, user => 'ordinary');

			if (ref $what eq 'CODE') { $what->($client); }
			else { $client->query($_) foreach @sql; }
			$client->quit;
		});
}

# has(\@records, $name, @wanted): each of these is among the records, in any order: class,
# command, SQLSTATE and text, the latter a pattern.
sub has
{
	my ($records, $name, @wanted) = @_;
	my @found = columns('class command exitCode commandText', @$records);
	my @missing;

	foreach my $wanted (@wanted)
	{
		my ($class, $command, $sqlstate, $text) = @$wanted;
		my $line = qr/^\Q$class|$command|$sqlstate|\E.*$text/s;

		push @missing, join '|', @$wanted if !grep { /$line/ } @found;
	}
	is_deeply(\@missing, [], $name) or diag join "\n", @found;
	return;
}

# Functions that are called while a statement is planned

my @found;

foreach my $function ('looks', 'loops')
{
	@found = records("INSERT INTO late VALUES ($function(1)), ($function(1))");
	has(
		\@found,
		"$function() for planning: the commit fails",
		[ 'READ', 'SELECT', '00000', 'SELECT ssn' ],
		[ 'WRITE', 'INSERT', '23505', 'INTO late' ]);
	is((grep { $_->{class} eq 'WRITE' && $_->{exitCode} eq '00000' } @found),
		0, '... and no record says that it did not');
	has(
		[ records("SELECT 'evidence', $function(2), 1 / 0", log => 'read, error') ],
		"$function() for planning: that fails",
		[ 'ERROR', '', '22012', 'evidence' ],
		[ 'READ', 'SELECT', '00000', 'SELECT ssn' ]);
}

# A client that wants to be disconnected by errors

has(
	[ records([ 'SET exit_on_error = on', q{SELECT 'evidence' FROM no_table} ]) ],
	'an error that ends the session',
	[ 'ERROR', '', '42P01', 'evidence' ]);

# What takes the place of a portal

has(
	[
		records(
			sub {
				my ($client) = @_;

				$client->parse('', 'SELECT 1 AS portal FROM people')->bind('', '')
				  ->execute('', 1)->parse('', q{SELECT 'evidence', 1 / 0})->bind('', '')
				  ->sync;
			})
	],
	'an error in planning what takes the place of a portal',
	[ 'READ', 'SELECT', '00000', 'portal' ],
	[ 'ERROR', '', '22012', 'evidence' ]);

# A SELECT with a function that changes something: the outcome of its commit

foreach my $protocol ('simple', 'extended')
{
	my $sql = q{SELECT runs('INSERT INTO late VALUES (1), (1)') AS outcome};

	has(
		[
			records(
				$protocol eq 'simple' ? $sql : sub {
					$_[0]->parse('', $sql)->bind('', '')->execute('')->sync;
				})
		],
		"a function has changed something, and the commit fails, $protocol",
		[ 'READ', 'SELECT', '23505', 'outcome' ]);
}

# What is something else than it looks like

has(
	[
		records(
			'WITH gone AS (DELETE FROM mine RETURNING *) SELECT * FROM gone',
			log => 'write')
	],
	'a SELECT that deletes',
	[ 'WRITE', 'DELETE', '00000', 'gone' ]);
has(
	[
		records(
			[
				'UPDATE mine SET id = 2 FROM people RETURNING ssn',
				'INSERT INTO mine SELECT count(*) FROM people'
			],
			log => 'read')
	],
	'changes that read something else',
	[ 'READ', 'SELECT', '00000', 'RETURNING ssn' ],
	[ 'READ', 'SELECT', '00000', 'count' ]);
is_deeply(
	[
		columns(
			'class commandText',
			records(
				[
					'UPDATE mine SET id = 2 RETURNING *', 'SELECT id FROM mine',
					'INSERT INTO mine VALUES (3)'
				],
				log => 'read'))
	],
	['READ|SELECT id FROM mine'],
	'but not those that do not');

foreach my $name ('with', 'without')
{
	unaudited_sql($node,
		$name eq 'with'
		? 'CREATE EXTENSION IF NOT EXISTS pg_audit_queue'
		: 'ALTER EVENT TRIGGER pg_audit_queue_ddl_command_end DISABLE');
	is_deeply(
		[
			columns(
				'class command',
				records(
					[
						'CREATE SCHEMA given CREATE TABLE t (id int PRIMARY KEY) '
						  . 'CREATE TABLE u (id int REFERENCES t) GRANT ALL ON t TO PUBLIC',
						'DROP SCHEMA given CASCADE'
					],
					log => 'role'))
		],
		['ROLE|GRANT'],
		"a GRANT in CREATE SCHEMA, $name event triggers");
}
unaudited_sql($node, 'ALTER EVENT TRIGGER pg_audit_queue_ddl_command_end ENABLE');

# log_catalog = off: what names a catalog, and does something else

my @hidden = (
	q{SELECT 'hidden' FROM pg_class LIMIT 1},
	q{SELECT 'hidden', pg_relation_size(oid), now(), random() FROM pg_class LIMIT 1},
	q{SELECT 'hidden' FROM pg_locks, pg_stat_activity, pg_sequences LIMIT 1},
	q{SELECT 'hidden' FROM pg_stat_user_tables WHERE n_live_tup > 0});
my @shown = (
	'SELECT lo_get(4711) FROM pg_class LIMIT 1',
	'SELECT lo_put(4711, 0, lo_get(4711)) FROM pg_am LIMIT 1',
	'SELECT loread(lo_open(oid, 262144), 8) FROM pg_largeobject_metadata',
	'SELECT pg_terminate_backend(0) FROM pg_am LIMIT 1',
	q{SELECT set_config('my.x', 'y', false) FROM pg_am LIMIT 1},
	'SELECT same(1) FROM pg_am LIMIT 1',
	'SELECT most_common_vals FROM pg_stats',
	'SELECT stavalues1 FROM pg_statistic',
	'SELECT 1 FROM pg_class, people LIMIT 1',
	'SELECT 1 FROM people, pg_class LIMIT 1');

foreach my $relation ('off', 'on')
{
	my %seen = map { $_->{commandText} => 1 }
	  records([ @hidden, @shown ],
		log => 'read', log_catalog => 'off', log_relation => $relation);

	is_deeply([ grep { $seen{$_} } @hidden ],
		[], "what reads catalogs only is left out, log_relation = $relation");
	is_deeply([ grep { !$seen{$_} } @shown ],
		[], "and nothing else, log_relation = $relation");
}

# Parallel workers that build an index, which call functions; all processes take part,
# so that each has some of the rows.  From PostgreSQL 17 on the search_path is
# pg_catalog there.

@found = records(
	[
		q{SET maintenance_work_mem = '128MB'},
		'SET max_parallel_maintenance_workers = 2',
		'CREATE INDEX ON large (spies(i))'
	]);
is((grep { $_->{class} eq 'READ' && ($_->{commandText} // '') =~ /ssn, i/ } @found),
	100, 'what is executed in building an index is recorded once');

# A worker looks for partitions before it executes its part.  Each of its queries is
# to be there once for each process that asks: one in planning, the leader, a worker.

my %by_process;

@found = records(
	[
		'SET ' . force_parallel($node) . ' = on',
		'SELECT id FROM parts WHERE id = sought()'
	]);
$by_process{ $_->{pid} }++
  foreach grep { ($_->{commandText} // '') =~ /'sought'/ } @found;
is(scalar keys %by_process, 2, 'what a worker executes to find partitions');
is((grep { ($_->{commandText} // '') =~ /FROM parts/ && $_->{class} eq 'READ' } @found),
	1, 'its part of the query has no record of its own');

# Small statements

sub bytes
{
	my (@records) = @_;
	my $bytes = 0;

	$bytes += length($_->{commandText} // '') + length($_->{errorMessage} // '')
	  foreach @records;
	return $bytes;
}

my $calls = join ' + ', map { "same($_)" } 1 .. 1000;

@found = records("SELECT $calls");
is((grep { $_->{command} eq 'EXECUTE' } @found), 1000, 'each call has a record');
cmp_ok(bytes(@found), '<', 2_000_000, 'but not the text of them all');
ok( (grep { ($_->{commandTextOmitted} // '') eq 'previously logged' } @found) > 0
	  && (grep { ($_->{commandText} // '') eq "SELECT $calls" && $_->{class} eq 'READ' } @found) == 1,
	'which is in that of the statement');

my $tables = join ', ', map { "t$_" . '_' x 50 } 1 .. 300;

@found = records(
	[
		(map { "CREATE TABLE $_ ()" } split /, /, $tables),
		"DROP TABLE $tables" . ' /*' . 'x' x 100_000 . '*/'
	]);
is((grep { $_->{command} eq 'DROP TABLE' } @found), 300, 'each table has a record');
cmp_ok(bytes(@found), '<', 4_000_000, 'but not the text of them all, again');

@found = records('SELECT deep(100)');
is((grep { ($_->{exitCode} // '') eq 'P0001' && $_->{class} eq 'READ' } @found),
	101, 'an error ends many statements');
is((grep { length($_->{errorMessage} // '') == 100000 } @found),
	1, 'its message is in one record');
cmp_ok(bytes(@found), '<', 3_000_000, 'and its beginning in the others');

$node->stop;

done_testing();
