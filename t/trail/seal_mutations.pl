# Random changes of a sealed trail: pg_audit_trail verify finds each of them, whatever it
# is, unless the directory is byte for byte what it was.
#
# queue_files/Rounds.pm lists the options; a round makes one to three changes.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/queue_files", "$FindBin::RealBin/../lib/seal";
use PaqTest;
use Rounds;
use Sealed;

use File::Basename;
use List::Util qw(max min);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

if (!defined Sealed::program())
{
	diag 'NOT TESTED: there is no pg_audit_trail; a build needs libpgcommon.a for it';
	plan skip_all => 'no pg_audit_trail';
}

# A trail of several files, some of them with layers, and about 50 seals

my $rounds = Rounds->new(short => 300, full => 10_000);
my $node   = audited_node('main', start => 0, settings => { seal => 'on', seal_interval => '1h' });
my $dir    = trail_dir($node);
my $key    = PostgreSQL::Test::Utils::tempdir() . '/key';
append_to_file($key, 'fedcba9876543210' x 4 . "\n");
my $sealed = Sealed->new($node->data_dir);

$node->start;
create_extension($node);
my $layers = eval {
	unaudited_sql($node,
		"ALTER SYSTEM SET pg_audit_queue.log_encryption_key_command = 'cat $key'");
	unaudited_sql($node, "ALTER SYSTEM SET pg_audit_queue.log_compression = 'zstd'");
	unaudited_sql($node, "ALTER SYSTEM SET pg_audit_queue.log_encryption = 'aes-256-gcm'");
	1;
};
note('no layers: the server was built without') if !$layers;
foreach my $number (1 .. 5)
{
	unaudited_sql($node, 'SELECT pg_reload_conf()') if $number == 4;
	foreach my $seal (1 .. 8)
	{
		$node->safe_psql('postgres', "SELECT '$number $seal'");
		unaudited_sql($node, 'SELECT audit_seal()');
	}
	unaudited_sql($node, 'SELECT audit_rotate()') if $number < 5;
}
$node->stop;

my @seals = Sealed::seals($dir);
my $until = $seals[-1]{time};
my %honest = map { $_ => slurp_file("$dir/$_") } grep { /^audit|seals/ } slurp_dir($dir);
cmp_ok(scalar keys %honest, '>=', 6, 'several files');
cmp_ok(scalar @seals, '>=', 45, 'and seals');
is($seals[-1]{kind}, 'stop', 'the last one is of a clean stop');
ok((grep { /\.enc$/ } keys %honest), 'some are encrypted') if $layers;

# ---------------------------------------------------------------------------
# Changes of a trail, which is a hash of files
# ---------------------------------------------------------------------------

sub pick
{
	return $_[ rand @_ ];
}

# A file to change: that of the seals half of the time
sub pick_file
{
	my ($trail) = @_;
	my @files = sort keys %$trail;
	my @seals = grep { /seals/ } @files;

	return @seals && rand() < 0.5 ? pick(@seals) : pick(@files);
}

# A range of bytes, most often a short one
sub pick_range
{
	my ($length) = @_;
	my $from = int(rand($length + 1));

	return ($from, min($length - $from, 1 + int(rand(rand() < 0.7 ? 8 : $length))));
}

sub change_lines
{
	my ($trail, $file, $change) = @_;
	my @lines = split /(?<=\n)/, $trail->{$file};

	$change->(\@lines) if @lines > 1;
	$trail->{$file} = join '', @lines;
	return;
}

my %changes = (
	'flip a bit' => sub {
		my ($trail, $file) = @_;
		my $at = int(rand(length $trail->{$file}));

		substr($trail->{$file}, $at, 1) ^= chr(1 << rand 8) if length $trail->{$file};
	},
	'other bytes' => sub {
		my ($trail, $file) = @_;
		my ($from, $length) = pick_range(length $trail->{$file});

		substr($trail->{$file}, $from, $length) = join '', map { chr(rand 256) } 1 .. $length;
	},
	'remove bytes' => sub {
		my ($trail, $file) = @_;
		my ($from, $length) = pick_range(length $trail->{$file});

		substr($trail->{$file}, $from, $length) = '';
	},
	'insert bytes' => sub {
		my ($trail, $file) = @_;
		my ($at) = pick_range(length $trail->{$file});

		substr($trail->{$file}, $at, 0) = join '', map { chr(rand 256) } 1 .. 1 + rand 20;
	},
	'move bytes' => sub {
		my ($trail, $file) = @_;
		my ($from, $length) = pick_range(length $trail->{$file});
		my $bytes = substr($trail->{$file}, $from, $length, '');

		substr($trail->{$file}, rand(1 + length $trail->{$file}), 0) = $bytes;
	},
	'repeat bytes' => sub {
		my ($trail, $file) = @_;
		my ($from, $length) = pick_range(length $trail->{$file});

		substr($trail->{$file}, $from, 0) = substr($trail->{$file}, $from, $length);
	},
	'cut off' => sub {
		my ($trail, $file) = @_;
		my ($at) = pick_range(length $trail->{$file});

		substr($trail->{$file}, $at) = '';
	},
	'append' => sub {
		my ($trail, $file) = @_;

		$trail->{$file} .= pick("\n", "\0", 'x', 'S', 'S1 ', "{}\n", $trail->{ pick_file($trail) });
	},
	'remove a line' => sub {
		my ($trail, $file) = @_;

		change_lines($trail, $file, sub { splice(@{ $_[0] }, rand @{ $_[0] }, 1) });
	},
	'repeat a line' => sub {
		my ($trail, $file) = @_;

		change_lines($trail, $file,
			sub { my $lines = shift; splice(@$lines, rand @$lines, 0, pick(@$lines)) });
	},
	'exchange lines' => sub {
		my ($trail, $file) = @_;

		change_lines(
			$trail, $file,
			sub {
				my ($lines) = @_;
				my ($one, $two) = (int(rand @$lines), int(rand @$lines));

				@$lines[ $one, $two ] = @$lines[ $two, $one ];
			});
	},
	'move a line' => sub {
		my ($trail, $file) = @_;

		change_lines(
			$trail, $file,
			sub {
				my ($lines) = @_;
				my ($line) = splice(@$lines, rand @$lines, 1);

				splice(@$lines, rand(@$lines + 1), 0, $line);
			});
	},
	'remove last lines' => sub {
		my ($trail, $file) = @_;

		change_lines($trail, $file, sub { my $lines = shift; splice(@$lines, -1 - rand(@$lines / 2)) });
	},
	'a line of another file' => sub {
		my ($trail, $file) = @_;
		my @others = split /(?<=\n)/, $trail->{ pick_file($trail) };

		change_lines($trail, $file,
			sub { my $lines = shift; $lines->[ rand @$lines ] = pick(@others) if @others });
	},
	'remove a file' => sub {
		my ($trail, $file) = @_;

		delete $trail->{$file};
	},
	'rename a file' => sub {
		my ($trail, $file) = @_;

		$trail->{ $file =~ s/(?=\.)/.1/r } = delete $trail->{$file};
	},
	'copy a file' => sub {
		my ($trail, $file) = @_;

		$trail->{ pick_file($trail) } = $trail->{$file};
	},
	'another copy' => sub {
		my ($trail, $file) = @_;

		$trail->{"copy-$file"} = $trail->{$file} if $file !~ /seals/;
	},
	'exchange files' => sub {
		my ($trail, $file) = @_;
		my $other = pick_file($trail);

		@$trail{ $file, $other } = @$trail{ $other, $file };
	},
	'empty a file' => sub {
		my ($trail, $file) = @_;

		$trail->{$file} = '';
	},
	'a few digits' => sub {
		my ($trail, $file) = @_;
		my @at;

		push @at, $-[0] while $trail->{$file} =~ /[0-9a-f]/g;
		substr($trail->{$file}, pick(@at), 1) = pick(0 .. 9, 'a' .. 'f', 'A' .. 'F') if @at;
	},
	'case of a letter' => sub {
		my ($trail, $file) = @_;
		my @at;

		push @at, $-[0] while $trail->{$file} =~ /[A-Za-z]/g;
		substr($trail->{$file}, pick(@at), 1) ^= ' ' if @at;
	});

# Empty files tell nothing.
sub same
{
	my ($one, $two) = map {
		my $trail = $_;
		+{ map { $_ => $trail->{$_} } grep { length $trail->{$_} } keys %$trail };
	} @_;

	return keys %$one == keys %$two
	  && !grep { !defined $two->{$_} || $one->{$_} ne $two->{$_} } keys %$one;
}

# ---------------------------------------------------------------------------
# Rounds
# ---------------------------------------------------------------------------

my $copy = PostgreSQL::Test::Utils::tempdir() . '/trail';
mkdir($copy) or die "mkdir: $!";
my %there;

# Have the directory be that trail: write what differs.
sub put_trail
{
	my ($trail) = @_;

	foreach my $file (keys %there)
	{
		next if defined $trail->{$file};
		unlink("$copy/$file") or die "unlink: $!";
		delete $there{$file};
	}
	foreach my $file (keys %$trail)
	{
		next if defined $there{$file} && $there{$file} eq $trail->{$file};
		Sealed::put("$copy/$file", $trail->{$file});
		$there{$file} = $trail->{$file};
	}
	return;
}

# A shell would take longer than the program, as would IPC::Run.
my $output = PostgreSQL::Test::Utils::tempdir() . '/output';

sub verify
{
	my (@arguments) = @_;
	my $pid = fork() // die "fork: $!";

	if ($pid == 0)
	{
		open(STDOUT, '>', $output) && open(STDERR, '>&', \*STDOUT) or die "open: $!";
		alarm(60);
		exec(Sealed::program(), 'verify', '-k', $sealed->{file}, @arguments) or die "exec: $!";
	}
	waitpid($pid, 0);
	return $? & 127 ? "signal $?" : $? >> 8;
}

put_trail(\%honest);
is(verify("--until=$until", $copy), 0, 'the trail as it was') or diag(slurp_file($output));
my %kinds;
my $same = 0;
foreach my $number ($rounds->numbers)
{
	my %trail = %honest;
	my @done;

	$rounds->begin($number);
	foreach (1 .. 1 + int(rand 3))
	{
		my $kind = pick(sort keys %changes);
		my $file = pick_file(\%trail) // last;

		push @done, "$kind: $file";
		$kinds{$kind}++;
		$changes{$kind}->(\%trail, $file);
	}
	put_trail(\%trail);
	my $is_same = same(\%trail, \%honest);
	my $status  = verify("--until=$until", $copy);
	my $text    = slurp_file($output);

	$same += $is_same;
	next if $status eq ($is_same ? 0 : 1) && ($is_same || $text =~ /^FIRST FINDING: [ -~]+$/m);
	last if $rounds->failed($number, join(', ', @done), ["status $status", $text], $copy);
}
note("$kinds{$_} times: $_") foreach sort keys %kinds;
note("$same times the same as before");
$rounds->finish('each change is found');

done_testing();
