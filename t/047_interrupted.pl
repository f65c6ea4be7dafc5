#
# A statement has a record from its beginning.  Where that gives way to another,
# which knows more, a crash finds one of them, never both, never none.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { log => 'ddl' });
unaudited_sql(
	$node, q{
	CREATE TABLE t ();
	CREATE FUNCTION wait() RETURNS event_trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_sleep(600); END';});

# A statement during which the server crashes, and its records.  $crash is
# called with what psql returns that is executing it.
sub records_of
{
	my ($sql, $crash) = @_;
	my $sequence = flush_trail($node);
	my $worker   = worker_pid($node);
	my $session  = start_psql($node, $sql, name => 'victim');

	$crash->($session);
	wait_for_worker($node, $worker);
	flush_trail($node);
	return grep { $_->{sequence} > $sequence && $_->{class} eq 'DDL' } trail_records($node);
}

# At the moment of the change

sub crash_in_between
{
	my ($session) = @_;

	finish_psql($session);
	set_faults($node);
	return;
}

# Of a text with so many characters more
sub comment
{
	my ($length) = @_;

	return 'COMMENT ON TABLE t IS ' . "'" . ('x' x $length) . "'";
}

foreach my $case (
	[ 'COMMENT',    comment(10),                        'public.t' ],
	[ 'long',       comment(3_600),                     'public.t' ],
	[ 'of a table', 'CREATE TABLE new (a int PRIMARY KEY)', 'public.new' ],
	[ 'DROP',       'DROP TABLE t',                     'public.t' ],
	[ 'very long',  comment(300_000),                   'public.t' ])
{
	my ($name, $sql, $object) = @$case;

	set_faults($node, 'pending-replaced' => 'kill');
	my @records = records_of($sql, \&crash_in_between);
	is(scalar(@records), 1, "$name: a crash in between leaves one record");
	is($records[0]{objectName}, $object, "$name: that with the name");
	is($records[0]{commandText}, $sql, "$name: with its text");
	ok($records[0]{interrupted}, "$name: which says that it was interrupted");
}

# Afterwards, however much of the slot the first record takes

unaudited_sql($node, 'CREATE EVENT TRIGGER zzz ON ddl_command_end EXECUTE FUNCTION wait()');

sub crash_behind
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

foreach my $length (10, 3_600, 4_000, 7_000, 7_400, 7_600, 7_800, 8_000, 300_000)
{
	my @records = records_of(comment($length), \&crash_behind);

	is(scalar(@records), 1, "a comment of $length characters: one record");
	is($records[0]{objectName}, 'public.t', 'with the name, if there was room')
	  if $length < 4_000;
	ok($records[0]{interrupted}, 'interrupted');
	like($records[0]{commandText}, qr/^COMMENT ON TABLE t IS 'x+/, 'with its text');
	is($records[0]{commandText}, comment($length), 'all of it')
	  if !$records[0]{cut};
	ok(!$records[0]{cut}, 'not cut') if $length < 7_400 || $length > 10_000;
}

# Without a crash nothing is left of it.

unaudited_sql($node, 'DROP EVENT TRIGGER zzz');
my $sequence = flush_trail($node);
foreach my $length (10, 4_000, 7_000, 7_400, 7_600, 7_800, 8_000, 300_000)
{
	$node->safe_psql('postgres', comment($length));
}
$node->restart;
flush_trail($node);
is_deeply(
	[
		map { length($_->{commandText}) . ($_->{interrupted} ? ' interrupted' : '') }
		grep { $_->{sequence} > $sequence && $_->{class} eq 'DDL' } trail_records($node)
	],
	[ map { length(comment($_)) } 10, 4_000, 7_000, 7_400, 7_600, 7_800, 8_000, 300_000 ],
	'without a crash, each has one record');
is_deeply(
	[ sort grep { !/^(?:\.\.?|lock|queue)$/ } slurp_dir(queue_dir($node)) ],
	[], 'no files are left');

done_testing();
