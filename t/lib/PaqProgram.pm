#-------------------------------------------------------------------------
#
# PaqProgram.pm
#	Runs pg_audit_trail.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqProgram;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;

use Test::More;

use PaqBuild;

our @EXPORT = qw(
  finish_trail_program
  has_trail_program
  need_trail_program
  on_terminal
  start_trail_program
  trail_on_terminal
  trail_program
);

# on_terminal($descriptors, $code): calls it.  To programs that it starts, the file
# descriptors with these numbers, in a string, are a terminal of 90 columns.  Returns what
# it returns.
my $terminal_library;

# has_trail_program(): is pg_audit_trail installed?  It is built only where PostgreSQL's
# static libraries are.
sub has_trail_program
{
	return -x _trail_program();
}

# need_trail_program(): skip the whole test without it.
sub need_trail_program
{
	plan skip_all => 'pg_audit_trail is not installed' if !has_trail_program();
	return;
}

sub _trail_program
{
	return (`pg_config --bindir` =~ s/\n//r) . '/pg_audit_trail';
}

# trail_program(@args): runs pg_audit_trail; returns its exit status, standard output
# and standard error.
sub trail_program
{
	my @args = @_;
	my ($stdout, $stderr);

	IPC::Run::run([ _trail_program(), @args ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	return ($? >> 8, $stdout, $stderr);
}

# start_trail_program(@args): starts it; returns a hash with what it has said so far in
# {stdout} and {stderr}, when {run} is pumped, for finish_trail_program().
sub start_trail_program
{
	my @args = @_;
	my %program = (stdout => '', stderr => '');

	$program{run} = IPC::Run::start([ _trail_program(), @args ],
		'<', \undef, '>', \$program{stdout}, '2>', \$program{stderr});
	return \%program;
}

# finish_trail_program($program, $signal): ends it by the signal, TERM unless given; returns
# its exit status, or "signal N", standard error and standard output.
sub finish_trail_program
{
	my ($program, $signal) = @_;

	$program->{run}->signal($signal // 'TERM');
	$program->{run}->finish;
	my $status = $program->{run}->full_result(0);
	return ($status & 127 ? "signal $status" : $status >> 8, $program->{stderr},
		$program->{stdout});
}

sub on_terminal
{
	my ($descriptors, $code) = @_;

	$terminal_library //= build_preloaded('terminal');
	local $ENV{LD_PRELOAD}   = $terminal_library;
	local $ENV{PAQ_TERMINAL} = $descriptors;

	# which wants to be the first library otherwise
	local $ENV{ASAN_OPTIONS} = join ':', $ENV{ASAN_OPTIONS} // (), 'verify_asan_link_order=0';
	return $code->();
}

# trail_on_terminal(@args): what pg_audit_trail prints on a terminal of 90 columns, messages
# too.
sub trail_on_terminal
{
	my @args = @_;
	my $shown;

	on_terminal('12', sub { IPC::Run::run([ _trail_program(), @args ], '<', \undef, '>&', \$shown) });
	return $shown;
}

1;
