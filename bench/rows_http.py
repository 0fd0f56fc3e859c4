"""Requests that are answered at once, and event streams."""

import contextlib
import json

from figures import Goal, Row, Series
from peers import Database, nginx, wrk
from place import finish, memory, settled, tool
from rows import measure

CONNECTIONS, SESSIONS = 16, 32


@measure("healthz")
def healthz(place, scale):
    """/healthz against nginx that returns a text, one thread each"""
    ours, theirs = [], []
    with place.cloister() as daemon, nginx(place) as port:
        for server in (daemon.port, port):
            wrk(server, "/healthz", seconds=1)
        for _ in range(scale(7, 2)):
            theirs.append(wrk(port, "/healthz", scale(2, 1))["rate"])
            ours.append(wrk(daemon.port, "/healthz", scale(2, 1))["rate"])
    return [Row("`GET /healthz`, 64 connections", Series("cloisterd", "/s", ours),
                Series("nginx `return 200`", "/s", theirs), Goal(0.9, at_least=True))]


def select_of(database, client, path):
    """The one statement that the daemon executes for this request, with values in it."""
    with database.statements() as statements:
        client.call("GET", path)
    assert len(statements) == 1, statements
    sql = statements[0].sql
    for i, value in reversed(list(enumerate(statements[0].parameters, 1))):
        sql = sql.replace(f"${i}", f"'{value}'")
    return sql


def write_rounds(daemon, asked):
    """A file for wrk that goes round these sessions, (tenant, id) each."""
    path = f"{daemon.var}/rounds-{len(asked)}"
    with open(path, "w", encoding="utf-8") as f:
        for name, session in asked:
            f.write(f"{daemon.tenants[name].token} /v1/sessions/{session}\n")
    return path


@measure("get")
def get(place, scale):
    """A session by its id against pgbench with the same SELECT, as many connections"""
    rows = []
    with place.cloister() as daemon:
        client, database = daemon.client("acme"), Database(daemon)
        sessions = [client.session(model="demo") for _ in range(SESSIONS)]
        one = select_of(database, client, f"/v1/sessions/{sessions[0]}")
        statements = [one.replace(sessions[0], s) for s in sessions]
        rounds = write_rounds(daemon, [("acme", s) for s in sessions])
        for connections in (CONNECTIONS, 4):
            ours, theirs = [], []
            for _ in range(scale(7, 2)):
                theirs.append(database.bench("acme", statements, scale(2, 1), connections))
                ours.append(wrk(daemon.port, seconds=scale(2, 1), connections=connections,
                                rounds=rounds)["rate"])
            rows.append(Row(f"`GET /v1/sessions/{{id}}`, {connections} connections",
                            Series("cloisterd", "/s", ours),
                            Series("pgbench, prepared", "/s", theirs),
                            Goal(0.5, at_least=True)))
    return rows


@contextlib.contextmanager
def held(daemon, count):
    """So many idle event streams of acme."""
    process = tool("streams", "hold", daemon.port, daemon.tenants["acme"].token, count)
    line = process.stdout.readline()
    assert line == "ready\n", f"streams ended with {process.wait()}"
    yield
    finish(process, "streams")


@measure("idle-streams")
def idle_streams(place, scale):
    """10,000 idle event streams: memory of each, and a GET beside them"""
    count, least = scale(10000, 1000), 100
    with place.cloister(max_event_streams=12000, max_event_streams_per_tenant=12000) as daemon:
        client = daemon.client("acme")
        path, token = f"/v1/sessions/{client.session(model='demo')}", daemon.tenants["acme"].token
        server = daemon.server().pid

        def rate():
            return wrk(daemon.port, path, scale(2, 1), CONNECTIONS, token)["rate"]

        rate()
        with held(daemon, least):  # so that what is made once is there
            pass
        each, ours, theirs = [], [], []
        for _ in range(scale(5, 2)):
            theirs.append(rate())
            before = settled(lambda: memory(server, "Rss"))
            with held(daemon, count):
                each.append((settled(lambda: memory(server, "Rss")) - before) / count)
                ours.append(rate())
        # Memory that was freed may be used again, so the most of all rounds is what counts.
        most = Series("cloisterd", "KiB", [max(each)])
    return [Row(f"{count:,} idle event streams, memory each", most, None, Goal(2, unit="KiB")),
            Row(f"`GET /v1/sessions/{{id}}` beside {count:,} idle streams",
                Series("with them", "/s", ours), Series("without", "/s", theirs),
                Goal(0.8, at_least=True))]


def hold_up(daemon, tenant):
    """A turn that keeps all others waiting in a daemon that runs one at a time."""
    client = daemon.client(tenant)
    turn = client.start(client.session(model="demo"), "$ sleep 600")
    client.wait_for(turn, "running")
    return client, turn


@measure("fan-out")
def fan_out(place, scale):
    """One event to 1,000 streams, last byte out, against a loop that writes the same bytes"""
    count, rounds = 1000, scale(100, 10)
    with place.cloister(("acme", "globex", "holder"), max_running_turns=1,
                        max_event_streams=4096, max_event_streams_per_tenant=4096) as daemon:
        client, turn = hold_up(daemon, "holder")
        words = [w for name in ("acme", "globex") for w in
                 (daemon.tenants[name].token, daemon.client(name).session(model="demo"))]
        found = json.loads(finish(tool("streams", "fan", daemon.port, *words, count, rounds),
                                  "streams"))
        client.cancel(turn)
    series = {name: [us / 1000 for us in values] for name, values in found.items()}

    def spread(side):
        """What the others cost: the time to all streams without that to one, pair by pair."""
        alone = Series("", "ms", series[f"{side}_one"]).median
        return [value - alone for value in series[f"{side}_all"]]

    return [Row("one event to 1,000 streams, from the request that causes it",
                Series("cloisterd", "ms", series["daemon_all"]),
                Series("`send` in a loop", "ms", series["loop_all"])),
            Row("one event to 1,000 streams", Series("cloisterd", "ms", spread("daemon")),
                Series("`send` in a loop", "ms", spread("loop")), Goal(1.3),
                note="the row before, each side less the median of the same with one stream")]


@measure("silent")
def silent(place, scale):
    """A daemon with 1,000 declared tenants that do nothing: resident memory"""
    count = scale(1000, 100)
    figures = {}
    for tenants in (1, count):
        with place.cloister([f"t{i}" for i in range(tenants)]) as daemon:
            daemon.client().call("GET", "/readyz")
            pids = [daemon.launcher().pid, daemon.server().pid]
            figures[tenants] = [settled(lambda p=pid: memory(p, "Rss")) / 1024 for pid in pids]
    note = "launcher {:.1f} and server {:.1f} MiB; with one tenant {:.1f} and {:.1f}".format(
        *figures[count], *figures[1])
    return [Row(f"{count:,} silent tenants, resident memory of launcher and server",
                Series("cloisterd", "MiB", [sum(figures[count])]), None, Goal(40, unit="MiB"),
                note=note)]
