"""make run up to the server: what it takes for CLOISTER_VAR and CLOISTER_PORT, and makes."""

import os
import pwd
import shutil
import stat
import subprocess
import tempfile

import pytest

from world import ROOT, USER

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture
def base():
    """Below directories of root's; holds a directory for programs, which is empty."""
    path = tempfile.mkdtemp(prefix="cloister-test-", dir="/var/lib")
    os.chmod(path, 0o755)
    os.mkdir(f"{path}/build")
    yield path
    shutil.rmtree(path)


def run(base, path=PATH, **settings):
    environment = {"PATH": path} | {f"CLOISTER_{k.upper()}": v for k, v in settings.items()}
    return subprocess.run([f"{ROOT}/scripts/run", f"{base}/build"], cwd=base, env=environment,
                          capture_output=True, text=True, timeout=60, check=False)


def facts(path):
    st = os.lstat(path)
    return pwd.getpwuid(st.st_uid).pw_name, stat.filemode(st.st_mode)


def refused(done, *words):
    assert done.returncode == 1 and done.stdout == "", done
    for word in words:
        assert word in done.stderr, done.stderr
    assert "remove" not in done.stderr, done.stderr


def went_on(done):
    """As far as without programs it can."""
    assert done.stdout.startswith("curl http://127.0.0.1:"), done
    assert "cloisterd is missing; build first" in done.stderr, done


@pytest.mark.parametrize("port", ["0", "65536", "99999", "100000", "080", "-1", "4096x", " 4096",
                                  "4096\n", "a[0]"])
def test_a_port_that_is_none(base, port):
    refused(run(base, port=port, var=f"{base}/var"), "CLOISTER_PORT=", "1 to 65535")
    assert not os.path.lexists(f"{base}/var")


@pytest.mark.parametrize("port", ["1", "65535"])
def test_a_port_at_the_bound(base, port):
    done = run(base, port=port, var=f"{base}/var")
    went_on(done)
    assert f"http://127.0.0.1:{port}/healthz" in done.stdout


@pytest.mark.parametrize("name", ["a b", "a\tb", "a\nb", "a'b", 'a"b', "a\x7fb", "a\\b", "a$b",
                                  "a`b", "-a"])
def test_a_name_that_would_not_survive_a_shell(base, name):
    refused(run(base, var=name), "CLOISTER_VAR=", "is not taken")
    refused(run(base, var=f"{base}/{name}" if name[0] != "-" else name), "CLOISTER_VAR=")
    assert os.listdir(base) == ["build"]


def test_it_makes_the_directory_and_keeps_it(base):
    for _ in range(2):
        went_on(run(base, var="var"))
        assert facts(f"{base}/var") == (USER, "drwx------")
    went_on(run(base, var=f"{base}/var/inner"))
    assert facts(f"{base}/var/inner") == (USER, "drwx------")


@pytest.mark.parametrize("place", ["/", "/etc", "/usr", "/root", "{base}/home", "{base}/file"])
def test_what_is_there_and_not_the_service_users_stays(base, place):
    os.mkdir(f"{base}/home")
    shutil.chown(f"{base}/home", "nobody")
    with open(f"{base}/file", "x", encoding="ascii"):
        pass
    place = place.format(base=base)
    before = facts(place)
    refused(run(base, var=place), "CLOISTER_VAR to one that is not there yet")
    assert facts(place) == before


def test_a_link_that_appears_meanwhile_leads_nowhere(base):
    """Somebody plants it just before the directory is made."""
    os.makedirs(f"{base}/tools")
    os.mkdir(f"{base}/target", 0o755)
    for tool in ("mkdir", "install"):
        with open(f"{base}/tools/{tool}", "x", encoding="ascii") as f:
            f.write(f'#!/bin/sh\nln -sT {base}/target {base}/var\nexec /usr/bin/{tool} "$@"\n')
        os.chmod(f"{base}/tools/{tool}", 0o755)
    before = facts(f"{base}/target")
    refused(run(base, f"{base}/tools:{PATH}", var=f"{base}/var"), "set CLOISTER_VAR")
    assert os.path.islink(f"{base}/var"), "the link was never planted"
    assert facts(f"{base}/target") == before and os.listdir(f"{base}/target") == []


def test_a_link_to_nowhere_makes_nothing(base):
    os.symlink(f"{base}/elsewhere", f"{base}/var")
    refused(run(base, var="var"), f"a link to {base}/elsewhere", "CLOISTER_VAR")
    assert not os.path.exists(f"{base}/elsewhere")


@pytest.mark.parametrize("owner, mode", [("root", 0o777), ("nobody", 0o755)])
def test_below_a_directory_that_others_can_change(base, owner, mode):
    """A link takes its place, as in a clone in somebody's home; through it, nothing is made there."""
    os.mkdir(f"{base}/clone")
    os.chmod(f"{base}/clone", mode)
    shutil.chown(f"{base}/clone", owner)
    try:
        went_on(run(base, var="clone/var"))
        place = os.readlink(f"{base}/clone/var")
        assert os.path.dirname(place) == "/var/lib/cloister-run"
        assert facts(place) == (USER, "drwx------")
        assert facts(f"{base}/clone/var")[0] == owner
    finally:
        os.rmdir(os.readlink(f"{base}/clone/var"))


def write_program(path, text):
    with open(path, "x", encoding="ascii") as f:
        f.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)


def serve(base, path):
    """With programs that something else put in place, as "nix run" has them."""
    return subprocess.run(
        [f"{ROOT}/scripts/serve", base, f"{base}/var", "4096", "--log", "json"], capture_output=True,
        text=True, timeout=60, check=False, env={
            "PATH": path, "CLOISTER_PROGRAMS": f"{base}/build", "CLOISTER_ROOTFS": f"{base}/rootfs",
            "CLOISTER_OPTIONS": "--runsc /opt/runsc --postgres-bin /opt/pg"})


def test_the_server_is_started_where_programs_are_elsewhere(base):
    """The daemon's path has no setpriv on such a system; the script's own has."""
    os.mkdir(f"{base}/tools")
    write_program(f"{base}/tools/setpriv", f'printf "%s\\0" "$*" >>{base}/log\nexec /usr/bin/setpriv "$@"')
    write_program(f"{base}/build/cloisterd", 'id -un\necho "$PATH"\nenv | wc -l\npwd\nprintf "%s\\n" "$@"')
    os.mkdir(f"{base}/var")
    shutil.chown(f"{base}/var", USER, USER)
    done = serve(base, f"{base}/tools:{PATH}")
    assert done.returncode == 0, done.stderr
    user, path, variables, place, *words = done.stdout.splitlines()
    # PATH, LANG, and what the shell itself adds: nothing of the caller's.
    assert (user, path, place) == (USER, PATH, "/") and int(variables) <= 3
    assert words == [
        "serve", "--tenants", f"{base}/var/tenants.json", "--state", f"{base}/var/state", "--host", "127.0.0.1",
        "--port", "4096", "--boundary", "development", "--runner", f"{base}/build/cloister-runner",
        "--guest", f"{base}/build/cloister-guest", "--rootfs", f"{base}/rootfs", "--runsc", "/opt/runsc",
        "--postgres-bin", "/opt/pg", "--log", "json"]
    with open(f"{base}/log", encoding="ascii") as f:
        calls = f.read().removesuffix("\0").split("\0")
    assert len(calls) == 2 and f"-- {base}/build/cloisterd serve " in calls[1], calls
    assert all(call.startswith(f"--reuid {USER} --regid {USER} --clear-groups --no-new-privs") for call in calls)


def test_make_asks_no_compiler_that_is_still_to_be_installed():
    done = subprocess.run(["make", "-n", "-C", ROOT, "CC=/nowhere/cc", "prepare"],
                          env={"PATH": PATH}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "") and "scripts/prepare all" in done.stdout
