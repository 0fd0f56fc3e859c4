/*
 * roster.h - the registry that is in force, and who was let in under which.
 *
 * A registry is replaced as a whole.  A request keeps the one that it was let in under
 * until it ends, so nothing that it looks at changes or goes away.  Thread-safe; nothing
 * here blocks.
 */
#ifndef DAEMON_TENANT_ROSTER_H
#define DAEMON_TENANT_ROSTER_H

#include "daemon/tenant/registry.h"

#include <stdbool.h>

struct roster;

/* One who was let in: whose work this is, and under which token. */
struct caller {
	const struct tenant *tenant; /* as declared when the caller was let in */
	struct registry *registry;
	bool anyone; /* no token was needed */
	unsigned char digest[TOKEN_DIGEST];
};

/*
 * Begin with first, which stays the maker's and outlives the roster.  anyone is the tenant
 * of whoever has no token, or NULL.
 */
int roster_new(struct registry *first, const struct tenant *anyone, struct roster **ret,
               struct err *e) must_check;

/* No caller may be left. */
void roster_free(struct roster **at);

/* Takes next, which is in force when this returns. */
void roster_replace(struct roster *r, struct registry *next);

/* The caller of a bearer token (token NULL = none was sent); NULL = nobody. */
const struct caller *roster_admit(struct roster *r, const char *token, size_t len);
void roster_leave(struct roster *r, const struct caller *c);

/* The token is still this tenant's. */
bool roster_still(struct roster *r, const struct caller *c);

/* The tenants that are declared now: calls fn for each, outside of any lock. */
void roster_each(struct roster *r, void (*fn)(void *ctx, const struct tenant *t), void *ctx);

bool roster_declares(struct roster *r, const struct uuid *tenant);

/* False when the tenant is declared now, and without that model. */
bool roster_allows(struct roster *r, const struct uuid *tenant, const char *model);

/* True when the tenant is declared now, and with that MCP server. */
bool roster_allows_mcp(struct roster *r, const struct uuid *tenant, const char *server);

/* What the operator wants of the tenant's sessions now; nothing of one that is not declared. */
enum tenant_approvals roster_approvals(struct roster *r, const struct uuid *tenant);

#endif
