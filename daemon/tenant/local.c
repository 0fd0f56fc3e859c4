/*
 * The registry of one person, made from the command line.  The same rules hold for the
 * directories as for those of a file: nobody else can put another in their place, none
 * lies in another, none holds or lies in the state directory.
 */
#include "common/fd.h"
#include "daemon/tenant/registry_draft.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static int take_root(struct part *part, const char *path, const char *state_dir, struct err *e)
{
	struct stat st;

	if (trusted_canonical(path, &part->path, e) < 0 || trusted_path_check(part->path, e) < 0 ||
	    trusted_directory(part->path, &st, e) < 0)
		return err_wrap(e, "--workspace-root %.200s", path);
	part->name = strrchr(part->path, '/') + 1;
	part->place.device = st.st_dev;
	part->place.inode = st.st_ino;
	if (trusted_path_inside(part->path, state_dir) ||
	    trusted_path_inside(state_dir, part->path))
		return err_set(e, EINVAL,
		               "--workspace-root %.200s and the state directory lie in one another",
		               part->path);
	return 0;
}

static int compare(const struct part *a, const struct part *b, struct err *e)
{
	if (trusted_path_inside(a->path, b->path) || trusted_path_inside(b->path, a->path) ||
	    (a->place.device == b->place.device && a->place.inode == b->place.inode))
		return err_set(e, EINVAL, "--workspace-root %.200s and %.200s lie in one another",
		               a->path, b->path);
	if (strcmp(a->name, b->name) == 0)
		return err_set(e, EINVAL,
		               "--workspace-root %.200s and %.200s would both be /workspace/%.100s",
		               a->path, b->path, a->name);
	return 0;
}

static int take_roots(struct tenant *t, char *const *roots, size_t n, const char *state_dir,
                      struct err *e)
{
	if (n < 1 || n > REGISTRY_MAX_PARTS)
		return err_set(e, EINVAL, "--workspace-root: more than %d of them",
		               REGISTRY_MAX_PARTS);
	t->parts = draft_alloc(n, sizeof(*t->parts));
	for (t->part_count = 0; t->part_count < n;) {
		struct part *part = &t->parts[t->part_count++];

		if (take_root(part, roots[t->part_count - 1], state_dir, e) < 0)
			return -1;
		for (struct part *other = t->parts; other < part; other++)
			if (compare(other, part, e) < 0)
				return -1;
	}
	t->workspace = draft_copy(t->parts[0].path);
	t->place.device = t->parts[0].place.device;
	t->place.inode = t->parts[0].place.inode;
	return 0;
}

/* One directory is the workspace itself. */
static void drop_single_part(struct tenant *t)
{
	if (t->part_count > 1)
		return;
	free(t->parts[0].path);
	free(t->parts);
	t->parts = NULL;
	t->part_count = 0;
}

static void take_digest(struct tenant *t, const unsigned char *digest)
{
	t->credentials = draft_alloc(1, sizeof(*t->credentials));
	if (!digest)
		return;
	t->credential_count = 1;
	t->credentials[0].id = t->id;
	memcpy(t->credentials[0].digest, digest, TOKEN_DIGEST);
}

int registry_local(char *const *roots, size_t n, const char *state_dir, const unsigned char *digest,
                   struct registry **ret, struct err *e)
{
	struct registry *r = draft_alloc(1, sizeof(*r));
	struct tenant *t = draft_alloc(1, sizeof(*t));

	if (sodium_init() < 0)
		abort();
	r->tenants = t;
	r->count = 1;
	(void)uuid_parse(REGISTRY_LOCAL_ID, &t->id);
	memcpy(t->name, "local", sizeof("local"));
	take_digest(t, digest);
	egress_read(NULL, "", NULL, &t->egress);
	/* A registry has to ask for it; here one person decides, whose resolvers these are. */
	t->egress.given = true;
	(void)snprintf(t->egress.dns, sizeof(t->egress.dns), "host");
	limits_read(NULL, "", NULL, &t->limits);
	if (take_roots(t, roots, n, state_dir, e) < 0) {
		registry_free(&r);
		return -1;
	}
	drop_single_part(t);
	registry_index(r);
	*ret = r;
	return 0;
}

bool registry_guest_path(const struct tenant *t, const char *path, struct buf *out)
{
	if (strcmp(t->id.text, REGISTRY_LOCAL_ID) != 0)
		return false;
	if (!t->part_count && trusted_path_inside(path, t->workspace)) {
		buf_addf(out, "/workspace%s", path + strlen(t->workspace));
		return true;
	}
	for (size_t i = 0; i < t->part_count; i++) {
		const struct part *part = &t->parts[i];

		if (!trusted_path_inside(path, part->path))
			continue;
		buf_addf(out, "/workspace/%s%s", part->name, path + strlen(part->path));
		return true;
	}
	return false;
}
