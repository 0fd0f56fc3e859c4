"""What a running daemon holds: memory, descriptors, threads, namespaces, mounts, disk, rows."""

import os

from chaos.invariants import NAMESPACES, UUID, links, read
from world import process_table

CLASSES = ("launcher", "server", "keeper", "courier", "postmaster", "backends", "workers")
# Of the tenant whose sandbox runs all the time; others come and go.
OF_SANDBOX = ("runner", "slirp4netns", "runsc", "sentry", "gofer", "stubs")
FIELDS = ("Pss", "Anonymous")


def weigh(pid):
    """{field: KiB}; nothing when it is gone."""
    found = {}
    try:
        for text in read(f"/proc/{pid}/smaps_rollup").splitlines():
            name, _, rest = text.partition(":")
            if name in FIELDS:
                found[name] = int(rest.split()[0])
    except OSError:
        pass
    return found


def threads(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def size_of(directory, without=()):
    """Bytes on the disk of what is below it, and how many files that are."""
    taken = number = 0
    for place, names, files in os.walk(directory):
        names[:] = [n for n in names if f"{place}/{n}" not in without]
        for name in files:
            try:
                taken += os.lstat(f"{place}/{name}").st_blocks * 512
                number += 1
            except OSError:
                pass
    return taken, number


class Family:
    """The processes below a launcher, each with what it is there for."""

    def __init__(self, main_pid):
        self.table = process_table()
        self.classes = {name: [] for name in CLASSES}
        self.sandboxes = {}  # tenant id: {class: [pid]}
        self.zombies = 0
        self.classes["launcher"].append(main_pid)
        for process in self.children(main_pid):
            {"cloisterd": self.server, "postgres": self.postgres,
             "cloister-runner": self.sandbox}.get(process.name, lambda _: None)(process)

    def children(self, pid):
        all_of_them = self.table.get(pid, [])
        self.zombies += sum(1 for state, _ in all_of_them if state == "Z")
        return [p for state, p in all_of_them if state != "Z"]

    def below(self, pid):
        found = []
        for process in self.children(pid):
            found += [process, *self.below(process.pid)]
        return found

    def server(self, process):
        self.classes["server"].append(process.pid)
        for keeper in self.children(process.pid):
            self.classes["keeper"].append(keeper.pid)
            self.classes["courier"] += [p.pid for p in self.children(keeper.pid)]

    def postgres(self, process):
        self.classes["postmaster"].append(process.pid)
        for child in self.children(process.pid):
            local = "[local]" in " ".join(child.arguments())
            self.classes["backends" if local else "workers"].append(child.pid)

    def sandbox(self, process):
        tenant = next((a for a in process.arguments() if UUID.match(a)), None)
        box = self.sandboxes.setdefault(tenant, {name: [] for name in OF_SANDBOX})
        box["runner"].append(process.pid)
        self.sort(process.pid, box)

    def sort(self, pid, box):
        for process in self.children(pid):
            arguments = process.arguments()
            if process.name == "slirp4netns":
                box["slirp4netns"].append(process.pid)
            elif "boot" in arguments:
                box["sentry"].append(process.pid)
                box["stubs"] += [p.pid for p in self.below(process.pid)]
                continue
            else:
                box["gofer" if arguments[:1] == ["runsc-gofer"] else "runsc"].append(process.pid)
            self.sort(process.pid, box)

    def pids(self):
        groups = [*self.classes.values(), *(v for b in self.sandboxes.values() for v in b.values())]
        return [pid for group in groups for pid in group]


class Sampler:
    """Looks at a unit; steady is the tenant whose sandbox always runs."""

    def __init__(self, unit, steady):
        self.unit, self.steady = unit, unit.tenants[steady].id
        self.own = {name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}

    def look(self):
        """{measure: value} of what is quick to read."""
        family = Family(self.unit.main_pid())
        stubs = sum(len(box["stubs"]) for box in family.sandboxes.values())
        found = {"processes": len(family.pids()) - stubs, "zombies": family.zombies, "stubs": stubs,
                 "sandboxes": len(family.sandboxes), "namespaces": self.namespaces(family),
                 "backends": len(family.classes["backends"])}
        for name, pids in family.classes.items():
            self.add(found, name, pids)
        steady = family.sandboxes.get(self.steady)
        for name, pids in (steady or {}).items():
            self.add(found, name, pids)
        weights = [weigh(pid).get("Pss", 0) for box in family.sandboxes.values()
                   for pids in box.values() for pid in pids]
        if family.sandboxes:
            found["sandbox.pss"] = sum(weights) / len(family.sandboxes)
        for name in ("launcher", "server", "postmaster"):
            for pid in family.classes[name]:
                found[f"{name}.mounts"] = self.lines(f"/proc/{pid}/mountinfo")
        found["mounts"] = self.lines("/proc/self/mountinfo")
        return found

    @staticmethod
    def lines(path):
        try:
            return len(read(path).splitlines())
        except OSError:
            return 0

    @staticmethod
    def add(found, name, pids):
        if not pids:
            return
        weights = [weigh(pid) for pid in pids]
        found[f"{name}.pss"] = sum(w.get("Pss", 0) for w in weights)
        found[f"{name}.private"] = sum(w.get("Anonymous", 0) for w in weights)
        found[f"{name}.descriptors"] = sum(len(links(pid, "fd")) for pid in pids)
        found[f"{name}.threads"] = sum(threads(pid) for pid in pids)

    def namespaces(self, family):
        """Those that the daemon's processes live in or hold, beside this process's own."""
        seen = set()
        for pid in family.pids():
            for link in [*links(pid, "ns"), *links(pid, "fd")]:
                kind = link.partition(":")[0]
                if kind in NAMESPACES and link != self.own[kind]:
                    seen.add(link)
        return len(seen)

    def look_deeper(self):
        """What takes longer: the disk, the control groups, the databases."""
        state = self.unit.state
        wal = f"{state}/pg/data/pg_wal"
        found = {}
        found["disk.tenants"], found["files.tenants"] = size_of(f"{state}/tenants")
        found["disk.database"], found["files.database"] = size_of(f"{state}/pg", (wal,))
        found["disk.log"], _ = size_of(wal)
        found["groups"] = self.groups()
        found["database"] = sum(self.sizes().values())
        return found

    def groups(self):
        """Leaves of tenants, anywhere below the control groups."""
        ids = {t.id for t in self.unit.tenants.values()}
        return sum(name in ids for _, names, _ in os.walk("/sys/fs/cgroup") for name in names)

    def sizes(self):
        """{tenant: bytes of its database}; of those that have one."""
        rows = dict(self.unit.ask("cloister", "SELECT datname, pg_database_size(datname) FROM "
                                  "pg_database WHERE datname LIKE 'ct!_%' ESCAPE '!'"))
        names = {self.unit.database(tenant): tenant for tenant in self.unit.tenants}
        return {names[d]: int(n) for d, n in rows.items() if d in names}
