#-------------------------------------------------------------------------
#
# PaqInit.pm
#	Makes the data directories of the tests' servers.
#
# initdb takes a second and a half of the processor, so the tests of a run, which have a
# directory in common, call it once for each version and choice of options: the first that
# needs it, while others wait.  The data directories are copies, each with a system
# identifier of its own, as initdb would give.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqInit;

use strict;
use warnings;

use Exporter 'import';
use Cwd qw(abs_path);
use Digest::SHA qw(sha1_hex);
use Fcntl qw(LOCK_EX);
use IPC::Run;
use Time::HiRes qw(gettimeofday);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

our @EXPORT_OK = qw(crc32c init_node $quiet_role);

# A superuser none of whose statements is recorded, not even that they are
# not: what a role's settings bring along at login leaves no record.
our $quiet_role = 'paq_quiet';

# init_node($node, %options): make the node's cluster by its init(), which gets the
# options: in UTF8 and locale C, unless "extra" among them says otherwise.  With the option
# quiet_role it has the role for unaudited_sql().
sub init_node
{
	my ($node, %options) = @_;
	my $with_quiet_role = delete $options{quiet_role};
	my $system_or_bail = \&PostgreSQL::Test::Utils::system_or_bail;

	# Only init() knows what else belongs to a node.
	no warnings 'redefine';
	local *PostgreSQL::Test::Utils::system_or_bail = sub {
		my ($program, @arguments) = @_;

		return $system_or_bail->(@_) if $program ne 'initdb';
		@arguments = grep { $_ ne $node->data_dir && !/^(?:-D|--pgdata)$/ } @arguments;
		system_or_bail('cp', '-Rp', _template($node, $with_quiet_role, @arguments),
			$node->data_dir);
		_change_system_identifier($node);
	};
	$node->init(%options,
		force_initdb => 1,
		extra => [ '--encoding=UTF8', '--locale=C', @{ $options{extra} // [] } ]);
	return;
}

# The data directory that initdb makes with these arguments, to be copied.
sub _template
{
	my ($node, $with_quiet_role, @arguments) = @_;
	my $postgres = $node->installed_command('postgres');
	my $common   = abs_path($PostgreSQL::Test::Utils::tmp_check);
	my $dir      = "$common/template_" . sha1_hex("@arguments", $with_quiet_role // '', `$postgres --version`);

	open my $lock, '>', "$dir.lock" or die "$dir.lock: $!";
	flock($lock, LOCK_EX) or die "$dir.lock: $!";
	if (!-e "$dir/PG_VERSION")
	{
		system_or_bail('rm', '-rf', "$dir.new");
		system_or_bail($node->installed_command('initdb'), '-D', "$dir.new", @arguments);
		_create_quiet_role($postgres, "$dir.new") if $with_quiet_role;
		# WAL that has nothing but a checkpoint: the rest is zeros, which are not written again
		# in each copy
		system_or_bail($node->installed_command('pg_resetwal'), '-f', '-D', "$dir.new");
		system_or_bail('cp', '-Rp', '--sparse=always', "$dir.new/pg_wal", "$dir.new/wal");
		system_or_bail('rm', '-rf', "$dir.new/pg_wal");
		rename("$dir.new/wal", "$dir.new/pg_wal") or die "$dir: $!";
		rename("$dir.new", $dir) or die "$dir: $!";
	}
	return $dir;
}

# Create the role for unaudited_sql(), in single-user mode, before the library
# is there to record it.
sub _create_quiet_role
{
	my ($postgres, $data_dir) = @_;
	my $input = join '', map { "$_\n" } (
		"CREATE ROLE $quiet_role SUPERUSER LOGIN",
		"ALTER ROLE $quiet_role SET pg_audit_queue.log = 'none'",
		"ALTER ROLE $quiet_role SET pg_audit_queue.role = ''");
	my $output;

	local $ENV{PGOPTIONS} = '';
	IPC::Run::run([ $postgres, '--single', '-F', '-D', $data_dir, 'template1' ],
		'<', \$input, '>&', \$output)
	  && $output !~ /ERROR|FATAL|PANIC/
	  or die "could not create role $quiet_role: $output";
	return;
}

# Give the cluster another system identifier.  It is in the control file, which has a CRC, and
# in the header of each WAL segment, behind that of its first page.
sub _change_system_identifier
{
	my ($node) = @_;
	my $file    = $node->data_dir . '/global/pg_control';
	my $control = slurp_file($file);
	my $length  = _control_length($control);
	my ($seconds, $microseconds) = gettimeofday();

	# as initdb does, from the time and the process
	my $identifier = pack 'Q<', ($seconds << 32) | ($microseconds << 12) | ($$ & 0xFFF);
	my $former = substr($control, 0, 8);

	substr($control, 0, 8) = $identifier;
	substr($control, $length, 4) = pack 'L<', crc32c(substr($control, 0, $length));
	_put($file, 0, $control);
	foreach my $segment (grep { /^[0-9A-F]{24}$/ } slurp_dir($node->data_dir . '/pg_wal'))
	{
		$file = $node->data_dir . "/pg_wal/$segment";
		my $has = _get($file, 24, 8);

		# a segment that is only there for later has nothing yet
		next if $has eq "\0" x 8;
		die "$file has no system identifier" if $has ne $former;
		_put($file, 24, $identifier);
	}
	return;
}

# Bytes of a file at that position
sub _get
{
	my ($file, $position, $length) = @_;

	open my $handle, '<:raw', $file or die "$file: $!";
	seek($handle, $position, 0) or die "$file: $!";
	defined read($handle, my $bytes, $length) or die "$file: $!";
	return $bytes;
}

sub _put
{
	my ($file, $position, $bytes) = @_;

	open my $handle, '+<:raw', $file or die "$file: $!";
	seek($handle, $position, 0) or die "$file: $!";
	print {$handle} $bytes or die "$file: $!";
	close $handle or die "$file: $!";
	return;
}

# Length of what the CRC of a control file is over, which stands behind it.
sub _control_length
{
	my ($control) = @_;
	my $crc = 0xFFFFFFFF;

	for (my $length = 0; $length + 4 <= length $control; $length++)
	{
		return $length
		  if $length > 0 && unpack('L<', substr($control, $length, 4)) == ($crc ^ 0xFFFFFFFF);
		$crc = _add_byte($crc, ord substr($control, $length, 1));
	}
	die 'no CRC in a control file';
}

# crc32c($data): the checksum that PostgreSQL has in its files
sub crc32c
{
	my ($data) = @_;
	my $crc = 0xFFFFFFFF;

	$crc = _add_byte($crc, $_) foreach unpack 'C*', $data;
	return $crc ^ 0xFFFFFFFF;
}

# CRC-32C, the polynomial's bits reversed
sub _add_byte
{
	my ($crc, $byte) = @_;

	$crc ^= $byte;
	$crc = $crc & 1 ? ($crc >> 1) ^ 0x82F63B78 : $crc >> 1 foreach 1 .. 8;
	return $crc;
}

1;
