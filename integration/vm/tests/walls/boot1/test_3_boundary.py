"""The runner's part of the service boundary: the leaf cgroup of each sandbox, in a delegated
cgroup of its own, with this test in the launcher's place."""

import contextlib
import os
import pwd
import shutil
import subprocess
import threading
import time

import pytest

from daemon import AS_SERVICE, give
from network import LATER, PUBLIC
from sandbox import MIB, Sandbox
from service import PROGRAMS, ROOTFS, USER, read, run
from test_egress import appear_and_watch, expect_open, expect_refused
from world import descendants, eventually

# Needs so many MiB at once.
HOG = "dd if=/dev/zero of=/dev/null bs={}M count=1"
UNIT = "cloister-place.service"
PLACE = f"/sys/fs/cgroup/system.slice/{UNIT}"
ENTER = ["/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"']
FORKS = """
use Errno qw(EAGAIN);
while (@pids < 200) {
	my $pid = fork();
	if (!defined($pid)) { print "EAGAIN ", scalar(@pids), "\\n" if $! == EAGAIN; last; }
	if (!$pid) { sleep 60; exit; }
	push @pids, $pid;
}
kill 9, @pids;
"""
NO_CLONE3 = """
import ctypes, os, struct, sys
code = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, 435, 0x06, 0, 0, 0x00050026,
                   0x06, 0, 0, 0x7fff0000)
text = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", 4, ctypes.addressof(text))
assert ctypes.CDLL(None).prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def numbers(path):
    """The lines "key number" of a file."""
    return {key: int(value) for key, value in (line.split() for line in
                                               read(path).splitlines())}


class Place:
    """What the launcher arranges: DIR/supervisor, DIR/sandboxes, three controllers."""

    def __init__(self):
        # Before it has become the program, its process is systemd's to move.
        run("systemd-run", f"--unit={UNIT}", "-p", "Type=exec", "-p", f"User={USER}",
            "-p", "Delegate=cpu memory pids", "sleep", "infinity")
        user = pwd.getpwnam(USER)
        for name in ("supervisor", "sandboxes"):
            os.mkdir(f"{PLACE}/{name}")
            for path in (name, f"{name}/cgroup.procs", f"{name}/cgroup.subtree_control"):
                os.chown(f"{PLACE}/{path}", user.pw_uid, user.pw_gid)
        for pid in read(f"{PLACE}/cgroup.procs").split():
            write(f"{PLACE}/supervisor/cgroup.procs", pid)
        for name in (PLACE, f"{PLACE}/sandboxes"):
            write(f"{name}/cgroup.subtree_control", "+cpu +memory +pids")
        self.made = []
        self.base = "/var/tmp/boundary"
        os.mkdir(self.base)
        os.chmod(self.base, 0o755)

    def sandbox(self, *options, where=f"{PLACE}/supervisor", cgroup=PLACE, before=(),
                directory=None, programs=PROGRAMS, **changed):
        self.made.append(Sandbox(
            programs, changed.pop("rootfs", ROOTFS), directory or f"{self.base}/{len(self.made)}",
            *options, prefix=[*ENTER, where, *AS_SERVICE, *before], boundary="service",
            cgroup=cgroup, **changed))
        return self.made[-1]

    def close(self):
        for sandbox in self.made:
            sandbox.close()
        run("systemctl", "stop", UNIT)
        shutil.rmtree(self.base)


@pytest.fixture(scope="module")
def place():
    place = Place()
    yield place
    place.close()


def leaf(sandbox, name=""):
    return f"{PLACE}/sandboxes/{sandbox.tenant}/{name}"


def refused(sandbox):
    """The reason of a start that must fail."""
    assert sandbox.spawn().ended(60) == 2, sandbox.log()
    return sandbox.reason()


def processes(sandbox):
    """{pid: path of its cgroup below the place} of the runner and all it started."""
    pids = [sandbox.process.pid] + [p.pid for p in descendants(sandbox.process.pid)]
    return {pid: read(f"/proc/{pid}/cgroup").strip().split(UNIT)[-1] for pid in pids}


@pytest.mark.short
def test_limits_and_places(place):
    sandbox = place.sandbox(cpus=150, memory=512 * MIB, processes=100).start()
    expected = {"cpu.max": "150000 100000", "memory.max": str(512 * MIB), "memory.swap.max": "0",
                "memory.oom.group": "1", "pids.max": str(64 + 3 * 100),
                "cgroup.max.descendants": "0", "cgroup.max.depth": "0"}
    assert {name: read(leaf(sandbox, name)).strip() for name in expected} == expected
    places = processes(sandbox)
    assert places.pop(sandbox.process.pid) == "/supervisor"
    assert len(places) > 5 and set(places.values()) == {f"/sandboxes/{sandbox.tenant}"}, places
    names = [read(f"/proc/{pid}/comm").strip() for pid in places]
    assert "slirp4netns" in names, names
    assert str(100) in sandbox.run("ulimit -u")[1]
    assert sandbox.stop() == 0
    assert not os.path.exists(leaf(sandbox))


@pytest.mark.short
def test_memory(place):
    """A hog ends its own sandbox, as a whole and with the reason; its neighbour goes on."""
    other = place.sandbox(memory=512 * MIB).start()
    hog = place.sandbox(memory=256 * MIB).start()
    with pytest.raises((EOFError, AssertionError)):
        hog.run(HOG.format(1000))
    assert hog.ended() == 4, hog.log()
    assert hog.reason() == "the sandbox needed more than its 256 MiB of memory"
    assert not os.path.exists(leaf(hog))
    assert numbers(f"{PLACE}/sandboxes/memory.events")["oom_kill"] > 0
    assert other.run("echo alive")[:2] == (0, "alive\n")
    assert other.stop() == 0


@pytest.mark.long
def test_memory_around(place):
    """The limit around all sandboxes is not called the sandbox's own."""
    hog = place.sandbox(memory=1024 * MIB).start()
    write(f"{PLACE}/sandboxes/memory.max", str(400 * MIB))
    try:
        with pytest.raises((EOFError, AssertionError)):
            hog.run(HOG.format(800))
        assert hog.ended() == 4, hog.log()
        assert hog.reason() == "the memory of all sandboxes together ran out; this one was ended"
    finally:
        write(f"{PLACE}/sandboxes/memory.max", "max")


@pytest.mark.long
def test_what_is_kept_in_memory_is_bounded(place):
    """Each file system that memory holds says that it is full, and the sandbox lives on."""
    sandbox = place.sandbox(memory=256 * MIB).start()
    for directory in ("/tmp", "/dev/shm", "/var/tmp", "/run", "/dev"):
        code, output, _ = sandbox.run(
            f"dd if=/dev/zero of={directory}/filler bs=4M count=64 2>&1; rm {directory}/filler", 300)
        assert code == 0 and "No space left on device" in output, (directory, output)
    assert numbers(leaf(sandbox, "memory.events"))["oom_kill"] == 0
    assert sandbox.stop() == 0


@pytest.mark.short
def test_processes(place):
    """The tenant's own limit is felt inside; the backstop around it ends the sandbox."""
    sandbox = place.sandbox(processes=32).start()
    # Perl starts in a fraction of what Python takes.
    text = sandbox.run(f"perl -e '{FORKS}'", 120)[1]
    assert text.startswith("EAGAIN ") and int(text.split()[1]) <= 32, text
    assert numbers(leaf(sandbox, "pids.events"))["max"] == 0
    write(leaf(sandbox, "pids.max"), read(leaf(sandbox, "pids.current")).strip())
    with contextlib.suppress(EOFError, AssertionError, BrokenPipeError):
        for _ in range(20):
            sandbox.run("for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; wait", 60)
    assert sandbox.ended() == 5, sandbox.log()
    assert "needed more tasks of the host than its 32 processes account for" in sandbox.reason()


@pytest.mark.short
def test_cpu(place):
    sandbox = place.sandbox(cpus=50).start()
    sandbox.begin(shell="while :; do :; done & while :; do :; done")
    eventually(lambda: numbers(leaf(sandbox, "cpu.stat"))["nr_throttled"] > 0, 60, "throttled")
    before, begin = numbers(leaf(sandbox, "cpu.stat")), time.monotonic()
    time.sleep(3)
    after, passed = numbers(leaf(sandbox, "cpu.stat")), time.monotonic() - begin
    assert after["nr_throttled"] > before["nr_throttled"]
    used = (after["usage_usec"] - before["usage_usec"]) / 1e6
    # More than nothing, and not more than half, with a period at either end.
    assert 0.2 < used / passed < 0.55, (used, passed)
    assert sandbox.stop() == 0


@pytest.mark.short
def test_a_limit_that_is_not_kept_ends_the_start(place):
    """The limits count that are there when the sandbox is, not those that were written."""
    sandbox = place.sandbox()
    sandbox.spawn()

    def widen():
        with contextlib.suppress(OSError):
            if read(leaf(sandbox, "cgroup.procs")):
                write(leaf(sandbox, "memory.max"), "max")
                return True
        return False

    eventually(widen, 30, "the leaf has processes", 0)
    assert sandbox.ended(60) in (2, 3), sandbox.log()
    assert "memory.max is 'max', not '2147483648' as it was set" in sandbox.reason()
    assert not os.path.exists(leaf(sandbox))


@pytest.mark.short
@pytest.mark.parametrize("sig", ["KILL", "STOP"])
def test_leftovers_of_a_killed_runner(place, sig):
    """Whatever state its sandbox is in, the next start removes it and works."""
    sandbox = place.sandbox().start()
    runtime = f"{sandbox.directory}/run/{sandbox.tenant}"
    recorded = [int(line.split()[0]) for line in read(f"{runtime}/processes").splitlines()]
    assert len(recorded) == 3, recorded
    if sig == "STOP":
        for process in descendants(sandbox.process.pid):
            os.kill(process.pid, 19)
    sandbox.close()
    eventually(lambda: not read(leaf(sandbox, "cgroup.procs")), 20, "the sandbox is gone")
    again = place.sandbox(tenant=sandbox.tenant, directory=sandbox.directory).start()
    assert "previous sandbox is still there" in again.log()
    assert again.run("echo alive")[1] == "alive\n"
    assert not set(recorded) & {p.pid for p in descendants(1)}
    assert not set(recorded) & {int(line.split()[0])
                                for line in read(f"{runtime}/processes").splitlines()}
    assert again.stop() == 0
    assert os.listdir(runtime) == ["lock"]
    assert sandbox.directory not in read("/proc/self/mountinfo")


def test_a_leaf_with_processes(place):
    sandbox = place.sandbox()
    os.mkdir(leaf(sandbox))
    give(leaf(sandbox), 0o755)
    give(leaf(sandbox, "cgroup.procs"), 0o644)
    give(leaf(sandbox, "cgroup.kill"), 0o200)
    stray = subprocess.Popen([*AS_SERVICE, "sleep", "600"])
    write(leaf(sandbox, "cgroup.procs"), str(stray.pid))
    sandbox.start()
    assert stray.wait(10) == -9
    assert sandbox.stop() == 0


def test_a_leaf_that_cannot_be_removed(place):
    sandbox = place.sandbox()
    os.makedirs(leaf(sandbox, "deeper"))
    give(leaf(sandbox), 0o755)
    give(leaf(sandbox, "cgroup.kill"), 0o200)
    assert "remove what this tenant's previous sandbox left" in refused(sandbox)
    os.rmdir(leaf(sandbox, "deeper"))
    os.rmdir(leaf(sandbox))


def test_wedged(place):
    """A sandbox whose processes are stopped ends all the same, within the deadlines."""
    sandbox = place.sandbox().start()
    for process in descendants(sandbox.process.pid):
        os.kill(process.pid, 19)
    begin = time.monotonic()
    assert sandbox.stop() == 0
    assert time.monotonic() - begin < 10
    assert not os.path.exists(leaf(sandbox))


@pytest.mark.long
def test_without_clone3(place):
    """Where a filter hides it, processes wait until they are in the leaf."""
    sandbox = place.sandbox(before=["/usr/bin/python3", "-c", NO_CLONE3]).start()
    places = processes(sandbox)
    assert places.pop(sandbox.process.pid) == "/supervisor"
    assert set(places.values()) == {f"/sandboxes/{sandbox.tenant}"}, places
    assert sandbox.run("echo alive")[1] == "alive\n"
    assert sandbox.stop() == 0


def test_places_that_will_not_do(place):
    assert "it is not cgroup version 2" in refused(place.sandbox(cgroup="/var/tmp"))
    assert "this runner is not in its supervisor" in refused(
        place.sandbox(where="/sys/fs/cgroup/system.slice/cloister-vm.service"))
    assert "cgroup.type" in refused(place.sandbox(cgroup="/sys/fs/cgroup"))
    for extra, name in (("-pids", "controller pids is missing"),
                        ("-cpu", "controller cpu is missing")):
        write(f"{PLACE}/sandboxes/cgroup.subtree_control", extra)
        try:
            assert name in refused(place.sandbox())
        finally:
            write(f"{PLACE}/sandboxes/cgroup.subtree_control", "+" + extra[1:])


def test_programs_that_are_not_roots(place):
    copied = f"{place.base}/programs"
    os.mkdir(copied)
    for name in ("cloister-runner", "cloister-guest"):
        shutil.copy2(f"{PROGRAMS}/{name}", copied)
    assert place.sandbox(programs=copied).start().stop() == 0
    os.chmod(copied, 0o775)
    assert f"{copied} is writable for others than root (mode 0775)" in \
        refused(place.sandbox(programs=copied))
    os.chmod(copied, 0o755)
    give(f"{copied}/cloister-guest", 0o755)
    assert f"{copied}/cloister-guest belongs to user" in \
        refused(place.sandbox(guest=f"{copied}/cloister-guest"))
    shutil.copy2("/usr/bin/runsc", copied)
    os.chmod(f"{copied}/runsc", 0o775)
    assert f"{copied}/runsc is writable" in refused(place.sandbox(runsc=f"{copied}/runsc"))
    os.symlink(ROOTFS, f"{copied}/rootfs")
    assert "symbolic link" in refused(place.sandbox(rootfs=f"{copied}/rootfs"))


@pytest.mark.long
def test_two_at_once_are_apart(place):
    """A CPU spin in one, and the other still answers."""
    spinner, other = place.sandbox(cpus=100).start(), place.sandbox().start()
    spinner.begin(shell="for i in 1 2 3 4; do while :; do :; done & done; wait")
    slowest = max(other.run("true")[2] for _ in range(5))
    assert slowest < 20, slowest
    threads = [threading.Thread(target=s.stop) for s in (spinner, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not os.path.exists(leaf(spinner)) and not os.path.exists(leaf(other))


def test_an_address_that_the_host_obtains(place, network, capsys):
    """Refused in a running sandbox, what stands is cut, and the sandbox lives on."""
    sandbox = place.sandbox().start()
    expect_open(sandbox, PUBLIC, f"{LATER}:7")
    found = appear_and_watch(sandbox, LATER, ("address", "add", f"{LATER}/32", "dev", "lo"),
                             ("address", "del", f"{LATER}/32", "dev", "lo"))
    with capsys.disabled():
        print("\n    rule after {:.0f} ms, connection cut after {:.0f} ms, new one refused after "
              "{:.0f} ms".format(*(1000 * seconds for seconds in found)))
    # Emulated; 100 ms are held on a real processor by integration/test_egress.py.
    assert max(found) < 10, found
    expect_open(sandbox, PUBLIC)
    expect_refused(sandbox, f"{LATER}:7")
    assert sandbox.stop() == 0
