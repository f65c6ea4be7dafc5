#-------------------------------------------------------------------------
#
# PaqParity.pm
#	A server that has both pgaudit and pg_audit_queue, and functions that
#	compare the records of the two for the same sessions.
#
#	my $parity = PaqParity->new('main', preload => 'pgaudit, pg_audit_queue',
#		rules => \@rules);
#	$parity->run_file('dml', 'relation', log => 'all', log_relation => 'on');
#	$parity->compare;
#
# A run is one client program with the same settings for both.  pgaudit's
# records are taken from the server log, ours from the trail; those of a session
# are found by its id in both.  A record is compared as (type, statement id,
# substatement id, class, command, object type, object name, statement,
# parameters, rows), rows only with log_rows.  With log_client, the messages to
# the client are compared as well, in their order; pgaudit's messages then have
# level INFO, and ours level NOTICE.
#
# Nothing here knows in which ways the two differ: rules say that, see new().
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqParity;

use strict;
use warnings;

use FindBin;
use IPC::Run;
use JSON::XS;

use PaqTest;
use PgProto;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Queries that pgaudit makes in its event triggers: we record them.
my $internal_query = qr/\A\QSELECT pg_catalog.upper(object_type),\E
	.*\sFROM\Q pg_catalog.pg_event_trigger_\E(?:ddl_commands|dropped_objects)\(\)/sx;

my @fields = qw(type id subid class command otype oname text params rows);

# new($name, %options): start the server.
#
# Options:
#	preload		value of shared_preload_libraries
#	settings	as for audited_node()
#	whole_texts	sub: does pgaudit show a text of several statements as a whole in
#				this record?  Without it, it does nowhere.
#	rules		array of hashes, each a way in which the two may differ:
#		name	of the rule
#		side	whose records it is about: "theirs", "ours" or "both"
#		if		sub: is it about this record?  Gets the record, a hash with
#				the fields below, with "session" if the client was not only
#				shown it, "backend" (theirs) and "outcome" (ours), and the run
#		do		sub: change the record; without it, the record is left out
#		rest	true: look only at what has no counterpart
#		order	true, or a sub that returns true: the ids of the session
#				differ from here on, so only their order is compared
sub new
{
	my ($class, $name, %options) = @_;
	my $self = bless {
		rules => $options{rules} // [],
		whole_texts => $options{whole_texts},
		runs  => [],
		used  => {},
		count => 0,
		shown => 0,
		parts => 0,
		format => $options{settings}{format} // 'json'
	}, $class;

	$self->{node} = audited_node(
		$name,
		settings => {
			log                => 'none',
			log_rotation_size  => 0,
			log_line_prefix    => '%a|%c|%e|',
			%{ $options{settings} // {} }
		},
		conf => qq{
		shared_preload_libraries = '$options{preload}'
		logging_collector = on
		log_destination = 'jsonlog'
		log_filename = 'server.log'
		log_rotation_age = 0
		log_rotation_size = 0
		log_min_messages = info
		log_min_error_statement = panic
		max_prepared_transactions = 10
		wal_level = logical
		} . ($options{conf} // ''));
	$self->{dir} = PostgreSQL::Test::Utils::tempdir();
	unaudited_sql($self->{node},
		'CREATE ROLE parity_auditors; CREATE ROLE parity_auditor IN ROLE parity_auditors');
	return $self;
}

# directory(): for files.
sub directory
{
	my ($self) = @_;

	return $self->{dir};
}

sub node
{
	my ($self) = @_;

	return $self->{node};
}

# database($name): make a database with both extensions, unless it is there.
sub database
{
	my ($self, $name) = @_;

	return if $self->{databases}{$name}++;
	unaudited_sql($self->{node},
		"CREATE DATABASE $name TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'");
	unaudited_sql($self->{node},
		'CREATE EXTENSION pgaudit; CREATE EXTENSION pg_audit_queue', $name);
	return;
}

# Note a run and give its database the settings.
sub _begin
{
	my ($self, $subject, $label, %settings) = @_;
	my $run = {
		subject  => $subject,
		label    => $label,
		settings => \%settings,
		database => "parity_$subject",
		name     => sprintf('parity %d', scalar @{ $self->{runs} })
	};
	my $alter = "ALTER DATABASE $run->{database}";
	my $sql   = "$alter RESET ALL; $alter SET application_name = '$run->{name}'";

	$self->database($run->{database});
	$self->{admin} //= PgProto->connect($self->{node});
	$settings{log_level} = 'notice';
	foreach my $name (sort keys %settings)
	{
		my $theirs = $name eq 'log_level' ? 'info' : $settings{$name};

		$sql .= "; $alter SET pgaudit.$name = '$theirs'"
		  . "; $alter SET pg_audit_queue.$name = '$settings{$name}'";
	}
	my $answer = $self->{admin}->query($sql);
	die "could not set up $subject: $answer" if $answer =~ /E:/;
	push @{ $self->{runs} }, $run;
	return $run;
}

# run_file($subject, $label, %settings): run t/lib/parity/$subject.sql with these
# settings, names without a prefix, in a database of its own.  The setting file
# names another file.
#
# Fails the test if the errors are not those of the lines with /* fails */, or
# with /* fails before 19 */ for another major version, unless it is another file.
sub run_file
{
	my ($self, $subject, $label, %settings) = @_;
	my $other_file = delete $settings{file};
	my $file = $other_file // "$FindBin::RealBin/../lib/parity/$subject.sql";
	my $run  = $self->_begin($subject, $label, %settings);
	my ($stdout, $stderr);
	my $number = 0;
	my @expected;
	my @connects;

	local $ENV{PGAPPNAME} = $run->{name};
	IPC::Run::run(
		[
			'psql', '-XAtq', '-v', 'VERBOSITY=terse',
			'-v', "dir=$self->{dir}", '-v', 'super=' . getpwuid($>),
			'-v', 'host=' . $self->{node}->host, '-v', 'port=' . $self->{node}->port,
			'-d', $self->{node}->connstr($run->{database}), '-f', $file
		],
		'<', \undef, '>', \$stdout, '2>', \$stderr,
		IPC::Run::timeout(2 * $PostgreSQL::Test::Utils::timeout_default))
	  or die "psql failed: $stderr";

	foreach my $line (split /\n/, slurp_file($file))
	{
		$number++;
		push @expected, $number + ($1 // 0)
		  if $line =~ m{/\* fails (?:(\d+) )?(?:before (\d+) )?\*/}
		  && (!$2 || $self->{node}->pg_version->major < $2);
		push @connects, $number if $line =~ /^\\c /;
	}
	my @messages = _messages($stderr);
	my @errors   = grep { $_->[1] =~ /ERROR|FATAL/ } @messages;

	is(join(' ', map { $_->[0] } @errors), join(' ', @expected),
		"$subject, $label: errors")
	  or diag join "\n", map { "$_->[0]: $_->[2]" } @errors
	  if !defined $other_file;
	foreach my $message (grep { $_->[0] && $_->[2] =~ /^AUDIT: / } @messages)
	{
		my ($line, $severity, $text) = @$message;
		my $session = grep { $_ < $line } @connects;

		push @{ $run->{shown}[$session]{ $severity eq 'INFO' ? 'theirs' : 'ours' } },
		  _parse_message($text);
	}
	return;
}

# run_sub($subject, $label, $sub, %settings): the same for a sub, which gets
# the node.
sub run_sub
{
	my ($self, $subject, $label, $sub, %settings) = @_;

	my $run = $self->_begin($subject, $label, %settings);

	local $ENV{PGAPPNAME} = $run->{name};
	$sub->($self->{node}, $run->{database});
	return;
}

# psql's messages as [ line, severity, text ].
sub _messages
{
	my ($stderr) = @_;
	my @messages;

	foreach my $line (split /\n/, $stderr)
	{
		if ($line =~ /^psql:[^:]*:(\d+): ([A-Z]+):  (.*)$/s)
		{
			push @messages, [ $1, $2, $3 ];
		}
		elsif ($line =~ /^([A-Z]+):  (.*)$/s)
		{
			# while it connects, psql does not say where
			push @messages, [ 0, $1, $2 ];
		}
		elsif (@messages)
		{
			$messages[-1][2] .= "\n$line";
		}
	}
	return @messages;
}

# The fields of a line of CSV.
sub split_csv
{
	my ($line) = @_;
	my @values;

	pos($line) = 0;
	do
	{
		my $value = '';

		if ($line =~ /\G"/gc)
		{
			# in pieces: a regular expression for all would be too long
			while ($line =~ /\G([^"]*)"("?)/gc)
			{
				$value .= $1 . $2;
				last if $2 eq '';
			}
		}
		elsif ($line =~ /\G([^,]+)/gc)
		{
			$value = $1;
		}
		push @values, $value;
	} while ($line =~ /\G,/gc);
	return @values;
}

# A value as a field of CSV, as pgaudit writes it.
sub quote_csv
{
	my ($value) = @_;

	return $value if $value !~ /[",\r\n]/;
	return '"' . ($value =~ s/"/""/gr) . '"';
}

# pgaudit's message as a record.
sub _parse_message
{
	my ($message) = @_;
	my %record;

	$message =~ s/^AUDIT: // or die "no audit record: $message";
	@record{@fields} = split_csv($message);
	return \%record;
}

# The fields of a JSON record, as bytes in UTF-8, with lists as they are
# written.  Decoding all of it takes ten times as long.
sub _scan_json
{
	my ($line) = @_;
	my %fields;

	# too long for the regular expression below
	return _decode_json($line) if length $line > 30_000;

	pos($line) = 0;
	while ($line =~ /\G[{,]"(\w+)":(?:("(?:[^"\\]++|\\.)*+")|(\[.*?\](?=,"\w+":))|([^",]++))/gc)
	{
		my ($name, $string, $list, $plain) = ($1, $2, $3, $4);

		$plain =~ s/}$// if defined $plain;
		$fields{$name} =
		    defined $string ? _json_string($string)
		  : defined $list   ? $list
		  : $plain eq 'null' ? undef
		  :                    $plain;
	}
	$line =~ /\G}?$/ or die "not a JSON record: $line";
	return \%fields;
}

sub _json_string
{
	my ($string) = @_;

	return substr($string, 1, -1) if index($string, '\\') < 0;
	$string = JSON::XS->new->utf8->allow_nonref->decode($string);
	utf8::encode($string);
	return $string;
}

sub _decode_json
{
	my ($line) = @_;
	my $fields = parse_record($line) // die "not a JSON record: $line";

	foreach my $value (values %$fields)
	{
		$value = JSON::XS->new->encode($value) if ref $value eq 'ARRAY';
		utf8::encode($value) if defined $value;
	}
	return $fields;
}

# A line of our trail as a record.
sub _parse_trail
{
	my ($line) = @_;
	my $json = _scan_json($line);
	my %record = (
		session => $json->{sessionId},
		name    => $json->{clientApplication},
		outcome => $json->{exitCode},
		type    => $json->{auditType},
		id      => $json->{statementId},
		subid   => $json->{substatementId},
		class   => $json->{class},
		command => $json->{command},
		otype   => $json->{objectType} // '',
		oname   => $json->{objectName} // '',
		rows    => $json->{rowCount} // 0,
		location => $json->{statementLocation});

	$record{text} = $json->{commandText}
	  // (defined $json->{commandTextOmitted} ? "<$json->{commandTextOmitted}>" : '');
	$record{params} = _params($json);
	return \%record;
}

# Parameters as pgaudit writes them.
sub _params
{
	my ($json) = @_;
	my @params;

	return "<$json->{paramListOmitted}>" if defined $json->{paramListOmitted};
	return '<none>' if ($json->{paramList} // '[]') eq '[]';
	@params = map { $_ // '' } @{ JSON::XS->new->utf8->decode($json->{paramList}) };
	utf8::encode($_) foreach @params;
	return join ',', map { quote_csv($_) } @params;
}

# The trail's records, whichever its format.
sub _trail_records
{
	my ($self) = @_;
	my @lines = trail_lines($self->{node});
	my @messages;

	return map { _parse_trail($_) } @lines if $self->{format} eq 'json';

	# a line that does not begin a record begins with a tab
	foreach my $line (@lines)
	{
		if ($line =~ s/^\t//)
		{
			$messages[-1] .= "\n$line";
		}
		else
		{
			push @messages, $line;
		}
	}
	return map { _parse_line($_) } @messages;
}

# A record in format pgaudit.
sub _parse_line
{
	my ($line) = @_;
	my ($name, $session, $outcome, $message) =
	  $line =~ /^([^|]*)\|([^|]*)\|([^|]*)\|LOG:  (.*)$/s
	  or die "not a record in format pgaudit: $line";
	my $record = _parse_message($message);

	@{$record}{qw(name session outcome)} = ($name, $session, $outcome);
	return $record;
}

# A line of the server log as a record of pgaudit's; undef if it is none.
sub _parse_log
{
	my ($line) = @_;

	return undef
	  if index($line, '"message":"AUDIT: ') < 0
	  || index($line, '"error_severity":"NOTICE"') >= 0;
	my $json = _scan_json($line);
	my $record = _parse_message($json->{message});

	$record->{session} = $json->{session_id};
	$record->{name}    = $json->{application_name};
	$record->{backend} = $json->{backend_type};
	return $record;
}

# Lines of the server's log.  What it has when this begins is in them: its
# writers and the collector are connected by a pipe, which keeps the order.
sub _log_lines
{
	my ($self) = @_;
	my $file   = $self->{node}->data_dir . '/log/server.json';
	my $mark   = 'parity: end ' . scalar @{ $self->{runs} };

	unaudited_sql($self->{node}, "DO \$\$BEGIN RAISE LOG '$mark'; END\$\$");
	poll_until(sub { index(slurp_file($file), $mark) >= 0 })
	  or die 'the end of the server log does not come';
	return split /\n/, slurp_file($file);
}

# compare(): test that the two have recorded the same in all runs so far.
# Returns the numbers of records, and of messages to clients, that were equal,
# and of those of ours that had a part of pgaudit's text.
sub compare
{
	my ($self) = @_;
	my (%theirs, %ours);

	flush_trail($self->{node});
	foreach my $line ($self->_log_lines)
	{
		my $record = _parse_log($line) // next;

		push @{ $theirs{ $record->{name} } }, $record;
	}
	foreach my $record ($self->_trail_records)
	{
		# what pgaudit has no records for at all
		next if $record->{class} =~ /^(?:CONNECT|CONFIG|GAP)$/;
		push @{ $ours{ $record->{name} // '' } }, $record;
	}
	foreach my $record (map { @$_ } values %theirs)
	{
		$self->{commands}{ $record->{command} }++;
	}
	foreach my $run (@{ $self->{runs} })
	{
		my @faults = $self->_compare_run($run, $theirs{ $run->{name} } // [],
			$ours{ $run->{name} } // []);

		ok(!@faults, "$run->{subject}, $run->{label}: records")
		  or diag join "\n", @faults > 40 ? (@faults[ 0 .. 39 ], '...') : @faults;
	}
	return @{$self}{qw(count shown parts)};
}

# Faults of one run.
sub _compare_run
{
	my ($self, $run, $theirs, $ours) = @_;
	my %sessions;
	my @faults;

	push @{ $sessions{ $_->{session} }{theirs} }, $_ foreach @$theirs;
	push @{ $sessions{ $_->{session} }{ours} },   $_ foreach @$ours;
	foreach my $session (sort keys %sessions)
	{
		push @faults, $self->_compare_session($run, $sessions{$session}{theirs} // [],
			$sessions{$session}{ours} // []);
	}
	push @faults, map { $self->_compare_shown($run, $_) } @{ $run->{shown} // [] };
	return @faults;
}

# Copies of a session's records without those of pgaudit's own queries, with
# ids as they were if pgaudit were not there.
sub _without_internal
{
	my (@records) = map { {%$_} } @_;
	my @internal = grep { $_->{text} =~ $internal_query } @records;
	my (%used, %gone, %number);

	return @records if !@internal;
	$gone{ $_->{id} } = 1 foreach @internal;
	@records = grep { $_->{text} !~ $internal_query } @records;
	foreach my $record (grep { defined $_->{id} } @records)
	{
		$used{ $record->{id} }{ $record->{subid} } = 1;
	}

	# within statements
	foreach my $id (grep { exists $used{$_} } keys %gone)
	{
		my $new = 0;

		$number{$id}{$_} = ++$new foreach sort { $a <=> $b } keys %{ $used{$id} };
	}

	# and statements of which nothing is left
	my @lost = grep { !exists $used{$_} } keys %gone;

	foreach my $record (grep { defined $_->{id} } @records)
	{
		my $id = $record->{id};

		$record->{subid} = $number{$id}{ $record->{subid} } if exists $number{$id};
		$record->{id} -= grep { $_ < $id } @lost;
	}
	return @records;
}

# A condition of a rule: a value, or a sub that returns one.
sub _is_true
{
	my ($condition, @arguments) = @_;

	return ref $condition eq 'CODE' ? $condition->(@arguments) : $condition;
}

# Apply the rules about one side to the records of a session.  Returns those
# that are left; $by_order is set if only the order of ids counts.
sub _apply_rules
{
	my ($self, $run, $side, $records, $by_order) = @_;
	my @left;

	RECORD: foreach my $record (_without_internal(@$records))
	{
		foreach my $rule (@{ $self->{rules} })
		{
			next
			  if $rule->{rest} || $rule->{side} !~ /^(?:$side|both)$/
			  || !$rule->{if}->($record, $run);
			$self->{used}{ $rule->{name} }++;
			$$by_order = 1 if _is_true($rule->{order}, $record, $run);
			next RECORD if !$rule->{do};
			$rule->{do}->($record, $run);
		}
		push @left, $record;
	}
	return @left;
}

# A record as a string, without ids if their values do not count.
sub _as_text
{
	my ($run, $record, $by_order) = @_;
	my @shown = @fields;

	pop @shown if ($run->{settings}{log_rows} // 'off') ne 'on';
	splice(@shown, 1, 2) if $by_order;
	return join('|', map { $_ // '' } @$record{@shown});
}

# What may be between a semicolon and the statement, one of it
my $between = qr{\s|/\*.*?\*/|--[^\n]*\n}s;

# A statement's part of a text of several is its text with us; pgaudit may have the
# whole text, see new().  Put that into our records, where the part is in it: at
# the place that the record says, if it does, else between semicolons.  Which text
# it is, is told by pgaudit's record with the same ids or, where these differ, by
# the order.  A text that pgaudit shows with the same ids stays.
sub _restore_texts
{
	my ($self, $theirs, $ours) = @_;
	my @whole =
	  grep { $_->{text} =~ /;.*[^;\s]/s && $self->{whole_texts}->($_) } @$theirs;
	my %theirs = map { $_->{text} => 1 } @$theirs;
	my %shown = map { join(' ', @{$_}{qw(id subid text)}) => 1 } @$theirs;

	foreach my $record (@$ours)
	{
		my ($text, $location) = @{$record}{qw(text location)};

		# pgaudit has no record without a number within the statement
		next if !$record->{subid};
		next if $shown{ join(' ', map { $_ // 0 } @{$record}{qw(id subid text)}) };
		my $is_part = exists $record->{location} ? defined $location : !exists $theirs{$text};
		my @found = grep {
			$_->{class} eq $record->{class} && $_->{command} eq $record->{command}
			  && $_->{oname} eq $record->{oname}
			  && ( defined $location
				? substr($_->{text}, $location, length $text) eq $text
				: $_->{text} =~ /(?:^|;)$between*\Q$text\E\s*(?:;|$)/)
		} @whole;
		my ($same) = grep {
			$_->{id} == ($record->{id} // 0) && $_->{subid} == ($record->{subid} // 0)
		} @found;

		next if !@found || !$is_part && ($same // { text => $text })->{text} eq $text;
		$same //= $found[0];
		@whole = grep { $_ != $same } @whole if ($record->{outcome} // '00000') eq '00000';
		$record->{text} = $same->{text};
		$self->{parts}++;
	}
	return;
}

sub _compare_session
{
	my ($self, $run, $theirs, $ours) = @_;
	my $by_order = 0;

	$self->_restore_texts($theirs, $ours) if $self->{whole_texts};
	my @theirs   = $self->_apply_rules($run, 'theirs', $theirs, \$by_order);
	my @ours     = $self->_apply_rules($run, 'ours', $ours, \$by_order);

	return $by_order
	  ? $self->_compare_order($run, \@theirs, \@ours)
	  : $self->_compare_sets($run, \@theirs, \@ours);
}

sub _compare_sets
{
	my ($self, $run, $theirs, $ours) = @_;
	my %unmatched;
	my @rest;
	my @faults;

	push @{ $unmatched{ _as_text($run, $_) } }, $_ foreach @$theirs;
	foreach my $record (@$ours)
	{
		my $text = _as_text($run, $record);

		if (@{ $unmatched{$text} // [] })
		{
			pop @{ $unmatched{$text} };
			$self->{count}++;
		}
		else
		{
			push @rest, $record;
		}
	}
	foreach my $text (sort keys %unmatched)
	{
		push @faults, "pgaudit only: $text"
		  foreach grep { !$self->_is_explained($run, 'theirs', $_) }
		  @{ $unmatched{$text} };
	}
	push @faults, map { 'ours only: ' . ($_->{outcome} // '') . ' ' . _as_text($run, $_) }
	  grep { !$self->_is_explained($run, 'ours', $_) } @rest;
	return @faults;
}

sub _is_explained
{
	my ($self, $run, $side, $record) = @_;

	foreach my $rule (@{ $self->{rules} })
	{
		next
		  if !$rule->{rest} || $rule->{side} !~ /^(?:$side|both)$/
		  || !$rule->{if}->($record, $run);
		$self->{used}{ $rule->{name} }++;
		return 1;
	}
	return 0;
}

# Records in the order of their ids.
sub _in_order
{
	my @records = map { { record => $_[$_], at => $_ } } 0 .. $#_;

	return map { $_->{record} } sort {
		     ($a->{record}{id}    // 0) <=> ($b->{record}{id}    // 0)
		  || ($a->{record}{subid} // 0) <=> ($b->{record}{subid} // 0)
		  || $a->{at} <=> $b->{at}
	} @records;
}

sub _compare_order
{
	my ($self, $run, $theirs, $ours) = @_;

	return $self->_compare_lists($run, 'in order', 1, [ _in_order(@$theirs) ],
		[ _in_order(@$ours) ]);
}

# Compare records in the order that they are in.
sub _compare_lists
{
	my ($self, $run, $what, $by_order, $theirs, $ours) = @_;
	my ($only_theirs, $only_ours, $same) = _differences(
		[ map { [ _as_text($run, $_, $by_order), $_ ] } @$theirs ],
		[ map { [ _as_text($run, $_, $by_order), $_ ] } @$ours ]);

	$self->{ $what eq 'shown' ? 'shown' : 'count' } += $same;
	return (
		(map { "$what, pgaudit only: $_->[0]" }
			grep { !$self->_is_explained($run, 'theirs', $_->[1]) } @$only_theirs),
		(map { "$what, ours only: " . ($_->[1]{outcome} // '') . " $_->[0]" }
			grep { !$self->_is_explained($run, 'ours', $_->[1]) } @$only_ours));
}

# Compare two lists of [ text, anything ].  Returns what only the first has and
# what only the second has, beside a longest list that both have, and its
# length.
sub _differences
{
	my ($x, $y) = @_;
	my @x    = @$x;
	my @y    = @$y;
	my $same = 0;
	my (@only_x, @only_y, @length);

	while (@x && @y && $x[0][0] eq $y[0][0])
	{
		shift @x;
		shift @y;
		$same++;
	}
	while (@x && @y && $x[-1][0] eq $y[-1][0])
	{
		pop @x;
		pop @y;
		$same++;
	}

	# length of the longest common list of the rests from $i and $j on
	$length[ scalar @x ] = [ (0) x (@y + 1) ];
	foreach my $i (reverse 0 .. $#x)
	{
		my $below = $length[ $i + 1 ];
		my @row   = (0) x (@y + 1);

		foreach my $j (reverse 0 .. $#y)
		{
			$row[$j] =
			    $x[$i][0] eq $y[$j][0]       ? $below->[ $j + 1 ] + 1
			  : $below->[$j] > $row[ $j + 1 ] ? $below->[$j]
			  :                                 $row[ $j + 1 ];
		}
		$length[$i] = \@row;
	}
	my ($i, $j) = (0, 0);
	while ($i < @x && $j < @y)
	{
		if ($x[$i][0] eq $y[$j][0])
		{
			$i++;
			$j++;
			$same++;
		}
		elsif ($length[ $i + 1 ][$j] >= $length[$i][ $j + 1 ])
		{
			push @only_x, $x[ $i++ ];
		}
		else
		{
			push @only_y, $y[ $j++ ];
		}
	}
	push @only_x, @x[ $i .. $#x ];
	push @only_y, @y[ $j .. $#y ];
	return (\@only_x, \@only_y, $same);
}

# What the client was shown in a session, in its order.
sub _compare_shown
{
	my ($self, $run, $shown) = @_;
	my $by_order = 0;

	$self->_restore_texts($shown->{theirs}, $shown->{ours}) if $self->{whole_texts};
	my @theirs   = $self->_apply_rules($run, 'theirs', $shown->{theirs}, \$by_order);
	my @ours     = $self->_apply_rules($run, 'ours', $shown->{ours}, \$by_order);

	return $self->_compare_lists($run, 'shown', $by_order,
		\@theirs, \@ours);
}

# commands(): the command tags that pgaudit has recorded, in a hash.
sub commands
{
	my ($self) = @_;

	return $self->{commands};
}

# check_rules(): test that each rule was needed.
sub check_rules
{
	my ($self) = @_;

	foreach my $rule (@{ $self->{rules} })
	{
		my $used = $self->{used}{ $rule->{name} } // 0;

		ok($used > 0, "$rule->{name}: used $used times");
	}
	return;
}

1;
