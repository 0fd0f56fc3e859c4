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

    def begin(self):
        """A turn that is in its middle."""
        with stream_of(self) as stream:
            turn = self.start(self.session(), "$ echo begun; sleep 600")
            stream.until_output(turn, "begun\n")
        return turn

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


class Accepted:
    """Work that the service has taken on, and that nothing which then happens to it may undo:
    finished turns, one in its middle, and one that waits for a person."""

    def __init__(self, client, turns=3):
        self.client, session = client, client.session()
        results = [client.wait(client.start(session, f"$ echo kept {n}")) for n in range(turns)]
        self.finished = {result["turn"]["id"]: result for result in results}
        assert [r["output"]["assistantText"] for r in results] == [f"kept {n}\n" for n in range(turns)]
        self.asked, self.cut = client.ask_person(), client.begin()

    def check(self):
        """Once the service is back: all is there, the turn that was cut says so, and work goes on."""
        for turn, result in self.finished.items():
            assert self.client.wait(turn) == result
        result = self.client.wait(self.cut)
        assert result["output"] and result["output"]["assistantText"].startswith("error: interrupted: "), result
        self.client.answer(self.asked)
        assert self.client.once("echo next") == "next\n"


# One builds on the other; a shell is all that they need.
DERIVATIONS = """
let
  sh = name: line: derivation {
    inherit name;
    system = builtins.currentSystem;
    builder = "/bin/sh";
    args = [ "-c" line ];
  };
  first = sh "first" "echo made >$out";
in
sh "second" "read -r word <${first}; echo $word twice >$out"
"""


def build_with_nix(client):
    """In the tenant's sandbox; in a later one it is there still, and nothing is built again."""
    session, words = client.session(), shlex.quote(" ".join(DERIVATIONS.split()))
    text = client.run(session, f"nix-build -E {words} 2>&1 && cat result")
    assert text.count("\nbuilding '/state/nix/store/") == 2 and text.endswith("\nmade twice\n"), text
    kill_tree(client.node, runner_of(client))
    text = client.run(session, f"nix-build --no-out-link -E {words} 2>&1; cat result")
    assert re.fullmatch(r"/state/nix/store/\w{32}-second\nmade twice\n", text), text


TOOLS = ("bash", "cat", "curl", "diff", "find", "awk", "gcc", "git", "grep", "make", "sed", "tar", "gzip", "ip", "ps",
         "python3", "rg", "which")


def look_around(client, hidden):
    """What a tenant finds in a sandbox: tools that work, a root filesystem that is not theirs to
    change, places that are, and in no list of mounts what the host knows it by."""
    lost = client.once(f"for t in {' '.join(TOOLS)}; do command -v $t >/dev/null || echo $t; done; true")
    assert lost == "", lost
    made = client.once("echo 'int puts(const char *); int main(void) { puts(\"works\"); return 0; }' >a.c && "
                       "echo 'all: ; gcc -o a a.c && ./a' >Makefile && make -s && "
                       "git init -q repository && python3 -c 'print(6 * 7)' && rg -c puts a.c")
    assert made == "works\n42\n1\n", made
    mounts = client.once("cat /proc/mounts")
    assert not [word for word in (client.tenant["id"], *hidden) if word in mounts], mounts
    wrote = client.once("for d in / /etc /usr /nix/store /cloister /workspace /state /tmp /run; do "
                        "touch $d/x 2>/dev/null && rm $d/x && echo $d; done; true")
    assert wrote.split() == ["/workspace", "/state", "/tmp", "/run"], wrote
    assert client.once("grep -c '^CapEff:.*[^0]$' /proc/self/status || true; id -u") == "0\n0\n"


def open_from(client, targets):
    """Those of HOST:PORT that take a connection from the tenant's sandbox."""
    look = 'timeout 20 bash -c ": <>/dev/tcp/${t%:*}/${t##*:}" 2>/dev/null && echo $t'
    return client.once(f"for t in {' '.join(targets)}; do {look}; done; true").split()


def flood(node, number):
    """Wrong tokens, eight at a time, which take turns at having the id of a credential and that of
    none: how many answers of each status either kind got. Nothing else may differ between them."""
    known = json.loads(node.succeed(f"cat {DATA['registry']}"))["tenants"][0]["credentials"][0]["id"]
    kinds = {f"{identity}.wrong-0123456789-{i}": kind for i in range(number // 2)
             for kind, identity in (("known", known), ("unknown", f"00000000-0000-4000-8000-{i:012x}"))}
    one = ("printf '%s %s\\n' {} \"$(curl -s --max-time 60 -w ' %{http_code} %{content_type}' "
           f"-H 'Authorization: Bearer {{}}' {DATA['api']}/v1/models)\"")
    lines = node.succeed(f"printf '%s\\n' {' '.join(kinds)} | xargs -P 8 -I'{{}}' sh -c {shlex.quote(one)}")
    counts, answers = {"known": {}, "unknown": {}}, set()
    for line in lines.splitlines():
        token, answer = line.split(" ", 1)
        status = re.search(r"\} (\d+) [a-z/]+$", answer)[1]
        counts[kinds[token]][status] = counts[kinds[token]].get(status, 0) + 1
        answers.add(re.sub(r'"requestId":"[^"]*"', "", answer))
    assert len(answers) == len(set(counts["known"]) | set(counts["unknown"])), answers
    return counts


# -- the operator --------------------------------------------------------------------------


def show(node, *names):
    """Properties of the unit."""
    lines = node.succeed(f"systemctl show -p {','.join(names)} {SERVICE}").splitlines()
    return [dict(line.split("=", 1) for line in lines)[name] for name in names]


def runner_of(client):
    """The pid of what runs the tenant's sandbox, which came before what it started. The pattern does
    not match the command that looks for it."""
    return client.node.succeed(f"pgrep -o -f '[c]loister-runner.* {client.tenant['id']}'").strip()


def server_of(node, main):
    """The pid of the process that faces the network."""
    return node.succeed(f"pgrep -P {main} -x cloisterd").strip()


def living(node):
    """{(pid, when it started): its parent's pid}: a later process of that number is another one."""
    found = {}
    for line in node.succeed("cat /proc/[0-9]*/stat 2>/dev/null || true").splitlines():
        words = line.rpartition(") ")[2].split()
        if words[0] not in "ZX":
            found[int(line.split(" ", 1)[0]), words[19]] = int(words[1])
    return found


def below(node, top):
    """That process and all that it started, and they, as living() has them."""
    table, found = living(node), set()
    more = {each for each in table if each[0] == int(top)}
    while more:
        found |= more
        above = {pid for pid, _ in more}
        more = {each for each, parent in table.items() if parent in above} - found
    return found


def kill_tree(node, top, command=None):
    """Kills that process, or does what the command does: nothing below it outlives it."""
    tree = below(node, top)
    assert len(tree) > 3, tree
    node.succeed(command or f"kill -KILL {top}")
    eventually(lambda: not tree & set(living(node)), 60, f"all of {tree} have ended")


def kill_runner(acme, globex):
    """The first one's: what it runs ends with it and says so, and the other one goes on."""
    cut, other = acme.begin(), globex.begin()
    kill_tree(acme.node, runner_of(acme))
    text = acme.wait(cut)["output"]["assistantText"]
    assert "[lost: " in text, text
    assert globex.call(f"/v1/turns/{other}")["status"] == "running"
    assert acme.once("echo next") == "next\n"
    globex.call(f"/v1/turns/{other}/cancel", method="POST")
    assert globex.wait(other)["turn"]["status"] == "cancelled"


def powers(node, pid):
    """What the kernel says of them: every set of capabilities, and what takes more away."""
    text = node.succeed(f"cat /proc/{pid}/status")
    return dict(re.findall(r"^(Cap\w+|NoNewPrivs|Seccomp|Groups):\t(.*?) *$", text, re.MULTILINE))


def reach(node, server, database):
    """{local socket of the machine: "worked", or the error that the server meets there}."""
    words = f"PYTHONPATH={DATA['probe']} python3 {DATA['probe']}/reach.py {server} {database}"
    return json.loads(node.succeed(words))


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
