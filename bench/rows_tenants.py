"""Many tenants in turn, against one."""

from figures import Goal, Row, Series
from peers import wrk
from rows import measure

CONNECTIONS = 40


def write_rounds(daemon, names, sessions):
    path = f"{daemon.var}/rounds-{len(names)}"
    with open(path, "w", encoding="utf-8") as f:
        for name in names:
            f.write(f"{daemon.tenants[name].token} /v1/sessions/{sessions[name]}\n")
    return path


def compare(place, scale, connections):
    """Times for the same number of requests: rates of the two the other way round."""
    names = [f"t{i}" for i in range(scale(500, 20))]
    ours, theirs = [], []
    options = {"max_db_connections": connections} if connections else {}
    with place.cloister(names, **options) as daemon:
        sessions = {n: daemon.client(n).session(model="demo") for n in names}
        many = write_rounds(daemon, names, sessions)
        one = write_rounds(daemon, names[:1], sessions)
        for rounds in (many, one):
            wrk(daemon.port, seconds=scale(4, 1), connections=CONNECTIONS, rounds=rounds)
        for _ in range(scale(5, 2)):
            for path, into in ((one, theirs), (many, ours)):
                found = wrk(daemon.port, seconds=scale(2, 1), connections=CONNECTIONS,
                            rounds=path)
                into.append(1e6 / found["rate"])
    return Series("in turn", "µs", ours), Series("one tenant", "µs", theirs)


@measure("tenants")
def tenants(place, scale):
    """500 tenants in turn, each asked for a session, against one tenant; 40 connections"""
    rows = []
    for connections in (None, 200):
        ours, theirs = compare(place, scale, connections)
        rows.append(Row(f"a GET of {scale(500, 20)} tenants in turn, "
                        f"`--max-db-connections {connections or 16}`", ours, theirs, Goal(3)))
    return rows
