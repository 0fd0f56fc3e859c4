#include "daemon/store/session.h"

#include "common/fd.h"
#include "daemon/store/internal.h"

#include <stdio.h>

#define COLUMNS                                                                    \
	"id, created_ms, updated_ms, model, effort, cwd, title, title_is_manual, " \
	"archived, input_tokens, output_tokens, cached_tokens"

static int insert(struct pg *pg, void *ctx, struct err *e)
{
	const struct session *in = ctx;
	int n = pg_exec(
		pg,
		"INSERT INTO app.session (" COLUMNS ") VALUES ($1, $2, $3, $4, $5, $6, $7, "
		"$8, $9, $10, $11, $12)",
		PG_PARAMS(pg_uuid(&in->id), pg_int((int64_t)in->created_ms),
	                  pg_int((int64_t)in->updated_ms), pg_text(in->model), pg_text(in->effort),
	                  pg_text(in->cwd), pg_text(in->title), pg_bool(in->title_is_manual),
	                  pg_bool(in->archived), pg_int((int64_t)in->input_tokens),
	                  pg_int((int64_t)in->output_tokens), pg_int((int64_t)in->cached_tokens)),
		e);

	return n < 0 ? -1 : 0;
}

int session_insert(struct store *s, const struct uuid *tenant, const struct session *in,
                   struct err *e)
{
	struct session copy = *in;

	if (tenant_transaction(s, tenant, insert, &copy, e) < 0)
		return err_wrap(e, "session %s", in->id.text);
	return 0;
}

static int decode(struct pg_rows *rows, int row, struct session *ret, struct err *e)
{
	*ret = (struct session){ .id = pg_get_uuid(rows, row, 0) };
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
	return pg_rows_check(rows, "session", e);
}

int session_get(struct store *s, const struct uuid *tenant, const struct uuid *id,
                struct session *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	struct session found;
	const struct query q = { "SELECT " COLUMNS " FROM app.session WHERE id = $1",
		                 PG_PARAMS(pg_uuid(id)) };

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_NOT_FOUND, "there is no session %s", id->text);
	if (decode(rows, 0, &found, e) < 0)
		return -1;
	*ret = found;
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
	char sql[400];
	const struct query q = { sql, params, first ? 1 : 3 };

	(void)snprintf(sql, sizeof(sql),
	               "SELECT " COLUMNS " FROM app.session WHERE %s%s "
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
