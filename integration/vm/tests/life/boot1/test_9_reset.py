"""The last test of the first boot. After it the machine is reset; boot2 looks at the rest."""

import pytest

import reset
from service import UNIT, run


@pytest.mark.short
def test_work_is_accepted_and_then_the_machine_is_reset(service, acme):
    run("systemctl", "enable", UNIT)
    reset.hold_back()
    reset.accept(acme)
