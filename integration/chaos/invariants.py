"""What must hold when all is quiet again, whatever was broken before.

Each check returns what it found wrong. They look at the store, the process table, namespaces,
mounts, packet rules, descriptors, files and memory from outside, and at turns as clients do.
"""

import collections
import os
import re

import rules
from client import TERMINAL
from world import eventually

MEMORY_KIB = {"server": 96 << 10, "launcher": 24 << 10}  # more than at the start
SLACK = 4  # descriptors
NAMESPACES = ("net", "mnt", "user", "pid", "ipc", "uts", "cgroup")
RUNTIME_FILES = 40  # of a tenant's sandbox that runs
SANDBOX = {"runner": 1, "slirp4netns": 1, "sentry": 1, "gofer": 1}


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
        self.base = None

    def check(self):
        """Everything; what is wrong."""
        found = []
        for check in (self.turns, self.store, self.effects, self.streams, self.processes,
                      self.namespaces, self.host, self.packet_rules, self.descriptors,
                      self.memory, self.files, self.log):
            try:
                found += check() or []
            except Exception as problem:
                found.append(f"{check.__name__}: {type(problem).__name__}: {problem}")
        return found

    # -- what was accepted

    def turns(self):
        """Each turn is what its client was told, and its history says what happened."""
        found = []
        for account in self.ledger.accounts.values():
            client = self.unit.client(account.tenant)
            for turn in list(account.turns.values()):
                if turn.result and not turn.answers:
                    found += self.judge_turn(client, account, turn)
        return found

    def judge_turn(self, client, account, turn):
        items = items_of(client, turn)
        results = {i["callId"]: i["output"] for i in items if i["kind"] == "tool_result"}
        calls = [i for i in items if i["kind"] == "tool_call"]
        turn.answers = results or {"": ""}
        found = []
        # Calls that never got a result are not among the items of a turn that did not complete.
        if turn.status == "completed":
            found += self.judge_completed(turn, items, calls, results)
        elif turn.status == "failed" and turn.code not in self.chaos.allowed():
            found.append(f"{turn} failed: {turn.result['turn']['error']}")
        elif turn.status == "cancelled" and turn.kind != "cancelled":
            found.append(f"{turn} was cancelled by nobody")
        if turn.plan.get("status", turn.status) != turn.status:
            found.append(f"{turn} was told to be {turn.plan['status']}")
        for (told, call), output in list(account.told.items()):
            if told == turn.id:
                del account.told[told, call]
                if results.get(call) != output:
                    found.append(f"{turn}: a stream told of {output!r}, its history of "
                                 f"{results.get(call)!r}")
        try:
            self.chaos.clerk.judge(turn.plan["mark"], self.answers(turn, calls),
                                   turn.asked, turn.ended)
        except AssertionError as problem:
            found.append(str(problem))
        return found

    @staticmethod
    def answers(turn, calls):
        """How many answers of the model are certain to have been asked for."""
        if turn.status == "completed":
            return len(turn.plan["calls"]) + 1
        return len({c["callId"].rpartition("_")[0] for c in calls})

    def judge_completed(self, turn, items, calls, results):
        found = []
        if [i["seq"] for i in items] != list(range(len(items))):
            found.append(f"{turn}: a gap in its history: {items}")
        wanted = [c for answer in turn.plan["calls"] for c in answer]
        if len(calls) != len(wanted) or {c["callId"] for c in calls} != set(results):
            found.append(f"{turn}: {len(wanted)} calls wanted, {len(calls)} made, "
                         f"{len(results)} results")
        if items[-1]["kind"] != "assistant" or items[-1]["text"] != f"told {turn.plan['mark']}":
            found.append(f"{turn}: it ends with {items[-1]}")
        if turn.kind == "files" and turn.plan["text"].strip() not in "".join(results.values()) and \
                not any(broken(r) for r in results.values()):
            found.append(f"{turn}: its file is not what was written: {results}")
        if turn.kind == "question" and "decision" in turn.plan and \
                turn.plan["decision"] not in list(results.values()):
            found.append(f"{turn}: answered {turn.plan['decision']}, told {results}")
        return found

    def store(self):
        """The control database and each tenant's, as the owner reads them."""
        found = []
        for account in self.ledger.accounts.values():
            database = self.unit.database(account.tenant)
            rows = dict(self.unit.ask(database, "SELECT id, state FROM app.turn"))
            for turn in account.turns.values():
                if rows.pop(turn.id, None) != turn.status:
                    found.append(f"{turn} is {rows.get(turn.id)} in the store")
            found += [f"{account.tenant} has turn {t} ({s}), which nobody was told of"
                      for t, s in rows.items()]
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
                    if times[mark] > 1 or (done and times[mark] != 1):
                        found.append(f"{turn}: {mark} ran {times[mark]} times"
                                     f"{', and is told as done' if done else ''}")
                    if turn.status == "completed" and turn.kind == "commands" and not done and \
                            not self.broken_mark(turn, mark):
                        found.append(f"{turn}: {mark} was not done: {turn.answers}")
        return found

    def broken_mark(self, turn, mark):
        del mark
        return self.chaos.disturbed(turn) and any(broken(r) for r in turn.answers.values())

    def streams(self):
        found = []
        for watcher in self.chaos.watchers:
            turns = [t for t in watcher.account.turns.values()
                     if t.ended > self.chaos.round_began]
            try:
                eventually(lambda w=watcher, ts=turns: not w.lacks(ts), 10, "all events")
            except AssertionError:
                found.append(f"a stream of {watcher.account.tenant} was not told of the end of "
                             f"{watcher.lacks(turns)}")
            for turn in turns:
                told = watcher.ends.get(turn.id)
                if told not in (None, f"turn.{turn.status}"):
                    found.append(f"{turn}: a stream told of {told}")
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
        zombies = [pid for pid in children_of(self.unit.main_pid()) if state_of(pid) == "Z"]
        if zombies:
            found.append(f"zombies of the launcher: {zombies}")
        return found

    def namespaces(self):
        """Those that are not ours belong to sandboxes that run: two or three sets each."""
        own = {name: os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES}
        runners = sum(1 for p in self.unit.tree() if p.name == "cloister-runner" and
                      p.parent == self.unit.main_pid())
        seen = collections.defaultdict(set)
        for process in self.unit.tree():
            for name in NAMESPACES:
                try:
                    link = os.readlink(f"/proc/{process.pid}/ns/{name}")
                except OSError:
                    continue
                if link != own[name]:
                    seen[name].add(link)
            for link in links(process.pid, "fd"):
                kind = link.split(":")[0]
                if kind in NAMESPACES and link != own[kind]:
                    seen[kind].add(link)
        return [f"{len(s)} namespaces {name} of {runners} sandboxes: {s}"
                for name, s in seen.items() if len(s) > 4 * runners]

    def host(self):
        """Mounts of the machine, rules and devices of its network: as they were."""
        found = []
        mounts = read("/proc/self/mountinfo").splitlines()
        # One less is somebody else's: what is mounted on a file goes with it everywhere.
        for line in set(mounts) - set(self.mounts):
            found.append(f"a mount more: {line}")
        for what, name in ((("launcher"), "launcher"), (("server"), "server")):
            process = self.unit.named(name)[0]
            number = len(process.read("mountinfo").splitlines())
            if number > len(self.mounts) + 1:
                found.append(f"the {what} sees {number} mounts")
        _, text, _ = self.unit_free("nft", "list", "tables")
        if text:
            found.append(f"packet rules on the host: {text}")
        devices = sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else []
        more = [d for d in devices if re.match(r"tap|tun", d)]
        return found + [f"devices of the host: {more}"] * bool(more)

    def unit_free(self, *command):
        import subprocess
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    def packet_rules(self):
        """Every sandbox that runs has its policy, on the forward hook."""
        found = []
        for tenant in self.ledger.accounts:
            if not self.unit.running(tenant):
                continue
            chains = [row["chain"] for row in rules.nft(self.unit, tenant, "list", "chains")
                      if "chain" in row]
            if not [c for c in chains if c.get("hook") == "forward" and c["policy"] == "drop"]:
                found.append(f"the sandbox of {tenant} has no policy: {chains}")
        return found

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
        self.base = self.base or {}
        base = self.base.setdefault("descriptors", now)
        return [f"{name} has {number} descriptors, and had {base.get(name, 0)}"
                for name, number in now.items() if number > base.get(name, 0) + SLACK]

    def memory(self):
        now = {}
        for name in MEMORY_KIB:
            now[name] = int(self.unit.named(name)[0].status("VmRSS").split()[0])
        self.base = self.base or {}
        base = self.base.setdefault("memory", now)
        self.chaos.note_memory(now)
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
BAD = re.compile(r"AddressSanitizer|LeakSanitizer|runtime error:|assert|corrupt|double free|"
                 r"stack smashing|PANIC|invariant", re.IGNORECASE)


def broken(result):
    return result.startswith("error: ") or "[lost: " in result or "[ended" in result or \
        "disk_full" in result or "[" in result


def marks(turn):
    return re.findall(r"echo ([0-9a-f]{32}) >>effects", str(turn.plan["calls"]))


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
