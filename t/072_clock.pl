# Somebody sets the clock back, as time servers and virtual machines do.  Work
# that is due after a delay is done after that delay, not when the clock shows
# the old time again.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

plan skip_all => 'the server is built with sanitizers' if sanitizers() ne '';

my $clock = PostgreSQL::Test::Utils::tempdir() . '/clock';

# By how many seconds the server's time differs from ours, from now on
sub set_clock
{
	my ($seconds) = @_;

	open my $handle, '>', "$clock.new" or die "$clock.new: $!";
	print $handle $seconds;
	close $handle or die "$clock.new: $!";
	rename "$clock.new", $clock or die "rename: $!";
	return;
}

set_clock(0);
my $node = audited_node(
	'main',
	settings => { flush_interval => '3s' },
	conf     => "autovacuum = off\n",
	start    => 0);
{
	local $ENV{LD_PRELOAD} = build_preloaded('clock');
	local $ENV{PAQ_CLOCK}  = $clock;

	$node->start;
}
create_extension($node);
set_clock(100);
like(unaudited_sql($node, 'SELECT extract(epoch FROM clock_timestamp()) - ' . time),
	qr/^(?:99|1\d\d)/, 'the clock can be set');

# Each case takes another hour away.
my $hours = 0;

sub set_back
{
	set_clock(-3600 * ++$hours);
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
