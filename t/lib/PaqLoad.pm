#-------------------------------------------------------------------------
#
# PaqLoad.pm
#	Clients at work while something happens to the server, and the trail in the table.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqLoad;

use strict;
use warnings;

use Exporter 'import';

use Test::More;

use PaqProcess;
use PaqServer;

our @EXPORT = qw(
  check_load
  finish_load
  start_load
  table_loaded
);

# table_loaded($node, $database): with sink = table, wait until the table in that
# database (postgres unless given) has all that was recorded before the call.
# Returns whether that came about in time.
sub table_loaded
{
	my ($node, $database) = @_;
	my $sequence = flush_trail($node);

	return poll_until(
		sub {
			unaudited_sql($node,
				"SELECT max(sequence) >= $sequence FROM audit_queue.load_state",
				$database) eq 't';
		});
}

# start_load($node, $label, %options): clients that run one statement after the
# other, each with a text of its own, and keep what they were told about it.
#
# Options, apart from those of start_psql():
#	clients		their number, 4 unless given
#	statements	of each client, 500 unless given
#	pause		between two statements in seconds, 0.001 unless given
#
# Returns a load for finish_load().
sub start_load
{
	my ($node, $label, %options) = @_;
	my $clients    = $options{clients}    // 4;
	my $statements = $options{statements} // 500;
	my $pause      = $options{pause}      // 0.001;
	my @sessions;

	foreach my $client (1 .. $clients)
	{
		my $sql = join "\n",
		  map { "SELECT '$label-$client-$_' FROM pg_sleep($pause);" }
		  1 .. $statements;

		push @sessions, start_psql($node, $sql, %options);
	}
	return {
		label    => $label,
		number   => $clients * $statements,
		sessions => \@sessions
	};
}

# finish_load($load): wait for the clients' end, whether they have come through
# or were cut off.  Notes in the load which statements they were told had
# succeeded, and returns the number of these.
sub finish_load
{
	my ($load) = @_;

	$load->{succeeded} = [];
	foreach my $session (@{ $load->{sessions} })
	{
		my ($status, $stdout, $stderr) = finish_psql($session);

		note($stderr) if $stderr ne '';
		push @{ $load->{succeeded} }, grep { /^\Q$load->{label}\E-/ }
		  split /\n/, $stdout;
	}
	return scalar @{ $load->{succeeded} };
}

# check_load($load, $records, $name): test that each statement of the finished
# load that a client was told had succeeded has one record, a successful one,
# and that no other statement has more than one.
sub check_load
{
	my ($load, $records, $name) = @_;
	my %seen;
	my @faults;

	foreach my $record (@$records)
	{
		next
		  if ($record->{commandText} // '') !~ /'(\Q$load->{label}\E-[0-9-]+)'/;
		push @{ $seen{$1} }, $record;
	}
	foreach my $text (@{ $load->{succeeded} })
	{
		push @faults, "$text: no record" if !exists $seen{$text};
		push @faults, "$text: outcome $seen{$text}[0]{exitCode}"
		  if exists $seen{$text} && $seen{$text}[0]{exitCode} ne '00000';
	}
	foreach my $text (sort keys %seen)
	{
		push @faults, "$text: " . @{ $seen{$text} } . ' records'
		  if @{ $seen{$text} } > 1;
	}
	# report the caller's line; the first faults tell enough
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$#faults = 9 if @faults > 10;
	is(join("\n", @faults), '', $name);
	return;
}

1;
