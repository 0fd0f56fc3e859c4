/*
 * store.h - durable state in PostgreSQL: the control database and one database per tenant.
 *
 * libpq stays behind this folder.  Functions block, use parameters only, and
 * return 0 or -1 with one of the codes below.  What a function wrote is committed
 * when it returns 0.  Requests of a tenant run in the tenant's own database as the
 * tenant's own role, which can do nothing but read and write its tables.
 * Thread-safe.
 */
#ifndef DAEMON_STORE_STORE_H
#define DAEMON_STORE_STORE_H

#include "common/err.h"
#include "common/id.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum store_code {
	STORE_UNAVAILABLE =
		ERR_PROGRAM_BASE, /* no connection, or it broke; the write may have happened */
	STORE_NOT_FOUND,          /* no such row in this tenant's database */
	STORE_CONFLICT,           /* a rule of the schema or a state forbids it */
	STORE_BUSY,               /* session has an active turn */
	STORE_CORRUPT,      /* a row that the code cannot understand, or an unexpected SQL error */
	STORE_KEY_REUSED,   /* a client request id that was used before with another input */
	STORE_NO_SUCH_TURN, /* a session has no turn of that index */
	STORE_TENANT_FULL,  /* the tenant's database has reached its bound */
	STORE_UNFIT,        /* of store_open() alone: to wait would change nothing */
	STORE_TAKEN,        /* another daemon works on the database */
};

struct store;

/* A server that somebody else runs, prepared with sql_script(). */
struct store_external {
	unsigned int port;    /* in the name of the socket */
	const char *password; /* of the owner role; not needed after store_open() */
};

struct store_conf {
	const char *socket_dir;       /* of the managed cluster, or where the external one is met */
	unsigned int max_connections; /* over all tenants, at least 4 */
	uint64_t max_tenant_bytes;    /* of one tenant's database; 0 = no bound */
	const struct store_external *external; /* NULL = the managed cluster */
};

/*
 * Connect to the control database, take the lock that keeps a second daemon away,
 * apply its migrations and begin a new start generation (>= 1, grows by one each start).
 * An external server is examined first: STORE_UNFIT, and what to do, when it is not as it
 * has to be, and STORE_UNAVAILABLE as long as it cannot be reached.
 */
int store_open(const struct store_conf *conf, struct store **ret, struct err *e) must_check;
void store_close(struct store **s);

/* The same examination alone, for an external server; ret_text: what it is. */
int store_examine(const struct store_conf *conf, char *ret_text, size_t size, struct err *e)
	must_check;

uint64_t store_generation(const struct store *s);

/* Begin another generation, as a start does; that of store_generation() stays. */
int store_next_generation(struct store *s, uint64_t *ret, struct err *e) must_check;

struct store_use {
	unsigned int busy; /* connections in use */
	unsigned int idle; /* connections that wait for use */
	unsigned int max;  /* of both; one more is always open */
};

struct store_use store_connections(const struct store *s);

/*
 * The lock that keeps a second daemon away belongs to a connection, and a server elsewhere may
 * be restarted.  Takes it again when that was lost, before any other connection is opened.
 * STORE_TAKEN: another daemon was faster, and this one must end.  To be called several times
 * a second where the server is not ours; costs one system call while all is well.
 */
int store_hold(struct store *s, struct err *e) must_check;

/*
 * One trip to the control database, for readiness; STORE_UNAVAILABLE: it is away, has lost us or
 * has not answered yet.  Of an external one it ends within a second, half of it at most for who
 * connects to it meanwhile; the managed one is connected to here, when that was lost.
 */
int store_ping(struct store *s, struct err *e) must_check;

/*
 * Tenants with a turn or a set-up that is not over, as the control database has them
 * marked: calls fn for each.  The mark is committed before the tenant's own
 * commit and removed after its last terminal state, so it may be stale, never missing.
 */
int store_each_unfinished(struct store *s, void (*fn)(void *ctx, const struct uuid *tenant),
                          void *ctx, struct err *e) must_check;

/*
 * Drop everything that is kept of a tenant: database, role, entry in the control database.
 * Nobody should work for the tenant; for who still does, it is not there any more
 * (STORE_NOT_FOUND), and nothing is made anew.  What is gone already does no harm.
 */
int store_purge(struct store *s, const struct uuid *tenant, struct err *e) must_check;

/* Purged tenants for which declared() is true may have a database again. */
void store_readmit(struct store *s, bool (*declared)(void *ctx, const struct uuid *tenant),
                   void *ctx);

/* Remove the mark if no turn and no set-up of the tenant is unfinished. */
int store_settle(struct store *s, const struct uuid *tenant, struct err *e) must_check;

#endif
