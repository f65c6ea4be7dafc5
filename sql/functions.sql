--
-- The functions and the view, for a superuser.
--
CREATE EXTENSION pg_audit_queue;

-- what the extension consists of, but for the row types of its tables and views
SELECT object
  FROM (SELECT pg_describe_object(classid, objid, objsubid) AS object
		  FROM pg_depend
		 WHERE deptype = 'e'
		   AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_audit_queue')
		   -- from 17 on these belong to it, too
		   AND NOT (classid = 'pg_type'::regclass
					AND objid IN (SELECT unnest(ARRAY[t.oid, t.typarray])
									FROM pg_type t JOIN pg_class c ON c.reltype = t.oid))) o
 ORDER BY object COLLATE "C";
SELECT attname, format_type(atttypid, atttypmod) AS type
  FROM pg_attribute
 WHERE attrelid = 'audit_queue_stats'::regclass AND attnum > 0
 ORDER BY attnum;

-- a flush covers what was published before it; changes of settings are records, too
CREATE TEMPORARY TABLE t (a int);
SELECT audit_flush() AS sequence_before \gset
SET pg_audit_queue.log = 'write';
INSERT INTO t VALUES (1);
INSERT INTO t VALUES (2), (3);
DELETE FROM t;
SELECT audit_flush() - :sequence_before AS records;
SELECT published = flushed AS all_flushed, drained = flushed AS none_open,
	   oldest_unflushed_age IS NULL AS no_age,
	   queue_size = pg_size_bytes(current_setting('pg_audit_queue.queue_size')) AS size,
	   dropped, last_error, sink, worker_pid IS NOT NULL AS worker
  FROM audit_queue_stats;

-- modes wait by themselves
SELECT audit_queue_stats_reset();
SET pg_audit_queue.mode = 'immediate';
INSERT INTO t VALUES (4);
SELECT published, flushed FROM audit_queue_stats;
SET pg_audit_queue.mode = 'commit';
BEGIN;
INSERT INTO t VALUES (5);
INSERT INTO t VALUES (6);
COMMIT;
SELECT published, flushed FROM audit_queue_stats;
RESET pg_audit_queue.mode;
SET pg_audit_queue.immediate_log = 'write';
INSERT INTO t VALUES (7);
SELECT published, flushed FROM audit_queue_stats;
RESET pg_audit_queue.immediate_log;

-- a new file
SELECT current_file AS file_before FROM audit_queue_stats \gset
SELECT audit_rotate() AS file_after \gset
SELECT :'file_after' <> :'file_before' AS another,
	   :'file_after' = current_file AS shown,
	   :'file_after' ~ '^audit/audit-\d{4}-\d\d-\d\d_\d{6}(\.\d+)?\.json$' AS named
  FROM audit_queue_stats;

-- reset
SELECT audit_queue_stats_reset();
SELECT published, drained, flushed, bytes, space_waits, flush_waits, dropped,
	   stats_reset > now() - interval '1 minute' AS recently
  FROM audit_queue_stats;

-- gone and back
DROP EXTENSION pg_audit_queue;
SELECT count(*) FROM pg_event_trigger WHERE evtname LIKE 'pg\_audit\_queue%';
CREATE EXTENSION pg_audit_queue;
SELECT audit_flush() >= :sequence_before AS works;
DROP EXTENSION pg_audit_queue;
RESET pg_audit_queue.log;
