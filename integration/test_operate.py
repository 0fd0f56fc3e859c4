"""The operator's view: status, drain, and the three forms of the log."""

import json
import os
import re
import socket
import struct
import subprocess

import pytest

from daemon import AS_SERVICE, ENVIRONMENT, write_file
from world import eventually


def ask(daemon, *words, prefix=(), code=0):
    done = subprocess.run([*prefix, f"{daemon.world.programs}/cloisterd", *words, "--state",
                           daemon.state], capture_output=True, text=True, timeout=60,
                          env=ENVIRONMENT, check=False)
    assert done.returncode == code, done
    return done.stdout if code == 0 else done.stderr


def status(daemon, **how):
    return json.loads(ask(daemon, "status", "--json", **how))


def tenant_of(report, name):
    return next(t for t in report["tenants"] if t["name"] == name)


# --- status ------------------------------------------------------------------------------------


def test_status_says_how_things_stand(make_daemon):
    daemon = make_daemon(options=["--max-active-sandboxes=3", "--max-event-streams=9"]).start()
    acme = daemon.client("acme")
    before = status(daemon)
    assert before["turns"] == {"running": 0, "queued": 0, "waiting": 0}
    assert before["sandboxes"] == {"active": 0, "max": 3} and not before["draining"]
    assert before["boundary"] == "development" and re.fullmatch("[0-9a-f]{8}", before["instance"])
    assert tenant_of(before, "acme")["sandbox"] is None
    waiting = acme.start(acme.session(), "? go on")
    acme.wait_for(waiting, "waiting_for_input")
    with acme.events() as events:
        turn = acme.start(acme.session(), "$ echo begin; sleep 600")
        events.until_output(turn, "begin")
        now = status(daemon)
        assert now["turns"] == {"running": 1, "queued": 0, "waiting": 1}
        assert now["streams"] == {"open": 1, "max": 9}
        one = tenant_of(now, "acme")
        assert one["id"] == daemon.tenants["acme"].id and one["streams"] == 1
        assert one["turns"] == now["turns"]
        assert (one["sandbox"]["state"], one["sandbox"]["calls"]) == ("running", 1)
        assert 0 <= one["sandbox"]["ageSeconds"] < 600
        # Without cgroups nobody counts, and that is said.
        assert one["sandbox"]["memoryBytes"] is None is one["sandbox"]["tasks"]
        assert tenant_of(now, "globex") == {
            "id": daemon.tenants["globex"].id, "name": "globex", "sandbox": None, "streams": 0,
            "turns": {"running": 0, "queued": 0, "waiting": 0}}
        assert now["database"]["max"] == 15 and now["database"]["idle"] >= 1
        text = ask(daemon, "status")
        assert "turns: 1 running, 0 queued, 1 waiting for a person" in text
        assert "memory and tasks are not counted" in text and "acme (" in text
    acme.end(turn)
    # As the service user, too.
    eventually(lambda: status(daemon, prefix=AS_SERVICE)["turns"]["running"] == 0, 10, "it ended")
    assert daemon.stop() == 0
    assert "no cloisterd runs" in ask(daemon, "status", code=1)


def test_status_tells_of_the_last_faults_and_nothing_secret(make_daemon):
    daemon = make_daemon(("acme",)).start()
    acme = daemon.client("acme")
    acme.run(acme.session(), "$ echo the-prompt-of-a-person")
    daemon.write_registry({"version": 1, "tenants": []})
    ask(daemon, "reload", code=1)
    said = ask(daemon, "status") + ask(daemon, "status", "--json")
    assert said.count("registry: tenants: 0 entries, must be 1 to 4096") == 2
    for secret in (acme.token, "the-prompt-of-a-person"):
        assert secret not in said and secret not in daemon.log()
    assert daemon.stop() == 0


def test_status_is_for_root_and_the_service_alone(make_daemon):
    daemon = make_daemon(("acme",)).start()
    control = f"{daemon.state}/control"
    assert os.stat(daemon.state).st_mode & 0o777 == 0o700
    assert os.stat(control).st_mode & 0o777 == 0o600
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
    assert "ermission denied" in ask(daemon, "status", prefix=nobody, code=1)
    # Whoever was handed a way there is told apart by the kernel's word.
    child = os.fork()
    if child == 0:
        fd = os.open(daemon.state, os.O_PATH)
        os.chmod(control, 0o666)
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
            try:
                caller.connect(f"/proc/self/fd/{fd}/control")
                caller.send(struct.pack("I40s", 3, b""))
                os._exit(1 if caller.recv(100) else 0)
            except OSError:
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.chmod(control, 0o600)
    assert status(daemon)["version"] == 1
    assert daemon.stop() == 0


# --- drain -------------------------------------------------------------------------------------


def test_a_drain_admits_nothing_and_cuts_nothing(make_daemon):
    """What is queued goes on after the next start, like after a stop."""
    daemon = make_daemon(("acme",), options=["--max-running-turns=1"]).start()
    acme = daemon.client("acme")
    session = acme.session()
    with acme.events() as events:
        turn = acme.start(session, "$ echo begin; while [ ! -e go ]; do sleep 0.1; done; echo end")
        events.until_output(turn, "begin")
        queued = acme.start(acme.session(), "later")
        drain = subprocess.Popen([f"{daemon.world.programs}/cloisterd", "drain", "--state",
                                  daemon.state], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        assert drain.stdout.readline() == "1 turn still runs\n"
        assert acme.request("POST", "/v1/sessions", {}).code == "server_stopping"
        assert acme.request("GET", "/readyz").code == "server_stopping"
        assert acme.request("GET", f"/v1/turns/{turn}").status == 200
        assert status(daemon)["draining"] and drain.poll() is None
        write_file(f"{daemon.tenants['acme'].workspace}/go", "")
        events.until_end(turn)
        assert drain.communicate(timeout=60)[0] == "nothing runs\n" and drain.returncode == 0
    assert acme.turn(queued)["status"] == "queued"
    assert status(daemon)["turns"] == {"running": 0, "queued": 1, "waiting": 0}
    assert daemon.stop() == 0
    daemon.start()
    acme = daemon.client("acme")
    assert acme.wait(queued).text == "later"
    assert daemon.stop() == 0


# --- the log -----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "journal"])
def test_every_line_is_in_its_form(make_daemon, form):
    daemon = make_daemon(("acme",))
    before = len(daemon.log())
    daemon.spawn(daemon.command(log=form))
    ready = r"ready on http://127\.0\.0\.1:(\d+)"
    daemon.port = int(eventually(lambda: re.search(ready, daemon.log()[before:]), 60, "ready")[1])
    acme = daemon.client("acme")
    assert acme.run(acme.session(), "$ echo text-of-a-person").text.strip().endswith("person")
    instance = status(daemon)["instance"]
    daemon.write_registry({"version": 1, "tenants": [], "a\nb": 1})
    ask(daemon, "reload", code=1)
    assert daemon.stop() == 0
    lines = daemon.log().splitlines()
    assert any("unknown field" in line for line in lines) and len(lines) > 8
    for line in lines:
        if form == "journal":
            assert re.match(rf"<[3467]>\[{instance}\] ", line), line
            continue
        event = json.loads(line)
        assert set(event) - {"request"} == {"time", "level", "program", "instance", "message"}
        assert event["instance"] == instance and event["program"] == "cloisterd"
    assert "text-of-a-person" not in daemon.log() and acme.token not in daemon.log()


def test_a_fault_at_the_start_is_in_its_form(make_daemon):
    daemon = make_daemon(("acme",))
    daemon.write_registry({"version": 1, "tenants": []})
    code, lines = daemon.fail(log="json")
    assert code == 2 and len(lines) == 2
    assert [json.loads(line)["level"] for line in lines] == ["error", "error"]


# --- backup ------------------------------------------------------------------------------------


def everything(client, session, turn):
    """What a tenant can ask for; ids of requests are the answers' own."""
    return [client.call("GET", path) for path in (
        "/v1/sessions", f"/v1/sessions/{session}", f"/v1/sessions/{session}/history",
        "/v1/turns", f"/v1/turns/{turn}", f"/v1/turns/{turn}/result", "/v1/requests")]


def test_a_restored_backup_gives_the_same_answers(make_daemon):
    """With the tar of docs/operate-debian.md; what was made since is gone."""
    daemon = make_daemon(("acme",)).start()
    acme = daemon.client("acme")
    session = acme.session()
    turn = acme.start(session, "$ echo kept >/workspace/file; echo kept >~/home; echo said")
    acme.wait(turn)
    asked = acme.start(acme.session(), "? go on | yes | no")
    acme.wait_for(asked, "waiting_for_input")
    before = everything(acme, session, turn)
    assert daemon.stop() == 0
    pack = ["tar", "--xattrs", "--numeric-owner", "-C", daemon.var]
    subprocess.run([*pack, "-czf", f"{daemon.var}/backup", "state", "workspaces", "tokens"], check=True)
    daemon.start()
    acme = daemon.client("acme")
    acme.run(session, "$ echo later >/workspace/file")
    assert daemon.stop() == 0
    for name in ("state", "workspaces", "tokens"):
        os.rename(f"{daemon.var}/{name}", f"{daemon.var}/{name}.old")
    subprocess.run([*pack, "-xzf", f"{daemon.var}/backup"], check=True)
    # As on another machine: the registry is the same, the directories are others.
    daemon.start()
    acme = daemon.client("acme")
    assert everything(acme, session, turn) == before
    request = acme.call("GET", "/v1/requests")["data"][0]["id"]
    acme.call("POST", f"/v1/requests/{request}/resolve", {"decision": "yes"})
    assert acme.wait(asked).status == "completed"
    assert acme.run(session, "$ cat /workspace/file ~/home").text.split()[-2:] == ["kept", "kept"]
    assert daemon.stop() == 0
