"""Times what a client waits for, from a process of its own, beside work that asks nobody.

  probe.py DIRECTORY     a place on the disk on which the state lies

It says the URL of its provider of models, reads {"port", "token", "model"}, and then prints
{"at", "kind", "ms"} of everything that it has timed, until its input ends. Controls are what
the machine itself takes at that moment: a byte to another process and back (echo), a flush of
8 KiB to the disk (flush), a process that is made and ends (spawn).
"""

import contextlib
import http.client
import json
import os
import select
import socket
import subprocess
import sys
import time

from chaos.clerk import Clerk
from chaos.load import shell
from soak.load import seconds

PAUSE = 0.25
TURNS_OF_A_SESSION = 4  # so few that a window has enough sessions for a 95th of a hundred
EVERY = 4  # rounds between two turns


class Echo:
    """Another process, which gives back what it is sent."""

    def __init__(self):
        self.here, there = socket.socketpair()
        if os.fork() == 0:
            self.here.close()
            while data := there.recv(1):
                there.send(data)
            os._exit(0)
        there.close()

    def turn(self):
        self.here.send(b"x")
        self.here.recv(1)


class Stream:
    """An event stream, read when somebody waits for something of it."""

    def __init__(self, probe, last=None):
        self.last = last
        self.connection = http.client.HTTPConnection("127.0.0.1", probe.port, timeout=120)
        headers = {**probe.headers, **({"Last-Event-ID": last} if last else {})}
        self.connection.request("GET", "/v1/events", None, headers)
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.status
        self.response.readline()

    def until_end(self, turn):
        """Milliseconds from the end of the turn, as its event has it, to the event's arrival."""
        while True:
            name, _, value = self.response.readline().decode().rstrip("\n").partition(": ")
            if name == "id":
                self.last = value
            if name != "data":
                continue
            event = json.loads(value)
            if event.get("turnId") == turn and event["type"] in \
                    ("turn.completed", "turn.failed", "turn.cancelled"):
                assert event["type"] == "turn.completed", value
                now = time.time()
                return (now - seconds(event["at"])) * 1000

    def close(self):
        self.connection.close()
        self.response.close()


class Caller:
    """A client of one tenant that times what it asks; tell(kind, ms) is whose it is."""

    def __init__(self, port, token, model):
        self.port, self.model = port, model
        self.headers = {"Authorization": f"Bearer {token}"}
        self.connection = self.session = self.stream = None

    @contextlib.contextmanager
    def timed(self, kind):
        begin = time.monotonic()
        yield
        self.tell(kind, (time.monotonic() - begin) * 1000)

    def ask(self, method, path, body=None, status=200):
        if not self.connection:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = self.headers if body is None else \
            {**self.headers, "Content-Type": "application/json"}
        self.connection.request(method, path, body and json.dumps(body), headers)
        answer = self.connection.getresponse()
        raw = answer.read()
        assert answer.status == status, f"{method} {path}: {answer.status} {raw[:300]!r}"
        return json.loads(raw) if raw else None

    def begin(self):
        with self.timed("session"):
            self.session = self.ask("POST", "/v1/sessions", {"model": self.model}, 201)["id"]
        last = self.stream and self.stream.last
        if self.stream:
            self.stream.close()
        with self.timed("stream"):
            self.stream = Stream(self, last)

    def delete(self):
        with self.timed("delete"):
            self.ask("DELETE", f"/v1/sessions/{self.session}", None, 204)
        self.session = None

    def reads(self):
        for kind, path in (("healthz", "/healthz"), ("get", f"/v1/sessions/{self.session}"),
                           ("list", "/v1/sessions?limit=10")):
            with self.timed(kind):
                self.ask("GET", path)

    def turn(self, kind, plan):
        begin = time.monotonic()
        with self.timed("accept"):
            turn = self.ask("POST", f"/v1/sessions/{self.session}/turns",
                            {"input": f"PLAN {json.dumps(plan)}"}, 202)["id"]
        event = self.stream.until_end(turn)
        self.tell(kind, (time.monotonic() - begin) * 1000)
        self.tell("event", event)

    def close(self):
        for held in (self.connection, self.stream):
            if held:
                held.close()
        self.connection = self.session = self.stream = None


class Probe(Caller):
    """Asks in rounds, beside what the machine itself takes."""

    def __init__(self, directory, echo, clerk, chosen):
        super().__init__(chosen["port"], chosen["token"], chosen["model"])
        self.echo, self.clerk = echo, clerk
        self.file = os.open(f"{directory}/flush", os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        self.rounds = self.written = 0

    @staticmethod
    def tell(kind, ms):
        print(json.dumps({"at": time.monotonic(), "kind": kind, "ms": ms}), flush=True)

    # -- controls

    def flush(self):
        os.pwrite(self.file, b"x" * 8192, self.written % 64 * 8192)
        self.written += 1
        os.fdatasync(self.file)

    @staticmethod
    def spawn():
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)

    def controls(self):
        for kind, work in (("echo", self.echo.turn), ("flush", self.flush),
                           ("spawn", self.spawn)):
            with self.timed(kind):
                work()

    def round(self):
        if not self.session:
            self.begin()
        self.controls()
        self.reads()
        if self.rounds % EVERY == 0:
            for kind, calls in (("turn", []), ("command", [[shell("true")]])):
                self.turn(kind, {"mark": f"{self.rounds}", "calls": calls})
        self.rounds += 1
        if self.rounds % (TURNS_OF_A_SESSION // 2 * EVERY) == 0:
            self.delete()
            self.clerk.asked.clear()

    def run(self):
        while not select.select([sys.stdin], [], [], PAUSE)[0]:
            try:
                self.round()
            except (AssertionError, OSError, ValueError, http.client.HTTPException) as problem:
                print(json.dumps({"wrong": f"{type(problem).__name__}: {problem}"}), flush=True)
                self.close()
                time.sleep(1)
        if self.session:
            self.delete()


class Teller:
    """The other end: starts a probe, and gives what it says to note(kind, when, ms)."""

    def __init__(self, unit, note):
        self.unit, self.note = unit, note
        # A session of its own: the scheduler then gives it what it gives the daemon.
        self.process = subprocess.Popen(
            [sys.executable, "-B", "-m", "soak.probe", unit.var], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, start_new_session=True)
        unit.helpers.add(self.process.pid)
        self.url = json.loads(self.process.stdout.readline())["url"]

    def begin(self, **chosen):
        self.process.stdin.write(json.dumps(chosen) + "\n")
        self.process.stdin.flush()

    def read(self):
        for line in self.process.stdout:
            said = json.loads(line)
            if "wrong" in said:
                self.unit.wrong(f"probe: {said['wrong']}")
            else:
                self.note(said["kind"], said["at"], said["ms"])

    def end(self):
        self.process.stdin.close()
        if self.process.wait(120):
            self.unit.wrong(f"the probe ended with {self.process.returncode}")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def main():
    echo, clerk = Echo(), Clerk(None)
    print(json.dumps({"url": clerk.url}), flush=True)
    Probe(sys.argv[1], echo, clerk, json.loads(sys.stdin.readline())).run()
    os._exit(0)  # threads of the provider wait for ever


if __name__ == "__main__":
    main()
