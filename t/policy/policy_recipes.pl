# The recipes of doc/policies.md: each is put in effect as it is there, and records
# what it is said to record, and nothing else.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqPolicy;
use PaqPolicyWorld;
use PaqTest;

use List::Util qw(uniq);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { flush_interval => '1h', queue_size => '64MB', flush_threshold => 80 },
	init     => [ allows_streaming => 1 ],
	conf     => "listen_addresses = '127.0.0.1'\nautovacuum = off\n");

unaudited_sql($node, q{
	CREATE ROLE payroll; CREATE ROLE robots; CREATE ROLE dba; CREATE ROLE clerks; CREATE ROLE auditor;
	CREATE ROLE batch LOGIN; CREATE ROLE collector LOGIN; CREATE ROLE monitor LOGIN;
	CREATE ROLE mary LOGIN IN ROLE payroll; CREATE ROLE robo LOGIN IN ROLE robots;
	CREATE ROLE ann LOGIN SUPERUSER IN ROLE dba; CREATE ROLE tina LOGIN IN ROLE clerks;
	CREATE ROLE pool LOGIN IN ROLE tina;});
unaudited_sql($node, "CREATE DATABASE $_") foreach qw(shop bank scratch);
unaudited_sql($node, q{
	CREATE SCHEMA staging; CREATE SCHEMA hr; CREATE SCHEMA billing; CREATE SCHEMA crm; CREATE SCHEMA api;
	CREATE TABLE public.staging AS SELECT generate_series(1, 200) AS a;
	CREATE TABLE public.cache AS TABLE public.staging;    CREATE TABLE public.orders AS TABLE public.staging;
	CREATE TABLE public.secret AS TABLE public.staging;   CREATE TABLE staging.raw AS TABLE public.staging;
	CREATE TABLE hr.salary AS TABLE public.staging;       CREATE TABLE billing.invoice AS TABLE public.staging;
	CREATE TABLE crm.customer AS TABLE public.staging;
	CREATE FUNCTION api.f() RETURNS bigint LANGUAGE plpgsql AS
		'BEGIN RETURN (SELECT count(*) FROM public.orders); END';
	CREATE FUNCTION public.g() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
	CREATE FUNCTION public.by_ann() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS
		'BEGIN CREATE TABLE public.of_ann (); DROP TABLE public.of_ann; END';
	ALTER FUNCTION public.by_ann() OWNER TO ann;
	GRANT ALL ON SCHEMA public, staging, hr, billing, crm, api TO PUBLIC;
	GRANT ALL ON ALL TABLES IN SCHEMA public, staging, hr, billing, crm TO PUBLIC;
	REVOKE ALL ON public.secret FROM PUBLIC;
	GRANT SELECT ON hr.salary TO auditor}, 'shop');
create_extension($node, 'shop');

# Recipes by heading: setting of "log", rules
my %recipes;
my ($section) = slurp_file("$FindBin::RealBin/../../doc/policies.md") =~ /^## Recipes\n(.*)/ms;
while ($section =~ /^### ([^\n]+)\n(.*?)(?=^### |\z)/msg)
{
	my ($heading, $text) = ($1, $2);
	my ($log, $rules) = $text =~ /^```text\n# pg_audit_queue\.log = '(.*?)'\n(.*?)^```$/ms
	  or die "no rules: $heading";

	$recipes{$heading} = { log => $log, rules => $rules };
}

# Execute SQL in which "#" stands for a mark, in a session as of PaqPolicyWorld.pm.
my $mark = 0;

sub execute
{
	my ($who, $sql) = @_;

	run_statements($node, parse_session($who), { ++$mark => { sql => $sql } });
	return;
}

# Of the records, those of the last statement that was executed
sub marked
{
	return grep { ($_->{commandText} // '') =~ m{/\*#$mark#\*/} } @_;
}

# Test a recipe.  Each test is: what to expect, the session, SQL, and, if the
# statement's mark does not tell its records, code that picks them.  Expected is the
# name of the rule, "+" for a record without one, "-" for none.
sub recipe
{
	my ($heading, $tests, %replaced) = @_;
	my $recipe = delete $recipes{$heading} // die "no recipe: $heading";
	my $rules  = $recipe->{rules};

	foreach my $from (keys %replaced)
	{
		$rules =~ s/\Q$from\E/$replaced{$from}/ or die "$heading: no $from";
	}
	install_policy($node, $rules, log => $recipe->{log});
	foreach my $test (@$tests)
	{
		my ($expected, $who, $sql, $pick) = @$test;
		my @records = records_for($node, sub { ref $who ? $who->() : execute($who, $sql) });
		my @names = uniq map { $_->{policy} // '+' } ($pick // \&marked)->(@records);

		is("@names" || '-', $expected, "$heading: " . (ref $who ? 'other' : "$who: $sql"))
		  or diag explain [ columns('class command commandText policy exitCode', @records) ];
	}
	return;
}

# Is the record of a statement that has just been executed in the trail's files, though
# nobody has asked for a flush?
sub durable_at_once
{
	my ($who, $sql) = @_;

	execute($who, $sql);
	return texts_in_trail($node, "/*#$mark#*/") > 0;
}

# For picking records of other kinds than statements
sub of_user
{
	my ($command, $user) = @_;

	return sub { grep { $_->{command} eq $command && ($_->{dbUserName} // '') eq $user } @_ };
}

my $read_orders = 'SELECT# a FROM public.orders';
my $new_table   = 'BEGIN; CREATE# TABLE public.n (a int); ROLLBACK';

recipe('A batch user and one table', [
	[ '-', 'batch', 'INSERT# INTO public.staging VALUES (1)' ],
	[ '+', 'batch', $read_orders ],
	[ '+', 'mary',  'INSERT# INTO public.staging VALUES (1)' ] ]);
recipe('Noisy service accounts', [
	[ '-', 'collector', $read_orders ],
	[ '-', 'collector', 'SET# work_mem = 1024' ],
	[ '+', 'collector', $new_table ],
	[ '+', 'collector', 'SELECT# a FROM public.secret' ],
	[ '+', 'mary',      $read_orders ] ]);
recipe('A cache table', [
	[ '-', 'mary', 'SELECT# a FROM public.cache' ],
	[ '-', 'mary', 'UPDATE# public.cache SET a = a' ],
	[ '+', 'mary', 'INSERT# INTO public.cache SELECT a FROM public.orders' ],
	[ '+', 'mary', $read_orders ] ]);
recipe('Liveness checks', [
	[ '-', 'monitor:tcp', 'SELECT# 1' ],
	[ '-', 'monitor:tcp', 'SELECT 1', of_user('LOGIN', 'monitor') ],
	[ '+', 'monitor:tcp', $read_orders ],
	[ '+', 'monitor',     'SELECT# 1' ],
	[ '+', 'mary:tcp',    'SELECT# 1' ] ]);
recipe('Members of a group', [
	[ 'payroll', 'mary',  $read_orders ],
	[ 'payroll', 'mary',  'SET# work_mem = 1024' ],
	[ '-',       'batch', $read_orders ] ]);
unaudited_sql($node, 'GRANT payroll TO batch');
is_deeply([ map { $_->{policy} } marked(records_for($node, sub { execute('batch', $read_orders) })) ],
	['payroll'], 'Members of a group: one that has just been made one');
unaudited_sql($node, 'REVOKE payroll FROM batch');
recipe('All but members of a group', [
	[ '-', 'robo', $read_orders ],
	[ '+', 'mary', $read_orders ] ]);
recipe('Object auditing by grants', [
	[ 'auditor', 'mary', 'SELECT# a FROM hr.salary' ],
	[ '-',       'mary', 'INSERT# INTO hr.salary VALUES (1)' ],
	[ '-',       'mary', $read_orders ] ]);
recipe('Many rows, or long', [
	[ 'many', 'mary', 'SELECT# a FROM hr.salary LIMIT 100' ],
	[ '-',    'mary', 'SELECT# a FROM hr.salary LIMIT 99' ],
	[ 'long', 'mary', 'SELECT# a, pg_sleep(0.3) FROM hr.salary LIMIT 1' ],
	[ '-',    'mary', 'SELECT# a FROM public.orders LIMIT 100' ] ],
	'10s' => '300ms');
recipe('What failed', [
	[ '+', 'mary', 'SELECT# 1 / 0' ],
	[ '+', 'mary', 'SELECT# 1 1' ],
	[ '+', 'mary', 'SELECT# a FROM public.secret' ],
	[ '-', 'mary', $read_orders ] ]);
recipe('What was denied', [
	[ '+', 'mary', 'SELECT# a FROM public.secret' ],
	[ '-', 'mary', 'SELECT# 1 / 0' ],
	[ '-', 'mary', $read_orders ],
	[ '+', 'nobody', '', of_user('LOGIN', 'nobody') ] ]);
recipe('Switches of privileges', [
	[ '+', 'ann', 'SET# ROLE mary' ],
	[ '+', 'mary', 'RESET# ROLE' ],
	[ '-', 'mary', 'SET# work_mem = 64' ],
	[ '-', 'mary', $read_orders ] ]);
ok(durable_at_once('ann', 'SET# ROLE mary'), 'switches: durable');
recipe('TRUNCATE apart from other writes', [
	[ 'truncate', 'mary', 'TRUNCATE# public.staging' ],
	[ '-',        'mary', 'DELETE# FROM public.staging' ],
	[ '+',        'mary', $read_orders ] ]);
ok(durable_at_once('mary', 'TRUNCATE# public.staging'), 'TRUNCATE: durable');
ok(!durable_at_once('mary', $read_orders), 'others can wait');
recipe('Temporary tables', [
	[ '-', 'mary', 'CREATE# TEMP TABLE x (a int)' ],
	[ '-', 'mary', 'CREATE TEMP TABLE x (a int); INSERT# INTO x VALUES (1)' ],
	[ '-', 'mary', 'CREATE TEMP TABLE x (a int); SELECT# a FROM x' ],
	[ '+', 'mary', 'CREATE TEMP TABLE x (a int); SELECT# x.a FROM x, public.orders' ],
	[ '+', 'mary', $new_table ] ]);
recipe('Only DROP and ALTER of tables', [
	[ '+', 'mary', 'BEGIN; CREATE TABLE public.n (); DROP# TABLE public.n; ROLLBACK' ],
	[ '+', 'mary', 'BEGIN; CREATE TABLE public.n (); ALTER# TABLE public.n ADD a int; ROLLBACK' ],
	[ '-', 'mary', $new_table ],
	[ '-', 'mary', $read_orders ] ]);
recipe('One database', [
	[ '+', 'mary@bank', 'SELECT# 1' ],
	[ '-', 'mary',      'SELECT# 1' ] ]);
recipe('All but one database', [
	[ '-', 'mary@scratch', 'SELECT# 1' ],
	[ '+', 'mary@bank',    'SELECT# 1' ] ]);
recipe('All but one schema', [
	[ '-', 'mary', 'INSERT# INTO staging.raw SELECT 1' ],
	[ '-', 'mary', 'BEGIN; CREATE# TABLE staging.n (a int); ROLLBACK' ],
	[ '+', 'mary', 'INSERT# INTO staging.raw SELECT a FROM public.orders' ],
	[ '+', 'mary', 'SELECT# a FROM public.staging' ] ]);
recipe('Tools that read the catalogs', [
	[ '-', 'mary', 'SELECT# relname FROM pg_class LIMIT 1' ],
	[ '-', 'mary', 'SELECT# feature_id FROM information_schema.sql_features' ],
	[ '+', 'ann',  'SELECT# rolpassword FROM pg_authid' ],
	[ '+', 'mary', 'SELECT# relname FROM pg_class, public.orders LIMIT 1' ],
	[ '+', 'mary', $read_orders ] ]);
recipe('DDL of superusers', [
	[ 'dba', 'ann', $new_table ],
	[ 'dba', 'ann', "SET pg_audit_queue.policy = off; $new_table" ],
	[ 'dba', 'ann', 'BEGIN; CREATE# ROLE new_role; ROLLBACK' ],
	[ '-',   'ann', $read_orders ],
	[ '-',   'mary', $new_table ],
	[ 'as_dba', 'mary', 'SELECT public.by_ann()', sub { grep { $_->{command} eq 'CREATE TABLE' } @_ } ] ]);
recipe('Logins from one network', [
	[ '+', 'mary:tcp', 'SELECT 1',      of_user('LOGIN', 'mary') ],
	[ '-', 'mary:tcp', $read_orders ],
	[ '-', 'mary',     'SELECT 1',      of_user('LOGIN', 'mary') ] ],
	'10.20.0.0/16' => '127.0.0.0/8');
recipe('Failed logins', [
	[ '+', 'nobody', '', of_user('LOGIN', 'nobody') ],
	[ '+', 'mary@nowhere', '', of_user('LOGIN', 'mary') ],
	[ '-', 'mary', 'SELECT 1', of_user('LOGIN', 'mary') ],
	[ '-', 'mary', 'SELECT# 1 / 0' ] ]);
recipe('Parameters of one schema', [
	map {
		my ($expected, $table) = @$_;
		[ $expected, 'mary', "PREPARE p(int) AS SELECT# a FROM $table WHERE a = \$1; EXECUTE p(7)",
			sub { grep { $_->{command} eq 'SELECT' && $_->{paramList} && $_->{paramList}[0] eq '7' } @_ } ]
	} [ '+', 'billing.invoice' ], [ '-', 'public.orders' ] ]);
recipe('Personal data', [
	[ '-', 'mary', 'SELECT# a FROM crm.customer WHERE a = 4711', sub { grep { $_->{commandText} =~ /4711/ } marked(@_) } ],
	[ '+', 'mary', 'SELECT# a FROM crm.customer WHERE a = 4711', sub { grep { $_->{commandText} =~ /a = \$1/ } marked(@_) } ],
	[ '+', 'mary', 'SELECT# a FROM public.orders WHERE a = 4711', sub { grep { $_->{commandText} =~ /4711/ } marked(@_) } ] ]);
recipe('Administrators, durable at once', [ [ '+', 'mary', $read_orders ], [ '+', 'ann', $read_orders ] ]);
ok(!durable_at_once('mary', $read_orders), 'Administrators: others can wait');
ok(durable_at_once('ann', $read_orders), 'Administrators: durable');
recipe('Mass reads', [
	[ 'mass_read', 'mary', 'SELECT# g FROM generate_series(1, 10000) g' ],
	[ '-',         'mary', 'SELECT# g FROM generate_series(1, 9999) g' ] ]);
recipe('Replication connections', [
	[ '+', sub { $node->psql('postgres', 'IDENTIFY_SYSTEM', replication => 'true') }, undef,
		sub { grep { $_->{command} eq 'IDENTIFY_SYSTEM' } @_ } ],
	[ '+', sub { $node->psql('postgres', 'IDENTIFY_SYSTEM', replication => 'true') }, undef,
		sub { grep { $_->{command} eq 'LOGIN' } @_ } ],
	[ '-', sub { $node->psql('postgres', 'IDENTIFY_SYSTEM', replication => 'database') }, undef,
		sub { grep { $_->{command} ne 'LOGOUT' } @_ } ],
	[ '-', 'mary', $read_orders ] ]);
recipe('Functions of one schema', [
	[ '+', 'mary', 'SELECT# api.f()' ],
	[ '-', 'mary', 'SELECT api.f()', sub { grep { $_->{class} ne 'FUNCTION' } @_ } ],
	[ '-', 'mary', 'SELECT# public.g()' ] ]);
recipe('Roles behind a pool', [
	[ 'person', 'pool>tina', $read_orders ],
	[ '-',      'pool',      $read_orders ],
	[ '+',      'tina',      $read_orders ] ]);

is_deeply([ sort keys %recipes ], [], 'all recipes are tested');
check_trail($node, 'the trail is whole');
$node->stop;
done_testing();
