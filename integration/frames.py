"""Ethernet frames, put on the wire of a sandbox as a sentry that was taken over could, and
watched for where they may not come."""

import contextlib
import ctypes
import os
import select
import socket
import struct
import threading
import time

from rules import router
from world import demo

LIBC = ctypes.CDLL(None, use_errno=True)
ALL = socket.htons(3)
IPV4, ARP, IPV6 = 0x0800, 0x0806, 0x86DD
INSIDE, ROUTER = "192.0.2.0", "192.0.2.1"
LAST = b"the last of all frames"


def wire(netns, interface):
    """A packet socket on an interface of a network namespace, made by a thread that enters it."""
    made = []

    def make():
        fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if LIBC.setns(fd, demo.CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"enter {netns}")
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, ALL)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            sock.bind((interface, 3))
            made.append(sock)
        finally:
            os.close(fd)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert made, f"no packet socket on {interface} of {netns}"
    return made[0]


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(to, payload, protocol=17, source=INSIDE, ident=1, fragment=0, options=b""):
    """fragment: the field of the header, flags and offset in eights of bytes."""
    length = 20 + len(options)
    head = struct.pack(">BBHHHBBH4s4s", 0x40 | length // 4, 0, length + len(payload), ident,
                       fragment, 64, protocol, 0, socket.inet_aton(source), socket.inet_aton(to))
    head += options
    return head[:10] + struct.pack(">H", checksum(head)) + head[12:] + payload


def udp(payload, port=9, source=40000):
    """Without a checksum, which is allowed."""
    return struct.pack(">HHHH", source, port, 8 + len(payload), 0) + payload


def tcp(to, flags, payload=b"", port=80, source=40000, sender=INSIDE):
    head = struct.pack(">HHIIBBHHH", source, port, 1, 1, 0x50, flags, 8192, 0, 0)
    pseudo = socket.inet_aton(sender) + socket.inet_aton(to) + struct.pack(
        ">BBH", 0, 6, len(head) + len(payload))
    return head[:16] + struct.pack(">H", checksum(pseudo + head + payload)) + head[18:] + payload


def ipv6(source, to, payload, following=17):
    return struct.pack(">IHBB", 6 << 28, len(payload), following, 64) + \
        socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, to) + payload


class Wire:
    """The sandbox's end of its link, and a watch on what its router sends on."""

    def __init__(self, daemon, tenant):
        self.inner = wire(f"/proc/{daemon.sentry(tenant).pid}/ns/net", "eth0")
        self.outer = wire(router(daemon, tenant), "tap0")
        with contextlib.closing(wire(router(daemon, tenant), "cell0")) as end:
            self.gateway = end.getsockname()[4]
        self.own = self.inner.getsockname()[4]

    def close(self):
        self.inner.close()
        self.outer.close()

    def send(self, kind, payload, to=None):
        self.inner.send((to or self.gateway) + self.own + struct.pack(">H", kind) + payload)

    def passed(self, marker, public, seconds=10):
        """Which frames with the marker came through, when nothing more can come."""
        self.send(IPV4, ipv4(public, udp(LAST, source=40999)))
        found, deadline = [], time.monotonic() + seconds
        while not any(LAST in frame for frame in found):
            left = deadline - time.monotonic()
            assert left > 0 and select.select([self.outer], [], [], left)[0], \
                "not even what is allowed comes through"
            found.append(self.outer.recv(65536))
        while select.select([self.outer], [], [], 0.1)[0]:
            found.append(self.outer.recv(65536))
        return [frame for frame in found if marker in frame]
