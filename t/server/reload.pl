# Every setting of the worker takes effect by a reload.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { flush_interval => '1h', queue_size => '64kB' },
	conf     => "fsync = on\nautovacuum = off\n");
my $data = $node->data_dir;

# Change settings by a reload, and have the worker read them.
sub reload
{
	my (%settings) = @_;
	my ($name)   = sort keys %settings;
	my $position = -s $node->logfile;

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	return wait_for_log($node,
		qr/parameter "pg_audit_queue\.$name" changed to/, $position);
}

# The paths of files below the data directory, that match the pattern and have
# the text
sub files_with
{
	my ($pattern, $text) = @_;

	return grep { index(slurp_file($_), $text) >= 0 } glob("$data/$pattern");
}

# Publish a record, and wait until it is in a file like that.
sub appears
{
	my ($pattern, $text) = @_;

	$node->safe_psql('postgres', "SELECT '$text'");
	return poll_until(
		sub {
			flush_trail($node);
			return scalar files_with($pattern, $text);
		},
		30);
}

ok(appears('audit/audit-*.json', 'at first'), 'before all changes');

ok(reload(format => 'pgaudit'), 'format');
ok(appears('audit/audit-*.log', 'now pgaudit'), 'another file, another ending');
is_deeply([ files_with('audit/*.json', 'now pgaudit') ],
	[], 'and not in the old one');
my ($file) = files_with('audit/*.log', 'now pgaudit');
like(
	slurp_file($file),
	qr/^[-0-9]+ [0-9:.]+ \S+ \[[0-9]+\] 00000 \S+\@postgres \[local\] LOG:  AUDIT: .*'now pgaudit'/m,
	'by default lines have the outcome and the host');

ok(reload(log_line_prefix => '<%u@%d %e> '), 'log_line_prefix');
ok( poll_until(
		sub {
			$node->safe_psql('postgres', q{SELECT 'prefixed'});
			flush_trail($node);
			my $user = $node->safe_psql('postgres', 'SELECT session_user');
			return scalar files_with('audit/*.log',
				"<$user\@postgres 00000> LOG:  AUDIT: SESSION,1,1,READ,SELECT,,,SELECT 'prefixed'"
			);
		}),
	'lines have the new prefix');

ok(reload(format => 'json'), 'format, back');
ok(appears('audit/audit-*.json', 'json again'), 'json again');

ok(reload(log_filename => 'trail-%Y%m%d'), 'log_filename');
ok(appears('audit/trail-????????*.json', 'another name'), 'another name');

ok(reload(log_directory => 'elsewhere'), 'log_directory');
ok(appears('elsewhere/trail-*.json', 'another place'), 'another place');
is(sprintf('%04o', (stat("$data/elsewhere"))[2] & 07777),
	'0700', 'mode of the new directory');
ok( reload(
		log_directory => $node->basedir . '/absolute',
		log_filename  => 'trail'),
	'log_directory, absolute');
ok(appears('../absolute/trail.json', 'an absolute place'), 'an absolute place');

ok(reload(log_file_mode => '0644'), 'log_file_mode');
ok(appears('../absolute/trail.1.json', 'readable'), 'another file for it');
is(sprintf('%04o', (stat("$data/../absolute/trail.1.json"))[2] & 07777),
	'0644', 'with that mode');

# the reload itself makes two records, one of them of the setting
ok(reload(log_rotation_size => '1kB'), 'log_rotation_size');
ok(appears("../absolute/trail.$_.json", "too much $_"), 'a file for each record')
  foreach 4 .. 5;
ok(reload(log_rotation_size => '0'), 'log_rotation_size, no limit');

# A new directory that cannot be used: the old file stays in use no longer,
# but nothing is lost, and another reload mends it.

my $position = -s $node->logfile;
append_to_file("$data/not_a_directory", '');
ok(reload(log_directory => 'not_a_directory'), 'a wrong log_directory');
$node->safe_psql('postgres', q{SELECT 'in the meantime'});
my $flusher = start_psql($node, 'SELECT audit_flush()',
	settings => { log => 'none' });
ok(wait_for_log($node, qr/WARNING:  audit trail cannot be written/, $position),
	'the server log says so');
is_deeply([ files_with('*/*.json', 'in the meantime') ],
	[], 'the record is not in the trail');
ok(reload(log_directory => 'audit', log_filename => 'mended'), 'mended');
is((finish_psql($flusher))[0], 0, 'a session that has waited goes on');
is(scalar files_with('audit/mended.json', 'in the meantime'),
	1, 'the record is in the trail');

# When it is written.  From here on nobody asks for a flush.

sub is_written
{
	return scalar files_with('audit/mended*.json', $_[0]);
}

$node->safe_psql('postgres', q{SELECT 'long interval'});
ok(!is_written('long interval'), 'flush_interval of an hour');
ok(reload(flush_interval => '10ms'), 'flush_interval');
ok(poll_until(sub { is_written('long interval') }),
	'the record is written after the new interval');
ok( poll_until(
		sub {
			$node->safe_psql('postgres', q{SELECT 'short interval'});
			return poll_until(sub { is_written('short interval') }, 1);
		}),
	'and so are further ones');

ok(reload(flush_interval => '1h', flush_threshold => 80), 'flush_threshold');
flush_trail($node);

# or it may skip what is left of a lap behind the first of them, and write these
defined worker_at_rest($node) or die 'the worker does not come to rest';
$node->safe_psql('postgres', join '', map { "SELECT 'much $_';\n" } 1 .. 60);
my $stats = stats($node);
my $percent = 100 * $stats->{queue_used} / $stats->{queue_size};
cmp_ok($percent, '>', 10, 'the queue is used to more than a tenth');
cmp_ok($percent, '<', 70, 'but not to the threshold');
ok(!is_written('much 1'), 'nothing is written');
ok(reload(flush_threshold => 5), 'flush_threshold, lower');
ok(poll_until(sub { is_written('much 60') }), 'now all is');
$node->safe_psql('postgres', join '', map { "SELECT 'more $_';\n" } 1 .. 60);
ok(poll_until(sub { is_written('more 1') }),
	'records that cross the new threshold are written');

# Whether it is flushed

sub fsyncs_of_immediate
{
	my $session = $node->background_psql('postgres');

	$session->query_safe(q{SET pg_audit_queue.mode = 'immediate'});
	$session->query_safe(q{SELECT 'warm up'});
	my $before = stats($node);
	$session->query_safe("SELECT 'fsync $_'") foreach 1 .. 5;
	my $after = stats($node);
	$session->quit;
	return $after->{fsyncs} - $before->{fsyncs};
}

is(fsyncs_of_immediate(), 5, 'fsync on: each statement');
ok(reload(fsync => 'off'), 'fsync');
is(fsyncs_of_immediate(), 0, 'off: none');
ok(reload(fsync => 'on'), 'fsync, back');
is(fsyncs_of_immediate(), 5, 'on again: each');

# What sessions read themselves

$node->append_conf('postgresql.conf', settings_text(log => 'none'));
my $session = $node->background_psql('postgres');
$session->query_safe(q{SELECT 'before log changes'});
$node->reload;
ok( poll_until(
		sub {
			$session->query_safe('SHOW pg_audit_queue.log') eq 'none';
		}),
	'a session has the new log');
$session->query_safe(q{SELECT 'after log has changed'});
flush_trail($node);
is(is_written('before log changes'),    1, 'recorded before');
is(is_written('after log has changed'), 0, 'not recorded after');
$session->quit;

# What cannot be changed

$position = -s $node->logfile;
$node->append_conf('postgresql.conf', settings_text(queue_size => '1MB'));
$node->reload;
ok( wait_for_log(
		$node,
		qr/"pg_audit_queue\.queue_size" cannot be changed without restarting/,
		$position),
	'queue_size: not without a restart');
$node->stop;

# A reload that comes while the worker, or the loader, is being started: PostgreSQL drops the
# signal for a background worker that has not set its handler yet.

SKIP:
{
	skip 'fork() belongs to the sanitizer', 5 if sanitizers();
	my $hold = PostgreSQL::Test::Utils::tempdir() . '/hold';

	# Reload while the process that takes the place of one that is ended has just been forked.
	my $reload_at_fork = sub {
		my ($pid, %settings) = @_;
		my ($name) = keys %settings;

		$position = -s $node->logfile;
		append_to_file($hold, '');
		kill('TERM', $pid);
		poll_until(sub { -e "$hold.held" }) or die 'no process is forked';
		$node->append_conf('postgresql.conf', settings_text(%settings));
		$node->reload;
		wait_for_log($node, qr/parameter "pg_audit_queue\.$name" changed to/, $position) or die 'no reload';
		unlink $hold, "$hold.held";
		return;
	};

	{
		local @ENV{qw(LD_PRELOAD PAQ_HOLD)} = (build_preloaded('fork'), $hold);
		$node->start;
	}
	$reload_at_fork->(worker_pid($node), flush_interval => '7s');
	ok(poll_until(sub { flush_trail($node); is_written('"7s"') }), 'a worker that is being started has the change');
	like(slurp_file("$data/audit/mended.json"),
		qr/"WORKER START".*\n.*"SET".*"1h".*"7s".*\n.*"RELOAD".*\n\z/, 'and it is recorded');

	ok(reload(sink => 'table'), 'sink');
	ok(poll_until(sub { stats($node)->{loader_pid} }), 'there is a loader');
	$reload_at_fork->(stats($node)->{loader_pid}, database => 'elsewhere');
	ok(wait_for_log($node, qr/database "elsewhere" does not exist/, $position), 'a loader that is being started, too');
	$node->stop;
}

done_testing();
