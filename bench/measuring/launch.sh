# launch.sh
#	Functions that bench/das and the others share.  Sourced by bash, not run.
#
# Copyright (c) 2026, pg_audit_queue contributors

set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

common_usage()
{
	cat <<-'TEXT'

	--quick				short runs, for a first impression
	--rounds N			each runs every configuration once
	--seconds N			length of one run
	--pairs N			pairs of runs, of clients, record and trail
	--clients N			of pgbench
	--scale N			size of pgbench's tables
	--configs LIST		only these configurations
	--format NAME		of pg_audit_queue's trail: json (default), csvlog, or pgaudit
	--set NAME=VALUE	server setting for every configuration; may be repeated
	--output FOLDER		where the results are to be (default: ./bench-results)
	--report FILE		show the results in that file of JSON again; measures nothing
	--keep				keep the cluster, and all of pgbench's output
	--installed			use the extension that is installed: PG_CONFIG, or the first
						in PATH; the caller cannot be root

	Prints tables, and leaves NAME.json, NAME.md and pictures in the folder for
	results.  Exits with 1 if a run failed, or if a trail did not hold exactly what
	was sent.

	Builds the extension and runs it in a cluster of its own below ${TMPDIR:-/tmp}:
	the disk of that folder is measured.  Installs missing packages when run as
	root; changes nothing else.  PG_CONFIG chooses a server; the default is the
	newest one that is installed.  bench/README.md says how to read the result.
	TEXT
}

# Packages without which something is left out: install those that can be had.
want_packages()
{
	local major package packages=()

	if [ "$(id -u)" -ne 0 ] || [ -n "${PG_CONFIG:-}" ] || ! command -v apt-cache >/dev/null; then
		return
	fi
	major=$(installed_major)
	for package in "${@//MAJOR/$major}"; do
		! apt-cache show "$package" >/dev/null 2>&1 || packages+=("$package")
	done
	need_packages "${packages[@]}"
}

commit()
{
	git -C "$root" -c safe.directory="$root" describe --always --dirty 2>/dev/null || true
}

# launch FILE OPTION...: run the command that the file is named after.
launch()
{
	local command=${1##*/} file=$1 output=$PWD/bench-results arg previous=
	local quick= keep= installed= status=0 options=()
	local -r program=(python3 -B)	# no bytecode: the checkout is only read

	shift
	for arg in "$@"; do
		case $previous:$arg in
			--output:*) output=$arg ;;
			*:--output=*) output=${arg#*=} ;;
			*:--help)
				usage "$file"
				common_usage
				exit 0
				;;
			*:--report | *:--report=*) exec "${program[@]}" \
				"$root/bench/measuring/main.py" "$command" "$@" ;;
			*:--quick) quick=1 ;;
			*:--keep) keep=1 ;;
			*:--installed) installed=1 ;;
		esac
		case $previous:$arg in
			--output:* | *:--output | *:--output=* | *:--installed) ;;
			*) options+=("$arg") ;;
		esac
		previous=$arg
	done

	if [ -n "$installed" ]; then
		exec "${program[@]}" "$root/bench/measuring/main.py" "$command" --bindir \
			"$("${PG_CONFIG:-pg_config}" --bindir)" --commit "$(commit)" --output "$output" \
			"${options[@]}"
	fi

	set_traps
	need_packages python3
	want_packages gnuplot-nox valgrind postgresql-MAJOR-pgaudit postgresql-MAJOR-pgauditlogtofile
	find_postgres
	make_work
	case $command in ship | all) need_kafka ;; esac
	case $quick:$command in
		:record | :all)
			say "Counting instructions (bench/unaudited)"
			run "$root/bench/unaudited" >"$work/instructions" 2>&1 ||
				say "bench/unaudited has failed"
			options+=(--instructions "$work/instructions")
			;;
	esac
	copy_postgres
	install_extension
	as_user "${program[@]}" src/bench/measuring/main.py "$command" --bindir "$bindir" \
		--folder run --output results --commit "$(commit)" "${options[@]}" || status=$?
	if [ -d "$work/results" ]; then
		mkdir -p "$output"
		cp "$work/results"/* "$output"
		say "The results are in $output"
	fi
	if [ -n "$keep" ] || [ "$status" -ne 0 ]; then
		keep_work=1
	fi
	exit "$status"
}
