"""The steps that a NixOS machine has done as root: nix/prepare-tenants, nix/upgrade-database."""

import glob
import os
import pwd
import shutil
import stat
import subprocess
import tempfile

import pytest

from daemon import AS_SERVICE
from world import ROOT, USER

SERVICE = pwd.getpwnam(USER)
TOKEN = "0123456789abcdef" * 2


class Machine:
    """A list, and where what it asks for goes. The tools for quotas only note their use."""

    def __init__(self, base):
        self.base, self.copies = base, f"{base}/run/cloister-secrets"
        self.list = f"{base}/list"
        self.lines = []
        self.notes = f"{base}/notes"
        self.mount = ""
        os.mkdir(f"{base}/run")
        os.mkdir(f"{base}/tools")
        for tool, body in (("setquota", ""), ("chattr", f"sed 's/.*-p \\([0-9]*\\).*/\\1/' <<<\"$*\" >{base}/project"),
                           ("lsattr", f'cat {base}/project 2>/dev/null || echo 0'),
                           ("findmnt", f"cat {base}/mount")):
            self.write(f"{base}/tools/{tool}", f'#!/bin/bash\necho "{tool} $*" >>{self.notes}\n{body}\n', 0o755)
        self.quotas(False)

    @staticmethod
    def write(path, text, mode=0o644):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)

    def quotas(self, counted):
        self.write(f"{self.base}/mount", "/srv rw,relatime" + (",prjquota" if counted else "") + "\n")

    def noted(self, tool):
        with open(self.notes, encoding="utf-8") as f:
            return [line.split(" ", 1)[1].rstrip() for line in f if line.startswith(tool)]

    def workspace(self, path, quota=0):
        self.lines.append(f"workspace\t77\t{quota}\t{path}")
        return path

    def token(self, name, file=None):
        file = file or f"{self.base}/secret-{name}"
        if not os.path.lexists(file):
            self.write(file, TOKEN + name, 0o600)
        self.lines.append(f"secret\t{name}\ttoken of acme\t{file}")

    def prepare(self, phase="start"):
        self.write(self.list, "".join(line + "\n" for line in self.lines))
        return subprocess.run(
            [f"{ROOT}/nix/prepare-tenants", self.list, USER, USER, self.copies, phase],
            capture_output=True, text=True, check=False,
            env={"PATH": f"{self.base}/tools:/usr/sbin:/usr/bin:/sbin:/bin"})

    def succeed(self, **options):
        done = self.prepare(**options)
        assert (done.returncode, done.stderr) == (0, "")

    def fail(self, message, **options):
        done = self.prepare(**options)
        assert done.returncode != 0 and message in done.stderr, done


@pytest.fixture
def machine():
    # Below directories of root's, as /srv is.
    base = tempfile.mkdtemp(prefix="cloister-test-", dir="/var/lib")
    os.chmod(base, 0o755)
    yield Machine(base)
    shutil.rmtree(base)


def facts(path):
    st = os.lstat(path)
    return pwd.getpwuid(st.st_uid).pw_name, stat.S_IMODE(st.st_mode)


def test_workspaces_and_tokens_are_made_and_stay(machine):
    path = machine.workspace(f"{machine.base}/srv/deep/acme dir")
    machine.token("one")
    for phase in ("start", "reload", "start"):
        machine.succeed(phase=phase)
        assert facts(path) == (USER, 0o700)
        assert facts(f"{machine.base}/srv/deep") == ("root", 0o755)
        assert facts(machine.copies) == ("root", 0o750)
        assert facts(f"{machine.copies}/one") == (USER, 0o400)
        with open(f"{path}/kept", "a", encoding="utf-8") as f:
            f.write("x")
    with open(f"{path}/kept", encoding="utf-8") as f:
        assert f.read() == "xxx"
    done = subprocess.run([*AS_SERVICE, "cat", f"{machine.copies}/one"], capture_output=True, text=True,
                          check=False)
    assert done.stdout == TOKEN + "one", done.stderr


def test_a_token_is_read_again_and_a_removed_one_is_gone(machine):
    machine.token("one")
    machine.token("two")
    machine.succeed()
    machine.write(f"{machine.base}/secret-one", TOKEN + "changed", 0o600)
    machine.lines.pop()
    machine.succeed(phase="reload")
    assert os.listdir(machine.copies) == ["one"]
    with open(f"{machine.copies}/one", encoding="utf-8") as f:
        assert f.read() == TOKEN + "changed"


def test_a_token_may_be_a_link_as_tools_for_secrets_make_them(machine):
    os.makedirs(f"{machine.base}/secrets.d/7")
    machine.write(f"{machine.base}/secrets.d/7/acme", TOKEN, 0o400)
    os.symlink(f"{machine.base}/secrets.d/7", f"{machine.base}/secrets")
    machine.token("one", f"{machine.base}/secrets/acme")
    machine.succeed()
    assert facts(f"{machine.copies}/one") == (USER, 0o400)
    assert not os.path.islink(f"{machine.copies}/one")


def test_a_token_that_is_missing_or_too_long_ends_it_and_changes_nothing(machine):
    machine.token("one")
    machine.succeed()
    machine.lines = ["secret\tnew\ttoken of globex\t/nonexistent/token"]
    machine.fail("token of globex: /nonexistent/token is not there", phase="reload")
    machine.lines = []
    machine.write(f"{machine.base}/secret-long", "x" * 4097)
    machine.token("long")
    machine.fail("has more than 4096 bytes", phase="reload")
    assert os.listdir(machine.copies) == ["one"]
    machine.write(f"{machine.base}/secret-long", "x" * 4096)
    machine.succeed(phase="reload")


def test_what_a_tenant_left_behind_leads_nowhere(machine):
    """A workspace below one that was a tenant's, who planted links there."""
    old = machine.workspace(f"{machine.base}/srv/old")
    machine.succeed()
    os.mkdir(f"{machine.base}/target")
    os.symlink(f"{machine.base}/target", f"{old}/link")
    for path, message in ((f"{old}/inner", f"{old} belongs to uid {SERVICE.pw_uid}"),
                          (f"{old}/link/inner", f"{old}/link is a symbolic link"),
                          (f"{old}/link", f"{old} belongs to uid")):
        machine.lines = []
        machine.workspace(path)
        machine.fail(message)
    assert os.listdir(f"{machine.base}/target") == [] and os.listdir(old) == ["link"]
    assert facts(f"{machine.base}/target")[0] == "root"


def test_what_is_there_is_never_given_away(machine):
    srv = f"{machine.base}/srv"
    os.makedirs(f"{srv}/roots")
    os.symlink(f"{srv}/roots", f"{srv}/link")
    machine.write(f"{srv}/file", "")
    for name, message in (("roots", "is not a directory of cloister (directory of root)"),
                          ("link", "is a symbolic link"), ("file", "is not a directory of cloister"),
                          ("file/below", f"{srv}/file is not a directory")):
        machine.lines = []
        machine.workspace(f"{srv}/{name}")
        machine.fail(message)
    assert facts(f"{srv}/roots")[0] == "root"


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_place_that_others_can_write_is_refused(machine, mode):
    machine.workspace(f"{machine.base}/srv/acme")
    os.mkdir(f"{machine.base}/srv")
    os.chmod(f"{machine.base}/srv", mode)
    machine.fail(f"{machine.base}/srv can be written by others than root (mode {mode:o})")
    os.chmod(f"{machine.base}/srv", 0o755)
    machine.succeed()


@pytest.mark.parametrize("path", ["srv", "/", "//srv/acme", "{base}/srv/", "{base}/srv//acme",
                                  "{base}/./srv", "{base}/srv/../acme", "{base}/.."])
def test_a_path_that_is_not_canonical_is_refused(machine, path):
    path = path.format(base=machine.base)
    machine.workspace(path)
    machine.fail(f"workspace '{path}' is no canonical absolute path")
    machine.lines = []
    machine.copies = path
    machine.fail(f"COPIES '{path}' is no canonical absolute path")
    assert not os.path.lexists(f"{machine.base}/srv")


def test_a_directory_of_somebody_else_does_not_become_that_of_the_copies(machine):
    place = f"{machine.base}/etc"
    os.mkdir(place)
    machine.write(f"{place}/passwd", "")
    before = os.lstat(place)
    machine.copies = place
    machine.fail("must end with the name cloister-secrets")
    machine.copies = f"{machine.base}/cloister-secrets"
    os.symlink(place, machine.copies)
    machine.fail("is a symbolic link")
    os.unlink(machine.copies)
    os.mkdir(machine.copies)
    shutil.chown(machine.copies, USER)
    machine.fail(f"{machine.copies} belongs to uid {SERVICE.pw_uid}")
    assert os.listdir(place) == ["passwd"]
    assert (os.lstat(place).st_gid, os.lstat(place).st_mode) == (before.st_gid, before.st_mode)


def test_a_workspace_directly_below_the_root(machine):
    path = machine.workspace(f"/{os.path.basename(machine.base)}-workspace")
    try:
        machine.succeed()
        assert facts(path) == (USER, 0o700)
    finally:
        os.rmdir(path)


def test_nobody_is_told_to_change_a_directory_of_the_system(machine):
    machine.workspace("/etc")
    done = machine.prepare()
    assert done.returncode != 0 and "workspace /etc is not a directory of cloister" in done.stderr
    assert "chown" not in done.stderr and "chmod" not in done.stderr


def test_a_line_that_is_not_understood_ends_it(machine):
    machine.lines = ["mount\t/\t/\t/"]
    machine.fail("a line begins with 'mount'")
    assert subprocess.run([f"{ROOT}/nix/prepare-tenants", machine.list], check=False,
                          capture_output=True).returncode == 1


def test_a_quota_is_set_where_the_file_system_counts(machine):
    path = machine.workspace(f"{machine.base}/srv/acme", 1024)
    machine.quotas(True)
    machine.succeed()
    assert machine.noted("chattr") == [f"-p 77 +P -- {path}"]
    assert machine.noted("setquota") == ["-P 77 0 1024 0 0 /srv"]
    # Another size, with files there: they count already.
    machine.write(f"{path}/file", "")
    machine.lines = []
    machine.workspace(path, 2048)
    machine.succeed(phase="reload")
    # And none.
    machine.lines = []
    machine.workspace(path)
    machine.succeed(phase="reload")
    assert machine.noted("setquota")[1:] == ["-P 77 0 2048 0 0 /srv", "-P 77 0 0 0 0 /srv"]
    assert len(machine.noted("chattr")) == 1


def test_a_first_quota_of_a_tenant_with_files_waits_for_a_start(machine):
    path = machine.workspace(f"{machine.base}/srv/acme")
    machine.succeed()
    machine.write(f"{path}/file", "")
    machine.quotas(True)
    machine.lines = []
    machine.workspace(path, 1024)
    machine.fail("needs its tenant's sandbox stopped: systemctl restart cloister", phase="reload")
    assert machine.noted("setquota") == machine.noted("chattr") == []
    machine.succeed(phase="start")
    assert machine.noted("chattr") == [f"-R -p 77 +P -- {path}"]


def test_a_quota_that_cannot_hold_is_refused(machine):
    machine.workspace(f"{machine.base}/srv/acme", 1024)
    machine.fail("its file system counts no projects, so diskQuota cannot hold")
    assert machine.noted("setquota") == []


# --- another PostgreSQL ----------------------------------------------------------------


def upgrade(daemon, old, new):
    return subprocess.run([f"{ROOT}/nix/upgrade-database", daemon.state, USER, old, new],
                          capture_output=True, text=True, check=False)


def test_a_database_is_carried_over_to_another_postgresql(make_daemon, tmp_path):
    """From a version to itself, which is all that is here: the way is the same."""
    os.chmod(tmp_path, 0o755)
    Machine.write(tmp_path / "postgres", "#!/bin/sh\necho 'postgres (PostgreSQL) 3.1'\n", 0o755)
    programs = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda p: int(p.split("/")[4]))
    version = programs.split("/")[4]

    def refused(old, message):
        done = upgrade(daemon, old, programs)
        assert done.returncode != 0 and message in done.stderr, done

    daemon = make_daemon(("acme",)).start()
    session = daemon.client("acme").session()
    refused(programs, "is in use; stop the service")
    assert daemon.stop() == 0
    refused(tmp_path, f"the database is of version {version}")

    done = upgrade(daemon, programs, programs)
    assert done.returncode == 0, done.stderr
    assert "upgrade" not in os.listdir(f"{daemon.state}/pg")
    for name in ("data", f"data.{version}"):
        assert facts(f"{daemon.state}/pg/{name}") == (USER, 0o700)
        with open(f"{daemon.state}/pg/{name}/pg_hba.conf", encoding="utf-8") as f:
            assert "trust" not in f.readline()
    refused(programs, f"data.{version} is there, of an earlier upgrade")

    daemon.start()
    assert daemon.client("acme").call("GET", f"/v1/sessions/{session}")["id"] == session
    assert daemon.stop() == 0
