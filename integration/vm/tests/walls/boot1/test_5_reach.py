"""What a server that was taken over could connect to: its own database, and nothing else."""

import os
import socket
import subprocess
import threading

import pytest

from daemon import AS_SERVICE
from inject import Injector
from reach import ABSTRACT_ABI, listening, reach
from service import STATE

pytestmark = pytest.mark.short

BUS = "/run/dbus/system_bus_socket"
CONNECT = """
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
s.connect(sys.argv[1].replace("@", "\\0", 1))
print("worked")
"""
DATABASE = f"{STATE}/pg/run"


@pytest.fixture
def machine():
    """What a larger machine offers to all its users: a system bus, and an abstract socket."""
    names = [BUS, "@cloister-vm/offered", "/run/offered.sock"]
    made = []
    os.makedirs(os.path.dirname(BUS), exist_ok=True)
    for name in names:
        if name not in listening(DATABASE):
            made.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            made[-1].bind(name.replace("@", "\0", 1))
            made[-1].listen(16)
            if name[0] == "/":
                os.chmod(name, 0o666)
            threading.Thread(target=accept, args=(made[-1],), daemon=True).start()
    yield names
    for sock in made:
        path = sock.getsockname()
        sock.close()
        if isinstance(path, str) and path.startswith("/"):
            os.unlink(path)


def accept(sock):
    try:
        while True:
            sock.accept()[0].close()
    except OSError:
        pass


def landlock_version(service):
    said = [line for line in service.log().splitlines() if "Landlock version " in line]
    return int(said[-1].split("Landlock version ")[1].split()[0])


def test_the_server_reaches_its_database_and_no_other_socket(service, machine):
    everything = listening(DATABASE)
    own = {name for name in everything if name.startswith(f"{DATABASE}/")}
    assert len(own) == 1, everything
    for name in machine:
        done = subprocess.run([*AS_SERVICE, "/usr/bin/python3", "-c", CONNECT, name],
                              capture_output=True, text=True, check=False)
        assert done.stdout == "worked\n", f"{name} is closed to everybody: {done.stderr}"
    server = service.server().pid
    got = reach(server, DATABASE)
    with Injector(server) as thread:
        datagram = thread.error("socket", socket.AF_UNIX, socket.SOCK_DGRAM, 0)
    assert datagram == "EPERM"
    reached = {name for name, result in got.items() if result == "worked"}
    abstract = {name for name in everything if name.startswith("@")}
    # Older kernels cannot tell abstract sockets from others: docs/threat-model.md says so.
    expected = own if landlock_version(service) >= ABSTRACT_ABI else own | abstract
    print(got)
    assert reached == expected, got
    assert service.client().request("GET", "/healthz").status == 200
