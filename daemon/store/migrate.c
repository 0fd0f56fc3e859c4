#include "daemon/store/migrate.h"

#include "daemon/store/store.h"

#include <inttypes.h>
#include <stdio.h>

struct version {
	int64_t have;   /* how many files were applied, by whatever release */
	int64_t oldest; /* how many a release must have to work with that */
};

static int read_version(struct pg *pg, const char *schema, struct version *ret, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	char sql[400];

	(void)snprintf(sql, sizeof(sql),
	               "CREATE TABLE IF NOT EXISTS %s.migration (version integer PRIMARY KEY, "
	               "name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now()); "
	               "ALTER TABLE %s.migration ADD COLUMN IF NOT EXISTS "
	               "oldest integer NOT NULL DEFAULT 0",
	               schema, schema);
	if (pg_script(pg, sql, e) < 0)
		return -1;
	(void)snprintf(sql, sizeof(sql),
	               "SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) "
	               "FROM %s.migration",
	               schema);
	if (pg_query(pg, sql, PG_NO_PARAMS, &rows, e) < 0)
		return -1;
	*ret = (struct version){ pg_get_int(rows, 0, 0), pg_get_int(rows, 0, 1) };
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
	struct version v;

	if (read_version(pg, schema, &v, e) < 0)
		return -1;
	if (v.oldest > (int64_t)list.count)
		return err_set(e, STORE_UNAVAILABLE,
		               "schema %s was changed by a later release, and only one with "
		               "migration %" PRId64 " can work with it (this one ends with %zu); "
		               "install that again, or restore a backup from before it",
		               schema, v.oldest, list.count);
	for (size_t i = (size_t)v.have; i < list.count; i++)
		if (apply(pg, schema, &list.files[i], (int64_t)i + 1, e) < 0)
			return -1;
	return 0;
}
