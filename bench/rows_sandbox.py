"""Sandboxes: how fast they are there, what a command costs, what they weigh, what they carry."""

import contextlib
import json
import os
import subprocess
import time

from figures import Goal, Row, Series
from peers import Inside, Runsc
from place import PROGRAMS, answer_of, finish, memory, settled, tool
from rows import measure
from sandbox import Sandbox
from world import descendants, eventually

MIB = 1 << 20


@contextlib.contextmanager
def turns(daemon, tenant, line, sessions=1, rounds=1):
    """A load generator; its first answer is of that many rounds, for more write a number."""
    client = daemon.client(tenant)
    ids = [client.session(model="demo") for _ in range(sessions)]
    process = tool("turns", daemon.port, daemon.tenants[tenant].token, line, rounds)
    process.stdin.write("\n".join(ids) + "\n\n")
    process.stdin.flush()
    yield process
    finish(process, "turns")


def more(process, rounds):
    """Its figures of so many rounds more, in milliseconds."""
    process.stdin.write(f"{rounds}\n")
    process.stdin.flush()
    return milliseconds(answer_of(process))


def milliseconds(answer):
    return {name: [us / 1000 for us in values] for name, values in answer.items()}


@measure("first-exec")
def first_exec(place, scale):
    """The first command of a stopped tenant, from request to end, against bare runsc run"""
    ours, theirs = [], []
    bare = Runsc(place)
    bare.run()
    with place.cloister(sandbox_idle_seconds=1) as daemon:
        with turns(daemon, "acme", "$ true") as process:
            milliseconds(answer_of(process))
            for _ in range(scale(15, 3)):
                eventually(lambda: not daemon.running("acme"), 30, "the sandbox stops")
                ours += more(process, 1)["turn"]
                theirs.append(bare.run() * 1000)
    return [Row("first command of a stopped tenant: `true`", Series("turn", "ms", ours),
                Series("`runsc run`, as root, no network", "ms", theirs), Goal(1.5))]


@measure("warm-exec")
def warm_exec(place, scale):
    """A command in a running sandbox, as a turn, against runsc exec in the same one"""
    whole, tool_only, theirs = [], [], []
    with place.cloister() as daemon:
        with turns(daemon, "acme", "$ true") as process:
            answer_of(process)
            inside = Inside(daemon, "acme")
            inside.run("/bin/true")
            for _ in range(scale(10, 2)):
                for _ in range(5):
                    theirs.append(inside.run("/bin/true")["seconds"] * 1000)
                found = more(process, 5)
                whole += found["turn"]
                tool_only += found["tool"]
            inside.close()
    peer = Series("`runsc exec`", "ms", theirs)
    return [Row("warm `true`: a whole turn", Series("turn", "ms", whole), peer, Goal(0.25)),
            Row("warm `true`: from tool.started to tool.finished",
                Series("call", "ms", tool_only), peer, Goal(0.25))]


# -- many ---------------------------------------------------------------------------------


def boxes(daemon):
    """The processes of every sandbox: its runner and what is below."""
    runners = [p for p in daemon.tree() if p.name == "cloister-runner" and
               p.parent == daemon.main_pid()]
    return [[r, *descendants(r.pid)] for r in runners]


def weigh(found):
    """KiB of them: their proportional set sizes."""
    return sum(memory(p.pid) for box in found for p in box)


def processor_time(found):
    """Milliseconds that they have used."""
    total = 0
    for process in (p for box in found for p in box):
        rest = process.read("stat").rpartition(")")[2].split()
        total += sum(map(int, rest[11:13])) if rest else 0
    return total * 1000 / os.sysconf("SC_CLK_TCK")


def idle_share(found, seconds):
    """What each of them uses of a processor while nobody asks anything of it, in percent."""
    before, begin = processor_time(found), time.monotonic()
    time.sleep(seconds)
    took = (time.monotonic() - begin) * 1000
    return (processor_time(found) - before) / took / len(found) * 100


@measure("density")
def density(place, scale):
    """Sandboxes in a GiB, and what each of them costs while nobody asks anything of it"""
    count = scale(50, 6)
    with place.cloister(tenants(count), max_active_sandboxes=4096, max_running_turns=2,
                        max_queued_turns=1024, sandbox_idle_seconds=3600) as daemon:
        start_all(daemon)
        found = boxes(daemon)
        assert len(found) == count, f"{len(found)} sandboxes run"
        kib, share = settled(lambda: weigh(found), 3), idle_share(found, scale(10, 1))
    each = kib / count / 1024
    return [Row(f"{count} idle sandboxes, proportional memory each",
                Series("all processes of its runner", "MiB", [each]),
                note=f"{1024 / each:.0f} in a GiB"),
            Row(f"{count} idle sandboxes, of a processor each",
                Series("all processes of its runner", "%", [share]))]


@measure("starts")
def starts(place, scale):
    """Tenants that each start a sandbox and run one command; what is idle for 2 s ends"""
    count = scale(200, 12)
    with place.cloister(tenants(count), max_active_sandboxes=4096, max_running_turns=2,
                        max_queued_turns=1024, sandbox_idle_seconds=2) as daemon:
        took = start_all(daemon)
    return [Row(f"{count} tenants start and run one command, 2 at a time",
                Series("all of them", "s", [took]), note=f"{took / count * 1000:.0f} ms a tenant")]


def tenants(count):
    return [f"t{i}" for i in range(count)]


def start_all(daemon):
    """Seconds until each tenant has run its first command."""
    clients = [daemon.client(name) for name in daemon.tenants]
    sessions = [c.session(model="demo") for c in clients]
    begin = time.monotonic()
    turns_begun = [(c, c.start(s, "$ true")) for c, s in zip(clients, sessions)]
    for client, turn in turns_begun:
        outcome = client.wait(turn, 300)
        assert outcome.status == "completed", outcome.turn
    return time.monotonic() - begin


# -- bytes --------------------------------------------------------------------------------


def fill(path, size):
    """A file of text, so that nothing on the way has to repair it."""
    line = b"0123456789abcdef" * 4095 + b"0123456789abcde\n"
    with open(path, "wb") as f:
        for _ in range(size // len(line)):
            f.write(line)
    os.chmod(path, 0o644)
    return size // len(line) * len(line)


@measure("output")
def output(place, scale):
    """What a command prints, taken by a turn and told to an event stream, against runsc exec"""
    ours, theirs = [], []
    with place.cloister() as daemon:
        size = fill(f"{daemon.tenants['acme'].workspace}/big", scale(256, 16) * MIB)
        with turns(daemon, "acme", "$ cat big") as process:
            answer_of(process)
            inside = Inside(daemon, "acme")
            for _ in range(scale(5, 2)):
                found = inside.run("/bin/cat /workspace/big")
                assert found["bytes"] == size, found
                theirs.append(size / MIB / found["seconds"])
                ours += [size / MIB / ms * 1000 for ms in more(process, 1)["tool"]]
            inside.close()
    return [Row(f"output of a command, {size // MIB} MiB", Series("turn", "MiB/s", ours),
                Series("`runsc exec cat`", "MiB/s", theirs),
                note="every byte goes to the daemon; of what is told, 16,383 characters ten times "
                     "a second at most")]


@measure("file")
def file(place, scale):
    """A file of 1 GiB through the guest's read, against cat through runsc exec"""
    ours, theirs = [], []
    directory = place.new_directory()
    box = Sandbox(place.programs, place.rootfs, directory)
    size = fill(f"{directory}/workspace/big", scale(1024, 32) * MIB)
    box.start()
    inside = Inside(Alone(box), "")
    try:
        for call in range(1, scale(5, 2) + 1):
            found = inside.run("/bin/cat /workspace/big")
            assert found["bytes"] == size, found
            theirs.append(size / MIB / found["seconds"])
            ours.append(size / MIB / read_file(box, call, size))
    finally:
        inside.close()
        box.stop()
        subprocess.run(["rm", "-rf", directory], check=False)
    return [Row(f"a file of {size // MIB} MiB out of the sandbox",
                Series("`read` of the guest", "MiB/s", ours),
                Series("`runsc exec cat`", "MiB/s", theirs))]


class Alone:
    """As much of a daemon as Inside wants: where the processes of a sandbox are."""

    def __init__(self, box):
        self.box = box

    def below_runner(self, _tenant, matches):
        return [p for p in descendants(self.box.process.pid) if matches(p)]

    tree = below_runner


def read_file(box, call, size):
    """Seconds that it took."""
    done = subprocess.run([f"{PROGRAMS}/drain", str(box.out), str(box.to), str(call),
                           '{"op":"read","path":"/workspace/big"}'], check=True,
                          capture_output=True, text=True, pass_fds=(box.out, box.to))
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["bytes"] == size, done.stdout
    return figures["us"] / 1e6
