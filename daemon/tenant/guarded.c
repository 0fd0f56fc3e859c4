#include "daemon/tenant/guarded.h"

#include "common/fd.h"
#include "daemon/tenant/registry_draft.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as many as the kernel follows */

/* -- the list -------------------------------------------------------------------------- */

static char *printf_like(1, 0) vformat(const char *fmt, va_list ap)
{
	char *text = NULL;

	if (vasprintf(&text, fmt, ap) < 0)
		abort();
	return text;
}

static void *grow(void *memory, size_t n, size_t size)
{
	void *grown = reallocarray(memory, n, size);

	if (!grown)
		abort();
	return grown;
}

static void add_place(struct guarded *g, const char *path, const char *what, bool whole)
{
	for (size_t i = 0; i < g->place_count; i++)
		if (strcmp(g->places[i].path, path) == 0 && g->places[i].whole == whole)
			return;
	g->places = grow(g->places, g->place_count + 1, sizeof(*g->places));
	g->places[g->place_count++] = (struct guarded_place){
		.path = draft_copy(path),
		.what = draft_copy(what),
		.whole = whole,
	};
}

static void add_links(struct guarded *g, const char *path, const char *what, int left);

/* dir/name, in which rest is looked up. */
static void add_link(struct guarded *g, const char *dir, const char *name, const char *rest,
                     const char *what, int left)
{
	char entry[2 * PATH_MAX], target[PATH_MAX], next[4 * PATH_MAX];
	ssize_t n;

	(void)snprintf(entry, sizeof(entry), "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name);
	n = readlink(entry, target, sizeof(target) - 1);
	if (n < 0)
		return;
	target[n] = '\0';
	add_place(g, entry, what, false);
	(void)snprintf(next, sizeof(next), "%s/%s%s", target[0] == '/' ? "" : dir, target, rest);
	add_links(g, next, what, left - 1);
}

/* Every link that path leads through: itself, as an entry of the directory that it is in. */
static void add_links(struct guarded *g, const char *path, const char *what, int left)
{
	char before[PATH_MAX], dir[PATH_MAX], name[NAME_MAX + 1];

	for (const char *at = path; left > 0 && *at; at += strcspn(at, "/")) {
		size_t n;

		at += strspn(at, "/");
		n = strcspn(at, "/");
		if (n == 0 || n >= sizeof(name) || (size_t)(at - path) >= sizeof(before))
			continue;
		memcpy(before, path, (size_t)(at - path));
		before[at - path] = '\0';
		memcpy(name, at, n);
		name[n] = '\0';
		if (strcmp(name, "..") != 0 && strcmp(name, ".") != 0 &&
		    realpath(at == path ? "." : before, dir))
			add_link(g, dir, name, at + n, what, left);
	}
}

/* A path that cannot be followed is guarded as it was written: to use it fails, and says why. */
static void printf_like(4, 0)
	add(struct guarded *g, const char *path, bool whole, const char *what, va_list ap)
{
	auto_free char *canonical = NULL;
	auto_free char *text = NULL;
	struct err ignored = ERR_INIT;

	if (!path)
		return;
	text = vformat(what, ap);
	if (trusted_canonical(path, &canonical, &ignored) < 0)
		canonical = draft_copy(path);
	add_place(g, canonical, text, whole);
	add_links(g, path, text, LINKS_MAX);
}

void guarded_file(struct guarded *g, const char *path, const char *what, ...)
{
	va_list ap;

	va_start(ap, what);
	add(g, path, false, what, ap);
	va_end(ap);
}

void guarded_tree(struct guarded *g, const char *path, const char *what, ...)
{
	va_list ap;

	va_start(ap, what);
	add(g, path, true, what, ap);
	va_end(ap);
}

void guarded_secret(struct guarded *g, const unsigned char digest[TOKEN_DIGEST], const char *what,
                    ...)
{
	struct guarded_secret *s;
	va_list ap;

	g->secrets = grow(g->secrets, g->secret_count + 1, sizeof(*g->secrets));
	s = &g->secrets[g->secret_count++];
	memcpy(s->digest, digest, TOKEN_DIGEST);
	va_start(ap, what);
	s->what = vformat(what, ap);
	va_end(ap);
}

void guarded_release(struct guarded *g)
{
	for (size_t i = 0; i < g->place_count; i++) {
		free(g->places[i].path);
		free(g->places[i].what);
	}
	for (size_t i = 0; i < g->secret_count; i++)
		free(g->secrets[i].what);
	free(g->places);
	free(g->secrets);
	*g = (struct guarded){ .place_count = 0 };
}

/* -- a registry against it ------------------------------------------------------------- */

struct report {
	void (*fault)(void *ctx, const char *line);
	void *ctx;
	struct err *e;
	size_t count;
};

static void printf_like(2, 3) report(struct report *to, const char *fmt, ...)
{
	struct err line = ERR_INIT;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(line.text, sizeof(line.text), fmt, ap);
	va_end(ap);
	if (to->fault)
		to->fault(to->ctx, line.text);
	else if (!to->count)
		(void)err_set(to->e, EINVAL, "%s", line.text);
	to->count++;
}

static void compare_place(struct report *to, const struct guarded_place *p, const char *dir,
                          const char *where, const char *who)
{
	if (trusted_path_inside(p->path, dir))
		report(to,
		       "%s: %s, %.160s, lies inside it, where %s can read and change it; move it "
		       "out of there, or choose another workspace",
		       where, p->what, p->path, who);
	else if (p->whole && trusted_path_inside(dir, p->path))
		report(to, "%s: lies inside %s, %.160s, which every sandbox sees; choose another",
		       where, p->what, p->path);
}

static void compare_workspace(struct report *to, const struct guarded *g, const struct tenant *t)
{
	char where[64];

	(void)snprintf(where, sizeof(where), "tenants[%zu].workspaceRoot", t->index);
	for (size_t i = 0; i < g->place_count; i++)
		compare_place(to, &g->places[i], t->workspace, where, t->name);
}

static void compare_root(struct report *to, const struct guarded *g, const char *dir)
{
	char where[256];

	(void)snprintf(where, sizeof(where), "--workspace-root %.160s", dir);
	for (size_t i = 0; i < g->place_count; i++)
		compare_place(to, &g->places[i], dir, where, "the agent");
}

static void compare_secrets(struct report *to, const struct guarded *g, const struct registry *r)
{
	for (size_t i = 0; i < g->secret_count; i++) {
		const struct credential *c = NULL;
		const struct tenant *t = registry_match(r, g->secrets[i].digest, &c);
		char where[96];

		if (!t)
			continue;
		draft_path(&(struct entry){ .tenant = t->index,
		                            .credential = (size_t)(c - t->credentials) },
		           secret_field(c), where, sizeof(where));
		report(to, "%s: the same as %s; draw another for %s", where, g->secrets[i].what,
		       t->name);
	}
}

static int check_local(const struct guarded *g, const struct registry *r, struct err *e)
{
	const struct tenant *t = registry_at(r, 0);
	struct report to = { .e = e };

	for (size_t i = 0; i < t->part_count; i++)
		compare_root(&to, g, t->parts[i].path);
	if (!t->part_count)
		compare_root(&to, g, t->workspace);
	compare_secrets(&to, g, r);
	return to.count ? -1 : 0;
}

int guarded_check(const struct guarded *g, const struct registry *r,
                  void (*fault)(void *ctx, const char *line), void *ctx, struct err *e)
{
	struct report to = { .fault = fault, .ctx = ctx };

	if (strcmp(registry_at(r, 0)->id.text, REGISTRY_LOCAL_ID) == 0)
		return check_local(g, r, e);
	for (size_t i = 0; i < registry_count(r); i++)
		compare_workspace(&to, g, registry_at(r, i));
	compare_secrets(&to, g, r);
	return to.count ? err_set(e, EINVAL, "workspaces and tokens: %zu fault%s", to.count,
	                          to.count == 1 ? "" : "s")
	                : 0;
}
