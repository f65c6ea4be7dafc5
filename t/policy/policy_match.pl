# Policies: which statements are recorded, and by which rule.
#
# First the cases of t/policy/cases, whose results are written down there.  Then
# random rule files, sessions and statements, of which the reference matcher of
# PaqPolicy.pm says what has to come of them; it has to say what is written down
# in the former, too.
#
# PAQ_TEST_SEED=number repeats a random run.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqPolicy;
use PaqPolicyWorld;
use PaqTest;

use List::Util qw(shuffle uniq);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { log => 'none', queue_size => '64MB', log_rotation_size => '100MB' },
	conf     => "listen_addresses = '127.0.0.1'\nautovacuum = off\n");

make_world($node);

# ---------------------------------------------------------------------------
# Cases
# ---------------------------------------------------------------------------

# The blocks of the file: name, settings, rules, and the lines behind "sessions" and
# "check".
sub blocks
{
	my @blocks;
	my $part = '';

	foreach my $line (split /\n/, slurp_file("$FindBin::RealBin/../lib/policy/cases"))
	{
		if ($line =~ /^== (.*)/)
		{
			push @blocks, { name => $1, settings => { log => 'none' }, rules => '' };
			$part = 'rules';
			next;
		}
		next if !@blocks;
		my $block = $blocks[-1];

		if ($part eq 'rules' && $line =~ /^(log|log_catalog|log_relation|policy|role) = (.*)/) { $block->{settings}{$1} = $2; next }
		$part = $1 if $line =~ /^(sessions|check)\b/;
		if ($part eq 'rules') { $block->{rules} .= "$line\n" }
		elsif ($line ne '') { push @{ $block->{$part} }, $line }
	}
	return @blocks;
}

# What the matcher says, in the words of the cases
sub matched
{
	my ($rules, $session, $statement) = @_;
	my @names = uniq sort map { ref $_ && $_->{name} ? $_->{name}{values}[0][0] : '+' }
	  decide($rules, $session, $statement);

	return @names ? "@names" : '-';
}

# The session that the text says, with the settings
sub session_with
{
	my ($text, %settings) = @_;

	return parse_session($text, %settings, log => log_classes($settings{log}));
}

# All that has been executed: by number, how to call it, what is expected
my %done;
my %calls;
my $number = 0;

# Note a statement that is to be executed; returns its number.
sub note_case
{
	my ($name, $text, $expected) = @_;

	$done{ ++$number } = { name => $name, expected => $expected };
	$calls{$number} = $text =~ /^call /;
	return $number;
}

# The table of a block
sub run_table
{
	my ($block, $rules) = @_;
	my ($head, @lines) = @{ $block->{sessions} // return };
	my (undef, @sessions) = split /\s{2,}/, $head;
	foreach my $column (0 .. $#sessions)
	{
		my $session = session_with($sessions[$column], %{ $block->{settings} });
		my %statements;

		foreach my $line (@lines)
		{
			my ($text, @cells) = split /\s{2,}/, $line;
			my $statement = parse_statement($text, $session);
			my $name      = "$block->{name}: $sessions[$column]: $text";

			die "$block->{name}: $line: no cell for each session" if @cells != @sessions;
			is(matched($rules, $session, $statement), $cells[$column], "$name (matcher)");
			$statements{ note_case($name, $text, $cells[$column]) } = $statement;
		}
		run_statements($node, $session, \%statements);
	}
	return;
}

# The questions of a block to audit_policy_check()
sub run_check
{
	my ($block, $rules) = @_;
	my (undef, @lines) = @{ $block->{check} // return };
	my (@sql, @expected, @matched);

	foreach my $line (@lines)
	{
		my ($database, $user, $address, $class, $object, @more) = split / +/, $line;
		my %more = map { split /=/ } @more[ 0 .. $#more - 1 ];
		my $host = $address eq 'local' ? 'NULL' : "'$address'";
		my $what = $object eq '-' ? 'NULL' : "'$object'";
		my $call = "'$database', '$user', $host, '$class', $what"
		  . join '', map { ", $_ => '$more{$_}'" } sort keys %more;
		my $session = parse_session("$user\@$database");
		my ($decision) = decide(
			$rules,
			{ %$session, address => $address, log => [], member_of => sub { member_of($_[0]) } },
			{
				class    => $class,
				command  => $more{command} // 'none',
				current  => $more{currentuser} // $user,
				objects  => $object eq '-' ? [] : [ { name => $object } ],
				sqlstate => { ok => '00000', failed => '22012', denied => '42501' }->{ $more{outcome} // 'ok' },
				rows     => $more{row_count} // 0,
				duration => micros($more{duration} // '0s')
			});

		push @sql, "SELECT coalesce(name, action) FROM audit_policy_check($call);";
		push @expected, "$line: $more[-1]";
		push @matched, "$line: "
		  . ( ref $decision ? $decision->{name}{values}[0][0]
			: $more[-1] eq 'ignore' ? 'ignore'
			:                         'settings');
	}
	is_deeply(\@matched, \@expected, "$block->{name}: questions (matcher)");
	my @answers = split /\n/, unaudited_sql($node, join "\n", @sql);
	is_deeply([ map { "$lines[$_]: " . ($answers[$_] // '') } 0 .. $#lines ],
		\@expected, "$block->{name}: questions");
	return;
}

# An interval in microseconds
sub micros
{
	my ($n, $unit) = $_[0] =~ /^(\d+)(\w+)$/;

	return $n * { ms => 1e3, s => 1e6, m => 60e6, h => 3600e6 }->{$unit};
}

foreach my $block (blocks())
{
	my $rules = parse_policy($block->{rules});

	install_policy($node, $block->{rules}, %{ $block->{settings} });
	run_table($block, $rules);
	run_check($block, $rules);
}
my $seen = seen_decisions($node, \%calls);
foreach my $case (sort { $a <=> $b } keys %done)
{
	is($seen->{$case} // '-', $done{$case}{expected}, $done{$case}{name});
}
cmp_ok(scalar keys %done, '>=', 500, 'many cases');

# Words in another file, and what no rule changes

append_to_file($node->data_dir . '/policy_users', "alice, # a comment\n\t\"Mixed\"\n+lead\n");
install_policy($node, "record all \@policy_users all all all name=file\nignore all all all all all\n",
	log => 'all');
%done = %calls = ();
foreach my $case ([ alice => 'file' ], [ Mixed => 'file' ], [ carol => 'file' ], [ bob => '-' ])
{
	my $case_number = note_case("words of a file: $case->[0]", 'one', $case->[1]);

	run_statements($node, parse_session($case->[0]), { $case_number => { sql => 'SELECT# 1' } });
}
$seen = seen_decisions($node, \%calls);
is($seen->{$_} // '-', $done{$_}{expected}, $done{$_}{name}) foreach sort keys %done;

my @always = records_for(
	$node,
	"SELECT length(pg_read_file('PG_VERSION')); SET pg_audit_queue.log = 'none'",
	config => 1);
is_deeply(
	[ columns('class command objectName', grep { $_->{command} ne 'RELOAD' } @always) ],
	[ 'FUNCTION|EXECUTE|pg_catalog.pg_read_file', 'CONFIG|SET|pg_audit_queue.log' ],
	'no rule ignores reads of files and changes of settings');

# ---------------------------------------------------------------------------
# What is wrong in a file
# ---------------------------------------------------------------------------

my @wrong = map { chomp; $_ } grep { /\S/ && !/^#/ }
  split /^/, slurp_file("$FindBin::RealBin/../lib/policy/errors");
my @errors = policy_errors(@wrong);

foreach my $i (0 .. $#wrong)
{
	ok(!eval { parse_policy($wrong[$i]) }, "wrong (matcher): $wrong[$i]");
	ok($errors[$i], "wrong: $wrong[$i]");
}
is_deeply([ grep { $_ } policy_errors('record all all all all all name=right') ],
	[], 'a right rule is not wrong');

# The errors that the view shows, by line; the file is not put in effect.
sub policy_errors
{
	my @lines = @_;
	my $file  = policy_file($node);
	my %errors;

	unlink $file or die "unlink: $!";
	append_to_file($file, join '', map { "$_\n" } @lines);
	foreach my $row (split /\n/,
		unaudited_sql($node, 'SELECT line_number, error FROM audit_policy_rules WHERE error IS NOT NULL'))
	{
		my ($line, $error) = split /\|/, $row, 2;

		$errors{$line} = $error;
	}
	return map { $errors{$_} // '' } 1 .. @lines;
}

# ---------------------------------------------------------------------------
# Random
# ---------------------------------------------------------------------------

my $seed = $ENV{PAQ_TEST_SEED} // int(rand(2**31));
my ($files, $sessions, $statements) = full_tests() ? (200, 5, 20) : (10, 3, 10);

diag("PAQ_TEST_SEED=$seed");
srand($seed);

sub pick
{
	return $_[ rand @_ ];
}

# A list of one to N of the words
sub list_of
{
	my ($n, @words) = @_;

	return join ',', (shuffle(@words))[ 0 .. rand $n ];
}

my @relations = qw(public.t public.u public.cache hr.salary hr.person hr.Odd staging.raw public.part
  public.part1 public.part11 public.part2 public.parent public.child pg_temp.tmp);
my @objects = (
	@relations, qw(public public.* hr *.salary *.* /^hr\. /part public.v api pg_temp pg_catalog role:auditor
	  role:auditors));

# A rule; with_rows: it may ask for the number of rows
sub random_rule
{
	my ($rule_number, $with_rows) = @_;
	my $action = pick(qw(record record ignore));
	my @options;

	push @options, 'outcome=' . list_of(3, qw(ok failed denied partial)) if rand() < 0.2;
	push @options, 'currentuser=' . list_of(2, qw(alice bob +staff +lead /^b boss)) if rand() < 0.15;
	push @options, 'rows' . pick(qw(< <= = >= >)) . pick(0 .. 6) if $with_rows && rand() < 0.4;
	push @options, 'duration' . pick('>=1h', '<1h', '>2min', '<=60000', '<100s') if rand() < 0.1;
	push @options, "name=r$rule_number" if $action eq 'record';
	push @options, 'mandatory' if $action eq 'record' && rand() < 0.3;
	return join ' ', $action,
	  rand() < 0.6 ? 'all' : list_of(2, qw(shop bank alice sameuser samerole /^s replication all)),
	  rand() < 0.4 ? 'all' : list_of(3, qw(alice bob carol dave Mixed "all" boss +staff +lead +ops /^[ab])),
	  rand() < 0.7 ? 'all' : list_of(2, qw(local 127.0.0.1 127.0.0.0/8 10.0.0.0/8 ::1 samehost samenet)),
	  rand() < 0.3 ? 'all' : list_of(3, map { pick('', '', '-') . $_ }
		qw(all read write ddl function misc misc_set set_role error role truncate temp SELECT INSERT UPDATE
		  DELETE DO SHOW SET), '"CREATE TABLE"', '"DROP TABLE"'),
	  rand() < 0.4 ? 'all' : list_of(3, @objects),
	  shuffle(@options);
}

sub random_session
{
	my $user = pick(qw(alice bob carol dave Mixed all boss));
	my $become = $user eq 'boss' ? pick('', '>', '=') : '';

	return $user . pick('', '', '@bank', '@alice', '@staff') . pick('', '', ':tcp')
	  . ($become ? $become . pick(qw(alice bob carol staff lead)) : '');
}

# A statement.  What failed has no number of rows that could be told, and neither has
# what has none.
sub random_statement
{
	my ($with_rows, $has_triggers) = @_;
	my $name = pick(@relations);
	my @verbs = (
		"select $name " . pick(1 .. 6),
		"update $name " . pick(1 .. 3),
		"insert " . ($name =~ /part$|part1$/ ? 'public.part11' : $name) . ' ' . pick(1 .. 6),
		"insert $name from " . pick(grep { !/Odd/ && $_ ne $name } @relations),
		"join $name " . pick(grep { !/Odd/ && $_ ne $name } @relations),
		"delete $name",
		'select public.v ' . pick(1 .. 6),
		"join $name pg_catalog.pg_class",
		qw(look lookcall one));
	push @verbs, "truncate $name", "fail $name", "late $name", 'select public.secret', 'call api.f', 'call public.g',
	  qw(show set setrole do syntax)
	  if !$with_rows;
	push @verbs, map { ("create $_.n", "drop $_.n") } qw(public hr staging)
	  if !$with_rows && $has_triggers;
	return pick(@verbs);
}

%done = %calls = ();
my %rules_of;
foreach my $file (1 .. $files)
{
	my $with_rows = rand() < 0.4;
	my $text = join '', map { random_rule($_, $with_rows) . "\n" } 1 .. 1 + rand 8;
	my %settings = (
		log => pick(
			'none', 'all', 'read', 'write, ddl', 'all, -read', 'misc, error', 'denied',
			'denied, set_role'
		),
		policy       => pick(qw(on on on on off)),
		log_catalog  => pick(qw(on off)),
		log_relation => pick(qw(off off off on)),
		role         => pick('', '', '', 'auditor', 'auditors'));
	my $rules = parse_policy($text);

	install_policy($node, $text, %settings);
	foreach (1 .. $sessions)
	{
		my $who = random_session();
		my $session = session_with($who, %settings);
		my %statements;

		foreach (1 .. $statements)
		{
			my $what = random_statement($with_rows, $session->{database} eq 'shop');
			my $statement = parse_statement($what, $session);
			my $case = note_case("$who: $what", $what, matched($rules, $session, $statement));

			$rules_of{$case} = join(', ', map { "$_ = '$settings{$_}'" } sort keys %settings) . "\n$text";
			$statements{$case} = $statement;
		}
		run_statements($node, $session, \%statements);
	}
}
$seen = seen_decisions($node, \%calls);
my @different = grep { ($seen->{$_} // '-') ne $done{$_}{expected} } sort { $a <=> $b } keys %done;
is(scalar @different, 0, 'random cases, ' . keys %done);
foreach my $case (grep { defined } @different[ 0 .. 9 ])
{
	diag("$done{$case}{name}: " . ($seen->{$case} // '-') . ", expected $done{$case}{expected} by\n"
		  . $rules_of{$case});
}
# All outcomes are there
my %count;
$count{$_}++ foreach map { uniq split / /, $_->{expected} =~ s/\d+//gr } values %done;
cmp_ok($count{$_} // 0, '>=', keys(%done) / 50, "expected: $_") foreach qw(- + r);

check_trail($node, 'the trail is whole');
$node->stop;
done_testing();
