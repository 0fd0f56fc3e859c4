# Turns SQL files into C: for each directory an array of { name, text } in the order
# of the arguments.  awk -f sql/embed.awk sql/*/*.sql
function finish_file() { if (open) printf "\"\" },\n"; open = 0 }
function finish_dir() { finish_file(); if (dir != "") print "};" }
# As C writes it.  What backslashes say in the replacement of gsub() differs between versions
# of awk.
function literal(text,  out, c, i) {
	for (i = 1; i <= length(text); i++) {
		c = substr(text, i, 1)
		out = out (c == "\\" || c == "\"" ? "\\" : "") c
	}
	return out
}
FNR == 1 {
	n = split(FILENAME, part, "/")
	finish_file()
	if (part[n - 1] != dir) {
		finish_dir()
		dir = part[n - 1]
		printf "static const struct sql_file embedded_%s[] = {\n", dir
	}
	name = part[n]
	sub(/\.sql$/, "", name)
	printf "{ \"%s\",\n", name
	open = 1
}
{ printf "\"%s\\n\"\n", literal($0) }
END { finish_dir() }
