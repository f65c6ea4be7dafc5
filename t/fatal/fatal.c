/*-------------------------------------------------------------------------
 *
 * fatal.c
 *		A producer of librdkafka's that fails for good while records are on their way,
 *		for a program that is started with this library in LD_PRELOAD.
 *
 * It fails at the first call of rd_kafka_flush(), once in the life of the program, as
 * idempotent producers do when a broker has lost what it knows of them.  A broker of Kafka's
 * can hardly be made to do that; librdkafka has a function for it.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <librdkafka/rdkafka.h>

rd_kafka_resp_err_t
rd_kafka_flush(rd_kafka_t *producer, int timeout)
{
	static rd_kafka_resp_err_t (*original) (rd_kafka_t *, int);
	static int	failed;

	if (original == NULL)
		original = dlsym(RTLD_NEXT, "rd_kafka_flush");
	if (failed++ == 0)
		rd_kafka_test_fatal_error(producer, RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
								  "fatal for a test");
	return original(producer, timeout);
}
