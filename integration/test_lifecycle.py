"""Ends: of commands, of sandboxes, of the daemon; in order, and by kill -9."""

import json
import os
import re
import signal
import time
import uuid

import pytest

from client import TERMINAL
from daemon import Gate
from test_database import Sql
from world import PATIENCE, eventually, in_time, punctual, timestamp

STUBBORN = ("trap '' TERM INT HUP; (trap '' TERM; setsid sh -c \"trap '' TERM INT HUP; "
            "while :; do sleep {n}; done\") & (setsid setsid sleep {n} & ) ; sleep {n} & "
            "echo started; while :; do sleep {n}; done")


def unique_seconds():
    """A duration that tells the processes of one test from all others."""
    return str(10_000_000 + uuid.uuid4().int % 10_000_000)


def living(client, session, number):
    """How many processes with that number on their command line live in the sandbox."""
    return int(client.run(session, f"$ ps -eo args | grep -c '[s]leep {number}'; true")
               .text.split()[0])


# --- one command ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cancel", "timeout"])
def test_a_stubborn_tree_is_gone_at_once(acme, how):
    """Own sessions, double forks, TERM ignored: gone in a second; others do not notice."""
    punctual(lambda: end_a_stubborn_tree(acme, how))


def end_a_stubborn_tree(acme, how):
    number, session, witness = unique_seconds(), acme.session(), acme.session()
    ticks = acme.start(witness, "$ for i in $(seq 60); do echo tick; sleep 0.1; done")
    arguments = {"command": STUBBORN.format(n=number), "timeoutMs": 5000}
    if how == "cancel":
        del arguments["timeoutMs"]
    with acme.events() as events:
        turn = acme.start(session, f"@shell {json.dumps(arguments)}")
        events.until_output(turn, "started")
        there = living(acme, acme.session(), number)
        if how == "cancel":
            assert there >= 3
            start = time.monotonic()
            first = acme.cancel(turn)
            elapsed = time.monotonic() - start
            acme.end(turn)
            in_time(first.status == 200, f"the end was not committed in time: {first}")
        else:
            started, finished = (events.until_kind(turn, f"tool.{word}")[2]
                                 for word in ("started", "finished"))
            assert finished["data"]["details"]["reason"] == "timeout"
            assert finished["data"]["details"]["exitCode"] is None
            assert acme.wait(turn).text == "started\n[ended after 5000 ms: timeout]"
            elapsed = timestamp(finished["at"]) - timestamp(started["at"]) - 5
            in_time(there >= 3, "the time was over before it was looked at")
    left = living(acme, session, number)
    eventually(lambda: living(acme, session, number) == 0, 10, "the end of the tree")
    in_time(left == 0 and elapsed < PATIENCE, f"gone only after {elapsed} s, {left} live on")
    outcome = acme.wait(ticks)
    # A tree that lives on for two seconds takes the sandbox with it.
    in_time("[lost: " not in outcome.text, outcome.text)
    assert outcome.text == "tick\n" * 60, "another call of the sandbox was disturbed"


BOMB = "bomb() { bomb | bomb & }; bomb; echo lit; sleep 600"


def test_a_fork_bomb(make_daemon):
    daemon = make_daemon().start()
    client = daemon.client("acme")
    session, witness = client.session(), client.session()
    with client.events() as events:
        quiet = client.start(witness, "$ echo quiet; sleep 12; echo slept")
        events.until_output(quiet, "quiet")
        turn = client.start(session, f"$ {BOMB}")
        events.until_kind(turn, "tool.started")
        time.sleep(2)
        start = time.monotonic()
        # Then its sandbox is gone, or its processes are.
        client.end(turn, 20)
        events.until_end(quiet, 60)
    outcome = client.wait(quiet)
    details = next(e["data"]["details"] for _, k, e in events.seen
                   if k == "tool.finished" and e["turnId"] == quiet)
    if details["reason"] == "lost":
        assert details["exitCode"] is None and "lost" in outcome.text
    else:
        assert (details["reason"], details["exitCode"]) == ("exited", 0)
        assert outcome.text == "quiet\nslept\n"
    assert time.monotonic() - start < 60 * PATIENCE
    # The bomb's processes are gone, whichever way they went.
    counted = re.compile(r"^\s*\d{1,2}\n$")
    eventually(lambda: counted.match(client.run(session, "$ ps -e --no-headers | wc -l").text),
               20, "the end of its processes")


def test_a_fork_bomb_that_ends_by_timeout(make_daemon):
    client = make_daemon().start().client("acme")
    session = client.session()

    def attempt():
        start = time.monotonic()
        outcome = client.tool(session, "shell", command=BOMB, timeoutMs=1000)
        took = time.monotonic() - start
        assert outcome.details["reason"] == "timeout" and outcome.details["exitCode"] is None
        in_time(took < 1 + 5 + 3, f"an end after {took:.2f} s")

    punctual(attempt)
    assert client.run(session, "$ echo next").text == "next\n"


# --- kill -9 -------------------------------------------------------------------------------


def begin(client, session, marker):
    """A command that is in its middle: it has left a trace and will take long."""
    with client.events() as events:
        turn = client.start(session, f"$ echo {marker} >>trace; echo begun; sleep 60; echo end")
        events.until_output(turn, "begun")
    return turn


VICTIMS = {
    "the sandbox": lambda d: d.sentry("acme"),
    "its file server": lambda d: next(iter(d.below_runner(
        "acme", lambda p: p.arguments()[:1] == ["runsc-gofer"]))),
    "the network": lambda d: d.slirp("acme"),
    "the runner": lambda d: d.runner("acme"),
}


@pytest.fixture(scope="module")
def victim(world):
    """A daemon whose sandboxes may be killed."""
    from daemon import Daemon
    daemon = Daemon(world).start()
    yield daemon
    code = daemon.stop()
    world.daemons.remove(daemon)
    assert code == 0


@pytest.mark.parametrize("name", VICTIMS)
def test_kill_below_the_launcher(victim, name):
    punctual(lambda: kill_below_the_launcher(victim, name))


def kill_below_the_launcher(victim, name):
    client = victim.client("acme")
    session, other = client.session(), client.session()
    globex = victim.client("globex")
    stranger = globex.start(globex.session(), "$ sleep 3; echo undisturbed")
    turn, second = begin(client, session, "a"), begin(client, other, "b")
    before = victim.below_runner("acme", lambda p: True) + [victim.runner("acme")]
    with client.events() as events:
        killed = time.time()
        VICTIMS[name](victim).kill()
        ends = [events.until_kind(t, "tool.finished")[2] for t in (turn, second)]
    for end in ends:
        details = end["data"]["details"]
        assert details["reason"] == "lost" and details["exitCode"] is None
        assert details["signal"] is None
    outcome = client.wait(turn)
    assert outcome.status == "completed" and "[lost: " in outcome.text
    assert outcome.text.startswith("begun\n") and "end" not in outcome.text.splitlines()
    eventually(lambda: not any(p.lives() for p in before), 20,
               "no process of the killed sandbox left")
    assert client.run(session, "$ echo next").text == "next\n"
    assert globex.wait(stranger).text == "undisturbed\n", "another tenant was disturbed"
    took = max(timestamp(end["at"]) for end in ends) - killed
    in_time(took < 6, f"the loss was told after {took:.2f} s")


def test_a_file_call_is_lost_too(victim):
    """A read that is under way when the sandbox dies does not hang and is no success."""
    client = victim.client("acme")
    session = client.session()
    for _ in range(3):
        client.run(session, "$ true")
        victim.sentry("acme").kill(signal.SIGSTOP)
        with client.events() as events:
            turn = client.start(session, '@read_file {"path":"/etc/passwd"}')
            events.until_kind(turn, "tool.started")
        time.sleep(0.5)
        victim.sentry("acme").kill()
        outcome = client.wait(turn)
        if outcome.text.startswith("error: lost: "):
            break
        # The server stood still until then, and asked another sandbox.
        assert outcome.text.startswith("root:"), outcome.text
    assert outcome.text.startswith("error: lost: "), outcome.text
    assert client.run(session, "$ echo next").text == "next\n"


def test_a_sandbox_that_hangs_is_replaced(victim):
    """It does not answer a cancel: the sandbox is ended within the grace, not waited for."""
    client = victim.client("acme")
    session = client.session()

    def attempt():
        turn = begin(client, session, "hang")
        old = victim.sentry("acme")
        old.kill(signal.SIGSTOP)
        try:
            client.cancel_in_time(turn)
        finally:
            eventually(lambda: not old.lives(), 15, "the end of the hung sandbox")

    punctual(attempt)
    assert client.run(session, "$ echo next").text == "next\n"


DAEMON_VICTIMS = {
    "the launcher": lambda d: d.launcher(),
    "the server": lambda d: d.server(),
    "postgres": lambda d: d.postgres(),
}


@pytest.mark.parametrize("name", DAEMON_VICTIMS)
def test_kill_the_daemon(make_daemon, name):
    """Everything ends; after the start everything committed is there, and the call that was
    under way reads "interrupted": it is never run again and never a success."""
    daemon = make_daemon().start()
    client = daemon.client("acme")
    session = client.session(title="survivor")
    done = client.run(session, "$ echo committed; exit 3")
    waiting = client.start(client.session(), "? Which? | a | b")
    client.wait_for(waiting, "waiting_for_input")
    request = client.call("GET", f"/v1/requests?turnId={waiting}")["data"][0]
    turn = begin(client, session, "once")
    DAEMON_VICTIMS[name](daemon).kill()
    code = daemon.ended()
    assert code != 0
    daemon.start()
    client = daemon.client("acme")

    outcome = client.wait(turn)
    assert outcome.status == "completed"
    assert outcome.text.startswith("error: interrupted: "), outcome.text
    assert outcome.tool["totalBytes"] == 0
    assert client.call("GET", f"/v1/sessions/{session}")["title"] == "survivor"
    again = client.wait(done.turn["id"])
    assert (again.turn, again.output) == (done.turn, done.output)
    assert client.run(session, "$ cat trace").text == "once\n", "the command ran twice"

    assert client.turn(waiting)["status"] == "waiting_for_input"
    assert client.call("GET", f"/v1/requests?turnId={waiting}")["data"] == [request]
    client.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "b"})
    assert client.wait(waiting).text == "b"
    assert daemon.stop() == 0


def test_kill_a_database_connection(make_daemon):
    """PostgreSQL recovers by itself; the daemon goes on, and the turn ends as it should."""
    daemon = make_daemon().start()
    client = daemon.client("acme")
    session = client.session()
    with client.events() as events:
        turn = client.start(session, "$ echo begun; sleep 3; echo end")
        events.until_output(turn, "begun")
        backends = [p for p in daemon.tree()
                    if p.name == "postgres" and "[local]" in " ".join(p.arguments())]
        assert backends
        backends[0].kill()
        events.until_end(turn, 40)
    eventually(lambda: client.request("GET", "/readyz").status == 200, 20, "ready again")
    outcome = client.wait(turn)
    assert outcome.text == "begun\nend\n" and outcome.status == "completed"
    assert client.run(session, "$ echo next").text == "next\n"
    assert daemon.stop() == 0


def test_a_store_that_does_not_answer_is_said(make_daemon):
    """While PostgreSQL hangs, /healthz says alive, /readyz says no, and nothing is invented."""
    daemon = make_daemon().start()
    client = daemon.client("acme")
    session = client.session()
    postgres = [daemon.postgres(), *[p for p in daemon.tree() if p.name == "postgres"]]
    for process in postgres:
        process.kill(signal.SIGKILL if "[local]" in " ".join(process.arguments())
                     else signal.SIGSTOP)
    assert client.call("GET", "/healthz") == {"ok": True}
    answer = client.request("GET", "/readyz")
    assert (answer.status, answer.code) == (503, "store_unavailable"), answer
    assert answer.header("Retry-After")
    answer = client.request("GET", f"/v1/sessions/{session}")
    assert (answer.status, answer.code) == (503, "store_unavailable"), answer
    assert daemon.var not in answer.raw.decode(), "a tenant is told of the host's paths"
    for process in postgres:
        if process.lives():
            process.kill(signal.SIGCONT)
    eventually(lambda: client.request("GET", "/readyz").status == 200, 30, "ready again")
    assert client.call("GET", f"/v1/sessions/{session}")["id"] == session
    assert daemon.stop() == 0


def test_queued_turns_survive(make_daemon):
    daemon = make_daemon(options=["--max-running-turns=1"]).start()
    client = daemon.client("acme")
    first = begin(client, client.session(), "q")
    queued = [client.start(client.session(), f"$ echo {i}") for i in range(3)]
    daemon.launcher().kill()
    daemon.ended()
    daemon.start()
    client = daemon.client("acme")
    assert client.wait(first).text.startswith("error: interrupted: ")
    for i, turn in enumerate(queued):
        assert client.wait(turn).text == f"{i}\n"
    assert daemon.stop() == 0


def test_a_cancel_survives(make_daemon):
    """A turn that was told to end does not come to life again."""
    daemon = make_daemon().start()
    client = daemon.client("acme")
    turn = begin(client, client.session(), "c")
    daemon.sentry("acme").kill(signal.SIGSTOP)
    connection = client.connect()
    connection.request("POST", f"/v1/turns/{turn}/cancel", None, client.headers(None, None))
    sql = Sql(daemon)
    asked = f"SELECT cancel_requested OR state = 'cancelled' FROM app.turn WHERE id = '{turn}'"
    eventually(lambda: sql.ask("cloister_owner", sql.database("acme"), asked) == "t", 20,
               "a cancel that is committed", 0.1)
    daemon.launcher().kill()
    daemon.ended()
    daemon.start()
    assert daemon.client("acme").wait(turn).status == "cancelled"
    assert daemon.stop() == 0


def test_killed_again_and_again(make_daemon):
    """Crash in the recovery from a crash: the state stays usable."""
    daemon = make_daemon().start()
    client = daemon.client("acme")
    session = client.session()
    turns = []
    for i in range(3):
        turns.append(begin(client, client.session(), f"r{i}"))
        daemon.launcher().kill()
        daemon.ended()
        daemon.start()
        client = daemon.client("acme")
    for turn in turns:
        assert client.wait(turn).text.startswith("error: interrupted: ")
    assert client.run(session, "$ cat trace").text == "r0\nr1\nr2\n"
    assert daemon.stop() == 0


# --- an orderly stop -----------------------------------------------------------------------


def test_a_stop_drains(make_daemon):
    """The running turn finishes; new ones are refused; what waits is kept."""
    daemon = make_daemon(options=["--max-running-turns=1"]).start()
    client, gate = daemon.client("acme"), Gate(daemon)
    running = client.start(client.session(), f"$ echo begun; {gate.wait}; echo finished")
    client.wait_for(running, "running")
    queued = client.start(client.session(), "$ echo later")
    idle = client.session()
    daemon.process.send_signal(signal.SIGTERM)

    def refused():
        answer = client.request("POST", f"/v1/sessions/{idle}/turns", {"input": "x"})
        return answer if answer.status == 503 else None

    answer = eventually(refused, 20, "a refusal of new turns")
    assert answer.code == "server_stopping" and answer.header("Retry-After")
    client.call("POST", "/v1/sessions", {}, 503, "server_stopping")
    assert client.call("GET", "/healthz") == {"ok": True}
    assert client.turn(running)["status"] == "running"
    gate.open()
    assert daemon.ended() == 0
    daemon.start()
    client = daemon.client("acme")
    assert client.wait(running).text == "begun\nfinished\n"
    assert client.wait(queued).text == "later\n"
    assert daemon.stop() == 0


def test_a_drain_has_an_end(make_daemon):
    def attempt():
        daemon = make_daemon(options=["--drain-seconds=1"]).start()
        client = daemon.client("acme")
        turn = begin(client, client.session(), "d")
        start = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        daemon.ended()
        took = time.monotonic() - start
        daemon.start()
        outcome = daemon.client("acme").wait(turn)
        assert outcome.status in TERMINAL and outcome.text.startswith("error: interrupted: ")
        assert daemon.stop() == 0
        in_time(took < 10, f"a stop that took {took:.2f} s")

    punctual(attempt)


def test_a_second_signal_hastens(make_daemon):
    def attempt():
        daemon = make_daemon().start()
        client = daemon.client("acme")
        begin(client, client.session(), "h")
        start = time.monotonic()
        daemon.process.send_signal(signal.SIGINT)
        eventually(lambda: "draining for at most 25 s" in daemon.log(), 20, "the drain")
        time.sleep(1)  # one within half a second counts as the first
        daemon.process.send_signal(signal.SIGINT)
        daemon.ended()
        took = time.monotonic() - start
        assert "ending without drain" in daemon.log()
        in_time(took < 15, f"a stop that took {took:.2f} s")

    punctual(attempt)


def test_a_stop_closes_streams_and_leaves_nobody(make_daemon):
    def attempt():
        daemon = make_daemon().start()
        client = daemon.client("acme")
        client.run(client.session(), "$ setsid sleep 1000 & true")
        events = client.events()
        start = time.monotonic()
        assert daemon.stop() == 0  # and nobody is left, see ended()
        took = time.monotonic() - start
        assert events.ended.wait(20), "the stream outlived the daemon"
        assert not os.path.exists(f"{daemon.state}/pg/data/postmaster.pid")
        in_time(took < 8, f"a stop that took {took:.2f} s")

    punctual(attempt)


def test_an_idle_sandbox_stops(make_daemon):
    daemon = make_daemon(options=["--sandbox-idle-seconds=4"]).start()
    client = daemon.client("acme")
    session = client.session()
    client.run(session, "$ echo kept >kept; echo gone >/tmp/gone; echo")
    daemon.expect_end("acme")
    said = re.findall(rf"^(\S+Z) info .*sandbox of tenant {daemon.tenants['acme'].id} "
                      "(runs|stops: idle)$", daemon.log(), re.MULTILINE)
    assert [word for _, word in said] == ["runs", "stops: idle"], daemon.log()
    assert timestamp(said[1][0]) - timestamp(said[0][0]) >= 4, "it did not stop for being idle"
    start = time.monotonic()
    assert client.run(session, "$ cat kept; ls /tmp").text == "kept\n"
    assert time.monotonic() - start < 20
    # A call that is longer than the idle time keeps it.
    assert client.run(session, "$ sleep 6; echo awake").text == "awake\n"
    assert daemon.stop() == 0
