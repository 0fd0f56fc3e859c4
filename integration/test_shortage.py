"""A process of ours that may open nothing more: what it cannot do now is done later.

The limit is lowered from outside to what the process has open, and raised again. It is the
same process afterwards, and nothing that was accepted has failed.
"""

import contextlib
import os
import subprocess
import time

import pytest

from daemon import AS_SERVICE, ENVIRONMENT
from provider.models import ask, declare, entry
from provider.server import Provider
from world import descendants, eventually

WAIT_FOR = "$ until [ -e /workspace/{} ]; do sleep 0.05; done"


def limit(process, soft, hard):
    """As its own user, who needs no power for it."""
    subprocess.run([*AS_SERVICE, "prlimit", f"--pid={process.pid}", f"--nofile={soft}:{hard}"],
                   timeout=30, env=ENVIRONMENT, cwd="/", check=True)


@contextlib.contextmanager
def short(process, spare=0):
    """It may open so many descriptors more."""
    line = next(s for s in process.read("limits").splitlines() if s.startswith("Max open"))
    soft, hard = line.split()[3:5]
    used = {int(fd) for fd in os.listdir(f"/proc/{process.pid}/fd")}
    free = [fd for fd in range(len(used) + spare + 1) if fd not in used]
    limit(process, free[spare], hard)
    try:
        yield
    finally:
        limit(process, soft, hard)


def cpu_seconds(process):
    fields = process.read("stat").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Known:
    """A client that is connected already."""

    def __init__(self, client):
        self.client, self.connection = client, client.connect()
        self.ask("GET", "/v1/sessions")

    def ask(self, method, path, *body):
        return self.client.request(method, path, *body, connection=self.connection)

    def start(self, session, line):
        answer = self.ask("POST", f"/v1/sessions/{session}/turns", {"input": line})
        assert answer.status == 202, answer
        return answer.json["id"]

    def status(self, turn):
        answer = self.ask("GET", f"/v1/turns/{turn}")
        assert answer.status == 200, answer
        return answer.json["status"]


def later(answer):
    assert (answer.status, answer.code) == (503, "busy"), answer
    assert answer.header("Retry-After") == "1"


def touch(daemon, tenant, name):
    with open(f"{daemon.tenants[tenant].workspace}/{name}", "w", encoding="ascii"):
        pass


def control(daemon, *words):
    return subprocess.run([*AS_SERVICE, f"{daemon.world.programs}/cloisterd", *words,
                           "--state", daemon.state], capture_output=True, text=True, timeout=30,
                          env=ENVIRONMENT, check=False)


@pytest.fixture
def daemon(make_daemon):
    daemon = make_daemon().start()
    yield daemon
    assert "internal_error" not in daemon.log()


def test_the_server_without_descriptors(daemon):
    acme, server = daemon.client("acme"), daemon.server()
    running, idle = acme.session(), acme.session()
    turn = acme.start(running, f"{WAIT_FOR.format('go')}\n$ echo second")
    acme.wait_for(turn, "running")
    eventually(lambda: " runs\n" in daemon.log() or None, 30, "a sandbox")
    known = Known(acme)
    with short(server):
        used = cpu_seconds(server)
        for path in ("/healthz", "/openapi.json", "/v1/models", "/v1/sessions"):
            later(acme.request("GET", path))
        later(known.ask("GET", "/v1/events"))
        later(known.ask("POST", "/v1/sessions", {"repository": {"url": "https://git.invalid/x"}}))
        queued = known.start(idle, "$ echo later")
        eventually(lambda: "stays queued" in daemon.log() or None, 30, "a turn that waits")
        later(acme.request("GET", "/v1/sessions"))
        began = time.monotonic()
        for _ in range(10):
            assert known.status(turn) == "running" and known.status(queued) == "queued"
            later(acme.request("GET", "/v1/sessions"))
            time.sleep(0.1)
        # What it cannot do it does not try without a pause.
        assert cpu_seconds(server) - used < 0.5 + (time.monotonic() - began) / 2
        # What this call gives back may be enough for all else, one after the other.
        touch(daemon, "acme", "go")
    assert acme.wait(turn).text == "second\n"
    assert acme.wait(queued).text == "later\n"
    assert daemon.server().pid == server.pid
    assert daemon.stop() == 0


@pytest.mark.parametrize("spare", (0, 1, 2, 3, 8))
def test_a_sandbox_that_starts_with_few_descriptors(daemon, spare):
    acme, server = daemon.client("acme"), daemon.server()
    session, known = acme.session(), Known(acme)
    with short(server, spare):
        turn = known.start(session, "$ echo done")
        # The turn's own, the call's own, two for the pipes; and connections to the database.
        if spare < 4:
            eventually(lambda: "stays queued" in daemon.log() or " waits: " in daemon.log() or None,
                       30, "a turn that waits")
            assert known.status(turn) in ("queued", "running")
            assert not daemon.running("acme")
        else:
            eventually(lambda: known.status(turn) == "completed" or None, 60, "the turn's end")
    assert acme.wait(turn).text == "done\n"
    assert daemon.server().pid == server.pid


def test_a_registry_that_the_server_cannot_take(daemon):
    server = daemon.server()
    with short(server):
        for command in (("reload",), ("status",)):
            done = control(daemon, *command)
            assert done.returncode == 1 and "no descriptor left" in done.stderr, done
    assert control(daemon, "reload").returncode == 0
    assert control(daemon, "status").returncode == 0
    assert daemon.server().pid == server.pid


def test_the_launcher_without_descriptors(daemon):
    acme, launcher = daemon.client("acme"), daemon.launcher()
    session = acme.session()
    with short(launcher):
        used, began = cpu_seconds(launcher), time.monotonic()
        outcome = acme.run(session, "$ echo never")
        assert outcome.status == "failed" and outcome.error["code"] == "sandbox_unavailable"
        for _ in range(5):
            assert control(daemon, "status").returncode == 1
        time.sleep(0.5)
        assert cpu_seconds(launcher) - used < 0.3 + (time.monotonic() - began) / 4
        assert daemon.alive()
    assert acme.run(session, "$ echo now").text == "now\n"
    assert control(daemon, "reload").returncode == 0
    assert daemon.stop() == 0


def test_a_courier_without_descriptors(make_daemon):
    """Who asks meanwhile fails; it stays the same process, and the next ones are answered."""
    provider = Provider()
    daemon = make_daemon()
    try:
        daemon.start(models=declare(daemon, entry("one", "messages", provider.url)))
        acme = daemon.client("acme")
        assert ask(acme, "one").status == "completed"
        courier = descendants(daemon.server().pid)[-1]
        with short(courier):
            outcome = ask(acme, "one")
            assert outcome.status == "failed" and outcome.error["code"] == "model_failed", outcome
        assert ask(acme, "one").status == "completed"
        assert descendants(daemon.server().pid)[-1].pid == courier.pid
        assert daemon.stop() == 0
    finally:
        provider.close()
