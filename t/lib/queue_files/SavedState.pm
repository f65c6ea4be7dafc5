#-------------------------------------------------------------------------
#
# SavedState.pm
#	Queue and trail directory of a server that does not run, to be restored
#	any number of times.
#
#	my $state = SavedState->save($node, 'name');
#	$state->restore(queue => $other_bytes);
#
# A queue file knows its inode and the inode's time of birth.  So each queue
# file has a hard link somewhere else, and a restored file is the same file with
# its contents overwritten.  The same goes for trail files, whose inodes the
# queue file knows.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package SavedState;

use strict;
use warnings;

use Time::HiRes ();

use File::Path qw(rmtree);
use PaqTest;
use PostgreSQL::Test::Utils;

sub save
{
	my ($class, $node, $name) = @_;
	my $links = queue_dir($node) . ".links.$name";
	my $self  = bless {
		name  => $name,
		queue => queue_dir($node),
		trail => trail_dir($node),
		links => $links,
		files => {},
		spill => {},
		old   => {}
	}, $class;

	mkdir($links) or die "mkdir $links: $!";
	foreach my $file (slurp_dir($self->{queue}))
	{
		my $path = "$self->{queue}/$file";

		if ($file =~ /^queue(?:\.\d+)?$/)
		{
			$self->{files}{$file} = read_file($path);
			link($path, "$links/$file") or die "link $path: $!";
		}
		elsif ($file =~ /^spill/)
		{
			$self->{spill}{$file} = read_file($path);
		}
	}
	foreach my $path (trail_files($node))
	{
		my @stat = stat $path;
		my $link = "$links/trail." . @{ $self->{trail_files} // [] };

		link($path, $link) or die "link $path: $!";

		push @{ $self->{trail_files} },
		  {
			path  => $path,
			link  => $link,
			mode  => $stat[2] & 07777,
			mtime => (Time::HiRes::stat($path))[9],
			bytes => read_file($path)
		  };
	}
	return $self;
}

# files(): names of the queue files, oldest first.
sub files
{
	my ($self) = @_;

	return sort { ($a =~ /(\d+)/ ? $1 : 1e9) <=> ($b =~ /(\d+)/ ? $1 : 1e9) }
	  keys %{ $self->{files} };
}

sub spill_files
{
	my ($self) = @_;

	return sort keys %{ $self->{spill} };
}

# bytes($name): of a queue file or a spill file.
sub bytes
{
	my ($self, $name) = @_;

	return $self->{files}{$name} // $self->{spill}{$name};
}

# files_of_trail(): hashes with path and bytes, oldest first.
sub files_of_trail
{
	my ($self) = @_;

	return @{ $self->{trail_files} // [] };
}

# restore(%bytes): everything as it was, but for the contents of queue and
# spill files and trail files (by path) that are given; undef: the file is
# missing.
sub restore
{
	my ($self, %bytes) = @_;

	_empty($self->{queue}, 'lock');
	_empty($self->{trail});
	foreach my $name ($self->files)
	{
		my $link = "$self->{links}/$name";

		next if exists $bytes{$name} && !defined $bytes{$name};
		chmod 0600, $link;
		write_file($link, $bytes{$name} // $self->{files}{$name});
		link($link, "$self->{queue}/$name") or die "link $name: $!";
	}
	foreach my $name ($self->spill_files)
	{
		write_file("$self->{queue}/$name", $bytes{$name} // $self->{spill}{$name})
		  if !exists $bytes{$name} || defined $bytes{$name};
	}
	foreach my $file ($self->files_of_trail)
	{
		next if exists $bytes{ $file->{path} } && !defined $bytes{ $file->{path} };
		chmod 0600, $file->{link};
		write_file($file->{link}, $bytes{ $file->{path} } // $file->{bytes});
		link($file->{link}, $file->{path}) or die "link $file->{path}: $!";
		chmod $file->{mode}, $file->{path};
		Time::HiRes::utime($file->{mtime}, $file->{mtime}, $file->{path});
	}
	return;
}

sub _empty
{
	my ($dir, $keep) = @_;

	foreach my $name (slurp_dir($dir))
	{
		next if $name =~ /^\.\.?$/ || $name eq ($keep // '');
		chmod 0700, "$dir/$name" if !-l "$dir/$name";
		rmtree("$dir/$name");
		unlink("$dir/$name");
	}
	return;
}

# write_file($path, $bytes): into the file that is there, if there is one.
sub write_file
{
	my ($path, $bytes) = @_;

	open my $fh, '+>:raw', $path or die "open $path: $!";
	print $fh $bytes;
	close $fh or die "close $path: $!";
	return;
}

# read_file($path): as bytes, which slurp_file() would change on some systems.
sub read_file
{
	my ($path) = @_;

	open my $fh, '<:raw', $path or die "open $path: $!";
	local $/ = undef;
	my $bytes = <$fh>;
	close $fh;
	return $bytes;
}

1;
