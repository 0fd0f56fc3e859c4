"""What "make install" leaves on the machine."""

import grp
import os
import pwd
import stat

import pytest

import service as services
from service import LIB, PROGRAMS, UNIT, run

pytestmark = pytest.mark.short


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_programs_are_roots_and_nobody_elses_to_change():
    for name in ("cloisterd", "cloister-runner", "cloister-guest"):
        status = os.stat(f"{PROGRAMS}/{name}")
        assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, 0, 0o755), name
    assert os.path.dirname(PROGRAMS) == f"{LIB}/releases"
    for path in (PROGRAMS, f"{LIB}/releases", LIB, "/etc/cloister", "/srv/cloister"):
        assert os.stat(path).st_uid == 0 and not mode(path) & 0o022, path
    assert os.path.realpath("/usr/bin/cloisterd") == f"{PROGRAMS}/cloisterd"
    assert "cloisterd" in run("cloisterd", "version").stdout


def test_the_service_user_is_nobody_else():
    user = pwd.getpwnam(services.USER)
    assert user.pw_uid not in (0, 65534) and user.pw_shell.endswith("nologin")
    assert [g.gr_name for g in grp.getgrall() if services.USER in g.gr_mem] == []
    assert grp.getgrgid(user.pw_gid).gr_name == services.USER


def test_tun_is_what_sandboxes_need():
    assert mode("/dev/net/tun") == 0o666


def test_systemd_understands_the_unit():
    done = run("systemd-analyze", "verify", f"/usr/lib/systemd/system/{UNIT}", check=False)
    said = [line for line in (done.stdout + done.stderr).splitlines() if UNIT in line and
            # Before version 254; the daemon moves itself there.
            "DelegateSubgroup" not in line]
    assert done.returncode == 0 and said == [], said


def test_exposure(capsys):
    """The figure that systemd gives the hardening; the unit must not get worse."""
    done = run("systemd-analyze", "security", "--no-pager", UNIT)
    figure = done.stdout.strip().splitlines()[-1]
    with capsys.disabled():
        print(f"\n    {figure}")
    assert float(figure.split(":")[1].split()[0]) <= 3.0
