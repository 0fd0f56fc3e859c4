#include "daemon/store/migrate.h"

#include <stdio.h>

static int read_version(struct pg *pg, const char *schema, int64_t *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	char sql[200];

	(void)snprintf(sql, sizeof(sql),
	               "CREATE TABLE IF NOT EXISTS %s.migration (version integer PRIMARY KEY, "
	               "name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
	               schema);
	if (pg_script(pg, sql, e) < 0)
		return -1;
	(void)snprintf(sql, sizeof(sql), "SELECT coalesce(max(version), 0) FROM %s.migration",
	               schema);
	if (pg_query(pg, sql, PG_NO_PARAMS, &rows, e) < 0)
		return -1;
	*ret = pg_get_int(rows, 0, 0);
	return pg_rows_check(rows, "schema version", e);
}

static int apply(struct pg *pg, const char *schema, const struct sql_file *file, int64_t version,
                 struct err *e)
{
	char sql[200];

	(void)snprintf(sql, sizeof(sql), "INSERT INTO %s.migration (version, name) VALUES ($1, $2)",
	               schema);
	if (pg_script(pg, "BEGIN", e) < 0 || pg_script(pg, file->text, e) < 0 ||
	    pg_exec(pg, sql, PG_PARAMS(pg_int(version), pg_text(file->name)), e) < 0 ||
	    pg_script(pg, "COMMIT", e) < 0)
		return err_wrap(e, "migration %s of schema %s", file->name, schema);
	return 0;
}

int migrate(struct pg *pg, const char *schema, struct sql_list list, struct err *e)
{
	int64_t have;

	if (read_version(pg, schema, &have, e) < 0)
		return -1;
	for (size_t i = (size_t)have; i < list.count; i++)
		if (apply(pg, schema, &list.files[i], (int64_t)i + 1, e) < 0)
			return -1;
	return 0;
}
