"""A sandbox that makes noise: what it costs those who listen."""

import os
import time

import pytest

from sandbox import Sandbox
from world import descendants, eventually

TICKS = os.sysconf("SC_CLK_TCK")


@pytest.fixture
def sandbox(world):
    directory = world.new_directory()
    made = Sandbox(world.programs, world.rootfs, directory)
    yield made.start()
    made.close()
    world.expect_nobody()


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        user, system = f.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / TICKS


def test_noise_on_the_runners_standard_error(sandbox):
    """It reaches the log up to a bound, and costs the runner next to nothing after that."""
    call = sandbox.begin(shell="cat /dev/zero >/proc/1/fd/2")
    eventually(lambda: "the rest is dropped" in sandbox.log(), 20, "the bound of the log")
    before, size = processor_seconds(sandbox.process.pid), len(sandbox.log())
    begin = time.monotonic()
    time.sleep(3)
    used = (processor_seconds(sandbox.process.pid) - before) / (time.monotonic() - begin)
    print(f"{100 * used:.1f} % of a processor")
    assert used < 0.05, used
    assert len(sandbox.log()) == size
    assert sandbox.stop() == 0
