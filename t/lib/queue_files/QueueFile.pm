#-------------------------------------------------------------------------
#
# QueueFile.pm
#	A queue file as bytes: the places and contents of its parts.
#
#	my $queue = QueueFile->parse($bytes);
#	foreach my $frame ($queue->frames) ...
#
# The offsets come from layout.c, which is compiled against the project's
# headers.  Nothing is judged here: checksums are not looked at, and any place
# with the stamp of that place is a frame.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package QueueFile;

use strict;
use warnings;

use FindBin;

use PostgreSQL::Test::Utils;

my $layout;

# layout(): the numbers of layout.c by name.
sub layout
{
	$layout //= _compile_layout();
	return $layout;
}

sub _compile_layout
{
	my $program = PostgreSQL::Test::Utils::tempdir() . '/layout';
	chomp(my $include = `pg_config --includedir-server`);
	my %numbers;

	system_or_bail('cc', '-O2', '-D_GNU_SOURCE', "-I$FindBin::RealBin/../../src",
		"-I$include", '-o', $program, "$FindBin::RealBin/../lib/queue_files/layout.c");
	%numbers = map { split } split /\n/, `$program`;
	die 'no layout' if !$numbers{page};
	return \%numbers;
}

# crc32c($bytes), as PostgreSQL computes it
sub crc32c
{
	my ($bytes) = @_;
	my $crc = 0xFFFFFFFF;

	foreach my $byte (unpack 'C*', $bytes)
	{
		$crc ^= $byte;
		$crc = $crc & 1 ? $crc >> 1 ^ 0x82F63B78 : $crc >> 1 for 1 .. 8;
	}
	return $crc ^ 0xFFFFFFFF;
}

# Numbers at an offset
sub u32
{
	my ($bytes, $offset) = @_;

	return unpack 'L<', substr($$bytes, $offset, 4);
}

sub u64
{
	my ($bytes, $offset) = @_;

	return unpack 'Q<', substr($$bytes, $offset, 8);
}

# parse($bytes): of a file whose header is unharmed; keeps a
# reference to the bytes.
sub parse
{
	my ($class, $bytes) = @_;
	my $l    = layout();
	my $self = bless { bytes => \$_[1] }, $class;

	die 'not a queue file'
	  if length $bytes < 5 * $l->{page}
	  || u32(\$bytes, $l->{'header.version'}) != $l->{version};
	$self->{nslots} = u32(\$bytes, $l->{'header.nslots'});
	$self->{$_} = u64(\$bytes, $l->{"header.$_"})
	  foreach qw(slots_offset ring_offset ring_size salt);
	$self->{live}    = 3 * $l->{page};
	$self->{headers} = [ 0, 4 * $l->{page} ];
	$self->{checkpoints} = [ $l->{page}, 2 * $l->{page} ];
	$self->{$_} = u64(\$bytes, $self->{live} + $l->{"live.$_"})
	  foreach qw(reserved released drained);
	return $self;
}

# check_layout(): die if a whole file's layout is not what we think it is.
sub check_layout
{
	my ($self) = @_;
	my $bytes  = $self->{bytes};
	my ($header, $other) =
	  map { substr($$bytes, $_, layout()->{header}) } @{ $self->{headers} };
	my $drained = $self->checkpoint->{drained};

	die 'the second header is not where it was' if $header ne $other;
	die 'the checkpoints are not where they were'
	  if $drained < $self->{released} || $drained > $self->{reserved};
	return;
}

# checkpoint(): the newest checkpoint as a hash.
sub checkpoint
{
	my ($self) = @_;
	my $l      = layout();
	my $bytes  = $self->{bytes};
	my ($at) = sort {
		u64($bytes, $b + $l->{'checkpoint.counter'}) <=>
		  u64($bytes, $a + $l->{'checkpoint.counter'})
	} @{ $self->{checkpoints} };
	my $trail = $at + $l->{'checkpoint.trail'};

	return {
		offset => $at,
		(map { $_ => u64($bytes, $at + $l->{"checkpoint.$_"}) }
			  qw(drained flushed sequence synced_end)),
		trail_offset  => u64($bytes, $trail + $l->{'trail.offset'}),
		trail_flushed => u64($bytes, $trail + $l->{'trail.flushed'}),
		trail_file =>
		  unpack('Z*', substr($$bytes, $trail + $l->{'trail.file'}, 1024))
	};
}

# ranges($pos, $length): what a piece of the ring is in the file, as pairs of
# offset and length: two if it crosses the ring's end.
sub ranges
{
	my ($self, $pos, $length) = @_;
	my $offset = $pos % $self->{ring_size};
	my $first  = $self->{ring_size} - $offset;

	return [ $self->{ring_offset} + $offset, $length ] if $length <= $first;
	return (
		[ $self->{ring_offset} + $offset, $first ],
		[ $self->{ring_offset}, $length - $first ]);
}

# at($bytes, @ranges): these pieces of other bytes, as one string; zeros where
# there is nothing.
sub at
{
	my ($bytes, @ranges) = @_;

	return join '', map {
		my ($offset, $length) = @$_;
		my $piece = $offset < length $$bytes ? substr($$bytes, $offset, $length) : '';

		$piece . "\0" x ($length - length $piece)
	} @ranges;
}

# frames(): what has the stamp of a committed frame at its place, whatever the
# lap, in order: hashes with pos, size, length, ranges, bytes, record, and
# skip, which is true if it is what is left of a lap.
sub frames
{
	my ($self) = @_;
	my $l      = layout();
	my $bytes  = $self->{bytes};
	my $ring   = substr($$bytes, $self->{ring_offset}, $self->{ring_size});
	my @stamps = unpack 'Q<*', $ring;
	my @frames;

	foreach my $index (0 .. $#stamps)
	{
		my $stamp = $stamps[$index] ^ $self->{salt};
		my $pos   = $stamp & ~7;

		# other bytes have the low bits of a stamp, too
		next
		  if ($stamp & 7) != $l->{frame_committed}
		  || $pos % $self->{ring_size} != $index * 8
		  || $pos >= $self->{reserved};
		my $head   = at($bytes, $self->ranges($pos, $l->{frame}));
		my $size   = u32(\$head, $l->{'frame.size'});
		my $length = u32(\$head, $l->{'frame.length'});
		my @ranges = $self->ranges($pos, $size);

		push @frames,
		  {
			pos    => $pos,
			size   => $size,
			length => $length,
			skip   => u32(\$head, $l->{'frame.kind'}) == $l->{skip},
			ranges => \@ranges,
			bytes  => at($bytes, @ranges),
			record => substr(at($bytes, @ranges), $l->{frame}, $length)
		  };
	}
	return sort { $a->{pos} <=> $b->{pos} } @frames;
}

# entries(): what is in the pending slots and valid: hashes with published_at,
# ranges and record; the ranges include the entries before it, without which
# it would not be found.
sub entries
{
	my ($self) = @_;
	my $l      = layout();
	my $bytes  = $self->{bytes};
	my @entries;

	foreach my $number (0 .. $self->{nslots} - 1)
	{
		my $slot   = $self->{slots_offset} + $number * $l->{slot_size};
		my $used   = u32($bytes, $slot + $l->{'slot.used'});
		my $offset = $slot + $l->{slot};
		my $end    = $offset + $used;

		while ($offset < $end)
		{
			my $size = u32($bytes, $offset + $l->{'entry.size'});

			push @entries,
			  {
				published_at => u64($bytes, $offset + $l->{'entry.published_at'}),
				ranges => [ [ $slot, $offset + $size - $slot ] ],
				bytes  => substr($$bytes, $slot, $offset + $size - $slot),
				record => substr($$bytes, $offset + $l->{entry}, $size - $l->{entry})
			  }
			  if u32($bytes, $offset + $l->{'entry.valid'}) == 1;
			last if $size == 0;
			$offset += $size;
		}
	}
	return @entries;
}

# with_header($bytes, %fields): the same with other numbers (64 bits, but the
# version) in both headers, and good checksums.
sub with_header
{
	my ($bytes, %fields) = @_;

	return _with_header($bytes, layout(), %fields);
}

sub _with_header
{
	my ($bytes, $l, %fields) = @_;

	foreach my $at (0, 4 * $l->{page})
	{
		foreach my $name (sort keys %fields)
		{
			substr($bytes, $at + $l->{"header.$name"}, $name eq 'version' ? 4 : 8) =
			  pack($name eq 'version' ? 'L<' : 'Q<', $fields{$name});
		}
		substr($bytes, $at + $l->{'header.crc'}, 4) =
		  pack('L<', crc32c(substr($bytes, $at, $l->{'header.crc'})));
	}
	return $bytes;
}

# with_boot_id($bytes, $layout, $id): the same as a file that was in use in that
# run of the operating system.
sub with_boot_id
{
	my ($bytes, $l, $id) = @_;

	substr($bytes, 3 * $l->{page} + $l->{'live.boot_id'}, $l->{boot_id_len}) =
	  pack("Z$l->{boot_id_len}", $id);
	return $bytes;
}

# adopted($bytes, $layout, %identity): the same as a file of another server, of a
# build with that layout.  The identity is system_identifier, inode and boot_id,
# and trail_inode, a sub that tells the inode of a trail file by its path.
sub adopted
{
	my ($bytes, $l, %identity) = @_;
	my $salt = u64(\$bytes, $l->{'header.salt'});

	$bytes = _with_header($bytes, $l,
		(map { $_ => $identity{$_} } qw(system_identifier inode)), birth => 0);
	foreach my $at ($l->{page}, 2 * $l->{page})
	{
		my $trail = $at + $l->{'checkpoint.trail'};
		my $file  = unpack('Z*', substr($bytes, $trail + $l->{'trail.file'}, 1024));

		next if u64(\$bytes, $at + $l->{'checkpoint.counter'}) == 0;
		substr($bytes, $trail + $l->{'trail.inode'}, 8) =
		  pack('Q<', $identity{trail_inode}->($file))
		  if $file ne '';
		substr($bytes, $at + $l->{'checkpoint.crc'}, 4) = pack('L<',
			crc32c(pack('Q<', $salt) . substr($bytes, $at, $l->{'checkpoint.crc'})));
	}
	return with_boot_id($bytes, $l, $identity{boot_id});
}

1;
