# A crash of the operating system, as a model.  A library in front of libc keeps
# queue and trail files as they were when they were last synced.  At some moment
# everything is killed.  Of each page that has changed since it was synced one of
# the two versions is brought back at random, files are shorter, a new file may be
# missing, and the boot id is another one.
#
# Of files with layers there are seals, too.  They hold after the crash.
#
# Files with layers have no place for anything within a unit: there a record that is
# whole, but behind a damaged page, may be lost.
#
# After that, records that were flushed are there, unchanged.  Records that are
# whole in the trail or in the queue are there once.  Records that are in
# neither are covered by a GAP record.  The same is true if the server is killed
# while it recovers.
#
# queue_files/Rounds.pm lists the options.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/queue_files";
use PaqTest;

use File::Path;
use BareServer;
use PostgreSQL::Test::Utils;
use QueueFile;
use Rounds;
use SavedState;
use SystemCrash;
use Test::More;
use Workload;

my $rounds = Rounds->new(short => 18, full => 400);

my $node = audited_node(
	'main',
	start        => 0,
	init         => [ extra => ['--wal-segsize=1'] ],
	install_path => fault_install(),
	settings     => {
		flush_interval  => '1h',
		flush_threshold => 80       # much is not durable
	},
	conf         => BareServer::conf() . "fsync = on\n");
my $server = BareServer->new($node);
my $read_units = has_trail_program() ? build_test_library('layers', 'read_units') : undef;
my $copies = SystemCrash::keep_synced();
my $work = PostgreSQL::Test::Utils::tempdir();

# What the rounds take turns with
my @settings = (
	{ format => 'json',    queue_size => '64kB' },
	{ format => 'pgaudit', queue_size => '64kB' },
	{ format => 'csvlog',  queue_size => '64kB' },
	{ format => 'json',    queue_size => '64kB' },
	{ format => 'json',    queue_size => '16MB' });

# Each third round one of these, besides
my %encrypted = map {
	(   $_ => {
			log_encryption             => "aes-$_-gcm",
			log_encryption_key_command => encryption_key($_)
		})
} 128, 256;
my @layers = !defined $read_units ? () : (
	{ seal => 'on', log_compression => 'zstd' },
	{ seal => 'on', %{ $encrypted{128} } },
	{ seal => 'on', log_compression => 'lz4' },
	{ seal => 'on', log_compression => 'zstd', %{ $encrypted{256} } });

# ---------------------------------------------------------------------------
# Before the crash
# ---------------------------------------------------------------------------

# Of what a trail file has, the text of all units that are whole before the first that is
# not; whether that is all.
sub text_of
{
	my ($path, $bytes) = @_;
	my ($name) = $path =~ m{([^/]+)$};
	my $text;

	return ($bytes, 1) if $name =~ /\.(?:json|log|csv)$/;
	unlink("$work/$name");
	append_to_file("$work/$name", $bytes);
	my $all = IPC::Run::run(
		[
			$read_units, "$work/$name", encryption_key_file()
		],
		'>', \$text);
	return ($text, $all);
}

# The file of seals, and that of their key, if there are such
sub seal_files
{
	return grep { -e } queue_dir($node) . '/pgsql_tmp.seal_key',
	  glob(trail_dir($node) . '/pg_audit_queue.seals.*');
}

# Make the first key.
sub make_sealing_key
{
	my ($status, $stdout, $stderr) = trail_program('keygen', '-D', $node->data_dir);

	die "keygen: $stderr" if $status != 0;
	unlink("$work/verification_key");
	append_to_file("$work/verification_key", $stdout);
	chmod(0600, "$work/verification_key") == 1 or die "chmod: $!";
	return;
}

# Contents of the trail's files by path
sub trail_contents
{
	return map { $_ => SavedState::read_file($_) } trail_files($node);
}

# A server's life: returns what there was when things were last synced, and at
# the end.  The fault point at which the worker stops is a random one unless
# given, or "none"; so is what is written last, by a sub that gets the client.
sub live_and_die
{
	my ($env, $point, $last) = @_;
	my $queue = queue_dir($node) . '/queue';
	my %run;

	set_faults($node);
	$server->start or die 'does not start: ' . $server->log;
	my $client = $server->connect;
	my @pending;

	# Up to here everything will be durable.
	foreach my $part (1 .. 1 + int(rand(3)))
	{
		publish($client, int(rand(60)), spill => 5);
		push @pending, begin_statement($server, padding(3000)) if rand() < 0.4;
		$client->query('SELECT audit_flush()');
	}
	if (rand() < 0.4)
	{
		# the checkpoint, too
		$client->query('SELECT audit_rotate()');
		if (rand() < 0.5)
		{
			publish($client, int(rand(20)));
			$client->query('SELECT audit_flush()');
		}
	}

	# And this in part.
	$point //= (qw(checkpoint-written batch-written flushed none))[ rand 4 ];
	if   (defined $last) { $last->($client) }
	else                 { publish($client, int(rand(15)), spill => 3) }
	push @pending, begin_statement($server, padding(500)) if rand() < 0.4;
	push @pending, stop_worker_at($server, $point) if $point ne 'none';
	publish($client, int(rand(15)));
	$server->kill_all;
	$run{what}    = "worker at $point";
	$run{synced}  = SystemCrash::synced_bytes($queue) // die "$queue was never synced";
	$run{durable} = { map { $_ => SystemCrash::synced_bytes($_) // '' } trail_files($node) };
	$run{state}   = SavedState->save($node, 'crash');
	$run{last}    = $run{state}->bytes('queue');
	$run{seals} = {
		map { $_ => [ SystemCrash::synced_bytes($_) // '', SavedState::read_file($_) ] }
		  seal_files()
	};
	return \%run;
}

# ---------------------------------------------------------------------------
# The crash
# ---------------------------------------------------------------------------

sub with_another_boot_id
{
	my ($bytes) = @_;
	my $l = QueueFile::layout();

	substr($bytes, 3 * $l->{page} + $l->{'live.boot_id'}, 8) = 'anotherb';
	return $bytes;
}

# Bring back something between the synced and the last state; returns the
# bytes by file.  How much of queue and trail is random unless given.
sub crash
{
	my ($run, %given) = @_;
	my $state = $run->{state};
	my %p = ((map { $_ => (0, 0.5, 1, rand())[ rand 4 ] } qw(queue trail)), %given);
	my %bytes = (
		queue => with_another_boot_id(
			SystemCrash::mix($run->{synced}, $run->{last}, $p{queue})));

	foreach my $file ($state->files_of_trail)
	{
		my $durable = $run->{durable}{ $file->{path} };

		$bytes{ $file->{path} } =
		  SystemCrash::grow($durable // '', $file->{bytes}, $p{trail});
	}
	foreach my $name ($state->spill_files)
	{
		# neither their contents nor their names are synced
		my $kept = SystemCrash::grow('', $state->bytes($name), $p{queue});

		$bytes{$name} = $kept eq '' && rand() < 0.5 ? undef : $kept;
	}
	$state->restore(%bytes);
	foreach my $path (sort keys %{ $run->{seals} })
	{
		my ($synced, $last) = @{ $run->{seals}{$path} };
		my $mixed =
		  $path =~ /seal_key$/
		  ? SystemCrash::mix($synced, $last, $p{trail})
		  : SystemCrash::grow($synced, $last, $p{trail});

		append_to_file($path, $mixed);
		chmod(0600, $path);
	}
	$run->{what} .= sprintf ', pages %.2f of the queue, %.2f of the trail',
	  @p{qw(queue trail)};
	return \%bytes;
}

# ---------------------------------------------------------------------------
# What must be there afterwards
# ---------------------------------------------------------------------------

# Records of a trail file: hashes with start, text, marker
sub records_of
{
	my ($env, $bytes) = @_;
	my @records;
	my $at = 0;

	# What belongs to the line before begins with a tab, or it is within quotes;
	# the last one may be torn.
	my @texts =
	  $env->{format} eq 'csvlog'
	  ? $bytes =~ /\G((?:[^"\n]++|"[^"]*+")*+\n|.+\z)/gs
	  : split /(?<=\n)(?!\t)/, $bytes;

	foreach my $text (@texts)
	{
		push @records,
		  {
			start  => $at,
			text   => $text,
			marker => marker_in($text),
			gap    => scalar $text =~ /^\{"type":"gap"|AUDIT: GAP,/,
			interrupted => scalar $text =~ /"interrupted":true|,57P02|interrupted/
		  };
		$at += length $text;
	}
	return @records;
}

# The markers that must be there because their bytes are whole.
sub expected_markers
{
	my ($env, $run, $crashed) = @_;
	my %expected;

	# in the trail
	foreach my $file ($run->{state}->files_of_trail)
	{
		my ($left) = text_of($file->{path}, $crashed->{ $file->{path} } // '');
		my ($text) = text_of($file->{path}, $file->{bytes});

		foreach my $record (records_of($env, $text))
		{
			last if $record->{start} + length $record->{text} > length $left;
			$expected{ $record->{marker} } = 'in the trail'
			  if defined $record->{marker}
			  && substr($left, $record->{start}, length $record->{text}) eq $record->{text};
		}
	}
	# in the queue
	my $queue = $crashed->{queue};
	my @parsed = map { QueueFile->parse($run->{$_}) } qw(synced last);

	$parsed[1]->check_layout;

	foreach my $what (map { ($_->frames, $_->entries) } @parsed)
	{
		my ($spill) = $what->{record} =~ /(spill\.[0-9a-f]{16}\.\d+\.\d+\.[0-9a-f]{8})/;
		my $marker = marker_in($what->{record});
		my $whole  = 1;

		# the record's bytes have not changed since: is it there?
		if (defined $spill)
		{
			my $text = $run->{state}->bytes($spill) // '';

			$whole  = ($crashed->{$spill} // '') eq $text;
			$marker = marker_in($text);
		}
		next if !defined $marker || !$whole;
		$expected{$marker} //= exists $what->{published_at} ? 'in a slot' : 'in the queue'
		  if QueueFile::at(\$queue, @{ $what->{ranges} }) eq $what->{bytes};
	}
	return %expected;
}

# All markers there ever were in this life
sub all_markers
{
	my ($run) = @_;
	my %all;

	foreach my $bytes (
		$run->{last},
		(map { (text_of($_->{path}, $_->{bytes}))[0] } $run->{state}->files_of_trail),
		map { $run->{state}->bytes($_) } $run->{state}->spill_files)
	{
		while ($bytes =~ /(fz-\d+-[0-9a-f]{8})/g)
		{
			my $marker = marker_in($1);

			$all{$marker} = 1 if defined $marker;
		}
	}
	return keys %all;
}

sub check_json
{
	my ($faults, @records) = @_;
	my $expected;
	my %seen;

	foreach my $record (@records)
	{
		my $parsed = parse_record($record->{text});

		if (!defined $parsed)
		{
			push @$faults, "no JSON record: $record->{text}";
			next;
		}
		my $sequence = $parsed->{sequence};

		push @$faults, "sequence $sequence, expected $expected"
		  if defined $expected && $sequence != $expected;
		$expected = $sequence + 1;

		# one in place of several
		$expected = $sequence + $parsed->{rowCount}
		  if $record->{gap} && ($parsed->{errorMessage} // '') =~ /with sequence \d+ to \d+/;
	}
	return;
}

sub check_pgaudit
{
	my ($faults, @records) = @_;

	foreach my $record (@records)
	{
		push @$faults, "no record: $record->{text}"
		  if $record->{text} !~ /\A20\d\d-\d\d-\d\d .*AUDIT: (?:SESSION|OBJECT|GAP),.*\n\z/s
		  || $record->{text} =~ /\n[^\t]/;
	}
	return;
}

sub check_csvlog
{
	my ($faults, @records) = @_;
	my $quoted = qr/"(?:[^"]++|"")*+"/;
	my $expected;

	foreach my $record (@records)
	{
		my ($message, $sequence) = $record->{text} =~ m{
			\A20\d\d-\d\d-\d\d[ ][^",]*, (?:(?:$quoted|[^",\n]*),){12}
			("AUDIT:[ ](?:SESSION|OBJECT|GAP),(?:[^"]++|"")*+"), (?:(?:$quoted)?,){2} ,,,,,
			"(\d+)", (?:(?:$quoted)?,){2} ,-?\d+\n\z}xs;

		if (!defined $message)
		{
			push @$faults, "no record: $record->{text}";
			next;
		}
		push @$faults, "sequence $sequence, expected $expected"
		  if defined $expected && $sequence != $expected;
		$expected = $message =~ /GAP,.* with sequence \d+ to (\d+)/ ? $1 + 1 : $sequence + 1;
	}
	return;
}

my %check = (csvlog => \&check_csvlog, json => \&check_json, pgaudit => \&check_pgaudit);

sub check_trail_after
{
	my ($env, $run, $crashed, $after) = @_;
	my %now = trail_contents();
	my @faults;
	my %count;

	foreach my $path (sort keys %{ $run->{durable} })
	{
		my $durable = $run->{durable}{$path};

		push @faults, "$path: changed where it was durable"
		  if substr($now{$path} // '', 0, length $durable) ne $durable;
	}
	foreach my $path (sort keys %now)
	{
		my ($text, $all) = text_of($path, $now{$path});

		push @faults, "$path: damaged" if !$all;
		push @faults, "$path: missing pages" if $text =~ /\0/;
		push @faults, "$path: torn end" if $text ne '' && $text !~ /\n\z/;
		$now{$path} = $text;
	}

	my @records = map { records_of($env, $now{$_}) } trail_files($node);
	$check{ $env->{format} }->(\@faults, @records);

	my %expected = expected_markers($env, $run, $crashed);
	my $lost     = 0;
	my $gaps     = grep { $_->{gap} } @records;

	foreach my $record (grep { defined $_->{marker} } @records)
	{
		$count{ $record->{marker} }{ $record->{interrupted} ? 'interrupted' : 'ended' }++;
	}
	foreach my $marker (all_markers($run), $after)
	{
		my $ended       = $count{$marker}{ended}       // 0;
		my $interrupted = $count{$marker}{interrupted} // 0;

		push @faults, "$marker: $ended records" if $ended > 1;
		push @faults, "$marker: $interrupted records of its slot" if $interrupted > 1;
		next if $ended + $interrupted > 0;
		$lost++;
		push @faults, "$marker: lost, though $expected{$marker}" if $expected{$marker};
	}
	push @faults, 'no GAP record tells of the crash' if !$gaps;
	push @faults, "$lost records lost without a GAP record" if $lost && !$gaps;
	push @faults, 'the new record is not there' if !$count{$after};
	$run->{result} = "$lost lost, $gaps gaps";
	return @faults;
}

# Kill the server while it recovers.
sub interrupt_recovery
{
	my ($env) = @_;
	my $point = (qw(checkpoint-half checkpoint-written batch-written flushed))[ rand 4 ];

	set_faults($node, $point => 'stop');
	$server->start_until_stopped;
	$server->kill_all;
	set_faults($node);
	return $point;
}

# One crash; returns what was wrong.
sub round
{
	my ($env) = @_;
	my $run     = live_and_die($env);
	my $crashed = crash($run);
	my $after   = marker();
	my @times   = (0, 0, 1, full_tests() ? 2 : ());
	my $times   = $times[ rand @times ];

	$env->{run} = $run;
	set_faults($node);
	for (1 .. $times)
	{
		$run->{what} .= ', killed again at ' . interrupt_recovery($env);
	}
	$server->start or return 'does not start: ' . $server->log;
	my $answer = $server->ask("SELECT '$after'");
	my @faults;

	push @faults, "answer $answer" if $answer ne 'D C:SELECT_1';
	$answer = unaudited($server, 'SELECT audit_flush()');
	push @faults, "flush: $answer" if $answer ne 'D C:SELECT_1';
	my $status = $server->stop;
	push @faults, "exit status $status" if $status != 0;
	push @faults, "log: $_"
	  foreach
	  grep { /(?:PANIC|FATAL|ERROR):|TRAP|by signal/ && !/to administrator command/ }
	  split /\n/, $server->log;
	push @faults, check_trail_after($env, $run, $crashed, $after);
	if ($env->{seal})
	{
		my ($verified, $stdout, $stderr) = trail_program('verify', '-k',
			"$work/verification_key", '-D', $node->data_dir, trail_dir($node));

		push @faults, "verify: $verified, $stdout$stderr" if $verified != 0;
	}
	return @faults;
}

# Begin a round with a new queue and an empty trail, or with a file that a
# clean stop has left.
sub prepare
{
	my ($env) = @_;

	File::Path::rmtree(queue_dir($node) . '.links.crash');
	$server->set(%$env);
	unlink(glob(queue_dir($node) . '/*'), glob(trail_dir($node) . '/*'), glob("$copies/*"));
	set_faults($node);
	make_sealing_key() if $env->{seal};
	$server->start or die 'does not start: ' . $server->log;
	my $client = $server->connect;
	publish($client, int(rand(100)));
	$client->quit;
	$server->stop;
	return;
}

# After a clean stop there is nothing to be lost: no GAP record, nothing changed.
sub check_clean_stop
{
	my ($env) = @_;
	my $name = join(' ', map { $env->{$_} // () } qw(format log_compression log_encryption))
	  . ', after a clean stop';
	my %before;
	my %after;
	my $state;

	prepare($env);
	%before = trail_contents();
	$state = SavedState->save($node, 'crash');
	$state->restore(queue => with_another_boot_id($state->bytes('queue')));
	ok($server->start, "$name: starts");
	unaudited($server, 'SELECT audit_flush()');
	$server->stop;
	%after = trail_contents();
	is_deeply([ sort keys %after ], [ sort keys %before ], "$name: no other file");
	foreach my $path (sort keys %before)
	{
		my ($text) = text_of($path, $after{$path});
		my ($old)  = text_of($path, $before{$path});
		my $new = substr($text, length $old);

		is(substr($after{$path}, 0, length $before{$path}),
			$before{$path}, "$name: nothing is changed");
		unlike($new, qr/"type":"gap"|AUDIT: GAP/, "$name: no GAP record");
		is(marker_in($new), undef, "$name: nothing is there twice");
	}
	return;
}

# Pages are missing within records of many lines: where such a record goes on, its
# text has newlines and quotes, and what looks like a record.
sub check_holes
{
	my ($format) = @_;
	my $env  = { format => $format, queue_size => '1MB' };
	my $name = "$env->{format}, holes in records of many lines";
	my $line = q{2026-11-20 10:11:12.123 UTC,"u","d",1,,1.1,1,"S",,,0,LOG,00000,"AUDIT: SESSION,1",}
	  . qq{,,,,,,,"1","","",,0\n};

	prepare($env);
	my $run = live_and_die(
		$env,
		'batch-written',
		sub {
			my ($client) = @_;

			$client->query("SELECT '" . marker() . "' /* " . $line x 70 . ' */') foreach 1 .. 12;
		});
	my $state = $run->{state};
	my %crashed =
	  (queue => with_another_boot_id($run->{synced}), map { $_ => undef } $state->spill_files);
	my $holes = 0;

	foreach my $file ($state->files_of_trail)
	{
		my $durable = length($run->{durable}{ $file->{path} } // '');
		my $bytes   = $file->{bytes};

		# far enough from each other for a record, of 8 to 11 kB, to be whole in
		# between, wherever it begins; or else two holes are one
		for (my $at = $durable + 8192 - $durable % 4096; $at + 8192 < length $bytes; $at += 8 * 4096)
		{
			substr($bytes, $at, 4096) = "\0" x 4096;
			$holes++;
		}
		$crashed{ $file->{path} } = $bytes;
	}
	cmp_ok($holes, '>', 2, "$name: there are some");
	$state->restore(%crashed);
	set_faults($node);
	my $after = marker();

	ok($server->start, "$name: starts");
	is($server->ask("SELECT '$after'"), 'D C:SELECT_1', "$name: sessions work");
	unaudited($server, 'SELECT audit_flush()');
	my $lost = () = $server->log =~ /\d+ bytes of audit trail file ".*" were lost/g;

	cmp_ok($lost, '>', 1, "$name: they are found");
	$server->stop;
	is(join("\n", check_trail_after($env, $run, \%crashed, $after)), '', "$name: nothing else is lost");
	return;
}

# A sector of the trail cannot be read: the server is there all the same, and
# goes on as soon as it can be.
sub check_unreadable_trail
{
	my ($env) = @_;
	my $name = "$env->{format}, trail cannot be read";

	prepare($env);
	my $run     = live_and_die($env, 'batch-written');
	my $crashed = crash($run, queue => 0, trail => 1);
	my $after   = marker();

	set_faults($node, 'trail-read' => 5);
	ok($server->start, "$name: the server starts");
	is($server->ask("SELECT '$after'"), 'D C:SELECT_1', "$name: sessions work");
	ok( poll_until(
			sub {
				$server->log =~
				  /audit trail cannot be written: could not read file ".*": Input\/output error/;
			}),
		"$name: its log says why");
	set_faults($node);
	is(unaudited($server, 'SELECT audit_flush()'), 'D C:SELECT_1', "$name: it goes on");
	$server->stop;
	is(join("\n", check_trail_after($env, $run, $crashed, $after)),
		'', "$name: nothing is lost or doubled");
	return;
}

# Of a queue file neither: it is set aside, and a GAP record says so.
sub check_unreadable_queue
{
	my ($env) = @_;
	my $name = "$env->{format}, queue cannot be read";

	prepare($env);
	live_and_die($env, 'none');
	set_faults($node, 'trail-write' => 5);
	ok($server->start, "$name: the server starts");
	ok(poll_until(sub { -e queue_dir($node) . '/queue.1' && $server->worker }),
		"$name: with backlog");
	set_faults($node, 'trail-write' => 5, 'queue-read' => 5);
	kill('TERM', $server->worker);
	ok( poll_until(
			sub {
				$server->log =~ /could not read queue file ".*": Input\/output error/;
			}),
		"$name: its log says why");
	set_faults($node);
	is(unaudited($server, 'SELECT audit_flush()'), 'D C:SELECT_1', "$name: it goes on");
	$server->stop;
	my %now = trail_contents();
	my @gaps = grep { $_->{gap} } map { records_of($env, $now{$_}) } trail_files($node);
	is(scalar(@gaps), 1, "$name: a GAP record");
	like($gaps[0]{text}, qr/queue files of \d+ bytes could not be used/, "$name: says so");
	ok((grep { /^queue\.bad\./ } slurp_dir(queue_dir($node))), "$name: the file is kept");
	return;
}

$server->make_extension;
check_clean_stop($_) foreach @settings[ 0 .. 2 ];
check_holes($_) foreach qw(json pgaudit csvlog);
check_unreadable_trail($_) foreach @settings[ 0 .. 2 ];
check_unreadable_queue($settings[0]);
check_clean_stop({ %{ $settings[0] }, %$_ }) foreach @layers;

foreach my $number ($rounds->numbers)
{
	my $env = { %{ $settings[ $number % @settings ] } };

	$env = { %$env, %{ $layers[ $number / 3 % @layers ] } } if @layers && $number % 3 == 0;
	$rounds->begin($number);
	prepare($env);
	my @faults = eval { round($env) };

	if ($@)
	{
		push @faults, $@, $server->log;
		$server->kill_all;
	}
	my $run = $env->{run};
	my $name = join(', ',
		map { $env->{$_} // () } qw(format queue_size log_compression log_encryption))
	  . ': '
	  . ($run->{what} // '');
	note("$number: $name: " . ($run->{result} // 'no result'));
	last if @faults && $rounds->failed($number, $name, \@faults,
		queue_dir($node), trail_dir($node), $server->{log});
}
$rounds->finish('all crashes');

done_testing();
