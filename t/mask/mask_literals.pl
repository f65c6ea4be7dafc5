#
# mask_literals: constants and parameters of some classes of statements are not
# in the trail, and not in error messages that quote them.
#
# Every constant that must not be found is "zqs" or 777 with digits behind it.
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

my $node = audited_node('main',
	settings => { log_parameter => 'on', mask_literals => 'read, write, error, function' });

unaudited_sql(
	$node, q{
	CREATE TABLE p (id int PRIMARY KEY, name text);
	CREATE TABLE q (id int, name text);
	INSERT INTO p VALUES (0, 'x');
	CREATE FUNCTION f(text) RETURNS text LANGUAGE plpgsql AS $$
		BEGIN DELETE FROM q WHERE name = 'zqs1'; RETURN $1; END $$});

# The records of texts that a client sends, with parameters if there are any
sub recorded
{
	my ($settings, $text, @params) = @_;

	return grep { $_->{class} !~ /CONFIG/ } records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			$client->query("SET pg_audit_queue.$_ = $settings->{$_}") foreach sort keys %$settings;
			@params
			  ? $client->parse('', $text)->bind('', '', @params)->execute('')->sync
			  : $client->query($text);
			$client->quit;
		});
}

# What is shown in place of constants

foreach my $case (
	[ q{SELECT name FROM p WHERE id = 7771 AND name <> 'zqs2' -- 7}, q{SELECT name FROM p WHERE id = $1 AND name <> $2 -- 7} ],
	[ q{SELECT -7771, 1.5e10 / .5, '7'::int, NULL, true}, q{SELECT -$1, $2 / $3, $4::int, NULL, true} ],
	[ qq{SELECT 'zqs'\n'2', E'\\'zqs', \$a\$zqs\$a\$, U&'zqs', B'01', N'zqs', x'1f'},
		q{SELECT $1, $2, $3, $4, $5, N $6, $7} ],
	[ q{SELECT name AS "zq 1", p1.id FROM p AS p1 WHERE name='zqs'AND id=1 LIMIT'7'},
		q{SELECT name AS "zq 1", p1.id FROM p AS p1 WHERE name=$1 AND id=$2 LIMIT $3} ],
	[ q{INSERT INTO q VALUES (7771, 'zqs'), (7772, $$zqs$$)}, q{INSERT INTO q VALUES ($1, $2), ($3, $4)} ],
	[ q{DO $$ BEGIN PERFORM 'zqs'; END $$}, q{DO $1} ],
	[ q{SELECT name FROM p}, q{SELECT name FROM p} ])
{
	my ($sent, $shown) = @$case;

	# that of the text which the client has sent is the last one
	my $record = (recorded({}, $sent))[-1];

	is($record->{commandText}, $shown, $sent =~ s/\n/ /gr);
	is($record->{paramListOmitted}, 'masked', 'no parameters');
}

# What is a literal depends on a setting, which is not the one any more with
# which the text was parsed: names between constants stay
my @conforming = conforming_settings($node);

foreach my $case (
	grep { my ($parsed, $recorded) = @$_; @conforming > 1 || $parsed eq 'on' && $recorded eq 'on' }
	[ 'on', 'on', q{SELECT 'a\\', id, 'b' /* '*/ FROM p}, ', id, ' ],
	[ 'on', 'off', q{SELECT 'a\\', id, 'b' /* '*/ FROM p}, ', id, ' ],
	[ 'off', 'on', q{SELECT 'a\\', ' || name FROM p WHERE name <> ' x' -- '}, ' || name FROM p WHERE name <> ' ])
{
	my ($parsed, $recorded, $text, $names) = @$case;
	my ($record) = grep { $_->{class} eq 'READ' } records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			$client->query("SET standard_conforming_strings = $parsed");
			$client->query("SET standard_conforming_strings = $recorded; $text");
			$client->quit;
		});

	is($record->{exitCode}, '00000', "parsed $parsed, recorded $recorded: $text");
	like($record->{commandText}, qr/\Q$names\E/, 'names stay');
	unlike($record->{commandText}, qr/'a/, 'the constant does not');
	is($record->{paramListOmitted}, 'masked', 'marked');
}

# Numbers behind those of parameters, and no parameters
{
	my ($record) = recorded({}, 'INSERT INTO q SELECT $2::int, $1 || \'zqs3\' || 7771', 'zqs4', '77712');

	is($record->{commandText}, 'INSERT INTO q SELECT $2::int, $1 || $3 || $4', 'places behind parameters');
	is($record->{paramListOmitted}, 'masked', 'parameters are not recorded');
	is($record->{exitCode}, '00000', 'it worked');
}
($_) = recorded({ log_parameter => 'off' }, 'SELECT $1::text', 'zqs4');
is($_->{paramListOmitted}, 'not logged', 'log_parameter = off');

# What a function executes has a class of its own
{
	my @records = recorded({}, q{SELECT f('zqs5')});

	is((grep { $_->{class} eq 'WRITE' } @records)[0]{commandText}, 'DELETE FROM q WHERE name = $1', 'a nested statement');
	is_deeply([ map { $_->{commandText} } grep { $_->{class} =~ /READ|FUNCTION/ } @records ],
		[ ('SELECT f($1)') x 2 ], 'its caller, and the call');
}

# Errors: in a statement that is executed, before one is, in one that is denied
foreach my $case (
	[ q{SELECT name::int FROM p WHERE name || 'zqs6' <> 'y'},     'READ' ],
	[ q{INSERT INTO p VALUES (0, 'zqs6')},                        'WRITE' ],
	[ q{DO $$ BEGIN RAISE 'about zqs6 %', 7771; END $$},          'FUNCTION' ],
	[ q{SELECT 'zqs6'::int, 7771},                                'ERROR' ],
	[ q{SELECT 'zqs6' FRM 7771},                                  'ERROR' ])
{
	my ($record) = grep { $_->{class} eq $case->[1] } recorded({}, $case->[0]);

	isnt($record->{exitCode}, '00000', "an error: $case->[0]");
	is($record->{errorMessage}, '<masked>', 'its message');
	unlike($record->{commandText}, qr/zqs|777|\b0\b/, 'its text');
}

# Other classes, and other formats
($_) = grep { $_->{class} eq 'DDL' } recorded({}, q{CREATE TABLE t (a text DEFAULT 'shown')});
is($_->{commandText}, q{CREATE TABLE t (a text DEFAULT 'shown')}, 'another class');
($_) = grep { $_->{class} eq 'ROLE' } recorded({}, q{ALTER ROLE postgres PASSWORD 'zqs7' VALID UNTIL 'infinity'});
is($_->{commandText}, q{ALTER ROLE postgres PASSWORD '<REDACTED>' VALID UNTIL 'infinity'}, 'secrets as always');
($_) = grep { $_->{class} eq 'READ' } recorded({ mask_literals => 'none' }, q{SELECT 'shown', $1}, 'x');
is($_->{commandText}, q{SELECT 'shown', $1}, 'none');
is_deeply($_->{paramList}, ['x'], 'with parameters');

{
	my $end = shown_text($node, ';');
	my $stderr;

	$node->psql(
		'postgres', q{
		SET pg_audit_queue.log_client = on;
		SET pg_audit_queue.log_level = notice;
		SELECT 'zqs8', 7771;},
		stderr => \$stderr);
	like($stderr, qr/READ,SELECT,,,"SELECT \$1, \$2\Q$end\E",<masked>/, 'what the client is shown');
}
{
	my ($ret, $stdout, $stderr) =
	  $node->psql('postgres', q{SET pg_audit_queue.mask_literals = 'reads'});

	like($stderr, qr/Unrecognized statement class: "reads"/, 'a wrong class');
	unaudited_sql($node, 'CREATE ROLE plain LOGIN');
	($ret, $stdout, $stderr) = $node->psql('postgres', q{SET pg_audit_queue.mask_literals = none},
		extra_params => [ '-U', 'plain' ]);
	like($stderr, qr/permission denied to set parameter/, 'it is for superusers');
}

# A long text: in its spill file, too
recorded({}, "SELECT 'zqs9', '" . 'x' x 2_000_000 . "' -- zqcontrol " . 'y' x 2_000_000);

flush_trail($node);
is(texts_in_trail($node, 'zqcontrol'), 1, 'a long text is recorded');
foreach my $dir (trail_dir($node), queue_dir($node))
{
	foreach my $file (grep { -f "$dir/$_" } slurp_dir($dir))
	{
		my $bytes = slurp_file("$dir/$file");

		# times and other numbers of a record can have 777 in them
		is_deeply([ map { $bytes =~ m{$_.{0,10}}g } qr{.{0,30}zqs\d}, qr{(?<![.:/\w])777\d} ],
			[], "no constant in $file");
	}
}

$node->stop;
done_testing();
