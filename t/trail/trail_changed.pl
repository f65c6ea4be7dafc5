# Somebody else removes, truncates, replaces or writes to the trail's current
# file.  The trail tells, in the next file, which records may be missing: once,
# whatever crashes, and also if the change happens while the server is stopped.
# Later records are there exactly once.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use File::Copy;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { flush_interval => '20ms', log_rotation_size => 0 },
	conf         => "autovacuum = off\n");
my $dir       = trail_dir($node);
my $elsewhere = PostgreSQL::Test::Utils::tempdir();
my $number    = 0;

# What can be done to a file, how the trail calls that if the server runs, and if
# it does not; undef: nobody can tell
my %meddle = (
	removed => {
		action  => sub { unlink($_[0]) or die "unlink: $!" },
		running => 'was removed',
		stopped => 'was removed or replaced',
	},
	emptied => {
		action  => sub { truncate($_[0], 0) or die "truncate: $!" },
		running => 'was truncated',
		stopped => 'was truncated',
	},
	halved => {
		action  => sub { truncate($_[0], (-s $_[0]) / 2) or die "truncate: $!" },
		running => 'was truncated',
		stopped => 'was truncated',
	},
	recreated => {
		action => sub {
			my ($file) = @_;

			move($file, "$elsewhere/moved") or die "move: $!";
			copy("$elsewhere/moved", $file) or die "copy: $!";
		},
		running => 'was moved or replaced',
		stopped => 'was removed or replaced',
	},
	'copied over' => {
		action => sub {
			append_to_file("$elsewhere/other", "not for the trail\n");
			system_or_bail('cp', "$elsewhere/other", $_[0]);
		},
		running => 'was truncated',
		stopped => 'was truncated',
	},
	'appended to' => {
		action  => sub { append_to_file($_[0], "forged\n") },
		running => 'was written to by somebody else',
		stopped => 'was written to by somebody else',
	});

sub current_file
{
	return $node->data_dir . '/' . stats($node)->{current_file};
}

# Have a new file started, put those before away, and let it have some records.
my $begun;

sub begin_file
{
	my ($label) = @_;

	flush_trail($node);
	$begun = unaudited_sql($node, 'SELECT now()');
	unaudited_sql($node, 'SELECT audit_rotate()');
	foreach my $file (grep { $_ ne current_file() } trail_files($node))
	{
		move($file, "$elsewhere/" . $number++) or die "move: $!";
	}
	$node->safe_psql('postgres', "SELECT '$label before $_'") foreach 1 .. 3;
	flush_trail($node);
	return current_file();
}

# The text of all GAP records in the trail, whatever its format
sub gaps
{
	return map { /(audit trail file .*? (?:were in it|they follow))/ ? $1 : () }
	  grep { /GAP|"type":"gap"/ } trail_lines($node);
}

# There is one GAP record, and it tells of that file.
sub check_gap
{
	my ($label, $file, $what) = @_;
	my $name = $file =~ s{.*/}{}r;
	my @gaps = gaps();
	my $quote = '(?:\\\\"|"")';    # in a string of json's, or csvlog's

	is(scalar @gaps, 1, "$label: there is one GAP record") or diag(join "\n", @gaps);
	like($gaps[0] // '',
		qr{^audit trail file (?:"|$quote)+audit/\Q$name\E(?:"|$quote)+ \Q$what\E; the records with sequence \d+ to \d+ were in it$},
		"$label: it says what was done to which file");
	return;
}

# The newest file begins with the GAP record, which says how far the file before
# it went.
sub check_sequences
{
	my ($label, $first) = @_;
	my @records = map { parse_record($_) // die "no record: $_" }
	  split /\n/, slurp_file(current_file());
	my ($from, $to) =
	  ($records[0]{errorMessage} // '') =~ /with sequence (\d+) to (\d+) were in it/;

	is($records[0]{type}, 'gap', "$label: a new file begins with it");
	is($from, $first, "$label: the first sequence that was in the file");
	is($to, $records[0]{sequence} - 1, "$label: the last one");
	is_deeply(
		[ map { $_->{sequence} } @records ],
		[ $records[0]{sequence} .. $records[0]{sequence} + $#records ],
		"$label: from there on no sequence is missing");
	is( $records[0]{type} ne 'gap' || unaudited_sql(
			$node, "SELECT s BETWEEN '$begun' AND e AND e <= now()
					  FROM CAST('$records[0]{startTime}' AS timestamptz) s,
						   CAST('$records[0]{endTime}' AS timestamptz) e"),
		't', "$label: since when the file was written to, and until when");
	return @records;
}

# While the server runs, with clients at work

foreach my $format (qw(json csvlog pgaudit))
{
	$node->append_conf('postgresql.conf', settings_text(format => $format));
	$node->reload;
	foreach my $mode (qw(queued immediate))
	{
		# what a format has to do with it is how it shows the record
		my @names = sort keys %meddle;
		@names = $mode eq 'queued' ? ('halved', 'appended to') : ('removed')
		  if $format ne 'json' && !full_tests();

		foreach my $name (@names)
		{
			my $label    = "$format, $mode, $name";
			my $file     = begin_file($label);
			my $position = -s $node->logfile;
			my ($first) = slurp_file($file) =~ /"sequence":(\d+)/;
			my $load = start_load(
				$node, $number,
				clients    => 2,
				statements => 30,
				pause      => 0.005,
				settings   => { mode => $mode });

			poll_until(sub { texts_in_trail($node, "'$number-1-5'") }) or die 'no load';
			open my $old, '<', $file or die "open: $!";
			$meddle{$name}{action}->($file);

			# noticed before the next batch, or the one after that
			ok( poll_until(
					sub {
						$node->safe_psql('postgres', "SELECT '$label during'");
						return slurp_file($node->logfile, $position) =~
						  /LOG:  audit trail file "[^"]*" \Q$meddle{$name}{running}\E, starting a new one/;
					}),
				"$label: it is in the server's log");
			my $noticed = -s $file;
			is(finish_load($load), $load->{number}, "$label: clients go on");
			$node->safe_psql('postgres', "SELECT '$label after'");
			flush_trail($node);
			isnt(current_file(), $file, "$label: there is another file");
			is(-s $file, $noticed, "$label: the old one is left as it is from then on");
			check_gap($label, $file, $meddle{$name}{running});
			is(texts_in_trail($node, "SELECT '$label after'"), 1, "$label: the trail goes on");
			next if $format ne 'json';

			my @records = check_sequences($label, $first);
			next if $name !~ /removed|recreated|appended/;

			# what had been written there is still to be had
			my $lost = $records[0]{sequence};
			unshift @records, grep { $_ && $_->{sequence} < $lost } map { parse_record($_) } <$old>;
			is_deeply([ map { $_->{sequence} } @records ],
				[ $first .. $records[-1]{sequence} ],
				"$label: with what was in the old one, the trail is whole");
			check_load($load, \@records, "$label: each statement is there once");
		}
	}
}

# Between the worker's look and its write, where nobody can be kept from doing it

foreach my $name (sort keys %meddle)
{
	my $label = "in between, $name";
	my $file;

	$node->append_conf('postgresql.conf', settings_text(format => 'json'));
	$node->reload;
	$file = begin_file($label);
	my $position = -s $node->logfile;
	my ($first) = slurp_file($file) =~ /"sequence":(\d+)/;
	my $worker = worker_pid($node);

	set_faults($node, 'trail-write' => 'stop');
	$node->safe_psql('postgres', "SELECT '$label during'");
	wait_until_stopped($worker) or die 'the worker does not write';
	$meddle{$name}{action}->($file);
	set_faults($node);
	kill('CONT', $worker) == 1 or die "kill: $!";
	flush_trail($node);
	$node->safe_psql('postgres', "SELECT '$label after'");
	flush_trail($node);
	like(slurp_file($node->logfile, $position),
		qr/LOG:  audit trail file "[^"]*" \Q$meddle{$name}{running}\E, starting a new one/,
		"$label: it is noticed before the next batch");
	check_gap($label, $file, $meddle{$name}{running});
	check_sequences($label, $first);
	is(texts_in_trail($node, "SELECT '$label after'"), 1, "$label: the trail goes on");
	unlike(-e $file ? slurp_file($file) : '', qr/\0/, "$label: without a hole");
}

# While the server is stopped; and the same with a crash of the worker when it has
# just told, or is about to

$node->append_conf('postgresql.conf', settings_text(format => 'json'));
$node->reload;
foreach my $name (sort keys %meddle)
{
	foreach my $point ('', 'loss-written', 'loss-flushed')
	{
		my $label = "stopped, $name" . ($point ? ", killed at $point" : '');
		my $file  = begin_file($label);
		my ($first) = slurp_file($file) =~ /"sequence":(\d+)/;

		next if $point && $name !~ /removed|halved/;
		$node->stop;
		$meddle{$name}{action}->($file);
		set_faults($node, $point => 'stop') if $point;
		my $position = -s $node->logfile;
		$node->start;
		if ($point)
		{
			# not before the server runs: see "Files and platforms" in doc/limits.md
			my $worker = worker_pid($node);

			wait_until_stopped($worker) or die "not at $point";
			set_faults($node);
			kill('KILL', $worker) == 1 or die "kill: $!";
			ok( wait_for_log($node, qr/was terminated by signal 9/, $position),
				"$label: the worker is killed");
			# perhaps the whole server starts again, perhaps only the worker
			poll_until(sub { eval { flush_trail($node); 1 } }) or die 'no worker';
		}
		$node->safe_psql('postgres', "SELECT '$label after'");
		flush_trail($node);
		check_gap($label, $file, $meddle{$name}{stopped});
		check_sequences($label, $first);
		is(texts_in_trail($node, "SELECT '$label after'"), 1, "$label: the trail goes on");
		$node->restart;
		flush_trail($node);
		is(scalar gaps(), 1, "$label: a restart has nothing to add");
	}
}

# Without interference there is nothing to tell, however the server ends.

my $file = begin_file('untouched');
$node->restart;
crash_node($node);
start_again($node);
wait_for_worker($node);
flush_trail($node);
is(current_file(), $file, 'a file that nobody touches is gone on with');
is(scalar gaps(), 0, 'and no GAP record is made');

# A file that lost only what was not durable, because the worker was killed before
# the fsync, is gone on with, and has what was lost once more.  Returns the path.
sub lose_what_is_not_durable
{
	my ($label) = @_;

	# nothing is written before the flush is asked for, in which the worker stops
	$node->append_conf('postgresql.conf', settings_text(flush_interval => '1h'));
	$node->reload;
	flush_trail($node);
	my $path   = current_file();
	my $size   = -s $path;
	my $worker = worker_pid($node);

	$node->safe_psql('postgres', "SELECT '$label $_'") foreach 1 .. 3;
	set_faults($node, 'trail-fsync' => 'stop');
	my $flush = start_psql($node, 'SELECT audit_flush()');
	ok(wait_until_stopped($worker), "$label: the worker is about to sync");
	crash_node($node, $worker);
	finish_psql($flush);
	set_faults($node);
	cmp_ok(-s $path, '>', $size + 10, "$label: it had written what it had not synced");
	truncate($path, $size + 10) or die "truncate: $!";
	$node->append_conf('postgresql.conf', settings_text(flush_interval => '20ms'));
	start_again($node);
	wait_for_worker($node);
	return $path;
}

my $undurable = begin_file('not durable');
is(lose_what_is_not_durable('not durable'),
	$undurable, 'what is not durable goes into the current file');
flush_trail($node);
is(current_file(), $undurable, 'not durable: the file is gone on with');
is(scalar gaps(), 0, 'not durable: nothing is missing');
is_deeply([ map { texts_in_trail($node, "SELECT 'not durable $_'") } 1 .. 3 ],
	[ 1, 1, 1 ], 'not durable: each statement is there once');

# Files on their way into the table

$node->append_conf('postgresql.conf', settings_text(sink => 'table'));
$node->reload;
poll_until(sub { stats($node)->{sink} eq 'table' }) or die 'no table';
ok(table_loaded($node), 'the table has everything');
$node->safe_psql('postgres', q{SELECT 'into the table'});
ok(table_loaded($node), 'the table has that, too');
$file = stats($node)->{current_file};
unlink($node->data_dir . "/$file") or die "unlink: $!";
$node->safe_psql('postgres', q{SELECT 'and behind'});
ok(table_loaded($node), 'the table has what comes behind');
is( unaudited_sql(
		$node,
		q{SELECT count(*) FROM audit_records
		   WHERE error_message LIKE 'audit trail file "} . $file . q{" was removed; the records with sequence%'}),
	'1', 'and a GAP record that tells of the file');
is( unaudited_sql(
		$node,
		q{SELECT string_agg(command_text, ', ' ORDER BY log_time) FROM audit_records
		   WHERE command_text IN ('SELECT ''into the table''', 'SELECT ''and behind''')}),
	q{SELECT 'into the table', SELECT 'and behind'}, 'and each statement once');

$node->stop;
done_testing();
