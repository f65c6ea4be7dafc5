# A session that is terminated while it waits for the trail before it commits: its
# records are there, as if it had committed, and one that says that it has not; also
# where the commit is that of a Sync, a message without a text.
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
$node->stop;

done_testing();
