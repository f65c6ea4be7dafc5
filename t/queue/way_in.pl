# A full queue: who wants to know why everybody waits can log in, and look at the
# statistics, whatever "overflow" is; nothing of it goes unrecorded, and nothing else
# can be done that way.
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
	settings => {
		log             => 'all',
		flush_interval  => '1h',
		flush_threshold => 50,
		queue_size      => '64kB'
	},
	conf => "autovacuum = off\n");

unaudited_sql($node, q{
	CREATE TABLE card (number text);
	CREATE ROLE joe LOGIN;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	CREATE FUNCTION spy() RETURNS bigint LANGUAGE plpgsql STABLE AS
		$$BEGIN PERFORM FROM card; RETURN 1; END$$;
	CREATE FUNCTION quick_spy() RETURNS bigint LANGUAGE sql STABLE AS
		'SELECT count(*) FROM card';
	CREATE FUNCTION pg_stat_get_audit_queue(OUT queue_used bigint) LANGUAGE plpgsql AS
		$$BEGIN PERFORM FROM card; queue_used := 1; END$$;
	CREATE VIEW pg_stat_audit_queue_of_mine AS SELECT * FROM public.pg_stat_get_audit_queue()});

my $worker;

# Stop the worker, and fill the queue, its reserve too.
sub fill
{
	my ($label) = @_;
	my $failing = PgProto->connect($node);

	flush_trail($node);
	$worker = worker_pid($node);
	kill('STOP', $worker) == 1 or die "could not stop the worker: $!";
	foreach my $round (1 .. 100)
	{
		my $used = unaudited_sql($node, 'SELECT queue_used FROM audit_queue_stats');

		$failing->query("SELEC '$label'") foreach 1 .. 50;
		last if unaudited_sql($node, 'SELECT queue_used FROM audit_queue_stats') == $used;
	}
	return $failing;
}

sub set_overflow
{
	my ($value) = @_;

	$node->append_conf('postgresql.conf', settings_text(overflow => $value));
	$node->reload;
	return poll_until(sub { unaudited_sql($node, 'SHOW pg_audit_queue.overflow') eq $value });
}

# Looks, and what is none; each with a label that its record shows
my @looks = (
	'SELECT queue_used FROM pg_stat_audit_queue',
	'SELECT * FROM pg_stat_audit_queue',
	'SELECT row_to_json(s) FROM audit_queue_stats s',
	q{SELECT class, records FROM pg_stat_audit_queue_classes WHERE class <> 'GAP'},
	'SELECT worker_pid IS NULL, extract(epoch FROM oldest_unflushed_age), last_error FROM pg_stat_audit_queue');
my @others = (
	'SELECT 1',
	'SELECT * FROM card',
	'SELECT queue_used FROM pg_stat_audit_queue, card',
	'SELECT queue_used, (SELECT count(*) FROM card) FROM pg_stat_audit_queue',
	'SELECT spy() FROM pg_stat_audit_queue',
	'SELECT quick_spy() FROM pg_stat_audit_queue',
	'SELECT queue_used FROM pg_stat_audit_queue WHERE spy() > 0',
	q{SELECT query_to_xml('TABLE card', true, true, '') FROM pg_stat_audit_queue},
	q{SELECT pg_read_file('PG_VERSION') FROM pg_stat_audit_queue},
	q{SELECT set_config('pg_audit_queue.log', 'none', false) FROM pg_stat_audit_queue},
	'SELECT * FROM pg_stat_audit_queue_of_mine',
	'SELECT * FROM pg_stat_audit_queue; SELECT * FROM card',
	'SELECT audit_queue_stats_reset()');

foreach my $overflow (qw(wait error shutdown))
{
	ok(set_overflow($overflow), "overflow = $overflow");
	my $failing = fill($overflow);

	foreach my $user (undef, 'watcher')
	{
		my @user = defined $user ? ('-U', $user) : ();
		my $name = $user // 'a superuser';
		my ($status, $stdout, $stderr) = $node->psql('postgres',
			join(' ', map { "$_ -- $overflow\n;" } @looks), extra_params => [@user], timeout => 60);

		is($status, 0, "$overflow: $name looks") or diag($stderr);
		like($stdout, qr/"queue_used":\d+/, 'and sees the statistics');
	}
	if ($overflow eq 'wait')
	{
		my $number = 0;
		my @waiting;

		foreach my $sql (@others)
		{
			push @waiting, start_psql($node, $sql, name => 'other' . ++$number);
			ok(wait_until_waiting($node, "other$number"), "waits: $sql");
		}
		push @waiting, start_psql($node, 'SELECT queue_used FROM pg_stat_audit_queue',
			name => 'login', user => 'joe');
		ok(wait_until_waiting($node, 'login'), 'others wait at their login');

		# as often as one likes, but not without bounds
		push @waiting, start_psql($node, "SELECT queue_used FROM pg_stat_audit_queue /* many */;\n" x 3000, name => 'many');
		ok(wait_until_waiting($node, 'many'), 'there is an end to it');
		kill('CONT', $worker);
		finish_psql($_) foreach @waiting;
		unaudited_sql($node, 'SELECT audit_flush()');
		is((grep { m{"class":"READ".*/\* many \*/} } trail_lines($node)), 3000, 'all of that is recorded')
		  or diag(grep { /"type":"gap"/ } trail_lines($node));
	}
	kill('CONT', $worker);
	unaudited_sql($node, 'SELECT audit_flush()');
	$failing->quit;
}
is($node->safe_psql('postgres', "SELECT 'up'"), 'up', 'the server was not shut down');

# A look in a session that goes on: its record comes when there is space.
ok(set_overflow('wait'), 'overflow = wait');
my $failing = fill('last');
my $session = PgProto->connect($node);
like($session->query('SELECT queue_used FROM pg_stat_audit_queue /* kept */'), qr/^D C:SELECT_1$/, 'it looks');
is(texts_in_trail($node, '/* kept */'), 0, 'not recorded yet');
kill('CONT', $worker);
ok(poll_until(sub { $session->query('SELECT 1') eq 'D C:SELECT_1' }), 'and goes on');
flush_trail($node);
is(texts_in_trail($node, '/* kept */'), 2, 'with its record');
$session->quit;

# Modes that wait for the trail: a look does not, but it excuses nothing else.
foreach my $mode (qw(commit immediate))
{
	$session = PgProto->connect($node, options => "-c pg_audit_queue.mode=$mode");
	flush_trail($node);
	$worker = worker_pid($node);
	kill('STOP', $worker) == 1 or die "could not stop the worker: $!";
	like($session->query('SELECT queue_used FROM pg_stat_audit_queue'), qr/^D C:SELECT_1$/, "mode $mode: it looks");
	my $writing = start_psql($node,
		"SET pg_audit_queue.mode = commit \\; INSERT INTO card VALUES ('$mode') \\; SELECT queue_used FROM pg_stat_audit_queue;",
		name => 'writing');
	ok(wait_until_waiting($node, 'writing'), 'what was done before in the transaction is waited for');
	is(unaudited_sql($node, "SELECT count(*) FROM card WHERE number = '$mode'"), 0, 'and not committed before');
	kill('CONT', $worker);
	is((finish_psql($writing))[0], 0, 'until it is in the trail');
	$session->quit;
}
$node->stop;

done_testing();
