"""Tenants that come and go by "systemctl reload", while another one works."""

import json
import os
import time

from neighbour import at_work
from service import REGISTRY, STATE, read, run
from world import eventually


def test_a_tenant_is_added_and_removed_while_another_one_works(service, capsys):
    """It answers when the reload returns; removed, its turn, its sandbox and its token end."""
    others = [name for name in service.tenants if name != "umbrella"]
    umbrella = service.client("umbrella")
    service.declare(*others)
    service.reload()
    assert umbrella.request("GET", "/v1/sessions").status == 401
    with at_work(service):
        service.declare()
        begin = time.monotonic()
        service.reload()
        reloaded = time.monotonic()
        umbrella.call("GET", "/v1/models")
        answered = time.monotonic()
        session = umbrella.session()
        with umbrella.events() as events:
            turn = umbrella.start(session, "$ echo begun; sleep 600")
            events.until_output(turn, "begun", 120)
            worked = time.monotonic()
            assert os.path.exists(service.leaf("umbrella"))
            service.declare(*others)
            service.reload()
            assert events.ended.wait(60), "the stream of a tenant that is gone lives on"
        assert umbrella.request("GET", "/v1/sessions").status == 401
        eventually(lambda: not service.running("umbrella") and
                   not os.path.exists(service.leaf("umbrella")), 60, "its sandbox is gone")
    with capsys.disabled():
        print(f"\n    reload {reloaded - begin:.2f} s, first answer {answered - reloaded:.3f} s after it, "
              f"first command {worked - reloaded:.1f} s")
    # What it had is kept for when it comes back.
    service.declare()
    service.reload()
    assert umbrella.turn(turn)["status"] == "cancelled"
    assert umbrella.call("GET", f"/v1/sessions/{session}")["id"] == session


def test_a_broken_registry_leaves_the_old_one_in_force(service):
    good = read(REGISTRY)
    with at_work(service):
        broken = json.loads(good)
        broken["version"] = 2
        broken["tenants"][1]["limits"] = {"memoryMiB": 1}
        broken["tenants"][3]["nonsense"] = True
        for text, faults in ((json.dumps(broken), ("version: must be 1", "tenants[1].limits.memoryMiB: ",
                                                   "tenants[3].nonsense: unknown field")),
                             (good[:-3], ("line 1, column ",))):
            with open(REGISTRY, "w", encoding="utf-8") as f:
                f.write(text)
            said = service.fail_to_reload()
            assert all(fault in said for fault in faults), said
            assert service.active()
            for name in service.tenants:
                service.client(name).call("GET", "/v1/models")
        service.declare()
        service.reload()


def row_of(service, name):
    report = json.loads(run("cloisterd", "status", "--state", STATE, "--json").stdout)
    return next(tenant["sandbox"] for tenant in report["tenants"] if tenant["name"] == name)


def test_status_counts_what_the_kernel_counts(service, acme):
    acme.run(acme.session(), "$ true")

    def number(file):
        return int(read(f"{service.leaf('acme')}/{file}"))

    def agrees():
        """Between what is read before and what is read after."""
        before = number("memory.current"), number("pids.current")
        row = row_of(service, "acme")
        after = number("memory.current"), number("pids.current")
        told = row["memoryBytes"], row["tasks"]
        between = all(min(b, a) <= t <= max(b, a) for b, t, a in zip(before, told, after, strict=True))
        return row if between else None

    idle = eventually(agrees, 60, "status agrees with the sandbox's cgroup", 0.2)
    assert idle["memoryBytes"] > 1 << 20 and idle["tasks"] > 10 and idle["state"] == "running", idle
    with acme.events() as events:
        turn = acme.start(acme.session(), "$ for i in 1 2 3 4 5 6 7 8; do sleep 600 & done; echo begun; wait")
        events.until_output(turn, "begun", 60)
        busy = eventually(agrees, 60, "status agrees with a busy sandbox's cgroup", 0.2)
    assert busy["tasks"] >= idle["tasks"] + 8 and busy["calls"] == idle["calls"] + 1, (idle, busy)
    assert row_of(service, "umbrella") is None or service.running("umbrella")
    line = next(line for line in run("cloisterd", "status", "--state", STATE).stdout.splitlines()
                if line.strip().startswith("acme ("))
    assert " MiB, " in line and " tasks" in line, line
    acme.cancel(turn)
