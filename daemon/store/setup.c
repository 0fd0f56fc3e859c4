#include "daemon/store/setup.h"

#include "common/fd.h"
#include "common/utf8.h"
#include "daemon/store/internal.h"

#include <stdio.h>
#include <string.h>

static const char *const state_names[] = {
	[SETUP_NONE] = "",       [SETUP_PENDING] = "pending", [SETUP_RUNNING] = "running",
	[SETUP_READY] = "ready", [SETUP_FAILED] = "failed",
};

const char *setup_state_name(enum setup_state state)
{
	return state_names[state];
}

int setup_decode(struct pg_rows *rows, int row, int column, struct setup *ret, struct err *e)
{
	char name[16];

	*ret = (struct setup){ .state = SETUP_NONE };
	pg_get_text(rows, row, column, name, sizeof(name));
	while (ret->state < SETUP_FAILED && strcmp(state_names[ret->state], name) != 0)
		ret->state++;
	if (strcmp(state_names[ret->state], name) != 0)
		return err_set(e, STORE_CORRUPT, "a stored set-up has the state \"%s\"", name);
	pg_get_text(rows, row, column + 1, ret->url, sizeof(ret->url));
	pg_get_text(rows, row, column + 2, ret->ref, sizeof(ret->ref));
	pg_get_text(rows, row, column + 3, ret->branch, sizeof(ret->branch));
	ret->private = pg_get_bool(rows, row, column + 4);
	pg_get_text(rows, row, column + 5, ret->head, sizeof(ret->head));
	pg_get_text(rows, row, column + 6, ret->code, sizeof(ret->code));
	pg_get_text(rows, row, column + 7, ret->error, sizeof(ret->error));
	return 0;
}

int setup_put(struct pg *pg, const struct uuid *session, const struct setup *in, struct err *e)
{
	int n = pg_exec(pg,
	                "INSERT INTO app.setup (session, url, ref, branch, private, setup_state) "
	                "VALUES ($1, $2, $3, $4, $5, 'pending')",
	                PG_PARAMS(pg_uuid(session), pg_text(in->url), pg_text(in->ref),
	                          pg_text(in->branch), pg_bool(in->private)),
	                e);

	return n < 0 ? -1 : 0;
}

int setup_each_unfinished(struct store *s, const struct uuid *tenant,
                          void (*fn)(void *ctx, const struct uuid *session), void *ctx,
                          struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = { "SELECT session FROM app.setup WHERE " SETUP_UNFINISHED
		                 " ORDER BY session",
		                 PG_NO_PARAMS };

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	for (int i = 0; i < pg_rows_count(rows); i++) {
		struct uuid session = pg_get_uuid(rows, i, 0);

		if (pg_rows_check(rows, "set-up", e) < 0)
			return -1;
		fn(ctx, &session);
	}
	return 0;
}

/* -- changes: one statement that says whether it was the right time for it -- */

struct change {
	const struct query *q;
	const char *why_not;
};

static int change(struct pg *pg, void *ctx, struct err *e)
{
	const struct change *c = ctx;
	int n = pg_exec(pg, c->q->sql, c->q->params, c->q->n, e);

	if (n < 0)
		return -1;
	return n > 0 ? 0 : err_set(e, STORE_CONFLICT, "%s", c->why_not);
}

int setup_mark_running(struct store *s, const struct uuid *tenant, const struct uuid *session,
                       struct err *e)
{
	const struct query q = { "UPDATE app.setup SET setup_state = 'running' "
		                 "WHERE session = $1 AND " SETUP_UNFINISHED,
		                 PG_PARAMS(pg_uuid(session)) };
	struct change c = { &q, "the set-up is over, or its session is gone" };

	return tenant_transaction(s, tenant, change, &c, e);
}

int setup_finish(struct store *s, const struct uuid *tenant, const struct uuid *session,
                 const struct setup *end, struct err *e)
{
	const struct query q = {
		"UPDATE app.setup SET setup_state = $2, head = $3, setup_code = $4, "
		"setup_error = $5 WHERE session = $1 AND " SETUP_UNFINISHED,
		PG_PARAMS(pg_uuid(session), pg_text(state_names[end->state]), pg_text(end->head),
		          pg_text(end->code), pg_text(end->error)),
	};
	struct change c = { &q, "the set-up is over, or its session is gone" };

	return tenant_transaction(s, tenant, change, &c, e);
}

int setup_retry(struct store *s, const struct uuid *tenant, const struct uuid *session,
                bool private, struct err *e)
{
	const struct query q = {
		"UPDATE app.setup SET setup_state = 'pending', setup_code = '', setup_error = '', "
		"private = $2 WHERE session = $1 AND setup_state = 'failed'",
		PG_PARAMS(pg_uuid(session), pg_bool(private)),
	};
	struct change c = { &q, "the set-up has not failed" };
	struct tenant_db *db = NULL;
	int rc;

	if (mark_begin(s, tenant, &db, e) < 0)
		return -1;
	rc = db_transaction(s->pool, &db->key, change, &c, e);
	mark_end(db);
	return rc;
}
