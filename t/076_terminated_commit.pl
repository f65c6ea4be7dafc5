# A session that is terminated while it waits for the trail before it commits:
# its records are there, as if it had committed, and one more that says that it
# has not.  The same is true where the commit is that of a Sync, a message
# without a text.
#
# A session that is terminated or cancelled elsewhere: in the waits of mode
# immediate, in a trigger at the commit, in planning.  Each statement has its
# records, and records that say 00000 of a statement that did not take effect
# are taken back by a record of class ERROR.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;
use PgProto;

use Test::More;

my $node = audited_node('main',
	settings => { flush_interval => '1h', mode => 'commit', log => 'write,error' },
	init => [ allows_streaming => 1 ]);
my $client;
my $worker;

unaudited_sql($node, 'CREATE TABLE written (a int)');
$client = PgProto->connect($node, options => '-c application_name=terminated');
is($client->query('INSERT INTO written VALUES (1)'), 'C:INSERT_0_1', 'a commit that is waited for');
$worker = worker_pid($node);
kill('STOP', $worker) == 1 or die "could not stop $worker: $!";
$client->parse('', 'INSERT INTO written VALUES (2)')->bind('', '')->execute('')->start_sync;
my $pid = wait_until_waiting($node, 'terminated');
ok($pid, 'that of a Sync waits');
unaudited_sql($node, "SELECT pg_terminate_backend($pid)") if $pid;
ok( poll_until(
		sub {
			unaudited_sql($node,
				q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'terminated'}) eq 't';
		}),
	'until it is terminated');
kill('CONT', $worker) == 1 or die "could not continue $worker: $!";
is(unaudited_sql($node, 'SELECT count(*) FROM written'), '1', 'it is not committed');
flush_trail($node);
is( join(', ', map { "$_->{class} $_->{exitCode}" }
		grep { ($_->{clientApplication} // '') eq 'terminated' } trail_records($node)),
	'WRITE 00000, WRITE 00000, ERROR 57P01', 'as the trail says');

unaudited_sql(
	$node, q{
	CREATE TABLE one ();
	CREATE TABLE lazy (a int);
	CREATE TABLE uniq (a int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	CREATE FUNCTION write() RETURNS int LANGUAGE plpgsql AS
		'BEGIN INSERT INTO written VALUES (3); RETURN 1; END';
	CREATE FUNCTION write_and_open() RETURNS int LANGUAGE plpgsql AS
		'DECLARE c refcursor; BEGIN OPEN c FOR SELECT 1; RETURN write(); END';
	CREATE FUNCTION sleep() RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		'BEGIN PERFORM pg_sleep(600); RETURN 1; END';
	CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_sleep(600); RETURN NULL; END';
	CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON lazy DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION at_commit();});

# A session does something, is cancelled or terminated while it waits for the worker,
# which is stopped, or sleeps; its records.  Options: event or type of events, for which it waits, mode, log,
# before, which the client does first, and those of PgProto.
sub ended_is
{
	my ($name, $start, $expected, %options) = @_;
	my $event = $options{event} // 'Extension';
	my $mode  = $options{mode} // 'immediate';
	my $log   = $options{log} // 'read,write,function,misc,error';

	foreach my $how (
		[ 'terminate_backend', '57P01' ],
		[ 'cancel_backend', '57014' ])
	{
		my ($function, $state) = @$how;
		my $sequence = flush_trail($node);

		$client = PgProto->connect($node,
			options => "-c application_name=ended -c pg_audit_queue.mode=$mode" .
			  " -c pg_audit_queue.log=$log",
			replication => $options{replication});
		$options{before}->() if $options{before};
		$worker = worker_pid($node);
		kill('STOP', $worker) == 1 or die "could not stop $worker: $!";
		$start->();
		$pid = poll_until(
			sub {
				unaudited_sql($node, "SELECT pid FROM pg_stat_activity
					WHERE application_name = 'ended' AND '$event' IN (wait_event, wait_event_type)");
			});
		ok($pid, "$name: waits");
		unaudited_sql($node, "SELECT pg_$function($pid)") if $pid;
		like($client->until('E'), qr/$state/, "until $function()");
		kill('CONT', $worker) == 1 or die "could not continue $worker: $!";
		$client->quit;
		poll_until(
			sub {
				!unaudited_sql($node,
					q{SELECT 1 FROM pg_stat_activity WHERE application_name = 'ended'});
			}) or die 'the session does not end';
		flush_trail($node);

		is( join(', ', sort map { $_->{class} . ($_->{incomplete} ? ' incomplete ' : ' ') . $_->{exitCode} }
				grep { $_->{sequence} > $sequence && $_->{class} ne q(CONFIG) &&
				  ($_->{clientApplication} // q()) eq 'ended' }
				trail_records($node)),
			$expected =~ s/STATE/$state/gr, 'each statement has its records');
	}
	return;
}

sub executed
{
	my (@texts) = @_;

	$client->parse('', $_)->bind('', '')->execute('') foreach @texts;
	return $client->start_sync;
}

my $write = unaudited_sql($node, q{SELECT 'write'::regproc::oid});
my $other = PgProto->connect($node, options => '-c pg_audit_queue.log=none');
my $in_block = sub { $client->query('BEGIN') };

ended_is('what a function has executed', sub { $client->start('SELECT write()') },
	'FUNCTION STATE, READ STATE, WRITE 00000');
ended_is('the same in an INSERT', sub { $client->start('INSERT INTO written SELECT write()') },
	'FUNCTION STATE, WRITE 00000, WRITE STATE');
ended_is('a function that leaves a cursor open',
	sub { $client->start('SELECT write_and_open()') },
	'FUNCTION STATE, FUNCTION STATE, READ STATE, READ STATE, WRITE 00000');
ended_is('a portal that is not the newest',
	sub {
		$client->parse('', 'SELECT write()')->bind('a', '')->parse('', 'SELECT 1')
		  ->bind('b', '')->execute('a')->start_sync;
	},
	'FUNCTION STATE, READ STATE, READ STATE, WRITE 00000');
ended_is('a portal that a FETCH runs',
	sub {
		$client->parse('', 'SELECT write()')->bind('a', '');
		executed('FETCH a');
	},
	'ERROR STATE, FUNCTION STATE, MISC 00000, MISC 00000, READ STATE, WRITE 00000',
	before => $in_block);
ended_is('a fast-path call', sub { $client->start_call($write) },
	'ERROR STATE, FUNCTION 00000, MISC 00000, WRITE 00000', before => $in_block);
ended_is('the commit of several statements',
	sub { $client->start('INSERT INTO written VALUES (4); INSERT INTO lazy VALUES (1)') },
	'ERROR STATE, WRITE 00000, WRITE 00000',
	event => 'PgSleep', mode => 'queued', log => 'write,error');
ended_is('a COMMIT that has no record', sub { $client->start('COMMIT') },
	'ERROR STATE, WRITE 00000',
	event => 'PgSleep', mode => 'queued', log => 'write,error',
	before => sub { $client->query('BEGIN; INSERT INTO lazy VALUES (1)') });
ended_is('a Sync with a trigger',
	sub { executed('INSERT INTO lazy VALUES (1)', 'SELECT 1') },
	'ERROR STATE, WRITE 00000',
	event => 'PgSleep', mode => 'queued', log => 'write,error');
$other->query('BEGIN; INSERT INTO uniq VALUES (1)');
ended_is('a Sync with a constraint',
	sub { executed('INSERT INTO uniq VALUES (1)', 'SELECT 1') },
	'ERROR STATE, WRITE 00000',
	event => 'transactionid', mode => 'queued', log => 'write,error');
$other->quit;
ended_is('planning', sub { $client->start('SELECT sleep()') },
	'ERROR STATE, READ STATE',
	event => 'PgSleep', mode => 'queued', log => 'read,error');
ended_is('a replication command', sub { $client->start('IDENTIFY_SYSTEM') },
	'ERROR STATE, MISC 00000', replication => 'database');

# A queue that cannot take all records of a statement

$node->append_conf('postgresql.conf', settings_text(queue_size => '64kB'));
$node->restart;
my $many  = join(' UNION ALL ', ('SELECT 1 FROM one') x 300);
my $reads = ', READ 00000' x 300;
my $relations = sub { $client->query('SET pg_audit_queue.log_relation = on') };

ended_is('a full queue', sub { $client->start($many) }, "ERROR STATE$reads",
	mode => 'queued', log => 'read,error', before => $relations);
ended_is('a full queue, in a block', sub { $client->start($many) }, "ERROR STATE$reads",
	mode => 'queued', log => 'read,error',
	before => sub { $relations->(); $client->query('BEGIN') });
ended_is('a full queue, at the commit', sub { $client->start("INSERT INTO written $many") },
	"ERROR STATE$reads, WRITE 00000",
	mode => 'queued', log => 'read,write,error', before => $relations);
ended_is('a full queue, a statement that a function executes',
	sub { $client->start("DO \$\$ BEGIN PERFORM 2 FROM ($many) x; PERFORM 3 FROM one; END \$\$") },
	"FUNCTION STATE$reads",
	mode => 'queued', log => 'read,function,error', before => $relations);
$node->stop;

done_testing();
