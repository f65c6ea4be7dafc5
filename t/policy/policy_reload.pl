# Policies change under load: each statement is recorded once, by the rules before or
# by those after the change.  The rules of one file have a condition that is judged when
# a statement ends, possibly in the presence of other rules than it began with.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqPolicy;
use PaqTest;

use List::Util qw(uniq);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { log => 'none', queue_size => '16MB', flush_interval => '20ms' },
	conf     => "autovacuum = off\n");
my $changes = full_tests() ? 200 : 10;

# Two files that record what the clients do.  In one of them are many rules that do
# not concern them, so that the places of rules differ, too.
my %rules = (
	late  => "record all loader all read all rows>=1 name=late\n",
	early => join('', map { "ignore other$_ all all all all\n" } 1 .. 50)
	  . "record all loader all read all name=early\n");

unaudited_sql($node, 'CREATE ROLE loader SUPERUSER LOGIN');
install_policy($node, $rules{late}, log => 'none');

my $load = start_load(
	$node, 'load',
	clients    => 4,
	statements => full_tests() ? 20_000 : 1_000,
	user       => 'loader');
my $running = sub { grep { $_->{run}->pumpable } @{ $load->{sessions} } };
my $changed = 0;

foreach my $change (1 .. $changes)
{
	last if !$running->();
	install_policy($node, $rules{ $change % 2 ? 'early' : 'late' }, log => 'none');
	$changed++;
}
cmp_ok($changed, '>=', 5, 'rules change while statements are executed');
is(finish_load($load), $load->{number}, 'all statements succeed');
flush_trail($node);

my @records = check_trail($node, 'the trail is whole');
my @ours = grep { ($_->{commandText} // '') =~ /'load-[0-9-]+'/ } @records;

check_load($load, \@ours, 'each has one record');
is(scalar @ours, $load->{number}, 'there are no more records');
is_deeply([ sort(uniq(map { $_->{policy} // 'none' } @ours)) ],
	[ 'early', 'late' ], 'by the rules before or after a change');

# A session sees the changes one after the other: it never goes back to older rules.
my %turns;
my %last;
foreach my $record (@ours)
{
	my $session = $record->{sessionId};

	$turns{$session}++ if ($last{$session} // '') ne $record->{policy};
	$last{$session} = $record->{policy};
}
is(scalar(grep { $_ > $changed + 1 } values %turns), 0, 'in order');
cmp_ok((sort { $b <=> $a } values %turns)[0], '>=', 4, 'sessions follow');

# Each change is recorded with the checksums of both, which lead from one to the next.
my @reloads = grep { $_->{class} eq 'CONFIG' && ($_->{objectType} // '') eq 'POLICY' } @records;

is(scalar @reloads, $changed + 1, 'each change has a record');
is_deeply([ map { $_->{oldValue} } @reloads[ 1 .. $#reloads ] ],
	[ map { $_->{newValue} } @reloads[ 0 .. $#reloads - 1 ] ], 'from one to the next');
is(scalar(uniq map { $_->{newValue} } @reloads), 2, 'two files');

$node->stop;
done_testing();
