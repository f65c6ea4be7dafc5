# man.awk
#	Make the man page of doc/pg_audit_trail.md.
#
#	awk -v version=VERSION -f man.awk doc/pg_audit_trail.md >pg_audit_trail.1
#
# Knows the Markdown that the page has: headings, paragraphs, lists, tables, blocks of
# code between fences, code, bold text and links.  Nothing is left out but the list of
# sections, the heads of tables with two columns, and where links within the page lead.
# Fails if the page is not that of a program.
#
# Copyright (c) 2026, pg_audit_queue contributors

BEGIN {
	quote = sprintf("%c", 39)
}

# Text that groff prints as it is
function plain(text)
{
	gsub(/\\/, "\\e", text)
	gsub(/-/, "\\-", text)
	gsub(/\^/, "\\(ha", text)
	gsub(/~/, "\\(ti", text)
	gsub(/`/, "\\(ga", text)
	gsub(quote, "\\(aq", text)
	return text
}

# A line of text is no request.
function line_of(text)
{
	return (text ~ /^[.]/ ? "\\&" : "") text
}

# A link within the page is its text, another one has the file's name behind that.
function link(text, target)
{
	return text (target ~ /^#/ ? "" : " (" plain(target) ")")
}

# Make groff's of inline markup.  What stands in code font is printed as it is.
function inline(text,    result, start, len, part)
{
	while (match(text, /`[^`]+`|\[[^]]+\]\([^)]+\)|\*\*[^*]+\*\*|\*[^*]+\*/)) {
		start = RSTART
		len = RLENGTH
		part = substr(text, start, len)
		result = result plain(substr(text, 1, start - 1))
		text = substr(text, start + len)
		if (part ~ /^`/)
			result = result "\\fB" plain(substr(part, 2, len - 2)) "\\fR"
		else if (part ~ /^\[/)
			result = result link(inline(substr(part, 2, index(part, "](") - 2)),
								 substr(part, index(part, "](") + 2, len - index(part, "](") - 2))
		else if (part ~ /^\*\*/)
			result = result "\\fB" inline(substr(part, 3, len - 4)) "\\fR"
		else
			result = result "\\fI" plain(substr(part, 2, len - 2)) "\\fR"
	}
	return result plain(text)
}

# Print what has been collected of a paragraph, or of an item of a list.
function end_text()
{
	if (text != "")
		print line_of(inline(text))
	text = ""
}

function end_block()
{
	end_text()
	if (in_list)
		print ".RE"
	in_list = in_table = 0
}

# The cells of a table's row go to cells[1..], a "|" in one as \|.
function split_row(row,    number, i)
{
	gsub(/\\[|]/, "\001", row)
	sub(/^[|] */, "", row)
	sub(/ *[|]$/, "", row)
	number = split(row, cells, / *[|] */)
	for (i = 1; i <= number; i++)
		gsub("\001", "|", cells[i])
	return number
}

# The first cell of a row stands for the others, which get the names of their columns
# if there are several.
function table_row(number,    i)
{
	print ".TP"
	print line_of(inline(cells[1]))
	for (i = 2; i <= number; i++) {
		if (i > 2)
			print ".br"
		print line_of(number > 2 && heads[i] != "" ? inline(heads[i] ": " cells[i]) : inline(cells[i]))
	}
}

/^```/ {
	end_block()
	in_code = !in_code
	print in_code ? ".PP\n.RS 4\n.nf" : ".fi\n.RE"
	next
}

in_code {
	print line_of(plain($0))
	next
}

/^# / {
	program = substr($0, 3)
	print ".TH " toupper(plain(program)) " 1 \"\" \"pg_audit_queue " version "\" \"pg_audit_queue\""
	# no hyphens or blanks that the page does not have
	print ".nh\n.ad l"
	print ".SH NAME"
	next
}

/^## / {
	end_block()
	print ".SH \"" toupper(plain(substr($0, 4))) "\""
	next
}

/^### / {
	end_block()
	print ".SS \"" plain(substr($0, 5)) "\""
	next
}

# the list of sections
/^- \[[^]]*\]\(#[^)]*\)$/ {
	end_block()
	next
}

/^[|][ |:-]*$/ {
	next
}

/^[|]/ {
	end_text()
	n = split_row($0)
	if (in_table)
		table_row(n)
	else
		for (i = 1; i <= n; i++)
			heads[i] = cells[i]
	in_table = 1
	next
}

/^(- |[0-9]+[.] )/ {
	end_text()
	if (!in_list)
		print ".RS 0"
	in_list = 1
	print ".IP " (/^-/ ? "\\(bu 2" : $1 " 3")
	text = $0
	sub(/^[^ ]+ /, "", text)
	next
}

/^$/ {
	end_text()
	in_table = 0
	next
}

{
	if (in_list && !/^ /)
		end_block()
	if (text == "" && !in_list)
		print ".PP"
	sub(/^ +/, "")
	text = text (text == "" ? "" : " ") $0
}

END {
	end_block()
	if (program == "" || in_code) {
		print FILENAME ": not the page of a program" >"/dev/stderr"
		exit 1
	}
	print ".SH \"SEE ALSO\""
	print "Pages in parentheses are in the folder \\fBdoc\\fR of pg_audit_queue, which packages"
	print "have below \\fI/usr/share/doc\\fR."
}
