# Sealed trails that somebody has changed: pg_audit_trail verify names the file or seal.
# Also those that were changed by somebody who has taken the server's key.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin, "$FindBin::RealBin/seal";
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

# The file's bytes at a seal of it: from, to
sub range_of
{
	my ($file, $number) = @_;
	my @ranges = grep { $_->{file} eq $file && $_->{to} > $_->{from} } @seals;

	return @{ $ranges[$number] }{qw(from to)};
}

# ---------------------------------------------------------------------------
# Harm
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

# Harm a copy of the trail: verify with these arguments accepts it before, and says
# so first afterwards.
sub finds
{
	my ($name, $expected, $harm, @arguments) = @_;
	my $copy = copy_trail();

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	subtest $name => sub {
		my ($status, $output) = $sealed->verify(@arguments, $copy);
		is($status, 0, 'unharmed') or diag($output);
		$harm->($copy);
		($status, $output) = $sealed->verify(@arguments, $copy);
		my ($first) = split /\n/, $output;
		is($status, 1, 'is noticed') or diag($output);
		like($first, qr/^FIRST FINDING: $expected/, 'and named') or diag($output);
		unlike($output, qr/complete and unaltered/, 'nothing else is said');
	};
	return;
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

sub named
{
	my ($kind) = @_;

	return qr/file "\Q$file{$kind}\E"/;
}

# Files

foreach my $kind (sort keys %file)
{
	my $changed = qr/@{[ named($kind) ]}: something between bytes \d+ and \d+ was changed after/;

	finds("$kind: the first byte", $changed, change($file{$kind}, sub { substr($_, 0, 1) ^= "\1" }));
	finds("$kind: the last byte", $changed, change($file{$kind}, sub { substr($_, -1) ^= "\1" }));
	finds("$kind: a byte", $changed,
		change($file{$kind}, sub { substr($_, length() / 2, 1) ^= "\1" }));
	finds(
		"$kind: removed",
		qr/@{[ named($kind) ]} is missing/,
		sub { unlink("$_[0]/$file{$kind}") or die "unlink: $!" });
	finds(
		"$kind: cut off",
		qr/@{[ named($kind) ]} ends at byte \d+, but is sealed up to byte \d+/,
		change($file{$kind}, sub { substr($_, -10) = '' }));
	finds(
		"$kind: more at the end",
		qr/@{[ named($kind) ]}: what is behind byte \d+ is in no seal/,
		change($file{$kind}, sub { $_ .= "{}\n" }));
}
finds('a removed line', qr/@{[ named('plain') ]}: something/,
	change_lines($file{plain}, sub { splice(@{ $_[0] }, 12, 1) }));
finds('a repeated line', qr/@{[ named('plain') ]}: something/,
	change_lines($file{plain}, sub { splice(@{ $_[0] }, 12, 0, $_[0][11]) }));
finds('two lines exchanged', qr/@{[ named('plain') ]}: something/,
	change_lines($file{plain}, sub { @{ $_[0] }[ 3, 9 ] = @{ $_[0] }[ 9, 3 ] }));
{
	my ($from, $to) = range_of($file{encrypted}, 1);

	finds('a removed block', qr/@{[ named('encrypted') ]}: something between bytes $from and $to/,
		change($file{encrypted}, sub { substr($_, $from, $to - $from) = '' }));
}
finds(
	'two files exchanged',
	qr/@{[ named('plain') ]}/,
	sub {
		my ($copy) = @_;

		rename("$copy/$file{plain}", "$copy/x") && rename("$copy/$file{second}", "$copy/$file{plain}")
		  && rename("$copy/x", "$copy/$file{second}") or die "rename: $!";
	});
finds('an older copy', qr/@{[ named('third') ]} ends at byte/,
	sub { copy($older, "$_[0]/$file{third}") or die "copy: $!" });
finds('an empty file', qr/@{[ named('second') ]} ends at byte 0/,
	sub { Sealed::put("$_[0]/$file{second}", '') });
finds(
	'a link to a copy',
	qr/@{[ named('second') ]} is missing/,
	sub {
		rename("$_[0]/$file{second}", "$_[0]/moved") && symlink("$_[0]/moved", "$_[0]/$file{second}")
		  or die "symlink: $!";
	});
finds(
	'a FIFO',
	qr/@{[ named('second') ]} is missing/,
	sub { unlink("$_[0]/$file{second}") && mkfifo("$_[0]/$file{second}", 0600) or die "mkfifo: $!" });
finds('a file more', qr/file "planted\.json" is in no seal/,
	sub { copy("$_[0]/$file{plain}", "$_[0]/planted.json") or die "copy: $!" });
finds(
	'a file with a name that does something to the terminal',
	qr/file "\\x1b\[2J\\nfine\.json" is in no seal/,
	sub { append_to_file("$_[0]/\e[2J\nfine.json", "{}\n") });

# Seals

my $in_seals = qr/line \d+ of ".*\Q$seals_name\E"/;

finds('the first seal removed',
	qr/line 1 of ".*\Q$seals_name\E": the seal of epoch 1 stands where that of epoch 0 should/,
	change_lines($seals_name, sub { shift(@{ $_[0] }) }));
finds('a seal removed', qr/line 11 of ".*": the seal of epoch 11 stands where that of epoch 10 should/,
	change_lines($seals_name, sub { splice(@{ $_[0] }, 10, 1) }));
my @last = (
	[ "--until=$until" ] => qr/the trail ends at .* UTC, but should go on until .* UTC/,
	[ '-D', $data ] =>
	  qr/the trail ends with epoch \d+, but the server has sealed up to epoch $seals[-1]{epoch}/);
while (my ($arguments, $expected) = splice(@last, 0, 2))
{
	finds("the last seal removed: @$arguments[0]", $expected,
		change_lines($seals_name, sub { pop(@{ $_[0] }) }), @$arguments);
}
finds('two seals exchanged', qr/line 11 of ".*": the seal of epoch 11 stands where/,
	change_lines($seals_name, sub { @{ $_[0] }[ 10, 11 ] = @{ $_[0] }[ 11, 10 ] }));
finds('a seal repeated', qr/line 12 of ".*": the seal of epoch 10 stands where that of epoch 11 should/,
	change_lines($seals_name, sub { splice(@{ $_[0] }, 11, 0, $_[0][10]) }));
foreach my $field (1 .. 12)
{
	finds("field $field of a seal changed", qr/line 9 of ".*$seals_name"/,
		change_lines($seals_name,
			sub { $_[0][8] =~ s/^((?:\S+ ){$field}\S*)([0-9a-z])/$1 . ($2 eq '1' ? '2' : '1')/e }));
}
finds('a digit of a seal in upper case', qr/line 9 of ".*" is no seal/,
	change_lines($seals_name, sub { $_[0][8] =~ s/([a-f])(?=[0-9]*$)/uc($1)/e }));
finds('a line that is no seal', qr/line 5 of ".*" is no seal/,
	change_lines($seals_name, sub { splice(@{ $_[0] }, 4, 0, "This is none.\n") }));
finds('an empty line', qr/line 5 of ".*" is no seal/,
	change_lines($seals_name, sub { splice(@{ $_[0] }, 4, 0, "\n") }));
finds('an empty line at the end', qr/line \d+ of ".*" is no seal/, change($seals_name, sub { $_ .= "\n" }));
finds('a NUL in a seal', qr/line 5 of ".*" is no seal/,
	change_lines($seals_name, sub { substr($_[0][4], 40, 1) = "\0" }));
finds('a NUL behind a seal', qr/line 5 of ".*" is no seal/,
	change_lines($seals_name, sub { $_[0][4] =~ s/\n/\0\n/ }));
finds('a NUL and more behind a seal', qr/line 5 of ".*" is no seal/,
	change_lines($seals_name, sub { $_[0][4] =~ s/\n/\0and more\n/ }));
finds('a line of NULs', qr/line 5 of ".*" is no seal/,
	change_lines($seals_name, sub { splice(@{ $_[0] }, 4, 0, "\0" x 5000 . "\n") }));
finds('a very long line', qr/line 5 of ".*" is no seal/,
	change_lines($seals_name, sub { splice(@{ $_[0] }, 4, 0, 'S1 ' . '9' x 10_000_000 . "\n") }));
foreach my $length (1500 .. 1540)
{
	my $copy = copy_trail();

	# a seal behind so much of a line must not be taken for a line
	change_lines($seals_name, sub { substr($_[0][4], 0, 0) = 'x' x $length })->($copy);
	($status, $output) = $sealed->verify($copy);
	is($status, 1, "a seal at byte $length of a line");
	like($output, qr/line 5 of ".*" is no seal\nfinding: line 6 of/, 'is none');
}
finds('half a line at the end', qr/the last line of ".*" is not complete/,
	change($seals_name, sub { $_ .= "S1 $seals[-1]{epoch} 2026" }));
finds('no newline at the end', qr/the trail ends at/, change($seals_name, sub { chop }), "--until=$until");
finds('seals that are a FIFO', qr/".*" is not a file/,
	sub { unlink("$_[0]/$seals_name") && mkfifo("$_[0]/$seals_name", 0600) or die "mkfifo: $!" });
finds('seals that are a directory', qr/".*" is not a file/,
	sub { unlink("$_[0]/$seals_name") && mkdir("$_[0]/$seals_name") or die "mkdir: $!" });
finds('no seals', qr/there are no seals of the key @{[ Sealed::id($secret) ]}/,
	sub { unlink("$_[0]/$seals_name") or die "unlink: $!" });
finds('empty seals', qr/file "audit-.*" is in no seal/, sub { Sealed::put("$_[0]/$seals_name", '') });
finds('seals alone', qr/@{[ named('plain') ]} is missing/,
	sub { unlink(map { "$_[0]/$_" } values %file) or die "unlink: $!" });
finds('nothing', qr/there are no seals of the key/, sub { unlink(glob("$_[0]/*")) or die "unlink: $!" });
finds(
	'nothing but empty seals',
	qr/there are no seals/,
	sub { unlink(glob("$_[0]/*")) or die "unlink: $!"; append_to_file("$_[0]/$seals_name", '') });

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

# The end of the trail and of its seals

my $cut = sub {
	my ($copy) = @_;
	my @kept = @seals[ 0 .. $#seals - 2 ];
	my ($end) = map { $_->{to} } grep { $_->{file} eq $file{last} } reverse @kept;

	Sealed::put_seals($copy, @kept);
	truncate("$copy/$file{last}", $end) or die "truncate: $!";
};
finds('the end: --until', qr/the trail ends at .* UTC, but should go on until .* UTC/,
	$cut, "--until=$until");
finds('the end: --seals',
	qr/the trail ends with epoch \d+, but there was a seal of epoch $seals[-2]{epoch}/,
	$cut, "--seals=$known_file");
finds('the end: -D',
	qr/the trail ends with epoch $seals[-3]{epoch}, but the server has sealed up to epoch $seals[-1]{epoch}/,
	$cut, '-D', $data);
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

# Long times without seals are mentioned.

{
	my $copy   = copy_trail();
	my @forged = map { {%$_} } @seals;

	$_->{time} =~ s/^\d+/2999/ foreach @forged[ 10 .. $#forged ];
	Sealed::forge(\@forged, 0, $secret, evolve => 1);
	Sealed::put_seals($copy, @forged);
	($status, $output) = $sealed->verify($copy);
	like(
		$output,
		qr/^note: 1 time nothing was sealed for longer than expected, at most from 2\S+ \S+ UTC to 2999-/m,
		'a long time without seals');
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

# ---------------------------------------------------------------------------
# Somebody has taken the server's key
# ---------------------------------------------------------------------------

my $stolen = $sealed->state;
my (undef, undef, $victim) = grep { $_->{file} eq $file{plain} && $_->{kind} eq 'request' } @seals;
my ($number) = grep { $seals[$_] == $victim } 0 .. $#seals;

# Change yesterday's record; returns the seals, of which the one over it fits again.
sub falsify
{
	my ($copy) = @_;
	my @forged = map { {%$_} } @seals;

	change($file{plain}, sub { substr($_, $victim->{from} + 20, 1) ^= "\1" })->($copy);
	Sealed::digest_again($copy, $forged[$number]);
	return @forged;
}

sub forges
{
	my ($name, $expected, $forge) = @_;

	finds(
		$name,
		$expected,
		sub {
			my ($copy) = @_;

			Sealed::put_seals($copy, $forge->($copy));
		});
	return;
}

# First of all: with the verification key it works.  So what follows fails for want of the
# key, not of skill.
{
	my $copy   = copy_trail();
	my @forged = falsify($copy);

	Sealed::forge(\@forged, 0, $secret, evolve => 1);
	Sealed::put_seals($copy, @forged);
	($status, $output) = $sealed->verify($copy);
	is($status, 0, 'who has the verification key can seal anything') or diag($output);
}

my $not_genuine = "line @{[ $number + 1 ]} of \".*\": the seal of epoch $number is not genuine";

forges(
	'yesterday sealed anew, the seal alone',
	$not_genuine,
	sub {
		my @forged = falsify(@_);
		my @rest   = map { {%$_} } @forged[ $number + 1 .. $#forged ];

		Sealed::forge(\@forged, $number, $stolen->{secret});
		return (@forged[ 0 .. $number ], @rest);
	});
forges(
	'yesterday sealed anew, and all after it',
	$not_genuine,
	sub {
		my @forged = falsify(@_);

		Sealed::forge(\@forged, $number, $stolen->{secret});
		return @forged;
	});
forges(
	'with secrets that follow from the stolen one',
	$not_genuine,
	sub {
		my @forged = falsify(@_);

		Sealed::forge(\@forged, $number, $stolen->{secret}, evolve => 1);
		return @forged;
	});
forges(
	'the seal left out',
	"line @{[ $number + 1 ]} of \".*\": the seal of epoch @{[ $number + 1 ]} stands where"
	  . " that of epoch $number should",
	sub {
		my @forged = falsify(@_);

		splice(@forged, $number, 1);
		return @forged;
	});
foreach my $evolve (0, 1)
{
	forges(
		"renumbered, $evolve",
		$not_genuine,
		sub {
			my @forged = falsify(@_);

			splice(@forged, $number, 1);
			$forged[$_]{epoch} = $_ foreach $number .. $#forged;
			Sealed::forge(\@forged, $number, $stolen->{secret}, evolve => $evolve);
			return @forged;
		});
}

# Drop the last seals, and what they are over, and go on with the stolen secret.  It is
# that of a later epoch.
my $kept = $#seals - 5;

sub go_on
{
	my ($copy, $epoch, $by_number) = @_;
	my @forged = map { {%$_} } @seals[ 0 .. $kept ];
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

forges(
	'a tail of our own, with the epoch that should be',
	"line @{[ $kept + 2 ]} of \".*\": the seal of epoch @{[ $kept + 1 ]} is not genuine",
	sub { go_on($_[0], $kept + 1) });
forges(
	'a tail of our own, with the epoch of the secret',
	"line @{[ $kept + 2 ]} of \".*\": the seal of epoch $stolen->{epoch} stands where"
	  . " that of epoch @{[ $kept + 1 ]} should",
	sub { go_on($_[0], $stolen->{epoch}) });

# Empty seals in place of those that were dropped
forges(
	'a tail of our own, and fillers',
	"line @{[ $kept + 2 ]} of \".*\": the seal of epoch @{[ $kept + 1 ]} is not genuine",
	sub {
		my ($copy) = @_;
		my @forged = go_on($copy, $stolen->{epoch});
		my $tail   = pop @forged;

		push @forged,
		  {
			%{ $forged[-1] },
			epoch => $_,
			kind  => 'start',
			file  => '-',
			from  => 0,
			to    => 0,
			first => 0,
			last  => 0
		  }
		  foreach $kept + 1 .. $stolen->{epoch} - 1;
		push @forged, $tail;
		Sealed::forge(\@forged, $kept + 1, $stolen->{secret});
		return @forged;
	});

# Nor does another key help, whose seals go on where these end.
forges(
	'another key',
	'line 1 of ".*": the seal of epoch 0 is not genuine',
	sub {
		my @forged = falsify(@_);

		Sealed::forge(\@forged, 0, 'another secret, of thirty-two b.', evolve => 1);
		return @forged;
	});

# What the key of today can do: seal what is written from now on, and so also say that
# retention has removed a file.  The documentation says so.
{
	my $copy   = copy_trail();
	my @forged = map { {%$_} } @seals;

	append_to_file("$copy/$file{last}", qq({"type":"record","commandText":"from now on"}\n));
	push @forged,
	  { %{ $seals[-1] }, epoch => $stolen->{epoch}, from => $seals[-1]{to}, to => -s "$copy/$file{last}" };
	Sealed::digest_again($copy, $forged[-1]);
	Sealed::forge(\@forged, $#forged, $stolen->{secret});
	Sealed::put_seals($copy, @forged);
	($status, $output) = $sealed->verify($copy);
	is($status, 0, 'today\'s key seals today') or diag($output);

	$copy = copy_trail();
	@forged = (
		(map { {%$_} } @seals),
		{
			%{ $seals[-1] },
			epoch => $stolen->{epoch},
			kind  => 'removed',
			file  => $file{plain},
			from  => 0,
			to    => -s "$copy/$file{plain}",
			first => 0,
			last  => 0
		});
	unlink("$copy/$file{plain}") or die "unlink: $!";
	Sealed::forge(\@forged, $#forged, $stolen->{secret});
	Sealed::put_seals($copy, @forged);
	($status, $output) = $sealed->verify($copy);
	is($status, 0, 'and removes whole files') or diag($output);
	like($output, qr/^note: 1 file was removed by retention, sequences 1 to \d+, last "\Q$file{plain}\E" at /m, 'which is said');
}

# ---------------------------------------------------------------------------
# Others
# ---------------------------------------------------------------------------

my $other = audited_node('other', start => 0, settings => {%settings});
my $theirs = Sealed->new($other->data_dir);
$other->start;
create_extension($other);
$other->safe_psql('postgres', 'SELECT 1');
unaudited_sql($other, 'SELECT audit_seal()');
$other->stop;
my @their_files = glob(trail_dir($other) . '/audit*.json');
my $their_seals = Sealed::seals_file(trail_dir($other));

finds('a file of another server', qr/file "theirs\.json" is in no seal/,
	sub { copy($their_files[0], "$_[0]/theirs.json") or die "copy: $!" });
finds('a file of another server in place of ours', qr/@{[ named('plain') ]}/,
	sub { copy($their_files[0], "$_[0]/$file{plain}") or die "copy: $!" });
finds('seals of another server in place of ours', qr/line 1 of ".*": the seal of epoch 0 is not genuine/,
	sub { copy($their_seals, "$_[0]/$seals_name") or die "copy: $!" });
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
