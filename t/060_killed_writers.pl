#
# Processes that are killed while they put a record into the queue, and of which
# the postmaster takes no notice, because it is recovering from another crash:
# processes that refuse clients meanwhile, any number of them.  Their deaths
# make no gap.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;
use PgProto;

use IO::Socket::UNIX;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { log => 'connect' });

# Send a startup packet and read what comes until the end.
sub knock
{
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port)
	  // die "could not connect: $!";
	my $packet = pack('N (Z*)* x', 196608, 'user', scalar(getpwuid($>)),
		'database', 'postgres');
	my ($answer, $part) = ('');

	syswrite($socket, pack('N', 4 + length $packet) . $packet);
	$answer .= $part while sysread($socket, $part, 8192);
	return $answer;
}

# Crash the server, and call the code while it has not come to an end yet: one
# process does not take notice of anything, until the postmaster, after five
# seconds, ends it for good.
sub while_crashing
{
	my ($code) = @_;
	my $worker = worker_pid($node);
	my @clients = map { PgProto->connect($node) } 1 .. 2;
	my ($deaf, $victim) = map { $_->pid } @clients;

	kill('STOP', $deaf) == 1   or die "kill: $!";
	kill('KILL', $victim) == 1 or die "kill: $!";
	poll_until(sub { knock() =~ /57P03/ }) or die 'clients are not refused';
	$code->();
	kill('KILL', $deaf);
	wait_for_worker($node, $worker);
	flush_trail($node);
	return;
}

# How many processes refuse clients, and are killed at which point
my @deaths = (
	[ 'ring-unplaced',   30 ], [ 'ring-claimed',  10 ],
	[ 'ring-reserved',   10 ], [ 'ring-unplaced', 10 ]);

while_crashing(
	sub {
		foreach my $death (@deaths)
		{
			my ($point, $number) = @$death;

			set_faults($node, $point => 'kill');
			is(scalar(grep { knock() ne '' } 1 .. $number),
				0, "$number processes are killed at $point");
		}
		set_faults($node);
		like(knock(), qr/57P03/, 'the next one lives');
	});
my @gaps = grep { $_->{type} eq 'gap' } check_trail($node, 'after it');
is_deeply([ map { $_->{errorMessage} } @gaps ], [], 'there is no gap');

# However many die before they have said where they are going to write: there are
# more of them than can be at it at the same time.
while_crashing(
	sub {
		set_faults($node, 'writer-borrowed' => 'kill');
		is(scalar(grep { knock() ne '' } 1 .. 140), 0, '140 processes are killed');
		set_faults($node);
		like(knock(), qr/57P03/, 'the next one lives') foreach 1 .. 3;
	});
my @records = check_trail($node, 'after them');
is_deeply([ grep { $_->{type} eq 'gap' } @records ], [], 'there is no gap');
cmp_ok(scalar(grep { $_->{exitCode} eq '57P03' } @records),
	'>=', 4, 'those who lived have their records');

$node->stop;
done_testing();
