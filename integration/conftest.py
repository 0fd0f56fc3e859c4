"""Fixtures. Most tests share one daemon; those that kill things make their own."""

import os
import shutil
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import pytest  # noqa: E402

from daemon import SANITIZER, TENANTS, Daemon  # noqa: E402
from world import World  # noqa: E402

LOG_LINES = 40


@pytest.fixture(scope="session")
def world():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if os.geteuid() != 0:
        pytest.exit("these tests need root: they make namespaces and become the service user", 2)
    world = World()
    try:
        world.open()
        yield world
    finally:
        world.close()


@pytest.fixture(scope="session")
def cloister(world):
    """The daemon that tests share; at the end it must stop in order and leave nobody."""
    daemon = Daemon(world, TENANTS).start()
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
        assert not SANITIZER.search(daemon.log()), daemon.log()[-4000:]


@pytest.fixture
def make_daemon(world):
    """Makes daemons of the test's own; whatever is left of them at its end is a failure."""
    made = []

    def make(*arguments, **options):
        made.append(Daemon(world, *arguments, **options))
        return made[-1]

    yield make
    for daemon in made:
        daemon.kill()
    world.expect_nobody()
    for daemon in made:
        shutil.rmtree(daemon.var, ignore_errors=True)


@pytest.fixture
def acme(cloister):
    return cloister.client("acme")


@pytest.fixture
def globex(cloister):
    return cloister.client("globex")


@pytest.fixture
def session(acme):
    return acme.session()


WHOLE = "test_every_error_code_was_produced"  # needs what all other tests have seen


def pytest_collection_modifyitems(session, config, items):
    """That test comes last, and only when everything is run."""
    last = [item for item in items if item.name == WHOLE]
    files = {os.path.basename(item.path) for item in items}
    here = {name for name in os.listdir(os.path.dirname(__file__)) if name.startswith("test_")}
    named = any("::" in argument for argument in config.args)
    whole = here <= files and not named and not config.option.keyword
    items[:] = [item for item in items if item not in last] + (last if whole else [])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    world = getattr(item, "funcargs", {}).get("world")
    if report.failed and world:
        for daemon in world.daemons:
            tail = daemon.log().splitlines()[-LOG_LINES:]
            report.sections.append((f"log of {daemon.var}", "\n".join(tail)))
