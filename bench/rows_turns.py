"""Turns: what the daemon adds to one, what many cost, what a long past costs."""

import json
import time
import uuid

from figures import Goal, Row, Series
from peers import Database, wire, wrk
from place import answer_of, memory, settled, tool
from rows import measure
from rows_sandbox import milliseconds, more, turns

UUID_LENGTH = 36


def is_uuid(value):
    try:
        return value is not None and len(value) == UUID_LENGTH and bool(uuid.UUID(value))
    except ValueError:
        return False


def recorded(daemon, session):
    """What a small turn executes, from the request to the commit of its end."""
    client, database = daemon.client("acme"), Database(daemon)
    with database.statements() as statements, client.events() as events:
        turn = client.start(session, "hello")
        events.until_end(turn)
    own, _ = database.of_tenant("acme")
    ends = [i for i, s in enumerate(statements) if s.database == own and s.sql == "COMMIT"]
    assert ends, statements
    return statements[:ends[-1] + 1]


def again(statements, keep):
    """The same for another turn: every id that was new is another one."""
    names = {}

    def renamed(value):
        if not is_uuid(value) or value in keep:
            return value
        return names.setdefault(value, str(uuid.uuid4()))

    copies = []
    for s in statements:
        copy = type(s)(s.database, s.role, s.sql)
        copy.parameters = [renamed(v) for v in s.parameters]
        copies.append(copy)
    return copies


@measure("turn-cost")
def turn_cost(place, scale):
    """A small turn against the same statements and commits, executed one after the other"""
    ours, theirs = [], []
    with place.cloister() as daemon:
        client = daemon.client("acme")
        session = client.session(model="demo")
        client.run(session, "hello")
        statements = recorded(daemon, session)
        commits = sum(s.sql == "COMMIT" for s in statements)
        keep = {session, daemon.tenants["acme"].id}
        replay = tool("replay", f"{daemon.state}/pg/run", user="cloister")
        with turns(daemon, "acme", "hello", rounds=5) as process:
            answer_of(process)
            for _ in range(scale(20, 3)):
                ours += more(process, 5)["turn"]
                for _ in range(5):
                    replay.stdin.write(wire(again(statements, keep)))
                    replay.stdin.flush()
                    theirs += milliseconds(answer_of(replay))["us"]
        replay.communicate()
    return [Row("a small turn, what the daemon adds", Series("turn", "ms", ours),
                Series("its statements by hand", "ms", theirs), Goal(5, unit="ms"),
                difference=True, note=f"{len(statements)} statements, {commits} transactions "
                                      "and those of a single statement")]


@measure("turn-memory")
def turn_memory(place, scale):
    """Memory of the server for each turn that runs"""
    count = scale(200, 20)
    with place.cloister(max_running_turns=1024, max_running_turns_per_tenant=1024,
                        max_queued_turns_per_tenant=1024, max_queued_turns=1024) as daemon:
        client = daemon.client("acme")
        client.run(client.session(model="demo"), "$ true")
        sessions = [client.session(model="demo") for _ in range(count)]
        server = daemon.server().pid
        before = settled(lambda: memory(server, "Rss"))
        begun = [client.start(s, "$ sleep 600") for s in sessions]
        for turn in begun:
            client.wait_for(turn, "running", 60)
        time.sleep(1)
        each = (settled(lambda: memory(server, "Rss")) - before) / count
        for turn in begun:
            client.cancel(turn)
        for turn in begun:
            client.wait(turn)
    return [Row(f"{count} turns that run a command, memory of the server each",
                Series("cloisterd", "KiB", [each]))]


@measure("in-flight")
def in_flight(place, scale):
    """A small turn with 1, 10, 100 and 1,000 of them under way"""
    rows = []
    with place.cloister(max_running_turns=16, max_running_turns_per_tenant=16,
                        max_queued_turns=4096, max_queued_turns_per_tenant=4096,
                        event_replay_limit=100000) as daemon:
        for count in scale((1, 10, 100, 1000), (1, 10)):
            rounds = max(100, 3 * count) if not scale.short else 20
            with turns(daemon, "acme", "hello", sessions=count, rounds=count) as process:
                answer_of(process)
                begin = time.monotonic()
                found = Series("turn", "ms", more(process, rounds)["turn"])
                rate = rounds / (time.monotonic() - begin)
            rows.append(Row(f"a small turn, {count:,} under way", found,
                            note=f"{rate:.0f} turns in a second"))
    return rows


# -- a long past --------------------------------------------------------------------------

SESSIONS = """
INSERT INTO app.session (id, created_ms, updated_ms, model, effort, cwd)
SELECT gen_random_uuid(), 1700000000000 + i, 1700000000000 + i, 'demo', 'medium', '/workspace'
FROM generate_series(1, {count}) AS i
"""
HISTORY = """
INSERT INTO app.turn (id, session, state, created_ms, started_ms, finished_ms, input)
SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, '{session}', 'completed',
	1700000000000 + i, 1700000000000 + i, 1700000000001 + i, 'hello'
FROM generate_series(1, {turns}) AS i;
INSERT INTO app.item (turn, seq, kind, body)
SELECT ('00000000-0000-4000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, n,
	CASE n WHEN 0 THEN 'user' ELSE 'assistant' END, 'hello'
FROM generate_series(1, {turns}) AS i, generate_series(0, 1) AS n ORDER BY i, n
"""


def rate_of(daemon, path, seconds):
    return wrk(daemon.port, path, seconds, 4, daemon.tenants["acme"].token)["rate"]


@measure("growth")
def growth(place, scale):
    """Lists and turns with 10, 100, 1,000 and 10,000 sessions, and in a long session"""
    rows = []
    with place.cloister() as daemon:
        database, client = Database(daemon), daemon.client("acme")
        client.session(model="demo")
        have, lists, small = 1, {}, {}
        with turns(daemon, "acme", "hello", rounds=10) as process:
            answer_of(process)
            for count in scale((10, 100, 1000, 10000), (10, 100)):
                database.sql("acme", SESSIONS.format(count=count - have))
                have = count
                lists[count] = [rate_of(daemon, "/v1/sessions?limit=10", 1)
                                for _ in range(scale(3, 1))]
                small[count] = more(process, scale(30, 5))["turn"]
        first = min(lists)
        for count in lists:
            rows.append(Row(f"ten sessions of {count:,}", Series("list", "/s", lists[count]),
                            Series(f"of {first}", "/s", lists[first])))
            rows.append(Row(f"a small turn beside {count:,} sessions",
                            Series("turn", "ms", small[count]),
                            Series(f"beside {first}", "ms", small[first])))
        rows += long_history(daemon, database, scale)
    return rows


def long_history(daemon, database, scale):
    items = scale(10000, 500)
    client = daemon.client("acme")
    long = client.session(model="demo")
    database.sql("acme", HISTORY.format(session=long, turns=items // 2))
    rates, took = {"short": [], "long": []}, {"short": [], "long": []}
    for _ in range(scale(5, 1)):
        short = client.session(model="demo")
        for _ in range(6):
            client.run(short, "hello")
        for name, session in (("short", short), ("long", long)):
            rates[name].append(rate_of(daemon, f"/v1/sessions/{session}/history?limit=10", 1))
            took[name] += one_by_one(daemon, session, scale(5, 2))
    return [Row(f"ten items of a history of {items:,}", Series("history", "/s", rates["long"]),
                Series("of 12", "/s", rates["short"])),
            Row(f"a small turn behind {items:,} items", Series("turn", "ms", took["long"]),
                Series("behind 12 to 20", "ms", took["short"]))]


def one_by_one(daemon, session, rounds):
    process = tool("turns", daemon.port, daemon.tenants["acme"].token, "hello", rounds)
    output, _ = process.communicate(f"{session}\n\n")
    assert process.returncode == 0
    return milliseconds(json.loads(output))["turn"]
