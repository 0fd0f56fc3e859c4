"""Calls that people allow, and plans that they approve: what is run is what was shown."""

import json
import os
import subprocess
import uuid

import pytest

from daemon import AS_SERVICE
from postgres_proxy import HOLD_AFTER, Proxy
from test_durable import kill_all
from world import output_of

ONCE, TOOL, DENY = OPTIONS = ["allow_once", "allow_tool", "deny"]


def asked(client, turn):
    """The request that the turn waits for."""
    client.wait_for(turn, "waiting_for_input")
    listed = client.call("GET", f"/v1/requests?turnId={turn}")["data"]
    assert len(listed) == 1, listed
    return listed[0]


def answer(client, turn, decision, value=None, kind="tool_approval"):
    request = asked(client, turn)
    assert request["kind"] == kind
    client.call("POST", f"/v1/requests/{request['id']}/resolve",
                {"decision": decision, "value": value})
    return request


def items(client, session):
    return client.call("GET", f"/v1/sessions/{session}/history")["data"][-1]["turn"]["items"]


def results(client, session):
    return [i["output"] for i in items(client, session) if i["kind"] == "tool_result"]


@pytest.fixture
def careful(acme):
    return acme.session(approvals="ask")


def shown(request):
    """Tool, call and arguments of what is asked."""
    head, _, arguments = request["prompt"].partition("\n")
    return (*head.split(" "), arguments)


def test_what_is_run_is_what_was_shown(acme, careful):
    """Byte for byte, not before the answer, and once."""
    name = uuid.uuid4().hex
    arguments = f'{{ "command" : "echo \\u0061  >>{name}; cat {name}" ,"timeoutMs":10000 }}'
    with acme.events() as events:
        turn = acme.start(careful, f"@shell {arguments}")
        request = asked(acme, turn)
        assert request["options"] == OPTIONS and request["expiresAt"] is None
        call = items(acme, careful)[1]
        assert shown(request) == ("shell", call["callId"], arguments)
        assert (call["state"], call["arguments"]) == ("pending", arguments)
        assert acme.run(acme.session(), f"$ ls {name} 2>&1; true").text.startswith("ls: ")
        answer(acme, turn, ONCE)
        events.until_end(turn)
        kinds = [kind for _, kind, _ in events.of_turn(turn)]
    assert acme.wait(turn).text == "a\n"
    kinds = [k for k in kinds if k != "tool.output.updated"]
    assert kinds[4:9] == ["request.created", "request.resolved", "turn.resumed", "tool.started",
                          "tool.finished"]
    acme.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": DENY}, 409,
              "request_not_resolved")


@pytest.mark.parametrize("decision", ["custom", "allow", "", "ALLOW_ONCE", "yes"])
def test_other_decisions_are_none(acme, careful, decision):
    turn = acme.start(careful, "$ true")
    request = asked(acme, turn)
    acme.call("POST", f"/v1/requests/{request['id']}/resolve",
              {"decision": decision, "value": "x"}, 422, "invalid_decision")
    acme.end(turn)
    page = acme.call("GET", f"/v1/sessions/{careful}/history")["data"][-1]["turn"]
    assert [i["state"] for i in page["displayItems"]] == ["pending"]


def test_once_is_once_and_a_tool_is_a_tool(acme, careful):
    turn = acme.start(careful, "$ echo 1\n$ echo 2\n$ echo 3")
    first = answer(acme, turn, ONCE)
    second = answer(acme, turn, TOOL)
    assert first["id"] != second["id"] and "echo 2" in second["prompt"]
    assert acme.wait(turn).status == "completed", "the third was allowed with its tool"
    assert results(acme, careful) == ["1\n", "2\n", "3\n"]
    assert acme.run(careful, "$ echo 4").text == "4\n"
    # Another tool, another session and a fork of this one ask on their own.
    fork = acme.call("POST", f"/v1/sessions/{careful}/fork", {}, 201)
    assert fork["approvals"] == "ask"
    for session, line in ((careful, '@write_file {"path":"x","content":"y"}'),
                          (acme.session(approvals="ask"), "$ echo 5"), (fork["id"], "$ echo 6")):
        turn = acme.start(session, line)
        answer(acme, turn, DENY)
        assert acme.wait(turn).text == "error: denied: a person did not allow this call"


def test_what_reads_does_not_ask(acme, careful):
    assert acme.run(careful, '@read_file {"path":"/etc/hostname"}').status == "completed"
    assert acme.run(careful, "@list_files {}").status == "completed"
    assert acme.run(careful, "@format_disk {}").text.startswith("error: unknown_tool: ")


def test_a_denial_has_its_reason_and_no_effect(acme, careful):
    name = uuid.uuid4().hex
    turn = acme.start(careful, f"$ touch {name}")
    answer(acme, turn, DENY, "not today")
    assert acme.wait(turn).text == "error: denied: a person did not allow this call: not today"
    assert items(acme, careful)[2]["details"] == {"reason": "denied"}
    assert acme.run(acme.session(), f"$ ls {name} 2>&1; true").text.startswith("ls: ")


def test_what_cannot_be_shown_is_not_run(acme, careful):
    """Too large is refused, never cut; a secret is not allowed unseen."""
    name = uuid.uuid4().hex
    fits = json.dumps({"path": name, "content": "x" * 65000})
    turn = acme.start(careful, f"@write_file {fits}")
    assert shown(asked(acme, turn))[2] == fits
    acme.end(turn)
    over = json.dumps({"path": name, "content": "x" * 65536})
    assert "64 KiB" in acme.run(careful, f"@write_file {over}").text
    hidden = json.dumps({"path": name, "content": "x", "encrypted_content": "s3cret"})
    assert acme.run(careful, f"@write_file {hidden}").text.startswith("error: not_shown: ")
    assert acme.run(acme.session(), f"$ ls {name} 2>&1; true").text.startswith("ls: ")


@pytest.mark.parametrize("approvals", ["sandbox", "ask"])
def test_removing_everything_always_asks(acme, approvals):
    """In every session, each time, and whatever was allowed before."""
    session = acme.session(approvals=approvals)
    if approvals == "ask":
        turn = acme.start(session, "$ true")
        answer(acme, turn, TOOL)
        assert acme.wait(turn).status == "completed"
    for _ in range(2):
        turn = acme.start(session, "$ echo removed; true 'rm -rf /workspace'")
        request = asked(acme, turn)
        assert request["options"] == [ONCE, DENY]
        acme.call("POST", f"/v1/requests/{request['id']}/resolve", {"decision": TOOL}, 422,
                  "invalid_decision")
        answer(acme, turn, ONCE)
        assert acme.wait(turn).text == "removed\n"
    turn = acme.start(session, "$ sudo rm -fr -- /workspace/*; true")
    answer(acme, turn, DENY, "no")
    assert acme.wait(turn).text == "error: denied: a person did not allow this call: no"
    assert acme.run(session, "$ mkdir -p built; rm -rf built; echo gone").text == "gone\n"


def test_arguments_with_a_key_twice_go_back(acme, careful):
    """Nobody is asked about what is not run."""
    for arguments in ('{"command":"true","command":"rm x"}', '{"command":"true"', "[1,]"):
        text = acme.run(careful, f"@shell {arguments}").text
        assert text.startswith("error: invalid_arguments: "), text


def test_approvals_survive(make_daemon):
    """Asked before, answered after kill -9, and killed again after the answer: run once."""
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    session = client.session(approvals="ask")
    turn = client.start(session, "$ echo x >>ran; sleep 2; cat ran\n$ echo never >>ran")
    request = asked(client, turn)
    kill_all(daemon)
    daemon.start()
    client = daemon.client("acme")
    assert asked(client, turn) == request
    answer(client, turn, TOOL)
    kill_all(daemon)
    daemon.start()
    client = daemon.client("acme")
    assert client.wait(turn).status == "completed"
    with open(f"{daemon.tenants['acme'].workspace}/ran", encoding="ascii") as f:
        ran = f.read().split()
    assert ran in (["x", "never"], ["never"]), ran
    first = results(client, session)[0]
    assert first == "x\n" or first.startswith("error: interrupted: "), first
    assert daemon.stop() == 0


@pytest.mark.parametrize("mode", ["ask", "plan"])
def test_a_refusal_holds_when_a_commit_is_not_heard_of(make_daemon, mode):
    """Cut off after each commit: of the turn's work, the start and the result of the call."""
    daemon = make_daemon(("acme",)).start()
    client = daemon.client("acme")
    session = client.session(approvals=mode)
    proxy = Proxy(daemon)
    for at in range(2, 6):
        if mode == "ask":
            turn = client.start(session, "$ echo x >>ran")
            asked(client, turn)
        proxy.stop_at_commit(at, HOLD_AFTER)
        if mode == "ask":
            answer(client, turn, DENY)
        else:
            turn = client.start(session, "$ echo x >>ran")
        assert proxy.stopped.wait(20), f"no commit {at}: {proxy.commits}"
        proxy.cut_off()
        text = client.wait(turn).text
        assert text.startswith("error: denied: " if mode == "ask" else "error: planning: "), text
        assert not os.path.exists(f"{daemon.tenants['acme'].workspace}/ran"), f"commit {at}"
    proxy.close()
    assert daemon.stop() == 0


# --- plans -----------------------------------------------------------------------------------


def test_a_session_that_plans_only_reads(acme):
    name = uuid.uuid4().hex
    session = acme.session(approvals="plan")
    assert acme.call("GET", f"/v1/sessions/{session}")["approvals"] == "plan"
    for line in (f"$ touch {name}", f'@write_file {{"path":"{name}","content":"x"}}'):
        assert acme.run(session, line).text.startswith("error: planning: ")
    assert acme.run(session, '@read_file {"path":"/etc/hostname"}').status == "completed"
    plan = '@plan_exit {"plan":"1. touch it\\n2. done"}'
    for decision, value, text in (
            ("request_changes", "more detail", "changes are requested: more detail"),
            ("request_changes", None, "changes are requested: no more was said"),
            ("cancel", None, "the plan is refused; planning goes on")):
        turn = acme.start(session, plan)
        request = answer(acme, turn, decision, value, "plan_exit")
        assert request["prompt"] == "1. touch it\n2. done"
        assert request["options"] == ["approve", "request_changes", "cancel"]
        assert acme.wait(turn).text == text
        assert acme.call("GET", f"/v1/sessions/{session}")["approvals"] == "plan"
    turn = acme.start(session, f"{plan}\n$ touch {name}; ls {name}")
    answer(acme, turn, "approve", kind="plan_exit")
    assert acme.wait(turn).text == f"{name}\n"
    assert acme.call("GET", f"/v1/sessions/{session}")["approvals"] == "sandbox"


def test_a_session_begins_to_plan(acme):
    session = acme.session(approvals="ask")
    turn = acme.start(session, "@plan_enter {}")
    request = answer(acme, turn, "stay", kind="plan_enter")
    assert request["options"] == ["enter", "stay"]
    assert acme.wait(turn).text == "go on without a plan"
    assert acme.call("GET", f"/v1/sessions/{session}")["approvals"] == "ask"
    turn = acme.start(session, '@plan_enter {"reason":"this is large"}\n$ true')
    assert answer(acme, turn, "enter", kind="plan_enter")["prompt"] == "this is large"
    assert acme.wait(turn).text.startswith("error: planning: ")
    assert acme.call("GET", f"/v1/sessions/{session}")["approvals"] == "plan"
    turn = acme.start(session, '@plan_exit {"plan":"p"}\n$ echo as before')
    answer(acme, turn, "approve", kind="plan_exit")
    answer(acme, turn, ONCE)
    assert acme.wait(turn).text == "as before\n"


@pytest.mark.parametrize("line", [
    "@plan_exit {}", '@plan_exit {"plan":1}', '@plan_exit {"plan":"x","more":1}',
    '@plan_enter {"reason":1}', "@plan_enter []",
    pytest.param("@plan_exit " + json.dumps({"plan": "x" * 65536}), id="too large")])
def test_plans_that_are_refused(acme, session, line):
    assert acme.run(session, line).text.startswith("error: invalid_arguments: ")


# --- the field -------------------------------------------------------------------------------


def test_the_choice_is_made_with_the_session(acme):
    assert acme.call("POST", "/v1/sessions", {}, 201)["approvals"] == "sandbox"
    for word in ("sandbox", "ask", "plan"):
        assert acme.call("POST", "/v1/sessions", {"approvals": word}, 201)["approvals"] == word
    for word in ("", "Ask", "always"):
        acme.call("POST", "/v1/sessions", {"approvals": word}, 422, "invalid_approvals")
    acme.call("POST", "/v1/sessions", {"approvals": True}, 400, "invalid_json")
    body = {"clientRequestId": str(uuid.uuid4()), "approvals": "ask"}
    made = acme.call("POST", "/v1/sessions", body, 201)
    assert acme.call("POST", "/v1/sessions", body, 201) == made
    for change in ({"approvals": "sandbox"}, {"approvals": None}):
        acme.call("POST", "/v1/sessions", {**body, **change}, 409, "idempotency_conflict")


# --- what the operator wants -----------------------------------------------------------------------


def test_the_least_of_a_tenant(make_daemon):
    """The default of its sessions, and what they may not go below, before and after a reload."""
    daemon = make_daemon(("acme",)).start()
    client, entry = daemon.client("acme"), daemon.tenants["acme"].entry()
    old, planning = client.session(), client.session(approvals="plan")
    for least, allowed in (("ask", ("ask", "plan")), ("plan", ("plan",)),
                           ("sandbox", ("sandbox", "ask", "plan"))):
        daemon.write_registry({"version": 1, "tenants": [{**entry, "approvals": least}]})
        output_of(*AS_SERVICE, f"{daemon.world.programs}/cloisterd", "reload",
                  f"--state={daemon.state}")
        assert client.call("POST", "/v1/sessions", {}, 201)["approvals"] == least
        for word in ("sandbox", "ask", "plan"):
            body = {"approvals": word}
            if word in allowed:
                assert client.call("POST", "/v1/sessions", body, 201)["approvals"] == word
            else:
                client.call("POST", "/v1/sessions", body, 422, "invalid_approvals")
        if least != "ask":
            assert client.run(old, "$ echo free").text == "free\n"
            continue
        turn = client.start(old, "$ echo asked")
        answer(client, turn, ONCE)
        assert client.wait(turn).text == "asked\n"
        turn = client.start(planning, '@plan_exit {"plan":"p"}\n$ echo then')
        answer(client, turn, "approve", kind="plan_exit")
        answer(client, turn, ONCE)
        assert client.wait(turn).text == "then\n"
    assert daemon.stop() == 0


def test_the_least_is_one_of_three(make_daemon):
    daemon = make_daemon(("acme",))
    entry = daemon.tenants["acme"].entry()
    for word in ("Ask", "", 1):
        daemon.write_registry({"version": 1, "tenants": [{**entry, "approvals": word}]})
        done = subprocess.run([*AS_SERVICE, f"{daemon.world.programs}/cloisterd", "check",
                               daemon.registry], capture_output=True, text=True, check=False)
        assert done.returncode != 0 and "tenants[0].approvals: " in done.stdout, done
