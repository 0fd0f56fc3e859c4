"""What a server that was taken over could connect to: every local stream socket of the machine
that takes connections, tried by one of its threads. In the machines of Debian and of NixOS alike.

  reach.py PID DATABASE   as root; prints {socket: "worked" or the error that it met}

DATABASE is the directory of its database's socket. Abstract sockets are written @name.
"""

import json
import os
import socket
import struct
import sys

from inject import Injector

PATH_MAX, SO_ACCEPTCON = 108, 0x10000
ABSTRACT_ABI = 6  # of Landlock: the first that can refuse abstract sockets


def listening(database):
    found = set()
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as f:
        lines = f.read().splitlines()[1:]
    for line in lines:
        fields = line.split(maxsplit=7)
        if len(fields) == 8 and int(fields[3], 16) & SO_ACCEPTCON and fields[4] == "0001":
            # PostgreSQL has made its own with a path from its data directory.
            found.add(fields[7].replace("../run/", f"{database}/", 1))
    return sorted(found)


def address(name):
    return struct.pack("H", socket.AF_UNIX) + \
        name.replace("@", "\0", 1).encode()[:PATH_MAX - 1] + (b"" if name[0] == "@" else b"\0")


def connect(pid, name):
    """Each in a hold of its own: the server's thread must not be away for long."""
    to = address(name)
    with Injector(pid) as thread:
        fd = thread.call("socket", socket.AF_UNIX, socket.SOCK_STREAM, 0)
        result = thread.error("connect", fd, to, len(to))
        thread.call("close", fd)
    return result


def reach(pid, database):
    return {name: connect(pid, name) for name in listening(database)}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print(json.dumps(reach(int(sys.argv[1]), os.path.normpath(sys.argv[2]))))
