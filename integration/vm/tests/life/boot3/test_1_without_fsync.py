"""After the second reset, before which the database did not flush what it committed."""

import pytest

import reset

pytestmark = pytest.mark.long


def test_without_fsync_something_is_lost(installed):
    if installed.active():
        assert reset.lost(installed.client("acme")) != []
