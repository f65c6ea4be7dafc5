# Consumers: they are made and dropped by SQL, shown by a view, and retention leaves them
# the files that they have not acknowledged, up to a limit; whatever is done to them is
# recorded.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Basename;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

need_trail_program();

my $day = 24 * 60 * 60;
my $node = audited_node('main', settings => { log_rotation_size => 0, flush_interval => '50ms' });
my $dir = trail_dir($node);

# Run the program as a shipper that acknowledges, by a shell's commands; returns status and
# messages.
sub ship
{
	my ($consumer, $command, @options) = @_;
	my $stderr;

	IPC::Run::run(
		[
			'pg_audit_trail', 'ship', '--once', "--consumer=$consumer", "--command=$command",
			@options, $dir
		],
		'<', \undef, '>', \my $stdout, '2>', \$stderr);
	return ($? >> 8, $stderr);
}

# Acknowledges each record, and writes all of them to a file.
sub acknowledging
{
	my ($file) = @_;

	return qq(tee -a $file | sed -un 's/.*"sequence":\\([0-9]*\\),.*/\\1/p');
}

sub fails
{
	my ($sql, $state, $message, $name) = @_;
	my ($stdout, $stderr) = ('', '');

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->psql('postgres', "\\set VERBOSITY verbose\n$sql", stdout => \$stdout, stderr => \$stderr);
	like($stderr, qr/ERROR:  $state: $message/, $name);
	return;
}

sub consumer
{
	my ($column, $name) = @_;

	$name //= 'siem';
	return unaudited_sql($node, "SELECT $column FROM audit_consumers WHERE name = '$name'");
}

# A file of some records, finished, so many days old; returns its path.
sub finished_file
{
	my ($days) = @_;
	my $path = current_file();

	$node->safe_psql('postgres', 'SELECT 1');
	flush_trail($node);
	unaudited_sql($node, 'SELECT audit_rotate()');
	utime(time - $days * $day, time - $days * $day, $path) == 1 or die "utime: $!" if $days;
	return $path;
}

sub current_file
{
	return $node->data_dir . '/' . stats($node)->{current_file};
}

# Read the configuration again, which begins a pass of retention, and wait for that.  An empty
# file, which nobody has to acknowledge, is older than all others: when it is gone, the
# pass has decided about those behind it, and what was planned together with it goes, too.
sub reconfigure
{
	my (%settings) = @_;
	my $sentinel = "$dir/audit-2000-01-01_000000.json";
	my $before   = flush_trail($node);

	append_to_file($sentinel, '');
	utime(1, 1, $sentinel) == 1 or die "utime: $!";
	$node->append_conf('postgresql.conf', settings_text(log_retention_age => '1d', %settings));
	$node->reload;
	poll_until(sub { flush_trail($node) > $before }) or die 'the worker does not reload';
	poll_until(sub { !-e $sentinel }) or die 'there is no pass of retention';
	my ($removal) = grep { $_->{commandText} =~ /audit-2000/ } reverse(removals());
	my @planned = grep { !/audit-2000/ } split /, /, $removal->{commandText};
	poll_until(sub { !grep { -e "$dir/$_" } @planned }) or die 'a planned file stays';
	return;
}

# What the trail says of removed files, in order
sub removals
{
	return grep { $_->{command} eq 'RETENTION' } trail_records($node);
}

# Those that name one of the files
sub removals_of
{
	my $names = join '|', map { quotemeta basename($_) } @_;

	return grep { $_->{commandText} =~ /$names/ } removals();
}

# ---------------------------------------------------------------------------
# By SQL
# ---------------------------------------------------------------------------

is($node->safe_psql('postgres', "SELECT audit_consumer_create('siem')"),
	0, 'a consumer begins with nothing');
ok(-f "$dir/pg_audit_queue.consumer.siem", 'its file is in the log directory');
is((stat("$dir/pg_audit_queue.consumer.siem"))[2] & 0777, 0600, 'nobody else may write to it');
fails("SELECT audit_consumer_create('siem')", '42710', 'consumer "siem" already exists',
	'a name is taken once');
fails("SELECT audit_consumer_create('$_')", '42602', 'invalid consumer name', "no name: '$_'")
  foreach ('', 'Siem', '../x', 'a-b', 'a' x 64);
is($node->safe_psql('postgres', "SELECT audit_consumer_create('" . 'a' x 63 . "')"),
	0, 'the longest name');
$node->safe_psql('postgres', "SELECT audit_consumer_drop('" . 'a' x 63 . "')");
fails("SELECT audit_consumer_drop('other')", '42704', 'consumer "other" does not exist',
	'one has to be there to be dropped');
fails("SELECT audit_consumer_drop('../x')", '42602', 'invalid consumer name', 'names are names');

$node->safe_psql('postgres', 'SELECT 1');
my $before = flush_trail($node);
my $from = $node->safe_psql('postgres', "SELECT audit_consumer_create('late', true)");
cmp_ok($from, '>=', $before, 'from_now: all that was recorded before counts as acknowledged');
is(consumer('sequence', 'late'), $from, 'as the view shows');
is(consumer('acknowledged', 'late'), '', 'though nobody has acknowledged anything');

flush_trail($node);
my @changes = map { "$_->{command} $_->{objectType} $_->{objectName} $_->{currentUser}" }
  grep { ($_->{objectType} // '') eq 'CONSUMER' } trail_records($node);
my $user = getpwuid($>);
is_deeply(
	\@changes,
	[
		"CREATE CONSUMER CONSUMER siem $user",
		'CREATE CONSUMER CONSUMER ' . 'a' x 63 . " $user",
		'DROP CONSUMER CONSUMER ' . 'a' x 63 . " $user",
		"CREATE CONSUMER CONSUMER late $user"
	],
	'what is done to consumers is recorded');
unaudited_sql($node, "SELECT audit_consumer_drop('late')");
flush_trail($node);
is((grep { ($_->{command} // '') eq 'DROP CONSUMER' && $_->{currentUser} eq 'paq_quiet' }
		trail_records($node)), 1, 'whatever the settings are');
$node->safe_psql('postgres', "BEGIN; SELECT audit_consumer_create('kept'); ROLLBACK");
is(consumer('name', 'kept'), 'kept', 'a rollback does not undo it');
unaudited_sql($node, "SELECT audit_consumer_drop('kept')");

# ---------------------------------------------------------------------------
# The view, and acknowledging
# ---------------------------------------------------------------------------

my $shipped = PostgreSQL::Test::Utils::tempdir() . '/shipped';
my $last = flush_trail($node);
is(consumer('sequence, lag_records, file_name, acknowledged, active_pid, error'),
	"0|$last||||", 'nothing is acknowledged yet');
cmp_ok(consumer('lag_seconds'), '>', 0, 'the first record waits since it was made');
is( consumer('lag_bytes'),
	unaudited_sql($node, 'SELECT trail_size FROM pg_stat_audit_queue'),
	'all bytes are behind');

my ($status, $stderr) = ship('siem', acknowledging($shipped));
is($status, 0, 'it is shipped');
is($stderr, '', 'with nothing to complain about');
is(consumer('lag_records, lag_bytes, lag_seconds'), '0|0|0', 'then there is no lag');
my ($record) = reverse trail_records($node);
is(consumer('sequence, series, file_name'),
	join('|', $record->{sequence}, $record->{series}, basename(current_file())),
	'it is behind the last record');
is(consumer("record_time = '$record->{logTime}'"), 't', 'whose time is shown');
is(consumer("acknowledged > now() - interval '1 minute'"), 't', 'and when it was acknowledged');

my $begun = time;
$node->safe_psql('postgres', "SELECT 'waits'");
my $now = flush_trail($node);
is(consumer('lag_records'), $now - $record->{sequence}, 'lag in records');
cmp_ok(consumer('lag_bytes'), '>', 100, 'in bytes');
sleep 0.1 while time < $begun + 1;
my $lag = consumer('lag_seconds');
cmp_ok($lag, '>=', 0.9, 'in seconds');
cmp_ok($lag, '<=', time - $begun + 0.5, 'since the first record that waits');
is(slurp_file($shipped), join('', map { "$_\n" } grep { !/waits/ } trail_lines($node)),
	'what was shipped is the trail');

# ---------------------------------------------------------------------------
# Retention
# ---------------------------------------------------------------------------

ship('siem', acknowledging($shipped));
my $old = finished_file(3);
my $waiting = finished_file(2);

reconfigure(log_retention_age => '1d');
ok(-e $_, basename($_) . ' stays, because it is not acknowledged') foreach ($old, $waiting);
is(scalar(removals_of($old, $waiting)), 0, 'nor does the trail say anything of removals');

ship('siem', acknowledging($shipped));
my $place = consumer('file_name');
is($place, basename(current_file()), 'all is acknowledged');
# the worker looks again by itself
poll_until(sub { !-e $old && !-e $waiting }) or diag 'the files stay';
ok(!-e $old && !-e $waiting, 'acknowledged files are removed');
flush_trail($node);
my ($removal) = removals_of($old);
is($removal->{valueSource}, 'pg_audit_queue.log_retention_age', 'for the reason that there was');
is($removal->{exitCode}, '00000', 'as ever');

# A file that is older by its time than what is acknowledged, but was not acknowledged
my $later = finished_file(5);
reconfigure();
ok(-e $later, 'it is not its time that tells whether a file is acknowledged');

# A second consumer, that is slower
unaudited_sql($node, "SELECT audit_consumer_create('slow')");
ship('siem', acknowledging($shipped));
finished_file(0);
ship('siem', acknowledging($shipped));
reconfigure();
ok(-e $later, 'a file stays until the last consumer has acknowledged it');
cmp_ok(consumer('lag_records'), '<', consumer('lag_records', 'slow'), 'though the other one has');

# One whose file is damaged holds everything
ship('slow', acknowledging('/dev/null'));
my $file = "$dir/pg_audit_queue.consumer.slow";
my $good = slurp_file($file);
open(my $fh, '+<', $file) or die $!;
syswrite($fh, 'x' x length($good));
close($fh);
like(consumer('error', 'slow'), qr/^file ".*" is damaged$/, 'a damaged file is shown');
is(consumer('sequence', 'slow'), '', 'and nothing that it says');
reconfigure();
ok(-e $later, 'what is not known holds everything');
($status, $stderr) = ship('slow', 'cat');
is($status, 2, 'nobody can ship for it');
like($stderr, qr/file ".*consumer\.slow" is damaged/, 'and is told why');

# Only one slot is damaged: the place before is left
open($fh, '+<', $file) or die $!;
syswrite($fh, $good);
close($fh);
unlike(consumer('sequence', 'slow'), qr/^0?$/, 'the file is good again');
my $sequence = consumer('sequence', 'slow');
my ($one) = grep { length } map { substr($good, $_, 500) =~ /[^\0]/ ? $_ : '' } 8192, 0;
open($fh, '+<', $file) or die $!;
sysseek($fh, $one, 0);
syswrite($fh, 'torn');
close($fh);
cmp_ok(consumer('sequence', 'slow'), '<=', $sequence, 'a torn write leaves an old place');
is(consumer('error', 'slow'), '', 'which is good');
ship('slow', acknowledging('/dev/null'));
cmp_ok(consumer('sequence', 'slow'), '>', $sequence, 'from which it goes on');
reconfigure();
poll_until(sub { !-e $later });
ok(!-e $later, 'now all have acknowledged it');

# Dropped, it holds nothing
my $held = finished_file(2);
ship('siem', acknowledging($shipped));
reconfigure();
ok(-e $held, 'it is kept for the slow one');
unaudited_sql($node, "SELECT audit_consumer_drop('slow')");
reconfigure();
poll_until(sub { !-e $held });
ok(!-e $held, 'which is dropped');

# ---------------------------------------------------------------------------
# The limit
# ---------------------------------------------------------------------------

my $log_at = -s $node->logfile;
my @held = map { finished_file(10 - $_) } 0 .. 2;
my $total = unaudited_sql($node, 'SELECT trail_size FROM pg_stat_audit_queue');

# what the worker itself records makes the trail grow meanwhile
my $limit = int($total / 0.80 / 1024) + 4;
reconfigure(consumer_keep_size => $limit . 'kB');
ok(-e $held[0], 'below the limit files are kept');
my $warning = qr/WARNING:  audit trail files that consumers have not acknowledged are more than 75 percent of "pg_audit_queue\.consumer_keep_size"/;
wait_for_log($node, $warning, $log_at);
reconfigure();
reconfigure();
like(slurp_file($node->logfile, $log_at), qr/DETAIL:  There are \d+ bytes; they wait for: siem\./,
	'that says for whom');

reconfigure(consumer_keep_size => int($total / 1024 / 2) . 'kB');
poll_until(sub { !-e $held[0] });
ok(!-e $held[0], 'above the limit, the oldest go');
my @warnings = slurp_file($node->logfile, $log_at) =~ /$warning/g;
is(scalar @warnings, 1, 'a warning, once, for several passes');
flush_trail($node);
my ($lost) = grep { $_->{valueSource} eq 'pg_audit_queue.consumer_keep_size' } removals();
is($lost->{objectName}, $held[0] =~ s{.*(audit/[^/]+)$}{$1}r, 'the trail says which, ');
is($lost->{errorMessage}, 'not acknowledged by consumers: siem', 'who has lost it, ');
is($lost->{exitCode}, '01000', 'and that it should not be');
wait_for_log($node, qr/WARNING:  audit trail files that consumers have not acknowledged are removed/,
	$log_at);
($status, $stderr) = ship('siem', acknowledging($shipped));
is($status, 1, 'the shipper notices');
like($stderr, qr/records with sequence \d+ to \d+ are missing in the trail/, 'what it cannot ship');
is(consumer('lag_records'), 0, 'and goes on with the rest');

# ---------------------------------------------------------------------------
# Layers: the first record of a file can be found in all of them
# ---------------------------------------------------------------------------

reconfigure(
	consumer_keep_size         => -1,
	log_compression            => 'zstd',
	log_encryption             => 'aes-256-gcm',
	log_encryption_key_command => encryption_key(256));
my @keys = ('-K', encryption_key_file($node, 256));
ship('siem', acknowledging($shipped), @keys);
my $layered = finished_file(3);
like($layered, qr/\.zst\.enc$/, 'a file with layers');
reconfigure();
ok(-e $layered, 'is kept');
cmp_ok(consumer('lag_records'), '>', 0, 'while there is a lag');
cmp_ok(consumer('lag_seconds'), '>', 0, 'which is known in seconds, too');
($status, $stderr) = ship('siem', acknowledging($shipped), @keys);
is($status, 0, 'it is shipped');
poll_until(sub { !-e $layered });
ok(!-e $layered, 'and removed');
$node->safe_psql('postgres', 'SELECT 1');
flush_trail($node);
($status, $stderr) = ship('siem', acknowledging($shipped));
is($status, 2, 'without the key nothing is shipped');

# Not much is read to find it.  Between what is acknowledged and what is not there is something
# that is neither, and long.
reconfigure(log_compression => 'none', log_encryption => 'none');
$node->safe_psql('postgres', 'SELECT 1');
flush_trail($node);
ship('siem', acknowledging($shipped), @keys);
is(consumer('lag_records'), 0, 'all is acknowledged');
my $looked_through = current_file();
my $size = -s $looked_through;
finished_file(3);
cmp_ok(consumer('lag_seconds'), '>', 0, 'the first record that is not acknowledged is near');
my $text = slurp_file($looked_through);
open($fh, '+<', $looked_through) or die $!;
seek($fh, $size, 0);
print $fh 'x' x 999, "\n" foreach 1 .. 10_000;
print $fh substr($text, $size);
close($fh);
is(consumer('lag_seconds'), '', 'it is not looked for behind several megabytes');
cmp_ok(consumer('lag_records'), '>', 0, 'what else there is to say is said');
open($fh, '>', $looked_through) or die $!;
print $fh $text;
close($fh);
cmp_ok(consumer('lag_seconds'), '>', 0, 'the file as it was');

# ---------------------------------------------------------------------------
# Who may
# ---------------------------------------------------------------------------

$node->safe_psql('postgres',
	'CREATE ROLE nobody_special LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
foreach my $case (
	[ 'nobody_special', 'SELECT * FROM audit_consumers',          'view audit_consumers' ],
	[ 'nobody_special', "SELECT audit_consumer_create('x')",      'function audit_consumer_create' ],
	[ 'watcher',        "SELECT audit_consumer_create('x')",      'function audit_consumer_create' ],
	[ 'watcher',        "SELECT audit_consumer_drop('siem')",     'function audit_consumer_drop' ])
{
	my ($role, $sql, $object) = @$case;

	$node->psql('postgres', $sql, stderr => \$stderr, extra_params => [ '-U', $role ]);
	like($stderr, qr/permission denied for $object/, "$role: $sql");
}
is( $node->safe_psql('postgres', 'SELECT name FROM audit_consumers',
		extra_params => [ '-U', 'watcher' ]),
	'siem', 'a member of pg_monitor sees them');

$node->stop;
done_testing();
