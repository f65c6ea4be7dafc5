# The policy file: what is an error, with its line, in the server log, in the view
# audit_policy_rules and in the trail; and which rules are in effect after whatever
# happens to the file, to the server, or to the rules that are kept.
#
# Copyright (c) 2026, pg_audit_queue contributors

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../lib";
use PaqTest;

use IPC::Run;
use POSIX qw(mkfifo);
use Test::More;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

my $node = audited_node('main', settings => { log => 'none', flush_interval => '10ms' });
my $file = $node->data_dir . '/audit_policy.conf';
my $kept = queue_dir($node) . '/policy';

# of the records: those of rules that have been looked at
my $seen = 0;

# of the server log
my $position = 0;

sub sql
{
	return unaudited_sql($node, @_);
}

# Make the policy file what that says, at once; nothing for undef.
sub put
{
	my ($text) = @_;

	unlink($file);
	return if !defined $text;
	append_to_file("$file.new", $text);
	rename("$file.new", $file) or die "rename: $!";
	return;
}

# How often the worker has reloaded.  What it does then is over when the record is in
# the trail.
sub reloads
{
	return scalar grep { $_->{command} eq 'RELOAD' && !defined $_->{objectType} }
	  grep { defined $_->{command} } trail_records($node);
}

sub reload
{
	my $before = reloads();

	$position = -s $node->logfile;
	$node->reload;
	poll_until(sub { reloads() > $before }) or die 'no reload';
	return;
}

# Start, or wait for the server to come back, and for the worker's records
sub restart
{
	$position = -s $node->logfile;
	$node->restart;
	flush_trail($node) if wait_for_worker($node);
	return;
}

sub log_text
{
	return slurp_file($node->logfile, $position);
}

# Records of rules since the last call, as "old|new|SQLSTATE|message"
sub changes
{
	flush_trail($node);
	my @all = grep { ($_->{objectType} // '') eq 'POLICY' } trail_records($node);
	my @new = @all[ $seen .. $#all ];

	$seen = @all;
	is($_->{class} . ' ' . $_->{command} . ' ' . $_->{objectName}, "CONFIG RELOAD $file",
		'what the record is of')
	  foreach @new;
	return
	  map { join '|', map { $_ // '' } @$_{qw(oldValue newValue exitCode errorMessage)} } @new;
}

# There is one such record, of other rules; returns their checksum.
sub other_rules
{
	my ($old, $name) = @_;
	my @changes = changes();
	my ($new) = ($changes[0] // '') =~ /^\Q$old\E\|([0-9a-f]{64}|)\|00000\|$/;

	is(scalar @changes, 1, "$name: one record");
	ok(defined $new && $new ne $old, "$name: of other rules") or diag(@changes);
	return $new;
}

# There is one record, that the file is wrong; the rules with the checksum stay.
sub rules_stay
{
	my ($checksum, $error, $name) = @_;
	my @changes = changes();

	is(scalar @changes, 1, "$name: one record");
	like($changes[0] // '', qr/^\Q$checksum|$checksum|\EF0000\|.*$error/s, "$name: says why");
	like(log_text(), $error, "$name: so does the server log");
	like(log_text(), qr/audit policy file "\Q$file\E" is not in effect/, "$name: and what that means");

	# files without end are an error of the view's, too, in 15
	is(eval { in_effect() } // 'f', 'f', "$name: the view, too");
	return;
}

sub in_effect
{
	return sql('SELECT bool_and(in_effect) FROM audit_policy_rules');
}

# No file, and never one

is(join(';', changes()), '', 'without a file there is nothing to tell');
is(sql('SELECT count(*) FROM audit_policy_rules'), 0, 'nor to show');
unlike(slurp_file($node->logfile), qr/audit policy|audit_policy\.conf/, 'nor to log');
ok(!-e $kept, 'nor to keep');
reload();
is(join(';', changes()), '', 'the same at a reload');

# Rules come into effect

my $rules = <<'RULES';
# a comment

record all,"all",/^db[0-9]$ alice,+staff,"+staff" local,samehost,10.0.0.0/8,::1,fe80::/10 -read,write,"DROP TABLE",temp all
ignore replication,sameuser,samerole,samegroup all all COPY,truncate,-misc "my schema".*,s.t,other,/^a[.]b,role:"the role" outcome=ok,failed rows>=10 duration<5min currentuser=bob,+staff
record all all samenet all all mode=immediate parameters=on statement=normalized mandatory \
  name="a name" outcome=denied duration>18446744073709us rows=0
RULES

put($rules);
reload();
my $checksum = other_rules('', 'the first rules');
is(sql('SELECT * FROM audit_policy_rules WHERE rule_number = 2'),
	join('|', 2, $file, 4, 'ignore', '{replication,sameuser,samerole,samegroup}', '{all}', '{all}',
		'{COPY,truncate,-misc}', '{"my schema.*",s.t,other,/^a[.]b,"role:the role"}',
		'{"outcome=ok,failed",rows>=10,duration<5min,"currentuser=bob,+staff"}', 't', ''),
	'the view shows what a rule says');
is( sql('SELECT rule_number, line_number, options[5:6], error IS NULL, in_effect FROM audit_policy_rules'),
	"1|3|{}|t|t\n2|4|{}|t|t\n3|5|{\"name=a name\",outcome=denied}|t|t",
	'each of them');
is(sprintf('%04o', (stat($kept))[2] & 07777), '0600', 'the kept rules are for nobody else');

# What is no change

my $kept_before = slurp_file($kept);
reload();
is(join(';', changes()), '', 'no change without another file');
is(slurp_file($kept), $kept_before, 'nothing is written for it');
put("# another comment\n$rules\n\n");
reload();
is(join(';', changes()), '', 'comments and empty lines are no change');
is(in_effect(), 't', 'the same rules are in effect');
is(sql('SELECT array_agg(line_number) FROM audit_policy_rules'), '{4,5,6}', 'in other lines');

# Each error, in a line of its own

my @errors = (
	[ 'record',                          'missing field "database"' ],
	[ 'record all',                      'missing field "user"' ],
	[ 'record all all',                  'missing field "address"' ],
	[ 'record all all all',              'missing field "class"' ],
	[ 'record all all all all',          'missing field "object"' ],
	[ 'Record all all all all all',      'unrecognized action "Record" (valid actions are record and ignore)' ],
	[ '"record" all all all all all',    'unrecognized action "record" (valid actions are record and ignore)' ],
	[ 'record,ignore all all all all all', 'multiple values for field "action"' ],
	[ 'record "" all all all all',       'empty word in field "database"' ],
	[ 'record all a,"" all all all',     'empty word in field "user"' ],
	[ 'record all + all all all',        'name is empty' ],
	[ 'record all / all all all',        'regular expression is empty' ],
	[ 'record all /( all all all',       qr/invalid regular expression "\(": parentheses \(\) not balanced/ ],
	[ 'record ' . 'x' x 64 . ' all all all all', qr/name "x{64}" is too long \(maximum 63 bytes\)/ ],
	[ 'record ' . 'x' x 200 . ' all all all all', qr/name "x{100}\.\.\." is too long \(maximum 63 bytes\)/ ],
	[ 'record all all 10.0.0.0/33 all all',      'invalid CIDR mask in address "10.0.0.0/33"' ],
	[ 'record all all 10.0.0.0/-1 all all',      'invalid CIDR mask in address "10.0.0.0/-1"' ],
	[ 'record all all 10.0.0.0/ all all',        'invalid CIDR mask in address "10.0.0.0/"' ],
	[ 'record all all ::1/129 all all',          'invalid CIDR mask in address "::1/129"' ],
	[ 'record all all ::1/99999999999999999999 all all',
		'invalid CIDR mask in address "::1/99999999999999999999"' ],
	# from here on, there are too many for the server log
	[ 'record all all 10 all all',               'invalid IP address "10"' ],
	[ 'record all all 10.0.0.256 all all',       'invalid IP address "10.0.0.256"' ],
	[ 'record all all example.com all all',      'invalid IP address "example.com"' ],
	[ 'record all all "all" all all',            'invalid IP address "all"' ],
	[ 'record all all all foo all',              qr/^unrecognized class "foo" \(valid classes are ddl, .*, write, .*, and command tags\)$/ ],
	[ 'record all all all - all',                qr/^unrecognized class "" \(valid classes are ddl, .*, write, .*, and command tags\)$/ ],
	[ 'record all all all read,"write" all',     qr/^unrecognized class "write" \(valid classes are ddl, .*, write, .*, and command tags\)$/ ],
	[ 'record all all all none all',             'class "none" is not for rules' ],
	[ 'record all all all -config all',          'class "config" is always recorded' ],
	[
		'record all all all ddl,denied all',
		'"denied" is no class for rules: use the condition "outcome=denied"'
	],
	[ 'record all all all all s.',               'object "s." lacks a schema or a name' ],
	[ 'record all all all all .t',               'object ".t" lacks a schema or a name' ],
	[ 'record all all all all role:',            'name is empty' ],
	[ 'record all all all all rows>1',           'missing field before "rows>1"' ],
	[ 'record all all all all mandatory',        'missing field before "mandatory"' ],
	[ 'record all all all all /[',               qr/invalid regular expression "\[": brackets \[\] not balanced/ ],
	[ 'record all all all all all colour=red',   qr/^unrecognized condition or option "colour=red" \(valid ones are outcome, .*, name, mandatory\)$/ ],
	[ 'record all all all all all ""',           qr/^unrecognized condition or option "" \(valid ones are outcome, .*, name, mandatory\)$/ ],
	[ 'record all all all all all mode=commit mode=queued', 'option "mode" given twice' ],
	[ 'record all all all all all rows>1 rows<9',           'condition "rows" given twice' ],
	[ 'ignore all all all all all mandatory',    'option "mandatory" is for rules to record only' ],
	[ 'ignore all all all all all name=x',       'option "name" is for rules to record only' ],
	[ 'record all all all all all mandatory=on', 'option "mandatory" has no value' ],
	[ 'record all all all all all mode',         'option "mode" requires a value' ],
	[ 'record all all all all all mode=',        'empty value for option "mode"' ],
	[ 'record all all all all all outcome=ok,""', 'empty value for condition "outcome"' ],
	[ 'record all all all all all mode>=commit', 'option "mode" requires operator "="' ],
	[ 'record all all all all all mode=commit,queued', 'multiple values for option "mode"' ],
	[ 'record all all all all all mode=Commit',  'invalid value for option "mode": "Commit" (valid values are queued, commit, immediate)' ],
	[ 'record all all all all all parameters=yes', 'invalid value for option "parameters": "yes" (valid values are on, off)' ],
	[ 'record all all all all all statement=none', 'invalid value for option "statement": "none" (valid values are on, off, normalized)' ],
	[ 'record all all all all all outcome=okay', 'invalid value for condition "outcome": "okay" (valid values are ok, failed, denied, partial)' ],
	[ 'record all all all all all rows>=-1',     'invalid value for condition "rows": "-1"' ],
	[ 'record all all all all all rows>=1k',     'invalid value for condition "rows": "1k"' ],
	[ 'record all all all all all rows<>1',      'invalid value for condition "rows": ">1"' ],
	[ 'record all all all all all rows>9223372036854775808',
		'value "9223372036854775808" for condition "rows" is out of range' ],
	[ 'record all all all all all duration>1d',  qr/invalid unit in condition "duration": "1d" \(.*ms.*\)/ ],
	[ 'record all all all all all duration>9223372036854775807h',
		'value "9223372036854775807h" for condition "duration" is out of range' ],
	[ 'record all all all all all name=' . 'n' x 64, qr/name "n{64}" is too long/ ],
	[ 'record all all all all all currentuser=a,/(', qr/invalid regular expression "\("/ ],
	[ 'record @none all all all all',            qr/could not open .*none/ ]);

put("# all wrong\n" . join '', map { "$_->[0]\n" } @errors);
reload();
my %shown = map { /^(\d+)\|(.*)/ } split /\n/,
  sql('SELECT line_number, error FROM audit_policy_rules WHERE rule_number IS NULL AND action IS NULL');
my $log = log_text();
is(scalar keys %shown, scalar @errors, 'each wrong line is shown');
foreach my $i (0 .. $#errors)
{
	my ($line, $error) = @{ $errors[$i] };
	my $number = $i + 2;

	$error = qr/^\Q$error\E$/ if !ref $error;
	like($shown{$number}, $error, "line $number: $line");
	is($log =~ /LOG:  error in file "\Q$file\E" line $number: (.*)/ ? $1 : '',
		$i < 20 ? $shown{$number} : '', 'in the server log, too') if $i < 21;
}
rules_stay($checksum, qr/error in file "\Q$file\E" line 2: missing field "database"/, 'many errors');
like(log_text(), qr/DETAIL:  There are ${\ scalar @errors} errors\./, 'they are counted');
reload();
is(join(';', changes()), '', 'the same errors once more are no news');

put("$rules\nrecord all all all all all nothing\n");
reload();
rules_stay($checksum, qr/line 8: unrecognized condition or option "nothing"/, 'one wrong rule');
is(sql('SELECT rule_number, error FROM audit_policy_rules WHERE line_number IN (5, 8)'),
	"3|\n|unrecognized condition or option \"nothing\" (valid ones are outcome, rows, duration, currentuser, mode, parameters, statement, name, mandatory)",
	'the others are shown');

# Files that are none

foreach my $case (
	[ 'missing', sub { }, qr/could not open file "\Q$file\E": No such file/ ],
	[ 'a directory', sub { mkdir($file) or die "mkdir: $!" }, qr/"\Q$file\E" is not a regular file/ ],
	[ 'unreadable', sub { put($rules); chmod(0, $file) or die "chmod: $!" },
		qr/could not open file "\Q$file\E": Permission denied/ ],
	[ 'a pipe', sub { mkfifo($file, 0600) or die "mkfifo: $!" }, qr/"\Q$file\E" is not a regular file/ ],
	[ 'with a hole', sub { put($rules); truncate($file, 65 * 1024 * 1024) or die "truncate: $!" },
		qr/file "\Q$file\E" contains a null byte/ ],
	[ 'too large', sub { put(' ' x (65 * 1024 * 1024)) }, qr/is too large \(maximum 64 MB\)/ ],
	[ 'with a null byte', sub { put("record all all all all all\0\n") },
		qr/file "\Q$file\E" contains a null byte/ ],
	[ 'binary', sub { srand(1); put(join '', map { chr(1 + rand(255)) } 1 .. 20000) }, qr/line \d+: / ],
	[ 'one long line', sub { put('record ' . 'x' x 1000000 . ' all all all all') }, qr/line 1: .*too long/ ],
	[ 'including itself', sub { put("record \@audit_policy.conf all all all all\n") },
		qr/audit_policy\.conf/ ])
{
	my ($name, $make, $error) = @$case;

	put(undef);
	$make->();
	reload();
	rules_stay($checksum, $error, $name);
	if ($name =~ /^(?:missing|a directory|binary|including itself)$/)
	{
		restart();
		rules_stay($checksum, $error, "$name at start");
	}
	rmdir($file) if -d $file;
}

# After all that, the rules are what they were, without a record of a change.

put($rules);
reload();
is(join(';', changes()), '', 'back to the rules, which have been in effect all the time');
is(in_effect(), 't', 'so the view says');

# The server crashes while the file is wrong

put("wrong\n");
$position = -s $node->logfile;
my $session = start_psql($node, 'SELECT pg_backend_pid(); SELECT pg_sleep(600)', name => 'victim');
my $victim = poll_until(
	sub { sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'victim' AND query ~ 'sleep'") });
my $worker = worker_pid($node);
kill('KILL', $victim) == 1 or die "kill: $!";
finish_psql($session);
wait_for_worker($node, $worker);
rules_stay($checksum, qr/line 1: unrecognized action "wrong"|line 1: missing/, 'a crash');
put($rules);
reload();
is(join(';', changes()), '', 'the crash has not changed the rules');

# Another file while the server is down: one record, and no other later on

put("record all all all all all\n");
restart();
my $other = other_rules($checksum, 'another file at a start');
is(in_effect(), 't', 'it is in effect');
restart();
is(join(';', changes()), '', 'told once');
put("wrong\n");
restart();
rules_stay($other, qr/unrecognized action|missing field/, 'a wrong file at a start');
is(join(';', changes()), '', 'told once, too');

# A worker that starts again takes over, and reads what it may have missed

put($rules);
$worker = kill_worker($node, 'TERM');
wait_for_worker($node, $worker);
is(other_rules($other, 'another file while there is no worker'), $checksum, 'the rules of before');

# Lists in files, some of them empty; a file elsewhere

mkdir($node->data_dir . '/lists') or die "mkdir: $!";
append_to_file($node->data_dir . '/lists/users', "alice, bob # and\n+staff\n");
append_to_file($node->data_dir . '/lists/none', "# nobody\n");
put("record all \@lists/users,carol all all all\n");
reload();
my $included = other_rules($checksum, 'a list in a file');
is(sql('SELECT user_name FROM audit_policy_rules'), '{alice,bob,+staff,carol}', 'it is read');
append_to_file($node->data_dir . '/lists/users', "dave\n");
is(in_effect(), 'f', 'the view notices that the list is another one');
reload();
$other = other_rules($included, 'another list');
put("record all \@lists/none all all all\n");
reload();
rules_stay($other, qr/line 1: missing field/, 'an empty list');
put("record all \@lists/none all all all mandatory\n");
reload();
rules_stay($other, qr/line 1: missing field before "mandatory"/, 'an empty list, and an option');

# Rules without end

put(join '', map { "record db$_ /^user$_\$ 10.0.0.0/8 all s$_.* name=rule$_\n" } 1 .. 10000);
reload();
my $many = other_rules($other, '10000 rules');
is(sql('SELECT count(*), bool_and(in_effect) FROM audit_policy_rules'), '10000|t', 'are in effect');
restart();
is(join(';', changes()), '', 'and after a restart');

# None

put("# nothing\n");
reload();
is(other_rules($many, 'an empty file'), '', 'without rules there is no checksum');
is(sql('SELECT count(*) FROM audit_policy_rules'), 0, 'nor anything to show');
put(undef);
restart();
is(sql('SELECT count(*) FROM audit_policy_rules WHERE error IS NOT NULL AND NOT in_effect'), 1,
	'a file that has been there is missed, even without rules');
like(join(';', changes()), qr/^\|\|F0000\|could not open file[^;]*$/, 'and that is recorded');

# The checksum of the rules in the kept file
sub crc32c
{
	my ($bytes) = @_;
	my $crc = 0xffffffff;

	foreach my $byte (unpack 'C*', $bytes)
	{
		$crc ^= $byte;
		$crc = $crc >> 1 ^ ($crc & 1 ? 0x82f63b78 : 0) foreach 1 .. 8;
	}
	return $crc ^ 0xffffffff;
}

# The kept rules as another version might have left them, with a word that is none here.
# They begin behind two headers of 84 bytes; the second one has their checksum.
sub of_another_version
{
	my $text = slurp_file($kept);
	my $words = substr($text, 168);

	is(unpack('L', substr($text, 92, 4)), crc32c($words), 'that is where the checksum is');
	$words =~ s/ignore/forget/ or die 'the rule is missing';
	return substr($text, 0, 92) . pack('L', crc32c($words)) . substr($text, 96, 72) . $words;
}

# Kept rules are damaged: the server starts, without any if the file is wrong, too.

foreach my $case (
	[ 'a changed byte', sub { my $text = slurp_file($kept); substr($text, -3, 1) ^= "\1"; $text } ],
	[ 'a changed header', sub { my $text = slurp_file($kept); substr($text, 20, 1) ^= "\1"; $text } ],
	[ 'a short file', sub { substr(slurp_file($kept), 0, 50) } ],
	[ 'an empty file', sub { '' } ],
	[ 'another version', \&of_another_version, qr/: could not use the rule in line 4 of .*"forget"/ ])
{
	my ($name, $text, $reason) = @$case;

	put($rules);
	reload();
	is(other_rules('', "$name: before"), $checksum, 'the rules of before');
	$node->stop;
	put("wrong\n");
	my $damaged = $text->();
	unlink($kept);
	append_to_file($kept, $damaged);
	$position = -s $node->logfile;
	$node->start;
	wait_for_worker($node);
	$reason //= qr/ "[^"]*policy" cannot be used\n.*DETAIL:  It is /;
	like(log_text(), qr/LOG:  kept audit policy( cannot be used)?$reason/,
		"$name: the kept rules are not used");
	if ($name eq 'another version')
	{
		like(join(';', changes()), qr/^$checksum\|\|F0000\|[^;]*$/, "$name: there are no rules any more");
		reload();
		is(join(';', changes()), '', "$name: told once");
		next;
	}
	rules_stay('', qr/unrecognized action|missing field/, $name);
}

# They cannot be kept: the file is not in effect.

put("ignore all all all all all\n");
mkdir("$kept.new") or die "mkdir: $!";
reload();
like(join(';', changes()), qr/^\|\|F0000\|could not keep the rules[^;]*$/, 'rules that cannot be kept are not used');
is(in_effect(), 'f', 'so the view says');
rmdir("$kept.new") or die "rmdir: $!";
reload();
$other = other_rules('', 'they can be kept again');

# Single-user mode reads the file, and leaves the rest to the next start.

foreach my $text ($rules, "wrong\n")
{
	my $output;

	$node->stop;
	put($text);
	ok( IPC::Run::run(
			[ $node->installed_command('postgres'), '--single', '-D', $node->data_dir, 'postgres' ],
			'<', \"SELECT 'still' || ' there'\n", '>&', \$output),
		'single-user mode');
	like($output, qr/still there/, 'it works');
	unlike($output, qr/line 1: unrecognized|line 1: missing/, 'with rules') if $text eq $rules;
	like($output, qr/line 1: unrecognized|line 1: missing/, 'without') if $text ne $rules;
	$node->start;
	wait_for_worker($node);
}
like(join(';', changes()), qr/^\Q$other|$checksum|00000|;$checksum|$checksum|F0000|\E[^;]*$/,
	'the records are made then');

# Another place, and who may see it

(my $elsewhere = PostgreSQL::Test::Utils::tempdir()) .= '/rules';
append_to_file($elsewhere, "record all all all all all\n");
$node->append_conf('postgresql.conf', settings_text(policy_file => $elsewhere));
restart();
is(sql('SELECT file_name, in_effect FROM audit_policy_rules'), "$elsewhere|t", 'policy_file');
my ($ret, $stdout, $stderr) =
  $node->psql('postgres', q{ALTER SYSTEM SET pg_audit_queue.policy_file = 'mine'});
like($stderr, qr/parameter "pg_audit_queue.policy_file" cannot be changed/, 'not by ALTER SYSTEM');
sql('CREATE ROLE nobody_special LOGIN; CREATE ROLE watcher LOGIN IN ROLE pg_monitor;'
	  . 'CREATE ROLE reader LOGIN IN ROLE audit_queue_reader');
foreach my $sql ('SELECT * FROM audit_policy_rules', 'SELECT * FROM audit_policy_rules()',
	'SHOW pg_audit_queue.policy_file')
{
	($ret, $stdout, $stderr) =
	  $node->psql('postgres', $sql, extra_params => [ '-U', 'nobody_special' ]);
	isnt($ret, 0, "not for everybody: $sql");
	like($stderr, qr/permission denied|must be superuser/, 'because of privileges');
}
foreach my $role (qw(watcher reader))
{
	is( $node->safe_psql('postgres', 'SELECT action FROM audit_policy_rules',
			extra_params => [ '-U', $role ]),
		'record', "for $role");
}

# The examples of the sample file

my @examples = map { /^# ((?:record|ignore) .*)/ ? "$1\n" : () }
  split /\n/, slurp_file("$FindBin::RealBin/../../audit_policy.conf.sample");
unlink($elsewhere);
append_to_file($elsewhere, join '', @examples);
is( sql('SELECT count(*), count(error), string_agg(error, $$; $$) FROM audit_policy_rules'),
	@examples . '|0|', 'the examples are right');
cmp_ok(scalar @examples, '>', 5, 'there are some');
chomp(my $share = `pg_config --sharedir`);
is(slurp_file("$share/extension/audit_policy.conf.sample"),
	slurp_file("$FindBin::RealBin/../../audit_policy.conf.sample"), 'they are installed');

$node->stop;

done_testing();
