"""The script of NixOS's test machines: what Python finds before it runs, and what its part for
tenants and streams does, on a daemon of this machine in the place of a node's."""

import hashlib
import json
import os
import re
import socket
import subprocess
import uuid

import pytest

from daemon import AS_SERVICE
from inject import SUPPORTED
from nix_driver import Node, bad_calls, unbound
from nix_eval import ROOT
from reach import ABSTRACT_ABI
from test_nix_inside import rootfs  # noqa: F401 (a fixture)
from world import demo, eventually

NODES = ("machine", "external")
PARTS = ("vm-client", "vm-test")


def part(name):
    with open(f"{ROOT}/nix/{name}.py", encoding="utf-8") as f:
        return f.read()


SCRIPT = "".join(part(name) for name in PARTS)


def test_every_name_and_every_call_of_a_node_is_known():
    compile(SCRIPT, "script", "exec")
    assert unbound(SCRIPT, NODES) == [] and bad_calls(SCRIPT, NODES) == []


@pytest.mark.parametrize("line, fault", [
    ("machine.suceed('true')", "suceed: is no method"),
    ("machine.succeed('true', seconds=1)", "unexpected keyword argument 'seconds'"),
    ("machine.wait_until_succeeds()", "missing a required argument: 'command'"),
    ("Client(machine, 'acme').node.wait_for()", "wait_for: is no method")])
def test_a_wrong_call_of_a_node_is_found(line, fault):
    found = bad_calls(f"{SCRIPT}\n{line}\n", NODES)
    assert len(found) == 1 and fault in found[0], found


@pytest.mark.parametrize("line, name", [
    ("start_al()", "start_al"), ("with subtests('a'):\n    pass", "subtests"),
    ("machin.succeed('true')", "machin"), ("def f():\n    return [g(x) for x in switch(outside)]", "g")])
def test_an_unknown_name_is_found(line, name):
    assert name in unbound(f"{SCRIPT}\n{line}\n", NODES)


# -- what it does ------------------------------------------------------------------------------


class Played:
    """The names of vm-client.py, of a daemon that the test made."""

    def __init__(self, daemon):
        self.daemon, self.node = daemon, Node()
        with open(f"{ROOT}/docs/operate-nixos.md", encoding="utf-8") as f:
            document = f.read()
        data = {"registry": daemon.registry, "probe": f"{ROOT}/integration", "document": document, "tenants": {
            name: {"id": t.id, "workspace": t.workspace, "tokens": {"main": t.token, "wrong": "w" * 20 + "0123456789ab"}}
            for name, t in daemon.tenants.items()}}
        self.names = {"json": json, "DATA": data}
        self.found()
        exec(compile(part("vm-client"), "vm-client.py", "exec"), self.names)

    def found(self):
        """Where it is, each time it has started."""
        self.names["DATA"]["api"] = f"http://127.0.0.1:{self.daemon.port}"

    def __getattr__(self, name):
        return self.names[name]

    def client(self, *who):
        return self.Client(self.node, *who)

    def runners(self):
        return [self.runner_of(self.client("acme")), self.daemon.main_pid()]


@pytest.fixture
def played(make_daemon):
    daemon = make_daemon(("acme", "globex"), options=["--max-failed-attempts=5"]).start()
    yield Played(daemon)
    assert daemon.stop() == 0


@pytest.fixture
def shared(cloister):
    """The daemon that other tests have as well."""
    return Played(cloister)


def reload(daemon):
    subprocess.run([*AS_SERVICE, f"{daemon.world.programs}/cloisterd", "reload", "--state", daemon.state], check=True,
                   capture_output=True)


def test_a_tenant_works_while_another_one_comes_and_goes(played):
    """As in the machine, with the reload of this daemon in the place of a switch."""
    daemon, acme, globex = played.daemon, played.client("acme"), played.client("globex")
    entries = [t.entry() for t in daemon.tenants.values()]
    with played.at_work(acme, played.runners):
        session = globex.session()
        assert globex.run(session, "echo here") == "here\n"
        with played.stream_of(globex) as stream:
            turn = globex.start(session, "$ echo begun; sleep 600")
            stream.until_output(turn, "begun\n")
            daemon.write_registry({"version": 1, "tenants": entries[:1]})
            moment = float(played.now(played.node))
            reload(daemon)
            assert stream.ended_at() > moment
        assert globex.request("/v1/sessions")[0] == 401
        eventually(lambda: not daemon.running("globex"), 60, "its sandbox is gone")
        daemon.write_registry({"version": 1, "tenants": entries})
        reload(daemon)
        assert globex.call(f"/v1/turns/{turn}")["status"] == "cancelled"


def test_work_that_is_disturbed_is_noticed(played):
    acme = played.client("acme")
    with pytest.raises(AssertionError):
        with played.at_work(acme, played.runners):
            played.daemon.runner("acme").kill()
            eventually(lambda: not played.daemon.running("acme"), 60, "its runner has ended")
            acme.once("true")


def test_turns_wait_for_people_and_answers_are_the_same(played):
    acme = played.client("acme")
    asked = acme.ask_person()
    session = acme.session()
    turn = acme.start(session, "$ echo kept")
    acme.wait(turn)
    before = acme.everything(session, turn)
    assert acme.everything(session, turn) == before and len(before) == 7
    acme.answer(asked)
    assert acme.everything(session, turn) != before


def test_a_stream_tells_how_calls_ended(shared):
    acme = shared.client("acme")
    with shared.stream_of(acme) as stream:
        turn = acme.start(acme.session(), "$ exit 3")
        assert stream.until_end(turn)[0][0] == "turn.completed"
        assert stream.reasons(turn) == ["exited"]
        turn = acme.start(acme.session(), "$ echo begun; sleep 600")
        stream.until_output(turn, "begun\n")
        acme.call(f"/v1/turns/{turn}/cancel", method="POST")
        assert acme.wait(turn)["turn"]["status"] == "cancelled"
        assert stream.until_end(turn)[0][0] == "turn.cancelled"


def test_a_flood_of_wrong_tokens_is_counted(played):
    assert played.client("acme", "wrong").request("/v1/models")[0] == 401
    counts = played.flood(played.node, 60)
    assert set(counts) == {"known", "unknown"}
    for each in counts.values():
        assert set(each) == {"401", "429"} and sum(each.values()) == 30 and each["429"] > 15, counts
    assert played.client("acme").request("/v1/models")[0] == 200


def test_an_answer_that_is_another_one_is_noticed(played):
    """The first token is a right one."""
    daemon = played.daemon
    entries = [t.entry() for t in daemon.tenants.values()]
    digest = hashlib.sha256(f"{entries[0]['credentials'][0]['id']}.wrong-0123456789-0".encode()).hexdigest()
    entries[0]["credentials"].append({"id": str(uuid.uuid4()), "tokenHash": digest})
    daemon.write_registry({"version": 1, "tenants": entries})
    reload(daemon)
    assert played.flood(played.node, 4)["known"] == {"200": 1, "401": 1}


def test_a_runner_is_killed(played):
    played.kill_runner(played.client("acme"), played.client("globex"))


@pytest.mark.parametrize("victim", ["launcher", "server", "everything"])
def test_what_was_accepted_outlives_a_kill(played, victim):
    """As in the machine, but that the test starts the daemon again."""
    daemon, node = played.daemon, played.node
    accepted = played.Accepted(played.client("acme"))
    main = daemon.main_pid()
    everything = " ".join(str(pid) for pid, _ in played.below(node, main))
    played.kill_tree(node, main, {"launcher": None, "server": f"kill -KILL {played.server_of(node, main)}",
                                  "everything": f"kill -KILL {everything}"}[victim])
    daemon.process.wait(60)
    daemon.start()
    played.found()
    accepted.check()


def test_what_lives_on_is_noticed(played, monkeypatch):
    """A tree of which one does not end with the rest, and work that is not there any more."""
    node, main = played.node, played.daemon.main_pid()
    accepted = played.Accepted(played.client("acme"), turns=1)
    tree = played.below(node, main)
    assert {main, int(played.server_of(node, main)), int(played.runner_of(played.client("acme")))} < {pid for pid, _ in tree}
    assert tree <= set(played.living(node))
    with monkeypatch.context() as m:
        m.setitem(played.names, "eventually", lambda condition, _, what: eventually(condition, 0.5, what))
        with pytest.raises(AssertionError, match="have ended"):
            played.kill_tree(node, main, "true")
    accepted.client.call(f"/v1/turns/{accepted.cut}/cancel", method="POST")
    with pytest.raises(AssertionError, match="cancelled"):
        accepted.check()


@pytest.mark.skipif(not SUPPORTED, reason="calls are injected on x86-64 only")
def test_the_server_is_seen_to_reach_a_socket(shared):
    daemon, node = shared.daemon, shared.node
    with socket.socket(socket.AF_UNIX) as open_file, socket.socket(socket.AF_UNIX) as abstract:
        offered = f"{daemon.var}/offered", "@cloister-test/offered"
        for sock, name in zip((open_file, abstract), offered, strict=True):
            sock.bind(name.replace("@", "\0"))
            sock.listen(8)
        os.chmod(offered[0], 0o666)
        tried = shared.reach(node, shared.server_of(node, daemon.main_pid()), f"{daemon.state}/pg/run")
    own = f"{daemon.state}/pg/run/.s.PGSQL.5432"
    assert {own, *offered} <= set(tried), tried
    worked = {name for name, result in tried.items() if result == "worked" and name[0] == "/"}
    # The unit hides files; without it, what is open to all is open to the server.
    assert worked == {own, offered[0]}
    version = int(re.search(r"Landlock version (\d+)", daemon.log())[1])
    assert (tried[offered[1]] != "worked") == (version >= ABSTRACT_ABI), (version, tried)


def test_processes_hold_no_power(shared):
    node, acme = shared.node, shared.client("acme")
    acme.once("true")
    main = shared.daemon.main_pid()
    for pid in (main, shared.server_of(node, main), shared.runner_of(acme)):
        found = shared.powers(node, pid)
        assert {found[name] for name in found if name.startswith("Cap")} == {"0" * 16} and found["NoNewPrivs"] == "1"
    assert found["Seccomp"] == "2" and found["Groups"] == ""
    assert set(shared.powers(node, os.getpid())["CapEff"]) != {"0"}


def test_what_a_tenant_finds_in_a_sandbox(shared):
    acme, place = shared.client("acme"), shared.daemon.var
    shared.look_around(acme, (place, "ext4"))
    with pytest.raises(AssertionError, match="/workspace"):
        shared.look_around(acme, ("/workspace",))


def test_nix_builds_where_there_is_one(rootfs, make_daemon):
    """With the root filesystem that integration/test_nix_inside.py makes."""
    daemon = make_daemon(("acme",)).start(rootfs=rootfs)
    played = Played(daemon)
    played.build_with_nix(played.client("acme"))
    assert daemon.stop() == 0


def test_what_a_sandbox_can_connect_to(shared):
    targets = [f"{address}:80" for address in (demo.METADATA, demo.PUBLIC, demo.HOST_ADDRESS, demo.PRIVATE)]
    assert shared.open_from(shared.client("acme"), targets) == [f"{demo.PUBLIC}:80"]


def test_the_database_is_asked_as_its_owner(shared):
    shared.client("acme").session()
    shared.names["DATA"]["psql"], shared.names["STATE"] = "psql", shared.daemon.state
    database = "ct_" + shared.daemon.tenants["acme"].id.replace("-", "")
    assert int(shared.sql(shared.node, database, "SELECT count(*) FROM app.migration")) > 5


def test_the_commands_of_the_document_are_found(shared):
    back_up, restore = shared.documented("Back up, restore")
    assert back_up.startswith("systemctl stop") and "-czf BACKUP.tar.gz" in back_up
    assert "-xzf BACKUP.tar.gz" in restore and restore.endswith("systemctl start cloister\n")
