# A sink that fails while clients are at work: full disk, I/O errors,
# directories and files that somebody changes.  The worker says so once, tries
# again with growing delays, and goes on by itself when it can.  No record is
# lost or doubled, sessions that have to wait can be ended, and the server can
# be stopped.
#
# Errors that no test can cause come from the points of src/fault.h, in a
# library built for this test.  The full disk is a small tmpfs, mounted in a
# user namespace of the test's own.  Where user namespaces are not allowed, that
# part is left out, with a message.
#
# trail/rotation.pl has files that are changed while nothing else happens.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

# Before anything else: become a process in namespaces of its own, still the
# same user, with an empty tmpfs that nobody else sees.
my $tmpfs_size;
my $tmpfs;

BEGIN
{
	$tmpfs_size = 1024 * 1024;
	$tmpfs = $ENV{PAQ_043_TMPFS};
	if (!defined $tmpfs)
	{
		my $dir = ($ENV{TESTDIR} // '.') . '/tmp_check/t_043_tmpfs';
		my ($uid, $gid) = ($>, $) + 0);
		my @outer = ('unshare', '--user', '--map-root-user', '--mount');
		my $inner = qq{mkdir -p "\$0" && mount -t tmpfs -o size=$tmpfs_size,mode=0700 tmpfs "\$0"}
		  . qq{ && exec unshare --user --map-user=$uid --map-group=$gid -- "\$@"};

		$ENV{PAQ_043_TMPFS} = '';
		if (system("@outer true >/dev/null 2>&1") == 0
			&& system(@outer, 'sh', '-c', $inner, $dir, 'true') == 0)
		{
			$ENV{PAQ_043_TMPFS} = $dir;
			exec(@outer, 'sh', '-c', $inner, $dir, $^X, (map { "-I$_" } @INC), $0)
			  or die "exec: $!";
		}
		$tmpfs = '';
	}
}

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Basename;
use File::Copy;
use File::Path qw(rmtree);
use IPC::Run;
use List::Util qw(min sum0);
use Test::More;
use Time::HiRes qw(time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $bad  = qr/WARNING:  audit trail cannot be written: (.*)/;
my $good = qr/LOG:  audit trail can be written again/;

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings => { queue_size => '64kB', flush_interval => '100ms' },
	conf     => "autovacuum = off\nfsync = on\n");
my $dir = trail_dir($node);

# Where files go that are moved out of the trail's directory
my $elsewhere = PostgreSQL::Test::Utils::tempdir();

# The worker, which stays the same unless a test ends it
my $worker = worker_pid($node);

my $sequence;

# How often the regular expression matches in the server's log
sub in_log
{
	my ($regexp, $position) = @_;

	return scalar(() = slurp_file($node->logfile, $position) =~ /$regexp/g);
}

# The last error in the statistics, if it has happened since then.
sub error_since
{
	my ($before) = @_;
	my $stats = stats($node);

	return ($stats->{last_error_time} // '') ne ($before->{last_error_time} // '')
	  ? $stats->{last_error}
	  : '';
}

# Does a client of a load wait for the worker?
sub somebody_waits
{
	return unaudited_sql(
		$node, "SELECT count(*) FROM pg_stat_activity
				 WHERE application_name = 'psql'
				   AND wait_event_type = 'Extension'") > 0;
}

# Start a new trail file and put the others away.  Returns the last sequence in
# them.
my $put_away = 0;

sub fresh_file
{
	my $sequence = flush_trail($node);

	unaudited_sql($node, 'SELECT audit_rotate()');
	my @files = trail_files($node);
	pop @files;
	foreach my $file (@files)
	{
		move($file, "$elsewhere/" . $put_away++) or die "move: $!";
	}
	return $sequence;
}

# Is the worker stopped behind a batch that reports so many dropped records?
sub wait_for_batch
{
	my ($dropped) = @_;

	return poll_until(
		sub {
			slurp_file("/proc/$worker/status") =~ /^State:\s+T/m
			  && slurp_file((trail_files($node))[-1]) =~ /"rowCount":$dropped\b/;
		});
}

# Break the sink while clients are at work, see what happens, mend it, and see
# that all is as if nothing had been.
#
# Options:
#	break, mend		subs
#	prepare			sub that is called before there are clients
#	error			regexp for the error
#	during			sub that is called when clients wait
#	mode			of the clients: queued ones wait for space, others for a
#					flush
#	lines			that the server's log has when it fails, 1 unless given
#	slow			clients need some seconds: it takes a while to be noticed
sub failure
{
	my ($label, %case) = @_;
	my $sequence = fresh_file();
	$case{prepare}->() if $case{prepare};
	my $position = -s $node->logfile;
	my $before   = stats($node);
	my $mode     = $case{mode} // 'queued';
	my $lines    = $case{lines} // 1;
	my $waits    = $mode eq 'queued' ? 'space_waits' : 'flush_waits';
	my $load     = start_load(
		$node, $label,
		clients    => 3,
		statements => $case{slow} ? 500 : 250,
		pause      => $case{slow} ? 0.005 : 0.003,
		settings   => { mode => $mode });

	ok(poll_until(sub { texts_in_trail($node, "'$label-1-5'") }),
		"$label: clients are at work");
	$case{break}->();
	ok(poll_until(sub { error_since($before) =~ $case{error} }),
		"$label: the last error is in the statistics")
	  or diag(stats($node)->{last_error});
	ok(poll_until(\&somebody_waits), "$label: clients wait");
	$case{during}->($before, $position) if $case{during};
	is(in_log($bad, $position), $lines, "$label: one line in the server's log");
	is(in_log($good, $position), 0, "$label: none yet that it works again");
	cmp_ok(scalar(@{ $load->{sessions} }), '==',
		scalar(grep { $_->{run}->pumpable } @{ $load->{sessions} }),
		"$label: clients are still at work");

	$case{mend}->();
	is(finish_load($load), $load->{number},
		"$label: mended, all clients come through");
	flush_trail($node);
	is(in_log($bad, $position), $lines, "$label: still one line that it failed");
	is(in_log($good, $position), 1, "$label: one line that it works");
	my $after = stats($node);
	is($after->{worker_pid}, $worker, "$label: it is the same worker");
	is($after->{dropped}, 0, "$label: nothing is dropped");
	cmp_ok($after->{$waits}, '>', $before->{$waits}, "$label: waits are counted");
	my @records = check_trail($node, "$label: the trail is whole",
		first => $sequence + 1);
	check_load($load, \@records, "$label: each statement is there once");
	return;
}

# A session that notes the times of so many attempts that fail from now on, and
# misses none however busy the machine is: it looks every 10 ms.
sub note_attempts
{
	my ($number) = @_;
	my $session = start_psql(
		$node, qq{
		SET client_min_messages = warning;
		CREATE FUNCTION pg_temp.attempts(number int) RETURNS SETOF float8 LANGUAGE plpgsql AS \$\$
			DECLARE
				known timestamptz;
				seen timestamptz;
			BEGIN
				SELECT last_error_time INTO known FROM audit_queue_stats;
				WHILE number > 0 LOOP
					PERFORM pg_sleep(0.01);
					SELECT last_error_time INTO seen FROM audit_queue_stats;
					CONTINUE WHEN seen IS NOT DISTINCT FROM known;
					known := seen;
					number := number - 1;
					RETURN NEXT extract(epoch FROM seen);
				END LOOP;
			END \$\$;
		SELECT * FROM pg_temp.attempts($number)},
		name => 'attempts',
		user => 'paq_quiet');

	poll_until(
		sub {
			unaudited_sql(
				$node, "SELECT count(*) FROM pg_stat_activity
						 WHERE application_name = 'attempts' AND wait_event = 'PgSleep'");
		}) or die 'the session does not look';
	return $session;
}

# The delays between them, in seconds
sub delays
{
	my ($session) = @_;
	my ($status, $stdout) = finish_psql($session);
	my @times = split /\n/, $stdout;

	return map { $times[$_] - $times[ $_ - 1 ] } 1 .. $#times;
}

# Wait until the worker has tried, and failed, once more.
sub after_attempt
{
	my $time = stats($node)->{last_error_time};

	return poll_until(sub { stats($node)->{last_error_time} ne $time });
}

# Is the session gone, within the time that a user would wait?
sub has_ended
{
	my ($name) = @_;

	return poll_until(
		sub {
			unaudited_sql(
				$node, "SELECT count(*) FROM pg_stat_activity
						 WHERE application_name = '$name'") eq '0';
		},
		5);
}

# Writing fails: the delays between attempts grow

my @delays;
failure(
	'enospc',
	break => sub {
		my $session = note_attempts(full_tests() ? 9 : 5);

		set_faults($node, 'trail-write' => 28);
		@delays = delays($session);
	},
	mend  => sub { set_faults($node) },
	error => qr{^could not write to file "audit/.*": No space left on device$});
note("delays: @delays");
cmp_ok(scalar @delays, '>=', 4, 'it is tried again and again');

# a busy machine makes them longer, none shorter
is_deeply([ grep { $delays[$_] < 0.95 * min(0.1 * 2**$_, 5) } 0 .. $#delays ],
	[], 'each time after twice as long, up to 5 s');

# Whoever waits can be ended

unaudited_sql($node, q{
	CREATE ROLE hasty SUPERUSER LOGIN;
	ALTER ROLE hasty SET statement_timeout = '500ms'});
failure(
	'eio',
	break  => sub { set_faults($node, 'trail-write' => 5) },
	mend   => sub { set_faults($node) },
	error  => qr{^could not write to file "audit/.*": Input/output error$},
	during => sub {
		my %session = (
			map({ $_ => start_psql($node, "SELECT '$_'", name => $_) }
				qw(cancelled terminated)),
			hasty => start_psql($node, q{SELECT 'hasty'},
				name => 'hasty', user => 'hasty'),
			map({ $_ => start_psql($node, "SELECT audit_$_()",
						name => $_, settings => { log => 'none' }) }
				qw(flush rotate)));
		my %pid =
		  map { $_ => wait_until_waiting($node, $_) } qw(cancelled terminated flush rotate);

		ok($pid{$_}, "eio: a session waits, to be ended: $_") foreach sort keys %pid;
		unaudited_sql($node, 'SELECT pg_terminate_backend(' . delete($pid{terminated}) . ')');
		unaudited_sql($node, "SELECT pg_cancel_backend($pid{$_})") foreach sort keys %pid;
		foreach my $name (sort keys %session)
		{
			ok(has_ended($name), "eio: $name has ended");
			my ($status, $stdout, $stderr) = finish_psql($session{$name});
			my $state = $name eq 'terminated' ? '57P01' : '57014';

			like($stderr, qr/^(?:ERROR|FATAL):  $state:/m, 'with its SQLSTATE');
		}
	});
is_deeply(
	[
		sort { $a cmp $b }
		map { $_->{commandText} =~ /^SELECT '(cancelled|terminated|hasty)'/
			? "$1 $_->{exitCode}" : () }
		grep { defined $_->{commandText} } trail_records($node)
	],
	[ 'cancelled 57014', 'hasty 57014', 'terminated 57P01' ],
	'eio: each of them is recorded once, with its outcome');

# fsync fails: what it was for is written again before another fsync, because
# after an error the kernel may have forgotten that it is not on disk.

sub start_trace
{
	my ($calls, @who) = @_;
	my $trace = { file => "$elsewhere/strace", stderr => '' };
	my $number = grep { $_ eq '-p' } @who;

	$trace->{run} = IPC::Run::start(
		[ 'strace', '-y', '-e', "trace=$calls", '-s', '0', '-o', $trace->{file}, @who ],
		'2>', \$trace->{stderr},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));

	# to each of them, one after the other
	$trace->{run}->pump
	  until $trace->{stderr} =~ /(?:attached.*?){$number}|ptrace/s;
	like($trace->{stderr}, qr/attached/, 'strace works here');
	return $trace;
}

# Bytes of the case's file that were durable when the statistics were asked,
# from the number of records that have become so since then.
sub durable_bytes
{
	my ($before) = @_;
	my $number = stats($node)->{flushed} - $before->{flushed};
	my @lines = split /^/, slurp_file((trail_files($node))[-1]);

	return length join '', @lines[ 0 .. $number - 1 ];
}

# Where the file was cut off last before the first fsync of the trace, and how many
# bytes were appended to it between the two.
sub written_again
{
	my ($file) = @_;
	my ($calls) = slurp_file($file) =~ m{\A(.*?)^fdatasync\(\d+<\Q$dir\E/[^\n]*= 0$}ms;
	my ($position, $appended) = (-1, 0);

	foreach my $call (split /\n/, $calls // '')
	{
		if ($call =~ m{^ftruncate\(\d+<\Q$dir\E/[^>]*>, (\d+)\) += 0$})
		{
			($position, $appended) = ($1, 0);
		}
		elsif ($call =~ m{^write\(\d+<\Q$dir\E/[^>]*>, ""\.\.\., \d+\) += (\d+)$})
		{
			$appended += $1;
		}
	}
	return ($position, $appended);
}

foreach my $case (
	[ 'queued',    'queued', undef ],
	[ 'immediate', 'immediate', undef ],
	[
		'worker', 'queued',
		sub {
			my ($position) = @_;

			kill('TERM', $worker);
			$worker = wait_for_worker($node, $worker);
			poll_until(sub { in_log($bad, $position) >= 2 }) or die 'it does not fail again';
		}
	])
{
	my ($name, $mode, $event) = @$case;
	my $durable;
	my $trace;

	failure(
		"fsync-$name",
		mode  => $mode,
		lines => $event ? 2 : 1,
		break => sub { set_faults($node, 'trail-fsync' => 5) },
		error => qr{^could not fsync file "audit/.*": Input/output error$},
		during => sub {
			my ($before, $position) = @_;

			$event->($position) if $event;
			$durable = durable_bytes($before);
			$trace   = start_trace('write,ftruncate,fdatasync,fsync', '-p', $worker);
		},
		mend => sub { set_faults($node) });
	$trace->{run}->signal('INT');
	$trace->{run}->finish;

	my ($position, $appended) = written_again($trace->{file});
	is($position, $durable, "fsync-$name: all that was not durable is cut off");
	cmp_ok($appended, '>', 500, "fsync-$name: and it is written again");
}

# The file that cannot be made durable is given up, or lost.  What was durable
# in it stays there, everything else comes into the next one, and only there.

foreach my $case (
	[
		'name',
		sub {
			$node->append_conf('postgresql.conf', settings_text(log_filename => 'bbb'));
			$node->reload;
		}
	],
	[
		'rename',
		sub {
			my ($file) = @_;
			rename($file, "$dir/audit-1.json") or die "rename: $!";
		}
	],
	[
		'unlink',
		sub {
			my ($file, $durable) = @_;

			copy($file, "$dir/audit-1.json") or die "copy: $!";
			truncate("$dir/audit-1.json", $durable) or die "truncate: $!";
			unlink($file) or die "unlink: $!";
		}
	],
	[
		'truncate',
		sub {
			my ($file, $durable) = @_;

			copy($file, "$dir/audit-1.json") or die "copy: $!";
			truncate("$dir/audit-1.json", $durable) or die "truncate: $!";
			truncate($file, 0) or die "truncate: $!";
		}
	])
{
	my ($name, $event) = @$case;

	failure(
		"fsync-$name",
		break => sub { set_faults($node, 'trail-fsync' => 5) },
		error => qr{^could not fsync file "audit/.*": Input/output error$},
		during => sub {
			my ($before) = @_;
			my ($file)   = trail_files($node);
			my $durable  = durable_bytes($before);
			my $second   = int(time);

			# a file that begins in the same second would get its name
			poll_until(sub { int(time) > $second });

			# just after an attempt, so not in the middle of one
			after_attempt();
			$event->($file, $durable);
			ok( poll_until(
					sub {
						my $current = basename(stats($node)->{current_file});
						$current ne '' && $current ne basename($file);
					}),
				"fsync-$name: there is another file");
			is(-s $file, 0, "fsync-$name: nothing is written to the old one")
			  if $name eq 'truncate';
		},
		mend => sub { set_faults($node) });
	if ($name eq 'name')
	{
		# back, to names that sort by time
		$node->append_conf('postgresql.conf',
			settings_text(log_filename => 'audit-%Y-%m-%d_%H%M%S'));
		$node->reload;
		poll_until(sub { stats($node)->{current_file} !~ /bbb/ })
		  or die 'no other file';
		unlink("$dir/bbb.json") or die "unlink: $!";
	}
}

# A short write: the file may not become any longer.  The worker ignores the
# signal that the kernel sends for that.

my $limit;
failure(
	'short',
	prepare => sub {
		# the limit is one for the server's log as well
		unaudited_sql($node, q{SET pg_audit_queue.log = 'all'; SET log_statement = 'none';
			SELECT length('} . 'x' x (200_000 + -s $node->logfile) . q{')});
		flush_trail($node);
	},
	break => sub {
		kill('STOP', $worker);
		$limit = (-s (trail_files($node))[-1]) + 5000;
		system_or_bail('prlimit', '--pid', $worker, "--fsize=$limit:");
		kill('CONT', $worker);
	},
	error  => qr{^could not write to file "audit/.*": File too large$},
	during => sub {
		my $file = (trail_files($node))[-1];

		ok(poll_until(sub { slurp_file($file) =~ /\n\z/ }),
			'short: what was written of a batch is cut off');
		cmp_ok(-s $file, '<=', $limit, 'short: the limit holds');
	},
	mend => sub {
		system_or_bail('prlimit', '--pid', $worker, '--fsize=unlimited:');
	});

# The trail's directory: renamed, with something else in its place.  The file
# that is open there goes on being used until that is noticed.

sub move_away
{
	rename($dir, "$elsewhere/audit") or die "rename: $!";
	return;
}

sub move_back
{
	poll_until(sub { -d $dir && trail_files($node) }) or die 'no new directory';
	foreach my $file (slurp_dir("$elsewhere/audit"))
	{
		next if $file =~ /^\.\.?$/;
		unlink("$dir/$file") if $file =~ /^pg_audit_queue\.(?:lock|flushed)$/;
		die "$file is there twice" if -e "$dir/$file";
		rename("$elsewhere/audit/$file", "$dir/$file") or die "rename: $!";
	}
	rmdir("$elsewhere/audit") or die "rmdir: $!";
	return;
}

sub noticed_once
{
	my ($before, $position) = @_;

	ok(after_attempt(), 'it is tried again');
	is(in_log(qr/was (?:removed|moved or replaced|truncated), starting/, $position), 1,
		'that the file has gone is said once');
	return;
}

failure(
	'file',
	slow  => 1,
	break => sub { move_away(); append_to_file($dir, "not a directory\n") },
	error => qr{^could not create file "audit/.*": Not a directory$},
	during => \&noticed_once,
	mend  => sub { unlink($dir) or die "unlink: $!"; move_back() });

failure(
	'link',
	slow  => 1,
	break => sub {
		move_away();
		symlink('no/such/directory', $dir) or die "symlink: $!";
	},
	error => qr{^could not create file "audit/.*": No such file or directory$},
	during => \&noticed_once,
	mend  => sub { unlink($dir) or die "unlink: $!"; move_back() });

# Permissions taken away: the open file can still be written.  It is, also when
# it is time for another one that cannot be made.

$sequence = fresh_file();
my $position = -s $node->logfile;
my $before   = stats($node);
my $load = start_load($node, 'chmod', clients => 3, statements => 1500, pause => 0.005);

chmod(0000, $dir) or die "chmod: $!";
ok( poll_until(sub { stats($node)->{flushed} > $before->{flushed} + 20 }),
	'chmod: the current file is still written');
is(error_since($before), '', 'chmod: without an error');
my ($status, $stdout, $stderr) = $node->psql('postgres',
	'SET pg_audit_queue.log = none; SELECT audit_rotate()');
isnt($status, 0, 'chmod: audit_rotate() fails');
like($stderr, qr/ERROR:  could not start a new audit trail file/,
	'chmod: and says so');
like(error_since($before), qr{^could not create file "audit/.*": Permission denied$},
	'chmod: the statistics have the reason');
my $flushed = stats($node)->{flushed};
ok(poll_until(sub { stats($node)->{flushed} > $flushed + 20 }),
	'chmod: the current file is written all the same');
is(finish_load($load), $load->{number}, 'chmod: all clients come through');
is(in_log(qr/WARNING:  could not start a new audit trail file: /, $position), 1,
	'chmod: one line in the log');
is(in_log($bad, $position), 0, 'chmod: none that it cannot be written');
chmod(0700, $dir) or die "chmod: $!";
my $current = stats($node)->{current_file};
my $rotated = poll_until(
	sub {
		my ($failed, $file) = $node->psql('postgres',
			'SET pg_audit_queue.log = none; SELECT audit_rotate()');
		return $failed ? undef : $file;
	});
isnt($rotated, undef, 'chmod: then audit_rotate() works');
isnt($rotated, $current, 'chmod: there is another file');
is(in_log(qr/LOG:  a new audit trail file could be started/, $position), 1,
	'chmod: and the log says so');
my @records = check_trail($node, 'chmod: the trail is whole',
	first => $sequence + 1);
check_load($load, \@records, 'chmod: each statement is there once');

# Files that are meddled with while the sink fails.  What they have had is put
# aside, what comes afterwards is written once.

foreach my $case (
	[ 'removed', sub { unlink($_[0]) or die "unlink: $!" } ],
	[ 'truncated', sub { truncate($_[0], 100) or die "truncate: $!" } ],
	[
		'replaced',
		sub {
			unlink($_[0]) or die "unlink: $!";
			mkdir($_[0]) or die "mkdir: $!";
		}
	],
	[ 'directory', sub { rmtree($dir) } ])
{
	my ($name, $meddle) = @$case;
	failure(
		$name,
		break => sub { set_faults($node, 'trail-write' => 5) },
		error => qr{^could not write to file "audit/.*": Input/output error$},
		mend => sub {
			my ($file) = trail_files($node);
			my $position = -s $node->logfile;
			my $before   = stats($node)->{current_file};
			my $current;

			copy($file, "$elsewhere/old") or die "copy: $!";
			$meddle->($file);
			set_faults($node);

			ok(wait_for_log($node,
					qr/was (?:removed|moved or replaced|truncated), starting a new one/, $position),
				"$name: it is noticed");
			poll_until(sub { ($current = stats($node)->{current_file}) ne $before })
			  or die 'there is no new file';
			rmtree($file) if $current ne 'audit/' . basename($file);
			move("$elsewhere/old", "$dir/audit-1.json") or die "move: $!";
		});
}

# A worker that leaves while there are no sessions notes on disk that the queue
# file is complete.  The server goes on, so the next one has to take that back
# there before it writes anything.

flush_trail($node);
my $postmaster = postmaster_pid($node);
my $trace = start_trace('msync,pwrite64', '-f', '-p', $postmaster, '-p', $worker);
kill('TERM', $worker);
my $next_worker = wait_for_worker($node, $worker);
flush_trail($node);
$trace->{run}->signal('INT');
$trace->{run}->finish;
like(slurp_file($trace->{file}), qr/^$worker +msync\(/m, 'a worker that leaves syncs the queue');
like(
	(slurp_file($trace->{file}) =~ /^($next_worker +(?:msync|pwrite64)\(.*)$/m)[0],
	qr/ msync\(/, 'the next one does so before it writes');
$worker = $next_worker;

# Shutdown is not held up; what is in the queue is there at the next start,
# with the sink still failing, and once more.

$sequence = fresh_file();
my @loads;
set_faults($node, 'trail-write' => 28);
foreach my $round (1 .. 2)
{
	my $position = -s $node->logfile;
	my $load = start_load(
		$node, "stop-$round",
		clients    => 3,
		statements => 150);
	my $flusher = start_psql(
		$node, q{SELECT 'waits'},
		name     => 'immediate',
		settings => { mode => 'immediate' });
	my $end;

	ok(wait_until_waiting($node, 'immediate'), "stop $round: a session waits for a flush");
	ok(poll_until(\&somebody_waits), "stop $round: others for space");
	my $start = time;
	is(system('pg_ctl', '-s', '-w', '-t', '60', '-D', $node->data_dir, '-m', 'fast', 'stop'),
		0, "stop $round: fast shutdown while the sink fails");
	$end = time;
	cmp_ok($end - $start, '<', 10, "stop $round: is not held up");
	note(sprintf 'it took %.2f s', $end - $start);
	like((finish_psql($flusher))[2], qr/FATAL:  57P01/, "stop $round: ends who waits");
	is(in_log(qr/LOG:  \d+ bytes of audit records remain in the queue/, $position),
		1, "stop $round: the server's log says what remains");
	cmp_ok(finish_load($load), '<', $load->{number}, "stop $round: ends clients");
	push @loads, $load;
	$node->_update_pid(0);
	$node->start;
	is(texts_in_trail($node, 'stop-1'), 0, "stop $round: nothing was written");
	is(in_log($good, $position), 0, "stop $round: or can be");
}
set_faults($node);
flush_trail($node);
is(stats($node)->{dropped}, 0, 'nothing is dropped');
@records = check_trail($node, 'stop: the trail is whole',
	first => $sequence + 1);
check_load($_, \@records, "$_->{label}: each statement is there once") foreach @loads;
is(scalar(grep { $_->{type} eq 'gap' } @records), 0, 'no records are missing anywhere');
$node->stop;

# Records that are dropped behind the end of a batch, while it is written: nothing but
# a flush makes the worker look before flush_interval, which is an hour here.

$node->append_conf('postgresql.conf',
	settings_text(overflow => 'drop', flush_interval => '1h'));
$node->start;
$worker = worker_pid($node);
$sequence = fresh_file();

# Have records dropped; returns how many are by then.
sub drop_some
{
	my ($label) = @_;

	$node->safe_psql('postgres', join '', map { "SELECT '$label $_';\n" } 1 .. 500);
	return stats($node)->{dropped};
}

kill('STOP', $worker) == 1 or die "kill: $!";
my $dropped = drop_some('before');
cmp_ok($dropped, '>', 100, 'drop: the queue is full');
set_faults($node, 'batch-written' => 'stop');
kill('CONT', $worker);
ok(wait_for_batch($dropped), 'drop: a batch has all that the queue has');
cmp_ok(drop_some('behind'), '>=', $dropped + 500, 'drop: others are dropped behind its end');
set_faults($node);
kill('CONT', $worker);
flush_trail($node);
@records = check_trail($node, 'drop: the trail is whole', first => $sequence + 1);
is(sum0(map { $_->{rowCount} } grep { $_->{type} eq 'gap' } @records),
	stats($node)->{dropped}, 'drop: a flush waits for the report of both');
$node->append_conf('postgresql.conf',
	settings_text(overflow => 'wait', flush_interval => '100ms'));
$node->stop;

# A full disk

SKIP:
{
	if ($tmpfs eq '')
	{
		diag('no tmpfs can be mounted here: NOT TESTED with a disk that is full');
		skip 'no tmpfs can be mounted here', 1;
	}
	$node = audited_node(
		'full',
		settings => {
			queue_size     => '64kB',
			flush_interval => '100ms',
			log_directory  => "$tmpfs/audit"
		},
		conf => "autovacuum = off\n");
	$worker = worker_pid($node);

	failure(
		'full',
		break => sub {
			open my $filler, '>', "$tmpfs/filler" or die "open: $!";
			1 while syswrite($filler, "\0" x 4096);
			close $filler;
		},
		error => qr{^could not write to file "\Q$tmpfs\E/audit/.*": No space left on device$},
		during => sub {
			ok(poll_until(sub { slurp_file((trail_files($node))[-1]) =~ /\n\z/ }),
				'full: what was written of a batch is cut off');
		},
		mend => sub { unlink("$tmpfs/filler") or die "unlink: $!" });
	$node->stop;
}

done_testing();
