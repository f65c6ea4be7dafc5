#-------------------------------------------------------------------------
#
# Rounds.pm
#	Rounds of a test with random numbers that can be repeated.
#
#	my $rounds = Rounds->new(short => 60, full => 2000);
#	foreach my $number ($rounds->numbers) {
#		$rounds->begin($number);
#		$rounds->failed($number, $name, \@faults, @files) and last if @faults;
#	}
#	$rounds->finish;
#
# Options from the environment:
#
#	PAQ_TEST_SEED	the number to begin with, printed; otherwise a random one
#	PAQ_TEST_ROUNDS	how many rounds; otherwise short, or full with scripts/test --full
#	PAQ_TEST_ONLY	one round alone, by its number
#	PAQ_TEST_KEEP	a directory for the files of rounds that fail
#	PAQ_TEST_LIMIT	so many failures end the test (20)
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package Rounds;

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use Digest::MD5 qw(md5_hex);
use PaqTest;
use Test::More;

sub new
{
	my ($class, %counts) = @_;
	my $self = bless {
		seed  => $ENV{PAQ_TEST_SEED} // int(rand(1_000_000_000)),
		count => $ENV{PAQ_TEST_ROUNDS} // $counts{ full_tests() ? 'full' : 'short' },
		bad   => 0,
		began => time
	}, $class;

	note("PAQ_TEST_SEED=$self->{seed} PAQ_TEST_ROUNDS=$self->{count}");
	srand($self->{seed});
	return $self;
}

# count(): the number of rounds there shall be.
sub count
{
	return $_[0]{count};
}

# numbers(): of the rounds to do; one, if only one is asked for.
sub numbers
{
	return $ENV{PAQ_TEST_ONLY} // (1 .. $_[0]{count});
}

# begin($number): random numbers are that round's from now on.
sub begin
{
	my ($self, $number) = @_;

	srand(hex substr(md5_hex("$self->{seed} $number"), 0, 8));
	return;
}

# failed($number, $name, \@faults, @files): a round has found something wrong.
# Returns true if that is enough for the whole test.
sub failed
{
	my ($self, $number, $name, $faults, @files) = @_;
	my @faults = @$faults;

	$self->{bad}++;
	if ($ENV{PAQ_TEST_KEEP})
	{
		my $to = "$ENV{PAQ_TEST_KEEP}/$number";

		mkdir $to or diag("$to: $!");
		system('cp', '-a', @files, $to);
	}
	$#faults = 4 if @faults > 5;
	fail("$name (PAQ_TEST_SEED=$self->{seed} PAQ_TEST_ONLY=$number)");
	diag(map { substr($_, -1500) . "\n" } @faults);
	return $self->{bad} >= ($ENV{PAQ_TEST_LIMIT} // 20);
}

# finish($name): no round has failed.
sub finish
{
	my ($self, $name) = @_;

	is($self->{bad}, 0, $name);
	note(sprintf '%d s', time - $self->{began});
	return;
}

1;
