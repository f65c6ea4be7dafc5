# Retention: which trail files are removed, when, and the records and log
# messages about that; and the files that are never removed, whatever they look
# like.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Basename;
use IO::Socket::UNIX;
use POSIX qw(mkfifo SIGHUP);
use Socket;
use Test::More;
use Time::HiRes qw(sleep time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $day = 24 * 60 * 60;

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { log_filename => 'audit-%Y-%m-%d_%H%M%S' },
	conf         => "autovacuum = off\n");
my $dir = trail_dir($node);

# Read the configuration again and wait until the worker has: it records that.
# (Do not read files that may be removed meanwhile.)
sub reload
{
	my $before = flush_trail($node);

	$node->reload;
	poll_until(sub { flush_trail($node) > $before }) or die 'the worker does not reload';
	return;
}

sub reconfigure
{
	my (%settings) = @_;

	$node->append_conf('postgresql.conf', settings_text(%settings));
	reload();
	return;
}

# Nothing is removed from now on, and what has been there is away.
my $away = PostgreSQL::Test::Utils::tempdir();
my $put_away = 0;

sub put_away
{
	reconfigure(log_retention_age => 0, log_retention_size => 0, @_);
	unaudited_sql($node, 'SELECT audit_rotate()');
	foreach my $file (grep { $_ ne current_file() } map { "$dir/$_" } slurp_dir($dir))
	{
		next if $file =~ m{/(?:\.\.?|pg_audit_queue\.lock)$};
		rename($file, "$away/" . $put_away++) or die "rename $file: $!";
	}
	return;
}

# The path of the file that is being written
sub current_file
{
	my $file = stats($node)->{current_file};

	return $file =~ m{^/} ? $file : $node->data_dir . "/$file";
}

# Let the file be so many days old.
sub age
{
	my ($path, $days) = @_;
	my $time = time - $days * $day;

	utime($time, $time, $path) == 1 or die "utime $path: $!";
	return $path;
}

# A finished trail file of that size, made by the server, whose last change was
# so many days ago.  Returns its path.
sub finished_file
{
	my ($days, $size) = @_;
	my $path;

	$node->safe_psql('postgres', q{SELECT 'finished'});
	flush_trail($node);
	$path = current_file();
	unaudited_sql($node, 'SELECT audit_rotate()');
	pad($path, $size) if $size;
	return age($path, $days);
}

# Let a file be that long.
sub pad
{
	my ($path, $size) = @_;
	my $line = '{"sequence":0,"text":"%s"}' . "\n";

	append_to_file($path,
		sprintf($line, 'x' x ($size - (-s $path) - length(sprintf $line, ''))));
	return;
}

# What a trail file has
sub sample
{
	$node->safe_psql('postgres', q{SELECT 'sample'});
	flush_trail($node);
	return slurp_file(current_file());
}

# Wait until all of these are gone.
sub all_gone
{
	my (@paths) = @_;

	return poll_until(sub { !grep { -l $_ || -e $_ } @paths });
}

# The files' names without directory, and those of the ones that are there
sub names_of
{
	return join ' ', map { basename($_) } @_;
}

sub left
{
	return names_of(grep { -l $_ || -e $_ } @_);
}

# Records about retention behind that sequence
sub removals
{
	my ($since) = @_;

	flush_trail($node);
	return grep { ($_->{sequence} // 0) > $since && ($_->{command} // '') eq 'RETENTION' }
	  trail_records($node);
}

sub in_log
{
	my ($regexp, $position) = @_;

	return scalar(() = slurp_file($node->logfile, $position) =~ /$regexp/g);
}

# By default nothing is removed.

my @files = map { finished_file($_, 0) } (1000, 91, 89, 0);
reload();
is(left(@files), names_of(@files), 'by default all files are kept');

# By age, at a reload

my $position = -s $node->logfile;
my $sequence = flush_trail($node);
my $size     = (-s $files[0]) + (-s $files[1]);
my @names    = map { basename($_) } @files;
reconfigure(log_retention_age => '90d');
ok(all_gone(@files[ 0, 1 ]), 'files older than 90 days are removed');
is(left(@files), "$names[2] $names[3]", 'those that are younger are not');
poll_until(sub { in_log(qr/DETAIL:  It had \d+ bytes/, $position) >= 2 });
is(in_log(qr/LOG:  removed audit trail file "audit\/\Q$names[$_]\E"/, $position), 1,
	"the log has it ($_)") foreach 0, 1;
is(in_log(qr/DETAIL:  It had \d+ bytes; the reason is "pg_audit_queue.log_retention_age"/, $position),
	2, 'with size and reason');
my @removals = removals($sequence);
is_deeply(
	[
		columns(
			'class command objectType objectName commandText rowCount oldValue newValue valueSource exitCode backendType',
			@removals)
	],
	[
		"CONFIG|RETENTION|FILE|audit/$names[0]|$names[0], $names[1]|2|$size||pg_audit_queue.log_retention_age|00000|pg_audit_queue worker"
	],
	'the trail has a record');

# When a new file has been started

my $old = age($files[2], 91);
ok(worker_at_rest($node) && -e $old, 'not without an occasion');
$node->safe_psql('postgres', 'SELECT 1');
flush_trail($node);
unaudited_sql($node, 'SELECT audit_rotate()');
ok(all_gone($old), 'when a new file has been started');

# When the worker starts

$old = age($files[3], 91);
$node->restart;
ok(all_gone($old), 'when the server has been started');

# When the oldest falls due, on an idle server; and not otherwise

my @due = map { finished_file($_, 0) } (89, 90 - 15 / $day);
reload();
my $wakeups = stats($node)->{wakeups};
ok(-e $due[1], 'a file that will be old enough in some seconds is there');
ok(all_gone($due[1]), 'nobody has to do anything for it to be removed');
ok(-e $due[0], 'the next one is not');
cmp_ok(worker_at_rest($node) - $wakeups, '<', 60, 'the worker sleeps before and afterwards');
$wakeups = worker_at_rest($node);
sleep 3;
is(stats($node)->{wakeups}, $wakeups, 'and is not woken for the next one');

# The current file is kept, however old and under whatever name, but others are
# removed that have nothing in them.
# Files have no limit from here on, or a small one: to keep less than that would be taken
# for a mistake, and begin later.

put_away(log_rotation_size => 0);
reconfigure(log_retention_age => '1d', log_retention_size => '1kB');
$node->safe_psql('postgres', "SELECT '" . 'x' x 2000 . "'");
$sequence = flush_trail($node);
my $current = age(current_file(), 10);
link($current, "$dir/audit-2020-01-01_000000.json") or die "link: $!";
append_to_file("$dir/audit-2020-01-01_000001.json", '');
age("$dir/audit-2020-01-01_000001.json", 10);
kill_worker($node, 'HUP');
ok(all_gone("$dir/audit-2020-01-01_000001.json"), 'an empty file is removed');
ok(-e $current, 'the current file is kept');
ok(-e "$dir/audit-2020-01-01_000000.json", 'another link to it, too');
unlink("$dir/audit-2020-01-01_000000.json") == 1 or die "unlink: $!";
is_deeply([ columns('commandText', removals($sequence)) ],
	['audit-2020-01-01_000001.json'], 'which was not even thought of');

# The record of a removal may be longer than a file may become, so that the next
# one begins a file.  That is no reason to look for files again: the one with this
# record would be removed, with another record, whenever the worker is woken.

put_away(log_rotation_size => '1kB');
reconfigure(log_directory => 'audit' . '/../audit' x 45);
finished_file(1) foreach 1 .. 3;
$sequence = flush_trail($node);
reconfigure(log_retention_size => '1kB');
ok(worker_at_rest($node), 'removals with records longer than a file come to an end');
@removals = removals($sequence);
foreach my $wakeup (1 .. 3)
{
	my $before = worker_at_rest($node) // die 'the worker does not come to rest';

	kill_worker($node, 'USR1');
	poll_until(sub { stats($node)->{wakeups} > $before }) or die 'the worker is not woken';
}
worker_at_rest($node) or die 'the worker does not come to rest';
is_deeply([ removals($sequence) ], \@removals, 'and do not begin again when it is woken');
cmp_ok(scalar @removals, '>', 0, 'there were some');
is( scalar(grep { length($_->{objectName}) < 400 } @removals),
	0,
	'whose records are that long');
put_away(log_directory => 'audit', log_rotation_size => 0);

# What is not a finished trail file is left alone, and what names lead to.

put_away();
my $sample = sample();
my $victim = $node->data_dir . '/audit-2020-01-01_000000.json';
append_to_file($victim, $sample);
age($victim, 100);
my $sample_of_victim = $sample;
my %others = (
	'audit-2020-01-01_000002.json.gz'   => $sample,
	'audit-2020-01-01_000003.txt'       => $sample,
	'audit-2020-01-01_000004'           => $sample,
	'audit-2020-01-01_00000.json'       => $sample,
	'audit-2020-01-01_000005.0.json'    => $sample,
	'audit-2020-01-01_000005.01.json'   => $sample,
	'audit-2020-01-01_000005.1.1.json'  => $sample,
	'audit-2020-01-01_000005..json'     => $sample,
	'audit-2020-13-01_000006.json'      => $sample,
	'audit-2020-01-01_250006.json'      => $sample,
	'Audit-2020-01-01_000006.json'      => $sample,
	'old-audit-2020-01-01_000006.json'  => $sample,
	'postgresql-2020-01-01.log'         => $sample,
	'audit.json'                        => $sample,
	'.json'                             => $sample,
	'audit-2020-01-01_000007.json'      => qq({"name": "somebody else's"}\n),
	'audit-2020-01-01_000008.log'       => "somebody else's\n");
foreach my $name (sort keys %others)
{
	append_to_file("$dir/$name", $others{$name});
	age("$dir/$name", 100);
}
symlink($victim, "$dir/audit-2020-01-01_000010.json") or die "symlink: $!";
symlink('nowhere', "$dir/audit-2020-01-01_000011.json") or die "symlink: $!";
mkdir("$dir/audit-2020-01-01_000012.json") or die "mkdir: $!";
append_to_file("$dir/audit-2020-01-01_000012.json/audit-2020-01-01_000012.json", $sample);
age("$dir/audit-2020-01-01_000012.json/audit-2020-01-01_000012.json", 100);
age("$dir/audit-2020-01-01_000012.json", 100);
mkfifo("$dir/audit-2020-01-01_000013.json", 0600) or die "mkfifo: $!";
age("$dir/audit-2020-01-01_000013.json", 100);
chdir($dir) or die "chdir: $!";
my $socket = IO::Socket::UNIX->new(
	Type   => SOCK_STREAM,
	Local  => 'audit-2020-01-01_000014.json',
	Listen => 1) or die "socket: $!";
chdir($FindBin::RealBin) or die "chdir: $!";
age("$dir/audit-2020-01-01_000014.json", 100);
my @before = sort(slurp_dir($dir));

# and next to them, trail files, of another format too
my @ours = map { "$dir/$_" }
  qw(audit-2020-01-01_000009.json audit-2020-01-01_000009.1.json audit-2020-01-01_000009.4711.json);
append_to_file($_, $sample) foreach @ours;
push @ours, "$dir/audit-2020-12-31_235959.log";
append_to_file($ours[-1],
	"2020-12-31 23:59:59 UTC LOG:  AUDIT: SESSION,1,1,READ,SELECT,,,select 1,<none>\n");
age($_, 100) foreach @ours;
$node->append_conf('postgresql.conf',
	settings_text(log_retention_age => '90d', log_retention_size => '1kB'));
$node->reload;
ok(all_gone(@ours), 'trail files are removed');
ok(poll_until(sub { stats($node)->{queue_used} == 0 }), 'the worker goes on');
is_deeply([ sort(slurp_dir($dir)) ], \@before, 'all other things are left alone');
ok(-e $victim, 'also what a symbolic link leads to');
unlink(map { "$dir/audit-2020-01-01_0000$_.json" } qw(10 11 13 14)) == 4
  or die "unlink: $!";
rename("$dir/audit-2020-01-01_000012.json", "$away/directory") or die "rename: $!";

# By size: the oldest first, as many as is necessary.  The current file counts.

put_away();
@files = map { finished_file($_, 10 * 1024) } (3, 1, 5, 4, 2);
@names = map { basename($_) } @files;
$sequence = flush_trail($node);
$position = -s $node->logfile;
reconfigure(log_retention_size => '29kB');
ok(all_gone(@files[ 2, 3, 0 ]), 'by size: the oldest are removed');
is(left(@files), "$names[1] $names[4]", 'not more than necessary');
is_deeply(
	[ columns('objectName commandText rowCount oldValue valueSource', removals($sequence)) ],
	[
		"audit/$names[2]|$names[2], $names[3], $names[0]|3|30720|pg_audit_queue.log_retention_size"
	],
	'the trail tells which');
ok(poll_until(sub { in_log(qr/the reason is "pg_audit_queue.log_retention_size"/, $position) == 3 }),
	'the log, too');

# If the age is the same, by name

put_away();
my $time = time - 10 * $day;
@files = map { "$dir/audit-2020-01-01_00000$_.json" } (3, 1, 2);
foreach my $file (@files)
{
	append_to_file($file, $sample);
	pad($file, 20 * 1024);
	utime($time, $time, $file) == 1 or die "utime: $!";
}
reconfigure(log_retention_size => '50kB');
ok(all_gone($files[1]), 'of the same age: by name');
is(left(@files), 'audit-2020-01-01_000003.json audit-2020-01-01_000002.json', 'the others are kept');

# The current file alone may be larger than the limit.

put_away();
$node->safe_psql('postgres', "SELECT '" . 'x' x 20000 . "'");
reconfigure(log_retention_size => '10kB');
$current = current_file();
ok(-e $current && -s $current > 10 * 1024, 'a current file larger than the limit is kept');
put_away();
ok(!-e $current, 'until it is finished') or diag(current_file());

# Both: each for its own reason

@files = map { finished_file($_, 10 * 1024) } (100, 99, 50, 40, 30);
@names = map { basename($_) } @files;
$sequence = flush_trail($node);
reconfigure(log_retention_age => '90d', log_retention_size => '29kB');
ok(all_gone(@files[ 0 .. 2 ]), 'by age and size');
is(left(@files), "$names[3] $names[4]", 'not more than necessary');
is_deeply(
	[ columns('commandText rowCount valueSource', removals($sequence)) ],
	[
		"$names[0], $names[1]|2|pg_audit_queue.log_retention_age",
		"$names[2]|1|pg_audit_queue.log_retention_size"
	],
	'two records');

# All that log_filename can have.  Files with names of an earlier one are kept.

my @kept;
foreach my $pattern ('%a', '%A', '%d%%', '%j', '%y%m%d.%H', 'audit', '100%', '%Ex-%c', '%D %r %p',
	'%b%B%h', '%C%e%k%l', '%F %T %Z', '%G%g%V', '%U%u%W%w', '%z%+', '%v %R %X', 'a.%I%M%S.1', '%Q%n%t')
{
	put_away(log_filename => $pattern);
	my $former = "$dir/former" . @kept . '.json';
	append_to_file($former, sample());
	push @kept, age($former, 100);
	@files = map { finished_file(100, 0) } 1 .. 2;
	reconfigure(log_retention_age => '90d');
	ok(all_gone(@files), "names by $pattern");
	is(left($former), basename($former), 'but no others');
}
put_away(log_filename => 'audit-%Y-%m-%d_%H%M%S');

# Very many files: in groups, all of them.  What is not ours among the oldest, or
# cannot be removed, does not count.

$sample = sample();
my @many;
foreach my $number (1 .. 700)
{
	my $name = sprintf '%s/audit-2020-01-01_000000.%d.json', $dir, $number;

	append_to_file($name, $number <= 300 ? "{}\n" : $sample);
	age($name, 1000 - $number);
	push @many, $name if $number > 300;
}
$sequence = flush_trail($node);
reconfigure(log_retention_age => '90d');
ok(all_gone(@many), 'very many files are removed');
is(scalar(grep { /^audit-2020/ } slurp_dir($dir)), 300, 'those that are not ours are there');
my @names_of_many = map { split /, /, $_->{commandText} } removals($sequence);
is_deeply(
	[ sort @names_of_many ],
	[ sort map { basename($_) } @many ],
	'the trail has their names, each once');
cmp_ok(scalar(removals($sequence)), '<=', 20, 'in few records');

# A file that cannot be removed is reported once, and the others are removed.

put_away();
@files = map { finished_file($_, 10 * 1024) } (300, 200, 100);
set_faults($node, 'trail-unlink' => 1);
$position = -s $node->logfile;
$sequence = flush_trail($node);
reconfigure(log_retention_age => '90d', log_retention_size => '29kB');
ok(wait_for_log($node, qr/could not remove .*\Q$_\E": Operation not permitted/, $position),
	'a file that cannot be removed is reported')
  foreach map { basename($_) } @files;
set_faults($node);

# what has been recorded is not to be in one of these
unaudited_sql($node, 'SELECT audit_rotate()');
my @later = map { finished_file($_, 10 * 1024) } (95, 10);
unaudited_sql($node, 'SELECT audit_rotate()');
ok(all_gone($later[0]), 'others are removed');
ok(worker_at_rest($node), 'the worker comes to rest');
is(left(@files, @later), names_of(@files, $later[1]), 'what cannot be removed does not count');
is(in_log(qr/WARNING:  could not remove/, $position), 3, 'it is not reported again');
my @failures = grep { $_->{exitCode} ne '00000' } removals($sequence);
is_deeply(
	[ columns('objectName rowCount oldValue exitCode errorMessage', @failures) ],
	[ map { 'audit/' . basename($_) . '|1|10240|58030|Operation not permitted' } @files ],
	'but recorded');
is(scalar(removals($sequence)), 5, 'as is that it was tried, and what was removed');
reload();
ok(all_gone(@files), 'after a reload it is tried again');

# A directory in which nothing can be removed

put_away();
@files = map { finished_file($_, 0) } (300, 200);
chmod(0500, $dir) or die "chmod: $!";
$position = -s $node->logfile;
$sequence = flush_trail($node);
reconfigure(log_retention_age => '90d');
ok( wait_for_log($node, qr/could not remove old audit trail files from directory "audit": Permission denied/,
		$position),
	'a directory that cannot be written to is reported');
$node->safe_psql('postgres', 'SELECT 1');
flush_trail($node);
is(scalar(removals($sequence)), 0, 'nothing is planned then');
chmod(0700, $dir) or die "chmod: $!";
unaudited_sql($node, 'SELECT audit_rotate()');
ok(all_gone(@files), 'when it can be, files are removed');
is(in_log(qr/could not remove/, $position), 1, 'it was reported once');

# A plan that a reload has overtaken is not carried out.

put_away();
@files = map { finished_file($_, 0) } (300, 200);
set_faults($node, 'flushed' => 'stop');
$node->append_conf('postgresql.conf', settings_text(log_retention_age => '90d'));
$node->reload;
my $worker = stats($node)->{worker_pid};
my $stopped = sub { slurp_file("/proc/$worker/status") =~ /^State:\s+T/m };
ok(poll_until($stopped), 'a plan is being written');
my $planned = sub { texts_in_trail($node, basename($files[0])) };
foreach (1 .. 5)
{
	last if $planned->();
	kill('CONT', $worker);
	poll_until($stopped);
}
ok($planned->(), 'it is in the trail');
$node->append_conf('postgresql.conf', settings_text(log_retention_age => '400d'));
$node->reload;

# The postmaster passes the signal on in its own time.
my $told = sub
{
	my ($pending) = slurp_file("/proc/$worker/status") =~ /^ShdPnd:\s+(\S+)/m;
	return hex($pending) & 1 << SIGHUP - 1;
};
ok(poll_until($told), 'the worker is told of another reload');
set_faults($node);
kill('CONT', $worker);
flush_trail($node);
reload();
is(left(@files), names_of(@files), 'but not carried out after another reload');

# Whatever has been put where the next file would be is neither used nor waited
# for nor removed.  (Reading the trail here would wait for the FIFO.)

put_away();
$sample = sample();
mkfifo("$dir/next.json", 0600) or die "mkfifo: $!";
mkdir("$dir/next.1.json") or die "mkdir: $!";
chdir($dir) or die "chdir: $!";
$socket = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => 'next.2.json', Listen => 1)
  or die "socket: $!";
chdir($FindBin::RealBin) or die "chdir: $!";
symlink($victim, "$dir/next.3.json") or die "symlink: $!";
symlink($node->data_dir . '/nowhere', "$dir/next.4.json") or die "symlink: $!";
append_to_file("$dir/next.5.json", "somebody else's\n");
age("$dir/next.$_", 100) foreach qw(json 1.json 2.json 5.json);
my @planted = grep { /^next/ } sort(slurp_dir($dir));
$node->append_conf('postgresql.conf',
	settings_text(log_filename => 'next', log_retention_age => '90d', log_retention_size => '1kB'));
$node->reload;
ok(poll_until(sub { basename(current_file()) eq 'next.6.json' }),
	'the next file has the next name that is free');
append_to_file("$dir/next.10.json", $sample);
age("$dir/next.10.json", 100);
is(basename(unaudited_sql($node, 'SELECT audit_rotate()')), 'next.7.json', 'and so on');
ok(all_gone("$dir/next.10.json"), 'a file of ours is removed');
is_deeply([ grep { /^next/ && !/[67]/ } sort(slurp_dir($dir)) ],
	\@planted, 'nothing else is');
is(slurp_file($victim), $sample_of_victim, 'what the link leads to is not written to');
ok(!-e $node->data_dir . '/nowhere', 'nor made');
is(slurp_file("$dir/next.5.json"), "somebody else's\n", 'nor is the file');
unlink(map { "$dir/next.$_" } qw(json 2.json 3.json 4.json)) == 4 or die "unlink: $!";
rmdir("$dir/next.1.json") or die "rmdir: $!";
rename("$dir/next.5.json", "$away/next") or die "rename: $!";

# The directory itself may be a symbolic link.

put_away(log_filename => 'audit-%Y-%m-%d_%H%M%S');
$node->stop;
rename($dir, "$dir.real") or die "rename: $!";
symlink("$dir.real", $dir) or die "symlink: $!";
$node->start;
@files = map { finished_file($_, 0) } (100, 10);
reconfigure(log_retention_age => '90d');
ok(all_gone($files[0]), 'a directory that is a link');
is(left(@files), basename($files[1]), 'what is young is kept there');

# Crashes while files are removed, under load.  What is removed is kept elsewhere
# by a library in front of the server, so that we see what has been in those files:
# each record once, and each file is named by a record.

my $vault = PostgreSQL::Test::Utils::tempdir();
my $keep  = build_preloaded('keep');
put_away(log_rotation_size => '64kB', log_retention_size => '1MB');
$node->stop;
$ENV{PAQ_KEEP}   = $vault;
$ENV{LD_PRELOAD} = $keep;
# which wants to be loaded first, if the server is built with it
$ENV{ASAN_OPTIONS} = join(':', $ENV{ASAN_OPTIONS} // (), 'verify_asan_link_order=0');
$node->start;
wait_for_worker($node);
$sequence = flush_trail($node);
$position = -s $node->logfile;
my @loads;
foreach my $round (1 .. 6)
{
	my $point = (qw(trail-unlink trail-unlinked none))[ $round % 3 ];
	my $crashes = in_log(qr/was terminated by signal 9/, $position);
	my $load;

	set_faults($node, $point => 'kill');
	$load = start_load($node, "round$round", clients => 2, statements => 1500, pause => 0);
	if ($point eq 'none')
	{
		sleep rand(0.5);
		crash_node($node);
		start_again($node);
	}
	else
	{
		ok(poll_until(sub { in_log(qr/was terminated by signal 9/, $position) > $crashes }),
			"$round: killed at $point");
		set_faults($node);
	}
	wait_for_worker($node);
	finish_load($load);
	push @loads, $load;
}
my $last = flush_trail($node);
$node->stop;
delete @ENV{qw(LD_PRELOAD PAQ_KEEP)};
is(in_log(qr/is missing|old copy|shorter than/, $position), 0, 'after crashes no file is missing');
my %seen;
my @records;
my %named;

# A kill may have come when a file was kept already, and not removed yet.
foreach my $file (glob("$vault/*.json"),
	grep { !-e "$vault/" . (stat($_))[1] . '-' . basename($_) } glob("$dir/*.json"))
{
	push @records, map { parse_record($_) // die "no JSON record: $_" }
	  split /\n/, slurp_file($file);
}
foreach my $record (@records)
{
	$seen{ $record->{sequence} }++;
	$named{$_} = 1
	  foreach ($record->{command} // '') eq 'RETENTION' ? split /, /, $record->{commandText} : ();
}
my @removed = grep { !-e "$dir/$_" } map { /^\d+-(.*\.json)$/ } slurp_dir($vault);
cmp_ok(scalar @removed, '>', 10, 'files were removed');
is_deeply([ grep { !$named{$_} } @removed ], [], 'each is named by a record');
is_deeply([ grep { ($seen{$_} // 0) != 1 } $sequence + 1 .. $last ], [], 'each record is there once');
check_load($_, \@records, "$_->{label}: each statement is there once") foreach @loads;
is(scalar(grep { $_->{type} eq 'gap' } @records), 0, 'there are no gaps');

done_testing();
