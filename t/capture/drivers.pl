#
# Drivers of real clients: asyncpg, whose cursors are portals with a row limit,
# and psycopg 3 with libpq's pipeline mode.  Every statement has its own id,
# outcome and rows, however the client mixes statements.
#
# The clients are in t/lib/drivers.  Each labels its statements by comments, and
# prints what the server told it.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $python = python();
my $node   = audited_node('main', settings => { log_parameter => 'on' });

unaudited_sql(
	$node, q{
	CREATE TABLE t (a int PRIMARY KEY);
	INSERT INTO t SELECT generate_series(1, 10);
	CREATE TABLE big AS SELECT generate_series(1, 5000) AS a;
	CREATE TABLE log (a int);
	CREATE FUNCTION nested(n int) RETURNS bigint LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO log SELECT a FROM t WHERE a <= n;
			RETURN (SELECT count(*) FROM t WHERE a > n);
		END $$;});

# Is there such a module for Python?
sub has_module
{
	my ($module) = @_;

	return defined $python
	  && system("$python -c 'import $module' >/dev/null 2>&1") == 0;
}

sub skip_loudly
{
	my ($module) = @_;
	my $what = "Python's module $module is not there (Debian: python3-$module)";

	diag "NOT TESTED: $what";
	skip $what, 1;
}

# Run a client.  Returns what it printed, a list for each label, and a list of
# records for each label ('' for those without one).
sub run_client
{
	my ($script) = @_;
	my ($stdout, $stderr, %told, %records);
	my @records = records_for(
		$node,
		sub {
			local $ENV{PGHOST}     = $node->host;
			local $ENV{PGPORT}     = $node->port;
			local $ENV{PGDATABASE} = 'postgres';
			local $ENV{PGUSER}     = getpwuid($>);
			local $ENV{PYTHONDONTWRITEBYTECODE} = 1;
			my $timeout =
			  IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default);

			ok( IPC::Run::run(
					[ $python, "$FindBin::RealBin/../lib/drivers/$script" ],
					'>', \$stdout, '2>', \$stderr, $timeout),
				"$script ends well") or diag $stderr;
		});

	push @{ $told{$1} }, $2 while $stdout =~ /^([\w ]+): (.*)$/mg;
	foreach my $record (@records)
	{
		next if $record->{class} =~ /^(?:CONNECT|CONFIG)$/;
		my ($label) = ($record->{commandText} // '') =~ m{/\* ([\w ]+) \*/};

		push @{ $records{ $label // '' } }, $record;
	}
	return (\%told, \%records);
}

# What each label should have: what the client was told, undef if nothing, and
# the records, "class command outcome rows".
sub check_client
{
	my ($script, %expected) = @_;
	my ($told, $records) = run_client($script);
	my @labels = grep { $_ ne '' } keys %$records;
	my %ids;

	is_deeply(
		[ sort @labels ],
		[ sort keys %expected ],
		"$script: statements that have records");
	foreach my $label (sort keys %expected)
	{
		my ($answers, @lines) = @{ $expected{$label} };
		my @own = @{ $records->{$label} // [] };

		is_deeply([ columns('class command exitCode rowCount', @own) ],
			\@lines, "$script, $label: records");
		is_deeply($told->{$label}, $answers, "$script, $label: client")
		  or diag explain $told->{$label};
	}

	# Only a statement's own parts share its id; a portal executed in pieces is
	# one statement, and so is each execution of a prepared one.
	foreach my $label ('', @labels)
	{
		foreach my $record (@{ $records->{$label} })
		{
			push @{ $ids{ $record->{statementId} } }, $record;
		}
	}
	my @shared = grep { @{ $ids{$_} } > 1 } sort { $a <=> $b } keys %ids;

	is_deeply(
		[ map { join ', ', sort(columns('class command', @{ $ids{$_} })) } @shared ],
		[
			$script =~ /asyncpg/
			? 'FUNCTION|EXECUTE, READ|SELECT, READ|SELECT, WRITE|INSERT'
			: (
				'FUNCTION|EXECUTE, READ|SELECT, READ|SELECT, WRITE|INSERT',
				'READ|DECLARE CURSOR, READ|SELECT')
		],
		"$script: statements that share an id are parts of one");
	is_deeply(
		[ sort { $a <=> $b } keys %ids ],
		[ 1 .. keys %ids ],
		"$script: ids without a gap");
	is(scalar(grep { $_->{substatementId} == 1 } map { @$_ } values %ids),
		scalar keys %ids, "$script: each begins with 1");
	return ($told, $records);
}

SKIP:
{
	has_module('asyncpg') or skip_loudly('asyncpg');

	my $row = 'READ|SELECT|00000';
	my ($told, $records) = check_client(
		'asyncpg_portals.py',

		# portals that take turns
		one => [ ['1 2 3 4 5 6 7 8 9 10'], "$row|10" ],
		two => [ ['101 102 103 104 105 106 107'], "$row|7" ],
		forgotten => [ ['1 2'], "$row|2" ],
		insert => [ ['INSERT 0 1'], 'WRITE|INSERT|00000|1' ],
		select => [ ['42'], "$row|1" ],
		nested => [ ['8'], "$row|1", 'FUNCTION|EXECUTE|00000|' ],

		# portals of one statement
		twin => [
			['11 12 4991 4992 4993 13 14 15 4994 4995 4996 4997 4998 4999 5000'],
			"$row|10", "$row|5"
		],

		# a loop
		loop      => [ ['55'], "$row|10" ],
		'in loop' => [ undef, ('WRITE|INSERT|00000|1') x 10 ],

		# errors
		suspended => [ ['1 2'], 'READ|SELECT|22012|2' ],
		fails     => [ ['22012'], 'READ|SELECT|22012|' ],
		breaks    => [ [ '-3 -4 -6', '22012' ], 'READ|SELECT|22012|3' ],
		outer     => [ ['1 2 3 4'], "$row|4" ],
		inner     => [ ['1'], 'READ|SELECT|23505|1' ],
		duplicate => [ ['23505'], 'WRITE|INSERT|23505|' ],
		cancelled => [ ['timeout'], 'READ|SELECT|57014|' ],

		# executed again and again
		many => [ ['2510'], ('WRITE|INSERT|00000|1') x 5 ],
		sum  => [ undef, "$row|1" ]);

	is_deeply(
		[ sort map { $_->{paramList}[0] } @{ $records->{twin} } ],
		[ 10, 4990 ],
		'two portals of one statement have their own parameters');
	is_deeply(
		[ map { $_->{paramList}[0] } @{ $records->{many} } ],
		[ 500 .. 504 ],
		'and so have executions of one');
}

SKIP:
{
	has_module('psycopg') or skip_loudly('psycopg');

	my ($told, $records) = check_client(
		'psycopg_pipeline.py',
		first  => [ ['1 2 3'], 'READ|SELECT|00000|3' ],
		second => [ ['1'], 'WRITE|INSERT|00000|1' ],
		third  => [ ['9'], 'READ|SELECT|00000|1', 'FUNCTION|EXECUTE|00000|' ],
		fourth => [ ['1'], 'WRITE|UPDATE|00000|1' ],

		# the transaction of the pipeline fails as a whole
		before => [ undef, 'WRITE|INSERT|00000|1' ],
		bad    => [ ['22012'], 'READ|SELECT|22012|' ],

		kept    => [ ['1'], 'WRITE|INSERT|00000|1' ],
		counted => [ ['1'], 'READ|SELECT|00000|1' ],
		again   => [ ['1 2 3 4'], ('READ|SELECT|00000|1') x 4 ],
		declared => [
			['1 2 3 4 5'], 'READ|DECLARE CURSOR|00000|',
			'READ|SELECT|00000|5'
		],
		aside => [ undef, 'WRITE|INSERT|00000|1' ]);

	is_deeply(
		[ columns('command', @{ $records->{''} }) ],
		[ 'INSERT', 'SELECT', 'BEGIN', 'FETCH', 'FETCH', 'CLOSE CURSOR', 'COMMIT' ],
		'what the driver adds by itself');
}

is(stats($node)->{$_}, 0, "no record is $_") foreach 'dropped', 'incomplete';
done_testing();
