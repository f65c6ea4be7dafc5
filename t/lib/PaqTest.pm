#-------------------------------------------------------------------------
#
# PaqTest.pm
#	What the tests share, all of it: the modules of this folder by subject.
#
#	PaqInit		data directories
#	PaqBuild	libraries, programs and servers that are built for a test
#	PaqServer	a server that records, and SQL that leaves no records
#	PaqProcess	the worker and other processes, clocks and disks
#	PaqProgram	pg_audit_trail
#	PaqRecords	the trail: files, lines, records
#	PaqLoad		clients at work, and the trail in the table
#
# Builds on PostgreSQL::Test::Cluster and ::Utils.  Use it as
#
#	use FindBin;
#	use lib "$FindBin::RealBin/../lib";
#	use PaqTest;
#
# "node" is a PostgreSQL::Test::Cluster made by audited_node().  Functions die
# if they cannot do their work (the server fails, a file cannot be read), unless
# said otherwise; only check_trail() reports through Test::More.
#
# Copyright (c) 2026, pg_audit_queue contributors
#
#-------------------------------------------------------------------------
package PaqTest;

use strict;
use warnings;

use Exporter 'import';

use PaqBuild;
use PaqInit qw(init_node);
use PaqLoad;
use PaqProcess;
use PaqProgram;
use PaqRecords;
use PaqServer;

our @EXPORT = (
	'init_node', @PaqBuild::EXPORT, @PaqServer::EXPORT, @PaqProcess::EXPORT,
	@PaqProgram::EXPORT, @PaqRecords::EXPORT, @PaqLoad::EXPORT);

# Programs speak English, and write numbers and times as in it, whatever the environment
# says; what they write is compared with texts.
delete @ENV{ grep { /^(?:LANG|LC_)/ } keys %ENV };
$ENV{LC_ALL} = 'C';

1;
