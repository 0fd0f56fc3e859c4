"""What is broken, one thing at a time, and mended again.

A fault is a kind and a variant of it. begin() breaks something, end() mends what does not
mend itself. What may follow from it is said here, too: whether the daemon may end, and for turns
under way meanwhile, of all tenants or of one, which codes they may fail with, and what their
calls' results may say instead of what was to come of them. All else is a finding.

Two faults are not among these, because a round runs on the machine of whoever starts it. A step
of the clock: CLOCK_REALTIME has no namespace, so it is made in a virtual machine
(integration/vm/tests/life/boot1/test_3_clock.py, marked long: "make check-vm-long"). And what the
limits of a cgroup kill: rounds run with the boundary "development", which makes none, and the
boundary "service" is tested in the virtual machine, too (tests/life/boot1/test_6_tenants.py and
test_7_ends.py, tests/walls/boot1/test_3_boundary.py).
"""

import contextlib
import json
import os
import re
import signal
import socket
import time
import uuid

from chaos.clerk import MOODS
from chaos.load import shell
from chaos.unit import alive
from provider.server import Hang
from world import PATIENCE

OF_DAEMON = ("launcher", "server", "keeper", "courier", "postmaster", "backend",
             "database worker")
# "box": the process of the runner's that is the first one of a sandbox's pid namespace; "runsc":
# its child, which has started gofer and sentry.
OF_SANDBOX = ("runner", "box", "runsc", "sentry", "gofer", "slirp4netns", "guest")
# With any of these the daemon is done for; what it has started ends with it.
ENDS_IT = ("launcher", "server", "postmaster", "keeper")

# What results say of calls whose sandbox ended: of the call itself, and of those behind it that
# ask for what an earlier sandbox had kept.
LOST = ("error: lost: ", "[lost: ", "error: not_found: ", "[what it has written is not known: ")
# Of a guest's processes one may end alone; then its command did not go well, and one in the
# background has ended before it is told to stop.
ENDED = ("[exit code ", "[killed by signal ", " does not run in the background")
# When the daemon ends, sandboxes end with it, and some calls have no result that was committed.
CUT_OFF = (*LOST, "error: interrupted: ")
# Sandboxes that write to a disk that is short are ended.
FULL = (*LOST, "error: disk_full: ", "[disk_full: ")
UNANSWERED_SECONDS = 25  # daemon/sandbox/sandboxes.c: PING_AFTER_MS and PONG_MS
# Of the model, after which an attempt of a request is given up; there are five, 7.5 s apart in all.
IDLE_SECONDS = 5
ATTEMPTS_SECONDS = 5 * IDLE_SECONDS + 7.5 * 1.25


class Fault:
    seconds = (0.5, 2.5)  # how long it lasts
    fails = ()  # codes that turns may fail with
    spoils = ()  # what results of calls may say instead of what they ought to
    of = None  # whom alone it touches; None: any tenant
    may_end = False

    def __init__(self, chaos, variant, chance):
        self.unit, self.clerk, self.chance, self.variant = chaos.unit, chaos.clerk, chance, variant
        self.chaos = chaos
        self.tenant = chance.choice(sorted(chaos.ledger.accounts))
        self.hold = chance.uniform(*self.seconds)

    def __str__(self):
        return f"{self.kind}: {self.variant}"

    def victims(self, what):
        """Waits a while for them to be there: a sandbox may be starting."""
        deadline = time.monotonic() + 5
        while not (found := self.unit.named(what, self.tenant)):
            if time.monotonic() > deadline:
                raise AssertionError(f"no {what} of {self.tenant} to break")
            time.sleep(0.05)
        return found

    def excuses(self, tenant):
        """(codes, words of results) that are no wonder in turns of that tenant's meanwhile."""
        return (self.fails, self.spoils) if self.of in (None, tenant) else ((), ())

    def begin(self):
        pass

    def end(self):
        pass

    def unfelt(self):
        """What ought to have come of it and has not, or None; when all is quiet again."""


def send(process, number):
    with contextlib.suppress(ProcessLookupError):
        process.kill(number)


class Kill(Fault):
    kind = "killed"
    variants = (*OF_DAEMON, *OF_SANDBOX, "launcher, server and database at once")
    seconds = (0.1, 0.5)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.may_end = self.variant in ENDS_IT or "at once" in self.variant
        if self.may_end:
            self.spoils = CUT_OFF
        if self.variant in OF_SANDBOX:
            self.of, self.fails, self.spoils = self.tenant, ("sandbox_unavailable",), LOST
        if self.variant == "guest":
            self.spoils = (*LOST, *ENDED)

    def begin(self):
        if "at once" in self.variant:
            found = [*self.unit.named("launcher"), *self.unit.named("server"),
                     *self.unit.named("postmaster")]
            for process in found:  # so that none of them sees another one die
                send(process, signal.SIGSTOP)
        else:
            found = [self.chance.choice(self.victims(self.variant))]
        for process in found:
            send(process, signal.SIGKILL)


class Stop(Fault):
    """It does not answer for a while, and then goes on as if nothing had been."""

    kind = "stopped"
    variants = (*OF_DAEMON, *OF_SANDBOX, "all of the database")
    seconds = (0.5, 4)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.stopped = []
        if self.variant in OF_SANDBOX:
            self.of = self.tenant
        if self.variant in ("sentry", "gofer", "guest"):
            self.spoils = LOST  # it is ended when what a cancelled call runs is not gone in 2 s

    def begin(self):
        if "all" in self.variant:
            self.stopped = self.unit.backends("")
        else:
            self.stopped = [self.chance.choice(self.victims(self.variant))]
        for process in self.stopped:
            send(process, signal.SIGSTOP)

    def end(self):
        for process in self.stopped:
            if alive(process):
                send(process, signal.SIGCONT)


class StopForGood(Stop):
    """For longer than the server waits: a sandbox that does not answer it any more is ended.
    Nothing of it is cancelled meanwhile, for which it would be ended much sooner.

    Of a guest all processes, and one more look for those that were being made. Other processes of
    a sandbox are none of those that frames pass through: it goes on without them."""

    kind = "stopped until it is missed"
    variants = ("sentry", "guest")
    seconds = (UNANSWERED_SECONDS + 4, UNANSWERED_SECONDS + 6)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.fails, self.spoils = ("sandbox_unavailable",), LOST
        self.log_from = 0
        self.cancels = self.chaos.ledger.accounts[self.tenant].cancels

    def begin(self):
        self.cancels.acquire()
        self.log_from = len(self.unit.log())
        for _ in range(2):
            found = self.victims(self.variant)
            self.stopped += found
            for process in found:
                send(process, signal.SIGSTOP)

    def end(self):
        super().end()
        self.cancels.release()

    def unfelt(self):
        of = self.unit.tenants[self.tenant].id
        told = [line for line in self.unit.log()[self.log_from:].splitlines()
                if of in line and "the guest does not answer" in line]
        return None if told else f"the sandbox of {self.tenant} was not missed"


class Database(Fault):
    """Shut down by somebody else: smart, fast, immediate; or told to read its files again."""

    kind = "database told"
    variants = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP")
    seconds = (0.2, 1)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.may_end = self.variant != "SIGHUP"
        self.spoils = CUT_OFF if self.may_end else ()

    def begin(self):
        send(self.victims("postmaster")[0], getattr(signal, self.variant))

    def end(self):
        # A smart shutdown waits for clients; nobody may be shut out for as long as that takes.
        if self.variant == "SIGTERM" and self.unit.up.is_set():
            with contextlib.suppress(AssertionError):
                send(self.victims("postmaster")[0], signal.SIGINT)


class Disk(Fault):
    kind = "disk full"
    variants = ("at once", "slowly")
    seconds = (1, 4)
    fails = ("disk_full", "sandbox_unavailable")
    spoils = FULL

    def begin(self):
        self.path = f"{self.unit.state}/filler"
        self.file = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        step = (64 if self.variant == "at once" else 4) << 20
        at = 0
        while step >= 4096:
            try:
                os.posix_fallocate(self.file, at, step)
                at += step
                if self.variant == "slowly":
                    time.sleep(0.01)
            except OSError:
                step //= 2

    def end(self):
        os.close(self.file)
        os.unlink(self.path)


class TenantFillsDisk(Fault):
    kind = "disk full by a tenant"
    variants = ("in its home",)
    seconds = (3, 4)
    fails = ("disk_full", "sandbox_unavailable")
    spoils = FULL

    def begin(self):
        self.chaos.visit([[shell("cat /dev/zero >/state/home/full; sleep 60")]])

    def end(self):
        self.chaos.visit([[shell("true")]])
        home = f"{self.unit.state}/tenants/{self.unit.tenants[self.chaos.visitor].id}/state/home"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{home}/full")


class Descriptors(Fault):
    """A process may not open any more, or a few only."""

    kind = "no descriptors"
    variants = ("launcher", "server", "courier", "keeper", "runner", "postmaster")
    seconds = (1, 3)
    needed_for = {"launcher": ("sandbox_unavailable",), "courier": ("model_failed",),
                  "server": ("sandbox_unavailable", "model_failed")}

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.limits = None
        self.fails = self.needed_for.get(self.variant, ())
        self.of = self.tenant if self.variant in OF_SANDBOX else None

    def begin(self):
        self.pid = self.victims(self.variant)[0].pid
        used = {int(fd) for fd in os.listdir(f"/proc/{self.pid}/fd")}
        free = next(fd for fd in range(1 << 20) if fd not in used)
        with open(f"/proc/{self.pid}/limits", encoding="ascii") as f:
            self.limits = next(line for line in f if line.startswith("Max open")).split()[3:5]
        self.limit(free + self.chance.choice((0, 0, 1, 2, 3)))

    def limit(self, soft):
        """As the process's own user, who needs no power for it."""
        code, _, err = self.unit.run("prlimit", f"--pid={self.pid}",
                                     f"--nofile={soft}:{self.limits[1]}")
        if code and os.path.exists(f"/proc/{self.pid}"):
            raise AssertionError(f"prlimit of {self.variant}: {err}")

    def end(self):
        if self.limits:
            self.limit(self.limits[0])


class ProviderFails(Fault):
    kind = "provider"
    variants = tuple(MOODS)
    seconds = (1, 4)  # the daemon asks again for 7.5 s

    def begin(self):
        self.clerk.mood = MOODS[self.variant]()

    def end(self):
        self.clerk.mood = None
        self.clerk.cut_off()


class ProviderHangs(ProviderFails):
    """For longer than a request is waited for, and for longer than it is tried again."""

    kind = "provider hangs"
    variants = ("past a time-out", "past the last attempt")
    lasting = {"past a time-out": IDLE_SECONDS + 1, "past the last attempt": ATTEMPTS_SECONDS + 1}

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.hold = self.lasting[self.variant] * PATIENCE
        self.fails = ("model_failed",) if "last" in self.variant else ()

    def begin(self):
        self.clerk.mood = self.hang = Hang()
        self.log_from = len(self.unit.log())

    def unfelt(self):
        if "last" not in self.variant:
            told = "model clerk: attempt 1" in self.unit.log()[self.log_from:]
            return None if told else "no request was given up"
        codes = [t.code for a in self.chaos.ledger.accounts.values() for t in a.turns.values()
                 if t.result and t.ended > self.chaos.round_began]
        return None if "model_failed" in codes else "no turn failed for it"


class Hangups(Fault):
    """SIGHUP, again and again, while the registry is written, right and wrong."""

    kind = "SIGHUP"
    variants = ("to the launcher", "to launcher, server and courier", "with a broken registry")

    def begin(self):
        names = ("launcher", "server", "keeper", "courier") if "server" in self.variant else \
            ("launcher",)
        found = [p for name in names for p in self.unit.named(name)]
        if "broken" not in self.variant:
            self.storm(found, lambda number: None)
            return
        with self.chaos.registry_lock:
            good = self.chaos.registry()
            half = good[:len(good) // 2]
            self.storm(found, lambda number: self.chaos.write_registry(half if number % 2 else good))
            self.chaos.write_registry(good)

    @staticmethod
    def storm(processes, before):
        for number in range(200):
            before(number)
            for process in processes:
                send(process, signal.SIGHUP)
            time.sleep(0.005)


class Flood(Fault):
    """More of everything than it takes."""

    kind = "flood"
    variants = ("connections", "requests without a token", "turns of one tenant", "rubbish")
    seconds = (1, 2)

    def begin(self):
        self.sockets = []
        {"connections": lambda: self.dial(1500, b""),
         "requests without a token": lambda: self.dial(600, b"GET /v1/sessions HTTP/1.1\r\n"
                                                       b"Host: x\r\n\r\n"),
         "rubbish": lambda: self.dial(600, os.urandom(64)),
         "turns of one tenant": self.turns}[self.variant]()

    def dial(self, number, data):
        for _ in range(number):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", self.unit.port))
            self.sockets.append((sock, data))
        time.sleep(0.2)
        for sock, data in self.sockets:
            with contextlib.suppress(OSError):
                sock.send(data)

    def turns(self):
        client = self.unit.client(self.chaos.visitor)
        plan = json.dumps({"mark": uuid.uuid4().hex, "calls": [[shell("sleep 0.2")]]})
        self.started = []
        for _ in range(100):
            turn = client.request("POST", f"/v1/sessions/{client.session()}/turns",
                                  {"input": f"PLAN {plan}"})
            if turn.status == 202:
                self.started.append(turn.json["id"])
            elif turn.code != "tenant_turn_queue_full":
                self.chaos.ledger.wrong(f"a flood of turns met {turn}")

    def end(self):
        for sock, _ in self.sockets:
            sock.close()
        if "turns" in self.variant:
            client = self.unit.client(self.chaos.visitor)
            for turn in self.started:
                client.cancel(turn)


class SlowClients(Fault):
    """Those that send and read so slowly that all places are taken."""

    kind = "slow clients"
    variants = ("heads", "bodies", "streams that are not read", "answers that are not read")
    seconds = (2, 4)

    def begin(self):
        token = self.unit.tenants[self.chaos.visitor].token
        head = f"Host: x\r\nAuthorization: Bearer {token}\r\n"
        text = {
            "heads": f"GET /v1/sessions HTTP/1.1\r\n{head}",
            "bodies": f"POST /v1/sessions HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
                      "Content-Length: 1000\r\n\r\n{",
            "streams that are not read": f"GET /v1/events HTTP/1.1\r\n{head}\r\n",
            "answers that are not read": f"GET /openapi.json HTTP/1.1\r\n{head}\r\n" * 20,
        }[self.variant].encode()
        self.sockets = []
        for _ in range(150):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.settimeout(1)
            with contextlib.suppress(OSError):
                sock.connect(("127.0.0.1", self.unit.port))
                sock.send(text)
            self.sockets.append(sock)

    def end(self):
        for sock in self.sockets:
            sock.close()


class Restart(Fault):
    """In order: as "systemctl restart" does it, and twice as fast."""

    kind = "restart"
    variants = ("in order", "hastened")
    spoils = CUT_OFF
    may_end = True

    def begin(self):
        send(self.victims("launcher")[0], signal.SIGTERM)

    def end(self):
        if self.variant == "hastened" and self.unit.up.is_set():
            with contextlib.suppress(AssertionError):
                send(self.victims("launcher")[0], signal.SIGTERM)


class Tenant(Fault):
    """A tenant breaks its own sandbox from within."""

    kind = "a tenant's"
    variants = ("kill -9 of everything", "fork bomb")

    def begin(self):
        self.chaos.visit([[shell({
            "kill -9 of everything": "kill -9 1; kill -9 -1",
            "fork bomb": "bomb() { bomb | bomb & }; bomb; sleep 1"}[self.variant])]])


KINDS = (Kill, Stop, StopForGood, Database, Disk, TenantFillsDisk, Descriptors, ProviderFails,
         ProviderHangs, Hangups, Flood, SlowClients, Restart, Tenant)
EVERYTHING = tuple((kind, variant) for kind in KINDS for variant in kind.variants)
# Half a minute each: once in a hundred rounds is enough.
RARE = (*((StopForGood, variant) for variant in StopForGood.variants),
        (ProviderHangs, "past the last attempt"))
# What a few rounds are of, the most telling ones first.
FIRST = (
    (Kill, "server"), (Kill, "launcher"), (Kill, "sentry"), (Kill, "runner"), (Stop, "server"),
    (Kill, "guest"), (Database, "SIGINT"), (Disk, "at once"), (Descriptors, "server"),
    (ProviderHangs, "past a time-out"), (Hangups, "to launcher, server and courier"),
    (Flood, "connections"), (SlowClients, "streams that are not read"), (Kill, "courier"),
    (Restart, "in order"), (Tenant, "kill -9 of everything"))


def draw(chance, rounds, pattern=""):
    """So many (kind, variant), of those whose name matches: first those of FIRST, then all there
    are, then all but the rare ones again and again, each time in any order."""
    def matching(of):
        return [(kind, variant) for kind, variant in of
                if re.search(pattern, f"{kind.kind}: {variant}")]

    every = matching(EVERYTHING)
    often = [p for p in every if p not in RARE] or every
    first = matching(FIRST)[:rounds]
    order = chance.sample(first, len(first)) + chance.sample(every, len(every))
    while every and len(order) < rounds:
        order += chance.sample(often, len(often))
    return order[:rounds]
