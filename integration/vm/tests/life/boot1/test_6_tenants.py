"""Hostile tenants on the installed service: each hurts itself, says why, and nobody else."""

import contextlib
import json
import statistics
import threading
import time

import pytest

from neighbour import at_work
from service import CGROUP, UNIT, read, run
from world import eventually

# Takes that many MiB and keeps them: what is read goes nowhere. A program that touches page
# after page does the same, and takes minutes of an emulated processor.
TOUCH = "dd if=/dev/zero bs={}M count=1 2>/dev/null | " \
        "{{ head -c 1 >/dev/null; echo took it; sleep 600; }}"
BOMB = "bomb() { bomb | bomb & }; bomb; sleep 600"
SPIN = "for i in 1 2 3 4; do while :; do :; done & done; wait"
BYSTANDERS = ("server", "postgres")


@pytest.fixture(scope="module", autouse=True)
def limits(installed, network):
    """Small ones, so that reaching them takes little."""
    installed.limit(memoryMiB=256, processes=32)
    installed.restart()
    yield
    installed.limit()
    installed.restart()


@contextlib.contextmanager
def undisturbed(service, name="globex"):
    """While the block runs, another tenant works, and the service answers whoever asks."""
    client = service.client(name)
    slowest, over = [], threading.Event()

    def ask():
        while not over.is_set():
            begin = time.monotonic()
            assert client.request("GET", "/readyz").status == 200
            slowest.append(time.monotonic() - begin)
            over.wait(0.5)

    asking = threading.Thread(target=ask, daemon=True)
    with at_work(service, name):
        asking.start()
        try:
            yield
        finally:
            over.set()
            asking.join(60)
    assert len(slowest) > 2 and max(slowest) < 20, slowest


def begun(client, command):
    """A turn whose command has said that it began."""
    with client.events() as events:
        turn = client.start(client.session(), f"$ echo begun; {command}")
        events.until_output(turn, "begun", 60)
    return turn


def reasons(events, turns, seconds=120):
    return {turn: events.until_kind(turn, "tool.finished", seconds)[2]["data"]["details"]
            for turn in turns}


def expect_reason(client, turns, events, reason):
    """All of a sandbox's calls in flight ended for the same reason, and a new one works."""
    for turn, details in reasons(events, turns).items():
        assert (details["reason"], details["exitCode"]) == (reason, None), (turn, details)
        assert f"[{reason}: " in client.wait(turn).text
    assert client.run(client.session(), "$ echo next").text == "next\n"


@pytest.mark.long
def test_a_memory_hog(service, acme):
    with undisturbed(service), acme.events() as events:
        quiet = begun(acme, "sleep 600")
        hog = acme.start(acme.session(), f"$ {TOUCH.format(400)}")
        expect_reason(acme, (quiet, hog), events, "oom")


@pytest.mark.long
def test_too_many_tasks_of_the_host(service, acme):
    """The limit around a sandbox, made narrower than its own: that ends it, by name."""
    with undisturbed(service), acme.events() as events:
        quiet = begun(acme, "sleep 600")
        with open(f"{service.leaf('acme')}/pids.max", "w", encoding="ascii") as f:
            f.write(read(f"{service.leaf('acme')}/pids.current"))
        other = acme.start(acme.session(), "$ for i in $(seq 40); do sleep 30 & done; wait")
        expect_reason(acme, (quiet, other), events, "pids")


# The rules behind these two are held, one by one, by test_processes and test_cpu of the other part.
@pytest.mark.long
def test_a_fork_bomb(service, acme):
    with undisturbed(service):
        with acme.events() as events:
            turn = acme.start(acme.session(), f"@shell {json.dumps({'command': BOMB})}")
            events.until_kind(turn, "tool.started", 60)
            time.sleep(3)
        acme.cancel(turn)
        assert acme.wait(turn, 60).status == "cancelled"
    assert acme.run(acme.session(), "$ echo next").text == "next\n"


@pytest.mark.long
def test_a_cpu_spin(service, acme, capsys):
    """Another tenant's commands take their turns with it; the service goes first."""
    globex = service.client("globex")
    session = globex.session()

    def took():
        begin = time.monotonic()
        assert globex.run(session, "$ true", 120).status == "completed"
        return time.monotonic() - begin

    took()
    alone = statistics.median(took() for _ in range(3))
    with undisturbed(service):
        turn = begun(acme, SPIN)
        throttled = f"{service.leaf('acme')}/cpu.stat"
        used = usage(throttled)
        beside = statistics.median(took() for _ in range(3))
        assert usage(throttled) - used > 1, "nothing spins"
        acme.cancel(turn)
    with capsys.disabled():
        print(f"\n    a command takes {alone:.2f} s alone, {beside:.2f} s beside four spinning "
              "loops of another tenant")
    assert beside < 5 * alone + 1


def usage(path):
    """Seconds of CPU."""
    return int(read(path).split("usage_usec ")[1].split()[0]) / 1e6


@pytest.mark.long
def test_four_tenants_want_more_than_there_is(service):
    """Each within its own limit, together beyond the unit's: sandboxes end, nothing else."""
    service.limit(memoryMiB=320)
    whole = service.show("MemoryMax")
    run("systemctl", "set-property", "--runtime", UNIT, "MemoryMax=900M")
    try:
        service.restart()
        everybody_takes(service)
    finally:
        run("systemctl", "set-property", "--runtime", UNIT, f"MemoryMax={whole}")
        service.limit(memoryMiB=256, processes=32)
        service.restart()


def everybody_takes(service):
    around = f"{CGROUP}/sandboxes"
    before = [getattr(service, name)().pid for name in BYSTANDERS]
    assert int(read(f"{around}/memory.max")) < 4 * (200 << 20)
    clients = {name: service.client(name) for name in service.tenants}
    for client in clients.values():
        client.run(client.session(), "$ true")
    with contextlib.ExitStack() as stack:
        streams = {n: stack.enter_context(c.events()) for n, c in clients.items()}
        turns = {n: c.start(c.session(), f"$ {TOUCH.format(200)}") for n, c in clients.items()}

        def settled(name):
            """"took it", or the reason of its end."""
            for _, kind, event in streams[name].of_turn(turns[name]):
                if kind == "tool.finished":
                    return event["data"]["details"]["reason"]
            for _, kind, event in streams[name].of_turn(turns[name]):
                if kind == "tool.output.updated" and "took it" in event["data"]["output"]:
                    return "took it"
            return None

        def all_settled():
            found = {name: settled(name) for name in turns}
            return found if None not in found.values() and "oom" in found.values() else None

        found = eventually(all_settled, 180, "everybody has memory or has ended", 0.2)
    assert set(found.values()) <= {"took it", "oom"}, found
    assert int(read(f"{around}/memory.events").split("oom_kill ")[1].split()[0]) > 0
    assert [getattr(service, name)().pid for name in BYSTANDERS] == before
    for name, client in clients.items():
        client.cancel(turns[name])
        assert client.run(client.session(), "$ echo next", 120).text == "next\n", name
