"""The repository that a session begins with."""

import base64
import os
import secrets
import signal
import subprocess
import time

import pytest

from daemon import TENANTS, Daemon
from git_server import BASIC, PASSWORD, USER, GitServer
from postgres_proxy import HOLD_AFTER, Proxy
from world import eventually, punctual

CREDENTIAL = {"username": USER, "password": PASSWORD}
HTTP = ["--allow-http-repositories"]


@pytest.fixture(scope="module")
def server(world):
    server = GitServer(world)
    server.commits = server.make("code")
    yield server
    server.close()


@pytest.fixture(scope="module")
def cloister_with_http(world):
    """One for those that break nothing."""
    daemon = Daemon(world, ("acme", "globex"), options=HTTP).start()
    yield daemon
    assert daemon.stop() == 0, daemon.log()[-4000:]
    world.daemons.remove(daemon)


@pytest.fixture
def daemon(make_daemon):
    return make_daemon(("acme", "globex"), options=HTTP).start()


@pytest.fixture
def client(daemon):
    return daemon.client("acme")


def create(client, url, status=201, code=None, **fields):
    more = {k: fields.pop(k) for k in ("cwd", "title", "clientRequestId") if k in fields}
    return client.call("POST", "/v1/sessions", {"repository": {"url": url, **fields}, **more},
                       status, code)


def show(client, session):
    return client.call("GET", f"/v1/sessions/{session}")["repository"]


def wait_for(client, session, state, seconds=90):
    def look():
        found = show(client, session)
        assert found["state"] in ("pending", "running", state), found
        return found["state"] == state and found

    return eventually(look, seconds, f"set-up {state}")


def of_setup(events):
    return [(kind.removeprefix("session.setup."), e["data"]) for _, kind, e in list(events.seen)
            if kind.startswith("session.setup.")]


def again(client, session, status=202, code=None, **body):
    return client.call("POST", f"/v1/sessions/{session}/setup", body, status, code)


# --- without a credential ----------------------------------------------------------------


def test_a_repository_is_there(client, server):
    """At once, with events, the branch as it was asked for; and a turn that works on it."""
    with client.events() as events:
        made = create(client, server.url("code"), branch="work/one")
        session = made["id"]
        assert made["repository"] == {
            "url": server.url("code"), "ref": None, "branch": "work/one", "state": "pending",
            "commit": None, "error": None}
        assert made["cwd"] == f"/workspace/repositories/{session}"
        found = wait_for(client, session, "ready")
        events.until(lambda: of_setup(events)[-1:] and of_setup(events)[-1][0] == "completed", 20,
                     "session.setup.completed")
    commit = server.commits["main"]
    assert (found["commit"], found["error"]) == (commit, None)
    assert of_setup(events) == [
        ("started", {"url": server.url("code"), "ref": None, "branch": "work/one"}),
        ("step", {"step": "prepare"}), ("step", {"step": "clone"}),
        ("step", {"step": "checkout"}), ("completed", {"commit": commit})]
    outcome = client.run(session, "$ cat file; git branch --show-current; git status -s; "
                                  "ls -A ..; git rev-parse HEAD; git remote -v | head -1")
    assert outcome.text == (f"this is main\nwork/one\n{session}\n{commit}\n"
                            f"origin\t{server.url('code')} (fetch)\n"), outcome.text
    again(client, session, 409, "setup_not_failed")


@pytest.mark.parametrize("ref, name", [("side", "side"), ("v1", ""), ("main", "main")])
def test_refs(cloister_with_http, server, ref, name):
    client = cloister_with_http.client("acme")
    session = create(client, server.url("code"), ref=ref)["id"]
    assert wait_for(client, session, "ready")["commit"] == server.commits[ref]
    assert client.run(session, "$ cat file; git branch --show-current").text == \
        f"this is {ref}\n" + (f"{name}\n" if name else "")


def test_a_commit_and_a_directory_of_choice(cloister_with_http, server):
    client = cloister_with_http.client("acme")
    session = create(client, server.url("code"), ref=server.commits["side"],
                     cwd="deep/down/place")["id"]
    wait_for(client, session, "ready")
    assert client.run(session, "$ pwd; cat file").text == \
        "/workspace/deep/down/place\nthis is side\n"
    # What is there is not touched, and nothing is left beside it.
    other = create(client, server.url("code"), cwd="deep/down/place")["id"]
    assert wait_for(client, other, "failed")["error"]["code"] == "directory_not_empty"
    assert client.run(session, "$ ls -A ..; cat file").text == "place\nthis is side\n"


def test_failures_are_named(cloister_with_http, server):
    client = cloister_with_http.client("acme")
    with client.events() as events:
        session = create(client, server.url("code"), ref="nowhere")["id"]
        found = wait_for(client, session, "failed")
        assert found["error"]["code"] == "ref_not_found" and found["commit"] is None
        events.until(lambda: of_setup(events)[-1:] and of_setup(events)[-1][0] == "failed", 10,
                     "session.setup.failed")
        assert of_setup(events)[-1][1] == found["error"]
        none = create(client, server.url("nothing"))["id"]
        assert wait_for(client, none, "failed")["error"]["code"] == "clone_failed"
    turn = client.run(session, "$ echo never")
    assert turn.status == "failed" and turn.error["code"] == "setup_failed", turn.turn
    assert "ref_not_found" in turn.error["message"]


def start_waiting(client, server):
    """A session whose repository is held, and a turn of it that waits for that."""
    session = create(client, server.url("code"))["id"]
    server.wait_held()
    turn = client.start(session, "$ cat file")
    client.wait_for(turn, "running")
    return session, turn


def test_a_turn_waits(cloister_with_http, server):
    client = cloister_with_http.client("acme")
    with server.holding():
        session, turn = start_waiting(client, server)
        assert show(client, session)["state"] == "running"
        cancelled = client.session()
        assert client.run(cancelled, "$ echo others go on").text == "others go on\n"
        assert client.turn(turn)["status"] == "running"
    assert client.wait(turn).text == "this is main\n"


def test_a_turn_that_waits_is_cancelled(cloister_with_http, server):
    client = cloister_with_http.client("acme")
    with server.holding():
        made = []

        def attempt():
            session, turn = start_waiting(client, server)
            made.append(session)
            client.cancel_in_time(turn)

        punctual(attempt)
        for session in made:
            client.call("DELETE", f"/v1/sessions/{session}", status=204)
    # Its place is free again.
    other = create(client, server.url("code"))["id"]
    wait_for(client, other, "ready")


def test_a_client_request_happens_once(cloister_with_http, server):
    client = cloister_with_http.client("acme")
    key = "01980000-0000-7000-8000-0000000e7001"
    first = create(client, server.url("code"), clientRequestId=key)
    assert create(client, server.url("code"), clientRequestId=key)["id"] == first["id"]
    create(client, server.url("code"), 409, "idempotency_conflict", ref="side",
           clientRequestId=key)
    client.call("POST", "/v1/sessions", {"clientRequestId": key}, 409, "idempotency_conflict")
    wait_for(client, first["id"], "ready")


def test_a_slow_server_delays_its_own_tenant_alone(make_daemon, server):
    slow, quick = TENANTS[:5], TENANTS[5]
    daemon = make_daemon((*slow, quick), options=HTTP).start()
    with server.holding():
        held = {t: create(daemon.client(t), server.url("code"))["id"] for t in slow}
        for tenant, session in held.items():
            eventually(lambda t=tenant, s=session: show(daemon.client(t), s)["state"] == "running",
                       60, "it is set up")
        session = create(daemon.client(quick), server.url("code", "/quick"))["id"]
        wait_for(daemon.client(quick), session, "ready")
        assert all(show(daemon.client(t), s)["state"] == "running" for t, s in held.items())
    for tenant, session in held.items():
        wait_for(daemon.client(tenant), session, "ready")


def test_there_are_not_too_many(cloister_with_http, server):
    client = cloister_with_http.client("globex")
    failed = create(client, server.url("code"), ref="nowhere")["id"]
    wait_for(client, failed, "failed")
    with server.holding():
        made = [create(client, server.url("code"))["id"] for _ in range(16)]
        answer = client.request("POST", "/v1/sessions", {"repository": {
            "url": server.url("code")}})
        assert (answer.status, answer.code) == (429, "setup_limit")
        assert answer.header("Retry-After")
        again(client, failed, 429, "setup_limit")
        assert len(client.call("GET", "/v1/sessions?limit=100")["data"]) == 17
        # Another tenant is not held up.
        create(cloister_with_http.client("acme"), server.url("code"))
        for session in made[1:]:
            client.call("DELETE", f"/v1/sessions/{session}", status=204)
    # Their places are free again.
    wait_for(client, made[0], "ready")
    wait_for(client, create(client, server.url("code"))["id"], "ready")


# --- what is not taken -------------------------------------------------------------------


@pytest.mark.parametrize("field, value", [
    ("url", "http://198.41.0.4/r"), ("url", "file:///etc"), ("url", "/etc"), ("url", "git@h:r"),
    ("url", "--upload-pack=id"), ("url", "ext::sh -c id"), ("url", "ssh://h/r"),
    ("url", "https://user:word@h/r"), ("url", "https://h/r\n"), ("url", "https://h"),
    ("ref", "-b"), ("ref", "a..b"), ("ref", "a b"), ("ref", ""), ("ref", "x" * 256),
    ("branch", "--orphan"), ("branch", "a.lock"), ("branch", "HEAD"),
    ("credential", {"password": "a\nb"}), ("credential", {"password": ""}),
    ("credential", {"username": "a\rb", "password": "x"}),
    ("credential", {"username": "x" * 256, "password": "x"}),
    ("credential", {"password": "x" * 4097})])
def test_what_is_refused(acme, field, value):
    acme.call("POST", "/v1/sessions", {"repository": {"url": "https://h/r", field: value}}, 422,
              "invalid_repository")


@pytest.mark.parametrize("repository", [
    {}, {"url": 1}, {"url": "https://h/r", "more": 1}, "https://h/r",
    {"url": "https://h/r", "credential": {"username": "a"}},
    {"url": "https://h/r", "credential": {"password": "a", "more": 1}}])
def test_what_is_malformed(acme, repository):
    acme.call("POST", "/v1/sessions", {"repository": repository}, 400, "invalid_json")


def test_a_directory_is_needed(acme):
    acme.call("POST", "/v1/sessions", {"repository": {"url": "https://h/r"}, "cwd": "/workspace"},
              422, "invalid_repository")


def test_another_try_needs_a_failure(acme, globex, session):
    again(acme, session, 409, "setup_not_failed")
    again(globex, session, 404, "session_not_found")
    again(acme, "x", 404, "session_not_found")
    again(acme, session, 422, "invalid_repository", credential={"password": "\x7f"})


# --- with a credential -------------------------------------------------------------------


def search(directory, *needles):
    """Files below a directory that have one of these in them."""
    done = subprocess.run(["grep", "-rlaF", *(w for n in needles for w in ("-e", n)), directory],
                          capture_output=True, text=True, check=False)
    return done.stdout.split()


# What a command leaves behind, and what becomes of it: it writes until it is ended.
SPY = "(while :; do date +%s.%N >spy.lives; sleep 0.05; done) >/dev/null 2>&1 </dev/null &"
# Everything that can be read of the processes that are there, their memory too.
REMAINS = r"""import glob,os,re
needles = [bytes.fromhex("{password}"), bytes.fromhex("{basic}")]
found = []
for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
    for name in ("cmdline", "environ"):
        try:
            data = open(f"/proc/{pid}/{name}", "rb").read()
        except OSError:
            continue
        found += [f"{pid} {name}"] * any(n in data for n in needles)
    try:
        maps = open(f"/proc/{pid}/maps").read()
        memory = open(f"/proc/{pid}/mem", "rb", 0)
    except OSError:
        continue
    for line in maps.splitlines():
        low, high = (int(x, 16) for x in line.split()[0].split("-"))
        if "r" not in line.split()[1] or high - low > 1 << 28:
            continue
        try:
            memory.seek(low)
            data = memory.read(high - low)
        except (OSError, ValueError, OverflowError):
            continue
        found += [f"{pid} mem {line}"] * any(n in data for n in needles)
print(found)
"""


def test_a_credential_is_used_and_gone(daemon, client, server):
    script = REMAINS.replace("{password}", PASSWORD.encode().hex()).replace(
        "{basic}", BASIC.encode().hex())
    with open(f"{daemon.tenants['acme'].workspace}/remains.py", "w", encoding="utf-8") as f:
        f.write(script)
    spy = client.session()
    # Whatever configuration the tenant has for git does not get it either.
    outcome = client.run(spy, "$ mkdir -p ~/t/hooks && printf '#!/bin/sh\\ncp /proc/$PPID/fd/3 "
                           "/workspace/stolen\\n' >~/t/hooks/post-checkout && "
                           "chmod +x ~/t/hooks/post-checkout && "
                           "git config --global init.templateDir ~/t && "
                           "git config --global credential.helper 'store --file /workspace/stolen'"
                           f" && {{ {SPY} }} && until [ -e spy.lives ]; do sleep 0.01; done; "
                           "echo spies")
    assert outcome.text.startswith("spies\n"), outcome.text
    workspace = daemon.tenants["acme"].workspace
    generation = daemon.runner("acme").pid
    with server.holding(), client.events() as events:
        session = create(client, server.url("code", "/private"), credential=CREDENTIAL)["id"]
        assert show(client, session).keys() == {"url", "ref", "branch", "state", "commit",
                                                "error"}
        server.wait_held()
        # Git, which has it, runs in a sandbox where nothing that was left behind does.
        assert daemon.runner("acme").pid != generation
        os.unlink(f"{workspace}/spy.lives")
        # Nobody else runs meanwhile: this is told to have begun, and does not.
        beside = client.start(spy, "$ ls .setup-* repositories/*/.git 2>&1 | wc -l")
        events.until_kind(beside, "tool.started")
        time.sleep(0.3)
        assert client.turn(beside)["status"] == "running"
    assert wait_for(client, session, "ready")["commit"] == server.commits["main"]
    assert client.wait(beside).status == "completed"
    assert client.run(session, "$ cat file; git remote -v | head -1; cat .git/config").text. \
        count(PASSWORD) == 0
    outcome = client.run(spy, "$ python3 remains.py")
    assert outcome.text.splitlines() == ["[]"], outcome.text
    assert not os.path.exists(f"{workspace}/spy.lives")
    assert not os.path.exists(f"{workspace}/stolen")
    assert not search(workspace, PASSWORD, BASIC)
    assert not search(daemon.state, PASSWORD, BASIC)
    assert PASSWORD not in daemon.log() and f"Basic {BASIC}" in server.seen()
    assert PASSWORD not in repr([e for _, _, e in events.seen])


def test_a_wrong_credential_can_be_given_again(daemon, client, server):
    """The server repeats what it was sent; nobody is told."""
    wrong = "wr0ng-of-the-repository"
    session = create(client, server.url("code", "/private"),
                     credential={"username": USER, "password": wrong})["id"]
    error = wait_for(client, session, "failed")["error"]
    assert error["code"] == "clone_failed" and "403" in error["message"], error
    assert wrong not in error["message"] and wrong not in daemon.log()
    again(client, session)  # without one
    assert wait_for(client, session, "failed")["error"]["code"] == "clone_failed"
    made = again(client, session, credential=CREDENTIAL)
    assert made["repository"]["state"] == "pending" and made["repository"]["error"] is None
    assert wait_for(client, session, "ready")["commit"] == server.commits["main"]
    assert client.run(session, "$ cat file").text == "this is main\n"


@pytest.mark.parametrize("size", [1500, 2001, 4096])
def test_a_long_credential_is_not_told(cloister_with_http, server, size):
    """Longer than what is kept of git's messages: no part of it is told either."""
    client = cloister_with_http.client("acme")
    wrong = secrets.token_hex(size)[:size]
    basic = base64.b64encode(f"{USER}:{wrong}".encode()).decode()
    with client.events() as events:
        session = create(client, server.url("code", "/private"),
                         credential={"username": USER, "password": wrong})["id"]
        error = wait_for(client, session, "failed")["error"]
        events.until(lambda: of_setup(events)[-1:] and of_setup(events)[-1][0] == "failed", 10,
                     "session.setup.failed")
    assert f"Basic {basic}" in server.seen()
    assert error["code"] == "clone_failed" and "403" in error["message"], error
    assert of_setup(events)[-1][1] == error
    pieces = [s[i:i + 8] for s in (wrong, basic) for i in range(len(s) - 7)]
    told = [p for p in pieces if p in error["message"]]
    assert not told, error


def test_another_try_before_the_first_is_settled(daemon, client, server):
    """Its failure is committed and can be seen, and its thread has not heard of that yet."""
    with server.holding():
        session = create(client, server.url("code"), ref="nowhere")["id"]
        server.wait_held()
        proxy = Proxy(daemon)
        proxy.stop_at_commit(1, HOLD_AFTER)
    assert proxy.stopped.wait(60), "no commit"
    assert show(client, session)["state"] == "failed"
    assert again(client, session)["repository"]["state"] == "pending"
    proxy.go_on()
    assert wait_for(client, session, "failed")["error"]["code"] == "ref_not_found"
    proxy.close()
    assert daemon.stop() == 0


def test_a_credential_is_not_given_to_others(daemon, client, server):
    before = len(server.seen())
    session = create(client, server.url("private/code", "/moved"), credential=CREDENTIAL)["id"]
    assert wait_for(client, session, "failed")["error"]["code"] == "clone_failed"
    assert "Basic" not in server.seen()[before:]
    public = create(client, server.url("code", "/moved"))["id"]
    wait_for(client, public, "ready")


# --- killed ------------------------------------------------------------------------------


def kill(daemon):
    server = daemon.server()
    os.kill(daemon.process.pid, signal.SIGSTOP)
    server.kill()
    daemon.process.kill()
    daemon.process.wait(10)
    daemon.world.expect_nobody(40)


def test_killed_in_the_middle(daemon, client, server):
    """What needs no credential goes on; what needs one says so, and takes it again."""
    with server.holding():
        public = create(client, server.url("code"), branch="b")["id"]
        private = create(client, server.url("code", "/private"), credential=CREDENTIAL)["id"]
        server.wait_held()
        waits = client.start(public, "$ cat file")
        fails = client.start(private, "$ cat file")
        client.wait_for(waits, "running")
        client.wait_for(fails, "running")
        kill(daemon)
    daemon.start()
    client = daemon.client("acme")
    assert wait_for(client, public, "ready")["commit"] == server.commits["main"]
    assert client.wait(waits).text == "this is main\n"
    error = wait_for(client, private, "failed")["error"]
    assert error["code"] == "credential_lost" and f"/v1/sessions/{private}/setup" in \
        error["message"], error
    outcome = client.wait(fails)
    assert outcome.status == "failed" and outcome.error["code"] == "setup_failed"
    again(client, private, credential=CREDENTIAL)
    wait_for(client, private, "ready")
    assert client.run(private, "$ cat file").text == "this is main\n"
    assert daemon.stop() == 0


def test_an_orderly_stop(daemon, client, server):
    """It does not wait for a set-up, which goes on after the next start."""
    with server.holding():
        session = create(client, server.url("code"))["id"]
        server.wait_held()
        assert daemon.stop() == 0
    daemon.start()
    assert wait_for(daemon.client("acme"), session, "ready")["commit"] == server.commits["main"]
    assert daemon.stop() == 0
