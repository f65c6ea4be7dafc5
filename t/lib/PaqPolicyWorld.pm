#-------------------------------------------------------------------------
#
# PaqPolicyWorld.pm
#	The roles, databases and tables that tests of policies are about, and a
#	small language for statements on them: what a statement is in SQL, and what
#	the reference matcher of PaqPolicy.pm has to be told of it.
#
# Statements:
#	select R [N]		N rows (1) of the relation
#	join R S			both relations are read, 3 rows
#	insert R [N], update R [N]
#						N rows, of each partition or child that has rows
#	insert R from S		nothing, but both relations are used
#	delete R			no rows
#	delete R then S		deletes from R in the WITH clause of a SELECT from S
#	truncate R, copyout R, copyin R
#	fail R				a division by zero while R is read
#	late R				the same, after five rows
#	create R, drop R	a table of that name
#	call F				the call of a function, not the statement with the call
#	look, lookcall		a catalog is read, and a function called with another purpose
#	one, show, set, do, syntax
#						SELECT 1, SHOW, SET, DO, a syntax error
#
# Sessions: USER, and behind it, each if wanted,
#	@DATABASE			shop unless given
#	:tcp				from 127.0.0.1, not through the Unix-domain socket
#	>ROLE				SET ROLE
#	=ROLE				SET SESSION AUTHORIZATION
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqPolicyWorld;

use strict;
use warnings;

use Exporter 'import';

use List::Util 'uniq';
use PaqPolicy;
use PaqTest;

our @EXPORT = qw(
  log_classes
  make_world
  member_of
  parse_session
  parse_statement
  run_statements
  seen_decisions
);

# Roles, and the groups that each is a member of, directly or not
my %groups = (
	alice => ['staff'],
	bob   => ['staff'],
	carol => [ 'lead', 'staff' ],
	dave  => [],
	Mixed => [],
	all   => [],
	boss  => ['ops'],
	lead  => ['staff'],
	map { $_ => [] } qw(staff ops auditor auditors));

# Relations of each database, in the way of PaqPolicy.pm.  Each table has ten rows
# of its own; "factor" is the number of tables that are reached through it.
my %relation = (
	'public.t'      => { grants => { auditor => ['DELETE'], auditors => ['DELETE'] } },
	'public.u'      => { grants => { auditor => ['UPDATE'] } },
	'public.cache'  => { grants => { auditor => ['TRUNCATE'] } },
	'hr.salary'     => { grants => { auditor => ['SELECT'] } },
	'hr.person'     => {},
	'hr.Odd'        => {},
	'staging.raw'   => {},
	'public.secret' => {},
	'public.part'   => {
		factor => 2,
		below  => [ 'public.part1', 'public.part11', 'public.part2' ]
	},
	'public.part1'  => { above => ['public.part'], below => ['public.part11'] },
	'public.part11' => { above => [ 'public.part1', 'public.part' ] },
	'public.part2'  => { above => ['public.part'] },
	'public.parent' => { factor => 2, below => ['public.child'] },
	'public.child'  => { above  => ['public.parent'] },
	'public.v'      => { grants => { auditor => ['SELECT'] }, reads => 'hr.person' },
	'pg_temp.tmp'   => { temporary => 1 },
	'pg_catalog.pg_class' => { catalog => 1 });

my $roles_sql = q{
	CREATE ROLE staff; CREATE ROLE lead; CREATE ROLE ops;
	CREATE ROLE auditor; CREATE ROLE auditors;
	CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE carol LOGIN;
	CREATE ROLE dave LOGIN; CREATE ROLE "Mixed" LOGIN; CREATE ROLE "all" LOGIN;
	CREATE ROLE boss LOGIN SUPERUSER;
	GRANT auditors TO auditor;
	GRANT staff TO alice, bob, lead; GRANT lead TO carol; GRANT ops TO boss;};

my $tables_sql = q{
	CREATE SCHEMA hr; CREATE SCHEMA staging; CREATE SCHEMA api;
	CREATE TABLE public.t (a int); CREATE TABLE public.u (a int);
	CREATE TABLE public.cache (a int); CREATE TABLE public.secret (a int);
	CREATE TABLE hr.salary (a int); CREATE TABLE hr.person (a int);
	CREATE TABLE hr."Odd" (a int); CREATE TABLE staging.raw (a int);
	CREATE TABLE public.part (a int) PARTITION BY RANGE (a);
	CREATE TABLE public.part1 PARTITION OF public.part FOR VALUES FROM (0) TO (100)
		PARTITION BY RANGE (a);
	CREATE TABLE public.part11 PARTITION OF public.part1 FOR VALUES FROM (0) TO (100);
	CREATE TABLE public.part2 PARTITION OF public.part FOR VALUES FROM (100) TO (200);
	CREATE TABLE public.parent (a int);
	CREATE TABLE public.child () INHERITS (public.parent);
	DO $$ DECLARE r text; BEGIN
		FOREACH r IN ARRAY string_to_array(
			't u cache secret hr.salary hr.person hr."Odd" staging.raw part11 parent child', ' ')
		LOOP EXECUTE format('INSERT INTO %s SELECT generate_series(1, 10)', r); END LOOP;
	END $$;
	INSERT INTO part2 SELECT generate_series(101, 110);
	CREATE VIEW public.v AS SELECT a FROM hr.person;
	CREATE FUNCTION api.f() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
	CREATE FUNCTION public.g() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
	GRANT ALL ON SCHEMA public, hr, staging, api TO PUBLIC;
	GRANT ALL ON ALL TABLES IN SCHEMA public, hr, staging TO PUBLIC;
	REVOKE ALL ON public.secret FROM PUBLIC;
	GRANT DELETE ON public.t TO auditors; GRANT UPDATE ON public.u TO auditor;
	GRANT TRUNCATE ON public.cache TO auditor;
	GRANT SELECT ON hr.salary, public.v TO auditor;};

# make_world($node): create all of it.  The extension, whose event triggers know the
# objects of DDL, is in database shop, and not in the others.
sub make_world
{
	my ($node) = @_;

	unaudited_sql($node, $roles_sql);
	unaudited_sql($node, 'CREATE DATABASE bank');
	unaudited_sql($node, $tables_sql, 'bank');
	unaudited_sql($node, "CREATE DATABASE $_ TEMPLATE bank") foreach qw(shop alice staff);
	create_extension($node, 'shop');
	return;
}

# member_of($role): the roles that it is a member of.
sub member_of
{
	my ($role) = @_;

	return $groups{$role} // die "no role $role";
}

# log_classes($value): the classes that a value of "log" selects, in a reference to an
# array.
sub log_classes
{
	my ($value) = @_;
	my @all = qw(connect ddl error function misc misc_set read role set_role write);
	my %has;

	foreach my $word (split /\s*,\s*/, $value)
	{
		my ($minus, $name) = $word =~ /^(-?)(\w+)$/ or die "log: $word";
		my @classes =
		    $name eq 'all' ? @all
		  : $name eq 'none' ? ()
		  : $name eq 'misc' ? qw(misc misc_set set_role)
		  : $name eq 'misc_set' ? qw(misc_set set_role)
		  :                   ($name);

		$has{$_} = !$minus foreach @classes;
	}

	# all classes are whatever is denied, too
	$has{denied} = 1 if !grep { !$has{$_} } @all;
	return [ sort grep { $has{$_} } keys %has ];
}

# parse_session($text, %more): the session for decide(), with more fields of it.
sub parse_session
{
	my ($text, %more) = @_;
	my ($user, $database, $tcp, $how, $role) =
	  $text =~ /^(\w+)(?:\@(\w+))?(:tcp)?(?:([>=])(\w+))?$/
	  or die "no session: $text";

	return {
		user      => $user,
		database  => $database // 'shop',
		address   => $tcp ? '127.0.0.1' : 'local',
		own       => ['127.0.0.1/8'],
		member_of => \&member_of,
		current   => $role // $user,
		become    => defined $how
		? ($how eq '>' ? qq{SET ROLE "$role";} : qq{SET SESSION AUTHORIZATION "$role";})
		: '',
		%more
	};
}

# The objects of a statement that does this to a relation: itself, and what a view reads
sub _objects
{
	my ($name, $class, $command, @needs) = @_;
	my $relation = $relation{$name} // die "no relation $name";

	return (
		{ %$relation, name => $name, class => $class, command => $command, needs => \@needs },
		$relation->{reads} ? _objects($relation->{reads}, 'read', 'SELECT', 'SELECT') : ());
}

# parse_statement($text, $session): the statement for decide(), with "sql", in which
# "#" stands for its mark.
sub parse_statement
{
	my ($text, $session) = @_;
	my ($verb, $name, $more, $other) = split / /, $text;
	my $quoted = defined $name ? $name =~ s/(\w*[A-Z]\w*)/"$1"/r : '';
	my $n      = ($more // '') =~ /^\d+$/ ? $more : 1;
	my $value  = ($name // '') =~ /part2$/ ? 149 : 49;
	my $many   = $n * ($relation{ $name // '' }{factor} // 1);
	my %result = (
		current  => $session->{current},
		duration => 1000,
		sqlstate => '00000',
		rows     => 0,
		objects  => []);
	my %read  = (class => 'read',  command => 'SELECT');
	my $write = sub { my ($command, @needs) = @_;
		return (class => 'write', command => $command,
			objects => [ _objects($name, 'write', $command, @needs) ]) };
	# the same with another one, which is read
	my $and = sub { my (%what) = @_;
		push @{ $what{objects} }, _objects($other // $more, 'read', 'SELECT', 'SELECT');
		return %what };
	my %verbs = (
		select => sub { sql => "SELECT# a FROM $quoted LIMIT $n", rows => $n, %read,
			objects => [ _objects($name, 'read', 'SELECT', 'SELECT') ] },
		join => sub { sql => "SELECT# 1 FROM $quoted, $more LIMIT 3", rows => 3,
			$and->(%read, objects => [ _objects($name, 'read', 'SELECT', 'SELECT') ]) },
		insert => sub { defined $other
			? (sql => "INSERT# INTO $quoted SELECT a FROM $other WHERE false",
				$and->($write->('INSERT', 'INSERT')))
			: (sql => "INSERT# INTO $quoted SELECT $value FROM generate_series(1, $n)", rows => $n,
				$write->('INSERT', 'INSERT')) },
		update => sub { sql => "UPDATE# $quoted SET a = a WHERE a % 100 BETWEEN 1 AND $n",
			rows => $many, $write->('UPDATE', 'UPDATE', 'SELECT') },
		delete => sub { defined $other
			? (sql => "WITH# d AS (DELETE FROM $quoted WHERE false RETURNING 1) SELECT a FROM $other WHERE false",
				$and->($write->('DELETE', 'DELETE')), %read)
			: (sql => "DELETE# FROM $quoted WHERE false", $write->('DELETE', 'DELETE')) },
		truncate => sub { sql => "BEGIN; TRUNCATE# $quoted; ROLLBACK", utility => 1,
			$write->('TRUNCATE TABLE', 'TRUNCATE') },
		copyout => sub { sql => "COPY# $quoted TO STDOUT", class => 'read', command => 'COPY',
			rows => undef, objects => [ _objects($name, 'read', 'COPY', 'SELECT') ] },
		copyin => sub { sql => "COPY# $quoted FROM STDIN", data => "\\.\n",
			$write->('COPY', 'INSERT') },
		fail => sub { sql => "SELECT# 1 / (a - a) FROM $quoted", %read, sqlstate => '22012',
			rows => undef, objects => [ _objects($name, 'read', 'SELECT', 'SELECT') ] },
		look => sub { sql => 'SELECT# 1 FROM pg_class LIMIT 1', rows => 1, %read,
			objects => [ _objects('pg_catalog.pg_class', 'read', 'SELECT', 'SELECT') ] },
		lookcall => sub { sql => 'SELECT# pg_advisory_unlock_all() FROM pg_class LIMIT 1', rows => 1, %read,
			calls => 1, objects => [ _objects('pg_catalog.pg_class', 'read', 'SELECT', 'SELECT') ] },
		late => sub { sql => "SELECT# 1 / (a % 100 - 6) FROM $quoted", %read, sqlstate => '22012',
			rows => undef, processed => 5, objects => [ _objects($name, 'read', 'SELECT', 'SELECT') ] },
		create => sub { sql => "BEGIN; CREATE# TABLE $quoted (a int); ROLLBACK",
			class => 'ddl', command => 'CREATE TABLE', objects => [ { name => $name } ] },
		drop => sub { sql => "BEGIN; CREATE TABLE $quoted (a int); DROP# TABLE $quoted; ROLLBACK",
			class => 'ddl', command => 'DROP TABLE', objects => [ { name => $name } ] },
		call => sub { sql => "SELECT# $quoted()", class => 'function', command => 'EXECUTE',
			objects => [ { name => $name } ] },
		one    => sub { sql => 'SELECT# 1',            rows  => 1, %read },
		show   => sub { sql => 'SHOW# work_mem',       class => 'misc', command => 'SHOW' },
		set    => sub { sql => 'SET# work_mem = 1024', class => 'misc_set', command => 'SET' },
		setrole => sub { sql => 'SET# LOCAL ROLE NONE', class => 'set_role', command => 'SET' },
		do     => sub { sql => 'DO# $$BEGIN END$$',    class => 'function', command => 'DO' },
		syntax => sub { sql => 'SELECT# 1 1',          class => 'error', command => 'unknown',
			sqlstate => '42601', rows => undef },);

	%result = (%result, ($verbs{$verb} // die "no statement: $text")->());
	# without event triggers, what is not there yet is not known
	undef $result{objects}
	  if $result{class} eq 'ddl' && $verb ne 'drop' && ($session->{database} // '') ne 'shop';
	@result{qw(sqlstate rows)} = ('42501', undef)
	  if ($name // '') eq 'public.secret' && $session->{current} ne 'boss';
	return \%result;
}

# run_statements($node, $session, \%sql): run statements, by the number that marks
# each, in one session.
sub run_statements
{
	my ($node, $session, $statements) = @_;
	my $database = $session->{database};
	my $sql      = '';

	foreach my $number (sort { $a <=> $b } keys %$statements)
	{
		my $statement = $statements->{$number};

		$sql .= ($statement->{sql} =~ s{#}{/*#$number#*/}r) . ";\n" . ($statement->{data} // '');
	}
	$sql = "CREATE TEMP TABLE tmp AS SELECT generate_series(1, 10) AS a;\n$sql"
	  if $sql =~ /pg_temp\.tmp/;
	my ($out, $err);
	$node->psql(
		$database, "$session->{become}\n$sql",
		stdout        => \$out,
		stderr        => \$err,
		on_error_stop => 0,
		connstr       => $node->connstr($database)
		  . " user=$session->{user}"
		  . ($session->{address} eq 'local' ? '' : " host=$session->{address}"));
	return;
}

# seen_decisions($node): what the trail says of marked statements: for each number
# the name of the rule in its record, "+" for one without a name; several if it has
# several records.  The call of a function is another number's than the statement
# with the call: $calls->{$number} is true for these.
sub seen_decisions
{
	my ($node, $calls) = @_;
	my %seen;

	flush_trail($node);
	foreach my $line (trail_lines($node))
	{
		next if $line !~ m{/\*#(\d+)#\*/};
		my $number = $1;
		my $record = parse_record($line);
		my $is_call = $record->{class} eq 'FUNCTION' && $record->{command} eq 'EXECUTE';

		next if $is_call != !!$calls->{$number};
		$seen{$number} = join ' ', uniq sort grep { defined } split(/ /, $seen{$number} // ''),
		  $record->{policy} // '+';
	}
	return \%seen;
}

1;
