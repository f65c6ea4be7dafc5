#-------------------------------------------------------------------------
#
# PgProto.pm
#	A client that speaks PostgreSQL's protocol message by message: prepared
#	statements, portals that stop after some rows, requests that are sent
#	without waiting for the answers to earlier ones.
#
#	my $client = PgProto->connect($node, user => 'u');
#	$client->parse('s', 'SELECT ...')->bind('p', 's')->execute('p', 2);
#	is($client->sync, '1 2 D D s', ...);
#
# The server's answer is given as a string, a word for each message: the
# message's letter, for some messages with more behind it (see _word).  Messages
# that come at any time (notices, settings) are left out.
#
# Connects through the node's Unix-domain socket, without a password.  Methods
# that send return the client.  All methods die when the connection is lost, or
# when the server is silent for PostgreSQL's default timeout for tests.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PgProto;

use strict;
use warnings;

use Errno;
use IO::Select;
use IO::Socket::UNIX;
use Time::HiRes qw(time);

use PostgreSQL::Test::Utils;

# connect($node, %options): options are user and database; by default they are
# the superuser that initdb has made, and postgres; and options, as in PGOPTIONS,
# and replication, the values of the parameters with these names.
sub connect
{
	my ($class, $node, %options) = @_;
	my $path = $node->host . '/.s.PGSQL.' . $node->port;
	my $socket = IO::Socket::UNIX->new(Peer => $path)
	  // die "could not connect to $path: $!";
	my $self = bless { socket => $socket, out => '', in => '' }, $class;
	my $user = $options{user} // getpwuid($>);
	my @parameters =
	  ('user', $user, 'database', $options{database} // 'postgres');

	foreach my $name (qw(options replication))
	{
		push @parameters, $name, $options{$name} if defined $options{$name};
	}
	my $startup = pack('N (Z*)* x', 196608, @parameters);

	$self->{out} = pack('N', 4 + length $startup) . $startup;
	($self->{refused}) = $self->_answer('Z') =~ /\bE:(\w+)\z/;
	return $self;
}

# refused(): SQLSTATE with which the server has refused the connection; undef if it has not.
sub refused
{
	my ($self) = @_;

	return $self->{refused};
}

# pid(): process id of the server's end.
sub pid
{
	my ($self) = @_;

	return $self->{pid};
}

# query($sql): simple protocol, until it is done.
sub query
{
	my ($self, $sql) = @_;

	return $self->start($sql)->finish;
}

# rows($sql): the same, of a statement that is to work: dies with the message if it does
# not.  Returns what psql would print, unaligned, without headings.
sub rows
{
	my ($self, $sql) = @_;
	my @rows;
	my $error;

	$self->start($sql);
	while (1)
	{
		my ($letter, $body) = $self->_message;

		push @rows, join '|', _columns($body) if $letter eq 'D';
		$error //= join ':  ', $body =~ /\AS([^\0]*)\0/, $body =~ /\0M([^\0]*)\0/
		  if $letter eq 'E';
		last if $letter eq 'Z' || $letter eq 'E' && $body =~ /\AS(?:FATAL|PANIC)\0/;
	}
	die "$error\n" if defined $error;
	return join "\n", @rows;
}

# start($sql), finish(): the same in two steps.
sub start
{
	my ($self, $sql) = @_;

	return $self->_add('Q', pack('Z*', $sql))->_send;
}

sub finish
{
	my ($self) = @_;

	return $self->_answer('Z');
}

# is_answering($seconds): has the server begun to answer what was started, or does
# so within that time?
sub is_answering
{
	my ($self, $seconds) = @_;

	return $self->{in} ne '' || $self->_is_readable($seconds);
}

# Returns true if the server has sent something, or does so within that many seconds.
# select() ends early, without a result, when the test gets a signal.
sub _is_readable
{
	my ($self, $seconds) = @_;
	my $socket = IO::Select->new($self->{socket});
	my $end = time + $seconds;

	while (1)
	{
		my $left = $end - time;

		$! = 0;
		return 1 if $socket->can_read($left > 0 ? $left : 0);
		return '' if $left <= 0;
		die "could not wait for the server: $!" unless $! == 0 || $!{EINTR};
	}
}

# until($letters): the answer to what was started up to a message with one of the
# letters.
sub until
{
	my ($self, $letters) = @_;

	return $self->_answer($letters);
}

# call($function, @arguments): fast-path call of the function with that OID, until
# it is done.  Arguments are texts; undef is null.
sub call
{
	my ($self, @call) = @_;

	return $self->start_call(@call)->finish;
}

# start_call($function, @arguments): to be followed by finish().
sub start_call
{
	my ($self, $function, @arguments) = @_;

	return $self->_add('F',
		pack('N n n', $function, 0, scalar @arguments)
		  . _values(@arguments)
		  . pack('n', 0))->_send;
}

sub parse
{
	my ($self, $name, $sql) = @_;

	return $self->_add('P', pack('Z* Z* n', $name, $sql, 0));
}

# bind($portal, $name, @parameters): parameters are texts; undef is null.
sub bind
{
	my ($self, $portal, $name, @params) = @_;

	return $self->_add(
		'B',
		pack('Z* Z* n n', $portal, $name, 0, scalar @params)
		  . _values(@params)
		  . pack('n', 0));
}

# bind_formats($portal, $name, $formats): without parameters, with that many formats of
# columns of the result, text all of them.
sub bind_formats
{
	my ($self, $portal, $name, $formats) = @_;

	return $self->_add('B',
		pack('Z* Z* n n n n*', $portal, $name, 0, 0, $formats, (0) x $formats));
}

# execute($portal, $max_rows): 0 rows are all.
sub execute
{
	my ($self, $portal, $max_rows) = @_;

	return $self->_add('E', pack('Z* N', $portal, $max_rows // 0));
}

sub close_portal
{
	my ($self, $portal) = @_;

	return $self->_add('C', pack('a Z*', 'P', $portal));
}

# sync(): send what has been added, wait until all of it is done.
sub sync
{
	my ($self) = @_;

	return $self->start_sync->finish;
}

# start_sync(): the same without waiting, to be followed by finish().
sub start_sync
{
	my ($self) = @_;

	return $self->_add('S', '')->_send;
}

# flush($letters): send what has been added and, without ending the implicit
# transaction, wait for a message with one of the letters.
sub flush
{
	my ($self, $letters) = @_;

	return $self->_add('H', '')->_send->_answer($letters);
}

# quit(): say good-bye.
sub quit
{
	my ($self) = @_;

	# the server may have ended it already
	eval { $self->_add('X', '')->_send; };
	close $self->{socket};
	return;
}

# leave(): the same, and wait until the server's process has gone, if that is soon.
sub leave
{
	my ($self) = @_;
	my $rest;

	eval { $self->_add('X', '')->_send; };
	while (IO::Select->new($self->{socket})->can_read(1))
	{
		sysread($self->{socket}, $rest, 8192) or last;
	}
	close $self->{socket};
	return;
}

# hang_up(): go without a word.
sub hang_up
{
	my ($self) = @_;

	close $self->{socket};
	return;
}

# Values as messages have them
sub _values
{
	return join '',
	  map { defined $_ ? pack('N/a*', $_) : pack('N', 0xFFFFFFFF) } @_;
}

# The values in a message D, '' for null
sub _columns
{
	my ($body) = @_;
	my ($number, $at) = (unpack('n', $body), 2);
	my @values;

	foreach (1 .. $number)
	{
		my $length = unpack('l>', substr($body, $at, 4));

		push @values, $length < 0 ? '' : substr($body, $at + 4, $length);
		$at += 4 + ($length < 0 ? 0 : $length);
	}
	return @values;
}

sub _add
{
	my ($self, $letter, $body) = @_;

	$self->{out} .= pack('a N a*', $letter, 4 + length $body, $body);
	return $self;
}

sub _send
{
	my ($self) = @_;

	local $SIG{PIPE} = 'IGNORE';
	while ($self->{out} ne '')
	{
		my $done = syswrite($self->{socket}, $self->{out})
		  // die "could not send: $!";

		substr($self->{out}, 0, $done) = '';
	}
	return $self;
}

# The server's answer up to a message with one of the letters, or to the end
# of the connection after an error that ends it.
sub _answer
{
	my ($self, $letters) = @_;
	my @words;

	$self->_send;
	while (1)
	{
		my ($letter, $body) = $self->_message;
		my $word;

		$self->{pid} = unpack('N', $body) if $letter eq 'K';
		die 'the server asks for a password' if $letter eq 'R' && unpack('N', $body) != 0;
		$word = _word($letter, $body);
		push @words, $word if defined $word;
		last if index($letters, $letter) >= 0;
		last if $letter eq 'E' && $body =~ /\AS(?:FATAL|PANIC)\0/;
	}
	return join ' ', @words;
}

# Letter and body of the next message.
sub _message
{
	my ($self) = @_;
	my ($letter, $length);

	$self->_receive(5);
	($letter, $length) = unpack('a N', substr($self->{in}, 0, 5, ''));
	$self->_receive($length - 4);
	return ($letter, substr($self->{in}, 0, $length - 4, ''));
}

sub _receive
{
	my ($self, $length) = @_;

	while (length $self->{in} < $length)
	{
		$self->_is_readable($PostgreSQL::Test::Utils::timeout_default)
		  or die 'the server is silent';
		sysread($self->{socket}, $self->{in}, 65536, length $self->{in})
		  or die 'the server has closed the connection';
	}
	return;
}

# A message as a word: C has the command's tag, with "_" for spaces; E the
# SQLSTATE.  None for the end of an answer, row descriptions, and for messages
# that are not answers.
sub _word
{
	my ($letter, $body) = @_;

	return "C:" . (unpack('Z*', $body) =~ tr/ /_/r) if $letter eq 'C';
	return "E:" . ($body =~ /\0C(.{5})\0/ ? $1 : '') if $letter eq 'E';
	return undef if $letter =~ /[ZTNASKR]/;
	return $letter;
}

1;
