# Rules and changes: a session that has been there before, and has executed its
# statements before, is judged by names, memberships and grants as they are now.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqPolicy;
use PaqTest;

use PgProto;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node('main', settings => { log => 'none' }, conf => "autovacuum = off\n");

unaudited_sql($node, q{
	CREATE ROLE ann LOGIN; CREATE ROLE sue LOGIN SUPERUSER;
	CREATE ROLE staff; CREATE ROLE team; CREATE ROLE auditor; CREATE ROLE deputy;
	GRANT deputy TO ann; GRANT staff TO team;
	CREATE SCHEMA s; CREATE SCHEMA k;
	CREATE TABLE s.t (a int);
	CREATE TABLE s.other (a int);
	CREATE TABLE s.p (a int) PARTITION BY LIST (a);
	CREATE TABLE s.loose (a int);
	CREATE TABLE s.parent (a int);
	CREATE TABLE s.child (a int);
	CREATE TABLE s.grp (a int); CREATE TABLE s.own (a int);
	CREATE TABLE s.acl (a int); CREATE TABLE s.cur (a int);
	CREATE TABLE s.root (a int) PARTITION BY LIST (a);
	CREATE TABLE s.mid PARTITION OF s.root DEFAULT PARTITION BY LIST (a);
	CREATE TABLE s.leaf (a int);
	CREATE FUNCTION s.f() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
	CREATE VIEW s.v AS SELECT a FROM s.other;
	CREATE SCHEMA view; CREATE VIEW view.t AS SELECT a FROM s.t;
	CREATE VIEW view.f AS SELECT s.f() AS a;
	GRANT USAGE ON SCHEMA s, k, view TO PUBLIC;
	GRANT SELECT ON ALL TABLES IN SCHEMA s, view TO PUBLIC });

# The rules of the reads, and calls, that the client's statement makes
sub rules_of
{
	my ($client, $sql) = @_;
	my $before = flush_trail($node);
	my $answer = $client->query($sql);

	die "$sql: $answer" if $answer =~ /E:/;
	flush_trail($node);
	return join ' ', map { $_->{policy} // '+' }
	  grep { $_->{sequence} > $before && $_->{class} =~ /READ|FUNCTION/ } trail_records($node);
}

# Expect these rules, of a statement that is executed for the first time since a change,
# and of one that finds what has been decided.
sub follows
{
	my ($client, $sql, $expected, $name) = @_;

	is(join(', ', map { rules_of($client, $sql) } 1, 2), "$expected, $expected", $name);
	return;
}

# Names and memberships.  Through a view a statement finds its table by any name.

install_policy($node, <<'EOF', log => 'none');
record all all all read s.t name=t
record all all all read k.* name=k
record all all all read s.p name=p
record all all all read s.parent name=parent
record all all all read s.leaf name=leaf
record all all all function s.f name=f
record all all all function k.f name=kf
record all +staff all read s.grp name=staff
record all anne all read s.own name=anne
EOF
my $client = PgProto->connect($node, user => 'ann');
$client->query('PREPARE t AS SELECT a FROM view.t');
$client->query("PREPARE $_ AS SELECT a FROM s.$_") foreach qw(loose child v grp own root);
$client->query('PREPARE f AS SELECT a FROM view.f');
foreach my $case (
	[ 't',     't', 'ALTER TABLE s.t RENAME TO u',       '',       'ALTER TABLE s.u RENAME TO t' ],
	[ 't',     't', 'ALTER TABLE s.t SET SCHEMA k',      'k',      'ALTER TABLE k.t SET SCHEMA s' ],
	[ 't',     't', 'ALTER SCHEMA s RENAME TO z',        '',       'ALTER SCHEMA z RENAME TO s' ],
	[ 'v',     '',  'CREATE OR REPLACE VIEW s.v AS SELECT a FROM s.t', 't',
		'CREATE OR REPLACE VIEW s.v AS SELECT a FROM s.other' ],
	[ 'loose', '',  'ALTER TABLE s.p ATTACH PARTITION s.loose FOR VALUES IN (1)', 'p',
		'ALTER TABLE s.p DETACH PARTITION s.loose' ],
	[ 'child', '',  'ALTER TABLE s.child INHERIT s.parent', 'parent', 'ALTER TABLE s.child NO INHERIT s.parent' ],
	[ 'root',  '',  'ALTER TABLE s.mid ATTACH PARTITION s.leaf FOR VALUES IN (1)', 'leaf',
		'ALTER TABLE s.mid DETACH PARTITION s.leaf' ],
	[ 'root',  '',  'ALTER TABLE s.mid SET SCHEMA k',    'k',      'ALTER TABLE k.mid SET SCHEMA s' ],
	[ 'f',     'f', 'ALTER FUNCTION s.f() RENAME TO g',  '',       'ALTER FUNCTION s.g() RENAME TO f' ],
	[ 'f',     'f', 'ALTER FUNCTION s.f() SET SCHEMA k', 'kf',     'ALTER FUNCTION k.f() SET SCHEMA s' ],
	[ 'f',     'f', 'ALTER SCHEMA s RENAME TO z',        '',       'ALTER SCHEMA z RENAME TO s' ],
	[ 'grp',   '',  'GRANT staff TO ann',                'staff',  'REVOKE staff FROM ann' ],
	[ 'grp',   '',  'GRANT team TO ann',                 'staff',  'REVOKE team FROM ann' ],
	[ 'own',   '',  'ALTER ROLE ann RENAME TO anne',     'anne',   'ALTER ROLE anne RENAME TO ann' ])
{
	my ($statement, $rules, $change, $changed, $back) = @$case;

	follows($client, "EXECUTE $statement", $rules, "before: $change");
	unaudited_sql($node, $change);
	follows($client, "EXECUTE $statement", $changed, "after: $change");
	unaudited_sql($node, $back);
	follows($client, "EXECUTE $statement", $rules, "after: $back");
}
unaudited_sql($node, 'GRANT staff TO ann');
follows($client, 'EXECUTE grp', 'staff', 'a group');
unaudited_sql($node, 'ALTER ROLE staff RENAME TO crew');
follows($client, 'EXECUTE grp', '', 'which has another name');
unaudited_sql($node, 'ALTER ROLE crew RENAME TO staff; REVOKE staff FROM ann');

follows($client, 'SELECT a FROM s.t', 't', 'a table');
unaudited_sql($node, 'ALTER TABLE s.t RENAME TO u; ALTER TABLE s.other RENAME TO t');
follows($client, 'SELECT a FROM s.t', 't',  'another one by its name');
follows($client, 'SELECT a FROM s.u', '',  'which is not that one any more');
unaudited_sql($node, 'DROP TABLE s.u CASCADE; ALTER TABLE s.t RENAME TO other; CREATE TABLE s.t (a int); GRANT SELECT ON s.t TO PUBLIC');
follows($client, 'SELECT a FROM s.t',     't', 'a new one');
follows($client, 'SELECT a FROM s.other', '',  'and the other one again');

# A change by the session itself, in a transaction that is rolled back

my $owner = PgProto->connect($node, user => 'sue');
follows($owner, 'SELECT a FROM s.t', 't', 'its own change: before');
$owner->query('BEGIN');
$owner->query('ALTER TABLE s.t RENAME TO u');
follows($owner, 'SELECT a FROM s.u', '', 'within the transaction');
$owner->query('ROLLBACK');
follows($owner, 'SELECT a FROM s.t', 't', 'after ROLLBACK');

# Grants, and the current user

install_policy($node, <<'EOF', log => 'none');
record all all all read role:auditor name=granted
record all all all read s.cur currentuser=deputy name=deputy
record all all all read s.grp currentuser=+staff name=current
record all ann all read s.own name=ann
EOF
follows($client, 'SELECT a FROM s.acl', '', 'no grant');
unaudited_sql($node, 'GRANT SELECT ON s.acl TO auditor');
follows($client, 'SELECT a FROM s.acl', 'granted', 'a grant');
unaudited_sql($node, 'REVOKE SELECT ON s.acl FROM auditor');
follows($client, 'SELECT a FROM s.acl', '', 'none again');
follows($client, 'SELECT a FROM s.cur', '', 'before SET ROLE');
$client->query('SET ROLE deputy');
follows($client, 'SELECT a FROM s.cur', 'deputy', 'SET ROLE: currentuser follows');
follows($client, 'SELECT a FROM s.own', 'ann',    'and the user does not');
follows($client, 'SELECT a FROM s.grp', '', 'a group that the current user is not in');
unaudited_sql($node, 'GRANT staff TO deputy');
follows($client, 'SELECT a FROM s.grp', 'current', 'the current user becomes a member of it');
unaudited_sql($node, 'REVOKE staff FROM deputy');
follows($client, 'SELECT a FROM s.grp', '', 'and is none any more');

# More roles than a session remembers, one after the other.  They own functions, since to be
# able to become one would make the session's user a member of the group, too.
for (1 .. 9)
{
	unaudited_sql($node, "CREATE ROLE more_$_; CREATE FUNCTION s.by_$_() RETURNS void"
		  . " SECURITY DEFINER LANGUAGE plpgsql AS 'BEGIN PERFORM a FROM s.grp; END';"
		  . "ALTER FUNCTION s.by_$_() OWNER TO more_$_");
}
follows($client, "SELECT s.by_$_()", '', "role more_$_") for 1 .. 9;
unaudited_sql($node, 'GRANT staff TO more_1');
follows($client, 'SELECT s.by_1()', 'current', 'one that it has forgotten becomes a member of the group');
unaudited_sql($node, "GRANT staff TO more_$_") for 2 .. 9;
follows($client, "SELECT s.by_$_()", 'current', "role more_$_ becomes a member of the group") for 1 .. 9;
$client->query('SET ROLE deputy');
unaudited_sql($node, 'ALTER ROLE deputy RENAME TO vice');
follows($client, 'SELECT a FROM s.cur', '', 'the role has another name');
unaudited_sql($node, 'ALTER ROLE vice RENAME TO deputy');
$client->query('RESET ROLE');
follows($client, 'SELECT a FROM s.cur', '', 'after RESET ROLE');
$owner->query('SET SESSION AUTHORIZATION ann');
follows($owner, 'SELECT a FROM s.own', '', 'SET SESSION AUTHORIZATION: the user is the one that logged in');
$owner->query('SET SESSION AUTHORIZATION deputy');
follows($owner, 'SELECT a FROM s.cur', 'deputy', 'and currentuser follows');

$_->quit foreach $client, $owner;
check_trail($node, 'the trail is whole');
$node->stop;
done_testing();
