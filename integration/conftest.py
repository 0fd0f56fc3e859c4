"""Fixtures. Most tests share one daemon; those that kill things make their own."""

import contextlib
import os
import shutil
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import pytest  # noqa: E402

from contract import CONTRACT  # noqa: E402
from daemon import TENANTS, Daemon  # noqa: E402
from provider.server import Provider  # noqa: E402
from world import World  # noqa: E402

LOG_LINES = 40
worlds = []


@pytest.fixture(scope="session")
def world():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if os.geteuid() != 0:
        pytest.exit("these tests need root: they make namespaces and become the service user", 2)
    world = World()
    try:
        world.open()
        worlds.append(world)
        yield world
    finally:
        world.close()


@pytest.fixture(scope="module", autouse=True)
def room():
    """What a file's daemons have stored goes with it, or the last files would find a full disk."""
    yield
    for world in worlds:
        world.make_room()


@pytest.fixture(scope="session")
def cloister(world):
    """The daemon that tests share; at the end it must stop in order and leave nobody."""
    daemon = Daemon(world, TENANTS, first=True).start()
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    world.daemons.remove(daemon)


@pytest.fixture(autouse=True)
def still_there(request):
    """A test must not bring down the daemon that the others use."""
    yield
    if "cloister" in request.fixturenames:
        daemon = request.getfixturevalue("cloister")
        assert daemon.alive(), "the shared daemon died"
        daemon.expect_no_report()


@pytest.fixture
def make_daemon(world):
    """Makes daemons of the test's own; whatever is left of them at its end is a failure."""
    made = []

    def make(*arguments, **options):
        made.append(Daemon(world, *arguments, **options))
        return made[-1]

    yield make
    # Each of these is done, the last one first, whichever of them fails.
    with contextlib.ExitStack() as ends:
        for daemon in made:
            ends.callback(shutil.rmtree, daemon.var, ignore_errors=True)
        ends.callback(world.expect_nobody)
        for daemon in made:
            ends.callback(daemon.end)


@pytest.fixture(scope="module")
def provider():
    """Where models of providers are asked; on loopback."""
    server = Provider()
    yield server
    server.close()


@pytest.fixture
def acme(cloister):
    return cloister.client("acme")


@pytest.fixture
def globex(cloister):
    return cloister.client("globex")


@pytest.fixture
def session(acme):
    return acme.session()


# --- every error code ------------------------------------------------------------------
# The tests may run in several processes (xdist). Each tells the first one which error codes
# its tests have seen, and that one judges: when everything was run, no code may be missing.


def is_whole(config):
    here = os.path.dirname(os.path.realpath(__file__))
    option = config.option
    return [os.path.realpath(a) for a in config.args] == [here] and \
        not (option.keyword or option.ignore or option.maxfail)


def missing_codes(config):
    if hasattr(config, "workerinput") or not is_whole(config):
        return set()
    return CONTRACT.error_codes() - CONTRACT.produced


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    CONTRACT.produced |= {tuple(seen) for seen in node.workeroutput.get("produced", [])}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["produced"] = [list(seen) for seen in CONTRACT.produced]
    elif session.exitstatus == pytest.ExitCode.OK and missing_codes(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    for missing in sorted(missing_codes(config), key=str):
        terminalreporter.write_line(f"no test produced this error: {missing}", red=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    world = getattr(item, "funcargs", {}).get("world")
    if report.failed and world:
        for daemon in world.daemons:
            tail = daemon.log().splitlines()[-LOG_LINES:]
            report.sections.append((f"log of {daemon.var}", "\n".join(tail)))
