"""Many tenants in turn, against one."""

from figures import Goal, Row, Series
from peers import wrk
from rows import measure
from rows_http import SESSIONS, write_rounds

CONNECTIONS = 40


def compare(place, scale, connections):
    """Times for the same number of requests: rates of the two the other way round."""
    names = [f"t{i}" for i in range(scale(500, 20))]
    ours, theirs = [], []
    options = {"max_db_connections": connections} if connections else {}
    with place.cloister(names, **options) as daemon:
        first = daemon.client(names[0])
        many = write_rounds(daemon, [(n, daemon.client(n).session(model="demo"))
                                     for n in names])
        one = write_rounds(daemon, [(names[0], first.session(model="demo"))
                                    for _ in range(SESSIONS)])
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
    for connections in (None, 600):
        ours, theirs = compare(place, scale, connections)
        rows.append(Row(f"a GET of {scale(500, 20)} tenants in turn, "
                        f"`--max-db-connections {connections or 16}`", ours, theirs, Goal(3)))
    return rows
