/*
 * What somebody who owns the server's process can do through its connections: nothing
 * that executes, reads or writes a file, or leaves the roles it has.  Every statement
 * runs as the role that the server itself uses, on a connection of its own.
 */
#include "daemon/store/test_fixture.h"

#include "common/buf.h"
#include "daemon/launcher/cluster_exec.h"

#include <libpq-fe.h>

struct attack {
	const char *sql;
	const char *sqlstate;
};

#define DENIED "42501"

static char tenant_role[64], tenant_database[64], other_database[64];

static PGconn *connect_as(const char *user, const char *database)
{
	const char *const keys[] = { "host", "port", "user", "dbname", NULL };
	const char *const values[] = { cluster.socket_dir, "5432", user, database, NULL };

	return PQconnectdbParams(keys, values, 0);
}

static void swallow(void *arg, const char *message)
{
	(void)arg;
	(void)message;
}

static PGconn *must_connect(const char *user, const char *database)
{
	PGconn *conn = connect_as(user, database);

	if (PQstatus(conn) != CONNECTION_OK)
		fail_msg("%s", PQerrorMessage(conn));
	(void)PQsetNoticeProcessor(conn, swallow, NULL);
	return conn;
}

static void assert_refused(const char *user, const char *database, const char *why)
{
	PGconn *conn = connect_as(user, database);

	if (PQstatus(conn) == CONNECTION_OK || !strstr(PQerrorMessage(conn), why))
		fail_msg("%s in %s: %s", user, database, PQerrorMessage(conn));
	PQfinish(conn);
}

static void assert_all_fail(PGconn *conn, const struct attack *attacks, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		PGresult *result = PQexec(conn, attacks[i].sql);
		const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

		if (!state || strcmp(state, attacks[i].sqlstate) != 0)
			fail_msg("%s: %s %s", attacks[i].sql, state ? state : "succeeded",
			         PQresultErrorMessage(result));
		PQclear(result);
	}
}

static void assert_works(PGconn *conn, const char *sql)
{
	PGresult *result = PQexec(conn, sql);

	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
		fail_msg("%s: %s", sql, PQresultErrorMessage(result));
	PQclear(result);
}

/* Files and programs: the same for every role. */
static const struct attack everybody[] = {
	{ "COPY (SELECT 1) TO PROGRAM 'id'", DENIED },
	{ "COPY pg_catalog.pg_class TO PROGRAM 'id'", DENIED },
	{ "COPY (SELECT 1) TO '/tmp/cloister-attack'", DENIED },
	{ "SELECT pg_catalog.pg_read_file('postgresql.conf')", DENIED },
	{ "SELECT pg_catalog.pg_read_file('/etc/passwd')", DENIED },
	{ "SELECT pg_catalog.pg_read_binary_file('PG_VERSION')", DENIED },
	{ "SELECT pg_catalog.pg_stat_file('PG_VERSION')", DENIED },
	{ "SELECT pg_catalog.pg_ls_dir('.')", DENIED },
	{ "SELECT pg_catalog.pg_ls_logdir()", DENIED },
	{ "SELECT pg_catalog.pg_ls_waldir()", DENIED },
	{ "SELECT pg_catalog.lo_import('/etc/passwd')", DENIED },
	{ "SELECT pg_catalog.lo_export(1, '/tmp/cloister-attack')", DENIED },
	{ "SELECT pg_catalog.lo_create(0)", DENIED },
	{ "SELECT pg_catalog.lo_from_bytea(0, 'x')", DENIED },
	{ "SELECT pg_catalog.pg_reload_conf()", DENIED },
	{ "SELECT pg_catalog.pg_rotate_logfile()", DENIED },
	{ "ALTER SYSTEM SET archive_command = 'id'", DENIED },
	{ "SET archive_command = 'id'", "55P02" },
	{ "SET session_preload_libraries = 'x'", DENIED },
	{ "SET dynamic_library_path = '/tmp'", DENIED },
	{ "LOAD '/tmp/x.so'", DENIED },
	{ "CREATE ROLE evil SUPERUSER", DENIED },
	{ "CREATE ROLE evil", DENIED },
	{ "ALTER ROLE CURRENT_USER SUPERUSER", DENIED },
	{ "ALTER ROLE CURRENT_USER CREATEROLE", DENIED },
	{ "ALTER ROLE CURRENT_USER REPLICATION", DENIED },
	{ "ALTER ROLE cloister_bootstrap LOGIN", DENIED },
	{ "ALTER ROLE cloister_bootstrap PASSWORD 'x'", DENIED },
	{ "SET ROLE cloister_bootstrap", DENIED },
	{ "SET SESSION AUTHORIZATION cloister_bootstrap", DENIED },
	{ "SET ROLE pg_execute_server_program", DENIED },
	{ "GRANT pg_execute_server_program TO CURRENT_USER", DENIED },
	{ "GRANT pg_read_server_files TO CURRENT_USER", DENIED },
	{ "GRANT pg_write_server_files TO CURRENT_USER", DENIED },
	{ "GRANT pg_read_all_data TO CURRENT_USER", DENIED },
	{ "GRANT pg_signal_backend TO CURRENT_USER", DENIED },
	{ "GRANT cloister_bootstrap TO CURRENT_USER", DENIED },
	{ "GRANT cloister_runtime TO CURRENT_USER", DENIED },
	{ "CREATE TABLESPACE evil LOCATION '/tmp'", DENIED },
	{ "CREATE SUBSCRIPTION evil CONNECTION 'x' PUBLICATION y WITH (connect = false)", DENIED },
	{ "CREATE LANGUAGE evil HANDLER plpgsql_call_handler", DENIED },
	{ "SELECT rolpassword FROM pg_catalog.pg_authid", DENIED },
	{ "UPDATE pg_catalog.pg_authid SET rolsuper = true", DENIED },
	{ "SELECT pg_catalog.pg_create_physical_replication_slot('x')", DENIED },
};

static void learns_the_names(void **state)
{
	struct tenant_db *a = NULL, *b = NULL;

	(void)state;
	assert_ok(tenant_db_get(store, &acme, &a, &e));
	assert_ok(tenant_db_get(store, &globex, &b, &e));
	(void)snprintf(tenant_role, sizeof(tenant_role), "%s", a->key.user);
	(void)snprintf(tenant_database, sizeof(tenant_database), "%s", a->key.database);
	(void)snprintf(other_database, sizeof(other_database), "%s", b->key.database);
}

static void nobody_reaches_files_or_programs(void **state)
{
	PGconn *owner = must_connect("cloister_owner", "cloister");
	PGconn *maker = must_connect("cloister_owner", tenant_database);
	PGconn *tenant = must_connect(tenant_role, tenant_database);

	(void)state;
	assert_all_fail(owner, everybody, ARRAY_LEN(everybody));
	assert_all_fail(maker, everybody, ARRAY_LEN(everybody));
	assert_all_fail(tenant, everybody, ARRAY_LEN(everybody));
	assert_int_equal(access("/tmp/cloister-attack", F_OK), -1);
	PQfinish(owner);
	PQfinish(maker);
	PQfinish(tenant);
}

static void owner_cannot_bend_the_privileged_function(void **state)
{
	static const struct attack attacks[] = {
		{ "CREATE OR REPLACE FUNCTION privileged.make_tenant_role(tenant uuid) RETURNS void "
		  "LANGUAGE sql AS 'SELECT'",
		  DENIED },
		{ "CREATE FUNCTION privileged.pg_advisory_xact_lock(int, int) RETURNS void "
		  "LANGUAGE sql AS 'SELECT'",
		  DENIED },
		{ "ALTER FUNCTION privileged.make_tenant_role(uuid) RESET ALL", DENIED },
		{ "ALTER FUNCTION privileged.make_tenant_role(uuid) OWNER TO cloister_owner",
		  DENIED },
		{ "DROP FUNCTION privileged.make_tenant_role(uuid)", DENIED },
		{ "DROP SCHEMA privileged CASCADE", DENIED },
		{ "ALTER SCHEMA privileged OWNER TO cloister_owner", DENIED },
		{ "COPY control.tenant (id) FROM PROGRAM 'id'", DENIED },
		{ "COPY control.tenant (id) FROM '/etc/hostname'", DENIED },
		{ "CREATE SCHEMA evil", DENIED },
		{ "DROP DATABASE cloister", DENIED },
		{ "ALTER DATABASE cloister OWNER TO cloister_owner", DENIED },
		{ "ALTER DATABASE template1 ALLOW_CONNECTIONS true", DENIED },
		{ "SELECT privileged.make_tenant_role(NULL)", "P0001" },
		{ "SELECT privileged.make_tenant_role('x SUPERUSER')", "22P02" },
		{ "CREATE FUNCTION control.evil() RETURNS int LANGUAGE c AS '/lib/x86_64-linux-gnu/"
		  "libc.so.6', 'system'",
		  DENIED },
		{ "CREATE FUNCTION control.evil() RETURNS int LANGUAGE internal AS 'int4pl'",
		  DENIED },
		{ "CREATE EXTENSION dblink SCHEMA control", DENIED },
		{ "CREATE EXTENSION file_fdw SCHEMA control", DENIED },
	};
	PGconn *owner = must_connect("cloister_owner", "cloister");

	(void)state;
	assert_all_fail(owner, attacks, ARRAY_LEN(attacks));
	PQfinish(owner);
}

/* A helper function of the same name in the caller's schemas must not be called instead. */
static void privileged_function_ignores_the_callers_path(void **state)
{
	PGconn *owner = must_connect("cloister_owner", "cloister");

	(void)state;
	assert_works(owner, "CREATE TABLE control.pg_roles (rolname text)");
	assert_works(owner, "CREATE FUNCTION control.format(text, text) RETURNS text LANGUAGE sql "
	                    "AS $$SELECT 'ALTER ROLE cloister_owner SUPERUSER'$$");
	assert_works(owner, "SET search_path = control, pg_catalog");
	assert_works(owner, "SELECT privileged.make_tenant_role("
	                    "'01980000-0000-7000-8000-00000000eeee')");
	assert_works(owner, "SELECT 1 / (NOT rolsuper)::int FROM pg_catalog.pg_roles "
	                    "WHERE rolname = 'cloister_owner'");
	assert_works(owner,
	             "DROP TABLE control.pg_roles; DROP FUNCTION control.format(text, text)");
	PQfinish(owner);
}

static void tenant_role_reads_and_appends_only(void **state)
{
	static const struct attack attacks[] = {
		{ "COPY app.session (id) FROM PROGRAM 'id'", DENIED },
		{ "COPY app.session (id) FROM '/etc/hostname'", DENIED },
		{ "CREATE TABLE app.evil (a int)", DENIED },
		{ "CREATE TABLE evil (a int)", DENIED },
		{ "CREATE TEMP TABLE evil (a int)", DENIED },
		{ "CREATE SCHEMA evil", DENIED },
		{ "CREATE FUNCTION app.evil() RETURNS int LANGUAGE sql AS 'SELECT 1'", DENIED },
		{ "DO 'BEGIN END'", DENIED },
		{ "CREATE EXTENSION hstore", DENIED },
		{ "CREATE DATABASE evil", DENIED },
		{ "ALTER TABLE app.turn ADD COLUMN evil int", DENIED },
		{ "ALTER TABLE app.turn OWNER TO CURRENT_USER", DENIED },
		{ "DROP TABLE app.turn", DENIED },
		{ "DROP INDEX app.turn_one_active", DENIED },
		{ "TRUNCATE app.item", DENIED },
		{ "DELETE FROM app.item", DENIED },
		{ "DELETE FROM app.session", DENIED },
		{ "DELETE FROM app.turn", DENIED },
		{ "DELETE FROM app.request", DENIED },
		{ "ALTER FUNCTION app.delete_session(uuid) SECURITY INVOKER", DENIED },
		{ "DROP FUNCTION app.delete_session(uuid)", DENIED },
		{ "UPDATE app.item SET details = ''", DENIED },
		{ "UPDATE app.session SET request_digest = ''", DENIED },
		{ "UPDATE app.item SET body = ''", DENIED },
		{ "UPDATE app.request SET prompt = ''", DENIED },
		{ "UPDATE app.turn SET input = ''", DENIED },
		{ "SELECT * FROM app.migration", DENIED },
		{ "SET ROLE cloister_owner", DENIED },
		{ "CREATE VIEW app.evil AS SELECT 1", DENIED },
	};
	PGconn *tenant = must_connect(tenant_role, tenant_database);

	(void)state;
	assert_works(tenant, "SELECT * FROM app.turn");
	assert_all_fail(tenant, attacks, ARRAY_LEN(attacks));
	PQfinish(tenant);
}

static void databases_are_closed_to_others(void **state)
{
	(void)state;
	assert_refused(tenant_role, other_database, "permission denied for database");
	assert_refused(tenant_role, "cloister", "pg_hba.conf rejects");
	assert_refused(tenant_role, "template1", "pg_hba.conf rejects");
	assert_refused(tenant_role, "postgres", "pg_hba.conf rejects");
	assert_refused("cloister_owner", "template1", "pg_hba.conf rejects");
	assert_refused("cloister_owner", "postgres", "pg_hba.conf rejects");
	assert_refused("cloister_bootstrap", "cloister", "pg_hba.conf rejects");
	assert_refused("cloister_bootstrap", tenant_database, "pg_hba.conf rejects");
	assert_refused("cloister_runtime", tenant_database, "not permitted to log in");
}

static void roles_have_the_declared_attributes(void **state)
{
	PGconn *tenant = must_connect(tenant_role, tenant_database);
	PGconn *owner = must_connect("cloister_owner", "cloister");

	(void)state;
	assert_works(tenant,
	             "SELECT 1 / (NOT (rolsuper OR rolcreatedb OR rolcreaterole OR rolinherit "
	             "OR rolreplication OR rolbypassrls))::int FROM pg_catalog.pg_roles "
	             "WHERE rolname = current_user");
	assert_works(tenant, "SELECT 1 / (current_setting('statement_timeout') = '30s' AND "
	                     "current_setting('lock_timeout') = '5s' AND "
	                     "current_setting('idle_in_transaction_session_timeout') = '30s' AND "
	                     "current_setting('search_path') = 'app, pg_temp')::int");
	assert_works(owner, "SELECT 1 / (NOT (rolsuper OR rolcreaterole OR rolreplication OR "
	                    "rolbypassrls))::int FROM pg_catalog.pg_roles "
	                    "WHERE rolname = 'cloister_owner'");
	assert_works(owner, "SELECT 1 / (count(*) = 0)::int FROM pg_catalog.pg_auth_members m "
	                    "JOIN pg_catalog.pg_roles r ON r.oid = m.member "
	                    "WHERE r.rolname = 'cloister_owner'");
	/* No database, template or not, lets PUBLIC in. */
	assert_works(owner, "SELECT 1 / (count(*) = 0)::int FROM pg_catalog.pg_database d, "
	                    "pg_catalog.aclexplode(coalesce(d.datacl, "
	                    "pg_catalog.acldefault('d', d.datdba))) a WHERE a.grantee = 0");
	PQfinish(tenant);
	PQfinish(owner);
}

/* As the owner, who may add trusted extensions to a database of its own but for the guard. */
static void assert_guarded(const char *database)
{
	static const struct attack attacks[] = {
		{ "CREATE EXTENSION hstore", DENIED },
		{ "DROP EVENT TRIGGER refuse_extension", DENIED },
		{ "DROP SCHEMA privileged CASCADE", DENIED },
		{ "ALTER FUNCTION privileged.refuse_extension() RENAME TO other", DENIED },
	};
	PGconn *owner = must_connect("cloister_owner", database);

	assert_works(owner, "SELECT 1 / (count(*) = 1)::int FROM pg_catalog.pg_event_trigger");
	assert_all_fail(owner, attacks, ARRAY_LEN(attacks));
	PQfinish(owner);
}

static void every_database_refuses_extensions(void **state)
{
	PGconn *owner = must_connect("cloister_owner", "cloister");

	(void)state;
	assert_works(owner, "CREATE DATABASE evil TEMPLATE template1");
	assert_guarded("evil");
	assert_works(owner, "DROP DATABASE evil");
	PQfinish(owner);
	assert_guarded("cloister");
	assert_guarded(tenant_database);
	assert_guarded(other_database);
}

/* As a release made it that knew no guard; in one of them the owner was there first. */
static void strip_guard(const char *database)
{
	static const char sql[] = "DROP EVENT TRIGGER refuse_extension;\n\n"
				  "DROP SCHEMA privileged CASCADE;\n\n";
	static const char squat[] =
		"CREATE SCHEMA privileged AUTHORIZATION cloister_owner;\n\n"
		"CREATE FUNCTION privileged.refuse_extension() RETURNS event_trigger "
		"LANGUAGE plpgsql AS 'BEGIN END';\n\n"
		"ALTER FUNCTION privileged.refuse_extension() OWNER TO cloister_owner;\n\n";
	auto_buf struct buf output = BUF_INIT(65536);
	char postgres[300];
	const char *const argv[] = { postgres, "--single",         "-j",     "-D", cluster.data_dir,
		                     "-c",     "exit_on_error=on", database, NULL };

	(void)snprintf(postgres, sizeof(postgres), "%s/postgres", postgres_bin);
	assert_ok(cluster_command(argv, sql, &output, &e));
	if (strcmp(database, other_database) == 0)
		assert_ok(cluster_command(argv, squat, &output, &e));
}

static void cluster_that_was_made_without_the_guard_gets_it(void **state)
{
	(void)state;
	store_close(&store);
	assert_ok(cluster_stop(&cluster, &e));
	strip_guard("template1");
	strip_guard(tenant_database);
	strip_guard(other_database);
	strip_guard("cloister");
	assert_ok(cluster_start(&cluster, state_dir, postgres_bin, CLUSTER_CONNECTIONS, &e));
	every_database_refuses_extensions(NULL);
	opens_the_store(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opens_the_store),
		cmocka_unit_test(learns_the_names),
		cmocka_unit_test(nobody_reaches_files_or_programs),
		cmocka_unit_test(owner_cannot_bend_the_privileged_function),
		cmocka_unit_test(privileged_function_ignores_the_callers_path),
		cmocka_unit_test(tenant_role_reads_and_appends_only),
		cmocka_unit_test(databases_are_closed_to_others),
		cmocka_unit_test(roles_have_the_declared_attributes),
		cmocka_unit_test(every_database_refuses_extensions),
		cmocka_unit_test(cluster_that_was_made_without_the_guard_gets_it),
		cmocka_unit_test(closes_the_store),
	};

	fixture_begin();
	return fixture_end(RUN_TESTS(tests));
}
