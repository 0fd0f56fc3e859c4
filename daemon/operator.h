/* operator.h - secrets of the operator's: the token for the metrics, the URL of the database. */
#ifndef DAEMON_OPERATOR_H
#define DAEMON_OPERATOR_H

#include "daemon/options.h"
#include "daemon/store/url.h"
#include "daemon/tenant/registry.h"

/*
 * Read --metrics-token-file: a token file like a tenant's (daemon/tenant/token.h), outside of
 * the state directory and of every workspace, with a token that is no tenant's.  state_dir is
 * canonical.
 */
int operator_token(const struct options *o, const char *state_dir, const struct registry *r,
                   unsigned char ret[TOKEN_DIGEST], struct err *e) must_check;

/*
 * Read --database-url-file, which has a password in it: the service or root owns it and nobody
 * else reads it, and it lies outside of the same places.  Without a registry only the state
 * directory is looked at.
 */
int operator_database_url(const struct options *o, const char *state_dir, const struct registry *r,
                          struct database_url *ret, struct err *e) must_check;

#endif
