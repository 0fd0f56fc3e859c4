"""After a reset of the machine in the middle of work."""

import pytest

import reset
from client import TERMINAL
from service import UNIT, run
from world import eventually

pytestmark = pytest.mark.short


def test_the_service_came_up_by_itself(installed):
    assert installed.active(), installed.journal()
    assert run("systemctl", "is-enabled", UNIT).stdout.strip() == "enabled"
    assert installed.show("NRestarts") == "0"


def test_nothing_accepted_is_lost(acme):
    assert reset.lost(acme) == []


def test_the_running_turn_comes_to_an_end(acme):
    turn = reset.read()["running"]
    if acme.turn(turn)["status"] not in TERMINAL:
        acme.cancel(turn)
    eventually(lambda: acme.turn(turn)["status"] in TERMINAL, 60, "the turn's end")


def test_the_sandbox_starts_over_what_was_left(acme):
    outcome = acme.run(acme.session(model="demo"), "$ echo alive")
    assert "alive" in outcome.text
