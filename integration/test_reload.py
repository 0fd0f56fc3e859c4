"""Another registry while the daemon runs, and what is left of tenants that are gone."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
import uuid

import pytest

from daemon import AS_SERVICE, ENVIRONMENT, USER, Gate, Tenant, give, make_directory, write_file
from provider.models import KEY, declare, entry
from world import eventually, in_time, punctual


class Registry:
    """The registry of one daemon, and the ways to have it read again."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.entries = {name: t.entry() for name, t in daemon.tenants.items()}

    def write(self):
        self.daemon.write_registry({"version": 1, "tenants": list(self.entries.values())})

    def add(self, name):
        tenant = self.daemon.tenants[name] = Tenant(self.daemon.var, name)
        self.entries[name] = tenant.entry()

    def add_token(self, name):
        """A second credential; its token."""
        token, path = "second-" + uuid.uuid4().hex, f"{self.daemon.var}/tokens/{uuid.uuid4()}"
        write_file(path, token)
        self.entries[name]["credentials"].append({"id": str(uuid.uuid4()), "tokenFile": path})
        return token

    def reload(self, code=0):
        self.write()
        done = run(self.daemon, "reload", "--state", self.daemon.state)
        assert done.returncode == code, done
        return done


def run(daemon, *words, prefix=AS_SERVICE):
    return subprocess.run([*prefix, f"{daemon.world.programs}/cloisterd", *words],
                          capture_output=True, text=True, timeout=60, env=ENVIRONMENT, check=False)


def purge(daemon, tenant, code=0):
    done = run(daemon, "tenant", "purge", tenant, "--state", daemon.state)
    assert done.returncode == code, done
    return done.stdout + done.stderr


@pytest.fixture
def daemon(make_daemon):
    return make_daemon(("acme", "globex")).start()


@pytest.fixture
def registry(daemon):
    return Registry(daemon)


def status_of(daemon, token, path="/v1/models"):
    client = daemon.client()
    client.token = token
    return client.request("GET", path).status


# --- what changes and what does not ----------------------------------------------------------


def test_a_new_tenant_works_and_nobody_is_disturbed(daemon, registry):
    acme, gate = daemon.client("acme"), Gate(daemon)
    session = acme.session()
    with acme.events() as events:
        turn = acme.start(session, f"$ echo begin; {gate.wait}; echo end")
        events.until_output(turn, "begin")
        runner = daemon.runner("acme").pid
        registry.add("hooli")
        began = time.monotonic()
        registry.reload()
        took = time.monotonic() - began
        hooli, began = daemon.client("hooli"), time.monotonic()
        hooli.call("GET", "/v1/models")
        answered = time.monotonic() - began
        assert hooli.run(hooli.session(), "$ echo new").text.strip().endswith("new")
        assert acme.turn(turn)["status"] == "running"
        gate.open()
        seen = events.until_end(turn)
        assert not events.ended.is_set()
    assert [k for _, k, _ in seen][-1] == "turn.completed"
    assert daemon.runner("acme").pid == runner
    assert took < 20 and answered < 10
    assert daemon.stop() == 0


def test_hup_reads_the_registry_too(daemon, registry):
    token = registry.add_token("acme")
    assert status_of(daemon, token) == 401
    registry.write()
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: status_of(daemon, token) == 200, 10, "the new token works")
    assert status_of(daemon, daemon.tenants["acme"].token) == 200


def test_a_new_token_works_when_reload_returns(daemon, registry):
    for _ in range(10):
        token = registry.add_token("acme")
        registry.reload()
        assert status_of(daemon, token) == 200
        registry.entries["acme"]["credentials"].pop()
        registry.reload()
        assert status_of(daemon, token) == 401


def test_a_revoked_token_ends_its_streams_within_a_second(daemon, registry):
    def attempt():
        kept = daemon.client("acme")
        gone = daemon.client("acme")
        gone.token = registry.add_token("acme")
        registry.reload()
        with kept.events() as staying, gone.events() as ending, \
                daemon.client("globex").events() as foreign:
            registry.entries["acme"]["credentials"].pop()
            registry.reload()
            soon = ending.ended.wait(1)
            assert soon or ending.ended.wait(20), "the stream of a revoked token lives on"
            assert gone.request("GET", "/v1/models").status == 401
            time.sleep(0.5)
            assert not staying.ended.is_set() and not foreign.ended.is_set()
            turn = kept.start(kept.session(), "hello")
            staying.until_end(turn)
        in_time(soon, "the stream of a revoked token ended later")

    punctual(attempt)


def test_requests_in_flight_keep_their_tenant(daemon, registry):
    """Under load, no answer but those of the old and of the new registry."""
    stop, seen = threading.Event(), set()

    def ask():
        client = daemon.client("acme")
        while not stop.is_set():
            seen.add(client.request("GET", "/v1/sessions").status)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(10):
        registry.add(f"more-{i}")
        registry.reload()
    stop.set()
    for thread in threads:
        thread.join()
    assert seen == {200}


# --- faults ------------------------------------------------------------------------------------


def test_every_fault_is_printed_and_the_old_registry_stays(daemon, registry):
    token = registry.add_token("acme")
    registry.entries["acme"]["name"] = "Not A Name"
    registry.entries["globex"]["colour"] = "red"
    registry.entries["globex"]["workspaceRoot"] = "relative"
    done = registry.reload(1)
    for part in ("tenants[0].name: ", "tenants[1].colour: ", "tenants[1].workspaceRoot: ",
                 "3 faults"):
        assert part in done.stderr, done.stderr
    assert done.stdout == ""
    assert status_of(daemon, token) == 401
    assert status_of(daemon, daemon.tenants["acme"].token) == 200
    for text in ("", "{", "[]", '{"version":1,"tenants":[]}', "\0" * 100):
        write_file(daemon.registry, text)
        assert run(daemon, "reload", "--state", daemon.state).returncode == 1
    os.unlink(daemon.registry)
    assert run(daemon, "reload", "--state", daemon.state).returncode == 1
    daemon.process.send_signal(signal.SIGHUP)
    eventually(lambda: daemon.log().count("the registry in force stays as it was") >= 8, 10,
               "the fault is logged")
    assert status_of(daemon, daemon.tenants["globex"].token) == 200
    registry.entries = {name: daemon.tenants[name].entry() for name in ("acme", "globex")}
    registry.reload()
    assert daemon.stop() == 0


def test_a_reload_refuses_what_a_start_refuses(make_daemon, world):
    """Keys, tokens, files of the operator's and programs become no tenant's."""
    daemon = make_daemon(("acme", "globex"))
    kept = {name: f"{daemon.var}/kept-{name}" for name in ("models", "key", "metrics", "program",
                                                           "none")}
    for path in kept.values():
        make_directory(path)
    token = secrets.token_hex(32)
    models = declare(daemon, entry("one", "messages", "https://127.0.0.1:9/v1",
                                   apiKeyFile=f"{kept['key']}/key"),
                     entry("two", "messages", "https://127.0.0.1:9/v1",
                           apiKeyFile=f"{kept['none']}/token"))
    os.rename(models, f"{kept['models']}/models.json")
    write_file(f"{kept['key']}/key", KEY)
    write_file(f"{kept['none']}/token", token)
    write_file(f"{kept['metrics']}/metrics", secrets.token_hex(32))
    shutil.copy(f"{world.programs}/cloister-runner", f"{kept['program']}/runner")
    give(f"{kept['program']}/runner", 0o755)
    daemon.options += [f"--models={kept['models']}/models.json",
                       f"--metrics-token-file={kept['metrics']}/metrics",
                       f"--runner={kept['program']}/runner"]
    daemon.start()
    registry = Registry(daemon)
    good = registry.entries["globex"]

    def refused(part, **changed):
        registry.entries["globex"] = {**good, **changed}
        done = registry.reload(1)
        assert part in done.stderr and "the registry in force stays as it was" in done.stderr, done
        assert status_of(daemon, daemon.tenants["globex"].token) == 200

    where = "tenants[1].workspaceRoot: "
    for name, what in (("models", "the file of the models (--models)"),
                       ("key", "the key of model one (apiKeyFile)"),
                       ("metrics", "the token for metrics (--metrics-token-file)"),
                       ("program", "the runner (--runner)")):
        refused(f"{where}{what}, {kept[name]}/", workspaceRoot=kept[name])
    inside = f"{world.rootfs}/tmp"
    refused(f"{where}lies inside the root filesystem (--rootfs), ", workspaceRoot=inside)
    for path, what in ((f"{kept['metrics']}/metrics", "the token for metrics"),
                       (f"{kept['none']}/token", "the key of model two (apiKeyFile)")):
        one = {"id": str(uuid.uuid4()), "tokenFile": path}
        refused(f"tenants[1].credentials[1].tokenFile: the same as {what}",
                credentials=[*good["credentials"], one])
    assert daemon.stop() == 0
    code, lines = daemon.fail()
    assert code == 2 and "tenants[1].credentials[1].tokenFile: " in "\n".join(lines), lines
    done = run(daemon, "check", daemon.registry, *daemon.options[:1])
    assert done.returncode == 1 and "the same as the key of model two" in done.stdout, done
    registry.entries["globex"] = good
    registry.write()
    daemon.start()
    assert daemon.stop() == 0


def test_thousands_of_faults_are_all_printed(daemon, registry):
    many = [{"id": "x", "name": "N", "workspaceRoot": "r", "credentials": []}
            for _ in range(2000)]
    daemon.write_registry({"version": 1, "tenants": many})
    done = run(daemon, "reload", "--state", daemon.state)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 4 * 2000 + 1
    assert status_of(daemon, daemon.tenants["acme"].token) == 200


def test_reload_says_that_nobody_runs(daemon):
    assert daemon.stop() == 0
    done = run(daemon, "reload", "--state", daemon.state)
    assert done.returncode == 1 and "no cloisterd runs" in done.stderr


# --- removed tenants -----------------------------------------------------------------------------


def test_a_removed_tenant_ends_and_its_data_stays(daemon, registry):
    acme, globex = daemon.client("acme"), daemon.client("globex")
    session = acme.session()
    waiting = acme.start(acme.session(), "? go on | yes | no")
    acme.wait_for(waiting, "waiting_for_input")
    with acme.events() as events:
        running = acme.start(session, "$ echo begin; sleep 60")
        events.until_output(running, "begin")
        other = globex.start(globex.session(), "$ sleep 2; echo undisturbed")
        entry = registry.entries.pop("acme")
        registry.reload()
        assert events.ended.wait(20), "the stream of a removed tenant lives on"
    assert acme.request("GET", "/v1/sessions").status == 401
    daemon.expect_end("acme", seconds=8)
    assert globex.wait(other).text.strip().endswith("undisturbed")
    registry.entries["acme"] = entry
    registry.reload()
    for turn in (running, waiting):
        assert acme.turn(turn)["status"] == "cancelled"
    assert acme.run(session, "$ echo back").text.strip().endswith("back")
    assert daemon.stop() == 0


def test_turns_of_a_tenant_removed_while_nobody_ran_are_cancelled(daemon, registry):
    acme = daemon.client("acme")
    session = acme.session()
    turn = acme.start(session, "$ sleep 60; echo late >late")
    acme.wait_for(turn, "running")
    daemon.kill()
    daemon.world.daemons.append(daemon)
    entry = registry.entries.pop("acme")
    registry.write()
    daemon.start()
    time.sleep(1)
    assert not daemon.running("acme")
    registry.entries["acme"] = entry
    registry.reload()
    assert acme_of(daemon).turn(turn)["status"] == "cancelled"


def acme_of(daemon):
    return daemon.client("acme")


def test_another_workspace_stops_the_sandbox(daemon, registry):
    acme = daemon.client("acme")
    session = acme.session()
    acme.run(session, "$ echo old >where")
    runner = daemon.runner("acme").pid
    workspace = f"{daemon.var}/workspaces/moved"
    os.mkdir(workspace)
    user = pwd.getpwnam(USER)
    os.chown(workspace, user.pw_uid, user.pw_gid)
    os.chmod(workspace, 0o700)
    registry.entries["acme"]["workspaceRoot"] = workspace
    registry.reload()
    daemon.expect_end("acme")
    assert all(process.pid != runner for process in daemon.tree())
    assert acme.run(session, "$ ls; echo new >where").status == "completed"
    assert os.listdir(workspace) == ["where"]
    with open(f"{daemon.tenants['acme'].workspace}/where", encoding="ascii") as f:
        assert f.read() == "old\n"


def test_other_limits_wait_for_the_next_start(daemon, registry):
    acme = daemon.client("acme")
    session = acme.session()
    acme.run(session, "$ true")
    runner = daemon.runner("acme")
    registry.entries["acme"]["egress"] = {"mode": "none"}
    registry.reload()
    time.sleep(0.5)
    assert daemon.runner("acme").pid == runner.pid
    assert "none" not in runner.arguments()
    runner.kill()
    daemon.expect_end("acme")
    acme.run(session, "$ true")
    words = daemon.runner("acme").arguments()
    assert words[words.index("--egress") + 1] == "none"


# --- purge ----------------------------------------------------------------------------------------


def data_of(daemon, tenant):
    """What there is of a tenant: guest state, database, role, entry."""
    name = tenant.replace("-", "")
    query = f"SELECT (SELECT count(*) FROM pg_database WHERE datname = 'ct_{name}'), " \
        f"(SELECT count(*) FROM pg_roles WHERE rolname = 'cr_{name}'), " \
        f"(SELECT count(*) FROM control.tenant WHERE id = '{tenant}')"
    done = subprocess.run([*AS_SERVICE, "psql", "-h", f"{daemon.state}/pg/run", "-U",
                           "cloister_owner", "-d", "cloister", "-Atc", query],
                          capture_output=True, text=True, timeout=30, env=ENVIRONMENT, check=True)
    return [os.path.exists(f"{daemon.state}/tenants/{tenant}"),
            *(n == "1" for n in done.stdout.strip().split("|"))]


# Links out of it, a directory without rights, names beyond every path, and a deep tree.
HOSTILE = """$ cd /state/home && ln -s / root && ln -s ../../../pg pg && mkdir -p a/b/c && """ \
    """touch a/b/c/f && chmod 0 a/b && mkfifo pipe && """ \
    """perl -e 'for (1..300) { mkdir "deep" x 12 or die; chdir "deep" x 12 or die } """ \
    """mkdir "x"; open F, ">", "x/y" or die; print "made"'"""


def test_purge_takes_all_of_a_removed_tenant_and_nothing_else(daemon, registry):
    acme, globex = daemon.client("acme"), daemon.client("globex")
    session, kept = acme.session(), globex.session()
    assert acme.run(session, HOSTILE).text.strip().endswith("made")
    globex.run(kept, "$ echo keep >/state/home/keep")
    acme.run(session, "$ echo mine >file")
    tenant, entry = daemon.tenants["acme"], registry.entries["acme"]
    assert "is declared" in purge(daemon, tenant.id, 1)
    del registry.entries["acme"]
    registry.reload()
    daemon.expect_end("acme", seconds=8)
    assert data_of(daemon, tenant.id) == [True] * 4
    assert "nothing is left" in purge(daemon, tenant.id)
    assert data_of(daemon, tenant.id) == [False] * 4
    assert data_of(daemon, daemon.tenants["globex"].id) == [True] * 4
    assert os.listdir(f"{daemon.state}/tenants") == [daemon.tenants["globex"].id]
    assert os.path.exists(f"{daemon.state}/pg/data")
    with open(f"{tenant.workspace}/file", encoding="ascii") as f:
        assert f.read() == "mine\n" # the workspace is the operator's
    assert "nothing is left" in purge(daemon, tenant.id)
    assert globex.run(kept, "$ cat /state/home/keep").text.strip().endswith("keep")
    registry.entries["acme"] = entry
    registry.reload()
    acme.call("GET", f"/v1/sessions/{session}", status=404, code="session_not_found")
    assert acme.call("GET", "/v1/sessions")["data"] == []
    assert acme.run(acme.session(), "$ ls -A /state/home").status == "completed"
    assert daemon.stop() == 0


def test_purge_of_strangers_and_nonsense(daemon):
    assert "nothing is left" in purge(daemon, str(uuid.uuid4()))
    for words in (["tenant"], ["tenant", "purge"], ["tenant", "drop", str(uuid.uuid4())],
                  ["tenant", "purge", "../x"], ["tenant", "purge", str(uuid.uuid4()).upper()]):
        done = run(daemon, *words, "--state", daemon.state)
        assert done.returncode == 2, done
    assert status_of(daemon, daemon.tenants["acme"].token) == 200


# --- the control socket ------------------------------------------------------------------------------


def test_others_cannot_reach_the_control_socket(daemon):
    path = f"{daemon.state}/control"
    assert os.stat(path).st_mode & 0o777 == 0o600
    nobody = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--"]
    done = run(daemon, "reload", "--state", daemon.state, prefix=nobody)
    assert done.returncode != 0 and "in force" not in done.stdout
    assert run(daemon, "reload", "--state", daemon.state, prefix=[]).returncode == 0, "root may"


def call(path, *messages, seconds=30):
    """What the daemon says to messages; b'' when it hangs up."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.settimeout(seconds)
        s.connect(path)
        for message in messages:
            s.send(message)
        return s.recv(2000)


def test_nonsense_on_the_control_socket_ends_the_call(daemon):
    path, size = f"{daemon.state}/control", 44
    good = (1).to_bytes(4, "little") + bytes(size - 4)
    assert call(path, good) == b"-registry in force: 2 tenants"
    for bad in (b"x", b"reload", bytes(size), good[:-1], good + b"\0", bytes(100000),
                (6).to_bytes(4, "little") + bytes(size - 4),
                (3).to_bytes(4, "little") + b"x" + bytes(size - 5),
                (1).to_bytes(4, "little") + b"x" + bytes(size - 5),
                (2).to_bytes(4, "little") + b"../../etc".ljust(size - 4, b"\0")):
        assert call(path, bad) == b"", bad[:20]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.connect(path)
        done = subprocess.Popen([*AS_SERVICE, f"{daemon.world.programs}/cloisterd", "reload",
                                 "--state", daemon.state])
        time.sleep(0.3)
        assert done.poll() is None # one caller at a time
    assert done.wait(30) == 0
    assert call(path, good) == b"-registry in force: 2 tenants"
