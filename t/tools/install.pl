# make install puts pg_audit_trail where a shell finds it, and its man page where man
# does, without replacing anything, and make uninstall takes both away.  The man page
# has all that doc/pg_audit_trail.md has.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use Cwd qw(abs_path);
use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use IPC::Run;
use Test::More;

use PostgreSQL::Test::Utils;

need_trail_program();

my $root = abs_path("$FindBin::RealBin/../..");
my $name = 'pg_audit_trail';
my $man  = "share/man/man1/$name.1";
chomp(my $pg_config = `sh -c 'command -v pg_config'`);
chomp(my %folder = map { $_ => scalar `$pg_config --$_` } qw(bindir mandir));

# As most shells have it: the server's programs are not in it.
my $path = join ':', grep { $_ ne $folder{bindir} } split /:/, $ENV{PATH};

# Call make for a target, with variables.  Returns its output.
sub make
{
	my ($target, %variables) = @_;
	my $output;

	%variables = (PG_CONFIG => $pg_config, with_llvm => 'no', %variables);
	local $ENV{PATH} = delete $variables{PATH} // $path;
	# what a make above this one was told
	delete local @ENV{qw(LINKPREFIX MAKEFLAGS)};
	IPC::Run::run(
		[ 'make', '-s', '-C', $root, $target, map { "$_=$variables{$_}" } sort keys %variables ],
		'>&', \$output)
	  or die "make $target fails: $output";
	return $output;
}

# All files and links below a folder
sub files
{
	my ($folder) = @_;

	return sort map { s{^\Q$folder\E}{}r } split /\n/, `find '$folder' ! -type d`;
}

# ---------------------------------------------------------------------------
# Installing and uninstalling
# ---------------------------------------------------------------------------

# Below DESTDIR, the links lead to where the files will be.
my $dest = PostgreSQL::Test::Utils::tempdir();
make('install', DESTDIR => $dest);
is(readlink("$dest/usr/local/bin/$name"), "$folder{bindir}/$name", 'a link to the program');
is(readlink("$dest/usr/local/$man"), "$folder{mandir}/man1/$name.1", 'a link to the man page');
ok(-x "$dest$folder{bindir}/$name", 'the program is there');
ok(-s "$dest$folder{mandir}/man1/$name.1", 'so is the man page');
make('install', DESTDIR => $dest);
is(readlink("$dest/usr/local/bin/$name"), "$folder{bindir}/$name", 'installed once more');
make('uninstall', DESTDIR => $dest);
is_deeply([ files($dest) ], [], 'uninstalled, nothing is left');

# What is there already stays.
system_or_bail('mkdir', '-p', "$dest/usr/local/bin", "$dest/usr/local/share/man/man1");
append_to_file("$dest/usr/local/bin/$name", "somebody's\n");
symlink('/elsewhere', "$dest/usr/local/$man") or die "symlink: $!";
my @before = files($dest);
like(make('install', DESTDIR => $dest), qr{\Q$dest\E/usr/local/bin/$name is left as it is}, 'it says so');
is(slurp_file("$dest/usr/local/bin/$name"), "somebody's\n", 'a file stays');
is(readlink("$dest/usr/local/$man"), '/elsewhere', 'and a link that leads elsewhere');
make('uninstall', DESTDIR => $dest);
is_deeply([ files($dest) ], \@before, 'also when it is uninstalled');
is(slurp_file("$dest/usr/local/bin/$name"), "somebody's\n", 'as it was');

# Who does not want links gets none.
$dest = PostgreSQL::Test::Utils::tempdir();
make('install', DESTDIR => $dest, LINKPREFIX => '');
make('install', DESTDIR => $dest, PATH => "$path:$folder{bindir}");
is_deeply([ grep { m{^/usr/local} } files($dest) ], [],
	'without LINKPREFIX, and where the program is in PATH, there are no links');

# Where they cannot be made, all else is installed.
$dest = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dest/file", '');
like(make('install', DESTDIR => $dest, LINKPREFIX => '/file'), qr/is \Q$folder{bindir}\E.*without a link/,
	'links cannot be made');
ok(-x "$dest$folder{bindir}/$name", 'the program is there');

# The RPM has all of it, by patterns that it names.
{
	my ($patterns) = slurp_file("$root/rpm/pg_audit_queue.spec") =~ /^%files\n(.*?)^%changelog/ms;
	my %macro = map { ("pg$_" => `$pg_config --$_` =~ s/\n//r) } qw(pkglibdir bindir sharedir mandir);

	$dest = PostgreSQL::Test::Utils::tempdir();
	make('install', DESTDIR => $dest, LINKPREFIX => '');
	my @patterns = map { s/%\{(\w+)\}/$macro{$1} \/\/ die $1/ger } grep { m{^%\{pg\w+dir\}/} } split /\n/, $patterns;
	my @regexps = map { my $regexp = quotemeta; $regexp =~ s/\\\*/.*/g; qr/^$regexp$/ } @patterns;
	my @installed = files($dest);

	cmp_ok(scalar @installed, '>', 5, 'files are installed');
	is(join(' ', grep { my $file = $_; !grep { $file =~ $_ } @regexps } @installed), '', 'the RPM has all of them');
	is(join(' ', grep { my $i = $_; !grep { $_ =~ $regexps[$i] } @installed } 0 .. $#regexps), '',
		'and names no other');
}

# Into a server, which is a copy: other tests need the program.
my $prefix = PostgreSQL::Test::Utils::tempdir();
my $server = bare_install() . '/bin';
my $copied = abs_path($server);
chomp(my $page = `$server/pg_config --mandir`);
$page .= "/man1/$name.1";
make('install', PG_CONFIG => "$copied/pg_config", LINKPREFIX => $prefix);
is(readlink("$prefix/bin/$name"), "$copied/$name", 'a link into a server');
{
	my $output;

	local $ENV{PATH} = "$prefix/bin:$path";
	IPC::Run::run([ $name, '--version' ], '>', \$output);
	like($output, qr/^pg_audit_trail \(pg_audit_queue\) \d/, 'a shell finds the program');
}
my $man_text = slurp_file("$prefix/$man");
make('uninstall', PG_CONFIG => "$copied/pg_config", LINKPREFIX => $prefix);
is_deeply([ files($prefix) ], [], 'the links are gone');
ok(!-e "$server/$name" && !-e $page, 'and so is what they led to');

# ---------------------------------------------------------------------------
# The man page
# ---------------------------------------------------------------------------

# Words of the page in Markdown, without the names of sections at its beginning.  The
# name of a column stands in front of each of its cells if there are more than two.
sub words_of_page
{
	my ($text) = @_;
	my $code = 0;
	my $in_table = 0;
	my (@words, @heads, $before);

	foreach my $line (split /\n/, $text . "\n")
	{
		if ($line =~ /^```/)
		{
			$code = !$code;
			next;
		}
		if (!$code)
		{
			# the line below the heads of a table
			if ($line =~ /^\|[ |:-]*$/)
			{
				@words = @words[ 0 .. $before - 1 ];
				next;
			}
			next if $line =~ /^- \[[^]]*\]\(#/;
			$line =~ s/^#+ //;
			# what a terminal of ASCII has for a bullet
			$line =~ s/^- /o /;
			if ($line =~ s/^\| *(.*?) *\|$/$1/)
			{
				my @cells = map { s/\\\|/|/gr } split / *(?<!\\)\| */, $line, -1;

				@heads = @cells if !$in_table;
				@cells[ 1 .. $#cells ] = map { "$heads[$_]: $cells[$_]" } 1 .. $#cells if $in_table && @cells > 2;
				$line     = join ' ', @cells;
				$in_table = 1;
			}
			else { $in_table = 0 }
			$line =~ s/`|\*\*|\*(?=\w[^*]*\w\*)|(?<=\w)\*//g;
		}
		$before = @words;
		push @words, split ' ', $line;
	}
	$text = "@words";
	$text =~ s/\[([^]]*)\]\(#[^)]*\)/$1/g;
	$text =~ s/\[([^]]*)\]\(([^)]*)\)/$1 ($2)/g;
	return map { lc } split ' ', $text;
}

# Words of the man page as a terminal shows it, without its first and last line
sub words_of_man
{
	my ($text) = @_;
	my ($output, $warnings);

	IPC::Run::run([ 'groff', '-man', '-Tascii', '-P-cbou', '-ww' ],
		'<', \$text, '>', \$output, '2>', \$warnings);
	is($warnings, '', 'groff has nothing to complain about');
	$output =~ s/^\S.*\n|\s*\S.*\n\s*\z//g;
	$output =~ s/\nSEE ALSO.*//s;
	$output =~ s/^NAME\n//m;
	return map { lc } split ' ', $output;
}

SKIP:
{
	skip 'no groff', 3 if system('command -v groff >/dev/null') != 0;
	my @man  = words_of_man($man_text);
	my @page = words_of_page(slurp_file("$root/doc/$name.md"));
	shift @page;    # the heading is the program's name

	cmp_ok(scalar @man, '>', 1000, 'the man page has text');
	my ($i) = grep { ($man[$_] // '') ne ($page[$_] // '') } 0 .. @man > @page ? $#man : $#page;
	is(defined $i ? "@man[ $i .. $i + 9 ], where the page has @page[ $i .. $i + 9 ]" : '', '',
		'and the same as doc/pg_audit_trail.md');
}

# and all options of the help text
{
	my (undef, $help) = trail_program('--help');
	my %options = map { $_ => 1 } $help =~ /(--[a-z][a-z-]+)/g;

	cmp_ok(scalar keys %options, '>', 20, 'the program has options');
	$man_text =~ s/\\-/-/g;
	is(join(' ', grep { $man_text !~ /\Q$_\E(?![a-z-])/ } sort keys %options), '', 'all are in the man page');
}

# scripts/package-test executes the commands for Debian packages; here it is only looked
# whether they are complete.
{
	my ($part) = slurp_file("$root/doc/upgrade.md") =~ /^### Debian packages\n(.*?)^#/ms;
	my @commands = ($part // '') =~ /^```sh\n(.*?)^```/msg;

	is(scalar @commands, 3, 'doc/upgrade.md: to prepare, to build, and to install');
	like($commands[0], qr/^apt-get install dpkg-dev\napt-get build-dep \.\/$/m, 'what building needs');
	like($commands[1], qr/^pg_buildext updatecontrol\ndpkg-buildpackage /m, 'building');
	my @packages = slurp_file("$root/debian/control") =~ /^Package: (\S+)$/mg;
	is(join(' ', grep { $commands[2] !~ m{\.\./\Q$_\E_} } @packages), '', 'all packages are installed');
}

# What units for systemd refer to is installed, too.
foreach my $unit (glob("$root/systemd/*.service"))
{
	is(join(' ', slurp_file($unit) =~ /^Documentation=(.*)$/mg), "man:$name(1)",
		'documentation of ' . ($unit =~ s{.*/}{}r));
}

done_testing();
