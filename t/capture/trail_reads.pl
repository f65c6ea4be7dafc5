# Uses of the trail are recorded, whatever the settings are: the table, its partitions
# wherever they are, and files, by each way that SQL has.
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
	settings => { log => 'all, -connect', sink => 'table', flush_interval => '10ms' },
	init     => [ allows_streaming => 1 ],
	conf     => "autovacuum = off\n");
my $parallel = force_parallel($node);

sub sql
{
	return unaudited_sql($node, @_);
}

# Some records

$node->safe_psql('postgres', "SELECT '$_'") foreach 1 .. 3;
$node->safe_psql('postgres', "SELECT repeat('many bytes', 100000)");
ok(table_loaded($node), 'there are records in the table');
my $partition = sql('SELECT tableoid::regclass FROM audit_queue.records ORDER BY sequence LIMIT 1');
is( sql(q{SELECT count(*) FROM audit_queue.records WHERE user_name <> 'paq_quiet' AND
		(object_name ~ 'records' OR backend_type ~ 'loader')}),
	'0', 'the loader leaves no records of what it does');

# The rest is easier to see in files.
$node->append_conf('postgresql.conf', settings_text(sink => 'file'));
$node->restart;
my $count = sql('SELECT count(*) FROM audit_queue.records');
my $part  = sql("SELECT count(*) FROM $partition");
my $toast = sql(qq{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = '$partition'::regclass});

sql(<<"SQL");
CREATE ROLE boss SUPERUSER LOGIN;
CREATE ROLE auditor LOGIN IN ROLE audit_queue_reader;
CREATE ROLE nobody LOGIN;
CREATE ROLE visitor LOGIN;
CREATE ROLE watched;
CREATE TABLE t AS SELECT 1 AS a;
GRANT ALL ON t TO PUBLIC;
GRANT SELECT ON t TO watched;
GRANT USAGE ON SCHEMA audit_queue TO visitor;
GRANT USAGE, CREATE ON SCHEMA public TO PUBLIC;

-- a partition elsewhere, and one of the second level
CREATE SCHEMA elsewhere;
GRANT USAGE ON SCHEMA elsewhere TO PUBLIC;
CREATE TABLE elsewhere.moved PARTITION OF audit_queue.records
	FOR VALUES FROM ('2001-01-01') TO ('2001-01-02') PARTITION BY RANGE (log_time);
CREATE TABLE elsewhere.leaf PARTITION OF elsewhere.moved
	FOR VALUES FROM ('2001-01-01') TO ('2001-01-02');
GRANT SELECT ON elsewhere.leaf TO PUBLIC;

-- a table of the trail's that is the child of another one
CREATE TABLE elsewhere.parent (a int);
CREATE TABLE audit_queue.child () INHERITS (elsewhere.parent);
GRANT SELECT ON elsewhere.parent TO PUBLIC;

CREATE VIEW users_view AS SELECT * FROM audit_queue.records;
GRANT SELECT ON users_view TO PUBLIC;
CREATE FUNCTION definer() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS
	'BEGIN RETURN (SELECT /* definer */ count(*) FROM audit_queue.records); END';
CREATE FUNCTION unset() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
	SET pg_audit_queue.log = 'none' SET pg_audit_queue.role = '' AS
	'BEGIN RETURN (SELECT /* unset */ count(*) FROM audit_queue.records); END';
CREATE FUNCTION of_sql() RETURNS SETOF audit_queue.records LANGUAGE sql SECURITY DEFINER AS
	'SELECT /* of_sql */ * FROM audit_queue.records';
CREATE FUNCTION inlined() RETURNS SETOF audit_queue.records LANGUAGE sql STABLE AS
	'SELECT * FROM audit_queue.records';
SQL

# What does not use the trail; each can stand between what does.
my @others = (
	"SELECT pg_stat_file('postgresql.conf') IS NULL", 'SELECT a FROM t', 'SELECT count(*) FROM pg_class', 'COPY t TO STDOUT',
	'COPY pg_class (oid) TO STDOUT', 'SELECT count(*) FROM pg_stat_audit_queue',
	'SELECT count(*) FROM audit_queue_stats', 'UPDATE t SET a = a');

# Ways to use the trail.  The text of each has its name in a comment, in place of %s.
#
#	who		list of roles; boss and auditor unless given
#	object	that its one record names, 'audit_queue.records' unless given
#	class	READ unless given
#	state	SQLSTATE, 00000 unless given
#	rows	that it reads; 1 unless given, none if it fails
#	names	number of its records where the settings already have names in them
my %ways = (
	plain     => { sql => 'SELECT /* %s */ count(*) FROM audit_queue.records' },
	view      => { sql => 'SELECT /* %s */ count(*) FROM audit_records' },
	rows      => { sql => 'SELECT /* %s */ sequence FROM audit_queue.records', rows => $count },
	nothing   => { sql => 'SELECT /* %s */ FROM audit_queue.records WHERE false', rows => 0 },
	twice     => {
		sql   => 'SELECT /* %s */ count(*) FROM audit_queue.records a, audit_queue.records b',
		names => 2,
	},
	deep      => {
		sql => 'SELECT /* %s */ a FROM t WHERE EXISTS (SELECT FROM audit_queue.records)'
	},
	cte       => {
		sql => 'WITH c AS MATERIALIZED (SELECT * FROM audit_records)'
		  . ' SELECT /* %s */ count(*) FROM c'
	},
	partition => {
		sql    => "SELECT /* %s */ count(*) FROM $partition",
		object => $partition,
		who    => ['boss'],
	},
	copy_partition => {
		sql    => "COPY /* %s */ $partition TO STDOUT",
		object => $partition,
		rows   => $part,
		who    => ['boss'],
	},
	search_path => {
		sql => 'SET search_path = audit_queue;'
		  . ' SELECT /* %s */ count(*) FROM records; RESET search_path',
	},
	copy_search_path => {
		sql => 'SET search_path = elsewhere; COPY /* %s */ leaf TO STDOUT; RESET search_path',
		object => 'elsewhere.leaf',
		rows   => 0,
		who    => ['boss'],
	},
	moved => {
		sql    => 'SELECT /* %s */ count(*) FROM elsewhere.moved',
		object => 'elsewhere.moved',
		who    => ['boss'],
	},
	leaf => {
		sql    => 'SELECT /* %s */ count(*) FROM elsewhere.leaf',
		object => 'elsewhere.leaf',
		who    => [ 'boss', 'auditor', 'nobody' ],
	},
	child => {
		sql    => 'SELECT /* %s */ count(*) FROM elsewhere.parent',
		object => 'audit_queue.child',
		who    => [ 'boss', 'nobody' ],
	},
	toast => {
		sql    => "SELECT /* %s */ count(*) > 0 FROM $toast",
		object => $toast,
		who    => ['boss'],
	},
	users_view  => { sql => 'SELECT /* %s */ count(*) FROM users_view', who => [ 'boss', 'nobody' ] },
	create      => {
		sql  => 'CREATE TEMP TABLE copied AS SELECT /* %s */ sequence FROM audit_records;'
		  . ' DROP TABLE copied',
		rows => $count,
	},
	copy_query  => { sql => 'COPY (SELECT /* %s */ sequence FROM audit_records) TO STDOUT', rows => $count },
	cursor      => {
		sql  => 'BEGIN; DECLARE c CURSOR FOR SELECT /* %s */ sequence FROM audit_records;'
		  . ' SELECT 1; FETCH 1 FROM c; FETCH 1 FROM c; CLOSE c; COMMIT',
		rows => 2,
	},
	open_cursor => {
		sql  => 'BEGIN; DECLARE c CURSOR FOR SELECT /* %s */ sequence FROM audit_records;'
		  . ' FETCH 1 FROM c; SELECT 1; COMMIT',
		rows => 1,
	},
	hold        => {
		sql  => 'DECLARE c CURSOR WITH HOLD FOR SELECT /* %s */ sequence FROM audit_records;'
		  . ' FETCH ALL FROM c; CLOSE c',
		rows => $count,
	},
	prepared    => {
		sql => 'PREPARE p AS SELECT /* %s */ count(*) FROM audit_records; EXECUTE p; DEALLOCATE p'
	},
	analyze     => { sql => 'EXPLAIN (ANALYZE, TIMING off) SELECT /* %s */ count(*) FROM audit_records' },
	explain     => { sql => 'EXPLAIN SELECT /* %s */ count(*) FROM audit_records', rows => undef },
	do          => { sql => 'DO $$BEGIN PERFORM /* %s */ count(*) FROM audit_records; END$$' },
	dynamic     => {
		sql => q{DO $$BEGIN EXECUTE 'SELECT /* %s */ count(*) FROM audit_records'; END$$}
	},
	parallel    => {
		sql => "SET $parallel = on; SELECT /* %s */ count(*) FROM audit_records; RESET $parallel"
	},
	definer     => { sql => 'SELECT definer()', who => [ 'boss', 'auditor', 'nobody' ] },
	unset       => { sql => 'SELECT unset()', who => [ 'boss', 'nobody' ] },
	of_sql      => { sql => 'SELECT count(*) FROM of_sql()', rows => $count, who => [ 'boss', 'nobody' ] },
	inlined     => { sql => 'SELECT /* %s */ count(*) FROM inlined()' },
	update      => {
		sql   => 'UPDATE /* %s */ audit_queue.records SET command = command WHERE false',
		class => 'WRITE',
		rows  => 0,
		who   => ['boss'],
	},
	returning   => {
		sql   => 'WITH d AS (DELETE FROM audit_queue.records WHERE false RETURNING *)'
		  . ' SELECT /* %s */ FROM d',
		class => 'WRITE',
		rows  => 0,
		who   => ['boss'],
	},
	locked => { sql => 'SELECT /* %s */ FROM audit_queue.records FOR UPDATE', rows => $count, who => ['boss'] },

	# while settings change
	set_in_between => {
		sql => "BEGIN; SET LOCAL pg_audit_queue.log = 'none'; SET LOCAL pg_audit_queue.role = '';"
		  . ' SELECT /* %s */ count(*) FROM audit_records; COMMIT',
		who => ['boss']
	},

	# failures
	failing   => { sql => 'SELECT /* %s */ 1 / (count(*) * 0) FROM audit_records', state => '22012' },
	direct    => {
		sql   => 'SELECT /* %s */ count(*) FROM audit_queue.records',
		state => '42501',
		who   => ['visitor'],
	},
	changing  => {
		sql   => 'DELETE /* %s */ FROM audit_queue.records',
		class => 'WRITE',
		state => '42501',
		who   => [ 'auditor', 'visitor' ],
	},
	copy_denied => {
		sql   => 'COPY /* %s */ audit_queue.records TO STDOUT',
		state => '42501',
		who   => [ 'nobody', 'visitor' ],
	},
	copy_table => {
		sql   => 'COPY /* %s */ audit_queue.records TO STDOUT',
		state => '42809',
		who   => ['boss'],
	},
	rolled_back => {
		sql  => 'BEGIN; SELECT /* %s */ count(*) FROM audit_records; ROLLBACK',
	},
	savepoint   => {
		sql => 'BEGIN; SAVEPOINT s; SELECT /* %s */ count(*) FROM audit_records;'
		  . ' ROLLBACK TO s; COMMIT',
	},
);

# Before PostgreSQL 19, COPY does not take a partitioned table.  For readers row
# security makes it a query.
$ways{copy_table}{state} = '00000', $ways{copy_table}{rows} = $count
  if $node->pg_version->major >= 19;
$ways{copy_leaf} = {
	sql    => 'COPY /* %s */ elsewhere.leaf TO STDOUT',
	object => 'elsewhere.leaf',
	rows   => 0,
	who    => [ 'boss', 'auditor', 'nobody' ],
};

my %settings = (
	'none'           => { log => 'none' },
	'write'          => { log => 'write' },
	'write, names'   => { log => 'write', log_relation => 'on' },
	'all'            => { log => 'all, -connect' },
	'all, names'     => { log => 'all, -connect', log_relation => 'on' },
	'as little'      => {
		log => 'none', log_catalog => 'off', log_parameter => 'off', log_rows => 'off',
		log_statement_once => 'on'
	},
	'rows'           => { log => 'all, -connect', log_rows => 'on' },
	'rows, names'    => { log => 'all, -connect', log_rows => 'on', log_relation => 'on' },
	'role'           => { log => 'none', role => 'watched' },
	'role, all'      => { log => 'all, -connect', role => 'watched', log_relation => 'on' });

my @defaults = qw(log log_catalog log_parameter log_relation log_rows log_statement_once role);
my @roles    = qw(boss auditor nobody visitor);

# One session for each role does everything.
sub work_as
{
	my ($role) = @_;
	my @script;

	foreach my $name (sort keys %ways)
	{
		my $way = $ways{$name};

		next if !grep { $_ eq $role } @{ $way->{who} // [ 'boss', 'auditor' ] };
		push @script, $way->{sql} =~ s/%s/$name/r, 'ROLLBACK', $others[ @script % @others ];
	}
	$node->psql('postgres', join('', map { "$_;\n" } @script),
		on_error_stop => 0, extra_params => [ '-U', $role ],
		stdout => \my $stdout, stderr => \my $stderr);
	return $stderr;
}

sub set_for_roles
{
	my ($settings) = @_;

	sql(join '', map {
			my $role = $_;
			map {
				"ALTER ROLE $role " . (exists $settings->{$_} ?
					"SET pg_audit_queue.$_ = '$settings->{$_}'" :
					"RESET pg_audit_queue.$_") . ";\n"
			} @defaults
		} @roles);
	return;
}

# The record that names the object, and what else the expectation is
sub expected
{
	my ($role, $name) = @_;
	my $way   = $ways{$name};
	my $state = $way->{state} // '00000';
	my $rows  = exists $way->{rows} ? $way->{rows} // '' : $state eq '00000' ? 1 : '';

	return join '|', $role, $name, $way->{class} // 'READ', $way->{object} // 'audit_queue.records',
	  $state, $rows;
}

foreach my $case (sort keys %settings)
{
	set_for_roles($settings{$case});
	my @records = records_for($node, sub { work_as($_) foreach @roles });
	my $names   = $case =~ /^all, names|rows, names|role, all/;
	my @got;
	my @want;

	foreach my $role (@roles)
	{
		foreach my $name (sort keys %ways)
		{
			push @want, (expected($role, $name)) x ($names ? $ways{$name}{names} // 1 : 1)
			  if grep { $_ eq $role } @{ $ways{$name}{who} // [ 'boss', 'auditor' ] };
		}
	}
	foreach my $record (@records)
	{
		my ($name) = ($record->{commandText} // '') =~ m{/\* (\w+) \*/};

		next
		  if $record->{auditType} ne 'SESSION'
		  || $record->{class} eq 'FUNCTION'
		  || ($record->{objectName} // '') !~ /^(?:audit_queue|elsewhere|pg_toast)\./;
		next if $record->{objectName} eq 'elsewhere.parent';
		$name //= $record->{commandText} // '';
		push @got, join '|', $record->{sessionUser}, $name, $record->{class}, $record->{objectName},
		  $record->{exitCode} // 'null', $record->{rowCount} // '';
	}
	@got  = sort @got;
	@want = sort @want;
	is_deeply(\@got, \@want, "$case: each use has one record that names what is used")
	  or diag(explain({ missing => [ minus(\@want, \@got) ], 'too many' => [ minus(\@got, \@want) ] }));
	is( join("\n", map { $_->{commandText} // '' } grep { $_->{class} ne 'READ' && $_->{class} ne 'WRITE' ||
				($_->{objectName} // '') !~ /^(?:audit_queue|elsewhere|pg_toast)\./ } @records),
		'', "$case: nothing else is recorded")
	  if $case eq 'none' || $case eq 'as little';
}

# Those in the first list that are not in the second, as often
sub minus
{
	my ($first, $second) = @_;
	my %number;

	$number{$_}++ foreach @$second;
	return grep { !$number{$_} || !$number{$_}-- } @$first;
}

# Files of the trail

my $data    = $node->data_dir;
my $current = stats($node)->{current_file};
my $options = q{(FORMAT csv, QUOTE E'\x01', DELIMITER E'\x02')};
my $links   = PostgreSQL::Test::Utils::tempdir();

(my $name = $current) =~ s{.*/}{};
symlink("$data/audit",         "$links/directory") or die "symlink: $!";
symlink("$data/audit/$name",   "$links/file")      or die "symlink: $!";
symlink("$data/pg_audit_queue", "$links/queue")    or die "symlink: $!";
append_to_file("$links/other", "text\n");
append_to_file("$data/other",  "text\n");
sql(<<'SQL');
CREATE TABLE lines (line text);
GRANT INSERT ON lines TO PUBLIC;
CREATE ROLE reads_files LOGIN IN ROLE pg_read_server_files;
GRANT EXECUTE ON FUNCTION pg_read_file(text), lo_import(text) TO reads_files;
GRANT USAGE, CREATE ON SCHEMA public TO reads_files;
SQL

my %outcome_of = (
	"$data/audit/$name"            => '00000',
	"audit/$name"                  => '00000',
	"./audit//../audit/./$name"    => '00000',
	"$links/directory/$name"       => '00000',
	"$links/file"                  => '00000',
	'audit/absent'                 => '58P01',
	"$links/directory/absent"      => '58P01',
	'pg_audit_queue/lock'          => '00000',
	"$links/queue/lock"            => '00000');
my @elsewhere = ("$links/other", 'other', "$data/other", 'absent', "$links/absent/absent", 'audit.not/file');

foreach my $case (
	[ 'none', 'reads_files' ], [ 'all, -connect', 'reads_files' ], [ 'all, -connect', 'boss' ])
{
	my ($log, $role) = @$case;

	sql("ALTER ROLE $role SET pg_audit_queue.log = '$log'");
	my @records = records_for(
		$node,
		join('', map { "COPY lines FROM '$_' $options;\n" } sort(keys %outcome_of), @elsewhere),
		on_error_stop => 0,
		extra_params  => [ '-U', $role ]);
	my @named = grep { ($_->{objectType} // '') eq 'FILE' } @records;

	is_deeply(
		[ columns('class command objectName exitCode', @named) ],
		[ map { "READ|COPY|$_|$outcome_of{$_}" } sort keys %outcome_of ],
		"log = $log, $role: COPY FROM a file of the trail, however its name is written");
	is(@records - @named, 0, 'and nothing else is recorded') if $log eq 'none';
}
sql("ALTER ROLE nobody SET pg_audit_queue.log = 'none'");
is_deeply(
	[
		columns('class objectName exitCode',
			records_for(
				$node, "COPY lines FROM '$data/audit/$name'",
				extra_params => [ '-U', 'nobody' ]))
	],
	["READ|$data/audit/$name|42501"],
	'without the right to read files');

# Functions that read files

my %reader = (
	'pg_read_file'        => [ 'other', 'other, 0, 1', 'absent, 0, 1, true' ],
	'pg_read_binary_file' => [ 'other', 'other, 0, 1', 'absent, 0, 1, true' ],
	'lo_import'           => [ "$data/other", "$data/other, 4711" ]);

push @{ $reader{$_} }, 'absent, true' foreach $node->pg_version->major >= 16 ?
  ('pg_read_file', 'pg_read_binary_file') : ();

foreach my $log ('none', 'all, -connect')
{
	my @calls = map {
		my $function = $_;
		map { "SELECT $function(" . s/^([^,]+)/'$1'/r . ')' } @{ $reader{$_} }
	} sort keys %reader;
	my @records;

	sql("ALTER ROLE boss SET pg_audit_queue.log = '$log'; SELECT lo_unlink(oid) FROM pg_largeobject_metadata");
	@records = grep { $_->{class} eq 'FUNCTION' } records_for(
		$node, join('', map { "$_;\n" } @calls),
		on_error_stop => 0, extra_params => [ '-U', 'boss' ]);
	is_deeply(
		[ columns('objectName commandText exitCode', @records) ],
		[
			map {
				my ($function) = /SELECT (\w+)/;

				# where nothing else is recorded, the text is that of the message
				"pg_catalog.$function|"
				  . ($log eq 'none' ? "$_;|" : shown_text($node, "$_;") . '|00000')
			} @calls
		],
		"log = $log: a record for each function that reads a file");

	sql("ALTER ROLE reads_files SET pg_audit_queue.log = '$log'");
	@records = grep { ($_->{objectName} // '') eq 'pg_catalog.pg_read_file' } records_for(
		$node,
		sub {
			my $client = PgProto->connect($node, user => 'reads_files');

			$client->call(sql(q{SELECT 'pg_read_file(text)'::regprocedure::oid}), 'other');
			$client->quit;
			$node->psql('postgres', q{DO $$BEGIN PERFORM pg_read_file('other'); END$$},
				extra_params => [ '-U', 'reads_files' ]);
		});
	is(@records, 2, "log = $log: by a fast-path call, and within another statement");
}

# The same code under another name, which a superuser can give it: by all that PostgreSQL's own
# catalog has of functions that read files

my @code = split /\n/, sql(q{
	SELECT DISTINCT ON (p.prosrc) p.proname || ' ' || p.prosrc || ' ' || pg_get_function_result(p.oid) || ' '
		   || p.pronargs || ' ' || replace(pg_get_function_identity_arguments(p.oid), ' ', '')
	  FROM pg_proc p
	 WHERE p.oid < 10000 AND p.proname IN ('pg_read_file', 'pg_read_binary_file', 'lo_import')
	 ORDER BY p.prosrc, p.oid});
cmp_ok(scalar @code, '>=', 8, 'code that reads files');
foreach my $log ('none', 'all, -connect')
{
	my ($sql, @named) = ('');

	sql("ALTER ROLE boss SET pg_audit_queue.log = 'none'");
	foreach my $line (@code)
	{
		my ($name, $code, $result, undef, $types) = split / /, $line;
		my @values = map { /text/ ? q{'other'} : /oid/ ? 4712 : /bool/ ? 'true' : 1 } split /,/, $types;
		my $alias = 'public.alias_' . @named;

		sql("DROP FUNCTION IF EXISTS $alias($types);
			CREATE FUNCTION $alias($types) RETURNS $result LANGUAGE internal STRICT AS '$code'");
		$sql .= "SELECT $alias(" . join(', ', @values) . ");\n";
		push @named, "$alias|" . ($log eq 'none' ? '' : '00000');
	}
	sql("ALTER ROLE boss SET pg_audit_queue.log = '$log'; SELECT lo_unlink(oid) FROM pg_largeobject_metadata");
	my @records = grep { $_->{class} eq 'FUNCTION' } records_for($node, $sql,
		on_error_stop => 0, extra_params => [ '-U', 'boss' ]);
	is_deeply([ columns('objectName exitCode', @records) ], \@named, "log = $log: by another name");
}
sql(q{CREATE FUNCTION public.alias_of_set(text, text, boolean) RETURNS text LANGUAGE internal AS 'set_config_by_name'});
is_deeply(
	[
		columns('class command',
			records_for($node,
				q{SET pg_audit_queue.log = 'set_role'; SELECT public.alias_of_set('role', 'none', false)},
				extra_params => [ '-U', 'boss' ]))
	],
	['MISC|SET'], 'set_config() by another name');

# A standby

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', settings_text(log_directory => 'standby_audit'));
$standby->start;
sql('GRANT audit_queue_reader TO nobody');
$node->wait_for_catchup($standby);
$standby->safe_psql('postgres', 'SELECT count(*) FROM audit_records',
	extra_params => [ '-U', 'nobody' ]);
unaudited_sql($standby, 'SELECT audit_flush()');
is_deeply(
	[
		columns('class objectName exitCode rowCount',
			grep { $_->{sessionUser} eq 'nobody' }
			map { parse_record($_) }
			map { split /\n/, trail_text($_) } glob($standby->data_dir . '/standby_audit/*.json*'))
	],
	['READ|audit_queue.records|00000|1'],
	'on a standby');
$standby->stop;

# A schema with another name, and settings that the session itself changes

is_deeply(
	[
		columns('class objectName exitCode',
			records_for(
				$node, 'BEGIN; ALTER SCHEMA audit_queue RENAME TO other; SELECT count(*) FROM other.records;'
				  . ' CREATE SCHEMA audit_queue; SELECT count(*) FROM other.records; ROLLBACK',
				settings => { log => 'none' }))
	],
	[ ('READ|other.records|00000') x 2 ],
	'the schema is known by another name');
is_deeply(
	[
		columns('objectName',
			records_for(
				$node, "CREATE TABLE public.later (LIKE audit_queue.records); SELECT FROM later;"
				  . ' ALTER TABLE later SET SCHEMA audit_queue; SELECT FROM audit_queue.later;'
				  . ' ALTER TABLE audit_queue.later SET SCHEMA public; SELECT FROM later;'
				  . " ALTER TABLE audit_queue.records ATTACH PARTITION later FOR VALUES FROM"
				  . " ('1999-01-01') TO ('1999-01-02'); SELECT FROM later;"
				  . ' ALTER TABLE audit_queue.records DETACH PARTITION later; SELECT FROM later',
				settings => { log => 'none' }))
	],
	[ 'audit_queue.later', 'public.later' ],
	'a table becomes one of the trail, and is none any more');

# The script of an extension

SKIP:
{
	my $directory = (`pg_config --sharedir` =~ s/\n//r) . '/extension';

	skip 'no extension can be installed: NOT TESTED', 2 if !-w $directory;
	append_to_file("$directory/paq_reads.control", "default_version = '1'\n");
	append_to_file("$directory/paq_reads--1.sql",
		"CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1';\n"
		  . 'CREATE TABLE of_trail AS SELECT count(*) FROM audit_queue.records;');
	foreach my $log ('none', 'all, -connect')
	{
		my @records = records_for($node, 'CREATE EXTENSION paq_reads; DROP EXTENSION paq_reads',
			settings => { log => $log, log_relation => 'on' });

		is_deeply(
			[
				columns('class objectName rowCount exitCode',
					grep { $_->{class} eq 'READ' && $_->{commandText} =~ /CREATE TABLE of_trail/ } @records)
			],
			['READ|audit_queue.records|1|00000'],
			"log = $log: the script of an extension");
	}
	unlink "$directory/paq_reads.control", "$directory/paq_reads--1.sql";
}

done_testing();
