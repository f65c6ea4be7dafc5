# Bad queue files: bits flipped; pages lost, swapped or out of date; cut off; of
# another version or another server; replaced by something that is not a file.
# The server starts each time and records what it does.  Records that the damage
# has spared get into the trail once, and lost records leave a GAP record.
#
# A round may damage several files.  PAQ_TEST_ROUNDS, see queue_files/Rounds.pm,
# is the number of mutations here.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/queue_files";
use PaqTest;

use BareServer;
use Mutation;
use PostgreSQL::Test::Utils;
use QueueFile;
use Rounds;
use SavedState;
use Test::More;
use Workload;

my $rounds = Rounds->new(short => 60, full => 2000);

# Small, so that all of it has been written to several times
my $node = audited_node(
	'main',
	start        => 0,
	install_path => fault_install(),
	settings     => { queue_size => '64kB', flush_interval => '1h', flush_threshold => 50 },
	conf         => BareServer::conf());
my $server = BareServer->new($node);
my $queue  = queue_dir($node);

# ---------------------------------------------------------------------------
# What there is to be damaged
# ---------------------------------------------------------------------------

# Nothing is there but what the sub does; it ends with the server down.
sub make_state
{
	my ($name, $sub, %settings) = @_;
	my @older;

	unlink(glob("$queue/*"), glob(trail_dir($node) . '/*'));
	set_faults($node);
	$server->set(%settings);
	$server->start or die "the server does not start:\n" . $server->log;
	$sub->(sub { push @older, SavedState::read_file("$queue/queue") });
	$server->set;
	my $state = SavedState->save($node, $name);
	$state->{older} = \@older;
	$state->{stuck} = $name =~ /^(?:backlog|drops)$/;
	_know_markers($state);
	return $state;
}

# Which markers are where
sub _know_markers
{
	my ($state) = @_;

	foreach my $file ($state->files_of_trail)
	{
		foreach my $line (split /\n/, $file->{bytes})
		{
			my $marker = marker_in($line);

			$state->{in_trail}{$marker} = 1 if defined $marker;
		}
	}
	foreach my $name ($state->files)
	{
		my $file = QueueFile->parse($state->bytes($name));

		$file->check_layout;
		foreach my $what ($file->frames, $file->entries)
		{
			my ($spill) = $what->{record} =~ /(spill\.[0-9a-f]{16}\.\d+\.\d+\.[0-9a-f]{8})/;
			my $marker =
			  marker_in(defined $spill ? $state->bytes($spill) // '' : $what->{record});

			next if !defined $marker || $state->{in_trail}{$marker};
			push @{ $state->{in_queue}{$marker} },
			  {
				file   => $name,
				ranges => $what->{ranges},
				spill  => $spill,
				entry  => exists $what->{published_at}
			  };
		}
	}
	return;
}

# Several laps; the last records in the trail are not durable; some statements
# go on, one with a text that has no space in its slot.
sub busy_state
{
	my ($point) = @_;

	return sub {
		my ($keep_older) = @_;
		my $client = $server->connect;

		publish($client, 100, spill => 7);
		$keep_older->();
		$client->query('SELECT audit_flush()');
		publish($client, 150, spill => 7);
		$client->query('SELECT audit_flush()');
		$keep_older->();
		publish($client, 20, spill => 7);
		my @pending = (begin_statement($server, padding(500)), begin_statement($server, 'z' x 20000));
		$client->query('SELECT audit_flush()');
		# An older copy is told by the number of records that the trail has more.
		$keep_older->();
		publish($client, 15, spill => 7);
		stop_worker_at($server, $point);
		publish($client, 40, spill => 7);
		push @pending, begin_statement($server, padding(3000));
		$server->kill_all;
	};
}

# The trail was rotated a moment ago, so that what is in the ring from before
# is in another file.
sub rotated_state
{
	my ($keep_older) = @_;
	my $client = $server->connect;

	publish($client, 60, spill => 7);
	$keep_older->();
	$client->query('SELECT audit_rotate()');
	publish($client, 30, spill => 7);
	$client->query('SELECT audit_rotate()');
	$keep_older->();
	publish($client, 10, spill => 7);
	$client->query('SELECT audit_flush()');
	publish($client, 10, spill => 7);
	stop_worker_at($server, 'checkpoint-written');
	publish($client, 10, spill => 7);
	$server->kill_all;
	return;
}

# Three files, none of which could be written to the trail
sub backlog_state
{
	my ($keep_older) = @_;

	foreach my $number (1 .. 3)
	{
		my $client = $server->connect;

		if ($number == 1)
		{
			publish($client, 50, spill => 7);
			$client->query('SELECT audit_flush()');
			set_faults($node, 'trail-write' => 5);
		}
		publish($client, 20, spill => 7);
		$keep_older->();
		my $pending = begin_statement($server, padding(2000));
		publish($client, 10, spill => 7);
		$server->kill_all;
		$server->start or die 'the server does not start' if $number < 3;
	}
	return;
}

# Records were dropped, and nothing tells of it yet.
sub drops_state
{
	my ($keep_older) = @_;
	my $client = $server->connect;

	publish($client, 30, spill => 7);
	$client->query('SELECT audit_flush()');
	$keep_older->();
	set_faults($node, 'trail-write' => 5);
	publish($client, 60, spill => 7);
	publish($client, 60, spill => 7);
	$server->kill_all;
	return;
}

# Everything is in the trail.
sub clean_state
{
	my ($keep_older) = @_;
	my $client = $server->connect;

	publish($client, 80, spill => 7);
	$keep_older->();
	$client->query('SELECT audit_flush()');
	publish($client, 20, spill => 7);
	$client->quit;
	$server->stop;
	return;
}

# Nothing is in the trail, and somebody was killed between reserving space and
# saying where; all frames at the end are as long as his.
sub reserved_state
{
	my $client = $server->connect;
	my $dying  = $server->connect;
	my $sql = sub { sprintf q{SELECT '%-40s'}, marker() };

	set_faults($node, 'trail-write' => 5);
	$client->query($sql->()) foreach 1 .. 20;
	set_faults($node, 'trail-write' => 5, 'ring-unplaced' => 'stop');
	$dying->start($sql->());
	wait_until_stopped($dying->pid) or die 'it does not stop';
	$server->kill_all;
	return;
}

# ---------------------------------------------------------------------------
# Damage, and what has become of it
# ---------------------------------------------------------------------------

# One mutation of each of some files; at least one.  Returns a hash by file.
sub mutations
{
	my ($state) = @_;
	my @files = $state->files;
	my @spill = $state->spill_files;
	my $first = Mutation::choose(@files);
	my %mutation;

	foreach my $name (@files)
	{
		next if $name ne $first && rand() < 0.5;
		my $bytes = $state->bytes($name);
		my $size  = QueueFile::layout()->{header};

		# the same file has the same header
		my @older =
		  grep { substr($_, 0, $size) eq substr($bytes, 0, $size) } @{ $state->{older} };

		$mutation{$name} = Mutation::pick($bytes, \@older);
	}
	if (@spill && rand() < 0.1)
	{
		my $name = Mutation::choose(@spill);

		$mutation{$name} = Mutation::pick_spill($state->bytes($name));
	}
	return %mutation;
}

sub apply
{
	my ($state, %mutation) = @_;

	$state->restore(
		map { $_ => $mutation{$_}{bytes} }
		  grep { exists $mutation{$_}{bytes} } keys %mutation);
	foreach my $name (sort keys %mutation)
	{
		my ($place, $add) = @{ $mutation{$name} }{qw(place add)};

		$place->("$queue/$name", $queue) if $place;
		$add->($queue) if $add;
	}
	return;
}

# Has the mutation of its file spared what is at one of these places?
sub is_spared
{
	my ($state, $mutation, $source) = @_;
	my $l     = QueueFile::layout();
	my $name  = $source->{file};
	my $this  = $mutation->{$name};
	my $spill = $source->{spill};

	return 0 if defined $spill && $mutation->{$spill};
	return 1 if !$this;
	return 0 if $this->{unusable};
	return 1 if !exists $this->{bytes};

	my $before = $state->bytes($name);
	my $after  = $this->{bytes};
	my $same   = sub {
		return QueueFile::at(\$before, @_) eq QueueFile::at(\$after, @_);
	};

	return 0
	  if !$same->([ 0, $l->{header} ])
	  && !$same->([ 4 * $l->{page}, $l->{header} ]);
	return $same->(@{ $source->{ranges} });
}

# The lines of the trail as hashes: text, sequence, marker
sub read_trail
{
	my ($faults) = @_;
	my @lines;

	foreach my $path (trail_files($node))
	{
		my $bytes = SavedState::read_file($path);

		push @$faults, "$path: torn last line"
		  if $bytes ne '' && substr($bytes, -1) ne "\n";
		foreach my $text (split /\n/, $bytes)
		{
			my ($sequence) = $text =~ /^\{[^{}]*?"sequence":(\d+)/;

			push @lines,
			  {
				text     => $text,
				sequence => $sequence // -1,
				marker   => marker_in($text),
				gap      => scalar $text =~ /^\{"type":"gap"/
			  };
		}
	}
	return @lines;
}

sub check_lines
{
	my ($state, $faults, @lines) = @_;
	my %old = map { $_ => 1 } map { split /\n/, $_->{bytes} } $state->files_of_trail;
	my %seen;
	my $expected = $lines[0]{sequence};

	foreach my $line (@lines)
	{
		my $text = $line->{text};

		push @$faults, "no JSON record: $text"
		  if !$old{$text} && !defined parse_record($text);
		push @$faults, "sequence $line->{sequence}, expected $expected"
		  if $line->{sequence} != $expected;
		$expected = $line->{sequence} + 1;
		$text =~ s/"sequence":\d+//;
		push @$faults, "doubled: $text" if $seen{$text}++ && !$line->{gap};
	}
	return;
}

# Returns how many records the trail has to account for by a GAP record.
sub check_markers
{
	my ($state, $mutation, $faults, $after, @lines) = @_;
	my %count;
	my $lost = 0;

	# a record whose spill file is gone has no text, but is there
	my $without_text = grep { $_->{text} =~ /"cut":true/ && !defined $_->{marker} } @lines;

	# An old page of a slot has a statement whose end is in the ring.
	my $old_pages = grep { $_->{what} =~ /^old page/ } values %$mutation;

	$count{ $_->{marker} }++
	  foreach grep {
		defined $_->{marker}
		  && !($old_pages && $_->{text} =~ /"interrupted":true/)
	  } @lines;

	foreach my $marker (sort keys %{ $state->{in_trail} })
	{
		push @$faults, "$marker: was in the trail, now " . ($count{$marker} // 0)
		  if ($count{$marker} // 0) != 1;
	}
	foreach my $marker (sort keys %{ $state->{in_queue} })
	{
		my @sources = @{ $state->{in_queue}{$marker} };
		my $found   = $count{$marker} // 0;
		my $spared  = grep { is_spared($state, $mutation, $_) } @sources;

		push @$faults, "$marker: $found records"
		  . ($sources[0]{entry} ? ' of a slot' : '')
		  if $found > 1;
		push @$faults, "$marker: lost, though spared"
		  . ($sources[0]{entry} ? ' in a slot' : '')
		  if $found == 0
		  && $spared
		  && !($old_pages && grep { $_->{entry} } @sources);
		next if $found > 0 || $old_pages && grep { $_->{entry} } @sources;

		# the only thing without a checksum
		next if grep { $_->{entry} } @sources;
		if ($without_text > 0 && grep { defined $_->{spill} } @sources)
		{
			$without_text--;
			next;
		}
		$lost++;
	}
	push @$faults, "$after: " . ($count{$after} // 0) . ' records'
	  if ($count{$after} // 0) != 1;
	return $lost;
}

# A worker reads what there is, but cannot write it, before it dies.
sub die_in_recovery
{
	set_faults($node, 'trail-write' => 5);
	$server->start or return 0;
	my $client = $server->connect(user => 'paq_quiet');

	$client->start('SELECT audit_flush()');
	poll_until(sub { $server->log =~ /audit trail cannot be written/ })
	  or die "the trail can be written:\n" . $server->log;
	$server->kill_all;
	return 1;
}

# One round: returns what was wrong.
sub round
{
	my ($state, $mutation) = @_;
	my $after = marker();
	my @faults;

	apply($state, %$mutation);
	die_in_recovery() or return 'does not start: ' . $server->log if rand() < 0.2;
	set_faults($node);
	$server->start or return 'does not start: ' . $server->log;
	my $answer = $server->ask("SELECT '$after'");
	push @faults, "answer $answer" if $answer ne 'D C:SELECT_1';
	$answer = $server->ask('SELECT audit_flush()');
	push @faults, "flush: $answer" if $answer ne 'D C:SELECT_1';
	my $status = $server->stop;
	push @faults, "exit status $status" if $status != 0;

	my $log   = $server->log;
	my @lines = read_trail(\@faults);

	push @faults, "log: $_"
	  foreach grep { /(?:PANIC|FATAL|ERROR):|TRAP|by signal/ && !/to administrator command/ }
	  split /\n/, $log;
	check_lines($state, \@faults, @lines);
	my $lost = check_markers($state, $mutation, \@faults, $after, @lines);
	my $gaps = grep { $_->{gap} } @lines;
	my $aside = $log =~ /queue file "[^"]*queue(?:\.\d+)?" was set aside/;

	# An older copy is told only if the trail has more than it can know of; a
	# file of backlog that is not there, not at all.
	my $told = !grep { $_->{outdated} } values %$mutation;

	foreach my $name (grep { /^queue\b/ } keys %$mutation)
	{
		# the number of dropped records is with the positions
		$told = 0 if $mutation->{$name}{what} =~ /^old pages at .*\b12288\b/;
		$told = 0
		  if $mutation->{$name}{what} =~ /^nothing/
		  && ($name ne 'queue' || keys %{ $state->{files} } > 1);
	}

	push @faults, "$lost records lost without a GAP record"
	  if $lost && !$gaps && $told;
	push @faults, 'a file was set aside without a GAP record'
	  if $aside && !$gaps && grep { !$_->{add} } values %$mutation;
	push @faults, "backlog left: $_"
	  foreach grep { /^queue\.([1-9]\d*)$/ && $1 < 2**32 && -f "$queue/$_" }
	  slurp_dir($queue);
	return @faults;
}

my @makers = (
	[ 'busy',    busy_state('checkpoint-written') ],
	[ 'batch',   busy_state('batch-written') ],
	[ 'rotated', \&rotated_state ],
	[ 'backlog', \&backlog_state ],
	[ 'drops',   \&drops_state, overflow => 'drop' ],
	[ 'clean',   \&clean_state ]);
$server->make_extension;
my @states = map { make_state(@$_) } @makers;

foreach my $state (@states)
{
	my @faults = round($state, {});

	is(join("\n", @faults), '', "$state->{name}: nothing is wrong with it");
	note("$state->{name}: "
		  . keys(%{ $state->{in_trail} // {} }) . ' in the trail, '
		  . keys(%{ $state->{in_queue} // {} }) . ' in the queue');
}

my $done = 0;

foreach my $number ($rounds->numbers)
{
	$rounds->begin($number);
	my $state    = Mutation::choose(@states);
	my %mutation = mutations($state);
	my $what     = join '; ', map { "$_: $mutation{$_}{what}" } sort keys %mutation;

	note("$number: $state->{name}: $what");
	my @faults = eval { round($state, \%mutation) };

	if ($@)
	{
		push @faults, $@, $server->log;
		$server->kill_all;
	}
	$done += keys %mutation;
	last if @faults && $rounds->failed($number, "$state->{name}: $what", \@faults,
		$queue, trail_dir($node), $server->{log});
	last if $done >= $rounds->count;
}
$rounds->finish("$done mutations");

# Each older copy of the queue; where there are several files of the trail, with times
# that do not tell their order: the clock of a file system has steps.

my @faults;
my ($rotated) = grep { $_->{name} eq 'rotated' } @states;

cmp_ok(scalar $rotated->files_of_trail, '>=', 3, 'rotated: files');
$_->{mtime} = 1_000_000_000 foreach $rotated->files_of_trail;
foreach my $state (@states)
{
	my $number = 0;

	foreach my $older (@{ $state->{older} })
	{
		is( join("\n",
				round($state, { queue => { bytes => $older, what => 'an older copy', outdated => 1 } })),
			'',
			"$state->{name}: older copy " . ++$number);
	}
}

# A file of which nothing is known but its records is not one that is done.

my $page = QueueFile::layout()->{page};
my ($backlog) = grep { $_->{name} eq 'backlog' } @states;
my $ones = $backlog->bytes('queue.2');

substr($ones, $page, 3 * $page) = "\xff" x (3 * $page);
is( join("\n",
		round($backlog, { 'queue.2' => { bytes => $ones, what => 'ones in checkpoints and positions' } })),
	'',
	'positions with ones: the records are there');
cmp_ok(scalar(grep { $_->{gap} } read_trail(\@faults)), '>=', 1,
	'positions with ones: a GAP record');

# What was reserved explains one hole of that size, not all.

my $reserved = make_state('reserved', \&reserved_state);
my @frames   = QueueFile->parse($reserved->bytes('queue'))->frames;
my $size     = $frames[-1]{size};
my $bytes    = $reserved->bytes('queue');

is(scalar(grep { $_->{size} == $size } @frames[ -12, -8, -4 ]),
	3, 'reserved: frames of one size');
foreach my $frame (@frames[ -12, -8, -4 ])
{
	my ($offset) = @{ $frame->{ranges}[0] };

	substr($bytes, $offset, 8) = "\xff" x 8;
}
$reserved->restore(queue => $bytes);
set_faults($node);
$server->start or die 'does not start: ' . $server->log;
is($server->ask('SELECT audit_flush()'), 'D C:SELECT_1', 'reserved: flushed');
$server->stop;
@faults = ();
is(scalar(grep { $_->{gap} } read_trail(\@faults)), 3, 'reserved: a GAP record for all but one');
is("@faults", '', 'reserved: the trail is whole');

done_testing();
