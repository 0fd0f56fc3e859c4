/*
 * The bound of a tenant's database.  What counts is the size of its files, as the file
 * system has to hold them.  A measurement is a look at some hundred files, so between
 * two of them what is inserted is added up.  What is deleted leaves holes, which are
 * filled again; files shrink only when they are rewritten, which is done before the holes
 * are a sixteenth of the bound.  So the files exceed it by no more than that.
 */
#include "daemon/store/internal.h"

#include "common/clock.h"
#include "common/fd.h"

#include <inttypes.h>

#define MEASURE_MS      10000
#define MEASURE_FULL_MS 1000
#define HOLES           16  /* their largest share of the bound */
#define ROW_BYTES       256 /* of a row and its index entries, beside its values */

static bool fits(const struct store *s, const struct tenant_db *db, uint64_t bytes)
{
	uint64_t used = db->size.bytes + db->size.added;

	used -= db->size.holes < used ? db->size.holes : used;
	return used + bytes <= s->max_tenant_bytes;
}

/* With the lock held: is the measurement too old to decide by? */
static bool is_stale(const struct store *s, const struct tenant_db *db, uint64_t bytes)
{
	uint64_t age = clock_mono_ms() - db->size.measured_ms;

	return db->size.measured_ms == 0 ||
	       age >= (fits(s, db, bytes) ? MEASURE_MS : MEASURE_FULL_MS);
}

static int measure(struct tenant_db *db, struct pg *pg, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	uint64_t size;

	if (pg_query(pg, "SELECT pg_catalog.pg_database_size(pg_catalog.current_database())",
	             PG_NO_PARAMS, &rows, e) < 0)
		return -1;
	size = (uint64_t)pg_get_int(rows, 0, 0);
	if (pg_rows_check(rows, "database size", e) < 0)
		return -1;
	pthread_mutex_lock(&db->size_lock);
	db->size.bytes = size;
	db->size.added = 0;
	db->size.measured_ms = clock_mono_ms();
	pthread_mutex_unlock(&db->size_lock);
	return 0;
}

static bool take(const struct store *s, struct tenant_db *db, uint64_t bytes)
{
	bool taken;

	pthread_mutex_lock(&db->size_lock);
	taken = fits(s, db, bytes);
	if (taken)
		db->size.added += bytes;
	pthread_mutex_unlock(&db->size_lock);
	return taken;
}

int room_take(struct store *s, struct tenant_db *db, struct pg *pg, uint64_t bytes, struct err *e)
{
	bool stale;

	if (s->max_tenant_bytes == 0)
		return 0;
	bytes += ROW_BYTES;
	pthread_mutex_lock(&db->size_lock);
	stale = is_stale(s, db, bytes);
	pthread_mutex_unlock(&db->size_lock);
	if (stale && measure(db, pg, e) < 0)
		return -1;
	if (take(s, db, bytes))
		return 0;
	return err_set(e, STORE_TENANT_FULL,
	               "the tenant's database has reached its bound of %" PRIu64
	               " bytes; delete sessions, or have the operator raise "
	               "--max-tenant-database-mb",
	               s->max_tenant_bytes);
}

void room_note(struct tenant_db *db, uint64_t bytes)
{
	pthread_mutex_lock(&db->size_lock);
	db->size.added += bytes + ROW_BYTES;
	pthread_mutex_unlock(&db->size_lock);
}

/* A deleted row leaves a hole in its file, which only a rewritten table is without. */
static int rewrite(struct pg *pg, const struct tenant_db *db, struct err *e)
{
	/* All that a session has rows in; each is a command of its own, outside a transaction. */
	static const char *const commands[] = {
		"SET lock_timeout = '2s'",        "VACUUM (FULL) app.item",
		"VACUUM (FULL) app.harness_line", "VACUUM (FULL) app.attachment",
		"VACUUM (FULL) app.request",      "VACUUM (FULL) app.summary",
		"VACUUM (FULL) app.agent_step",   "VACUUM (FULL) app.setup",
		"VACUUM (FULL) app.turn",         "VACUUM (FULL) app.session",
	};

	(void)db;
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (pg_script(pg, commands[i], e) < 0)
			return -1;
	return 0;
}

void room_return(struct store *s, struct tenant_db *db, uint64_t bytes)
{
	uint64_t max = s->max_tenant_bytes;
	struct err e = ERR_INIT;
	bool due;

	pthread_mutex_lock(&db->size_lock);
	db->size.holes += bytes;
	due = db->size.holes >= max / HOLES && db->size.bytes + db->size.added >= max / 4 * 3;
	if (db->size.holes > max / HOLES)
		db->size.holes = max / HOLES;
	pthread_mutex_unlock(&db->size_lock);
	/* When it fails, a table is in use: the next deletion tries again. */
	if (max == 0 || !due || tenant_db_as_owner(s, db, rewrite, &e) < 0)
		return;
	pthread_mutex_lock(&db->size_lock);
	db->size.holes = 0;
	db->size.measured_ms = 0;
	pthread_mutex_unlock(&db->size_lock);
}
