# A directory of the trail is one server's: another one, which would remove files
# there, does not use it, by whatever name and for whatever it is.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Fcntl qw(:flock);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $base   = PostgreSQL::Test::Utils::tempdir();
my $shared = "$base/shared";
my $lock   = "$shared/pg_audit_queue.lock";
my $in_use = qr/directory "[^"]*" is used for the audit trail of another server/;

symlink($shared, "$base/link") or die "symlink: $!";

my $first  = audited_node('first', settings => { log_directory => $shared });
my $second = audited_node(
	'second',
	settings => {
		log_directory      => "$base/link",
		log_retention_size => '1kB',
		log_rotation_size  => 0
	},
	start    => 0);

# Records of the first server that the second one's retention would remove.
sub finished_files
{
	my ($label) = @_;

	foreach my $n (1 .. 3)
	{
		$first->safe_psql('postgres', "SELECT '$label $n'");
		flush_trail($first);
		unaudited_sql($first, 'SELECT audit_rotate()');
	}
	return trail_files($first);
}

my @files = finished_files('before');

sub all_there
{
	return !grep { !-f $_ } @files;
}

sub start_fails
{
	my ($name) = @_;
	my $position = -s $second->logfile // 0;

	ok(!$second->start(fail_ok => 1), "$name: the second server does not start");
	like(
		substr(slurp_file($second->logfile), $position),
		qr/FATAL:  $in_use.*HINT:  .*"pg_audit_queue\.log_directory"/s,
		'and says why');
	return;
}

# kill -9 of the first server's worker, after which the server comes up again
sub crash
{
	my $pid = kill_worker($first, 'KILL');

	ok(poll_until(sub { !kill(0, $pid) && $first->psql('postgres', '') == 0 }),
		'the server comes up again');
	return;
}

start_fails('a link to the directory');

# After kill -9 the next worker has the lock, also where somebody has removed the file.
crash();
flush_trail($first);
start_fails('with another worker of the first one');
unlink($lock) or die "unlink: $!";
@files = finished_files('without a lock file');
start_fails('with another lock file');
ok(all_there(), 'all files of the first server are there');

# By a reload: nothing is written to it, and nothing removed.
sub reload_into
{
	my (%settings) = @_;
	my $position = -s $second->logfile;

	$second->append_conf('postgresql.conf', settings_text(%settings));
	$second->reload;
	return $position;
}

$second->append_conf('postgresql.conf', settings_text(log_directory => 'own'));
$second->start;
create_extension($second);
flush_trail($second);

my $position = reload_into(log_directory => $shared);
ok(wait_for_log($second, qr/parameter "pg_audit_queue\.log_directory" changed/, $position),
	'the second server is told to use the directory');
$second->safe_psql('postgres', "SELECT 'in the meantime'");
my $flusher = start_psql($second, 'SELECT audit_flush()', settings => { log => 'none' });
ok(wait_for_log($second, qr/WARNING:  audit trail cannot be written: $in_use/, $position),
	'the server log says why it does not');
ok(poll_until(sub { (stats($second)->{last_error} // '') =~ $in_use }), 'the statistics, too');
@files = finished_files('meanwhile');
ok(all_there(), 'all files of the first server are there');

# A worker that begins meanwhile has no use for the lock of its own directory, but has
# it when that directory is used again.
my $own_lock = $second->data_dir . '/own/pg_audit_queue.lock';

sub is_locked
{
	my ($path) = @_;

	open(my $file, '+<', $path) or die "$path: $!";
	return !flock($file, LOCK_EX | LOCK_NB);
}

kill('TERM', worker_pid($second));
ok(poll_until(sub { !is_locked($own_lock) }), 'a worker ends');
reload_into(log_directory => 'own');
is((finish_psql($flusher))[0], 0, 'with its own directory it goes on');
ok(is_locked($own_lock), 'and has its lock');

# So it is after a new directory in which no file can be made.
my $other = $second->data_dir . '/other';
mkdir($other) or die "mkdir: $!";
append_to_file("$other/pg_audit_queue.lock", '');
chmod(0500, $other) or die "chmod: $!";
$position = reload_into(log_directory => 'other');
$second->safe_psql('postgres', "SELECT 'nowhere'");
$flusher = start_psql($second, 'SELECT audit_flush()', settings => { log => 'none' });
ok(wait_for_log($second, qr/WARNING:  audit trail cannot be written: could not create file "other.*: Permission denied/, $position),
	'no file can be made');
ok(is_locked("$other/pg_audit_queue.lock"), 'in a directory that is locked');
reload_into(log_directory => 'own');
is((finish_psql($flusher))[0], 0, 'in its own one it goes on');
ok(is_locked($own_lock), 'and has its lock');
is(scalar(grep { index(slurp_file($_), 'in the meantime') >= 0 } glob($second->data_dir . '/own/*.json')),
	1, 'nothing is lost');

# Where the trail is a table, the directory is only that of old files.
$position = reload_into(sink => 'table', log_directory => $shared);
ok( wait_for_log(
		$second,
		qr/WARNING:  could not remove old audit trail files: $in_use/,
		$position),
	'nor does it remove old files there');
$second->safe_psql('postgres', "SELECT 'into the table'");
ok(table_loaded($second), 'the table has its records');
ok(all_there(), 'all files of the first server are there');
$second->stop;

# Somebody takes the lock when a worker has crashed: the server comes up again, and
# the worker waits.
$position = -s $first->logfile;
my $waiter = fork() // die "fork: $!";
if ($waiter == 0)
{
	open(my $file, '+<', $lock) or POSIX::_exit(1);
	flock($file, LOCK_EX);
	sleep;
	POSIX::_exit(0);
}
ok(poll_until(sub { slurp_file('/proc/locks') =~ /-> FLOCK +ADVISORY +WRITE $waiter / }),
	'somebody waits for the lock');
crash();
$first->safe_psql('postgres', "SELECT 'after a crash'");
$flusher = start_psql($first, 'SELECT audit_flush()', settings => { log => 'none' });
ok(wait_for_log($first, qr/WARNING:  audit trail cannot be written: $in_use/, $position),
	'the worker waits');
kill('KILL', $waiter);
waitpid($waiter, 0);
is((finish_psql($flusher))[0], 0, 'and goes on');
is(texts_in_trail($first, 'after a crash'), 1, 'nothing is lost');

# A lock file that cannot be used is no reason for not writing.
$first->stop;
unlink($lock) or die "unlink: $!";
append_to_file($lock, '');
chmod(0, $lock) or die "chmod: $!";
$position = -s $first->logfile;
$first->start;
$first->safe_psql('postgres', "SELECT 'nobody has a lock'");
flush_trail($first);
is(texts_in_trail($first, 'nobody has a lock'), 1, 'without a lock the trail is written, too');
is(scalar(() = slurp_file($first->logfile, $position) =~ /could not lock file "\Q$lock\E": Permission denied/g),
	1, 'which is said once');
chmod(0600, $lock) or die "chmod: $!";
unaudited_sql($first, 'SELECT audit_rotate()');
ok(is_locked($lock), 'when it can be, it is locked');

# One after the other
$first->stop;
$second->append_conf('postgresql.conf',
	settings_text(sink => 'file', log_retention_size => 0));
$second->start;
$second->safe_psql('postgres', "SELECT 'afterwards'");
flush_trail($second);
is(scalar(grep { index(slurp_file($_), 'afterwards') >= 0 } glob("$shared/*.json")),
	1, 'when the first server has ended, the second one can have it');
ok(!$first->start(fail_ok => 1), 'then the first one does not start');
$second->stop('immediate');
$first->start;
flush_trail($first);
ok(all_there(), 'all files of the first server are there');
$first->stop;
done_testing();
