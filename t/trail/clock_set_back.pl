# Somebody sets the clock back, as time servers and virtual machines do.  Work
# that is due after a delay is done after that delay, not when the clock shows
# the old time again.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

plan skip_all => 'the server is built with sanitizers' if sanitizers() ne '';

my $node = audited_node(
	'main',
	settings => { flush_interval => '3s' },
	conf     => "autovacuum = off\n",
	start    => 0);
start_with_clock($node);
set_clock($node, 100);
like(unaudited_sql($node, 'SELECT extract(epoch FROM clock_timestamp()) - ' . time),
	qr/^(?:99|1\d\d)/, 'the clock can be set');

# Each case takes another hour away.
my $hours = 0;

sub set_back
{
	set_clock($node, -3600 * ++$hours);
	return;
}

sub all_flushed
{
	my $published = stats($node)->{published};

	return poll_until(sub { stats($node)->{flushed} >= $published }) ? 1 : 0;
}

# A flush that is due
$node->safe_psql('postgres', q{SELECT 'to be flushed'});
set_back();
is(all_flushed(), 1, 'a record is flushed');
is(texts_in_trail($node, 'to be flushed'), 1, 'and in the trail');

# Another attempt to write the trail.  The delay between them grows.
my $position = -s $node->logfile;

take_trail_away($node);
$node->safe_psql('postgres', q{SELECT 'to be written'});
ok(wait_for_log($node, qr/audit trail cannot be written/, $position), 'the trail cannot be written');
set_back();
give_trail_back($node);
is(all_flushed(), 1, 'it is written when it can be');

# Another attempt to load the table
$node->append_conf('postgresql.conf', settings_text(sink => 'table', flush_interval => '10ms'));
$node->reload;
ok(poll_until(sub { stats($node)->{sink} eq 'table' }), 'sink = table');
ok(table_loaded($node), 'the table works');
$position = -s $node->logfile;
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE audit_queue.load_state');
$node->safe_psql('postgres', q{SELECT 'to be loaded'});
ok(wait_for_log($node, qr/cannot be loaded into the table/, $position), 'the table cannot be written');
set_back();
$locker->query_safe('COMMIT');
$locker->quit;
ok(table_loaded($node), 'it is written when it can be');
$node->stop;

done_testing();
