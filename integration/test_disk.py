"""A tenant fills the disk that it shares with the database: it loses its sandbox, and no more."""

import glob
import os
import subprocess

import pytest

from daemon import give
from world import eventually, output_of

OPTIONS = ["--disk-start-mb=170", "--disk-end-mb=95", "--disk-reserve-mb=64"]


@pytest.fixture
def small(make_daemon):
    """A daemon whose state directory is a file system of 440 MiB."""
    daemon = make_daemon(options=OPTIONS)
    output_of("mount", "-t", "tmpfs", "-o", "size=440m", "tmpfs", daemon.state)
    give(daemon.state, 0o700)
    yield daemon
    daemon.kill()
    subprocess.run(["umount", "--lazy", daemon.state], check=True)


@pytest.mark.parametrize("how", [
    pytest.param("cat /dev/zero >/state/home/full", id="quickly"),
    pytest.param("for m in 256 128 64 32 16 8 4 2 1; do fallocate -l ${m}M /state/home/full$m; "
                 "done; cat /dev/zero >/state/home/full",
                 id="at-once")])
def test_a_full_disk(small, how):
    small.start()
    acme, globex = small.client("acme"), small.client("globex")
    mine, theirs = acme.session(), globex.session()
    assert "here" in str(globex.tool(theirs, "shell", command="echo here").output)
    outcome = acme.watch(mine, f"$ {how}; sleep 60", 60)
    assert outcome.details["reason"] == "disk_full", outcome.turn
    # The database goes on, for all.
    refused = globex.tool(theirs, "shell", command="echo again")
    assert (refused.status, refused.error["code"]) == ("failed", "disk_full"), refused.turn
    assert "disk" in refused.error["message"] and small.var not in refused.error["message"]
    for _ in range(20):
        globex.session()
    assert small.stop() == 0
    # A restart needs the reserve at most, and finds the disk as full as it was.
    small.start()
    refused = small.client("acme").tool(mine, "shell", command="true")
    assert refused.error["code"] == "disk_full"
    for full in glob.glob(f"{small.state}/tenants/*/state/home/full*"):
        os.unlink(full)
    eventually(lambda: "back" in str(
        small.client("acme").tool(mine, "shell", command="echo back").output), 20, "room again")
    assert small.stop() == 0
