#
# Failures, beyond what sql/errors.sql shows: objects that are gone when the record is made,
# commits that fail at their very end, the extended protocol, and messages that are cut.
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

my $node = audited_node('main', conf => "max_prepared_transactions = 0\n");

unaudited_sql(
	$node, q{
	CREATE TABLE t (a int PRIMARY KEY, b int);
	INSERT INTO t SELECT i, i FROM generate_series(1, 10) i;
	CREATE TABLE d (a int UNIQUE DEFERRABLE INITIALLY DEFERRED);
	CREATE FUNCTION writes(i int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO t VALUES (i); RETURN i; END $$;});

my @records;

# An object that is gone when its record is made: another event trigger has dropped it
# before ours looks, or another session while the statement waited for its lock.  Rules
# count that name it, and no others.

unaudited_sql(
	$node, q{
	CREATE FUNCTION drops() RETURNS event_trigger LANGUAGE plpgsql AS
		'BEGIN DROP TABLE gone; END';
	CREATE EVENT TRIGGER a_drops ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
		EXECUTE FUNCTION drops();
	ALTER EVENT TRIGGER a_drops DISABLE;});

foreach my $object ('', 'gone', 'other')
{
	my %settings = (log => $object eq '' ? 'ddl,write' : 'none');
	my $in_effect = 'SELECT coalesce(bool_and(in_effect), true) FROM audit_policy_rules';
	my $what = $object eq '' ? 'by settings' : "by a rule of $object";
	my $is_meant = $object ne 'other';

	if ($object ne '')
	{
		unlink $node->data_dir . '/audit_policy.conf';
		append_to_file($node->data_dir . '/audit_policy.conf',
			'record all ' . getpwuid($>) . " all ddl,write public.$object\n");
	}
	$node->reload;
	ok(poll_until(sub { unaudited_sql($node, $in_effect) eq 't' }), "$what: rules");

	unaudited_sql($node, 'ALTER EVENT TRIGGER a_drops ENABLE');
	is_deeply(
		[
			columns(
				'class command objectName exitCode',
				records_for($node, 'CREATE TABLE gone (a int)', settings => \%settings))
		],
		[
			$is_meant ? 'DDL|DROP TABLE|public.gone|00000' : (),
			'DDL|CREATE TABLE||00000'
		],
		"$what: dropped within the statement");
	unaudited_sql($node, 'ALTER EVENT TRIGGER a_drops DISABLE');

	foreach my $sql ('ALTER TABLE gone ADD b int', 'TRUNCATE gone', 'DROP TABLE gone')
	{
		unaudited_sql($node, 'CREATE TABLE gone (a int)');
		my $dropper = $node->background_psql('postgres', extra_params => [ '-U', 'paq_quiet' ]);
		$dropper->query_safe('BEGIN; DROP TABLE gone');
		my @records = records_for(
			$node,
			sub {
				my $waiter =
				  start_psql($node, $sql, name => 'waiter', settings => \%settings);
				poll_until(
					sub {
						unaudited_sql($node,
							"SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiter'"
							  . " AND wait_event_type = 'Lock'");
					}) or die 'nobody waits';
				$dropper->query_safe('COMMIT');
				finish_psql($waiter);
			});
		$dropper->quit;
		is_deeply(
			[ columns('class command exitCode errorMessage', @records) ],
			!$is_meant ? [] : [
				($sql eq 'TRUNCATE gone' ? 'WRITE|TRUNCATE TABLE' : 'DDL|' . join ' ', (split / /, $sql)[ 0, 1 ])
				. '|42P01|'
				  . ($sql =~ /^DROP/ ? 'table' : 'relation')
				  . ' "gone" does not exist'
			],
			"$what: dropped before $sql had its lock");
	}
}
unlink $node->data_dir . '/audit_policy.conf' or die "unlink: $!";
$node->reload;
unaudited_sql($node, 'DROP EVENT TRIGGER a_drops');

# The commit fails

@records = records_for(
	$node,
	q{BEGIN;
	INSERT INTO d VALUES (3);
	PREPARE TRANSACTION 'x';
	SELECT 5;},
	on_error_stop => 0);
is_deeply(
	[ columns('class command statementId exitCode errorMessage', @records) ],
	[
		'MISC|BEGIN|1|00000|',
		'WRITE|INSERT|2|00000|',
		'MISC|PREPARE TRANSACTION|3|55000|prepared transactions are disabled',
		'READ|SELECT|4|00000|'
	],
	'PREPARE TRANSACTION that is refused');

# Two serializable transactions that must not both commit: the second one
# learns of it at the very end, after all that hooks can see.
foreach my $mode ('queued', 'commit')
{
	my $expected = 'MISC|COMMIT|40001';

	# published before the wait, as if the commit had worked
	$expected = 'MISC|COMMIT|00000 ERROR||40001' if $mode eq 'commit';
	unaudited_sql($node, 'TRUNCATE d');
	@records = records_for(
		$node,
		sub {
			my @sessions = map { PgProto->connect($node) } 1 .. 2;

			foreach my $session (@sessions)
			{
				$session->query("SET pg_audit_queue.mode = $mode");
				$session->query('BEGIN ISOLATION LEVEL SERIALIZABLE');
				$session->query('SELECT count(*) FROM d');
			}
			$_->query('INSERT INTO d VALUES (' . $_->pid . ')')
			  foreach @sessions;
			$_->query('COMMIT') foreach @sessions;
			$_->quit foreach @sessions;
		});
	my @end = columns('class command exitCode',
		grep { ($_->{commandText} // '') =~ /^COMMIT/ } @records);

	is("@end", "MISC|COMMIT|00000 $expected",
		"a serialization failure at the commit, mode $mode");
}

# Extended protocol

my $session = PgProto->connect($node);

sub protocol_records_are
{
	my ($sub, $expected, $name) = @_;
	my @got;

	@records = records_for($node, $sub);
	@got =
	  columns('class command exitCode errorMessage commandText', @records);
	is_deeply(\@got, $expected, $name) or diag explain \@got;
	return;
}

protocol_records_are(
	sub {
		$session->parse('', 'SELECT nothing');
		$session->sync;
		$session->parse('', 'SELECT $1::int');
		$session->bind('', '', 'x');
		$session->sync;
		$session->bind('', 'no such statement');
		$session->sync;
	}, [
		'ERROR||42703|column "nothing" does not exist|SELECT nothing',
		'ERROR||22P02|invalid input syntax for type integer: "x"|SELECT $1::int',
		'ERROR||26000|prepared statement "no such statement" does not exist|'
	],
	'Parse and Bind that fail');
protocol_records_are(
	sub {
		$session->parse('', 'INSERT INTO t VALUES (30)');
		$session->bind('', '');
		$session->execute('');
		$session->parse('', 'SELECT nothing');
		$session->sync;
	}, [
		'WRITE|INSERT|00000||INSERT INTO t VALUES (30)',
		'ERROR||42703|column "nothing" does not exist|SELECT nothing'
	],
	'a failure in a pipeline is that of the statement that fails');
protocol_records_are(
	sub {
		$session->parse('', 'SELECT writes(32)')->bind('', '')->execute('');
		$session->parse('', 'SELECT nothing');
		$session->sync;
	}, [
		'WRITE|INSERT|00000||INSERT INTO t VALUES (i)',
		'ERROR||42703|column "nothing" does not exist|SELECT nothing',
		'READ|SELECT|00000||SELECT writes(32)',
		'FUNCTION|EXECUTE|00000||SELECT writes(32)'
	],
	'also if the one before is a SELECT that has changed something');
protocol_records_are(
	sub {
		$session->parse('', 'SELECT b FROM t')->bind_formats('', '', 2);
		$session->execute('')->sync;
	}, [
		'READ|SELECT|08P01|bind message has 2 result formats but query has 1 columns|SELECT b FROM t'
	],
	'Bind that fails when the statement has begun');

protocol_records_are(
	sub {
		my $other = PgProto->connect($node);

		$other->parse('', 'INSERT INTO t VALUES (31)');
		$other->bind('', '');
		$other->execute('');
		$other->flush('C');
		$other->quit;
		poll_until(
			sub {
				unaudited_sql($node,
					'SELECT count(*) FROM pg_stat_activity WHERE pid = '
					  . $other->pid) eq '0';
			}) or die 'the session does not end';
	},
	['WRITE|INSERT|00000||INSERT INTO t VALUES (31)'],
	'a pipeline that the client leaves without an end');

# A long message; the server's encoding is UTF-8
@records = records_for($node,
	qq{DO \$\$ BEGIN RAISE '%', repeat(U&'\\00e4', 600000); END \$\$});
is($records[0]{exitCode}, 'P0001', 'a long message: the record is there');
ok($records[0]{errorMessage} =~ /^\x{e4}{10000,}\z/,
	'with a message in whole characters');
cmp_ok(length $records[0]{errorMessage}, '<', 600_000, 'which was cut');
ok($records[0]{cut}, 'and says so');

# Where a statement is in a text of several
@records = records_for(
	$node,
	sub {
		$node->psql('postgres', 'SELECT 11; SELECT 22 ;SELECT 33', on_error_stop => 0);
		my ($out, $err);
		IPC::Run::run(
			[
				'psql', '-X', '-d', $node->connstr('postgres'), '-c',
				'SELECT 11; SELECT 22 ;SELECT 33'
			],
			'>', \$out, '2>', \$err);
	});
is_deeply(
	[
		map {
			[ @$_{qw(commandText statementLocation statementLength)} ]
		} @records
	],
	[
		(map { [ shown_text($node, $_), undef, undef ] } 'SELECT 11;', 'SELECT 22 ;'),
		[ 'SELECT 33', undef, undef ],
		[ 'SELECT 11', 0, 9 ],
		[ 'SELECT 22', 11, 9 ],
		[ 'SELECT 33', 22, undef ]
	],
	'text, location and length of statements');

done_testing();
