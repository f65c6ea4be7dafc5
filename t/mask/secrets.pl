#
# Secrets: the parts of texts, parameters and messages that are masked, and
# those that are not.  No secret is anywhere in the trail or in the queue's
# files.
#
# Every secret in this file is "zqs" with a number behind it.  So the last tests
# can search all files for any secret, whatever the other tests looked at.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $mask = '<REDACTED>';
my $node = audited_node('main', settings => { log_parameter => 'on' });
my $secrets = 0;

# Statements that are to be executed, as far as they can be, without being
# recorded when they are made; functions in the place of those of dblink
unaudited_sql(
	$node, q{
	CREATE ROLE bob;
	CREATE TABLE users (name text, password text, token text);
	INSERT INTO users VALUES ('bob', 'x', 'y');
	CREATE FOREIGN DATA WRAPPER w;
	CREATE SERVER srv FOREIGN DATA WRAPPER w;
	CREATE FUNCTION dblink_connect(text) RETURNS text LANGUAGE sql AS $$SELECT 'OK'$$;
	CREATE FUNCTION dblink_connect(text, text) RETURNS text LANGUAGE sql AS $$SELECT 'OK'$$;
	CREATE FUNCTION dblink_exec(text, text) RETURNS text LANGUAGE sql AS $$SELECT 'OK'$$;
	CREATE FUNCTION dblink(text, text) RETURNS SETOF record LANGUAGE sql AS $$SELECT 1$$});

# The secrets in some bytes, each with what is around it.
sub secrets_in
{
	my ($bytes) = @_;

	return [ $bytes =~ /[ -~]{0,40}zqs[0-9][ -~]{0,20}/g ];
}

# A secret that no other test has.
sub secret
{
	return 'zqs' . ++$secrets;
}

# A case as it is written in the lists below: what is to be masked is in double
# brackets, a "#" in there is the secret.  Returns the text to be sent and the
# one to be recorded.
sub sent_and_shown
{
	my ($case) = @_;
	my $secret = secret();
	my $sent   = $case;
	my $shown  = $case;

	$sent =~ s/\[\[(.*?)\]\]/$1 =~ s,#,$secret,gr/ges;
	$shown =~ s/\[\[.*?\]\]/$mask/gs;
	return ($sent, $shown);
}

# Run what a sub does with a connection, and return the records of it as a
# hash: an array of texts for each "/* tag */" that a text begins with.
sub texts_by_tag
{
	my ($sub, %settings) = @_;
	my %texts;
	my @records = records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			$sub->($client);
			$client->quit;
		},
		%settings);

	foreach my $record (@records)
	{
		my $text = $record->{commandText} // next;

		push @{ $texts{$1} }, $text if $text =~ m{/\* (\w+) \*/};
	}
	return %texts;
}

# Put a tag behind a statement's first word: from PostgreSQL 18 on comments in front
# are not part of the statement.
sub tagged
{
	my ($tag, $sql) = @_;

	$sql =~ s{^(?:--.*\n)*\s*\w+\K}{ /* $tag */} or die "no word to begin with: $sql";
	return $sql;
}

# Run cases in a way: the sub gets the connection and a case's text and sends
# it in some form; it returns texts of which each record must have one, given
# as formats for sprintf with the case's text in them.
sub check_cases
{
	my ($name, $cases, $sub) = @_;
	my %shown;
	my %forms;
	my @wrong;
	my %texts = texts_by_tag(
		sub {
			my ($client) = @_;
			my $n = 0;

			foreach my $case (@$cases)
			{
				my $tag = 'case' . ++$n;
				my ($sent, $shown) = sent_and_shown(tagged($tag, $case));

				$shown{$tag} = $shown;
				$forms{$tag} = $sub->($client, $sent);
			}
		});

	foreach my $tag (sort keys %shown)
	{
		my @expected = map { sprintf $_, $shown{$tag} } @{ $forms{$tag} };
		my @got      = @{ $texts{$tag} // [] };

		foreach my $text (@expected)
		{
			push @wrong, "expected: $text\ngot: " . join("\n     ", @got)
			  if !grep { $_ eq $text } @got;
		}
		foreach my $text (@got)
		{
			push @wrong, "not expected: $text"
			  if !grep { $_ eq $text } @expected;
		}
	}
	is(scalar keys %shown, scalar @$cases, "$name: as many as there are cases");
	is(join("\n", @wrong), '', "$name: texts");
	return;
}

# Statements that are executed, or fail then

my @statements = (
	q{CREATE ROLE r PASSWORD '[[#]]'},
	q{alter user bob with encrypted password '[[#]]' valid until '2030-01-01'},
	q{CREATE USER password PASSWORD '[[#]]' LOGIN},
	q{ALTER ROLE bob PASSWORD NULL},
	q{ALTER ROLE bob PASSWORD E'[[it\\'s #]]' LOGIN},
	q{ALTER ROLE bob PASSWORD U&'[[\\005A#]]' LOGIN},
	q{ALTER ROLE bob PASSWORD '[[it''s #]]' LOGIN},
	q{ALTER ROLE bob PASSWORD $a$[[it's #]]$a$ LOGIN},
	qq{ALTER ROLE bob PASSWORD '[[x]]'\n -- 'it''s'\n'[[#]]' LOGIN},
	q{ALTER ROLE bob PASSWORD/* 'x' /* it's */ */'[[#]]'-- 'x'},
	q{ALTER ROLE bob PASSWORD '[[md5#]]'},
	q{ALTER ROLE bob PASSWORD '[[SCRAM-SHA-256$4096:#=$a=:b=]]'},
	q{CREATE GROUP g ENCRYPTED PASSWORD '[[#]]' ROLE bob},
	q{ALTER ROLE bob SET my.secret_value = '[[#]]'},
	q{ALTER ROLE bob IN DATABASE postgres SET my.api_key TO '[[#]]', '[[b]]'},
	q{ALTER DATABASE postgres SET my.secret = '[[#]]'},
	q{SET my.password TO x},
	q{SET LOCAL "my"."db_token" = $$[[#]]$$},
	q{ALTER SYSTEM SET my.password = '[[#]]'},
	q{ALTER SYSTEM SET ssl_passphrase_command = '[[echo #]]'},
	q{ALTER SYSTEM SET primary_conninfo = 'host=h password=[[#]] port=1'},
	q{ALTER SYSTEM SET archive_command = 'PGPASSWORD=[[#]] true'},
	q{CREATE SUBSCRIPTION s CONNECTION 'host=/h dbname=d password=[[#]]' PUBLICATION p WITH (connect = false, slot_name = NONE)},
	q{ALTER SUBSCRIPTION s CONNECTION 'password=[[''it\\''s #'']] host=h'},
	q{ALTER SUBSCRIPTION s CONNECTION 'postgresql://u:[[#]]@h:5432/d?sslmode=disable&sslpassword=[[#]]'},
	q{ALTER SUBSCRIPTION s CONNECTION 'host = h password = [[#]]  user = u'},
	q{DROP SUBSCRIPTION s},
	q{CREATE USER MAPPING FOR bob SERVER srv OPTIONS (user 'u', password '[[#]]')},
	q{ALTER USER MAPPING FOR bob SERVER srv OPTIONS (SET password '[[#]]', ADD "api_token" '[[#]]', DROP user)},
	q{ALTER USER MAPPING FOR bob SERVER srv OPTIONS (password_required 'false')},
	q{CREATE SERVER s2 FOREIGN DATA WRAPPER w OPTIONS (host 'h', aws_secret_access_key '[[#]]')},
	q{ALTER SERVER srv OPTIONS (ADD passphrase '[[#]]', ADD url 'http://u:[[#]]@h/')},
	q{ALTER FOREIGN DATA WRAPPER w OPTIONS (ADD credentials '[[#]]')},
	q{CREATE FOREIGN TABLE ft (a int OPTIONS (token '[[#]]')) SERVER srv OPTIONS (secret '[[#]]')},
	q{ALTER FOREIGN TABLE ft ALTER a OPTIONS (SET token '[[#]]'), OPTIONS (SET secret '[[#]]')},
	q{IMPORT FOREIGN SCHEMA x FROM SERVER srv INTO public OPTIONS (token '[[#]]')},
	q{SELECT set_config('my.secret', '[[#]]', false)},
	q{SELECT "set_config"('my.secret', '[[#]]', false)},
	q{SELECT pg_catalog.set_config('my.' || 'secret', lower('[[#]]'), false) FROM users},
	q{SELECT dblink_connect('host=h password=[[#]] dbname=d')},
	q{SELECT dblink_connect('c', 'host=h user=' || 'u' || ' password=' || '[[#]]')},
	q{SELECT dblink_connect('password=[[#]] host=h'), 'password=[[it]] is data', 'a password=x'},
	q{SELECT dblink_connect('postgres://u:' || '[[#]]' || '@h')},
	q{SELECT * FROM dblink('postgres://u:[[#]]@h', 'SELECT ''it''''s''') t(a int)},
	q{SELECT dblink_exec('c', 'ALTER ROLE x PASSWORD ''[[#]]''')},
	q{UPDATE users SET name = 'host=h password=[[#]]' WHERE name = 'x'},
	q{UPDATE users SET name = 'see https://u:[[#]]@h/x?a=b, and the rest' WHERE name = 'x'},
	q{UPDATE users SET name = 'SCRAM' || '[[SCRAM-SHA-256$4096:#=$a=:b=]]' WHERE name = 'x'},
	q{DO $$ BEGIN ALTER ROLE bob PASSWORD '[[#]]'; END $$},
	q{DO $$ BEGIN EXECUTE 'ALTER ROLE bob PASSWORD ''[[#]]'''; END $$},
	q{DO $$ BEGIN EXECUTE 'ALTER ROLE bob PASSWORD ' || quote_literal('[[#]]') || ''; PERFORM 'x'; END $$},
	q{DO 'DECLARE password text := ''[[#]]''; x text := ''y''; BEGIN NULL; END'},
	q{DO 'BEGIN EXECUTE E''DO \\''BEGIN ALTER ROLE bob PASSWORD \\''\\''[[#]]\\''\\''; END\\''''; END'},
	q{DO 'BEGIN EXECUTE E''CREATE FUNCTION f9() RETURNS void LANGUAGE plpgsql AS E''''BEGIN PERFORM set_config(\\\\''''my.secret\\\\'''', E\\\\''''[[#]]\\\\'''', true); END''''''; END'},
	q{DO LANGUAGE plperl $$ my $sql = "SELECT set_config('my.secret', '[[#]]', true)";
		DBI->connect("host=h password=[[#]] user=u", 'x');
		DBI->connect('dbi:Pg:x', 'u', {password => '[[#]]'}); $$},
	q{CREATE FUNCTION f1() RETURNS void LANGUAGE sql SET my.secret TO '[[#]]' AS 'ALTER ROLE bob PASSWORD ''[[#]]''; SELECT ''x'''},
	q{CREATE FUNCTION f2() RETURNS void LANGUAGE plpgsql AS $f$ BEGIN SET my.secret = '[[#]]'; END $f$},
	q{CREATE PROCEDURE p1() LANGUAGE plpgsql AS $f$ BEGIN PERFORM set_config('my.secret', '[[#]]', true); END $f$},
	q{ALTER FUNCTION f2() SET my.secret = '[[#]]'},
	q{PREPARE pr AS SELECT dblink_connect('password=[[#]]')},
	q{EXPLAIN SELECT dblink_connect('password=[[#]]')},
	q{COPY (SELECT 'password=[[#]]') TO PROGRAM 'PGPASSWORD=[["#"]] cat >/dev/null'},
	q{CREATE TABLE t1 AS SELECT 'postgres://u:[[#]]@h/d' AS a},
);

# and those with names of secrets or of other dangerous forms, but without
# secrets

my @harmless = (
	q{UPDATE users SET password = 'x', token = 'y' WHERE password = 'z'},
	q{INSERT INTO users (name, password) VALUES ('bob', 'password')},
	q{SELECT name FROM users WHERE password LIKE '%password=%'},
	q{SELECT '{"password": "x", "token": "y"}'::json},
	q{SELECT 'Your password ' || 'is wrong'},
	q{SELECT 'a', 'password', 'b'},
	q{SELECT 'the password''s hash'},
	q{COMMENT ON COLUMN users.password IS 'the password''s hash, see http://x:1/y@z'},
	q{CREATE TABLE t2 (name text, password text DEFAULT 'x')},
	q{SELECT 'postgres://h1:5432,h2:5433/d?application_name=a@b', 'http://[::1]:80/x@y'},
	q{SELECT 'host=h user=u'},
	q{SELECT dblink_connect('host=h user=u passfile=/x')},
	q{SELECT set_config('work_mem', '4MB', false)},
	q{SELECT set_config('password_encryption', 'md5', false)},
	q{SET password_encryption = 'scram-sha-256'},
	q{ALTER ROLE bob SET search_path = 'secret'},
	q{ALTER ROLE bob CONNECTION LIMIT 3 VALID UNTIL '2030-01-01'},
	q{CREATE ROLE token_user},
	q{ALTER ROLE token_user RENAME TO password_user},
	q{DO $$ BEGIN UPDATE users SET password = 'x' WHERE token = 'y'; END $$},
	q{CREATE FUNCTION f3() RETURNS text LANGUAGE sql AS 'SELECT password FROM users WHERE token = ''x'''},
	q{SELECT 1 -- postgres://u:p@h/d},
	qq{SELECT --x://u:\nname FROM users\n--\@h},
	q{SELECT name /*x://u:*/ FROM users WHERE name LIKE 'b%' /*@h*/},
	q{SELECT name FROM users WHERE 'PASSWORD ' <> '' AND name LIKE '123%'},
	q{SELECT name AS "password" FROM users WHERE name = '123' -- token},
	q{SELECT $$a$$, $b$ it's $$ a $b$, E'\\'', U&'\\0061' -- "it's"},
	q{COPY (SELECT 1) TO PROGRAM 'host=x password=$(true) cat >/dev/null'},
	q{COPY (SELECT 1) TO PROGRAM 'SCRAM-SHA-256$=1 cat >/dev/null'},
	q{COPY (SELECT 1) TO PROGRAM 'postgres://u:$(true)@h; x://u:`true`@h?token=$(true)'},
	q{SELECT password FROM users WHERE name = bpchar '123' OR name = token},
);

my @all = (@statements, @harmless);

# Only what is one statement can be sent in other forms than as it is.
my @single = grep { !/; [A-Z]+ / || /^(?:DO|CREATE (?:FUNC|PROC))/ } @all;

check_cases(
	'simple protocol',
	\@all,
	sub {
		my ($client, $sql) = @_;

		$client->query($sql);
		return ['%s'];
	});
unaudited_sql(
	$node, q{
	ALTER DATABASE postgres RESET ALL;
	DROP TABLE IF EXISTS t1, t2;
	DROP FOREIGN TABLE IF EXISTS ft;
	DROP ROLE IF EXISTS r, g, password, password_user});
$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL');
check_cases(
	'extended protocol',
	\@single,
	sub {
		my ($client, $sql) = @_;

		$client->parse('', $sql)->bind('', '')->execute('')->sync;
		return ['%s'];
	});
$node->safe_psql('postgres', 'ALTER SYSTEM RESET ALL');
check_cases(
	'strings of several statements',
	[ grep { !/-- / && !/^(?:ALTER SYSTEM|DROP SUBS|CREATE SUBS)/ } @single ],
	sub {
		my ($client, $sql) = @_;

		$client->query("SELECT 'it''s'; $sql\n; SELECT 'x'");
		return ['%s'];
	});

# A statement in a function has a text of its own.
check_cases(
	'in PL/pgSQL',
	[ grep { !/-- / && !/^(?:ALTER SYSTEM|DROP SUBS|CREATE SUBS|SELECT|PREPARE)/ } @single ],
	sub {
		my ($client, $sql) = @_;

		$client->query("DO \$do\$ BEGIN EXECUTE \$ex\$$sql\$ex\$; END \$do\$");
		return [
			"DO \$do\$ BEGIN EXECUTE \$ex\$%s\$ex\$; END \$do\$", '%s'
		];
	});

# Texts that failed before anything was executed: all literals are masked.  What
# is outside of them stays, and a password may be there by mistake; here these
# are "zqx".

my @failing = (
	q{ALTER ROLE bob PASWORD '[[#]]'},
	qq{-- a comment\nALTER ROLE bob PASWORD '[[#]]'},
	q{ALTER ROLE bob '[[#]]'},
	q{ALTER ROLE bob PASSWORD '[[it]]'s zqx'},
	q{ALTER ROLE bob PASSWORD '[[#]]},
	q{ALTER ROLE bob PASSWORD "zqx"},
	q{ALTER ROLE bob PASSWORD zqx},
	q{ALTER ROLE bob PASSWORD = '[[#]]' VALID UNTIL '[[2030-01-01]]'},
	q{ALTER ROLE bob PASSWORD '[[#]]' nonsense '[[#]]'},
	q{ALTER ROLE bob PASSWORD $$[[#]]},
	q{ALTER ROLE bob's PASSWORD '#'} =~ s/'s(.*)'#'/'[[s$1]]'zqx'/r,
	q{CREATE USER MAPPING FOR bob SERVER srv OPTIONS (user = '[[u]]', password = '[[#]]')},
	q{CREATE SUBSCRIPTION s CONNECTION '[[host=h password=# PUBLICATION p]]},
	q{SET SET my.secret = '[[#]]'},
	q{ALTER SYSTEM SET my.secret '[[#]]'},
	q{SELECT FROM FROM set_config('[[my.secret]]', '[[#]]', false)},
	q{SELECT set_config(is_local => false, new_value => '[[#]]', setting_name => '[[my.secret]]')},
	q{SELECT dblink_connect('[[password=#]]'},
	q{SELEC '[[postgres://u:#@h/d]]'},
	q{DO $$[[ BEGIN ALTER ROLE bob PASSWORD '#'; END]]},
	q{SELECT '[[x]]' FROM nowhere; ALTER ROLE bob PASSWORD '[[#]]'},
	q{UPDATE users SET password = '[[x]]' WHER token = '[[y]]'},
	q{SELECT name, password FRM users WHERE name = '[[x]]'},
	q{SELECT name, nam FRM users WHERE name = 'x'},
);

check_cases(
	'syntax errors',
	\@failing,
	sub {
		my ($client, $sql) = @_;

		$client->query($sql);
		return ['%s'];
	});

# What is after a statement must not keep its secret from being found.
foreach my $tail (q{'}, q{"}, q{$$}, q{/*}, q{)}, q{nonsense 'x'}, q{'x' "y})
{
	my %texts = texts_by_tag(
		sub {
			my ($client) = @_;

			foreach my $case (grep { /\[\[.*#/ } @statements)
			{
				my ($sent) = sent_and_shown(tagged('tail', $case));

				$client->query("$sent $tail");
			}
		});

	cmp_ok(scalar @{ $texts{tail} }, '>', 30, "texts that end in $tail");
	is_deeply([ grep { /zqs/ } @{ $texts{tail} } ],
		[], "without their secrets");
}

# standard_conforming_strings decides what a backslash does, at the time when
# the text is parsed; from 19 on it is always on

my @conforming = conforming_settings($node);

foreach my $case (
	grep { my $setting = $_->[1]; grep { $_ eq $setting } @conforming }
	[ q{ALTER ROLE bob PASSWORD '[[\\'#]]' LOGIN},          'off' ],
	[ q{ALTER ROLE bob PASSWORD '[[#\\]]' LOGIN},           'on' ],
	[ q{ALTER ROLE bob PASSWORD E'[[\\'#]]' VALID UNTIL '2030-01-01'}, 'on' ],
	# The other way to read these is wrong: the body has a quote too many, the body has a
	# backslash outside of literals, a number goes on as a word.
	[ q{CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('my.secret', '[[a\\'#]]', true); END $$}, 'off' ],
	[ q{CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('my.secret', '[[a\\'#\\']]', true); END $$}, 'off' ],
	[ q{SELECT set_config('my.secret', '[[a\\'1#]]', true) /* ' */}, 'off' ],
	# Both ways to read this make sense.  The literal is a secret in one of them.
	[ qq{ALTER ROLE bob VALID UNTIL 'x\\' -- ' PASSWORD\n'[[#]]'}, 'off' ])
{
	foreach my $at_record (@conforming)
	{
		my ($sent, $shown) = sent_and_shown(tagged('tag', $case->[0]));
		my $before =
		  $at_record eq $case->[1]
		  ? ''
		  : "SET standard_conforming_strings = $at_record; ";
		my %texts = texts_by_tag(
			sub {
				my ($client) = @_;

				$client->query('SET standard_conforming_strings = off') if @conforming > 1;
				$client->query("SET check_function_bodies = off; SET standard_conforming_strings = $case->[1]");
				$client->query($before . $sent);
			});

		is($texts{tag}[-1], $shown,
			"standard_conforming_strings $case->[1], then $at_record: $case->[0]");
	}
}

# A text that fails.  The other way to read it is wrong: it has a backslash outside of literals.
if (@conforming > 1)
{
	my ($sent, $shown) =
	  sent_and_shown(q{ALTER /* tag */ ROLE bob PASWORD '[[a\\]]', '[[#]]', E'[[\\']]' , '[[b]]'});
	my %texts = texts_by_tag(
		sub {
			my ($client) = @_;

			$client->query($_)
			  for 'SET standard_conforming_strings = off', 'SET standard_conforming_strings = on', $sent;
		});

	is_deeply($texts{tag}, [$shown], 'a text that fails, in a session with both settings');
}

# Nobody hears of it when a text is looked at: the parser's warnings come once.
# From 19 on it has none of these.

if (@conforming > 1)
{
	my $log_start = -s $node->logfile;
	my ($stdout, $stderr);

	$node->psql(
		'postgres', q{
		SET standard_conforming_strings = off;
		CREATE TABLE w (a text DEFAULT 'a\\\\b password');
		DO 'BEGIN PERFORM ''password''; nonsense'},
		stderr        => \$stderr,
		on_error_stop => 0);
	my @warnings = $stderr =~ /WARNING:  nonstandard use/g;
	my @logged =
	  slurp_file($node->logfile, $log_start) =~ /WARNING:  nonstandard use/g;

	is(scalar @warnings, 1, 'one warning of the parser for the client');
	cmp_ok(scalar @logged, '<=', 1, 'and for the server log');
}

# Parameters

# Execute a statement with parameters, and return the list in its last record.
sub shown_parameters
{
	my ($sql, @values) = @_;
	my @records = records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			$client->parse('', $sql)->bind('', '', @values)->execute('')->sync;
			$client->quit;
		});

	return (grep { $_->{class} eq 'READ' } @records)[-1]{paramList};
}

my $secret = secret();

is_deeply(
	shown_parameters('SELECT set_config($1, $2, $3)',
		'my.secret', $secret, 'f'),
	[ 'my.secret', $mask, 'f' ],
	'the value of a secret setting, named by a parameter');
is_deeply(
	shown_parameters(q{SELECT set_config('my.secret', $2, $1)}, 'f', $secret),
	[ 'f', $mask ],
	'the value of a secret setting');
is_deeply(
	shown_parameters('SELECT set_config($1, $2, false)', 'my.x', 'y'),
	[ 'my.x', 'y' ],
	'the value of another setting');
is_deeply(
	shown_parameters('SELECT set_config($1, $2, false)', undef, undef),
	[ undef, undef ],
	'no setting');
is_deeply(
	shown_parameters('SELECT dblink_connect($1)', "host=h password=$secret"),
	["host=h password=$mask"],
	'a connection string');
is_deeply(
	shown_parameters('SELECT $1::text', "postgres://u:$secret\@h/d"),
	["postgres://u:$mask\@h/d"],
	'an address');
is_deeply(
	shown_parameters('SELECT dblink_exec($1, $2)',
		'c', "ALTER ROLE x PASSWORD '$secret' LOGIN"),
	[ 'c', "ALTER ROLE x PASSWORD '$mask' LOGIN" ],
	'SQL');
is_deeply(
	shown_parameters(
		'SELECT name FROM users WHERE password = $1 AND token = $2::int::text',
		'secret', '12'),
	[ 'secret', '12' ],
	'data');

# Messages of errors

foreach my $case (
	[ q{ALTER ROLE bob '#'},             q{syntax error at or near "'}, q{'"} ],
	[ q{ALTER ROLE bob PASSWORD '#},     q{unterminated quoted string at or near "'}, q{"} ],
	[ q{ALTER ROLE bob PASSWORD '#' LOGIN x}, undef ],
	[ q{DO $$ BEGIN RAISE 'password=#'; END $$}, 'password=', '' ],
	[ q{DO $$ BEGIN RAISE 'cannot reach postgres://u:#@h/d'; END $$},
		'cannot reach postgres://u:', '@h/d' ],
	[ q{DO $$ BEGIN EXECUTE 'ALTER ROLE bob PASSWORD x ''#'''; END $$}, undef ],
	# that are not in the text
	[ q{DO $$ BEGIN RAISE 'my_secret=''%''', reverse('#'); END $$}, 'my_secret=', '' ],
	[ q{DO $$ BEGIN RAISE 'bad: host=h password=% dbname=d', reverse('#'); END $$},
		'bad: host=h password=', ' dbname=d' ],
	[ q{DO $$ BEGIN RAISE 'bad: postgres://u:%@h', reverse('#'); END $$},
		'bad: postgres://u:', '@h' ])
{
	my $value = secret();
	my ($sql, $before, $after) = @$case;
	my @records;

	$value = reverse $value if $sql =~ /reverse/;
	$sql =~ s/#/$value/;
	@records = records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			$client->query($sql);
			$client->quit;
		});
	my @messages = grep { defined } map { $_->{errorMessage} } @records;

	ok(scalar @messages, "an error: $case->[0]");
	is($messages[0], $before . $mask . $after, 'its message')
	  if defined $before;
	is_deeply(
		[ grep { /zqs[0-9]/ } map { $_->{commandText} // () } @records ],
		[], 'the texts of its records');
}

# A statement of a procedure, whose text is not that of the CALL
{
	my $value = secret();
	my @records;

	unaudited_sql(
		$node, qq{
		CREATE PROCEDURE set_password(name text, value text) LANGUAGE plpgsql AS
			\$\$ BEGIN RAISE 'too weak: %', value; END \$\$;
		CREATE PROCEDURE set_it() LANGUAGE plpgsql AS
			\$\$ BEGIN CALL set_password('joe', '$value'); END \$\$});
	@records = records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			$client->query('CALL set_it()');
			$client->quit;
		});
	is_deeply(
		[ grep { defined } map { $_->{errorMessage} } @records ],
		[ ("too weak: $mask") x 3 ], 'an error in a procedure that another one calls');
}

# What a client is shown has no secret either

{
	my ($stderr, $stdout);
	my $value = secret();

	$node->psql(
		'postgres', qq{
		SET pg_audit_queue.log_client = on;
		SET pg_audit_queue.log_level = notice;
		ALTER ROLE bob PASSWORD '$value'},
		stderr => \$stderr);
	like($stderr, qr/ALTER ROLE bob PASSWORD '\Q$mask\E',/, 'log_client');
	unlike($stderr, qr/zqs/, 'without the secret');
}

# mask_patterns

# The texts of the records that a statement leaves, executed twice, because a
# text can be remembered, with these patterns.
sub texts_with_patterns
{
	my ($patterns, $sql) = @_;
	my @records = records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			$client->query("SET client_encoding = utf8");
			$client->query($sql);
			$client->query("SET pg_audit_queue.mask_patterns = $patterns");
			$client->query($sql) foreach 1 .. 2;
			$client->quit;
		});

	return join '|',
	  map { $_->{commandText} } grep { $_->{class} eq 'READ' } @records;
}

foreach my $case (
	[ q{'[0-9]{4}'}, q{SELECT '1234567', 12}, qq{SELECT '${mask}567', 12} ],
	[ q{'[0-9]+'}, q{SELECT 1, 23, 'x9'}, qq{SELECT 0, 00, 'x$mask'} ],
	[ q{'"[0-9]{4,8}"'}, q{SELECT '123456789'}, qq{SELECT '${mask}9'} ],
	[ q{'(?i)card=([a-z]+)'}, q{SELECT 'CARD=abc'}, qq{SELECT 'CARD=$mask'} ],
	[ q{'"(?i)no: ([0-9]+)", b+'}, q{SELECT 'No: 12 bb'}, qq{SELECT 'No: $mask $mask'} ],
	[ q{'a1', 'b1'}, q{SELECT 'a1 c1 b1'}, qq{SELECT '$mask c1 $mask'} ],
	[ q{'x*'}, q{SELECT 'axxb'}, qq{SELECT 'a${mask}b'} ],
	[ q{'SELECT'}, q{SELECT 'SELECT' "SELECT" /*SELECT*/}, qq{SELECT '$mask' "SELECT" /*SELECT*/} ],
	[ qq{'\xc3\xa4.'}, qq{SELECT '\xc3\xb6\xc3\xa4\xc3\xbcx'}, undef ],
	[ q{''}, q{SELECT 1}, q{SELECT 1} ],)
{
	my ($patterns, $sql, $shown) = @$case;

	$shown //= "SELECT '\x{f6}${mask}x'";
	utf8::decode($sql);
	is(texts_with_patterns($patterns, $case->[1]),
		"$sql|$shown|$shown", "mask_patterns = $patterns");
}

{
	my @records = records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			foreach my $patterns ('a1', 'b1', '', 'a1')
			{
				$client->query("SET pg_audit_queue.mask_patterns = '$patterns'");
				$client->query(q{SELECT 'a1 b1', 'password'});
			}
			$client->quit;
		});

	is_deeply(
		[ map { $_->{commandText} } grep { $_->{class} eq 'READ' } @records ],
		[
			"SELECT '$mask b1', 'password'",
			"SELECT 'a1 $mask', 'password'",
			"SELECT 'a1 b1', 'password'",
			"SELECT '$mask b1', 'password'"
		],
		'the same text with other patterns');
}

# What is remembered of texts is what they are, not what they look like: all
# that is remembered has the length of what comes then

{
	my $value = secret();
	my $sql   = "ALTER ROLE bob PASSWORD '$value'";
	my @texts = map { $_->{commandText} } records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			foreach my $n (1 .. 1000)
			{
				my $text = "SELECT '$n";

				$text .= '.' x (length($sql) - length($text) - 1);
				$client->query("$text'");
			}
			$client->query($sql);
			$client->quit;
		});

	is($texts[-1], "ALTER ROLE bob PASSWORD '$mask'",
		'after many texts of the same length');
}

foreach my $case (
	[ '[0-9',      'Regular expression "[0-9" is not valid: brackets [] not balanced.' ],
	[ 'a, b**',    'Regular expression "b**" is not valid: quantifier operand invalid.' ],
	[ '(?<x)',     'Regular expression "(?<x)" is not valid' ],
	[ '"a',        'List syntax is invalid.' ],
	[ 'a b',       'List syntax is invalid.' ],
	[ 'a, ""',     'A regular expression is empty.' ])
{
	my ($ret, $stdout, $stderr) = $node->psql('postgres',
		"SET pg_audit_queue.mask_patterns = '$case->[0]'");

	like(
		$stderr,
		qr/invalid value for parameter "pg_audit_queue.mask_patterns".*\Q$case->[1]\E/s,
		"refused: $case->[0]");
}
{
	my ($ret, $stdout, $stderr);

	unaudited_sql($node, 'CREATE ROLE plain LOGIN');
	($ret, $stdout, $stderr) = $node->psql(
		'postgres',
		q{SET pg_audit_queue.mask_patterns = ''},
		extra_params => [ '-U', 'plain' ]);
	like($stderr, qr/permission denied to set parameter/,
		'mask_patterns is for superusers');
}

# from the configuration file, which is read before the encoding is known
$node->append_conf('postgresql.conf',
	qq{pg_audit_queue.mask_patterns = '"k[\xc3\xa4-\xc3\xbc]ey-([0-9]+)", card[0-9]+'\n});
$node->restart;
{
	my @records = records_for(
		$node,
		sub {
			my $client = PgProto->connect($node);

			$client->query("SET client_encoding = utf8");
			$client->query("SELECT 'k\xc3\xb6ey-77 card9'");
			$client->query("SELECT card88");
			$client->parse('', 'SELECT $1::text, $2::bigint')
			  ->bind('', '', 'card77', '12')->execute('')->sync;
			$client->query(q{DO $$ BEGIN RAISE 'about card%', 90 + 9; END $$});
			$client->quit;
		});
	my @texts = map { $_->{commandText} // '' } @records;

	ok((grep { $_ eq "SELECT 'k\x{f6}ey-$mask $mask'" } @texts),
		'patterns of the configuration file');
	ok((grep { $_ eq 'SELECT card88' } @texts), 'but not what is no literal');
	is_deeply([ grep { defined } map { $_->{errorMessage} } @records ],
		[ qq{column "$mask" does not exist}, "about $mask" ],
		'in messages');
	my ($with_params) =
	  grep { ($_->{commandText} // '') =~ /bigint/ } @records;
	is_deeply($with_params->{paramList}, [ $mask, '12' ], 'in parameters');
	unlike(
		join('', map { slurp_file($_) } trail_files($node)),
		qr/k\xc3\xb6ey-77|card(?:9|77|99)/,
		'and nowhere in the trail');
}
$node->append_conf('postgresql.conf', "pg_audit_queue.mask_patterns = ''\n");
$node->reload;

# Random texts: a secret in a literal of some form, in a statement, in a
# literal, ...; half of them with something behind that makes them fail

srand(20260917);

sub one_of
{
	return $_[ rand @_ ];
}

sub space
{
	return one_of(' ', '  ', "\n", "\t", q{ /* it's 'a' " $$ */ },
		qq{ -- don't; "\n}, q{/*x/*y*/'*/ });
}

sub literal
{
	my ($text) = @_;
	my $form = int rand 5;

	if ($form == 1)
	{
		my $quote = one_of("''", "\\'");

		$text =~ s/\\/\\\\/g;
		$text =~ s/'/$quote/g;
		return "E'$text'";
	}
	if ($form == 2)
	{
		my $tag = '$' . one_of('', 'a', '_b') . '$';

		return "$tag$text$tag"
		  if index($text, $tag) < 0 && $text !~ /\$\z/;
	}
	if ($form == 3 && $text =~ /\A(zqs)([0-9]+)\z/)
	{
		return "'$1'" . one_of("\n", " \n ", "\t-- it's\n") . "'$2'"
		  if rand() < 0.5;
	}
	$text =~ s/'/''/g;
	return one_of('', 'N') . "'$text'";
}

sub random_conninfo
{
	my ($value) = @_;

	return one_of(
		"host=/nowhere user=bob password=$value dbname=x",
		" dbname = x password = '$value' ",
		"postgresql://bob:$value\@h:5432/d?connect_timeout=1",
		"postgres:///d?host=/tmp&password=$value",
		"password=$value");
}

sub random_statement
{
	my ($value, $depth) = @_;
	my @forms = (
		sub {
			join space(), one_of('CREATE', 'alter'), one_of('ROLE', 'user'),
			  one_of('bob', '"it\'s"', 'password'), one_of('', 'WITH LOGIN'),
			  one_of('', 'ENCRYPTED') . ' PASSWORD', literal($value),
			  one_of('', "VALID UNTIL '2030-01-01'");
		},
		sub {
			join space(), 'CREATE USER MAPPING FOR bob SERVER srv OPTIONS (',
			  "user 'x',", one_of('password', '"password"', 'api_token'),
			  literal($value) . ')';
		},
		sub {
			join space(), 'ALTER SUBSCRIPTION s CONNECTION',
			  literal(random_conninfo($value));
		},
		sub {
			join space(), one_of('SET', 'SET LOCAL', 'ALTER ROLE bob SET'),
			  one_of('my.secret', '"my"."token"'), one_of('=', 'TO'),
			  literal($value);
		},
		sub {
			join space(), q{SELECT set_config('my.secret',}, literal($value),
			  ', true)';
		},
		sub {
			join space(), 'SELECT dblink_connect(',
			  literal(random_conninfo($value)), ')';
		},
		sub {
			join space(), 'SELECT * FROM users WHERE name =',
			  literal(random_conninfo($value));
		});
	my @nesting = (
		sub {
			'DO'
			  . space()
			  . literal('BEGIN '
				  . random_statement($value, $depth + 1)
				  . one_of('; END', '; NULL; END'));
		},
		sub {
			'DO'
			  . space()
			  . literal('BEGIN EXECUTE'
				  . space()
				  . literal(random_statement($value, $depth + 1))
				  . '; END');
		},
		sub {
			'CREATE OR REPLACE FUNCTION rf() RETURNS void LANGUAGE plpgsql AS'
			  . space()
			  . literal('BEGIN '
				  . random_statement($value, $depth + 1)
				  . '; END');
		},
		sub {
			'DO '
			  . literal(q{BEGIN EXECUTE 'ALTER ROLE bob PASSWORD ' || quote_literal(}
				  . literal($value)
				  . '); END');
		});

	return one_of(@forms, $depth < 3 ? @nesting : ())->();
}

# Send random texts in a session that begins with $first, and see what is recorded of them.
sub random_texts_are_masked
{
	my ($number, $first, $name) = @_;
	my %sent;
	my %texts = texts_by_tag(
		sub {
			my ($client) = @_;

			$client->query($first);
			foreach my $n (1 .. $number)
			{
				my $sql = tagged("random$n", random_statement(secret(), 0));

				$sql .= one_of(" '", ' "', " 'x'", ' $$', " foo 'bar", ' /*',
					' )', ' EXTRA')
				  if $n % 2;
				$sent{"random$n"} = $sql;
				$client->query($sql);
			}
		});
	my @missing = grep { !exists $texts{$_} } sort keys %sent;
	my @got     = map { @$_ } values %texts;
	my @leaking = grep { /zqs\d|'\d+'/ } @got;
	my @unmasked = grep { !/\Q$mask\E/ } @got;

	is_deeply([ map { $sent{$_} } grep { defined } @missing[ 0 .. 4 ] ],
		[], "$number random texts are recorded$name");
	is_deeply([ grep { defined } @leaking[ 0 .. 4 ] ],
		[], 'without their secrets');
	is_deeply([ grep { defined } @unmasked[ 0 .. 4 ] ],
		[], 'each with something masked');
	return;
}

random_texts_are_masked(full_tests() ? 20000 : 1000, 'SELECT 1', '');

# A session that has parsed texts with both settings: each text may have been read in two ways.
random_texts_are_masked(full_tests() ? 20000 : 1000,
	"SET standard_conforming_strings = off; SELECT 'x'; SET standard_conforming_strings = on",
	', with both settings')
  if @conforming > 1;

# No text keeps a session busy for long, because masking is not interrupted;
# the client gives up when the server is silent for too long

{
	my $client = PgProto->connect($node);

	foreach my $part (
		'a://b:', 'a://b:c@d?password=x&', '://', 'password=%s ',
		q{password 'x}, '$a$ ', 'password = x y ',
		q{set_config('my.secret', }, 'dblink(', '/* ', 'SCRAM-SHA-256$',
		q{it's my password, })
	{
		my $literals = q{'} . $part =~ s/'/''/gr . q{', };

		foreach my $text ($part x 20000, $literals x 20000)
		{
			like($client->query("SELECT $text 'password \@'"),
				qr/[CE]:/, 'a long text of ' . substr($text, 0, 20));
		}
	}
	like($client->query(q{SELECT set_config('my.secret', } x 100000),
		qr/E:/, 'calls inside of each other');
	$client->quit;
}

# A long text waits in a file of its own while its statement runs.

{
	my $value  = secret();
	my $client = PgProto->connect($node);
	my $padding = 'x' x 2_000_000;

	# those of the long texts above go first
	flush_trail($node);
	unaudited_sql($node, 'CREATE TABLE lock (a int)');
	my $holder = PgProto->connect($node);

	$holder->query('BEGIN');
	$holder->query('LOCK TABLE lock');
	$client->start(
		"DO \$\$ BEGIN ALTER ROLE bob PASSWORD '$value'; LOCK TABLE lock; END \$\$ -- zqcontrol $padding"
	);
	my $text;

	poll_until(
		sub {
			my @files = grep { /^spill/ } slurp_dir(queue_dir($node));

			$text = @files ? slurp_file(queue_dir($node) . "/$files[0]") : '';
			return length $text > 2_000_000;
		});
	cmp_ok(index($text, "PASSWORD '$mask'; LOCK TABLE"),
		'>', 0, 'the file has the text with the secret masked');
	is_deeply(secrets_in($text), [], 'and not the secret');
	$holder->query('ROLLBACK');
	$client->finish;
	$holder->quit;
	$client->quit;
}

# The trail, and whatever there is of the queue: the ring, of which nothing has
# been overwritten yet, the slots, spill files

flush_trail($node);
{
	my $client = PgProto->connect($node);

	$client->query("SELECT 'zqcontrol'");
	flush_trail($node);

	# the worker does not clear what it has written
	foreach my $dir (trail_dir($node), queue_dir($node))
	{
		my $found = 0;

		foreach my $file (grep { -f "$dir/$_" } slurp_dir($dir))
		{
			my $bytes = slurp_file("$dir/$file");

			$found++ if $bytes =~ /zqcontrol/;
			is_deeply(secrets_in($bytes), [], "no secret in $file");
		}
		cmp_ok($found, '>', 0, "what is no secret is found in $dir");
	}
	$client->quit;
}
cmp_ok($secrets, '>', 1000, "$secrets secrets");

$node->stop;
done_testing();
