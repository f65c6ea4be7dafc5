# The list of fields, src/record/fieldlist.h, and what repeats it: the table of the
# fields in doc/formats.md, the JSON Schema and the SQL script have the same fields, in
# the same order where there is one, of the same types, described in the same
# words.  And this test notices where they do not: each is compared once more
# after it has been changed, field by field.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;

use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $root = "$FindBin::RealBin/../..";
my @fields = fields_of_list(slurp_file("$root/src/record/fieldlist.h"));
my %texts = (
	page => slurp_file("$root/doc/formats.md"),
	schema => slurp_file("$root/doc/audit-record.schema.json"),
	script => join('', map { slurp_file($_) } sort glob("$root/pg_audit_queue--*.sql")));

# ---------------------------------------------------------------------------
# What each of them says
# ---------------------------------------------------------------------------

# The entries of the list: hashes with id, json, column, type, sql_type, what;
# undef for what the entry does not have.
sub fields_of_list
{
	my ($text) = @_;
	my $string = qr/(NULL|"(?:[^"\\]|\\.)*")/;
	my @found;

	$text =~ s{/\*.*?\*/}{}gs;
	$text =~ s{^#.*(?:\\\n.*)*$}{}mg;
	while ($text =~ /\G\s*PAQ_TRAIL_(\w+)\(/gc)
	{
		my %entry = (kind => $1);

		if ($1 eq 'FIELD')
		{
			$text =~ /\G\w+, (\w+), $string, $string, (\w+), $string, \w+\(\w+\),\s*$string\)/gc
			  or last;
			@entry{qw(id json column type sql_type what)} = ($1, $2, $3, lc($4), $5, $6);
		}
		elsif ($1 eq 'MARK')
		{
			$text =~ /\G(\w+), $string, $string, \w+,\s*$string\)/gc or last;
			@entry{qw(id json column type sql_type what)} = ($1, $2, $3, 'boolean', 'boolean', $4);
		}
		elsif ($1 eq 'EXTRA')
		{
			$text =~ /\G(\w+), $string, (\w+),\s*$string\)/gc or last;
			@entry{qw(id json type what)} = ($1, $2, lc($3), $4);
		}
		else
		{
			$text =~ /\G(\w+), $string, $string,\s*$string\)/gc or last;
			@entry{qw(id column sql_type what)} = ($1, $2, $3, $4);
		}
		foreach (@entry{qw(json column sql_type what)})
		{
			$_ = undef if defined && $_ eq 'NULL';
			s/^"(.*)"$/$1/s if defined;
		}
		push @found, \%entry;
	}
	$text =~ /\G\s*\z/ or die 'the list cannot be read from: ' . substr($text, pos($text) // 0, 80);
	return @found;
}

# Rows of doc/formats.md's table, in the same way
sub fields_of_page
{
	my ($section) = $_[0] =~ /^## Format json$(.*?)(?:^## |\z)/ms;
	my @found;

	foreach my $line ($section =~ /^\| ([`-].*) \|$/mg)
	{
		my ($name, $type, $column, $what) = split / \| /, $line, 4;
		my %entry;

		$what =~ s/`//g;
		$what =~ s/\[([^]]*)\]\([^)]*\)/$1/g;
		$entry{what} = $what;
		if ($name ne '-')
		{
			$entry{json} = $name =~ /^`(\w+)`(?: \*)?$/ ? $1 : $name;
			$entry{type} = $type;
		}
		@entry{qw(column sql_type)} = $column =~ /^`(\w+)` (\w+)$/ ? ($1, $2) : ($column, '')
		  if $column ne '-';
		push @found, \%entry;
	}
	return @found;
}

# Properties of the schema
sub fields_of_schema
{
	my ($text) = @_;
	my $properties = decode_json($text)->{properties};
	my ($block) = $text =~ /^\t"properties": \{\n(.*?)^\t\}/ms;

	# JSON::PP has forgotten their order.
	return map {
		+{ json => $_, type => type_of_property($properties->{$_}),
			what => $properties->{$_}{description} }
	} $block =~ /^\t\t"(\w+)": \{/mg;
}

sub type_of_property
{
	my ($property) = @_;
	my $type = $property->{type};

	return 'time' if ($property->{'$ref'} // '') eq '#/$defs/time';
	if (exists $property->{const})
	{
		my $const = $property->{const};

		return JSON::PP::is_bool($const) ? 'boolean' : $const =~ /^\d+$/ ? 'number' : 'string';
	}
	($type) = grep { $_ ne 'null' } @$type if ref $type;
	return $type eq 'integer' ? 'number' : $type;
}

# Columns of the table that the SQL scripts make
sub fields_of_script
{
	my ($block) = $_[0] =~ /^CREATE TABLE audit_queue\.records \(\n(.*?)^\)/ms;

	return (
		(map { /^    (\w+) (\w+)(?: NOT NULL)?,?$/ or die $_; +{ column => $1, sql_type => $2 } }
			split /\n/, $block),
		(map { /^    ADD COLUMN (\w+) (\w+)$/ or die $_; +{ column => $1, sql_type => $2 } }
			map { split /[,;]\n/ }
			$_[0] =~ /^ALTER TABLE audit_queue\.records\n((?:    ADD COLUMN .*\n)+)/mg));
}

# ---------------------------------------------------------------------------
# Comparison
# ---------------------------------------------------------------------------

# What an entry is, as text, as far as these keys say it
sub text_of
{
	my ($entry, @keys) = @_;

	return join(', ', map { "$_: " . ($entry->{$_} // '-') } @keys);
}

# Where one list of entries is not as the other
sub compare
{
	my ($name, $keys, $wanted, $have) = @_;
	my @found;

	foreach my $i (0 .. ($#$wanted > $#$have ? $#$wanted : $#$have))
	{
		my ($is, $should) = map { $_->[$i] ? text_of($_->[$i], @$keys) : 'nothing' } ($have, $wanted);

		push @found, "$name: $is; in the list: $should" if $is ne $should;
	}
	return @found;
}

# Names of the page, the schema and the script, each with its text: what is not as
# in the list.
sub differences
{
	my %text = @_;
	my @keys = qw(json type column sql_type what);
	my @found;

	# in the order of the list
	if (defined $text{page})
	{
		push @found, compare('doc/formats.md', \@keys, \@fields, [ fields_of_page($text{page}) ]);
	}
	if (defined $text{schema})
	{
		push @found, compare('schema', [qw(json type what)], [ grep { defined $_->{json} } @fields ],
			[ fields_of_schema($text{schema}) ]);
	}

	# The table has an order of its own, columns of fixed width first.
	if (defined $text{script})
	{
		my @sorted = sort { $a->{column} cmp $b->{column} } grep { defined $_->{column} } @fields;

		push @found, compare('script', [qw(column sql_type)], \@sorted,
			[ sort { $a->{column} cmp $b->{column} } fields_of_script($text{script}) ]);
	}
	return @found;
}

cmp_ok(scalar @fields, '>', 50, 'the list can be read');
is_deeply([ differences(%texts) ], [], 'doc/formats.md, schema and script agree with it');
like($texts{page}, qr{audit-record\.schema\.json}, 'doc/formats.md tells of the schema');

# Without json_nulls, a field is there unless it may be null.  The schema is for the
# lines of earlier versions, too, which lack some.
my $schema = decode_json($texts{schema});
my %newer  = (systemIdentifier => 1);

sub may_be_null
{
	my ($property) = @_;
	my $type = ($property->{'$ref'} ? $schema->{'$defs'}{time} : $property)->{type};

	return ref $type && grep { $_ eq 'null' } @$type;
}

is_deeply(
	$schema->{required},
	[
		grep { !may_be_null($schema->{properties}{$_}) && !$newer{$_} }
		map  { $_->{json} } grep { $_->{kind} eq 'FIELD' } @fields
	],
	'the schema says which fields are always there');
cmp_ok(scalar @{ $schema->{required} }, '<', 10, 'which are few');

# ---------------------------------------------------------------------------
# Would it be noticed?
# ---------------------------------------------------------------------------

# The text with the only place that matches $from changed by a function
sub changed
{
	my ($text, $from, $to) = @_;
	my $times = () = $text =~ /$from/mg;

	die "$from is there $times times" if $times != 1;
	$text =~ s/($from)/$to->($1)/me;
	return $text;
}

my @unnoticed;

foreach my $field (@fields)
{
	my ($json, $column) = @$field{qw(json column)};
	my $row = defined $json ? qr/^\| `$json`(?: \*)? \| \w+ \| (?:-|`\w+` \w+) \|.*\n/m : qr/^\| - \| - \| `$column` .*\n/m;
	my %change;

	$change{'row of the page'} = [ page => $row, sub { '' } ];
	$change{'words in the page'} = [ page => $row, sub { $_[0] =~ s/ \|$/ or so |/mr } ];
	if (defined $json)
	{
		my $property = qr/^\t\t"$json": \{\n(?:\t\t\t.*\n)*\t\t\},?\n/m;

		$change{'type in the page'} =
		  [ page => $row, sub { $_[0] =~ s/ \| \w+ \|/ | other |/r } ];
		# in front of another property, so that a comma stays between them
		$change{'name in schema'} = [ schema => $property, sub { $_[0] =~ s/"$json"/"other"/r } ];
		$change{'words in schema'} =
		  [ schema => $property, sub { $_[0] =~ s/("description": "[^"]*)"/$1 or so"/r } ];
		$change{'type in schema'} = [ schema => $property, sub { other_type($_[0]) } ];
	}
	if (defined $column)
	{
		my $made = qr/^    $column \w+(?: NOT NULL)?,?\n(?=(?:    \w+ \w+(?: NOT NULL)?,?\n)*\) PARTITION)/m;
		my $line = qr/$made|^    ADD COLUMN $column \w+[,;]\n/m;

		$change{'column in the page'} = [ page => $row, sub { $_[0] =~ s/`$column` (\w+) \|/`other` $1 |/r } ];
		$change{'type of column in the page'} = [ page => $row, sub { $_[0] =~ s/(`$column`) \w+ \|/$1 other |/r } ];
		$change{'column in script'} = [ script => $line, sub { '' } ];
		$change{'type in script'} = [ script => $line, sub { $_[0] =~ s/($column) \w+/$1 other/r } ];
	}
	foreach my $what (sort keys %change)
	{
		my ($text, $from, $to) = @{ $change{$what} };
		my $new = changed($texts{$text}, $from, $to);
		push @unnoticed, "$field->{id}: $what" if $new eq $texts{$text} || !differences($text => $new);
	}
}
is_deeply(\@unnoticed, [], 'a field that is missing, or has another type or description, is noticed');

# The property with another type
sub other_type
{
	my ($property) = @_;

	return $property if $property =~ s/"\$ref": "[^"]*"/"type": "other"/;
	return $property if $property =~ s/"type": (?:"\w+"|\[[^]]*\])/"type": "other"/;
	return $property =~ s/"const": [^,\n]*/"type": "other"/r;
}

done_testing();
