#include "daemon/store/earlier.h"

#include "common/fd.h"
#include "daemon/store/internal.h"

#include <stdlib.h>
#include <string.h>

#define TURN_COLUMN 14 /* the first after those of an item */

static const char select_earlier[] =
	"WITH before AS (SELECT t.* FROM app.turn t JOIN app.turn now ON now.id = $1 "
	"AND t.session = now.session AND (t.created_ms, t.id) < (now.created_ms, now.id) "
	"LEFT JOIN app.turn old ON old.id = $3 "
	"WHERE old.id IS NULL OR (t.created_ms, t.id) >= (old.created_ms, old.id)), "
	"chosen AS (SELECT * FROM (SELECT turn, seq, sum(octet_length(body) "
	"+ coalesce(octet_length(opaque), 0) + 256) OVER "
	"(ORDER BY created_ms DESC, id DESC, seq DESC) AS upto "
	"FROM before JOIN app.item ON turn = id "
	"WHERE seq = 0 OR id IS DISTINCT FROM $3 OR seq > $4) AS sized WHERE upto <= $2) "
	"SELECT seq, kind, call_id, tool, call_state, lossy, truncated, total_bytes, body, "
	"null::bytea, false, origin, opaque IS NOT NULL, opaque, id, state, error_code, CASE seq WHEN 0 THEN attachments END, known "
	"FROM (SELECT count(*) AS known FROM before) AS counted LEFT JOIN (chosen "
	"JOIN app.item USING (turn, seq) JOIN before ON id = turn) ON true "
	"ORDER BY created_ms, id, seq";

_Static_assert(EARLIER_ITEM_BYTES == 256, "as in the statement");

void earlier_release(struct earlier *earlier)
{
	for (size_t i = 0; i < earlier->turn_count; i++)
		free(earlier->turns[i].attachments);
	free(earlier->turns);
	item_list_release(&earlier->items);
	*earlier = (struct earlier){ .turns = NULL };
}

static int add_turn(struct earlier *earlier, struct pg_rows *rows, int row, struct err *e)
{
	struct earlier_turn *t = &earlier->turns[earlier->turn_count++];
	size_t len;

	*t = (struct earlier_turn){ .id = pg_get_uuid(rows, row, TURN_COLUMN),
		                    .first = earlier->items.count };
	pg_get_text(rows, row, TURN_COLUMN + 2, t->error_code, sizeof(t->error_code));
	t->attachments = pg_get_bytes(rows, row, TURN_COLUMN + 3, &len);
	if (!t->attachments && !pg_null(rows, row, TURN_COLUMN + 3))
		return err_set(e, STORE_UNAVAILABLE, "no memory for earlier turns");
	return turn_get_state(rows, row, TURN_COLUMN + 1, &t->state, e);
}

/* Rows before the first turn that is whole are skipped. */
static int add_row(struct earlier *earlier, struct pg_rows *rows, int row, struct err *e)
{
	bool begins = pg_get_int(rows, row, 0) == 0;
	struct item *item = &earlier->items.items[earlier->items.count];

	if (begins && add_turn(earlier, rows, row, e) < 0)
		return -1;
	if (earlier->turn_count == 0)
		return 0;
	earlier->items.count++;
	if (item_decode(rows, row, item, e) < 0)
		return -1;
	earlier->turns[earlier->turn_count - 1].count++;
	return 0;
}

/* The first turn, when nothing but its input is left of it. */
static void drop_covered(struct earlier *earlier, const struct summary *covered)
{
	struct item_list *items = &earlier->items;

	if (!covered->text || !earlier->turn_count || earlier->turns[0].count != 1 ||
	    !uuid_equal(&earlier->turns[0].id, &covered->turn))
		return;
	free(earlier->turns[0].attachments);
	free(items->items[0].body);
	memmove(earlier->turns, earlier->turns + 1,
	        --earlier->turn_count * sizeof(*earlier->turns));
	memmove(items->items, items->items + 1, --items->count * sizeof(*items->items));
	for (size_t i = 0; i < earlier->turn_count; i++)
		earlier->turns[i].first--;
}

static int add_rows(struct earlier *earlier, struct pg_rows *rows, const struct summary *covered,
                    struct err *e)
{
	int n = pg_rows_count(rows); /* at least one, that says how many turns there are */
	int64_t turns = pg_get_int(rows, 0, TURN_COLUMN + 4);

	earlier->items.items = calloc((size_t)n + 1, sizeof(*earlier->items.items));
	earlier->turns = calloc((size_t)n + 1, sizeof(*earlier->turns));
	if (!earlier->items.items || !earlier->turns)
		return err_set(e, STORE_UNAVAILABLE, "no memory for earlier turns");
	for (int row = 0; row < n && !pg_null(rows, row, 0); row++)
		if (add_row(earlier, rows, row, e) < 0)
			return -1;
	earlier->cut = (int64_t)earlier->turn_count < turns;
	drop_covered(earlier, covered);
	return pg_rows_check(rows, "earlier turn", e);
}

int session_earlier(struct store *s, const struct uuid *tenant, const struct earlier_range *range,
                    struct earlier *ret, struct err *e)
{
	const struct summary *covered = range->covered;
	auto_rows struct pg_rows *rows = NULL;
	struct earlier earlier = { .turns = NULL };
	const struct query q = { select_earlier,
		                 PG_PARAMS(pg_uuid(range->turn), pg_int((int64_t)range->max_bytes),
		                           pg_text(covered->text ? covered->turn.text : NULL),
		                           pg_int(covered->through)) };

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	if (add_rows(&earlier, rows, covered, e) < 0) {
		earlier_release(&earlier);
		return -1;
	}
	*ret = earlier;
	return 0;
}
