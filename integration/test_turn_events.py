"""Streams of one session or one turn, turns told again, and streams that come and go."""

import json
import os
import random
import selectors
import socket
import time
import uuid

import pytest

from client import TERMINAL, blocks
from contract import CONTRACT
from daemon import Gate
from world import PATIENCE

RECONNECTS = int(os.environ.get("CLOISTER_RECONNECTS", "1000"))
ENDS = tuple(f"turn.{state}" for state in TERMINAL)


class Stream:
    """One event stream, read by hand."""

    def __init__(self, client, query="", last_id=None):
        headers = client.headers(None, {"Last-Event-ID": last_id})
        self.connection = client.connect(30)
        self.connection.request("GET", f"/v1/events{query}", None, headers)
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()

    def __iter__(self):
        for kind, event_id, data in blocks(self.response):
            yield kind, CONTRACT.check_event(kind, event_id, data)

    def close(self):
        self.response.close()
        self.connection.close()


def whole(client, query, last_id=None):
    """Everything of a stream that ends by itself."""
    stream = Stream(client, query, last_id)
    seen = list(stream)
    stream.close()
    return seen


def stripped(seen):
    return [(kind, e["turnId"], e["sessionId"]) for kind, e in seen]


# --- one turn ----------------------------------------------------------------------------


def test_a_turns_stream_ends_with_the_turn(cloister, acme, session):
    other = acme.session()
    noise = acme.start(other, "$ for i in $(seq 20); do echo $i; sleep 0.05; done")
    gate = Gate(cloister)
    turn = acme.start(session, f"$ {gate.wait}; echo one; sleep 0.3; echo two")
    stream = Stream(acme, f"?turnId={turn}")
    gate.open()
    seen = list(stream)
    stream.close()
    assert seen[-1][0] == "turn.completed" and {e["turnId"] for _, e in seen} == {turn}
    calls = {e["data"]["callId"] for kind, e in seen if kind.startswith("tool.")}
    assert len(calls) == 1, "an event of a tool without its call"
    assert any(kind == "tool.output.updated" for kind, _ in seen)
    assert all("rebuilt" not in e for _, e in seen)
    acme.wait(noise)


def test_what_is_kept_is_replayed_to_the_end(acme, session):
    outcome = acme.watch(session, "$ echo replay")
    live = [(kind, e) for _, kind, e in outcome.events]
    first = str(live[0][1]["id"])
    assert whole(acme, f"?turnId={outcome.turn['id']}", first) == live[1:]
    assert whole(acme, f"?turnId={outcome.turn['id']}&sessionId={session}", first) == live[1:]


def test_a_turn_that_has_ended_is_told_again(acme, session):
    outcome = acme.watch(session, "$ echo one; exit 3\n$ printf 'a\\377b'")
    turn = outcome.turn["id"]
    live = [(kind, e) for _, kind, e in outcome.events]
    for last_id in (None, str(live[-1][1]["id"])):  # also for who has seen the end
        again = whole(acme, f"?turnId={turn}", last_id)
        assert all(e["rebuilt"] is True and e["id"] is None for _, e in again)
        told = [kind for kind, _ in live if kind != "tool.output.updated"]
        assert [kind for kind, _ in again] == told
        for kind, field in (("tool.started", "arguments"), ("tool.finished", "output"),
                            ("tool.finished", "details"), ("tool.finished", "lossy"),
                            ("response.text.delta", "text"),
                            ("agent.turn.finished", "assistantText"),
                            ("agent.turn.finished", "responseId"), ("turn.completed", "error")):
            assert [e["data"][field] for k, e in again if k == kind] == \
                [e["data"][field] for k, e in live if k == kind], (kind, field)
        assert again[0][1]["at"] == outcome.turn["createdAt"]
        assert again[-1][1]["at"] == outcome.turn["finishedAt"]


@pytest.mark.parametrize("line,end", [
    ("\n".join(f"$ echo {i}" for i in range(65)), "turn.failed"), ("? go", "turn.cancelled")])
def test_other_ends_told_again(acme, session, line, end):
    turn = acme.start(session, line)
    if end == "turn.cancelled":
        acme.wait_for(turn, "waiting_for_input")
        acme.end(turn)
    outcome = acme.wait(turn)
    again = whole(acme, f"?turnId={turn}")
    assert again[-1][0] == end and again[-1][1]["data"]["error"] == outcome.error


def test_a_long_turn_told_again_is_cut_and_says_so(acme, session):
    outcome = acme.run(session, "\n".join("$ head -c 60000 /dev/zero | tr '\\0' x"
                                          for _ in range(8)))
    again = whole(acme, f"?turnId={outcome.turn['id']}")
    kinds = [kind for kind, _ in again]
    assert kinds[-2:] == ["warning", "turn.completed"] and kinds.count("tool.finished") == 8
    assert again[-2][1]["data"]["truncated"] is True


def test_a_question_in_a_turns_stream(acme, session):
    turn = acme.start(session, "? go | yes")
    acme.wait_for(turn, "waiting_for_input")
    request = acme.call("GET", f"/v1/requests?turnId={turn}")["data"][0]
    stream = Stream(acme, f"?turnId={turn}")
    acme.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": "yes"})
    seen = list(stream)
    assert [kind for kind, _ in seen] == [
        "request.resolved", "tool.finished", "turn.resumed", "agent.turn.started",
        "response.text.delta", "agent.turn.finished", "turn.completed"]
    assert seen[0][1]["data"] == {"requestId": request["id"], "status": "answered"}
    assert seen[1][1]["data"]["callId"] and seen[1][1]["data"]["output"] == "yes"


def test_a_sessions_stream(acme, session):
    other = acme.session()
    stream = Stream(acme, f"?sessionId={session}")
    acme.wait(acme.start(other, "x"))
    turn = acme.start(session, "y")
    seen = []
    for kind, event in stream:
        seen.append(event)
        if kind in ENDS:
            break
    stream.close()
    assert {e["sessionId"] for e in seen} == {session} and {e["turnId"] for e in seen} == {turn}


def test_filters_that_name_nothing(acme, globex, session):
    theirs = globex.session()
    turn = globex.run(theirs, "x").turn["id"]
    mine = acme.run(session, "x").turn["id"]
    for query, status, code in (
            (f"?turnId={turn}", 404, "turn_not_found"),
            (f"?turnId={uuid.uuid4()}", 404, "turn_not_found"),
            (f"?sessionId={theirs}", 404, "session_not_found"),
            (f"?sessionId={uuid.uuid4()}", 404, "session_not_found"),
            (f"?turnId={mine}&sessionId={acme.session()}", 404, "turn_not_found"),
            ("?turnId=x", 400, "invalid_query"), ("?sessionId=", 400, "invalid_query"),
            ("?turn=x", 400, "invalid_query")):
        acme.call("GET", f"/v1/events{query}", status=status, code=code)


def test_a_gap_ends_a_turns_stream(make_daemon):
    """Its end may have been in the gap; who comes back is told the whole."""
    daemon = make_daemon(("acme",), options=["--event-replay-limit=5"]).start()
    client = daemon.client("acme")
    session, other = client.session(), client.session()
    gate = Gate(daemon)
    turn = client.start(session, f"$ {gate.wait}; echo done")
    for _ in range(3):
        client.run(other, "noise")
    seen = whole(client, f"?turnId={turn}", "1")
    assert seen == [("replay.reset", {"reason": "event_gap", "refetch": True})]
    gate.open()
    client.wait(turn)
    again = whole(client, f"?turnId={turn}")
    assert again[-1][0] == "turn.completed"
    assert daemon.stop() == 0


# --- streams that come and go -----------------------------------------------------------------


STREAMING = 4  # turns at once, so that there is always something to miss


def some_of(client, last, count):
    """A stream after that id which breaks off after so many events."""
    stream = Stream(client, "", last)
    seen = []
    for kind, event in stream if count else ():
        assert kind != "replay.reset"
        seen.append((kind, event))
        if len(seen) == count:
            break
    stream.close()
    return seen


def test_random_reconnects_lose_nothing(make_daemon):
    """However often it breaks off, the joined stream is the whole one."""
    daemon = make_daemon(("acme",), options=["--event-replay-limit=100000"]).start()
    client = daemon.client("acme")
    chance = random.Random(7)
    sessions = [client.session() for _ in range(STREAMING)]
    command = "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; sleep 0.02; done"
    with client.events() as control:
        turns = [client.start(s, "@shell " + json.dumps({"command": command,
                                                         "timeoutMs": 3600000}))
                 for s in sessions]
        control.until(lambda: control.seen, 30, "the first event")
        joined = [control.seen[0][1:]]
        for n in range(RECONNECTS):
            joined += some_of(client, str(joined[-1][1]["id"]), chance.choice([0, 0, 0, 1, 2]))
            if n % 100 == 0:
                time.sleep(chance.uniform(0, 0.3))
        with open(f"{daemon.tenants['acme'].workspace}/stop", "wb"):
            pass
        for turn in turns:
            control.until_end(turn)
        full = [event[1:] for event in control.seen]
    joined += some_of(client, str(joined[-1][1]["id"]), len(full) - len(joined))
    assert joined == full
    assert [e["id"] for _, e in full] == list(range(full[0][1]["id"],
                                                    full[0][1]["id"] + len(full)))
    assert daemon.stop() == 0


def raw_stream(port, token):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
              f"Authorization: Bearer {token}\r\n\r\n".encode())
    return s


def test_500_idle_streams_and_readers_that_never_read(make_daemon):
    """They cost the others nothing: a turn among them runs as fast, and all hear of it."""
    options = ["--max-event-streams=600", "--max-event-streams-per-tenant=600"]
    daemon = make_daemon(("acme", "globex"), options=options).start()
    client = daemon.client("acme")
    session = client.session()
    client.run(session, "$ true")
    token = daemon.tenants["acme"].token
    deaf = []
    for _ in range(20):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", daemon.port))
        s.sendall(f"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\n"
                  f"Authorization: Bearer {token}\r\n\r\n".encode())
        deaf.append(s)
    idle = [raw_stream(daemon.port, token) for _ in range(500)]
    with selectors.DefaultSelector() as selector:
        for s in idle:
            assert s.recv(4096).startswith(b"HTTP/1.1 200")
            s.setblocking(False)
            selector.register(s, selectors.EVENT_READ, [b""])
        start = time.monotonic()
        turn = client.start(session, "\n".join("$ head -c 30000 /dev/zero | tr '\\0' x"
                                               for _ in range(10)))
        waiting = len(idle)
        while waiting and time.monotonic() - start < 60 * PATIENCE:
            for key, _ in selector.select(1):
                with_more = key.data[0][-200:] + key.fileobj.recv(1 << 20)
                key.data[0] = with_more
                if b"event: turn.completed" in with_more:
                    selector.unregister(key.fileobj)
                    waiting -= 1
        assert waiting == 0, f"{waiting} streams did not hear of the end"
        assert client.wait(turn).status == "completed"
    # Those who never read are cut or reset, and nobody waited for them.
    assert daemon.client("globex").run(daemon.client("globex").session(), "hello").text == "hello"
    for s in idle + deaf:
        s.close()
    assert daemon.stop() == 0


def test_a_sandbox_has_no_way_to_answer(cloister, acme, session):
    """The agent cannot resolve its own request: nothing of the API can be reached from inside."""
    turn = acme.start(session, "? go | yes")
    acme.wait_for(turn, "waiting_for_input")
    where = acme.call("GET", f"/v1/requests?turnId={turn}")["data"][0]["id"]
    script = (
        "import socket\n"
        "for host in ('127.0.0.1','10.0.2.2','10.0.2.3','169.254.169.254','::1'):\n"
        "    s=None\n"
        "    try:\n"
        f"        s=socket.create_connection((host,{cloister.port}),1)\n"
        f"        s.sendall(b'POST /v1/requests/{where}/resolve HTTP/1.1\\r\\n\\r\\n')\n"
        "        print('reached',host)\n"
        "    except OSError as e:\n"
        "        print('refused',host)\n")
    inside = acme.session()
    acme.tool(inside, "write_file", path="reach.py", content=script)
    text = acme.run(inside, "$ python3 reach.py; env; cat /proc/net/unix 2>/dev/null; true").text
    assert "reached" not in text and text.count("refused") == 5, text
    assert cloister.tenants["acme"].token not in text and "PGSQL" not in text
    request = acme.call("GET", f"/v1/requests?turnId={turn}")["data"][0]
    assert request["status"] == "open"
    acme.end(turn)
