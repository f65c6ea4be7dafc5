# Any bytes: texts of all kinds - statements, parameters, names, error messages,
# names of users who cannot log in - in databases of several encodings, over
# both protocols, in each format.  Python's parsers read exactly what was sent:
# no line is invalid, and no record becomes two.
#
# queue_files/Rounds.pm lists the options; a round is a random text.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/queue_files";
use PaqTest;
use PgProto;
use Rounds;

use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = Rounds->new(short => 100, full => 5000);
my $node = audited_node('main', settings => { log => 'all', log_parameter => 'on' });
my @encodings = qw(UTF8 SQL_ASCII LATIN1 EUC_JP);

# no encoding of PostgreSQL 19
push @encodings, 'MULE_INTERNAL' if $node->pg_version->major < 19;

foreach my $encoding (@encodings)
{
	my $database = lc $encoding;

	unaudited_sql($node,
		"CREATE DATABASE $database TEMPLATE template0 ENCODING '$encoding' LOCALE 'C'");
	create_extension($node, $database);
}

# ---------------------------------------------------------------------------
# The texts
# ---------------------------------------------------------------------------

# Longer than the pieces in which it is escaped; only the first byte is invalid.
my $long = "\xff" . "\xe3\x81\x82" x 700;

# No zero byte: none gets as far as that.
my @singles = map { chr } 1 .. 255;
my @special = (
	(map { "<$_>" } @singles),
	join('', map { chr } 1 .. 31),
	join('', map { chr } 127 .. 255),
	"\xc0\x80", "\xc1\xbf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf",    # overlong
	"\xed\xa0\x80", "\xed\xbf\xbf", "\xed\xa0\xbd\xed\xb8\x80",    # surrogates
	"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf8\x88\x80\x80\x80", "\xff\xfe", "\xfe\xff",
	"\xe3\x81", "\xe3\x81\xe3\x81\x82", "\xf0\x9f\x98", "\x82", "\xc3\"", "\xe3,\xf0\n", # cut
	"\xe2\x80\xa8", "\xe2\x80\xa9", "\xc2\x85", "\xef\xbb\xbf", "\xef\xbf\xbe", "\xef\xbf\xbd",
	"\xc2\x80\xc2\x9b\xc2\x9f", "\xc3\xa9", "\xe3\x81\x82", "\xf0\x9f\x98\x80", "e\xcc\x81",
	"\xc3\xa9\xe9", "\xc3\xbf\xff\\xff\\\\xff", "\\u00ff\xff", "\\\\u00e9\xe9", "\\x41", "\\", "\\\"",
	"\xa5\xbd", "\x8e\xb1", "\x8f\xb0\xa1", "\xa5\\", "\xa5\"", "\xa4\xa2\n\xa4", # EUC_JP
	"\x81\xc0", "\x92\xa5\xbd", "\x9a\xe0\xa1", "\x92\xa5",        # MULE_INTERNAL
	'"', '""', ',', '",', '"",""', "\n", "\n\t", "\t\n", "\r", "\r\n", "\n\n", "\"\n\"", "\x0b\x0c",
	$long, "\xa4\xa2\"" x 500 . "\xa4",
	"\n2026-11-20 10:11:12.123 UTC [1] LOG:  AUDIT: SESSION,1,1,READ,SELECT,,,x,<none>\n",
	"\"}\n{\"type\":\"record\"}\n", "\n\\.\n", "\\N", "null", "<none>", "<not logged>", "", " ");

# Random bytes, among them many of those that formats care for
sub random_text
{
	my @favourites = (
		'"', ',', "\n", "\r", "\t", '\\', '{', '}', "'", '$',
		"\xc3\xa9", "\xe3\x81", "\xe2\x80\xa8");

	return join '', map { rand() < 0.3 ? $favourites[ rand @favourites ] : chr(1 + int(rand(255))) }
	  1 .. int(rand(50));
}

sub cut_to
{
	my ($text, $length) = @_;

	return substr($text, 0, $length);
}

# ---------------------------------------------------------------------------
# What is done with them
# ---------------------------------------------------------------------------

my $number = 0;

# Note what a record must have.  Fields are named as in format json.
sub expect
{
	my ($expected, %record) = @_;

	push @$expected, \%record;
	return;
}

# A new marker, by which a record is known again
sub new_marker
{
	$number++;
	return "zq${number}qz";
}

# Does the server take the text at all?  Anything else than "yes" and "not in
# this encoding" is a mistake of the test's.
sub is_taken
{
	my ($answer, $errors) = @_;

	die "unexpected answer: $answer" if $answer =~ /E:(?!22021|$errors)/;
	return $answer !~ /E:22021/;
}

sub use_text
{
	my ($client, $text, $expected) = @_;
	my ($literal, $name) = ($text, cut_to($text, 30));
	my $marker = new_marker();

	$literal =~ s/'/''/g;

	# simple protocol; the text as it is, and in a comment
	my $sql = "SELECT '$literal' AS a /* $marker";
	$sql .= " $text" if $text !~ m{[*/]};
	$sql .= ' */';
	expect($expected, marker => $marker, class => 'READ', commandText => $sql)
	  if is_taken($client->query($sql), 'none');

	# extended protocol
	$marker = new_marker();
	$sql    = "SELECT \$1::text, '$literal', '$marker'";
	expect($expected, marker => $marker, class => 'READ', commandText => $sql, param => $text)
	  if is_taken($client->parse('', $sql)->bind('', '', $text)->execute('')->sync, 'none');

	# parameters alone, as the text may have been the reason
	$marker = new_marker();
	$sql    = "SELECT \$1::text, '$marker'";
	expect($expected, marker => $marker, class => 'READ', commandText => $sql, param => $text)
	  if is_taken($client->parse('', $sql)->bind('', '', $text)->execute('')->sync, 'none');
	return if $name eq '';

	# a name, in an error message
	(my $identifier = $name) =~ s/"/""/g;
	$marker = new_marker();
	$sql    = "SELECT \"$identifier\" /* $marker */";
	expect($expected, marker => $marker, class => 'ERROR', commandText => $sql,
		errorMessage => "column \"$name\" does not exist")
	  if is_taken($client->query($sql), '42703');

	# of an object that there is
	$marker = new_marker();
	$sql    = "CREATE TABLE \"$identifier\" (a int) /* $marker */";
	if (is_taken($client->query($sql), 'none'))
	{
		# quoted unless it need not be
		my $object = $name =~ /^[a-z_][a-z0-9_]*\z/ && $name ne 'null' ? $name : "\"$identifier\"";

		expect($expected, marker => $marker, class => 'DDL', commandText => $sql,
			objectName => "public.$object");
		$client->query("DROP TABLE \"$identifier\"");
	}

	# application_name, which the server cleans.  In format pgaudit it stands
	# before what says that the record begins, as in PostgreSQL's log.
	if (   $text !~ /LOG:/
		&& length $text < 64
		&& $client->query("SET application_name = '$literal'") !~ /E:/)
	{
		my $clean = $text =~ s/([^\x20-\x7e])/cleaned($1)/ger;

		$marker = new_marker();
		$sql    = "SELECT '$marker'";
		$client->query($sql);
		expect($expected, marker => $marker, class => 'READ', commandText => $sql,
			clientApplication => $clean);
	}
	return;
}

# What the server makes of a byte of application_name that is not printable ASCII
sub cleaned
{
	my ($byte) = @_;

	return $node->pg_version->major >= 16 ? sprintf('\x%02x', ord $byte) : '?';
}

# What nobody has looked at yet
sub fail_to_log_in
{
	my ($text, $expected) = @_;
	my $user = cut_to($text, 60);

	return if $user eq '' || $user =~ /zq/;
	PgProto->connect($node, user => $user)->hang_up;
	expect($expected, class => 'CONNECT', dbUserName => $user,
		errorMessage => "role \"$user\" does not exist");
	return;
}

# ---------------------------------------------------------------------------
# What the trail has
# ---------------------------------------------------------------------------

# Records of a format with the names of json, as far as it has them
my %names = (
	json   => sub { my ($r) = @_; return { %$r, param => ($r->{paramList} // [])->[0] } },
	csvlog => sub {
		my ($r) = @_;
		my $fields = $r->[26] // die 'not a record';

		return {
			from_fields($fields),
			sequence          => $r->[21],
			dbUserName        => $r->[1],
			errorMessage      => $r->[14],
			clientApplication => $r->[22]
		};
	},
	pgaudit => sub {
		my ($r) = @_;

		$r->[0] =~ /\|a=(.*)\|$/s or die "prefix: $r->[0]";
		return { from_fields($r->[1]), clientApplication => $1 };
	});

sub from_fields
{
	my ($fields) = @_;

	return (
		class       => $fields->[3],
		objectName  => $fields->[6],
		commandText => $fields->[7],
		param       => $fields->[8]);
}

# The only parameter of a list as pgaudit writes it
sub as_param
{
	my ($text) = @_;

	return $text if $text !~ /[",\r\n]/;
	return '"' . $text =~ s/"/""/gr . '"';
}

# Compare expectations, which are used up, with what a format shows.
sub differences
{
	my ($format, $expected, @records) = @_;
	my (%by_marker, %by_message, @wrong);

	foreach my $record (@records)
	{
		my $text = $record->{commandText} // '';

		push @{ $by_marker{$1} }, $record if $text =~ /(zq\d+qz)/;
		push @{ $by_message{ $format eq 'json' ? $record->{errorMessage} : $text } }, $record
		  if $record->{class} eq 'CONNECT' && $format ne 'json' || defined $record->{errorMessage};
	}
	foreach my $one (@$expected)
	{
		my %want    = %$one;
		my $marker  = delete $want{marker};
		my $found   = defined $marker ? $by_marker{$marker} : $by_message{ $want{errorMessage} };
		my @found   = @{ $found // [] };

		if (@found != 1)
		{
			push @wrong, @found . ' records of ' . explain_text($want{commandText} // $want{errorMessage});
			next;
		}
		$want{param} = as_param($want{param}) if defined $want{param} && $format ne 'json';
		foreach my $name (sort keys %want)
		{
			my $has = $found[0]{$name};

			# format pgaudit has neither; text and message share a place there
			next if $format eq 'pgaudit' && $name =~ /^(?:dbUserName|errorMessage)$/;
			push @wrong, "$name is " . explain_text($has) . ', not ' . explain_text($want{$name})
			  if ($has // 'undef') ne $want{$name};
		}
	}
	$#wrong = 9 if @wrong > 10;
	return join "\n", @wrong;
}

sub explain_text
{
	my ($text) = @_;

	return 'nothing' if !defined $text;
	return '<' . $text =~ s/([^\x20-\x7e])/sprintf '\\x%02x', ord $1/ger . '>';
}

my @random = map { random_text() } 1 .. $rounds->count;

foreach my $format (qw(json csvlog pgaudit))
{
	$node->append_conf(
		'postgresql.conf',
		settings_text(
			format          => $format,
			log_directory   => "trail_$format",
			log_line_prefix => '%m [%p] |a=%a|'));
	$node->restart;
	my $before = flush_trail($node);
	my @expected;

	foreach my $encoding (@encodings)
	{
		my $client = PgProto->connect($node, database => lc $encoding);

		use_text($client, $_, \@expected) foreach @special, @random;
		$client->quit;
	}

	# converted on its way: a character whose second byte is a backslash there
	my $client = PgProto->connect($node, database => 'euc_jp');
	my $marker = new_marker();
	$client->query('SET client_encoding = SJIS');
	$client->query("SELECT '\x83\x5c', '$marker'");
	$client->quit;
	expect(\@expected, marker => $marker, commandText => "SELECT '\xa5\xbd', '$marker'");

	my %seen;
	fail_to_log_in($_, \@expected)
	  foreach grep { !$seen{ cut_to($_, 60) }++ } @special, @random[ 0 .. 99 ];

	# Nothing may be said of the trail before it is whole.
	my $after = flush_trail($node);
	my @files = glob($node->data_dir . "/trail_$format/audit*");
	my @read  = eval { parse_trail($format, @files) };

	is($@, '', "$format: the trail can be read");
	my @records = map { $names{$format}->($_) } @read;

	cmp_ok(scalar @expected, '>', 2_000, "$format: enough to mean something");
	# The file began with the records of the restart.
	my @own = grep { $format eq 'pgaudit' || $_->{sequence} > $before } @records;
	cmp_ok(scalar @records, '>=', $after - $before, "$format: all records");
	is_deeply(
		[ map { $_->{sequence} } @own ],
		[ $before + 1 .. $after ],
		"$format: one record is one record")
	  if $format ne 'pgaudit';
	is(differences($format, \@expected, @records), '', "$format: all texts come back");
	if ($format eq 'csvlog')
	{
		cmp_ok(index(join('', map { slurp_file($_) } @files), $long =~ s/\xff/\\xff/r),
			'>', 0, 'csvlog: no more is escaped than has to be');
	}
	note scalar(@expected) . " expectations, $after - $before records";
}

# A csvlog of databases of one encoding is text of that encoding as a whole, and
# can be read by the server itself.  Who cannot log in has no database, and so
# no encoding: what is valid UTF-8 is not EUC_JP.

foreach my $encoding (qw(UTF8 SQL_ASCII EUC_JP))
{
	my $database = lc $encoding;
	my $reader   = $encoding eq 'SQL_ASCII' ? 'utf8' : $database;
	my @expected;

	$node->append_conf('postgresql.conf',
		settings_text(format => 'csvlog', log_directory => "only_$database"));
	$node->restart;
	my $client = PgProto->connect($node, database => $database);
	use_text($client, $_, \@expected) foreach @special, @random;
	$client->quit;
	if ($encoding ne 'EUC_JP')
	{
		fail_to_log_in($_, \@expected) foreach @special;
	}
	flush_trail($node);
	my ($file) = glob($node->data_dir . "/only_$database/audit*");
	my $count = parse_trail('csvlog', $file);

	unaudited_sql($node, 'DROP TABLE IF EXISTS postgres_log; CREATE TABLE postgres_log ('
		  . join(', ', map { "c$_ text" } 1 .. 26) . ", PRIMARY KEY (c6, c7));"
		  . " COPY postgres_log FROM '$file' (FORMAT csv)", $reader);
	is(unaudited_sql($node, 'SELECT count(*) FROM postgres_log', $reader),
		$count, "csvlog: COPY reads what $encoding has left");
	cmp_ok($count, '>', 500, 'which is not little');
}

# json: several bytes are looked at at once.  One that is special, and its
# neighbours that are not, in each place of texts of all short lengths; and
# parameters without any text over which the worker's buffer, of 1 MB, becomes full.
{
	my $padding = '/*' . 'x' x 150_000 . '*/';
	my @lists   = ([], [ (undef) x 65_000 ], [ ('') x 65_000 ]);

	foreach my $byte (map { chr } 0x1f .. 0x23, 0x5b .. 0x5d, 0x7f, 0x80, 0xa0, 0xdc, 0xff)
	{
		foreach my $length (1 .. 17)
		{
			push @{ $lists[0] }, map { 'a' x $_ . $byte . 'b' x ($length - $_ - 1) } 0 .. $length - 1;
		}
	}

	$node->append_conf('postgresql.conf',
		settings_text(format => 'json', log_directory => 'lists'));
	$node->restart;
	my $client = PgProto->connect($node, database => 'sql_ascii');
	foreach my $list (@lists)
	{
		my $sql = 'SELECT ARRAY[' . join(',', map { "\$$_\::text" } 1 .. @$list) . "] $padding";

		is_taken($client->parse('', $sql)->bind('', '', @$list)->execute('')->sync, 'none')
		  or die 'not taken';
	}
	$client->quit;
	flush_trail($node);
	my @found = map { $_->{paramList} }
	  grep { ($_->{commandText} // '') =~ /^SELECT ARRAY/ }
	  parse_trail('json', glob($node->data_dir . '/lists/audit*'));

	is(scalar @found, scalar @lists, 'json: a record for each list of parameters');
	foreach my $i (0 .. $#lists)
	{
		is(join(',', map { explain_text($_) } @{ $found[$i] }),
			join(',', map { explain_text($_) } @{ $lists[$i] }), "json: list $i comes back");
	}
}

done_testing();
