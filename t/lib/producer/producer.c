/*-------------------------------------------------------------------------
 *
 * producer.c
 *		What a producer of librdkafka's rarely does, for a program that is started with
 *		this library in LD_PRELOAD.  PAQ_PRODUCER says what:
 *
 *		fatal	it fails for good while records are on their way, once, as idempotent
 *				producers do when a broker has lost what it knows of them; librdkafka
 *				has a function for that
 *		late	the report that the first record is delivered never comes, those of later
 *				ones do, and "reported" is printed for each
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*ReportCallback) (rd_kafka_t *, const rd_kafka_message_t *, void *);

static ReportCallback program_callback;

static int
is_wanted(const char *what)
{
	const char *wanted = getenv("PAQ_PRODUCER");

	return wanted != NULL && strcmp(wanted, what) == 0;
}

rd_kafka_resp_err_t
rd_kafka_flush(rd_kafka_t *producer, int timeout)
{
	static rd_kafka_resp_err_t (*original) (rd_kafka_t *, int);
	static rd_kafka_resp_err_t (*fail) (rd_kafka_t *, rd_kafka_resp_err_t, const char *);

	if (original == NULL)
		original = dlsym(RTLD_NEXT, "rd_kafka_flush");
	if (is_wanted("fatal") && fail == NULL)
	{
		fail = dlsym(RTLD_NEXT, "rd_kafka_test_fatal_error");
		fail(producer, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, "fatal for a test");
	}
	return original(producer, timeout);
}

static void
report_later_ones(rd_kafka_t *producer, const rd_kafka_message_t *message, void *opaque)
{
	static void *first;

	if (first == NULL)
		first = message->_private;
	if (message->_private == first)
		return;
	program_callback(producer, message, opaque);
	fprintf(stderr, "reported\n");
}

void
rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *conf, ReportCallback callback)
{
	static void (*original) (rd_kafka_conf_t *, ReportCallback);

	if (original == NULL)
		original = dlsym(RTLD_NEXT, "rd_kafka_conf_set_dr_msg_cb");
	program_callback = callback;
	original(conf, is_wanted("late") ? report_later_ones : callback);
}
