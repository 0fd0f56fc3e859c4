"""A soak: mixed load for some time, and whether what the daemon holds and takes stays the same.

  scripts/soak [--minutes N] [--seed N] BUILD_DIR

Prints a table, and writes it with every curve to BUILD_DIR/soak.json and soak.svg. Exit status
0: all of it is flat; 1: something grows, or was wrong; 2: for some of it nothing can be said.
"""

import argparse
import collections
import json
import os
import random
import resource
import signal
import statistics
import sys
import threading
import time
import traceback
from http.client import HTTPException

from chaos.clerk import Clerk
from chaos.ledger import Ledger
from chaos.run import Chaos
from chaos.unit import Unit
from chaos.watcher import Watcher
from figures import quantile
from place import Place, load as machine_load, versions
from provider.models import declare, entry
from soak import flat, measures, pair
from soak.draw import Panel, draw
from soak.load import MIXED, SLEEP_SECONDS, Load, Reloads, Sleeper
from soak.probe import Teller
from soak.sample import Sampler
from world import BUILD, PATIENCE, eventually

STEADY = "acme"  # its sandbox runs all the time
PROGRAMS = {STEADY: MIXED, "globex": MIXED, "initech": (Sleeper,)}
PROBED, GUEST = "umbrella", "hooli"
SAMPLE_SECONDS, DEEPER = 4, 4  # every fourth look is a deeper one
QUIET_SECONDS = 120
FILES_OF_A_STOPPED_ONE = 4  # its lock, and directories that are made once
WRONGS_SHOWN = 20
# What sessions leave in a tenant's database when they are deleted.
ROWS = """SELECT table_name, (xpath('/row/n/text()', query_to_xml(format(
    'SELECT count(*) AS n FROM app.%I', table_name), false, true, '')))[1]::text
    FROM information_schema.tables
    WHERE table_schema = 'app' AND table_type = 'BASE TABLE' AND table_name <> 'migration'"""


class House(Unit):
    """Its state is on the disk of the machine, with room to grow."""

    always = [f"--sandbox-idle-seconds={SLEEP_SECONDS}", "--drain-seconds=5"]

    def make_state(self):
        pass

    def close(self):
        self.closing = True
        self.kill()


class Soak:
    registry, write_registry = Chaos.registry, Chaos.write_registry

    def __init__(self, world, seed):
        self.seed, self.registry_lock = seed, threading.Lock()
        self.samples, self.timings = collections.defaultdict(list), collections.defaultdict(list)
        self.wrongs, self.pairs = [], []
        self.world = world
        self.ledger = Ledger(tuple(PROGRAMS))
        self.unit = House(world, (*PROGRAMS, PROBED, GUEST), self.ledger.wrong)
        self.clerk = Clerk(self.ledger)
        self.probe = Teller(self.unit, self.note)
        self.models = declare(
            self.unit, entry("clerk", "chat-completions", self.clerk.url),
            entry("probe", "chat-completions", self.probe.url))
        self.unit.open(f"--models={self.models}")
        self.sampler = Sampler(self.unit, STEADY)
        self.load = Load(self.unit, self.ledger, seed, PROGRAMS, self.note_now)
        self.reloads = Reloads(self, GUEST, f"{seed} reloads")
        self.watchers = [self.watch(a, restless) for a in list(self.ledger.accounts.values())[:2]
                         for restless in (False, True)]

    def watch(self, account, restless):
        """Streams of a tenant: one that stays, and one that goes and comes back."""
        chance = random.Random(f"{self.seed} {account.tenant} streams")
        others = [a for a in self.ledger.accounts.values() if a is not account]
        return Watcher(self.unit, self.ledger, account, others,
                       (lambda: chance.randint(5, 60)) if restless else None)

    def note(self, kind, when, ms):
        self.timings[kind].append((when, ms))

    def note_now(self, kind, ms):
        self.note(kind, time.monotonic(), ms)

    # -- the time that it takes

    def run(self, seconds):
        self.begin = time.monotonic()
        self.end = self.begin + seconds
        self.load.go_on()
        self.probe.begin(port=self.unit.port, model="probe",
                         token=self.unit.tenants[PROBED].token)
        threading.Thread(target=self.probe.read, daemon=True).start()
        looks = 0
        while (now := time.monotonic()) < self.end:
            self.look(now, looks % DEEPER == 0)
            looks += 1
            self.forget()
            time.sleep(max(0.1, self.begin + looks * SAMPLE_SECONDS - time.monotonic()))
        self.end = time.monotonic()

    def look(self, now, deeper):
        found = self.sampler.look()
        if deeper:
            found.update(self.sampler.look_deeper())
            minute = (now - self.begin) / 60
            print(f"{minute:5.1f} min: {self.ledger.accepted} turns, server "
                  f"{found.get('server.private', 0) / 1024:.1f} MiB, databases "
                  f"{found['database'] / 1048576:.1f} MiB, load {machine_load()[0]}", flush=True)
        found["accepted"] = self.ledger.accepted
        found["load"] = float(machine_load()[0])
        for name, value in found.items():
            self.samples[name].append((now, value))

    def forget(self):
        """What the chaos keeps to judge later, and nobody asks for here."""
        self.clerk.asked.clear()
        for account in self.ledger.accounts.values():
            account.gone.clear()
        for watcher in self.watchers:
            watcher.forget()
        self.wrongs += self.ledger.take_wrongs()

    # -- what is left of it

    def rest(self):
        """Ends the load; {what is left: how much}, all of which ought to be nothing."""
        if not self.load.rest(QUIET_SECONDS * PATIENCE):
            self.ledger.wrong(f"work that does not end in {QUIET_SECONDS} s")
        self.probe.end()
        self.reloads.close()
        for watcher in self.watchers:
            watcher.close()
        self.pairs = pair.compare(self.unit, self.world, self.end - self.begin, STEADY, "clerk",
                                  self.models, sandbox_idle_seconds=SLEEP_SECONDS)
        left = {}
        try:
            eventually(lambda: not self.sampler.look()["sandboxes"], 60, "the sandboxes stop", 0.5)
        except AssertionError as problem:
            self.ledger.wrong(str(problem))
        found = self.sampler.look()
        left["sandboxes"], left["namespaces"] = found["sandboxes"], found["namespaces"]
        left["zombies"], left["groups"] = found["zombies"], self.sampler.groups()
        for tenant in (*PROGRAMS, PROBED):
            for table, rows in self.unit.ask(self.unit.database(tenant), ROWS):
                left["rows"] = left.get("rows", 0) + int(rows)
                if int(rows):
                    self.ledger.wrong(f"{tenant} has {rows} rows in app.{table}, and no session")
            left["files"] = left.get("files", 0) + \
                max(0, self.runtime_files(tenant) - FILES_OF_A_STOPPED_ONE)
        self.wrongs += self.ledger.take_wrongs()
        return left

    def runtime_files(self, tenant):
        run = f"{self.unit.state}/tenants/{self.unit.tenants[tenant].id}/run"
        return sum(len(names) + len(files) for _, names, files in os.walk(run))

    def reclaimed(self):
        """{tenant: how often vacuumed by itself, MiB with the holes, and after a VACUUM}"""
        found, before = {}, self.sampler.sizes()
        for tenant in (*PROGRAMS, PROBED):
            database = self.unit.database(tenant)
            times = self.unit.ask(database, "SELECT coalesce(sum(autovacuum_count), 0) FROM "
                                  "pg_stat_user_tables")
            self.unit.ask(database, "VACUUM")
            found[tenant] = {"autovacuums": int(times[0][0]), "mib": before[tenant] / measures.MIB}
        fresh = self.sampler.sizes()
        for tenant, facts in found.items():
            facts["vacuumedMib"] = fresh[tenant] / measures.MIB
        return found

    def stop(self):
        """In order, as a service manager does it."""
        self.unit.closing = True
        code = self.unit.stop()
        if code:
            self.wrongs.append(f"it ended with {code}:\n{self.unit.tail()}")

    def close(self):
        self.load.close()
        self.probe.close()
        self.reloads.close()
        for watcher in self.watchers:
            watcher.close()
        self.unit.close()
        self.clerk.close()


# -- what is told of it


def panels(soak):
    def curve(name, factor, reduce=statistics.median):
        points = flat.windows(soak.samples[name], soak.begin, soak.end, 60, reduce)
        return [((t - soak.begin) / 60, v * factor) for t, v in points]

    def timing(kind, part):
        points = flat.windows(soak.timings[kind], soak.begin, soak.end, 60,
                              lambda v: quantile(v, part))
        return [((t - soak.begin) / 60, v) for t, v in points]

    kib, mib = 1 / measures.KIB, 1 / measures.MIB
    small = ("launcher", "server", "courier", "postmaster", "runner", "gofer")
    return [
        Panel("Private memory of the daemon's processes, MiB",
              {n: curve(f"{n}.private", kib) for n in small}),
        Panel("Memory of a sandbox and of PostgreSQL's connections, MiB",
              {"a sandbox": curve("sandbox.pss", kib), "sentry": curve("sentry.private", kib),
               "connections": curve("backends.private", kib)}),
        Panel("Descriptors", {n: curve(f"{n}.descriptors", 1) for n in small}),
        Panel("Threads, namespaces, sandboxes",
              {"server's threads": curve("server.threads", 1), "namespaces": curve("namespaces", 1),
               "processes": curve("processes", 1), "sandboxes": curve("sandboxes", 1)}),
        Panel("Disk, MiB", {"databases": curve("database", mib),
                            "sandboxes' state": curve("disk.tenants", mib)}),
        Panel("Latency, median, ms", {measures.KINDS[k]: timing(k, 0.5) for k in
                                      ("turn", "command", "first", "session", "accept")}),
        Panel("Reads, median, ms", {
            measures.KINDS.get(k) or measures.CONTROLS[k]: timing(k, 0.5)
            for k in ("healthz", "get", "list", "event", "echo")}),
        Panel("What the machine took, median, ms; load",
              {"flush": timing("flush", 0.5), "spawn": timing("spawn", 0.5),
               "load": curve("load", 1)}),
    ]


def table(rows):
    lines = ["| what | level | growth | 95 % of it | bound | |", "|---|---|---|---|---|---|"]
    for row in rows:
        v, unit = row.verdict, row.unit
        if v.growth is None:
            lines.append(f"| {row.title} | | | | | {v.word} |")
            continue
        lines.append(f"| {row.title} | {v.level:.4g} {unit} | {v.growth:+.2g} | "
                     f"{v.low:+.2g}..{v.high:+.2g} | {v.bound:.2g} | {v.word} |")
    return "\n".join(lines)


def report(soak, left, reclaimed, seconds):
    rows = measures.judge_all(soak.samples, soak.begin, soak.end)
    late = measures.judge_latencies(soak.timings, soak.begin, soak.end)
    timed = measures.latency_table(soak.timings, soak.begin, soak.end)
    pair.settle(late, soak.pairs)
    print(table(rows + late))
    print("\n" + pair.table(soak.pairs))
    print("\n| | samples | median | p95 | p99 |\n|---|---|---|---|---|")
    for title, count, *values in timed:
        print(f"| {title} | {count:,} | " + " | ".join(f"{v:.3g} ms" for v in values) + " |")
    print(f"\nwork done: {dict(soak.load.pieces)}, {soak.reloads.number} reloads, "
          f"{sum(w.connections for w in soak.watchers)} streams, {soak.ledger.accepted} turns; "
          f"refused: {soak.ledger.refusals}")
    print(f"left when all was deleted: {left}")
    for tenant, facts in reclaimed.items():
        print(f"database of {tenant}: {facts}")
    for wrong in soak.wrongs[:WRONGS_SHOWN]:
        print(f"wrong: {wrong[:600]}")
    document = {
        "version": 1, "seed": soak.seed, "seconds": seconds, "machine": versions(),
        "turns": soak.ledger.accepted, "pieces": soak.load.pieces, "left": left,
        "reclaimed": reclaimed, "wrongs": soak.wrongs, "timed": timed,
        "rows": [row.document() for row in rows + late],
        "pairs": [p.document() for p in soak.pairs],
        "curves": {n: [(round(t - soak.begin, 1), v) for t, v in s]
                   for n, s in soak.samples.items()}}
    with open(f"{BUILD}/soak.json", "w", encoding="utf-8") as f:
        json.dump(document, f, indent=1, ensure_ascii=False)
    with open(f"{BUILD}/soak.svg", "w", encoding="utf-8") as f:
        f.write(draw(panels(soak), (soak.end - soak.begin) / 60))
    return conclude([row.verdict.word for row in rows + late] + [p.word for p in soak.pairs],
                    left, soak.wrongs)


def conclude(verdicts, left, wrongs):
    """The last line, and the exit status."""
    words = collections.Counter(word.partition(",")[0] for word in verdicts)
    remains = [name for name, number in left.items() if number]
    print(f"soak: {words['flat']} flat, {words['grows']} grow, {words['unclear']} unclear, "
          f"{len(wrongs)} wrong, {len(remains)} left behind")
    if words["grows"] or wrongs or remains:
        return 1
    return 2 if words["unclear"] else 0


def finish(soak):
    """(what is left, what was reclaimed); a fault here does not take the curves away."""
    left, reclaimed = {}, {}
    try:
        left = soak.rest()
        reclaimed = soak.reclaimed()
        soak.stop()
    except (AssertionError, OSError, ValueError, HTTPException) as problem:
        soak.wrongs.append(f"at the end: {type(problem).__name__}: {problem}")
    return left, reclaimed


def options():
    parser = argparse.ArgumentParser(description="see the head of integration/soak/run.py")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    return parser.parse_args()


def main():
    chosen = options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    print(f"seed {chosen.seed}, {chosen.minutes:g} minutes", flush=True)
    world, soak = Place(), None
    try:
        world.open()
        soak = Soak(world, chosen.seed)
        soak.run(chosen.minutes * 60)
        return report(soak, *finish(soak), chosen.minutes * 60)
    except BaseException:
        traceback.print_exc()
        if soak:
            print(soak.unit.tail(40))
        return 1
    finally:
        if soak:
            soak.close()
        world.close()


if __name__ == "__main__":
    sys.exit(main())
