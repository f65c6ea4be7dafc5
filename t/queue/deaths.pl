# What survives which death.
#
# Two tables.  @doing has what sessions are at when somebody dies, and the records that each
# of them must then have: if the server crashes, and if the session is ended (E is the
# SQLSTATE of that).  @deaths has who dies, and by what.  In each death's round there is a
# session of each row of @doing, the worker stands still, so that all records are in the
# queue only, and then it happens.  Afterwards each session has these records, once each, in
# the trail of a server that goes on, without a gap; and no files are left.
#
# Further tables have clients at work in each mode, and a queue that is full.
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
use Time::HiRes qw(time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

# Longer than the worker's second before it starts again, whatever else the machine does,
# and shorter than PostgreSQL's minute
use constant LONG => 20;

my $node = audited_node(
	'main',
	init         => [ allows_streaming => 1 ],
	install_path => fault_install(),
	settings     => { log => 'connect', flush_interval => '1h', flush_threshold => 80 },
	conf => "max_connections = 120\nautovacuum = off\nmax_parallel_workers_per_gather = 1\n",
	start => 0);
my $has_clock = start_with_clock($node);

unaudited_sql(
	$node, q{
	CREATE TABLE one ();
	CREATE TABLE written (a int);
	CREATE TABLE lazy (a int);
	CREATE TABLE uniq (a int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	CREATE TYPE mood AS ENUM ('sad');
	CREATE FUNCTION write() RETURNS int LANGUAGE plpgsql AS
		'BEGIN INSERT INTO written VALUES (3); RETURN 1; END';
	CREATE FUNCTION write_and_open() RETURNS int LANGUAGE plpgsql AS
		'DECLARE c refcursor; BEGIN OPEN c FOR SELECT 1; RETURN write(); END';
	CREATE FUNCTION sleep() RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		'BEGIN PERFORM pg_sleep(600); RETURN 1; END';
	CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN PERFORM pg_sleep(600); RETURN NULL; END';
	CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON lazy DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW EXECUTE FUNCTION at_commit();
	CREATE FUNCTION busy(name text) RETURNS void LANGUAGE plpgsql AS
		$$ BEGIN EXECUTE 'COMMENT ON TABLE ' || name || ' IS ''busy'''; PERFORM pg_sleep(600); END $$;
	CREATE FUNCTION wait() RETURNS event_trigger LANGUAGE plpgsql AS
		$$ BEGIN IF current_setting('test.wait', true) = 'on' THEN PERFORM pg_sleep(600); END IF; END $$;
	CREATE EVENT TRIGGER zzz ON ddl_command_end EXECUTE FUNCTION wait();
	DO $$ BEGIN FOR i IN 1 .. 40 LOOP EXECUTE format('CREATE TABLE t%s ()', i); END LOOP; END $$;});

my $write = unaudited_sql($node, q{SELECT 'write'::regproc::oid});
my $text = join '', map { sprintf '%07d ', $_ } 1 .. 5 * 1024 * 1024 / 8;
my $client;

#-------------------------------------------------------------------------
# What sessions are doing
#-------------------------------------------------------------------------

# A table for each session that locks one
my $tables = 0;

sub table { return 't' . ++$tables }

# Messages of the extended protocol
sub executed
{
	my (@texts) = @_;

	$client->parse('', $_)->bind('', '')->execute('') foreach @texts;
	return $client->start_sync;
}

# DDL with a text of so many characters
sub comment
{
	my ($length) = @_;

	return 'COMMENT ON TABLE ' . table() . " IS '" . ('x' x $length) . "'";
}

# So many cursors, or portals that stop before their end, with texts of that length; then
# SQL.
sub cursors
{
	my ($number, $length) = @_;

	return join ';', 'BEGIN',
	  map { ("DECLARE c$_ CURSOR FOR SELECT '" . ('x' x $length) . "'", "FETCH c$_") } 1 .. $number;
}

sub portals
{
	my ($number, $length) = @_;

	return sub {
		$client->query('BEGIN; INSERT INTO lazy VALUES (1)');
		foreach my $i (1 .. $number)
		{
			$client->parse("s$i", "SELECT '" . ('x' x $length) . "' FROM generate_series(1, 2)")
			  ->bind("p$i", "s$i")->execute("p$i", 1)->sync;
		}
	};
}

# The only record has that text, and name of an object.
sub whole
{
	my ($sql, $object) = @_;

	return sub {
		return $_[0]{commandText} eq $sql && (!defined $object || $_[0]{objectName} eq "public.$object");
	};
}

# The only record has the text, or if a slot has no space for it, its beginning.
sub as_space_allows
{
	my ($sql, $length) = @_;
	my $small = $length < 6_500 || $length > 10_000;

	return sub {
		my ($record) = @_;

		return !($record->{cut} && $small)
		  && ($record->{cut} ? $record->{commandText} =~ /^COMMENT ON TABLE t\d+ IS 'x+/ : $record->{commandText} eq $sql)
		  && ($length >= 3_000 && $length <= 10_000 || $record->{objectName} =~ /^public\.t\d+$/);
	};
}

my $read  = 'READ interrupted';
my $sleep = 'SELECT pg_sleep(600)';

# Statements that are still open, and one that is executed, which must be there.
my $last        = "SELECT 'last' FROM pg_sleep(600)";
my $open_and_last = qr/^(?:READ interrupted(?: cut)?, )*last READ interrupted(?: cut)?$/;

my %insert = (log => 'write,error', event => 'PgSleep');
my %waits  = (mode => 'immediate', event => 'Extension');

# Of each:
#	what		it is doing
#	mode, log	that it has; queued, and read,write,function,misc,error unless given
#	before		what it has done before: SQL, or code with $client
#	start		what it is at, likewise; without it, it is idle
#	event		name or type of that for which it waits, or
#	at			point of src/fault.h at which it is
#	crash		records that it has after a crash: class and outcome, sorted
#	ended		the same if it is ended
#	check		code that says whether the records after a crash are as they should be
#	not			deaths that are left out
my @doing = (
	# Before it has an outcome
	(
		map {
			{
				what  => "a statement, in mode $_", mode => $_,
				start => $sleep, event => 'PgSleep',
				crash => $read, ended => 'READ E',
				check => sub { $_[0]{databaseName} eq 'postgres' && $_[0]{commandText} eq $sleep }
			}
		} qw(queued commit immediate)
	),
	{
		what  => 'a statement, in a block, after another',
		log   => 'write,read,error',
		before => 'BEGIN; INSERT INTO written VALUES (1)', start => $sleep, event => 'PgSleep',
		crash => "$read, WRITE 00000", ended => 'READ E, WRITE 00000'
	},
	{
		what  => 'a parallel query', log => 'read',
		start => 'SET parallel_setup_cost = 0; SET '
		  . force_parallel($node) . q{ = on; SELECT 'parallel', pg_sleep(600)},
		event => 'ExecuteGather', crash => $read, ended => 'READ E'
	},
	{
		what  => 'planning', log => 'read,error', start => 'SELECT sleep()', event => 'PgSleep',
		ended => 'ERROR E, READ E'
	},

	# A text that is longer than a slot: while it is executed, cut; afterwards, whole
	{
		what  => 'a statement longer than its slot',
		start => "SELECT /* " . ('x' x 20_000) . ' */ pg_sleep(600)', event => 'PgSleep',
		crash => "$read cut", ended => 'READ E',
		check => sub { length $_[0]{commandText} > 1_000 }
	},
	{
		what   => 'nothing, after 5 MB of text', log => 'read',
		before => "SELECT length('$text')",
		crash  => 'READ 00000', check => whole("SELECT length('$text')")
	},

	# Between the moments at which it is recorded
	{
		what   => 'nothing, with records in the queue', log => 'read',
		before => join('; ', map { "SELECT 'queued $_'" } 1 .. 20),
		crash  => join(', ', ('READ 00000') x 20),
		check  => sub { "@{[ map { $_->{commandText} =~ /(\d+)'/ } @_ ]}" eq "@{[ 1 .. 20 ]}" }
	},
	(
		map {
			{
				what  => "a record, at $_", log => 'read', at => $_,
				start => "SELECT 'a record'", crash => $read, check => whole("SELECT 'a record'")
			}
		} qw(ring-claimed ring-unplaced ring-reserved ring-copied)
	),
	{
		what  => 'a record, at ring-committed', log => 'read', at => 'ring-committed',
		start => "SELECT 'a record'", crash => 'READ 00000', check => whole("SELECT 'a record'")
	},

	# The first record of a DDL statement gives way to others with names: at that moment,
	(
		map {
			my ($name, $sql, $object) = @$_;
			{
				what  => "DDL, $name, at its name", log => 'ddl', at => 'pending-replaced',
				start => $sql, crash => 'DDL interrupted',
				check => whole($sql, $object // $sql =~ /(t\d+)/)
			}
		} (
			[ 'COMMENT',   comment(10) ],
			[ 'long',      comment(2_900) ],
			[ 'a table',   'CREATE TABLE new (a int PRIMARY KEY)', 'new' ],
			[ 'DROP',      'DROP TABLE ' . table() ],
			[ 'very long', comment(300_000) ])
	),

	# and afterwards, however much of the slot the first record takes
	(
		map {
			my $sql = comment($_);
			{
				what   => "DDL of $_ characters", log => 'ddl',
				before => 'SET test.wait = on', start => $sql, event => 'PgSleep',
				crash  => qr/^DDL interrupted(?: cut)?$/, check => as_space_allows($sql, $_),
				ended  => 'DDL E'
			}
		} (10, 2_900, 4_000, 6_000, 6_400, 6_600, 6_800, 7_000, 8_000, 300_000)
	),

	# Cursors that are open do not keep the statement that is executed from being there,
	# nor portals, nor what it executes itself: DDL whose record gives way to one with a
	# name, or a query during its commit.
	(
		map {
			my ($number, $length) = @$_;
			(
				{
					what   => "a statement, with $number cursors of $length characters",
					log    => 'read', before => cursors($number, $length), start => $last,
					event  => 'PgSleep', crash => $open_and_last
				},
				{
					what   => "a statement, with $number portals of $length characters",
					log    => 'read', before => portals($number, $length), start => $last,
					event  => 'PgSleep', crash => $open_and_last
				})
		} ([ 20, 10 ], [ 40, 100 ], [ 6, 1700 ], [ 5, 9000 ])
	),
	(
		map {
			(
				{
					what   => "DDL in a function, with a portal of $_ characters",
					log    => 'read,ddl', before => portals(1, $_),
					start  => "SELECT busy('" . table() . "') /* 'last' */",
					event  => 'PgSleep',
					crash  => qr/^DDL 00000, (?:READ interrupted, )*last READ interrupted(?: cut)?$/
				},
				{
					what   => "a COMMIT, with a portal of $_ characters",
					log    => 'read,misc', before => portals(1, $_), start => "COMMIT /* 'last' */",
					event  => 'PgSleep',
					crash  => qr/^MISC 00000, (?:READ interrupted, )*last MISC interrupted(?: cut)?$/
				})
		} (6500, 6600, 6700)
	),

	# The only record may be that of what a statement executes.
	{
		what   => 'an EXPLAIN', log => 'read', before => cursors(6, 1700),
		start  => "EXPLAIN ANALYZE $last", event => 'PgSleep', crash => $open_and_last
	},

	# Waiting for the trail, before the commit and in mode immediate: what has been executed
	# is recorded, and taken back by a record of class ERROR if the session is ended.
	{
		what  => 'a commit', mode => 'commit', log => 'write,error', event => 'Extension',
		start => 'INSERT INTO written VALUES (2)', crash => 'WRITE 00000', ended => 'ERROR E, WRITE 00000'
	},
	{
		what  => 'the commit of a Sync', mode => 'commit', log => 'write,error', event => 'Extension',
		start => sub { executed('INSERT INTO written VALUES (2)') },
		crash => 'WRITE 00000', ended => 'ERROR E, WRITE 00000'
	},
	{
		what  => 'what a function has executed', %waits, start => 'SELECT write()',
		crash => 'FUNCTION interrupted, READ interrupted, WRITE 00000',
		ended => 'FUNCTION E, READ E, WRITE 00000'
	},
	{
		what  => 'the same in an INSERT', %waits, start => 'INSERT INTO written SELECT write()',
		crash => 'FUNCTION interrupted, WRITE 00000, WRITE interrupted',
		ended => 'FUNCTION E, WRITE 00000, WRITE E'
	},
	{
		what  => 'a function that leaves a cursor open', %waits, start => 'SELECT write_and_open()',
		crash => 'FUNCTION interrupted, FUNCTION interrupted, READ interrupted, READ interrupted, WRITE 00000',
		ended => 'FUNCTION E, FUNCTION E, READ E, READ E, WRITE 00000'
	},
	{
		what  => 'a portal that is not the newest', %waits,
		start => sub {
			$client->parse('', 'SELECT write()')->bind('a', '')->parse('', 'SELECT 1')
			  ->bind('b', '')->execute('a')->start_sync;
		},
		crash => 'FUNCTION interrupted, READ interrupted, READ interrupted, WRITE 00000',
		ended => 'FUNCTION E, READ E, READ E, WRITE 00000'
	},
	{
		what   => 'a portal that a FETCH runs', %waits, before => 'BEGIN',
		start  => sub {
			$client->parse('', 'SELECT write()')->bind('a', '');
			executed('FETCH a');
		},
		ended => 'ERROR E, FUNCTION E, MISC 00000, MISC 00000, READ E, WRITE 00000'
	},
	{
		what  => 'a fast-path call', %waits, before => 'BEGIN', start => sub { $client->start_call($write) },
		ended => 'ERROR E, FUNCTION 00000, MISC 00000, WRITE 00000'
	},
	{
		what  => 'a replication command', %waits, replication => 'database', not => qr/shutdown/,
		start => 'IDENTIFY_SYSTEM', crash => 'MISC 00000', ended => 'ERROR E, MISC 00000'
	},

	# At the commit
	{
		what  => 'the commit of several statements', %insert,
		start => 'INSERT INTO written VALUES (4); INSERT INTO lazy VALUES (1)',
		crash => 'WRITE 00000, WRITE 00000', ended => 'ERROR E, WRITE 00000, WRITE 00000'
	},
	{
		what   => 'a COMMIT that has no record', %insert,
		before => 'BEGIN; INSERT INTO lazy VALUES (1)', start => 'COMMIT',
		crash  => 'WRITE 00000', ended => 'ERROR E, WRITE 00000'
	},
	{
		what  => 'a Sync with a trigger', %insert,
		start => sub { executed('INSERT INTO lazy VALUES (1)', 'SELECT 1') },
		crash => 'WRITE 00000', ended => 'ERROR E, WRITE 00000'
	},
	{
		what  => 'a Sync with a constraint', log => 'write,error', event => 'transactionid',
		start => sub { executed('INSERT INTO uniq VALUES (1)', 'SELECT 1') },
		crash => 'WRITE 00000', ended => 'ERROR E, WRITE 00000'
	});

#-------------------------------------------------------------------------
# Deaths
#-------------------------------------------------------------------------

# What a round has: the worker, which is stopped, and sessions.
my ($worker, @sessions);

# The sessions that stand still at a point
sub stopped { return grep { is_stopped($_) } map { $_->{client}->pid } @sessions }

sub process_of
{
	my ($condition) = @_;

	return unaudited_sql($node, "SELECT pid FROM pg_stat_activity WHERE $condition");
}

# A process dies, and the postmaster ends all others.  Those that have been stopped
# continue when it has told them.
sub crash
{
	my ($code) = @_;

	cause_crash($node, $code);
	kill('CONT', $worker, stopped());
	wait_for_worker($node, $worker);
	return;
}

# The server is shut down, and the trail is looked at before it starts again.
sub shut_down
{
	my ($mode, $while) = @_;

	is( shut_down_node(
			$node, $mode,
			sub {
				kill('CONT', $worker, stopped());
				$while->() if $while;
			}),
		0, "$mode shutdown: the server ends");
	return;
}

# Each session is ended by a function, and says so.
sub end_by
{
	my ($function, $state) = @_;
	my @ended = grep { $_->{start} } @sessions;

	unaudited_sql($node,
		"SELECT $function(pid) FROM unnest('{" . join(',', map { $_->{client}->pid } @ended) . "}'::int[]) pid");
	kill('CONT', stopped());
	foreach my $session (@ended)
	{
		like($session->{client}->until($session->{at} ? 'ZE' : 'E'), $session->{at} ? qr/C:|$state/ : qr/$state/,
			"$function(): $session->{what}: until then");
	}
	kill('CONT', $worker);
	$_->{client}->quit foreach @sessions;
	poll_until(sub { process_of(q{application_name LIKE 'doing %'}) eq '' }) or die 'sessions do not end';
	return;
}

# Send a startup packet and read what comes until the end.
sub knock
{
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port)
	  // die "could not connect: $!";
	my $packet = pack('N (Z*)* x', 196608, 'user', scalar(getpwuid($>)), 'database', 'postgres');
	my ($answer, $part) = ('');

	syswrite($socket, pack('N', 4 + length $packet) . $packet);
	$answer .= $part while sysread($socket, $part, 8192);
	return $answer;
}

# A session dies, and processes that refuse clients while the server has not come to an end
# yet: so many each, at a point.  The worker, which is stopped, takes no notice of
# anything.  The postmaster would end it for good after five seconds, which are not enough on
# a slow machine: its clock stands still.
sub die_refusing
{
	my (@points) = @_;

	stop_clock($node) if $has_clock;
	signal(KILL => $sessions[0]{client}->pid);
	poll_until(sub { knock() =~ /57P03/ }) or die 'clients are not refused';
	foreach (@points)
	{
		my ($point, $number) = @$_;

		set_faults($node, $point => 'kill');
		is(scalar(grep { knock() ne '' } 1 .. $number), 0, "$number processes are killed at $point");
	}
	set_faults($node);
	like(knock(), qr/57P03/, 'the next one lives') foreach 1 .. 3;
	set_clock($node, 0);
	return;
}

# Who dies, by what; whether the server crashes, or sessions are ended, with which SQLSTATE
my @deaths = (
	# before the postmaster can do anything about the others
	[
		'sessions', 'SIGKILL', 'crash',
		sub {
			crash(
				sub {
					signal(STOP => postmaster_pid($node));
					signal(KILL => map { $_->{client}->pid } @sessions);
					signal(CONT => postmaster_pid($node));
				});
		}
	],
	[ 'a session', 'SIGQUIT', 'crash', sub { crash(sub { signal(QUIT => $sessions[0]{client}->pid) }) } ],
	[ 'the worker', 'SIGKILL', 'crash', sub { crash(sub { signal(KILL => $worker) }) } ],
	[
		'the checkpointer', 'SIGKILL', 'crash',
		sub { crash(sub { signal(KILL => process_of(q{backend_type = 'checkpointer'})) }) }
	],
	[
		'a parallel worker', 'SIGKILL', 'crash',
		sub { crash(sub { signal(KILL => process_of(q{backend_type = 'parallel worker'})) }) }
	],
	[
		'a session, then processes that refuse clients, within the ring', 'SIGKILL', 'crash',
		sub {
			crash(
				sub {
					die_refusing([ 'ring-unplaced', 30 ], [ 'ring-claimed', 10 ],
						[ 'ring-reserved', 10 ], [ 'ring-unplaced', 10 ]);
				});
		}
	],

	# there are more of them than can be at it at the same time
	[
		'a session, then processes that refuse clients, before they have said where they write',
		'SIGKILL', 'crash',
		sub { crash(sub { die_refusing([ 'writer-borrowed', 140 ]) }) }
	],
	[
		'all processes', 'SIGKILL', 'crash',
		sub {
			my $postmaster = postmaster_pid($node);

			signal(STOP => $postmaster);
			signal(KILL => (grep { (eval { slurp_file("/proc/$_/status") } // '') =~ /^PPid:\s+$postmaster$/m }
				  map { m{(\d+)$} } glob '/proc/[0-9]*'), $postmaster);
			poll_until(sub { !kill(0, $postmaster) }) or die 'the postmaster is still there';
			$node->kill9;
		}
	],
	[ 'the server', 'immediate shutdown', 'crash', sub { shut_down('immediate') } ],
	[ 'the server', 'fast shutdown', 'ended', sub { shut_down('fast') }, '57P01' ],
	[ 'sessions', 'pg_terminate_backend()', 'ended', sub { end_by('pg_terminate_backend', '57P01') }, '57P01' ],
	[ 'statements', 'pg_cancel_backend()', 'ended', sub { end_by('pg_cancel_backend', '57014') }, '57014' ]);

# The row's session, connected, with what it has done before.
sub begin_session
{
	my ($doing) = @_;
	my $name = 'doing ' . (1 + @sessions);

	$client = PgProto->connect($node,
		options => '-c application_name=' . $name =~ s/ /\\ /r
		  . ' -c pg_audit_queue.mode=' . ($doing->{mode} // 'queued')
		  . ' -c pg_audit_queue.log=' . ($doing->{log} // 'read,write,function,misc,error'),
		replication => $doing->{replication});
	_do($doing->{before}, 'query') if $doing->{before};
	push @sessions, { %$doing, client => $client, name => $name };
	return;
}

sub _do
{
	my ($what, $method) = @_;

	return ref $what ? $what->() : $client->$method($what);
}

# The session is at what it shall be at, or on its way there.
sub go_on
{
	my ($session) = @_;

	$client = $session->{client};
	set_faults($node, $session->{at} => 'stop') if $session->{at};
	_do($session->{start}, 'start') if $session->{start};
	if ($session->{at})
	{
		wait_until_stopped($client->pid) or die "$session->{what}: not at $session->{at}";
		set_faults($node);
	}
	return;
}

# Sessions that do not yet wait for what they shall wait for
sub not_there
{
	my %waiting = map { /^(.*?)\|(.*)/ ? ($1 => $2) : () } split /\n/,
	  unaudited_sql($node, q{SELECT pid, wait_event, wait_event_type FROM pg_stat_activity});

	return map { $_->{what} }
	  grep { $_->{event} && ($waiting{ $_->{client}->pid } // '') !~ /\b$_->{event}\b/ } @sessions;
}

# What the trail has of a session: class and outcome of each record
sub outcomes
{
	my (@records) = @_;

	return join ', ', sort map {
		    (($_->{commandText} // '') =~ /'last'/ ? 'last ' : '')
		  . "$_->{class} "
		  . ($_->{interrupted} ? 'interrupted' : $_->{exitCode})
		  . ($_->{cut} ? ' cut' : '')
	} @records;
}

sub check_sessions
{
	my ($death, $ends, $state, @records) = @_;
	my %of;

	push @{ $of{ $_->{clientApplication} // '' } }, $_
	  foreach grep { $_->{class} !~ /^(?:CONFIG|CONNECT)$/ && $_->{command} ne 'DECLARE CURSOR' } @records;
	foreach my $session (@sessions)
	{
		my @own      = @{ $of{ $session->{name} } // [] };
		my $name     = "$death: $session->{what}";
		my $expected = $session->{ $session->{start} ? $ends : 'crash' };

		if (ref $expected) { like(outcomes(@own), $expected, $name) }
		else               { is(outcomes(@own), $expected =~ s/\bE\b/$state/gr, $name) }
		ok(@own && $session->{check}->(@own), "$name: as it was")
		  if $session->{check} && $expected eq $session->{crash};
	}
	return;
}

# Files in the queue directory that are there only until their records are in the trail
sub leftover_files
{
	return grep { !/^(?:\.|\.\.|queue|lock)$/ } slurp_dir(queue_dir($node));
}

# After a crash, what was in the queue, and in slots, comes into the trail without anybody
# asking for it.
sub check_takes_over
{
	my ($death) = @_;

	ok(poll_until(sub { !leftover_files() }), "$death: everything is taken over");
	return;
}

# Nothing is missing, and nothing left over.
sub check_server
{
	my ($death, @records) = @_;

	is(join(' ', map { $_->{type} eq 'gap' ? $_->{errorMessage} : () } @records), '', "$death: there is no gap");
	is(stats($node)->{dropped}, 0, "$death: nothing is dropped");
	is(join(' ', leftover_files()), '', "$death: no files are left");
	return;
}

# Sessions are at these things when that happens.
sub round
{
	my ($row, @doing) = @_;
	my ($who, $by, $ends, $code, $state) = @$row;
	my $death    = "$who, $by";
	my @rows     = grep { (defined $_->{$ends} || !$_->{start}) && $death !~ ($_->{not} // qr/^-/) } @doing;
	my $sequence = flush_trail($node);
	my $other    = PgProto->connect($node, user => 'paq_quiet');

	# for one who waits for it
	$other->query('BEGIN; INSERT INTO uniq VALUES (1)');
	@sessions = ();
	begin_session($_) foreach grep { $_->{mode} } @rows;
	$worker = worker_pid($node);
	signal(STOP => $worker);
	begin_session($_) foreach grep { !$_->{mode} } @rows;
	go_on($_) foreach grep { !$_->{at} } @sessions;
	poll_until(sub { !not_there() }) or die "$death: not at work: " . join ', ', not_there();

	# by now, nobody else comes to a point
	go_on($_) foreach grep { $_->{at} } @sessions;
	ok((grep { /^spill\./ } leftover_files()), "$death: a text is in a spill file") if @rows > 1;
	$code->();
	check_sessions("$death, before the start", $ends, $state, records_after($node, $sequence))
	  if $by eq 'fast shutdown';
	start_again($node) if !defined $node->{_pid};
	check_takes_over($death) if $ends eq 'crash';
	flush_trail($node);
	my @records = records_after($node, $sequence);
	check_sessions($death, $ends, $state, @records);
	check_server($death, @records);
	cmp_ok(scalar(grep { $_->{exitCode} eq '57P03' } @records),
		'>=', 3, "$death: those that lived have their records") if $who =~ /refuse/;
	$other->quit;
	return;
}

round($_, @doing) foreach @deaths;
is(unaudited_sql($node, 'SELECT count(*) FROM written'), '0', 'nothing of what was ended is committed');

#-------------------------------------------------------------------------
# Clients at work
#-------------------------------------------------------------------------

# Who dies while clients are at work in all modes, by what; whether they come through, or are
# cut off
my @under_load = (
	[ 'the worker', 'SIGTERM', 'come through', sub { signal(TERM => $worker); wait_for_worker($node, $worker) } ],
	[ 'the worker', 'SIGKILL', 'are cut off', sub { signal(KILL => $worker); wait_for_worker($node, $worker) } ],
	[ 'the postmaster and the worker', 'SIGKILL', 'are cut off', sub { crash_node($node, $worker) } ],
	[
		'the server', 'smart shutdown', 'come through',
		sub {
			my $idle = PgProto->connect($node);

			shut_down('smart',
				sub {
					ok(poll_until(sub { slurp_file($node->data_dir . '/postmaster.pid') =~ /stopping/ }),
						'smart shutdown: the server waits for a session that is idle');
					$idle->quit;
				});
		}
	],
	[ 'the server', 'fast shutdown', 'are cut off', sub { shut_down('fast') } ],
	[ 'the server', 'immediate shutdown', 'are cut off', sub { shut_down('immediate') } ]);

my $round = 0;

foreach my $row (@under_load,
	full_tests() ? map { (@under_load[ 1, 2 ]) } 1 .. 20 : ())
{
	my ($who, $by, $then, $code) = @$row;
	my $death    = "$who, $by";
	my $through  = $then eq 'come through';
	my $sequence = flush_trail($node);
	my $start;
	my @loads;

	$round++;
	$worker = worker_pid($node);
	push @loads,
	  start_load($node, "$_-$round",
		clients    => 2,
		statements => $through ? 100 : 3000,
		pause      => $through ? 0.02 : 0.001,
		settings   => { mode => $_, log => 'read' })
	  foreach qw(queued commit immediate);
	ok( poll_until(sub { !grep { -s $_->{stdout} < 200 } map { @{ $_->{sessions} } } @loads }),
		"$death: clients are at work");
	$start = time;
	$code->();
	foreach my $load (@loads)
	{
		my $number = finish_load($load);

		if ($through) { is($number, $load->{number}, "$death: $load->{label}: they $then") }
		else          { cmp_ok($number, '<', $load->{number}, "$death: $load->{label}: they $then") }
	}
	cmp_ok(time - $start, '<', LONG, "$death: and have not waited for long") if $through;
	foreach my $when ($by =~ /smart|fast/ ? 'before the start' : (), 'at last')
	{
		if ($when eq 'at last')
		{
			start_again($node) if !defined $node->{_pid};
			check_takes_over($death) if !$through;
			flush_trail($node);
			check_server($death, records_after($node, $sequence));
		}
		my @records = records_after($node, $sequence);
		check_load($_, \@records, "$death: $_->{label}: once each, $when") foreach @loads;
	}
}

#-------------------------------------------------------------------------
# A full queue
#-------------------------------------------------------------------------

# Settings change before the next start: queues and slots of other sizes.
sub other_sizes
{
	my ($queue_size, $max_connections) = @_;

	crash_node($node, $worker);
	$node->append_conf('postgresql.conf',
		"max_connections = $max_connections\n" . settings_text(queue_size => $queue_size));
	return;
}

# Who dies while there is no space; how many records of errors wait for some, too, for which
# there is a reserve; with which SQLSTATE the statement ends that waits for space, if not by
# the crash.  Sessions notice by themselves that the postmaster has been killed, and would find
# no space for their last record in a reserve that is full.
my @full = (
	[ 'the server', 'immediate shutdown', 5, sub { shut_down('immediate') } ],
	[ 'the postmaster and the worker', 'SIGKILL', 0, sub { crash_node($node, $worker) } ],
	[ 'the postmaster and the worker', 'SIGKILL, then other sizes', 0, sub { other_sizes('256kB', 137) } ],
	[ 'the postmaster and the worker', 'SIGKILL, then smaller ones', 0, sub { other_sizes('64kB', 25) } ],
	[ 'a session', 'SIGKILL', 5, sub { crash(sub { signal(KILL => $client->pid) }) } ],
	[
		'sessions',
		'SIGTERM', 5,
		sub {
			signal(TERM => $client->pid, process_of(q{application_name = 'filler'}));
			signal(CONT => $worker);
		},
		'57P01'
	]);

# A client that is refused meanwhile would find no space for its record.
$node->append_conf('postgresql.conf', settings_text(queue_size => '64kB', log => 'none'));
$node->restart;
$round = 0;
foreach my $row (@full)
{
	my ($who, $by, $errors_waiting, $code, $state) = @$row;
	my $death    = "$who, $by, the queue being full";
	my $sequence = flush_trail($node);
	my ($published, $waiting, $errors) = (0, 0, 0);

	@sessions = ();
	$round++;
	$client = PgProto->connect($node, options => '-c pg_audit_queue.log=error');
	$worker = worker_pid($node);
	signal(STOP => $worker);
	my $filler = start_psql($node, join("\n", map { "SELECT '$round full $_';" } 1 .. 2000),
		name => 'filler', settings => { log => 'read' });
	ok(wait_until_waiting($node, 'filler'), "$death: a statement waits for space");
	my $stats = stats($node);
	cmp_ok($stats->{queue_used}, '>', $stats->{queue_size} * 3 / 4, "$death: there is none");

	# the reserve has space for more than ten
	$client->query("SELEC '$round error " . ++$errors . q{'}) foreach $errors_waiting ? 1 .. 10 : ();
	while ($waiting < $errors_waiting && $errors < 1000)
	{
		$client->query("SELEC '$round error " . ++$errors . q{'});
		my $now = stats($node)->{published};
		$waiting++ if $now == $published;
		$published = $now;
	}
	is($waiting, $errors_waiting, "$death: so do records of errors");
	$code->();
	my ($status, $stdout) = finish_psql($filler);
	my $last = 1 + (() = $stdout =~ /^$round full \d+$/mg);
	# Its last records are put into the queue when there is space again.
	poll_until(sub { !kill(0, $client->pid) }) or die 'the session is still there' if $state;
	start_again($node) if !defined $node->{_pid};
	check_takes_over($death) if !$state;
	flush_trail($node);
	my @records = records_after($node, $sequence);
	foreach my $kind (
		[ 'full', map({ "$_ 00000" } 1 .. $last - 1), "$last " . ($state // 'interrupted') ],
		$errors ? [ 'error', map { "$_ 42601" } 1 .. $errors ] : ())
	{
		my ($label, @expected) = @$kind;

		is_deeply(
			[
				map {
					($_->{commandText} // '') =~ /'$round $label (\d+)'/
					  ? "$1 " . ($_->{interrupted} ? 'interrupted' : $_->{exitCode})
					  : ()
				} @records
			],
			\@expected,
			"$death: $label: once each, in order");
	}
	$client->quit;
	check_server($death, @records);
}
is(stats($node)->{queue_size}, 64 * 1024, 'the size that is asked for');
is($node->safe_psql('postgres', 'SHOW max_connections'), '25', 'and that many connections');

# Sessions that are ended before the queue has taken all records of their statement
my $many  = join(' UNION ALL ', ('SELECT 1 FROM one') x 300);
my $reads = ', READ 00000' x 300;
my $relations = 'SET pg_audit_queue.log_relation = on';
my @not_all = (
	{
		what   => 'a statement', log => 'read,error', before => $relations,
		start  => $many, ended => "ERROR E$reads"
	},
	{
		what   => 'a statement, in a block', log => 'read,error', before => "$relations; BEGIN",
		start  => $many, ended => "ERROR E$reads"
	},
	{
		what   => 'a statement, at the commit', log => 'read,write,error', before => $relations,
		start  => "INSERT INTO written $many", ended => "ERROR E$reads, WRITE 00000"
	},
	{
		what   => 'a statement that a function executes', log => 'read,function,error', before => $relations,
		start  => "DO \$\$ BEGIN PERFORM 2 FROM ($many) x; PERFORM 3 FROM one; END \$\$",
		ended  => "FUNCTION E$reads"
	});

foreach my $doing (@not_all)
{
	$_->[1] =~ /^pg_\w+_backend/ && round($_, { %$doing, event => 'Extension' }) foreach @deaths;
}

check_trail($node, 'the trail is whole');
$node->stop;

done_testing();
