"""Chaos: rounds of one fault each over a running load, and what must hold after each.

  scripts/check-chaos [--seed N] [--rounds N] [--only PATTERN] BUILD_DIR
  scripts/check-chaos --sabotage BUILD_DIR

The sequence of faults, their victims and times are drawn from the seed, which is printed.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import resource
import signal
import sys
import threading
import time
import traceback
import uuid

from chaos import faults, sabotage
from chaos.cgroup import House
from chaos.clerk import Clerk
from chaos.invariants import LEAK_SECONDS, Checker
from chaos.ledger import Ledger
from chaos.load import Load, Reloads
from chaos.unit import READY_SECONDS, Unit
from chaos.watcher import Watcher
from client import TERMINAL
from daemon import write_file
from provider.models import declare, entry
from world import BUILD, PATIENCE, World, eventually

TENANTS = ("acme", "globex")
VISITOR = "initech"  # its turns are not judged: it is the one who misbehaves
GUEST = "hooli"  # comes and goes with the registry
QUIET_SECONDS = 100
WRONGS_SHOWN = 6
OVERLOAD = 3  # processes that want to run, for each processor
SLOW = re.compile(r"a cancelled call did not end|previous runner does not end")


class Chaos:
    def __init__(self, world, seed, cgroup):
        self.world, self.seed = world, seed
        self.report = f"{os.path.dirname(BUILD)}/chaos.txt"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.report)
        self.visitor = VISITOR
        self.ledger = Ledger(TENANTS)
        self.unit = Unit(world, (*TENANTS, VISITOR, GUEST), self.ledger.wrong)
        self.unit.cgroup = cgroup
        self.clerk = Clerk(self.ledger)
        self.watchers, self.fault, self.round_began, self.log_seen = [], None, 0, 0
        self.registry_lock = threading.Lock()
        self.slow = set()
        models = declare(self.unit, entry("clerk", "chat-completions", self.clerk.url,
                                          idleSeconds=int(faults.IDLE_SECONDS * PATIENCE)))
        self.unit.open(f"--models={models}")
        self.checker = Checker(self)
        self.load = Load(self.unit, self.ledger, seed)
        self.reloads = Reloads(self, GUEST, f"{seed} reloads")
        accounts = list(self.ledger.accounts.values())
        for account in accounts:
            others = [a for a in accounts if a is not account]
            chance = random.Random(f"{seed} {account.tenant} streams")
            for restless in (None, lambda c=chance: c.randint(5, 60)):
                self.watchers.append(Watcher(self.unit, self.ledger, account, others, restless))

    # -- for faults

    def registry(self, without=None):
        entries = [t.entry() for name, t in self.unit.tenants.items() if name != without]
        return json.dumps({"version": 1, "tenants": entries})

    def write_registry(self, text):
        write_file(f"{self.unit.registry}.new", text)
        os.rename(f"{self.unit.registry}.new", self.unit.registry)

    def visit(self, calls):
        """A turn of the visitor's; nobody waits for it."""
        client = self.unit.client(VISITOR)
        plan = json.dumps({"mark": uuid.uuid4().hex, "calls": calls})
        answer = client.request("POST", f"/v1/sessions/{client.session()}/turns",
                                {"input": f"PLAN {plan}"})
        assert answer.status == 202, answer
        return answer.json["id"]

    def excuses(self, tenant, turn):
        """(codes that this turn may have failed with, words that its results may have instead)"""
        codes, words = (), ()
        if self.fault and self.ledger.broke(turn.asked, turn.ended):
            codes, words = self.fault.excuses(tenant)
        if tenant in self.slow:
            codes, words = (*codes, "sandbox_unavailable"), (*words, *faults.LOST)
        return codes, words

    def too_slow(self):
        """Tenants whose sandbox ended because the machine has far more to do than it can: the
        daemon gives processes some seconds to be gone."""
        load = os.getloadavg()[0] / len(os.sched_getaffinity(0))
        text = self.unit.log()[self.log_seen:] if load > OVERLOAD else ""
        return {name for name in self.ledger.accounts for line in text.splitlines()
                if self.unit.tenants[name].id in line and SLOW.search(line)}

    # -- rounds

    def calm(self):
        """Work without a fault: warms up, and says what is normal."""
        self.round_began = time.monotonic()
        self.load.go_on()
        time.sleep(3)
        wrongs = self.settle()
        self.tell("before the first round", wrongs)
        return not wrongs

    def settle(self):
        self.rest()
        return self.judge()

    def rest(self):
        if not self.load.rest(QUIET_SECONDS * PATIENCE):
            self.ledger.wrong(f"work that does not end in {QUIET_SECONDS} s")
        self.end_visits()

    def judge(self, leak_seconds=LEAK_SECONDS):
        """What is wrong, once all is quiet."""
        self.checker.leak_seconds = leak_seconds
        self.slow = self.too_slow()
        found = self.checker.check()
        self.write_off()
        return self.ledger.take_wrongs() + found

    def end_visits(self):
        """Whatever the visitor has under way ends here."""
        client = self.unit.client(VISITOR)

        def none_left():
            turns = client.request("GET", "/v1/turns?limit=100")
            left = [t["id"] for t in turns.json["data"] if t["status"] not in TERMINAL] \
                if turns.status == 200 else ["not told"]
            for turn in left:
                client.cancel(turn)
            return not left

        try:
            eventually(none_left, 30, "the end of what the visitor began", 0.2)
        except (OSError, http.client.HTTPException, AssertionError) as problem:
            self.ledger.wrong(f"the visitor: {problem}")

    def write_off(self):
        """What its client has lost sight of was told of, and may not spoil the rounds to come."""
        for account in self.ledger.accounts.values():
            for turn in [t for t in account.turns.values() if not t.result]:
                self.unit.client(account.tenant).cancel(turn.id)
                account.written_off.add(turn.id)
                del account.turns[turn.id]

    def round(self, number, kind, variant):
        chance = random.Random(f"{self.seed} round {number}")
        fault = self.fault = kind(self, variant, chance)
        self.round_began = time.monotonic()
        known, starts = self.ledger.accepted, self.unit.starts
        self.load.go_on()
        time.sleep(chance.uniform(0.3, 1.5))
        self.checker.marks_of_unfinished_work()
        self.unit.may_end = fault.may_end
        began = time.monotonic()
        self.ledger.interruptions.append((began, float("inf")))
        try:
            fault.begin()
            time.sleep(fault.hold)
        except (OSError, AssertionError) as problem:
            self.ledger.wrong(f"the fault itself: {type(problem).__name__}: {problem}")
        finally:
            fault.end()
        back = self.ready_again()
        time.sleep(chance.uniform(0.2, 0.8))
        self.ledger.interruptions[-1] = (began, time.monotonic())
        wrongs = self.settle()
        if unfelt := fault.unfelt():
            wrongs.append(f"the fault itself: {unfelt}")
        self.unit.may_end = False
        fresh = self.ledger.accepted - known
        restarted = ", restarted" if self.unit.starts > starts else ""
        restarted += ", too slow a machine" if self.slow else ""
        print(f"round {number:3}: {str(fault)[:58]:58} {fault.hold:4.1f} s, ready after "
              f"{back:4.1f} s, {fresh:3} turns, {time.monotonic() - self.round_began:4.0f} s"
              f"{restarted} ... {'FAILED' if wrongs else 'ok'}", flush=True)
        self.tell(f"round {number}", wrongs)
        return not wrongs

    def ready_again(self, seconds=READY_SECONDS):
        """After how many seconds it was."""
        try:
            return self.unit.wait_back(seconds)
        except AssertionError as problem:
            self.ledger.wrong(f"{problem}\n{self.unit.tail()}")
            return seconds

    def tell(self, when, wrongs):
        """The first few here, all of them in the report."""
        for wrong in wrongs[:WRONGS_SHOWN]:
            print(f"    {wrong[:400]}", flush=True)
        if len(wrongs) > WRONGS_SHOWN:
            print(f"    and {len(wrongs) - WRONGS_SHOWN} more, see {self.report}", flush=True)
        with open(self.report, "a", encoding="utf-8") as f:
            f.writelines(f"{when}: {wrong}\n" for wrong in wrongs)
            if wrongs:
                f.write(f"--- the daemon's log\n{self.unit.tail(200)}\n---\n")

    def close(self):
        self.load.close()
        self.reloads.close()
        for watcher in self.watchers:
            watcher.close()
        self.unit.close()
        self.clerk.close()


def options():
    parser = argparse.ArgumentParser(description="see the head of integration/chaos/run.py")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", default="", help="faults whose name matches this pattern")
    parser.add_argument("--sabotage", action="store_true", help="show that the checker notices")
    return parser.parse_args()


def build(stack, seed):
    cgroup = House.enter()
    if cgroup:
        stack.callback(cgroup.leave)
    else:
        print("cgroups are not looked at: this machine lets nobody make them", flush=True)
    world = World()
    stack.callback(world.close)
    world.open()
    chaos = Chaos(world, seed, cgroup)
    stack.callback(chaos.close)
    stack.callback(lambda: print(f"refused meanwhile: {chaos.ledger.refusals}"))
    return chaos


def main():
    chosen = options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536), hard))
    rounds = 0 if chosen.sabotage else chosen.rounds
    plan = faults.draw(random.Random(chosen.seed), rounds, chosen.only)
    print(f"seed {chosen.seed}, {len(plan)} rounds", flush=True)
    passed = failed = 0
    with contextlib.ExitStack() as stack:  # all of it goes, even where nobody reads on
        try:
            chaos = build(stack, chosen.seed)
            failed += not chaos.calm()
            if chosen.sabotage:
                passed, missed = sabotage.prove(chaos)
                failed += missed
            for number, (kind, variant) in enumerate(plan, 1):
                ok = chaos.round(number, kind, variant)
                passed, failed = passed + ok, failed + (not ok)
        except BaseException:
            failed += 1
            traceback.print_exc()
    print(f"seed {chosen.seed}")
    print(f"{passed} passed, {failed} failed")
    return 0 if not failed else 1


if __name__ == "__main__":
    sys.exit(main())
