"""The load: programs of two tenants, who expect of every answer what the API promises.

They go on whatever happens: what is refused for now, or not answered, is sent again under
the same clientRequestId, so that it happens once. A gate has all of them rest between two
pieces of work, and then nothing is under way.
"""

import contextlib
import http.client
import json
import random
import threading
import time
import uuid

from client import TERMINAL, blocks
from chaos.ledger import Turn
from contract import CONTRACT
from world import PATIENCE

LATER = (429, 503)  # "Retry-After says when"
ANSWER_SECONDS = 60  # within which a request must have been answered, whatever happens
TURN_SECONDS = 90  # within which a turn must have ended
TURNS_OF_A_SESSION = 8


class Gate:
    """Lets work begin while it is open; closed, it knows when all work has come to an end."""

    def __init__(self):
        self.changed = threading.Condition()
        self.open, self.closing, self.inside = False, False, 0

    def set(self, is_open):
        with self.changed:
            self.open = is_open
            self.changed.notify_all()

    @contextlib.contextmanager
    def work(self):
        with self.changed:
            self.changed.wait_for(lambda: self.open or self.closing)
            self.inside += not self.closing
            if self.closing:
                raise Closed
        try:
            yield
        finally:
            with self.changed:
                self.inside -= 1
                self.changed.notify_all()

    def quiet(self, seconds):
        with self.changed:
            return self.changed.wait_for(lambda: not self.inside, seconds)

    def close(self):
        with self.changed:
            self.closing = True
            self.changed.notify_all()


class Closed(Exception):
    pass


class Program:
    """A client that does not give up; what it finds wrong goes into the ledger."""

    def __init__(self, load, tenant, seed):
        self.load, self.ledger, self.unit = load, load.ledger, load.unit
        self.account = self.ledger.accounts[tenant]
        self.others = [a for a in self.ledger.accounts.values() if a is not self.account]
        self.chance = random.Random(seed)
        self.client = self.unit.client(tenant)

    def once(self, method, path, body):
        """One answer, or None when there was none that counts."""
        try:
            answer = self.client.request(method, path, *([] if body is None else [body]))
        except (OSError, http.client.HTTPException) as problem:
            self.ledger.refused(type(problem).__name__)
            return None
        self.judge_privacy(method, path, answer)
        if answer.status in LATER:
            self.ledger.refused(f"{answer.status} {answer.code}")
            return None
        return answer

    def judge_privacy(self, method, path, answer):
        text = answer.raw.decode(errors="replace")
        for other in self.others:
            if other.canary in text:
                self.ledger.wrong(f"{self.account.tenant} sees {other.tenant}: {method} {path}: "
                                  f"{text[:300]}")

    def ask(self, method, path, body=None):
        """The answer that counts; a Lost when there is none in time."""
        deadline = time.monotonic() + ANSWER_SECONDS * PATIENCE
        while True:
            answer = self.once(method, path, body)
            if answer:
                return answer
            if time.monotonic() > deadline:
                raise Lost(f"{self.account.tenant}: no answer to {method} {path} in "
                           f"{ANSWER_SECONDS} s")
            time.sleep(0.1)

    def expect(self, answer, *statuses):
        if answer.status not in statuses:
            raise Lost(f"{self.account.tenant}: {answer}, where {statuses} was expected")
        return answer.json

    # -- sessions and turns

    def session(self, **fields):
        body = {"clientRequestId": str(uuid.uuid4()), "title": self.account.canary, **fields}
        made = self.expect(self.ask("POST", "/v1/sessions", body), 201)
        self.account.sessions.add(made["id"])
        return made["id"]

    def delete(self, session):
        answer = self.ask("DELETE", f"/v1/sessions/{session}")
        self.expect(answer, 204, 404)  # 404: an answer before this one was lost
        self.account.sessions.discard(session)
        self.account.deleted.add(session)
        for turn in list(self.account.turns.values()):
            if turn.session == session:
                del self.account.turns[turn.id]
                if turn.result and not turn.answers:
                    self.account.gone.append(turn)

    def start(self, session, kind, plan, **fields):
        plan = {"mark": f"m{uuid.uuid4().hex}", "note": self.account.canary, **plan}
        asked = time.monotonic()
        body = {"clientRequestId": str(uuid.uuid4()), "input": f"PLAN {json.dumps(plan)}", **fields}
        made = self.expect(self.ask("POST", f"/v1/sessions/{session}/turns", body), 202)
        turn = Turn(made["id"], session, kind, plan, asked)
        self.ledger.accept(self.account.tenant, turn)
        return turn

    def finish(self, turn):
        """Waits for its end, and writes down what it came to."""
        deadline = time.monotonic() + TURN_SECONDS * PATIENCE
        while True:
            answer = self.ask("GET", f"/v1/turns/{turn.id}/result")
            if answer.status == 200:
                break
            self.expect(answer, 409)
            if time.monotonic() > deadline:
                state = self.ask("GET", f"/v1/turns/{turn.id}").json
                raise Lost(f"{turn} has not ended in {TURN_SECONDS} s: {state}")
            time.sleep(0.05)
        turn.result = answer.json
        turn.ended = time.monotonic()
        turn.status = answer.json["turn"]["status"]
        turn.code = (answer.json["turn"]["error"] or {}).get("code")
        return turn


class Lost(Exception):
    """Accepted, or asked for, and then nothing."""


def call(tool, says=None, **arguments):
    """One call of a model; says is in its result unless something was broken."""
    return {"name": tool, "arguments": arguments, **({"says": says} if says else {})}


def shell(command, says=None, **more):
    return call("shell", says, command=command, **more)


def effect(mark, pause):
    """A command that leaves a line in the workspace, once each time that it runs."""
    return shell(f"echo {mark} >>effects; sleep {pause:.2f}; echo done {mark}", f"done {mark}\n")


class Commands(Program):
    """Turns of one to three answers with one to three commands each."""

    def begin(self, session):
        answers = [[effect(uuid.uuid4().hex, self.chance.choice((0, 0, 0.1, 0.5)))
                    for _ in range(self.chance.randint(1, 3))]
                   for _ in range(self.chance.randint(1, 3))]
        return self.start(session, "commands", {"calls": answers})

    def piece(self, session):
        self.finish(self.begin(session))


class Streams(Commands):
    """Turns each of which is watched by a stream of its own, until that has told of the end."""

    def piece(self, session):
        turn = self.begin(session)
        deadline = time.monotonic() + TURN_SECONDS * PATIENCE
        while not (told := self.follow(turn)):
            if time.monotonic() > deadline:
                raise Lost(f"no stream tells of the end of {turn} in {TURN_SECONDS} s")
            time.sleep(0.1)
        self.finish(turn)
        if told != f"turn.{turn.status}":
            self.ledger.wrong(f"the stream of {turn} ended with {told}")

    def follow(self, turn):
        """The last event of a stream, when it is the turn's end; else it was cut, or refused."""
        connection = self.client.connect(30)
        kind = None
        try:
            connection.request("GET", f"/v1/events?turnId={turn.id}", None,
                               self.client.headers(None, {}))
            response = connection.getresponse()
            if response.status != 200:
                self.ledger.refused(f"stream of a turn: {response.status}")
                return None
            for kind, number, data in blocks(response):
                value = CONTRACT.check_event(kind, number, data)
                if kind != "replay.reset" and value["turnId"] != turn.id:
                    self.ledger.wrong(f"the stream of {turn} tells {data[:300]}")
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self.ledger.refused(f"stream of a turn: {type(problem).__name__}")
        finally:
            connection.close()
        return kind if kind in [f"turn.{state}" for state in TERMINAL] else None


class Execs(Program):
    """Commands with more output than a result holds, and in the background."""

    def piece(self, session):
        mark = uuid.uuid4().hex
        answers = self.chance.choice((self.long, self.background))(mark)
        self.finish(self.start(session, "execs", {"calls": [[a] for a in answers]}))

    @staticmethod
    def long(mark):
        # A history shows of a long result the beginning.
        return (shell(f"echo {mark} >>effects; seq 30000", "1\n2\n3\n"),
                call("read_output", "29999\n", id="OUTPUT", line=29999, lines=1))

    @staticmethod
    def background(mark):
        # Where it is not stopped, because its turn failed, it may not hold its place for long.
        return (shell(f"echo {mark} >>effects; echo up {mark}; exec sleep 600",
                      "started in the background", background=True, timeoutMs=60000),
                call("shell_read", f"up {mark}\n", id="OUTPUT", offset=0, waitMs=20000),
                call("shell_stop", "[ended: stopped]", id="OUTPUT"))


class Files(Program):
    """Attachments, files written and read."""

    def piece(self, session):
        name, text = f"{uuid.uuid4().hex}.txt", f"{self.account.canary} {uuid.uuid4().hex}\n"
        plan = {"calls": [[call("write_file", f"wrote {len(text)} bytes to ", path=name,
                                content=text)],
                          [call("read_file", text.strip(), path=name)],
                          [shell(f"rm -f {name}")]]}
        self.finish(self.start(session, "files", plan))


class Questions(Program):
    """A person is asked, and answers; an answer that was taken holds."""

    def piece(self, session):
        asked = call("ask_user", question=f"go? {self.account.canary}", options=["yes", "no"])
        turn = self.start(session, "question", {"calls": [[asked]]})
        deadline = time.monotonic() + TURN_SECONDS * PATIENCE
        while True:
            listed = self.expect(self.ask("GET", f"/v1/requests?turnId={turn.id}"), 200)["data"]
            if listed:
                break
            state = self.expect(self.ask("GET", f"/v1/turns/{turn.id}"), 200)
            if state["status"] in TERMINAL:
                break
            if time.monotonic() > deadline:
                raise Lost(f"{turn} asks nothing in {TURN_SECONDS} s: {state}")
            time.sleep(0.05)
        if listed:
            self.answer(turn, listed[0])
        self.finish(turn)

    def answer(self, turn, request):
        decision = self.chance.choice(("yes", "no"))
        path = f"/v1/requests/{request['id']}/resolve"
        answer = self.ask("POST", path, {"decision": decision})
        if answer.status == 200:
            turn.plan["decision"] = decision
            again = self.ask("POST", path, {"decision": decision})
            if (again.status, again.code) != (409, "request_not_resolved"):
                raise Lost(f"{turn}: a second answer met {again}")
        else:
            self.expect(answer, 409)  # the answer to an attempt before this one was lost
            turn.plan["decision"] = decision


class Cancels(Program):
    """A turn that is told to end stays ended."""

    def piece(self, session):
        with self.account.cancels:
            self.cancel(session)

    def cancel(self, session):
        mark = uuid.uuid4().hex
        turn = self.start(session, "cancelled", {"calls": [[shell(
            f"echo {mark} >>effects; sleep 600; echo done {mark}")]]})
        time.sleep(self.chance.uniform(0, 1))
        answer = self.expect(self.ask("POST", f"/v1/turns/{turn.id}/cancel"), 200)
        if answer["status"] not in TERMINAL:
            raise Lost(f"{turn}: a cancel was answered with {answer}")
        turn.plan["status"] = answer["status"]
        self.finish(turn)


class Reader(Program):
    """Looks at everything of its own, and for what is another's."""

    def piece(self, session):
        listed = self.expect(self.ask("GET", "/v1/sessions?limit=100"), 200)["data"]
        self.judge("sessions", [s["id"] for s in listed])
        turns = self.expect(self.ask("GET", "/v1/turns?limit=50"), 200)["data"]
        self.judge("turns", [t["sessionId"] for t in turns])
        self.expect(self.ask("GET", f"/v1/sessions/{session}/history?limit=20"), 200, 404)
        self.expect(self.ask("GET", "/v1/requests"), 200)
        for other in self.others:
            theirs = next(iter(list(other.sessions)), None)
            if theirs:
                self.expect(self.ask("GET", f"/v1/sessions/{theirs}"), 404)
                self.expect(self.ask("POST", f"/v1/sessions/{theirs}/turns", {"input": "x"}), 404)
        time.sleep(0.1)

    def judge(self, what, sessions):
        foreign = [s for s in sessions for other in self.others
                   if s in other.sessions or s in other.deleted]
        if foreign:
            self.ledger.wrong(f"{self.account.tenant} is told of {what} of others: {foreign}")


PROGRAMS = (Commands, Streams, Execs, Files, Questions, Cancels, Reader)


class Load:
    def __init__(self, unit, ledger, seed):
        self.unit, self.ledger, self.gate = unit, ledger, Gate()
        self.threads = []
        for tenant in ledger.accounts:
            for number, kind in enumerate(PROGRAMS):
                program = kind(self, tenant, f"{seed} {tenant} {number}")
                self.threads.append(threading.Thread(target=self.run, args=(program,), daemon=True))
        for thread in self.threads:
            thread.start()

    def run(self, program):
        session, pieces = None, 0
        while True:
            try:
                with self.gate.work():
                    session = session or program.session()
                    program.piece(session)
                    pieces += 1
                    if pieces % TURNS_OF_A_SESSION == 0:
                        if program.chance.random() < 0.5:
                            program.delete(session)
                        session = None
            except Closed:
                return
            except Exception as problem:  # a program that ended would be a load that shrinks
                self.ledger.wrong(f"{type(program).__name__}: {type(problem).__name__}: {problem}")
                session = None

    def rest(self, seconds):
        """Has all of it come to an end; false when it does not in that time."""
        self.gate.set(False)
        return self.gate.quiet(seconds)

    def go_on(self):
        self.gate.set(True)

    def close(self):
        self.gate.close()
        for thread in self.threads:
            thread.join(5)


class Reloads:
    """Has a tenant come and go: the registry is written and read again, all the time."""

    def __init__(self, chaos, tenant, seed):
        self.chaos, self.unit, self.ledger, self.tenant = chaos, chaos.unit, chaos.ledger, tenant
        self.chance = random.Random(seed)
        self.closing, self.number = False, 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.closing:
            try:
                with self.chaos.load.gate.work():
                    self.both()
                time.sleep(self.chance.uniform(0.2, 0.6))
            except Closed:
                return
            except Exception as problem:
                self.ledger.wrong(f"reload: {type(problem).__name__}: {problem}")

    def both(self):
        """Away, and back: the gate is never closed while a tenant is missing."""
        for there in (False, True):
            # Nobody writes another one before this one is judged.
            with self.chaos.registry_lock:
                self.chaos.write_registry(
                    self.chaos.registry(without=None if there else self.tenant))
                if self.reload():
                    self.judge(there)
        if self.chance.random() < 0.3:
            client = self.unit.client(self.tenant)
            with contextlib.suppress(OSError, http.client.HTTPException):
                client.request("POST", "/v1/sessions", {"title": "passing by"})

    def reload(self):
        """True when it was taken; a daemon that is ending or broken may say no, for a while."""
        deadline = time.monotonic() + ANSWER_SECONDS * PATIENCE
        while True:
            starts = self.unit.starts
            code, out, err = self.unit.cloisterd("reload")
            if code == 0:
                self.number += 1
                return starts == self.unit.starts
            self.ledger.refused(f"reload: {(err or out).splitlines()[-1][:60] if err or out else code}")
            if time.monotonic() > deadline:
                raise Lost(f"a reload that is not taken in {ANSWER_SECONDS} s: {code} {out} {err}")
            time.sleep(0.2)

    def judge(self, there):
        """A token of a tenant who is there works, and that of one who is gone does not."""
        client = self.unit.client(self.tenant)
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer = client.request("GET", "/v1/models")
            if answer.status not in (*LATER, 200 if there else 401):
                self.ledger.wrong(f"a tenant who is {'there' if there else 'gone'} met {answer}")

    def close(self):
        self.closing = True
        self.thread.join(5)
