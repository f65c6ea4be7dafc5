# sink = table: texts of any encoding and length, damaged files, standbys.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Encode qw(decode encode);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { sink => 'table', flush_interval => '10ms', log_parameter => 'on' },
	# the worker, logical replication's launcher, and the loader
	conf     => "autovacuum = off\nmax_worker_processes = 3\n");

# Run SQL in a database of the node, with nothing recorded.
sub sql
{
	return unaudited_sql($node, @_);
}

# Is all in the table, at last, that was recorded before?
sub loaded
{
	return table_loaded($node, @_) ? 1 : 0;
}

# What follows the text in statements, and the encoding that is named, of the
# records that have it
sub rows
{
	my ($text, $database) = @_;

	return sql(
		"SELECT regexp_replace(command_text, '^.*$text', ''), text_encoding"
		  . " FROM audit_records WHERE command_text LIKE '%$text%'"
		  . " AND user_name <> 'paq_quiet'", $database);
}

# Have bytes sent in a database whose encoding they are in.
sub send_bytes
{
	my ($database, $name, $bytes) = @_;
	my $encoding = sql('SHOW server_encoding', $database);

	local $ENV{PGCLIENTENCODING} = $encoding;
	$node->safe_psql($database, "SELECT '$name' AS \"$bytes\"");
	return;
}

# Encodings.  What the audit database can show, it shows.

sql("CREATE DATABASE $_->[0] ENCODING $_->[1] TEMPLATE template0 LOCALE 'C'")
  foreach [ latin1 => 'LATIN1' ], [ euc => 'EUC_JP' ], [ ascii => 'SQL_ASCII' ],
  [ audit_latin1 => 'LATIN1' ], [ audit_euc => 'EUC_JP' ], [ audit_ascii => 'SQL_ASCII' ];
create_extension($node, $_) foreach qw(audit_latin1 audit_euc audit_ascii);

my %texts = (
	postgres => [ "\x{e9}\x{4e2d}", 'UTF-8' ],
	latin1   => [ "\x{e9}\x{fc}",   'iso-8859-1' ],
	euc      => [ "\x{65e5}\x{672c}", 'euc-jp' ]);

# Send each, and see what the audit database then has, as a client with UTF-8
# sees it.
sub test_encodings
{
	my ($audit, %expected) = @_;

	foreach my $database (sort keys %expected)
	{
		my $name = "$audit-$database-";
		my $bytes =
		  $database eq 'ascii' ? "\xff\xe9" : encode($texts{$database}[1], $texts{$database}[0]);

		send_bytes($database, $name, $bytes);
		is(loaded($audit), 1, "$name loaded");
		local $ENV{PGCLIENTENCODING} = $audit eq 'audit_ascii' ? 'SQL_ASCII' : 'UTF8';
		is(rows($name, $audit), encode('UTF-8', "' AS \"$expected{$database}[0]\"|")
			  . $expected{$database}[1], "from $database to $audit");
	}
	return;
}

test_encodings('postgres',
	postgres => [ "\x{e9}\x{4e2d}",   '' ],
	latin1   => [ "\x{e9}\x{fc}",     '' ],
	euc      => [ "\x{65e5}\x{672c}", '' ],
	ascii    => [ "\x{ff}\x{e9}",     'SQL_ASCII' ]);

# Parameters, too, with what JSON escapes.  Of a record all texts are converted, or
# none.
sub test_parameters
{
	my ($audit, $database, $bytes, $encoding, @expected) = @_;
	my $name = "$audit-$database-parameters-";
	my $sent = sql('SHOW server_encoding', $database);

	{
		local $ENV{PGCLIENTENCODING} = $sent;
		$node->safe_psql($database, "PREPARE p(text, text, text) AS SELECT '$name', \$1, \$2, \$3;"
			  . qq{EXECUTE p(E'$bytes->[0]\\\\"\\t\\x01\\x7f', NULL, '$bytes->[1]')});
	}
	is(loaded($audit), 1, "$name loaded");
	local $ENV{PGCLIENTENCODING} = 'UTF8';
	is( sql("SELECT parameters, text_encoding FROM audit_records WHERE command_text LIKE '%$name%'"
			  . " AND parameters <> '[]'", $audit),
		encode('UTF-8', qq{["$expected[0]\\\\\\"\\t\\u0001\x7f", null, "$expected[1]"]|$encoding}),
		"parameters from $database to $audit");
	return;
}
test_parameters('postgres', 'latin1', [ "\xe9", "\xfc" ], '', "\x{e9}", "\x{fc}");
test_parameters('postgres', 'ascii', [ "\xc3\xa9\xe9", '\\u00e9' ],
	'SQL_ASCII', "\x{e9}\x{e9}", '\\\\u00e9');
# the second is no character
test_parameters('postgres', 'euc', [ "\xc3\xa9", "\xf5\xa1" ],
	'EUC_JP', "\x{c3}\x{a9}", "\x{f5}\x{a1}");

# Change the audit database, and wait until the loader is in it.
sub load_into
{
	my ($database) = @_;

	$node->append_conf('postgresql.conf', settings_text(database => $database));
	$node->reload;
	poll_until(sub { sql('SHOW pg_audit_queue.database') eq $database })
	  or die 'no reload';
	return;
}

load_into('audit_latin1');
test_encodings('audit_latin1',
	postgres => [ "\x{e9}\\u4e2d", '' ],
	latin1   => [ "\x{e9}\x{fc}",  '' ],
	euc      => [ '\u65e5\u672c',  '' ],
	ascii    => [ '\u00ff\u00e9',  'SQL_ASCII' ]);
test_parameters('audit_latin1', 'postgres', [ "\xc3\xa9", "\xe4\xb8\xad" ],
	'', "\x{e9}", '\\\\u4e2d');
test_parameters('audit_latin1', 'euc', [ "\xc3\xa9", "\xf5\xa1" ],
	'EUC_JP', '\\\\u00c3\\\\u00a9', '\\\\u00f5\\\\u00a1');
load_into('audit_euc');
test_encodings('audit_euc',
	latin1 => [ "\x{e9}\x{fc}",     '' ],
	euc    => [ "\x{65e5}\x{672c}", '' ],
	ascii  => [ '\u00ff\u00e9',     'SQL_ASCII' ]);
load_into('audit_ascii');
test_encodings('audit_ascii',
	postgres => [ "\x{e9}\x{4e2d}", '' ],
	latin1   => [ "\x{e9}\x{fc}",   '' ],
	ascii    => [ '\u00ff\u00e9',   'SQL_ASCII' ]);
load_into('postgres');

# Texts that are long: one that fits, and one that does not.

sub send_long
{
	my ($name, $length) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/long.sql';

	append_to_file($file, "SELECT '$name' /* " . 'x' x $length . " */;\n");
	$node->safe_psql('postgres', "\\i $file");
	unlink $file;
	return;
}

# Of a statement that fails the object, the outcome and the end of the record are
# there, too; a long error message is cut as well, at a whole character.
sub send_long_failure
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/long.sql';

	append_to_file($file,
		    "INSERT INTO long_failure VALUES (1); -- \\ \" ' [ ] { , \n"
		  . 'CREATE OR REPLACE FUNCTION pg_temp.f(t text) RETURNS int LANGUAGE plpgsql AS'
		  . " \$\$ BEGIN RAISE 'failed %', t; END \$\$;\n"
		  . "PREPARE p(text, text[], int) AS INSERT INTO long_failure SELECT pg_temp.f(\$1)"
		  . " + cardinality(\$2) + \$3;\n"
		  . "EXECUTE p(repeat('\x{c3}\x{a9}', 20 * 1000 * 1000), '{1}', 7);\n");
	$node->psql('postgres', "\\i $file", extra_params => [ '-v', 'VERBOSITY=terse' ]);
	unlink $file;
	is(loaded('postgres'), 1, 'a long failure is loaded');
	is( sql('SELECT class, command, sqlstate, length(error_message), left(error_message, 8),'
			  . ' substr(error_message, 1000, 1), jsonb_array_length(parameters),'
			  . ' parameters->>1, database_name, cut FROM audit_records'
			  . " WHERE error_message LIKE 'failed%' AND length(error_message) > 1000"
			  . ' AND kept_file IS NOT NULL'),
		"WRITE|INSERT|P0001|32772|failed \x{c3}\x{a9}|\x{c3}\x{a9}|3|{1}|postgres|t",
		'with its outcome');
	return;
}

# Texts of an encoding whose characters have several bytes are cut at whole ones,
# wherever the limit falls, so that they can be converted.
sub send_long_characters
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/long.sql';
	my @found;

	foreach my $shift (0 .. 2)
	{
		# 3 bytes each, which are 18 in the file
		append_to_file($file, "SELECT 'long-characters-$shift" . 'x' x (6 * $shift) . "' AS \""
			  . "\x8f\xb0\xa1" . '" /* ' . "\x8f\xb0\xa1" x (2 * 1024 * 1024) . " */;\n");
		local $ENV{PGCLIENTENCODING} = 'EUC_JP';
		$node->safe_psql('euc', "\\i $file");
		unlink $file;
	}
	is(loaded('postgres'), 1, 'long texts of another encoding are loaded');
	is( sql(q{SELECT count(*), min(length(command_text)) > 1000 FROM audit_records
			  WHERE command_text ~ '^SELECT ''long-characters-[0-2]x*'' AS "\u4e02" /\* \u4e02+$'
				AND kept_file IS NOT NULL AND text_encoding IS NULL AND cut}),
		'3|t', 'in that of the table');
	return;
}
my $user = sql('SELECT rolname FROM pg_roles WHERE oid = 10');
sql('CREATE TABLE long_failure (a int)');
send_long('long-', 20 * 1024 * 1024);
is(loaded('postgres'), 1, 'a long text is loaded');
is(sql("SELECT length(command_text) > 20 * 1024 * 1024 FROM audit_records"
		  . " WHERE command_text LIKE 'SELECT ''long-%'"),
	't', 'whole');
send_long('too-long-', 40 * 1024 * 1024);
$node->safe_psql('postgres', "SELECT 'after too long-'");
is(loaded('postgres'), 1, 'one that is too long does not stop anything');
is(rows('after too long-'), "'|", 'not what follows');

# Only texts are left out.
is( sql("SELECT type, cut, audit_type, class, command, length(command_text), sqlstate, user_name,"
		  . ' session_user_name, current_user_name, database_name, application_name, row_count,'
		  . ' parameters, num_nulls(log_time, start_time, end_time, duration_us, statement_id,'
		  . ' substatement_id, session_line, session_id, session_start, pid, backend_type,'
		  . ' remote_host, net_protocol, server_host, virtual_transaction_id)'
		  . " FROM audit_records WHERE command_text LIKE '%too-long-%' AND kept_file IS NOT NULL"),
	"record|t|SESSION|READ|SELECT|65536|00000|$user|$user|$user|postgres|table_texts.pl|1|[]|0",
	'all other columns of its row are filled');
my $kept = sql('SELECT kept_file FROM audit_records WHERE kept_file IS NOT NULL');
like($kept, qr{^pg_audit_queue/load/[0-9A-F-]+\.json\.kept$}, 'it says where the record is');
send_long_failure();
send_long_characters();
$node->restart;
$node->safe_psql('postgres', 'SELECT 1');
is(loaded('postgres'), 1, 'loading goes on after a restart');
(my $loaded = $kept) =~ s/\.kept$//;
ok(poll_until(sub { !-e $node->data_dir . "/$loaded" }), 'the file goes');
ok(-e $node->data_dir . "/$kept", 'the record stays under the other name');
cmp_ok(-s $node->data_dir . "/$kept", '>', 40 * 1024 * 1024, 'whole');

# A damaged record in a file is left out, and the file is kept.

my $log = -s $node->logfile;

sql('DROP EXTENSION pg_audit_queue');
$node->safe_psql('postgres', "SELECT 'damage-$_-'") foreach 1 .. 3;
$node->stop;
my ($file) = grep { slurp_file($_) =~ /damage-3-/ } glob(queue_dir($node) . '/load/*.json');
my $text   = slurp_file($file);
my ($line) = $text =~ /^(.*damage-2-.*)$/m;
substr($text, index($text, $line) + length($line) / 2, 3) = qq{\xff"\0};
open my $handle, '>:raw', $file or die "$file: $!";
print $handle $text;
close $handle or die "$file: $!";
$node->start;
sql('CREATE EXTENSION pg_audit_queue');
is(loaded(), 1, 'a damaged record does not stop anything');
is(rows("damage-$_-"), "'|", "record $_ is there") foreach 1, 3;
is(rows('damage-2-'), '', 'the damaged one is not');
like(slurp_file($node->logfile, $log),
	qr/WARNING:  audit record \d+ in file ".*" is damaged and is left out/, 'it is reported');
$node->safe_psql('postgres', 'SELECT audit_rotate()');
$node->safe_psql('postgres', 'SELECT 1');
ok(poll_until(sub { -e "$file.kept" && !-e $file }), 'the file is kept');

# What somebody puts into the directory is not read.

my $directory = queue_dir($node) . '/load';
my $series    = 'F' x 8 . '0' x 8;

$node->stop;
symlink("$file.kept", "$directory/$series-0000000000000000.json") or die $!;
mkdir("$directory/$series-0000000000000001.json") or die $!;
system('mkfifo', "$directory/$series-0000000000000002.json") == 0 or die;
append_to_file("$directory/other.json", "nonsense\n");
$node->start;
$node->safe_psql('postgres', "SELECT 'planted-'");
is(loaded(), 1, 'links, directories and pipes are passed over');
is(rows('planted-'), "'|", 'the rest is loaded');
is(sql('SELECT count(*) FROM audit_queue.load_state WHERE series = x\'' . "$series'::bigint"), 0,
	'and nothing else');
$node->stop;

# A standby audits its own sessions.  It loads them when it is promoted, and of
# the primary's files that a base backup has copied, nothing twice.

my $primary = audited_node(
	'primary',
	init     => [ allows_streaming => 1 ],
	settings => { sink => 'table', flush_interval => '10ms' },
	# the worker, logical replication's launcher, and the loader
	conf     => "autovacuum = off\nmax_worker_processes = 3\n");

sub loaded_on
{
	my ($server) = @_;
	my $sequence = flush_trail($server);

	# the server's own series is the one of the current file
	my ($own) = stats($server)->{current_file} =~ m{/([0-9A-F]{16})-};

	return poll_until(
		sub {
			unaudited_sql($server,
				"SELECT count(*) FROM audit_queue.load_state WHERE series = x'$own'::bigint"
				  . " AND sequence >= $sequence");
		});
}

sub count_on
{
	my ($server, $text) = @_;

	return unaudited_sql($server,
		"SELECT count(*) FROM audit_records WHERE command_text LIKE '%$text%'"
		  . " AND user_name <> 'paq_quiet'");
}

$primary->safe_psql('postgres', "SELECT 'before backup-'");
is(loaded_on($primary), 1, 'the primary loads');
unaudited_sql($primary, 'ALTER TABLE audit_queue.records RENAME TO hidden');
$primary->safe_psql('postgres', "SELECT 'in the copied file-'");
flush_trail($primary);
$primary->backup('backup');
unaudited_sql($primary, 'ALTER TABLE audit_queue.hidden RENAME TO records');
is(loaded_on($primary), 1, 'the primary goes on');

my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
$standby->safe_psql('postgres', "SELECT 'on the standby-'");
flush_trail($standby);
is(stats($standby)->{loader_pid}, undef, 'no loader on a standby');

# Nor does it keep a place for one, however often the worker starts.
foreach (1 .. 2)
{
	wait_for_worker($standby, kill_worker($standby, 'TERM'));
	$standby->safe_psql('postgres', "SELECT 'another worker-'");
	flush_trail($standby);
}
unlike(slurp_file($standby->logfile), qr/could not register a background worker/,
	'there is still a place');
$primary->safe_psql('postgres', "SELECT 'after backup-'");
is(loaded_on($primary), 1, 'the primary loads what comes');
$primary->wait_for_catchup($standby);
is(count_on($standby, 'after backup-'), 1, 'the standby has the primary\'s table');
is(count_on($standby, 'on the standby-'), 0, 'not its own records yet');
$primary->stop;
$standby->promote;
ok(poll_until(sub { defined stats($standby)->{loader_pid} }), 'promoted, it has a loader');
$standby->safe_psql('postgres', "SELECT 'promoted-'");
is(loaded_on($standby), 1, 'promoted, it loads');
is(count_on($standby, $_), 1, "$_ once")
  foreach 'before backup-', 'in the copied file-', 'after backup-', 'on the standby-',
  'promoted-';
is( unaudited_sql($standby,
		'SELECT count(*) FROM (SELECT FROM audit_records GROUP BY series, sequence'
		  . ' HAVING count(*) > 1) r'),
	0, 'nothing is there twice');

done_testing();
