#-------------------------------------------------------------------------
#
# BareServer.pm
#	A node's server without pg_ctl and psql, which can be started, asked and
#	killed many times a minute.
#
#	my $server = BareServer->new($node);
#	$server->start;
#	$server->ask('SELECT 1');
#	$server->stop;
#
# The node is made by audited_node() with start => 0, and must not be started in
# another way meanwhile.  The server's log goes to a new file at each start.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package BareServer;

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";

use PaqTest;
use PgProto;
use POSIX qw(WNOHANG);
use PostgreSQL::Test::Utils;
use Time::HiRes qw(sleep time);

my %running;

# conf(): settings that make starting and stopping fast.
sub conf
{
	return <<'END';
fsync = off
autovacuum = off
shared_buffers = 1MB
wal_buffers = 128kB
max_connections = 10
max_wal_senders = 0
wal_level = minimal
max_worker_processes = 2
max_logical_replication_workers = 0
log_statement = none
max_locks_per_transaction = 10
jit = off
END
}

sub new
{
	my ($class, $node) = @_;

	return bless {
		node => $node,
		log  => PostgreSQL::Test::Utils::tempdir() . '/' . $node->name . '.log'
	}, $class;
}

# set(%settings): pg_audit_queue's settings from the next start on, names
# without the prefix, in place of those set before.
sub set
{
	my ($self, %settings) = @_;

	$self->{settings} = \%settings;
	return;
}

# start(): returns false if the server ends instead of accepting connections.
sub start
{
	my ($self) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	$self->_launch;
	while (!$self->_is_ready)
	{
		return 0 if $self->_has_ended;
		die "the server does not become ready:\n" . $self->log if time > $end;
		sleep 0.005;
	}
	return 1;
}

# start_until_stopped(): until a fault point has stopped the postmaster or the
# worker.
sub start_until_stopped
{
	my ($self) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	$self->_launch;
	until (grep { is_stopped($_) } $self->{pid}, $self->worker // ())
	{
		die "the server ends:\n" . $self->log if $self->_has_ended;
		die "nobody is stopped:\n" . $self->log if time > $end;
		sleep 0.005;
	}
	return;
}

# start_or_stop(): until it accepts connections ("ready"), a fault point has
# stopped the postmaster or the worker ("stopped"), or it has ended ("ended").
# Returns which of these.
sub start_or_stop
{
	my ($self) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	$self->_launch;
	while (1)
	{
		return 'ended' if $self->_has_ended;
		return 'stopped' if grep { is_stopped($_) } $self->{pid}, $self->worker // ();
		return 'ready' if $self->_is_ready;
		die "nothing happens:\n" . $self->log if time > $end;
		sleep 0.005;
	}
}

sub _launch
{
	my ($self) = @_;
	my %settings = %{ $self->{settings} // {} };

	unlink($self->{log});
	my $pid = fork() // die "fork: $!";
	if ($pid == 0)
	{
		my $program = $self->{node}->installed_command('postgres');
		my @options =
		  map { ('-c', "pg_audit_queue.$_=$settings{$_}") } sort keys %settings;

		open STDIN, '<', '/dev/null';
		open STDOUT, '>', $self->{log} or POSIX::_exit(1);
		open STDERR, '>&', \*STDOUT;
		POSIX::setsid();
		{
			exec $program, '-D', $self->{node}->data_dir, @options;
		}
		POSIX::_exit(1);
	}
	$self->{pid}   = $pid;
	$running{$pid} = $self;
	return;
}

sub _has_ended
{
	my ($self) = @_;

	return 0 if waitpid($self->{pid}, WNOHANG) != $self->{pid};
	delete $running{ delete $self->{pid} };
	return 1;
}

sub _is_ready
{
	my ($self) = @_;

	return $self->log =~ /ready to accept connections/;
}

sub node
{
	return $_[0]{node};
}

# make_extension(): start it for the first time, create the extension, and stop.
sub make_extension
{
	my ($self) = @_;

	$self->start or die "the server does not start:\n" . $self->log;
	$self->ask('CREATE EXTENSION pg_audit_queue', user => 'paq_quiet') eq
	  'C:CREATE_EXTENSION' or die 'no extension';
	$self->stop;
	return;
}

# log(): the server's log since the last start.
sub log
{
	my ($self) = @_;

	return -e $self->{log} ? slurp_file($self->{log}) : '';
}

# connect(%options): a PgProto client.
sub connect
{
	my ($self, %options) = @_;

	return PgProto->connect($self->{node}, %options);
}

# ask($sql, %options): in a new connection.  Returns PgProto's words.
sub ask
{
	my ($self, $sql, %options) = @_;
	my $client = $self->connect(%options);
	my $answer = $client->query($sql);

	$client->quit;
	return $answer;
}

# stop($signal): INT unless given, a fast shutdown.  Returns the exit status.
sub stop
{
	my ($self, $signal) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;

	kill($signal // 'INT', $self->{pid});
	while (waitpid($self->{pid}, WNOHANG) != $self->{pid})
	{
		if (time > $end)
		{
			my $log = $self->log;

			$self->kill_all;
			die "the server does not stop:\n$log";
		}
		sleep 0.005;
	}
	delete $running{ delete $self->{pid} };
	return $?;
}

# children(): process ids of the server's children.
sub children
{
	my ($self) = @_;

	return split ' ', slurp_file("/proc/$self->{pid}/task/$self->{pid}/children");
}

# worker(): process id of the worker, undef if there is none.
sub worker
{
	my ($self) = @_;

	foreach my $pid ($self->children)
	{
		my $title = eval { slurp_file("/proc/$pid/cmdline") } // '';

		return $pid if $title =~ /pg_audit_queue worker/;
	}
	return undef;
}

# kill_all(): all of them before any notices that another is dead; returns when
# all have gone.
sub kill_all
{
	my ($self) = @_;
	my $pid = $self->{pid} // return;
	my @pids;

	# nobody is born while we count
	kill('STOP', $pid);
	poll_until(sub { is_stopped($pid) || !_is_alive($pid) })
	  or die "process $pid does not stop";
	@pids = $self->children;
	delete $self->{pid};
	kill('KILL', @pids, $pid);
	waitpid($pid, 0);
	delete $running{$pid};
	foreach my $child (@pids)
	{
		poll_until(sub { !_is_alive($child) }) or die "process $child does not end";
	}
	return;
}

# Not a zombie that nobody has waited for
sub _is_alive
{
	my ($pid) = @_;
	my $stat = eval { slurp_file("/proc/$pid/stat") } // return 0;

	return $stat !~ /\) [ZX] /;
}

END
{
	my $status = $?;

	$_->kill_all foreach values %running;
	$? = $status;
}

1;
