# Turns SQL files into C: for each directory an array of { name, text } in the order
# of the arguments.  awk -f sql/embed.awk sql/*/*.sql
function finish_file() { if (open) printf "\"\" },\n"; open = 0 }
function finish_dir() { finish_file(); if (dir != "") print "};" }
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
{
	gsub(/\\/, "\\\\\\\\")
	gsub(/"/, "\\\"")
	printf "\"%s\\n\"\n", $0
}
END { finish_dir() }
