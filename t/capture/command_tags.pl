#
# The class of each command: every tag that the server's own list has, and that a
# statement can have, is recorded, with the classes of pgaudit for that version.
#
# The statements are those of t/lib/parity/, which are compared with pgaudit elsewhere
# (t/capture/pgaudit_parity.pl).  This test needs no pgaudit.  A tag that a new major version
# has brought fails it until the table below says what class it is.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

chomp(my $includedir = `pg_config --includedir-server`);
my ($major) = `pg_config --version` =~ /(\d+)/;
my @tags = slurp_file("$includedir/tcop/cmdtaglist.h") =~ /^PG_CMDTAG\(\w+, "([^"]*)"/gm;

# Classes of a tag, "DDL" for CREATE, ALTER and DROP unless they are here.  Some
# have one or the other, by what they do; the kind of object auditing counts as
# it does for the statement.

my %classes = (
	READ => [ 'COPY', 'DECLARE CURSOR', 'PREPARE', 'SELECT' ],
	WRITE => [
		'COPY', 'DELETE', 'EXPLAIN', 'INSERT', 'MERGE', 'PREPARE', 'TRUNCATE TABLE', 'UPDATE'
	],
	FUNCTION => [ 'DO', 'EXECUTE' ],
	ROLE => [
		'ALTER DEFAULT PRIVILEGES', 'ALTER ROLE', 'CREATE ROLE', 'DROP ROLE', 'GRANT',
		'GRANT ROLE', 'REVOKE', 'REVOKE ROLE',
		$major >= 16 ? ('ALTER USER MAPPING', 'CREATE USER MAPPING') : ()
	],
	DDL => [
		'CLUSTER', 'COMMENT', 'DROP OWNED', 'EXPLAIN', 'IMPORT FOREIGN SCHEMA', 'REASSIGN OWNED',
		'REFRESH MATERIALIZED VIEW', 'REPACK', 'SECURITY LABEL', 'SELECT INTO'
	],
	MISC => [
		'ANALYZE', 'BEGIN', 'CALL', 'CHECKPOINT', 'CLOSE CURSOR', 'CLOSE CURSOR ALL', 'COMMIT',
		'COMMIT PREPARED', 'DEALLOCATE', 'DEALLOCATE ALL', 'DISCARD ALL', 'DISCARD PLANS',
		'DISCARD SEQUENCES', 'DISCARD TEMP', 'EXECUTE', 'EXPLAIN', 'FETCH', 'LISTEN', 'LOAD',
		'LOCK TABLE', 'MOVE', 'NOTIFY', 'PREPARE TRANSACTION', 'REINDEX', 'RELEASE', 'RESET',
		'ROLLBACK', 'ROLLBACK PREPARED', 'SAVEPOINT', 'SET', 'SET CONSTRAINTS', 'SHOW',
		'START TRANSACTION', 'UNLISTEN', 'VACUUM', 'WAIT'
	]);

# Names that PostgreSQL has for nothing: for the list's own use, of what answers
# but is no statement, of replication, and of an event

my %nothing = map { $_ => 1 } (
	'???', 'ALTER ACCESS METHOD', 'ALTER CAST', 'ALTER CONSTRAINT', 'ALTER TRANSFORM', 'CLOSE',
	'COPY FROM', 'CREATE CONSTRAINT', 'CREATE ROUTINE', 'DISCARD', 'DROP CONSTRAINT', 'LOGIN',
	'SELECT FOR KEY SHARE', 'SELECT FOR NO KEY UPDATE', 'SELECT FOR SHARE', 'SELECT FOR UPDATE');

# Names of statements that need what a test server has not
my %untested = map { $_ => 1 } ('SECURITY LABEL');

my %expected;
foreach my $class (sort keys %classes)
{
	$expected{$_}{$class} = 1 foreach @{ $classes{$class} };
}
foreach my $tag (grep { !$expected{$_} && /^(?:CREATE|ALTER|DROP) / } @tags)
{
	$expected{$tag}{DDL} = 1;
}
is(join(', ', grep { !$expected{$_} && !$nothing{$_} } @tags),
	'', 'the class of every tag is known');

# All statements, each recorded whether it fails or not

my $node = audited_node(
	'main',
	settings => { log => 'none' },
	conf     => "max_prepared_transactions = 10\nwal_level = logical\n");
my %found;

unaudited_sql(
	$node, q{
	CREATE ROLE parity_auditors; CREATE ROLE parity_auditor IN ROLE parity_auditors;
	CREATE DATABASE tags TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C';
	ALTER DATABASE tags SET pg_audit_queue.log = 'all'});
create_extension($node, 'tags');
foreach my $file (sort glob "$FindBin::RealBin/../lib/parity/*.sql")
{
	next if $file =~ /random\.sql$/ || $file =~ /_(\d+)\.sql$/ && $1 > $major;
	my ($stdout, $stderr);

	IPC::Run::run(
		[
			'psql', '-XAtq',
			'-v', 'dir=' . PostgreSQL::Test::Utils::tempdir(), '-v', 'super=' . getpwuid($>),
			'-v', 'host=' . $node->host, '-v', 'port=' . $node->port,
			'-d', $node->connstr('tags'), '-f', $file
		],
		'<', \undef, '>', \$stdout, '2>', \$stderr,
		IPC::Run::timeout(2 * $PostgreSQL::Test::Utils::timeout_default));
}
flush_trail($node);
foreach my $record (trail_records($node))
{
	next if $record->{class} =~ /^(?:CONNECT|CONFIG|ERROR|GAP)$/;
	$found{ $record->{command} }{ $record->{class} } //= $record->{commandText};
}
is(join(', ', grep { !$found{$_} && !$nothing{$_} && !$untested{$_} } @tags),
	'', 'a statement of every tag has been recorded');
is(join(', ', grep { $found{$_} && $nothing{$_} } @tags),
	'', 'and none of those that are for nothing');
foreach my $tag (sort keys %found)
{
	is( join(', ', sort keys %{ $found{$tag} }),
		join(', ', sort keys %{ $expected{$tag} // {} }), $tag)
	  or diag explain $found{$tag};
}
$node->stop;
done_testing();
