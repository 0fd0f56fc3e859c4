"""kill -9 of launcher and server, at every commit of a turn and at random.

Every tool call appends its number to a file of the workspace, so that effects are counted:
a call has its effect at most once, and exactly once when its result is committed.
"""

import contextlib
import fcntl
import http.client
import os
import random
import signal
import threading
import time

import pytest

from client import TERMINAL
from daemon import Gate
from postgres_proxy import HOLD_AFTER, HOLD_BEFORE, Proxy
from world import PATIENCE, eventually, in_time, punctual, timestamp

CALLS = 3
KILLS = int(os.environ.get("CLOISTER_KILLS", "50"))


def line(numbers, pause=0):
    return "\n".join(f"$ echo {n} >>effects; sleep {pause}; echo done {n}" for n in numbers)


def effects(daemon):
    with contextlib.suppress(FileNotFoundError):
        with open(f"{daemon.tenants['acme'].workspace}/effects", encoding="ascii") as f:
            return f.read().split()
    return []


def kill_one(daemon, name):
    """One of the two; what it leaves behind ends by itself."""
    (daemon.server() if name == "server" else daemon.launcher()).kill()
    daemon.ended()


def kill_all(daemon):
    """Launcher and server at once, as the kernel would when memory ends."""
    server = daemon.server()
    os.kill(daemon.process.pid, signal.SIGSTOP)  # so that neither sees the other die
    server.kill()
    daemon.process.kill()
    daemon.process.wait(10)
    daemon.world.expect_nobody(40)


def items_of(client, session, turn):
    page = client.call("GET", f"/v1/sessions/{session}/history?limit=100")
    found = [entry["turn"] for entry in page["data"] if entry["turn"]["id"] == turn]
    assert len(found) == 1, page
    return found[0]["items"]


def judge(daemon, client, session, turn, numbers):
    """The turn has ended; every call is told of truly."""
    outcome = client.wait(turn, 90)
    assert outcome.status == "completed", outcome.turn
    items = items_of(client, session, turn)
    assert [i["seq"] for i in items] == list(range(len(items))), "a gap in the history"
    calls = [i for i in items if i["kind"] == "tool_call"]
    results = {i["callId"]: i for i in items if i["kind"] == "tool_result"}
    assert [i["kind"] for i in items] == \
        ["user"] + ["tool_call"] * len(numbers) + ["tool_result"] * len(numbers) + ["assistant"]
    assert len(calls) == len(numbers) and set(results) == {c["callId"] for c in calls}
    interrupted = 0
    for number, call in zip(numbers, calls):
        text = results[call["callId"]]["output"]
        times = effects(daemon).count(str(number))
        if text.startswith("error: interrupted: "):
            interrupted += 1
            assert times <= 1, f"call {number} had its effect {times} times"
        else:
            assert text == f"done {number}\n" and times == 1, (number, text, times)
    return interrupted


def begin(client, session, text, key=None):
    """Starts a turn while the daemon may die under it: its answer, or None."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        body = {"input": text, **({"clientRequestId": key} if key else {})}
        return client.request("POST", f"/v1/sessions/{session}/turns", body)
    return None


def turns_of(client, session):
    return client.call("GET", f"/v1/turns?sessionId={session}")["data"]


@pytest.mark.parametrize("where", [HOLD_BEFORE, HOLD_AFTER])
def test_killed_at_every_commit(make_daemon, where):
    """insert, running, the model's calls, start and result of each, its answer, the end.

    The victims take turns, so that over both tests each dies alone at every commit."""
    commits = 3 + 2 * CALLS + 2
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    session = client.session()
    seen = 0
    for at in range(1, commits + 2):
        proxy = Proxy(daemon)
        proxy.stop_at_commit(at, where)
        numbers = list(range(at * 10, at * 10 + CALLS))
        thread = threading.Thread(target=begin, daemon=True,
                                  args=(daemon.client("acme"), session, line(numbers)))
        thread.start()
        if at > commits:  # this one is not interrupted
            eventually(lambda: len(turns_of(client, session)) >= at - (where == HOLD_BEFORE), 30,
                       "the last turn")
            client.wait(turns_of(client, session)[0]["id"], 60)
            assert not proxy.stopped.is_set() and proxy.commits == commits, proxy.commits
        else:
            assert proxy.stopped.wait(60), f"commit {at} of {commits}: {proxy.commits}"
        kill_one(daemon, ("server", "launcher")[(at + (where == HOLD_AFTER)) % 2])
        proxy.close()
        thread.join(10)
        daemon.start()
        client = daemon.client("acme")
        turns = turns_of(client, session)
        if at == 1 and where == HOLD_BEFORE:
            assert turns == [], "a turn that was never committed"
            continue
        assert len(turns) == at - (where == HOLD_BEFORE)
        seen += judge(daemon, client, session, turns[0]["id"], numbers)
        assert all(t["status"] in TERMINAL for t in turns_of(client, session))
    # Killed after a start was committed and before its result was: each call once or twice.
    assert CALLS <= seen <= 2 * CALLS
    assert daemon.stop() == 0


def test_killed_at_random(make_daemon):
    """Also while it recovers from the last time; a new turn begins when the last one has ended."""
    daemon = make_daemon(("acme",)).start()
    chance = random.Random(20240607)
    session = daemon.client("acme").session()
    turns, rounds = [], 0
    for n in range(KILLS):
        client = daemon.client("acme")
        if not turns or client.turn(turns[-1][0])["status"] in TERMINAL:
            numbers = list(range(n * 10, n * 10 + 5))
            turns.append((client.start(session, line(numbers, 0.05)), numbers))
            rounds = 0
        # One that is never given the time to get on would be killed in the same place each time.
        rounds += 1
        time.sleep(chance.uniform(0, 1.2) * PATIENCE * (1 + rounds // 4))
        kill_all(daemon)
        daemon.start()
    client = daemon.client("acme")
    interrupted = [judge(daemon, client, session, turn, numbers) for turn, numbers in turns]
    print(f"{KILLS} kills, {len(turns)} turns, {sum(interrupted)} calls interrupted")
    assert len(turns) > 1 and sum(interrupted) > 0, "nothing was ever interrupted"
    assert daemon.stop() == 0


def test_nothing_goes_on_while_an_old_runner_may_live(make_daemon):
    """The tenant's lock is held by somebody else: the call that was running stays open."""
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    session = client.session()
    turn = client.start(session, "$ echo 1 >>effects; sleep 60\n$ echo 2 >>effects")
    eventually(lambda: effects(daemon) == ["1"], 20, "the first effect")
    kill_all(daemon)
    tenant = daemon.tenants["acme"].id
    with open(f"{daemon.state}/tenants/{tenant}/run/{tenant}/lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        daemon.start()
        client = daemon.client("acme")
        client.wait_for(turn, "running")
        eventually(lambda: "another runner holds" in daemon.log(), 30, "a start that is refused")
        time.sleep(3)
        assert client.turn(turn)["status"] == "running"
        assert [i["kind"] for i in items_of(client, session, turn)] == \
            ["user", "tool_call", "tool_call"]
        assert effects(daemon) == ["1"]
    outcome = client.wait(turn)
    assert outcome.status == "completed" and effects(daemon) == ["1", "2"]
    results = [i["output"] for i in items_of(client, session, turn) if i["kind"] == "tool_result"]
    assert results[0].startswith("error: interrupted: ") and results[1] == ""
    assert daemon.stop() == 0


def test_questions_survive(make_daemon):
    """Listing and answering work after kill -9; what expired meanwhile is expired."""
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    ask = '@ask_user {"question":"go?","options":["yes"],"expiresInSeconds":%d}'
    keeps, expires = client.session(), client.session()
    keep, expire = client.start(keeps, ask % 3600), client.start(expires, ask % 10)
    for turn in (keep, expire):
        client.wait_for(turn, "waiting_for_input")
    before = client.call("GET", "/v1/requests")["data"]
    kill_all(daemon)
    late = next(r for r in before if r["turnId"] == expire)
    time.sleep(max(0, timestamp(late["expiresAt"]) - time.time()))
    daemon.start()
    client = daemon.client("acme")
    assert client.wait(expire).text == "error: expired: nobody answered in time"
    listed = client.call("GET", "/v1/requests")["data"]
    assert listed == [r for r in before if r["turnId"] == keep]
    client.call("POST", f"/v1/requests/{late['id']}/resolve", {"decision": "yes"}, 409,
                "request_not_resolved")
    client.call("POST", f"/v1/requests/{listed[0]['id']}/resolve", {"decision": "yes"})
    assert client.wait(keep).text == "yes"
    assert daemon.stop() == 0


@pytest.mark.parametrize("away", [False, True], ids=["cut off", "away"])
def test_an_answer_that_was_committed_unheard(make_daemon, away):
    """It counts, and whoever watches hears of it, once."""
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    turn = client.start(client.session(), "? go | yes")
    client.wait_for(turn, "waiting_for_input")
    where = f"/v1/requests/{client.call('GET', '/v1/requests')['data'][0]['id']}/resolve"
    with client.events() as events:
        proxy = Proxy(daemon)
        proxy.stop_at_commit(1, HOLD_AFTER)
        said = []
        thread = threading.Thread(daemon=True, target=lambda: said.append(
            client.request("POST", where, {"decision": "yes"})))
        thread.start()
        assert proxy.stopped.wait(20), "no commit"
        if away:
            proxy.go_away()
        else:
            proxy.cut_off()
        thread.join(30)
        answer = said[0]
        if away:
            assert (answer.status, answer.code) == (503, "store_unavailable"), answer
            proxy.come_back()
        else:
            assert (answer.status, answer.json["decision"]) == (200, "yes"), answer
        events.until_end(turn, 60)
        kinds = [kind for _, kind, _ in events.of_turn(turn)]
    assert kinds[:3] == ["request.resolved", "tool.finished", "turn.resumed"], kinds
    assert kinds.count("request.resolved") == 1
    assert client.wait(turn).text == "yes"
    client.call("POST", where, {"decision": "yes"}, 409, "request_not_resolved")
    proxy.close()
    assert daemon.stop() == 0


def test_ten_seconds_without_a_database(make_daemon):
    """Named errors, a cancel in time, and then everything goes on."""
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    session, other, third = client.session(), client.session(), client.session()
    turn = client.start(session, "\n".join(f"$ echo {i} >>effects; sleep 0.3" for i in range(8)))
    doomed = client.start(other, "$ while :; do echo x >>ticks; sleep 0.05; done")
    eventually(lambda: "1" in effects(daemon), 20, "the turn at work")
    ticks = f"{daemon.tenants['acme'].workspace}/ticks"
    eventually(lambda: os.path.exists(ticks), 20, "the other at work")
    cluster = [daemon.postgres(), *[p for p in daemon.tree() if p.name == "postgres"]]
    for process in cluster:
        process.kill(signal.SIGSTOP)
    gone = time.monotonic()
    try:
        busy = [threading.Thread(target=begin, args=(client, third, "x"), daemon=True)
                for _ in range(20)]  # more than there are workers
        for thread in busy:
            thread.start()
        time.sleep(0.5)

        def attempt():
            start = time.monotonic()
            answer = client.cancel(doomed)
            took = time.monotonic() - start
            assert (answer.status, answer.code) == (503, "store_unavailable"), answer
            assert answer.header("Retry-After")
            said = f" request {answer.header('X-Request-ID')}: the turn is stopped"
            eventually(lambda: said in daemon.log(), 10, "a line of it")
            in_time(took < 2 * PATIENCE, f"a cancel that took {took:.2f} s")

        punctual(attempt)

        def rests():
            size = os.path.getsize(ticks)
            time.sleep(0.5)
            return os.path.getsize(ticks) == size

        eventually(rests, 5, "the work was not stopped")
        time.sleep(max(0, gone + 10 - time.monotonic()))
    finally:
        for process in cluster:
            with contextlib.suppress(ProcessLookupError):
                process.kill(signal.SIGCONT)
    assert client.wait(turn).status == "completed"
    assert sorted(effects(daemon)) == [str(i) for i in range(8)]
    assert client.wait(doomed).status == "cancelled"
    for thread in busy:
        thread.join(60)
    assert all(client.wait(t["id"]).status in TERMINAL for t in turns_of(client, third))
    assert client.run(client.session(), "after").text == "after"
    assert daemon.stop() == 0


def test_an_orderly_stop(make_daemon):
    """Running turns end, new work is refused, streams stay open until the end."""
    daemon = make_daemon(("acme",), options=["--drain-seconds=60"]).start()
    client, gate = daemon.client("acme"), Gate(daemon)
    session, idle = client.session(), client.session()
    with client.events() as events:
        turn = client.start(session, f"$ echo begun; {gate.wait}; echo over")
        events.until_output(turn, "begun\n")
        daemon.process.send_signal(signal.SIGTERM)

        def refused():
            answer = client.request("POST", f"/v1/sessions/{idle}/turns", {"input": "x"})
            if answer.status == 202 or answer.code == "session_busy":  # the one before is not over
                return None
            assert (answer.status, answer.code) == (503, "server_stopping"), answer
            return answer.header("Retry-After")

        assert eventually(refused, 20, "new work refused")
        assert client.turn(turn)["status"] == "running"
        gate.open()
        seen = events.until_end(turn, 20)
        assert seen[-1][1] == "turn.completed"
        text = "".join(e["data"]["output"] for _, k, e in seen if k == "tool.output.updated")
        assert text.endswith("over\n")
        assert events.ended.wait(30)
    assert daemon.ended() == 0


def test_a_stop_that_cannot_wait(make_daemon):
    def attempt():
        daemon = make_daemon(("acme",), options=["--drain-seconds=1"]).start()
        client = daemon.client("acme")
        session = client.session()
        turn = client.start(session, "$ echo 1 >>effects; sleep 60\n$ echo 2 >>effects")
        eventually(lambda: effects(daemon) == ["1"], 20, "the first effect")
        start = time.monotonic()
        assert daemon.stop() == 0
        took = time.monotonic() - start
        daemon.start()
        client = daemon.client("acme")
        assert client.wait(turn).status == "completed" and effects(daemon) == ["1", "2"]
        assert daemon.stop() == 0
        in_time(took < 15, f"a stop that took {took:.2f} s")

    punctual(attempt)
