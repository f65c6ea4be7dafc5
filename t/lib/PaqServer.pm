#-------------------------------------------------------------------------
#
# PaqServer.pm
#	A server that records into a trail, its settings, and SQL that leaves no records.
#
# The functions' own work on the server leaves no records, but reads of the trail by
# unaudited_sql() do, as any, with the user name paq_quiet.  So a test finds in
# the trail only records of its own work, and of class CONFIG: the worker
# records that it starts, and each setting that a session gets in PGOPTIONS.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqServer;

use strict;
use warnings;

use Exporter 'import';
use JSON::XS;
use Time::HiRes qw(sleep time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use PaqInit qw(init_node $quiet_role);
use PgProto;

our @EXPORT = qw(
  audited_node
  conforming_settings
  crash_node
  create_extension
  encryption_key
  encryption_key_file
  flush_trail
  force_parallel
  full_tests
  poll_until
  postmaster_pid
  queue_dir
  settings_text
  shown_text
  start_again
  stats
  trail_dir
  unaudited_sql
  wait_for_log
  worker_pid
);

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
	init_node($node, quiet_role => 1, @{ $options{init} // [] });
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
# recorded but reads of the trail.  Returns what psql prints, unaligned, without
# headings.
sub unaudited_sql
{
	my ($node, $sql, $database) = @_;

	$database //= 'postgres';
	if ($sql !~ /;\s*\S|\\|^\s*COPY\b/i && $node->host =~ m{^/})
	{
		my $client = eval { _quiet_client($node, $database) };

		if ($client)
		{
			my $rows = eval { $client->rows($sql) };
			my $error = $@;

			$client->leave;
			return $rows if defined $rows;
			die "error running SQL: '$error' while running '$sql'";
		}
		die $@ if $@ !~ /asks for a password/;
	}
	local $ENV{PGOPTIONS} = '';
	return $node->safe_psql($database, $sql,
		connstr => $node->connstr($database) . " user=$quiet_role");
}

# A connection for that: a statement alone needs no psql, which takes longer than most.
sub _quiet_client
{
	my ($node, $database) = @_;
	my %options = (application_name => 'psql');

	$options{client_encoding} = $ENV{PGCLIENTENCODING} if defined $ENV{PGCLIENTENCODING};
	my $client = PgProto->connect($node,
		user     => $quiet_role,
		database => $database,
		options  => join ' ', map { "-c $_=$options{$_}" } sort keys %options);

	die 'the server refuses the connection, SQLSTATE ' . $client->refused . "\n"
	  if defined $client->refused;
	return $client;
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

	return $node->pg_version->major >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
}

# poll_until($sub, $seconds): call the sub until what it returns is true, at
# most for so many seconds (PostgreSQL's default timeout for tests unless
# given), 50 times a second at first, then 10 times: most calls open a session, and
# other tests run meanwhile.  Returns that value, or the last false one.
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

# flush_trail($node): wait until all published records are in the trail, with
# audit_flush() in database postgres.  Returns the sequence up to which they
# are.
sub flush_trail
{
	my ($node) = @_;

	return unaudited_sql($node, 'SELECT audit_flush()');
}

# shown_text($node, $sql): the text of the record of a statement that is alone in
# what is sent: from PostgreSQL 17 on without what is around it, as in pgaudit.
sub shown_text
{
	my ($node, $sql) = @_;

	return $node->pg_version->major >= 17 ? $sql =~ s/^\s+|[;\s]+$//gr : $sql;
}

# conforming_settings($node): what standard_conforming_strings can be set to, which
# decides what a backslash in a string constant means.
sub conforming_settings
{
	my ($node) = @_;

	return $node->pg_version->major >= 19 ? ('on') : ('on', 'off');
}

# stats($node): the row of audit_queue_stats as a hash; null is undef.
sub stats
{
	my ($node) = @_;

	return decode_json(
		unaudited_sql(
			$node, 'SELECT row_to_json(s) FROM audit_queue_stats s'));
}

# worker_pid($node): process id of the worker, which may not be there yet when the
# server has just started; undef if there is none in time.
sub worker_pid
{
	my ($node) = @_;

	return poll_until(sub { stats($node)->{worker_pid} });
}

# postmaster_pid($node): process id of the postmaster
sub postmaster_pid
{
	my ($node) = @_;

	return slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/ ? $1 : die 'no postmaster';
}

# wait_for_log($node, $regexp, $position): wait until the server's log matches
# behind that position.  Returns false if it does not in time.
sub wait_for_log
{
	my ($node, $regexp, $position) = @_;

	return poll_until(
		sub { slurp_file($node->logfile, $position) =~ $regexp });
}

# crash_node($node, $worker_pid): kill the postmaster and the worker; the other
# processes notice that and end by themselves.  The worker's process id is
# asked for unless given.
sub crash_node
{
	my ($node, $worker_pid) = @_;

	$worker_pid //= stats($node)->{worker_pid};
	my $postmaster = postmaster_pid($node);

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

1;
