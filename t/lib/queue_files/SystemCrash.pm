#-------------------------------------------------------------------------
#
# SystemCrash.pm
#	Files after a crash of the operating system: each page has either the
#	contents that were last synced or those that were last written.
#
# Random numbers are rand()'s.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package SystemCrash;

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PaqTest;
use PostgreSQL::Test::Utils;
use SavedState;

my $page = 4096;
my $copies;

# keep_synced(): servers that are started from now on keep a copy of what they sync
# (t/lib/synced/synced.c).  They need fsync = on.  Returns the directory of the copies.
sub keep_synced
{
	$copies = PostgreSQL::Test::Utils::tempdir() . '/synced';
	mkdir $copies or die "mkdir: $!";
	$ENV{PAQ_SYNCED_DIRECTORY} = $copies;
	$ENV{LD_PRELOAD} = build_preloaded('synced');
	return $copies;
}

# synced_bytes($path): what a file had when it was last synced; undef if it never was.
sub synced_bytes
{
	my ($path) = @_;
	my $copy = "$copies/" . (stat $path)[1];

	return -e $copy ? SavedState::read_file($copy) : undef;
}

# mix($synced, $last, $probability): bytes of a file whose size is fixed; pages
# that differ are the later ones with this probability.
sub mix
{
	my ($synced, $last, $probability) = @_;
	my $mixed = $synced;

	for (my $at = 0; $at < length $last; $at += $page)
	{
		substr($mixed, $at, $page) = substr($last, $at, $page)
		  if substr($synced, $at, $page) ne substr($last, $at, $page)
		  && rand() < $probability;
	}
	return $mixed;
}

# grow($synced, $last, $probability): of a file that was appended to.  It may
# have any size in between, and pages that were not written are zeros.
sub grow
{
	my ($synced, $last, $probability) = @_;
	my $low  = length $synced;
	my $size = $low;
	my $mixed;

	return $synced if length $last <= $low;
	if (rand() < $probability)
	{
		# the end, the end of a page, or anywhere
		my $kind = int(rand(3));

		$size = length $last;
		$size = $low + int(rand($size - $low + 1)) if $kind > 0;
		$size -= $size % $page if $kind == 1 && $size - $size % $page > $low;
	}
	$mixed = $synced . "\0" x ($size - $low);
	for (my $at = $low - $low % $page; $at < $size; $at += $page)
	{
		my $length = $size - $at < $page ? $size - $at : $page;

		substr($mixed, $at, $length) = substr($last, $at, $length)
		  if rand() < $probability;
	}
	return $mixed;
}

1;
