"""Wrong tokens in a flood, with ids of credentials and without, on the installed service: the tests
of the end-to-end suite, while a tenant of whom they know nothing works."""

import pytest

import test_credentials
from neighbour import at_work

COARSE = 0.1  # of a time: what an emulated processor must not make


def service_with(installed, attempts):
    installed.options(max_failed_attempts=attempts)
    installed.restart()
    yield installed
    installed.options()
    installed.restart()


@pytest.fixture
def impatient(installed, network):
    yield from service_with(installed, 4)


@pytest.fixture
def patient(installed, network):
    yield from service_with(installed, 1000000)


def test_a_flood_touches_nobody_else(impatient, monkeypatch):
    """Known and unknown are answered alike, 401 and then 429; an event stream and a turn go on. Fewer
    attempts than elsewhere, and fewer that are forgiven: an emulated processor makes few a second."""
    monkeypatch.setattr(test_credentials, "FLOOD", 30)
    with at_work(impatient, "initech"):
        test_credentials.test_a_flood_touches_nobody_else(impatient)


def test_no_time_tells_a_known_id(patient, capsys):
    """Told, and judged by a coarse measure only: integration/test_credentials.py has the fine one,
    where time is that of a processor."""
    times = test_credentials.Times(patient)
    times.measure()
    times.prober.socket.close()
    with capsys.disabled():
        print(f"\n    {times}; by more than a hundredth differ: {times.tells() or 'none'}")
    assert times.tells(share=COARSE) == []
