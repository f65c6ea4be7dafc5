#-------------------------------------------------------------------------
#
# PaqPolicy.pm
#	Policies in tests: installing rule files, and a reference matcher, which
#	decides in a plain and slow way what the server has to decide.
#
# The matcher follows doc/policies.md and shares nothing with the server: it has
# its own tokenizer, Perl's regular expressions, and is told all that the server
# asks catalogs for.  Each of its functions says which part of the
# documentation it is.
#
# A session is a hash:
#	database	name; undef: a physical replication connection
#	user		role that logged in
#	address		"local", an IP address, or undef: no client
#	member_of	code: for a role, the names of all roles that it is a member of,
#				directly or not; undef: cannot be told
#	own			reference to an array of the server's own networks, for samehost and
#				samenet: "127.0.0.1/8"
#	log			reference to an array of the classes in "log", lower case
#	policy, log_catalog, log_relation
#				"off", or on; log_relation is off unless given
#	role		of object auditing; "" or undef: none
#
# A statement is a hash:
#	class		in the words of "log"
#	command		command tag
#	current		CURRENT_USER; the session's user unless given
#	objects		reference to an array of objects; empty: it has none; undef: they are
#				not known
#	sqlstate	outcome; undef: unknown
#	rows		undef: unknown
#	processed	rows until it failed
#	duration	microseconds
#	calls		it calls a function because of which log_catalog does not leave it out
#	utility		it is none that the executor executes
#
# and an object:
#	name		"schema.name"
#	class, command	of what is done to it; those of the statement unless given
#	above, below	reference to arrays of "schema.name": tables of which it is a
#				partition or child, and its own, to any depth
#	temporary	a temporary relation
#	catalog		a relation of PostgreSQL's that is only looked at
#	needs		reference to an array of privileges that the statement needs
#	grants		hash of arrays: privileges by role, those inherited included
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqPolicy;

use strict;
use warnings;

use Exporter 'import';
use Socket qw(inet_pton AF_INET AF_INET6);

use PaqTest;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(
  decide
  install_policy
  parse_policy
  policy_file
);

# ---------------------------------------------------------------------------
# Rule files on a server
# ---------------------------------------------------------------------------

# policy_file($node): path of the file with the rules.
sub policy_file
{
	my ($node) = @_;

	return $node->data_dir . '/audit_policy.conf';
}

# install_policy($node, $text, %settings): put these rules in effect, and the settings,
# names without the prefix, in place of those of the last call.  Dies if the server
# does not come to apply them; $text has to have a rule.  Sessions that connect, and
# statements that begin, after the call are judged by them.
my %included;

sub install_policy
{
	my ($node, $text, %settings) = @_;
	my $conf = $node->data_dir . '/policy_test.conf';

	_replace_file($conf, settings_text(%settings));
	$node->append_conf('postgresql.conf', "include 'policy_test.conf'")
	  if !$included{ $node->name }++;
	_replace_file(policy_file($node), $text);
	$node->reload;
	poll_until(
		sub {
			unaudited_sql($node,
				'SELECT count(*) > 0 AND bool_and(in_effect) FROM audit_policy_rules') eq 't';
		})
	  or die "the policy does not take effect:\n$text"
	  . unaudited_sql($node, 'SELECT line_number, in_effect, error FROM audit_policy_rules');
	return;
}

# Never half written
sub _replace_file
{
	my ($path, $text) = @_;

	append_to_file("$path.new", $text);
	rename("$path.new", $path) or die "rename: $!";
	return;
}

# ---------------------------------------------------------------------------
# Rule files: doc/policies.md, "The file"
# ---------------------------------------------------------------------------

# Split a line into fields, each an array of words.  A word is an array of its text
# and whether it began with a quote.  Words are separated by commas, fields by white
# space, except behind a comma.
sub _fields
{
	my ($line) = @_;
	my @fields;
	my $goes_on = 0;

	while (1)
	{
		my ($word, $quoted) = ('', 0);

		$line =~ /\G[\s,]+/gc;
		last if $line =~ /\G(?:#.*)?\z/gcs;
		$quoted = 1 if $line =~ /\G(?=")/gc;
		while ($line =~ /\G(?:"((?:[^"]|"")*)(?:"|\z)|([^\s,"#]+))/gc)
		{
			$word .= defined $1 ? $1 =~ s/""/"/gr : $2;
		}
		push @fields, [] if !$goes_on;
		push @{ $fields[-1] }, [ $word, $quoted ];
		$goes_on = $line =~ /\G,/gc;
	}
	return @fields;
}

# parse_policy($text): the rules of a file.  Dies with the number of the line at the
# first error.
sub parse_policy
{
	my ($text) = @_;
	my @rules;
	my $number = 0;
	my $line   = '';

	foreach my $part (split /\n/, $text)
	{
		$number++;
		$line .= $part;
		# a backslash at the end of a line continues it
		next if $line =~ s/\\$//;
		my @fields = _fields($line);

		$line = '';
		next if !@fields;
		my $rule = eval { _rule(@fields) } // die "line $number: $@";

		push @rules, { %$rule, number => @rules + 1, line => $number };
	}
	return \@rules;
}

# Fields and options to a rule: "Fields", "Conditions", "Options"
sub _rule
{
	my (@fields) = @_;
	my @names = qw(action database user address class object);
	my %rule;

	die "fields are missing\n" if @fields < @names;
	@rule{@names} = splice @fields, 0, scalar @names;
	die "more than one action\n" if @{ $rule{action} } != 1;
	$rule{action} = $rule{action}[0][0];
	die "no action\n" if $rule{action} !~ /^(?:record|ignore)$/;
	_check_class(@$_)   foreach @{ $rule{class} };
	_check_address(@$_) foreach @{ $rule{address} };
	foreach my $field (@fields)
	{
		my ($first, @more) = @$field;
		my ($name, $operator, $value) = $first->[0] =~ /^(\w+)(?:(<=|>=|[<=>])(.*))?$/s
		  or die "no option\n";
		my @values = (defined $value ? [ $value, $first->[1] ] : (), @more);

		die "$name twice\n" if exists $rule{$name};
		_check_option($rule{action}, $name, $operator // '', map { $_->[0] } @values);
		$rule{$name} = { operator => $operator, values => \@values };
	}
	return \%rule;
}

my $CLASSES = join '|', qw(all connect ddl error function misc misc_set read role set_role write);

sub _check_class
{
	my ($word, $quoted) = @_;

	$word =~ s/^-//;
	die "no class: $word\n" if $word eq '' || lc $word eq 'none';
	# commands, as far as the tests have them
	die "no class: $word\n"
	  if $word !~ /^(?:$CLASSES|temp|truncate)$/i
	  && $word !~ /^(?:BEGIN|CALL|COPY|COMMENT|DELETE|DO|EXECUTE|EXPLAIN|GRANT|INSERT|LOCK TABLE|MERGE|SELECT|SET|SHOW|TRUNCATE TABLE|UPDATE|VACUUM|(?:ALTER|CREATE|DROP) (?:FUNCTION|INDEX|ROLE|SCHEMA|TABLE|VIEW))$/i;
	return;
}

sub _check_address
{
	my ($word) = @_;

	die "no address: $word\n"
	  if $word !~ /^(?:all|local|samehost|samenet)$/ && !defined _network($word);
	return;
}

sub _check_option
{
	my ($action, $name, $operator, @values) = @_;
	my $value = join ',', @values;
	my %words = (
		mode       => qr/^(?:queued|commit|immediate)$/,
		parameters => qr/^(?:on|off)$/,
		statement  => qr/^(?:on|off|normalized)$/,
		name       => qr/^.{1,63}$/);

	if ($name eq 'rows' || $name eq 'duration')
	{
		die "no operator\n" if $operator eq '';
		die "no number\n" if $value !~ ($name eq 'rows' ? qr/^\d{1,18}$/ : qr/^\d{1,12}(?:us|ms|s|min|h)?$/);
		return;
	}
	if ($name eq 'mandatory')
	{
		die "a value\n" if $operator ne '';
	}
	else
	{
		die "no value\n" if $operator ne '=' || $value eq '';
		return if $name eq 'currentuser';
		if ($name eq 'outcome')
		{
			die "no outcome\n" if grep { !/^(?:ok|failed|denied|partial)$/ } @values;
			return;
		}
		die "no option\n"     if !$words{$name};
		die "a wrong value\n" if $value !~ $words{$name};
	}
	die "an option of a rule to record\n" if $action ne 'record';
	return;
}

# ---------------------------------------------------------------------------
# Which rule decides: doc/policies.md, the section with that name
# ---------------------------------------------------------------------------

# Answers are 1, 0, or undef: cannot be told.  One that holds is enough:
sub _any
{
	my (@answers) = @_;

	return 1 if grep { $_ } @answers;
	return (grep { !defined } @answers) ? undef : 0;
}

# All must hold
sub _all
{
	my (@answers) = @_;

	return 0 if grep { defined && !$_ } @answers;
	return (grep { !defined } @answers) ? undef : 1;
}

# decide(\@rules, \%session, \%statement): the records of the statement, each a rule
# that gives its options, or "settings"; none if it is not recorded.
sub decide
{
	my ($rules, $session, $statement) = @_;
	my @things = _things($statement);
	my (@records, @parts);

	# "With policy = off, only mandatory rules apply, and the settings decide about the
	# rest."
	$rules = [ grep { $_->{mandatory} } @$rules ] if ($session->{policy} // 'on') eq 'off';
	foreach my $thing (@things)
	{
		my ($rule, $granted) = _first_match($rules, $session, $statement, $thing);

		$thing->{rule} = $rule;
		$thing->{hidden} = ($session->{log_catalog} // 'on') eq 'off' && $thing->{object} && $thing->{object}{catalog};

		# Object auditing: "a record of its own", by a rule or by the setting "role"
		push @records, 'settings'
		  if !$rule && !$thing->{hidden} && $thing->{object} &&
		  _is_granted($session->{role} // '', $thing->{object});
		if (!$granted) { push @parts, $thing }
		elsif ($rule)  { push @records, $rule }
		elsif (_settings_want($session, $statement, $thing)) { push @records, 'settings' }
	}

	# log_relation: "one record for each relation of a statement"
	my @each = ($session->{log_relation} // 'off') eq 'on' && !$statement->{utility} &&
	  (grep { $_->{object} && $_->{object}{needs} } @things) ? map { [$_] } @parts : \@parts;
	push @records, _decide_parts($session, $statement, $_, scalar @things) foreach @each;

	# What log_catalog leaves out, unless a function is called with another purpose
	my @left = grep { !$_->{rule} } @parts;
	push @records, 'settings'
	  if $statement->{calls} && @left && !(grep { !$_->{hidden} } @left)
	  && _settings_want($session, $statement, { %{ $left[0] }, hidden => 0 });
	return grep { $_ eq 'settings' || $_->{action} eq 'record' } @records;
}

# What of a statement's things one record is about, if there is one
sub _decide_parts
{
	my ($session, $statement, $parts, $all) = @_;
	my @recording = sort { $a->{number} <=> $b->{number} }
	  grep { defined && $_->{action} eq 'record' } map { $_->{rule} } @$parts;

	# "If any is to be recorded, the statement is.  Of the rules that record, the first
	# in the file gives the options."
	return $recording[0] if @recording;

	# "Where no rule matches, log is asked": about the whole, if no rule has said
	# anything about a part of it
	my @left = grep { !$_->{rule} } @$parts;
	push @left, { class => $statement->{class} }
	  if @left == $all && grep { !$_->{hidden} } @left;
	return grep({ _settings_want($session, $statement, $_) } @left) ? 'settings' : ();
}

# Do the settings ask for a record of the thing?
sub _settings_want
{
	my ($session, $statement, $thing) = @_;

	return 0 if $thing->{hidden};
	return 1 if grep { _class_has($_, $thing->{class}) } @{ $session->{log} };

	# "denied: whatever is denied, of any class"
	return 0 if !_outcome('denied', $statement->{sqlstate} // '00000');
	return (grep { $_ eq 'denied' } @{ $session->{log} }) ? 1 : 0;
}

# What the statement does, one by one: "For each thing that a statement does"
sub _things
{
	my ($statement) = @_;
	my %whole   = (class => $statement->{class}, command => $statement->{command});
	my $objects = $statement->{objects};

	return { %whole, unknown => 1 } if !defined $objects;
	return { %whole } if !@$objects;
	return map {
		{
			object  => $_,
			class   => $_->{class}   // $whole{class},
			command => $_->{command} // $whole{command}
		}
	} @$objects;
}

# "The first rule of the file that matches decides".  "Where the answer is not known: a
# rule to record matches, and a rule to ignore does not."  The second result is whether a
# rule has selected the object by grants, if only its conditions on the end do not hold.
sub _first_match
{
	my ($rules, $session, $statement, $thing) = @_;
	my $granted = 0;

	foreach my $rule (@$rules)
	{
		my $subject = _matches($rule, $session, $statement, $thing) // $rule->{action} eq 'record';

		next if !$subject;
		$granted = 1 if $rule->{action} eq 'record' && _is_selected_by_grants($rule, $thing);
		return ($rule, $granted) if _at_end($rule, $statement) // $rule->{action} eq 'record';
	}
	return (undef, $granted);
}

# Field "object": is it "role:NAME" that matches, and no other word?
sub _is_selected_by_grants
{
	my ($rule, $thing) = @_;
	my ($by_grants, $by_name) = (0, 0);

	foreach my $word (@{ $rule->{object} })
	{
		my $answer = _object(@$word, $rule->{action}, $thing);

		if (!$word->[1] && $word->[0] =~ /^role:/) { $by_grants ||= $answer }
		else { $by_name ||= $answer }
	}
	return $by_grants && !$by_name;
}

# All but what is known when the statement ends
sub _matches
{
	my ($rule, $session, $statement, $thing) = @_;

	return _all(
		_any(map { _database(@$_, $session) } @{ $rule->{database} }),
		_any(map { _user(@$_, $session->{user}, $session) } @{ $rule->{user} }),
		_any(map { _address(@$_, $session) } @{ $rule->{address} }),
		_class($rule->{class}, $statement, $thing),
		_any(map { _object(@$_, $rule->{action}, $thing) } @{ $rule->{object} }),
		$rule->{currentuser}
		? _any(map { _user(@$_, $statement->{current} // $session->{user}, $session) }
			@{ $rule->{currentuser}{values} })
		: 1);
}

# Field "database"
sub _database
{
	my ($word, $quoted, $session) = @_;
	my $database = $session->{database};

	if (!$quoted)
	{
		return 1 if $word eq 'all';
		return !defined $database ? 1 : 0 if $word eq 'replication';
		return 0 if !defined $database;
		return $database eq $session->{user} ? 1 : 0 if $word eq 'sameuser';
		return _is_member($session->{user}, $database, $session)
		  if $word eq 'samerole' || $word eq 'samegroup';
	}
	return 0 if !defined $database;
	return $database =~ /$1/ ? 1 : 0 if $word =~ m{^/(.*)}s;
	return $database eq $word ? 1 : 0;
}

# Field "user", and condition "currentuser"
sub _user
{
	my ($word, $quoted, $user, $session) = @_;

	return 1 if !$quoted && $word eq 'all';
	return _is_member($user, $1, $session) if !$quoted && $word =~ /^\+(.*)/s;
	return $user =~ /$1/ ? 1 : 0 if $word =~ m{^/(.*)}s;
	return $user eq $word ? 1 : 0;
}

# "the members of the role, directly or not, [...] and the role itself"
sub _is_member
{
	my ($user, $role, $session) = @_;
	my $roles = $session->{member_of}->($user);

	return undef if !defined $roles;
	return $role eq $user || (grep { $_ eq $role } @$roles) ? 1 : 0;
}

# An address with its number of bits, as a string of 0 and 1, and that number; undef
# if it is none
sub _network
{
	my ($text) = @_;
	my ($address, $bits) = $text =~ m{^([0-9a-fA-F.:]+)(?:/(\d+))?$} or return;
	my $packed = inet_pton($address =~ /:/ ? AF_INET6 : AF_INET, $address) // return;
	my $string = unpack 'B*', $packed;

	$bits //= length $string;
	return if $bits > length $string;
	return [ $string, $bits ];
}

# Is the address in the network?
sub _is_in
{
	my ($address, $network) = map { _network($_) } @_;
	my $bits = $network->[1];

	return length $address->[0] == length $network->[0]
	  && substr($address->[0], 0, $bits) eq substr($network->[0], 0, $bits) ? 1 : 0;
}

# Field "address"
sub _address
{
	my ($word, $quoted, $session) = @_;
	my $address = $session->{address};

	return 1 if $word eq 'all';
	# "processes without a client, which no other word matches"
	return 0 if !defined $address;
	return $word eq 'local' ? 1 : 0 if $address eq 'local';
	return 0 if $word eq 'local';
	return _any(map { _is_in($address, s{/.*}{}r) } @{ $session->{own} }) if $word eq 'samehost';
	return _any(map { _is_in($address, $_) } @{ $session->{own} }) if $word eq 'samenet';
	return _is_in($address, $word);
}

# Field "class": "the last word that matches the statement decides"
sub _class
{
	my ($words, $statement, $thing) = @_;
	my $result = $words->[0][0] =~ /^-/ ? 1 : 0;

	foreach my $item (@$words)
	{
		my ($minus, $word) = $item->[0] =~ /^(-?)(.*)$/s;
		my $answer = _class_word($word, $statement, $thing);

		$result = $minus ? 0 : 1 if $answer;
		# it could be either from here on, unless a later word decides
		$result = undef if !defined $answer && ($result // 2) != ($minus ? 0 : 1);
	}
	return $result;
}

sub _class_word
{
	my ($word, $statement, $thing) = @_;

	return _class_has(lc $word, $thing->{class}) if $word =~ /^(?:$CLASSES)$/i;
	return $thing->{command} eq 'TRUNCATE TABLE' ? 1 : 0 if lc $word eq 'truncate';
	return _is_temporary($statement) if lc $word eq 'temp';
	return lc $word eq lc $thing->{command} ? 1 : 0;
}

# "the classes of the setting log; misc includes misc_set, and that set_role"
sub _class_has
{
	my ($word, $class) = @_;

	return $word eq 'all' || $word eq $class ||
	  ($word eq 'misc' && $class eq 'misc_set') ||
	  ($word =~ /^misc(?:_set)?$/ && $class eq 'set_role') ? 1 : 0;
}

# "statements that have relations, all of which are temporary"
sub _is_temporary
{
	my ($statement) = @_;
	my $objects = $statement->{objects} // return undef;

	return @$objects && !(grep { !$_->{temporary} } @$objects) ? 1 : 0;
}

# Field "object"
sub _object
{
	my ($word, $quoted, $action, $thing) = @_;

	return 1 if !$quoted && $word eq 'all';
	# "match all only"; "the objects of DDL where event triggers do not tell"
	return undef if $thing->{unknown};
	my $object = $thing->{object} // return 0;

	return _is_granted($1, $object) if !$quoted && $word =~ /^role:(.*)/s;
	# "Of a relation the names count that it has itself, and those of the tables of which
	# it is a partition or child [...].  For a rule to record, those of its own
	# partitions and children count, too"
	my @names = ($object->{name}, @{ $object->{above} // [] });

	push @names, @{ $object->{below} // [] } if $action eq 'record';
	my $pattern = _name_pattern($word, $quoted);
	return _any(map { $_ =~ $pattern ? 1 : 0 } @names);
}

# "schema.name", "*", "schema", "/regex", as a regular expression for "schema.name"
sub _name_pattern
{
	my ($word, $quoted) = @_;

	return qr/$1/ if $word =~ m{^/(.*)}s;
	my ($schema, $name) = map { $quoted ? quotemeta : quotemeta =~ s/\\\*/[^.]*/gr }
	  split /\./, $word, 2;

	return qr/^$schema\./ if !defined $name;
	return qr/^$schema\.$name$/;
}

# "role:NAME": "one of the privileges that the statement needs has been granted"
sub _is_granted
{
	my ($role, $object) = @_;
	my @granted = @{ ($object->{grants} // {})->{$role} // [] };

	foreach my $privilege (@{ $object->{needs} // [] })
	{
		return 1 if grep { $_ eq $privilege } @granted;
	}
	return 0;
}

# "Conditions" on the end: "all must hold"
sub _at_end
{
	my ($rule, $statement) = @_;
	my @answers = (1);

	push @answers, _any(map { _outcome($_->[0], @$statement{qw(sqlstate processed)}) } @{ $rule->{outcome}{values} })
	  if $rule->{outcome};
	push @answers, _compare($statement->{rows}, $rule->{rows}{operator}, $rule->{rows}{values}[0][0])
	  if $rule->{rows};
	push @answers,
	  _compare($statement->{duration}, $rule->{duration}{operator},
		_micros($rule->{duration}{values}[0][0]))
	  if $rule->{duration};
	return _all(@answers);
}

sub _outcome
{
	my ($word, $sqlstate, $processed) = @_;

	return undef if !defined $sqlstate;
	return $sqlstate eq '00000' ? 1 : 0 if $word eq 'ok';
	return $sqlstate ne '00000' ? 1 : 0 if $word eq 'failed';
	return $sqlstate ne '00000' && $processed ? 1 : 0 if $word eq 'partial';
	return $sqlstate =~ /^(?:42501|28...)$/ ? 1 : 0;
}

sub _compare
{
	my ($value, $operator, $number) = @_;
	my %holds = (
		'<'  => sub { $value < $number },
		'<=' => sub { $value <= $number },
		'='  => sub { $value == $number },
		'>=' => sub { $value >= $number },
		'>'  => sub { $value > $number });

	return undef if !defined $value;
	return $holds{$operator}->() ? 1 : 0;
}

# "a number with us, ms, s, min or h, milliseconds if there is none"
sub _micros
{
	my ($number, $unit) = $_[0] =~ /^(\d+)(\w*)$/;
	my %micros = ('' => 1e3, us => 1, ms => 1e3, s => 1e6, min => 60e6, h => 3600e6);

	return $number * $micros{$unit};
}

1;
