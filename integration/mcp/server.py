"""An MCP server that does as it is told, well or badly, over real HTTP on loopback.

Without an act of its own each method is answered as the protocol says: with a session, and
with the tools of the list. An act is an object that is called with the connection and the
request; true keeps the connection open.
"""

import json
import threading
import time
import uuid

from provider.server import EVENTS, Provider, chunk, head

TOKEN = "mcp-canary/0123456789+abcdefghijklmnop=="


def tool(name, read_only=None, **more):
    entry = {"name": name, "description": f"the tool {name}",
             "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}}, **more}
    if read_only is not None:
        entry["annotations"] = {"readOnlyHint": read_only}
    return entry


def text(value, **more):
    return {"content": [{"type": "text", "text": value}], **more}


def message(**fields):
    return json.dumps({"jsonrpc": "2.0", **fields}, ensure_ascii=False)


CHANGED = message(method="notifications/tools/list_changed")


class Answer:
    """Any answer of HTTP."""

    def __init__(self, body="", status=200, kind="application/json", headers=()):
        self.body, self.status, self.kind, self.headers = body, status, kind, headers

    def __call__(self, connection, request):
        body = self.body.encode()
        connection.sendall(head(self.status, (("Content-Type", self.kind), *self.headers,
                                              ("Content-Length", len(body)))) + body)
        return True


class Result:
    """The answer to a request, as JSON."""

    def __init__(self, result, headers=()):
        self.result, self.headers = result, headers

    def __call__(self, connection, request):
        said = message(id=request.json["id"], result=self.result)
        return Answer(said, headers=self.headers)(connection, request)


class Stream:
    """The same as events: what comes before it, in pieces of so many bytes, and what comes after."""

    def __init__(self, result, before=(), after=(), piece=None):
        self.result, self.before, self.after, self.piece = result, before, after, piece

    def __call__(self, connection, request):
        answer = [] if self.result is None else \
            [message(id=request.json["id"], result=self.result)]
        events = [*self.before, *answer, *self.after]
        data = b": hello\n\n" + b"".join(b"event: message\nid: 7\ndata: %s\n\n" % e.encode()
                                         for e in events)
        connection.sendall(head(200, EVENTS))
        step = self.piece or len(data)
        for at in range(0, len(data), step):
            connection.sendall(chunk(data[at:at + step]))
        connection.sendall(b"0\r\n\r\n")
        return True


class Wait:
    """Says nothing, or noise for ever, until the other end has gone or it is released."""

    def __init__(self, noise=None):
        self.noise = noise
        self.began, self.gone = threading.Event(), threading.Event()
        self.gone_at = None

    def __call__(self, connection, request):
        if self.noise:
            connection.sendall(head(200, EVENTS))
        self.began.set()
        connection.settimeout(0.02)
        while not self.gone.is_set():
            try:
                if self.noise:
                    connection.sendall(chunk(self.noise))
                if not connection.recv(1):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        self.gone_at = time.monotonic()
        self.gone.set()
        return False


class HangUp:
    """Takes the request, and ends the connection without a word."""

    def __call__(self, connection, request):
        return False


class Mcp(Provider):
    def __init__(self, *tools, **options):
        super().__init__(**options)
        self.tools, self.queues, self.sessions = list(tools), {}, set()
        self.messages = []  # (headers, message)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/mcp"

    def on(self, method, *acts):
        """What the next messages of that method get."""
        with self.lock:
            self.queues[method] = list(acts)
        return acts[0] if acts else None

    def said(self, method):
        """The messages of that method that came."""
        with self.lock:
            return [m for _, m in self.messages if m.get("method") == method]

    def calls(self):
        return [m["params"] for m in self.said("tools/call")]

    def one(self, connection):
        request = self.read(connection)
        if not request:
            return False
        if request.method == "DELETE":
            self.sessions.discard(request.headers.get("mcp-session-id"))
            return Answer(status=200)(connection, request)
        said = request.json
        method = said.get("method")
        with self.lock:
            self.requests.append(request)
            self.messages.append((request.headers, said))
            queue = self.queues.get(method)
            act = queue.pop(0) if queue else None
        return (act or self.usual(method, request))(connection, request)

    def usual(self, method, request):
        if method == "initialize":
            session = str(uuid.uuid4())
            self.sessions.add(session)
            return Result({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                           "serverInfo": {"name": "fixture", "version": "1"}},
                          (("Mcp-Session-Id", session),))
        if request.headers.get("mcp-session-id") not in self.sessions:
            return Answer(status=404)
        if method == "tools/list":
            return Result({"tools": self.tools})
        if method == "tools/call":
            return Result(text(f"did {request.json['params']['name']}"))
        return Answer(status=202)
