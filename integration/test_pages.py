"""What cannot be parsed is refused like everything else, and the connection is closed."""

import os
import re
import shutil
import socket
import struct

import pytest

from daemon import AS_SERVICE
from raw import first_answer

HOST = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
POST = b"POST /v1/sessions HTTP/1.1\r\n" + HOST + b"Authorization: Bearer %s\r\n" \
       b"Content-Type: application/json\r\n"
CHUNKS = POST + b"Transfer-Encoding: chunked\r\n\r\n"
NEXT = GET + b"\r\n"

PAGES = {
    "a request line of one word": (b"GET\r\n\r\n", 400, "bad_request"),
    "no version": (b"GET /healthz\r\n\r\n", 400, "bad_request"),
    "rubbish": (bytes(range(1, 128)) + b"\r\n\r\n", 400, "bad_request"),
    "a header line without colon": (GET + b"no colon\r\n\r\n", 400, "bad_request"),
    "a NUL in the target": (b"GET /healthz\0 HTTP/1.1\r\n" + HOST + b"\r\n", 400, "bad_request"),
    "a NUL in a value": (GET + b"X-A: a\0b\r\n\r\n", 400, "bad_request"),
    "length and chunks": (POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
                                 b"2\r\n{}\r\n0\r\n\r\n", 400, "bad_request"),
    "a length that is none": (POST + b"Content-Length: two\r\n\r\n{}", 400, "bad_request"),
    "a broken chunk": (CHUNKS + b"2\r\n{}xx0\r\n\r\n", 400, "bad_request"),
    "a chunk of no size": (CHUNKS + b"x\r\n{}\r\n0\r\n\r\n", 400, "bad_request"),
    "a broken trailer": (CHUNKS + b"2\r\n{}\r\n0\r\nno colon\r\n\r\n", 400, "bad_request"),
    "a huge chunk": (CHUNKS + b"f" * 17 + b"\r\n{}\r\n", 413, "request_too_large"),
    "a huge length": (POST + b"Content-Length: " + b"9" * 20 + b"\r\n\r\n{}", 413,
                      "request_too_large"),
    "a long path": (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414,
                    "uri_too_long"),
    "a path without end": (b"GET /" + b"a" * 100000, 414, "uri_too_long"),
    "a long value": (GET + b"X-A: " + b"a" * 30000 + b"\r\n\r\n", 431, "header_too_large"),
    "a value without end": (GET + b"X-A: " + b"a" * 100000, 431, "header_too_large"),
    "many headers": (GET + b"X-A: a\r\n" * 5000 + b"\r\n", 431, "header_too_large"),
    "HTTP/0.9": (b"GET /healthz HTTP/0.9\r\n\r\n", 505, "http_version_not_supported"),
    "HTTP/1.2": (b"GET /healthz HTTP/1.2\r\n" + HOST + b"\r\n", 505,
                 "http_version_not_supported"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "http_version_not_supported"),
    "HTTP/3": (b"GET /healthz HTTP/3.0\r\n" + HOST + b"\r\n", 505, "http_version_not_supported"),
}


def exchange(port, data):
    """All that comes back until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as s:
        s.sendall(data)
        return b"".join(iter(lambda: s.recv(65536), b""))


@pytest.mark.parametrize("name", PAGES)
def test_what_cannot_be_parsed(cloister, acme, name):
    data, status, code = PAGES[name]
    if data.startswith(POST):
        data %= acme.token.encode()
    received = exchange(cloister.port, data + NEXT)
    method, target = ("POST", "/v1/sessions") if b"POST" in data[:5] else ("GET", "/healthz")
    assert first_answer(received, method, target) == (status, code)
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in head
    # One answer: nothing of what follows is taken for a request.
    assert body.count(b"{") == 2 and body.endswith(b"}}"), received


def test_whoever_says_nothing_is_told_nothing(cloister):
    with socket.create_connection(("127.0.0.1", cloister.port), timeout=30) as s:
        s.shutdown(socket.SHUT_WR)
        assert s.recv(100) == b""


# --- a library that keeps its pages ------------------------------------------------------


def dynamic_flags(library):
    """Where the flags of the dynamic section stand in a 64-bit ELF file."""
    (at,), (size, count) = struct.unpack_from("<Q", library, 32), \
        struct.unpack_from("<HH", library, 54)
    for i in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", library, at + i * size)
        for entry in range(offset, offset + length, 16) if kind == 2 else ():
            if struct.unpack_from("<Q", library, entry)[0] == 30:  # DT_FLAGS
                return entry + 8
    return None


@pytest.fixture
def symbolic(world):
    """A directory with the library as if it were linked with -Bsymbolic."""
    with open("/proc/self/maps", encoding="ascii") as f:
        home = os.path.dirname(next(re.search(r"/\S*/libc\.so\.6", line)[0] for line in f
                                    if "libc.so.6" in line))
    with open(f"{home}/libmicrohttpd.so.12", "rb") as f:
        library = bytearray(f.read())
    at = dynamic_flags(library)
    assert at, "the library has no DT_FLAGS"
    library[at] |= 2  # DF_SYMBOLIC
    directory = world.new_directory()
    os.mkdir(directory, 0o755)
    with open(f"{directory}/libmicrohttpd.so.12", "wb") as f:
        f.write(library)
    yield directory
    shutil.rmtree(directory)


def test_a_library_that_keeps_its_pages(make_daemon, symbolic):
    """The start says so, and everything else is as ever."""
    daemon = make_daemon()
    daemon.spawn(daemon.command(), [*AS_SERVICE, "env", f"LD_LIBRARY_PATH={symbolic}"])
    daemon.wait_ready()
    assert "keeps the pages that it makes by itself" in daemon.log()
    assert exchange(daemon.port, b"GET / HTTP/3.0\r\n\r\n").startswith(b"HTTP/1.1 505 ")
    assert daemon.client("acme").session()
    assert daemon.stop() == 0


def test_the_library_lets_us_make_the_pages(cloister):
    assert "keeps the pages" not in cloister.log()
