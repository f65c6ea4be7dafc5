# SQL that is executed for users by processes without a client: background workers of
# schedulers and of extensions, and autovacuum.  They have the records that a client's has.
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

my $libdir = `pg_config --pkglibdir`;
chomp($libdir);
my $jobs = build_test_library('jobs', 'jobs');
my @real = grep { -e "$libdir/$_.so" } 'pg_cron', 'pg_partman_bgw';

my $node = audited_node(
	'main',
	settings => { log => 'all, -connect' },
	conf     => "autovacuum = off\nautovacuum_naptime = 1s\nmax_worker_processes = 20\n"
	  . "dynamic_library_path = '\$libdir:" . ($jobs =~ s{/jobs$}{}r) . "'\n"
	  . "cron.use_background_workers = on\npg_partman_bgw.interval = 1\npg_partman_bgw.role = 'carol'\n"
	  . "pg_partman_bgw.dbname = 'postgres'\n");

unaudited_sql($node, q{
	CREATE ROLE alice LOGIN; CREATE ROLE carol LOGIN;
	CREATE TABLE secret (a int); CREATE TABLE t (a int); GRANT ALL ON t TO PUBLIC;
	CREATE TABLE parent (a int PRIMARY KEY); GRANT ALL ON parent TO PUBLIC;
	CREATE TABLE child (a int REFERENCES parent DEFERRABLE INITIALLY DEFERRED); GRANT ALL ON child TO PUBLIC;
	CREATE FUNCTION jobs_run(oid, text) RETURNS int LANGUAGE c AS 'jobs' });

sub words
{
	return columns('class command currentUser exitCode commandText', @_);
}

# The records of what a worker executes for alice.
sub job
{
	my ($command) = @_;
	my $before = flush_trail($node);

	unaudited_sql($node, "SELECT jobs_run('alice'::regrole, \$job\$$command\$job\$)");
	flush_trail($node);
	return grep { $_->{sequence} > $before && ($_->{backendType} // '') eq 'job' } trail_records($node);
}

# ---------------------------------------------------------------------------
# Errors before anything is executed
# ---------------------------------------------------------------------------

my @cases = (
	[ 'SELEC 1', '42601' ],
	[ 'SELECT * FROM absent', '42P01' ],
	[ 'SELECT absent()', '42883' ],
	[ 'SELECT count(*) FROM information_schema.absent', '42P01' ],
	[ q{SELECT 'x'::int}, '22P02' ],
	[ 'SELECT 1 / 0', '22012' ]);
foreach my $case (@cases)
{
	my ($sql, $state) = @$case;

	is_deeply([ words(job($sql)) ], ["ERROR||alice|$state|$sql"], "a worker: $sql");
}
is_deeply([ words(job('SELECT * FROM secret')) ], ['READ|SELECT|alice|42501|SELECT * FROM secret'],
	'a worker: a denial');
is_deeply([ words(job('INSERT INTO t VALUES (1)')) ], ['WRITE|INSERT|alice|00000|INSERT INTO t VALUES (1)'],
	'a worker: what succeeds');
is_deeply(
	[ columns('class command exitCode', job('INSERT INTO child VALUES (7)')) ],
	['WRITE|INSERT|23503'], 'a worker: the commit fails');

unaudited_sql($node, "ALTER ROLE alice SET pg_audit_queue.log = 'denied'");
is_deeply([ words(job('SELECT * FROM secret')), words(job('SELEC 1')) ],
	['READ|SELECT|alice|42501|SELECT * FROM secret'], 'denials alone');
unaudited_sql($node, 'ALTER ROLE alice RESET ALL');

install_policy($node, "ignore all alice all error all\nrecord all all all error all name=error\n", log => 'none');
is_deeply([ columns('policy', job('SELEC 1')) ], [], 'a rule ignores errors');
install_policy($node, "record all alice all error all name=error\n", log => 'none');
is_deeply([ columns('class policy', job('SELEC 1')) ], ['ERROR|error'], 'a rule records them');
install_policy($node, "record all nobody all all all\n", log => 'all, -connect');

# ---------------------------------------------------------------------------
# Autovacuum calls a function in an index, for its owner
# ---------------------------------------------------------------------------

unaudited_sql($node, q{
	CREATE TABLE lazy (a int); GRANT CREATE ON SCHEMA public TO carol;
	SET ROLE carol;
	CREATE FUNCTION fails(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
		IF $1 > 0 THEN EXECUTE 'SELEC 1'; END IF; RETURN 1; END$$;
	RESET ROLE;
	ALTER TABLE lazy OWNER TO carol;
	CREATE INDEX ON lazy (fails(a)) WHERE a < 0;
	ALTER TABLE lazy SET (autovacuum_analyze_threshold = 1, autovacuum_vacuum_threshold = 1);
	INSERT INTO lazy SELECT -1 FROM generate_series(1, 100);
	CREATE OR REPLACE FUNCTION fails(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
		EXECUTE 'SELEC 1'; RETURN 1; END$$;
	SELECT pg_stat_force_next_flush() });
$node->append_conf('postgresql.conf', "autovacuum = on\n");
$node->reload;
my @lazy;
ok( poll_until(
		sub {
			flush_trail($node);
			@lazy = grep { ($_->{backendType} // '') eq 'autovacuum worker' && $_->{class} eq 'ERROR' }
			  trail_records($node);
		}),
	'autovacuum: an error in a function of a user');
is_deeply([ (columns('exitCode currentUser', @lazy))[0] ], ['42601|carol'], 'is recorded as his');
$node->append_conf('postgresql.conf', "autovacuum = off\n");

# ---------------------------------------------------------------------------
# Real ones
# ---------------------------------------------------------------------------

diag "NOT TESTED: $_ is not installed"
  foreach grep { my $name = $_; !grep { $_ eq $name } @real } 'pg_cron', 'pg_partman_bgw';

# The worker of pg_partman ends if there is nothing for it to do when it starts.
unaudited_sql($node, 'CREATE SCHEMA partman; CREATE EXTENSION pg_partman SCHEMA partman')
  if -e "$libdir/pg_partman_bgw.so";
my $before_restart = flush_trail($node);
$node->append_conf('postgresql.conf', "shared_preload_libraries = '" . join(',', 'pg_audit_queue', @real) . "'\n");
$node->restart;

SKIP:
{
	skip 'pg_cron is not installed', 1 if !-e "$libdir/pg_cron.so";
	my @jobs = (
		'SELEC 1',
		'SELECT * FROM absent',
		'SELECT * FROM secret',
		'INSERT INTO t VALUES (2)',
		'INSERT INTO t VALUES (3); INSERT INTO child VALUES (8); SELECT 1',
		'INSERT INTO t VALUES (4); SELECT 1 / (a - a) FROM t; SELECT 2');
	my %records;
	my $before = flush_trail($node);

	unaudited_sql($node, 'CREATE EXTENSION pg_cron');
	unaudited_sql($node, 'GRANT USAGE ON SCHEMA cron TO alice');
	foreach my $number (0 .. $#jobs)
	{
		$node->safe_psql('postgres', "SELECT cron.schedule('job$number', '* * * * *', \$\$$jobs[$number]\$\$)",
			extra_params => [ '-U', 'alice' ]);
	}
	ok( poll_until(
			sub {
				flush_trail($node);
				%records = ();
				push @{ $records{ $_->{sessionId} } }, $_
				  foreach grep { $_->{sequence} > $before && ($_->{backendType} // '') eq 'pg_cron' }
				  trail_records($node);
				return keys %records >= @jobs;
			}),
		'pg_cron: there are records of all jobs') or diag(explain(\%records));
	unaudited_sql($node, q{SELECT count(cron.unschedule(jobid)) FROM cron.job});
	my @ours = map { join ' / ', columns('class command exitCode', @$_) } values %records;

	# what a client has of the same
	my @theirs = map {
		my $sql = $_;
		join ' / ', columns('class command exitCode', grep { ($_->{dbUserName} // '') eq 'alice' }
			records_for($node, sub { $node->psql('postgres', undef, extra_params => [ '-U', 'alice', '-c', $sql ]) }))
	} @jobs;
	is_deeply([ sort @ours ], [ sort @theirs ], 'pg_cron: records are those of a client')
	  or diag(join "\n", 'pg_cron:', sort(@ours), 'a client:', sort @theirs);
}

SKIP:
{
	skip "pg_partman's worker is not installed", 1 if !-e "$libdir/pg_partman_bgw.so";
	my @records;

	ok( poll_until(
			sub {
				flush_trail($node);
				@records = grep {
					$_->{sequence} > $before_restart && ($_->{currentUser} // '') eq 'carol' &&
					  ($_->{exitCode} // '') eq '42501'
				} trail_records($node);
			}),
		"pg_partman's worker: what its role may not do has a record");
}

check_trail($node, 'the trail is whole');
$node->stop;

# ---------------------------------------------------------------------------
# The loader, whose records would be loaded, and so on
# ---------------------------------------------------------------------------

my $table = audited_node('table', conf => "autovacuum = off\n");

install_policy($table, "record all all all all all mandatory\n", log => 'all', sink => 'table');
foreach my $number (1 .. 3)
{
	$table->safe_psql('postgres', "SELECT 'loaded $number'");
	ok(table_loaded($table), "the table is loaded, $number");
}
is( unaudited_sql($table, q{SELECT count(*) FROM audit_records
		WHERE backend_type = 'pg_audit_queue loader' AND command <> 'RETENTION'}),
	'0', 'no rule records what the loader does');
$table->stop;
done_testing();
