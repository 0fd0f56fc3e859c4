"""SIGHUP asks for another look at the registry. It ends none of our processes, at no moment."""

import contextlib
import os
import signal
import subprocess
import threading

from daemon import AS_SERVICE, ENVIRONMENT
from world import Process, descendants, eventually

HANGUP = 1 << (signal.SIGHUP - 1)
OURS = ("cloisterd", "cloister-runner")


def blocks(process):
    return int(process.status("SigBlk") or "0", 16) & HANGUP


def writes(process):
    """It sleeps in write(2) to its standard error."""
    return process.read("syscall").split()[:2] == ["1", "0x2"]


def test_a_launcher_that_has_not_begun_to_listen(make_daemon):
    """It is held where it says what is wrong with its registry: nobody reads that."""
    daemon = make_daemon()
    daemon.write_registry({"version": 1, "tenants": [{"name": "x" * 100}]})
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write_end, b"\n" * 4096)
    os.set_blocking(write_end, True)
    with subprocess.Popen([*AS_SERVICE, *daemon.command()], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=write_end, cwd="/",
                          env=ENVIRONMENT) as popen:
        os.close(write_end)
        held = Process(popen.pid, "cloisterd", os.getpid())
        eventually(lambda: writes(held) or None, 30, "a launcher that is held")
        held.kill(signal.SIGHUP)
        with open(read_end, "rb") as said:
            text = said.read().decode()
        assert popen.wait(30) == 2 and text.endswith("faults\n"), text[-500:]


def test_a_storm_through_a_whole_life(make_daemon):
    daemon = make_daemon()
    daemon.spawn(daemon.command())
    launcher = Process(daemon.main_pid(), "cloisterd", os.getpid())
    eventually(lambda: blocks(launcher) or None, 30, "the launcher")
    over, hit = threading.Event(), set()

    def storm():
        while not over.is_set():
            for process in (launcher, *descendants(launcher.pid)):
                if process.name in OURS:
                    hit.add(process.pid)
                    with contextlib.suppress(ProcessLookupError):
                        process.kill(signal.SIGHUP)

    thread = threading.Thread(target=storm, daemon=True)
    thread.start()
    try:
        daemon.wait_ready()
        acme, server = daemon.client("acme"), daemon.server()
        assert acme.run(acme.session(), "$ echo through").text == "through\n"
        runner = daemon.runner("acme")
        eventually(lambda: {server.pid, runner.pid} <= hit or None, 30, "all of them hit")
        assert acme.run(acme.session(), "$ echo on").text == "on\n"
        assert daemon.runner("acme").pid == runner.pid and daemon.server().pid == server.pid
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0
    finally:
        over.set()
        thread.join()
    assert daemon.ended() == 0
