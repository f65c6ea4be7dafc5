# trail.awk
#	Count the records of pgbench's statements in the files of a trail, and
#	look for errors.  Those that have no statement id, of logins say, are none.
#
#	awk -v layout=json|pgaudit -v database=NAME -v expected=N -f trail.awk FILE...
#
# Prints the number of pgbench's records, the number of bytes of all files, and
# "ok" or what is wrong:
# - there are not as many records as expected, or
# - the statements of a session are not numbered from 1 without a gap (so one
#   lost and another doubled do not make a right number), or
# - in JSON, the sequence of all records has a gap or a doubled number, or the
#   trail itself says that records are missing.
#
# Needs files in bytes: run it with LC_ALL=C.  Texts cannot deceive it: within
# a JSON string a double quote has a backslash before it.
#
# Copyright (c) 2026, pg_audit_queue contributors

# The number behind words that are found by regular expression; -1: none.
function number(regexp, words)
{
	if (!match($0, regexp))
		return -1
	return substr($0, RSTART + words, RLENGTH - words) + 0
}

# Remember the file's stretch of the sequence, which is unbroken inside.
function end_stretch()
{
	if (last != "")
		stretch[first] = last
	last = ""
}

function count(session, id)
{
	records++
	n[session]++
	sum[session] += id
	if (id > most[session])
		most[session] = id
}

FNR == 1 { end_stretch() }

{ bytes += length($0) + 1 }

layout == "json" {
	sequence = number("\"sequence\":[0-9]+", 11)
	if (sequence < 0) {
		broken++
		next
	}
	if (last == "")
		first = sequence
	else if (sequence != last + 1)
		jumps++
	last = sequence
	if (index($0, "{\"type\":\"gap\"") == 1)
		gaps++
	if (index($0, ",\"clientApplication\":\"pgbench\"")) {
		id = number(",\"statementId\":[0-9]+", 15)
		if (id > 0 && match($0, ",\"sessionId\":\"[0-9a-f.]+\""))
			count(substr($0, RSTART, RLENGTH), id)
	}
}

layout == "pgaudit" {
	# time [pid] user@database LOG:  AUDIT: SESSION,1,...
	if (match($0, "^[^@\t]*@" database " LOG:  AUDIT: SESSION,[0-9]+")) {
		line = substr($0, 1, RLENGTH)
		id = line
		sub(/.*,/, "", id)
		match(line, /\[[0-9]+\]/)
		if (id > 0)
			count(substr(line, RSTART, RLENGTH), id + 0)
	}
}

# Stretches have to continue each other; each first number has one file.
function sequence_verdict(    from, to, files, steps)
{
	end_stretch()
	for (from in stretch) {
		files++
		if ((stretch[from] + 1) in stretch)
			steps++
	}
	if (jumps || files > 1 && steps != files - 1)
		return "sequence is broken"
	return ""
}

function verdict(    session, text)
{
	if (broken)
		return broken " line(s) without a sequence"
	if (gaps)
		return gaps " gap record(s)"
	if (records != expected)
		return sprintf("%.0f of %.0f", records, expected)
	for (session in n)
		if (most[session] != n[session] ||
			sum[session] != n[session] * (n[session] + 1) / 2)
			return "statement ids are broken"
	text = sequence_verdict()
	return text == "" ? "ok" : text
}

END { printf "%.0f %.0f %s\n", records, bytes, verdict() }
