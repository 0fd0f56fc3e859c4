"""Event streams: order, replay, gaps, limits, restarts, and many of them at once."""

import json
import os
import selectors
import signal
import socket
import time

import pytest

from client import blocks
from contract import CONTRACT
from daemon import TENANTS
from world import PATIENCE, eventually

COUNTER_BITS = 32


def ids(events):
    return [e["id"] for _, kind, e in events if kind != "replay.reset"]


def kinds(events):
    return [kind for _, kind, _ in events]


# --- order -----------------------------------------------------------------------------


def test_the_events_of_a_turn(acme, session):
    outcome = acme.watch(session, "$ echo one; sleep 0.3; echo two")
    seen = kinds(outcome.events)
    assert seen[:5] == ["turn.queued", "turn.started", "agent.turn.started",
                        "agent.turn.finished", "tool.started"]
    assert seen[-5:] == ["tool.finished", "agent.turn.started", "response.text.delta",
                         "agent.turn.finished", "turn.completed"]
    assert set(seen[5:-5]) == {"tool.output.updated"}
    started = next(e["data"] for _, k, e in outcome.events if k == "tool.started")
    assert json.loads(started["arguments"]) == {"command": "echo one; sleep 0.3; echo two"}
    output = "".join(e["data"]["output"] for _, k, e in outcome.events
                     if k == "tool.output.updated")
    assert output == outcome.finished[0]["output"] == outcome.text == "one\ntwo\n"
    assert outcome.details == {"reason": "exited", "exitCode": 0, "signal": None, "survivors": 0}
    calls = {e["data"]["callId"] for _, k, e in outcome.events if k.startswith("tool.")}
    assert calls == {outcome.tool["callId"]}


def test_an_event_comes_after_the_commit_it_reports(acme, session):
    """Whoever reads the resource on an event finds at least what the event said."""
    for _ in range(10):
        with acme.events() as events:
            turn = acme.start(session, "hello")
            events.until_kind(turn, "turn.completed")
            assert acme.turn(turn)["status"] == "completed"


def test_ids_have_no_gap(cloister):
    client = cloister.client("stark")
    session = client.session()
    with client.events() as events:
        for i in range(5):
            client.run(session, f"hello {i}")
        turn = client.start(session, "last")
        events.until_end(turn)
        seen = ids(events.seen)
    assert seen == list(range(seen[0], seen[0] + len(seen)))


def test_long_text_is_marked(acme, session):
    outcome = acme.watch(session, "$ head -c 40000 /dev/zero | tr '\\0' x")
    assert outcome.finished[0]["truncated"] is True and outcome.finished[0]["totalBytes"] == 40000
    assert outcome.finished[0]["output"] == "x" * 16383 + "…"
    assert outcome.text == "x" * 40000 and outcome.tool["truncated"] is False


# --- replay ----------------------------------------------------------------------------


def test_replay_goes_on_after_the_last_id(acme, session):
    outcome = acme.watch(session, "$ echo replay")
    whole = outcome.events
    for at in (0, 3, len(whole) - 2):
        with acme.events(str(whole[at][2]["id"])) as events:
            events.until(lambda: len(events.seen) >= len(whole) - at - 1, 20, "the replay")
            again = list(events.seen)
        assert [e for _, _, e in again] == [e for _, _, e in whole[at + 1:]]


def test_replay_and_what_follows_are_one(acme, session):
    """A stream that comes back in the middle of a turn loses and doubles nothing."""
    with acme.events() as control:
        turn = acme.start(session, "$ for i in $(seq 20); do echo $i; sleep 0.05; done")
        seen = [control.until_kind(turn, "turn.queued")]
        while "turn.completed" not in kinds(seen):
            with acme.events(str(seen[-1][2]["id"])) as events:
                events.until(lambda: events.seen, 20, "an event")
            seen += events.seen
        control.until_end(turn)
    assert [e for _, _, e in seen] == [e for _, _, e in control.of_turn(turn)]


@pytest.mark.parametrize("last_id,code", [
    ("x", 400), ("-1", 400), ("1.5", 400), ("", 400), ("9223372036854775808", 400), ("0x10", 400),
    (" 5 6", 400)])
def test_a_last_id_that_is_none(acme, last_id, code):
    acme.call("GET", "/v1/events", status=code, code="invalid_last_event_id",
              headers={"Last-Event-ID": last_id})


@pytest.mark.parametrize("last_id", ["0", "1", "9007199254740991", "9223372036854775807"])
def test_a_last_id_from_elsewhere_is_told(acme, session, last_id):
    """Before the window, from the future: there was a gap, read everything anew."""
    acme.run(session, "something to replay")
    with acme.events(last_id) as events:
        events.until(lambda: len(events.seen) > 1, 20, "the replay")
        assert kinds(events.seen)[0] == "replay.reset"
        assert "replay.reset" not in kinds(events.seen)[1:]


def test_what_fell_out_of_the_window_is_told(make_daemon):
    daemon = make_daemon(options=["--event-replay-limit=10"]).start()
    client = daemon.client("acme")
    session = client.session()
    first = client.watch(session, "first").events
    for i in range(4):
        client.run(session, f"more {i}")
    with client.events(str(first[0][2]["id"])) as events:
        events.until(lambda: len(events.seen) == 11, 20, "the window")
        assert kinds(events.seen)[0] == "replay.reset"
        seen = ids(events.seen)
    assert seen == list(range(seen[-1] - 9, seen[-1] + 1))
    with client.events(str(seen[0] - 1)) as events:
        events.until(lambda: len(events.seen) == 10, 20, "the window")
        assert ids(events.seen) == seen


def test_ids_grow_over_restarts(make_daemon):
    daemon = make_daemon(first=True).start()
    last = 0
    for sig in (signal.SIGTERM, signal.SIGKILL, None):
        client = daemon.client("acme")
        with client.events(str(last) if last else None) as events:
            outcome = client.watch(client.session(), "hello")
            events.until_end(outcome.turn["id"])
            # What the last daemon kept is gone with it, and that is said.
            assert ("replay.reset" in kinds(events.seen)) == bool(last)
        first, newest = outcome.events[0][2]["id"], outcome.events[-1][2]["id"]
        assert first > last and newest < 2 ** 53
        assert first >> COUNTER_BITS == (last >> COUNTER_BITS) + 1
        last = newest
        if sig:
            daemon.process.send_signal(sig)
            daemon.ended()
            daemon.start()


# --- limits ----------------------------------------------------------------------------


def test_streams_are_limited(make_daemon):
    daemon = make_daemon(options=["--max-event-streams=5",
                                  "--max-event-streams-per-tenant=3"]).start()
    acme, globex = daemon.client("acme"), daemon.client("globex")
    streams = [acme.events() for _ in range(3)]
    refused = acme.request("GET", "/v1/events")
    assert (refused.status, refused.code) == (429, "tenant_event_subscriber_limit")
    assert refused.header("Retry-After")
    streams += [globex.events() for _ in range(2)]
    refused = globex.request("GET", "/v1/events")
    assert (refused.status, refused.code) == (429, "event_subscriber_limit")
    streams.pop(0).close()

    def room():
        try:
            streams.append(globex.events())
        except AssertionError:
            return False
        return True

    eventually(room, 20, "the place of a stream that was closed")
    for stream in streams:
        stream.close()


def test_a_reader_that_does_not_read_holds_nobody(cloister):
    client = cloister.client("wayne")
    session = client.session()
    deaf = socket.create_connection(("127.0.0.1", cloister.port))
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.sendall(f"GET /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {client.token}"
                 "\r\n\r\n".encode())
    start = time.monotonic()
    for i in range(8):
        outcome = client.watch(session, f"$ head -c 60000 /dev/zero | tr '\\0' {i}")
        assert len(outcome.text) == 60000
    assert time.monotonic() - start < 20 * PATIENCE
    deaf.close()


def test_heartbeats(acme):
    """A silent stream says something every 15 s, so that dead peers are found."""
    with socket.create_connection(("127.0.0.1", acme.port), timeout=30) as s:
        # A tenant nobody else uses would be silent; comments are told apart in any case.
        s.sendall(f"GET /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {acme.token}"
                  "\r\n\r\n".encode())
        received = b""
        deadline = time.monotonic() + 25
        while b": heartbeat\n\n" not in received:
            assert time.monotonic() < deadline, received
            received += s.recv(65536)


# --- many at once ------------------------------------------------------------------------


class Crowd:
    """Very many streams, read as bytes and judged afterwards."""

    def __init__(self, clients, each):
        self.selector = selectors.DefaultSelector()
        self.bytes = {}
        for client in clients:
            for _ in range(each):
                s = socket.create_connection(("127.0.0.1", client.port))
                s.sendall(f"GET /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer "
                          f"{client.token}\r\n\r\n".encode())
                s.setblocking(False)
                self.selector.register(s, selectors.EVENT_READ, client)
                self.bytes[s] = bytearray()

    def read_until(self, condition, seconds):
        deadline = time.monotonic() + seconds * PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "the streams do not get what they wait for"
            for key, _ in self.selector.select(0.1):
                data = key.fileobj.recv(1 << 20)
                assert data, "a stream ended"
                self.bytes[key.fileobj] += data

    def of(self, client):
        return [bytes(self.bytes[key.fileobj]) for key in self.selector.get_map().values()
                if key.data is client]

    def close(self):
        for s in self.bytes:
            s.close()
        self.selector.close()


def body_of(received):
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    return body


def parsed(body):
    lines = [line + b"\n" for line in body.split(b"\n")[:-1]]
    return [CONTRACT.check_event(*block) for block in blocks(lines)]


def test_64_turns_of_8_tenants_under_200_streams(cloister):
    clients = [cloister.client(name) for name in TENANTS]
    sessions = {client: [client.session() for _ in range(8)] for client in clients}
    crowd = Crowd(clients, 25)
    crowd.read_until(lambda: all(b": ok\n\n" in b for b in crowd.bytes.values()), 20)
    command = "$ echo begin; for i in 1 2 3; do sleep 0.1; echo $i; done; echo $((6 * 7))"
    turns = {client: [client.start(s, command) for s in sessions[client]] for client in clients}
    assert sum(len(t) for t in turns.values()) == 64

    ends = b"event: turn.completed\n"
    crowd.read_until(lambda: all(b.count(ends) >= 8 for b in crowd.bytes.values()), 120)
    for client in clients:
        for turn in turns[client]:
            assert client.wait(turn).text == "begin\n1\n2\n3\n42\n"
        streams = crowd.of(client)
        assert len(streams) == 25
        events = parsed(body_of(streams[0]))
        # Gapless, complete, and nothing but the tenant's own.
        numbers = [e["id"] for e in events]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert {e["turnId"] for e in events} == set(turns[client])
        assert {e["sessionId"] for e in events} == set(sessions[client])
        for turn in turns[client]:
            mine = [e["type"] for e in events if e["turnId"] == turn]
            assert mine[0] == "turn.queued" and mine[-1] == "turn.completed"
            assert mine.count("tool.finished") == 1
        # And every stream of a tenant got the same.
        assert {body_of(s) for s in streams} == {body_of(streams[0])}
    crowd.close()
    eventually(lambda: descriptors(cloister) < 120, 10, "the descriptors of closed streams")


def descriptors(daemon):
    return len(os.listdir(f"/proc/{daemon.server().pid}/fd"))
