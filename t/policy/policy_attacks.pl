# Attempts to get around rules in SQL: by other names, by what is not counted, by
# the file in which rules are kept.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqPolicy;
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node('main', settings => { log => 'none' }, conf => "autovacuum = off\n");

unaudited_sql($node, q{
	CREATE ROLE eve SUPERUSER LOGIN;
	CREATE SCHEMA s; CREATE SCHEMA "other"; CREATE SCHEMA "Odd";
	CREATE TABLE s.card (a int); CREATE TABLE s.victim AS SELECT generate_series(1, 100) a;
	CREATE TABLE s.mine (a int);
	CREATE RULE also AS ON INSERT TO s.mine DO ALSO DELETE FROM s.victim;
	CREATE TABLE s.parent (a int) PARTITION BY LIST (a);
	CREATE TABLE other.part PARTITION OF s.parent FOR VALUES IN (1);
	CREATE FUNCTION s.purge() RETURNS int LANGUAGE plpgsql AS $$BEGIN
		DELETE FROM s.victim WHERE false; RETURN 1; END$$;
	CREATE FUNCTION s.f(int) RETURNS int LANGUAGE sql AS 'SELECT 1';
	CREATE TYPE s.ty AS (a int); CREATE TABLE other.cols (a int, b s.ty) });

# Commands and rules of the records of what eve executes
sub trace
{
	my ($sql) = @_;
	my $before = flush_trail($node);

	$node->psql('postgres', $sql, connstr => $node->connstr('postgres') . ' user=eve', on_error_stop => 0);
	flush_trail($node);
	return join '; ', map { $_->{command} . ' ' . ($_->{policy} // '-') }
	  grep { $_->{sequence} > $before && ($_->{dbUserName} // '') eq 'eve' && $_->{class} ne 'CONFIG' }
	  trail_records($node);
}

# ---------------------------------------------------------------------------
# Names
# ---------------------------------------------------------------------------

install_policy($node, <<'EOT', log => 'none');
ignore all all all ddl other.hidden
record all all all ddl s.card,s.f,s.ty name=s
record all all all ddl other name=other
record all all all ddl Odd.* name=odd
EOT
is(trace('ALTER TABLE s.card RENAME TO k; ALTER TABLE s.k RENAME TO card'), 'ALTER TABLE s; ALTER TABLE s',
	'a table gets another name, and its own again');
is(trace('ALTER TABLE s.card SET SCHEMA other; ALTER TABLE other.card SET SCHEMA s'),
	'ALTER TABLE s; ALTER TABLE s', 'or another schema');
is(trace('ALTER TABLE other.cols RENAME TO hidden; ALTER TABLE other.hidden RENAME TO cols'),
	'ALTER TABLE other; ALTER TABLE other', 'or a name that is ignored');
is(trace('ALTER SCHEMA s RENAME TO k; ALTER SCHEMA k RENAME TO s'), 'ALTER SCHEMA s; ALTER SCHEMA s',
	'the schema gets another name');
is(trace('ALTER FUNCTION s.f(int) RENAME TO k; ALTER FUNCTION s.k(int) RENAME TO f'),
	'ALTER FUNCTION s; ALTER FUNCTION s', 'a function');
is(trace('ALTER TYPE s.ty SET SCHEMA other; ALTER TYPE other.ty SET SCHEMA s'), 'ALTER TYPE s; ALTER TYPE s',
	'a type');
is(trace('CREATE FUNCTION "Odd"."F.x"(int) RETURNS int LANGUAGE sql AS \'SELECT 1\'; DROP FUNCTION "Odd"."F.x"(int)'),
	'CREATE FUNCTION odd; DROP FUNCTION odd', 'a name in quotes');
is(trace('ALTER TABLE s.parent DETACH PARTITION other.part'), 'ALTER TABLE other; ALTER TABLE other',
	'a partition is detached: the table, and the partition');
is(trace('DROP TYPE s.ty CASCADE'), 'DROP TYPE s; DROP TYPE other', 'a column is dropped by CASCADE');

# ---------------------------------------------------------------------------
# Rows
# ---------------------------------------------------------------------------

install_policy($node, <<'EOT', log => 'none');
record all all all read,write s.victim rows>=10 name=many
ignore all all all write s.victim rows<10
record all all all write s.victim name=rest
EOT
is(trace('BEGIN; WITH d AS (DELETE FROM s.victim RETURNING 1) SELECT 1 WHERE false; ROLLBACK'), 'SELECT many',
	'rows that WITH deletes');
is(trace('BEGIN; INSERT INTO s.mine VALUES (1); ROLLBACK'), 'DELETE many', 'rows that a rule has deleted as well');
is(trace('BEGIN; DELETE FROM s.victim WHERE a < 5; ROLLBACK'), '', 'few rows');

# ---------------------------------------------------------------------------
# Catalogs that log_catalog leaves out, and functions that it does not
# ---------------------------------------------------------------------------

foreach my $case (
	[ 'rules about other things', "record all all all ddl other name=other\n" ],
	[ 'a condition on the end', "record all all all read pg_catalog outcome=failed name=failed\n" ])
{
	my ($name, $rules) = @$case;
	my $failed = $rules =~ /failed/ ? 'failed' : '-';

	foreach my $log ('read, ddl', 'read')
	{
		install_policy($node, $rules, log => $log, log_catalog => 'off');
		is(trace('SELECT count(*) FROM pg_class'), '', "$name, $log: a catalog is read");
		is(trace("SELECT $_ FROM pg_class LIMIT 1"), 'SELECT -', "$name, $log: and by the way $_")
		  foreach "set_config('work_mem', '4MB', false)", 'pg_terminate_backend(0)', 's.purge()',
		  'lo_unlink(lo_create(0))';
		is(trace('SELECT 1 / (relnatts * 0) FROM pg_class'), $failed eq '-' ? '' : 'SELECT failed', "$name, $log: it fails");
		is(trace('SELECT s.purge() / 0 FROM pg_class'), "SELECT $failed", "$name, $log: that fails");
	}
	install_policy($node, $rules, log => 'ddl', log_catalog => 'off');
	is(trace('SELECT s.purge() FROM pg_class'), '', "$name, ddl: reads are not audited");
}
install_policy($node, "ignore all all all all pg_catalog\n", log => 'read, function', log_catalog => 'off');
is(trace('SELECT s.purge() FROM pg_class LIMIT 1'), 'EXECUTE -', 'a rule ignores the statement');

# What only the settings want is no record of object auditing, and is recorded once, though grants
# have selected a relation for a rule that does not hold in the end.
unaudited_sql($node, 'CREATE ROLE auditor; GRANT SELECT ON pg_class, s.card TO auditor');
install_policy($node, "record all all all read role:auditor outcome=failed name=failed\n", log => 'read', log_catalog => 'off');
foreach my $case (
	[ 'SELECT count(s.purge()) FROM pg_class', 'SESSION||' ],
	[ 'SELECT count(*) FROM s.card, pg_class, s.victim', 'SESSION||' ],
	[ 'SELECT count(*) FROM s.card', 'SESSION|s.card|' ],
	[ 'SELECT 1 / count(*) FROM s.card', 'OBJECT|s.card|failed' ])
{
	my ($sql, $expected) = @$case;
	my $before = flush_trail($node);

	$node->psql('postgres', $sql, connstr => $node->connstr('postgres') . ' user=eve', on_error_stop => 0);
	flush_trail($node);
	is_deeply([ columns('auditType objectName policy',
			grep { $_->{sequence} > $before && ($_->{dbUserName} // '') eq 'eve' } trail_records($node)) ],
		[$expected], $sql);
}

# ---------------------------------------------------------------------------
# Temporary tables
# ---------------------------------------------------------------------------

install_policy($node, "ignore all all all temp all\nrecord all all all read,write all name=rest\n",
	log => 'none');
is(trace(q{CREATE TEMP TABLE t (a int); INSERT INTO t VALUES (1); COPY t FROM PROGRAM 'echo 1';
	COPY t TO STDOUT; SELECT * FROM t}), 'COPY rest', 'a program that fills a temporary table');

# ---------------------------------------------------------------------------
# The kept file
# ---------------------------------------------------------------------------

my $kept = queue_dir($node) . '/policy';
my $evil = $node->basedir . '/evil';
my $card = "record all all all all s.card mandatory name=card\n";

# Others' rules, whole and with the right checksum, in place of those in effect
install_policy($node, "ignore all all all all all\n", log => 'none');
system_or_bail('cp', '-p', $kept, $evil);
install_policy($node, $card, log => 'none');
is(trace('SELECT * FROM s.card'), 'SELECT card', 'a rule is in effect');

foreach my $how ('others', 'garbage', 'nothing')
{
	my $old = -s $node->logfile;

	if    ($how eq 'others')  { system_or_bail('cp', '-p', $evil, $kept) }
	elsif ($how eq 'garbage') { append_to_file($kept, 'x') }
	else                      { unlink $kept or die "unlink: $!" }
	like(trace('SELECT * FROM s.card; SELECT 1'), qr/SELECT -; SELECT -/, "$how in the kept file: all is recorded");
	$node->reload;
	ok(wait_for_log($node, qr/kept audit policy was changed, or cannot be read/, $old), "$how: a reload finds it");
	ok(poll_until(sub { trace('SELECT 1; SELECT * FROM s.card') eq 'SELECT card' }), "$how: the rule is in effect again");
}
my @told = grep { ($_->{errorMessage} // '') =~ /kept rules of the audit policy were changed/ } trail_records($node);
cmp_ok(scalar @told, '>', 0, 'the trail tells of it');

check_trail($node, 'the trail is whole');
$node->stop;
done_testing();
