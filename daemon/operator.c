#include "daemon/operator.h"

#include "common/fd.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>

static int check_place(const char *path, const char *state_dir, const struct registry *r,
                       struct err *e)
{
	if (trusted_path_inside(path, state_dir))
		return err_set(e, EINVAL, "lies inside the state directory");
	for (size_t i = 0; i < registry_count(r); i++) {
		const struct tenant *t = registry_at(r, i);

		if (trusted_path_inside(path, t->workspace))
			return err_set(e, EINVAL,
			               "lies inside the workspace of %s, who can read it", t->name);
		for (size_t k = 0; k < t->part_count; k++)
			if (trusted_path_inside(path, t->parts[k].path))
				return err_set(e, EINVAL,
				               "lies inside --workspace-root %.200s, where the "
				               "agent can read it",
				               t->parts[k].path);
	}
	return 0;
}

int operator_token(const struct options *o, const char *state_dir, const struct registry *r,
                   unsigned char ret[TOKEN_DIGEST], struct err *e)
{
	auto_free char *path = NULL;
	int rc = trusted_canonical(o->metrics_token_file, &path, e);

	if (rc == 0)
		rc = check_place(path, state_dir, r, e);
	if (rc == 0)
		rc = token_read_file(path, ret, e);
	if (rc == 0 && registry_match(r, ret, NULL))
		rc = err_set(e, EINVAL, "holds the token of a tenant; draw one of its own");
	return rc < 0 ? err_wrap(e, "--metrics-token-file") : 0;
}
