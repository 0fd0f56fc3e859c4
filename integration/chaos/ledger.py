"""What was accepted, what was seen, and what is wrong.

Clients write down here what the daemon answered for; the checker holds the store, the
workspaces and the streams against it.
"""

import threading
import time


class Wrong(Exception):
    """Something that may never be, whatever was broken meanwhile."""


class Turn:
    """One accepted turn, and what it came to."""

    def __init__(self, turn, session, kind, plan, asked):
        self.id, self.session, self.kind, self.plan = turn, session, kind, plan
        self.asked = asked  # when it was first sent; it was accepted some time later
        self.status = self.code = self.result = self.ended = None  # once it has ended
        self.answers = {}  # call id: what the history has as its result

    def says(self):
        """Of each call in turn: what its result has in it when nothing was broken, or ""."""
        return [call.get("says", "") for batch in self.plan["calls"] for call in batch]

    def __repr__(self):
        return f"turn {self.id} ({self.kind}, {self.status} {self.code or ''})"


class Account:
    """Of one tenant."""

    def __init__(self, tenant):
        self.tenant = tenant
        self.canary = f"canary-{tenant}-{time.time_ns():x}"
        self.sessions, self.deleted = set(), set()
        self.turns = {}
        self.gone = []  # turns whose session was deleted before anybody had judged them
        self.done = set()  # commands of judged ones among those, each of which ran once
        self.told = {}  # (turn, call): the output that a tool.finished told of
        self.cancels = threading.Lock()  # whoever holds it has the others cancel nothing
        self.written_off = set()  # turns that were found wrong, and need no more telling


class Ledger:
    def __init__(self, tenants):
        self.lock = threading.Lock()
        self.accounts = {name: Account(name) for name in tenants}
        self.wrongs, self.accepted = [], 0
        self.interruptions = []  # (begin, end) of what may have a model asked again
        self.refusals = {}  # {what clients were told instead: how often}

    def wrong(self, what):
        with self.lock:
            self.wrongs.append(what)

    def broke(self, began, ended):
        """How often something was broken meanwhile."""
        return sum(1 for begin, end in self.interruptions if begin < ended and began < end)

    def take_wrongs(self):
        with self.lock:
            found, self.wrongs = self.wrongs, []
        return found

    def refused(self, what):
        with self.lock:
            self.refusals[what] = self.refusals.get(what, 0) + 1

    def accept(self, tenant, turn):
        with self.lock:
            if turn.id in self.accounts[tenant].turns:
                self.wrongs.append(f"{turn} was accepted twice")
            self.accounts[tenant].turns[turn.id] = turn
            self.accepted += 1
