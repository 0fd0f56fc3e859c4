#include "daemon/store/earlier.h"

#include "common/fd.h"
#include "daemon/store/internal.h"

#include <stdlib.h>

void summary_release(struct summary *summary)
{
	free(summary->text);
	*summary = (struct summary){ .text = NULL };
}

int summary_get(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                struct summary *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = {
		"SELECT s.turn, through, body FROM app.summary s JOIN app.turn t ON t.id = s.turn "
		"JOIN app.turn now ON now.id = $1 AND t.session = now.session "
		"AND (t.created_ms, t.id) <= (now.created_ms, now.id) "
		"ORDER BY t.created_ms DESC, t.id DESC, through DESC LIMIT 1",
		PG_PARAMS(pg_uuid(turn)),
	};

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	*ret = (struct summary){ .text = NULL };
	if (pg_rows_count(rows) == 0)
		return 0;
	ret->turn = pg_get_uuid(rows, 0, 0);
	ret->through = (uint32_t)pg_get_int(rows, 0, 1);
	ret->text = pg_get_bytes(rows, 0, 2, &ret->len);
	if (pg_rows_check(rows, "summary", e) == 0 && ret->text)
		return 0;
	summary_release(ret);
	return err_set(e, STORE_UNAVAILABLE, "no memory for a summary");
}

struct addition {
	struct store *store;
	struct tenant_db *db;
	const struct uuid *turn;
	const struct summary *summary;
	const struct turn_step *usage;
};

static int add(struct pg *pg, void *ctx, struct err *e)
{
	const struct addition *a = ctx;
	const struct summary *s = a->summary;
	int n;

	if (turn_lock_running(pg, a->turn, e) < 0 || room_take(a->store, a->db, pg, s->len, e) < 0)
		return -1;
	n = pg_exec(pg,
	            "INSERT INTO app.summary (turn, through, created_ms, body) "
	            "VALUES ($1, $2, $3, $4) ON CONFLICT (turn, through) DO NOTHING",
	            PG_PARAMS(pg_uuid(&s->turn), pg_int(s->through), pg_int((int64_t)s->created_ms),
	                      pg_bytes(s->text, s->len)),
	            e);
	if (n <= 0)
		return n;
	return item_count_tokens(pg, a->turn, a->usage, e);
}

int summary_add(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                const struct summary *summary, const struct turn_step *usage, struct err *e)
{
	struct addition a = { .store = s, .turn = turn, .summary = summary, .usage = usage };

	if (tenant_db_get(s, tenant, &a.db, e) < 0)
		return -1;
	return db_transaction(s->pool, &a.db->key, add, &a, e);
}
