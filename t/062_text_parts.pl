#
# Texts of several statements: each record has its statement's part and the
# place of the part, so that the trail is as long as the text that was sent.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;
use PgProto;

use List::Util qw(max sum);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node('main', settings => { log => 'all, -connect', queue_size => '256kB' });

# Records of a string that is sent as it is, with an answer that matches.

sub records_of
{
	my ($sql, $answer, %settings) = @_;

	return records_for(
		$node,
		sub {
			my $client = PgProto->connect($node, options => $ENV{PGOPTIONS});

			like($client->query($sql), $answer, 'what the client is told');
			$client->quit;
		},
		settings => \%settings);
}

# Where a record says that its text is, in what was sent, there it is; a masked
# one has its beginning there.  Returns the texts.
sub texts_in_place
{
	my ($sent, @records) = @_;
	my @wrong;

	foreach my $record (@records)
	{
		my ($text, $location, $length) =
		  @$record{qw(commandText statementLocation statementLength)};
		my $part =
		  defined $location
		  ? substr($sent, $location, $length // length $sent)
		  : shown_text($node, $sent);

		$text =~ s/<REDACTED>.*//s;
		$part =~ s/\s+$// if defined $location;
		push @wrong, $record->{commandText}
		  if length $text < length $record->{commandText}
		  ? index($part, $text) != 0
		  : $part ne $text;
	}
	is("@wrong", '', 'each text is where its record says');
	return map { $_->{commandText} } @records;
}

sub texts_are
{
	my ($sql, $expected, $name, %settings) = @_;
	my @records = records_of($sql, qr/C:|[EI]/, %settings);

	is_deeply([ texts_in_place($sql, @records) ], $expected, $name)
	  or diag explain [ columns('class command exitCode commandText', @records) ];
	return @records;
}

sub trail_bytes
{
	flush_trail($node);
	return sum(map { -s $_ } trail_files($node));
}

# A string of many: nothing but the records themselves makes the trail longer.

my $many = join '', map { "SELECT $_;" } 1 .. 2000;
my $before = trail_bytes();
my @records = records_of($many, qr/C:SELECT_1/);
my $bytes = trail_bytes() - $before;

is(scalar @records, 2000, 'as many records as statements');
is_deeply(
	[ texts_in_place($many, @records) ],
	[ map { "SELECT $_" } 1 .. 2000 ],
	'each with its own text');
cmp_ok($bytes, '<', 2000 * 2000, 'the trail is as long as the statements');

# What a statement executes in its turn has no longer texts, either.

unaudited_sql(
	$node, q{
	CREATE TABLE also (a int); CREATE TABLE instead (a int); CREATE TABLE done (a int);
	CREATE RULE r AS ON UPDATE TO also DO ALSO INSERT INTO done VALUES (new.a);
	CREATE RULE r AS ON UPDATE TO instead DO INSTEAD INSERT INTO done VALUES (1)});
foreach my $statement (
	'EXPLAIN (ANALYZE) SELECT %d',
	'CREATE TABLE made%d AS SELECT 1',
	'COPY (SELECT %d) TO STDOUT',
	'BEGIN; DECLARE c CURSOR FOR SELECT %d; FETCH c; COMMIT',
	'SET pg_audit_queue.log_level = debug%d',
	'UPDATE also SET a = 1',
	'UPDATE instead SET a = 1',
	'PREPARE p%d AS SELECT 1; EXECUTE p%1$d',
	'CREATE MATERIALIZED VIEW v%d AS SELECT 1; REFRESH MATERIALIZED VIEW v%1$d',
	'CREATE SCHEMA s%d CREATE TABLE t (a int) CREATE VIEW v AS SELECT 1',
	'DO $$begin perform %d; end$$')
{
	my $sql = join '; ', map { my $n = $_; sprintf($statement, ($n) x 2) } 1 .. 5;

	@records = grep { ($_->{commandText} // '') ne '' }
	  records_for($node, sub { PgProto->connect($node)->query($sql) }, config => 1);
	cmp_ok(scalar @records, '>=', 5, "records of: $statement");
	cmp_ok(max(map { length $_->{commandText} } @records), '<=',
		max(map { length } split /; (?=[A-Z])/, $sql), 'none has the text of two')
	  or diag explain [ columns('class command commandText', @records) ];
}

# White space, comments, and what is not in any statement

texts_are("  SELECT 1 ;\n\t SELECT 2\r\n;;\n SELECT 3  \n",
	[ 'SELECT 1', 'SELECT 2', 'SELECT 3' ], 'without white space around them');
my $commented = "/* 1 */ SELECT 1 /* 2 */; /* 3 */ SELECT 2; -- 4\nSELECT 3 -- 5";
my @texts = texts_in_place($commented, records_of($commented, qr/C:SELECT_1/));
is_deeply([ map { /(SELECT \d)/ } @texts ], [ 'SELECT 1', 'SELECT 2', 'SELECT 3' ],
	'with comments: the statements');
like("$texts[0] $texts[2]", qr{/\* 2 \*/ .*-- 5}s, 'comments behind a statement are its');
texts_are($_, [ shown_text($node, $_) ], "alone in its string: $_")
  foreach "SELECT 1;", " SELECT 1 ; ;\n", "SELECT 1 -- b;";
my $comment = '/* a */ ';
texts_are("${comment}SELECT 1", [ ($node->pg_version >= 18 ? '' : $comment) . 'SELECT 1' ],
	'a comment in front of it');
texts_are(
	q{SELECT 'a;b' ; SELECT $x$ ; $x$; SELECT 1},
	[ q{SELECT 'a;b'}, q{SELECT $x$ ; $x$}, 'SELECT 1' ],
	'semicolons within');

# Statements that fail

unaudited_sql($node, 'CREATE ROLE nobody; CREATE TABLE secret (a int)');
@records = records_of("SELECT 1; SET ROLE nobody; SELECT a FROM secret; SELECT 4", qr/E:42501/);
is_deeply(
	[ columns('exitCode commandText', @records) ],
	[ '00000|SELECT 1', '00000|SET ROLE nobody', '42501|SELECT a FROM secret' ],
	'denied');
@records = records_of('SELECT 1; SELECT 1 / (relnatts - relnatts) FROM pg_class; SELECT 4', qr/E:22012/);
is_deeply(
	[ columns('class exitCode commandText', @records) ],
	[ 'READ|00000|SELECT 1', 'READ|22012|SELECT 1 / (relnatts - relnatts) FROM pg_class' ],
	'failed');
@records = records_of('SELECT 1; SELECT nothing; SELECT 4', qr/E:42703/);
is_deeply(
	[ columns('class exitCode commandText', @records) ],
	[ 'READ|00000|SELECT 1', 'ERROR|42703|SELECT 1; SELECT nothing; SELECT 4' ],
	'not even executed: what was sent');

# Secrets are masked in the part; where that was, is said in what was sent.

my $secret = "SELECT 1; ALTER ROLE nobody PASSWORD 'tOpSeCrEt'; SELECT 3";
@records = records_of($secret, qr/C:SELECT_1/);
texts_in_place($secret, @records);
is_deeply(
	[ columns('statementLocation statementLength', @records) ],
	[ '0|8', '10|38', '50|' ], 'masked: location and length');
is_deeply(
	[ map { $_->{commandText} =~ s/'//gr } @records ],
	[ 'SELECT 1', 'ALTER ROLE nobody PASSWORD <REDACTED>', 'SELECT 3' ],
	'masked: texts');
is(texts_in_trail($node, 'tOpSeCrEt'), 0, 'no secret is in the trail');

# The same without the text, or with it once

@records = records_of('SELECT 1; SELECT 2', qr/C:/, log_statement => 'off');
is_deeply([ columns('commandText commandTextOmitted statementLocation', @records) ],
	[ '|not logged|0', '|not logged|10' ], 'log_statement = off');
@records = records_of(
	'SELECT a FROM secret s1; SELECT s1.a FROM secret s1, also s2',
	qr/C:/,
	log_statement_once => 'on',
	log_relation       => 'on');
is_deeply(
	[ columns('commandText commandTextOmitted statementLocation', @records) ],
	[
		'SELECT a FROM secret s1||0',
		'SELECT s1.a FROM secret s1, also s2||25',
		'|previously logged|25'
	],
	'log_statement_once');

# The body of a function in SQL, and of an event that is executed in it

unaudited_sql(
	$node, q{
	CREATE FUNCTION f() RETURNS int LANGUAGE sql AS '
		UPDATE done SET a = 1;
		INSERT INTO done VALUES (2);
		DELETE FROM done;
		SELECT 4';});
is_deeply(
	[ columns('commandText', records_of('SELECT f()', qr/C:/, log => 'read, write')) ],
	[
		'UPDATE done SET a = 1', 'INSERT INTO done VALUES (2)', 'DELETE FROM done',
		'SELECT 4',    'SELECT f()'
	],
	'statements of a function');
unaudited_sql($node, "CREATE FUNCTION long() RETURNS int LANGUAGE sql AS '"
	  . join(';', map { "UPDATE done SET a = $_" } 1 .. 1000)
	  . "; SELECT 1'");
$before = trail_bytes();
@records = records_of('SELECT long()', qr/C:/, log => 'write');
is(scalar @records, 1000, 'a long function: all records');
cmp_ok(trail_bytes() - $before, '<', 1000 * 2000, 'and the trail is no longer than they are');

# Parameters are looked through for secrets in the part only.

unaudited_sql(
	$node, q{
	CREATE FUNCTION g(text) RETURNS text LANGUAGE sql AS '
		SELECT $1;
		SELECT set_config(''my.password'', $1, true)'});
is_deeply(
	[
		map { "@{ $_->{paramList} // [] }" } grep { $_->{commandText} =~ /\$1/ }
		  records_of(q{SELECT g('x')}, qr/C:/, log_parameter => 'on')
	],
	[ 'x', '<REDACTED>' ],
	'parameters of a function with a secret');

# A prepared statement has the text that it was prepared with, a cursor that of
# its declaration, whatever is sent with them.

my @prepared = columns('command commandText',
	records_of('SELECT 1; PREPARE p AS SELECT 2; EXECUTE p; SELECT 3', qr/C:/));
is_deeply(
	\@prepared,
	[
		'SELECT|SELECT 1',
		'PREPARE|PREPARE p AS SELECT 2',
		'SELECT|PREPARE p AS SELECT 2',
		'EXECUTE|EXECUTE p',
		'SELECT|SELECT 3'
	],
	'EXECUTE');

# A rule's statements have the text of what they were made of, in a function with
# several statements that of all.

is_deeply(
	[
		columns(
			'command commandText',
			records_of('SELECT 1; UPDATE also SET a = 2; UPDATE instead SET a = 3', qr/C:/))
	],
	[
		'SELECT|SELECT 1', 'INSERT|UPDATE also SET a = 2',
		'UPDATE|UPDATE also SET a = 2', 'INSERT|UPDATE instead SET a = 3'
	],
	'rules');
unaudited_sql($node, q{CREATE FUNCTION h() RETURNS int LANGUAGE sql AS
	'UPDATE also SET a = 1; SELECT 1'});
is_deeply(
	[ columns('command commandText', records_of('SELECT h()', qr/C:/, log => 'write')) ],
	[ 'INSERT|UPDATE also SET a = 1; SELECT 1', 'UPDATE|UPDATE also SET a = 1' ],
	'a rule in a function');

# A long one among short ones, which does not fit into the queue

my $long = 'x' x 600_000;
@records = records_of("SELECT 1; SELECT length('$long'); SELECT 3", qr/C:/);
is_deeply(
	[ map { length $_->{commandText} } @records ],
	[ 8, length("SELECT length('$long')"), 8 ],
	'a part that is longer than the queue');

check_trail($node, 'the trail is whole');
done_testing();
