# doc/controls.md, the rules for auditing and what is done about them, and the table of
# findings in doc/settings.md, which the test of audit_check() compares with what the
# function says: a finding that the page names at a rule belongs to that rule, and each
# rule that a finding belongs to is on the page.  Settings that the page gives a value
# exist, and so do the classes in "log".
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;

use Test::More;

my $root = "$FindBin::RealBin/../..";

sub slurp
{
	my ($file) = @_;

	open(my $fh, '<', "$root/$file") or die "$file: $!";
	local $/;
	return scalar <$fh>;
}

my %texts = map { $_ => slurp($_) } qw(doc/controls.md doc/settings.md src/guc_list.h);

# The sections whose rules audit_check() names, and how it does.  The STIG is not among
# them: a finding has the numbers of the SRG, the page those of the STIG.
my %standard = ('PCI DSS' => 'PCI DSS', 'NIST SP 800-53' => 'NIST', 'CIS benchmarks' => 'CIS');

# Returns what is wrong in these texts.
sub findings
{
	my (%text) = @_;
	my (%rules, %rows, @wrong);

	# Findings, each with its rules; of several in one row, with those of all of them
	foreach my $row ($text{'doc/settings.md'} =~ /^\| ((?:`\w+`(?:, )?)+ \| [^|]*\b(?:error|warning|info)\b[^|]* \| [^|]+ \| .*) \|$/mg)
	{
		my ($names, undef, $controls) = split / \| /, $row;

		foreach my $name ($names =~ /`(\w+)`/g)
		{
			push @{ $rules{$name} }, split /[,;] /, $controls;
		}
	}
	push @wrong, 'no findings in doc/settings.md' if keys(%rules) < 30;

	foreach my $section (split /^## /m, $text{'doc/controls.md'})
	{
		my ($title) = $section =~ /^(.*)$/m;
		my $prefix = $standard{$title};

		foreach my $row ($section =~ /^\| (.*) \|$/mg)
		{
			my ($rule, undef, $with) = split / \| /, $row;
			my @numbers = $rule =~ /((?:AU-)?\d[\d.]*(?:\(\d+\))?)/g;
			my ($names) = ($with // '') =~ /\bfindings? ((?:`\w+`(?:, )?)+)/;

			push @{ $rows{$prefix} }, @numbers if defined $prefix;
			foreach my $name (($names // '') =~ /`(\w+)`/g)
			{
				if (!$rules{$name}) { push @wrong, "$title, $rule: there is no finding $name"; next }
				next if !defined $prefix;
				push @wrong, "$title, $rule: $name does not belong to it"
				  if !grep { my $number = $_; grep { $_ eq "$prefix $number" } @{ $rules{$name} } } @numbers;
			}
		}
	}

	foreach my $prefix (sort values %standard)
	{
		my %there = map { $_ => 1 } @{ $rows{$prefix} // [] };

		foreach my $name (sort keys %rules)
		{
			# of NIST, the family AU only
			push @wrong, "$name: doc/controls.md has no $_"
			  foreach grep { !$there{ s/^\Q$prefix\E //r } && !/^NIST (?!AU-)/ }
			  grep { /^\Q$prefix\E / } @{ $rules{$name} };
		}
	}

	my %setting = map { $_ => 1 } $text{'src/guc_list.h'} =~ /^PAQ_\w+\((\w+),/mg;
	my %class = map { lc($_) => 1 } 'all', 'denied',
	  ($text{'src/guc_list.h'} =~ /A list of ([\w, ]+) and none/)[0] =~ /(\w+)/g;

	while ($text{'doc/controls.md'} =~ /`(?:pg_audit_queue\.)?(\w+) = '?([^`']*)'?`/g)
	{
		my ($name, $value) = ($1, $2);

		push @wrong, "there is no setting $name" if !$setting{$name};
		push @wrong, map { "there is no class $_" } grep { !$class{$_} } split /, /, $value
		  if $name eq 'log';
	}
	return @wrong;
}

is(join("\n", findings(%texts)), '', 'page, findings and settings agree');

# A mistake of each kind is noticed.
foreach my $case (
	[ 'doc/controls.md', 'finding `administrators_missing`', 'finding `administrator_missing`', 'no finding' ],
	[ 'doc/controls.md', 'finding `disk_growth` |', 'finding `disk_used` |', 'does not belong' ],
	[ 'doc/controls.md', '| 10.5.1: ', '| 10.5.2: ', 'has no PCI DSS 10\.5\.1' ],
	[ 'doc/settings.md', 'NIST AU-9(2), CIS 8.1', 'NIST AU-9(2), CIS 8.2', 'has no CIS 8\.2' ],
	[ 'doc/controls.md', "`log_retention_age = '400d'`", "`log_retention_time = '400d'`", 'no setting' ],
	[ 'doc/controls.md', "`log = 'role, set_role'`", "`log = 'role, set_user'`", 'no class set_user' ])
{
	my ($file, $from, $to, $expected) = @$case;
	my %changed = %texts;

	die "$from is not in $file" if $changed{$file} !~ s/\Q$from\E/$to/;
	like(join("\n", findings(%changed)), qr/$expected/, "$to is noticed");
}

done_testing();
