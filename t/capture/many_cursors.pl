#-------------------------------------------------------------------------
#
# capture/many_cursors.pl
#	Thousands of statements that are open at the same time.
#
# The test compares the CPU time of the session for some number of cursors with
# that for four times the number.  The ratio is the same on a slow machine.
# Other processes can only add to a run, so the shortest of several runs counts.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use List::Util qw(min);
use Test::More;
use Time::HiRes qw(clock_gettime);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

# How many cursors, and how much longer so many times as many may take: if all that
# are open were looked through for each, that were 12 times as long.
use constant {
	FEW    => 3_000,
	TIMES  => 4,
	LIMIT  => 8,
	ROUNDS => 4
};

my $node = audited_node('main', settings => { queue_size => '64MB' });

# CPU time that the session has used, in seconds: the clock of another process, as
# clock_getcpuclockid() makes its number
sub cpu_time
{
	my ($client) = @_;
	use integer;

	return clock_gettime(~$client->pid << 3 | 2);
}

# Open so many cursors in a transaction, and use the oldest one.  Returns the CPU
# time of that.
sub open_cursors
{
	my ($client, $cursors) = @_;
	my $before = cpu_time($client);

	$client->query(
		"BEGIN;
		 DO \$\$ DECLARE c refcursor;
		 BEGIN
			FOR i IN 1..$cursors LOOP
				c := 'c' || i;
				OPEN c FOR SELECT i AS opened;
			END LOOP;
		 END \$\$;
		 FETCH c1;
		 CLOSE c1;
		 COMMIT");
	return cpu_time($client) - $before;
}

my $client = PgProto->connect($node);

$client->query("SET pg_audit_queue.log = 'read'");

my (@few, @many, $sequence);
foreach my $round (1 .. ROUNDS)
{
	push @few, open_cursors($client, FEW);
	$sequence = flush_trail($node);
	push @many, open_cursors($client, TIMES * FEW);
}
my ($few, $many) = (min(@few), min(@many));

note "CPU time: @few; of " . TIMES . " times as many: @many";
cmp_ok($few, '>', 0, 'CPU time is known');
cmp_ok($many, '<', LIMIT * $few, 'a cursor costs the same however many are open');

# to decode all of the trail would take longer than all the rest
flush_trail($node);
my @outcomes = map { $_->{exitCode} } map { parse_record($_) }
  grep { /"sequence":(\d+)/ && $1 > $sequence && /AS opened/ } trail_lines($node);

is(scalar @outcomes, TIMES * FEW, 'each cursor has its record');
is(scalar(grep { $_ eq '00000' } @outcomes), TIMES * FEW, 'with its outcome');
$client->quit;
$node->stop;

done_testing();
