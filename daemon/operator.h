/* operator.h - the token of who may read the metrics. */
#ifndef DAEMON_OPERATOR_H
#define DAEMON_OPERATOR_H

#include "daemon/options.h"
#include "daemon/tenant/registry.h"

/*
 * Read --metrics-token-file: a token file like a tenant's (daemon/tenant/token.h), outside of
 * the state directory and of every workspace, with a token that is no tenant's.  state_dir is
 * canonical.
 */
int operator_token(const struct options *o, const char *state_dir, const struct registry *r,
                   unsigned char ret[TOKEN_DIGEST], struct err *e) must_check;

#endif
