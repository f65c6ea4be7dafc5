#
# Compare the records of pgaudit in a server log (jsonlog) with those of a trail
# in format json, of the same sessions and settings.  Called by scripts/regress
# --parity.
#
#	compare.pl server.json trail...
#
# Ids need not be the same: the suite has statements of which only one of the
# two has a record.  Ids decide between records that are equal otherwise.
#
# Exits with 1 if pgaudit has a record that we have not, with some exceptions:
# records of a parallel worker, of a relation of which no permission is asked
# for, of MERGE, which pgaudit does not know, and records whose text has
# something masked.  While PL/pgSQL has a cursor open, for a loop as well,
# pgaudit shows the text of the cursor's query for functions that are called,
# and ours shows the statement that executes: these have the same statement id.
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
my (%exact, %ours, @ours, @theirs, %reasons, @missing);
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
		push @ours, $record;
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
foreach my $record (@ours)
{
	my $whole = key($record) . "\t$record->{text}";

	next if !$exact{$whole};
	$exact{$whole}--;
	push @{ $ours{ key($record) } }, $record;
}

sub same_ids
{
	my ($theirs, $ours) = @_;

	return $theirs->{id} == $ours->{id} && $theirs->{subid} == $ours->{subid};
}

# Take one of those that are left for pgaudit's record, if $sub finds it.
sub take
{
	my ($record, $sub) = @_;
	my $list = $ours{ key($record) } // [];
	my ($found) = grep { $sub->($record, $list->[$_]) } 0 .. $#$list;

	return 0 if !defined $found;
	splice @$list, $found, 1;
	$own--;
	return 1;
}

@theirs = grep {
	!take($_, sub { same_ids(@_) && has_text($_[0]{text}, $_[1]{text}) })
} @theirs;
foreach my $record (@theirs)
{
	my $reason = reason($record);

	next if take($record, sub { has_text($_[0]{text}, $_[1]{text}) });
	$reason //= 'function behind a cursor'
	  if $record->{class} eq 'FUNCTION'
	  && take($record, sub { $_[0]{id} == $_[1]{id} });
	if (defined $reason)
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
