"""The control of the reset test: the same with a database that does not flush. If boot3 found
everything in that case too, boot2 would have proven nothing."""

import glob
import os

import pytest

import reset

PLACE = "/usr/local/lib/no-fsync"
POSTGRES = """#!/bin/sh
case "$*" in
*--single*) exec {real} "$@" ;;
*) exec {real} "$@" -c fsync=off ;;
esac
"""


# It judges the test, not the service.
@pytest.mark.long
def test_the_same_without_fsync(installed, network, acme):
    installed.stop()
    real = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
    os.mkdir(PLACE)
    for name in os.listdir(real):
        os.symlink(f"{real}/{name}", f"{PLACE}/{name}")
    os.unlink(f"{PLACE}/postgres")
    with open(f"{PLACE}/postgres", "w", encoding="utf-8") as f:
        f.write(POSTGRES.format(real=f"{real}/postgres"))
    os.chmod(f"{PLACE}/postgres", 0o755)
    installed.options(postgres_bin=PLACE)
    installed.start()
    reset.hold_back()
    reset.accept(acme)
