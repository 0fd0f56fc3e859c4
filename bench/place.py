"""Where it is measured: the stage of the end-to-end tests, with the state on the disk."""

import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
tempfile.tempdir = "/var/tmp"  # /tmp may be memory
os.environ.setdefault("CLOISTER_PATIENCE", "5")  # what is waited for is not what is measured
sys.path.insert(0, f"{ROOT}/integration")

from daemon import Daemon  # noqa: E402
from world import BUILD, World, output_of  # noqa: E402

PROGRAMS = f"{BUILD}/bench"


class Place(World):
    """A world whose commits reach a disk."""

    def mount(self):
        pass

    @contextlib.contextmanager
    def cloister(self, tenants=("acme",), entry=None, **options):
        """A daemon with these options. entry, when given, changes entries of the registry."""
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        daemon = Daemon(self, tenants, words)
        if entry:
            daemon.write_registry({"version": 1, "tenants": [
                {**t.entry(), **entry} for t in daemon.tenants.values()]})
        try:
            daemon.start(confine=None)
            yield daemon
            # A checkpoint of hundreds of new databases may outlast what PostgreSQL is given to
            # stop; what was measured is no less true.
            if daemon.stop(seconds=60):
                print(daemon.log()[-1000:], file=sys.stderr)
            self.daemons.remove(daemon)
        except BaseException:
            print(f"the last lines of cloisterd:\n{daemon.log()[-4000:]}", file=sys.stderr)
            raise
        finally:
            daemon.kill()
            subprocess.run(["rm", "-rf", daemon.var], check=False)


def tool(name, *arguments, **options):
    """A load generator, with pipes."""
    return subprocess.Popen([f"{PROGRAMS}/{name}", *map(str, arguments)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True, **options)


def finish(process, what):
    """Its output, when it ended well."""
    output, _ = process.communicate()
    assert process.returncode == 0, f"{what} ended with {process.returncode}"
    return output


def answer_of(process):
    """The next line of JSON that a load generator prints."""
    line = process.stdout.readline()
    assert line, f"{process.args[0]} ended with {process.wait()}"
    return json.loads(line)


def memory(pid, field="Pss"):
    """KiB of a process; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as f:
            for line in f:
                if line.startswith(f"{field}:"):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def settled(read, seconds=10, pause=0.25):
    """What read() gives once it is the same twice, or the last of it."""
    last, deadline = read(), time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(pause)
        now = read()
        if now == last:
            break
        last = now
    return last


def versions():
    """What runs here; no names of machines."""

    def first_line(*command):
        try:
            return output_of(*command).splitlines()[0]
        except (AssertionError, OSError, IndexError):
            return None

    with open("/proc/meminfo", encoding="utf-8") as f:
        kib = int(f.readline().split()[1])
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if "model name" in line), None)
    return {"processors": os.cpu_count(), "processor": model,
            "memoryGiB": round(kib / (1 << 20), 1), "kernel": platform.release(),
            "system": platform.freedesktop_os_release()["PRETTY_NAME"],
            "runsc": first_line("runsc", "--version"),
            "postgres": first_line("pgbench", "--version"),
            "nginx": first_line("sh", "-c", "nginx -v 2>&1"),
            "wrk": first_line("sh", "-c", "wrk -v 2>&1 || true"),
            "libmicrohttpd": first_line("pkg-config", "--modversion", "libmicrohttpd")}


def load():
    with open("/proc/loadavg", encoding="utf-8") as f:
        return f.read().split()[:3]
