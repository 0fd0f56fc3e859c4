"""The stage of the tests: two network namespaces, and who runs on it.

One namespace plays the host; this process and all it starts live in it. The other plays
the internet and answers on a public, a private and the metadata address. The stage is
that of scripts/demo. This process is the subreaper of all it starts, so whatever outlives
its parent is found.
"""

import contextlib
import ctypes
import datetime
import importlib.machinery
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
BUILD = os.environ.get("CLOISTER_BUILD") or f"{ROOT}/build/release"
ADDRESSES = os.environ.get("CLOISTER_SANITIZER") == "addresses"  # and leaks, and undefined
THREADS = os.environ.get("CLOISTER_SANITIZER") == "threads"
SANITIZED = ADDRESSES or THREADS
USER = "cloister"
# How many times longer everything may take, on a machine that is emulated, say.
PATIENCE = float(os.environ.get("CLOISTER_PATIENCE") or 1)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 1 << 18


def load_demo():
    loader = importlib.machinery.SourceFileLoader("cloister_demo", f"{ROOT}/scripts/demo")
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


demo = load_demo()


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout.strip()


def eventually(condition, seconds, what, pause=0.02):
    """The first true value of condition(), which must come within that time."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        # Looked at before: who stood still since then has one more look.
        late = time.monotonic() > deadline
        value = condition()
        if value:
            return value
        assert not late, f"not within {seconds} s: {what}"
        # Who looks again and again takes the processor from what it waits for.
        time.sleep(pause * PATIENCE)


def timestamp(text):
    """Seconds since 1970 of a time as the API and the log write it."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


class Late(AssertionError):
    """What is promised for a certain time was not there by then."""


def in_time(holds, what):
    if not holds:
        raise Late(what)


def punctual(attempt, tries=3):
    """What attempt() gives, once nothing of it was Late.

    A machine may take the processor away from anybody, the client and the daemon, for longer than
    a promise has room for. It does so now and then; what is slow by itself is so each time. All
    else that attempt() finds wrong is a failure at once.
    """
    for left in reversed(range(tries)):
        try:
            return attempt()
        except Late as late:
            if not left:
                raise
            print(f"once more: {late}")
    return None


# --- processes -------------------------------------------------------------------------


class Process:
    def __init__(self, pid, name, parent):
        self.pid, self.name, self.parent = pid, name, parent

    def __repr__(self):
        return f"{self.pid} {self.name} {' '.join(self.arguments())[:100]}"

    def read(self, file):
        try:
            with open(f"/proc/{self.pid}/{file}", "rb") as f:
                return f.read().decode(errors="replace")
        except OSError:
            return ""

    def arguments(self):
        return self.read("cmdline").split("\0")[:-1]

    def status(self, field):
        for line in self.read("status").splitlines():
            if line.startswith(f"{field}:"):
                return line.split(":", 1)[1].strip()
        return None

    def lives(self):
        state = self.status("State")
        return state is not None and state[0] not in "ZX"

    def kill(self, sig=signal.SIGKILL):
        os.kill(self.pid, sig)


def process_table():
    """Every living process by parent."""
    children = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as f:
                name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        state, parent = rest.split()[:2]
        children.setdefault(int(parent), []).append(
            (state, Process(int(entry), name, int(parent))))
    return children


def descendants(root, without=()):
    """The living processes below root, but for the trees of those left out."""
    children = process_table()
    found, queue = [], [root]
    while queue:
        for state, process in children.get(queue.pop(), []):
            if process.pid in without:
                continue
            queue.append(process.pid)
            if state != "Z":
                found.append(process)
    return found


# --- mount namespaces ------------------------------------------------------------------


def private_mounts(change):
    """A preexec_fn: a mount namespace of its own, in which change() was called."""

    def enter():
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
            raise OSError(ctypes.get_errno(), "private mounts")
        change()

    return enter


# --- the stage -------------------------------------------------------------------------


class World(demo.Stage):
    """Owns what the tests start and make, and removes it."""

    def __init__(self):
        super().__init__()
        self.daemons = []  # that were not stopped
        self.stores = []  # (daemon, what it stores) of all
        self.numbers = 0
        self.programs = self.rootfs = self.database = None

    def mount(self):
        """Dozens of databases are made here; none of what is tested depends on the disk."""
        user = pwd.getpwnam(USER)
        output_of("mount", "-t", "tmpfs", "-o",
                  f"size=3g,mode=711,uid={user.pw_uid},gid={user.pw_gid}", "tmpfs", self.directory)

    def open(self):
        self.build()
        self.mount()
        option = ["--test"] if ADDRESSES else []
        self.programs = output_of(f"{ROOT}/scripts/stage", BUILD)
        self.rootfs = output_of(f"{ROOT}/scripts/prepare", "rootfs-path", *option)

    def new_directory(self):
        self.numbers += 1
        return f"{self.directory}/{self.numbers}"

    def make_room(self):
        """Removes what daemons that are gone have stored, but for what new ones begin with."""
        gone = [s for s in self.stores if not s[0].alive()]
        self.stores = [s for s in self.stores if s not in gone]
        for _, directory in gone:
            if not (self.database or "").startswith(f"{directory}/"):
                shutil.rmtree(directory, ignore_errors=True)

    def strays(self):
        """What lives and belongs to no daemon that was not stopped."""
        owned = {d.process.pid for d in self.daemons if d.alive()}
        return descendants(os.getpid(), owned | set(self.listeners))

    def expect_nobody(self, seconds=10):
        deadline = time.monotonic() + seconds * PATIENCE
        while left := self.strays():
            if time.monotonic() > deadline:
                for process in left:  # or every test that follows would fail too
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                raise AssertionError(f"left behind after {seconds} s: {left}")
            time.sleep(0.02)

    def close(self):
        with contextlib.ExitStack() as ends:
            ends.callback(self.remove)
            for daemon in self.daemons:
                ends.callback(daemon.kill)

    def remove(self):
        subprocess.run(["umount", "--lazy", self.directory or "/nowhere"], check=False,
                       stderr=subprocess.DEVNULL)
        self.clean()
