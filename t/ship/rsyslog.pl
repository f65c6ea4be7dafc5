# rsyslog forwards the trail with the configurations of doc/shipping.md, to a file and by
# RELP and TLS: real rsyslogds, as an ordinary user.  Each line arrives as it is, also long
# ones, at 10,000 records a second, across rotation, restarts and a receiver that is away;
# and nobody gets in who has not the right certificate.
#
# scripts/test says where rsyslog is, in PAQ_RSYSLOG_DIR.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use IO::Socket::INET;
use IPC::Run;
use POSIX qw(WNOHANG);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $root = ($ENV{PAQ_RSYSLOG_DIR} // '') || '/';
my ($modules) = map { s{/omrelp\.so$}{}r } glob("$root/usr/lib*/*/rsyslog/omrelp.so");

if (!defined $modules || !-x "$root/usr/sbin/rsyslogd")
{
	diag 'NOT TESTED: there is no rsyslog with RELP';
	plan skip_all => 'there is no rsyslog with RELP';
}

# Forwarders read files without layers.
delete $ENV{PAQ_TEST_LAYERS};
my $tmp  = PostgreSQL::Test::Utils::tempdir();
my $page = slurp_file("$FindBin::RealBin/../../doc/shipping.md");
my $node = audited_node('main',
	settings => { flush_interval => '20ms', log_rotation_size => '8MB' });
my $port = PostgreSQL::Test::Cluster::get_free_port();
my %pid;

# ---------------------------------------------------------------------------
# What the page says
# ---------------------------------------------------------------------------

# The block of the page that begins with the file's name, with paths of this test
sub configuration
{
	my ($name) = @_;
	my ($text) = $page =~ m{^```text\n\# /etc/rsyslog\.d/\Q$name\E\.conf\n(.*?)^```}ms;

	die "no $name in doc/shipping.md" if !defined $text;
	my $trail = trail_dir($node);
	$text =~ s{/var/log/postgresql-audit}{$trail}g;
	$text =~ s{/etc/audit}{$tmp/tls}g;
	$text =~ s{/mnt/audit}{$tmp/file}g;
	$text =~ s{/srv/audit}{$tmp/received}g;
	$text =~ s{target="logs\.example"}{target="127.0.0.1"};
	$text =~ s{port="20514"}{port="$port"};
	$text =~ s{resumeInterval="5"}{resumeInterval="1"};
	return $text;
}

# Write the file of an rsyslogd of its own that includes that text, as Debian's includes
# those of /etc/rsyslog.d: behind modules and its settings.
sub configure
{
	my ($name, $text) = @_;

	mkdir "$tmp/$name";
	unlink "$tmp/$name/main.conf", "$tmp/$name/audit.conf";
	append_to_file("$tmp/$name/audit.conf", $text);
	append_to_file("$tmp/$name/main.conf", <<"EOT");
module(load="imuxsock" SysSock.Use="off")
\$WorkDirectory $tmp/$name
\$ActionFileDefaultTemplate RSYSLOG_TraditionalFileFormat
\$IncludeConfig $tmp/$name/audit.conf
EOT
	return;
}

sub start_rsyslog
{
	my ($name) = @_;
	my $log = "$tmp/$name/log";

	$pid{$name} = fork // die "fork: $!";
	return if $pid{$name};
	open STDIN,  '<',  '/dev/null' or die;
	open STDOUT, '>>', $log        or die;
	open STDERR, '>&', \*STDOUT    or die;
	$ENV{LD_LIBRARY_PATH} = join ':', $modules =~ s{/rsyslog$}{}r, $ENV{LD_LIBRARY_PATH} // ()
	  if $root ne '/';
	exec "$root/usr/sbin/rsyslogd", '-n', '-iNONE', '-M', $modules, '-f', "$tmp/$name/main.conf"
	  or POSIX::_exit(127);
}

# End it by SIGTERM; returns whether it ended in time, with status 0.
sub stop_rsyslog
{
	my ($name) = @_;
	my $pid = delete $pid{$name} // die "$name does not run";
	my $ended;

	kill('TERM', $pid);
	return $? == 0 if poll_until(sub { $ended = waitpid($pid, WNOHANG) == $pid }, 30);
	kill('KILL', $pid);
	waitpid($pid, 0);
	return 0;
}

END
{
	my $status = $?;

	foreach my $pid (values %pid)
	{
		kill('KILL', $pid);
		waitpid($pid, 0);
	}
	$? = $status;
}

# What it has said so far, behind that position; and wait until it says something
sub log_of
{
	my ($name, $position) = @_;

	return -e "$tmp/$name/log" ? slurp_file("$tmp/$name/log", $position // 0) : '';
}

sub said
{
	my ($name, $message, $position) = @_;

	return poll_until(sub { log_of($name, $position) =~ $message }, 30);
}

# ---------------------------------------------------------------------------
# What has arrived
# ---------------------------------------------------------------------------

sub trail_size
{
	my $size = 0;

	flush_trail($node);
	$size += -s $_ foreach trail_files($node);
	return $size;
}

# Wait until a file has as many bytes as the trail, or more.
sub arrives
{
	my ($file) = @_;
	my $size = trail_size();

	return poll_until(sub { (-s $file // 0) >= $size }, 60);
}

# A record of any server, by what identifies it
sub identity
{
	my ($line) = @_;

	return $line =~ /"sequence":(\d+),"series":(\d+),.*"systemIdentifier":"(\d+)"/s ? "$3/$2/$1" : 'none';
}

# Wait until a file has all records of the trail, but for so many.
my (%read, %there);

sub arrives_but
{
	my ($file, $lost) = @_;

	flush_trail($node);
	my @trail = map { identity($_) } trail_lines($node);
	return poll_until(
		sub {
			open my $fh, '<', $file or return 0;
			seek($fh, $read{$file} // 0, 0);
			while (my $line = <$fh>)
			{
				last if $line !~ /\n\z/;
				$read{$file} += length $line;
				$there{$file}{ identity($line) } = 1;
			}
			return (grep { !exists $there{$file}{$_} } @trail) <= $lost;
		},
		60);
}

# Test that a file has the trail: lines as they are, those of each file of the trail in
# their order.  With repeats, records may be there more than once, the same ones.  $lost:
# how many may be missing.
sub is_trail
{
	my ($arrived, $name, $repeats, $lost) = @_;
	my (%seen, %first, %file, @wrong);
	my ($lines, $missing) = (0, 0);

	foreach my $file (trail_files($node))
	{
		$file{ identity($_) } = $file foreach split /^/, slurp_file($file);
	}
	foreach my $line (split /^/, slurp_file($arrived))
	{
		my $identity = identity($line);

		$lines++;
		push @{ $first{ $file{$identity} // 'no file' } }, $line if !exists $seen{$identity};
		push @wrong, "$identity twice" if !$repeats && exists $seen{$identity};
		push @wrong, "another $identity" if ($seen{$identity} // $line) ne $line;
		$seen{$identity} = $line;
	}
	push @wrong, 'lines that the trail has not' if exists $first{'no file'};
	foreach my $file (trail_files($node))
	{
		my @trail    = split /^/, slurp_file($file);
		my @expected = grep { exists $seen{ identity($_) } } @trail;
		my $have     = $first{$file} // [];
		my ($i)      = grep { ($have->[$_] // '') ne $expected[$_] } 0 .. $#expected;

		$missing += @trail - @expected;
		push @wrong, 'not the line of ' . identity($expected[$i]) if defined $i;
	}
	push @wrong, "$missing missing" if $missing > ($lost // 0);
	note("$lines lines, " . ($lines - keys %seen) . " repeated, $missing missing");
	$#wrong = 4 if @wrong > 5;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(join("\n", @wrong), '', $name);
	return;
}

sub make_records
{
	my ($count) = @_;

	$node->safe_psql('postgres',
		"DO \$\$ BEGIN FOR i IN 1 .. $count LOOP PERFORM i; END LOOP; END \$\$");
	return;
}

# ---------------------------------------------------------------------------
# Certificates, by the page's commands; and some that nobody should take
# ---------------------------------------------------------------------------

mkdir "$tmp/$_" foreach qw(tls other_ca file received);
my ($certificates) = $page =~ /^```sh\n(openssl req -x509.*?)^```/ms;
# a shorter key is made in less time
$certificates =~ s/rsa:3072/rsa:2048/g;

sub make_certificates
{
	my ($dir, @names) = @_;
	my $output;

	IPC::Run::run(
		[ 'sh', '-ec', @names ? $certificates =~ s/(?<=for name in )[^;]*/@names/r : $certificates ],
		'>&', \$output, init => sub { chdir "$tmp/$dir" or die });
	diag($output) if $?;
	return !$?;
}

ok(make_certificates('tls'), 'certificates');
ok(make_certificates('other_ca'), 'of another CA');
{
	my $again = $certificates;

	# one more of the same CA, with another name
	$certificates =~ s/^openssl req -x509.*?(?=^for)//ms;
	ok(make_certificates('tls', 'db2.example'), 'and for another name');
	$certificates = $again;
}

# ---------------------------------------------------------------------------
# To a file
# ---------------------------------------------------------------------------

my $file     = "$tmp/file/db1.json";
my $received = "$tmp/received/db1.json";

configure('file', configuration('audit-file'));
configure('send', configuration('audit-send'));
configure('receive', configuration('audit-receive'));

# What a forwarder could change: long lines, what looks like control characters, or a
# priority, text of other scripts, bytes that are no UTF-8.
unaudited_sql($node, "CREATE DATABASE latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
$node->safe_psql('postgres', qq{SELECT 'del \x7f, tab \t, %rawmsg%, #011, <13>, \\n, "'});
$node->safe_psql('postgres', "SELECT '\xc3\xa9 \xe2\x80\xa8 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x90\x98'");
$node->safe_psql('latin1', "SELECT 'caf\xe9'");
$node->safe_psql('postgres', "SELECT '$_'") foreach map { $_ x 1_000_000 } qw(x y);
$node->safe_psql('postgres', q{SELECT '} . "\xe6\x97\xa5\x7f" x 250_000 . q{'});
flush_trail($node);
ok((grep { length > 1_000_000 } trail_lines($node)) >= 3, 'the trail has long lines');
ok((grep { /\x7f/ } trail_lines($node)) >= 2, 'and control characters');

start_rsyslog('file');
ok(arrives($file), 'to a file');
is_trail($file, 'it is the trail');
is((stat $file)[2] & 0777, 0600, 'permissions');
unaudited_sql($node, 'SELECT audit_rotate()');
make_records(100);
ok(arrives($file), 'after a new file was begun');
ok(stop_rsyslog('file'), 'rsyslogd ends');
make_records(100);
unaudited_sql($node, 'SELECT audit_rotate()');
make_records(100);
start_rsyslog('file');
ok(arrives($file), 'what was recorded meanwhile');
ok(stop_rsyslog('file'), 'and ends');
is_trail($file, 'the trail, once');

# ---------------------------------------------------------------------------
# By RELP and TLS
# ---------------------------------------------------------------------------

my $count = 50_000;
make_records($count);
flush_trail($node);
start_rsyslog('receive');
# it listens when it has opened its port
ok(poll_until(
		sub { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) ? 1 : 0 }, 30),
	'a receiver');
my $begin = time;
start_rsyslog('send');
ok(arrives($received), 'by RELP and TLS');
my $rate = $count / (time - $begin);
diag(sprintf 'rsyslog, by RELP and TLS: %d records a second', $rate);
is_trail($received, 'long lines and many records, each once');
SKIP:
{
	skip 'sanitizers take their time', 1 if sanitizers();
	cmp_ok($rate, '>', 10_000, '10,000 records a second');
}

# New files while it runs
foreach (1 .. 3)
{
	my $published = 'SELECT published FROM pg_stat_audit_queue';
	my $before    = unaudited_sql($node, $published);
	my $load      = start_psql($node,
		'DO $$ BEGIN FOR i IN 1 .. 4000 LOOP PERFORM i; END LOOP; END $$;');

	ok(poll_until(sub { unaudited_sql($node, $published) > $before }), 'records');
	unaudited_sql($node, 'SELECT audit_rotate()');
	finish_psql($load);
}
ok(arrives($received), 'rotation');
is_trail($received, 'each record once');

# The sender is ended in the midst of its work
make_records(5_000);
ok(stop_rsyslog('send'), 'the sender ends');
make_records(2_000);
unaudited_sql($node, 'SELECT audit_rotate()');
make_records(10);
start_rsyslog('send');
ok(arrives_but($received, 0), 'and goes on, nothing is missing');

# The receiver is away
my $position = length log_of('send');
ok(stop_rsyslog('receive'), 'the receiver ends');
make_records(5_000);
unaudited_sql($node, 'SELECT audit_rotate()');
make_records(2_000);
# more often than it would try if it gave up
ok(said('send', qr/(?:error opening.*){4}/s, $position), 'which the sender says, again and again');
start_rsyslog('receive');
ok(arrives_but($received, 0), 'it is there again, nothing is missing');
is_trail($received, 'each record, perhaps more than once', 1);

# Both end, the receiver first: then the page says that something may be missing.  Few
# records were on their way here.
$position = length log_of('send');
ok(stop_rsyslog('receive'), 'the receiver ends once more');
make_records(5_000);
ok(said('send', qr/error opening/, $position), 'which is noticed');
ok(stop_rsyslog('send'), 'and the sender, while nobody takes its records');
start_rsyslog('receive');
start_rsyslog('send');
make_records(10);
my $few = 10;
ok(arrives_but($received, $few), 'both go on');
ok(stop_rsyslog('send'), 'the end');

# ---------------------------------------------------------------------------
# Who is refused
# ---------------------------------------------------------------------------

sub is_refused
{
	my ($text, $who, $message, $name) = @_;
	my $size     = -s $received;
	my $position = length log_of($who);

	# with positions of its own
	mkdir "$tmp/refused";
	unlink glob("$tmp/refused/imfile-state*");
	configure('refused', $text);
	start_rsyslog('refused');
	ok(said($who, $message, $position), $name) or diag(substr log_of($who, $position), 0, 2000);
	is(-s $received, $size, 'nothing has arrived');
	# one whose action is disabled does not end by SIGTERM
	kill('KILL', $pid{refused});
	waitpid(delete $pid{refused}, 0);
	return;
}

make_records(10);
my $send = configuration('audit-send');
is_refused($send =~ s{tls/db1\.example}{tls/db2.example}gr, 'receive', qr/db2\.example|authentication/,
	'a client of another name');
is_refused($send =~ s{tls/db1\.example}{other_ca/db1.example}gr, 'receive',
	qr/cert|handshake|auth/i, 'a client of another CA');
is_refused($send =~ s/permittedPeer=\["logs\.example"\]/permittedPeer=["other.example"]/r,
	'refused', qr/logs\.example|authentication/, 'a receiver of another name');
start_rsyslog('send');
ok(arrives_but($received, $few), 'the right one gets in');
ok(stop_rsyslog('send'), 'at the end');
is_trail($received, 'no more than few are missing', 1, $few);
ok(stop_rsyslog('receive'), 'both');
$node->stop;
done_testing();
