#include "daemon/local.h"

#include "common/fd.h"
#include "daemon/tenant/trusted.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE "CLOISTER_TOKEN"

void local_take_token(struct local_token *ret)
{
	char *value = getenv(VARIABLE);

	*ret = (struct local_token){ .given = value != NULL };
	if (!value)
		return;
	if (token_read(value, strlen(value), ret->digest, &ret->fault) < 0)
		(void)err_wrap(&ret->fault, VARIABLE);
	/* The kernel shows where it stood, not what is in the list. */
	sodium_memzero(value, strlen(value));
	(void)unsetenv(VARIABLE);
}

int local_check(const struct options *o, const struct local_token *token, struct err *e)
{
	bool any = token->given || o->token_file;

	if (token->given && !o->workspace_roots.n)
		return err_set(e, EINVAL,
		               VARIABLE " is for local mode; with --tenants, each tenant has its "
		                        "token files");
	if (token->given && o->token_file)
		return err_set(e, EINVAL, "--token-file and " VARIABLE " exclude one another");
	if (token->given && token->fault.code) {
		*e = token->fault;
		return -1;
	}
	if (o->workspace_roots.n && !any && !options_host_is_local(o))
		return err_set(e, EINVAL,
		               "--allow-remote: whoever reaches %.64s could use this server; give "
		               "it a token with --token-file or " VARIABLE,
		               o->host);
	return 0;
}

static int read_token(const struct options *o, const char *state_dir,
                      unsigned char ret[TOKEN_DIGEST], struct err *e)
{
	auto_free char *canonical = NULL;

	if (trusted_canonical(o->token_file, &canonical, e) < 0 ||
	    token_read_file(canonical, ret, e) < 0)
		return err_wrap(e, "--token-file");
	if (trusted_path_inside(canonical, state_dir))
		return err_set(e, EINVAL, "--token-file lies inside the state directory");
	for (size_t i = 0; i < o->workspace_roots.n; i++) {
		auto_free char *root = NULL;

		if (trusted_canonical(o->workspace_roots.v[i], &root, e) < 0)
			return -1;
		if (trusted_path_inside(canonical, root))
			return err_set(
				e, EINVAL,
				"--token-file lies inside --workspace-root %.200s, where the "
				"agent can read it",
				root);
	}
	return 0;
}

int local_registry(const struct options *o, const char *state_dir, const struct local_token *token,
                   struct registry **ret, struct err *e)
{
	unsigned char digest[TOKEN_DIGEST];

	memcpy(digest, token->digest, sizeof(digest));
	if (o->token_file && read_token(o, state_dir, digest, e) < 0)
		return -1;
	return registry_local(o->workspace_roots.v, o->workspace_roots.n, state_dir,
	                      token->given || o->token_file ? digest : NULL, ret, e);
}

const struct tenant *local_anyone(const struct options *o, const struct registry *registry)
{
	const struct tenant *t = registry_at(registry, 0);

	return o->workspace_roots.n && !t->credential_count ? t : NULL;
}
