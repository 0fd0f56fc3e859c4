"""A relay in front of a PostgreSQL's socket, which can fall silent, be deaf, or go away."""

import contextlib
import os
import select
import socket
import threading


class Relay:
    """Carries bytes both ways between the socket that it makes and a real one.

    asked: called with what a client sends, before it is carried on."""

    def __init__(self, directory, real, port, asked=lambda data: None):
        self.path, self.real = f"{directory}/.s.PGSQL.{port}", real
        self.asked = asked
        self.lock, self.moving = threading.Lock(), threading.Lock()
        self.pairs = []
        self.away = False
        self.silent = threading.Event()  # what comes from the server stays here
        self.deaf = threading.Event()  # and what clients send is not even taken
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        os.chmod(self.path, 0o666)
        self.listener.listen(64)
        self.threads = [self.thread(self.accept)]

    @staticmethod
    def thread(target, *args):
        thread = threading.Thread(target=target, args=args, daemon=True)
        thread.start()
        return thread

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                with self.lock:
                    if self.away:
                        client.close()
                        continue
                    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                    server.connect(self.real)
                    self.pairs.append((client, server))
                self.thread(self.carry, client, server)

    def carry(self, client, server):
        with contextlib.suppress(OSError, ValueError):
            while True:
                # Neither flag wakes anybody up, so they are looked at again and again.
                wanted = [one for one, closed in ((client, self.deaf), (server, self.silent))
                          if not closed.is_set()]
                for one in select.select(wanted, [], [], 0.02)[0]:
                    with self.moving:
                        self.move(one, client, server)
        self.end(client, server)

    def move(self, one, client, server):
        if (self.deaf if one is client else self.silent).is_set():
            return
        data = one.recv(65536)
        if not data:
            raise OSError
        if one is client:
            self.asked(data)
        (server if one is client else client).sendall(data)

    def stop(self, *flags):
        """From now on nothing passes that way."""
        with self.moving:
            for flag in flags:
                flag.set()

    def go_on(self):
        self.silent.clear()
        self.deaf.clear()

    @staticmethod
    def end(*sockets):
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def cut(self):
        """Ends every connection; new ones are taken."""
        with self.lock:
            for pair in self.pairs:
                self.end(*pair)
            self.pairs.clear()

    def go_away(self):
        """Ends every connection, and those that come, until come_back()."""
        self.away = True
        self.cut()

    def come_back(self):
        self.away = False

    def close(self):
        self.go_away()
        self.end(self.listener)
        os.unlink(self.path)
