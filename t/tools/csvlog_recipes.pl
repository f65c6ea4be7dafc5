# Recipes of doc/trail.md for other programs that read format csvlog: pgBadger's
# command, and the program that makes of the trail what pgaudit_analyze reads.
#
# PAQ_PGAUDIT_ANALYZE names a folder with pgaudit_analyze's sources, which no
# distribution has as a package: with it, and Perl's DBD::Pg, the test runs it, too.
# Without, the test itself checks what pgaudit_analyze, and the keys of its tables,
# ask of a trail.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use IPC::Run;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $page = slurp_file("$FindBin::RealBin/../../doc/trail.md");
my ($badger)  = $page =~ /^## pgBadger\n.*?^```text\n(.*?)^```/ms;
my ($program) = $page =~ /^## pgaudit_analyze\n.*?^```python\n(.*?)^```/ms;
my ($roles)   = $page =~ /^## pgaudit_analyze\n.*?^```sql\n(.*?)^```/ms;
my $dir = PostgreSQL::Test::Utils::tempdir();
my $node = audited_node(
	'main',
	settings => { format => 'csvlog', log => 'all', log_relation => 'on' },
	conf     => "log_timezone = 'UTC'\n");

# Nested statements, some of them across a new file; what fails in all ways
unaudited_sql($node, $roles);
unaudited_sql($node,
	q{CREATE FUNCTION f(int) RETURNS int LANGUAGE plpgsql AS
		'BEGIN PERFORM count(*) FROM pg_class; RETURN $1; END'});
my $load = sub {
	$node->psql('postgres', $_) foreach (
		'SELECT f(1), f(2); SELECT 3',
		q{DO $$ BEGIN EXECUTE 'CREATE TABLE IF NOT EXISTS t (a int)'; PERFORM f(3); END $$; SELECT 4},
		qq{SELECT 'a,\n"b'; SELECT 1 / 0}, 'nonsense', 'SET work_mem = 100; SELECT 5',
		'SET pg_audit_queue.log_rows = on; DELETE FROM pg_class c USING pg_class d WHERE false',
		q{DO $$ BEGIN RAISE SQLSTATE '3D000'; END $$}, 'DROP DATABASE nosuch',
		"SELECT length('" . 'x' x 200_000 . "')");
	# nothing on standard input: psql exits before it reads that
	$node->psql('nowhere', '');
	# refused before the server looks for the database
	$node->psql('nowhere', '', extra_params => [ '-U', 'nobody_of_this_name' ]);
};

$load->();
my $outer = start_psql($node, 'SELECT f(6), pg_sleep(5), f(7); SELECT 8');
ok(poll_until(sub { unaudited_sql($node, "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'") }),
	'a statement runs');
flush_trail($node);
unaudited_sql($node, 'SELECT audit_rotate()');
finish_psql($outer);
$load->();
flush_trail($node);
unaudited_sql($node, 'SELECT audit_rotate()');
$load->();
flush_trail($node);

# ---------------------------------------------------------------------------
# pgBadger
# ---------------------------------------------------------------------------

{
	my $output;

	ok( IPC::Run::run(
			[ 'sh', '-c', $badger =~ s{audit\.html}{$dir/audit.html}r =~ s/^pgbadger/pgbadger --quiet/r ],
			'>&', \$output, init => sub { chdir trail_dir($node) or die }),
		'pgBadger reads the trail')
	  or diag($output);
	like(slurp_file("$dir/audit.html"), qr/<html/, 'and makes a report');
}

# ---------------------------------------------------------------------------
# pgaudit_analyze
# ---------------------------------------------------------------------------

sub copy_files
{
	my ($source, $target) = @_;
	my $output;

	IPC::Run::run([ python(), '-c', $program, $source, $target ], '>&', \$output)
	  or die "the program fails: $output";
	# a number distinguishes files of the same second
	return map { "$target/$_" }
	  sort { ($a =~ /^([^.]*)/)[0] cmp ($b =~ /^([^.]*)/)[0] or length $a <=> length $b or $a cmp $b }
	  grep { /\.csv$/ } slurp_dir($target);
}

# Rows that it looks at: those with a user and a database
sub looked_at
{
	return grep { $_->[1] ne '' && $_->[2] ne '' } parse_trail('csvlog', @_);
}

# What it would stumble over, or pass by: a list
sub faults
{
	my (@rows) = @_;
	my (%line, %statement, %substatement, @faults);

	foreach my $row (@rows)
	{
		my ($session, $line, $message) = @$row[ 5, 6, 13 ];

		push @faults, "no such database: $row->[2]" if $row->[2] ne 'postgres';
		push @faults, "$session: $line after $line{$session}" if $line <= ($line{$session} // 0);
		$line{$session} = $line;
		my ($type, $number, $sub) = $message =~ /^AUDIT: (\w+),(\d+),(\d+),/ or next;

		push @faults, "type $type" if $type !~ /^(?:SESSION|OBJECT)$/;
		if ($number > ($statement{$session} // 0))
		{
			$statement{$session}    = $number;
			$substatement{$session} = {};
		}
		# it makes a substatement if its number is larger than the last one's
		if ($number == ($statement{$session} // 0) && $sub > ($substatement{$session}{last} // 0))
		{
			@{ $substatement{$session} }{ 'last', $sub } = ($sub, 1);
		}
		push @faults, "$session: $number, $sub is not there"
		  if $number != ($statement{$session} // 0) || !$substatement{$session}{$sub};
	}
	return @faults;
}

my @ours = trail_files($node);
pop @ours;
mkdir "$dir/for_analyze" or die "mkdir: $!";
my @copies = copy_files(trail_dir($node), "$dir/for_analyze");

is(scalar @copies, 2, 'finished files');
my @rows = looked_at(@copies);
my @whole = grep { $_->[2] ne 'nowhere' } looked_at(@ours);

is_deeply([ faults(@rows) ], [], 'nothing to stumble over');
cmp_ok(scalar faults(looked_at(@ours)), '>', 10, 'the trail itself would not do');
is_deeply([ sort map { $_->[21] } @rows ], [ sort map { $_->[21] } @whole ], 'all records');
is_deeply(
	[ sort map { "$_->[21] " . ($_->[13] =~ s/^AUDIT: //r) } @rows ],
	[ sort map { "$_->[21] " . ($_->[13] =~ s/^AUDIT: //r) } @whole ],
	'with their texts');
foreach my $text ("RAISE SQLSTATE '3D000'", 'DROP DATABASE nosuch', 'x' x 200_000)
{
	is(scalar(grep { $_->[13] =~ /\Q$text\E/ } @rows), 2, 'a statement is there: ' . substr($text, 0, 30));
}
my @as_text = grep { $_->[13] !~ /^AUDIT: / } @rows;
my @late = grep { $_->[13] !~ /^\w+,0,0,/ } @as_text;
cmp_ok(scalar @late, '>', 0, 'a statement ended after a new file had been begun');
is(scalar(grep { $_->[13] !~ /f\(6\)/ } @late), 0, 'only its records came late');
is(scalar(grep { $_->[13] =~ /^AUDIT: \w+,1,1,.*f\(1\)/ } @rows) > 0, 1, 'others are in their place');

# A second time nothing changes, and a further file comes.
my @before = map { slurp_file($_) } @copies;
unaudited_sql($node, 'SELECT audit_rotate()');
$node->safe_psql('postgres', 'SELECT 9');
flush_trail($node);
@copies = copy_files(trail_dir($node), "$dir/for_analyze");
is(scalar @copies, 3, 'a further file');
is_deeply([ map { slurp_file($_) } @copies[ 0, 1 ] ], \@before, 'the others are as they were');
@rows = looked_at(@copies);
is_deeply([ faults(@rows) ], [], 'nothing to stumble over');

SKIP:
{
	my $analyze = $ENV{PAQ_PGAUDIT_ANALYZE};

	if (!defined $analyze || !eval { require DBD::Pg })
	{
		diag 'NOT LOADED BY PGAUDIT_ANALYZE: PAQ_PGAUDIT_ANALYZE is not set, or there is no DBD::Pg';
		skip 'there is no pgaudit_analyze', 1;
	}
	my $schema = slurp_file("$analyze/sql/audit.sql") =~ s/^CREATE EXTENSION.*;$//mr;
	my $output;

	unaudited_sql($node, $schema);
	my $run = IPC::Run::start(
		[ $^X, "$analyze/bin/pgaudit_analyze", '--port=' . $node->port, '--socket-path=' . $node->host,
			'--user=pgaudit', "--log-file=$dir/analyze.log", "$dir/for_analyze" ],
		'>&', \$output);
	ok( poll_until(
			sub {
				$run->pump_nb;
				unaudited_sql($node, 'SELECT count(*) FROM pgaudit.log_event') == @rows;
			}),
		'pgaudit_analyze loads all records')
	  or diag($output, slurp_file("$dir/analyze.log"));
	is(unaudited_sql($node, 'SELECT count(*) FROM pgaudit.vw_audit_event'),
		scalar(grep { $_->[13] =~ /^AUDIT: / } @rows), 'and shows the statements');
	$run->kill_kill(grace => 5);
	unlike(slurp_file("$dir/analyze.log"), qr/failed/, 'without a failure');
}
# Bytes that are not UTF-8 stay what they are, whatever the locale.
unaudited_sql($node, "CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
$node->safe_psql('latin1', "SELECT 'caf\xe9'");

# A session goes on after retention has removed the file that it began in: with lines
# that follow.
my $session = $node->background_psql('postgres');
$session->query_safe("SELECT 'first'; SELECT 'second'");
flush_trail($node);
unaudited_sql($node, 'SELECT audit_rotate()');
mkdir "$dir/again" or die "mkdir: $!";
@copies = copy_files(trail_dir($node), "$dir/again");
like(slurp_file($copies[-1]), qr/'caf\xe9'/, 'a byte that is not UTF-8');

@ours = trail_files($node);
pop @ours;
is(scalar(unlink @ours), scalar @ours, 'the files are removed');
$session->query_safe("SELECT 'third'");
flush_trail($node);
unaudited_sql($node, 'SELECT audit_rotate()');
@copies = copy_files(trail_dir($node), "$dir/again");
is(scalar @copies, @ours + 1, 'a further file');
my ($id) = map { $_->[5] } grep { $_->[13] =~ /'third'/ } parse_trail('csvlog', $copies[-1]);
ok(defined $id, 'with what the session does then');
my @lines = map { $_->[6] } grep { $_->[5] eq $id } parse_trail('csvlog', @copies);
is_deeply(\@lines, [ 1 .. @lines ], 'its lines go on');
$session->quit;
$node->stop;
done_testing();
