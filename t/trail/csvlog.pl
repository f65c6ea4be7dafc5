# Format csvlog: the same contents, column by column, as PostgreSQL's own csvlog
# has when pgaudit writes to it.  Readers of that log read ours: a foreign
# table, COPY, pgBadger, Python.  Also rotation, crashes, and files that
# somebody has cut off.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# As PostgreSQL's documentation has them
my @columns = (
	[ log_time               => 'timestamp(3) with time zone' ],
	[ user_name              => 'text' ],
	[ database_name          => 'text' ],
	[ process_id             => 'integer' ],
	[ connection_from        => 'text' ],
	[ session_id             => 'text' ],
	[ session_line_num       => 'bigint' ],
	[ command_tag            => 'text' ],
	[ session_start_time     => 'timestamp with time zone' ],
	[ virtual_transaction_id => 'text' ],
	[ transaction_id         => 'bigint' ],
	[ error_severity         => 'text' ],
	[ sql_state_code         => 'text' ],
	[ message                => 'text' ],
	[ detail                 => 'text' ],
	[ hint                   => 'text' ],
	[ internal_query         => 'text' ],
	[ internal_query_pos     => 'integer' ],
	[ context                => 'text' ],
	[ query                  => 'text' ],
	[ query_pos              => 'integer' ],
	[ location               => 'text' ],
	[ application_name       => 'text' ],
	[ backend_type           => 'text' ],
	[ leader_pid             => 'integer' ],
	[ query_id               => 'bigint' ]);
my $definition = join ', ', map { "$_->[0] $_->[1]" } @columns;
my @names = map { $_->[0] } @columns;

# Rows as hashes
sub rows_of
{
	my (@files) = @_;

	return map { my %row; @row{ @names, 'fields' } = @$_; \%row } parse_trail('csvlog', @files);
}

sub trail_rows
{
	my ($node) = @_;

	return rows_of(trail_files($node));
}

# Sequences without gap or repetition, whatever the order of the files
sub check_sequences
{
	my ($name, @rows) = @_;
	my @sequences = map { $_->{location} } @rows;

	is_deeply(\@sequences, [ 1 .. @rows ], "$name: contiguous sequence");
	return;
}

# Texts that are hard on quoting
my @texts = (
	"lines\nand\r\nmore\r", 'a "quoted" one, with commas', "\ttabs\t", '""', '"', ',', "'\\.\n\\.\n'",
	'back\\slash \\x41', "\x{c3}\x{a9}\x{e2}\x{82}\x{ac}\x{f0}\x{9f}\x{98}\x{80}", "a\n\"b\",,\n\"\n",
	"2026-11-20 10:11:12.123 UTC,\"u\",\"d\",1,\"[local]\",1.1,1,\"SELECT\",,,0,LOG,00000,"
	  . "\"AUDIT: x\",,,,,,,,\"1\",,,,0\n"
);

# ---------------------------------------------------------------------------
# Beside PostgreSQL's own
# ---------------------------------------------------------------------------

chomp(my ($libdir, $sharedir) = map { scalar `pg_config --$_` } qw(pkglibdir sharedir));

sub compare_with_pgaudit
{
	my $node = audited_node(
		'beside',
		settings => { format => 'csvlog', log => 'all, -error, -connect', log_parameter => 'on' },
		conf     => q{
		shared_preload_libraries = 'pgaudit, pg_audit_queue'
		pgaudit.log_parameter = on
		log_statement = none
		logging_collector = on
		log_destination = 'csvlog'
		log_directory = 'log'
		log_filename = 'server.log'
		log_rotation_age = 0
		log_rotation_size = 0
		log_timezone = 'Asia/Kolkata'
		compute_query_id = on
		});
	my $log = $node->data_dir . '/log/server.csv';

	my $superuser = getpwuid($>);

	# for us it is in the configuration, and this must not be in the log
	unaudited_sql($node, "CREATE TABLE t (a int, b text);
		ALTER ROLE $superuser SET pgaudit.log = 'all'");
	local $ENV{PGAPPNAME} = 'an "app", no?';
	$node->safe_psql('postgres', $_) foreach (
		'SELECT 1', "INSERT INTO t VALUES (1, 'x')",
		(map { 'SELECT ' . q($t$) . $_ . q($t$) } @texts),
		'SELECT 2; SHOW work_mem; SET work_mem = 100',
		'BEGIN; INSERT INTO t VALUES (2); SAVEPOINT s; SELECT a FROM t; COMMIT',
		'DO $$ BEGIN PERFORM 1; END $$', 'COPY t TO STDOUT',
		'PREPARE p AS SELECT $1::text; EXECUTE p (NULL)');
	my $client = PgProto->connect($node);
	foreach my $text (@texts)
	{
		unlike(
			$client->parse('', 'SELECT $1, $2, $3')->bind('', '', $text, '', undef)->execute('')
			  ->sync,
			qr/E:/, 'with parameters');
	}
	$client->quit;
	flush_trail($node);
	$node->stop;

	my @theirs = grep { $_->{message} =~ /^AUDIT: / } rows_of($log);
	my @rows   = trail_rows($node);
	my %session = map { $_->{session_id} => 1 } @theirs;
	my @ours = grep { $session{ $_->{session_id} } && $_->{message} !~ /,CONFIG,/ } @rows;
	my $by_id  = sub {
		my ($row) = @_;
		my ($id, $sub) = $row->{message} =~ /^AUDIT: SESSION,(\d+),(\d+),/ or die $row->{message};

		return sprintf '%s %09d %09d', $row->{session_id}, $id, $sub;
	};

	cmp_ok(scalar @theirs, '>', 30, 'pgaudit has written records');
	is(scalar @ours, scalar @theirs, 'we have, too');
	my @pairs = (
		[ sort { $by_id->($a) cmp $by_id->($b) } @theirs ],
		[ sort { $by_id->($a) cmp $by_id->($b) } @ours ]);

	# pgaudit writes when a statement begins, we when it has ended.
	my %by_nature = (
		log_time => sub {
			$_[0] le $_[1] && $_[1] =~ /^\d{4}(?:-\d\d){2} \d\d(?::\d\d){2}\.\d{3} IST$/;
		},
		transaction_id   => sub { $_[0] eq '0' || $_[0] eq $_[1] },
		session_line_num => sub { $_[0] > 0 && $_[1] > 0 },

		# PostgreSQL has what the process was doing: the client's statement, BIND
		command_tag => sub { $_[0] =~ /^(?:BIND|DO|EXECUTE|\Q$_[1]\E)$/ },
		query_id    => sub { $_[0] eq $_[1] || $_[2] =~ /^(?:DO|EXECUTE)$/ },
		hint        => sub { $_[0] eq '' && $_[1] =~ /^series=\d+$/ },
		location    => sub { $_[0] eq '' && $_[1] > 0 });

	foreach my $name (@names)
	{
		my $same = $by_nature{$name} // sub { $_[0] eq $_[1] };
		my @wrong = grep {
			my ($their, $our) = ($pairs[0][$_], $pairs[1][$_]);

			!$same->($their->{$name}, $our->{$name}, $their->{command_tag})
		} 0 .. $#theirs;

		is_deeply(\@wrong, [], "as in PostgreSQL's own: $name")
		  or diag explain [ map { [ $pairs[0][$_], $pairs[1][$_] ] } $wrong[0] ];
	}
	cmp_ok(scalar(grep { $_->{command_tag} !~ /BIND|DO|EXECUTE/ } @theirs),
		'>', 20, 'most tags are the same');

	# Quotes or none: byte by byte, but for what differs by its nature
	my @raw = map {
		[
			map { s/^[^,]*//r } grep { /,"AUDIT: SESSION,1,1,READ,SELECT,,,SELECT 1,<none>"/ }
			  split /\n/, join '', map { slurp_file($_) } @$_
		]
	} [$log], [ trail_files($node) ];
	s/,"series=\d+",(.*),"\d+",("an ""app"")/,,$1,,$2/ foreach @{ $raw[1] };
	is(scalar @{ $raw[0] }, 1, 'a record of both');
	is_deeply($raw[1], $raw[0], 'quoted as PostgreSQL quotes');
	check_sequences('beside pgaudit', @rows);
	return;
}

SKIP:
{
	my ($missing) = grep { !-e $_ } "$libdir/pgaudit.so";

	if (defined $missing)
	{
		diag "NOT COMPARED WITH PGAUDIT: there is no $missing";
		skip "there is no $missing", 1;
	}
	compare_with_pgaudit();
}

# ---------------------------------------------------------------------------
# A trail of all kinds of records
# ---------------------------------------------------------------------------

my $node = audited_node(
	'main',
	settings => { format => 'csvlog', log => 'all', log_parameter => 'on' },
	conf     => "log_timezone = 'UTC'\n");
my $dir = trail_dir($node);

unaudited_sql(
	$node, q{
	CREATE TABLE t (a int PRIMARY KEY, b text);
	CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS
		'BEGIN INSERT INTO t VALUES (1); PERFORM pg_sleep(600); END';});

my $client = PgProto->connect($node);

foreach my $text (@texts)
{
	$client->query('SELECT $t$' . $text . '$t$');
	$client->parse('', 'SELECT $1')->bind('', '', $text)->execute('')->sync;
}
$client->query(q{SET application_name = ''; SELECT 'no name'});
$client->query("SELECT 1 / 0 /* division\n\"by\", zero */");
$client->query('nonsense');
$client->query('SET pg_audit_queue.log_rows = on; SELECT 4');
$client->quit;

# Long ones: larger than the buffers that they pass through
my $long = join '', map { "$_ \"line\" $_,\n" } 1 .. 120_000;
$client = PgProto->connect($node);
$client->query("SELECT length('$long')");
$client->quit;
# nothing on standard input: psql exits before it reads that
is($node->psql('no_such_database', ''), 2, 'a login fails');
flush_trail($node);
my @rows = trail_rows($node);

check_sequences('at first', @rows);
foreach my $text (@texts)
{
	is((grep { $_->{fields}[7] eq "SELECT \$t\$$text\$t\$" } @rows), 1, 'a statement');
}
(my $quoted_long = $long) =~ s/"/""/g;
is((grep { index($_->{message}, $quoted_long) > 0 } @rows), 1, 'the long one is whole');

my ($division) = grep { $_->{message} =~ m{SELECT 1 / 0} } @rows;
is($division->{sql_state_code}, '22012', 'what failed: SQLSTATE');
is($division->{detail}, 'division by zero', 'error message');
is($division->{error_severity}, 'LOG', 'severity');
my ($rejected) =
  grep { $_->{message} =~ /CONNECT,LOGIN/ && $_->{database_name} eq 'no_such_database' } @rows;
is($rejected->{sql_state_code}, '3D000', 'a login that failed');
my ($named) = grep { $_->{message} =~ /'no name'/ } @rows;
is($named->{sql_state_code}, '00000', 'what worked');
my ($config) = grep { $_->{message} =~ /CONFIG,WORKER START/ } @rows;
is($config->{backend_type}, 'pg_audit_queue worker', 'what the worker itself has recorded');
is_deeply(
	[ @$config{qw(user_name connection_from command_tag)} ],
	[ '', '', '' ],
	'is no client\'s');

# ---------------------------------------------------------------------------
# A crash, damage, rotation
# ---------------------------------------------------------------------------

# Interrupted, nested: records without numbers of their session

my $session = start_psql($node, "SELECT f() /* \"interrupted\",\n */", name => 'victim');
ok( poll_until(
		sub {
			unaudited_sql($node,
				q{SELECT 1 FROM pg_stat_activity WHERE application_name = 'victim' AND wait_event = 'PgSleep'});
		}),
	'a statement runs');
my $victim = unaudited_sql($node,
	q{SELECT pid FROM pg_stat_activity WHERE application_name = 'victim'});
my $worker = worker_pid($node);
flush_trail($node);
kill('KILL', $victim);
finish_psql($session);
wait_for_worker($node, $worker);

# A torn record, within quotes
my $torn = (trail_files($node))[-1];
$worker = worker_pid($node);
flush_trail($node);
kill('STOP', $worker);
crash_node($node, $worker);
append_to_file($torn,
	qq{2026-11-20 10:11:12.123 UTC,"u","d",1,,1.1,1,"SELECT",,,0,LOG,00000,"AUDIT: SESSION\n});
start_again($node);
flush_trail($node);
@rows = trail_rows($node);
check_sequences('after a crash', @rows);
my @interrupted = grep { $_->{hint} =~ /\binterrupted\b/ } @rows;
cmp_ok(scalar @interrupted, '>=', 2, 'interrupted statements');
is_deeply(
	[ map { $_->{session_line_num} } @interrupted ],
	[ map { "-$_->{location}" } @interrupted ],
	'have no number in their session');
is($interrupted[0]{sql_state_code}, '57P02', 'their SQLSTATE');

# A queue file that cannot be used: a GAP record

$node->stop;
append_to_file(queue_dir($node) . '/queue.new', 'x' x 100_000);
rename(queue_dir($node) . '/queue.new', queue_dir($node) . '/queue') or die "rename: $!";
$node->start;
flush_trail($node);
my ($gap) = grep { $_->{message} =~ /^AUDIT: GAP,/ } trail_rows($node);
is_deeply(
	[ @$gap{qw(session_id error_severity sql_state_code detail)} ],
	[ '0.0', 'WARNING', '', '' ],
	'a GAP record');
like($gap->{message}, qr/^AUDIT: GAP,0,0,GAP,,,,"queue file .* cannot be used/, 'its text');
is($gap->{session_line_num}, "-$gap->{location}", 'its number');

# Rotation, and a restart in between

$node->append_conf('postgresql.conf', settings_text(log_rotation_size => '64kB'));
$node->reload;
foreach my $round (1 .. 3)
{
	$client = PgProto->connect($node);
	$client->query("SELECT '$round-$_', '" . ("line,\n\"" x 500) . "'") foreach 1 .. 40;
	$client->quit;
	$node->restart if $round == 2;
}
flush_trail($node);
my @files = trail_files($node);
cmp_ok(scalar @files, '>', 5, 'many files');
is_deeply([ grep { !/\.csv$/ } @files ], [], 'all end in .csv');
@rows = map {
	my $file = $_;
	my @part = eval { rows_of($file) };

	is($@, '', 'a file is whole');
	@part
} @files;
check_sequences('rotation', sort { $a->{location} <=> $b->{location} } @rows);

# Somebody cuts the file off while the server is down

my @before = @rows;
$node->safe_psql('postgres', 'SELECT $$' . ("cut\n\"" x 100) . '$$');
flush_trail($node);
$node->stop;
my $cut = (trail_files($node))[-1];
my ($end) = slurp_file($cut) =~ /^(.*cut\n)/s or die 'nothing to cut';
truncate($cut, length $end) or die "truncate: $!";
$node->start;
$node->safe_psql('postgres', "SELECT 'after the cut'");
flush_trail($node);
isnt((trail_files($node))[-1], $cut, 'a file that was cut off is not written to');
my @after = map { $_ eq $cut ? () : rows_of($_) } trail_files($node);
is(scalar(grep { $_->{message} =~ /'after the cut'/ } @after), 1, 'but the next one');
is(-s $cut, length $end, 'it is what it was');
is( scalar(grep { $_->{message} =~ /^AUDIT: GAP,.*trail file/s } @after),
	1, 'and the trail tells of it');
unlink($cut) or die "unlink: $!";

# ---------------------------------------------------------------------------
# Other readers
# ---------------------------------------------------------------------------

# What they read does not grow any more
$node->append_conf('postgresql.conf',
	settings_text(log_directory => 'elsewhere', format => 'json'));
$node->restart;
@files = trail_files($node);
@rows  = trail_rows($node);
my %expected;
$expected{ $_->{location} } = $_ foreach @rows;

SKIP:
{
	if (!-e "$sharedir/extension/file_fdw.control")
	{
		diag 'NOT READ BY FILE_FDW: it is not there (Debian: postgresql-contrib)';
		skip 'there is no file_fdw', 1;
	}
	unaudited_sql($node,
		'CREATE EXTENSION file_fdw; CREATE SERVER trail FOREIGN DATA WRAPPER file_fdw');
	my $number = 0;
	my @tables;

	foreach my $file (@files)
	{
		push @tables, 'trail_' . ++$number;
		unaudited_sql($node,
			"CREATE FOREIGN TABLE $tables[-1] ($definition)
			 SERVER trail OPTIONS (filename '$file', format 'csv')");
	}
	unaudited_sql($node,
		'CREATE VIEW trail AS ' . join ' UNION ALL ', map { "SELECT * FROM $_" } @tables);
	is(unaudited_sql($node, 'SELECT count(*) FROM trail'), scalar @rows, 'file_fdw reads all records');
	my $read = decode_json(unaudited_sql($node,
		'SELECT json_object_agg(location, json_build_array(message, session_line_num)) FROM trail'));
	my @different = grep {
		my ($ours, $theirs) = ($expected{$_}, $read->{$_});

		utf8::encode($theirs->[0]);
		$ours->{message} ne $theirs->[0] || $ours->{session_line_num} ne $theirs->[1]
	} sort keys %expected;
	is_deeply(\@different, [], 'and the same in them');
	is( unaudited_sql($node,
			q{SELECT DISTINCT application_name = '', detail IS NULL
				FROM trail WHERE message ~ '''no name'''}),
		't|t', 'an empty string is not null');
	is( unaudited_sql($node,
			q{SELECT count(*) FROM trail WHERE message ~ '^AUDIT: GAP'
				 AND sql_state_code IS NULL AND process_id IS NULL}),
		2, 'null is null');
	unaudited_sql($node,
		"CREATE TABLE postgres_log ($definition, PRIMARY KEY (session_id, session_line_num))");
	unaudited_sql($node, "COPY postgres_log FROM '$_' WITH csv") foreach @files;
	is(unaudited_sql($node, 'SELECT count(*) FROM postgres_log'),
		scalar @rows, 'COPY reads all of them into a table with a primary key');
}

SKIP:
{
	my ($stdout, $stderr);

	if (!eval { IPC::Run::run([qw(pgbadger --version)], '>', \$stdout, '2>', \$stderr) })
	{
		diag 'NOT READ BY PGBADGER: it is not there (Debian: pgbadger)';
		skip 'there is no pgbadger', 1;
	}
	my $report = PostgreSQL::Test::Utils::tempdir() . '/report.json';

	# It finds out by itself what is mostly lines, which these are not.
	ok( IPC::Run::run(
			[ qw(pgbadger --quiet --format csv --outfile), $report, @files ],
			'>', \$stdout, '2>', \$stderr),
		'pgBadger reads the trail');
	is($stderr, '', 'without complaint');
	my $badger = decode_json(slurp_file($report));
	my %count  = (LOG => 0, WARNING => 0);

	foreach my $database (keys %{ $badger->{logs_type} })
	{
		$count{$_} += $badger->{logs_type}{$database}{$_} // 0 foreach keys %count;
	}
	note explain $badger->{logs_type};
	is($count{LOG}, scalar(grep { $_->{error_severity} eq 'LOG' } @rows), 'it counts our records');
	is($count{WARNING}, 2, 'and warns of what is missing');
	like(JSON::PP->new->encode($badger->{error_info}), qr/AUDIT: GAP/, 'in its list of events');
}

done_testing();
