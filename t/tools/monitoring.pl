# monitoring/: the queries work with the least role in both exporters, the rules
# and the dashboard know no other metrics than they export, the rules do what their
# own tests say, and Prometheus fires when the worker is not there.
#
# The exporters and Prometheus are Debian's (prometheus, prometheus-postgres-exporter,
# prometheus-sql-exporter); scripts/test brings them.  Without them the parts that
# need them are skipped.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use Test::More;
use Time::HiRes qw(time);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $root    = "$FindBin::RealBin/../..";
my $folder  = "$root/monitoring";
my $queries = slurp_file("$folder/postgres_exporter/pg_audit_queue.yaml");
my $jobs    = slurp_file("$folder/sql_exporter/pg_audit_queue.yml");
my $rules   = slurp_file("$folder/prometheus/pg_audit_queue.rules.yml");
my $tests   = slurp_file("$folder/prometheus/pg_audit_queue.test.yml");
my $scrape  = slurp_file("$folder/prometheus/scrape.yml");
my $page    = slurp_file("$root/doc/monitoring.md");

# ---------------------------------------------------------------------------
# What the files say of each other
# ---------------------------------------------------------------------------

# A block of text behind "query: |", without its indentation
sub statements
{
	my ($yaml) = @_;
	my @found;

	while ($yaml =~ /^( *)query: \|\n((?:\g1 +.*\n)+)/mg)
	{
		my ($text) = $2;
		my ($indent) = $text =~ /^( +)/;

		push @found, $text =~ s/^$indent//mgr;
	}
	return @found;
}

# Names of metrics as postgres_exporter makes them, and their kinds
my %metrics;
foreach my $part (split /^(?=\w)/m, $queries)
{
	my ($name) = $part =~ /^(\w+):\n/ or next;

	$metrics{"${name}_$1"} = $2 while $part =~ /^    - (\w+):\n +usage: (COUNTER|GAUGE)\n/mg;
}

# The same as the rules of scrape.yml make them of what sql_exporter has
my %values;
while ($jobs =~ /^  - name: (\w+)\n(.*?)^    query:/msg)
{
	my ($name, $part) = ($1, $2);
	my ($list) = $part =~ /^    values:\n((?:    - \w+\n)+)/m;

	$values{"${name}_$_"} = 1 foreach $list =~ /- (\w+)/g;
}

# Names of ours in an expression
sub names_in
{
	my ($text) = @_;
	my %names = map { $_ => 1 } $text =~ /\b(pg_audit_queue_\w+)/g;

	delete @names{ 'pg_audit_queue_sql', grep { /^pg_audit_queue_(?:class|check|consumer)$/ } keys %names };
	return sort keys %names;
}

cmp_ok(scalar keys %metrics, '>', 30, 'metrics');
is_deeply([ sort keys %values ], [ sort keys %metrics ], 'both exporters have the same');
is_deeply([ statements($jobs) ], [ statements($queries) ], 'by the same statements');
is_deeply(
	[ grep { ($metrics{$_} eq 'COUNTER') != /_total$/ } sort keys %metrics ],
	[], 'counters, and nothing else, end in _total');

my ($table) = $page =~ /^## Metrics\n(.*?)^## /ms;
is_deeply(
	[ sort map { "pg_audit_queue_$_" } map { /`(\w+)(?:\{\w+\})?`/g } $table =~ /^\| ([^|]*) \|/mg ],
	[ sort keys %metrics ], 'the page has all metrics');

my %alerts;
foreach my $part (split /^(?=      - alert: )/m, $rules)
{
	my ($name) = $part =~ /- alert: (\w+)/ or next;
	my ($expression) = $part =~ /^        expr: (?:\|\n)?(.*?)^        (?:for|labels):/ms;

	$alerts{$name} = $expression;
	is_deeply([ grep { !$metrics{$_} } names_in($expression) ], [], "$name: knows the metrics");
	is(($part =~ /documentation: '(.*)'/)[0], 'doc/monitoring.md#' . lc $name, "$name: a link");
	like($page, qr/^### \Q$name\E$/m, "$name: a paragraph");
	like($part, qr/severity: (?:warning|critical)$/m, "$name: a severity");

	# promtool compares all alerts that fire: not those of the good instance.
	my @cases = grep { /^        alertname: \Q$name\E\n        exp_alerts:/m } split /^  - name: /m, $tests;
	cmp_ok(scalar @cases, '>', 0, "$name: a test fires it");
	cmp_ok(scalar(grep { /instance="good/ } @cases), '>', 0, "$name: and not where all is well");
}
is_deeply([ map { s/^### //r } $page =~ /^### PgAudit\w+/mg ],
	[ map { /- alert: (\w+)/ } split /\n/, $rules ], 'the page has the alerts, in their order');

my $dashboard = decode_json(slurp_file("$folder/grafana/pg_audit_queue.json"));
my %panels = map { $_->{title} => [ map { $_->{expr} } @{ $_->{targets} } ] } @{ $dashboard->{panels} };
my @expressions = map { @$_ } values %panels;

is(scalar keys %panels, scalar @{ $dashboard->{panels} }, 'the panels have titles of their own');
is_deeply([ grep { !$metrics{$_} } map { names_in($_) } @expressions ],
	[], 'the dashboard knows the metrics');
is_deeply([ grep { !/\$instance/ } @expressions ], [], 'and the chosen instances');
is_deeply([ map { $_->{name} } @{ $dashboard->{templating}{list} } ],
	[qw(datasource instance)], 'its variables');

# ---------------------------------------------------------------------------
# The role
# ---------------------------------------------------------------------------

my $node = audited_node(
	'main',
	settings => { log => 'all', flush_interval => '20ms' },
	conf     => "listen_addresses = '127.0.0.1'\n");

unaudited_sql($node, $_) foreach
  'CREATE ROLE audit_monitor LOGIN IN ROLE pg_monitor', 'CREATE ROLE least LOGIN', 'CREATE ROLE nobody LOGIN';
unaudited_sql($node, "SELECT audit_consumer_create('siem')");
my ($grants) = $page =~ /^```sql\n(GRANT SELECT .*?)^```/ms;
unaudited_sql($node, $grants =~ s/\baudit_monitor\b/least/gr);


# As the page says, whatever the exporter's database has by these names
my ($path) = $page =~ /^(ALTER ROLE audit_monitor SET search_path = .*?;)$/m;
unaudited_sql($node, $path);
unaudited_sql($node, $path =~ s/\baudit_monitor\b/least/r);
unaudited_sql($node, "CREATE TABLE public.$_ (a int)") foreach qw(pg_stat_audit_queue audit_consumers);
unaudited_sql($node, 'CREATE FUNCTION public.audit_check() RETURNS int LANGUAGE sql RETURN 1');
is(unaudited_sql($node, 'SELECT count(*) FROM audit_queue.names() WHERE aside'), 3, 'ours have stepped aside');

foreach my $case ([ audit_monitor => '' ], [ least => 'pg_audit_queue_check' ], [ nobody => 'all' ])
{
	my ($role, $refused) = @$case;

	foreach my $sql (statements($queries))
	{
		my $what = $sql =~ /(audit_check|audit_consumers|\w+_classes|pg_stat_\w+)/ && $1;
		my $status = $node->psql('postgres', $sql, extra_params => [ '-U', $role ]);
		my $wanted = $role eq 'nobody' || $role eq 'least' && $what eq 'audit_check' ? 3 : 0;

		is($status, $wanted, "$role, $what: " . ($wanted ? 'refused' : 'works'));
	}
}

unaudited_sql($node, 'DROP TABLE public.pg_stat_audit_queue, public.audit_consumers; DROP FUNCTION public.audit_check()');
unaudited_sql($node, $_) foreach split /\n/, unaudited_sql($node, 'SELECT command FROM audit_queue.names() WHERE aside');

# ---------------------------------------------------------------------------
# promtool
# ---------------------------------------------------------------------------

# Returns the path of a program, undef if there is none.
sub program
{
	my ($name) = @_;
	my ($path) = grep { -x } map { "$_/$name" } split /:/, $ENV{PATH};

	return $path;
}

my @missing = grep { !program($_) }
  qw(prometheus promtool prometheus-postgres-exporter prometheus-sql-exporter);

if (@missing)
{
	diag "NOT RUN WITH PROMETHEUS: there is no @missing";
	SKIP: { skip "there is no @missing", 1 }
	$node->stop;
	done_testing();
	exit 0;
}

my $dir = PostgreSQL::Test::Utils::tempdir();
system_or_bail('cp', glob("$folder/prometheus/*.yml"), $dir);

foreach my $command (
	[ qw(check rules pg_audit_queue.rules.yml) ],
	[ qw(test rules pg_audit_queue.test.yml) ],
	[ qw(check config scrape.yml) ])
{
	my $output;
	my $ok = IPC::Run::run([ 'promtool', @$command ], '>&', \$output, init => sub { chdir $dir or die });

	ok($ok, "promtool @$command") or diag($output);
}

# ---------------------------------------------------------------------------
# The exporters, and Prometheus
# ---------------------------------------------------------------------------

# The files as they are, but for ports, and for times that are too long to wait for
sub write_file
{
	my ($name, $text, @changes) = @_;

	while (my ($from, $to) = splice @changes, 0, 2)
	{
		$text =~ s/$from/$to/g or die "$name: nothing like $from";
	}
	open my $fh, '>', "$dir/$name" or die "open $name: $!";
	print $fh $text;
	close $fh;
	return "$dir/$name";
}

my %port = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } qw(postgres sql prometheus);
my @running;

sub start_program
{
	my ($name, @command) = @_;

	push @running, IPC::Run::start([ $name, @command ], '<', \undef, '>&', "$dir/$name.log");
	return;
}

sub stop_programs
{
	$_->kill_kill(grace => 5) foreach splice @running;
	return;
}

END { my $status = $?; stop_programs(); $? = $status }

my $http = HTTP::Tiny->new(timeout => 10);

# What the exporter shows
sub exported
{
	my ($exporter) = @_;
	my $answer = $http->get("http://127.0.0.1:$port{$exporter}/metrics");

	return $answer->{success} ? $answer->{content} : '';
}

# What Prometheus answers: the data
sub asked
{
	my ($path, %parameters) = @_;
	my $query  = $http->www_form_urlencode(\%parameters);
	my $answer = $http->get("http://127.0.0.1:$port{prometheus}/api/v1/$path?$query");
	my $data   = eval { decode_json($answer->{content}) } // { error => $answer->{content} };

	note("$path: $data->{error}") if defined $data->{error};
	return $data->{data};
}

# The expression's values, by job: undef if it is refused
sub value_of
{
	my ($expression) = @_;
	my $data = asked('query', query => $expression) or return;

	return { map { ($_->{metric}{job} // '') => $_->{value}[1] } @{ $data->{result} } };
}

sub firing
{
	my ($name) = @_;
	my $alerts = asked('alerts') or return ();

	return sort map { $_->{labels}{job} }
	  grep { $_->{labels}{alertname} eq $name && $_->{state} eq 'firing' } @{ $alerts->{alerts} };
}

{
	local %ENV = (
		%ENV,
		PGHOST           => '127.0.0.1',
		PGPORT           => $node->port,
		PGUSER           => 'audit_monitor',
		CONFIG           => write_file('jobs.yml', $jobs, qr/interval: '15s'/ => "interval: '1s'"),
		DATA_SOURCE_NAME => 'host=127.0.0.1 port='
		  . $node->port . ' user=audit_monitor dbname=postgres sslmode=disable');
	start_program('prometheus-sql-exporter', '-web.listen-address', "127.0.0.1:$port{sql}");
	start_program('prometheus-postgres-exporter', "--web.listen-address=127.0.0.1:$port{postgres}",
		"--extend.query-path=$folder/postgres_exporter/pg_audit_queue.yaml");
}
write_file('pg_audit_queue.rules.yml', $rules, qr/^        for: \w+$/m => '        for: 0s',
	qr/_timestamp_seconds\) > 120$/m => '_timestamp_seconds) > 5');
start_program('prometheus', '--config.file',
	write_file('scrape.yml',
		"global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n$scrape",
		qr/localhost:9187/ => "127.0.0.1:$port{postgres}",

		# it takes longer than a second to find that there is no server
		qr/(?<=job_name: pg_audit_queue\n)/ => "    scrape_interval: 4s\n    scrape_timeout: 4s\n",
		qr/localhost:9237/ => "127.0.0.1:$port{sql}"),
	'--storage.tsdb.path', "$dir/data", '--web.listen-address', "127.0.0.1:$port{prometheus}");

ok(poll_until(sub { exported('postgres') =~ /^pg_audit_queue_worker_up\{.*\} 1$/m }),
	'postgres_exporter has figures')
  or diag(slurp_file("$dir/prometheus-postgres-exporter.log"));
ok(poll_until(sub { exported('sql') =~ /^sql_pg_audit_queue\{.*col="worker_up".*\} 1$/m }),
	'sql_exporter has figures')
  or diag(slurp_file("$dir/prometheus-sql-exporter.log"));

my $text = exported('postgres');
is_deeply([ grep { $text !~ /^# TYPE $_ \L$metrics{$_}\E$/m } sort keys %metrics ], [],
	'postgres_exporter has all metrics, of their kinds');
foreach my $name (sort keys %metrics)
{
	my $value = {};

	$value = value_of_both("count by (job) ($name)");
	is_deeply([ sort keys %$value ], [qw(pg_audit_queue pg_audit_queue_sql)],
		"Prometheus has it of both: $name");
}

# A scrape that is late leaves nothing until the next one.
sub value_of_both
{
	my ($expression) = @_;
	my $value;

	poll_until(sub { $value = value_of($expression); $value && keys %$value == 2 });
	return $value;
}

my $size = unaudited_sql($node, 'SELECT queue_size FROM pg_stat_audit_queue');
is_deeply(value_of_both('pg_audit_queue_queue_size_bytes'),
	{ pg_audit_queue => $size, pg_audit_queue_sql => $size }, 'a value');
my $errors = unaudited_sql($node, "SELECT count(*) FROM audit_check() WHERE severity = 'error'");
is_deeply(value_of_both('pg_audit_queue_check_findings{severity="error"}'),
	{ pg_audit_queue => $errors, pg_audit_queue_sql => $errors }, 'findings');

# Rules and dashboard

my $groups;
poll_until(sub { $groups = (asked('rules') // {})->{groups} }) or die 'no rules';
is(scalar(map { @{ $_->{rules} } } @$groups), scalar keys %alerts, 'Prometheus has the rules');
ok( poll_until(
		sub {
			!grep { $_->{health} ne 'ok' } map { @{ $_->{rules} } } @{ asked('rules')->{groups} };
		}),
	'and can execute them');
is_deeply([ firing('PgAuditQueueWorkerDown') ], [], 'the worker is there');

foreach my $title (sort keys %panels)
{
	foreach my $expression (@{ $panels{$title} })
	{
		my $asked = $expression =~ s/\$instance/.*/gr =~ s/\$__rate_interval/20s/gr;
		my $value;

		# some need a second look at the figures, and something that is recorded
		ok( poll_until(
				sub {
					$node->safe_psql('postgres', 'SELECT 1');
					$value = value_of($asked);
					$value && %$value;
				}),
			"$title: $expression");
	}
}
is(value_of('rate(pg_audit_queue_worker_up{instance=~"$instance"}'), undef,
	'the test notices a wrong expression');

# The worker ends.  The postmaster starts another after a second, which ends, too.
my $fired = poll_until(
	sub {
		my $worker = stats($node)->{worker_pid};

		kill('TERM', $worker) if $worker;
		(firing('PgAuditQueueWorkerDown'))[0];
	});
ok($fired, 'without a worker there is an alert');
ok(poll_until(sub { !firing('PgAuditQueueWorkerDown') }), 'which ends when there is one again');

# Without a server postgres_exporter has no figures, and sql_exporter old ones.
my $none = 'up{job="pg_audit_queue"} == 1 unless on (instance) pg_audit_queue_observed_timestamp_seconds';
my $old  = 'time() - pg_audit_queue_observed_timestamp_seconds{job="pg_audit_queue_sql"} > 5';
my $fresh = sub { !grep { !defined || %$_ } value_of($none), value_of($old) };
ok(poll_until($fresh), 'figures are there, and new');
$node->stop;
my @jobs;
poll_until(sub { (@jobs = firing('PgAuditQueueNoFigures')) == 2 });
is("@jobs", 'pg_audit_queue pg_audit_queue_sql',
	'without a server there is an alert that nothing is known, of either exporter');
ok(poll_until(sub { %{ value_of($old) // {} } }), 'old figures tell that they are old');
$node->start;
ok(poll_until($fresh), 'with a server there are new ones');

stop_programs();
$node->stop;
done_testing();
