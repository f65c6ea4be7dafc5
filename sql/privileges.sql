--
-- Privileges.  Nobody who is audited can turn auditing off, or read about it,
-- unless it is granted.
--
CREATE EXTENSION pg_audit_queue;
CREATE ROLE regress_paq_user;
CREATE ROLE regress_paq_monitor IN ROLE pg_monitor;
CREATE SCHEMA regress_paq AUTHORIZATION regress_paq_user;

-- settings
SET ROLE regress_paq_user;
SET pg_audit_queue.immediate_log = 'none';
SET pg_audit_queue.log = 'none';
SET pg_audit_queue.log_catalog = off;
SET pg_audit_queue.log_client = on;
SET pg_audit_queue.log_level = 'notice';
SET pg_audit_queue.log_parameter = off;
SET pg_audit_queue.log_parameter_max_size = 1;
SET pg_audit_queue.log_relation = off;
SET pg_audit_queue.log_rows = off;
SET pg_audit_queue.log_statement = off;
SET pg_audit_queue.log_statement_once = on;
SET pg_audit_queue.mode = 'queued';
SET pg_audit_queue.policy = off;
SET pg_audit_queue.role = '';
SELECT set_config('pg_audit_queue.log', 'none', false);
CREATE FUNCTION regress_paq.f() RETURNS int LANGUAGE sql
	SET pg_audit_queue.log = 'none' AS 'SELECT 1';
ALTER ROLE regress_paq_user SET pg_audit_queue.log = 'none';
ALTER SYSTEM SET pg_audit_queue.format = 'json';
-- where the files are; the words depend on PostgreSQL's version
\set VERBOSITY sqlstate
SHOW pg_audit_queue.log_directory;
SHOW pg_audit_queue.log_filename;
SHOW pg_audit_queue.policy_file;
SHOW pg_audit_queue.queue_directory;
\set VERBOSITY default
-- no harm in the others
SHOW pg_audit_queue.log;
SHOW pg_audit_queue.mode;

-- functions and the views
SELECT * FROM audit_queue_stats();
SELECT audit_flush();
SELECT audit_rotate();
SELECT audit_seal();
SELECT audit_queue_stats_reset();
SELECT * FROM audit_queue_stats;
SELECT * FROM pg_stat_get_audit_queue();
SELECT * FROM pg_stat_audit_queue;
SELECT * FROM pg_stat_audit_queue_classes;
SELECT * FROM audit_check();
SELECT * FROM audit_policy_rules;
SELECT * FROM audit_records;
SELECT * FROM audit_trail;
SELECT * FROM audit_trail(NULL, NULL);
RESET ROLE;

-- monitoring reads, and changes nothing
SET ROLE regress_paq_monitor;
SELECT count(*) FROM audit_queue_stats;
SELECT count(*) FROM pg_stat_audit_queue;
SELECT count(*) > 1 AS classes FROM pg_stat_audit_queue_classes;
SELECT count(*) > 1 AS findings FROM audit_check();
SELECT count(*) FROM audit_policy_rules;
SELECT audit_flush();
SELECT audit_rotate();
SELECT audit_seal();
SELECT audit_queue_stats_reset();
RESET ROLE;

-- each can be granted
GRANT EXECUTE ON FUNCTION audit_flush(), audit_rotate(), audit_seal(),
	audit_queue_stats(), audit_queue_stats_reset() TO regress_paq_user;
GRANT SELECT ON audit_queue_stats TO regress_paq_user;
GRANT SET ON PARAMETER pg_audit_queue.mode TO regress_paq_user;
SET ROLE regress_paq_user;
SELECT audit_flush() >= 0 AS flushed;
SELECT audit_rotate() <> '' AS rotated;
SELECT audit_seal();
SELECT audit_queue_stats_reset();
SELECT count(*) FROM audit_queue_stats;
SET pg_audit_queue.mode = 'immediate';
RESET pg_audit_queue.mode;
RESET ROLE;

-- nothing else of the extension is for everybody
SELECT p.proname
  FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
 WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
   AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_audit_queue')
   AND has_function_privilege('public', p.oid, 'EXECUTE');

REVOKE SET ON PARAMETER pg_audit_queue.mode FROM regress_paq_user;
DROP EXTENSION pg_audit_queue;
DROP SCHEMA regress_paq;
DROP ROLE regress_paq_user;
DROP ROLE regress_paq_monitor;
