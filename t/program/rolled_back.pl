# What was rolled back: its records say that it has succeeded, and the program tells what
# became of it, as far as the trail says so: of whole transactions, of what was done since a
# savepoint, however it is written, and nothing that was not rolled back.  And all records of
# a transaction, by its id, which it did not have at its beginning.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
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

# The longest name, of 63 bytes, but that the longer one is cut behind a character
my $short = 'n' x 62;
my $long  = $short . "\xc3\xa9";

# x: rolled back; w: this, too, but the trail does not say so for certain; y: it stays
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
	# names that PostgreSQL reads in another way
	'BEGIN', 'SAVEPOINT x', q{INSERT INTO t VALUES ('y7')}, 'SAVEPOINT U&"x"', q{INSERT INTO t VALUES ('w1')},
	'ROLLBACK TO x', 'COMMIT',
	'BEGIN', 'SAVEPOINT u', q{INSERT INTO t VALUES ('y8')}, 'SAVEPOINT x', q{INSERT INTO t VALUES ('w2')},
	'ROLLBACK TO U&"x"', 'COMMIT',
	'BEGIN', 'SAVEPOINT savepoint', q{INSERT INTO t VALUES ('y9')}, 'SAVEPOINT x',
	q{INSERT INTO t VALUES ('w3')}, 'ROLLBACK TO SAVEPOINT U&"x"', 'COMMIT',
	'BEGIN', "SAVEPOINT $short", q{INSERT INTO t VALUES ('y10')}, "SAVEPOINT $long",
	q{INSERT INTO t VALUES ('w4')}, "ROLLBACK TO $short", 'COMMIT',
	# what comes behind one is known again
	'BEGIN', "SAVEPOINT \xc3\xa9", q{INSERT INTO t VALUES ('y11')}, 'SAVEPOINT x',
	q{INSERT INTO t VALUES ('x15')}, 'ROLLBACK TO x', 'COMMIT',
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
  foreach 'BEGIN', q{INSERT INTO t VALUES ('x16')}, ' ROLLBACK ';
$client->quit;
$other->quit;
flush_trail($node);

my @undone   = texts_of(chosen('--outcome=undone'));
my @expected = map { "x$_" } 1 .. 16;

is(numbers_of(@undone), "@expected", 'what was rolled back');
is(scalar(@undone), 16, 'and nothing else');
is(unaudited_sql($node, q{SELECT string_agg(DISTINCT a, ' ') FROM t WHERE a ~ '^[wxz]'}), '', 'as the table says');
is(unaudited_sql($node, q{SELECT count(*) FROM t WHERE a ~ '^y'}), 12, 'and that the others are there');

# Lines of json stay as they are: the option chooses.
my %lines = map { $_ => 1 } trail_lines($node);
is_deeply([ grep { !$lines{$_} } chosen('--outcome=undone') ], [], 'json is what the files have');
is((chosen('--count', '--outcome=undone'))[0], 16, '--count');
is((chosen('--count', '--outcome=ok', '--text=x16'))[0], 1, 'it has succeeded');

# A table has the mark.
my %outcome = map { m{ (ok|undone|\d{5}) .*VALUES \('(\w+)'\)} ? ($2 => $1) : () }
  chosen('--format=table', '--command=INSERT');
is_deeply([ grep { $outcome{$_} ne 'undone' } @expected[ 1 .. 11, 14, 15 ] ], [], 'table: undone');
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
is_deeply([ chosen("--transaction=$last->{transactionId}", '--to-sequence=' . ($last->{sequence} - 1)) ],
	[], 'before it got its id, it is not found');

# What was rolled back behind the range is marked.
is_deeply(
	[ texts_of(chosen('--outcome=undone', "--from-sequence=$last->{sequence}", "--to-sequence=$last->{sequence}")) ],
	[ $last->{commandText} ],
	'a ROLLBACK behind what was chosen counts');
$node->stop;

# ---------------------------------------------------------------------------
# Lines that a trail may have: of one session, and of its first transaction unless a number
# says otherwise.
# ---------------------------------------------------------------------------

my $sequence;

sub line_of
{
	my ($command, $text, $transaction, %more) = @_;
	my %field = (
		type                 => 'record',
		formatVersion        => 1,
		sequence             => ++$sequence,
		series               => 1,
		sessionId            => '1.1',
		sessionLine          => $sequence,
		virtualTransactionId => '1/' . ($transaction // 1),
		class                => ($command // '') eq 'INSERT' ? 'WRITE' : 'MISC',
		command              => $command,
		exitCode             => '00000',
		commandText          => $text,
		%more);
	my $json  = sub {
		my ($value) = @_;

		return !defined $value ? 'null' : ref $value ? JSON::PP->new->allow_nonref->encode($value) : $value =~ /^[1-9]\d*$/ ? $value
		  : '"' . $value =~ s/"/\\"/gr . '"';
	};

	# in the order that a trail has them
	return '{' . join(',',
		map { exists $field{$_} ? "\"$_\":" . $json->($field{$_}) : () }
		  qw(type formatVersion sequence series class command commandText exitCode
		  sessionLine sessionId virtualTransactionId cut part)) . "}\n";
}

# What the program says is undone in a file of such lines, and the CPU time that it takes
sub undone_of
{
	my (@lines) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/audit-2026-01-01_000000.json';
	my $before = (times)[2];

	append_to_file($file, join('', @lines));
	my ($status, $stdout, $stderr) = trail_program('cat', '--outcome=undone', $file);
	die "$status: $stderr" if $status != 0;
	return (numbers_of(texts_of(split /\n/, $stdout)), (times)[2] - $before);
}

my @cut_rollback = (
	[ ROLLBACK => 'ROLLBACK /* long', 1, cut => JSON::PP::true ],
	[ ROLLBACK => 'ROLLBACK', 1, part => { number => 1, count => 2, length => 9, sha256 => 'a' x 64 } ],
	[ ROLLBACK => undef ],
	[ ROLLBACK => 'ROLLBACK WORK what' ]);
foreach my $rollback (@cut_rollback)
{
	$sequence = 0;
	is((undone_of(
				line_of(BEGIN => 'BEGIN'),
				line_of(INSERT => q{INSERT INTO t VALUES ('x1')}),
				line_of(@$rollback),
				line_of(COMMIT => 'COMMIT')))[0],
		'',
		'a ROLLBACK whose text is not all there: ' . ($rollback->[1] // 'none'));
}

# A savepoint that nobody sees hides the older one of its name.
my @unseen = (
	[ [ SAVEPOINT => 'SAVEPOINT /* long', 1, cut => JSON::PP::true ] ],
	[ [ SAVEPOINT => undef ] ],
	[ [ undef, undef, undef, type => 'gap', class => 'GAP', exitCode => undef ] ],
	[]);
foreach my $lines (@unseen)
{
	$sequence = 0;
	my @begin = (
		line_of(BEGIN => 'BEGIN'),
		line_of(SAVEPOINT => 'SAVEPOINT s'),
		line_of(INSERT => q{INSERT INTO t VALUES ('x1')}));
	my @middle = map { line_of(@$_) } @$lines;
	$sequence++ if !@$lines;
	is((undone_of(
				@begin, @middle,
				line_of(SAVEPOINT => 'SAVEPOINT q'),
				line_of(INSERT => q{INSERT INTO t VALUES ('x2')}),
				line_of(ROLLBACK => 'ROLLBACK TO q'),
				line_of(ROLLBACK => 'ROLLBACK TO s')))[0],
		'x2',
		'a savepoint that nobody sees: ' . (@$lines ? $lines->[0][0] // 'a gap' : 'a line that is gone'));
}

# Whoever may send statements decides how many savepoints a transaction has, and how often it goes
# back to them: what that costs must not grow with its square.
sub busy
{
	my ($transactions) = @_;
	my @lines;

	$sequence = 0;
	foreach my $number (1 .. 20_000)
	{
		my $transaction = 1 + $number % $transactions;

		push @lines,
		  line_of(SAVEPOINT => 'SAVEPOINT s',   $transaction),
		  line_of(ROLLBACK  => 'ROLLBACK TO s', $transaction),
		  line_of(RELEASE   => 'RELEASE s',     $transaction),
		  line_of(SAVEPOINT => 'SAVEPOINT t',   $transaction + $transactions);
	}
	push @lines, line_of(ROLLBACK => 'ROLLBACK TO nowhere', 1 + $transactions + $_ % $transactions)
	  foreach 1 .. 30_000;
	push @lines, line_of(INSERT => q{INSERT INTO t VALUES ('x')}) x 150_000;
	return @lines;
}

my ($undone_of_many, $seconds_of_many) = undone_of(busy(20_000));
my ($undone_of_one,  $seconds_of_one)  = undone_of(busy(1));
is("$undone_of_many$undone_of_one", '', 'nothing of it is undone');
cmp_ok($seconds_of_one, '<', 3 * $seconds_of_many + 0.3,
	'one transaction takes about as long as the same in many');

done_testing();
