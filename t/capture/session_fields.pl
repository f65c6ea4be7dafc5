# Fields that say how a client came in - authMethod, tlsVersion, tlsCipher -, with what
# rights - superuser - and which cluster the trail is of, systemIdentifier: against what
# PostgreSQL itself shows, in every record of a session, after failed logins, in the table,
# and on a standby.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use IPC::Run;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $superuser = getpwuid($>);
my $node = audited_node(
	'main',
	settings => { log => 'connect, read', flush_interval => '10ms' },
	init     => [ allows_streaming => 1 ],
	conf     => "listen_addresses = '127.0.0.1'\nautovacuum = off\n");
my $data       = $node->data_dir;
my $keys       = PostgreSQL::Test::Utils::tempdir();
my $identifier = unaudited_sql($node, 'SELECT system_identifier FROM pg_control_system()');
my $has_tls    = unaudited_sql($node, 'SHOW ssl_library') ne ''
  && system('command -v openssl >/dev/null') == 0;
my @fields = qw(authMethod tlsVersion tlsCipher);

unaudited_sql($node, q{
	CREATE ROLE trusted LOGIN;
	CREATE ROLE scrammed LOGIN PASSWORD 'right';
	CREATE ROLE rejected LOGIN;
	CREATE ROLE unlisted LOGIN;
	CREATE ROLE certified LOGIN;
	CREATE ROLE careful LOGIN PASSWORD 'right';
	SET password_encryption = 'md5';
	CREATE ROLE digested LOGIN PASSWORD 'right';});

# Make a key and a certificate for that name; without an issuer, it issues itself.
sub make_certificate
{
	my ($file, $name, $issuer) = @_;
	my @key = ('-newkey', 'ec', qw(-pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout), "$file.key");
	my @request = (qw(openssl req -new -subj), "/CN=$name", @key);

	if (defined $issuer)
	{
		run_command([ @request, '-out', "$file.csr" ]);
		run_command([
			qw(openssl x509 -req -days 30 -set_serial 2 -in), "$file.csr", '-CA', "$issuer.crt",
			'-CAkey', "$issuer.key", '-out', "$file.crt" ]);
	}
	else
	{
		run_command([ @request, qw(-x509 -days 30 -out), "$file.crt" ]);
	}
	-s "$file.crt" or die "there is no certificate for $name";
	chmod(0600, "$file.key") or die "chmod: $!";
	return;
}

if ($has_tls)
{
	make_certificate("$keys/server", 'server');
	make_certificate("$keys/client", 'certified', "$keys/server");
	$node->append_conf('postgresql.conf', "ssl = on\nssl_cert_file = '$keys/server.crt'\n"
		  . "ssl_key_file = '$keys/server.key'\nssl_ca_file = '$keys/server.crt'\n");
}

# Which lines there are, in front of one for this user and one for standbys
sub set_hba
{
	my ($lines) = @_;

	unlink("$data/pg_hba.conf");
	$node->append_conf('pg_hba.conf',
		"local all paq_quiet trust\nlocal replication $superuser trust\n$lines");
	return;
}

my $tls_lines = q{
	hostssl all certified 127.0.0.1/32 cert
	hostssl all careful 127.0.0.1/32 scram-sha-256 clientcert=verify-ca
	hostssl all scrammed 127.0.0.1/32 scram-sha-256
};
set_hba(qq{
	local all $superuser peer
	local all trusted trust
	local all rejected reject
	local all digested md5
	local all,replication scrammed scram-sha-256
	host all trusted 127.0.0.1/32 trust} . ($has_tls ? $tls_lines : "\n"));
$node->restart;

my $tcp = 'host=127.0.0.1 port=' . $node->port . ' dbname=postgres';
my $tls = "$tcp sslmode=require";
my $certificate = "sslcert=$keys/client.crt sslkey=$keys/client.key";

# The user's session, which is let in or not: status and output of one psql
sub login
{
	my ($user, %options) = @_;
	my $stdout;

	local $ENV{PGPASSWORD} = $options{password};
	my $status = $node->psql(
		'postgres', $options{sql},
		connstr      => ($options{connstr} // $node->connstr('postgres')) . " user=$user",
		stdout       => \$stdout,
		extra_params => ['-w']);
	return ($status, $stdout);
}

# A failed client may be gone before its record is there, so wait for as many.
sub records_of
{
	my ($what, $number) = @_;
	my $before = flush_trail($node);
	my @records;

	$what->();
	poll_until(
		sub {
			flush_trail($node);
			@records = grep { $_->{sequence} > $before && $_->{class} =~ /^(?:CONNECT|READ)$/ }
			  trail_records($node);
			return @records >= $number;
		});
	return @records;
}

# ---------------------------------------------------------------------------
# Sessions
# ---------------------------------------------------------------------------

# Each session asks PostgreSQL itself.
my $shown = q{SELECT coalesce(version, ''), coalesce(cipher, '') FROM pg_stat_ssl
	WHERE pid = pg_backend_pid()};

foreach my $case (
	[ $superuser, 'peer' ],
	[ 'trusted',  'trust' ],
	[ 'trusted',  'trust', connstr => "$tcp sslmode=disable" ],
	[ 'scrammed', 'scram-sha-256', password => 'right' ],
	[ 'digested', 'md5', password => 'right' ],
	$has_tls ? (
		[ 'scrammed', 'scram-sha-256', password => 'right', connstr => $tls, tls => 'TLSv1.3' ],
		[
			'scrammed', 'scram-sha-256', password => 'right',
			connstr => "$tls ssl_max_protocol_version=TLSv1.2", tls => 'TLSv1.2'
		],
		[ 'certified', 'cert', connstr => "$tls $certificate", tls => 'TLSv1.3' ],
		[ 'trusted', 'trust', connstr => $tls, tls => 'TLSv1.3' ]) : ())
{
	my ($user, $method, %options) = @$case;
	my $name = "$user: $method" . ($options{tls} ? ", $options{tls}" : '');
	my ($status, $stdout);
	my @records = records_of(
		sub { ($status, $stdout) = login($user, %options, sql => "$shown; SELECT 2") }, 4);

	is($status, 0, "$name: is let in");
	like($stdout, defined $options{tls} ? qr/^\Q$options{tls}\E\|\w/ : qr/^\|$/m,
		"$name: as it should be");
	my ($expected) = split /\n/, $stdout;
	is_deeply(
		[ columns("class command @fields", @records) ],
		[
			map { "$_|$method|$expected" }
			  ('CONNECT|LOGIN', 'READ|SELECT', 'READ|SELECT', 'CONNECT|LOGOUT')
		],
		"$name: in each record");
	is_deeply([ map { $_->{tlsVersion} } @records ], [ map { $options{tls} } @records ],
		"$name: null without TLS");
}

# Which method it was stays, whatever becomes of the file.
my @records = records_of(
	sub {
		my $client = PgProto->connect($node);
		my $lines  = slurp_file("$data/pg_hba.conf");

		set_hba("local all all trust\n");
		$node->reload;
		poll_until(
			sub { unaudited_sql($node, q{SELECT count(*) FROM pg_hba_file_rules}) eq '3' });
		$client->query("SET application_name = 'renamed'");
		$client->query('SELECT 3');
		$client->quit;
		unlink("$data/pg_hba.conf");
		$node->append_conf('pg_hba.conf', $lines);
		$node->reload;
	},
	3);
is_deeply(
	[ columns('command clientApplication authMethod', @records) ],
	[ 'LOGIN||peer', 'SELECT|renamed|peer', 'LOGOUT|renamed|peer' ],
	'a session keeps its method when the file changes');

# ---------------------------------------------------------------------------
# Failed logins
# ---------------------------------------------------------------------------

foreach my $case (
	[ 'scrammed', 'scram-sha-256', '28P01', password => 'wrong' ],
	[ 'digested', 'md5', '28P01', password => 'wrong' ],
	[ 'rejected', 'reject', '28000' ],
	[ 'unlisted', undef, '28000' ],
	[
		'scrammed', 'scram-sha-256', '3D000', password => 'right',
		connstr => $node->connstr('nowhere')
	],
	$has_tls ? (
		[ 'scrammed', 'scram-sha-256', '28P01', password => 'wrong', connstr => $tls ],
		[ 'careful', 'scram-sha-256', '28000', password => 'right', connstr => $tls ],
		[ 'certified', 'cert', '28000', connstr => $tls ],
		[ 'unlisted', undef, '28000', connstr => $tls ]) : ())
{
	my ($user, $method, $code, %options) = @$case;
	my $with_tls = ($options{connstr} // '') eq $tls;
	my $name = "$user: $code" . ($with_tls ? ', TLS' : '');
	my @records = records_of(
		sub { isnt((login($user, %options))[0], 0, "$name: not let in") }, 1);
	my $record = $records[0];

	is_deeply([ columns('command dbUserName exitCode', @records) ],
		["LOGIN|$user|$code"], "$name: is recorded");
	is($record->{authMethod}, $method, "$name: authMethod");
	is($record->{tlsVersion}, $with_tls ? 'TLSv1.3' : undef, "$name: tlsVersion");
	is(!defined $record->{tlsCipher}, !$with_tls, "$name: tlsCipher");
	ok(exists $record->{superuser} && !defined $record->{superuser}, "$name: of no role");
}

# ---------------------------------------------------------------------------
# Superusers
# ---------------------------------------------------------------------------

unaudited_sql($node, q{
	CREATE FUNCTION as_owner() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS
		'BEGIN RETURN (SELECT count(*) FROM pg_authid WHERE false); END';
	CREATE ROLE changing LOGIN;
	GRANT trusted TO changing;} . join('', map { "CREATE ROLE member_$_;" } 1 .. 9));

# What records of class READ, and of the end, say of a client's roles.  null is nothing,
# false is 0.
sub roles_of
{
	my (@records) = @_;

	return [ columns('command sessionUser currentUser superuser', @records) ];
}

@records = records_of(
	sub {
		my $client = PgProto->connect($node);

		$client->query($_)
		  foreach 'SELECT 5', 'SET ROLE trusted', 'SELECT as_owner()', 'RESET ROLE', 'SELECT 6';
		$client->quit;
	},
	6);
is_deeply(
	roles_of(@records),
	[
		"LOGIN|$superuser|$superuser|1", "SELECT|$superuser|$superuser|1",
		"SELECT|$superuser|paq_quiet|1", "SELECT|$superuser|trusted|0",
		"SELECT|$superuser|$superuser|1", "LOGOUT|$superuser|$superuser|1"
	],
	'superuser is that of currentUser, also in a function with its owner\'s rights');

# Somebody else changes what the role is.
my $lines = slurp_file("$data/pg_hba.conf");
set_hba("local all $superuser peer\nlocal all changing trust\n");
$node->reload;
@records = records_of(
	sub {
		my $client = PgProto->connect($node, user => 'changing');

		foreach my $change ('', 'SUPERUSER', 'NOSUPERUSER')
		{
			unaudited_sql($node, "ALTER ROLE changing $change") if $change;
			$client->query('SELECT 7');
		}
		unaudited_sql($node, 'ALTER ROLE changing SUPERUSER');
		$client->quit;
	},
	5);
is_deeply(
	roles_of(@records),
	[
		map { "$_->[0]|changing|changing|$_->[1]" } ([ LOGIN => 0 ], [ SELECT => 0 ],
			[ SELECT => 1 ], [ SELECT => 0 ], [ LOGOUT => 0 ])
	],
	'follows ALTER ROLE; where no catalog can be read, it is what was known last');

# More roles than the session keeps
@records = records_of(
	sub {
		my $client = PgProto->connect($node);

		foreach (1 .. 9)
		{
			$client->query("SET ROLE member_$_");
			$client->query('SELECT 8');
		}
		$client->quit;
	},
	11);
is_deeply(
	[ @{ roles_of(@records) }[ 1 .. 9 ] ],
	[ map { "SELECT|$superuser|member_$_|0" } 1 .. 9 ],
	'sessionUser is right whichever roles a session has');
unlink("$data/pg_hba.conf");
$node->append_conf('pg_hba.conf', $lines);
$node->reload;

# ---------------------------------------------------------------------------
# Everything
# ---------------------------------------------------------------------------

is_deeply([ grep { $_->{systemIdentifier} ne $identifier } trail_records($node) ],
	[], 'systemIdentifier is that of pg_control_system()');
like((trail_lines($node))[-1], qr/"systemIdentifier":"$identifier"/, 'a string');
my @own = grep { ($_->{backendType} // '') =~ /pg_audit_queue/ } trail_records($node);
cmp_ok(scalar @own, '>', 0, 'records without a client');
is_deeply([ grep { defined } map { @$_{ @fields, 'superuser' } } @own ], [], 'have nothing of one');

# The table has them, too.  That audit_trail has all fields is tested in t/trail/audit_trail.
my $columns = 'auth_method, tls_version, tls_cipher, system_identifier, superuser';

$node->append_conf('postgresql.conf', settings_text(sink => 'table'));
$node->reload;
poll_until(sub { stats($node)->{sink} eq 'table' });
my ($status, $stdout) = login('scrammed', password => 'right', sql => $shown,
	connstr => $has_tls ? $tls : $node->connstr('postgres'));
ok(table_loaded($node), 'sink = table: all is loaded');
is( unaudited_sql($node, "SELECT $columns FROM audit_records WHERE user_name = 'scrammed'"
		  . " AND command = 'SELECT'"),
	"scram-sha-256|$stdout|$identifier|f",
	'the table has the columns');
$node->append_conf('postgresql.conf', settings_text(sink => 'file'));
$node->restart;

# A standby has another trail of the same cluster.
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$standby->safe_psql('postgres', 'SELECT 4');
flush_trail($standby);
my ($on_standby) = grep { ($_->{commandText} // '') eq 'SELECT 4' } trail_records($standby);
is_deeply([ @$on_standby{qw(authMethod systemIdentifier)} ], [ 'peer', $identifier ], 'on a standby');
$standby->stop;
$node->stop;

# In single-user mode there is nobody to be authenticated, and the session writes the
# trail itself.
my $input = "SELECT 'alone'\n";
my $output;

IPC::Run::run(
	[
		$node->installed_command('postgres'), '--single', '-D', $data,
		'-c', 'pg_audit_queue.mode=immediate', 'postgres'
	],
	'<', \$input, '>&', \$output) or die $output;
my ($alone) = grep { ($_->{commandText} // '') =~ /'alone'/ } trail_records($node);
is_deeply([ @$alone{ @fields, 'systemIdentifier' } ],
	[ (undef) x 3, $identifier ], 'in single-user mode');

done_testing();
