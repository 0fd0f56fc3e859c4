#include "common/fd.h"
#include "daemon/store/internal.h"

#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {
	[ITEM_USER] = "user",           [ITEM_ASSISTANT] = "assistant",
	[ITEM_TOOL_CALL] = "tool_call", [ITEM_TOOL_RESULT] = "tool_result",
	[ITEM_REASONING] = "reasoning", [ITEM_DISCARDED] = "discarded",
};

static const char *const call_names[] = {
	[CALL_NONE] = NULL, /* null in the table */
	[CALL_PENDING] = "pending",
	[CALL_STARTED] = "started",
	[CALL_DONE] = "done",
};

void item_list_release(struct item_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->items[i].body);
		free(list->items[i].details);
		free(list->items[i].opaque);
	}
	free(list->items);
	*list = (struct item_list){ NULL, 0 };
}

/* -- reading -- */

static size_t index_of(const char *const *names, size_t n, const char *name)
{
	size_t i = 0;

	while (i < n && !(names[i] && strcmp(names[i], name) == 0))
		i++;
	return i;
}

static int decode_bytes(struct pg_rows *rows, int row, struct item *ret, struct err *e)
{
	size_t len;

	ret->body = pg_get_bytes(rows, row, 8, &ret->body_len);
	ret->details = pg_get_bytes(rows, row, 9, &len);
	ret->beginning = pg_get_bool(rows, row, 10);
	pg_get_text(rows, row, 11, ret->origin, sizeof(ret->origin));
	ret->sealed = pg_get_bool(rows, row, 12);
	ret->opaque = pg_get_bytes(rows, row, 13, &ret->opaque_len);
	if (!ret->body || pg_rows_check(rows, "item", e) < 0)
		return err_set(e, STORE_UNAVAILABLE, "no memory for an item");
	return 0;
}

int item_decode(struct pg_rows *rows, int row, struct item *ret, struct err *e)
{
	char kind[16], state[16] = "";
	size_t k, c = CALL_NONE;

	ret->seq = (uint32_t)pg_get_int(rows, row, 0);
	pg_get_text(rows, row, 1, kind, sizeof(kind));
	pg_get_text(rows, row, 2, ret->call_id, sizeof(ret->call_id));
	pg_get_text(rows, row, 3, ret->tool, sizeof(ret->tool));
	if (!pg_null(rows, row, 4)) {
		pg_get_text(rows, row, 4, state, sizeof(state));
		c = index_of(call_names, ARRAY_LEN(call_names), state);
	}
	ret->lossy = pg_get_bool(rows, row, 5);
	ret->truncated = pg_get_bool(rows, row, 6);
	ret->total_bytes = (uint64_t)pg_get_int(rows, row, 7);
	k = index_of(kind_names, ARRAY_LEN(kind_names), kind);
	if (pg_rows_check(rows, "item", e) < 0)
		return -1;
	if (k == ARRAY_LEN(kind_names) || c == ARRAY_LEN(call_names))
		return err_set(e, STORE_CORRUPT, "stored item %u is of no known kind", ret->seq);
	ret->kind = (enum item_kind)k;
	ret->call_state = (enum call_state)c;
	return decode_bytes(rows, row, ret, e);
}

/* Item number row of its turn. */
static int decode(struct pg_rows *rows, int row, struct item *ret, struct err *e)
{
	if (item_decode(rows, row, ret, e) < 0)
		return -1;
	return ret->seq == (uint32_t)row
	               ? 0
	               : err_set(e, STORE_CORRUPT, "stored item %d is out of order", row);
}

static int read_items(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                      const char *sql, struct item_list *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	struct item_list list = { NULL, 0 };
	const struct query q = { sql, PG_PARAMS(pg_uuid(turn)) };
	size_t count;

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	count = (size_t)pg_rows_count(rows);
	if (count == 0) /* every turn has its first */
		return err_set(e, STORE_NOT_FOUND, "there is no turn %s", turn->text);
	list.items = calloc(count, sizeof(*list.items));
	if (!list.items)
		return err_set(e, STORE_UNAVAILABLE, "no memory for %zu items", count);
	list.count = count;
	for (size_t i = 0; i < count; i++) {
		if (decode(rows, (int)i, &list.items[i], e) < 0) {
			item_list_release(&list);
			return err_wrap(e, "turn %s", turn->text);
		}
	}
	*ret = list;
	return 0;
}

#define COLUMNS "seq, kind, call_id, tool, call_state, lossy, truncated, total_bytes, "

int turn_items(struct store *s, const struct uuid *tenant, const struct uuid *turn,
               struct item_list *ret, struct err *e)
{
	return read_items(s, tenant, turn,
	                  "SELECT " COLUMNS
	                  "body, details, false, origin, opaque IS NOT NULL, opaque "
	                  "FROM app.item WHERE turn = $1 ORDER BY seq",
	                  ret, e);
}

int turn_items_shown(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                     struct item_list *ret, struct err *e)
{
	static const char sql[] =
		"SELECT " COLUMNS "CASE WHEN before >= 262144 THEN '' WHEN kind = 'tool_call' "
		"THEN body ELSE substring(body from 1 for 65536) END, details, "
		"CASE WHEN before >= 262144 THEN len > 0 ELSE len > shown END, "
		"origin, opaque IS NOT NULL, NULL::bytea "
		"FROM (SELECT *, sum(shown) OVER (ORDER BY seq) - shown AS before "
		"FROM (SELECT *, octet_length(body) AS len, CASE WHEN kind = 'tool_call' "
		"THEN octet_length(body) ELSE least(octet_length(body), 65536) END AS shown "
		"FROM app.item WHERE turn = $1 ORDER BY seq LIMIT 2048) AS sized) AS summed "
		"ORDER BY seq";

	_Static_assert(ITEMS_SHOWN == 2048 && ITEM_TEXT_SHOWN == 65536 &&
	                       ITEMS_TEXT_SHOWN == 262144,
	               "as in the statement");
	return read_items(s, tenant, turn, sql, ret, e);
}

/* -- steps -- */

int item_next_seq(struct pg *pg, const struct uuid *turn, uint32_t *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg, "SELECT coalesce(max(seq) + 1, 0) FROM app.item WHERE turn = $1",
	             PG_PARAMS(pg_uuid(turn)), &rows, e) < 0)
		return -1;
	*ret = (uint32_t)pg_get_int(rows, 0, 0);
	return pg_rows_check(rows, "item number", e);
}

int item_put(struct pg *pg, const struct uuid *turn, const struct item *in, const uint32_t *answers,
             struct err *e)
{
	int n = pg_exec(
		pg,
		"INSERT INTO app.item (turn, seq, kind, call_id, tool, call_state, answers, lossy, "
		"truncated, total_bytes, body, details, origin, opaque) "
		"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		PG_PARAMS(pg_uuid(turn), pg_int(in->seq), pg_text(kind_names[in->kind]),
	                  pg_text(in->call_id), pg_text(in->tool),
	                  pg_text(call_names[in->call_state]),
	                  answers ? pg_int(*answers) : pg_text(NULL), pg_bool(in->lossy),
	                  pg_bool(in->truncated), pg_int((int64_t)in->total_bytes),
	                  pg_bytes(in->body, in->body_len),
	                  in->details ? pg_bytes(in->details, strlen(in->details)) : pg_text(NULL),
	                  pg_text(in->origin),
	                  in->opaque ? pg_bytes(in->opaque, in->opaque_len) : pg_text(NULL)),
		e);

	return n < 0 ? -1 : 0;
}

int item_start(struct pg *pg, const struct uuid *turn, uint32_t seq, struct err *e)
{
	int n = pg_exec(pg,
	                "UPDATE app.item SET call_state = 'started' "
	                "WHERE turn = $1 AND seq = $2 AND call_state = 'pending'",
	                PG_PARAMS(pg_uuid(turn), pg_int(seq)), e);

	if (n == 0)
		return err_set(e, STORE_CONFLICT, "item %u is no pending call", seq);
	return n < 0 ? -1 : 0;
}

int item_finish(struct pg *pg, const struct uuid *turn, uint32_t seq, struct item *result,
                struct err *e)
{
	int n = pg_exec(pg,
	                "UPDATE app.item SET call_state = 'done' "
	                "WHERE turn = $1 AND seq = $2 AND call_state IN ('pending', 'started')",
	                PG_PARAMS(pg_uuid(turn), pg_int(seq)), e);

	if (n < 0)
		return -1;
	if (n == 0)
		return err_set(e, STORE_CONFLICT, "item %u is no open call", seq);
	result->kind = ITEM_TOOL_RESULT;
	result->call_state = CALL_NONE;
	if (item_next_seq(pg, turn, &result->seq, e) < 0)
		return -1;
	return item_put(pg, turn, result, &seq, e);
}

/* -- changing -- */

struct change {
	const struct uuid *turn;
	struct store *store;
	struct tenant_db *db;
	struct turn_step *step;
	struct item *result;
	uint32_t seq;
};

#define TOKENS_MAX ((uint64_t)9007199254740991) /* what JSON numbers hold exactly */

static int64_t tokens(uint64_t n)
{
	return (int64_t)(n < TOKENS_MAX ? n : TOKENS_MAX);
}

/* Null is not known, and with something that is, it is that. */
#define COUNT                                                           \
	"input_tokens = least(input_tokens + $2, $7), "                 \
	"output_tokens = least(output_tokens + $3, $7), "               \
	"cached_tokens = least(cached_tokens + $4, $7), "               \
	"reasoning_tokens = least(reasoning_tokens + $5, $7), "         \
	"cost_nano = CASE WHEN $6::bigint IS NULL THEN cost_nano ELSE " \
	"least(coalesce(cost_nano, 0) + $6, $7) END"

int item_count_tokens(struct pg *pg, const struct uuid *turn, const struct turn_step *step,
                      struct err *e)
{
	bool priced = step->cost_nano >= 0;
	const struct pg_param params[] = {
		pg_uuid(turn),
		pg_int(tokens(step->input_tokens)),
		pg_int(tokens(step->output_tokens)),
		pg_int(tokens(step->cached_tokens)),
		pg_int(tokens(step->reasoning_tokens)),
		priced ? pg_int(tokens((uint64_t)step->cost_nano)) : pg_text(NULL),
		pg_int((int64_t)TOKENS_MAX),
	};

	if (!step->input_tokens && !step->output_tokens && !step->cached_tokens)
		return 0;
	if (pg_exec(pg, "UPDATE app.turn SET " COUNT " WHERE id = $1", params, ARRAY_LEN(params),
	            e) < 0 ||
	    pg_exec(pg,
	            "UPDATE app.session SET " COUNT
	            " WHERE id = (SELECT session FROM app.turn WHERE id = $1)",
	            params, ARRAY_LEN(params), e) < 0)
		return -1;
	return 0;
}

static int append(struct pg *pg, void *ctx, struct err *e)
{
	const struct change *c = ctx;
	struct turn_step *step = c->step;
	uint64_t bytes = 0;
	uint32_t seq;

	for (size_t i = 0; i < step->count; i++)
		bytes += step->items[i].body_len + step->items[i].opaque_len;
	if (turn_lock_running(pg, c->turn, e) < 0 || room_take(c->store, c->db, pg, bytes, e) < 0 ||
	    item_next_seq(pg, c->turn, &seq, e) < 0)
		return -1;
	if (step->first && seq != step->first)
		return err_set(e, STORE_CONFLICT, "the turn has %u items, not %u", seq,
		               step->first);
	for (size_t i = 0; i < step->count; i++) {
		step->items[i].seq = seq + (uint32_t)i;
		if (item_put(pg, c->turn, &step->items[i], NULL, e) < 0)
			return -1;
	}
	return item_count_tokens(pg, c->turn, step, e);
}

int turn_append(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                struct turn_step *step, struct err *e)
{
	struct change c = { .turn = turn, .store = s, .step = step };

	for (size_t i = 0; i < step->count; i++) {
		bool call = step->items[i].kind == ITEM_TOOL_CALL;

		if (step->items[i].kind == ITEM_TOOL_RESULT ||
		    step->items[i].call_state != (call ? CALL_PENDING : CALL_NONE))
			return err_set(e, STORE_CONFLICT, "item %zu may not be appended so", i);
	}
	if (tenant_db_get(s, tenant, &c.db, e) < 0)
		return -1;
	return db_transaction(s->pool, &c.db->key, append, &c, e);
}

static int start_call(struct pg *pg, void *ctx, struct err *e)
{
	const struct change *c = ctx;

	if (turn_lock_running(pg, c->turn, e) < 0)
		return -1;
	return item_start(pg, c->turn, c->seq, e);
}

int turn_start_call(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                    uint32_t seq, struct err *e)
{
	struct change c = { .turn = turn, .seq = seq };

	return tenant_transaction(s, tenant, start_call, &c, e);
}

static int finish_call(struct pg *pg, void *ctx, struct err *e)
{
	const struct change *c = ctx;

	if (turn_lock_running(pg, c->turn, e) < 0)
		return -1;
	room_note(c->db, c->result->body_len);
	return item_finish(pg, c->turn, c->seq, c->result, e);
}

int turn_finish_call(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                     uint32_t seq, struct item *result, struct err *e)
{
	struct change c = { .turn = turn, .seq = seq, .result = result };

	if (tenant_db_get(s, tenant, &c.db, e) < 0)
		return -1;
	return db_transaction(s->pool, &c.db->key, finish_call, &c, e);
}
