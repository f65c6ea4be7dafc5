# Privileges of roles that log in: to use the functions and the view, and to
# change settings.  sql/privileges.sql has the same for SET ROLE, and more
# settings.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node('main');
unaudited_sql(
	$node, q{
	CREATE ROLE nobody_special LOGIN;
	CREATE ROLE creator LOGIN CREATEROLE CREATEDB;
	CREATE ROLE monitor LOGIN IN ROLE pg_monitor;
	CREATE ROLE auditors;
	CREATE ROLE auditor LOGIN IN ROLE auditors;
	CREATE DATABASE owned OWNER creator;
	GRANT EXECUTE ON FUNCTION audit_flush(), audit_rotate(),
		audit_queue_stats_reset() TO auditors});

my %sql = (
	check    => 'SELECT count(*) FROM audit_check()',
	classes  => 'SELECT * FROM pg_stat_audit_queue_classes',
	flush    => 'SELECT audit_flush()',
	function => 'SELECT worker_pid FROM audit_queue_stats()',
	reset    => 'SELECT audit_queue_stats_reset()',
	rotate   => 'SELECT audit_rotate()',
	stats    => 'SELECT worker_pid FROM pg_stat_audit_queue',
	view     => 'SELECT worker_pid FROM audit_queue_stats');
my %allowed = (
	nobody_special => [],
	creator        => [],
	monitor        => [qw(check classes function stats view)],
	auditor        => [qw(flush reset rotate)]);

foreach my $role (sort keys %allowed)
{
	foreach my $what (sort keys %sql)
	{
		my ($ret, $stdout, $stderr) = $node->psql('postgres', $sql{$what},
			extra_params => [ '-U', $role, '-v', 'VERBOSITY=sqlstate' ]);

		if (grep { $_ eq $what } @{ $allowed{$role} })
		{
			is($ret, 0, "$role may: $sql{$what}") or diag($stderr);
		}
		else
		{
			like($stderr, qr/ERROR:  42501$/, "$role may not: $sql{$what}");
		}
	}
}

# Settings: nobody gets out of being audited

foreach my $role (qw(nobody_special creator monitor auditor))
{
	foreach my $sql (
		q{SET pg_audit_queue.log = 'none'},
		q{SET pg_audit_queue.mode = 'queued'},
		q{SET LOCAL pg_audit_queue.log_statement = off},
		q{SELECT set_config('pg_audit_queue.role', '', false)},
		qq{ALTER ROLE $role SET pg_audit_queue.log = 'none'},
		q{ALTER SYSTEM SET pg_audit_queue.log = 'none'},
		q{SELECT pg_reload_conf()})
	{
		my ($ret, $stdout, $stderr) = $node->psql('postgres', $sql,
			extra_params => [ '-U', $role, '-v', 'VERBOSITY=sqlstate' ]);

		like($stderr, qr/ERROR:  42501$/, "$role may not: $sql");
	}

	# in the words with which a session starts; nothing on standard input: psql
	# exits before it reads that
	local $ENV{PGOPTIONS} = '-c pg_audit_queue.log=none';
	my ($ret, $stdout, $stderr) =
	  $node->psql('postgres', '', extra_params => [ '-U', $role ]);
	like(
		$stderr,
		qr/permission denied to set parameter "pg_audit_queue.log"/,
		"$role may not log in with a setting");
}
my ($ret, $stdout, $stderr) = $node->psql(
	'postgres',
	q{ALTER DATABASE owned SET pg_audit_queue.log = 'none'},
	extra_params => [ '-U', 'creator', '-v', 'VERBOSITY=sqlstate' ]);
like($stderr, qr/ERROR:  42501$/, 'nor may the owner of a database');

my @records = records_for(
	$node,
	sub {
		$node->psql(
			'postgres', q{SET pg_audit_queue.log = 'none'; SELECT 'hidden'},
			on_error_stop => 0,
			extra_params  => [ '-U', 'nobody_special' ]);
	});
my ($set) = grep { $_->{command} eq 'SET' } @records;
is($set->{exitCode}, '42501', 'the attempt is recorded');
is($set->{dbUserName}, 'nobody_special', 'with who has made it');
is((grep { $_->{command} eq 'SELECT' } @records),
	1, 'and so is what was to be hidden');

# A parameter that is granted

unaudited_sql($node,
	'GRANT SET ON PARAMETER pg_audit_queue.mode TO auditors');
is( $node->safe_psql(
		'postgres',
		q{SET pg_audit_queue.mode = 'immediate'; SHOW pg_audit_queue.mode},
		extra_params => [ '-U', 'auditor' ]),
	'immediate',
	'a granted parameter can be set');

# Where the files are is nobody's business: settings that not everybody is shown are those
# that the documentation names, and shown to whoever it says

my ($hidden) = slurp_file("$FindBin::RealBin/../../doc/settings.md") =~ /^\*\*Who can see them\.\*\* (.*?) are shown/ms;
my @hidden = ($hidden // '') =~ /`(\w+)`/g;
my %seen = map {
	$_ => { map { $_ => 1 } split /\n/, $node->safe_psql('postgres',
			q{SELECT substr(name, 16) FROM pg_settings WHERE name LIKE 'pg_audit_queue.%'},
			extra_params => [ '-U', $_ ]) }
} qw(nobody_special monitor);
is(join(' ', grep { !$seen{nobody_special}{$_} } sort keys %{ $seen{monitor} }),
	"@hidden", 'settings that not everybody is shown');
foreach my $name (@hidden)
{
	($ret, $stdout, $stderr) = $node->psql(
		'postgres', "SHOW pg_audit_queue.$name",
		extra_params => [ '-U', 'nobody_special' ]);
	isnt($ret, 0, "no $name for everybody");
	is( $node->psql(
			'postgres', "SHOW pg_audit_queue.$name",
			extra_params => [ '-U', 'monitor' ]),
		0,
		'monitoring may see it');
}

# and a change of the command that prints the key shows it to whoever reads the trail.

@records = records_for(
	$node,
	sub {
		unaudited_sql($node, q{ALTER SYSTEM SET pg_audit_queue.log_encryption_key_command = 'false'});
		$node->reload;
		poll_until(sub { flush_trail($node) && texts_in_trail($node, '"newValue":"false"') }) or die 'no record';
	},
	config => 1);
cmp_ok(scalar(grep { ($_->{objectName} // '') =~ /key_command/ && $_->{newValue} eq 'false' } @records),
	'>', 0, 'the key command is in the trail');
$node->stop;

done_testing();
