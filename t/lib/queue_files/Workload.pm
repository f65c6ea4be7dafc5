#-------------------------------------------------------------------------
#
# Workload.pm
#	Statements that can be told from each other wherever they turn up: in a
#	ring, a slot, a trail.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package Workload;

use strict;
use warnings;

use Exporter 'import';

use Digest::MD5 qw(md5_hex);
use PaqTest;

our @EXPORT = qw(
  begin_statement
  marker
  marker_in
  padding
  publish
  stop_worker_at
  unaudited
);

my $number = 0;

# marker(): a new text that nothing can change into another such text.
sub marker
{
	$number++;
	return "fz-$number-" . substr(md5_hex($number), 0, 8);
}

# marker_in($bytes): the first one, undef if there is none.
sub marker_in
{
	my ($bytes) = @_;

	while ($bytes =~ /fz-(\d+)-([0-9a-f]{8})/g)
	{
		return "fz-$1-$2" if $2 eq substr(md5_hex($1), 0, 8);
	}
	return undef;
}

# padding($limit): text of a random length up to that, sometimes of many lines,
# which may end and begin with what is doubled in CSV.
sub padding
{
	my $text = 'x' x int(rand($_[0] + 1));

	$text =~ s/(x{6,30})xxx/$1 . ("\n", "\"\n", "\n\",")[ rand 3 ]/ge if rand() < 0.3;
	return $text;
}

# publish($client, $count, %options): so many statements, one by one, that have
# their outcome.  Options: padding, at most so many bytes, 1000 unless given;
# spill, the number of the one that is too long for the ring.  Returns the
# markers.
sub publish
{
	my ($client, $count, %options) = @_;
	my @markers;

	foreach my $i (1 .. $count)
	{
		my $marker = marker();
		my $text = $i == ($options{spill} // 0) ? 'y' x 20000
		  : padding($options{padding} // 1000);

		$client->query("SELECT '$marker' /* $text */");
		push @markers, $marker;
	}
	return @markers;
}

# begin_statement($server, $text): one that goes on, in a connection of its
# own, which is returned.
sub begin_statement
{
	my ($server, $text) = @_;
	my $client = $server->connect;
	my $marker = marker();
	my $pid    = $client->pid;

	$client->start("SELECT pg_sleep(600), '$marker' /* $text */");
	poll_until(
		sub {
			unaudited($server,
				"SELECT 1 FROM pg_stat_activity WHERE pid = $pid AND wait_event = 'PgSleep'"
			) =~ /D/;
		}) or die 'the statement does not run';
	return $client;
}

# unaudited($server, $sql): returns PgProto's words.
sub unaudited
{
	my ($server, $sql) = @_;

	return $server->ask($sql, user => 'paq_quiet');
}

# stop_worker_at($server, $point): let the worker write what there is, and a
# statement more, and stop at a fault point: after a skip it does not wait to be
# told, and may have written the rest.  Returns the connection that waits for it.
sub stop_worker_at
{
	my ($server, $point) = @_;
	my $worker = $server->worker;
	my $client = $server->connect(user => 'paq_quiet');

	set_faults($server->node, $point => 'stop');
	$server->ask("SELECT '" . marker() . "'");
	$client->start('SELECT audit_flush()');
	wait_until_stopped($worker) or die 'it does not stop';
	return $client;
}

1;
