#include "daemon/store/agent.h"

#include "common/fd.h"
#include "daemon/store/internal.h"

#include <stdio.h>

struct addition {
	struct store *store;
	struct tenant_db *db;
	const struct uuid *turn;
	const struct agent_step *step;
	const struct turn_step *usage;
};

static int add(struct pg *pg, void *ctx, struct err *e)
{
	const struct addition *a = ctx;
	const struct agent_step *s = a->step;
	int n;

	if (turn_lock_running(pg, a->turn, e) < 0 ||
	    room_take(a->store, a->db, pg, s->detail_len, e) < 0)
		return -1;
	n = pg_exec(pg,
	            "INSERT INTO app.agent_step (turn, call, number, state, title, detail) "
	            "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
	            PG_PARAMS(pg_uuid(a->turn), pg_int(s->call), pg_int(s->number),
	                      pg_text(s->state), pg_text(s->title),
	                      pg_bytes(s->detail, s->detail_len)),
	            e);
	if (n <= 0)
		return n;
	return item_count_tokens(pg, a->turn, a->usage, e);
}

int agent_step_add(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                   const struct agent_step *step, const struct turn_step *usage, struct err *e)
{
	struct addition a = { .store = s, .turn = turn, .step = step, .usage = usage };

	if (tenant_db_get(s, tenant, &a.db, e) < 0)
		return -1;
	return db_transaction(s->pool, &a.db->key, add, &a, e);
}

static int give(struct pg_rows *rows, int row, void (*fn)(void *ctx, const struct agent_step *step),
                void *ctx, struct err *e)
{
	char state[16], title[65];
	auto_free char *detail = NULL;
	struct agent_step step = { .state = state, .title = title };

	step.call = (uint32_t)pg_get_int(rows, row, 0);
	step.number = (uint32_t)pg_get_int(rows, row, 1);
	pg_get_text(rows, row, 2, state, sizeof(state));
	pg_get_text(rows, row, 3, title, sizeof(title));
	step.detail = detail = pg_get_bytes(rows, row, 4, &step.detail_len);
	if (pg_rows_check(rows, "step of an agent", e) < 0)
		return -1;
	if (!detail)
		return err_set(e, STORE_UNAVAILABLE, "no memory for a step");
	fn(ctx, &step);
	return 0;
}

int agent_steps(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                void (*fn)(void *ctx, const struct agent_step *step), void *ctx, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = {
		"SELECT call, number, state, title, detail FROM app.agent_step WHERE turn = $1 "
		"ORDER BY call, number LIMIT $2",
		PG_PARAMS(pg_uuid(turn), pg_int(AGENT_STEPS_READ)),
	};

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	for (int row = 0; row < pg_rows_count(rows); row++)
		if (give(rows, row, fn, ctx, e) < 0)
			return -1;
	return 0;
}
