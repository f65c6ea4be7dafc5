/*-------------------------------------------------------------------------
 *
 * ship.c
 *		pg_audit_trail ship: hand the trail's records to somebody who acknowledges
 *		them.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/ship.h"

#include "getopt_long.h"

static const struct option long_options[] = {
	{"command", required_argument, NULL, 'c'},
	{"consumer", required_argument, NULL, 'n'},
	{"decryption-keys", required_argument, NULL, 'K'},
	{"kafka", required_argument, NULL, 'k'},
	{"once", no_argument, NULL, '1'},
	{"stats", optional_argument, NULL, 's'},
	{NULL, 0, NULL, 0}
};

static int
parse_stats_time(const char *value)
{
	char	   *end;
	long		result;

	if (value == NULL)
		return 10;
	result = strtol(value, &end, 10);
	if (*value == '\0' || *end != '\0' || result < 1 || result > SECS_PER_DAY)
		trouble("value \"%s\" for option %s must be from 1 to %d", value, "--stats", SECS_PER_DAY);
	return (int) result;
}

static void
parse_ship_options(ShipOptions *options, int argc, char **argv)
{
	const char *command = NULL;
	const char *kafka = NULL;
	int			option;

	while ((option = next_option(argc, argv, "K:", long_options)) != -1)
	{
		switch (option)
		{
			case 'c':
				command = optarg;
				break;
			case 'n':
				options->name = optarg;
				break;
			case 'K':
				paq_keys_free(options->keys);
				options->keys = read_keys(optarg);
				break;
			case 'k':
				kafka = optarg;
				break;
			case '1':
				options->once = true;
				break;
			case 's':
				options->stats_time = parse_stats_time(optarg);
				break;
			default:
				wrong_usage();
		}
	}
	if (argc - optind != 1)
	{
		pg_log_error("ship needs one directory");
		wrong_usage();
	}
	options->directory = argv[optind];
	if (options->name == NULL)
	{
		pg_log_error("no consumer specified");
		wrong_usage();
	}
	if (!paq_consumer_name_is_valid(options->name))
		trouble("invalid consumer name: \"%s\"", options->name);
	if ((command == NULL) == (kafka == NULL))
	{
		pg_log_error(command == NULL ? "no target specified" : "more than one target specified");
		wrong_usage();
	}
	options->target = command != NULL ? command_target(command) : kafka_target(kafka);
}

void
run_ship(int argc, char **argv)
{
	ShipOptions options = {0};

	parse_ship_options(&options, argc, argv);
	stop_on_signals();
	(void) signal(SIGPIPE, SIG_IGN);
	ship_trail(&options);
}
