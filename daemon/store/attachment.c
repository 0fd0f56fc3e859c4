/* The bytes of what came with a turn. */
#include "daemon/store/internal.h"

#include <string.h>

int attachment_put(struct pg *pg, const struct uuid *turn, int number, const struct attachment *in,
                   struct err *e)
{
	int n = pg_exec(pg,
	                "INSERT INTO app.attachment (turn, number, data) VALUES ($1, $2::int, $3)",
	                PG_PARAMS(pg_uuid(turn), pg_int(number), pg_bytes(in->data, in->len)), e);

	return n < 0 ? -1 : 0;
}

int turn_attachment(struct store *s, const struct uuid *tenant, const struct uuid *turn, int number,
                    struct attachment *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	const struct query q = {
		"SELECT data FROM app.attachment WHERE turn = $1 AND number = $2::int",
		PG_PARAMS(pg_uuid(turn), pg_int(number)),
	};

	if (tenant_rows(s, tenant, &q, &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 0)
		return err_set(e, STORE_CORRUPT, "turn %s has no attachment %d", turn->text,
		               number);
	ret->data = pg_get_bytes(rows, 0, 0, &ret->len);
	if (pg_rows_check(rows, "attachment", e) < 0)
		return -1;
	return ret->data ? 0 : err_set(e, STORE_UNAVAILABLE, "no memory for an attachment");
}
