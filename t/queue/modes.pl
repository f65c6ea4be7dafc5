# The modes: how long a session waits for the trail, and what each mode
# promises.  Every wait can be ended.
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

# Records are written only when somebody asks for it, and are really flushed:
# the tests' frame turns PostgreSQL's fsync off.
my $node = audited_node(
	'main',
	settings => { flush_interval => '1h' },
	conf     => "fsync = on\nautovacuum = off\n");

# Is there a record of a statement with this text in the trail's files, as
# they are now?
sub is_written
{
	my ($text) = @_;

	return texts_in_trail($node, $text) > 0;
}

# One session for what must be seen before a session ends

sub open_session
{
	my ($mode) = @_;
	my $session = $node->background_psql('postgres');

	$session->query_safe("SET pg_audit_queue.mode = '$mode'");
	return $session;
}

# queued

my $session = open_session('queued');
$session->query_safe(q{SELECT 'queued'});
ok(!is_written('queued'), 'queued: nothing is written for the session');
my $stats = stats($node);
cmp_ok($stats->{published}, '>', $stats->{flushed}, 'queued: it is published');
ok(poll_until(sub { defined stats($node)->{oldest_unflushed_age} }), 'and its age is known');
is($stats->{flush_waits}, 0, 'queued: nobody waits');
$session->quit;

# immediate

my $before;
$session = open_session('immediate');
foreach my $sql (
	q{SELECT 'immediate select'},
	q{CREATE TABLE immediate_table (a int)},
	q{INSERT INTO immediate_table VALUES (1)},
	q{BEGIN; SELECT 'in a transaction'})
{
	$before = stats($node);
	$session->query_safe($sql);
	ok(is_written($sql =~ s/^BEGIN; //r), "immediate: is written: $sql");
	$stats = stats($node);
	is($stats->{flushed}, $stats->{published}, 'and flushed');
	cmp_ok($stats->{fsyncs}, '>', $before->{fsyncs}, 'and forced to disk');
}
ok(is_written(q{SELECT 'queued'}), 'and with it what came before');
$session->query_safe('ROLLBACK');

# A session looks after the worker each second: if a flush did not wake it, each
# wait would take as long as that.
$before = stats($node);
$session->query_safe("SELECT $_") for 1 .. 20;
$stats = stats($node);
my $waits = $stats->{flush_waits} - $before->{flush_waits};
cmp_ok($waits, '>=', 20, 'each statement waits');
cmp_ok($stats->{wait_time} - $before->{wait_time},
	'<', $waits * 500, 'and is woken');
$session->quit;

# commit

$session = open_session('commit');
$session->query_safe('BEGIN');
$session->query_safe(q{INSERT INTO immediate_table VALUES (21)});
ok(!is_written('VALUES (21)'), 'commit: not before the transaction commits');
$before = stats($node);
$session->query_safe('COMMIT');
ok(is_written('VALUES (21)'), 'commit: written when it has committed');
ok(is_written('COMMIT'),      'and so is the COMMIT itself');
$stats = stats($node);
is($stats->{flushed}, $stats->{published}, 'and flushed');
cmp_ok($stats->{fsyncs}, '>', $before->{fsyncs}, 'and forced to disk');
is($stats->{flush_waits}, $before->{flush_waits} + 1, 'with one wait');

$session->query_safe(q{INSERT INTO immediate_table VALUES (22)});
ok(is_written('VALUES (22)'), 'commit: without BEGIN, at the statement');
$session->query_safe(q{SELECT 'read only'});
ok(is_written('read only'), 'commit: also if nothing is written');

$session->query_safe('BEGIN');
$session->query_safe(q{INSERT INTO immediate_table VALUES (23)});
$session->query_safe('ROLLBACK');
ok(!is_written('VALUES (23)'), 'commit: a rollback does not wait');
$session->quit;

# immediate_log

$session = open_session('queued');
$session->query_safe(q{SET pg_audit_queue.immediate_log = 'ddl, role'});
$session->query_safe(q{SELECT 'not in immediate_log'});
ok(!is_written('not in immediate_log'), 'immediate_log: other classes');
$session->query_safe('CREATE TABLE immediate_ddl (a int)');
ok(is_written('immediate_ddl'), 'immediate_log: ddl');
$session->query_safe('CREATE ROLE immediate_role');
ok(is_written('CREATE ROLE immediate_role'), 'immediate_log: role');
$session->query_safe(q{SELECT 'still not'});
ok(!is_written('still not'), 'immediate_log: and queued again');
$session->quit;

# By role and by database

unaudited_sql(
	$node, q{
	CREATE ROLE immediate_user LOGIN;
	ALTER ROLE immediate_user SET pg_audit_queue.mode = 'immediate';
	CREATE DATABASE committing;
	ALTER DATABASE committing SET pg_audit_queue.mode = 'commit';
	CREATE ROLE ddl_user LOGIN SUPERUSER;
	ALTER ROLE ddl_user SET pg_audit_queue.immediate_log = 'ddl'});
foreach my $case (
	[ 'postgres',   [],                                   0, 'neither' ],
	[ 'postgres',   [ extra_params => [ '-U', 'immediate_user' ] ], 1, 'role' ],
	[ 'committing', [],                                   1, 'database' ],
	[ 'postgres',   [ extra_params => [ '-U', 'ddl_user' ] ], 0, 'role with immediate_log' ])
{
	my ($database, $options, $waits, $name) = @$case;

	$node->safe_psql($database, "SELECT 'set for: $name'", @$options);
	is(is_written("'set for: $name'") ? 1 : 0, $waits, "mode by $name");
}
$node->safe_psql('postgres', 'CREATE TABLE by_role (a int)',
	extra_params => [ '-U', 'ddl_user' ]);
ok(is_written('by_role'), 'immediate_log by role');

# audit_flush()

$node->safe_psql('postgres', q{SELECT 'to be flushed'});
ok(!is_written('to be flushed'), 'before audit_flush()');
my $sequence = flush_trail($node);
is((trail_records($node))[-1]{sequence},
	$sequence, 'audit_flush() returns the last sequence');
ok(is_written('to be flushed'), 'after audit_flush()');
is(flush_trail($node), $sequence, 'and again, with nothing new');

# fsync, as the operating system sees it.  Counts calls for the trail while
# the sub runs.

sub count_fsyncs
{
	my ($sub) = @_;
	my $worker = worker_pid($node);
	my $output = PostgreSQL::Test::Utils::tempdir() . '/strace';
	my $stderr = '';
	my $strace = IPC::Run::start(
		[
			'strace', '-y', '-e', 'trace=fsync,fdatasync', '-o', $output,
			'-p',     $worker
		],
		'2>',
		\$stderr,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

	$strace->pump until $stderr =~ /attached|ptrace/ || !$strace->pumpable;
	if ($stderr !~ /attached/)
	{
		$strace->finish;
		return (undef, $stderr);
	}
	$sub->();
	$strace->signal('INT');
	$strace->finish;

	my $dir = trail_dir($node);
	return scalar grep { m{sync\(\d+<\Q$dir\E/} } split /\n/,
	  slurp_file($output);
}

SKIP:
{
	if (system('strace -V >/dev/null 2>&1') != 0)
	{
		diag('strace is missing: not tested whether fsync is really called');
		skip 'strace is missing', 5;
	}

	foreach my $mode (qw(immediate commit))
	{
		my $mode_session = open_session($mode);
		my ($count, $problem) = count_fsyncs(
			sub {
				$mode_session->query_safe("SELECT '$mode $_'") for 1 .. 5;
			});

		if (!defined $count)
		{
			diag("strace does not work here: $problem");
			skip 'strace does not work', 5;
		}
		is($count, 5, "$mode: one fsync for each statement of a session");
		$mode_session->quit;
	}

	my $queued = open_session('queued');
	my ($count) = count_fsyncs(
		sub { $queued->query_safe("SELECT 'queued $_'") for 1 .. 5; });
	is($count, 0, 'queued: no fsync');
	($count) = count_fsyncs(sub { flush_trail($node) });
	is($count, 1, 'audit_flush(): one');
	$queued->quit;

	$node->append_conf('postgresql.conf', 'pg_audit_queue.fsync = off');
	$node->reload;
	my $unsafe = open_session('immediate');
	$unsafe->query_safe('SELECT 1');
	ok( poll_until(
			sub {
				unaudited_sql($node, 'SHOW pg_audit_queue.fsync') eq 'off';
			}),
		'fsync is turned off');
	($count) = count_fsyncs(
		sub { $unsafe->query_safe("SELECT 'fsync off $_'") for 1 .. 5; });
	is($count, 0, 'fsync off: none');
	ok(is_written('fsync off 5'), 'but written');
	$unsafe->quit;
	$node->adjust_conf('postgresql.conf', 'pg_audit_queue.fsync', 'on');
	$node->reload;
}

# One flush for many: clients that come while the worker cannot work are all
# served by what it does next.

flush_trail($node);
my $worker = worker_pid($node);
kill('STOP', $worker);
my @clients = map {
	start_psql(
		$node, "INSERT INTO immediate_table VALUES (100 + $_)",
		name     => "client $_",
		settings => { mode => $_ % 2 ? 'commit' : 'immediate' })
} 1 .. 8;
foreach my $client (1 .. 8)
{
	ok(wait_until_waiting($node, "client $client"), "client $client waits");
}
$before = stats($node);
kill('CONT', $worker);
is((finish_psql($_))[0], 0, 'and goes on') foreach @clients;
$stats = stats($node);
cmp_ok($stats->{fsyncs} - $before->{fsyncs},
	'<=', 2, 'one flush or two for 8 clients');
is($stats->{flushed}, $stats->{published}, 'all is flushed');
cmp_ok($stats->{wait_time}, '>', $before->{wait_time}, 'waiting is counted');
cmp_ok(unaudited_sql($node, 'SELECT count(*) FROM immediate_table WHERE a > 100'),
	'==', 8, 'all have committed');

# Waiting can be ended

kill('STOP', $worker);
my %waiting = map {
	my ($name, $sql, %options) = @$_;

	$name => start_psql($node, $sql, name => $name, %options)
  } (
	[
		'cancelled', q{INSERT INTO immediate_table VALUES (201)},
		settings => { mode => 'immediate' }
	],
	[
		'cancelled commit', q{INSERT INTO immediate_table VALUES (202)},
		settings => { mode => 'commit' }
	],
	[
		'terminated', q{INSERT INTO immediate_table VALUES (203)},
		settings => { mode => 'immediate' }
	],
	[
		'timed out',
		qq{SET statement_timeout = '2s';\n}
		  . q{INSERT INTO immediate_table VALUES (204)},
		settings => { mode => 'immediate', log => 'write' }
	],
	[
		'patient', q{INSERT INTO immediate_table VALUES (205)},
		settings => { mode => 'immediate' }
	],
	[
		'flushing', q{SELECT audit_flush()},
		settings => { log => 'none' }
	]);
my %pid =
  map { $_ => wait_until_waiting($node, $_) }
  grep { $_ ne 'timed out' } sort keys %waiting;
ok($pid{$_}, "a session waits, to be: $_") foreach sort keys %pid;
foreach my $name ('cancelled', 'cancelled commit', 'flushing')
{
	unaudited_sql($node, "SELECT pg_cancel_backend($pid{$name})");
}
unaudited_sql($node, "SELECT pg_terminate_backend($pid{terminated})");
foreach my $case (
	[ 'cancelled',        '57014' ],
	[ 'cancelled commit', '57014' ],
	[ 'timed out',        '57014' ],
	[ 'flushing',         '57014' ],
	[ 'terminated',       '57P01' ])
{
	my ($name, $sqlstate) = @$case;

	# one that does not end must not keep the test from ending
	ok( poll_until(
			sub {
				unaudited_sql(
					$node, "SELECT count(*) = 0 FROM pg_stat_activity
							 WHERE application_name = '$name'") eq 't';
			}),
		"$name: it does not wait any longer")
	  or unaudited_sql(
		$node, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				 WHERE application_name = '$name'");
	my ($status, $stdout, $stderr) = finish_psql($waiting{$name});

	isnt($status, 0, "$name: the statement fails");
	like($stderr, qr/^(?:ERROR|FATAL):  $sqlstate:/m,
		'with its SQLSTATE');
}
ok(wait_until_waiting($node, 'patient'), 'another session still waits');
kill('CONT', $worker);
is((finish_psql($waiting{patient}))[0], 0, 'until it is served');
is( unaudited_sql(
		$node,
		'SELECT array_agg(a ORDER BY a) FROM immediate_table WHERE a > 200'),
	'{205}',
	'of those that were ended nothing is committed');
flush_trail($node);
# Published before the wait as if the commit had worked; then that it did not
foreach my $case (
	[ 201, 'WRITE|00000', 'ERROR|57014' ],
	[ 202, 'WRITE|00000', 'ERROR|57014' ],
	[ 203, 'WRITE|00000', 'ERROR|57P01' ],
	[ 204, 'WRITE|00000' ],
	[ 205, 'WRITE|00000' ])
{
	my ($number, @expected) = @$case;

	is_deeply(
		[
			columns(
				'class exitCode',
				grep { ($_->{commandText} // '') =~ /VALUES \($number\)/ }
				  trail_records($node))
		],
		\@expected,
		"records of VALUES ($number)");
}

# A change of a setting is recorded before it takes effect: under the mode
# that is left, whatever is audited.

$worker = worker_pid($node);
unaudited_sql($node,
	q{CREATE ROLE leaver SUPERUSER LOGIN;
	ALTER ROLE leaver SET pg_audit_queue.log = 'none';
	ALTER ROLE leaver SET pg_audit_queue.mode = 'immediate'});
kill('STOP', $worker);
my $leaver = start_psql(
	$node,
	q{SET pg_audit_queue.mode = 'queued'; SET pg_audit_queue.log_rows = on; SELECT 'left';},
	name => 'leaver',
	user => 'leaver');
ok(wait_until_waiting($node, 'leaver'),
	'leaving mode immediate waits for its record');
is(slurp_file($leaver->{stdout}), '', 'and for nothing else first');
kill('CONT', $worker);
is((finish_psql($leaver))[1], "left\n", 'then it takes effect');

# A login is no transaction of the client's: it does not wait in mode commit.

unaudited_sql($node,
	q{CREATE ROLE committer LOGIN;
	ALTER ROLE committer SET pg_audit_queue.log = 'connect';
	ALTER ROLE committer SET pg_audit_queue.mode = 'commit'});
kill('STOP', $worker);
my $committer = PgProto->connect($node, user => 'committer');
ok($committer->pid, 'a login in mode commit');
$committer->quit;
kill('CONT', $worker);
ok( poll_until(
		sub {
			flush_trail($node);
			join(' ',
				columns('command exitCode',
					grep { ($_->{dbUserName} // '') eq 'committer' }
					  trail_records($node))) eq 'LOGIN|00000 LOGOUT|00000';
		}),
	'is recorded');

# A wait in a pipeline that is given up: the statement before is recorded as it
# was, the one that was not executed for it has one record, too.

$worker = worker_pid($node);
my $pipeline = PgProto->connect($node);
$pipeline->query('SET pg_audit_queue.mode = immediate');
$pipeline->query(q{SET statement_timeout = '2s'});
kill('STOP', $worker);
$pipeline->parse('', "INSERT INTO immediate_table VALUES ($_)")->bind('', '')
  ->execute('')
  foreach 301, 302;
$pipeline->sync;
kill('CONT', $worker);
$pipeline->quit;
flush_trail($node);
is_deeply(
	[
		columns(
			'class exitCode commandText',
			grep { ($_->{commandText} // '') =~ /VALUES \(30[12]\)/ }
			  trail_records($node))
	],
	[
		'WRITE|00000|INSERT INTO immediate_table VALUES (301)',
		'ERROR|57014|INSERT INTO immediate_table VALUES (302)'
	],
	'a wait in a pipeline that times out');

# Shutdown while a session waits

kill('STOP', $worker);
$session = start_psql(
	$node, q{SELECT 'waits at shutdown'},
	name     => 'last one',
	settings => { mode => 'immediate' });
ok(wait_until_waiting($node, 'last one'), 'a session waits');
system_or_bail('pg_ctl', '-D', $node->data_dir, '-W', '-m', 'fast', 'stop');
my ($status, $stdout, $stderr) = finish_psql($session);
like($stderr, qr/FATAL:  57P01:/, 'shutdown ends it');
kill('CONT', $worker);
poll_until(sub { !-e $node->data_dir . '/postmaster.pid' }) or die 'the server does not end';
$node->_update_pid(0);
is(texts_in_trail($node, 'waits at shutdown'),
	2, 'its record is written before the server has ended, and that the wait failed');
check_trail($node, 'the trail is whole');

done_testing();
