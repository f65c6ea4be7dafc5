--
-- The functions and the views, for a superuser.
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
-- what the new view has in addition
SELECT attname, format_type(atttypid, atttypmod) AS type
  FROM pg_attribute n
 WHERE attrelid = 'pg_stat_audit_queue'::regclass AND attnum > 0
   AND NOT EXISTS (SELECT FROM pg_attribute o
					WHERE o.attrelid = 'audit_queue_stats'::regclass
					  AND o.attname = n.attname AND o.atttypid = n.atttypid)
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

SELECT s.published = o.published AS same, trail_size > 0 AS size,
	   oldest_file ~ '^audit/' AS oldest, oldest_file_time <= clock_timestamp() AS time,
	   trail_disk_size > trail_disk_free AS trail_disk,
	   queue_disk_size > queue_disk_free AS queue_disk,
	   library_version = extversion AS version
  FROM pg_stat_audit_queue s, audit_queue_stats o, pg_extension
 WHERE extname = 'pg_audit_queue';
SELECT class FROM pg_stat_audit_queue_classes;

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

-- the trail is in files, and in no table
\set VERBOSITY sqlstate
SELECT * FROM audit_records;
\set VERBOSITY default

-- what is wrong with auditing here, and what a profile makes of it
SELECT finding, severity
  FROM audit_check()
 WHERE finding IN ('log_none', 'retention_none', 'trail_in_data_directory');
SELECT finding, severity, detail, remedy FROM audit_check('pci') WHERE finding = 'classes_missing';
SELECT * FROM audit_check('iso');

-- gone and back
DROP EXTENSION pg_audit_queue;
SELECT count(*) FROM pg_event_trigger WHERE evtname LIKE 'pg\_audit\_queue%';
CREATE EXTENSION pg_audit_queue;
SELECT audit_flush() >= :sequence_before AS works;
DROP EXTENSION pg_audit_queue;
RESET pg_audit_queue.log;
