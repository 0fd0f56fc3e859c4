"""The script of NixOS's test machines: what Python finds before it runs, and what its part for
tenants and streams does, on a daemon of this machine in the place of a node's."""

import json
import subprocess

import pytest

from daemon import AS_SERVICE
from nix_driver import Node, bad_calls, unbound
from nix_eval import ROOT
from world import eventually

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
        data = {"api": f"http://127.0.0.1:{daemon.port}", "document": document, "tenants": {
            name: {"id": t.id, "workspace": t.workspace, "tokens": {"main": t.token, "wrong": "w" * 20 + "0123456789ab"}}
            for name, t in daemon.tenants.items()}}
        self.names = {"json": json, "DATA": data}
        exec(compile(part("vm-client"), "vm-client.py", "exec"), self.names)

    def __getattr__(self, name):
        return self.names[name]

    def client(self, *who):
        return self.Client(self.node, *who)

    def runners(self):
        return [self.runner_of(self.node, "acme"), self.daemon.main_pid()]


@pytest.fixture
def played(make_daemon):
    daemon = make_daemon(("acme", "globex"), options=["--max-failed-attempts=5"]).start()
    yield Played(daemon)
    assert daemon.stop() == 0


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


def test_a_stream_tells_how_calls_ended(played):
    acme = played.client("acme")
    with played.stream_of(acme) as stream:
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
    assert set(counts) == {"401", "429"} and sum(counts.values()) == 60 and counts["429"] > 40, counts
    assert played.client("acme").request("/v1/models")[0] == 200


def test_the_database_is_asked_as_its_owner(played):
    played.client("acme").session()
    played.names["DATA"]["psql"], played.names["STATE"] = "psql", played.daemon.state
    database = "ct_" + played.daemon.tenants["acme"].id.replace("-", "")
    assert int(played.sql(played.node, database, "SELECT count(*) FROM app.migration")) > 5


def test_the_commands_of_the_document_are_found(played):
    back_up, restore = played.documented("Back up, restore")
    assert back_up.startswith("systemctl stop") and "-czf BACKUP.tar.gz" in back_up
    assert "-xzf BACKUP.tar.gz" in restore and restore.endswith("systemctl start cloister\n")
