"""What NixOS adds to the unit, played with the module's own files (integration/vm/nixos.nix): a
step with root's powers makes directories, copies of tokens, and quotas that tenants meet. And the
commands for the latter on Debian."""

import json
import os
import pwd
import re
import stat

import pytest

from client import Client
from service import PORT, REGISTRY, STATE, USER, documented, follow, run

LIST, SECRETS, COPIES = "/etc/cloister/tenants.list", "/run/secrets", "/run/cloister-secrets"
BOUNDED, HOMES = "/srv/bounded", f"{STATE}/tenants"
PROGRAMS = {"nsenter": "/usr/bin/nsenter", "prepare-tenants": "/opt/cloister/nix/prepare-tenants",
            "cloisterd": "/usr/lib/cloister/cloisterd"}
FULL = ("No space left on device", "Disk quota exceeded")
MIB = 1 << 20


class Disk:
    """An ext4 that counts projects, in a file."""

    def __init__(self, name, where):
        self.file, self.where = f"/var/lib/cloister-vm/{name}", where
        run("truncate", "-s", "64M", self.file)
        run("mkfs.ext4", "-q", "-O", "project,quota", "-E", "nodiscard", self.file)
        os.makedirs(where, exist_ok=True)
        run("mount", "-o", "loop,prjquota", self.file, where)
        os.rmdir(f"{where}/lost+found")

    def close(self):
        run("umount", self.where)
        os.unlink(self.file)


def drop_in(unit, *without):
    """The lines of the module's unit, with the programs where they are here."""
    lines = ["[Service]", "ExecReload="]
    for key, values in unit.items():
        lines += [f"{key}={value}" for value in values if key not in without]
    return re.sub("/nix/store/[^/]*/bin/([a-z-]+)", lambda m: PROGRAMS[m[1]], "\n".join(lines)) + "\n"


class NixOS:
    def __init__(self, service):
        self.service = service
        with open("/opt/cloister/nixos.json", encoding="utf-8") as f:
            self.made = json.load(f)
        self.tokens = {name: name[0] * 7 + "-0123456789-0123456789-0123456789" for name in ("bounded", "free")}
        for name, token in self.tokens.items():
            # Root's, where whatever keeps secrets puts them.
            os.makedirs(SECRETS, exist_ok=True)
            with open(f"{SECRETS}/{name}", "w", encoding="utf-8", opener=private) as f:
                f.write(token)
        service.stop()
        self.disks = [Disk("bounded", BOUNDED), Disk("homes", HOMES)]
        user = pwd.getpwnam(USER)
        os.chown(HOMES, user.pw_uid, user.pw_gid)
        os.chmod(HOMES, 0o700)
        self.declare("first")
        service.drop_in("nixos", drop_in(self.made["first"]["unit"]))
        service.start()

    def declare(self, name):
        for path, text in ((LIST, self.made[name]["list"]),
                           (REGISTRY, json.dumps(self.made[name]["registry"]))):
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)

    def client(self, name):
        return Client(PORT, self.tokens[name])

    def home(self, name):
        entry = next(t for t in self.made["first"]["registry"]["tenants"] if t["name"] == name)
        return f"{HOMES}/{entry['id']}/state"

    def close(self):
        self.service.stop()
        self.service.drop_in("nixos")
        for disk in reversed(self.disks):
            disk.close()
        self.service.declare()


def private(path, flags):
    return os.open(path, flags, 0o600)


@pytest.fixture(scope="module")
def nixos(installed, network):
    nixos = NixOS(installed)
    yield nixos
    nixos.close()


def facts(path):
    found = os.lstat(path)
    return pwd.getpwuid(found.st_uid).pw_name, stat.S_IMODE(found.st_mode)


def fill(client, path, mib):
    """Writes that much; what dd said, and its exit status at the end."""
    return client.run(client.session(),
                      f"$ dd if=/dev/zero of={path} bs=64k count={16 * mib} 2>&1; echo status $?", 120).text


def blocks(path):
    return os.stat(path).st_blocks * 512


def expect_full(client, inside, outside, bound):
    text = fill(client, inside, 2 * bound // MIB)
    assert any(word in text for word in FULL) and "status 1" in text, text
    assert bound // 2 < blocks(outside) <= bound, blocks(outside)


def test_the_step_of_root_makes_what_the_service_needs(nixos):
    for name in nixos.tokens:
        assert facts(f"{BOUNDED}/deep/{name}") == (USER, 0o700)
        assert nixos.client(name).request("GET", "/v1/sessions").status == 200
    assert facts(f"{BOUNDED}/deep") == ("root", 0o755) and facts(COPIES) == ("root", 0o750)
    assert {facts(f"{COPIES}/{file}") for file in os.listdir(COPIES)} == {(USER, 0o400)}
    assert facts(f"{SECRETS}/free") == ("root", 0o600)


def test_a_tenant_meets_its_bound_and_no_other_does(nixos):
    """In the workspace and, on another file system, at home: bytes, and files."""
    bounded, free = nixos.client("bounded"), nixos.client("free")
    workspace = f"{BOUNDED}/deep/bounded"
    expect_full(bounded, "/workspace/filler", f"{workspace}/filler", MIB)
    expect_full(bounded, "~/filler", f"{nixos.home('bounded')}/home/filler", MIB)
    assert "status 0" in fill(free, "/workspace/filler", 4)
    text = bounded.run(bounded.session(), "$ rm filler; mkdir many; touch $(seq -f many/%g 1100) 2>&1 | "
                       "tail -n 1; ls many | wc -l", 300).text
    assert any(word in text for word in FULL), text
    assert 1000 < int(text.split()[-1]) < 1088, text
    assert "status 0" in fill(free, "/workspace/filler", 4)


def test_a_bound_is_changed_by_a_reload(nixos):
    bounded, pid = nixos.client("bounded"), nixos.service.main_pid()
    nixos.declare("larger")
    nixos.service.reload()
    assert "status 0" in fill(bounded, "/workspace/filler", 4)
    expect_full(bounded, "/workspace/filler", f"{BOUNDED}/deep/bounded/filler", 8 * MIB)
    assert nixos.service.main_pid() == pid


# A minute of writing, on an emulated processor.
@pytest.mark.long
def test_a_first_bound_counts_what_is_there_already(nixos):
    """Which waits for a start: no sandbox may move files about meanwhile."""
    free = nixos.client("free")
    assert "status 0" in fill(free, "/workspace/kept", 1)
    text = free.run(free.session(), "$ mkdir -p a/b; ln -s /etc/passwd a/link; mkfifo a/pipe; rm -f filler; "
                    "cp kept a/b/kept; echo at home >~/file; ls -R | wc -l", 120).text
    assert text.strip().isdigit(), text
    nixos.declare("both")
    said = nixos.service.fail_to_reload()
    assert "a first diskQuota needs its tenant's sandbox stopped" in said, said
    assert "status 0" in fill(free, "/workspace/filler", 2)
    free.run(free.session(), "$ rm filler")
    nixos.service.restart()
    # 2 MiB were there.
    text = fill(free, "/workspace/filler", 1)
    assert any(word in text for word in FULL) and blocks(f"{BOUNDED}/deep/free/filler") < MIB // 2, text
    expect_full(free, "~/filler", f"{nixos.home('free')}/home/filler", 2 * MIB)


@pytest.mark.long
def test_the_commands_for_debian_bound_a_tenant_too(nixos):
    commands = documented("operate-debian.md", "Bound what a tenant stores")[0]
    free = nixos.client("free")
    nixos.declare("first")
    nixos.service.restart()
    assert "status 0" in fill(free, "/workspace/more", 4)
    nixos.service.stop()
    os.unlink(f"{BOUNDED}/deep/free/more")
    follow(commands, **{
        " /srv\n": f" {BOUNDED}\n", "/srv/cloister/acme": f"{BOUNDED}/deep/free",
        f"{STATE}/tenants/ID/state": nixos.home("free"), "20971520": "3072", "1311744": "1216"})
    # The step of root's would lift what it does not know of.
    nixos.service.drop_in("nixos", drop_in(nixos.made["first"]["unit"], "ExecStartPre"))
    nixos.service.start()
    text = fill(free, "/workspace/more", 4)
    assert any(word in text for word in FULL) and "status 1" in text, text
    assert blocks(f"{BOUNDED}/deep/free/more") < 3 * MIB
