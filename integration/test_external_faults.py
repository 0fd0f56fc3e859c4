"""An external PostgreSQL that is full, falls silent or goes away, and the end of the link to it."""

import contextlib
import os
import signal
import subprocess

import pytest

from daemon import ENVIRONMENT
from relay import Relay
from test_external import AS_POSTGRES, PORT, PROGRAMS, Postgres, with_url
from world import eventually

PLACES = 20  # of which three are its superuser's


class Small(Postgres):
    SETTINGS = f"max_connections = {PLACES}"

    @contextlib.contextmanager
    def full(self):
        """Every place that is not its superuser's is taken."""
        script = f"{self.directory}/sleep"
        self.command("tee", script, text="SELECT pg_sleep(600);\n")
        with subprocess.Popen(
                [*AS_POSTGRES, f"{PROGRAMS}/pgbench", "-n", "-c", str(PLACES - 3), "-f", script, "-h", self.directory,
                 "-p", str(PORT), "-U", "cloister_owner", "cloister"], stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, cwd="/", env={**ENVIRONMENT, "PGPASSWORD": self.password}) as holder:
            try:
                eventually(lambda: self.sql("SELECT count(*) FROM pg_stat_activity WHERE query ~ '^SELECT pg_sleep'")
                           == str(PLACES - 3), 60, "it is full")
                yield
            finally:
                holder.kill()
                self.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'")


@pytest.fixture(scope="module")
def server(world):
    made = Small(world)
    yield made
    made.stop(signal.SIGQUIT)


@pytest.fixture
def external(make_daemon, server):
    return with_url(make_daemon(), server.url())


@pytest.fixture
def relay(world, server):
    place = world.new_directory()
    os.mkdir(place, 0o755)
    made = Relay(place, f"{server.directory}/.s.PGSQL.{PORT}", PORT)
    yield made
    made.close()


@pytest.fixture
def relayed(make_daemon, server, relay):
    return with_url(make_daemon(), server.url().replace(server.directory, os.path.dirname(relay.path)))


# --- at the start ----------------------------------------------------------------------------------


def test_a_full_server_is_waited_for(server, external):
    """That it is full is found out behind the password, which is right."""
    with server.full():
        external.spawn(external.command())
        eventually(lambda: "trying again for 30 s" in external.log(), 20, "it waits")
    said = external.log()
    assert "53300: " in said and "(max_connections, CONNECTION LIMIT)" in said, said
    assert "see that PostgreSQL runs" not in said and "database-script" not in said, said
    external.wait_ready()
    assert external.client("acme").session()
    assert external.stop() == 0


def spawn_with_cuts(relay, daemon, cuts):
    """Cut off at those of its questions for unfinished work, counted from 1.

    The text of one is sent twice by each connection, then it is prepared: the first is for what
    removed tenants left, the second for set-ups, and on another connection, after a cut, the
    third is that again and the fourth is for turns."""
    asked = []

    def watch(data):
        if b"FROM control.tenant WHERE unfinished" in data:
            asked.append(data)
            if len(asked) in cuts:
                relay.away = True
                raise OSError

    relay.asked = watch
    daemon.spawn(daemon.command())


def waits(daemon, times):
    return eventually(lambda: daemon.log().count("trying again for 30 s") == times, 20, "it waits")


def test_a_database_that_goes_away_between_two_steps_of_the_start(relay, relayed):
    spawn_with_cuts(relay, relayed, (2, 4))
    for times in (1, 2):
        waits(relayed, times)
        relay.come_back()
    relayed.wait_ready()
    assert relayed.client("acme").session()
    assert relayed.stop() == 0


@pytest.mark.parametrize("step", [1, 2])
def test_who_waits_between_two_steps_may_be_asked_to_end(relay, relayed, step):
    spawn_with_cuts(relay, relayed, (2, 4))
    waits(relayed, 1)
    if step == 2:
        relay.come_back()
        waits(relayed, 2)
    assert relayed.stop(seconds=20) == 0
    assert "asked to end before the database was there" in relayed.log()
