#
# Statements that are cancelled while their record is made, or published, and those that
# nothing interrupts: each has one record.  Sessions that are killed are in queue/deaths.pl.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
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
	CREATE TYPE mood AS ENUM ('sad');});

sub records_since
{
	my ($class, $sequence) = @_;

	flush_trail($node);
	return grep { $_->{sequence} > $sequence && $_->{class} eq $class } trail_records($node);
}

# With a text of so many characters
sub comment
{
	my ($length) = @_;

	return 'COMMENT ON TABLE t IS ' . "'" . ('x' x $length) . "'";
}

# However much of its slot the first record takes, which gives way to others with names,
# nothing is left of it without a crash.

my @lengths = (10, 2_900, 4_000, 6_000, 6_400, 6_600, 6_800, 7_000, 8_000, 300_000);

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

$node->stop;
done_testing();
