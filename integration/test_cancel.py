"""A cancel is answered within two seconds, whatever the model's provider does, or who asks it."""

import signal

import pytest

from provider.models import declare, entry
from provider.server import Hang, Provider
from test_provider_process import courier
from world import punctual


@pytest.fixture
def provider():
    server = Provider()
    yield server
    server.close()


@pytest.mark.parametrize("stopped", [False, True], ids=["silent", "stopped"])
def test_a_model_that_says_nothing(make_daemon, provider, stopped):
    """silent: the provider never answers. stopped: nor does our own process that asks it."""
    daemon = make_daemon(("acme",))
    daemon.start(models=declare(daemon, entry("near", "responses", provider.url)))
    client = daemon.client("acme")
    session = client.session(model="near")

    def attempt():
        hang = provider.will(Hang())
        turn = client.start(session, "wait")
        assert hang.began.wait(20)
        process = courier(daemon)
        if stopped:
            process.kill(signal.SIGSTOP)
        try:
            client.cancel_in_time(turn)
        finally:
            if stopped:
                process.kill(signal.SIGCONT)
        assert hang.gone.wait(20), "the connection to the provider is still open"

    punctual(attempt)
    provider.will()
    assert client.run(session, "go on").status == "completed"
    assert daemon.stop() == 0
