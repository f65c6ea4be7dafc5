--
-- Settings: defaults, units, limits, and messages about wrong values.
--
SELECT name, setting, unit, vartype, context
  FROM pg_settings WHERE name LIKE 'pg\_audit\_queue.%'
 ORDER BY name COLLATE "C";
SELECT name, min_val, max_val, enumvals
  FROM pg_settings WHERE name LIKE 'pg\_audit\_queue.%'
   AND (min_val IS NOT NULL OR enumvals IS NOT NULL)
 ORDER BY name COLLATE "C";
-- all of them describe themselves
SELECT name
  FROM pg_settings WHERE name LIKE 'pg\_audit\_queue.%'
   AND (short_desc IS NULL OR short_desc !~ '\.$');
SHOW pg_audit_queue.log_file_mode;
SHOW pg_audit_queue.queue_size;
SHOW pg_audit_queue.flush_interval;
SHOW pg_audit_queue.log_retention_age;
SHOW pg_audit_queue.log_retention_size;
SHOW pg_audit_queue.log_rotation_age;
SHOW pg_audit_queue.log_rotation_size;

-- lists of classes
SET pg_audit_queue.log = 'read, write';
SET pg_audit_queue.log = 'ALL, -Misc_Set';
SHOW pg_audit_queue.log;
SET pg_audit_queue.log = '';
SET pg_audit_queue.log = 'ddl, read,';
SET pg_audit_queue.log = 'ddl,, read';
SET pg_audit_queue.log = 'dll';
SET pg_audit_queue.log = '-nothing';
SHOW pg_audit_queue.log;
RESET pg_audit_queue.log;
SET pg_audit_queue.immediate_log = 'ddl, role';
SHOW pg_audit_queue.immediate_log;
SET pg_audit_queue.immediate_log = 'sometimes';
SET pg_audit_queue.immediate_log = 'denied';
RESET pg_audit_queue.immediate_log;

-- wrong values of settings that a session can change
SET pg_audit_queue.log_catalog = 'perhaps';
SET pg_audit_queue.log_client = 'perhaps';
SET pg_audit_queue.log_level = 'error';
SET pg_audit_queue.log_parameter = 'perhaps';
SET pg_audit_queue.log_parameter_max_size = '1 minute';
SET pg_audit_queue.log_relation = 'perhaps';
SET pg_audit_queue.log_rows = 'perhaps';
SET pg_audit_queue.log_settings = 'shop.user_id,';
SET pg_audit_queue.log_settings = 'shop.user_id, "shop user"';
SET pg_audit_queue.log_settings = 'shop..user';
SET pg_audit_queue.log_settings = '""';
SET pg_audit_queue.log_settings = 'shop.user_id, "Shop.User_id"';
SET pg_audit_queue.log_settings = 'a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q';
SET pg_audit_queue.log_statement = 'perhaps';
SET pg_audit_queue.log_statement_once = 'perhaps';
SET pg_audit_queue.mode = 'sometimes';
SET pg_audit_queue.policy = 'perhaps';

-- units
SET pg_audit_queue.log_parameter_max_size = '1kB';
SELECT setting, unit FROM pg_settings
 WHERE name = 'pg_audit_queue.log_parameter_max_size';
RESET pg_audit_queue.log_parameter_max_size;

-- wrong values of the server's settings
ALTER SYSTEM SET pg_audit_queue.database = '';
ALTER SYSTEM SET pg_audit_queue.flush_interval = '1MB';
ALTER SYSTEM SET pg_audit_queue.flush_threshold = '1ms';
ALTER SYSTEM SET pg_audit_queue.format = 'xml';
ALTER SYSTEM SET pg_audit_queue.fsync = 'perhaps';
ALTER SYSTEM SET pg_audit_queue.log_directory = '';
ALTER SYSTEM SET pg_audit_queue.log_filename = '';
ALTER SYSTEM SET pg_audit_queue.log_filename = '../audit';
ALTER SYSTEM SET pg_audit_queue.log_file_mode = 'rw';
ALTER SYSTEM SET pg_audit_queue.log_retention_age = '1MB';
ALTER SYSTEM SET pg_audit_queue.log_retention_size = '90d';
-- what removes records has a unit, whatever it could be without one
ALTER SYSTEM SET pg_audit_queue.log_retention_age = 7;
ALTER SYSTEM SET pg_audit_queue.log_retention_size = '20480';
ALTER SYSTEM SET pg_audit_queue.consumer_keep_size = 1;
ALTER SYSTEM SET pg_audit_queue.table_retention = '7';
ALTER SYSTEM SET pg_audit_queue.log_rotation_age = '1MB';
ALTER SYSTEM SET pg_audit_queue.log_rotation_size = '1d';
ALTER SYSTEM SET pg_audit_queue.overflow = 'sometimes';
ALTER SYSTEM SET pg_audit_queue.policy_file = 'other.conf';
ALTER SYSTEM SET pg_audit_queue.queue_directory = '';
ALTER SYSTEM SET pg_audit_queue.queue_size = '1d';
ALTER SYSTEM SET pg_audit_queue.sink = 'nowhere';
ALTER SYSTEM SET pg_audit_queue.table_logged = 'perhaps';
ALTER SYSTEM SET pg_audit_queue.table_retention = '1MB';
ALTER SYSTEM SET pg_audit_queue.table_synchronous_commit = 'yes';

-- out of range; how the range is told depends on PostgreSQL's version
\set VERBOSITY sqlstate
SET pg_audit_queue.log_parameter_max_size = -1;
ALTER SYSTEM SET pg_audit_queue.flush_interval = 0;
ALTER SYSTEM SET pg_audit_queue.flush_interval = '61min';
ALTER SYSTEM SET pg_audit_queue.flush_threshold = 0;
ALTER SYSTEM SET pg_audit_queue.flush_threshold = 81;
ALTER SYSTEM SET pg_audit_queue.log_file_mode = '01000';
ALTER SYSTEM SET pg_audit_queue.log_retention_age = -1;
ALTER SYSTEM SET pg_audit_queue.log_retention_age = '25000d';
ALTER SYSTEM SET pg_audit_queue.log_retention_size = -1;
ALTER SYSTEM SET pg_audit_queue.log_rotation_age = -1;
ALTER SYSTEM SET pg_audit_queue.log_rotation_size = -1;
ALTER SYSTEM SET pg_audit_queue.queue_size = '63kB';
ALTER SYSTEM SET pg_audit_queue.queue_size = '17GB';
ALTER SYSTEM SET pg_audit_queue.table_retention = -1;
-- too long to be shown here
\set ECHO none
SELECT format('ALTER SYSTEM SET pg_audit_queue.log_directory = %L', repeat('x', 513)) \gexec
SELECT format('ALTER SYSTEM SET pg_audit_queue.queue_directory = %L', repeat('x', 513)) \gexec
SELECT format('ALTER SYSTEM SET pg_audit_queue.log_filename = %L', repeat('x', 128)) \gexec
SELECT format('ALTER SYSTEM SET pg_audit_queue.database = %L', repeat('x', 64)) \gexec
\set ECHO all
\set VERBOSITY default

-- none of them got through
SELECT count(*) FROM pg_file_settings
 WHERE name LIKE 'pg\_audit\_queue.%' AND sourcefile LIKE '%auto.conf';

-- not in a session
SET pg_audit_queue.format = 'json';
SET pg_audit_queue.queue_size = '32MB';

-- misspelt names
SET pg_audit_queue.lgo = 'all';
