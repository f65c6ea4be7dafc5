# audit_trail(): the trail's files as rows.
#
# Every column has what the line of the file has, in any layer; a query reads no more
# than it needs; only audit_queue_reader may; damage is told, and hides nothing else.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use JSON::PP;
use Test::More;
use Time::HiRes qw(utime stat);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

need_trail_program();
delete $ENV{PAQ_TEST_LAYERS};

my $seed = $ENV{PAQ_TEST_SEED} // time;
srand($seed);
note("PAQ_TEST_SEED=$seed");

my $node = audited_node(
	'main',
	settings => {
		log_parameter => 'on', log_rows => 'on',
		log_settings => 'shop.user_id, application_name, nothing.there'
	},
	conf     => "autovacuum = off\ntimezone = 'UTC'\nmax_files_per_process = 100\n");
my $directory = $node->data_dir . '/audit';
my $written   = 0;    # files, by write_file()

# SQL of a superuser
sub sql
{
	return unaudited_sql($node, @_);
}

# SQL, and what it says to its client: status, output, messages
sub psql
{
	my ($sql, %options) = @_;
	my $user = $options{user} // unaudited_sql($node, 'SELECT current_user');
	my ($status, $stdout, $stderr) = $node->psql('postgres', $sql,
		extra_params => [ '-U', $user ], on_error_stop => 0);

	return ($status, $stdout, $stderr);
}

# Rows of a query as hashes, by JSON
sub rows
{
	my ($query) = @_;

	return map { JSON::PP->new->utf8->decode($_) }
	  split /\n/, sql("SELECT row_to_json(q) FROM ($query) q");
}

# ---------------------------------------------------------------------------
# Columns
# ---------------------------------------------------------------------------

my %column;    # of the table, by field of json
my %is_time;
{
	my $text = slurp_file("$FindBin::RealBin/../../src/record/fieldlist.h");

	$text =~ s{/\*.*?\*/}{}gs;
	while ($text =~ /^PAQ_TRAIL_FIELD\(\w+, \w+, "(\w+)", (?:NULL|"(\w+)"), (\w+),/mg)
	{
		$column{$1} = $2 if defined $2;
		$is_time{$1} = 1 if $3 eq 'TIME';
	}
	$column{$1} = $2 while $text =~ /^PAQ_TRAIL_MARK\(\w+, "(\w+)", "(\w+)",/mg;
}
cmp_ok(scalar(keys %column), '>', 45, 'columns to be compared');

# What the row of a line must have
sub expected_row
{
	my ($line) = @_;
	my %row = (series => undef, kept_file => undef);

	foreach my $field (keys %column)
	{
		my $value = $line->{$field};

		# as PostgreSQL shows them in json
		$value =~ s/(\.\d*?)0+(?=\+)/$1 eq '.' ? '' : $1/e if defined $value && $is_time{$field};
		$value = 0 + $value if $field eq 'remotePort' && defined $value;
		$value = $value ? JSON::PP::true : JSON::PP::false
		  if $field =~ /^(?:interrupted|cut|incomplete|masked)$/;
		$row{ $column{$field} } = $value;
	}
	$row{remote_address} =
	  ($line->{remoteHost} // '') =~ /^[0-9a-f.:]+$/ ? $line->{remoteHost} : undef;
	return \%row;
}

sub canonical
{
	return JSON::PP->new->canonical->allow_nonref->encode($_[0]);
}

# Statements of all kinds
sub do_things
{
	my ($what) = @_;

	$node->psql(
		'postgres', qq{
		SET shop.user_id = E'quote " tab\t \x01 \x{1f600} Ã¤';
		CREATE TABLE "$what" (a int PRIMARY KEY, "b\xc3\xa9\\" text);
		INSERT INTO "$what" VALUES (1, E'quote '' " tab\\t newline\\n \x{1f600}');
		INSERT INTO "$what" VALUES (1, 'again');
		PREPARE p(text, int) AS SELECT \$1, \$2, '$what';
		EXECUTE p(E'\\\\x "\\x01" \xc3\xa4\xe2\x82\xac', NULL);
		SET pg_audit_queue.log_statement = off;
		SELECT count(*) FROM "$what";
		RESET pg_audit_queue.log_statement;
		DROP TABLE "$what";
		SELECT repeat('x', 10);}, on_error_stop => 0);
	$node->psql('postgres', 'SELECT 1', connstr => $node->connstr('postgres') . ' user=nobody_here');
	return;
}

# Have the next records in a file with these layers; the command prints the key.
sub set_layers
{
	my ($compression, $encryption, $command) = @_;
	my $ending = { none => '', zstd => '.zst', lz4 => '.lz4' }->{$compression}
	  . ($encryption eq 'none' ? '' : '.enc');

	set_key_command($command, log_compression => $compression, log_encryption => $encryption);
	return poll_until(
		sub {
			flush_trail($node);
			return stats($node)->{current_file} =~ /\.json\Q$ending\E$/;
		});
}

sub set_key_command
{
	my ($command, %settings) = @_;

	$node->append_conf('postgresql.conf',
		settings_text(log_encryption_key_command => $command, %settings));
	$node->reload;
	ok(poll_until(sub { sql('SHOW pg_audit_queue.log_encryption_key_command') eq $command }),
		"key command: $command");
	return;
}

sql(q{CREATE DATABASE latin1 ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'});
my @combinations =
  map { my $c = $_; map { [ $c, $_ ] } qw(none aes-128-gcm aes-256-gcm) } qw(none lz4 zstd);
my %key      = ('aes-128-gcm' => encryption_key(128), 'aes-256-gcm' => encryption_key(256));
my $all_keys = "cat '" . encryption_key_file() . "'";
foreach my $layers (@combinations)
{
	ok(set_layers(@$layers, $key{ $layers->[1] } // 'none'), "@$layers");
	do_things("@$layers");
	local $ENV{PGCLIENTENCODING} = 'LATIN1';
	$node->safe_psql('latin1', qq{SELECT '@$layers' AS "\xe9"});
}
ok(set_layers('none', 'none', $all_keys), 'plain again');
sql('SELECT audit_rotate()');
my @lines = sort { $a->{sequence} <=> $b->{sequence} } trail_records($node);
my @rows  = rows('SELECT * FROM audit_trail');

is(scalar(grep { $_->{textEncoding} } @lines), scalar(@combinations), 'texts of another encoding');
cmp_ok(scalar(@lines), '>', 60, 'lines');
{
	my $bad = 0;

	foreach my $i (0 .. $#lines)
	{
		my $expected = expected_row($lines[$i]);

		if (defined $expected->{text_encoding})
		{
			# converted, by load's rules (t/table/table_texts)
			like($rows[$i]{command_text}, qr/ AS "\x{e9}"$/, "row $i: converted");
			is($rows[$i]{text_encoding}, undef, "row $i: and says so");
			next;
		}
		next if canonical($expected) eq canonical($rows[$i]);
		is(canonical($rows[$i]), canonical($expected), "row $i") if $bad++ < 3;
	}
	is($bad, 0, 'all columns of all rows');
}
is(sql('SELECT count(*) FROM audit_trail(NULL, NULL)') >= @lines ? 1 : 0, 1, 'the function');

# Only what is wanted is made, and in any order.
is_deeply(
	[ map { "$_->{sequence} $_->{class}" } (rows('SELECT class, sequence FROM audit_trail'))[ 0 .. $#lines ] ],
	[ map { "$_->{sequence} " . ($_->{class} // '') } @lines ],
	'some columns');
is(sql("SELECT count(*) = count(t) AND count(*) >= " . @lines . " FROM audit_trail t"), 't',
	'no column, and the row as a whole');

# ---------------------------------------------------------------------------
# What is read
# ---------------------------------------------------------------------------

# Lines of EXPLAIN that tell of files: all, read, too old
sub files_read
{
	my ($query) = @_;
	my $plan = sql("EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) $query");

	return join ' ', $plan =~ /^\s*Trail Files: (\d+)\n\s*Files Read: (\d+)\n\s*Files Too Old: (\d+)$/m;
}

my @files = sort { (stat $a)[9] <=> (stat $b)[9] } trail_files($node);

# Make all but the last older by so many seconds.
sub age_files
{
	my ($seconds) = @_;

	foreach my $file (@files[ 0 .. $#files - 1 ])
	{
		my $time = (stat $file)[9] - $seconds;

		utime($time, $time, $file) or die "$file: $!";
	}
	return;
}
age_files(86400);
my $all  = @files;
my $old  = $all - 1;
my $last = "$all 1 $old";

is(files_read('SELECT * FROM audit_trail'), "$all $all 0", 'everything');
foreach my $query (
	q{SELECT * FROM audit_trail WHERE log_time > now() - interval '2 hours'},
	q{SELECT * FROM audit_trail WHERE now() - interval '2 hours' <= log_time AND class = 'READ'},
	q{SELECT count(*) FROM audit_trail(now() - interval '2 hours', NULL)},
	q{SELECT count(*) FROM audit_trail(now() - interval '2 hours', NULL, classes => '{READ,WRITE}')},
	q{SELECT * FROM audit_queue.trail WHERE log_time = now()},
	q{SELECT * FROM audit_trail WHERE log_time BETWEEN now() - interval '2 hours' AND now()},
	q{SELECT * FROM audit_trail WHERE log_time > (SELECT now() - interval '2 hours')},
	q{SELECT * FROM audit_trail WHERE log_time > (now() - interval '2 hours')::timestamp},
	q{SELECT * FROM audit_trail WHERE log_time > current_date - 1 AND log_time > now() - interval '2 hours'})
{
	is(files_read($query), $last, $query);
}
is(files_read(q{SELECT * FROM audit_trail WHERE log_time > now() - interval '2 hours' OR true}),
	"$all $all 0", 'what leaves nothing out');
is(files_read('SELECT * FROM audit_trail WHERE log_time > NULL'), '', 'nothing');
is( sql(q{SET plan_cache_mode = force_generic_plan;
		PREPARE p(timestamptz) AS SELECT count(*) > 0 FROM audit_trail WHERE log_time > $1;
		EXECUTE p(now() + interval '1 hour');
		EXECUTE p('2000-01-01');}),
	"f\nt", 'a generic plan');
is(files_read('SELECT * FROM audit_trail LIMIT 1'), "$all 1 0", 'LIMIT');
is( sql(q{SELECT string_agg((SELECT count(*) > 0 FROM audit_trail t
			WHERE t.log_time > g.at)::text, ' ' ORDER BY at)
		  FROM (VALUES (now() + interval '1 hour'), ('2000-01-01'::timestamptz)) g (at)}),
	'true false', 'another range each time');

is(files_read(q{SELECT * FROM audit_trail WHERE log_time > current_date + 2}),
	"$all 0 $all", 'what is to come');
age_files(-86400);

# Bounds, against what the same rows say otherwise
sql('CREATE TABLE copied AS SELECT * FROM audit_trail');
my $copied = sql('SELECT max(sequence) FROM copied');

# Times that log_time cannot have, or that bound nothing
foreach my $time (
	map { ("'$_'::date", "'$_'::timestamp") }
	qw(-infinity infinity 4714-11-24BC 294276-12-31 2000-01-01 9999-12-31))
{
	foreach my $operator (qw(< <= = >= >))
	{
		my $condition = "WHERE sequence <= $copied AND log_time $operator $time";

		is( sql("SELECT count(*) FROM audit_trail $condition"),
			sql("SELECT count(*) FROM copied $condition"), $condition);
	}
}
foreach my $zone ('-15', '+15')
{
	foreach my $time ("'5874897-12-31'::date", "'4714-11-24BC'::date", "'294276-12-31 23:59'::timestamp")
	{
		my $sql = "SELECT count(*) > 0 FROM %s WHERE sequence <= $copied AND log_time < $time";
		my ($expected, $found) =
		  map { sql("SET TimeZone = '$zone'; " . sprintf($sql, $_)) } qw(copied audit_trail);

		is($found, $expected, "log_time < $time in time zone $zone");
	}
}
foreach my $round (1 .. 40)
{
	my ($column, $value) =
	  rand() < 0.5
	  ? ('sequence', sql("SELECT sequence FROM copied ORDER BY random() LIMIT 1"))
	  : ('log_time', sql("SELECT quote_literal(log_time) || '::timestamptz' FROM copied ORDER BY random() LIMIT 1"));
	my $operator  = (qw(< <= = >= >))[ rand 5 ];
	my $condition = rand() < 0.5 ? "$column $operator $value" : "$value $operator $column";

	is( sql("SELECT array_agg(sequence ORDER BY sequence) FROM audit_trail"
			  . " WHERE $condition AND sequence <= $copied"),
		sql("SELECT array_agg(sequence ORDER BY sequence) FROM copied WHERE $condition"),
		$condition);
}
is( sql(q{SELECT count(*) FROM audit_trail(NULL, NULL, users => '{nobody}')
		UNION ALL SELECT count(*) FROM audit_trail(NULL, NULL, databases => '{latin1}', classes => '{READ}')}),
	"0\n" . @combinations, 'other arguments');
is( sql(q{SELECT count(*) FROM audit_trail((SELECT min(log_time) FROM copied),
			(SELECT max(log_time) FROM copied))}),
	sql('SELECT count(*) FROM copied WHERE log_time < (SELECT max(log_time) FROM copied)'),
	'the end is not included');

# ---------------------------------------------------------------------------
# Who may
# ---------------------------------------------------------------------------

sql(q{
	CREATE ROLE reader LOGIN IN ROLE audit_queue_reader;
	CREATE ROLE inherits_not LOGIN NOINHERIT IN ROLE audit_queue_reader;
	CREATE ROLE reads_all LOGIN IN ROLE pg_read_all_data;
	CREATE ROLE was_granted LOGIN;
	CREATE ROLE ordinary LOGIN;
	GRANT USAGE ON SCHEMA audit_queue TO was_granted, reads_all;
	GRANT SELECT ON audit_queue.trail, audit_trail TO was_granted;
	GRANT EXECUTE ON FUNCTION audit_trail(timestamptz, timestamptz, text[], text[], text[])
		TO was_granted, reads_all;
	GRANT CREATE ON SCHEMA public TO reader, ordinary;
	SET ROLE reader;
	CREATE VIEW public.failures AS SELECT * FROM audit_queue.trail WHERE sqlstate <> '00000';
	GRANT SELECT ON public.failures TO ordinary});
my @reads = (
	'SELECT count(*) > 0 FROM audit_trail',
	'SELECT count(*) > 0 FROM audit_trail(NULL, NULL)',
	'SELECT count(*) > 0 FROM audit_queue.trail');
foreach my $query (@reads)
{
	is((psql($query, user => 'reader'))[1], 't', "reader: $query");
	is((psql("SET ROLE audit_queue_reader; $query", user => 'inherits_not'))[1],
		't', "after SET ROLE: $query");
	foreach my $user (qw(inherits_not reads_all was_granted ordinary))
	{
		my (undef, $stdout, $stderr) = psql($query, user => $user);

		is($stdout, '', "$user: $query");
		like($stderr, qr/ERROR:  permission denied/, "$user: says so");
	}
}
like((psql('SELECT count(*) FROM failures', user => 'ordinary'))[1],
	qr/^[1-9]/, 'what a reader lets others see by a view');
like(
	(psql(q{CREATE FOREIGN TABLE mine (sequence bigint) SERVER audit_queue_trail}, user => 'ordinary'))[2],
	qr/ERROR:  permission denied for foreign server/, 'no table of one\'s own');
like((psql('INSERT INTO audit_queue.trail (sequence) VALUES (1)'))[2],
	qr/ERROR:  cannot insert into foreign table/, 'nothing can be written');

# Where an application has the name, it keeps it.
sql('CREATE DATABASE application');
sql(q{CREATE TABLE audit_trail (a int); INSERT INTO audit_trail VALUES (7);
	CREATE FUNCTION audit_trail() RETURNS int LANGUAGE sql AS 'SELECT 8'}, 'application');
{
	my ($status, $stdout, $stderr) = $node->psql('application', 'CREATE EXTENSION pg_audit_queue');

	like($stderr, qr/WARNING:  view "audit_trail" is in schema "audit_queue"\n.*hide public.audit_trail/s,
		'which is told');
}
is( sql('SELECT *, audit_trail() FROM audit_trail; SELECT count(*) > 0 FROM audit_queue.audit_trail;'
		  . q{SELECT count(*) > 0 FROM audit_trail(NULL, now() + interval '1 day')}, 'application'),
	"7|8\nt\nt", 'both are there');

# Other tables over it
like((psql(q{CREATE FOREIGN TABLE part (class text, sequence bigint) SERVER audit_queue_trail;
		SELECT count(class) > 0, count(sequence) > 0 FROM part}))[1],
	qr/^t\|t$/m, 'a superuser\'s own, with some columns');
like((psql(q{CREATE FOREIGN TABLE other (sequence text) SERVER audit_queue_trail;
		SELECT * FROM other}))[2],
	qr/ERROR:  column "sequence" of the audit trail must have type bigint/, 'another type');
like((psql(q{CREATE FOREIGN TABLE unknown (what text) SERVER audit_queue_trail;
		SELECT * FROM unknown}))[2],
	qr/ERROR:  records of the audit trail have no column "what"/, 'another column');

# Each of these is recorded, with nothing audited.
foreach my $query (@reads, 'SELECT count(sequence) > 0 FROM part',
	'COPY (SELECT sequence FROM audit_trail LIMIT 1) TO STDOUT', 'SELECT 1 FROM failures LIMIT 1',
	q{DO 'BEGIN PERFORM FROM audit_trail LIMIT 1; END'})
{
	my $name = $query =~ /part/ ? 'public.part' : 'audit_queue.trail';

	is( join(
			';',
			map { columns('class objectType objectName exitCode', $_) }
			  records_for($node, sub { sql($query) })),
		"READ|FOREIGN TABLE|$name|00000", "recorded: $query");
}

# ---------------------------------------------------------------------------
# Transactions, cancel, errors
# ---------------------------------------------------------------------------

is( sql(q{
		BEGIN;
		DECLARE c CURSOR FOR SELECT sequence FROM audit_trail;
		FETCH 3 FROM c;
		SAVEPOINT s;
		FETCH 3 FROM c;
		ROLLBACK TO s;
		FETCH 3 FROM c;
		DECLARE h CURSOR WITH HOLD FOR SELECT 'held', count(*) > 9 FROM audit_trail;
		COMMIT;
		FETCH h;}),
	join("\n", (map { $_->{sequence} } @lines[ 0 .. 8 ]), 'held|t'),
	'cursors, over subtransactions');
{
	my (undef, $stdout, $stderr) = psql(q{SET statement_timeout = '200ms';
		SELECT count(*) FROM generate_series(1, 1000000) g,
			LATERAL (SELECT sequence + g FROM audit_trail OFFSET 0) t});

	like($stderr, qr/ERROR:  canceling statement due to statement timeout/, 'canceled');
}
{
	my $open = "$PostgreSQL::Test::Utils::tmp_check/open_files";
	my (undef, undef, $stderr) =
	  psql((join '', map { 'SELECT 1 / (sequence - 5) FROM audit_trail;' } 1 .. 30)
		. "COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; ls -l /proc/\$PPID/fd > $open'");

	is(scalar(() = $stderr =~ /ERROR:  division by zero/g), 30, 'errors in between');
	like(slurp_file($open), qr/postgresql|pgdata/, 'files that are open');
	unlike(slurp_file($open), qr{/audit/}, 'none of the trail');
}
age_files(86400);
set_key_command('sleep 60');
{
	my $begin = time;
	my (undef, $stdout, $stderr) =
	  psql(q{SET statement_timeout = '200ms'; SELECT count(*) FROM audit_trail});

	like($stderr, qr/ERROR:  canceling statement due to statement timeout/,
		'canceled while the key command hangs');
	cmp_ok(time - $begin, '<', 20, 'which is ended');
}
set_key_command('exit 3');
like((psql('SELECT count(*) FROM audit_trail'))[2],
	qr/ERROR:  could not get the key of audit trail file ".*\.enc"\n.*DETAIL:  .*exit code 3/s, 'no key');
is(files_read(q{SELECT * FROM audit_trail WHERE log_time > now() - interval '2 hours'}),
	$last, 'none is needed for what is plain');
set_key_command('echo ' . '01' x 32);
like((psql('SELECT count(*) FROM audit_trail'))[2],
	qr/ERROR:  could not read audit trail file ".*\.enc": .*is encrypted with the key/, 'another key');
set_key_command($all_keys);


# ---------------------------------------------------------------------------
# While the worker writes
# ---------------------------------------------------------------------------

{
	my @load = map { start_psql($node, "SELECT 'meanwhile' \\watch 0.001", name => 'meanwhile') } 1 .. 2;
	my $first = 1 + sql('SELECT max(sequence) FROM audit_trail');
	my $before = 0;

	foreach my $round (1 .. 10)
	{
		poll_until(sub { sql('SELECT audit_flush()') > $first + $before })
		  or die 'the load does not go on';
		my ($status, $stdout, $stderr) = psql(
			qq{SELECT count(*), count(*) = count(DISTINCT sequence)
					AND count(*) = max(sequence) - min(sequence) + 1
				 FROM audit_trail WHERE sequence >= $first});
		my ($count, $ok) = split /\|/, $stdout;

		is("$ok $stderr", 't ', "round $round: no record is missing, none there twice");
		cmp_ok($count, '>=', $before, "round $round: and no fewer than before");
		$before = $count;
	}
	sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'meanwhile'});
	(undef) = finish_psql($_) foreach @load;
}

# ---------------------------------------------------------------------------
# Damage
# ---------------------------------------------------------------------------

# A file of the trail that the worker does not write to, older than all others
my $made_at = 1577937600;    # 2020-01-02 04:00
sub write_file
{
	my ($name, $text) = @_;

	unlink("$directory/$name");
	append_to_file("$directory/$name", $text);
	utime(0, $made_at + ++$written, "$directory/$name");
	return;
}

# A line with that sequence
sub line
{
	my ($sequence, %fields) = @_;

	return JSON::PP->new->canonical->encode(
		{
			type => 'record', sequence => $sequence, logTime => '2020-01-02T03:04:05.678901+00:00',
			class => 'READ', command => 'made', %fields
		}) . "\n";
}

# What is read of it, and the warnings
sub read_made
{
	my (undef, $stdout, $stderr) =
	  psql(q{SELECT sequence FROM audit_trail WHERE command = 'made' AND log_time < '2021-01-01'});

	$stderr =~ s/^psql:<stdin>:\d+: //mg;
	return ($stdout, $stderr);
}

write_file('made-1.json', line(1) . line(2));
write_file('made-2.json', line(3) . "no record\n" . line(4) . line(5, pid => 1.5) . line(6));
write_file('made-3.json', line(7) . '{"type":"record","sequence":8');
write_file('made-4.json', '');
mkdir("$directory/made-5.json");
symlink("$directory/made-1.json", "$directory/made-6.json");
system('mkfifo', "$directory/made-7.json");
write_file('made-8.csv', "not read\n");
{
	my ($stdout, $stderr) = read_made();

	is($stdout, join("\n", 1 .. 7), 'what can be read of damaged files');
	is($stderr,
		qq{WARNING:  line 2 of audit trail file "audit/made-2.json" is no record\n}
		  . 'WARNING:  audit trail file "audit/made-3.json" ends within a record',
		'and what cannot');
	($stdout, $stderr) = (psql(q{SELECT string_agg(sequence::text, ' ') FROM audit_trail
		WHERE command = 'made' AND pid IS NULL AND log_time < '2021-01-01'}))[ 1, 2 ];
	is($stdout, '1 2 3 4 6 7', 'a value that does not fit its column');
	like($stderr, qr/WARNING:  line 4 of audit trail file "audit\/made-2.json" is no record/, 'is told');
}
write_file('made-2.json', "x\n" x 25);
like((read_made())[1], qr/(?:WARNING:  line \d+ of.*\n){10}WARNING:  .*has 15 more lines that are no records/,
	'not each of many');
write_file('made-2.json', "x\n" x 11);
like((read_made())[1], qr/WARNING:  .*has 1 more line that is no record/, 'one more');
unlink("$directory/made-2.json", "$directory/made-3.json");

# A record without a time counts for that of the one before it.
write_file('made-2.json', line(3) . line(4, type => 'gap', logTime => undef) . line(5));
is( sql(q{SELECT string_agg(concat_ws(' ', sequence, log_time), ',') FROM audit_trail
		  WHERE log_time BETWEEN '2020-01-02' AND '2020-01-03' AND type = 'gap'}),
	'4 2020-01-02 03:04:05.678901+00', 'a gap without a time');
unlink("$directory/made-2.json");

# A damaged block
{
	my ($file) = grep { /\.json\.zst\.enc$/ } @files;
	my $content = slurp_file($file);
	my $changed = $content;

	# what is in the queue yet, and what the test itself adds, would make up for the loss
	sql('SELECT audit_flush()');
	my $until = sql('SELECT clock_timestamp()');
	my $query = qq{SELECT count(*) FROM audit_trail WHERE log_time < '$until'};
	my $whole = sql($query);

	substr($changed, length($changed) / 2, 1) ^= 'x';
	unlink($file);
	append_to_file($file, $changed);
	my (undef, $stdout, $stderr) = psql($query);
	like($stderr,
		qr/WARNING:  audit trail file "audit\/.*\.enc" is damaged from byte \d+ on: a block is not authentic/,
		'a changed byte is told');
	cmp_ok($stdout, '<', $whole, 'what is behind it is not read');
	cmp_ok($stdout, '>', $whole - 60, 'other files are');

	# one that is cut off between two lines, but within a block
	unlink($file);
	append_to_file($file, substr($content, 0, -1));
	utime(0, $made_at, $file);
	(undef, $stdout, $stderr) = psql($query);
	like($stderr, qr/WARNING:  audit trail file "audit\/.*\.enc" ends within a record/,
		'a file that is cut off is told');
	cmp_ok($stdout, '<', $whole, 'with less of it');
	unlink($file);
	append_to_file($file, $content);
}

# A file that goes while the trail is read
{
	write_file('made-2.json', line(3));
	my (undef, $stdout, $stderr) = psql(
		qq{BEGIN; DECLARE c CURSOR FOR SELECT sequence FROM audit_trail WHERE command = 'made';
		FETCH 1 FROM c; COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; rm $directory/made-2.json';
		FETCH ALL FROM c});
	like($stderr, qr/WARNING:  1 file of the audit trail was removed while/, 'a file that goes is told');
	unlike($stdout, qr/^3$/m, 'and was not read');
}

# Scans that are repeated ask for the key once.
{
	my $asked = "$PostgreSQL::Test::Utils::tmp_check/asked";

	set_key_command("$all_keys; echo x >> '$asked'");
	my $query = q{SELECT count(*), sum(n) >= 5 FROM generate_series(1, 5) g,
		LATERAL (SELECT count(*) AS n FROM audit_trail WHERE sequence = g) t};

	is(sql($query), '5|t', 'repeated scans');
	my $before = () = slurp_file($asked) =~ /x/g;
	sql($query);
	my $after = () = slurp_file($asked) =~ /x/g;
	is($after - $before, 1, 'ask for the key once');
	set_key_command($all_keys);
}

# No session takes the files that the server needs.
{
	my (undef, undef, $stderr) = psql(
		'BEGIN;' . join '', map { "DECLARE c$_ CURSOR FOR SELECT sequence FROM audit_trail; FETCH 1 FROM c$_;" }
		  1 .. sql('SHOW max_files_per_process'));
	like($stderr, qr/ERROR:  could not open audit trail file .*\n.*reads too many files/s,
		'too many scans at once');
}

# Lines of any length, in little memory
{
	my $long = 64 * 1024 * 1024;

	write_file('made-2.json', line(3, commandText => 'x' x $long, errorMessage => 'behind it') . line(4));
	is( sql(q{SELECT sequence, length(command_text), error_message, cut, kept_file FROM audit_trail
		   WHERE command = 'made' AND sequence IN (3, 4) AND log_time < '2021-01-01'}),
		"3|65536|behind it|t|audit/made-2.json\n4|||f|", 'a line that is too long');
	my $status = sql(q{SET client_min_messages = error;
		SELECT count(*) FROM audit_trail \g /dev/null
		SELECT pg_read_file('/proc/self/status')});
	my ($peak) = $status =~ /^VmHWM:\s*(\d+) kB/m;
	my ($shared) = $status =~ /^RssShmem:\s*(\d+) kB/m;
	note("peak memory: $peak kB, of it shared: $shared kB");
	cmp_ok($peak - $shared, '<', 150 * 1024, 'memory of the session');
	unlink("$directory/made-2.json");
}

# ---------------------------------------------------------------------------
# Where the trail is elsewhere; standbys
# ---------------------------------------------------------------------------

# Have the session see another value of a setting of the server.
sub change
{
	my ($name, $value) = @_;

	$node->append_conf('postgresql.conf', settings_text($name => $value));
	$node->reload;
	return poll_until(sub { sql("SHOW pg_audit_queue.$name") eq $value });
}

ok(change(format => 'csvlog'), 'another format');
like((psql('SELECT count(*) > 0 FROM audit_trail'))[2],
	qr/WARNING:  new audit records do not go into files of format json\n.*HINT:/s, 'is told');
ok(change(log_directory => 'elsewhere'), 'another directory');
like((psql('SELECT count(*) > 0 FROM audit_trail'))[2],
	qr/ERROR:  the audit trail is not in files of format json\n.*HINT:/s, 'without any file');
ok(change(format => 'json'), 'the format again');
is((psql('SELECT count(*) FROM audit_trail'))[2], '', 'an empty trail may be');
ok(change(log_directory => 'audit'), 'and the directory');

my $primary = audited_node('primary', init => [ allows_streaming => 1 ], conf => "autovacuum = off\n");
$primary->safe_psql('postgres', "SELECT 'on the primary-'");
flush_trail($primary);
$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->append_conf('postgresql.conf', settings_text(log_directory => 'own'));
$standby->start;
$standby->safe_psql('postgres', "SELECT 'on the standby-'");
flush_trail($standby);
is( unaudited_sql(
		$standby, q{SELECT substring(command_text FROM 'on the \w+-') FROM audit_trail
			WHERE command_text LIKE '%on the %-%'}),
	'on the standby-', 'a standby reads its own trail');

done_testing();
