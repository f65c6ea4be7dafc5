# An auditor's questions: the commands and queries of doc/questions.md, as the page has them,
# are run on a server's trail, and each has the answer that it should have.
#
# Only names of places and times are put in their places: the directory, an hour, a
# transaction's id.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use IPC::Run;
use POSIX qw(strftime);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

need_trail_program();
$ENV{TZ} = 'UTC';
delete $ENV{COLUMNS};

# Rows of the table: question, command, query
my $page = slurp_file("$FindBin::RealBin/../../doc/questions.md");
my @rows = map { [ /^\| (.*?) \| `([^`]*)` \| `([^`]*)` \|$/ ] } grep { /^\| .*\?/ } split /\n/, $page;
my %asked;

is(scalar(@rows), 11, 'questions');
is_deeply([ grep { @$_ != 3 } @rows ], [], 'each has a command and a query');

my $superuser = getpwuid($>);
my $node = audited_node(
	'main',
	settings => {
		log => 'all', log_relation => 'on', log_settings => 'shop.user_id', flush_interval => '10ms'
	},
	conf => "listen_addresses = '127.0.0.1'\ntimezone = 'UTC'\nlog_timezone = 'UTC'\nautovacuum = off\n");
my $dir = trail_dir($node);

unaudited_sql($node, q{
	CREATE TABLE card (number text);
	INSERT INTO card SELECT generate_series(1, 20000);
	CREATE TABLE other (a int);
	CREATE ROLE alice LOGIN PASSWORD 'right';
	CREATE ROLE bob LOGIN;
	GRANT ALL ON card, other TO alice, bob;});
unlink($node->data_dir . '/pg_hba.conf') or die "unlink: $!";
$node->append_conf('pg_hba.conf', "local all paq_quiet,$superuser,alice trust\nlocal all bob trust\n"
	  . "host all all 127.0.0.1/32 scram-sha-256\n");
$node->reload;

# Have a file of its own made for the records of these statements; returns its path.
sub make_file
{
	my (@statements) = @_;

	flush_trail($node);
	my $file   = unaudited_sql($node, 'SELECT audit_rotate()');
	my $client = PgProto->connect($node);
	$client->query($_) foreach @statements;
	$client->quit;
	flush_trail($node);
	unaudited_sql($node, 'SELECT audit_rotate()');
	return $file =~ m{^/} ? $file : $node->data_dir . "/$file";
}

# ---------------------------------------------------------------------------
# What happens
# ---------------------------------------------------------------------------

# Removed by retention
my $old = make_file('SELECT 1');
foreach my $file ((trail_files($node))[ 0, 1 ])
{
	utime(time - 3 * 86400, time - 3 * 86400, $file) or die "utime: $!";
}

sub as_user
{
	my ($user, @statements) = @_;
	my $client = PgProto->connect($node, user => $user);

	$client->query($_) foreach @statements;
	$client->quit;
	return;
}

my @reading = (
	[ alice => 'SELECT * FROM card' ],
	[ bob   => q{COPY card TO STDOUT} ],
	[ bob   => q{UPDATE card SET number = number WHERE number = '1'} ],
	[ bob   => 'SELECT * FROM other' ]);
as_user(@$_) foreach @reading;
as_user($superuser, 'SET ROLE bob', 'SELECT 2', 'RESET ROLE', 'SELECT 3');

# One user of the pool's database user after the other
as_user('alice', q{SET shop.user_id = 'ann'}, 'SELECT * FROM other', q{SET shop.user_id = 'ben'},
	'SELECT 4', q{SET shop.user_id = 'ann'}, 'DELETE FROM other', 'SELECT nothing');

# Logins
my $port = $node->port;
foreach (1 .. 2)
{
	local $ENV{PGPASSWORD} = 'wrong';
	$node->psql('postgres', undef, connstr => "host=127.0.0.1 port=$port dbname=postgres user=alice");
}
$node->psql('nowhere', undef, extra_params => [ '-U', 'bob' ]);

# Settings
as_user($superuser, 'ALTER ROLE bob SET pg_audit_queue.log = none', 'SET pg_audit_queue.log_rows = on',
	'ALTER ROLE bob RESET pg_audit_queue.log', 'SET work_mem = 100');
as_user('alice', 'SET pg_audit_queue.log = none');

# Transactions
my @undone = ('SELECT count(*) FROM other', 'INSERT INTO other VALUES (1)');
as_user('alice', 'BEGIN', @undone, 'ROLLBACK', 'BEGIN', 'INSERT INTO other VALUES (2)', 'COMMIT');

# Removed by somebody
my $lost = make_file('SELECT 7', 'SELECT 8');
my ($first, $last) = map { parse_record($_)->{sequence} } (split /\n/, slurp_file($lost))[ 0, -1 ];
unlink($lost) or die "unlink: $!";
make_file('SELECT 9');
$node->append_conf('postgresql.conf', settings_text(log_retention_age => '2d'));
$node->reload;
ok(poll_until(sub { !-e $old }), 'retention removes a file');
flush_trail($node);

# ---------------------------------------------------------------------------
# Questions and answers
# ---------------------------------------------------------------------------

my ($written) = grep { ($_->{commandText} // '') eq $undone[1] } trail_records($node);
my %places = (
	'/var/log/postgresql-audit' => $dir,
	'2026-11-20T10:00'          => strftime('%Y-%m-%dT%H:%M', gmtime(time - 3600)),
	'2026-11-20T11:00'          => strftime('%Y-%m-%dT%H:%M', gmtime(time + 3600)),
	761                         => $written->{transactionId});
my $places = join '|', map { quotemeta } sort keys %places;

# Command and query of the only question with that word in it, with names of places put in
sub ask
{
	my ($word) = @_;
	my @found = grep { index($_->[0], $word) >= 0 } @rows;

	die "$word: " . @found . ' questions' if @found != 1;
	$asked{ $found[0][0] } = 1;
	my ($command, $query) = map { s/($places)/$places{$1}/gr } @{ $found[0] }[ 1, 2 ];
	my ($stdout, $stderr);

	chomp(my $bin = `pg_config --bindir`);
	local $ENV{PATH} = "$bin:$ENV{PATH}";
	IPC::Run::run([ 'sh', '-c', $command ], '>', \$stdout, '2>', \$stderr);
	my $status = $? >> 8;
	return ($stdout, unaudited_sql($node, $query), $stderr, $status);
}

# Lines of a table without its header, and times: user and text of each
sub lines_of
{
	my ($table) = @_;
	my ($header, @lines) = split /\n/, $table;
	my $at = index($header, 'text');

	return map { (/^\S+ \S+ (\S+)/)[0] . '|' . substr($_, $at) } @lines;
}

# Columns of rows
sub fields_of
{
	my ($rows, @columns) = @_;

	return map { join '|', (split /\|/, $_, -1)[@columns] } split /\n/, $rows;
}

# Tests that command and query have these answers: users and texts.
sub answers
{
	my ($word, $expected, @columns) = @_;
	my ($table, $rows, $stderr, $status) = ask($word);

	is_deeply([ lines_of($table) ], $expected, "$word: the command");
	is_deeply([ fields_of($rows, @columns) ], $expected, "$word: the query");
	is($status, 0, "$word: status");
	return $stderr;
}

my $message = answers('table `card`', [ map { "$_->[0]|$_->[1]" } @reading[ 0, 1 ] ], 1, 4);
like($message, qr/warning: \d+ READ records .* name no object/, 'what it may have left out');

my ($report, $rows) = ask('logins failed');
like($report, qr/^Failed logins by client:\n.*\n127\.0\.0\.1 +2 .*\n\[local\] +1 /m, 'failed logins: the command');
is_deeply([ fields_of($rows, 0, 1, 4) ], [ '127.0.0.1|2|{alice}', '[local]|1|{bob}' ], 'failed logins: the query');

my ($table, $answer) = ask('between 10 and 11');
my @of_alice = grep { grep { ($_ // '') eq 'alice' } @$_{qw(dbUserName sessionUser currentUser)} } trail_records($node);
cmp_ok(scalar(@of_alice), '>', 15, 'alice has done something');
is(scalar(lines_of($table)), scalar(@of_alice), 'alice: the command');
is(scalar(split /\n/, $answer), scalar(@of_alice), 'alice: the query');

# The question before has been recorded, too.
flush_trail($node);
my @expected = map { "$_->{currentUser}|" . ($_->{commandText} // '') } grep { $_->{superuser} } trail_records($node);
($table, $answer) = ask('superusers do');
is_deeply([ fields_of($answer, 2, 4) ], \@expected, 'superusers: the query');
is(scalar(lines_of($table)), scalar(@expected), 'superusers: the command');
is(scalar(grep { /SELECT 3/ } lines_of($table)), 1, 'superusers: themselves');
is(scalar(grep { /SELECT 2/ } lines_of($table)), 0, 'superusers: not as others');

($table, $answer) = ask('removed from the trail');
my ($name) = $old =~ m{([^/]+)$};
like($table, qr/ RETENTION .* ok .*\Q$name\E/, 'removed: the command');
like($answer, qr/\Q$name\E.*\|pg_audit_queue\.log_retention_age\|00000/, 'removed: the query');

my @changes = (
	"$superuser|pg_audit_queue.log|", "$superuser|pg_audit_queue.log_rows|on", "$superuser|pg_audit_queue.log|",
	'alice|pg_audit_queue.log|none');
($table, $answer) = ask('settings of auditing');
my @found = grep { !/^\|/ } fields_of($answer, 1, 3, 5);
is_deeply([ map { s/\|none$/|/r } @found ], [ map { s/\|none$/|/r } @changes ], 'settings: the query');
is(scalar(grep { /^(?:\Q$superuser\E|alice)\|/ } lines_of($table)), scalar(@changes), 'settings: the command');

# COPY has a record of its own beside that of the table, before PostgreSQL 19.
answers('10,000 rows',
	[ map { "$_->[0]|$_->[1]" } @reading[ 0, 1, $node->pg_version->major >= 19 ? () : 1 ] ], 1, 3);

# The record of SET has what the setting was before.
my @of_ann = ('SELECT * FROM other', q{SET shop.user_id = 'ben'}, 'DELETE FROM other', 'SELECT nothing');
($table, $answer) = ask('user of the application');
is_deeply([ grep { $_ ne '' } fields_of($answer, 4) ], \@of_ann, 'an application: the query');
is_deeply([ map { s/\|.* \| /|/r } grep { !/\|$/ } lines_of($table) ], [ map { "alice|$_" } @of_ann ], 'an application: the command');

my $status;
($report, $answer, $message, $status) = ask('records are missing');
like($report, qr/sequences $first to $last are missing/, 'missing: the command');
is($status, 1, 'missing: its status');
is($answer, "$first|$last|", 'missing: the query');

($table, $answer) = ask('transaction 761');
is_deeply([ map { s/^alice\|//r } lines_of($table) ], [ 'BEGIN', @undone, 'ROLLBACK' ], 'a transaction: the command');
is_deeply([ fields_of($answer, 3) ], [ 'BEGIN', @undone, 'ROLLBACK' ], 'a transaction: the query');
like($table, qr/ undone +\Q$undone[1]\E$/m, 'a transaction: was rolled back');

my $lines;
($lines, $answer) = ask('rolled back');
is_deeply([ map { parse_record($_)->{commandText} } split /\n/, $lines ], \@undone, 'rolled back: the command');
is_deeply([ fields_of($answer, 2) ], \@undone, 'rolled back: the query');

is_deeply([ grep { !$asked{ $_->[0] } } @rows ], [], 'all questions were asked');
$node->stop;

done_testing();
