# lib.sh
#	Functions that the scripts of scripts/ and bench/ share.  Sourced by bash,
#	not run.
#
# Guarantees:
# - The checkout is only read.  Building, installing and running all happen in
#   $work, a new folder below ${TMPDIR:-/tmp} that belongs to $run_user, so
#   that several runs at the same time do not disturb each other.
# - PostgreSQL itself is not changed either.  An extension can only be loaded
#   from the server's own folders, so $work holds a copy of the server's
#   programs, with links to its libraries and shared files: the server finds
#   all of them relative to its program.  The extension goes into that copy.
# - Servers, builds and tests run as $run_user: the caller or, if the caller is
#   root, postgres if there is such a user, otherwise nobody.  Servers listen on
#   a socket below $work only.
# - However the script ends, it ends every process that it started, and removes
#   $work (unless $keep_work is set).  Only kill -9 of the script prevents that.
#
# Missing packages are installed if the caller is root (Debian, Ubuntu) and stay
# installed.  A package that would make a database cluster when it is installed
# is told not to.  Other users are shown the command that root has to run.
#
# Copyright (c) 2026, pg_audit_queue contributors

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly root
work=
keep_work=
run_user=
apt_running=
apt_log=
beside=
cluster_conf=/etc/postgresql-common/createcluster.d/pg_audit_queue.conf
cluster_conf_made=

# Set by find_postgres and copy_postgres
pg_config=
bindir=
pgxs_dir=
test_perl=
library_path=

# Set by need_source
pg_source=

# Scripts read what other programs print: in English, and in the order of bytes.
export LC_ALL=C

# How a script ends that cannot do its work here
readonly skipped_status=77

# Packages that the tests need
readonly test_packages=(binutils clang-format dpkg-dev git gnupg groff-base libipc-run-perl libjson-xs-perl lz4 perl
	pgbadger jq python3 python3-asyncpg python3-cryptography python3-jsonschema python3-psycopg strace
	valgrind zstd)

say()
{
	printf '%s\n' "$*"
}

die()
{
	printf '%s: %s\n' "${0##*/}" "$*" >&2
	exit 1
}

# The comment at the top of a script, without its last part, the copyright
usage()
{
	sed -n '3,/^# Copyright/{/^# Copyright/!s/^#[[:blank:]]\{0,1\}//p}' "${1:-$0}"
}

# A wrong option
usage_error()
{
	usage >&2
	exit 2
}

# Print which of so many things has its turn, from 0 on: another one with each commit.  $1: how
# many
whose_turn()
{
	local count

	# without history, by the day
	count=$(git -C "$root" rev-list --count HEAD 2>/dev/null) || count=$(($(date +%s) / 86400))
	echo "$((count % $1))"
}

finding()
{
	printf 'NOT OK: %s\n' "$*"
	findings=$((findings + 1))
}

# End the script if there are findings.  $1: of what
report_findings()
{
	[ "$findings" -gt 0 ] || return 0
	keep_work=1
	say "The files are in $work" >&2
	die "$1: findings: $findings"
}

# Run a command so that a signal to this script ends it too: in a process group
# of its own, waited for with "wait", which traps interrupt.
run()
{
	local pid status=0

	set -m
	"$@" </dev/null &
	pid=$!
	set +m
	wait "$pid" || status=$?
	return "$status"
}

# Run a command as $run_user, below $work.  setpriv becomes the command, so
# that no process stands in between that would have to pass on signals.
as_user()
{
	local switch=()

	if [ "$(id -un)" != "$run_user" ]; then
		switch=(setpriv --reuid="$run_user" --regid="$(id -g "$run_user")"
			--init-groups)
	fi
	run "${switch[@]}" env -C "$work" HOME="$work" TMPDIR="$work/tmp" \
		PATH="${bindir:+$bindir:}$PATH" \
		${library_path:+LD_LIBRARY_PATH="$library_path"} "$@"
}

# Processes that run a program out of $work, or in a folder below it: all that
# as_user has started, also those that became independent of it, as servers do.
own_processes()
{
	local proc

	for proc in /proc/[0-9]*; do
		case $(readlink "$proc/exe" 2>/dev/null) in
			"$work"/*) printf '%s\n' "${proc#/proc/}"; continue ;;
		esac
		case $(readlink "$proc/cwd" 2>/dev/null) in
			"$work" | "$work"/*) printf '%s\n' "${proc#/proc/}" ;;
		esac
	done
}

# Run a function beside this shell, which goes on.  Variables that it gives to "keep" are the
# script's when finish_beside has waited for it.
begin_beside()
{
	set -m
	(
		set +m
		beside=
		trap 'stop_jobs; exit 143' TERM
		[ -n "$apt_log" ] || trap 'rm -f ${apt_log:+"$apt_log"}' EXIT
		"$@"
	) </dev/null &
	beside=$!
	set +m
}

# Wait for it.  If it has ended the script, as die does, so does this.
finish_beside()
{
	local status=0

	[ -n "$beside" ] || return 0
	wait "$beside" || status=$?
	beside=
	[ "$status" -eq 0 ] || exit "$status"
	[ ! -f "$work/kept" ] || . "$work/kept"
}

# In a function that runs beside the script: let the script have this variable, if it is set.
keep()
{
	[ -z "${!1+set}" ] || printf 'export %s=%q\n' "$1" "${!1}" >>"$work/kept"
}

# Process groups of run(), and of what runs beside the script.  While packages are being
# installed, only ask apt itself, and wait: it ends where that leaves no package half done.
stop_jobs()
{
	local job

	for job in $(jobs -p); do
		if [ -n "$apt_running" ]; then
			say "Waiting for apt-get to end" >&2
			kill -INT "$job" 2>/dev/null || true
			wait "$job" 2>/dev/null || true
		else
			kill -INT -- "-$job" 2>/dev/null || true
		fi
	done
	# What runs beside the script does the same, also where SIGINT is ignored.
	if [ -n "$beside" ]; then
		kill -TERM -- "-$beside" 2>/dev/null || true
		wait "$beside" 2>/dev/null || true
	fi
}

stop_processes()
{
	local signal try pids

	stop_jobs
	[ -n "$work" ] || return 0

	# SIGINT is a fast shutdown to a server, SIGQUIT an immediate one.  Look
	# twice before believing that nobody is left: a process may have been
	# about to start another one.
	for signal in INT TERM QUIT KILL; do
		for try in $(seq 1 30); do
			pids=$(own_processes)
			if [ -z "$pids" ]; then
				sleep 0.1
				pids=$(own_processes)
				[ -n "$pids" ] || return 0
			fi
			if [ "$try" -eq 1 ] || [ "$signal" = KILL ]; then
				# shellcheck disable=SC2086
				kill "-$signal" $pids 2>/dev/null || true
			fi
			sleep 0.1
		done
	done
}

# Shared memory of servers that were killed; line 7 of the file has its id.
remove_shared_memory()
{
	local file id

	while read -r file; do
		id=$(sed -n '7s/^ *[0-9]* *\([0-9][0-9]*\) *$/\1/p' "$file")
		if [ -n "$id" ]; then
			ipcrm -m "$id" 2>/dev/null || true
		fi
	done < <(find "$work" -name postmaster.pid -type f 2>/dev/null)
}

cleanup()
{
	trap '' INT TERM HUP
	stop_processes
	rm -f ${cluster_conf_made:+"$cluster_conf"} ${apt_log:+"$apt_log"}
	if [ -n "$work" ]; then
		remove_shared_memory
		[ -n "$keep_work" ] || rm -rf "$work"
	fi
}

# Call once, before anything else.
set_traps()
{
	trap cleanup EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
}

# ---------------------------------------------------------------------------
# Packages
# ---------------------------------------------------------------------------

is_installed()
{
	[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Highest major version that is installed with its server, of those supported.
installed_major()
{
	local major

	for major in 19 18 17 16 15; do
		if [ -x "/usr/lib/postgresql/$major/bin/postgres" ]; then
			echo "$major"
			return
		fi
	done
}

# The one that the distribution's package "postgresql" stands for.
default_major()
{
	apt-cache depends postgresql 2>/dev/null |
		sed -n 's/^ *Depends: postgresql-\([0-9][0-9]*\)$/\1/p' | head -n 1
}

# One script of this checkout at a time: apt-get does not wait for the lock of the lists.
apt()
{
	local status=0

	apt_running=1
	DEBIAN_FRONTEND=noninteractive run flock -F "$root/scripts/lib.sh" apt-get -qq -o Dpkg::Use-Pty=0 \
		-o DPkg::Lock::Timeout=300 "$@" >"$apt_log" 2>&1 || status=$?
	apt_running=
	if [ "$status" -ne 0 ]; then
		cat "$apt_log" >&2
		die "apt-get $1 failed"
	fi
}

has_packages()
{
	command -v dpkg-query >/dev/null || {
		say "Not a Debian system: taking what is there."
		return 1
	}
}

# Update the lists of packages, once.
update_lists()
{
	[ -z "$apt_log" ] || return 0
	apt_log=$(mktemp)
	say "Updating the list of packages"
	apt update
}

# Install those of the packages given that are missing.
install_missing()
{
	local package missing=()

	has_packages || return 0
	for package in "$@"; do
		is_installed "$package" || missing+=("$package")
	done
	[ "${#missing[@]}" -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ]; then
		say "Missing packages: ${missing[*]}" >&2
		say "Install them with: sudo apt-get install ${missing[*]}" >&2
		exit 1
	fi
	update_lists
	say "Installing ${missing[*]}"
	apt install --no-install-recommends "${missing[@]}"
}

# Install what is missing of PostgreSQL (server and headers), a compiler, and
# the packages given; MAJOR in a name stands for PostgreSQL's major version.
need_packages()
{
	local major

	if [ -n "${PG_CONFIG:-}" ]; then
		# somebody who brings his own server looks after its packages too
		return
	fi
	has_packages || return 0

	major=$(installed_major)
	if [ -z "$major" ] && [ "$(id -u)" -eq 0 ]; then
		update_lists
	fi
	major=${major:-$(default_major)}
	major=${major:-15}

	if ! is_installed "postgresql-$major" && [ "$(id -u)" -eq 0 ]; then
		# no cluster named "main": nobody has asked for one
		cluster_conf_made=1
		mkdir -p "$(dirname "$cluster_conf")"
		echo 'create_main_cluster = false' >"$cluster_conf"
	fi
	# libkrb5-dev and libssl-dev: for what PostgreSQL's libpq/libpq-be.h includes;
	# liblz4-dev: without it, records on the WAL are compressed by pglz; and all
	# for the layers of trail files; librdkafka-dev: for pg_audit_trail ship --kafka
	install_missing "postgresql-$major" "postgresql-server-dev-$major" \
		gcc libc6-dev make pkg-config libkrb5-dev liblz4-dev librdkafka-dev libssl-dev \
		libzstd-dev \
		"${@//MAJOR/$major}"
	if [ -n "$cluster_conf_made" ]; then
		rm -f "$cluster_conf"
		cluster_conf_made=
	fi
}

# Programs, each of the package of its name, or another of those given.  Their
# packages start services when they are installed: where one is not installed, unpack
# it below $work instead, and add it to PATH.  A program that cannot be had ends the
# script, as in install_missing; with a server that somebody has brought it is left
# out, and the tests say what they miss.
unpack_packages()
{
	local package dir=$work/unpacked missing=()

	command -v dpkg-query >/dev/null || return 0
	mkdir -p "$dir"
	PATH=$PATH:$dir/usr/bin
	for package in "$@"; do
		! command -v "$package" >/dev/null || continue
		if [ "$(id -u)" -eq 0 ] && [ -z "${PG_CONFIG:-}" ]; then
			update_lists
		fi
		# promtool is a package of its own in newer distributions only
		apt-cache show "$package" >/dev/null 2>&1 || continue
		(cd "$dir" && apt-get -qq download "$package" && dpkg-deb -x "$package"_*.deb .) \
			>"$work/unpack.log" 2>&1 || say "$package cannot be had: $(tail -n 1 "$work/unpack.log")"
	done
	for package in "$@"; do
		command -v "$package" >/dev/null || missing+=("$package")
	done
	if [ "${#missing[@]}" -gt 0 ] && [ -z "${PG_CONFIG:-}" ]; then
		die "programs that the tests need cannot be had: ${missing[*]}"
	fi
}

# Set PAQ_RSYSLOG_DIR to the folder below which rsyslog is, with its modules for RELP:
# the system's, or one below $work.  To install the package would start a service that
# takes over the system's log, so packages, those of its libraries too, are only unpacked.
# Where they cannot be had, the test that needs them says so, and is left out.
unpack_rsyslog()
{
	local dir=$work/rsyslog package

	export PAQ_RSYSLOG_DIR=
	if [ -x /usr/sbin/rsyslogd ] && compgen -G '/usr/lib*/*/rsyslog/omrelp.so' >/dev/null; then
		PAQ_RSYSLOG_DIR=/
		return
	fi
	command -v dpkg-deb >/dev/null || return 0
	mkdir -p "$dir"
	# not update_lists: a failure is none of the script's
	if [ "$(id -u)" -eq 0 ] && [ -z "${PG_CONFIG:-}${apt_log:-}" ]; then
		apt-get -qq update >"$work/unpack.log" 2>&1 || true
	fi
	if (cd "$dir" && apt-get -qq download rsyslog rsyslog-relp \
		libestr0 libfastjson4 liblognorm5 librelp0 &&
		for package in *.deb; do
			dpkg-deb -x "$package" . || exit 1
		done) >"$work/unpack.log" 2>&1; then
		PAQ_RSYSLOG_DIR=$dir
	else
		say "rsyslog cannot be had: $(tail -n 1 "$work/unpack.log")"
	fi
}

# Set PAQ_KAFKA_DIR to what scripts/kafka runs, where $run_user can read it.  Without
# it, or without Java, scripts/kafka says why, and tests leave out what needs it.
need_kafka()
{
	local dir

	if [ "$(id -u)" -eq 0 ] && [ -z "${PG_CONFIG:-}" ]; then
		command -v java >/dev/null || install_missing default-jre-headless
		install_missing curl openssl
	fi
	dir=$("$root/scripts/kafka" get) || return 0
	export PAQ_KAFKA_DIR=$dir
	if ! as_user test -r "$dir/lock"; then
		say "Copying Kafka from $dir"
		mkdir "$work/kafka"
		cp -R "$dir/." "$work/kafka"
		chown -R "$run_user:" "$work/kafka"
		PAQ_KAFKA_DIR=$(as_user "$work/src/scripts/kafka" get "$work/kafka") || true
	fi
}

# Set pg_config: $PG_CONFIG, or of the newest server installed.
find_postgres()
{
	local major

	pg_config=${PG_CONFIG:-}
	if [ -z "$pg_config" ]; then
		major=$(installed_major)
		pg_config=${major:+/usr/lib/postgresql/$major/bin/pg_config}
	fi
	pg_config=$(command -v "${pg_config:-pg_config}") ||
		die "pg_config not found; set PG_CONFIG to its path"
	[ -f "$("$pg_config" --pgxs)" ] ||
		die "$pg_config: PostgreSQL's files for building extensions are not installed"
	[ -x "$("$pg_config" --bindir)/initdb" ] ||
		die "$pg_config: PostgreSQL's server is not installed"
}

# Set clang: the one in PATH, or the one that the server was built with; empty if there is
# none.
find_clang()
{
	clang=$(command -v clang || command -v "$(sed -n 's/^CLANG = *//p' \
		"$(dirname "$("$pg_config" --pgxs)")/../Makefile.global")") || clang=
}

# ---------------------------------------------------------------------------
# Building
# ---------------------------------------------------------------------------

# Set run_user and make $work, with a copy of the checkout in $work/src.
make_work()
{
	run_user=$(id -un)
	if [ "$(id -u)" -eq 0 ]; then
		run_user=nobody
		! id postgres >/dev/null 2>&1 || run_user=postgres
	fi
	umask 022
	# a short name: it becomes part of the names of sockets
	work=$(mktemp -d "${TMPDIR:-/tmp}/paq.XXXXXX")
	work=$(cd "$work" && pwd -P)
	mkdir "$work/tmp" "$work/src"
	# without what an earlier build or test may have left
	(cd "$root" && tar -cf - --exclude=./.git --exclude='*.o' --exclude='*.bc' \
		--exclude='*.so' --exclude=./src/bin/pg_audit_trail/pg_audit_trail \
		--exclude=./src/bin/pg_audit_trail/pg_audit_trail.1 \
		--exclude=./tmp_check --exclude=./results .) |
		tar -xf - -C "$work/src"
	if [ "$(id -un)" != "$run_user" ]; then
		chown -R "$run_user:" "$work"
	fi
}

# For scripts that make systems in $work, as root: $run_user, who may be the user of
# a server on this machine, must not put links in their places.  "src" and "tmp" are
# still $run_user's.
keep_work_from_others()
{
	chown root: "$work"
}

# Print the folders of the shared libraries that programs in folder $1 find, and
# their copies in folder $2 do not: they look for them from where they are.
lost_libraries()
{
	local lost

	# ldd fails if one of the files is a script
	lost=$({ ldd "$2"/* 2>/dev/null || true; } |
		sed -n 's/^[[:blank:]]*\(.*\) => not found$/\1/p' | sort -u)
	[ -n "$lost" ] || return 0
	{ ldd "$1"/* 2>/dev/null || true; } |
		awk '$2 == "=>" && $3 ~ /^\// { print $1, $3 }' |
		{ grep -F "$lost" || true; } |
		while read -r _ file; do
			readlink -f "${file%/*}"
		done | sort -u
}

# Copy the server's programs and link to the rest, in the same relative places,
# below $work/pg; from there on, $pg_config and $bindir are those of the copy.
copy_postgres()
{
	local copy=$work/pg dir

	dir=$("$pg_config" --bindir)
	as_user mkdir -p "$copy$dir"
	as_user cp -RL "$dir/." "$copy$dir"
	library_path=$(lost_libraries "$dir" "$copy$dir" | paste -sd :)
	for dir in --pkglibdir --sharedir; do
		dir=$("$pg_config" "$dir")
		as_user mkdir -p "$copy$dir"
		as_user cp -Rs --no-preserve=mode "$dir/." "$copy$dir"
	done
	dir=$("$pg_config" --includedir-server)
	as_user mkdir -p "$copy${dir%/*}"
	as_user ln -s "$dir" "$copy$dir"
	bindir=$copy$("$pg_config" --bindir)
	pg_config=$bindir/pg_config
	case $("$pg_config" --pkglibdir) in
		"$work"/*) ;;
		*) die "this PostgreSQL cannot be moved to $work for testing" ;;
	esac
	pgxs_dir=$(dirname "$(dirname "$(dirname "$("$pg_config" --pgxs)")")")
	test_perl=${PAQ_TEST_PERL:-$pgxs_dir/src/test/perl}
}

# Unpack packages of extensions into the copy of the server; MAJOR in a name stands for its
# major version.  Not every extension is packaged for every version: tests say what they
# miss.
unpack_extensions()
{
	local package major dir=$work/extensions

	command -v dpkg-query >/dev/null || return 0
	[ -z "${PG_CONFIG:-}" ] || return 0
	major=$("$pg_config" --version | sed 's/^PostgreSQL \([0-9]*\).*/\1/')
	mkdir -p "$dir"
	if [ "$(id -u)" -eq 0 ]; then
		update_lists
	fi
	for package in "${@//MAJOR/$major}"; do
		apt-cache show "$package" >/dev/null 2>&1 || continue
		(cd "$dir" && apt-get -qq download "$package") >"$work/unpack.log" 2>&1 &&
			as_user dpkg-deb -x "$dir/$package"_*.deb "$work/pg" >>"$work/unpack.log" 2>&1 ||
			say "$package cannot be had: $(tail -n 1 "$work/unpack.log")"
	done
}

# Build $work/src, with the given arguments for make, and install it there.
install_extension()
{
	local log=$work/build.log

	say "Building with $("$pg_config" --version)"
	# without bitcode: that takes as long as all the rest, and nothing uses it;
	# and without links elsewhere
	set -- PG_CONFIG="$pg_config" with_llvm=no LINKPREFIX= "$@"
	if ! as_user make -s -C src -j2 "$@" >"$log" 2>&1 ||
		! as_user make -s -C src "$@" install >>"$log" 2>&1; then
		cat "$log" >&2
		die "the build failed"
	fi
	# warnings
	cat "$log"
}

# Build the pgaudit whose sources are in PAQ_PGAUDIT_SOURCE, if that is set, and
# put it into the copy of the server in place of the packaged one.
# PAQ_PGAUDIT_VERSION then says which it is, for the tests that compare with it.
install_pgaudit()
{
	local source=${PAQ_PGAUDIT_SOURCE:-} log=$work/pgaudit.log version commit

	[ -n "$source" ] || return 0
	[ -f "$source/pgaudit.control" ] ||
		die "PAQ_PGAUDIT_SOURCE: $source has no sources of pgaudit"
	version=$(sed -n "s/^default_version *= *'\(.*\)'/\1/p" "$source/pgaudit.control")
	commit=$(git -C "$source" rev-parse --short HEAD 2>/dev/null || true)
	cp -R "$source" "$work/pgaudit"
	rm -rf "$work/pgaudit/.git"
	find "$work/pgaudit" -exec chown "$run_user" '{}' +
	as_user make -s -C pgaudit USE_PGXS=1 PG_CONFIG="$pg_config" with_llvm=no \
		clean all install >"$log" 2>&1 || {
		cat "$log" >&2
		die "building pgaudit failed"
	}
	export PAQ_PGAUDIT_VERSION="$version${commit:+, commit $commit}, built from sources"
	export PAQ_PGAUDIT_SUITE=$work/pgaudit
	say "Built pgaudit $PAQ_PGAUDIT_VERSION"
}

# ---------------------------------------------------------------------------
# PostgreSQL's sources
# ---------------------------------------------------------------------------

# The system's own entries for binary packages, as entries for sources.
write_apt_sources()
{
	local file

	mkdir "$work/apt/sources.list.d"
	for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
		[ -f "$file" ] || continue
		sed -n 's/^[[:blank:]]*deb[[:blank:]]/deb-src /p' "$file" \
			>>"$work/apt/sources.list"
	done
	for file in /etc/apt/sources.list.d/*.sources; do
		[ -f "$file" ] || continue
		sed 's/^Types:.*/Types: deb-src/' "$file" \
			>"$work/apt/sources.list.d/${file##*/}"
	done
	find "$work/apt" -exec chown "$run_user" '{}' +
}

# $1: apt-get or apt-cache.  With lists, cache and sources of its own, as a
# user who need not be allowed to change the system's.
own_apt()
{
	local program=$1

	shift
	as_user "$program" -q -o Dir::State="$work/apt/state" \
		-o Dir::Cache="$work/apt/cache" \
		-o Dir::Etc::SourceList="$work/apt/sources.list" \
		-o Dir::Etc::SourceParts="$work/apt/sources.list.d" \
		-o Acquire::Languages=none -o Acquire::Retries=2 "$@" 2>>"$work/apt/log"
}

# The versions to try: the one that is installed, then the others of the
# archives, newest first.  Not every version that an archive lists is there.
source_versions()
{
	dpkg-query -W -f '${source:Version}\n' "$1" 2>/dev/null || true
	own_apt apt-cache showsrc "$1" | sed -n 's/^Version: //p' | sort -rVu
}

# Set pg_source to a folder of the server's sources: PAQ_PG_SOURCE or, fetched
# into $work, those of its major version.  Fails, and says why, if there are none.
need_source()
{
	pg_source=${PAQ_PG_SOURCE:-}
	if [ -n "$pg_source" ]; then
		[ -d "$pg_source/src/test/regress" ] ||
			die "PAQ_PG_SOURCE: $pg_source is not a source tree of PostgreSQL"
	elif ! fetch_source; then
		say "PostgreSQL's sources cannot be had; set PAQ_PG_SOURCE to them" >&2
		return 1
	fi
}

fetch_source()
{
	local package version

	package=postgresql-$("$pg_config" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/')
	command -v dpkg-source >/dev/null && command -v apt-get >/dev/null || {
		say "There is no apt-get or no dpkg-source" >&2
		return 1
	}
	mkdir -p "$work/apt/state/lists/partial" "$work/apt/cache/archives/partial"
	: >"$work/apt/sources.list"
	: >"$work/apt/log"
	write_apt_sources
	# one archive of several may be out of reach or have no sources
	own_apt apt-get update >>"$work/apt/log" || true
	while read -r version; do
		say "Fetching the sources of $package $version"
		! own_apt apt-get source "$package=$version" >>"$work/apt/log" || break
		version=
	done < <(source_versions "$package" | awk '!seen[$0]++')
	[ -n "$version" ] || {
		cat "$work/apt/log" >&2
		say "The sources of $package cannot be fetched" >&2
		return 1
	}
	pg_source=$(find "$work" -mindepth 1 -maxdepth 1 -type d -name 'postgresql-*')
	[ -d "$pg_source/src/test/regress" ] || {
		say "The sources of $package have no regression suite" >&2
		return 1
	}
}

# ---------------------------------------------------------------------------
# A server
# ---------------------------------------------------------------------------

# Make a cluster in $work/data.
init_cluster()
{
	as_user initdb -D data --auth=trust --username=postgres --no-sync \
		--encoding=UTF8 --locale=C >"$work/initdb.log" 2>&1 || {
		cat "$work/initdb.log" >&2
		die "initdb failed"
	}
}

# Make and start a cluster in $work/data, with the settings on standard input.
# PGHOST, PGUSER and PGDATABASE lead to it.
start_cluster()
{
	local settings

	settings=$(cat)
	init_cluster
	cat >>"$work/data/postgresql.conf" <<-CONF
		listen_addresses = ''
		unix_socket_directories = '$work/tmp'
		shared_preload_libraries = 'pg_audit_queue'
		$settings
	CONF
	export PGHOST=$work/tmp PGPORT=5432 PGUSER=postgres PGDATABASE=postgres
	as_user pg_ctl -s -w -D data -l server.log start || {
		cat "$work/server.log" >&2
		die "the server did not start"
	}
}

stop_cluster()
{
	as_user pg_ctl -s -w -D data -m fast stop ||
		as_user pg_ctl -s -w -D data -m immediate stop
}
