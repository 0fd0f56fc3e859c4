"""The process that speaks to providers: keys, names, certificates, proxies, its end."""

import array
import contextlib
import glob
import json
import os
import signal
import socket
import subprocess
import threading
import time
import uuid

import pytest

import daemon as daemons
from daemon import write_file
from provider.models import DIALECTS, KEY, ask, declare, entry
from provider.server import Echo, Hang, Play, Provider
from world import Process, descendants, eventually, output_of, private_mounts



PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def provider():
    server = Provider()
    yield server
    server.close()


def keeper(daemon):
    """The server's only child."""
    server = daemon.server().pid
    found = [p for p in descendants(server) if p.parent == server]
    assert [p.name for p in found] == ["cloisterd"], found
    return found[0]


def courier(daemon):
    """The keeper's only child."""
    found = descendants(keeper(daemon).pid)
    assert [p.name for p in found] == ["cloisterd"], found
    return found[0]


# --- keys ------------------------------------------------------------------------------------


def resident(pagemap, begin, end):
    """The parts of a region that are in memory: runs of pages."""
    pagemap.seek(begin // PAGE * 8)
    start = None
    for n, entry in enumerate((*array.array("Q", pagemap.read((end - begin) // PAGE * 8)), 0)):
        if entry >> 62 and start is None:
            start = n
        elif not entry >> 62 and start is not None:
            yield begin + start * PAGE, begin + n * PAGE
            start = None


def memory_holds(pid, needle):
    """Whether a process has these bytes anywhere in memory that it can write."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, \
            open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap, \
            open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in maps:
            span, mode = line.split()[:2]
            begin, end = (int(x, 16) for x in span.split("-"))
            if "w" not in mode or end - begin > 1 << 30:  # a sanitizer's shadow
                continue
            for first, last in resident(pagemap, begin, end):
                with contextlib.suppress(OSError):  # given back since the list was made
                    memory.seek(first)
                    if needle in memory.read(last - first):
                        return True
    return False


def files_with(directory, needle):
    found = []
    for path in glob.glob(f"{directory}/**", recursive=True, include_hidden=True):
        with contextlib.suppress(OSError):
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    if needle in f.read():
                        found.append(path)
    return found


def test_a_key_is_nowhere_but_where_it_is_used(make_daemon, provider):
    daemon = make_daemon()
    daemon.start(models=declare(daemon, *(entry(d, d, provider.url) for d in DIALECTS)))
    client = daemon.client("acme")
    said = []
    for dialect in DIALECTS:
        for piece in (1, 7, 1000):
            provider.will(Echo(400, piece))
            outcome = client.watch(client.session(model=dialect), "who am I?")
            assert "[redacted]" in outcome.error["message"], outcome.error
            said.append(json.dumps([outcome.error, outcome.events], default=str))
        provider.will(Echo(500), Play("text"))
        session = client.session(model=dialect)
        assert client.run(session, "again").status == "completed"
        said.append(client.request("GET", f"/v1/sessions/{session}/history").raw.decode())
    provider.will(Play("calls"), Play("text"))
    assert client.run(client.session(model="chat-completions"), "look").status == "completed"
    said.append(client.request("GET", "/v1/models").raw.decode())
    inside = [p for p in descendants(daemon.runner("acme").pid)]
    assert inside, "there was no sandbox"
    for text in (*said, daemon.log()):
        assert KEY not in text
    assert "[redacted]" in daemon.log()
    needle = KEY.encode()
    holder = courier(daemon).pid
    assert memory_holds(holder, needle), "the search finds nothing"
    for process in daemon.tree() + [daemon.launcher()]:
        if process.pid == holder:
            continue
        assert KEY not in process.read("environ") + process.read("cmdline"), process
    for process in (daemon.launcher(), daemon.server(), keeper(daemon)):
        assert not memory_holds(process.pid, needle), process
    assert daemon.stop() == 0
    assert not files_with(daemon.state, needle)
    assert files_with(daemon.var, needle) == [f"{daemon.var}/tokens/key"]


def test_a_model_that_is_taken_away(make_daemon, provider):
    """Sessions that have it take no more turns, and the others go on."""
    daemon = make_daemon()
    daemon.start(models=declare(daemon, *(entry(d, d, provider.url) for d in DIALECTS)))
    client = daemon.client("acme")
    kept, lost = client.session(model="responses"), client.session(model="messages")
    assert client.run(lost, "say it").status == "completed"
    body = {"input": "again", "clientRequestId": str(uuid.uuid4())}
    known = client.call("POST", f"/v1/sessions/{lost}/turns", body, 202)["id"]
    assert client.wait(known).status == "completed"
    provider.will("thinking-and-calls")
    waiting = client.start(client.session(model="messages", approvals="ask"), "look")
    client.wait_for(waiting, "waiting_for_input")
    tenants = [t.entry() for t in daemon.tenants.values()]
    tenants[0]["models"], tenants[1]["models"] = ["responses"], ["messages"]
    daemon.write_registry({"version": 1, "tenants": tenants})
    output_of(*daemons.AS_SERVICE, f"{daemon.world.programs}/cloisterd", "reload",
              f"--state={daemon.state}")
    client.call("POST", f"/v1/sessions/{lost}/turns", {"input": "x"}, 422, "model_not_available")
    client.call("GET", f"/v1/sessions/{lost}")
    # What was accepted before is answered as before, and what goes on is looked at again.
    assert client.call("POST", f"/v1/sessions/{lost}/turns", body, 202)["id"] == known
    client.call("POST", f"/v1/sessions/{lost}/turns", {**body, "input": "other"}, 422,
                "model_not_available")
    asked, = client.call("GET", f"/v1/requests?turnId={waiting}")["data"]
    client.call("POST", f"/v1/requests/{asked['id']}/resolve", {"decision": "allow_once"})
    outcome = client.wait(waiting)
    assert (outcome.status, outcome.error["code"]) == ("failed", "model_failed")
    assert "catalogue" in outcome.error["message"]
    assert client.run(kept, "say it").status == "completed"
    other = daemon.client("globex")
    other.call("POST", f"/v1/sessions/{lost}/turns", {"input": "x"}, 404, "session_not_found")
    assert ask(other, "messages").status == "completed"
    assert daemon.stop() == 0


def test_a_session_keeps_to_its_account(make_daemon, provider):
    daemon = make_daemon()
    mine, other = f"{daemon.var}/tokens/mine", f"{daemon.var}/tokens/other"
    write_file(mine, "sk-first-key")
    write_file(other, "sk-other-key")

    def start(key):
        daemon.start(models=declare(daemon, entry("one", "responses", provider.url, apiKeyFile=key)))
        return daemon.client("acme")

    client = start(mine)
    session = client.session(model="one")
    fork = client.call("POST", f"/v1/sessions/{session}/fork", {}, 201)["id"]
    assert daemon.stop() == 0
    write_file(mine, "sk-renewed-key")
    assert start(mine).run(session, "say it").status == "completed"
    assert provider.requests[-1].headers["authorization"] == "Bearer sk-renewed-key"
    assert daemon.stop() == 0
    client = start(other)
    for each in (session, fork):
        outcome = client.run(each, "say it")
        assert outcome.status == "failed" and "account" in outcome.error["message"]
    assert ask(client, "one").status == "completed"
    assert [r.headers["authorization"] for r in provider.requests] == [
        "Bearer sk-renewed-key", "Bearer sk-other-key"]
    assert daemon.stop() == 0


# --- names -----------------------------------------------------------------------------------


class Names:
    """A name server that answers every question with 127.0.0.1, or not at all."""

    def __init__(self, address, silent):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        self.address, self.silent, self.questions = address, silent, []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                question, client = self.socket.recvfrom(1024)
                self.questions.append(question)
                if not self.silent:
                    self.socket.sendto(self.answer(question), client)

    def answer(self, question):
        """RFC 1035: the question again, and one address where IPv4 was asked for."""
        end = question.index(b"\0", 12) + 5
        ipv4 = question[end - 4:end - 2] == b"\0\1"
        record = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1" if ipv4 else b""
        counts = b"\0\1" + (b"\0\1" if ipv4 else b"\0\0") + b"\0\0\0\0"
        return question[:2] + b"\x81\x80" + counts + question[12:end] + record

    def start(self, daemon, *models):
        """Starts a daemon that asks here."""
        resolv = f"{daemon.var}/resolv.conf"
        write_file(resolv, f"nameserver {self.address}\noptions timeout:30 attempts:5\n", 0o644)

        def cover():
            output_of("mount", "--bind", resolv, os.path.realpath("/etc/resolv.conf"))

        daemon.spawn(daemon.command(models=declare(daemon, *models)),
                     preexec_fn=private_mounts(cover))
        daemon.wait_ready()

    def close(self):
        self.socket.close()


def test_a_name_that_nobody_answers(make_daemon, provider):
    """Cancelling does not wait for it, nor does any other request, and threads are bounded."""
    names = Names("127.0.0.53", silent=True)
    daemon = make_daemon()
    names.start(daemon, entry("near", "responses", provider.url),
                entry("lost", "responses", "http://nobody.example:8080/v1", apiKeyFile=None))
    client, process = daemon.client("acme"), courier(daemon)

    def threads():
        return int(process.status("Threads"))

    session = client.session(model="lost")
    took = []
    waiting = client.start(session, "wait")
    eventually(lambda: names.questions, 20, "a question")
    assert ask(client, "near").status == "completed"
    client.end(waiting)
    for n in range(60):
        before = len(names.questions)
        turn = client.start(session, "wait")
        if threads() < 50:
            eventually(lambda: len(names.questions) > before or threads() >= 49, 20,
                       f"question {n}")
        began = time.monotonic()
        in_one = client.cancel(turn).status == 200
        took.append(time.monotonic() - began if in_one else 60)
        client.end(turn)
        assert threads() <= 52, "threads that look names up are not bounded"
    # Those that the machine itself was late for are few.
    assert sorted(took)[-4] < 2, "cancels waited for the name"
    assert min(took) < 0.1, "no cancel was as fast as it is to be"
    assert threads() > 40, "no thread was left waiting: this test shows nothing"
    names.close()
    daemon.kill()


def test_a_name_that_is_answered(make_daemon, provider):
    names = Names("127.0.0.54", silent=False)
    daemon = make_daemon()
    url = f"http://models.example:{provider.port}/v1"
    names.start(daemon, entry("far", "responses", url, apiKeyFile=None))
    assert ask(daemon.client("acme"), "far").status == "completed"
    assert names.questions
    assert provider.requests[0].headers["host"] == f"models.example:{provider.port}"
    assert "authorization" not in provider.requests[0].headers
    assert daemon.stop() == 0
    names.close()


def test_a_name_of_this_machine(make_daemon, provider):
    daemon = make_daemon()
    url = f"http://localhost:{provider.port}/v1"
    daemon.start(models=declare(daemon, entry("near", "responses", url)))
    assert ask(daemon.client("acme"), "near").status == "completed"
    assert daemon.stop() == 0


# --- proxies and certificates ------------------------------------------------------------------


def test_a_proxy_of_the_environment(make_daemon, provider, monkeypatch):
    monkeypatch.setitem(daemons.ENVIRONMENT, "http_proxy", f"http://127.0.0.1:{provider.port}")
    daemon = make_daemon()
    url = "http://models.example:8080/v1"
    daemon.start(models=declare(daemon, entry("far", "messages", url, apiKeyFile=None)))
    assert ask(daemon.client("acme"), "far").status == "completed"
    assert provider.requests[0].path == f"{url}/messages"
    assert daemon.stop() == 0


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
@pytest.mark.parametrize("host", ["127.0.0.1", "LocalHost"])
def test_no_proxy_gets_what_is_for_this_machine(make_daemon, provider, monkeypatch, variable, host):
    proxy = Provider()
    monkeypatch.setitem(daemons.ENVIRONMENT, variable, f"http://127.0.0.1:{proxy.port}")
    daemon = make_daemon()
    url = f"http://{host}:{provider.port}/v1"
    daemon.start(models=declare(daemon, entry("near", "messages", url)))
    assert ask(daemon.client("acme"), "near").status == "completed"
    assert not proxy.requests and provider.requests[0].headers["x-api-key"] == KEY
    assert daemon.stop() == 0
    proxy.close()


def certificate(directory, name):
    import ssl

    cert, key = f"{directory}/{name}.crt", f"{directory}/{name}.key"
    output_of("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
              "-nodes", "-days", "2", "-subj", "/CN=test", "-addext", f"subjectAltName={name}",
              "-keyout", key, "-out", cert)
    os.chmod(cert, 0o644)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


@pytest.mark.parametrize("name,trusted,good", [
    ("IP:127.0.0.1", True, True), ("IP:127.0.0.1", False, False),
    ("DNS:other.example", True, False)], ids=["trusted", "unknown-authority", "other-name"])
def test_certificates_are_verified(make_daemon, monkeypatch, tmp_path, name, trusted, good):
    daemon = make_daemon()
    cert, context = certificate(daemon.var, name)
    if trusted:
        monkeypatch.setitem(daemons.ENVIRONMENT, "SSL_CERT_FILE", cert)
    provider = Provider(tls=context)
    daemon.start(models=declare(daemon, entry("far", "messages", provider.url)))
    outcome = ask(daemon.client("acme"), "far")
    assert daemon.stop() == 0
    provider.close()
    if good:
        assert outcome.status == "completed" and len(provider.requests) == 1
        return
    assert outcome.status == "failed" and "not who it should be" in outcome.error["message"]
    assert not provider.requests and KEY not in daemon.log()


# --- its start and its end -------------------------------------------------------------------------


def test_faults_of_the_models_are_told(make_daemon, provider):
    daemon = make_daemon()
    tenant = daemon.tenants["acme"]
    inside = f"{tenant.workspace}/key"
    write_file(inside, KEY)
    path = declare(daemon, entry("one", "messages", provider.url, apiKeyFile=inside),
                   entry("one", "gopher", "http://far.example/v1"))
    wanted = [
        "models[0].apiKeyFile: lies in the workspace of acme, where the tenant can read it",
        "models[1].id: the same id as of a model before it",
        "models[1].api: must be chat-completions, responses or messages",
        "models[1].baseUrl: http would show the key to everybody on the way; only to 127.0.0.1, "
        "localhost and [::1], or without apiKeyFile"]
    code, lines = daemon.fail(models=path)
    assert code == 2 and lines[:-1] == wanted
    assert lines[-1] == f"cloisterd: {path}: 4 faults"
    check = [f"{daemon.world.programs}/cloisterd", "check", daemon.registry, f"--models={path}"]
    done = subprocess.run([*daemons.AS_SERVICE, *check], capture_output=True, text=True,
                          check=False, cwd="/")
    assert done.returncode == 1 and done.stdout.splitlines() == wanted
    done = subprocess.run(
        [*daemons.AS_SERVICE, *check[:-1], f"--models={declare(daemon, entry('one', 'messages', provider.url))}"],
        capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stdout) == (0, "ok: 2 tenants, 1 model\n")


def descriptors(pid):
    """What each of them is."""
    return {int(os.path.basename(f)): os.readlink(f) for f in glob.glob(f"/proc/{pid}/fd/*")}


def local_sockets():
    """The other end of each that is connected, both as descriptors name them."""
    rows = [line.split() for line in output_of("ss", "-xaH").splitlines()]
    return {f"socket:[{row[5]}]": f"socket:[{row[7]}]" for row in rows if row[7] != "0"}


def test_it_is_confined_and_has_nothing_else(make_daemon, provider):
    daemon = make_daemon()
    daemon.start(models=declare(daemon, entry("near", "messages", provider.url)))
    process = courier(daemon)
    assert process.status("Seccomp") == "2" and process.status("NoNewPrivs") == "1"
    open_files = descriptors(process.pid)
    assert [open_files.pop(n) for n in range(3)] == ["/dev/null", *[daemon.log_path] * 2]
    other_ends = local_sockets()
    theirs = set(descriptors(daemon.server().pid).values())
    to_server = [f for f in open_files.values() if other_ends.get(f) in theirs]
    # libcurl wakes itself up by a pair of sockets, or by an eventfd.
    own = [f for f in open_files.values() if f == "anon_inode:[eventfd]" or
           other_ends.get(f) in open_files.values()]
    assert len(to_server) == 1 and len(own) in (1, 2), open_files
    assert sorted(open_files.values()) == sorted(to_server + own), open_files
    daemon.client("acme").call("GET", "/v1/models")
    assert daemon.stop() == 0


def test_another_one_begins_when_it_dies(make_daemon, provider):
    """What it was at is tried again, as after any lost connection."""
    daemon = make_daemon()
    daemon.start(models=declare(daemon, entry("near", "messages", provider.url)))
    client = daemon.client("acme")
    before = []
    for _ in range(3):
        hang = provider.will(Hang(), "text")
        turn = client.start(client.session(model="near"), "say it")
        assert hang.began.wait(20)
        before.append(courier(daemon).pid)
        courier(daemon).kill(signal.SIGKILL)
        assert client.wait(turn).status == "completed"
        assert [r.headers["x-api-key"] for r in provider.requests] == [KEY, KEY]
    after = courier(daemon)
    assert len({*before, after.pid}) == 4
    assert after.status("Seccomp") == "2" and after.status("NoNewPrivs") == "1"
    assert daemon.log().count("the process that speaks to providers ended: signal 9") == 3
    assert daemon.stop() == 0


def test_without_its_keeper_the_service_ends_and_nothing_is_lost(make_daemon, provider):
    """No other courier can be made, so the daemon is: by what manages the service."""
    daemon = make_daemon()
    models = declare(daemon, entry("near", "messages", provider.url))
    daemon.start(models=models)
    client = daemon.client("acme")
    provider.will(hang := Hang())
    turn = client.start(client.session(model="near"), "say it")
    assert hang.began.wait(20)
    keeper(daemon).kill(signal.SIGKILL)
    assert daemon.ended() != 0
    assert "the service ends" in daemon.log()
    daemon.start(models=models)
    assert daemon.client("acme").wait(turn).status == "completed"
    assert daemon.stop() == 0


def test_it_ends_with_the_server(make_daemon, provider):
    daemon = make_daemon()
    daemon.start(models=declare(daemon, entry("near", "messages", provider.url)))
    process = courier(daemon)
    daemon.server().kill()
    daemon.ended()
    assert not Process(process.pid, "cloisterd", 0).lives()
