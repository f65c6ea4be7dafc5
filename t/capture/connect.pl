# Class CONNECT: logins, failed logins and logouts.  Each has one record, with
# user, address of the client, outcome and duration.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use IO::Socket::UNIX;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $superuser = getpwuid($>);
my $node      = audited_node(
	'main',
	settings => { log => 'connect' },
	init     => [ allows_streaming => 1 ],
	conf     => "listen_addresses = '127.0.0.1'\nautovacuum = off\nmax_connections = 100\n");

unaudited_sql($node, q{
	CREATE ROLE "with password" LOGIN PASSWORD 'right';
	CREATE ROLE expired LOGIN PASSWORD 'right' VALID UNTIL '2001-01-01';
	CREATE ROLE poor LOGIN;
	CREATE ROLE rejected LOGIN;
	CREATE ROLE unlisted LOGIN;
	CREATE ROLE "group" NOLOGIN;
	CREATE ROLE limited LOGIN CONNECTION LIMIT 0;
	CREATE DATABASE closed;
	REVOKE CONNECT ON DATABASE closed FROM PUBLIC;
	CREATE DATABASE crowded CONNECTION LIMIT 0;
	CREATE DATABASE shut ALLOW_CONNECTIONS false});
unlink($node->data_dir . '/pg_hba.conf');
$node->append_conf('pg_hba.conf', qq{
	local all "with password",expired,ghost scram-sha-256
	local all rejected reject
	local all $superuser,paq_quiet,poor,"group",limited,nobody trust
	local replication $superuser trust
	host all $superuser 127.0.0.1/32 trust});
$node->reload;

# The records of class CONNECT behind that sequence
sub connects_since
{
	my ($sequence) = @_;

	flush_trail($node);
	return grep { $_->{class} eq 'CONNECT' && $_->{sequence} > $sequence }
	  trail_records($node);
}

my @records;

# What the sub makes is recorded like this, a line for each record.  A process
# may be at its end when its client has gone already, so wait for as many
# records; that there are not more is looked at once more at the end.
sub connects_are
{
	my ($what, $expected, $name, $fields) = @_;
	my $before = flush_trail($node);

	$what->();
	poll_until(
		sub {
			@records = connects_since($before);
			return @records >= @$expected;
		});
	is_deeply(
		[
			columns(
				$fields // 'command dbUserName databaseName exitCode errorMessage',
				@records)
		],
		$expected, $name) or diag explain \@records;
	return;
}

# One psql, whose success or failure is not the test's.  Without SQL it gets no
# input, which it would not read if it is not let in.
sub login
{
	my ($user, $database, %options) = @_;

	local $ENV{PGUSER}     = $user     // $superuser;
	local $ENV{PGPASSWORD} = $options{password};
	local $ENV{PGOPTIONS}  = $options{options} // '';
	local $ENV{PGAPPNAME}  = $options{name} // 'client';
	my ($status, $stdout, $stderr) = $node->psql(
		$database // 'postgres',
		$options{sql},
		extra_params => ['-w'],
		connstr      => ($options{connstr} // $node->connstr($database // 'postgres')));
	note $stderr if $stderr ne '';
	return $status;
}

# A session

connects_are(
	sub { login(undef, undef, sql => 'SELECT pg_sleep(0.3)') },
	[
		"LOGIN|$superuser|postgres|00000|",
		"LOGOUT|$superuser|postgres|00000|"
	],
	'a session');
my ($login, $logout) = @records;
foreach my $record (@records)
{
	my $command = $record->{command};

	is_deeply(
		{
			map { $_ => $record->{$_} }
			  qw(type auditType sessionUser currentUser remoteHost remotePort
			  netProtocol clientApplication backendType)
		},
		{
			type              => 'record',
			auditType         => 'SESSION',
			sessionUser       => $superuser,
			currentUser       => $superuser,
			remoteHost        => '[local]',
			remotePort        => undef,
			netProtocol       => 'UNIX',
			clientApplication => 'client',
			backendType       => 'client backend'
		},
		"$command: who, and where from");
	is_deeply(
		[
			grep { defined $record->{$_} }
			  qw(commandText commandTextOmitted statementLocation paramList
			  objectType objectName oldValue newValue valueSource rowCount statementId
			  substatementId queryId transactionId)
		],
		[], "$command: what there is not, is null");
	ok(!exists $record->{incomplete}, "$command: nothing is missing");
}
is($logout->{sessionId}, $login->{sessionId}, 'one session');
is("$login->{sessionLine} $logout->{sessionLine}", '1 2', 'its first and last records');
is($_->{startTime}, $_->{sessionStart}, "$_->{command} starts with the session")
  foreach @records;
cmp_ok($login->{durationUs}, '>', 0, 'a login takes time');
cmp_ok($login->{durationUs}, '<', $logout->{durationUs}, 'the session takes longer');
cmp_ok($logout->{durationUs}, '>=', 300_000, 'as long as it was');

connects_are(
	sub {
		login(undef, undef,
			connstr => 'host=127.0.0.1 port=' . $node->port . ' dbname=postgres');
	},
	[
		"LOGIN|$superuser|127.0.0.1|TCP|00000",
		"LOGOUT|$superuser|127.0.0.1|TCP|00000"
	],
	'through TCP',
	'command dbUserName remoteHost netProtocol exitCode');
like($_->{remotePort}, qr/^\d+$/, "$_->{command}: the client's port") foreach @records;

connects_are(
	sub { login('with password', undef, password => 'right') },
	[
		'LOGIN|with password|postgres|00000|',
		'LOGOUT|with password|postgres|00000|'
	],
	'the right password');

# Failed logins

my $no_hba = 'no pg_hba.conf entry for host "[local]", user "unlisted", database "postgres", no encryption';
my $rejected = 'pg_hba.conf rejects connection for host "[local]", user "rejected", database "postgres", no encryption';

foreach my $case (
	[ 'nobody', 'postgres', undef, '28000', 'role "nobody" does not exist' ],
	[
		'ghost', 'postgres', 'right', '28P01',
		'password authentication failed for user "ghost"'
	],
	[
		'with password', 'postgres', 'wrong', '28P01',
		'password authentication failed for user "with password"'
	],
	[
		'expired', 'postgres', 'right', '28P01',
		'password authentication failed for user "expired"'
	],
	[ 'unlisted', 'postgres', undef, '28000', $no_hba ],
	[ 'rejected', 'postgres', undef, '28000', $rejected ],
	[ 'group', 'postgres', undef, '28000', 'role "group" is not permitted to log in' ],
	[ 'limited', 'postgres', undef, '53300', 'too many connections for role "limited"' ],
	[ 'poor', 'nowhere', undef, '3D000', 'database "nowhere" does not exist' ],
	[ 'poor', 'closed', undef, '42501', 'permission denied for database "closed"' ],
	[ 'poor', 'crowded', undef, '53300', 'too many connections for database "crowded"' ],
	[
		$superuser, 'shut', undef, '55000',
		'database "shut" is not currently accepting connections'
	])
{
	my ($user, $database, $password, $code, $message) = @$case;

	connects_are(
		sub { isnt(login($user, $database, password => $password), 0, "refused: $message") },
		["LOGIN|$user|$database|$code|$message"],
		'recorded');
	is_deeply(
		{
			map { $_ => $records[0]{$_} }
			  qw(sessionUser remoteHost clientApplication backendType statementId sessionLine)
		},
		{
			sessionUser       => undef,
			remoteHost        => '[local]',
			clientApplication => 'client',
			backendType       => 'client backend',
			statementId       => undef,
			sessionLine       => 1
		},
		'with what is known by then');
}
connects_are(
	sub { login(undef, undef, options => '-c geqo=perhaps') },
	["LOGIN|$superuser|postgres|22023|parameter \"geqo\" requires a Boolean value"],
	'a wrong option');
connects_are(
	sub { login('poor', undef, options => '-c pg_audit_queue.log=none') },
	['LOGIN|poor|postgres|42501|permission denied to set parameter "pg_audit_queue.log"'],
	'an option that is not for everybody');

# What is none

sub send_startup
{
	my ($bytes) = @_;
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $socket = IO::Socket::UNIX->new(Peer => $path)
	  // die "could not connect to $path: $!";

	print $socket $bytes;
	$socket->flush;
	$socket->shutdown(1);

	# until the server closes the connection
	local $/;
	my $answer = <$socket>;
	close $socket;
	return;
}

connects_are(
	sub {
		# libpq goes away when it is asked for a password that it does not have
		isnt(login('with password'), 0, 'no password');

		# a request to cancel, somebody who leaves at once, and who asks for TLS
		send_startup(pack('N4', 16, 80877102, 1, 1));
		send_startup('');
		send_startup(pack('N2', 8, 80877103));

		# ends the wait for records
		login('nobody');
	},
	['LOGIN|nobody|postgres|28000|role "nobody" does not exist'],
	'what is no login is not recorded');
connects_are(
	sub { send_startup(pack('N2 x', 9, 196608)) },
	['LOGIN|||28000|no PostgreSQL user name specified in startup packet'],
	'a login of nobody knows whom');
is($records[0]{backendType}, 'client backend', 'the process is one of a client');

# How sessions end

my $client;

connects_are(
	sub {
		$client = PgProto->connect($node);
		unaudited_sql($node, 'SELECT pg_terminate_backend(' . $client->pid . ')');
	},
	[
		"LOGIN|$superuser|postgres|00000|",
		"LOGOUT|$superuser|postgres|57P01|terminating connection due to administrator command"
	],
	'terminated');
connects_are(
	sub {
		$client = PgProto->connect($node);
		$client->query(q{SET idle_session_timeout = '10ms'});
	},
	[
		"LOGIN|$superuser|postgres|00000|",
		"LOGOUT|$superuser|postgres|57P05|terminating connection due to idle-session timeout"
	],
	'idle for too long');
connects_are(
	sub {
		$client = PgProto->connect($node);
		close $client->{socket};
	},
	[
		"LOGIN|$superuser|postgres|00000|",
		"LOGOUT|$superuser|postgres|08006|connection to client lost"
	],
	'the client is lost');
connects_are(
	sub {
		$client = PgProto->connect($node);
		$client->query('SELECT 1 / 0');
		$client->quit;
	},
	[
		"LOGIN|$superuser|postgres|00000|",
		"LOGOUT|$superuser|postgres|00000|"
	],
	'an error that does not end the session');

my @all = records_for(
	$node,
	sub {
		my $logouts = texts_in_trail($node, '"command":"LOGOUT"');

		login(undef, undef,
			options => '-c pg_audit_queue.log=connect,read',
			sql     => 'SELECT pg_terminate_backend(pg_backend_pid()), 42');
		poll_until(sub { texts_in_trail($node, '"command":"LOGOUT"') > $logouts });
	});
is_deeply(
	[ columns('class command exitCode statementId', @all) ],
	[ 'CONNECT|LOGIN|00000|', 'READ|SELECT|57P01|1', 'CONNECT|LOGOUT|57P01|' ],
	'in the middle of a statement: the statement comes first');

# Who is recorded

unaudited_sql($node, q{
	ALTER ROLE poor SET pg_audit_queue.log = 'none';
	ALTER DATABASE closed SET pg_audit_queue.log = 'none'});
connects_are(
	sub {
		login('poor');
		login(undef, 'closed');
		login('poor', 'nowhere');
	},
	['LOGIN|poor|nowhere|3D000|database "nowhere" does not exist'],
	'settings of role and database decide about logins, but not about failures');
unaudited_sql($node, q{
	ALTER ROLE poor RESET pg_audit_queue.log;
	ALTER DATABASE closed RESET pg_audit_queue.log});

connects_are(
	sub {
		login(undef, undef, sql => q{SET pg_audit_queue.log = 'none'});
		login(undef, undef,
			name    => 'switched on',
			options => '-c pg_audit_queue.log=none',
			sql     => q{SET pg_audit_queue.log = 'connect'});

		# its client is gone before it is
		poll_until(
			sub {
				unaudited_sql(
					$node, "SELECT count(*) FROM pg_stat_activity
							 WHERE application_name = 'switched on'") eq '0';
			});
		login(undef, undef, options => '-c pg_audit_queue.log=all,-connect');
		login('nobody');
	},
	[
		"LOGIN|$superuser|postgres|00000|",
		"LOGOUT|$superuser|postgres|00000|",
		'LOGIN|nobody|postgres|28000|role "nobody" does not exist'
	],
	'switched off and on within a session');
isnt($records[0]{sessionId}, $records[1]{sessionId}, 'login of one, logout of the other');

$node->append_conf('postgresql.conf', settings_text(log => 'none'));
$node->reload;
$client = PgProto->connect($node);

# until the session has the setting; it reads the file between two statements
sub wait_for_setting
{
	my ($log) = @_;
	my $sql = "SELECT 1 / (current_setting('pg_audit_queue.log') = '$log')::int";

	return poll_until(sub { $client->query($sql) !~ /22012/ });
}

ok(wait_for_setting('none'), 'a session that is not recorded');
connects_are(
	sub {
		$node->append_conf('postgresql.conf', settings_text(log => 'connect'));
		$node->reload;
		ok(wait_for_setting('connect'), 'a reload');
		$client->quit;
	},
	["LOGOUT|$superuser|postgres|00000|"],
	'switched on by a reload');

# Processes without a client, and parallel ones

connects_are(
	sub {
		login(undef, undef, sql => q{
			SELECT set_config(name, 'on', false) FROM pg_settings
			 WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
			SELECT count(*) FROM pg_class;});
	},
	[
		"LOGIN|$superuser|postgres|00000|",
		"LOGOUT|$superuser|postgres|00000|"
	],
	'a parallel query is no login');

# Walsenders, with a database and without

foreach my $replication ('true', 'database')
{
	my $database = $replication eq 'true' ? '' : 'postgres';

	connects_are(
		sub {
			login(undef, undef,
				sql     => 'IDENTIFY_SYSTEM',
				connstr => $node->connstr('postgres') . " replication=$replication");
		},
		[ map { "$_|$superuser|$database|walsender|00000" } qw(LOGIN LOGOUT) ],
		"replication=$replication",
		'command dbUserName databaseName backendType exitCode');
}

# Waiting for the trail

my $worker = worker_pid($node);

connects_are(
	sub {
		kill('STOP', $worker);
		my $session = start_psql($node, q{SELECT 'in'},
			name => 'waits', settings => { mode => 'immediate' });

		ok(wait_until_waiting($node, 'waits'), 'mode immediate: a login waits');
		is(login(undef, undef, name => 'does not'), 0, 'mode queued: it does not');
		ok(wait_until_waiting($node, 'waits'), 'the one still does');
		kill('CONT', $worker);
		is((finish_psql($session))[1], "in\n", 'until it is in the trail');
	},
	[
		map { "$_|$superuser|00000" } (qw(LOGIN LOGIN LOGOUT LOGOUT))
	],
	'these are recorded, too',
	'command dbUserName exitCode');

# Many at once

my $before = flush_trail($node);
my @sessions = map {
	(
		start_psql($node, 'SELECT 1', name => "good $_"),
		start_psql($node, 'SELECT 1', name => "bad $_", user => 'nobody'))
} 1 .. 15;
finish_psql($_) foreach @sessions;
poll_until(sub { connects_since($before) >= 45 });
my %count;
$count{"$_->{command} $_->{exitCode} $_->{clientApplication}"}++
  foreach connects_since($before);
is_deeply(
	\%count,
	{
		map {
			(
				"LOGIN 00000 good $_"  => 1,
				"LOGOUT 00000 good $_" => 1,
				"LOGIN 28000 bad $_"   => 1)
		} 1 .. 15
	},
	'many at once: each once');

# When log_min_messages hides why

unaudited_sql($node, q{ALTER SYSTEM SET log_min_messages = 'panic'});
$node->reload;
ok( poll_until(
		sub { unaudited_sql($node, 'SHOW log_min_messages') eq 'panic' }),
	'the server log has no FATAL errors');
# One after the other: a process that has failed may come to its end after the next
# login.
my $fields = 'command dbUserName databaseName exitCode errorMessage incomplete';
connects_are(
	sub { login('with password', undef, password => 'wrong') },
	['LOGIN|with password|postgres|08004||1'],
	'a failure is recorded as such, incomplete', $fields);
connects_are(
	sub { login('poor', 'nowhere') },
	['LOGIN|poor|nowhere|08004||1'],
	'another one, too', $fields);
connects_are(
	sub {
		$client = PgProto->connect($node);
		unaudited_sql($node, 'SELECT pg_terminate_backend(' . $client->pid . ')');
	},
	[ "LOGIN|$superuser|postgres|00000||", "LOGOUT|$superuser|postgres|57P01||1" ],
	'and a session that is terminated', $fields);
unaudited_sql($node, 'ALTER SYSTEM RESET log_min_messages');
$node->reload;

# Killed: nobody logs out, and afterwards all goes on

$before = flush_trail($node);
$client = PgProto->connect($node);
my $other = PgProto->connect($node);
kill('KILL', $client->pid);
ok( poll_until(
		sub { eval { unaudited_sql($node, 'SELECT 1'); 1 } && !kill(0, $other->pid) }),
	'a session is killed, the server restarts');
login(undef, undef, name => 'afterwards');
ok( poll_until(
		sub {
			# without those who were refused until the server was up again
			@records = grep { $_->{exitCode} ne '57P03' } connects_since($before);
			return @records >= 4;
		}),
	'somebody logs in');
is_deeply(
	[ columns('command exitCode pid', @records[ 0, 1 ]) ],
	[ map { 'LOGIN|00000|' . $_->pid } $client, $other ],
	'the killed ones have logged in and not out');
is_deeply(
	[ columns('command exitCode clientApplication', @records[ 2 .. $#records ]) ],
	[ 'LOGIN|00000|afterwards', 'LOGOUT|00000|afterwards' ],
	'the next one does both');

# A standby: as long as it lets nobody in, and when it does

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf',
	settings_text(log_directory => 'standby_audit') . "hot_standby = off\n");
$standby->start;

# Of the standby's trail, without asking the server for it
sub standby_records
{
	return grep { $_->{class} eq 'CONNECT' }
	  map { parse_record($_) // die "not a JSON record: \"$_\"" }
	  map { /([^\n]+)\n/g }
	  map { slurp_file($_) } sort glob($standby->data_dir . '/standby_audit/*.json');
}

$standby->psql('postgres', undef);
ok(poll_until(sub { standby_records() }), 'refused by a standby: it is recorded');
is_deeply(
	[ columns('command dbUserName databaseName remoteHost exitCode', standby_records()) ],
	["LOGIN|$superuser|postgres|[local]|57P03"],
	'with the reason');
$standby->append_conf('postgresql.conf', "hot_standby = on\n");
$standby->restart;
$standby->psql('postgres', q{SELECT 1 / 0});
ok(poll_until(sub { standby_records() >= 3 }), 'let in');
is_deeply(
	[ columns('command exitCode', standby_records()) ],
	[ 'LOGIN|57P03', 'LOGIN|00000', 'LOGOUT|00000' ],
	'and recorded');
$standby->stop;
ok( poll_until(
		sub {
			grep { $_->{command} eq 'LOGOUT' && $_->{clientApplication} eq 'standby' }
			  connects_since($before);
		}),
	'the primary has the logout of the standby');

# Each session once

$node->stop;
my %sessions;
foreach my $record (grep { $_->{class} eq 'CONNECT' }
	check_trail($node, 'the trail is whole'))
{
	$sessions{ $record->{sessionId} }{ $record->{command} }++;
}
is_deeply(
	[ grep { ($sessions{$_}{LOGIN} // 0) > 1 || ($sessions{$_}{LOGOUT} // 0) > 1 }
		  sort keys %sessions ],
	[],
	'no session has logged in or out twice');

# A server that is full, or shutting down: the process has no place in shared
# memory.  Format pgaudit.

my $small = audited_node(
	'small',
	settings => {
		log             => 'connect',
		format          => 'pgaudit',
		log_line_prefix => '%e %u@%d %b|%c|'
	},
	conf => qq{
		max_connections = 4
		superuser_reserved_connections = 2
		autovacuum = off
		log_min_messages = log});
unaudited_sql($small, 'CREATE ROLE plain LOGIN');

sub small_lines
{
	return map { s/\|.*?\|LOG:  AUDIT: /|/r } grep { !/,CONFIG,/ } trail_lines($small);
}

my @clients = map { PgProto->connect($small) } 1 .. 2;
isnt($small->psql('postgres', undef, extra_params => [ '-U', 'plain' ]),
	0, 'no slot for everybody');

# The process of the one that was refused may still have its slot.
my $too_early = 0;
poll_until(
	sub {
		my $client = PgProto->connect($small);

		defined $client->pid ? push @clients, $client : $too_early++;
		return @clients == 4;
	}) or die 'the slots stay taken';
isnt($small->psql('postgres', undef), 0, 'no slot at all');
my @pids = map { $_->pid } @clients;
$_->quit foreach splice @clients;
poll_until(sub { !grep { kill 0, $_ } @pids }) or die 'sessions stay';
ok( poll_until(
		sub { eval { flush_trail($small) } && small_lines() == 10 + $too_early }),
	'eight records of sessions, and two of failures');
my $session = "$superuser\@postgres client backend|SESSION,0,0,CONNECT";
is_deeply(
	[ sort grep { !/^53300/ } small_lines() ],
	[
		("00000 $session,LOGIN,,,,<none>") x 4,
		("00000 $session,LOGOUT,,,,<none>") x 4
	],
	'lines of logins and logouts');
my @refused = grep { /^53300/ } small_lines();
like(
	$refused[0],
	qr/^53300 plain\@postgres client backend\|SESSION,0,0,CONNECT,LOGIN,,,.*remaining connection slots are reserved.*,<none>$/,
	'the line of one who found only reserved slots');
is( $refused[1],
	"53300 $session,LOGIN,,,\"sorry, too many clients already\",<none>",
	'and of one who found none');

# What a client says before it has logged in must not look like a line.
ok( !defined PgProto->connect($small, user => "x\nforged AUDIT: SESSION,1,1,")
	  ->pid,
	'a user with a newline in the name cannot log in');
flush_trail($small);
my @forged = grep { /forged/ && !/^\t/ } trail_lines($small);
is(scalar @forged, 1, 'that is one line of the trail, but for those that go on');
like($forged[0], qr/^28000 x\?forged/, 'and begins like one');

my $stats = stats($small);
is($stats->{flushed}, $stats->{published}, 'both are counted');
is($stats->{dropped}, 0, 'nothing is lost');

$client = PgProto->connect($small);
my $position = -s $small->logfile;
my $stop     = IPC::Run::start(
	[
		$small->installed_command('pg_ctl'), '-D', $small->data_dir,
		'-m', 'smart', '-t', $PostgreSQL::Test::Utils::timeout_default,
		'-s', 'stop'
	]);
ok(wait_for_log($small, qr/received smart shutdown request/, $position),
	'shutting down, with a session that goes on');
isnt($small->psql('postgres', undef), 0, 'nobody else is let in');
$client->quit;
ok($stop->finish, 'the server stops');
my @last = trail_lines($small);
# from 18 on PostgreSQL may give a client that it is going to refuse to another
# kind of process
my $refused = $session;
$refused =~ s/(?=client backend)/dead-end /
  if $last[-3] =~ /dead-end/ && $small->pg_version->major >= 18;
is_deeply(
	[ map { s/\|.*?\|LOG:  AUDIT: /|/r } @last[ -4 .. -1 ] ],
	[
		"00000 $session,LOGIN,,,,<none>",
		"57P03 $refused,LOGIN,,,the database system is shutting down,<none>",
		"00000 $session,LOGOUT,,,,<none>",
		'00000 @ pg_audit_queue worker|SESSION,0,0,CONFIG,WORKER STOP,,,,",,"'
	],
	'all of it is recorded before the worker stops');

# the module does not know yet
$small->stop('fast', fail_ok => 1);

done_testing();
