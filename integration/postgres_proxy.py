"""A proxy in front of a daemon's PostgreSQL that can stop the world at a commit.

It takes over the path of the cluster's socket, so that whatever the server opens from then
on goes through it. Of each connection it reads the server's side as messages of the wire
protocol, and it counts the COMMITs in tenants' databases.
"""

import contextlib
import os
import signal
import socket
import struct
import threading

from daemon import give
from world import eventually

HOLD_BEFORE, HOLD_AFTER = "before", "after"  # the commit; after: the server does not hear of it


class Proxy:
    def __init__(self, daemon):
        self.path = f"{daemon.state}/pg/run/.s.PGSQL.5432"
        self.real = f"{self.path}.real"
        self.lock = threading.Lock()
        self.commits, self.stop_at, self.where = 0, None, None
        self.stopped, self.resumed = threading.Event(), threading.Event()
        self.sockets = []
        os.rename(self.path, self.real)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        give(self.path, 0o600)
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()
        self.cut(daemon)

    @staticmethod
    def cut(daemon):
        """Ends the tenants' connections that go past the proxy; the server makes new ones.

        It waits for their end: one that ends in the middle of a request would fail that.
        """
        def left():
            return [process for process in daemon.tree() if process.name == "postgres" and
                    "postgres: cr_" in process.read("cmdline")]

        for process in left():
            with contextlib.suppress(ProcessLookupError):
                process.kill(signal.SIGTERM)
        eventually(lambda: not left(), 10, "an end of the tenants' connections")

    def stop_at_commit(self, number, where):
        """From now on count; hold everything at that commit, and say so with self.stopped."""
        with self.lock:
            self.stopped.clear()
            self.commits, self.stop_at, self.where = 0, number, where

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                server.connect(self.real)
                self.sockets += [client, server]
                held = threading.Event()
                threading.Thread(target=self.requests, args=(client, server, held),
                                 daemon=True).start()
                threading.Thread(target=self.answers, args=(client, server, held),
                                 daemon=True).start()

    def is_last(self):
        """Counts a commit; true when it is the one to stop at."""
        with self.lock:
            self.commits += 1
            return self.commits == self.stop_at

    def requests(self, client, server, held):
        with contextlib.suppress(OSError, EOFError):
            startup = read_startup(client)
            server.sendall(startup)
            ours = b"\0database\0ct_" in startup
            while True:
                message = read_message(client)
                commit = ours and message[:1] == b"Q" and message[5:] == b"COMMIT\0" and \
                    self.is_last()
                if commit and self.where == HOLD_BEFORE:
                    self.stopped.set()
                    return
                if commit:
                    held.set()
                server.sendall(message)

    def answers(self, client, server, held):
        with contextlib.suppress(OSError):
            while True:
                data = server.recv(65536)
                if not data:
                    client.shutdown(socket.SHUT_WR)
                    return
                if held.is_set():
                    self.stopped.set()
                    self.resumed.wait()
                    held.clear()
                client.sendall(data)

    def go_on(self):
        """What was held after a commit is heard of now."""
        self.resumed.set()

    def cut_off(self):
        """Ends every connection, held or not; new ones are taken."""
        sockets, self.sockets = self.sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def go_away(self):
        """And takes no new ones, until come_back()."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut_off()

    def come_back(self):
        """From now on whoever comes is let through to PostgreSQL itself."""
        os.rename(self.real, self.path)

    def close(self):
        for each in [self.listener, *self.sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.real)


def exactly(sock, size):
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def read_startup(sock):
    """The first message of a client, whole."""
    head = exactly(sock, 4)
    return head + exactly(sock, struct.unpack("!I", head)[0] - 4)


def read_message(sock):
    """Each one after it: a letter, a length of 4 bytes, the rest."""
    head = exactly(sock, 5)
    return head + exactly(sock, struct.unpack("!I", head[1:])[0] - 4)
