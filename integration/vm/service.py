"""The installed service, as its operator handles it: the registry, systemctl, the journal."""

import json
import os
import pwd
import re
import secrets
import subprocess
import types
import uuid

from client import Client
from daemon import Parts

with open("/opt/cloister/settings.json", encoding="utf-8") as settings:
    SETTINGS = json.load(settings)
UNIT, USER, PORT = "cloister.service", "cloister", 4096
REGISTRY, TOKENS, WORKSPACES = "/etc/cloister/tenants.json", "/etc/cloister/tokens", "/srv/cloister"
DROPINS = f"/etc/systemd/system/{UNIT}.d"
CGROUP = f"/sys/fs/cgroup/system.slice/{UNIT}"
STATE = "/var/lib/cloister"
LIB, ROOTFS = "/usr/lib/cloister", "/usr/lib/cloister/rootfs"


def programs_of(lib):
    """Of the release that would start next."""
    return os.path.dirname(os.path.realpath(f"{lib}/cloisterd"))


PROGRAMS = programs_of(LIB)


def run(*command, check=True):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{command}: {done.returncode} {done.stderr}"
    return done


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def documented(file, heading):
    """The blocks of commands below a heading of a document, each as one text."""
    section = read(f"/opt/cloister/docs/{file}").split(f"\n## {heading}\n", 1)[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    return [re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks]


def follow(commands, **replaced):
    """Does what a document says, as an operator who puts in what is theirs."""
    for word, value in replaced.items():
        assert word in commands, f"the document has no {word}: {commands}"
        commands = commands.replace(word, value)
    return run("bash", "-euc", commands)


class Tenant:
    """Declared once; its id and token are kept on the disk and survive the machine."""

    def __init__(self, name):
        self.name, self.workspace = name, f"{WORKSPACES}/{name}"
        self.token_file = f"{TOKENS}/{name}"
        self.extra = {}
        user = pwd.getpwnam(USER)
        if not os.path.exists(self.token_file):
            os.makedirs(TOKENS, mode=0o755, exist_ok=True)
            with open(self.token_file, "w", encoding="utf-8") as f:
                f.write(secrets.token_hex(32))
            os.chown(self.token_file, user.pw_uid, user.pw_gid)
            os.chmod(self.token_file, 0o400)
            os.mkdir(self.workspace, 0o700)
            os.chown(self.workspace, user.pw_uid, user.pw_gid)
        self.id = str(uuid.uuid5(uuid.NAMESPACE_DNS, name))
        self.credential = str(uuid.uuid5(uuid.NAMESPACE_URL, name))

    @property
    def token(self):
        return read(self.token_file)

    def entry(self):
        return {"id": self.id, "name": self.name, "workspaceRoot": self.workspace,
                "credentials": [{"id": self.credential, "tokenFile": self.token_file}],
                **self.extra}


class Service(Parts):
    """Has what the tests of integration/ ask of a daemon, so that they run here too."""

    var, state, port, registry = "/etc/cloister", STATE, PORT, REGISTRY
    world = types.SimpleNamespace(programs=PROGRAMS, rootfs=ROOTFS)

    def __init__(self, tenants):
        self.tenants = {name: Tenant(name) for name in tenants}
        self.start_failed = False
        self.declare()
        if SETTINGS["boundary"] != "service":
            self.options(boundary=SETTINGS["boundary"])

    def declare(self, *names):
        """Writes the registry with these tenants, or with all."""
        entries = [self.tenants[n].entry() for n in names or self.tenants]
        with open(REGISTRY, "w", encoding="utf-8") as f:
            json.dump({"version": 1, "tenants": entries}, f)

    def limit(self, *names, **limits):
        """Declares limits for these tenants, or for all; in force from their next sandbox."""
        for name in names or self.tenants:
            self.tenants[name].extra = {"limits": limits} if limits else {}
        self.declare()

    def options(self, **changed):
        """Replaces options of the command line until the next call, as an operator would."""
        if SETTINGS["boundary"] != "service":
            changed.setdefault("boundary", SETTINGS["boundary"])
        words = next(line for line in read(f"/usr/lib/systemd/system/{UNIT}").splitlines()
                     if line.startswith("ExecStart=")).removeprefix("ExecStart=").split()
        for name, value in changed.items():
            option = f"--{name.replace('_', '-')}"
            if option in words:
                words[words.index(option) + 1] = str(value)
            else:
                words += [option, str(value)]
        self.drop_in("options", f"[Service]\nExecStart=\nExecStart={' '.join(words)}\n")

    def drop_in(self, name, text=None):
        """Adds a drop-in, or removes it."""
        os.makedirs(DROPINS, exist_ok=True)
        path = f"{DROPINS}/{name}.conf"
        if text is None:
            if os.path.exists(path):
                os.unlink(path)
        else:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        run("systemctl", "daemon-reload")

    # -- systemctl

    def start(self):
        """Returns when the unit is active; that it then answers is for the test to say."""
        done = run("systemctl", "start", UNIT, check=False)
        self.start_failed = done.returncode != 0
        assert not self.start_failed, f"start: {done.stderr}\n{self.journal(60)}"
        return self

    def stop(self):
        run("systemctl", "stop", UNIT)

    def restart(self):
        # Tests may restart more often than what keeps failing is restarted.
        run("systemctl", "reset-failed", UNIT, check=False)
        run("systemctl", "restart", UNIT)
        self.start_failed = False

    def reload(self):
        run("systemctl", "reload", UNIT)

    def fail_to_reload(self):
        """What the journal then says."""
        begin = run("date", "+%s.%N").stdout.strip()
        done = run("systemctl", "reload", UNIT, check=False)
        assert done.returncode != 0, "the reload did not fail"
        return run("journalctl", "-u", UNIT, "-o", "cat", f"--since=@{begin}").stdout

    def kill(self, sig):
        run("systemctl", "kill", "-s", sig, UNIT)

    def show(self, *names):
        """Properties of the unit as systemd has them."""
        lines = run("systemctl", "show", UNIT, "-p", ",".join(names)).stdout.splitlines()
        found = dict(line.split("=", 1) for line in lines)
        return found[names[0]] if len(names) == 1 else found

    def active(self):
        return self.show("ActiveState") == "active"

    def journal(self, lines=200):
        return run("journalctl", "-u", UNIT, "-o", "cat", "-n", str(lines)).stdout

    def log(self):
        return self.journal(10000)

    # -- what belongs to it

    def client(self, tenant=None):
        return Client(PORT, self.tenants[tenant].token if tenant else None)

    def main_pid(self):
        return int(self.show("MainPID"))

    def leaf(self, tenant):
        """The cgroup of a tenant's sandbox."""
        return f"{CGROUP}/sandboxes/{self.tenants[tenant].id}"

    def processes(self):
        """Pids in the unit's cgroup and below, by cgroup relative to the unit's."""
        found = {}
        for directory, _, files in os.walk(CGROUP):
            if "cgroup.procs" in files:
                pids = read(f"{directory}/cgroup.procs").split()
                if pids:
                    found[os.path.relpath(directory, CGROUP)] = [int(p) for p in pids]
        return found


def cgroup_of(pid):
    """Of a process, below /sys/fs/cgroup; None when it has ended."""
    try:
        return read(f"/proc/{pid}/cgroup").strip().removeprefix("0::")
    except (FileNotFoundError, ProcessLookupError):
        return None


def strays():
    """What runs as the service user outside the unit: (pid, command line, cgroup)."""
    unit = CGROUP.removeprefix("/sys/fs/cgroup")
    found = [(pid, line, cgroup_of(pid)) for pid, line in processes_of_user()]
    return [s for s in found if s[2] is not None and not f"{s[2]}/".startswith(f"{unit}/")]


def processes_of_user():
    """Everything that runs as the service user, wherever it is: (pid, command line)."""
    uid = pwd.getpwnam(USER).pw_uid
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{entry}").st_uid == uid or f"\nUid:\t{uid}\t" in \
                    read(f"/proc/{entry}/status"):
                found.append((int(entry), read(f"/proc/{entry}/cmdline").replace("\0", " ")))
        except OSError:
            continue
    return found
