# pgaudit's own regression suite, executed with our settings in place of its own: what differs is
# what is meant to differ, see doc/differences.md.
#
# PAQ_PGAUDIT_SOURCE names a folder with the sources of the pgaudit that belongs to the server's
# version; without, nothing is tested.
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

my $source = $ENV{PAQ_PGAUDIT_SUITE} // '';

if (!-f "$source/sql/pgaudit.sql")
{
	diag 'NOT COMPARED WITH PGAUDIT\'S SUITE: PAQ_PGAUDIT_SOURCE names no sources of pgaudit';
	plan skip_all => 'PAQ_PGAUDIT_SOURCE names no sources of pgaudit';
}

# Each way in which a record may differ: how often it did, and whether it is one of these.  A
# record that pgaudit lacks takes none of the ids that pgaudit gives: its own are 0, or those of
# the statement's other records.
my @meant = (
	{
		reason => 'of a statement with a password, only the password is hidden',
		pair   => sub { $_[0] =~ /<REDACTED>"?,<not logged>$/ && $_[1] =~ /'<REDACTED>'/ && ids($_[0]) eq ids($_[1]) }
	},
	{
		reason => 'rows of COPY, FETCH, EXECUTE and CREATE TABLE AS are counted',
		pair   => sub { $_[0] =~ /^(.*,(?:COPY|FETCH|EXECUTE|CREATE TABLE AS),.*),0$/ && $_[1] =~ /^\Q$1\E,[1-9]\d*$/ }
	},
	{
		# later versions of the suite have it in another way
		until  => 15,
		reason => 'what follows a portal that is suspended is a statement of its own',
		# the suite's last lines, in which numbers differ from then on
		pair   => sub {
			my ($theirs, $mine) = map { s/^(\w+:  AUDIT: \w+),\d+,\d+,/$1,/r } @_;

			return $theirs eq $mine && $theirs =~ /get_test_id\('_ret'\)|FETCH ALL FROM _ret|COMMIT;|(?:part|parallel)_test/;
		}
	},
	{
		reason => 'triggers write tables that grants select',
		extra  => sub { $_[0] =~ /AUDIT: OBJECT,\d+,2,WRITE,UPDATE,TABLE,public\.test2,/ }
	},
	{
		reason => 'with log_relation, COPY has a record beside that of its table',
		extra  => sub { $_[0] =~ /AUDIT: SESSION,\d+,1,(?:READ|WRITE),COPY,,,COPY / }
	},
	{
		reason => 'with log_rows, the table of a COPY has its records, too',
		extra  => sub { $_[0] =~ /AUDIT: (?:OBJECT|SESSION),\d+,1,(?:READ|WRITE),(?:SELECT|INSERT),TABLE,[\w.]+,COPY .*,\d+$/ }
	},
	{
		reason => 'with log_rows, the query of a cursor has its record when the cursor is closed',
		extra  => sub { $_[0] =~ /AUDIT: SESSION,0,0,READ,SELECT,TABLE,[\w.]+,"?(?:DECLARE|select)/ }
	},
	{
		reason => 'a GRANT in a CREATE SCHEMA is recorded without event triggers, too',
		extra  => sub { $_[0] =~ /AUDIT: SESSION,0,0,ROLE,GRANT,,,"CREATE SCHEMA/ }
	});

sub ids
{
	return $_[0] =~ /AUDIT: (\w+,\d+,\d+),/ ? $1 : '';
}

# What psql has printed, in items: a record with all of its lines, or another line
sub items
{
	my ($text) = @_;
	my @items;
	my $open = 0;

	foreach my $line (split /\n/, $text)
	{
		if ($open) { $items[-1] .= "\r$line" }
		else       { push @items, $line }
		$open = $items[-1] =~ /^\w+:  AUDIT: / && ($items[-1] =~ tr/"//) % 2;
	}
	return map { "$_\n" } @items;
}

# The items that differ, in pairs of arrays
sub differences
{
	my ($theirs, $mine) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my ($output, @hunks);

	append_to_file("$dir/theirs", join '', items($theirs));
	append_to_file("$dir/mine",   join '', items($mine));
	IPC::Run::run([ 'diff', '-U0', "$dir/theirs", "$dir/mine" ], '>', \$output);
	foreach my $line (split /\n/, $output)
	{
		next if $line =~ /^(?:---|\+\+\+) /;
		if    ($line =~ /^@@/)    { push @hunks, [ [], [] ] }
		elsif ($line =~ /^-(.*)/) { push @{ $hunks[-1][0] }, $1 }
		elsif ($line =~ /^\+(.*)/) { push @{ $hunks[-1][1] }, $1 }
	}
	return @hunks;
}

# What is in no way meant of a hunk
sub unexplained
{
	my ($theirs, $mine) = map { [@$_] } @{ $_[0] };
	my @left;

  ITEM:
	while (@$theirs || @$mine)
	{
		foreach my $way (@meant)
		{
			if ($way->{pair} && @$theirs && @$mine && $way->{pair}->($theirs->[0], $mine->[0]))
			{
				$way->{count}++;
				shift @$theirs;
				shift @$mine;
				next ITEM;
			}
			if ($way->{extra} && @$mine && $way->{extra}->($mine->[0]))
			{
				$way->{count}++;
				shift @$mine;
				next ITEM;
			}
		}
		push @left, @$theirs ? '-' . shift(@$theirs) : '+' . shift(@$mine);
	}
	return @left;
}

# With the settings of pg_regress
my $node = audited_node(
	'main',
	settings => { log => 'none' },
	start    => 0,
	conf     => "autovacuum = off\nDateStyle = 'Postgres, MDY'\nTimeZone = 'PST8PDT'\n");

$node->start;
unaudited_sql($node, 'CREATE DATABASE contrib_regression TEMPLATE template0');

sub renamed
{
	my ($file) = @_;

	return slurp_file("$source/$file") =~ s/\bpgaudit\./pg_audit_queue./gr =~
	  s/(EXTENSION(?: IF (?:NOT )?EXISTS)?) pgaudit\b/$1 pg_audit_queue/gir;
}

my ($script, $output) = (renamed('sql/pgaudit.sql'), '');
{
	local $ENV{PGOPTIONS} = '-c intervalstyle=postgres_verbose';

	IPC::Run::run([ 'psql', '-X', '-a', '-q', '-d', $node->connstr('contrib_regression') ],
		'<', \$script, '>', \$output, '2>&1');
}
my @left = map { unexplained($_) } differences(renamed('expected/pgaudit.out'), $output);

is(join("\n", @left), '', "pgaudit's suite: nothing else differs");
cmp_ok($_->{count} // 0, '>', 0, "a difference that is meant: $_->{reason}")
  foreach grep { $node->pg_version->major <= ($_->{until} // 99) } @meant;
cmp_ok(scalar(grep { /AUDIT: / } items($output)), '>', 300, 'many records are compared');
$node->stop;
done_testing();
