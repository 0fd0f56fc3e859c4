"""What code that took over the server process could do: system calls from inside it.

The calls are made by the real, running server's main thread (inject.py). Each is first
made in a process of the same user that nothing confines, where it has to work, unless
that user may not do it anyway.
"""

import os
import signal
import socket
import stat
import struct
import subprocess
import time

import pytest

from client import Client
from daemon import AS_SERVICE, Daemon, write_file
from inject import SUPPORTED, Injector
from world import ADDRESSES, SANITIZED, THREADS, Process, eventually

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="calls are injected on x86-64 only")

AT_FDCWD = -100
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
F_SETOWN = 8
PTRACE_SEIZE, PTRACE_DETACH = 0x4206, 17
MSG_FASTOPEN = 0x20000000
# Signals nobody minds; the right to send them is the right to send SIGKILL.
CONT = int(signal.SIGCONT)


@pytest.fixture(scope="module")
def daemon(world):
    """One whose tenant acme has a sandbox and a file."""
    daemon = Daemon(world, ("acme",)).start(confine=None)  # enforce is the default
    acme = daemon.client("acme")
    assert acme.run(acme.session(), "$ true").status == "completed"
    write_file(f"{daemon.tenants['acme'].workspace}/private", "of the tenant")
    yield daemon
    assert daemon.alive()
    assert daemon.stop() == 0, daemon.log()[-4000:]
    world.daemons.remove(daemon)


@pytest.fixture(scope="module")
def free(daemon):
    """A process of the same user that nothing confines."""
    process = subprocess.Popen([*AS_SERVICE, "sleep", "600"], cwd="/")
    daemon.world.listeners.append(process.pid)
    eventually(lambda: os.path.basename(os.readlink(f"/proc/{process.pid}/exe")) != "setpriv"
               and os.stat(f"/proc/{process.pid}/mem").st_uid != 0, 10, "the free process")
    yield process
    process.kill()
    process.wait()
    daemon.world.listeners.remove(process.pid)


def error(pid, *call):
    with Injector(pid) as thread:
        return thread.error(*call)


# --- what the kernel says about the processes -------------------------------------------


def test_every_thread_of_the_server_is_confined(daemon):
    server = daemon.server()
    threads = os.listdir(f"/proc/{server.pid}/task")
    assert len(threads) > 3
    free = [t for t in threads if Process(f"{server.pid}/task/{t}", "", 0).status("Seccomp") != "2"]
    assert len(free) == (1 if THREADS else 0), free  # a sanitizer's own
    for thread in set(threads) - set(free):
        with open(f"/proc/{server.pid}/task/{thread}/status", encoding="utf-8") as f:
            fields = dict(line.split(":", 1) for line in f)
        assert fields["Seccomp"].strip() == "2", thread
        assert fields["NoNewPrivs"].strip() == "1", thread
        assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0, thread
        assert fields["Groups"].strip() == "", thread
    line = [s for s in server.read("limits").splitlines() if s.startswith("Max core")][0]
    assert line.split()[4:6] == ["0", "0"], line
    said = [s for s in daemon.log().splitlines() if " confined: seccomp (enforce), Landlock" in s]
    assert len(said) == 1, daemon.log()
    said = [s for s in daemon.log().splitlines() if " server, sanitizer build, not for use: " in s]
    assert len(said) == (1 if SANITIZED else 0), daemon.log()


def test_what_may_start_programs_has_no_filter_and_shows_nothing(daemon):
    """Filters would pass through exec into the sandboxes."""
    launcher = Process(daemon.process.pid, "cloisterd", os.getpid())
    for process in (launcher, daemon.server(), daemon.runner("acme")):
        assert os.stat(f"/proc/{process.pid}/mem").st_uid == 0, f"{process} is dumpable"
    assert launcher.status("Seccomp") == "0"


def test_the_server_holds_no_descriptor_of_a_file(daemon):
    pid = daemon.server().pid
    kinds = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{fd}")
        if target not in ("/dev/null", daemon.log_path):
            kinds.add(target.split("[")[0])
    assert kinds == {"socket:", "pipe:", "anon_inode:"}, kinds


# --- what is refused, on one server that lives on ----------------------------------------


def listening(port):
    return struct.pack("!HH4s8x", socket.htons(socket.AF_INET), port, bytes((127, 0, 0, 1)))


def unused_port():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def attacks(daemon):
    """(what, call, what it comes to, what it comes to in the free process)."""
    workspace = daemon.tenants["acme"].workspace
    data = f"{daemon.state}/pg/data"
    postgres, launcher = daemon.postgres().pid, daemon.process.pid
    runner, sentry = daemon.runner("acme").pid, daemon.sentry("acme").pid
    hidden = "EACCES"  # not dumpable
    read, write, create = os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREAT
    stat_answer = "worked" if SANITIZED else "EACCES"
    return [
        ("read a workspace", ("openat", AT_FDCWD, f"{workspace}/private", read), "EACCES",
         "worked"),
        ("list a workspace", ("openat", AT_FDCWD, workspace, read | os.O_DIRECTORY), "EACCES",
         "worked"),
        ("stat in a workspace", ("stat", f"{workspace}/private", bytes(256)), stat_answer,
         "worked"),
        ("write in a workspace", ("openat", AT_FDCWD, f"{workspace}/private", write), "EPERM",
         "worked"),
        ("create in a workspace", ("openat", AT_FDCWD, f"{workspace}/new", create, 0o600),
         "EPERM", "worked"),
        ("mkdir in a workspace", ("mkdir", f"{workspace}/made", 0o700), "EPERM", "worked"),
        ("remove from a workspace", ("unlink", f"{workspace}/private"), "EPERM", None),
        ("guest state", ("openat", AT_FDCWD, f"{daemon.state}/tenants", read), "EACCES",
         "worked"),
        ("read the registry", ("openat", AT_FDCWD, daemon.registry, read), "EACCES", "worked"),
        ("write the registry", ("openat", AT_FDCWD, daemon.registry, write), "EPERM", "worked"),
        ("read a token", ("openat", AT_FDCWD, daemon.tenants["acme"].token_file, read),
         "EACCES", "worked"),
        ("read PostgreSQL's files", ("openat", AT_FDCWD, f"{data}/pg_hba.conf", read), "EACCES",
         "worked"),
        ("write PostgreSQL's files", ("openat", AT_FDCWD, f"{data}/pg_hba.conf", write), "EPERM",
         "worked"),
        ("truncate PostgreSQL's files", ("truncate", f"{data}/pg_hba.conf", 0), "EPERM", None),
        ("rename PostgreSQL's files", ("rename", f"{data}/pg_hba.conf", f"{data}/x"), "EPERM",
         None),
        ("/etc/passwd", ("openat", AT_FDCWD, "/etc/passwd", read), "EACCES", "worked"),
        ("PostgreSQL's memory", ("openat", AT_FDCWD, f"/proc/{postgres}/mem", write), "EPERM",
         "worked"),
        ("reading PostgreSQL's memory", ("openat", AT_FDCWD, f"/proc/{postgres}/mem", read),
         "EACCES", "worked"),
        ("the launcher's memory", ("openat", AT_FDCWD, f"/proc/{launcher}/mem", write), "EPERM",
         hidden),
        ("reading the launcher's memory", ("openat", AT_FDCWD, f"/proc/{launcher}/mem", read),
         "EACCES", hidden),
        ("the runner's memory", ("openat", AT_FDCWD, f"/proc/{runner}/mem", write), "EPERM",
         hidden),
        ("signal the launcher", ("kill", launcher, CONT), "EPERM", "worked"),
        ("signal the runner", ("kill", runner, CONT), "EPERM", "worked"),
        ("signal PostgreSQL", ("kill", postgres, CONT), "EPERM", "worked"),
        ("signal the sandbox", ("kill", sentry, CONT), "EPERM", None),
        ("signal a thread of the launcher", ("tgkill", launcher, launcher, CONT), "EPERM",
         "worked"),
        ("tkill", ("tkill", launcher, CONT), "EPERM", "worked"),
        ("open the launcher", ("pidfd_open", launcher, 0), "EPERM", "worked"),
        ("have a signal sent", ("fcntl", 0, F_SETOWN, launcher), "EPERM", None),
        ("limit the launcher", ("prlimit64", launcher, 7, struct.pack("QQ", 8, 8), 0), "EPERM",
         None),
        ("fork", ("fork",), "EPERM", None),
        ("a file in memory", ("memfd_create", "x", 0), "EPERM", "worked"),
        ("executable memory", ("mmap", 0, 4096, 7, 0x22, -1, 0), "EPERM", "worked"),
        ("become dumpable", ("prctl", 4, 1), "worked" if ADDRESSES else "EPERM", "worked"),
        ("outlive the launcher", ("prctl", 1, 0), "EPERM", "worked"),
        ("UDP", ("socket", socket.AF_INET, socket.SOCK_DGRAM, 0), "EPERM", "worked"),
        ("a local datagram", ("socket", socket.AF_UNIX, socket.SOCK_DGRAM, 0), "EPERM",
         "worked"),
        ("a call of no use", ("getpriority", 0, 0), "EPERM", "worked"),
    ]


def test_calls_from_inside_are_refused(daemon, free):
    server = daemon.server().pid
    plan = attacks(daemon)
    got = {what: error(free.pid, *call) for what, call, _, control in plan if control}
    assert got == {what: control for what, _, _, control in plan if control}
    got = {what: error(server, *call) for what, call, _, _ in plan}
    assert got == {what: expected for what, _, expected, _ in plan}
    workspace = daemon.tenants["acme"].workspace
    assert stat.S_ISREG(os.stat(f"{workspace}/private").st_mode)
    acme = daemon.client("acme")
    assert "private" in acme.run(acme.session(), "$ ls").text


def test_tcp_from_inside_goes_nowhere(daemon, free):
    """Not even to itself, by none of the ways to connect; and no other port is bound."""
    to, other = listening(daemon.port), listening(unused_port())
    expected = {"connect": "EACCES", "fast open": "EPERM", "bind": "EACCES"}
    got = {}
    for pid in (free.pid, daemon.server().pid):
        with Injector(pid) as thread:
            fds = [thread.call("socket", socket.AF_INET, socket.SOCK_STREAM, 0)
                   for _ in range(3)]
            got[pid] = {
                "connect": thread.error("connect", fds[0], to, len(to)),
                "fast open": thread.error("sendto", fds[1], b"x", 1, MSG_FASTOPEN, to, len(to)),
                "bind": thread.error("bind", fds[2], other, len(other)),
            }
            for fd in fds:
                thread.call("close", fd)
    assert got[free.pid] == dict.fromkeys(expected, "worked")
    assert got[daemon.server().pid] == expected
    assert daemon.client().request("GET", "/healthz").status == 200


# --- what kills -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortal(world):
    """A daemon that is started again after each death."""
    daemon = Daemon(world, ("acme",))
    yield daemon
    daemon.end()
    world.expect_nobody()


def deadly(free):
    program = "/bin/true"
    secret = struct.pack("QQ", 0x1000, 8)
    return {
        "execve": ("execve", program, [program], []),
        "execveat": ("execveat", AT_FDCWD, program, [program], [], 0),
        "ptrace": ("ptrace", PTRACE_SEIZE, free.pid, 0, 0),
        "process_vm_writev": ("process_vm_writev", free.pid, secret, 1, secret, 1, 0),
        "unshare": ("unshare", CLONE_NEWUSER),
        "clone": ("clone", CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0),
        "setns": ("setns", 0, CLONE_NEWNET),
        "mount": ("mount", "none", "/tmp", "tmpfs", 0, 0),
        "packets": ("socket", socket.AF_PACKET, socket.SOCK_RAW, 0),
        "netlink": ("socket", socket.AF_NETLINK, socket.SOCK_RAW, 0),
        "init_module": ("init_module", b"", 0, ""),
        "bpf": ("bpf", 0, bytes(64), 64),
        "io_uring": ("io_uring_setup", 1, bytes(128)),
        "keyctl": ("keyctl", 0, -3, 1),
    }


NAMES = list(deadly(type("Nobody", (), {"pid": 0})()))


@pytest.mark.parametrize("name", NAMES)
def test_a_deadly_call_ends_the_whole_daemon(mortal, free, name):
    """The server dies in the call, and nothing that it had is left running."""
    mortal.start(confine="enforce")
    acme = mortal.client("acme")
    if name == "execve":  # a sandbox makes it slower, so only once
        assert acme.run(acme.session(), "$ true").status == "completed"
    assert error(mortal.server().pid, *deadly(free)[name]) == "SIGSYS"
    assert mortal.ended() == 1
    assert "the server ended by itself: signal 31 (Bad system call)" in mortal.log()


def test_in_kill_mode_any_unknown_call_is_deadly(mortal):
    mortal.start(confine="kill")
    assert error(mortal.server().pid, "openat", AT_FDCWD, "/etc/passwd", 0) == "EACCES"
    assert error(mortal.server().pid, "getpriority", 0, 0) == "SIGSYS"
    assert mortal.ended() == 1


def test_there_is_no_mode_without_filter(make_daemon):
    code, lines = make_daemon().fail(confine="off")
    assert code == 2
    assert lines == ["cloisterd: --confine: off is not one of enforce or kill"]


def test_a_life_in_kill_mode(world, make_daemon):
    """What libraries do now and then: many keys to sort, large blocks, stop and continue."""
    daemon = make_daemon(("acme",)).start(confine="kill")
    server, acme = daemon.server(), daemon.client("acme")
    answer = acme.request("POST", "/v1/sessions", {f"k{i}": i for i in range(2000)})
    assert answer.status == 400, answer
    session = acme.session()
    text = "x" * 500_000
    assert acme.run(session, text).status == "completed"
    server.kill(signal.SIGSTOP)
    time.sleep(0.1)
    server.kill(signal.SIGCONT)
    outcome = acme.watch(session, "$ head -c 300000 /dev/zero | tr '\\0' y; sleep 0.2; echo end")
    assert outcome.status == "completed"
    with socket.create_connection(("127.0.0.1", daemon.port)) as rude:
        rude.sendall(b"POST /v1/sessions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n")
        assert rude.recv(100).startswith(b"HTTP/1.1 4")
    assert Client(daemon.port).request("GET", "/healthz").status == 200
    assert daemon.stop() == 0
