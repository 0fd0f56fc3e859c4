"""What is measured, how its samples become one value for each window, and how much more of it
there may be at the end of a run.

Memory is judged by its median, which a burst does not move; what is counted by its minimum:
work comes and goes, and a leak raises what is left between. Latencies are judged against what
the machine itself took at the same time (soak/probe.py), as quotients of the same quantile, for
other work on the machine must not look like a daemon that grows slow. What grows all the same is
compared with a new daemon (soak/pair.py).
"""

import statistics

from figures import quantile
from soak import flat
from soak.flat import Bound, Verdict

KIB, MIB = 1 << 10, 1 << 20
WARM_UP = 6  # the first part of so many is not judged
# Until every database was vacuumed by itself: PostgreSQL comes to each in ten minutes, once it
# knows of it, and then there is room for what the next ten minutes bring.
VACUUM_SECONDS = 20 * 60


class Measure:
    """One of the daemon's; in is what its samples are multiplied by to be in its unit."""

    def __init__(self, name, title, unit, reduce, bound, factor=1):
        self.name, self.title, self.unit = name, title, unit
        self.reduce, self.bound, self.factor = reduce, bound, factor


def memory(name, title, mib, part=0.0):
    return Measure(name, title, "MiB", statistics.median, Bound(mib, part), 1 / KIB)


def number(name, title, most, part=0.0):
    return Measure(name, title, "", min, Bound(most, part))


def disk(name, title, mib):
    return Measure(name, title, "MiB", min, Bound(mib), 1 / MIB)


PROCESSES = {"launcher": "launcher", "server": "server", "keeper": "keeper",
             "courier": "courier", "postmaster": "PostgreSQL, first process",
             "backends": "PostgreSQL, connections", "runner": "runner",
             "slirp4netns": "slirp4netns", "gofer": "gofer", "sentry": "sentry"}
# The sentry's heap rises with what was printed at once, and comes to rest beyond 80 MiB.
PRIVATE_MIB = {"launcher": 0.25, "server": 3, "keeper": 0.25, "courier": 1, "postmaster": 0.5,
               "backends": 12, "runner": 0.25, "slirp4netns": 0.5, "gofer": 3, "sentry": 48}
COUNTED = {"launcher": 2, "server": 3, "keeper": 2, "courier": 3, "postmaster": 2, "runner": 2,
           "slirp4netns": 2, "gofer": 4, "sentry": 8}

MEASURES = [
    *[memory(f"{n}.private", f"private memory: {PROCESSES[n]}", mib)
      for n, mib in PRIVATE_MIB.items()],
    memory("server.pss", "proportional memory: server", 3),
    memory("launcher.pss", "proportional memory: launcher", 0.5),
    memory("sandbox.pss", "proportional memory: a sandbox", 24),
    *[number(f"{n}.descriptors", f"descriptors: {PROCESSES[n]}", most)
      for n, most in COUNTED.items()],
    *[number(f"{n}.threads", f"threads: {PROCESSES[n]}", most)
      for n, most in (("launcher", 1), ("server", 2), ("courier", 1), ("sentry", 6))],
    number("processes", "processes below the launcher, but for the next", 4),
    # gVisor keeps as many as there were address spaces at once.
    number("stubs", "gVisor's processes for address spaces", 12),
    number("zombies", "processes nobody waited for", 1),
    number("namespaces", "namespaces", 3),
    number("mounts", "mounts of the machine", 1),
    number("launcher.mounts", "mounts that the launcher sees", 1),
    number("server.mounts", "mounts that the server sees", 1),
    number("groups", "control groups of tenants", 1),
    disk("disk.tenants", "disk: state of the sandboxes", 1),
    number("files.tenants", "files there", 20),
    disk("disk.log", "disk: log of the database", 256),  # max_wal_size of our clusters
]
DATABASE = [disk("database", "databases", 2), disk("disk.database", "disk: database", 3),
            # Each table has its maps of room and of what is visible once it was vacuumed.
            number("files.database", "files of the database", 50)]

KINDS = {"healthz": "GET /healthz", "get": "GET a session", "list": "GET the newest sessions",
         "event": "event to its stream", "stream": "event stream opened",
         "session": "session made", "delete": "session deleted", "accept": "turn accepted",
         "turn": "turn without a call", "command": "turn with a command",
         "first": "first command of a stopped sandbox"}
CONTROLS = {"echo": "a byte to a process and back", "flush": "8 KiB flushed to the disk",
            "spawn": "a process made and ended"}
CONTROL_OF = {"session": "flush", "delete": "flush", "accept": "flush", "turn": "flush",
              "command": "spawn", "first": "spawn"}
GROWTH = {0.5: 0.25, 0.95: 0.75}  # of a quantile, as a part of it


class Row:
    def __init__(self, title, unit, verdict):
        self.title, self.unit, self.verdict = title, unit, verdict

    def document(self):
        return {"what": self.title, "unit": self.unit, **self.verdict.document()}


def span(begin, end):
    """What of a run is judged, and in how many windows."""
    first = begin + (end - begin) / WARM_UP
    return first, end, 25 if end - first > 600 else 10


def judge_all(samples, begin, end):
    """Rows of what the daemon holds; samples is {name: [(when, value)]}."""
    first, end, count = span(begin, end)
    found = [row_of(m, samples, first, end, count) for m in MEASURES]
    vacuumed = begin + VACUUM_SECONDS
    if end - vacuumed > VACUUM_SECONDS / 3:
        found += [row_of(m, samples, vacuumed, end, count) for m in DATABASE]
    return found


def row_of(measure, samples, first, end, count):
    scaled = [(t, v * measure.factor) for t, v in samples.get(measure.name, [])]
    return Row(measure.title, measure.unit,
               flat.judge(scaled, first, end, count, measure.reduce, measure.bound))


def quotients(samples, controls, first, end, count, part):
    """[(when, quotient)] of that quantile in each window that has both."""
    ours, theirs = ([*flat.windows(s, first, end, count, lambda v: quantile(v, part))]
                    for s in (samples, controls))
    of = dict(theirs)
    return [(t, v / of[t]) for t, v in ours if t in of]


def judge_latencies(timings, begin, end):
    """Rows of latencies; timings is {kind: [(when, ms)]}, controls among them."""
    first, end, count = span(begin, end)
    found = []
    for kind in KINDS:
        control = CONTROL_OF.get(kind, "echo")
        for part, growth in GROWTH.items():
            points = quotients(timings.get(kind, []), timings.get(control, []), first, end, count, part)
            found.append(Row(f"{KINDS[kind]}, {quantile_name(part)}", f"× {control}",
                             Verdict(points, first, end, Bound(0, growth))))
    return found


def quantile_name(part):
    return "median" if part == 0.5 else f"p{part * 100:.0f}"


def latency_table(timings, begin, end):
    """[title, count, p50, p95, p99 in ms] of each kind and control, of all that is judged."""
    first, end, _ = span(begin, end)
    rows = []
    for kind, title in {**KINDS, **CONTROLS}.items():
        values = [ms for t, ms in timings.get(kind, []) if first <= t < end]
        if values:
            rows.append([title, len(values), *(quantile(values, p) for p in (0.5, 0.95, 0.99))])
    return rows
