"""Attacks on starts and ends: what is mounted, what was loaded, what is said, what hangs."""

import ctypes
import os
import re
import signal
import time

import pytest

from daemon import AS_SERVICE, make_directory, write_file
from hostile import build, put
from sandbox import Sandbox
from world import ADDRESSES, demo, eventually

PUBLIC, HOST = demo.PUBLIC, demo.HOST_ADDRESS
RENAME_EXCHANGE, AT_FDCWD = 2, -100
RACE_SECONDS = 3

# --- mounts --------------------------------------------------------------------------------


def swap_forever(one, other):
    """Exchanges two names as fast as it goes, in a process of its own; its id."""
    parent, libc = os.getpid(), ctypes.CDLL(None)
    a, b = os.fsencode(one), os.fsencode(other)
    pid = os.fork()
    if pid == 0:
        try:
            while os.getppid() == parent:
                libc.renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE)
        finally:
            os._exit(0)
    return pid


def label(directory, text):
    write_file(f"{directory}/who", text)


def race(sandbox, one, other):
    """(started, refused) while the names were exchanged; a start may only see its own."""
    started = refused = 0
    pid = swap_forever(one, other)
    try:
        end = time.monotonic() + RACE_SECONDS
        while time.monotonic() < end or started + refused < 4:
            try:
                sandbox.start()
            except (EOFError, BrokenPipeError):
                assert sandbox.ended() == 2
                assert re.search(r"not the directory that was declared|symbolic link|No such file|"
                                 r"Not a directory", sandbox.reason()), sandbox.reason()
                refused += 1
                continue
            finally:
                sandbox.buffer = b""
            assert sandbox.run("cat /workspace/who /state/who")[1] == "minemine"
            assert sandbox.stop() == 0
            started += 1
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return started, refused


@pytest.mark.parametrize("kind", ["directory", "link", "parent", "state"])
def test_a_swap_during_the_launch(world, kind):
    """Of the directory, for a link to another, of the one above it: refused or harmless."""
    directory = world.new_directory()
    os.mkdir(directory)
    for name in ("mine", "theirs"):
        make_directory(f"{directory}/{name}")
    sandbox = Sandbox(world.programs, world.rootfs, f"{directory}/mine")
    trap = f"{directory}/theirs"
    for name in ("workspace", "state", "run"):
        make_directory(f"{trap}/{name}")
        label(f"{trap}/{name}", "theirs")
    for name in ("workspace", "state"):
        label(f"{directory}/mine/{name}", "mine")
    place = "state" if kind == "state" else "workspace"
    one, other = f"{directory}/mine/{place}", f"{trap}/{place}"
    if kind == "link":
        os.symlink(other, f"{directory}/link")
        other = f"{directory}/link"
    if kind == "parent":
        # The log and the locks stay where they are, whatever becomes of the workspace's parent.
        for name in ("above", "beside"):
            make_directory(f"{directory}/{name}")
        os.rename(one, f"{directory}/above/workspace")
        os.rename(other, f"{directory}/beside/workspace")
        one, other = f"{directory}/above", f"{directory}/beside"
        words = sandbox.command
        words[words.index("--workspace") + 1] = f"{one}/workspace"
    found = race(sandbox, one, other)
    print(f"{kind}: {found[0]} started with what was declared, {found[1]} refused")
    assert found[1] > 0, f"{found}: nothing was ever swapped in time"
    world.expect_nobody()


def test_a_swap_after_the_launch(world):
    """What runs keeps what it has, under whatever name."""
    sandbox = Sandbox(world.programs, world.rootfs, world.new_directory())
    sandbox.start()
    workspace = f"{sandbox.directory}/workspace"
    os.rename(workspace, f"{workspace}.mine")
    make_directory(workspace)
    label(workspace, "theirs")
    assert sandbox.run("cat /workspace/who; echo mine >/workspace/new")[0] == 0
    assert sorted(os.listdir(workspace)) == ["who"]
    assert os.listdir(f"{workspace}.mine") == ["new"]
    assert sandbox.stop() == 0


# --- rules ---------------------------------------------------------------------------------


@pytest.mark.skipif(ADDRESSES, reason="a sanitizer has to be the first library")
@pytest.mark.parametrize("what,word", [
    ("policy", "the chains and rules are not as loaded"),
    ("rule", "the chains and rules are not as loaded"),
    ("set", "the set local is not as loaded")])
def test_rules_that_read_back_differently_end_the_start(world, what, word):
    """Before anything of the tenant runs."""
    library = build(world, "readback", "-shared", "-fPIC")
    prefix = [*AS_SERVICE, "env", f"LD_PRELOAD={library}"]
    for changed in (what, "nothing"):
        sandbox = Sandbox(world.programs, world.rootfs, world.new_directory(),
                          prefix=[*prefix, f"READBACK={changed}"])
        if changed == "nothing":  # so that it is the difference that ends it
            sandbox.start()
            assert sandbox.stop() == 0
            continue
        assert sandbox.spawn().ended() == 2
        assert "read the packet rules back" in sandbox.reason() and word in sandbox.reason()
        assert "handed to runsc" not in sandbox.log()
    world.expect_nobody()


def test_no_question_leaves_without_resolvers(world):
    """Mode allow: counted by the rules, and quick."""
    sandbox = Sandbox(world.programs, world.rootfs, world.new_directory(), "--egress-allow",
                      "0.0.0.0/0", egress="allow")
    sandbox.start()
    found = [sandbox.run("getent hosts example.com; getent ahosts example.com") for _ in range(3)]
    assert all(code != 0 for code, _, _ in found), found
    assert min(seconds for _, _, seconds in found) < 3, found
    sandbox.process.send_signal(signal.SIGUSR1)
    said = eventually(lambda: re.search(r"egress accepted=(\d+) refused=(\d+)", sandbox.log()), 10,
                      "the counters")
    assert said[1] == "0", said[0]
    assert sandbox.stop() == 0


def test_host_addresses_reach_every_sandbox(make_daemon):
    """From the daemon's command line, whatever a tenant's own list opens."""
    daemon = make_daemon(options=["--host-address=198.41.0.0/30", f"--host-address={PUBLIC}/32"])
    entries = [t.entry() for t in daemon.tenants.values()]
    entries[1]["egress"] = {"mode": "allow", "allow": [{"cidr": "0.0.0.0/0"}]}
    daemon.write_registry({"version": 1, "tenants": entries})
    daemon.start()
    line = (f"$ for a in {PUBLIC} 198.41.0.3 {demo.GATEWAY}; do "
            "(exec 3<>/dev/tcp/$a/80) 2>/dev/null && echo open || echo refused; done")
    for name in ("acme", "globex"):
        client = daemon.client(name)
        assert client.run(client.session(), line).text == "refused\nrefused\nopen\n", name
    assert daemon.stop() == 0


# --- ends ------------------------------------------------------------------------------------


def test_a_wedged_sandbox_delays_nobody_and_can_be_removed(make_daemon):
    """Its kernel stands still: others start and work, and its tenant can be taken away."""
    daemon = make_daemon(("acme", "globex", "initech")).start()
    acme, globex, initech = (daemon.client(n) for n in ("acme", "globex", "initech"))
    session = globex.session()
    globex.run(session, "$ true")
    stuck = acme.session()
    acme.run(stuck, "$ true")
    sentry, runner = daemon.sentry("acme"), daemon.runner("acme")
    sentry.kill(signal.SIGSTOP)
    turn = acme.start(stuck, "$ echo never")
    begin = time.monotonic()
    assert globex.run(session, "$ echo beside").text == "beside\n"
    assert initech.run(initech.session(), "$ echo new").text == "new\n"
    assert acme.call("GET", f"/v1/turns/{turn}")["status"] == "running"
    assert time.monotonic() - begin < 15
    entries = [t.entry() for name, t in daemon.tenants.items() if name != "acme"]
    daemon.write_registry({"version": 1, "tenants": entries})
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: not sentry.lives() and not runner.lives(), 30, "the end of the stuck one")
    assert globex.run(session, "$ echo still").text == "still\n"
    assert daemon.stop() == 0


def test_a_stop_with_a_wedged_sandbox(make_daemon):
    daemon = make_daemon(options=["--drain-seconds=1"]).start()
    client = daemon.client("acme")
    client.run(client.session(), "$ true")
    daemon.sentry("acme").kill(signal.SIGSTOP)
    begin = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - begin < 30


def test_work_in_the_background_keeps_a_sandbox(make_daemon):
    daemon = make_daemon(options=["--sandbox-idle-seconds=1"]).start()
    client = daemon.client("acme")
    session = client.session()
    client.run(session, "$ (setsid sh -c 'sleep 5; echo done >/workspace/done' &) ; true")
    path = f"{daemon.tenants['acme'].workspace}/done"
    eventually(lambda: os.path.exists(path), 30, "the end of the work in the background")
    daemon.expect_end("acme")
    assert "stops: idle" in daemon.log() and daemon.log().count("runner started") <= 1
    assert daemon.stop() == 0


def test_a_guest_that_cannot_be_run(make_daemon):
    """runsc makes a sandbox first, and says then that it cannot."""
    daemon = make_daemon()
    guest = f"{daemon.var}/guest"
    write_file(guest, "no program\n", 0o755)
    daemon.start(guest=guest)
    client = daemon.client("acme")
    outcome = client.run(client.session(), "$ true")
    assert (outcome.status, outcome.error["code"]) == ("failed", "sandbox_unavailable")
    said = "runsc could not start the sandbox: .*exec format error"
    eventually(lambda: "ended: exit status 2" in daemon.log(), 10, "its end in the log")
    assert re.search(f"runner: {said}", daemon.log()), daemon.log()
    assert daemon.stop() == 0


@pytest.mark.parametrize("lines", [60, 20000])
def test_a_start_that_fails_says_little(make_daemon, lines):
    """The last words in the operator's log, bounded; a name and no path for the tenant."""
    daemon = make_daemon()
    put(daemon.var, build(daemon.world, "noisy", "-static", f"-DLINES={lines}"), "runsc")
    daemon.start(runsc=f"{daemon.var}/runsc")
    before = len(daemon.log())
    client = daemon.client("acme")
    outcome = client.run(client.session(), "$ true")
    assert (outcome.status, outcome.error["code"]) == ("failed", "sandbox_unavailable")
    assert "/" not in outcome.error["message"] and "noise" not in outcome.error["message"]
    eventually(lambda: "ended: exit status" in daemon.log()[before:], 10, "its end in the log")
    said = daemon.log()[before:]
    assert len(said) < 64 << 10 and "\033" not in said, len(said)
    assert "noise" in said
    if lines == 60:  # a flood may cover what follows it
        assert "runsc could not start the sandbox: the very last words" in said, said
    assert daemon.stop() == 0
