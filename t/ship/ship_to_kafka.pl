# pg_audit_trail ship, to Kafka: each record at least once and in order, by a real broker
# that is stopped and killed; by TLS and SASL; what is wrong is said, and mended later.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use Digest::MD5 qw(md5_hex);
use FindBin;
use lib "$FindBin::RealBin/../lib";
use List::Util qw(sum);
use PaqKafka;
use PaqTest;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_trail_program();
my $tmp = PostgreSQL::Test::Utils::tempdir();

# Write a file of properties; returns its path.
my $nfiles = 0;

sub properties_file
{
	my ($text, $mode) = @_;
	my $file = "$tmp/kafka" . ++$nfiles . '.conf';

	append_to_file($file, $text);
	chmod($mode // 0600, $file);
	return $file;
}

my @to_kafka = ('ship', '--consumer=x', '--kafka=' . properties_file("topic=x\n"), $tmp);
my ($available, $reason) = PaqKafka::available();
($available, $reason) = (0, 'this build has no librdkafka')
  if (trail_program(@to_kafka))[2] =~ /has no librdkafka/;
if (!$available)
{
	diag "NOT TESTED: $reason";
	plan skip_all => $reason;
}

my $node = audited_node('main', settings => { flush_interval => '20ms' });
my $dir  = trail_dir($node);

sub new_consumer
{
	my ($name) = @_;

	unaudited_sql($node, "SELECT audit_consumer_create('$name')");
	flush_trail($node);
	return;
}

sub ship_arguments
{
	my ($consumer, $file, @options) = @_;

	return ('ship', "--consumer=$consumer", "--kafka=$file", @options, $dir);
}

sub start_ship
{
	return start_trail_program(ship_arguments(@_));
}

sub says
{
	my ($ship, $message, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(poll_until(sub { $ship->{run}->pump_nb; $ship->{stderr} =~ $message }), $name)
	  or diag $ship->{stderr};
	return;
}

sub ship_once
{
	my ($code, $out, $err) = trail_program(ship_arguments(@_, '--once'));

	return ($code, $err, $out);
}

sub catches_up
{
	my ($name) = @_;

	return poll_until(sub {
			unaudited_sql($node, "SELECT lag_records FROM audit_consumers WHERE name = '$name'") eq '0' });
}

# Letters that no compression makes much shorter, as a broker's limits are for what it gets
sub incompressible
{
	my ($len) = @_;

	return substr(join('', map { md5_hex($_) } 0 .. $len / 32), 0, $len);
}

sub some_records
{
	my ($count) = @_;

	$node->safe_psql('postgres', join '', map { "SELECT $_;\n" } 1 .. $count // 5);
	flush_trail($node);
	return;
}

# ---------------------------------------------------------------------------
# A build without librdkafka
# ---------------------------------------------------------------------------

my $least = least_trail_program();
my ($stdout, $stderr);

IPC::Run::run([ $least, @to_kafka ], '<', \undef, '>', \$stdout, '2>', \$stderr);
is($? >> 8, 2, 'a build without librdkafka does not ship to Kafka');
like($stderr, qr/^pg_audit_trail: error: this build has no librdkafka\n/, 'and says so');
unlike(`ldd $least`, qr/rdkafka/, 'it does not need it');

# ---------------------------------------------------------------------------
# The file
# ---------------------------------------------------------------------------

foreach my $case (
	[ "topic = x\nno property\n",         qr/line 2 is not "name = value"/ ],
	[ "topic = x\n= y\n",                 qr/line 2 is not "name = value"/ ],
	[ "# only this\n\n",                  qr/has no topic/ ],
	[ "topic =\n",                        qr/line 1: the topic has no name/ ],
	[ "topic = x\n\ntopic = y\n",         qr/line 3: topic is set twice/ ],
	[ "topic = x\nkey = user\n",          qr/line 2: key must be "session" or "sequence"/ ],
	[ "topic = x\nno.such = 1\n",         qr/line 2: No such configuration property: "no\.such"/ ],
	[ "topic = x\nlinger.ms = long\n",    qr/line 2: Invalid value for configuration property "queue\.buffering\.max\.ms"/ ],
	[ "enable.idempotence=false\n",       qr/line 1: enable\.idempotence must be "true"/ ],
	[ "acks=1\n",                         qr/line 1: acks must be "all"/ ],
	[ "request.required.acks = 0\n",      qr/line 1: request\.required\.acks must be "all"/ ],
	[ "delivery.report.only.error=true\n", qr/line 1: delivery\.report\.only\.error must be "false"/ ],
	[ "topic=x\nssl.ca.location=/nowhere\nsecurity.protocol=ssl\n", qr/could not use file .*ssl\.ca\.location/ ],
	[ "topic=x\nmax.in.flight=100\n",     qr/could not use file .*max\.in/ ],
	[ "topic=x\n#" . 'x' x 70_000,        qr/is too long/ ],
	[ "topic=x\0\n",                      qr/is not a text/ ],
	[ "topic=x\n", qr/is accessible to its group or to others\n.*hint/, 0644 ])
{
	my ($text, $message, $mode) = @$case;
	my ($status, $err) = ship_once('x', properties_file($text, $mode));

	is($status, 2, 'refused');
	like($err, $message, 'with a message');
}
my ($status, $err) = ship_once('x', "$tmp/nowhere");
like($err, qr/could not open file ".*nowhere"/, 'a file that is not there');
($status, $err) = ship_once('x', properties_file("topic=x\n"), '--command=cat');
like($err, qr/more than one target specified/, 'two targets');

# ---------------------------------------------------------------------------
# Plain text
# ---------------------------------------------------------------------------

my $kafka = PaqKafka->new(sasl => 1, set => { 'listener.name.ssl.ssl.client.auth' => 'required' });
$kafka->topic('one', 1);
$kafka->topic('three', 3);
my $server = 'bootstrap.servers = ' . $kafka->bootstrap . "\n";
my $fast = "reconnect.backoff.max.ms=500\n";

# Test that a topic has the trail: with repeats, some records more than once.
sub is_shipped
{
	my ($topic, $key, $repeats) = @_;
	my (%seen, %last, @wrong);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	foreach my $record ($kafka->consume($topic))
	{
		my ($partition, undef, $is_key, $value) = @$record;
		my ($sequence) = $value =~ /"sequence":(\d+)/;
		my ($session)  = $value =~ /"sessionId":"([^"]*)"/;
		my $expected = $key eq 'session' ? $session // $sequence : $sequence;

		push @wrong, "key $is_key of $sequence" if $is_key ne $expected;
		push @wrong, "$sequence twice" if !$repeats && exists $seen{$sequence};
		push @wrong, "$sequence behind $last{$partition}"
		  if !$repeats && $sequence <= ($last{$partition} // 0);
		push @wrong, "another $sequence" if ($seen{$sequence} // $value) ne $value;
		$seen{$sequence} = $value;
		$last{$partition} = $sequence;
	}
	is("@wrong", '', "$topic: keys, order");
	my %trail = map { /"sequence":(\d+)/ ? ($1 => $_) : () } trail_lines($node);
	is_deeply(\%seen, \%trail, "$topic: it is the trail");
	return;
}

some_records(20) foreach 1 .. 3;
new_consumer($_) foreach qw(one three);
my $one = properties_file("# to Kafka\n\n${server}topic = one\nkey=sequence\n$fast");
my $three = properties_file("${server}topic=three \r\n$fast");
($status, $err) = ship_once('one', $one);
is("$status $err", '0 ', 'shipped');
is_shipped('one', 'sequence', 0);
my $ship = start_ship('three', $three);
some_records();
ok(catches_up('three'), 'followed');
($status, $err) = finish_trail_program($ship);
is("$status $err", '0 ', 'and ended');
is_shipped('three', 'session', 0);

# Batches are compressed unless the file says otherwise: bytes of a topic's log tell.
foreach my $case ([ 'packed', '' ], [ 'unpacked', "compression.codec = none\n" ])
{
	my ($name, $property) = @$case;

	$kafka->topic($name, 1);
	new_consumer($name);
	($status, $err) = ship_once($name, properties_file("${server}topic = $name\n$property"));
	is("$status $err", '0 ', "shipped, $name");
	is_shipped($name, 'session', 0);
}
my $trail_size = sum(map { length } trail_lines($node));
cmp_ok($kafka->topic_size('unpacked'), '>', $trail_size, 'without compression');
cmp_ok($kafka->topic_size('packed'), '<', $trail_size / 3, 'compressed by default');

# ---------------------------------------------------------------------------
# A broker that is stopped and killed, and a shipper that is killed
# ---------------------------------------------------------------------------

$ship = start_ship('three', $three);
some_records();
ok(catches_up('three'), 'before the broker is stopped');
$kafka->stop;
some_records();
says($ship, qr/error: Kafka: .*(?:refused|Disconnected|failed)/i, 'the broker is gone');
$kafka->start;
ok(catches_up('three'), 'and there again');
says($ship, qr/records are delivered to topic "three" again/, 'as is said');

# Statements until they are cancelled: whoever is killed has something to do.
my $load = start_psql($node, <<'EOF', name => 'load');
DO $$ BEGIN LOOP PERFORM 1; PERFORM pg_sleep(0.002); END LOOP; END $$;
EOF

# How far the topic "one" has got: as the broker has it, and as the consumer does, which comes
# later.
my %progress = (
	written      => sub { $kafka->topic_size('one') },
	acknowledged => sub { unaudited_sql($node, q{SELECT sequence FROM audit_consumers WHERE name = 'one'}) });

# Start to ship, and wait until more is there than before.
sub ship_some
{
	my ($what) = @_;
	my $before = $progress{$what}->();
	my $shipping = start_ship('one', $one);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(poll_until(sub { $progress{$what}->() > $before }), "records are $what");
	return $shipping;
}

my $killed = ship_some('acknowledged');
$kafka->kill9;
says($killed, qr/error: Kafka: /, 'the broker is killed');
finish_trail_program($killed, 'KILL');
$kafka->start;
finish_trail_program(ship_some($_), 'KILL') foreach qw(written acknowledged) x 2;
unaudited_sql($node, q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'load'});
my (undef, undef, $end_of_load) = finish_psql($load);
like($end_of_load, qr/57014/, 'there was something to ship until now');
flush_trail($node);
($status, $err) = ship_once('one', $one);
is($status, 0, 'after it was killed, it goes on');
ok(catches_up('three'), 'killed');
finish_trail_program($ship);
is_shipped('three', 'session', 1);
is_shipped('one', 'sequence', 1);

# ---------------------------------------------------------------------------
# A producer that cannot go on, and one that reports later records first
# ---------------------------------------------------------------------------

{
	local $ENV{LD_PRELOAD}   = build_preloaded('producer');
	local $ENV{PAQ_PRODUCER} = 'fatal';
	some_records(300);
	$ship = start_ship('three', $three);
	ok(catches_up('three'), 'after a fatal error of the producer there is a new one');
	($status, $err) = finish_trail_program($ship);
	like($err, qr/error: Kafka: test_fatal_error: fatal for a test\n/, 'it is reported');
	is($status, 0, 'and no reason to end');
	is_shipped('three', 'session', 1);

	$ENV{PAQ_PRODUCER} = 'late';
	my $place = q{SELECT sequence FROM audit_consumers WHERE name = 'three'};
	my $before = unaudited_sql($node, $place);
	some_records(30);
	$ship = start_ship('three', $three);
	says($ship, qr/(?:reported\n){20}/, 'later records are delivered');
	finish_trail_program($ship, 'KILL');
	is(unaudited_sql($node, $place), $before, 'they are not acknowledged before the first one');
}
($status, $err) = ship_once('three', $three);
is("$status $err", '0 ', 'which is delivered by the next one');

# ---------------------------------------------------------------------------
# TLS and SASL
# ---------------------------------------------------------------------------

my $tls_only = 'bootstrap.servers=' . $kafka->bootstrap('ssl') . "\nsecurity.protocol=ssl\n$fast";
my $tls = $tls_only . 'ssl.certificate.location=' . $kafka->client_certificate
  . "\nssl.key.location=" . $kafka->client_key . "\n";
my $sasl = 'bootstrap.servers=' . $kafka->bootstrap('sasl_ssl') . "\n$fast"
  . 'ssl.ca.location=' . $kafka->ca_file . "\nsecurity.protocol=sasl_ssl\n"
  . 'sasl.mechanism=PLAIN' . "\nsasl.username=" . $kafka->user . "\n";
my $topic = "topic=three\n";

some_records();
$ship = start_ship('three', properties_file($tls . $topic . 'ssl.ca.location=' . $kafka->client_certificate . "\n"));
says($ship, qr/Kafka: .*certificate verify failed/, 'a certificate of another CA');
finish_trail_program($ship, 'KILL');
is(unaudited_sql($node, "SELECT lag_records > 0 FROM audit_consumers WHERE name = 'three'"), 't',
	'nothing is shipped there');
my $ca = 'ssl.ca.location=' . $kafka->ca_file . "\n";
$ship = start_ship('three', properties_file("$tls_only$topic$ca"));
says($ship, qr/Kafka: .*(?:bad certificate|certificate required)/, 'no certificate of the client');
finish_trail_program($ship, 'KILL');
is(unaudited_sql($node, "SELECT lag_records > 0 FROM audit_consumers WHERE name = 'three'"), 't',
	'nothing is shipped without one');
($status, $err) = ship_once('three', properties_file("$tls$topic$ca"));
is("$status $err", '0 ', 'by TLS, with a certificate of the client');
some_records();
$ship = start_ship('three', properties_file("$sasl${topic}sasl.password=wrong\n"));
says($ship, qr/Kafka: .*[Aa]uthentication failed/, 'a wrong password');
unlike($ship->{stderr}, qr/wrong/, 'which is not printed');
finish_trail_program($ship, 'KILL');
($status, $err) = ship_once('three', properties_file("$sasl${topic}sasl.password=" . $kafka->password . "\n"));
is("$status $err", '0 ', 'by SASL');
is_shipped('three', 'session', 1);

# ---------------------------------------------------------------------------
# What the broker does not take
# ---------------------------------------------------------------------------

$kafka->topic('small', 1, 'max.message.bytes' => 20_000);
unaudited_sql($node, "SELECT audit_consumer_create('small', true)");
my $large = incompressible(50_000);
$node->safe_psql('postgres', "SELECT '$large'");
some_records();
my $small = properties_file("${server}topic=small\nkey=sequence\n");
$ship = start_ship('small', $small);
says($ship, qr/could not be delivered to topic "small": .*too large.*\n.*hint: Raise the topic's/, 'too large');
ok(poll_until(sub { my @records = $kafka->consume('small'); @records && $records[-1][3] !~ /$large/ }),
	'what is before it is delivered');
ok($kafka->consume('small') < 100, 'and what is behind it is not, again and again');
($status, undef, $err) = $kafka->tool(
	'kafka.admin.ConfigCommand', '--alter',
	'--entity-type' => 'topics',
	'--entity-name' => 'small',
	'--add-config'  => 'max.message.bytes=200000');
is("$status $err", '0 ', 'the topic takes more');
ok(catches_up('small'), 'and gets the rest');
says($ship, qr/records are delivered to topic "small" again/, 'as is said');
($status, $err) = finish_trail_program($ship);
is($status, 0, 'the same program has shipped it all');
my $reports = () = $err =~ /could not be delivered/g;
cmp_ok($reports, '<=', 2, 'what was wrong is not said at each attempt');
ok((grep { $_->[3] =~ /$large/ } $kafka->consume('small')) == 1, 'the large one, too');

new_consumer('own');
($status, $err) = ship_once('own', properties_file("${server}topic=one\nmessage.max.bytes=10000\n"));
like($err, qr/the record with sequence \d+, of \d+ bytes, is too large\n.*hint: Raise message\.max\.bytes/,
	'larger than the file allows');
is($status, 2, 'a failure');

# A limit for records of the trail makes it go.

ok(reload_settings($node, log_record_max_size => '8kB'), 'records have a limit');
$kafka->topic('parts', 3, 'max.message.bytes' => 10_000);
unaudited_sql($node, "SELECT audit_consumer_create('parts', true)");
$node->safe_psql('postgres', "SELECT 'parts $large'");
flush_trail($node);
($status, $err) =
  ship_once('parts', properties_file("${server}topic=parts\nmessage.max.bytes=10000\nbatch.size=9000\n"));
is("$status $err", '0 ', 'one larger than the limits is shipped');
my @parts = map { $_->[3] } grep { $_->[3] =~ /"part":/ } $kafka->consume('parts');
my ($first) = grep { /"commandText":"SELECT 'parts \w/ } @parts;
my ($count) = $first =~ /"number":1,"count":(\d+)/;
is(join(' ', map { /"part":\{"number":(\d+)/ } grep { /"sha256":"(\w+)"/ && $first =~ /$1/ } @parts),
	join(' ', 1 .. $count), 'in parts, in their order');
ok(reload_settings($node, log_record_max_size => '0'), 'and no limit any more');

new_consumer('unknown');
($status, $err) = ship_once('unknown',
	properties_file("${server}topic=later\ntopic.metadata.propagation.max.ms=200\n"));
is($status, 2, 'a topic that is not there');
like($err, qr/could not be delivered to topic "later": .*[Uu]nknown topic/, 'as is said');

$node->stop;
done_testing();
