#-------------------------------------------------------------------------
#
# PaqTest.pm
#	What the tests share: a server that records into a trail, and functions
#	that read the trail back.
#
# Builds on PostgreSQL::Test::Cluster and ::Utils.  Use it as
#
#	use FindBin;
#	use lib $FindBin::RealBin;
#	use PaqTest;
#
# "node" is a PostgreSQL::Test::Cluster made by audited_node().  Functions die
# when what they need does not work (the server, reading a file), unless said
# otherwise; only check_trail() reports through Test::More.
#
# What the functions do on the server themselves leaves no records, so that a
# test finds in the trail only what it has caused.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqTest;

use strict;
use warnings;

use Exporter 'import';
use JSON::PP;
use Time::HiRes qw(sleep time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  audited_node
  check_trail
  create_extension
  flush_trail
  full_tests
  kill_worker
  parse_record
  poll_until
  queue_dir
  records_for
  settings_text
  stats
  trail_dir
  trail_files
  trail_lines
  trail_records
  unaudited_sql
  wait_for_worker
  worker_pid
);

# Directories as configured, by the node's name.
my %log_directory;
my %queue_directory;

# audited_node($name, %options): a node that preloads the library.
#
# Options:
#	settings	hash of pg_audit_queue's settings, names without the prefix;
#				added to log => 'all', format => 'json'
#	conf		text for postgresql.conf behind them
#	init		arguments for the node's init(), an array
#	start		0: neither start the node nor create the extension
#
# Returns the node, running, with the extension in database postgres.
sub audited_node
{
	my ($name, %options) = @_;
	my %settings =
	  (log => 'all', format => 'json', %{ $options{settings} // {} });
	my $node = PostgreSQL::Test::Cluster->new($name);

	$log_directory{$name}   = $settings{log_directory}   // 'audit';
	$queue_directory{$name} = $settings{queue_directory} // 'pg_audit_queue';
	$node->init(@{ $options{init} // [] });
	$node->append_conf('postgresql.conf',
		    "shared_preload_libraries = 'pg_audit_queue'\n"
		  . settings_text(%settings)
		  . ($options{conf} // ''));
	if ($options{start} // 1)
	{
		$node->start;
		create_extension($node);
	}
	return $node;
}

# settings_text(%settings): lines for postgresql.conf, from names without the
# prefix and values.
sub settings_text
{
	my (%settings) = @_;
	my $text = '';

	foreach my $name (sort keys %settings)
	{
		(my $value = $settings{$name}) =~ s/'/''/g;
		$text .= "pg_audit_queue.$name = '$value'\n";
	}
	return $text;
}

# create_extension($node, $database): without leaving a record.  The database
# is postgres unless given.
sub create_extension
{
	my ($node, $database) = @_;

	unaudited_sql($node, 'CREATE EXTENSION pg_audit_queue', $database);
	return;
}

# unaudited_sql($node, $sql, $database): run SQL as superuser with nothing
# recorded.  Returns what psql prints, unaligned, without headings.
sub unaudited_sql
{
	my ($node, $sql, $database) = @_;

	local $ENV{PGOPTIONS} = '-c pg_audit_queue.log=none -c pg_audit_queue.role=';
	return $node->safe_psql($database // 'postgres', $sql);
}

# full_tests(): may a test take many minutes?  (scripts/test --full)
sub full_tests
{
	return !!$ENV{PAQ_TEST_FULL};
}

# poll_until($sub, $seconds): call the sub until what it returns is true, at
# most for so many seconds (PostgreSQL's default timeout for tests unless
# given).  Returns that value, or the last false one.
sub poll_until
{
	my ($sub, $seconds) = @_;
	my $end = time + ($seconds // $PostgreSQL::Test::Utils::timeout_default);

	while (1)
	{
		# look at the time first: the last try must not be an early one
		my $late   = time >= $end;
		my $result = $sub->();

		return $result if $result || $late;
		sleep 0.02;
	}
}

# trail_dir($node), queue_dir($node): absolute path of the directory with the
# trail's files, and of that with the queue.
sub trail_dir
{
	my ($node) = @_;

	return _absolute($node, $log_directory{ $node->name });
}

sub queue_dir
{
	my ($node) = @_;

	return _absolute($node, $queue_directory{ $node->name });
}

sub _absolute
{
	my ($node, $directory) = @_;

	return $directory if $directory =~ m{^/};
	return $node->data_dir . "/$directory";
}

# trail_files($node): paths of the trail's files, oldest first, if log_filename
# is a pattern whose names sort by time.  None if there is no directory.
sub trail_files
{
	my ($node) = @_;
	my $dir = trail_dir($node);

	return () if !-d $dir;

	# a number in front of the ending distinguishes files of the same time
	my @keys = map { [ $_, /^(.*?)(?:\.([0-9]+))?(\.[a-z]+)$/ ] }
	  grep { /\.(?:json|log|csv)$/ } slurp_dir($dir);

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

	return map { split /\n/, slurp_file($_) } trail_files($node);
}

# parse_record($line): a line of a JSON trail as a hash.  undef if it is not
# a JSON object in UTF-8.
sub parse_record
{
	my ($line) = @_;
	my $record = eval { JSON::PP->new->utf8->decode($line) };

	return ref $record eq 'HASH' ? $record : undef;
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

# flush_trail($node): wait until all published records are in the trail, with
# audit_flush() in database postgres.  Returns the sequence up to which they
# are.
sub flush_trail
{
	my ($node) = @_;

	return unaudited_sql($node, 'SELECT audit_flush()');
}

# records_for($node, $what, %psql_options): the records that $what has put into
# the trail.  It is SQL, run by psql in database postgres (errors are no
# failure; give on_error_stop => 0 to continue after one), or a sub.  Whatever
# other sessions publish meanwhile is included.
sub records_for
{
	my ($node, $what, %psql_options) = @_;
	my $before;

	flush_trail($node);
	$before = _last_sequence($node);
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
	flush_trail($node);
	return grep { $_->{sequence} > $before } trail_records($node);
}

sub _last_sequence
{
	my ($node) = @_;
	my $last = 0;

	foreach my $record (trail_records($node))
	{
		$last = $record->{sequence} if $record->{sequence} > $last;
	}
	return $last;
}

# stats($node): the row of audit_queue_stats as a hash; null is undef.
sub stats
{
	my ($node) = @_;

	return decode_json(
		unaudited_sql(
			$node, 'SELECT row_to_json(s) FROM audit_queue_stats s'));
}

# worker_pid($node): process id of the worker; undef if there is none.
sub worker_pid
{
	my ($node) = @_;

	return stats($node)->{worker_pid};
}

# wait_for_worker($node, $old_pid): wait until a worker runs, another one than
# $old_pid if that is given.  Returns its process id.
sub wait_for_worker
{
	my ($node, $old_pid) = @_;

	return poll_until(
		sub {
			# the server may be on its way up again
			my $pid = eval { worker_pid($node) };

			return $pid && $pid != ($old_pid // 0) ? $pid : 0;
		}) || die 'no worker';
}

# kill_worker($node, $signal): send the worker a signal by name.  Returns its
# process id, which may still run.
sub kill_worker
{
	my ($node, $signal) = @_;
	my $pid = worker_pid($node) // die 'no worker';

	kill($signal, $pid) == 1 or die "could not signal process $pid: $!";
	return $pid;
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
		my $text = slurp_file($file);

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
	is(join("\n", @faults), '', $name);
	return @records;
}

1;
