#
# Hooks that are not called, and hooks that fail.  A library that was loaded
# after ours can keep calls from us, and any library can raise errors in its
# hooks.  Neither may break a statement, or a later one.  The records of such
# statements are right, or marked as incomplete.
#
# The other library is t/lib/hook_breaker, which does this for commands of the
# client that contain the word "break".
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

my @hooks = qw(start run finish end perms utility access);

my $breaker = build_test_library('hook_breaker', 'hook_breaker');
my $node = audited_node('main', start => 0);

# Start with these libraries.
sub start_with
{
	my ($libraries) = @_;

	$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', "'$libraries'");
	$node->start;
	return;
}

# Stop, and test that nothing has gone wrong since the start, however little a
# client has seen of it.
sub stop_and_check
{
	my ($name) = @_;

	is(stats($node)->{dropped}, 0, "$name: no record is dropped");
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/,
		"$name: no process has crashed");
	return;
}

start_with("pg_audit_queue, $breaker");
create_extension($node);
unaudited_sql(
	$node, q{
	CREATE TABLE t (a int);
	INSERT INTO t SELECT generate_series(1, 10);
	CREATE TABLE w (a int);
	CREATE FUNCTION writes(n int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN INSERT INTO w SELECT a FROM t WHERE a <= n; RETURN n; END $$;
	CREATE FUNCTION catches() RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			BEGIN
				INSERT INTO w VALUES (1);
				INSERT INTO w SELECT 1 / (a - a) FROM t;
			EXCEPTION WHEN division_by_zero THEN
				INSERT INTO w VALUES (2);
			END;
			RETURN 1;
		END $$;
	CREATE PROCEDURE commits() LANGUAGE plpgsql AS $$
		BEGIN
			INSERT INTO w VALUES (3);
			COMMIT;
			INSERT INTO w VALUES (4);
		END $$;});

# Records without those of other subjects
sub own_records
{
	return grep { $_->{class} !~ /^(?:CONNECT|CONFIG)$/ } @_;
}

# What a session does while hooks are broken, and then with cursors that are
# broken for a part of their life.
my @work = (
	map({ "$_ /* break */;" }
		'SELECT count(*) FROM t', 'INSERT INTO w VALUES (1), (2)',
		'SELECT writes(2)', 'SELECT catches()', 'CALL commits()',
		'DO $$ BEGIN INSERT INTO w VALUES (5); END $$',
		'CREATE TABLE x (a int)', 'INSERT INTO x SELECT a FROM t',
		'COPY x TO STDOUT', 'DROP TABLE x', 'SELECT 1 / (a - a) FROM t',
		'SELECT nosuch FROM t', 'BEGIN', 'DECLARE c CURSOR FOR SELECT a FROM t',
		'FETCH 2 FROM c', 'SELECT 7', 'CLOSE c', 'SAVEPOINT s',
		'SELECT 1 / (a - a) FROM t', 'ROLLBACK TO s', 'COMMIT', 'BEGIN',
		'DECLARE d CURSOR FOR SELECT a FROM t', 'FETCH 2 FROM d', 'ROLLBACK',
		'CREATE TABLE y AS SELECT a FROM t', 'DROP TABLE y',
		'EXPLAIN (COSTS off) SELECT a FROM t',
		'EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT a FROM t'),

	'BEGIN;',
	'DECLARE e CURSOR FOR SELECT a FROM t;',
	'FETCH 1 FROM e /* break */;',
	'FETCH 2 FROM e;',
	'CLOSE e /* break */;',
	'DECLARE f CURSOR FOR SELECT a FROM t /* break */;',
	'FETCH 3 FROM f;',
	'CLOSE f;',
	'DECLARE g CURSOR FOR SELECT a FROM t;',
	'FETCH 1 FROM g;',
	'COMMIT /* break */;');

# ... and afterwards
my @check = map { "$_ /* afterwards */;" } (
	'SELECT a FROM t LIMIT 2',
	'SELECT writes(1)',
	'INSERT INTO w VALUES (1)',
	'SELECT 1 / (a - a) FROM t',
	'CALL commits()');
my @checked = (
	'READ|SELECT||00000|2',
	'WRITE|INSERT||00000|1',
	'READ|SELECT||00000|1',
	'FUNCTION|EXECUTE|public.writes|00000|',
	'WRITE|INSERT||00000|1',
	'READ|SELECT||22012|',
	'WRITE|INSERT||00000|1',
	'WRITE|INSERT||00000|1',
	'FUNCTION|EXECUTE|public.commits|00000|',
	'MISC|CALL||00000|');

# Run a session with some of the breaker's settings.  Returns what psql shows,
# and the records.
sub run_broken
{
	my ($sql, @settings) = @_;
	my ($stdout, $stderr);

	local $ENV{PGOPTIONS} = join ' ', map { "-c hook_breaker.$_=on" } @settings;
	my @records = own_records(
		records_for(
			$node, $sql,
			on_error_stop => 0,
			stdout        => \$stdout,
			stderr        => \$stderr));

	return ("$stdout\n$stderr", @records);
}

# A record without its ids
sub fact
{
	my ($record) = @_;
	my ($fact) = columns(
		'class command objectName exitCode rowCount commandText', $record);

	return $fact;
}

# Test that the session is as it should be after it was broken.
sub check_afterwards
{
	my ($name, @records) = @_;

	is_deeply(
		[ columns('class command objectName exitCode rowCount', @records) ],
		\@checked, "$name: as ever afterwards")
	  or diag explain [ map { fact($_) } @records ];
	is(scalar(grep { $_->{incomplete} } @records),
		0, "$name: nothing is incomplete afterwards");
	return;
}

# Everything works

my ($saw, @records) = run_broken("@work\n@check");
my @whole = splice @records, 0, @records - @checked;
my %whole;

$whole{ fact($_) }++ foreach @whole;
cmp_ok(scalar @whole, '>', 50, 'the work leaves records');
is(scalar(grep { $_->{incomplete} } @whole), 0, 'none of them is incomplete');
check_afterwards('with all hooks', @records);

# Some hooks are not called

# Number of records of each kind, by what makes them.  Those of class ERROR are
# for errors that nothing else has seen, so their number depends on the hooks.
sub kinds
{
	my %count = (executor => 0, function => 0, utility => 0);

	foreach my $record (grep { $_->{class} ne 'ERROR' } @_)
	{
		my $kind =
		    $record->{objectType} && $record->{objectType} eq 'FUNCTION' ? 'function'
		  : $record->{command} =~ /^(?:SELECT|INSERT|\?\?\?)$/ ? 'executor'
		  :                                                      'utility';

		$count{$kind}++;
	}
	return \%count;
}

# What is recorded without some hooks: numbers of records, undef where some may
# be missing.
sub kinds_without
{
	my (%skipped) = @_;
	my $count = kinds(@whole);

	# Either of the two tells that there is a statement
	$count->{executor} = undef if $skipped{start} && $skipped{perms};
	$count->{utility} = undef if $skipped{utility};

	# PostgreSQL prepares calls in ExecutorStart, and for CALL in ProcessUtility
	$count->{function} = undef
	  if $skipped{access} || $skipped{start} || $skipped{utility};
	return $count;
}

# Those that differ from what there is with all hooks and do not say so.  A mark
# says so, or that the outcome or the rows are unknown.  An error that has met
# no hook has a record of its own.
sub wrong_records
{
	my %left = %whole;
	my %any_rows;
	my @wrong;

	foreach my $fact (keys %whole)
	{
		$any_rows{ without_rows($fact) } += $whole{$fact};
	}
	foreach my $record (@_)
	{
		my $fact = fact($record);

		next
		  if $record->{incomplete}
		  || !defined $record->{exitCode}
		  || $record->{class} eq 'ERROR';
		next if $left{$fact} && $left{$fact}-- > 0;
		next
		  if !defined $record->{rowCount}
		  && $any_rows{ without_rows($fact) }
		  && $any_rows{ without_rows($fact) }-- > 0;
		push @wrong, $fact;
	}
	return @wrong;
}

sub without_rows
{
	my ($fact) = @_;

	return $fact =~ s/\A((?:[^|]*\|){4})[^|]*/$1/r;
}

my @sets = map { [$_] } @hooks;

foreach my $i (0 .. $#hooks)
{
	push @sets, map { [ $hooks[$i], $hooks[$_] ] } $i + 1 .. $#hooks;
}
push @sets, [@hooks];

foreach my $set (@sets)
{
	my %skipped = map { $_ => 1 } @$set;
	my $name = "without @$set";
	my $before = stats($node)->{incomplete};
	my ($sees, @got) = run_broken("@work\n@check", map { "skip_$_" } @$set);
	my @after = splice @got, @got - @checked;
	my @wrong = wrong_records(@got);

	is($sees, $saw, "$name: the client sees no difference");
	is_deeply(\@wrong, [], "$name: records are right or marked")
	  # with neither start nor end, an address that is used again says nothing
	  if !$skipped{start} || !$skipped{end};
	is( stats($node)->{incomplete} - $before,
		scalar(grep { $_->{incomplete} } @got),
		"$name: the marked are counted");
	check_afterwards($name, @after);

	my ($count, $expected) = (kinds(@got), kinds_without(%skipped));
	foreach my $kind (sort grep { defined $expected->{$_} } keys %$expected)
	{
		# more: without its statement, the check of COPY looks like a query's
		cmp_ok($count->{$kind}, '>=', $expected->{$kind},
			"$name: records of $kind");
	}
}

# A statement that is not where it is said to be

($saw, @records) = run_broken(
	"SELECT a FROM t LIMIT 1 /* break */;\nSELECT 1 /* break */\\; SELECT 2;\n", 'misplace');
is_deeply(
	[ columns('exitCode commandText', @records) ],
	[
		'00000|' . shown_text($node, 'SELECT a FROM t LIMIT 1 /* break */;'),
		('00000|' . shown_text($node, 'SELECT 1 /* break */; SELECT 2;')) x 2
	],
	'a place outside of the text: the record has all of it');

stop_and_check('hooks that are not called');

# Some hooks fail: those of a library that was loaded after ours, and of one
# that was loaded before it

# Run statements that hooks may break.  Returns a list of: statement, SQLSTATE
# that the client got, records with its text; and the records of what follows.
# psql from 17 on does not know the SQLSTATE of a COPY that fails at its end.
sub run_failing
{
	my (@settings) = @_;
	my @statements = (
		'SELECT a FROM t', 'INSERT INTO w VALUES (1), (2)', 'SELECT writes(2)',
		'SELECT catches()', 'CALL commits()', 'CREATE TABLE x (a int)',
		'DROP TABLE IF EXISTS x', 'COPY t TO STDOUT', 'SET work_mem TO DEFAULT');
	my @sql = map { "$statements[$_] /* break $_ */;" } 0 .. $#statements;
	my @states;
	my @records = own_records(
		records_for(
			$node,
			sub {
				my $client = PgProto->connect($node,
					options => join ' ', map { "-c hook_breaker.$_=on" } @settings);

				@states =
				  map { $client->query($_) =~ /E:(\w+)/ ? $1 : '00000' } @sql;
				$client->query($_) foreach @check;
				$client->quit;
			}));
	my @after = splice @records, @records < @checked ? 0 : @records - @checked;
	my @results;

	foreach my $i (0 .. $#sql)
	{
		push @results,
		  [
			$sql[$i], $states[$i],
			grep { ($_->{commandText} // '') =~ m{/\* break $i \*/} } @records
		  ];
	}
	return (\@results, @after);
}

foreach my $libraries ("pg_audit_queue, $breaker", "$breaker, pg_audit_queue")
{
	my $inner = $libraries =~ /^\Q$breaker/;
	my $failed = 0;

	start_with($libraries);
	foreach my $hook (@hooks)
	{
		foreach my $late ('', 'late')
		{
			my $name = "$hook fails" . ($late && ' late')
			  . ($inner ? ' below ours' : ' above ours');
			my ($results, @after) =
			  run_failing("fail_$hook", $late ? 'late' : ());
			my @faults;

			foreach my $result (@$results)
			{
				my ($statement, $state, @own) = @$result;

				$failed++ if $state eq '38000';
				push @faults, [ "$statement $state", map { fact($_) } @own ]
				  if !grep { $_->{exitCode} eq $state } @own;

				# with the error below it, ours knows all outcomes, unless the
				# record of success was out already
				push @faults, [ "$statement $state, not success", map { fact($_) } @own ]
				  if $inner
				  && $state ne '00000'
				  && grep({ $_->{exitCode} eq '00000' } @own)
				  && !grep({ $_->{class} eq 'ERROR' } @own);
			}
			is_deeply(\@faults, [], "$name: records have the outcome")
			  or diag explain \@faults;
			check_afterwards($name, @after);
		}
	}
	cmp_ok($failed, '>', 50, 'statements have failed');
	stop_and_check('hooks that fail' . ($inner ? ' below ours' : ' above ours'));
}

# An error in a critical section is a PANIC; nobody may allocate memory then.

start_with("pg_audit_queue, $breaker");
unaudited_sql($node, qq{
	CREATE FUNCTION break_panic(int) RETURNS void AS '$breaker' LANGUAGE C});
my $position = -s $node->logfile;
$node->psql('postgres', 'SELECT break_panic(100000) /* meant to crash */');
ok(wait_for_log($node, qr/hook_breaker: PANIC reported, (?:\d+) bytes allocated/, $position),
	'a PANIC is reported');
like(slurp_file($node->logfile, $position),
	qr/hook_breaker: PANIC reported, 0 bytes allocated/, 'nothing is allocated for it');
poll_until(sub { eval { flush_trail($node); 1 } }) or die 'the server is not back';
is_deeply(
	[ columns('class exitCode', grep { ($_->{commandText} // '') =~ /panic\(100000\)/ } trail_records($node)) ],
	[ 'READ|57P02', 'FUNCTION|57P02' ], 'the statement is recorded as interrupted');
$node->stop;

done_testing();
