#-------------------------------------------------------------------------
#
# 066_many_cursors.pl
#	Thousands of statements that are open at the same time.
#
# The session's CPU time counts, because it does not depend on what else the
# machine does.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use constant CURSORS => 20_000;

my $node = audited_node('main', settings => { queue_size => '64MB' });

# CPU time that the session has used, in clock ticks
sub cpu_time
{
	my ($client) = @_;
	my ($fields) = slurp_file('/proc/' . $client->pid . '/stat') =~ /\) (.*)/;
	my @fields = split / /, $fields;

	return $fields[11] + $fields[12];
}

# Open so many cursors in a transaction, and use the oldest one.  Returns the CPU
# time of that, in clock ticks.
sub open_cursors
{
	my ($client) = @_;
	my $cursors  = CURSORS;
	my $before   = cpu_time($client);

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

$client->query("SET pg_audit_queue.log = 'none'");
my $unaudited = open_cursors($client);

$client->query("SET pg_audit_queue.log = 'read'");
my $sequence = flush_trail($node);
my $audited  = open_cursors($client);

note "CPU time: $unaudited without records, $audited with them";
cmp_ok($audited, '<=', 2.5 * $unaudited + 10,
	'a cursor costs the same however many are open');

flush_trail($node);
my @opened = grep {
	$_->{sequence} > $sequence && ($_->{commandText} // '') =~ /AS opened/
} trail_records($node);

is(scalar @opened, CURSORS, 'each cursor has its record');
is(scalar(grep { $_->{exitCode} eq '00000' } @opened),
	CURSORS, 'with its outcome');
$client->quit;
$node->stop;

done_testing();
