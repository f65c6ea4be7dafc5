# A session that is terminated while it waits for the trail before it commits: its
# records are there, as if it had committed, and one that says that it has not; also
# where the commit is that of a Sync, a message without a text.
#
# One that is terminated or cancelled while it waits for what a function has executed,
# before the statement that called it ends: that statement's record says so, and no other.
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
	settings => { flush_interval => '1h', mode => 'commit', log => 'write,error' });
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
	$node, q{CREATE FUNCTION write() RETURNS int LANGUAGE plpgsql AS
		'BEGIN INSERT INTO written VALUES (3); RETURN 1; END'});
foreach my $how (
	[ 'terminate_backend', '57P01' ],
	[ 'cancel_backend', '57014' ])
{
	my ($function, $state) = @$how;
	my $sequence = flush_trail($node);

	$client = PgProto->connect($node,
		options => "-c application_name=$function -c pg_audit_queue.mode=immediate" .
		  ' -c pg_audit_queue.log=read,write,function,error');
	$worker = worker_pid($node);
	kill('STOP', $worker) == 1 or die "could not stop $worker: $!";
	$client->start('SELECT write()');
	$pid = wait_until_waiting($node, $function);
	ok($pid, 'a session waits for what a function has executed');
	unaudited_sql($node, "SELECT pg_$function($pid)") if $pid;
	like($client->until('E'), qr/$state/, "until $function()");
	kill('CONT', $worker) == 1 or die "could not continue $worker: $!";
	$client->quit;
	flush_trail($node);
	is( join(', ', map { "$_->{class} $_->{exitCode}" }
			grep { $_->{sequence} > $sequence && $_->{class} ne q(CONFIG) &&
			  ($_->{clientApplication} // q()) eq $function }
			trail_records($node)),
		"WRITE 00000, READ $state, FUNCTION $state", 'each statement has one record');
}
$node->stop;

done_testing();
