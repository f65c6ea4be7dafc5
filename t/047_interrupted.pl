#
# Statements that are being executed when the server crashes: each has one
# record, at every moment from its beginning to its end, whatever the session
# does in between.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { log => 'ddl', flush_interval => '10ms' });
unaudited_sql(
	$node, q{
	CREATE TABLE t ();
	CREATE FUNCTION wait() RETURNS event_trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_sleep(600); END';
	CREATE TYPE mood AS ENUM ('sad');});

# Records of a class that come from a statement during which the server
# crashes.  $crash is called with what psql returns that is executing it.
sub records_of
{
	my ($class, $sql, $crash, %options) = @_;
	my $sequence = flush_trail($node);
	my $worker   = worker_pid($node);
	my $session  = start_psql($node, $sql, name => 'victim', %options);

	$crash->($session);
	wait_for_worker($node, $worker);
	return records_since($class, $sequence);
}

sub records_since
{
	my ($class, $sequence) = @_;

	flush_trail($node);
	return grep { $_->{sequence} > $sequence && $_->{class} eq $class } trail_records($node);
}

# Wait until the session executes pg_sleep(), and kill it.
sub crash_asleep
{
	my ($session) = @_;
	my $pid;

	poll_until(
		sub {
			$pid = unaudited_sql(
				$node, "SELECT pid FROM pg_stat_activity
						 WHERE application_name = 'victim' AND wait_event = 'PgSleep'");
		}) or die 'the statement does not get that far';
	kill('KILL', $pid);
	finish_psql($session);
	return;
}

# The first record of a DDL statement gives way to others with names.  At that
# moment

sub crash_in_between
{
	my ($session) = @_;

	finish_psql($session);
	set_faults($node);
	return;
}

# With a text of so many characters
sub comment
{
	my ($length) = @_;

	return 'COMMENT ON TABLE t IS ' . "'" . ('x' x $length) . "'";
}

foreach my $case (
	[ 'COMMENT',    comment(10),                            'public.t' ],
	[ 'long',       comment(2_900),                         'public.t' ],
	[ 'of a table', 'CREATE TABLE new (a int PRIMARY KEY)', 'public.new' ],
	[ 'DROP',       'DROP TABLE t',                         'public.t' ],
	[ 'very long',  comment(300_000),                       'public.t' ])
{
	my ($name, $sql, $object) = @$case;

	set_faults($node, 'pending-replaced' => 'kill');
	my @records = records_of('DDL', $sql, \&crash_in_between);
	is(scalar(@records), 1, "$name: a crash in between leaves one record");
	is($records[0]{objectName}, $object, "$name: that with the name");
	is($records[0]{commandText}, $sql, "$name: with its text");
	ok($records[0]{interrupted}, "$name: which says that it was interrupted");
}

# Afterwards, however much of the slot the first record takes

my @lengths = (10, 2_900, 4_000, 6_000, 6_400, 6_600, 6_800, 7_000, 8_000, 300_000);

unaudited_sql($node, 'CREATE EVENT TRIGGER zzz ON ddl_command_end EXECUTE FUNCTION wait()');
foreach my $length (@lengths)
{
	my @records = records_of('DDL', comment($length), \&crash_asleep);

	is(scalar(@records), 1, "a comment of $length characters: one record");
	is($records[0]{objectName}, 'public.t', 'with the name, if there was space')
	  if $length < 3_000 || $length > 10_000;
	ok($records[0]{interrupted}, 'interrupted');
	like($records[0]{commandText}, qr/^COMMENT ON TABLE t IS 'x+/, 'with its text');
	is($records[0]{commandText}, comment($length), 'all of it') if !$records[0]{cut};
	ok(!$records[0]{cut}, 'not cut') if $length < 6_500 || $length > 10_000;
}
unaudited_sql($node, 'DROP EVENT TRIGGER zzz');

# Without a crash nothing is left of it.

my $sequence = flush_trail($node);
$node->safe_psql('postgres', comment($_)) foreach @lengths;
$node->restart;
is_deeply(
	[
		map { length($_->{commandText}) . ($_->{interrupted} ? ' interrupted' : '') }
		  records_since('DDL', $sequence)
	],
	[ map { length(comment($_)) } @lengths ],
	'without a crash, each has one record');
is_deeply(
	[ sort grep { !/^(?:\.\.?|lock|queue)$/ } slurp_dir(queue_dir($node)) ],
	[], 'no files are left');

# Cursors that are open do not keep the statement that is executed from being
# there.

my $last = "SELECT 'last' FROM pg_sleep(600)";

sub statement_is_there
{
	my ($name, @records) = @_;

	is_deeply(
		[ map { $_->{interrupted} ? 1 : 0 } grep { $_->{commandText} =~ /'last'/ } @records ],
		[1], "$name: the statement is there");
	is(scalar(grep { $_->{command} eq 'SELECT' && !$_->{interrupted} } @records),
		0, 'none of them has ended');
	return;
}

my @others = ([ 20, 10 ], [ 40, 100 ], [ 6, 1700 ], [ 5, 9000 ]);

foreach my $case (@others)
{
	my ($number, $length) = @$case;
	my $text = 'x' x $length;
	my @sql  = (
		'BEGIN', map({ ("DECLARE c$_ CURSOR FOR SELECT '$text'", "FETCH c$_") } 1 .. $number),
		$last);

	statement_is_there(
		"$number cursors with $length characters",
		records_of('READ', "\\o /dev/null\n" . join(';', @sql), \&crash_asleep,
			settings => { log => 'read' }));
}

# Nor portals that stop before their end, nor what it executes itself: DDL whose
# record gives way to one with a name, or a query during its commit.

$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION busy() RETURNS void LANGUAGE plpgsql AS
		$$ BEGIN COMMENT ON TABLE t IS 'busy'; PERFORM pg_sleep(600); END $$;
	CREATE TABLE late (a int);
	CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_sleep(600); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER late AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION late()});
foreach my $case (@others,
	map({ [ 1, $_, "SELECT busy() /* 'last' */" ] } 6500, 6600, 6700),
	map({ [ 1, $_, "COMMIT /* 'last' */", 'MISC' ] } 6500, 6600, 6700))
{
	my ($number, $length, $sql, $class) = @$case;
	my $text = 'x' x $length;
	my $client = PgProto->connect($node);

	$client->query("SET pg_audit_queue.log = 'read, ddl, misc'; SET application_name = 'victim'");
	$client->query('BEGIN; INSERT INTO late VALUES (1)');
	foreach my $i (1 .. $number)
	{
		$client->parse("s$i", "SELECT '$text' FROM generate_series(1, 2)")
		  ->bind("p$i", "s$i")->execute("p$i", 1)->sync;
	}
	my $sequence = flush_trail($node);
	my $worker   = worker_pid($node);
	$client->start($sql // $last);
	poll_until(
		sub {
			unaudited_sql(
				$node, "SELECT count(*) FROM pg_stat_activity
						 WHERE application_name = 'victim' AND wait_event = 'PgSleep'") eq '1';
		}) or die 'the statement does not get that far';
	kill('KILL', $client->pid);
	wait_for_worker($node, $worker);
	statement_is_there(
		"$number portals with $length characters, " . ($sql // $last),
		records_since($class // 'READ', $sequence));
}

# The only record may be that of what a statement executes.

statement_is_there(
	'EXPLAIN',
	records_of(
		'READ',
		"\\o /dev/null\nBEGIN;"
		  . join('', map { "DECLARE c$_ CURSOR FOR SELECT '" . 'x' x 1700 . "'; FETCH c$_;" } 1 .. 6)
		  . "EXPLAIN ANALYZE $last",
		\&crash_asleep,
		settings => { log => 'read' }));

# A statement that fails while its record is made: it waits for the catalog that
# has its parameter's text.

my $client = PgProto->connect($node);
my $locker = PgProto->connect($node, user => 'paq_quiet');

$client->query("SET pg_audit_queue.log = 'read'; SET pg_audit_queue.log_parameter = on");
$client->query("PREPARE s(mood) AS SELECT 1 WHERE \$1 IS NOT NULL");
$client->query("SELECT 'sad'::mood IS NULL");
$sequence = flush_trail($node);
$locker->query('BEGIN; LOCK TABLE pg_enum');
$client->start("EXECUTE s('sad')");
ok( poll_until(
		sub {
			unaudited_sql(
				$node, 'SELECT wait_event_type FROM pg_stat_activity WHERE pid = '
				  . $client->pid) eq 'Lock';
		}),
	'a parameter has no text yet');
kill('INT', $client->pid);
$client->finish;
$locker->query('COMMIT');
is_deeply(
	[ columns('command exitCode', records_since('READ', $sequence)) ],
	['SELECT|57014'], 'a statement that is cancelled then has a record');
$_->quit foreach $client, $locker;

# From here on with a small queue
$node->append_conf('postgresql.conf', settings_text(queue_size => '64kB'));
$node->restart;

# The worker stands still, and the queue is filled to a place between two
# positions by a session that is returned.

my $worker;

sub fill_queue
{
	my ($from, $to) = @_;
	my $client = PgProto->connect($node);

	$client->query("SET pg_audit_queue.log = 'read, error'");
	flush_trail($node);
	$worker = worker_pid($node);
	kill('STOP', $worker);
	for (1 .. 1000)
	{
		my $used = stats($node)->{queue_used};

		return $client if $used >= $from && $used < $to;
		die "$used bytes are in use" if $used >= $to;
		$client->query("SELECT 'fill' WHERE false");
	}
	die 'the queue does not fill up';
}

# To be cancelled while saying that the queue is filling up is not to be
# recorded twice.

$client = fill_queue(64 * 1024 * 0.75 - 2500, 64 * 1024 * 0.75 - 1000);
my $position = -s $node->logfile;
my $long = "SELECT '" . ('c' x 3000) . "' WHERE false";

set_faults($node, 'ring-committed' => 'stop');
$client->start($long);
ok(wait_until_stopped($client->pid), 'its record is in the queue');
kill('INT', $client->pid);
set_faults($node);
kill('CONT', $client->pid);
$client->finish;
kill('CONT', $worker);
is(scalar(grep { ($_->{commandText} // '') eq $long } records_since('READ', 0)),
	1, 'a statement that is cancelled then has one record of its class');
ok(wait_for_log($node, qr/LOG:  audit queue is \d+% full/, $position),
	'that was while it said that the queue is filling up');
$client->quit;

# What has failed and finds no space keeps its outcome.

$client = fill_queue(64 * 1024 * 0.8, 64 * 1024 * 0.875);
$sequence = 0;
my $published = stats($node)->{published};
my $waiting = 0;
my $number;
for ($number = 1; $number <= 200 && $waiting < 5; $number++)
{
	$client->query("SELEC 'no $number'");
	my $now = stats($node)->{published};
	$waiting++ if $now == $published;
	$published = $now;
}
is($waiting, 5, 'records of errors wait for space');
kill('KILL', $client->pid);
kill('CONT', $worker);
wait_for_worker($node, $worker);
my @records = records_since('ERROR', 0);
is_deeply(
	[ columns('commandText exitCode interrupted', @records) ],
	[ map { "SELEC 'no $_'|42601|" } 1 .. $number - 1 ],
	'after a crash each is there, with its outcome');

done_testing();
