#
# Texts of several statements, beyond what sql/text_parts.sql shows: white space and
# comments as a client sends them, and a part that is longer than the queue.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = audited_node('main', settings => { log => 'all, -connect', queue_size => '256kB' });

# Records of a string that is sent as it is, with an answer that matches.

sub records_of
{
	my ($sql, $answer) = @_;

	return records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			like($client->query($sql), $answer, 'what the client is told');
			$client->quit;
		});
}

# Where a record says that its text is, in what was sent, there it is.  Returns the
# texts.
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
		  ? substr($sent, $location, $length // length $sent) =~ s/\s+$//r
		  : shown_text($node, $sent);

		push @wrong, $text if $part ne $text;
	}
	is("@wrong", '', 'each text is where its record says');
	return map { $_->{commandText} } @records;
}

sub texts_are
{
	my ($sql, $expected, $name) = @_;
	my @records = records_of($sql, qr/C:|[EI]/);

	is_deeply([ texts_in_place($sql, @records) ], $expected, $name)
	  or diag explain [ columns('class command exitCode commandText', @records) ];
	return;
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
texts_are("${comment}SELECT 1", [ ($node->pg_version->major >= 18 ? '' : $comment) . 'SELECT 1' ],
	'a comment in front of it');

# A long one among short ones, which does not fit into the queue

my $long = 'x' x 600_000;
my @records = records_of("SELECT 1; SELECT length('$long'); SELECT 3", qr/C:/);
is_deeply(
	[ map { length $_->{commandText} } @records ],
	[ 8, length("SELECT length('$long')"), 8 ],
	'a part that is longer than the queue');

check_trail($node, 'the trail is whole');
done_testing();
