"""Shows that the checker notices: what may never be is made to be, and has to be named.

  scripts/check-chaos --sabotage BUILD_DIR

All of it is done at once, to a daemon that runs, and most of it for real. A line tells of each
whether the checker named it; when it is undone the checker has to be content again.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import uuid

import rules
from chaos import invariants
from chaos.load import Commands, call, shell
from chaos.watcher import Watcher
from daemon import AS_SERVICE, ENVIRONMENT
from provider.server import Say
from world import eventually, output_of

NOT_NAMED = "NOT NAMED"


def judged_session(account):
    """The session of a turn that the checker has judged, or None."""
    return next((t.session for t in account.turns.values() if t.answers), None)


def fresh_turns(account):
    """Turns of one command or more that the checker has not judged yet, and that are not in the
    session that LostTurns takes away."""
    return [t for t in list(account.turns.values()) if t.kind == "commands" and not t.answers and
            t.status == "completed" and t.session != judged_session(account)]


class Sabotage:
    """before() is called while nothing is under way, and then work begins; after() when that
    has ended, and then the checker looks. named is what it has to say."""

    def __init__(self, chaos):
        self.chaos, self.unit, self.ledger = chaos, chaos.unit, chaos.ledger
        self.acme, self.globex = (chaos.ledger.accounts[n] for n in ("acme", "globex"))
        self.client = self.unit.client("acme")  # of which the ledger knows nothing

    @staticmethod
    def possible(chaos):
        return True

    def before(self):
        pass

    def after(self):
        pass

    def undo(self):
        pass

    def fresh(self):
        return fresh_turns(self.acme)[0]


# --- what was accepted -------------------------------------------------------------------


class Effects(Sabotage):
    def after(self):
        self.path = f"{self.unit.tenants[self.tenant].workspace}/effects"
        with open(self.path, "r+", encoding="utf-8") as f:
            self.was = f.read()
            f.seek(0)
            f.truncate()
            f.write(self.change(self.was))

    def undo(self):
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(self.was)


class DoubledCommand(Effects):
    tenant, named = "acme", r"ran 2 times, and is told as done"

    def change(self, text):
        return text + re.search(r"echo ([0-9a-f]{32}) >>", str(self.fresh().plan))[1] + "\n"


class DoubledUnknown(Effects):
    """Of a turn that nobody knows any more, as its session was deleted."""

    tenant, named = "acme", r"acme: f{32} ran 2 times"

    def change(self, text):
        return text + 2 * f"{'f' * 32}\n"


class LostEffects(Effects):
    tenant, named = "globex", r"ran 0 times, and is told as done"

    def change(self, text):
        return ""


class LostOfGone(Sabotage):
    """A command of a turn that was deleted, and that was told to have been done."""

    named = r"acme: e{32} ran 0 times, and was told as done"

    def after(self):
        self.acme.done.add("e" * 32)

    def undo(self):
        self.acme.done.discard("e" * 32)


class LostTurns(Sabotage):
    """Accepted and done, and then deleted by nobody that the ledger knows of."""

    named = r"turn \S+ \(.*\) is not in the store"

    def after(self):
        self.session = judged_session(self.acme)
        self.client.call("DELETE", f"/v1/sessions/{self.session}", status=204)

    def undo(self):
        for turn in list(self.acme.turns.values()):
            if turn.session == self.session:
                del self.acme.turns[turn.id]


class AnotherEnd(Sabotage):
    """The store says of a turn what its client was not told."""

    named = r"turn \S+ \(commands, failed \) is completed in the store"

    def after(self):
        self.turn = next(t for t in self.globex.turns.values() if t.answers and
                         t.kind == "commands" and t.status == "completed")
        self.turn.status = "failed"

    def undo(self):
        self.turn.status = "completed"


class UnknownTurn(Sabotage):
    """One that nobody asked for, as a second one for one request would be; it never ends."""

    named = r"acme has turn \S+ \(waiting_for_input\), which nobody was told of"

    def after(self):
        self.session = self.client.session()
        plan = json.dumps({"mark": uuid.uuid4().hex, "calls": [[call("ask_user", question="?")]]})
        self.turn = self.client.start(self.session, f"PLAN {plan}")
        self.client.wait_for(self.turn, "waiting_for_input")

    def undo(self):
        self.client.cancel(self.turn)
        self.client.call("DELETE", f"/v1/sessions/{self.session}", status=204)


class UnfinishedTurn(Sabotage):
    """The same, as who looks for what is stuck sees it."""

    named = r"acme: \['unfinished turn', '\S+', '0'\]"


class OpenRequest(Sabotage):
    named = r"acme: \['open request', '\S+', '0'\]"


class AskedTwice(Sabotage):
    """As if the model had been asked once more than there was reason for."""

    named = r"the model was asked 2 times for answer 0, while something broke 0 times"

    def after(self):
        self.chaos.clerk.asked[self.fresh().plan["mark"], 0] *= 2


class WrongResult(Sabotage):
    """A command's result is not what the command wrote."""

    named = r"says 'done \w+\\n', and not 'something else'"

    def after(self):
        turn = fresh_turns(self.globex)[0]
        turn.plan["calls"][0][0]["says"] = "something else"


class OwnTurn(Sabotage):
    """A turn of globex's that the ledger knows, and that comes to no good end."""

    calls = ((shell("true"),),)

    def after(self):
        program = Commands(self.chaos.load, "globex", 0)
        self.session = program.session()
        self.turn = program.start(self.session, "commands", {"calls": self.calls})
        self.spoil()
        program.finish(self.turn)

    def undo(self):
        self.unit.client("globex").call("DELETE", f"/v1/sessions/{self.session}", status=204)
        self.globex.sessions.discard(self.session)
        del self.globex.turns[self.turn.id]


class CancelledByNobody(OwnTurn):
    named = r"turn \S+ \(commands, cancelled \) was cancelled by nobody"
    calls = ((shell("sleep 600"),),)

    def spoil(self):
        self.unit.client("globex").cancel(self.turn.id)


class WrongCode(OwnTurn):
    """It fails, and nothing was broken that it may fail for."""

    named = r"turn \S+ \(commands, failed model_failed\) failed: "

    def after(self):
        self.chaos.clerk.mood = Say(400, {"error": {"message": "no"}})
        super().after()

    def spoil(self):
        eventually(lambda: self.unit.client("globex").turn(self.turn.id)["status"] == "failed", 20,
                   "the end of a turn")
        self.chaos.clerk.mood = None

    def undo(self):
        self.chaos.clerk.mood = None
        super().undo()


class ItemWithoutCall(Sabotage):
    """A result of a call that is not done. (A gap in a history the schema itself refuses.)"""

    named = r"globex: \['item without call', '\S+', '\d+'\]"

    def after(self):
        self.turn = fresh_turns(self.globex)[1]
        self.change("started")

    def undo(self):
        self.change("done")

    def change(self, state):
        self.unit.ask(self.unit.database("globex"), f"UPDATE app.item SET call_state = '{state}' "
                      f"WHERE turn = '{self.turn.id}' AND kind = 'tool_call'")


class NoMark(Sabotage):
    """A tenant with a turn that waits, and none that looks for it after a restart."""

    named = r"acme has the unfinished turn \['\S+'\] and no mark"

    def after(self):
        session = self.client.session()
        plan = json.dumps({"mark": uuid.uuid4().hex, "calls": [[call("ask_user", question="?")]]})
        turn = self.client.start(session, f"PLAN {plan}")
        self.client.wait_for(turn, "waiting_for_input")
        self.mark("false")
        try:
            self.chaos.checker.marks_of_unfinished_work()
        finally:
            self.mark("true")
        self.client.cancel(turn)
        self.client.call("DELETE", f"/v1/sessions/{session}", status=204)

    def mark(self, value):
        self.unit.ask("cloister", f"UPDATE control.tenant SET unfinished = {value} WHERE id = "
                      f"'{self.unit.tenants['acme'].id}'")


class NotReady(Sabotage):
    named = r"not within 1 s: ready again"

    def after(self):
        server = self.unit.named("server")[0]
        server.kill(signal.SIGSTOP)
        try:
            self.chaos.ready_again(1)
        finally:
            server.kill(signal.SIGCONT)
        self.unit.wait_back()


class OpenTransaction(Sabotage):
    named = r"a transaction is open"

    def after(self):
        self.child = subprocess.Popen(
            [*AS_SERVICE, "psql", "-XqtA", "-h", f"{self.unit.state}/pg/run", "-U",
             "cloister_owner", "-d", "cloister"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=ENVIRONMENT, cwd="/", text=True)
        self.unit.helpers.add(self.child.pid)
        self.child.stdin.write("BEGIN; SELECT 1;\n")
        self.child.stdin.flush()
        self.child.stdout.readline()

    def undo(self):
        self.child.communicate()
        self.unit.helpers.discard(self.child.pid)


# --- streams -----------------------------------------------------------------------------


class BadStream(Sabotage):
    """A stream that does not tell what happened."""

    tenant, most = "acme", 1

    def before(self):
        watcher = type("BadWatcher", (Watcher,), {"take": self.take})
        self.done = 0
        accounts = self.ledger.accounts
        self.watcher = watcher(self.unit, self.ledger, accounts[self.tenant],
                               [a for name, a in accounts.items() if name != self.tenant])
        eventually(lambda: self.watcher.connected, 10, "a stream")
        self.chaos.watchers.append(self.watcher)

    def undo(self):
        self.chaos.watchers.remove(self.watcher)
        self.watcher.close()

    def take(self, kind, event_id, data):
        if self.wants(kind) and self.done < self.most:
            self.done += 1
            data = self.change(self.watcher, event_id, data)
        if data:
            Watcher.take(self.watcher, kind, event_id, data)

    def wants(self, kind):
        return kind == "tool.finished"


class DroppedEvent(BadStream):
    tenant, named = "globex", r"stream of globex: event \d+ after \d+, and no replay.reset"

    def change(self, watcher, event_id, data):
        return None


class NoResult(BadStream):
    """Events that were never published: nothing is missing in the count. Of several turns, because
    one may be without a result that can be judged."""

    most = 5
    named = r"a stream of acme did not tell the result of \S+ of turn"

    def change(self, watcher, event_id, data):
        watcher.last = event_id


class NoEnd(NoResult):
    named = r"a stream of acme did not tell the end of turn"

    def wants(self, kind):
        return kind == "turn.completed"


class OtherResult(BadStream):
    named = r"one stream told of .* as the result of \S+, another of|a stream told of .*, its hist"

    def change(self, watcher, event_id, data):
        event = json.loads(data)
        event["data"]["output"] = "something else"
        return json.dumps(event)


class EventTwice(BadStream):
    named = r"stream of acme: event (\d+) after \1,"

    def change(self, watcher, event_id, data):
        Watcher.take(watcher, json.loads(data)["type"], event_id, data)
        return data


# --- tenants -----------------------------------------------------------------------------


class ForeignText(Sabotage):
    """A session of acme's holds what globex wrote."""

    named = r"acme sees globex: GET /v1/sessions"

    def before(self):
        self.session = self.client.session(title=f"of {self.globex.canary}")

    def undo(self):
        self.client.call("DELETE", f"/v1/sessions/{self.session}", status=204)


class ForeignRow(Sabotage):
    """The same, in the database."""

    named = r"acme has sessions, turns, items of globex: \[\['1', '0', '0'\]\]"


class ForeignSession(Sabotage):
    """A session that acme sees is globex's."""

    named = r"acme is told of sessions of others"

    def before(self):
        self.session = self.client.session()
        self.globex.sessions.add(self.session)

    def undo(self):
        self.globex.sessions.discard(self.session)
        self.client.call("DELETE", f"/v1/sessions/{self.session}", status=204)


class ForeignFile(Sabotage):
    named = r"acme has files of globex"

    def after(self):
        self.path = f"{self.unit.tenants['acme'].workspace}/found"
        with open(self.path, "w", encoding="utf-8") as f:
            f.write(self.globex.canary)

    def undo(self):
        os.unlink(self.path)


# --- what is left ------------------------------------------------------------------------


class Mount(Sabotage):
    named = r"a mount more: .*/var-lost"

    def after(self):
        self.path = f"{self.unit.var}/var-lost"
        os.mkdir(self.path)
        output_of("mount", "--bind", self.unit.var, self.path)

    def undo(self):
        output_of("umount", self.path)


class Orphan(Sabotage):
    """A process whose parent has gone, as those of a sandbox would be."""

    named = r"belongs to nobody: \d+ sleep sleep 4711"
    command = "sleep 4711 &"

    def after(self):
        output_of("sh", "-c", f"exec >/dev/null 2>&1; {self.command}")
        word = self.command.split()[-2]
        self.process = eventually(lambda: next(
            (p for p in self.unit.orphans() if p.arguments() == ["sleep", word]), None), 10, word)

    def undo(self):
        self.process.kill()
        eventually(lambda: not self.process.lives(), 10, "the end of it")


class Namespace(Orphan):
    named = r"namespaces \{'net:\[\d+\]'\} are held by \d+ sleep sleep 4712"
    command = "unshare --net sleep 4712 &"


class Namespaces(Sabotage):
    """As if a sandbox had fewer of one kind."""

    named = r"\d+ namespaces uts of \d+ sandboxes"

    def after(self):
        self.most, invariants.NAMESPACES["uts"] = invariants.NAMESPACES["uts"], 0

    def undo(self):
        invariants.NAMESPACES["uts"] = self.most


class Missing(Sabotage):
    """A process has ended, and its parent does not look."""

    def after(self):
        self.parent, child = (self.unit.named(what, "acme")[0] for what in (self.up, self.down))
        self.parent.kill(signal.SIGSTOP)
        child.kill()
        eventually(lambda: not child.lives(), 10, "the end of it")

    def undo(self):
        self.parent.kill(signal.SIGCONT)
        eventually(self.mended, 30, "that somebody looks")


class MissingCourier(Missing):
    named = r"2 processes cloisterd, not 3"
    up, down = "keeper", "courier"

    def mended(self):
        return self.unit.named("courier") and self.unit.ready()


class MissingSlirp(Missing):
    named = r"\d+ processes slirp4netns, not \d+"
    up, down = "runner", "slirp4netns"

    def mended(self):
        return not self.unit.running("acme")


class Zombie(Sabotage):
    """The same, as who looks for zombies sees it."""

    named = r"zombies of \d+ cloisterd "


class ZombieOfRunner(Sabotage):
    named = r"zombies of \d+ cloister-runner "


class InCgroups(Sabotage):
    @staticmethod
    def possible(chaos):
        return bool(chaos.unit.cgroup)


class Cgroup(InCgroups):
    named = r"a cgroup more: .*/lost"

    def after(self):
        self.path = f"{self.unit.cgroup.path}/lost"
        os.mkdir(self.path)

    def undo(self):
        os.rmdir(self.path)


class OtherCgroup(InCgroups):
    """A process of the daemon has left the cgroup of the run."""

    named = r"in the cgroup \S*/away: \d+ postgres"

    def after(self):
        self.path = f"{self.unit.cgroup.path}/away"
        os.mkdir(self.path)
        self.pid = self.unit.named("postmaster")[0].pid
        self.move(self.path)

    def move(self, path):
        with open(f"{path}/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(self.pid))

    def undo(self):
        self.move(self.unit.cgroup.path)
        # What it has started in between.
        for process in self.unit.tree():
            if self.unit.cgroup.of(process.pid) != self.unit.cgroup.name:
                self.pid = process.pid
                self.move(self.unit.cgroup.path)
        os.rmdir(self.path)


class PacketRule(Sabotage):
    named = r"packet rules on the host: table inet lost"

    def after(self):
        output_of("nft", "add", "table", "inet", "lost")

    def undo(self):
        output_of("nft", "delete", "table", "inet", "lost")


class NoPolicy(Sabotage):
    """The rules that shut a sandbox in are gone."""

    named = r"the sandbox of globex has no policy"

    def after(self):
        rules.remove_forward(self.unit, "globex")

    def undo(self):
        runner = self.unit.runner("globex")
        runner.kill()
        eventually(lambda: not self.unit.running("globex"), 20, "the end of the sandbox")


class Device(Sabotage):
    named = r"devices of the host: .*lost0"

    def after(self):
        output_of("ip", "link", "add", "lost0", "type", "veth", "peer", "name", "lost1")

    def undo(self):
        output_of("ip", "link", "delete", "lost0")


class Descriptors(Sabotage):
    """Connections that stay open."""

    named = r"server has \d+ descriptors, and had \d+"

    def after(self):
        self.sockets = [socket.create_connection(("127.0.0.1", self.unit.port))
                        for _ in range(16)]
        for sock in self.sockets:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            sock.recv(4096)

    def undo(self):
        for sock in self.sockets:
            sock.close()


class Memory(Sabotage):
    """As if the launcher had been much smaller at the start."""

    named = r"launcher has \d+ KiB, and had -"

    def after(self):
        self.chaos.checker.base["memory"]["launcher"] -= 1 << 20

    def undo(self):
        self.chaos.checker.base["memory"]["launcher"] += 1 << 20


class StateFile(Sabotage):
    named = r"in the state directory: \{'lost'\}"

    def after(self):
        self.path = f"{self.unit.state}/lost"
        os.mkdir(self.path)

    def undo(self):
        os.rmdir(self.path)


class RuntimeFiles(Sabotage):
    named = r"\d+ files in \S+/run: "

    def after(self):
        run = f"{self.unit.state}/tenants/{self.unit.tenants['globex'].id}/run"
        self.path = f"{run}/lost"
        for number in range(60):
            os.makedirs(f"{self.path}/{number}")

    def undo(self):
        shutil.rmtree(self.path)


class LastWords(Sabotage):
    named = r"cloisterd: assertion failed: lost"

    def after(self):
        with open(self.unit.log_path, "a", encoding="utf-8") as f:
            f.write("cloisterd: assertion failed: lost\n")


class UnexpectedEnd(Sabotage):
    """The daemon dies while nothing is broken, and is started again."""

    named = r"the daemon ended by itself with -9"

    def after(self):
        starts = self.unit.starts
        self.unit.process.send_signal(signal.SIGKILL)
        eventually(lambda: self.unit.starts > starts, 60, "another start")
        self.unit.wait_back()


# All of a row are done at once; the end of the daemon would hide what streams were not told.
ROWS = ((DoubledCommand, DoubledUnknown, LostEffects, LostOfGone, LostTurns, AnotherEnd,
         UnknownTurn, UnfinishedTurn, OpenRequest, AskedTwice, WrongResult, CancelledByNobody,
         WrongCode, ItemWithoutCall, NoMark, NotReady, OpenTransaction, DroppedEvent, NoResult,
         NoEnd, OtherResult, EventTwice, ForeignText, ForeignRow, ForeignSession, ForeignFile,
         Mount, Orphan, Namespace, Namespaces, Cgroup, OtherCgroup, PacketRule, NoPolicy, Device,
         Memory, StateFile, RuntimeFiles, LastWords, Descriptors, MissingCourier, MissingSlirp,
         Zombie, ZombieOfRunner),
        (UnexpectedEnd,))
NAMES = [kind.__name__ for row in ROWS for kind in row]


def work(chaos):
    """Some of each kind, judged by nobody yet."""

    def enough():
        return all(len(fresh_turns(a)) > 2 for a in chaos.ledger.accounts.values())

    chaos.round_began = time.monotonic()
    chaos.load.go_on()
    eventually(enough, 60, "work that is done", 0.1)
    chaos.rest()


def row_of(chaos, kinds):
    """{name: what the checker found of it}"""
    row = [kind(chaos) for kind in kinds]
    with contextlib.ExitStack() as undone:  # in the other order, and also where it is cut off
        for one in row:
            one.before()
        work(chaos)
        for one in row:
            one.after()
            undone.callback(one.undo)
        found = chaos.judge(leak_seconds=0)
    return {type(one).__name__: [f for f in found if re.search(one.named, f)] for one in row}


def prove(chaos):
    """How many were named, and how many were not."""
    named, left = {}, []
    for kinds in ROWS:
        named.update(row_of(chaos, [k for k in kinds if k.possible(chaos)]))
        left += chaos.judge()
    chaos.tell("when all was undone", left)
    named["well"] = [] if left else ["all was well again when it was undone"]
    for name, words in named.items():
        print(f"{name}: {words[0][:200] if words else NOT_NAMED}", flush=True)
    failed = sum(1 for words in named.values() if not words)
    return len(named) - failed, failed
