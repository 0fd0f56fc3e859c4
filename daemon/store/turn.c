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
	free(t->attachments);
	t->input = t->attachments = NULL;
}

/* -- reading -- */

#define COUNTED \
	"input_tokens, output_tokens, cached_tokens, reasoning_tokens, coalesce(cost_nano, -1)"
#define COLUMNS                                                                          \
	"id, session, client_request, state, cancel_requested, created_ms, started_ms, " \
	"finished_ms, error_code, error, input, attachments, attachment_bytes, " COUNTED

int turn_get_state(struct pg_rows *rows, int row, int column, enum turn_state *ret, struct err *e)
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
	if (turn_get_state(rows, row, 3, &ret->state, e) < 0)
		return -1;
	ret->cancel_requested = pg_get_bool(rows, row, 4);
	ret->created_ms = pg_get_ms(rows, row, 5);
	ret->started_ms = pg_get_ms(rows, row, 6);
	ret->finished_ms = pg_get_ms(rows, row, 7);
	pg_get_text(rows, row, 8, ret->error_code, sizeof(ret->error_code));
	pg_get_text(rows, row, 9, ret->error, sizeof(ret->error));
	ret->attachment_bytes = (size_t)pg_get_int(rows, row, 12);
	ret->input_tokens = (uint64_t)pg_get_int(rows, row, 13);
	ret->output_tokens = (uint64_t)pg_get_int(rows, row, 14);
	ret->cached_tokens = (uint64_t)pg_get_int(rows, row, 15);
	ret->reasoning_tokens = (uint64_t)pg_get_int(rows, row, 16);
	ret->cost_nano = pg_get_int(rows, row, 17);
	if (pg_rows_check(rows, "turn", e) < 0)
		return -1;
	ret->input = pg_get_bytes(rows, row, 10, &len);
	ret->attachments = pg_get_bytes(rows, row, 11, &len);
	if (ret->input && (ret->attachments || !ret->attachment_bytes))
		return 0;
	turn_release(ret);
	(void)err_set(e, STORE_UNAVAILABLE, "no memory for a turn");
	return -1;
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

/* As COLUMNS, with the beginning of the input. */
#define SHOWN                                                                              \
	"id, session, client_request, state, cancel_requested, created_ms, started_ms, "   \
	"finished_ms, error_code, error, substring(input from 1 for 65536), attachments, " \
	"attachment_bytes, " COUNTED
_Static_assert(TURN_INPUT_SHOWN == 65536, "as in SHOWN");

static int select_page(struct store *s, const struct uuid *tenant, const struct turn_page *page,
                       struct pg_rows **ret, struct err *e)
{
	const struct turn_key *after = page->after;
	const struct pg_param params[] = {
		pg_int((int64_t)page->limit + 1),
		after ? pg_int((int64_t)after->created_ms) : pg_text(NULL),
		pg_text(after ? after->id.text : NULL),
		pg_text(page->session ? page->session->text : NULL),
	};
	const struct query q = {
		page->session ? "SELECT " SHOWN " FROM app.turn WHERE session = $4::uuid AND "
				"($2::bigint IS NULL OR (created_ms, id) < ($2, $3::uuid)) "
				"ORDER BY created_ms DESC, id DESC LIMIT $1"
			      : "SELECT " SHOWN " FROM app.turn WHERE $4::uuid IS NULL AND "
				"($2::bigint IS NULL OR (created_ms, id) < ($2, $3::uuid)) "
				"ORDER BY created_ms DESC, id DESC LIMIT $1",
		params,
		ARRAY_LEN(params),
	};

	return tenant_rows(s, tenant, &q, ret, e);
}

int turn_list(struct store *s, const struct uuid *tenant, struct turn_page *page,
              void (*fn)(void *ctx, const struct turn *t), void *ctx, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	struct turn t;
	size_t count;

	if (select_page(s, tenant, page, &rows, e) < 0)
		return -1;
	count = (size_t)pg_rows_count(rows);
	for (size_t i = 0; i < count && i < page->limit; i++) {
		if (decode(rows, (int)i, &t, e) < 0)
			return -1;
		fn(ctx, &t);
		turn_release(&t);
	}
	page->more = count > page->limit;
	return 0;
}

/*
 * Turns are only ever appended to a session, so an index once seen stays; and most who ask want
 * the newest, so it is counted from there.  One statement, so that the total is of the same moment.
 */
#define TOTAL 18 /* the column behind those of a turn */
static const char history_sql[] =
	"SELECT t.*, n.total "
	"FROM (SELECT count(*) AS total FROM app.turn WHERE session = $1) AS n "
	"LEFT JOIN LATERAL (SELECT " SHOWN " FROM app.turn WHERE session = $1 "
	"ORDER BY created_ms DESC, id DESC OFFSET greatest(n.total - $2, 0) LIMIT $3) AS t ON true "
	"ORDER BY t.created_ms DESC, t.id DESC";

int turn_history(struct store *s, const struct uuid *tenant, struct history_page *page,
                 bool (*fn)(void *ctx, const struct turn *t), void *ctx, struct err *e)
{
	uint64_t before = page->before < INT64_MAX ? page->before : INT64_MAX;
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = { history_sql,
		                 PG_PARAMS(pg_uuid(page->session), pg_int((int64_t)before),
		                           pg_int((int64_t)page->limit)) };
	bool more = true;

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	page->total = (uint64_t)pg_get_int(rows, 0, TOTAL);
	if (pg_rows_check(rows, "history", e) < 0)
		return -1;
	page->end = before < page->total ? before : page->total;
	for (int i = 0; i < pg_rows_count(rows) && !pg_null(rows, i, 0) && more; i++) {
		struct turn t;

		if (decode(rows, i, &t, e) < 0)
			return -1;
		more = fn(ctx, &t);
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
	return turn_get_state(rows, 0, 0, ret, e);
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
	struct store *store;
	struct tenant_db *db;
	bool existing;
	struct turn stored; /* owned; filled when existing */
};

/* The digests in it stand for the bytes. */
static const char *said(const char *attachments)
{
	return attachments ? attachments : "";
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
	    strcmp(in->stored.input, in->t->input) != 0 ||
	    strcmp(said(in->stored.attachments), said(in->t->attachments)) != 0)
		return err_set(e, STORE_KEY_REUSED,
		               "this client request id was used before with another input");
	in->existing = true;
	return 0;
}

/* The order in a session is that of the insertions, also when the clock steps back. */
static int put_row(struct pg *pg, struct turn *t, struct err *e)
{
	const char *client = t->client_request.text[0] ? t->client_request.text : NULL;
	const char *about = t->attachments;
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg,
	             "INSERT INTO app.turn (id, session, client_request, state, created_ms, input, "
	             "attachments, attachment_bytes) VALUES ($1, $2, $3, 'queued', greatest($4, "
	             "(SELECT max(created_ms) + 1 FROM app.turn WHERE session = $2)), $5, $6, $7) "
	             "RETURNING created_ms",
	             PG_PARAMS(pg_uuid(&t->id), pg_uuid(&t->session), pg_text(client),
	                       pg_int((int64_t)t->created_ms), pg_bytes(t->input, strlen(t->input)),
	                       about ? pg_bytes(about, strlen(about)) : pg_text(NULL),
	                       pg_int((int64_t)t->attachment_bytes)),
	             &rows, e) < 0)
		return -1;
	t->created_ms = pg_get_ms(rows, 0, 0);
	t->cost_nano = -1;
	return pg_rows_check(rows, "turn", e);
}

static int put_turn(struct pg *pg, struct turn *t, struct err *e)
{
	const struct item first = { .kind = ITEM_USER,
		                    .body = t->input,
		                    .body_len = strlen(t->input) };

	if (put_row(pg, t, e) < 0 ||
	    pg_exec(pg,
	            "UPDATE app.session SET updated_ms = greatest(updated_ms, $2) WHERE id = $1",
	            PG_PARAMS(pg_uuid(&t->session), pg_int((int64_t)t->created_ms)), e) < 0)
		return -1;
	for (size_t i = 0; i < t->attached_count; i++)
		if (attachment_put(pg, &t->id, (int)i + 1, &t->attached[i], e) < 0)
			return -1;
	return item_put(pg, &t->id, &first, NULL, e);
}

/* The session's row is locked, so the turns of a session are inserted one by one. */
static int insert(struct pg *pg, void *ctx, struct err *e)
{
	struct insertion *in = ctx;

	in->existing = false;
	if (session_lock(pg, &in->t->session, e) < 0 || find_existing(pg, in, e) < 0)
		return -1;
	if (in->existing)
		return 0;
	if (session_check_idle(pg, &in->t->session, e) < 0 ||
	    room_take(in->store, in->db, pg,
	              2 * (uint64_t)strlen(in->t->input) + in->t->attachment_bytes, e) < 0)
		return -1;
	return put_turn(pg, in->t, e);
}

int turn_insert(struct store *s, const struct uuid *tenant, struct turn *t, bool *ret_existing,
                struct err *e)
{
	struct insertion in = { .t = t, .store = s };
	struct tenant_db *db = NULL;
	int rc;

	if (mark_begin(s, tenant, &db, e) < 0)
		return -1;
	in.db = db;
	rc = db_transaction(s->pool, &db->key, insert, &in, e);
	mark_end(db);
	if (rc == 0 && in.existing) {
		turn_release(t);
		*t = in.stored;
		in.stored = (struct turn){ .input = NULL };
	}
	turn_release(&in.stored);
	if (rc < 0)
		return -1;
	if (!in.existing)
		t->state = TURN_QUEUED;
	*ret_existing = in.existing;
	return 0;
}

static int find(struct pg *pg, void *ctx, struct err *e)
{
	struct insertion *in = ctx;

	in->existing = false;
	return find_existing(pg, in, e);
}

int turn_find(struct store *s, const struct uuid *tenant, struct turn *t, struct err *e)
{
	struct insertion in = { .t = t, .store = s };
	int rc = tenant_transaction(s, tenant, find, &in, e);

	if (rc == 0 && in.existing) {
		turn_release(t);
		*t = in.stored;
		return 0;
	}
	turn_release(&in.stored);
	return rc ? -1 : err_set(e, STORE_NOT_FOUND, "there is no turn of that client request id");
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
	size_t len = error ? strnlen(error, TURN_ERROR_MAX + 1) : 0;

	if (len > TURN_ERROR_MAX)
		len = utf8_whole(error, TURN_ERROR_MAX);
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
