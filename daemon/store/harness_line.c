#include "daemon/store/harness_line.h"

#include "common/fd.h"
#include "daemon/store/internal.h"

#include <stdlib.h>

struct keeping {
	struct store *store;
	struct tenant_db *db;
	const struct uuid *turn;
	const struct harness_line *lines;
	size_t n;
};

static int keep(struct pg *pg, void *ctx, struct err *e)
{
	const struct keeping *k = ctx;
	uint64_t bytes = 0;

	for (size_t i = 0; i < k->n; i++)
		bytes += k->lines[i].len;
	if (room_take(k->store, k->db, pg, bytes, e) < 0)
		return -1;
	for (size_t i = 0; i < k->n; i++)
		if (pg_exec(pg,
		            "INSERT INTO app.harness_line (turn, number, line) "
		            "VALUES ($1, $2::int, $3) ON CONFLICT DO NOTHING",
		            PG_PARAMS(pg_uuid(k->turn), pg_int(k->lines[i].number),
		                      pg_bytes(k->lines[i].text, k->lines[i].len)),
		            e) < 0)
			return -1;
	return 0;
}

int harness_lines_keep(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                       const struct harness_line *lines, size_t n, struct err *e)
{
	struct keeping k = { .store = s, .turn = turn, .lines = lines, .n = n };

	if (tenant_db_get(s, tenant, &k.db, e) < 0)
		return -1;
	return db_transaction(s->pool, &k.db->key, keep, &k, e);
}

static int give(struct pg_rows *rows, struct harness_page *page,
                void (*fn)(void *ctx, const struct harness_line *line), void *ctx, struct err *e)
{
	size_t count = (size_t)pg_rows_count(rows);

	page->more = count > page->limit;
	for (size_t i = 0; i < count && i < page->limit; i++) {
		struct harness_line line = { .number = (uint32_t)pg_get_int(rows, (int)i, 0) };

		if (!pg_get_bool(rows, (int)i, 2)) { /* no room for it in this page */
			page->more = true;
			break;
		}
		line.text = pg_get_bytes(rows, (int)i, 1, &line.len);
		if (!line.text || pg_rows_check(rows, "line", e) < 0) {
			free(line.text);
			return err_set(e, STORE_UNAVAILABLE, "no memory for a line");
		}
		fn(ctx, &line);
		free(line.text);
	}
	return 0;
}

int harness_lines_list(struct store *s, const struct uuid *tenant, struct harness_page *page,
                       void (*fn)(void *ctx, const struct harness_line *line), void *ctx,
                       struct err *e)
{
	auto_rows struct pg_rows *rows = NULL, *turns = NULL;
	const struct query exists = { "SELECT FROM app.turn WHERE id = $1",
		                      PG_PARAMS(pg_uuid(page->turn)) };
	const struct query q = {
		"SELECT number, CASE WHEN fits THEN line ELSE '' END, fits FROM (SELECT number, line, "
		"sum(octet_length(line)) OVER (ORDER BY number) <= $4 OR row_number() OVER (ORDER BY "
		"number) = 1 AS fits FROM (SELECT number, line FROM app.harness_line WHERE turn = $1 "
		"AND number > $2::int ORDER BY number LIMIT $3) AS page) AS sized ORDER BY number",
		PG_PARAMS(pg_uuid(page->turn), pg_int(page->after),
		          pg_int((int64_t)page->limit + 1), pg_int((int64_t)page->bytes)),
	};

	if (tenant_rows(s, tenant, &exists, &turns, e) < 0)
		return -1;
	if (pg_rows_count(turns) == 0)
		return err_set(e, STORE_NOT_FOUND, "there is no turn %s", page->turn->text);
	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	return give(rows, page, fn, ctx, e);
}

struct counting {
	const struct uuid *turn;
	const struct turn_step *step;
};

static int count(struct pg *pg, void *ctx, struct err *e)
{
	const struct counting *c = ctx;

	return item_count_tokens(pg, c->turn, c->step, e);
}

int harness_count_tokens(struct store *s, const struct uuid *tenant, const struct uuid *turn,
                         const struct turn_step *step, struct err *e)
{
	struct counting c = { turn, step };

	return tenant_transaction(s, tenant, count, &c, e);
}
