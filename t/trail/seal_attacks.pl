# Sealed trails that somebody has changed: pg_audit_trail verify names the file or seal.
# Also those that were changed by somebody who has taken the server's key.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/seal";
use PaqTest;
use Sealed;

use File::Basename;
use File::Copy qw(copy);
use IPC::Run;
use POSIX qw(mkfifo);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

if (!defined Sealed::program())
{
	diag 'NOT TESTED: there is no pg_audit_trail; a build needs libpgcommon.a for it';
	plan skip_all => 'no pg_audit_trail';
}

my $base = PostgreSQL::Test::Utils::tempdir();

# ---------------------------------------------------------------------------
# An honest trail, in several files and formats.  Seals are made when we ask for them.
# ---------------------------------------------------------------------------

my %settings = (seal => 'on', seal_interval => '10min');
my $node     = audited_node('main', start => 0, settings => {%settings});
my $data     = $node->data_dir;
my $dir      = trail_dir($node);
my $sealed   = Sealed->new($data);
my @known;
my $older = "$base/older";

$node->start;
create_extension($node);

# Records, and a seal, several times
sub fill
{
	my ($name, $seals) = @_;

	foreach my $seal (1 .. $seals)
	{
		$node->safe_psql('postgres', join '', map { "SELECT '$name $seal $_';" } 1 .. 5);
		push @known, unaudited_sql($node, 'SELECT audit_seal()');
	}
	return;
}

# A new file, with other settings; returns the path of the one before.
sub new_file
{
	my (%settings) = @_;
	my $file = stats($node)->{current_file};

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload if %settings;
	poll_until(
		sub {
			%settings ? flush_trail($node) : unaudited_sql($node, 'SELECT audit_rotate()');
			return stats($node)->{current_file} ne $file;
		}) or die 'no new file';
	return basename($file);
}

my %file;
fill('plain', 5);
$file{plain} = new_file();
fill('second', 3);
$file{second} = new_file();
fill('third', 2);
copy("$dir/" . basename(stats($node)->{current_file}), $older) or die "copy: $!";
fill('third', 2);
append_to_file("$base/key", '0123456789abcdef' x 4 . "\n");
my $layers = unaudited_sql($node,
	"SELECT enumvals::text LIKE '%aes-256-gcm%' FROM pg_settings"
	  . " WHERE name = 'pg_audit_queue.log_encryption'") eq 't';
$file{third} = new_file(
	$layers
	? (
		log_compression            => 'zstd',
		log_encryption             => 'aes-256-gcm',
		log_encryption_key_command => "cat $base/key")
	: (format => 'csvlog'));
fill('encrypted', 4);
$file{encrypted} =
  new_file(log_compression => 'none', log_encryption => 'none', format => 'csvlog');
fill('csvlog', 2);
$file{csvlog} = new_file(format => 'pgaudit');
fill('pgaudit', 2);
$file{pgaudit} = new_file(format => 'json');
fill('last', 3);
$file{last} = basename(stats($node)->{current_file});
$node->stop;

my $seals_name = basename(Sealed::seals_file($dir));
my @seals      = Sealed::seals($dir);
my $until      = $seals[-1]{time};
my $known_file = "$base/seals";
append_to_file($known_file, join('', map { "$_\n" } @known));
is(join("\n", Sealed::faults($dir)), '', 'the trail is sealed as a whole');
my ($status, $output) = $sealed->verify('-D', $data, "--until=$until", "--seals=$known_file", $dir);
is($status, 0, 'and verifies') or diag($output);

# Our own reading of seal.h says the same.
my $secret = $sealed->{secret};
my @again  = map { {%$_} } @seals;
Sealed::forge(\@again, 0, $secret, evolve => 1);
is(join("\n", map { $_->{line} } @again), join("\n", map { $_->{line} } @seals),
	'seals are as described');
is($sealed->state->{epoch}, scalar @seals, 'the server has the next secret');
is($sealed->state->{secret}, $sealed->secret_of(scalar @seals), 'which follows from the first');

# Another server
my $other = audited_node('other', start => 0, settings => {%settings});
my $theirs = Sealed->new($other->data_dir);
$other->start;
create_extension($other);
$other->safe_psql('postgres', 'SELECT 1');
unaudited_sql($other, 'SELECT audit_seal()');
$other->stop;
my ($their_file) = glob(trail_dir($other) . '/audit*.json');
my $their_seals = Sealed::seals_file(trail_dir($other));

# ---------------------------------------------------------------------------
# Who changes what: files and seals
# ---------------------------------------------------------------------------

my $copies = 0;

# A copy of the trail
sub copy_trail
{
	my $copy = "$base/copy" . ++$copies;

	mkdir($copy) or die "mkdir: $!";
	copy($_, $copy) || die "copy: $!" foreach grep { !/\.lock$/ } glob("$dir/*");
	return $copy;
}

# Change a file's content by a sub that gets it in $_.
sub change
{
	my ($name, $code) = @_;

	return sub {
		my ($copy) = @_;

		local $_ = slurp_file("$copy/$name");
		my $before = $_;
		$code->();
		die "$name is unchanged" if $_ eq $before;
		Sealed::put("$copy/$name", $_);
	};
}

# The same for its lines, which are in @_.
sub change_lines
{
	my ($name, $code) = @_;

	return change(
		$name,
		sub {
			my @lines = split /(?<=\n)/, $_;

			$code->(\@lines);
			$_ = join '', @lines;
		});
}

# Change the lines of seals like splice(), or a single one, which is in $_.
sub splice_seals
{
	my ($at, @splice) = @_;

	return change_lines($seals_name, sub { splice(@{ $_[0] }, $at, $splice[0], @splice[ 1 .. $#splice ]) });
}

sub change_seal
{
	my ($at, $code) = @_;

	return change_lines($seals_name, sub { $code->() foreach $_[0][$at] });
}

# Remove files, and have something else made in the place of the first.
sub replace
{
	my ($names, $make) = @_;

	return sub {
		my ($copy) = @_;
		my @paths = map { "$copy/$_" } ref $names ? @$names : $names;

		unlink(@paths) == @paths or die "unlink: $!";
		!$make || $make->($paths[0]) or die "$paths[0]: $!";
	};
}

# What is said of a file, and of a line of seals
sub of_file
{
	my ($kind, $said) = @_;

	return qr/file "\Q$file{$kind}\E"$said/;
}

sub of_line
{
	my ($number, $said) = @_;

	return qr/line $number of ".*\Q$seals_name\E"$said/;
}

sub instead
{
	my ($number, $epoch, $expected) = @_;

	return of_line($number, ": the seal of epoch $epoch stands where that of epoch $expected should");
}

# The last two seals, and what they are over, are cut off.
my $cut = sub {
	my ($copy) = @_;
	my @kept = @seals[ 0 .. $#seals - 2 ];
	my ($end) = map { $_->{to} } grep { $_->{file} eq $file{last} } reverse @kept;

	Sealed::put_seals($copy, @kept);
	truncate("$copy/$file{last}", $end) or die "truncate: $!";
};

my ($block)  = (grep { $_->{file} eq $file{encrypted} && $_->{to} > $_->{from} } @seals)[1];
my $changed  = ': something between bytes \d+ and \d+ was changed after';
my $none     = of_line(5, ' is no seal');
my $no_seals = 'there are no seals of the key ' . Sealed::id($secret);
my $too_soon = qr/the trail ends at .* UTC, but should go on until .* UTC/;
my @until    = ("--until=$until");

# What is changed; what verify says first; how, by a sub that gets the directory; with which
# options verify is called
my @changes = (
	(
		map {
			my ($kind, $name) = ($_, $file{$_});
			(
				[ "$kind: the first byte", of_file($kind, $changed), change($name, sub { substr($_, 0, 1) ^= "\1" }) ],
				[ "$kind: the last byte",  of_file($kind, $changed), change($name, sub { substr($_, -1) ^= "\1" }) ],
				[ "$kind: a byte", of_file($kind, $changed), change($name, sub { substr($_, length() / 2, 1) ^= "\1" }) ],
				[ "$kind: removed", of_file($kind, ' is missing'), replace($name) ],
				[
					"$kind: cut off", of_file($kind, ' ends at byte \d+, but is sealed up to byte \d+'),
					change($name, sub { substr($_, -10) = '' })
				],
				[
					"$kind: more at the end", of_file($kind, ': what is behind byte \d+ is in no seal'),
					change($name, sub { $_ .= "{}\n" })
				])
		} sort keys %file),
	[ 'a line removed',  of_file('plain', $changed), change_lines($file{plain}, sub { splice(@{ $_[0] }, 12, 1) }) ],
	[ 'a line repeated', of_file('plain', $changed), change_lines($file{plain}, sub { splice(@{ $_[0] }, 12, 0, $_[0][11]) }) ],
	[ 'two lines exchanged', of_file('plain', $changed), change_lines($file{plain}, sub { @{ $_[0] }[ 3, 9 ] = @{ $_[0] }[ 9, 3 ] }) ],
	[
		'a block removed', of_file('encrypted', ": something between bytes $block->{from} and $block->{to}"),
		change($file{encrypted}, sub { substr($_, $block->{from}, $block->{to} - $block->{from}) = '' })
	],
	[
		'two files exchanged', of_file('plain', ''),
		sub {
			my ($plain, $second) = map { "$_[0]/$file{$_}" } qw(plain second);

			rename($plain, "$_[0]/x") && rename($second, $plain) && rename("$_[0]/x", $second) or die "rename: $!";
		}
	],
	[ 'an older copy', of_file('third', ' ends at byte'), replace($file{third}, sub { copy($older, $_[0]) }) ],
	[ 'an empty file', of_file('second', ' ends at byte 0'), replace($file{second}, sub { append_to_file($_[0], ''); 1 }) ],
	[ 'a link to a copy', of_file('second', ' is missing'), replace($file{second}, sub { symlink("$dir/$file{second}", $_[0]) }) ],
	[ 'a FIFO', of_file('second', ' is missing'), replace($file{second}, sub { mkfifo($_[0], 0600) }) ],
	[ 'another server\'s file in place of ours', of_file('plain', ''), replace($file{plain}, sub { copy($their_file, $_[0]) }) ],
	(
		map {
			my ($name, $said, $from) = @$_;
			[ "a file more: $said", qr/file "\Q$said\E" is in no seal/, sub { copy($from, "$_[0]/$name") or die "copy: $!" } ]
		} (
			[ 'planted.json', 'planted.json', "$dir/$file{plain}" ],
			[ 'theirs.json',  'theirs.json',  $their_file ],
			[ "\e[2J\nfine.json", '\x1b[2J\nfine.json', "$dir/$file{plain}" ])),

	# Seals
	[ 'the first seal removed', instead(1, 1, 0), splice_seals(0, 1) ],
	[ 'a seal removed', instead(11, 11, 10), splice_seals(10, 1) ],
	[ 'the last seal removed: --until', $too_soon, splice_seals(-1, 1), @until ],
	[
		'the last seal removed: -D', qr/the trail ends with epoch \d+, but the server has sealed up to epoch $seals[-1]{epoch}/,
		splice_seals(-1, 1), '-D', $data
	],
	[ 'two seals exchanged', instead(11, 11, 10), splice_seals(10, 2, map { "$_->{line}\n" } @seals[ 11, 10 ]) ],
	[ 'a seal repeated', instead(12, 10, 11), splice_seals(11, 0, "$seals[10]{line}\n") ],
	(
		map {
			my $field = $_;
			[
				"field $field of a seal changed", of_line(9, ''),
				change_seal(8, sub { s/^((?:\S+ ){$field}\S*)([0-9a-z])/$1 . ($2 eq '1' ? '2' : '1')/e })
			]
		} 1 .. 12),
	[ 'a digit of a seal in upper case', of_line(9, ' is no seal'), change_seal(8, sub { s/([a-f])(?=[0-9]*$)/uc($1)/e }) ],
	[ 'a line that is no seal', $none, splice_seals(4, 0, "This is none.\n") ],
	[ 'an empty line',          $none, splice_seals(4, 0, "\n") ],
	[ 'an empty line at the end', of_line(1 + @seals, ' is no seal'), change($seals_name, sub { $_ .= "\n" }) ],
	[ 'a NUL in a seal',     $none, change_seal(4, sub { substr($_, 40, 1) = "\0" }) ],
	[ 'a NUL behind a seal', $none, change_seal(4, sub { s/\n/\0\n/ }) ],
	[ 'a NUL and more behind a seal', $none, change_seal(4, sub { s/\n/\0and more\n/ }) ],
	[ 'a line of NULs',   $none, splice_seals(4, 0, "\0" x 5000 . "\n") ],
	[ 'a very long line', $none, splice_seals(4, 0, 'S1 ' . '9' x 10_000_000 . "\n") ],

	# which must not be taken for a line
	(
		map {
			my $length = $_;
			[ "a seal at byte $length of a line", qr/$none\nfinding: line 6 of/, change_seal(4, sub { $_ = 'x' x $length . $_ }) ]
		} 1500 .. 1540),
	[ 'half a line at the end', qr/the last line of ".*" is not complete/, change($seals_name, sub { $_ .= "S1 $seals[-1]{epoch} 2026" }) ],
	[ 'no newline at the end', qr/the trail ends at/, change($seals_name, sub { chop }), @until ],
	[ 'seals that are a FIFO', qr/".*" is not a file/, replace($seals_name, sub { mkfifo($_[0], 0600) }) ],
	[ 'seals that are a directory', qr/".*" is not a file/, replace($seals_name, sub { mkdir($_[0]) }) ],
	[ 'another server\'s seals', of_line(1, ': the seal of epoch 0 is not genuine'), replace($seals_name, sub { copy($their_seals, $_[0]) }) ],
	[ 'no seals', $no_seals, replace($seals_name) ],
	[ 'empty seals', qr/file "audit-.*" is in no seal/, replace($seals_name, sub { append_to_file($_[0], ''); 1 }) ],
	[ 'nothing but seals', of_file('plain', ' is missing'), replace([ values %file ]) ],
	[ 'nothing', $no_seals, replace([ $seals_name, values %file ]) ],
	[ 'nothing but empty seals', qr/there are no seals\n/, replace([ $seals_name, values %file ], sub { append_to_file($_[0], ''); 1 }) ],

	# The end of both
	[ 'the end: --until', $too_soon, $cut, @until ],
	[
		'the end: --seals', qr/the trail ends with epoch \d+, but there was a seal of epoch $seals[-2]{epoch}/,
		$cut, "--seals=$known_file"
	],
	[
		'the end: -D', qr/the trail ends with epoch $seals[-3]{epoch}, but the server has sealed up to epoch $seals[-1]{epoch}/,
		$cut, '-D', $data
	]);

# ---------------------------------------------------------------------------
# Who changes what: somebody who has taken the server's key
# ---------------------------------------------------------------------------

my $stolen = $sealed->state;
my (undef, undef, $victim) = grep { $_->{file} eq $file{plain} && $_->{kind} eq 'request' } @seals;
my ($number) = grep { $seals[$_] == $victim } 0 .. $#seals;

sub seals_copied { return map { {%$_} } @seals }

# A sub that has a trail sealed by seals that another one makes
sub sealing
{
	my ($forge) = @_;

	return sub { Sealed::put_seals($_[0], $forge->($_[0])) };
}

# Change yesterday's record; returns the seals, of which the one over it fits again.
sub falsify
{
	my ($copy) = @_;
	my @forged = seals_copied();

	change($file{plain}, sub { substr($_, $victim->{from} + 20, 1) ^= "\1" })->($copy);
	Sealed::digest_again($copy, $forged[$number]);
	return @forged;
}

# Drop the last seals, and what they are over, and go on with the stolen secret.  It is
# that of a later epoch.
my $kept = $#seals - 5;

sub go_on
{
	my ($copy, $epoch, $by_number) = @_;
	my @forged = (seals_copied())[ 0 .. $kept ];
	my $file   = $forged[-1]{file};

	truncate("$copy/$file", $forged[-1]{to}) or die "truncate: $!";
	foreach my $name (map { $_->{file} } @seals[ $kept + 1 .. $#seals ])
	{
		unlink("$copy/$name") if $name ne $file;
	}
	append_to_file("$copy/$file", qq({"type":"record","commandText":"as we want it"}\n));
	push @forged,
	  {
		%{ $seals[-1] },
		file  => $file,
		epoch => $epoch,
		from  => $forged[-1]{to},
		to    => -s "$copy/$file"
	  };
	Sealed::digest_again($copy, $forged[-1]);
	Sealed::forge(\@forged, $#forged, $stolen->{secret});
	return @forged;
}

# Yesterday is sealed anew: seals from the victim on are made by a sub, which is given them
# and the number of the first one that is to be sealed, and then sealed.
sub reseal
{
	my ($secret, $from, %options) = @_;

	return sub {
		my @forged = falsify(@_);
		my @rest   = splice(@forged, $options{to} // @forged);

		splice(@forged, $number, 1) if $options{left_out};
		$forged[$_]{epoch} = $_ foreach $options{renumbered} ? $number .. $#forged : ();
		Sealed::forge(\@forged, $from, $secret, evolve => $options{evolve}) if defined $secret;
		return (@forged, @rest);
	};
}

# The trail has one seal more, over what is in it now.
sub seal_more
{
	my ($copy, %seal) = @_;
	my @forged = (seals_copied(), { %{ $seals[-1] }, epoch => $stolen->{epoch}, %seal });

	Sealed::digest_again($copy, $forged[-1]) if !$seal{kind};
	Sealed::forge(\@forged, $#forged, $stolen->{secret});
	return @forged;
}

my $ours        = $stolen->{secret};
my $not_genuine = of_line($number + 1, ": the seal of epoch $number is not genuine");
my $not_ours    = of_line($kept + 2,   ': the seal of epoch ' . ($kept + 1) . ' is not genuine');

# The same of these; the sub returns the seals.
my @forgeries = (
	[ 'yesterday sealed anew, the seal alone', $not_genuine, reseal($ours, $number, to => $number + 1) ],
	[ 'yesterday sealed anew, and all after it', $not_genuine, reseal($ours, $number) ],
	[ 'with secrets that follow from the stolen one', $not_genuine, reseal($ours, $number, evolve => 1) ],
	[ 'the seal left out', instead($number + 1, $number + 1, $number), reseal(undef, 0, left_out => 1) ],
	(
		map {
			[ "renumbered, $_", $not_genuine, reseal($ours, $number, left_out => 1, renumbered => 1, evolve => $_) ]
		} 0, 1),

	# whose seals go on where these end
	[ 'another key', of_line(1, ': the seal of epoch 0 is not genuine'), reseal('another secret, of thirty-two b.', 0, evolve => 1) ],
	[ 'a tail of our own, with the epoch that should be', $not_ours, sub { go_on($_[0], $kept + 1) } ],
	[
		'a tail of our own, with the epoch of the secret', instead($kept + 2, $stolen->{epoch}, $kept + 1),
		sub { go_on($_[0], $stolen->{epoch}) }
	],
	[
		'a tail of our own, and empty seals in place of those that were dropped', $not_ours,
		sub {
			my @forged = go_on($_[0], $stolen->{epoch});
			my $tail   = pop @forged;
			my %empty  = (%{ $forged[-1] }, kind => 'start', file => '-', map { $_ => 0 } qw(from to first last));

			push @forged, (map { { %empty, epoch => $_ } } $kept + 1 .. $stolen->{epoch} - 1), $tail;
			Sealed::forge(\@forged, $kept + 1, $ours);
			return @forged;
		}
	],

	# a long time without seals, which is mentioned
	[
		'the verification key, and another time',
		qr/the last seal is of 2999-.*\nnote: 1 time nothing was sealed for longer than expected, at most from 2\S+ \S+ UTC to 2999-/,
		sub {
			my @forged = seals_copied();

			$_->{time} =~ s/^\d+/2999/ foreach @forged[ 10 .. $#forged ];
			Sealed::forge(\@forged, 0, $secret, evolve => 1);
			return @forged;
		}
	]);

# What is not noticed, as the documentation says, and what verify says.  First of all: with
# the verification key it works.  So what is above fails for want of the key, not of skill.
# The key of today can seal what is written from now on, and so also say that retention has
# removed a file.
my @accepted = (
	[ 'who has the verification key can seal anything', qr/complete and unaltered/, reseal($secret, 0, evolve => 1) ],
	[
		'today\'s key seals today', qr/complete and unaltered/,
		sub {
			append_to_file("$_[0]/$file{last}", qq({"type":"record","commandText":"from now on"}\n));
			return seal_more($_[0], from => $seals[-1]{to}, to => -s "$_[0]/$file{last}");
		}
	],
	[
		'and removes whole files', qr/^note: 1 file was removed by retention, sequences 1 to \d+, last "\Q$file{plain}\E" at /m,
		sub {
			my $size = -s "$_[0]/$file{plain}";

			replace($file{plain})->(@_);
			return seal_more($_[0], kind => 'removed', file => $file{plain}, from => 0, to => $size, first => 0, last => 0);
		}
	]);

# ---------------------------------------------------------------------------
# What verify says
# ---------------------------------------------------------------------------

my %unharmed;

foreach my $row (@changes, map { my ($name, $said, $forge) = @$_; [ $name, $said, sealing($forge) ] } @forgeries)
{
	my ($name, $said, $change, @options) = @$row;
	my $copy = copy_trail();

	is(($sealed->verify(@options, $copy))[0], 0, "unharmed, @options") if !$unharmed{"@options"}++;
	$change->($copy);
	my ($status, $output) = $sealed->verify(@options, $copy);
	is($status, 1, "$name: is noticed") or diag($output);
	like($output, qr/\AFIRST FINDING: $said/, "$name: and named") or diag($output);
	unlike($output, qr/complete and unaltered/, "$name: nothing else is said");
}
foreach my $row (@accepted)
{
	my ($name, $said, $forge) = @$row;
	my $copy = copy_trail();

	sealing($forge)->($copy);
	my ($status, $output) = $sealed->verify($copy);
	is($status, 0, $name) or diag($output);
	like($output, $said, "$name: what is said");
}

# A wrong epoch must not keep us busy for long.
{
	my $copy = copy_trail();
	my $many = join '', map { $seals[5]{line} =~ s/^S1 5 /'S1 ' . (9_000_000 + $_) . ' '/er . "\n" } 1 .. 200;

	change_lines($seals_name, sub { splice(@{ $_[0] }, 8, 0, $many) })->($copy);
	my $began = time;
	($status, $output) = $sealed->verify($copy);
	is($status, 1, 'seals of epochs far away');
	like(
		$output,
		qr/^FIRST FINDING: line 9 of ".*": the seal of epoch 9000001 stands where that of epoch 8 should/,
		'are named');
	cmp_ok(time - $began, '<', 120, 'and do not take long');
}

{
	my $copy  = copy_trail();
	my $clock = PostgreSQL::Test::Utils::tempdir() . '/clock';
	local $ENV{PAQ_CLOCK}  = $clock;
	local $ENV{LD_PRELOAD} = sanitizers() ? '' : build_preloaded('clock');

	append_to_file($clock, 10 * 60 + 3600);
	($status, $output) = $sealed->verify($copy);
	is($status, 0, 'later: nothing is due after a stop') or diag($output);
	$cut->($copy);
	Sealed::put($clock, 0);
	($status, $output) = $sealed->verify($copy);
	is($status, 0, 'the end, cut off a moment ago') or diag($output);
	Sealed::put($clock, 10 * 60 + 3600);
	($status, $output) = $sealed->verify($copy);
	is($status, 1, 'the end: when another seal was due');
	like(
		$output,
		qr/^FIRST FINDING: the trail ends at .* UTC, but another seal was due at .* UTC$/m,
		'that is said');
	Sealed::put($clock, -3600);
	($status, $output) = $sealed->verify(copy_trail());
	is($status, 1, 'a seal of the future');
	like($output, qr/^FIRST FINDING: the last seal is of .* UTC, which is yet to come$/m, 'is not believed');
}

# Times as they are printed

($status, $output) = $sealed->verify($dir);
my ($end) = $output =~ / to (\d\S+ \S+ UTC),$/m;
($status, $output) = $sealed->verify("--until=$end", $dir);
is($status, 0, "--until=$end") or diag($output);

# Seals that the user knows of

{
	my $other = "$base/other_seals";
	my $forged = $known[3] =~ s/ request / time /r;

	append_to_file($other, "$forged\n");
	($status, $output) = $sealed->verify("--seals=$other", $dir);
	is($status, 1, 'another seal of the same epoch');
	like($output, qr/^FIRST FINDING: the known seal of epoch \d+ is not in the trail/, 'is missed');
	append_to_file("$base/none", "nothing\n");
	($status, $output) = $sealed->verify("--seals=$base/none", $dir);
	is($status, 2, 'a file without seals');
	like($output, qr/has no seals/, 'is refused');
}

# Another server's key, and data directory

($status, $output) = $theirs->verify($dir);
is($status, 1, 'the key of another server');
like(
	$output,
	qr/^FIRST FINDING: there are no seals of the key @{[ Sealed::id($theirs->{secret}) ]}/,
	'has no seals');
($status, $output) = $sealed->verify('-D', $other->data_dir, $dir);
is($status, 1, 'the data directory of another server');
like($output, qr/^FIRST FINDING: the server seals with another key/, 'is not the right one');

# Wrong keys, wrong calls

foreach my $case (
	[ 'garbage', "\xff\0\x01garbage\n" x 100 ],
	[ 'an empty file', '' ],
	[ 'comments alone', "# nothing\n# else\n" ],
	[ 'a digit too few', 'a' x 63 . "\n" ],
	[ 'a digit too many', 'a' x 65 . "\n" ],
	[ 'an open comment', '#' ],
	[ 'a seal', "$known[0]\n" ],
	[ 'a very long line', 'a' x 5_000_000 ],
	[ 'a very large file', "\n" x 20_000_000 ])
{
	my ($name, $text) = @$case;

	Sealed::put("$base/wrong_key", $text);
	chmod(0600, "$base/wrong_key") == 1 or die "chmod: $!";
	my ($status, $stdout, $stderr) = Sealed::run('verify', '-k', "$base/wrong_key", $dir);
	is("$status|$stdout", '2|', "a key file with $name");
	like($stderr, qr/has no verification key|is too long/, 'is refused');
}
Sealed::put("$base/right_key", "\n# by hand\r\n\n" . uc(unpack('H*', $secret)) =~ s/(....)/$1 /gr . "\r\n");
chmod(0600, "$base/right_key") == 1 or die "chmod: $!";
($status, $output) = Sealed::run('verify', '-k', "$base/right_key", $dir);
is($status, 0, 'a key as somebody has written it down') or diag($output);

# A key that others can read: with it, they could forge seals.
foreach my $case (
	[ $sealed->{file},  '-k' => qw(0640 0604 0660 0620 0602) ],
	[ $sealed->{state}, '-D' => qw(0640 0604) ])
{
	my ($file, $option, @modes) = @$case;

	foreach my $mode (@modes)
	{
		chmod(oct($mode), $file) == 1 or die "chmod: $!";
		my ($status, $stdout, $stderr) = Sealed::run('verify', '-k', $sealed->{file}, '-D', $data, $dir);
		is("$status|$stdout", '2|', "verify $option with a key file of mode $mode");
		like(
			$stderr,
			qr/key file "\Q$file\E" is accessible to its group or to others\n.*hint: Its permissions/,
			'is refused');
	}
	chmod(0600, $file) == 1 or die "chmod: $!";
}
foreach my $case (
	[ [$dir] => qr/no verification key specified/ ],
	[ [ '-k', $sealed->{file} ] => qr/no directory specified/ ],
	[ [ '-k', "$base/nowhere", $dir ] => qr/could not open key file ".*nowhere"/ ],
	[ [ '-k', $base, $dir ] => qr/key file ".*" is not a regular file/ ],
	[ [ '-k', $sealed->{file}, "$base/nowhere" ] => qr/is not a directory/ ],
	[ [ '-k', $sealed->{file}, "$dir/$file{plain}" ] => qr/is not a directory/ ],
	[ [ '-k', $sealed->{file}, '-D', $base, $dir ] => qr/could not open key file ".*seal_key"/ ],
	[ [ '-k', $sealed->{file}, '--until=soon', $dir ] => qr/"soon" is no time/ ],
	[ [ '-k', $sealed->{file}, "--seals=$base/nowhere", $dir ] => qr/could not open file/ ],
	[ [ '-k', $sealed->{file}, '--nonsense', $dir ] => qr/unrecognized option/ ])
{
	my ($arguments, $expected) = @$case;
	my ($status, $stdout, $stderr) = Sealed::run('verify', @$arguments);

	is("$status|$stdout", '2|', "verify @{[ map { s{.*/}{}r } @$arguments ]}");
	like($stderr, $expected, 'says why it cannot');
}
Sealed::put("$base/full", '');
IPC::Run::run([ Sealed::program(), 'verify', '-k', $sealed->{file}, $dir ],
	'>', '/dev/full', '2>', "$base/full");
is($? >> 8, 2, 'output that cannot be written');

done_testing();
