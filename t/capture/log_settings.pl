# log_settings: what an application says of its users, in each record.
#
# The values are those of the moment when the record is made, in records of statements
# and events of all kinds, also those that fail or are interrupted; secrets and long
# values are not shown whole; nobody but a superuser decides whose values these are.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use Encode;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $list = 'shop.user_id, "Shop.Request_1", work_mem, shop.token';
my $node = audited_node(
	'main',
	settings => { log => 'all', log_settings => $list, flush_interval => '10ms' });

unaudited_sql($node, 'CREATE ROLE plain LOGIN; CREATE TABLE t (a int PRIMARY KEY)');

# The settings of some records, with whatever else is wanted of each: "ann|-|INSERT".
# From PostgreSQL 17 on, one that has lost its value does not differ from an empty one.
sub shown
{
	my ($names, @records) = @_;

	return [
		map {
			my $record = $_;
			my ($user, $request) = @{ $record->{settings} }{qw(shop.user_id Shop.Request_1)};

			$request = undef if defined $request && $request eq '';
			join '|', map({ $_ // '-' } $user, $request),
			  map { ($record->{$_} // '-') =~ s/;$//r } split / /, $names;
		} @records
	];
}

# Each statement by itself
sub records_of
{
	my ($sql, %options) = @_;

	return grep { $_->{class} ne 'CONNECT' } records_for($node, $sql, on_error_stop => 0, %options);
}

# ---------------------------------------------------------------------------
# Values in time
# ---------------------------------------------------------------------------

my @records = records_of(q{
	SELECT 1;
	SET shop.user_id = 'ann';
	SELECT 2;
	BEGIN;
	SET LOCAL shop.user_id = 'bob';
	SET shop.request_1 = '7';
	SELECT 3;
	SAVEPOINT s;
	SELECT set_config('shop.user_id', 'eve', true);
	SELECT 4;
	ROLLBACK TO s;
	SELECT 5;
	ROLLBACK;
	SELECT 6;
	SET shop.user_id = '';
	SELECT 7;
	DISCARD ALL;
	SELECT 8;});

$records[-1]{settings}{'shop.user_id'} ||= undef;
is_deeply(
	[ grep { /SELECT \d/ } @{ shown('commandText', @records) } ],
	[
		'-|-|SELECT 1', 'ann|-|SELECT 2', 'bob|7|SELECT 3', 'eve|7|SELECT 4',
		'bob|7|SELECT 5', 'ann|-|SELECT 6', '|-|SELECT 7', '-|-|SELECT 8'
	],
	'SET, SET LOCAL, set_config(), ROLLBACK TO, ROLLBACK, DISCARD');
is_deeply([ grep { /SET shop\.user_id/ } @{ shown('commandText', @records) } ],
	[ "-|-|SET shop.user_id = 'ann'", "ann|-|SET shop.user_id = ''" ],
	'the record of a SET has the value that was there before')
  or diag explain shown('commandText', @records);
is_deeply([ sort keys %{ $records[0]{settings} } ],
	[ sort 'shop.user_id', 'Shop.Request_1', 'work_mem', 'shop.token' ], 'names are as in the list');
is($records[0]{settings}{work_mem}, '4096', 'one of PostgreSQL\'s settings');
is($records[0]{policy}, undef, 'there is no policy');
like((trail_lines($node))[-1], qr/"auditType":"\w+","policy":null,/, 'but the field');
like((trail_lines($node))[-1], qr/"settings":\{"shop\.user_id":.*?\},"transactionId"/, 'the order of fields');

# ---------------------------------------------------------------------------
# Kinds of records
# ---------------------------------------------------------------------------

@records = records_of(q{
	SET shop.user_id = 'ann';
	INSERT INTO t VALUES (1), (1);
	SELECT nothing;
	nonsense;
	BEGIN;
	SET LOCAL shop.user_id = 'bob';
	SELECT count(*) / (count(*) - 2) FROM generate_series(1, 2);
	SELECT 'in an aborted transaction';
	ROLLBACK;
	CREATE TABLE u (a int PRIMARY KEY);
	DROP TABLE u;
	SET pg_audit_queue.log_rows = on;}, config => 1);
my %seen = map { $_ => 1 } @{ shown('class command exitCode', @records) };

ok($seen{$_}, "there is: $_") or diag explain \%seen
  foreach 'ann|-|WRITE|INSERT|23505', 'ann|-|ERROR|-|42703', 'ann|-|ERROR|-|42601',
  'bob|-|READ|SELECT|22012', 'ann|-|ERROR|-|25P02', 'ann|-|DDL|CREATE TABLE|00000',
  'ann|-|DDL|DROP TABLE|00000', 'ann|-|CONFIG|SET|00000';

@records = records_for($node, 'SELECT 1',
	connstr => $node->connstr('postgres') . " options='-cshop.user_id=ann'");
is_deeply(shown('command', @records), [ 'ann|-|LOGIN', 'ann|-|SELECT', 'ann|-|LOGOUT' ],
	'an option of the connection');
@records = records_for($node, undef, connstr => $node->connstr('postgres') . ' user=nobody_here');
is_deeply(shown('command exitCode', @records), ['-|-|LOGIN|28000'], 'a login that fails');
my @workers = grep { $_->{backendType} eq 'pg_audit_queue worker' } trail_records($node);

cmp_ok(scalar @workers, '>', 0, 'the worker has records');
is_deeply([ grep { defined } map { $_->{settings} } @workers ], [], 'without values');

# Each record has the values of its time.
@records = records_of(q{
	SET shop.user_id = 'outer';
	DO $$ BEGIN
		PERFORM set_config('shop.user_id', 'inner', false);
		PERFORM 'nested';
	END $$;});
is_deeply([ grep { /\|DO$|\|SELECT 'nested'$/ } map { @{ shown($_, @records) } } qw(command commandText) ],
	[ 'outer|-|DO', "inner|-|SELECT 'nested'" ], 'nested statements');

# ---------------------------------------------------------------------------
# Contents
# ---------------------------------------------------------------------------

my $letter = "\x{e4}";
my $text   = 'x' . $letter x 600;

@records = records_of(encode_utf8(qq{
	SET shop.user_id = E'quote " back \\\\ tab\\t newline\\n $letter';
	SET shop.token = 'sesame';
	SELECT 1;
	SET shop.user_id = '$text';
	SELECT 2;
	SET shop.user_id = '} . 'y' x 1024 . qq{';
	SELECT 3;
	SET shop.user_id = '} . 'z' x 1_000_000 . qq{';
	SELECT 4;}));
my %of = map { ($_->{commandText} =~ /^SELECT (\d)/ ? $1 : '') => $_ } @records;

is($of{1}{settings}{'shop.user_id'}, "quote \" back \\ tab\t newline\n $letter", 'characters');
is($of{1}{settings}{'shop.token'}, '<REDACTED>', 'a secret');
ok(!$of{1}{cut}, 'not cut');
is($of{2}{settings}{'shop.user_id'}, 'x' . $letter x 511, 'cut at a character');
ok($of{2}{cut}, 'and marked');
is($of{3}{settings}{'shop.user_id'}, 'y' x 1024, '1 kB is whole');
ok(!$of{3}{cut}, 'and not marked');
is($of{4}{settings}{'shop.user_id'}, 'z' x 1024, '1 MB is cut');
ok(!grep({ /sesame/ && !/commandText":"SET/ } trail_lines($node)), 'the secret is nowhere');

@records = records_of(
	q{SET shop.user_id = 'card 4111111111111111'; SELECT 1;},
	settings => { mask_patterns => '"[0-9]{13,19}"' });
is($records[-1]{settings}{'shop.user_id'}, 'card <REDACTED>', 'mask_patterns');

# ---------------------------------------------------------------------------
# Interrupted records
# ---------------------------------------------------------------------------

sub interrupted
{
	my ($sql) = @_;
	my $sequence = flush_trail($node);
	my $worker   = worker_pid($node);
	my $session  = start_psql($node, "$sql; SELECT 'last' FROM pg_sleep(600)", name => 'victim');
	my $pid;

	poll_until(
		sub {
			$pid = unaudited_sql($node, "SELECT pid FROM pg_stat_activity
				 WHERE application_name = 'victim' AND wait_event = 'PgSleep'");
		}) or die 'the statement does not get that far';
	kill('KILL', $pid);
	finish_psql($session);
	wait_for_worker($node, $worker);
	flush_trail($node);
	return grep { $_->{sequence} > $sequence && $_->{interrupted} } trail_records($node);
}

@records = interrupted("SET shop.user_id = 'ann'");
is_deeply(shown('exitCode commandText', @records),
	["ann|-|57P02|SELECT 'last' FROM pg_sleep(600)"], 'interrupted');
ok(!$records[0]{cut}, 'not cut');

# As much as there can be does not crowd out the statement.
@records = interrupted(
	q{SELECT set_config('pg_audit_queue.log_settings', string_agg('a.v' || n, ','), false),
			 set_config('a.v' || min(n), repeat('v', 1000), false) FROM generate_series(1, 16) n;
	  SELECT count(set_config('a.v' || n, repeat('v', 1000), false)) FROM generate_series(1, 16) n});
is($records[0]{commandText}, "SELECT 'last' FROM pg_sleep(600)", '16 kB: the statement is there');
ok($records[0]{cut}, '16 kB: but not all of them');
is_deeply([ grep { $_ ne 'v' x 1000 } values %{ $records[0]{settings} } ], [], 'those that are there are whole');

# ---------------------------------------------------------------------------
# Who decides
# ---------------------------------------------------------------------------

my ($status, undef, $stderr) = $node->psql('postgres', q{SET pg_audit_queue.log_settings = ''},
	connstr => $node->connstr('postgres') . ' user=plain');
isnt($status, 0, 'not an unprivileged user');
like($stderr, qr/permission denied to set parameter "pg_audit_queue\.log_settings"/, 'with an error');
foreach my $case (
	[ 'a b', qr/List syntax is invalid/ ],
	[ 'a,,b', qr/List syntax is invalid/ ],
	[ '"a b"', qr/"a b" is not a valid name/ ],
	[ 'a.', qr/"a\." is not a valid name/ ],
	[ '.a', qr/"\.a" is not a valid name/ ],
	[ '1a', qr/"1a" is not a valid name/ ],
	[ 'a.1b', qr/"a\.1b" is not a valid name/ ],
	[ 'shop.user_id, SHOP.USER_ID', qr/"shop\.user_id" is there more than once/ ],
	[ 'x' x 64, qr/is too long \(maximum 63 bytes\)/ ],
	[ join(',', map { "a.v$_" } 1 .. 17), qr/too many names \(maximum 16\)/ ])
{
	my ($value, $detail) = @$case;

	(undef, undef, $stderr) = $node->psql('postgres', "SET pg_audit_queue.log_settings = '$value'");
	like($stderr, qr/invalid value for parameter.*\n.*DETAIL:  .*$detail/s, "wrong: $value");
}
@records = records_of('SELECT 1', settings => { log_settings => '' });
is($records[0]{settings}, undef, 'without names, there are no values');
@records = records_of(q{SET a.b$1 = 'x'; SELECT 1}, settings => { log_settings => ' "a.b$1" ' });
is_deeply($records[-1]{settings}, { 'a.b$1' => 'x' }, 'a name in quotes');

# ---------------------------------------------------------------------------
# Format csvlog, of the server and of the program
# ---------------------------------------------------------------------------

# The hints of the statement below, behind the series
sub hints
{
	return [ map { $_->[15] =~ s/^series=\d+,//r } grep { $_->[13] =~ /SELECT 'odd'/ } parse_trail('csvlog', @_) ];
}

my $odd  = q{SET shop.user_id = E'a "b", c \\\\ d'; SELECT 'odd';};
my $hint = q{shop.user_id="a ""b"", c \ d",Shop.Request_1=,work_mem="4096",shop.token=};

$node->safe_psql('postgres', $odd);
flush_trail($node);

SKIP:
{
	skip 'there is no pg_audit_trail', 1 if !has_trail_program();
	my (undef, $rows) = trail_program('cat', '-f', 'csvlog', trail_files($node));
	my $file = PostgreSQL::Test::Utils::tempdir() . '/trail.csv';

	append_to_file($file, $rows);
	is_deeply(hints($file), [$hint], 'pg_audit_trail cat -f csvlog');
}
append_to_file($node->data_dir . '/postgresql.conf', settings_text(format => 'csvlog'));
$node->reload;
flush_trail($node);
$node->safe_psql('postgres', $odd);
flush_trail($node);
is_deeply(hints(grep { /\.csv$/ } trail_files($node)), [$hint], 'format csvlog');

$node->stop;
done_testing();
