"""A hostile tenant on the network: from inside with sockets, and on the wire with frames.

gVisor lets no tenant make frames of its own; a sentry that was taken over could, so the
rules one namespace further out have to hold by themselves.
"""

import contextlib
import ctypes
import errno
import os
import socket
import struct
import time

import pytest

import frames
from frames import ARP, INSIDE, IPV4, IPV6, ROUTER, ipv4, ipv6, tcp, udp
from hostile import Stage
from inject import Injector
from reach import ABSTRACT_ABI
from rules import counters, router
from world import demo, eventually, output_of

PUBLIC, PRIVATE, METADATA, HOST = demo.PUBLIC, demo.PRIVATE, demo.METADATA, demo.HOST_ADDRESS
LANDLOCK_CREATE_RULESET, VERSION = 444, 1
MARK = b"a mark that nobody else makes"
BROADCAST = b"\xff" * 6


def landlock_version():
    return ctypes.CDLL(None, use_errno=True).syscall(LANDLOCK_CREATE_RULESET, None, 0, VERSION)


@pytest.fixture(scope="module")
def shared(world):
    stage = Stage(world)
    stage.run("true")
    yield stage
    stage.close()


@pytest.fixture
def stage(shared):
    yield shared
    shared.judge()


@pytest.fixture
def line(stage):
    with contextlib.closing(frames.Wire(stage.daemon, "mallory")) as line:
        yield line
    # What was sent has not taken the network from its owner either.
    assert reach(stage, f"{PUBLIC}:80") == {f"{PUBLIC}:80": "open"}


# --- slirp4netns, which reads what tenants send --------------------------------------------------


@pytest.mark.skipif(landlock_version() < ABSTRACT_ABI, reason="Landlock takes no signals here")
def test_slirp4netns_can_signal_nobody(stage):
    daemon = stage.daemon
    others = {"launcher": daemon.main_pid(), "server": daemon.server().pid,
              "PostgreSQL": daemon.postgres().pid, "its runner": daemon.runner("mallory").pid,
              "another's sandbox": daemon.sentry("witness").pid}
    own = daemon.slirp("mallory").pid
    with Injector(own) as thread:
        assert thread.error("kill", own, 0) == "worked"
        found = {name: thread.error("kill", pid, 0) for name, pid in others.items()}
    assert set(found.values()) == {"EPERM"}, found


# --- with sockets, from inside ----------------------------------------------------------------

REACH = """
import errno, socket, sys
for target in sys.argv[1:]:
    kind, _, rest = target.rpartition("/")
    address, _, port = rest.rpartition(":")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        s = socket.socket(family, socket.SOCK_DGRAM if kind else socket.SOCK_STREAM)
        s.settimeout(5)
        s.connect((address, int(port)))
        if kind:
            s.send(bytes.fromhex("123401000001000000000000016107657861 6d706c6500 00010001"))
            s.recv(512)
        word = "open"
    except OSError as error:
        word = errno.errorcode.get(error.errno, "silent")
    print(target, word, flush=True)
"""


def reach(stage, *targets):
    """{target: "open", "silent" or an error}"""
    stage.mallory.tool(stage.session, "write_file", path="reach.py", content=REACH)
    text = stage.run(f"python3 /workspace/reach.py {' '.join(targets)}").text
    found = dict(line.split() for line in text.splitlines())
    assert set(found) == set(targets), text
    return found


def test_names_only_from_the_one_resolver(stage):
    """Other resolvers, DNS over TCP to them, and the usual ports of DNS in TLS and HTTPS."""
    others = (HOST, PRIVATE, METADATA, "10.0.2.2", "10.0.2.15", ROUTER, "10.0.2.100")
    before = counters(stage.daemon, "mallory")
    found = reach(stage, *(f"{k}{a}:53" for a in (*others, PUBLIC) for k in ("", "udp/")),
                  *(f"{a}:{port}" for a in others for port in (853, 443)))
    assert set(found.values()) == {"ECONNREFUSED"}, found
    after = counters(stage.daemon, "mallory")
    assert after["accepted"] == before["accepted"], "a question left the sandbox"
    assert after["refused"] >= before["refused"] + len(found)


def test_the_gateway_offers_names_and_nothing_else(stage):
    """slirp4netns' own addresses, on the ports that services like it use, and on some more."""
    ports = (1, 21, 22, 25, 67, 69, 80, 111, 443, 445, 514, 2049, 3128, 4096, 5353, 5432, 8080,
             stage.daemon.port, 65535)
    targets = [f"{kind}{address}:{port}" for address in ("10.0.2.2", "10.0.2.3")
               for port in ports for kind in ("", "udp/")]
    found = reach(stage, *targets)
    assert set(found.values()) == {"ECONNREFUSED"}, found


def test_router_daemon_and_neighbours(stage):
    """The router on both of its sides, the daemon under every name, the other tenant."""
    port = stage.daemon.port
    names = (ROUTER, "10.0.2.100", HOST, "10.0.2.2", demo.GATEWAY)
    found = reach(stage, *(f"{a}:{port}" for a in names), *(f"udp/{ROUTER}:{p}" for p in (53, 67)),
                  f"127.0.0.1:{port}", f"{INSIDE}:{port}", "10.0.2.15:80")
    assert set(found.values()) == {"ECONNREFUSED"}, found


def test_no_ipv6_in_any_form(stage):
    with_scope = ["fe80::1", "fd00::3", "2001:db8::1", "2606:4700:4700::1111", "ff02::1",
                  f"::ffff:{HOST}", f"::ffff:{METADATA}", f"::{PRIVATE}", "64:ff9b::a63:1",
                  "2002:a63:1::1"]
    found = reach(stage, *(f"{kind}{a}:80" for a in with_scope for kind in ("", "udp/")))
    assert "open" not in found.values() and "silent" not in found.values(), found


ECHO = """
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
s.settimeout(0.7)
for address in sys.argv[1:]:
    try:
        s.sendto(struct.pack(">BBHHH", 8, 0, 0, 1, 1) + b"x" * 8, (address, 0))
        print(address, s.recv(99))
    except OSError as error:
        print(address, "no answer")
"""


def test_echo_requests(stage):
    """Ping is a way to look around: no answer but from what may be reached."""
    stage.mallory.tool(stage.session, "write_file", path="echo.py", content=ECHO)
    hidden = (HOST, PRIVATE, METADATA, "10.0.2.2", "10.0.2.3", ROUTER, "10.0.2.100")
    before = counters(stage.daemon, "mallory")
    text = stage.run(f"python3 /workspace/echo.py {' '.join(hidden)}").text
    assert text.count("no answer") == len(hidden), text
    after = counters(stage.daemon, "mallory")
    assert after["accepted"] == before["accepted"]
    assert after["refused"] == before["refused"] + len(hidden)


@pytest.mark.parametrize("words", [("local", "main"), ("local", "77"), ("broadcast", "77"),
                                   ("local", "local")])
def test_what_only_routing_makes_the_hosts(stage, words):
    """In whatever table: policy routing and VRFs keep such routes in their own."""
    kind, table = words
    address = "198.41.0.21"
    demo.ip("-n", stage.daemon.world.internet, "address", "add", f"{address}/32", "dev", "lo")
    try:
        # Once a sandbox runs, and once before it starts.
        assert reach(stage, f"{address}:80") == {f"{address}:80": "open"}
        demo.ip("route", "add", kind, f"{address}/32", "dev", "lo", "table", table)
        try:
            eventually(lambda: reach(stage, f"{address}:80")[f"{address}:80"] == "ECONNREFUSED",
                       10, "a refusal")
            stage.end_sandbox()
            assert reach(stage, f"{address}:80") == {f"{address}:80": "ECONNREFUSED"}
        finally:
            demo.ip("route", "del", kind, f"{address}/32", "dev", "lo", "table", table)
    finally:
        demo.ip("-n", stage.daemon.world.internet, "address", "del", f"{address}/32", "dev", "lo")
        renew(stage)  # what was the host's once would stay refused


def entered(user, net):
    """What root of a user namespace comes to that holds a descriptor of a network namespace."""
    result_r, result_w = os.pipe()
    spaces = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in (user, net)]
    pid = os.fork()
    if pid == 0:
        word = "no user namespace"
        try:
            if demo.LIBC.setns(spaces[0], 0x10000000) == 0:
                word = "entered" if demo.LIBC.setns(spaces[1], demo.CLONE_NEWNET) == 0 else \
                    errno.errorcode[ctypes.get_errno()]
        finally:
            os.write(result_w, word.encode())
            os._exit(0)
    os.waitpid(pid, 0)
    for fd in spaces:
        os.close(fd)
    os.close(result_w)
    with os.fdopen(result_r) as f:
        return f.read()


def test_root_of_the_sandbox_cannot_enter_the_router(stage):
    """With every power that the sandbox's user namespace has, and a descriptor that leaked."""
    daemon = stage.daemon
    box = next(p for p in daemon.below_runner("mallory", lambda p: p.name == "cloister-runner"))
    net = router(daemon, "mallory")
    assert entered(f"/proc/{daemon.slirp('mallory').pid}/ns/user", net) == "entered"
    assert entered(f"/proc/{box.pid}/ns/user", net) == "EPERM"
    assert entered(f"/proc/{box.pid}/ns/user", "/proc/self/ns/net") == "EPERM"
    assert entered(f"/proc/{box.pid}/ns/user", f"/proc/{box.pid}/ns/net") == "entered"


# --- with frames, on the wire -------------------------------------------------------------------


def test_the_watch_sees_what_passes(line):
    """Or none of the tests below could fail: whole, in fragments, TCP, and odd protocols."""
    line.send(IPV4, ipv4(PUBLIC, udp(MARK)))
    assert line.passed(MARK, PUBLIC)
    whole = udp(MARK + bytes(40), port=10)
    line.send(IPV4, ipv4(PUBLIC, whole[:24], ident=7, fragment=0x2000))
    line.send(IPV4, ipv4(PUBLIC, whole[24:], ident=7, fragment=3))
    assert line.passed(MARK[:8], PUBLIC)
    line.send(IPV4, ipv4(PUBLIC, tcp(PUBLIC, 2, MARK), 6))
    assert line.passed(MARK, PUBLIC)


SOURCES = [HOST, PUBLIC, PRIVATE, ROUTER, "10.0.2.2", "10.0.2.3", "10.0.2.100", "127.0.0.1",
           "0.0.0.0", "255.255.255.255", "224.0.0.1", "192.0.2.2"]


def test_no_other_source(line):
    for source in SOURCES:
        line.send(IPV4, ipv4(PUBLIC, udp(MARK), source=source))
        line.send(IPV4, ipv4(PUBLIC, tcp(PUBLIC, 2, MARK, sender=source), 6, source=source))
        line.send(IPV4, ipv4("10.0.2.3", udp(MARK, port=53), source=source))
    assert line.passed(MARK, PUBLIC) == []


DENIED = [HOST, PRIVATE, METADATA, "10.0.2.2", "10.0.2.15", "10.0.2.255", "10.0.2.100", ROUTER,
          "127.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "198.18.0.1", "0.0.0.0",
          "224.0.0.251", "239.255.255.250", "240.0.0.1", "255.255.255.255", "198.41.1.255"]


def test_no_denied_destination_whatever_the_protocol(line):
    """All kinds of TCP segments, errors that pretend to belong to something, tunnels."""
    inner = ipv4(HOST, udp(MARK))
    for to in DENIED:
        line.send(IPV4, ipv4(to, udp(MARK)))
        for flags in (0, 1, 2, 4, 0x10, 0x12, 0x18, 0x29, 0x3F):
            line.send(IPV4, ipv4(to, tcp(to, flags, MARK), 6))
        for kind, code in ((8, 0), (0, 0), (3, 1), (5, 1), (11, 0), (13, 0)):
            echo = struct.pack(">BBHI", kind, code, 0, 1) + inner
            echo = echo[:2] + struct.pack(">H", frames.checksum(echo)) + echo[4:]
            line.send(IPV4, ipv4(to, echo, 1))
        for protocol in (0, 2, 4, 41, 47, 50, 51, 89, 103, 112, 132, 136, 255):
            line.send(IPV4, ipv4(to, inner, protocol))
    assert line.passed(MARK, PUBLIC) == []


def test_fragments_hide_nothing(line):
    """Ports in another piece, pieces that overlap, pieces without a beginning or an end."""
    whole = udp(MARK + bytes(64), port=53)
    for i, to in enumerate((HOST, METADATA, PRIVATE, "10.0.2.2", PUBLIC)):  # PUBLIC: only port 53
        ident = 100 + 10 * i
        line.send(IPV4, ipv4(to, whole[:8], ident=ident, fragment=0x2000))
        line.send(IPV4, ipv4(to, whole[8:], ident=ident, fragment=1))
        # The last first; and a harmless head that a later piece would write over.
        line.send(IPV4, ipv4(to, whole[8:], ident=ident + 1, fragment=1))
        line.send(IPV4, ipv4(to, whole[:8], ident=ident + 1, fragment=0x2000))
        line.send(IPV4, ipv4(to, udp(bytes(64), port=9)[:16], ident=ident + 2, fragment=0x2000))
        line.send(IPV4, ipv4(to, whole[:32], ident=ident + 2, fragment=0x2000))
        line.send(IPV4, ipv4(to, whole[32:], ident=ident + 2, fragment=4))
        # Never whole.
        line.send(IPV4, ipv4(to, whole[16:], ident=ident + 3, fragment=0x2002))
        line.send(IPV4, ipv4(to, MARK + bytes(3), ident=ident + 4, fragment=0x1FFF))
    assert line.passed(MARK[:8], PUBLIC) == []


def test_a_flood_of_fragments_is_bounded(line, stage):
    """What waits for its rest is kept in little memory, and for a short time."""
    for i in range(20000):
        line.send(IPV4, ipv4(PUBLIC, MARK + bytes(1300), ident=i % 65536, fragment=0x2000 | i % 5))
    assert line.passed(MARK, PUBLIC) == []
    text = output_of("nsenter", f"--net={router(stage.daemon, 'mallory')}", "cat",
                     "/proc/net/sockstat")
    memory = int(text.split("FRAG:")[1].split()[3])
    assert memory <= 5 << 20, text


def test_source_routes_are_not_followed(line):
    for kind in (131, 137):
        route = struct.pack("BBB4sB", kind, 7, 4, socket.inet_aton(HOST), 0)
        line.send(IPV4, ipv4(PUBLIC, udp(MARK), options=route))
        line.send(IPV4, ipv4(ROUTER, udp(MARK), options=route))
    assert line.passed(MARK, PUBLIC) == []


def test_no_other_ethertype(line):
    """Tags, tunnels and protocols that are not IPv4 go nowhere, nor does IPv4 in disguise."""
    plain = ipv4(PUBLIC, udp(MARK))
    tag = struct.pack(">HH", 1, IPV4)
    for kind in (0x0842, 0x22F3, 0x6003, 0x809B, 0x80F3, 0x8137, 0x8204, 0x8808, 0x8809, 0x8847,
                 0x8848, 0x8863, 0x8864, 0x888E, 0x88A2, 0x88B5, 0x88CC, 0x88E5, 0x88F7, 0x8906,
                 0x9000, 0x05DC, 0xFFFF, IPV6, ARP):
        line.send(kind, plain)
    for kind in (0x8100, 0x88A8, 0x9100):
        line.send(kind, tag + plain)
        line.send(kind, struct.pack(">HH", 1, 0x8100) + tag + plain)
    line.send(0x8847, struct.pack(">I", 1 << 12 | 1 << 8 | 64) + plain)
    line.send(0x8864, struct.pack(">BBHHH", 0x11, 0, 1, len(plain) + 2, 0x21) + plain)
    line.send(IPV4, plain, to=BROADCAST)
    line.send(IPV4, plain, to=b"\x01\x00\x5e\x00\x00\x01")
    line.send(IPV4, plain, to=b"\x02\x00\x00\x00\x00\x01")
    assert line.passed(MARK, PUBLIC) == []


def test_no_ipv6_frame(line, stage):
    """Unicast, multicast, neighbours, router advertisements, extension headers, 6in4."""
    message = udp(MARK)
    advertisement = struct.pack(">BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + MARK
    for source in ("fe80::1", "2001:db8::2", "::", "::1", f"::ffff:{INSIDE}"):
        for to in ("2606:4700:4700::1111", "fe80::1", "ff02::1", "ff02::2", "fd00::3", "::1",
                   f"::ffff:{HOST}", f"64:ff9b::{HOST}"):
            line.send(IPV6, ipv6(source, to, message))
            line.send(IPV6, ipv6(source, to, struct.pack(">BBHI", 17, 0, 0, 1) + message, 44))
            line.send(IPV6, ipv6(source, to, struct.pack(">BB6x", 17, 0) + message, 0))
            line.send(IPV6, ipv6(source, to, advertisement, 58), to=b"\x33\x33\0\0\0\1")
    line.send(IPV4, ipv4(PRIVATE, ipv6("2001:db8::2", "2606:4700:4700::1111", message), 41))
    assert line.passed(MARK, PUBLIC) == []
    text = output_of("nsenter", f"--net={router(stage.daemon, 'mallory')}", "ip", "-6", "route")
    assert "default" not in text and "cell0" not in text, text


def test_lies_about_addresses(line, stage):
    """ARP: the sandbox says that it is the gateway, the resolver and everybody else."""
    for claimed in ("10.0.2.2", "10.0.2.3", ROUTER, HOST, PUBLIC):
        for operation in (1, 2):
            line.send(ARP, struct.pack(">HHBBH6s4s6s4s", 1, IPV4, 6, 4, operation, line.own,
                                       socket.inet_aton(claimed), BROADCAST,
                                       socket.inet_aton(claimed)), to=BROADCAST)
    line.send(IPV4, ipv4(PRIVATE, udp(MARK)))
    assert line.passed(MARK, PUBLIC) == []


def test_a_flood_of_addresses_fills_no_table(line, stage):
    """The kernel keeps neighbours of all namespaces in one table: none of a liar's is in it."""
    for i in range(3000):
        claimed = struct.pack(">I", 0x0B000000 + 7919 * i)
        line.send(ARP, struct.pack(">HHBBH6s4s6s4s", 1, IPV4, 6, 4, 1, line.own, claimed,
                                   bytes(6), socket.inet_aton(ROUTER)), to=BROADCAST)
    assert line.passed(MARK, PUBLIC) == []
    known = output_of("nsenter", f"--net={router(stage.daemon, 'mallory')}", "ip", "neighbour",
                      "show", "dev", "cell0").splitlines()
    assert [words.split()[0] for words in known] == [INSIDE], known[:5]


# --- bounds --------------------------------------------------------------------------------------


def tracked(stage):
    return int(output_of("nsenter", f"--net={router(stage.daemon, 'mallory')}", "cat",
                         "/proc/sys/net/netfilter/nf_conntrack_count"))


def settled(stage):
    """The counters, once all that was sent is counted: frames wait for a processor, too."""
    last = None

    def look():
        nonlocal last
        before, last = last, counters(stage.daemon, "mallory")
        return last == before and last

    return eventually(look, 20, "counters that stand still", 0.3)


def renew(stage):
    """Another sandbox, with nothing tracked."""
    stage.end_sandbox()
    stage.run("true")


def test_tracked_connections_are_limited(stage):
    """Open ones that nobody answers, and the witness connects as before."""
    renew(stage)
    with contextlib.closing(frames.Wire(stage.daemon, "mallory")) as line:
        for i in range(1500):
            line.send(IPV4, ipv4(PUBLIC, udp(MARK, source=2000 + i)))
            time.sleep(0.005 if i > 900 else 0)  # not to meet the bound on new ones first
        found = settled(stage)
    assert found["accepted"] == 1024 and found["refused"] >= 400, found
    assert tracked(stage) <= 1024 + 16
    assert reach(stage, f"{PUBLIC}:80") == {f"{PUBLIC}:80": "ECONNREFUSED"}
    assert "open" in stage.witness.run(
        stage.calm, f"$ exec 3<>/dev/tcp/{PUBLIC}/80 && echo open").text
    renew(stage)
    assert reach(stage, f"{PUBLIC}:80") == {f"{PUBLIC}:80": "open"}


def test_new_connections_are_limited(stage):
    """Those that are closed at once are tracked on: so are only so many begun."""
    renew(stage)
    begin = time.monotonic()
    with contextlib.closing(frames.Wire(stage.daemon, "mallory")) as line:
        for i in range(6000):
            for flags in (2, 4):
                line.send(IPV4, ipv4(PUBLIC, tcp(PUBLIC, flags, port=2000 + i, source=1024 + i), 6))
    found = settled(stage)
    took = time.monotonic() - begin
    assert found["refused"] > 0 and found["accepted"] <= 1000 + 250 * (took + 1), (found, took)
    assert tracked(stage) <= 1000 + 250 * (took + 1)
    renew(stage)
