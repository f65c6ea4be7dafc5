# Rules about a table, and all that belongs to it: whoever uses, changes or drops that, by
# whatever name and in whatever way, is recorded by a rule about the table.
#
# The statements come from PostgreSQL's lists: each catalog whose objects pg_depend says to
# belong to a relation, each way to reach one by CASCADE, each function that reads one.
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

my $node = audited_node('main', settings => { log => 'none' },
	conf => "autovacuum = off\nwal_level = logical\nmax_replication_slots = 4\n");

# The same in two databases: the extension, whose event triggers know the objects of DDL, is in
# one of them.
my $sql = q{
	CREATE SCHEMA hr; CREATE SCHEMA other;
	CREATE DOMAIN other.money AS int;
	CREATE DOMAIN other.more AS other.money;
	CREATE TYPE other.row AS (id int, note text);
	CREATE FUNCTION other.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
	CREATE FUNCTION other.trg() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
	CREATE TABLE hr.salary (id serial PRIMARY KEY, amount other.money DEFAULT 1, pay int, note text,
		num int GENERATED ALWAYS AS IDENTITY, more other.more, CONSTRAINT c CHECK (pay > 0) NOT VALID);
	INSERT INTO hr.salary (amount, pay, note)
		SELECT i, i, repeat(md5(i::text), 1000) FROM generate_series(1, 100) i;
	CREATE INDEX salary_pay ON hr.salary (pay);
	CREATE INDEX salary_brin ON hr.salary USING brin (pay);
	CREATE INDEX salary_gin ON hr.salary USING gin (to_tsvector('simple', left(note, 10)));
	CREATE STATISTICS hr.salary_stat ON amount, pay FROM hr.salary;
	CREATE TRIGGER trg BEFORE UPDATE ON hr.salary FOR EACH ROW EXECUTE FUNCTION other.trg();
	CREATE POLICY pol ON hr.salary;
	CREATE RULE rul AS ON INSERT TO hr.salary DO ALSO NOTIFY x;
	CREATE PUBLICATION pub FOR TABLE hr.salary;
	CREATE TABLE other.ref (id int, pay int, note text); CREATE TABLE other.typed OF other.row;
	GRANT USAGE ON SCHEMA hr, other TO PUBLIC; };

unaudited_sql($node, 'CREATE ROLE eve SUPERUSER LOGIN; CREATE ROLE reader LOGIN; GRANT pg_read_all_data TO reader;
	CREATE ROLE owner LOGIN');
unaudited_sql($node, 'CREATE DATABASE bare');
unaudited_sql($node, $sql);
unaudited_sql($node, $sql, 'bare');

# Every kind of object that belongs to a relation, by pg_depend, is in the table above.
my %kinds = map { $_ => 1 } split /\n/, unaudited_sql($node, q{
	SELECT DISTINCT classid::regclass FROM pg_depend
	 WHERE refclassid = 'pg_class'::regclass AND refobjid = 'hr.salary'::regclass AND deptype IN ('a', 'i', 'P', 'S')});
is(join(' ', sort keys %kinds),
	'pg_attrdef pg_class pg_constraint pg_policy pg_publication_rel pg_rewrite pg_statistic_ext pg_trigger pg_type',
	'kinds of objects that belong to a table');

my $toast = unaudited_sql($node, q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'hr.salary'::regclass});

install_policy($node, "record all all all all hr.salary mandatory name=salary\n", log => 'none');

# The rules of the records of what somebody executes
sub rules_of
{
	my ($database, $statement, $role) = @_;
	my $before = flush_trail($node);

	$role //= 'eve';
	my ($code, $out, $err) = $node->psql($database, $statement, connstr => $node->connstr($database) . " user=$role",
		on_error_stop => 1);
	diag("$statement: $err") if $code != 0;
	flush_trail($node);
	return join ' ', map { $_->{policy} // '-' }
	  grep { $_->{sequence} > $before && ($_->{dbUserName} // '') eq $role && $_->{class} ne 'CONFIG' }
	  trail_records($node);
}

# What of a script is about the table: between BEGIN and ROLLBACK, if it can be, so that the
# next one finds everything as it was.
my @statements = (
	'CREATE INDEX x ON hr.salary ((other.f(pay)))',
	'REINDEX INDEX hr.salary_pay',
	'REINDEX TABLE hr.salary',
	'ALTER INDEX hr.salary_pay RENAME TO x',
	'ALTER TABLE hr.salary_pay RENAME TO x',
	'ALTER INDEX hr.salary_pay SET (fillfactor = 50)',
	'ALTER INDEX hr.salary_pay SET TABLESPACE pg_default',
	'DROP INDEX hr.salary_pay',
	q{COMMENT ON INDEX hr.salary_pay IS 'x'},
	'ALTER DOMAIN other.money ADD CONSTRAINT x CHECK (VALUE > 0)',
	'ALTER DOMAIN other.money ADD CONSTRAINT x CHECK (VALUE > 0) NOT VALID; ALTER DOMAIN other.money VALIDATE CONSTRAINT x',
	'ALTER DOMAIN other.money SET NOT NULL',
	'CREATE STATISTICS other.x ON id, pay FROM hr.salary',
	'ALTER STATISTICS hr.salary_stat SET STATISTICS 10',
	'ALTER STATISTICS hr.salary_stat RENAME TO x',
	'DROP STATISTICS hr.salary_stat',
	'CREATE TRIGGER x AFTER INSERT ON hr.salary EXECUTE FUNCTION other.trg()',
	'ALTER TRIGGER trg ON hr.salary RENAME TO x',
	q{COMMENT ON TRIGGER trg ON hr.salary IS 'x'},
	'DROP TRIGGER trg ON hr.salary',
	'CREATE POLICY x ON hr.salary',
	'ALTER POLICY pol ON hr.salary USING (true)',
	'DROP POLICY pol ON hr.salary',
	'CREATE RULE x AS ON DELETE TO hr.salary DO ALSO NOTIFY x',
	'ALTER RULE rul ON hr.salary RENAME TO x',
	'DROP RULE rul ON hr.salary',
	'ALTER TABLE hr.salary ALTER amount DROP DEFAULT',
	'ALTER TABLE hr.salary VALIDATE CONSTRAINT c',
	'ALTER TABLE hr.salary DROP CONSTRAINT c',
	q{COMMENT ON CONSTRAINT c ON hr.salary IS 'x'},
	q{COMMENT ON COLUMN hr.salary.pay IS 'x'},
	'CREATE TABLE other.x (LIKE hr.salary INCLUDING ALL)',
	'CREATE TABLE other.x () INHERITS (hr.salary)',
	'CREATE TABLE other.x (a int REFERENCES hr.salary)',
	'ALTER TABLE other.ref ADD FOREIGN KEY (pay) REFERENCES hr.salary',
	'CREATE PUBLICATION x FOR TABLE hr.salary',
	'CREATE PUBLICATION x FOR ALL TABLES',
	'CREATE PUBLICATION x FOR TABLES IN SCHEMA hr',
	'ALTER PUBLICATION pub DROP TABLE hr.salary',
	'ALTER PUBLICATION pub SET TABLE hr.salary (id, pay)',
	'DROP PUBLICATION pub',
	'ALTER DOMAIN other.more ADD CONSTRAINT x CHECK (VALUE > 0)',
	'ALTER SEQUENCE hr.salary_id_seq RESTART 7',
	'SELECT last_value FROM hr.salary_num_seq',
	'ALTER SEQUENCE hr.salary_id_seq OWNED BY NONE',
	'DROP SEQUENCE hr.salary_id_seq CASCADE',
	'DROP SCHEMA hr CASCADE',
	'DROP TYPE other.money CASCADE',
	'DROP FUNCTION other.trg() CASCADE',
	'ALTER TABLE hr.salary OWNER TO owner; DROP OWNED BY owner',
	'ALTER TABLE hr.salary OWNER TO owner; REASSIGN OWNED BY owner TO eve',
	'ALTER SCHEMA hr RENAME TO x',
	'ANALYZE', 'LOCK TABLE hr.salary', 'TRUNCATE hr.salary',
	q{SELECT brin_summarize_new_values('hr.salary_brin')},
	q{SELECT brin_desummarize_range('hr.salary_brin', 0)},
	q{SELECT gin_clean_pending_list('hr.salary_gin')},
	q{SELECT count(gin_clean_pending_list('hr.salary_gin')) FROM other.ref},
	'CLUSTER hr.salary USING salary_pay',
	'WITH x AS (SELECT 1) SELECT count(*) FROM x, hr.salary');
my @alone = (
	'VACUUM', 'REINDEX SCHEMA hr', 'REINDEX INDEX CONCURRENTLY hr.salary_pay',
	'CREATE INDEX CONCURRENTLY salary_conc ON hr.salary (pay)', 'DROP INDEX CONCURRENTLY hr.salary_conc');

foreach my $database ('postgres', 'bare')
{
	like(rules_of($database, "BEGIN; $_; ROLLBACK"), qr/\bsalary\b/, "$database: $_") foreach @statements;
	like(rules_of($database, $_), qr/\bsalary\b/, "$database: $_") foreach @alone;
	like(rules_of($database, "SELECT count(*) FROM $toast", 'reader'), qr/\bsalary\b/, "$database: its TOAST table")
	  if $database eq 'postgres';

	# And what is not about it is not recorded by its rule.
	is(rules_of($database, "BEGIN; $_; ROLLBACK"), '', "$database: $_")
	  foreach 'SELECT 1', 'SELECT * FROM other.ref', 'INSERT INTO other.ref VALUES (1)', 'LOCK TABLE other.ref',
	  'SELECT nextval(\'hr.salary_id_seq\')', 'TRUNCATE other.ref', 'SET work_mem = 1024';
}
is(rules_of('postgres', "BEGIN; $_; ROLLBACK"), '', "$_")
  foreach 'DROP TABLE other.ref', 'ALTER TABLE other.ref ADD x int', 'CREATE INDEX ON other.ref (pay)',
  'CREATE TABLE other.x (a int)', 'DROP TYPE other.row CASCADE', q{COMMENT ON TABLE other.ref IS 'x'};

# The WAL, by functions and by the protocol

unaudited_sql($node, q{SELECT pg_create_logical_replication_slot('slot', 'pgoutput')});
like(rules_of('postgres', "SELECT count(*) FROM pg_logical_slot_${_}_binary_changes('slot', NULL, 1, 'proto_version', '1',
	'publication_names', 'pub')"), qr/\bsalary\b/, "the WAL: $_") foreach 'peek', 'get';

# ---------------------------------------------------------------------------
# Commands
# ---------------------------------------------------------------------------

install_policy($node, qq{record all all all "ALTER TABLE" hr.salary name=alter
record all all all "DROP TABLE" hr.salary,other.typed name=drop
record all all all function pg_temp.* name=temp
}, log => 'none');
foreach my $database ('postgres', 'bare')
{
	like(rules_of($database, "BEGIN; ALTER INDEX hr.salary RENAME TO x; ROLLBACK"), qr/\balter\b/,
		"$database: a table is renamed by ALTER INDEX");
	like(rules_of($database, "BEGIN; $_; ROLLBACK"), qr/\bdrop\b/, "$database: $_")
	  foreach 'DROP TABLE hr.salary', 'DROP SCHEMA hr CASCADE', 'DROP TYPE other.row CASCADE',
	  'ALTER TABLE hr.salary OWNER TO owner; DROP OWNED BY owner';
	unlike(rules_of($database, "BEGIN; $_; ROLLBACK"), qr/\bdrop\b/, "$database: $_")
	  foreach 'DROP INDEX hr.salary_pay', 'ALTER TABLE hr.salary DROP pay', 'DROP TABLE other.ref';
}
# ---------------------------------------------------------------------------
# What is and what is not temporary; what a statement concerns beside what it names
# ---------------------------------------------------------------------------

install_policy($node, "ignore all all all temp all\nrecord all all all ddl hr.*,other.m name=ddl\n", log => 'none');
foreach my $database ('postgres', 'bare')
{
	like(rules_of($database, "BEGIN; $_; ROLLBACK"), qr/\bddl\b/, "$database: $_")
	  foreach 'ALTER DOMAIN other.money ADD CONSTRAINT x CHECK (VALUE > 0)',
	  'CREATE TEMP TABLE t (a int); CREATE TABLE hr.x (LIKE t)', 'CREATE TABLE hr.x (LIKE other.ref)',
	  'CREATE TABLE hr.x (a int, LIKE other.ref)', 'CREATE PUBLICATION x FOR TABLE other.ref, TABLES IN SCHEMA hr',
	  'ALTER PUBLICATION pub SET TABLE other.ref, TABLES IN SCHEMA hr',
	  'CREATE TABLE other.p (LIKE hr.salary) PARTITION BY LIST (id); ALTER TABLE other.p ATTACH PARTITION hr.salary DEFAULT',
	  'CREATE TEMP SEQUENCE s; ALTER TABLE hr.salary ALTER pay SET DEFAULT nextval(\'s\'); DROP SEQUENCE s CASCADE';
}
is(rules_of('postgres', 'CREATE TEMP TABLE t (a int); ALTER TABLE t ADD b int; DROP TABLE t'), '', 'a temporary table');
install_policy($node, qq{record all all all "DROP OWNED","DROP SCHEMA" hr.salary_brin name=drop\n}, log => 'none');
like(rules_of('postgres', "BEGIN; $_; ROLLBACK"), qr/\bdrop\b/, "an index: $_")
  foreach 'DROP SCHEMA hr CASCADE', 'ALTER TABLE hr.salary OWNER TO owner; DROP OWNED BY owner';

unaudited_sql($node, 'ALTER TABLE hr.salary OWNER TO eve');
install_policy($node, "record all all all read,ddl hr.salary name=salary\n", log => 'none');
is(rules_of('postgres', q{CREATE SEQUENCE hr.s; SELECT last_value FROM hr.s; ALTER SEQUENCE hr.s OWNED BY hr.salary.id;
	SELECT last_value FROM hr.s; DROP SEQUENCE hr.s}), 'salary salary salary', 'a sequence comes to belong to the table');

# No more records than objects
is(rules_of('postgres', "BEGIN; $_->[0]; ROLLBACK"), join(' ', ('salary') x $_->[1]), "$_->[1] records: $_->[0]")
  foreach [ 'CREATE INDEX x ON hr.salary (pay)', 1 ], [ 'DROP INDEX hr.salary_pay', 1 ],
  [ 'CREATE TRIGGER x BEFORE INSERT ON hr.salary EXECUTE FUNCTION other.trg()', 1 ],
  [ 'DROP TRIGGER trg ON hr.salary', 1 ], [ 'ALTER TABLE hr.salary ALTER note TYPE varchar', 1 ],
  [ 'CREATE TABLE other.x (LIKE hr.salary)', 1 ];

unaudited_sql($node, q{CREATE ROLE plain LOGIN; CREATE SCHEMA secret; CREATE DOMAIN secret.d AS int});
install_policy($node, "record all plain all ddl all name=all\n", log => 'none');
{
	my $before = flush_trail($node);

	$node->psql('postgres', 'ALTER DOMAIN secret.d ADD CHECK (VALUE > 0)', connstr => $node->connstr('postgres') . ' user=plain');
	flush_trail($node);
	is_deeply([ columns('command exitCode policy', grep { $_->{sequence} > $before && ($_->{dbUserName} // '') eq 'plain' }
			trail_records($node)) ], ['ALTER DOMAIN|42501|all'], 'a domain that may not be looked up');
}

# An extension whose script fails
install_policy($node, "record all all all all hr.salary mandatory name=salary\n", log => 'ddl');
if (-e `pg_config --sharedir` =~ s/\n//r . '/extension/pg_trgm.control')
{
	unaudited_sql($node, q{CREATE FUNCTION similarity(text, text) RETURNS int LANGUAGE sql AS 'SELECT 1'});
	my $before = flush_trail($node);

	$node->psql('postgres', 'CREATE EXTENSION pg_trgm', connstr => $node->connstr('postgres') . ' user=eve');
	flush_trail($node);
	is(scalar(grep { $_->{sequence} > $before && ($_->{command} // '') eq 'CREATE EXTENSION' } trail_records($node)),
		1, 'CREATE EXTENSION that fails has one record');
}

install_policy($node, "record all all all function pg_temp.* name=temp\n", log => 'none');
is(rules_of('postgres', q{CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
	SELECT pg_temp.f()}), 'temp', 'a function in pg_temp');

check_trail($node, 'the trail is whole');
$node->stop;
done_testing();
