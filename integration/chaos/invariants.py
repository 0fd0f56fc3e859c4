"""What must hold when all is quiet again, whatever was broken before.

Each check returns what it found wrong. They look at the store, the process table, namespaces,
mounts, packet rules, descriptors, files and memory from outside, and at turns as clients do.
"""

import collections
import itertools
import os
import re
import time

import rules
from client import TERMINAL
from world import PATIENCE, descendants, eventually, output_of

MEMORY_KIB = {"server": 96 << 10, "launcher": 24 << 10}  # more than at the start
SLACK = 4  # descriptors
# Of each kind, what one sandbox has: its router's, its own, and gVisor's for its processes.
NAMESPACES = {"net": 3, "mnt": 4, "user": 4, "pid": 2, "ipc": 3, "uts": 3, "cgroup": 1}
RUNTIME_FILES = 40  # of a tenant's sandbox that runs
LEAK_SECONDS = 10  # what is still there then stays: sandboxes come and go while this looks


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def links(pid, folder):
    found = []
    try:
        for name in os.listdir(f"/proc/{pid}/{folder}"):
            found.append(os.readlink(f"/proc/{pid}/{folder}/{name}"))
    except OSError:
        pass
    return found


class Checker:
    def __init__(self, chaos):
        self.chaos, self.unit, self.ledger = chaos, chaos.unit, chaos.ledger
        # The harness has a mount namespace of its own, see scripts/check-chaos.
        self.mounts = read("/proc/self/mountinfo").splitlines()
        self.devices = links_of_network()
        self.base = {}
        self.leak_seconds = LEAK_SECONDS  # 0: the first look counts

    def check(self):
        """Everything; what is wrong."""
        found = []
        for check in (self.turns, self.store, self.effects, self.streams, self.memory, self.log):
            found += attempt(check)
        for check in (self.processes, self.namespaces, self.cgroups, self.host, self.packet_rules,
                      self.descriptors, self.files):
            found += self.lasting(check)
        return found

    def lasting(self, check):
        """What a check of leaks finds every time. It is no snapshot, and has to be right once."""
        deadline = time.monotonic() + self.leak_seconds * PATIENCE
        while (found := attempt(check)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    # -- what was accepted

    def turns(self):
        """Each turn is what its client was told, and its history says what happened."""
        found = []
        for account in self.ledger.accounts.values():
            for turn in list(account.turns.values()):
                if turn.result and not turn.answers:
                    found += attempt(self.judge_turn, account.tenant, turn)
            gone, account.gone = account.gone, []
            for turn in gone:
                found += attempt(self.judge_gone, account, turn)
        return found

    def judge_turn(self, tenant, turn):
        items = items_of(self.unit.client(tenant), turn)
        results = {i["callId"]: i["output"] for i in items if i["kind"] == "tool_result"}
        calls = [i for i in items if i["kind"] == "tool_call"]
        turn.answers = results or {"": ""}
        codes, words = self.chaos.excuses(tenant, turn)
        found = []
        # Calls that never got a result are not among the items of a turn that did not complete.
        if turn.status == "completed":
            found += self.judge_completed(turn, items, calls, results, words)
        return found + judge_end(turn, codes) + self.judge_asked(turn, self.answers(turn, calls))

    def judge_gone(self, account, turn):
        """The same of what can be known of a turn without its history."""
        codes, _ = self.chaos.excuses(account.tenant, turn)
        found = judge_end(turn, codes)
        if turn.status == "completed":
            found += self.judge_asked(turn, len(turn.plan["calls"]) + 1)
            wanted = [c for answer in turn.plan["calls"] for c in answer]
            tools = turn.result["output"]["tools"]
            if len(tools) != len(wanted):
                found.append(f"{turn}: {len(wanted)} calls wanted, {len(tools)} results")
            for call, tool in zip(wanted, tools):
                if tool["details"] and tool["details"].get("exitCode") == 0:
                    account.done |= set(MARK.findall(str(call)))
        return found

    def judge_asked(self, turn, answers):
        try:
            self.chaos.clerk.judge(turn.plan["mark"], answers, turn.asked, turn.ended)
        except AssertionError as problem:
            return [str(problem)]
        return []

    @staticmethod
    def answers(turn, calls):
        """How many answers of the model are certain to have been asked for."""
        if turn.status == "completed":
            return len(turn.plan["calls"]) + 1
        before = itertools.accumulate(len(batch) for batch in turn.plan["calls"])
        return bool(calls) + sum(1 for n in before if n < len(calls))

    @staticmethod
    def judge_completed(turn, items, calls, results, words):
        found = []
        if [i["seq"] for i in items] != list(range(len(items))):
            found.append(f"{turn}: a gap in its history: {items}")
        wanted = [c for answer in turn.plan["calls"] for c in answer]
        if len(calls) != len(wanted) or {c["callId"] for c in calls} != set(results):
            found.append(f"{turn}: {len(wanted)} calls wanted, {len(calls)} made, "
                         f"{len(results)} results")
        if items[-1]["kind"] != "assistant" or items[-1]["text"] != f"told {turn.plan['mark']}":
            found.append(f"{turn}: it ends with {items[-1]}")
        if turn.kind == "question" and "decision" in turn.plan and \
                turn.plan["decision"] not in list(results.values()):
            found.append(f"{turn}: answered {turn.plan['decision']}, told {results}")
        for call, said in zip(calls, turn.says()):
            result = results.get(call["callId"], "")
            if not as_said(said, result) and not any(word in result for word in words):
                found.append(f"{turn}: {call['callId']} says {result[-200:]!r}, and not {said!r}")
        return found

    def store(self):
        """The control database and each tenant's, as the owner reads them."""
        found = []
        for account in self.ledger.accounts.values():
            database = self.unit.database(account.tenant)
            rows = dict(self.unit.ask(database, "SELECT id, state FROM app.turn"))
            for turn in account.turns.values():
                state = rows.pop(turn.id, None)
                if state != turn.status or state is None:
                    found.append(f"{turn} is {state or 'not'} in the store")
            found += [f"{account.tenant} has turn {t} ({s}), which nobody was told of"
                      for t, s in rows.items() if t not in account.written_off]
            account.written_off |= set(rows)
            found += self.strangers(account, database)
            found += [f"{account.tenant}: {row}" for row in self.unit.ask(database, """
                SELECT 'item without call', turn, seq FROM app.item i WHERE kind = 'tool_result'
                    AND NOT EXISTS (SELECT FROM app.item c WHERE c.turn = i.turn
                        AND c.seq = i.answers AND c.call_state = 'done')
                UNION ALL SELECT 'open request', turn, 0 FROM app.request WHERE state = 'open'
                UNION ALL SELECT 'unfinished turn', id, 0 FROM app.turn
                    WHERE state NOT IN ('completed', 'failed', 'cancelled')""")]
        idle = self.unit.ask("cloister", "SELECT pid, datname, now() - xact_start FROM "
                             "pg_stat_activity WHERE state LIKE 'idle in transaction%'")
        return found + [f"a transaction is open: {row}" for row in idle]

    def strangers(self, account, database):
        """What is of another tenant in this one's database or workspace."""
        found = []
        for other in self.ledger.accounts.values():
            if other is not account:
                row = self.unit.ask(database, f"""SELECT
                    (SELECT count(*) FROM app.session WHERE title LIKE '%{other.canary}%'),
                    (SELECT count(*) FROM app.turn WHERE position('{other.canary}' IN input) > 0),
                    (SELECT count(*) FROM app.item WHERE position('{other.canary}' IN body) > 0)""")
                if row != [["0"] * 3]:
                    found.append(f"{account.tenant} has sessions, turns, items of "
                                 f"{other.tenant}: {row}")
                if other.canary in workspace_text(self.unit.tenants[account.tenant].workspace):
                    found.append(f"{account.tenant} has files of {other.tenant}")
        return found

    def marks_of_unfinished_work(self):
        """While work goes on: a tenant with an unfinished turn is marked. (One without may be.)"""
        for account in self.ledger.accounts.values():
            tenant, database = self.unit.tenants[account.tenant], self.unit.database(account.tenant)
            before = self.unit.ask(database, UNFINISHED)
            marked = self.unit.ask("cloister", "SELECT unfinished FROM control.tenant WHERE id = "
                                   f"'{tenant.id}'")
            after = self.unit.ask(database, UNFINISHED)
            for turn in before:
                if turn in after and marked != [["t"]]:
                    self.ledger.wrong(f"{account.tenant} has the unfinished turn {turn} and no mark")

    def effects(self):
        """Each command ran at most once, and exactly once when its result says so."""
        found = []
        for account in self.ledger.accounts.values():
            path = f"{self.unit.tenants[account.tenant].workspace}/effects"
            lines = read(path).split() if os.path.exists(path) else []
            times = collections.Counter(lines)
            for turn in account.turns.values():
                for mark in marks(turn):
                    done = f"done {mark}\n" in turn.answers.values()
                    if done and times[mark] != 1:
                        found.append(f"{turn}: {mark} ran {times[mark]} times, and is told as done")
            found += [f"{account.tenant}: {mark} ran {times[mark]} times, and was told as done"
                      for mark in account.done if times[mark] != 1]
            # Of any turn: also of those that were deleted, or that nobody was told of.
            found += [f"{account.tenant}: {mark} ran {number} times"
                      for mark, number in times.items() if number > 1]
        return found

    def streams(self):
        found = []
        for watcher in self.chaos.watchers:
            turns = [t for t in watcher.account.turns.values()
                     if t.result and t.ended > self.chaos.round_began]
            try:
                eventually(lambda w=watcher, ts=turns: not w.lacks(ts), self.leak_seconds,
                           "all events")
            except AssertionError:
                found += [f"a stream of {watcher.account.tenant} did not tell {what}"
                          for what in watcher.lacks(turns)]
            for turn in turns:
                told = watcher.ends.get(turn.id)
                if told not in (None, f"turn.{turn.status}"):
                    found.append(f"{turn}: a stream told of {told}")
        for account in self.ledger.accounts.values():
            told, account.told = account.told, {}
            for (number, call), output in told.items():
                turn = account.turns.get(number)
                if turn and turn.result and turn.answers.get(call) != output:
                    found.append(f"{turn}: a stream told of {output!r}, its history of "
                                 f"{turn.answers.get(call)!r}")
        return found

    # -- what is left

    def processes(self):
        found = []
        for process in self.unit.orphans():
            found.append(f"belongs to nobody: {process}")
        tree = self.unit.tree()
        kinds = collections.Counter(p.name for p in tree if p.name != "postgres")
        runners = [p for p in tree if p.name == "cloister-runner" and p.parent ==
                   self.unit.main_pid()]
        of = collections.Counter(next(a for a in p.arguments() if UUID.match(a)) for p in runners)
        found += [f"{n} runners of {tenant}" for tenant, n in of.items() if n > 1]
        for name, number in (("cloisterd", 3), ("slirp4netns", len(runners))):
            if kinds[name] != number:
                found.append(f"{kinds[name]} processes {name}, not {number}: {tree}")
        for process in tree:
            zombies = [pid for pid in children_of(process.pid) if state_of(pid) == "Z"]
            if zombies and process.name in ("cloisterd", "cloister-runner"):
                found.append(f"zombies of {process}: {zombies}")
        return found

    def namespaces(self):
        """Those that are not ours belong to sandboxes that run, and nobody else holds any."""
        own = {name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}
        tree = self.unit.tree()
        runners = [p.pid for p in tree if p.name == "cloister-runner" and
                   p.parent == self.unit.main_pid()]
        cells = {p.pid for runner in runners for p in descendants(runner)} | set(runners)
        found, seen = [], collections.defaultdict(set)
        for process in tree + self.unit.orphans():
            held = links(process.pid, "ns") + links(process.pid, "fd")
            foreign = {k for k in held if k.split(":")[0] in own and k != own[k.split(":")[0]]}
            if foreign and process.pid not in cells:
                found.append(f"namespaces {foreign} are held by {process}")
            for link in foreign:
                seen[link.split(":")[0]].add(link)
        return found + [f"{len(s)} namespaces {name} of {len(runners)} sandboxes: {s}"
                        for name, s in seen.items() if len(s) > NAMESPACES[name] * len(runners)]

    def cgroups(self):
        """All of it is in the cgroup of this run, and none was made below."""
        house = self.unit.cgroup
        if not house:
            return []
        found = [f"a cgroup more: {top}/{d}" for top, dirs, _ in os.walk(house.path) for d in dirs]
        for process in self.unit.tree():
            where = house.of(process.pid)
            if where not in (None, house.name):
                found.append(f"in the cgroup {where}: {process}")
        return found

    def host(self):
        """Mounts of the machine, rules and devices of its network: as they were."""
        found = []
        mounts = read("/proc/self/mountinfo").splitlines()
        # One less is somebody else's: what is mounted on a file goes with it everywhere.
        for line in set(mounts) - set(self.mounts):
            found.append(f"a mount more: {line}")
        for name in ("launcher", "server"):
            number = len(self.unit.named(name)[0].read("mountinfo").splitlines())
            if number > len(self.mounts) + 1:
                found.append(f"the {name} sees {number} mounts")
        text = output_of("nft", "list", "tables")
        if text:
            found.append(f"packet rules on the host: {text}")
        more = links_of_network() - self.devices
        return found + [f"devices of the host: {more}"] * bool(more)

    def packet_rules(self):
        """Every sandbox that runs has its policy, on the forward hook."""
        found = []
        for tenant in self.ledger.accounts:
            if self.unit.running(tenant):
                found += attempt(self.policy, tenant)
        return found

    def policy(self, tenant):
        chains = [row["chain"] for row in rules.nft(self.unit, tenant, "list", "chains")
                  if "chain" in row]
        if not [c for c in chains if c.get("hook") == "forward" and c["policy"] == "drop"]:
            return [f"the sandbox of {tenant} has no policy: {chains}"]
        return []

    def descriptors(self):
        """What server, launcher and courier hold beside what is known to be open."""
        now = {}
        for name in ("server", "launcher", "keeper", "courier"):
            process = self.unit.named(name)
            if process:
                now[name] = len(links(process[0].pid, "fd"))
        sandboxes = sum(self.unit.running(t) for t in self.unit.tenants)
        now["server"] -= len(self.unit.backends("[local]")) + 2 * sandboxes + \
            sum(w.connected for w in self.chaos.watchers)
        now["launcher"] -= 2 * sandboxes
        now["files"] = sum(1 for link in links(self.unit.named("server")[0].pid, "fd")
                           if "(deleted)" in link)
        base = self.base.setdefault("descriptors", now)
        return [f"{name} has {number} descriptors, and had {base.get(name, 0)}"
                for name, number in now.items() if number > base.get(name, 0) + SLACK]

    def memory(self):
        now = {}
        for name in MEMORY_KIB:
            now[name] = int(self.unit.named(name)[0].status("VmRSS").split()[0])
        base = self.base.setdefault("memory", now)
        return [f"{name} has {kib} KiB, and had {base[name]}" for name, kib in now.items()
                if kib > base[name] + MEMORY_KIB[name]]

    def files(self):
        """The state directory: what is known, and runtime files of sandboxes that run."""
        found = []
        top = set(os.listdir(self.unit.state)) - {"pg", "control", "reserve", "tenants"}
        if top:
            found.append(f"in the state directory: {top}")
        for tenant in self.unit.tenants.values():
            run = f"{self.unit.state}/tenants/{tenant.id}/run"
            number = sum(len(d) + len(f) for _, d, f in os.walk(run))
            if number > RUNTIME_FILES:
                found.append(f"{number} files in {run}: {list(os.walk(run))[:3]}")
        return found

    def log(self):
        """Words of a program that is at its end."""
        text = self.unit.log()[self.chaos.log_seen:]
        self.chaos.log_seen += len(text)
        return [line for line in text.splitlines() if BAD.search(line)]


UNFINISHED = "SELECT id FROM app.turn WHERE state IN ('queued', 'running', 'waiting_for_input')"
UUID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-")
MARK = re.compile(r"echo ([0-9a-f]{32}) >>effects")
BAD = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|assert|corrupt|double free|"
                 r"stack smashing|PANIC|invariant", re.IGNORECASE)


def attempt(check, *arguments):
    try:
        return check(*arguments) or []
    except Exception as problem:
        return [f"{check.__name__}{arguments}: {type(problem).__name__}: {problem}"]


def links_of_network():
    return {line.split(": ")[1] for line in output_of("ip", "-o", "link").splitlines()}


def workspace_text(folder):
    """Names and contents of all files: nothing in there is large."""
    return "".join(f"{path}\n{read(path)}" for top, _, names in os.walk(folder)
                   for path in (f"{top}/{name}" for name in names))


def as_said(said, result):
    """What nothing is said of may say anything, but that it went wrong."""
    return said in result if said else not result.startswith("error: ")


def judge_end(turn, codes):
    found = []
    if turn.status == "failed" and turn.code not in codes:
        found.append(f"{turn} failed: {turn.result['turn']['error']}")
    elif turn.status == "cancelled" and turn.kind != "cancelled":
        found.append(f"{turn} was cancelled by nobody")
    if turn.plan.get("status", turn.status) != turn.status:
        found.append(f"{turn} was told to be {turn.plan['status']}")
    return found


def marks(turn):
    return MARK.findall(str(turn.plan["calls"]))


def items_of(client, turn):
    page = client.call("GET", f"/v1/sessions/{turn.session}/history?limit=100")
    found = [e["turn"] for e in page["data"] if e["turn"]["id"] == turn.id]
    assert len(found) == 1, f"{turn} is not in the history of its session"
    assert found[0]["status"] in TERMINAL and found[0]["status"] == turn.status
    return found[0]["items"]


def children_of(pid):
    try:
        return [int(c) for t in os.listdir(f"/proc/{pid}/task")
                for c in read(f"/proc/{pid}/task/{t}/children").split()]
    except OSError:
        return []


def state_of(pid):
    try:
        return read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[0]
    except OSError:
        return None
