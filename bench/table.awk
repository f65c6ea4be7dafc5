# table.awk
#	Make a table of one workload's runs.
#
#	awk -v configs="none queued ..." -f table.awk RESULTS
#
# RESULTS has the lines that bench/run writes, sorted by tps.  A row shows the
# run with the median tps (of an even number, the slower of the two) and all of
# its figures.  A configuration is marked if one of its runs had a wrong trail.
#
# Copyright (c) 2026, pg_audit_queue contributors

BEGIN {
	FS = "\t"
	layout = "%-10s %10s %8s %19s %11s %10s %10s %8s  %s\n"
	printf layout, "config", "median tps", "of none", "min..max tps",
		"latency ms", "records", "trail", "fsyncs", "check"
}

{
	runs[$2]++
	line[$2, runs[$2]] = $0
	tps[$2, runs[$2]] = $3
	if ($8 != "ok" && $8 != "-" && wrong[$2] == "")
		wrong[$2] = $8
}

function median(config)
{
	return int((runs[config] + 1) / 2)
}

function megabytes(bytes)
{
	return bytes == "-" ? "-" : sprintf("%.1f MB", bytes / 1e6)
}

function check(config, verdict)
{
	if (wrong[config] == "")
		return verdict
	# pgaudit's trail is counted, but it is not ours to vouch for
	return (config == "pgaudit" ? "" : "WRONG: ") wrong[config]
}

END {
	nconfigs = split(configs, order, " ")
	for (i = 1; i <= nconfigs; i++) {
		config = order[i]
		split(line[config, median(config)], field, FS)
		ratio = runs["none"] ? sprintf("%.3f", field[3] / tps["none", median("none")]) : "-"
		printf layout, config, sprintf("%.0f", field[3]), ratio,
			sprintf("%.0f..%.0f", tps[config, 1], tps[config, runs[config]]),
			field[4], field[5], megabytes(field[6]), field[7],
			check(config, field[8])
	}
}
