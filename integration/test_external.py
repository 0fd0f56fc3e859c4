"""An external PostgreSQL (--database-url-file): its own cluster, which these tests make."""

import glob
import hashlib
import hmac
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.parse

import pytest

from daemon import AS_SERVICE, ENVIRONMENT, Daemon, write_file
from nix_eval import ROOT
from test_database import FORBIDDEN, PERMISSION
from world import SANITIZED, descendants, eventually

OWNER = "Geheim:4711/@%äß"
PROGRAMS = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(path.split("/")[4]))
AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
PSQL = ["psql", "-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1"]
PORT = 5499
HBA = """local all postgres peer
local all all scram-sha-256
hostssl all all 127.0.0.0/8 scram-sha-256
"""


class Postgres:
    """A cluster of somebody else's, with a socket and, over TLS, a port on loopback."""

    SETTINGS = ""

    def __init__(self, world):
        self.world, self.process, self.password = world, None, OWNER
        self.directory = world.new_directory()
        user = pwd.getpwnam("postgres")
        os.mkdir(self.directory, 0o755)
        os.chown(self.directory, user.pw_uid, user.pw_gid)
        self.data = f"{self.directory}/data"
        self.public = world.new_directory()  # where nobody but root puts anything
        os.mkdir(self.public, 0o755)
        for name in ("other", "ca"):
            self.authority(name)
            shutil.copyfile(f"{self.directory}/{name}.pem", f"{self.public}/{name}.pem")
        self.certificate()
        self.command(f"{PROGRAMS}/initdb", "-D", self.data, "-U", "postgres", "-N", "--auth=reject")
        self.add("postgresql.conf", f"""
            port = {PORT}
            listen_addresses = '127.0.0.1, 127.0.0.2'
            ssl = on
            ssl_cert_file = '{self.directory}/server.pem'
            ssl_key_file = '{self.directory}/server.key'
            unix_socket_directories = '{self.directory}'
            fsync = off
            log_statement = 'all'
            {self.SETTINGS}
            """)
        self.write_rules(HBA)
        self.start()
        self.prepare()
        self.set_password(OWNER)

    def add(self, name, text):
        with open(f"{self.data}/{name}", "a", encoding="utf-8") as f:
            f.write(text)

    def write_rules(self, rules):
        with open(f"{self.data}/pg_hba.conf", "w", encoding="ascii") as f:
            f.write(rules)

    def set_rules(self, rules):
        """Who logs in later is judged by them: the server takes up a few while it reloads."""
        self.write_rules(rules)
        before = self.sql("SELECT pg_conf_load_time()")
        self.sql("SELECT pg_reload_conf()")
        eventually(lambda: self.sql("SELECT pg_conf_load_time()") != before, 30, "other rules")

    @staticmethod
    def command(*words, text=None):
        done = subprocess.run([*AS_POSTGRES, *words], input=text, capture_output=True, text=True,
                              check=False, env=ENVIRONMENT, cwd="/")
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout.strip()

    def openssl(self, *words):
        self.command("openssl", *words)

    def authority(self, name):
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                     "-days", "2", "-subj", f"/CN={name}", "-keyout", f"{self.directory}/{name}.key",
                     "-out", f"{self.directory}/{name}.pem")

    def certificate(self):
        """For 127.0.0.1 and localhost, from the authority ca."""
        with open(f"{self.directory}/names", "w", encoding="ascii") as f:
            f.write("subjectAltName = DNS:localhost, IP:127.0.0.1\n")
        place = f"{self.directory}/server"
        self.openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                     "-subj", "/CN=database", "-keyout", f"{place}.key", "-out", f"{place}.csr")
        self.openssl("x509", "-req", "-in", f"{place}.csr", "-CA", f"{self.directory}/ca.pem",
                     "-CAkey", f"{self.directory}/ca.key", "-CAcreateserial", "-days", "2",
                     "-extfile", f"{self.directory}/names", "-out", f"{place}.pem")

    def start(self):
        with open(f"{self.directory}/log", "ab") as log:
            self.process = subprocess.Popen(
                [*AS_POSTGRES, f"{PROGRAMS}/postgres", "-D", self.data], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, cwd="/", env=ENVIRONMENT, start_new_session=True)
        self.world.listeners.append(self.process.pid)
        ready = [f"{PROGRAMS}/pg_isready", "-q", "-h", self.directory, "-p", str(PORT)]
        eventually(lambda: subprocess.run(ready, check=False).returncode == 0, 30, "PostgreSQL")

    def stop(self, sig=signal.SIGINT):
        self.process.send_signal(sig)
        self.process.wait(30)
        self.world.listeners.remove(self.process.pid)

    def psql(self, *more):
        return [*PSQL, "-h", self.directory, "-p", str(PORT), *more]

    def sql(self, statement, database="postgres"):
        return self.command(*self.psql("-U", "postgres", "-d", database, "-f", "-"), text=statement)

    def prepare(self):
        script = subprocess.run([f"{self.world.programs}/cloisterd", "database-script"], check=True,
                                capture_output=True, text=True).stdout
        return self.sql(script)

    def set_password(self, password):
        self.password = password
        self.sql(f"ALTER ROLE cloister_owner PASSWORD '{password}'")

    def set_templates(self, yes):
        for name in ("template0", "template1"):
            self.sql(f"ALTER DATABASE {name} IS_TEMPLATE {yes}")

    def run_as(self, user, password, database, statement):
        """(exit status, output, error) of what a role with its password asks for."""
        done = subprocess.run(
            self.psql("-U", user, "-d", database, "-c", statement), capture_output=True, text=True,
            check=False, cwd="/", env={**ENVIRONMENT, "PGPASSWORD": password})
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    def tenant_password(self, role):
        key = hmac.digest(self.password.encode(), b"cloister: passwords of tenant roles, 1", "sha256")
        return hmac.digest(key, role.encode(), "sha256").hex()

    def url(self, password=None, port=PORT):
        secret = urllib.parse.quote(password or self.password, safe="")
        return f"postgresql://cloister_owner:{secret}@/cloister?host={self.directory}&port={port}"


    def tcp(self, host="127.0.0.1", authority="ca"):
        secret = urllib.parse.quote(self.password, safe="")
        return (f"postgresql://cloister_owner:{secret}@{host}:{PORT}/cloister?sslmode=verify-full&"
                f"sslrootcert={self.public}/{authority}.pem")


@pytest.fixture(scope="module")
def server(world):
    made = Postgres(world)
    yield made
    made.stop(signal.SIGQUIT)


def with_url(daemon, url):
    path = f"{daemon.var}/database-url"
    write_file(path, url + "\n")
    daemon.options.append(f"--database-url-file={path}")
    return daemon


@pytest.fixture
def external(make_daemon, server):
    return with_url(make_daemon(), server.url())


@pytest.fixture(scope="module", autouse=True)
def hopeless(world, server):
    """Daemons that wait for a server in vain, while other tests run."""
    urls = {"nowhere": server.url().replace(server.directory, "/nonexistent/one"),
            "another authority": server.tcp(authority="other"),
            "another name": server.tcp("127.0.0.2")}
    daemons = {what: with_url(Daemon(world), url) for what, url in urls.items()}
    for daemon in daemons.values():
        daemon.spawn(daemon.command())
    yield daemons
    for daemon in daemons.values():
        daemon.kill()


def names(daemon, tenant):
    number = daemon.tenants[tenant].id.replace("-", "")
    return f"cr_{number}", f"ct_{number}"


def reload(daemon):
    subprocess.run([*AS_SERVICE, f"{daemon.world.programs}/cloisterd", "reload", "--state",
                    daemon.state], check=True, capture_output=True, env=ENVIRONMENT)


# --- a life --------------------------------------------------------------------------------------


def test_the_script_may_run_again(server):
    """And changes nothing then, of no database."""

    def everything():
        dump = server.command(f"{PROGRAMS}/pg_dumpall", "-h", server.directory, "-p", str(PORT),
                              "-U", "postgres", "-s", "--no-role-passwords")
        return [re.sub(r"^\\(un)?restrict .*$", "", dump, flags=re.M),  # another word each time
                server.sql("SELECT datname, datistemplate, datallowconn, datacl FROM pg_database "
                           "ORDER BY 1")]

    before = everything()
    assert "cloister|f|t|{postgres=CTc/postgres,cloister_owner=c/postgres}" in before[1]
    assert "refuse_extension" in before[0] and "cloister_template|t|f" in before[1]
    server.prepare()
    assert everything() == before
    # It was ended once between the making of a database and its opening.
    server.sql("ALTER DATABASE cloister ALLOW_CONNECTIONS false; "
               "GRANT CONNECT ON DATABASE cloister TO PUBLIC")
    server.prepare()
    assert everything() == before


def test_the_script_resets_what_the_owner_was_set_to(server):
    """Everywhere and in each database; and nothing of another role's or of a database's."""
    odd = '"it\'s ""%I"""'

    def settings(role):
        return server.sql("SELECT coalesce(d.datname, '-'), s.setconfig FROM pg_db_role_setting s LEFT JOIN pg_database "
                          f"d ON d.oid = s.setdatabase WHERE setrole = {role} ORDER BY 1")

    owner, another = "'cloister_owner'::regrole", "'somebody'::regrole"
    ours = settings(owner)
    assert ours == "-|{log_min_error_statement=panic,log_error_verbosity=terse,log_parameter_max_length=0}"
    server.sql(f"CREATE ROLE somebody; CREATE DATABASE {odd}")
    try:
        for where in ("", *(f" IN DATABASE {name}" for name in ("cloister", "template1", odd))):
            assert server.run_as("cloister_owner", server.password, "cloister",
                                 f"ALTER ROLE cloister_owner{where} SET search_path = nowhere")[0] == 0
            server.sql(f"ALTER ROLE cloister_owner{where} SET session_preload_libraries = 'auto_explain'; "
                       f"ALTER ROLE somebody{where} SET search_path = theirs")
        server.sql("ALTER DATABASE cloister SET deadlock_timeout = '2s'")
        before = settings(another), settings("0")
        assert before[0].count("theirs") == settings(owner).count("nowhere") == 4 and "deadlock_timeout" in before[1]
        server.prepare()
        assert settings(owner) == ours
        assert (settings(another), settings("0")) == before
        assert server.run_as("cloister_owner", server.password, "cloister", "SHOW search_path")[1] == '"$user", public'
    finally:
        server.sql("ALTER DATABASE cloister RESET deadlock_timeout; DROP ROLE somebody")
        server.sql(f"DROP DATABASE {odd}")


def test_turns_run_and_sessions_stay(server, external):
    external.start()
    assert "cloisterd" in server.sql("SELECT DISTINCT application_name FROM pg_stat_activity "
                                     "WHERE datname = 'cloister'")
    client = external.client("acme")
    session = client.session()
    assert client.run(session, "one").status == "completed"
    assert external.stop() == 0
    assert os.listdir(external.state) == [], "no cluster, and no reserve for one"
    external.start()
    again = external.client("acme")
    assert again.call("GET", f"/v1/sessions/{session}")["id"] == session
    assert again.run(session, "two").status == "completed"
    role, database = names(external, "acme")
    assert server.sql("SELECT count(*) FROM app.turn", database) == "2"
    assert server.sql(f"SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'").startswith(
        "SCRAM-SHA-256$")
    assert external.stop() == 0


def test_one_person_may_have_it_too(server, external):
    external.start(tenants=None, workspace_root=external.tenants["acme"].workspace)
    client = external.client()
    assert client.run(client.session(), "one").status == "completed"
    assert external.stop() == 0


def test_nobody_reaches_another(server, external):
    external.start()
    for name in ("acme", "globex"):
        client = external.client(name)
        client.run(client.session(), f"a row of {name}")
    (role, own), (_, other) = names(external, "acme"), names(external, "globex")
    secret = server.tenant_password(role)
    assert server.run_as(role, secret, own, "SELECT count(*) FROM app.turn")[:2] == (0, "1")
    for database in (other, "cloister", "cloister_template"):
        code, _, error = server.run_as(role, secret, database, "SELECT 1")
        assert code != 0 and ("permission denied" in error or "not currently accepting" in error)
    assert "password authentication failed" in server.run_as(role, OWNER, own, "SELECT 1")[2]
    other_role = names(external, "globex")[0]
    assert "password authentication failed" in server.run_as(other_role, secret, other,
                                                             "SELECT 1")[2]
    assert external.stop() == 0


def test_the_log_of_the_server_shows_no_values(server, external):
    """Not what fails, its DETAIL or its parameters; and our roles cannot have it otherwise."""
    external.start()
    external.client("acme").session()
    assert external.stop() == 0
    role, own = names(external, "acme")
    settings = {"log_min_error_statement": "panic", "log_error_verbosity": "terse", "log_parameter_max_length": "0"}
    for user, password in (("cloister_owner", server.password), (role, server.tenant_password(role))):
        for name, value in settings.items():
            assert server.run_as(user, password, own, f"SHOW {name}")[:2] == (0, value)
            for how in (f"SET {name} TO DEFAULT", f"ALTER ROLE {user} SET {name} TO DEFAULT",
                        f"ALTER ROLE {user} RESET {name}"):
                assert "permission denied" in server.run_as(user, password, own, how)[2], how
    value = hashlib.md5(b"a tenant's").hexdigest()  # which is in no statement
    with open(f"{server.directory}/log", encoding="utf-8") as log:
        log.seek(0, os.SEEK_END)
        said = server.run_as("cloister_owner", server.password, own, "CREATE TABLE app.one (it text PRIMARY KEY); "
                             "INSERT INTO app.one SELECT md5('a tenant''s') FROM generate_series(1, 2)")[2]
        logged = log.read()
    assert value in said and "duplicate key value violates" in logged
    assert value not in logged and "STATEMENT:" not in logged


def what_is_allowed(server, user, password, database, statements):
    """Runs each statement in one session; the names of those that went through, and all errors."""
    script = "\\set ON_ERROR_STOP off\n" + "".join(
        f"{statement};\n\\echo {number} :ERROR :LAST_ERROR_MESSAGE\n"
        for number, statement in enumerate(statements.values()))
    done = subprocess.run(
        server.psql("-U", user, "-d", database, "-f", "-"), input=script, capture_output=True,
        text=True, check=False, cwd="/", env={**ENVIRONMENT, "PGPASSWORD": password})
    rows = re.findall("^([0-9]+) (true|false) ?(.*)$", done.stdout, re.M)
    assert [int(number) for number, *_ in rows] == list(range(len(statements))), done
    said = dict(zip(statements, ((error, text) for _, error, text in rows), strict=True))
    return [name for name in said if said[name][0] == "false"], \
        {name: text for name, (_, text) in said.items()}


def test_what_no_connection_may_do(server, external):
    """What none of the managed cluster may, on a server that is Cloister's alone."""
    external.start()
    external.client("acme").session()
    assert external.stop() == 0
    assert "cloister_owner may make copies of template0, template1, " in external.log()
    server.set_templates(False)
    try:
        before = len(external.log())
        external.start()
        assert external.stop() == 0 and "may make copies" not in external.log()[before:]
        try_what_is_forbidden(server, external)
    finally:
        server.set_templates(True)


def try_what_is_forbidden(server, external):
    role, own = names(external, "acme")
    canary = f"{server.directory}/canary"
    places = {"control": ("cloister_owner", server.password, "cloister"),
              "app": ("cloister_owner", server.password, own),
              "tenant": (role, server.tenant_password(role), own)}
    for place, who in places.items():
        statements = {what: statement.format(canary=canary, schema="app" if place != "control"
                                             else "control")
                      for what, statement in FORBIDDEN.items()}
        allowed, errors = what_is_allowed(server, *who, statements)
        assert not allowed, place
        assert not os.path.exists(canary)
        for what, error in errors.items():
            assert any(word in error for word in PERMISSION), (place, what, error)


@pytest.mark.parametrize("verifier", [
    "NULL", "''", "'x'", "'SCRAM-SHA-256$4096:AAAA$AAAA:AAAA'",
    "'SCRAM-SHA-256$4096:' || repeat('A', 22) || '==$' || repeat('A', 43) || '=:' || "
    "repeat('A', 43) || '=''; DROP ROLE cloister_runtime'",
    "'SCRAM-SHA-256$100000:' || repeat('A', 22) || '==$' || repeat('A', 43) || '=:' || "
    "repeat('A', 43) || '='",
    "'SCRAM-SHA-256$0:' || repeat('A', 22) || '==$' || repeat('A', 43) || '=:' || "
    "repeat('A', 43) || '='",
    "'md5' || repeat('a', 32)"])
def test_what_is_no_verifier(server, verifier):
    code, _, error = server.run_as(
        "cloister_owner", server.password, "cloister", "SELECT privileged.make_tenant_role("
        f"'00000000-0000-7000-8000-0000000000fe', {verifier})")
    assert code != 0 and "a SCRAM verifier is needed" in error, error
    assert server.sql("SELECT count(*) FROM pg_roles WHERE rolname ~ '00fe$'") == "0"


def test_what_a_role_set_for_itself_is_gone_with_the_next_start(server, external):
    external.start()
    client = external.client("acme")
    session = client.session()
    role, database = names(external, "acme")
    for where in ("", f" IN DATABASE {database}"):
        code, _, error = server.run_as(role, server.tenant_password(role), database,
                                       f"ALTER ROLE {role}{where} SET search_path = nowhere")
        assert code == 0, error
    assert external.stop() == 0
    external.start()
    assert external.client("acme").call("GET", f"/v1/sessions/{session}")["id"] == session
    assert server.sql(f"SELECT count(*) FROM pg_db_role_setting WHERE 'search_path=nowhere' = "
                      f"ANY(setconfig) AND setrole = '{role}'::regrole") == "0"
    assert external.stop() == 0


def test_purge_leaves_nothing(server, external):
    external.start()
    client = external.client("globex")
    client.run(client.session(), "a row")
    role, database = names(external, "globex")
    gone = external.tenants.pop("globex")
    external.write_registry({"version": 1, "tenants": [t.entry() for t in external.tenants.values()]})
    reload(external)
    subprocess.run([f"{external.world.programs}/cloisterd", "tenant", "purge", gone.id, "--state",
                    external.state], check=True, capture_output=True, env=ENVIRONMENT)
    assert server.sql(f"SELECT (SELECT count(*) FROM pg_database WHERE datname = '{database}') + "
                      f"(SELECT count(*) FROM pg_roles WHERE rolname = '{role}')") == "0"
    assert external.stop() == 0


def test_the_server_is_restarted_under_load(server, external):
    external.start()
    kept, faults, over = [], [], threading.Event()
    external.client("acme").session()

    def load():
        client = external.client("acme")
        while not over.is_set():
            answer = client.request("POST", "/v1/sessions", {})
            if answer.status == 201:
                kept.append(answer.json["id"])
            elif (answer.status, answer.code) != (503, "store_unavailable"):
                faults.append(answer)

    def ready():
        return external.client().request("GET", "/readyz").status

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: len(kept) > 10, 20, "sessions are made")
        server.stop()
        eventually(lambda: ready() == 503, 20, "it is not ready without a database")
        server.start()
        eventually(lambda: ready() == 200, 30, "it is ready again")
        before = len(kept)
        eventually(lambda: len(kept) > before + 10, 20, "sessions are made again")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not faults
    client = external.client("acme")
    for session in kept:
        client.call("GET", f"/v1/sessions/{session}")
    assert external.stop() == 0


HOLDER = """SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 7740319 AND objid = 0
           AND granted AND database = (SELECT oid FROM pg_database WHERE datname = 'cloister')"""


def test_nobody_gets_in_while_the_server_is_restarted(server, external, make_daemon):
    """The lock is a connection's; whoever lost that takes it again before anything else."""
    external.start()
    client = external.client("acme")
    session = client.session()
    other = with_url(make_daemon(), server.url())
    for _ in range(3):
        server.stop()
        server.start()
        eventually(lambda: server.sql(HOLDER), 20, "the lock is taken again")
        code, lines = other.fail()
        assert code == 1 and any("another cloisterd uses this database" in line for line in lines)
    server.sql(f"SELECT pg_terminate_backend(pid) FROM ({HOLDER}) AS guard")
    eventually(lambda: server.sql(HOLDER), 20, "the lock is taken again")
    assert client.run(session, "again").status == "completed"
    assert external.stop() == 0


def test_who_lost_the_database_to_another_ends(server, external):
    external.start()
    client = external.client("acme")
    turn = client.start(client.session(), "$ echo begun; sleep 600")
    eventually(lambda: " runs\n" in external.log(), 60, "a sandbox")
    daemon = external.server()
    os.kill(daemon.pid, signal.SIGSTOP)
    server.sql(f"SELECT pg_terminate_backend(pid) FROM ({HOLDER}) AS guard")
    eventually(lambda: not server.sql(HOLDER), 20, "the end of the lock")
    with subprocess.Popen(
            server.psql("-U", "cloister_owner", "-d", "cloister"), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, cwd="/",
            env={**ENVIRONMENT, "PGPASSWORD": server.password}) as thief:
        thief.stdin.write("SELECT pg_try_advisory_lock(7740319, 0);\n")
        thief.stdin.flush()
        assert thief.stdout.readline() == "t\n"
        os.kill(daemon.pid, signal.SIGCONT)
        assert external.process.wait(60) == 1
        thief.stdin.close()
    assert "the connection that kept other daemons away was lost" in external.log()
    assert not external.tree()
    external.start()
    assert external.client("acme").wait(turn).status == "completed"
    assert external.stop() == 0


def test_another_password_heals_with_a_restart(server, external):
    external.start()
    client = external.client("acme")
    client.run(client.session(), "a row")
    assert external.stop() == 0
    try:
        server.set_password("another-Password-1")
        code, lines = external.fail()
        assert code == 1 and any("password authentication failed" in line for line in lines)
        write_file(f"{external.var}/database-url", server.url())
        external.start()
        client = external.client("acme")
        assert client.run(client.session(), "a row").status == "completed"
        assert external.stop() == 0
    finally:
        server.set_password(OWNER)


def test_a_tenants_database_that_lost_its_guard(server, external):
    """That tenant is served no more, and another one is."""
    external.start()
    client = external.client("acme")
    client.session()
    assert external.stop() == 0
    server.sql("ALTER EVENT TRIGGER refuse_extension DISABLE", names(external, "acme")[1])
    external.start()
    external.client("acme").call("POST", "/v1/sessions", {}, 503, "store_unavailable")
    assert external.client("globex").session()
    assert "the event trigger refuse_extension is missing or disabled in database ct_" in \
        external.log()
    server.sql("ALTER EVENT TRIGGER refuse_extension ENABLE", names(external, "acme")[1])
    assert external.client("acme").session()
    assert external.stop() == 0


# --- what is refused at start ----------------------------------------------------------------------

with open(f"{ROOT}/sql/bootstrap/3_guard.sql", encoding="utf-8") as guard:
    GUARD = "CREATE EVENT TRIGGER" + guard.read().partition("CREATE EVENT TRIGGER")[2]

BROKEN = {  # database, how, and what is said; the script repairs it where nothing else is named
    "another superuser": ("postgres", "ALTER ROLE cloister_owner SUPERUSER",
                          "was given to cloister_owner", None),
    "a maker of roles": ("postgres", "ALTER ROLE cloister_runtime CREATEROLE",
                         "was given to cloister_runtime", None),
    "a reader of files": ("postgres", "GRANT pg_read_server_files TO cloister_owner",
                          "is a member of pg_read_server_files; REVOKE",
                          "REVOKE pg_read_server_files FROM cloister_owner"),
    "a member of the superuser": ("postgres", "GRANT postgres TO cloister_runtime",
                                  "is a member of ", "REVOKE postgres FROM cloister_runtime"),
    "never prepared": ("cloister", "DROP FUNCTION privileged.release()",
                       "the server was not prepared for Cloister", None),
    "no such role": ("postgres", "ALTER ROLE cloister_owner RENAME TO somebody",
                     "see that the server was prepared (cloisterd database-script)",
                     "ALTER ROLE somebody RENAME TO cloister_owner"),
    "no such database": ("postgres", "ALTER DATABASE cloister RENAME TO cloisters",
                         "see that the server was prepared (cloisterd database-script)",
                         "ALTER DATABASE cloisters RENAME TO cloister"),
    "prepared earlier": ("cloister", "CREATE OR REPLACE FUNCTION privileged.release() RETURNS "
                         "integer LANGUAGE sql AS 'SELECT 0'",
                         "was prepared for an earlier release of Cloister (0, and this one needs",
                         None),
    "functions of another's": ("cloister", "ALTER FUNCTION privileged.release() OWNER TO "
                               "cloister_runtime",
                               "schema privileged belong to cloister_runtime", None),
    "extensions": ("cloister", "ALTER EVENT TRIGGER refuse_extension DISABLE",
                   "refuse_extension is missing or disabled in database cloister", None),
    "extensions in replicas": ("cloister", "ALTER EVENT TRIGGER refuse_extension ENABLE REPLICA",
                               "refuse_extension is missing or disabled in database cloister", None),
    "another guard": ("cloister", """
                      CREATE FUNCTION privileged.other() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
                      REVOKE ALL ON FUNCTION privileged.other() FROM PUBLIC;
                      DROP EVENT TRIGGER refuse_extension;
                      CREATE EVENT TRIGGER refuse_extension ON ddl_command_start WHEN TAG IN
                      ('CREATE EXTENSION', 'ALTER EXTENSION', 'CREATE LANGUAGE')
                      EXECUTE FUNCTION privileged.other()""",
                      "refuse_extension is not the one of the script in database cloister",
                      f"DROP FUNCTION privileged.other() CASCADE; {GUARD}"),
    "a guard that looks away": ("cloister", "DROP EVENT TRIGGER refuse_extension; "
                                + GUARD.replace("'ALTER EXTENSION', ", ""),
                                "refuse_extension is not the one of the script in database cloister",
                                f"DROP EVENT TRIGGER refuse_extension; {GUARD}"),
    **{f"large objects, {name}": (
        "cloister", f"GRANT EXECUTE ON FUNCTION {name} TO PUBLIC",
        f"PUBLIC may make or change large objects by {name} in database cloister",
        f"REVOKE ALL ON FUNCTION {name} FROM PUBLIC") for name in ("lo_creat(integer)", "lo_put(oid,bigint,bytea)")},
    "a language": ("cloister", "GRANT USAGE ON LANGUAGE plpgsql TO PUBLIC",
                   "PUBLIC may use language plpgsql in database cloister",
                   "REVOKE ALL ON LANGUAGE plpgsql FROM PUBLIC"),
    "somebody": ("postgres", "CREATE ROLE somebody; GRANT CONNECT ON DATABASE cloister TO somebody",
                 "a privilege of database cloister was given to somebody",
                 "REVOKE ALL ON DATABASE cloister FROM somebody; DROP ROLE somebody"),
    "more for the owner": ("postgres", "GRANT CREATE ON DATABASE cloister TO cloister_owner",
                           "a privilege of database cloister was given to cloister_owner",
                           "REVOKE CREATE ON DATABASE cloister FROM cloister_owner"),
    "another one's database": ("postgres", "CREATE ROLE somebody; ALTER DATABASE cloister OWNER TO somebody",
                               "database cloister belongs to somebody",
                               "ALTER DATABASE cloister OWNER TO postgres; DROP ROLE somebody"),
    "the owner's template": ("postgres", "ALTER DATABASE cloister_template OWNER TO cloister_owner",
                             "database cloister_template belongs to cloister_owner",
                             "ALTER DATABASE cloister_template OWNER TO postgres"),
    "a member of the owner": ("postgres", "CREATE ROLE somebody; GRANT cloister_owner TO somebody",
                              "is a member of cloister_owner: somebody", "DROP ROLE somebody"),
    "a maker of tenants": ("cloister", "CREATE ROLE somebody; "
                           "GRANT EXECUTE ON FUNCTION privileged.make_tenant_role(uuid) TO somebody",
                           "function privileged.make_tenant_role(uuid) may be called by somebody",
                           "DROP OWNED BY somebody; DROP ROLE somebody"),
    "makers of tenants": ("cloister", "GRANT EXECUTE ON FUNCTION privileged.drop_tenant_role(uuid) TO PUBLIC",
                          "function privileged.drop_tenant_role(uuid) may be called by PUBLIC", None),
    "anybody": ("postgres", "GRANT CONNECT ON DATABASE cloister TO PUBLIC",
                "PUBLIC may connect to database cloister", None),
    "anybody in the template": ("postgres", "GRANT CONNECT ON DATABASE cloister_template TO PUBLIC",
                                "PUBLIC may connect to database cloister_template", None),
    "no template": ("postgres", "ALTER DATABASE cloister_template IS_TEMPLATE false",
                    "there is no template database cloister_template", None),
    "a standby": ("postgres", "ALTER DATABASE cloister SET default_transaction_read_only = on",
                  "the server takes no changes",
                  "ALTER DATABASE cloister RESET default_transaction_read_only"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_server_that_is_not_as_it_has_to_be(server, external, what):
    database, how, said, repair = BROKEN[what]
    server.sql(how, database)
    try:
        code, lines = external.fail()
    finally:
        if repair:
            server.sql(repair, database)
        else:
            server.prepare()
    assert code == 1 and any(said in line for line in lines), lines
    assert not any("trying again" in line for line in lines), "to wait would change nothing"
    assert not any(OWNER in line for line in lines)


@pytest.mark.parametrize("name", ["cloister", "cloister_template"])
def test_the_script_runs_in_nothing_of_anothers(server, name):
    """Whatever is in there would be run by a superuser."""
    server.sql(f"ALTER DATABASE {name} OWNER TO cloister_owner")
    try:
        with pytest.raises(AssertionError, match="belongs to no superuser"):
            server.prepare()
    finally:
        server.sql(f"ALTER DATABASE {name} OWNER TO postgres")
    server.prepare()


@pytest.mark.parametrize("how", ["socket", "tcp"])
def test_a_server_that_asks_for_no_password(server, make_daemon, how):
    server.set_rules("local all all trust\nhostssl all all 127.0.0.0/8 trust\n")
    try:
        code, lines = with_url(make_daemon(), server.url() if how == "socket" else server.tcp()).fail()
    finally:
        server.set_rules(HBA)
    assert code == 1 and any("it lets in whoever comes; let " in line for line in lines), lines


def test_it_is_as_it_has_to_be_again(external):
    """After all that was broken and repaired."""
    external.start()
    assert external.client("acme").session()
    assert external.stop() == 0


@pytest.mark.parametrize("change,said", [
    (lambda url: url.replace("cloister_owner", "postgres"), "the user must be cloister_owner"),
    (lambda url: url + "\n" + url, "has more than one line"),
    (lambda url: "x" * 4097, "4096"),
    (lambda url: re.sub("host=[^&]*", "host=/tmp", url), "/tmp is open to all"),
    (lambda url: re.sub("host=[^&]*", "host=/tmp/nonexistent/one", url), "/tmp is open to all"),
    (lambda url: re.sub("host=[^&]*", "host=/etc/passwd/x", url), "/etc/passwd/x: Not a directory"),
])
def test_a_url_that_is_refused(server, external, change, said):
    write_file(f"{external.var}/database-url", change(server.url()))
    code, lines = external.fail()
    assert code == 2 and len(lines) == 1 and said in lines[0], lines
    assert "--database-url-file" in lines[0] and "4711" not in lines[0]


def test_a_file_that_others_read(external):
    os.chmod(f"{external.var}/database-url", 0o640)
    code, lines = external.fail()
    assert code == 2 and "mode 0640, group or others can read it" in lines[0], lines


def test_a_file_where_a_tenant_reads_it(server, external):
    path = f"{external.tenants['acme'].workspace}/url"
    write_file(path, server.url())
    external.options[-1] = f"--database-url-file={path}"
    code, lines = external.fail()
    assert code == 2 and "lies inside the workspace of acme" in lines[0], lines


def test_programs_of_postgresql_are_not_taken_as_well(external):
    code, lines = external.fail(postgres_bin=PROGRAMS)
    assert code == 2 and "--database-url-file and --postgres-bin exclude one another" in lines[0]


def test_a_second_daemon_is_refused(server, external, make_daemon):
    external.start()
    other = with_url(make_daemon(), server.url())
    code, lines = other.fail()
    assert code == 1 and any("another cloisterd uses this database" in line for line in lines)
    assert external.client("acme").session()
    assert external.stop() == 0


# --- the password ---------------------------------------------------------------------------------


def holders_of(processes, needle):
    """Those that have these bytes in memory that they may write to."""
    return [p.pid for p in processes if memory_has(p, needle)]


def memory_has(process, needle):
    with open(f"/proc/{process.pid}/maps", encoding="utf-8") as maps, \
            open(f"/proc/{process.pid}/mem", "rb", 0) as mem:
        for line in maps:
            span, mode = line.split()[:2]
            begin, end = (int(x, 16) for x in span.split("-"))
            if "w" not in mode or line.rstrip().endswith("[vvar]"):
                continue
            mem.seek(begin)
            try:
                if needle in mem.read(end - begin):
                    return True
            except OSError:
                continue
    return False


def test_the_password_is_where_it_is_needed(server, external):
    external.start()
    client = external.client("acme")
    client.run(client.session(), "a row")
    processes = [external.launcher(), *external.tree()]
    if not SANITIZED:  # whose shadows are terabytes
        assert holders_of(processes, OWNER.encode()) == [external.server().pid]
        assert not holders_of(processes, urllib.parse.quote(OWNER, safe="").encode())
    status = subprocess.run([f"{external.world.programs}/cloisterd", "status", "--json", "--state",
                             external.state], check=True, capture_output=True, text=True).stdout
    said = [status, json.dumps(client.call("GET", "/readyz")), external.log()]
    for process in processes:
        said += [process.read("cmdline"), process.read("environ")]
    for word in (OWNER, urllib.parse.quote(OWNER, safe=""), server.tenant_password(
            names(external, "acme")[0])):
        assert not any(word in text for text in said)
    assert external.stop() == 0


# --- over TCP ---------------------------------------------------------------------------------------


def link_processes(daemon):
    """The keeper of the link, and the link."""
    found = [p for p in descendants(daemon.server().pid) if p.name == "cloisterd"]
    assert len(found) == 2, found
    return found


def test_over_tcp(server, make_daemon):
    daemon = with_url(make_daemon(), server.tcp()).start()
    client = daemon.client("acme")
    session = client.session()
    assert client.run(session, "one").status == "completed"
    assert server.sql("SELECT bool_and(ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) "
                      "WHERE usename ~ '^c' AND client_addr IS NOT NULL") == "t"
    assert server.sql("SELECT count(*) FROM pg_stat_activity WHERE usename ~ '^c' AND "
                      "client_addr IS NULL") == "0"
    assert os.stat(f"{daemon.state}/db").st_mode & 0o077 == 0
    if not SANITIZED:
        everybody = [daemon.launcher(), *daemon.tree()]
        assert {p.pid for p in link_processes(daemon)} < {p.pid for p in everybody}
        assert holders_of(everybody, OWNER.encode()) == [daemon.server().pid]
        assert not holders_of(everybody, urllib.parse.quote(OWNER, safe="").encode())
    assert daemon.stop() == 0
    daemon.start()
    assert daemon.client("acme").run(session, "two").status == "completed"
    assert daemon.stop() == 0


def test_over_tcp_the_server_and_the_link_come_back(server, make_daemon):
    daemon = with_url(make_daemon(), server.tcp("localhost")).start()
    client = daemon.client("acme")
    session = client.session()

    def answer():
        return daemon.client().request("GET", "/readyz").status

    server.stop()
    eventually(lambda: answer() == 503, 20, "it is not ready without a database")
    assert client.request("POST", "/v1/sessions", {}).code == "store_unavailable"
    server.start()
    eventually(lambda: answer() == 200, 30, "it is ready again")
    keeper = next(p for p in link_processes(daemon) if p.parent == daemon.server().pid)
    link = next(p for p in link_processes(daemon) if p.parent == keeper.pid)
    link.kill()
    eventually(lambda: answer() == 200 and all(p.pid != link.pid for p in link_processes(daemon)), 30,
               "another link")
    assert client.run(session, "after").status == "completed"
    assert daemon.stop() == 0


def test_authorities_that_are_not_there(server, make_daemon):
    code, lines = with_url(make_daemon(), server.tcp(authority="none")).fail()
    assert code == 1 and any("none.pem: authorities for" in line for line in lines), lines


def test_authorities_that_others_can_change(server, make_daemon):
    daemon = make_daemon()
    theirs = f"{daemon.var}/theirs"
    os.mkdir(theirs, 0o755)
    os.chown(theirs, pwd.getpwnam("postgres").pw_uid, 0)
    with_url(daemon, "")
    for path, mode, said in (
            (f"{daemon.tenants['acme'].workspace}/ca.pem", 0o644, "lies inside the workspace of acme"),
            (f"{daemon.var}/ca.pem", 0o620, "mode 0620, group or others can write it"),
            (f"{theirs}/ca.pem", 0o644, "others than root and the service can replace"),
            (f"{server.directory}/ca.pem", None, "owned by uid ")):
        if mode:
            write_file(path, "", mode)
        write_file(f"{daemon.var}/database-url", server.tcp().replace(f"{server.public}/ca.pem", path))
        code, lines = daemon.fail()
        assert code == 2 and f"sslrootcert, {path}: " in lines[0] and said in lines[0], lines


def test_a_socket_that_another_user_may_have_made(server, external):
    theirs = f"{tempfile.gettempdir()}/cloister-theirs-{os.getpid()}"
    os.mkdir(theirs, 0o755)
    try:
        os.chown(theirs, pwd.getpwnam("postgres").pw_uid, 0)
        write_file(f"{external.var}/database-url", server.url().replace(server.directory, theirs))
        code, lines = external.fail()
    finally:
        os.rmdir(theirs)
    assert code == 2 and "/tmp is open to all" in lines[0], lines


def test_a_socket_where_a_tenant_makes_one(server, external):
    workspace = external.tenants["acme"].workspace
    write_file(f"{external.var}/database-url", server.url().replace(server.directory, workspace))
    code, lines = external.fail()
    assert code == 2 and "lies inside the workspace of acme" in lines[0], lines


# --- doctor, and the server that never came ------------------------------------------------------------


def doctor(daemon, **changed):
    command = daemon.command(**changed)
    command[command.index("serve")] = "doctor"
    done = subprocess.run([*AS_SERVICE, *command], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, cwd="/", env=ENVIRONMENT, timeout=120, check=False)
    daemon.world.expect_nobody()
    return done.returncode, re.search("^(ok|failed) +postgresql +(.*)$", done.stdout, re.M), \
        done.stdout + done.stderr


def test_the_doctor_looks_at_it(server, external):
    missing = {"runner": "/nonexistent"}  # for there is no need of a sandbox
    code, line, said = doctor(external, **missing)
    assert line[1] == "ok" and "PostgreSQL 1" in line[2] and "prepared for Cloister" in line[2]
    assert code == 1 and OWNER not in said
    server.sql("ALTER ROLE cloister_owner CREATEROLE")
    try:
        assert "was given to cloister_owner" in doctor(external, **missing)[1][2]
    finally:
        server.prepare()
    write_file(f"{external.var}/database-url", server.tcp())
    assert "127.0.0.1 port 5499: PostgreSQL 1" in doctor(external, **missing)[1][2]
    write_file(f"{external.var}/database-url", server.tcp(authority="other"))
    assert "certificate of 127.0.0.1" in doctor(external, **missing)[1][2]
    write_file(f"{external.var}/database-url", server.url("wrong"))
    assert "password authentication failed" in doctor(external, **missing)[1][2]
    write_file(f"{external.var}/database-url", "nonsense")
    assert "is not a URL" in doctor(external, **missing)[1][2]


def test_who_waits_may_be_asked_to_end(server, make_daemon):
    daemon = with_url(make_daemon(), server.url(port=PORT + 1))
    daemon.spawn(daemon.command())
    eventually(lambda: "trying again for 30 s" in daemon.log(), 20, "it waits")
    assert daemon.stop(seconds=20) == 0
    assert "asked to end before the database was there" in daemon.log()


@pytest.mark.parametrize("what,said", [
    ("nowhere", "No such file or directory; see that PostgreSQL runs"),
    ("another authority", "certificate of 127.0.0.1, port 5499: unable to get local issuer"),
    ("another name", "certificate of 127.0.0.2, port 5499: IP address mismatch")])
def test_it_waits_in_vain_and_says_for_what(hopeless, what, said):
    daemon = hopeless[what]
    code = daemon.process.wait(90)
    log = daemon.log()
    assert code == 1 and log.count("trying again for 30 s") == 1, log
    assert "cannot open the database: " in log.splitlines()[-2] and said in log.splitlines()[-2], log
    assert not any(word in log for word in (OWNER, urllib.parse.quote(OWNER, safe="")))
