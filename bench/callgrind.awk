# callgrind.awk
#	The cost of a statement, from two files of callgrind: the same session
#	with few and with more such statements.
#
#	awk -v statements=N -v library=NAME -f callgrind.awk FEW MORE
#
# MORE has N statements more than FEW.  Work that both sessions do once -
# starting, filling caches - is the same in both and cancels out.  Prints, for
# one statement and separated by tabs:
#
#	total	instructions, without waiting for the client
#	library	instructions within the library itself
#	call	name	calls of that function by the library
#	alloc	name	the same, if the function allocates memory
#	through	name	the same, if it calls, directly or not, one that does
#
# A function that the library calls only to pass on its own call (standard_...)
# is PostgreSQL's own work, whatever the function allocates.
#
# The format of the files is in valgrind's manual.  A line with costs is the
# current function's own, unless the line before it was "calls=".
#
# Copyright (c) 2026, pg_audit_queue contributors

# The name in "(id) name", or the one that the id was given before
function name_of(kind, text,	id) {
	id = substr(text, 1, index(text, ")"))
	if (index(text, ") "))
		names[kind, id] = substr(text, index(text, ") ") + 2)
	return names[kind, id]
}

function file_name(path) {
	sub(/.*\//, "", path)
	return path
}

# How often a session looks for the client's next command depends on when that
# comes.
function waits(name) {
	return name ~ /^(WaitEventSetWait|ModifyWaitEvent|secure_(raw_)?read|recv|epoll_wait)$/
}

function allocates(name) {
	return name ~ /^(palloc|repalloc|MemoryContext(Alloc|Realloc|Str)|AllocSet|Generation|Slab|[cm]alloc$|realloc$)/
}

FNR == 1 {
	sign = (NR == 1) ? -1 : 1
	split("", names)
	inclusive = 0
}

/^ob=/ {
	object = file_name(name_of("ob", substr($0, 4)))
	callee_object = object
	next
}

/^fn=/ {
	caller = name_of("fn", substr($0, 4))
	callee_object = object
	next
}

/^cob=/ {
	callee_object = file_name(name_of("ob", substr($0, 5)))
	next
}

/^cfn=/ {
	callee = name_of("fn", substr($0, 5))
	next
}

/^calls=/ {
	calls[object, caller, callee_object, callee] += sign * substr($1, 7)
	callee_object = object
	inclusive = 1
	next
}

/^[0-9+*-]/ {
	if (!inclusive && !waits(caller)) {
		total += sign * $2
		if (object == library)
			own += sign * $2
	}
	inclusive = 0
}

# Does a function call, directly or not, one that allocates?
function leads_to_allocation(start,	queue, n, i, j, list, m, part) {
	split("", reached)
	queue[n = 1] = start
	reached[start] = 1
	for (i = 1; i <= n; i++) {
		split(queue[i], part, SUBSEP)
		if (allocates(part[2]))
			return 1
		m = split(callees[queue[i]], list, "\n")
		for (j = 2; j <= m; j++)
			if (!(list[j] in reached)) {
				reached[list[j]] = 1
				queue[++n] = list[j]
			}
	}
	return 0
}

function kind_of(node,	part) {
	split(node, part, SUBSEP)
	if (part[2] ~ /^standard_/)
		return "call"
	if (allocates(part[2]))
		return "alloc"
	return leads_to_allocation(node) ? "through" : "call"
}

END {
	for (edge in calls) {
		# not what happens once in a while only, such as a new page
		if (calls[edge] < statements / 2)
			continue
		split(edge, part, SUBSEP)
		callees[part[1], part[2]] = callees[part[1], part[2]] "\n" part[3] SUBSEP part[4]
		if (part[1] == library && part[3] != library)
			outside[part[3], part[4]] += calls[edge]
	}
	printf "total\t%.0f\n", total / statements
	printf "library\t%.0f\n", own / statements
	for (node in outside) {
		split(node, part, SUBSEP)
		printf "%s\t%s\t%.2f\n", kind_of(node), part[2], outside[node] / statements
	}
}
