#-------------------------------------------------------------------------
#
# PaqKafka.pm
#	A Kafka broker for a test, run by scripts/kafka in a folder of its own.
#
#	my ($available, $reason) = PaqKafka::available();
#	plan skip_all => $reason if !$available;
#	my $kafka = PaqKafka->new(tls => 1, sasl => 1);
#	$kafka->topic('audit', 2, 'max.message.bytes' => 2_000_000);
#	... $kafka->bootstrap('ssl') ... $kafka->ca_file ...
#	foreach my $record ($kafka->consume('audit'))
#	{
#		my ($partition, $offset, $key, $value) = @$record;
#	}
#	$kafka->kill9;
#	$kafka->start;
#
# The folder is among the test's temporary ones: a test that fails keeps it, with
# the broker's log in kafka.log.  The broker ends with the object.  Functions die
# if they cannot do their work, with what scripts/kafka says.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqKafka;

use strict;
use warnings;

use FindBin;
use IPC::Run;
use List::Util qw(sum0);

use PostgreSQL::Test::Utils;

my $script = "$FindBin::RealBin/../../scripts/kafka";

# available(): whether a broker can be run here; and if not, why.
sub available
{
	my ($status, $stdout, $stderr) = _run('check');

	return 1 if $status == 0;
	chomp $stderr;
	return (0, $stderr);
}

# new(%options): make a broker and start it.
#
# Options:
#	tls			1: listen for SSL, too
#	sasl		1: listen for SSL and SASL_SSL, too
#	set			hash of settings of the broker's
sub new
{
	my ($class, %options) = @_;
	my $dir  = PostgreSQL::Test::Utils::tempdir() . '/kafka';
	my $self = bless { dir => $dir, owner => $$ }, $class;
	my $set  = $options{set} // {};

	$self->_start(
		$options{tls}  ? '--tls'  : (),
		$options{sasl} ? '--sasl' : (),
		map { ('--set', "$_=$set->{$_}") } sort keys %$set);
	return $self;
}

# start(): start a broker that was stopped or killed; it goes on with its data, at
# the same addresses.
sub start
{
	my ($self) = @_;

	$self->_start;
	return;
}

sub stop
{
	my ($self) = @_;

	$self->_must('stop');
	delete $self->{is}{pid};
	return;
}

sub restart
{
	my ($self) = @_;

	$self->stop;
	$self->start;
	return;
}

# kill9(): end it as a crash would.
sub kill9
{
	my ($self) = @_;

	$self->_must('kill');
	delete $self->{is}{pid};
	return;
}

# bootstrap($listener): the address for clients.  $listener is plaintext (also if it
# is not given), ssl or sasl_ssl.
sub bootstrap
{
	my ($self, $listener) = @_;

	return $self->_value($listener // 'plaintext');
}

# Certificates and key as files in PEM: the CA's, which has signed the broker's, and
# those of a client.
sub ca_file            { return $_[0]->_value('ca') }
sub client_certificate { return $_[0]->_value('client_certificate') }
sub client_key         { return $_[0]->_value('client_key') }

# The one who may log in by SASL, with PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
sub user     { return $_[0]->_value('user') }
sub password { return $_[0]->_value('password') }

# Process id; undef if it does not run
sub pid { return $_[0]->{is}{pid} }

# log_text(): what the broker has logged since it was started last.
sub log_text { return slurp_file($_[0]->_value('log')) }

# topic($name, $partitions, %config): create a topic.
sub topic
{
	my ($self, $name, $partitions, %config) = @_;

	$self->_must('topic', $name, $partitions // 1, map { "$_=$config{$_}" } sort keys %config);
	return;
}

# topic_size($topic): bytes of its records, as the broker has written them into files.
sub topic_size
{
	my ($self, $topic) = @_;

	return sum0(map { -s } glob "$self->{dir}/log/$topic-[0-9]*/*.log");
}

# consume($topic): its records from the beginning to where it ends now, as arrays of
# partition, offset, key and value; a key or value that is null is undef.  In the
# order of partitions and offsets.  Keys must not have tabs, values no newlines.
sub consume
{
	my ($self, $topic) = @_;

	return map {
		[ map { $_ eq '\N' ? undef : $_ } split /\t/, $_, 4 ]
	} split /\n/, $self->_must('consume', $topic);
}

# tool($class, @arguments): run a class of Kafka's, as ConsoleProducer, with an
# input if the first argument is a reference to one.  Returns its status, its output
# and its messages.  Some of the tools fail with messages only.
sub tool
{
	my ($self, $class, @arguments) = @_;
	my $stdin = ref $arguments[0] ? shift @arguments : \'';

	return _run('tool', $stdin, $self->{dir}, $class, @arguments);
}

sub _start
{
	my ($self, @options) = @_;

	$self->{is} = { map { split / /, $_, 2 } split /\n/, $self->_must('start', @options) };
	return;
}

sub _value
{
	my ($self, $name) = @_;

	return $self->{is}{$name} // die "the broker has no $name";
}

# Run a command of the script on the broker's folder; returns what it prints.
sub _must
{
	my ($self, $command, @arguments) = @_;
	my ($status, $stdout, $stderr) = _run($command, $self->{dir}, @arguments);

	die "scripts/kafka $command has failed: $stderr" if $status != 0;
	return $stdout;
}

# Run a command, with an input if the first argument is a reference to one.  Returns
# status, output and messages.
sub _run
{
	my ($command, @arguments) = @_;
	my $stdin = ref $arguments[0] ? shift @arguments : \'';
	my ($stdout, $stderr) = ('', '');

	IPC::Run::run([ $script, $command, @arguments ], '<', $stdin, '>', \$stdout, '2>', \$stderr);
	return ($?, $stdout, $stderr);
}

# Only in the process that has made it, and without touching its exit status
sub DESTROY
{
	my ($self) = @_;

	local ($?, $@, $!);
	_run('kill', $self->{dir}) if $self->{owner} == $$ && $self->{is}{pid};
	return;
}

1;
