# sink = table: the loader sleeps only if everything that is durable is in the
# table.  It is woken by its latch, which waits inside of PostgreSQL reset, too:
# here the wait for a synchronous standby.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;

my $node = audited_node(
	'main',
	settings =>
	  { sink => 'table', flush_interval => '10ms', table_synchronous_commit => 'on' },
	conf => "autovacuum = off\nwal_level = replica\nmax_wal_senders = 1\n");

sub sql
{
	return unaudited_sql($node, @_);
}

# Run an audited statement, and wait until its record is durable; nobody waits for
# the table.
sub durable
{
	my ($statement) = @_;
	my $flushed = stats($node)->{flushed};

	$node->safe_psql('postgres', $statement);
	poll_until(sub { stats($node)->{flushed} > $flushed }) or die 'not flushed';
	return;
}

# What the loader waits for, as type.event
sub loader_waits_for
{
	return sql(q{SELECT concat_ws('.', wait_event_type, wait_event)
				   FROM pg_stat_activity WHERE backend_type LIKE '%loader'});
}

sub is_loaded
{
	my ($text) = @_;

	return sql("SELECT count(*) > 0 FROM audit_records WHERE command_text LIKE '%$text%'"
		  . " AND user_name <> 'paq_quiet'");
}

$node->safe_psql('postgres', "SELECT 'first'");
ok(table_loaded($node), 'the table has what was recorded');
my $loader = stats($node)->{loader_pid};

$node->append_conf('postgresql.conf', "synchronous_standby_names = 'nobody'\n");
$node->reload;
ok( poll_until(
		sub {
			# the first ones may come before the checkpointer has told of the standby
			durable("SELECT 'before'");
			return loader_waits_for() eq 'IPC.SyncRep';
		}),
	'the loader waits for a standby');
durable("SELECT 'meanwhile'");
is(loader_waits_for(), 'IPC.SyncRep', 'while more becomes durable');
is(is_loaded('meanwhile'), 'f', 'which is not in the table');

# A signal would wake the loader once more: tell nobody but the process that lets
# it go.
$node->append_conf('postgresql.conf', "synchronous_standby_names = ''\n");
kill('HUP', sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")) == 1
  or die "kill: $!";
ok(poll_until(sub { loader_waits_for() =~ /^Extension/ }), 'it sleeps');
is(is_loaded('before'), 't', 'when what it was to load is there');
is(is_loaded('meanwhile'), 't', 'and what it was not told of');
is(stats($node)->{loader_pid}, $loader, 'of the same process');
$node->stop;

done_testing();
