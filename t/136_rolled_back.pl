# What was rolled back: its records say that it has succeeded, and the program tells what
# became of it, as far as the trail says so: of whole transactions, of what was done since a
# savepoint, however it is written, and nothing that was not rolled back.  And all records of
# a transaction, by its id, which it did not have at its beginning.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;
use PgProto;

use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_trail_program();

my $node = audited_node('main', settings => { log => 'all', flush_interval => '10ms' });
my $dir  = trail_dir($node);

unaudited_sql($node, 'CREATE TABLE t (a text)');

# The lines that the program prints
sub chosen
{
	my (@options) = @_;
	my ($status, $stdout, $stderr) = trail_program('cat', @options, $dir);

	die "$status: $stderr" if $status != 0;
	return split /\n/, $stdout;
}

sub texts_of
{
	return map { parse_record($_)->{commandText} } @_;
}

# The parts of statements that say which one it is: 'x1', ...
sub numbers_of
{
	return join ' ', map { /'(x\w+)'/ ? $1 : () } @_;
}

my $client = PgProto->connect($node);
my $other  = PgProto->connect($node);

# x: rolled back; everything else stays
my @session = (
	q{INSERT INTO t VALUES ('y0')},
	'BEGIN', q{SELECT 'x1'}, q{INSERT INTO t VALUES ('x2')}, 'ROLLBACK',
	'START TRANSACTION', q{INSERT INTO t VALUES ('x3')}, '/* TO s */ aBort -- TO SAVEPOINT s',
	'BEGIN', q{INSERT INTO t VALUES ('x4')}, 'ROLLBACK/* /**/ */WORK AND CHAIN',
	q{INSERT INTO t VALUES ('y1')}, 'COMMIT',
	# savepoints
	'BEGIN', q{INSERT INTO t VALUES ('y2')}, 'SAVEPOINT s', q{INSERT INTO t VALUES ('x5')},
	'ROLLBACK TO s', q{INSERT INTO t VALUES ('x6')}, "rollback transaction\n--\nto savepoint S",
	q{INSERT INTO t VALUES ('y3')}, 'SAVEPOINT "S"', q{INSERT INTO t VALUES ('y4')},
	'RELEASE SAVEPOINT "S"', 'COMMIT',
	# of the same name, of a name that is a word, of one with quotes, nested
	'BEGIN', 'SAVEPOINT savepoint', q{INSERT INTO t VALUES ('x7')}, 'SAVEPOINT "a""B"',
	q{INSERT INTO t VALUES ('x8')}, 'SAVEPOINT savepoint', q{INSERT INTO t VALUES ('x9')},
	'ROLLBACK TO savepoint', 'RELEASE savepoint', q{INSERT INTO t VALUES ('x10')}, 'ROLLBACK TO "a""B"',
	'ROLLBACK TO SAVEPOINT savepoint', q{INSERT INTO t VALUES ('y5')}, 'COMMIT',
	# a savepoint in a transaction that is rolled back as a whole
	'BEGIN', 'SAVEPOINT s', q{INSERT INTO t VALUES ('x11')}, 'RELEASE s', q{INSERT INTO t VALUES ('x12')},
	'ROLLBACK TRANSACTION',
	# several statements in one message
	q{BEGIN; INSERT INTO t VALUES ('x13'); ROLLBACK; INSERT INTO t VALUES ('y6')},
	q{INSERT INTO t VALUES ('x14'); ROLLBACK},
	# no ROLLBACK is recorded, or none that says what it did
	'BEGIN', q{INSERT INTO t VALUES ('z1')}, 'SELECT 1/0', 'ROLLBACK',
	'SET pg_audit_queue.log_statement = off', 'BEGIN', q{INSERT INTO t VALUES ('z2')}, 'ROLLBACK',
	'RESET pg_audit_queue.log_statement');

foreach my $statement (@session)
{
	$client->query($statement);
	# the same times, and other transactions
	$other->query(q{INSERT INTO t VALUES ('other')}) if $statement =~ /^BEGIN/;
}

# Extended protocol
$client->parse('', $_)->bind('', '')->execute('')->sync
  foreach 'BEGIN', q{INSERT INTO t VALUES ('x15')}, ' ROLLBACK ';
$client->quit;
$other->quit;
flush_trail($node);

my @undone   = texts_of(chosen('--outcome=undone'));
my @expected = map { "x$_" } 1 .. 15;

is(numbers_of(@undone), "@expected", 'what was rolled back');
is(scalar(@undone), 15, 'and nothing else');
is(unaudited_sql($node, q{SELECT string_agg(DISTINCT a, ' ') FROM t WHERE a ~ '^[xz]'}), '', 'as the table says');

# Lines of json stay as they are: the option chooses.
my %lines = map { $_ => 1 } trail_lines($node);
is_deeply([ grep { !$lines{$_} } chosen('--outcome=undone') ], [], 'json is what the files have');
is((chosen('--count', '--outcome=undone'))[0], 15, '--count');
is((chosen('--count', '--outcome=ok', '--text=x15'))[0], 1, 'it has succeeded');

# A table has the mark.
my %outcome = map { m{ (ok|undone|\d{5}) .*VALUES \('(\w+)'\)} ? ($2 => $1) : () }
  chosen('--format=table', '--command=INSERT');
is_deeply([ grep { $outcome{$_} ne 'undone' } @expected[ 1 .. 11, 14 ] ], [], 'table: undone');
is_deeply([ grep { $_ !~ /^x/ && $outcome{$_} ne 'ok' } keys %outcome ], [], 'table: the others are not');
like(join("\n", chosen('--format=table', '--command=ROLLBACK,BEGIN,SAVEPOINT')), qr/\A(?!.* undone )/s,
	'table: nor is what controls transactions');

# All of a transaction
my ($last) = grep { ($_->{commandText} // '') =~ /'x2'/ } trail_records($node);
my @whole = chosen("--transaction=$last->{transactionId}");

is_deeply([ texts_of(@whole) ], [ @session[ 1 .. 4 ] ], 'by its id');
is(parse_record($whole[1])->{transactionId}, undef, 'which its first records do not have');
is_deeply([ chosen("--transaction=$last->{virtualTransactionId}", "--session=$last->{sessionId}") ],
	\@whole, 'by its virtual id');
is_deeply([ chosen("--transaction=1,$last->{transactionId}", '--command=BEGIN') ], [ $whole[0] ],
	'with other options');
is_deeply([ chosen('--transaction=1') ], [], 'another id');
like((trail_program('report', "--transaction=$last->{transactionId}", $dir))[1], qr/^Records +4$/m, 'a report');

# The id comes again after 2^32 transactions: a time tells which one.
is_deeply([ chosen("--transaction=$last->{transactionId}", "--from-sequence=$last->{sequence}") ],
	[ @whole[ 2, 3 ] ], 'of a time');
$node->stop;

done_testing();
