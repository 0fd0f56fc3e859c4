"""A provider of models that does as it is told, over real HTTP/1.1 on loopback.

Each request takes the next act from a queue; without one it is answered with "text" of
its format. What was asked is kept, so that tests can look at it.
"""

import contextlib
import json
import os
import socket
import ssl
import threading
import time

SCRIPTS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "scripts")
FORMATS = {"/chat/completions": "chat-completions", "/responses": "responses",
           "/messages": "messages"}


def script(dialect, name):
    with open(f"{SCRIPTS}/{dialect}/{name}.sse", "rb") as f:
        return f.read()


class Request:
    def __init__(self, method, path, headers, raw):
        self.method, self.path, self.headers, self.raw = method, path, headers, raw
        self.dialect = next((f for end, f in FORMATS.items() if path.endswith(end)), None)

    @property
    def json(self):
        return json.loads(self.raw)


# --- acts: what happens to one connection; true keeps it open for another request ------------


def head(status, headers=()):
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{k}: {v}" for k, v in headers)]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


EVENTS = (("Content-Type", "text/event-stream; charset=utf-8"), ("Transfer-Encoding", "chunked"))


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


class Play:
    """A script, in pieces of so many bytes; cut after so many, or slowly."""

    def __init__(self, name, piece=None, cut=None, pause=0.0):
        self.name, self.piece, self.cut, self.pause = name, piece, cut, pause

    def __call__(self, connection, request):
        data = script(request.dialect, self.name)
        data = data if self.cut is None else data[:self.cut]
        connection.sendall(head(200, EVENTS))
        step = self.piece or len(data) or 1
        for at in range(0, len(data), step):
            connection.sendall(chunk(data[at:at + step]))
            time.sleep(self.pause)
        if self.cut is not None:
            return False
        connection.sendall(b"0\r\n\r\n")
        return True


class Call:
    """A call of a tool with any arguments; for chat-completions."""

    def __init__(self, tool, arguments):
        self.tool, self.arguments = tool, arguments

    def __call__(self, connection, request):
        call = {"index": 0, "id": "call_1", "type": "function",
                "function": {"name": self.tool, "arguments": json.dumps(self.arguments)}}
        deltas = [{"delta": {"role": "assistant", "tool_calls": [call]}},
                  {"delta": {}, "finish_reason": "tool_calls"}]
        connection.sendall(head(200, EVENTS))
        for delta in deltas:
            connection.sendall(chunk(f"data: {json.dumps({'choices': [delta]})}\n\n".encode()))
        connection.sendall(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return True


class Say:
    """A whole answer: status, body, headers."""

    def __init__(self, status, body="", headers=(), kind="application/json"):
        self.status, self.headers, self.kind = status, headers, kind
        self.body = body if isinstance(body, str) else json.dumps(body)

    def __call__(self, connection, request):
        body = self.body.encode()
        connection.sendall(head(self.status, (("Content-Type", self.kind), *self.headers,
                                              ("Content-Length", len(body)))) + body)
        return True


class Echo:
    """An error whose body repeats the request's head, key and all, in pieces."""

    def __init__(self, status, piece=7):
        self.status, self.piece = status, piece

    def __call__(self, connection, request):
        message = " ".join(f"{k}={v}" for k, v in request.headers.items()
                           if k in ("authorization", "x-api-key"))
        body = json.dumps({"error": {"message": f"who is {message}?", "type": "x"}}).encode()
        connection.sendall(head(self.status, (("Content-Length", len(body)),)))
        for at in range(0, len(body), self.piece):
            connection.sendall(body[at:at + self.piece])
            time.sleep(0.001)
        return True


class Forever:
    """The same bytes again and again, until the other end has had enough."""

    def __init__(self, data, first="", every=0.05):
        self.data, self.first, self.every = data, first, every
        self.gone = threading.Event()  # the connection was closed

    def __call__(self, connection, request):
        connection.sendall(head(200, EVENTS) + (chunk(self.first.encode()) if self.first else b""))
        connection.settimeout(self.every)
        while True:
            try:
                if not connection.recv(1):
                    break
            except TimeoutError:
                pass
            except OSError:
                break
            try:
                if self.data:
                    connection.sendall(chunk(self.data.encode()))
            except OSError:
                break
        self.gone.set()
        return False


class Hang:
    """Takes the request and says nothing at all."""

    def __init__(self):
        self.began, self.gone = threading.Event(), threading.Event()
        self.gone_at = None

    def __call__(self, connection, request):
        self.began.set()
        with contextlib.suppress(OSError):
            connection.recv(1)
        self.gone_at = time.monotonic()
        self.gone.set()
        return False


class Raw:
    """Bytes that need not be HTTP, and the end."""

    def __init__(self, data):
        self.data = data

    def __call__(self, connection, request):
        connection.sendall(self.data)
        return False


# --- the server -----------------------------------------------------------------------------------


class Provider:
    def __init__(self, tls=None, port=0):
        self.acts, self.requests, self.lock = [], [], threading.Lock()
        self.connections = 0
        self.tls = tls
        self.listener = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.open = set()
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self):
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    def will(self, *acts):
        """What the next requests get; names are scripts."""
        with self.lock:
            self.acts, self.requests = [Play(a) if isinstance(a, str) else a for a in acts], []
        return acts[0] if acts else None

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            self.open.add(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            # As providers do: else what is sent in pieces waits 40 ms for an acknowledgement.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
            while self.one(connection):
                pass
        except (OSError, ssl.SSLError, ValueError):
            pass
        finally:
            with contextlib.suppress(OSError):
                connection.close()
            self.open.discard(connection)

    def one(self, connection):
        request = self.read(connection)
        if not request:
            return False
        with self.lock:
            self.requests.append(request)
            act = self.acts.pop(0) if self.acts else Play("text")
        return act(connection, request)

    def read(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65536)
            if not more:
                return None
            data += more
        top, _, body = data.partition(b"\r\n\r\n")
        lines = top.decode().split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        while len(body) < int(headers.get("content-length", 0)):
            body += connection.recv(65536)
        return Request(method, path, headers, body)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes who accepts up, and refuses from now on
        self.listener.close()
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
