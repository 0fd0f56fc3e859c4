"""One sandbox, run by cloister-runner alone: this process plays launcher and daemon."""

import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import time
import uuid

from daemon import AS_SERVICE, expect_no_report, give
from world import PATIENCE, SANITIZED

HELLO, START, END, CREDIT = 0x01, 0x02, 0x04, 0x05
READY, STDOUT, STDERR, EXIT = 0x81, 0x82, 0x83, 0x84
MIB = 1 << 20


class Sandbox:
    """options are added to the runner's command line; prefix is what starts it."""

    def __init__(self, programs, rootfs, directory, *options, tenant=None, prefix=AS_SERVICE,
                 boundary="development", **changed):
        self.tenant = tenant or str(uuid.uuid4())
        self.directory, self.prefix = directory, list(prefix)
        self.buffer, self.calls, self.process = b"", 0, None
        self.to = self.out = -1
        for name in ("", "/workspace", "/state", "/run"):
            if not os.path.isdir(directory + name):
                os.mkdir(directory + name)
                give(directory + name, 0o700)
        words = {"tenant": self.tenant, "workspace": f"{directory}/workspace",
                 "workspace-id": self.identity("workspace"), "state": f"{directory}/state",
                 "state-id": self.identity("state"), "rootfs": rootfs,
                 "guest": f"{programs}/cloister-guest", "runsc": "/usr/bin/runsc",
                 "slirp4netns": "/usr/bin/slirp4netns", "runtime-dir": f"{directory}/run",
                 "boundary": boundary}
        words.update({name.replace("_", "-"): value for name, value in changed.items()})
        self.command = [f"{programs}/cloister-runner", "serve"]
        for name, value in words.items():
            self.command += [f"--{name}", str(value)]
        self.command += options

    def identity(self, name):
        found = os.stat(f"{self.directory}/{name}")
        return f"{found.st_dev}:{found.st_ino}"

    def spawn(self):
        in_read, self.to = os.pipe()
        self.out, out_write = os.pipe()
        with open(f"{self.directory}/log", "ab") as log:
            self.process = subprocess.Popen([*self.prefix, *self.command], stdin=in_read,
                                            stdout=out_write, stderr=log, cwd="/", env={},
                                            start_new_session=True)
        os.close(in_read)
        os.close(out_write)
        return self

    def start(self, seconds=60):
        self.spawn()
        hello = json.dumps({"version": 1, "tenant": self.tenant, "processes": 512})
        self.send(HELLO, 0, hello.encode())
        kind, _, _ = self.frame(time.monotonic() + seconds * PATIENCE)
        assert kind == READY, (kind, self.log())
        return self

    def log(self):
        with open(f"{self.directory}/log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def reason(self):
        """The last line it wrote."""
        return self.log().splitlines()[-1]

    # -- the protocol

    def send(self, kind, call, payload=b""):
        os.write(self.to, struct.pack(">IBQ", len(payload), kind, call) + payload)

    def read(self, deadline):
        left = deadline - time.monotonic()
        assert left > 0 and select.select([self.out], [], [], left)[0], f"no frame: {self.log()}"
        data = os.read(self.out, 1 << 16)
        if not data:
            raise EOFError(self.log())
        self.buffer += data

    def frame(self, deadline):
        while len(self.buffer) < 13:
            self.read(deadline)
        size, kind, call = struct.unpack(">IBQ", self.buffer[:13])
        while len(self.buffer) < 13 + size:
            self.read(deadline)
        payload, self.buffer = self.buffer[13:13 + size], self.buffer[13 + size:]
        return kind, call, payload

    def begin(self, **fields):
        """Opens a call; its number."""
        self.calls += 1
        self.send(START, self.calls, json.dumps({"op": "exec", "cwd": "/", **fields}).encode())
        self.send(END, self.calls)
        return self.calls

    def finish(self, call, seconds=60):
        """The exit frame of the one open call, and what it wrote."""
        output = b""
        deadline = time.monotonic() + seconds * PATIENCE
        while True:
            kind, number, payload = self.frame(deadline)
            assert number == call, (kind, number)
            if kind == EXIT:
                return json.loads(payload), output.decode(errors="replace")
            output += payload
            self.send(CREDIT, call, struct.pack(">I", len(payload)))

    def run(self, shell, seconds=60):
        """(exit code, output, seconds it took) of a shell line."""
        begin = time.monotonic()
        result, output = self.finish(self.begin(shell=shell), seconds)
        return result.get("code"), output, time.monotonic() - begin

    def python(self, text, seconds=60):
        result, output = self.finish(self.begin(argv=["python3", "-c", text]), seconds)
        assert result.get("code") == 0, (result, output)
        return output

    # -- the end

    def stop(self, seconds=20):
        """Its exit status after the end of input."""
        self.hang_up()
        return self.ended(seconds)

    def hang_up(self):
        with contextlib.suppress(OSError):
            os.close(self.to)
        self.to = -1

    def ended(self, seconds=20):
        try:
            return self.process.wait(seconds * PATIENCE)
        finally:
            self.close()

    def close(self):
        if SANITIZED and self.process:  # what is killed counts no leaks
            self.hang_up()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        for end in (self.to, self.out):
            with contextlib.suppress(OSError):
                os.close(end)
        self.to = self.out = -1
        if self.process:
            expect_no_report(self.log())
