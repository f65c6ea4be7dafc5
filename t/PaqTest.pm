#-------------------------------------------------------------------------
#
# PaqTest.pm
#	Functions that the tests share: they make a server that records into a
#	trail, and read the trail back.
#
# Builds on PostgreSQL::Test::Cluster and ::Utils.  Use it as
#
#	use FindBin;
#	use lib $FindBin::RealBin;
#	use PaqTest;
#
# "node" is a PostgreSQL::Test::Cluster made by audited_node().  Functions die
# if they cannot do their work (the server fails, a file cannot be read), unless
# said otherwise; only check_trail() reports through Test::More.
#
# The functions' own work on the server leaves no records, but reads of the trail by
# unaudited_sql() do, as any, with the user name paq_quiet.  So a test finds in
# the trail only records of its own work, and of class CONFIG: the worker
# records that it starts, and each setting that a session gets in PGOPTIONS.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqTest;

use strict;
use warnings;

use Exporter 'import';
use Cwd qw(abs_path);
use Digest::SHA qw(sha1_hex);
use Fcntl qw(LOCK_EX);
use File::Basename qw(dirname);
use File::Copy qw(copy);
use FindBin;
use IPC::Run;
use JSON::PP;
use Time::HiRes qw(sleep time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  audited_node
  bare_install
  build_preloaded
  build_test_library
  check_load
  check_trail
  crash_node
  columns
  conforming_settings
  create_extension
  encryption_key
  encryption_key_file
  fault_install
  finish_load
  finish_psql
  finish_trail_program
  flush_trail
  force_parallel
  full_tests
  give_trail_back
  has_trail_program
  init_node
  is_stopped
  kill_worker
  last_sleep
  least_install
  least_trail_program
  need_trail_program
  on_terminal
  other_install
  other_trail_program
  parse_record
  parse_trail
  poll_until
  python
  queue_dir
  records_for
  sanitizers
  set_clock
  set_disk
  set_faults
  settings_text
  records_after
  reload_settings
  shown_text
  start_again
  start_with_clock
  start_with_disk
  start_load
  start_psql
  start_trail_program
  stats
  table_loaded
  take_trail_away
  texts_in_trail
  trail_dir
  trail_files
  trail_lines
  trail_on_terminal
  trail_program
  trail_records
  trail_text
  unaudited_sql
  wait_for_log
  wait_for_worker
  wait_until_stopped
  wait_until_waiting
  with_line_changed
  without_config
  worker_at_rest
  worker_pid
);

# A superuser none of whose statements is recorded, not even that they are
# not: what a role's settings bring along at login leaves no record.
my $quiet_role = 'paq_quiet';

# Programs speak English, and write numbers and times as in it, whatever the environment
# says; what they write is compared with texts.
delete @ENV{ grep { /^(?:LANG|LC_)/ } keys %ENV };
$ENV{LC_ALL} = 'C';

# Names of trail files; the first group is the format's ending.
my $TRAIL_FILE = qr/\.(json|log|csv)(?:\.zst|\.lz4)?(?:\.enc)?$/;

# Directories as configured, by the node's name.
my %log_directory;
my %queue_directory;

# audited_node($name, %options): a node that preloads the library, and comes
# back after a crash, which nodes otherwise do not.
#
# Options:
#	settings	hash of pg_audit_queue's settings, names without the prefix;
#				added to log => 'all, -connect', format => 'json', and the layers
#				of files in the environment: PAQ_TEST_LAYERS=zstd,aes-256-gcm
#	conf		text for postgresql.conf behind them
#	init		arguments for init_node(), an array
#	install_path	server to use, see fault_install()
#	start		0: neither start the node nor create the extension
#
# Returns the node, running, with the extension in database postgres.  It has
# the role for unaudited_sql(), also if it was not started.
sub audited_node
{
	my ($name, %options) = @_;
	my %settings =
	  (log => 'all, -connect', format => 'json', _layers(), %{ $options{settings} // {} });
	my $node = PostgreSQL::Test::Cluster->new($name,
		install_path => $options{install_path});

	$log_directory{$name}   = $settings{log_directory}   // 'audit';
	$queue_directory{$name} = $settings{queue_directory} // 'pg_audit_queue';
	init_node($node, @{ $options{init} // [] });
	_create_quiet_role($node);
	$node->append_conf('postgresql.conf',
		    "shared_preload_libraries = 'pg_audit_queue'\n"
		  . "restart_after_crash = on\n"
		  . settings_text(%settings)
		  . ($options{conf} // ''));
	if ($options{start} // 1)
	{
		$node->start;
		create_extension($node);
	}
	return $node;
}

# init_node($node, %options): make the node's cluster by its init(), which gets the
# options: in UTF8 and locale C, unless "extra" among them says otherwise.
sub init_node
{
	my ($node, %options) = @_;

	$node->init(%options,
		extra => [ '--encoding=UTF8', '--locale=C', @{ $options{extra} // [] } ]);
	return;
}

# Settings for the layers that the environment asks for
sub _layers
{
	my %settings;

	foreach my $layer (split /,/, $ENV{PAQ_TEST_LAYERS} // '')
	{
		if ($layer =~ /^aes-(\d+)/)
		{
			$settings{log_encryption} = $layer;
			$settings{log_encryption_key_command} = encryption_key($1);
		}
		else { $settings{log_compression} = $layer }
	}
	return %settings;
}

# Create the role for unaudited_sql(), in single-user mode, before the library
# is there to record it.
sub _create_quiet_role
{
	my ($node) = @_;
	my @sql = (
		"CREATE ROLE $quiet_role SUPERUSER LOGIN",
		"ALTER ROLE $quiet_role SET pg_audit_queue.log = 'none'",
		"ALTER ROLE $quiet_role SET pg_audit_queue.role = ''");
	my $input = join '', map { "$_\n" } @sql;
	my $output;

	local $ENV{PGOPTIONS} = '';
	IPC::Run::run(
		[
			$node->installed_command('postgres'),
			'--single', '-F', '-D', $node->data_dir, 'template1'
		],
		'<', \$input, '>&', \$output)
	  && $output !~ /ERROR|FATAL|PANIC/
	  or die "could not create role $quiet_role: $output";
	return;
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

# create_extension($node, $database): without leaving a record.  The database
# is postgres unless given.
sub create_extension
{
	my ($node, $database) = @_;

	unaudited_sql($node, 'CREATE EXTENSION pg_audit_queue', $database);
	return;
}

# unaudited_sql($node, $sql, $database): run SQL as superuser with nothing
# recorded but reads of the trail.  Returns what psql prints, unaligned, without
# headings.
sub unaudited_sql
{
	my ($node, $sql, $database) = @_;

	$database //= 'postgres';
	local $ENV{PGOPTIONS} = '';
	return $node->safe_psql($database, $sql,
		connstr => $node->connstr($database) . " user=$quiet_role");
}

# build_test_library($folder, $name): build the library of that name from a folder of t/, by
# its Makefile or, if it has none, by t/library.mk.  Returns its path without the ending.
sub build_test_library
{
	my ($folder, $name) = @_;
	my $dir    = PostgreSQL::Test::Utils::tempdir();
	my $source = "$FindBin::RealBin/$folder";
	my $output;

	copy("$source/$name.c", "$dir/$name.c") or die "could not copy $name.c: $!";
	copy(-e "$source/Makefile" ? "$source/Makefile" : "$source/../library.mk", "$dir/Makefile")
	  or die "could not copy a makefile: $!";
	IPC::Run::run(
		[
			'make', '-C', $dir, 'PG_CONFIG=pg_config', "NAME=$name",
			'PAQ_SRC=' . abs_path("$FindBin::RealBin/../src")
		],
		'>', \$output, '2>&1')
	  or die "could not build $name: $output";
	return "$dir/$name";
}

# build_preloaded($name): build the library t/NAME/NAME.c, which stands in front of
# functions of libc when a server is started with it in LD_PRELOAD.  Returns its
# path.
sub build_preloaded
{
	my ($name) = @_;
	my $library = PostgreSQL::Test::Utils::tempdir() . "/$name.so";
	my $output;

	chomp(my $compiler = `pg_config --cc`);
	IPC::Run::run(
		[
			split(' ', $compiler), '-shared', '-fPIC', '-o', $library,
			"$FindBin::RealBin/$name/$name.c", '-ldl'
		],
		'>&', \$output) or die "could not build $name.so: $output";
	return $library;
}

# full_tests(): may a test take many minutes?  (scripts/test --full)
sub full_tests
{
	return !!$ENV{PAQ_TEST_FULL};
}

# force_parallel($node): name of the setting that makes queries parallel where
# that is possible.
sub force_parallel
{
	my ($node) = @_;

	return $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
}

# sanitizers(): what the server is built with of AddressSanitizer and its kin, as
# gcc's option -fsanitize wants it; '' for none.
sub sanitizers
{
	return `pg_config --cflags` =~ /-fsanitize=(\S+)/ ? $1 : '';
}

# poll_until($sub, $seconds): call the sub until what it returns is true, at
# most for so many seconds (PostgreSQL's default timeout for tests unless
# given), 50 times a second at first, then 10 times: most calls start psql, and
# other tests wait meanwhile.  Returns that value, or the last false one.
sub poll_until
{
	my ($sub, $seconds) = @_;
	my $end   = time + ($seconds // $PostgreSQL::Test::Utils::timeout_default);
	my $pause = 0.02;

	while (1)
	{
		# look at the time first: the last try must not be an early one
		my $late   = time >= $end;
		my $result = $sub->();

		return $result if $result || $late;
		sleep $pause;
		$pause = 0.1 if ($pause *= 1.2) > 0.1;
	}
}

# trail_dir($node), queue_dir($node): absolute path of the directory with the
# trail's files, and of that with the queue; the default ones for a node that
# audited_node() has not made.
sub trail_dir
{
	my ($node) = @_;

	return _absolute($node, $log_directory{ $node->name } // 'audit');
}

sub queue_dir
{
	my ($node) = @_;

	return _absolute($node, $queue_directory{ $node->name } // 'pg_audit_queue');
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

# on_terminal($descriptors, $code): calls it.  To programs that it starts, the file
# descriptors with these numbers, in a string, are a terminal of 90 columns.  Returns what
# it returns.
my $terminal_library;

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

# trail_text($file): the text of a trail file, which pg_audit_trail reads if it has
# layers, with the keys of encryption_key().  Dies if it is damaged.
sub trail_text
{
	my ($file)   = @_;
	my %formats  = (json => 'json', csv => 'csvlog', log => 'pgaudit');
	my ($format) = $file =~ $TRAIL_FILE;
	my $keys     = encryption_key_file();

	return slurp_file($file) if $file =~ /\.$format$/;
	my ($status, $stdout, $stderr) = trail_program('cat', '--format', $formats{$format},
		(-e $keys ? ('-K', $keys) : ()), $file);
	die "$file: $stderr" if $status > 1 || $stderr =~ /damaged/;
	return $stdout;
}

# encryption_key_file(): path of the file with all keys that this test has made, oldest
# first.
sub encryption_key_file
{
	my ($test) = $0 =~ m{([^/]+)\.pl$};

	return "$PostgreSQL::Test::Utils::tmp_check/encryption_keys_$test";
}

# encryption_key($bits): a new key of so many bits, 128 or 256, for trail files; returns a
# value for log_encryption_key_command that prints it.
sub encryption_key
{
	my ($bits) = @_;
	my $all = encryption_key_file();
	my $key = join '', map { sprintf '%02x', rand(256) } 1 .. $bits / 8;
	my $own = "$all." . (-s $all // 0);

	append_to_file($all, "$key\n");
	append_to_file($own, "$key\n");
	chmod(0600, $all, $own);
	return "cat '$own'";
}

# parse_record($line): a line of a JSON trail as a hash.  undef if it is not
# a JSON object in UTF-8.
sub parse_record
{
	my ($line) = @_;
	my $record = eval { JSON::PP->new->utf8->decode($line) };

	return ref $record eq 'HASH' ? $record : undef;
}

# records_after($node, $sequence): the records of the JSON trail behind that one, as hashes.
# Others are not parsed, which takes long.
sub records_after
{
	my ($node, $sequence) = @_;

	return map { parse_record($_) // () }
	  grep { /"sequence": ?(\d+)/ && $1 > $sequence } trail_lines($node);
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
		[ python(), "$FindBin::RealBin/formats/read_trail.py", $format, @files ],
		'>', \$stdout, '2>', \$stderr)
	  or die "not a trail in format $format: $stderr";
	return @{ decode_json($stdout) };
}

# flush_trail($node): wait until all published records are in the trail, with
# audit_flush() in database postgres.  Returns the sequence up to which they
# are.
sub flush_trail
{
	my ($node) = @_;

	return unaudited_sql($node, 'SELECT audit_flush()');
}

# table_loaded($node, $database): with sink = table, wait until the table in that
# database (postgres unless given) has all that was recorded before the call.
# Returns whether that came about in time.
sub table_loaded
{
	my ($node, $database) = @_;
	my $sequence = flush_trail($node);

	return poll_until(
		sub {
			unaudited_sql($node,
				"SELECT max(sequence) >= $sequence FROM audit_queue.load_state",
				$database) eq 't';
		});
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
	  trail_lines($node);
}

# shown_text($node, $sql): the text of the record of a statement that is alone in
# what is sent: from PostgreSQL 17 on without what is around it, as in pgaudit.
sub shown_text
{
	my ($node, $sql) = @_;

	return $node->pg_version >= 17 ? $sql =~ s/^\s+|[;\s]+$//gr : $sql;
}

# conforming_settings($node): what standard_conforming_strings can be set to, which
# decides what a backslash in a string constant means.
sub conforming_settings
{
	my ($node) = @_;

	return $node->pg_version->major >= 19 ? ('on') : ('on', 'off');
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

# stats($node): the row of audit_queue_stats as a hash; null is undef.
sub stats
{
	my ($node) = @_;

	return decode_json(
		unaudited_sql(
			$node, 'SELECT row_to_json(s) FROM audit_queue_stats s'));
}

# worker_at_rest($node): waits until the worker does not wake up any more, and
# returns how often it has; undef if it does not come to rest.
sub worker_at_rest
{
	my ($node) = @_;
	my $wakeups;

	poll_until(
		sub {
			my $before = $wakeups // -1;

			sleep 0.5;
			$wakeups = stats($node)->{wakeups};
			return $wakeups == $before;
		}) or return;
	return $wakeups;
}

# worker_pid($node): process id of the worker, which may not be there yet when the
# server has just started; undef if there is none in time.
sub worker_pid
{
	my ($node) = @_;

	return poll_until(sub { stats($node)->{worker_pid} });
}

# wait_for_worker($node, $old_pid): wait until a worker runs, another one than
# $old_pid if that is given.  Returns its process id.
sub wait_for_worker
{
	my ($node, $old_pid) = @_;

	return poll_until(
		sub {
			# the server may be on its way up again
			my $pid = eval { stats($node)->{worker_pid} };

			return $pid && $pid != ($old_pid // 0) ? $pid : 0;
		}) || die 'no worker';
}

# kill_worker($node, $signal): send the worker a signal by name.  Returns its
# process id, which may still run.  KILL makes the whole server restart.
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

	return scalar grep { index($_, $text) >= 0 } trail_lines($node);
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

# wait_for_log($node, $regexp, $position): wait until the server's log matches
# behind that position.  Returns false if it does not in time.
sub wait_for_log
{
	my ($node, $regexp, $position) = @_;

	return poll_until(
		sub { slurp_file($node->logfile, $position) =~ $regexp });
}

# start_psql($node, $sql, %options): run SQL in a psql of its own and do not
# wait for it.  Results come unaligned, without headings, errors with their
# SQLSTATE.
#
# Options:
#	name		application_name
#	user		role, and
#	database	database to connect to (postgres)
#	settings	hash of the extension's settings, names without the prefix
#	stop		0: go on after an error
#
# Returns a session for finish_psql().
sub start_psql
{
	my ($node, $sql, %options) = @_;
	my %settings = %{ $options{settings} // {} };
	my $files    = PostgreSQL::Test::Utils::tempdir_short();
	my $session  = { stdout => "$files/stdout", stderr => "$files/stderr" };
	my @command  = (
		'psql', '-XAtq', '-v', 'VERBOSITY=verbose',
		'-v', 'ON_ERROR_STOP=' . ($options{stop} // 1),
		'-d', $node->connstr($options{database} // 'postgres'));

	# files, so that nobody has to be there to read or to write
	append_to_file("$files/sql", "$sql\n");
	push @command, '-U', $options{user} if defined $options{user};
	local $ENV{PGAPPNAME} = $options{name} // 'psql';
	local $ENV{PGOPTIONS} = join ' ',
	  map { "-c pg_audit_queue.$_=$settings{$_}" } sort keys %settings;
	$session->{run} = IPC::Run::start(
		\@command,
		'<', "$files/sql",
		'>', $session->{stdout},
		'2>', $session->{stderr},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $session;
}

# finish_psql($session): wait for the end of what start_psql() has started.
# Returns psql's exit status, and what it has printed and complained about.
sub finish_psql
{
	my ($session) = @_;

	$session->{run}->finish;
	return (
		$session->{run}->result(0),
		slurp_file($session->{stdout}),
		slurp_file($session->{stderr}));
}

# wait_until_waiting($node, $name): wait until the session with this
# application_name waits for the worker.  Returns its process id, or false if
# it does not wait in time.
sub wait_until_waiting
{
	my ($node, $name) = @_;

	return poll_until(
		sub {
			unaudited_sql(
				$node, "SELECT pid FROM pg_stat_activity
						 WHERE application_name = '$name'
						   AND wait_event_type = 'Extension'");
		});
}

# What the sub does happens while the worker is stopped.
sub _without_worker
{
	my ($node, $sub) = @_;
	my $worker = worker_pid($node);

	kill('STOP', $worker) == 1 or die "kill: $!";
	wait_until_stopped($worker) or die 'the worker goes on';
	$sub->();
	kill('CONT', $worker) == 1 or die "kill: $!";
	return;
}

# take_trail_away($node), give_trail_back($node): put a file in place of the directory
# of the trail, and the directory back.  The worker makes a directory if there is
# nothing.
sub take_trail_away
{
	my ($node) = @_;
	my $dir = trail_dir($node);

	_without_worker(
		$node,
		sub {
			rename $dir, "$dir.away" or die "rename: $!";
			append_to_file($dir, '');
		});
	return;
}

sub give_trail_back
{
	my ($node) = @_;
	my $dir = trail_dir($node);

	_without_worker(
		$node,
		sub {
			unlink $dir or die "unlink: $!";
			rename "$dir.away", $dir or die "rename: $!";
		});
	return;
}

# start_load($node, $label, %options): clients that run one statement after the
# other, each with a text of its own, and keep what they were told about it.
#
# Options, apart from those of start_psql():
#	clients		their number, 4 unless given
#	statements	of each client, 500 unless given
#	pause		between two statements in seconds, 0.001 unless given
#
# Returns a load for finish_load().
sub start_load
{
	my ($node, $label, %options) = @_;
	my $clients    = $options{clients}    // 4;
	my $statements = $options{statements} // 500;
	my $pause      = $options{pause}      // 0.001;
	my @sessions;

	foreach my $client (1 .. $clients)
	{
		my $sql = join "\n",
		  map { "SELECT '$label-$client-$_' FROM pg_sleep($pause);" }
		  1 .. $statements;

		push @sessions, start_psql($node, $sql, %options);
	}
	return {
		label    => $label,
		number   => $clients * $statements,
		sessions => \@sessions
	};
}

# finish_load($load): wait for the clients' end, whether they have come through
# or were cut off.  Notes in the load which statements they were told had
# succeeded, and returns the number of these.
sub finish_load
{
	my ($load) = @_;

	$load->{succeeded} = [];
	foreach my $session (@{ $load->{sessions} })
	{
		my ($status, $stdout, $stderr) = finish_psql($session);

		note($stderr) if $stderr ne '';
		push @{ $load->{succeeded} }, grep { /^\Q$load->{label}\E-/ }
		  split /\n/, $stdout;
	}
	return scalar @{ $load->{succeeded} };
}

# check_load($load, $records, $name): test that each statement of the finished
# load that a client was told had succeeded has one record, a successful one,
# and that no other statement has more than one.
sub check_load
{
	my ($load, $records, $name) = @_;
	my %seen;
	my @faults;

	foreach my $record (@$records)
	{
		next
		  if ($record->{commandText} // '') !~ /'(\Q$load->{label}\E-[0-9-]+)'/;
		push @{ $seen{$1} }, $record;
	}
	foreach my $text (@{ $load->{succeeded} })
	{
		push @faults, "$text: no record" if !exists $seen{$text};
		push @faults, "$text: outcome $seen{$text}[0]{exitCode}"
		  if exists $seen{$text} && $seen{$text}[0]{exitCode} ne '00000';
	}
	foreach my $text (sort keys %seen)
	{
		push @faults, "$text: " . @{ $seen{$text} } . ' records'
		  if @{ $seen{$text} } > 1;
	}
	# report the caller's line; the first faults tell enough
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$#faults = 9 if @faults > 10;
	is(join("\n", @faults), '', $name);
	return;
}

# crash_node($node, $worker_pid): kill the postmaster and the worker; the other
# processes notice that and end by themselves.  The worker's process id is
# asked for unless given.
sub crash_node
{
	my ($node, $worker_pid) = @_;

	$worker_pid //= stats($node)->{worker_pid};
	my ($postmaster) =
	  slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;

	$node->kill9;
	kill('KILL', $worker_pid) if $worker_pid;
	poll_until(sub { !kill(0, $postmaster) })
	  or die 'the postmaster is still there';
	return;
}

# start_again($node): start after a crash, as soon as the last process of the
# run before has ended.
sub start_again
{
	my ($node) = @_;

	poll_until(sub { $node->start(fail_ok => 1) })
	  or die 'the server does not start';
	return;
}

# start_with_clock($node): start a node that was not started by audited_node(), with a
# clock that set_clock() sets, and the extension in database postgres.  Not for a server
# that is built with sanitizers.
my %clock_file;

sub start_with_clock
{
	my ($node) = @_;

	$clock_file{ $node->name } = PostgreSQL::Test::Utils::tempdir() . '/clock';
	set_clock($node, 0);
	local $ENV{LD_PRELOAD} = build_preloaded('clock');
	local $ENV{PAQ_CLOCK}  = $clock_file{ $node->name };
	$node->start;
	create_extension($node);
	return;
}

# set_clock($node, $seconds): by how many seconds the node's time differs from ours, from
# now on.
sub set_clock
{
	my ($node, $seconds) = @_;
	my $file = $clock_file{ $node->name };

	# never half written
	append_to_file("$file.new", $seconds);
	rename("$file.new", $file) or die "rename: $!";
	return;
}

# start_with_disk($node): start a node that was not started by audited_node(), on
# file systems of which set_disk() says how full they are, with the extension in
# database postgres.  Not for a server that is built with sanitizers.
my %disk_file;

sub start_with_disk
{
	my ($node) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/disk';

	$disk_file{ $node->name } = $file;
	local $ENV{LD_PRELOAD} = build_preloaded('disk');
	local $ENV{PAQ_DISK}   = $file;
	$node->start;
	create_extension($node);
	return;
}

# set_disk($node, %disks): from now on, the file system of paths that contain a
# name - the longest one - has that size, and so much free, an array of both, in
# bytes; see disk/disk.c.  Others are the machine's.
sub set_disk
{
	my ($node, %disks) = @_;
	my $file = $disk_file{ $node->name };

	# never half written
	append_to_file("$file.new", join '',
		map { "$_ @{ $disks{$_} }\n" } sort { length $b <=> length $a } keys %disks);
	rename("$file.new", $file) or die "rename: $!";
	return;
}

# last_sleep($node, $pid): for how long a process of that node has last gone to sleep,
# in ms; -1 for until somebody wakes it.
sub last_sleep
{
	my ($node, $pid) = @_;

	return slurp_file("$disk_file{ $node->name }.$pid") + 0;
}

# is_stopped($pid), wait_until_stopped($pid): whether a process has been stopped by a
# signal, and wait until it has been; false if that takes too long.
sub is_stopped
{
	my ($pid) = @_;

	return (eval { slurp_file("/proc/$pid/stat") } // '') =~ /\) T /;
}

sub wait_until_stopped
{
	my ($pid) = @_;

	return poll_until(sub { is_stopped($pid) });
}

# fault_install(): build the library with the points of src/fault.h, and put it into a
# copy of the server below the test's temporary directory.  Returns what install_path of
# audited_node() wants.
sub fault_install
{
	return _private_install('pg_config', "COPT='-DPAQ_FAULT_POINTS'");
}

# other_install($pg_config): the same for the server that this program is of, with the
# library as it is.
sub other_install
{
	my ($pg_config) = @_;

	return _private_install($pg_config);
}

# least_install(): the same for the server that is tested, with the library as it is built
# where nothing is that it can do without: zstd, lz4, OpenSSL, and lz4 in the server.
sub least_install
{
	return _private_install('pg_config', "COPT='-include $FindBin::RealBin/without_lz4.h'",
		map { "WITH_$_=no" } qw(ZSTD LZ4 OPENSSL));
}

# least_trail_program(): build pg_audit_trail where nothing is that it can do without: zstd,
# lz4, OpenSSL, librdkafka.  Returns its path.
sub least_trail_program
{
	return other_trail_program(map { "WITH_$_=no" } qw(ZSTD LZ4 OPENSSL KAFKA));
}

# other_trail_program(@options): build it with more options for make.  Returns its path.
sub other_trail_program
{
	my (@options) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();

	system_or_bail('cp', '-R', (map { "$FindBin::RealBin/../$_" } qw(src doc pg_audit_queue.control)), $dir);
	system("find $dir -name '*.o' -delete") == 0 or die 'find';
	system_or_bail("make -s -C $dir/src/bin/pg_audit_trail PG_CONFIG=pg_config @options"
		  . " >$dir/build.log 2>&1");
	return "$dir/src/bin/pg_audit_trail/pg_audit_trail";
}

# bare_install($pg_config): a copy of that server, by default of the one that is
# tested, without the library and the extension's files.  Extensions can be built for it.
sub bare_install
{
	my ($pg_config) = @_;

	return _copy_server($pg_config // 'pg_config', PostgreSQL::Test::Utils::tempdir());
}

sub _private_install
{
	my ($pg_config, @options) = @_;
	my $built = _built($pg_config, @options);
	my $path  = _copy_server($pg_config, PostgreSQL::Test::Utils::tempdir());
	chomp(my $libraries = `$path/bin/pg_config --pkglibdir`);
	chomp(my $shared = `$path/bin/pg_config --sharedir`);

	system_or_bail('cp', "$built/pg_audit_queue.so", "$libraries/");
	system_or_bail('cp', glob("$built/*.control"), glob("$built/*.sql"), "$shared/extension/");
	return $path;
}

# The library for that server, built with more options for make.  It takes a while, so the
# tests of a run, which have a directory in common, do that once: the first that needs it,
# while others wait.  Returns the directory where it is.
sub _built
{
	my ($pg_config, @options) = @_;
	my $source  = "$FindBin::RealBin/..";
	my @sources = map { glob("$source/$_") } qw(src Makefile exports.txt *.c *.control *.sql);
	my $common  = abs_path($PostgreSQL::Test::Utils::tmp_check);
	my $dir     = "$common/built_" . sha1_hex("@options", `$pg_config`);
	my $changed = "find @sources -type f \\( -name '*.[ch]' -o -name 'Makefile*' \\) -newer $dir/built";

	open my $lock, '>', "$dir.lock" or die "$dir.lock: $!";
	flock($lock, LOCK_EX) or die "$dir.lock: $!";
	return $dir if -e "$dir/built" && !`$changed`;

	# without objects that were built in another way
	system_or_bail('rm',    '-rf', $dir);
	system_or_bail('mkdir', $dir);
	system_or_bail('cp',    '-R',  @sources, $dir);
	system("find $dir -name '*.o' -delete") == 0 or die 'find';
	system_or_bail("make -s -C $dir PG_CONFIG=$pg_config @options"
		  . " pg_audit_queue.so >$dir/build.log 2>&1");
	system_or_bail('touch', "$dir/built");
	return $dir;
}

# Copy the server's programs below a directory, and link to the rest: the server
# finds its other files from where its program is.
sub _copy_server
{
	my ($pg_config, $base) = @_;
	my %dir =
	  map { chomp(my $dir = `$pg_config --$_`); $_ => $dir }
	  qw(bindir includedir-server pkglibdir sharedir);

	foreach my $name (qw(bindir pkglibdir sharedir))
	{
		my $copy = "$base$dir{$name}";

		system_or_bail('mkdir', '-p', $copy);
		system_or_bail('cp',
			$name eq 'bindir' ? '-RL' : ('-Rs', '--no-preserve=mode'),
			"$dir{$name}/.", $copy);
	}
	system_or_bail('mkdir', '-p', dirname("$base$dir{'includedir-server'}"));
	system_or_bail('ln', '-s', $dir{'includedir-server'}, "$base$dir{'includedir-server'}");
	unlink("$base$dir{pkglibdir}/pg_audit_queue.so",
		glob("$base$dir{sharedir}/extension/pg_audit_queue*"));
	return "$base$dir{bindir}/..";
}

# set_faults($node, %faults): what the points of a node of fault_install() do
# from now on, by name; see src/fault.c.  Points that are not named do nothing.
sub set_faults
{
	my ($node, %faults) = @_;
	my $file = $node->data_dir . '/pg_audit_queue.fault';

	# never half written
	append_to_file("$file.new", join '',
		map { "$_ $faults{$_}\n" } sort keys %faults);
	rename("$file.new", $file) or die "rename: $!";
	return;
}

1;
