#
# Compare the records of pgaudit in a server log (jsonlog) with those of a trail
# in format json, of the same sessions and settings: what scripts/regress
# --parity calls.
#
#	compare.pl server.json trail...
#
# Ids are left out: the suite has statements that one of the two has no record
# of.  Exits with 1 if pgaudit has a record that we have not, unless it is one of
# these: of a parallel worker, of a relation of which no permission is asked for,
# of MERGE, which it does not know, or one whose text has something masked.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

# PostgreSQL's modules for tests send what is printed to a file of their own.
my $out;
BEGIN { open $out, '>&', \*STDOUT or die $! }

use FindBin;
use lib "$FindBin::RealBin/..";
use PaqParity;

my ($log, @trail) = @ARGV;
my (%exact, %ours, @theirs, %reasons, @missing);
my ($total, $own) = (0, 0);

sub read_lines
{
	my ($file, $sub) = @_;

	open my $handle, '<', $file or die "could not open $file: $!";
	while (my $line = <$handle>)
	{
		chomp $line;
		$sub->($line);
	}
	close $handle;
	return;
}

# What has to be the same, without the text
sub key
{
	my ($record) = @_;

	return join "\t", @$record{qw(session type class command otype oname)};
}

# Is it ours, perhaps a part of pgaudit's, with secrets masked?
sub has_text
{
	my ($theirs, $ours) = @_;
	my $pattern = join '.*', map { quotemeta } split /<REDACTED>/, $ours, -1;

	return $theirs eq $ours || $theirs =~ /$pattern/s || $theirs =~ /<REDACTED>$/;
}

sub reason
{
	my ($record) = @_;

	return 'parallel worker' if $record->{backend} eq 'parallel worker';
	return 'MERGE' if $record->{text} =~ /\bMERGE\b/i && $record->{class} =~ /MISC|WRITE/;
	return 'no permission asked for' if $record->{command} eq '???';
	return undef;
}

read_lines(
	$_,
	sub {
		my ($line) = @_;

		return if $line !~ /"class":"(?!CONNECT|CONFIG|GAP|ERROR)/;
		my $record = PaqParity::_parse_trail($line);
		$exact{ key($record) . "\t$record->{text}" }++;
		$own++;
	}) foreach @trail;
read_lines(
	$log,
	sub {
		my $record = PaqParity::_parse_log($_[0]) // return;
		my $whole = key($record) . "\t$record->{text}";

		$total++;
		if ($exact{$whole})
		{
			$exact{$whole}--;
			$own--;
		}
		else
		{
			push @theirs, $record;
		}
	});

# What is left, by what has to be the same
foreach my $whole (sort keys %exact)
{
	my ($key, $text) = $whole =~ /^((?:[^\t]*\t){5}[^\t]*)\t(.*)$/s;

	push @{ $ours{$key} }, ($text) x $exact{$whole};
}
foreach my $record (@theirs)
{
	my $list = $ours{ key($record) } // [];
	my ($found) = grep { has_text($record->{text}, $list->[$_]) } 0 .. $#$list;
	my $reason = reason($record);

	if (defined $found)
	{
		splice @$list, $found, 1;
		$own--;
	}
	elsif (defined $reason)
	{
		$reasons{$reason}++;
	}
	else
	{
		push @missing, $record;
	}
}

print $out "pgaudit has $total records: ", scalar @missing, " that we have not";
print $out ", $_: $reasons{$_}" foreach sort keys %reasons;
print $out "; $own only we have\n";
foreach my $record (@missing[ 0 .. ($#missing > 39 ? 39 : $#missing) ])
{
	print $out '  ', key($record), "\t", substr($record->{text} =~ s/\s+/ /gr, 0, 150), "\n";
}
exit(@missing ? 1 : 0);
