/*-------------------------------------------------------------------------
 *
 * keygen.c
 *		pg_audit_trail keygen: make a server's first sealing key.
 *
 * The server gets the secret of epoch 0, which it will replace with its first seal.  The
 * user gets the same secret as verification key, this once.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "getopt_long.h"
#include "trail/seal.h"

/* Space for a verification key as text */
#define KEY_TEXT_LEN	128

/* Is that a data directory?  Its owner and permissions go to *st. */
static void
check_data_directory(const char *path, struct stat *st)
{
	char		version[MAXPGPATH];

	snprintf(version, sizeof(version), "%s/PG_VERSION", path);
	if (access(version, F_OK) != 0)
		trouble("\"%s\" is not a data directory: could not access file \"%s\": %m",
				path, version);
	if (stat(path, st) != 0)
		trouble("could not stat directory \"%s\": %m", path);
}

/*
 * What is made belongs to the server's user.  Root becomes that user for good, with that user's
 * groups and none of his own: the user could otherwise have him make or give away files elsewhere,
 * by links.
 */
static void
become_server(const struct stat *server)
{
	const struct passwd *user;
	int			rc;

	if (geteuid() != 0)
		return;
	user = getpwuid(server->st_uid);
	rc = user != NULL ? initgroups(user->pw_name, server->st_gid) :
		setgroups(1, &server->st_gid);
	if (rc != 0 || setgid(server->st_gid) != 0 || setuid(server->st_uid) != 0)
		trouble("could not become the user of the data directory: %m");
}

static void
set_mode(int fd, const char *path, mode_t mode)
{
	if (fchmod(fd, mode) != 0)
		trouble("could not set permissions of \"%s\": %m", path);
}

/* The directory of the file at path, made if it is not there, open. */
static int
open_directory(const char *path, const struct stat *server)
{
	char		directory[MAXPGPATH];
	bool		made;
	int			fd;

	strlcpy(directory, path, sizeof(directory));
	get_parent_directory(directory);
	made = mkdir(directory, S_IRWXU) == 0;
	fd = open(directory, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		trouble("could not open directory \"%s\": %m", directory);
	if (made)
		set_mode(fd, directory, server->st_mode & (S_IRWXU | S_IRWXG));
	return fd;
}

static void
complain_of_key(const char *path)
{
	pg_log_error("there is a sealing key already: file \"%s\"", path);
	pg_log_error_hint("To begin with another key, stop the server and remove that file.");
	leave(STATUS_TROUBLE);
}

/*
 * Create the file with the server's state, which may be running: so it gets its name when
 * it is complete.
 */
static void
write_state(const char *path, const PaqSealState *state, const struct stat *server)
{
	const int	directory = open_directory(path, server);
	char		temporary[MAXPGPATH];
	int			slot = -1;
	int			save_errno;
	bool		written;
	bool		named;
	int			fd;

	if (access(path, F_OK) == 0)
		complain_of_key(path);
	snprintf(temporary, sizeof(temporary), "%s.new", path);
	unlink(temporary);			/* of a run that was killed */
	fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
	if (fd < 0)
		trouble("could not create file \"%s\": %m", temporary);
	set_mode(fd, temporary, S_IRUSR | S_IWUSR);
	written = paq_seal_state_write(fd, state, &slot);
	named = written && link(temporary, path) == 0;
	save_errno = errno;
	unlink(temporary);
	errno = save_errno;
	if (written && !named && errno == EEXIST)
		complain_of_key(path);
	if (!named)
		trouble("could not write file \"%s\": %m", path);
	if (fsync(directory) != 0)
	{
		save_errno = errno;
		unlink(path);
		errno = save_errno;
		trouble("could not fsync directory of file \"%s\": %m", path);
	}
	close(fd);
	close(directory);
}

/* Show the verification key; whoever cannot see it must not be left with a server's key. */
static void
print_key(const char *path, const PaqSealState *state)
{
	const time_t now = time(NULL);
	char		id[PAQ_SEAL_ID_TEXT_LEN];
	char		text[KEY_TEXT_LEN];
	char		when[64];

	paq_seal_id_text(state->id, id);
	paq_seal_key_text(&state->secret, text, sizeof(text));
	strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S UTC", gmtime(&now));
	printf("# Verification key of pg_audit_queue, shown only this once.  Do not keep it on the\n"
		   "# server: with it, seals can be forged.\n"
		   "# Key %s holds from %s, epoch 0.\n"
		   "%s\n", id, when, text);
	explicit_bzero(text, sizeof(text));
	if (fflush(stdout) == 0 && !ferror(stdout))
		return;
	unlink(path);
	trouble("could not write the verification key: %m");
}

static const char *
parse_keygen_options(int argc, char **argv)
{
	static const struct option long_options[] = {
		{"pgdata", required_argument, NULL, 'D'},
		{NULL, 0, NULL, 0}
	};
	const char *directory = getenv("PGDATA");
	int			c;

	while ((c = next_option(argc, argv, "D:", long_options)) != -1)
	{
		if (c == 'D')
			directory = optarg;
		else
		{
			pg_log_error_hint("Try \"%s --help\" for more information.", progname);
			leave(STATUS_TROUBLE);
		}
	}
	if (optind < argc)
		trouble("too many command-line arguments (first is \"%s\")", argv[optind]);
	if (directory == NULL)
		trouble("no data directory specified");
	return directory;
}

void
run_keygen(int argc, char **argv)
{
	const char *directory = parse_keygen_options(argc, argv);
	PaqSealState state;
	struct stat server;
	char		path[MAXPGPATH];

	/* so that a key that nobody reads can be removed */
	(void) signal(SIGPIPE, SIG_IGN);
	check_data_directory(directory, &server);
	become_server(&server);
	snprintf(path, sizeof(path), "%s/" PAQ_SEAL_STATE_FILE, directory);
	memset(&state, 0, sizeof(state));
	if (!pg_strong_random(state.secret.secret, sizeof(state.secret.secret)))
		trouble("could not generate a random key");
	if (!paq_seal_key_id(&state.secret, state.id))
		trouble("could not compute a digest");
	write_state(path, &state, &server);
	print_key(path, &state);
	explicit_bzero(&state, sizeof(state));
}
