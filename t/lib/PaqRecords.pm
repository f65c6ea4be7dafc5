#-------------------------------------------------------------------------
#
# PaqRecords.pm
#	Reads the trail back: its files, lines and records.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqRecords;

use strict;
use warnings;

use Exporter 'import';
use FindBin;
use IPC::Run;
use JSON::XS;
use Time::HiRes qw(stat);

use PostgreSQL::Test::Utils;
use Test::More;

use PaqProgram;
use PaqServer;

our @EXPORT = qw(
  check_trail
  columns
  parse_csv
  parse_record
  parse_trail
  put_file
  python
  records_after
  records_for
  reload_settings
  texts_in_trail
  trail_files
  trail_lines
  trail_records
  trail_text
  with_line_changed
  without_config
);

# Names of trail files; the first group is the format's ending.
my $TRAIL_FILE = qr/\.(json|log|csv)(?:\.zst|\.lz4)?(?:\.enc)?$/;

# reload_settings($node, %settings): give the server other values of settings, as for
# settings_text(), and wait until the worker has them: it records each.  Returns whether
# that came about in time.
sub reload_settings
{
	my ($node, %settings) = @_;
	my $names   = join '|', sort keys %settings;

	# retention may remove a file after it was listed, and some of the records
	my $lines   = sub {
		my ($file) = @_;
		my $text = eval { trail_text($file) };

		die $@ if !defined $text && -e $file;
		return split /\n/, $text // '';
	};
	my $records = sub {
		flush_trail($node);
		return grep { /"command":"SET".*"objectName":"pg_audit_queue\.(?:$names)"/ }
		  map { $lines->($_) } trail_files($node);
	};
	my %before = map { $_ => 1 } $records->();

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	return poll_until(sub { (grep { !$before{$_} } $records->()) >= keys %settings });
}

# trail_files($node): paths of the trail's files, oldest first, if log_filename
# is a pattern whose names sort by time.  None if there is no directory.
sub trail_files
{
	my ($node) = @_;
	my $dir = trail_dir($node);

	return () if !-d $dir;

	# a number in front of the ending distinguishes files of the same time
	my @keys = map { [ $_, /^(.*?)(?:\.([0-9]+))?(\.[a-z]+(?:\.zst|\.lz4)?(?:\.enc)?)$/ ] }
	  grep { /$TRAIL_FILE/ } slurp_dir($dir);

	return map { "$dir/$_->[0]" }
	  sort {
			 $a->[1] cmp $b->[1]
		  or ($a->[2] // 0) <=> ($b->[2] // 0)
		  or $a->[3] cmp $b->[3]
	  } @keys;
}

# trail_lines($node): the lines of all files in order, without their ends.
sub trail_lines
{
	my ($node) = @_;

	return map { split /\n/, trail_text($_) } trail_files($node);
}

# trail_text($file): the text of a trail file, which pg_audit_trail reads if it has
# layers, with the keys of encryption_key(), and not again as long as nothing has written
# to it.  Dies if it is damaged.
my %text_of;

sub trail_text
{
	my ($file)   = @_;
	my %formats  = (json => 'json', csv => 'csvlog', log => 'pgaudit');
	my ($format) = $file =~ $TRAIL_FILE;
	my $keys     = encryption_key_file();

	return slurp_file($file) if $file =~ /\.$format$/;

	# device, inode, size, time of the last change
	my $version = join ' ', (stat $file)[ 0, 1, 7, 10 ];

	if (($text_of{$file}{version} // '') ne $version)
	{
		my ($status, $stdout, $stderr) = trail_program('cat', '--format', $formats{$format},
			(-e $keys ? ('-K', $keys) : ()), $file);
		die "$file: $stderr" if $status > 1 || $stderr =~ /damaged/;
		$text_of{$file} = { version => $version, text => $stdout };
	}
	return $text_of{$file}{text};
}

# parse_record($line): a line of a JSON trail as a hash.  undef if it is not
# a JSON object in UTF-8.
sub parse_record
{
	my ($line) = @_;
	my $record = eval { JSON::XS->new->utf8->decode($line) };

	return ref $record eq 'HASH' ? $record : undef;
}

# records_after($node, $sequence): the records of the JSON trail behind that one, as hashes.
# Others are not parsed, which takes long.
sub records_after
{
	my ($node, $sequence) = @_;

	return map { parse_record($_) // () }
	  grep { /"sequence": ?(\d+)/ && $1 > $sequence } _lines_behind($node, $sequence);
}

# The lines of the JSON trail behind that sequence, and perhaps more: of each file those that
# come after its last line with a sequence that is not behind.
sub _lines_behind
{
	my ($node, $sequence) = @_;
	my @lines;

	foreach my $file (trail_files($node))
	{
		my $text = trail_text($file);
		my $end  = length($text) - ($text =~ /\n\z/ ? 1 : 0);
		my @last;

		while ($end > 0)
		{
			my $begin = rindex($text, "\n", $end - 1) + 1;
			my $line  = substr($text, $begin, $end - $begin);

			# what a test has put there may have the number 0
			last if $line =~ /^\{[^{}]*?"sequence":([1-9][0-9]*)/ && $1 <= $sequence;
			push @last, $line;
			$end = $begin - 1;
		}
		push @lines, reverse @last;
	}
	return @lines;
}

# trail_records($node): the whole JSON trail, each record as a hash.
sub trail_records
{
	my ($node) = @_;
	my @records;

	foreach my $line (trail_lines($node))
	{
		push @records,
		  parse_record($line) // die "not a JSON record: \"$line\"";
	}
	return @records;
}

# python(): path of the distribution's own Python, which has the distribution's
# packages; undef if there is none.
sub python
{
	my ($python) = grep { -x $_ } '/usr/bin/python3', '/usr/local/bin/python3';

	return $python;
}

# parse_trail($format, @files): the records of trail files, as Python's parsers
# read them; see formats/read_trail.py.  Dies if they do not.
sub parse_trail
{
	my ($format, @files) = @_;
	my ($stdout, $stderr);

	IPC::Run::run(
		[ python(), "$FindBin::RealBin/../lib/formats/read_trail.py", $format, @files ],
		'>', \$stdout, '2>', \$stderr)
	  or die "not a trail in format $format: $stderr";
	return @{ decode_json($stdout) };
}

# parse_csv($text): lines of CSV as arrays of their columns.  Dies if the text is something else.
sub parse_csv
{
	my ($text) = @_;
	my @records = ([]);

	while ($text =~ /\G(?:"([^"]*(?:""[^"]*)*)"|([^",\n]*))([,\n])/gc)
	{
		my ($quoted, $plain, $end) = ($1, $2, $3);

		push @{ $records[-1] }, defined $quoted ? $quoted =~ s/""/"/gr : $plain;
		push @records, [] if $end eq "\n";
	}
	pop @records;
	my $rest = substr($text, pos($text) // 0);

	die 'no CSV: ' . substr($rest, 0, 80) if $rest ne '';
	return @records;
}

# put_file($path, @content): a new file in place of the one that is there, in a folder that is
# made if it is missing.  Returns its path.
sub put_file
{
	my ($path, @content) = @_;
	my ($folder) = $path =~ m{^(.*)/};

	mkdir($folder) if !-d $folder;
	unlink($path);
	append_to_file($path, join('', @content));
	return $path;
}

# records_for($node, $what, %psql_options): the records that $what has put into
# the trail.  It is SQL, run by psql in database postgres (errors are no
# failure; give on_error_stop => 0 to continue after one), or a sub.  Whatever
# other sessions publish meanwhile is included.  The option settings is a hash
# of pg_audit_queue's settings for the sessions, names without the prefix.
# Records of class CONFIG are left out, unless the option config is true.
sub records_for
{
	my ($node, $what, %psql_options) = @_;
	my $settings = delete $psql_options{settings} // {};
	my $config   = delete $psql_options{config};
	my $before   = flush_trail($node);

	local $ENV{PGOPTIONS} = join ' ', $ENV{PGOPTIONS} // (),
	  map { _option($_, $settings->{$_}) } sort keys %$settings;
	if (ref $what eq 'CODE')
	{
		$what->();
	}
	else
	{
		my ($stdout, $stderr);

		$node->psql(
			'postgres', $what,
			stdout => \$stdout,
			stderr => \$stderr,
			%psql_options);
	}
	my @records = _records_since($node, $before);

	return $config ? @records : without_config(@records);
}

# without_config(@records): the records but those of class CONFIG.
sub without_config
{
	my (@records) = @_;

	return grep { $_->{class} ne 'CONFIG' } @records;
}

# A setting for PGOPTIONS, where spaces need a backslash.
sub _option
{
	my ($name, $value) = @_;

	$value =~ s/([\s\\])/\\$1/g;
	return "-c pg_audit_queue.$name=$value";
}

# The records behind that sequence, as far as they are published by now.
sub _records_since
{
	my ($node, $sequence) = @_;

	flush_trail($node);

	# decoding takes long: leave alone what is not wanted
	return map { parse_record($_) // die "not a JSON record: \"$_\"" }
	  grep { !/^\{[^{}]*?"sequence":([0-9]+)/ || $1 > $sequence }
	  _lines_behind($node, $sequence);
}

# columns($names, @records): the values of some fields, their names separated
# by spaces, of each record, as a string with "|" between them.
sub columns
{
	my ($names, @records) = @_;

	return map {
		my $record = $_;
		join '|', map { $record->{$_} // '' } split / /, $names
	} @records;
}

# check_trail($node, $name, %options): test that the JSON trail is whole: every
# file ends in a whole line, every line is a JSON record, and the sequence has
# neither gap nor repetition, nor another order.
#
# Options:
#	first	sequence of the first record, 1 unless given
#
# Returns the records.
sub check_trail
{
	my ($node, $name, %options) = @_;
	my $expected = $options{first} // 1;
	my @faults;
	my @records;

	foreach my $file (trail_files($node))
	{
		my $text = trail_text($file);

		push @faults, "$file: incomplete last line"
		  if $text ne '' && $text !~ /\n\z/;
		foreach my $line (split /\n/, $text)
		{
			my $record = parse_record($line);

			if (!defined $record)
			{
				push @faults, "$file: no JSON record: $line";
				next;
			}
			my $sequence = $record->{sequence} // 'none';

			push @faults, "$file: sequence $sequence, expected $expected"
			  if $sequence ne $expected;
			$expected = $sequence + 1 if $sequence =~ /^[0-9]+$/;
			push @records, $record;
		}
	}
	# report the caller's line; the first faults tell enough
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$#faults = 9 if @faults > 10;
	is(join("\n", @faults), '', $name);
	return @records;
}

# texts_in_trail($node, $text): how many of the trail's lines contain the text.
# Reads the files as they are, without a flush.
sub texts_in_trail
{
	my ($node, $text) = @_;

	# to divide a file into lines takes long
	return scalar grep { index($_, $text) >= 0 }
	  map { split /\n/ } grep { index($_, $text) >= 0 } map { trail_text($_) } trail_files($node);
}

# with_line_changed(\@lines, $number, $code): a copy of the lines, in which $code,
# called with $_ being the line with that number, from 0, has changed it.  Dies if
# it has not.
sub with_line_changed
{
	my ($lines, $number, $code) = @_;
	my @changed = @$lines;

	local $_ = $changed[$number];
	$code->();
	die "line $number is unchanged" if $_ eq $changed[$number];
	$changed[$number] = $_;
	return \@changed;
}

1;
