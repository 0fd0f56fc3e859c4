"""cloisterd doctor: good on a good machine, and exact about what is broken on another."""

import ctypes
import os
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile

import pytest

from daemon import AS_SERVICE, ENVIRONMENT, expect_no_report
from world import ROOT, USER, demo, in_time, private_mounts, punctual

LINE = re.compile(r"^(ok|failed|n/a) +([a-z0-9-]+) +(\S.*)$")
INSIDE = ("sandbox", "workspace", "egress-public", "egress-host", "egress-private",
          "egress-metadata", "egress-ipv6", "dns", "limits", "memory-limit")
SECONDS = 120


class Report:
    def __init__(self, code, output, errors):
        self.code, self.output, self.errors = code, output, errors
        matches = [LINE.match(line) for line in output.splitlines()]
        assert all(matches), output
        self.order = [m[2] for m in matches]
        self.lines = {m[2]: (m[1], m[3]) for m in matches}
        assert len(self.lines) == len(self.order), f"a check twice:\n{output}"

    @property
    def failed(self):
        return [name for name in self.order if self.lines[name][0] == "failed"]

    def expect(self, name, verdict, *parts):
        assert self.lines[name][0] == verdict, f"{name}:\n{self.output}{self.errors}"
        for part in parts:
            assert part in self.lines[name][1], self.lines[name]


def diagnose(command, preexec_fn=None):
    """What a doctor says. It judges how soon what is forbidden is refused."""

    def attempt():
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              cwd="/", env=ENVIRONMENT, preexec_fn=preexec_fn, timeout=SECONDS,
                              check=False)
        in_time("was not refused at once, but after" not in done.stdout, done.stdout)
        return done

    return punctual(attempt)


@pytest.fixture
def examine(world, make_daemon):
    daemon = make_daemon()

    def run(*more, preexec_fn=None, prefix=AS_SERVICE, of=daemon, **changed):
        command = of.command(*more, **changed)
        command[command.index("serve")] = "doctor"
        done = diagnose([*prefix, *command], preexec_fn)
        expect_no_report(done.stderr)
        report = Report(done.returncode, done.stdout, done.stderr)
        assert report.code == (1 if report.failed else 0), done.stdout + done.stderr
        world.expect_nobody()
        assert [n for n in os.listdir(of.state) if n.startswith("doctor-")] == []
        return report

    run.daemon = daemon
    return run


def without(call, error):
    """A preexec_fn: that system call fails from now on."""

    def forbid():
        lib = ctypes.CDLL("libseccomp.so.2", use_errno=True)
        lib.seccomp_init.restype = ctypes.c_void_p
        context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(0x7FFF0000)))
        number = lib.seccomp_syscall_resolve_name(call.encode())
        action = ctypes.c_uint32(0x00050000 | error)
        if number < 0 or lib.seccomp_rule_add(context, action, number, 0) or \
                lib.seccomp_load(context):
            raise OSError(f"no filter for {call}")

    return forbid


# --- a good machine ----------------------------------------------------------------------


def test_a_good_machine(examine):
    report = examine()
    assert report.code == 0 and report.failed == [], report.output
    for name in ("user-namespaces", "identity", "runsc", "registry", "workspaces", "postgresql",
                 "sandbox", "workspace", "egress-host", "egress-private", "egress-metadata",
                 "egress-ipv6"):
        report.expect(name, "ok")
    for name in ("installed", "cgroup", "limits", "memory-limit"):
        report.expect(name, "n/a", "development")
    report.expect("sandbox", "ok", "Linux")
    report.expect("egress-host", "ok", "2 of this machine's own addresses")
    assert report.errors == ""


def documented():
    with open(f"{ROOT}/docs/doctor.md", encoding="utf-8") as f:
        return re.findall(r"^\| `([a-z0-9-]+)` \|", f.read(), re.MULTILINE)


def test_every_check_is_documented(examine):
    assert examine().order == documented()


def test_a_public_address_that_answers(world, examine):
    examine().expect("egress-public", "n/a", "this machine itself")
    demo.ip("-n", world.internet, "address", "add", "1.1.1.1/32", "dev", "lo")
    try:
        report = examine()
    finally:
        demo.ip("-n", world.internet, "address", "delete", "1.1.1.1/32", "dev", "lo")
    report.expect("egress-public", "ok", "1.1.1.1 reached")
    assert report.code == 0


def answer_names(netns):
    """Forks a name server in a namespace: every name has one address."""
    ready_r, ready_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            demo.enter_netns(netns)
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
                server.bind((demo.PUBLIC, 53))
                os.write(ready_w, b"1")
                while True:
                    query, peer = server.recvfrom(512)
                    end = query.index(b"\0", 12) + 5
                    kind = struct.unpack(">H", query[end - 4:end - 2])[0]
                    answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\xc6\x29\0\4" if kind == 1 else b""
                    head = query[:2] + b"\x81\x80\0\1" + struct.pack(">H", bool(answer)) + \
                        b"\0\0\0\0"
                    server.sendto(head + query[12:end] + answer, peer)
        finally:
            os._exit(1)
    os.close(ready_w)
    assert os.read(ready_r, 1) == b"1"
    os.close(ready_r)
    return pid


def test_names_that_are_resolved(world, examine, tmp_path):
    resolver = tmp_path / "resolv.conf"
    resolver.write_text(f"nameserver {demo.PUBLIC}\n")
    resolver.chmod(0o644)
    pid = answer_names(world.internet)
    world.listeners.append(pid)
    mount = ["mount", "--bind", str(resolver), os.path.realpath("/etc/resolv.conf")]
    try:
        report = examine(preexec_fn=private_mounts(lambda: subprocess.run(mount, check=True)))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        world.listeners.remove(pid)
    report.expect("dns", "ok", "198.41.0.4")


def test_a_running_service_is_not_disturbed(world, examine):
    daemon = examine.daemon.start()
    client = daemon.client("acme")
    session = client.session()
    client.tool(session, "shell", command="echo before > /tmp/here")
    runner = daemon.runner("acme").pid
    command = daemon.command()
    command[command.index("serve")] = "doctor"
    done = diagnose([*AS_SERVICE, *command])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "before" in str(client.tool(session, "shell", command="cat /tmp/here").output)
    assert daemon.runner("acme").pid == runner
    assert daemon.stop() == 0


def test_a_killed_doctor_leaves_no_process(world, examine):
    command = examine.daemon.command()
    command[command.index("serve")] = "doctor"
    process = subprocess.Popen([*AS_SERVICE, *command], stdin=subprocess.DEVNULL, cwd="/",
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                               env=ENVIRONMENT)
    for line in process.stdout:
        if LINE.match(line)[2] == "sandbox":
            break
    process.kill()
    process.wait(10)
    process.stdout.close()
    world.expect_nobody()


# --- one thing broken at a time -----------------------------------------------------------


@pytest.mark.parametrize("check, options, part, remedy", [
    ("runsc", {"runsc": "/nonexistent/runsc"}, "No such file", "install gVisor"),
    ("runsc", {"runsc": "/bin/true"}, "/bin/true", "install gVisor"),
    ("rootfs", {"rootfs": "/nonexistent"}, "No such file", "scripts/prepare rootfs"),
    ("rootfs", {"rootfs": "/proc"}, "not a root filesystem", "scripts/prepare rootfs"),
    ("programs", {"guest": "/nonexistent"}, "--guest", "build Cloister"),
    ("programs", {"runner": "/nonexistent"}, "--runner", "build Cloister"),
    ("slirp4netns", {"slirp4netns": "/nonexistent"}, "No such file", "install slirp4netns"),
    ("slirp4netns", {"slirp4netns": "/bin/false"}, "slirp4netns", "install slirp4netns"),
])
def test_a_program_is_missing(examine, check, options, part, remedy):
    report = examine(**options)
    assert report.failed == [check], report.output
    report.expect(check, "failed", part, remedy)
    for name in INSIDE:
        report.expect(name, "n/a", "see above")
    report.expect("postgresql", "ok")


def test_no_postgresql(examine):
    report = examine(postgres_bin="/nonexistent")
    assert report.failed == ["postgresql"]
    report.expect("postgresql", "failed", "/nonexistent/postgres", "install PostgreSQL")
    report.expect("sandbox", "ok")


def test_a_registry_with_faults(examine):
    examine.daemon.write_registry({"version": 2, "tenants": []})
    report = examine()
    assert report.failed == ["registry"]
    report.expect("registry", "failed", "2 faults", "version: must be 1", "cloisterd check")
    report.expect("workspaces", "n/a")
    report.expect("sandbox", "ok")


def test_a_workspace_that_cannot_be_written(examine):
    tenant = examine.daemon.tenants["globex"]
    os.chmod(tenant.workspace, 0o500)
    report = examine()
    os.chmod(tenant.workspace, 0o700)
    assert report.failed == ["workspaces"]
    report.expect("workspaces", "failed", tenant.workspace, "globex", "ReadWritePaths=")


def test_a_state_directory_that_cannot_be_written(examine):
    os.chmod(examine.daemon.state, 0o500)
    report = examine()
    os.chmod(examine.daemon.state, 0o700)
    assert report.failed == ["state"]
    report.expect("state", "failed", "mode 0500", "chmod 0700")
    for name in INSIDE:
        report.expect(name, "n/a", "state directory")


@pytest.mark.parametrize("place", ["/nowhere", "/etc/nowhere", "/etc", "/root"])
def test_a_state_directory_that_the_service_cannot_have(examine, place):
    report = examine(state=place)
    assert report.failed == ["state"]
    report.expect("state", "failed", f"state directory {place}: ", "name another")
    assert "chown" not in report.lines["state"][1]
    for name in INSIDE:
        report.expect(name, "n/a", "state directory")


def test_a_root_filesystem_that_cannot_be_read(examine):
    closed = f"{examine.daemon.var}/closed"
    os.mkdir(closed, 0o700)
    os.makedirs(f"{closed}/rootfs/usr")
    for place in (closed, f"{closed}/rootfs"):
        report = examine(rootfs=place)
        assert report.failed == ["rootfs"], report.output
        report.expect("rootfs", "failed", place, "Permission denied", "this user can read")


def test_no_tun(examine, tmp_path):
    plain = tmp_path / "tun"
    plain.write_text("")
    mount = ["mount", "--bind", str(plain), "/dev/net/tun"]
    report = examine(preexec_fn=private_mounts(lambda: subprocess.run(mount, check=True)))
    assert report.failed == ["tun"]
    report.expect("tun", "failed", "/dev/net/tun")
    report.expect("sandbox", "n/a")


@pytest.mark.parametrize("call, error, check, remedy", [
    ("unshare", 1, "user-namespaces", "sysctl"),
    ("unshare", 28, "user-namespaces", "user.max_user_namespaces"),
    ("seccomp", 38, "seccomp", "CONFIG_SECCOMP_FILTER"),
    ("pidfd_open", 38, "pidfd", "Linux 5.3"),
])
def test_a_kernel_without(examine, call, error, check, remedy):
    report = examine(preexec_fn=without(call, error))
    assert check in report.failed
    report.expect(check, "failed", os.strerror(error), remedy)


@pytest.mark.parametrize("call, check", [("landlock_create_ruleset", "landlock"),
                                         ("clone3", "clone3")])
def test_what_only_the_service_boundary_needs(examine, call, check):
    report = examine(preexec_fn=without(call, 38))
    report.expect(check, "n/a", "development", "Function not implemented")
    report = examine(preexec_fn=without(call, 38), boundary="service")
    report.expect(check, "failed", "Function not implemented")


def test_as_root(examine):
    report = examine(prefix=[])
    assert report.failed == ["identity"]
    report.expect("identity", "failed", "refuses to run as root", "setpriv")
    for name in ("registry", "workspaces", "cgroup", "state", "postgresql", *INSIDE):
        report.expect(name, "n/a", "service user")
    assert report.order == documented()


def test_the_service_boundary_outside_a_unit(examine):
    """No unit delegates a cgroup to this test."""
    report = examine(boundary="service")
    assert report.failed == ["cgroup"], report.output
    report.expect("cgroup", "failed", "development")
    report.expect("installed", "ok")
    report.expect("postgresql", "ok")
    for name in INSIDE:
        report.expect(name, "n/a", "see above")


def test_programs_that_the_service_user_could_replace(world, examine):
    own = f"{examine.daemon.var}/guest"
    subprocess.run(["cp", f"{world.programs}/cloister-guest", own], check=True)
    user = pwd.getpwnam(USER)
    os.chown(own, user.pw_uid, user.pw_gid)
    report = examine(boundary="service", guest=own)
    assert "installed" in report.failed
    report.expect("installed", "failed", "--guest: ", "uid", "let root own it")


def test_a_wrong_command_line(examine):
    command = examine.daemon.command("--prot=1")
    command[command.index("serve")] = "doctor"
    done = subprocess.run([*AS_SERVICE, *command], capture_output=True, text=True, cwd="/",
                          env=ENVIRONMENT, timeout=SECONDS, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert "no such option; see cloisterd doctor --help" in done.stderr


def test_programs_in_a_store_like_that_of_nix_are_installed(examine, world):
    """It is root's and sticky: a group can add to it, but replace nothing that is root's."""
    store = tempfile.mkdtemp(prefix="cloister-test-", dir="/var/lib")
    try:
        shutil.copytree(world.programs, f"{store}/programs")
        os.chmod(f"{store}/programs", 0o755)
        shutil.chown(store, group="nogroup")
        os.chmod(store, 0o1775)
        places = {"runner": f"{store}/programs/cloister-runner",
                  "guest": f"{store}/programs/cloister-guest"}
        examine(boundary="service", **places).expect("installed", "ok")
        os.chmod(store, 0o775)
        examine(boundary="service", **places).expect("installed", "failed", f"{store}: mode 0775")
    finally:
        shutil.rmtree(store)
