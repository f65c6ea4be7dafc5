#
# Foreign keys.  PostgreSQL checks them, and does what they ask for, with the
# rights of the owner of a table.  Where the session has not these rights, that
# leaves no record: it is part of the statement that has changed a table.  Where it
# has them, there is a record of each query that PostgreSQL executes.  Up to 18
# that is one for each row; from 19 on rows are mostly checked without a query.
#
# Code of users can run within all that.  What it does is recorded as anywhere.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use PaqTest;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node        = audited_node('main', settings => { role => 'auditor' });
my $has_queries = $node->pg_version->major < 19;
my $superuser   = getpwuid($>);

unaudited_sql(
	$node, q{
	CREATE ROLE auditor;
	CREATE ROLE owner LOGIN;
	CREATE ROLE referrer LOGIN;
	CREATE ROLE app LOGIN;
	GRANT CREATE ON SCHEMA public TO owner, referrer;

	SET ROLE owner;
	CREATE TABLE p (id int PRIMARY KEY);
	CREATE TABLE p2 (a int, b int, PRIMARY KEY (a, b));
	CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
	CREATE TABLE part PARTITION OF parted DEFAULT;
	INSERT INTO p SELECT generate_series(0, 300);
	INSERT INTO p2 SELECT i, i FROM generate_series(0, 300) i;
	INSERT INTO parted SELECT generate_series(0, 300);
	GRANT REFERENCES ON p, p2, parted TO referrer;
	GRANT DELETE, UPDATE, SELECT ON p TO app;

	SET ROLE referrer;
	CREATE TABLE f (id int REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE);
	CREATE TABLE f2 (a int, b int, FOREIGN KEY (a, b) REFERENCES p2);
	CREATE TABLE f_parted (id int REFERENCES parted);
	CREATE TABLE f_late (id int REFERENCES p DEFERRABLE INITIALLY DEFERRED);
	CREATE TABLE f_more AS SELECT generate_series(0, 100) id;
	GRANT ALL ON f, f2, f_parted, f_late TO app;
	RESET ROLE;
	GRANT SELECT, INSERT, UPDATE, DELETE ON p, p2, parted, f_more TO auditor;});

# The records of what a user does, in the order of the trail
sub records_of
{
	my ($user, $sql) = @_;
	my $stderr;
	my @records = records_for(
		$node,
		sub {
			$node->psql(
				'postgres', $sql,
				connstr       => $node->connstr('postgres') . " user=$user",
				on_error_stop => 0,
				stderr        => \$stderr);
		});

	note($stderr) if $stderr ne '';
	is(scalar(grep { $_->{incomplete} || $_->{noOutcome} } @records),
		0, "nothing is unknown: $user: $sql");
	return @records;
}

sub records_are
{
	my ($user, $sql, @expected) = @_;
	my @got = columns('auditType class command objectName exitCode',
		records_of($user, $sql));

	is_deeply(\@got, \@expected, "$user: $sql") or diag explain \@got;
	return;
}

# Somebody who has no rights on the table that is referred to

foreach my $log_relation (0, 1)
{
	my $write = sub {
		my ($command, $table, $exit_code) = @_;
		my $name = $log_relation ? "public.$table" : '';

		return "SESSION|WRITE|$command|$name|" . ($exit_code // '00000');
	};

	unaudited_sql($node,
		"ALTER ROLE app SET pg_audit_queue.log_relation = $log_relation");
	records_are('app', 'INSERT INTO f VALUES (1)', $write->('INSERT', 'f'));
	records_are(
		'app',
		'INSERT INTO f SELECT generate_series(1, 200)',
		$write->('INSERT', 'f'));
	records_are(
		'app',
		'INSERT INTO f2 SELECT i, i FROM generate_series(1, 200) i',
		$write->('INSERT', 'f2'));
	records_are(
		'app',
		'INSERT INTO f_parted SELECT generate_series(1, 3)',
		$write->('INSERT', 'f_parted'));
	records_are('app', 'UPDATE f SET id = 2', $write->('UPDATE', 'f'));
	records_are(
		'app', "COPY f FROM STDIN;\n1\n2\n\\.\n",
		$has_queries
		? ($log_relation ? $write->('INSERT', 'f') : (), 'SESSION|WRITE|COPY||00000')
		: $write->('COPY', 'f'));
	records_are(
		'app',
		'INSERT INTO f VALUES (-1)',
		$write->('INSERT', 'f', '23503'));
	records_are(
		'app', 'BEGIN; INSERT INTO f_late VALUES (-1), (1); COMMIT',
		'SESSION|MISC|BEGIN||00000', $write->('INSERT', 'f_late'),
		'SESSION|MISC|COMMIT||23503');
	records_are(
		'app',
		'INSERT INTO f_late VALUES (1)',
		$write->('INSERT', 'f_late'));
}
unaudited_sql($node, 'ALTER ROLE app RESET pg_audit_queue.log_relation');

# What the key asks for

my @deletes_p = ('SESSION|WRITE|DELETE||00000', 'OBJECT|WRITE|DELETE|public.p|00000');
my @updates_p = ('SESSION|WRITE|UPDATE||00000', 'OBJECT|WRITE|UPDATE|public.p|00000');

unaudited_sql($node, 'INSERT INTO f VALUES (297), (298)');
records_are('app', 'DELETE FROM p WHERE id = 298', @deletes_p);
records_are('app', 'UPDATE p SET id = 1000 WHERE id = 297', @updates_p);

# A new one, for which the rows that are there are looked at one by one, because its
# owner may not read the other table

records_are(
	'referrer',
	'ALTER TABLE f_more ADD FOREIGN KEY (id) REFERENCES p NOT VALID',
	'SESSION|DDL|ALTER TABLE|public.f_more|00000');
records_are(
	'referrer',
	'ALTER TABLE f_more VALIDATE CONSTRAINT f_more_id_fkey',
	'SESSION|DDL|ALTER TABLE|public.f_more|00000');

# Somebody who has the rights: records of queries, and nothing else.  From 19 on
# there is only a query if the table that is referred to is partitioned.

foreach my $case (
	[ 'INSERT INTO f SELECT generate_series(10, 19)', 'p' ],
	[ 'INSERT INTO f2 SELECT i, i FROM generate_series(10, 19) i', 'p2' ],
	[ 'BEGIN; INSERT INTO f_late SELECT generate_series(10, 19); COMMIT', 'p' ],
	[ "COPY f FROM STDIN;\n" . join('', map { "$_\n" } 10 .. 19) . "\\.\n", 'p' ],
	[ 'INSERT INTO f_parted SELECT generate_series(10, 19)', 'parted' ])
{
	my ($sql, $table) = @$case;
	my $is_key  = qr/^SELECT 1 FROM .* FOR KEY SHARE OF x$/;
	my @records = records_of($superuser, $sql);
	my @queries = grep { $_->{commandText} =~ $is_key } @records;
	my $number  = $has_queries || $table eq 'parted' ? 10 : 0;

	is_deeply(
		[ sort { $a cmp $b } columns('auditType class command objectName', @queries) ],
		[
			("OBJECT|READ|SELECT|public.$table") x $number,
			('SESSION|READ|SELECT|') x $number
		],
		"queries: $sql");
	is(scalar(grep { $_->{class} eq 'READ' && $_->{commandText} !~ $is_key } @records),
		0, '... and no other READ');
}

# Code of users, which runs with the rights of an owner: triggers of a table, a
# cast, also at the time when a query is planned, and rules.  Somebody who has two
# roles could read by the one's what the other causes.

unaudited_sql(
	$node, q{
	CREATE TABLE secret (a int);
	GRANT SELECT ON secret TO auditor, referrer, owner;
	SET ROLE referrer;
	CREATE TABLE own (a int);
	CREATE TABLE copied (n bigint);
	RESET ROLE;
	GRANT SELECT ON own TO auditor;
	SET ROLE referrer;

	CREATE FUNCTION on_delete() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM count(*) FROM secret;
			PERFORM count(*) FROM own;
			RETURN old;
		END $$;
	CREATE TABLE triggered (id int REFERENCES p ON DELETE CASCADE);
	CREATE TRIGGER on_delete BEFORE DELETE ON triggered
		FOR EACH ROW EXECUTE FUNCTION on_delete();
	INSERT INTO triggered VALUES (296);});

my $secret = 'OBJECT|READ|SELECT|public.secret|00000';
my $own    = 'OBJECT|READ|SELECT|public.own|00000';

records_are('app', 'DELETE FROM p WHERE id = 296', $secret, $own, @deletes_p);

unaudited_sql(
	$node, q{
	SET ROLE referrer;
	CREATE TABLE ruled (id int REFERENCES p ON DELETE CASCADE);
	CREATE RULE look AS ON DELETE TO ruled
		DO ALSO INSERT INTO copied SELECT count(*) FROM own;
	INSERT INTO ruled VALUES (295);});
records_are('app', 'DELETE FROM p WHERE id = 295', $own, @deletes_p);

# A type t_NAME, which a function of the owner's makes an integer, and a table with
# such a column that refers to p: cast_NAME.  The owner has a table own_NAME, which is
# audited.  $definition is the rest of the function's definition.
sub create_cast
{
	my ($name, $definition) = @_;

	unaudited_sql(
		$node, qq{
		CREATE TYPE t_$name AS (i int);
		ALTER TYPE t_$name OWNER TO owner;
		GRANT USAGE ON TYPE t_$name TO app, referrer;
		SET ROLE owner;
		CREATE TABLE own_$name (a int);
		GRANT SELECT ON own_$name TO auditor;
		CREATE FUNCTION to_int_$name(t_$name) RETURNS int $definition;
		CREATE CAST (t_$name AS int) WITH FUNCTION to_int_$name AS IMPLICIT;
		RESET ROLE;
		SET ROLE referrer;
		CREATE TABLE cast_$name (id t_$name REFERENCES p);
		GRANT ALL ON cast_$name TO app;
		RESET ROLE;});
	return;
}

foreach my $volatility ('IMMUTABLE', 'VOLATILE')
{
	my $n = lc $volatility;

	create_cast($n, qq{LANGUAGE plpgsql $volatility AS \$\$
		BEGIN
			PERFORM count(*) FROM secret;
			PERFORM count(*) FROM own_$n;
			RETURN \$1.i;
		END \$\$});
	my @objects = map { $_->{objectName} // () }
	  records_of('app', "INSERT INTO cast_$n VALUES (ROW(1)::t_$n)");

	foreach my $table ('secret', "own_$n")
	{
		ok(scalar(grep { $_ eq "public.$table" } @objects),
			"a cast that is $volatility reads $table") or diag explain \@objects;
	}
}

# The planner puts what is in a function into the query.  Then PostgreSQL calls what
# that calls, while it plans the query: functions in C, which may be an extension's,
# and its own.

unaudited_sql($node, q{
	CREATE FUNCTION in_c(tsquery, text) RETURNS tsquery
		LANGUAGE internal STABLE AS 'tsquery_rewrite_query';});
my %number_of = (
	in_c => q{numnode(in_c('x', 'SELECT tsquery ''x'', tsquery ''y'' FROM own_in_c'))},
	table_to_xml => q{length(table_to_xml('own_table_to_xml'::regclass, true, true, '')::text)});
foreach my $function (sort keys %number_of)
{
  SKIP:
	{
		skip 'the server is built without libxml', 1
		  if $function eq 'table_to_xml'
		  && ($node->psql('postgres', q{SELECT xml '<a/>'}))[2] =~ /unsupported XML feature/;

		create_cast($function,
			"LANGUAGE sql STABLE AS \$\$SELECT \$1.i + 0 * $number_of{$function}\$\$");
		my @read = grep { ($_->{objectName} // '') eq "public.own_$function" }
		  records_of('app', "INSERT INTO cast_$function VALUES (ROW(1)::t_$function)");

		# from 19 on there is no query, and nothing to be planned
		cmp_ok(scalar @read, '>=', $has_queries ? 2 : 1,
			"each call of $function in a cast leaves a record");
	}
}

# Functions in C that compare what is referred to do not make more records.

unaudited_sql(
	$node, join '', q{
	CREATE TYPE number;
	CREATE FUNCTION number_in(cstring) RETURNS number LANGUAGE internal IMMUTABLE STRICT AS 'int4in';
	CREATE FUNCTION number_out(number) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'int4out';
	CREATE TYPE number (INPUT = number_in, OUTPUT = number_out, LIKE = int4);
	CREATE FUNCTION number_cmp(number, number) RETURNS int
		LANGUAGE internal IMMUTABLE STRICT AS 'btint4cmp';},
	map({
			my ($name, $operator) = @$_;
			"CREATE FUNCTION number_$name(number, number) RETURNS bool
				LANGUAGE internal IMMUTABLE STRICT AS 'int4$name';
			CREATE OPERATOR $operator (LEFTARG = number, RIGHTARG = number, FUNCTION = number_$name);";
		} [ lt => '<' ], [ le => '<=' ], [ eq => '=' ], [ ge => '>=' ], [ gt => '>' ]),
	q{
	CREATE OPERATOR CLASS number_ops DEFAULT FOR TYPE number USING btree AS OPERATOR 1 <, OPERATOR 2 <=,
		OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 number_cmp(number, number);
	SET ROLE owner;
	CREATE TABLE p_number (id number PRIMARY KEY);
	INSERT INTO p_number VALUES ('1');
	GRANT REFERENCES ON p_number TO referrer;
	SET ROLE referrer;
	CREATE TABLE f_number (id number REFERENCES p_number);
	GRANT ALL ON f_number TO app;
	RESET ROLE;
	GRANT SELECT ON p_number TO auditor;});
is_deeply(
	[
		columns('auditType class command objectName', grep { $_->{class} ne 'FUNCTION' }
			records_of('app',
				"INSERT INTO f_number VALUES ('1'), ('1'), ('1'); INSERT INTO f VALUES (1)"))
	],
	[ ('SESSION|WRITE|INSERT|') x 2 ],
	'comparing with functions in C makes no more records');

done_testing();
