# scripts/kafka and PaqKafka.pm, which tests of the way to Kafka stand on: a broker
# keeps what it has acknowledged over a crash and at the same addresses, gives it back
# whole, and lets in only whom it should.
#
# Runs when these change: scripts/kafka scripts/kafka.sums t/lib/PaqKafka.pm
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqKafka;

use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use Test::More;

my ($available, $reason) = PaqKafka::available();
if (!$available)
{
	diag "NOT TESTED: $reason";
	plan skip_all => $reason;
}

my $kafka = PaqKafka->new(sasl => 1, set => { 'message.max.bytes' => 100_000 });
my $base  = PostgreSQL::Test::Utils::tempdir();
my $java  = 'org.apache.kafka.common.security';

# Send lines, with the settings of a client; returns '' or what is wrong.
sub send_lines
{
	my ($topic, $listener, $settings, @lines) = @_;
	my $file = "$base/client.properties";
	my $text = join '', map { "$_=$settings->{$_}\n" } sort keys %$settings;

	unlink $file;
	append_to_file($file, "max.block.ms=10000\n$text");
	my ($status, $stdout, $stderr) = $kafka->tool('ConsoleProducer',
		\join('', map { "$_\n" } @lines), '--topic', $topic,
		'--bootstrap-server', $kafka->bootstrap($listener), '--producer.config', $file,
		'--property', 'parse.key=true', '--property', 'null.marker=NULL');
	return $stderr;
}

# Does the broker listen?
my $address = $kafka->bootstrap;

sub listens
{
	return defined IO::Socket::INET->new($address);
}

$kafka->topic('one', 1);
$kafka->topic('three', 3);
ok(listens(), 'a broker');
is_deeply([ $kafka->consume('one') ], [], 'an empty topic');

my %tls = (
	'security.protocol'       => 'SSL',
	'ssl.truststore.type'     => 'PEM',
	'ssl.truststore.location' => $kafka->ca_file);
my $module = "$java.plain.PlainLoginModule required username=";
my %plain = (%tls,
	'security.protocol' => 'SASL_SSL',
	'sasl.mechanism'    => 'PLAIN',
	'sasl.jaas.config'  => $module . $kafka->user . ' password="' . $kafka->password . '";');
my %scram = (%plain,
	'sasl.mechanism'   => 'SCRAM-SHA-512',
	'sasl.jaas.config' => $plain{'sasl.jaas.config'} =~ s/plain\.Plain/scram.Scram/r);

is(send_lines('one', 'plaintext', {}, "a\tfirst", "NULL\ttwo\ttabs\t"), '', 'sent in plain text');
is(send_lines('one', 'ssl', \%tls, "b\tÄ\\N"), '', 'sent by TLS');
is(send_lines('one', 'sasl_ssl', \%plain, "c\t"), '', 'sent by SASL PLAIN');
is(send_lines('one', 'sasl_ssl', \%scram, "d\tNULL"), '', 'sent by SCRAM');
my @expected = (
	[ 0, 0, 'a', 'first' ],
	[ 0, 1, undef, "two\ttabs\t" ],
	[ 0, 2, 'b', "Ä\\N" ],
	[ 0, 3, 'c', '' ],
	[ 0, 4, 'd', undef ]);
is_deeply([ $kafka->consume('one') ], \@expected, 'and read back');

$plain{'sasl.jaas.config'} =~ s/password="/password="x/;
like(send_lines('one', 'sasl_ssl', \%plain, "e\tx"), qr/Authentication failed/, 'a wrong password');
delete $tls{'ssl.truststore.location'};
delete $tls{'ssl.truststore.type'};
like(send_lines('one', 'ssl', \%tls, "e\tx"), qr/SSL handshake failed/, 'a CA that is not known');
is(scalar(() = $kafka->consume('one')), 5, 'nothing more has arrived');

is(send_lines('three', 'plaintext', {}, map { "k$_\tv$_" } 1 .. 1000), '',
	'sent to three partitions');
my $addresses = join ' ', map { $kafka->bootstrap($_) } qw(plaintext ssl sasl_ssl);
my @three = $kafka->consume('three');
my %partitions = map { $_->[0] => 1 } @three;
is(join(' ', sort keys %partitions), '0 1 2', 'three partitions');
is(join(' ', sort map { "$_->[2]=$_->[3]" } @three), join(' ', sort map { "k$_=v$_" } 1 .. 1000),
	'have all records');

$kafka->kill9;
ok(!listens(), 'killed');
ok(!eval { $kafka->consume('three'); 1 }, 'and cannot be read');
$kafka->start;
is(join(' ', map { $kafka->bootstrap($_) } qw(plaintext ssl sasl_ssl)), $addresses,
	'the same addresses');
is_deeply([ $kafka->consume('three') ], \@three, 'all is there after a crash');
$kafka->restart;
is_deeply([ $kafka->consume('one') ], \@expected, 'and after a restart');

ok(!eval { $kafka->consume('none'); 1 }, 'a topic that is not there');
ok(!eval { $kafka->topic('one', 1); 1 }, 'a topic that is there already');
undef $kafka;
ok(!listens(), 'the broker ends with the object');

done_testing();
