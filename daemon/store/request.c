#include "common/fd.h"
#include "daemon/store/internal.h"

#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {
	[REQUEST_OPEN] = "open",
	[REQUEST_ANSWERED] = "answered",
	[REQUEST_WITHDRAWN] = "withdrawn",
	[REQUEST_EXPIRED] = "expired",
};

void request_release(struct request *r)
{
	free(r->prompt);
	free(r->options);
	free(r->decision);
	free(r->value);
	r->prompt = r->options = r->decision = r->value = NULL;
}

/* -- reading -- */

#define COLUMNS                                                                                \
	"id, turn, session, kind, call_id, call_seq, state, created_ms, answered_ms, prompt, " \
	"options, decision, value, expires_ms"

static int decode_values(struct pg_rows *rows, int row, struct request *ret, struct err *e)
{
	size_t len;

	ret->prompt = pg_get_bytes(rows, row, 9, &len);
	ret->options = pg_get_bytes(rows, row, 10, &len);
	ret->decision = pg_get_bytes(rows, row, 11, &len);
	ret->value = pg_get_bytes(rows, row, 12, &len);
	if (!ret->prompt || !ret->options || pg_rows_check(rows, "request", e) < 0) {
		request_release(ret);
		return err_set(e, STORE_UNAVAILABLE, "no memory for a request");
	}
	return 0;
}

static int decode(struct pg_rows *rows, int row, struct request *ret, struct err *e)
{
	char state[16];
	size_t i = 0;

	*ret = (struct request){ .id = pg_get_uuid(rows, row, 0) };
	ret->turn = pg_get_uuid(rows, row, 1);
	ret->session = pg_get_uuid(rows, row, 2);
	pg_get_text(rows, row, 3, ret->kind, sizeof(ret->kind));
	pg_get_text(rows, row, 4, ret->call_id, sizeof(ret->call_id));
	ret->call_seq = (uint32_t)pg_get_int(rows, row, 5);
	pg_get_text(rows, row, 6, state, sizeof(state));
	ret->created_ms = pg_get_ms(rows, row, 7);
	ret->answered_ms = pg_get_ms(rows, row, 8);
	ret->expires_ms = pg_get_ms(rows, row, 13);
	if (pg_rows_check(rows, "request", e) < 0)
		return -1;
	while (i < ARRAY_LEN(state_names) && strcmp(state_names[i], state) != 0)
		i++;
	if (i == ARRAY_LEN(state_names))
		return err_set(e, STORE_CORRUPT, "a stored request has the state \"%s\"", state);
	ret->state = (enum request_state)i;
	return decode_values(rows, row, ret, e);
}

int request_get(struct store *s, const struct uuid *tenant, const struct uuid *id,
                struct request *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	struct request found;
	const struct query q = { "SELECT " COLUMNS " FROM app.request WHERE id = $1",
		                 PG_PARAMS(pg_uuid(id)) };

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_NOT_FOUND, "there is no request %s", id->text);
	if (decode(rows, 0, &found, e) < 0)
		return -1;
	*ret = found;
	return 0;
}

int request_of_call(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                    uint32_t seq, struct request *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	struct request found;
	const struct query q = {
		"SELECT " COLUMNS " FROM app.request WHERE turn = $1 AND call_seq = $2",
		PG_PARAMS(pg_uuid(turn), pg_int(seq)),
	};

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_NOT_FOUND, "nobody was asked about item %u", seq);
	if (decode(rows, 0, &found, e) < 0)
		return -1;
	*ret = found;
	return 0;
}

int request_decided(struct store *s, const struct uuid *tenant, const struct request_precedent *p,
                    bool *ret_found, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = {
		"SELECT FROM app.request AS r JOIN app.item AS i ON i.turn = r.turn AND "
		"i.seq = r.call_seq WHERE r.session = $1 AND r.kind = $2 AND i.tool = $3 AND "
		"r.decision = $4 LIMIT 1",
		PG_PARAMS(pg_uuid(p->session), pg_text(p->kind), pg_text(p->tool),
		          pg_bytes(p->decision, strlen(p->decision))),
	};

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	*ret_found = pg_rows_count(rows) > 0;
	return 0;
}

int request_list(struct store *s, const struct uuid *tenant, const struct request_page *page,
                 void (*fn)(void *ctx, const struct request *r), void *ctx, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = {
		"SELECT " COLUMNS " FROM app.request WHERE state = 'open' "
		"AND ($2::uuid IS NULL OR turn = $2) ORDER BY created_ms DESC, id DESC LIMIT $1",
		PG_PARAMS(pg_int((int64_t)page->limit),
		          pg_text(page->turn ? page->turn->text : NULL)),
	};
	struct request r;

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	for (int i = 0; i < pg_rows_count(rows); i++) {
		if (decode(rows, i, &r, e) < 0)
			return -1;
		fn(ctx, &r);
		request_release(&r);
	}
	return 0;
}

/* -- changing -- */

static int put_request(struct pg *pg, const struct request *r, struct err *e)
{
	int n = pg_exec(
		pg,
		"INSERT INTO app.request (id, turn, session, kind, call_id, call_seq, state, "
		"created_ms, prompt, options, expires_ms) "
		"VALUES ($1, $2, $3, $4, $5, $6, 'open', $7, $8, $9, nullif($10::bigint, 0))",
		PG_PARAMS(pg_uuid(&r->id), pg_uuid(&r->turn), pg_uuid(&r->session),
	                  pg_text(r->kind), pg_text(r->call_id), pg_int(r->call_seq),
	                  pg_int((int64_t)r->created_ms), pg_bytes(r->prompt, strlen(r->prompt)),
	                  pg_bytes(r->options, strlen(r->options)), pg_int((int64_t)r->expires_ms)),
		e);

	return n < 0 ? -1 : 0;
}

struct insertion {
	const struct request *r;
};

static int insert(struct pg *pg, void *ctx, struct err *e)
{
	const struct request *r = ((const struct insertion *)ctx)->r;

	if (turn_lock_running(pg, &r->turn, e) < 0 ||
	    (!r->before_call && item_start(pg, &r->turn, r->call_seq, e) < 0) ||
	    put_request(pg, r, e) < 0)
		return -1;
	return turn_set_state(pg, &r->turn, TURN_WAITING, e);
}

int request_insert(struct store *s, const struct uuid *tenant, const struct request *r,
                   struct err *e)
{
	struct insertion in = { r };

	return tenant_transaction(s, tenant, insert, &in, e);
}

struct answer {
	const struct uuid *id;
	const struct request_decision *d;
};

/* Which turn and call wait for it.  Both never change, so no lock is needed. */
static int find_call(struct pg *pg, const struct uuid *id, struct uuid *ret_turn, uint32_t *ret_seq,
                     struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg, "SELECT turn, call_seq FROM app.request WHERE id = $1",
	             PG_PARAMS(pg_uuid(id)), &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_NOT_FOUND, "there is no request %s", id->text);
	*ret_turn = pg_get_uuid(rows, 0, 0);
	*ret_seq = (uint32_t)pg_get_int(rows, 0, 1);
	return pg_rows_check(rows, "request", e);
}

static int expire_row(struct pg *pg, const struct answer *a, struct err *e)
{
	return pg_exec(pg,
	               "UPDATE app.request SET state = 'expired' "
	               "WHERE id = $1 AND state = 'open' AND expires_ms <= $2",
	               PG_PARAMS(pg_uuid(a->id), pg_int((int64_t)a->d->now_ms)), e);
}

static int answer_row(struct pg *pg, const struct answer *a, struct err *e)
{
	const char *value = a->d->value;

	return pg_exec(
		pg,
		"UPDATE app.request SET state = 'answered', answered_ms = $2, decision = $3, "
		"value = $4 WHERE id = $1 AND state = 'open' "
		"AND (expires_ms IS NULL OR expires_ms > $2)",
		PG_PARAMS(pg_uuid(a->id), pg_int((int64_t)a->d->now_ms),
	                  pg_bytes(a->d->decision, strlen(a->d->decision)),
	                  value ? pg_bytes(value, strlen(value)) : pg_text(NULL)),
		e);
}

static int withdraw_row(struct pg *pg, const struct answer *a, struct err *e)
{
	return pg_exec(pg,
	               "UPDATE app.request SET state = 'withdrawn' "
	               "WHERE id = $1 AND state = 'open'",
	               PG_PARAMS(pg_uuid(a->id)), e);
}

static int close_request(struct pg *pg, const struct answer *a, struct err *e)
{
	int n = a->d->withdrawn  ? withdraw_row(pg, a, e)
	        : a->d->decision ? answer_row(pg, a, e)
	                         : expire_row(pg, a, e);

	if (n == 0)
		return err_set(e, STORE_CONFLICT, "the request is not open any more");
	return n < 0 ? -1 : 0;
}

static int finish_call(struct pg *pg, const struct answer *a, const struct uuid *turn, uint32_t seq,
                       struct err *e)
{
	struct item result;

	if (!a->d->result)
		return 0;
	result = *a->d->result;
	return item_finish(pg, turn, seq, &result, e);
}

static int set_planning(struct pg *pg, const struct answer *a, const struct uuid *turn,
                        struct err *e)
{
	int n = 0;

	if (a->d->planning)
		n = pg_exec(pg,
		            "UPDATE app.session SET planning = $2 "
		            "WHERE id = (SELECT session FROM app.turn WHERE id = $1)",
		            PG_PARAMS(pg_uuid(turn), pg_bool(*a->d->planning)), e);
	return n < 0 ? -1 : 0;
}

/* The turn is locked before the request, in the order in which turn_finish() does it. */
static int answer(struct pg *pg, void *ctx, struct err *e)
{
	const struct answer *a = ctx;
	enum turn_state state = TURN_QUEUED;
	struct uuid turn = { "" };
	uint32_t seq = 0;

	if (find_call(pg, a->id, &turn, &seq, e) < 0 || turn_lock(pg, &turn, &state, e) < 0 ||
	    close_request(pg, a, e) < 0)
		return -1;
	if (state != TURN_WAITING)
		return err_set(e, STORE_CORRUPT, "request %s is open, but turn %s does not wait",
		               a->id->text, turn.text);
	if (finish_call(pg, a, &turn, seq, e) < 0 || set_planning(pg, a, &turn, e) < 0)
		return -1;
	return turn_set_state(pg, &turn, TURN_QUEUED, e);
}

int request_answer(struct store *s, const struct uuid *tenant, const struct uuid *id,
                   const struct request_decision *d, struct err *e)
{
	struct answer a = { id, d };

	return tenant_transaction(s, tenant, answer, &a, e);
}
