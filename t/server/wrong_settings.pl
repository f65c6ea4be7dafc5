# Settings whose wrong value would record less, or remove records, when they are
# changed while the server runs, or for roles, databases and sessions; and errors of
# the policy file: audit_check(), the statistics and the server log say so.  At the
# start of the server: server/startup.pl.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use JSON::PP;
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node(
	'main',
	settings => { log => 'all', flush_interval => '20ms' },
	conf     => "autovacuum = off\n",
	start    => 0);
my $has_clock = start_with_clock($node);
my $conf = slurp_file($node->data_dir . '/postgresql.conf');
my $policy = $node->data_dir . '/audit_policy.conf';

sub sql { return unaudited_sql($node, @_) }

sub write_file
{
	my ($path, $text) = @_;

	unlink $path;
	append_to_file($path, $text);
	return;
}

# Reload, and wait until the worker has: its record of that is written afterwards.
sub reload
{
	my $position = -s $node->logfile;
	my $records  = sub {
		flush_trail($node);
		return sql("SELECT records FROM pg_stat_audit_queue_classes WHERE class = 'CONFIG'");
	};
	my $before = $records->();

	$node->reload;
	poll_until(sub { $records->() > $before }) or die 'no reload';
	return $position;
}

# What audit_check() finds, as a role or as a superuser
sub found
{
	my ($role) = @_;
	my @rows = map { decode_json($_) } split /\n/,
	  sql(($role ? "SET ROLE $role; " : '') . 'SELECT row_to_json(c) FROM audit_check() c');

	return { map { $_->{finding} => $_ } @rows };
}

# How many errors the statistics know, of settings or of the policy
sub errors
{
	my ($what) = @_;

	return sql("SELECT ${what}_errors FROM pg_stat_audit_queue");
}

# Replace the worker by another one.
sub replace_worker
{
	return wait_for_worker($node, kill_worker($node, 'TERM'));
}

# Wrong lines in configuration files

sql('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
is(errors('setting'), 0, 'nothing is wrong');
foreach my $case (
	[ "pg_audit_queue.log = 'dll, write'", qr/invalid value for parameter "pg_audit_queue\.log": "dll, write"/,
		qr/pg_audit_queue\.log in .*: 'dll, write': .*\(allowed: .*\bddl\b.*\bwrite\b.*, all, none\)/ ],
	[ "pg_audit_queue.mode = 'comit'", qr/invalid value for parameter "pg_audit_queue\.mode"/,
		qr/'comit': .*\(allowed: queued, commit, immediate\)/ ],
	[ "pg_audit_queue.log_retention_age = '7'", qr/DETAIL:  A unit is required/,
		qr/'7': .*\(allowed: 0, or a number with min, h or d\)/ ],
	[ "pg_audit_queue.lgo = 'all'", qr/"pg_audit_queue\.lgo"/, qr/pg_audit_queue\.lgo in .*'all'/ ],
	[ "autovacum = on", qr/"autovacum"/, qr/autovacum in / ],
	[ "pg_audit_queue.log = ", qr/syntax error/, qr/syntax/ ])
{
	my ($line, $logged, $shown) = @$case;

	write_file($node->data_dir . '/postgresql.conf', "$conf$line\n");
	my $position = reload();
	my $log = slurp_file($node->logfile, $position);

	like($log, $logged, "$line: the log says so");
	is($node->safe_psql('postgres', 'SHOW pg_audit_queue.log'), 'all', 'the old value stays');
	is(errors('setting'), 1, 'the statistics say so');
	my $finding = found()->{configuration_errors};
	is($finding->{severity}, 'error', 'audit_check(), too');
	like($finding->{detail}, $shown, 'with what is allowed');
	like(found('monitor')->{configuration_errors}{detail}, qr/others are used: 1\.$/, 'to monitoring as well');
	write_file($node->data_dir . '/postgresql.conf', $conf);
	is(found()->{configuration_errors}{remedy}, 'SELECT pg_reload_conf();', 'mended, but not read yet');
	reload();
	is(errors('setting'), 0, 'mended');
	is(found()->{configuration_errors}, undef, 'and found no more');
}
append_to_file($node->data_dir . '/postgresql.auto.conf', "pg_audit_queue.log = 'dll'\n");
reload();
is(errors('setting'), 1, 'the file of ALTER SYSTEM');
replace_worker();
is(errors('setting'), 1, 'another worker knows it');
sql("ALTER SYSTEM RESET pg_audit_queue.log");
reload();
is(errors('setting'), 0, 'mended by ALTER SYSTEM');

# PostgreSQL still takes two names that settings once had.
$node->append_conf('postgresql.conf', "SORT_MEM = '5MB'\nvacuum_mem = '70MB'\n");
reload();
is(sql('SHOW work_mem') . ' ' . sql('SHOW maintenance_work_mem'), '5MB 70MB', 'old names of settings');
is(errors('setting'), 0, 'are not wrong');

# Roles, databases, sessions: what is wrong leaves the server's value

sql('CREATE ROLE wrong SUPERUSER LOGIN; CREATE DATABASE other');
sql(q{INSERT INTO pg_db_role_setting SELECT 0, oid, '{pg_audit_queue.log=noone}' FROM pg_roles WHERE rolname = 'wrong';
	INSERT INTO pg_db_role_setting SELECT oid, 0, '{pg_audit_queue.mode=comit}' FROM pg_database WHERE datname = 'other'});
my ($status, $stdout, $stderr) = $node->psql('postgres', "SHOW pg_audit_queue.log; SELECT 'of a wrong role'",
	extra_params => [ '-U', 'wrong' ]);
like($stdout, qr/^all$/m, 'a role with a wrong setting has the value of the server');
flush_trail($node);
is(texts_in_trail($node, 'of a wrong role'), 1, 'and is recorded');
my $finding = found()->{overrides_wrong};
is($finding->{severity}, 'error', 'audit_check() says so');
like($finding->{detail}, qr/: database other: pg_audit_queue\.mode=comit, superuser wrong: pg_audit_queue\.log=noone\.$/, 'of whom');
sql('ALTER ROLE wrong RESET ALL; ALTER DATABASE other RESET ALL');
is(found()->{overrides_wrong}, undef, 'mended');
{
	local $ENV{PGOPTIONS} = '-c pg_audit_queue.log=dll';
	($status, $stdout, $stderr) = $node->psql('postgres', undef);
	isnt($status, 0, 'no session with a wrong value in its options');
	like($stderr, qr/FATAL:  invalid value for parameter "pg_audit_queue\.log": "dll"/, 'which it is told');
}

# Retention of less than a day, or less than a file: nothing is removed before somebody
# can have seen it

# A finished file of the trail, which was last changed long ago
sub old_file
{
	$node->safe_psql('postgres', "SELECT 'old'");
	flush_trail($node);
	sql('SELECT audit_rotate()');
	my ($old) = grep { slurp_file($_) =~ /'old'/ } trail_files($node);
	utime 1e9, 1e9, $old or die "utime: $!";
	return $old;
}

# The time by which the clock has been set forward
my $forward = 0;

foreach my $case (
	[
		log_retention_age => '7min', { log_retention_age => '1d' },
		qr/when they are 7 minutes old\n.*HINT: .*"pg_audit_queue\.log_retention_age" to more than a day/s,
		retention_short => qr/after 7 minutes, less than a day/
	],
	[
		log_retention_age => '1min', { log_retention_age => '1d' },
		qr/when they are 1 minute old\n/, retention_short => qr/after 1 minute, less than a day/
	],
	[
		log_retention_size => '1kB', { log_rotation_size => '1kB' },
		qr/when there are more than 1 kB of them\n.*HINT: .*"pg_audit_queue\.log_retention_size" to more than "pg_audit_queue\.log_rotation_size"/s,
		retention_small => qr/more than 1024 bytes, less than one file/
	])
{
	my ($setting, $mistake, $meant, $warning, $name, $detail) = @$case;
	my $old = old_file();

	$node->append_conf('postgresql.conf', settings_text($setting => $mistake));
	my $position = reload();
	like(slurp_file($node->logfile, $position), qr/WARNING:  audit records will be removed $warning/,
		"$setting = $mistake: the log warns");
	$finding = found()->{$name};
	is($finding->{severity}, 'error', 'audit_check() as well');
	like($finding->{detail}, $detail, 'of how much');
	sql('SELECT audit_rotate()');
	reload();
	ok(-e $old, 'nothing is removed yet');
	unlike(slurp_file($node->logfile, $position), qr/will be removed.*will be removed/s, 'the warning comes once');
	$node->append_conf('postgresql.conf', settings_text(%$meant));
	reload();
	ok(poll_until(sub { !-e $old }), join(' = ', %$meant) . ' is meant');
	is(found()->{$name}, undef, 'and no finding');
	$node->append_conf('postgresql.conf', settings_text($setting => '0', log_rotation_size => '10MB'));
	reload();

	# Or it was no mistake.
	next if !$has_clock;
	$old = old_file();
	$node->append_conf('postgresql.conf', settings_text($setting => $mistake));
	reload();
	set_clock($node, $forward += 3500);
	sql('SELECT audit_rotate()');
	ok(worker_at_rest($node) && -e $old, 'within an hour nothing is removed');
	set_clock($node, $forward += 200);
	$node->safe_psql('postgres', "SELECT 'wakes the worker'");
	ok(poll_until(sub { !-e $old }), 'after it that begins');
	$node->append_conf('postgresql.conf', settings_text($setting => '0'));
	reload();
}

# The policy file

is(errors('policy'), 0, 'no policy file, no errors');
write_file($policy, "record all all all raed all\nrecrod all all all all all\nrecord all all all all all mode=comit\nrecord all all all all all rules\n");
is(found('monitor')->{policy_errors}{severity}, 'error', 'audit_check() knows errors before they are read');
reload();
is(errors('policy'), 4, 'the statistics have their number');
$finding = found('monitor')->{policy_errors};
foreach my $part (
	qr/audit_policy\.conf line 1: unrecognized class "raed" \(valid classes are ddl, .*\bread\b.*, and command tags\)/,
	qr/line 2: unrecognized action "recrod" \(valid actions are record and ignore\)/,
	qr/line 3: invalid value for option "mode": "comit" \(valid values are queued, commit, immediate\)/,
	qr/line 4: unrecognized condition or option "rules" \(valid ones are outcome, rows, .*\bname, mandatory\)/)
{
	like($finding->{detail}, $part, 'what is wrong, and what would be right');
}
replace_worker();
ok(poll_until(sub { errors('policy') == 4 }), 'another worker knows them');
sql('CREATE ROLE somebody; GRANT EXECUTE ON FUNCTION audit_check(text), pg_stat_get_audit_queue() TO somebody;'
	  . ' GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA audit_queue TO somebody; GRANT USAGE ON SCHEMA audit_queue TO somebody');
is(found('somebody')->{policy_errors}{severity}, 'error', 'who may not see the rules is told as well');
like(found('somebody')->{not_visible}{detail}, qr/errors of the policy file/, 'and what he may not see');
$node->restart;
is(errors('policy'), 4, 'they are known from the start');
write_file($policy, "record all all all read all\n");
is(found()->{policy_errors}{remedy}, 'SELECT pg_reload_conf(); and see the server log.', 'mended, but not read yet');
like(found()->{policy_errors}{detail}, qr/there were 4 errors\.$/, 'with their number');
write_file($policy, "recrod all all all all all\n");
reload();
write_file($policy, "record all all all read all\n");
like(found()->{policy_errors}{detail}, qr/there was 1 error\.$/, 'of one as well');
reload();
is(errors('policy'), 0, 'mended');
is(found()->{policy_errors}, undef, 'and found no more');
$node->stop;

done_testing();
