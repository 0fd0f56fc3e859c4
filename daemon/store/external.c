/*
 * Each check is one query with one answer: nothing, or what is wrong.  They ask the catalogs,
 * which the owner can read and not change.
 */
#include "daemon/store/external.h"

#include "common/attr.h"
#include "common/log.h"
#include "daemon/store/store.h"

#include <string.h>

#define SCRIPT "as a superuser of that server, have psql run what cloisterd database-script prints"

#define OUR_ROLES "('cloister_owner', 'cloister_runtime')"

struct check {
	const char *sql; /* one text: null = good, else it is named as what is wrong */
	const char *wrong, *remedy;
};

/* -- of the server, and of the control database ----------------------------------------------- */

static const struct check checks[] = {
	{ "SELECT CASE WHEN current_setting('server_version_num')::int < 150000 "
	  "THEN current_setting('server_version') END",
	  "PostgreSQL is too old: version", "15 or later is needed" },
	{ "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() OR "
	  "current_setting('default_transaction_read_only')::bool THEN 'a standby' END",
	  "the server takes no changes; perhaps it is", "name the one that is written to" },
	{ "SELECT string_agg(rolname, ', ') FROM pg_catalog.pg_roles WHERE rolname IN " OUR_ROLES
	  " AND (rolsuper OR rolcreaterole OR rolreplication OR rolbypassrls)",
	  "SUPERUSER, CREATEROLE, REPLICATION or BYPASSRLS was given to", SCRIPT },
	/* A superuser is a member of every role; the one of this name is a database's owner. */
	{ "SELECT string_agg(g.rolname, ', ') FROM pg_catalog.pg_roles g, pg_catalog.pg_roles r "
	  "WHERE r.rolname IN " OUR_ROLES " AND g.oid <> r.oid "
	  "AND pg_catalog.pg_has_role(r.oid, g.oid, 'MEMBER') "
	  "AND (g.rolsuper OR g.rolcreaterole OR g.rolreplication OR g.rolbypassrls "
	  "OR g.rolname ~ '^pg_') AND g.rolname <> 'pg_database_owner'",
	  "cloister_owner or cloister_runtime is a member of", "REVOKE that role from it" },
	{ "SELECT CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_proc p "
	  "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
	  "WHERE n.nspname = 'privileged' AND p.proname = 'release') THEN 'privileged.release()' END",
	  "the server was not prepared for Cloister, or for an earlier release: there is no",
	  SCRIPT },
	{ "SELECT string_agg(DISTINCT r.rolname, ', ') FROM pg_catalog.pg_proc p "
	  "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
	  "JOIN pg_catalog.pg_roles r ON r.oid IN (p.proowner, n.nspowner) "
	  "WHERE n.nspname = 'privileged' AND NOT r.rolsuper",
	  "the functions of schema privileged belong to", SCRIPT },
	{ "SELECT CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_database "
	  "WHERE datname = '" EXTERNAL_TEMPLATE "' AND datistemplate) THEN '" EXTERNAL_TEMPLATE
	  "' END",
	  "there is no template database", SCRIPT },
	{ "SELECT string_agg(d.datname, ', ') FROM pg_catalog.pg_database d, "
	  "pg_catalog.aclexplode(coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))) a "
	  "WHERE d.datname IN ('cloister', '" EXTERNAL_TEMPLATE "') AND a.grantee = 0 "
	  "AND a.privilege_type = 'CONNECT'",
	  "PUBLIC may connect to database", SCRIPT },
	{ "SELECT min(d.datname || ' was given to ' || g.rolname) FROM pg_catalog.pg_database d, "
	  "pg_catalog.aclexplode(d.datacl) a, pg_catalog.pg_roles g "
	  "WHERE d.datname IN ('cloister', '" EXTERNAL_TEMPLATE "') AND g.oid = a.grantee "
	  "AND g.oid <> d.datdba AND NOT g.rolsuper "
	  "AND (g.rolname, d.datname, a.privilege_type) <> ('cloister_owner', 'cloister', 'CONNECT')",
	  "a privilege of database", "REVOKE ALL ON that DATABASE from that role" },
	{ "SELECT string_agg(d.datname || ' belongs to ' || r.rolname, ', ') "
	  "FROM pg_catalog.pg_database d JOIN pg_catalog.pg_roles r ON r.oid = d.datdba "
	  "WHERE d.datname IN ('cloister', '" EXTERNAL_TEMPLATE "') AND NOT r.rolsuper",
	  "it must be a superuser's, and database",
	  "ALTER DATABASE ... OWNER TO a superuser, and run the script again" },
	{ "SELECT string_agg(r.rolname, ', ') FROM pg_catalog.pg_roles r WHERE NOT r.rolsuper "
	  "AND r.rolname <> 'cloister_owner' "
	  "AND pg_catalog.pg_has_role(r.oid, 'cloister_owner', 'MEMBER')",
	  "another role is a member of cloister_owner:", "REVOKE cloister_owner from it" },
	{ "SELECT min(p.oid::pg_catalog.regprocedure || ' may be called by ' || "
	  "coalesce(g.rolname, 'PUBLIC')) FROM pg_catalog.pg_proc p "
	  "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace, "
	  "pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) a "
	  "LEFT JOIN pg_catalog.pg_roles g ON g.oid = a.grantee "
	  "WHERE n.nspname = 'privileged' AND p.proname <> 'refuse_extension' "
	  "AND a.grantee <> p.proowner AND g.rolname IS DISTINCT FROM 'cloister_owner' "
	  "AND g.rolsuper IS NOT TRUE",
	  "function", "REVOKE ALL ON that FUNCTION from it, in database cloister" },
};

/* -- of each database ------------------------------------------------------------------------ */

static const struct check database_checks[] = {
	{ "SELECT CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger t "
	  "JOIN pg_catalog.pg_roles r ON r.oid = t.evtowner "
	  "WHERE t.evtname = 'refuse_extension' AND t.evtevent = 'ddl_command_start' "
	  "AND t.evtenabled IN ('O', 'A') AND r.rolsuper) "
	  "OR coalesce(current_setting('event_triggers', true), 'on') <> 'on' "
	  "THEN current_database() END",
	  "the event trigger refuse_extension is missing or disabled in database",
	  "as a superuser, ALTER EVENT TRIGGER refuse_extension ENABLE there, or drop that "
	  "database and restore it into a copy of " EXTERNAL_TEMPLATE },
	{ "SELECT CASE WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_event_trigger t "
	  "JOIN pg_catalog.pg_proc p ON p.oid = t.evtfoid "
	  "JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
	  "JOIN pg_catalog.pg_roles r ON r.oid = p.proowner "
	  "WHERE t.evtname = 'refuse_extension' AND n.nspname = 'privileged' "
	  "AND p.proname = 'refuse_extension' AND r.rolsuper AND t.evttags @> "
	  "'{CREATE EXTENSION,ALTER EXTENSION,CREATE LANGUAGE}') THEN current_database() END",
	  "the event trigger refuse_extension is not the one of the script in database",
	  SCRIPT "; for a tenant's, drop it and restore it into a copy of " EXTERNAL_TEMPLATE },
	{ "SELECT min(p.oid::pg_catalog.regprocedure || ' in database ' || current_database()) "
	  "FROM pg_catalog.pg_proc p WHERE p.pronamespace = 'pg_catalog'::pg_catalog.regnamespace "
	  "AND p.proname IN ('lo_creat', 'lo_create', 'lo_from_bytea', 'lo_open', 'lo_put', "
	  "'lo_truncate', 'lo_truncate64', 'lo_unlink', 'lowrite') "
	  "AND pg_catalog.has_function_privilege('public', p.oid, 'EXECUTE')",
	  "PUBLIC may make or change large objects by",
	  "REVOKE ALL ON that FUNCTION FROM PUBLIC there" },
	{ "SELECT min(lanname || ' in database ' || current_database()) "
	  "FROM pg_catalog.pg_language WHERE lanpltrusted AND lanname <> 'sql' "
	  "AND pg_catalog.has_language_privilege('public', oid, 'USAGE')",
	  "PUBLIC may use language", "REVOKE ALL ON that LANGUAGE FROM PUBLIC there" },
	{ "SELECT CASE WHEN pg_catalog.has_database_privilege('public', current_database(), "
	  "'CONNECT') THEN current_database() END",
	  "PUBLIC may connect to database", "REVOKE ALL ON that DATABASE FROM PUBLIC" },
};

static int run(struct pg *pg, const struct check *check, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	char what[128] = "";

	if (pg_query(pg, check->sql, PG_NO_PARAMS, &rows, e) < 0)
		return -1;
	if (pg_rows_count(rows) == 1 && pg_null(rows, 0, 0))
		return 0;
	if (pg_rows_count(rows) == 1)
		pg_get_text(rows, 0, 0, what, sizeof(what));
	return err_set(e, STORE_UNFIT, "%s %s; %s", check->wrong, what, check->remedy);
}

static int run_all(struct pg *pg, const struct check *list, size_t n, struct err *e)
{
	for (size_t i = 0; i < n; i++)
		if (run(pg, &list[i], e) < 0)
			return -1;
	return 0;
}

static int check_release(struct pg *pg, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;
	int64_t release;

	if (pg_query(pg, "SELECT privileged.release()", PG_NO_PARAMS, &rows, e) < 0)
		return -1;
	release = pg_get_int(rows, 0, 0);
	if (pg_rows_check(rows, "release of the script", e) < 0)
		return -1;
	if (release < EXTERNAL_RELEASE)
		return err_set(
			e, STORE_UNFIT,
			"the server was prepared for an earlier release of Cloister (%d, and "
			"this one needs %d); " SCRIPT,
			(int)release, EXTERNAL_RELEASE);
	return 0;
}

int external_verify_tenant(struct pg *pg, struct err *e)
{
	return run_all(pg, database_checks, ARRAY_LEN(database_checks), e);
}

int external_verify(struct pg *pg, struct err *e)
{
	if (run_all(pg, checks, ARRAY_LEN(checks), e) < 0 || check_release(pg, e) < 0)
		return -1;
	return external_verify_tenant(pg, e);
}

void external_warn(struct pg *pg)
{
	auto_rows struct pg_rows *rows = NULL;
	char names[128] = "";
	struct err ignored = ERR_INIT;

	if (pg_query(pg,
	             "SELECT string_agg(datname, ', ' ORDER BY datname) "
	             "FROM pg_catalog.pg_database "
	             "WHERE datistemplate AND datname <> '" EXTERNAL_TEMPLATE "'",
	             PG_NO_PARAMS, &rows, &ignored) < 0 ||
	    pg_rows_count(rows) != 1 || pg_null(rows, 0, 0))
		return;
	pg_get_text(rows, 0, 0, names, sizeof(names));
	log_warn("database: cloister_owner may make copies of %s, to which it could add trusted "
	         "extensions; if that server is Cloister's alone, ALTER DATABASE ... IS_TEMPLATE "
	         "false (docs/architecture.md)",
	         names);
}

int external_describe(struct pg *pg, char *ret_text, size_t size, struct err *e)
{
	auto_rows struct pg_rows *rows = NULL;

	if (pg_query(pg,
	             "SELECT 'PostgreSQL ' || current_setting('server_version') || "
	             "', prepared for Cloister (' || privileged.release() || ')'",
	             PG_NO_PARAMS, &rows, e) < 0)
		return -1;
	pg_get_text(rows, 0, 0, ret_text, size);
	return pg_rows_check(rows, "version", e);
}

int external_refused(struct err *e)
{
	char text[sizeof(e->text)];

	if (e->code != STORE_UNFIT)
		return -1;
	memcpy(text, e->text, sizeof(text));
	return err_set(e, e->code,
	               "%.260s; see that the server was prepared (cloisterd database-script), and "
	               "that the file of --database-url-file has the password that \\password "
	               "cloister_owner has set",
	               text);
}
