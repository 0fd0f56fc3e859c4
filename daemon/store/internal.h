/*
 * internal.h - what the files of this folder share.
 *
 * A tenant's database is "ct_<32 hex>" and its role "cr_<32 hex>".  Both are made when
 * the tenant is first used, one maker at a time.
 */
#ifndef DAEMON_STORE_INTERNAL_H
#define DAEMON_STORE_INTERNAL_H

#include "daemon/store/db.h"
#include "daemon/store/session.h"
#include "daemon/store/turn.h"

#include <pthread.h>
#include <stdatomic.h>

#define OWNER_ROLE       "cloister_owner"
#define CONTROL_DATABASE "cloister"

/* One for each tenant that was used; lives as long as the store. */
struct tenant_db {
	struct tenant_db *next;
	struct uuid id;
	struct pool_key key;

	pthread_mutex_t lock; /* guards the rest; held while provisioning and settling */
	bool ready;           /* role, database and schema are as this release needs them */
	bool marked;          /* as unfinished in the control database, committed */
	unsigned int inserting;

	/* Set with the lock held: nothing is made for it until it is declared again. */
	atomic_bool purged;

	pthread_mutex_t size_lock; /* guards size; nothing is waited for while it is held */
	struct {
		uint64_t bytes;       /* of the database when it was measured */
		uint64_t added;       /* since then, about */
		uint64_t holes;       /* bytes of it that were deleted, until it is rewritten */
		uint64_t measured_ms; /* monotonic; 0 = never */
	} size;
};

#define TENANT_BUCKETS 256

struct store {
	struct pool *pool;
	char *socket_dir, port[6];
	struct secret *secret; /* NULL = the managed cluster */
	struct pg_place place; /* of these */
	uint64_t generation;
	uint64_t max_tenant_bytes;

	pthread_mutex_t guard_lock;
	struct pg *guard; /* holds the lock that keeps a second daemon away */
	struct err away;  /* why it could not be connected again; code 0 = it was not tried */
	atomic_bool looking, found_away; /* store_ping(): one looks; what the last one found */

	pthread_mutex_t tenants_lock; /* guards the chains, not what is in them */
	struct tenant_db *tenants[TENANT_BUCKETS];
};

extern const struct pool_key control_key;

/* The tenant's database, ready for use; made when there is none. */
int tenant_db_get(struct store *s, const struct uuid *tenant, struct tenant_db **ret, struct err *e)
	must_check;

/* The same as it is, ready or not; NULL without memory. */
struct tenant_db *tenant_db_entry(struct store *s, const struct uuid *tenant);

void tenant_db_free_all(struct store *s);

/* As db_rows and db_transaction, in the tenant's database as the tenant's role. */
int tenant_rows(struct store *s, const struct uuid *tenant, const struct query *q,
                struct pg_rows **ret, struct err *e) must_check;
int tenant_transaction(struct store *s, const struct uuid *tenant,
                       int (*body)(struct pg *pg, void *ctx, struct err *e), void *ctx,
                       struct err *e) must_check;

/* Around a transaction that may leave an unfinished turn behind: the mark is committed first. */
int mark_begin(struct store *s, const struct uuid *tenant, struct tenant_db **ret, struct err *e)
	must_check;
void mark_end(struct tenant_db *db);

/*
 * Run fn as the owner in the tenant's database, on a connection of its own.
 */
int tenant_db_as_owner(struct store *s, const struct tenant_db *db,
                       int (*fn)(struct pg *pg, const struct tenant_db *db, struct err *e),
                       struct err *e) must_check;

/*
 * STORE_TENANT_FULL unless the tenant's database has room for so many bytes more, which
 * are counted.  pg is a connection to it.  Measures at most every ten seconds, or once a
 * second near the bound.
 */
int room_take(struct store *s, struct tenant_db *db, struct pg *pg, uint64_t bytes, struct err *e)
	must_check;

/* Count bytes that are inserted in any case, because what they tell has happened. */
void room_note(struct tenant_db *db, uint64_t bytes);

/*
 * So many bytes were deleted and may be used again.  When that is much and the bound is
 * near, the room goes back to the file system, which may take seconds.
 */
void room_return(struct store *s, struct tenant_db *db, uint64_t bytes);

/* -- steps of a transaction; the turn's row is locked first -- */

/* Lock the session; STORE_NOT_FOUND when there is none. */
int session_lock(struct pg *pg, const struct uuid *id, struct err *e) must_check;

/* STORE_BUSY when the session, which is locked, has an active turn. */
int session_check_idle(struct pg *pg, const struct uuid *id, struct err *e) must_check;

/* As session_insert(); *ret_existing: the key was known. */
int session_put(struct pg *pg, struct session *io, const struct client_request *key,
                bool *ret_existing, struct err *e) must_check;

/* The session that key made, if any. */
int session_find_key(struct pg *pg, const struct client_request *key, struct session *ret,
                     bool *ret_found, struct err *e) must_check;

/* STORE_NOT_FOUND when there is no such session. */
int session_read(struct pg *pg, const struct uuid *id, struct session *ret, struct err *e)
	must_check;

/* -- setup.c -- */
#define SETUP_UNFINISHED "setup_state IN ('pending', 'running')"
/* Of app.session LEFT JOIN app.setup, for setup_decode(). */
#define SETUP_COLUMNS                                                          \
	"coalesce(setup_state, ''), coalesce(url, ''), coalesce(ref, ''), "    \
	"coalesce(branch, ''), coalesce(private, false), coalesce(head, ''), " \
	"coalesce(setup_code, ''), coalesce(setup_error, '')"

int setup_decode(struct pg_rows *rows, int row, int column, struct setup *ret, struct err *e)
	must_check;

/* Insert it as pending. */
int setup_put(struct pg *pg, const struct uuid *session, const struct setup *in, struct err *e)
	must_check;

#define TURN_UNFINISHED "state IN ('queued', 'running', 'waiting_for_input')"

/* STORE_NOT_FOUND when there is no such turn. */
int turn_lock(struct pg *pg, const struct uuid *id, enum turn_state *ret, struct err *e) must_check;

/* Lock the turn, and refuse unless it is running. */
int turn_lock_running(struct pg *pg, const struct uuid *id, struct err *e) must_check;
int turn_set_state(struct pg *pg, const struct uuid *id, enum turn_state state, struct err *e)
	must_check;

/* The state in a column. */
int turn_get_state(struct pg_rows *rows, int row, int column, enum turn_state *ret, struct err *e)
	must_check;

/* An item from a row that begins with seq, kind, call_id, tool, call_state, lossy, truncated,
 * total_bytes, body, details, beginning, origin, sealed, opaque.  What was filled in is the
 * caller's, also on failure. */
int item_decode(struct pg_rows *rows, int row, struct item *ret, struct err *e) must_check;

/* Count what an answer took for the turn's session. */
int item_count_tokens(struct pg *pg, const struct uuid *turn, const struct turn_step *step,
                      struct err *e) must_check;

int item_next_seq(struct pg *pg, const struct uuid *turn, uint32_t *ret, struct err *e) must_check;

/* number: from 1 on. */
int attachment_put(struct pg *pg, const struct uuid *turn, int number, const struct attachment *in,
                   struct err *e) must_check;

/* Insert at in->seq; answers is the seq of the call for a result. */
int item_put(struct pg *pg, const struct uuid *turn, const struct item *in, const uint32_t *answers,
             struct err *e) must_check;

/* pending -> started. */
int item_start(struct pg *pg, const struct uuid *turn, uint32_t seq, struct err *e) must_check;

/* Append the result and mark the call done. */
int item_finish(struct pg *pg, const struct uuid *turn, uint32_t seq, struct item *result,
                struct err *e) must_check;

#endif
