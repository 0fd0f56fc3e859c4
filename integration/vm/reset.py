"""What was accepted before the machine was reset, noted where a reset cannot undo it.

The third disk is raw and written directly: no file system of the machine is flushed by
it, which would save what a service that forgot to flush deserves to lose.
"""

import json
import os

from service import run

DISK, SIZE = "/dev/vdc", 65536


def write(note):
    text = json.dumps(note).encode()
    assert len(text) <= SIZE
    fd = os.open(DISK, os.O_WRONLY | os.O_SYNC)
    try:
        os.write(fd, text.ljust(SIZE, b" "))
    finally:
        os.close(fd)


def read():
    with open(DISK, "rb") as disk:
        return json.loads(disk.read(SIZE))


def hold_back():
    """From here on the kernel writes only what somebody asks it to write."""
    os.sync()
    for name in ("dirty_writeback_centisecs", "dirty_expire_centisecs"):
        run("sysctl", "-q", "-w", f"vm.{name}=360000")


def accept(client, turns=3):
    """Work that the service says it has: finished turns, and one that is running."""
    session = client.session(model="demo")
    finished = {}
    for number in range(turns):
        turn = client.start(session, f"$ echo kept {number}")
        finished[turn] = client.wait(turn).text
    other = client.session(model="demo")
    running = client.start(other, "$ sleep 300")
    client.wait_for(running, "running")
    write({"session": session, "finished": finished, "running": running})


def lost(client):
    """What of the accepted is not there, in words; empty when all is."""
    note = read()
    missing = []
    for turn, text in note["finished"].items():
        answer = client.request("GET", f"/v1/turns/{turn}/result")
        if answer.status != 200 or answer.json["output"]["assistantText"] != text:
            missing.append(f"turn {turn}: {answer}")
    answer = client.request("GET", f"/v1/turns/{note['running']}")
    if answer.status != 200:
        missing.append(f"the running turn: {answer}")
    return missing
