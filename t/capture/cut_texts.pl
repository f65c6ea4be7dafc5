# A text that is too long for the queue, when no file can be made for it: the
# statement with that text fails, whatever is executed before it has begun, and
# no other statement.  The same is true where only object auditing records the
# statement, or only a function that is called to plan it.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;

use PostgreSQL::Test::Utils;

my $node    = audited_node('main', settings => { log => 'none' });
my $padding = 'x' x 400_000;

sub sql
{
	return unaudited_sql($node, $_[0]);
}

# Run SQL with settings of auditing; returns what psql prints, or the error.
sub sql_with
{
	my ($sql, %settings) = @_;

	local $ENV{PGOPTIONS} = join ' ',
	  map { "-c pg_audit_queue.$_=$settings{$_}" } sort keys %settings;
	my ($ret, $stdout, $stderr) = $node->psql('postgres', $sql);

	return $stderr =~ /ERROR:  (.*?)(?: for the audit trail.*)?$/m ? "error: $1" : $stdout;
}

sql($_)
  foreach 'CREATE ROLE auditor', 'CREATE ROLE nobody', 'CREATE SEQUENCE done',
  'CREATE TABLE parts (k int) PARTITION BY LIST (k)',
  'CREATE TABLE part_1 PARTITION OF parts FOR VALUES IN (1)',
  'CREATE TABLE part_2 PARTITION OF parts FOR VALUES IN (2)',
  'INSERT INTO parts VALUES (1), (2)',
  'CREATE TABLE kept AS SELECT 1 AS a',
  'GRANT SELECT, TRUNCATE ON kept TO auditor',
  q{CREATE FUNCTION key() RETURNS int STABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM count(*) FROM kept; RETURN 1; END $$},
  q{CREATE FUNCTION innocent() RETURNS int LANGUAGE plpgsql AS
	$$ BEGIN RETURN 1; END $$},
  q{CREATE FUNCTION planned(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS
	$$ BEGIN PERFORM nextval('done'); RETURN 1; END $$};

my $refused = 'error: could not keep the text of the statement';

chmod 0500, queue_dir($node) or die "chmod: $!";
is(sql_with("SELECT nextval('done') FROM parts WHERE k = key() /* $padding */", log => 'read'),
	$refused, 'it fails, whatever finding its partitions executes');
is( sql_with(
		qq{DO \$\$ BEGIN BEGIN SET LOCAL ROLE nobody;
		   EXECUTE 'SELECT a FROM kept /* ' || repeat('x', 400000) || ' */';
		   EXCEPTION WHEN insufficient_privilege THEN NULL; END;
		   IF innocent() = 1 THEN PERFORM setval('done', 10); END IF; END \$\$;
		   SELECT last_value FROM done},
		log => 'all'),
	'10', 'it is not what comes after a statement that has failed');
is(sql_with("SELECT planned(1) /* $padding */", log => 'function'),
	$refused, 'it fails before a function is called to plan it');
is(sql('SELECT last_value FROM done'), '10', 'which is not');
is(sql_with("COPY kept TO STDOUT /* $padding */", log => 'none', role => 'auditor'),
	$refused, 'COPY fails in object auditing');
is(sql_with("TRUNCATE kept /* $padding */", log => 'none', role => 'auditor'),
	$refused, 'and TRUNCATE');
is(sql('SELECT count(*) FROM kept'), '1', 'before anything is removed');
chmod 0700, queue_dir($node) or die "chmod: $!";
is(sql_with("COPY kept TO STDOUT /* $padding */", log => 'none', role => 'auditor'),
	'1', 'neither does when there is a file');
$node->stop;

done_testing();
