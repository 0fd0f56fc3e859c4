"""How "make soak" judges: a leak of a stated size is found, and noise is not taken for one."""

import json
import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as tree
from types import SimpleNamespace

import pytest

from world import BUILD, ROOT

sys.path.insert(0, f"{ROOT}/bench")

from chaos.ledger import Turn  # noqa: E402
from chaos.load import Lost, Reader, shell  # noqa: E402
from figures import quantile  # noqa: E402
from soak import flat, measures, pair, run  # noqa: E402
from soak.draw import Panel, draw, round_up  # noqa: E402
from soak.flat import Bound, Verdict, line, windows  # noqa: E402
from soak.load import (  # noqa: E402
    MIXED, Approvals, Cancels, Commands, Files, Sleeper)
from soak.sample import Family, size_of  # noqa: E402

RUN = 1800
PROGRAMS = list(dict.fromkeys([*MIXED, Sleeper]))
SEEDS = range(6)
EVERY = 6


def samples(value, seconds=RUN, every=EVERY):
    """[(when, value(part of the run))]"""
    return [(t, value(t / seconds)) for t in range(0, seconds, every)]


def judge(value, bound, reduce=min, count=25):
    return flat.judge(samples(value), RUN / 6, RUN, count, reduce, bound)


def median(values):
    return quantile(values, 0.5)


def noise(seed, level, width, growth=0.0):
    """Of that growth over the run, with bursts."""
    chance = random.Random(seed)
    return lambda part: level + growth * part + chance.gauss(0, width) + \
        (chance.random() < 0.05) * width * 20


# -- the statistic


def test_windows_have_one_value_each_and_the_edges_belong_to_the_later_one():
    found = windows([(0, 5), (9.9, 1), (10, 7), (19.9, 3), (20, 9)], 0, 20, 2, min)
    assert found == [(5, 1), (15, 3)]


def test_a_window_without_samples_is_left_out():
    assert windows([(1, 5), (25, 6)], 0, 30, 3, max) == [(5, 5), (25, 6)]


def test_the_slope_of_a_line_is_its_own_and_certain():
    slope, low, high = line([(t, 3 + 2 * t) for t in range(10)])
    assert slope == low == high == 2


def test_outliers_do_not_move_it():
    points = [(t, 7.0) for t in range(25)]
    points[3] = (3, 10000.0)
    points[24] = (24, -500.0)
    assert line(points)[0] == 0


def test_the_interval_is_that_of_sen():
    """Worked by hand: n = 10, 45 slopes, spread 1.96 * sqrt(125) = 21.9; ranks 11 and 34."""
    values = [0, 4, 1, 5, 3, 8, 6, 11, 7, 12]
    points = list(enumerate(values))
    found = flat.slopes(points)
    assert len(found) == 45
    assert line(points) == (found[22], found[10], found[34])


def test_a_bound_is_the_greater_of_its_two():
    assert Bound(3).of(1000) == 3
    assert Bound(3, 0.25).of(1000) == 250 and Bound(3, 0.25).of(4) == 3


@pytest.mark.parametrize("growth, word", [(10, "flat"), (10.1, "grows")])
def test_at_the_bound_and_one_past_it(growth, word):
    """Without noise; the run that is judged is five sixths of all of it."""
    assert judge(lambda part: growth * part * 6 / 5, Bound(10), median).word == word


def test_too_few_windows_say_nothing():
    points = [(t, 1.0) for t in range(flat.FEWEST)]
    assert Verdict(points, 0, 10, Bound(1)).word == "flat"
    assert Verdict(points[1:], 0, 10, Bound(1)).word == "unclear"
    assert Verdict([], 0, 10, Bound(1)).word == "unclear"


# -- leaks and noise


@pytest.mark.parametrize("seed", SEEDS)
def test_a_leak_of_memory_is_found_in_noise(seed):
    """100 bytes for each of 60,000 turns, in a server of 30 MiB that goes up and down by 2."""
    leak = 100 * 60000 / (1 << 20)
    server = next(m for m in measures.MEASURES if m.name == "server.private")
    found = judge(noise(seed, 30, 2, leak), server.bound, server.reduce)
    assert found.word == "grows" and found.growth == pytest.approx(leak * 5 / 6, abs=1.6)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_without_a_leak_is_flat(seed):
    server = next(m for m in measures.MEASURES if m.name == "server.private")
    assert judge(noise(seed, 30, 2), server.bound, server.reduce).word == "flat"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("leak, word", [(0, "flat"), (12, "grows")])
def test_descriptors_of_a_server_at_work(seed, leak, word):
    """Between 20 and 60, by what is under way; one leaks every 150 s, or none does."""
    chance = random.Random(seed)
    found = judge(lambda part: 20 + int(leak * part) + abs(int(chance.gauss(0, 12))), Bound(3))
    assert found.word == word


@pytest.mark.parametrize("seed", SEEDS)
def test_a_series_that_hides_a_leak_is_not_flat(seed):
    """Noise of 40 times the bound: a leak of five times the bound may not pass for flat."""
    chance = random.Random(seed)
    assert judge(lambda part: 5 * part + chance.gauss(0, 40), Bound(1), median).word != "flat"


def test_what_rises_once_and_stays_is_no_leak():
    """A cache that is filled within the first tenth of what is judged."""
    assert judge(lambda part: 10 if part < 0.25 else 40, Bound(3)).word == "flat"


def test_what_is_emptied_again_and_again_is_flat():
    """As a database between two rounds of autovacuum."""
    assert judge(lambda part: part * 100 % 1 * 20, Bound(3)).word == "flat"


# -- latencies, against what the machine takes


def timings(growth, load, seed):
    """A GET that takes 4 ms and becomes slower by growth, on a machine whose load takes it to
    (1 + load) times that."""
    chance = random.Random(seed)
    found = {"echo": [], "get": []}
    for number in range(RUN):
        part = number / RUN
        slow = 1 + load * part
        found["echo"].append((number, 0.1 * slow * chance.lognormvariate(0, 0.4)))
        found["get"].append((number, 4 * (1 + growth * part) * slow *
                             chance.lognormvariate(0, 0.4)))
    return found


def verdicts(growth, load, seed):
    rows = measures.judge_latencies(timings(growth, load, seed), 0, RUN)
    return {row.title: row.verdict.word for row in rows}


@pytest.mark.parametrize("seed", range(5))
def test_a_machine_that_becomes_busy_is_not_a_daemon_that_becomes_slow(seed):
    assert verdicts(0, 3, seed)["GET a session, median"] == "flat"


@pytest.mark.parametrize("seed", range(5))
def test_a_daemon_that_becomes_slow_is_found_on_a_busy_machine(seed):
    found = verdicts(0.8, 3, seed)
    assert found["GET a session, median"] == "grows"
    assert found["GET /healthz, median"] == "unclear"  # nobody has timed it


# -- what a run is judged by


def words(seconds):
    """Of everything that can be measured, where nothing ever changes."""
    every = {m.name: samples(lambda part: 100, seconds)
             for m in [*measures.MEASURES, *measures.DATABASE]}
    return {row.title: row.verdict.word for row in measures.judge_all(every, 0, seconds)}


def test_everything_flat():
    found = words(RUN)
    assert set(found.values()) == {"flat"}
    assert len(found) == len(measures.MEASURES) + len(measures.DATABASE)


@pytest.mark.parametrize("measure", [*measures.MEASURES, *measures.DATABASE], ids=lambda m: m.name)
def test_twice_its_bound_is_found_in_each_measure_alone(measure):
    span = RUN - (measures.VACUUM_SECONDS if measure in measures.DATABASE else RUN / 6)
    leak = 2 * measure.bound.of(0) / measure.factor * RUN / span
    rows = measures.judge_all({measure.name: samples(lambda part: leak * part)}, 0, RUN)
    found = {row.title: row.verdict.word for row in rows}
    assert found.pop(measure.title) == "grows"
    assert set(found.values()) == {"unclear"}, "nothing is known of the others"


def test_nothing_is_flat_that_was_not_measured():
    rows = measures.judge_all({}, 0, RUN)
    assert len(rows) == len(measures.MEASURES) + len(measures.DATABASE)
    assert {row.verdict.word for row in rows} == {"unclear"}


def test_a_run_that_is_shorter_than_a_round_of_autovacuum_judges_no_database():
    titles = {m.title for m in measures.DATABASE}
    assert titles <= set(words(RUN)) and not titles & set(words(180))


@pytest.mark.parametrize("verdict, left, wrongs, status", [
    ("flat", 0, [], 0), ("unclear", 0, [], 2), ("grows", 0, [], 1), ("flat", 1, [], 1),
    ("flat", 0, ["x"], 1), ("unclear", 0, ["x"], 1)])
def test_the_exit_status(verdict, left, wrongs, status, capsys):
    assert run.conclude([verdict], {"rows": left}, wrongs) == status
    assert f"1 {verdict}" in capsys.readouterr().out.replace("grow,", "grows,")


# -- an old daemon beside a new one


def took(seed, factor, count=pair.ROUNDS):
    """What as many commands took; some of them, as on every machine, much longer."""
    chance = random.Random(seed)
    return [factor * (chance.gauss(40, 4) + (chance.random() < 0.1) * chance.uniform(0, 80))
            for _ in range(count)]


def beside(factor, seed, count=pair.ROUNDS):
    found = pair.judge({"command": took(seed, factor, count)},
                       {"command": took(seed + 100, 1, count)})
    return {p.part: p.word for p in found}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_daemon_that_takes_as_long_as_a_new_one_is_flat(seed):
    assert beside(1, seed) == {0.5: "flat", 0.95: "flat"}


@pytest.mark.parametrize("seed", SEEDS)
def test_one_that_takes_longer_is_seen(seed):
    assert beside(1.3, seed)[0.5] == "grows"
    assert beside(2.6, seed)[0.95] != "flat"


def test_with_few_rounds_it_is_not_called_flat():
    assert beside(1.4, 1, count=4)[0.5] != "flat"


def row_of_latency(word):
    verdict = Verdict([], 0, 1, Bound(1))
    verdict.word = word
    return measures.Row("turn with a command, median", "", verdict)


@pytest.mark.parametrize("factor, word, settled", [
    (1, "grows", "flat"), (1, "unclear", "flat"), (1, "flat", "flat"),
    (1.4, "grows", "grows"), (1.4, "unclear", "unclear"), (1.4, "flat", "flat")])
def test_what_a_new_daemon_takes_as_well_did_not_grow(factor, word, settled):
    row = row_of_latency(word)
    pair.settle([row], pair.judge({"command": took(1, factor)}, {"command": took(2, 1)}))
    assert row.verdict.word.partition(",")[0] == settled


def test_latencies_without_a_new_daemon_beside_them_stay_as_they_are():
    row = row_of_latency("grows")
    pair.settle([row], pair.judge({"turn": took(1, 1)}, {"turn": took(2, 1)}))
    assert row.verdict.word == "grows"


class Recorded(pair.Side):
    """Tells what it does instead of asking anybody."""

    def __init__(self, name, order):
        self.name, self.rounds, self.times, self.order = name, 0, {}, order

    def begin(self):
        self.order.append(self.name)
        self.tell("session", self.rounds)

    def reads(self):
        pass

    def delete(self):
        pass

    def turn(self, kind, plan):
        self.tell(kind, self.rounds)


def test_both_work_in_turn_and_the_first_rounds_do_not_count():
    order = []
    old, new = pair.work(Recorded("old", order), Recorded("new", order), 4)
    assert order[:4] == ["new", "old", "old", "new"] and len(order) == 2 * (4 + pair.WARM_UP)
    counted = [pair.WARM_UP + i for i in range(1, 5)]
    assert old == new == {"session": counted, "turn": counted, "command": counted}


# -- how turns are judged


def tool(total, reason="exited", **more):
    return {"totalBytes": total, "details": {"reason": reason, **more}}


def ended(kind, status="completed", text="told m", tools=(), **plan):
    """Nothing, or what a program finds wrong of a turn that came to this."""
    plan = {"mark": "m", "calls": [[shell("echo hi", "hi\n")]], **plan}
    turn = Turn("t", "s", "x", plan, 0)
    code = {"code": "sandbox_unavailable"} if status == "failed" else None
    output = {"assistantText": text, "tools": list(tools)} if status == "completed" else None
    result = {"turn": {"status": status, "error": code}, "output": output}
    program = kind.__new__(kind)
    program.ask = lambda *_: SimpleNamespace(status=200, json=result)
    try:
        assert program.finish(turn) is turn
    except Lost as problem:
        return str(problem)
    return None


@pytest.mark.parametrize("kind", [k for k in PROGRAMS if k not in (Cancels, Reader)])
def test_a_turn_that_does_not_complete_is_wrong(kind):
    for status in ("failed", "cancelled"):
        assert "is not completed" in ended(kind, status, decision="allow_once")
    assert ended(kind, tools=[tool(3, exitCode=0)], decision="allow_once") is None


def test_a_turn_that_is_to_be_cancelled_is_wrong_when_it_is_not():
    assert ended(Cancels, "cancelled") is None
    assert "is not cancelled" in ended(Cancels, "failed")
    assert "is not cancelled" in ended(Cancels, tools=[tool(3, exitCode=0)])


@pytest.mark.parametrize("kind", [Commands, Files, Sleeper])
@pytest.mark.parametrize("changed", [
    {"text": "told n"}, {"tools": []}, {"tools": [tool(3, exitCode=1)]},
    {"tools": [tool(3, "lost", exitCode=None)]}, {"tools": [tool(2, exitCode=0)]},
    {"tools": [tool(3, exitCode=None, signal=9)]}])
def test_a_call_that_does_not_end_as_it_ought_to_is_wrong(kind, changed):
    assert ended(kind, **{"tools": [tool(3, exitCode=0)], **changed})


@pytest.mark.parametrize("decision, reason, well", [
    ("deny", "denied", True), ("deny", "exited", False), ("allow_once", "denied", False)])
def test_a_decision_holds(decision, reason, well):
    found = ended(Approvals, tools=[tool(3, reason)], decision=decision)
    assert (found is None) is well


class Ending:
    """A run whose end fails at one step."""

    def __init__(self, fails):
        self.wrongs, self.fails = [], fails

    def step(self, name, value):
        if name == self.fails:
            raise AssertionError(f"no {name}")
        return value

    def rest(self):
        return self.step("rest", {"rows": 0})

    def reclaimed(self):
        return self.step("reclaimed", {"acme": {}})

    def stop(self):
        self.step("stop", None)


@pytest.mark.parametrize("fails, found", [
    (None, ({"rows": 0}, {"acme": {}})), ("rest", ({}, {})),
    ("reclaimed", ({"rows": 0}, {})), ("stop", ({"rows": 0}, {"acme": {}}))])
def test_a_fault_at_the_end_is_told_and_leaves_the_curves(fails, found):
    ending = Ending(fails)
    assert run.finish(ending) == found
    assert ending.wrongs == ([f"at the end: AssertionError: no {fails}"] if fails else [])


def test_the_table_says_what_cannot_be_said():
    rows = [measures.Row("a", "MiB", judge(lambda part: 5.0, Bound(1))),
            measures.Row("b", "", Verdict([], 0, 1, Bound(1)))]
    lines = run.table(rows).splitlines()
    assert lines[2] == "| a | 5 MiB | +0 | +0..+0 | 1 | flat |"
    assert lines[3] == "| b | | | | | unclear |"
    assert json.loads(json.dumps([row.document() for row in rows]))[1]["growth"] is None


# -- what is read, and drawn


def test_a_family_is_sorted_by_what_its_processes_are_for(cloister, acme, session):
    assert acme.run(session, "$ true").status == "completed"
    family = Family(cloister.main_pid())
    assert {name: len(pids) for name, pids in family.classes.items()
            if name in ("launcher", "server", "keeper", "postmaster")} == \
        {"launcher": 1, "server": 1, "keeper": len(family.classes["courier"]), "postmaster": 1}
    assert family.classes["server"] == [cloister.server().pid]
    assert family.classes["backends"] and family.classes["workers"]
    box = family.sandboxes[cloister.tenants["acme"].id]
    assert box["runner"] == [cloister.runner("acme").pid]
    assert box["sentry"] == [cloister.sentry("acme").pid]
    assert box["slirp4netns"] and box["gofer"] and box["stubs"]
    assert len(family.pids()) == len(set(family.pids())), "each process is of one kind"


def test_the_size_of_a_directory_is_what_it_takes_on_the_disk(tmp_path):
    os.makedirs(tmp_path / "a" / "left")
    (tmp_path / "a" / "f").write_bytes(b"x" * 5000)
    (tmp_path / "a" / "left" / "g").write_bytes(b"x" * 100000)
    taken, number = size_of(str(tmp_path), (f"{tmp_path}/a/left",))
    assert number == 1 and 5000 <= taken <= 16384
    assert size_of(str(tmp_path))[1] == 2


@pytest.mark.parametrize("value, above", [(0, 1), (1, 1), (1.1, 1.5), (7, 8), (0.03, 0.03),
                                          (99, 100), (101, 150)])
def test_an_axis_ends_at_a_round_number(value, above):
    assert round_up(value) == pytest.approx(above)


def test_the_drawing_is_xml_and_within_its_frame():
    panels = [Panel("a < b", {"x & y": [(0, 1.0), (30, 4.0)], "none": []}),
              Panel("empty", {})]
    root = tree.fromstring(draw(panels, 30))
    _, _, width, height = map(float, root.get("viewBox").split())
    space = "{http://www.w3.org/2000/svg}"
    lines = root.findall(f"{space}polyline")
    assert len(lines) == 1
    points = [tuple(map(float, p.split(","))) for p in lines[0].get("points").split()]
    assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    assert points[0][1] > points[1][1], "more is higher"
    assert "x & y" in [t.text for t in root.findall(f"{space}text")]


def test_the_script_says_how_it_is_called():
    done = subprocess.run([f"{ROOT}/scripts/soak"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "usage: scripts/soak" in done.stderr


def test_a_short_run_comes_to_its_end(tmp_path):
    for program in ("cloisterd", "cloister-runner", "cloister-guest"):
        os.symlink(os.path.join(os.path.abspath(BUILD), program), tmp_path / program)
    done = subprocess.run([f"{ROOT}/scripts/soak", "--minutes", "0.3", "--seed", "1", tmp_path],
                          capture_output=True, text=True, check=False)
    assert re.search(r"^soak: \d+ flat, \d+ grow, \d+ unclear, 0 wrong, 0 left behind$",
                     done.stdout, re.MULTILINE), done.stdout[-4000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) turns; refused: ", done.stdout)[1]) > 20
    with open(tmp_path / "soak.json", encoding="utf-8") as f:
        document = json.load(f)
    assert document["seconds"] == 18
    assert {p["what"] for p in document["pairs"]} >= {"GET /healthz, median",
                                                      "turn with a command, p95"}
