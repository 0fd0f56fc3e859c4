"""Event streams that come back, and what may be concluded from what they have told."""

import contextlib
import http.client
import socket
import threading
import time

from client import TERMINAL, blocks
from contract import CONTRACT, Broken


class Watcher:
    """One stream of a tenant, opened again whenever it ends, with the last id that it has seen.

    What it knows: which events it was told since when without a gap."""

    def __init__(self, unit, ledger, account, others, restless=None):
        self.unit, self.ledger, self.account, self.others = unit, ledger, account, others
        self.restless = restless  # chooses after how many events it leaves by itself
        self.last, self.whole_since = None, None
        self.ends = {}  # turn: the type of its terminal event
        self.finished = set()  # (turn, call) of each tool.finished
        self.gap = True  # what comes next need not be the next one
        self.closing, self.connected, self.response = False, False, None
        self.connections, self.events = 0, 0
        self.heard = time.monotonic()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def wrong(self, what):
        self.ledger.wrong(f"stream of {self.account.tenant}: {what}")

    def run(self):
        while not self.closing:
            try:
                self.read()
            except (OSError, ValueError, http.client.HTTPException, AttributeError):
                pass
            except Broken as fault:
                self.wrong(str(fault))
            self.connected = False
            time.sleep(0.05)

    def read(self):
        client = self.unit.client(self.account.tenant)
        connection = client.connect(30)
        try:
            connection.request("GET", "/v1/events", None,
                               client.headers(None, {"Last-Event-ID": self.last}))
            self.response = response = connection.getresponse()
            if response.status != 200:
                raw = response.read()
                CONTRACT.check("GET", "/v1/events", response.status, response.getheaders(), raw)
                self.ledger.refused(f"stream: {response.status}")
                return
            self.connections += 1
            if self.last is None:
                self.whole_since = time.monotonic()
            self.connected = True
            leave = self.restless() if self.restless else None
            for block in blocks(self.lines(response)):
                self.take(*block)
                leave = leave and leave - 1
                if self.closing or leave == 0:
                    return
        finally:
            self.connected = False
            connection.close()

    def lines(self, response):
        for line in response:
            self.heard = time.monotonic()
            yield line

    def take(self, kind, event_id, data):
        value = CONTRACT.check_event(kind, event_id, data)
        self.events += 1
        for other in self.others:
            if other.canary in data or value.get("sessionId") in other.sessions:
                self.wrong(f"told what is of {other.tenant}: {data[:300]}")
        if kind == "replay.reset":
            self.whole_since, self.gap = time.monotonic(), True
            return
        self.judge_place(value["id"])
        self.last, self.gap = event_id, False
        turn = value.get("turnId")
        if turn in self.ends:
            self.wrong(f"{kind} of {turn} behind its {self.ends[turn]}")
        if kind in [f"turn.{state}" for state in TERMINAL]:
            self.ends[turn] = kind
        if kind == "tool.finished":
            self.note(turn, value["data"]["callId"], value["data"]["output"])

    def judge_place(self, number):
        """A tenant's events are counted without holes; where one is missing, a reset says so."""
        if self.last is None or number == int(self.last) + 1 or \
                (self.gap and number > int(self.last)):
            return
        self.wrong(f"event {number} after {self.last}, and no replay.reset between them")

    def note(self, turn, call, output):
        self.finished.add((turn, call))
        if self.account.told.setdefault((turn, call), output) != output:
            self.wrong(f"one stream told of {output!r} as the result of {call}, another of "
                       f"{self.account.told[turn, call]!r}")

    def lacks(self, turns):
        """Of these turns, which have ended, what it ought to have told and has not."""
        since = self.whole_since or float("inf")
        whole = [t for t in turns if t.asked > since]
        return [f"the end of {t}" for t in whole if t.id not in self.ends] + \
            [f"the result of {call} of {t}" for t in whole for call in t.answers
             if call and (t.id, call) not in self.finished]

    def forget(self):
        """What it was told so far, for those who ask for nothing of it any more."""
        self.ends.clear()
        self.finished.clear()
        self.account.told.clear()

    def close(self):
        self.closing = True
        with contextlib.suppress(Exception):
            self.response.fp.raw._sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)
