# What audit_check() executes is the library's own, and known: the trail has short
# records of it, and not its text, again and again.  That is nothing which others
# could use to hide texts: their functions are recorded as ever.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node('main');

# Records of a call, with the length of their texts
sub is_short
{
	my ($sql, $outcome) = @_;
	my @records = records_for($node, $sql, on_error_stop => 0);
	my @texts = map { $_->{commandText} // '' } @records;

	is_deeply([ grep { length > 500 } @texts ], [], "$sql: no long text");
	cmp_ok(scalar(grep { $_ ne '' && $_ ne shown_text($node, $sql) } @texts), '<=', 1, 'and hardly any but the caller\'s');
	is_deeply([ grep { $_->{exitCode} ne $outcome } @records ], [], 'with the outcome');
	cmp_ok(scalar(grep { $_->{class} eq 'READ' } @records), '>=', 2, 'each statement has a record');
	is_deeply(
		[ grep { /profile|server_settings|log_classes|setting_is_valid|stat_get|policy_rules|coverage/ } map { $_->{objectName} // '' } @records ],
		[], 'and what it calls of the library has none');
	ok((grep { $_->{class} eq 'READ' && ($_->{commandText} // '') ne '' } @records), 'and so has the call');
	return;
}

is_short('SELECT finding FROM audit_check();', '00000');
is_short("SELECT finding FROM audit_check('pci');", '00000');
is_short("SELECT finding FROM audit_check('iso');", '22023');

# Who calls one of these functions himself is recorded.
is_deeply(
	[ columns('class objectName', records_for($node, q{SELECT * FROM audit_queue.profile('pci')})) ],
	[ 'READ|', 'FUNCTION|audit_queue.profile' ], 'a call by the client');

# Somebody else's function in the place of ours: a text, as ever
unaudited_sql($node, q{
	CREATE OR REPLACE FUNCTION audit_queue.policy_errors() RETURNS SETOF text LANGUAGE sql
		AS $$SELECT 'hidden?'::text$$});
my @records = records_for($node, 'SELECT finding FROM audit_check()');
is((grep { ($_->{commandText} // '') =~ /hidden\?/ } @records) > 0, 1, 'a function that was replaced is recorded');

# The bodies are deparsed by pg_upgrade, and have to be the same then.
unaudited_sql($node, 'CREATE DATABASE other');
create_extension($node, 'other');
my $before = unaudited_sql($node, 'SELECT * FROM audit_check()', 'other');
foreach my $function ('audit_queue.configuration_errors()', 'audit_queue.policy_errors()', 'audit_check(text)')
{
	my $definition = unaudited_sql($node, "SELECT pg_get_functiondef('$function'::regprocedure)", 'other');

	like($definition, qr/BEGIN ATOMIC/, "$function is parsed when it is made");
	unaudited_sql($node, "SET search_path = ''; $definition;", 'other');
}
is(unaudited_sql($node, 'SELECT * FROM audit_check()', 'other'), $before, 'and does the same when made again');
$node->stop;

done_testing();
