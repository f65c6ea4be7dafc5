# pg_audit_trail ship, to Kafka, while broker, shipper, worker and server are killed at
# random: what Kafka's own client reads from the topic at the end is the trail.  Each record
# is there at least once, again only as it was, each session in its order; and seals verify
# over files that are made anew of what is in the topic.
#
# What has to be in the trail is known from its clients, which keep what they were told had
# succeeded; from its sequences, which have no gaps; from its seals; and from those of
# its files that retention has left.
#
# PAQ_SEED is the seed of the random numbers that choose victims and moments; what happens at
# such a moment is up to the machine.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib", "$FindBin::RealBin/../lib/seal";
use PaqKafka;
use PaqTest;
use Sealed;

use List::Util qw(shuffle sum0);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

need_trail_program();
my $tmp  = PostgreSQL::Test::Utils::tempdir();
my $conf = "$tmp/kafka.conf";

# Write the file of properties.
sub write_conf
{
	unlink $conf;
	append_to_file($conf, join '', map { "$_\n" } @_);
	chmod(0600, $conf);
	return;
}

write_conf('topic=x');
my (undef, undef, $stderr) = trail_program('ship', '--consumer=x', "--kafka=$conf", $tmp);
my ($available, $reason) = PaqKafka::available();
($available, $reason) = (0, 'this build has no librdkafka') if $stderr =~ /has no librdkafka/;
if (!$available)
{
	diag "NOT TESTED: $reason";
	plan skip_all => $reason;
}

# All of the trail is sealed: the key is there before the server.  Files are small, so
# that retention always has some that it would remove, and no layers: what is in the topic
# has their bytes.
my $node = audited_node(
	'main',
	start    => 0,
	settings => {
		flush_interval     => '20ms',
		log_compression    => 'none',
		log_encryption     => 'none',
		log_retention_size => '256kB',
		log_rotation_size  => '64kB',
		seal               => 'on',
		seal_interval      => '1s'
	});
my $dir    = trail_dir($node);
my $sealed = Sealed->new($node->data_dir);
$node->start;
create_extension($node);
unaudited_sql($node, "SELECT audit_consumer_create('siem')");

my $kafka = PaqKafka->new;
$kafka->topic('audit', 3);
write_conf('bootstrap.servers = ' . $kafka->bootstrap,
	'topic = audit', 'key = session', 'reconnect.backoff.max.ms = 500');

# ---------------------------------------------------------------------------
# The load
# ---------------------------------------------------------------------------

# Sessions of clients that run one after the other, whatever happens to the server
my $clients = 3;
my $pause   = full_tests() ? 0.02 : 0.006;
my $session_statements = 3 / $pause;
my @sessions;
my $nsessions = 0;
my %load = (label => 'T', succeeded => []);

# A session with statements that are numbered, some of them long
sub start_session
{
	my $number = ++$nsessions;
	my $sql    = '';

	foreach my $statement (1 .. $session_statements)
	{
		my $long = $statement % 40 ? '' : 'x' x rand 20_000;

		$sql .= "SELECT 'T-$number-$statement' FROM pg_sleep($pause) WHERE '$long' IS NOT NULL;\n";
	}
	return start_psql($node, $sql,
		settings => { mode => (qw(queued commit immediate))[ rand 3 ] });
}

# Note what its client was told had succeeded.
sub end_session
{
	my ($session) = @_;
	my (undef, $stdout) = finish_psql($session);

	push @{ $load{succeeded} }, grep { /^T-/ } split /\n/, $stdout;
	return;
}

# Have each client run a session.
sub keep_load
{
	foreach my $client (0 .. $clients - 1)
	{
		next if defined $sessions[$client] && $sessions[$client]{run}->pumpable;
		end_session($sessions[$client]) if defined $sessions[$client];
		$sessions[$client] = start_session();
	}
	return;
}

# ---------------------------------------------------------------------------
# The shipper
# ---------------------------------------------------------------------------

my $ship;
my @ship_faults;

sub start_ship
{
	$ship = start_trail_program('ship', '--consumer=siem', "--kafka=$conf", $dir);
	return;
}

# End it.  Until then it has run, and had no complaint but of the broker, and of what that has not
# acknowledged.
sub end_ship
{
	my ($signal) = @_;
	my ($status, $messages) = finish_trail_program($ship, $signal);
	my $expected = $signal eq 'KILL' ? 'signal 9' : 0;

	push @ship_faults, "$signal: status $status" if $status ne $expected;
	push @ship_faults,
	  grep {
		!/ error: Kafka: | records are delivered to topic "audit" again$|, and will be sent again$/
	  }
	  split /\n/, $messages;
	return;
}

# ---------------------------------------------------------------------------
# Rounds
# ---------------------------------------------------------------------------

# For each kind of kill, who is its victim, and how often it is chosen, of all
my %kinds = (
	broker      => [ 'broker',  2 ],
	ship_killed => [ 'shipper', 3 ],
	ship_ended  => [ 'shipper', 1 ],
	worker      => [ 'worker',  3 ],
	server      => [ 'server',  3 ]);
my %kills = map { $_ => 0 } keys %kinds;
my $worker;

my %kill = (
	broker      => sub { $kafka->kill9 },
	ship_killed => sub { end_ship('KILL') },
	ship_ended  => sub { end_ship('TERM') },
	worker      => sub { kill('KILL', $worker) },
	server      => sub { crash_node($node, $worker) });

my %start = (
	broker  => sub { $kafka->start },
	shipper => sub { start_ship() },
	worker  => sub { wait_for_worker($node, $worker) },
	server  => sub { start_again($node); wait_for_worker($node, $worker) });

# One kind or, in each fourth round, two of different victims
sub random_kinds
{
	my @draw = shuffle(map { ($_) x $kinds{$_}[1] } sort keys %kinds);
	my ($first)  = @draw;
	my ($second) = grep { $kinds{$_}[0] ne $kinds{$first}[0] } @draw;

	return rand 4 < 1 ? ($first, $second) : $first;
}

# Kill, and start again, at random moments.
sub run_round
{
	my (@chosen) = @_;
	my %victims = map { $kinds{$_}[0] => 1 } @chosen;

	# the server starts a worker by itself, but not when it is dead
	delete $victims{worker} if $victims{server};
	$worker = worker_pid($node);
	keep_load();
	sleep rand 1;
	foreach my $kind (@chosen)
	{
		$kill{$kind}->();
		$kills{$kind}++;
		sleep rand 0.1;
	}
	foreach my $victim (shuffle(sort keys %victims))
	{
		keep_load();
		sleep rand 0.3;
		$start{$victim}->();
	}
	return;
}

my $seed = $ENV{PAQ_SEED} // 1 + int rand 1_000_000;
diag("seed: $seed (PAQ_SEED)");
srand($seed);

# A broker takes long to start: in the short form, the rounds are chosen.
my @rounds =
  full_tests()
  ? map { [ random_kinds() ] } 1 .. 200
  : shuffle(
	['broker'],               [ 'broker', 'ship_killed' ],
	['ship_killed'],          ['ship_ended'],
	['worker'],               [ 'worker', 'ship_killed' ],
	['server'],               [ 'server', 'ship_ended' ],
	[ 'ship_killed', 'worker' ], ['server']);

start_ship();
my $began = time;
foreach my $number (1 .. @rounds)
{
	my $round = $rounds[ $number - 1 ];

	note(sprintf '%.1f s: round %d: %s', time - $began, $number, "@$round");
	run_round(@$round);
}

# The load ends, all is flushed, and the shipper catches up.
keep_load();
end_session($_) foreach @sessions;
my $flushed = flush_trail($node);
ok(poll_until(sub { unaudited_sql($node, 'SELECT lag_records FROM audit_consumers') eq '0' }),
	'the shipper catches up');
$node->stop;
end_ship('TERM');
my ($status, undef, $messages) =
  trail_program('ship', '--consumer=siem', "--kafka=$conf", '--once', $dir);
is("$status $messages", '0 ', 'and ships what the server has recorded at its end');
is(join("\n", @ship_faults), '', 'it has never ended by itself, nor found anything wrong');

# ---------------------------------------------------------------------------
# What is in the topic
# ---------------------------------------------------------------------------

# Records by an independent reader
sub field
{
	my ($value, $name) = @_;

	return $value =~ /"\Q$name\E":"?((?:[^"\\,}]|\\.)*)/ ? $1 : 'none';
}

# What is wrong with records, in the order of partitions and offsets: are all sequences up to
# the last one there, those again as they were, and the first ones of each key in order?
# Returns that, the number of those that are there again, and the lines by sequence.
sub look_at
{
	my ($last, @records) = @_;
	my (%line, %identity, %partition, %latest, @faults);
	my $again = 0;

	foreach my $record (@records)
	{
		my ($partition, undef, $key, $value) = @$record;
		my $sequence = field($value, 'sequence');
		my $identity = join ' ', map { field($value, $_) } qw(systemIdentifier series sequence);
		my $session  = field($value, 'sessionId');

		push @faults, "sequence $sequence has key $key"
		  if $key ne ($session =~ /^(?:none|null)$/ ? $sequence : $session);
		push @faults, "key $key is in two partitions"
		  if ($partition{$key} //= $partition) != $partition;
		if (exists $line{$sequence})
		{
			$again++;
			push @faults, "sequence $sequence has another identity: $identity"
			  if $identity{$sequence} ne $identity;
			push @faults, "sequence $sequence has another text" if $line{$sequence} ne $value;
			next;
		}
		push @faults, "key $key: sequence $sequence is behind $latest{$key}"
		  if $sequence < ($latest{$key} // 0);
		$latest{$key}        = $sequence;
		$line{$sequence}     = $value;
		$identity{$sequence} = $identity;
	}
	push @faults, map { "sequence $_ is missing" } grep { !exists $line{$_} } 1 .. $last;
	push @faults, map { "sequence $_ is unknown" } grep { $_ < 1 || $_ > $last } keys %line;
	$#faults = 9 if @faults > 10;
	return (join("\n", @faults), $again, \%line);
}

my @seals = Sealed::seals($dir);
my ($last) = sort { $b <=> $a } map { $_->{last} } @seals;
my @records = $kafka->consume('audit');
undef $kafka;
my ($faults, $again, $lines) = look_at($last, @records);
is($faults, '', 'Kafka has each record, again only as it was, and each session in order');
cmp_ok($last, '>=', $flushed, 'up to the last one');

my @load_records =
  map { /'(T-\d+-\d+)'/ ? { commandText => "'$1'", exitCode => field($_, 'exitCode') } : () }
  values %$lines;
cmp_ok(scalar @{ $load{succeeded} }, '>', 100 * @rounds, 'many statements have succeeded');
check_load(\%load, \@load_records, 'each of which is in Kafka, once, as successful');

# The trail itself, as far as retention has left it
my ($cat_status, $trail, $cat_messages) = trail_program('cat', $dir);
is("$cat_status $cat_messages", '0 ', 'the trail is read');
my %trail = map { field($_, 'sequence') => $_ } split /\n/, $trail;
is(join(' ', grep { ($lines->{$_} // '') ne $trail{$_} } sort { $a <=> $b } keys %trail),
	'', 'Kafka has what is left of the trail');

# What looks at the records does see what is wrong.
sub is_seen
{
	my ($name, $expected, @changed) = @_;

	like((look_at($last, @changed))[0], $expected, "$name is seen");
	return;
}

my %seen;
my @once = grep { !$seen{ field($_->[3], 'sequence') }++ } @records;
my ($at) = grep { $once[$_][2] eq $once[ $_ + 1 ][2] } @once / 2 .. $#once - 1;
my $sequence = field($once[$at][3], 'sequence');
my @swapped = @once;
@swapped[ $at, $at + 1 ] = @once[ $at + 1, $at ];
is_seen('a missing record', qr/^sequence $sequence is missing$/, @once[ 0 .. $at - 1, $at + 1 .. $#once ]);
is_seen('another order', qr/^key \S+: sequence $sequence is behind/, @swapped);
my @other = @{ $once[$at] };
$other[3] =~ s/"class":"/"class":"x/;
is_seen('another text', qr/^sequence $sequence has another text$/, @once, \@other);
@other = @{ $once[$at] };
$other[3] =~ s/"series":/"series":9/;
is_seen('another series', qr/^sequence $sequence has another identity/, @once, \@other);
@other = @{ $once[$at] };
$other[0]++;
is_seen('another partition', qr/ is in two partitions$/, @once, \@other);

# ---------------------------------------------------------------------------
# Seals, over what is in the topic
# ---------------------------------------------------------------------------

# The program in the documentation makes the files, those that retention has removed, too.
my ($program) =
  slurp_file("$FindBin::RealBin/../../doc/shipping.md") =~
  /^## Verifying what a receiver has\n.*?^```python\n(.*?)^```\n/ms;
append_to_file("$tmp/rebuild.py", $program);

# Make a directory of files from lines and the seals.
my $nmade = 0;

sub make_files
{
	my (@lines) = @_;
	my $made = "$tmp/made" . ++$nmade;
	my $errors;

	mkdir($made) or die "mkdir: $!";
	append_to_file("$made.lines", join '', map { "$_\n" } @lines);
	IPC::Run::run(
		[ python(), "$tmp/rebuild.py", Sealed::seals_file($dir), $made ],
		'<', "$made.lines", '2>', \$errors) or die "rebuild.py: $errors";
	system_or_bail('cp', Sealed::seals_file($dir), $made);
	return $made;
}

my @lines = map { $lines->{$_} } sort { $a <=> $b } keys %$lines;
my $made  = make_files(map { $_->[3] } @records);
my ($verified, $output) = $sealed->verify($made);
is($verified, 0, 'the seals verify over what is in Kafka') or diag($output);
like($output, qr/sequences 1 to $last:/, 'all of it');
is(join(' ', grep { slurp_file($_) ne slurp_file("$made/" . s{.*/}{}r) } trail_files($node)),
	'', 'the files are those of the server');

my $half = int(@lines / 2);
($verified, $output) =
  $sealed->verify(make_files(@{ with_line_changed(\@lines, $half, sub { s/"type":"./"type":"X/ }) }));
is($verified, 1, 'but not over a record that was changed');
like($output, qr/^FIRST FINDING: file "\S+": something between .* was changed/, 'as is said');
($verified, $output) = $sealed->verify(make_files(@lines[ 0 .. $half - 1, $half + 1 .. $#lines ]));
is($verified, 1, 'nor without a record');

# ---------------------------------------------------------------------------
# Has it been torture?
# ---------------------------------------------------------------------------

my $removed = grep { $_->{kind} eq 'removed' } @seals;
my $files   = grep { $_->{kind} eq 'new' } @seals;
my %series  = map { field($_, 'series') => 1 } @lines;

cmp_ok($removed, '>', 0, 'retention has removed files');
ok((grep { /"command":"RETENTION"/ } @lines), 'and recorded that');
cmp_ok(scalar keys %series, '>', $kills{worker}, 'there was more than one series');
diag(sprintf '%d rounds in %.0f s; killed: %s; %d statements, %d records, %d of them again; '
	  . '%d series, %d files, %d of them removed; %d seals',
	scalar @rounds, time - $began, join(', ', map { "$_ $kills{$_}" } sort keys %kills),
	scalar @{ $load{succeeded} }, scalar @records, $again,
	scalar keys %series, $files, $removed, scalar @seals);
done_testing();
