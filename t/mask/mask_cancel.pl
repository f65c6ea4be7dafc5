# Long texts and mask_patterns: whoever cancels a statement, or ends its session, does not wait
# for the masking of its text; and where nobody can, it takes no long time.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqPolicy;
use PaqTest;

use List::Util qw(min);
use PgProto;
use Test::More;
use Time::HiRes qw(time);

use PostgreSQL::Test::Utils;

# README's pattern for card numbers; what it matches takes long.
my ($pattern) = slurp_file("$FindBin::RealBin/../../README.md") =~ /mask_patterns = '(".*?")';$/m
  or die 'no pattern in README.md';
my $card = '4111 1111 1111 1111';
my $mb = 1024 * 1024;

sub cards
{
	my ($bytes) = @_;

	return "$card " x ($bytes / (length($card) + 1));
}

# Masking that much takes so long that whoever had to wait for it would be noticed.
my $size = 20 * $mb;

my $node = audited_node(
	'main',
	settings => { log => 'all', mask_patterns => $pattern =~ s/\\/\\\\/gr, log_parameter => 'on' },
	conf => "autovacuum = off\n");

unaudited_sql($node, 'CREATE ROLE ann LOGIN');

# Seconds that the code takes
sub seconds
{
	my ($do) = @_;
	my $begin = time;

	$do->();
	return time - $begin;
}

# The records since a sequence, without those of other sessions
sub records_since
{
	my ($sequence) = @_;

	flush_trail($node);
	return grep { ($_->{dbUserName} // '') eq 'ann' } records_after($node, $sequence);
}

my $ann = PgProto->connect($node, user => 'ann');

# A literal that the message quotes, and that goes on where the message is cut
my $secret = 'S3cr3t' x 50000;

for my $shift (0, 1, 2000, 4096, 5000)
{
	my $filler = 'x' x (256 * 1024 - 150000 - $shift);

	my $before = flush_trail($node);
	like($ann->query("SELECT '$filler', 'y$secret'::int AS password"), qr/E:22P02/, 'a long secret in a message');
	my ($record) = grep { ($_->{exitCode} // '') eq '22P02' } records_since($before);
	unlike($record->{errorMessage}, qr/S3cr3t/, "is not shown ($shift)");
	$before = flush_trail($node);
	like($ann->query("DO \$x\$ BEGIN RAISE EXCEPTION '% %', repeat('x', length('$filler')), 'y$secret' USING HINT = 'password'; END \$x\$"),
		qr/E:P0001/, 'the same behind other text');
	($record) = grep { ($_->{exitCode} // '') eq 'P0001' } records_since($before);
	unlike($record->{errorMessage}, qr/S3cr3t/, "is not shown ($shift)");
}

# A statement that succeeds although somebody wants to cancel it: its text is whole.
unaudited_sql($node, q{
	CREATE SCHEMA s; CREATE TABLE s.t (name text, a int);
	INSERT INTO s.t SELECT 'name ' || i, i FROM generate_series(1, 100) AS i;
	GRANT USAGE ON SCHEMA s TO ann; GRANT SELECT ON s.t TO ann });
install_policy($node, "record all all all read s.t rows>=1 statement=normalized name=t\n",
	log => 'none', mask_patterns => $pattern =~ s/\\/\\\\/gr);
my $filler = 'x' x (300 * 1024);
my $before = flush_trail($node);

$ann->query("DO \$d\$ DECLARE r text; c bool; BEGIN BEGIN
	SELECT /* $filler */ name, pg_cancel_backend(pg_backend_pid()) INTO r, c FROM s.t WHERE name = 'name 77' AND a > 5;
	PERFORM pg_sleep(10);
	EXCEPTION WHEN query_canceled THEN NULL; END; END \$d\$");
my ($record) = grep { ($_->{policy} // '') eq 't' } records_since($before);

is($record->{exitCode}, '00000', 'a statement succeeds although it is to be cancelled');
like($record->{commandText}, qr/FROM s\.t WHERE name = \$1 AND a > \$2$/, 'its text is whole');

# Likewise parameters
unaudited_sql($node, q{
	CREATE TABLE s.fired (a int); GRANT INSERT ON s.fired TO PUBLIC;
	CREATE FUNCTION s.cancel() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN RETURN CASE WHEN pg_cancel_backend(pg_backend_pid()) THEN NEW ELSE NEW END; END';
	CREATE TRIGGER t AFTER INSERT ON s.fired FOR EACH ROW EXECUTE FUNCTION s.cancel();
	CREATE TABLE s.result (x int, y text); GRANT INSERT ON s.result TO PUBLIC;
	CREATE PROCEDURE s.p(x int, y text, last bool) LANGUAGE sql AS
		'INSERT INTO s.result VALUES (x, y); INSERT INTO s.fired SELECT 1 WHERE last' });
install_policy($node, "record all all all all all outcome=ok parameters=on mandatory name=p\n", log => 'none');
$before = flush_trail($node);
$ann->parse('', "/* set_config $filler */ CALL s.p(\$1, \$2::text, true)");
$ann->bind('', '', 4242, 'forty-two');
$ann->execute('');
$ann->sync;
($record) = grep { ($_->{command} // '') eq 'CALL' } records_since($before);
is(join(',', @{ $record->{paramList} }), '4242,forty-two',
	'of one that calls a procedure, whatever becomes of it, parameters are whole, too');

# A text that has been read with the other setting, which there is up to 18, and that no record
# has had before
if ($node->pg_version->major < 19)
{
	install_policy($node, "record nowhere all all all all\n", log => 'read',
		mask_patterns => $pattern =~ s/\\/\\\\/gr);
	$before = flush_trail($node);
	unlike($ann->query(q{SET standard_conforming_strings = off;
		SELECT a /* password */ FROM s.t WHERE name <> U&'q' AND name = 'name 56'}),
		qr/E:/, 'a literal of Unicode escapes, read before the setting was another');
	$ann->query(q{RESET standard_conforming_strings});
	($record) = grep { $_->{class} eq 'READ' } records_since($before);
	like($record->{commandText}, qr/U&'q' AND name = 'name 56'$/, 'is no reason to mask anything');
}
install_policy($node, "record nowhere all all all all\n", log => 'all', log_parameter => 'on',
	mask_patterns => $pattern =~ s/\\/\\\\/gr);

# The time that a long text takes if nobody cancels it
my $text = cards(4 * $mb);
$before = flush_trail($node);
my $whole = seconds(sub { like($ann->query("SELECT length('$text')"), qr/^(?!.*E:)/s, 'a long text') });
($record) = records_since($before);

unlike($record->{commandText}, qr/1111/, 'its secrets are masked');
like($record->{commandText}, qr/^SELECT length\('<REDACTED> /, 'and nothing else');
$whole *= $size / length $text;

# The time that the text takes to the executor, with nothing in it that would be masked.
# Others that use the machine can but add to a time, so the least of three counts.
$text = 'four words and more ' x ($size / 20);
my $plain = min(map { seconds(sub { $ann->query("SELECT length('$text')") }) } 1 .. 3);

# Whoever cancels is patient enough for that, and for a third of the masking.
my $timeout = int(1000 * (1.5 * $plain + 0.3));
my $patience = $timeout / 1000 + $plain + $whole / 3;

cmp_ok($patience, '<', $whole, "that $whole s would be too long for whoever waits $patience s");
$text = cards($size);

# Statements that are cancelled: each gives up soon, and has a record that says so.
my %statements = (
	query => sub { $_[0]->start("SELECT length('$text')") },
	utility => sub { $_[0]->start("DO \$x\$ BEGIN PERFORM '$text'; END \$x\$") },
	parameter => sub {
		my ($client) = @_;

		$client->parse('', 'SELECT length($1::text)');
		$client->bind('', '', $text);
		$client->execute('');
		$client->start_sync;
	});
for my $name (sort keys %statements)
{
	my $client = PgProto->connect($node, user => 'ann');
	my $answer;

	$client->query("SET statement_timeout = $timeout");
	$before = flush_trail($node);
	my $time = seconds(sub { $statements{$name}->($client); $answer = $client->finish });

	like($answer, qr/E:57014/, "$name: cancelled");
	cmp_ok($time, '<', $patience, "$name: soon");
	my @records = grep { ($_->{exitCode} // '') eq '57014' } records_since($before);

	cmp_ok(scalar @records, '>=', 1, "$name: it has a record");
	is(scalar(grep { ($_->{commandText} // '') =~ /1111/ || "@{$_->{paramList} // []}" =~ /1111/ } @records),
		0, "$name: without a secret");
	$client->quit;
}

# Sessions that are ended
for my $name (sort keys %statements)
{
	my $client = PgProto->connect($node, user => 'ann');
	my $pid = $client->pid;

	$statements{$name}->($client);
	ok(poll_until(sub {
		unaudited_sql($node, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND state = 'active'")
		  =~ /1/ }), "$name: at work");
	my $time = seconds(sub {
		unaudited_sql($node, "SELECT pg_terminate_backend($pid)");
		$node->poll_query_until('postgres',
			"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	});

	cmp_ok($time, '<', $patience, "$name: a session that is ended ends soon");
	$client->hang_up;
}

# Where an error is being handled, nobody can cancel anything: short, and nothing is shown.
$before = flush_trail($node);
my $time = seconds(sub { like($ann->query("SELECT '$text' +++"), qr/E:42601/, 'a text that is wrong') });

cmp_ok($time, '<', $patience, 'which does not take long');
($record) = records_since($before);
like($record->{commandText}, qr/^SELECT '<REDACTED>' \+\+\+$/, 'and all of its literals are masked');
ok($record->{masked}, 'as the record says');

# Operator characters in what a literal contains: the scanner can take quadratic time for them.
for ([ 2000, 0, 'take little time, and literals are shown' ], [ 20_000, 1, 'are not scanned, and literals are masked' ])
{
	my ($length, $masked, $name) = @{$_};
	my $run = '/*' . '+-' x ($length / 2) . '*/';

	$before = flush_trail($node);
	unlike($ann->query("DO \$x\$ BEGIN $run PERFORM 'password=secret', 'shown'; END \$x\$"),
		qr/E:/, "$length operator characters");
	($record) = grep { ($_->{command} // '') eq 'DO' } records_since($before);
	unlike($record->{commandText}, qr/secret/, 'secrets are masked');
	is($record->{commandText} =~ qr{'shown'} ? 0 : 1, $masked, $name);
}

# Messages: the beginning, with secrets masked up to its end
for my $shift (0, 3, 7, 11, 16)
{
	my $filler = 256 * 1024 - 4096 - 30 + $shift;

	$before = flush_trail($node);
	$time = seconds(sub {
		like($ann->query("DO \$x\$ BEGIN RAISE EXCEPTION '%', repeat('x', $filler) || ' ' || repeat('$card ', 800000); END \$x\$"),
			qr/E:P0001/, 'a long message')
	});
	cmp_ok($time, '<', $patience, 'does not take long');
	($record) = grep { ($_->{exitCode} // '') eq 'P0001' } records_since($before);
	my $message = $record->{errorMessage};

	unlike($message, qr/111/, "its secrets are masked, the one that the cut meets, too ($shift)");
	cmp_ok(length $message, '>', 200 * 1024, 'its beginning is shown');
	cmp_ok(length $message, '<', 257 * 1024, 'and no more');
	ok($record->{cut}, 'as the record says');
}

$ann->quit;
check_trail($node);
done_testing();
