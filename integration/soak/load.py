"""What a soak does all the time: the programs of the chaos, and what those do not try.

Each leaves nothing behind: its sessions are deleted, and its files removed. They pause between
two pieces of work, so that the load is the same on a fast machine and on a slow one.
"""

import base64
import datetime
import threading
import time

from chaos import load
from chaos.load import Closed, Program, Reader, shell

TURNS_OF_A_SESSION = 6
PAUSE = (0.4, 1.6)  # seconds between two pieces
RELOAD_PAUSE = (3, 7)
SLEEP_SECONDS = 15  # until an idle sandbox stops
ATTACHED = (1, 1 << 17)  # bytes


class Judged(Program):
    """Nothing is broken here, so every turn ends as it ought to, and every call of it does."""

    ends = "completed"

    def finish(self, turn):
        super().finish(turn)
        if turn.status != self.ends:
            raise load.Lost(f"{turn} is not {self.ends}: {turn.result}")
        if turn.status == "completed":
            self.judge_output(turn, turn.result["output"])
        return turn

    @staticmethod
    def judge_output(turn, output):
        if output["assistantText"] != f"told {turn.plan['mark']}":
            raise load.Lost(f"{turn} says {output['assistantText']!r}")
        if len(output["tools"]) != len(turn.says()):
            raise load.Lost(f"{turn}: {len(turn.says())} calls wanted, {output['tools']}")
        for tool, said in zip(output["tools"], turn.says()):
            details = tool["details"] or {}  # of an answered question there are none
            whole = said.endswith("\n")  # of what a command writes all is said
            if details.get("reason", "done") not in ("done", "exited") or \
                    details.get("exitCode", 0) != 0 or details.get("signal") or \
                    (whole and tool["totalBytes"] != len(said)):
                raise load.Lost(f"{turn}: {tool}, and {said!r} was to be said")


class Commands(Judged, load.Commands):
    pass


class Files(Judged, load.Files):
    pass


class Questions(Judged, load.Questions):
    pass


class Cancels(Judged, load.Cancels):
    ends = "cancelled"


class Approvals(Questions):
    """A person allows a command, or does not."""

    def session(self, **fields):
        return super().session(approvals="ask", **fields)

    def piece(self, session):
        turn = self.start(session, "approval", {"calls": [[shell("echo allowed")]]})
        deadline = time.monotonic() + load.TURN_SECONDS
        while not (listed := self.expect(self.ask("GET", f"/v1/requests?turnId={turn.id}"),
                                         200)["data"]):
            if time.monotonic() > deadline:
                raise load.Lost(f"{turn} asks nothing in {load.TURN_SECONDS} s")
            time.sleep(0.05)
        decision = self.chance.choice(("allow_once", "deny"))
        self.expect(self.ask("POST", f"/v1/requests/{listed[0]['id']}/resolve",
                             {"decision": decision}), 200)
        turn.plan["decision"] = decision
        self.finish(turn)

    def judge_output(self, turn, output):
        if turn.plan["decision"] != "deny":
            super().judge_output(turn, output)
        elif [tool["details"]["reason"] for tool in output["tools"]] != ["denied"]:
            raise load.Lost(f"{turn}: {output['tools']} of a command that was denied")


class Attachments(Judged):
    """Files that come with a turn; and all files that turns leave are removed."""

    def piece(self, session):
        data = self.chance.randbytes(self.chance.randint(*ATTACHED))
        files = [{"name": "note.bin", "mimeType": "application/octet-stream",
                  "data": base64.b64encode(data).decode()}]
        plan = {"calls": [[shell("wc -c /workspace/.cloister/*/1/note.bin")],
                          [shell("rm -rf /workspace/.cloister/* /workspace/effects")]]}
        self.finish(self.start(session, "attachments", plan, files=files))


class Sleeper(Judged):
    """Lets its sandbox stop, and wants it again."""

    def piece(self, session):
        turn = self.finish(self.start(session, "first", {"calls": [[shell("true")]]}))
        self.load.note("first", took(turn))
        time.sleep(SLEEP_SECONDS + 2)


def seconds(stamp):
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def took(turn):
    """Milliseconds between a turn's acceptance and its end, by the daemon's own clock."""
    stamps = turn.result["turn"]
    return (seconds(stamps["finishedAt"]) - seconds(stamps["createdAt"])) * 1000


class Load(load.Load):
    """programs: {tenant: classes}; note(kind, ms) is told of what is timed."""

    def __init__(self, unit, ledger, seed, programs, note):
        self.unit, self.ledger, self.gate, self.note = unit, ledger, load.Gate(), note
        self.pieces = {}
        self.threads = []
        for tenant, kinds in programs.items():
            for number, kind in enumerate(kinds):
                program = kind(self, tenant, f"{seed} {tenant} {number}")
                self.threads.append(threading.Thread(target=self.run, args=(program,), daemon=True))
        for thread in self.threads:
            thread.start()

    def run(self, program):
        session = None
        while True:
            try:
                with self.gate.work():
                    session = self.some(program, session)
                time.sleep(program.chance.uniform(*PAUSE))
            except Closed:
                return
            except Exception as problem:  # a program that ended would be a load that shrinks
                self.ledger.wrong(f"{type(program).__name__}: {type(problem).__name__}: {problem}")

    def some(self, program, session):
        """A session's worth of work, or what there is time for; nothing is left of it."""
        session = program.session()
        try:
            for _ in range(TURNS_OF_A_SESSION):
                program.piece(session)
                name = type(program).__name__
                self.pieces[name] = self.pieces.get(name, 0) + 1
                if not self.gate.open:
                    break
                time.sleep(program.chance.uniform(*PAUSE))
        finally:
            program.delete(session)


class Reloads(load.Reloads):
    def run(self):
        while not self.closing:
            try:
                with self.chaos.load.gate.work():
                    self.both()
                self.pause(self.chance.uniform(*RELOAD_PAUSE))
            except Closed:
                return
            except Exception as problem:
                self.ledger.wrong(f"reload: {type(problem).__name__}: {problem}")

    def pause(self, seconds):
        deadline = time.monotonic() + seconds
        while not self.closing and time.monotonic() < deadline:
            time.sleep(0.2)


MIXED = (Commands, Commands, Files, Questions, Approvals, Cancels, Attachments, Reader)
