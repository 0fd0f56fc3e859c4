"""Connections without a token, as many as there can be and more: nobody is shut out by them."""

import contextlib
import resource
import select
import socket
import threading
import time

import pytest

from raw import read_answer
from world import eventually

SILENT = 9000  # more than there may be, and than can wait besides
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"


class Crowd:
    """Whoever is hung up on calls again, and says nothing."""

    def __init__(self, port):
        self.port, self.held, self.over = port, {}, threading.Event()
        self.poll = select.epoll()
        self.call(SILENT)
        self.thread = threading.Thread(target=self.call_again)
        self.thread.start()

    def call(self, count):
        for _ in range(count):
            sock = socket.socket()
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect(("127.0.0.1", self.port))
            self.held[sock.fileno()] = sock
            self.poll.register(sock, select.EPOLLIN | select.EPOLLHUP)

    def call_again(self):
        while not self.over.is_set():
            gone = self.poll.poll(0.1)
            for fd, _ in gone:
                self.held.pop(fd).close()
            self.call(len(gone))

    def close(self):
        self.over.set()
        self.thread.join()
        for sock in self.held.values():
            sock.close()
        self.poll.close()


@pytest.fixture
def descriptors():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * SILENT, max(2 * SILENT, before[1])))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_silent_connections_shut_nobody_out(make_daemon, descriptors):
    """A new one is answered at once, and one that a tenant has stays through all of it."""
    daemon = make_daemon(("acme",)).start()
    acme = daemon.client("acme")
    mine = acme.connect()
    assert acme.request("GET", "/v1/sessions", connection=mine).status == 200
    crowd = Crowd(daemon.port)
    try:
        time.sleep(1)
        for _ in range(5):
            begin = time.monotonic()
            with socket.create_connection(("127.0.0.1", daemon.port), 60) as sock:
                sock.sendall(HEALTHZ % daemon.port)
                assert read_answer(sock, "GET", "/healthz") == (200, None)
            # A lost SYN is sent again after 1, 3 and 7 s; where nobody makes room, it is a minute.
            assert time.monotonic() - begin < 20
            assert acme.request("GET", "/v1/sessions", connection=mine).status == 200
        eventually(lambda: "connections were open: the oldest" in daemon.log(), 20, "a word of it")
    finally:
        crowd.close()
    mine.close()
    assert daemon.stop() == 0
