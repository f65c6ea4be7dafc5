#
# bench/das and the other commands of the benchmark: a run leaves tables, JSON
# and pictures, and a trail that does not hold exactly what was sent is found,
# whatever is wrong with it.
#
# Runs when these change: bench scripts/lib.sh
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqKafka;
use PaqTest;

use File::Path qw(make_path remove_tree);
use IPC::Run;
use JSON::PP;
use Test::More;

use PostgreSQL::Test::Utils;

my $bench  = "$FindBin::RealBin/../../bench";
my $folder = "$PostgreSQL::Test::Utils::tmp_check/bench";

make_path($folder);

# Exit status and output of a command of the benchmark, in its shortest form
sub bench
{
	my ($command, @options) = @_;
	my ($output, $errors);

	IPC::Run::run(
		[
			"$bench/$command", '--installed', '--rounds', 1, '--seconds', 1, '--clients', 3,
			'--pairs', 2, '--scale', 1, '--output', "$folder/results", @options
		],
		'<', \'', '>', \$output, '2>', \$errors);
	return ($? >> 8, "$output$errors");
}

# What Python prints, with the benchmark's modules, whose folders come first
sub from_modules
{
	my ($code, @arguments) = @_;
	my ($output, $errors);

	IPC::Run::run(
		[
			python(), '-B', '-c', "import sys; sys.path[:0] = sys.argv[1:3]; $code",
			"$bench/measuring", "$bench/torturing", @arguments
		],
		'>', \$output, '2>', \$errors);
	return "$output$errors";
}

# What the benchmark says about a trail: records, bytes, verdict
sub check
{
	my ($layout, $expected, @files) = @_;
	my $output = from_modules(
		'import trail; print(*trail.check(sys.argv[3], "bench", int(sys.argv[4]), sys.argv[5:]))',
		$layout, $expected, @files);

	chomp $output;
	return split(/ /, $output, 3);
}

# Files of a trail in their order, which is not that of their names if some have
# been made in the same second
sub files_in_order
{
	return split(/\n/, from_modules('import trail; print(*trail.files_of(sys.argv[3]), sep="\n")', @_));
}

# Check lines, in files of their own if there are several lists of them.
sub check_lines
{
	my ($layout, $expected, @lists) = @_;
	my @files = map { "$folder/trail.$_" } 1 .. @lists;

	foreach my $i (0 .. $#lists)
	{
		unlink $files[$i];
		append_to_file($files[$i], join('', @{ $lists[$i] }));
	}
	my (undef, $bytes, $verdict) = check($layout, $expected, @files);
	is($bytes, length(join('', map { @$_ } @lists)), 'all bytes are counted')
	  if $verdict eq 'ok';
	return $verdict;
}

# A run

my ($status, $output) =
  bench('das', '--configs', 'none,queued', '--keep', '--folder', "$folder/run");
is($status, 0, 'a run of das') or diag($output);
like($output, qr/^\| queued +\| +\d+ \| +[\d.]+ \|.* ok \|$/m, 'it prints a table');

my $json   = decode_json(slurp_file("$folder/results/das.json"));
my $result = $json->{commands}{das};
is($json->{format}, 1, 'JSON: its format');
is($json->{wrong},  0, 'JSON: nothing was wrong');
like($json->{machine}{postgresql}, qr/^PostgreSQL \d+/, 'JSON: the server');
cmp_ok($json->{machine}{$_}, '>', 0, "JSON: $_") foreach qw(cores memory_gb);
cmp_ok($json->{machine}{fdatasync_8kb_us}{median}, '>', 0, 'JSON: fdatasync');
is(join(' ', map { "$_->{load}-$_->{configuration}-$_->{round}" } @{ $result->{runs} }),
	'saturated-none-1 saturated-queued-1 limited-none-1 limited-queued-1',
	'JSON: all runs');
foreach my $run (@{ $result->{runs} })
{
	my $name = "$run->{load}, $run->{configuration}";
	my $ours = $run->{configuration} eq 'queued';

	cmp_ok($run->{$_}, '>', 0, "JSON: $name: $_")
	  foreach qw(tps latency_ms p50_ms p95_ms p99_ms transactions sessions_us db_time_us);
	cmp_ok($run->{p50_ms}, '<=', $run->{p99_ms}, "JSON: $name: percentiles");
	is($run->{verdict}, $ours ? 'ok' : undef, "JSON: $name: verdict");
	next if !$ours;
	is($run->{records}, 7 * $run->{transactions} + 2, "JSON: $name: records");
	cmp_ok($run->{$_}, '>', 0, "JSON: $name: $_") foreach qw(trail_bytes fsyncs writers_us);
	cmp_ok($run->{queue}{drained}, '>=', $run->{records}, "JSON: $name: drained");
}
my ($median) = grep { $_->{load} eq 'limited' && $_->{configuration} eq 'queued' }
  @{ $result->{medians} };
is_deeply([ @{ $median->{tps} }{qw(min median max)} ],
	[ ($result->{runs}[3]{tps}) x 3 ], 'JSON: a median');
cmp_ok(
	abs($median->{ratio}{tps}{median} - $result->{runs}[3]{tps} / $result->{runs}[2]{tps}),
	'<', 1e-9, 'JSON: a ratio');
my $rate = $result->{loads}{limited}{rate};
my ($slowest) = sort { $a <=> $b } map { $_->{tps} } @{ $result->{runs} }[ 0, 1 ];
cmp_ok($rate, '<', $slowest, 'the limited rate is below what the slowest did');
is($result->{published}{rows}[1]{tps}, 1337.7, 'JSON: published figures');

SKIP:
{
	skip 'gnuplot is not installed', 2 if $result->{absent}{picture};
	like(slurp_file("$folder/results/das.png"), qr/^\x89PNG/, 'a picture, PNG');
	like(slurp_file("$folder/results/das.svg"), qr/<svg /, 'and SVG');
}
like(slurp_file("$folder/results/das.md"), qr/^\| queued /m, 'tables as Markdown');

# Pictures.  Those of a report have everybody, but for one who is absent.

# Texts of a picture: place, size, where that is in them, text
sub texts
{
	my ($svg) = @_;
	my @texts;

	push @texts, { x => $1, y => $2, size => $3, anchor => $4, text => $5 }
	  while $svg =~ m{<g\ transform="translate\(([\d.]+),([\d.]+)\)"[^>]*
		\ font-size="([\d.]+)"\s+text-anchor="(\w+)"[^>]*>\s*<text>\s*([^<]*)</text>}gx;
	return @texts;
}

# Bars of a picture, from the top to the bottom: name, label, whose it is by the
# legend, length and range
sub bars
{
	my ($svg) = @_;
	my @texts = texts($svg);
	my $number = qr/([\d.]+)/;
	my (@spans, @bars, %who);

	push @spans, { from => $1, y => $2, to => $3 }
	  while $svg =~ /M$number,$number\s+L$number,\2\s/g;
	while ($svg =~ /<polygon\s+fill = '([^']+)'[^>]* points = '$number,$number $number,[\d.]+ [\d.]+,$number /g)
	{
		my ($fill, $from, $bottom, $to, $top) = ($1, $2, $3, $4, $5);
		my $middle = ($top + $bottom) / 2;
		my @beside = grep { $_->{y} > $top && $_->{y} < $bottom + 2 } @texts;
		my ($name) = map { $_->{text} } grep { $_->{anchor} eq 'end' && $_->{x} < $from } @beside;
		my ($label) = map { $_->{text} }
		  sort { $a->{x} <=> $b->{x} } grep { $_->{anchor} eq 'start' && $_->{x} > $to } @beside;
		my ($span) = grep { abs($_->{y} - $middle) < 0.1 } @spans;

		# what is behind headings
		next if $fill =~ /255, *255, *255/;
		$fill = 'hatched' if $fill =~ /^url/;
		if (defined $name)
		{
			push @bars,
			  {
				name => $name, label => $label, who => $who{$fill}, y => $middle, length => $to - $from,
				range => $span ? [ $span->{from} - $from, $span->{to} - $from ] : []
			  };
		}
		else
		{
			$who{$fill} //= $label;
		}
	}
	return sort { $a->{y} <=> $b->{y} } @bars;
}

# The same, as text
sub bars_text
{
	return join("\n", map { "$_->{name}|$_->{label}|$_->{who}" } @_);
}

# Texts that are in each other's way, if characters are half as wide as high
sub collisions
{
	my ($svg) = @_;
	my (@before, @found);

	foreach my $text (texts($svg))
	{
		my $width = length($text->{text}) * $text->{size} / 2;
		my $left = $text->{x} - $width * { start => 0, middle => 0.5, end => 1 }->{ $text->{anchor} };

		push @found, "$text->{text} / $_->[3]"
		  foreach grep {
			abs($_->[2] - $text->{y}) < 0.75 * $text->{size}
			  && $left < $_->[1]
			  && $left + $width > $_->[0]
		  } @before;
		push @before, [ $left, $left + $width, $text->{y}, $text->{text} ];
	}
	return join("\n", @found);
}

# Show results again; returns what it prints.
sub report
{
	my ($command, $file, $results) = @_;
	my $output;

	IPC::Run::run([ "$bench/$command", '--report', $file, '--output', $results ],
		'<', \'', '>', \$output, '2>&1');
	is($?, 0, "a report of $command") or diag($output);
	return $output;
}

sub write_json
{
	my ($file, $what) = @_;

	unlink $file;
	append_to_file($file, encode_json($what));
}

# Throughput of none: median, least, most
my %ratios = (
	none            => [ 1,    1,    1 ],
	pgaudit         => [ 0.71, 0.62, 0.75 ],
	log_statement   => [ 0.66, 0.61, 0.7 ],
	queued          => [ 0.97, 0.93, 1.01 ],
	commit          => [ 0.84, 0.81, 0.9 ],
	immediate       => [ 0.52, 0.5,  0.55 ],
	queued_table    => [ 0.68, 0.6,  0.7 ],
	immediate_table => [ 0.31, 0.3,  0.35 ]);
my $everybody = decode_json(encode_json($json));
my $fake      = $everybody->{commands}{das};
$fake->{medians} = [];
$fake->{configurations} = {
	map({ ($_ => { settings => { shared_preload_libraries => 'pg_audit_queue' } }) } keys %ratios),
	none           => { settings => { shared_preload_libraries => '' } },
	log_statement  => { settings => { shared_preload_libraries => '' } },
	pgaudit        => { settings => { shared_preload_libraries => 'pgaudit' } },
	pgaudit_tofile => { absent => 'pgauditlogtofile is not installed for this server' } };
foreach my $load ('saturated', 'limited')
{
	foreach my $name (sort keys %ratios)
	{
		my $row = decode_json(encode_json($median));

		@{$row}{qw(load configuration)} = ($load, $name);
		@{ $row->{ratio}{tps} }{qw(median min max runs)} = (@{ $ratios{$name} }, 3);
		$_->{runs} = 3
		  foreach $row->{ratio}{latency_ms},
		  @{$row}{qw(tps latency_ms p50_ms p95_ms p99_ms sessions_us writers_us wal_tx)};
		push @{ $fake->{medians} }, $row;
	}
}

SKIP:
{
	skip 'gnuplot is not installed', 1 if $result->{absent}{picture};

	is(bars_text(bars(slurp_file("$folder/results/das-kept.svg"))) =~ s/\|[\d.]+\|/|/gr,
		<<'EOF' =~ s/\n\z//r, 'a picture of what is left: those who ran, and the published figures');
no audit|no audit
pg_audit_queue, queued|pg_audit_queue
pgaudit|published, another machine
DAS asynchronous|published, another machine
DAS synchronous|published, another machine
EOF

	write_json("$folder/everybody.json", $everybody);
	report('das', "$folder/everybody.json", "$folder/everybody");
	my @rows = grep { /^\| queued / } split /\n/, slurp_file("$folder/everybody/das.md");
	is(join(' ', map { scalar(() = /\([\d.]+\)/g) } @rows), '4 5 1 4 5 1', 'ranges in the tables');
	my $svg  = slurp_file("$folder/everybody/das-kept.svg");
	my @bars = bars($svg);
	is(bars_text(@bars), <<'EOF' =~ s/\n\z//r, 'the same with everybody who is not absent');
no audit|1.00|no audit
pg_audit_queue, queued|0.97|pg_audit_queue
pgaudit|0.71|others
pg_audit_queue, queued, in a table|0.68|pg_audit_queue
log_statement = all|0.66|others
pg_audit_queue, commit|0.84|pg_audit_queue
pg_audit_queue, immediate|0.52|pg_audit_queue
pg_audit_queue, immediate, in a table|0.31|pg_audit_queue
pgaudit|1.01|published, another machine
DAS asynchronous|0.97|published, another machine
DAS synchronous|0.73|published, another machine
EOF
	my $one = $bars[0]{length};
	my @spread = qw(queued pgaudit queued_table log_statement commit immediate immediate_table);
	is( join(' ', map { sprintf('%.2f', $_->{length} / $one) } @bars),
		join(' ', map { $_->{label} } @bars), 'bars are as long as they say');
	is(join(' ', map { sprintf('%.2f..%.2f', map { $_ / $one } @{ $_->{range} }) } @bars[ 1 .. 7 ]),
		join(' ', map { sprintf('%.2f..%.2f', @{ $ratios{$_} }[ 1, 2 ]) } @spread),
		'ranges of those that were measured');
	is_deeply([ map { @{ $_->{range} } } @bars[ 8 .. 10 ] ], [], 'none of the published ones');
	cmp_ok((sort { $a <=> $b } map { $_->{size} } texts($svg))[0],
		'>=', 18, 'text can be read at half the size');
	like($svg, qr/<rect x="0" y="0" [^>]* fill="#ffffff"/, 'a white background');
	like(slurp_file("$folder/everybody/das-kept.png"), qr/^\x89PNG/, 'PNG, too');

	my @first = (bars(slurp_file("$folder/everybody/das.svg")))[ 0 .. 7 ];
	is(bars_text(@first), <<'EOF' =~ s/\n\z//r, 'the same colours in the other picture');
commit|0.840|pg_audit_queue
immediate|0.520|pg_audit_queue
immediate_table|0.310|pg_audit_queue
log_statement|0.660|others
none|1.000|no audit
pgaudit|0.710|others
queued|0.970|pg_audit_queue
queued_table|0.680|pg_audit_queue
EOF
	is(collisions(slurp_file("$folder/everybody/$_.svg")), '', "$_: texts do not collide")
	  foreach qw(das das-kept);
}

# README's picture shows the measurements that are kept beside it.

SKIP:
{
	my $kept = "$FindBin::RealBin/../../doc/images/throughput";

	skip 'gnuplot is not installed', 4 if $result->{absent}{picture};
	report('das', "$kept.json", "$folder/readme");
	is(bars_text(bars(slurp_file("$kept.svg"))), bars_text(bars(slurp_file("$folder/readme/das-kept.svg"))),
		"README's picture is that of its measurements");
	my $measured = decode_json(slurp_file("$kept.json"));
	is($measured->{wrong}, 0, 'which were not wrong');
	ok(!$measured->{quick} && $measured->{commands}{das}{options}{rounds} >= 3, 'nor quick');
}

# The trail of its last run, and damage done to it

my @files    = files_in_order("$folder/run/data/audit");
my $expected = $result->{runs}[3]{records};
my @lines    = map { split /(?<=\n)/, slurp_file($_) } @files;
my ($some) = grep { $lines[$_] =~ /,"statementId":8,"substatementId":1,/ } 0 .. $#lines;
my ($login) = grep { $lines[$_] =~ /,"command":"LOGIN",/ } 1 .. $#lines;

# Lines with one changed
sub changed
{
	my ($number, $code) = @_;

	return with_line_changed(\@lines, $number, $code);
}

# Lines without that one, and all sequences as if it had never been
sub forgotten
{
	my ($number) = @_;
	my @left = @lines[ grep { $_ != $number } 0 .. $#lines ];
	my $sequence = 0;

	s/"sequence":\d+/'"sequence":' . ++$sequence/e foreach @left;
	return \@left;
}

is((check('json', $expected, @files))[2], 'ok', 'the trail of a run is whole');
is(check_lines('json', $expected, [ @lines[ 0 .. $some ] ], [ @lines[ $some + 1 .. $#lines ] ]),
	'ok', 'in two files, too');
like(check_lines('json', $expected - 1, \@lines),
	qr/^$expected of \d+ records$/, 'a record too many');
like(check_lines('json', $expected, forgotten($some)),
	qr/of $expected records$/, 'a record too few');
like(
	check_lines('json', $expected - 1, forgotten($some)),
	qr/^numbers of a session are broken$/,
	'a record of a session is missing');
like(
	check_lines('json', $expected - 1, [ @lines[ grep { $_ != $some } 0 .. $#lines ] ]),
	qr/^the sequence is broken$/, 'a number of the sequence is missing');
like(check_lines('json', $expected + 1, [ @lines[ 0 .. $some ], @lines[ $some .. $#lines ] ]),
	qr/^the sequence is broken$/, 'a number is there twice');
like(
	check_lines('json', $expected, [ @lines[ 0 .. $login - 1 ] ], [ @lines[ $login + 1 .. $#lines ] ]),
	qr/^sequence \d+ is followed by \d+$/,
	'what is missing between files');
like(
	check_lines('json', $expected, [ @lines[ 1 .. $#lines ] ]),
	qr/^sequence 0 is followed by 2$/, 'the beginning is missing');
like(check_lines('json', $expected, changed($login, sub { s/"type":"record"/"type":"gap"/ })),
	qr/^the trail says that records are missing$/, 'a gap');
like(check_lines('json', $expected, changed($#lines, sub { substr($_, -10) = '' })),
	qr/^the last line of a file is torn$/, 'a torn end');
like(check_lines('json', $expected - 1, changed($some, sub { s/^.{30}// })),
	qr/^a line is not a record$/, 'a torn line');
is((check('json', 0))[2], 'there is no trail', 'no trail');

# The same for csvlog, where a row may have several lines

($status, $output) = bench('das', '--configs', 'queued', '--format', 'csvlog', '--keep',
	'--folder', "$folder/csvlog");
is($status, 0, 'a run with format csvlog') or diag($output);
like($output, qr/^There is no picture das-kept: there is nothing to be shown$/m,
	'without "none" nothing is left of it');
@files    = files_in_order("$folder/csvlog/data/audit");
$expected = decode_json(slurp_file("$folder/results/das.json"))->{commands}{das}{runs}[1]{records};
@lines    = map { split /(?<=\n)(?=\d{4}-\d\d-\d\d )/, slurp_file($_) } @files;
($some)  = grep { $lines[$_] =~ /"AUDIT: SESSION,8,1,/ } 0 .. $#lines;
($login) = grep { $lines[$_] =~ /"LOGIN"/ } 1 .. $#lines;
my ($long) = grep { $lines[$_] =~ /"AUDIT: SESSION,9,1,WRITE,UPDATE,/ } 0 .. $#lines;

is((check('csvlog', $expected, @files))[2], 'ok', 'csvlog: the trail of a run is whole');
@lines = @{ changed($long, sub { s/UPDATE \K/\n/ }) };
is(check_lines('csvlog', $expected, [ @lines[ 0 .. $long ] ], [ @lines[ $long + 1 .. $#lines ] ]),
	'ok', 'csvlog: in two files, with a row of two lines');
like(check_lines('csvlog', $expected - 1, \@lines),
	qr/^$expected of \d+ records$/, 'csvlog: a record too many');
like(
	check_lines('csvlog', $expected - 1, [ @lines[ grep { $_ != $some } 0 .. $#lines ] ]),
	qr/ is broken$| are broken$/, 'csvlog: a record is missing');
like(
	check_lines('csvlog', $expected, [ @lines[ grep { $_ != $login } 0 .. $#lines ] ]),
	qr/^the sequence is broken$/, 'csvlog: a record without number is missing');
like(check_lines('csvlog', $expected + 1, [ @lines[ 0 .. $some, $some .. $#lines ] ]),
	qr/^numbers of a session are broken$|^the sequence is broken$/,
	'csvlog: a record is there twice');
like(check_lines('csvlog', $expected, changed($some, sub { s/"AUDIT: SESSION,8,/"AUDIT: SESSION,9,/ })),
	qr/^numbers of a session are broken$/, 'csvlog: a number of a session is another');
like(
	check_lines('csvlog', $expected, changed($login, sub { s/SESSION,0,0,CONNECT,/SESSION,0,0,GAP,/ })),
	qr/^the trail says that records are missing$/, 'csvlog: a gap');
like(check_lines('csvlog', $expected, changed($#lines, sub { substr($_, -1) = '' })),
	qr/^the last line of a file is torn$/, 'csvlog: a torn end');
is( check_lines('csvlog', scalar(grep { /^[^,]*,"[^"]*","bench",.*"AUDIT: SESSION,[1-9]/ } @lines[ 0 .. $long - 1 ]),
		[ @lines[ 0 .. $long - 1 ], $lines[$long] =~ s/\n\K.*//sr ]),
	'a line is not a record', 'csvlog: a text without end');
like(check_lines('csvlog', $expected - 1, changed($some, sub { s/^[^,]*,// })),
	qr/^a line is not a record$/, 'csvlog: a column is missing');

# The layouts of the others: good lines, and which of them is a record

my $prefix = '2026-11-20 10:11:12.123 UTC';
my %layouts = (
	pgaudit => [
		"$prefix [1] LOG:  starting\n",
		"$prefix [7] app\@bench 1 LOG:  AUDIT: SESSION,1,1,READ,SELECT,,,select 1,<none>\n",
		"$prefix [8] app\@other 1 LOG:  AUDIT: SESSION,5,1,READ,SELECT,,,select 1,<none>\n",
		"$prefix [7] app\@bench 2 LOG:  AUDIT: SESSION,2,1,READ,SELECT,,,select 2,<none>\n",
		"$prefix [9] app\@bench LOG:  AUDIT: SESSION,1,1,READ,SELECT,,,select 2,<none>\n",
		"$prefix [9] app\@bench LOG:  AUDIT: SESSION,0,0,CONNECT,LOGOUT,,,,<none>\n"
	],
	tofile => [
		"$prefix,app,bench,7,[local],6b02.7,1,SELECT,$prefix,3/1,0,00000,SESSION,1,1,READ,SELECT,,,select 1,<none>,,,,,,,,,psql\n",
		"$prefix,app,other,8,[local],6b02.8,1,SELECT,$prefix,3/1,0,00000,SESSION,1,1,READ,SELECT,,,select 1,<none>,,,,,,,,,psql\n",
		"$prefix,app,bench,7,[local],6b02.7,2,BIND,$prefix,3/1,0,00000,SESSION,2,1,READ,SELECT,,,select 1,<none>,,,,,,,,,psql\n",
		"$prefix,app,bench,9,[local],6b02.9,1,BIND,$prefix,3/1,0,00000,SESSION,1,1,READ,SELECT,,,select 1,<none>,,,,,,,,,psql\n"
	],
	statements => [
		"$prefix [1] LOG:  starting\n",
		"$prefix [7] app\@bench 1 LOG:  statement: select 1\n",
		"$prefix [8] app\@other 1 LOG:  statement: select 1\n",
		"$prefix [7] app\@bench 2 LOG:  execute P_0: select \$1\n",
		"$prefix [7] app\@bench 3 DETAIL:  parameters: \$1 = '1'\n",
		"$prefix [7] app\@bench 4 LOG:  execute P_0: select \$1\n"
	],
	table => [
		"1\t6b02.7\t\\N\tCONNECT\tbench\n", "2\t6b02.7\t1\tREAD\tbench\n",
		"3\t6b02.8\t1\tREAD\tother\n",     "4\t6b02.7\t2\tREAD\tbench\n",
		"5\t6b02.9\t1\tREAD\tbench\n"
	]);
foreach my $layout (sort keys %layouts)
{
	my @good = @{ $layouts{$layout} };
	my ($second) = grep { $good[$_] =~ /SESSION,2,|bench 2 |7\t2\t/ } 0 .. $#good;
	my @missing = @good[ grep { $_ != $second - 1 && $_ != $second - 2 } 0 .. $#good ];

	is(check_lines($layout, 3, \@good), 'ok', "$layout: whole");
	like(check_lines($layout, 4, \@good), qr/^3 of 4 records$/, "$layout: too few");
	like(check_lines($layout, 2, \@missing),
		qr/^(?:numbers of a session are|the sequence is) broken$|^sequence 0 is followed/,
		"$layout: one missing");
}
like(
	check_lines('table', 3, changed_row(2, "3\t6b02.8\t1\tGAP\tother\n")),
	qr/^the trail says that records are missing$/, 'table: a gap');

sub changed_row
{
	my ($number, $row) = @_;
	my @rows = @{ $layouts{table} };

	$rows[$number] = $row;
	return \@rows;
}

# Pairs of runs with short sessions: what $result of a command has, and the report
sub short_sessions
{
	my ($command, $load) = @_;
	my ($of) = @{ $result->{pairs} };
	my @ratios = sort { $a <=> $b } map { $_->{queued} / $_->{none} } @{ $of->{pairs} };

	is("$of->{load}, $of->{verdict}", "$load, ok", "$command: short sessions");
	is(scalar @ratios, 2, "$command: pairs");
	is(sprintf('%.6f', $of->{ratio}), sprintf('%.6f', ($ratios[0] + $ratios[1]) / 2),
		"$command: median of ratios");
	cmp_ok($of->{quartiles}[0], '<', $of->{quartiles}[1], "$command: quartiles");
	like(slurp_file("$folder/results/$command.md"),
		qr/^\| \Q$load\E \| +2 \|.* \Q@{[ sprintf '%.3f', $of->{ratio} ]}\E \([\d.]+\) \| +ok \|$/m,
		"$command: short sessions in the report");
	return;
}

# What is left out while sessions warm up

($status, $output) = bench('clients', '--configs', 'none,queued_utc', '--folder', "$folder/clients");
is($status, 0, 'a run of clients') or diag($output);
$result = decode_json(slurp_file("$folder/results/clients.json"))->{commands}{clients};
is(join(' ', map { "$_->{load}-$_->{configuration}" } @{ $result->{runs} }),
	'1-none 1-queued_utc 2-none 2-queued_utc', 'clients: all runs');
is($result->{loads}{2}{warmup}, 1, 'clients: a warm-up');
cmp_ok($_->{tps}, '!=', $_->{tps_with_warmup}, "clients: $_->{configuration} without it")
  foreach @{ $result->{runs} };

SKIP:
{
	skip 'gnuplot is not installed', 1 if $result->{absent}{picture};
	is(collisions(slurp_file("$folder/results/clients.svg")), '', 'clients: texts do not collide');
}

cmp_ok($_->{switches_tx}, '>', 0, "clients: $_->{configuration}, switches of processes")
  foreach @{ $result->{runs} };
short_sessions('clients', '3 clients, 2 s');

($status, $output) = bench('record', '--quick', '--transactions', 200, '--folder', "$folder/record",
	'--configs', 'none,queued,queued_no_nulls');
is($status, 0, 'a run of record') or diag($output);
my $clients = $result;
$result = decode_json(slurp_file("$folder/results/record.json"))->{commands}{record};
short_sessions('record', '3 clients, 100 statements a session');
my %size = map { $_->{configuration} => $_->{record_bytes} }
  grep { $_->{load} eq 'select' } @{ $result->{runs} };
cmp_ok($size{queued_no_nulls}, '>', 300, 'record: bytes of a record without nulls');
cmp_ok($size{queued_no_nulls}, '<', 0.85 * $size{queued}, 'record: fewer than with them');
$result = $clients;

SKIP:
{
	# Counted are the ends and the middle, the same without "--clients".
	my @expected = qw(1-none 1-queued_utc 2-none 2-queued_utc);
	my $counted  = $result->{instructions};
	my %statement =
	  map { $_->{clients} . '-' . $_->{configuration} => $_->{statement} } @{ $counted || [] };

	if ($result->{absent}{instructions})
	{
		is( $result->{absent}{instructions},
			sanitizers() eq '' ? 'valgrind is not installed' : 'valgrind runs no server with sanitizers',
			'clients: no instructions');
		skip $result->{absent}{instructions}, 6;
	}
	is(join(' ', map { "$_->{clients}-$_->{configuration}" } @{$counted}),
		"@expected", 'clients: instructions are counted');
	is(join(' ', map { $_->{verdict} // '-' } @{$counted}), '- ok - ok', 'clients: trails of that');

	my ($one, $two) = map { $statement{"$_-queued_utc"} - $statement{"$_-none"} } 1, 2;

	cmp_ok($one, '>', 500,        'clients: a record takes instructions');
	cmp_ok($one, '<', 10_000,     'clients: but not too many');
	cmp_ok($two, '<', 1.2 * $one, 'clients: nor more with more clients');
	like(
		slurp_file("$folder/results/clients.md"),
		qr/^\| 2 .* \| +\Q$statement{'2-none'}\E \| +\Q$statement{'2-queued_utc'}\E \| +$two \|$/m,
		'clients: in the report');
}

# tps and latency of two seconds after the first two
sub steady
{
	my $output = from_modules('import load; print(*load.steady(sys.argv[3], 2, 2).values())', @_);

	chomp $output;
	return $output;
}

sub progress
{
	return join('', map { "progress: $_->[0] s, $_->[1] tps, lat $_->[2] ms stddev 0.1, 0 failed\n" } @_);
}

my @seconds = ([ '1.0', '10.0', '9.000' ], [ '2.1', '20.0', '8.000' ]);
my @steady = ([ '3.0', '100.0', '1.000' ], [ '4.1', '100.0', '3.000' ]);
is(steady(progress(@seconds, @steady)), '100.0 2.1', 'clients: only what comes after it');
is(steady(progress(@seconds, @steady, [ '5.0', '900.0', '1.000' ])),
	'100.0 2.1', 'clients: and nothing of what comes later');
like(steady(progress(@seconds)), qr/no transaction after 2 seconds/, 'clients: or nothing at all');

# Layers of trail files: sizes, pairs, and reading them again

($status, $output) = bench('trail', '--quick', '--transactions', 200, '--megabytes', 1,
	'--pairs', 1, '--configs', 'plain,zstd_aes256_sealed', '--folder', "$folder/trail");
is($status, 0, 'a run of trail') or diag($output);
$json   = decode_json(slurp_file("$folder/results/trail.json"));
$result = $json->{commands}{trail};
my $report = slurp_file("$folder/results/trail.md");
my $layered = 'zstd_aes256_sealed';
like($report, qr/^\| AES256 +\| +16 \| +2\.29 \|/m, 'trail: what others have published');

SKIP:
{
	my $reason = $result->{configurations}{$layered}{absent};

	if (defined $reason)
	{
		like($reason, qr/^the library was built without |^pg_audit_trail is not installed$/,
			'trail: layers that cannot be had');
		skip $reason, 1;
	}
	is(join(' ', map { "$_->{load}-$_->{configuration}" } @{ $result->{runs} }),
		join(' ', map { ("$_-plain", "$_-$layered") } qw(select tpcb pairs)), 'trail: all runs');
	is(join(' ', map { $_->{verdict} } @{ $result->{runs} }, @{ $result->{reading} }),
		join(' ', ('ok') x 11), 'trail: and all is well');
	foreach my $load ('select', 'tpcb')
	{
		my ($plain, $all) = grep { $_->{load} eq $load } @{ $result->{runs} };

		is($plain->{text_bytes}, $plain->{trail_bytes}, "trail: $load: plain files are text");
		cmp_ok(abs($all->{text_bytes} / $plain->{text_bytes} - 1),
			'<', 0.05, "trail: $load: the same text");
		cmp_ok($all->{trail_bytes}, '<', $all->{text_bytes} / 4, "trail: $load: compressed");
		cmp_ok($_->{worker_us_record}, '>', 0, "trail: $load: $_->{configuration}: worker")
		  foreach $plain, $all;
	}
	my ($plain, $all) = grep { $_->{load} eq 'pairs' } @{ $result->{runs} };
	cmp_ok(abs($result->{everything}{ratio} - $all->{tps} / $plain->{tps}),
		'<', 1e-9, 'trail: the ratio of a pair');
	is(join(', ', map { "$_->{load} of $_->{configuration}" } @{ $result->{reading} }),
		join(', ', map { "$_ of $layered" } 'verify', 'cat', 'cat --class=READ',
			'cat --outcome=failed', 'cat --format=table'), 'trail: it is read again');
	cmp_ok(abs($_->{mb_cpu_s} * $_->{cpu_s} - 1), '<', 0.2, "trail: $_->{load}: a megabyte")
	  foreach @{ $result->{reading} };
	is(join(', ', map { "$_->{load} $_->{verdict}" } @{ $result->{sql} }),
		'count(*) ok, all columns ok, COPY ok, last file ok', 'trail: and in SQL');
	report('trail', "$folder/results/trail.json", "$folder/trail_report");
	is(slurp_file("$folder/trail_report/trail.md"), $report, 'trail: the report again');
	is(collisions(slurp_file("$folder/results/trail.svg")), '', 'trail: texts do not collide')
	  if !$result->{absent}{picture};

	# A trail that is whole, but not as it was asked for

	($status, $output) = bench('trail', '--quick', '--transactions', 200, '--configs', 'zstd',
		'--set', 'pg_audit_queue.log_compression=none', '--folder', "$folder/unlayered");
	is($status, 1, 'trail: without the layer that was asked for');
	like($output, qr/^  WRONG: files of the trail do not have these layers; /m, 'trail: and says so');
}

# Shipping to Kafka

# How many CPUs we may use
sub machine_cpus
{
	return from_modules('import os; print(len(os.sched_getaffinity(0)))') + 0;
}

SKIP:
{
	my ($available, $reason) = PaqKafka::available();

	if (!$available)
	{
		diag "NOT TESTED: $reason";
		skip $reason, 1;
	}
	($status, $output) = bench('ship', '--quick', '--megabytes', 20, '--configs',
		'plain,tls_aes256,uncompressed,queued,shipped', '--folder', "$folder/ship");
	is($status, 0, 'a run of ship') or diag($output);
	$result = decode_json(slurp_file("$folder/results/ship.json"))->{commands}{ship};
	$reason = $result->{configurations}{plain}{absent};
	skip $reason, 1 if defined $reason;

	my @runs = @{ $result->{runs} };
	is( join(', ', map { "$_->{load}-$_->{configuration}" } @runs),
		join(', ', 'trail-plain', 'trail-tls_aes256', 'trail-uncompressed',
			map { ("$_-queued", "$_-shipped") } 'select', 'tpcb', 'select half', 'tpcb half'),
		'ship: all runs');
	is(join(' ', map { $_->{verdict} } @runs), join(' ', ('ok') x 11), 'ship: and all is well');
	foreach my $run (grep { $_->{load} eq 'trail' || $_->{configuration} eq 'shipped' } @runs)
	{
		cmp_ok($run->{$_}, '>=', 0, "ship: $run->{load}, $run->{configuration}: $_")
		  foreach 'ship_us_record',
		  $run->{load} eq 'trail' ? qw(records_s mb_s start_s program_share stolen_share) : qw(behind_s shipped);

		# A small trail has no figure if the broker did more while only its last records were shipped.
		cmp_ok($run->{broker_us_record}, '>', 0,
			"ship: $run->{load}, $run->{configuration}: broker_us_record")
		  if exists $run->{broker_us_record} || $run->{load} ne 'trail';
	}
	is(join(' ', map { "@{ $_->{tls} }" } @runs[ 0 .. 2 ]), ' TLSv1.3 TLS_AES_256_GCM_SHA384 ',
		'ship: the cipher');
	is_deeply([ map { $result->{configurations}{$_}{properties} } qw(plain uncompressed) ],
		[ {}, { 'compression.codec' => 'none' } ], 'ship: properties');
	is(join(' ', map { $_->{records} } @runs[ 1, 2 ]), "$runs[0]{records} $runs[0]{records}",
		'ship: the same trail');
	foreach my $run (@runs[ 0 .. 2 ])
	{
		my ($program, $broker) = @$run{qw(program_cpus broker_cpus)};
		my %broker_has = map { $_ => 1 } @$broker;

		is(scalar @$program, 1, "ship: $run->{configuration}: the program has one CPU");
		ok(!$broker_has{ $program->[0] } || @$broker == 1 && machine_cpus() == 1,
			"ship: $run->{configuration}: the broker has others");
		cmp_ok($run->{program_share}, '>', 0, "ship: $run->{configuration}: which it uses");
		cmp_ok($run->{stolen_share}, '<', 1, "ship: $run->{configuration}: and not only others");
	}
	my %medians = map { ("$_->{load}-$_->{configuration}" => $_) } @{ $result->{medians} };
	cmp_ok(
		abs($medians{'trail-tls_aes256'}{ratio}{records_s}{median} -
			  $runs[1]{records_s} / $runs[0]{records_s}), '<', 1e-9, 'ship: a ratio to plain');
	cmp_ok(abs($medians{'tpcb-shipped'}{ratio}{tps}{median} - $runs[6]{tps} / $runs[5]{tps}),
		'<', 1e-9, 'ship: and one to a server alone');
	cmp_ok(abs($result->{loads}{'select half'}{rate} - $runs[3]{tps} / 2), '<', 1e-6,
		'ship: half of what the server can do');
	my $report = slurp_file("$folder/results/ship.md");
	like($report, qr/ tls_aes256: TLSv1\.3 TLS_AES_256_GCM_SHA384\./, 'ship: in the report');
	report('ship', "$folder/results/ship.json", "$folder/ship_report");
	is(slurp_file("$folder/ship_report/ship.md"), $report, 'ship: the report again');
	is(collisions(slurp_file("$folder/results/ship.svg")), '', 'ship: texts do not collide')
	  if !$result->{absent}{picture};
}

# Who uses which CPU
$output = from_modules(<<'EOF');
import os, subprocess, sys, cpu
mine = os.sched_getaffinity(0)
one, others = cpu.divided()
with cpu.starting_on(one):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(len(one), one | others == mine, one & others == (set() if len(mine) > 1 else one),
      os.sched_getaffinity(0) == mine, os.sched_getaffinity(child.pid) == one)
cpu.move(child.pid, others)
print(os.sched_getaffinity(child.pid) == others)
child.communicate(b"\n")
EOF
is($output, "1 True True True True\nTrue\n", 'CPUs are divided');

# Without a broker all is absent, which is nothing wrong.
{
	local $ENV{PAQ_KAFKA_DIR} = "$folder/nowhere";

	($status, $output) = bench('ship', '--quick', '--folder', "$folder/no_kafka");
	is($status, 0, 'ship, without Kafka') or diag($output);
	like($output, qr/^  leaving out shipped: \S/m, 'ship: says what is missing');
	like(slurp_file("$folder/results/ship.md"), qr/^- plain: \S.*^- runs: \S/ms,
		'ship: in the report, too');
}

# Which of the records was the first that had not been acknowledged, and how old it was

sub lags
{
	my ($seen, @lists) = @_;
	my @files = map { "$folder/lag.$_" } 1 .. @lists;

	foreach my $i (0 .. $#lists)
	{
		unlink $files[$i];
		append_to_file($files[$i], join '', map {
			qq({"type":"record","formatVersion":1,"sequence":$_,"logTime":"1970-01-01T00:00:)
			  . sprintf('%09.6f', $_ / 2) . '+00:00"' . 'x' x ($_ % 7) . "}\n"
		} @{ $lists[$i] });
	}
	my $output = from_modules('import ship; print(*ship.lags_of(sys.argv[4:],
		[tuple(map(float, each.split(":"))) for each in sys.argv[3].split()]))', $seen, @files);
	chomp $output;
	return $output;
}

is(lags('10:0 10:3 10:19 10:20 9.75:20', [ 1 .. 12 ], [], [ 13 .. 21 ]), '9.5 8.0 0.0 0.0 0.0',
	'ship: lags');
is(lags('30:0 30:1 30:11 30:12 30:20 30:21', [ 1 .. 12 ], [ 13 .. 21 ]), '29.5 29.0 24.0 23.5 19.5 0.0',
	'ship: lags at the ends of files');

# A trail that lacks what was sent: here because less is audited

($status, $output) = bench('oracle', '--configs', 'immediate',
	'--set', 'pg_audit_queue.log=read', '--folder', "$folder/wrong");
is($status, 1, 'a run with a wrong trail fails');
like($output, qr/^  WRONG: \d+ of \d+ records; the trail is in (.*)$/m, 'and says so');
ok(-s (glob "$folder/wrong/wrong/saturated-immediate-1/*")[0], 'and keeps the trail');
like(
	slurp_file("$folder/results/oracle.md"),
	qr/^\| immediate .* WRONG: \d+ of \d+ records \|$/m, 'the table has it, too');

# A configuration that cannot be had is absent, and says why.

($status, $output) = bench('crash', '--configs', 'nonsense', '--folder', "$folder/none");
is($status, 1, 'a configuration that does not exist');
like($output, qr/^There is no configuration nonsense$/m, 'is refused');

remove_tree($folder) if Test::More->builder->is_passing;

done_testing();
