"""The parts of "make bench" that figures are made with, and what it measures by name."""

import json
import math
import struct
import sys

import pytest

from world import ROOT

sys.path.insert(0, f"{ROOT}/bench")

from figures import HEADINGS, Goal, Row, Series, notes, quantile, table  # noqa: E402
from peers import wire  # noqa: E402
from recorder import Frontend, Statement  # noqa: E402
from rows import ALL, Scale, about, measure  # noqa: E402
import main as bench  # noqa: E402
from rows_turns import again  # noqa: E402

SESSION = "01a228b3-a0bd-7001-9393-5fb097b65196"
TURN = "01a228b3-a308-7001-b42e-2471f834e452"


def test_quantiles_lie_between_neighbours():
    assert quantile([4, 1, 3, 2], 0) == 1
    assert quantile([4, 1, 3, 2], 1) == 4
    assert quantile([4, 1, 3, 2], 0.5) == 2.5
    assert quantile([10, 20], 0.25) == 12.5
    assert quantile([7], 0.75) == 7


def test_a_series_is_never_empty():
    with pytest.raises(AssertionError, match="nothing was measured"):
        Series("x", "ms", [])


@pytest.mark.parametrize("goal, value, met", [
    (Goal(1.5), 1.5, True), (Goal(1.5), 1.51, False),
    (Goal(0.9, at_least=True), 0.9, True), (Goal(0.9, at_least=True), 0.89, False)])
def test_a_goal_that_is_just_reached_is_met(goal, value, met):
    assert goal.met(value) is met


def row(**more):
    return Row("x", Series("a", "ms", [2, 4, 6]), Series("b", "ms", [1, 2, 12]), **more)


def test_a_ratio_is_that_of_the_medians_and_spreads_over_the_pairs():
    measured = row(goal=Goal(1.5))
    assert measured.value == 2 and measured.met is False
    assert measured.paired == (1.25, 2)
    assert measured.value_unit == "×"


def test_a_difference_is_in_the_unit_of_its_sides():
    measured = row(goal=Goal(2, unit="ms"), difference=True)
    assert measured.value == 2 and measured.met is True
    assert measured.value_unit == "ms"
    assert measured.paired == (-2.5, 1.5)


def test_a_row_without_another_side_is_judged_by_its_value():
    alone = Row("x", Series("a", "MiB", [41]), None, Goal(40, unit="MiB"))
    assert alone.value == 41 and alone.met is False and alone.paired is None
    assert alone.cells() == ["x", "41 MiB", "", "", "≤ 40 MiB", "missed"]


def test_sides_of_different_length_have_no_pairs():
    assert Row("x", Series("a", "s", [1, 2]), Series("b", "s", [1])).paired is None


def test_the_document_is_json_with_every_figure():
    document = json.loads(json.dumps(row(goal=Goal(1.5), note="n").document()))
    assert document["ours"] == {"name": "a", "unit": "ms", "count": 3, "median": 4, "low": 3,
                                "high": 5, "minimum": 2, "maximum": 6}
    assert document["goal"] == "≤ 1.5 ×" and document["met"] is False
    assert math.isclose(document["value"], 2)


def test_the_table_has_equal_lines():
    lines = table([row(goal=Goal(1.5)), Row("longer", Series("a", "ms", [1]))]).splitlines()
    assert len(lines) == 4 and len({len(line) for line in lines}) == 1
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == HEADINGS


def test_both_sides_are_named_and_notes_follow():
    rows = [row(note="with care"), Row("longer", Series("a", "ms", [1]))]
    assert rows[0].cells()[2] == "b: 2 ms (1.5..7)"
    assert notes(rows) == ["x: with care"]


def test_the_written_document_leaves_out_what_failed(tmp_path, monkeypatch):
    name = next(iter(ALL))
    monkeypatch.setattr(bench.here, "BUILD", str(tmp_path))
    path = bench.write({"processors": 2}, {name: {"rows": [row()], "seconds": 1.25, "load": []},
                                           "failed": None}, Scale(short=True))
    with open(path, encoding="utf-8") as f:
        document = json.load(f)
    assert document["version"] == 1 and document["short"] is True
    assert [m["name"] for m in document["measures"]] == [name]
    assert document["measures"][0]["rows"][0]["value"] == 2


def test_an_unknown_row_is_refused_and_the_known_ones_are_listed(capsys):
    assert bench.main(["healthz", "nothing"]) == "bench: there is no nothing"
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ALL)


def test_a_measure_has_a_name_of_its_own_and_says_what_it_is():
    with pytest.raises(AssertionError):
        measure("healthz")(lambda place, scale: [])
    assert all(about(name) for name in ALL)


def test_the_measures_that_have_goals_are_there():
    assert set(ALL) >= {"first-exec", "warm-exec", "get", "healthz", "fan-out", "idle-streams",
                        "silent", "tenants", "turn-cost"}


def message(kind, body):
    return kind + struct.pack("!I", 4 + len(body)) + body


def bind(name, formats, values):
    body = b"\0" + name + b"\0" + struct.pack(f"!{1 + len(formats)}H", len(formats), *formats)
    body += struct.pack("!H", len(values))
    for value in values:
        body += struct.pack("!i", -1 if value is None else len(value)) + (value or b"")
    return message(b"B", body + b"\0\1\0\1")


def test_statements_are_read_with_their_values():
    found = []
    frontend = Frontend(b"\0\0\0\x08\0\3\0\0user\0cr_1\0database\0ct_1\0\0", found)
    for one in (message(b"Q", b"BEGIN\0"),
                message(b"P", b"s2\0UPDATE app.turn\n SET error = $2\0\0\1\0\0\0\0"),
                message(b"P", b"\0SELECT 1\0\0\0"), bind(b"", [], []), message(b"E", b"\0" * 5),
                bind(b"s2", [0, 1, 0], [TURN.encode(), b"\0\xff", None]),
                bind(b"s2", [1], [b"a", b"b"]), bind(b"s2", [], [b"it's", "ü".encode()]),
                message(b"Q", b"COMMIT\0")):
        frontend.take(one)
    begin, select, update, binary, text, commit = found
    assert (begin.sql, commit.sql) == ("BEGIN", "COMMIT") and not commit.parameters
    assert (commit.database, commit.role) == ("ct_1", "cr_1")
    assert (select.sql, select.parameters) == ("SELECT 1", [])
    assert update.sql == "UPDATE app.turn\n SET error = $2"
    assert update.parameters == [TURN, "\\x00ff", None]
    assert binary.parameters == ["\\x61", "\\x62"] and text.parameters == ["it's", "ü"]


def test_a_replay_gives_new_ids_new_names_and_keeps_the_rest():
    one = Statement("d", "r", "A", [TURN, SESSION, "hello"])
    two = Statement("d", "r", "B", [SESSION, TURN, None])
    first, second = again([one, two], {SESSION})
    assert first.parameters[1:] == [SESSION, "hello"] and second.parameters[2] is None
    assert first.parameters[0] == second.parameters[1] != TURN
    assert one.parameters[0] == TURN


def test_the_wire_form_counts_bytes():
    assert wire([Statement("d", "r", "SELECT $1", ["ü", None])]) == "1\nd r 2\n9\nSELECT $1\n2\nü\n-1\n"
