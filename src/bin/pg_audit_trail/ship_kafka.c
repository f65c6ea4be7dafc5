/*-------------------------------------------------------------------------
 *
 * ship_kafka.c
 *		The target of pg_audit_trail ship that is a topic of Kafka.
 *
 * A file has the topic, what the key of a record is, and any properties of librdkafka's.  The
 * value is the trail's line without its newline.
 *
 * Guarantees: a record is acknowledged when all replicas in sync have it; librdkafka sends
 * again what a broker may not have got, and brokers drop what they have already, so
 * that in each partition records are in the trail's order, and there once, as long as the
 * producer lives.  It ends when a record could not be delivered: the next one begins behind
 * what was acknowledged, and what is delivered again then has the same series and sequence.
 * No property can take that away: see fixed[].
 *
 * Memory is bounded: by what there may be on the way, see may_send(), and by librdkafka's
 * queue.buffering.max.kbytes.
 *
 * Threads: librdkafka has its own.  They call nothing of ours: what they have to say waits
 * until rd_kafka_poll() or rd_kafka_flush() is called, which is where the callbacks run.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/ship.h"

#ifndef PAQ_WITH_KAFKA

const Target *
kafka_target(const char *path)
{
	trouble("this build has no librdkafka");
}

#else

#include <librdkafka/rdkafka.h>
#include <syslog.h>

#define ERROR_LEN		512

/* Lines of the file that set something, at most */
#define MAX_SETTINGS	200

/* Kinds of errors that are told apart when they come again */
#define MAX_REPORTED	8

typedef struct Setting
{
	const char *name;
	const char *value;
} Setting;

/* What our guarantees stand on.  A file may have it, too, but no other value. */
static const Setting fixed[] = {
	{"enable.idempotence", "true"},
	{"acks", "all"},
	{"acks", "-1"},
	{"request.required.acks", "all"},
	{"request.required.acks", "-1"},

	/* without these we do not get to know that a record was delivered */
	{"delivery.report.only.error", "false"},
	{"transactional.id", ""},

	/* see Threads */
	{"log.queue", "true"}
};

/*
 * What is better than librdkafka's own defaults, and may be set in the file.
 *
 * An idempotent producer sends no batch of a partition while another one is on its way.  As long
 * as a further one that is full waits for it, librdkafka's thread does not sleep.  So there are
 * never two full batches in a partition: may_send() sees to that, and a batch waits for being
 * full, not for time, unless there are no more records.  1000 records are as many as mostly fit
 * into the bytes of a batch.
 */
static const Setting defaults[] = {
	{"client.id", "pg_audit_trail"},
	{"batch.num.messages", "1000"},
	{"linger.ms", "200"},
	{"queue.buffering.max.kbytes", "65536"},

	/* lines become much shorter, which saves the broker more than it costs here */
	{"compression.codec", "lz4"},

	/* TLS's records of a batch would wait for the broker to acknowledge those before */
	{"socket.nagle.disable", "true"},

	/* for ever: giving up a record is giving up all, and beginning again */
	{"message.timeout.ms", "0"},

	/* a topic that is not there is reported sooner */
	{"topic.metadata.propagation.max.ms", "5000"}
};

static struct
{
	const char *path;
	char	   *topic_name;
	bool		key_is_sequence;
	rd_kafka_conf_t *conf;
	uint64		batch_records;	/* in a full batch */
	uint64		batch_bytes;

	rd_kafka_t *producer;
	rd_kafka_topic_t *topic;
	uint64		partitions;		/* known to exist, at least 1 */
	uint64		records;		/* on their way */
	uint64		bytes;			/* of these */
	bool		full;			/* the last record could not be sent */
	bool		failed;			/* so that all has to begin again */
	uint64		alone;			/* so many are sent one by one, after a failure */

	/* Errors since a record was delivered last */
	rd_kafka_resp_err_t reported[MAX_REPORTED];
	int			nreported;
}			kafka;

/* ----------
 * The file
 * ----------
 */

static void
set_property(rd_kafka_conf_t *conf, const Setting *setting, int line)
{
	char		error[ERROR_LEN];

	if (rd_kafka_conf_set(conf, setting->name, setting->value, error,
						  sizeof(error)) == RD_KAFKA_CONF_OK)
		return;
	if (line > 0)
		trouble("file \"%s\", line %d: %s", kafka.path, line, error);
	trouble("could not set up librdkafka: %s", error);
}

/* Is the setting one that we make, too?  One that would take away a guarantee is refused. */
static bool
is_fixed(const Setting *setting, int line)
{
	const char *wanted = NULL;

	for (int i = 0; i < lengthof(fixed); i++)
	{
		if (strcmp(fixed[i].name, setting->name) != 0)
			continue;
		if (strcmp(fixed[i].value, setting->value) == 0)
			return true;
		if (wanted == NULL)
			wanted = fixed[i].value;
	}
	if (wanted != NULL)
		trouble("file \"%s\", line %d: %s must be \"%s\"", kafka.path, line, setting->name, wanted);
	return false;
}

static void
apply_setting(const Setting *setting, int line)
{
	if (strcmp(setting->name, "topic") == 0)
	{
		if (setting->value[0] == '\0')
			trouble("file \"%s\", line %d: the topic has no name", kafka.path, line);
		kafka.topic_name = checked_strdup(setting->value);
	}
	else if (strcmp(setting->name, "key") == 0)
	{
		kafka.key_is_sequence = strcmp(setting->value, "sequence") == 0;
		if (!kafka.key_is_sequence && strcmp(setting->value, "session") != 0)
			trouble("file \"%s\", line %d: key must be \"session\" or \"sequence\"", kafka.path, line);
	}
	else if (!is_fixed(setting, line))
		set_property(kafka.conf, setting, line);
}

/* Without white space at both ends */
static char *
trim(char *text)
{
	char	   *end = text + strlen(text);

	while (isspace((unsigned char) *text))
		text++;
	while (end > text && isspace((unsigned char) end[-1]))
		end--;
	*end = '\0';
	return text;
}

/* name = value */
static Setting
parse_line(char *text, int line)
{
	char	   *equals = strchr(text, '=');
	Setting		setting = {0};

	if (equals != NULL)
	{
		*equals = '\0';
		setting.name = trim(text);
		setting.value = trim(equals + 1);
	}
	if (equals == NULL || setting.name[0] == '\0')
		trouble("file \"%s\", line %d is not \"name = value\"", kafka.path, line);
	return setting;
}

static void
parse_file(char *text)
{
	Setting		settings[MAX_SETTINGS];
	int			count = 0;
	int			line = 0;
	char	   *next;

	for (char *p = text; p != NULL; p = next)
	{
		line++;
		next = strchr(p, '\n');
		if (next != NULL)
			*next++ = '\0';
		p = trim(p);
		if (*p == '\0' || *p == '#')
			continue;
		if (count == MAX_SETTINGS)
			trouble("file \"%s\" has more than %d settings", kafka.path, MAX_SETTINGS);
		settings[count] = parse_line(p, line);
		for (int i = 0; i < count; i++)
			if (strcmp(settings[i].name, settings[count].name) == 0)
				trouble("file \"%s\", line %d: %s is set twice", kafka.path, line, settings[i].name);
		apply_setting(&settings[count++], line);
	}
	if (kafka.topic_name == NULL)
		trouble("file \"%s\" has no topic", kafka.path);
}

static void
read_properties(void)
{
	static char text[SECRETS_MAX + 1];
	const Size	len = read_secret_file("file", kafka.path, text);

	if (memchr(text, '\0', len) != NULL)
		trouble("file \"%s\" is not a text", kafka.path);
	parse_file(text);
	paq_forget_secret(text, sizeof(text));
}

static uint64
number_property(const char *name)
{
	char		value[32] = "";
	size_t		size = sizeof(value);

	(void) rd_kafka_conf_get(kafka.conf, name, value, &size);
	return strtou64(value, NULL, 10);
}

/* ----------
 * What librdkafka says
 * ----------
 */

/* Is that the first time since things went well?  Notes that it no longer is. */
static bool
is_news(rd_kafka_resp_err_t error)
{
	for (int i = 0; i < kafka.nreported; i++)
		if (kafka.reported[i] == error)
			return false;
	if (kafka.nreported < MAX_REPORTED)
		kafka.reported[kafka.nreported++] = error;
	return true;
}

/* Once, however often it is tried again */
static void
report_undelivered(rd_kafka_resp_err_t error)
{
	if (!is_news(error))
		return;
	pg_log_error("a record could not be delivered to topic \"%s\": %s", kafka.topic_name,
				 rd_kafka_err2str(error));
	if (error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)
		pg_log_error_hint("Raise the topic's max.message.bytes, or make batch.size smaller than that in file \"%s\".",
						  kafka.path);
}

/* A record was delivered, so all is well. */
static void
note_delivery(const rd_kafka_message_t *message)
{
	if (kafka.nreported > 0)
		pg_log_info("records are delivered to topic \"%s\" again", kafka.topic_name);
	kafka.nreported = 0;
	kafka.partitions = Max(kafka.partitions, (uint64) message->partition + 1);
	if (kafka.alone > 0)
		kafka.alone--;
	ship_acknowledged((uintptr_t) message->_private);
}

/*
 * A record was not delivered.  Others of its batch may be, without it: that one of them is too
 * large is said of all.
 */
static void
note_failure(rd_kafka_resp_err_t error)
{
	if (kafka.failed)
		return;
	report_undelivered(error);
	kafka.failed = true;
	kafka.alone = error == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ? 2 * kafka.batch_records : 1;
}

static void
handle_delivery(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque)
{
	kafka.records--;
	kafka.bytes -= message->len;
	if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR)
		note_delivery(message);
	else
		note_failure(message->err);
}

static void
handle_error(rd_kafka_t *producer, int code, const char *reason, void *opaque)
{
	char		fatal_reason[ERROR_LEN];
	rd_kafka_resp_err_t error = code;

	if (error == RD_KAFKA_RESP_ERR__FATAL)
	{
		error = rd_kafka_fatal_error(producer, fatal_reason, sizeof(fatal_reason));
		reason = fatal_reason;
		kafka.failed = true;
	}

	/* that all brokers are down, each of them has told */
	if (is_news(error) && (error != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || kafka.nreported == 1))
		pg_log_error("Kafka: %s", reason);
}

/* Errors come to handle_error(), too. */
static void
handle_log(const rd_kafka_t *producer, int level, const char *facility, const char *text)
{
	if (strcmp(facility, "CONFWARN") == 0)
		pg_log_warning("file \"%s\": %s", kafka.path, text);
	else if (level == LOG_DEBUG)
		pg_log_info("Kafka: %s: %s", facility, text);
}

/* ----------
 * The target
 * ----------
 */

static rd_kafka_t *
make_producer(void)
{
	char		error[ERROR_LEN];
	rd_kafka_conf_t *conf = rd_kafka_conf_dup(kafka.conf);
	rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof(error));

	if (producer == NULL)
	{
		rd_kafka_conf_destroy(conf);
		pg_log_error("could not use file \"%s\": %s", kafka.path, error);
	}
	return producer;
}

static bool
kafka_open(void)
{
	kafka.records = kafka.bytes = 0;
	kafka.partitions = 1;
	kafka.full = kafka.failed = false;
	if (kafka.producer == NULL)
		kafka.producer = make_producer();
	if (kafka.producer == NULL)
		return false;
	(void) rd_kafka_set_log_queue(kafka.producer, NULL);
	kafka.topic = rd_kafka_topic_new(kafka.producer, kafka.topic_name, NULL);
	if (kafka.topic != NULL)
		return true;
	pg_log_error("could not use topic \"%s\": %s", kafka.topic_name,
				 rd_kafka_err2str(rd_kafka_last_error()));
	return false;
}

/*
 * May one more record be on its way?  If not, there is a partition with a full batch, whatever
 * the keys are: so none waits to become full while nothing comes.
 */
static bool
may_send(void)
{
	if (kafka.alone > 0)
		return kafka.records == 0;
	return kafka.records < kafka.partitions * (2 * kafka.batch_records - 1) &&
		kafka.bytes < kafka.partitions * 2 * kafka.batch_bytes;
}

/* The record is larger than librdkafka allows: an error when all before it are delivered. */
static SendResult
refuse_large(const Record *record, const char *property)
{
	if (kafka.records > 0)
		return SEND_FULL;

	/* once; the broker does not say that it is too large in this way */
	if (!is_news(RD_KAFKA_RESP_ERR__QUEUE_FULL))
		return SEND_FAILED;
	pg_log_error("the record with sequence " INT64_FORMAT ", of %zu bytes, is too large",
				 record_number(record, PAQ_TRAIL_SEQUENCE), record->len);
	pg_log_error_hint("Raise %s in file \"%s\", and the topic's max.message.bytes.",
					  property, kafka.path);
	return SEND_FAILED;
}

static SendResult
produce(uint64 number, Record *record)
{
	const Size	len = record->len - (record->data[record->len - 1] == '\n' ? 1 : 0);
	Text		key = {NULL, 0};

	if (!kafka.key_is_sequence)
		key = record_text(record, PAQ_TRAIL_SESSION_ID);
	if (key.data == NULL)
		key = record_text(record, PAQ_TRAIL_SEQUENCE);
	if (rd_kafka_produce(kafka.topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY,
						 unconstify(char *, record->data), len, key.data, key.len,
						 (void *) (uintptr_t) number) == 0)
	{
		kafka.records++;
		kafka.bytes += len;
		return SEND_TAKEN;
	}
	switch (rd_kafka_last_error())
	{
		case RD_KAFKA_RESP_ERR__QUEUE_FULL:
			return kafka.records > 0 ? SEND_FULL :
				refuse_large(record, "queue.buffering.max.kbytes");
		case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
			return refuse_large(record, "message.max.bytes");
		default:
			report_undelivered(rd_kafka_last_error());
			return SEND_FAILED;
	}
}

static SendResult
kafka_send(uint64 number, Record *record)
{
	const SendResult result = may_send() ? produce(number, record) : SEND_FULL;

	kafka.full = result == SEND_FULL;
	return result;
}

static bool
kafka_wait(int timeout)
{
	/* do not wait for a full batch if nothing comes that could fill it */
	if (timeout > 0 && (!kafka.full || kafka.alone > 0) && kafka.records > 0)
		(void) rd_kafka_flush(kafka.producer, timeout);
	else
		(void) rd_kafka_poll(kafka.producer, timeout);
	return !kafka.failed;
}

static void
kafka_finish(void)
{
	kafka.full = false;
}

static void
kafka_close(void)
{
	if (kafka.producer == NULL)
		return;

	/* what has not been delivered would be waited for */
	(void) rd_kafka_purge(kafka.producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
	if (kafka.topic != NULL)
		rd_kafka_topic_destroy(kafka.topic);
	rd_kafka_destroy(kafka.producer);
	kafka.topic = NULL;
	kafka.producer = NULL;
}

const Target *
kafka_target(const char *path)
{
	static const Target target = {
		.name = "kafka",
		.open = kafka_open,
		.send = kafka_send,
		.wait = kafka_wait,
		.finish = kafka_finish,
		.close = kafka_close
	};

	kafka.path = path;
	kafka.conf = rd_kafka_conf_new();
	for (int i = 0; i < lengthof(defaults); i++)
		set_property(kafka.conf, &defaults[i], 0);
	read_properties();
	for (int i = 0; i < lengthof(fixed); i++)
		if (fixed[i].value[0] != '\0')
			set_property(kafka.conf, &fixed[i], 0);
	rd_kafka_conf_set_dr_msg_cb(kafka.conf, handle_delivery);
	rd_kafka_conf_set_error_cb(kafka.conf, handle_error);
	rd_kafka_conf_set_log_cb(kafka.conf, handle_log);
	kafka.batch_records = number_property("batch.num.messages");
	kafka.batch_bytes = number_property("batch.size");

	/* what does not fit together is found out now */
	kafka.producer = make_producer();
	if (kafka.producer == NULL)
		leave(STATUS_TROUBLE);
	return &target;
}

#endif							/* PAQ_WITH_KAFKA */
