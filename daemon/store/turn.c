#include "daemon/store/turn.h"

#include "common/fd.h"
#include "common/utf8.h"
#include "daemon/store/internal.h"

#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {
	[TURN_QUEUED] = "queued",
	[TURN_RUNNING] = "running",
	[TURN_WAITING] = "waiting_for_input",
	[TURN_COMPLETED] = "completed",
	[TURN_FAILED] = "failed",
	[TURN_CANCELLED] = "cancelled",
};

const char *turn_state_name(enum turn_state state)
{
	return state_names[state];
}

bool turn_state_terminal(enum turn_state state)
{
	return state >= TURN_COMPLETED;
}

void turn_release(struct turn *t)
{
	free(t->input);
	t->input = NULL;
}

/* -- reading -- */

#define COLUMNS                                                                          \
	"id, session, client_request, state, cancel_requested, created_ms, started_ms, " \
	"finished_ms, error_code, error, input"

static int decode_state(struct pg_rows *rows, int row, int column, enum turn_state *ret,
                        struct err *e)
{
	char name[32];

	pg_get_text(rows, row, column, name, sizeof(name));
	for (size_t i = 0; i < ARRAY_LEN(state_names); i++) {
		if (strcmp(state_names[i], name) == 0) {
			*ret = (enum turn_state)i;
			return 0;
		}
	}
	return err_set(e, STORE_CORRUPT, "a stored turn has the state \"%s\"", name);
}

static int decode(struct pg_rows *rows, int row, struct turn *ret, struct err *e)
{
	size_t len;

	*ret = (struct turn){ .id = pg_get_uuid(rows, row, 0) };
	ret->session = pg_get_uuid(rows, row, 1);
	ret->client_request = pg_get_uuid(rows, row, 2);
	if (decode_state(rows, row, 3, &ret->state, e) < 0)
		return -1;
	ret->cancel_requested = pg_get_bool(rows, row, 4);
	ret->created_ms = pg_get_ms(rows, row, 5);
	ret->started_ms = pg_get_ms(rows, row, 6);
	ret->finished_ms = pg_get_ms(rows, row, 7);
	pg_get_text(rows, row, 8, ret->error_code, sizeof(ret->error_code));
	pg_get_text(rows, row, 9, ret->error, sizeof(ret->error));
	if (pg_rows_check(rows, "turn", e) < 0)
		return -1;
	ret->input = pg_get_bytes(rows, row, 10, &len);
	return ret->input ? 0 : err_set(e, STORE_UNAVAILABLE, "no memory for a turn");
}

int turn_get(struct store *s, const struct uuid *tenant, const struct uuid *id, struct turn *ret,
             struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	struct turn found;
	const struct query q = { "SELECT " COLUMNS " FROM app.turn WHERE id = $1",
		                 PG_PARAMS(pg_uuid(id)) };

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_NOT_FOUND, "there is no turn %s", id->text);
	if (decode(rows, 0, &found, e) < 0)
		return -1;
	*ret = found;
	return 0;
}

int turn_each_unfinished(struct store *s, const struct uuid *tenant,
                         void (*fn)(void *ctx, const struct turn *t), void *ctx, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = { "SELECT " COLUMNS " FROM app.turn WHERE " TURN_UNFINISHED
		                 " ORDER BY created_ms, id",
		                 PG_NO_PARAMS };
	struct turn t;

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	for (int i = 0; i < pg_rows_count(rows); i++) {
		if (decode(rows, i, &t, e) < 0)
			return -1;
		fn(ctx, &t);
		turn_release(&t);
	}
	return 0;
}

/* -- steps -- */

int turn_lock(struct pg *pg, const struct uuid *id, enum turn_state *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg, "SELECT state FROM app.turn WHERE id = $1 FOR NO KEY UPDATE",
	             PG_PARAMS(pg_uuid(id)), &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_NOT_FOUND, "there is no turn %s", id->text);
	return decode_state(rows, 0, 0, ret, e);
}

static int wrong_state(enum turn_state state, struct err *e)
{
	return err_set(e, STORE_CONFLICT, "the turn is %s", state_names[state]);
}

int turn_lock_running(struct pg *pg, const struct uuid *id, struct err *e)
{
	enum turn_state state = TURN_QUEUED;

	if (turn_lock(pg, id, &state, e) < 0)
		return -1;
	return state == TURN_RUNNING ? 0 : wrong_state(state, e);
}

int turn_set_state(struct pg *pg, const struct uuid *id, enum turn_state state, struct err *e)
{
	int n = pg_exec(pg, "UPDATE app.turn SET state = $2 WHERE id = $1",
	                PG_PARAMS(pg_uuid(id), pg_text(state_names[state])), e);

	return n < 0 ? -1 : 0;
}

/* -- insert -- */

struct insertion {
	struct turn *t;
	bool existing;
	struct turn stored; /* owned; filled when existing */
};

static int lock_session(struct pg *pg, const struct uuid *id, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg, "SELECT FROM app.session WHERE id = $1 FOR NO KEY UPDATE",
	             PG_PARAMS(pg_uuid(id)), &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_NOT_FOUND, "there is no session %s", id->text);
	return 0;
}

/* Look for a turn with the same client request id. */
static int find_existing(struct pg *pg, struct insertion *in, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (!in->t->client_request.text[0])
		return 0;
	if (pg_query(pg, "SELECT " COLUMNS " FROM app.turn WHERE client_request = $1",
	             PG_PARAMS(pg_uuid(&in->t->client_request)), &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return 0;
	turn_release(&in->stored);
	if (decode(rows, 0, &in->stored, e) < 0)
		return -1;
	if (!uuid_equal(&in->stored.session, &in->t->session) ||
	    strcmp(in->stored.input, in->t->input) != 0)
		return err_set(e, STORE_CONFLICT,
		               "this client request id was used before with another input");
	in->existing = true;
	return 0;
}

static int check_idle(struct pg *pg, const struct uuid *session, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg, "SELECT FROM app.turn WHERE session = $1 AND " TURN_UNFINISHED,
	             PG_PARAMS(pg_uuid(session)), &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) > 0)
		return err_set(e, STORE_BUSY, "the session has an active turn");
	return 0;
}

static int put_turn(struct pg *pg, const struct turn *t, struct err *e)
{
	size_t len = strlen(t->input);
	const struct item first = { .kind = ITEM_USER, .body = t->input, .body_len = len };
	const char *client = t->client_request.text[0] ? t->client_request.text : NULL;

	if (pg_exec(pg,
	            "INSERT INTO app.turn (id, session, client_request, state, created_ms, input) "
	            "VALUES ($1, $2, $3, 'queued', $4, $5)",
	            PG_PARAMS(pg_uuid(&t->id), pg_uuid(&t->session), pg_text(client),
	                      pg_int((int64_t)t->created_ms), pg_bytes(t->input, len)),
	            e) < 0 ||
	    pg_exec(pg,
	            "UPDATE app.session SET updated_ms = greatest(updated_ms, $2) WHERE id = $1",
	            PG_PARAMS(pg_uuid(&t->session), pg_int((int64_t)t->created_ms)), e) < 0)
		return -1;
	return item_put(pg, &t->id, &first, NULL, e);
}

/* The session's row is locked, so the turns of a session are inserted one by one. */
static int insert(struct pg *pg, void *ctx, struct err *e)
{
	struct insertion *in = ctx;

	in->existing = false;
	if (lock_session(pg, &in->t->session, e) < 0 || find_existing(pg, in, e) < 0)
		return -1;
	if (in->existing)
		return 0;
	if (check_idle(pg, &in->t->session, e) < 0)
		return -1;
	return put_turn(pg, in->t, e);
}

int turn_insert(struct store *s, const struct uuid *tenant, struct turn *t, bool *ret_existing,
                struct err *e)
{
	struct insertion in = { .t = t };
	struct tenant_db *db = NULL;
	int rc;

	if (mark_begin(s, tenant, &db, e) < 0)
		return -1;
	rc = db_transaction(s->pool, &db->key, insert, &in, e);
	mark_end(db);
	if (rc == 0 && in.existing) {
		turn_release(t);
		*t = in.stored;
		in.stored.input = NULL;
	}
	turn_release(&in.stored);
	if (rc < 0)
		return -1;
	if (!in.existing)
		t->state = TURN_QUEUED;
	*ret_existing = in.existing;
	return 0;
}

/* -- changing the state -- */

struct change {
	const struct uuid *id;
	const struct turn_end *end;
	uint64_t now_ms;
	char error[TURN_ERROR_MAX + 1];
};

static int mark_running(struct pg *pg, void *ctx, struct err *e)
{
	const struct change *c = ctx;
	enum turn_state state = TURN_QUEUED;
	int n;

	if (turn_lock(pg, c->id, &state, e) < 0)
		return -1;
	if (state != TURN_QUEUED && state != TURN_RUNNING)
		return wrong_state(state, e);
	n = pg_exec(pg,
	            "UPDATE app.turn SET state = 'running', started_ms = coalesce(started_ms, $2) "
	            "WHERE id = $1",
	            PG_PARAMS(pg_uuid(c->id), pg_int((int64_t)c->now_ms)), e);
	return n < 0 ? -1 : 0;
}

int turn_mark_running(struct store *s, const struct uuid *tenant, const struct uuid *id,
                      uint64_t now_ms, struct err *e)
{
	struct change c = { .id = id, .now_ms = now_ms };

	return tenant_transaction(s, tenant, mark_running, &c, e);
}

static int request_cancel(struct pg *pg, void *ctx, struct err *e)
{
	const struct change *c = ctx;
	enum turn_state state = TURN_QUEUED;
	int n;

	if (turn_lock(pg, c->id, &state, e) < 0)
		return -1;
	if (turn_state_terminal(state))
		return wrong_state(state, e);
	n = pg_exec(pg, "UPDATE app.turn SET cancel_requested = true WHERE id = $1",
	            PG_PARAMS(pg_uuid(c->id)), e);
	return n < 0 ? -1 : 0;
}

int turn_request_cancel(struct store *s, const struct uuid *tenant, const struct uuid *id,
                        struct err *e)
{
	struct change c = { .id = id };

	return tenant_transaction(s, tenant, request_cancel, &c, e);
}

static int finish(struct pg *pg, void *ctx, struct err *e)
{
	const struct change *c = ctx;
	const char *code = c->end->error_code ? c->end->error_code : "";
	enum turn_state state = TURN_QUEUED;

	if (turn_lock(pg, c->id, &state, e) < 0)
		return -1;
	if (turn_state_terminal(state))
		return wrong_state(state, e);
	if (pg_exec(pg,
	            "UPDATE app.turn SET state = $2, finished_ms = $3, error_code = $4, error = $5 "
	            "WHERE id = $1",
	            PG_PARAMS(pg_uuid(c->id), pg_text(state_names[c->end->state]),
	                      pg_int((int64_t)c->end->now_ms), pg_text(code), pg_text(c->error)),
	            e) < 0 ||
	    pg_exec(pg,
	            "UPDATE app.request SET state = 'withdrawn' WHERE turn = $1 AND state = 'open'",
	            PG_PARAMS(pg_uuid(c->id)), e) < 0)
		return -1;
	return 0;
}

/* An end must never fail for the sake of its text. */
static void fit_error(const char *error, char ret[TURN_ERROR_MAX + 1])
{
	auto_buf struct buf text = BUF_INIT(3 * (size_t)TURN_ERROR_MAX);
	size_t len = error ? strnlen(error, TURN_ERROR_MAX) : 0;

	(void)utf8_repair(error, len, &text);
	len = text.len > TURN_ERROR_MAX ? TURN_ERROR_MAX : text.len;
	len = utf8_whole(text.data, len);
	if (len)
		memcpy(ret, text.data, len);
	ret[len] = '\0';
}

int turn_finish(struct store *s, const struct uuid *tenant, const struct uuid *id,
                const struct turn_end *end, struct err *e)
{
	struct change c = { .id = id, .end = end };

	if (!turn_state_terminal(end->state))
		return err_set(e, STORE_CONFLICT, "%s is no end", state_names[end->state]);
	fit_error(end->error, c.error);
	return tenant_transaction(s, tenant, finish, &c, e);
}
