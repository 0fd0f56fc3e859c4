"""What a sanitizer says of any process is seen by these tests: each is made to fault on purpose.

A sanitizer build can be asked for faults (common/sanitizer.h), one at the end of each process,
when all of its walls stand. A release has nothing of it.
"""

import re
import shutil

import pytest

from daemon import Daemon
from provider.models import declare, entry
from provider.server import Play
from world import ADDRESSES, THREADS

FAULT = "CLOISTER_FAULT"
# Every process, and the size by which its report is known.
SIZES = {"launcher": 1009, "server": 1013, "keeper": 1019, "courier": 1021, "runner": 1031,
         "guest": 1033, "exec": 1039}


def test_only_sanitizer_builds_can_be_asked(world):
    for program in ("cloisterd", "cloister-runner", "cloister-guest"):
        with open(f"{world.programs}/{program}", "rb") as f:
            asked = FAULT.encode() in f.read()
        assert asked == (ADDRESSES or (THREADS and program == "cloisterd")), program


@pytest.fixture
def life(world, provider):
    """The log of a daemon that has a courier and a sandbox, in which everybody of those faults."""

    def live(kind, who=tuple(SIZES)):
        daemon = Daemon(world, ("acme",))
        daemon.environment[FAULT] = " ".join(f"{name}={kind}:{SIZES[name]}" for name in who)
        daemon.start(models=declare(daemon, entry("m", "chat-completions", provider.url)))
        provider.will(Play("calls"), Play("text"))
        acme = daemon.client("acme")
        assert acme.run(acme.session(model="m"), "look").status == "completed"
        assert daemon.running("acme")
        daemon.expect_no_report()
        for end in (daemon.stop, daemon.kill):
            if who:  # the check that every test makes
                with pytest.raises(AssertionError, match="Sanitizer|runtime error: "):
                    end()
            else:
                end()
        log = daemon.log()
        shutil.rmtree(daemon.var)
        return log

    return live


def test_without_a_fault_nothing_is_reported(life):
    """And each process whose list is longer than a release's has said so once."""
    said = re.findall(r": (\w+), sanitizer build, not for use: ", life("leak", ()))
    assert sorted(said) == (["courier", "runner", "server"] if ADDRESSES else
                            ["courier", "server"] if THREADS else [])


@pytest.mark.skipif(not ADDRESSES, reason="needs a build with AddressSanitizer")
def test_a_leak_of_each_process_is_seen(life):
    found = re.findall(r"irect leak of (\d+) byte\(s\) in (\d+) object", life("leak"))
    assert {int(size) // int(n) for size, n in found} == set(SIZES.values())


@pytest.mark.skipif(not ADDRESSES, reason="needs a build with AddressSanitizer")
def test_an_overflow_in_each_process_is_seen(life):
    found = re.findall(r"WRITE of size (\d+) at", life("overflow"))
    assert {int(size) - 1 for size in found} == set(SIZES.values())


@pytest.mark.skipif(not ADDRESSES, reason="needs a build with UndefinedBehaviorSanitizer")
def test_undefined_behaviour_of_each_process_is_seen(life):
    found = re.findall(r"runtime error: shift exponent (\d+) is too large", life("undefined"))
    assert {int(size) for size in found} == set(SIZES.values())


@pytest.mark.skipif(not THREADS, reason="needs a build with ThreadSanitizer")
def test_a_race_in_the_daemon_is_seen(life):
    """Not demanded of the courier: without leaks to count, the server does not wait for it."""
    found = re.findall(r"heap block of size (\d+) at", life("race", ("launcher", "server")))
    assert {int(size) for size in found} == {SIZES["launcher"], SIZES["server"]}
