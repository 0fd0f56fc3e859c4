"""What a daemon asks its PostgreSQL, with the values, read off its connections.

The log would not do: roles and cluster keep values out of it, and nobody who can connect may
change that.
"""

import contextlib
import struct

from postgres_proxy import Proxy, read_message, read_startup


class Statement:
    def __init__(self, database, role, sql, parameters=()):
        self.database, self.role, self.sql = database, role, sql
        self.parameters = list(parameters)  # texts, None for a null

    def __repr__(self):
        return f"{self.role}: {self.sql[:60]} {self.parameters}"


class Frontend:
    """What one client executes, from its messages in the PostgreSQL protocol 3.0."""

    def __init__(self, startup, found):
        words = startup[8:].decode().split("\0")
        values = dict(zip(words[::2], words[1::2]))
        self.database, self.role, self.found = values["database"], values["user"], found
        self.prepared = {}  # name: text

    def take(self, message):
        kind, body = message[:1], message[5:]
        if kind == b"P":
            name, sql, _ = body.split(b"\0", 2)
            self.prepared[name] = sql.decode()
        elif kind == b"B":
            _, name, rest = body.split(b"\0", 2)
            self.note(self.prepared[name], values_of(rest))
        elif kind == b"Q":
            self.note(body.rstrip(b"\0").decode())

    def note(self, sql, parameters=()):
        self.found.append(Statement(self.database, self.role, sql, parameters))


def values_of(data):
    """The parameters of a Bind; those in binary form, all of them bytea here, as text too."""
    count, = struct.unpack_from("!H", data)
    formats = struct.unpack_from(f"!{count}H", data, 2)
    at = 2 + 2 * count
    number, = struct.unpack_from("!H", data, at)
    at += 2
    if count < 2:
        formats = (formats or (0,)) * number
    for binary in formats:
        size, = struct.unpack_from("!i", data, at)
        at += 4
        if size < 0:
            yield None
            continue
        value = data[at:at + size]
        at += size
        yield f"\\x{value.hex()}" if binary else value.decode()


class Recorder(Proxy):
    """statements has what tenants' connections execute from now on, in the order of its coming."""

    def __init__(self, daemon):
        self.statements = []
        super().__init__(daemon)

    def requests(self, client, server, held):
        with contextlib.suppress(OSError, EOFError):
            startup = read_startup(client)
            frontend = Frontend(startup, self.statements)
            server.sendall(startup)
            while True:
                message = read_message(client)
                frontend.take(message)
                server.sendall(message)

    def close(self):
        """Who is connected through it loses that, and comes to PostgreSQL itself next time."""
        self.come_back()
        self.go_away()
