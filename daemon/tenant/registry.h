/*
 * registry.h - the tenants that the operator declared, read once and then constant.
 *
 * The file is strict JSON (docs/architecture.md): version 1 and 1 to 4,096 tenants
 * with 1 to 16 credentials each.  A registry with any fault is not loaded at all.
 * A loaded one may be read by any thread.
 */
#ifndef DAEMON_TENANT_REGISTRY_H
#define DAEMON_TENANT_REGISTRY_H

#include "common/attr.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/id.h"
#include "daemon/tenant/policy.h"
#include "daemon/tenant/token.h"

#include <stddef.h>
#include <stdint.h>

#define REGISTRY_MAX_BYTES       (16U << 20)
#define REGISTRY_MAX_TENANTS     4096
#define REGISTRY_MAX_CREDENTIALS 16 /* of one tenant */
#define TENANT_NAME_MAX          64
#define REGISTRY_LOCAL_ID                                                      \
	"10ca1000-0000-8000-8000-000000000001" /* of local mode; nobody else's \
	                                        */
#define REGISTRY_MAX_PARTS 16

#define TENANT_MODELS_MAX 32 /* entries of a tenant's list */
#define TENANT_MODEL_MAX  64 /* bytes of a model's id */
#define TENANT_MCP_MAX    24 /* bytes of an MCP server's id */

struct credential {
	struct uuid id;
	unsigned char digest[TOKEN_DIGEST]; /* SHA-256 of the token; the token itself is not kept */
	bool in_file;                       /* declared as tokenFile, else as tokenHash */
};

/* Several directories as one workspace, in local mode: the sandbox sees /workspace/<name>. */
struct part {
	char *path;       /* absolute canonical */
	const char *name; /* its last component */
	struct {
		uint64_t device;
		uint64_t inode;
	} place;
};

/* The ids of the models, or of the MCP servers, that a tenant may use. */
struct model_list {
	bool given; /* false: all of them */
	char (*ids)[TENANT_MODEL_MAX + 1];
	size_t count;
};

/* Who is asked before a tenant's calls; each is stricter than the one before it. */
enum tenant_approvals {
	TENANT_SANDBOX, /* nobody, unless a session asks */
	TENANT_ASK,     /* a person, in every session */
	TENANT_PLAN,    /* a session is opened planning */
};

#define TENANT_APPROVALS 3

struct tenant {
	struct uuid id;
	char name[TENANT_NAME_MAX + 1];
	char *workspace; /* absolute canonical path */
	struct {
		uint64_t device;
		uint64_t inode;
	} place;            /* what that path led to when the registry was read */
	struct part *parts; /* NULL: the workspace is one directory, else it is the first */
	size_t part_count;
	struct credential *credentials;
	size_t credential_count;
	struct egress egress;
	struct limits limits;
	struct model_list models;
	enum tenant_approvals approvals; /* default and least of its sessions */
	struct model_list mcp;           /* MCP servers; not given: none, but in local mode all */
	size_t index;                    /* position in the file, from 0 */
};

struct registry;

/*
 * Read and validate.  Calls fault once for every fault, with one line such as
 * "tenants[1].credentials[0].tokenFile: /srv/x: mode 0644, group or others can read it".
 * state_dir may be NULL (then nothing is compared with it) and need not exist yet.
 * On failure e says how many faults there were.
 */
int registry_load(const char *path, const char *state_dir, struct registry **ret,
                  void (*fault)(void *ctx, const char *line), void *ctx, struct err *e) must_check;

/*
 * The registry of local mode: one tenant, REGISTRY_LOCAL_ID, whose workspace is roots[0..n),
 * 1 to REGISTRY_MAX_PARTS directories.  digest is that of the only token; NULL = none.
 */
int registry_local(char *const *roots, size_t n, const char *state_dir, const unsigned char *digest,
                   struct registry **ret, struct err *e) must_check;

/*
 * Local mode: append where the sandbox sees path, which is absolute and has no empty, "." or
 * ".." component.  By its letters alone.  False when that is nowhere, or the tenant is none of
 * local mode.
 */
bool registry_guest_path(const struct tenant *t, const char *path, struct buf *out);

/* 1 to TENANT_NAME_MAX of a-z, 0-9 and "-", beginning with a letter. */
bool registry_name_valid(const char *name);

/* 1 to TENANT_MODEL_MAX letters, digits and "-._:/". */
bool registry_model_valid(const char *id);

/* True when the registry lets the tenant use that model. */
bool registry_model_allowed(const struct tenant *t, const char *id);

/* The same for MCP servers; 1 to TENANT_MCP_MAX of a-z, 0-9 and "-", a letter first. */
bool registry_mcp_valid(const char *id);
bool registry_mcp_allowed(const struct tenant *t, const char *id);

/* "sandbox", "ask" or "plan". */
const char *registry_approvals_name(enum tenant_approvals approvals);

/* False when it is none of them. */
bool registry_approvals(const char *name, enum tenant_approvals *ret);

void registry_free(struct registry **r);

size_t registry_count(const struct registry *r);

/* In the order of the file; NULL past the end. */
const struct tenant *registry_at(const struct registry *r, size_t index);

const struct tenant *registry_find(const struct registry *r, const struct uuid *id);

/*
 * The tenant whose sandbox sees path, which is canonical, and in *ret_dir the directory of the
 * workspace that it lies in, or NULL.  r may be NULL.
 */
const struct tenant *registry_shows(const struct registry *r, const char *path,
                                    const char **ret_dir);

/*
 * The tenant of a bearer token (len bytes, anything a client sent), or NULL.
 * ret_credential_id, when not NULL, receives the id of the matching credential.
 */
const struct tenant *registry_authenticate(const struct registry *r, const char *token, size_t len,
                                           const char **ret_credential_id);

/* The same for a digest (token.h). */
const struct tenant *registry_match(const struct registry *r,
                                    const unsigned char digest[TOKEN_DIGEST],
                                    const struct credential **ret);

#endif
