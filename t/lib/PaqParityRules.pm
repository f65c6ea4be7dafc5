#-------------------------------------------------------------------------
#
# PaqParityRules.pm
#	The ways in which our records and pgaudit's differ on purpose: rules for
#	PaqParity, which says what a rule is.
#
# Nearly all rules are about faults of pgaudit's that doc/differences.md lists.
# Each rule names the texts, or the settings, or the files of t/lib/parity/ in which the difference may be, so that the difference
# is not accepted elsewhere.  A rule about a fault that pgaudit has mended names
# the version in "until", and does not apply to that version and later ones;
# "since" is the opposite.  What pgaudit has mended without another version is
# asked in "only".
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqParityRules;

use strict;
use warnings;

use Exporter 'import';
use version;

use PaqParity;

our @EXPORT = qw(is_newer is_on parity_rules);

my @rules;

# What the rules ask

# Is the setting on in the run?
sub is_on
{
	my ($run, $setting) = @_;
	my $default = $setting eq 'log_catalog' ? 'on' : 'off';

	return ($run->{settings}{$setting} // $default) eq 'on';
}

# Is the class selected by the run's setting "log"?
sub selects
{
	my ($run, $class) = @_;
	my $log = $run->{settings}{log};

	return 0 if $log =~ /-$class\b/;
	return $log =~ /\ball\b|(?<!-)\b$class\b/ ? 1 : 0;
}

# A list of parameters without the long ones, as newer versions of pgaudit
# have it.
sub shorten_params
{
	my ($params, $max_size) = @_;

	return $params if $params =~ /^<(?:none|not logged)>$/;
	return join ',',
	  map { length > $max_size ? '<long param suppressed>' : PaqParity::quote_csv($_) }
	  PaqParity::split_csv($params);
}

# Returns true if the record is of the query in the function of t/lib/parity/parallel.sql.
sub is_in_function
{
	my ($r) = @_;

	return 1 if $r->{text} =~ /\bgenerate_series\(1, \$1\)/;
	return $r->{text} eq '<not logged>' && $r->{class} eq 'READ' && $r->{oname} eq '';
}

# Utility statements that count rows, or run a statement that does; beside COPY
my $utility_rows = qr/^(?:CREATE\ MATERIALIZED\ VIEW|CREATE\ TABLE\ AS
	|EXECUTE|FETCH|MOVE|SELECT\ INTO)$/x;

# Statements that look whether the rows that there are obey a foreign key
my $checks_foreign_key = qr/^ALTER\ TABLE\ .*\ (?:FOREIGN\ KEY
	|VALIDATE\ CONSTRAINT\ part_fk|ALTER\ CONSTRAINT\ fk\ ENFORCED)/x;

# is_newer($version, $other): is this version the other one, or a later one?
sub is_newer
{
	my ($version, $other) = @_;

	return version->parse("v$version") >= version->parse("v$other");
}

# parity_rules(%pgaudit): the rules for a pgaudit: its version, such as "1.7.1",
# and in_workers, whether it records what parallel workers do.
sub parity_rules
{
	my (%pgaudit) = @_;

	return grep {
		!($_->{until} && is_newer($pgaudit{version}, $_->{until}))
		  && !($_->{since} && !is_newer($pgaudit{version}, $_->{since}))
		  && !($_->{only} && !$_->{only}->(\%pgaudit))
	} @rules;
}

@rules = (

	# What pgaudit does not record

	{
		name => 'functions called to plan a statement',
		side => 'ours',
		if   => sub {
			my ($r, $run) = @_;

			return $run->{subject} =~ /^(?:ddl_objects|extension|plpgsql)$/
			  && $r->{class} eq 'FUNCTION' && !$r->{id};
		}
	},
	{
		name => 'failed statements',
		side => 'ours',
		rest => 1,
		if   => sub {
			my ($r, $run) = @_;

			return ($r->{outcome} // '00000') ne '00000'
			  && $r->{text} =~ m{/\* (?:fails|caught)\b|^<(?:not|previously) logged>$};
		}
	},
	{
		name => 'the query of a cursor, with log_rows',
		side => 'ours',
		rest => 1,
		if   => sub {
			my ($r, $run) = @_;

			return is_on($run, 'log_rows')
			  && $run->{subject} =~ /^(?:confusion|cursors|multi|pipeline)$/
			  && $r->{class} eq 'READ' && $r->{command} eq 'SELECT'
			  && $r->{text} =~ /^(?:BEGIN; )?DECLARE|^SELECT a FROM cur\.t$/;
		}
	},
	{
		name => 'the query of a portal, with log_rows',
		side => 'ours',
		rest => 1,
		if   => sub {
			my ($r, $run) = @_;

			return is_on($run, 'log_rows') && $run->{subject} eq 'portals'
			  && $r->{command} eq 'SELECT' && $r->{text} eq 'SELECT a FROM t -- 2';
		}
	},
	{
		name => 'the statement that switches log_rows off',
		side => 'ours',
		rest => 1,
		if   => sub {
			my ($r, $run) = @_;

			return $run->{subject} eq 'settings'
			  && $r->{text} =~ /audit\('log_rows', 'off'\)|^SELECT set_config|^<not logged>$/;
		}
	},
	{
		name  => 'the relation of COPY, with log_rows',
		until => '19.0',
		side  => 'ours',
		rest  => 1,
		if    => sub {
			my ($r, $run) = @_;

			return is_on($run, 'log_rows') && $r->{otype} =~ /^(?:TABLE|(?:MATERIALIZED )?VIEW)$/
			  && $r->{command} =~ /^(?:INSERT|SELECT)$/ && $r->{text} =~ /^COPY +[^( ]/;
		}
	},
	{
		name  => 'COPY as a whole, with log_relation',
		until => '19.0',
		side  => 'ours',
		rest  => 1,
		if    => sub {
			my ($r, $run) = @_;

			return is_on($run, 'log_relation') && !is_on($run, 'log_rows')
			  && $r->{command} eq 'COPY' && ($r->{text} =~ /^COPY +[^( ]/ || $r->{text} =~ /^</);
		}
	},
	{
		name  => 'the relations of a new foreign key, with log_rows',
		until => '19.0',
		side  => 'ours',
		rest  => 1,
		if    => sub {
			my ($r, $run) = @_;

			return is_on($run, 'log_rows') && $r->{otype} eq 'TABLE'
			  && $r->{command} eq 'SELECT' && $r->{text} =~ $checks_foreign_key;
		}
	},
	{
		name  => 'TRUNCATE in object auditing',
		side  => 'ours',
		order => sub { !selects($_[1], 'write') },
		if    => sub {
			my ($r, $run) = @_;

			return $r->{type} eq 'OBJECT' && $r->{command} eq 'TRUNCATE TABLE'
			  && $r->{text} =~ /^TRUNCATE .*\btr;?$/;
		}
	},
	{
		name  => 'functions with the rights of their owner, in object auditing',
		side  => 'ours',
		order => 1,
		if    => sub {
			my ($r, $run) = @_;

			return $run->{subject} eq 'security' && $r->{type} eq 'OBJECT'
			  && $r->{text} =~ /^INSERT INTO sec\.secret|^\(SELECT count\(\*\) FROM sec\.secret\)$/;
		}
	},
	{
		name => 'what functions in parallel workers do',
		only => sub { !$_[0]{in_workers} },
		side => 'ours',
		rest => 1,
		if   => sub { $_[1]{subject} eq 'parallel' && is_in_function($_[0]) }
	},
	{
		name => 'what a statement does beside what it is, where only that is audited',
		side => 'ours',
		if   => sub {
			my ($r, $run) = @_;

			return 0 if $r->{type} ne 'SESSION' || $r->{subid};
			return $r->{class} eq 'READ' && !selects($run, 'write')
			  && $r->{text} =~ /^(?:PREPARE\ m\ AS\ |EXPLAIN\ \(COSTS\ off\)\ )?
				(?:INSERT|UPDATE|DELETE|MERGE|WITH|<not\ logged>)/x
			  || $r->{class} eq 'WRITE' && !selects($run, 'read')
			  && $r->{text} =~ /^(?:WITH|<not logged>)/;
		}
	},
	{
		name => 'set_config(), where its statement has no record of its own',
		side => 'ours',
		if   => sub {
			my ($r, $run) = @_;

			return $r->{class} eq 'MISC' && $r->{command} eq 'SET'
			  && !selects($run, 'read')
			  && ($r->{text} =~ /\bset_config\(/ || ($r->{text} eq '<not logged>' && !$r->{subid}));
		}
	},
	{
		name  => 'changes of catalogs and looks at secrets, with log_catalog = off',
		side  => 'ours',
		order => 1,
		if    => sub {
			my ($r, $run) = @_;

			return !is_on($run, 'log_catalog') && $run->{subject} =~ /^(?:catalog|programs)$/
			  && $r->{text} =~ /^(?:UPDATE|DELETE\ FROM|INSERT\ INTO)\ pg_
				|^SELECT\ .*\b(?:rolpassword|passwd|subconninfo|umoptions)\b.*\bFROM\ pg_
				|^SELECT\ set_config\(.*\ FROM\ pg_settings/sx;
		}
	},
	{
		name  => 'DROP OWNED that only revokes, where only DDL is audited',
		since => '19.0',
		side  => 'ours',
		order => 1,
		if    => sub {
			my ($r, $run) = @_;

			return selects($run, 'ddl') && !selects($run, 'role')
			  && $r->{text} =~ /^DROP OWNED BY parity_(?:n5$|m1 CASCADE)/;
		}
	},
	{
		name  => 'MERGE, where log selects WRITE only',
		side  => 'ours',
		order => 1,
		if    => sub {
			my ($r, $run) = @_;

			return $r->{command} eq 'MERGE' && $r->{otype} eq '' && !selects($run, 'misc');
		}
	},

	# What only pgaudit records

	{
		name => 'relations that need no permission',
		until => '1.7.1',
		side => 'theirs',
		rest => 1,
		if   => sub {
			my ($r, $run) = @_;

			return is_on($run, 'log_relation') && $r->{class} eq 'MISC'
			  && $r->{command} eq '???' && $r->{otype} ne '';
		}
	},
	{
		name  => 'the query of a parallel worker',
		only  => sub { $_[0]{in_workers} },
		side  => 'theirs',
		order => 1,
		if    => sub {
			my ($r, $run) = @_;

			return $run->{subject} eq 'parallel' && ($r->{backend} // '') eq 'parallel worker'
			  && !is_in_function($r);
		}
	},
	{
		name => 'what functions in parallel workers do, shown in any order',
		side => 'both',
		if   => sub {
			my ($r, $run) = @_;

			return $run->{subject} eq 'parallel' && !exists $r->{session} && is_in_function($r);
		}
	},
	{
		name => 'parallel workers, shown to the client',
		only => sub { $_[0]{in_workers} },
		side => 'theirs',
		rest => 1,
		if   => sub {
			my ($r, $run) = @_;

			return $run->{subject} eq 'parallel' && is_on($run, 'log_client')
			  && $r->{class} =~ /^(?:READ|FUNCTION)$/;
		}
	},
	{
		name  => 'MERGE, where log selects MISC only',
		side  => 'theirs',
		order => 1,
		if    => sub {
			my ($r, $run) = @_;

			return $r->{command} eq '???' && $r->{text} =~ /\bMERGE INTO/
			  && !selects($run, 'write');
		}
	},
	{
		name  => 'leftovers of a permission check in ALTER TABLE',
		until => '19.0',
		side  => 'theirs',
		rest  => 1,
		if    => sub {
			my ($r, $run) = @_;

			return !selects($run, 'ddl') && $r->{command} eq 'SELECT'
			  && $r->{otype} eq 'TABLE' && $r->{text} =~ $checks_foreign_key;
		}
	},

	# What they record in different ways

	{
		name  => 'rows of COPY',
		until => '19.0',
		side  => 'ours',
		if    => sub {
			my ($r, $run) = @_;

			return is_on($run, 'log_rows') && $r->{command} eq 'COPY' && $r->{rows} > 0;
		},
		do    => sub { $_[0]{rows} = 0 }
	},
	{
		name => 'rows of utility statements',
		side => 'ours',
		if   => sub {
			my ($r, $run) = @_;

			return is_on($run, 'log_rows') && $r->{command} =~ $utility_rows && $r->{rows} > 0;
		},
		do => sub { $_[0]{rows} = 0 }
	},
	{
		name => 'MERGE, the statement',
		side => 'theirs',
		if   => sub {
			my ($r, $run) = @_;

			return $r->{class} eq 'MISC' && $r->{command} eq '???' && $r->{otype} eq ''
			  && ($r->{text} =~ /\bMERGE INTO/
				|| $run->{subject} =~ /^merge/ && $r->{text} eq '<not logged>');
		},
		do => sub { @{ $_[0] }{qw(class command)} = qw(WRITE MERGE) }
	},
	{
		name => 'MERGE, its target',
		side => 'theirs',
		if   => sub {
			my ($r, $run) = @_;

			return $run->{subject} =~ /^merge/ && $r->{class} eq 'WRITE'
			  && $r->{oname} =~ /^mer\.[tvw]$/
			  && $r->{text} =~ /\bMERGE INTO|^<previously logged>$/;
		},
		do => sub { $_[0]{command} = 'MERGE' }
	},
	{
		name => 'the text is in a record that only one of them makes',
		side => 'both',
		rest => 1,
		if   => sub {
			my ($r, $run) = @_;

			return is_on($run, 'log_statement_once') && is_on($run, 'log_relation')
			  && ($r->{oname} =~ /^(?:ref\.t|vie\.agg)$/ || $r->{command} eq 'TRUNCATE TABLE')
			  && $r->{text} =~ /^(?:<previously logged>|REFRESH|UPDATE agg|TRUNCATE .*\btr;?$)/;
		}
	},
	{
		name => 'DDL whose event trigger saw a GRANT or REVOKE',
		side => 'both',
		rest => 1,
		if   => sub {
			my ($r, $run) = @_;

			return !selects($run, 'role') && $r->{class} eq 'DDL' && $r->{oname} eq ''
			  && $r->{text} =~ /^(?:DROP OWNED|CREATE SCHEMA elements)/;
		}
	},
	{
		name => 'passwords of roles and user mappings',
		side => 'both',
		if   => sub {
			my ($r, $run) = @_;

			return $run->{subject} =~ /^secrets/ && $r->{class} eq 'ROLE'
			  && $r->{command} =~ /^(?:CREATE|ALTER) (?:ROLE|USER MAPPING)$/
			  && $r->{text} =~ /password/i;
		},
		do => sub {

			# pgaudit's text has the statements in front of it, too
			$_[0]{text} =~ s/(password).*/$1/is;
			$_[0]{text} =~ s/^.*;\s*//s;
		}
	},
	{
		name => 'other secrets',
		side => 'both',
		if   => sub { $_[1]{subject} =~ /^secrets/ && $_[0]{text} =~ /tOpSeCrEt/ },
		do   => sub { $_[0]{text} =~ s/tOpSeCrEt/<REDACTED>/g }
	},
	{
		name  => 'the text behind which a stored query is executed',
		since => '17.0',
		side  => 'theirs',
		if    => sub {
			my ($r, $run) = @_;

			return $run->{subject} =~ /^(?:new_18|refresh|triggers|views)$/
			  && $r->{text} =~ /;$/ && $r->{command} !~ /^(?:CREATE|REFRESH|DROP)/;
		},
		do    => sub { $_[0]{text} =~ s/;$// }
	},
	{
		name  => 'log_parameter_max_size',
		until => '16.0',
		side  => 'theirs',
		if    => sub { exists $_[1]{settings}{log_parameter_max_size} },
		do    => sub {
			my ($r, $run) = @_;

			$r->{params} =
			  shorten_params($r->{params}, $run->{settings}{log_parameter_max_size});
		}
	},
	{
		name  => 'statements while a portal is suspended',
		side  => 'theirs',
		order => 1,
		if    => sub { $_[1]{subject} =~ /^(?:portals|confusion)$/ },
		do    => sub { }
	});

1;
