# A full queue: overflow = drop, error and shutdown, the exact count of dropped
# records, and the warning before the queue is full.  overflow = wait is in
# queue/queue.pl.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use List::Util qw(sum0);
use Test::More;
use Time::HiRes qw(time usleep);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

# As small as it may be, written when somebody asks or it is filled to a half.
my $node = audited_node(
	'main',
	settings => { flush_interval => '1h', flush_threshold => 50, queue_size => '64kB' },
	conf     => "autovacuum = off\n");

# Change settings of the server.
sub set_server
{
	my (%settings) = @_;
	my ($name) = keys %settings;

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	return poll_until(
		sub {
			unaudited_sql($node, "SHOW pg_audit_queue.$name") eq
			  $settings{$name};
		});
}

sub worker_stop
{
	my $worker = worker_pid($node);

	kill('STOP', $worker) == 1 or die "could not stop process $worker: $!";
	return $worker;
}

# SQL of a number of statements with the label in their texts
sub statements
{
	my ($label, $number) = @_;

	return join '', map { "SELECT '$label $_';\n" } 1 .. $number;
}

# Which numbers of statements with that label are recorded, and with which
# outcome, in the order of the trail
sub outcomes
{
	my ($label, @records) = @_;

	return map {
		($_->{commandText} // '') =~ /^SELECT '\Q$label\E (\d+)'/
		  ? "$1 $_->{exitCode}"
		  : ()
	} @records;
}

sub gaps
{
	my (@records) = @_;

	return grep { $_->{type} eq 'gap' } @records;
}

# How many records GAP records account for
sub gap_total
{
	my (@records) = @_;

	return sum0(map { $_->{rowCount} // 0 } gaps(@records));
}

# Sequence of the last record that new_records() has returned
my $last_sequence = 0;

# The trail's lines behind that
sub new_lines
{
	return grep { /"sequence":(\d+)/ && $1 > $last_sequence } trail_lines($node);
}

# The records that have come into the trail since the last call.  Tests that
# they are whole, and their sequence contiguous; to decode everything each time
# takes too long.
sub new_records
{
	my ($name) = @_;

	flush_trail($node);
	my @records = map { parse_record($_) // { sequence => 'none', type => 'none' } }
	  new_lines();

	# report the caller's line
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_deeply(
		[ map { $_->{sequence} } @records ],
		[ $last_sequence + 1 .. $last_sequence + @records ],
		"$name: the trail is whole");
	$last_sequence += @records;
	return @records;
}

# Wait until the new records, and the numbers in GAP records among them, are so
# many for statements with that label.
sub wait_for_total
{
	my ($label, $number) = @_;
	my $total;

	poll_until(
		sub {
			flush_trail($node);
			$total = 0;
			foreach my $line (new_lines())
			{
				$total += 1 if $line =~ /"commandText":"SELECT '\Q$label\E \d/;
				$total += $1 if $line =~ /^\{"type":"gap".*"rowCount":(\d+)/;
			}
			return $total >= $number;
		});
	return $total;
}

sub dropped_columns
{
	my $stats = stats($node);

	return join ' ',
	  map { $stats->{$_} } qw(dropped dropped_full dropped_exit dropped_memory);
}

# SQLSTATE that psql shows, empty if there was no error
sub sqlstate
{
	my ($stderr) = @_;

	return $stderr =~ /(?:ERROR|FATAL):  ([0-9A-Z]{5}):/ ? $1 : '';
}

# psql's SQLSTATE, and how long it took
sub run_sql
{
	my ($sql, %options) = @_;
	my $begin = time;
	my ($status, $stdout, $stderr) =
	  finish_psql(start_psql($node, $sql, %options));

	return (sqlstate($stderr), time - $begin, $stdout, $stderr);
}

# drop: no session waits, and what is missing is where it would have been

ok(set_server(overflow => 'drop'), 'overflow = drop');
flush_trail($node);
my $waits  = stats($node)->{space_waits};
my $worker = worker_stop();
my $begin  = time;
$node->safe_psql('postgres', statements('one', 1000));
my ($state) = run_sql("SELECT 'one 1001' / 0;");
is($state, '22P02', 'a failing statement fails as ever');
my $end = time;
is(stats($node)->{space_waits}, $waits, 'drop: nobody waits');
my ($dropped) = split / /, dropped_columns();
cmp_ok($dropped, '>', 500, 'most are dropped');
is(dropped_columns(), "$dropped $dropped 0 0", 'and counted as such');
kill('CONT', $worker);
is(wait_for_total('one', 1001), 1001, 'GAP records make up for them');
$node->safe_psql('postgres', statements('two', 1));
my @records = new_records('drop');
my @gaps = gaps(@records);
is(@gaps, 1, 'one GAP record');
is($gaps[0]{rowCount}, $dropped, 'with the number of those dropped');
like(
	$gaps[0]{errorMessage},
	qr/^$dropped audit records were dropped between [-0-9]{10} .* and [-0-9]{10} .*, because the queue was full$/,
	'and a message');
my @times = split /\n/, unaudited_sql($node,
	"SELECT extract(epoch FROM t::timestamptz)
	   FROM unnest(ARRAY['$gaps[0]{startTime}', '$gaps[0]{endTime}']) t");
ok( $begin - 0.001 <= $times[0] && $times[0] <= $times[1]
	  && $times[1] <= $end + 0.001,
	'and the time')
  or diag("$begin @times $end");
is_deeply([ map { $gaps[0]{$_} } qw(class exitCode sessionId) ],
	[ 'GAP', undef, undef ], 'and nothing that it cannot know');
is_deeply(
	[
		map {
			   $_->{type} eq 'gap'                    ? 'gap'
			 : ($_->{commandText} // '') =~ /'one 1001/ ? 'failed'
			 : ($_->{commandText} // '') =~ /'(one|two)/ ? $1
			 :                                          ()
		} @records
	],
	[ ('one') x (1000 - $dropped), 'gap', 'failed', 'two' ],
	'it stands where the records would, that of a failure goes into the reserve');
is_deeply(
	[ (outcomes('one', @records))[ 0 .. 999 - $dropped ] ],
	[ map { "$_ 00000" } 1 .. 1000 - $dropped ],
	'the first ones are recorded');

# drop: many clients, while the worker works now and then

sub start_clients
{
	my ($label, $clients, $number) = @_;

	return map { start_psql($node, statements($label, $number)) } 1 .. $clients;
}

# Wait for them; how many of their statements have succeeded?
sub finish_clients
{
	return sum0(map { scalar split /\n/, (finish_psql($_))[1] } @_);
}

my $answers = 0;
$worker = worker_pid($node);
foreach my $round (1 .. 4)
{
	my $before = stats($node)->{dropped};

	kill('STOP', $worker);
	my @clients = start_clients('many', 5, 150);
	ok(poll_until(sub { stats($node)->{dropped} > $before }),
		"round $round: records are dropped");
	kill('CONT', $worker);
	$answers += finish_clients(@clients);
	flush_trail($node);
}
is($answers, 4 * 5 * 150, 'no client notices');
is(wait_for_total('many', $answers), $answers,
	'all are recorded or accounted for');
@records = new_records('many clients');
cmp_ok(scalar gaps(@records), '>=', 4, 'by several GAP records');
is(gap_total(@records), stats($node)->{dropped} - $dropped,
	'the statistics say the same');

# The count survives kill -9 of everything, before and while it is reported

my $sent = 0;
foreach my $round (1 .. (full_tests() ? 60 : 6))
{
	$worker = worker_stop();
	$sent += finish_clients(start_clients('crash', 3, 200));
	if ($round > 1)
	{
		kill('CONT', $worker);
		usleep(rand 20_000);
	}
	crash_node($node, $worker);
	start_again($node);
}
is($sent, 600 * (full_tests() ? 60 : 6), 'all statements work');
is(wait_for_total('crash', $sent), $sent,
	'after crashes as many are recorded or accounted for as were sent');
$node->safe_psql('postgres', statements('after the crashes', 1));
@records = new_records('crashes');
is(outcomes('crash', @records) + gap_total(@records),
	$sent, 'and no more than that');
is_deeply([ grep { !/^(?:\.|\.\.|queue|lock)$/ } slurp_dir(queue_dir($node)) ],
	[], 'no queue file is left');
is(dropped_columns(), '0 0 0 0', 'the statistics count since the start');

# A clean stop with an unreported number, and an empty queue

$worker = worker_stop();
$node->safe_psql('postgres', statements('stopped', 700));
$node->command_ok(
	[ 'pg_ctl', 'stop', '-D', $node->data_dir, '-m', 'fast', '-W' ],
	'a stop is asked for');
kill('CONT', $worker);
ok(poll_until(sub { !-e $node->data_dir . '/postmaster.pid' }), 'and done');
$node->_update_pid(0);
is(
	sum0(
		map {
			/"commandText":"SELECT 'stopped \d/                  ? 1
			  : /^\{"type":"gap".*"rowCount":(\d+)/ ? $1
			  :                                        0
		} new_lines()),
	700,
	'the worker reports before it ends');
$node->start;
new_records('a clean stop');

# error

ok(set_server(overflow => 'error'), 'overflow = error');
unaudited_sql(
	$node, q{CREATE SEQUENCE ran;
	CREATE TABLE watched (a int);
	INSERT INTO watched VALUES (1);
	CREATE ROLE watching;
	GRANT SELECT, TRUNCATE ON watched TO watching;});
my $blocked = $node->background_psql('postgres', on_error_stop => 0);
$blocked->query_safe("BEGIN");
$blocked->query_safe("SELECT 'blocked 1'");
flush_trail($node);
my $errors = PgProto->connect($node);
my ($watched, $truncating) = map {
	PgProto->connect($node, options => '-c pg_audit_queue.log=none -c pg_audit_queue.role=watching')
} 1 .. 2;
$worker = worker_stop();
my $accepted = 0;
my $answer   = '';
$begin = time;
while ($accepted < 2000)
{
	$begin = time;
	$answer = $errors->query("SELECT 'error " . ($accepted + 1) . "', nextval('ran')");
	last if $answer ne 'D C:SELECT_1';
	$accepted++;
}
is($answer, 'E:53400', 'a statement fails when the queue is full');
cmp_ok(time - $begin, '>=', 4.9, 'not at once');
cmp_ok($accepted,     '>',  20,  'before that they work');
is(unaudited_sql($node, 'SELECT last_value FROM ran'),
	$accepted, 'it is not executed');

# Each takes as long, so all at once
my $copied = $node->basedir . '/copied';
my ($selecting, $vacuuming) = map { start_psql($node, $_) } "SELECT 'other 1'", 'VACUUM pg_class';
$watched->start("COPY watched TO '$copied'");
$truncating->start('TRUNCATE watched');
$errors->start('BEGIN');
my $stderr = (finish_psql($selecting))[2];
is(sqlstate($stderr), '53400', 'other sessions meet the same');
like($stderr, qr/ERROR:  53400: audit queue is full\n.*DETAIL:  The audit worker does not make space\.\nHINT:  \S/s,
	'with a message, a reason and a hint');
is(sqlstate((finish_psql($vacuuming))[2]), '53400', 'what has no rollback does not run');
is($watched->finish, 'E:53400', 'COPY, only by a grant recorded');
ok(!-e $copied, 'nor does that, if it has none');
is($truncating->finish, 'E:53400', 'TRUNCATE');
$_->quit foreach $watched, $truncating;

is($errors->finish, 'E:53400', 'no transaction begins');
$waits = stats($node)->{space_waits};
$blocked->query_until(qr/rolled back\n/, "ROLLBACK;\n\\echo rolled back\n");
is(stats($node)->{space_waits}, $waits, 'ROLLBACK does not wait');
is( unaudited_sql(
		$node, "SELECT count(*) FROM pg_stat_activity
				 WHERE state LIKE 'idle in transaction%'"),
	'0',
	'the transaction is over');

kill('CONT', $worker);
ok( poll_until(sub { $errors->query("SELECT 'recovered 1'") eq 'D C:SELECT_1' }),
	'the same session works again when there is space');
$blocked->query_safe("SELECT 'blocked 2'");
@records = new_records('error');
is_deeply(
	[ outcomes('error', @records) ],
	[ (map { "$_ 00000" } 1 .. $accepted), $accepted + 1 . ' 53400' ],
	'what worked is recorded as that, what failed as failed');
is_deeply([ outcomes('other', @records) ], ['1 53400'], 'in all sessions');
is_deeply(
	[ map { $_->{exitCode} } grep { ($_->{commandText} // '') =~ /^VACUUM/ } @records ],
	['53400'], 'VACUUM as well');
is_deeply(
	[ map { $_->{exitCode} } grep { ($_->{commandText} // '') =~ /^ROLLBACK;?$/ } @records ],
	['00000'], 'and ROLLBACK');
is_deeply([ outcomes('blocked', @records) ], [ '1 00000', '2 00000' ], 'and the others');
is(gaps(@records), 0, 'nothing is dropped');

# In a transaction that has failed, and with no space even in the reserve

$errors->query('BEGIN');
$errors->query("SELECT 'block 1'");
flush_trail($node);
$worker = worker_stop();
$accepted = 0;
while ($accepted < 2000)
{
	$answer = $errors->query("SELECT 'block " . ($accepted + 2) . "'");
	last if $answer ne 'D C:SELECT_1';
	$accepted++;
}
is($answer, 'E:53400', 'a statement in a transaction fails');
is($errors->query("SELECT 'refused'"), 'E:25P02', 'which is then aborted');
my $failing = PgProto->connect($node);
my $count = 0;
while ($count < 3000)
{
	my $used = stats($node)->{queue_used};

	$failing->query("SELEC 'reserve'") foreach 1 .. 50;
	$count += 50;
	last if stats($node)->{queue_used} == $used;
}
is($errors->query('ROLLBACK'), 'C:ROLLBACK', 'ROLLBACK works');
is((run_sql("SELECT 'login'"))[0], '53400', 'one can log in, but not do anything');
is(unaudited_sql($node, 'SELECT 1'), '1', 'unless it is not recorded');
kill('CONT', $worker);
ok( poll_until(sub { $errors->query("SELECT 'recovered 2'") eq 'D C:SELECT_1' }),
	'it goes on when there is space');
$failing->quit;
ok( poll_until(
		sub {
			flush_trail($node);
			texts_in_trail($node, q{"commandText":"SELEC 'reserve'"}) == $count;
		}),
	'all failures are recorded');

# error: a sink that fails

my $position = -s $node->logfile;
append_to_file($node->data_dir . '/not_a_directory', '');
ok(set_server(log_directory => 'not_a_directory'), 'a directory that is none');
my $asking = start_psql($node, "SELECT 'asking 1'", settings => { mode => 'immediate' });
ok(wait_for_log($node, qr/audit trail cannot be written/, $position), 'which is noticed');
my $told = 0;
my $waited = stats($node)->{wait_time};
while ($told < 3000)
{
	last if $errors->query("SELECT 'failing " . ($told + 1) . "'") ne 'D C:SELECT_1';
	$told++;
}
cmp_ok(stats($node)->{wait_time} - $waited,
	'<', 900, 'a sink that is known to fail is not waited for');
(undef, undef, undef, $stderr) = run_sql("SELECT 'failing too'");
like($stderr, qr/DETAIL:  The audit trail cannot be written\./, 'the reason is said');
ok(set_server(log_directory => 'audit'), 'mended');
ok( poll_until(sub { $errors->query("SELECT 'recovered 3'") eq 'D C:SELECT_1' }),
	'sessions go on');
is((finish_psql($asking))[0], 0, 'one that has waited, too');
@records = new_records('error, failing sink');
is_deeply(
	[ outcomes('failing', @records) ],
	[ (map { "$_ 00000" } 1 .. $told), $told + 1 . ' 53400' ],
	'all is recorded');
$errors->quit;
$blocked->quit;

# The warning

ok(set_server(overflow => 'wait'), 'overflow = wait');
new_records('before the warning');
foreach my $round (1 .. 3)
{
	flush_trail($node);
	defined worker_at_rest($node) or die 'the worker does not come to rest';
	$position = -s $node->logfile;
	$worker = worker_stop();
	my $waiter = start_psql($node, statements("warned $round", 1000), name => 'warned');
	ok(wait_until_waiting($node, 'warned'), "round $round: the queue is full");
	my @messages = slurp_file($node->logfile, $position) =~ /^.*audit queue is .* full.*$/mg;
	is(@messages, 1, 'the log has one warning');
	like($messages[0], qr/LOG:  audit queue is 7\d% full/, 'at 75 percent');
	like(slurp_file($node->logfile, $position),
		qr/DETAIL:  Sessions wait for space when it is full\./,
		'which says what will happen');
	my ($pid) = wait_until_waiting($node, 'warned');
	unaudited_sql($node, "SELECT pg_terminate_backend($pid)");
	my $stderr = (finish_psql($waiter))[2];
	unlike($stderr, qr/full/, 'the client does not see it');
	kill('CONT', $worker);
}

# wait: denials that a statement handles do not wait for space.  Beyond what their session
# has memory for, a GAP record has their number.

my $denials = 3000;
unaudited_sql($node, 'CREATE ROLE nobody LOGIN; CREATE SCHEMA hidden; CREATE TABLE hidden.t ()');
new_records('before denials');
$dropped = stats($node)->{dropped};
$worker  = worker_stop();
my $denied = start_psql(
	$node, qq{
	DO \$\$
	BEGIN
		FOR i IN 1 .. $denials LOOP
			BEGIN
				PERFORM * FROM hidden.t;
			EXCEPTION WHEN insufficient_privilege THEN
			END;
		END LOOP;
	END \$\$ /* ${\('x' x 1000)} */},
	name => 'denied', user => 'nobody');
ok(wait_until_waiting($node, 'denied'), 'denials: their statement ends, and waits');
kill('CONT', $worker);
is((finish_psql($denied))[2], '', 'it succeeds');
@records = new_records('denials');
my $recorded = grep { ($_->{exitCode} // '') eq '42501' && $_->{class} eq 'ERROR' } @records;
cmp_ok($recorded, '>', 500, 'many are recorded');
cmp_ok(gap_total(@records), '>', 0, 'many are not');
is($recorded + gap_total(@records), $denials, 'each is recorded or counted in a GAP record');
is(stats($node)->{dropped} - $dropped, gap_total(@records), 'the statistics say the same');

# shutdown

foreach my $case ('worker', 'sink')
{
	my $label = "shutdown $case";

	ok(set_server(overflow => 'shutdown'), "$label: overflow = shutdown");
	new_records("before $label");
	$position = -s $node->logfile;
	if ($case eq 'worker')
	{
		$worker = worker_stop();
	}
	else
	{
		ok(set_server(log_directory => 'not_a_directory'), 'a directory that is none');
	}
	my $load = start_load($node, $label, clients => 4, pause => 0);
	ok( wait_for_log($node, qr/received fast shutdown request/, $position),
		"$label: the server shuts down");
	kill('CONT', $worker);
	cmp_ok(finish_load($load), '<', $load->{number}, "$label: clients are cut off");
	ok(poll_until(sub { !-e $node->data_dir . '/postmaster.pid' }), "$label: it ends");
	$node->_update_pid(0);
	my @messages = slurp_file($node->logfile, $position) =~
	  /LOG:  audit queue is full, shutting down the server$/mg;
	is(@messages, 1, "$label: the log says why, once");
	$node->append_conf('postgresql.conf',
		settings_text(log_directory => 'audit', overflow => 'wait'));
	$node->start;
	@records = new_records($label);
	check_load($load, \@records, "$label: what was acknowledged is there, once");
}
$node->stop;

done_testing();
