# Trail files: when a new file is started, how it is named, and what happens
# when somebody changes files and directories while the server runs.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Basename;
use File::Path qw(rmtree);
use POSIX qw(mkfifo);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node('main', conf => "autovacuum = off\n");
my $dir  = trail_dir($node);

# Set some of the extension's settings and wait until the worker has them, and
# has written its record of that: into a new file, if there is a reason for one.
sub reconfigure
{
	my (%settings) = @_;
	my $before = texts_in_trail($node, '"command":"RELOAD"');

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	return poll_until(
		sub {
			flush_trail($node);
			return texts_in_trail($node, '"command":"RELOAD"') > $before;
		});
}

sub mode_of
{
	my ($path) = @_;

	return sprintf '%04o', (stat($path))[2] & 07777;
}

# A record and the file it is in
sub write_one
{
	my ($text) = @_;

	$node->safe_psql('postgres', "SELECT '$text'");
	flush_trail($node);
	return grep { slurp_file($_) =~ /'\Q$text\E'/ } trail_files($node);
}

# The path of the file that audit_queue_stats shows
sub current_file
{
	my $file = stats($node)->{current_file};

	return $file =~ m{^/} ? $file : $node->data_dir . "/$file";
}

# At first

is(mode_of($dir), '0700', 'mode of the directory');
my ($first) = write_one('first');
is(mode_of($first), '0600', 'mode of the file');
like(
	basename($first),
	qr/^audit-\d{4}-\d\d-\d\d_\d{6}\.json$/,
	'its name');
is(current_file(), $first, 'it is shown as the current one');

# audit_rotate()

my $returned = unaudited_sql($node, 'SELECT audit_rotate()');
is($returned, stats($node)->{current_file}, 'audit_rotate() tells its name');
my ($second) = write_one('second');
isnt($second, $first, 'the next record is in another file');
is(basename($second), basename($returned), 'of that name');
is(dirname($second), $dir, 'in the directory of the trail');

# After audit_flush() and audit_rotate(), all files but that have what was recorded before,
# and do not change any more: they can be copied.
$node->safe_psql('postgres', q{SELECT 'to be copied'});
($returned) = reverse split /\n/, unaudited_sql($node, 'SELECT audit_flush(); SELECT audit_rotate()');
my %finished = map { $_ => slurp_file($_) } grep { basename($_) ne basename($returned) } trail_files($node);
is(scalar(grep { /'to be copied'/ } values %finished), 1, 'what was recorded is in a finished file');
write_one('behind');
is(join(' ', grep { slurp_file($_) ne $finished{$_} } keys %finished), '', 'finished files do not change');

# What the worker has not written yet when audit_rotate() is called goes into the new
# file.  The worker sleeps, so that nothing is half done when it is stopped.
my $drainer = worker_pid($node);

flush_trail($node);
ok(poll_until(sub { slurp_file("/proc/$drainer/stat") =~ /\) S / }), 'the worker sleeps');
kill('STOP', $drainer) or die "kill: $!";
$node->safe_psql('postgres', q{SELECT 'in the queue'});
my $rotating = start_psql($node, 'SELECT audit_rotate()');
ok( poll_until(
		sub {
			unaudited_sql($node, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity"
				  . " WHERE query LIKE 'SELECT audit_rotate()%'") eq 't';
		}),
	'audit_rotate() waits');
kill('CONT', $drainer) or die "kill: $!";
finish_psql($rotating);
flush_trail($node);
my $third = current_file();
isnt($third, $second, 'there is a new file');
like(slurp_file($third), qr/in the queue/, 'which has records that were in the queue');
unlike(slurp_file($second), qr/in the queue/, 'and the old one has not');

# Names that are taken get a number: all of these are of the same year

ok(reconfigure(log_filename => 'by-year-%Y'), 'another log_filename');
my @names;
foreach my $number (1 .. 12)
{
	push @names, map { basename($_) } write_one("clash $number");
	unaudited_sql($node, 'SELECT audit_rotate()');
}
my ($year) = $names[0] =~ /^(by-year-\d{4})(?:\.\d+)?\.json$/;
isnt($year, undef, "it has the new form: $names[0]");
is(scalar(grep { /^\Q$year\E\.\d+\.json$/ } @names[ 1 .. 11 ]),
	11, 'further ones have numbers');
my %different = map { $_ => 1 } @names;
is(scalar keys %different, 12, 'all different');
rename("$dir/$names[5]", "$dir/moved") or die "rename: $!";
my ($number) = basename(write_one('clash 13')) =~ /\.(\d+)\.json$/;
my ($last)   = $names[11] =~ /\.(\d+)\.json$/;
is($number, $last + 1, 'that of one that is gone is not used again');
rename("$dir/moved", "$dir/$names[5]") or die "rename: $!";

# Permissions

ok(reconfigure(log_file_mode => '0640'), 'another log_file_mode');
is(mode_of(write_one('readable')), '0640', 'it is used for the next file');

# By size, under load.  A file is closed when it has reached the limit, so no
# record is split, and none is larger than limit and a record.

ok( reconfigure(
		log_filename      => 'size-%Y-%m-%d_%H%M%S',
		log_rotation_size => '64kB'),
	'a limit of 64 kB');
my $load = start_load($node, 'size', clients => 4, statements => 300, pause => 0);
is(finish_load($load), 1200, 'a load of 1200 statements');
flush_trail($node);
my @files = grep { basename($_) =~ /^size-/ } trail_files($node);
cmp_ok(scalar @files, '>=', 10, 'makes several files');
my $longest = 0;
foreach my $line (trail_lines($node))
{
	$longest = length($line) + 1 if length($line) >= $longest;
}
is_deeply(
	[ grep { -s $_ > 64 * 1024 + $longest } @files ],
	[], 'none is larger than the limit and a record');
is_deeply(
	[ grep { -s $_ < 64 * 1024 } @files[ 0 .. $#files - 1 ] ],
	[], 'none but the last is smaller');
my @records = check_trail($node, 'the trail is whole');
check_load($load, \@records, 'each statement is there once');

ok( reconfigure(
		log_filename      => 'audit-%Y-%m-%d_%H%M%S',
		log_rotation_size => '0'),
	'no limit');
my ($unlimited) = write_one('unlimited');
$load = start_load($node, 'unlimited', statements => 200, pause => 0);
finish_load($load);
flush_trail($node);
is(current_file(), $unlimited, 'then all goes into one file');

# By age, which is counted in minutes

if (full_tests())
{
	ok(reconfigure(log_rotation_age => '1min'), 'a limit of one minute');
	my ($young) = write_one('young');
	ok(poll_until(sub { current_file() ne $young }, 90),
		'a new file after a minute, without any record');
	my $empty   = current_file();
	my $wakeups = stats($node)->{wakeups};
	sleep 90;
	is(current_file(), $empty, 'an empty one does not get older');
	is((write_one('next minute'))[0], $empty, 'and is used');
	ok(reconfigure(log_rotation_age => '0'), 'no limit');
}

# Somebody removes, replaces, or truncates the current file.  What was in it
# is gone; what follows must not be.

foreach my $case (
	[ 'removed', sub { unlink($_[0]) or die "unlink: $!" } ],
	[
		'replaced by a link',
		sub {
			append_to_file("$dir/victim", "not for the trail\n") if !-e "$dir/victim";
			rename($_[0], "$_[0].moved.json") or die "rename: $!";
			symlink("$dir/victim", $_[0]) or die "symlink: $!";
		}
	],
	[
		'truncated',
		sub { truncate($_[0], 10) or die "truncate: $!"; }
	],
	[ 'removed with its directory', sub { rmtree($dir) } ])
{
	my ($name, $meddle) = @$case;
	my ($file) = write_one("before $name");
	my $position = -s $node->logfile;

	is($file, current_file(), "$name: the current file");
	$meddle->($file);

	# the path is looked at now and then only
	ok( poll_until(
			sub {
				write_one("during $name");
				return slurp_file($node->logfile, $position) =~
				  /LOG: .*was (?:removed|moved or replaced|truncated), starting a new one/;
			}),
		"$name: it is noticed");
	my ($next) = write_one("after $name");
	is($next, current_file(), "$name: another file is started");
	ok(-f $next && !-l $next, "$name: which is a file");
	is(slurp_file("$dir/victim"), "not for the trail\n",
		"$name: nothing is written through the link")
	  if -e "$dir/victim";
	my @lines = slurp_file($node->logfile, $position) =~
	  /was (?:removed|moved or replaced|truncated), starting/g;
	is(scalar @lines, 1, "$name: one line in the server's log");
}
is(mode_of($dir), '0700', 'mode of the new directory');

# A link waits where the next file would be

append_to_file($node->data_dir . '/victim', "not for the trail\n");
symlink($node->data_dir . '/victim', "$dir/planted.json")
  or die "symlink: $!";
ok(reconfigure(log_filename => 'planted'), 'the name of a link');
my ($beside) = write_one('beside the link');
is(basename($beside), 'planted.1.json', 'the link is not used');
is(slurp_file($node->data_dir . '/victim'),
	"not for the trail\n", 'nor what it leads to');

# The same while the server is down

$node->stop;
rename($beside, "$dir/moved.json") or die "rename: $!";
symlink($node->data_dir . '/victim', $beside) or die "symlink: $!";
$node->start;
isnt((write_one('after the start'))[0], $beside, 'nor after a start');
is(slurp_file($node->data_dir . '/victim'),
	"not for the trail\n", 'nor then what it leads to');

# Other things have been put there, whatever their names, newer than the trail

$node->stop;
mkfifo("$dir/fifo.json", 0600) or die "mkfifo: $!";
mkdir("$dir/directory.json") or die "mkdir: $!";
append_to_file("$dir/secret.json", "not for the trail\n");
chmod(0, "$dir/secret.json") or die "chmod: $!";
my $before_start = -s $node->logfile;
$node->start;
ok(flush_trail($node), 'the trail goes on');
like(
	slurp_file($node->logfile, $before_start),
	qr/LOG:  ignoring file "audit\/secret.json" .*: Permission denied/,
	'a file that cannot be read is ignored');
is((stat("$dir/secret.json"))[2] & 07777, 0, 'and left alone');
rmdir("$dir/directory.json");
unlink("$dir/fifo.json", "$dir/secret.json") == 2 or die "unlink: $!";

# What a crash left behind the last checkpoint is cut off

my ($torn) = write_one('before the crash');
my $worker = worker_pid($node);
kill('STOP', $worker);
crash_node($node, $worker);
append_to_file($torn, '{"type":"record","formatVersion":1,"sequ');
start_again($node);
is((write_one('after the crash'))[0], $torn, 'a torn file is used again');
is_deeply(
	[ grep { !defined parse_record($_) } split /\n/, slurp_file($torn) ],
	[], 'without the torn line');

# A directory that cannot be written to

my $position = -s $node->logfile;
my ($lost) = write_one('before it is unwritable');
unlink($lost) or die "unlink: $!";
chmod(0500, $dir) or die "chmod: $!";
my $session = start_psql(
	$node, q{SELECT 'unwritable'},
	name     => 'unwritable',
	settings => { mode => 'immediate' });
ok(wait_until_waiting($node, 'unwritable'), 'a session waits');
my %times;
ok( poll_until(
		sub {
			my $stats = stats($node);

			$times{ $stats->{last_error_time} } = 1
			  if defined $stats->{last_error_time};
			return keys %times >= 3;
		}),
	'the worker tries again and again');
like(
	stats($node)->{last_error},
	qr/could not create file ".*": Permission denied/,
	'its last error is in the statistics');
my @complaints = slurp_file($node->logfile, $position) =~
  /WARNING:  audit trail cannot be written: could not create file/g;
is(scalar @complaints, 1, 'the server log has it once');
is($node->safe_psql('postgres', q{SELECT 'queued meanwhile'}),
	'queued meanwhile', 'a queued session goes on');
chmod(0700, $dir) or die "chmod: $!";
is((finish_psql($session))[1], "unwritable\n",
	'when it can be written to again, the session goes on');
flush_trail($node);
is(texts_in_trail($node, "'unwritable'"),       1, 'its record is there');
is(texts_in_trail($node, "'queued meanwhile'"), 1, 'and the other one');
wait_for_log($node, qr/audit trail can be written again/, $position)
  or die 'the log does not say that it can be written to';
my @recoveries = slurp_file($node->logfile, $position) =~
  /LOG:  audit trail can be written again/g;
is(scalar @recoveries, 1, 'and the server log says so once');
is(stats($node)->{dropped}, 0, 'nothing is dropped');
$node->stop;

done_testing();
