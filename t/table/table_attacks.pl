# sink = table: only the loader changes the trail, and only its readers read it.
# Mistakes of a superuser lose no record.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqInit qw(crc32c);
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { sink => 'table', flush_interval => '10ms', database => 'trail' },
	conf     => "autovacuum = off\n",
	start    => 0);

sub sql
{
	my ($sql, $database) = @_;

	return unaudited_sql($node, $sql, $database // 'trail');
}

# Number of records of leave() with the text
sub found
{
	return sql("SELECT count(*) FROM audit_records WHERE command_text = \$\$SELECT '$_[0]'\$\$");
}

# Run a statement that leaves a record with the text.
sub leave
{
	$node->safe_psql('postgres', "SELECT '$_[0]'");
	return;
}

# Is all in the table, at last, that was recorded before?  What load_state says is
# not asked for.
my $marks = 0;

sub loaded
{
	my $mark = 'mark-' . ++$marks . '-';

	leave($mark);
	return poll_until(sub { found($mark) == 1 }) ? 1 : 0;
}

# Files that are to be loaded, and kept ones
sub files
{
	my @files = glob(queue_dir($node) . '/load/*');

	return $_[0] ? grep { /\.kept$/ } @files : grep { !/\.kept$/ } @files;
}

sub reload
{
	my (%settings) = @_;

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	return;
}

# End the current file, and wait until all files before the next one have gone.
sub next_file
{
	unaudited_sql($node, 'SELECT audit_rotate()', 'trail');
	leave('next file-');
	return poll_until(sub { loaded() && files() == 1 });
}

$node->start;
sql('CREATE ROLE owner LOGIN', 'postgres');
sql('CREATE DATABASE trail', 'postgres');
create_extension($node, $_) foreach qw(postgres trail);
leave('first-');
is(loaded(), 1, 'the table works');
my $today = sql("SELECT 'audit_queue.records_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')");

# Members of the predefined roles, all of which there are, and the database's owner

my @roles = split /\n/,
  sql("SELECT rolname FROM pg_roles WHERE rolname LIKE 'pg\\_%' AND rolname NOT IN"
	  . " ('pg_database_owner', 'pg_read_server_files', 'pg_write_server_files',"
	  . " 'pg_execute_server_program')");
sql("CREATE ROLE member_of_$_ LOGIN IN ROLE $_") foreach @roles;
sql('CREATE ROLE member_of_all LOGIN IN ROLE ' . join ', ', @roles);

# What a role can see, or change, of a table.  The answer of a statement that fails
# is its error.
sub attempt
{
	my ($role, $sql) = @_;
	my ($ret, $stdout, $stderr) = $node->psql('trail', $sql,
		connstr => $node->connstr('trail') . " user=$role");

	return $stderr =~ /ERROR:  (.*)/ ? "error: $1" : $stdout;
}

my @tables = ('audit_queue.records', 'audit_queue.load_state', $today);
my $contents = 'SELECT (SELECT count(*) FROM audit_queue.records WHERE command_text LIKE $$%first-%$$'
  . ' AND user_name <> $$paq_quiet$$),'
  . ' (SELECT count(*) FROM audit_queue.load_state WHERE sequence > 0 AND series > 0),'
  . ' (SELECT string_agg(relacl::text, $$|$$ ORDER BY oid) FROM pg_class'
  . ' WHERE relnamespace = $$audit_queue$$::regnamespace)';
my $before = sql($contents);

sql('ALTER DATABASE trail OWNER TO owner; GRANT USAGE ON SCHEMA audit_queue TO owner');
sql('GRANT CREATE ON SCHEMA public TO PUBLIC');
foreach my $role ('owner', 'member_of_all', map { "member_of_$_" } @roles)
{
	my %answer;

	foreach my $table (@tables)
	{
		my $column = $table =~ /load_state/ ? 'sequence' : 'command_text';

		# Row security lets them do that, to no row.
		foreach my $statement (
			"SELECT $column FROM $table",
			"SELECT $column FROM $table FOR UPDATE",
			"TABLE $table",
			"COPY $table TO STDOUT",
			"COPY (SELECT $column FROM $table) TO STDOUT",
			"UPDATE $table SET $column = '0'",
			"UPDATE $table SET $column = '0' WHERE true RETURNING $column",
			"DELETE FROM $table",
			"DELETE FROM ONLY $table RETURNING 1",
			"MERGE INTO $table USING (VALUES (1)) s ON true WHEN MATCHED THEN DELETE",
			(
				map { "$_ $table" } 'VACUUM', 'VACUUM FULL', 'ANALYZE', 'REINDEX TABLE',
				'BEGIN; LOCK TABLE'),
			"SELECT most_common_vals FROM pg_stats WHERE schemaname = 'audit_queue'")
		{
			my $answer = attempt($role, $statement);

			$answer{$statement} = $answer if $answer !~ /^(?:|error: .*)$/;
		}

		# That fails.
		foreach my $statement (
			"INSERT INTO $table (series, sequence, "
			  . ($table =~ /load_state/ ? 'loaded, checksum) VALUES (1, 1, now(), 1)'
				: 'log_time, interrupted, cut, incomplete, type)'
				  . " VALUES (1, 1, now(), false, false, false, 'record')"),
			"TRUNCATE $table",
			"DROP TABLE $table",
			"ALTER TABLE $table DISABLE ROW LEVEL SECURITY",
			"CREATE POLICY p ON $table USING (true)",
			"CREATE TRIGGER t BEFORE INSERT ON $table"
			  . ' EXECUTE FUNCTION suppress_redundant_updates_trigger()',
			"CREATE RULE r AS ON INSERT TO $table DO INSTEAD NOTHING",
			"CREATE TABLE child () INHERITS ($table)",
			'CREATE TABLE child PARTITION OF audit_queue.records DEFAULT',
			"CREATE TABLE child (a bigint REFERENCES $table)",
			"CREATE INDEX ON $table ((1/0))",
			"CREATE STATISTICS s ON series, sequence FROM $table",
			"CREATE PUBLICATION p FOR TABLE $table",
			"CLUSTER $table USING i")
		{
			my $answer = attempt($role, $statement);

			$answer{$statement} = "succeeds: $answer" if $answer !~ /^error: /;
		}
	}
	is(join("\n", map { "$_: $answer{$_}" } sort keys %answer), '', "$role sees and does nothing");
	is(sql($contents), $before, "$role has changed nothing");
	is(attempt($role, 'SELECT count(*) FROM audit_records') =~ /^(?:0|error: permission denied.*)$/,
		1, "$role sees nothing in the view");
}
sql('ALTER DATABASE trail OWNER TO CURRENT_USER');
leave('after the roles-');
is(loaded(), 1, 'loading goes on');
is(found($_), 1, "$_ once") foreach 'first-', 'after the roles-';

# ANALYZE, which some of them may, has found nothing that a record says.
is( sql("SELECT string_agg(DISTINCT attname, ',' ORDER BY attname)"
		  . ' FROM pg_statistic JOIN pg_attribute ON attrelid = starelid AND attnum = staattnum'
		  . ' JOIN pg_class c ON c.oid = starelid'
		  . " WHERE relnamespace = 'audit_queue'::regnamespace AND relname LIKE 'records%'"),
	'log_time,sequence,series', 'statistics of what identifies a record, and no others');

# Who maintains tables may lock them, through the view without any privilege on
# the schema, and may set their statistics.  That holds up nobody but the loader.
SKIP:
{
	skip 'before PostgreSQL 17 nobody but its owner maintains a table', 6
	  if $node->pg_version->major < 17;

	my $log    = -s $node->logfile;
	my $locker = start_psql($node, 'BEGIN; LOCK TABLE audit_records; SELECT pg_sleep(600);',
		database => 'trail', user => 'member_of_pg_maintain');
	my $lock_held = "FROM pg_locks WHERE relation = 'audit_queue.records'::regclass"
	  . " AND mode = 'AccessExclusiveLock' AND granted";

	ok(poll_until(sub { sql("SELECT count(*) $lock_held") }), 'pg_maintain locks the table');
	{
		local $ENV{PGOPTIONS} = '-c pg_audit_queue.mode=immediate';
		leave('locked-');
	}
	ok(wait_for_log($node, qr/cannot be loaded into the table: .*lock timeout/, $log),
		'it is reported');
	is(scalar(grep { slurp_file($_) =~ /locked-/ } files()), 1, 'the record is in a file');
	sql("SELECT pg_terminate_backend(pid) $lock_held");
	finish_psql($locker);
	is(loaded(), 1, 'loading goes on');
	is(found('locked-'), 1, 'with that record');
	skip 'before PostgreSQL 18 nobody sets statistics', 1 if $node->pg_version->major < 18;
	my $statistics = 'SELECT pg_restore_relation_stats(\'schemaname\', \'audit_queue\','
	  . ' \'relname\', \'records\', \'reltuples\', 1e9::real)';
	is(attempt('member_of_pg_maintain', $statistics),
		'error: permission denied for schema audit_queue', 'it sets no statistics');
}

sql('GRANT audit_queue_reader TO member_of_pg_write_all_data');
is(attempt('member_of_pg_write_all_data', "SELECT count(*) FROM audit_records WHERE command_text = \$\$SELECT 'first-'\$\$"),
	1, 'readers see it');
is(attempt('member_of_pg_write_all_data', "DELETE FROM audit_queue.records WHERE command_text = \$\$SELECT 'first-'\$\$"),
	'', 'a reader who may write all data');
is(found('first-'), 1, 'deletes nothing');

# A table that belongs to somebody else is not written: what its owner makes of it
# would be done by a superuser.

sql('CREATE FUNCTION public.seize() RETURNS trigger LANGUAGE plpgsql AS'
	  . ' $$ BEGIN ALTER ROLE owner SUPERUSER; RETURN NEW; END $$');
foreach my $table (@tables)
{
	my $log = -s $node->logfile;

	sql("ALTER TABLE $table OWNER TO owner");

	# not on the partitioned table: its partitions belong to somebody else
	sql("SET ROLE owner; CREATE TRIGGER seize BEFORE INSERT OR UPDATE ON $table FOR EACH ROW"
		  . " EXECUTE FUNCTION public.seize(); ALTER TABLE $table ENABLE ALWAYS TRIGGER seize")
	  if $table ne 'audit_queue.records';
	leave("owned $table-");
	ok( wait_for_log(
			$node, qr/cannot be loaded into the table: .*belong to (?:a superuser|superusers)/, $log),
		"$table of somebody else is not written");
	is(sql("SELECT rolsuper FROM pg_roles WHERE rolname = 'owner'"), 'f', 'its triggers are not run')
	  if $table ne 'audit_queue.records';
	sql("DROP TRIGGER IF EXISTS seize ON $table; ALTER TABLE $table OWNER TO CURRENT_USER");
	is(loaded(), 1, 'it is written when it is a superuser\'s again');
	is(found("owned $table-"), 1, 'with each record once');
}

# What load_state says, and the loader has not written there: nothing is loaded.

my %mistakes = (
	'a larger sequence'  => 'UPDATE audit_queue.load_state SET sequence = sequence + 1000',
	'a smaller sequence' => 'UPDATE audit_queue.load_state SET sequence = sequence - 1',
	'no row'             => 'DELETE FROM audit_queue.load_state',
	'no rows'            => 'TRUNCATE audit_queue.load_state');

foreach my $mistake (sort keys %mistakes)
{
	foreach my $when ('while it loads', 'while it does not')
	{
		my $name = "$mistake, $when";
		my $log  = -s $node->logfile;

		leave("before: $name-");
		is(loaded(), 1, "$name: before");
		if ($when =~ /not/)
		{
			reload(sink => 'file');
			poll_until(sub { !defined stats($node)->{loader_pid} }) or die 'a loader';
		}
		sql($mistakes{$mistake});
		reload(sink => 'table') if $when =~ /not/;
		ok( poll_until(sub { stats($node)->{sink} eq 'table' }), "$name: sink");
		leave("after: $name-");
		ok(wait_for_log($node, qr/load_state" says of series \d+ is not what was loaded/, $log),
			"$name: it is reported");
		is(found("after: $name-"), 0, "$name: nothing is loaded");
		is(scalar(grep { slurp_file($_) =~ /after: \Q$name\E-/ } files()), 1,
			"$name: it stays in a file");

		# The message says what helps.
		my ($series, $start) = slurp_file($node->logfile, $log) =~
		  /of series (\d+) is not what was loaded.*?sequence greater than (\d+)/s
		  or die 'no hint';
		sql("BEGIN; DELETE FROM audit_queue.load_state WHERE series = $series;"
			  . " DELETE FROM audit_queue.records WHERE series = $series AND sequence > $start; COMMIT");
		is(loaded(), 1, "$name: what the message says helps");
		is(found("$_: $name-"), 1, "$name: the record $_ is there once") foreach qw(before after);
	}
}

# Nobody is believed who knows how to make the checksum, either: a file goes only
# if its rows are there.

# What makes records of the current file disappear from the table, or never come
my %losses = (
	'forged state' => sub {
		my ($series) = (files())[-1] =~ m{/([0-9A-F]{16})-[^/]*$};

		# while no loader remembers what it has written, or writes on
		reload(sink => 'file');
		poll_until(sub { !defined stats($node)->{loader_pid} }) or die 'a loader';
		my ($number, $sequence, $loaded) = split /\|/,
		  sql("SELECT series, sequence + 1000, (extract(epoch FROM loaded) * 1000000)::bigint"
			  . " - 946684800000000 FROM audit_queue.load_state WHERE series = x'$series'::bigint");
		sql("UPDATE audit_queue.load_state SET sequence = $sequence, checksum = "
			  . unpack('l', pack 'L', crc32c(pack 'Q>Q>q>', $number, $sequence, $loaded)) . " WHERE series = $number");
		append_to_file((files())[-1], slurp_file((files())[-1]) =~
			  s/^.*\n(?=.*lost-)//sr =~ s/"sequence":(\d+)/'"sequence":' . ($1 + 500)/er
			  =~ s/lost-/not loaded-/r);
		reload(sink => 'table');
	},
	'rows deleted'     => sub { sql('DELETE FROM audit_queue.records WHERE command_text LIKE $$%lost-%$$') },
	'table truncated'  => sub { sql('TRUNCATE audit_queue.records') },
	'partition dropped' => sub { sql("DROP TABLE $today") });

foreach my $loss (sort keys %losses)
{
	my $log  = -s $node->logfile;
	my @kept = files('kept');

	unaudited_sql($node, 'SELECT audit_rotate()', 'trail');
	leave("$loss: lost-");
	is(loaded(), 1, "$loss: loaded before");
	$losses{$loss}->();
	is(next_file(), 1, "$loss: loading goes on");
	like(slurp_file($node->logfile, $log),
		qr/WARNING:  records of file ".*" are no longer in the audit table/, "$loss: it is reported");
	my @new = grep { my $file = $_; !grep { $_ eq $file } @kept } files('kept');
	is(scalar(@new), 1, "$loss: the file is kept");
	like(slurp_file($new[0]), qr/\Q$loss\E: lost-/, "$loss: with the record");
}
is(next_file(), 1, 'a file whose records are there');
my $kept = files('kept');
is(next_file(), 1, 'and another one');
is(scalar(files('kept')), $kept, 'go');

# Retention: what somebody has made of a partition does not keep it.  Kept files,
# and rows of load_state, go with the records.

my $old = 'audit_queue.records_20200101';
sql("CREATE TABLE $old PARTITION OF audit_queue.records FOR VALUES FROM"
	  . " ('2020-01-01 00:00:00+00') TO ('2020-01-02 00:00:00+00')");
is(attempt('member_of_pg_read_all_data', "CREATE VIEW keeps_it AS SELECT * FROM $old;"
		  . " CREATE TABLE keeps_it_too (a $old)"), '', 'somebody makes a view of a partition');
sql("INSERT INTO audit_queue.load_state VALUES (1, 7, '2020-01-01', 0), (2, 7, now(), 0)");
my ($first, @others) = files('kept');
my $first_size = -s $first;
utime 1577836800, 1577836800, $first or die "utime: $!";
append_to_file("$first.kept", '');
utime 1577836800, 1577836800, "$first.kept";
my $series_count = sql('SELECT count(*) FROM audit_queue.load_state WHERE series > 2');
reload(table_retention => '1d');
ok(poll_until(sub { sql("SELECT to_regclass('$old') IS NULL") eq 't' }), 'the partition is dropped');
ok(poll_until(sub { !-e $first }), 'an old kept file is removed');
is(loaded(), 1, 'loading goes on');
is( sql('SELECT class, object_type, object_name, old_value, value_source, sqlstate FROM audit_records'
		  . " WHERE command = 'RETENTION' AND object_type = 'FILE'"),
	'CONFIG|FILE|' . $first =~ s{^.*/(?=pg_audit_queue/)}{}r . "|$first_size|"
	  . 'pg_audit_queue.table_retention|00000', 'which is recorded');
is(scalar(grep { !-e } @others), 0, 'younger ones stay');
ok(-e "$first.kept", 'so does what only looks like one');
is(sql('SELECT string_agg(series::text, $$,$$) FROM audit_queue.load_state WHERE series IN (1, 2)'),
	'2', 'an old row of load_state goes');
is(sql('SELECT count(*) FROM audit_queue.load_state WHERE series > 2'), $series_count,
	'those of this server stay');
$node->stop;

done_testing();
