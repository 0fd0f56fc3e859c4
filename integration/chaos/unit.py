"""The daemon, kept running as a service manager would: what ends is started again."""

import contextlib
import os
import signal
import subprocess
import threading
import time

from daemon import AS_SERVICE, ENVIRONMENT, Daemon, give
from world import PATIENCE, Process, descendants, eventually, output_of

PORT = 4096
END_SECONDS = 20  # what a daemon that ended may take to leave nobody behind
READY_SECONDS = 30  # from the end of a fault, or the start of a daemon, until it is ready
ANSWER_SECONDS = 3  # of those
STATE_MIB = 560
# Small enough that a full disk is near, and that limits are met; streams and database grow.
OPTIONS = ["--disk-start-mb=170", "--disk-end-mb=95", "--disk-reserve-mb=64",
           "--drain-seconds=5", "--request-seconds=10"]


class Unit(Daemon):
    """Its state is a small file system of its own; its port stays the same over restarts."""

    always = OPTIONS

    def __init__(self, world, tenants, wrong, options=()):
        super().__init__(world, tenants, [*self.always, *options], first=True)
        self.make_state()
        self.wrong = wrong
        self.starts, self.may_end, self.closing = 0, False, False
        self.up = threading.Event()
        self.helpers = set()  # pids of what the harness itself runs
        self.cgroup = None  # of this run, where there is one
        self.guard = None

    def make_state(self):
        output_of("mount", "-t", "tmpfs", "-o", f"size={STATE_MIB}m", "tmpfs", self.state)
        give(self.state, 0o700)

    def open(self, *words):
        self.words = words
        self.start(*words, port=PORT)
        self.starts = 1
        self.up.set()
        self.guard = threading.Thread(target=self.keep, daemon=True)
        self.guard.start()

    def keep(self):
        while True:
            code = self.process.wait()
            if self.closing:
                return
            self.up.clear()
            if not self.may_end:
                self.wrong(f"the daemon ended by itself with {code}:\n{self.tail()}")
            self.clear_up()
            if self.closing:
                return
            try:
                self.start(*self.words, port=PORT)
            except AssertionError as problem:
                self.wrong(f"it does not start again: {problem}"[-3000:])
                time.sleep(1)
                continue
            self.starts += 1
            self.up.set()

    def clear_up(self):
        """What the daemon left behind has to end by itself; a service manager kills the rest."""
        deadline = time.monotonic() + END_SECONDS * PATIENCE
        while left := self.orphans():
            if time.monotonic() > deadline:
                self.wrong(f"left behind {END_SECONDS} s after the daemon's end: {left}")
                for process in left:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
            time.sleep(0.02)

    def orphans(self):
        """What lives below this process and is neither the daemon's nor the harness's."""
        owned = {self.process.pid} if self.alive() else set()
        return descendants(os.getpid(), owned | set(self.world.listeners) | self.helpers)

    def tail(self, lines=25):
        return "\n".join(self.log().splitlines()[-lines:])

    def run(self, *command, seconds=60):
        """A program of the harness's own, as the service user."""
        child = subprocess.Popen([*AS_SERVICE, *command], stdout=subprocess.PIPE, text=True,
                                 stderr=subprocess.PIPE, env=ENVIRONMENT, cwd="/")
        self.helpers.add(child.pid)
        try:
            out, err = child.communicate(timeout=seconds)
            return child.returncode, out.strip(), err.strip()
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return -1, "", f"{command[0]} took longer than {seconds} s"
        finally:
            self.helpers.discard(child.pid)

    def cloisterd(self, *words):
        return self.run(f"{self.world.programs}/cloisterd", *words, "--state", self.state)

    def ask(self, database, statement):
        """Rows of a statement that the owner runs: [[column, ...], ...]."""
        code, out, err = self.run(
            "psql", "-XqtA", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h", f"{self.state}/pg/run",
            "-U", "cloister_owner", "-d", database, "-c", statement)
        if code:
            raise AssertionError(f"{database}: {statement}: {err}")
        return [line.split("\t") for line in out.splitlines()]

    def database(self, tenant):
        return f"ct_{self.tenants[tenant].id.replace('-', '')}"

    def ready(self):
        """An answer that is long in coming is none."""
        client = self.client()
        with contextlib.suppress(Exception):
            connection = client.connect(ANSWER_SECONDS * PATIENCE)
            with contextlib.closing(connection):
                return client.request("GET", "/readyz", connection=connection).status == 200
        return False

    def wait_back(self, seconds=READY_SECONDS):
        """How long it took from now on until it was ready; an AssertionError when too long."""
        began = time.monotonic()
        eventually(lambda: self.up.is_set() and self.ready(), seconds, "ready again", 0.05)
        return time.monotonic() - began

    # -- its processes; None, or an empty list, where there is none just now

    def named(self, what, tenant=None):
        with contextlib.suppress(AssertionError, ProcessLookupError, IndexError):
            return {
                "launcher": lambda: [self.launcher()],
                "server": lambda: [self.server()],
                "keeper": lambda: self.below(self.server().pid, "cloisterd"),
                "courier": lambda: self.below(self.named("keeper")[0].pid, "cloisterd"),
                "postmaster": lambda: [self.postgres()],
                "backend": lambda: self.backends("[local]"),
                "database worker": lambda: self.backends("checkpointer", "writer", "walwriter"),
                "runner": lambda: [self.runner(tenant)],
                "box": lambda: self.below(self.runner(tenant).pid, "cloister-runner"),
                "runsc": lambda: [p for box in self.named("box", tenant)
                                  for p in self.tree() if p.parent == box.pid],
                "sentry": lambda: [self.sentry(tenant)],
                "gofer": lambda: self.below_runner(
                    tenant, lambda p: p.arguments()[:1] == ["runsc-gofer"]),
                "slirp4netns": lambda: [self.slirp(tenant)],
                "guest": lambda: self.stubs(tenant),
            }[what]()
        return []

    def below(self, parent, name):
        return [p for p in self.tree() if p.parent == parent and p.name == name]

    def backends(self, *kinds):
        return [p for p in self.tree() if p.name == "postgres" and
                any(kind in " ".join(p.arguments()) for kind in kinds)]

    def stubs(self, tenant):
        """The host's side of what runs in the sandbox: gVisor's stub processes."""
        return descendants(self.sentry(tenant).pid)

    def close(self):
        self.closing = True
        if self.alive():
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        subprocess.run(["umount", "--lazy", self.state], check=False)


def alive(process):
    return Process(process.pid, process.name, process.parent).lives()
