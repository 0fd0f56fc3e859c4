"""The steps that a NixOS machine has done as root: nix/prepare-tenants, nix/upgrade-database."""

import fcntl
import glob
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import tempfile

import pytest

from daemon import AS_SERVICE
from world import ROOT, USER

SERVICE = pwd.getpwnam(USER)
TOKEN = "0123456789abcdef" * 2


# As the kernel is: only files and directories have a project, only directories hand it on.
CHATTR = r"""
[ "$1" = -p ] && project=$2 && shift 2
[ "$1" != +P ] || { project=$project+P; shift; }
[ "$1" = -- ] && shift || exit 1
for path in "$@"; do
	if [ -L "$path" ] || [[ "$path" = */stubborn ]] ||
		{ [ ! -d "$path" ] && { [ ! -f "$path" ] || [[ "$project" = *+P ]]; }; }; then
		echo "chattr: Operation not supported while setting project on $path" >&2
		exit 1
	fi
	printf '%s\t%s\n' "$project" "$path" >>"$base/projects"
done
"""
LSATTR = r"""
cat "$base/projects" 2>/dev/null |
	awk -F '\t' -v path="${!#}" '$2 == path { n = $1 } END { print n + 0 " --- " path }'
"""


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
        for tool, body in (("setquota", ""), ("chattr", CHATTR), ("lsattr", LSATTR),
                           ("findmnt", "cat $base/mount")):
            self.write(f"{base}/tools/{tool}",
                       f'#!/bin/bash\nbase={base}\necho "{tool} $(id -un) $*" >>{self.notes}\n{body}\n', 0o755)
        # Some are used as the service user.
        for name in ("notes", "projects"):
            self.write(f"{base}/{name}", "", 0o666)
        self.quotas(False)

    @staticmethod
    def write(path, text, mode=0o644):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)

    def quotas(self, counted, others=0):
        self.write(f"{self.base}/mount", "/srv rw,relatime" + (",prjquota" if counted else "") + "\n" +
                   "/other rw,relatime,data=ordered\n" * others)

    def projects(self):
        """What was last marked, in order: path to project, and whether that is handed on."""
        with open(f"{self.base}/projects", encoding="utf-8") as f:
            return {path: words for words, path in (line.rstrip("\n").split("\t") for line in f)}

    def noted(self, tool):
        with open(self.notes, encoding="utf-8") as f:
            return [line.split(" ", 1)[1].rstrip() for line in f if line.startswith(tool)]

    def home(self, quota=0):
        """In a state directory of the service user's."""
        state = f"{self.base}/state"
        if not os.path.isdir(state):
            os.mkdir(state, 0o700)
            shutil.chown(state, USER)
        self.lines.append(f"home\t77\t{quota}\t{state}/tenants/a-b/state")
        return f"{state}/tenants/a-b/state"

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


def test_a_token_is_not_read_where_others_than_root_choose_the_file(machine):
    """A directory of somebody else's, before, on and after the way through links."""
    base = machine.base
    machine.write(f"{base}/shadow", TOKEN, 0o600)
    for name in ("theirs", "open", "dir"):
        os.mkdir(f"{base}/{name}")
    shutil.chown(f"{base}/theirs", USER)
    os.chmod(f"{base}/open", 0o1777)
    os.symlink(f"{base}/shadow", f"{base}/theirs/token")
    os.symlink("../shadow", f"{base}/open/token")
    os.symlink("theirs", f"{base}/link")
    os.symlink("../link/./token", f"{base}/dir/through")
    machine.write(f"{base}/theirs/own", TOKEN, 0o600)
    os.symlink("../theirs/own", f"{base}/dir/own")
    whose = f"{base}/theirs belongs to uid {SERVICE.pw_uid}"
    for path, message in (("theirs/token", whose), ("theirs/own", whose), ("link/token", whose),
                          ("dir/through", whose), ("dir/own", whose),
                          ("open/token", f"{base}/open can be written by others")):
        machine.lines = []
        machine.token("one", f"{base}/{path}")
        machine.fail(message)
        assert os.listdir(machine.copies) == [], path
    # Whose the file itself is does not matter, and a way through links of root's is good.
    machine.write(f"{base}/dir/token", TOKEN, 0o400)
    shutil.chown(f"{base}/dir/token", USER)
    os.symlink("dir/../dir//./token", f"{base}/relative")
    machine.lines = []
    machine.token("one", f"{base}/relative")
    machine.succeed()
    with open(f"{machine.copies}/one", encoding="utf-8") as f:
        assert f.read() == TOKEN


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
    assert machine.noted("chattr") == [f"root -p 77 +P -- {path}"]
    assert machine.noted("setquota") == ["root -P 77 0 1024 0 1088 /srv"]
    # Another size, with files there: they count already.
    machine.write(f"{path}/file", "")
    machine.lines = []
    machine.workspace(path, 2048)
    machine.succeed(phase="reload")
    # And none.
    machine.lines = []
    machine.workspace(path)
    machine.succeed(phase="reload")
    assert machine.noted("setquota")[1:] == ["root -P 77 0 2048 0 1152 /srv", "root -P 77 0 0 0 0 /srv"]
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
    assert machine.projects() == {f"{path}/file": "77", path: "77+P"}


def tree(path):
    """Of everything that a file system has, as a tenant can leave it."""
    os.makedirs(f"{path}/-dir/in ner")
    for name in ("file", "-dir/-R"):
        Machine.write(f"{path}/{name}", "")
    os.symlink("/etc/passwd", f"{path}/-dir/link")
    os.symlink("nowhere", f"{path}/broken")
    os.mkfifo(f"{path}/pipe")
    os.mknod(f"{path}/socket", stat.S_IFSOCK | 0o600)


def test_a_first_quota_counts_files_and_directories_among_whatever_else(machine):
    path = machine.workspace(f"{machine.base}/srv/acme", 1024)
    machine.quotas(False)
    machine.fail("counts no projects")
    tree(path)
    machine.quotas(True)
    machine.succeed()
    assert machine.projects() == {
        path: "77+P", f"{path}/-dir": "77+P", f"{path}/-dir/in ner": "77+P",
        f"{path}/file": "77", f"{path}/-dir/-R": "77"}
    assert list(machine.projects())[-1] == path


def test_a_first_quota_that_was_broken_off_is_done_again(machine):
    path = machine.workspace(f"{machine.base}/srv/acme", 1024)
    machine.fail("counts no projects")
    os.makedirs(f"{path}/dir")
    for name in ("dir/stubborn", "later"):
        machine.write(f"{path}/{name}", "")
    machine.quotas(True)
    machine.fail("not all in it can be counted")
    assert machine.noted("setquota") == []
    os.rename(f"{path}/dir/stubborn", f"{path}/dir/willing")
    machine.succeed()
    assert {path, f"{path}/dir", f"{path}/dir/willing", f"{path}/later"} <= set(machine.projects())
    assert machine.noted("setquota") == ["root -P 77 0 1024 0 1088 /srv"]


def test_a_quota_is_lifted_on_a_machine_with_thousands_of_mounts(machine):
    path = machine.workspace(f"{machine.base}/srv/acme", 1024)
    machine.quotas(True)
    machine.succeed()
    machine.quotas(True, others=20000)
    machine.lines = []
    machine.workspace(path)
    machine.succeed()
    assert machine.noted("setquota")[1:] == ["root -P 77 0 0 0 0 /srv"]


def test_a_quota_that_cannot_hold_is_refused(machine):
    machine.workspace(f"{machine.base}/srv/acme", 1024)
    machine.fail("its file system counts no projects, so diskQuota cannot hold")
    assert machine.noted("setquota") == []


def test_a_home_is_bounded_where_its_file_system_counts(machine):
    """By the owner while the service runs, who could otherwise send root elsewhere."""
    home = machine.home(1024)
    machine.quotas(True)
    machine.succeed(phase="reload")
    for path in (f"{machine.base}/state/tenants", os.path.dirname(home), home):
        assert facts(path) == (USER, 0o700)
    assert machine.noted("chattr") == [f"{USER} -p 77 +P -- {home}"]
    assert machine.noted("setquota") == ["root -P 77 0 1024 0 1088 /srv"]
    # Its mode is its tenant's to choose, and keeps no service from starting.
    os.chmod(home, 0)
    machine.write(f"{home}/file", "")
    machine.lines = []
    machine.home(2048)
    machine.succeed()
    machine.lines = []
    machine.home()
    machine.succeed(phase="reload")
    assert machine.noted("setquota")[1:] == ["root -P 77 0 2048 0 1152 /srv", "root -P 77 0 0 0 0 /srv"]


def test_a_home_with_files_waits_for_a_start(machine):
    home = machine.home()
    os.makedirs(f"{home}/dir")
    machine.write(f"{home}/dir/file", "")
    machine.quotas(True)
    machine.lines = []
    machine.home(1024)
    machine.fail("needs its tenant's sandbox stopped: systemctl restart cloister", phase="reload")
    assert machine.projects() == {}
    machine.succeed()
    assert machine.projects() == {home: "77+P", f"{home}/dir": "77+P", f"{home}/dir/file": "77"}


def test_a_home_that_cannot_be_bounded_is_told_of_at_the_start(machine):
    home = machine.home(1024)
    done = machine.prepare()
    assert done.returncode == 0, done.stderr
    assert f"{home}: its file system counts no projects, so diskQuota does not bound" in done.stderr
    machine.succeed(phase="reload")
    assert machine.noted("setquota") == machine.noted("chattr") == []


def test_a_home_that_leads_elsewhere_is_not_used(machine):
    home = machine.home(1024)
    machine.quotas(True)
    os.makedirs(os.path.dirname(home))
    os.mkdir(f"{machine.base}/target")
    os.symlink(f"{machine.base}/target", home)
    for phase in ("start", "reload"):
        machine.fail(f"home {home} leads through a symbolic link", phase=phase)
    assert machine.projects() == {} and facts(f"{machine.base}/target")[0] == "root"


def test_a_home_that_nothing_bounds_is_not_made(machine):
    home = machine.home()
    machine.quotas(True)
    machine.succeed()
    assert not os.path.exists(home)


# --- another PostgreSQL ----------------------------------------------------------------


def upgrade(daemon, old, new):
    return subprocess.run([f"{ROOT}/nix/upgrade-database", daemon.state, USER, old, new],
                          capture_output=True, text=True, check=False)


@pytest.fixture
def stopped(machine):
    """A state directory with a database that nobody runs, and programs that are not there."""
    os.makedirs(f"{machine.base}/state/pg/data")
    machine.write(f"{machine.base}/state/pg/data/PG_VERSION", "3\n")
    for path in ("state", "state/pg", "state/pg/data"):
        shutil.chown(f"{machine.base}/{path}", USER)
    machine.state = f"{machine.base}/state"
    return machine


def test_programs_of_the_service_user_are_out_of_reach_of_the_terminal(stopped):
    found = f"{stopped.state}/found"
    stopped.write(f"{stopped.base}/tools/postgres", f"""#!/bin/sh
        (: </dev/tty) 2>/dev/null && echo terminal >>{found}
        for fd in 0 1 2; do [ ! -t $fd ] || echo "fd $fd" >>{found}; done
        id -un >>{found}
        echo 'postgres (PostgreSQL) 3.1'""", 0o755)

    def in_terminal(*command):
        done = subprocess.run(["script", "-qec", shlex.join(command), "/dev/null"], check=False,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        with open(found, encoding="utf-8") as f:
            words = f.read().splitlines()
        os.unlink(found)
        return done, words

    _, words = in_terminal(f"{stopped.base}/tools/postgres")
    assert words == ["terminal", "fd 0", "fd 1", "fd 2", "root"]
    done, words = in_terminal(f"{ROOT}/nix/upgrade-database", stopped.state, USER,
                              f"{stopped.base}/tools", "/nonexistent")
    assert words == [USER]
    # What goes wrong is said, and is the result.
    assert done.returncode != 0 and "initdb failed" in done.stdout, done


def test_a_database_is_not_upgraded_while_somebody_holds_its_lock(stopped):
    stopped.write(f"{stopped.base}/tools/postgres", "#!/bin/sh\necho 'postgres (PostgreSQL) 3.1'", 0o755)
    with open(f"{stopped.state}/pg/lock", "w", encoding="utf-8") as lock:
        shutil.chown(lock.name, USER)
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = upgrade(stopped, f"{stopped.base}/tools", "/nonexistent")
    assert done.returncode != 0 and "is in use; stop the service" in done.stderr, done
    assert "upgrade" not in os.listdir(f"{stopped.state}/pg")


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
