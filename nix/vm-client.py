# What a tenant's program and an operator do in the machines of vm-test.nix, which puts DATA in
# front of this. A node is a machine of the test driver's: what it succeeds at is a command of a
# shell. Everything goes through that, so that integration/test_nix_machine.py can play a node.

import contextlib
import re
import shlex
import time

SERVICE = "cloister.service"
CGROUP = f"/sys/fs/cgroup/system.slice/{SERVICE}"
STATE = "/var/lib/cloister"
ENDS = ("turn.completed", "turn.failed", "turn.cancelled")
# Until the test says that it is over; every number once.
WORK = "i=0; until [ -e over ]; do i=$((i + 1)); echo $i; sleep 0.3; done; rm over; echo over"


def eventually(condition, seconds, what):
    """The first true value of condition(), which must come within that time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)
    return value


# -- a tenant ------------------------------------------------------------------------------


class Client:
    def __init__(self, node, tenant, credential="main"):
        self.node, self.tenant = node, DATA["tenants"][tenant]
        self.name, self.token = f"{tenant}-{credential}", self.tenant["tokens"][credential]

    def curl(self, path, *more):
        words = ["curl", "-sS", "-H", f"Authorization: Bearer {self.token}", *more, DATA["api"] + path]
        return shlex.join(words)

    def request(self, path, body=None, method=None):
        """The status, and what was answered."""
        more = ["--max-time", "60", "-w", r"\n%{http_code}"]
        if body is not None:
            more += ["-H", "Content-Type: application/json", "--data-binary", json.dumps(body)]
        if method is not None:
            more += ["-X", method]
        text, _, status = self.node.succeed(self.curl(path, *more)).rpartition("\n")
        return int(status), json.loads(text) if text else None

    def call(self, path, body=None, method=None, status=200):
        found, answer = self.request(path, body, method)
        assert found == status, f"{path}: {found} {answer}"
        return answer

    def session(self):
        return self.call("/v1/sessions", {}, status=201)["id"]

    def start(self, session, line):
        return self.call(f"/v1/sessions/{session}/turns", {"input": line}, status=202)["id"]

    def wait_for(self, turn, status):
        eventually(lambda: self.call(f"/v1/turns/{turn}")["status"] == status, 120, f"{turn} is {status}")

    def wait(self, turn):
        """What the turn's result is, once there is one."""

        def look():
            status, answer = self.request(f"/v1/turns/{turn}/result")
            return answer if status == 200 else None

        return eventually(look, 120, f"the end of {turn}")

    def run(self, session, command):
        result = self.wait(self.start(session, f"$ {command}"))
        assert result["turn"]["status"] == "completed", result["turn"]
        return result["output"]["assistantText"]

    def once(self, command):
        return self.run(self.session(), command)

    def ask_person(self):
        """A turn that waits for somebody's answer."""
        turn = self.start(self.session(), "? go on | yes | no")
        self.wait_for(turn, "waiting_for_input")
        return turn

    def answer(self, turn):
        request = next(r["id"] for r in self.call("/v1/requests")["data"] if r["turnId"] == turn)
        self.call(f"/v1/requests/{request}/resolve", {"decision": "yes"})
        assert self.wait(turn)["turn"]["status"] == "completed"

    def everything(self, session, turn):
        """What a tenant can ask for."""
        return [self.call(path) for path in (
            "/v1/sessions", f"/v1/sessions/{session}", f"/v1/sessions/{session}/history",
            "/v1/turns", f"/v1/turns/{turn}", f"/v1/turns/{turn}/result", "/v1/requests")]


class Stream:
    """A tenant's event stream, read into a file of the node's until it ends or is closed."""

    def __init__(self, client):
        self.node, self.files = client.node, f"/tmp/{client.name}-{time.monotonic_ns()}"
        reader = (f"echo $$ >{self.files}.pid; {client.curl('/v1/events', '-N', '-D', f'{self.files}.head')} "
                  f">{self.files}.events; date +%s.%N >{self.files}.ending; mv {self.files}.ending {self.files}.end")
        self.node.succeed(f"setsid sh -c {shlex.quote(reader)} </dev/null >/dev/null 2>&1 &")
        self.node.wait_until_succeeds(f"grep -q '^HTTP/1.1 200' {self.files}.head", 60)

    def events(self, turn=None):
        """(kind, event) of all that came, or of a turn's."""
        found = []
        for block in self.node.succeed(f"cat {self.files}.events").split("\n\n")[:-1]:
            fields = dict(re.findall(r"^(event|data): ?(.*)$", block, re.MULTILINE))
            if "data" in fields:
                found.append((fields.get("event"), json.loads(fields["data"])))
        return [each for each in found if turn is None or each[1].get("turnId") == turn]

    def output(self, turn):
        return "".join(e["data"]["output"] for kind, e in self.events(turn) if kind == "tool.output.updated")

    def until_output(self, turn, text):
        eventually(lambda: text in self.output(turn), 120, f"{text!r} of {turn}")

    def until_end(self, turn):
        return eventually(lambda: [e for e in self.events(turn) if e[0] in ENDS], 120, f"the end of {turn}")

    def reasons(self, turn):
        """Why each call of a tool that is over ended."""
        return [e["data"]["details"]["reason"] for kind, e in self.events(turn) if kind == "tool.finished"]

    def ended(self):
        return self.node.execute(f"test -e {self.files}.end")[0] == 0

    def ended_at(self):
        """By the node's clock, once it has: that file gets its name when it is whole."""
        return float(self.node.wait_until_succeeds(f"cat {self.files}.end", 60))

    def close(self):
        self.node.succeed(f"kill -- -$(cat {self.files}.pid); rm -f {self.files}.*")


@contextlib.contextmanager
def stream_of(client):
    stream = Stream(client)
    try:
        yield stream
    finally:
        if not stream.ended():
            stream.close()


@contextlib.contextmanager
def at_work(client, processes):
    """While the block runs, a turn of that tenant and its event stream go on: by the same
    processes, which are what processes() says, nothing lost and nothing twice."""
    with stream_of(client) as stream:
        line = json.dumps({"command": WORK, "timeoutMs": 900000})
        turn = client.start(client.session(), f"@shell {line}")
        stream.until_output(turn, "1\n")
        before = processes()
        yield
        assert processes() == before
        seen = len(stream.events(turn))
        eventually(lambda: len(stream.events(turn)) > seen, 60, "it still works")
        client.node.succeed(f"touch {client.tenant['workspace']}/over")
        stream.until_end(turn)
        assert not stream.ended(), "its stream ended"
        text = client.wait(turn)["output"]["assistantText"]
        numbers = text.splitlines()
        assert numbers == [str(i) for i in range(1, len(numbers))] + ["over"], text
        assert stream.output(turn) == text


def flood(node, number):
    """Wrong tokens, eight at a time, each at once with another one: the numbers of the answers."""
    one = (f"curl -s -o /dev/null -w '%{{http_code}}\\n' -H 'Authorization: Bearer wrong-{{}}-0123456789-0123456789' "
           f"{DATA['api']}/v1/models")
    words = node.succeed(f"seq {number} | xargs -P 8 -I'{{}}' sh -c {shlex.quote(one)}").split()
    return {status: words.count(status) for status in set(words)}


# -- the operator --------------------------------------------------------------------------


def show(node, *names):
    """Properties of the unit."""
    lines = node.succeed(f"systemctl show -p {','.join(names)} {SERVICE}").splitlines()
    return [dict(line.split("=", 1) for line in lines)[name] for name in names]


def runner_of(node, tenant):
    """Its pid. The pattern does not match the command that looks for it."""
    return node.succeed(f"pgrep -f '[c]loister-runner.* {DATA['tenants'][tenant]['id']}'").strip()


def leaf(tenant):
    """The cgroup of the tenant's sandbox."""
    return f"{CGROUP}/sandboxes/{DATA['tenants'][tenant]['id']}"


def journal_since(node, moment):
    return node.succeed(f"journalctl -u {SERVICE} -o cat --since=@{moment}")


def now(node):
    return node.succeed("date +%s.%N").strip()


def documented(heading):
    """The blocks of commands below a heading of docs/operate-nixos.md, each as one text."""
    section = DATA["document"].split(f"\n## {heading}\n", 1)[1].split("\n## ")[0]
    blocks = re.findall(r"(?:^    .*\n)+", section, re.MULTILINE)
    return [re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks]


def sql(node, database, statement):
    """Of the service's own server, as its owner and as the service user."""
    words = ["setpriv", "--reuid", "cloister", "--regid", "cloister", "--clear-groups", DATA["psql"],
             "-XqtA", "-v", "ON_ERROR_STOP=1", "-h", f"{STATE}/pg/run", "-U", "cloister_owner", "-d", database,
             "-c", statement]
    return node.succeed(f"cd / && {shlex.join(words)}").strip()
