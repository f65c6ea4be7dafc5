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

my $page = 4096;

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
