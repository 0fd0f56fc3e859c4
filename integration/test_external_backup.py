"""A database server of the operator's: what docs/operate-debian.md says of it, done."""

import os
import pwd
import re
import shutil
import subprocess
import urllib.parse

import pytest

from daemon import ENVIRONMENT, write_file
from nix_eval import ROOT
from test_external import AS_POSTGRES, PORT, PROGRAMS, Postgres
from test_operate import everything


def documented():
    """The blocks of the section, each as one text."""
    with open(f"{ROOT}/docs/operate-debian.md", encoding="utf-8") as f:
        section = f.read().split("\n## A database server of your own\n", 1)[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    return [re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks]


_, RULES, URLS, _, _, BACK_UP, RESTORE = documented()


class Documented(Postgres):
    """Lets in whom the document's lines do, and the superuser who follows it."""

    def __init__(self, world):
        super().__init__(world)
        with open(f"{self.data}/pg_hba.conf", "w", encoding="ascii") as f:
            f.write(RULES + "local all postgres peer\n")
        self.sql("SELECT pg_reload_conf()")

    def follow(self, commands, works=True, **more):
        """As its superuser, in a directory of that user's."""
        user = pwd.getpwnam("postgres")
        place = f"{self.directory}/dumps"
        os.makedirs(place, exist_ok=True)
        os.chown(place, user.pw_uid, user.pw_gid)
        environment = {**ENVIRONMENT, "PATH": f"{PROGRAMS}:{self.world.programs}:{ENVIRONMENT['PATH']}",
                       "PGHOST": self.directory, "PGPORT": str(PORT)}
        done = subprocess.run([*AS_POSTGRES, "bash", "-euo", "pipefail", "-c", commands], cwd=place, env=environment,
                              capture_output=True, text=True, check=False, **more)
        assert (done.returncode == 0) is works, f"{commands}: {done.stderr}"
        return done.stderr

    def restore(self):
        self.follow(RESTORE, input=self.password + "\n")

    def url(self, password=None, port=PORT):
        line = URLS.splitlines()[0]
        assert "PASSWORD" in line and "host=/run/postgresql" in line
        secret = urllib.parse.quote(password or self.password, safe="")
        return line.replace("PASSWORD", secret).replace(
            "host=/run/postgresql", f"host={self.directory}&port={port}")


@pytest.fixture
def make_server(world):
    """One at a time: they have the same port."""
    made = []

    def make():
        made.append(Documented(world))
        return made[-1]

    yield make
    for server in made:
        if server.process.poll() is None:
            server.stop()


def on(server, daemon):
    """The daemon, which is to be started, with that server as its database."""
    write_file(f"{daemon.var}/database-url", server.url() + "\n")
    daemon.options[:] = [f"--database-url-file={daemon.var}/database-url"]
    return daemon


def test_whom_the_lines_let_in_where(make_server, make_daemon):
    server = make_server()
    daemon = on(server, make_daemon(("acme",))).start()
    assert daemon.client("acme").session()
    assert daemon.stop() == 0
    number = daemon.tenants["acme"].id.replace("-", "")
    role, own = f"cr_{number}", f"ct_{number}"
    who = {"cloister_owner": server.password, role: server.tenant_password(role)}
    said = {(user, name): server.run_as(user, secret, name, "SELECT 1")
            for user, secret in who.items() for name in ("postgres", "template1", "template0", "cloister", own)}
    let_in = {where for where, (code, *_) in said.items() if code == 0}
    assert let_in == {("cloister_owner", "cloister"), ("cloister_owner", own), (role, own)}
    assert all("rejects connection" in said[where][2] for where in said.keys() - let_in), said


def test_a_restored_backup_gives_the_same_answers(make_server, make_daemon):
    server = make_server()
    daemon = on(server, make_daemon()).start()
    acme, globex = daemon.client("acme"), daemon.client("globex")
    session = acme.session()
    turn = acme.start(session, "$ echo kept >file; cat file")
    acme.wait(turn)
    asked = acme.start(acme.session(), "? go on | yes | no")
    acme.wait_for(asked, "waiting_for_input")
    other = globex.session()
    before = everything(acme, session, turn)
    assert daemon.stop() == 0
    server.follow(BACK_UP)
    shutil.copytree(daemon.state, f"{daemon.var}/kept", symlinks=True)
    daemon.start()
    acme, globex = daemon.client("acme"), daemon.client("globex")
    assert acme.run(session, "$ echo since").text == "since\n"
    globex.call("DELETE", f"/v1/sessions/{other}", status=204)
    assert daemon.stop() == 0
    server.restore()
    daemon.start()
    acme, globex = daemon.client("acme"), daemon.client("globex")
    assert everything(acme, session, turn) == before
    assert globex.call("GET", f"/v1/sessions/{other}")["id"] == other
    request = acme.call("GET", "/v1/requests")["data"][0]["id"]
    acme.call("POST", f"/v1/requests/{request}/resolve", {"decision": "yes"})
    assert acme.wait(asked).status == "completed"
    assert acme.run(session, "$ cat file").text == "kept\n"
    assert daemon.stop() == 0


def a_session_of(make_server, make_daemon):
    """(server, daemon that was stopped, session, turn, all that is told of them)"""
    server = make_server()
    daemon = on(server, make_daemon(("acme",))).start()
    acme = daemon.client("acme")
    session = acme.session()
    turn = acme.start(session, "$ echo kept")
    acme.wait(turn)
    before = everything(acme, session, turn)
    assert daemon.stop() == 0
    return server, daemon, session, turn, before


def test_a_backup_is_restored_on_another_server(make_server, make_daemon):
    """The roles with their passwords come first."""
    server, daemon, session, turn, before = a_session_of(make_server, make_daemon)
    server.follow(BACK_UP)
    server.stop()
    other = make_server()
    shutil.copytree(f"{server.directory}/dumps", f"{other.directory}/dumps")
    for name in os.listdir(f"{other.directory}/dumps"):
        shutil.chown(f"{other.directory}/dumps/{name}", "postgres", "postgres")
    other.follow("psql -X -f roles.sql postgres")
    other.restore()
    on(other, daemon).start()
    acme = daemon.client("acme")
    assert everything(acme, session, turn) == before
    assert acme.run(session, "$ echo on").text == "on\n"
    assert daemon.stop() == 0


PLANT = """
    CREATE FUNCTION {schema}.planted() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        IF (SELECT bool_or(rolsuper) FROM pg_catalog.pg_roles WHERE rolname IN (current_user, session_user)) THEN
            RAISE EXCEPTION 'planted code runs as superuser';
        END IF;
        RETURN true;
    END
    $$;
    ALTER TABLE {schema}.{table} ADD CHECK ({schema}.planted());
"""


def test_what_the_owner_planted_has_no_superuser_in_a_restore(make_server, make_daemon):
    server, daemon, session, turn, before = a_session_of(make_server, make_daemon)
    database = "ct_" + daemon.tenants["acme"].id.replace("-", "")
    planted = {database: ("app", "session"), "cloister": ("control", "tenant")}
    for name, (schema, table) in planted.items():
        done = server.run_as("cloister_owner", server.password, name, PLANT.format(schema=schema, table=table))
        assert done[0] == 0, done
    server.follow(BACK_UP)
    server.restore()
    for name, (schema, _) in planted.items():
        assert server.sql(f"SELECT has_function_privilege('{schema}.planted()', 'EXECUTE')", name) == "t"
        owners = "SELECT string_agg(DISTINCT relowner::regrole::text, ' ') FROM pg_class WHERE relnamespace = "
        assert server.sql(f"{owners}'{schema}'::regnamespace", name) == "cloister_owner"
    daemon.start()
    acme = daemon.client("acme")
    assert everything(acme, session, turn) == before
    assert acme.run(session, "$ echo on").text == "on\n"
    assert daemon.stop() == 0
    # And that it would have: these dumps, as they are restored elsewhere.
    for name in planted:
        said = server.follow("pg_restore --create --clean --if-exists --exit-on-error --dbname=postgres "
                             f"{name}.dump", works=False)
        assert "planted code runs as superuser" in said
