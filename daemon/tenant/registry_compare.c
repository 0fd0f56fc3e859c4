/*
 * Comparing the values of a registry with one another.
 *
 * With 4,096 tenants and 65,536 credentials every comparison goes by sorting:
 * equal values become neighbours, and a path that lies inside another follows it.
 */
#include "common/fd.h"
#include "daemon/tenant/registry_draft.h"
#include "daemon/tenant/trusted.h"

#include <stdlib.h>
#include <string.h>

#define PATH_SIZE 96 /* of "tenants[4095].credentials[15].tokenFile" with room to spare */

void draft_path(const struct entry *at, const char *field, char *ret, size_t size)
{
	if (at->credential == NOT_A_CREDENTIAL)
		(void)snprintf(ret, size, "tenants[%zu].%s", at->tenant, field);
	else
		(void)snprintf(ret, size, "tenants[%zu].credentials[%zu].%s", at->tenant,
		               at->credential, field);
}

/* -- duplicates ------------------------------------------------------------------------ */

static int compare_keys(const struct entry *a, const struct entry *b)
{
	if (a->len != b->len)
		return a->len < b->len ? -1 : 1;
	return memcmp(a->key, b->key, a->len);
}

static int compare_entries(const void *x, const void *y)
{
	const struct entry *a = x, *b = y;
	int order = compare_keys(a, b);

	if (order)
		return order;
	if (a->tenant != b->tenant)
		return a->tenant < b->tenant ? -1 : 1;
	return a->credential < b->credential ? -1 : a->credential > b->credential;
}

/* field NULL: the one in which that credential has its token. */
static void entry_path(const struct draft *d, const struct entry *at, const char *field, char *ret,
                       size_t size)
{
	if (!field)
		field = secret_field(&d->registry->tenants[at->tenant].credentials[at->credential]);
	draft_path(at, field, ret, size);
}

/* Each but the first of equal entries is a fault that names the first. */
static void refuse_duplicates(struct draft *d, const struct entries *list, const char *field,
                              const char *what)
{
	size_t first = 0;

	if (list->n < 2)
		return;
	qsort(list->v, list->n, sizeof(*list->v), compare_entries);
	for (size_t i = 1; i < list->n; i++) {
		char path[PATH_SIZE], other[PATH_SIZE];

		if (compare_keys(&list->v[first], &list->v[i]) != 0) {
			first = i;
			continue;
		}
		entry_path(d, &list->v[i], field, path, sizeof(path));
		entry_path(d, &list->v[first], field, other, sizeof(other));
		json_fault(&d->faults, path, "%s %s", what, other);
	}
}

/* -- overlaps -------------------------------------------------------------------------- */

/* As strcmp, with '/' before every other character: what lies in /a comes before /a-b. */
static int compare_paths(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	if (*a == *b)
		return 0;
	if (!*a || !*b)
		return *a ? 1 : -1;
	if (*a == '/' || *b == '/')
		return *a == '/' ? -1 : 1;
	return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
}

static int compare_workspaces(const void *x, const void *y)
{
	const struct entry *a = x, *b = y;
	int order = compare_paths(a->key, b->key);

	if (order)
		return order;
	return a->tenant < b->tenant ? -1 : a->tenant > b->tenant;
}

/*
 * Sorts the workspaces and reports those inside others.  Keeps, in front, the ones
 * that lie in no other: their number is returned.
 */
static size_t refuse_nested(struct draft *d)
{
	struct entries *w = &d->workspaces;
	size_t outer = 0;

	if (!w->n)
		return 0;
	qsort(w->v, w->n, sizeof(*w->v), compare_workspaces);
	for (size_t i = 1; i < w->n; i++) {
		const struct entry *top = &w->v[outer], *at = &w->v[i];
		char path[PATH_SIZE], other[PATH_SIZE];

		if (!trusted_path_inside(at->key, top->key)) {
			w->v[++outer] = *at;
			continue;
		}
		draft_path(at, "workspaceRoot", path, sizeof(path));
		draft_path(top, "workspaceRoot", other, sizeof(other));
		if (at->len > top->len) /* equal paths are reported as the same directory */
			json_fault(&d->faults, path, "lies inside %s", other);
	}
	return outer + 1;
}

/* The workspace among the first n, sorted and none inside another, that holds path; or NULL. */
static const struct entry *holder(const struct draft *d, size_t n, const char *path)
{
	const struct entry *v = d->workspaces.v;
	size_t low = 0;

	while (low < n) { /* v[0..low) sort before or at path, v[n..) after it */
		size_t middle = low + (n - low) / 2;

		if (compare_paths(v[middle].key, path) <= 0)
			low = middle + 1;
		else
			n = middle;
	}
	return low && trusted_path_inside(path, v[low - 1].key) ? &v[low - 1] : NULL;
}

static void compare_with_state(struct draft *d)
{
	const char *state = d->state_dir;

	for (size_t i = 0; state && i < d->workspaces.n; i++) {
		const struct entry *at = &d->workspaces.v[i];
		char path[PATH_SIZE];

		draft_path(at, "workspaceRoot", path, sizeof(path));
		if (trusted_path_inside(at->key, state))
			json_fault(&d->faults, path, "lies inside the state directory");
		else if (trusted_path_inside(state, at->key))
			json_fault(&d->faults, path, "the state directory lies inside it");
	}
	if (state && d->registry_path && trusted_path_inside(d->registry_path, state))
		json_fault(&d->faults, "", "the registry lies inside the state directory");
}

static void compare_token_files(struct draft *d, size_t outer)
{
	for (size_t i = 0; i < d->token_files.n; i++) {
		const struct entry *at = &d->token_files.v[i], *workspace;
		char path[PATH_SIZE], other[PATH_SIZE];

		draft_path(at, "tokenFile", path, sizeof(path));
		if (d->state_dir && trusted_path_inside(at->key, d->state_dir))
			json_fault(&d->faults, path, "lies inside the state directory");
		workspace = holder(d, outer, at->key);
		if (!workspace)
			continue;
		draft_path(workspace, "workspaceRoot", other, sizeof(other));
		json_fault(&d->faults, path, "lies inside %s, where the tenant can read it", other);
	}
}

void draft_compare(struct draft *d)
{
	const struct entry *workspace;
	char path[PATH_SIZE];
	size_t outer;

	refuse_duplicates(d, &d->ids, "id", "the same id as");
	refuse_duplicates(d, &d->names, "name", "the same name as");
	refuse_duplicates(d, &d->credential_ids, "id", "the same id as");
	refuse_duplicates(d, &d->digests, NULL, "the same token as");
	refuse_duplicates(d, &d->places, "workspaceRoot", "the same directory as");
	compare_with_state(d);
	outer = refuse_nested(d);
	compare_token_files(d, outer);
	workspace = d->registry_path ? holder(d, outer, d->registry_path) : NULL;
	if (workspace) {
		draft_path(workspace, "workspaceRoot", path, sizeof(path));
		json_fault(&d->faults, path, "the registry lies inside it");
	}
}
