"""Sessions that a tenant's own program drives, when it behaves."""

import json
import os

import pytest

from daemon import AS_SERVICE
from harness import command, install, open_session, script
from test_approvals import answer, asked
from world import eventually, output_of, punctual

MIB = 1 << 20


@pytest.fixture
def home(cloister):
    install(cloister, "acme")
    return cloister.tenants["acme"].workspace


@pytest.fixture
def session(acme, home):
    return open_session(acme)


def kinds(outcome, *wanted):
    return [k for _, k, _ in outcome.events if not wanted or k in wanted]


def data(outcome, kind):
    return [e["data"] for _, k, e in outcome.events if k == kind]


def items(client, session):
    return client.call("GET", f"/v1/sessions/{session}/history")["data"][-1]["turn"]["items"]


def lines(client, turn):
    """All that is kept of what was said in a turn, by number."""
    found, after = {}, 0
    while after is not None:
        page = client.call("GET", f"/v1/turns/{turn}/lines?after={after}")
        found.update({row["number"]: row["line"] for row in page["data"]})
        after = page["nextAfter"]
    return found


def text_of(outcome):
    return "".join(d["text"] for d in data(outcome, "response.text.delta"))


# --- sessions --------------------------------------------------------------------------


def test_a_session_says_what_drives_it(acme, home):
    session = open_session(acme, "--x=1", title="mine")
    shown = acme.call("GET", f"/v1/sessions/{session}")
    assert shown["engine"] == {"kind": "harness", "command": command("--x=1")}
    assert shown["model"] is None and shown["approvals"] == "sandbox"
    assert acme.call("GET", f"/v1/sessions/{acme.session()}")["engine"] == {"kind": "agent"}
    assert acme.call("POST", "/v1/sessions", {"engine": {"kind": "agent"}}, 201)["model"]
    fork = acme.call("POST", f"/v1/sessions/{session}/fork", {}, 201)
    assert fork["engine"] == shown["engine"]
    acme.call("PATCH", f"/v1/sessions/{session}", {"engine": {"kind": "agent"}}, 400,
              "invalid_json")


@pytest.mark.parametrize("engine,status,code", [
    ({"kind": "other"}, 422, "invalid_engine"),
    ({"kind": "agent", "command": ["x"]}, 422, "invalid_engine"),
    ({"kind": "harness"}, 422, "invalid_engine"),
    ({"kind": "harness", "command": []}, 422, "invalid_engine"),
    ({"kind": "harness", "command": [""]}, 422, "invalid_engine"),
    ({"kind": "harness", "command": ["x", 1]}, 422, "invalid_engine"),
    ({"kind": "harness", "command": ["x"] * 65}, 422, "invalid_engine"),
    ({"kind": "harness", "command": ["x" * 4093]}, 422, "invalid_engine"),
    ({"kind": "harness", "command": "x"}, 400, "invalid_json"),
    ({"kind": "harness", "command": ["x"], "cwd": "/"}, 400, "invalid_json"),
    ({"kind": 1}, 400, "invalid_json"),
    ({}, 400, "invalid_json"),
    ("harness", 400, "invalid_json"),
], ids=str)
def test_engines_that_are_refused(acme, engine, status, code):
    acme.call("POST", "/v1/sessions", {"engine": engine}, status, code)


def test_what_does_not_go_with_a_harness(acme):
    engine = {"kind": "harness", "command": ["x"]}
    acme.call("POST", "/v1/sessions", {"engine": engine, "model": "demo"}, 422, "invalid_engine")
    acme.call("POST", "/v1/sessions", {"engine": engine, "instructions": "be brief"}, 422,
              "invalid_engine")
    for approvals in ("ask", "plan"):
        acme.call("POST", "/v1/sessions", {"engine": engine, "approvals": approvals}, 422,
                  "invalid_approvals")
    made = acme.call("POST", "/v1/sessions", {"engine": engine}, 201)
    path = f"/v1/sessions/{made['id']}"
    acme.call("PATCH", path, {"instructions": "be brief"}, 422, "invalid_engine")
    assert acme.call("PATCH", path, {"title": "a"}, 200)["instructions"] is None


@pytest.mark.parametrize("approvals", ["ask", "plan"])
def test_an_operator_who_wants_to_be_asked(make_daemon, approvals):
    """Then no harness runs, also in sessions from before."""
    daemon = make_daemon(("acme",)).start()
    install(daemon, "acme")
    client, entry = daemon.client("acme"), daemon.tenants["acme"].entry()
    session = open_session(client)
    assert client.run(session, "hi").status == "completed"
    daemon.write_registry({"version": 1, "tenants": [{**entry, "approvals": approvals}]})
    output_of(*AS_SERVICE, f"{daemon.world.programs}/cloisterd", "reload",
              f"--state={daemon.state}")
    engine = {"kind": "harness", "command": command()}
    client.call("POST", "/v1/sessions", {"engine": engine}, 422, "invalid_approvals")
    outcome = client.run(session, "hi")
    assert (outcome.status, outcome.error["code"]) == ("failed", "harness_unavailable")


def test_a_command_at_its_bounds(acme):
    for argv in (["x" * 4092], ["x"] * 64, ["a", "", "\U0001f600"]):
        made = acme.call("POST", "/v1/sessions", {"engine": {"kind": "harness", "command": argv}},
                         201)
        assert made["engine"]["command"] == argv


def test_the_same_request_makes_one_session(acme):
    key = "0191d2b4-0000-7000-8000-00000000c0de"
    body = {"engine": {"kind": "harness", "command": ["x"]}, "clientRequestId": key}
    first = acme.call("POST", "/v1/sessions", body, 201)
    assert acme.call("POST", "/v1/sessions", body, 201)["id"] == first["id"]
    body["engine"] = {"kind": "harness", "command": ["y"]}
    acme.call("POST", "/v1/sessions", body, 409, "idempotency_conflict")


# --- turns -----------------------------------------------------------------------------


def test_a_turn(acme, session):
    steps = script(["delta", "I look"], ["delta", " around."],
                   ["notify", "tool_start", ["ls", "cat"]],
                   ["notify", "tool_calls", [{"name": "ls", "args": {"path": "/"}},
                                             {"name": "cat", "args": {"password": "x"}}]],
                   ["notify", "tool_running", "ls"],
                   ["notify", "tool", {"name": "ls", "output": "bin\n"}],
                   ["notify", "tool_running", "cat"], ["notify", "tool", "cat"],
                   ["notify", "todos", [{"content": "one", "status": "done"}]],
                   ["notify", "compact"], ["notify", "usage", {"input": 5, "output": 1}],
                   ["notify", "run_done"], ["log", "nearly"],
                   ["delta", "Done."],
                   ["result", {"answer": "Done.", "usage": {"input": 11, "output": 7}}])
    outcome = acme.watch(session, steps)
    assert (outcome.status, outcome.text) == ("completed", "Done.")
    assert kinds(outcome) == [
        "turn.queued", "turn.started", "harness.started", "harness.line", "agent.turn.started",
        "response.text.delta", "response.text.delta", "harness.line", "harness.line",
        "harness.line", "agent.turn.finished", "tool.started", "harness.line", "tool.finished",
        "harness.line", "agent.turn.started", "tool.started", "harness.line", "tool.finished",
        "harness.line", "harness.todos", "harness.line", "harness.compacted", "harness.line",
        "harness.usage", "harness.line", "harness.line", "response.text.delta", "harness.line",
        "agent.turn.finished", "turn.completed"]
    assert data(outcome, "harness.todos") == [{"todos": [{"content": "one", "status": "done"}]}]
    assert [d["output"] for d in outcome.finished] == ["bin\n", ""]
    assert data(outcome, "agent.turn.finished")[-1]["usage"] == {
        "inputTokens": 11, "outputTokens": 7, "cachedTokens": 0, "reasoningTokens": 0,
        "cost": None}
    shown = items(acme, session)
    assert [i["kind"] for i in shown] == ["user", "assistant", "tool_call", "tool_call",
                                          "tool_result", "tool_result", "assistant"]
    assert json.loads(shown[2]["arguments"]) == {"path": "/"}
    assert "x" not in shown[3]["arguments"].replace("[redacted]", "")
    usage = acme.call("GET", f"/v1/sessions/{session}")["usage"]
    assert (usage["input"], usage["output"]) == (11, 7)


@pytest.mark.parametrize("more", (0, 1))
def test_as_many_calls_as_a_turn_may_have_open(acme, session, more):
    """One more is told of by its line alone, and so is its end while the others go on."""
    names = [f"tool-{n}" for n in range(64 + more)]
    outcome = acme.watch(session, script(["notify", "tool_start", names],
                                         *[["notify", "tool", name] for name in reversed(names)]))
    assert outcome.status == "completed", outcome.error
    assert len(outcome.finished) == 64
    assert [i["name"] for i in items(acme, session) if i["kind"] == "tool_call"] == names[:64]
    kept = list(lines(acme, outcome.turn["id"]).values())
    assert sum(json.dumps(names[-1]) in line for line in kept) == 2


def test_lines_are_kept_as_they_came(acme, session):
    """All but mere text; one that an event cannot hold is marked, and whole in the store."""
    odd = '{"type" : "log", "protocol":1,"seq":2,"run_id":"R", "message":"\\u00e4", "new": [1]}'
    long = "y" * 70000
    turn = acme.start(session, script(["raw", odd], ["number", 2], ["delta", "a", ],
                                      ["delta", "b", ], ["log", long]))
    with acme.events() as events:
        outcome = acme.wait(turn)
        outcome.events = events.of_turn(turn)
    assert outcome.status == "completed", outcome.error
    kept = lines(acme, turn)
    assert [json.loads(v)["type"] for v in kept.values()] == ["start", "log", "log", "result"]
    assert list(kept.values())[1] == odd
    assert json.loads(list(kept.values())[2])["message"] == long


def test_long_lines_in_events(acme, session):
    outcome = acme.watch(session, script(["log", "z" * 70000]))
    told = data(outcome, "harness.line")[1]
    assert told["truncated"] and told["kept"] and len(told["line"]) == 16383
    assert told["bytes"] > 70000 and told["lineType"] == "log"
    assert len(lines(acme, outcome.turn["id"])[told["number"]]) == told["bytes"]


def test_pages_of_lines(acme, session):
    turn = acme.run(session, script(["logs", 120, 1], ["logs", 3, MIB])).turn["id"]
    page = acme.call("GET", f"/v1/turns/{turn}/lines?limit=2")
    assert [r["number"] for r in page["data"]] == [1, 2] and page["nextAfter"] == 2
    page = acme.call("GET", f"/v1/turns/{turn}/lines?after=121&limit=100")
    assert [r["number"] for r in page["data"]] == [122] and page["nextAfter"] == 122
    assert sorted(lines(acme, turn)) == list(range(1, 126))
    acme.call("GET", f"/v1/turns/{turn}/lines?after=x", status=400, code="invalid_cursor")
    acme.call("GET", f"/v1/turns/{turn}/lines?after=4294967296", status=400,
              code="invalid_cursor")
    acme.call("GET", f"/v1/turns/{turn}/lines?limit=101", status=400, code="invalid_limit")
    acme.call("GET", f"/v1/turns/{turn}/lines?x=1", status=400, code="invalid_query")


def test_a_turn_of_the_agent_has_no_lines(acme):
    turn = acme.run(acme.session(), "hi").turn["id"]
    assert acme.call("GET", f"/v1/turns/{turn}/lines") == {"data": [], "nextAfter": None}


def test_a_retry_takes_back_what_was_shown(acme, session):
    outcome = acme.watch(session, script(["delta", "wrong"], ["notify", "retry", {}],
                                         ["delta", "right"], ["result", {"answer": "right"}]))
    assert outcome.text == "right"
    assert kinds(outcome, "response.text.delta", "response.attempt.discarded") == [
        "response.text.delta", "response.attempt.discarded", "response.text.delta"]
    turn = acme.call("GET", f"/v1/sessions/{session}/history")["data"][-1]["turn"]
    assert [i["kind"] for i in turn["items"]] == ["user", "assistant"]
    assert [i["text"] for i in turn["displayItems"]] == ["wrong"]


def test_an_answer_that_was_not_streamed(acme, session):
    outcome = acme.watch(session, "no script")
    assert outcome.text == "no script" == text_of(outcome)
    outcome = acme.watch(session, script(["delta", "draft"], ["result", {"answer": "final"}]))
    assert outcome.text == "final"
    assert kinds(outcome, "response.attempt.discarded") == ["response.attempt.discarded"]


@pytest.mark.parametrize("result,code,text", [
    ({"errors": [{"code": "unknown", "message": "odd"}, {"code": "budget", "message": "spent"}],
      "error_messages": ["odd", "spent"]}, "harness_budget", "odd\nspent"),
    ({"errors": [{"code": "timeout", "message": "slow"}]}, "harness_timeout", "slow"),
    ({"errors": [{"code": "else", "message": ""}]}, "harness_failed",
     "the harness reports an error without a text"),
    ({"error_messages": ["told"]}, "harness_failed", "told"),
], ids=["budget", "timeout", "empty", "flat"])
def test_errors(acme, session, result, code, text):
    outcome = acme.run(session, script(["result", {"answer": "half", **result}]))
    assert outcome.status == "failed"
    assert (outcome.error["code"], outcome.error["message"]) == (code, text)
    assert items(acme, session)[-1]["text"] == "half"


def test_an_error_on_the_way(acme, session):
    outcome = acme.watch(session, script(["notify", "error", "no disk"],
                                         ["notify", "error", {"code": "c", "message": "no net"}],
                                         ["result", {"answer": "half"}]))
    assert (outcome.status, outcome.error["message"]) == ("failed", "no disk\nno net")
    assert len(data(outcome, "warning")) == 2


def test_it_says_that_it_was_cancelled(acme, session):
    outcome = acme.run(session, script(["result", {"cancelled": True}]))
    assert (outcome.status, outcome.error) == ("cancelled", None)


def test_attachments_are_named_in_the_prompt(acme, session):
    turn = acme.start(session, "look", files=[
        {"name": "a.txt", "mimeType": "text/plain", "data": "aGk="}])
    text = acme.wait(turn).text
    assert text.startswith("look\n\n[attached") and "/a.txt (text/plain, 2 bytes)" in text


# --- the process -----------------------------------------------------------------------


def who(client, session):
    pid, served = client.run(session, script(["who"])).text.split()
    return pid, int(served)


def test_one_process_serves_all_turns_of_a_session(acme, home):
    first, second = open_session(acme), open_session(acme)
    pid, served = who(acme, first)
    assert served == 1
    assert who(acme, first) == (pid, 2)
    other, served = who(acme, second)
    assert other != pid and served == 1
    assert who(acme, first) == (pid, 3)


def test_sessions_run_at_once(acme, home):
    """Each waits for the other's file."""
    name = os.urandom(6).hex()
    first, second = open_session(acme), open_session(acme)
    a = acme.start(first, script(["touch", f"/workspace/{name}a"],
                                 ["wait_file", f"/workspace/{name}b"]))
    b = acme.start(second, script(["touch", f"/workspace/{name}b"],
                                  ["wait_file", f"/workspace/{name}a"]))
    assert acme.wait(a).status == acme.wait(b).status == "completed"


def test_a_deleted_session_ends_its_process(acme, home):
    """It is asked to, and has the time to say farewell."""
    name = os.urandom(6).hex()
    session = open_session(acme, f"--farewell=/workspace/{name}")
    who(acme, session)
    acme.call("DELETE", f"/v1/sessions/{session}", status=204)
    eventually(lambda: os.path.exists(f"{home}/{name}"), 20, "the farewell")


def test_more_sessions_than_a_tenant_has_processes(make_daemon):
    """Who was idle for the longest time makes room; when nobody is, there is none.

    It takes the time that as many processes need to begin."""
    daemon = make_daemon(("acme",)).start(max_running_turns=64, max_running_turns_per_tenant=32)
    install(daemon, "acme")
    client = daemon.client("acme")
    workspace = daemon.tenants["acme"].workspace
    sessions = [open_session(client) for _ in range(17)]
    pids = [who(client, s) for s in sessions]
    assert len(set(pids)) == 17
    assert who(client, sessions[-1]) == (pids[-1][0], 2)
    turns = [client.start(s, script(["touch", f"/workspace/at{i}"],
                                    ["wait_file", "/workspace/go"]))
             for i, s in enumerate(sessions[1:])]
    eventually(lambda: all(os.path.exists(f"{workspace}/at{i}") for i in range(16)), 60,
               "all of them at work")
    refused = client.run(sessions[0], "hi")
    assert (refused.status, refused.error["code"]) == ("failed", "harness_limit")
    with open(f"{workspace}/go", "w", encoding="utf-8"):
        pass
    assert {client.wait(t).status for t in turns} == {"completed"}
    assert who(client, sessions[0])[1] == 1, "it has no memory"


def test_an_idle_process_does_not_keep_its_sandbox(make_daemon):
    daemon = make_daemon(("acme",)).start(sandbox_idle_seconds=2)
    install(daemon, "acme")
    client = daemon.client("acme")
    session = open_session(client)
    turn = client.start(session, script(["sleep", 5], ["who"]))
    assert client.wait(turn).text.split()[1] == "1", "its sandbox was stopped while it worked"
    daemon.expect_end("acme")
    assert who(client, session)[1] == 1


# --- questions -------------------------------------------------------------------------


def question(ask_id="0123456789ab", **more):
    return {"kind": "ask", "questions": [{"question": "which?", "options": ["a", {"label": "b"}]}],
            "ask_id": ask_id, **more}


def test_a_question(acme, session):
    with acme.events() as events:
        turn = acme.start(session, script(["ask", question()], ["delta", "!"]))
        request = answer(acme, turn, "b", kind="harness_ask")
        assert (request["prompt"], request["options"]) == ("which?", ["a", "b", "custom"])
        seen = events.until_end(turn)
    assert acme.wait(turn).text == "[b]!"
    names = [k for _, k, _ in seen]
    assert names.index("request.created") < names.index("request.resolved")
    assert "turn.resumed" in names and names.count("harness.started") <= 1
    shown = items(acme, session)
    assert [i["kind"] for i in shown] == ["user", "tool_call", "tool_result", "assistant"]
    assert json.loads(shown[1]["arguments"])["question"] == "which?"
    assert shown[2]["output"] == "b"


def test_an_answer_of_ones_own(acme, session):
    turn = acme.start(session, script(["ask", question()]))
    answer(acme, turn, "custom", "neither", kind="harness_ask")
    assert acme.wait(turn).text == "[neither]"


@pytest.mark.parametrize("decision", ["yes", "no"])
def test_a_confirm(acme, session, decision):
    turn = acme.start(session, script(["ask", {"kind": "confirm", "prompt": "sure?",
                                               "ask_id": "0123456789ab"}]))
    request = answer(acme, turn, decision, kind="harness_confirm")
    assert (request["prompt"], request["options"]) == ("sure?", ["yes", "no"])
    assert acme.wait(turn).text == f"[{decision}]"


def test_several_questions_are_put_one_after_another(acme, session):
    asks = question(questions=[{"question": "one"}, {"text": "two", "options": ["x"]}, "three"])
    turn = acme.start(session, script(["ask", asks]))
    seen = []
    for decision, value in (("custom", "1"), ("x", None), ("custom", "3")):
        eventually(lambda: [r for r in acme.call("GET", f"/v1/requests?turnId={turn}")["data"]
                            if r["id"] not in seen], 30, "the next question")
        seen.append(answer(acme, turn, decision, value, kind="harness_ask")["id"])
    assert acme.wait(turn).text == "[1, x, 3]"


@pytest.mark.parametrize("asks,said", [
    ({"kind": "ask", "questions": []}, "[Unanswered]"),
    ({"kind": "confirm"}, "[no]"),
    (question(questions=[{"question": "q" * 65536}]), "[Unanswered]"),
    ({"kind": "ask", "questions": [{"question": "q", "options": ["o"] * 100}]}, "[Unanswered]"),
], ids=["none", "empty", "large", "options"])
def test_questions_that_cannot_be_shown(acme, session, asks, said):
    outcome = acme.watch(session, script(["ask", asks]))
    assert (outcome.status, outcome.text) == ("completed", said)
    assert len(data(outcome, "warning")) == 1 and "request.created" not in kinds(outcome)


def test_a_question_that_is_not_waited_for(acme, session):
    """The harness goes on: so does the turn, and the request is withdrawn."""
    turn = acme.start(session, script(["ask", question(), False],
                                      ["wait_file", "/workspace/never-mind"], ["retire"],
                                      ["delta", "went on"]))
    with acme.events() as events:
        asked(acme, turn)
        assert acme.run(acme.session(), "$ echo >never-mind").status == "completed"
        outcome = acme.wait(turn)
        events.until_end(turn)
        resolved = [e["data"]["status"] for _, k, e in events.of_turn(turn)
                    if k == "request.resolved"]
    assert (outcome.status, outcome.text) == ("completed", "went on")
    assert resolved == ["withdrawn"]
    assert acme.call("GET", f"/v1/requests?turnId={turn}")["data"] == []


def test_a_cancel_while_a_question_is_open(acme, session):
    pid = who(acme, session)[0]
    turn = acme.start(session, script(["ask", question()]))
    asked(acme, turn)
    acme.end(turn)
    assert who(acme, session) == (pid, 3), "the harness was not taken back"


# --- cancels ---------------------------------------------------------------------------


def test_a_cancel_counts_what_was_used(acme, session):
    def attempt():
        with acme.events() as events:
            turn = acme.start(session, script(["notify", "usage", {"input": 3, "output": 2}],
                                              ["delta", "so far"], ["sleep", 60]))
            events.until_kind(turn, "response.text.delta")
            acme.cancel_in_time(turn)

    punctual(attempt)
    session_usage = acme.call("GET", f"/v1/sessions/{session}")["usage"]
    assert session_usage["input"] in (0, 3, 6, 9)
    assert who(acme, session)[1] > 1
