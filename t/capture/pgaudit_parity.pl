#
# Equality with pgaudit: one server has both libraries, each session has the
# same settings for both, and the records of both are compared.
#
# t/lib/parity/ has the SQL, a file for each topic; one whose name ends in a number is
# for that major version and later ones.  Sessions that need the protocol are
# below.  A statement that fails is marked in the SQL with /* fails */, or
# /* fails before 19 */ if it works from a major version on, or, if it fails
# within another statement that goes on, with /* caught */.
#
# The two differ on purpose where pgaudit is wrong.  PaqParityRules.pm has the
# rules, doc/differences.md the reasons.  A rule that no
# statement needs is a failure as well.
#
# Each major version of PostgreSQL has a pgaudit of its own, whose records ours are
# to be on that version.  The test compares with the pgaudit that is installed:
# Debian's package, or the one that scripts/test has built of PAQ_PGAUDIT_SOURCE.
# It says which one that was.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqParity;
use PaqParityRules;
use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

chomp(my ($libdir, $sharedir, $includedir) =
	  map { scalar `pg_config --$_` } qw(pkglibdir sharedir includedir-server));

foreach my $file (
	"$libdir/pgaudit.so",
	map { "$sharedir/extension/$_.control" } qw(pgaudit citext cube earthdistance file_fdw
	hstore pg_stat_statements pg_trgm postgres_fdw))
{
	next if -e $file;
	diag "NOT COMPARED WITH PGAUDIT: there is no $file";
	plan skip_all => "there is no $file";
}

my ($version) = slurp_file("$sharedir/extension/pgaudit.control") =~
  /^default_version\s*=\s*'([\d.]+)'/m
  or die 'pgaudit.control names no version';

# What a version number does not tell: whether it leaves out parallel workers
my $in_workers = slurp_file("$libdir/pgaudit.so") !~ /\bParallelWorkerNumber\b/;
my $mended = is_newer($version, '1.7.1') && $version !~ /\.0$/ || is_newer($version, '18.0');

# Does it show a text of several statements as a whole?  From 17 on only for the
# query within another statement, whose place PostgreSQL does not tell.
my $shows_parts = is_newer($version, '17.0');
my $whole_texts = sub {
	my ($r) = @_;

	return !$shows_parts
	  || $r->{class} =~ /^(?:READ|WRITE|FUNCTION)$/ && $r->{command} =~ /^(?:SELECT|INSERT|EXECUTE)$/;
};
my @rules = parity_rules(version => $version, in_workers => $in_workers);

diag 'compared with pgaudit ', $ENV{PAQ_PGAUDIT_VERSION} // "$version, as it is installed";

# The settings: a name for each set of them; log is "all" unless given

my %settings = (
	all        => {},
	client     => { log_client => 'on' },
	relation   => { log_relation => 'on' },
	rows       => { log_rows => 'on' },
	parameter  => { log_parameter => 'on', log_client => 'on' },
	rows_rel   => { log_rows => 'on', log_relation => 'on', log_client => 'on' },
	once       => { log_parameter => 'on', log_statement_once => 'on' },
	once_rel   => {
		log_parameter      => 'on',
		log_statement_once => 'on',
		log_relation       => 'on',
		role               => 'parity_auditor'
	},
	no_text    => {
		log           => 'all, -read',
		log_parameter => 'on',
		log_statement => 'off',
		log_client    => 'on'
	},
	no_query   => { log => 'read', log_relation => 'on', log_statement => 'off' },
	no_cat     => { log_catalog => 'off' },
	no_cat_rel => { log_catalog => 'off', log_relation => 'on', log_rows => 'on' },
	role       => { role => 'parity_auditor', log_client => 'on' },
	role_only  => { log => 'none', role => 'parity_auditor', log_client => 'on' },
	role_all   => {
		role          => 'parity_auditor',
		log_relation  => 'on',
		log_rows      => 'on',
		log_parameter => 'on'
	},
	role_read  => { log => 'read', role => 'parity_auditor', log_parameter => 'on' },
	read       => { log => 'read' },
	write      => { log => 'write', log_client => 'on' },
	ddl        => { log => 'ddl' },
	roles      => { log => 'role' },
	function   => { log => 'function', log_client => 'on' },
	misc       => { log => 'misc' },
	misc_set   => { log => 'misc_set' },
	minus      => { log => 'all, -misc, -ddl', log_rows => 'on' },
	rw_rel     => { log => 'read,write', log_relation => 'on' },
	ddl_role   => { log => 'ddl, role', log_rows => 'on', log_statement_once => 'on' },
	none       => { log => 'none' });

# Each file meets these, those that some rule is about, and some of the others
# in turn; with --full all.

my @always  = qw(all relation rows_rel parameter);
my %special = (
	catalog     => [qw(no_cat no_cat_rel)],
	ddl_objects => [qw(ddl)],
	ddl_tables  => [qw(ddl read)],
	merge       => [qw(misc once_rel write)],
	merge_17    => [qw(misc once_rel role write)],
	new_16      => [qw(ddl role_only)],
	new_18      => [qw(role_only)],
	objects     => [qw(once_rel role role_only)],
	refresh     => [qw(once_rel)],
	security    => [qw(role role_only)],
	utility     => [qw(misc)],
	views       => [qw(once_rel)]);
my @all  = sort keys %settings;
my $turn = 0;

sub settings_for
{
	my ($subject) = @_;
	my %chosen = map { $_ => 1 } @always, @{ $special{$subject} // [] };

	if (full_tests())
	{
		$chosen{$_} = 1 foreach @all;
	}
	else
	{
		# 5 and the number of sets have no common divisor
		$chosen{ $all[ ($turn += 5) % @all ] } = 1 foreach 1 .. 4;
	}

	# what that file is about is to switch it on and off
	return grep { $subject ne 'settings' || !exists $settings{$_}{log_rows} } sort keys %chosen;
}

# Sessions that speak the extended protocol

sub in_pipeline
{
	my ($client) = @_;

	$client->query('CREATE TABLE t (a int, b text)');
	$client->parse('ins', 'INSERT INTO t VALUES ($1, $2)');
	$client->bind('', 'ins', $_, "text $_")->execute('') foreach 1 .. 5;
	$client->bind('', 'ins', 6, undef)->execute('');
	$client->bind('', 'ins', 7, '')->execute('');
	$client->bind('', 'ins', 8, "comma, \"quote\"\nand line")->execute('');
	is($client->sync, '1' . ' 2 C:INSERT_0_1' x 8, 'insertions in a pipeline');
	$client->parse('sel', 'SELECT a, b FROM t WHERE a > $1 AND b <> $2');
	$client->bind('', 'sel', 2, 'text 3')->execute('');
	$client->bind('', 'sel', 3, undef)->execute('');
	is($client->sync, '1 2 D D D D C:SELECT_4 2 C:SELECT_0', 'queries');
	foreach my $sql (
		'UPDATE t SET b = $1',
		'DELETE FROM t WHERE b = $1 RETURNING a',
		'SELECT $1::int + 1',
		'VALUES ($1)',
		'SELECT count(*) FROM pg_class WHERE relname = $1',
		'WITH x AS (INSERT INTO t VALUES (9, $1) RETURNING a) SELECT a FROM x')
	{
		unlike($client->parse('', $sql)->bind('', '', '9')->execute('')->sync,
			qr/E:/, "with a parameter: $sql");
	}
	foreach my $sql (
		'BEGIN', 'SAVEPOINT s', 'CREATE TABLE u (a int)', 'SHOW work_mem',
		'SET LOCAL work_mem = 100', 'COPY t TO STDOUT', 'EXPLAIN SELECT a FROM t',
		'PREPARE p AS SELECT 1', 'EXECUTE p', 'DO $$ BEGIN PERFORM a FROM t; END $$',
		'DECLARE c CURSOR FOR SELECT a FROM t', 'FETCH ALL FROM c', 'CLOSE c',
		'DROP TABLE u', 'ROLLBACK TO s', 'COMMIT', '', 'VACUUM t', 'DROP TABLE t')
	{
		unlike($client->parse('', $sql)->bind('', '')->execute('')->sync,
			qr/E:/, "without: $sql");
	}
	return;
}

sub with_errors
{
	my ($client) = @_;

	$client->query('CREATE TABLE t (a int PRIMARY KEY)');
	$client->parse('ins', 'INSERT INTO t VALUES ($1) /* fails */');
	$client->bind('', 'ins', $_)->execute('') foreach 1, 2, 1, 3;
	is($client->sync, '1 2 C:INSERT_0_1 2 C:INSERT_0_1 2 E:23505', 'a pipeline that fails');
	is($client->parse('', 'SELECT nothing FROM t /* fails */')->sync,
		'E:42703', 'fails to parse');
	is( $client->parse('', 'SELECT 1 / $1::int /* fails */')->bind('', '', 0)->execute('')->sync,
		'1 E:22012', 'fails to be planned');
	is( $client->parse('', 'SELECT $1::int /* fails */')->bind('', '', 'x')->execute('')->sync,
		'1 E:22P02', 'fails to be bound');
	$client->query('INSERT INTO t VALUES (0)');
	is( $client->parse('', 'SELECT 1 / a FROM t /* fails */')->bind('', '')->execute('')->sync,
		'1 2 E:22012', 'fails to be executed');
	$client->query('BEGIN');
	is($client->bind('', 'ins', 5)->execute('')->sync, '2 C:INSERT_0_1', 'a transaction');
	is($client->bind('', 'ins', 5)->execute('')->sync, '2 E:23505', 'it fails');
	is($client->bind('', 'ins', 6)->execute('')->sync, 'E:25P02', 'it is aborted');
	is( $client->parse('', 'ROLLBACK')->bind('', '')->execute('')->sync,
		'1 2 C:ROLLBACK', 'it is rolled back');
	$client->query('SELECT count(*) FROM t; DROP TABLE t');
	return;
}

sub with_row_limits
{
	my ($client) = @_;

	$client->query('CREATE TABLE t AS SELECT generate_series(1, 10) AS a');
	$client->query('BEGIN');
	is( $client->parse('s1', 'SELECT a FROM t -- 1')->parse('s2', 'SELECT a FROM t -- 2')
		  ->bind('p1', 's1')->execute('p1', 3)->sync,
		'1 1 2 D D D s', 'a portal stops');
	is($client->bind('p2', 's2')->execute('p2', 4)->sync, '2 D D D D s', 'a second one');
	$client->query('SELECT 42');
	is($client->execute('p1', 3)->sync, 'D D D s', 'the first goes on');
	$client->query('INSERT INTO t VALUES (11)');
	$client->parse('', 'INSERT INTO t VALUES ($1)')->bind('', '', 12)->execute('')->sync;
	is($client->execute('p2', 0)->sync, 'D D D D D D C:SELECT_6', 'the second ends');
	is($client->close_portal('p1')->sync, '3', 'the first is closed');
	foreach my $sql ('SHOW ALL', 'EXPLAIN SELECT a FROM t', 'VALUES (1), (2), (3)')
	{
		is($client->parse('', $sql)->bind('p', '')->execute('p', 1)->sync,
			'1 2 D s', "stops: $sql");
		$client->query('SET LOCAL work_mem = 100; CREATE TABLE u (a int)');
		$client->query('DO $$ BEGIN PERFORM a FROM t; END $$; DROP TABLE u');
		like($client->execute('p')->close_portal('p')->sync, qr/C:/, 'and goes on');
	}
	$client->query('COMMIT');
	$client->query('SELECT 44');
	$client->query('DROP TABLE t');
	return;
}

# Where pgaudit makes statements fail: of these 1.7.1 and the like have mended
# CALL, and FETCH without another version
my %confused = (
	EXECUTE => qr/^E:XX000$/,
	CALL    => $mended ? qr/^C:SET$/ : qr/^E:XX000$/,
	FETCH   => $mended ? qr/^(?:E:XX000|C:SET)$/ : qr/^E:XX000$/);

sub with_confusion
{
	my ($client) = @_;

	$client->query('CREATE TABLE t AS SELECT generate_series(1, 10) AS a');
	$client->query('CREATE PROCEDURE p(INOUT x int) LANGUAGE plpgsql AS $$ BEGIN END $$');
	$client->query('PREPARE e AS SELECT a FROM t');
	foreach my $sql ('EXECUTE e', 'FETCH ALL FROM c', 'CALL p(1)')
	{
		$client->query('BEGIN');
		$client->query('DECLARE c CURSOR FOR SELECT a FROM t');
		is($client->parse('', $sql)->bind('p', '')->execute('p', 1)->sync,
			'1 2 D s', "stops: $sql");
		like($client->query('SET LOCAL work_mem = 100 /* fails */'),
			$confused{ (split / /, $sql)[0] }, 'pgaudit is, or is not, confused');
		$client->query('ROLLBACK');
	}
	$client->query('DROP PROCEDURE p');
	$client->query('DROP TABLE t');
	return;
}

my %protocol = (
	pipeline  => \&in_pipeline,
	errors    => \&with_errors,
	portals   => \&with_row_limits,
	confusion => \&with_confusion);

# Random sessions.  Whether a statement fails depends on those before it, so
# each has the mark of one that may.

my @random_statements = (
	'SELECT a, b FROM t WHERE a = %d',
	'SELECT count(*) FROM t, u',
	'SELECT f(%d)',
	'SELECT f(a), w(a) FROM t LIMIT 2',
	'SELECT w(%d)',
	'SELECT 10 / (%d - 5)',
	'SELECT 10 / (a - 5) FROM t',
	'SELECT nothing',
	'SELECT a FROM v FOR UPDATE',
	'SELECT * FROM secret',
	'SELECT d(%d)',
	q{INSERT INTO t VALUES (%d, 'random')},
	'INSERT INTO t VALUES (%d, f(%d)::text) ON CONFLICT (a) DO UPDATE SET b = excluded.b',
	'INSERT INTO u SELECT a FROM t LIMIT %d',
	'INSERT INTO u VALUES (%d)',
	'UPDATE t SET a = a + %d',
	'UPDATE v SET b = f(%d)::text WHERE a > %d',
	'DELETE FROM t WHERE a = %d',
	'DELETE FROM u WHERE a <> %d RETURNING a',
	'WITH x AS (DELETE FROM u RETURNING a) INSERT INTO t SELECT a + %d FROM x',
	'TRUNCATE u', 'TRUNCATE t',
	'CALL p(%d)', 'CALL c(%d)',
	'DO $$ BEGIN PERFORM w(%d); INSERT INTO u VALUES (%d); END $$',
	'DO $$ BEGIN PERFORM 1 / (%d - 5); EXCEPTION WHEN OTHERS THEN PERFORM f(%d); END $$',
	'DO $$ BEGIN FOR i IN 1 .. %d LOOP DELETE FROM u WHERE a = i; COMMIT; END LOOP; END $$',
	'BEGIN', 'BEGIN', 'BEGIN', 'BEGIN ISOLATION LEVEL SERIALIZABLE', 'COMMIT', 'COMMIT',
	'ROLLBACK', 'COMMIT AND CHAIN', 'SAVEPOINT s', 'ROLLBACK TO s', 'ROLLBACK TO s', 'RELEASE s',
	'SET CONSTRAINTS ALL IMMEDIATE', 'SET LOCAL work_mem = %d', 'SHOW work_mem',
	'DECLARE c%n CURSOR FOR SELECT a, f(a) FROM t',
	'DECLARE c%n CURSOR WITH HOLD FOR SELECT 10 / (a - 5) FROM t',
	'FETCH 1 FROM c%n', 'FETCH ALL FROM c%n', 'MOVE 2 FROM c%n', 'CLOSE c%n', 'CLOSE ALL',
	'PREPARE p%n AS SELECT a, f($1) FROM t WHERE a = $1',
	'PREPARE p%n AS INSERT INTO u VALUES ($1)', 'EXECUTE p%n (%d)', 'DEALLOCATE p%n',
	'CREATE TABLE n%n (a int PRIMARY KEY, b serial)', 'DROP TABLE n%n',
	'CREATE TABLE n%n AS SELECT f(a) FROM t',
	'ALTER TABLE n%n ADD COLUMN c int', 'CREATE INDEX ON n%n (a)', 'GRANT SELECT ON n%n TO PUBLIC',
	'SELECT * FROM n%n', 'INSERT INTO n%n VALUES (%d)', 'COPY t TO STDOUT',
	'COPY (SELECT f(a) FROM u) TO STDOUT', 'EXPLAIN SELECT f(a) FROM t', 'ANALYZE u', 'VACUUM t',
	'EXPLAIN (ANALYZE) INSERT INTO u VALUES (%d)', 'LOCK TABLE u', 'SET ROLE parity_random',
	'RESET ROLE', 'RESET ROLE');

# A file of random statements, always the same for the same seed.  %d is a
# number, and %n one that names something.
sub random_file
{
	my ($seed, $directory) = @_;
	my $file = "$directory/random$seed.sql";
	my $sql  = slurp_file("$FindBin::RealBin/../lib/parity/random.sql");
	my @statements;

	srand($seed);
	foreach (1 .. 200)
	{
		my $statement = $random_statements[ rand @random_statements ];

		$statement =~ s/%d/int(rand 8)/ge;
		$statement =~ s/%n/int(rand 3)/ge;
		$statement =~ s{ |$}{ /* caught */ };

		# some are sent in a string with the next one; most errors end the
		# transaction
		$statement .= rand() < 0.1 ? '\\;' : ";\n";
		$statement .= "\\if :ERROR\nROLLBACK;\n\\endif\n"
		  if $statement =~ /\n/ && rand() < 0.7;
		push @statements, $statement;
	}
	$sql =~ s/^-- random statements\n/join('', @statements, ";\n")/em
	  or die 'no place for random statements';
	append_to_file($file, $sql);
	return $file;
}

# Client programs

sub programs
{
	my ($node, $database) = @_;
	my @connection = ('-h', $node->host, '-p', $node->port);
	my @all = map { [ (ref $_ ? @$_ : $_), @connection, $database ] }
	  ([qw(pgbench -i -q -s 1)], (map { [ qw(pgbench -t 5 -n -M), $_ ] } qw(simple extended prepared)),
		'pg_dump', 'vacuumdb', 'reindexdb', [qw(vacuumdb -z --full)]);

	foreach my $command (@all, [ @{ $all[0] }[ 0 ], qw(-i -I d), @connection, $database ])
	{
		my $output;

		ok(IPC::Run::run($command, '<', \undef, '>&', \$output), "@$command")
		  or diag $output;
	}
	return;
}

# Run it all

my $parity = PaqParity->new(
	'main',
	preload     => 'pgaudit, pg_audit_queue',
	whole_texts => $whole_texts,
	rules       => \@rules);
my @subjects = map { m{([^/]*)\.sql$} } glob "$FindBin::RealBin/../lib/parity/*.sql";
my ($major) = `pg_config --version` =~ /(\d+)/;

# For work on this test: names of files, or of the subs below, and of settings
# that are to be used alone.  Rules and numbers do not count then.
my $selected = $ENV{PARITY_FILES} || $ENV{PARITY_SETTINGS};

sub is_wanted
{
	my ($name, $variable) = @_;

	return !$ENV{$variable} || $ENV{$variable} =~ /\b$name\b/;
}

# new_18.sql has what there is from PostgreSQL 18 on
@subjects = grep { !/_(\d+)$/ || $1 <= $major } @subjects;
@subjects = grep { is_wanted($_, 'PARITY_FILES') && $_ ne 'random' } @subjects;
foreach my $subject (@subjects)
{
	$parity->run_file($subject, $_, log => 'all', %{ $settings{$_} })
	  foreach grep { is_wanted($_, 'PARITY_SETTINGS') } settings_for($subject);
}
foreach my $subject (grep { is_wanted($_, 'PARITY_FILES') } sort keys %protocol)
{
	foreach my $name (qw(all rows once role_all no_text))
	{
		$parity->run_sub(
			$subject, $name,
			sub {
				my ($node, $database) = @_;
				my $client = PgProto->connect($node, database => $database);

				$protocol{$subject}->($client);
				$client->quit;
			},
			log => 'all',
			%{ $settings{$name} });
	}
}
if (is_wanted('random', 'PARITY_FILES'))
{
	my @sets = grep { !exists $settings{$_}{log_rows} && $_ ne 'no_text' } @all;

	foreach my $seed (1 .. (full_tests() ? 100 : 5))
	{
		my $set = $sets[ $seed % @sets ];

		$parity->run_file(
			'random', "seed $seed, $set",
			file => random_file($seed, $parity->directory),
			log  => 'all',
			%{ $settings{$set} });
	}
}
if (is_wanted('programs', 'PARITY_FILES'))
{
	$parity->run_sub('programs', $_, \&programs, log => 'all', %{ $settings{$_} })
	  foreach qw(all no_cat once_rel);
}
$parity->run_file(
	'prepare', 'max_size',
	log                    => 'all',
	log_parameter          => 'on',
	log_parameter_max_size => 10);
my ($count, $shown, $parts) = $parity->compare;

is(texts_in_trail($parity->node, 'tOpSeCrEt'), 0, 'no secret is in the trail');
note "$count records and $shown messages to clients are equal, $parts with a part of the text";
$parity->check_rules unless $selected;
cmp_ok($count, '>', 10_000, 'enough to mean something') unless $selected;
cmp_ok(
	$parts,
	$shows_parts ? '<' : '>',
	$shows_parts ? 200   : 100,
	'parts of a text are among them') unless $selected;
$parity->node->stop;

# The other order of loading, and pgaudit's format

my $reverse = PaqParity->new(
	'reverse',
	preload     => 'pg_audit_queue, pgaudit',
	settings    => { format => 'pgaudit' },
	whole_texts => $whole_texts,
	rules       => \@rules);

foreach my $subject (grep { is_wanted($_, 'PARITY_FILES') }
	qw(copy cursors ddl_tables dml multi plpgsql prepare text triggers))
{
	$reverse->run_file($subject, $_, log => 'all', %{ $settings{$_} })
	  foreach qw(all rows once_rel);
}
($count) = $reverse->compare;
note "$count records are equal, in format pgaudit";
cmp_ok($count, '>', 2_000, 'enough to mean something') unless $selected;

# Every command that there is has been compared, except for the names that
# PostgreSQL has for nothing, and for what pgaudit or this test cannot do.

my %without = map { $_ => 1 } (
	'???', 'ALTER ACCESS METHOD', 'ALTER CAST', 'ALTER CONSTRAINT', 'ALTER TRANSFORM', 'CLOSE',
	'COPY FROM', 'CREATE CONSTRAINT', 'CREATE ROUTINE', 'DISCARD', 'DROP CONSTRAINT', 'LOGIN', 'MERGE',
	'SECURITY LABEL', 'SELECT FOR KEY SHARE', 'SELECT FOR NO KEY UPDATE', 'SELECT FOR SHARE',
	'SELECT FOR UPDATE');
my @missing = grep { !$parity->commands->{$_} && !$without{$_} }
  slurp_file("$includedir/tcop/cmdtaglist.h") =~ /^PG_CMDTAG\(\w+, "([^"]*)"/gm;

is(join(', ', @missing), '', 'every command has been compared') unless $selected;
done_testing();
