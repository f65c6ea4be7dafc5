# audit_check(): each finding is there when there is a reason for it, and gone when
# that is mended; whoever may call it, whatever users have set, and without giving
# them a chance to have something executed.  And the view audit_records, which says
# so when the trail is somewhere else.
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

plan skip_all => 'the server is built with sanitizers' if sanitizers() ne '';

my $node = audited_node(
	'main',
	settings => {
		log               => 'all',
		queue_size        => '1MB',
		log_retention_age => '400d',
		mask_patterns     => 'xyzzy',
		log_directory     => PostgreSQL::Test::Utils::tempdir() . '/audit'
	},
	conf  => "autovacuum = off\nfsync = on\n",
	start => 0);
start_with_disk($node);
set_disk($node);

sub sql
{
	return unaudited_sql($node, @_);
}

# for what can be done with it
sql('SELECT audit_queue.make_table()');

my $profile;

# Controls by finding, as the documentation has them in one table
my %controls;
foreach (slurp_file("$FindBin::RealBin/../../doc/settings.md") =~ /^\| (`\w+`.*) \|$/mg)
{
	my ($names, $severity, $control) = split / \| /;

	next if $severity !~ /^(?:error|warning|info)/;
	my @names    = $names =~ /`(\w+)`/g;
	my @controls = split /; /, $control;

	$controls{ $names[$_] } = $controls[$_] // $controls[0] foreach 0 .. $#names;
}

# What it finds, a hash of findings, each of them a hash
sub check
{
	my ($role) = @_;
	my $arguments = defined $profile ? "'$profile'" : '';
	my @rows = map { decode_json($_) } split /\n/,
	  sql(($role ? "SET ROLE $role; " : '')
		. "SELECT row_to_json(c) FROM audit_check($arguments) c");
	my %found = map { $_->{finding} => $_ } @rows;

	is(scalar keys %found, scalar @rows, 'no finding twice');
	my %order = (error => 0, warning => 1, info => 2);
	my @order = map { $order{ $_->{severity} } } @rows;
	is("@order", join(' ', sort @order), 'the worst come first');
	my @incomplete = grep { my $row = $_; grep { ($row->{$_} // '') eq '' } keys %$row } @rows;
	is(scalar @incomplete, 0, 'all of them say everything');
	is_deeply(
		{ map { $_->{finding} => $_->{control} } @rows },
		{ map { $_->{finding} => $controls{ $_->{finding} } // 'nothing' } @rows },
		'and the controls that the documentation has');
	return \%found;
}

# Is there a finding of that severity whose detail matches, and no other than before?
my %always;

sub finds
{
	my ($finding, $severity, $detail, $what) = @_;
	my $found = check();

	is_deeply([ grep { !$always{$_} } sort keys %$found ], [$finding], "$finding: $what");
	is($found->{$finding}{severity}, $severity, "$finding: how bad");
	like($found->{$finding}{detail}, $detail, "$finding: what was seen");
	return $found->{$finding};
}

sub finds_nothing
{
	my ($what) = @_;

	is_deeply([ grep { !$always{$_} } sort keys %{ check() } ], [], $what);
	return;
}

# Change settings in the configuration file, and wait until the worker has them: it
# records that, and writes the record, after it has taken them over.
sub set
{
	my (%settings) = @_;
	my $before = config_records();

	$node->append_conf('postgresql.conf', settings_text(%settings));
	$node->reload;
	return poll_until(sub { config_records() > $before }) || die 'no reload';
}

sub config_records
{
	flush_trail($node);
	return sql("SELECT records FROM pg_stat_audit_queue_classes WHERE class = 'CONFIG'");
}

sub write_conf
{
	my ($contents) = @_;
	my $file = $node->data_dir . '/postgresql.conf';

	unlink $file or die "unlink: $!";
	append_to_file($file, $contents);
	return;
}

# A finding that settings cause, and that other settings mend
sub setting_is_found
{
	my ($bad, $good, @finding) = @_;
	my $found;

	set(%$bad);
	$found = finds(@finding);
	set(%$good);
	finds_nothing("$finding[0]: mended");
	return $found;
}

# What is right for a server like this one: superusers, of whom one has a setting, so
# that with pci not everything is recorded of them
%always = map { $_ => 1 } qw(administrators_missing superusers overrides);
my $found = check();
is_deeply([ sort keys %$found ], [ 'overrides', 'superusers' ], 'nothing is wrong');
like($found->{superusers}{detail}, qr/: (?:.*, )?paq_quiet\b.*\.$/, 'superusers are told of');
like($found->{overrides}{detail}, qr/superuser paq_quiet: pg_audit_queue\.log=none/, 'and their settings');

# Settings

$found = setting_is_found({ log => 'none' }, { log => 'all' },
	'log_none', 'error', qr/selects anything/, 'nothing is recorded');
like($found->{remedy}, qr/^ALTER SYSTEM SET pg_audit_queue\.log = 'ddl, role, write';/, 'how to mend it');
sql("CREATE ROLE selected LOGIN; ALTER ROLE selected SET pg_audit_queue.log = 'read'");
setting_is_found({ log => 'none' }, { log => 'all' },
	'log_none', 'error', qr/record, but for sessions with settings of their own: see overrides\.$/,
	'but somebody is');
sql('ALTER ROLE selected RESET ALL; ALTER ROLE selected SET pg_audit_queue.log_rows = on');
setting_is_found({ log => 'none' }, { log => 'all' },
	'log_none', 'error', qr/record\.$/, 'a setting that selects nothing');
sql("ALTER ROLE selected RESET ALL; ALTER ROLE selected NOLOGIN; ALTER ROLE selected SET pg_audit_queue.log = 'read';"
	  . " ALTER DATABASE template0 SET pg_audit_queue.log = 'read'");
setting_is_found({ log => 'none' }, { log => 'all' },
	'log_none', 'error', qr/record\.$/, 'settings of a role and of a database that nobody logs in to');
sql('ALTER ROLE selected RESET ALL; ALTER DATABASE template0 RESET ALL');
set(log => 'none', role => 'selected');
finds_nothing('object auditing will do');
set(log => 'all', role => '');
setting_is_found({ role => 'missing' }, { role => '' },
	'role_missing', 'error', qr/is missing, which does not exist/, 'a role that is not there');
my $long = 'a' x 63;
sql("CREATE ROLE $long");
setting_is_found({ role => "${long}a" }, { role => '' },
	'role_missing', 'error', qr/is ${long}a, which does not exist/, 'a name that is too long for a role');
sql("DROP ROLE $long");
setting_is_found({ log_statement => 'off' }, { log_statement => 'on' },
	'log_statement_off', 'warning', qr/log_statement is off/, 'no texts');
$found = setting_is_found({ mask_patterns => '' }, { mask_patterns => 'xyzzy' },
	'masks_missing', 'info', qr/^Constants are recorded/, 'nothing is masked');

# README has the same pattern.  It finds card numbers as they are printed or stored, and
# nothing else that is made of digits.
my ($card_patterns) =
  slurp_file("$FindBin::RealBin/../../README.md") =~ /mask_patterns = '(.*?)'/;

sub is_masked
{
	my ($what) = @_;
	my @masked = (
		'4111111111111111', '4111 1111 1111 1111', '4111-1111-1111-1111', '378282246310005', '3782 822463 10005',
		'3782-822463-10005', '3056 930902 5904', '4222222222222', '6304 0000 0000 0000 003',
		'6212345678900000003', '621234 5678900000003');
	my @shown = (
		'2026-11-28 15:33:02.123456+00', '2026-11-28 2026-11-30', '20261128-153302', '+49 170 1234567',
		'0049 30 12345678', '978-3-16-148410-0', '2026-000123456', '123e4567-e89b-12d3-1111-426614174000',
		'192.168.100.200', '12345678901234567890', '4111 1111 1111', '1 2 3 4 5 6 7 8 9 10 11 12 13',
		'x4111111111111111', '411111111111');
	my @records = records_for(
		$node,
		sub { $node->safe_psql('postgres', join ';', map { "SELECT 'number $_.'" } @masked, @shown) });

	is_deeply(
		[ map { ($_->{commandText} // '') =~ /'number (.*)\.'/ } @records ],
		[ ('<REDACTED>') x @masked, @shown ],
		"card numbers are masked, nothing else is: $what");
	return;
}

# The remedy is right whatever backslashes in constants mean, for the caller and for
# who executes it.
foreach my $conforming ('on', sql('SHOW server_version_num') < 190000 ? 'off' : ())
{
	my $set = "SET standard_conforming_strings = $conforming;";

	set(mask_patterns => '');
	is(sql("$set SELECT remedy FROM audit_check() WHERE finding = 'masks_missing'"),
		$found->{remedy}, "the same remedy, standard_conforming_strings = $conforming");
	is(sql("$set ALTER SYSTEM SET pg_audit_queue.mask_patterns = " . ($found->{remedy} =~ / = ('.*?');/)[0]),
		'', 'which can be executed');
	set();
	is(sql('SHOW pg_audit_queue.mask_patterns'), $card_patterns, 'as it is meant');
	is_masked("standard_conforming_strings = $conforming");
	sql('ALTER SYSTEM RESET pg_audit_queue.mask_patterns');
	set(mask_patterns => 'xyzzy');
}
setting_is_found({ mask_patterns => '', log_parameter => 'on' }, { mask_literals => 'read', log_parameter => 'off' },
	'masks_missing', 'info', qr/^Constants and parameters/, 'parameters, too');
set(mask_literals => 'none', mask_patterns => 'xyzzy');
setting_is_found({ fsync => 'off' }, { fsync => 'on' },
	'fsync_off', 'error', qr/pg_audit_queue\.fsync is off\.$/, 'our fsync');
$node->append_conf('postgresql.conf', "fsync = off\n");
set();
finds('fsync_off', 'error', qr/waited for: fsync is off\.$/, 'the server\'s fsync');
$node->append_conf('postgresql.conf', "fsync = on\n");
setting_is_found({ overflow => 'drop' }, { overflow => 'wait' },
	'overflow_drop', 'warning', qr/records are lost/, 'overflow');
setting_is_found({ log_retention_age => 0 }, { log_retention_size => '20GB' },
	'retention_none', 'warning', qr/ever removed/, 'no retention');
set(log_retention_age => '400d', log_retention_size => 0);

my $directory = PostgreSQL::Test::Utils::tempdir();
symlink $node->data_dir . '/inside', "$directory/link" or die "symlink: $!";
mkdir $node->data_dir . '/inside' or die "mkdir: $!";
setting_is_found(
	{ log_directory => "$directory/link" },
	{ log_directory => trail_dir($node) },
	'trail_in_data_directory', 'warning', qr{'\Q$directory\E/link'}, 'a link into the data directory');
$found = setting_is_found({ log_directory => 'audit' }, { log_directory => trail_dir($node) },
	'trail_in_data_directory', 'warning', qr/pg_rewind/, 'the default directory');
is(join(' ', $found->{remedy} =~ /(install -d [^;]*)/),
	join(' ', slurp_file("$FindBin::RealBin/../../README.md") =~ /`(install -d [^`]*)`/),
	'README has another one made in the same way');

set(format => 'pgaudit');
finds_nothing('the default prefix is right');
foreach (['%m %%e %h ', '%m %5e %r '], [ '%m %e ', '%m %-5h %q%e ' ])
{
	setting_is_found({ log_line_prefix => $_->[0] }, { log_line_prefix => $_->[1] },
		'prefix_incomplete', 'warning', qr/is '\Q$_->[0]\E'\.$/, $_->[0]);
}
setting_is_found({ log_line_prefix => '%m' }, { format => 'json' },
	'prefix_incomplete', 'warning', qr/is '%m'\.$/, 'neither');

# Profiles

my ($status, $stdout, $stderr) = $node->psql('postgres', "SELECT * FROM audit_check('iso')");
like($stderr, qr/ERROR:  unrecognized audit profile: "iso"\nHINT:  Available profiles: cis, pci, stig\./,
	'an unknown profile');
foreach (
	[ cis => 'role, connect, ddl, denied', 'write' ],
	[ pci => 'connect, ddl, denied, error, role, read', 'write' ],
	[ stig => 'connect, ddl, error, role, denied', 'read, write' ],
	[ STIG => 'connect, ddl, error, role, read, write, denied', '' ])
{
	my ($name, $log, $missing) = @$_;

	$profile = $name;
	set(log => $log, log_parameter => lc $name eq 'stig' ? 'on' : 'off');
	$missing eq ''
	  ? finds_nothing("$name: all classes")
	  : finds('classes_missing', 'error', qr/Profile \L$name\E wants .* lacks: \Q$missing\E\.$/, $name);
}
$profile = 'pci';
set(log => 'connect, ddl, denied, error, role', role => 'selected');
finds_nothing('pci: object auditing will do for reading and writing');
$profile = 'stig';
finds('classes_missing', 'error', qr/lacks: read, write\.$/, 'but not for stig');

# What is denied is recorded of all classes, by the settings, by rules, or by both.  The
# remedy is one line, and mends what else is missing, too.

sub apply
{
	my ($remedy) = @_;
	my $before = config_records();

	sql($remedy);
	return poll_until(sub { config_records() > $before }) || die 'no reload';
}

set(role => '', log_parameter => 'on');
foreach my $name (qw(cis pci stig))
{
	$profile = $name;
	set(log => 'connect, ddl, error, role, read, write');
	$found = finds('denials_missing', 'error', qr/in the classes function, misc\.$/, $name);
	apply($found->{remedy});
	finds_nothing("$name: the remedy is enough");
	apply('ALTER SYSTEM RESET pg_audit_queue.log; SELECT pg_reload_conf()');
	set(log => 'misc, role, -set_role');
	$found = check();
	like($found->{denials_missing}{detail},
		qr/in the classes connect, ddl, error, function, read, set_role, write\.$/, "$name: many");
	is($found->{classes_missing}{remedy}, $found->{denials_missing}{remedy}, 'one remedy');
	apply($found->{denials_missing}{remedy});
	finds_nothing("$name: it is enough for both");
	apply('ALTER SYSTEM RESET pg_audit_queue.log; SELECT pg_reload_conf()');
	set(log => 'all');
	finds_nothing("$name: everything");
	set(log => 'connect, ddl, error, function, misc, read, role, write');
	finds_nothing("$name: every class");
}

sub set_rules
{
	my ($rules) = @_;
	my $file = $node->data_dir . '/audit_policy.conf';

	unlink $file;
	append_to_file($file, "$rules\n");
	set();
	return;
}

my $denied = 'record all all all all all outcome=denied';

set(log => 'connect, ddl, error, role, read, write');
foreach (
	[ $denied ],
	[ 'record all all all all all' ],
	[ 'record all all all misc,function all outcome=denied,ok' ],
	[ 'record all all all misc all', 'denials_missing', qr/in the classes function\.$/ ],
	[ 'record all bob all all all outcome=denied', 'denials_missing', qr/in the classes function, misc\.$/ ],
	[ 'record all all 10.0.0.0/8 all all outcome=denied', 'denials_missing' ],
	[ 'record bob all all all all outcome=denied', 'denials_missing' ],
	[ 'record all all all all hr.* outcome=denied', 'denials_missing' ],
	[ 'record all all all all all outcome=denied rows>=1', 'denials_missing' ],
	[ 'record all all all all all outcome=ok', 'denials_missing' ],
	[ "ignore all bob all misc all\n$denied", 'denials_missing', qr/in the classes misc\.$/, 'denied' ],
	[ "$denied\nignore all bob all misc all" ],
	[ "ignore all bob all misc all outcome=ok\n$denied" ],
	[ "$denied\nignore all bob all SELECT,ddl all", 'rules_ignore', qr/: line 2 of ".*audit_policy\.conf" \(ddl, read\)\.$/ ],
	[
		join("\n", $denied, ('ignore all bob all ddl all') x 10), 'rules_ignore',
		qr/: line 2 of [^,]*, line 3 of .*, line 9 of [^,]*, line 10 of [^,]*, line 11 of [^,]*\.$/
	],
	[ "$denied\nignore all all all function,misc_set all" ])
{
	my ($rules, $finding, $detail, $also) = @$_;

	set_rules($rules);
	$found = check();
	is_deeply(
		[ grep { !$always{$_} } sort keys %$found ],
		[ ($finding // ()), $also ? 'rules_ignore' : () ], $rules);
	like($found->{$finding}{detail}, $detail, 'what was seen') if $detail;
	like($found->{rules_ignore}{detail}, qr/\($also\)\.$/, 'and what is ignored') if $also;
}
set_rules("$denied\nrecord all all all connect,ddl,error,role,read,write all");
set(log => 'none');
finds_nothing('rules record all that is wanted');
$profile = undef;
set_rules('record all bob all all all');
finds_nothing('or something');
$profile = 'stig';
set_rules("$denied\nrecord all all all connect,ddl,error,role,read,write all");
set(policy => 'off');
$found = check();
ok($found->{log_none} && $found->{denials_missing} && $found->{classes_missing},
	'but not if they do not apply');
set_rules('');
set(policy => 'on', log => 'all', role => '');
setting_is_found({ log_parameter => 'off' }, { log_parameter => 'on' },
	'log_parameter_off', 'warning', qr/values/, 'stig wants parameters');
setting_is_found({ log_catalog => 'off' }, { log_catalog => 'on' },
	'log_catalog_off', 'warning', qr/catalogs/, 'and what is done with catalogs');
setting_is_found({ mask_literals => 'role, read' }, { mask_literals => 'read' },
	'masks_hide', 'warning', qr/wants them: role\.$/, 'constants that a profile wants');
$profile = 'pci';
set(mask_literals => 'none', log_parameter => 'off');
setting_is_found({ mask_patterns => '' }, { mask_patterns => 'xyzzy' },
	'masks_missing', 'warning', qr/personal data/, 'masks');
setting_is_found({ log_retention_age => '30d' }, { log_retention_age => '400d' },
	'retention_short', 'warning', qr/after 30 days, 90 have to be at hand/, 'a month');
setting_is_found({ log_retention_age => '1d' }, { log_retention_age => '400d' },
	'retention_short', 'warning', qr/after 1 day, 90 have to be at hand/, 'a day');
setting_is_found({ log_retention_age => '100d' }, { log_retention_age => '400d' },
	'retention_short', 'warning', qr/after 100 days, 365 have to be kept/, 'three months');
setting_is_found({ log_retention_age => '364d' }, { log_retention_age => '365d' },
	'retention_short', 'warning', qr/after 364 days/, 'a day less than a year');
$found = setting_is_found({ log_retention_size => '20GB' }, { log_retention_size => 0 },
	'retention_by_size', 'warning', qr/more than 21474836480 bytes, whatever their age/, 'age and size');
unlike($found->{remedy}, qr/log_retention_age/, 'of which one will do');
$found = setting_is_found({ log_retention_age => 0, log_retention_size => '20GB' },
	{ log_retention_age => '400d', log_retention_size => 0 },
	'retention_by_size', 'warning', qr/365 days/, 'size alone');
like($found->{remedy}, qr/log_retention_age = '400d'.*log_retention_size = 0/, 'both have to be set');

# The recipe of README is what the profile wants.
my ($recipe) = slurp_file("$FindBin::RealBin/../../README.md") =~ /^(\*\*PCI DSS:.*?)^\*\*/ms;
my %recipe = $recipe =~ /^(?:ALTER SYSTEM SET )?pg_audit_queue\.(\w+) = '(.*?)';?$/mg;
is(scalar keys %recipe, 7, 'a recipe');
sql('CREATE ROLE auditor NOLOGIN');
set(%recipe, log_directory => trail_dir($node));
finds_nothing('the recipe of README');

# Who can do anything, and what is recorded of it
my $me = $node->safe_psql('postgres', 'SELECT quote_ident(CURRENT_USER)');

sub administrators
{
	my ($what, @names) = @_;
	my ($names) = (check()->{administrators_missing}{detail} // '') =~ /: (.*)\.$/;

	is($names // '', join(', ', sort @names), "administrators: $what");
	return;
}

administrators('less than everything', $me, 'paq_quiet');
sql("ALTER ROLE $me SET pg_audit_queue.log = 'ALL'");
administrators('a setting of their own', 'paq_quiet');
unlike(check()->{overrides}{detail}, qr/$me/, 'which is nothing that has to be told of');
sql("CREATE ROLE boss LOGIN; CREATE ROLE lead LOGIN; GRANT $me TO lead; GRANT lead TO boss;"
	  . " CREATE ROLE asleep SUPERUSER; ALTER ROLE lead IN DATABASE postgres SET pg_audit_queue.log = 'all'");
administrators('members; in all databases', 'boss', 'lead', 'paq_quiet');
set(log => 'all');
administrators('everything is recorded, but of who says otherwise', 'paq_quiet');
set(log => 'all, -function');
administrators('all but one class', 'boss', 'lead', 'paq_quiet');
set(log => 'all');
sql("ALTER ROLE $me IN DATABASE postgres SET pg_audit_queue.log = 'none'");
administrators('a setting in one database comes before that of all', $me, 'paq_quiet');
sql("ALTER ROLE $me IN DATABASE postgres RESET ALL; ALTER DATABASE postgres SET pg_audit_queue.log = 'ddl'");
administrators('a setting of the database, behind those of roles', 'boss', 'paq_quiet');
sql("ALTER DATABASE postgres RESET ALL; ALTER ROLE ALL SET pg_audit_queue.log = 'none'");
administrators('a setting of all roles', 'boss', 'lead', 'paq_quiet');
is(check()->{overrides}{severity}, 'warning', 'object auditing is left');
like(check()->{overrides}{detail}, qr/\ball roles: pg_audit_queue\.log=none/, 'and is told of');
sql("ALTER ROLE ALL SET pg_audit_queue.role = ''");
is(check()->{overrides}{severity}, 'error', 'nothing of anybody else is recorded');
sql("ALTER ROLE ALL SET pg_audit_queue.log = 'all, -all'");
is(check()->{overrides}{severity}, 'error', 'in other words, too');
sql("ALTER ROLE ALL SET pg_audit_queue.log = 'ddl'");
is(check()->{overrides}{severity}, 'warning', 'less is warned of');
sql("ALTER ROLE ALL RESET pg_audit_queue.log");
is(check()->{overrides}{severity}, 'warning', 'what the server has counts');
sql('ALTER ROLE ALL RESET ALL');
is(check()->{overrides}{severity}, 'warning', 'others are warned of');
sql("ALTER ROLE $me RESET ALL; DROP ROLE boss; DROP ROLE lead; DROP ROLE asleep");
set(log => $recipe{log});

# Object auditing of tables
sql('CREATE TABLE card (a int); CREATE TABLE other (a int); GRANT SELECT ON other TO auditor;'
	  . ' GRANT SELECT, INSERT, UPDATE, DELETE ON card TO auditor');
$found = finds('truncate_missing', 'warning', qr/: public\.card\.$/, 'a grant without TRUNCATE');
is($found->{remedy}, 'GRANT TRUNCATE ON ... TO auditor;', 'how to mend it');
set(log => "$recipe{log}, write");
finds_nothing('all of them are recorded');
set(log => $recipe{log});
$profile = undef;
finds_nothing('not wanted without a profile');
$profile = 'pci';
sql('GRANT TRUNCATE ON card TO auditor');
finds_nothing('with TRUNCATE');

# as grants select: not what PUBLIC may do, nor what roles may do without a grant
sql('REVOKE TRUNCATE ON card FROM auditor; GRANT TRUNCATE ON card TO PUBLIC');
finds('truncate_missing', 'warning', qr/: public\.card\.$/, 'TRUNCATE for PUBLIC selects nothing');
sql('REVOKE ALL ON card FROM auditor; GRANT UPDATE (a) ON card TO auditor');
finds('truncate_missing', 'warning', qr/: public\.card\.$/, 'a grant on a column');
sql('REVOKE ALL (a) ON card FROM auditor; GRANT INSERT ON other TO PUBLIC; GRANT pg_write_all_data TO auditor');
finds_nothing('what PUBLIC may do, and what needs no grant, is not selected');
sql('CREATE ROLE above; GRANT above TO auditor; GRANT DELETE ON card TO above');
finds('truncate_missing', 'warning', qr/: public\.card\.$/, 'a grant to a role whose privileges it has');
sql('DROP TABLE card, other; DROP ROLE above; REVOKE pg_write_all_data FROM auditor');
set(log => 'all', role => '', immediate_log => 'none', mode => 'queued',
	log_retention_age => '400d', mask_patterns => 'xyzzy');
sql('DROP ROLE auditor');
$profile = undef;

# The disk

set_disk($node, audit => [ 1000, 250 ]);
finds('disk_used', 'warning', qr/^The disk of the queue is 75 percent full: 250 of 1000 bytes are free\. The disk of the trail is 75 percent full: 250 of 1000/, '75 percent');
set_disk($node, 'audit_queue' => [ 1000, 100 ]);
finds('disk_used', 'error', qr/^The disk of the queue is 90 percent full: 100 of 1000 bytes are free\.$/, '90 percent');
set_disk($node, audit => [ 1000, 251 ]);
finds_nothing('less than 75 percent');

# A trail that has grown to 100 MB in two days, and 300 MB are free
sub old_file
{
	my ($days) = @_;
	my $file = trail_dir($node) . '/audit-2020-01-01_000000.json';

	open my $handle, '>', $file or die "$file: $!";
	truncate $handle, 100_000_000 or die "truncate: $!";
	close $handle;
	utime time - $days * 86400, time - $days * 86400, $file or die "utime: $!";
	return $file;
}

set_disk($node, audit => [ 1_000_000_000, 300_000_000 ]);
my $old_file = old_file(0.5);
finds_nothing('a trail of half a day says nothing of a week');
old_file(2);
finds('disk_growth', 'warning', qr/grows by 5\d{7} bytes a day, and 300000000 bytes are free/, 'a week');
foreach my $settings ({ log_retention_size => '150MB' }, { log_retention_age => '3d' })
{
	set(%$settings);
	finds_nothing('not if retention keeps it small');
	set(log_retention_size => 0, log_retention_age => '400d');
	ok(check()->{disk_growth}, 'but without that');
}
unlink $old_file or die "unlink: $!";
set_disk($node);
finds_nothing('no growth, no finding');

# Statistics that cannot easily be made to happen.  The function that the check takes
# them from does something else for a while.
my $real_stats = sql("SELECT pg_get_functiondef('pg_stat_get_audit_queue()'::regprocedure)");
sql($real_stats =~ s/pg_stat_get_audit_queue/paq_real_stats/r);

sub with_stats
{
	my ($stats, $what) = @_;
	my $body = 'SELECT r.* FROM paq_real_stats() s,'
	  . q{ jsonb_populate_record(NULL::pg_stat_audit_queue, to_jsonb(s) || '} . encode_json($stats) . q{') r};

	sql($real_stats =~ s/ LANGUAGE c\b.*/ LANGUAGE sql AS \$\$$body\$\$/sr);
	$what->();
	sql($real_stats);
	return;
}

with_stats(
	{ oldest_file => undef, oldest_file_time => undef, trail_size => 0, trail_disk_free => 1 },
	sub {
		is_deeply([ grep { !$always{$_} } sort keys %{ check() } ], ['disk_used'], 'no file at all');
	});
my $gigabyte = 1024 * 1024 * 1024;
foreach ([ 8, '16777216kB' ], [ 12, '16777216kB' ], [ 16, undef ])
{
	my ($size, $larger) = @$_;

	with_stats(
		{ queue_size => $size * $gigabyte, queue_high_water => $size * $gigabyte },
		sub {
			my $remedy = finds('queue_small', 'warning', qr/^The queue of/, "$size GB")->{remedy};

			defined $larger
			  ? like($remedy, qr/queue_size = '$larger'; then restart/, 'at most 16 GB')
			  : unlike($remedy, qr/queue_size/, 'and then no more');
		});
}
with_stats(
	{ incomplete => 7 },
	sub {
		finds('records_incomplete', 'warning', qr/^7 records were made from what was at hand/, 'counted');
	});
finds_nothing('real statistics');
sql('DROP FUNCTION paq_real_stats()');

# What has happened: the queue was too small, records were dropped, the trail could
# not be written

take_trail_away($node);
my $load = start_psql($node, join("\n", map { "SELECT '$_" . ('x' x 20_000) . "';" } 1 .. 100));
ok(poll_until(sub { stats($node)->{space_waits} > 0 }), 'the queue is full');
my %found = %{ check() };
is_deeply([ grep { !$always{$_} } sort keys %found ], [qw(last_error queue_small)], 'which is found');
like($found{last_error}{detail}, qr/^The worker, or the loader, failed at [-0-9]+ .*: could not /, 'why');
like($found{queue_small}{detail}, qr/^The queue of 1048576 bytes was filled to \d+; sessions waited (?:1 time|(?!1 )\d+ times) for space\.$/,
	'with figures');
like($found{queue_small}{remedy}, qr/queue_size = '2048kB'/, 'how large it should be');
give_trail_back($node);
finish_psql($load);
flush_trail($node);
sql('SELECT audit_queue_stats_reset()');
finds_nothing('and forgotten, when somebody says so');

set(overflow => 'drop');
take_trail_away($node);
finish_psql(start_psql($node, join("\n", map { "SELECT '$_" . ('x' x 20_000) . "';" } 1 .. 100)));
give_trail_back($node);
flush_trail($node);
%found = %{ check() };
is($found{records_dropped}{severity}, 'error', 'records were dropped');
like($found{records_dropped}{detail}, qr/^[1-9]\d* records were dropped: [1-9]\d* because the queue was full, 0 /,
	'how many');
set(overflow => 'wait');
sql('SELECT audit_queue_stats_reset()');
finds_nothing('as if nothing had been');

# Roles and databases

sql('CREATE DATABASE second');
finds('extension_missing', 'warning', qr/: second\.$/, 'a database without the extension');
create_extension($node, 'second');
finds_nothing('and with it');

# Who owns a database cannot pretend that it has the extension.
sql('CREATE ROLE owner LOGIN CREATEDB; CREATE DATABASE owned OWNER owner');
sql('SET ROLE owner; CREATE SCHEMA audit_queue; CREATE TABLE audit_queue.records (a int);
	ALTER TABLE audit_queue.records ENABLE ROW LEVEL SECURITY;
	CREATE POLICY audit_queue_reader ON audit_queue.records FOR SELECT TO audit_queue_reader USING (true);
	CREATE FUNCTION audit_queue.f() RETURNS int LANGUAGE sql RETURN 1;
	GRANT USAGE ON SCHEMA audit_queue TO audit_queue_reader; GRANT SELECT ON audit_queue.records TO audit_queue_reader;
	GRANT EXECUTE ON FUNCTION audit_queue.f() TO audit_queue_reader; GRANT CONNECT ON DATABASE owned TO audit_queue_reader',
	'owned');
finds('extension_missing', 'warning', qr/: owned\.$/, 'a database with things of that name');
# Nor with what somebody has let its owner grant, nor as a member of the role.
sql('CREATE FOREIGN DATA WRAPPER w; GRANT USAGE ON FOREIGN DATA WRAPPER w TO owner WITH GRANT OPTION;
	GRANT audit_queue_marker TO owner', 'owned');
sql('SET ROLE owner; GRANT USAGE ON FOREIGN DATA WRAPPER w TO audit_queue_reader, audit_queue_marker;
	CREATE SCHEMA marker AUTHORIZATION audit_queue_marker; CREATE TABLE public.marker (a int);
	SET ROLE audit_queue_marker; CREATE TABLE marker.marker (a int)', 'owned');
finds('extension_missing', 'warning', qr/: owned\.$/, 'with grants, and objects of the role');
foreach my $sql ('SET ROLE owner; CREATE OPERATOR FAMILY public.marker USING btree',
	'SET ROLE audit_queue_marker; CREATE OPERATOR FAMILY marker.marker USING btree')
{
	($status, $stdout, $stderr) = $node->psql('owned', $sql);
	like($stderr, qr/ERROR:  must be superuser to create an operator family/, $sql);
}
sql('DROP FOREIGN DATA WRAPPER w; DROP SCHEMA marker CASCADE; REVOKE audit_queue_marker FROM owner', 'owned');
sql('SET ROLE owner; ALTER DATABASE owned IS_TEMPLATE true');
finds('extension_missing', 'warning', qr/: owned\.$/, 'or one that its owner calls a template');
sql('ALTER DATABASE owned OWNER TO paq_quiet');
finds_nothing('but not if a superuser does');
sql('ALTER DATABASE owned IS_TEMPLATE false');
sql('DROP DATABASE owned; DROP ROLE owner');
sql('CREATE DATABASE old');
sql("CREATE EXTENSION pg_audit_queue VERSION '1.0'", 'old');
finds('extension_missing', 'warning', qr/in version 1\.1 or later, .*: old\.$/, 'an earlier version');
sql('DROP DATABASE old');

# Members of superusers' roles are superusers when they want to.
sql('CREATE ROLE boss SUPERUSER NOLOGIN; CREATE ROLE between IN ROLE boss;
	CREATE ROLE deputy LOGIN NOINHERIT IN ROLE between; GRANT pg_read_server_files, pg_write_server_files TO deputy');
finds_nothing('superusers are told of once');
like(check()->{superusers}{detail}, qr/: (?:.*, )?deputy \(member of boss\)[,.]/, 'members, too');
sql('DROP ROLE deputy; DROP ROLE between; DROP ROLE boss');
unlike(check()->{superusers}{detail}, qr/deputy|boss/, 'and forgotten');

# Attributes that somebody has by SET ROLE, and functions
foreach (
	[ 'BYPASSRLS IN ROLE pg_read_all_data', 'trail_readers', 'info' ],
	[ 'REPLICATION', 'trail_readers', 'info' ],
	[ 'BYPASSRLS IN ROLE pg_write_all_data', 'trail_writers', 'warning' ])
{
	my ($attributes, $finding, $severity) = @$_;

	sql("CREATE ROLE between $attributes; CREATE ROLE somebody LOGIN NOINHERIT IN ROLE between");
	finds($finding, $severity, qr/: somebody\.$/, "SET ROLE: $attributes");
	sql('DROP ROLE somebody; DROP ROLE between');
}
foreach (
	[ 'pg_read_file(text)', 'trail_readers', 'info' ],
	[ 'pg_read_binary_file(text, bigint, bigint)', 'trail_readers', 'info' ],
	[ 'lo_import(text, oid)', 'trail_readers', 'info' ],
	[ 'lo_export(oid, text)', 'trail_writers', 'warning' ])
{
	my ($function, $finding, $severity) = @$_;
	my ($name) = $function =~ /^(\w+)/;

	sql("CREATE ROLE between; CREATE ROLE somebody LOGIN IN ROLE between; GRANT EXECUTE ON FUNCTION $function TO between");
	finds($finding, $severity, qr/: somebody \($name\)\.$/, $function);
	sql("REVOKE EXECUTE ON FUNCTION $function FROM between; GRANT EXECUTE ON FUNCTION $function TO PUBLIC");
	finds($finding, $severity, qr/: PUBLIC \($name\)\.$/, 'for everybody');
	sql("REVOKE EXECUTE ON FUNCTION $function FROM PUBLIC; DROP ROLE somebody; DROP ROLE between");
}
# An owner can let himself, if he may not yet.
sql('CREATE ROLE bob LOGIN; ALTER FUNCTION lo_export(oid, text) OWNER TO bob');
finds('trail_writers', 'warning', qr/: bob \(lo_export\)\.$/, 'the owner of a function');
sql('SET ROLE bob; REVOKE ALL ON FUNCTION lo_export(oid, text) FROM bob');
finds('trail_writers', 'warning', qr/: bob \(lo_export\)\.$/, 'who has revoked it from himself');
sql(q{DO $$ BEGIN EXECUTE format('ALTER FUNCTION lo_export(oid, text) OWNER TO %s', 10::regrole); END $$; DROP ROLE bob});
finds_nothing('a superuser is none of these');
sql('CREATE FUNCTION public.lo_export(text) RETURNS int LANGUAGE sql RETURN 1');
finds_nothing('a function of a user\'s is none of these');
sql('DROP FUNCTION public.lo_export(text); CREATE ROLE truncates LOGIN; GRANT TRUNCATE ON audit_queue.records TO truncates');
finds('trail_writers', 'warning', qr/: truncates\.$/, 'row security does not keep from TRUNCATE');
sql('REVOKE TRUNCATE ON audit_queue.records FROM truncates; DROP ROLE truncates');
foreach (
	[ 'pg_read_server_files', 'trail_readers', 'info' ],
	[ 'audit_queue_reader', 'trail_readers', 'info' ],
	[ 'pg_write_server_files', 'trail_writers', 'warning' ],
	[ 'pg_execute_server_program', 'trail_writers', 'warning' ])
{
	my ($role, $finding, $severity) = @$_;

	sql("CREATE ROLE between; CREATE ROLE \"Some\"\"body\" LOGIN NOINHERIT IN ROLE between; GRANT $role TO between");
	finds($finding, $severity, qr/: "Some""body"\.$/, $role);
	sql('DROP ROLE "Some""body"; DROP ROLE between');
	finds_nothing("$finding: revoked");
}
sql('CREATE ROLE standby LOGIN REPLICATION');
finds('trail_readers', 'info', qr/: standby\.$/, 'replication');
sql('DROP ROLE standby; CREATE ROLE reads_all LOGIN IN ROLE pg_read_all_data');
finds_nothing('row security keeps pg_read_all_data away');
sql('ALTER ROLE reads_all BYPASSRLS');
finds('trail_readers', 'info', qr/: reads_all\.$/, 'but not with BYPASSRLS');
sql('DROP ROLE reads_all');
foreach (
	[ SELECT => 'trail_readers', 'info' ],
	[ INSERT => 'trail_writers', 'warning' ],
	[ UPDATE => 'trail_writers', 'warning' ])
{
	my ($privilege, $finding, $severity) = @$_;

	sql("CREATE ROLE of_column LOGIN; GRANT $privilege (command_text) ON audit_queue.records TO of_column");
	finds_nothing("row security: $privilege of a column");
	sql('ALTER ROLE of_column BYPASSRLS');
	finds($finding, $severity, qr/: of_column\.$/, "BYPASSRLS with $privilege of a column");
	sql("REVOKE $privilege (command_text) ON audit_queue.records FROM of_column; DROP ROLE of_column");
}
sql('CREATE ROLE creator LOGIN CREATEROLE');
if (sql('SHOW server_version_num') < 160000)
{
	finds('trail_writers', 'warning', qr/: creator\.$/, 'CREATEROLE');
}
else
{
	finds_nothing('CREATEROLE can no longer do everything');
}
sql('DROP ROLE creator');

sql('CREATE ROLE granted; GRANT SET ON PARAMETER pg_audit_queue.mode TO granted');
finds('settings_granted', 'warning', qr/: pg_audit_queue\.mode to granted\.$/, 'a setting that is granted');
sql('REVOKE SET ON PARAMETER pg_audit_queue.mode FROM granted; DROP ROLE granted');
finds_nothing('settings_granted: revoked');

# Overrides are always there, because of the tests' own role; what becomes of others
my $odd = "\"x'; SELECT 1/0; --\t%s\"";
sql("CREATE ROLE $odd; CREATE DATABASE $odd");
sql("ALTER ROLE $odd SET pg_audit_queue.log = 'read'; ALTER DATABASE second SET pg_audit_queue.mode = 'commit';"
	  . " ALTER ROLE ALL SET pg_audit_queue.log_rows = on; ALTER ROLE $odd IN DATABASE second SET pg_audit_queue.log = 'write';"
	  . ' CREATE FUNCTION quiet() RETURNS int LANGUAGE sql SET pg_audit_queue.log = none RETURN 1');
like(
	check()->{overrides}{detail},
	qr/: all roles: pg_audit_queue\.log_rows=on, database second: pg_audit_queue\.mode=commit, function public\.quiet\(\): pg_audit_queue\.log=none, role "x'; SELECT 1\/0; --\t%s" in database second: pg_audit_queue\.log=write, role "x'; SELECT 1\/0; --\t%s": pg_audit_queue\.log=read, superuser paq_quiet: /,
	'settings of roles, databases and functions');
like(check()->{extension_missing}{detail}, qr/: "x'; SELECT 1\/0; --\t%s"\.$/, 'odd names');
sql("DROP FUNCTION quiet(); ALTER ROLE ALL RESET ALL; ALTER DATABASE second RESET ALL; DROP DATABASE $odd");
sql("ALTER ROLE $odd IN DATABASE second RESET ALL");
sql("DROP ROLE $odd");
unlike(check()->{overrides}{detail}, qr/quiet\(\)|second|all roles/, 'gone');

# What only the catalog can be made to say: nothing of it makes the check fail.
sql(q{INSERT INTO pg_db_role_setting VALUES (0, 4711, '{PG_AUDIT_QUEUE.Log=x,"",=,pg_audit_queue.,NULL}'),
	(4712, 4711, NULL)});
like(check()->{overrides}{detail}, qr/role 4711: PG_AUDIT_QUEUE\.Log=x, role 4711: pg_audit_queue\./,
	'what is no setting, of nobody');
sql('DELETE FROM pg_db_role_setting WHERE setrole = 4711');

# Names in another encoding
sql("CREATE DATABASE latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'");
create_extension($node, 'latin1');
sql(q{DO $$ BEGIN EXECUTE format('CREATE ROLE %I LOGIN', 'caf' || chr(233));
	EXECUTE format('ALTER ROLE %I SET pg_audit_queue.log = none', 'caf' || chr(233)); END $$}, 'latin1');
is(sql("SELECT count(*) FROM audit_check() WHERE finding = 'overrides' AND detail::bytea::text LIKE '%636166e9%'"),
	1, 'a name that is not valid in this encoding');
sql(q{DO $$ BEGIN EXECUTE format('DROP ROLE %I', 'caf' || chr(233)); END $$}, 'latin1');

# Who may make roles cannot make the call take for ever.
sql(q{DO $$ BEGIN
		FOR i IN 1 .. 2000 LOOP
			EXECUTE format('CREATE ROLE chain_%s LOGIN', i);
			IF i > 1 THEN EXECUTE format('GRANT chain_%s TO chain_%s', i - 1, i); END IF;
		END LOOP;
		GRANT pg_read_server_files TO chain_1; END $$});
is(sql("SET statement_timeout = '120s'; SELECT detail LIKE '%chain_%and 1990 more%' FROM audit_check() WHERE finding = 'trail_readers'"),
	't', 'a long chain of roles');
sql(q{DO $$ BEGIN FOR i IN 1 .. 2000 LOOP EXECUTE format('DROP ROLE chain_%s', i); END LOOP; END $$});

# More than ten
sql(join ';', map { "CREATE ROLE many_$_ LOGIN REPLICATION" } 10 .. 21);
finds('trail_readers', 'info', qr/: many_10, .* many_19 and 2 more\.$/, 'a long list');
sql(join ';', map { "DROP ROLE many_$_" } 10 .. 21);

# Versions, configuration files, and who may see what

my $version = sql("SELECT extversion FROM pg_extension WHERE extname = 'pg_audit_queue'");
sql("UPDATE pg_extension SET extversion = '1.0' WHERE extname = 'pg_audit_queue'");
finds('version_mismatch', 'error', qr/has version 1\.0, the library that is loaded \Q$version\E\.$/, 'versions');
sql("UPDATE pg_extension SET extversion = '$version' WHERE extname = 'pg_audit_queue'");
finds_nothing('the same version');

$node->append_conf('postgresql.conf', "pg_audit_queue.log = 'raed'\n");
finds('configuration_errors', 'error', qr/pg_audit_queue\.log in .*postgresql\.conf line \d+: 'raed': /, 'a wrong value');
sql('CREATE ROLE monitor LOGIN IN ROLE pg_monitor; CREATE ROLE nobody LOGIN');
%found = %{ check('monitor') };
ok(!$found{configuration_errors}, 'which monitoring may not see');
like($found{not_visible}{detail}, qr/because monitor may not: wrong values in configuration files\.$/, 'and says so');
$node->append_conf('postgresql.conf', "pg_audit_queue.log = 'all'\n");
finds_nothing('a right value behind it');

rename $node->data_dir . '/postgresql.conf', $node->data_dir . '/away' or die "rename: $!";
finds('configuration_errors', 'error', qr/: syntax: could not open .*postgresql\.conf".*\.$/,
	'an error without a line');
rename $node->data_dir . '/away', $node->data_dir . '/postgresql.conf' or die "rename: $!";
finds_nothing('the file is back');

# also before the reload, when only the files know
$node->append_conf('postgresql.conf', "pg_audit_queue.queue_size = '2MB'\n");
my @pending = grep { !$always{$_} } sort keys %{ check() };
is_deeply([ grep { $_ ne 'restart_pending' } @pending ], [], 'what waits for a restart is no wrong value');
set();
finds('restart_pending', 'warning', qr/: pg_audit_queue\.queue_size\.$/, 'but said');

# A wrong value behind it, with which the server would not start
$node->append_conf('postgresql.conf', "pg_audit_queue.queue_size = '2XB'\n");
foreach my $when ('before the reload', 'after it')
{
	%found = %{ check() };
	is_deeply([ grep { !$always{$_} } sort keys %found ], [ 'configuration_errors', 'restart_pending' ],
		"a wrong value that waits for a restart, $when");
	like($found{configuration_errors}{detail}, qr/: pg_audit_queue\.queue_size in .*postgresql\.conf line \d+: '2XB': .*\(allowed: 64 to 16777216 kB\)\.$/,
		"which one, $when");
	set();
}
$node->append_conf('postgresql.conf', "pg_audit_queue.queue_size = '1MB'\n");
set();
finds_nothing('and no more if taken back');

# A line that is gone waits for a restart, too.
my $conf = slurp_file($node->data_dir . '/postgresql.conf');
(my $less = $conf) =~ s/^pg_audit_queue\.queue_size .*\n//mg;
write_conf($less);
set();
finds('restart_pending', 'warning', qr/: pg_audit_queue\.queue_size\.$/, 'a line that is gone');
write_conf($conf);
set();
finds_nothing('it is back');

# After that restart nothing would be recorded.
sql("ALTER SYSTEM SET shared_preload_libraries = ''");
set();
finds('restart_pending', 'warning', qr/: shared_preload_libraries\.$/, 'the library is to go');
sql('ALTER SYSTEM RESET shared_preload_libraries; CREATE ROLE bob; GRANT ALTER SYSTEM ON PARAMETER shared_preload_libraries TO bob');
set();
finds('settings_granted', 'warning', qr/: shared_preload_libraries to bob\.$/, 'who may do that');
sql('REVOKE ALL ON PARAMETER shared_preload_libraries FROM bob; DROP ROLE bob');
is_deeply([ grep { !$always{$_} } sort keys %{ check('monitor') } ], ['not_visible'],
	'monitoring sees everything else');
foreach my $sql ('SELECT * FROM audit_check()', 'SELECT * FROM audit_queue.server_settings()',
	'SELECT * FROM audit_queue.configuration_errors()', 'SELECT * FROM audit_queue.policy_errors()', q{SELECT * FROM audit_queue.profile('pci')},
	'SELECT * FROM audit_queue.records_elsewhere()', 'SELECT * FROM pg_stat_audit_queue')
{
	($status, $stdout, $stderr) = $node->psql('postgres', $sql, extra_params => [ '-U', 'nobody' ]);
	like($stderr, qr/ERROR:  permission denied/, "not for everybody: $sql");
}
sql('GRANT EXECUTE ON FUNCTION audit_check(text), pg_stat_get_audit_queue() TO nobody;'
	  . ' GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA audit_queue TO nobody; GRANT USAGE ON SCHEMA audit_queue TO nobody');
like(check('nobody')->{not_visible}{detail},
	qr/because nobody may not: wrong values in configuration files, what waits for a restart, errors of the policy file\.$/,
	'who may call it, and not see all of that, is told so');
sql('REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA audit_queue FROM nobody; REVOKE USAGE ON SCHEMA audit_queue FROM nobody;'
	  . ' REVOKE EXECUTE ON FUNCTION audit_check(text), pg_stat_get_audit_queue() FROM nobody');

# The settings are those of the server, not of the session that asks.
is( $node->safe_psql(
		'postgres', q{SET pg_audit_queue.log = 'none'; SET pg_audit_queue.mask_patterns = '';
		SELECT count(*) FROM audit_check() WHERE finding IN ('log_none', 'masks_missing')}),
	0, 'settings of the caller do not count');

# Objects of somebody else's are not called.
sql(q{
	CREATE SCHEMA trap;
	CREATE TABLE trap.called (a text);
	CREATE FUNCTION trap.spy(text, text) RETURNS bool LANGUAGE plpgsql AS
		'BEGIN INSERT INTO trap.called VALUES ($1); RETURN true; END';
	CREATE OPERATOR trap.= (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.spy);
	CREATE OPERATOR trap.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.spy);
	CREATE FUNCTION trap.lower(text) RETURNS text LANGUAGE plpgsql AS
		'BEGIN INSERT INTO trap.called VALUES ($1); RETURN NULL; END';
	CREATE FUNCTION trap.starts_with(text, text) RETURNS bool LANGUAGE plpgsql AS
		'BEGIN INSERT INTO trap.called VALUES ($1); RETURN NULL; END';
	CREATE FUNCTION trap.quote_ident(text) RETURNS text LANGUAGE plpgsql AS
		'BEGIN INSERT INTO trap.called VALUES ($1); RETURN NULL; END'});
is( sql(q{SET search_path = trap, pg_catalog; SELECT pg_catalog.count(*) OPERATOR(pg_catalog.>) 1 FROM audit_check();
		SELECT pg_catalog.count(*) FROM trap.called}),
	"t\n0", 'nor with a search path that leads to them');
is( sql(q{CREATE TEMPORARY TABLE pg_roles (oid oid, rolname text);
		SELECT count(*) FROM audit_check() WHERE finding = 'superusers'}),
	1, 'or a temporary table');

# The view audit_records

my $elsewhere = qr/^psql:<stdin>:\d+: ERROR:  the audit trail is not in the table of this database\n/;
sql('GRANT audit_queue_reader TO nobody');
foreach my $query ('SELECT * FROM audit_records', 'SELECT count(*) FROM audit_records WHERE log_time > now()')
{
	($status, $stdout, $stderr) = $node->psql('postgres', $query);
	like($stderr, $elsewhere, "an error: $query");
	like($stderr, qr/HINT:  Read file "\Q@{[ trail_dir($node) ]}\E\/audit-\S+\.json" and those before it,/,
		'which says where the trail is');
}
($status, $stdout, $stderr) = $node->psql('postgres', 'SELECT * FROM audit_records',
	extra_params => [ '-U', 'nobody' ]);
like($stderr, $elsewhere, 'for readers, too');
unlike($stderr, qr/\.json/, 'who are not told the name of a file that only superusers may know');
sql('REVOKE audit_queue_reader FROM nobody');

$node->append_conf('postgresql.conf', settings_text(sink => 'table', table_retention => '400d'));
$node->reload;
ok(poll_until(sub { stats($node)->{sink} eq 'table' }), 'sink = table');
$node->safe_psql('postgres', q{SELECT 'in the table'});
ok(table_loaded($node), 'the table is loaded');
($status, $stdout, $stderr) = $node->psql('postgres',
	q{SELECT count(*) FROM audit_records WHERE command_text = $$SELECT 'in the table'$$});
is("$stdout|$stderr", '1|', 'no complaint');
($status, $stdout, $stderr) = $node->psql('second', 'SELECT count(*) FROM audit_records');
like($stderr, qr/$elsewhere.*HINT:  Connect to database "postgres"/, 'but in another database');
like(
	sql(q{EXPLAIN (COSTS off) SELECT * FROM audit_records WHERE log_time >= '2000-01-01' AND log_time < '2000-01-02'}),
	qr/^Function Scan on records_elsewhere\n  Filter: /, 'partitions are left out by the planner');
like(
	sql(q{EXPLAIN (COSTS off) SELECT * FROM audit_records WHERE log_time > now() + interval '1000 days'}),
	qr/Subplans Removed: [1-9]/, 'and by the executor');

setting_is_found({ table_retention => '0' }, { table_retention => '400d' },
	'retention_none', 'warning', qr/ever removed/, 'retention of the table');

$node->append_conf('postgresql.conf', settings_text(sink => 'file'));
$node->reload;
ok(poll_until(sub { stats($node)->{sink} eq 'file' }), 'back to files');
($status, $stdout, $stderr) = $node->psql('postgres',
	q{SELECT count(*) FROM audit_records WHERE command_text = $$SELECT 'in the table'$$});
is($stdout, 1, 'old rows can be read');
like($stderr, qr/WARNING:  new audit records do not go into the table of this database\nHINT:  Read file/,
	'with a warning');
($status, $stdout, $stderr) = $node->psql('postgres', 'SELECT command FROM audit_records LIMIT 1');
like($stderr, qr/WARNING:  new audit records do not go/, 'also for who wants no more than one row');
$node->command_ok([ 'pg_dump', '-f', PostgreSQL::Test::Utils::tempdir() . '/dump', '-d', $node->connstr('second') ],
	'pg_dump does not mind');
$node->stop;

done_testing();
