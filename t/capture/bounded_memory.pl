#
# The memory that a session uses for its records is bounded, whatever the
# session executes, and whether the queue takes records or not.
#
# The worker is stopped, or the trail cannot be written, and the queue is full.
# The session then works in several ways, each of which leaves records that
# cannot be published when they are finished.  The test counts the outcomes of
# the statements, so that a session that does not grow because it does nothing
# is noticed.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use List::Util qw(max sum0);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'needs /proc' unless -e "/proc/$$/status";

# How much a session may grow, kB, and how often it does what it does, with a text
# of so many bytes: a session that keeps them all grows by half as much again.  With
# AddressSanitizer, what is freed is kept for some time.
use constant LIMIT  => sanitizers() eq '' ? 20_000 : 1_000_000;
use constant TIMES  => 1_500;
use constant LENGTH => 20_000;

my $node = audited_node(
	'main',
	settings => {
		log        => 'all, -connect',
		log_level  => 'debug5',
		queue_size => '1MB'
	},
	conf => "shared_buffers = 16MB\n");
unaudited_sql(
	$node, q{
	CREATE TABLE t (a int PRIMARY KEY);
	INSERT INTO t VALUES (1);
	CREATE TABLE fails_late (a int);
	CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN $1; END';
	CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM 1 / 0; RETURN NEW; END';
	CREATE TRIGGER refuse BEFORE INSERT ON fails_late FOR EACH ROW
		EXECUTE FUNCTION refuse();
	CREATE PROCEDURE calling(n int, comment text) LANGUAGE plpgsql AS $$
	DECLARE x int;
	BEGIN
		FOR i IN 1 .. n LOOP
			x := f(i);
			COMMIT;
		END LOOP;
		PERFORM pg_sleep(600);
	END $$});

# PL/pgSQL that does something again and again, counts the outcomes, says how many
# there were, and sleeps then.  Apart from what it does nothing is recorded.
sub looped
{
	my ($what, $times, $after) = @_;

	return "DECLARE done int := 0; failed int := 0; refused int := 0; told text;
	BEGIN
		FOR i IN 1 .. $times LOOP
			BEGIN
				$what
				done := done + 1;
			EXCEPTION
				WHEN configuration_limit_exceeded THEN refused := refused + 1;
				WHEN OTHERS THEN failed := failed + 1;
			END;
			$after
		END LOOP;
		told := set_config('application_name',
			format('done %s, failed %s, refused %s', done, failed, refused), false);
		IF pg_sleep(600) IS NULL THEN END IF;
	END";
}

sub do_block
{
	my ($what, $times) = @_;

	return 'DO $do$ ' . looped($what, $times // TIMES, '') . ' $do$';
}

# What a session does, and before it the outcome of each time if nothing keeps it
# from it.  The PL/pgSQL ends asleep.
my $comment = '/* ' . ('x' x LENGTH) . ' */';
my %ways    = (
	'nested, failing' => [ failed => do_block("EXECUTE 'SELECT 1 / (a - 1) FROM t $comment';") ],
	'nested, succeeding' => [ done => do_block("EXECUTE 'SELECT 1 FROM t $comment';") ],
	'nested, failing in a trigger' =>
	  [ failed => do_block("EXECUTE 'INSERT INTO fails_late VALUES (1) $comment';") ],
	'nested, two levels, failing' => [
		failed => do_block(
			"EXECUTE 'DO \$\$ BEGIN EXECUTE ''SELECT 1 / (a - 1) FROM t $comment''; END \$\$';")
	],
	'nested utility statements, failing' =>
	  [ failed => do_block("EXECUTE 'CREATE TABLE t () $comment';") ],
	'nested, denied' => [ failed => do_block("EXECUTE 'SELECT * FROM t $comment';") ],
	'in a procedure that commits' => [ failed => 'CALL committing()' ],
	'cursors, closed by an error' => [
		failed => do_block(
			"FOR j IN 1 .. 10 LOOP
				EXECUTE format('DECLARE c%s CURSOR WITH HOLD FOR SELECT 1 $comment', j);
			 END LOOP; PERFORM 1 / 0;", TIMES / 10)
	],
	'not nested, failing' => [ failed => ("SELECT 1 / (a - 1) FROM t $comment") x TIMES ],
	'not nested, succeeding' => [ done => ("SELECT 1 $comment") x TIMES ]);

# What fails before it is executed waits for nothing.
my $unexecuted = 'not nested, failing before they are executed';
$ways{$unexecuted} = [ failed => ("SELEC $comment") x TIMES ];

unaudited_sql($node, 'CREATE PROCEDURE committing() LANGUAGE plpgsql AS $do$ '
	  . looped("EXECUTE 'INSERT INTO t VALUES (1) $comment';", TIMES, 'COMMIT;') . ' $do$');

# Of the memory that is the process's own, kB; 0 if it has ended
sub size_of
{
	my ($pid) = @_;
	my $status = eval { slurp_file("/proc/$pid/status") } // return 0;

	return $status =~ /^RssAnon:\s+(\d+) kB/m ? $1 : 0;
}

# ---------------------------------------------------------------------------
# The trail, piece by piece: it is long
# ---------------------------------------------------------------------------

# How far each file has been read
my %seen;

# What has come into the trail since the last call: how many records there are of
# that process, with that text in them if one is given, by their outcome, and how
# many are missing
sub new_records
{
	my ($pid, $text) = @_;
	my %outcomes;

	flush_trail($node);
	$outcomes{missing} = 0;
	foreach my $file (trail_files($node))
	{
		open my $handle, '<:raw', $file or die "$file: $!";
		seek $handle, $seen{$file} // 0, 0 or die "$file: $!";
		while (my $line = <$handle>)
		{
			$outcomes{missing} += $1 if $line =~ /^\{"type":"gap".*"rowCount":(\d+)/;
			next if $line !~ /"pid":$pid,/;
			next if defined $text && index($line, $text) < 0;
			$outcomes{ $line =~ /"exitCode":"(.{5})"/ ? $1 : 'none' }++;
		}
		$seen{$file} = tell $handle;
	}
	return %outcomes;
}

# ---------------------------------------------------------------------------
# A session, while the queue is stuck
# ---------------------------------------------------------------------------

# A session that is about to do things in that way.
sub new_session
{
	my ($way) = @_;
	my ($usual, @statements) = @{ $ways{$way} };
	my $client = PgProto->connect($node);

	$client->query($way =~ /denied/ ? 'SET ROLE pg_monitor' : "SELECT 'warm'");
	flush_trail($node);
	new_records($client->pid);
	return {
		client     => $client,
		statements => \@statements,
		outcomes   => { done => 0, failed => 0, refused => 0 },
		usual      => outcomes_text($usual => $way =~ /cursors/ ? TIMES / 10 : TIMES),
		before     => size_of($client->pid),
		grown      => 0
	};
}

sub outcomes_text
{
	my (%outcomes) = @_;

	return join ', ', map { "$_ " . ($outcomes{$_} // 0) } qw(done failed refused);
}

# Send the next statement, if there is one.
sub send_next
{
	my ($session) = @_;
	my $sql = shift @{ $session->{statements} };

	$session->{client}->start($sql) if defined $sql;
	return $session->{busy} = defined $sql;
}

# Have statements executed as long as they are answered.  Returns whether the last
# one has been.
sub use_answers
{
	my ($session) = @_;
	my $client = $session->{client};

	$session->{busy} // send_next($session);
	while ($session->{busy} && $client->is_answering(0.2))
	{
		my $answer = $client->finish;

		$session->{outcomes}{
			  $answer eq 'E:53400' ? 'refused'
			: $answer =~ /E:/      ? 'failed'
			:                        'done'
		}++;
		send_next($session);
	}
	return !$session->{busy};
}

# How the session is: "waiting" for space, "done", or "grown" too large; and what
# became of what it did, if it is done.
sub look_at
{
	my ($session) = @_;
	my $pid       = $session->{client}->pid;
	my $answered  = use_answers($session);
	my ($state, $name) = split /\|/, unaudited_sql(
		$node, "SELECT CASE WHEN wait_event_type = 'Extension' THEN 'waiting'
							WHEN wait_event = 'PgSleep' THEN 'done'
							ELSE '' END, application_name
				  FROM pg_stat_activity WHERE pid = $pid"), 2;

	$session->{grown} = max($session->{grown}, size_of($pid) - $session->{before});
	return 'grown' if $session->{grown} >= LIMIT;
	return ('done', outcomes_text(%{ $session->{outcomes} })) if $answered;
	return ($state, $name);
}

# Let the session go on until it is in one of the states, or has grown too large;
# returns what look_at() does.
sub go_on
{
	my ($session, @states) = @_;
	my @found;

	poll_until(
		sub {
			@found = look_at($session);
			return grep { $_ eq $found[0] } @states, 'grown';
		});
	return @found;
}

# End the session, when it need not wait.  Returns what new_records() has of it.
sub end_session
{
	my ($session) = @_;
	my $client = $session->{client};
	my $pid    = $client->pid;

	if ($session->{busy})
	{
		kill('INT', $pid);
		$client->finish;
	}
	$client->quit;
	poll_until(sub { !-e "/proc/$pid/status" }) or die 'the session does not end';
	return new_records($pid);
}

sub stop_worker
{
	my $worker = worker_pid($node);

	kill('STOP', $worker) == 1 or die "kill: $!";
	return $worker;
}

# Change settings of the server.
sub set_server
{
	my (%settings) = @_;

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	foreach my $name (keys %settings)
	{
		poll_until(
			sub { unaudited_sql($node, "SHOW pg_audit_queue.$name") eq $settings{$name} })
		  or die "$name is not set";
	}
	return;
}

sub dropped
{
	return stats($node)->{dropped};
}

# How many records each way gives
my %number;

# A session goes on to its end, and of its records most are dropped.
sub test_dropping
{
	my ($name, $way) = @_;
	my $session = new_session($way);
	my $before  = dropped();
	my $worker  = stop_worker();
	my ($state, $counts) = go_on($session, 'waiting', 'done');

	is("$state: " . ($counts // ''), "done: $session->{usual}",
		"$name: the session does what it would have done");
	cmp_ok($session->{grown}, '<', LIMIT, 'and does not grow');
	kill('CONT', $worker);

	my %records = end_session($session);
	my $missing = delete $records{missing};

	# The last one may have been dropped behind the gap that the flush waited for.
	poll_until(
		sub {
			return 1 if $missing == dropped() - $before;
			my %more = new_records($session->{client}->pid);
			$missing += delete $more{missing};
			$records{$_} += $more{$_} foreach keys %more;
			return 0;
		});
	is(sum0(values %records) + $missing, $number{$way}, 'all of it is recorded or accounted for');
	cmp_ok($missing, '>', TIMES / 2, 'most is missing');
	is(dropped() - $before, $missing, 'and counted');
	return;
}

# wait: sessions wait, then go on to their end, and nothing is missing.

foreach my $way (grep { $_ ne $unexecuted } sort keys %ways)
{
	my $session = new_session($way);
	my $worker  = stop_worker();
	my ($state) = go_on($session, 'waiting', 'done');
	my $counts;

	is($state, 'waiting', "wait: $way: the session waits");
	kill('CONT', $worker);
	($state, $counts) = go_on($session, 'done') if $state eq 'waiting';
	is($counts, $session->{usual}, 'it does what it would have done');
	cmp_ok($session->{grown}, '<', LIMIT, 'and does not grow');

	my %records = end_session($session);

	is(delete $records{missing}, 0, 'nothing is missing');
	$number{$way} = sum0(values %records);
	cmp_ok($number{$way}, '>=', TIMES, 'all of it is recorded');
}
is(dropped(), 0, 'nothing was dropped');

# doc/durability.md: whatever the setting, what goes beyond the memory for it is dropped.
$number{$unexecuted} = TIMES;
test_dropping("wait: $unexecuted", $unexecuted);

# drop: sessions do not wait, and what is missing has been counted.
set_server(overflow => 'drop');
test_dropping("drop: $_", $_) foreach sort keys %ways;

# error: statements fail, and what becomes of them is recorded.  With a worker that
# is stopped each had to wait for a second, so the trail cannot be written.
append_to_file($node->data_dir . '/not_a_directory', '');
foreach my $way (grep { $_ ne $unexecuted } sort keys %ways)
{
	my $session  = new_session($way);
	my $before   = dropped();
	my $position = -s $node->logfile;

	set_server(overflow => 'error', log_directory => 'not_a_directory');
	$session->{client}->query("SELECT 'to be written'");
	wait_for_log($node, qr/audit trail cannot be written/, $position)
	  or die 'the trail can be written';
	my ($state, $counts) = go_on($session, 'waiting', 'done');
	my ($done, $failed, $refused) = ($counts // '') =~ /(\d+)/g;

	is($state, 'done', "error: $way: the session goes on");
	cmp_ok($session->{grown}, '<', LIMIT, 'and does not grow');
	if ($way =~ /commits/)
	{
		is($counts, outcomes_text(refused => 1), 'its next commit fails');
	}
	else
	{
		cmp_ok($refused, '>', TIMES / 20, 'statements fail, because the queue is full');
		my ($usual) = $session->{usual} =~ /([1-9]\d*)/;
		is($done + $failed + $refused, $usual, 'it has tried all');
	}
	set_server(overflow => 'wait', log_directory => 'audit');

	my %records = end_session($session);
	my $missing = delete $records{missing};

	is(dropped() - $before, $missing, 'what is missing is counted');
	if ($way =~ /^not nested/)
	{
		# those that were refused have records, too, for which there is no memory then
		is(sum0(values %records) + $missing,
			$number{$way} + 1, 'all of it is recorded or accounted for');
		is($records{'00000'}, $done + 1, 'what was done is recorded');
		is($records{'22012'} // 0, $failed, 'and what failed');
	}
	else
	{
		is($missing, 0, 'which is nothing');
		cmp_ok(sum0(values %records), '>=', $done + $failed, 'what was executed is recorded');
	}
}

# shutdown: the session waits, and is ended.
{
	my $way      = 'nested, failing';
	my $session  = new_session($way);
	my $pid      = $session->{client}->pid;
	my $position = -s $node->logfile;
	my $answer;

	set_server(overflow => 'shutdown');
	my $worker = stop_worker();

	send_next($session);
	poll_until(
		sub {
			$session->{grown} = max($session->{grown}, size_of($pid) - $session->{before});
			return $session->{grown} >= LIMIT || $session->{client}->is_answering(0);
		});
	cmp_ok($session->{grown}, '<', LIMIT, "shutdown: $way: the session does not grow");
	is($session->{client}->finish, 'E:57P01', 'it is ended');
	like(slurp_file($node->logfile, $position),
		qr/audit queue is full, shutting down the server/, 'for that reason');
	kill('CONT', $worker);
	ok(poll_until(sub { !-e $node->data_dir . '/postmaster.pid' }), 'with the server');
	$node->_update_pid(0);
	$node->append_conf('postgresql.conf', settings_text(overflow => 'wait'));
	$node->start;

	my %records = new_records($pid);

	is(delete $records{missing}, 0, 'nothing is missing');
	cmp_ok(delete $records{'22012'}, '>', 20, 'what failed is recorded');
	is_deeply([ keys %records ], ['57P01'], 'and the end');
}

# ---------------------------------------------------------------------------
# With the worker at work: records of statements that go on
# ---------------------------------------------------------------------------

# Size of a session that has executed the SQL up to where it sleeps, kB, and how
# many records with that text it has made
sub size_asleep
{
	my ($sql, $log, $text) = @_;
	my $client = PgProto->connect($node, options => "-c pg_audit_queue.log=$log");
	my $pid    = $client->pid;

	flush_trail($node);
	new_records($pid);
	$client->start($sql);
	poll_until(
		sub {
			unaudited_sql($node,
				"SELECT wait_event FROM pg_stat_activity WHERE pid = $pid") eq 'PgSleep';
		}) or die 'the session does not sleep';
	my $size = size_of($pid);
	kill('INT', $pid);
	$client->finish;
	$client->quit;

	# what it still has to publish at its end
	poll_until(sub { !-e "/proc/$pid/status" }) or die 'the session does not end';
	return ($size, sum0(values %{ { new_records($pid, $text) } }));
}

# as long as it can be without being put into a file for that
my $long = '/* ' . ('x' x 60_000) . ' */';
unaudited_sql(
	$node, "CREATE FUNCTION deep(n int) RETURNS void LANGUAGE plpgsql AS '
	BEGIN
		IF n > 0 THEN
			PERFORM deep(n - 1 $long);
		ELSE
			PERFORM pg_sleep(600);
		END IF;
	END'");

# Each with the text of a record that it makes so many of
my %going_on = (
	'functions, in a procedure that commits' =>
	  [ "CALL calling(1500, '$comment')", '"objectName":"public.f"', 1_500 ],
	'functions in each other' => [ 'SELECT deep(300)', '"objectName":"public.deep"', 301 ],
	'cursors' => [
		"DO \$do\$
		DECLARE c refcursor;
		BEGIN
			FOR i IN 1 .. 500 LOOP
				c := 'c' || i;
				OPEN c FOR EXECUTE 'SELECT 1 $long';
			END LOOP;
			PERFORM pg_sleep(600);
		END \$do\$", '"commandText":"SELECT 1 /* x', 500
	]);

foreach my $way (sort keys %going_on)
{
	my ($sql, $text, $number) = @{ $going_on{$way} };
	my ($without) = size_asleep($sql, 'none', $text);
	my ($with, $records) = size_asleep($sql, 'all', $text);

	cmp_ok($with - $without, '<', LIMIT, "$way: the session does not grow much");
	is($records, $number, 'and has a record of each');
	note("$way: $without kB without records, $with kB with them");
}

# What is published beforehand are the calls: a DO block's own record waits for its end.
my ($do) = grep { $_->{command} eq 'DO' } records_for(
	$node, "DO \$do\$
	DECLARE x int; $comment
	BEGIN
		FOR i IN 1 .. 120 LOOP
			x := f(i);
			COMMIT;
		END LOOP;
		RAISE EXCEPTION 'the end';
	END \$do\$");
is("$do->{exitCode}, $do->{errorMessage}", 'P0001, the end', 'its outcome is known');
unlike(slurp_file($node->logfile), qr/could not write audit spill file/,
	'what is long could be put into files');
ok(poll_until(sub { !grep { /^spill/ } slurp_dir(queue_dir($node)) }), 'none of which is left');

$node->stop;
done_testing();
