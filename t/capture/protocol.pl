#-------------------------------------------------------------------------
#
# capture/protocol.pl
#	Work that clients have done without a statement: fast-path calls of
#	functions, functions that are called to plan a statement which is not
#	executed, and replication commands.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node(
	'main',
	init     => [ allows_streaming => 'logical' ],
	settings => { flush_interval => '1h', flush_threshold => 50, queue_size => '64kB' },
	conf     => "autovacuum = off\n");

unaudited_sql($node, q{
	CREATE ROLE app LOGIN;
	CREATE TABLE secrets (name text);
	INSERT INTO secrets SELECT 'n' || i FROM generate_series(1, 100) i;
	CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	CREATE SEQUENCE calls;
	CREATE FUNCTION drain(who text, n int) RETURNS int
		LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM nextval('calls');
			PERFORM name FROM secrets;
			DELETE FROM secrets WHERE name = who;
			RETURN n / n;
		END $$;
	CREATE FUNCTION swallow() RETURNS void
		LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM 1 / 0;
		EXCEPTION WHEN division_by_zero THEN
			DELETE FROM secrets WHERE name = 'n99';
		END $$;
	CREATE FUNCTION orphan() RETURNS void LANGUAGE sql
		AS $$ INSERT INTO child VALUES (7) $$;
	CREATE FUNCTION kept_back() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;
	GRANT ALL ON secrets, child TO app;
	GRANT ALL ON SEQUENCE calls TO app;
	REVOKE EXECUTE ON FUNCTION kept_back() FROM PUBLIC;
	CREATE FUNCTION folded(who text) RETURNS int
		LANGUAGE plpgsql IMMUTABLE SECURITY DEFINER AS $$
		BEGIN
			RETURN drain(who, 1);
		END $$;
	CREATE FUNCTION slow() RETURNS void LANGUAGE plpgsql
		AS $$ BEGIN PERFORM 1; PERFORM pg_sleep(600); END $$;
});

my %oid = split /[|\n]/, unaudited_sql($node, q{
	SELECT proname, oid FROM pg_proc
	WHERE pronamespace = 'public'::regnamespace OR proname IN ('int4abs', 'set_config')});

my @client_fields = qw(statementId substatementId class command objectName
  commandText exitCode);

# What a sub has put into the trail, as strings, with ids from 1 on
sub records_of
{
	my ($what, $fields) = @_;
	my @records = records_for($node, $what);
	my %number;

	foreach my $record (@records)
	{
		my $id = $record->{statementId} // next;

		$number{$id} = 1 + keys %number if !exists $number{$id};
		$record->{statementId} = $number{$id};
	}
	return [ columns($fields // "@client_fields", @records) ];
}

sub connect_app
{
	return PgProto->connect($node, user => 'app');
}

my $client = connect_app();
my $text   = 'fastpath function call: public.drain';
my $drain  = 'drain(pg_catalog.text,integer)';

note 'Fast-path calls';

my @nested = (
	"1|2|READ|SELECT||SELECT nextval('calls')|00000",
	'1|3|READ|SELECT||SELECT name FROM secrets|00000',
	'1|4|WRITE|DELETE||DELETE FROM secrets WHERE name = who|00000');

is_deeply(
	[
		sort @{
			records_of(sub { is($client->call($oid{drain}, 'n1', 1), 'V', 'called') })
		}
	],
	[
		sort '1|1|FUNCTION|EXECUTE|public.drain|fastpath function call: public.'
		  . 'drain(pg_catalog.text,integer)|00000',
		@nested
	],
	'a call has a record, and what it executes belongs to it');

is_deeply(
	records_of(
		sub {
			$client->query('BEGIN');
			$client->call($oid{drain}, 'n2', 1);
			$client->call($oid{int4abs}, '-1');
			$client->query('SELECT 2');
			$client->call($oid{swallow});
			$client->query('ROLLBACK');
		},
		'statementId substatementId command objectName exitCode'),
	[
		'1|1|BEGIN||00000',
		'2|2|SELECT||00000',
		'2|3|SELECT||00000',
		'2|4|DELETE||00000',
		'2|1|EXECUTE|public.drain|00000',
		'3|1|EXECUTE|pg_catalog.int4abs|00000',
		'4|1|SELECT||00000',
		'5|2|DELETE||00000',
		'5|1|EXECUTE|public.swallow|00000',
		'6|1|ROLLBACK||00000'
	],
	'several calls in a transaction that is rolled back');

is_deeply(
	records_of(
		sub {
			is($client->call($oid{drain}, 'n3', 0),
				'E:22012', 'the function fails');
		},
		'command objectName exitCode errorMessage'),
	[
		'SELECT||00000|',
		'SELECT||00000|',
		'DELETE||00000|',
		'EXECUTE|public.drain|22012|division by zero'
	],
	'a call that fails');

is_deeply(
	records_of(
		sub {
			$client->call($oid{drain}, 'n3', 'x');
			$client->call($oid{drain}, 'n3');
			$client->call($oid{kept_back});
			$client->call(4);
			$client->query('BEGIN; SELECT 1/0');
			$client->call($oid{drain}, 'n3', 1);
			$client->query('ROLLBACK');
		},
		'class command objectName exitCode errorMessage'),
	[
		'FUNCTION|EXECUTE|public.drain|22P02|'
		  . 'invalid input syntax for type integer: "x"',
		'FUNCTION|EXECUTE|public.drain|08P01|function call message contains '
		  . '1 arguments but function requires 2',
		'FUNCTION|EXECUTE||42501|permission denied for function kept_back',
		'FUNCTION|EXECUTE||42883|function with OID 4 does not exist',
		'MISC|BEGIN||00000|',
		'ERROR|||22012|division by zero',
		'FUNCTION|EXECUTE||25P02|current transaction is aborted, '
		  . 'commands ignored until end of transaction block'
	],
	'calls that are refused');

is_deeply(
	records_of(
		sub {
			is($client->call($oid{orphan}), 'V E:23503', 'the commit fails');
		},
		'class command objectName exitCode'),
	[ 'WRITE|INSERT||00000', 'FUNCTION|EXECUTE|public.orphan|23503' ],
	'a call whose commit fails');

is_deeply(
	records_of(
		sub {
			$client->start_call($oid{slow});
			ok( poll_until(
					sub {
						unaudited_sql($node,
							'SELECT wait_event FROM pg_stat_activity WHERE pid = '
							  . $client->pid) eq 'PgSleep';
					}),
				'it runs');
			unaudited_sql($node, 'SELECT pg_cancel_backend(' . $client->pid . ')');
			is($client->finish, 'E:57014', 'it is cancelled');
		},
		'command objectName exitCode'),
	[ 'SELECT||00000', 'SELECT||57014', 'EXECUTE|public.slow|57014' ],
	'a call that is cancelled');

is_deeply(
	[
		grep { !/^CONNECT/ } @{
			records_of(
				sub {
					my $victim = connect_app();

					$victim->start_call($oid{slow});
					poll_until(
						sub {
							unaudited_sql($node,
								'SELECT wait_event FROM pg_stat_activity WHERE pid = '
								  . $victim->pid) eq 'PgSleep';
						});
					unaudited_sql($node,
						'SELECT pg_terminate_backend(' . $victim->pid . ')');
					is($victim->finish, 'E:57P01', 'its session is terminated');

					# it publishes the records when it ends
					poll_until(sub { !kill(0, $victim->pid) }) or die 'it does not end';
				},
				'class command exitCode')
		}
	],
	[ 'READ|SELECT|00000', 'READ|SELECT|57P01', 'FUNCTION|EXECUTE|57P01' ],
	'a call whose session is terminated');

# set_config() can do what SET ROLE does.  Without class FUNCTION its call has a record of that.
is_deeply(
	records_of(
		sub {
			my $setter =
			  PgProto->connect($node, options => '-c pg_audit_queue.log=set_role');

			$setter->call($oid{set_config}, 'role', 'app', 'f');
			$setter->quit;
		},
		'class command commandText'),
	[
		'MISC|SET|fastpath function call: '
		  . 'pg_catalog.set_config(pg_catalog.text,pg_catalog.text,boolean)'
	],
	'a call of set_config()');

# Without class FUNCTION the call has no record, but the id of what it executes
unaudited_sql($node, "ALTER ROLE app SET pg_audit_queue.log = 'read, write'");
is_deeply(
	records_of(
		sub {
			my $other = connect_app();

			$other->call($oid{drain}, 'n4', 1);
			$other->call($oid{int4abs}, '-1');
			$other->call($oid{kept_back});
			$other->query('SELECT 1');
			$other->quit;
		},
		'statementId substatementId command'),
	[ '1|1|SELECT', '1|2|SELECT', '1|3|DELETE', '2|1|SELECT' ],
	'only what is executed is to be recorded');
unaudited_sql($node, 'ALTER ROLE app RESET ALL');

unaudited_sql($node, 'ALTER ROLE app SET track_activities = off');
is_deeply(
	records_of(
		sub {
			my $other = connect_app();

			$other->call($oid{drain}, 'n5', 1);
			$other->query('BEGIN');
			$other->call($oid{drain}, 'n6', 0);
			$other->query('ROLLBACK');
			$other->quit;
		},
		'statementId substatementId command exitCode'),
	[
		'1|2|SELECT|00000',
		'1|3|SELECT|00000',
		'1|4|DELETE|00000',
		'1|1|EXECUTE|00000',
		'2|1|BEGIN|00000',
		'3|2|SELECT|00000',
		'3|3|SELECT|00000',
		'3|4|DELETE|00000',
		'3|1|EXECUTE|22012'
	],
	'with track_activities off');
unaudited_sql($node, 'ALTER ROLE app RESET ALL');

note 'Functions called before execution';

# A constant is made of the call when the statement is planned, for which Bind is
# enough.  What the function does to tables is not for session auditing, as it has
# its owner's rights.
is_deeply(
	records_of(
		sub {
			is( $client->parse('', "SELECT folded('n9')")->bind('', '')->sync,
				'1 2', 'a statement is bound');
			is( unaudited_sql($node, "SELECT name FROM secrets WHERE name = 'n9'"),
				'', 'which changes data');
		},
		'statementId class command objectName commandText'),
	[
		"|FUNCTION|EXECUTE|public.folded|SELECT folded('n9')",
		"|FUNCTION|EXECUTE|public.drain|SELECT folded('n9')",
		"1|READ|SELECT||SELECT nextval('calls')",
		"2|READ|SELECT||SELECT folded('n9')"
	],
	'the calls are recorded');
is_deeply(
	records_of(sub { $client->query("SELECT folded('n10')") },
		'statementId class objectName exitCode'),
	[
		'|FUNCTION|public.folded|',
		'|FUNCTION|public.drain|',
		'1|READ||00000',
		'2|READ||00000'
	],
	'likewise with the statement being executed');

note 'Large objects of psql';

append_to_file($node->basedir . '/object', 'x' x 10);
is_deeply(
	[
		grep { /FUNCTION/ } @{
			records_of(
				'\lo_import ' . $node->basedir . "/object\n"
				  . '\lo_export :LASTOID ' . $node->basedir . "/copy\n"
				  . '\lo_unlink :LASTOID',
				'class objectName exitCode')
		}
	],
	[
		map { "FUNCTION|pg_catalog.$_|00000" }
		  qw(lo_creat lo_open lowrite lo_close lo_open loread loread lo_close
		  lo_unlink)
	],
	'import, export and removal of a large object');

note 'Waiting';

foreach my $mode ('commit', 'immediate')
{
	foreach my $block (0, 1)
	{
		next if $block && $mode eq 'commit';

		my $waiter = PgProto->connect($node);
		my $where  = $block ? 'in a transaction block' : 'outside of one';

		$waiter->query("SET application_name = 'waiter'");
		$waiter->query("SET pg_audit_queue.mode = '$mode'");
		$waiter->query('BEGIN') if $block;
		my $worker = worker_pid($node);
		kill('STOP', $worker) == 1 or die "kill: $!";
		$waiter->start_call($oid{drain}, "n7$block", 1);
		ok(wait_until_waiting($node, 'waiter'), "$mode: a call waits $where");
		kill('CONT', $worker);
		is($waiter->finish, 'V', "$mode: it goes on");
		$waiter->query('COMMIT') if $block;
		$waiter->quit;
	}
}

note 'Replication commands';

my $replication = PgProto->connect($node, replication => 'true');

is_deeply(
	records_of(
		sub {
			$replication->query('IDENTIFY_SYSTEM');
			$replication->query('SHOW port');
			$replication->query('CREATE_REPLICATION_SLOT s1 PHYSICAL');
			$replication->query(' CREATE_REPLICATION_SLOT s1 PHYSICAL');
			$replication->query('READ_REPLICATION_SLOT s1');
			$replication->query('DROP_REPLICATION_SLOT s1');
			$replication->query('TIMELINE_HISTORY 7');
			$replication->query('SHOW no_such_setting');
		},
		'class command commandText exitCode errorMessage'),
	[
		'MISC|IDENTIFY_SYSTEM|IDENTIFY_SYSTEM|00000|',
		'MISC|SHOW|SHOW port|00000|',
		'MISC|CREATE_REPLICATION_SLOT|CREATE_REPLICATION_SLOT s1 PHYSICAL|00000|',
		'MISC|CREATE_REPLICATION_SLOT| CREATE_REPLICATION_SLOT s1 PHYSICAL|42710|'
		  . 'replication slot "s1" already exists',
		'MISC|READ_REPLICATION_SLOT|READ_REPLICATION_SLOT s1|00000|',
		'MISC|DROP_REPLICATION_SLOT|DROP_REPLICATION_SLOT s1|00000|',
		'MISC|TIMELINE_HISTORY|TIMELINE_HISTORY 7|58P01|'
		  . 'could not open file "pg_wal/00000007.history": No such file or directory',
		'MISC|SHOW|SHOW no_such_setting|42704|'
		  . 'unrecognized configuration parameter "no_such_setting"'
	],
	'replication commands, and their outcome');

is_deeply(
	records_of(
		sub {
			my $logical = PgProto->connect($node, replication => 'database');

			$logical->query('CREATE_REPLICATION_SLOT s2 LOGICAL pgoutput');
			$logical->query('SELECT 1; SHOW port');
			$logical->query('show port');
			$logical->query('DROP_REPLICATION_SLOT s2');
			$logical->quit;
		},
		'class command exitCode'),
	[
		'MISC|CREATE_REPLICATION_SLOT|00000',
		'READ|SELECT|00000',
		'MISC|SHOW|00000',
		'MISC|SHOW|00000',
		'MISC|DROP_REPLICATION_SLOT|00000'
	],
	'among statements');

my @backup = sort grep { /BASE_BACKUP|START_REPL/ }
  @{ records_of(sub { $node->backup('backup') }, 'class command exitCode') };
is_deeply(
	\@backup,
	[ 'MISC|BASE_BACKUP|00000', 'MISC|START_REPLICATION|00000' ],
	'pg_basebackup');

my @broken_off = records_for($node,
	sub {
		my $thief = PgProto->connect($node, replication => 'true');
		my $pid   = $thief->pid;

		$thief->start("BASE_BACKUP (CHECKPOINT 'fast')");
		$thief->until('d');
		$thief->hang_up;
		poll_until(
			sub {
				unaudited_sql($node,
					"SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0';
			});
	});
is(scalar @broken_off, 1, 'a backup that is broken off has one record');
is($broken_off[0]{command}, 'BASE_BACKUP', 'it names the command');
isnt($broken_off[0]{exitCode}, '00000', 'and says that it failed');

{
	my $worker = worker_pid($node);
	my $waiter;

	unaudited_sql($node, "ALTER SYSTEM SET pg_audit_queue.mode = 'immediate'");
	$node->reload;
	poll_until(
		sub { unaudited_sql($node, 'SHOW pg_audit_queue.mode') eq 'immediate' });
	$waiter = PgProto->connect($node, replication => 'true');
	kill('STOP', $worker) == 1 or die "kill: $!";
	$waiter->start('CREATE_REPLICATION_SLOT s3 PHYSICAL');
	ok( poll_until(
			sub {
				unaudited_sql($node,
					'SELECT wait_event_type FROM pg_stat_activity WHERE pid = '
					  . $waiter->pid) eq 'Extension';
			}),
		'a command waits for its record');
	kill('CONT', $worker);
	like($waiter->finish, qr/C:CREATE_REPLICATION_SLOT$/, 'it goes on');
	$waiter->query('DROP_REPLICATION_SLOT s3');
	$waiter->quit;
	unaudited_sql($node, 'ALTER SYSTEM RESET pg_audit_queue.mode');
	$node->reload;
}

note 'A full queue';

unaudited_sql($node, "ALTER SYSTEM SET pg_audit_queue.overflow = 'error'");
$node->reload;
poll_until(
	sub { unaudited_sql($node, 'SHOW pg_audit_queue.overflow') eq 'error' });

my $before = unaudited_sql($node, 'SELECT last_value FROM calls');
my $worker = worker_pid($node);
kill('STOP', $worker) == 1 or die "kill: $!";
my $filler = start_psql($node, join("\n", map { "SELECT 'fill $_';" } 1 .. 2000),
	stop => 1);
my ($status, undef, $stderr) = finish_psql($filler);
like($stderr, qr/ERROR:  53400/, 'the queue is full');
like($client->call($oid{drain}, 'n8', 1), qr/^E:53/, 'a call is refused');
like($replication->query('CREATE_REPLICATION_SLOT s4 PHYSICAL'),
	qr/E:53/, 'and so is a command');
kill('CONT', $worker);
is(unaudited_sql($node, 'SELECT last_value FROM calls'),
	$before, 'the function has not been called');
flush_trail($node);
my @refused = columns(
	'command exitCode',
	grep { $_->{exitCode} =~ /^53/ && $_->{command} =~ /EXECUTE|SLOT/ }
	  grep { defined $_->{command} } trail_records($node));
is_deeply(
	[ map { s/53.../53/r } @refused ],
	[ 'EXECUTE|53', 'CREATE_REPLICATION_SLOT|53' ],
	'what was refused is recorded');

$client->quit;
$replication->quit;
$node->stop;

done_testing();
