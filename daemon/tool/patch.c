#include "daemon/tool/patch.h"

#include "common/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN  "*** Begin Patch"
#define END    "*** End Patch"
#define ADD    "*** Add File: "
#define DELETE "*** Delete File: "
#define UPDATE "*** Update File: "
#define MOVE   "*** Move to: "
#define EOF_   "*** End of File"

struct line {
	const char *at;
	size_t len;
};

struct parser {
	const char *at, *end;
	size_t number; /* of the line that was taken last, from 1 on */
	struct line line;
	bool over; /* no line was left */
	struct patch *patch;
	struct err *e;
};

static int fault(struct parser *p, const char *what)
{
	return err_set(p->e, EINVAL, "line %zu: %s", p->number, what);
}

static void next_line(struct parser *p)
{
	const char *end;

	p->over = p->at == p->end;
	p->number++;
	if (p->over)
		return;
	end = memchr(p->at, '\n', (size_t)(p->end - p->at));
	p->line.at = p->at;
	p->line.len = (size_t)((end ? end : p->end) - p->at);
	p->at = end ? end + 1 : p->end;
}

static bool is(const struct parser *p, const char *marker)
{
	return !p->over && p->line.len == strlen(marker) &&
	       memcmp(p->line.at, marker, p->line.len) == 0;
}

static bool begins(const struct parser *p, const char *marker)
{
	size_t n = strlen(marker);

	return !p->over && p->line.len >= n && memcmp(p->line.at, marker, n) == 0;
}

static bool blank(const struct parser *p)
{
	for (size_t i = 0; i < p->line.len; i++)
		if (p->line.at[i] != ' ' && p->line.at[i] != '\t' && p->line.at[i] != '\r')
			return false;
	return true;
}

/* Room for one more of n elements; the array doubles at powers of two. */
static void *grow(void *array, size_t n, size_t size)
{
	if (n & (n - 1))
		return array;
	return realloc(array, (n ? 2 * n : 1) * size);
}

static int add_line(struct parser *p, char kind, const char *at, size_t len)
{
	struct patch_line *lines = grow(p->patch->lines, p->patch->line_count, sizeof(*lines));

	if (!lines)
		return err_set(p->e, ENOMEM, "no memory for a patch");
	p->patch->lines = lines;
	lines[p->patch->line_count++] = (struct patch_line){ kind, at, len };
	return 0;
}

/* The path behind a marker; owned by the caller. */
static int take_path(struct parser *p, const char *marker, char **ret)
{
	size_t n = strlen(marker);

	if (p->line.len == n)
		return fault(p, "a path is missing");
	if (memchr(p->line.at, '\0', p->line.len))
		return fault(p, "a NUL in a path");
	*ret = strndup(p->line.at + n, p->line.len - n);
	return *ret ? 0 : err_set(p->e, ENOMEM, "no memory for a patch");
}

static struct patch_section *add_section(struct parser *p, enum patch_kind kind)
{
	struct patch_section *all = p->patch->sections;

	if (p->patch->section_count == PATCH_SECTIONS_MAX) {
		(void)err_set(p->e, EINVAL, "line %zu: more than %d files", p->number,
		              PATCH_SECTIONS_MAX);
		return NULL;
	}
	all = grow(all, p->patch->section_count, sizeof(*all));
	if (!all) {
		(void)err_set(p->e, ENOMEM, "no memory for a patch");
		return NULL;
	}
	p->patch->sections = all;
	all[p->patch->section_count] = (struct patch_section){ .kind = kind, .number = p->number };
	return &all[p->patch->section_count++];
}

/* -- sections ------------------------------------------------------------------------------- */

static int parse_add(struct parser *p)
{
	struct patch_section *s = add_section(p, PATCH_ADD);

	if (!s || take_path(p, ADD, &s->path) < 0)
		return -1;
	s->first = p->patch->line_count;
	for (next_line(p); begins(p, "+"); next_line(p))
		if (add_line(p, '+', p->line.at + 1, p->line.len - 1) < 0)
			return -1;
	s->count = p->patch->line_count - s->first;
	return 0;
}

static int parse_delete(struct parser *p)
{
	struct patch_section *s = add_section(p, PATCH_DELETE);

	if (!s || take_path(p, DELETE, &s->path) < 0)
		return -1;
	next_line(p);
	return 0;
}

static bool is_change(const struct parser *p)
{
	return !p->over && (p->line.len == 0 ||
	                    (p->line.at[0] == ' ' || p->line.at[0] == '-' || p->line.at[0] == '+'));
}

/* An empty line is one of context that is empty: many leave its space out. */
static int parse_changes(struct parser *p)
{
	for (; is_change(p); next_line(p)) {
		size_t n = p->line.len ? 1 : 0;

		if (add_line(p, n ? p->line.at[0] : ' ', p->line.at + n, p->line.len - n) < 0)
			return -1;
	}
	return 0;
}

static bool changes_anything(const struct patch *patch, const struct patch_hunk *h)
{
	for (size_t i = 0; i < h->count; i++)
		if (patch->lines[h->first + i].kind == '+' ||
		    patch->lines[h->first + i].kind == '-')
			return true;
	return false;
}

static int parse_hunk(struct parser *p)
{
	struct patch_hunk *h = grow(p->patch->hunks, p->patch->hunk_count, sizeof(*h));

	if (!h)
		return err_set(p->e, ENOMEM, "no memory for a patch");
	p->patch->hunks = h;
	h += p->patch->hunk_count++;
	*h = (struct patch_hunk){ .first = p->patch->line_count, .number = p->number };
	for (; is(p, "@@") || begins(p, "@@ "); next_line(p))
		if (p->line.len > 3 && add_line(p, '@', p->line.at + 3, p->line.len - 3) < 0)
			return -1;
	if (parse_changes(p) < 0)
		return -1;
	h->count = p->patch->line_count - h->first;
	h->at_end = is(p, EOF_);
	if (h->at_end)
		next_line(p);
	return changes_anything(p->patch, h) ? 0 : fault(p, "the hunk before changes nothing");
}

static int parse_update(struct parser *p)
{
	struct patch_section *s = add_section(p, PATCH_UPDATE);

	if (!s || take_path(p, UPDATE, &s->path) < 0)
		return -1;
	next_line(p);
	if (begins(p, MOVE)) {
		if (take_path(p, MOVE, &s->to) < 0)
			return -1;
		next_line(p);
	}
	s->first = p->patch->hunk_count;
	while (is_change(p) || is(p, "@@") || begins(p, "@@ "))
		if (parse_hunk(p) < 0)
			return -1;
	s->count = p->patch->hunk_count - s->first;
	return s->count || s->to ? 0 : fault(p, "an update without a hunk");
}

static int parse_section(struct parser *p)
{
	if (begins(p, ADD))
		return parse_add(p);
	if (begins(p, DELETE))
		return parse_delete(p);
	if (begins(p, UPDATE))
		return parse_update(p);
	return fault(p, p->over ? "\"" END "\" is missing"
	                        : "neither a file's marker nor \"" END "\"");
}

static int parse(struct parser *p)
{
	do
		next_line(p);
	while (!p->over && blank(p));
	if (!is(p, BEGIN))
		return fault(p, "\"" BEGIN "\" is missing");
	next_line(p);
	while (!is(p, END))
		if (parse_section(p) < 0)
			return -1;
	for (next_line(p); !p->over; next_line(p))
		if (!blank(p))
			return fault(p, "text after \"" END "\"");
	return p->patch->section_count ? 0 : fault(p, "no file in the patch");
}

int patch_parse(const char *text, size_t len, struct patch *ret, struct err *e)
{
	struct parser p = { .at = text, .end = text + len, .patch = ret, .e = e };

	*ret = (struct patch){ NULL };
	if (len > PATCH_TEXT_MAX)
		return err_set(e, EINVAL, "%zu bytes; a patch has at most %zu", len,
		               PATCH_TEXT_MAX);
	if (parse(&p) == 0)
		return 0;
	patch_release(ret);
	return -1;
}

void patch_release(struct patch *p)
{
	for (size_t i = 0; i < p->section_count; i++) {
		free(p->sections[i].path);
		free(p->sections[i].to);
	}
	free(p->sections);
	free(p->hunks);
	free(p->lines);
	*p = (struct patch){ NULL };
}
