#-------------------------------------------------------------------------
#
# capture/stack_depth.pl
#	What the library takes of the stack: recursion reaches nearly the depth
#	that it reaches without the library.
#
# PostgreSQL refuses recursion when the stack is as long as max_stack_depth
# says.  A query that works without the library must not fail with it.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Instrumented, or without tail calls, functions take another part of the stack.
plan skip_all => 'the server is built with sanitizers' if sanitizers() ne '';
plan skip_all => 'the library is built with --coverage' if ($ENV{PAQ_COPT} // '') =~ /--coverage/;
plan skip_all => 'the server is not built with -O2'
  if `pg_config --cflags` !~ /-O[23s]/;

# What calls itself until the stack is used up, and what begins it.  Each level
# takes a number from the sequence, which does not come back at the end.
my @recursions = (
	[ 'SQL function',       'SELECT by_sql(1)' ],
	[ 'PL/pgSQL function',  'SELECT by_plpgsql(1)' ],
	[ 'EXECUTE of a DO',    'SELECT by_execute(1)' ],
	[ 'trigger before',     'INSERT INTO before_insert VALUES (1)' ],
	[ 'trigger after',      'INSERT INTO after_insert VALUES (1)' ],
	[ 'exception handlers', 'SELECT by_handler(1)' ]);

my $node = audited_node('main', conf => "max_stack_depth = '1MB'\n");

unaudited_sql($node, q{
	SET check_function_bodies = off;
	CREATE SEQUENCE levels;
	CREATE FUNCTION by_sql(n int) RETURNS int LANGUAGE sql VOLATILE
		AS $$ SELECT nextval('levels'); SELECT by_sql(n + 1) $$;
	CREATE FUNCTION by_plpgsql(n int) RETURNS int LANGUAGE plpgsql AS $$
		DECLARE r int;
		BEGIN
			PERFORM nextval('levels');
			SELECT by_plpgsql(n + 1) INTO r FROM (VALUES (1)) v OFFSET 0;
			RETURN r;
		END $$;
	CREATE FUNCTION by_execute(n int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM nextval('levels');
			EXECUTE format('DO $x$ BEGIN PERFORM by_execute(%s); END $x$', n + 1);
			RETURN 1;
		END $$;
	CREATE FUNCTION by_handler(n int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM nextval('levels');
			BEGIN
				PERFORM by_handler(n + 1);
			EXCEPTION WHEN division_by_zero THEN
				RAISE;
			END;
			RETURN 1;
		END $$;
	CREATE TABLE before_insert (n int);
	CREATE TABLE after_insert (n int);
	CREATE FUNCTION insert_again() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM nextval('levels');
			EXECUTE format('INSERT INTO %I VALUES ($1)', tg_table_name)
				USING new.n + 1;
			RETURN new;
		END $$;
	CREATE TRIGGER t BEFORE INSERT ON before_insert
		FOR EACH ROW EXECUTE FUNCTION insert_again();
	CREATE TRIGGER t AFTER INSERT ON after_insert
		FOR EACH ROW EXECUTE FUNCTION insert_again();
});

# Levels that each recursion reaches with these settings.
sub depths
{
	my (%settings) = @_;
	my @depths;

	local $ENV{PGOPTIONS} = join ' ',
	  map { "-c pg_audit_queue.$_=$settings{$_}" } sort keys %settings;
	foreach my $recursion (@recursions)
	{
		my ($stdout, $stderr);

		# client_min_messages: the context has a line for each level
		$node->psql(
			'postgres', "SET client_min_messages = fatal;
						 SELECT setval('levels', 1, false);
						 $recursion->[1];
						 SELECT last_value FROM levels;",
			stdout        => \$stdout,
			stderr        => \$stderr,
			on_error_stop => 0);
		push @depths, (split /\n/, $stdout)[-1];
	}
	return @depths;
}

my @none = depths(log => 'none');
my $sequence = flush_trail($node);
my @all  = depths(log => 'all', log_statement => 'off');

flush_trail($node);
my @records = grep { $_->{sequence} > $sequence } trail_records($node);

$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
$node->restart;
my @absent = depths();

foreach my $i (0 .. $#recursions)
{
	my $name = $recursions[$i][0];

	note "$name: absent $absent[$i], none $none[$i], all $all[$i]";
	cmp_ok($absent[$i], '>', 100, "$name: recursion goes deep");
	cmp_ok($none[$i], '>=', 0.99 * $absent[$i],
		"$name: nothing audited, the stack is PostgreSQL's");
	cmp_ok($all[$i], '>=', 0.85 * $absent[$i],
		"$name: audited, little of the stack is ours");
}

# Each level fails with the same error, and is recorded.
foreach my $expected ([ 'DO', $all[2] - 1 ], [ 'INSERT', $all[3] + $all[4] - 2 ])
{
	my ($command, $number) = @$expected;
	my @failed =
	  grep { $_->{command} eq $command && $_->{exitCode} eq '54001' } @records;

	cmp_ok(scalar @failed, '>=', $number, "$command: a record for each level");
}

$node->stop;

done_testing();
