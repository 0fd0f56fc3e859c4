"""cloisterd doctor, in a unit like the service's, finds nothing wrong."""

import re

import pytest

from service import UNIT, read, run

pytestmark = pytest.mark.short

DOCTOR = "cloister-doctor.service"
LINE = re.compile(r"^(ok|failed|n/a) +([a-z0-9-]+) +(\S.*)$", re.MULTILINE)
# Of the service alone: it stays and can be reloaded, and is ready before this would end.
OTHERWISE = ("Type=", "NotifyAccess=", "ExecReload=", "Restart", "TimeoutStartSec=")


# What /run holds in there, and whether a credential gets through.
LOOK = """/bin/sh -c 'echo "run: $$(ls /run | xargs)"; \
echo "credential: $$(cat $$CREDENTIALS_DIRECTORY/probe)"'"""


def unit():
    """The service's own unit, with another command, and a look around before it."""
    lines = [line for line in read(f"/usr/lib/systemd/system/{UNIT}").splitlines()
             if not line.startswith(OTHERWISE)]
    text = "\n".join(lines).replace("/cloisterd serve ", "/cloisterd doctor ", 1)
    more = f"[Service]\nType=oneshot\nLoadCredential=probe:/etc/hostname\nExecStartPre={LOOK}"
    return text.replace("[Service]", more, 1)


def test_the_doctor_is_content(service, network, capsys):
    with open(f"/run/systemd/system/{DOCTOR}", "w", encoding="utf-8") as f:
        f.write(unit())
    run("systemctl", "daemon-reload")
    done = run("systemctl", "start", DOCTOR, check=False)
    said = run("journalctl", "-u", DOCTOR, "-o", "cat", "-n", "200").stdout
    verdicts = {name: verdict for verdict, name, _ in LINE.findall(said)}
    with capsys.disabled():
        print("\n" + "\n".join(f"    {m[0]}" for m in LINE.finditer(said)))
    assert done.returncode == 0, said
    assert "credential: cloister-vm\n" in said, said
    there = re.search(r"^run:(.*)$", said, re.MULTILINE)[1].split()
    assert set(there) <= {"credentials", "systemd"}, there
    assert set(verdicts.values()) == {"ok"}, said
    assert {"cgroup", "installed", "limits", "memory-limit", "egress-public", "egress-host",
            "egress-private", "egress-metadata", "egress-ipv6", "dns", "postgresql"} <= \
        set(verdicts)
    assert service.active()
