"""A database server of the operator's, by its socket, as docs/operate-debian.md has it."""

import os
import pwd
import secrets

import pytest

from service import SETTINGS, STATE, USER, documented, follow, run
from world import eventually

pytestmark = pytest.mark.skipif(SETTINGS["boundary"] != "service", reason="the document's command line is the unit's")

SECTION = "A database server of your own"
SOCKETS, DATA, URL = "/run/postgresql", "/var/lib/cloister-vm/database", "/etc/cloister/database-url"
AS_POSTGRES = ("setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--")


class Server:
    """A cluster of somebody else's, by the machine's programs, at the usual place."""

    def __init__(self):
        place = "/usr/lib/postgresql"
        self.programs = f"{place}/{max(os.listdir(place), key=int)}/bin"
        user = pwd.getpwnam("postgres")
        for path in (DATA, SOCKETS):
            os.makedirs(path, exist_ok=True)
            os.chown(path, user.pw_uid, user.pw_gid)
        self.run("initdb", "-D", DATA, "-U", "postgres", "-N", "--auth=reject")
        rules = "\n".join(line for line in documented("operate-debian.md", SECTION)[1].splitlines()
                          if line.startswith("local"))
        with open(f"{DATA}/pg_hba.conf", "w", encoding="ascii") as f:
            f.write(f"{rules}\nlocal all postgres peer\n")
        self.start()

    def run(self, program, *words):
        return run(*AS_POSTGRES, "env", "-C", "/", f"{self.programs}/{program}", *words).stdout

    def start(self):
        # Its words go to a file: who waits for the end of its output would wait for its own.
        self.run("pg_ctl", "-D", DATA, "-w", "-t", "120", "-l", f"{DATA}/log", "-o",
                 f"-c listen_addresses='' -c unix_socket_directories={SOCKETS}", "start")

    def stop(self):
        self.run("pg_ctl", "-D", DATA, "-w", "-t", "120", "-m", "fast", "stop")


@pytest.fixture(scope="module")
def external(installed, network):
    prepare, _, urls, put, drop_in, *_ = documented("operate-debian.md", SECTION)
    installed.stop()
    server = Server()
    password = secrets.token_hex(24)
    follow(prepare.splitlines()[0])
    run(*AS_POSTGRES, "psql", "-c", f"ALTER ROLE cloister_owner PASSWORD '{password}'", "postgres")
    follow(f"echo '{urls.splitlines()[0]}' | {put}", PASSWORD=password)
    installed.drop_in("external", drop_in)
    installed.start()
    yield server
    installed.stop()
    installed.drop_in("external")
    os.unlink(URL)
    server.stop()


def test_the_service_works_with_it(external, installed):
    acme = installed.client("acme")
    assert acme.run(acme.session(), "$ echo theirs", 120).text == "theirs\n"
    found = external.run("psql", "-XAtc", "SELECT datname FROM pg_database WHERE datname LIKE 'ct%'", "postgres")
    assert f"ct_{installed.tenants['acme'].id.replace('-', '')}" in found.split()
    assert [p.name for p in installed.tree() if p.name == "postgres"] == []
    assert os.stat(URL).st_uid == pwd.getpwnam(USER).pw_uid
    assert not os.path.exists(f"{STATE}/pg/run/.s.PGSQL.5432")


def test_it_is_found_again(external, installed):
    """Its directory is the one that the unit saw when it started."""
    acme, pid = installed.client("acme"), installed.main_pid()
    session = acme.session()
    external.stop()
    eventually(lambda: acme.request("GET", "/readyz").status == 503, 60, "it is missed")
    external.start()
    eventually(lambda: acme.request("GET", "/readyz").status == 200, 120, "it is found again")
    assert acme.run(session, "$ echo again", 120).text == "again\n"
    assert installed.main_pid() == pid
