"""What Cloister is compared with: nginx, pgbench, runsc by itself; and wrk, which asks."""

import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import time
import traceback

from place import ROOT
from recorder import Recorder
from world import demo, eventually, output_of

NGINX = """
daemon off;
worker_processes {workers};
worker_rlimit_nofile 20000;
pid {directory}/nginx.pid;
error_log {directory}/nginx.log;
events {{ worker_connections 10000; }}
http {{
	access_log off;
	keepalive_requests 1000000000;
	server {{
		listen 127.0.0.1:{port};
		location / {{ default_type application/json; return 200 '{{"ok":true}}'; }}
	}}
}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def can_connect(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def nginx(place, workers=1):
    """Its port."""
    directory, port = place.new_directory(), free_port()
    os.mkdir(directory)
    with open(f"{directory}/nginx.conf", "w", encoding="utf-8") as f:
        f.write(NGINX.format(workers=workers, directory=directory, port=port))
    process = subprocess.Popen(["nginx", "-p", directory, "-c", f"{directory}/nginx.conf",
                                "-e", f"{directory}/nginx.log"])
    try:
        eventually(lambda: can_connect(port), 20, "nginx listens")
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def wrk(port, path="/", seconds=2, connections=64, token=None, rounds=None):
    """Rate, latencies in µs and errors; one thread. rounds names a file of "TOKEN PATH"."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s",
               "-s", f"{ROOT}/bench/load.lua"]
    if token:
        command += ["-H", f"Authorization: Bearer {token}"]
    command.append(f"http://127.0.0.1:{port}{path}")
    if rounds:
        command += ["--", rounds]
    found = json.loads(output_of(*command).splitlines()[-1])
    assert not found["errors"], f"{path}: {found['errors']} of {found['requests']} failed"
    return {**found, "rate": found["requests"] / found["us"] * 1e6}


class Database:
    """The daemon's PostgreSQL, seen from beside it."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.directory = f"{daemon.state}/pg"

    def of_tenant(self, name):
        """Its database and its role."""
        tenant = self.daemon.tenants[name].id.replace("-", "")
        return f"ct_{tenant}", f"cr_{tenant}"

    def command(self, program, database, role, *words):
        return ["setpriv", "--reuid", "cloister", "--regid", "cloister", "--clear-groups",
                program, "-h", f"{self.directory}/run", "-U", role, *words, database]

    def sql(self, name, text):
        """Runs it as the tenant's role, in its database."""
        return output_of(*self.command("psql", *self.of_tenant(name), "-XqAt", "-v",
                                       "ON_ERROR_STOP=1", "-c", text))

    def bench(self, name, statements, seconds, connections):
        """How many of these are executed in a second, prepared, from one thread."""
        words = ["-n", "-M", "prepared", "-T", str(seconds), "-c", str(connections), "-j", "1"]
        for i, sql in enumerate(statements):
            path = f"{self.daemon.var}/bench-{i}.sql"
            with open(path, "w", encoding="utf-8") as f:
                f.write(sql + "\n")
            os.chmod(path, 0o644)
            words += ["-f", path]
        output = output_of(*self.command("pgbench", *self.of_tenant(name), *words))
        return float(re.search(r"^tps = ([\d.]+)", output, re.MULTILINE)[1])

    @contextlib.contextmanager
    def statements(self):
        """A list of what is executed for tenants meanwhile: Statement each. Connections are new
        when it begins, and again behind it."""
        with contextlib.closing(Recorder(self.daemon)) as recorder:
            yield recorder.statements
            time.sleep(0.3)  # what follows the last answer


def wire(statements):
    """A round of the program replay."""
    text = f"{len(statements)}\n"
    for s in statements:
        text += f"{s.database} {s.role} {len(s.parameters)}\n"
        for value in (s.sql, *s.parameters):
            text += "-1\n" if value is None else f"{len(value.encode())}\n{value}\n"
    return text


# -- runsc --------------------------------------------------------------------------------

RUNSC = ["--platform=systrap", "--network=none", "--ignore-cgroups=true", "--overlay2=none",
         "--directfs=true", "--file-access=exclusive"]


class Runsc:
    """A bundle with the same root filesystem, run by root without anything around it."""

    def __init__(self, place):
        self.directory = place.new_directory()
        self.runs = 0
        os.makedirs(f"{self.directory}/bundle")
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc"},
                  {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"}]
        config = {"ociVersion": "1.0.2", "root": {"path": place.rootfs, "readonly": True},
                  "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/true"], "cwd": "/",
                              "env": ["PATH=/usr/bin:/bin"]},
                  "mounts": mounts,
                  "linux": {"namespaces": [{"type": kind} for kind in
                                           ("pid", "ipc", "uts", "mount", "network")]}}
        with open(f"{self.directory}/bundle/config.json", "w", encoding="utf-8") as f:
            json.dump(config, f)

    def run(self):
        """Seconds from the start of runsc to its end."""
        self.runs += 1
        begin = time.monotonic()
        output_of("runsc", f"--root={self.directory}/state", *RUNSC, "run",
                  f"--bundle={self.directory}/bundle", f"bare-{os.getpid()}-{self.runs}")
        return time.monotonic() - begin


class Inside:
    """A process in the namespaces of a sandbox's box, which runs "runsc exec" there."""

    def __init__(self, daemon, tenant):
        found = daemon.below_runner(tenant, lambda p: "run" in p.arguments() and
                                    "cell" in p.arguments() and "boot" not in p.arguments())
        assert found, f"no runsc: {daemon.tree()}"
        pid = found[0].pid
        handles = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
                   for kind in ("user", "mnt", "net", "uts", "ipc", "pid")]
        self.here, there = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.here.close()
            try:
                self.enter(handles)
                self.serve(there)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        for handle in handles:
            os.close(handle)
        there.close()

    @staticmethod
    def enter(handles):
        for handle in handles:
            if demo.LIBC.setns(handle, 0):
                raise OSError(ctypes.get_errno(), "setns")
        os.chdir("/")
        os.setgid(0)  # the only ids that exist there
        os.setuid(0)

    @staticmethod
    def serve(sock):
        while words := sock.recv(4096):
            out, into = os.pipe()
            begin, count = time.monotonic(), 0
            pid = os.posix_spawn("/runsc", ["/runsc", "--root=/runsc-state", "exec", "cell",
                                            *words.decode().split()], {"PATH": "/"},
                                 file_actions=[(os.POSIX_SPAWN_DUP2, into, 1)])
            os.close(into)
            while data := os.read(out, 65536):
                count += len(data)
            os.close(out)
            _, status = os.waitpid(pid, 0)
            answer = {"seconds": time.monotonic() - begin, "bytes": count, "status": status}
            sock.send(json.dumps(answer).encode())
        os._exit(0)

    def run(self, line):
        self.here.send(line.encode())
        answer = json.loads(self.here.recv(4096))
        assert answer["status"] == 0, f"runsc exec {line}: {answer}"
        return answer

    def close(self):
        self.here.close()
        os.waitpid(self.pid, 0)
