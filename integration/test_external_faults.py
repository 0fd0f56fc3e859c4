"""An external PostgreSQL that is full, falls silent or goes away, and the end of the link to it."""

import contextlib
import os
import signal
import subprocess
import threading
import time

import pytest

from daemon import ENVIRONMENT
from relay import Relay
from test_external import AS_POSTGRES, HOLDER, PORT, PROGRAMS, Postgres, link_processes, with_url
from world import PATIENCE, eventually, in_time, punctual

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


def spawn_with_cuts(relay, daemon, cuts, look=lambda: None):
    """Cut off at those of its questions for unfinished work, counted from 1; look() is called at each.

    The text of one is sent twice by each connection, then it is prepared: the first is for what
    removed tenants left, the second for set-ups, and on another connection, after a cut, the
    third is that again and the fourth is for turns."""
    asked = []

    def watch(data):
        if b"FROM control.tenant WHERE unfinished" in data:
            asked.append(look())
            if len(asked) in cuts:
                relay.away = True
                raise OSError

    relay.asked = watch
    daemon.spawn(daemon.command())


def waits(daemon, times):
    return eventually(lambda: daemon.log().count("trying again for 30 s") == times, 20, "it waits")


@pytest.mark.parametrize("cuts", [(1,), (2, 4)])
def test_a_database_that_goes_away_between_two_steps_of_the_start(relay, relayed, cuts):
    spawn_with_cuts(relay, relayed, cuts)
    for times, _ in enumerate(cuts, 1):
        waits(relayed, times)
        relay.come_back()
    relayed.wait_ready()
    assert relayed.client("acme").session()
    assert relayed.stop() == 0


def test_turns_of_a_removed_tenant_have_ended_before_any_is_taken_up(server, relay, relayed):
    """Also when the database is away just when they are to be cancelled."""
    relayed.start()
    globex = relayed.client("globex")
    turn = globex.start(globex.session(), "$ sleep 600")
    globex.wait_for(turn, "running")
    relayed.process.send_signal(signal.SIGKILL)
    relayed.ended()
    relayed.write_registry({"version": 1, "tenants": [relayed.tenants["acme"].entry()]})
    database, states = f"ct_{relayed.tenants['globex'].id.replace('-', '')}", []
    before = len(relayed.log())
    spawn_with_cuts(relay, relayed, (1,), lambda: states.append(server.sql("SELECT state FROM app.turn", database)))
    waits(relayed, 1)
    relay.come_back()
    relayed.wait_ready(before)
    assert states == ["running", "running", "cancelled"]
    assert relayed.stop() == 0


@pytest.mark.parametrize("cuts", [(1,), (2,), (2, 4)])
def test_who_waits_between_two_steps_may_be_asked_to_end(relay, relayed, cuts):
    spawn_with_cuts(relay, relayed, cuts)
    waits(relayed, 1)
    if len(cuts) == 2:
        relay.come_back()
        waits(relayed, 2)
    assert relayed.stop(seconds=20) == 0
    assert "asked to end before the database was there" in relayed.log()


# --- while it runs -----------------------------------------------------------------------------------


def at_once(number, ask):
    """What each of so many threads is answered, and after how many seconds."""
    answers = []

    def run():
        begun = time.monotonic()
        answers.append((ask(), time.monotonic() - begun))

    threads = [threading.Thread(target=run) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == number
    return answers


def assert_not_ready(daemon, number):
    """Each is told so in time, at one of three times at least, however many ask."""

    def attempt():
        answers = at_once(number, lambda: daemon.client().request("GET", "/readyz"))
        assert {(a.status, a.code) for a, _ in answers} == {(503, "store_unavailable")}
        slowest = max(seconds for _, seconds in answers)
        in_time(slowest < 2 * PATIENCE, f"told so after {slowest:.2f} s")

    punctual(attempt)


def test_ready_is_answered_whatever_the_database_does(server, relay, relayed):
    """One that takes what it is sent and says nothing: others than those who need it go on."""
    relayed.start()
    client = relayed.client("acme")
    session = client.session()
    holder = server.sql(HOLDER)

    def ready():
        return relayed.client().request("GET", "/readyz").status == 200

    relay.stop(relay.silent)
    for number in (10, 10):
        assert_not_ready(relayed, number)
    begun = time.monotonic()
    for _ in range(10):
        assert relayed.client().request("GET", "/healthz").status == 200
        assert relayed.client("globex").request("GET", "/v1/models").status == 200
        assert_not_ready(relayed, 1)
    assert time.monotonic() - begun < 60 * PATIENCE
    relay.go_on()
    eventually(ready, 30, "it is ready again")
    assert server.sql(HOLDER) == holder, "nobody could have come between"
    # The same while it is connected to again, which takes as long as that may take.
    relay.stop(relay.silent)
    relay.cut()
    for number in (10, 10):
        assert_not_ready(relayed, number)
    relay.go_on()
    eventually(ready, 30, "it is ready again")
    assert server.sql(HOLDER) not in ("", holder)
    assert client.call("GET", f"/v1/sessions/{session}")["id"] == session
    assert relayed.stop() == 0


MUCH = 8 << 20  # bytes, which no socket takes on the way


def test_a_database_that_stops_reading_in_the_middle_of_a_value(server, relay, relayed):
    """Takes as long as a statement and its answer may take, 40 s, and what connects again after that."""
    relayed.start()
    client = relayed.client("acme")
    session = client.session()
    passed = []

    def watch(data):
        passed.append(len(data))
        if sum(passed) > MUCH / 4:
            relay.deaf.set()
            relay.silent.set()

    relay.asked = watch
    [(answer, seconds)] = at_once(1, lambda: client.request("POST", f"/v1/sessions/{session}/turns", {
        "input": "x" * MUCH}, connection=client.connect(600)))
    assert relay.deaf.is_set() and sum(passed) < MUCH, "it was not taken as a whole"
    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert seconds < 90 * PATIENCE
    relay.asked = lambda data: None
    relay.go_on()
    eventually(lambda: relayed.client().request("GET", "/readyz").status == 200, 30, "it is ready again")
    assert client.run(session, "again").status == "completed"
    assert relayed.stop() == 0


# --- the link ----------------------------------------------------------------------------------------


@pytest.fixture
def linked(make_daemon, server):
    """(daemon over TCP, keeper of its link, link)"""
    daemon = with_url(make_daemon(), server.tcp()).start()
    keeper, link = sorted(link_processes(daemon), key=lambda p: p.parent != daemon.server().pid)
    assert link.parent == keeper.pid
    return daemon, keeper, link


def test_the_link_is_killed_in_the_middle(linked):
    """It takes its connections with it; the next requests have others, by another link."""
    daemon, keeper, link = linked
    client = daemon.client("acme")
    turn = client.start(client.session(), "$ echo begun; sleep 3; echo done")
    eventually(lambda: " runs\n" in daemon.log(), 60, "a sandbox")
    server = daemon.server().pid
    link.kill(signal.SIGKILL)
    eventually(lambda: client.request("POST", "/v1/sessions", {}).status == 201, 20, "a session is made")
    eventually(lambda: daemon.client().request("GET", "/readyz").status == 200, 20, "it is ready")
    assert client.wait(turn).status == "completed"
    assert daemon.server().pid == server and {p.pid for p in link_processes(daemon)} & {keeper.pid, link.pid} == \
        {keeper.pid}
    assert "the process that speaks to the database ended: signal 9" in daemon.log()
    assert daemon.stop() == 0


def test_without_the_keeper_of_its_link_the_service_ends_and_nothing_is_lost(linked):
    """No other link can be made, so the daemon is: by what manages the service."""
    daemon, keeper, link = linked
    client = daemon.client("acme")
    turn = client.start(client.session(), "$ echo begun; sleep 600")
    eventually(lambda: " runs\n" in daemon.log(), 60, "a sandbox")
    keeper.kill(signal.SIGKILL)
    assert daemon.ended() == 1 and not link.lives()
    assert "the process that speaks to the database, and the one that starts it again, are gone; the service ends" \
        in daemon.log()
    daemon.start()
    assert daemon.client("acme").wait(turn).status == "completed"
    assert daemon.stop() == 0
