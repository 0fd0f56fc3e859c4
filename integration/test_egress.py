"""What a sandbox may reach, by mode, list and resolver: the runner alone, without the daemon."""

import contextlib
import datetime
import os
import re
import signal
import socket
import statistics
import struct
import subprocess
import threading
import time

import pytest

from daemon import AS_SERVICE
from rules import nft
from sandbox import Sandbox
from world import demo, descendants, eventually, in_time, punctual

PUBLIC, PRIVATE, METADATA, HOST = demo.PUBLIC, demo.PRIVATE, demo.METADATA, demo.HOST_ADDRESS
LATER, ROUTED = "198.41.0.9", "198.41.0.10"
NAME = "answer.example"
AT_ONCE = 2.0  # seconds, at one of three tries: what is dropped takes longer each time


def echo(connection):
    with connection:
        while data := connection.recv(4096):
            connection.sendall(data)


def answer(query, address):
    """A DNS answer that says that every name has the address."""
    return (query[:2] + struct.pack(">HHHHH", 0x8180, 1, 1, 0, 0) + query[12:] +
            struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(address))


def serve_udp(sock, asked):
    while True:
        query, peer = sock.recvfrom(4096)
        os.write(asked, b"u")
        sock.sendto(answer(query, "192.0.43.8"), peer)


def serve_tcp(listener, handle):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=handle, args=(connection,), daemon=True).start()


def play_internet(netns, asked):
    """Echo on port 7, name servers on the public and the private address."""
    demo.enter_netns(netns)
    for address in (LATER, ROUTED):
        demo.ip("address", "add", f"{address}/32", "dev", "lo")
    for address in (PUBLIC, PRIVATE):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((address, 53))
        threading.Thread(target=serve_udp, args=(sock, asked), daemon=True).start()
    serve_tcp(socket.create_server(("0.0.0.0", 7)), echo)


@pytest.fixture(scope="module")
def internet(world):
    """Read end of a pipe with one byte for every question that a name server was asked."""
    asked, tell = os.pipe()
    os.set_blocking(asked, False)
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            play_internet(world.internet, tell)
        finally:
            os._exit(1)
    world.listeners.append(pid)
    eventually(lambda: reaches_from_here(LATER, 7), 10, "the internet answers")
    yield asked
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    world.listeners.remove(pid)
    os.close(asked)
    os.close(tell)


def reaches_from_here(address, port):
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True


@pytest.fixture
def run_sandbox(world, internet):
    made = []

    def start(*options, **changed):
        made.append(Sandbox(world.programs, world.rootfs, world.new_directory(), *options,
                            **changed))
        return made[-1].start()

    yield start
    for sandbox in made:
        sandbox.close()
    world.expect_nobody()


def connect_once(sandbox, address, port):
    """"open", or the error and the seconds it took."""
    text = sandbox.python(f"""
import socket, time
begin = time.monotonic()
try:
    socket.create_connection(("{address}", {port}), 20).close()
    print("open", 0)
except OSError as error:
    print(type(error).__name__, time.monotonic() - begin)
""")
    kind, seconds = text.split()
    return kind, float(seconds)


def connect(sandbox, address, port=80):
    """The quickest of up to three: anybody on the way may have stood still."""
    found = []
    while len(found) < 3 and not (found and found[-1][1] < AT_ONCE):
        found.append(connect_once(sandbox, address, port))
        assert found[-1][0] == found[0][0], found
    return min(found, key=lambda one: one[1])


def expect_open(sandbox, *targets):
    for target in targets:
        address, _, port = target.partition(":")
        assert connect(sandbox, address, int(port or 80))[0] == "open", target


def expect_refused(sandbox, *targets):
    for target in targets:
        address, _, port = target.partition(":")
        kind, seconds = connect(sandbox, address, int(port or 80))
        assert kind == "ConnectionRefusedError", (target, kind)
        assert seconds < AT_ONCE, f"{target} was refused only after {seconds} s"


def look_up(sandbox, seconds=60):
    begin = time.monotonic()
    code, text, _ = sandbox.run(f"getent ahostsv4 {NAME} | head -1; exit ${{PIPESTATUS[0]}}",
                                seconds)
    return code, text.split()[:1], time.monotonic() - begin


def questions(asked):
    try:
        return len(os.read(asked, 4096))
    except BlockingIOError:
        return 0


# -- modes ---------------------------------------------------------------------------------


def test_public(run_sandbox):
    sandbox = run_sandbox()
    expect_open(sandbox, PUBLIC, f"{LATER}:7")
    expect_refused(sandbox, HOST, PRIVATE, METADATA, "10.0.2.2", "192.0.2.1", f"{PUBLIC}:53")
    assert sandbox.stop() == 0


def test_none(run_sandbox):
    """No slirp4netns is there, nor needed; loopback works, and nothing else."""
    sandbox = run_sandbox(egress="none", slirp4netns="/nonexistent")
    names = [p.name for p in descendants(sandbox.process.pid)]
    assert "slirp4netns" not in names, names
    for address in (PUBLIC, HOST, "192.0.2.1", "10.0.2.3"):
        kind, seconds = connect(sandbox, address)
        assert kind == "OSError" and seconds < AT_ONCE, (address, kind)
    assert sandbox.python("""
import socket
listener = socket.create_server(("127.0.0.1", 0))
socket.create_connection(listener.getsockname()).send(b"x")
print(listener.accept()[0].recv(1))""") == "b'x'\n"
    assert sandbox.run("cat /proc/net/dev")[1].count(":") == 1
    assert look_up(sandbox)[0] != 0
    sandbox.process.send_signal(signal.SIGUSR1)
    eventually(lambda: "egress none" in sandbox.log(), 10, "the counters")
    assert sandbox.stop() == 0


def test_allow(run_sandbox):
    sandbox = run_sandbox("--egress-allow", f"{PUBLIC}/32:80", "--egress-allow", f"{LATER}/32",
                          egress="allow")
    expect_open(sandbox, PUBLIC, LATER, f"{LATER}:7")
    expect_refused(sandbox, f"{PUBLIC}:7", ROUTED, HOST, PRIVATE, METADATA, f"{LATER}:53")
    assert sandbox.stop() == 0


def test_allow_what_is_otherwise_private(run_sandbox):
    sandbox = run_sandbox("--egress-allow", "10.96.0.0/12:80", egress="allow")
    expect_open(sandbox, PRIVATE)
    expect_refused(sandbox, f"{PRIVATE}:7", PUBLIC, "10.95.0.1", "10.112.0.1")
    assert sandbox.stop() == 0


def test_allow_everything_opens_nothing_of_the_host(run_sandbox):
    sandbox = run_sandbox("--egress-allow", "0.0.0.0/0", "--egress-allow", "0.0.0.0/0:1-65535",
                          "--egress-allow", "255.255.255.255/32", "--egress-allow",
                          f"{HOST}/32:80", egress="allow")
    expect_open(sandbox, PUBLIC, PRIVATE, f"{LATER}:7")
    expect_refused(sandbox, HOST, METADATA, "10.0.2.2", "10.0.2.3", "192.0.2.1", f"{PUBLIC}:53")
    for address in ("127.0.0.1", "255.255.255.255", "224.0.0.1", "0.0.0.1"):
        assert connect(sandbox, address)[0] != "open", address
    assert sandbox.stop() == 0


def test_allow_a_thousand(run_sandbox):
    options = []
    for i in range(999):
        options += ["--egress-allow", f"100.{64 + i // 250}.{i % 250}.0/24:{i + 1},{i + 2000}-65000"]
    sandbox = run_sandbox(*options, "--egress-allow", f"{PUBLIC}/32:80", egress="allow")
    expect_open(sandbox, PUBLIC)
    expect_refused(sandbox, LATER, f"{PUBLIC}:7")
    assert sandbox.stop() == 0


def test_no_list_is_nothing(run_sandbox):
    sandbox = run_sandbox(egress="allow")
    expect_refused(sandbox, PUBLIC, PRIVATE, HOST)
    assert sandbox.stop() == 0


def test_host_addresses_of_the_operator(run_sandbox):
    sandbox = run_sandbox("--host-address", f"{PUBLIC}/32", "--host-address", "198.41.0.8/31",
                          "--egress-allow", "0.0.0.0/0", egress="allow")
    expect_refused(sandbox, PUBLIC, LATER, f"{LATER}:7")
    expect_open(sandbox, ROUTED)
    assert sandbox.stop() == 0


# -- names ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["public", "allow", "none"])
def test_without_names(run_sandbox, internet, mode):
    options = ["--egress-allow", "0.0.0.0/0"] if mode == "allow" else []
    sandbox = run_sandbox(*options, egress=mode, dns="off")
    questions(internet)
    found = [look_up(sandbox) for _ in range(3)]
    assert all(code != 0 for code, _, _ in found), found
    assert min(seconds for _, _, seconds in found) < AT_ONCE + 1, found
    if mode != "none":
        expect_refused(sandbox, f"{PUBLIC}:53", f"{PRIVATE}:53", "10.0.2.3:53")
    # Nor by a tenant that asks by itself.
    sandbox.run(f"echo x >/dev/udp/{PUBLIC}/53; echo x >/dev/udp/10.0.2.3/53")
    time.sleep(0.2)
    assert questions(internet) == 0
    assert sandbox.stop() == 0


@pytest.mark.parametrize("mode", ["public", "allow"])
def test_listed_resolvers(run_sandbox, internet, mode):
    """A private address, for names only; and no other name server."""
    sandbox = run_sandbox(egress=mode, dns=f"{PRIVATE},203.0.113.1")
    assert re.findall(r"^nameserver (.*)$", sandbox.run("cat /etc/resolv.conf")[1], re.M) == \
        [PRIVATE, "203.0.113.1"]
    questions(internet)
    assert look_up(sandbox)[:2] == (0, ["192.0.43.8"])
    asked = questions(internet)
    assert asked > 0
    expect_refused(sandbox, PRIVATE, f"{PRIVATE}:7", f"{PUBLIC}:53", "10.0.2.3:53")
    sandbox.run(f"echo x >/dev/udp/{PUBLIC}/53")
    time.sleep(0.2)
    assert questions(internet) == 0
    assert sandbox.stop() == 0


def test_a_resolver_that_is_the_host(world, internet):
    sandbox = Sandbox(world.programs, world.rootfs, world.new_directory(), dns=HOST)
    assert sandbox.spawn().ended() == 2
    assert sandbox.reason() == f"--dns: {HOST} is an address of this host; choose the resolver " \
        "of the host by the word host"


# -- what becomes the host's ----------------------------------------------------------------

# A packet that is under way when the rule changes is lost, and its connection learns it a
# second later; so new connections are tried all the time, and the held one always speaks.
WATCH = """
import errno, select, socket, time
held = socket.create_connection(("{address}", 7), 5)
held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
held.setblocking(False)
print("ready", flush=True)
cut = refused = None
pending = []
end = time.time() + 20
while time.time() < end and not (cut and refused):
    fresh = socket.socket()
    fresh.setblocking(False)
    fresh.connect_ex(("{address}", 7))
    pending = pending[-200:] + [fresh]
    time.sleep(0.005)  # far from the bound on new connections
    ready = select.select([], pending, [], 0)[1]
    for sock in ready:
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error == errno.ECONNREFUSED and not refused:
            refused = time.time()
        sock.close()
        pending.remove(sock)
    try:
        held.send(b"x")
        held.recv(9)
    except BlockingIOError:
        pass
    except OSError:
        cut = cut or time.time()
print(cut, refused)
"""


DENIED = re.compile(r"^(\S+Z) info cloister-runner: the host has new local addresses", re.M)


def appear_and_watch(sandbox, address, add, remove):
    """Seconds until the rule was there, a held connection was cut and a new one refused."""
    call = sandbox.begin(argv=["python3", "-c", WATCH.format(address=address)])
    deadline, text = time.monotonic() + 60, b""
    while b"ready" not in text:
        text += sandbox.frame(deadline)[2]
    # It is there when it gets its words: what a machine takes to begin it is not measured.
    with subprocess.Popen(["ip", "-batch", "-"], stdin=subprocess.PIPE, text=True) as adder:
        time.sleep(0.2)
        begin = time.time()
        adder.communicate(" ".join(add) + "\n")
    assert adder.returncode == 0
    try:
        _, text = sandbox.finish(call)
        said = eventually(lambda: DENIED.search(sandbox.log()), 20, "a word of the new address")
        ruled = datetime.datetime.strptime(said[1] + "+0000", "%Y-%m-%dT%H:%M:%S.%fZ%z")
        return [at - begin for at in (ruled.timestamp(), *map(float, text.split()))]
    finally:
        demo.ip(*remove)


@pytest.mark.parametrize("mode", ["public", "allow"])
def test_an_address_that_the_host_obtains(run_sandbox, mode):
    """Refused within 100 ms, connections that stand are cut, and the sandbox lives on."""
    options = ["--egress-allow", "0.0.0.0/0"] if mode == "allow" else []
    punctual(lambda: obtain_an_address(run_sandbox, mode, options))


def obtain_an_address(run_sandbox, mode, options):
    found = []
    for _ in range(5):
        # What else the machine does is not what is measured.
        sandbox = run_sandbox(*options, egress=mode, prefix=["nice", "-n", "-19", *AS_SERVICE])
        found.append(appear_and_watch(
            sandbox, LATER, ("address", "add", f"{LATER}/32", "dev", "lo"),
            ("address", "del", f"{LATER}/32", "dev", "lo")))
        expect_open(sandbox, PUBLIC)
        # What was the host's once stays closed.
        expect_refused(sandbox, f"{LATER}:7")
        assert sandbox.stop() == 0
    for ruled, cut, refused in found:
        print(f"rule after {1000 * ruled:.0f} ms, connection cut after {1000 * cut:.0f} ms, "
              f"new one refused after {1000 * refused:.0f} ms")
    # The first sign of the rule proves that it was there.
    in_time(statistics.median(min(row) for row in found) < 0.1, str(found))
    # Seen from inside, where a packet that is lost on the way is sent again a second later.
    assert statistics.median(max(row) for row in found) < 2, found
    assert max(max(row) for row in found) < 10, found


def test_an_address_that_only_routing_knows(run_sandbox):
    def attempt():
        sandbox = run_sandbox()
        route = ("local", f"{ROUTED}/32", "dev", "lo")
        found = appear_and_watch(sandbox, ROUTED, ("route", "add", *route),
                                 ("route", "del", *route))
        assert sandbox.stop() == 0
        in_time(max(found) < 2, str(found))

    punctual(attempt)


class Shared:
    """What rules.py asks of a daemon."""

    def __init__(self, sandbox):
        self.sandbox = sandbox

    def slirp(self, _):
        return next(p for p in descendants(self.sandbox.process.pid) if p.name == "slirp4netns")


def test_rules_that_cannot_be_kept_end_the_sandbox(run_sandbox):
    sandbox = run_sandbox()
    nft(Shared(sandbox), None, "delete", "table", "inet", "cloister")
    demo.ip("address", "add", "198.41.0.77/32", "dev", "lo")
    try:
        assert sandbox.ended() == 3
        assert "network rules cannot be kept up" in sandbox.reason()
    finally:
        demo.ip("address", "del", "198.41.0.77/32", "dev", "lo")


def test_the_host_is_watched_until_the_end(run_sandbox):
    """The input has ended and the sandbox has not: one that is stopped takes its time."""
    sandbox = run_sandbox()
    for process in descendants(sandbox.process.pid):
        process.kill(signal.SIGSTOP)
    # So that it finds both at once.
    sandbox.process.send_signal(signal.SIGSTOP)
    sandbox.hang_up()
    demo.ip("address", "add", f"{LATER}/32", "dev", "lo")
    try:
        sandbox.process.send_signal(signal.SIGCONT)
        assert sandbox.ended() == 0
        assert DENIED.search(sandbox.log()), sandbox.log()
    finally:
        demo.ip("address", "del", f"{LATER}/32", "dev", "lo")


def test_many_changes_at_once(run_sandbox):
    """More than the watch can hold: a new snapshot has them all."""
    sandbox = run_sandbox()
    batch = "".join(f"address add 198.42.{i // 250}.{i % 250 + 1}/32 dev lo\n" for i in range(900))
    begin = time.monotonic()
    subprocess.run(["ip", "-batch", "-"], input=batch + f"address add {LATER}/32 dev lo\n",
                   text=True, check=True)
    try:
        eventually(lambda: connect_once(sandbox, LATER, 7)[0] == "ConnectionRefusedError", 20,
                   "refused")
        took = time.monotonic() - begin
        # One transaction and one line for what comes within 20 ms, whatever it is.
        said = len(DENIED.findall(sandbox.log()))
        assert 1 <= said <= took / 0.02 + 2, (said, took)
        expect_open(sandbox, PUBLIC)
        assert sandbox.stop() == 0
    finally:
        subprocess.run(["ip", "-batch", "-"], input=batch.replace(" add ", " del ") +
                       f"address del {LATER}/32 dev lo\n", text=True, check=True)


def test_a_change_that_changes_nothing(run_sandbox):
    """What is denied already is neither written nor said again."""
    sandbox = run_sandbox()
    said = lambda: len(DENIED.findall(sandbox.log()))  # noqa: E731
    again = [("address", action, "198.41.0.79/32", "dev", "lo") for action in ("add", "del")]
    try:
        demo.ip(*again[0])
        eventually(lambda: said() == 1, 20, "a word of the address")
        for _ in range(20):
            demo.ip(*again[1])
            demo.ip(*again[0])
        demo.ip("address", "add", "198.41.0.80/32", "dev", "lo")
        eventually(lambda: said() > 1, 20, "a word of the other address")
        assert said() == 2, sandbox.log()
    finally:
        demo.ip(*again[1])
        demo.ip("address", "del", "198.41.0.80/32", "dev", "lo")
    assert sandbox.stop() == 0


# -- the runner itself -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["enforce", "kill"])
def test_the_runner_is_confined(run_sandbox, mode):
    """All that it does while it serves is on its list, also where the rest would kill it."""
    sandbox = run_sandbox(confine=mode)
    with open(f"/proc/{sandbox.process.pid}/status", encoding="utf-8") as status:
        fields = dict(line.split(":\t", 1) for line in status.read().splitlines() if ":\t" in line)
    assert (fields["Seccomp"], fields["NoNewPrivs"]) == ("2", "1")
    owner = os.stat(f"/proc/{sandbox.process.pid}/mem").st_uid
    assert owner == 0, "a process that is not dumpable belongs to root in /proc"
    demo.ip("address", "add", "198.41.0.78/32", "dev", "lo")
    demo.ip("address", "del", "198.41.0.78/32", "dev", "lo")
    sandbox.process.send_signal(signal.SIGUSR1)
    eventually(lambda: "egress accepted=" in sandbox.log(), 10, "the counters")
    eventually(lambda: "new local addresses" in sandbox.log(), 10, "a word of the address")
    assert sandbox.stop() == 0
    again = run_sandbox(confine=mode)
    for process in descendants(again.process.pid):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    assert again.ended() == 3
