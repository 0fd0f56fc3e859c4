"""Fixtures of the tests in the machine. One service, one network, shared by all."""

import pytest

import service as services
from network import Network

TENANTS = ("acme", "globex", "initech", "umbrella")


@pytest.fixture(scope="session")
def network():
    network = Network()
    yield network
    network.close()


@pytest.fixture(scope="session")
def installed():
    """The installed service with its tenants declared, whatever its state."""
    return services.Service(TENANTS)


@pytest.fixture
def service(installed, network):
    """The service, running. When it cannot start, every test says so at once."""
    assert not installed.start_failed, "the service could not be started before"
    if not installed.active():
        installed.start()
    return installed


@pytest.fixture
def acme(service):
    return service.client("acme")


@pytest.fixture
def globex(service):
    return service.client("globex")


@pytest.fixture
def cloister(service):
    """What the tests of integration/ call it."""
    return service


@pytest.fixture
def session(acme):
    return acme.session()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    report = outcome.get_result()
    installed = getattr(item, "funcargs", {}).get("installed")
    if report.failed and installed:
        report.sections.append(("journal of the unit", installed.journal(60)))
