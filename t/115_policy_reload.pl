# Policies change under load: each statement is recorded once, by the rules before or
# by those after the change.  Half of what a client does matches a rule with a
# condition, which is judged when the statement ends, possibly by other rules than it
# began with.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
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

# Rules that record everything, one half of it by an early decision, the other by a
# late one, in different places of the file.
sub rules
{
	my ($name) = @_;
	my @rules = (
		"record all all all read all rows>=1 name=${name}_rows",
		"record all all all all all name=$name");

	# what does not concern the clients, so that the files differ in length, too
	unshift @rules, map { "ignore other$_ all all all all" } 1 .. 50 if $name eq 'b';
	return join '', map { "$_\n" } @rules;
}

unaudited_sql($node, 'CREATE ROLE loader SUPERUSER LOGIN');
install_policy($node, rules('a'), log => 'none');

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
	install_policy($node, rules($change % 2 ? 'b' : 'a'), log => 'none');
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
	[ 'a_rows', 'b_rows' ], 'by the rules before or after a change');

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
