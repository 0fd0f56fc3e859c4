/*
 * local.h - local mode: one person, no registry.
 */
#ifndef DAEMON_LOCAL_H
#define DAEMON_LOCAL_H

#include "daemon/options.h"
#include "daemon/tenant/registry.h"

/* What CLOISTER_TOKEN held. */
struct local_token {
	bool given;
	struct err fault; /* code 0: digest is good */
	unsigned char digest[TOKEN_DIGEST];
};

/*
 * Take the token out of the environment, which children and /proc/PID/environ would show.
 * To be called first, also where it is then refused.
 */
void local_take_token(struct local_token *ret);

/* With a registry there is no such token; without one, an open port needs one. */
int local_check(const struct options *o, const struct local_token *token, struct err *e) must_check;

int local_registry(const struct options *o, const char *state_dir, const struct local_token *token,
                   struct registry **ret, struct err *e) must_check;

/* The tenant of a request without a token; NULL when one is needed. */
const struct tenant *local_anyone(const struct options *o, const struct registry *registry);

#endif
