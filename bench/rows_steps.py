"""Where the time of a command goes, step by step: what the daemon tells and logs about it."""

import datetime
import re

from figures import Row, Series
from rows import measure
from world import eventually

# A step ends with the first event of that type behind the one before.
STEPS = [("turn.queued", "request stored (a commit)"),
         ("turn.started", "given to a thread, marked as running (a commit)"),
         ("agent.turn.finished", "the demo model's answer stored (a commit)"),
         ("tool.started", "the call marked as started (a commit)"),
         ("tool.finished", "the call itself, its result stored (a commit)"),
         ("agent.turn.finished", "the demo model's last answer stored (a commit)"),
         ("turn.completed", "the end stored (a commit)")]
LOG = [("runner [0-9]+ started", "the launcher forks and executes the runner"),
       ("handed to runsc", "the runner: lock, places, namespaces, network, rules"),
       ("sandbox of tenant [-0-9a-f]+ runs", "runsc boots, the guest answers")]


def wall(text):
    """Milliseconds of a time as the daemon writes it."""
    moment = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
    return moment.replace(tzinfo=datetime.timezone.utc).timestamp() * 1000


def walk(events, begin, into):
    """Adds how long each step took, by the times of the events."""
    rest = iter([(kind, wall(e["at"])) for _, kind, e in events])
    for kind, what in STEPS:
        at = next(at for k, at in rest if k == kind)
        into.setdefault(what, []).append(at - begin)
        begin = at


def walk_log(lines, events, into):
    """The same for the steps of a start, which all lie within the call."""
    at = next(wall(e["at"]) for _, kind, e in events if kind == "tool.started")
    for pattern, what in LOG:
        line = next(line for line in lines if re.search(pattern, line))
        now = wall(line.split()[0])
        into.setdefault(what, []).append(now - at)
        at = now
    end = next(wall(e["at"]) for _, kind, e in events if kind == "tool.finished")
    into.setdefault("the command in the new sandbox, its result stored", []).append(end - at)


def now():
    return datetime.datetime.now(datetime.timezone.utc).timestamp() * 1000


def watched(client, session):
    begin = now()
    outcome = client.watch(session, "$ true")
    assert outcome.status == "completed", outcome.turn
    return begin, outcome.events


@measure("steps")
def steps(place, scale):
    """A warm command and the first of a stopped tenant, step by step"""
    warm, cold = {}, {}
    with place.cloister(sandbox_idle_seconds=1) as daemon:
        client = daemon.client("acme")
        session = client.session(model="demo")
        for _ in range(scale(10, 2)):
            eventually(lambda: not daemon.running("acme"), 30, "the sandbox stops")
            before = len(daemon.log())
            _, events = watched(client, session)
            walk_log(daemon.log()[before:].splitlines(), events, cold)
            for _ in range(scale(5, 2)):
                begin, events = watched(client, session)
                walk(events, begin, warm)
    return [Row(f"{kind}: {what}", Series("step", "ms", took))
            for kind, found in (("warm", warm), ("start", cold)) for what, took in found.items()]
