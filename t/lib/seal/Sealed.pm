#-------------------------------------------------------------------------
#
# Sealed.pm
#	A sealed trail, for tests: verify it, look at its seals, and forge them.
#
#	my $sealed = Sealed->new($data_directory);
#	my ($status, $output) = $sealed->verify(@arguments, $directory);
#	my @seals = Sealed::seals($directory);
#
# What is here is written from the comment of src/trail/seal.h, not from the code: so
# it also shows that others can verify seals.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package Sealed;

use strict;
use warnings;

use Digest::SHA qw(sha256 sha256_hex hmac_sha256 hmac_sha256_hex);
use IPC::Run;
use PostgreSQL::Test::Utils;

my @fields = qw(mark epoch time kind due file from to first last sha256 chain mac);

# program(): path of pg_audit_trail; undef if it was not built.
sub program
{
	chomp(my $program = `pg_config --bindir`);
	$program .= '/pg_audit_trail';
	return -x $program ? $program : undef;
}

# run(@arguments): run it; returns status, output and messages.
sub run
{
	my (@arguments) = @_;
	my ($stdout, $stderr) = ('', '');

	IPC::Run::run([ program(), @arguments ], '<', \undef, '>', \$stdout, '2>', \$stderr);
	return ($? & 127 ? "signal $?" : $? >> 8, $stdout, $stderr);
}

# new($data_directory): make the server's key; the verification key is kept.
sub new
{
	my ($class, $data_directory) = @_;
	my ($status, $key, $messages) = run('keygen', '-D', $data_directory);

	die "keygen: $messages" if $status != 0;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/key';
	append_to_file($file, $key);
	chmod(0600, $file) == 1 or die "chmod: $!";
	my ($hex) = $key =~ /^([0-9a-f-]{71})$/m or die "no key: $key";
	$hex =~ tr/-//d;
	return bless {
		key    => $key,
		file   => $file,
		secret => pack('H*', $hex),
		state  => "$data_directory/pg_audit_queue/pgsql_tmp.seal_key"
	}, $class;
}

# verify(@arguments): returns status and all output.
sub verify
{
	my ($self, @arguments) = @_;
	my ($status, $stdout, $stderr) = run('verify', '-k', $self->{file}, @arguments);

	return ($status, $stdout . $stderr);
}

# seals_file($directory): the path of the file of seals; there must be only one.
sub seals_file
{
	my ($directory) = @_;
	my @files = glob("$directory/pg_audit_queue.seals.*");

	die "$directory has " . @files . ' files of seals' if @files != 1;
	return $files[0];
}

# seals($directory): its seals, in order, each as a hash; their key "line" has the line.
sub seals
{
	my ($directory) = @_;

	return map { parse($_) } split /\n/, slurp_file(seals_file($directory));
}

sub parse
{
	my ($line) = @_;
	my %seal = (line => $line);

	@seal{@fields} = split / /, $line, -1;
	return \%seal;
}

# put_seals($directory, @seals): replace the file of seals.
sub put_seals
{
	my ($directory, @seals) = @_;

	put(seals_file($directory), join('', map { "$_->{line}\n" } @seals));
	return;
}

# put($path, $bytes): replace a file's content.
sub put
{
	my ($path, $bytes) = @_;

	open(my $fh, '>:raw', $path) or die "$path: $!";
	print $fh $bytes;
	close($fh) or die "$path: $!";
	return;
}

# next_secret($secret), id($secret): as seal.h says
sub next_secret
{
	return hmac_sha256('pg_audit_queue next epoch', $_[0]);
}

sub id
{
	return substr(hmac_sha256_hex('pg_audit_queue seal key id', $_[0]), 0, 16);
}

# secret_of($epoch): of the server's key, from the verification key.
sub secret_of
{
	my ($self, $epoch) = @_;
	my $secret = $self->{secret};

	$secret = next_secret($secret) foreach 1 .. $epoch;
	return $secret;
}

# state(): what a thief finds in the server's file: epoch and secret.
sub state
{
	my ($self) = @_;
	my $bytes = slurp_file($self->{state});
	my @states;

	foreach my $at (0, 8192)
	{
		my $slot = substr($bytes, $at, 512);
		my ($magic, $id, $epoch, $secret) = unpack('a8 a8 Q< a32', $slot);

		push @states, { epoch => $epoch, secret => $secret } if $magic eq 'PAQSEAL1';
	}
	die 'there are ' . @states . ' secrets' if @states != 1;
	return $states[0];
}

# forge(\@seals, $first, $secret, %options): make all lines from number $first on anew
# from their fields: digests are chained anew, and authenticated.  The option evolve says
# that $secret is that of the first of them, and the others' follow; otherwise it is used
# for all.
sub forge
{
	my ($seals, $first, $secret, %options) = @_;

	foreach my $number ($first .. $#$seals)
	{
		my $seal  = $seals->[$number];
		my $chain = $number > 0 ? pack('H*', $seals->[ $number - 1 ]{chain}) : "\0" x 32;
		my $line  = join ' ', map { $seal->{$_} } @fields[ 0 .. 10 ];

		$seal->{chain} = sha256_hex($chain . $line);
		$line .= " $seal->{chain}";
		$seal->{mac} = hmac_sha256_hex($line, hmac_sha256('pg_audit_queue seal', $secret));
		$seal->{line} = "$line $seal->{mac}";
		$secret = next_secret($secret) if $options{evolve};
	}
	return;
}

# digest_again($directory, $seal): have the seal of a range fit the file as it is now.
sub digest_again
{
	my ($directory, $seal) = @_;

	$seal->{sha256} =
	  sha256_hex(substr(slurp_file("$directory/$seal->{file}"), $seal->{from},
		$seal->{to} - $seal->{from}));
	return;
}

# faults($directory, %options): what is wrong with the seals as such: are all epochs there,
# does each file's range begin where the last one ended, and the last one end with the
# file?  The option partly says that more may have been written.
sub faults
{
	my ($directory, %options) = @_;
	my %end;
	my @faults;
	my $epoch = 0;

	foreach my $seal (seals($directory))
	{
		my $file = $seal->{file};

		push @faults, "epoch $seal->{epoch} instead of $epoch" if $seal->{epoch} != $epoch++;
		$end{$file} = $seal->{to} if $seal->{kind} =~ /^(?:new|before)$/;
		delete $end{$file} if $seal->{kind} eq 'removed';
		next if $seal->{kind} !~ /^(?:time|request|finish|stop)$/;
		push @faults, "$file from $seal->{from}, not " . ($end{$file} // 'announced')
		  if ($end{$file} // -1) != $seal->{from};
		$end{$file} = $seal->{to};
	}
	foreach my $file (sort keys %end)
	{
		my $size = -s "$directory/$file" // 'missing';

		push @faults, "$file is sealed up to $end{$file}, but is $size"
		  if $size ne $end{$file} && !$options{partly};
	}
	return @faults;
}

1;
