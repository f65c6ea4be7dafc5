#-------------------------------------------------------------------------
#
# PaqBuild.pm
#	Builds what tests need beside the installed library: libraries and programs of
#	their own, and servers in folders of their own.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqBuild;

use strict;
use warnings;

use Exporter 'import';
use Cwd qw(abs_path);
use Digest::SHA qw(sha1_hex);
use Fcntl qw(LOCK_EX);
use File::Basename qw(basename dirname);
use File::Compare qw(compare);
use File::Copy qw(copy);
use FindBin;
use IPC::Run;

use PostgreSQL::Test::Utils;

our @EXPORT = qw(
  bare_install
  build_preloaded
  build_test_library
  fault_install
  least_install
  least_trail_program
  other_install
  other_trail_program
  sanitizers
  set_faults
);

# What the compiler is told besides (scripts/coverage): objects of two builds do not go
# together without.
my $copt = $ENV{PAQ_COPT} // '';

# Macros that say which libraries there are
my $without = qr/PAQ_WITH_/;

# build_test_library($folder, $name): build the library of that name from a folder of t/, by
# its Makefile or, if it has none, by t/lib/library.mk.  Returns its path without the ending.
sub build_test_library
{
	my ($folder, $name) = @_;
	my $dir    = PostgreSQL::Test::Utils::tempdir();
	my $source = "$FindBin::RealBin/../lib/$folder";
	my $output;

	copy("$source/$name.c", "$dir/$name.c") or die "could not copy $name.c: $!";
	copy(-e "$source/Makefile" ? "$source/Makefile" : "$source/../library.mk", "$dir/Makefile")
	  or die "could not copy a makefile: $!";
	IPC::Run::run(
		[
			'make', '-C', $dir, 'PG_CONFIG=pg_config', "NAME=$name",
			'PAQ_SRC=' . abs_path("$FindBin::RealBin/../../src")
		],
		'>', \$output, '2>&1')
	  or die "could not build $name: $output";
	return "$dir/$name";
}

# build_preloaded($name): build the library t/lib/NAME/NAME.c, which stands in front of
# functions of libc when a server is started with it in LD_PRELOAD.  Returns its
# path.
sub build_preloaded
{
	my ($name) = @_;
	my $library = PostgreSQL::Test::Utils::tempdir() . "/$name.so";
	my $output;

	chomp(my $compiler = `pg_config --cc`);
	IPC::Run::run(
		[
			split(' ', $compiler), '-shared', '-fPIC', '-o', $library,
			"$FindBin::RealBin/../lib/$name/$name.c", '-ldl'
		],
		'>&', \$output) or die "could not build $name.so: $output";
	return $library;
}

# sanitizers(): what the server is built with of AddressSanitizer and its kin, as
# gcc's option -fsanitize wants it; '' for none.
sub sanitizers
{
	return `pg_config --cflags` =~ /-fsanitize=(\S+)/ ? $1 : '';
}

# fault_install(): build the library with the points of src/fault.h, and put it into a
# copy of the server, which the tests of a run have in common and leave as it is.  Returns
# what install_path of audited_node() wants.
sub fault_install
{
	return _common_install('pg_config', qr/PAQ_FAULT_POINTS/, '-DPAQ_FAULT_POINTS');
}

# other_install($pg_config): the same for the server that this program is of, with the
# library as it is.
sub other_install
{
	my ($pg_config) = @_;

	return _common_install($pg_config, undef, '');
}

# least_install(): the same for the server that is tested, with the library as it is built
# where nothing is that it can do without: zstd, lz4, OpenSSL, and lz4 in the server.
sub least_install
{
	return _common_install(
		'pg_config', qr/$without|USE_LZ4/,
		"-include $FindBin::RealBin/../lib/without_lz4.h",
		map { "WITH_$_=no" } qw(ZSTD LZ4 OPENSSL));
}

# least_trail_program(): build pg_audit_trail where nothing is that it can do without: zstd,
# lz4, OpenSSL, librdkafka.  Returns its path.
sub least_trail_program
{
	return other_trail_program($without, '', map { "WITH_$_=no" } qw(ZSTD LZ4 OPENSSL KAFKA));
}

# other_trail_program($macros, $flags, @options): build it with more flags of the compiler,
# and options of make, which change what the macros that the regular expression matches
# are.  Returns its path.
sub other_trail_program
{
	my ($macros, $flags, @options) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my $program = "$dir/src/bin/pg_audit_trail/pg_audit_trail";

	system_or_bail('cp', '-Rp', (map { "$FindBin::RealBin/../../$_" } qw(src doc pg_audit_queue.control)), $dir);
	_remove_objects($dir, _is_installed('--bindir', 'src/bin/pg_audit_trail/pg_audit_trail') ? $macros : undef);
	# make takes it for new as long as no object is newer, even if one is missing
	unlink $program;
	system_or_bail("make -s -C $dir/src/bin/pg_audit_trail PG_CONFIG=pg_config COPT='$flags $copt'"
		  . " @options >$dir/build.log 2>&1");
	return $program;
}

# bare_install($pg_config): a copy of that server, by default of the one that is
# tested, without the library and the extension's files.  Extensions can be built for it.
sub bare_install
{
	my ($pg_config) = @_;

	return _copy_server($pg_config // 'pg_config', PostgreSQL::Test::Utils::tempdir());
}

# A copy of that server with the library for it, built as other_trail_program() builds.  That
# takes a while, so the tests of a run, which have a directory in common, do it once: the
# first that needs it, while others wait.
sub _common_install
{
	my ($pg_config, $macros, $flags, @options) = @_;
	my $source  = "$FindBin::RealBin/../..";
	my @sources = map { glob("$source/$_") } qw(src Makefile exports.txt *.c *.control *.sql);
	my $common  = abs_path($PostgreSQL::Test::Utils::tmp_check);
	my $dir     = "$common/built_" . sha1_hex("$flags @options", `$pg_config`);
	my $built   = "$dir/library";
	my $changed = "find @sources -type f \\( -name '*.[ch]' -o -name 'Makefile*' \\) -newer $dir/path";

	open my $lock, '>', "$dir.lock" or die "$dir.lock: $!";
	flock($lock, LOCK_EX) or die "$dir.lock: $!";
	return slurp_file("$dir/path") if -e "$dir/path" && !`$changed`;

	system_or_bail('rm',    '-rf', $dir);
	system_or_bail('mkdir', '-p',  $built);
	system_or_bail('cp',    '-Rp', @sources, $built);
	_remove_objects($built, _is_installed('--pkglibdir', 'pg_audit_queue.so') ? $macros : undef);
	system_or_bail("make -s -C $built PG_CONFIG=$pg_config COPT='$flags $copt'"
		  . " @options pg_audit_queue.so >$dir/build.log 2>&1");

	my $path = _copy_server($pg_config, "$dir/server");
	chomp(my $libraries = `$path/bin/pg_config --pkglibdir`);
	chomp(my $shared = `$path/bin/pg_config --sharedir`);

	system_or_bail('cp', "$built/pg_audit_queue.so", "$libraries/");
	system_or_bail('cp', glob("$built/*.control"), glob("$built/*.sql"), "$shared/extension/");
	append_to_file("$dir/path", $path);
	return $path;
}

# Is the file that has been built in the sources the one that is installed in that
# directory of the server that is tested?  Then the objects there are of its build, too.
sub _is_installed
{
	my ($directory, $file) = @_;
	my ($installed) = map { s/\n//r } `pg_config $directory`;

	return compare("$FindBin::RealBin/../../$file", "$installed/" . basename($file)) == 0;
}

# Remove from a copy of the sources the objects that were built with other macros than the
# regular expression matches: all of them if it is undefined.  Others need not be compiled
# again, which takes long.
sub _remove_objects
{
	my ($dir, $macros) = @_;
	my @names = map { s{^\Q$dir\E/}{}r } split /\n/, `find $dir -name '*.[cho]'`;
	my %text  = map { $_ => slurp_file("$dir/$_") } grep { !/\.o$/ } @names;
	my @found = grep { !defined $macros || $text{$_} =~ $macros } keys %text;
	my %has   = map { $_ => 1 } @found;

	# headers that have them, and what includes these
	while (@found)
	{
		my $headers = join '|', map { quotemeta(basename($_)) } grep { /\.h$/ } @found;

		last if $headers eq '';
		@found = grep { !$has{$_} && $text{$_} =~ m{^#include "(?:[^"]*/)?(?:$headers)"}m } keys %text;
		$has{$_} = 1 foreach @found;
	}

	# The program's objects of files in other folders have these folders' names in theirs.
	my %of = map { s/\.c$/.o/r => 1 } keys %has;
	$of{ 'src/bin/pg_audit_trail/' . s{^src/(?:(\w+)/)?}{defined $1 ? "$1_" : ''}er } = 1
	  foreach grep { m{^src/(?!bin/)} } keys %of;
	unlink map { "$dir/$_" } grep { /\.o$/ && (!defined $macros || $of{$_}) } @names;
	return;
}

# Copy the server's programs below a directory, and link to the rest: the server
# finds its other files from where its program is.
sub _copy_server
{
	my ($pg_config, $base) = @_;
	my %dir =
	  map { chomp(my $dir = `$pg_config --$_`); $_ => $dir }
	  qw(bindir includedir-server pkglibdir sharedir);

	foreach my $name (qw(bindir pkglibdir sharedir))
	{
		my $copy = "$base$dir{$name}";

		system_or_bail('mkdir', '-p', $copy);
		system_or_bail('cp',
			$name eq 'bindir' ? '-RL' : ('-Rs', '--no-preserve=mode'),
			"$dir{$name}/.", $copy);
	}
	system_or_bail('mkdir', '-p', dirname("$base$dir{'includedir-server'}"));
	system_or_bail('ln', '-s', $dir{'includedir-server'}, "$base$dir{'includedir-server'}");
	unlink("$base$dir{pkglibdir}/pg_audit_queue.so",
		glob("$base$dir{sharedir}/extension/pg_audit_queue*"));
	return "$base$dir{bindir}/..";
}

# set_faults($node, %faults): what the points of a node of fault_install() do
# from now on, by name; see src/fault.c.  Points that are not named do nothing.
sub set_faults
{
	my ($node, %faults) = @_;
	my $file = $node->data_dir . '/pg_audit_queue.fault';

	# never half written
	append_to_file("$file.new", join '',
		map { "$_ $faults{$_}\n" } sort keys %faults);
	rename("$file.new", $file) or die "rename: $!";
	return;
}

1;
