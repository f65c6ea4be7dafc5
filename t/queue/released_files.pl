# A queue and a trail that a released version has left are taken over by this
# one: each record is in the trail once, with the right sequence.
#
# The files of a version are in released/VERSION/: NAME.tar.gz for each of the
# states below, and "layout", which says where the numbers in its queue files
# are.  They were made by this test, with the library of that version:
#
#	PAQ_KEEP_FILES=t/lib/released/1.0 scripts/test t/queue/released_files.pl
#
# makes them instead of testing; the directory has to be writable for the user
# who runs the tests.  Nothing in the files depends on PostgreSQL's version.
#
# A queue file knows the server that it belongs to, by the system identifier, and
# that it is no copy, by its inode; the same goes for the trail file.  As the one
# thing that is changed, the files get the identity of the test's server.  The
# queue file also knows in which run of the operating system it was used: the
# test decides whether it was this one.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/queue_files";
use PaqTest;

use BareServer;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use QueueFile;
use SavedState;
use Test::More;
use Workload;

my $released = "$FindBin::RealBin/../lib/released";
my $keep     = $ENV{PAQ_KEEP_FILES};
my %settings = (queue_size => '64kB', flush_interval => '1h', flush_threshold => 50);

# The states, by name: the settings; the sub that makes them; whether that needs
# the points of src/fault.h; the number of statements of each kind, whose records
# are expected.  "running" were interrupted.
my %states = (
	clean => {
		settings => {},
		make     => \&make_clean,
		texts    => { flushed => 20, last => 5 }
	},
	crash_json => {
		settings => { overflow => 'drop' },
		make     => \&make_crash_twice,
		faults   => 1,
		texts =>
		  { flushed => 20, queued => 20, spilled => 2, failed => 3, running => 3, later => 20 }
	},
	crash_csvlog => {
		settings => { format => 'csvlog' },
		make     => \&make_crash,
		texts    => { flushed => 20, queued => 20, spilled => 2, failed => 3, running => 3 }
	},
	crash_pgaudit => {
		settings => { format => 'pgaudit' },
		make     => \&make_crash,
		texts    => { flushed => 20, queued => 20, spilled => 2, failed => 3, running => 3 }
	},
	table => {
		settings => { sink => 'table' },
		make     => \&make_table,
		texts    => { loaded => 20, filed => 10, open => 10, queued => 10 }
	});

# Sent while nothing takes records out of the queue, which has no space for all
# of them
my $flood = 400;

# ---------------------------------------------------------------------------
# Making the files
# ---------------------------------------------------------------------------

# Statements of that kind, as many as the state has
sub execute
{
	my ($state, $client, $kind) = @_;

	foreach my $number (1 .. $state->{texts}{$kind})
	{
		my $text = $kind eq 'spilled' ? 'y' x 20000 : 'z' x 100;
		my $fails = $kind eq 'failed' ? ' / 0' : '';

		$client->query("SELECT '$kind-$number-', 1$fails /* $text */");
	}
	return;
}

sub begin_running
{
	my ($state, $server) = @_;

	return map { _begin($server, "SELECT pg_sleep(600), 'running-$_-'") }
	  1 .. $state->{texts}{running};
}

sub _begin
{
	my ($server, $sql) = @_;
	my $client = $server->connect;
	my $pid    = $client->pid;

	$client->start($sql);
	poll_until(
		sub {
			unaudited($server,
				"SELECT 1 FROM pg_stat_activity WHERE pid = $pid AND wait_event = 'PgSleep'") =~
			  /D/;
		}) or die 'the statement does not run';
	return $client;
}

# Start the server, and a client whose first records are durable
sub begin_flushed
{
	my ($state, $server) = @_;

	$server->start or die 'does not start';
	my $client = $server->connect;

	execute($state, $client, 'flushed');
	$client->query('SELECT audit_flush()');
	return $client;
}

sub make_clean
{
	my ($state, $server) = @_;
	my $client = begin_flushed($state, $server);

	execute($state, $client, 'last');
	$client->quit;
	$server->stop;
	return;
}

# Records in the trail, durably; in the queue; and in slots
sub make_crash
{
	my ($state, $server) = @_;
	my $client = begin_flushed($state, $server);

	execute($state, $client, $_) foreach qw(queued spilled failed);
	my @running = begin_running($state, $server);
	$server->kill_all;
	return;
}

# And a second crash, while the worker has written a batch of the first one's
# queue file without having noted that; the second file counts dropped records
sub make_crash_twice
{
	my ($state, $server) = @_;

	make_crash($state, $server);
	set_faults($server->node, 'batch-written' => 'stop');
	$server->start or die 'does not start';
	wait_until_stopped($server->worker) or die 'it does not stop';
	my $client = $server->connect;

	execute($state, $client, 'later');
	$client->query("SELECT 'flood-$_-' /* " . 'z' x 500 . ' */') foreach 1 .. $flood;
	$server->kill_all;
	return;
}

# Records in the table; in files that the loader has not seen; in the queue
sub make_table
{
	my ($state, $server, $directory) = @_;
	my $node = $server->node;

	$server->start or die 'does not start';
	my $client = $server->connect;

	execute($state, $client, 'loaded');
	$client->query('SELECT audit_flush()');
	poll_until(
		sub {
			unaudited($server, "SELECT 1 FROM audit_records WHERE command_text LIKE"
				  . " '%loaded-$state->{texts}{loaded}-%'"
				  . " AND command_text NOT LIKE '%audit_records%'") =~ /D/;
		}) or die 'the loader does not load';

	# it does not get any further
	my ($loader) =
	  grep { slurp_file("/proc/$_/cmdline") =~ /pg_audit_queue loader/ } $server->children;
	kill('STOP', $loader) or die 'no loader';
	execute($state, $client, 'filed');
	$client->query('SELECT audit_rotate()');
	execute($state, $client, 'open');
	$client->query('SELECT audit_flush()');
	execute($state, $client, 'queued');
	my ($dump) = run_command([ 'pg_dump', '-d', $node->connstr('postgres'), '-U', 'paq_quiet' ]);

	# what an older psql does not know
	$dump =~ s/^\\(?:un)?restrict .*\n//mg;
	append_to_file("$directory/dump.sql", $dump);
	$server->kill_all;
	return;
}

sub keep_state
{
	my ($name) = @_;
	my $state = $states{$name};
	my $files = PostgreSQL::Test::Utils::tempdir();
	my $node  = audited_node(
		$name,
		start        => 0,
		install_path => $state->{faults} ? fault_install() : undef,
		settings     => { %settings, %{ $state->{settings} } },
		conf         => BareServer::conf());
	my $server = BareServer->new($node);

	set_faults($node);
	$server->make_extension;
	# what the extension's own records are is not the matter here
	unlink(trail_files($node));
	system_or_bail('rm', '-rf', queue_dir($node));
	$state->{make}->($state, $server, $files);

	system_or_bail('cp', '-R', queue_dir($node), "$files/pg_audit_queue");
	mkdir(trail_dir($node));
	system_or_bail('cp', '-R', trail_dir($node), "$files/audit");
	unlink("$files/pg_audit_queue/lock");
	foreach my $path (queue_files("$files/pg_audit_queue"))
	{
		SavedState::write_file($path,
			QueueFile::with_boot_id(SavedState::read_file($path), QueueFile::layout(), ''));
	}
	system_or_bail('tar', '-C', $files, '--owner=0', '--group=0', '--sort=name',
		'-czf', "$keep/$name.tar.gz", slurp_dir_names($files));
	return;
}

sub slurp_dir_names
{
	return sort grep { !/^\./ } slurp_dir($_[0]);
}

# Paths of the queue files in a directory
sub queue_files
{
	my ($directory) = @_;

	return map { "$directory/$_" } grep { /^queue(?:\.\d+)?$/ } slurp_dir($directory);
}

if (defined $keep)
{
	my $layout = QueueFile::layout();

	keep_state($_) foreach sort keys %states;
	unlink("$keep/layout");
	append_to_file("$keep/layout", join '', map { "$_ $layout->{$_}\n" } sort keys %$layout);
	ok(1, "the files are in $keep");
	done_testing();
	exit;
}

# ---------------------------------------------------------------------------
# Taking them over
# ---------------------------------------------------------------------------

my %layout;

# A node with the files of that state, not running.  $boot: whether the queue was
# used in this run of the operating system.
sub node_with_files
{
	my ($version, $name, $boot) = @_;
	my $state = $states{$name};
	my $files = PostgreSQL::Test::Utils::tempdir();
	my $node  = audited_node(
		"$name$boot",
		start    => 0,
		settings => { %settings, %{ $state->{settings} } });
	my $data = $node->data_dir;

	system_or_bail('tar', '-C', $files, '--no-same-owner', '-xzf',
		"$released/$version/$name.tar.gz");
	system_or_bail('cp', '-R', "$files/pg_audit_queue", "$files/audit", $data);
	chmod(0700, "$data/pg_audit_queue", "$data/audit");

	my ($identifier) =
	  (run_command([ 'pg_controldata', $data ]))[0] =~ /^Database system identifier: +(\d+)$/m;
	# with its newline, as the library reads it
	my $boot_id = $boot ? slurp_file('/proc/sys/kernel/random/boot_id') : 'another';

	foreach my $path (queue_files("$data/pg_audit_queue"))
	{
		SavedState::write_file(
			$path,
			QueueFile::adopted(
				SavedState::read_file($path), $layout{$version},
				system_identifier => $identifier,
				inode             => (stat $path)[1],
				boot_id           => $boot_id,
				trail_inode       => sub { (stat "$data/$_[0]")[1] // 0 }));
	}
	return ($node, $files);
}

# The numbers of a kind of statements that the texts have, all in all, sorted
sub numbers
{
	my ($kind, @texts) = @_;

	return join ' ', sort { $a <=> $b } map { /'\Q$kind\E-(\d+)-'/ } @texts;
}

# Are the statements that the state has in the trail, each once?
sub check_texts
{
	my ($state, $label, @texts) = @_;

	foreach my $kind (sort keys %{ $state->{texts} })
	{
		is(numbers($kind, @texts), join(' ', 1 .. $state->{texts}{$kind}),
			"$label: each record once: $kind");
	}
	return;
}

# Is what was durable in the trail when the files were kept still there?
sub check_kept_trail
{
	my ($node, $label, $files) = @_;

	foreach my $name (slurp_dir_names("$files/audit"))
	{
		my ($flushed) = slurp_file("$files/audit/$name") =~ /\A(.*'flushed-20-'[^\n]*\n)/s;

		is(substr(slurp_file(trail_dir($node) . "/$name"), 0, length $flushed),
			$flushed, "$label: what was in the trail is as it was");
	}
	return;
}

sub no_complaints
{
	my ($node, $label) = @_;

	unlike(slurp_file($node->logfile), qr/set aside|damaged|cannot be used|PANIC/,
		"$label: the server has nothing to complain about");
	return;
}

# A node that has taken over the files of that state, executed one more statement,
# and written everything; it is running.  With the files as they were.
sub take_over
{
	my ($version, $name, $boot, $label) = @_;
	my ($node, $files) = node_with_files($version, $name, $boot);

	$node->start;
	$node->safe_psql('postgres', "SELECT 'after-1-'");
	create_extension($node);
	flush_trail($node);
	no_complaints($node, $label);
	check_kept_trail($node, $label, $files);
	return ($node, $files);
}

sub test_clean
{
	my ($version, $boot) = @_;
	my $label = "$version, clean" . ($boot ? '' : ', after a restart of the system');
	my ($node) = take_over($version, 'clean', $boot, $label);
	my @records = check_trail($node, "$label: one sequence, without gaps");

	check_texts($states{clean}, $label, map { $_->{commandText} // '' } @records);
	is(numbers('after', map { $_->{commandText} // '' } @records), '1', "$label: and goes on");
	is(scalar(grep { $_->{type} eq 'gap' } @records), 0, "$label: no GAP record");
	$node->stop;
	return;
}

sub test_crash_json
{
	my ($version) = @_;
	my $label = "$version, two crashes, json";
	my ($node, $files) = take_over($version, 'crash_json', 1, $label);

	is(scalar queue_files("$files/pg_audit_queue"), 2, "$label: there are two queue files");
	is(scalar(grep { /^spill\./ } slurp_dir("$files/pg_audit_queue")),
		2, "$label: and spill files");
	my @records = check_trail($node, "$label: one sequence, without gaps");

	check_texts($states{crash_json}, $label, map { $_->{commandText} // '' } @records);
	my ($written) = grep { ($_->{commandText} // '') =~ /'flushed-1-'/ } @records;
	my @texts = qw(backendType dbUserName sessionUser currentUser databaseName remoteHost
	  remotePort clientApplication command objectType objectName oldValue);

	foreach my $record (@records)
	{
		my ($kind) = ($record->{commandText} // '') =~ /'(\w+)-\d+-'/;
		my %outcome = (failed => '22012', running => '57P02');

		next if !defined $kind;
		is($record->{exitCode}, $outcome{$kind} // '00000', "$label: outcome: $kind")
		  if $kind eq 'failed' || $kind eq 'running';
		is(!!$record->{interrupted}, !!($kind eq 'running'), "$label: interrupted: $kind")
		  if $kind eq 'failed' || $kind eq 'running';
		is(length $record->{commandText}, length("SELECT 'spilled-1-', 1 /*  */") + 20000,
			"$label: all of the text of a spill file")
		  if $kind eq 'spilled';

		# as in one that the version has written itself
		is_deeply(
			[ @$record{@texts}, $record->{authMethod} ],
			[ @$written{@texts}, undef ],
			"$label: each text is in its field: $kind")
		  if $kind =~ /^(?:queued|later|running|spilled)$/;
	}
	my @gaps = grep { $_->{type} eq 'gap' } @records;
	my $in_trail = split / /, numbers('flood', map { $_->{commandText} // '' } @records);

	is(scalar @gaps, 1, "$label: a GAP record");
	cmp_ok($gaps[0]{rowCount}, '>', 0, "$label: for dropped records");
	is($gaps[0]{rowCount} + $in_trail, $flood, "$label: their number is right");
	is_deeply([ grep { /^spill\.|^queue\./ } slurp_dir(queue_dir($node)) ],
		[], "$label: no file is left");
	$node->stop;
	return;
}

# The trail's texts, and the sequence as far as the format has it
sub test_crash_other
{
	my ($version, $format, $boot) = @_;
	my $name  = "crash_$format";
	my $label = "$version, crash, $format" . ($boot ? '' : ', of the system');
	my ($node) = take_over($version, $name, $boot, $label);

	$node->stop;
	my @records = parse_trail($format, trail_files($node));
	my @texts   = map { join '|', map { $_ // '' } ref $_->[-1] ? @{ $_->[-1] } : @$_ } @records;

	check_texts($states{$name}, $label, @texts);
	is(numbers('after', @texts), 1, "$label: and goes on");
	cmp_ok(scalar(grep { /GAP/ } @texts), $boot ? '==' : '>=', $boot ? 0 : 1,
		"$label: GAP records");
	if ($format eq 'csvlog')
	{
		is(join(' ', map { $_->[21] } @records), join(' ', 1 .. @records),
			"$label: one sequence, without gaps");
	}
	return;
}

# Restoring a dump with psql
sub restore_command
{
	my ($node, $files) = @_;

	return [ 'psql', '-Xq', '-1', '-v', 'ON_ERROR_STOP=1', '-f', "$files/dump.sql",
		'-d', $node->connstr('postgres') ];
}

# A partition of a version whose table had fewer columns is none of this version's.
sub test_missing_columns
{
	my ($version) = @_;
	my $label = "$version, table, restored into new objects";
	my ($node, $files) = node_with_files($version, 'table', 3);

	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	$node->start;
	$node->command_fails_like(restore_command($node, $files),
		qr/child table is missing column/, "$label: is refused");
	$node->stop;
	return;
}

# $update: restore into the objects of the version, and update them; otherwise
# into those of this version.
sub test_table
{
	my ($version, $update) = @_;
	my $label = "$version, table, "
	  . ($update ? 'restored into its own objects' : 'restored into new objects');
	my ($node, $files) = node_with_files($version, 'table', 1 + $update);

	is(scalar(grep { /\.json$/ } slurp_dir("$files/pg_audit_queue/load")),
		2, "$label: there are files that are not loaded");

	# restore without anything of ours at work
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	$node->start;
	$node->safe_psql('postgres', "CREATE EXTENSION pg_audit_queue VERSION '$version'")
	  if $update;
	$node->command_ok(restore_command($node, $files), "$label: the dump is restored");
	$node->stop;
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_audit_queue'\n");
	$node->start;
	$node->safe_psql('postgres', "SELECT 'after-1-'");
	ok(table_loaded($node), "$label: the loader goes on");
	unaudited_sql($node, 'ALTER EXTENSION pg_audit_queue UPDATE') if $update;
	$node->safe_psql('postgres', "SELECT 'after-2-'");
	ok(table_loaded($node), "$label: and on");
	no_complaints($node, $label);
	check_texts(
		{ texts => { %{ $states{table}{texts} }, after => 2 } }, $label,
		split /\n/, unaudited_sql($node,
			"SELECT translate(command_text, chr(10), ' ') FROM audit_records"));
	is( unaudited_sql($node,
			'SELECT min(sequence), max(sequence) - count(*), count(DISTINCT sequence) - count(*),'
			  . " count(*) FILTER (WHERE type = 'gap') FROM audit_records"),
		'1|0|0|0', "$label: one sequence, without gaps");
	is_deeply([ grep { /\.kept$/ } slurp_dir(queue_dir($node) . '/load') ],
		[], "$label: no file is kept");
	$node->stop;
	return;
}

# Did the version's table have the columns of this one?
sub has_all_columns
{
	my ($version) = @_;

	return !grep { slurp_file($_) =~ /^    ADD COLUMN /m }
	  grep { my ($made) = /--([^-]+)\.sql$/; $made gt $version }
	  glob("$FindBin::RealBin/../../pg_audit_queue--*.sql");
}

my @versions = sort grep { /^\d/ } slurp_dir($released);

ok(scalar @versions, "there are files of @versions");
foreach my $version (@versions)
{
	$layout{$version} = { map { split } split /\n/, slurp_file("$released/$version/layout") };

  SKIP:
	{
		skip "the files of $version are of systems with another page size", 1
		  if $layout{$version}{page} != POSIX::sysconf(POSIX::_SC_PAGESIZE());
		skip "the files of $version are of little-endian systems", 1
		  if unpack('H*', pack('S', 1)) ne '0100';

		test_clean($version, 1);
		test_clean($version, 0);
		test_crash_json($version);
		test_crash_other($version, 'csvlog',  1);
		test_crash_other($version, 'csvlog',  0);
		test_crash_other($version, 'pgaudit', 1);
		if (has_all_columns($version)) { test_table($version, 0) }
		else { test_missing_columns($version) }
		test_table($version, 1);
	}
}

done_testing();
