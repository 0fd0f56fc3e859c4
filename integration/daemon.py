"""A real cloisterd with its own registry, state and tokens, as scripts/serve starts it."""

import contextlib
import json
import os
import pwd
import re
import secrets
import signal
import subprocess
import uuid

from client import Client
from world import ADDRESSES, PATIENCE, SANITIZED, USER, Process, descendants, eventually

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
if ADDRESSES:  # a report is the end of a program, with a status that none has by itself
    os.environ["ASAN_OPTIONS"] = ENVIRONMENT["ASAN_OPTIONS"] = "exitcode=99"
CONFINE = os.environ.get("CLOISTER_CONFINE") or None  # "kill": see cloisterd serve --help
AS_SERVICE = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--no-new-privs",
              "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--"]
# Those that the tests share.
TENANTS = ("acme", "globex", "initech", "umbrella", "hooli", "stark", "wayne", "tyrell")
SANITIZER = re.compile(r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:")


def expect_no_report(text):
    found = SANITIZER.search(text)
    assert not found, text[max(0, found.start() - 1000):found.start() + 4000]


def give(path, mode):
    user = pwd.getpwnam(USER)
    os.chown(path, user.pw_uid, user.pw_gid)
    os.chmod(path, mode)


def make_directory(path):
    os.mkdir(path)
    give(path, 0o700)


def write_file(path, text, mode=0o600):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    give(path, mode)


class Tenant:
    def __init__(self, var, name):
        self.name = name
        self.id = str(uuid.uuid4())
        self.workspace = f"{var}/workspaces/{name}"
        self.token_file = f"{var}/tokens/{name}"
        self.token = secrets.token_hex(32)
        make_directory(self.workspace)
        write_file(self.token_file, self.token)

    def entry(self):
        return {"id": self.id, "name": self.name, "workspaceRoot": self.workspace,
                "credentials": [{"id": str(uuid.uuid4()), "tokenFile": self.token_file}]}


class Gate:
    """What a command of a tenant waits for, at `wait`: it goes on when the test says so, and not
    when a time has passed that the test may have stood still for."""

    def __init__(self, daemon, tenant="acme"):
        name = f".gate-{secrets.token_hex(6)}"
        self.path = f"{daemon.tenants[tenant].workspace}/{name}"
        self.wait = f"until [ -e /workspace/{name} ]; do sleep 0.05; done"

    def open(self):
        write_file(self.path, "", 0o644)


class Parts:
    """The processes of a daemon, from its launcher's pid (main_pid) and its tenants."""

    def tree(self):
        return descendants(self.main_pid())

    def child(self, name, argument=None):
        """The launcher's only one like that. What it has just forked goes by its own name still."""

        def look():
            found = [p for p in self.tree() if p.parent == self.main_pid() and p.name == name and
                     (argument is None or argument in p.arguments())]
            assert found, f"no {name}: {self.tree()}"
            return found if len(found) == 1 else None

        return eventually(look, 10, f"one {name} {argument or ''} of {self.main_pid()}")[0]

    def launcher(self):
        return Process(self.main_pid(), "cloisterd", os.getpid())

    def server(self):
        return self.child("cloisterd")

    def postgres(self):
        return self.child("postgres")

    def runner(self, tenant):
        return self.child("cloister-runner", self.tenants[tenant].id)

    def below_runner(self, tenant, matches):
        """The processes below a tenant's runner that match."""
        return [p for p in descendants(self.runner(tenant).pid) if matches(p)]

    def slirp(self, tenant):
        found = self.below_runner(tenant, lambda p: p.name == "slirp4netns")
        assert found, f"no slirp4netns: {self.tree()}"
        return found[0]

    def sentry(self, tenant):
        """The process that is the sandbox: gVisor's kernel."""
        found = self.below_runner(tenant, lambda p: "boot" in p.arguments())
        assert found, f"no sandbox: {self.tree()}"
        return found[0]

    def running(self, tenant):
        return any(p.name == "cloister-runner" and self.tenants[tenant].id in p.arguments()
                   for p in self.tree())


class Daemon(Parts):
    """With first, its first start makes its database; otherwise that start finds a copy of one
    that another daemon made and nobody has used: making one takes seconds of a processor."""

    def __init__(self, world, tenants=("acme", "globex"), options=(), first=False):
        self.world, self.options, self.first = world, list(options), first
        self.process, self.port = None, None
        self.environment = {}  # more of it
        self.var = world.new_directory()
        make_directory(self.var)
        for name in ("tokens", "workspaces", "state"):
            make_directory(f"{self.var}/{name}")
        self.state = f"{self.var}/state"
        self.log_path = f"{self.var}/log"
        self.tenants = {name: Tenant(self.var, name) for name in tenants}
        self.registry = f"{self.var}/tenants.json"
        self.write_registry({"version": 1, "tenants": [t.entry() for t in self.tenants.values()]})
        world.daemons.append(self)
        world.stores.append((self, self.state))

    def write_registry(self, document):
        write_file(self.registry, json.dumps(document))

    def command(self, *more, **changed):
        """The command line; changed names options by their words, None leaves one out."""
        program = f"{self.world.programs}/cloisterd"
        options = {"tenants": self.registry, "state": self.state, "rootfs": self.world.rootfs,
                   "boundary": "development", "port": 0, "confine": CONFINE}
        options.update({k.replace("_", "-"): v for k, v in changed.items()})
        words = [f"--{k}={v}" for k, v in options.items() if v is not None]
        return [program, "serve", *words, *self.options, *more]

    def spawn(self, command, prefix=AS_SERVICE, preexec_fn=None):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*prefix, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                env={**ENVIRONMENT, **self.environment}, start_new_session=True,
                preexec_fn=preexec_fn)

    def start(self, *more, **changed):
        before, command = len(self.log()), self.command(*more, **changed)
        external = any(word.startswith("--database-url-file") for word in command)
        if not (self.first or external or os.path.exists(f"{self.state}/pg")):
            subprocess.run(["cp", "-a", unused_database(self.world), f"{self.state}/pg"], check=True)
        self.spawn(command)
        self.wait_ready(before)
        return self

    def wait_ready(self, before=0):
        def look():
            assert self.alive(), f"cloisterd ended with {self.process.returncode}: {self.log()}"
            return re.search(r"^cloisterd: ready on http://127\.0\.0\.1:(\d+)$",
                             self.log()[before:], re.MULTILINE)

        self.port = int(eventually(look, 60, "cloisterd ready")[1])

    def fail(self, *more, preexec_fn=None, prefix=AS_SERVICE, seconds=60, **changed):
        """Starts what cannot start; its exit status and the lines it wrote."""
        before = len(self.log())
        self.spawn(self.command(*more, **changed), prefix, preexec_fn)
        code = self.process.wait(seconds * PATIENCE)
        self.world.expect_nobody()
        self.expect_no_report()
        return code, self.log()[before:].splitlines()

    def log(self):
        with contextlib.suppress(FileNotFoundError):
            with open(self.log_path, encoding="utf-8", errors="replace") as f:
                return f.read()
        return ""

    def ends(self, tenant):
        """How many sandboxes of a tenant's have ended, as far as the server knows."""
        return self.log().count(f"sandbox of tenant {self.tenants[tenant].id} ended: ")

    def expect_end(self, tenant, before=0, seconds=30):
        """Another one than those before. What is called while the server does not know is lost."""
        eventually(lambda: self.ends(tenant) > before and not self.running(tenant), seconds,
                   f"the end of {tenant}'s sandbox")

    def main_pid(self):
        return self.process.pid

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, sig=signal.SIGTERM, seconds=60):
        self.process.send_signal(sig)
        return self.ended(seconds)

    def ended(self, seconds=60):
        """Its exit status, when nothing of it is left."""
        code = self.process.wait(seconds * PATIENCE)
        self.world.expect_nobody()
        self.expect_no_report()
        return code

    def expect_no_report(self):
        """No sanitizer has said anything of any of its processes."""
        expect_no_report(self.log())

    def end(self):
        """Ends it, whatever state it is in. With a sanitizer first in order, if it can: what is
        killed counts no leaks. Asked twice, it does not wait for turns."""
        for seconds in (6, 12) if SANITIZED and self.alive() else ():
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(seconds)
                break
        self.kill()

    def kill(self):
        """Kills all of it."""
        if self.alive():
            tree = self.tree()
            self.process.kill()
            for process in tree:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
            self.process.wait(10)
        if self in self.world.daemons:
            self.world.daemons.remove(self)
        self.expect_no_report()

    def client(self, tenant=None):
        return Client(self.port, self.tenants[tenant].token if tenant else None)


def unused_database(world):
    """The database of a daemon that was started and stopped once, with a tenant that no other
    declares."""
    if not world.database:
        maker = Daemon(world, ("nobody",), first=True).start()
        assert maker.stop() == 0, maker.log()
        world.daemons.remove(maker)
        world.database = f"{maker.state}/pg"
        os.unlink(f"{world.database}/log")
    return world.database
