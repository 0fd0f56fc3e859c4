"""A tenant at work, whom nothing that happens meanwhile may disturb."""

import contextlib
import json

from daemon import write_file

# Until the test says that it is over; every number once. One process, which waits by itself: a
# shell's "sleep" would be a start of a program each time, and those take an emulated processor; so
# does reading the events, if they are more than one a second.
WORK = """perl -e '$| = 1; until (-e "over") { print ++$i, "\\n"; sleep 1 }
unlink "over"; print "over\\n"'"""


@contextlib.contextmanager
def at_work(service, name="acme"):
    """While the block runs, a turn of that tenant and its event stream go on: in the same sandbox,
    by the same processes of the service, nothing lost and nothing twice."""
    client = service.client(name)

    def who():
        return (service.sentry(name).pid, service.runner(name).pid, service.server().pid,
                service.postgres().pid, service.main_pid(), service.show("NRestarts"))

    with client.events() as events:
        line = json.dumps({"command": WORK, "timeoutMs": 900000})
        turn = client.start(client.session(), f"@shell {line}")
        events.until_output(turn, "1\n", 60)
        before = who()
        yield
        assert who() == before
        seen_before = len(events.of_turn(turn))
        events.until(lambda: len(events.of_turn(turn)) > seen_before, 30, "it still works")
        write_file(f"{service.tenants[name].workspace}/over", "")
        seen = events.until_end(turn, 60)
        assert not events.ended.is_set()
    text = client.wait(turn).text
    numbers = text.splitlines()
    assert numbers == [str(i) for i in range(1, len(numbers))] + ["over"], text
    assert "".join(e["data"]["output"] for _, k, e in seen if k == "tool.output.updated") == text
