# What the table has after which death, with sink = table.
#
# @at has where the loader is, @deaths who dies, and by what.  For each of both, there are
# records in two files, the loader is there, and it happens.  Until then, only what asks for
# it brings WAL to disk, so a crash takes back what the table has got.  Afterwards the table
# has each record once, without a gap, and the files go.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use Test::More;

my $node = audited_node(
	'main',
	install_path => fault_install(),
	settings     => { sink => 'table', flush_interval => '10ms' },
	conf         => "autovacuum = off\n");

# What a round has: processes, and the label of its statements
my ($loader, $worker, $walwriter, $label);

sub sql { return unaudited_sql($node, @_) }

sub work
{
	my (@numbers) = @_;

	$node->safe_psql('postgres', join '', map { "SELECT '$label $_';" } @numbers);
	return;
}

# How many records the table has of the round's statements, and of how many of these
sub found
{
	return sql('SELECT count(*), count(DISTINCT command_text) FROM audit_records'
		  . " WHERE command_text LIKE '%''$label %' AND user_name <> 'paq_quiet'");
}

sub files { return scalar(() = glob(queue_dir($node) . '/load/*')) }

# Is there nothing that it does, and no lock that it has?
sub is_idle
{
	return sql(q{SELECT count(*) FROM pg_stat_activity
				  WHERE backend_type LIKE '%loader' AND query LIKE 'waiting%' AND state = 'idle'});
}

sub go_on { return kill('CONT', $loader, $walwriter) }

# Where the loader is; how many of ten records the table has then, and how many files are
# there
my @at = (
	[ 'stopped',        0,  2 ],
	[ 'load-done',      0,  2 ],
	[ 'load-committed', 10, 2 ],
	[ 'load-removed',   10, 1 ],
	[ 'asleep',         10, 1 ]);

# Who dies, and by what
my @deaths = (
	[ 'the loader', 'SIGTERM', sub { signal(TERM => $loader) } ],
	[ 'the loader', 'SIGKILL', sub { cause_crash($node, sub { signal(KILL => $loader) }) } ],
	[ 'the worker', 'SIGTERM', sub { signal(TERM => $worker) } ],
	[ 'the worker', 'SIGKILL', sub { cause_crash($node, sub { signal(KILL => $worker) }) } ],
	[ 'the postmaster and the worker', 'SIGKILL', sub { crash_node($node, $worker) } ],
	map {
		my $mode = $_;
		[ 'the server', "$mode shutdown", sub { is(shut_down_node($node, $mode, \&go_on), 0, "$label: the server ends") } ]
	} qw(fast immediate));

# The loader stands still where it shall.
sub bring_to
{
	my ($where) = @_;

	signal(STOP => $loader);
	wait_until_stopped($loader) or die 'the loader goes on';
	work(1 .. 5);
	sql('SELECT audit_rotate()');
	work(6 .. 10);

	# audit_flush() would wait for the table
	poll_until(sub { my $stats = stats($node); $stats->{flushed} == $stats->{published} }) or die 'not flushed';
	return if $where eq 'stopped';
	set_faults($node, $where => 'stop');
	signal(CONT => $loader);
	if ($where eq 'asleep')
	{
		poll_until(sub { files() == 1 }) or die 'the loader does not come to rest';
	}
	else
	{
		wait_until_stopped($loader) or die "the loader does not come to $where";
		set_faults($node);
	}
	return;
}

foreach my $at (@at)
{
	my ($where, $records, $files) = @$at;

	foreach my $death (@deaths)
	{
		my ($who, $by, $code) = @$death;

		$label     = "$who, $by, the loader being $where";
		$worker    = worker_pid($node);
		$loader    = poll_until(sub { is_idle() && stats($node)->{loader_pid} }) or die 'no loader at rest';
		$walwriter = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'});
		signal(STOP => $walwriter);
		bring_to($where);
		is(found(), "$records|$records", "$label: what the table has before");
		is(files(), $files, "$label: files");
		$code->();
		go_on();
		start_again($node) if !defined $node->{_pid};
		wait_for_worker($node, "$who $by" eq 'the loader SIGTERM' ? undef : $worker);
		work(11);
		ok(table_loaded($node), "$label: loading goes on");
		is(found(), '11|11', "$label: each record once");
		is( sql('SELECT count(*) - max(sequence) + 1 - min(sequence), count(DISTINCT sequence) - count(*),'
				  . q{ count(*) FILTER (WHERE type = 'gap'), min(sequence) FROM audit_records}),
			'0|0|0|1', "$label: without a gap");
		ok(poll_until(sub { files() == 1 }), "$label: files that are loaded go");
	}
}
is(sql(q{SELECT count(*) FROM audit_records WHERE command = 'WORKER STOP'}),
	@at * grep({ $_->[1] =~ /TERM|fast/ && $_->[0] ne 'the loader' } @deaths), 'ends of the worker are there');
$node->stop;

done_testing();
