"""A hostile tenant beside one that must not notice, and programs to be hostile with.

The programs are C files in integration/attack, linked statically, so that they run in any
root filesystem.
"""

import contextlib
import functools
import shutil
import subprocess

from daemon import Daemon, give
from world import ROOT

CODE = f"{ROOT}/integration/attack"
LIMITS = {"memoryMiB": 256, "processes": 64}  # the least: what is to be filled is filled soon
VIGIL = '@shell {"command": "echo awake; sleep 3000", "timeoutMs": 3600000}'


@functools.lru_cache(maxsize=None)
def build(world, name, *options):
    """Path of a program, made once."""
    program = f"{world.new_directory()}-{name}"
    done = subprocess.run(["cc", "-Wall", "-Wextra", "-O1", *options, "-o", program,
                           f"{CODE}/{name}.c"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def put(directory, program, name):
    """Copies a program to where the tenant can run it."""
    path = f"{directory}/{name}"
    shutil.copy(program, path)
    give(path, 0o755)


class Stage:
    """A daemon with two tenants. The witness has a command that runs through all attacks."""

    def __init__(self, world, *options, **changed):
        self.daemon = Daemon(world, ("mallory", "witness"), options)
        entries = {name: tenant.entry() for name, tenant in self.daemon.tenants.items()}
        entries["mallory"]["limits"] = LIMITS
        self.daemon.write_registry({"version": 1, "tenants": list(entries.values())})
        self.prepare()
        self.daemon.start(**changed)
        self.mallory, self.witness = (self.daemon.client(n) for n in ("mallory", "witness"))
        self.session, self.calm = self.mallory.session(), self.witness.session()
        self.workspace = self.daemon.tenants["mallory"].workspace
        with self.witness.events() as events:
            self.vigil = self.witness.start(self.witness.session(), VIGIL)
            events.until_output(self.vigil, "awake")
        self.trusted = self.pids()

    def prepare(self):
        """Before the daemon starts."""

    def pids(self):
        """Who must outlive every attack."""
        return [self.daemon.process.pid, self.daemon.server().pid, self.daemon.postgres().pid,
                self.daemon.runner("witness").pid, self.daemon.sentry("witness").pid]

    def run(self, line, seconds=120):
        """A command of the hostile tenant; its turn with details."""
        return self.mallory.watch(self.session, f"$ {line}", seconds)

    def end_sandbox(self):
        """The hostile tenant's next call has another one."""
        before = self.daemon.ends("mallory")
        if self.daemon.running("mallory"):
            with contextlib.suppress(ProcessLookupError):
                self.daemon.runner("mallory").kill()
            self.daemon.expect_end("mallory", before)

    def judge(self):
        """Daemon and witness go on as if nothing had been."""
        assert self.daemon.alive(), self.daemon.log()[-3000:]
        assert self.pids() == self.trusted
        assert self.witness.call("GET", "/healthz") == {"ok": True}
        assert self.witness.run(self.calm, "$ echo fine").text == "fine\n"
        assert self.witness.turn(self.vigil)["status"] == "running"

    def close(self):
        self.judge()
        self.witness.cancel(self.vigil)
        assert self.daemon.stop() == 0, self.daemon.log()[-3000:]
        self.daemon.world.daemons.remove(self.daemon)
