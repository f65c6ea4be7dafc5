/*-------------------------------------------------------------------------
 *
 * pg_audit_trail.c
 *		Read and verify the files of an audit trail, without a server.
 *
 * doc/pg_audit_trail.md tells users what the program does; program.h has the map of its
 * files.  A command is a function, and parses its options itself.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

typedef struct Command
{
	const char *name;
	void		(*run) (int argc, char **argv);
} Command;

static const Command commands[] = {
	{"cat", run_cat},
	{"follow", run_follow},
	{"keygen", run_keygen},
	{"report", run_report},
	{"ship", run_ship},
	{"verify", run_verify}
};

const char *progname;

static void
usage(void)
{
	printf(_("%s reads and verifies the files of an audit trail.\n\n"), progname);
	printf(_("Usage:\n"));
	printf(_("  %s cat [OPTION]... PATH...\n"), progname);
	printf(_("  %s follow [OPTION]... PATH\n"), progname);
	printf(_("  %s keygen [-D DATADIR]\n"), progname);
	printf(_("  %s report [OPTION]... PATH...\n"), progname);
	printf(_("  %s ship --consumer=NAME --kafka=FILE|--command=COMMAND [OPTION]... DIRECTORY\n"), progname);
	printf(_("  %s verify -k KEYFILE [OPTION]... DIRECTORY...\n"), progname);
	printf(_("\nPATH is a file of the trail, a directory of such files, or, for cat and report, - for\n"
			 "lines of format json on standard input.\n"));
	printf(_("\nOptions of cat, follow and report:\n"));
	printf(_("  -f, --format=FORMAT        print json (default), csvlog, pgaudit, table, ocsf or ecs;\n"
			 "                             report: text (default) or html\n"));
	printf(_("      --ocsf                 print events of the Open Cybersecurity Schema Framework,\n"
			 "                             as --format=ocsf (cat, follow)\n"));
	printf(_("      --ecs                  print documents of the Elastic Common Schema, as\n"
			 "                             --format=ecs (cat, follow)\n"));
	printf(_("  -K, --decryption-keys=FILE keys of encrypted files, lines of hexadecimal digits\n"));
	printf(_("      --color=WHEN           colors in tables: auto (default), always, never\n"));
	printf(_("  -P, --progress             show how far reading has got (cat, report)\n"));
	printf(_("      --limit=N              end after N records (cat)\n"));
	printf(_("      --count                print only how many records there are (cat)\n"));
	printf(_("  -n, --last=N               begin with the last N records (follow, default 10)\n"));
	printf(_("      --all                  begin with the first record (follow)\n"));
	printf(_("      --top=N                lines of a list (report, default 15)\n"));
	printf(_("\nOptions of keygen and verify:\n"));
	printf(_("  -D, --pgdata=DATADIR       data directory of the server\n"));
	printf(_("  -k, --verification-key=FILE\n"
			 "                             what keygen has printed\n"));
	printf(_("  -P, --progress             show how far verification has got\n"));
	printf(_("      --seals=FILE           these seals must be in the trail\n"));
	printf(_("      --from=TIME            the trail must be sealed from this time on\n"));
	printf(_("      --until=TIME           the trail must be sealed until this time\n"));
	printf(_("\nOptions of ship:\n"));
	printf(_("      --consumer=NAME        ship what that consumer has not acknowledged\n"));
	printf(_("      --command=COMMAND      to a program, which gets lines of json, and acknowledges them\n"
			 "                             by lines with a sequence\n"));
	printf(_("      --kafka=FILE           to Kafka, with the topic and librdkafka's properties of that file\n"));
	printf(_("  -K, --decryption-keys=FILE keys of encrypted files\n"));
	printf(_("      --once                 end when all that there is was acknowledged\n"));
	printf(_("      --stats[=SECONDS]      print statistics, lines of json (default every 10 seconds)\n"));
	printf(_("\n  -V, --version              output version information, then exit\n"));
	printf(_("  -?, --help                 show this help, then exit\n"));
	printf(_("\nOptions of cat, follow and report that choose records (all must match, any word of a list\n"
			 "will do, * and ? are wildcards):\n"));
	printf(_("      --from=TIME            at this time or later\n"));
	printf(_("      --to=TIME              before this time\n"));
	printf(_("      --from-sequence=N      sequence at least N\n"));
	printf(_("      --to-sequence=N        sequence at most N\n"));
	printf(_("      --type=LIST            record, gap, heartbeat, part\n"));
	printf(_("      --class=LIST           class, in any case\n"));
	printf(_("      --command=LIST         command, in any case\n"));
	printf(_("      --user=LIST            user who logged in, session user or current user\n"));
	printf(_("      --database=LIST        database\n"));
	printf(_("      --object=LIST          name of the object, with its schema or without\n"));
	printf(_("      --session=LIST         session id\n"));
	printf(_("      --outcome=LIST         ok, failed, denied, undone (rolled back; cat, report), or\n"
			 "                             how a SQLSTATE begins\n"));
	printf(_("      --address=LIST         client's address, its network (10.1.0.0/16), or local\n"));
	printf(_("      --rows=N..M            number of rows, also N.. and ..M\n"));
	printf(_("      --setting=NAME=VALUE   value of a setting that log_settings names\n"));
	printf(_("      --superuser            what superusers did\n"));
	printf(_("      --transaction=LIST     transaction, by its id or virtual id\n"));
	printf(_("      --text=STRING          STRING is part of statement, error message or object name\n"));
	printf(_("\nExit status: 0 if all is well, 1 if the trail was altered or is incomplete, or if verify\n"
			 "found some of it not covered by seals, 2 if the program was called in a wrong way or\n"
			 "cannot work.\n"));
}

static bool
asks_for_help(int argc, char **argv, int i)
{
	return argc > i && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-?") == 0);
}

int
main(int argc, char **argv)
{
	pg_logging_init(argv[0]);
	set_pglocale_pgservice(argv[0], PG_TEXTDOMAIN("pg_audit_trail"));
	/* for JSON and HTML, which have decimal points */
	setlocale(LC_NUMERIC, "C");
	progname = get_progname(argv[0]);

	if (asks_for_help(argc, argv, 1) || asks_for_help(argc, argv, 2))
	{
		usage();
		exit(STATUS_FINE);
	}
	if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
	{
		puts("pg_audit_trail (pg_audit_queue) " PAQ_VERSION);
		exit(STATUS_FINE);
	}
	for (int i = 0; argc > 1 && i < lengthof(commands); i++)
		if (strcmp(argv[1], commands[i].name) == 0)
		{
			commands[i].run(argc - 1, argv + 1);
			leave(STATUS_FINE);
		}
	if (argc > 1)
		pg_log_error("there is no command \"%s\"", argv[1]);
	else
		pg_log_error("no command specified");
	pg_log_error_hint("Try \"%s --help\" for more information.", progname);
	exit(STATUS_TROUBLE);
}
