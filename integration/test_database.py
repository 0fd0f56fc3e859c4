"""Attacks from the database connections that the server has: its owner role and its
tenants' roles. Whoever took over the server could send all of this."""

import glob
import os
import subprocess

import pytest

from daemon import AS_SERVICE, ENVIRONMENT
from world import eventually

PSQL = ["psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1"]
PERMISSION = ("permission denied", "must be superuser", "must be owner", "must have admin option",
              "must have CREATEROLE", "to create a role", "superuser", "is not allowed",
              "is not available", "does not exist", "could not", "cannot be")


class Sql:
    def __init__(self, daemon):
        self.socket = f"{daemon.state}/pg/run"
        self.tenants = {name: t.id.replace("-", "") for name, t in daemon.tenants.items()}

    def run(self, user, database, statement):
        """(exit status, output, error) of a statement, sent as the service user."""
        done = subprocess.run(
            [*AS_SERVICE, *PSQL, "-h", self.socket, "-U", user, "-d", database, "-c", statement],
            capture_output=True, text=True, check=False, env=ENVIRONMENT, cwd="/")
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    def ask(self, user, database, statement):
        code, output, error = self.run(user, database, statement)
        assert code == 0, f"{user}@{database}: {statement}: {error}"
        return output

    def role(self, tenant):
        return f"cr_{self.tenants[tenant]}"

    def database(self, tenant):
        return f"ct_{self.tenants[tenant]}"

    def places(self):
        """Every (role, database) that the server connects as and to."""
        return {
            "owner in control": ("cloister_owner", "cloister"),
            "owner in a tenant's": ("cloister_owner", self.database("acme")),
            "tenant": (self.role("acme"), self.database("acme")),
        }


@pytest.fixture(scope="module")
def sql(cloister):
    for name in ("acme", "globex"):
        client = cloister.client(name)
        client.run(client.session(), f"a row of {name}")
    return Sql(cloister)


PLACES = ("owner in control", "owner in a tenant's", "tenant")

FORBIDDEN = {
    "run a program": "COPY (SELECT 1) TO PROGRAM 'touch {canary}'",
    "read a program": "CREATE TEMP TABLE p (t text); COPY p FROM PROGRAM 'touch {canary}; id'",
    "write a file": "COPY (SELECT 1) TO '{canary}'",
    "read a file by copy": "CREATE TEMP TABLE f (t text); COPY f FROM '/etc/passwd'",
    "read a file": "SELECT pg_read_file('/etc/passwd')",
    "read a part of a file": "SELECT pg_read_file('postgresql.conf', 0, 10)",
    "read a binary file": "SELECT pg_read_binary_file('PG_VERSION')",
    "list a directory": "SELECT pg_ls_dir('/')",
    "look at a file": "SELECT pg_stat_file('/etc/passwd')",
    "list the log": "SELECT pg_ls_logdir()",
    "import a large object": "SELECT lo_import('/etc/passwd')",
    "export a large object": "SELECT lo_export(1, '{canary}')",
    "execute programs by role": "GRANT pg_execute_server_program TO CURRENT_USER",
    "write files by role": "GRANT pg_write_server_files TO CURRENT_USER",
    "read files by role": "GRANT pg_read_server_files TO CURRENT_USER",
    "read everything by role": "GRANT pg_read_all_data TO CURRENT_USER",
    "monitor by role": "GRANT pg_monitor TO CURRENT_USER",
    "signal by role": "GRANT pg_signal_backend TO CURRENT_USER",
    "change the configuration": "ALTER SYSTEM SET listen_addresses = '*'",
    "archive by command": "ALTER SYSTEM SET archive_command = 'touch {canary}'",
    "load a library": "LOAD '/lib/x86_64-linux-gnu/libc.so.6'",
    "preload a library": "SET session_preload_libraries = '/tmp/x.so'",
    "reload": "SELECT pg_reload_conf()",
    "make a role": "CREATE ROLE evil",
    "make a superuser": "CREATE ROLE evil SUPERUSER LOGIN",
    "become superuser": "ALTER ROLE CURRENT_USER SUPERUSER",
    "make roles": "ALTER ROLE CURRENT_USER CREATEROLE",
    "bypass row security": "ALTER ROLE CURRENT_USER BYPASSRLS",
    "replicate": "ALTER ROLE CURRENT_USER REPLICATION",
    "be the bootstrap role": "SET ROLE cloister_bootstrap",
    "be it by session": "SET SESSION AUTHORIZATION cloister_bootstrap",
    "let it in": "ALTER ROLE cloister_bootstrap LOGIN",
    "a C function": "CREATE FUNCTION pg_temp.f(cstring) RETURNS int AS 'libc.so.6', 'system' "
                    "LANGUAGE c STRICT",
    "an internal function": "CREATE FUNCTION pg_temp.f(text) RETURNS text AS 'pg_read_file_all' "
                            "LANGUAGE internal",
    "an untrusted language": "CREATE LANGUAGE plpython3u",
    "an extension that reads": "CREATE EXTENSION file_fdw SCHEMA {schema}",
    "an extension that connects": "CREATE EXTENSION dblink SCHEMA {schema}",
    "an extension that administers": "CREATE EXTENSION adminpack SCHEMA pg_catalog",
    "a trusted extension": "CREATE EXTENSION citext SCHEMA {schema}",
    "an extension that is there": "CREATE EXTENSION IF NOT EXISTS plpgsql",
    "another version of one": "ALTER EXTENSION plpgsql UPDATE",
    "a trusted language": "CREATE LANGUAGE plperl",
    "let extensions in": "DROP EVENT TRIGGER refuse_extension",
    "let them in for a while": "ALTER EVENT TRIGGER refuse_extension DISABLE",
    "replace what refuses them": "CREATE OR REPLACE FUNCTION privileged.refuse_extension() "
        "RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'",
    "drop what refuses them": "DROP SCHEMA privileged CASCADE",
    "replicate in silence": "SET session_replication_role = replica",
    "a copy of what was never locked": "CREATE DATABASE evil TEMPLATE template0",
    "a foreign server": "CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw",
    "a tablespace": "CREATE TABLESPACE evil LOCATION '/tmp'",
    "a subscription": "CREATE SUBSCRIPTION s CONNECTION 'host=198.41.0.4' PUBLICATION p",
    "a replication slot": "SELECT pg_create_physical_replication_slot('s')",
    "passwords": "SELECT rolpassword FROM pg_authid",
    "rotate the log": "SELECT pg_rotate_logfile()",
    "end the bootstrap's work": "DROP ROLE cloister_bootstrap",
    "change the privileged function": "CREATE OR REPLACE FUNCTION "
        "privileged.make_tenant_role(tenant uuid) RETURNS void LANGUAGE sql AS 'SELECT 1'",
    "take the privileged schema": "CREATE FUNCTION privileged.f() RETURNS int LANGUAGE sql "
        "AS 'SELECT 1'",
}


@pytest.mark.parametrize("what", FORBIDDEN)
@pytest.mark.parametrize("place", PLACES)
def test_what_no_connection_may_do(sql, world, place, what):
    canary = f"{world.directory}/canary"
    user, database = sql.places()[place]
    schema = "control" if database == "cloister" else "app"
    text = FORBIDDEN[what].format(canary=canary, schema=schema)
    code, output, error = sql.run(user, database, text)
    assert code != 0, f"{place} could {what}: {output}"
    assert "root:" not in output and not os.path.exists(canary)
    # Refused, not merely misspelt (a library or an extension may just not be there).
    assert "syntax error" not in error, error
    assert any(word in error for word in PERMISSION), error


def test_the_attacks_left_nothing(sql):
    roles = sql.ask("cloister_owner", "cloister",
                    "SELECT rolname FROM pg_roles WHERE rolsuper OR rolcreaterole OR "
                    "rolreplication OR rolbypassrls").split()
    assert roles == ["cloister_bootstrap"]
    assert sql.ask("cloister_owner", "cloister",
                   "SELECT count(*) FROM pg_roles WHERE rolname = 'evil'") == "0"
    members = sql.ask("cloister_owner", "cloister",
                      "SELECT DISTINCT g.rolname FROM pg_auth_members m "
                      "JOIN pg_roles g ON g.oid = m.roleid JOIN pg_roles r ON r.oid = m.member "
                      "WHERE r.rolname !~ '^pg_'").split()
    assert members == ["cloister_runtime"], "somebody belongs to a role with powers"


@pytest.mark.parametrize("user,database", [
    ("cloister_bootstrap", "cloister"), ("cloister_bootstrap", "template1"),
    ("cloister_bootstrap", "postgres"), ("cloister_owner", "postgres"),
    ("cloister_owner", "template1"), ("postgres", "postgres"), ("cloister", "cloister"),
    ("cloister_runtime", "cloister"), ("root", "cloister")])
def test_who_cannot_connect(sql, user, database):
    code, _, error = sql.run(user, database, "SELECT 1")
    assert code != 0, f"{user} got into {database}"
    assert "rejects connection" in error or "not permitted to log in" in error or \
        "does not exist" in error or "permission denied" in error or "no pg_hba" in error, error


@pytest.mark.parametrize("kind", ["true", "database"])
def test_replication_cannot_connect(sql, kind):
    code, _, error = sql.run("cloister_owner", f"dbname=cloister replication={kind}",
                             "IDENTIFY_SYSTEM")
    assert code != 0 and ("max_wal_senders" in error or "rejects" in error), error


def test_a_database_of_the_owners_own(sql):
    """Whoever makes one owns it, and still adds no extension to it."""
    sql.ask("cloister_owner", "cloister", "CREATE DATABASE evil")
    try:
        code, _, error = sql.run("cloister_owner", "evil", "CREATE EXTENSION citext SCHEMA pg_catalog")
        assert code != 0 and "permission denied for CREATE EXTENSION" in error, error
    finally:
        sql.ask("cloister_owner", "cloister", "DROP DATABASE evil")


def test_a_tenant_cannot_reach_another(sql):
    for database in (sql.database("globex"), "cloister", "postgres", "template1", "template0"):
        code, _, error = sql.run(sql.role("acme"), database, "SELECT 1")
        assert code != 0, f"acme's role got into {database}"
        assert "permission denied" in error or "rejects connection" in error or \
            "not currently accepting" in error, error


@pytest.mark.parametrize("statement", [
    "SET ROLE cloister_owner", "SET ROLE {other}", "SET SESSION AUTHORIZATION {other}",
    "DELETE FROM app.turn", "TRUNCATE app.item", "DROP TABLE app.session", "CREATE TABLE app.x ()",
    "CREATE TABLE x ()", "CREATE SCHEMA x", "ALTER TABLE app.turn DROP COLUMN input",
    "UPDATE app.item SET body = 'x'", "UPDATE app.turn SET input = 'x'", "CREATE TEMP TABLE x ()",
    "UPDATE app.request SET prompt = 'x'", "SELECT lo_from_bytea(0, 'x')", "SELECT lo_create(0)",
    "CREATE FUNCTION app.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "DO $$ BEGIN END $$",
    "CREATE DATABASE x", "ALTER DATABASE {database} SET work_mem = '1GB'", "SELECT privileged.make_tenant_role(NULL)",
    "SELECT * FROM control.tenant", "CREATE EVENT TRIGGER x ON ddl_command_start EXECUTE "
    "FUNCTION f()", "ALTER ROLE {other} LOGIN"])
def test_what_a_tenants_role_may_not_do(sql, statement):
    text = statement.format(other=sql.role("globex"), database=sql.database("acme"))
    code, output, error = sql.run(sql.role("acme"), sql.database("acme"), text)
    assert code != 0, f"{text} was allowed: {output}"
    assert "syntax error" not in error, error


def test_what_a_tenants_role_tries_in_vain(sql):
    """Where PostgreSQL warns instead of failing."""
    place = sql.role("acme"), sql.database("acme")
    assert "no privileges" in sql.run(*place, "GRANT SELECT ON app.turn TO PUBLIC")[2]
    assert "skipping" in sql.run(*place, "VACUUM FULL app.turn")[2]
    backends = "FROM pg_stat_activity WHERE usename = 'cloister_owner'"
    assert int(sql.ask(*place, f"SELECT count(*) {backends}")) > 0
    assert sql.run(*place, f"SELECT pg_terminate_backend(pid) {backends}")[0] != 0


def test_a_tenants_role_sees_its_own(sql):
    """The counterpart: the connection works, so what is refused is refused for a reason."""
    place = sql.role("acme"), sql.database("acme")
    assert int(sql.ask(*place, "SELECT count(*) FROM app.turn")) > 0
    assert sql.ask(*place, "SELECT count(*) FROM app.turn "
                           "WHERE convert_from(input, 'UTF8') = 'a row of globex'") == "0"
    assert sql.ask(*place, "SHOW statement_timeout") == "30s"
    assert sql.ask(*place, "SHOW idle_in_transaction_session_timeout") == "30s"


def test_roles_cannot_be_named(sql):
    """The one privileged function takes a UUID and nothing else."""
    for argument in ("'x'", "'pg_execute_server_program'", "NULL", "'; DROP ROLE x'"):
        code, _, error = sql.run("cloister_owner", "cloister",
                                 f"SELECT privileged.make_tenant_role({argument})")
        assert code != 0 and ("uuid" in error or "tenant is needed" in error), error


def test_the_owner_cannot_shadow_what_the_privileged_function_calls(sql):
    """Its search path is fixed: objects of the caller's are not what it finds."""
    code, _, error = sql.run(
        "cloister_owner", "cloister",
        "CREATE FUNCTION control.replace(text, text, text) RETURNS text LANGUAGE sql AS "
        "'SELECT ''evil'''; SET search_path = control, pg_catalog; "
        "SELECT privileged.make_tenant_role('00000000-0000-7000-8000-0000000000ff'); "
        "DROP FUNCTION control.replace(text, text, text)")
    assert code == 0, error
    assert sql.ask("cloister_owner", "cloister",
                   "SELECT rolname FROM pg_roles WHERE rolname = "
                   "'cr_000000000000700080000000000000ff'")


def test_the_socket_is_the_service_users(sql, cloister):
    for path in (cloister.state, f"{cloister.state}/pg", sql.socket):
        assert os.stat(path).st_mode & 0o077 == 0, path
    done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *PSQL,
                           "-h", sql.socket, "-U", "cloister_owner", "-d", "cloister", "-c",
                           "SELECT 1"], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode != 0 and "denied" in done.stderr


def test_nothing_listens_but_the_api(cloister):
    """No TCP but the one port, on loopback."""
    listening = []
    for process in [cloister.launcher(), *cloister.tree()]:
        inodes = set()
        for fd in glob.glob(f"/proc/{process.pid}/fd/*"):
            try:
                inodes.add(os.readlink(fd))
            except OSError:
                continue
        for family in ("tcp", "tcp6", "udp", "udp6"):
            try:
                if os.readlink(f"/proc/{process.pid}/ns/net") != \
                        os.readlink("/proc/self/ns/net"):
                    continue
            except FileNotFoundError:
                break  # it has ended
            for line in process.read(f"net/{family}").splitlines()[1:]:
                field = line.split()
                if f"socket:[{field[9]}]" in inodes and (field[3] == "0A" or "udp" in family):
                    listening.append((process.name, family, field[1]))
    assert listening == [("cloisterd", "tcp", f"0100007F:{cloister.port:04X}")], listening


def test_configuration_is_written_anew(make_daemon):
    """What somebody put into the cluster's files does not survive a start."""
    daemon = make_daemon().start()
    session = daemon.client("acme").session()
    assert daemon.stop() == 0
    for name, line in (("pg_hba.conf", "local all all trust\n"),
                       ("postgresql.auto.conf", "archive_mode = on\n")):
        with open(f"{daemon.state}/pg/data/{name}", "a", encoding="utf-8") as f:
            f.write(line)
    daemon.start()
    assert daemon.client("acme").call("GET", f"/v1/sessions/{session}")
    sql = Sql(daemon)
    assert sql.run("cloister_bootstrap", "cloister", "SELECT 1")[0] != 0
    assert sql.ask("cloister_owner", "cloister", "SHOW archive_mode") == "off"


def test_the_database_has_room_for_the_connections_it_is_asked_for(make_daemon):
    """As many as --max-db-connections says, and some that are just ending."""
    daemon = make_daemon().start(max_db_connections=300)
    sql = Sql(daemon)
    assert sql.ask("cloister_owner", "cloister", "SHOW max_connections") == "320"
    assert daemon.stop() == 0
    daemon.start()
    assert sql.ask("cloister_owner", "cloister", "SHOW max_connections") == "36"


def test_the_mark_of_unfinished_turns_stays_a_while_and_goes(sql, cloister):
    """Turns that follow one another find it set; it is gone when none follows."""
    client = cloister.client("acme")
    session = client.session(model="demo")

    def marked():
        return sql.ask("cloister_owner", "cloister", "SELECT unfinished FROM control.tenant "
                       f"WHERE id = '{cloister.tenants['acme'].id}'")

    turn = client.start(session, "? go on | yes")
    client.wait_for(turn, "waiting_for_input")
    assert marked() == "t"
    client.end(turn)
    client.wait(turn)
    eventually(lambda: marked() == "f", 30, "the mark goes")
