"""That scripts/check-chaos notices what it is there to notice, and leaves out nothing that it can
break."""

import os
import random
import re
import subprocess
from types import SimpleNamespace

import pytest

from chaos import faults, sabotage
from chaos.faults import (
    CUT_OFF, EVERYTHING, FIRST, KINDS, LOST, RARE, Database, Descriptors, Disk, Fault, Flood,
    Hangups, Kill, ProviderHangs, Restart, SlowClients, Stop, StopForGood, draw)
from chaos.invariants import NAMESPACES, Checker
from chaos.ledger import Ledger, Turn
from chaos.load import Program, effect, shell
from chaos.run import Chaos
from chaos.unit import Unit
from world import BUILD, PATIENCE, ROOT, SANITIZED, Process, descendants, eventually

CGROUPS = ("Cgroup", "OtherCgroup")
NO_CGROUPS = "cgroups are not looked at"
# What the short form may not do without.
TELLING = {
    *((Kill, what) for what in ("launcher", "server", "courier", "runner", "sentry", "guest")),
    (Stop, "server"), (ProviderHangs, "past a time-out"), (Descriptors, "server"),
    (Disk, "at once"), (Database, "SIGINT"), (Hangups, "to launcher, server and courier"),
    (Flood, "connections"), (SlowClients, "streams that are not read")}


# -- which faults


def rounds_of_ci():
    with open(f"{ROOT}/.ci/run", encoding="utf-8") as f:
        return int(re.search(r"^make check-chaos ROUNDS=(\d+) SEED=\d+$", f.read(),
                             re.MULTILINE)[1])


@pytest.mark.parametrize("seed", range(20))
def test_the_short_form_has_the_most_telling_faults(seed):
    drawn = draw(random.Random(seed), rounds_of_ci())
    assert TELLING <= set(drawn) == set(FIRST) and len(drawn) == len(FIRST)


@pytest.mark.parametrize("rounds", range(1, len(FIRST)))
def test_fewer_rounds_are_of_the_first_ones(rounds):
    assert set(draw(random.Random(rounds), rounds)) == set(FIRST[:rounds])


@pytest.mark.parametrize("seed", range(20))
def test_a_hundred_rounds_have_all_there_is_and_what_takes_long_once(seed):
    drawn = draw(random.Random(seed), 100)
    assert set(drawn) == set(EVERYTHING) and len(drawn) == 100
    assert [p for p in RARE if drawn.count(p) != 1] == []


def test_a_pattern_draws_what_it_matches_and_as_often_as_was_asked():
    drawn = draw(random.Random(1), 7, "killed: (box|runsc)$")
    assert len(drawn) == 7 and set(drawn) == {(Kill, "box"), (Kill, "runsc")}
    assert draw(random.Random(1), 7, "no such fault") == []


@pytest.mark.parametrize("kind", (Kill, Stop))
def test_every_process_of_ours_is_a_victim(cloister, acme, session, kind):
    """Of a daemon that works no process has a name of ours and is none that a round may break."""
    assert acme.run(session, "$ true").status == "completed"
    unit = faulty(cloister)
    named = {what: {p.pid for p in unit.named(what, "acme")} for what in kind.variants
             if what in (*faults.OF_DAEMON, *faults.OF_SANDBOX)}
    assert {what for what, pids in named.items() if not pids} <= {"keeper", "courier"}, "no models"
    victims = set().union(*named.values())
    others = {p.pid for name in cloister.tenants if name != "acme" and cloister.running(name)
              for p in [cloister.runner(name), *descendants(cloister.runner(name).pid)]}
    left = [p for p in [cloister.launcher(), *cloister.tree()]
            if p.pid not in victims | others and p.name != "postgres"]
    assert left == []


def faulty(cloister):
    """The same daemon, with names for its processes."""
    unit = Unit.__new__(Unit)
    unit.__dict__.update(cloister.__dict__)
    return unit


# -- what may come of a fault


class Rounds:
    """What a fault knows of the rounds."""

    def __init__(self, tenants=("acme", "globex")):
        self.ledger, self.unit, self.clerk = Ledger(tenants), None, None
        self.watchers, self.round_began, self.fault = [], 0, None
        self.clerk, self.slow, self.log_seen = self, set(), 0

    excuses, too_slow = Chaos.excuses, Chaos.too_slow

    def judge(self, *_):
        """The clerk's: asked as often as there was reason for."""


def fault_of(kind, variant, tenants=("acme", "globex")):
    return kind(Rounds(tenants), variant, random.Random(1))


@pytest.mark.parametrize("kind, variant", [p for p in EVERYTHING if p[1] in faults.OF_SANDBOX])
def test_a_process_of_one_sandbox_is_nothing_to_other_tenants(kind, variant):
    fault = fault_of(kind, variant)
    other = "globex" if fault.tenant == "acme" else "acme"
    assert fault.excuses(other) == ((), ())
    assert fault.excuses(fault.tenant) == (fault.fails, fault.spoils)


@pytest.mark.parametrize("kind, variant, fails, spoils", [
    (Kill, "runner", ("sandbox_unavailable",), LOST), (Kill, "server", (), CUT_OFF),
    (Kill, "courier", (), ()), (Kill, "backend", (), ()), (Stop, "sentry", (), LOST),
    (Stop, "runner", (), ()), (Restart, "hastened", (), CUT_OFF),
    (StopForGood, "guest", ("sandbox_unavailable",), LOST), (Database, "SIGHUP", (), ()),
    (Flood, "connections", (), ()), (Descriptors, "courier", ("model_failed",), ()),
    (ProviderHangs, "past a time-out", (), ()),
    (ProviderHangs, "past the last attempt", ("model_failed",), ())])
def test_what_is_no_wonder_after_a_fault(kind, variant, fails, spoils):
    assert fault_of(kind, variant, ("acme",)).excuses("acme") == (fails, spoils)


def test_longer_stops_are_longer_than_a_guest_is_waited_for():
    with open(f"{ROOT}/daemon/sandbox/sandboxes.c", encoding="utf-8") as f:
        found = dict(re.findall(r"^#define (PING_AFTER_MS|PONG_MS) +(\d+)$", f.read(),
                                re.MULTILINE))
    assert StopForGood.seconds[0] * 1000 > sum(map(int, found.values())) and len(found) == 2


# -- how turns are judged


class History:
    """A unit whose tenants have one turn, with these items, and all of whose processes are said."""

    def __init__(self, turn=None, items=(), tree=(), main_pid=0):
        self.turn, self.items, self.processes, self.pid = turn, list(items), list(tree), main_pid

    def client(self, _):
        return self

    def call(self, *_):
        return {"data": [{"turn": {"id": self.turn.id, "status": self.turn.status,
                                   "items": self.items}}]}

    def tree(self):
        return self.processes

    def orphans(self):
        return []

    def main_pid(self):
        return self.pid


MARK = "0" * 32


def checker_of(rounds, unit):
    rounds.unit = unit
    return Checker(rounds)


def judged(status="completed", code=None, fault=None, tenant="acme", said=f"done {MARK}\n",
           change=lambda items: None, asked=10, kind="commands", plan=None):
    """What is found of a turn with one command; the fault went on from 5 to 15."""
    rounds = Rounds()
    rounds.fault = fault
    if fault:
        rounds.ledger.interruptions.append((5, 15))
    turn = Turn("t", "s", kind, {"mark": "m", "calls": [[effect(MARK, 0)]], **(plan or {})}, asked)
    turn.status, turn.code, turn.ended = status, code, asked + 1
    turn.result = {"turn": {"error": {"code": code}}, "output": None}
    items = [{"seq": 0, "kind": "user"}, {"seq": 1, "kind": "tool_call", "callId": "c"},
             {"seq": 2, "kind": "tool_result", "callId": "c", "output": said},
             {"seq": 3, "kind": "assistant", "text": "told m"}]
    change(items)
    return checker_of(rounds, History(turn, items)).judge_turn(tenant, turn)


def test_a_turn_as_it_ought_to_be():
    assert judged() == []


def skip(items):
    items[3]["seq"] = 4


def forget(items):
    del items[2]


def deny(items):
    items[3]["text"] = "told nothing"


@pytest.mark.parametrize("changed, found", [
    ({"change": skip}, "a gap in its history"),
    ({"change": forget}, "1 calls wanted, 1 made, 0 results"),
    ({"change": deny}, "it ends with"),
    ({"status": "cancelled"}, "was cancelled by nobody"),
    ({"status": "failed", "code": "internal_error"}, "failed: .*internal_error"),
    ({"said": "done"}, "says 'done', and not 'done 0"),
    ({"kind": "cancelled", "plan": {"status": "cancelled"}}, "was told to be cancelled"),
])
def test_a_turn_as_it_may_not_be(changed, found):
    assert re.search(found, "\n".join(judged(**changed)))


def victim(tenant, kind=Kill, variant="runner"):
    return fault_of(kind, variant, (tenant,))


@pytest.mark.parametrize("of, asked, well", [
    ("acme", 10, True), ("globex", 10, False), ("acme", 20, False), ("acme", 1, False)])
@pytest.mark.parametrize("how", [{"status": "failed", "code": "sandbox_unavailable"},
                                 {"said": "[lost: the sandbox ended while the command ran]"}])
def test_a_fault_excuses_turns_of_its_victim_while_it_goes_on(of, asked, well, how):
    assert (judged(fault=victim(of), asked=asked, **how) == []) is well


@pytest.mark.parametrize("fault, said, well", [
    (("runner",), "error: lost: gone", True), (("runner",), "error: interrupted: x", False),
    (("runner",), "[exit code 1]", False), (("guest",), "[exit code 1]", True),
    (("guest",), "error: interrupted: x", False), (("server",), "error: interrupted: x", True),
    (("server",), "error: io: x", False), (("courier",), "error: lost: gone", False),
    (("backend",), "error: interrupted: x", False)])
def test_each_fault_has_its_own_words(fault, said, well):
    assert (judged(fault=victim("acme", Kill, *fault), said=said) == []) is well


class Slow(SimpleNamespace):
    """A unit with this in its log."""

    tenants = {name: SimpleNamespace(id=f"id-of-{name}") for name in ("acme", "globex")}

    def log(self):
        return self.text


@pytest.mark.parametrize("load, text, slow", [
    (100, "sandbox of tenant id-of-acme is ended: a cancelled call did not end", {"acme"}),
    (1, "sandbox of tenant id-of-acme is ended: a cancelled call did not end", set()),
    (100, "sandbox of tenant id-of-acme is ended: the guest does not answer", set())])
def test_a_machine_that_is_too_slow_is_no_fault_of_the_daemon(monkeypatch, load, text, slow):
    monkeypatch.setattr(os, "getloadavg", lambda: (load * len(os.sched_getaffinity(0)), 0, 0))
    rounds = Rounds()
    rounds.unit = Slow(text=text)
    rounds.slow = rounds.too_slow()
    assert rounds.slow == slow
    turn = SimpleNamespace(asked=1, ended=2)
    assert (rounds.excuses("acme", turn) == ((), ())) is not bool(slow)
    assert rounds.excuses("globex", turn) == ((), ())


def test_what_nothing_is_said_of_may_not_be_an_error():
    turn_without = {"plan": {"calls": [[shell("rm x")]]}}
    assert judged(said="", **turn_without) == []
    assert judged(said="error: lost: gone", **turn_without) != []


class Answered:
    status, json = 204, None


def gone(**result):
    """What is found of a turn whose session its client has deleted, and what is known of it."""
    rounds = Rounds(("acme",))
    account = rounds.ledger.accounts["acme"]
    turn = Turn("t", "s", "commands", {"mark": "m", "calls": [[effect(MARK, 0)]]}, 10)
    turn.status, turn.ended, turn.code = "completed", 11, None
    turn.result = {"turn": {"error": None},
                   "output": {"tools": [{"details": {"reason": "exited", "exitCode": 0}}]}}
    turn.__dict__.update(result)
    account.turns["t"] = turn
    program = Program.__new__(Program)
    program.account, program.ask, program.expect = account, lambda *_: Answered, lambda *_: None
    program.delete("s")
    assert account.turns == {}
    return checker_of(rounds, History()).turns(), account


def test_a_turn_of_a_deleted_session_is_judged_too():
    found, account = gone()
    assert found == [] and account.done == {MARK} and account.gone == []
    found, account = gone(status="failed", code="internal_error")
    assert re.search("failed", found[0]) and account.done == set()
    found, _ = gone(status="cancelled")
    assert "was cancelled by nobody" in found[0]


# -- how processes are judged


def process_of(name, *arguments, parent=1):
    process = Process(os.getpid(), name, parent)
    process.arguments = lambda: list(arguments)
    return process


TENANT = "11111111-2222-7333-8444-555555555555"


def family(**changed):
    """A daemon with one sandbox: how many there are of each."""
    number = {"cloisterd": 3, "runner": 1, "slirp4netns": 1, **changed}
    return [process_of("cloisterd") for _ in range(number["cloisterd"])] + \
        [process_of("cloister-runner", "serve", TENANT) for _ in range(number["runner"])] + \
        [process_of("slirp4netns", parent=2) for _ in range(number["slirp4netns"])]


@pytest.mark.parametrize("changed, found", [
    ({}, []), ({"runner": 2, "slirp4netns": 2}, [f"2 runners of {TENANT}"]),
    ({"cloisterd": 2}, ["2 processes cloisterd, not 3"]),
    ({"cloisterd": 4}, ["4 processes cloisterd, not 3"]),
    ({"slirp4netns": 0}, ["0 processes slirp4netns, not 1"]),
    ({"slirp4netns": 2}, ["2 processes slirp4netns, not 1"])])
def test_processes_are_counted(changed, found):
    told = checker_of(Rounds(), History(tree=family(**changed), main_pid=1)).processes()
    assert [line.split(":")[0] for line in told if "zombies" not in line] == found


@pytest.mark.parametrize("name, named", [("cloisterd", 1), ("cloister-runner", 1), ("postgres", 0)])
def test_a_zombie_is_one_of_whoever_does_not_look(name, named):
    parent = subprocess.Popen(["sh", "-c", "sleep 0 & exec sleep 1000"])
    try:
        process = Process(parent.pid, name, 2)
        checker = checker_of(Rounds(), History(tree=[process], main_pid=1))
        look = lambda: [f for f in checker.processes() if f.startswith("zombies of")]  # noqa: E731
        if named:
            eventually(look, 10, "a zombie")
        else:
            assert look() == []
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.parametrize("more, found", [(0, 0), (1, 1)])
def test_namespaces_of_a_sandbox_are_counted(more, found):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    number = NAMESPACES["uts"] + more
    runner = subprocess.Popen(["sh", "-c", "unshare --uts sleep 1000 & " * number + "wait"])
    try:
        def tree():
            process = process_of("cloister-runner", "serve", TENANT, parent=1)
            process.pid = runner.pid
            return [process, *descendants(runner.pid)]

        eventually(lambda: sum(p.name == "sleep" for p in tree()) == number, 10, "namespaces")
        unit = History(tree=tree(), main_pid=1)
        told = checker_of(Rounds(), unit).namespaces()
        assert [line[:25] for line in told] == [f"{number} namespaces uts of 1 san"] * found
    finally:
        for process in descendants(runner.pid):
            process.kill()
        runner.kill()
        runner.wait()


# -- that it looks at all


@pytest.fixture(scope="module")
def told():
    """The checker, and a daemon of its own to which everything is done at once: {name: words}.

    It takes longer than other tests: a daemon has to work, and to work again, to be judged."""
    if SANITIZED:
        pytest.skip("what is judged here is the judge, and not the programs")
    if os.geteuid() != 0:
        pytest.skip("needs root")
    done = subprocess.run([f"{ROOT}/scripts/check-chaos", "--sabotage", "--seed", "1", BUILD],
                          capture_output=True, text=True, check=False, cwd=ROOT,
                          env={**os.environ, "CLOISTER_PATIENCE": str(max(PATIENCE, 5))})
    lines = dict(re.findall(r"^(\w+): (.*)$", done.stdout, re.MULTILINE))
    lines["output"] = f"{done.stdout}\n{done.stderr}"
    return lines


@pytest.mark.parametrize("name", [*sabotage.NAMES, "well"])
def test_the_checker_names(told, name):
    if name in CGROUPS and NO_CGROUPS in told["output"]:
        pytest.skip("this machine lets nobody make cgroups")
    assert name in told, told["output"]
    assert told[name] != sabotage.NOT_NAMED, told["output"]
