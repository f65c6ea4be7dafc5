#-------------------------------------------------------------------------
#
# Mutation.pm
#	Random damage to a queue file.
#
#	my $mutation = Mutation::pick($bytes, \@older);
#
# A mutation is a hash:
#
#	what		text for people
#	bytes		the file's new contents, or
#	place		sub(path, directory) that puts something else in the place of
#				the restored file, or
#	add			sub(directory) that puts something beside it
#	outdated	true: the contents are good, but from an earlier time
#	unusable	true: the file as such is lost, whatever its contents
#
# Random numbers are rand()'s: a caller of srand() can have the same mutations
# again.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package Mutation;

use strict;
use warnings;

use Cwd;
use File::Copy;
use IO::Socket::UNIX;
use POSIX qw(mkfifo);

use QueueFile;

sub between
{
	my ($low, $high) = @_;

	return $low + int(rand($high - $low + 1));
}

sub choose
{
	return $_[ rand @_ ];
}

# Where in the file: a name, offset and length of a part.
sub _part
{
	my ($bytes) = @_;
	my $l       = QueueFile::layout();
	my $queue   = QueueFile->parse($bytes);
	my $page    = $l->{page};
	my $slots   = $queue->{nslots} * $l->{slot_size};

	return @{
		choose(
			[ 'header', 0, $l->{header} ],
			[ 'second header', 4 * $page, $l->{header} ],
			[ 'checkpoint', choose($page, 2 * $page), $l->{checkpoint} ],
			[ 'newest checkpoint', $queue->checkpoint->{offset}, $l->{checkpoint} ],
			[ 'both checkpoints', $page, $page + $l->{checkpoint} ],
			[ 'positions', 3 * $page, $l->{live} ],
			[ 'slots', $queue->{slots_offset}, $slots ],
			_slot_in_use($queue),
			[ 'ring', $queue->{ring_offset}, $queue->{ring_size} ],
			_unread_part($queue),
			[ 'file', 0, length $bytes ])
	};
}

# A slot with something in it, if there is one
sub _slot_in_use
{
	my ($queue) = @_;
	my @entries = $queue->entries;

	return () if @entries == 0;
	my ($start, $length) = @{ choose(@entries)->{ranges}[0] };

	return [ 'slot in use', $start, $length ];
}

# What the trail does not have yet
sub _unread_part
{
	my ($queue) = @_;
	my $drained = $queue->{drained};
	my $length  = $queue->{reserved} - $drained;

	return () if $length <= 0;
	return [ 'unread records', @{ choose($queue->ranges($drained, $length)) } ];
}

sub _flip_bits
{
	my ($bytes) = @_;
	my ($name, $start, $length) = _part($bytes);
	my $count = between(1, 8);

	for (1 .. $count)
	{
		my $at = $start + between(0, $length - 1);

		substr($bytes, $at, 1) ^= chr(1 << between(0, 7));
	}
	return { what => "$count bits of $name", bytes => $bytes };
}

# Bytes all zero, all one, or random
sub _filling
{
	my ($length) = @_;
	my $kind = choose('zeros', 'ones', 'noise');

	return ($kind, "\0" x $length)   if $kind eq 'zeros';
	return ($kind, "\xff" x $length) if $kind eq 'ones';
	return ($kind, join '', map { chr(between(0, 255)) } 1 .. $length);
}

sub _overwrite_run
{
	my ($bytes) = @_;
	my ($name, $start, $length) = _part($bytes);
	my $run = between(1, $length < 3000 ? $length : 3000);
	my $at  = $start + between(0, $length - $run);
	my ($kind, $filling) = _filling($run);

	substr($bytes, $at, $run) = $filling;
	return { what => "$kind for $run bytes of $name", bytes => $bytes };
}

sub _random_page
{
	my ($bytes) = @_;
	my $page = QueueFile::layout()->{page};

	return between(0, length($bytes) / $page - 1) * $page;
}

sub _overwrite_pages
{
	my ($bytes) = @_;
	my $page  = QueueFile::layout()->{page};
	my $count = between(1, 4);
	my $kind;

	for (1 .. $count)
	{
		my $filling;

		($kind, $filling) = _filling($page);
		substr($bytes, _random_page($bytes), $page) = $filling;
	}
	return { what => "$count pages, last with $kind", bytes => $bytes };
}

sub _swap_pages
{
	my ($bytes) = @_;
	my $page = QueueFile::layout()->{page};
	my ($one, $other) = (_random_page($bytes), _random_page($bytes));
	my $kept = substr($bytes, $one, $page);

	substr($bytes, $one,   $page) = substr($bytes, $other, $page);
	substr($bytes, $other, $page) = $kept;
	return { what => "pages at $one and $other swapped", bytes => $bytes };
}

sub _older_pages
{
	my ($bytes, $older) = @_;
	my $page  = QueueFile::layout()->{page};
	my $count = choose(1, 1, 2, 5, 20);
	my $old   = choose(@$older) // return _swap_pages($bytes);
	my @at    = map { _random_page($bytes) } 1 .. $count;

	# these change all the time
	push @at, choose($page, 2 * $page, 3 * $page) if rand() < 0.5;
	substr($bytes, $_, $page) = substr($old, $_, $page) foreach @at;
	return { what => "old pages at @at", bytes => $bytes };
}

sub _truncate
{
	my ($bytes) = @_;
	my $size = choose(
		between(1, length($bytes) - 1),
		between(1, length($bytes) - 1),
		between(1, 6 * QueueFile::layout()->{page}));

	return {
		what  => "truncated to $size bytes",
		bytes => substr($bytes, 0, $size)
	};
}

sub _extend
{
	my ($bytes) = @_;
	my ($kind, $filling) = _filling(between(1, 20000));

	return {
		what  => "extended by " . length($filling) . " bytes of $kind",
		bytes => $bytes . $filling
	};
}

sub _other_header
{
	my ($bytes) = @_;
	my $l       = QueueFile::layout();
	my $name    = choose(qw(version system_identifier inode birth));
	my $value   = $name eq 'version' ? choose(0, 1, $l->{version} + 1, 0xFFFFFFFF)
	  : int(rand(2**48));

	return {
		what     => "another $name",
		bytes    => QueueFile::with_header($bytes, $name => $value),
		unusable => 1
	};
}

sub _empty
{
	return { what => 'zero length', bytes => '', unusable => 1 };
}

sub _whole_older
{
	my ($bytes, $older) = @_;
	my $old = choose(@$older) // return _empty();

	return { what => 'an older copy, in place', bytes => $old, outdated => 1 };
}

# Something else under the name; the file itself is beside it
sub _replace
{
	my $kind = choose(
		'copy', 'directory', 'full directory', 'dangling link',
		'link to the file', 'link to a directory', 'FIFO', 'socket', 'nothing');

	return {
		what     => "$kind in its place",
		unusable => 1,
		place    => sub {
			my ($path, $dir) = @_;
			my $real = "$dir/real." . ($path =~ m{([^/]+)$})[0];

			rename($path, $real) or die "rename $path: $!";
			if ($kind eq 'copy')
			{
				copy($real, $path) or die "copy: $!";
				chmod 0600, $path;
			}
			elsif ($kind =~ /^(?:full )?directory$/)
			{
				mkdir($path) or die "mkdir: $!";
				mkdir("$path/full") if $kind eq 'full directory';
			}
			elsif ($kind =~ /link/)
			{
				symlink(
					$kind eq 'dangling link' ? '/nowhere'
					: $kind eq 'link to the file' ? $real
					: '/tmp', $path)
				  or die "symlink: $!";
			}
			elsif ($kind eq 'FIFO')
			{
				mkfifo($path, 0600) or die "mkfifo: $!";
			}
			elsif ($kind eq 'socket')
			{
				_make_socket($path);
			}
		}
	};
}

# The whole path may be too long for one.
sub _make_socket
{
	my ($path) = @_;
	my ($dir, $name) = $path =~ m{^(.*)/([^/]+)$};
	my $back = getcwd();

	chdir($dir) or die "chdir: $!";
	IO::Socket::UNIX->new(Local => $name, Listen => 1) or die "socket: $!";
	chdir($back) or die "chdir: $!";
	return;
}

# Permissions are no reason to lose records
sub _permissions
{
	my $mode = choose(0400, 0, 0200, 0777);

	return {
		what  => sprintf('permissions %04o', $mode),
		place => sub { chmod($mode, $_[0]) or die "chmod: $!" }
	};
}

# Beside the queue file
sub _stranger
{
	my $name = choose(
		'queue.007', 'queue.99999999999', 'queue.4294967295', 'queue.0',
		'queue.new', 'queue.1x', 'queue.', 'queue.bad.1', 'queue.bad.4294967295',
		'spill.', 'spill.0000000000000000.1.1', 'spill.x', 'anything');
	my $kind = choose('empty file', 'file', 'directory', 'link', 'FIFO');

	return {
		what => "$kind $name beside it",
		add  => sub {
			my ($dir) = @_;
			my $path = "$dir/$name";

			return if -e $path;
			mkdir($path) if $kind eq 'directory';
			symlink('/nowhere', $path) if $kind eq 'link';
			mkfifo($path, 0600) if $kind eq 'FIFO';
			return if $kind !~ /file/;
			open my $fh, '>', $path or die "open $path: $!";
			print $fh 'no queue' x 2000 if $kind eq 'file';
			close $fh;
		}
	};
}

# pick($bytes, $older): a mutation of a queue file; $older are earlier contents.
sub pick
{
	my ($bytes, $older) = @_;
	my $kind = choose(
		(\&_flip_bits) x 8, (\&_overwrite_run) x 6,
		(\&_overwrite_pages) x 4, (\&_swap_pages) x 2,
		(\&_older_pages) x 5,     (\&_truncate) x 3,
		(\&_extend) x 1,          (\&_other_header) x 2,
		(\&_empty) x 1,           (\&_whole_older) x 1,
		(\&_replace) x 3,         (\&_permissions) x 1,
		(\&_stranger) x 3);

	return $kind->($bytes, $older);
}

# pick_spill($bytes): of a spill file.
sub pick_spill
{
	my ($bytes) = @_;
	my $kind = choose('missing', 'truncated', 'bits', 'directory', 'link');

	return { what => "spill file $kind", bytes => undef } if $kind eq 'missing';
	return {
		what  => "spill file $kind",
		bytes => substr($bytes, 0, between(0, length($bytes) - 1))
	} if $kind eq 'truncated';
	return {
		what => "spill file $kind",
		place => sub {
			unlink($_[0]);
			$kind eq 'link' ? symlink('/etc/passwd', $_[0]) : mkdir($_[0]);
		}
	} if $kind ne 'bits';
	substr($bytes, between(0, length($bytes) - 1), 1) ^= chr(1 << between(0, 7));
	return { what => "spill file $kind", bytes => $bytes };
}

1;
