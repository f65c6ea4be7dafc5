# sink = table: the cost of a record for the loader depends neither on the
# number of records that are to be loaded, or that are skipped by a loader that
# takes over, nor on the length of other records.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;

use PostgreSQL::Test::Utils;

use constant FEW  => 1000;
use constant MANY => 16000;

my $node = audited_node(
	'main',
	settings => { sink => 'table', flush_interval => '10ms' },
	conf     => "autovacuum = off\n");

# CPU time of a process so far, in seconds
sub cpu_time
{
	my ($pid) = @_;
	my ($nanoseconds) = split ' ', slurp_file("/proc/$pid/schedstat");

	return $nanoseconds / 1e9;
}

# CPU time that the loader takes for so many records in a file of their own, in
# seconds
sub loading_time
{
	my ($count) = @_;
	my $loader = stats($node)->{loader_pid};

	$node->safe_psql('postgres', 'SELECT audit_rotate()');
	table_loaded($node) or die 'the table has not caught up';
	my $before = cpu_time($loader);
	kill('STOP', $loader) == 1 or die "could not stop process $loader: $!";
	$node->safe_psql('postgres',
		"DO \$\$ BEGIN FOR i IN 1 .. $count LOOP EXECUTE 'SELECT ' || i; END LOOP; END \$\$");
	flush_trail($node);
	kill('CONT', $loader) == 1 or die "could not continue process $loader: $!";
	ok(table_loaded($node), "$count records are loaded");
	is(stats($node)->{loader_pid}, $loader, 'by the same process');
	return cpu_time($loader) - $before;
}

plan skip_all => 'there is no /proc/PID/schedstat'
  if !-e "/proc/$$/schedstat";
$node->safe_psql('postgres', "SELECT 'first'");
table_loaded($node) or die 'the table has not caught up';
my $few  = loading_time(FEW);
$node->safe_psql('postgres', "SELECT 'long' /* " . 'x' x 3_000_000 . ' */');
my $many = loading_time(MANY);
cmp_ok($many / MANY, '<', 3 * $few / FEW,
	'of many, and behind a long one, a record takes no more time')
  or diag("$few s, $many s");

# What the table has of the current file is skipped by the next loader.

my $loader = stats($node)->{loader_pid};
unaudited_sql($node, "SELECT pg_terminate_backend($loader)");
ok(poll_until(sub { (stats($node)->{loader_pid} // $loader) != $loader }),
	'there is another loader');
$node->safe_psql('postgres', "SELECT 'next'");
ok(table_loaded($node), 'the next records are loaded');
my $skipping = cpu_time(stats($node)->{loader_pid});
cmp_ok($skipping, '<', $few + $many, 'to skip a record takes less time than to load it')
  or diag("$skipping s, $few s, $many s");
$node->stop;

done_testing();
