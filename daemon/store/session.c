#include "daemon/store/session.h"

#include "common/fd.h"
#include "daemon/store/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS                                                                                   \
	"id, created_ms, updated_ms, model, effort, cwd, title, title_is_manual, "                \
	"archived, input_tokens, output_tokens, cached_tokens, approvals, planning, credential, " \
	"instructions, harness"

/* Of what only counting changes. */
#define COUNTED ", reasoning_tokens, coalesce(cost_nano, -1)"

#define SELECT "SELECT " COLUMNS COUNTED ", " SETUP_COLUMNS
#define FROM   " FROM app.session LEFT JOIN app.setup ON session = id "

/* -- reading -- */

static void decode_harness(struct pg_rows *rows, int row, struct session *ret)
{
	size_t len = 0;
	auto_free char *command = pg_get_bytes(rows, row, 16, &len);

	if (command && len <= SESSION_HARNESS_MAX)
		memcpy(ret->harness, command, len + 1);
}

static int decode(struct pg_rows *rows, int row, struct session *ret, struct err *e)
{
	/* Not cleared as a whole: that would take longer than all the rest. */
	ret->id = pg_get_uuid(rows, row, 0);
	ret->created_ms = pg_get_ms(rows, row, 1);
	ret->updated_ms = pg_get_ms(rows, row, 2);
	pg_get_text(rows, row, 3, ret->model, sizeof(ret->model));
	pg_get_text(rows, row, 4, ret->effort, sizeof(ret->effort));
	pg_get_text(rows, row, 5, ret->cwd, sizeof(ret->cwd));
	pg_get_text(rows, row, 6, ret->title, sizeof(ret->title));
	ret->title_is_manual = pg_get_bool(rows, row, 7);
	ret->archived = pg_get_bool(rows, row, 8);
	ret->input_tokens = (uint64_t)pg_get_int(rows, row, 9);
	ret->output_tokens = (uint64_t)pg_get_int(rows, row, 10);
	ret->cached_tokens = (uint64_t)pg_get_int(rows, row, 11);
	pg_get_text(rows, row, 12, ret->approvals, sizeof(ret->approvals));
	ret->planning = pg_get_bool(rows, row, 13);
	pg_get_text(rows, row, 14, ret->credential, sizeof(ret->credential));
	pg_get_text(rows, row, 15, ret->instructions, sizeof(ret->instructions));
	ret->harness[0] = '\0';
	if (!pg_null(rows, row, 16))
		decode_harness(rows, row, ret);
	ret->reasoning_tokens = (uint64_t)pg_get_int(rows, row, 17);
	ret->cost_nano = pg_get_int(rows, row, 18);
	if (setup_decode(rows, row, 19, &ret->setup, e) < 0)
		return -1;
	return pg_rows_check(rows, "session", e);
}

/* -- inserting -- */

int session_find_key(struct pg *pg, const struct client_request *key, struct session *ret,
                     bool *ret_found, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	*ret_found = false;
	if (pg_query(pg, SELECT ", request_digest = $2" FROM "WHERE client_request = $1",
	             PG_PARAMS(pg_uuid(&key->id), pg_bytes(key->digest, sizeof(key->digest))),
	             &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return 0;
	if (!pg_get_bool(rows, 0, 27))
		return err_set(e, STORE_KEY_REUSED,
		               "this client request id was used before with another input");
	*ret_found = true;
	return decode(rows, 0, ret, e);
}

static int put_row(struct pg *pg, const struct session *in, const struct client_request *key,
                   struct err *e)
{
	return pg_exec(
		pg,
		"INSERT INTO app.session (" COLUMNS ", client_request, request_digest) "
		"VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) "
		"ON CONFLICT (client_request) DO NOTHING",
		PG_PARAMS(pg_uuid(&in->id), pg_int((int64_t)in->created_ms),
	                  pg_int((int64_t)in->updated_ms), pg_text(in->model), pg_text(in->effort),
	                  pg_text(in->cwd), pg_text(in->title), pg_bool(in->title_is_manual),
	                  pg_bool(in->archived), pg_int((int64_t)in->input_tokens),
	                  pg_int((int64_t)in->output_tokens), pg_int((int64_t)in->cached_tokens),
	                  pg_text(in->approvals[0] ? in->approvals : "sandbox"),
	                  pg_bool(in->planning), pg_text(in->credential), pg_text(in->instructions),
	                  in->harness[0] ? pg_bytes(in->harness, strlen(in->harness))
	                                 : pg_text(NULL),
	                  pg_text(key ? key->id.text : NULL),
	                  key ? pg_bytes(key->digest, sizeof(key->digest)) : pg_text(NULL)),
		e);
}

/* Whoever inserts the same key at the same time is waited for by the insertion itself. */
int session_put(struct pg *pg, struct session *io, const struct client_request *key,
                bool *ret_existing, struct err *e)
{
	int n = put_row(pg, io, key, e);

	*ret_existing = false;
	if (n > 0 && io->setup.state != SETUP_NONE)
		return setup_put(pg, &io->id, &io->setup, e);
	if (n != 0)
		return n < 0 ? -1 : 0;
	if (session_find_key(pg, key, io, ret_existing, e) < 0)
		return -1;
	return *ret_existing ? 0 : err_set(e, STORE_UNAVAILABLE, "the session was just deleted");
}

struct insertion {
	struct store *store;
	struct tenant_db *db;
	const struct session *in;
	const struct client_request *key;
	struct session out;
};

static int insert(struct pg *pg, void *ctx, struct err *e)
{
	struct insertion *c = ctx;
	bool existing = false;

	c->out = *c->in;
	c->out.cost_nano = -1;
	if (c->key && session_find_key(pg, c->key, &c->out, &existing, e) < 0)
		return -1;
	if (existing)
		return 0;
	if (room_take(c->store, c->db, pg,
	              strlen(c->in->cwd) + strlen(c->in->title) + strlen(c->in->instructions),
	              e) < 0)
		return -1;
	return session_put(pg, &c->out, c->key, &existing, e);
}

int session_insert(struct store *s, const struct uuid *tenant, struct session *io,
                   const struct client_request *key, struct err *e)
{
	struct insertion c = { .store = s, .in = io, .key = key };
	bool unfinished = io->setup.state != SETUP_NONE;
	int rc;

	if (unfinished ? mark_begin(s, tenant, &c.db, e) : tenant_db_get(s, tenant, &c.db, e))
		return -1;
	rc = db_transaction(s->pool, &c.db->key, insert, &c, e);
	if (unfinished)
		mark_end(c.db);
	if (rc < 0)
		return -1;
	*io = c.out;
	return 0;
}

/* -- one, and lists -- */

int session_read(struct pg *pg, const struct uuid *id, struct session *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg, SELECT FROM "WHERE id = $1", PG_PARAMS(pg_uuid(id)), &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_NOT_FOUND, "there is no session %s", id->text);
	return decode(rows, 0, ret, e);
}

int session_get(struct store *s, const struct uuid *tenant, const struct uuid *id,
                struct session *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = { SELECT FROM "WHERE id = $1", PG_PARAMS(pg_uuid(id)) };

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_NOT_FOUND, "there is no session %s", id->text);
	return decode(rows, 0, ret, e);
}

int session_each(struct store *s, const struct uuid *tenant, const struct session_ids *ids,
                 void (*fn)(void *ctx, const struct session *row), void *ctx, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	char list[SESSION_IDS_MAX * sizeof(ids->ids[0].text) + 2] = "{";
	const struct query q = { SELECT FROM "WHERE id = ANY($1::uuid[])",
		                 PG_PARAMS(pg_text(list)) };
	struct session row;
	size_t len = 1;

	for (size_t i = 0; i < ids->n; i++)
		len += (size_t)snprintf(list + len, sizeof(list) - len, "%s%s", i ? "," : "",
		                        ids->ids[i].text);
	(void)snprintf(list + len, sizeof(list) - len, "}");
	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	for (int i = 0; i < pg_rows_count(rows); i++) {
		if (decode(rows, i, &row, e) < 0)
			return -1;
		fn(ctx, &row);
	}
	return 0;
}

static const char *condition(enum session_filter filter)
{
	switch (filter) {
	case SESSION_ACTIVE:
		return "NOT archived";
	case SESSION_ARCHIVED:
		return "archived";
	case SESSION_ALL:
		break;
	}
	return "true";
}

static int select_page(struct store *s, const struct uuid *tenant, const struct session_page *page,
                       struct pg_rows **ret, struct err *e)
{
	bool first = !page->after || page->after->updated_ms == 0;
	const struct pg_param params[] = {
		pg_int((int64_t)page->limit + 1),
		pg_int(first ? 0 : (int64_t)page->after->updated_ms),
		pg_text(first ? NULL : page->after->id.text),
	};
	char sql[800];
	const struct query q = { sql, params, first ? 1 : 3 };

	(void)snprintf(sql, sizeof(sql),
	               SELECT FROM "WHERE %s%s "
	                           "ORDER BY updated_ms DESC, id DESC LIMIT $1",
	               condition(page->filter),
	               first ? "" : " AND (updated_ms, id) < ($2, $3::uuid)");
	return tenant_rows(s, tenant, &q, ret, e);
}

int session_list(struct store *s, const struct uuid *tenant, struct session_page *page,
                 void (*fn)(void *ctx, const struct session *row), void *ctx, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	struct session row;
	size_t count;

	if (select_page(s, tenant, page, &rows, e) < 0)
		return -1;
	count = (size_t)pg_rows_count(rows);
	for (size_t i = 0; i < count && i < page->limit; i++) {
		if (decode(rows, (int)i, &row, e) < 0)
			return -1;
		fn(ctx, &row);
	}
	page->more = count > page->limit;
	return 0;
}
