"""A tenant who is root in its sandbox and wants out: powers, files, limits.

Each attack is made inside a real sandbox; after each, the daemon and another tenant go on.
"""

import os
import re
import stat

import pytest

from hostile import LIMITS, Stage, build, put
from world import descendants

MIB = 1 << 20


@pytest.fixture(scope="module")
def shared(world):
    stage = Stage(world)
    put(stage.workspace, build(world, "powers", "-static"), "powers")
    yield stage
    stage.close()


@pytest.fixture
def stage(shared):
    yield shared
    shared.judge()


# --- powers --------------------------------------------------------------------------------

# gVisor's own, with no effect outside of its model of a machine.
HARMLESS = {"nice", "/proc/1/oom_score_adj"}
PARTS = {"mounts": 14, "namespaces": 26, "kernel": 17, "devices": 15, "files": 30, "processes": 8}


def attempts(stage, part):
    """{attempt: "WORKED" or an error's name}"""
    outcome = stage.run(f"/workspace/powers {part}")
    assert outcome.details["exitCode"] == 0, outcome.text
    found = dict(line.rsplit(": ", 1) for line in outcome.text.splitlines() if ": " in line)
    assert not {"(null)", "None"} & set(found.values()), found
    return found


@pytest.mark.parametrize("part", PARTS)
def test_no_power_works(stage, part):
    """Mounts, namespaces, modules, devices, /proc and /sys, other processes, the root."""
    found = attempts(stage, part)
    assert len(found) >= PARTS[part], found
    assert {name for name, result in found.items() if result == "WORKED"} <= HARMLESS, found
    # Nothing of what was made lies in the workspace on the host.
    for name in os.listdir(stage.workspace):
        assert stat.S_ISREG(os.lstat(f"{stage.workspace}/{name}").st_mode), name


def test_the_machine_is_not_the_tenants(stage):
    """The attempts on the host's own files left no trace on the host."""
    with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as f:
        assert f.read() != "1"
    text = stage.run("cat /proc/self/status").text
    assert re.search(r"^CapBnd:\s*0+$", text, re.MULTILINE), text
    assert not os.path.exists("/x") and not os.path.exists(f"{stage.daemon.world.rootfs}/x")


AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
STREAM, DGRAM, RAW, SEQPACKET = 1, 2, 3, 5
PLAIN = {*((AF_INET, STREAM, p) for p in (0, 6)), *((AF_INET, DGRAM, p) for p in (0, 1, 17)),
         *((AF_INET6, STREAM, p) for p in (0, 6)), *((AF_INET6, DGRAM, p) for p in (0, 17, 58)),
         *((AF_NETLINK, t, p) for t in (DGRAM, RAW) for p in (0, 15)),  # routes, uevents
         *((AF_UNIX, t, p) for t in (STREAM, DGRAM, RAW, SEQPACKET) for p in (0, 1))}


def test_only_plain_sockets(stage):
    """No raw and no packet socket among all families; no address but the sandbox's own."""
    found = attempts(stage, "sockets")
    opened = {tuple(map(int, name.split()[1:])) for name, result in found.items()
              if name.startswith("socket ") and result == "WORKED"}
    assert (AF_INET, STREAM, 0) in opened
    assert opened <= PLAIN, opened - PLAIN
    for name in ("add an address", "bind to the host's address", "bind, free", "bind, transparent"):
        assert found[name] not in ("WORKED",), (name, found[name])


def test_descriptors_lead_nowhere(stage):
    """Those of every process inside, the guest's among them; and what the host holds open."""
    outcome = stage.run("/workspace/powers descriptors")
    results = [line for line in outcome.text.splitlines() if line.startswith(("setns", "leave"))]
    assert len(results) > 10, outcome.text
    assert all(not line.endswith("WORKED") for line in results), outcome.text
    runner = stage.daemon.runner("mallory").pid
    for process in descendants(runner):
        kinds = set()
        for fd in os.listdir(f"/proc/{process.pid}/fd"):
            kinds.add(os.readlink(f"/proc/{process.pid}/fd/{fd}").split(":")[0])
        spaces = kinds & {"net", "user", "mnt", "pid", "cgroup", "uts", "ipc"}
        # slirp4netns is not of the sandbox: it holds the router's.
        assert spaces <= ({"net"} if process.name == "slirp4netns" else set()), process


def test_a_set_user_id_file_gives_nothing(stage):
    outcome = stage.run("cp /usr/bin/id /workspace/id && chmod 6755 /workspace/id; /workspace/id; "
                        "grep ' /workspace ' /proc/mounts; rm -f /workspace/id")
    assert "uid=0(root) gid=0(root) groups=0(root)" in outcome.text, outcome.text
    # On the host, the mount that the sandbox uses honours none.
    with open(f"/proc/{stage.daemon.sentry('mallory').pid}/mountinfo", encoding="utf-8") as f:
        lines = [line.split() for line in f if "/workspace" in line or "/state" in line]
    for words in lines:
        assert "nosuid" in words[5], words


# --- limits --------------------------------------------------------------------------------


@pytest.mark.parametrize("place,most", [("/tmp", 32), ("/dev/shm", 8), ("/var/tmp", 8),
                                        ("/run", 2), ("/dev", 128)])
def test_what_is_kept_in_memory_is_bounded(stage, place, most):
    """Filling it is ENOSPC and not the end of the sandbox."""
    before = stage.daemon.sentry("mallory").pid
    outcome = stage.run(f"f={place}/attack; head -c 150M /dev/zero >$f; stat -c %s $f; rm $f")
    assert "No space left on device" in outcome.text, outcome.text
    assert int(outcome.text.split()[-1]) <= most * MIB, outcome.text
    assert stage.daemon.sentry("mallory").pid == before


def test_the_root_cannot_be_filled(stage):
    outcome = stage.run("for d in / /etc /var /usr/local /home /opt /mnt /srv /cloister; do "
                        "head -c 1M /dev/zero >$d/attack && echo wrote $d; done; true")
    assert "wrote" not in outcome.text and outcome.text.count("attack") >= 7, outcome.text


INODES = "mkdir -p {d} && cd {d} && seq 3000 | xargs touch; ls | wc -l; cd / && rm -rf {d}"


def test_many_files(stage):
    """In memory and in the workspace."""
    for directory in ("/tmp/many", "/workspace/many"):
        outcome = stage.run(INODES.format(d=directory))
        assert outcome.text == "3000\n", outcome.text
    assert "many" not in os.listdir(stage.workspace)


FORKS = """
import os, signal, sys
made = []
try:
    while len(made) < 3000:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        made.append(pid)
except OSError as error:
    print(error.errno)
print(len(made))
for pid in made:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("prefix", ["", "unshare -Ur ", "setpriv --nnp "])
def test_processes_are_limited_and_nothing_lifts_it(stage, prefix):
    stage.mallory.tool(stage.session, "write_file", path="forks.py", content=FORKS)
    outcome = stage.run(f"ulimit -u 100000; {prefix}python3 /workspace/forks.py")
    if prefix == "unshare -Ur ":
        assert "Operation not permitted" in outcome.text, outcome.text
    else:
        assert outcome.text.splitlines()[-2] == "11", outcome.text
        assert 30 < int(outcome.text.split()[-1]) < LIMITS["processes"], outcome.text
    assert stage.run("echo next").text == "next\n"


def test_memory_of_processes(stage):
    """Within gVisor; how much of the machine that is, is the cgroup's affair."""
    outcome = stage.run("ulimit -v 4000000; python3 -c 'x = bytearray(8 << 30)'; echo $?")
    assert "MemoryError" in outcome.text, outcome.text
    assert stage.run("echo next").text == "next\n"


# --- sockets of the host -------------------------------------------------------------------

PATHS = """
import os, socket, sys
for name in sys.argv[1:]:
    for path in (name, "\\0" + name):
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(path)
            print(name, "OPEN")
        except OSError as error:
            print(name, error.errno)
"""


def test_local_sockets_of_the_host(stage):
    """PostgreSQL's and the control socket by their own paths, and names without a file."""
    daemon = stage.daemon
    sockets = []
    with open("/proc/net/unix", encoding="utf-8") as f:
        for line in f.readlines()[1:]:
            words = line.split()
            if len(words) == 8:
                sockets.append(words[7].lstrip("@"))
    ours = [path for path in sockets if path.startswith(daemon.state) or ".s.PGSQL" in path]
    assert any(".s.PGSQL" in path for path in ours) and len(ours) > 1, ours
    stage.mallory.tool(stage.session, "write_file", path="paths.py", content=PATHS)
    outcome = stage.run(f"python3 /workspace/paths.py {' '.join(sorted(set(sockets))[:50] + ours)}")
    assert outcome.details["exitCode"] == 0 and "OPEN" not in outcome.text, outcome.text


def test_a_socket_in_the_workspace_connects_nobody(stage):
    """One that the host listens on, planted by somebody with access to both."""
    import socket
    path = f"{stage.workspace}/door"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        os.chmod(path, 0o777)
        listener.listen()
        outcome = stage.run("python3 -c 'import socket; "
                            "socket.socket(socket.AF_UNIX).connect(\"/workspace/door\")'")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    os.unlink(path)
    assert outcome.details["exitCode"] == 1, outcome.text
