/*
 * Hunks are applied in order, each behind the one before.  What a hunk replaces is found
 * by its lines alone, so they must be there exactly once, or once behind its "@@" line.
 */
#include "daemon/tool/patch.h"

#include "common/attr.h"
#include "common/fd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORK_MAX ((size_t)1 << 30) /* bytes compared; a patch must not hold a thread up */

struct text_line {
	const char *at;
	size_t len; /* without its line end */
};

struct text {
	struct text_line *lines; /* owned */
	size_t count;
	bool open; /* the last line has no end */
	bool crlf; /* lines end in CR LF, as the first one says */
	size_t work;
};

static int split(struct text *t, const struct buf *old, struct err *e)
{
	const char *at = old->data ? old->data : "", *end = at + old->len;
	size_t n = 0;

	for (const char *c = at; c < end; c++)
		n += *c == '\n';
	t->open = old->len && end[-1] != '\n';
	t->count = n + t->open;
	t->lines = calloc(t->count + 1, sizeof(*t->lines));
	if (!t->lines)
		return err_set(e, ENOMEM, "no memory for a patch");
	for (n = 0; n < t->count; n++) {
		const char *eol = memchr(at, '\n', (size_t)(end - at));

		t->lines[n] = (struct text_line){ at, (size_t)((eol ? eol : end) - at) };
		at = eol ? eol + 1 : end;
	}
	t->crlf = n && (n > 1 || !t->open) && t->lines[0].len &&
	          t->lines[0].at[t->lines[0].len - 1] == '\r';
	return 0;
}

static size_t bare(const struct text *t, const struct text_line *l)
{
	return l->len - (t->crlf && l->len && l->at[l->len - 1] == '\r');
}

static bool same(struct text *t, size_t i, const struct patch_line *l)
{
	size_t len = bare(t, &t->lines[i]);

	t->work += 16;
	if (len != l->len)
		return false;
	t->work += len;
	return memcmp(t->lines[i].at, l->at, len) == 0;
}

static struct patch_line trimmed(const char *at, size_t len)
{
	while (len && (*at == ' ' || *at == '\t')) {
		at++;
		len--;
	}
	while (len && (at[len - 1] == ' ' || at[len - 1] == '\t' || at[len - 1] == '\r'))
		len--;
	return (struct patch_line){ '@', at, len };
}

/* -- one hunk ------------------------------------------------------------------------------- */

struct place {
	size_t at; /* first line to be replaced */
	size_t n;  /* how many */
};

static int misfit(const struct patch_hunk *h, const char *what, struct err *e)
{
	return err_set(e, EINVAL, "the hunk of line %zu: %s", h->number, what);
}

/* Go behind the first line from *from on that is the one after "@@", spaces around it aside. */
static int find_header(struct text *t, const struct patch_hunk *h, const struct patch_line *l,
                       size_t *from, struct err *e)
{
	struct patch_line want = trimmed(l->at, l->len);

	for (; *from < t->count; ++*from) {
		struct patch_line have = trimmed(t->lines[*from].at, t->lines[*from].len);

		t->work += 16 + have.len;
		if (have.len == want.len && memcmp(have.at, want.at, have.len) == 0) {
			++*from;
			return 0;
		}
		if (t->work > WORK_MAX)
			break;
	}
	return misfit(h, "the line after its \"@@\" is not there, or not behind the hunk before",
	              e);
}

/* The lines that it replaces, one after the other. */
static bool fits(const struct patch *p, const struct patch_hunk *h, struct text *t, size_t at)
{
	for (size_t i = 0; i < h->count; i++) {
		const struct patch_line *l = &p->lines[h->first + i];

		if (l->kind != ' ' && l->kind != '-')
			continue;
		if (at == t->count || !same(t, at++, l))
			return false;
	}
	return !h->at_end || at == t->count;
}

static size_t replaced(const struct patch *p, const struct patch_hunk *h)
{
	size_t n = 0;

	for (size_t i = 0; i < h->count; i++)
		n += p->lines[h->first + i].kind == ' ' || p->lines[h->first + i].kind == '-';
	return n;
}

static int find(const struct patch *p, const struct patch_hunk *h, struct text *t, size_t from,
                struct place *ret, struct err *e)
{
	bool header = false, found = false;

	for (size_t i = 0; i < h->count && p->lines[h->first + i].kind == '@'; i++) {
		if (find_header(t, h, &p->lines[h->first + i], &from, e) < 0)
			return -1;
		header = true;
	}
	ret->n = replaced(p, h);
	ret->at = header && !h->at_end ? from : t->count;
	if (!ret->n)
		return 0;
	for (size_t at = from; at + ret->n <= t->count; at++) {
		bool here = fits(p, h, t, at);

		if (t->work > WORK_MAX)
			return misfit(h, "it is too much work to find its place", e);
		if (here && found)
			return misfit(h,
			              "what it replaces is there more than once; give more lines "
			              "around it, or the line before it after \"@@ \"",
			              e);
		if (here)
			ret->at = at;
		found = found || here;
		if (found && header)
			break;
	}
	return found ? 0
	             : misfit(h, "what it replaces is not there, or not behind the hunk before", e);
}

/* -- the result ----------------------------------------------------------------------------- */

static void put_end(const struct text *t, struct buf *out)
{
	buf_adds(out, t->crlf ? "\r\n" : "\n");
}

/* A line of the file as it is; when it has no end, end says whether it gets one. */
static void put_old(const struct text *t, size_t i, bool end, struct buf *out)
{
	buf_add(out, t->lines[i].at, t->lines[i].len);
	if (i + 1 < t->count || !t->open)
		buf_addc(out, '\n');
	else if (end)
		put_end(t, out);
}

static void put_hunk(const struct patch *p, const struct patch_hunk *h, const struct text *t,
                     size_t at, struct buf *out)
{
	for (size_t i = 0; i < h->count; i++) {
		const struct patch_line *l = &p->lines[h->first + i];

		if (l->kind == '+') {
			buf_add(out, l->at, l->len);
			put_end(t, out);
		} else if (l->kind == ' ') {
			put_old(t, at++, i + 1 < h->count, out);
		} else if (l->kind == '-') {
			at++;
		}
	}
}

static int apply_hunks(const struct patch *p, const struct patch_section *s, struct text *t,
                       struct buf *out, struct err *e)
{
	size_t done = 0;

	for (size_t i = 0; i < s->count; i++) {
		const struct patch_hunk *h = &p->hunks[s->first + i];
		struct place place = { 0 };

		if (find(p, h, t, done, &place, e) < 0)
			return -1;
		for (; done < place.at; done++)
			put_old(t, done, true, out);
		put_hunk(p, h, t, place.at, out);
		done = place.at + place.n;
	}
	for (; done < t->count; done++)
		put_old(t, done, false, out);
	return 0;
}

int patch_apply(const struct patch *p, const struct patch_section *s, const struct buf *old,
                struct buf *out, struct err *e)
{
	struct text t = { NULL };
	int rc = 0;

	if (s->kind == PATCH_ADD) {
		for (size_t i = 0; i < s->count; i++) {
			buf_add(out, p->lines[s->first + i].at, p->lines[s->first + i].len);
			buf_addc(out, '\n');
		}
	} else {
		rc = split(&t, old, e);
		if (rc == 0)
			rc = apply_hunks(p, s, &t, out, e);
		free(t.lines);
	}
	if (rc == 0 && buf_failed(out))
		rc = err_set(e, EINVAL, "the file would become larger than %zu bytes", out->max);
	return rc;
}
