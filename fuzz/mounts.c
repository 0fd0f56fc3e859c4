/*
 * The kernel's list of mounts: a mount below a directory is found whatever stands around it.
 * The first line of the input is the directory, the rest the list.
 */
#include "fuzz/fuzz.h"

#include "runner/place.h"

#include <stdbool.h>

/* One of the fields of a line, its octal escapes undone as the kernel makes them; or NULL. */
static char *field(const char *line, size_t len, int number)
{
	const char *end = line + len, *stop;
	char *text, *out;

	for (; number > 0; number--) {
		line = memchr(line, ' ', (size_t)(end - line));
		if (!line)
			return NULL;
		line++;
	}
	stop = memchr(line, ' ', (size_t)(end - line));
	text = out = text_of(line, (size_t)((stop ? stop : end) - line));
	for (const char *in = text; *in; in++) {
		*out = *in;
		if (*in == '\\' && strspn(in + 1, "01234567") >= 3 && in[1] <= '3') {
			const char digits[] = { in[1], in[2], in[3], '\0' };

			*out = (char)strtoul(digits, NULL, 8);
			in += 3;
		}
		out++;
	}
	*out = '\0';
	return text;
}

static bool is_below(const char *point, const char *path)
{
	size_t len = strlen(path);

	return strncmp(point, path, len) == 0 && point[len] == '/';
}

/* Has a line a mount point below path?  *ret_whole: all lines have one at all. */
static bool any_below(const char *list, const char *path, bool *ret_whole)
{
	bool any = false;

	*ret_whole = true;
	while (*list && !any && *ret_whole) {
		size_t len = strcspn(list, "\n");
		char *point = field(list, len, 4);

		*ret_whole = point != NULL;
		any = point && is_below(point, path);
		free(point);
		list += len + (list[len] == '\n');
	}
	return any;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *path = text_of(data, size), *list = strchr(path, '\n');
	struct err e = ERR_INIT;
	bool whole, below;
	int rc;

	if (list) {
		*list++ = '\0';
		rc = place_check_mounts(list, path, &e);
		demand(rc == 0 || e.text[0]);
		below = any_below(list, path, &whole);
		/* No path has a NUL, and none is longer. */
		if (!strstr(list, "\\000") && strlen(list) <= 4096)
			demand((rc == 0) == (whole && !below));
	}
	free(path);
	return 0;
}
