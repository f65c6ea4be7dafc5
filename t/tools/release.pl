# What a release is made of: META.json is what PGXN wants, all files have one
# version, and scripts/release does what it says, in a repository of its own.
#
# Runs when these change: scripts/release scripts/sbom scripts/lib.sh META.json Makefile src/Makefile.layers src/bin/pg_audit_trail/Makefile pg_audit_queue.control CHANGELOG.md debian rpm t/lib/released
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $source = "$FindBin::RealBin/../..";

# ---------------------------------------------------------------------------
# META.json, by the PGXN Meta Spec 1.0.0
# ---------------------------------------------------------------------------

my $semver = qr/^(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)(?:-?[A-Za-z][\w-]*)?$/;
my $range  = qr/^(?:(?:[<>]=?|==|!=)\s*)?\d+\.\d+\.\d+(?:-?[A-Za-z][\w-]*)?$/;
my $term   = qr/^[^\s\/\\[:cntrl:]]{2,}$/;
my %licenses = map { $_ => 1 }
  qw(agpl_3 apache_1_1 apache_2_0 artistic_1 artistic_2 bsd freebsd gfdl_1_2 gfdl_1_3 gpl_1
  gpl_2 gpl_3 lgpl_2_1 lgpl_3_0 mit mozilla_1_0 mozilla_1_1 openssl perl_5 postgresql qpl_1_0
  ssleay sun zlib open_source restricted unrestricted unknown);

# What is wrong with it, a list
sub faults
{
	my ($meta) = @_;
	my @faults;
	# a match that fails is an empty list
	my $check = sub { my $what = pop; push @faults, $what if !$_[0] };
	my %known = map { $_ => 1 }
	  qw(name version abstract maintainer license provides meta-spec description generated_by
	  no_index prereqs release_status resources tags);

	$check->($known{$_} || /^x_/i, "unknown: $_") foreach sort keys %$meta;
	$check->(defined $meta->{$_} && length $meta->{$_}, "missing: $_")
	  foreach qw(name version abstract maintainer license provides meta-spec);
	return @faults if @faults;

	$check->($meta->{name} =~ $term, 'name');
	$check->($meta->{version} =~ $semver, 'version');
	$check->(!ref $meta->{abstract}, 'abstract');
	my @maintainers = ref $meta->{maintainer} ? @{ $meta->{maintainer} } : $meta->{maintainer};
	$check->(@maintainers && !(grep { !/\S <\S+\@\S+>$/ } @maintainers), 'maintainer');
	if (ref $meta->{license} eq 'HASH')
	{
		$check->(
			%{ $meta->{license} } && !(grep { !m{^https?://\S+$} } values %{ $meta->{license} }),
			'license');
	}
	else
	{
		$check->(!(grep { !$licenses{$_} } ref $meta->{license} ? @{ $meta->{license} } : $meta->{license}),
			'license');
	}
	$check->(ref $meta->{provides} eq 'HASH' && %{ $meta->{provides} }, 'provides');
	foreach my $name (sort keys %{ $meta->{provides} })
	{
		my $one = $meta->{provides}{$name};

		$check->($name =~ $term, "provides: $name");
		$check->(!(grep { !/^(?:file|version|abstract|docfile)$/ && !/^x_/i } keys %$one),
			"provides: $name: unknown key");
		$check->(($one->{version} // '') =~ $semver, "provides: $name: version");
		$check->(-f "$source/" . ($one->{$_} // '/'), "provides: $name: no $_")
		  foreach 'file', exists $one->{docfile} ? 'docfile' : ();
	}
	$check->(($meta->{'meta-spec'}{version} // '') =~ $semver, 'meta-spec');
	$check->(($meta->{'meta-spec'}{url} // '') =~ m{^https?://(?:www\.)?pgxn\.org/meta/spec\.txt$},
		'meta-spec: url');
	$check->(($meta->{release_status} // 'stable') =~ /^(?:stable|testing|unstable)$/,
		'release_status');
	foreach my $phase (sort keys %{ $meta->{prereqs} // {} })
	{
		$check->($phase =~ /^(?:configure|build|test|runtime|develop)$/ || $phase =~ /^x_/i,
			"prereqs: $phase");
		foreach my $relation (sort keys %{ $meta->{prereqs}{$phase} })
		{
			my $wanted = $meta->{prereqs}{$phase}{$relation};

			$check->($relation =~ /^(?:requires|recommends|suggests|conflicts)$/,
				"prereqs: $phase: $relation");
			$check->($_ =~ $term && ($wanted->{$_} eq '0' || !(grep { !/$range/ } split /\s*,\s*/, $wanted->{$_})),
				"prereqs: $phase: $_")
			  foreach sort keys %$wanted;
		}
	}
	$check->(ref $meta->{tags} eq 'ARRAY' && !(grep { !/^[^\/\\[:cntrl:]]{1,255}$/ } @{ $meta->{tags} }),
		'tags')
	  if exists $meta->{tags};
	return @faults;
}

sub meta
{
	return JSON::PP->new->utf8->decode(slurp_file("$source/META.json"));
}

is(join(', ', faults(meta())), '', 'META.json is valid');

# The check notices what PGXN would refuse.
foreach my $case (
	[ 'missing: abstract', sub { delete $_->{abstract} } ],
	[ 'version', sub { $_->{version} = '1.1' } ],
	[ 'unknown: licence', sub { $_->{licence} = 'x' } ],
	[ 'maintainer', sub { $_->{maintainer} = 'nobody' } ],
	[ 'license', sub { $_->{license} = 'no such licence' } ],
	[ 'provides: pg_audit_queue: no file', sub { $_->{provides}{pg_audit_queue}{file} = 'no.sql' } ],
	[ 'provides: pg_audit_queue: version', sub { delete $_->{provides}{pg_audit_queue}{version} } ],
	[ 'release_status', sub { $_->{release_status} = 'ready' } ],
	[ 'meta-spec', sub { $_->{'meta-spec'}{version} = '1' } ],
	[ 'prereqs: runtime: PostgreSQL', sub { $_->{prereqs}{runtime}{requires}{PostgreSQL} = '15' } ])
{
	my ($fault, $change) = @$case;
	my $meta = meta();

	$change->() foreach $meta;
	is(join(', ', faults($meta)), $fault, "would be noticed: $fault");
}

# ---------------------------------------------------------------------------
# scripts/release
# ---------------------------------------------------------------------------

my $clone = PostgreSQL::Test::Utils::tempdir() . '/clone';

# Run a command in the repository; returns whether it worked, and its output
sub run_there
{
	my (@command) = @_;
	my $output;

	local %ENV = (
		%ENV,
		HOME                => PostgreSQL::Test::Utils::tempdir(),
		GIT_CONFIG_NOSYSTEM => 1,
		GIT_AUTHOR_NAME     => 'a', GIT_AUTHOR_EMAIL    => 'a@example.org',
		GIT_COMMITTER_NAME  => 'a', GIT_COMMITTER_EMAIL => 'a@example.org');
	my $ok = IPC::Run::run([ 'env', '-C', $clone, @command ], '>&', \$output);

	return wantarray ? ($ok, $output) : $output;
}

sub release
{
	return run_there('scripts/release', @_);
}

sub refused
{
	my ($name, $pattern, @arguments) = @_;
	my ($ok, $output) = release(@arguments);

	ok(!$ok, "refused: $name");
	like($output, $pattern, "and says why: $name");
	return;
}

sub change
{
	my ($file, $code) = @_;
	my $text = slurp_file("$clone/$file");

	local $_ = $text;
	$code->();
	die "$file is unchanged" if $_ eq $text;
	unlink("$clone/$file") if -l "$clone/$file";
	open my $fh, '>', "$clone/$file" or die "open $file: $!";
	print $fh $_;
	close $fh;
	return;
}

mkdir($clone) or die "mkdir: $!";
system_or_bail('cp', '-R', (map { "$source/$_" }
	  qw(META.json CHANGELOG.md README.md debian rpm scripts pg_audit_queue.control)),
	glob("$source/*.sql"), $clone);
mkdir("$clone/$_") foreach 't', 't/lib', 't/lib/released';
system_or_bail('cp', "$source/t/lib/released/scripts.sha256", "$clone/t/lib/released/");
run_there('git', 'init', '-q');
run_there('git', 'add', '-A');
run_there('git', 'commit', '-q', '-m', 'all');

my ($version) =
  slurp_file("$source/pg_audit_queue.control") =~ /^default_version = '(.*)'$/m;
my ($major, $minor) = $version =~ /^(\d+)\.(\d+)$/;
my $next = "$major." . ($minor + 1);

my ($ok, $output) = release('--check');
ok($ok, 'all files have one version') or diag($output);

foreach my $case (
	[ 'META.json', sub { s/"version": "\Q$version\E\.0"/"version": "0.9.0"/ } ],
	[ 'debian/changelog', sub { s/\(\Q$version\E-/(0.9-/ } ],
	[ 'rpm/pg_audit_queue.spec', sub { s/^Version:.*/Version: 0.9/m } ],
	[ 'CHANGELOG.md', sub { s/^## \Q$version\E/## 0.9/m } ])
{
	my ($file, $code) = @$case;

	change($file, $code);
	refused("another version in $file", qr/\Q$file\E/, '--check');
	run_there('git', 'checkout', '-q', '.');
}

# There is something to say about this version.
change('CHANGELOG.md', sub { s/^(## \Q$version\E, unreleased\n)/$1\n- A change.\n/m });
refused('a tree with changes', qr/not committed/, $version);
run_there('git', 'commit', '-q', '-a', '-m', 'notes');
refused('another version', qr/has version \Q$version\E/, '7.0');
refused('no version', qr/two numbers/, "$version.3");

change('CHANGELOG.md', sub { s/^(## \Q$version\E, unreleased\n).*?(?=^## )/$1\n/ms });
run_there('git', 'commit', '-q', '-a', '-m', 'no notes');
refused('nothing to say', qr/says nothing/, $version);
run_there('git', 'reset', '-q', '--hard', 'HEAD~');

append_to_file("$clone/pg_audit_queue--$version--$next.sql", "-- begun\n");
run_there('git', 'add', '-A');
run_there('git', 'commit', '-q', '-m', 'a script of the next version');
refused('the next script is there', qr/there is a pg_audit_queue--\Q$version--$next\E\.sql/, $version);
is(slurp_file("$clone/pg_audit_queue--$version--$next.sql"), "-- begun\n", 'and stays as it is');
run_there('git', 'reset', '-q', '--hard', 'HEAD~');

# A script of a version that ends like this one
append_to_file("$clone/pg_audit_queue--1.0--2$version.sql", "-- another version\n");
run_there('git', 'add', '-A');
run_there('git', 'commit', '-q', '-m', 'another version');

# Whatever fails or interrupts it, nothing is left.  A hook does so at one of the two
# commits.  A command in the background of a shell has SIGINT ignored, and a script
# cannot change that.
local @SIG{qw(HUP INT TERM)} = ('DEFAULT') x 3;
my $hook = "$clone/.git/hooks/pre-commit";
my $parent = 'sed "s/.*) . //; s/ .*//" /proc/$PPID/stat';
my $head = run_there('git', 'rev-parse', 'HEAD');

foreach my $case (
	[ 'the first commit fails',        1, 'exit 1', 1 ],
	[ 'the second commit fails',       2, 'exit 1', 1 ],
	[ 'interrupted in the first',      1, "kill -TERM \$($parent)", 143 ],
	[ 'interrupted behind the second', 2, "kill -INT \$($parent)", 130 ],
	[ 'a hangup',                      2, "kill -HUP \$($parent)", 129 ])
{
	my ($name, $number, $action, $status) = @$case;

	unlink("$clone/.git/count", $hook);
	append_to_file($hook, <<"HOOK");
#!/bin/sh
echo x >>.git/count
[ \$(wc -l <.git/count) -ne $number ] || $action
HOOK
	chmod 0755, $hook;
	($ok, $output) = release($version);
	is($? >> 8, $status, "$name: the status");
	like($output, qr/^release: not made; everything is as it was$/m, "$name: and it says so");
	is(run_there('git', 'rev-parse', 'HEAD'), $head, "$name: no commit");
	is(run_there('git', 'tag'), '', "$name: no tag");
	is(run_there('git', 'status', '--porcelain'), '', "$name: no change");
}
unlink($hook);

($ok, $output) = release($version);
ok($ok, "version $version is made") or diag($output);
my ($take_back) = $output =~ /^To take it back before it is pushed: (.*)$/m;
like($take_back // '', qr/\S/, 'it says how to take that back');
run_there('sh', '-c', $take_back);
is(run_there('git', 'rev-parse', 'HEAD') . run_there('git', 'tag') . run_there('git', 'status', '--porcelain'),
	$head, 'and so it is');

($ok, $output) = release($version);
ok($ok, "version $version is made again") or diag($output);
is(run_there('git', 'status', '--porcelain'), '', 'everything is committed');
is(run_there('git', 'tag'), "v$version\n", 'there is a tag');

sub tagged
{
	return scalar run_there('git', 'show', "v$version:$_[0]");
}

like(tagged('CHANGELOG.md'), qr/^## \Q$version\E, \d{4}-\d\d-\d\d$/m, 'the heading has a date');
like(tagged('debian/changelog'), qr/^pg-audit-queue \(\Q$version\E-1\) unstable;/,
	'debian/changelog is closed');
like(tagged('rpm/pg_audit_queue.spec'), qr/^Version: +\Q$version\E$/m, 'the spec');
is(JSON::PP->new->utf8->decode(tagged('META.json'))->{release_status}, 'stable', 'META.json');
like(tagged('t/lib/released/scripts.sha256'), qr/--\Q$version\E\.sql$/m,
	'the scripts of this version do not change any more');
unlike(tagged('t/lib/released/scripts.sha256'), qr/--2\Q$version\E\.sql$/m, 'and only those');
is(run_there('sh', '-c', 'sha256sum --quiet -c t/lib/released/scripts.sha256'), '',
	'and are what they were');

($ok, $output) = release('--check');
ok($ok, "then all files have version $next") or diag($output);
like($output, qr/version \Q$next\E$/m, 'the next one');
ok(-f "$clone/pg_audit_queue--$version--$next.sql", 'it has an update script');
like(slurp_file("$clone/CHANGELOG.md"),
	qr/^## \Q$next\E, unreleased\n+## \Q$version\E, \d{4}/m, 'and a heading');
like(slurp_file("$clone/debian/changelog"),
	qr/^pg-audit-queue \(\Q$next\E-1\) UNRELEASED;.*^pg-audit-queue \(\Q$version\E-1\)/ms,
	'debian/changelog has both');
refused('a second time', qr/has version \Q$next\E/, $version);

# ---------------------------------------------------------------------------
# scripts/release --files
# ---------------------------------------------------------------------------

my $files   = PostgreSQL::Test::Utils::tempdir();
my $archive = "pg_audit_queue-$version.tar.gz";
my $sbom    = "pg_audit_queue-$version.spdx.json";

# A key for signatures, in a folder whose path is short enough for gpg's socket
my $keys = PostgreSQL::Test::Utils::tempdir_short();
chmod(0700, $keys) or die "chmod: $!";
local $ENV{GNUPGHOME} = $keys;
($ok, $output) = run_there('gpg', '--batch', '--passphrase', '', '--quick-generate-key',
	'releaser@example.org', 'ed25519', 'sign', 'never');
ok($ok, 'a key') or diag($output);

refused('files of a version that is not made', qr/there is no tag v\Q$next\E/, '--files', "$files/0", $next);
refused('files signed by nobody', qr/nobody/, '--files', "$files/0", '--sign', 'nobody@example.org', $version);
ok(!-e "$files/0", 'and nothing is left');

($ok, $output) = release('--files', "$files/1", '--sign', 'releaser@example.org', $version);
ok($ok, "files of version $version") or diag($output);
is(join(' ', sort(slurp_dir("$files/1"))), ". .. SHA256SUMS SHA256SUMS.asc $sbom $archive",
	'there is all of it');
is(run_there('sh', '-c', "cd $files/1 && sha256sum --quiet -c SHA256SUMS"), '', 'the sums are right');
is(scalar(() = slurp_file("$files/1/SHA256SUMS") =~ /\n/g), 2, 'of both');
($ok) = run_there('gpg', '--batch', '--verify', "$files/1/SHA256SUMS.asc", "$files/1/SHA256SUMS");
ok($ok, 'and signed');
append_to_file("$files/1/SHA256SUMS", "\n");
($ok) = run_there('gpg', '--batch', '--verify', "$files/1/SHA256SUMS.asc", "$files/1/SHA256SUMS");
ok(!$ok, 'which a change breaks');
run_there('gpgconf', '--kill', 'all');

# Made again by somebody else, elsewhere, with other settings, it is the same.
my $elsewhere = PostgreSQL::Test::Utils::tempdir();
($ok, $output) = run_there('sh', '-c',
	"umask 0077; git clone -q . $elsewhere/clone && cd $elsewhere/clone && "
	  . 'git config tar.umask 0077 && git config core.autocrlf true && '
	  . "env TZ=Asia/Tokyo GZIP=-1 scripts/release --files ../files $version");
ok($ok, 'made again') or diag($output);
is(join(' ', sort(slurp_dir("$elsewhere/files"))), ". .. SHA256SUMS $sbom $archive", 'without a key');
ok(slurp_file("$elsewhere/files/$_") eq slurp_file("$files/1/$_"), "the same, byte by byte: $_")
  foreach $archive, $sbom;

is(run_there('sh', '-c', "mkdir $files/2 && tar -xzf $files/1/$archive -C $files/2 && "
	  . "git --work-tree=$files/2/pg_audit_queue-$version diff --stat v$version"),
	'', 'the archive has what the tag has');

# The SBOM names the archive, and what the makefiles look for.
my $document = JSON::PP->new->utf8->decode(slurp_file("$files/1/$sbom"));
my %package = map { $_->{SPDXID} => $_ } @{ $document->{packages} };
my ($described) = map { $package{ $_->{relatedSpdxElement} } }
  grep { $_->{relationshipType} eq 'DESCRIBES' } @{ $document->{relationships} };
my ($digest) = slurp_file("$elsewhere/files/SHA256SUMS") =~ /^(\w+)  \Q$archive\E$/m;
my $time = run_there('env', 'TZ=UTC', 'git', 'log', '-1', '--format=%cd', '--date=format-local:%Y-%m-%dT%H:%M:%SZ', "v$version");

is($document->{spdxVersion}, 'SPDX-2.3', 'an SBOM');
is("$document->{creationInfo}{created}\n", $time, 'of the time of the tag');
is("$described->{name} $described->{versionInfo}", "pg_audit_queue $version", 'it describes the release');
is($described->{checksums}[0]{checksumValue}, $digest, 'with the digest of the archive');
is(join(' ', grep { !$package{ $_->{spdxElementId} } && $_->{spdxElementId} ne 'SPDXRef-DOCUMENT' }
		@{ $document->{relationships} }), '', 'all that is related is there');
foreach my $makefile ('src/Makefile.layers', 'src/bin/pg_audit_trail/Makefile')
{
	my $text = slurp_file("$source/$makefile");

	like(slurp_file("$source/scripts/sbom"), qr/"$_", "/, "$makefile looks for $_, and it is in the SBOM")
	  foreach $text =~ /call find_library,\S+,(\w+)\)/g;
}

done_testing();
