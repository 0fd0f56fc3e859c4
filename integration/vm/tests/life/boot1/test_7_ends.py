"""Ends: whatever is killed, nothing of a sandbox outlives it, and the service comes back."""

import os
import signal

import pytest

from client import TERMINAL
from service import CGROUP, cgroup_of, processes_of_user, read, run, strays
from world import Process, eventually

TRACE = "/sys/kernel/tracing/trace"


class Moves:
    """Every move of a process between cgroups from now on, as the kernel tells it; the trace
    is switched on by the machine's settle()."""

    def __init__(self):
        with open(TRACE, "w", encoding="ascii"):
            pass  # which empties it

    @staticmethod
    def pids():
        return {int(line.split(" pid=")[1].split()[0])
                for line in read(TRACE).splitlines() if " pid=" in line}


def cgroup(pid):
    """Where a process is, below the unit's."""
    return cgroup_of(pid).removeprefix(CGROUP.removeprefix("/sys/fs/cgroup"))


@pytest.mark.long
def test_every_process_of_a_sandbox_is_born_in_its_leaf(service):
    """None is moved there, so none was ever elsewhere; the runner stays with the supervisor."""
    client = service.client("initech")
    assert not service.running("initech")
    moves = Moves()
    stranger = os.fork()
    if stranger == 0:
        signal.pause()
        os._exit(0)
    with open("/sys/fs/cgroup/cgroup.procs", "w", encoding="ascii") as f:
        f.write(str(stranger))
    turn = client.start(client.session(), "$ sleep 600 | sleep 600")
    eventually(lambda: service.running("initech") and
               sum(p.name == "slirp4netns" for p in service.tree()) > 0 and
               client.turn(turn)["status"] == "running", 60, "the sandbox runs")
    client.run(client.session(), "$ true")
    tree = service.below_runner("initech", lambda p: True)
    moved = moves.pids()
    os.kill(stranger, signal.SIGKILL)
    os.waitpid(stranger, 0)
    leaf = f"/sandboxes/{service.tenants['initech'].id}"
    assert {p: cgroup(p.pid) for p in tree} == dict.fromkeys(tree, leaf)
    assert any(p.name == "slirp4netns" for p in tree) and len(tree) > 5, tree
    assert cgroup(service.runner("initech").pid) == "/supervisor"
    for process in (service.launcher(), service.server(), service.postgres()):
        assert cgroup(process.pid) == "/supervisor", process
    assert stranger in moved, "the trace is blind"
    assert not moved & {p.pid for p in tree}, "processes were moved into the leaf"
    client.cancel(turn)


def begin(client):
    """A command that is in its middle."""
    with client.events() as events:
        turn = client.start(client.session(), "$ echo begun; sleep 600")
        events.until_output(turn, "begun", 60)
    return turn


@pytest.mark.short
def test_a_killed_runner_leaves_nothing(service, acme, globex):
    """Not even until the tenant comes back; and the neighbour's sandbox is not touched."""
    turn, other = begin(acme), begin(globex)
    tree = service.below_runner("acme", lambda p: True)
    service.runner("acme").kill()
    eventually(lambda: not any(p.lives() for p in tree), 20, "no process of the sandbox is left")
    eventually(lambda: not os.path.exists(service.leaf("acme")), 20, "its cgroup is gone")
    assert "[lost: " in acme.wait(turn).text
    assert globex.turn(other)["status"] == "running" and os.path.exists(service.leaf("globex"))
    assert acme.run(acme.session(), "$ echo next").text == "next\n"
    globex.cancel(other)


def kill_all(service):
    service.kill("KILL")


VICTIMS = {"the launcher": lambda s: s.launcher().kill(), "the server": lambda s: s.server().kill(),
           "systemctl kill": kill_all}
SHORT = "the launcher"


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.short) if name == SHORT else
                                  name for name in VICTIMS])
def test_a_kill_leaves_nothing_and_the_service_comes_back(service, acme, name):
    run("systemctl", "reset-failed", "cloister.service", check=False)
    done = acme.run(acme.session(), "$ echo committed")
    turn = begin(acme)
    main, leaf = service.main_pid(), service.leaf("acme")
    everything = [Process(pid, "", 0) for pids in service.processes().values() for pid in pids]
    assert len(everything) > 10 and os.path.exists(leaf)
    VICTIMS[name](service)
    eventually(lambda: not any(p.lives() for p in everything), 30, "all that ran has ended")
    eventually(lambda: service.active() and service.main_pid() not in (0, main), 90,
               "the service restarted")
    assert strays() == [], "processes of the service outside its cgroup"
    assert service.show("NRestarts") == "1"
    again = acme.wait(done.turn["id"])
    assert (again.turn, again.output) == (done.turn, done.output)
    outcome = acme.wait(turn, 90)
    assert outcome.text.startswith("error: interrupted: "), outcome.text
    assert acme.run(acme.session(), "$ echo back").text == "back\n"


@pytest.mark.short
def test_stop_in_the_middle_of_a_turn_lets_it_finish(service, acme):
    turn = acme.start(acme.session(), "$ sleep 4; echo done > late; echo finished")
    acme.wait_for(turn, "running")
    service.stop()
    assert service.show("Result", "ActiveState") == {"Result": "success",
                                                     "ActiveState": "inactive"}
    assert processes_of_user() == [] and not os.path.exists(CGROUP)
    service.start()
    assert "finished" in acme.wait(turn).text


@pytest.mark.long
def test_a_turn_that_does_not_end_is_cut_by_the_drain(service, acme):
    """A restart takes no longer than the drain allows, and the turn goes on from its last step."""
    service.options(drain_seconds=2)
    try:
        service.restart()
        turn = begin(acme)
        service.restart()
        assert service.show("Result") == "success"
        outcome = acme.wait(turn, 90)
        assert outcome.status in TERMINAL and "interrupted" in outcome.text, outcome.text
    finally:
        service.options()
        service.restart()
