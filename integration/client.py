"""A tenant's program: JSON over HTTP, with every answer held against the API's description."""

import http.client
import json
import socket
import threading
import time

from contract import ABSENT, CONTRACT, Broken
from world import PATIENCE, eventually, in_time

TERMINAL = ("completed", "failed", "cancelled")


class Answer:
    def __init__(self, status, headers, raw, value):
        self.status, self.headers, self.raw, self.json = status, headers, raw, value

    def header(self, name):
        found = [v for k, v in self.headers if k.lower() == name.lower()]
        return found[0] if found else None

    @property
    def code(self):
        return self.json["error"]["code"] if self.status >= 400 and self.json else None

    def __repr__(self):
        return f"{self.status} {self.raw[:300]!r}"


class Outcome:
    """What a turn came to, with its events when somebody watched."""

    def __init__(self, result, events=()):
        self.turn, self.output = result["turn"], result["output"]
        self.status, self.error = self.turn["status"], self.turn["error"]
        self.events = list(events)

    @property
    def text(self):
        assert self.output, f"the turn has no output: {self.turn}"
        return self.output["assistantText"]

    @property
    def tool(self):
        return self.output["tools"][-1]

    @property
    def finished(self):
        """Data of the tool.finished events."""
        return [e["data"] for _, kind, e in self.events if kind == "tool.finished"]

    @property
    def details(self):
        assert self.finished, f"no tool.finished: {[k for _, k, _ in self.events]}"
        return self.finished[-1]["details"]


class Client:
    def __init__(self, port, token=None):
        self.port, self.token = port, token

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def headers(self, body, more):
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        headers.update(more or {})
        return {k: v for k, v in headers.items() if v is not None}

    def request(self, method, path, body=ABSENT, headers=None, connection=None):
        """One call. A body is bytes, or a value that is sent as JSON."""
        if body is ABSENT:
            body = None
        elif not isinstance(body, bytes):
            body = json.dumps(body, ensure_ascii=False).encode()
        own = connection or self.connect()
        try:
            own.request(method, path, body, self.headers(body, headers))
            response = own.getresponse()
            raw = response.read()
        finally:
            if not connection:
                own.close()
        value = CONTRACT.check(method, path, response.status, response.getheaders(), raw)
        return Answer(response.status, response.getheaders(), raw, value)

    def call(self, method, path, body=ABSENT, status=200, code=None, headers=None):
        """One call that must end with that status, and with that code when it is an error."""
        answer = self.request(method, path, body, headers)
        assert answer.status == status and answer.code == code, f"{method} {path}: {answer}"
        return answer.json

    def session(self, **fields):
        return self.call("POST", "/v1/sessions", fields, 201)["id"]

    def start(self, session, line, **fields):
        body = {"input": line, **fields}
        return self.call("POST", f"/v1/sessions/{session}/turns", body, 202)["id"]

    def turn(self, turn):
        return self.call("GET", f"/v1/turns/{turn}")

    def wait(self, turn, seconds=60):
        """The turn's result, as soon as there is one."""

        def look():
            answer = self.request("GET", f"/v1/turns/{turn}/result")
            if answer.status == 200:
                return answer.json
            assert (answer.status, answer.code) == (409, "turn_not_terminal"), answer
            return None

        return Outcome(eventually(look, seconds, f"the end of turn {turn}"))

    def wait_for(self, turn, status, seconds=30):
        return eventually(lambda: self.turn(turn)["status"] == status or None, seconds,
                          f"turn {turn} {status}")

    def run(self, session, line, seconds=60):
        return self.wait(self.start(session, line), seconds)

    def cancel(self, turn):
        return self.request("POST", f"/v1/turns/{turn}/cancel")

    def end(self, turn, seconds=30):
        """The turn, cancelled. While its end is not committed yet, the API says to ask again."""

        def ask():
            answer = self.cancel(turn)
            if (answer.status, answer.code) == (503, "store_unavailable"):
                assert answer.header("Retry-After"), answer
                return None
            assert (answer.status, answer.json["status"]) == (200, "cancelled"), answer
            return answer.json

        return eventually(ask, seconds, f"the end of turn {turn}", 0.2)

    def cancel_in_time(self, turn):
        """The same at the first try, within the two seconds of docs/architecture.md, or Late."""
        begin = time.monotonic()
        answer = self.cancel(turn)
        took = time.monotonic() - begin
        assert answer.status == 200 or answer.code == "store_unavailable", answer
        ended = self.end(turn)
        in_time(answer.status == 200 and took < 2 * PATIENCE,
                f"a cancel that took {took:.2f} s: {answer}")
        assert answer.json == ended
        return ended

    def events(self, last_id=None):
        return Events(self, last_id)

    def watch(self, session, line, seconds=60):
        """Runs a turn under the eyes of an event stream."""
        with self.events() as events:
            turn = self.start(session, line)
            seen = events.until_end(turn, seconds)
            outcome = self.wait(turn, seconds)
        outcome.events = seen
        return outcome

    def tool(self, session, name, seconds=60, **arguments):
        return self.watch(session, f"@{name} {json.dumps(arguments, ensure_ascii=False)}", seconds)


class Events:
    """An event stream, read and judged in the background: (time, type, envelope)."""

    def __init__(self, client, last_id=None):
        self.seen, self.fault, self.closing = [], None, False
        headers = client.headers(None, {"Last-Event-ID": last_id})
        self.connection = client.connect()
        self.connection.request("GET", "/v1/events", None, headers)
        self.response = self.connection.getresponse()
        raw = b"" if self.response.status == 200 else self.response.read()
        CONTRACT.check("GET", "/v1/events", self.response.status, self.response.getheaders(), raw)
        assert self.response.status == 200, f"GET /v1/events: {self.response.status} {raw!r}"
        self.socket = self.connection.sock or self.response.fp.raw._sock
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        try:
            for block in blocks(self.response):
                self.take(block)
        except (OSError, ValueError, http.client.HTTPException):
            pass
        except Broken as fault:
            self.fault = fault
        self.ended.set()

    def take(self, block):
        kind, event_id, data = block
        value = CONTRACT.check_event(kind, event_id, data)
        before = [e["id"] for _, k, e in self.seen if k != "replay.reset"]
        if kind != "replay.reset" and before and value["id"] <= before[-1]:
            raise Broken(f"event {value['id']} after {before[-1]}")
        self.seen.append((time.monotonic(), kind, value))

    def judge(self):
        if self.fault:
            raise self.fault

    def until(self, condition, seconds, what):
        """What condition() gives once it is true, looked at with every event."""

        def look():
            self.judge()
            return condition()

        return eventually(look, seconds, f"{what}; seen: {[k for _, k, _ in self.seen]}", 0.005)

    def of_turn(self, turn):
        return [e for e in list(self.seen) if e[2].get("turnId") == turn]

    def until_kind(self, turn, kind, seconds=30):
        return self.until(
            lambda: next((e for e in self.of_turn(turn) if e[1] == kind), None), seconds,
            f"{kind} of {turn}")

    def until_end(self, turn, seconds=60):
        ends = tuple(f"turn.{state}" for state in TERMINAL)
        self.until(lambda: any(k in ends for _, k, _ in self.of_turn(turn)), seconds,
                   f"the end of {turn}")
        return self.of_turn(turn)

    def until_output(self, turn, text, seconds=30):
        """Once the command has printed text."""

        def printed():
            return text in "".join(e["data"]["output"] for _, kind, e in self.of_turn(turn)
                                   if kind == "tool.output.updated")

        self.until(printed, seconds, f"{text!r} of {turn}")

    def close(self):
        self.closing = True
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.thread.join(10)
        self.connection.close()
        self.judge()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.close()
        except Broken:
            if kind is None:
                raise


def blocks(lines):
    """(event, id, data) of a stream; comments are passed over, all else is a fault."""
    block = {}
    for line in lines:
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the stream was cut within a line")
        text = line.decode("utf-8").removesuffix("\n")
        if not text:
            if block:
                yield block.get("event"), block.get("id"), block.get("data")
            block = {}
        elif not text.startswith(":"):
            name, _, value = text.partition(": ")
            if name not in ("event", "id", "data") or name in block:
                raise Broken(f"line of an event stream: {text!r}")
            block[name] = value
